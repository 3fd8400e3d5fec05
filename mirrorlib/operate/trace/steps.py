"""What happened to a change file or to a key, step by step: a table for people, JSON, a DataFrame.

In: facts. Out: `WhereReport`; the names of its fields are a contract. No value of the data is in it but the key
that was asked for, and what its caller wants to see.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from mirrorlib.feed.changes import Change, Changes
from mirrorlib.tabular import Report, shown_moment

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_SHOWN = "what, at, life, batch, version, file, row, consumer, detail"
_FRAME = (
    "what string, at timestamp, life int, batch bigint, version bigint, file string, row bigint, "
    "rows map<string,bigint>, consumer string, window string, detail string, before string, after string"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One thing that happened.

    A file is published, listed, applied, void, under way, waiting or passed over. A key's steps are insert, update and
    delete; behind those of a version stands every *row* of the key in the files that made it. A version is delivered; *now*
    is what is there. Rows are counted from 0, or by marker; a window is `(after, until]`, a moment ISO 8601.
    """

    what: str
    at: str | None = None
    life: int | None = None
    batch: int | None = None
    version: int | None = None
    file: str | None = None
    row: int | None = None
    rows: Mapping[str, int] | None = None
    consumer: str | None = None
    window: str | None = None
    detail: str = ""
    before: Mapping[str, Any] | None = None
    after: Mapping[str, Any] | None = None

    def cells(self, keys: tuple[str, ...]) -> tuple[str, ...]:
        """Show it to people."""
        facts = {**asdict(self), "at": self.at and shown_moment(self.at)}
        counts = [f"{count:,} {marker}" for marker, count in (self.rows or {}).items() if count]
        facts["detail"] = ", ".join(filter(None, (*counts, self.window, self.detail)))
        if self.before or self.after:
            change = Change(
                version=0, timestamp="", change="", before=self.before, after=self.after
            )
            facts["detail"] = Changes("", (change,), keys, more=False).rows()[0][-1]
        shown = {name: "-" if one is None else str(one) for name, one in facts.items()}
        return tuple((shown | {"detail": facts["detail"]})[one] for one in _SHOWN.split(", "))


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class WhereReport(Report):
    """What happened to a *file* or a *key*, and what of the past is *lost*."""

    columns: ClassVar = tuple(_SHOWN.split(", "))
    target: str
    table: str
    file: str | None
    key: Mapping[str, Any] | None
    steps: tuple[Step, ...]
    lost: tuple[str, ...]

    def rows(self) -> list[tuple[str, ...]]:
        """Return one row a step."""
        return [step.cells(tuple(self.key or ())) for step in self.steps]

    def notes(self) -> list[str]:
        """Say what can no longer be told."""
        return [f"no longer there: {one}" for one in self.lost]

    def to_frame(self, spark: SparkSession) -> DataFrame:
        """Make the steps a DataFrame, in which the rows before and after a change are JSON."""
        from mirrorlib.operate.book import to_row

        rows = []
        for step in map(asdict, self.steps):
            sides = {side: step[side] for side in ("before", "after") if step[side]}
            texts = {side: json.dumps(row, default=str) for side, row in sides.items()}
            rows.append(to_row(_FRAME, step | texts))
        return spark.createDataFrame(rows, _FRAME)
