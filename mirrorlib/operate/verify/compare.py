"""Compare two sides of a table: what has to be there, told from changes where need be, and what is there.

In: two frames of the same columns. Out: how many rows each has, and the first that differ. Both are read once, and
hashed; where hashes differ they are read once more. What markers come to is told by windows of SQL over all rows at
once, which is a fold of its own.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import reduce
from itertools import product
from typing import cast

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from mirrorlib.commit.stage import SET
from mirrorlib.delta.sessions import configured
from mirrorlib.feed.changes import Change, first_changes
from mirrorlib.feed.exact_text import JSON_OPTIONS
from mirrorlib.feed.net import KIND, POST, PRE, TIME, VERSION
from mirrorlib.identifiers import quote
from mirrorlib.ingest.batch.snapshot import digest
from mirrorlib.ingest.batch.spark_reader import unite
from mirrorlib.ingest.rows.marks import MARKER, ORDER
from mirrorlib.landing.columns import DELETE, INSERT

_DELETES, _BEFORE, _FINAL = "_mirror_deletes", "_mirror_before", "_mirror_final"
SIDE = "_mirror_side"  # -1 for a row that is found, 1 for one that takes such a row back, as logs of changes have
_HASH, _BUCKET = "_mirror_hash", "_mirror_bucket"
_TOUCHED = "_mirror_touched"  # the hash of a key to which something came
_BLOCK, _MARKS = "_mirror_block", "_mirror_marks"  # of 64 keys, a bit for each
_ROWS, _LOW, _HIGH = "_mirror_rows", "_mirror_low", "_mirror_high"
# What is added up of a row: 1, and the halves of its hash, whose sums stay longs.
_SUMS = {_ROWS: "1L", _LOW: f"{_HASH} & 4294967295", _HIGH: f"shiftright({_HASH}, 32)"}
_NOTHING = (0,) * len(_SUMS)
_ENDS = 1 + len(_SUMS)  # the first columns are a bucket and its sums
_BITS = 12
_BUCKETS = 1 << _BITS  # and so many keys in a row share one
_PLACES = range(_BITS, 64, _BITS)  # of the digits of a key, whose sum without carry is its bucket
_FEW_RANGES = 64  # of keys, that are read by
_LOOKED_AT = 200_000  # rows of both sides, in buckets that differ
_NAMED = 10  # keys that differ
# Sums by bucket, and few rows, are shuffled as they are planned: adapting each plan costs a tenth of it all.
_FEW_SHUFFLED = {"spark.sql.adaptive.enabled": "false", "spark.sql.shuffle.partitions": "4"}


def replay_rows(
    rows: DataFrame, keys: Sequence[str], values: Sequence[str], conditional: str | None = None
) -> DataFrame:
    """Tell what rows with `MARKER`, `ORDER` and maybe `SET` come to in an empty table; *keys* and *values* are kept.

    Where `SET` is NULL, a row sets all.

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
            updates += f" AND ({SET} IS NULL OR {SET}[{place}])"
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


def as_found(frame: DataFrame) -> DataFrame:
    """Say of rows that they are found."""
    return frame.withColumn(SIDE, f.lit(-1))


def wanted_rows(
    begun: DataFrame | None,
    rows: DataFrame | None,
    keys: Sequence[str],
    columns: Sequence[str],
    conditional: str | None = None,
) -> DataFrame:
    """Tell what the rows that a table began with, and what has come since, come to; there are some of either."""
    if begun is not None and rows is not None:
        rows = unite([_as_inserts(begun), rows])
    if rows is None:
        return cast("DataFrame", begun)
    return replay_rows(rows, keys, columns, conditional)


def _as_inserts(begun: DataFrame) -> DataFrame:
    """Put rows that were inserted before all others, in whichever order, among what `replay_rows` is told."""
    return begun.withColumns({MARKER: f.lit(INSERT), ORDER: f.lit(-1).cast("long")})


def _bucket_of(hashed: Column) -> Column:
    return f.pmod(hashed, f.lit(_BUCKETS))


def _summable(rows: DataFrame) -> DataFrame:
    """Give rows what is added up of them; unless they are sums already."""
    if _ROWS not in rows.columns:
        return rows.selectExpr("*", *(f"{part} AS {name}" for name, part in _SUMS.items()))
    told = (f"coalesce({name}, {part}) AS {name}" for name, part in _SUMS.items())
    return rows.selectExpr(_BUCKET, *told)


def _sum_up(begun: DataFrame) -> DataFrame:
    """Sum rows up by bucket, but for those that are touched: these stay, each for itself."""
    # One long is found fastest.
    by = f.expr(f"if({_TOUCHED} IS NULL, {_BUCKET}, {_HASH})").alias(_HASH)
    sums = [f.sum(name).alias(name) for name in _SUMS]
    ones = [f.max(name).alias(name) for name in (_BUCKET, _TOUCHED)]
    summed = _summable(begun).groupBy(by).agg(*sums, *ones)
    each = [f"if({_TOUCHED} IS NULL, {name}, NULL) AS {name}" for name in _SUMS]
    nth = f"explode(sequence(1, if({_TOUCHED} IS NULL, 1, {_ROWS})))"  # as equal rows have met
    return summed.selectExpr(_HASH, _BUCKET, _TOUCHED, *each, nth).drop("col")


@dataclass(frozen=True, slots=True, kw_only=True)
class Sides:
    """What is compared: the *columns* of two sides, which have them in the same types.

    Attributes:
        begun: rows that have to be there, but for what *rows* make of them.
        rows: what has come since, with what `replay_rows` needs; *conditional* is for that, too.
        few: there are so few of *rows* that each process can hold their keys.
        found: what is there, with `SIDE`.
        keys: tell rows apart; none where nothing does.
        sample: the share of the keys that is looked at.

    """

    begun: DataFrame | None
    rows: DataFrame | None = None
    few: bool = False
    found: DataFrame
    columns: tuple[str, ...]
    keys: tuple[str, ...]
    conditional: str | None = None
    sample: float

    def compare(self) -> tuple[int, int, tuple[Change, ...], bool]:
        """Compare by sums of hashes in the bucket of each key, or of each row, and rows of those that differ.

        Returns how many have to be there, how many are, the first that differ, as changes, and if there may be more.
        """
        planned = _FEW_SHUFFLED if self.few or self.rows is None else {}
        # While one side waits for its small jobs, the other works.
        with configured(self.found.sparkSession, {}, planned), ThreadPoolExecutor(2) as pool:
            rows = [*pool.map(lambda sums: sums.collect(), self._sums())]
        wanted, found = ({row[0]: row[1:_ENDS] for row in side} for side in rows)
        expected, there = (sum(one[0] for one in side.values()) for side in (wanted, found))
        buckets = wanted.keys() | found.keys()
        differing = sorted(
            one for one in buckets if wanted.get(one, _NOTHING) != found.get(one, _NOTHING)
        )
        each = max(1, (expected + there) // max(len(buckets), 1))
        looked = differing[: max(1, _LOOKED_AT // each)]
        if not looked:
            return expected, there, (), False
        ends = [key for row in rows[1] for key in row[_ENDS:] if key is not None]
        with configured(self.found.sparkSession, {}, _FEW_SHUFFLED):
            first, more = self._first(looked, ends)
        more = more or len(looked) < len(differing) or not first
        return expected, there, first, more

    def _sums(self) -> Iterator[DataFrame]:
        """Sum up by bucket what has to be there, and what is: how many rows, and their hashes.

        What has small jobs ahead of its scan comes first, so that the other fills the gaps. What is there has each
        bucket's least and greatest key, too, where rows lie together by it.
        """
        sums = [f.sum(name) for name in _SUMS]
        yield self._wanted_sums().groupBy(_BUCKET).agg(*sums)
        signed = [f.expr(f"sum(-{SIDE} * {name})") for name in _SUMS]
        key = self._range_key()
        ends = [f.expr(f"{end}({key})") for end in ("min", "max") if key]
        yield _summable(self._hashed(self.found)).groupBy(_BUCKET).agg(*signed, *ends)

    def _wanted_sums(self) -> DataFrame:
        """Sum up what has to be there; of what it began with, only that is told row by row to which something came.

        What markers come to is told by the keys' hashes: two keys of one hash would pass for a difference.
        """
        if self.rows is None or SET in self.rows.columns or self.conditional:
            # The values of a row may come from several, all of one key.
            return _summable(self._hashed(self._wanted(self._is_sampled())))
        rows = self._hashed(self.rows).withColumn(_TOUCHED, self._key())
        sums: tuple[str, ...] = ()
        if self.begun is not None:
            begun = self._hashed(self.begun)
            if self.few:
                begun = _sum_up(self._mark_touched(begun, rows))
                sums = tuple(_SUMS)
            else:
                begun = begun.withColumn(_TOUCHED, self._key())
            rows = unite([rows, _as_inserts(begun)])
        return _summable(replay_rows(rows, [_TOUCHED, _BUCKET, *sums], [_HASH]))

    def _mark_touched(self, begun: DataFrame, rows: DataFrame) -> DataFrame:
        """Mark those of the rows that it began with to whose keys one of the *rows* came, and maybe others.

        They are found by blocks of 64 keys, as neighbours share one: single keys are strewn over more than a cache has.
        """
        key = self._range_key()
        number = f.coalesce(f.expr(key), f.lit(0)) if key else self._key()
        block, nth = f.shiftright(number, 6), number.bitwiseAND(63).cast("int")
        mark = f.bit_or(f.call_function("shiftleft", f.lit(1).cast("long"), nth)).alias(_MARKS)
        blocks = rows.groupBy(block.alias(_BLOCK)).agg(mark)
        joined = begun.join(f.broadcast(blocks), block == f.col(_BLOCK), "left")
        return joined.withColumn(_TOUCHED, f.when(f.getbit(_MARKS, nth) == 1, self._key()))

    def _wanted(self, only: Column) -> DataFrame:
        """Give the rows that have to be there, those of some keys *only*."""
        begun, rows = (one and one.where(only) for one in (self.begun, self.rows))
        return wanted_rows(begun, rows, self.keys, self.columns, self.conditional)

    def _hashed(self, rows: DataFrame) -> DataFrame:
        """Give rows their hash and their bucket."""
        facts = {_HASH: self._hash(self.columns), _BUCKET: self._bucket()}
        return rows.where(self._is_sampled()).withColumns(facts)

    def _key(self) -> Column:
        one = len(self.keys) == 1  # has no second that a NULL could stand in for
        return f.xxhash64(quote(self.keys[0])) if one else self._hash(self.keys or self.columns)

    def _hash(self, names: Sequence[str]) -> Column:
        """Hash values of a row; nested ones as JSON, as Spark passes over NULLs and ends inside them."""
        fields = [self.found.schema[name] for name in names]
        nested = [one.name for one in fields if one.dataType.typeName() in {"struct", "array"}]
        hashed = digest([name for name in names if name not in nested])["long"]
        texts = (f.to_json(f.struct(quote(name)), JSON_OPTIONS) for name in nested)
        return f.xxhash64(hashed, *texts) if nested else hashed

    def _is_sampled(self) -> Column:
        if self.sample == 1:
            return f.lit(True)  # noqa: FBT003  # a column
        return _bucket_of(self._key()) < max(round(self.sample * _BUCKETS), 1)

    def _range_key(self) -> str | None:
        """Give a key that is a whole number: of that, neighbours share a bucket, as their rows lie together."""
        kinds = [self.found.schema[key].dataType.typeName() for key in self.keys]
        is_ranged = len(kinds) == 1 and kinds[0] in {"byte", "short", "integer", "long"}
        return f"CAST({quote(self.keys[0])} AS bigint)" if is_ranged else None

    def _bucket(self) -> Column:
        key = self._range_key()
        if key is None:
            return _bucket_of(self._key())
        digits = (f"shiftright(coalesce({key}, 0L), {place})" for place in _PLACES)
        return f.expr(f"({' ^ '.join(digits)}) & {_BUCKETS - 1}")

    def _first(
        self, buckets: Sequence[int], ends: Sequence[int]
    ) -> tuple[tuple[Change, ...], bool]:
        """Find the first rows in some buckets that one side alone has, two of one key as an update; are there more?"""
        names = [quote(name) for name in self.columns]
        only = self._bucket().isin(*buckets) & self._is_sampled() & self._in_ranges(buckets, ends)
        wanted = self._wanted(only).select(*names, f.lit(1).alias(SIDE))
        both = wanted.unionByName(self.found.where(only).select(*names, SIDE))
        if self.keys:
            both = both.repartition(*map(quote, self.keys))  # for all that is done with them
        net = both.groupBy(*names).agg(f.sum(SIDE).alias(SIDE)).where(f.col(SIDE) != 0)
        told = net.select(
            *names,
            f.when(f.col(SIDE) > 0, PRE).otherwise(POST).alias(KIND),
            f.lit(0).cast("long").alias(VERSION),
            f.timestamp_micros(f.lit(0)).alias(TIME),
        )
        found = first_changes(told, "", self.keys, _NAMED)
        return found.changes, found.more

    def _in_ranges(self, buckets: Sequence[int], ends: Sequence[int]) -> Column:
        """Say where keys of some buckets may lie, so that readers pass over files, as far as few ranges say it.

        Between the *ends* of all that were found, each bucket has one range in so many as there are buckets.
        """
        ranged = self._range_key()
        least, most = min(ends, default=0), max(ends, default=0)
        blocks = range(least >> 2 * _BITS, (most >> 2 * _BITS) + 1)
        if ranged is None or len(blocks) * len(buckets) > _FEW_RANGES:
            return f.lit(True)  # noqa: FBT003  # a column
        key = f.expr(ranged)
        near = key.isNull() | (key < least) | (key > most)
        for block, bucket in product(blocks, buckets):
            digits = (block >> place - 2 * _BITS for place in _PLACES[1:])
            first = block * _BUCKETS + reduce(operator.xor, digits, bucket) % _BUCKETS
            near |= key.between(first << _BITS, (first + 1 << _BITS) - 1)
        return near
