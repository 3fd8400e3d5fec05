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
    from mirrorlib.delta.commits import Commits

_DEFAULTS = {FILE_RETENTION: "interval 1 week", LOG_RETENTION: "interval 30 days"}  # Delta's own
_STEPS = {
    FILE_RETENTION: "Say how long files are kept, with --hours.",
    LOG_RETENTION: "Set it as Delta writes it: interval 30 days.",
}
_UNITS = {"second": 1, "minute": 60, "hour": 3600, "day": 86400, "week": 604800}
_NOTICE = 10  # of the time that a version is kept, the last part in which it is told that it goes
_PART = re.compile(r"(\d+)\s+(second|minute|hour|day|week)s?", re.IGNORECASE)


def retention_of(commits: Commits, name: str) -> timedelta:
    """Read how long a property says that a table keeps removed files, or commits, whether or not they are ever removed.

    Raises:
        FeedError: it cannot be understood.

    """
    kept = kept_for(commits, name)
    if kept is None:
        msg = f"the table's {name} cannot be understood"
        found = commits.metadata_at(commits.newest).properties.get(name)
        raise FeedError(msg, table=commits.shown, found=found, next_step=_STEPS[name])
    return kept


def kept_for(commits: Commits, name: str) -> timedelta | None:
    """Read how long a property says that something is kept; None where it cannot be understood."""
    properties = commits.metadata_at(commits.newest).properties
    return duration_of(properties.get(name, _DEFAULTS[name]))


def may_leave_log(commits: Commits, after: int) -> datetime | None:
    """Say from when on the first version behind one may leave the log; None while most of its time is still to come.

    Raises:
        FeedError: the table's property cannot be understood.

    """
    properties = commits.metadata_at(commits.newest).properties
    if properties.get("delta.enableExpiredLogCleanup", "true").lower() == "false":
        return None
    kept = retention_of(commits, LOG_RETENTION)
    if not commits.first <= after + 1 <= commits.newest:
        return None
    leaves = commits.written_at(after + 1) + kept
    return leaves if leaves - kept / _NOTICE <= datetime.now(UTC) else None


def duration_of(text: str) -> timedelta | None:
    """Read a duration as Delta writes it; None where it cannot be understood."""
    parts = _PART.findall(text)
    if not parts or _PART.sub("", text).replace("interval", "").strip():
        return None
    return timedelta(seconds=sum(int(count) * _UNITS[unit.lower()] for count, unit in parts))
