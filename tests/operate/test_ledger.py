"""The ledger says what was applied, batch by batch; kept in Delta tables it holds each batch once."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import mirrorlib
from mirrorlib.cli.main import main
from mirrorlib.delta.address import find_tables
from mirrorlib.delta.sessions import configured
from mirrorlib.errors import JournalError, LandingZoneError, MirrorError
from mirrorlib.journal.disk import Journal
from mirrorlib.journal.entries import Done, now
from mirrorlib.names import parse_name
from mirrorlib.store import open_store
from operate.test_status import plan_of
from tables import newest_version, read_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.zones import ZoneWriter


def publish(zone: ZoneWriter) -> None:
    """Publish two files of one table."""
    orders = zone.table("orders", keys=["id"], schema="dbo")
    orders.file([{"id": 1}, {"id": 2}, {"id": 3}])
    orders.file([{"id": 1}, {"id": 2}, {"id": 4}], markers=[2, 1, 4])


def test_batches_come_newest_first_with_their_rows_by_marker(
    spark: SparkSession, zone: ZoneWriter, target: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each with its files, its version, its stages and how long its oldest file had to wait; on the command line too."""
    publish(zone)
    applied = mirrorlib.apply(spark, str(zone), target, max_files=1)

    found = mirrorlib.ledger(target)

    assert [(2, 1), (1, 0)] == [
        (one.batch, applied.tables[0].batches.index(done))
        for one, done in zip(found.batches, reversed(applied.tables[0].batches), strict=True)
    ]
    assert [(0, 1, 1, 1), (3, 0, 0, 0)] == [
        (one.inserts, one.updates, one.deletes, one.upserts) for one in found.batches
    ]
    assert [dict(done.seconds) for done in reversed(applied.tables[0].batches)] == [
        one.seconds for one in found.batches
    ]
    assert all(one.waited_seconds is not None and one.waited_seconds > 0 for one in found.batches)
    assert [2] == [one.batch for one in mirrorlib.ledger(target, last=1).batches]
    with pytest.raises(LandingZoneError, match="other: no table matches"):
        mirrorlib.ledger(target, tables=["other"])
    assert 0 == main(["ledger", target, "--json"])
    assert json.loads(json.dumps(found.to_dict())) == json.loads(capsys.readouterr().out)


@pytest.mark.thorough
def test_the_kept_ledger_holds_each_batch_once_and_each_change_of_state(
    spark: SparkSession, zone: ZoneWriter, target: str, tmp_path: Path
) -> None:
    """Begun before the first load; written again, nothing is added; what was applied since is; so is a stopped table.

    Where tables are looked for, its own two are found by their names only. A target that it knows is not new. What Spark
    has against the place is told like any other table's trouble.
    """
    publish(zone)
    orders = zone.table("orders", keys=["id"], schema="dbo")
    place = str(tmp_path / "book")
    empty = mirrorlib.overview(target, to=place, spark=spark, allow_new=True)
    mirrorlib.apply(spark, str(zone), target, max_files=1)

    first = mirrorlib.write_ledger(spark, target, place)
    again = mirrorlib.write_ledger(spark, target, place)
    orders.file([{"id": 9}], number=3)
    mirrorlib.apply(spark, str(zone), target)
    orders.file([{"id": 9}], number=5)
    mirrorlib.apply(spark, str(zone), target)
    later = mirrorlib.write_ledger(spark, target, place)

    assert empty.ok
    assert [[2, 1], [0, 0], [1, 1]] == [
        [one.rows for one in report.tables] for report in (first, again, later)
    ]
    rows = sorted(read_rows(spark, f"{place}/mirrorlib_ledger"), key=lambda row: row["batch"])
    assert [("dbo/orders", 1, 3), ("dbo/orders", 2, 3), ("dbo/orders", 3, 1)] == [
        (
            row["table"],
            row["batch"],
            row["inserts"] + row["updates"] + row["deletes"] + row["upserts"],
        )
        for row in rows
    ]
    assert all(
        row["seconds"] == pytest.approx(sum(row["seconds_by_stage"].values())) for row in rows
    )
    events = sorted(read_rows(spark, f"{place}/mirrorlib_events"), key=lambda row: row["seen_at"])
    assert ["current", "blocked"] == [row["state"] for row in events]
    assert 2 == newest_version(f"{place}/mirrorlib_ledger")
    named, itself = "mirrorlib_ledger", f"{place}/mirrorlib_ledger"
    assert [[], [], [named], [itself]] == [
        [name for name, _ in find_tables(spark, where, None, asked)]
        for where, asked in ((place, []), (place, "*"), (place, named), (itself, []))
    ]

    spark.range(1).write.format("delta").save(f"{tmp_path}/odd/mirrorlib_ledger")
    with pytest.raises(MirrorError, match="/odd: the table's columns are not those"):
        mirrorlib.write_ledger(spark, target, f"{tmp_path}/odd")
    (Path(target) / "_mirrorlib" / "journal").rename(tmp_path / "lost")
    with pytest.raises(JournalError, match="batches of this target, and its journal is not there"):
        mirrorlib.write_ledger(spark, target, place, allow_new=True)


def test_a_damaged_journal_takes_no_other_tables_along(
    zone: ZoneWriter, target: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """What is behind the damage is told, once more when it is mended; ledger and lineage are not well until then."""
    state = open_store(f"{target}/_mirrorlib")
    for name in ("hurt", "well"):
        table = zone.table(name, keys=["id"])
        table.file([{"id": 1}])
        journal = Journal(state, parse_name(name))
        life = journal.begin_life("first", str(zone), 1)
        for batch in (1, 2, 3):
            journal.write_plan(life, replace(plan_of(life.uuid, str(zone), table), batch=batch))
            done = Done(
                outcome="applied",
                version=batch,
                table_id="t",
                columns=(),
                table_bytes=1,
                kind="append",
                finished_at=now(),
            )
            journal.write_done(life, batch, done)
    (newest, _, damaged) = sorted(Path(state.url, "journal", "hurt", "000001").glob("*.done.json"))
    whole = damaged.read_bytes()
    damaged.write_bytes(whole[:20])
    hurt = mirrorlib.ledger(target)
    damaged.write_bytes(whole)
    mended = mirrorlib.ledger(target, before=hurt)
    newest.write_bytes(b"")
    ways = mirrorlib.lineage(target)

    wells = [("well", 3), ("well", 2), ("well", 1)]
    assert [("hurt", 3), ("hurt", 2), *wells] == [(one.table, one.batch) for one in hurt.batches]
    assert "done.json: the journal cannot be read" in hurt.notes()[-1]
    assert (False, True) == (hurt.ok, mended.ok)
    assert [("hurt", 3), ("hurt", 2), ("hurt", 1), *wells] == [
        (one.table, one.batch) for one in mended.batches
    ]
    assert ["well"] == [way.name for way in ways.edges]
    assert (False, 1) == (ways.ok, len(ways.failures))
    assert [1, 1] == [main([command, target]) for command in ("ledger", "lineage")]
    assert 2 == capsys.readouterr().out.count("done.json: the journal cannot be read")


@pytest.mark.thorough
def test_the_kept_ledger_goes_on_behind_a_life_that_is_damaged(
    spark: SparkSession, zone: ZoneWriter, target: str, tmp_path: Path
) -> None:
    """What the ledger has of it is never asked for again; what it lacks is told, and does not hinder the next life."""
    orders, place = zone.table("orders", keys=["id"]), str(tmp_path / "kept")
    for number in (1, 2, 3):
        orders.file([{"id": number}])
        assert mirrorlib.apply(spark, str(zone), target).ok
        if number == 1:
            mirrorlib.write_ledger(spark, target, place)
    mirrorlib.reset(spark, target, "orders")
    assert mirrorlib.apply(spark, str(zone), target).ok
    life = Path(target, "_mirrorlib", "journal", "orders", "000001")
    min(life.glob("*.done.json")).write_bytes(b"")  # the newest: names count down

    told = mirrorlib.write_ledger(spark, target, place)

    assert not told.ok
    rows = read_rows(spark, f"{place}/mirrorlib_ledger")
    assert [(1, 1), (2, 1)] == sorted((row["life"], row["batch"]) for row in rows)


@pytest.mark.thorough
def test_the_kept_ledger_goes_on_in_a_session_that_cuts_moments(
    spark: SparkSession, zone: ZoneWriter, target: str, tmp_path: Path
) -> None:
    """What it has of a batch is what the journal has, to the microsecond."""
    orders, place = zone.table("orders", keys=["id"]), str(tmp_path / "kept")
    cuts = {"spark.sql.parquet.outputTimestampType": "TIMESTAMP_MILLIS"}
    for number in (1, 2):
        orders.file([{"id": number}])
        assert mirrorlib.apply(spark, str(zone), target).ok
        with configured(spark, cuts):
            assert mirrorlib.write_ledger(spark, target, place).ok
    assert 2 == len(read_rows(spark, f"{place}/mirrorlib_ledger"))


@pytest.mark.thorough
def test_a_change_of_state_comes_behind_one_of_a_clock_that_was_ahead(
    spark: SparkSession, zone: ZoneWriter, target: str, tmp_path: Path
) -> None:
    """It is written once, and the newest row tells how the table stands."""
    orders, place = zone.table("orders", keys=["id"]), str(tmp_path / "book")
    orders.file([{"id": 1}])
    mirrorlib.apply(spark, str(zone), target)
    mirrorlib.write_ledger(spark, target, place)
    events = f"delta.`{place}/mirrorlib_events`"
    spark.sql(f"UPDATE {events} SET seen_at = seen_at + INTERVAL 1 DAY")

    orders.file([{"id": 2}], number=3)
    mirrorlib.apply(spark, str(zone), target)
    written = [mirrorlib.write_ledger(spark, target, place).tables[1].rows for _ in range(2)]

    rows = sorted(read_rows(spark, f"{place}/mirrorlib_events"), key=lambda row: row["seen_at"])
    assert ([1, 0], ["current", "blocked"]) == (written, [row["state"] for row in rows])


@pytest.mark.thorough
def test_the_kept_ledger_tells_of_a_journal_that_has_begun_again(
    spark: SparkSession, zone: ZoneWriter, target: str, tmp_path: Path
) -> None:
    """Of a target that was removed and loaded again: what it has would look as if the ledger had it."""
    orders, place = zone.table("orders", keys=["id"]), str(tmp_path / "kept")
    for number in (1, 2):
        orders.file([{"id": number}])
        assert mirrorlib.apply(spark, str(zone), target, max_files=1).ok
    told = [mirrorlib.write_ledger(spark, target, place) for _ in range(2)]
    orders.file([{"id": 3}])
    shutil.rmtree(target)
    for batches in (1, 2):  # fewer, then more than the ledger has
        assert mirrorlib.apply(spark, str(zone), target, max_files=3 // batches).ok
        told.append(mirrorlib.write_ledger(spark, target, place))
        shutil.rmtree(target)

    assert [True, True, False, False] == [report.ok for report in told]
    for report in told[2:]:
        assert (
            "orders: the ledger has batches of this table that its journal has not"
            in report.failures[0]
        )
        assert "(found in the ledger life 1, batch 2)" in report.failures[0]


@pytest.mark.parametrize("last", [0, -1])
def test_a_ledger_of_no_batches_is_refused(target: str, last: int) -> None:
    """It would look like a target without history."""
    with pytest.raises(LandingZoneError, match="from 1 on"):
        mirrorlib.ledger(target, last=last)


def test_a_target_without_history_says_how_it_gets_one(target: str) -> None:
    """There is no empty ledger that could be taken for a healthy one."""
    with pytest.raises(JournalError, match="mirrorlib apply"):
        mirrorlib.ledger(target)
