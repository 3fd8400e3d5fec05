"""Make the status page of an overview, and lay out what it draws: bars over time, tables that are made of each other.

In: an overview. Out: one file of HTML with its style, script and charts in it, which asks nothing of
anybody; jinja2 is needed. Promise: whatever names and reasons are, they are text in it, and no script but its own is
carried out: the page says so to the browser.
"""

from __future__ import annotations

import base64
import hashlib
import math
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from importlib.resources import files
from typing import TYPE_CHECKING

from mirrorlib.errors import printable
from mirrorlib.extras import needed
from mirrorlib.ingest.report import MARKED
from mirrorlib.operate.ledger import Applied
from mirrorlib.operate.lineage import Edge
from mirrorlib.tabular import duration, shown_moment

if TYPE_CHECKING:
    from mirrorlib.operate.overview import Overview

_NEWEST = 30  # batches and changes of columns that are listed
_RANKS = {"failed": 0, "blocked": 1, "gone": 2, "waiting": 3, "behind": 4, "current": 5}
SLICES = 60
_LAGS = (1, 60, 3600, 86400, 30 * 86400, 365 * 86400)  # seconds
_ROUND = [10**power * part for power in range(-2, 15) for part in (1, 2, 5)]
Slices = list[tuple[datetime, list[Applied]]]
_NEXT = re.compile(r"(?<=[.!?]) (?=[A-Z`])")  # where a reason's first sentence ends


def make_page(overview: Overview, *, every: int = 0) -> str:
    """Make the page, which asks its server for what is new *every* so many seconds; 0 for a file, which has none.

    Raises:
        MirrorError: jinja2 is not installed.

    """
    with needed("page", "jinja2"):
        from jinja2 import Environment, StrictUndefined
        from markupsafe import Markup
    here = files(__package__)
    body, style, script = ((here / f"page.{one}").read_text("utf-8") for one in ("html", "css", "js"))  # fmt: skip
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, finalize=_text, trim_blocks=True, lstrip_blocks=True
    )  # fmt: skip
    environment.filters |= {"duration": duration, "moment": shown_moment, "parts": _NEXT.split}
    now, status, ways = datetime.now(UTC), overview.status, overview.ways
    batches = overview.ledger.batches
    seconds: defaultdict[str, float] = defaultdict(float)
    for one in batches:
        seconds[one.table] += one.spent
    slices = cut(batches, now)
    newest = sorted(batches, key=lambda one: one.finished_at, reverse=True)
    lag = max((one.waiting_seconds or 0 for one in status.tables), default=0)
    derived = [way for way in ways.edges if way.kind == "derive"] if ways else []
    return environment.from_string(body).render(
        status=status, failures=overview.failures, now=now, every=every, lag=lag, seconds=seconds,
        style=Markup(style), script=Markup(script),  # noqa: S704  # our own
        policy=f"default-src 'none'; style-src {_hash(style)}; script-src {_hash(script)}; connect-src 'self'; "
        "img-src data:; base-uri 'none'; form-action 'none'",
        counts={state: sum(one.state == state for one in status.tables) for state in _RANKS},
        tables=sorted(status.tables, key=lambda one: (_RANKS.get(one.state, 0), one.table)),
        slices=slices, width=100 / SLICES, charts=draw(slices, lag) if batches else (), rows=rows_over_time(slices),
        batches=newest[:_NEWEST], schema=[one for one in newest if one.schema][:_NEWEST],
        streams=overview.consumers.streams if overview.consumers else (), derived=derived, places=lay_out(derived),
        made={way.target: way for way in reversed(derived)},
    )  # fmt: skip


def _text(value: object) -> object:
    """Show characters that are none as escapes, in what others have named."""
    lines = value.split("\n") if type(value) is str else ()
    return "\n".join(map(printable, lines)) if lines else value


def _hash(text: str) -> str:
    digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
    return f"'sha256-{digest}'"


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
    ended = [(datetime.fromisoformat(one.finished_at), one) for one in batches]
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
    lags = [[max((b.waited_seconds for b in part), default=0.0)] for part in parts]
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
