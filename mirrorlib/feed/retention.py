"""Say how long a table keeps what its change feed is read from: removed files, and commits of its log.

In: a table's log. Out: durations and moments. Source: Delta's `MetadataCleanup`: each checkpoint removes
commits that are older than `delta.logRetentionDuration`, whoever has still to read them, unless
`delta.enableExpiredLogCleanup` is false.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from mirrorlib.delta.properties import FILE_RETENTION, LOG_RETENTION
from mirrorlib.errors import FeedError

if TYPE_CHECKING:
    from mirrorlib.delta.actions import Metadata
    from mirrorlib.delta.commits import Commits

_DEFAULTS = {FILE_RETENTION: "interval 1 week", LOG_RETENTION: "interval 30 days"}  # Delta's own
_UNITS = {"second": 1, "minute": 60, "hour": 3600, "day": 86400, "week": 604800}
_NOTICE = 10  # of the time that a version is kept, the last part in which it is told that it goes
_PART = re.compile(r"(\d+)\s+(second|minute|hour|day|week)s?", re.IGNORECASE)


def keeps_files(commits: Commits, shown: str) -> timedelta:
    """Read how long a table keeps removed files.

    Raises:
        FeedError: its property cannot be understood.

    """
    step = "Say how long files are kept, with --hours."
    return _duration(commits, FILE_RETENTION, shown, step)


def keeps_commits(commits: Commits, shown: str) -> timedelta | None:
    """Read how long a table's log keeps commits; None for ever.

    Raises:
        FeedError: its property cannot be understood.

    """
    properties = commits.metadata_at(commits.newest).properties
    if properties.get("delta.enableExpiredLogCleanup", "true").lower() == "false":
        return None
    return keeps_log(commits, shown)


def keeps_log(commits: Commits, shown: str) -> timedelta:
    """Read for how long a table's property keeps commits, whether or not they are ever removed.

    Raises:
        FeedError: it cannot be understood.

    """
    step = "Set it as Delta writes it: interval 30 days."
    return _duration(commits, LOG_RETENTION, shown, step)


def may_leave_log(commits: Commits, after: int, shown: str) -> datetime | None:
    """Say from when on the first version behind one may leave the log; None while most of its time is still to come.

    Raises:
        FeedError: the table's property cannot be understood.

    """
    kept = keeps_commits(commits, shown)
    if kept is None or not commits.first <= after + 1 <= commits.newest:
        return None
    leaves = commits.written_at(after + 1) + kept
    return leaves if leaves - kept / _NOTICE <= datetime.now(UTC) else None


def kept_for(metadata: Metadata, name: str = FILE_RETENTION) -> timedelta | None:
    """Read how long a property says that something is kept; None where it cannot be understood."""
    return duration_of(metadata.properties.get(name, _DEFAULTS[name]))


def duration_of(text: str) -> timedelta | None:
    """Read a duration as Delta writes it; None where it cannot be understood."""
    parts = _PART.findall(text)
    if not parts or _PART.sub("", text).replace("interval", "").strip():
        return None
    return timedelta(seconds=sum(int(count) * _UNITS[unit.lower()] for count, unit in parts))


def _duration(commits: Commits, name: str, shown: str, step: str) -> timedelta:
    metadata = commits.metadata_at(commits.newest)
    kept = kept_for(metadata, name)
    if kept is None:
        msg = f"the table's {name} cannot be understood"
        raise FeedError(msg, table=shown, found=metadata.properties.get(name), next_step=step)
    return kept
