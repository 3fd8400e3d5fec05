"""Make the status page of an overview.

In: an overview. Out: one file of HTML with its style, script and charts in it, which asks nothing of
anybody; jinja2 is needed. Promise: whatever names and reasons are, they are text in it, and no script but its own is
carried out: the page says so to the browser.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections import defaultdict
from datetime import UTC, datetime
from importlib.resources import files
from math import inf
from typing import TYPE_CHECKING

from mirrorlib.errors import MirrorError, printable
from mirrorlib.extras import how_to_install
from mirrorlib.operate.ledger import Applied
from mirrorlib.operate.page.charts import SLICES, cut, draw, lay_out, rows_over_time
from mirrorlib.tabular import duration, shown_moment

if TYPE_CHECKING:
    from mirrorlib.operate.overview import Overview

_NEWEST = 30  # batches and changes of columns that are listed
_RANKS = {"failed": 0, "blocked": 1, "gone": 2, "waiting": 3, "behind": 4, "current": 5}
_NEXT = re.compile(r"(?<=[.!?]) (?=[A-Z`])")  # where a reason's first sentence ends


def make_page(overview: Overview, *, every: int = 0) -> str:
    """Make the page, which asks its server for what is new *every* so many seconds; 0 for a file, which has none.

    Raises:
        MirrorError: jinja2 is not installed.

    """
    try:
        from jinja2 import Environment, StrictUndefined
        from markupsafe import Markup
    except ImportError as exc:
        msg = "the Python package jinja2 is not installed"
        raise MirrorError(msg, next_step=how_to_install("page")) from exc
    here = files(__package__)
    body, style, script = ((here / f"page.{one}").read_text("utf-8") for one in ("html", "css", "js"))  # fmt: skip
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, finalize=_text, trim_blocks=True, lstrip_blocks=True
    )  # fmt: skip
    environment.filters |= {"duration": duration, "moment": shown_moment, "parts": _NEXT.split}
    now, status, ways = datetime.now(UTC), overview.status, overview.ways
    batches = _seen(overview)
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
    )  # fmt: skip


def _seen(overview: Overview) -> list[Applied]:
    """Leave batches out that ended after their table's state was read: the page is of one moment."""
    known = [one for one in overview.status.tables if one.version is not None]
    ends = {one.table: (one.life, one.version) for one in known}
    batches = overview.ledger.batches
    return [one for one in batches if (one.life, one.version) <= ends.get(one.table, (inf,))]


def _text(value: object) -> object:
    """Show characters that are none as escapes, in what others have named."""
    lines = value.split("\n") if type(value) is str else ()
    return "\n".join(map(printable, lines)) if lines else value


def _hash(text: str) -> str:
    digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
    return f"'sha256-{digest}'"
