"""The feed from the command line and from a mirror: what people see, what machines read, and feeds switched on."""

from __future__ import annotations

import json
import shutil
import time
from datetime import datetime
from typing import TYPE_CHECKING

import pytest
from pyspark.sql import types

import mirrorlib
from feeds import Table
from mirrorlib.cli import main as cli
from mirrorlib.errors import FeedError
from mirrorlib.feed.changes import first_changes
from mirrorlib.platform.show import _coloured
from zones import ZoneWriter

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession


@pytest.fixture(scope="module")
def mirror(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Give a target that no test changes, with one mirror: two rows, then an update, a delete and an insert in one commit."""
    folder = tmp_path_factory.mktemp("mirror")
    zone, target = ZoneWriter(folder / "zone"), str(folder / "target")
    orders = zone.table("orders", keys=["id"])
    orders.file([{"id": 1, "n": 10}, {"id": 2, "n": 20}])
    assert mirrorlib.apply(spark, str(zone), target).ok
    orders.file([{"id": 1, "n": 11}, {"id": 2, "n": 20}, {"id": 3, "n": 30}], [1, 2, 0])
    assert mirrorlib.apply(spark, str(zone), target).ok
    return target


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    """Run a command; give its exit code and what it says."""
    code = cli.main(arguments)
    said = capsys.readouterr()
    return code, said.out, said.err


@pytest.mark.smoke
def test_feed_shows_what_changed(mirror: str, capsys: pytest.CaptureFixture[str]) -> None:
    """An update is one line with both values; the keys come from the mirror's journal."""
    code, out, _ = run(capsys, "feed", mirror, "orders")

    assert 0 == code
    lines = [line.split() for line in out.splitlines()[2:]]
    assert ["update", "1", "n:", "10", "→", "11"] in [line[1:] for line in lines]
    assert {"update", "delete", "insert"} == {line[1] for line in lines}
    code, out, _ = run(capsys, "feed", mirror, "orders", "--after", "-1", "--limit", "1")
    assert "There are more" in out
    newest = lines[0][0]
    code, out, _ = run(capsys, "feed", mirror, "orders", "--until", newest)
    assert (0, 5) == (code, len(out.splitlines()[2:]))
    code, out, _ = run(capsys, "feed", mirror, "orders", "--after", newest)
    assert (0, True) == (code, "Nothing has changed" in out)
    beyond = ("feed", mirror, "orders", "--after", f"{int(newest) + 1}")
    assert "is beyond the newest version" in run(capsys, *beyond)[2]
    code, out, _ = run(capsys, *beyond, "--allow-out-of-range")
    assert (0, True) == (code, "Nothing has changed" in out)


def test_feed_as_json_lines(mirror: str, capsys: pytest.CaptureFixture[str]) -> None:
    """One object a change; net, rows that came and went within the window are not in it."""
    code, out, _ = run(capsys, "feed", mirror, "orders", "--after", "-1", "--net", "--json")

    found = [json.loads(line) for line in out.splitlines()]
    assert 0 == code
    assert [{"id": 1, "n": 11}, {"id": 3, "n": 30}] == sorted(
        (change["after"] for change in found), key=lambda row: row["id"]
    )
    assert {"insert"} == {change["change"] for change in found}
    assert {"version", "timestamp", "change", "before", "after"} == set(found[0])


@pytest.mark.thorough("arguments[12]")
@pytest.mark.parametrize(
    "arguments", [("none",), ("orders", "--after", "99"), ("orders", "--after", "soon")]
)
def test_feed_tells_what_is_wrong(
    mirror: str, arguments: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    """In one line."""
    code, out, err = run(capsys, "feed", mirror, *arguments)
    assert (2, "", 1) == (code, out, len(err.splitlines()))


def test_enable_feed(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every table below a folder; one with a reserved name is refused, with the statements that rename it."""
    for name, columns in {
        "s/a": "id bigint",
        "s/b": "id bigint, _change_type string, Change_Type string",
        "c": "id bigint",
    }.items():
        spark.sql(f"CREATE TABLE delta.`{tmp_path / name}` ({columns}) USING delta")
    code, out, _ = run(capsys, "enable-feed", str(tmp_path), "--json")
    found = {table["table"]: table for table in json.loads(out)["tables"]}

    assert 1 == code
    assert {"s/a": "enabled", "s/b": "refused", "c": "enabled"} == {
        n: t["state"] for n, t in found.items()
    }
    assert "RENAME COLUMN `_change_type` TO `change_type_`" in found["s/b"]["reason"]
    properties = dict(spark.sql(f"SHOW TBLPROPERTIES delta.`{tmp_path / 'c'}`").collect())
    assert ("true", "interval 7 days") == (
        properties["delta.enableChangeDataFeed"], properties["delta.deletedFileRetentionDuration"]
    )  # fmt: skip
    spark.sql(f"INSERT INTO delta.`{tmp_path / 'c'}` VALUES (1)")
    assert 1 == mirrorlib.read_feed(spark, str(tmp_path / "c"), after=1).count()
    again = mirrorlib.enable_feed(spark, str(tmp_path / "c"))
    assert ["already"] == [table.state for table in again.tables]
    longer = mirrorlib.enable_feed(spark, str(tmp_path), tables=["c"], days=60)
    assert [("c", 3)] == [(table.table, table.version) for table in longer.tables]
    for switch in (
        lambda: mirrorlib.enable_feed(spark, str(tmp_path), days=0),
        lambda: mirrorlib.enable_by_default(spark, days=0),
    ):
        with pytest.raises(FeedError, match="number of days"):
            switch()


@pytest.mark.parametrize("command", ["enable-feed", "optimize", "vacuum"])
def test_a_name_that_fits_no_table_is_no_success(
    mirror: str, command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A misspelt one would pass for a table on which all is well, next to one that is there."""
    code, out, err = run(capsys, command, mirror, "--table", "orders", "--table", "odrers")
    assert (2, "") == (code, out)
    assert "odrers: no table matches (found tables orders" in err


def test_what_is_kept_for_longer_is_not_shortened(spark: SparkSession, tmp_path: Path) -> None:
    """Neither the log nor the files, whatever unit they are said in; each for itself."""
    table = Table(
        spark,
        tmp_path / "t",
        "id bigint",
        "'delta.logRetentionDuration' = 'interval 52 weeks', 'delta.deletedFileRetentionDuration' = 'interval 9 days'",
    )

    def kept() -> tuple[str, str]:
        properties = dict(spark.sql(f"SHOW TBLPROPERTIES delta.`{table.path}`").collect())
        names = ("delta.logRetentionDuration", "delta.deletedFileRetentionDuration")
        return properties[names[0]], properties[names[1]]

    assert mirrorlib.enable_feed(spark, table.path, days=8).ok
    assert ("interval 52 weeks", "interval 9 days") == kept()
    assert mirrorlib.enable_feed(spark, table.path, days=14).ok
    assert ("interval 52 weeks", "interval 14 days") == kept()
    assert "already" == mirrorlib.enable_feed(spark, table.path, days=10).tables[0].state


def test_every_new_table_of_a_session(spark: SparkSession, tmp_path: Path) -> None:
    """Of that session alone."""
    session = spark.newSession()
    with pytest.raises(FeedError, match=r"found 0\)\. Give a whole number"):
        mirrorlib.enable_by_default(session, days=0)
    mirrorlib.enable_by_default(session)
    session.range(3).write.format("delta").save(str(tmp_path / "t"))

    assert 3 == mirrorlib.read_feed(spark, str(tmp_path / "t"), after=-1).count()


@pytest.mark.thorough
def test_a_stream_goes_on_where_it_is_told(spark: SparkSession, tmp_path: Path) -> None:
    """From the rows that are there, from a version, and from the newest one, which leaves nothing out or in twice."""
    table = str(tmp_path / "t")
    spark.sql(
        f"CREATE TABLE delta.`{table}` (id bigint) USING delta TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true')"
    )
    spark.sql(f"INSERT INTO delta.`{table}` VALUES (1), (2)")
    spark.sql(f"DELETE FROM delta.`{table}` WHERE id = 1")
    newest = mirrorlib.stream_feed(spark, table, after=2)
    spark.sql(f"INSERT INTO delta.`{table}` VALUES (3)")
    streams = {
        "all": mirrorlib.stream_feed(spark, table, max_files=1),
        "after": mirrorlib.stream_feed(spark, table, after=1, max_bytes=1),
        "newest": newest,
    }
    expected = {
        "all": {("insert", 2), ("insert", 3)},
        "after": {("delete", 1), ("insert", 3)},
        "newest": {("insert", 3)},
    }
    for name, stream in streams.items():
        out = str(tmp_path / name)
        query = stream.writeStream.option("checkpointLocation", f"{out}-checkpoint").trigger(
            availableNow=True
        )
        query.format("parquet").start(out).awaitTermination()
        rows = spark.read.parquet(out).select("_change_type", "id").collect()
        assert expected[name] == {tuple(row) for row in rows}
        assert len(expected[name]) == len(rows)
    with pytest.raises(FeedError):
        mirrorlib.stream_feed(spark, table, after=9)


def test_json_says_every_value(
    spark: SparkSession,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Moments in UTC wherever the machine stands, in an hour that comes twice; what JSON has no word for as a text, at any depth."""
    table = Table(
        spark,
        tmp_path / "t",
        "m map<date, int>, d double, s struct<b: binary, i: array<double>>, ts timestamp, ntz timestamp_ntz",
    ).run(
        "INSERT INTO {t} SELECT map(DATE'2026-01-01', 1), double('NaN'), named_struct('b', X'00ff', 'i', "
        "array(double('-Infinity'))), TIMESTAMP'2026-10-25 01:30:00Z', TIMESTAMP_NTZ'2026-01-01 00:00:00'"
    )
    (committed,) = table.times()[1:]
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    try:
        _, out, _ = run(capsys, "feed", str(tmp_path), "t", "--json")
    finally:
        monkeypatch.undo()
        time.tzset()
    found = json.loads(out, parse_constant=lambda word: pytest.fail(f"{word} is not JSON"))

    assert committed == datetime.fromisoformat(found["timestamp"])
    assert {
        "m": [{"key": "2026-01-01", "value": 1}],
        "d": "NaN",
        "s": {"b": "AP8=", "i": ["-Infinity"]},
        "ts": "2026-10-25T01:30:00.000000Z",
        "ntz": "2026-01-01T00:00:00.000000",
    } == found["after"]


def test_an_equal_variant_is_unchanged(spark: SparkSession, tmp_path: Path) -> None:
    """Python takes two equal ones for different; what JSON has of it is what is compared."""
    if not hasattr(types, "VariantVal"):
        pytest.skip("Spark 4 has variants")
    table = Table(spark, tmp_path / "t", "id bigint, v variant").run(
        """INSERT INTO {t} VALUES (1, parse_json('{{"b": 1, "a": [1.5]}}'))""",
        "UPDATE {t} SET id = id",
    )
    changes = first_changes(table.read(after=1, keys=["id"]), "t", ["id"], limit=3)
    assert [("2", "update", "1", "unchanged")] == changes.rows()


@pytest.mark.thorough
def test_a_year_that_python_has_not_is_told(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As Spark writes it."""
    Table(spark, tmp_path / "t", "id bigint, at timestamp").run(
        "INSERT INTO {t} VALUES (1, timestamp'+10001-01-05 00:00:00')"
    )
    code, out, _ = run(capsys, "feed", str(tmp_path), "t", "--json")
    at = "+10001-01-05T00:00:00.000000Z"
    assert (0, {"id": 1, "at": at}) == (code, json.loads(out)["after"])


def test_a_limit_cuts_no_update_in_two(spark: SparkSession, tmp_path: Path) -> None:
    """However many rows have one key, and however that is spelled."""
    table = Table(spark, tmp_path / "t", "id bigint, v bigint").run(
        "INSERT INTO {t} SELECT 1, id FROM range(50)", "UPDATE {t} SET v = v + 1000"
    )
    changes = first_changes(table.read(after=1, keys=["id"]), "t", ["ID"], limit=3)

    assert ("id",) == changes.keys
    assert [("update", v, v + 1000) for v in range(3)] == [
        (c.change, (c.before or {})["v"], (c.after or {})["v"]) for c in changes.changes
    ]
    assert changes.more


def test_values_are_coloured_by_what_they_are(spark: SparkSession, tmp_path: Path) -> None:
    """The value before in one colour, the one after in another, in the columns that differ; markup is none."""
    table = Table(spark, tmp_path / "t", "id bigint, v string, w int").run(
        "INSERT INTO {t} VALUES (1, '[red]a', 5)", "UPDATE {t} SET v = 'b'"
    )
    changes = first_changes(table.read(after=1, keys=["id"]), "t", ["id"], limit=3)
    text = _coloured(changes.rows()[0][-1])

    assert "v: [red]a → b" == text.plain
    assert {"[red]a": "red", "b": "green"} == {
        text.plain[span.start : span.end]: span.style for span in text.spans
    }


@pytest.mark.thorough
def test_a_schema_may_hold_what_is_no_delta_table(spark: SparkSession) -> None:
    """Views and other formats are left out; a table whose folder is gone is named, and stops nothing."""
    spark.sql("CREATE DATABASE IF NOT EXISTS mixed")
    try:
        spark.sql("CREATE TABLE mixed.a (Provider bigint, Type bigint) USING delta")
        spark.sql("CREATE TABLE mixed.b (id bigint) USING parquet")
        spark.sql("CREATE VIEW mixed.c AS SELECT 1 AS id")
        spark.sql("CREATE TABLE mixed.d (id bigint) USING delta")
        detail = spark.sql("DESCRIBE DETAIL mixed.d").collect()[0]
        shutil.rmtree(detail["location"].removeprefix("file:"))
        report = mirrorlib.enable_feed(spark, "mixed", catalog="spark_catalog")
    finally:
        spark.sql("DROP DATABASE mixed CASCADE")

    assert [("a", "enabled"), ("d", "refused")] == [(t.table, t.state) for t in report.tables]
    assert "d: " in report.tables[1].reason
