"""Streams of a change feed: where they begin, how they go on from their checkpoint, and what stops them."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import mirrorlib
from feeds import FEED, Table
from mirrorlib.delta.sessions import FULL_WIDENING, spark_generation
from mirrorlib.errors import FeedError, FeedExpiredError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CHECKPOINTED = f"{FEED}, 'delta.checkpointInterval' = '1'"


class Query:
    """A query that writes a table's changes to files, and ends when it has all there is."""

    def __init__(self, table: Table, name: str = "out") -> None:
        self.table, self.out = table, f"{table.path}-{name}"
        self.checkpoint = f"{self.out}-checkpoint"

    def run(self, **options: Any) -> list[int]:
        """Take what there is; give the ids of all that was taken so far."""
        spark = self.table.spark
        stream = mirrorlib.stream_feed(
            spark, self.table.path, **{"checkpoint": self.checkpoint, **options}
        )
        query = stream.selectExpr("CAST(id AS bigint) AS id").writeStream.format("parquet")
        query = query.option("checkpointLocation", self.checkpoint).trigger(availableNow=True)
        query.start(self.out).awaitTermination()
        return sorted(row["id"] for row in spark.read.parquet(self.out).collect())


def forget(table: Table, *versions: int) -> None:
    """Remove versions from the log, as Delta's own cleaning does, checkpoints and all."""
    for version in versions:
        for file in Path(table.path, "_delta_log").glob(f"{version:020d}.*"):
            file.unlink()


@pytest.fixture
def table(spark: SparkSession, tmp_path: Path) -> Table:
    """Give a table of two rows, a commit each."""
    return Table(spark, tmp_path / "t", "id bigint, v string", CHECKPOINTED).run(
        "INSERT INTO {t} VALUES (1, 'a')", "INSERT INTO {t} VALUES (2, 'b')"
    )


@pytest.mark.thorough("rows")
@pytest.mark.parametrize("after", [0, None], ids=["version", "rows"])
def test_a_stream_goes_on_from_its_checkpoint_when_its_beginning_is_gone(
    table: Table, after: int | None
) -> None:
    """What it has taken need not be there any more, so nothing is asked of the version that it began after."""
    query = Query(table)
    assert [1, 2] == query.run(after=after)
    table.run("INSERT INTO {t} VALUES (3, 'c')")
    forget(table, 0, 1)

    assert [1, 2, 3] == query.run(after=after)
    if after is not None:
        with pytest.raises(FeedExpiredError, match="no longer holds version 1"):
            mirrorlib.stream_feed(table.spark, table.path, after=after)
    table.run("INSERT INTO {t} VALUES (4, 'd')")
    assert [1, 2, 3, 4] == query.run(after=after)
    assert [1, 2, 3, 4] == query.run(after=after)


def test_a_stream_leaves_out_files_that_are_not_asked_for(
    spark: SparkSession, tmp_path: Path
) -> None:
    """By their paths, such as those of a partition."""
    made = f"CREATE TABLE {{t}} (id bigint, p string) USING delta PARTITIONED BY (p) TBLPROPERTIES ({FEED})"
    first, second = (f"INSERT INTO {{t}} VALUES ({one}, 'a'), ({one + 1}, 'b')" for one in (1, 3))
    table = Table.at(spark, tmp_path / "p").run(made, first, second)

    assert [1, 3] == Query(table).run(after=0, exclude_regex="p=b/")


@pytest.mark.thorough
def test_a_stream_that_has_stood_for_too_long_is_told(table: Table) -> None:
    """Before it begins, with where it stands and from where on it could begin anew."""
    query = Query(table)
    query.run(after=0)
    table.run("INSERT INTO {t} VALUES (3, 'c')", "INSERT INTO {t} VALUES (4, 'd')")
    forget(table, 0, 1, 2, 3)

    with pytest.raises(
        FeedExpiredError, match="stands at version 3, and the log no longer"
    ) as found:
        query.run(after=0)
    assert 4 == found.value.first_readable
    assert "new checkpoint" in str(found.value)
    assert [4] == Query(table, "anew").run(after=3)


@pytest.mark.thorough
def test_a_checkpoint_without_progress_begins_where_it_is_told(table: Table) -> None:
    """Whether there is nothing at all, or a first batch that did not end."""
    query = Query(table)
    assert [2] == query.run(after=1)
    shutil.rmtree(query.out)
    shutil.rmtree(f"{query.checkpoint}/commits")  # killed before it was written

    assert [2] == query.run(after=1)
    with pytest.raises(FeedError, match="beyond the newest version"):
        Query(table, "other").run(after=9)


@pytest.mark.thorough
def test_a_stream_of_a_table_made_anew_is_told(table: Table) -> None:
    """Its versions have the numbers of others."""
    query = Query(table)
    query.run(after=0)
    shutil.rmtree(table.path)
    Table(table.spark, Path(table.path), "id bigint, v string").run(
        "INSERT INTO {t} VALUES (7, 'x')"
    )

    with pytest.raises(FeedExpiredError, match="before it was made anew") as found:
        query.run(after=0)
    assert 0 == found.value.first_readable


@pytest.mark.thorough
def test_a_stream_cannot_span_a_renamed_column(table: Table) -> None:
    """Begun or still to begin, it is told what to read first, and where to go on."""
    query = Query(table)
    query.run(after=0)
    table.run(
        "INSERT INTO {t} VALUES (3, 'c')",  # 3
        "ALTER TABLE {t} SET TBLPROPERTIES ('delta.columnMapping.mode' = 'name')",  # 4
        "ALTER TABLE {t} RENAME COLUMN v TO w",  # 5
        "INSERT INTO {t} VALUES (6, 'f')",  # 6
    )
    for checkpoint, after in ((query.checkpoint, 2), (None, 0)):
        with pytest.raises(FeedError, match="one stream cannot span") as found:
            query.run(after=0, checkpoint=checkpoint)
        assert f"Read after version {after} up to version 4" in str(found.value)
        assert 5 == found.value.first_readable
    assert [6] == Query(table, "new").run(after=4)


@pytest.mark.thorough
def test_a_stream_goes_on_over_new_columns(table: Table) -> None:
    """Rows from before have not got them."""
    query = Query(table)
    query.run(after=0)
    table.run("ALTER TABLE {t} ADD COLUMNS (n int)", "INSERT INTO {t} VALUES (3, 'c', 1)")

    assert [1, 2, 3] == query.run(after=0)


@pytest.mark.thorough
@pytest.mark.skipif(spark_generation() < FULL_WIDENING, reason="Delta's streams do not widen")
def test_a_stream_goes_on_over_wider_types(spark: SparkSession, tmp_path: Path) -> None:
    """Begun before, or to begin before: what was narrower is told in the wider type."""
    properties = f"{FEED}, 'delta.enableTypeWidening' = 'true'"
    table = Table(spark, tmp_path / "t", "id int", properties).run("INSERT INTO {t} VALUES (1)")
    query = Query(table)
    query.run(after=0)
    table.run(
        "INSERT INTO {t} VALUES (2)",
        "ALTER TABLE {t} ALTER COLUMN id TYPE bigint",
        "INSERT INTO {t} VALUES (10000000000)",
    )

    assert [2, 10**10] == Query(table, "new").run(after=1)
    assert [1, 2, 10**10] == query.run(after=0)
    assert {"bigint"} == {
        dict(mirrorlib.stream_feed(spark, table.path, **options).dtypes)["id"]
        for options in ({"after": 0}, {"checkpoint": query.checkpoint})
    }
