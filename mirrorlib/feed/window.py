"""Settle which versions a window holds, and prove that none of their changes is missing.

In: bounds as a caller gives them. Out: `Window`, cut into `Segment`s at changes of the schema that
one read cannot span. Promise: every commit of a window is in the log, was made while the feed was
on, and belongs to one and the same table; else the error says from which version on that is so.
Delta itself reads on without a word where a version's file is gone but a checkpoint has its rows
(CDCReader reads the log with failOnDataLoss = false), and leaves out a MERGE whose metrics are zero.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from operator import index
from typing import TYPE_CHECKING, NoReturn, SupportsIndex

from mirrorlib.errors import FeedError, FeedExpiredError
from mirrorlib.feed.retention import kept_for
from mirrorlib.feed.schemas import spans

if TYPE_CHECKING:
    from mirrorlib.feed.actions import FeedCommit, Metadata
    from mirrorlib.feed.commits import Commits

Bound = int | str | datetime
NOTHING = -1  # the version before the first
_CLOCKS = timedelta(hours=1)  # by which a store's and a machine's clock may differ
_MOMENT = re.compile(r"\d{4}-\d{2}-\d{2}([ T]\d{2}:\d{2}:\d{2}(\.\d{1,6})?)?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """Versions that one read can span.

    Attributes:
        first: the first of them.
        last: the last of them, within.
        metadata: the table's metadata as of the last.
        past: a column has got another type since, which Delta would read these versions' files with.

    """

    first: int
    last: int
    metadata: Metadata
    past: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """The changes after one version and up to another, `(after, until]`.

    Attributes:
        after: the last version before it, -1 when it begins with the first.
        until: its last version.
        metadata: the table's metadata as of `until`.
        segments: how it is read.
        rewritten: the versions, in no segment, that give the rows other types and change none.
        pairs: some commit of it may delete and insert rows of one key.
        changes: some commit of it changes rows.
        rows: how many rows its commits say that they change; None where one does not say.

    """

    after: int
    until: int
    metadata: Metadata
    segments: tuple[Segment, ...] = ()
    rewritten: tuple[int, ...] = ()
    pairs: bool = False
    changes: bool = False
    rows: int | None = 0


def open_window(commits: Commits, shown: str, after: Bound | None, until: Bound | None) -> Window:
    """Settle a window and prove it whole.

    Args:
        commits: the table's log.
        shown: the table's name, for errors.
        after: read what came after this version, or after this moment; -1 is from the first version on.
        until: and up to this one; None is the newest.

    Raises:
        FeedExpiredError: a version's changes are gone, or were never recorded.
        FeedError: the bounds are missing, reversed, or beyond the newest version.

    """
    first, last = _settle(commits, shown, after, until)
    if first == last:
        return Window(after=first, until=last, metadata=commits.metadata_at(max(last, 0)))
    _check_present(commits, shown, first, last)
    found = [commits.read(version) for version in range(first + 1, last + 1)]
    counts = [commit.rows for commit in found]
    segments = _cut(commits, shown, found)
    prove_files(commits, shown, range(first + 1, last + 1), _vacuumed_until(commits, first + 1))
    return Window(
        after=first,
        until=last,
        metadata=commits.metadata_at(last),
        segments=tuple(segments),
        rewritten=tuple(commit.version for commit in found if commit.rewrites),
        pairs=any(commit.pairs for commit in found),
        changes=any(commit.changes for commit in found),
        rows=None if None in counts else sum(count for count in counts if count is not None),
    )


def _settle(
    commits: Commits, shown: str, after: Bound | None, until: Bound | None
) -> tuple[int, int]:
    if after is None:
        msg = "the feed has to know where to start"
        raise FeedError(
            msg,
            table=shown,
            first_readable=commits.first,
            next_step="Give `after`, a version or a moment: -1 is everything from the first version on.",
        )
    first, last = _bound(commits, shown, "after", after), commits.newest
    if until is not None:
        last = _bound(commits, shown, "until", until)
    if first > last:
        msg = "the window ends before it starts"
        found = f"after {after}, which is version {first}, until version {last}"
        raise FeedError(msg, table=shown, found=found, next_step="Exchange the bounds.")
    return first, last


def _bound(commits: Commits, shown: str, name: str, bound: Bound) -> int:
    """Turn a bound into a version: the last one at or before a moment."""
    if isinstance(bound, str | datetime):
        moment = _moment(shown, name, bound)
        if moment > datetime.now(UTC):
            msg = f"`{name}` lies in the future, and commits that are still to come would belong to the window"
            raise FeedError(msg, table=shown, found=str(bound), next_step="Give an earlier moment.")
        version = commits.last_at(moment)
        if version < commits.first and commits.first > 0:
            _expire(commits, shown, f"the log no longer tells what was committed before `{name}`")
        return version
    number = _whole_number(bound)
    if number is None or number < NOTHING:
        msg = f"`{name}` is no version"
        step = "Give a whole number from -1 on, or a moment."
        raise FeedError(msg, table=shown, found=str(bound), next_step=step)
    if number > commits.newest:
        msg = f"`{name}` is beyond the newest version"
        found = f"{number}, the newest is {commits.newest}"
        raise FeedError(msg, table=shown, found=found, next_step="Give an earlier version.")
    return number


def _whole_number(bound: object) -> int | None:
    """Take whole numbers of any library, and nothing that only looks like one."""
    if isinstance(bound, bool) or not isinstance(bound, SupportsIndex):
        return None
    return index(bound)


def _moment(shown: str, name: str, bound: str | datetime) -> datetime:
    if isinstance(bound, str):
        if not _MOMENT.fullmatch(bound):
            msg = f"`{name}` is no moment"
            step = "Write yyyy-MM-dd, or yyyy-MM-dd HH:mm:ss[.SSS], in UTC."
            raise FeedError(msg, table=shown, found=bound, next_step=step)
        try:
            return datetime.fromisoformat(bound).replace(tzinfo=UTC)
        except ValueError as exc:
            msg = f"`{name}` is no moment"
            raise FeedError(msg, table=shown, found=f"{bound}: {exc}") from exc
    if bound.tzinfo is None:
        msg = f"`{name}` has no time zone"
        step = "Give an aware datetime, such as datetime.now(timezone.utc)."
        raise FeedError(msg, table=shown, found=str(bound), next_step=step)
    return bound


def _check_present(commits: Commits, shown: str, after: int, until: int) -> None:
    """See that every version of the window has a file of its own in the log."""
    if after + 1 < commits.first:
        gone = min(commits.first - 1, until)
        _expire(commits, shown, f"the log no longer holds version {gone}")


def _cut(commits: Commits, shown: str, found: Sequence[FeedCommit]) -> list[Segment]:
    """Cut a window where the schema changes in a way that one read cannot span, watching over every version."""
    newest = commits.metadata_at(commits.newest)
    current = _before(commits, shown, found[0])
    start, segments = found[0].version, list[Segment]()

    def close(last: int) -> None:
        if last >= start:
            segments.append(_segment(start, last, current, newest))

    for commit in found:
        became = commit.metadata or current
        _check_commit(commits, shown, commit, current, became)
        if commit.rewrites or not spans(current, became):
            close(commit.version - 1)
            start = commit.version + commit.rewrites  # what it wrote again are no changes
        current = became
    close(found[-1].version)
    return segments


def _segment(first: int, last: int, metadata: Metadata, newest: Metadata) -> Segment:
    """Say how versions are read: without column mapping, Delta does so with the table's newest schema."""
    mapped = metadata.mapped or newest.mapped
    past = not mapped and not spans(metadata, newest)
    return Segment(first=first, last=last, metadata=metadata, past=past)


def _check_commit(
    commits: Commits, shown: str, commit: FeedCommit, current: Metadata, became: Metadata
) -> None:
    """See that a version's changes can be told, beside those of the versions before it."""
    version = commit.version
    if became.id != current.id:
        _expire(commits, shown, f"version {version} made the table anew", version + 1)
    if not became.has_feed:
        _refuse_unfed(commits, shown, version)
    if commit.forgotten:
        what = f"version {version} changes rows, but its metrics say it does not, and Delta leaves it out"
        _expire(commits, shown, what, version + 1)
    if commit.changes and not spans(current, became):
        what = f"version {version} replaced rows and schema at once"
        _expire(commits, shown, what, version + 1)


def _before(commits: Commits, shown: str, first: FeedCommit) -> Metadata:
    """Find the metadata that a window's first commit meets: it may be the one that changes them."""
    if first.metadata is None or first.version == 0:
        return first.metadata or commits.metadata_at(first.version)
    try:
        return commits.metadata_at(first.version - 1)
    except FeedError:
        if not first.changes:
            return first.metadata
        what = f"version {first.version} may have replaced rows and schema at once, and nothing tells what was before"
        _expire(commits, shown, what, first.version + 1)


def _refuse_unfed(commits: Commits, shown: str, version: int) -> NoReturn:
    """Say from when on the feed has been on again, if it is."""
    on: int | None = None
    for number in range(version + 1, commits.newest + 1):
        metadata = commits.read(number).metadata
        if metadata is not None:
            on = (number if on is None else on) if metadata.has_feed else None
    reason = f"the feed was off when version {version} was committed"
    if on is not None:
        _expire(commits, shown, reason, on)
    step = "Switch it on for what comes: mirrorlib enable-feed TARGET"
    raise FeedExpiredError(reason, table=shown, next_step=step)


def _vacuumed_until(commits: Commits, version: int) -> datetime:
    """Say up to when files were written that a VACUUM may have taken: not each writes down that it ran.

    One that does not is taken to have kept what the table keeps; younger files need no looking for.
    """
    kept = kept_for(commits.metadata_at(commits.newest))
    unsaid = datetime.now(UTC) - (timedelta() if kept is None else kept)
    return max(unsaid, commits.vacuumed_until(version)) + _CLOCKS


def prove_files(
    commits: Commits, shown: str, versions: Sequence[int], until: datetime | None = None
) -> None:
    """See that the files of changes are there, of those versions that were written up to a moment.

    Raises:
        FeedExpiredError: one is gone.

    """
    for version in reversed(versions):
        if until is not None and commits.written_at(version) > until:
            continue
        gone = next((path for path in commits.read(version).files if not commits.holds(path)), None)
        if gone is not None:
            what = f"the changes of version {version} were removed by VACUUM"
            _expire(commits, shown, what, version + 1)


def _expire(commits: Commits, shown: str, reason: str, first: int | None = None) -> NoReturn:
    first = commits.first if first is None else first
    step = (
        f"Copy the table's rows as they are now, and read on; "
        f"the first version whose changes can be read is {first}."
    )
    raise FeedExpiredError(reason, table=shown, first_readable=first, next_step=step)
