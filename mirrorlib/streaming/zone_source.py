"""`landing_zone`: a landing zone's change files, or one table's raw changes, as a source of Spark's.

In: options `path`, and `table` for its raw changes. Out: without a table a row a file; with one the rows of its files,
each with its marker, its file, that one's number and its own place in it, up to where `apply` would stop. A file that
cannot be read, or is gone before it was, is an error. Delivery of a query: each raw change once, as its checkpoint has
it. The list of files tells, by their times, what has come; nothing rests on it.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

import pyarrow as pa
from pyspark.sql import datasource as ds
from pyspark.sql.types import StructType

from mirrorlib.delta.columns import Columns, to_columns
from mirrorlib.delta.sessions import side_by_side
from mirrorlib.errors import ChangeFileError, LandingZoneError, SchemaError, StoreError
from mirrorlib.ingest.batch.evolve import Newcomer
from mirrorlib.ingest.files.plan import Files, position_after
from mirrorlib.ingest.files.source import Source
from mirrorlib.ingest.files.table_folder import OpenedFolder, open_folder, policies_of
from mirrorlib.ingest.next_batch import choose_files
from mirrorlib.ingest.options import SETTLE, Options
from mirrorlib.ingest.rows.decode import open_file
from mirrorlib.ingest.rows.read import open_batches, read_landed
from mirrorlib.ingest.rows.rescue import fitted_rows
from mirrorlib.journal.disk import Journal
from mirrorlib.landing.listing import list_tables, see_below, see_folder
from mirrorlib.names import (
    WHOLE_FOLDER,
    TableName,
    matches,
    only_table,
    partition_of,
    sequence_number,
)
from mirrorlib.store import StoredFile, open_store
from mirrorlib.streaming import feed_source

Offset: TypeAlias = dict[str, Any]
_Seen: TypeAlias = dict[str, tuple[Offset, tuple[StoredFile, ...]]]
_FILES = "table string, file string, sequence bigint, bytes bigint, published timestamp"
_BITS = 63  # of a bigint's value
_PLACE = "__rowMarker__ int, _mirror_file string, _mirror_sequence bigint, _mirror_ordinal bigint"


class LandingZone(feed_source.Source):
    """A zone's files, or with the option `table` the raw changes of that one; the last two are `stream_apply`'s."""

    known = "path", "table", "tables", "state"

    @classmethod
    def name(cls) -> str:
        """Return what SQL calls it."""
        return "landing_zone"

    def schema(self) -> str:
        """Give the columns of the list, or those that hold the values of all of a table's files."""
        if "table" not in self.options:
            return _FILES
        source, opened = _open(dict(self.options))
        columns = _grow(source, _run(opened, _before(opened)), ())
        return ", ".join([*(one.ddl for one in columns), _PLACE])

    def streamReader(self, schema: StructType) -> ds.DataSourceStreamReader:  # noqa: N802  # Spark's name
        """Read what is there, and what comes."""
        options = dict(self.options)
        return _ChangesReader(options, schema) if "table" in options else _FilesReader(options)


class _FilesReader(ds.DataSourceStreamReader):
    """Lists the files of all tables, or of `tables`; what `state` has not as current is new every ten seconds."""

    def __init__(self, options: dict[str, str]) -> None:
        self.options = options
        self._seen: _Seen = {}

    def _look(self) -> _Seen:
        zone, place = open_store(self.options["path"]), self.options.get("state")
        state = open_store(place) if place else None
        wanted = json.loads(self.options.get("tables", "[]"))
        tables = list_tables(zone)
        for refusal in tables.values():
            if state is None and isinstance(refusal, StoreError):  # of a whole schema
                raise refusal

        def see(name: TableName) -> tuple[Offset, tuple[StoredFile, ...]]:
            try:
                seen = see_below(zone, name, see_folder(zone, name), plain=True)
            except StoreError:
                if state is None:
                    raise  # else its files would be left out, and be given again by the next look
                # `apply` says it, and goes on with the other tables.
                return {"tried": int(time.time() // SETTLE)}, ()
            written = [file.modified for file in (seen.metadata, *seen.files) if file is not None]
            look: Offset = {"written": max(written).isoformat()} if written else {}
            numbers = (sequence_number(file.name) or 0 for file in seen.files)
            look |= {"newest": max(numbers, default=0), "files": len(seen.files)}
            word = Journal(state, name).read_status() if state else {}
            if state and word.get("state") != "current":  # time alone may change that
                # What was never tried, as of a target that is new or gone, is new at every look.
                look["tried"] = int(time.time() // SETTLE) if word else time.time()
            return look, seen.files

        names = [one for one, bad in tables.items() if not bad and matches(one, wanted)]
        looks = side_by_side(see, names, zone.at_once)
        return dict(zip(map(str, names), looks, strict=True))

    def initialOffset(self) -> Offset:  # noqa: N802
        return {}

    def latestOffset(self, start: object = None, limit: object = None) -> Offset:  # noqa: N802
        del start, limit
        self._seen = self._look()
        return {table: look for table, (look, _) in self._seen.items()}

    def partitions(self, start: Offset, end: Offset) -> Sequence[ds.InputPartition]:
        seen, self._seen = self._seen or self._look(), {}  # it ends where Spark has just looked
        found = []
        for table, (_, files) in seen.items():
            since, until = (look.get(table, {}).get("written", "") for look in (start, end))
            rows = [
                (
                    table,
                    _as_utf8(one.name),
                    _as_bigint(sequence_number(one.name)),
                    one.size,
                    one.modified,
                )
                for one in files
                if since < one.modified.isoformat() <= until
            ]
            found += [ds.InputPartition(rows)] if rows else []
        return found

    def read(self, partition: ds.InputPartition) -> Iterator[tuple[Any, ...]]:
        yield from partition.value


class _ChangesReader(ds.DataSourceStreamReader):
    """Reads one table's files, each by itself; a position is that of `apply`, and the files that it ends with."""

    def __init__(self, options: dict[str, str], schema: StructType) -> None:
        self.options, self.wanted = options, schema

    def initialOffset(self) -> Offset:  # noqa: N802
        source, opened = _open(self.options)
        return {"table": source.table, "read": _before(opened), "ends": {}}

    def latestOffset(self, start: object = None, limit: object = None) -> Offset:  # noqa: N802
        del limit
        source, opened = _open(self.options)
        by_time, position = opened.listing.by_time, _before(opened)
        if by_time and start != {}:  # which a batch alone gives
            msg = "files without numbers give a query no place to go on from"
            step = "Read them as a batch, or apply the zone and stream the table's feed."
            raise LandingZoneError(msg, table=source.table, next_step=step)
        files = _run(opened, position)
        ends = {partition_of(file.name): file.etag for _, file in files}
        read = position_after(position, files, by_time=by_time)
        return {"table": source.table, "read": read, "ends": {} if by_time else ends}

    def partitions(self, start: Offset, end: Offset) -> Sequence[ds.InputPartition]:
        source, opened = _open(self.options)
        if {start["table"], end["table"]} != {source.table}:
            msg, found = "the checkpoint is of another table", start["table"]
            step = "Give each table's query a checkpoint of its own."
            raise LandingZoneError(msg, table=source.table, found=found, next_step=step)
        by_time, position = opened.listing.by_time, {**_before(opened), **start["read"]}
        there, ends = opened.listing.partitions, start["ends"].items()
        last = [(there.get(place, {}).get(position[place]), etag) for place, etag in ends]
        others = any(file and file.etag != etag for file, etag in last)
        files = tuple(
            (number, file)
            for number, file in _run(opened, position)
            if number <= end["read"].get(WHOLE_FOLDER if by_time else partition_of(file.name), 0)
        )
        until = position_after(position, files, by_time=by_time)
        if others or end["read"].items() - until.items():
            msg = "files that were read, or are still to be read, have gone or were begun anew"
            step = "Read them all again, with a new checkpoint."
            raise ChangeFileError(msg, table=source.table, next_step=step)
        fields = self.wanted.fields[: -len(_PLACE.split(", "))]
        columns = to_columns((one.name, one.dataType.simpleString()) for one in fields)
        if len(columns) != len(fields) or _grow(source, files, columns) != columns:
            msg = "the table's files have other columns than those that were asked for"
            step = "Load the table again: make the view anew, or start the query again."
            raise SchemaError(msg, table=source.table, next_step=step)
        place = source.table, source.folder, source.policies, columns  # a store may not travel
        return [ds.InputPartition((*place, number, file)) for number, file in files]

    def read(self, partition: ds.InputPartition) -> Iterator[pa.RecordBatch]:
        table, folder, policies, columns, number, file = partition.value
        zone, ordinal = open_store(self.options["path"]), 0
        source = Source(zone=zone, table=table, folder=folder, policies=policies)
        landed = read_landed(source, file, decode=False)
        for part, markers in open_batches(landed):
            fitted, count = fitted_rows(part, columns).columns, len(markers)
            numbers = pa.array([_as_bigint(number)] * count, pa.int64())
            names = pa.array([_as_utf8(file.name)] * count, pa.string())
            ordinals = pa.array(range(ordinal, ordinal + count), pa.int64())
            values = (*fitted, markers.cast(pa.int32()), names, numbers, ordinals)
            yield from feed_source.in_pieces(pa.table(values, self.wanted.names))
            ordinal += count
        source.check(file)


def _as_utf8(name: str) -> str:
    """Give a name as text that Spark can hold: what is broken in it as escapes."""
    return name.encode("utf-8", "backslashreplace").decode()


def _as_bigint(number: int | None) -> int | None:
    """Give a number of 20 digits as Spark has it: NULL where no bigint holds it."""
    return None if number is None or number.bit_length() > _BITS else number


def _open(options: dict[str, str]) -> tuple[Source, OpenedFolder]:
    """Open the one table that the options name, as `apply` opens its folder."""
    zone, wanted = open_store(options["path"]), options["table"]
    tables = list_tables(zone)
    name = only_table(tables, wanted, LandingZoneError)
    table, refusal = str(name), tables[name]
    if refusal is not None:
        raise refusal
    opened = open_folder(zone, name)
    if opened.waits_for or opened.metadata is None:
        raise LandingZoneError(opened.waits_for.rstrip("."), table=table, next_step="Load it then.")
    policies = policies_of(opened.metadata, opened.dialect, Options())
    return Source(zone=zone, table=table, folder=name.folder, policies=policies), opened


def _before(opened: OpenedFolder) -> Offset:
    """Give the position before the first file of each partition folder."""
    return {p: min(files) - 1 for p, files in opened.listing.partitions.items() if files}


def _run(opened: OpenedFolder, position: Offset) -> Files:
    """Name the files that `apply` would take after a position."""
    return choose_files(opened, position, {}, SETTLE).files


def _grow(source: Source, files: Files, columns: Columns) -> Columns:
    """Let columns grow as those of the mirror do; raises `SchemaError` where they cannot."""
    for _, file in files:
        columns = Newcomer(landed=open_file(source, file), before=columns).grow(columns)
    return columns
