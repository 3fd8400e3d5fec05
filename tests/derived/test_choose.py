"""What is chosen for a transformation: row by row, by which keys, or all of it and why; nothing runs for it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from computes import COMPUTE
from mirrorlib.delta.sessions import configured
from mirrorlib.derived.frames import Framed
from mirrorlib.derived.strategy.choose import How, PlanShape, choose, shape_of
from mirrorlib.keys.declare import key_by
from mirrorlib.keys.tags import MARKER, read_tags, tag_columns
from mirrorlib.keys.value import Keys

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from mirrorlib.derived.sources import SourceTable


@dataclass(frozen=True, slots=True)
class Given:
    """Two sources, and Spark's functions."""

    d: DataFrame
    o: DataFrame
    f: Any


Transform = Callable[[Given], "DataFrame"]
ROWS, KEYS, FULL = "row-wise", "affected keys", "full"
BY_CI = (("c", "C"), ("i", "I"))
BY_C, BY_I, BY_BOTH = (("c", "c"),), (("i", "i"),), (("c", "c"), ("i", "i"))


def framed(spark: SparkSession, columns: str, *keys: str) -> Framed:
    """Give a source with a key, each value of which occurs once."""
    return framed_rows(spark.createDataFrame([], columns), *keys)


def framed_rows(rows: DataFrame, *keys: str) -> Framed:
    """Give rows as a source with a key, each value of which occurs once."""
    frame = tag_columns(rows, Keys(partition=keys, primary=keys, unique=True), "read_table")
    found = read_tags(frame.schema)[0].id
    place = SimpleNamespace(shown=rows.columns[0])
    return Framed(
        source=cast("SourceTable", SimpleNamespace(place=place, name="")),
        frame=frame,
        marker=f"{MARKER}{found}",
        key_columns=keys,
        one_row=True,
    )


def shaped(spark: SparkSession, transform: Transform) -> tuple[PlanShape, list[Framed]]:
    """Look at what is made of a table of (c, i) and one of (n)."""
    from pyspark.sql import functions as f

    sources = [
        framed(spark, "c int, i int, v int, a array<int>", "c", "i"),
        framed(spark, "n int, w int", "n"),
    ]
    result = transform(Given(sources[0].frame, sources[1].frame, f))
    return shape_of(result, sources), sources


@dataclass(frozen=True, slots=True)
class Chosen:
    """What is chosen where a source has changed."""

    how: How
    why: str = ""
    columns: tuple[tuple[str, str], ...] = ()


def chosen(spark: SparkSession, transform: Transform, changed: int = 0) -> Chosen:
    """Choose for a table of (c, i) and one of (n)."""
    return chosen_of(*shaped(spark, transform), changed)


def chosen_of(shape: PlanShape, sources: list[Framed], changed: int) -> Chosen:
    """Choose, and name the keys that it goes by."""
    how, why = choose(shape, sources, [changed])
    columns = () if how == "full" else tuple(shape.reaches[changed].columns.items())
    return Chosen(how, why, columns)


def over(f: Any, *columns: str) -> Any:
    """Give a window of rows that are equal in some columns."""
    from pyspark.sql import Window

    return f.sum("v").over(Window.partitionBy(*columns).orderBy("v"))


MOVES: dict[str, tuple[Transform, str]] = {
    "days": (
        lambda t: t.d.where("date_add(DATE '2020-01-01', v) >= current_date()"),
        "current_date gives another value each time",
    ),
    "where names are looked for": (
        lambda t: t.d.selectExpr("c", "current_path() AS path"),
        "current_path gives another value each time",
    ),
    "whatever a function does": (
        lambda t: t.d.where(t.f.udf(lambda v: v, "boolean")("v") & (t.f.now() > "2020-01-01")),
        " gives another value each time",
    ),
    "a text that means a day": (
        lambda t: t.d.where("date_add(DATE '2020-01-01', v) >= 'today'"),
        "the text today as a date or timestamp gives another value each time",
    ),
    "such a text, converted": (
        lambda t: t.d.where(
            t.f.to_date(t.f.lit(" Yesterday UTC")) > t.f.to_timestamp(t.f.lit("1970"))
        ),
        "the text Yesterday as",
    ),
    "such a text, cast": (
        lambda t: t.d.withColumn("v", t.f.lit("now").cast("timestamp")),
        "the text now as",
    ),
    "such a text between others": (
        lambda t: t.d.where(
            "date_add(DATE '2020-01-01', v) BETWEEN DATE '2020-01-01' AND 'tomorrow'"
        ),
        "the text tomorrow as",
    ),
    "such a text among a function's arguments": (
        lambda t: t.d.selectExpr("c", "concat('today', v) AS today"),
        "the text today as",
    ),
    "such words elsewhere": (
        lambda t: (
            t.d.selectExpr("c", "CAST(v AS string) AS today", "CAST('epoch' AS date) AS now")
            .where("today IN ('now', 'today') AND CAST(now AS timestamp) > CAST(today AS date)")
            .groupBy("c")
            .agg(t.f.max("now"))
            .where("`max(now)` > DATE '2020-01-01'")
        ),
        "",
    ),
    "another table": (lambda t: t.d.join(_elsewhere(t.d), "v"), "reads something that is no"),
    "rows written down": (
        lambda t: t.d.join(t.d.sparkSession.sql("SELECT * FROM VALUES (1) AS t(v)"), "v"),
        "",
    ),
    "numbers that are drawn": (lambda t: t.d.where(t.f.rand() > 2), ""),
    "a function of a user's": (lambda t: t.d.where(t.f.udf(lambda v: v, "boolean")("v")), ""),
    "keys": (lambda t: t.d.groupBy("c").agg(t.f.sum("v")), ""),
}


_LISTED = "SELECT 1 FROM range(9) WHERE CAST(id AS string) IN"
ALIKE: dict[str, tuple[Transform, Transform]] = {
    "one text or two": (
        lambda t: t.d.where(t.f.col("v").cast("string").isin("done,void")),
        lambda t: t.d.where(t.f.col("v").cast("string").isin("done", "void")),
    ),
    "a comma in a text": (
        lambda t: t.d.select(t.f.concat(t.f.lit("x, y"), "c", t.f.lit("z")).alias("s")),
        lambda t: t.d.select(t.f.concat(t.f.lit("x"), t.f.lit("y"), "c", t.f.lit("z")).alias("s")),
    ),
    "types": (
        lambda t: t.d.select(t.f.array(t.f.lit(1)).alias("s")),
        lambda t: t.d.select(t.f.array(t.f.lit("1")).alias("s")),
    ),
    "past NULLs": (
        lambda t: t.d.selectExpr("c", "lag(v) OVER (ORDER BY i)"),
        lambda t: t.d.selectExpr("c", "lag(v) IGNORE NULLS OVER (ORDER BY i)"),
    ),
    "inside a query": (
        lambda t: _view(t.d).sql(f"SELECT c FROM seen WHERE EXISTS ({_LISTED} ('1,2'))"),
        lambda t: _view(t.d).sql(f"SELECT c FROM seen WHERE EXISTS ({_LISTED} ('1', '2'))"),
    ),
}
BY_KEY: dict[str, tuple[Transform, str, tuple[tuple[str, str], ...]]] = {
    "rename": (
        lambda t: t.d.where("v > 1").selectExpr("c AS x", "i", "v + 1"),
        ROWS,
        (("c", "x"), ("i", "i")),
    ),
    "explode": (lambda t: t.d.select("c", "i", t.f.explode("a")), ROWS, BY_BOTH),
    "repartition": (lambda t: t.d.repartition(2).sort("v"), ROWS, BY_BOTH),
    "part of the key": (lambda t: t.d.drop("i"), KEYS, BY_C),
    "written otherwise": (lambda t: t.d.select("C", "I").where("c > 1"), ROWS, BY_CI),
    "overwritten": (lambda t: t.d.withColumn("i", t.f.lit(1)), KEYS, BY_C),
    "swapped": (lambda t: t.d.selectExpr("c AS i", "i AS c"), ROWS, (("c", "i"), ("i", "c"))),
    "group": (lambda t: t.d.groupBy("c").agg(t.f.sum("v")), KEYS, BY_C),
    "group by more": (lambda t: t.d.groupBy("c", "v").count(), KEYS, BY_C),
    "distinct": (lambda t: t.d.select("c", "v").distinct(), KEYS, BY_C),
    "drop duplicates": (lambda t: t.d.dropDuplicates(["c", "v"]), KEYS, BY_C),
    "window": (lambda t: t.d.withColumn("s", over(t.f, "i")), KEYS, BY_I),
    "window of both": (lambda t: t.d.withColumn("s", over(t.f, "i", "c")), KEYS, BY_BOTH),
    "window of a copy": (
        lambda t: t.d.selectExpr("*", "c AS k").withColumn("s", over(t.f, "k")),
        KEYS,
        BY_C,
    ),
    "pivot": (lambda t: t.d.groupBy("c").pivot("i", [1, 2]).sum("v"), KEYS, BY_C),
    "left join": (lambda t: t.d.join(t.o, t.d.v == t.o.n, "left"), KEYS, BY_BOTH),
    "inner join": (lambda t: t.d.join(t.o, (t.d.v == t.o.n) & (t.o.w > t.d.i)), KEYS, BY_BOTH),
    "cross join": (lambda t: t.d.crossJoin(t.o), KEYS, BY_BOTH),
    "left join of different rows": (
        lambda t: t.d.join(t.o.distinct(), t.d.v == t.o.n, "left"),
        KEYS,
        BY_BOTH,
    ),
    "semi join": (lambda t: t.d.join(t.o, t.d.v < t.o.n, "left_semi"), KEYS, BY_BOTH),
    "sql": (
        lambda t: _view(t.d).sql(
            "WITH x AS (SELECT * FROM seen) SELECT i, count(*) FROM x GROUP BY i"
        ),
        KEYS,
        BY_I,
    ),
    "cte that gives a key another name": (
        lambda t: _view(t.d).sql(
            "WITH x AS (SELECT c AS k, v AS c FROM seen GROUP BY c, v) SELECT c AS v, k FROM x"
        ),
        KEYS,
        (("c", "k"),),
    ),
    "key by": (lambda t: key_by(t.d, "c"), ROWS, BY_BOTH),
    "union": (lambda t: t.d.select("c").union(t.o.select("n")), KEYS, BY_C),
    "union the other way": (
        lambda t: t.o.selectExpr("n", "w AS m").unionByName(
            t.d.selectExpr("v AS m", "c AS k").withColumnRenamed("k", "n")
        ),
        KEYS,
        (("c", "n"),),
    ),
    "union, then key by": (
        lambda t: key_by(t.o.union(t.d.selectExpr("i", "c")), "n").groupBy("n").count(),
        KEYS,
        (("i", "n"),),
    ),
    "lookup": (
        lambda t: t.d.join(t.d.sparkSession.range(3).withColumnRenamed("id", "v"), "v"),
        KEYS,
        BY_BOTH,
    ),
}
BY_THE_OTHER: dict[str, tuple[Transform, tuple[tuple[str, str], ...]]] = {
    "left join": (lambda t: t.d.join(t.o, t.d.v == t.o.n, "left"), (("n", "v"),)),
    "left join on a name": (
        lambda t: t.d.join(t.o.withColumnRenamed("n", "v"), "v", "left"),
        (("n", "v"),),
    ),
    "left join of rows that name themselves": (
        lambda t: t.d.withColumnRenamed("v", "z").join(
            t.o.selectExpr("n", "w AS y"), t.f.expr("z = n AND y = n"), "left"
        ),
        (("n", "z"),),
    ),
    "inner join": (lambda t: t.d.join(t.o, t.d.v == t.o.n), (("n", "v"),)),
    "inner join on a name": (
        lambda t: t.d.join(t.o.withColumnRenamed("n", "v"), "v"),
        (("n", "v"),),
    ),
    "renamed behind it": (
        lambda t: t.d.join(t.o.withColumnRenamed("n", "v"), "v").withColumnRenamed("v", "x"),
        (("n", "x"),),
    ),
    "anti join": (
        lambda t: t.d.join(t.o, (t.d.v == t.o.n) & (t.o.w > 1), "left_anti"),
        (("n", "v"),),
    ),
    "union": (lambda t: t.d.select("c").union(t.o.select("n")), (("n", "c"),)),
    "grouped": (
        lambda t: t.d.join(t.o, t.d.v == t.o.n, "left").groupBy("v").agg(t.f.max("w")),
        (("n", "v"),),
    ),
}
IN_FULL: dict[str, tuple[Transform, str]] = {
    "no key left": (lambda t: t.d.select("v"), "the key columns do not come out"),
    "group by another": (lambda t: t.d.groupBy("v").count(), "do not come out"),
    "window of all": (
        lambda t: t.d.withColumn("s", over(t.f)),
        "brings rows of several keys together",
    ),
    "window of another": (
        lambda t: t.d.withColumn("s", over(t.f, "v")),
        "window functions brings",
    ),
    "drop duplicates of another": (
        lambda t: t.d.dropDuplicates(["v"]),
        "dropDuplicates brings",
    ),
    "limit": (lambda t: t.d.limit(3), "limit"),
    "sample": (lambda t: t.d.sample(0.5, 1), "sample"),
    "union": (lambda t: t.d.union(t.d), "read more than once"),
    "self join": (
        lambda t: t.d.join(t.d.groupBy().agg(t.f.max("v").alias("m"))),
        "read more than once",
    ),
    "subquery": (
        lambda t: _view(t.d).sql("SELECT * FROM seen WHERE v = (SELECT max(v) FROM seen)"),
        "read more than once",
    ),
    "window of a copy behind a union": (
        lambda t: (
            t.d.selectExpr("c", "c AS k", "v")
            .union(t.o.selectExpr("n", "w", "n"))
            .withColumn("s", over(t.f, "k"))
        ),
        "window functions brings",
    ),
    "value under a key's name": (
        lambda t: _view(t.d).sql(
            "WITH x AS (SELECT coalesce(v, c, 0) AS c FROM seen) SELECT c, count(*) FROM x GROUP BY c"
        ),
        "do not come out",
    ),
    "value that is looked up under a key's name": (
        lambda t: _view(t.d).sql("WITH x AS (SELECT a[c] AS c FROM seen) SELECT c FROM x"),
        "do not come out",
    ),
    "value that is grouped under a key's name": (
        lambda t: _view(t.d).sql(
            "WITH x AS (SELECT c AS k, v AS c FROM seen GROUP BY c, v) SELECT c FROM x"
        ),
        "do not come out",
    ),
    "cast in a view": (
        lambda t: _view(t.d.selectExpr("CAST(c AS tinyint) AS c")).sql(
            "SELECT c, count(*) FROM seen GROUP BY c"
        ),
        "do not come out",
    ),
    "rollup": (lambda t: t.d.rollup("c").count(), "not known"),
    "limit of another source": (
        lambda t: t.d.join(t.o.limit(3), t.d.v == t.o.n, "left"),
        "c: limit may pick other rows",
    ),
    "offset of another source": (
        lambda t: t.d.join(t.o.offset(1), t.d.v == t.o.n, "left"),
        "offset may pick other rows",
    ),
    "sample of another source": (
        lambda t: t.d.join(t.o.sample(0.5, 1), t.d.v == t.o.n, "left"),
        "sample may pick other rows",
    ),
    "one row for each value of another source": (
        lambda t: t.d.join(t.o.dropDuplicates(["w"]), t.d.v == t.o.w, "left"),
        "dropDuplicates may pick other rows",
    ),
    "window of all rows of another source": (
        lambda t: t.d.crossJoin(t.o.selectExpr("n", "w AS v").select(over(t.f).alias("s"))),
        "window functions may pick other rows",
    ),
    "full join": (lambda t: t.d.join(t.o, t.d.v == t.o.n, "full"), "FullOuter"),
    "rand": (lambda t: t.d.where(t.f.rand() > 2), "rand gives another value each time"),
    "now": (lambda t: t.d.withColumn("t", t.f.current_timestamp()), "current_timestamp gives"),
    "udf": (lambda t: t.d.where(t.f.udf(lambda v: v, "boolean")("v")), "function of a user's"),
    "read": (lambda t: t.d.join(_elsewhere(t.d), "v"), "reads something that is no source"),
    "rows written down": (
        lambda t: t.d.join(
            t.d.sparkSession.sql("SELECT * FROM VALUES (1, 'a') AS t(v, name)"), "v"
        ),
        "reads something that is no source",
    ),
    "in pandas": (lambda t: t.d.mapInPandas(lambda rows: rows, t.d.schema), "function of a user's"),
}
OTHER_IN_FULL: dict[str, tuple[Transform, str]] = {
    "cross join": (lambda t: t.d.crossJoin(t.o.groupBy().count()), "do not come out"),
    "window of the other of two": (
        lambda t: t.d.join(t.o, (t.d.c == t.o.n) & (t.d.v == t.o.n), "left").withColumn(
            "s", over(t.f, "v")
        ),
        "window functions brings",
    ),
    "by no equality": (lambda t: t.d.join(t.o, t.d.v < t.o.n, "left"), "not by the source's keys"),
    "by a cast": (
        lambda t: t.d.join(t.o, t.d.v.cast("string") == t.o.n, "left"),
        "not by the source's keys",
    ),
    "by what is negated": (
        lambda t: t.d.join(t.o, -t.d.v == t.o.n, "left"),
        "not by the source's keys",
    ),
    "by what is complemented": (
        lambda t: t.d.join(t.o, t.f.bitwise_not(t.d.v) == t.o.n, "left"),
        "not by the source's keys",
    ),
    "by what is negated, inner": (
        lambda t: t.d.join(t.o, -t.d.v == t.o.n).select("c", "v", "w"),
        "do not come out",
    ),
    "by what is complemented, inner": (
        lambda t: t.d.join(t.o, t.f.bitwise_not(t.d.v) == t.o.n).select("c", "v", "w"),
        "do not come out",
    ),
    "by either": (
        lambda t: t.d.join(t.o, (t.d.v == t.o.n) | (t.d.i == t.o.n), "left"),
        "not by the source's keys",
    ),
    "except": (lambda t: t.d.select("v").exceptAll(t.o.select("n")), "except"),
}


def _view(d: DataFrame) -> SparkSession:
    d.createOrReplaceTempView("seen")
    return d.sparkSession


def _elsewhere(d: DataFrame) -> DataFrame:
    d.sparkSession.sql("CREATE TABLE IF NOT EXISTS derive_elsewhere (v int) USING parquet")
    return d.sparkSession.table("derive_elsewhere")


@pytest.mark.parametrize("name", BY_KEY)
def test_what_goes_by_keys_is_seen(spark: SparkSession, name: str) -> None:
    """With the names that the columns have in the result."""
    transform, how, columns = BY_KEY[name]

    assert Chosen(cast("How", how), "", columns) == chosen(spark, transform)


@pytest.mark.parametrize("name", BY_THE_OTHER)
def test_keys_of_a_joined_source_are_followed_to_equal_columns(
    spark: SparkSession, name: str
) -> None:
    """Where no row of it comes out by itself, too."""
    transform, columns = BY_THE_OTHER[name]

    assert Chosen("affected keys", "", columns) == chosen(spark, transform, 1)


@pytest.mark.thorough("offset of*", "sample of*", "window of all rows *")
@pytest.mark.parametrize("name", IN_FULL)
def test_what_goes_by_no_key_is_told(spark: SparkSession, name: str) -> None:
    """With the reason."""
    transform, why = IN_FULL[name]
    choice = chosen(spark, transform)

    assert "full" == choice.how, name
    assert why in choice.why


@pytest.mark.thorough("by what is complemented*", "by what is negated")
@pytest.mark.parametrize("name", OTHER_IN_FULL)
def test_a_joined_source_that_goes_by_no_key_is_told(spark: SparkSession, name: str) -> None:
    """With the reason."""
    transform, why = OTHER_IN_FULL[name]
    choice = chosen(spark, transform, 1)

    assert "full" == choice.how, name
    assert why in choice.why


def test_a_column_that_only_files_have_is_told(spark: SparkSession) -> None:
    """The rows of a feed lie in other files; a column of the name is one like any other."""
    if spark.version < "4":
        pytest.skip("Spark 3.5 lets no hidden column through a select")
    rows = _elsewhere(spark.createDataFrame([], "v int"))

    def choice(rows: DataFrame, *columns: str) -> Chosen:
        source = framed_rows(rows, "v")
        return chosen_of(shape_of(source.frame.select(*columns), [source]), [source], 0)

    hidden = choice(rows, "v", "_metadata.file_name")
    assert ("full", "it reads a hidden column of v, such as _metadata") == (hidden.how, hidden.why)
    own = rows.selectExpr("v", "named_struct('file_name', v) AS _metadata")
    assert [ROWS] * 2 == [choice(rows, "v").how, choice(own, "v", "_metadata.file_name").how]


@pytest.mark.parametrize("name", MOVES)
def test_what_becomes_another_without_new_versions_is_told(spark: SparkSession, name: str) -> None:
    """Time and what is no source; not what is drawn, nor what stands in the transformation itself."""
    transform, why = MOVES[name]
    shape, _ = shaped(spark, transform)

    assert why in shape.moves
    assert bool(why) == bool(shape.moves)


@pytest.mark.parametrize("same", ["(NOT b) = n", "(s LIKE t) = n"])
def test_what_is_printed_like_a_column_is_none(spark: SparkSession, same: str) -> None:
    """Spark writes no parentheses around it; the key is not the column that stands last in it."""
    from pyspark.sql import functions as f

    sources = [
        framed(spark, "c int, b boolean, s string, t string", "c"),
        framed(spark, "n boolean, w int", "n"),
    ]
    d, o = (one.frame for one in sources)
    result = d.join(o, f.expr(same)).select("c", "b", "t", "w")
    choice = chosen_of(shape_of(result, sources), sources, 1)

    assert ("full", "n: the key columns do not come out") == (choice.how, choice.why)


def test_the_same_transformation_is_known_again(spark: SparkSession) -> None:
    """However Spark numbers its columns; another literal is another transformation."""
    from pyspark.sql import functions as f

    def told(limit: int) -> str:
        source = framed(spark, "c int, i int, v int, a array<int>", "c", "i")
        result = source.frame.where(f.col("v") > limit).withColumn(
            "b", f.transform("a", lambda x: x + 1)
        )
        result.createOrReplaceTempView("seen")
        result = spark.sql("WITH x AS (SELECT * FROM seen) SELECT c, i, b FROM x")
        return shape_of(key_by(result, "c"), [source]).fingerprint

    def told_of(value: str) -> str:
        source = framed(spark, "c int, k binary", "c")
        return shape_of(source.frame.where(f"k = X'{value}'"), [source]).fingerprint

    assert told(1) == told(1)
    assert told(1) != told(2)
    assert told_of("00FF") == told_of("00FF")
    assert told_of("00FF") != told_of("00FE")


@pytest.mark.parametrize("name", ALIKE)
def test_what_prints_alike_is_told_apart(spark: SparkSession, name: str) -> None:
    """By where they end, by their types, and by what a function does with NULL; and the same ones are the same each time."""
    one, other = (
        [shaped(spark, transform)[0].fingerprint for _ in range(2)] for transform in ALIKE[name]
    )

    assert one[0] == one[1]
    assert other[0] == other[1]
    assert one[0] != other[0]


@pytest.mark.parametrize(
    "setting, value",
    [
        ("spark.sql.session.timeZone", "Asia/Tokyo"),
        ("spark.sql.ansi.enabled", "other"),
        ("spark.sql.legacy.timeParserPolicy", "LEGACY"),
    ],
)
def test_what_the_session_sets_is_a_part_of_a_transformation(
    spark: SparkSession, setting: str, value: str
) -> None:
    """A moment's day is another one in another time zone, and the plan is the same."""

    def told() -> str:
        source = framed(spark, "c int, at timestamp", "c")
        return shape_of(
            source.frame.selectExpr("c", "CAST(at AS date) AS day"), [source]
        ).fingerprint

    first, before = told(), spark.conf.get(setting)
    other = {"true": "false", "false": "true"}.get(before, value)
    with configured(spark, {setting: other}):
        assert first != told()
    assert first == told()


@pytest.mark.skipif(COMPUTE == "connect", reason="a client has no Java")
def test_a_zone_that_nobody_has_set_is_that_of_the_machine(spark: SparkSession) -> None:
    """A job that moves to another one would add its days to those that are there."""
    session = spark.newSession()
    session.conf.unset("spark.sql.session.timeZone")
    zones = session._jvm.java.util.TimeZone
    was, told = zones.getDefault(), []
    try:
        for zone in ("Europe/Berlin", "Asia/Tokyo", "Europe/Berlin"):
            zones.setDefault(zones.getTimeZone(zone))
            source = framed(session, "c int, at timestamp", "c")
            days = source.frame.selectExpr("c", "CAST(at AS date) AS day")
            told.append(shape_of(days, [source]).fingerprint)
    finally:
        zones.setDefault(was)
    assert told[0] == told[2] != told[1]


def test_columns_that_are_much_alike_are_told_apart(spark: SparkSession) -> None:
    """By their source, where two have the name, and where a name looks like one that Spark makes up."""
    from pyspark.sql import functions as f

    def told(transform: Callable[[DataFrame, DataFrame], DataFrame], more: str = "") -> str:
        d, o = (
            framed(spark, f"c int, x_1 int, x_2 int{more}", "c"),
            framed(spark, "n int, x_1 int", "n"),
        )
        return shape_of(transform(d.frame, o.frame), [d, o]).fingerprint

    def taken(d: DataFrame, o: DataFrame, *, left: bool, name: str = "x_1") -> DataFrame:
        return d.join(o, d.c == o.n).select("c", (d if left else o)[name].alias("x"))

    mine = told(lambda d, o: taken(d, o, left=True))
    assert mine == told(lambda d, o: taken(d, o, left=True), ", new string")
    assert mine != told(lambda d, o: taken(d, o, left=False))
    assert mine != told(lambda d, o: taken(d, o, left=True, name="x_2"))
    first, second = (told(lambda d, _, n=n: d.where(f"'order #{n}' <> 'a'")) for n in (1, 2))
    assert first != second
    phones = ", s struct<`phone#1`: string, `phone#2`: string>"
    first, second = (
        told(lambda d, _, n=n: d.select(f.col(f"s.`phone#{n}`").alias("p")), phones) for n in (1, 2)
    )
    assert first != second
    lists = ", s array<struct<`phone#1`: string, `phone#2`: string>>"
    first, second = (
        told(lambda d, _, n=n: d.select(f.col(f"s.`phone#{n}`").alias("p")), lists) for n in (1, 2)
    )
    assert first != second
    first, second = (told(lambda d, _: d.select("`a `"), ", `a ` int") for _ in (1, 2))
    assert first == second
