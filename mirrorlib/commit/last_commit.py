"""Look back in a target's log: which window was written last, and whether somebody else has written since.

In: the log of a target table. Out: `LastCommit`. Every window's commit says whose it is (`facts_of`), so the
newest one that does is all that has to be found: usually the newest of all.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mirrorlib.delta.key_property import ON
from mirrorlib.delta.log import Commit
from mirrorlib.errors import OutcomeUnknownError
from mirrorlib.journal.streams import Stream

if TYPE_CHECKING:
    from mirrorlib.delta.log import TableLog

_LOOKS = (1, 8, 64)  # commits at a time, then all the others


@dataclass(frozen=True, slots=True, kw_only=True)
class LastCommit:
    """What a target's log tells.

    Attributes:
        newest: the newest version, -1 when there is no table.
        facts: what the newest window's commit says of itself; None when no window was found.
        version: that commit's version.
        rows: how many rows it has added, as it says itself.
        foreign: a commit since what that one was computed on that has changed rows and is not ours.
        whole: the log was read back to that window, or to the table's first version.

    """

    newest: int
    facts: Mapping[str, Any] | None = None
    version: int = -1
    rows: int = 0
    foreign: Commit | None = None
    whole: bool = True

    def window_of(self, stream: str) -> int:
        """Return the last window of a stream, 0 when the last one is none of its."""
        mine = self.facts is not None and self.facts.get("stream") == stream
        return int(self.facts["window"]) if mine and self.facts else 0

    def epoch_of(self, stream: Stream) -> int:
        """Return a stream's place among those that have written here, each greater than the one before."""
        facts = self.facts or {}
        known = int(facts.get("epoch", 0))  # older versions did not count
        return known if facts.get("stream") == stream.uuid else max(stream.ordinal, known + 1)


def _is_ours(commit: Commit) -> bool:
    return commit.ours is not None


def read_last_commit(
    log: TableLog, is_mine: Callable[[Commit], bool] = _is_ours, fact: str = "window"
) -> LastCommit:
    """Find the newest window in a table's log.

    Args:
        log: the table's.
        is_mine: whether a commit that changes rows is none of somebody else's.
        fact: what the commit of a window says of itself, and no other one.

    """
    newest = log.newest()
    if newest is None:
        return LastCommit(newest=-1)
    until, foreign = newest, None
    for count in (*_LOOKS, newest + 1):
        after = max(until - count, -1)
        commits = log.commits(after, until)
        for commit in reversed(commits):
            if is_mine(commit) and commit.ours is not None and fact in commit.ours:
                foreign = foreign or _overlooked(log, commit, is_mine)
                return LastCommit(
                    newest=newest,
                    facts=commit.ours,
                    version=commit.version,
                    rows=commit.rows,
                    foreign=foreign,
                )
            if not is_mine(commit) and not commit.harmless:
                foreign = foreign or commit
        if len(commits) < until - after or after < 0:
            whole = len(commits) == until - after
            return LastCommit(newest=newest, foreign=foreign, whole=whole)
        until = after
    raise AssertionError  # the last look takes all there are


def prove_window(
    log: TableLog,
    stream: str,
    number: int,
    before: LastCommit,
    *,
    what: str,
    table: str,
    next_step: str,
) -> LastCommit | None:
    """Return the log's end once it has a window; None where Delta skipped it, as another runner has gone on.

    Args:
        log: of the target.
        stream: the window's.
        number: the window's.
        before: the log's end before it was written.
        what: how people call it: "window 3".
        table: how they call the table.
        next_step: what they do where nobody can tell.

    Raises:
        OutcomeUnknownError: Delta skipped it as one that it knows, and no commit names it.

    """
    last = read_last_commit(log)
    if last.window_of(stream) == number:
        return last
    if last.version == before.version:
        msg = f"Delta skipped {what} as one that it knows, but no commit names it"
        raise OutcomeUnknownError(msg, table=table, next_step=next_step)
    return None


def _overlooked(log: TableLog, commit: Commit, is_mine: Callable[[Commit], bool]) -> Commit | None:
    """Find somebody else's commit between a window's and the version that it was computed on."""
    on = (commit.ours or {}).get(ON, commit.version)
    if on >= commit.version - 1:
        return None
    between = log.commits(on, commit.version - 1)
    return next((one for one in between if not is_mine(one) and not one.harmless), None)
