"""Receive windows: find or make the target, see that it is as it was left, write one commit, prove it.

In: a `Delivery`. Out: how many rows it took. Promise: a window's commit is there once, as a whole, or not
at all (`commit/protocol.py`).
"""

from __future__ import annotations

from contextlib import AbstractContextManager

from mirrorlib.commit.claim import was_overtaken
from mirrorlib.commit.last_commit import prove_window, read_last_commit
from mirrorlib.commit.pause import resume_feed
from mirrorlib.commit.protocol import Committer, commit_plan
from mirrorlib.delivery.sink import Delivery, comes_after
from mirrorlib.delivery.sinks.delta.changes import append_window, log_columns
from mirrorlib.delivery.sinks.delta.current import copy_columns, keep_copy
from mirrorlib.delivery.sinks.delta.owned import (
    changed_keys,
    check_owner,
    check_untouched,
    create_table,
)
from mirrorlib.delivery.sinks.delta.scd2 import history_columns, keep_history
from mirrorlib.delivery.sinks.delta.work import WindowWork, open_place
from mirrorlib.delta.key_property import keep_keys
from mirrorlib.delta.lock import lock_table
from mirrorlib.delta.log import FileLog
from mirrorlib.delta.sessions import SMALL_COMMIT, configured, is_small
from mirrorlib.delta.table import check_made, find_target, open_log, refer
from mirrorlib.errors import MirrorError, StoreError, TableBusyError
from mirrorlib.journal.streams import Stream
from mirrorlib.keys.value import Keys
from mirrorlib.names import parse_name
from mirrorlib.store import open_store
from mirrorlib.store.target import Target

# What refuses a window that no target can take, and gives the target's columns; and what writes one by one commit, and
# gives how many rows that took, None where the commit tells.
_MODES = {
    "changes": (log_columns, append_window),
    "current": (copy_columns, keep_copy),
    "scd2": (history_columns, keep_history),
}


class DeltaSink:
    """Delta tables that receive windows."""

    def __init__(self, target: Target, mode: str) -> None:
        """Take where the tables go, and what becomes of changes; only a copy does not tell updates as such."""
        self._target = target
        self._mode = mode
        self.pairs = mode != "current"

    def position(self, stream: Stream) -> int:
        """Read it from the target's log; 0 where only a catalog can, and `deliver` looks itself."""
        ref = refer(self._target, parse_name(stream.table))
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
        committer = _WindowCommitter(self._target, self._mode, delivery)
        with _hold(self._target, delivery):
            return commit_plan(committer, f"window {delivery.plan.number}", delivery.stream.table)


class _WindowCommitter(Committer[WindowWork, int]):
    """A window on its way; what has ended it is how many rows it took."""

    def __init__(self, target: Target, mode: str, delivery: Delivery) -> None:
        columns, self._write = _MODES[mode]
        self._mode = mode
        self._delivery = delivery
        self._wanted = columns(delivery)
        # A catalog has one for all schemas.
        self._ref = refer(target, parse_name(delivery.stream.table))
        self._rows: int | None = None  # None where the commit tells

    def read_state(self) -> tuple[WindowWork, int | None]:
        """See the target, which is made when there is none."""
        delivery, ref = self._delivery, self._ref
        spark, stream = delivery.spark, delivery.stream
        target = find_target(spark, ref)
        if target is None:
            keys = delivery.keys if self._mode != "changes" else ()
            create_table(spark, ref, self._wanted, stream, self._mode, keys)
            target = check_made(find_target(spark, ref), stream.table)
        found, schema = target
        check_owner(found, stream, self._mode)
        resume_feed(spark, ref, found)
        work = WindowWork(
            **vars(delivery),
            mode=self._mode,
            wanted=self._wanted,
            ref=ref,
            found=found,
            schema=schema,
            last=read_last_commit(open_log(spark, ref, found.location)),
        )
        if _is_there(work):
            return work, 0
        check_untouched(work)
        return work, None

    def write(self, before: WindowWork) -> None:
        work = before
        if changed_keys(work) is not None:  # nothing is said of keys until the window is there
            keep_keys(work.spark, work.ref.sql, work.found.properties, Keys())
        stated = work.stated_rows
        folds = self._mode != "changes" and stated is not None
        small = folds and is_small(stated or 0, work.found.bytes)
        with configured(work.spark, {}, SMALL_COMMIT if small else {}):
            self._rows = self._write(work)

    def is_overtaken(self, before: WindowWork, failure: Exception) -> bool:
        """Any commit explains Delta's failure, another runner's window ours."""
        if isinstance(failure, MirrorError):
            return read_last_commit(before.log).version != before.last.version
        return was_overtaken(before.log, before.last.newest)

    def prove(self, before: WindowWork) -> int | None:
        number, stream = before.plan.number, before.stream
        last = prove_window(
            before.log,
            stream.uuid,
            number,
            before.last,
            what=f"window {number}",
            table=stream.table,
            next_step=before.set_right,
        )
        if last is None:
            return None
        keys = changed_keys(before)
        if keys is not None:
            keep_keys(before.spark, before.ref.sql, {}, keys)
        return last.rows if self._rows is None else self._rows


def _hold(target: Target, delivery: Delivery) -> AbstractContextManager[None]:
    """Keep other Java processes off the table, where Delta does not: on a local file system.

    It is the lock of whoever applies to the table; where neither its place nor a state is local,
    the consumers' scratch holds it.
    """
    name, spark = parse_name(delivery.stream.table), delivery.spark
    state = open_store(target.state) if target.state else delivery.scratch
    return lock_table(spark, target, state, name, lambda: False)


def _is_there(work: WindowWork) -> bool:
    """Say whether the target has the window; refuse one of an earlier stream than has written to it."""
    facts, stream = work.last.facts, work.stream
    if work.last.window_of(stream.uuid) >= work.plan.number:
        return True
    if facts is None or facts["stream"] == stream.uuid:
        return False
    if not comes_after(stream, facts.get("ordinal", 0), facts["began_at"]):
        msg = "the consumer was rewound since, and this run delivers what its earlier stream had planned"
        raise TableBusyError(msg, table=stream.table, next_step="Run again.")
    return False


def open_sink(address: str, mode: str) -> DeltaSink:
    """Open a Delta receiver."""
    return DeltaSink(open_place(address), mode)
