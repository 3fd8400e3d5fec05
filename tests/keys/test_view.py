"""The current view: one live row for each primary key."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from keyed import KEY, WHOLE, keyed, plain
from mirrorlib.errors import KeysError, KeysLostError
from mirrorlib.keys.declare import key_by
from mirrorlib.keys.read import keys_of
from mirrorlib.keys.tags import tag_columns
from mirrorlib.keys.value import Keys
from mirrorlib.keys.view import current_view

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.smoke

DOCUMENTED = [
    ("Key1", "firstVal", False, 1),
    ("Key2", "secondVal", False, 2),
    ("Key1", "thirdVal", True, 3),
    ("Key2", None, False, 4),
]


def documented(session: SparkSession) -> DataFrame:
    """Give the example of the source page, with the order in which rows were streamed."""
    return session.createDataFrame(DOCUMENTED, "Key string, Value string, Deleted boolean, row int")


def rows(df: DataFrame) -> list[tuple[object, ...]]:
    """Return rows in the order of their texts."""
    return sorted((tuple(row) for row in df.collect()), key=repr)


def test_the_documented_example_gives_its_result(session: SparkSession) -> None:
    """The newest row of Key1 says that it is deleted; that of Key2 counts whole, its NULL included."""
    df = key_by(documented(session), "Key", cdc=True, deleted="Deleted")

    assert [("Key2", None, False)] == rows(current_view(df, arrival="row").drop("row"))


def test_without_a_deletion_column_nothing_is_deleted(session: SparkSession) -> None:
    """The column is then one like any other."""
    df = key_by(documented(session), "Key", cdc=True)

    assert [("Key1", "thirdVal", True), ("Key2", None, False)] == rows(
        current_view(df, arrival=["row"]).drop("row")
    )


def test_the_order_columns_count_before_arrival(session: SparkSession) -> None:
    """A row that came late and is older does not count; where they are equal, arrival decides; NULL is the oldest."""
    changes = [
        ("a", 2, 1, "new"),
        ("a", 1, 2, "late"),
        ("b", 1, 1, "first"),
        ("b", 1, 2, "second"),
        ("c", None, 2, "unknown"),
        ("c", 0, 1, "known"),
    ]
    df = key_by(
        session.createDataFrame(changes, "k string, at int, came int, v string"),
        "k",
        cdc=True,
        order_by="at",
    )

    assert [("a", "new"), ("b", "second"), ("c", "known")] == rows(
        current_view(df, arrival="came").select("k", "v")
    )


def test_an_older_delete_deletes_nothing(session: SparkSession) -> None:
    """Only the newest row's word counts, and NULL says nothing."""
    changes = [
        ("a", 1, True),
        ("a", 2, False),
        ("b", 1, False),
        ("b", 2, None),
        ("c", 1, False),
        ("c", 2, True),
    ]
    df = key_by(
        session.createDataFrame(changes, "k string, at int, gone boolean"),
        "k",
        cdc=True,
        deleted="gone",
        order_by="at",
    )

    assert [("a", 2, False), ("b", 2, None)] == rows(current_view(df))


def test_the_view_has_its_keys_and_is_its_own(session: SparkSession) -> None:
    """Its primary key is unique, and resolving it again changes nothing, even after a filter."""
    view = current_view(keyed(session))

    assert WHOLE == keys_of(view)
    assert keys_of(view).unique
    assert rows(view.where("v > 30")) == rows(current_view(view.where("v > 30")))
    assert not keys_of(view.drop("k2")).unique


@pytest.mark.parametrize(
    "lose, error",
    [
        (lambda df: df.drop("k2"), "keys were lost: select: column k2"),
        (lambda df: df.limit(2), "keys were lost: limit: primary key"),
        (lambda df: df.drop("ts"), "keys were lost: select: column ts"),
        (lambda df: key_by(df, KEY), "no primary key was declared"),
    ],
    ids=["part of the key", "limit", "order column", "partition key only"],
)
def test_a_changelog_without_its_whole_key_is_refused(
    session: SparkSession, lose: object, error: str
) -> None:
    """A coarser key would merge distinct records."""
    with pytest.raises(KeysLostError, match=error):
        current_view(lose(keyed(session)), arrival="v")  # type: ignore[operator]  # a function


def test_a_changelog_without_any_order_is_refused(session: SparkSession) -> None:
    """Rows have no order in Spark."""
    with pytest.raises(KeysError, match="nothing tells which row of a key is newer"):
        current_view(key_by(plain(session), KEY, cdc=True))


def test_arrival_has_to_be_a_column(session: SparkSession) -> None:
    """A typing error is no order."""
    with pytest.raises(
        KeysError, match="column when: the order columns name one that is not there"
    ):
        current_view(keyed(session), arrival="when")
    with pytest.raises(Exception, match="INVALID_ORDERING_TYPE"):  # on Connect once it is asked
        current_view(keyed(session).selectExpr("*", "map(1, v) AS m"), arrival="m").collect()


def test_a_key_that_is_null_fails_the_query(session: SparkSession) -> None:
    """It is neither dropped nor taken for one record."""
    df = key_by(
        session.createDataFrame([(None, 1), (1, 2)], "k int, at int"), "k", cdc=True, order_by="at"
    )

    with pytest.raises(Exception, match="MIRRORLIB_NULL_KEY"):  # Py4J's own up to Spark 3.5
        current_view(df).collect()


def test_where_each_key_is_one_row_null_is_one_too(session: SparkSession) -> None:
    """There is nothing to resolve, so no rows of unknown keys can become one."""
    table = session.createDataFrame([(None, 1), (1, 2)], "k int, v int")
    df = tag_columns(table, Keys(partition=("k",), primary=("k",), unique=True), "read_table")

    assert rows(table) == rows(current_view(df))


def test_a_column_of_our_name_is_refused(session: SparkSession) -> None:
    """Nothing of the user's is overwritten."""
    for name in ("_mirror_rank", "_MIRROR_RANK"):
        df = key_by(plain(session).withColumnRenamed("w", name), KEY, cdc=True, order_by="ts")

        with pytest.raises(KeysError, match=name):
            current_view(df)


def test_a_stream_is_sent_on_to_where_one_is_kept(spark: SparkSession) -> None:
    """It has no end at which a view could be read."""
    stream = spark.readStream.format("rate").load()

    with pytest.raises(KeysError, match="maintain_current_view"):
        current_view(key_by(stream, "value", cdc=True, order_by="timestamp"))
