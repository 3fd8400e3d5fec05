"""Keys where a plan hides or imitates something: joins with oneself, functions of every kind, odd names, carriers.

Whatever is unclear claims nothing. All on classic Spark and on a Spark Connect server.
"""

from __future__ import annotations

import base64
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

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
    static,
    tried,
    without,
)
from mirrorlib.errors import KeysError
from mirrorlib.keys.declare import key_by, propagate, union_keyed
from mirrorlib.keys.read import keys_of
from mirrorlib.keys.tags import MARKER, untag
from mirrorlib.keys.value import Keys

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

CASES = Cases()
add, edge = CASES.add, CASES.leave

# Of `public class Same implements UDF1<Object, Object> { public Object call(Object o) { return o; } }`: a machine
# that runs Java need not have a compiler.
SAME = (
    "yv66vgAAAD0AEAoAAgADBwAEDAAFAAYBABBqYXZhL2xhbmcvT2JqZWN0AQAGPGluaXQ+AQADKClWBwAIAQAEU2FtZQcACgEAIm9y"
    "Zy9hcGFjaGUvc3Bhcmsvc3FsL2FwaS9qYXZhL1VERjEBAARDb2RlAQAEY2FsbAEAJihMamF2YS9sYW5nL09iamVjdDspTGphdmEv"
    "bGFuZy9PYmplY3Q7AQAJU2lnbmF0dXJlAQBcTGphdmEvbGFuZy9PYmplY3Q7TG9yZy9hcGFjaGUvc3Bhcmsvc3FsL2FwaS9qYXZh"
    "L1VERjE8TGphdmEvbGFuZy9PYmplY3Q7TGphdmEvbGFuZy9PYmplY3Q7PjsAIQAHAAIAAQAJAAAAAgABAAUABgABAAsAAAARAAEA"
    "AQAAAAUqtwABsQAAAAAAAQAMAA0AAQALAAAADgABAAIAAAACK7AAAAAAAAEADgAAAAIADw=="
)


# Joins, unions and queries over the same frame


@edge("self join by SQL", NONE)
def self_join(c: Case) -> DataFrame:
    """Join a view with itself, and take the keys of both."""
    return c.session.sql(f"SELECT a.k1, b.k2 FROM {c.view()} a JOIN kv b ON a.k1 = b.k1")


@edge("CTE joined with itself", NONE)
def cte_self_join(c: Case) -> DataFrame:
    """Name a query and use it twice."""
    c.view()
    return c.session.sql(
        "WITH q AS (SELECT * FROM kv) SELECT a.k1, b.k2, b.d, b.ts FROM q a JOIN q b ON a.k1 = b.k1"
    )


@edge("CTE used once of two", without("k2"))
def two_ctes(c: Case) -> DataFrame:
    """Name two queries, and let one use the other."""
    c.view()
    return c.session.sql(
        "WITH q AS (SELECT * FROM kv), r AS (SELECT k1, d, ts FROM q WHERE v > 1) SELECT * FROM r"
    )


@edge("another column under a key's name in a CTE", Keys(partition=("x",)))
def exchanged_in_a_cte(c: Case) -> DataFrame:
    """By its place it is the other one, though somebody has put the key's tag on it."""
    tag = exchangeable(c).schema["k1"].metadata
    found = c.session.sql(
        "WITH q AS (SELECT k1 AS x, n AS k1 FROM kn GROUP BY k1, n) SELECT k1, x FROM q"
    )
    return found.select(c.f.col("k1").alias("k1", metadata=tag), "x")


@edge("a value that a key looks up in a CTE", NONE)
def looked_up(c: Case) -> DataFrame:
    """The key is no more than an index."""
    tag = exchangeable(c).schema["k1"].metadata
    found = c.session.sql("WITH q AS (SELECT m[k1] AS k1 FROM kn) SELECT k1 FROM q")
    return found.select(c.f.col("k1").alias("k1", metadata=tag))


@edge("CTE that is used twice", Keys(partition=("x",)))
def used_twice(c: Case) -> DataFrame:
    """Its columns have other numbers then, and the same places."""
    exchangeable(c)
    return c.session.sql(
        "WITH q AS (SELECT n AS k, k1 AS x FROM kn WHERE n > 0 ORDER BY n) "
        "SELECT * FROM q WHERE k <= (SELECT max(k) FROM q)"
    )


@edge("CTE over a view that was replaced", NONE)
def replaced_below_a_cte(c: Case) -> DataFrame:
    """The outer view puts back the tag of the column that had that name."""
    exchangeable(c)
    for name, query in (
        ("inner_kn", "SELECT k1 AS n, n AS k1 FROM kn"),
        (
            "outer_kn",
            "WITH q AS (SELECT k1 AS x, n AS k1 FROM inner_kn GROUP BY k1, n) SELECT k1, x FROM q",
        ),
        ("inner_kn", "SELECT k1, n FROM kn"),
    ):
        c.session.sql(f"CREATE OR REPLACE TEMP VIEW {name} AS {query}")
    found = c.session.table("outer_kn")
    assert "mirrorlib.key" in found.schema["k1"].metadata
    return found


def exchangeable(c: Case) -> DataFrame:
    """Make a view of a key and of columns that could pass for it."""
    df = key_by(c.df.selectExpr("k1", "CAST(v AS int) AS n", "map(k1, 7) AS m"), "k1")
    df.createOrReplaceTempView("kn")
    return df


@edge("recursive CTE", NONE)
def recursive(c: Case) -> DataFrame:
    """Let a query refer to itself; Spark 4.1 is the first that can."""
    if c.session.version < "4.1":
        return plain(c.session)
    c.view()
    return c.session.sql(
        "WITH RECURSIVE r(k1, k2) AS (SELECT k1, k2 FROM kv UNION ALL SELECT k1 + 1, k2 FROM r WHERE k1 < 3) SELECT * FROM r"
    )


@edge("lateral join", NONE)
def lateral(c: Case) -> DataFrame:
    """Join with a query for every row."""
    c.view()
    return c.session.sql("SELECT kv.* FROM kv, LATERAL (SELECT kv.v + 1 AS n)")


@edge("subqueries over itself", WHOLE)
def subqueries(c: Case) -> DataFrame:
    """Filter by IN, EXISTS and a number; what they read is not what comes out."""
    c.view()
    return c.session.sql(
        "SELECT * FROM kv WHERE v IN (SELECT v FROM kv) AND v <= (SELECT max(v) FROM kv) "
        "AND EXISTS (SELECT 1 FROM kv AS o WHERE o.k1 = kv.k1)"
    )


@edge("scalar subquery named like a key", without("k1"))
def scalar(c: Case) -> DataFrame:
    """Overwrite a key by what a query gives."""
    c.view()
    return c.session.sql("SELECT (SELECT max(k1) FROM kv) AS k1, k2, d, ts FROM kv")


@edge("key of the other side of a join", Keys(partition=("k2",), lost=("k1",)))
def other_side(c: Case) -> DataFrame:
    """Take the table's column in place of the key: they are equal only in rows that match."""
    other = static(c.session).select(c.f.col("k1").alias("o1"), "s")
    return c.df.join(other, c.df.k1 == other.o1, "left").select(c.f.col("o1").alias("k1"), "k2")


@edge("two columns called like a key", Keys(partition=("k2",), lost=("k1",)))
def ambiguous(c: Case) -> DataFrame:
    """Nobody could say which is meant."""
    other = static(c.session).select("k1", "s")
    return c.df.join(other, c.df.k1 == other.k1, "left")


@edge("union of a frame with a part of itself", NONE)
def union_self(c: Case) -> DataFrame:
    """Both halves have the same tags."""
    return c.df.where("v > 1").union(c.df.where("v <= 1"))


@edge("join with keys that are lost", PARTITION)
def lost_side(c: Case) -> DataFrame:
    """The other side had keys, and has none."""
    other = key_by(static(c.session), "k1").agg(c.f.max("s").alias("s"))
    return c.df.crossJoin(other)


def dimension(c: Case, *, keeps: bool = False) -> DataFrame:
    """Give a table that had a key of its own, perhaps has it still, under another name, and a column to join it by."""
    df = key_by(static(c.session), "k1").withColumnsRenamed({"k1": "id", "k2": "z"})
    return df if keeps else df.drop("id")


add(
    "join with keys that are dropped",
    PARTITION,
    lambda c: c.df.join(dimension(c), c.f.expr("k2 = z")),
)
add(
    "join of dropped keys with keys",
    PARTITION,
    lambda c: dimension(c).join(c.df, c.f.expr("k2 = z")),
)
add(
    "join of dropped keys with dropped keys",
    NONE,
    lambda c: dimension(c).join(c.df.drop("k1", "d", "ts"), c.f.expr("k2 = z")).drop("k2"),
)
add(
    "join of keys under another name with keys",
    NONE,
    lambda c: dimension(c, keeps=True).join(c.df, c.f.expr("k2 = z")).drop("id"),
)
add(
    "join of dropped keys with keys and keys",
    NONE,
    lambda c: (
        dimension(c)
        .crossJoin(c.df)
        .join(key_by(plain(c.session).select(c.f.col("k1").alias("n")), "n"), c.f.expr("v = n"))
    ),
)


@edge("join with an aggregate of itself", NONE)
def own_aggregate(c: Case) -> DataFrame:
    """The same keys are on both sides."""
    return c.df.join(c.df.groupBy("k1").agg(c.f.max("v").alias("top")), "k1")


add(
    "natural join",
    PARTITION,
    lambda c: (
        c.view(),
        static(c.session).createOrReplaceTempView("st"),
        c.session.sql("SELECT * FROM kv NATURAL JOIN st"),
    )[2],
)
add(
    "many unions by union_keyed",
    PARTITION,
    lambda c: union_keyed(c.df, keyed(c.session), keyed(c.session)),
)


@edge("view of a view that was replaced by one with a cast", Keys(partition=("k1",), lost=("v",)))
def replaced_view(c: Case) -> DataFrame:
    """The outer view casts back to the type it knows, and puts back the tag: the values are others."""
    df = key_by(plain(c.session), ["k1", "v"])
    df.createOrReplaceTempView("inner_view")
    c.session.sql("CREATE OR REPLACE TEMP VIEW outer_view AS SELECT * FROM inner_view")
    df.withColumn("v", c.f.col("v").cast("int")).createOrReplaceTempView("inner_view")
    found = c.session.table("outer_view")
    assert "mirrorlib.key" in found.schema["v"].metadata
    return found


@edge("view of a view that was replaced by one with the same types", WHOLE)
def replaced_alike(c: Case) -> DataFrame:
    """What a view casts to the type that a column had, it leaves alone."""
    name = c.view("inner_alike")
    c.session.sql(f"CREATE OR REPLACE TEMP VIEW outer_alike AS SELECT * FROM {name}")
    c.df.where("v > 1").createOrReplaceTempView(name)
    return c.session.table("outer_alike")


# Functions


@edge("registered Python function in SQL", NONE)
def registered(c: Case) -> DataFrame:
    """The text of a query says nothing of its language."""
    c.session.udf.register("doubled", lambda v: v, "long")
    return c.df.selectExpr("k1", "k2", "d", "ts", "doubled(v) AS v")


@edge("registered Python function in a view", NONE)
def registered_in_view(c: Case) -> DataFrame:
    """Nor does a view."""
    c.session.udf.register("doubled", lambda v: v, "long")
    c.view()
    c.session.sql("CREATE OR REPLACE TEMP VIEW deep AS SELECT k1, k2, doubled(v) AS v FROM kv")
    c.session.sql("CREATE OR REPLACE TEMP VIEW deeper AS SELECT k1, k2 FROM deep WHERE v > 1")
    return c.session.table("deeper")


add(
    "Python function without arguments",
    NONE,
    lambda c: c.df.withColumn("n", c.f.udf(lambda: 1, "int")()),
)
add(
    "Python function of literals",
    NONE,
    lambda c: c.df.withColumn("n", c.f.udf(lambda v: v, "int")(c.f.lit(1))),
)


@edge("Python function named like Spark's", NONE)
def like_own(c: Case) -> DataFrame:
    """Its number gives it away, also with a literal as its argument."""
    same = eval("lambda value: value")  # noqa: S307  # one without hints, which Spark would read
    same.__name__ = "upper"
    return c.df.withColumn("n", c.f.udf(same, "string")(c.f.lit("a")))


for text in ("x AS y", "x AS y(", "x AS (y)"):

    @edge(f"Python function named like Spark's of a literal {text!r}", NONE)
    def like_alias(c: Case, text: str = text) -> DataFrame:
        """What it is given looks as if a column were named so."""
        same = eval("lambda value: value")  # noqa: S307  # as above
        same.__name__ = "concat"
        given = c.f.udf(same, "string")(c.f.lit(text))
        return c.df.withColumn("n", given).withColumn("o", c.f.coalesce(given, c.f.lit("z")))


add(
    "columns named like calls",
    PARTITION,
    lambda c: c.df.selectExpr("*", "max(v) OVER (PARTITION BY k1)", "upper(w)").drop("v"),
)


@edge("Python function in a sort", NONE)
def in_sort(c: Case) -> DataFrame:
    """It computes no column."""
    return c.df.sort(c.f.udf(lambda v: v, "long")("v"))


@edge("Python function in a join", NONE)
def in_join(c: Case) -> DataFrame:
    """It computes a condition."""
    return c.df.join(static(c.session).select("s"), c.f.udf(lambda v: v > 1, "boolean")("v"))


@edge("Python function in an aggregate", NONE)
def in_aggregate(c: Case) -> DataFrame:
    """It computes what is aggregated."""
    return c.df.groupBy(*KEY).agg(c.f.max(c.f.udf(lambda v: v, "long")("v")).alias("v"))


@edge("Python function in a subquery", NONE)
def in_subquery(c: Case) -> DataFrame:
    """It computes what rows are compared to."""
    c.session.udf.register("doubled", lambda v: v, "long")
    c.view()
    return c.session.sql("SELECT * FROM kv WHERE v IN (SELECT doubled(v) FROM kv)")


@edge("Python function of the side that is joined", PARTITION)
def beside(c: Case) -> DataFrame:
    """The keys' rows do not go through it."""
    other = static(c.session).select("k1", c.f.udf(lambda s: s, "string")("s").alias("s"))
    return c.df.join(other, "k1", "left")


@edge("Python function behind thirty columns", NONE)
def behind_many(c: Case) -> DataFrame:
    """Spark would print 25 and leave the others out."""
    many = [c.f.lit(n).alias(f"c{n}") for n in range(30)]
    return c.df.select("*", *many, c.f.udf(lambda v: v, "long")("v").alias("last"))


@edge("Python function as the last of thirty arguments", NONE)
def last_argument(c: Case) -> DataFrame:
    """The same inside an expression."""
    many = [c.f.lit(n).cast("long") for n in range(30)]
    return c.df.withColumn("n", c.f.greatest(*many, c.f.udf(lambda v: v, "long")("v")))


@edge("67 columns", WHOLE)
def wide(c: Case) -> DataFrame:
    """Keys outlive a plan of many columns."""
    return c.df.select("*", *[(c.f.col("v") + n).alias(f"c{n}") for n in range(61)]).where(
        "c60 > 1"
    )


@edge("Java function", NONE)
def java(c: Case) -> DataFrame:
    """It prints as Spark's own do, but for its name."""
    java_function(c, "same")
    return c.df.selectExpr("*", "same(w) AS n")


for called in ("-same(w)", "`-same`(w)", "`v-abs`(w)", "`v<abs`(w)", "`v:abs`(w)"):

    @edge(f"Java function behind a sign, {called}", NONE)
    def java_behind_a_sign(c: Case, called: str = called) -> DataFrame:
        """A sign may be an operator or a part of its name."""
        java_function(c, called.strip("-").partition("(")[0].strip("`"), "double")
        return c.df.selectExpr("*", f"{called} AS n")


@edge("Java function named like Spark's", NONE)
def java_like_own(c: Case) -> DataFrame:
    """It prints as Spark's own do."""
    java_function(c, "soundex")
    try:
        found = c.df.selectExpr("*", "soundex(w) AS n")
        keys = keys_of(found)
        own = c.session.sql("SELECT soundex('Robert')").collect() != [
            ("Robert",)
        ]  # Spark 4.2 takes its own
    finally:
        c.session.sql("DROP TEMPORARY FUNCTION IF EXISTS soundex")
    assert keys == (WHOLE if own else NONE)
    return plain(c.session)


def java_function(c: Case, name: str, gives: str = "string") -> None:
    """Register a function of a class that is put into a jar."""
    c.session.udf.registerJavaFunction(name, "Same", gives)


for name in ("reflect", "java_method", "try_reflect"):

    @edge(f"Java method by {name}", NONE)
    def reflected(c: Case, name: str = name) -> DataFrame:
        """It may be anybody's."""
        if name == "try_reflect" and c.session.version < "4":
            pytest.skip("it came with Spark 4")
        return c.df.selectExpr("*", f"{name}('java.util.UUID', 'randomUUID') AS n")


@edge("Spark's own function of the JVM that is none of SQL's", NONE)
def ml_function(c: Case) -> DataFrame:
    """It is made of a Scala function."""
    from pyspark.ml.functions import array_to_vector

    return c.df.withColumn("n", array_to_vector(c.f.array(c.f.lit(1.0))))


def sql_function(c: Case, statement: str) -> None:
    """Define a function in SQL."""
    if c.session.version < "4":
        pytest.skip("functions in SQL came with Spark 4")
    c.session.sql(statement)


@edge("what only grammar names", WHOLE)
def grammatical(c: Case) -> DataFrame:
    """No list of functions has it."""
    return c.df.selectExpr(
        "*",
        "try_cast(w AS BIGINT) AS a",
        "dateadd(DAY, 1, timestamp_seconds(v)) AS b",
        "timestampdiff(HOUR, timestamp_seconds(v), now()) AS c",
        "w LIKE ANY ('a%', 'b%') AS e",
        "w NOT LIKE ALL ('a%', 'b%') AS g",
        "-(v + -abs(v)) + ~hash(w) AS h",
        "DATE '2020-01-01' + INTERVAL 1 DAY AS i",
        "CAST(array(named_struct('a', v)) AS array<struct<a: decimal(9, 1)>>) AS j",
        "from_json(w, 'a decimal(9, 1), b interval day, c interval year') AS k",
    )


@edge("pipes", WHOLE)
def piped(c: Case) -> DataFrame:
    """Each is one more operator."""
    if c.session.version < "4":
        pytest.skip("they came with Spark 4")
    c.view()
    return c.session.sql("FROM kv |> WHERE v > 1 |> SELECT k1, k2, d, ts, v, w")


@edge("function defined in SQL", NONE)
def in_sql(c: Case) -> DataFrame:
    """It prints as Spark's own do, but for its name."""
    sql_function(
        c, "CREATE OR REPLACE TEMPORARY FUNCTION more(x BIGINT) RETURNS BIGINT RETURN x + 1"
    )
    return c.df.selectExpr("k1", "k2", "d", "ts", "more(v) AS v")


@edge("function defined in SQL in a filter", NONE)
def in_sql_filter(c: Case) -> DataFrame:
    """It computes no column."""
    sql_function(
        c, "CREATE OR REPLACE TEMPORARY FUNCTION more(x BIGINT) RETURNS BIGINT RETURN x + 1"
    )
    return c.df.where("more(v) > 1")


@edge("function of a schema named like Spark's", NONE)
def in_schema(c: Case) -> DataFrame:
    """Its catalog and schema print before its name."""
    sql_function(
        c, "CREATE OR REPLACE FUNCTION default.upper(x STRING) RETURNS STRING RETURN x || 'a'"
    )
    found = c.df.selectExpr("*", "default.upper(w) AS n")
    keys = keys_of(found)
    c.session.sql("DROP FUNCTION default.upper")
    return found if keys else plain(c.session)


@edge("function in SQL that gives rows", NONE)
def table_function(c: Case) -> DataFrame:
    """It is joined."""
    sql_function(
        c,
        "CREATE OR REPLACE TEMPORARY FUNCTION two(x BIGINT) RETURNS TABLE(y BIGINT) RETURN SELECT x + 1",
    )
    c.view()
    return c.session.sql("SELECT kv.*, y FROM kv, LATERAL two(v)")


@edge("Python function that gives rows", NONE)
def udtf(c: Case) -> DataFrame:
    """It is joined."""
    if c.session.version < "4":
        pytest.skip("Spark 3.5 wants arrow settings for it")

    class Twice:
        def eval(self, value: int) -> object:
            yield value, value

    c.session.udtf.register("twice", c.f.udtf(Twice, returnType="a bigint, b bigint"))
    c.view()
    return c.session.sql("SELECT kv.*, a FROM kv, LATERAL twice(v)")


OWN: list[str] = [
    "upper(w)", "concat(w, '\\n', w)", "cast(v AS decimal(10, 2))", "cast(w AS varchar(3))", "CASE WHEN v > 1 THEN 1 END",
    "coalesce(v, 0)", "date_format(current_timestamp(), 'yyyy')", "transform(array(v), x -> x + 1)", "if(v > 1, 1, 2)",
    "w LIKE 'a%'", "regexp_replace(w, '\\n', ' ')", "to_date('2020-01-01')", "v BETWEEN 1 AND 2", "v IN (1, 2)", "nvl(v, 1)",
    "from_json(w, 'a INT')", "struct(v, w)", "map('a', v)", "md5(w)", "uuid()", "get_json_object(w, '$.a')", "date_trunc('DAY', now())",
    "w || 'f(x)'", "interval 1 day", "timestamp'2020-01-01 00:00:00'", "split(w, ',')[0]", "try_divide(v, 0)", "hash(v)",
]  # fmt: skip
for expression in OWN:
    held = NONE if "f(x)" in expression else WHOLE  # a text that looks like a call may be one
    add(
        f"own function {expression!r}",
        held,
        lambda c, e=expression: c.df.selectExpr("*", f"{e} AS n"),
    )  # type: ignore[misc]  # the default binds it


# Carriers of tags


@edge("schema of the same frame joined", Keys(partition=("k1",), lost=("k2",)))
def carried_by_a_schema(c: Case) -> DataFrame:
    """Its columns have the very tags of the frame."""
    rows = [(1, "not a", True, 9, 9, "x")]
    other = c.session.createDataFrame(rows, c.df.schema).select(
        c.f.col("k1").alias("o1"), c.f.col("k2").alias("o2")
    )
    return c.df.join(other, c.df.k1 == other.o1, "left").select("k1", c.f.col("o2").alias("k2"))


@edge("metadata put on another column", without("k1"))
def carried_by_hand(c: Case) -> DataFrame:
    """A tag says nothing where the values come from elsewhere."""
    tag = c.df.schema["k1"].metadata
    return c.df.select(c.f.expr("cast(v AS int)").alias("k1", metadata=tag), "k2", "d", "ts")


@edge("metadata of another column put on it", without("k1"))
def carried_by_rename(c: Case) -> DataFrame:
    """Not even where it is another column as it is."""
    tag = c.df.schema["k1"].metadata
    return c.df.select(c.f.col("v").alias("k1", metadata=tag), "k2", "d", "ts")


add("checkpoint, then more", NONE, lambda c: c.df.localCheckpoint().where("v > 1"))
add("createDataFrame of no rows", NONE, lambda c: c.session.createDataFrame([], c.df.schema))
add("untagged", NONE, lambda c: untag(c.df))
add("keys declared twice", Keys(partition=("w",)), lambda c: key_by(c.df, "w"))
add(
    "keys declared twice, the same ones",
    WHOLE,
    lambda c: key_by(c.df, KEY, cdc=True, deleted="d", order_by="ts"),
)
add("no keys", NONE, lambda c: plain(c.session))
add(
    "propagated behind a loss",
    Keys(partition=("k1",), primary=("k1",), deleted="d", order_by=("ts",), lost=("k2",)),
    lambda c: propagate(c.df, c.df.drop("k2").localCheckpoint()),
)
add(
    "propagated without the deletion column",
    PARTITION,
    lambda c: propagate(c.df, c.df.drop("d").localCheckpoint()),
)
add(
    "propagated keys that were read before",
    WHOLE,
    lambda c: propagate(keys_of(c.df), c.df.localCheckpoint()),
)
add("nothing to propagate", NONE, lambda c: propagate(plain(c.session), c.df.localCheckpoint()))


# Text that looks like a plan


def literal(text: str) -> Step:
    """Add a column of some text."""
    return lambda c: c.df.withColumn("n", c.f.lit(text))


add("literal with a line break", WHOLE, literal("a\nb"))
add("literal with a tree's branch", NONE, literal("a\n+- Project [k1#1]"))
add("literal with two branches", NONE, literal("a\n:- Project\n:  +- Project\n+- Project"))
add("literal with a root", WHOLE, literal("\nProject [k1#1]"))
add("literal with a marker", NONE, literal(f"\n+- SubqueryAlias {MARKER}0"))
add("literal that says it is cut", NONE, literal("... 3 more fields"))
add("literal that says it is redacted", NONE, literal("*********(redacted)"))


@edge("literal with the frame's own plan", NONE)
def own_plan(c: Case) -> DataFrame:
    """A log of plans is joined to what they were plans of."""
    name = c.df.schema["k1"].metadata["mirrorlib.key"]["id"]
    text = f"x\n   +- SubqueryAlias {MARKER}{name}\n      +- Project [k1#1 AS k1#2]"
    return c.df.distinct().withColumn("n", c.f.lit(text)).sort("v")


ODD = [
    "a.b",
    "a`b",
    "a b",
    "a,b",
    "a\nb",
    "a(#1)",
    "é",
    "a#1",
    "a AS b",
    "`",
    "[a]",
    "max(v)",
    "SELECT",
    "a#1 AS b#2",
]


@pytest.mark.thorough("connect-*")
@pytest.mark.parametrize("name", ODD)
def test_a_key_may_have_any_name(session: SparkSession, name: str) -> None:
    """Dots, backticks, line breaks: the key is claimed, or nothing is; never another column."""
    df = key_by(plain(session).withColumnRenamed("k1", name), [name, "k2"])
    keys = keys_of(df.where("v > 1").withColumn("n", df.v + 1))

    assert keys in (Keys(partition=(name, "k2")), Keys(partition=("k2",), lost=(name,)), NONE)
    assert keys == Keys(partition=(name, "k2")) or name in {"a(#1)", "a#1 AS b#2"}


def test_a_file_with_the_same_tags_is_no_source_of_keys(
    session: SparkSession, tmp_path: Path
) -> None:
    """A frame joined with what it was written to: the file's columns have its tags, and not its values."""
    df = keyed(session)
    df.where("k2 = 'a'").write.parquet(str(tmp_path / "old"))
    old = session.read.parquet(str(tmp_path / "old")).withColumnsRenamed({"k1": "o1", "k2": "o2"})
    joined = df.join(old.select("o1", "o2"), df.k1 == old.o1, "left").selectExpr(
        "o1 AS k1", "k2 AS was", "o2 AS k2"
    )

    assert "mirrorlib.key" in joined.schema["k1"].metadata
    assert Keys(partition=("was",), lost=("k1",)) == keys_of(joined)


@pytest.fixture(scope="module", autouse=True)
def _java_class(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Let Java find the class of the Java function."""
    jar = tmp_path_factory.mktemp("java") / "same.jar"
    with zipfile.ZipFile(jar, "w") as archive:
        archive.writestr("Same.class", base64.b64decode(SAME))
    spark.sql(f"ADD JAR '{jar}'")


@pytest.mark.thorough("connect-*")
@pytest.mark.parametrize("step, expected", CASES.values, ids=CASES.ids)
def test_keys_are_never_claimed_falsely(session: SparkSession, step: Step, expected: Keys) -> None:
    """Exactly the keys that are certain are claimed."""
    assert expected == keys_of(step(tried(session)))


def test_columns_of_one_name_are_refused(session: SparkSession) -> None:
    """A key could mean either."""
    with pytest.raises(KeysError, match="two columns have the same name"):
        key_by(plain(session).selectExpr("k1", "k2", "v AS k1"), "k2")
    with pytest.raises(KeysError, match="column K1: two columns have the same name"):
        key_by(plain(session).selectExpr("k1", "k2", "v AS K1"), "k2")
