"""Prove that what a version tells, or holds, is still there; where it is not, say from where on all is.

In: a table's log. Out: nothing, or `FeedExpiredError` with the first version from which on every change up to
the newest version can be read, for whatever reasons those before it cannot.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from mirrorlib.errors import FeedError, FeedExpiredError
from mirrorlib.feed.retention import kept_for
from mirrorlib.feed.schemas import spans

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mirrorlib.delta.actions import FeedCommit, Held, Metadata
    from mirrorlib.delta.commits import Commits

_CLOCKS = timedelta(hours=1)  # by which a store's and a machine's clock may differ


def expired(commits: Commits, shown: str, reason: str, version: int) -> FeedExpiredError:
    """Say that changes are gone, and where to read on.

    Args:
        commits: the table's log.
        shown: the table's name.
        reason: what is gone.
        version: the last one that is known to be unreadable.

    """
    first = first_readable(commits, version + 1)
    step = "Switch it on for what comes: mirrorlib enable-feed TARGET"
    if first is not None:
        step = (
            f"Copy the table's rows as they are now, and read on; "
            f"the first version whose changes can be read is {first}."
        )
    return FeedExpiredError(reason, table=shown, first_readable=first, next_step=step)


def first_readable(commits: Commits, lowest: int = 0) -> int | None:
    """Find the first version, not before *lowest*, from which on all can be read; None while the feed is off."""
    if not commits.metadata_at(commits.newest).has_feed:
        return None
    first = commits.newest + 1
    for version in range(commits.newest, max(lowest, commits.first) - 1, -1):
        commit = commits.read(version)
        if not _is_told(commits, commit) or _lacks_file(
            commits, commit, vacuumed_until(commits, version)
        ):
            break
        first = version
    return first


def flaw_of(commit: FeedCommit, current: Metadata, became: Metadata) -> str:
    """Say why a version's changes cannot be told beside those of the versions before it; "" where they can.

    Args:
        commit: the version.
        current: the table's metadata before it.
        became: and behind it.

    """
    version = commit.version
    if became.id != current.id:
        return f"version {version} made the table anew"
    if not (became.has_feed or commit.rewrites):
        return f"the feed was off when version {version} was committed"
    if commit.forgotten:
        return f"version {version} changes rows, but its metrics say it does not, and Delta leaves it out"
    if commit.changes and not spans(current, became):
        return f"version {version} replaced rows and schema at once"
    return ""


def metadata_before(commits: Commits, commit: FeedCommit) -> Metadata | None:
    """Find the metadata that a commit meets: it may be the one that changes them. None where nothing tells."""
    if commit.metadata is None or commit.version == 0:
        return commit.metadata or commits.metadata_at(commit.version)
    try:
        return commits.metadata_at(commit.version - 1)
    except FeedError:
        return None if commit.changes else commit.metadata


def _is_told(commits: Commits, commit: FeedCommit) -> bool:
    try:
        current = metadata_before(commits, commit)
    except FeedError:
        return False
    return current is not None and not flaw_of(commit, current, commit.metadata or current)


def vacuumed_until(commits: Commits, version: int) -> datetime:
    """Say up to when files were written that a VACUUM may have taken: not each writes down that it ran.

    One that does not is taken to have kept what the table keeps; younger files need no looking for.
    """
    kept = kept_for(commits.metadata_at(commits.newest))
    unsaid = datetime.now(UTC) - (timedelta() if kept is None else kept)
    return max(unsaid, commits.vacuumed_until(version)) + _CLOCKS


def _lacks_file(commits: Commits, commit: FeedCommit, until: datetime | None) -> bool:
    """Say whether a file of a version's changes is gone; not of one that was written after a moment."""
    if until is not None and commits.written_at(commit.version) > until:
        return False
    return not all(map(commits.holds, commit.files))


def check_present(commits: Commits, shown: str, after: int, until: int) -> None:
    """See that every version behind one and up to another has a file of its own in the log.

    Raises:
        FeedExpiredError: one has not.

    """
    if after + 1 < commits.first:
        gone = min(commits.first - 1, until)
        raise expired(commits, shown, f"the log no longer holds version {gone}", gone)


def check_kept(commits: Commits, shown: str, versions: Sequence[int]) -> None:
    """See that versions have still a file of their own in the log, whatever has become of those around them.

    Raises:
        FeedExpiredError: one has not.

    """
    for version in versions:
        if not commits.has(version):
            raise expired(commits, shown, f"the log no longer holds version {version}", version)


def prove_files(
    commits: Commits, shown: str, versions: Sequence[int], until: datetime | None = None
) -> None:
    """See that the files of changes are there, of those versions that were written up to a moment.

    Raises:
        FeedExpiredError: one is gone.

    """
    for version in reversed(versions):
        if _lacks_file(commits, commits.read(version), until):
            what = f"the changes of version {version} were removed by VACUUM"
            raise expired(commits, shown, what, version)


def prove_rows(commits: Commits, shown: str, version: int) -> None:
    """See that the files of a version's rows are there, as far as later versions have taken them out of the table.

    No VACUUM takes the others.

    Raises:
        FeedExpiredError: one is gone.

    """
    came: set[Held] = set()
    for number in range(max(version + 1, commits.first), commits.newest + 1):
        removed, added = commits.moves(number)
        if not all(commits.holds(path) for held in removed if held not in came for path in held):
            what = f"the rows of version {version} were removed by VACUUM"
            raise expired(commits, shown, what, version)
        came.update(added)
