"""A table is compared with what its landing files come to, told anew; what differs is named, what cannot be told is said."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast
from unittest.mock import ANY, Mock

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import functions as f

import mirrorlib
from mirrorlib.cli.main import main
from mirrorlib.commit.stage import staging
from mirrorlib.errors import JournalError, LandingZoneError, StoreError
from mirrorlib.ingest.rows.marks import MARKER, ORDER
from mirrorlib.landing.columns import UPSERT
from mirrorlib.operate.verify import tables as verify_tables
from mirrorlib.operate.verify.compare import Sides, as_found
from mirrorlib.store import LocalStore, open_store
from mirrors import Mirror
from test_apply_property import CUTS, apply_in_two
from zones import ZoneWriter

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import SparkSession

    from logs import Log

pytestmark = pytest.mark.slow

Named = list[tuple[dict[str, Any], str]]


def named(report: mirrorlib.VerifyReport, table: str) -> Named:
    """Give the differences of one table: key and what is wrong with it."""
    (told,) = (one for one in report.tables if one.table == table)
    return [(dict(one.key), one.what) for one in told.differences]


def states(report: mirrorlib.VerifyReport) -> dict[str, str]:
    """Give the state of each table."""
    return {table.table: table.state for table in report.tables}


def test_what_a_killed_run_has_staged_goes_with_a_later_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Days later, as another run may be under way; what is known of tables stays. So does what cannot be removed, silently."""
    store, today = open_store(str(tmp_path)), datetime.now(UTC).date()
    folders = ["5f3a", str(today - timedelta(days=2)), f"{today - timedelta(days=1)}-5f3a"]
    for folder in folders:
        store.put(f"verified/{folder}/rows.parquet", b"rows")
    store.put("verified/orders.json", b"{}")

    with staging(cast("SparkSession", None), store, "verified", tidies=True) as stage:
        store.put(f"{stage.folder}/rows.parquet", b"rows")

    assert {"orders.json", folders[-1]} == {path.name for path in (tmp_path / "verified").iterdir()}
    refuse = Mock(side_effect=StoreError("cannot delete"))
    monkeypatch.setattr(LocalStore, "delete_folder", refuse)
    with staging(cast("SparkSession", None), store, "verified") as stage:
        store.put(f"{stage.folder}/rows.parquet", b"rows")
    refuse.assert_called_once_with(stage.folder)


@pytest.mark.parametrize("kind", ["bigint", "int"])
def test_keys_that_differ_are_found_wherever_they_lie(spark: SparkSession, kind: str) -> None:
    """Around every place where a range of keys ends, and beyond the ends of what is found."""
    keys = [-(1 << 24) - 1, -(1 << 24), -4097, -4096, -1, 0, 4095, 4096, (1 << 24) + 5]
    wanted = [(key, key) for key in keys]
    found = [(key, None if key % 2 else key) for key in keys[1:-1]]
    columns = f"id {kind}, v bigint"
    sides = Sides(
        begun=spark.createDataFrame(wanted, columns),
        found=as_found(spark.createDataFrame(found, columns)),
        columns=("id", "v"),
        keys=("id",),
        sample=1,
    )

    *counts, changes, more = sides.compare()

    differing = {change.before["id"] for change in changes if change.before}
    assert {*(key for key in keys if key % 2), keys[0], keys[-1]} == differing
    assert ([9, 7], False) == (counts, more)


@pytest.mark.thorough
@pytest.mark.parametrize("ways", [("widen", "widen"), ("rescue", "add")], ids=["widened", "added"])
def test_what_was_rescued_counts_as_such_when_it_would_fit_by_now(
    spark: SparkSession, tmp_path: Path, ways: tuple[str, str]
) -> None:
    """A double that the decimal of then did not hold, or a column that was not there: NULL for good."""
    zone, target = tmp_path / "zone", str(tmp_path / "target")
    (zone / "drop").mkdir(parents=True)
    narrow, wide = (
        pa.array([Decimal(value)], pa.decimal128(*kind))
        for value, kind in (("1.00", (5, 2)), ("4.1234", (9, 4)))
    )
    files: list[dict[str, Any]] = [{"a": narrow}, {"a": pa.array([1.005])}, {"a": wide}]
    if ways == ("rescue", "add"):
        files = [{"id": [1]}, {"id": [2], "n": ["x"]}, {"id": [3], "n": ["y"]}]
    for number, columns in enumerate(files):
        path = zone / "drop" / f"{number}.parquet"
        pq.write_table(pa.table(columns), path)
        way = {"plain_evolution": ways[number == 2]} if ways[0] == "rescue" else {}
        mirrorlib.apply(spark, str(zone), target, plain_folders="append", settle=0, **way)

    report = mirrorlib.verify(spark, str(zone), target, show_values=True)

    assert {"drop": "equal"} == states(report), str(report)
    rows = spark.read.format("delta").load(f"{target}/drop")
    assert 1 == rows.where("_rescued_data IS NOT NULL").count()


@pytest.mark.thorough
@pytest.mark.parametrize("kind", ["bigint", "string"])
def test_what_came_to_a_key_counts_for_that_key_alone(spark: SparkSession, kind: str) -> None:
    """Whichever of its neighbours it came to: keys that are looked for together, NULL, and those beyond both ends."""
    keys = [*range(-130, 130), None]
    touched = [None, -65, -1, 0, 63, 64, 500, *random.Random(5).sample(keys, 90)]
    changes = [
        (key, "new", (1, 2, 4)[nth % 3], nth) for nth, key in enumerate(dict.fromkeys(touched))
    ]
    rows: dict[int | None, str] = dict.fromkeys(keys, "old")
    wrong = {None, 500, 62}  # nothing came to the last one
    for key, value, marker, _ in changes:
        rows.pop(key, None) if marker == 2 else rows.update({key: value})
    begun, rest, *founds = (
        spark.createDataFrame(some, f"id bigint, v string{more}").withColumn(
            "id", f.col("id").cast(kind)
        )
        for some, more in (
            ([(key, "old") for key in keys], ""),
            (changes, f", {MARKER} int, {ORDER} bigint"),
            ([*rows.items()], ""),
            ([(key, "no" if key in wrong else value) for key, value in rows.items()], ""),
        )
    )
    sides = Sides(
        begun=begun,
        rows=rest,
        few=True,
        found=as_found(founds[0]),
        columns=("id", "v"),
        keys=("id",),
        sample=1,
    )

    equal, different = sides.compare(), replace(sides, found=as_found(founds[1])).compare()

    assert (len(rows), len(rows), (), False) == equal
    assert {str(key) for key in wrong} == {
        str(one.before["id"]) for one in different[2] if one.before
    }


def test_keys_that_have_a_null_in_other_places_are_others(spark: SparkSession) -> None:
    """(1, NULL) and (NULL, 1), which Spark's hashes take for one."""
    found = spark.createDataFrame([(1, None), (None, 1)], "a int, b int")
    sides = Sides(
        begun=None,
        rows=found.selectExpr("*", f"{UPSERT} AS {MARKER}", f"coalesce(a, 2L) AS {ORDER}"),
        found=as_found(found),
        columns=("a", "b"),
        keys=("a", "b"),
        sample=1,
    )

    assert (2, 2, (), False) == sides.compare()


def test_a_microsecond_within_a_value_counts(spark: SparkSession) -> None:
    """Spark's JSON, by which nested values are hashed, has milliseconds unless it is told otherwise."""
    wanted, found = (
        spark.sql(
            f"SELECT 1 AS id, array(named_struct('t', TIMESTAMP '2020-01-01 00:00:00.{end}')) AS v"
        )
        for end in ("000001", "000002")
    )
    sides = Sides(begun=wanted, found=as_found(found), columns=("id", "v"), keys=("id",), sample=1)

    *counts, changes, _ = sides.compare()

    assert ([1, 1], ["update"]) == (counts, [one.change for one in changes])


def test_one_changed_row_is_found_and_named(
    spark: SparkSession, zone: ZoneWriter, target: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """By its key and the columns that differ; with its values only where they are asked for; exit code 1."""
    orders = zone.table("orders", keys=["id"], schema="dbo")
    orders.file(
        [{"id": 1, "v": 1, "w": "a"}, {"id": 2, "v": 2, "w": "b"}, {"id": 3, "v": None, "w": "c"}]
    )
    orders.file(
        [{"id": 1, "v": 5, "w": "d"}, {"id": 2}, {"id": 4, "v": 4, "w": "e"}], markers=[1, 2, 4]
    )
    mirrorlib.apply(spark, str(zone), target)
    command = ["verify", str(zone), target, "--json"]

    assert 0 == main(command)
    (equal,) = json.loads(capsys.readouterr().out)["tables"]
    spark.sql(f"UPDATE delta.`{target}/dbo/orders` SET w = 'secret' WHERE id = 4")
    assert 1 == main(command)
    (different,) = json.loads(capsys.readouterr().out)["tables"]
    shown = str(mirrorlib.verify(spark, str(zone), target, show_values=True))

    facts = ("table", "state", "version", "files", "expected", "found", "differences", "reasons")
    assert ["dbo/orders", "equal", 1, 2, 3, 3, [], []] == [equal[name] for name in facts]
    assert [{"key": {"id": 4}, "what": "differs in w", "values": {}}] == different["differences"]
    assert ("different", 2, 3, 3) == tuple(
        different[name] for name in ("state", "version", "expected", "found")
    )
    assert "secret" not in json.dumps(different)
    assert shown.endswith("\ndbo/orders: id = 4 differs in w: w e -> secret")


@pytest.mark.thorough
def test_keys_that_are_far_apart_are_found(
    spark: SparkSession, zone: ZoneWriter, target: str
) -> None:
    """What differs among many keys, beyond the last of the table, before its first, and of none."""
    orders = zone.table("orders", keys=["id"])
    orders.file([{"id": key, "v": 1} for key in [*range(0, 30_000, 10), 1 << 40, -(1 << 40)]])
    orders.file(
        [{"id": 70, "v": 2}, {"id": 25_000, "v": 2}, {"id": None, "v": 2}], markers=[1, 1, 4]
    )
    mirrorlib.apply(spark, str(zone), target)

    equal = mirrorlib.verify(spark, str(zone), target)
    for condition in ("id = 70", f"id = {1 << 40}", f"id = {-(1 << 40)}", "id IS NULL"):
        spark.sql(f"DELETE FROM delta.`{target}/orders` WHERE {condition}")
    spark.sql(f"UPDATE delta.`{target}/orders` SET v = 0 WHERE id IN (25000, 29990)")
    different = mirrorlib.verify(spark, str(zone), target)

    assert equal.ok, equal
    keys = [None, -(1 << 40), 70, 25_000, 29_990, 1 << 40]
    assert [{"id": key} for key in keys] == [key for key, _ in named(different, "orders")]


@pytest.mark.thorough
def test_whatever_was_done_to_a_table_is_named(
    spark: SparkSession, zone: ZoneWriter, target: str
) -> None:
    """A row that is gone, or was doubled; one of a NULL key, of a key that is there twice, of no key at all."""
    statements = {
        "gone": "DELETE FROM {} WHERE id = 2",
        "doubled": "INSERT INTO {} SELECT * FROM {} WHERE id = 1",
        "null": "UPDATE {} SET v = 9 WHERE id IS NULL",
        "twice": "UPDATE {} SET v = 9 WHERE v = 2",
        "keyless": "UPDATE {} SET id = 9 WHERE v IS NULL",
        "untouched": "OPTIMIZE {}",
        "narrower": "ALTER TABLE {} DROP COLUMN v",
    }
    for name in statements:
        table = zone.table(name, keys=[] if name == "keyless" else ["id"])
        table.file([{"id": 1, "v": 1}, {"id": None, "v": 1}, {"id": 2, "v": None}])
        twos = [{"id": 2, "v": 1}, {"id": 2, "v": 2}]
        table.file(twos, None if name == "keyless" else [0, 0] if name == "twice" else [1, 1])
    mirrorlib.apply(spark, str(zone), target)

    before = mirrorlib.verify(spark, str(zone), target)
    for name, statement in statements.items():
        place = f"delta.`{target}/{name}`"
        if name == "narrower":
            mapped = "'delta.columnMapping.mode' = 'name', 'delta.enableChangeDataFeed' = 'false'"
            spark.sql(f"ALTER TABLE {place} SET TBLPROPERTIES ({mapped})")
        spark.sql(statement.replace("{}", place))
    after = mirrorlib.verify(spark, str(zone), target)

    assert dict.fromkeys(statements, "equal") == states(before)
    assert [({"id": 2}, "is missing")] == named(after, "gone")
    assert [({"id": 1}, "is not expected")] == named(after, "doubled")
    assert [({"id": None}, "differs in v")] == named(after, "null")
    assert [({"id": 2}, "differs in v")] == named(after, "twice")
    assert [({}, "is missing"), ({}, "is not expected")] == named(after, "keyless")
    assert "equal" == states(after)["untouched"]
    assert "not verified: narrower: column v: the table lacks a column" in str(after)


@pytest.mark.thorough
def test_files_that_are_gone_are_said_by_name(
    spark: SparkSession, zone: ZoneWriter, target: str
) -> None:
    """Then the version that was found equal takes their place, or one that somebody marks; what came since is verified."""
    orders, parts = (zone.table(name, keys=["id"]) for name in ("orders", "parts"))
    files = [orders.file([{"id": 1, "v": 1}, {"id": 2, "v": 1}]), parts.file([{"id": 1, "v": 1}])]
    mirrorlib.apply(spark, str(zone), target)
    assert mirrorlib.verify(spark, str(zone), target, tables=["orders"]).ok
    orders.file([{"id": 1, "v": 2}, {"id": 3, "v": 2}], markers=[1, 1])
    parts.file([{"id": 1, "v": 2}], markers=[1])
    mirrorlib.apply(spark, str(zone), target)
    for path in files:
        path.unlink()

    first = mirrorlib.verify(spark, str(zone), target)
    marked = mirrorlib.verify(spark, str(zone), target, tables=["parts"], mark=True)
    parts.file([{"id": 2, "v": 3}], markers=[4])
    mirrorlib.apply(spark, str(zone), target)
    spark.sql(f"UPDATE delta.`{target}/orders` SET v = 7 WHERE id = 2")
    last = mirrorlib.verify(spark, str(zone), target)

    assert {"orders": "equal", "parts": "not verified"} == states(first)
    assert ([1, None], [1, 0]) == (
        [one.since for one in first.tables],
        [one.files for one in first.tables],
    )
    assert "from version 1 on, which was verified at" in first.tables[0].reasons[0]
    assert f"not verified: parts: {files[1].name}: the change file is gone" in str(first)
    assert not first.ok
    assert marked.ok
    assert {"orders": "different", "parts": "equal"} == states(last)
    assert [({"id": 2}, "differs in v")] == named(last, "orders")
    assert 2 == last.tables[1].since


def test_a_file_that_holds_something_else_is_said_by_name(
    spark: SparkSession, zone: ZoneWriter, target: str
) -> None:
    """A table is not compared with what was never applied to it."""
    orders = zone.table("orders", keys=["id"])
    orders.file([{"id": 1}])
    mirrorlib.apply(spark, str(zone), target)
    path = orders.replace(1, [{"id": 2}])

    report = mirrorlib.verify(spark, str(zone), target)
    orders.garbage(1)
    marked = mirrorlib.verify(spark, str(zone), target, mark=True)

    assert {"orders": "not verified"} == states(report)
    assert f"orders: {path.name}: the change file is not what was applied" in str(report)
    assert {"orders": "marked"} == states(marked)


@pytest.mark.thorough
def test_text_that_was_moved_away_is_read_where_it_lies(
    spark: SparkSession, zone: ZoneWriter, target: str
) -> None:
    """`--cleanup move` leaves the newest file; what text was staged for Spark does not stay."""
    columns = [{"Name": name, "DataType": "Int32"} for name in ("id", "v")]
    more = {"FileFormat": "CSV", "SchemaDefinition": {"Columns": columns}}
    orders = zone.table("orders", keys=["id"], metadata=more)
    for number, line in enumerate(("1,1,0", "1,2,1", "2,3,4"), start=1):
        text = f"id,v,__rowMarker__\r\n{line}\r\n"
        (orders.folder / f"{number:020d}.csv").write_text(text, newline="")
    mirrorlib.apply(spark, str(zone), target, cleanup="move", settle=0)

    report = mirrorlib.verify(spark, str(zone), target)

    assert 1 == len(list(orders.folder.glob("*.csv")))
    assert ("equal", 3, 2) == (
        report.tables[0].state,
        report.tables[0].files,
        report.tables[0].found,
    )
    kept = Path(target) / "_mirrorlib" / "verified"
    assert ["orders.json"] == [path.name for path in kept.iterdir()]


@pytest.mark.thorough
@pytest.mark.parametrize(
    "options, files", [({"conditional_updates": True}, 2), ({"snapshots": True}, 1)]
)
def test_batches_count_by_their_own_policies(
    spark: SparkSession, zone: ZoneWriter, target: str, options: Mapping[str, Any], files: int
) -> None:
    """An update counts only if it is greater; of snapshots, the last one alone is read."""
    orders = zone.table("orders", keys=["id"], metadata={"ConditionalUpdateColumn": "n"})
    markers = None if "snapshots" in options else [4, 4, 4, 0, 1]
    orders.file([{"id": 1, "n": 5}, {"id": 2, "n": 5}, {"id": None, "n": None}])
    some = [(1, 4), (2, 6), (3, None), (4, 1), (5, 1)]
    orders.file([{"id": key, "n": value} for key, value in some], markers)
    mirrorlib.apply(spark, str(zone), target, max_files=1, **options)

    report = mirrorlib.verify(spark, str(zone), target)

    assert ("equal", files) == (report.tables[0].state, report.tables[0].files), report


@pytest.mark.thorough
def test_updates_that_were_conditional_in_some_batches_only_are_verified_once_rebuilt(
    spark: SparkSession, zone: ZoneWriter, target: str
) -> None:
    """As its text says: a rebuild goes by the newest batch's rule."""
    orders = zone.table("orders", keys=["id"], metadata={"ConditionalUpdateColumn": "n"})
    for conditional, value in ((False, 1), (True, 2)):
        orders.file([{"id": 1, "n": value}], [4])
        mirrorlib.apply(spark, str(zone), target, conditional_updates=conditional)

    (told,) = mirrorlib.verify(spark, str(zone), target).tables
    mirrorlib.rebuild(spark, target, "orders")

    assert "mirrorlib rebuild TARGET orders" in told.reasons[0]
    assert {"orders": "equal"} == states(mirrorlib.verify(spark, str(zone), target))


@pytest.mark.thorough
def test_keys_that_grow_from_row_to_row_come_once_until_one_comes_again(
    spark: SparkSession, zone: ZoneWriter, target: str
) -> None:
    """Whatever their markers, such rows are all put in; those of other tables meet each other in the first file."""
    grows, falls, ends = (zone.table(name, keys=["id"]) for name in ("grows", "falls", "ends"))
    for table in (grows, falls, ends):
        table.file([{"id": key, "v": "a"} for key in (1, 2, 3)], [4, 1, 0])
    grows.file([{"id": key, "v": "b"} for key in (4, 6)], [1, 4])
    grows.file([{"id": key, "v": "c"} for key in (5, 4, 2)], [4, 4, 2])
    falls.file([{"id": key, "v": "b"} for key in (3, 4)], [4, 4])
    ends.file([{"id": key, "v": "b"} for key in (4, 5)], [2, 4])
    mirrorlib.apply(spark, str(zone), target)
    for name, key in {"grows": 4, "falls": 3, "ends": 5}.items():
        assert {name: "equal"} == states(mirrorlib.verify(spark, str(zone), target, tables=[name]))
        spark.sql(f"UPDATE delta.`{target}/{name}` SET v = 'a' WHERE id = {key}")

    report = mirrorlib.verify(spark, str(zone), target)

    found = [named(report, name) for name in ("grows", "falls", "ends")]
    assert [[({"id": key}, "differs in v")] for key in (4, 3, 5)] == found


@pytest.mark.thorough
def test_a_batch_under_way_is_left_out(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A runner was killed behind its commit: nobody has written down what became of it, so the version before is told.

    And what was found is told to whoever may only read, and can keep nothing of it.
    """

    def refuse(_store: LocalStore, path: str, _data: bytes) -> None:
        msg = f"cannot write {path}"
        raise StoreError(msg)

    mirror = Mirror(spark, tmp_path)
    mirror.publish()
    mirror.apply()
    mirror.publish()
    mirror.run_until("commit", "after")

    (under_way,) = mirrorlib.verify(spark, str(mirror.zone), mirror.target).tables
    mirror.apply()
    monkeypatch.setattr(LocalStore, "put", refuse)
    (ended,) = mirrorlib.verify(spark, str(mirror.zone), mirror.target).tables

    assert ("equal", 1) == (under_way.state, under_way.files)
    assert "batch 2 is under way" in under_way.reasons[0]
    assert ("equal", 2, 1) == (ended.state, ended.files, len(ended.reasons))
    assert "which is not remembered: cannot write verified/" in ended.reasons[0]
    assert under_way.version is not None
    assert ended.version is not None
    assert under_way.version < ended.version


@pytest.mark.thorough
def test_another_life_counts_from_its_first_file(
    spark: SparkSession, zone: ZoneWriter, target: str
) -> None:
    """What was applied before a reset is forgotten, once the next apply has replaced it."""
    orders = zone.table("orders", keys=["id"])
    orders.file([{"id": 1}])
    mirrorlib.apply(spark, str(zone), target)
    orders.file([{"id": 2}])
    mirrorlib.reset(spark, target, "orders", start_at=2)

    before = mirrorlib.verify(spark, str(zone), target)
    mirrorlib.apply(spark, str(zone), target)
    after = mirrorlib.verify(spark, str(zone), target)

    assert "not verified: no batch of the table's present life has been applied" in str(before)
    assert ("equal", 1, 1) == (after.tables[0].state, after.tables[0].files, after.tables[0].found)


@pytest.mark.thorough
def test_a_sample_looks_at_some_keys(spark: SparkSession, zone: ZoneWriter, target: str) -> None:
    """It says so, and is not remembered as a version that was found equal."""
    zone.table("orders", keys=["id"]).file([{"id": number} for number in range(1000)])
    mirrorlib.apply(spark, str(zone), target)

    (told,) = mirrorlib.verify(spark, str(zone), target, sample=0.2).tables

    assert "equal" == told.state
    assert 100 < told.expected == told.found < 300
    assert ("a sample: 0.2 of the keys",) == told.reasons
    assert not (Path(target) / "_mirrorlib" / "verified" / "orders.json").exists()


def test_what_is_asked_for_has_to_be_there(
    spark: SparkSession, zone: ZoneWriter, target: str
) -> None:
    """A target that nothing was applied to, a table that nobody knows, and a zone that is not there, are mistakes."""
    zone.table("orders", keys=["id"]).file([{"id": 1}])
    with pytest.raises(JournalError):
        mirrorlib.verify(spark, str(zone), target)
    mirrorlib.apply(spark, str(zone), target)

    with pytest.raises(LandingZoneError, match=r"Correct the name\."):
        mirrorlib.verify(spark, str(zone), target, tables=["oders"])
    with pytest.raises(LandingZoneError, match="there is no landing zone"):
        mirrorlib.verify(spark, f"{zone}s", target)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.thorough
@pytest.mark.parametrize(
    "number", [pytest.param(n, id=f"{n}-{one.name}") for n, one in enumerate(CUTS)]
)
def test_whatever_is_published_and_however_it_is_cut(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """Tables of made-up logs are equal to their files; then one row of each is changed by others, and named."""
    if number % 2:  # as where more has come since than a process holds the keys of
        monkeypatch.setattr(verify_tables, "_FEW", -1)
    logs, zone, target = apply_in_two(spark, tmp_path, monkeypatch, number)

    equal = mirrorlib.verify(spark, str(zone), str(target), show_values=True)
    keys = {f"t{place}": tamper(spark, target / f"t{place}", log) for place, log in enumerate(logs)}
    different = mirrorlib.verify(spark, str(zone), str(target))

    assert equal.ok, equal
    for table, key in keys.items():
        assert ("equal" if key is None else "different") == states(different)[table], different
        assert ([] if key is None else [key]) == [told for told, _ in named(different, table)]


def tamper(spark: SparkSession, table: Path, log: Log) -> dict[str, Any] | None:
    """Let somebody else give a row another value, or delete it where it has no value but its key; return its key."""
    frame = spark.read.format("delta").load(str(table))
    columns = [f"`{name}`" for name in frame.columns]
    hashed = f"xxhash64({', '.join([*columns, *(f'isnull({name})' for name in columns)])})"
    rows = frame.selectExpr("*", f"{hashed} AS hash").collect()
    if not rows:
        return None
    row = random.Random(len(rows)).choice(rows).asDict()
    keys = {key.strip().lower() for key in log.keys}
    others = [name for name in frame.columns if name.lower() not in keys and row[name] is not None]
    what = f"UPDATE {{}} SET `{others[0]}` = NULL" if others else "DELETE FROM {}"
    spark.sql(f"{what.format(f'delta.`{table}`')} WHERE {hashed} = {row['hash']}")
    named = {name: row[name] for name in frame.columns if name.lower() in keys}
    # A report has values as JSON has them.
    plain = (type(None), int, str)
    return {name: value if isinstance(value, plain) else ANY for name, value in named.items()}
