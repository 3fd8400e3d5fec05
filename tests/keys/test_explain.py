"""Saying what became of keys: which were lost where, how to get them back, what orders rows."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from keyed import KEY, WHOLE, Case, keyed, plain, static, tried
from mirrorlib.errors import KeysError, KeysLostError
from mirrorlib.keys.declare import key_by, union_keyed
from mirrorlib.keys.read import explain_keys, keys_of, require_keys
from mirrorlib.keys.value import Keys

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def test_whole_keys_are_told_as_they_are(session: SparkSession) -> None:
    """Nothing was lost, and nothing has to be done."""
    told = explain_keys(keyed(session).where("v > 1"))

    assert told.ok
    assert WHOLE == told.keys == told.declared
    assert "" == told.trouble
    assert "partition key    k1, k2    k1, k2" in str(told)


def test_keys_under_other_names_are_whole(session: SparkSession) -> None:
    """A rename loses nothing."""
    told = explain_keys(keyed(session).withColumnRenamed("k1", "id").withColumnRenamed("d", "gone"))

    assert told.ok
    assert ("", "") == (told.trouble, told.remedy)
    assert ("id", "k2") == told.keys.partition


@pytest.mark.parametrize(
    "step, operator, lost",
    [
        (lambda c: c.df.drop("k2"), "select", "column k2"),
        (lambda c: c.df.withColumn("k1", c.df.k1 + 1).where("v > 1"), "select", "column k1"),
        (lambda c: c.df.dropDuplicates(["k1"]).where("v > 1"), "dropDuplicates", "primary key"),
        (lambda c: c.df.limit(1), "limit", "primary key"),
        (lambda c: c.df.sort("v"), "sort", "primary key"),
        (lambda c: c.df.join(static(c.session), "k1", "left"), "join (LeftOuter)", "primary key"),
        (
            lambda c: c.df.join(static(c.session), "k1", "full"),
            "join (FullOuter)",
            "partition key and primary key",
        ),
        (lambda c: c.df.union(c.df), "union", "partition key and primary key"),
        (
            lambda c: c.df.withColumn("n", c.f.udf(lambda v: v)("v")),
            "function in select",
            "partition key and primary key",
        ),
        (
            lambda c: c.df.where(c.f.udf(lambda d: d, "boolean")("d")),
            "function in filter",
            "partition key and primary key",
        ),
        (
            lambda c: c.df.mapInArrow(lambda b: b, c.df.schema),
            None,
            "partition key and primary key",
        ),
        (lambda c: c.df.groupBy("k1").count(), "aggregate", "column k2, d, ts"),
    ],
)
def test_a_loss_names_its_operator(
    session: SparkSession, step: Callable[[Case], DataFrame], operator: str | None, lost: str
) -> None:
    """The report says which step it was, what it took, and how to get it back."""
    told = explain_keys(step(tried(session)))

    assert not told.ok
    assert lost in [found.lost for found in told.steps]
    assert operator in {None, *[found.operator for found in told.steps]}
    assert told.remedy in str(told)


def copied(c: Case) -> DataFrame:
    """Leave a copy of a key in its place, which then is called like the other one was."""
    return c.df.selectExpr("k1 AS k2", "d AS gone", "ts", "v AS k1").sort("ts")


@pytest.mark.parametrize(
    "step, key, primary",
    [
        (lambda c: c.df.limit(3), ("k1", "k2"), ("d", "ts")),
        (lambda c: c.df.withColumnRenamed("k1", "id").limit(3), ("id", "k2"), ("d", "ts")),
        (lambda c: c.df.toDF("k2", "k1", "a", "b", "e", "f").sort("e"), ("k2", "k1"), ("a", "b")),
        (
            lambda c: c.df.withColumnRenamed("k2", "z").withColumn("n", c.f.udf(lambda v: v)("v")),
            ("k1", "z"),
            ("d", "ts"),
        ),
        (
            lambda c: c.df.withColumnRenamed("d", "gone").union(c.df),
            ("k1", "k2"),
            ("gone", "ts"),
        ),
        (lambda c: c.df.mapInArrow(lambda b: b, c.df.schema), ("k1", "k2"), ("d", "ts")),
        (lambda c: c.df.withColumn("k1", c.df.k1 + 1).where("v > 1"), ("k1", "k2"), ("d", "ts")),
    ],
)
def test_the_advised_call_declares_what_was_lost(
    session: SparkSession,
    step: Callable[[Case], DataFrame],
    key: tuple[str, ...],
    primary: tuple[str, str],
) -> None:
    """As it stands, with the names that columns have there."""
    df = step(tried(session))

    assert Keys(partition=key, primary=key, deleted=primary[0], order_by=(primary[1],)) == keys_of(
        called(df, explain_keys(df).remedy)
    )


def called(df: DataFrame, remedy: str) -> DataFrame:
    """Do what a remedy says."""
    call = remedy[remedy.index("key_by(") :].removesuffix(".")
    found: DataFrame = eval(call, {"key_by": key_by, "df": df})  # noqa: S307  # that is the test
    return found


@pytest.mark.parametrize(
    "step, gone",
    [
        (lambda c: c.df.drop("k2").where("v > 1"), "k2"),
        (lambda c: c.df.withColumnRenamed("k2", "z").drop("z"), "k2"),
        (lambda c: c.df.groupBy("k1").count(), "k2, d, ts"),
        (copied, "k2"),
    ],
)
def test_what_is_gone_has_to_be_kept(
    session: SparkSession, step: Callable[[Case], DataFrame], gone: str
) -> None:
    """No call is advised that names a column which is no longer there."""
    remedy = f"Keep {gone} in the step that loses that; declare them anew behind any other: key_by."
    assert remedy == explain_keys(step(tried(session))).remedy


def test_a_remedy_that_is_refused_says_what_has_to_be_done_before(session: SparkSession) -> None:
    """Where two columns have one name, or a type is none of a key's."""
    c = tried(session)
    other = static(session).select("k1", "s")
    double = c.df.join(other, c.df.k1 == other.k1).sort("v")
    kind = c.df.withColumn("k1", c.f.array("k1"))

    with pytest.raises(KeysError, match="column k1: two columns have the same name"):
        called(double, explain_keys(double).remedy)
    with pytest.raises(KeysError, match="column k1: a key column cannot have its type"):
        called(kind, explain_keys(kind).remedy)


def test_keys_that_were_lost_before_are_named(session: SparkSession) -> None:
    """They are not said to have never been a primary key, and no call would bring them back here."""
    both = union_keyed(keyed(session).drop("k2"), keyed(session).drop("k2"))
    told = explain_keys(both)

    assert told.ok
    assert ("k2",) == told.keys.lost
    assert told.remedy.startswith("Keep k2 up to union_keyed: ")
    assert told.remedy in str(told)
    for primary in (False, True):
        with pytest.raises(
            KeysLostError, match="a part of the keys had been lost before union_keyed: k2"
        ) as raised:
            require_keys(both, primary=primary)
        assert told.remedy in str(raised.value)


def test_a_partition_key_alone_is_told_how_to_get_a_primary_one(session: SparkSession) -> None:
    """By a call that works as it stands."""
    df = key_by(plain(session), KEY).withColumnRenamed("k1", "id")
    with pytest.raises(KeysLostError, match="no primary key was declared") as raised:
        require_keys(df, primary=True)

    key = ("id", "k2")
    assert Keys(partition=key, primary=key) == keys_of(called(df, str(raised.value)))


def test_keys_that_are_needed_and_lost_raise(session: SparkSession) -> None:
    """The error says what the report says."""
    with pytest.raises(KeysLostError) as raised:
        require_keys(keyed(session).drop("k2"))

    assert "keys were lost: select: column k2 (dropped or overwritten)" == raised.value.reason
    assert "Keep k2 in the step that loses that" in str(raised.value)


def test_keys_that_are_needed_and_there_are_returned(session: SparkSession) -> None:
    """A partition key is enough, unless a primary key is asked for."""
    df = keyed(session).limit(3)

    assert KEY == require_keys(df).partition
    with pytest.raises(KeysLostError, match="limit"):
        require_keys(df, primary=True)


def test_a_frame_that_never_had_keys_says_so(session: SparkSession) -> None:
    """And how it gets some."""
    told = explain_keys(plain(session))

    assert (None, ()) == (told.declared, told.steps)
    assert "Declare them with key_by" in told.remedy
    with pytest.raises(KeysLostError, match="no keys were declared"):
        require_keys(plain(session))


def test_a_report_is_shown_in_a_notebook_and_turns_into_json(session: SparkSession) -> None:
    """As every report does."""
    told = explain_keys(keyed(session).drop("k2"))

    assert "<td>partition key</td><td>k1, k2</td><td>k1</td>" in told._repr_html_()
    assert ["k2"] == json.loads(json.dumps(told.to_dict()))["keys"]["lost"]
    assert str(told) == repr(told)


@pytest.mark.parametrize(
    "step, order, link",
    [
        (lambda c: c.df, "columns", "a batch, whose rows have no order of arrival"),
        (lambda c: c.df.groupBy("k1").count(), "none", "aggregate"),
        (lambda c: c.df.sort("v").groupBy("k1").count().repartition(2), "none", "aggregate"),
    ],
)
def test_a_batch_has_no_order_of_arrival(
    session: SparkSession, step: Callable[[Case], DataFrame], order: str, link: str
) -> None:
    """Whatever is done, only order columns can tell which row is newer."""
    told = explain_keys(step(tried(session)))

    assert (order, link) == (told.order, told.weakest_link)
    assert f"Weakest link: {link}." in told.ordering


def stream(spark: SparkSession) -> DataFrame:
    """Give a stream without keys."""
    return (
        spark.readStream.format("rate")
        .load()
        .selectExpr("value AS k", "timestamp AS at", "value % 2 = 0 AS gone")
    )


def table(df: DataFrame) -> DataFrame:
    """Give a table to join with, which Spark may find small or not."""
    return df.sparkSession.range(3).withColumnRenamed("id", "k")


def within_watermark(df: DataFrame) -> DataFrame:
    """Drop duplicates for some time."""
    return df.withWatermark("at", "1 hour").dropDuplicatesWithinWatermark(["gone"])


def in_table(df: DataFrame) -> DataFrame:
    """Join with a table by a query inside a filter."""
    df.createOrReplaceTempView("changes")
    return df.sparkSession.sql("SELECT * FROM changes WHERE k IN (SELECT id FROM range(3))")


@pytest.mark.parametrize(
    "before, after, order, link",
    [
        (None, None, "arrival", ""),
        (None, lambda df: df.drop("k").where("gone"), "none", ""),
        (None, lambda df: df.withColumnRenamed("k", "id").where("gone"), "arrival", ""),
        (None, lambda df: df.repartition(2), "columns", "repartition"),
        (lambda df: df.repartition(2), None, "columns", "repartition"),
        (None, lambda df: df.dropDuplicates(["at"]), "columns", "dropDuplicates"),
        (lambda df: df.dropDuplicates(["at"]), None, "columns", "dropDuplicates"),
        (None, within_watermark, "columns", "dropDuplicatesWithinWatermark"),
        (None, lambda df: df.limit(3), "columns", "limit"),
        (None, lambda df: df.join(table(df), "k"), "columns", "join (Inner)"),
        (lambda df: df.join(table(df), "k", "left"), None, "columns", "join (LeftOuter)"),
        (None, lambda df: df.join(table(df), "k", "left_semi"), "columns", "join (LeftSemi)"),
        (None, in_table, "columns", "filter"),
        (lambda df: df.union(df), None, "inputs", "union"),
        (lambda df: df.union(df.repartition(2)), None, "columns", "repartition"),
        (lambda df: df.union(df), lambda df: df.repartition(2), "columns", "repartition"),
        (
            lambda df: df.groupBy("k", "at", "gone").count(),
            lambda df: df.repartition(2),
            "none",
            "aggregate",
        ),
    ],
)
def test_a_stream_is_as_ordered_as_its_weakest_link(
    spark: SparkSession,
    before: Callable[[DataFrame], DataFrame] | None,
    after: Callable[[DataFrame], DataFrame] | None,
    order: str,
    link: str,
) -> None:
    """From its source on, and so also by what was done before keys were declared."""
    df = stream(spark)
    df = key_by(before(df) if before else df, "k", cdc=True, deleted="gone", order_by="at")
    told = explain_keys(after(df) if after else df)

    if order != "none" or link:
        assert (order, link) == (told.order, told.weakest_link)
    else:  # the order that a source keeps outlives the key column: the column alone is lost
        assert ("arrival", "") == (told.order, told.weakest_link)
        assert not told.keys


def test_a_union_of_keyed_frames_is_ordered_inside_each(spark: SparkSession) -> None:
    """Rows of a key come in their order from each input, and nobody knows how the inputs mix."""
    one, other = (key_by(stream(spark), "k") for _ in range(2))
    told = explain_keys(union_keyed(one, other))

    assert ("inputs", "union") == (told.order, told.weakest_link)
