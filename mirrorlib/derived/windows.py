"""Open the windows of a round: the changes of its sources that a derived table has not taken in yet.

In: a round, and what the table's last commit says of its sources. Out: one proven window a source, or why there
are none, so that all rows have to be computed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirrorlib.errors import FeedError
from mirrorlib.feed.schemas import keeps
from mirrorlib.feed.window import open_window

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from mirrorlib.derived.sources import Round, Source
    from mirrorlib.feed.window import Window


def is_overtaken(sources: Sequence[Source], planned: Round) -> bool:
    """Say whether a source was made anew, or put back, since a round was planned: its versions are others now."""
    return any(
        source.table_id != plan.table_id or source.table.commits.newest < plan.until
        for source, plan in zip(sources, planned.plans, strict=True)
    )


def open_windows(
    sources: Sequence[Source], planned: Round, records: Sequence[Mapping[str, object]]
) -> tuple[Window, ...] | str:
    """Open the windows that lead on from what a derived table holds, or say why they do not.

    Args:
        sources: the sources.
        planned: the round.
        records: what the table's last commit says of each source.

    """
    held = [(one.get("stream"), one.get("until"), one.get("table_id")) for one in records]
    wanted = [(plan.stream, plan.after, plan.table_id) for plan in planned.plans]
    if any(plan.kind == "snapshot" for plan in planned.plans):
        return "it is made for the first time, or its progress was reset"
    if [stream for stream, _, _ in held] != [stream for stream, _, _ in wanted]:
        return "its sources are not those of the last run"
    if held != wanted:
        return "it, or a source, was made anew since the last run"
    windows = []
    for source, plan in zip(sources, planned.plans, strict=True):
        if source.table_id != plan.table_id:
            return f"{source.place.shown} was made anew"
        commits, shown = source.table.commits, source.place.shown
        try:
            windows.append(open_window(commits, plan.after, plan.until))
            if not keeps(commits.metadata_at(plan.after), commits.metadata_at(plan.until)):
                return f"the columns of {shown} have become others"
        except FeedError as exc:
            return f"the changes of {shown} cannot be read: {exc.reason}"
    return tuple(windows)
