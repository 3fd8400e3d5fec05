"""Where a file went and where a key is from is told step by step; what can no longer be told is said."""

from __future__ import annotations

import json
import random
import shutil
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import mirrorlib
from logs import Log
from mirrorlib.cli.main import main
from mirrorlib.errors import JournalError, KeysError, LandingZoneError
from mirrorlib.operate.trace.files import Past, trace_file
from mirrorlib.store import LocalStore
from mirrors import Mirror
from oracle import canonical
from polls import FOLDER, Poller, counting
from tables import read_rows
from test_apply_property import CUTS, LOGS_PER_ZONE, all_logs, apply_once, publish
from zones import MARKER, ZoneWriter

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mirrorlib.operate.trace.files import Step
    from pyspark.sql import SparkSession

Facts = dict[str, Any]


def facts(steps: tuple[Step, ...], *names: str) -> list[tuple[object, ...]]:
    """Give some facts of each step."""
    return [tuple(getattr(step, name) for name in names) for step in steps]


@pytest.fixture
def orders(spark: SparkSession, zone: ZoneWriter, target: str) -> str:
    """Apply three files one by one, of which a consumer was given the first two; return the table's name."""
    table = zone.table("orders", keys=["id"], schema="dbo")
    table.file([{"id": 1, "v": "a"}, {"id": 2, "v": "b"}])
    mirrorlib.apply(spark, str(zone), target)
    copy = f"delta:{target}-copy"
    mirrorlib.export(spark, target, consumer="lake", to=copy)
    table.file([{"id": 1, "v": "c"}, {"id": 3, "v": "x"}, {"id": 1, "v": "d"}], markers=[1, 4, 1])
    mirrorlib.apply(spark, str(zone), target)
    mirrorlib.export(spark, target, consumer="lake", to=copy)
    table.file([{"id": 1, "v": None}], markers=[2])
    mirrorlib.apply(spark, str(zone), target)
    return "dbo/orders"


@pytest.mark.smoke
def test_the_life_of_a_file_and_of_a_key(
    spark: SparkSession,
    zone: ZoneWriter,
    target: str,
    orders: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """From its publication to its receivers; from the row of a file that made it, over an update, to its end."""
    name = f"{2:020d}.parquet"
    file = mirrorlib.where_is(target, orders, file=2)
    key = mirrorlib.where_is(target, "orders", key={"ID": "1"}, spark=spark)

    assert [
        ("published", 1, 2, None, name, None),
        ("listed", 1, 2, None, name, None),
        ("applied", 1, 2, 2, name, None),
        ("delivered", None, None, 2, None, "lake"),
        ("now", 1, 2, None, name, None),
    ] == facts(file.steps, "what", "life", "batch", "version", "file", "consumer")
    assert {"inserts": 0, "updates": 2, "deletes": 0, "upserts": 1} == file.steps[2].rows
    assert ("(1, 2]", "in its place") == (file.steps[3].window, file.steps[4].detail)
    first, third = (name.replace("2", number) for number in "13")
    assert [
        ("insert", 1, 1, None, None, None, ""),
        ("row", 1, 1, first, 0, None, "insert"),
        ("delivered", None, 1, None, None, "lake", f"snapshot, window 1, to delta:{target}-copy"),
        ("update", 2, 2, None, None, None, "v"),
        ("row", 2, 2, name, 0, None, "update"),
        ("row", 2, 2, name, 2, None, "update"),
        ("delivered", None, 2, None, None, "lake", f"changes, window 2, to delta:{target}-copy"),
        ("delete", 3, 3, None, None, None, ""),
        ("row", 3, 3, third, 0, None, "delete"),
        ("now", None, 3, None, None, None, "not in the table"),
    ] == facts(key.steps, "what", "batch", "version", "file", "row", "consumer", "detail")
    assert ((), (), {"id": 1}) == (file.lost, key.lost, key.key)
    for found, asked in ((file, ["--file", name]), (key, ["--key", "id=1"])):
        assert 0 == main(["where-is", target, orders, "--json", *asked])
        said = capsys.readouterr().out
        assert {**json.loads(said), "file": None} == {
            **json.loads(json.dumps(found.to_dict())),
            "file": None,
        }


def test_values_are_told_where_they_are_asked_for(
    spark: SparkSession, target: str, orders: str
) -> None:
    """Each change's row before and after it, and the names of the columns that have changed without that."""
    hidden = mirrorlib.where_is(target, orders, key={"id": 1}, spark=spark)
    shown = mirrorlib.where_is(
        target, orders, key={"id": 1}, spark=spark, show_values=True, after=1
    )

    assert not any(step.before or step.after for step in hidden.steps)
    assert [
        ("update", {"id": 1, "v": "a"}, {"id": 1, "v": "d"}),
        ("delete", {"id": 1, "v": "d"}, None),
    ] == [one for one in facts(shown.steps, "what", "before", "after") if one[1]]
    assert "v: a → d" in str(shown)
    assert "a → d" not in str(hidden)


def test_steps_are_a_dataframe(spark: SparkSession, target: str, orders: str) -> None:
    """With moments and counts as such, rows as JSON; without a step it has its columns all the same."""
    key = mirrorlib.where_is(target, orders, key={"id": 1}, spark=spark, show_values=True)
    frame = key.to_frame(spark)
    (row,) = (
        mirrorlib.where_is(target, orders, file=2)
        .to_frame(spark)
        .where("what = 'applied'")
        .collect()
    )

    assert ["v"] == [
        json.loads(row["after"])["v"] and "v" for row in frame.where("what = 'update'").collect()
    ]
    assert frame.schema["at"].dataType.typeName() == "timestamp"
    assert 2 == row["rows"]["updates"]
    assert len(key.steps) == frame.count()


def test_a_file_is_found_by_what_people_call_it(target: str, orders: str, zone: ZoneWriter) -> None:
    """Its number, with or without zeros, its name, its path; not by a part of its name."""
    name = f"{2:020d}.parquet"
    place = f"{zone}/dbo.schema/orders/{name}"
    steps = [
        mirrorlib.where_is(target, orders, file=one).steps
        for one in (2, "2", f"{2:020d}", name, place)
    ]

    assert all(steps[0] == one for one in steps)
    with pytest.raises(JournalError, match=rf"{3:020d}\.parquet in the newest batch"):
        mirrorlib.where_is(target, orders, file="2.parquet")


def test_what_is_not_applied_says_why(spark: SparkSession, tmp_path: Path) -> None:
    """Behind a gap, late, or behind an earlier life; and what was never there is an error."""
    mirror = Mirror(spark, tmp_path)
    mirror.publish()
    mirror.apply()
    mirror.table.file([{"id": 1}], number=3)

    waiting = mirrorlib.where_is(mirror.target, "orders", file=3)
    mirror.table.file([{"id": 1}], number=2)
    (behind,) = mirrorlib.where_is(mirror.target, "orders", file=2).steps
    mirror.apply()
    mirror.reset()
    again = mirrorlib.where_is(mirror.target, "orders", file=1)

    assert [("waiting", mirror.file_name(3))] == facts(waiting.steps, "what", "file")
    assert f"{mirror.file_name(2)} is missing" in waiting.steps[0].detail
    assert "not applied yet" in behind.detail
    assert [("applied", 1), ("waiting", None)] == [
        one for one in facts(again.steps, "what", "life") if one[0] in {"applied", "waiting"}
    ]


def test_a_file_that_came_late_is_passed_over(
    spark: SparkSession, zone: ZoneWriter, target: str
) -> None:
    """A life that begins with another number takes none of those before it."""
    table = zone.table("orders", keys=["id"])
    table.file([{"id": 1}], number=5)
    mirrorlib.apply(spark, str(zone), target, start_at=5)
    table.file([{"id": 1}], number=2)

    assert [("passed over",)] == facts(mirrorlib.where_is(target, "orders", file=2).steps, "what")


def test_a_voided_batch_says_what_voided_it(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And the batches that had its files before or after; while a batch is under way, nobody knows yet."""
    monkeypatch.setattr("mirrorlib.ingest.batch.open_batch.SMALL_BYTES", -1)
    mirror = Mirror(spark, tmp_path)
    mirror.publish()
    mirror.apply()
    mirror.publish()
    mirror.run_until("plan", "after")
    under_way = mirrorlib.where_is(mirror.target, "orders", file=2)
    mirror.replace(2)
    mirror.apply()

    found = mirrorlib.where_is(mirror.target, "orders", file=2)

    told = [("published",), ("listed",)]
    assert [*told, ("under way",), ("now",)] == facts(under_way.steps, "what")
    assert [*told, ("void",), ("now",), *told, ("applied",), ("now",)] == facts(found.steps, "what")
    assert "was replaced or removed after batch 2 was planned" in found.steps[2].detail
    assert ["the change file is not what was applied", "in its place"] == [
        step.detail for step in found.steps if step.what == "now"
    ]


def test_files_are_found_where_they_were_moved_or_said_to_be_gone(
    spark: SparkSession, zone: ZoneWriter, target: str
) -> None:
    """Rows of a file that is gone are those of its batch, as the journal has them; those of a key are not told."""
    table = zone.table("orders", keys=["id"])
    paths = [table.file([{"id": number}, {"id": 9}], markers=[4, 4]) for number in range(1, 4)]
    mirrorlib.apply(spark, str(zone), target, cleanup="move")
    moved = mirrorlib.where_is(target, "orders", file=1).steps
    day = datetime.now(UTC).date().isoformat()
    shutil.rmtree(table.folder / "_ProcessedFiles")

    gone = mirrorlib.where_is(target, "orders", file=1).steps
    key = mirrorlib.where_is(target, "orders", key={"id": 9}, spark=spark)

    assert (2, f"_ProcessedFiles/{day}") == (
        moved[2].rows and moved[2].rows["upserts"],
        moved[-1].detail,
    )
    assert (6, "in its whole batch") == (gone[2].rows and gone[2].rows["upserts"], gone[2].detail)
    assert "the change file is gone" == gone[-1].detail
    assert [(paths[2].name, 1)] == [
        one[1:] for one in facts(key.steps, "what", "file", "row") if one[0] == "row"
    ]
    assert [f"rows of {path.name}, batch 1: the change file is gone" for path in paths[:2]] == list(
        key.lost
    )


def test_what_others_did_to_a_row_is_told_as_theirs(
    spark: SparkSession, target: str, orders: str
) -> None:
    """By Delta's word for it."""
    spark.sql(f"UPDATE delta.`{target}/{orders}` SET v = 'secret' WHERE id = 3")

    key = mirrorlib.where_is(target, orders, key={"id": 3}, spark=spark)

    (step,) = (step for step in key.steps if step.what == "update")
    assert (None, None) == (step.life, step.batch)
    assert step.detail.startswith("UPDATE by ")
    assert "secret" not in json.dumps(key.to_dict())


def test_changes_that_the_feed_has_lost_are_said(
    spark: SparkSession, target: str, orders: str
) -> None:
    """From which version on it is whole; what the table has of the key is told all the same."""
    table = f"delta.`{target}/{orders}`"
    spark.sql(f"ALTER TABLE {table} SET TBLPROPERTIES (delta.enableChangeDataFeed = false)")
    off = mirrorlib.where_is(target, orders, key={"id": 2}, spark=spark)
    spark.sql(f"ALTER TABLE {table} SET TBLPROPERTIES (delta.enableChangeDataFeed = true)")
    spark.sql(f"DELETE FROM {table} WHERE id = 2")
    on = mirrorlib.where_is(target, orders, key={"id": 2}, spark=spark)

    assert [("now", {"rows": 1})] == facts(off.steps, "what", "rows")
    assert "the feed was off" in off.lost[0]
    assert [("delete",), ("now",)] == facts(on.steps, "what")
    assert on.lost[0].startswith("changes before version 5: ")


KEYS: dict[str, tuple[pa.DataType, object, str]] = {
    "text": (pa.string(), "a,b=c `d`", "a,b=c `d`"),
    "day": (pa.date32(), date(2026, 1, 28), "2026-01-28"),
    "at": (
        pa.timestamp("us", "UTC"),
        datetime(2026, 1, 28, 12, tzinfo=UTC),
        "2026-01-28T12:00:00+00:00",
    ),
    "amount": (pa.decimal128(6, 2), Decimal("1.50"), "1.5"),
    "part": (pa.float64(), float("nan"), "NaN"),
    "flag": (pa.bool_(), True, "true"),
}


def test_keys_of_every_type_are_read_from_text(
    spark: SparkSession, zone: ZoneWriter, target: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A value is all behind the first `=`, and NULL can be asked for from Python."""
    schema = pa.schema([(name, kind) for name, (kind, _, _) in KEYS.items()])
    table = zone.table("orders", keys=[*KEYS])
    row = {name: value for name, (_, value, _) in KEYS.items()}
    table.file([row, dict.fromkeys(KEYS)], columns=schema)
    mirrorlib.apply(spark, str(zone), target)
    pairs = [f"{name}={text}" for name, (_, _, text) in KEYS.items()]

    assert 0 == main(["where-is", target, "orders", "--json", *(f"--key={pair}" for pair in pairs)])
    said = json.loads(capsys.readouterr().out)["steps"]
    typed = mirrorlib.where_is(target, "orders", key=row, spark=spark).steps
    nulls = mirrorlib.where_is(target, "orders", key=dict.fromkeys(KEYS), spark=spark).steps

    told = [("insert", None), ("row", 0), ("now", None)]
    assert told == [(step["what"], step["row"]) for step in said]
    assert told == facts(typed, "what", "row")
    assert [("insert", None), ("row", 1), ("now", None)] == facts(nulls, "what", "row")


@pytest.mark.parametrize(
    "key, words",
    [
        ({"id": "x"}, r"column id: the value is no bigint \(found 'x'\)"),
        ({"id": 1.5}, r"column id: the value is no bigint \(found 1\.5\)"),
        ({"id": 2**63}, "column id: the value is no bigint"),
        ({"id": "1", "v": "a"}, r"found id, v\)\. Give id,"),
        ({"v": "a"}, r"found v\)\. Give id,"),
        ({}, r"found nothing\)\. Give id,"),
    ],
)
def test_a_key_that_is_none_is_refused(
    spark: SparkSession, target: str, orders: str, key: Mapping[str, object], words: str
) -> None:
    """By the column, its type, and what was given; or by the columns that there have to be."""
    with pytest.raises(KeysError, match=words):
        mirrorlib.where_is(target, orders, key=key, spark=spark)


def test_what_is_asked_for_has_to_be_there(
    spark: SparkSession, zone: ZoneWriter, target: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """One of a file and a key, a table that is one, and has keys."""
    for schema in ("a", "b"):
        zone.table("orders", schema=schema, keys=[]).file([{"id": 1}])
    mirrorlib.apply(spark, str(zone), target)

    with pytest.raises(JournalError, match=r"has no such table \(found a/orders, b/orders\)"):
        mirrorlib.where_is(target, "oders", file=1)
    with pytest.raises(JournalError, match="several tables"):
        mirrorlib.where_is(target, "orders", file=1)
    with pytest.raises(KeysError, match="It has none; see"):
        mirrorlib.where_is(target, "a/orders", key={"id": 1}, spark=spark)
    for wrong in ({}, {"file": 1, "key": {"id": 1}}, {"key": {"id": 1}}):
        with pytest.raises(LandingZoneError, match="a file is asked for, or a key"):
            mirrorlib.where_is(target, "a/orders", **wrong)  # type: ignore[arg-type]  # that is the test
    assert 2 == main(["where-is", target, "a/orders"])
    for words in (
        ["--key", "id"],
        ["--key", "id=1", "--key", "id=2"],
        ["--file", "1", "--key", "id=1"],
    ):
        with pytest.raises(SystemExit):
            main(["where-is", target, "a/orders", *words])
    assert "names a column twice" in capsys.readouterr().err


def test_text_and_partition_folders_tell_rows_too(
    spark: SparkSession, zone: ZoneWriter, target: str
) -> None:
    """A part of the key may be in a folder's name alone; a number is one of every folder."""
    columns = [{"Name": name, "DataType": "Int32"} for name in ("id", "v")]
    more = {
        "FileFormat": "CSV",
        "SchemaDefinition": {"Columns": columns},
        "isPartitionEnabled": True,
    }
    table = zone.table("orders", keys=["id", "Region"], metadata=more)
    for region in ("eu", "us"):
        folder = table.folder / f"Region={region}"
        folder.mkdir()
        (folder / f"{1:020d}.csv").write_text("id,v\r\n1,1\r\n2,1\r\n", newline="")
    mirrorlib.apply(spark, str(zone), target, settle=0)

    key = mirrorlib.where_is(target, "orders", key={"id": "2", "Region": "us"}, spark=spark)
    files = mirrorlib.where_is(target, "orders", file=1)
    one = mirrorlib.where_is(target, "orders", file=f"Region=us/{1:020d}.csv")

    assert [(f"Region=us/{1:020d}.csv", 1)] == [
        (step.file, step.row) for step in key.steps if step.what == "row"
    ]
    assert ["Region=eu", "Region=us"] == sorted(
        {str(step.file).partition("/")[0] for step in files.steps}
    )
    assert {f"Region=us/{1:020d}.csv"} == {step.file for step in one.steps}


def long_journal(folder: Path, batches: int, *, by_time: bool) -> tuple[Poller, Any]:
    """Let a table have been applied file by file; return it, and what counts how its journal is asked."""
    zone = ZoneWriter(folder / "zone")
    table = zone.table("orders", keys=["id"], by_time=by_time)
    table.file([{"id": 1}])
    first = table.path(1).read_bytes()
    state, counter = counting(LocalStore(folder / "state"))
    poller = Poller(zone=LocalStore(folder / "zone"), state=state)
    for number in range(2, batches + 1):
        table.path(number).write_bytes(first)
    poller.poll(max_files=1)
    counter.asked()
    return poller, counter


@pytest.mark.parametrize("by_time", [False, pytest.param(True, marks=pytest.mark.thorough)])
def test_a_long_journal_is_not_read_through(tmp_path: Path, *, by_time: bool) -> None:
    """A file is found by halves, by its number, or by the place that a file without one has among the others."""
    poller, counter = long_journal(tmp_path, 300, by_time=by_time)

    for place, name in enumerate(poller.handed, start=1):
        if place % 59 == 1 or place == len(poller.handed):
            steps = trace_file(Past(poller.state, FOLDER.name), name)
            assert [(place, place)] == [
                (step.batch, step.version) for step in steps if step.what == "applied"
            ]
            assert counter.asked()["read"] < (60 if not by_time else 500)


def assert_replays(
    spark: SparkSession, zone: ZoneWriter, target: Path, table: str, rows: list[Facts]
) -> int:
    """Ask for every key that files of a table have; see that its changes lead to its rows, and each told row is one of it."""
    keys = json.loads((zone.root / table / "_metadata.json").read_text())["keyColumns"]
    published = {
        str(path.relative_to(zone.root / table)): pq.read_table(path).to_pylist()
        for path in (zone.root / table).rglob("*.parquet")
    }
    return len(keys) + len(published)
