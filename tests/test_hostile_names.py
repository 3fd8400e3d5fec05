"""Names from outside neither leave their folder nor reach SQL unquoted; what cannot be carried is refused by name, alone."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException

import mirrorlib
from mirrorlib.cli.main import main
from tests.oracle import assert_same_rows, multiset
from tests.zones import TableWriter, ZoneWriter

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from mirrorlib.ingest.report import TableReport

pytestmark = pytest.mark.slow
FOLDERS = (
    "a`b", "a'b", 'a"b', "a b", " a", "a ", "a%b", "a%2Fb", "%2e%2e%2fup", "a#b", "a?b", "a*b", "[x]", "{a,b}", "a:b",
    "${env:HOME}", "$(id)", "a;DROP TABLE x", "a--b", "a@v1", "a@20200101000000000", "part=1", "-rf", "a..b", "äก日",
    "\U0001f600", "a\u202eb", "a~2Fb", "a\u00a0b", "delta", "select", "a+b&c",
)  # fmt: skip
PLAIN_COLUMNS = (
    "a.b", "a", "a'b", 'a"b', "a%b", "a#b", "a*b", "[x]", "a:b", "${env:HOME}", "${spark.app.name}", "a/b", "a\\b",
    "äก日", "\U0001f600", "a\u2028b", "a\u2029b", "a\x85b", "-- x", "1", "select", "a?b", "$", "__index_level_0__", "x" * 255,
)  # fmt: skip
MAPPED_COLUMNS = (
    "a b",
    " ",
    "a,b",
    "a;b",
    "{a}",
    "(a)",
    "a\tb",
    "a\nb",
    "a=b",
    "'; DROP TABLE t --",
    "ก ข",
)


def tree(folder: Path) -> set[str]:
    """List everything below a folder."""
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


def apply(spark: SparkSession, zone: ZoneWriter, target: str) -> dict[str, TableReport]:
    """Apply a zone; give each table's report."""
    return {table.table: table for table in mirrorlib.apply(spark, str(zone), target).tables}


def assert_rows(spark: SparkSession, path: str, rows: list[dict[str, object]]) -> None:
    """Compare a table with what it has to hold."""
    found = spark.read.format("delta").load(path).collect()
    assert_same_rows(multiset(rows), multiset(row.asDict() for row in found), path)


@pytest.mark.thorough
def test_hostile_folders_stay_in_their_place(
    spark: SparkSession,
    zone: ZoneWriter,
    target: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Q31: as schema and as table, read by Spark at first and merged afterwards: each in its own folder, nothing beside."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("mirrorlib.ingest.batch.open_batch.SMALL_BYTES", -1)
    tables = [zone.table(name, keys=["id"], schema=name) for name in FOLDERS]
    tables.append(zone.table("x" * 230, keys=["id"]))
    for table in tables:
        table.file([{"id": 1, "v": table.name}])
        table.file([{"id": 2, "v": "2"}])  # two files: Spark reads them by one list of paths
    first = apply(spark, zone, target)
    monkeypatch.undo()
    for table in tables:
        table.file([{"id": 2, "v": None}, {"id": 3, "v": table.name}], [2, 4])
    second = apply(spark, zone, target)

    for found in (first, second):
        assert {} == {name: one.reason for name, one in found.items() if one.state != "current"}
    assert {table.name for table in tables} == set(second)
    for table in tables:
        rows = [{"id": 1, "v": table.name}, {"id": 3, "v": table.name}]
        assert_rows(spark, f"{target}/{table.name}", rows)
    assert {"zone", "target"} == {path.name for path in tmp_path.iterdir()}
    below = {path.name for path in Path(target).iterdir()}
    assert {*FOLDERS, "x" * 230, "_mirrorlib"} == below
    assert sorted(second) == sorted(one.table for one in mirrorlib.status(target).tables)
    assert {"current"} == {one.state for one in mirrorlib.plan(spark, str(zone), target).tables}


@pytest.mark.thorough
def test_paths_that_look_like_patterns_are_read_once_each(
    spark: SparkSession, tmp_path: Path, target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Read by Spark, with and without order: a zone, tables, partition folders and files that look like patterns."""
    monkeypatch.setattr("mirrorlib.ingest.batch.open_batch.SMALL_BYTES", -1)
    zone = ZoneWriter(tmp_path / "{zone}")
    keyless, keyed = zone.table("o[1]"), zone.table("b*", keys=["id"])
    parts = zone.table("parts", keys=["id"], metadata={"isPartitionEnabled": True})
    timed = zone.table("timed", by_time=True)
    for number in range(3):
        keyless.file([{"id": number}])
        keyed.file([{"id": number}, {"id": 7}], [4, 4])
        parts.file([{"id": number}], partition="p=[a]")
        timed.file([{"id": number}], name=("a", "q?", "x{1,2}[3]")[number] + ".parquet")

    found = apply(spark, zone, target)

    assert {} == {name: one.reason for name, one in found.items() if one.state != "current"}
    rows = [{"id": number} for number in range(3)]
    assert_rows(spark, f"{target}/o[1]", rows)
    assert_rows(spark, f"{target}/b*", [*rows, {"id": 7}])
    assert_rows(spark, f"{target}/parts", [{**row, "p": "[a]"} for row in rows])
    assert_rows(spark, f"{target}/timed", rows)


@pytest.mark.thorough
def test_a_target_that_looks_like_a_pattern_gets_each_row_once(
    spark: SparkSession, zone: ZoneWriter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nanoseconds are written again beside the journal, whose folder looks like a pattern, too: first loaded, then merged."""
    monkeypatch.setattr("mirrorlib.ingest.batch.open_batch.SMALL_BYTES", -1)
    orders, target = zone.table("orders", keys=["id"]), str(tmp_path / "x[1]" / "tables")
    for first, markers in ((0, None), (1, [4])):
        for number in (first, first + 1):
            at = pa.array([1000], pa.timestamp("ns"))
            orders.file(pa.table({"id": [number], "at": at}), markers)
        assert "current" == apply(spark, zone, target)["orders"].state

    found = mirrorlib.read_table(spark, f"{target}/orders").select("id").collect()

    assert [0, 1, 2] == sorted(row["id"] for row in found)


def test_uncarriable_folders_are_refused_alone(
    spark: SparkSession, zone: ZoneWriter, target: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """By name, in words that can be printed; the neighbours go on and the exit code says that something is wrong."""
    zone.table("good", keys=["id"]).file([{"id": 1}])
    bad = [
        "new\nline",
        "tab\tbed",
        "back\\slash",
        "bell\a",
        os.fsdecode(b"bad\xff"),
        "Twin",
        "twin",
        "out",
    ]
    for name in bad:
        (zone.root / name).mkdir()
    zone.table("in", keys=["id"], schema="out").file([{"id": 1}])

    found = apply(spark, zone, target)
    codes = [main([*command, target, "--json"]) for command in (["status"], ["plan", str(zone)])]

    assert ["good"] == [name for name, table in found.items() if table.state == "current"]
    assert len(bad) + 2 == len(found)
    assert [1, 1] == codes
    for name, table in found.items():
        assert name.isprintable()
        assert table.reason.isprintable()
        assert name == "good" or "Rename it at the source" in table.reason
    capsys.readouterr().out.encode("utf-8")  # no half characters
    assert {"good", "_mirrorlib"} == {path.name for path in Path(target).iterdir()}
    states = {table.table: table.state for table in mirrorlib.status(target).tables}
    assert states == {name: table.state for name, table in found.items()}


@pytest.fixture(scope="module", params=[64 << 20, 0], ids=["small", "large"])
def columns(
    request: pytest.FixtureRequest, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, dict[str, TableReport]]:
    """Apply tables of hostile columns: all as data, and each once as key."""
    root = tmp_path_factory.mktemp("columns")
    zone, target = ZoneWriter(root / "zone"), str(root / "target")
    tables = [
        (zone.table("plain", keys=[PLAIN_COLUMNS[0]]), PLAIN_COLUMNS),
        (zone.table("mapped", keys=[MAPPED_COLUMNS[0]]), MAPPED_COLUMNS),
    ]
    tables.append((zone.table("keys", keys=list(PLAIN_COLUMNS)), PLAIN_COLUMNS))
    tables.append(
        (
            zone.table("mapped_keys", keys=[n for n in MAPPED_COLUMNS if n == n.strip()]),
            MAPPED_COLUMNS,
        )
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("mirrorlib.ingest.batch.open_batch.SMALL_BYTES", request.param)
        for table, names in tables:
            write(table, names, "a", None)
        apply(spark, zone, target)
        for table, names in tables:
            write(table, names, "a", [1])
            write(table, [*names, "one_more'"], "b", [4])
        return Path(target), apply(spark, zone, target)


def write(
    table: TableWriter, names: tuple[str, ...] | list[str], value: str, markers: list[int] | None
) -> None:
    """Publish one row that has the same value in every column."""
    table.file(pa.table({name: [value] for name in names}), markers)


@pytest.mark.thorough("large-*")
@pytest.mark.parametrize("name", ["plain", "mapped", "keys", "mapped_keys"])
def test_hostile_columns_are_carried(
    spark: SparkSession, columns: tuple[Path, dict[str, TableReport]], name: str
) -> None:
    """As data and as keys, with column mapping and without; created, merged, and added later."""
    target, found = columns
    names = PLAIN_COLUMNS if name in {"plain", "keys"} else MAPPED_COLUMNS

    assert ("current", "") == (found[name].state, found[name].reason)
    rows: list[dict[str, object]] = [
        dict.fromkeys(names, "a"),
        dict.fromkeys((*names, "one_more'"), "b"),
    ]
    assert_rows(spark, str(target / name), rows)


def test_keys_that_are_sql_are_only_names(
    spark: SparkSession, zone: ZoneWriter, target: str
) -> None:
    """A key that no file has is named; nothing of it is carried out."""
    victim = zone.table("victim", keys=["id"])
    victim.file([{"id": 1}])
    for number, key in enumerate(
        ["id` = id OR `id", "id) DELETE --", "*", "id.x", "`id`", "${env:HOME}"]
    ):
        table = zone.table(f"t{number}", keys=[key])
        table.file([{"id": 1}], [1])

    found = apply(spark, zone, target)

    assert "current" == found.pop("victim").state
    assert {"failed"} == {table.state for table in found.values()}
    assert all("key column of the table is missing" in table.reason for table in found.values())


def test_a_backtick_in_a_column_is_refused(
    spark: SparkSession, zone: ZoneWriter, target: str
) -> None:
    """Delta's MERGE cannot quote it; found before a table is made that no change could ever reach."""
    zone.table("t", keys=["id"]).file(pa.table({"id": [1], "a`b": [1]}))

    found = apply(spark, zone, target)["t"]

    assert "failed" == found.state
    assert "column a`b" in found.reason
    assert "backtick" in found.reason


@pytest.mark.thorough
@pytest.mark.parametrize("mode", ["none", "name"])
def test_delta_cannot_change_rows_beside_a_backtick_while_the_feed_is_on(
    spark: SparkSession, tmp_path: Path, mode: str
) -> None:
    """With column mapping or without: where this fails, Delta has learnt it, and the refusal above has to go."""
    at = f"delta.`{tmp_path}/t`"
    properties = f"'delta.enableChangeDataFeed' = 'true', 'delta.columnMapping.mode' = '{mode}'"
    spark.sql(f"CREATE TABLE {at} (id INT, `a``b` INT) USING delta TBLPROPERTIES ({properties})")
    spark.sql(f"INSERT INTO {at} VALUES (1, 1)")

    with pytest.raises(AnalysisException, match="INVALID_ATTRIBUTE_NAME_SYNTAX"):
        spark.sql(f"UPDATE {at} SET `a``b` = 2")
    with pytest.raises(AnalysisException, match="INVALID_ATTRIBUTE_NAME_SYNTAX"):
        spark.sql(
            f"MERGE INTO {at} t USING (SELECT 1 AS id) s ON t.id = s.id "
            "WHEN MATCHED THEN UPDATE SET `a``b` = 2"
        )
