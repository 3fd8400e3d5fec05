"""Follow columns over the rewrites that gave them another name in the data files.

In: a table's log. Out: what a column's older names there have become. Under column mapping Delta takes a column of
another type for a new one; where mirrorlib has written all rows again in it, the name stands for what it stood for.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from mirrorlib.delta.properties import PAUSED
from mirrorlib.errors import FeedError
from mirrorlib.feed.schemas import physical_name, physical_names
from mirrorlib.identifiers import fold_name

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mirrorlib.delta.actions import Metadata
    from mirrorlib.delta.commits import Commits


def renewed_columns(commits: Commits, version: int) -> dict[str, str]:
    """Say what names in the data files have become of older ones up to a version, as far back as the log tells.

    The log is only gone through where a property says that a rewrite of this kind has been.
    """
    renewed: dict[str, str] = {}
    try:
        if PAUSED not in commits.metadata_at(max(version, 0)).properties:
            return renewed
        for number in range(version, commits.first, -1):
            became = commits.rewritten_as(number)
            if became is not None:
                _renew(renewed, commits.metadata_at(number - 1), became)
    except FeedError:  # what came before is told by nobody
        pass
    return renewed


def _renew(renewed: dict[str, str], before: Metadata, became: Metadata) -> None:
    now = {fold_name(name): physical for name, physical in physical_names(became).items()}
    for name, old in physical_names(before).items():
        new = now.get(fold_name(name), old)
        if new != old:
            renewed[old] = renewed.get(new, new)


def renew(metadata: Metadata, renewed: Mapping[str, str]) -> Metadata:
    """Name a schema's columns in the data files as they are named now."""
    fields = [
        {**field, "metadata": {**field["metadata"], "delta.columnMapping.physicalName": new}}
        if (new := renewed.get(physical_name(field))) is not None
        else field
        for field in metadata.schema["fields"]
    ]
    return replace(metadata, schema={**metadata.schema, "fields": fields})
