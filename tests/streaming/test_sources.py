"""Feeds and landing zones as sources of Spark's: the same rows as `read_feed` and the files have, or an error that names it."""

from __future__ import annotations

import os
import shutil
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import mirrorlib
from feeds import COLUMNS, FEED, NULLS, ROW, Table
from mirrorlib.errors import FeedExpiredError, StoreError
from mirrorlib.names import TableName

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from tests.zones import ZoneWriter

ELSEWHERE = "mirrorlib.read_feed"  # what an error says to read it with


@pytest.fixture(autouse=True)
def sources(spark: SparkSession) -> None:
    """Register them."""
    mirrorlib.register_sources(spark)


def feed(spark: SparkSession, path: str, **bounds: Any) -> DataFrame:
    """Read a window by the source."""
    return spark.read.format("mirror_feed").options(**bounds).load(path)


def count_rows(frame: DataFrame) -> Counter[str]:
    """Count rows as Spark writes them: Python's moments do not go everywhere."""
    return Counter(row[0] for row in frame.selectExpr("to_csv(struct(*))").collect())


def compare(table: Table, after: int, until: int) -> bool:
    """See that a window reads as `read_feed` has it; False where it says to read it so."""
    from pyspark.errors import PySparkException

    wanted = table.read(after=after, until=until, keys=[])
    found = feed(table.spark, table.path, after=after, until=until)
    assert wanted.dtypes == found.dtypes
    try:
        rows = count_rows(found)
    except PySparkException as exc:
        if ELSEWHERE not in str(exc):
            raise
        return False
    assert count_rows(wanted) == rows
    return True


@pytest.mark.thorough
@pytest.mark.parametrize("vectors", ["true", "false"])
def test_a_window_is_what_read_feed_has_or_an_error_names_it(
    spark: SparkSession, tmp_path: Path, vectors: str
) -> None:
    """Whatever was committed: all types, columns that come later, rows that go with their files."""
    properties = f"{FEED}, 'delta.enableDeletionVectors' = '{vectors}'"
    table = Table(spark, tmp_path / "t", COLUMNS, properties).run(
        "INSERT INTO {t} SELECT /*+ COALESCE(1) */ * FROM VALUES "
        f"{ROW.format(id=1)}, {NULLS.format(id=2)}, {ROW.format(id=3)}",
        "UPDATE {t} SET text = 'other' WHERE id = 1",
        "DELETE FROM {t} WHERE id = 3",
        "ALTER TABLE {t} ADD COLUMNS (later string)",
        "MERGE INTO {t} USING (SELECT explode(array(2, 7)) AS id) s ON {t}.id = s.id "
        "WHEN MATCHED THEN UPDATE SET later = 'x' WHEN NOT MATCHED THEN INSERT (id, later) VALUES (s.id, 'y')",
        "OPTIMIZE {t}",
        "DELETE FROM {t}",
    )  # fmt: skip

    assert [True] * 4 == [compare(table, *one) for one in ((-1, 2), (3, 3), (3, 5), (5, 6))]
    # Rows that go by a vector have no change file, nor have those that go with their file.
    assert [vectors == "false", False] == [compare(table, *one) for one in ((-1, 6), (6, 7))]


@pytest.mark.thorough
@pytest.mark.parametrize(
    "columns, more",
    [
        ("id int, `v v` string", ", 'delta.columnMapping.mode' = 'name'"),
        ("id int, v string", ") PARTITIONED BY (v"),
        ("id int, v string NOT NULL", ""),
        ("id int, v struct<a: string>", ""),
        ("id int, v string", ""),
    ],
    ids=["mapped", "partitioned", "required", "nested", "plain"],
)
def test_a_table_that_takes_more_than_its_files_is_left_to_spark(
    spark: SparkSession, tmp_path: Path, columns: str, more: str
) -> None:
    """Never are rows other than `read_feed` has them."""
    table = Table(spark, tmp_path / "t", columns, FEED + more)
    value = "named_struct('a', 'x')" if "struct" in columns else "'x'"
    table.run(f"INSERT INTO {{t}} VALUES (1, {value})", "DELETE FROM {t} WHERE id = 1")

    assert compare(table, 0, 1) is (more == "" and columns == "id int, v string")


@pytest.mark.thorough
def test_a_table_with_a_widened_column_is_left_to_spark(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Before, over and behind the change."""
    widening = f"{FEED}, 'delta.enableTypeWidening' = 'true'"
    table = Table(spark, tmp_path / "t", "id int, v smallint", widening).run(
        "INSERT INTO {t} VALUES (1, 1)",
        "ALTER TABLE {t} CHANGE COLUMN v TYPE int",
        "INSERT INTO {t} VALUES (2, 100000)",
    )

    assert [False] * 3 == [compare(table, *one) for one in ((0, 1), (2, 3), (0, 3))]


@pytest.mark.thorough
def test_a_query_reads_what_came_before_columns_that_it_knows(
    spark: SparkSession, tmp_path: Path
) -> None:
    """As it repeats, when it is started again, the batch that it was at; of a table that was set back nobody knows."""
    from mirrorlib.streaming.feed_source import MirrorFeed  # Spark 4 or newer

    table = Table(spark, tmp_path / "t", "id int", FEED).run(
        "INSERT INTO {t} VALUES (1)",
        "ALTER TABLE {t} ADD COLUMNS (a string)",
        "INSERT INTO {t} VALUES (2, 'a')",
        "ALTER TABLE {t} ADD COLUMNS (b string)",
    )
    source = MirrorFeed({"path": table.path})
    reader = source.streamReader(source.schema())
    begin, end = reader.initialOffset(), reader.latestOffset()  # type: ignore[call-arg]  # ours ask for no limit

    parts = reader.partitions({**begin, "version": 0}, {**end, "version": 3})
    rows = [row for part in parts for batch in reader.read(part) for row in batch.to_pylist()]
    assert {(1, None, None), (2, "a", None)} == {(row["id"], row["a"], row["b"]) for row in rows}
    with pytest.raises(FeedExpiredError, match="put back from a backup"):
        reader.partitions({**end, "version": 9}, end)


@pytest.mark.thorough
def test_sql_selects_from_feeds_and_zones(
    spark: SparkSession, zone: ZoneWriter, target: str
) -> None:
    """A view holds what there is when it is read first; one of columns that have changed by then has to be made anew."""
    orders = zone.table("orders", keys=["id"], schema="dbo")
    orders.file([{"id": 1, "v": "a"}, {"id": 2, "v": "b"}], markers=[0, 0])
    orders.file([{"id": 1, "v": "c"}], markers=[1])
    mirrorlib.apply(spark, zone.root, target, max_files=1)
    feed, raw = f"(path '{target}/dbo/orders', after '1')", f"(path '{zone}', table 'dbo/orders')"
    for name, source in {
        "changes": f"mirror_feed OPTIONS {feed}",
        "files": f"landing_zone OPTIONS (path '{zone}')",
        "raw": f"landing_zone OPTIONS {raw}",
        "late_changes": f"mirror_feed OPTIONS {feed}",
        "late_raw": f"landing_zone OPTIONS {raw}",
    }.items():
        spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW {name} USING {source}")

    def select(query: str) -> list[tuple[Any, ...]]:
        return sorted(tuple(row) for row in spark.sql(query).collect())

    told = "SELECT _change_type, id, v FROM changes"
    updated = [("update_postimage", 1, "c"), ("update_preimage", 1, "a")]
    assert updated == select(told)
    assert [("dbo/orders", 1), ("dbo/orders", 2)] == select("SELECT table, sequence FROM files")
    ordered = "SELECT _mirror_sequence, _mirror_ordinal, __rowMarker__, id, v FROM raw"
    assert [(1, 0, 0, 1, "a"), (1, 1, 0, 2, "b"), (2, 0, 1, 1, "c")] == select(ordered)

    orders.file([{"id": 2, "v": "b", "w": 1}], markers=[1])
    mirrorlib.apply(spark, zone.root, target)
    assert updated == select(told)
    with pytest.raises(Exception, match=r"FeedError: .*make the view anew"):
        select("SELECT * FROM late_changes")
    with pytest.raises(Exception, match=r"SchemaError: .*make the view anew"):
        select("SELECT * FROM late_raw")


class Query:
    """A query that writes what a source gives to files, and ends when it has all there is."""

    def __init__(self, spark: SparkSession, source: str, out: Path, **options: Any) -> None:
        self.reader = spark.readStream.format(source).options(**options)
        self.spark, self.out, self.checkpoint = spark, str(out), f"{out}-checkpoint"

    def run(self) -> list[int]:
        """Take what there is; give the ids of all that was taken so far."""
        writer = self.reader.load().select("id").writeStream.format("parquet")
        writer = writer.option("checkpointLocation", self.checkpoint).trigger(availableNow=True)
        writer.start(self.out).awaitTermination()
        return sorted(row["id"] for row in self.spark.read.parquet(self.out).collect())


def test_a_feed_is_streamed_each_change_once(spark: SparkSession, tmp_path: Path) -> None:
    """Over restarts; not of a table that was made anew or put back; a wrong bound is called by its option."""
    table = Table(spark, tmp_path / "t", "id bigint, v string")
    table.run("INSERT INTO {t} VALUES (1, 'a')", "INSERT INTO {t} VALUES (2, 'b')")
    every = Query(spark, "mirror_feed", tmp_path / "every", path=table.path)
    assert [1, 2] == every.run()
    for option, bound, wrong in (
        ("after", "2999-01-01", "lies in the future"),
        ("until", 7, "is beyond the newest"),
    ):
        with pytest.raises(Exception, match=f"FeedError.*`{option}` {wrong}"):
            feed(spark, table.path, **{option: bound}).collect()
    with pytest.raises(Exception, match=r"FeedError.*ends before it starts"):
        feed(spark, table.path, after=2, until=1).collect()
    kept = shutil.copytree(table.path, tmp_path / "kept")
    table.run("INSERT INTO {t} VALUES (3, 'c')")
    assert [1, 2, 3] == every.run()

    shutil.rmtree(table.path)
    shutil.copytree(kept, table.path)
    table.run("INSERT INTO {t} VALUES (4, 'd')", "INSERT INTO {t} VALUES (5, 'e')")
    with pytest.raises(Exception, match=r"FeedExpiredError.*put back from a backup"):
        every.run()
    shutil.rmtree(table.path)
    Table(spark, tmp_path / "t", "id bigint, v string").run("INSERT INTO {t} VALUES (9, 'a')")
    with pytest.raises(Exception, match=r"FeedExpiredError.*made anew"):
        every.run()


@pytest.mark.thorough
def test_a_feed_is_streamed_from_a_version_on(spark: SparkSession, tmp_path: Path) -> None:
    """What came before it is left out."""
    table = Table(spark, tmp_path / "t", "id bigint")
    table.run("INSERT INTO {t} VALUES (1)", "INSERT INTO {t} VALUES (2)")
    assert [2] == Query(spark, "mirror_feed", tmp_path / "out", path=table.path, after=1).run()


@pytest.mark.thorough
def test_raw_changes_are_streamed_each_once_up_to_a_gap(
    spark: SparkSession, zone: ZoneWriter, tmp_path: Path
) -> None:
    """Over restarts; a folder that was begun anew is not taken for the one that was read."""
    orders = zone.table("orders", keys=["id"])
    for number in (1, 2, 4):
        orders.file([{"id": number}], markers=[0], number=number)
    query = Query(spark, "landing_zone", tmp_path / "out", path=str(zone), table="orders")
    assert [1, 2] == query.run()
    orders.file([{"id": 3}], markers=[0], number=3)
    assert [1, 2, 3, 4] == query.run() == query.run()

    orders.drop()
    orders.make()
    orders.metadata(keys=["id"])
    for number in range(1, 7):
        orders.file([{"id": 9 + number}], markers=[0], number=number)
        if number in (1, 6):  # behind what was read, and beyond it
            with pytest.raises(Exception, match=r"ChangeFileError.*begun anew"):
                query.run()
    zone.table("items", keys=["id"]).file([{"id": 7}], markers=[0])
    query.reader = spark.readStream.format("landing_zone").options(path=str(zone), table="items")
    with pytest.raises(Exception, match=r"LandingZoneError.*the checkpoint is of another table"):
        query.run()


def test_a_table_that_cannot_be_listed_hides_no_other(
    zone: ZoneWriter, target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The look of an apply goes on, and comes to that table again every ten seconds: the apply says what is wrong."""
    from mirrorlib.streaming import zone_source

    for name in ("a", "b"):
        zone.table(name, keys=["id"]).file([{"id": 1}])
    see_folder = zone_source.see_folder

    def refusing(store: Any, name: Any) -> Any:
        if name.folder == "a":
            msg = "cannot list a"
            raise StoreError(msg)
        return see_folder(store, name)

    reader = zone_source._FilesReader({"path": str(zone), "state": target})
    alone = zone_source._FilesReader({"path": str(zone)})
    files = alone.latestOffset()
    assert 2 == len(alone.partitions({}, files))
    sound = reader.latestOffset()
    monkeypatch.setattr(zone_source, "see_folder", refusing)
    found = reader.latestOffset()

    assert [1, 1] == [look["b"]["files"] for look in (sound, found)]
    assert {"tried"} == found["a"].keys()
    assert [] == reader.partitions(sound, found)
    unlisted = {TableName("dbo", "*"): StoreError("cannot list dbo")}
    for lists in (zone_source.list_tables, lambda _: unlisted):
        monkeypatch.setattr(zone_source, "list_tables", lists)
        for look in (alone.latestOffset, lambda: alone.partitions({}, files)):
            with pytest.raises(StoreError, match="cannot list"):  # nobody else would say it
                look()


@pytest.mark.thorough
def test_a_files_name_is_told_whatever_it_is(spark: SparkSession, zone: ZoneWriter) -> None:
    """A stray's bytes that are no text, and a moment as a number that no bigint holds."""
    orders = zone.table("orders", keys=["id"])
    moment = 20241127101112123456
    orders.file([{"id": 1}], markers=[0], number=moment)
    (orders.folder / os.fsdecode(b"caf\xe9.txt")).write_text("x")
    late = zone.table("late", keys=["id"])
    late.file([{"id": 1}], markers=[0])

    def read(*columns: str, **options: str) -> list[tuple[Any, ...]]:
        rows = spark.read.format("landing_zone").options(path=str(zone), **options).load()
        return sorted(map(tuple, rows.select(*columns).collect()), key=str)

    assert [
        ("late", f"{1:020d}.parquet", 1),
        ("orders", f"{moment}.parquet", None),
        ("orders", "caf\\udce9.txt", None),
    ] == read("table", "file", "sequence")
    assert [(1, f"{moment}.parquet", None)] == read(
        "id", "_mirror_file", "_mirror_sequence", table="orders"
    )


@pytest.mark.parametrize("source, known", [("mirror_feed", "after"), ("landing_zone", "table")])
def test_an_option_that_a_source_has_not_is_refused(
    spark: SparkSession, source: str, known: str
) -> None:
    """It would go for nothing, and more rows would be read than were asked for."""
    reader = spark.read.format(source)
    with pytest.raises(
        Exception, match=rf"ParameterError: {source} has no such option.*aftr.*{known}"
    ):
        reader.options(path="/nowhere", aftr=1).load()
    with pytest.raises(Exception, match=f"ParameterError: {source} needs a path"):
        spark.read.format(source).load()


@pytest.mark.thorough
def test_raw_changes_of_other_folders(
    spark: SparkSession, zone: ZoneWriter, tmp_path: Path
) -> None:
    """Text, files without numbers, partition folders; a broken file is an error, and so is a table that is not there."""

    def raw(table: str) -> list[tuple[Any, ...]]:
        rows = spark.read.format("landing_zone").options(path=str(zone), table=table).load()
        return sorted(tuple(row) for row in rows.drop("_mirror_file").collect())

    timed = zone.table("timed", keys=["id"], by_time=True)
    timed.file([{"id": 1}], markers=[0])
    timed.file([{"id": 2}], markers=[4])
    assert [(1, 0, 1, 0), (2, 4, 2, 0)] == raw("timed")
    with pytest.raises(Exception, match=r"LandingZoneError.*no place to go on from"):
        Query(spark, "landing_zone", tmp_path / "out", path=str(zone), table="timed").run()

    parts = zone.table("parts", keys=["id"], metadata={"isPartitionEnabled": True})
    parts.file([{"id": 1}], number=1, partition="p=1")
    parts.file([{"id": 1}], number=1, partition="p=2")
    assert 2 == len(raw("parts"))

    types = zone.table("types", keys=["id"])
    types.file([{"id": 1, "v": 1}])
    types.file([{"id": 2, "v": 1.5}])
    assert [(1, 1.0, 0, 1, 0), (2, 1.5, 0, 2, 0)] == raw("types")
    types.garbage()
    with pytest.raises(Exception, match=r"ChangeFileError: types: 0+3"):
        raw("types")
    with pytest.raises(
        Exception,
        match="LandingZoneError: nowhere: there is no such table",
    ):
        raw("nowhere")
