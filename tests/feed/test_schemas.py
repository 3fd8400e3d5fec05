"""Schemas that change within structs, arrays and maps: a field follows its name, at any depth."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest

import mirrorlib
from feeds import FEED, Table, told
from mirrorlib.delta.address import find_feed_table
from mirrorlib.delta.sessions import lend_session
from mirrorlib.errors import FeedError, FeedExpiredError
from mirrorlib.feed.schemas import widens_to

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MAPPED = f"{FEED}, 'delta.columnMapping.mode' = 'name'"


def plain(value: object) -> object:
    """Give rows as dictionaries, in lists and maps too."""
    if hasattr(value, "asDict"):
        return {name: plain(inner) for name, inner in value.asDict().items()}
    if isinstance(value, list):
        return [plain(item) for item in value]
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    return value


@pytest.mark.parametrize("properties", [FEED, MAPPED], ids=["unmapped", "mapped"])
def test_fields_that_were_added_are_null_before(
    spark: SparkSession, tmp_path: Path, properties: str
) -> None:
    """A window before the field came does not have it, one across has NULL in it."""
    table = Table(spark, tmp_path / "t", "id int, s struct<a: int>", properties).run(
        "INSERT INTO {t} VALUES (1, named_struct('a', 1)), (2, NULL)",
        "ALTER TABLE {t} ADD COLUMNS (s.b int)",
        "INSERT INTO {t} VALUES (3, named_struct('a', 3, 'b', 30))",
    )
    before = told(table.read(after=-1, until=1), "id", "s")
    across = told(table.read(after=-1), "id", "s")

    assert [{"a": 1}, None] == [plain(row[3]) for row in before]
    assert [{"a": 1, "b": None}, None, {"a": 3, "b": 30}] == [plain(row[3]) for row in across]


def test_fields_follow_their_names(spark: SparkSession, tmp_path: Path) -> None:
    """Reordered, renamed, dropped and added, in structs, in arrays of them and in maps of them."""
    kind = "struct<a: int, b: int>"
    table = Table(
        spark,
        tmp_path / "t",
        f"s {kind}, l array<{kind}>, m map<string, {kind}>",
        MAPPED,
    ).run(
        "INSERT INTO {t} SELECT s, array(s, NULL), map('k', s) FROM (SELECT named_struct('a', 1, 'b', 100) s)",
        "ALTER TABLE {t} ALTER COLUMN s.b FIRST",
        "ALTER TABLE {t} RENAME COLUMN l.element.a TO c",
        "ALTER TABLE {t} DROP COLUMN m.value.a",
        "ALTER TABLE {t} ADD COLUMNS (m.value.a int)",
    )
    rows = table.read(after=-1).select("s", "l", "m").collect()

    assert [
        {
            "s": {"b": 100, "a": 1},
            "l": [{"c": 1, "b": 100}, None],
            "m": {"k": {"b": 100, "a": None}},
        }
    ] == [plain(row) for row in rows]


@pytest.mark.parametrize(
    "old, new, is_wider",
    [
        ("byte", "decimal(10,0)", True),
        ("integer", "decimal(9,0)", False),
        ("long", "decimal(20,0)", True),
        ("decimal(10,2)", "decimal(12,3)", True),
        ("decimal(10,2)", "decimal(9,2)", False),
        ("decimal(10,2)", "decimal(10,3)", False),
        ("short", "double", True),
        ("long", "double", False),
        ("long", "integer", False),
        ("date", "timestamp_ntz", True),
        ("date", "timestamp", False),
    ],
)
def test_what_delta_widens_in_place_holds_all_that_was_there(
    old: str, new: str, is_wider: bool
) -> None:
    """A decimal that has got fewer digits is another column."""
    assert is_wider == widens_to(old, new)


def test_a_column_whose_case_has_changed_since_is_told_in_our_words(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Delta loads older versions under the name that the column has now, and refuses to read them."""
    table = Table(spark, tmp_path / "t", "id int, v string, s struct<a: int>")
    table.run("INSERT INTO {t} VALUES (1, 'a', NULL)")
    rows = spark.sql("SELECT 2 id, 'b' V, named_struct('a', 2) s").write.format("delta")
    rows.mode("overwrite").option("overwriteSchema", "true").save(table.path)
    assert ["id", "V", "s"] == spark.read.format("delta").load(table.path).columns
    with pytest.raises(FeedExpiredError, match="columns have become others"):
        table.read(after=0, until=1)


def test_fields_widen(spark: SparkSession, tmp_path: Path) -> None:
    """Without column mapping Delta gives the newest type; a window before the change is told in its own."""
    properties = f"{FEED}, 'delta.enableTypeWidening' = 'true'"
    table = Table(spark, tmp_path / "t", "s struct<n: int>", properties).run(
        "INSERT INTO {t} VALUES (named_struct('n', 1))",
        "ALTER TABLE {t} ALTER COLUMN s.n TYPE bigint",
        "INSERT INTO {t} VALUES (named_struct('n', 10000000000))",
    )
    before, across = table.read(after=-1, until=1), table.read(after=-1)

    assert ["struct<n:int>", "struct<n:bigint>"] == [
        frame.schema["s"].dataType.simpleString() for frame in (before, across)
    ]
    assert [1] == [row["s"]["n"] for row in before.collect()]
    assert {1, 10**10} == {row["s"]["n"] for row in across.collect()}


@pytest.mark.thorough
@pytest.mark.parametrize("properties", [FEED, MAPPED], ids=["unmapped", "mapped"])
def test_rows_that_widen_a_column_by_their_own_commit_are_told(
    spark: SparkSession, tmp_path: Path, properties: str
) -> None:
    """Appended, merged and written over those that were there: each in the type that the column has then, or later."""
    widening = f"{properties}, 'delta.enableTypeWidening' = 'true'"
    columns = "id int, n int, s struct<n: smallint>"
    table = Table(spark, tmp_path / "t", columns, widening)
    table.run("INSERT INTO {t} SELECT id, id, named_struct('n', id) FROM RANGE(1, 5)")

    def write(rows: str, mode: str) -> None:
        frame = spark.sql(rows).write.format("delta").mode(mode)
        frame.option("mergeSchema", "true").save(table.path)

    write("SELECT 5 id, 10000000000L n, named_struct('n', 5S) s", "append")  # version 2
    table.run("DELETE FROM {t} WHERE id = 1", "UPDATE {t} SET n = n + 1 WHERE id IN (2, 5)")
    rows = "SELECT 3 id, 3L n, named_struct('n', 100000) s UNION ALL SELECT 6, 6L, NULL"
    table.run(
        f"MERGE WITH SCHEMA EVOLUTION INTO {{t}} t USING ({rows}) s ON t.id = s.id "
        "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
    )
    write("SELECT 7L id, 7L n, named_struct('n', 7) s", "overwrite")  # version 6
    ten = 10**10
    changes = [
        *((1, "insert", number, number, number) for number in (1, 2, 3, 4)),
        (2, "insert", 5, ten, 5),
        (3, "delete", 1, 1, 1),
        *((4, "update_postimage", *row) for row in ((2, 3, 2), (5, ten + 1, 5))),
        *((4, "update_preimage", *row) for row in ((2, 2, 2), (5, ten, 5))),
        (5, "insert", 6, 6, None),
        (5, "update_postimage", 3, 3, 10**5),
        (5, "update_preimage", 3, 3, 3),
        *(
            (6, "delete", *row)
            for row in ((2, 3, 2), (3, 3, 10**5), (4, 4, 4), (5, ten + 1, 5), (6, 6, None))
        ),
        (6, "insert", 7, 7, 7),
    ]
    for after, until, types in ((0, 6, "bigint int"), (0, 4, "int smallint"), (4, 5, "int int")):
        frame = table.read(after=after, until=until)
        read = (frame.schema["id"].dataType, frame.schema["s"].dataType["n"].dataType)
        assert types.split() == [kind.simpleString() for kind in read]
        expected = [change for change in changes if after < change[0] <= until]
        assert expected == told(frame, "id", "n", "s.n")


@pytest.mark.thorough("partitioned")
@pytest.mark.parametrize("partitions", [(), ("v",)], ids=["wider", "partitioned"])
def test_rows_and_schema_that_are_replaced_at_once_are_not_told(
    spark: SparkSession, tmp_path: Path, partitions: tuple[str, ...]
) -> None:
    """Delta does not note then that a type is wider, and takes the newest partition columns for those of every file."""
    widening = f"{FEED}, 'delta.enableTypeWidening' = 'true'"
    table = Table(spark, tmp_path / "t", "id int, v int", widening)
    table.run("INSERT INTO {t} VALUES (1, 1)")
    rows = spark.sql(f"SELECT {'1' if partitions else '1L'} id, 1 v").write.format("delta")
    rows = rows.mode("overwrite").option("overwriteSchema", "true").partitionBy(*partitions)
    rows.save(table.path)
    with pytest.raises(FeedExpiredError, match="version 2 replaced rows and schema at once"):
        table.read(after=0)


@pytest.mark.thorough
def test_old_dates_before_a_widening_are_read_as_the_session_says(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Those of a window of the type before, too, where the file's writer does not say by which calendar."""
    properties = f"{FEED}, 'delta.enableTypeWidening' = 'true'"
    table = Table(spark, tmp_path / "written", "id int, day date", properties)
    table.run("INSERT INTO {t} SELECT 1, DATE'1500-02-28'")
    (file,) = Path(table.path).glob("*.parquet")
    pq.write_table(pq.read_table(file).replace_schema_metadata(None), file)
    file.with_name(f".{file.name}.crc").unlink(missing_ok=True)
    log = Path(table.log(1))
    log.write_text(re.sub(r'"size":\d+', f'"size":{file.stat().st_size}', log.read_text()))
    log.with_suffix(".crc").unlink(missing_ok=True)
    shutil.copytree(table.path, tmp_path / "t")  # which no session has seen as it was

    table = Table.at(spark.newSession(), tmp_path / "t")
    table.run("ALTER TABLE {t} ALTER COLUMN id TYPE bigint")
    days = []
    for mode in ("CORRECTED", "LEGACY"):
        table.spark.conf.set("spark.sql.parquet.datetimeRebaseModeInRead", mode)
        rows = table.read(after=0, until=1)
        assert "int" == rows.schema["id"].dataType.simpleString()
        days.append([row["day"] for row in rows.selectExpr("string(day) day").collect()])
    assert [["1500-02-28"], ["1500-02-19"]] == days


def test_days_that_java_left_out_are_told(spark: SparkSession, tmp_path: Path) -> None:
    """By Delta's own reader in a lent session, also before a widening: none is told as 1582-10-15."""
    table = Table.at(spark, tmp_path / "t")
    table.run(
        "CREATE TABLE {t} (id int, day date, at timestamp, part int) USING delta PARTITIONED BY (part) "
        f"TBLPROPERTIES ({FEED}, 'delta.enableTypeWidening' = 'true')",
        row := "INSERT INTO {t} VALUES (1, DATE'1582-10-10', TIMESTAMP'1582-10-10 05:00:00Z', 1)",
        "ALTER TABLE {t} ALTER COLUMN id TYPE bigint",
        row,
    )
    with lend_session(spark) as session:
        for after, until in ((0, 1), (2, None)):
            frame = mirrorlib.read_feed(session, table.path, after=after, until=until)
            (found,) = frame.selectExpr("string(day)", "unix_micros(at)").collect()
            assert ("1582-10-10", -12_219_706_800_000_000) == tuple(found)


@pytest.mark.thorough
def test_a_widened_table_is_found_by_the_names_that_the_session_uses(
    spark: SparkSession,
) -> None:
    """A name without its schema means the session's own, not a table of that name in another."""
    properties = f"{FEED}, 'delta.enableTypeWidening' = 'true'"
    spark.sql("CREATE DATABASE IF NOT EXISTS `2feeds`")
    for name, number in (("default.wide", 7), ("`2feeds`.wide", 1)):
        spark.sql(f"DROP TABLE IF EXISTS {name}")
        spark.sql(f"CREATE TABLE {name} (n int) USING delta TBLPROPERTIES ({properties})")
        spark.sql(f"INSERT INTO {name} VALUES ({number})")
        spark.sql(f"ALTER TABLE {name} ALTER COLUMN n TYPE bigint")
    spark.sql("USE `2feeds`")
    try:
        assert [1] == [row["n"] for row in mirrorlib.read_feed(spark, "wide", after=-1).collect()]
    finally:
        spark.sql("USE default")
        spark.sql("DROP TABLE default.wide")
        spark.sql("DROP DATABASE `2feeds` CASCADE")


@pytest.mark.thorough
def test_files_of_another_partition_are_read_as_they_were_written(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Delta would take the newest partition columns for those of every file, and tell the older ones as NULL."""
    table = str(tmp_path / "t")
    spark.sql(
        f"CREATE TABLE delta.`{table}` (id bigint, day string, region string) USING delta PARTITIONED BY (day) "
        "TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true')"
    )
    rows = spark.createDataFrame(
        [(1, "mon", "x"), (2, "tue", "y")], "id bigint, day string, region string"
    )
    rows.write.format("delta").mode("append").save(table)
    again = rows.write.format("delta").mode("overwrite").option("overwriteSchema", "true")
    again.partitionBy("region").save(table)
    rows.where("id = 2").write.format("delta").mode("append").save(table)

    first = mirrorlib.read_feed(spark, table, after=0, until=1)
    last = mirrorlib.read_feed(spark, table, after=2)

    assert {(1, "mon", "x"), (2, "tue", "y")} == {tuple(row)[:3] for row in first.collect()}
    assert [(2, "tue", "y")] == [tuple(row)[:3] for row in last.collect()]
    with pytest.raises(FeedError, match="version 2"):
        mirrorlib.read_feed(spark, table, after=0)


def test_what_an_overwrite_took_away_is_not_counted_as_nothing(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Its metrics tell what it wrote; a receiver that took that for all would take a table for a few rows."""
    table = str(tmp_path / "t")
    feed = "TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true')"
    for statement in (
        f"CREATE TABLE delta.`{table}` (id bigint, v string) USING delta {feed}",
        f"INSERT INTO delta.`{table}` SELECT id, 'a' FROM range(100)",
        f"INSERT OVERWRITE delta.`{table}` VALUES (1, 'b')",
        f"DELETE FROM delta.`{table}` WHERE id = 1",
    ):
        spark.sql(statement)

    commits = find_feed_table(spark, table).commits

    assert [100, None, 1] == [commits.read(version).rows for version in (1, 2, 3)]


@pytest.mark.thorough
def test_what_was_written_under_a_column_mapping_that_is_gone_is_expired(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Delta would tell all of its columns as NULL; what came after can be read."""
    mapped = f"{FEED}, 'delta.columnMapping.mode' = 'name'"
    table = Table(spark, tmp_path / "t", "id int", mapped).run("INSERT INTO {t} VALUES (1)")
    removes = "ALTER TABLE {t} SET TBLPROPERTIES ('delta.columnMapping.mode' = 'none')"
    table.run(removes, "INSERT INTO {t} VALUES (2)")
    for until in (1, None):
        with pytest.raises(FeedExpiredError, match="column mapping was taken away") as expired:
            table.read(after=0, until=until)
        first = expired.value.first_readable
        assert first is not None
        assert [2] == [row.id for row in table.read(after=first - 1).collect()]


@pytest.mark.thorough
@pytest.mark.parametrize("first", [False, True])
@pytest.mark.parametrize(
    "changes",
    [
        "ALTER TABLE {t} RENAME COLUMN a TO b",
        "ALTER TABLE {t} DROP COLUMN a;ALTER TABLE {t} ADD COLUMN a int",
    ],
)
def test_rows_from_before_a_mapping_that_is_gone_are_not_told_as_others(
    spark: SparkSession, tmp_path: Path, changes: str, *, first: bool
) -> None:
    """They are called in files as a column is that has had another name, or was another one."""
    table = Table(spark, tmp_path / "t", "a int, c int", FEED)
    insert = "INSERT INTO {t} VALUES (5, 6)"
    mapped, bare = (
        f"ALTER TABLE {{t}} SET TBLPROPERTIES ('delta.columnMapping.mode' = '{mode}')"
        for mode in ("name", "none")
    )

    table.run(*((insert, mapped) if first else (mapped, insert)), *changes.split(";"), bare)

    with pytest.raises(FeedExpiredError, match="column mapping was taken away"):
        table.read(after=0)
