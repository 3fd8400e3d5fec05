"""Read back what receivers hold of a table, and up to which of its versions they say they have it.

In: a stream and its receiver's address. Out: `Received`. A log of changes counts from the last snapshot on that it was
given, or since its stream began. A database is read in one transaction, by way of files; nothing is written elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from itertools import groupby, islice
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from mirrorlib.commit.last_commit import read_last_commit
from mirrorlib.delivery.sinks.delta.work import open_place
from mirrorlib.delivery.sinks.exact_text import JSON_OPTIONS
from mirrorlib.delivery.sinks.files.manifest import ManifestEntry, Receiver
from mirrorlib.delivery.sinks.zone.batch import read_batch
from mirrorlib.delta.columns import to_columns
from mirrorlib.delta.log import Commit
from mirrorlib.delta.sessions import file_reader
from mirrorlib.delta.table import find_target, open_log, refer
from mirrorlib.errors import FileChangedError, ForeignWriteError, LandingZoneError, SchemaError
from mirrorlib.feed.net import FEED_COLUMNS, KIND, sign
from mirrorlib.identifiers import find_name, quote
from mirrorlib.ingest.batch.spark_reader import Stage
from mirrorlib.ingest.files.source import Source
from mirrorlib.ingest.files.table_folder import open_folder, policies_of
from mirrorlib.ingest.options import Options
from mirrorlib.ingest.rows.read import read_landed
from mirrorlib.journal.streams import Stream
from mirrorlib.landing.listing import TableFolder
from mirrorlib.landing.publish.allocate import newest_claim, newest_number
from mirrorlib.landing.publish.claims import FileSequence
from mirrorlib.names import parse_name, sequence_name
from mirrorlib.operate.verify.compare import SIDE, wanted_rows
from mirrorlib.operate.verify.replay import Opened, list_places, read_files
from mirrorlib.store import open_store

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType, StructType

_ROWS = 10_000  # of a database at a time
_EMPTY = "\x01\x02"  # stands for empty text, which Spark's reader of CSV takes for NULL


@dataclass(frozen=True, slots=True, kw_only=True)
class Received:
    """What a receiver holds of a table.

    Attributes:
        stream: uuid of the stream that was the last to write there.
        version: it has everything up to this one of the table.
        table_id: of that table; "" where it does not say.
        keys: by which it was kept.
        rows: gives its rows, with `SIDE`, for the columns that the table has in that version.
        is_log: the rows are changes, of which some take back others.
        since: the version behind which a log begins; None where it begins with a snapshot.

    """

    stream: str
    version: int
    table_id: str = ""
    keys: tuple[str, ...]
    rows: Callable[[StructType], DataFrame]
    is_log: bool = False
    since: int | None = None


def read_received(stage: Stage, stream: Stream, to: str) -> Received:
    """Read what a receiver says of a table; its rows are read when they are asked for.

    Raises `LandingZoneError` where nothing reads such a receiver back, or its address is not known whole;
    `ForeignWriteError` where it does not hold the stream's table; `FileChangedError` where some of it is gone.
    """
    kind, _, address = to.partition(":")
    if kind not in _READERS:
        msg, known = "nothing reads back what such a receiver holds", ", ".join(_READERS)
        step = f"Receivers of these kinds can be verified: {known}."
        raise LandingZoneError(msg, table=stream.table, found=kind[:80], next_step=step)
    if "***" in address:
        msg = "passwords are kept nowhere, and the receiver's address has one"
        raise LandingZoneError(msg, table=stream.table, next_step="Give it whole: --to URL")
    return _READERS[kind](stage, stream, address)


def _other(stream: Stream, *owner: object) -> ForeignWriteError:
    """Say that a receiver does not hold this consumer's copy of this table, but another *owner*'s, or nobody's."""
    msg = "the receiver does not hold what the consumer was given of the table"
    found = " of ".join(map(str, owner)) or "nothing that an export has written"
    step = "See where the consumer receives: mirrorlib consumers TARGET"
    return ForeignWriteError(msg, table=stream.table, found=found, next_step=step)


def _sided(frame: DataFrame, side: int = -1) -> DataFrame:
    """Say of rows on which side they are."""
    from pyspark.sql import functions as f

    return frame.withColumn(SIDE, f.lit(side))


def _changes(frame: DataFrame, turn: int = 1) -> DataFrame:
    """Say of changes which take back others; all of them do so of themselves where *turn* is -1."""
    from pyspark.sql import functions as f

    return frame.where(f.col(KIND) != "reset").withColumn(SIDE, sign() * -turn).drop(*FEED_COLUMNS)


def _read_delta(stage: Stage, stream: Stream, address: str) -> Received:
    ref = refer(open_place(address), parse_name(stream.table))
    target = find_target(stage.spark, ref)
    if target is None:
        raise _other(stream)
    log = open_log(stage.spark, ref, target[0].location)
    last = read_last_commit(log)
    facts = last.facts or {}
    if (owner := (facts.get("table"), facts.get("consumer"))) != (stream.table, stream.consumer):
        raise _other(stream, *(owner if facts else ()))

    def travel(version: int) -> DataFrame:
        reader = stage.spark.read.format("delta").option("versionAsOf", version)
        return reader.table(ref.sql) if ref.path is None else reader.load(ref.path)

    told = partial(
        Received,
        stream=facts["stream"],
        version=int(facts["upto"]),
        table_id=facts["table_id"],
        keys=tuple(facts["keys"]),
    )
    now = travel(last.newest)
    if stream.mode == "scd2":
        open_rows = now.where("is_current").drop("valid_from", "valid_to", "is_current")
        return told(rows=lambda _: _sided(open_rows))
    if stream.mode == "current":
        return told(rows=lambda _: _sided(now))
    first = _first_window(log.commits(-1, last.newest), facts["stream"], stream)
    was = _changes(travel(first.version - 1), -1)
    is_snapshot = (first.ours or {})["kind"] == "snapshot"
    return told(
        rows=lambda _: _changes(now).unionByName(was, allowMissingColumns=True),
        is_log=True,
        since=None if is_snapshot else int((first.ours or {})["after"]),
    )


def _first_window(commits: Sequence[Commit], uuid: str, stream: Stream) -> Commit:
    """Find the commit with which the log of a stream begins: its last snapshot, or its first window."""
    first, whole = None, commits[0].version == 0
    for commit in reversed(commits):
        facts = commit.ours or {}
        if "window" in facts and facts["stream"] != uuid:
            whole = True
            break
        first = commit if "window" in facts else first
        if first is not None and (first.ours or {})["kind"] == "snapshot":
            return first
    if first is None or not whole:
        msg = "the log of the receiver's table does not tell any more where the stream begins in it"
        step = "A rewind to a snapshot begins anew: mirrorlib consumers TARGET --rewind NAME --to snapshot"
        raise FileChangedError(msg, table=stream.table, next_step=step)
    return first


def _read_manifest(stage: Stage, stream: Stream, address: str) -> Received:
    receiver = Receiver(open_store(address.partition("?")[0]), stream.table)
    entries = receiver.entries()
    owners = [(entry.table, entry.consumer) for entry in entries[-1:]]
    if owners != [(stream.table, stream.consumer)]:
        raise _other(stream, *sum(owners, ()))
    snapshots = [place for place, entry in enumerate(entries) if entry.kind == "snapshot"]
    entries = entries[snapshots[-1] if snapshots else 0 :]
    for entry in entries:
        for file in entry.files:
            there = receiver.store.stat(f"{receiver.folder}/{file.name}")
            if there is None or there.size != file.bytes:
                msg = "a file that was delivered is gone, or is another one"
                step = "Nothing is to be done where a reader takes files away: then they cannot be verified."
                raise FileChangedError(msg, table=stream.table, file=file.name, next_step=step)

    def rows(_: StructType) -> DataFrame:
        alike = groupby(entries, key=lambda one: (one.columns, one.file_format))
        frames = (_read_windows(stage, receiver, [*some]) for _, some in alike)
        return reduce(
            lambda a, b: a.unionByName(b, allowMissingColumns=True), map(_changes, frames)
        )

    first, last = entries[0], entries[-1]
    return Received(
        stream=last.stream,
        version=last.until,
        keys=last.keys,
        rows=rows,
        is_log=True,
        since=None if first.kind == "snapshot" else first.after,
    )


def _read_windows(stage: Stage, receiver: Receiver, entries: Sequence[ManifestEntry]) -> DataFrame:
    """Read windows of the same columns and format."""
    from pyspark.sql import functions as f

    names = [file.name for entry in entries for file in entry.files]
    paths = [receiver.store.uri(f"{receiver.folder}/{name}") for name in names]
    columns = [(quote(one["name"]), one["type"]) for one in entries[0].columns]
    ddl = ", ".join(f"{name} {kind}" for name, kind in columns)
    if entries[0].file_format == "parquet":
        return file_reader(stage.spark, ddl).parquet(*paths)
    reader = stage.spark.read.options(**JSON_OPTIONS, mode="FAILFAST")
    if entries[0].file_format == "jsonl":
        return reader.options(lineSep="\n").schema(ddl).json(paths)
    texts = reader.schema(", ".join(f"{name} string" for name, _ in columns)).csv(
        paths, header=True, escape='"', multiLine=True, nullValue="", emptyValue=_EMPTY
    )
    values = []
    for name, kind in columns:
        text = f.when(f.col(name) == _EMPTY, "").otherwise(f.col(name))
        values.append((f.unbase64(text) if kind == "binary" else text.cast(kind)).alias(name[1:-1]))
    return texts.select(*values)


def _read_zone(stage: Stage, stream: Stream, address: str) -> Received:
    zone, name = open_store(address), parse_name(stream.table)
    place = FileSequence(table=stream.table, folder=name.folder)
    number, claim = newest_claim(zone, place, newest_number(zone, place))
    batch = read_batch(claim)
    opened = open_folder(zone, TableFolder(name=name, path=name.folder))
    if batch is None or opened.metadata is None:
        raise _other(stream)
    if (owner := (batch.table, batch.consumer)) != (stream.table, stream.consumer):
        raise _other(stream, *owner)
    policies = policies_of(opened.metadata, opened.dialect, Options())
    source = Source(zone=zone, table=name.shown, folder=name.folder, policies=policies)
    places = [*list_places(zone, name)]
    files = [_open_numbered(source, places, one) for one in range(1, number + 1)]

    def rows(schema: StructType) -> DataFrame:
        columns = to_columns((field.name, field.dataType.simpleString()) for field in schema)
        begun, rest, _ = read_files(stage, files, columns, None)
        names = tuple(column.name for column in columns)
        return _sided(wanted_rows(begun, rest, batch.keys, names))

    return Received(
        stream=batch.stream,
        version=batch.until,
        table_id=batch.table_id,
        keys=batch.keys,
        rows=rows,
    )


def _open_numbered(source: Source, places: Iterable[str], number: int) -> Opened:
    """Open a change file where it was published, or where applied files are moved to."""
    name = sequence_name(number)
    for place in places:
        if (file := source.zone.stat(f"{place}/{name}")) is not None:
            return source, read_landed(source, file, decode=False)
    msg, step = "the change file is gone", "Bring it back; without it nothing can be said."
    raise FileChangedError(msg, table=source.table, file=name, next_step=step)


def _read_database(stage: Stage, stream: Stream, address: str) -> Received:
    from mirrorlib.delivery.sinks.jdbc.database import has_books, read_held
    from mirrorlib.delivery.sinks.jdbc.sink import open_database

    with open_database(address).session(stream.table, ()) as session:
        session.begin_reading()
        place = session.place(parse_name(stream.table))
        record = read_held(session, place, stream).record if has_books(session) else None
        if record is None:
            raise _other(stream)
        if (owner := (record.source_table, record.consumer)) != (stream.table, stream.consumer):
            raise _other(stream, *owner)
        names = [name for name, _ in session.columns(place) or ()]
        texts = _write_texts(stage, names, session.texts(place, names))
    return Received(
        stream=record.stream,
        version=record.delta_version,
        table_id=record.table_id,
        keys=tuple(record.keys),
        rows=lambda schema: _sided(_typed(texts, names, schema, stream.table)),
    )


def _write_texts(
    stage: Stage, names: Sequence[str], rows: Iterable[tuple[str | None, ...]]
) -> DataFrame:
    """Write rows of text where Spark can read them; columns are numbered, so that names clash with nothing."""
    path, rest = f"{stage.folder}/rows.parquet", iter(rows)
    schema = pa.schema([(f"c{place}", pa.string()) for place in range(len(names))])
    with (
        stage.state.open_new(path) as file,
        pq.ParquetWriter(file, schema, compression="zstd") as writer,
    ):
        while some := [*islice(rest, _ROWS)]:
            columns = [pa.array(column, pa.string()) for column in zip(*some, strict=True)]
            writer.write_table(pa.Table.from_arrays(columns, schema=schema))
    ddl = ", ".join(f"{name} string" for name in schema.names)
    return file_reader(stage.spark, ddl).parquet(stage.state.uri(path))


def _typed(texts: DataFrame, names: Sequence[str], schema: StructType, table: str) -> DataFrame:
    """Give a database's text the types of the table's columns."""
    from pyspark.sql import functions as f

    values: list[Column] = []
    unfit: list[Column] = []
    for field in schema.fields:
        if (name := find_name(names, field.name)) is not None:
            text = f"c{names.index(name)}"
            value = _value(text, field.dataType)
            values.append(value.alias(field.name))
            unfit.append(f.max(f.isnotnull(text) & value.isNull()).alias(field.name))
    found = texts.agg(*unfit).collect()[0].asDict()
    for name in (name for name, is_unfit in found.items() if is_unfit):
        msg = "the database holds a value that is none of the column's type"
        step = (
            "Somebody else has written it: correct it there, or let a snapshot replace the table."
        )
        raise SchemaError(msg, table=table, column=name, next_step=step)
    return texts.select(*values)


def _value(text: str, kind: DataType) -> Column:
    """Read the column *text* as a type; NULL where that cannot be."""
    from pyspark.sql import functions as f

    if kind.typeName() in {"struct", "array"}:
        return f.from_json(text, kind, JSON_OPTIONS)  # type: ignore[arg-type]  # of any type
    if kind.typeName() == "binary":
        return f.expr(f"unhex(substr({text}, 3))")  # behind \\x
    return f.expr(f"try_cast({text} AS {kind.simpleString()})")


_READERS: Mapping[str, Callable[[Stage, Stream, str], Received]] = {
    "delta": _read_delta,
    "files": _read_manifest,
    "zone": _read_zone,
    "jdbc": _read_database,
}
