"""What the rule table says of a chain of transformations, in plain Python; the oracle shares no code with the package.

A chain is a list of (kind, number): the number chooses a column. The oracle knows where every column's values
come from, and which keys are left; `run` does the same to a DataFrame. One column, `ROW`, is never chosen: it says
of which row of the source a row is made, or of which rows one is.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from mirrorlib.keys.declare import union_keyed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Chain = list[tuple[str, int]]
SOURCE = ("k1", "k2", "gone", "at", "v")
ROW = "row"
ORIGIN = {"k1": "key 0", "k2": "key 1", "gone": "gone", "at": "at"}


@dataclass(kw_only=True)
class Oracle:
    """What is left after a chain.

    Attributes:
        columns: their names in order, and what each one's values are: "key 0", "gone", … or "" for anything else.
        keyed: the names that count as keys: a copy is none.
        partition: whether there is a partition key at all.
        primary: whether there is a primary key.
        true: whether the values still are those of the source, row by row, where the rules give up, too.
        rows: whether there still is a column that says of which row each one is made.
        commutes: whether resolving first would give the same: no filter by value came before.
        made: how many columns have been made.

    """

    columns: dict[str, str] = field(default_factory=lambda: {c: ORIGIN.get(c, "") for c in SOURCE})
    partition: bool = True
    primary: bool = True
    true: bool = True
    rows: bool = True
    commutes: bool = True
    made: int = 0

    def pick(self, number: int) -> str:
        """Choose a column."""
        return list(self.columns)[number % len(self.columns)]

    def new(self) -> str:
        """Name a new column."""
        self.made += 1
        return f"c{self.made}"

    def lose(self, *, true: bool = False) -> None:
        """Lose all keys, though their values may be *true* all the same."""
        self.partition = self.primary = False
        self.true &= true

    @property
    def every(self) -> list[str]:
        """Name all columns."""
        return [*self.columns, *([ROW] if self.rows else [])]

    def has(self, what: str) -> bool:
        """Say whether some column still has these values."""
        return what in self.columns.values()

    @property
    def there(self) -> int:
        """Count the key columns whose values some column still has."""
        return self.has("key 0") + self.has("key 1")

    @property
    def may_be_partition(self) -> bool:
        """Say whether a partition key may be claimed."""
        return self.partition and bool(self.there)

    @property
    def may_be_primary(self) -> bool:
        """Say whether a primary key may be claimed."""
        return self.may_be_partition and self.primary and self.has("gone") and self.has("at")


Step = Callable[[Oracle, "DataFrame", "SparkSession", int], "DataFrame"]
STEPS: dict[str, Step] = {}
_VIEWS = itertools.count()
# Steps that make one column look like another; what is lost at them for nothing is not counted.
TRAPS = frozenset({"cte_exchanged", "cte_grouped", "cte_looked_up", "replaced_view"})


def step(function: Step) -> Step:
    """Add a transformation: it changes what the oracle knows, and gives the DataFrame behind it."""
    STEPS[function.__name__] = function  # type: ignore[attr-defined]  # they are functions
    return function


def run(session: SparkSession, source: DataFrame, chain: Chain) -> tuple[Oracle, DataFrame]:
    """Do a chain of transformations."""
    oracle, df = Oracle(), source
    for kind, number in chain:
        df = STEPS[kind](oracle, df, session, number)
    return oracle, df


def side(session: SparkSession, oracle: Oracle) -> tuple[DataFrame, str, str]:
    """Give a table to join with, and the names of its key and its other column."""
    key, value = oracle.new(), oracle.new()
    return (
        session.createDataFrame([(1, "x"), (1, "y"), (7, "z")], f"{key} int, {value} string"),
        key,
        value,
    )


@step
def drop(o: Oracle, df: DataFrame, _: SparkSession, n: int) -> DataFrame:
    """Drop a column, unless it is the last one."""
    name = o.pick(n)
    if len(o.columns) == 1:
        return df
    del o.columns[name]
    return df.drop(name)


@step
def rename(o: Oracle, df: DataFrame, _: SparkSession, n: int) -> DataFrame:
    """Rename a column."""
    name, new = o.pick(n), o.new()
    o.columns = {new if c == name else c: what for c, what in o.columns.items()}
    return df.withColumnRenamed(name, new)


@step
def swap(o: Oracle, df: DataFrame, _: SparkSession, n: int) -> DataFrame:
    """Exchange the names of two columns."""
    one, other = o.pick(n), o.pick(n + 1)
    exchanged = {one: other, other: one}
    o.columns = {exchanged.get(c, c): what for c, what in o.columns.items()}
    return df.toDF(*[exchanged.get(c, c) for c in df.columns])


@step
def copy(o: Oracle, df: DataFrame, _: SparkSession, n: int) -> DataFrame:
    """Copy a column."""
    name, new = o.pick(n), o.new()
    o.columns[new] = o.columns[name]
    return df.select("*", df[name].alias(new))


@step
def overwrite(o: Oracle, df: DataFrame, _: SparkSession, n: int) -> DataFrame:
    """Overwrite a column with NULL where it is something."""
    name = o.pick(n)
    o.columns[name] = ""
    return df.selectExpr(*[f"nullif({c}, {c}) AS {c}" if c == name else c for c in o.every])


@step
def overwrite_by_another(o: Oracle, df: DataFrame, _: SparkSession, n: int) -> DataFrame:
    """Overwrite a column with what is in another: the name stays, and the values are the other's."""
    name, other = o.pick(n), o.pick(n + 1)
    o.columns[name] = o.columns[other]
    return df.select(*[df[other].alias(c) if c == name else df[c] for c in o.every])


@step
def add(o: Oracle, df: DataFrame, _: SparkSession, n: int) -> DataFrame:
    """Compute a column of another."""
    name, new = o.pick(n), o.new()
    o.columns[new] = ""
    return df.selectExpr("*", f"concat('a\nb', cast({name} AS string)) AS {new}")


@step
def filter_rows(o: Oracle, df: DataFrame, _: SparkSession, n: int) -> DataFrame:
    """Filter by a column; by a key it makes no difference which comes first, it or the resolution."""
    name = o.pick(n)
    o.commutes &= o.columns[name].startswith("key")
    return df.where(f"hash({name}) % 2 = 0")


def filtered(how: str) -> Step:
    """Filter by another table."""

    def join(o: Oracle, df: DataFrame, session: SparkSession, n: int) -> DataFrame:
        o.commutes = False
        other, key, _ = side(session, o)
        return df.join(other, df[o.pick(n)].cast("string") == other[key].cast("string"), how)

    return join


STEPS["semi_join"] = filtered("left_semi")
STEPS["anti_join"] = filtered("left_anti")


@step
def repartition(_: Oracle, df: DataFrame, __: SparkSession, ___: int) -> DataFrame:
    """Shuffle."""
    return df.repartition(2)


def no_primary(o: Oracle, df: DataFrame) -> DataFrame:
    """Lose the primary key."""
    o.primary = False
    return df


@step
def limit(o: Oracle, df: DataFrame, _: SparkSession, __: int) -> DataFrame:
    """Take some rows."""
    return no_primary(o, df.limit(3))


@step
def sort(o: Oracle, df: DataFrame, _: SparkSession, n: int) -> DataFrame:
    """Sort."""
    return no_primary(o, df.sort(o.pick(n)))


@step
def distinct(o: Oracle, df: DataFrame, _: SparkSession, n: int) -> DataFrame:
    """Take each row once, or each value of a column."""
    return no_primary(o, df.distinct() if n % 2 else df.dropDuplicates([o.pick(n)]))


@step
def window(o: Oracle, df: DataFrame, _: SparkSession, n: int) -> DataFrame:
    """Look at other rows."""
    name, new = o.pick(n), o.new()
    o.columns[new] = ""
    return no_primary(o, df.selectExpr("*", f"lag({name}) OVER (ORDER BY {name}) AS {new}"))


@step
def explode(o: Oracle, df: DataFrame, _: SparkSession, n: int) -> DataFrame:
    """Make two rows of each."""
    name, new = o.pick(n), o.new()
    o.columns[new] = ""
    return no_primary(o, df.selectExpr("*", f"explode(array({name}, NULL)) AS {new}"))


@step
def group(o: Oracle, df: DataFrame, _: SparkSession, n: int) -> DataFrame:
    """Aggregate by two columns: they are what is left, and any row of a group may stand for it."""
    names = dict.fromkeys((o.pick(n), o.pick(n + 1)))
    new = o.new()
    o.columns = {**{c: o.columns[c] for c in names}, new: ""}
    of = {"*": "count", **({ROW: "max"} if o.rows else {})}
    grouped = df.groupBy(*names).agg(of).withColumnsRenamed({"count(1)": new, f"max({ROW})": ROW})
    return no_primary(o, grouped)


@step
def rollup(o: Oracle, df: DataFrame, _: SparkSession, n: int) -> DataFrame:
    """Aggregate with NULLs in the place of groups."""
    name, new = o.pick(n), o.new()
    o.columns = {name: "", new: ""}
    o.lose()
    o.rows = False
    return df.rollup(name).count().withColumnRenamed("count", new)


def joined(how: str, *, keyed_left: bool) -> Step:
    """Join with a table that has no keys, the keyed frame on one side of it."""

    def join(o: Oracle, df: DataFrame, session: SparkSession, n: int) -> DataFrame:
        other, key, value = side(session, o)
        left, right = (df, other) if keyed_left else (other, df)
        ours, theirs = dict(o.columns), {key: "", value: ""}
        o.columns = {**ours, **theirs} if keyed_left else {**theirs, **ours}
        if how in {"full", "right" if keyed_left else "left"}:
            o.lose()
        return no_primary(
            o,
            left.join(
                right,
                df[list(ours)[n % len(ours)]].cast("string") == other[key].cast("string"),
                how,
            ),
        )

    return join


for how in ("inner", "left", "right", "full"):
    STEPS[f"{how}_join"] = joined(how, keyed_left=True)
    STEPS[f"{how}_join_behind"] = joined(how, keyed_left=False)


@step
def cross_join(o: Oracle, df: DataFrame, session: SparkSession, n: int) -> DataFrame:
    """Put every row of another table beside every row, before or behind it."""
    other, key, value = side(session, o)
    theirs = {key: "", value: ""}
    o.columns = {**theirs, **o.columns} if n % 2 else {**o.columns, **theirs}
    return no_primary(o, other.crossJoin(df) if n % 2 else df.crossJoin(other))


@step
def self_join(o: Oracle, df: DataFrame, _: SparkSession, n: int) -> DataFrame:
    """Join with itself, and take the other side's columns."""
    name = o.pick(n)
    o.lose()
    from pyspark.sql import functions as f

    same = f.expr(f"one.{name} = other.{name}")
    return df.alias("one").join(df.alias("other"), same, "left").select("other.*")


@step
def carrier_join(o: Oracle, df: DataFrame, session: SparkSession, n: int) -> DataFrame:
    """Join with rows that have the frame's own schema, and take one of their columns."""
    name, new = o.pick(n), o.new()
    other = session.createDataFrame([], df.schema).select(name).withColumnRenamed(name, new)
    o.columns[new] = ""
    return no_primary(o, df.join(other, df[name] == other[new], "left"))


@step
def union(o: Oracle, df: DataFrame, _: SparkSession, __: int) -> DataFrame:
    """Add its own rows."""
    o.lose(true=True)
    return df.unionByName(df)


@step
def union_with_other(o: Oracle, df: DataFrame, session: SparkSession, n: int) -> DataFrame:
    """Add a row of other values, before or behind its own."""
    from pyspark.sql import functions as f

    o.lose()
    other = session.range(1).select(
        *[f.lit(None).cast(field.dataType).alias(field.name) for field in df.schema]
    )
    return other.unionByName(df) if n % 2 else df.unionByName(other)


@step
def keyed_union(o: Oracle, df: DataFrame, _: SparkSession, n: int) -> DataFrame:
    """Add some of its own rows by the package's own union."""
    return no_primary(o, union_keyed(df, df.where(f"hash({o.pick(n)}) % 2 = 0")))


@step
def python(o: Oracle, df: DataFrame, _: SparkSession, n: int) -> DataFrame:
    """Compute a column in Python."""
    from pyspark.sql import functions as f

    name, new = o.pick(n), o.new()
    o.columns[new] = ""
    o.lose(true=True)
    return df.select("*", f.udf(lambda value: f"{value}", "string")(name).alias(new))


@step
def python_filter(o: Oracle, df: DataFrame, _: SparkSession, n: int) -> DataFrame:
    """Filter in Python."""
    from pyspark.sql import functions as f

    o.lose(true=True)
    return df.where(f.udf(lambda value: value is None, "boolean")(o.pick(n)))


@step
def map_rows(o: Oracle, df: DataFrame, _: SparkSession, __: int) -> DataFrame:
    """Send all rows through Python, with the frame's own schema."""
    o.lose(true=True)
    return df.mapInArrow(lambda batches: batches, df.schema)


def named(df: DataFrame) -> str:
    """Make a view of a name that no other has: a Spark Connect server looks views up late."""
    name = f"view{next(_VIEWS)}"
    df.createOrReplaceTempView(name)
    return name


@step
def view(_: Oracle, df: DataFrame, session: SparkSession, n: int) -> DataFrame:
    """Read a view, or a view of a view."""
    name = named(df)
    if n % 2:
        return session.table(name)
    session.sql(f"CREATE OR REPLACE TEMP VIEW deep{name} AS SELECT * FROM {name}")
    return session.table(f"deep{name}")


@step
def cte(o: Oracle, df: DataFrame, session: SparkSession, n: int) -> DataFrame:
    """Select by SQL what a named query gives, without one column."""
    dropped = o.pick(n)
    if len(o.columns) > 1:
        del o.columns[dropped]
    return session.sql(f"WITH q AS (SELECT * FROM {named(df)}) SELECT {', '.join(o.every)} FROM q")


def queried(o: Oracle, df: DataFrame, session: SparkSession, n: int, *, grouped: bool) -> DataFrame:
    """Select by SQL what a named query gives under exchanged names, used once or twice; grouped by all of it, or not."""
    name, other = o.pick(n), o.pick(n + 1)
    exchanged = {name: other, other: name}
    listed = ", ".join(f"{c} AS {exchanged.get(c, c)}" for c in o.every)
    o.columns = {c: o.columns[exchanged.get(c, c)] for c in o.columns}
    group = f" GROUP BY {', '.join(o.every)}" if grouped else ""
    again = " WHERE (SELECT count(*) FROM q) > 0" if n % 2 else ""
    query = f"WITH q AS (SELECT {listed} FROM {named(df)}{group})"
    return session.sql(f"{query} SELECT {', '.join(o.every)} FROM q{again}")


@step
def cte_exchanged(o: Oracle, df: DataFrame, session: SparkSession, n: int) -> DataFrame:
    """Let two columns have each other's name in a named query."""
    return queried(o, df, session, n, grouped=False)


@step
def cte_grouped(o: Oracle, df: DataFrame, session: SparkSession, n: int) -> DataFrame:
    """The same in one that aggregates."""
    return no_primary(o, queried(o, df, session, n, grouped=True))


@step
def cte_looked_up(o: Oracle, df: DataFrame, session: SparkSession, n: int) -> DataFrame:
    """Overwrite a column in a named query with what it looks up."""
    name = o.pick(n)
    o.columns[name] = ""
    kind = df.schema[name].dataType.simpleString()
    looked = f"map(0, CAST(NULL AS {kind}))[{name if kind == 'int' else f'hash({name})'}]"
    listed = ", ".join(f"{looked} AS {c}" if c == name else c for c in o.every)
    query = f"WITH q AS (SELECT {listed} FROM {named(df)})"
    return session.sql(f"{query} SELECT {', '.join(o.every)} FROM q")


@step
def replaced_view(o: Oracle, df: DataFrame, session: SparkSession, n: int) -> DataFrame:
    """Read a view of a view that has been replaced since by one that has two columns exchanged."""
    name, inner = o.pick(n), named(df)
    alike = [c for c in o.columns if df.schema[c].dataType == df.schema[name].dataType]
    other = alike[(alike.index(name) + 1) % len(alike)]
    exchanged = {name: other, other: name}
    outer = f"outer{inner}"
    session.sql(f"CREATE OR REPLACE TEMP VIEW {outer} AS SELECT * FROM {inner}")
    listed = [df[c].alias(exchanged.get(c, c)) for c in o.every]
    df.select(*listed).select(*o.every).createOrReplaceTempView(inner)
    mine, theirs = o.columns[name], o.columns[other]
    if (
        mine != theirs
    ):  # the view gives each the other's tag, so both are lost until it is done again
        o.columns |= {name: away(theirs), other: away(mine)}
    return session.table(outer)


def away(origin: str) -> str:
    """Say what a column is that has another one's tag, or has its own again."""
    return (
        origin.removeprefix("away ") if origin.startswith("away ") else origin and f"away {origin}"
    )
