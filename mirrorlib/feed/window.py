"""Settle which versions a window holds, and prove that none of their changes is missing.

In: bounds as a caller gives them. Out: `Window`, cut into `Segment`s at changes of the schema that
one read cannot span. Promise: every commit of a window is in the log, was made while the feed was
on, and belongs to one and the same table; else the error says from which version on that is so.
Delta itself reads on without a word where a version's file is gone but a checkpoint has its rows
(CDCReader reads the log with failOnDataLoss = false), and leaves out a MERGE whose metrics are zero.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from operator import index
from typing import SupportsIndex

from mirrorlib.delta.actions import ChangeFile, FeedCommit, Metadata
from mirrorlib.delta.commits import Commits
from mirrorlib.errors import FeedError, FeedExpiredError
from mirrorlib.feed import proof
from mirrorlib.feed.schemas import renew, renewed_columns, spans
from mirrorlib.journal.entries import new_attempt
from mirrorlib.journal.streams import (
    Start,
    Stream,
    WindowEntry,
    WindowPlan,
    begin_anew,
    last_seen,
    version_given,
)

Bound = int | str | datetime
NOTHING = -1  # the version before the first
# What Delta itself asks to read nothing, or up to the last commit, where a bound is beyond it.
BEYOND = "spark.databricks.delta.changeDataFeed.timestampOutOfRange.enabled"


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """Versions, first and last within, that one read can span, and the table's metadata as of the last.

    Names in the data files are those of the window's end. It is *past* where a column has got another type since,
    which Delta would read these versions' files with.
    """

    first: int
    last: int
    metadata: Metadata
    past: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """The changes, if any, after one version and up to another, `(after, until]`."""

    after: int  # the last version before it, -1 when it begins with the first
    until: int
    metadata: Metadata  # the table's metadata as of `until`
    segments: tuple[Segment, ...] = ()  # how it is read
    # The versions, in no segment, that give the rows other types and change none.
    rewritten: tuple[int, ...] = ()
    pairs: bool = False  # some commit of it may delete and insert rows of one key
    changes: bool = False
    # How many rows its commits say that they change; None where one does not say.
    rows: int | None = 0
    # What it is read from, where each row of these is a change; None where it takes more.
    files: tuple[ChangeFile, ...] | None = ()


def open_window(
    commits: Commits, after: Bound | None, until: Bound | None, *, beyond: bool = False
) -> Window:
    """Settle a window and prove it whole.

    It holds what came after a version, or after a moment; -1 is from the first version on. And up to another; None is
    the newest. With *beyond*, a bound beyond the newest version is that one, and no error.
    """
    shown = commits.shown
    if after is None:
        msg, first = "the feed has to know where to start", commits.first
        step = "Give `after`, a version or a moment: -1 is everything from the first version on."
        raise FeedError(msg, table=shown, first_readable=first, next_step=step)
    first, last = settle_bound(commits, "after", after, beyond=beyond), commits.newest
    if until is not None:
        last = settle_bound(commits, "until", until, beyond=beyond)
    if first > last:
        msg = "the window ends before it starts"
        found = f"after {after}, which is version {first}, until version {last}"
        raise FeedError(msg, table=shown, found=found, next_step="Exchange the bounds.")
    if first == last:
        return Window(after=first, until=last, metadata=commits.metadata_at(max(last, 0)))
    if first + 1 < commits.first:
        gone = min(commits.first - 1, last)
        raise proof.expired(commits, f"the log no longer holds version {gone}", gone)
    read = commits.read_all(first + 1, last)
    counts = [commit.rows for commit in read]
    whole = [commit.change_files for commit in read if commit.changes]
    segments = _cut(commits, read)
    proof.prove_files(commits, range(first + 1, last + 1), proof.vacuumed_until(commits, first + 1))
    return Window(
        after=first,
        until=last,
        metadata=commits.metadata_at(last),
        segments=tuple(segments),
        rewritten=tuple(commit.version for commit in read if commit.rewrites),
        pairs=any(commit.pairs for commit in read),
        changes=any(commit.changes for commit in read),
        rows=None if None in counts else sum(count for count in counts if count is not None),
        files=None if None in whole else tuple(file for files in whole for file in files or ()),
    )


def plan_window(
    commits: Commits,
    stream: Stream,
    entry: WindowEntry | None,
    after: int | None,
    until: int,
    keys: Sequence[str] = (),
) -> WindowPlan:
    """Plan the window of a stream that follows *entry*, of what came after a version; or, after None, a snapshot."""
    was_reset = entry is not None and entry.plan.reset
    return WindowPlan(
        stream=stream.uuid,
        number=1 if entry is None else entry.plan.number + 1,
        attempt=new_attempt(),
        kind="snapshot" if after is None else "changes",
        # For changes that are lost to a receiver that was given something.
        reset=after is None and (was_reset or version_given(stream, entry) is not None),
        after=NOTHING if after is None else after,
        until=until,
        until_at=commits.written_at(until).isoformat(),
        table_id=commits.metadata.id,
        keys=tuple(keys),
        until_hash=commits.hash_of(until),
        after_hash="" if after is None else last_seen(stream, entry)[2],
    )


def begin_stream(
    commits: Commits, start: Start, name: str = "start"
) -> dict[str, int | str | None]:
    """Settle where a stream begins, for "now" with what is still to come, and see that it can be read from there.

    *name* is what its caller knows *start* by.
    """
    start_at = commits.newest if start == "now" else start if isinstance(start, int) else None
    known = ""
    if start_at is not None:  # one that cannot be read is refused before it is written down
        open_window(commits, settle_bound(commits, name, start_at), None)
        known = commits.hash_of(start_at) if commits.has(start_at) else ""
    return {"start_at": start_at, "start_hash": known, "table_id": commits.metadata.id}


def check_table(
    stream: Stream, commits: Commits, table_id: str, position: int, known: str = ""
) -> None:
    """See that the table is still the one that was read: of one that was made anew, nobody knows what came after."""
    if not commits.is_still(table_id, position, known):
        msg = "the table was put back from a backup or made anew since it was read"
        raise FeedExpiredError(
            msg,
            table=stream.table,
            found=f"its first version is {commits.made_at}",
            first_readable=proof.first_readable(commits, commits.made_at),
            next_step=begin_anew(stream),
        )


def settle_bound(commits: Commits, name: str, bound: Bound, *, beyond: bool = False) -> int:
    """Turn a bound into a version: the last one at or before a moment; *name* is what its caller knows it by."""
    shown = commits.shown
    if isinstance(bound, str | datetime):
        moment = _moment(shown, name, bound)
        if moment > datetime.now(UTC) and not beyond:
            msg = f"`{name}` lies in the future, and commits that are still to come would belong to the window"
            raise FeedError(msg, table=shown, found=str(bound), next_step="Give an earlier moment.")
        version = commits.last_at(moment)
        if version < commits.first and commits.first > 0:
            what = f"the log no longer tells what was committed before `{name}`"
            raise proof.expired(commits, what, commits.first - 1)
        return version
    given: object = bound  # a whole number of any library, and nothing that only looks like one
    whole = isinstance(given, SupportsIndex) and not isinstance(given, bool)
    if not whole or (number := index(bound)) < NOTHING:
        msg = f"`{name}` is no version"
        step = "Give a whole number from -1 on, or a moment."
        raise FeedError(msg, table=shown, found=str(bound), next_step=step)
    if number <= commits.newest or beyond:
        return min(number, commits.newest)
    msg = f"`{name}` is beyond the newest version"
    found = f"{number}, the newest is {commits.newest}"
    raise FeedError(msg, table=shown, found=found, next_step="Give an earlier version.")


def _moment(shown: str, name: str, bound: str | datetime) -> datetime:
    if isinstance(bound, str):
        try:
            moment = datetime.fromisoformat(bound)
        except ValueError as exc:
            msg = f"`{name}` is no moment"
            step = "Write yyyy-MM-dd, or yyyy-MM-dd HH:mm:ss[.SSS], in UTC."
            raise FeedError(msg, table=shown, found=bound, next_step=step) from exc
        return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    if bound.tzinfo is None:
        msg = f"`{name}` has no time zone"
        step = "Give an aware datetime, such as datetime.now(timezone.utc)."
        raise FeedError(msg, table=shown, found=str(bound), next_step=step)
    return bound


def _cut(commits: Commits, found: Sequence[FeedCommit]) -> list[Segment]:
    """Cut a window where the schema changes in a way that one read cannot span, watching over every version."""
    newest, start = commits.metadata, found[0].version
    before = proof.metadata_before(commits, found[0])
    if before is None:
        what = f"version {start} may have replaced rows and schema at once, and nothing tells what was before"
        raise proof.expired(commits, what, start)
    current, segments = before, list[Segment]()

    def close(last: int) -> None:
        if last >= start:
            # Without column mapping, Delta reads versions with the table's newest schema.
            mapped = current.mapped or newest.mapped
            past = not mapped and not spans(current, newest)
            segments.append(Segment(first=start, last=last, metadata=current, past=past))

    for commit in found:
        became = commit.metadata or current
        flaw = proof.flaw_of(commit, current, newest)
        if flaw:
            raise proof.expired(commits, flaw, commit.version)
        off = commit.rewrites or proof.is_idle(commit, became)
        if off or not spans(current, became):
            close(commit.version - 1)
            start = commit.version + off  # what it wrote again are no changes
        current = became
    close(found[-1].version)
    renewed = renewed_columns(commits, found[0].version - 1, found[-1].version)
    return [replace(one, metadata=renew(one.metadata, renewed)) for one in segments]
