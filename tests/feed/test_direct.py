"""Files that are read as they are give what Delta's own reader gives; where they would not, Delta reads."""

from __future__ import annotations

import contextlib
import io
import json
import os
import random
import time
from collections import Counter
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import mirrorlib
from feeds import COLUMNS, FEED, NULLS, ROW, Table
from mirrorlib.delta.address import find_feed_table
from mirrorlib.delta.columns import to_columns
from mirrorlib.feed.files.direct import change_files, read_small_window, to_frame
from mirrorlib.feed.files.unique_keys import find_repeated
from mirrorlib.feed.read import feed_schema
from mirrorlib.feed.window import open_window
from zones import ZoneWriter

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from mirrorlib.delta.address import FeedTable
    from mirrorlib.feed.window import Window

pytestmark = pytest.mark.slow


@pytest.mark.thorough("true")
@pytest.mark.parametrize("vectors", ["true", "false"])
def test_every_window_reads_as_delta_reads_it(
    spark: SparkSession, tmp_path: Path, vectors: str
) -> None:
    """Whatever was committed, and wherever a window begins: rows, columns, versions, moments."""
    properties = f"{FEED}, 'delta.enableDeletionVectors' = '{vectors}'"
    table = Table(spark, tmp_path / "t", COLUMNS, properties)
    table.run(
        f"INSERT INTO {{t}} VALUES {ROW.format(id=1)}, {NULLS.format(id=2)}, {ROW.format(id=3)}",
        "UPDATE {t} SET text = 'other' WHERE id = 1",
        f"INSERT INTO {{t}} VALUES {ROW.format(id=4)}",
        "DELETE FROM {t} WHERE id = 3",
        "ALTER TABLE {t} ADD COLUMNS (later string)",
        "MERGE INTO {t} USING (SELECT explode(array(2, 7)) AS id) s ON {t}.id = s.id "
        "WHEN MATCHED THEN UPDATE SET later = 'x' WHEN NOT MATCHED THEN INSERT (id, later) VALUES (s.id, 'y')",
        "OPTIMIZE {t}",
        "DELETE FROM {t} WHERE id < 3",
        "DELETE FROM {t}",
        "RESTORE {t} TO VERSION AS OF 6",
        f"INSERT OVERWRITE {{t}} VALUES {ROW.format(id=8)[:-1]}, 'z')",
    )  # fmt: skip
    found = find_feed_table(spark, table.path)
    directly, by_arrow = Counter[bool](), 0
    singles = [(version, version + 1) for version in range(found.commits.newest)]
    for after, until in [*singles[1::2], (0, 2), (0, found.commits.newest)]:
        wanted = by_delta(spark, table.path, after, until)
        assert_same(table.read(after=after, until=until), wanted)
        window = open_window(found.commits, after, until)
        directly[change_files(found, window) is not None] += 1
        few = as_few(spark, found, window)
        if few is not None:
            by_arrow += 1
            assert_same(few, wanted)
    assert directly[True] == by_arrow
    assert directly[True] > 2
    assert directly[False] > 1  # whole files go by DELETE, RESTORE and INSERT OVERWRITE


def by_delta(spark: SparkSession, path: str, after: int, until: int) -> DataFrame:
    """Read a window as Delta's documentation shows."""
    reader = spark.read.format("delta").option("readChangeFeed", "true")
    return reader.option("startingVersion", after + 1).option("endingVersion", until).load(path)


def as_few(spark: SparkSession, found: FeedTable, window: Window) -> DataFrame | None:
    """Read a window by Arrow, where that can be."""
    rows = read_small_window(found, window)
    return None if rows is None else to_frame(spark, rows, feed_schema(window))


def assert_same(frame: DataFrame, wanted: DataFrame) -> None:
    """Compare types and rows; Delta tells columns that came later, too."""
    wanted = wanted.select(*frame.columns)
    assert [(one.name, one.dataType, one.nullable) for one in wanted.schema.fields[:-3]] == [
        (one.name, one.dataType, one.nullable) for one in frame.schema.fields[:-3]
    ]
    assert count_rows(wanted) == count_rows(frame)


def count_rows(frame: DataFrame) -> Counter[str]:
    """Count rows as Spark writes them: Python's moments do not go everywhere."""
    return Counter(row[0] for row in frame.selectExpr("to_csv(struct(*))").collect())


@pytest.mark.thorough("padded", "nested", "metadata", "mapped")
@pytest.mark.parametrize(
    "columns, properties",
    [
        ("id int, text string NOT NULL", FEED),
        ("id int, text char(3)", FEED),
        ("id int, text struct<a: int>", FEED),
        ("id int, text string", f"{FEED}, 'delta.columnMapping.mode' = 'name'"),
        ("id int, _metadata string", FEED),
    ],
    ids=["not-null", "padded", "nested", "mapped", "metadata"],
)
def test_what_takes_more_is_left_to_delta(
    spark: SparkSession, tmp_path: Path, columns: str, properties: str
) -> None:
    """Delta knows what such columns mean."""
    table = Table(spark, tmp_path / "t", columns, properties)
    value = "named_struct('a', 1)" if "struct" in columns else "'x'"
    table.run(f"INSERT INTO {{t}} VALUES (1, {value})", "UPDATE {t} SET id = 2")
    assert [None, None] == files_of(spark, table.path)
    assert_same(table.read(after=0), by_delta(spark, table.path, 0, 2))


def test_partitions_are_left_to_delta(spark: SparkSession, tmp_path: Path) -> None:
    """Files leave their columns out."""
    table = Table.at(spark, tmp_path / "t")
    table.run(
        f"CREATE TABLE {{t}} (id int, day string) USING delta PARTITIONED BY (day) TBLPROPERTIES ({FEED})",
        "INSERT INTO {t} VALUES (1, 'a'), (2, 'b')",
    )
    assert [None] == files_of(spark, table.path)
    assert_same(table.read(after=0), by_delta(spark, table.path, 0, 1))


def test_a_widened_column_is_left_to_delta(spark: SparkSession, tmp_path: Path) -> None:
    """Files have the type of their day."""
    table = Table(spark, tmp_path / "t", "id int", f"{FEED}, 'delta.enableTypeWidening' = 'true'")
    table.run(
        "INSERT INTO {t} VALUES (1)",
        "ALTER TABLE {t} ALTER COLUMN id TYPE bigint",
        "INSERT INTO {t} VALUES (9223372036854775807)",
    )
    assert [None, None] == files_of(spark, table.path)


@pytest.mark.thorough
@pytest.mark.smoke
def test_a_place_and_columns_with_any_name_are_read(spark: SparkSession, tmp_path: Path) -> None:
    """Blanks and `%` in the path; columns called as what Spark knows of a file, in any case; what is not asked for."""
    table = Table(spark, tmp_path / "a b%20c", "id int, FILE_SIZE int, file_name string, size int")
    table.run("INSERT INTO {t} VALUES (1, 2, 'x', 3)", "UPDATE {t} SET id = 2")
    assert None not in files_of(spark, table.path)
    wanted = by_delta(spark, table.path, 0, 2)
    assert_same(table.read(after=0), wanted)
    assert 3 == table.read(after=0).count()
    assert [(2,)] == table.read(after=0).where("_commit_version = 2 AND id = 2").select(
        "id"
    ).collect()
    other = Table(spark, tmp_path / "t", "id int, _mirror_file int").run(
        "INSERT INTO {t} VALUES (1, 2)"
    )
    assert [None] == files_of(spark, other.path)


def test_files_of_one_size_are_told_apart_by_name(spark: SparkSession, tmp_path: Path) -> None:
    """Commits of like rows make them."""
    table = Table(spark, tmp_path / "t", "id int")
    table.run(*["INSERT INTO {t} VALUES (1)"] * 2, "INSERT INTO {t} SELECT id FROM range(99)")
    found = find_feed_table(spark, table.path)
    files = change_files(found, open_window(found.commits, 0, 2))
    assert files is not None
    assert 1 == len({file.size for file in files})
    for until in (2, 3):
        assert_same(table.read(after=0, until=until), by_delta(spark, table.path, 0, until))


def test_a_file_that_is_not_listed_is_left_to_delta(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark leaves out, without a word, what goes between its first look and its listing."""
    table = Table(spark, tmp_path / "t", "id int")
    table.run("INSERT INTO {t} VALUES (1)", "INSERT INTO {t} VALUES (2)")
    kind = type(spark.range(1))
    listed = kind.inputFiles
    monkeypatch.setattr(kind, "inputFiles", lambda frame: listed(frame)[1:])
    assert "file_name" not in explained(table.read(after=0))
    assert "_change_data" not in explained(table.read(after=0))
    assert_same(table.read(after=0), by_delta(spark, table.path, 0, 2))


@pytest.mark.thorough
def test_moments_are_those_that_delta_tells(spark: SparkSession, tmp_path: Path) -> None:
    """Commits that tell theirs in themselves, before and after the table was copied; files that are out of order."""
    table = Table(spark, tmp_path / "t", "id int")
    table.run(*(f"INSERT INTO {{t}} VALUES ({number})" for number in range(3)))
    for number, seconds in enumerate((300, 200, 100, 400)):
        set_time(table, number, int(time.time()) - 3600 + seconds)
    assert None not in files_of(spark, table.path)
    assert_same(table.read(after=0), by_delta(spark, table.path, 0, 3))
    table.run(
        "ALTER TABLE {t} SET TBLPROPERTIES ('delta.enableInCommitTimestamps' = 'true')",
        "INSERT INTO {t} VALUES (3)",
        "ALTER TABLE {t} SET TBLPROPERTIES ('delta.enableInCommitTimestamps' = 'false')",
        "INSERT INTO {t} VALUES (4)",
    )
    assert files_of(spark, table.path)[3] is None
    for after in range(7):
        assert_same(table.read(after=after, until=7), by_delta(spark, table.path, after, 7))


def set_time(table: Table, version: int, seconds: int) -> None:
    """Let a version's file look as if it had been written then; Spark's checksum of it is of no account."""
    os.utime(table.log(version), (seconds, seconds))


def test_what_a_table_demands_to_know_is_left_to_delta(spark: SparkSession, tmp_path: Path) -> None:
    """A feature that we do not know may change what a file means."""
    table = Table(spark, tmp_path / "t", "id int").run("INSERT INTO {t} VALUES (1)")
    assert None not in files_of(spark, table.path)
    log = Path(table.log(0))
    lines = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]
    for line in lines:
        if "protocol" in line:
            line["protocol"] = {
                "minReaderVersion": 3,
                "minWriterVersion": 7,
                "readerFeatures": ["laterFeature"],
                "writerFeatures": ["laterFeature"],
            }
    log.write_text("\n".join(map(json.dumps, lines)) + "\n", encoding="utf-8")
    assert [None] == files_of(spark, table.path)


def test_a_column_that_a_file_spells_in_another_way_is_left_to_spark(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Arrow would not find it."""
    table = Table(spark, tmp_path / "t", "id int").run("INSERT INTO {t} VALUES (1)")
    log = Path(table.log(0))
    text = log.read_text(encoding="utf-8")
    log.write_text(text.replace('\\"name\\":\\"id\\"', '\\"name\\":\\"ID\\"'), encoding="utf-8")
    found = find_feed_table(spark, table.path)
    window = open_window(found.commits, 0, 1)
    assert as_few(spark, found, window) is None
    assert [1] == [row.ID for row in table.read(after=0).collect()]


@pytest.mark.thorough
def test_the_files_of_a_clone_are_another_tables(spark: SparkSession, tmp_path: Path) -> None:
    """Its first version names them where they are."""
    table = Table(spark, tmp_path / "t", "id int").run("INSERT INTO {t} VALUES (1)")
    clone = Table.at(spark, tmp_path / "c")
    clone.run(f"CREATE TABLE {{t}} SHALLOW CLONE delta.`{table.path}`")
    clone.run("INSERT INTO {t} VALUES (2)")
    found = find_feed_table(spark, clone.path)
    assert change_files(found, open_window(found.commits, -1, 0)) is None
    assert change_files(found, open_window(found.commits, 0, 1)) is not None
    assert_same(clone.read(after=0), by_delta(spark, clone.path, 0, 1))


@pytest.mark.thorough
def test_dates_of_the_old_calendar_are_what_spark_takes_them_for(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Such files say so, and Arrow does not look."""
    table = Table(spark, tmp_path / "t", "id int, day date, at timestamp")
    names = ("datetimeRebaseModeInWrite", "int96RebaseModeInWrite")
    for name in names:
        spark.conf.set(f"spark.sql.parquet.{name}", "LEGACY")
    try:
        table.run(
            "INSERT INTO {t} VALUES (1, DATE'1001-01-01', TIMESTAMP'1001-01-01 00:00:00')",
            "UPDATE {t} SET id = 2",
        )
    finally:
        for name in names:
            spark.conf.unset(f"spark.sql.parquet.{name}")
    found = find_feed_table(spark, table.path)
    for after in (0, 1):
        window = open_window(found.commits, after, after + 1)
        assert change_files(found, window) is not None
        assert as_few(spark, found, window) is None
        assert_same(
            table.read(after=after, until=after + 1),
            by_delta(spark, table.path, after, after + 1),
        )


def test_tables_of_a_catalog_are_left_to_it(spark: SparkSession) -> None:
    """It may let nobody see some of their rows."""
    spark.sql(f"CREATE TABLE default.governed (id int) USING delta TBLPROPERTIES ({FEED})")
    try:
        spark.sql("INSERT INTO default.governed VALUES (1)")
        assert [None] == files_of(spark, "default.governed")
    finally:
        spark.sql("DROP TABLE default.governed")


def files_of(spark: SparkSession, address: str) -> list[Any]:
    """Name what is read as it is, for each version but the first by itself."""
    found = find_feed_table(spark, address)
    return [
        change_files(found, window)
        for version in range(found.commits.newest)
        for window in [open_window(found.commits, version, version + 1)]
        if window.changes
    ]


VERSIONS = 3
MOMENT = datetime(1850, 1, 1, 12, tzinfo=UTC)
KEY_TYPES: dict[str, tuple[pa.DataType, list[Any]]] = {
    "int": (pa.int64(), [1, 2, 3]),
    "string": (pa.string(), ["1", "2", "3"]),
    "double": (pa.float64(), [0.0, -0.0, float("nan")]),
    "boolean": (pa.bool_(), [True, False]),
    "binary": (pa.binary(), [b"", b"\xff", b"3"]),
    "decimal": (pa.decimal128(38, 18), [Decimal("0.1"), Decimal(10**19), Decimal(-1)]),
    "date": (pa.date32(), [date(1, 1, 1), date(1582, 10, 10), date(2024, 2, 29)]),
    "timestamp": (pa.timestamp("us", "UTC"), [MOMENT, MOMENT + timedelta(hours=1)]),
}


@pytest.mark.thorough
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("kind", KEY_TYPES)
def test_net_changes_of_keys_that_are_one_row_are_the_difference_of_the_ends(
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
    seed: int,
) -> None:
    """Keys come, change in any column, change back or not at all, go and come again; NULL is a key, too."""
    table = make_mirror(spark, tmp_path, kind, random.Random(seed))
    session = spark.newSession()
    if seed:  # where a timestamp has no zone, unless somebody says so
        session.conf.set("spark.sql.timestampType", "TIMESTAMP_NTZ")
        session.conf.set("spark.sql.session.timeZone", "Europe/Berlin")
    states = [state(spark, table, version) for version in range(VERSIONS + 1)]
    for after, until in combinations(range(VERSIONS + 1), 2):
        with monkeypatch.context() as patch:
            if kind != "double":  # which go by one sort: Spark knows one NaN, and one zero
                patch.delattr("mirrorlib.feed.read.fold_net")
            frame = read_net(session, table, after, until)
        assert kind != "double" or "_mirror_key0" not in explained(frame)
        rows = [row.asDict() for row in frame.collect()]
        assert difference(states[after], states[until]) == told(rows)
        last = last_touched(session, table, after, until)
        assert all(last[key_of(row)] == touched_at(row) for row in rows)


def last_touched(spark: SparkSession, table: str, after: int, until: int) -> dict[Any, Any]:
    """Map each key to the last commit that touched it."""
    rows = mirrorlib.read_feed(spark, table, after=after, until=until, keys=[]).collect()
    rows.sort(key=lambda row: row["_commit_version"])
    return {key_of(row.asDict()): touched_at(row.asDict()) for row in rows}


def touched_at(row: dict[str, Any]) -> tuple[int, datetime]:
    """Say which commit a change is told of, and when that was."""
    return row["_commit_version"], row["_commit_timestamp"]


def make_mirror(spark: SparkSession, folder: Path, kind: str, dice: random.Random) -> str:
    """Apply change files one by one to a table whose keys are one row each."""
    zone = ZoneWriter(folder / "zone")
    writer = zone.table("t", keys=["k", "part"])
    key, values = KEY_TYPES[kind]
    columns = pa.schema({"k": key, "part": pa.int32(), "n": pa.float64(), "text": pa.string()})
    for _ in range(VERSIONS):
        keys = dice.sample([(k, part) for k in (None, *values) for part in (0, 1)], 5)
        rows = [
            {
                "k": k,
                "part": part,
                "n": dice.choice([None, 0.0, -0.0, float("nan")]),
                "text": dice.choice(["a", "b", None]),
            }
            for k, part in keys
        ]
        writer.file(rows, [dice.choice([0, 1, 2, 4]) for _ in rows], columns=columns)
        report = mirrorlib.apply(spark, str(zone), str(folder / "out"), insert_policy="upsert")
        assert report.ok, report
    return str(folder / "out" / "t")


def state(spark: SparkSession, table: str, version: int) -> dict[Any, Any]:
    """Map each key of a version to the rest of its row."""
    rows = spark.read.format("delta").option("versionAsOf", version).load(table).collect()
    found = {key_of(row.asDict()): rest(row.asDict()) for row in rows}
    assert len(found) == len(rows)
    return found


def key_of(row: dict[str, Any]) -> tuple[str, int]:
    """Give a row's key, so that NaN equals NaN and zero zero."""
    return repr(0.0 if row["k"] == 0 and isinstance(row["k"], float) else row["k"]), row["part"]


def rest(row: dict[str, Any]) -> tuple[str, str | None]:
    """Give what is beside the key, so that NaN equals NaN and zero zero."""
    return str(0.0 if row["n"] == 0 else row["n"]), row["text"]


def difference(before: dict[Any, Any], after: dict[Any, Any]) -> Counter[Any]:
    """Name what a key's row was and what it is, by the kind of change."""
    found = Counter[Any]()
    for key in {*before, *after}:
        was, now = before.get(key), after.get(key)
        if was is None:
            found[key, "insert", now] += 1
        elif now is None:
            found[key, "delete", was] += 1
        elif was != now:
            found.update([(key, "update_preimage", was), (key, "update_postimage", now)])
    return found


def told(rows: list[dict[str, Any]]) -> Counter[Any]:
    """Count changes in the shape of `difference`."""
    return Counter((key_of(row), row["_change_type"], rest(row)) for row in rows)


def explained(frame: DataFrame) -> str:
    """Give a frame's plan as text."""
    with contextlib.redirect_stdout(io.StringIO()) as text:
        frame.explain(extended=True)
    return text.getvalue()


@pytest.mark.thorough
def test_keys_that_somebody_else_may_have_doubled_are_compared_in_full(
    spark: SparkSession, tmp_path: Path
) -> None:
    """One of two rows of a key may go, and the other stay."""
    table = make_mirror(spark, tmp_path, "int", random.Random(1))
    name = f"delta.`{table}`"
    spark.sql(f"INSERT INTO {name} SELECT * FROM {name} LIMIT 1")
    assert "_mirror_key0" in explained(read_net(spark, table, 0, VERSIONS))
    assert "_mirror_key0" not in explained(read_net(spark, table, 0, VERSIONS + 1))


@pytest.mark.thorough
def test_images_that_do_not_lie_side_by_side_are_compared_in_full(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Delta writes an update's images one after the other; other writers need not."""
    table = make_mirror(spark, tmp_path, "int", random.Random(1))
    found = find_feed_table(spark, table)
    window = open_window(found.commits, 0, VERSIONS)
    files = change_files(found, window)
    assert files is not None
    fields = spark.read.format("delta").load(table).schema.fields
    columns = to_columns((one.name, one.dataType.simpleString()) for one in fields)
    assert find_repeated(found.commits, files, columns, ["k", "part"]) is not None
    empty = next(Path(table) / file.path for file in files if not file.images)
    pq.write_table(pq.ParquetFile(empty).read().slice(0, 0), empty)
    assert find_repeated(found.commits, files, columns, ["k", "part"]) is not None
    for path in (Path(table) / file.path for file in files if file.images):
        rows = pq.ParquetFile(path).read()
        pq.write_table(rows.sort_by([("_change_type", "descending")]), path)
    assert find_repeated(found.commits, files, columns, ["k", "part"]) is None


def read_net(spark: SparkSession, table: str, after: int, until: int) -> DataFrame:
    """Read net changes by the key that the table is known by, or was."""
    keys = ["k", "part"]
    return mirrorlib.read_feed(spark, table, after=after, until=until, net=True, keys=keys)
