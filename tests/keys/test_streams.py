"""Keys of streams: what the rules keep, on both kinds of Spark; nothing runs but for the batch inside `foreachBatch`."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from mirrorlib.keys.declare import key_by, propagate
from mirrorlib.keys.read import explain_keys, keys_of
from mirrorlib.keys.value import Keys

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    Step = Callable[[DataFrame, SparkSession], DataFrame]

WHOLE = Keys(partition=("k",), primary=("k",), deleted="gone", order_by=("at",))
PARTITION = Keys(partition=("k",))
NONE = Keys()


def stream(session: SparkSession) -> DataFrame:
    """Give a stream without keys."""
    return (
        session.readStream.format("rate")
        .load()
        .selectExpr("value AS k", "timestamp AS at", "value % 2 = 0 AS gone")
    )


def keyed(session: SparkSession) -> DataFrame:
    """Give a stream with its keys."""
    return key_by(stream(session), "k", cdc=True, deleted="gone", order_by="at")


def sliding(df: DataFrame, how: str) -> DataFrame:
    """Count by key and time."""
    from pyspark.sql import functions as f

    time = f.session_window("at", "5 minutes") if how == "session" else f.window("at", "5 minutes")
    return df.withWatermark("at", "10 minutes").groupBy("k", time).count()


def stateful(df: DataFrame) -> DataFrame:
    """Send groups through Python, with state."""
    return df.groupBy("k").applyInPandasWithState(
        lambda *_: [], "k bigint", "n bigint", "append", "NoTimeout"
    )


def transformed(df: DataFrame, session: SparkSession) -> DataFrame:
    """Send groups through a processor with state of its own."""
    if session.version < "4":
        pytest.skip("transformWithState came with Spark 4")
    from pyspark.sql.streaming import StatefulProcessor

    class Same(StatefulProcessor):
        def init(self, handle: object) -> None:
            """Keep nothing."""

        def handleInputRows(self, *given: Any) -> Any:  # noqa: N802  # Spark's name
            """Give rows as they come, of a key, rows and timers."""
            yield from given[1]

    return df.groupBy("k").transformWithStateInPandas(
        Same(), df.drop("gone").schema, "Append", "None"
    )


def joined(how: str) -> Step:
    """Join with another stream."""

    def join(df: DataFrame, session: SparkSession) -> DataFrame:
        other = stream(session).selectExpr("k", "at AS other")
        return df.crossJoin(other.drop("k")) if how == "cross" else df.join(other, "k", how)

    return join


STEPS: dict[str, tuple[Step, Keys]] = {
    "nothing": (lambda df, _: df, WHOLE),
    "filter and rename": (
        lambda df, _: df.where("k > 1").withColumnRenamed("k", "id"),
        Keys(partition=("id",), primary=("id",), deleted="gone", order_by=("at",)),
    ),
    "watermark on the order column": (lambda df, _: df.withWatermark("at", "1 hour"), WHOLE),
    "watermark, then key_by": (
        lambda _, s: key_by(
            stream(s).withWatermark("at", "1 hour"), "k", cdc=True, deleted="gone", order_by="at"
        ).where("k > 1"),
        WHOLE,
    ),
    "repartition": (lambda df, _: df.repartition(2, "k"), WHOLE),
    "dropDuplicates": (
        lambda df, _: df.withWatermark("at", "1 hour").dropDuplicates(["k"]),
        PARTITION,
    ),
    "dropDuplicatesWithinWatermark": (
        lambda df, _: df.withWatermark("at", "1 hour").dropDuplicatesWithinWatermark(["k"]),
        PARTITION,
    ),
    "window": (lambda df, _: sliding(df, "window"), PARTITION),
    "session": (lambda df, _: sliding(df, "session"), PARTITION),
    "join with a table": (
        lambda df, s: df.join(s.createDataFrame([(1, "x")], "k bigint, s string"), "k", "left"),
        PARTITION,
    ),
    "semi join with a table": (
        lambda df, s: df.join(s.createDataFrame([(1,)], "k bigint"), "k", "left_semi"),
        WHOLE,
    ),
    **{
        f"{how} join with a stream": (joined(how), NONE)
        for how in ("inner", "left", "left_semi", "left_anti", "cross")
    },
    "union": (lambda df, s: df.union(stream(s)), NONE),
    "state": (lambda df, _: stateful(df), NONE),
    "transformWithState": (transformed, NONE),
}


@pytest.mark.smoke
@pytest.mark.thorough("*-left_anti *", "connect-left *", "connect-cross *")
@pytest.mark.parametrize("step, expected", STEPS.values(), ids=STEPS)
def test_a_stream_keeps_what_the_rules_keep(
    session: SparkSession, step: Step, expected: Keys
) -> None:
    """As a batch does."""
    assert expected == keys_of(step(keyed(session), session))


@pytest.mark.smoke
@pytest.mark.usefixtures("callbacks")
@pytest.mark.thorough("connect")
def test_the_batch_inside_a_stream_gets_its_keys_by_propagate(
    session: SparkSession, tmp_path: Path
) -> None:
    """26: its plan shows nothing of the stream's, though its columns have the tags.

    On Spark Connect a process beside the server looks at it, so what is found goes through a file.
    """
    columns, told = "k int, gone boolean", tmp_path / "found"
    rows = session.createDataFrame([(1, False), (2, True)], columns)
    rows.write.parquet(str(tmp_path / "source"))
    source = session.readStream.schema(columns).parquet(str(tmp_path / "source"))
    df = key_by(source, "k", cdc=True, deleted="gone")
    keys = keys_of(df)

    def look(batch: DataFrame, _: int) -> None:
        tagged = any(field.metadata for field in batch.schema.fields)
        found = (tagged, keys_of(batch).to_json(), keys_of(propagate(keys, batch)).to_json())
        with told.open("a") as file:
            file.write(json.dumps([*found, batch.count()]) + "\n")

    query = (
        df.writeStream.foreachBatch(look)
        .option("checkpointLocation", str(tmp_path / "c"))
        .trigger(availableNow=True)
    )
    query.start().awaitTermination()

    found = [json.loads(line) for line in told.read_text().splitlines()]
    assert Keys(partition=("k",), primary=("k",), deleted="gone") == keys
    assert [[True, NONE.to_json(), keys.to_json(), 2]] == found


def test_an_arrival_is_told_by_both_kinds_of_spark(session: SparkSession) -> None:
    """A stream has one, until it is shuffled."""
    assert ("arrival", "") == (
        explain_keys(keyed(session)).order,
        explain_keys(keyed(session)).weakest_link,
    )
    assert "columns" == explain_keys(keyed(session).repartition(2)).order


@pytest.mark.thorough("connect-inner")
@pytest.mark.parametrize("how", ["inner", "left_semi"])
def test_two_streams_that_are_joined_have_no_order(session: SparkSession, how: str) -> None:
    """Whether keys were declared before the join, and are lost, or are declared behind it."""
    link = "join (Inner)" if how == "inner" else "join (LeftSemi)"
    join = joined(how)
    behind = explain_keys(key_by(join(stream(session), session), "k"))

    assert link in str(explain_keys(join(keyed(session), session)).steps)
    assert (PARTITION, "none", link) == (behind.keys, behind.order, behind.weakest_link)
