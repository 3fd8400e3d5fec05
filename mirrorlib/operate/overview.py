"""Show in one report how a target stands, what was applied to it lately, and three plots of it.

In: a target, and, to keep the ledger, a place for its tables. Out: `Overview`, which the notebook
`status` shows. Spark is needed only where the ledger is kept. What cannot be drawn or kept is said
below the rest, and the overview is not well then: one part takes no other along. Plots need matplotlib, which
Databricks and Fabric have.
"""

from __future__ import annotations

import base64
import io
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mirrorlib.errors import MirrorError, ParameterError, first_line
from mirrorlib.extras import how_to_install
from mirrorlib.operate.book import BookReport, write_ledger
from mirrorlib.operate.ledger import LAST, Applied, LedgerReport, read_ledger
from mirrorlib.operate.status import StatusReport, read_status
from mirrorlib.store import PathOrUrl
from mirrorlib.tabular import Report

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from pyspark.sql import SparkSession


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


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Overview(Report):
    """How a target stands, and how it came there.

    Attributes:
        status: how every table stands.
        ledger: the newest batches of each.
        picture: lag, rows by marker over time, seconds of each stage; None where it could not be drawn.
        kept: what was written down; None where nothing was asked for, or could be.
        failures: what could not be drawn or written down, and why.

    """

    status: StatusReport
    ledger: LedgerReport
    picture: Picture | None = None
    kept: BookReport | None = None
    failures: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Say whether every table is well, and the overview whole; what was applied long ago does not count."""
        return self.status.ok and not self.failures

    def header(self) -> tuple[str, ...]:
        """Name the columns of how tables stand."""
        return self.status.header()

    def rows(self) -> list[tuple[str, ...]]:
        """Return how each table stands."""
        return self.status.rows()

    def notes(self) -> list[str]:
        """Say for each table why it is not current, then what is missing here."""
        return [*self.status.notes(), *self.failures]

    def to_dict(self) -> dict[str, Any]:
        """Return how tables stand, in the shape of `mirrorlib status --json`, and what is missing here."""
        return {**self.status.to_dict(), "ok": self.ok, "failures": list(self.failures)}

    def __str__(self) -> str:
        """Show the reports one below the other."""
        return "\n\n".join([*map(str, self._titled().values()), *self.failures])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        """Show the reports and the plots, in a notebook."""
        parts = [f"<h3>{title}</h3>{part._repr_html_()}" for title, part in self._titled().items()]
        parts += [self.picture._repr_html_()] if self.picture else []
        return "".join([*parts, *(f"<p>{escape(failure)}</p>" for failure in self.failures)])

    def _titled(self) -> dict[str, Report]:
        parts = {"How tables stand": self.status, "What was applied lately": self.ledger}
        return parts | ({"What was written down": self.kept} if self.kept else {})


def read_overview(
    target: PathOrUrl,
    *,
    catalog: str | None = None,
    state: PathOrUrl | None = None,
    last: int = LAST,
    to: str | None = None,
    spark: SparkSession | None = None,
    allow_new: bool = False,
) -> Overview:
    """Read how a target stands and what was applied to it lately, draw that, and keep the ledger where it is asked for.

    The ledger is kept in two Delta tables, as `write_ledger` does it, where *to* says a place, and by *spark*, which
    is for that alone. *last* is how many batches of each table. The rest means the same as for `status`.

    Raises:
        JournalError: nothing has ever been applied to this target.
        LandingZoneError: *last* is no number from 1 on.
        ParameterError: *to* is given without *spark*.

    """
    if to and spark is None:
        msg = "the ledger's tables are written by Spark"
        raise ParameterError(msg, found=f"to={to!r} without spark", next_step="Give spark, too.")
    place: dict[str, Any] = {"catalog": catalog, "state": state, "allow_new": allow_new}
    status, ledger = read_status(target, **place), read_ledger(target, last=last, **place)
    kept: BookReport | None = None
    picture: Picture | None = None
    failures: list[str] = []
    try:
        if to and spark is not None:
            kept = write_ledger(spark, target, to, **place)
    except Exception as exc:  # noqa: BLE001  # Spark's, too: whoever looks at tables still sees them
        failures.append(f"the ledger was not written to {to}: {first_line(exc)}")
    try:
        picture = plot_ledger(ledger, status)
    except MirrorError as exc:
        failures.append(f"nothing was drawn: {exc}")
    return Overview(
        status=status, ledger=ledger, picture=picture, kept=kept, failures=tuple(failures)
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
