"""Compare two sides of a table: what has to be there, told from changes where need be, and what is there.

In: two frames of the same columns. Out: `Compared`. Both are read once, and hashed; where hashes differ they are read
once more. What markers come to is told by windows of SQL over all rows at once, which is a fold of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mirrorlib.commit.staged import SET
from mirrorlib.feed.changes import Change, first_changes
from mirrorlib.feed.net import KIND, POST, PRE, TIME, VERSION
from mirrorlib.identifiers import quote
from mirrorlib.ingest.batch.snapshot import digest
from mirrorlib.ingest.rows.marks import MARKER, ORDER
from mirrorlib.landing.columns import DELETE, INSERT

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_DELETES, _BEFORE, _FINAL = "_mirror_deletes", "_mirror_before", "_mirror_final"
SIDE = "_mirror_side"  # -1 for a row that is found, 1 for one that takes such a row back, as logs of changes have
_WANTED, _HASH = "_mirror_wanted", "_mirror_hash"
_BUCKETS = 4096
_LOOKED_AT = 200_000  # rows of both sides, in buckets that differ
_NAMED = 10  # keys that differ


def replay_rows(
    rows: DataFrame, keys: Sequence[str], values: Sequence[str], conditional: str | None = None
) -> DataFrame:
    """Tell what rows with `MARKER`, `ORDER` and maybe `SET` come to in an empty table; *keys* and *values* are kept.

    A row is born into the table if it is an insert, or an update that finds none: the first of its key, or the first
    behind a delete. It lives if no delete follows, and ends as the newest update that follows; as the one with the
    greatest value, of equal ones the first, where the column *conditional* decides. Where updates are partial, that is
    said of each value by itself. All of it is seen from a key's last row back, in one sort.
    """
    by_key = f"PARTITION BY {', '.join(map(quote, keys))} ORDER BY {ORDER} DESC"
    back = f"OVER ({by_key} ROWS UNBOUNDED PRECEDING)"
    by, told, final = quote(conditional or ""), list[str](), [*map(quote, keys)]
    for place, value in enumerate(values):
        if value in keys:
            continue
        name, best = quote(value), f"{_FINAL}_{place}"
        updates = f"{MARKER} NOT IN ({INSERT}, {DELETE})"
        own, counts = name, f"{best} IS NOT NULL"
        if SET in rows.columns:
            updates += f" AND {SET}[{place}]"
            own = f"if({MARKER} = {INSERT}, {name}, NULL)"
        if conditional is None:
            told.append(
                f"first_value(if({updates}, struct({name} AS value), NULL), true) {back} AS {best}"
            )
        else:
            rank = f"struct({by} AS by, -{ORDER} AS place, {name} AS value)"
            told.append(f"max(if({updates}, {rank}, NULL)) {back} AS {best}")
            counts = f"coalesce({best}.by > {by}, {best}.by IS NOT NULL AND {by} IS NULL)"
        final.append(f"if({counts}, {best}.value, {own}) AS {name}")
    before = f"coalesce(lead({MARKER}) OVER ({by_key}), {DELETE}) AS {_BEFORE}"
    deletes = f"count_if({MARKER} = {DELETE}) {back} AS {_DELETES}"
    fated = rows.selectExpr("*", before, deletes, *told)
    born = f"({MARKER} = {INSERT} OR {_BEFORE} = {DELETE})"
    return fated.where(f"{_DELETES} = 0 AND {born}").selectExpr(*final)


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """How many rows have to be there, how many are, and the first that differ, as changes; there may be *more*."""

    expected: int
    found: int
    changes: tuple[Change, ...]
    more: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Sides:
    """What is compared: the *columns* of two sides, which have them in the same types.

    Attributes:
        rows: what has to be there, or, with `MARKER`, what `replay_rows` makes it of, for which *conditional* is.
        found: what is there, with `SIDE`.
        keys: tell rows apart; none where nothing does.
        sample: the share of the keys that is looked at.

    """

    rows: DataFrame
    found: DataFrame
    columns: tuple[str, ...]
    keys: tuple[str, ...]
    conditional: str | None
    sample: float

    def compare(self) -> Compared:
        """Compare by sums of hashes in the bucket of each key, or of each row, and rows of those that differ."""
        from pyspark.sql import functions as f

        side, hashed = f.col(SIDE), f.col(_HASH)
        halves = (hashed.bitwiseAND(0xFFFFFFFF), f.shiftright(hashed, 32))  # whose sums stay longs
        sums = [f.sum(_WANTED), f.sum(SIDE), *(f.sum(side * half) for half in halves)]
        told = self._both([*self.keys, _HASH]).groupBy(self._bucket()).agg(*sums).collect()
        expected, net = (sum(row[place] for row in told) for place in (1, 2))
        differing = sorted(row[0] for row in told if any(row[2:]))
        each = max(1, (2 * expected - net) // max(len(told), 1))
        looked = differing[: max(1, _LOOKED_AT // each)]
        first, more = self._first(looked) if looked else ((), False)
        return Compared(
            expected=expected,
            found=expected - net,
            changes=first,
            more=more or len(looked) < len(differing) or len(differing) > 0 == len(first),
        )

    def _both(self, values: Sequence[str], buckets: Sequence[int] = ()) -> DataFrame:
        """Put both sides together, or some buckets of them: of each row `SIDE`, `_WANTED` and *values*."""
        from pyspark.sql import functions as f

        hashed = digest(self.columns)["long"]
        rows, found = (one.withColumn(_HASH, hashed) for one in (self.rows, self.found))
        if buckets or self.sample < 1:
            some = buckets or range(max(round(self.sample * _BUCKETS), 1))
            rows, found = (one.where(self._bucket().isin(*some)) for one in (rows, found))
        if SET in rows.columns:  # the values of a row may come from several
            rows = replay_rows(rows, self.keys, self.columns).withColumn(_HASH, hashed)
        elif MARKER in rows.columns:
            rows = replay_rows(rows, self.keys, values, self.conditional)
        names = [quote(name) for name in values]
        rows = rows.select(*names, f.lit(1).alias(SIDE), f.lit(1).alias(_WANTED))
        return rows.unionByName(found.select(*names, SIDE, f.lit(0).alias(_WANTED)))

    def _bucket(self) -> Column:
        from pyspark.sql import functions as f

        by = f.xxhash64(*map(quote, self.keys)) if self.keys else f.col(_HASH)
        return f.pmod(by, f.lit(_BUCKETS))

    def _first(self, buckets: Sequence[int]) -> tuple[tuple[Change, ...], bool]:
        """Find the first rows in some buckets that one side alone has, two of one key as an update; are there more?"""
        from pyspark.sql import functions as f

        names = [quote(name) for name in self.columns]
        net = self._both(self.columns, buckets).groupBy(*names).agg(f.sum(SIDE).alias(SIDE))
        told = net.where(f.col(SIDE) != 0).select(
            *names,
            f.when(f.col(SIDE) > 0, PRE).otherwise(POST).alias(KIND),
            f.lit(0).cast("long").alias(VERSION),
            f.timestamp_micros(f.lit(0)).alias(TIME),
        )
        found = first_changes(told, "", self.keys, _NAMED)
        return found.changes, found.more
