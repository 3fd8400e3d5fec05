"""Where a file went and where a key is from is told step by step; what can no longer be told is said."""

from __future__ import annotations

import json
import random
import shutil
from collections import Counter
from dataclasses import replace
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
from mirrorlib.feed.changes import first_changes
from mirrorlib.ingest.files.history import History
from mirrorlib.journal.disk import Journal
from mirrorlib.journal.entries import Done, now
from mirrorlib.names import parse_name
from mirrorlib.operate.trace.files import Past, trace_file
from mirrorlib.store import LocalStore
from mirrors import Mirror
from operate.test_status import plan_of
from oracle import canonical
from polls import FOLDER, Poller, counting
from test_apply_property import CUTS, apply_in_two
from zones import MARKER, ZoneWriter

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import SparkSession

    from mirrorlib.operate.trace.files import Step
    from zones import TableWriter

Facts = dict[str, Any]
KINDS = {"insert", "update", "delete"}
NAMES = {0: "insert", 1: "update", 2: "delete", 4: "upsert"}


def facts(steps: tuple[Step, ...], *names: str) -> list[tuple[object, ...]]:
    """Give some facts of each step."""
    return [tuple(getattr(step, name) for name in names) for step in steps]


@pytest.fixture(scope="module")
def orders(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Facts:
    """Apply three files one by one, of which a consumer was given the first two; return arguments that name the table."""
    folder = tmp_path_factory.mktemp("where")
    zone, target = ZoneWriter(folder / "zone"), str(folder / "target")
    table = zone.table("orders", keys=["id"], schema="dbo")
    table.file([{"id": 1, "v": "a"}, {"id": 2, "v": "b"}])
    mirrorlib.apply(spark, str(zone), target)
    mirrorlib.export(spark, target, consumer="lake", to=f"delta:{target}-copy")
    table.file([{"id": 1, "v": "c"}, {"id": 3, "v": "x"}, {"id": 1, "v": "d"}], markers=[1, 4, 1])
    mirrorlib.apply(spark, str(zone), target)
    mirrorlib.export(spark, target, consumer="lake", to=f"delta:{target}-copy")
    table.file([{"id": 1, "v": None}], markers=[2])
    mirrorlib.apply(spark, str(zone), target)
    return {"target": target, "table": "dbo/orders"}


@pytest.mark.smoke
def test_the_life_of_a_file_and_of_a_key(
    spark: SparkSession, orders: Facts, capsys: pytest.CaptureFixture[str]
) -> None:
    """From its publication to its receivers; from the row of a file that made it, over an update, to its end."""
    name = f"{2:020d}.parquet"
    target = orders["target"]
    file = mirrorlib.where_is(**orders, file=2)
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
        assert 0 == main(["where-is", *orders.values(), "--json", *asked])
        said = capsys.readouterr().out
        assert {**json.loads(said), "file": None} == {
            **json.loads(json.dumps(found.to_dict())),
            "file": None,
        }


def test_values_are_told_where_they_are_asked_for(spark: SparkSession, orders: Facts) -> None:
    """Each change's row before and after it, and the names of the columns that have changed without that."""
    hidden = mirrorlib.where_is(**orders, key={"id": 1}, spark=spark)
    shown = mirrorlib.where_is(**orders, key={"id": 1}, spark=spark, show_values=True, after=1)

    assert not any(step.before or step.after for step in hidden.steps)
    assert [
        ("update", {"id": 1, "v": "a"}, {"id": 1, "v": "d"}),
        ("delete", {"id": 1, "v": "d"}, None),
    ] == [one for one in facts(shown.steps, "what", "before", "after") if one[1]]
    assert "v: a → d" in str(shown)
    assert "a → d" not in str(hidden)


def test_steps_are_a_dataframe(spark: SparkSession, orders: Facts) -> None:
    """With moments and counts as such, and rows as JSON."""
    key = mirrorlib.where_is(**orders, key={"id": 1}, spark=spark, show_values=True)
    file = mirrorlib.where_is(**orders, file=2)

    told = [row for row in key.to_frame(spark).collect() if row["what"] == "update"]
    counted = [row for row in file.to_frame(spark).collect() if row["what"] == "applied"]

    assert [{"id": 1, "v": "d"}] == [json.loads(row["after"]) for row in told]
    assert [2] == [row["rows"]["updates"] for row in counted]
    assert [datetime.fromisoformat(str(file.steps[2].at)).replace(tzinfo=None)] == [
        row["at"] for row in counted
    ]


def test_a_file_is_found_by_what_people_call_it(orders: Facts) -> None:
    """Its number, with or without zeros, its name, its path; not by a part of its name."""
    name = f"{2:020d}.parquet"
    place = f"/somewhere/dbo.schema/orders/{name}"
    steps = [
        mirrorlib.where_is(**orders, file=one).steps for one in (2, "2", f"{2:020d}", name, place)
    ]

    assert all(steps[0] == one for one in steps)
    with pytest.raises(JournalError, match=rf"{3:020d}\.parquet in the newest batch"):
        mirrorlib.where_is(**orders, file="2.parquet")


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


@pytest.mark.thorough
def test_a_file_that_came_late_is_passed_over(
    spark: SparkSession, zone: ZoneWriter, target: str
) -> None:
    """A life that begins with another number takes none of those before it."""
    table = zone.table("orders", keys=["id"])
    table.file([{"id": 1}], number=5)
    mirrorlib.apply(spark, str(zone), target, start_at=5)
    table.file([{"id": 1}], number=2)

    assert [("passed over",)] == facts(mirrorlib.where_is(target, "orders", file=2).steps, "what")


@pytest.mark.thorough
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
    assert "was replaced or has grown after batch 2 was planned" in found.steps[2].detail
    assert ["the change file is not what was applied", "in its place"] == [
        step.detail for step in found.steps if step.what == "now"
    ]


def write_batch(
    zone: ZoneWriter, target: str, table: TableWriter, **ended: Any
) -> tuple[Journal, Done]:
    """Write a journal of one life and one batch, of all files of a table, and how that ended."""
    journal = Journal(LocalStore(Path(target) / "_mirrorlib"), parse_name("orders"))
    life = journal.begin_life("first seen", str(zone), 1)
    journal.write_plan(life, plan_of(life.uuid, str(zone), table))
    done = Done(table_id="t", columns=(), finished_at=now(), **ended)
    journal.write_done(life, 1, done)
    return journal, done


def test_a_file_whose_batch_was_voided_waits(zone: ZoneWriter, target: str) -> None:
    """Until another batch has it, the next apply is to take it."""
    table = zone.table("orders", keys=["id"])
    table.file([{"id": 1}])
    write_batch(zone, target, table, outcome="void", version=0, table_bytes=0, kind="empty")

    steps = mirrorlib.where_is(target, "orders", file=1).steps

    assert ["void", "now", "waiting"] == [step.what for step in steps[2:]]
    assert "not applied yet" in steps[-1].detail


def test_a_file_of_a_life_that_was_kept_is_not_passed_over(zone: ZoneWriter, target: str) -> None:
    """The table has its rows; what lies before a life that began anew, it has not."""
    table = zone.table("orders", keys=["id"])
    for number in (1, 2):
        table.file([{"id": number}])
    ended: dict[str, Any] = {"version": 1, "table_bytes": 1, "kind": "append"}
    journal, applied = write_batch(zone, target, table, outcome="applied", **ended)

    table.file([{"id": 3}])
    for ordinal, keeps in ((2, True), (3, False)):
        later = journal.begin_life("reset", str(zone), ordinal, keeps=keeps)
        plan = plan_of(later.uuid, str(zone), table)
        journal.write_plan(later, replace(plan, files=plan.files[2:]))
        journal.write_done(later, 1, applied)
        told = [step.what for step in mirrorlib.where_is(target, "orders", file=2).steps]
        assert keeps is ("passed over" not in told)


@pytest.mark.thorough
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


@pytest.mark.thorough
def test_what_others_did_and_what_the_feed_has_lost(
    spark: SparkSession, zone: ZoneWriter, target: str
) -> None:
    """Theirs is told by Delta's word; from which version on the feed is whole is said, and what the table has now."""
    zone.table("orders", keys=["id"]).file([{"id": 1, "v": "a"}])
    mirrorlib.apply(spark, str(zone), target)
    table = f"delta.`{target}/orders`"
    switch = f"ALTER TABLE {table} SET TBLPROPERTIES (delta.enableChangeDataFeed = {{}})"

    spark.sql(f"UPDATE {table} SET v = 'secret' WHERE id = 1")
    foreign = mirrorlib.where_is(target, "orders", key={"id": 1}, spark=spark)
    spark.sql(switch.format("false"))
    off = mirrorlib.where_is(target, "orders", key={"id": 1}, spark=spark)
    spark.sql(switch.format("true"))
    spark.sql(f"DELETE FROM {table} WHERE id = 1")
    on = mirrorlib.where_is(target, "orders", key={"id": 1}, spark=spark)

    (step,) = (step for step in foreign.steps if step.what == "update")
    assert (None, None, True) == (step.life, step.batch, step.detail.startswith("UPDATE by "))
    assert "secret" not in json.dumps(foreign.to_dict())
    assert [("now", {"rows": 1})] == facts(off.steps, "what", "rows")
    assert "the feed was off" in off.lost[0]
    assert [("delete",), ("now",)] == facts(on.steps, "what")
    assert on.lost[0].startswith("changes before version 4: the feed was off")


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


def test_a_key_that_is_none_is_refused(spark: SparkSession, orders: Facts) -> None:
    """By the column, its type, and what was given; or by the columns that there have to be."""
    refused: list[tuple[Facts, str]] = [
        ({"id": "x"}, r"column id: the value is no bigint \(found 'x'\)"),
        ({"id": 1.5}, r"column id: the value is no bigint \(found 1\.5\)"),
        ({"id": 2**63}, "column id: the value is no bigint"),
        ({"id": "1", "v": "a"}, r"found id, v\)\. Give id,"),
        ({"v": "a"}, r"found v\)\. Give id,"),
        ({}, r"found nothing\)\. Give id,"),
    ]
    for key, words in refused:
        with pytest.raises(KeysError, match=words):
            mirrorlib.where_is(**orders, key=key, spark=spark)


@pytest.mark.thorough
def test_what_is_asked_for_has_to_be_there(
    spark: SparkSession, zone: ZoneWriter, target: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """One of a file and a key, a table that is one, and has keys."""
    for schema in ("a", "b"):
        zone.table("orders", schema=schema, keys=[]).file([{"id": 1}])
    mirrorlib.apply(spark, str(zone), target)

    with pytest.raises(JournalError, match=r"there is no such table \(found a/orders, b/orders\)"):
        mirrorlib.where_is(target, "oders", file=1)
    with pytest.raises(JournalError, match="several tables"):
        mirrorlib.where_is(target, "orders", file=1)
    with pytest.raises(KeysError, match="It has none; see"):
        mirrorlib.where_is(target, "a/orders", key={"id": 1}, spark=spark)
    for wrong in ({}, {"file": 1, "key": {"id": 1}}, {"key": {"id": 1}}):
        with pytest.raises(LandingZoneError, match="it is a file that is asked for, or a key"):
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


@pytest.mark.thorough
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
    history = History(Journal(state, FOLDER), poller.zone.url)
    history.applied()
    history.compact()
    counter.asked()
    return poller, counter


@pytest.mark.thorough
@pytest.mark.parametrize("by_time", [False, True])
def test_a_long_journal_is_not_read_through(tmp_path: Path, *, by_time: bool) -> None:
    """A file is found by halves, by its number, or by the place that a file without one has among the others."""
    # By time, it takes some hundreds until more is compacted than not.
    poller, counter = long_journal(tmp_path, 300 if by_time else 120, by_time=by_time)

    for place, name in enumerate(poller.handed, start=1):
        if place % 29 == 1 or place == len(poller.handed):
            steps = trace_file(Past(poller.state, FOLDER), name)
            assert [(place, place)] == [
                (step.batch, step.version) for step in steps if step.what == "applied"
            ]
            assert counter.asked()["read"] < (60 if by_time else 40)


def test_a_consumer_whose_registry_is_damaged_is_named(tmp_path: Path) -> None:
    """What became of the file is told all the same."""
    poller, _ = long_journal(tmp_path, 2, by_time=False)
    poller.state.put(f"consumers/lake/{FOLDER.segment}/streams/000001.json", b"{")
    past = Past(poller.state, FOLDER)

    steps = trace_file(past, poller.handed[0])

    assert ["published", "listed", "applied", "now"] == [step.what for step in steps]
    (lost,) = past.lost
    assert lost.startswith("what lake was given: ")


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.thorough
@pytest.mark.parametrize(
    "number", [pytest.param(n, id=f"{n}-{one.name}") for n, one in enumerate(CUTS)]
)
def test_what_is_told_of_a_key_leads_to_its_rows(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """Its changes, one after the other, give what the table has of it; and each row that is told is one of its own."""
    logs, zone, target = apply_in_two(spark, tmp_path, monkeypatch, number)

    asked = 0
    for place, log in enumerate(logs):
        for key in some_keys(spark, target / f"t{place}", log):
            told = mirrorlib.where_is(
                str(target), f"t{place}", key=key, spark=spark, show_values=True
            )
            assert () == told.lost
            assert rows_of(spark, target / f"t{place}", key) == replayed(told.steps), told
            assert_rows_are_there(zone.root / f"t{place}", key, told.steps)
            asked += 1
    assert asked


def some_keys(spark: SparkSession, table: Path, log: Log) -> list[Facts]:
    """Choose keys that a table has had, the same in every run."""
    lowered = {key.strip().lower() for key in log.keys}
    if not lowered or not table.exists():
        return []
    frame = mirrorlib.read_feed(spark, table, after=-1)
    names = [name for name in frame.columns if name.lower() in lowered]
    rows = frame.select([f"`{name}`" for name in names]).distinct().collect()
    found = sorted((row.asDict() for row in rows), key=repr)
    return random.Random(len(found)).sample(found, min(3, len(found)))


def plain(row: Mapping[str, object]) -> str:
    """Give a row as a report has it."""
    return json.dumps(dict(sorted(row.items())), default=str)


def rows_of(spark: SparkSession, table: Path, key: Facts) -> Counter[str]:
    """Count what a table has of a key, as its snapshot would be fed."""
    from pyspark.sql import functions as f

    frame = mirrorlib.read_table(spark, table)
    for name, value in key.items():
        # A reader of Parquet that is asked for -0.0 may leave 0.0 out.
        column = f.col(f"`{name}`") + 0.0 if isinstance(value, float) else f.col(f"`{name}`")
        typed = f.lit(value).cast(frame.schema[name].dataType)
        frame = frame.where(column.eqNullSafe(typed))
    columns = {"_change_type": f.lit("insert"), "_commit_version": f.lit(0).cast("long")}
    fed = frame.withColumns({**columns, "_commit_timestamp": f.timestamp_micros(f.lit(0))})
    return Counter(plain(one.after or {}) for one in first_changes(fed, "", [*key], 1000).changes)


def replayed(steps: tuple[Step, ...]) -> Counter[str]:
    """Take away what each change has found, and add what it has left."""
    rows = Counter[str]()
    for step in steps:
        if step.before is not None:
            assert rows[plain(step.before)] > 0
            rows[plain(step.before)] -= 1
        if step.after is not None:
            rows[plain(step.after)] += 1
    return +rows


def assert_rows_are_there(folder: Path, key: Facts, steps: tuple[Step, ...]) -> None:
    """Look each row up in its file; behind each change of a batch there is one."""
    wanted = {name.lower(): canonical(value) for name, value in key.items()}
    rows = [step for step in steps if step.what == "row"]
    assert {step.version for step in rows} == {step.version for step in steps if step.what in KINDS}
    for step in rows:
        row = pq.read_table(folder / str(step.file)).to_pylist()[step.row or 0]
        lowered = {name.lower(): value for name, value in row.items()}
        assert wanted == {name: canonical(lowered.get(name)) for name in wanted}
        marker = lowered.get(MARKER.lower())
        assert marker is None or NAMES[int(str(marker).partition(".")[0])] == step.detail
