"""Read back what receivers hold of a table, and up to which of its versions they say they have it.

In: a stream and its receiver's address. Out: `Received`. A log of changes counts from the last snapshot on that it was
given, or since its stream began.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby

from pyspark.sql import DataFrame
from pyspark.sql import functions as f
from pyspark.sql.types import StructType

from mirrorlib.commit.last_commit import read_last_commit
from mirrorlib.commit.stage import Stage
from mirrorlib.delivery.sinks.files.manifest import ManifestEntry, Receiver
from mirrorlib.delivery.sinks.open import open_place
from mirrorlib.delivery.sinks.zone.batch import read_batch
from mirrorlib.delta.columns import to_columns, write_type
from mirrorlib.delta.log import Commit
from mirrorlib.delta.sessions import file_reader, in_scans, side_by_side
from mirrorlib.delta.table import find_table, open_log, refer
from mirrorlib.errors import FileChangedError, ForeignWriteError, LandingZoneError
from mirrorlib.events import pick
from mirrorlib.feed.exact_text import JSON_OPTIONS
from mirrorlib.feed.net import DELETE, FEED_COLUMNS, KIND, PRE
from mirrorlib.identifiers import find_name, quote
from mirrorlib.ingest.batch.spark_reader import unite
from mirrorlib.ingest.files.source import Source
from mirrorlib.ingest.files.table_folder import open_folder, policies_of
from mirrorlib.ingest.options import Options
from mirrorlib.ingest.rows.read import Landed
from mirrorlib.journal.streams import Stream, snapshot_command
from mirrorlib.landing.publish.allocate import newest_claim, newest_number
from mirrorlib.landing.publish.claims import FileSequence
from mirrorlib.names import parse_name, sequence_name
from mirrorlib.operate.verify.applied_files import AT_ONCE, list_places, open_in
from mirrorlib.operate.verify.compare import SIDE, as_found, wanted_rows
from mirrorlib.operate.verify.database import typed_rows, write_texts
from mirrorlib.operate.verify.tables import read_files
from mirrorlib.store import contents, open_store

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
        window: the number of the stream's last window that it has; 0 where it says the table's id.
        begins: where rows are changes, some of which take back others, the version that they go on from.
        whole: they begin with all rows of that version.

    """

    stream: str
    version: int
    table_id: str = ""
    keys: tuple[str, ...]
    rows: Callable[[StructType], DataFrame]
    window: int = 0
    begins: int | None = None
    whole: bool = False


def _other_copy(stream: Stream, *owner: object) -> ForeignWriteError:
    """Say that a receiver does not hold this consumer's copy of this table, but another *owner*'s, or nobody's."""
    msg = "the receiver does not hold what the consumer was given of the table"
    found = " of ".join(map(str, owner)) or "nothing that an export has written"
    step = "See where the consumer receives: mirrorlib consumers TARGET"
    return ForeignWriteError(msg, table=stream.table, found=found, next_step=step)


def _check_copy(stream: Stream, table: object, consumer: object) -> None:
    """See that a receiver holds this consumer's copy of this table; raises what `_other_copy` returns."""
    if (table, consumer) != (stream.table, stream.consumer):
        raise _other_copy(stream, table, consumer)


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


def _changes(frame: DataFrame, turn: int = 1) -> DataFrame:
    """Say of changes which take back others; all of them do so of themselves where *turn* is -1."""
    side = f.when(f.col(KIND).isin(PRE, DELETE), turn).otherwise(-turn)
    told = frame.where(f.coalesce(f.col(KIND), f.lit("")) != "reset")
    return told.withColumn(SIDE, side).drop(*FEED_COLUMNS)


def _read_delta(stage: Stage, stream: Stream, address: str) -> Received:
    ref = refer(open_place(address), parse_name(stream.table))
    if (found := find_table(stage.spark, ref)) is None:
        raise _other_copy(stream)
    last = read_last_commit(open_log(stage.spark, ref, found.location))
    if not (facts := last.facts):
        if last.complete:
            raise _other_copy(stream)
        msg = "the log of the receiver's table does not tell any more what was written last"
        step = "It does so again once something has changed and is exported: verify then."
        raise FileChangedError(msg, table=stream.table, next_step=step)
    _check_copy(stream, facts.get("table"), facts.get("consumer"))

    def travel(version: int) -> DataFrame:
        reader = stage.spark.read.format("delta").option("versionAsOf", version)
        return reader.table(ref.sql) if ref.path is None else reader.load(ref.path)

    told = partial(
        Received, stream=facts["stream"], table_id=facts["table_id"], keys=tuple(facts["keys"])
    )
    now, upto = travel(last.newest), int(facts["upto"])
    if stream.mode == "scd2":
        now = now.where("is_current").drop("valid_from", "valid_to", "is_current")
    if stream.mode != "changes":
        return told(version=upto, rows=lambda _: as_found(now))
    first, is_first = _first_window(last.log.commits(-1, last.newest), facts["stream"], stream)
    begun = first.ours or {}
    was = now.limit(0) if is_first else travel(first.version - 1)
    return told(
        version=int(facts["until"]),
        rows=lambda _: unite([_changes(now), _changes(was, -1)]),
        begins=int(begun["until"] if begun["kind"] == "snapshot" else begun["after"]),
        whole=begun["kind"] == "snapshot",
    )


def _first_window(commits: Sequence[Commit], uuid: str, stream: Stream) -> tuple[Commit, bool]:
    """Find the commit with which a stream's log begins, its last snapshot or first window; was nothing there before?"""
    windows = [one for one in commits if "window" in (one.ours or {})]
    first, whole = None, commits[0].version == 0
    for commit in reversed(windows):
        facts = commit.ours or {}
        if facts["stream"] != uuid:
            break
        first = commit
        if facts["kind"] == "snapshot":
            return first, whole and first is windows[0]
    if first is None or (first is windows[0] and not whole):
        msg = "the log of the receiver's table does not tell any more where the stream begins in it"
        again = snapshot_command(stream.consumer, stream.table)
        step = f"It stays as it is; a snapshot begins anew, and appends all rows once more: {again}"
        raise FileChangedError(msg, table=stream.table, next_step=step)
    return first, first is windows[0]


def _read_manifest(stage: Stage, stream: Stream, address: str) -> Received:
    receiver = Receiver(open_store(address.partition("?")[0]), stream.table)
    if not (entries := receiver.entries()):
        raise _other_copy(stream)
    first, last = entries[0], entries[-1]
    _check_copy(stream, last.table, last.consumer)
    there = {file.name: file.size for file in contents(receiver.store, receiver.folder).files}
    for entry in entries:
        for file in entry.files:
            if there.get(file.name) != file.bytes:
                msg = "a file that was delivered is gone, or is another one"
                step = "Nothing is to be done where a reader takes files away: then they cannot be verified."
                raise FileChangedError(msg, table=stream.table, file=file.name, next_step=step)

    def rows(schema: StructType) -> DataFrame:
        alike = groupby(entries, key=lambda one: (one.columns, one.file_format))
        frames = (_read_windows(stage, receiver, [*some], schema) for _, some in alike)
        return unite(map(_changes, frames))

    return Received(
        **pick(last, "stream", "keys"),
        version=last.until,
        rows=rows,
        window=last.number,
        begins=first.until if first.kind == "snapshot" else first.after,
        whole=first.kind == "snapshot",
    )


def _read_windows(
    stage: Stage, receiver: Receiver, entries: Sequence[ManifestEntry], schema: StructType
) -> DataFrame:
    """Read windows of the same columns and format."""
    names = [file.name for entry in entries for file in entry.files]
    scans = in_scans(receiver.store.uri(f"{receiver.folder}/{name}") for name in names)
    # As Spark says it, not every type is one that SQL reads.
    kinds = [field.dataType for field in schema.fields]
    spelled = {
        one.simpleString(): write_type(one, lambda leaf: leaf.simpleString()) for one in kinds
    }
    every = [(one["name"], spelled.get(one["type"], one["type"])) for one in entries[0].columns]
    known = [*schema.names, *FEED_COLUMNS]
    columns = [(name, kind) for name, kind in every if find_name(known, name)]
    reader = file_reader(stage.spark, ", ".join(f"{quote(name)} {kind}" for name, kind in columns))
    if entries[0].file_format == "parquet":
        return unite(reader.parquet(*some) for some in scans)
    reader = reader.options(**JSON_OPTIONS, mode="FAILFAST")
    if entries[0].file_format == "jsonl":
        return unite(map(reader.options(lineSep="\n").json, scans))
    texts = reader.schema(", ".join(f"{quote(name)} string" for name, _ in every)).options(
        header=True, escape='"', multiLine=True, nullValue="", emptyValue=_EMPTY
    )
    values = []
    for name, kind in columns:
        text = f.when(f.col(quote(name)) == _EMPTY, "").otherwise(f.col(quote(name)))
        values.append((f.unbase64(text) if kind == "binary" else text.cast(kind)).alias(name))
    return unite(map(texts.csv, scans)).select(*values)


def _read_zone(stage: Stage, stream: Stream, address: str) -> Received:
    zone, name = open_store(address), parse_name(stream.table)
    place = FileSequence(table=stream.table, folder=name.folder)
    number, claim = newest_claim(zone, place, newest_number(zone, place))
    batch = read_batch(claim)
    opened = open_folder(zone, name)
    if batch is None or opened.metadata is None:
        raise _other_copy(stream)
    _check_copy(stream, batch.table, batch.consumer)
    policies = policies_of(opened.metadata, opened.dialect, Options())
    source = Source(zone=zone, table=name.shown, folder=name.folder, policies=policies)
    places = [*list_places(zone, name)]
    open_one = partial(_open_numbered, source, places)
    files = side_by_side(open_one, range(1, number + 1), AT_ONCE)

    def rows(schema: StructType) -> DataFrame:
        columns = to_columns((field.name, field.dataType.simpleString()) for field in schema)
        begun, rest, _ = read_files(stage, [(one, columns) for one in files], columns, None)
        names = tuple(column.name for column in columns)
        keys = [find_name(names, key) or key for key in batch.keys]
        return as_found(wanted_rows(begun, rest, keys, names))

    return Received(**pick(batch, "stream", "table_id", "keys"), version=batch.until, rows=rows)


def _open_numbered(source: Source, places: Iterable[str], number: int) -> Landed:
    """Open a change file where it was published, or where applied files are moved to."""
    name = sequence_name(number)
    for landed in open_in(places, source, name):
        return landed
    msg, step = "the change file is gone", "Bring it back; without it nothing can be said."
    raise FileChangedError(msg, table=source.table, file=name, next_step=step)


def _read_database(stage: Stage, stream: Stream, address: str) -> Received:
    """Read what a database says of a table, and its rows, in one transaction."""
    from mirrorlib.delivery.sinks.jdbc.database import has_books, read_held
    from mirrorlib.delivery.sinks.jdbc.sink import open_database

    with open_database(address).reading(stream.table) as session:
        place = session.place(parse_name(stream.table))
        held = read_held(session, place, stream) if has_books(session) else None
        record = held.record if held else None
        if record is None:
            raise _other_copy(stream)
        _check_copy(stream, record.source_table, record.consumer)
        names = [name for name, _ in session.columns(place) or ()]
        texts = write_texts(stage, names, session.texts(place, names))
    return Received(
        stream=record.stream,
        version=record.delta_version,
        table_id=record.table_id,
        keys=tuple(record.keys),
        rows=lambda schema: as_found(typed_rows(texts, names, schema, stream.table)),
    )


_READERS: Mapping[str, Callable[[Stage, Stream, str], Received]] = {
    "delta": _read_delta,
    "files": _read_manifest,
    "zone": _read_zone,
    "jdbc": _read_database,
}
