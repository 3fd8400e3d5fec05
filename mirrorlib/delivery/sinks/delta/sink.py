"""Receive windows: find or make the target, see that it is as it was left, write one commit, prove it.

In: a `Delivery`. Out: how many rows it took. Promise: a window's commit is there once, as a whole, or not
at all (`commit/protocol.py`). A table is known by properties that it is made with, so one that somebody else has made
is never written to.
"""

from __future__ import annotations

from pyspark.sql.types import StructType

from mirrorlib.commit.claim import was_overtaken
from mirrorlib.commit.last_commit import read_last_commit
from mirrorlib.commit.mark import resume_feed
from mirrorlib.commit.protocol import Committer, commit_plan
from mirrorlib.delivery.sink import (
    Delivery,
    check_successor,
    receiver_set_back,
    registry_set_back,
    tell_gap,
)
from mirrorlib.delivery.sinks.delta import modes
from mirrorlib.delivery.sinks.delta.work import WindowWork
from mirrorlib.delivery.sinks.open import open_place
from mirrorlib.delta.ddl import make_table
from mirrorlib.delta.key_property import KEYS_PROPERTY, keep_keys, keys_property
from mirrorlib.delta.lock import lock_table
from mirrorlib.delta.log import FileLog
from mirrorlib.delta.properties import FEED, VECTORS
from mirrorlib.delta.sessions import SMALL_COMMIT, configured, is_small
from mirrorlib.delta.table import Found, TableRef, check_made, find_table, open_log, refer
from mirrorlib.errors import (
    ForeignWriteError,
    LandingZoneError,
    MirrorError,
    StoreError,
    first_line,
)
from mirrorlib.identifiers import quote
from mirrorlib.journal.streams import Stream, begin_anew
from mirrorlib.keys.value import Keys
from mirrorlib.names import parse_name
from mirrorlib.store import open_store
from mirrorlib.store.target import Target

CONSUMER, SOURCE, MODE = "mirrorlib.consumer", "mirrorlib.source", "mirrorlib.mode"
# What refuses a window that no target can take, and gives the target's columns; and what writes one by one commit, and
# gives how many rows that took, None where the commit tells.
_MODES = {
    "changes": (modes.log_columns, modes.append_window),
    "current": (modes.copy_columns, modes.keep_copy),
    "scd2": (modes.history_columns, modes.keep_history),
}


class DeltaSink:
    """Delta tables that receive windows."""

    def __init__(self, target: Target, mode: str) -> None:
        """Take where the tables go, and what becomes of changes; only a log tells updates as such."""
        self._target = target
        self._mode = mode
        self.pairs = mode == "changes"

    def position(self, stream: Stream) -> int:
        """Read it from the target's log; 0 where only a catalog can, and `deliver` looks itself."""
        ref = refer(self._target, parse_name(stream.table))
        if ref.path is None:
            return 0
        try:
            return read_last_commit(FileLog(open_store(ref.path))).window_of(stream.uuid)
        except StoreError:
            return 0

    def deliver(self, delivery: Delivery) -> int | None:
        """Write a window by one commit, which there is of one without rows, too."""
        committer = _WindowCommitter(self._target, self._mode, delivery)
        target, stream = self._target, delivery.stream
        # On a local file system Delta keeps no other Java processes off. The lock is that of whoever applies to the
        # table; where neither its place nor a state is local, the consumers' scratch holds it.
        state = open_store(target.state) if target.state else delivery.scratch
        with lock_table(delivery.spark, target, state, parse_name(stream.table), lambda: False):
            return commit_plan(committer, f"window {delivery.plan.number}", stream.table) or None


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
        self._wrote = False

    def read_state(self) -> tuple[WindowWork, int | None]:
        """See the target, which is made when there is none."""
        delivery, ref = self._delivery, self._ref
        spark, stream = delivery.spark, delivery.stream
        found = find_table(spark, ref)
        if found is None:
            _create_table(delivery, ref, self._wanted, self._mode)
            found = check_made(find_table(spark, ref), stream.table)
        _check_owner(found, stream, self._mode)
        resume_feed(spark, ref, found)
        work = WindowWork(
            **vars(delivery),
            mode=self._mode,
            wanted=self._wanted,
            ref=ref,
            found=found,
            last=read_last_commit(open_log(spark, ref, found.location)),
        )
        if _is_there(work, wrote=self._wrote):
            return work, work.last.rows or 1  # it has some, else nobody delivers it
        _check_untouched(work)
        return work, None

    def write(self, before: WindowWork) -> None:
        self._wrote = True
        if _changed_keys(before) is not None:  # nothing is said of keys until the window is there
            keep_keys(before.spark, before.ref.sql, before.found.properties, Keys())
        folds = self._mode != "changes" and before.stated_rows is not None
        small = folds and is_small(before.stated_rows or 0, before.found.bytes)
        with configured(before.spark, {}, SMALL_COMMIT if small else {}):
            self._rows = self._write(before)

    def is_overtaken(self, before: WindowWork, failure: Exception) -> bool:
        """Any commit explains Delta's failure, another runner's window ours."""
        if isinstance(failure, MirrorError):
            return read_last_commit(before.last.log).version != before.last.version
        return was_overtaken(before.last.log, before.last.newest)

    def prove(self, before: WindowWork) -> int | None:
        number, stream = before.plan.number, before.stream
        table, step = stream.table, begin_anew(stream)
        what = f"window {number}"
        last = before.last.prove_next(stream.uuid, number, what, table=table, next_step=step)
        if last is None:
            return None
        keys = _changed_keys(before)
        if keys is not None:
            keep_keys(before.spark, before.ref.sql, {}, keys)
        return last.rows if self._rows is None else self._rows


def _create_table(delivery: Delivery, ref: TableRef, columns: StructType, mode: str) -> None:
    """Create an empty table of this consumer's, of rows that its keys tell apart; nothing happens when there is one."""
    spark, stream = delivery.spark, delivery.stream
    properties = {
        CONSUMER: stream.consumer,
        SOURCE: stream.table,
        MODE: mode,
        VECTORS: "true",
        **keys_property(_keys_in(mode, delivery.keys)),
    }
    if mode == "changes":  # its columns have the names that a feed of its own would need
        properties[FEED] = "false"
    schema = ref.sql.removesuffix(f".{quote(ref.name.table)}")
    if ref.path is None and not spark.catalog.databaseExists(schema):
        msg, step = "the catalog has no such schema", f"Create it: CREATE SCHEMA {schema}"
        raise LandingZoneError(msg, table=stream.table, found=schema, next_step=step)
    try:
        make_table(spark, ref, columns.fields, properties, stream.table)
    except Exception as exc:
        if ref.path is not None or isinstance(exc, MirrorError):
            raise
        msg = "the catalog does not take the table"
        step = "Export to another address by another consumer, or rename the table at the source."
        found = first_line(exc)
        raise LandingZoneError(msg, table=stream.table, found=found, next_step=step) from exc


def _changed_keys(work: WindowWork) -> Keys | None:
    """Return the keys that a window goes by where the table's property says others, None where it says these."""
    keys = _keys_in(work.mode, tuple(map(work.spelled, work.keys)))
    said = work.found.properties.get(KEYS_PROPERTY)
    return None if keys_property(keys).get(KEYS_PROPERTY) == said else keys


def _keys_in(mode: str, keys: tuple[str, ...]) -> Keys:
    """Say what keys are in a table of a mode: one row each in a copy, all of its states in a history."""
    if mode == "current":
        return Keys(partition=keys, primary=keys, unique=bool(keys))
    return Keys(partition=keys) if mode == "scd2" else Keys()


def _check_owner(found: Found, stream: Stream, mode: str) -> None:
    wanted = {
        CONSUMER: (stream.consumer, "the target is a table that another consumer has made"),
        SOURCE: (stream.table, "the target is what another source table becomes"),
        MODE: (mode, "the target was made in another mode"),
    }
    for name, (value, what) in wanted.items():
        owner = found.properties.get(name)
        if owner != value:
            msg = what if owner is not None else "the target is a table that no consumer has made"
            step = "Export to another address by another consumer, or remove the table."
            raise ForeignWriteError(msg, table=stream.table, found=owner, next_step=step)


def _check_untouched(work: WindowWork) -> None:
    """See that a window of changes goes on where the table ends; of a log only that it was not removed."""
    last, stream, plan, facts = work.last, work.stream, work.plan, work.last.facts
    is_log, found = work.mode == "changes", None
    if plan.kind != "changes":
        return
    if last.foreign is not None and not is_log:
        found = last.foreign.told
        reason = "somebody else has written to the table that the consumer keeps"
    elif work.fresh and plan.number > 1 and work.continues:
        reason = "the table that the consumer keeps was removed and is empty now"
    elif not facts and not last.complete and work.given == 0 and not is_log:
        reason = "nobody can tell any more how far the table that the consumer keeps goes"
    elif not facts or is_log:
        return
    elif gap := tell_gap(
        work, facts["stream"], facts.get("table_id", ""), int(facts["upto"]), work.at
    ):
        reason = f"the copy {gap}"
    elif work.at < int(facts["upto"]) and not work.keys:
        reason = "the copy is in the midst of a rewind by keys, and its changes come without"
    else:
        return
    raise ForeignWriteError(reason, table=stream.table, found=found, next_step=begin_anew(stream))


def _is_there(work: WindowWork, *, wrote: bool) -> bool:
    """Say whether the target has the window; refuse to go on where either was set back, or a later stream has begun."""
    facts, stream = work.last.facts, work.stream
    held, number = work.last.window_of(stream.uuid), work.plan.number
    if held == number and facts["attempt"] == work.plan.attempt:
        return True
    if held > number and wrote:  # another runner has gone on meanwhile
        return True
    if not facts:
        return False
    mine, follows = facts["stream"] == stream.uuid, work.plan.kind == "changes"
    check_successor(stream, facts, "the table that the consumer keeps", begin_anew(stream))
    if follows and held < (work.given or 0):
        raise receiver_set_back(stream, held, work.given or 0)
    # Windows without changes have numbers and never come here, so versions tell, too.
    if held >= number or (mine and follows and facts["until"] > work.plan.after):
        found = f"window {held} of the stream, {number - 1} in the registry"
        raise registry_set_back(stream, found)
    return False


def open_sink(address: str, mode: str) -> DeltaSink:
    """Open a Delta receiver."""
    return DeltaSink(open_place(address), mode)
