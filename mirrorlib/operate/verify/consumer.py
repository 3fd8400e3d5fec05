"""Compare what a consumer has received with the tables it was given, at the version that the receiver says it has.

In: a target and a consumer. Out: `VerifyReport`. A copy holds the table's rows; a log of changes comes to them where
its changes are added up. Nothing is written but what Spark has to read of a database, and that not for long.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from mirrorlib.commit.difference import rows_like
from mirrorlib.commit.stage import staging
from mirrorlib.delivery.consumers import known_streams
from mirrorlib.delivery.sinks.open import is_same_url
from mirrorlib.delta.address import FeedTable, find_feed_table
from mirrorlib.delta.sessions import lend_session
from mirrorlib.delta.table import refer
from mirrorlib.delta.trouble import is_sparks, tell_trouble
from mirrorlib.errors import (
    FeedError,
    ForeignWriteError,
    JournalError,
    LandingZoneError,
    MirrorError,
    StoreError,
    first_line,
)
from mirrorlib.feed.net import is_comparable
from mirrorlib.feed.read import read_rows, read_window
from mirrorlib.feed.schemas import in_its_order, physical_names
from mirrorlib.feed.window import open_window
from mirrorlib.identifiers import find_name, quote
from mirrorlib.ingest.batch.spark_reader import unite
from mirrorlib.journal.registry import Registry
from mirrorlib.journal.streams import Stream, WindowEntry, position_of, snapshot_command
from mirrorlib.names import parse_name
from mirrorlib.operate.verify.compare import SIDE, Sides, as_found
from mirrorlib.operate.verify.receivers import Received, read_received
from mirrorlib.operate.verify.report import Verified, VerifyReport, check_sample, verify_safely
from mirrorlib.store import PathOrUrl
from mirrorlib.store.target import Target


def verify_consumer(
    spark: SparkSession,
    target: PathOrUrl,
    *,
    consumer: str,
    tables: Sequence[str] = (),
    to: str | None = None,
    sample: float = 1.0,
    show_values: bool = False,
    catalog: str | None = None,
    state: PathOrUrl | None = None,
) -> VerifyReport:
    """Compare what a consumer has received with its tables, each at the version that the receiver says it has.

    What a receiver holds is taken as it is now, whoever wrote it. Of a history the rows that are current are compared,
    of a log of changes, or of files, what the changes come to since the last snapshot. Columns that Spark cannot
    compare, or that a table has no longer, are left out. Reading a database takes no lock that writers wait for, but
    for SQLite.

    Args:
        spark: any Spark with Delta.
        target: as for `export`.
        consumer: its name.
        tables: names or globs; empty is all that it receives.
        to: the receiver's address, where it has a password: those are kept nowhere.
        sample: the share of the keys to look at; all is read all the same.
        show_values: let differences tell all values, not only those of keys.
        catalog: as for `export`.
        state: as for `export`.

    Raises:
        JournalError: there is no such consumer, or it does not receive the tables.

    """
    check_sample(sample)
    place = Target.of(target, catalog=catalog, state=state)
    found = known_streams(place, consumer, tables, spark)

    def verify(registry: Registry, told: Verified) -> Verified:
        stream = registry.present_stream()
        with lend_session(spark) as session:
            address = refer(place, parse_name(registry.table)).address
            source = find_feed_table(session, address, shown=registry.table)
            with staging(session, registry.state, "verified", tidies=True) as stage:
                with _of_receiver(registry):
                    received = read_received(stage, stream, _address(stream, to))
                look = _Look(session, source, registry, received)
                sides, left = look.sides(sample)
                told = replace(told, version=received.version)
                return look.compare(told, sides, left, show_values=show_values)

    done = (verify_safely(one.table, partial(verify, one), consumer=consumer) for one in found)
    return VerifyReport(target=place.shown, tables=tuple(done))


@contextlib.contextmanager
def _of_receiver(registry: Registry) -> Iterator[None]:
    """Say of trouble that it is the receiver's, not the table's."""
    try:
        yield
    except MirrorError:
        raise
    except Exception as exc:
        msg = "what the receiver holds cannot be read"
        # Spark's own words have values in them.
        found = tell_trouble(exc, "read it").reason if is_sparks(exc) else first_line(exc)
        step = f"Correct it there, or let a snapshot replace it: {snapshot_command(registry.consumer, registry.table)}"
        raise StoreError(msg, table=registry.table, found=found, next_step=step) from exc


def _address(stream: Stream, to: str | None) -> str:
    if to is not None and not is_same_url(to, stream.to):
        msg = "the consumer receives at another address"
        raise LandingZoneError(msg, table=stream.table, found=stream.to, next_step="Give that one.")
    return to or stream.to


@dataclass(frozen=True, slots=True)
class _Look:
    spark: SparkSession
    source: FeedTable
    registry: Registry
    received: Received

    def compare(
        self, told: Verified, sides: Sides, left: Sequence[str], *, show_values: bool
    ) -> Verified:
        """Compare both sides; where that fails, see which of them cannot be read."""
        try:
            return told.compared(sides, left, show_values=show_values)
        except Exception:
            with _of_receiver(self.registry):
                sides.found.selectExpr("max(xxhash64(*))").collect()
            raise

    def sides(self, sample: float) -> tuple[Sides, list[str]]:
        """Read both sides, and name the columns that are left out."""
        rows = self._rows()
        every = rows.columns
        names = [field.name for field in rows.schema.fields if is_comparable(field.dataType)]
        rows = rows.select(*map(quote, names))
        with _of_receiver(self.registry):
            held = self._held(rows)
        spelled = {name: find_name(held.columns, name) for name in names}
        if lacks := [name for name, there in spelled.items() if there is None]:
            msg = "the receiver lacks a column that the table has"
            raise self._refused(ForeignWriteError, msg, column=lacks[0])
        named = (f.col(quote(there or "")).alias(name) for name, there in spelled.items())
        held = held.select(*named, SIDE)
        rows = in_its_order(rows, held.schema)
        # As the receiver has them, who may hold more than the table's types do.
        alike = [f.col(quote(name)).cast(held.schema[name].dataType).alias(name) for name in names]
        keys = [find_name(names, key) for key in self.received.keys]
        sides = Sides(
            begun=rows.select(*alike),
            found=held,
            columns=tuple(names),
            keys=tuple(key for key in keys if key),
            sample=sample,
        )
        return sides, [name for name in every if name not in names]

    def _refused(
        self, kind: type[MirrorError], reason: str, column: str | None = None
    ) -> MirrorError:
        step = f"A snapshot begins anew: {snapshot_command(self.registry.consumer, self.registry.table)}"
        return kind(reason, table=self.source.shown, column=column, next_step=step)

    def _held(self, rows: DataFrame) -> DataFrame:
        """Read what the receiver holds; a log that began in the middle goes on from the table as it was there."""
        received, commits = self.received, self.source.commits
        held, begins = received.rows(rows.schema), received.begins
        if begins is None or begins < 0:
            return held
        was, now = (physical_names(commits.metadata_at(v)) for v in (begins, received.version))
        for name, physical in now.items():
            if was.get(name, physical if physical not in was.values() else "") != physical:
                msg = "the column was renamed or made anew since, and a log's changes cannot be added up over that"
                raise self._refused(FeedError, msg, column=name)
        if received.whole:
            return held
        base = as_found(read_rows(self.spark, self.source, begins))
        return unite([held, base])

    def _rows(self) -> DataFrame:
        """Read what has to be there: the table, or of a copy that began behind a version what has changed since."""
        received, commits, shown = self.received, self.source.commits, self.source.shown
        stream, since = self._began()
        entry, version = self.registry.newest(stream), received.version
        known = received.table_id or self.registry.entry(stream, received.window).plan.table_id
        if version > commits.newest or commits.metadata_at(version).id != known:
            msg = "the receiver holds rows of a table that was made anew since"
            raise JournalError(msg, table=shown, next_step="Export what has come since.")
        if received.begins is None and (position_of(stream, entry) or 0) < version:
            msg = "the receiver is in the middle of a window, or of a rewind"
            raise JournalError(msg, table=shown, next_step="Export once more.")
        # Where nothing has changed since, the newest version is the same, and its files are there.
        same = commits.metadata.schema == commits.metadata_at(version).schema
        idle = same and not open_window(commits, version, commits.newest).changes
        rows = read_rows(self.spark, self.source, commits.newest if idle else version)
        if since is None or since < 0:
            return rows
        keys = [find_name(rows.columns, key) or key for key in received.keys]
        if not keys or stream.net:
            if read_rows(self.spark, self.source, since).isEmpty():
                return rows
            msg = f"the copy began behind version {since}, and which rows it was given is told by no key"
            raise self._refused(JournalError, msg)
        window = open_window(commits, since, version)
        changed = read_window(self.spark, self.source, window).select(*map(quote, keys)).distinct()
        return rows_like(rows, (changed, keys))

    def _began(self) -> tuple[Stream, int | None]:
        """Find the stream that wrote last, and behind which version its copy began; None for a snapshot, or a log."""
        streams = self.registry.all_streams()
        while streams and streams[-1].uuid != self.received.stream:
            streams.pop()
        if not streams:
            msg = "the receiver was written last by a stream that nobody knows any more"
            raise self._refused(JournalError, msg)
        if self.received.begins is not None:
            return streams[-1], None
        begun: list[int] = []
        for stream in reversed(streams):
            given = self._given(stream)
            if any(entry.plan.kind == "snapshot" for entry in given):
                return streams[-1], None
            begun += [stream.start_at or 0] if any(given) else []
        if not begun:  # its first window is under way
            return streams[-1], None
        if streams[0].ordinal > 1 or min(begun) < begun[-1]:
            msg = "the copy began behind a version, in streams that were dropped or rewound to before it"
            raise self._refused(JournalError, msg)
        return streams[-1], begun[-1]

    def _given(self, stream: Stream) -> list[WindowEntry]:
        """Return the first window that a stream has delivered; all of them where there may be a snapshot among them."""
        newest = self.registry.newest(stream)
        numbers = range(1, newest.plan.number + 1 if newest else 1)
        entries = (self.registry.entry(stream, number) for number in numbers)
        given = (one for one in entries if one.done and one.done.outcome == "delivered")
        may_be_reset = stream.on_expired == "snapshot" and stream.start_at is not None
        return [*given] if may_be_reset else [*islice(given, 1)]
