"""Windows of streams in a target's log: which was written last, how the next is marked, and whether it came through.

In: the log of a target table. Out: `LastCommit`. Every window's commit says whose it is, so the newest one that
does is all that has to be found: usually the newest of all. It also tells whether somebody else has written since.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from pyspark.sql import SparkSession

from mirrorlib.commit.claim import claim_table
from mirrorlib.commit.mark import Mark
from mirrorlib.delta.key_property import ON
from mirrorlib.delta.log import Commit, TableLog
from mirrorlib.delta.table import TableRef
from mirrorlib.errors import OutcomeUnknownError
from mirrorlib.journal.streams import Stream
from mirrorlib.store import Store

_GROWTH = 8  # a look back takes one commit, then so many times as many as the one before
_WINDOWS = 32  # bits for a window's number within its stream


@dataclass(frozen=True, slots=True, kw_only=True)
class LastCommit:
    """What a target's log tells."""

    log: TableLog
    newest: int  # the newest version, -1 when there is no table
    # What the newest window's commit says of itself; nothing when no window was found.
    facts: Mapping[str, Any] = field(default_factory=dict)
    version: int = -1  # that commit's version
    rows: int = 0  # how many rows it has added, as it says itself
    # A commit since what that one was computed on that has changed rows and is not ours, or another window's.
    foreign: Commit | None = None
    complete: bool = True  # the log was read back to that window, or to the table's first version

    def window_of(self, stream: str) -> int:
        """Return the last window of a stream, 0 when the last one is none of its."""
        return int(self.facts["window"]) if self.facts.get("stream") == stream else 0

    def next_mark(
        self,
        spark: SparkSession,
        ref: TableRef,
        state: Store,
        app_id: str,
        stream: Stream,
        number: int,
        facts: Mapping[str, Any],
    ) -> Mark:
        """Return what makes a window's commit its stream's and unrepeatable; *state* is where it may be claimed.

        Streams that share an application id share a mark that grows from one to the next, so Delta itself skips
        what a late runner of an earlier one still writes. It knows marks for longer than the log tells of them, and
        streams are counted anew where a state is lost: the moment at which one began is ahead of all earlier ones.
        """
        epoch = int(self.facts.get("epoch", 0))
        if self.facts.get("stream") != stream.uuid:
            # Seconds would fill the bits that are left in 2038.
            began = int(datetime.fromisoformat(stream.began_at).timestamp()) // 2
            epoch = max(began + stream.ordinal, epoch + 1)
        facts = {**facts, "stream": stream.uuid, "epoch": epoch, "window": number}
        claim = claim_table(spark, ref, self.log, state, self.newest, app_id)
        return Mark(app_id=app_id, version=(epoch << _WINDOWS) + number, facts=facts, claim=claim)

    def prove_next(
        self, stream: str, number: int, what: str, *, table: str, next_step: str
    ) -> LastCommit | None:
        """Return the log's end once a window is there that was written on this one, which people call *what*.

        None where Delta skipped it, as another runner has gone on. Raises `OutcomeUnknownError` where Delta skipped it
        as one that it knows, and no commit names it.
        """
        last = read_last_commit(self.log)
        if last.window_of(stream) == number:
            return last
        if last.version == self.version:
            msg = f"Delta skipped {what} as one that it knows, but no commit names it"
            raise OutcomeUnknownError(msg, table=table, next_step=next_step)
        return None


def read_last_commit(
    log: TableLog,
    is_mine: Callable[[Commit], bool] = lambda commit: commit.ours is not None,
    fact: str = "window",
) -> LastCommit:
    """Find the newest window in a table's log: its commit has a *fact*, as no other one has.

    *is_mine* says whether a commit that changes rows is none of somebody else's.
    """
    newest = log.newest()
    last = LastCommit(log=log, newest=-1 if newest is None else newest)
    if newest is None:
        return last
    until, foreign, count = newest, None, 1
    while True:
        after = max(until - count, -1)
        commits = log.commits(after, until)
        for commit in reversed(commits):
            if is_mine(commit) and commit.ours is not None and fact in commit.ours:
                foreign = foreign or _overlooked(log, commit, is_mine)
                facts, version, rows = commit.ours, commit.version, commit.rows
                return replace(last, facts=facts, version=version, rows=rows, foreign=foreign)
            if not is_mine(commit) and not commit.harmless:
                foreign = foreign or commit
        if len(commits) < until - after or after < 0:
            complete = len(commits) == until - after
            return replace(last, foreign=foreign, complete=complete)
        until, count = after, count * _GROWTH


def _overlooked(log: TableLog, commit: Commit, is_mine: Callable[[Commit], bool]) -> Commit | None:
    """Find a commit between a window's and the version that it was computed on: somebody else's, or a window's."""
    on = (commit.ours or {}).get(ON, commit.version)
    if on >= commit.version - 1:
        return None
    between = log.commits(on, commit.version - 1)
    seen = (one for one in between if one.has_window or not (is_mine(one) or one.harmless))
    return next(seen, None)
