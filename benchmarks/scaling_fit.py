"""Fit what a batch costs to what was measured, by least squares."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

SMALL_ROWS = 10_000  # as `mirrorlib.delta.sessions` has it: what is below both is a small commit
SMALL_TABLE = 3 << 20
ROW_BYTES = 36  # of the benchmarks' tables, roughly
CHANGE_BYTES = 52.3  # of a changed row in a file of 100,000


@dataclass(frozen=True, kw_only=True)
class Batch:
    """What one kind of batch has cost, the median of its rounds.

    Attributes:
        rows: changed rows.
        size: bytes of their file.
        touched: files of the table that have changed.
        scanned: rows among which the keys had to be found.
        seconds: by the clock; the others are CPU seconds.

    """

    table_rows: int
    table_files: int
    newest: float
    rows: int
    size: int
    touched: int
    scanned: int
    seconds: float
    python: float
    java: float
    executors: float

    @property
    def cpu(self) -> float:
        """Return the CPU seconds of all processes."""
        return self.python + self.java + self.executors

    @property
    def driver(self) -> float:
        """Return those of Python and its Java; where Spark is local, executors' work is among them."""
        return self.python + self.java

    @property
    def small(self) -> bool:
        """Say whether it is carried out as a small commit."""
        return self.rows <= SMALL_ROWS and self.table_rows * ROW_BYTES <= SMALL_TABLE


def published() -> dict[str, Any]:
    """Give RESULTS.md's B, C, D and E, of two quiet cores; large ones may have used both: CPU is twice the seconds."""
    large = [(100_000, 1.0, 10, 10_000_000, 5.01), (100_000, 0.02, 1, 1_000_000, 2.69)]
    large += [(1_000_000, 1.0, 10, 10_000_000, 12.28)]
    batches = [
        _published(10_000_000, 10, rows, newest, touched, scanned, seconds, 2 * seconds)
        for rows, newest, touched, scanned, seconds in large
    ]
    batches.append(_published(1_000, 1, 10, 0.5, 1, 1_000, 0.68, 0.70))
    return {"batches": [asdict(batch) for batch in batches], "fits": fit_all(batches)}


def _published(
    table_rows: int,
    table_files: int,
    rows: int,
    newest: float,
    touched: int,
    scanned: int,
    seconds: float,
    cpu: float,
) -> Batch:
    return Batch(
        table_rows=table_rows,
        table_files=table_files,
        newest=newest,
        rows=rows,
        size=round(rows * CHANGE_BYTES),
        touched=touched,
        scanned=scanned,
        seconds=seconds,
        python=0.0,
        java=cpu,
        executors=0.0,
    )


_TERMS: dict[str, Callable[[Batch], float]] = {
    "batch": lambda _: 1.0,
    "million_rows": lambda batch: batch.rows / 1e6,
    "million_scanned": lambda batch: batch.scanned / 1e6,
    "touched": lambda batch: batch.touched,
}
_OF = {"small": tuple(_TERMS)[:3], "large": tuple(_TERMS)}


def fit_all(batches: Sequence[Batch]) -> dict[str, Any]:
    """Fit small and large commits apart: they are carried out by different plans. Print both."""
    found = {}
    for road, terms in _OF.items():
        some = [batch for batch in batches if batch.small == (road == "small")]
        if some:  # of few, only the first terms can be told apart
            few = terms[: len(some)]
            found[road] = {what: fit(some, few, what) for what in ("seconds", "cpu", "driver")}
    for road, fits in found.items():
        for what, one in fits.items():
            print(f"\n{road}, {what}: {one['of']}\n  residuals {one['residuals']}")
    return found


def fit(batches: Sequence[Batch], terms: Sequence[str], what: str) -> dict[str, Any]:
    """Fit one measure, relatively: a batch of 30 s must not outweigh all of 1 s. No coefficient is below nothing."""
    measured = np.array([getattr(batch, what) for batch in batches])
    left, values = list(terms), np.zeros(0)
    while left:
        matrix = np.array([[_TERMS[term](batch) for term in left] for batch in batches])
        values = np.linalg.lstsq(matrix / measured[:, None], np.ones(len(batches)), rcond=None)[0]
        if values.min() >= 0:
            break
        left.pop(int(values.argmin()))
    foreseen = matrix @ values
    residuals = [
        f"{100 * (one / real - 1):+.0f} %" for one, real in zip(foreseen, measured, strict=True)
    ]
    of = dict.fromkeys(terms, 0.0) | dict(
        zip(left, (round(float(v), 4) for v in values), strict=True)
    )
    return {"of": of, "residuals": residuals}


def show_batches(batches: Sequence[Batch]) -> None:
    """Print what was measured, as a table of Markdown."""
    print("\n| table | rows | files touched | rows looked through | s | CPU s | of which driver |")
    print("|---|---|---|---|---|---|---|")
    for one in batches:
        where = "anywhere" if one.newest == 1.0 else f"in the newest {one.newest:.0%}"
        print(
            f"| {one.table_rows:,} rows in {one.table_files} files | {one.rows:,} {where} | {one.touched} | "
            f"{one.scanned:,} | {one.seconds:.2f} | {one.cpu:.2f} | {one.driver:.2f} |"
        )
