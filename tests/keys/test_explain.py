"""Saying what became of keys: which were lost where, how to get them back, what orders rows."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from keyed import KEY, WHOLE, Case, keyed, plain, static, tried
from mirrorlib.errors import KeysLostError
from mirrorlib.keys.declare import key_by, union_keyed
from mirrorlib.keys.read import explain_keys, require_keys

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def test_whole_keys_are_told_as_they_are(session: SparkSession) -> None:
    """Nothing was lost, and nothing has to be done."""
    told = explain_keys(keyed(session).where("v > 1"))

    assert told.ok
    assert WHOLE == told.keys == told.declared
    assert "" == told.trouble
    assert "partition key    k1, k2    k1, k2" in str(told)


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
    assert "key_by(df, ['k1', 'k2'], cdc=True, deleted='d', order_by=['ts'])" in told.remedy
    assert told.remedy in str(told)


def test_keys_that_are_needed_and_lost_raise(session: SparkSession) -> None:
    """The error says what the report says."""
    with pytest.raises(KeysLostError) as raised:
        require_keys(keyed(session).drop("k2"))

    assert "keys were lost: select: column k2 (dropped or overwritten)" == raised.value.reason
    assert "key_by(df, ['k1', 'k2'], cdc=True" in str(raised.value)


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


@pytest.mark.parametrize(
    "before, after, order, link",
    [
        (None, None, "arrival", ""),
        (None, lambda df: df.drop("k").where("gone"), "none", ""),
        (None, lambda df: df.withColumnRenamed("k", "id").where("gone"), "arrival", ""),
        (None, lambda df: df.repartition(2), "columns", "repartition"),
        (lambda df: df.repartition(2), None, "columns", "repartition"),
        (lambda df: df.union(df), None, "inputs", "union"),
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
