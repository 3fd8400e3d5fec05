"""The rule table, a test for each row, on classic Spark and on a Spark Connect server.

The numbers are those of the table in `docs/keys.md`.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import mirrorlib
from keyed import (
    KEY,
    NONE,
    PARTITION,
    WHOLE,
    Case,
    Cases,
    Step,
    keyed,
    plain,
    renamed,
    static,
    tried,
    without,
)
from mirrorlib.keys.declare import key_by, propagate, union_keyed
from mirrorlib.keys.read import keys_of
from mirrorlib.keys.value import Keys
from mirrorlib.keys.view import current_view

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from zones import ZoneWriter

pytestmark = pytest.mark.smoke

CASES = Cases()


def rule(number: str, name: str, expected: Keys) -> Callable[[Step], Step]:
    """Add a case of a rule."""
    return CASES.leave(f"{number} {name}", expected)


def case(number: str, name: str, expected: Keys, step: Step) -> None:
    """Add a case of a rule in one line."""
    CASES.add(f"{number} {name}", expected, step)


case("1", "select of everything", WHOLE, lambda c: c.df.select("*"))
case("1", "select of the keys", PARTITION, lambda c: c.df.select("k1", "k2"))
case("1", "select in another order", WHOLE, lambda c: c.df.select("v", "ts", "d", "k2", "k1"))
case("1", "selectExpr", WHOLE, lambda c: c.df.selectExpr("k1", "k2", "d", "ts", "v + 1 as v"))
case("1", "new column", WHOLE, lambda c: c.df.withColumn("n", c.df.v + 1))
case("2", "drop of a key", without("k2"), lambda c: c.df.drop("k2"))
case("2", "select without a key", without("k1"), lambda c: c.df.select("k2", "d", "ts"))
case("2", "drop of all keys", NONE, lambda c: c.df.drop("k1", "k2"))
case("3", "rename of a key", renamed(k1="id"), lambda c: c.df.withColumnRenamed("k1", "id"))
case("3", "rename by case", renamed(k1="K1"), lambda c: c.df.withColumnRenamed("k1", "K1"))
case(
    "3",
    "rename by alias",
    renamed(k2="z"),
    lambda c: c.df.select("k1", c.df.k2.alias("z"), "d", "ts"),
)
case(
    "3",
    "swap of names",
    Keys(partition=("k2", "k1"), primary=("k2", "k1"), deleted="d", order_by=("ts",)),
    lambda c: c.df.selectExpr("k1 as k2", "k2 as k1", "d", "ts"),
)
case(
    "3",
    "toDF",
    Keys(partition=("a", "b"), primary=("a", "b"), deleted="c", order_by=("e",)),
    lambda c: c.df.toDF("a", "b", "c", "e", "f", "g"),
)
case(
    "4",
    "rename of the deletion column",
    renamed(d="gone"),
    lambda c: c.df.withColumnRenamed("d", "gone"),
)
case(
    "4",
    "rename of the order column",
    renamed(ts="at"),
    lambda c: c.df.withColumnRenamed("ts", "at"),
)
case("5", "copy by select", WHOLE, lambda c: c.df.select("*", c.df.k1.alias("kc")))
case("5", "copy by withColumn", WHOLE, lambda c: c.df.withColumn("kc", c.df.k1))
case(
    "5b",
    "copy, then the original dropped",
    renamed(k1="kc"),
    lambda c: c.df.select("*", c.df.k1.alias("kc")).drop("k1"),
)


OVERWRITES: list[tuple[str, Step]] = [
    ("by an expression", lambda c: c.df.withColumn("k1", c.df.k1 + 1)),
    ("by a literal", lambda c: c.df.withColumn("k1", c.f.lit(1))),
    ("by another column", lambda c: c.df.withColumn("k1", c.df.v.cast("int"))),
    ("by another column as it is", lambda c: c.df.withColumn("k1", c.df.v)),
    ("by a cast", lambda c: c.df.withColumn("k1", c.df.k1.cast("long"))),
    ("by a cast to the same type", lambda c: c.df.withColumn("k1", c.df.k1.cast("int"))),
    ("by coalesce", lambda c: c.df.withColumn("k1", c.f.coalesce("k1", c.f.lit(0)))),
    ("by when", lambda c: c.df.withColumn("k1", c.f.when(c.df.v > 1, c.df.k1))),
    ("by fillna", lambda c: c.df.fillna(0, ["k1"])),
    ("by replace", lambda c: c.df.replace(1, 2, ["k1"])),
]
for told, way in OVERWRITES:
    case("6", f"overwrite {told}", without("k1"), way)
case(
    "6b",
    "overwrite by itself in a select",
    WHOLE,
    lambda c: c.df.select(c.df.k1.alias("k1"), "k2", "d", "ts"),
)
case("6", "fillna elsewhere", WHOLE, lambda c: c.df.fillna(0, ["v"]))
case("7", "deletion column dropped", PARTITION, lambda c: c.df.drop("d"))
case("7", "deletion column overwritten", PARTITION, lambda c: c.df.withColumn("d", ~c.df.d))
case("7", "order column dropped", PARTITION, lambda c: c.df.drop("ts"))
case("7", "order column overwritten", PARTITION, lambda c: c.df.withColumn("ts", c.df.ts + 1))
case("8", "filter", WHOLE, lambda c: c.df.where("v > 1"))
case("8", "dropna", WHOLE, lambda c: c.df.dropna())
case("8", "semi join", WHOLE, lambda c: c.df.join(static(c.session), "k1", "left_semi"))
case("8", "anti join", WHOLE, lambda c: c.df.join(static(c.session), "k1", "left_anti"))
case(
    "8",
    "semi join with a keyed frame",
    WHOLE,
    lambda c: c.df.join(keyed(c.session), "k1", "left_semi"),
)
case("9", "limit", PARTITION, lambda c: c.df.limit(3))
case("9", "offset", PARTITION, lambda c: c.df.offset(1))
case("9", "sample", PARTITION, lambda c: c.df.sample(fraction=0.5, seed=1))
case("9", "randomSplit", PARTITION, lambda c: c.df.randomSplit([0.5, 0.5], seed=1)[0])


@rule("9", "tablesample", PARTITION)
def tablesample(c: Case) -> DataFrame:
    """Sample by SQL."""
    c.view()
    return c.session.sql("SELECT * FROM kv TABLESAMPLE (50 PERCENT)")


case("10", "sort", PARTITION, lambda c: c.df.sort("v"))
case("10", "sortWithinPartitions", PARTITION, lambda c: c.df.sortWithinPartitions("v"))
case("11", "repartition", WHOLE, lambda c: c.df.repartition(2))
case("11", "repartition by a column", WHOLE, lambda c: c.df.repartition(2, "k1"))
case("11", "coalesce", WHOLE, lambda c: c.df.coalesce(1))
case("11", "hint", WHOLE, lambda c: c.df.hint("broadcast"))
case("12", "union_keyed", PARTITION, lambda c: union_keyed(c.df, keyed(c.session)))
case("12", "plain union", NONE, lambda c: c.df.unionByName(keyed(c.session)))
case("13", "union with no key", NONE, lambda c: c.df.union(plain(c.session)))
case("13", "union behind no key", NONE, lambda c: plain(c.session).union(c.df))
case("13", "union with another key", NONE, lambda c: c.df.union(key_by(plain(c.session), "v")))
case(
    "13",
    "union_keyed with another key",
    NONE,
    lambda c: union_keyed(c.df, key_by(plain(c.session), "v")),
)
case("14", "intersect", PARTITION, lambda c: c.df.intersect(plain(c.session)))
case("14", "except", PARTITION, lambda c: c.df.subtract(plain(c.session)))
case("14", "exceptAll", PARTITION, lambda c: c.df.exceptAll(keyed(c.session)))
case("15", "inner join", PARTITION, lambda c: c.df.join(static(c.session), ["k1", "k2"]))
case("15", "left join", PARTITION, lambda c: c.df.join(static(c.session), ["k1", "k2"], "left"))
case("15", "cross join", PARTITION, lambda c: c.df.crossJoin(static(c.session).select("s")))
case(
    "15",
    "right join, keys on the right",
    PARTITION,
    lambda c: static(c.session).join(c.df, ["k1", "k2"], "right"),
)
case(
    "15",
    "inner join, keys on the right",
    PARTITION,
    lambda c: static(c.session).select("s").join(c.df, c.df.k1 > 0),
)
case("16", "full join", NONE, lambda c: c.df.join(static(c.session), "k1", "full"))
case(
    "16",
    "right join, keys on the left",
    NONE,
    lambda c: c.df.join(static(c.session), "k1", "right"),
)
case(
    "16", "left join, keys on the right", NONE, lambda c: static(c.session).join(c.df, "k1", "left")
)
case(
    "17",
    "both sides keyed",
    NONE,
    lambda c: c.df.join(key_by(static(c.session), "k1"), ["k1", "k2"]),
)
case(
    "17",
    "self join",
    NONE,
    lambda c: c.df.alias("a").join(c.df.alias("b"), "k1").select("k1", "a.k2"),
)


GENERATORS: list[tuple[str, Step]] = [
    ("explode", lambda c: c.df.select("*", c.f.explode(c.f.array("v", "ts")).alias("e"))),
    ("posexplode", lambda c: c.df.select("*", c.f.posexplode(c.f.array("v", "ts")))),
    ("stack", lambda c: c.df.selectExpr("*", "stack(2, v, ts)")),
]
for told, way in GENERATORS:
    case("18", told, PARTITION, way)


@rule("18", "lateral view", PARTITION)  # it is no pandas frame
def lateral_view(c: Case) -> DataFrame:
    """Explode by SQL."""
    c.view()
    return c.session.sql("SELECT kv.*, e FROM kv LATERAL VIEW explode(array(v, ts)) AS e")


case("18", "unpivot", NONE, lambda c: c.df.unpivot(["k1", "k2"], ["v", "ts"], "name", "value"))
case("19", "aggregate by the key", PARTITION, lambda c: c.df.groupBy("k1", "k2").max("v"))
case(
    "19",
    "aggregate by a part of it",
    Keys(partition=("k1",), lost=("k2",)),
    lambda c: c.df.groupBy("k1", "w").max("v"),
)
case("19", "aggregate by something else", NONE, lambda c: c.df.groupBy("w").max("v"))
case(
    "19",
    "pivot",
    Keys(partition=("k1",), lost=("k2",)),
    lambda c: c.df.groupBy("k1").pivot("k2", ["a"]).max("v"),  # noqa: PD010  # it is no pandas frame
)
case("19b", "rollup", NONE, lambda c: c.df.rollup("k1", "k2").max("v"))
case("19b", "cube", NONE, lambda c: c.df.cube("k1", "k2").max("v"))


@rule("19b", "grouping sets", NONE)
def grouping_sets(c: Case) -> DataFrame:
    """Aggregate by SQL."""
    c.view()
    return c.session.sql("SELECT k1, k2, max(v) FROM kv GROUP BY GROUPING SETS ((k1), (k1, k2))")


@rule("19b", "first of a key", NONE)
def first_of_key(c: Case) -> DataFrame:
    """Aggregate the keys themselves."""
    return c.df.groupBy("w").agg(c.f.first("k1").alias("k1"), c.f.max("k2").alias("k2"))


@rule("20", "window function", PARTITION)
def windowed(c: Case) -> DataFrame:
    """Number the rows."""
    from pyspark.sql import Window

    return c.df.withColumn("n", c.f.row_number().over(Window.partitionBy("k1").orderBy("ts")))


case("21", "distinct", PARTITION, lambda c: c.df.distinct())
case("21", "dropDuplicates", PARTITION, lambda c: c.df.dropDuplicates(["k1", "k2"]))


@rule("22", "Python function", NONE)
def python_function(c: Case) -> DataFrame:
    """Compute another column."""
    return c.df.withColumn("n", c.f.udf(lambda v: v, "long")("v"))


@rule("22", "Python function in a filter", NONE)
def python_filter(c: Case) -> DataFrame:
    """Compute nothing that stays."""
    return c.df.where(c.f.udf(lambda v: v, "boolean")("d"))


@rule("22", "Python function whose column is dropped", NONE)
def dropped_function(c: Case) -> DataFrame:
    """Compute a column and drop it."""
    return python_function(c).drop("n")


@rule("22", "pandas function", NONE)
def pandas_function(c: Case) -> DataFrame:
    """Compute another column in bulk."""
    import pandas as pd  # Spark reads the hints of the function

    def same(values: Any) -> Any:
        return values

    same.__annotations__ = {"values": pd.Series, "return": pd.Series}
    return c.df.withColumn("n", c.f.pandas_udf(same, "long")("v"))


case("23", "mapInPandas", NONE, lambda c: c.df.mapInPandas(lambda frames: frames, c.df.schema))
case("23", "mapInArrow", NONE, lambda c: c.df.mapInArrow(lambda batches: batches, c.df.schema))
case(
    "23",
    "applyInPandas",
    NONE,
    lambda c: c.df.groupBy("k1").applyInPandas(lambda frame: frame, c.df.schema),
)
case(
    "23",
    "cogroup",
    NONE,
    lambda c: (
        c.df.groupBy("k1")
        .cogroup(static(c.session).groupBy("k1"))
        .applyInPandas(lambda one, _: one, c.df.schema)
    ),
)
case(
    "23",
    "createDataFrame of the rows",
    NONE,
    lambda c: c.session.createDataFrame(c.df.collect(), c.df.schema),
)


@rule("23", "RDD", NONE)
def rdd(c: Case) -> DataFrame:
    """Make a frame of the rows and the schema."""
    if is_connect(c.session):
        pytest.skip("Spark Connect has no RDDs")
    return c.session.createDataFrame(c.df.rdd, c.df.schema)


@rule("23", "pandas API", NONE)
def pandas_api(c: Case) -> DataFrame:
    """Go there and back."""
    if c.session.version < "4":
        pytest.skip("the pandas API of Spark 3.5 does not know NumPy 2")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it advises to name an index
        return c.df.pandas_api().to_spark()


@rule("24", "view", WHOLE)
def view(c: Case) -> DataFrame:
    """Read a view."""
    c.view()
    return c.session.table("kv")


@rule("24", "SQL over a view", renamed(k2="z"))
def sql(c: Case) -> DataFrame:
    """Select by SQL."""
    c.view()
    return c.session.sql("SELECT k1, k2 AS z, d, ts FROM kv WHERE v > 1")


@rule("24", "CTE", without("k2"))
def cte(c: Case) -> DataFrame:
    """Name a query."""
    c.view()
    return c.session.sql("WITH c AS (SELECT k1, d, ts FROM kv) SELECT * FROM c")


@rule("24", "view that hides an aggregate", PARTITION)
def hidden(c: Case) -> DataFrame:
    """Read a view that is a query."""
    c.view()
    c.session.sql(
        "CREATE OR REPLACE TEMP VIEW hidden AS SELECT k1, k2, max(v) AS v FROM kv GROUP BY k1, k2"
    )
    return c.session.table("hidden")


case("25", "persist", WHOLE, lambda c: c.df.persist())
case("26", "checkpoint", NONE, lambda c: c.df.localCheckpoint())
case(
    "26", "propagate behind a checkpoint", WHOLE, lambda c: propagate(c.df, c.df.localCheckpoint())
)
case("27", "key_by", Keys(partition=("v",)), lambda c: key_by(c.df, "v"))
case("27", "key_by of a part", Keys(partition=("k1",)), lambda c: key_by(c.df, ["k1"]))
case(
    "28",
    "key_by with CDC",
    Keys(partition=("k2",), primary=("k2",)),
    lambda c: key_by(c.df, ["k2"], cdc=True),
)
case(
    "28",
    "key_by behind a loss",
    WHOLE,
    lambda c: key_by(python_function(c), KEY, cdc=True, deleted="d", order_by=["ts"]),
)


@pytest.fixture
def folder(tmp_path: Path) -> str:
    """Name a folder that does not exist yet."""
    return str(tmp_path / "written")


def test_a_table_that_is_written_and_read_has_no_keys_yet(
    session: SparkSession, folder: str
) -> None:
    """29: tags that files have kept count for nothing."""
    keyed(session).write.parquet(folder)
    found = session.read.parquet(folder)

    assert is_tagged(found)
    assert NONE == keys_of(found)


def is_tagged(df: DataFrame) -> bool:
    """Say whether some columns have a tag."""
    return any("mirrorlib.key" in field.metadata for field in df.schema.fields)


@pytest.mark.thorough("connect")
def test_tags_stay_out_of_a_table_that_spark_writes_by_untag(
    session: SparkSession, folder: str
) -> None:
    """29: it would take them along; whoever reads them believes none."""
    df = keyed(session)
    df.write.format("delta").save(f"{folder}/tagged")
    mirrorlib.untag(df).write.format("delta").save(f"{folder}/untagged")
    tagged, untagged = (
        session.read.format("delta").load(f"{folder}/{name}") for name in ("tagged", "untagged")
    )

    assert (True, False) == (is_tagged(tagged), is_tagged(untagged))
    assert [NONE, NONE] == [keys_of(tagged), keys_of(untagged)]


@pytest.mark.thorough
def test_tags_stay_out_of_a_table_that_a_stream_writes_by_untag(
    spark: SparkSession, folder: str
) -> None:
    """29: a stream takes them along as well."""
    plain(spark).write.parquet(f"{folder}/source")
    stream = spark.readStream.schema(plain(spark).schema).parquet(f"{folder}/source")
    df = key_by(stream, KEY, cdc=True, deleted="d", order_by="ts")
    found = []
    for name, rows in (("tagged", df), ("untagged", mirrorlib.untag(df))):
        query = (
            rows.writeStream.format("delta")
            .option("checkpointLocation", f"{folder}/{name}-checkpoint")
            .trigger(availableNow=True)
            .start(f"{folder}/{name}")
        )
        query.awaitTermination()
        table = spark.read.format("delta").load(f"{folder}/{name}")
        found.append((is_tagged(table), keys_of(table), table.count()))

    assert [(True, NONE, 5), (False, NONE, 5)] == found


def test_a_table_that_mirrorlib_writes_is_read_with_its_keys(
    session: SparkSession, spark: SparkSession, zone: ZoneWriter, target: str
) -> None:
    """29: as its property says, on both kinds of Spark, and through what is done to it then."""
    zone.table("orders", keys=["id"]).file([{"id": 1, "v": "a"}], markers=[0])
    mirrorlib.apply(spark, str(zone), target, insert_policy="upsert")
    found = mirrorlib.read_table(session, f"{target}/orders").withColumnRenamed("id", "order")

    assert Keys(partition=("order",), primary=("order",)) == keys_of(found)
    assert keys_of(found).unique
    assert Keys(partition=("order",)) == keys_of(found.limit(1))


def test_an_overwrite_by_itself_is_kept_but_by_a_client(session: SparkSession) -> None:
    """6b: from Spark 4.1 on `withColumn` of a client takes off what a column says of itself."""
    c = tried(session)
    forgets = is_connect(session) and session.version >= "4.1"

    assert (without("k1") if forgets else WHOLE) == keys_of(c.df.withColumn("k1", c.df.k1))


def is_connect(session: SparkSession) -> bool:
    """Say whether a session is a client's."""
    return "connect" in type(session).__module__


case("30", "current view", WHOLE, lambda c: current_view(c.df))


@pytest.mark.thorough("connect-6 overwrite*", "connect-9 *", "connect-16 *", "connect-13 *")
@pytest.mark.parametrize("step, expected", CASES.values, ids=CASES.ids)
def test_keys_follow_the_rule(session: SparkSession, step: Step, expected: Keys) -> None:
    """Exactly the keys that the table says are claimed."""
    assert expected == keys_of(step(tried(session)))
