"""Read for how long a table keeps the files that its newest version does not need.

In: a table's metadata. Out: a span of time, as `delta.deletedFileRetentionDuration` tells it.
"""

from __future__ import annotations

import re
from datetime import timedelta
from typing import TYPE_CHECKING

from mirrorlib.apply.table import FILE_RETENTION

if TYPE_CHECKING:
    from mirrorlib.feed.actions import Metadata

_DEFAULT = "interval 1 week"  # Delta's own
_UNITS = {"second": 1, "minute": 60, "hour": 3600, "day": 86400, "week": 604800}
_PART = re.compile(r"(\d+)\s+(second|minute|hour|day|week)s?", re.IGNORECASE)


def kept_for(metadata: Metadata) -> timedelta | None:
    """Return for how long files are kept; None where the property cannot be understood."""
    told = retention_told(metadata)
    parts = _PART.findall(told)
    if not parts or _PART.sub("", told).replace("interval", "").strip():
        return None
    return timedelta(seconds=sum(int(count) * _UNITS[unit.lower()] for count, unit in parts))


def retention_told(metadata: Metadata) -> str:
    """Return the property as it is written, or what Delta takes without it."""
    return metadata.properties.get(FILE_RETENTION, _DEFAULT)
