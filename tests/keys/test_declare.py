"""Declaring keys: what may be one, and what is said when it may not."""

from __future__ import annotations

import contextlib
import threading
from typing import TYPE_CHECKING

import pytest

from keyed import KEY, NONE, ROWS, SCHEMA, WHOLE, keyed, plain
from mirrorlib.errors import KeysError
from mirrorlib.keys.declare import key_by, union_keyed
from mirrorlib.keys.read import keys_of
from mirrorlib.keys.tags import untag
from mirrorlib.keys.value import Keys

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ALL = (
    "a_binary binary, a_boolean boolean, a_byte tinyint, a_date date, a_decimal decimal(9, 2), a_double double, "
    "a_float float, a_integer int, a_long bigint, a_short smallint, a_string string, a_timestamp timestamp, "
    "a_ntz timestamp_ntz, a_array array<int>, a_map map<int, int>, a_struct struct<a: int>"
)
MAY_BE_KEY = {
    "binary",
    "boolean",
    "byte",
    "double",
    "float",
    "integer",
    "long",
    "short",
    "string",
    "timestamp",
}
MAY_ORDER = {"byte", "date", "decimal", "integer", "long", "short", "string", "timestamp"}
KINDS = [part.removeprefix("a_").partition(" ")[0] for part in ALL.split(", a_")]


@pytest.mark.parametrize("kind", KINDS)
def test_types_of_keys_are_those_of_the_source(spark: SparkSession, kind: str) -> None:
    """A key column, an order column and the deletion column each have their own."""
    df = spark.createDataFrame([], f"k int, {ALL}")
    name = f"a_{kind}"

    for allowed, declare in (
        (kind in MAY_BE_KEY, lambda: key_by(df, name)),
        (kind in MAY_ORDER, lambda: key_by(df, "k", cdc=True, order_by=name)),
        (kind == "boolean", lambda: key_by(df, "k", cdc=True, deleted=name)),
    ):
        if allowed:
            assert keys_of(declare())
        else:
            with pytest.raises(
                KeysError, match=f"column {name}: .* cannot have its type"
            ) as refused:
                declare()
            assert "Cast it before" in str(refused.value)


@pytest.mark.parametrize(
    "columns, options, reason",
    [
        ([], {}, "no key columns are named"),
        (["k1", "k1"], {}, "name a column twice"),
        (["k1", "K1"], {}, "name a column twice"),
        (["k3"], {}, "the key columns name one that is not there"),
        (["k1"], {"deleted": "d"}, "belong to a primary key"),
        (["k1"], {"order_by": "ts"}, "belong to a primary key"),
        (["k1"], {"cdc": True, "deleted": "x"}, "the deletion column name one"),
        (["k1"], {"cdc": True, "order_by": ["x"]}, "the order columns name one"),
        (["k1"], {"cdc": True, "order_by": ["ts", "ts"]}, "name a column twice"),
        (["k1"], {"cdc": True, "order_by": ["k1"]}, "a key and the order column"),
        (["k1", "d"], {"cdc": True, "deleted": "d"}, "a key and the deletion column"),
    ],
)
def test_what_does_not_go_together_is_refused(
    spark: SparkSession, columns: list[str], options: dict[str, object], reason: str
) -> None:
    """Each violation says what is wrong, and what to do."""
    with pytest.raises(KeysError, match=reason) as refused:
        key_by(plain(spark), columns, **options)  # type: ignore[arg-type]  # as the case has them

    assert str(refused.value).endswith(".")


def test_a_name_is_found_as_spark_finds_it(session: SparkSession) -> None:
    """Case does not count where no other column differs by it alone; one name need not be a list."""
    df = key_by(plain(session), "K1", cdc=True, deleted="D", order_by="Ts")

    assert Keys(partition=("k1",), primary=("k1",), deleted="d", order_by=("ts",)) == keys_of(df)


def test_keys_change_no_row_and_no_column(session: SparkSession) -> None:
    """They are a declaration."""
    df = keyed(session)

    assert plain(session).columns == df.columns
    assert [tuple(row) for row in plain(session).collect()] == [tuple(row) for row in df.collect()]


def test_what_a_column_says_of_itself_is_kept(session: SparkSession) -> None:
    """A comment, a watermark's delay: a tag stands beside them, and goes without them."""
    from pyspark.sql import functions as f

    df = plain(session).select(f.col("k1").alias("k1", metadata={"comment": "an id"}), "k2")
    tagged = key_by(df, "k1")

    assert "an id" == tagged.schema["k1"].metadata["comment"]
    assert {"comment": "an id"} == untag(tagged).schema["k1"].metadata
    assert NONE == keys_of(untag(tagged))


def test_asking_leaves_the_session_as_it_was(session: SparkSession) -> None:
    """No configuration changes, whether it was set or not, and no view stays."""
    name = "spark.sql.debug.maxToStringFields"
    df = keyed(session)
    for value in (None, "7"):
        if value is not None:
            session.conf.set(name, value)
        keys_of(df)

        assert value == session.conf.get(name, None)
    session.conf.unset(name)


def test_asking_fails_without_a_trace(session: SparkSession) -> None:
    """A query that cannot be analyzed leaves the session as it was, too."""
    from pyspark.errors import PySparkException

    name = "spark.sql.debug.maxToStringFields"
    df = keyed(session)
    df.createOrReplaceTempView("short_lived")
    late = session.table("short_lived")
    session.catalog.dropTempView("short_lived")
    with contextlib.suppress(
        PySparkException
    ):  # on a Spark Connect server the view is looked up only now
        keys_of(late)

    assert session.conf.get(name, None) is None


def test_asking_runs_no_job(spark: SparkSession) -> None:
    """Whatever the transformation is, its functions are looked up without running anything."""
    tracker = spark.sparkContext.statusTracker()
    spark.sparkContext.setJobGroup("asking", "asking")
    keys_of(keyed(spark).selectExpr("k1", "k2", "upper(w) AS w").groupBy("k1", "k2").count())
    spark.sparkContext.setLocalProperty("spark.jobGroup.id", None)  # type: ignore[arg-type]  # that clears it

    assert [] == list(tracker.getJobIdsForGroup("asking"))


def test_threads_ask_at_the_same_time(session: SparkSession) -> None:
    """Each gets the keys, and the configuration is what it was when all are done."""
    df = keyed(session)
    found: list[Keys] = []
    threads = [
        threading.Thread(target=lambda: found.append(keys_of(df.where("v > 1")))) for _ in range(6)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert [WHOLE] * 6 == found
    assert session.conf.get("spark.sql.debug.maxToStringFields", None) is None


def test_nothing_cannot_be_put_together() -> None:
    """A union needs a frame."""
    with pytest.raises(KeysError, match="nothing to put together"):
        union_keyed()


@pytest.mark.parametrize(
    "one, other",
    [("string", "int"), ("long", "double"), ("int", "long"), ("timestamp", "string")],
)
def test_frames_whose_key_columns_differ_in_type_are_not_put_together(
    session: SparkSession, one: str, other: str
) -> None:
    """Spark would cast: "01" and "1" became one key, as would numbers that a double cannot tell apart."""
    frames = [
        key_by(session.createDataFrame([], f"k1 int, k2 {kind}, v long"), ["k1", "k2"])
        for kind in (one, other)
    ]
    found = ", ".join(frame.schema["k2"].dataType.simpleString() for frame in frames)

    with pytest.raises(KeysError, match=f"column k2: .* not the same type .*found {found}"):
        union_keyed(*frames)


def test_frames_whose_columns_differ_are_not_put_together(session: SparkSession) -> None:
    """The column is named; letters' case is no difference."""
    one, other = keyed(session), keyed(session).withColumnRenamed("v", "V")

    assert Keys(partition=KEY) == keys_of(union_keyed(one, other))
    with pytest.raises(KeysError, match="column v: a column is not in all frames"):
        union_keyed(one, other.drop("V"))


def test_columns_that_are_no_keys_may_be_widened(session: SparkSession) -> None:
    """Only in the keys a cast does harm."""
    frames = [
        key_by(session.createDataFrame([], f"k1 int, v {kind}"), "k1") for kind in ("int", "long")
    ]

    assert Keys(partition=("k1",)) == keys_of(union_keyed(*frames))


def test_a_backfill_is_put_together_and_keyed_anew(session: SparkSession) -> None:
    """The recipe: union, then key_by."""
    old = key_by(session.createDataFrame(ROWS[:2], SCHEMA), KEY)
    new = key_by(session.createDataFrame(ROWS[2:], SCHEMA), KEY)
    both = union_keyed(old, new)

    assert Keys(partition=KEY) == keys_of(both)
    assert WHOLE == keys_of(key_by(both, KEY, cdc=True, deleted="d", order_by="ts"))
    assert len(ROWS) == both.count()
