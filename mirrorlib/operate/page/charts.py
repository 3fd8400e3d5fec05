"""Lay out what the status page draws: bars over equal slices of time, and tables that are made of each other.

In: batches of the ledger, ways of the lineage. Out: figures and places, of which the template makes SVG.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from mirrorlib.ingest.report import MARKED
from mirrorlib.operate.ledger import Applied
from mirrorlib.operate.lineage import Edge
from mirrorlib.tabular import duration

SLICES = 60
_LAGS = (1, 60, 3600, 86400, 30 * 86400, 365 * 86400)  # seconds
_ROUND = [10**power * part for power in range(-2, 15) for part in (1, 2, 5)]
Slices = list[tuple[datetime, list[Applied]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """Bars over time, 100 high: *legend* names what is stacked in each, and *values* are theirs by slice.

    The first in the legend has the colour *shift*. Heights of *ages* go by their powers: seconds and days are seen.
    """

    title: str
    legend: Sequence[str]
    values: Sequence[Sequence[float]]
    shown: Callable[[float], str]
    shift: int = 0
    ages: bool = False

    def height(self, value: float) -> float:
        """Return how high a figure stands."""
        top = max(map(sum, self.values)) or 1
        share = math.log1p(value) / math.log1p(top) if self.ages else value / top
        return round(100 * share, 2)

    def bars(self) -> Iterator[tuple[int, int, float, float]]:
        """Give the place, the colour, the upper end and the height of each piece of a bar."""
        for place, values in enumerate(self.values):
            low = below = 0.0
            for colour, value in enumerate(values, self.shift):
                below += value
                high = self.height(below)
                if value:
                    yield place, colour % 8, 100 - high, round(high - low, 2)
                low = high

    def lines(self) -> list[tuple[float, str]]:
        """Give the heights that are marked, and what they are."""
        top = max(map(sum, self.values))
        first = max((one for one in _ROUND if one <= top), default=0)
        marks = [one for one in _LAGS if one <= top] if self.ages else [first, first / 2]
        return [(100 - self.height(one), self.shown(one)) for one in marks if one]


def cut(batches: Sequence[Applied], now: datetime) -> Slices:
    """Cut the time from the first batch until *now* into slices, which all have their begin and the batches in it."""
    ended = [(datetime.fromisoformat(one.finished_at), one) for one in batches if one.finished_at]
    first = min((at for at, _ in ended), default=now)
    step = max((now - first) / SLICES, timedelta(microseconds=1))
    slices: Slices = [(first + step * number, []) for number in range(SLICES)]
    for at, one in ended:
        slices[min(int((at - first) / step), SLICES - 1)][1].append(one)
    return slices


def draw(slices: Slices, waiting: float) -> tuple[Chart, Chart, Chart]:
    """Draw rows by marker, the longest lag, with what is *waiting* now, and the seconds of an average batch."""
    parts = [part for _, part in slices]
    stages = list(dict.fromkeys(name for part in parts for one in part for name in one.seconds))
    rows = [[float(sum(getattr(b, m) for b in part)) for m in MARKED] for part in parts]
    lags = [[max((b.waited_seconds or 0.0 for b in part), default=0.0)] for part in parts]
    lags[-1] = [max(*lags[-1], waiting)]
    spent = [[sum(b.seconds.get(s, 0) for b in p) / (len(p) or 1) for s in stages] for p in parts]
    return (
        Chart(title="Change rows", legend=MARKED, values=rows, shown="{:,.0f}".format),
        Chart(title="Lag of the oldest file", legend=("lag",), values=lags, shown=duration, shift=5, ages=True),
        Chart(title="Seconds of an average batch", legend=stages, values=spent, shown="{:,.2f} s".format, shift=3),
    )  # fmt: skip


def rows_over_time(slices: Slices) -> Mapping[str, Counter[int]]:
    """Count the change rows of each table by slice."""
    rows: defaultdict[str, Counter[int]] = defaultdict(Counter)
    for number, (_, part) in enumerate(slices):
        for batch in part:
            rows[batch.table][number] += batch.rows
    return rows


def lay_out(ways: Sequence[Edge]) -> Mapping[str, tuple[int, float]]:
    """Give each table a column to the right of all that it is made of, and a row near to theirs."""
    sources: defaultdict[str, list[str]] = defaultdict(list)
    column: dict[str, int] = {}
    for way in ways:  # which come in the order of the data's
        sources[way.target].append(way.source)
        column[way.target] = max(column.get(way.target, 0), column.setdefault(way.source, 0) + 1)
    free: defaultdict[int, float] = defaultdict(float)
    places: dict[str, tuple[int, float]] = {}
    for table in sorted(column, key=lambda one: (column[one], one)):
        above = [places[one][1] for one in sources[table] if one in places]
        row = max(free[column[table]], sum(above) / len(above) if above else 0)
        free[column[table]] = row + 1
        places[table] = column[table], row
    return places
