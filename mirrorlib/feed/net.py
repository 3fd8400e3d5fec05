"""Fold a change feed to what is different between its ends, whatever happened in between.

In: feed rows, in any order. Out: feed rows again, at most one change a key where keys are unique.
A state before plus what a feed adds, minus what it removes, is the state after it: so rows that are
added as often as removed cancel out, and what is left of a key on both sides is an update. That is
right for keys that occur several times, for tables without keys (a difference of multisets), and
for a key that is deleted and inserted again; an update that changes nothing leaves nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame, Window, WindowSpec
from pyspark.sql import functions as f
from pyspark.sql.types import DataType

from mirrorlib.commit.stage import DROP, FRESH, OP, PUT, WRONG
from mirrorlib.errors import FeedError
from mirrorlib.identifiers import fold_name, quote
from mirrorlib.nested import is_free_of, name_of, types_in

KIND, VERSION, TIME = "_change_type", "_commit_version", "_commit_timestamp"
FEED_COLUMNS = (KIND, VERSION, TIME)
_INCOMPARABLE = frozenset({"map", "variant", "geography", "geometry"})
_EVERY_CHANGE = (
    "Ask for every change, without `net`. A consumer keeps what it was registered with: use another name, or drop it "
    "(mirrorlib consumers TARGET --drop NAME) and begin without."
)
INSERT, DELETE, PRE, POST = "insert", "delete", "update_preimage", "update_postimage"
# Of a key in one version: what is taken away is before what is added, and an image meets the other one of its update.
ORDER = {PRE: 0, DELETE: 1, POST: 2, INSERT: 3}


class Helpers:
    """Names of columns that are only there while changes are told, and are no column of the table: each attribute."""

    def __init__(self, columns: Sequence[str]) -> None:
        taken = [fold_name(name) for name in columns]
        self._prefix = "_mirror_"
        while any(name.startswith(self._prefix) for name in taken):
            self._prefix += "_"

    def __getattr__(self, name: str) -> str:
        return self._prefix + name


def columns_of(frame: DataFrame) -> list[str]:
    """Name a feed's own columns, without those that tell the change."""
    return [name for name in frame.columns if name not in FEED_COLUMNS]


def place_of_kind() -> Column:
    """Return the place in `ORDER` of what a row tells."""
    return f.create_map(*[f.lit(value) for pair in ORDER.items() for value in pair])[f.col(KIND)]


def fold_net(frame: DataFrame, keys: Sequence[str], table: str) -> DataFrame:
    """Fold the feed of a window to its net changes: cancel equal rows out, then pair what is left of each key.

    Without keys nothing can be told to be an update. Raises `FeedError` for a column that cannot be compared.
    One shuffle by key, and one sort for both windows, in which a hash spares the comparison of most rows: it is by far
    the dearest part. The second asks for what the first has found, else Spark would sort for it beforehand.
    """
    columns = columns_of(frame)
    helpers = Helpers(columns)
    msg = "so net changes cannot be told"
    refuse_incomparable(frame, columns, table, msg, _EVERY_CHANGE)
    sign_of, others = f.col(helpers.sign), [name for name in columns if name not in keys]
    # Those that go come first.
    alike = Window.partitionBy(*map(quote, [*keys, helpers.bits, *others])).orderBy(helpers.sign)
    told = {helpers.sign: sign(), helpers.bits: f.xxhash64(*map(quote, columns))}
    rows = frame.repartition(*map(quote, keys or columns)).withColumns(told)
    rows = rows.withColumns(
        {
            helpers.place: f.row_number().over(alike),
            helpers.net: f.sum(sign_of).over(_over_all(alike)),
            helpers.times: f.count(sign_of).over(_over_all(alike)),
        }
    )
    net, place = f.col(helpers.net), f.col(helpers.place)
    left = f.when(net < 0, place <= -net).otherwise(place > f.col(helpers.times) - net)
    key = Window.partitionBy(*map(quote, keys)).orderBy(helpers.bits) if keys else alike
    rows = rows.withColumns(
        {
            helpers.left: left,
            **_paired(key, left, helpers),
            # The last commit that touched the key, though the rows of it may have cancelled out.
            VERSION: f.max(VERSION).over(_over_all(key)),
            TIME: f.max(TIME).over(_over_all(key)),
        }
    )
    return _named(rows.where(helpers.left), columns, helpers)


def count_changes(rows: DataFrame, by: Sequence[str], net: str) -> DataFrame:
    """Count in *net* how often equal rows of a feed come, below 0 how often they go; what cancels out is left out."""
    counted = rows.groupBy(*map(quote, by)).agg(f.sum(sign()).alias(net))
    return counted.where(f.col(net) != 0)


def _paired(key: WindowSpec, counts: Column, helpers: Helpers) -> dict[str, Column]:
    """Number a key's removals and its additions, of the rows that count, and say how many pairs they make."""
    sign = f.col(helpers.sign)
    upto = key.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    adds, removes = (f.when(counts & (sign == side), 1).otherwise(0) for side in (1, -1))
    nth = f.when(sign > 0, f.sum(adds).over(upto)).otherwise(f.sum(removes).over(upto))
    both = f.least(f.sum(adds).over(_over_all(key)), f.sum(removes).over(_over_all(key)))
    return {helpers.place: nth, helpers.pairs: both}


def _over_all(window: WindowSpec) -> WindowSpec:
    return window.rowsBetween(Window.unboundedPreceding, Window.unboundedFollowing)


def last_states(frame: DataFrame, keys: Sequence[str], upto: int = -1) -> DataFrame:
    """Keep the last row of each key: `PUT` when it came, `DROP` when it went; one shuffle by key.

    Of what went, the key alone. `FRESH` says that the first thing to happen to the key was that it came, in a
    version after *upto*, which the target has. A row of a key that comes while one is there is `WRONG`.
    """
    columns = columns_of(frame)
    helpers = Helpers(columns)
    change = f.col(helpers.sign)
    # In a version, what goes is first.
    order = Window.partitionBy(*map(quote, keys)).orderBy(VERSION, helpers.sign)
    narrow = [
        f.col(quote(name)) if name in keys else f.when(sign() > 0, f.col(quote(name))).alias(name)
        for name in columns
    ]
    since = change if upto < 0 else f.when(f.col(VERSION) > upto, change).otherwise(0)
    rows = frame.select(*narrow, VERSION, sign().alias(helpers.sign)).withColumns(
        {
            helpers.before: f.lag(helpers.sign).over(order),
            helpers.after: f.lead(helpers.sign).over(order),
            helpers.first: f.first(since).over(order),
        }
    )
    doubled, last = (change > 0) & (f.col(helpers.before) > 0), f.col(helpers.after).isNull()
    op = f.when(doubled, WRONG).when(change > 0, PUT).otherwise(DROP).cast("tinyint")
    fresh = (f.col(helpers.first) > 0).alias(FRESH)
    return rows.where(doubled | last).select(*map(quote, columns), op.alias(OP), fresh)


def pair_updates(frame: DataFrame, keys: Sequence[str]) -> DataFrame:
    """Tell deletes and inserts of one key in one commit as what they are: updates; keys can be compared."""
    columns = columns_of(frame)
    helpers = Helpers(columns)
    images = frame.where(f.col(KIND).isin(PRE, POST))
    rows = frame.where(~f.col(KIND).isin(PRE, POST)).withColumn(helpers.sign, sign())
    # Within its commit, a key's n-th removal and its n-th addition are one update.
    order = f.xxhash64(*orderable(rows, columns))
    key = Window.partitionBy(VERSION, *map(quote, keys)).orderBy(order)
    every = f.col(helpers.sign).isNotNull()
    named = _named(rows.withColumns(_paired(key, every, helpers)), columns, helpers)
    return images.select(*map(quote, columns), *FEED_COLUMNS).unionByName(named)


def _named(rows: DataFrame, columns: Sequence[str], helpers: Helpers) -> DataFrame:
    """Name changes: an update's two images where both have the same place, and a delete or an insert where not."""
    added = f.col(helpers.sign) > 0
    paired = f.col(helpers.place) <= f.col(helpers.pairs)
    image, alone = f.when(added, POST).otherwise(PRE), f.when(added, INSERT).otherwise(DELETE)
    kind = f.when(paired, image).otherwise(alone)
    return rows.select(*map(quote, columns), kind.alias(KIND), VERSION, TIME)


def orderable(rows: DataFrame, columns: Sequence[str]) -> list[Column]:
    """Give columns as values that can be hashed and put in order: maps and variants as what they look like."""
    return [
        f.col(quote(name))
        if is_comparable(rows.schema[name].dataType)
        else f.to_json(f.struct(quote(name)))
        for name in columns
    ]


def is_comparable(kind: DataType) -> bool:
    """Say whether Spark can group, hash and order by a type, and takes no two values for one.

    It can by no map, variant or place, however deep inside; where text has a collation, `bob` may be `BOB`.
    """
    texts = [one.simpleString() for one in types_in(kind) if name_of(one) == "string"]
    return is_free_of(kind, _INCOMPARABLE) and not any(" collate " in text for text in texts)


def sign() -> Column:
    """Return 1 for a row that comes, -1 for one that goes."""
    return f.when(f.col(KIND).isin(INSERT, POST), 1).otherwise(-1)


def refuse_incomparable(
    frame: DataFrame, columns: Sequence[str], table: str, end: str, step: str
) -> None:
    """Raise `FeedError` for a column of a type that Spark cannot group by; it ends in what that means, and a step."""
    for name in columns:
        kind = frame.schema[name].dataType
        if not is_comparable(kind):
            msg = f"a column of this type cannot be compared, {end}"
            found = kind.simpleString().partition("<")[0]
            raise FeedError(msg, table=table, column=name, found=found, next_step=step)
