"""Draw what a ledger tells: how long files waited, rows by marker over time, seconds of each stage.

In: a ledger, and how tables stand. Out: `Picture`, which a notebook shows and which can be saved. Needs
matplotlib, which Databricks and Fabric have.
"""

from __future__ import annotations

import base64
import io
from collections import Counter, defaultdict
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from mirrorlib.errors import MirrorError
from mirrorlib.extras import how_to_install

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from matplotlib.axes import Axes

    from mirrorlib.operate.ledger import Applied, LedgerReport
    from mirrorlib.operate.status import StatusReport

_MOST_TABLES = 12  # that are told apart; the rest are those with fewer rows
_SLICES = 40  # of the time that is shown
_MARKERS = {"inserts": "#2a9d4a", "updates": "#e9a100", "deletes": "#c8342b", "upserts": "#3b78c3"}


@dataclass(frozen=True, slots=True)
class Picture:
    """A drawing, as PNG."""

    png: bytes

    def save(self, path: str | Path) -> None:
        """Write it to a file."""
        Path(path).write_bytes(self.png)

    def _repr_png_(self) -> bytes:
        return self.png

    def _repr_html_(self) -> str:
        """Show it where a host knows no PNG."""
        data = base64.b64encode(self.png).decode()
        return (
            f'<img alt="lag, rows by marker, seconds by stage" src="data:image/png;base64,{data}">'
        )


def plot_ledger(ledger: LedgerReport, status: StatusReport | None = None) -> Picture:
    """Draw three plots, one below the other.

    Args:
        ledger: what was applied.
        status: how tables stand; what waits now is then drawn beside what has waited.

    Raises:
        MirrorError: matplotlib is not installed.

    """
    try:
        from matplotlib.figure import Figure
    except ImportError as exc:
        msg = "the Python package matplotlib is not installed"
        raise MirrorError(msg, next_step=how_to_install("notebooks")) from exc
    figure = Figure(figsize=(10, 11), layout="constrained")
    lag, rows, stages = figure.subplots(3, 1)
    shown = _busiest(ledger.batches)
    _draw_lag(lag, shown, status)
    _draw_rows(rows, [one for one in ledger.batches if one.finished_at])
    _draw_stages(stages, shown)
    sink = io.BytesIO()
    figure.savefig(sink, format="png", dpi=90)
    return Picture(sink.getvalue())


def seconds_of(batches: Sequence[Applied]) -> dict[str, float]:
    """Return the average seconds of each stage a batch."""
    total: Counter[str] = Counter()
    for batch in batches:
        total.update(batch.seconds)
    return {stage: seconds / len(batches) for stage, seconds in total.items()}


def _busiest(batches: Sequence[Applied]) -> Mapping[str, list[Applied]]:
    """Group batches by table, the tables with the most rows first; the rest is left out."""
    tables: defaultdict[str, list[Applied]] = defaultdict(list)
    for batch in batches:
        tables[batch.table].append(batch)
    by_rows = sorted(tables, key=lambda table: -sum(one.rows for one in tables[table]))
    return {table: tables[table] for table in by_rows[:_MOST_TABLES]}


def _draw_lag(axes: Axes, tables: Mapping[str, list[Applied]], status: StatusReport | None) -> None:
    waits = {one.table: one.waiting_seconds for one in status.tables} if status else {}
    now = datetime.now(UTC)
    for table, batches in tables.items():
        points = [
            (datetime.fromisoformat(one.finished_at), one.waited_seconds)
            for one in batches
            if one.waited_seconds is not None
        ]
        if (waiting := waits.get(table)) is not None:
            points.append((now, waiting))
        points.sort()
        axes.plot([at for at, _ in points], [lag for _, lag in points], marker=".", label=table)  # type: ignore[arg-type]  # it takes moments
    axes.set(title="Lag: age of a batch's oldest file when it was applied", ylabel="seconds")
    axes.set_ylim(bottom=0)
    if tables:
        axes.legend(fontsize="small")


def _draw_rows(axes: Axes, batches: Sequence[Applied]) -> None:
    if batches:
        ended = [datetime.fromisoformat(one.finished_at) for one in batches]
        rows = [[getattr(one, marker) for one in batches] for marker in _MARKERS]
        axes.hist(  # stacked, in equal slices of time
            [ended] * len(rows),  # type: ignore[arg-type]  # it takes moments
            _SLICES,
            weights=rows,
            stacked=True,
            color=[*_MARKERS.values()],
            label=[*_MARKERS],
        )
        axes.legend(fontsize="small")
    axes.set(title="Change rows by marker", ylabel="rows")


def _draw_stages(axes: Axes, tables: Mapping[str, list[Applied]]) -> None:
    average = {table: seconds_of(batches) for table, batches in tables.items()}
    stages = dict.fromkeys(stage for seconds in average.values() for stage in seconds)
    left = [0.0] * len(average)
    for stage in stages:
        widths = [seconds.get(stage, 0.0) for seconds in average.values()]
        axes.barh([*average], widths, left=left, label=stage)
        left = [start + width for start, width in zip(left, widths, strict=True)]
    axes.set(title="Seconds of each stage, an average batch", xlabel="seconds")
    axes.invert_yaxis()
    if stages:
        axes.legend(fontsize="small")
