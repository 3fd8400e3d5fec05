"""Compare what a consumer has received with the tables it was given, at the version that the receiver says it has.

In: a target and a consumer. Out: `VerifyReport`. A copy holds the table's rows; a log of changes comes to them where
its changes are added up. Nothing is written but what Spark has to read of a database, and that not for long.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial, reduce
from operator import and_
from typing import TYPE_CHECKING

from mirrorlib.delivery.consumers import known_streams
from mirrorlib.delivery.sinks.open import is_same_url, shown_url
from mirrorlib.delta.address import FeedTable, find_feed_table
from mirrorlib.delta.columns import in_its_order
from mirrorlib.delta.sessions import lend_session
from mirrorlib.errors import ForeignWriteError, JournalError, LandingZoneError
from mirrorlib.feed.declared_keys import table_address
from mirrorlib.feed.net import is_comparable
from mirrorlib.feed.read import read_rows, read_window
from mirrorlib.feed.window import open_window
from mirrorlib.identifiers import find_name, quote
from mirrorlib.ingest.batch.spark_reader import Stage
from mirrorlib.journal.entries import new_attempt
from mirrorlib.journal.registry import Registry
from mirrorlib.journal.streams import Stream, table_id_of
from mirrorlib.names import parse_name
from mirrorlib.operate.verify.compare import SIDE, Sides
from mirrorlib.operate.verify.receivers import Received, read_received
from mirrorlib.operate.verify.report import Verified, VerifyReport, verify_safely
from mirrorlib.store import PathOrUrl
from mirrorlib.store.target import Target

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


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
        LandingZoneError: *to* is not where the consumer receives.

    """
    place = Target.of(target, catalog=catalog, state=state)
    found = known_streams(place, consumer, tables)

    def verify(registry: Registry, told: Verified) -> Verified:
        stream = registry.newest_stream()
        if stream is None:  # dropped a moment ago
            msg = f"no consumer {consumer} is registered"
            raise JournalError(msg, table=registry.table)
        with lend_session(spark) as session:
            address = table_address(place, parse_name(registry.table))
            source = find_feed_table(session, address, shown=registry.table)
            stage = Stage(spark=session, state=registry.state, folder=f"verified/{new_attempt()}")
            try:
                received = read_received(stage, stream, _address(stream, to))
                told = replace(told, version=received.version)
                look = _Look(session, source, registry, received)
                sides, left, reasons = look.sides(sample)
                told = told.compared(sides, left, show_values=show_values)
                return replace(told, reasons=(*told.reasons, *reasons))
            finally:
                registry.state.delete_folder(stage.folder)

    done = (verify_safely(one.table, partial(verify, one), consumer=consumer) for one in found)
    return VerifyReport(target=place.shown, tables=tuple(done))


def _address(stream: Stream, to: str | None) -> str:
    if to is not None and not is_same_url(shown_url(to), stream.to):
        msg = "the consumer receives at another address"
        raise LandingZoneError(msg, table=stream.table, found=stream.to, next_step="Give that one.")
    return to or stream.to


@dataclass(frozen=True, slots=True)
class _Look:
    """One table that is looked at, and what was received of it."""

    spark: SparkSession
    source: FeedTable
    registry: Registry
    received: Received

    def sides(self, sample: float) -> tuple[Sides, list[str], list[str]]:
        """Read both sides; name the columns that are left out, and say what else is to be known."""
        from pyspark.sql import functions as f

        table, rows = self.source.shown, self._rows()
        every = rows.columns
        names = [field.name for field in rows.schema.fields if is_comparable(field.dataType)]
        rows = rows.select(*map(quote, names))
        held = self.received.rows(rows.schema)
        rows = in_its_order(rows, held.schema)
        if self.received.since is not None:
            base = read_rows(self.spark, self.source, self.received.since)
            held = held.unionByName(base.withColumn(SIDE, f.lit(-1)), allowMissingColumns=True)
        spelled = {name: find_name(held.columns, name) for name in names}
        if lacks := [name for name, there in spelled.items() if there is None]:
            msg = "the receiver lacks a column that the table has"
            step = "Let a snapshot set it right: mirrorlib consumers TARGET --rewind NAME --to snapshot"
            raise ForeignWriteError(msg, table=table, column=lacks[0], next_step=step)
        values = (
            f.col(quote(there or "")).cast(rows.schema[name].dataType).alias(name)
            for name, there in spelled.items()
        )
        more = [name for name in held.columns if find_name([*every, SIDE], name) is None]
        sides = Sides(
            begun=rows,
            found=held.select(*values, SIDE),
            columns=tuple(names),
            keys=tuple(filter(None, (find_name(names, key) for key in self.received.keys))),
            sample=sample,
        )
        reasons = [f"only the receiver has the column {name}" for name in more]
        return sides, [name for name in every if name not in names], reasons

    def _rows(self) -> DataFrame:
        """Read what has to be there: the table, or of a copy that began behind a version what has changed since."""
        received, commits, shown = self.received, self.source.commits, self.source.shown
        stream, since = self._began()
        known = received.table_id or table_id_of(stream, self.registry.newest(stream))
        is_there = received.version <= commits.newest
        if not is_there or commits.metadata_at(received.version).id != known:
            msg = "the receiver holds rows of a table that was made anew since"
            raise JournalError(msg, table=shown, next_step="Export what has come since.")
        rows = read_rows(self.spark, self.source, received.version)
        if since is None or read_rows(self.spark, self.source, since).isEmpty():
            return rows
        keys = [find_name(rows.columns, key) or key for key in received.keys]
        if not keys or stream.net:
            msg = f"the copy began behind version {since}, and which rows it was given is told by no key"
            step = "A rewind to a snapshot begins anew."
            raise JournalError(msg, table=shown, next_step=step)
        window = open_window(commits, since, received.version)
        changed = read_window(self.spark, self.source, window).select(*map(quote, keys)).distinct()
        same = (rows[quote(key)].eqNullSafe(changed[quote(key)]) for key in keys)
        return rows.join(changed, reduce(and_, same), "left_semi")

    def _began(self) -> tuple[Stream, int | None]:
        """Find the stream that wrote last, and behind which version its copy began; None for a snapshot, or a log."""
        streams = self.registry.all_streams()
        while streams and streams[-1].uuid != self.received.stream:
            streams.pop()
        if not streams:
            msg = "the receiver was written last by a stream that nobody knows any more"
            raise JournalError(msg, table=self.source.shown, next_step="Export once more.")
        whole = any(one.start_at is None or self._was_reset(one) for one in streams)
        since = None if whole or self.received.is_log else streams[0].start_at
        return streams[-1], since

    def _was_reset(self, stream: Stream) -> bool:
        """Say whether a stream that began behind a version was given a snapshot since."""
        newest = self.registry.newest(stream)
        numbers = range(newest.plan.number if newest else 0, 0, -1)
        return any(self.registry.entry(stream, one).plan.kind == "snapshot" for one in numbers)
