"""Receive windows: find or make the target, see that it is as it was left, write one commit, prove it.

In: a `Delivery`. Out: how many rows it took. Promise: a window's commit is there once, as a whole, or not
at all. What is there is read from the target's own log before and after each commit, since Delta skips
a mark that it knows without a word.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mirrorlib.commit.last_commit import prove_window, read_last_commit
from mirrorlib.commit.pause import resume_feed
from mirrorlib.delivery.sink import comes_after
from mirrorlib.delivery.sinks.delta.changes import append_window, check_log, log_columns
from mirrorlib.delivery.sinks.delta.collect import collect_changes
from mirrorlib.delivery.sinks.delta.current import check_copy, copy_columns, keep_copy
from mirrorlib.delivery.sinks.delta.owned import (
    check_continuous,
    check_kept,
    check_owner,
    create_table,
    loosen_keys,
    settle_keys,
)
from mirrorlib.delivery.sinks.delta.scd2 import check_history, history_columns, keep_history
from mirrorlib.delivery.sinks.delta.work import Place, Work, open_place
from mirrorlib.delta.log import FileLog
from mirrorlib.delta.sessions import SMALL_COMMIT, configured, is_small
from mirrorlib.delta.table import find_target, open_log
from mirrorlib.errors import (
    ForeignWriteError,
    MirrorError,
    StoreError,
    TableBusyError,
)
from mirrorlib.journal.streams import snapshot_command
from mirrorlib.store import open_store

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

    from mirrorlib.commit.last_commit import LastCommit
    from mirrorlib.delivery.sink import Delivery
    from mirrorlib.journal.streams import Stream

_LOG = logging.getLogger(__name__)
# Few rows are taken by Arrow, which is Spark 4: the Delta of Spark 3.5 has to skip, or reads no deletion vectors.
_SMALL = {**SMALL_COMMIT, "spark.databricks.delta.stats.skipping": "false"}
_TRIES = 5  # of one window against writers that commit in between


@dataclass(frozen=True, slots=True)
class _Mode:
    """What becomes of changes.

    Attributes:
        check: refuses a window that no target can take.
        columns: the columns of a target, of a window's rows.
        write: writes a window by one commit; returns how many rows that took, None where the commit tells.
        continuous: a window has to find what the one before has left.
        pairs: it tells updates from deletes and inserts.

    """

    check: Callable[[Delivery], None]
    columns: Callable[[DataFrame], StructType]
    write: Callable[[Work], int | None]
    continuous: bool
    pairs: bool = True


_MODES = {
    "changes": _Mode(check_log, log_columns, append_window, continuous=False),
    "current": _Mode(check_copy, copy_columns, keep_copy, continuous=True, pairs=False),
    "scd2": _Mode(check_history, history_columns, keep_history, continuous=True),
}


class DeltaSink:
    """Delta tables that receive windows."""

    def __init__(self, place: Place, mode: str) -> None:
        """Take where the tables go, and what becomes of changes."""
        self._place = place
        self._name = mode
        self._mode = _MODES[mode]

    @property
    def pairs(self) -> bool:
        """Say whether updates are told from deletes and inserts."""
        return self._mode.pairs

    def position(self, stream: Stream) -> int:
        """Read it from the target's log; 0 where only a catalog can, and `deliver` looks itself."""
        ref = self._place.refer(stream.table)
        if ref.path is None:
            return 0
        try:
            return read_last_commit(FileLog(open_store(ref.path))).window_of(stream.uuid)
        except StoreError:
            return 0

    def deliver(self, delivery: Delivery) -> int:
        """Write a window by one commit.

        Raises:
            ForeignWriteError: the target is somebody else's, or somebody else has written to it.
            SchemaError: a column or key is not what the target can take.
            TableBusyError: another stream of the consumer, or another runner, has taken over.
            OutcomeUnknownError: Delta took the window for one that it knows, and it is not there.

        """
        self._mode.check(delivery)
        with self._place.hold(delivery):
            failure: Exception | None = None
            for _ in range(_TRIES):
                work = self._work(delivery)
                there = _rows_there(work)
                if there is not None:
                    return there
                if self._mode.continuous:
                    check_continuous(work)
                else:
                    check_kept(work)
                loosen_keys(work)
                try:
                    rows = self._write(work)
                except Exception as exc:
                    if not _is_overtaken(work, exc):
                        raise
                    _LOG.info("%s: window %d met another commit", work.table, work.plan.number)
                    failure = exc
                    continue
                if (last := _written(work)) is not None:
                    settle_keys(work)
                    rows = last.rows if rows is None else rows
                    facts = (work.table, work.plan.number, last.version, rows)
                    _LOG.info("%s: window %d written as version %d, %d rows", *facts)
                    return rows
            msg = f"window {delivery.plan.number} met other commits {_TRIES} times"
            step = "Run again when the target is quieter."
            raise MirrorError(msg, table=delivery.stream.table, next_step=step) from failure

    def _work(self, delivery: Delivery) -> Work:
        """Look at the target, which is made when there is none."""
        spark, stream = delivery.spark, delivery.stream
        ref = self._place.refer(stream.table)
        target = find_target(spark, ref)
        if target is None:
            columns = self._mode.columns(delivery.frame)
            keys = delivery.keys if self._mode.continuous else ()
            create_table(spark, ref, columns, stream, self._name, keys)
            target = find_target(spark, ref)
        if target is None:
            msg = "the target is gone as soon as it was made"
            raise ForeignWriteError(msg, table=stream.table, next_step="Try again.")
        found, schema = target
        check_owner(found, stream, self._name)
        resume_feed(spark, ref, found)
        return Work(
            delivery=delivery,
            mode=self._name,
            ref=ref,
            found=found,
            schema=schema,
            last=read_last_commit(open_log(spark, ref, found.location)),
        )

    def _write(self, work: Work) -> int | None:
        if self._mode.continuous:
            work = collect_changes(work)
        small = work.few is not None and is_small(len(work.few), work.found.bytes)
        with configured(work.spark, {}, _SMALL if small else {}):
            return self._mode.write(work)


def _is_overtaken(work: Work, exc: Exception) -> bool:
    """Say whether somebody else's commit explains a failure: any one explains Delta's, another runner's window ours."""
    log = open_log(work.spark, work.ref, work.found.location)
    if isinstance(exc, MirrorError):
        return read_last_commit(log).version != work.last.version
    return log.newest(work.last.newest) != work.last.newest


def _written(work: Work) -> LastCommit | None:
    """Return the target's log once it has the window, see `prove_window`."""
    number, stream = work.plan.number, work.stream
    return prove_window(
        open_log(work.spark, work.ref, work.found.location),
        stream.uuid,
        number,
        work.last,
        what=f"window {number}",
        table=work.table,
        next_step=f"Let a snapshot set it right: {snapshot_command(stream.consumer)}",
    )


def _rows_there(work: Work) -> int | None:
    """Return 0 when the target has the window, None when it has not.

    Raises:
        TableBusyError: a later stream of the consumer has written to it.

    """
    facts, stream = work.last.facts, work.stream
    if work.last.window_of(stream.uuid) >= work.plan.number:
        return 0
    if facts is None or facts["stream"] == stream.uuid:
        return None
    if not comes_after(stream, facts.get("ordinal", 0), facts["began_at"]):
        msg = "the consumer was rewound since, and this run delivers what its earlier stream had planned"
        raise TableBusyError(msg, table=stream.table, next_step="Run again.")
    return None


def open_sink(address: str, mode: str) -> DeltaSink:
    """Open a Delta receiver.

    Raises:
        LandingZoneError: the address is neither a path nor a catalog's schema.

    """
    return DeltaSink(open_place(address), mode)
