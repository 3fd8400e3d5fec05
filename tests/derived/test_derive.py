"""Derived tables are, after every run, what their transformation gives on the sources as they are."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections import Counter
from contextlib import nullcontext
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import functions as f

import mirrorlib
from computes import SERVERLESS
from derived.lakes import Lake
from mirrorlib.cli.main import main
from mirrorlib.commit.mark import Mark, append_rows
from mirrorlib.delta.address import find_table_at
from mirrorlib.delta.lock import TablePlace, find_place
from mirrorlib.delta.sessions import configured
from mirrorlib.derived import commit, job
from mirrorlib.derived.job import write_difference
from mirrorlib.derived.report import DeriveReport, SourceReport, write_record
from mirrorlib.derived.sources import begun_streams
from mirrorlib.errors import JournalError
from mirrorlib.journal import leases as lease
from mirrorlib.journal.leases import hold
from mirrorlib.journal.registry import Registry
from mirrorlib.keys.value import Keys
from mirrorlib.names import parse_name
from mirrorlib.operate import lineage, upkeep
from mirrorlib.platform.notebook import picture
from mirrorlib.store import Folder, open_store
from mirrorlib.store.local import LocalStore
from mirrors import Killed, at, die
from tables import newest_version, read_versions
from zones import ZoneWriter

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession

    from mirrorlib.delta.table import TableRef
    from mirrorlib.events import Event

ORDERS = "id int, customer int, amount int, note string"
CUSTOMERS = "id int, name string"
LARGE = "order int, twice int, note string"


def kept_in(marks: list[tuple[TableRef, Mark]], *, dies: bool = False) -> Callable[..., Any]:
    """Write a difference, unless its runner *dies*, and keep what its commit is marked with."""

    def write(job: Any, *rest: Any) -> Any:
        marks.append((job.place.ref, rest[-1]))
        if dies:
            raise Killed
        return write_difference(job, *rest)

    return write


@pytest.fixture
def lake(spark: SparkSession, tmp_path: Path) -> Lake:
    """Give a lake with orders and customers."""
    lake = Lake(spark, tmp_path / "lake")
    lake.make("orders", ORDERS, "id")
    lake.make("customers", CUSTOMERS, "id")
    lake.run(
        "INSERT INTO {orders} VALUES (1, 1, 10, 'a'), (2, 1, 20, 'b'), (3, 2, 30, NULL), (4, NULL, 5, 'd')",
        "INSERT INTO {customers} VALUES (1, 'Ann'), (2, 'Bob')",
    )
    return lake


def large(orders: DataFrame) -> DataFrame:
    """Transform row by row: filter, rename, compute."""
    return orders.where("amount >= 10").selectExpr("id AS order", "amount * 2 AS twice", "note")


def totals(orders: DataFrame) -> DataFrame:
    """Add up by a column that is no key."""
    return orders.groupBy("customer").sum("amount")


def named(orders: DataFrame, customers: DataFrame) -> DataFrame:
    """Join two sources, one of them by another column than its own key."""
    c = customers.withColumnRenamed("id", "customer")
    return orders.join(c, "customer", "left").select("id", "customer", "amount", "name")


@pytest.mark.thorough
@pytest.mark.smoke
def test_rows_that_are_transformed_by_themselves_are_taken_from_the_feed(lake: Lake) -> None:
    """Updates, deletes, inserts, and rows that begin or cease to pass the filter; the keys survive."""
    first = lake.derive(["orders"], large)
    assert ("full", "it is made for the first time", 3, 0) == (
        first.how,
        first.why,
        first.added,
        first.removed,
    )
    assert Keys(partition=("order",), primary=("order",)) == first.keys
    lake.run(
        "UPDATE {orders} SET amount = 11 WHERE id = 1",
        "UPDATE {orders} SET amount = 1 WHERE id = 2",
        "DELETE FROM {orders} WHERE id = 3",
        "UPDATE {orders} SET amount = 50 WHERE id = 4",
        "INSERT INTO {orders} VALUES (5, 2, 60, 'e'), (6, 2, 0, 'f')",
    )
    second = lake.derive(["orders"], large)
    version = newest_version(lake.path("out"))
    third = lake.derive(["orders"], large)

    assert ("row-wise", "", 3, 3) == (second.how, second.why, second.added, second.removed)
    assert ("nothing new", version) == (third.how, newest_version(lake.path("out")))
    feed = mirrorlib.read_feed(lake.spark, lake.path("out"), after=version - 1)
    assert {
        (1, "update_preimage"): 1,
        (1, "update_postimage"): 1,
        (2, "delete"): 1,
        (3, "delete"): 1,
        (4, "insert"): 1,
        (5, "insert"): 1,
    } == Counter((row["order"], row["_change_type"]) for row in feed.collect())
    kept = mirrorlib.keys_of(mirrorlib.read_table(lake.spark, lake.path("out")))
    assert (Keys(partition=("order",), primary=("order",)), True) == (kept, kept.unique)


@pytest.mark.thorough
@pytest.mark.smoke
def test_old_dates_are_kept_as_they_are(lake: Lake) -> None:
    """Though a session refuses to write those before 1582, as Spark 3.5 does by itself."""
    refuses = {"spark.sql.parquet.datetimeRebaseModeInWrite": "EXCEPTION"}

    def dated(orders: DataFrame) -> DataFrame:
        return orders.selectExpr("id", "CAST(note AS date) AS day")

    lake.run("UPDATE {orders} SET note = '0001-01-01'")
    with configured(lake.spark, refuses):
        lake.derive(["orders"], dated)
        lake.run("UPDATE {orders} SET note = '0001-01-02' WHERE id = 1")
        lake.derive(["orders"], dated)


@pytest.mark.thorough
def test_moments_keep_their_microseconds(lake: Lake) -> None:
    """Though a session writes milliseconds, by which a row without a key would not be found again."""

    def same(moments: DataFrame) -> DataFrame:
        return moments.select("id", "at")

    lake.make("silver", "id int, at timestamp")
    lake.run(
        "INSERT INTO {silver} SELECT id, timestamp_micros(1700000000123456 + id) FROM {orders}"
    )
    lake.derive(["silver"], same)
    lake.run("DELETE FROM {silver} WHERE id = 1", "UPDATE {silver} SET id = 9 WHERE id = 2")
    cuts = {"spark.sql.parquet.outputTimestampType": "TIMESTAMP_MILLIS"}
    with configured(lake.spark, cuts):
        report = lake.derive(["silver"], same)
    assert (1, 2) == (report.added, report.removed)


def test_what_fails_before_there_is_a_table_is_told_as_it_is(lake: Lake) -> None:
    """It is no sign of another runner: nothing was committed by anybody, and the transformation is not tried again."""
    tries: list[DataFrame] = []

    def broken(orders: DataFrame) -> DataFrame:
        tries.append(orders)
        msg = "a mistake of the user's"
        raise ValueError(msg)

    with pytest.raises(ValueError, match="a mistake of the user's"):
        lake.derive(["orders"], broken)
    assert 1 == len(tries)


@pytest.mark.thorough
def test_what_spark_cannot_compute_is_told_in_our_words(lake: Lake) -> None:
    """With what it said of the cause; a mistake in the transformation itself is told where that makes it."""

    def refused(orders: DataFrame) -> DataFrame:
        return orders.selectExpr("id", "IF(id = 2, raise_error('no such thing'), id) AS n")

    def fails(orders: DataFrame) -> DataFrame:
        fail = f.udf(lambda number: 1 // (number - number), "int")
        return orders.select("id", fail("id").alias("n"))

    for _ in range(2):
        with pytest.raises(mirrorlib.MirrorError, match=r"^out: .*\(found no such thing\)"):
            lake.derive(["orders"], refused)
    with pytest.raises(AnalysisException, match="nowhere"):
        lake.derive(["orders"], lambda orders: orders.select("nowhere"))
    with pytest.raises(
        mirrorlib.MirrorError, match=r"^out: .*\(found ZeroDivisionError, line \d+, in <lambda>\)"
    ):
        lake.derive(["orders"], fails)
    lake.derive(["orders"], large)


@pytest.mark.thorough
def test_rows_that_stay_the_same_are_not_in_the_feed(lake: Lake) -> None:
    """Not where the source has touched them, nor where all is computed anew."""
    lake.derive(["orders"], large)
    before = newest_version(lake.path("out"))
    lake.run("UPDATE {orders} SET customer = 9", "UPDATE {orders} SET note = 'z' WHERE id = 1")
    report = lake.derive(["orders"], large)
    assert (1, 1) == (report.added, report.removed)

    report = lake.derive(["orders"], large, rebuild=True)
    assert ("full", "that was asked for", 0, 0) == (
        report.how,
        report.why,
        report.added,
        report.removed,
    )
    feed = mirrorlib.read_feed(lake.spark, lake.path("out"), after=before)
    assert ["update_postimage", "update_preimage"] == sorted(
        row["_change_type"] for row in feed.collect()
    )


@pytest.mark.thorough
def test_a_join_with_another_source_goes_by_the_keys_of_both(lake: Lake) -> None:
    """A customer's new name reaches the orders of that customer; one that comes, too, and one that goes."""
    two = {"orders": "orders", "customers": "customers"}
    lake.derive(two, named)
    lake.run(
        "UPDATE {customers} SET name = 'Eve' WHERE id = 1",
        "DELETE FROM {customers} WHERE id = 2",
    )
    report = lake.derive(two, named)
    assert ("affected keys", "", 3, 3) == (report.how, report.why, report.added, report.removed)

    lake.run(
        "INSERT INTO {customers} VALUES (3, 'Cid')",
        "UPDATE {orders} SET customer = 3 WHERE id = 2",
        "INSERT INTO {orders} VALUES (7, 3, 1, 'g')",
    )
    report = lake.derive(two, named)
    assert ("affected keys", 2, 1) == (report.how, report.added, report.removed)
    assert all(source.after < source.until for source in report.sources)


@pytest.mark.thorough
def test_a_left_join_by_a_column_of_the_joined_rows_own_keeps_all_rows(lake: Lake) -> None:
    """It is NULL, as they are, where nothing matches: by it, rows would be lost, and others stay."""
    lake.make("staff", "id int, boss int", "id")
    staff = f"delta.`{lake.path('staff')}`"
    lake.run(f"INSERT INTO {staff} VALUES (1, 1), (2, 1)")

    def led(orders: DataFrame, staff: DataFrame) -> DataFrame:
        named = staff.withColumnRenamed("id", "k")
        own = (orders.customer == named.k) & (named.boss == named.k)
        return orders.join(named, own, "left").select("id", "customer", "boss")

    lake.derive(["orders", "staff"], led)
    for statement in (
        f"DELETE FROM {staff} WHERE id = 1",
        f"INSERT INTO {staff} VALUES (1, 1)",
        f"UPDATE {staff} SET boss = 2 WHERE id = 2",
    ):
        lake.run(statement)
        assert "affected keys" == lake.derive(["orders", "staff"], led).how


@pytest.mark.thorough
def test_a_zero_that_becomes_negative_is_taken_in(lake: Lake) -> None:
    """Spark compares it as equal, so net changes would leave it out; as text it is another one."""

    def written(silver: DataFrame) -> DataFrame:
        return silver.selectExpr("id", "CAST(v AS string) AS v", "CAST(inside AS string) AS inside")

    lake.make("silver", "id int, v double, inside array<struct<x: float>>", "id")
    lake.run("INSERT INTO {silver} SELECT id, 0, array(named_struct('x', 0F)) FROM range(1, 4)")
    lake.derive(["silver"], written)
    lake.run(
        "UPDATE {silver} SET v = CAST('-0' AS double) WHERE id = 1",
        "UPDATE {silver} SET inside = array(named_struct('x', CAST('-0' AS float))) WHERE id = 2",
        "UPDATE {silver} SET v = 0 WHERE id = 3",
    )
    report = lake.derive(["silver"], written)

    assert ("row-wise", 2, 2) == (report.how, report.added, report.removed)


@pytest.mark.thorough
def test_fields_in_another_order_are_the_same_columns(lake: Lake) -> None:
    """Spark compares structs by the places of their fields; the table keeps the order that it has."""

    def derived(*fields: str) -> tuple[int, int]:
        told = f"struct({', '.join(fields)})"
        report = mirrorlib.derive(
            lake.spark,
            "out",
            lake.path("orders"),
            lambda o: o.selectExpr("amount", f"{told} AS one", f"array({told}) AS many"),
            lake.path("out"),
        )
        return report.added, report.removed

    assert (4, 0) == derived("id", "customer")
    for amount in (1, 2):
        lake.run(f"UPDATE {{orders}} SET amount = {amount}, customer = {amount + 1} WHERE id = 1")
        assert (1, 1) == derived("customer", "id")
        orders, out = (
            lake.spark.read.format("delta").load(lake.path(name)) for name in ("orders", "out")
        )
        told = orders.select("amount", "id", "customer", "id", "customer")
        found = out.selectExpr("amount", "one.*", "many[0].id", "many[0].customer")
        assert Counter(map(tuple, told.collect())) == Counter(map(tuple, found.collect()))


@pytest.mark.thorough
def test_what_goes_by_no_key_is_computed_in_full(lake: Lake) -> None:
    """And the report says why; only what is different is written."""
    lake.derive(["orders"], totals)
    lake.run("UPDATE {orders} SET amount = 11 WHERE id = 1")
    report = lake.derive(["orders"], totals)

    assert ("full", 1, 1) == (report.how, report.added, report.removed)
    assert "the key columns do not come out" in report.why
    assert Keys() == report.keys


@pytest.mark.thorough
def test_what_is_no_source_is_read_again_without_a_new_version(lake: Lake) -> None:
    """Nobody can know whether it has changed; a table that reads sources alone is not even computed."""
    called = []

    def seen(orders: DataFrame) -> DataFrame:
        called.append(orders)
        return large(orders)

    def told(orders: DataFrame) -> DataFrame:
        names = orders.sparkSession.read.format("delta").load(lake.path("customers"))
        return orders.join(names.withColumnRenamed("id", "customer"), "customer").select("name")

    mirrorlib.derive(lake.spark, "quiet", lake.path("orders"), seen, lake.path("silver"))
    lake.derive(["orders"], told)
    lake.run("UPDATE {customers} SET name = 'Eve' WHERE id = 2")
    called.clear()
    quiet = mirrorlib.derive(lake.spark, "quiet", lake.path("orders"), seen, lake.path("silver"))
    report = lake.derive(["orders"], told)

    assert ("nothing new", []) == (quiet.how, called)
    assert ("full", "it reads something that is no source of it") == (report.how, report.why[:42])
    assert {("Ann",): 2, ("Eve",): 1} == lake.rows("out")


@pytest.mark.thorough
def test_tables_are_derived_of_derived_tables(lake: Lake) -> None:
    """Bronze, silver, gold: each takes in what the one before has written, by its own feed and keys."""
    lake.run(
        'ALTER TABLE {orders} SET TBLPROPERTIES (\'mirrorlib.keys\' = \'{"format": 1, "partition": ["customer", "id"], '
        '"primary": ["customer", "id"], "deleted": null, "order_by": [], "lost": [], "unique": true}\')'
    )

    def gold(silver: DataFrame) -> DataFrame:
        return silver.groupBy("customer").agg({"amount": "sum", "*": "count"})

    def silver(orders: DataFrame) -> DataFrame:
        return orders.where("amount > 5")

    for round_ in range(2):
        lake.run(f"INSERT INTO {{orders}} VALUES (1{round_}, 1, 10, 'a')")
        first = lake.derive(["orders"], silver, "silver")
        second = lake.derive(["silver"], gold)
    assert ("row-wise", "affected keys") == (first.how, second.how)
    assert (1, 1) == (second.added, second.removed)
    assert Keys(partition=("customer",), lost=("id",)) == second.keys

    with pytest.raises(mirrorlib.KeysLostError):
        mirrorlib.require_keys(mirrorlib.read_table(lake.spark, lake.path("out")))
    consumers = mirrorlib.consumers(lake.root)
    assert {("derive:silver", "orders"), ("derive:out", "silver")} == {
        (one.consumer, one.table) for one in consumers.streams
    }
    assert consumers.ok
    assert {"current"} == {one.health for one in consumers.streams}


@pytest.mark.thorough("plan-*", "done-*", "commit-before")
@pytest.mark.parametrize(
    "step, when", [(s, w) for s in ("plan", "commit", "done") for w in ("before", "after")]
)
def test_a_run_that_dies_anywhere_is_followed_by_one_that_ends_right(
    lake: Lake, step: str, when: str
) -> None:
    """From where its commit has come to, or from where that before it has; nothing is taken in twice."""
    lake.derive(["orders"], large)
    lake.run("UPDATE {orders} SET amount = 11 WHERE id = 1")

    with pytest.raises(Killed):
        lake.derive(["orders"], large, observe=at(step, when, die))
    if when == "before":
        lake.run("INSERT INTO {orders} VALUES (5, 2, 60, 'e')")
    lake.derive(["orders"], large)

    assert "nothing new" == lake.derive(["orders"], large).how
    ours = [v.ours for v in read_versions(lake.path("out")) if v.ours]
    windows = [one["window"] for one in ours if "window" in one]
    assert list(range(1, len(windows) + 1)) == windows
    assert {"current"} == {one.health for one in mirrorlib.consumers(lake.root).streams}


@pytest.mark.thorough
def test_what_a_run_that_died_behind_its_commit_has_not_told_is_told_by_the_next(
    lake: Lake,
) -> None:
    """Which keys have survived, and at its sources how far they were taken in, though they have nothing new."""

    def die(event: Event) -> None:
        if (event.step, event.when) == ("commit", "after"):
            raise Killed

    def as_key(orders: DataFrame) -> DataFrame:
        return orders.selectExpr("id AS key", "note")

    lake.derive(["orders"], large)
    lake.run("UPDATE {orders} SET amount = 11 WHERE id = 1")
    with pytest.raises(Killed):
        lake.derive(["orders"], as_key, observe=die)
    (behind,) = mirrorlib.consumers(lake.root).streams
    report = lake.derive(["orders"], as_key)
    (current,) = mirrorlib.consumers(lake.root).streams

    assert ("nothing new", ("key",)) == (report.how, report.keys.primary)
    assert ("key",) == mirrorlib.keys_of(mirrorlib.read_table(lake.spark, lake.path("out"))).primary
    assert ("behind", "current") == (behind.health, current.health)


@pytest.mark.thorough
def test_a_round_whose_source_was_made_anew_is_given_up(lake: Lake) -> None:
    """The versions that the dead run has read mean nothing any more; the newest ones take their place."""
    lake.derive(["orders"], large)
    lake.run("UPDATE {orders} SET amount = 11", "UPDATE {orders} SET amount = 12")

    with pytest.raises(Killed):
        lake.derive(["orders"], large, observe=at("commit", "before", die))
    shutil.rmtree(lake.path("orders"))
    lake.make("orders", ORDERS, "id")
    lake.run("INSERT INTO {orders} VALUES (9, 9, 99, 'new')")
    report = lake.derive(["orders"], large)
    assert ("full", 1, 3) == (report.how, report.added, report.removed)


@pytest.mark.thorough
@pytest.mark.parametrize("grows", [2, 3], ids=["up to where it was read", "and beyond"])
def test_a_source_that_was_put_back_behind_a_run_that_died_is_read_in_full(
    lake: Lake, grows: int
) -> None:
    """The round before it has come to a version that is another one now, whose number the source has reached again."""
    kept = lake.path("kept")
    shutil.copytree(lake.path("orders"), kept)
    lake.run("UPDATE {orders} SET amount = 11", "INSERT INTO {orders} VALUES (5, 5, 50, 'lost')")
    lake.derive(["orders"], large)
    lake.run("DELETE FROM {orders} WHERE id = 1", "DELETE FROM {orders} WHERE id = 2")

    with pytest.raises(Killed):
        lake.derive(["orders"], large, observe=at("commit", "before", die))
    shutil.rmtree(lake.path("orders"))
    shutil.move(kept, lake.path("orders"))
    for number in range(grows):
        lake.run(f"INSERT INTO {{orders}} VALUES ({6 + number}, 6, 60, 'new')")
    assert "full" == lake.derive(["orders"], large).how
    assert "nothing new" == lake.derive(["orders"], large).how


@pytest.mark.thorough
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_round_that_was_given_up_is_carried_out_once(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    """Its runner was killed, and the server goes on with its commit beside another's: who comes second writes nothing.

    One that was to compute all anew has not done so then, and says it.
    """
    lake.derive(["orders"], large)
    lake.run("INSERT INTO {orders} VALUES (5, 2, 60, 'e')")
    late: list[tuple[TableRef, Mark]] = []
    told = (lake.spark, "out", lake.path("orders"), large, lake.path("out"))

    def arrive(event: Event) -> None:
        if (event.step, event.when) == ("commit", when):
            append_rows(late[0][0], lake.spark.createDataFrame([(5, 120, "e")], LARGE), late[0][1])

    with monkeypatch.context() as patch:
        patch.setattr(commit, "write_difference", kept_in(late, dies=True))
        with pytest.raises(Killed):
            lake.derive(["orders"], large)
    if when == "before":
        with pytest.raises(mirrorlib.TableBusyError, match="another runner has gone on"):
            mirrorlib.derive(*told, rebuild=True, observe=arrive)
    else:
        assert 1 == mirrorlib.derive(*told, rebuild=True, observe=arrive).added
    assert "nothing new" == lake.derive(["orders"], large).how


@pytest.mark.thorough
def test_who_makes_the_table_takes_the_place_of_what_a_late_runner_has_written_first(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It replaces all rows, so it has overlooked none, and nobody takes them for somebody else's."""
    late: list[tuple[TableRef, Mark]] = []
    clock = iter(range(2_000_000_000, 2_000_001_000, 2))
    monkeypatch.setattr(job, "time", SimpleNamespace(time=lambda: next(clock)))

    def arrive(event: Event) -> None:
        if (event.step, event.when) == ("commit", "before"):
            append_rows(late[0][0], lake.spark.createDataFrame([(1, 20, "a")], LARGE), late[0][1])

    with monkeypatch.context() as patch:
        patch.setattr(commit, "replace_rows", kept_in(late, dies=True))
        with pytest.raises(Killed):
            lake.derive(["orders"], large)
    assert 3 == lake.derive(["orders"], large, observe=arrive).added
    assert "nothing new" == lake.derive(["orders"], large).how


@pytest.mark.thorough
def test_what_a_late_runner_writes_into_a_table_that_was_made_anew_is_not_relied_on(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its commit says up to where it goes, but of the table that was removed; who has made this one has died over it."""
    lake.derive(["orders"], large)
    lake.run("INSERT INTO {orders} VALUES (5, 2, 60, 'e')")
    late: list[tuple[TableRef, Mark]] = []
    for step in ("write_difference", "replace_rows"):
        with monkeypatch.context() as patch:
            patch.setattr(commit, step, kept_in(late, dies=True))
            with pytest.raises(Killed):
                lake.derive(["orders"], large)
        if step == "write_difference":
            shutil.rmtree(lake.path("out"))
    append_rows(late[0][0], lake.spark.createDataFrame([(5, 120, "e")], LARGE), late[0][1])

    report = lake.derive(["orders"], large)
    assert ("full", 3, 0) == (report.how, report.added, report.removed)
    assert "nothing new" == lake.derive(["orders"], large).how


@pytest.mark.thorough
def test_versions_that_could_not_be_transformed_are_passed_once_they_are_set_right(
    lake: Lake,
) -> None:
    """Each run fails by them until a source has gone on, and goes by the newest versions then."""

    def counted(orders: DataFrame) -> DataFrame:
        return orders.selectExpr("id", "CAST(note AS int) AS note")

    lake.run("UPDATE {orders} SET note = '0'")
    lake.derive(["orders"], counted)
    lake.run("INSERT INTO {orders} VALUES (5, 2, 60, 'x')")
    for _ in range(2):
        with pytest.raises(mirrorlib.MirrorError, match=r"^out: a value does not fit the type"):
            lake.derive(["orders"], counted)
    lake.run("UPDATE {orders} SET note = '1' WHERE id = 5")
    lake.derive(["orders"], counted)


@pytest.mark.thorough
def test_another_round_that_came_while_one_was_computed_is_told(lake: Lake) -> None:
    """What that has written was not seen by this one: nobody claims keys that occur once then."""
    lake.derive(["orders"], large)
    lake.run("UPDATE {orders} SET amount = 11 WHERE id = 1")
    ref = find_place(lake.spark, lake.path("out"), state=None).ref

    def meddle(event: Event) -> None:
        if (event.step, event.when) == ("commit", "before"):
            row = lake.spark.createDataFrame([(1, 22, "a")], "order int, twice int, note string")
            append_rows(ref, row, Mark(app_id="other", version=1, facts={"window": 1}))

    told = (lake.spark, "out", lake.path("orders"), large, lake.path("out"))
    mirrorlib.derive(*told, observe=meddle)
    assert not mirrorlib.keys_of(mirrorlib.read_table(lake.spark, lake.path("out"))).primary
    with pytest.raises(mirrorlib.ForeignWriteError, match="somebody else has written"):
        lake.derive(["orders"], large)
    lake.derive(["orders"], large, rebuild=True)


@pytest.mark.thorough
def test_nobody_elses_rows_are_taken_for_its_own(lake: Lake) -> None:
    """A write of somebody's is refused until all is computed anew, behind a round that died too; a table of his always."""
    lake.derive(["orders"], large)
    lake.run("UPDATE {orders} SET amount = 11 WHERE id = 1")

    with pytest.raises(Killed):
        lake.derive(["orders"], large, observe=at("commit", "before", die))
    lake.foreign("INSERT INTO {out} VALUES (99, 1, 'mine'), (1, 1, 'a key that is there')")
    with pytest.raises(mirrorlib.ForeignWriteError, match="somebody else has written"):
        lake.derive(["orders"], large)
    lake.derive(["orders"], large, rebuild=True)

    with pytest.raises(mirrorlib.ForeignWriteError, match="not this derived table"):
        mirrorlib.derive(lake.spark, "silver", lake.path("orders"), large, lake.path("customers"))
    lake.derive(["orders"], large, "silver")  # the name was not given away
    with pytest.raises(mirrorlib.JournalError, match="another derived table of this name"):
        mirrorlib.derive(lake.spark, "out", lake.path("orders"), large, lake.path("other"))


@pytest.mark.thorough
def test_a_write_that_comes_while_rows_are_computed_does_not_pass_unnoticed(lake: Lake) -> None:
    """Delta lets both commits be: nobody claims keys that occur once then, and the next run refuses."""
    lake.derive(["orders"], large)
    lake.run("UPDATE {orders} SET amount = 11 WHERE id = 1")

    def meddle(event: Event) -> None:
        if (event.step, event.when) == ("commit", "before"):
            lake.foreign("INSERT INTO {out} VALUES (1, 1, 'mine')")

    mirrorlib.derive(
        lake.spark, "out", lake.path("orders"), large, lake.path("out"), observe=meddle
    )
    assert not mirrorlib.keys_of(mirrorlib.read_table(lake.spark, lake.path("out"))).primary
    with pytest.raises(mirrorlib.ForeignWriteError, match="somebody else has written"):
        lake.derive(["orders"], large)
    lake.derive(["orders"], large, rebuild=True)


@pytest.mark.thorough
def test_another_time_zone_is_another_transformation(lake: Lake) -> None:
    """All of it is computed anew, which the report says."""
    lake.derive(["orders"], large)
    lake.run("UPDATE {orders} SET amount = 11 WHERE id = 1")
    with configured(lake.spark, {"spark.sql.session.timeZone": "Asia/Tokyo"}):
        report = lake.derive(["orders"], large)

    assert "full" == report.how
    assert "the session's time zone" in report.why


@pytest.mark.thorough
def test_a_transformation_means_what_it_does_in_the_callers_session(lake: Lake) -> None:
    """The name of a type in a cast, too, which belongs to no session."""

    def cast(orders: DataFrame) -> DataFrame:
        return orders.select("id", f.lit("2026-01-02 03:04:05").cast("timestamp").alias("at"))

    with configured(lake.spark, {"spark.sql.timestampType": "TIMESTAMP_NTZ"}):
        lake.derive(["orders"], cast)

    assert {"id": "int", "at": "timestamp_ntz"} == dict(
        lake.spark.read.format("delta").load(lake.path("out")).dtypes
    )


@pytest.mark.thorough
def test_another_transformation_is_seen_in_its_plan(lake: Lake) -> None:
    """A new column is added; one that goes makes the table anew; keys are told as they are then."""
    lake.derive(["orders"], lambda o: o.select("id", "amount"))
    changed = [
        lambda o: o.select("id", "amount", "note"),
        lambda o: o.select("id", "amount", "note").where("id > 1"),
        lambda o: o.selectExpr("id + 1 AS id", "note"),
    ]
    for number, transform in enumerate(changed):
        lake.run(f"UPDATE {{orders}} SET amount = {number} WHERE id = 1")
        report = lake.derive(["orders"], transform)
        assert "full" == report.how
        assert "not that of the last run" in report.why
    assert Keys() == report.keys
    assert not mirrorlib.keys_of(mirrorlib.read_table(lake.spark, lake.path("out")))


@pytest.mark.thorough
def test_columns_that_ask_more_of_the_table_take_the_place_of_others(lake: Lake) -> None:
    """Times without zone, a name with a blank; then others do where columns are mapped."""
    lake.derive(["orders"], lambda o: o.select("id", "note"))
    columns = ("TIMESTAMP_NTZ'2024-01-01 00:00:00' AS at", "note AS `the note`", "amount")
    for number, column in enumerate(columns):

        def read(orders: DataFrame, column: str = column) -> DataFrame:
            return orders.selectExpr("id", column)

        lake.run(f"UPDATE {{orders}} SET amount = {number} WHERE id = 1")
        assert "full" == lake.derive(["orders"], read).how


@pytest.mark.thorough
def test_a_table_that_was_replaced_takes_texts_of_any_length(lake: Lake) -> None:
    """A bound of the source's column is the source's."""
    lake.run("ALTER TABLE {orders} ADD COLUMN code VARCHAR(3)", "UPDATE {orders} SET code = 'abc'")
    lake.derive(["orders"], lambda o: o.select("id", "code", "note"))
    lake.run("UPDATE {orders} SET amount = 1 WHERE id = 1")
    lake.derive(["orders"], lambda o: o.select("id", "code"))
    lake.run(
        "ALTER TABLE {orders} ALTER COLUMN code TYPE VARCHAR(10)",
        "UPDATE {orders} SET code = 'abcdef' WHERE id = 1",
    )
    lake.derive(["orders"], lambda o: o.select("id", "code"))


@pytest.mark.thorough
@pytest.mark.parametrize(
    "before, statements",
    [
        pytest.param(
            "'delta.columnMapping.mode' = 'name'",
            [
                "ALTER TABLE {orders} RENAME COLUMN customer TO was",
                "ALTER TABLE {orders} RENAME COLUMN amount TO customer",
                "ALTER TABLE {orders} RENAME COLUMN was TO amount",
            ],
            id="exchanged",
        ),
        pytest.param(
            "'delta.columnMapping.mode' = 'name'",
            [
                "ALTER TABLE {orders} DROP COLUMN amount",
                "ALTER TABLE {orders} ADD COLUMN amount int",
                "UPDATE {orders} SET note = 'z' WHERE id = 1",
            ],
            id="dropped",
        ),
        pytest.param(
            "'delta.enableTypeWidening' = 'true'",
            [
                "ALTER TABLE {orders} ALTER COLUMN part TYPE double",
                "UPDATE {orders} SET note = 'z' WHERE id = 1",
            ],
            id="widened",
        ),
    ],
)
def test_columns_of_a_source_that_become_others_concern_all_of_its_rows(
    lake: Lake, before: str, statements: list[str]
) -> None:
    """Though no commit has touched them: a name that means another column, a type that reads otherwise."""

    def read(orders: DataFrame) -> DataFrame:
        return orders.selectExpr("id", "customer", "amount", "CAST(part AS string) AS part")

    lake.run(
        f"ALTER TABLE {{orders}} SET TBLPROPERTIES ({before})",
        "ALTER TABLE {orders} ADD COLUMN part float",
        "UPDATE {orders} SET part = 0.1",
    )
    lake.derive(["orders"], read)
    lake.run(*statements)
    report = lake.derive(["orders"], read)

    assert "full" == report.how
    assert "have become others" in report.why


@pytest.mark.thorough
def test_history_that_is_gone_is_made_up_for(lake: Lake) -> None:
    """By computing all, as is a source that was made anew."""
    lake.derive(["orders"], large)
    lake.run(
        "ALTER TABLE {orders} SET TBLPROPERTIES ('delta.enableChangeDataFeed' = 'false')",
        "UPDATE {orders} SET amount = 77 WHERE id = 1",
        "ALTER TABLE {orders} SET TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true')",
    )
    report = lake.derive(["orders"], large)
    assert ("full", 1, 1) == (report.how, report.added, report.removed)
    assert "cannot be read: the feed was off" in report.why

    shutil.rmtree(lake.path("orders"))
    lake.make("orders", ORDERS, "id")
    lake.run("INSERT INTO {orders} VALUES (9, 9, 99, 'new')")
    report = lake.derive(["orders"], large)
    assert ("full", "a source was made anew or put back since the last run") == (
        report.how,
        report.why,
    )

    shutil.copytree(lake.path("orders"), lake.path("kept"))
    lake.run("INSERT INTO {orders} VALUES (10, 9, 99, 'new')")
    lake.derive(["orders"], large)
    shutil.rmtree(lake.path("orders"))
    shutil.copytree(lake.path("kept"), lake.path("orders"))
    lake.run("INSERT INTO {orders} VALUES (11, 9, 99, 'new')")
    report = lake.derive(["orders"], large)
    assert ("full", 1, 1) == (report.how, report.added, report.removed)

    shutil.rmtree(lake.path("out"))
    assert "full" == lake.derive(["orders"], large).how


@pytest.mark.thorough
@pytest.mark.parametrize("begins", [1, 2], ids=["", "and its progress began anew"])
def test_a_table_whose_own_log_tells_no_round_is_compared_and_not_replaced(
    lake: Lake, begins: int
) -> None:
    """By whole rows, as nobody knows who has written; only what is different is in its feed, and once."""
    lake.derive(["orders"], large)
    if begins > 1:  # Delta knows the mark of the later beginning, which nothing else tells
        mirrorlib.drop_consumer(lake.root, "derive:out")
        lake.derive(["orders"], large)
    lake.foreign("ALTER TABLE {out} SET TBLPROPERTIES ('delta.checkpointInterval' = '1')")
    lake.foreign("INSERT INTO {out} VALUES (1, 99, 'x')")  # before the log begins
    told, out = newest_version(lake.path("out")), lake.path("out")
    lake.foreign("ALTER TABLE {out} SET TBLPROPERTIES ('x' = '1')")
    for version in range(told + 1):
        for left in Path(out, "_delta_log").glob(f"*{version:020d}.*"):
            left.unlink()
    lake.run("UPDATE {orders} SET amount = 11 WHERE id = 2")
    why = "the table's log no longer tells what the last run has made"
    for expected in [("full", why, 1, 2), ("nothing new", "", 0, 0)]:
        report = lake.derive(["orders"], large)
        assert expected == (report.how, report.why, report.added, report.removed)
        feed = mirrorlib.read_feed(lake.spark, out, after=told + 1, keys=[]).collect()
        assert {(1, 99, "delete"), (2, 40, "delete"), (2, 22, "insert")} == {
            (row["order"], row["twice"], row["_change_type"]) for row in feed
        }


@pytest.mark.thorough
def test_a_table_whose_consumer_begins_with_what_comes_lacks_nothing(lake: Lake) -> None:
    """It is made of all that is there, which the versions that were passed over are a part of."""
    lake.derive(["orders"], large)
    lake.run("UPDATE {orders} SET amount = 11 WHERE id = 2")
    mirrorlib.rewind_consumer(lake.root, "derive:out", "now")
    found = lake.derive(["orders"], large)

    why = "its sources are not those of the last run, or its progress was reset"
    assert ("full", why) == (found.how, found.why)
    assert "nothing new" == lake.derive(["orders"], large).how


@pytest.mark.thorough
def test_a_table_that_a_backup_has_set_back_is_brought_up_to_date_again(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Row by row, although no source has anything new: its last commit tells how far it is; no late runner comes behind."""
    lake.derive(["orders"], large)
    out, backup = lake.path("out"), lake.path("backup")
    shutil.copytree(out, backup)
    lost: list[tuple[TableRef, Mark]] = []
    monkeypatch.setattr(commit, "write_difference", kept_in(lost))
    lake.run("UPDATE {orders} SET amount = 11 WHERE id = 2")
    for rebuild in (False, True):
        lake.derive(["orders"], large, rebuild=rebuild)
    shutil.rmtree(out)
    shutil.copytree(backup, out)
    found = lake.derive(["orders"], large)
    if not SERVERLESS:  # a claim's mark is looked for in what came since
        append_rows(lost[1][0], lake.spark.createDataFrame([(2, 22, "b")], LARGE), lost[1][1])

    assert ("row-wise", "", 1, 1) == (found.how, found.why, found.added, found.removed)
    assert "nothing new" == lake.derive(["orders"], large).how


@pytest.mark.thorough
def test_a_source_that_a_backup_has_set_back_with_its_state_is_read_in_full(lake: Lake) -> None:
    """The table is made of versions that the backup lacks, and the source has others of their numbers by now."""
    orders, state, there = Path(lake.path("orders")), lake.root / "_mirrorlib", lake.root / "there"
    lake.derive(["orders"], large)
    for place in (orders, state):
        shutil.copytree(place, there / place.name)
    for key in (1, 2):
        lake.run(f"UPDATE {{orders}} SET amount = 11 WHERE id = {key}")
        lake.derive(["orders"], large)
    for place in (orders, state):
        shutil.rmtree(place)
        (there / place.name).rename(place)
    lake.run("INSERT INTO {orders} VALUES (6, 6, 60, 'new')")
    found = lake.derive(["orders"], large)

    why = "a source was made anew or put back since the last run"
    assert ("full", why) == (found.how, found.why)
    assert "nothing new" == lake.derive(["orders"], large).how


@pytest.mark.thorough
def test_a_backfill_is_a_union_and_then_key_by(lake: Lake) -> None:
    """The recipe: rows of before and rows as they come, together under one key again."""
    lake.make("silver", ORDERS, "id")
    lake.run("INSERT INTO {silver} VALUES (1, 1, 10, 'old'), (8, 8, 80, 'older')")

    def both(history: DataFrame, live: DataFrame) -> DataFrame:
        rows = live.selectExpr("*", "1 AS age").unionByName(history.selectExpr("*", "0 AS age"))
        keyed = mirrorlib.key_by(rows, "id", cdc=True, order_by="age")
        return mirrorlib.current_view(keyed)

    two = {"history": "silver", "live": "orders"}
    first = lake.derive(two, both)
    lake.run("UPDATE {orders} SET amount = 11 WHERE id = 1")
    second = lake.derive(two, both)

    assert Keys(partition=("id",), primary=("id",), order_by=("age",)) == first.keys
    assert ("affected keys", 1, 1) == (second.how, second.added, second.removed)


def test_ways_of_many_tables_are_sorted_by_the_datas_way() -> None:
    """A table's ways stand behind those that make it; a circle is entered at its first; not in time by the square."""

    def way(kind: Any, source: str, target: str) -> lineage.Edge:
        return lineage.Edge(kind=kind, source=source, target=target, name=target, keys=())

    made = way("derive", "b", "a"), way("derive", "c", "b"), way("apply", "z", "c")
    circle = way("derive", "x", "y"), way("derive", "y", "x")
    assert [*made[::-1], *circle] == lineage._sorted([*circle, *made])
    ways = [way("apply", "/z", f"/t/{at}") for at in range(3000)]
    ways += [way("export", f"/t/{at}", f"c{to}") for at in range(3000) for to in range(3)]
    began = time.process_time()
    assert len(ways) == len(lineage._sorted(ways))
    assert time.process_time() - began < 2


@pytest.mark.thorough
def test_a_notebooks_picture_of_a_catalogs_table_begins_with_its_landing_zone(
    spark: SparkSession, zone: ZoneWriter, tmp_path: Path
) -> None:
    """The mirror that is told beside it, in the same state folder, is the one that it is made of."""
    names = ("pictured", "pictured_of")
    for name in names:
        spark.sql(f"CREATE DATABASE {name} LOCATION '{tmp_path}/{name}'")
    zone.table("bronze", keys=["id"]).file([{"id": 1}])
    source, target = "spark_catalog.pictured_of.bronze", "spark_catalog.pictured.out"
    state = str(tmp_path / "state")
    try:
        mirrorlib.apply(spark, str(zone), "pictured_of", catalog="spark_catalog", state=state)
        mirrorlib.derive(spark, "out", source, lambda b: b, target, state=state)
        ways = picture({"sources": [source], "target": target, "state": state}, spark).ways
    finally:
        for name in names:
            spark.sql(f"DROP DATABASE {name} CASCADE")

    assert ways is not None
    (mirror, derived) = ways.edges
    assert (str(zone), mirror.target) == (mirror.source, derived.source)


def test_lineage_tells_every_way_and_where_keys_were_lost(
    lake: Lake, zone: ZoneWriter, capsys: pytest.CaptureFixture[str]
) -> None:
    """From zones to mirrors to derived tables to consumers."""
    mirrored = zone.table("bronze", keys=["id"])
    mirrored.file([{"id": 1, "v": "a"}])
    mirrorlib.apply(lake.spark, str(zone), lake.root)
    lake.derive(["bronze"], lambda b: b.selectExpr("id + 1 AS id", "v"))
    copy = f"delta:{lake.root}.copy"
    mirrorlib.export(lake.spark, lake.root, ["out"], consumer="c", to=copy, mode="changes")
    report = mirrorlib.lineage(lake.root)

    assert [
        ("apply", str(zone), "bronze", ("id",)),
        ("derive", "bronze", "out", ()),
        ("export", "out", copy, ()),
    ] == [
        (
            edge.kind,
            *(t.removeprefix(f"{lake.root}/") for t in (edge.source, edge.target)),
            edge.keys,
        )
        for edge in report.edges
    ]
    assert "out: select lost the column id: dropped or overwritten." in report.notes()
    (lake.root / "_mirrorlib" / "derived" / "odd.json").write_text('{"format": 1}')
    assert report == mirrorlib.lineage(lake.root)
    assert 0 == main(["lineage", str(lake.root)])
    assert "derive out" in capsys.readouterr().out
    assert 0 == main(["lineage", str(lake.root), "--json"])
    assert json.loads(capsys.readouterr().out)["edges"][1]["how"] == "full"

    mirrored.file([{"id": 2, "v": "b"}])
    zone.table("known", keys=["id"]).file([{"id": 1}])
    mirrorlib.apply(lake.spark, str(zone), lake.root, insert_policy="upsert")
    # Rows of before, under another policy, may have one key.
    assert {"bronze": False, "known": True} == {
        edge.name: edge.primary for edge in mirrorlib.lineage(lake.root).edges[:2]
    }


def test_a_source_in_another_schema_is_told_once_and_by_its_own_address(tmp_path: Path) -> None:
    """The registry beside it knows a bare name, which is none in the schema that was asked for."""
    state, silver, gold = open_store(str(tmp_path)), "`dev`.`silver`.`orders`", "`dev`.`gold`.`out`"
    wanted = {"to": gold, "mode": "derive", "net": False, "start_at": None, "table_id": "t"}
    registry = Registry(state, "derive:out", parse_name("orders"))
    registry.begin({**wanted, "on_expired": "snapshot"}, 1)
    told = {"address": gold, "name": "out", "sources": [{"address": silver}], "how": "full"}
    record = {"format": 1, "keys": {"partition": [], "primary": []}, "losses": [], **told}
    state.put("derived/out.json", json.dumps(record).encode())

    (edge,) = mirrorlib.lineage("gold", catalog="dev", state=tmp_path).edges

    assert ("derive", silver, gold, "full") == (edge.kind, edge.source, edge.target, edge.how)


def test_lineage_asks_once_what_lies_above_many_tables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a store each question takes its time."""
    keys = {"partition": [], "primary": []}
    for place in range(100):
        told = {"address": f"{tmp_path}/silver/{place}", "name": str(place), "how": "full"}
        source = {"address": f"{tmp_path}/bronze/{place}"}
        record = {"format": 1, "keys": keys, "losses": [], "sources": [source], **told}
        open_store(f"{tmp_path}/_mirrorlib").put(
            f"derived/{place}.json", json.dumps(record).encode()
        )
    asked: list[str] = []
    listed = LocalStore.list_folder

    def list_folder(store: LocalStore, folder: str) -> Folder | None:
        asked.append(folder)
        return listed(store, folder)

    monkeypatch.setattr(LocalStore, "list_folder", list_folder)

    assert 100 == len(mirrorlib.lineage(tmp_path).edges)
    assert len(asked) < 20


def test_a_word_is_a_table_of_the_current_schema(spark: SparkSession) -> None:
    """Whatever that is called: Spark tells a name of odd signs, or of digits alone, in quotes."""
    spark.sql("CREATE DATABASE IF NOT EXISTS `2024`")
    spark.sql("USE `2024`")
    try:
        found = [find_place(spark, name).ref.sql for name in ("v", "`2024`.v")]
    finally:
        spark.sql("USE default")
        spark.sql("DROP DATABASE `2024`")

    assert ["`spark_catalog`.`2024`.`v`"] * 2 == found


def test_tables_of_one_name_in_two_schemas_are_told_of_both(tmp_path: Path) -> None:
    """Their state may be in one folder."""
    chain = ("`dev`.`bronze`.`orders`", "`dev`.`silver`.`orders`", "`dev`.`gold`.`orders`")
    for source, target in pairwise(chain):
        place = find_place(cast("Any", None), target, state=tmp_path)
        read = SourceReport(table=source, address=source, after=-1, until=0, keys=("id",))
        report = DeriveReport(
            name=target,
            target=target,
            how="full",
            sources=(read,),
            version=0,
            keys=Keys(),
            seconds=0,
        )
        write_record(place, report)

    edges = mirrorlib.lineage("gold", catalog="dev", state=tmp_path).edges

    assert [(*chain[:2], "full"), (*chain[1:], "full")] == [
        (edge.source, edge.target, edge.how) for edge in edges
    ]


def test_vacuum_minds_no_reader_of_another_table_of_the_name(tmp_path: Path) -> None:
    """In the state folder of a catalog's schemas it has the same one; what it has read is told by the table's id."""
    field = {"name": "id", "type": "long", "nullable": True, "metadata": {}}
    schema = json.dumps({"type": "struct", "fields": [field]})
    told = {"id": "its own", "schemaString": schema, "partitionColumns": [], "configuration": {}}
    added = {"path": "a", "partitionValues": {}, "size": 1, "modificationTime": 0}
    log = open_store(f"{tmp_path}/orders/_delta_log")
    for version, action in enumerate(({"metaData": told}, {"add": {**added, "dataChange": True}})):
        log.put(f"{version:020d}.json", json.dumps(action).encode())
    commits = find_table_at(str(tmp_path / "orders")).commits
    streams = []
    for name, table_id in (("own", commits.metadata.id), ("of another", "another's")):
        streams.append(Registry(open_store(str(tmp_path / "state")), name, parse_name("orders")))
        wanted = {"to": "x", "mode": "derive", "net": False, "start_at": 0, "table_id": table_id}
        streams[-1].begin({**wanted, "on_expired": "snapshot"}, 1)

    losers = upkeep._losers(commits, streams, datetime.now(UTC) + timedelta(hours=1))

    assert {"own"} == losers.keys()


@pytest.mark.thorough
def test_what_a_killed_run_has_staged_is_removed(lake: Lake) -> None:
    """By a later one, when it is older than any run; another's that may be at work is left."""
    lake.derive(["orders"], large)
    staged = lake.root / "_mirrorlib/staged/derive/out"
    names = "2026-01-01-killed", f"{datetime.now(UTC).date()}-at-work"
    for name in names:
        (staged / name / "differences").mkdir(parents=True)
    lake.run("UPDATE {orders} SET amount = 11 WHERE id = 2")
    lake.derive(["orders"], large)

    assert [names[1]] == [folder.name for folder in staged.iterdir()]


@pytest.mark.thorough
def test_two_runners_do_not_meet(lake: Lake) -> None:
    """The second is told who is at it, and nothing is planned."""
    state = open_store(str(lake.root / "_mirrorlib"))
    with (
        hold(Registry(state, "derive:out", parse_name("out")).lease()),
        pytest.raises(mirrorlib.TableBusyError, match="another runner computes the derived table"),
    ):
        lake.derive(["orders"], large)

    assert () == mirrorlib.consumers(lake.root).streams


@pytest.mark.thorough
@pytest.mark.parametrize("case", ["its round", "and the next", "another's", "anew", "the first"])
def test_a_runner_that_was_taken_for_dead_changes_nothing(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, case: str
) -> None:
    """It stood still before its commit until its lease had run out, and another went on: on an object store no lock helps.

    That one carries out the same round, another one too, that of another transformation, or all in a table made anew.
    """
    if case != "the first":
        lake.derive(["orders"], large)
        lake.run("UPDATE {orders} SET amount = 11 WHERE id = 1")
    monkeypatch.setattr(TablePlace, "hold", lambda *_: nullcontext())
    others: list[DeriveReport] = []

    def other(orders: DataFrame) -> DataFrame:
        return large(orders).where("order > 1") if case == "another's" else large(orders)

    def stand_still(event: Event) -> None:
        if (event.step, event.when) == ("commit", "before") and not others:
            monkeypatch.setattr(lease, "_is_held", lambda _: False)
            if case == "anew":
                shutil.rmtree(lake.path("out"))
            others.append(lake.derive(["orders"], other))
            if case == "and the next":
                lake.run("UPDATE {orders} SET amount = amount + 1")
                others.append(lake.derive(["orders"], other))

    told = (lake.spark, "out", lake.path("orders"), large, lake.path("out"))
    with pytest.raises(mirrorlib.TableBusyError, match="another runner has gone on"):
        mirrorlib.derive(*told, observe=stand_still)

    assert others[-1].version == newest_version(lake.path("out"))
    assert "nothing new" == lake.derive(["orders"], other).how
    lake.run("UPDATE {orders} SET amount = 12 WHERE id = 1")
    lake.derive(["orders"], large)


@pytest.mark.thorough
def test_vacuum_leaves_what_a_derived_table_has_still_to_read(lake: Lake) -> None:
    """It is a consumer like any other."""
    lake.derive(["orders"], large)
    lake.run("UPDATE {orders} SET amount = 11 WHERE id = 1")
    long_ago = time.time() - 9 * 24 * 3600
    for file in Path(lake.path("orders"), "_delta_log").glob("*.json"):
        os.utime(file, (long_ago, long_ago))

    def vacuum() -> tuple[str, tuple[str, ...]]:
        report = mirrorlib.vacuum(lake.spark, lake.root, tables=["orders"], dry_run=True)
        return report.tables[0].state, report.tables[0].losers

    assert ("refused", ("derive:out",)) == vacuum()
    assert "row-wise" == lake.derive(["orders"], large).how
    assert ("ready", ()) == vacuum()

    lake.derive(["customers"], lambda customers: customers.select("name"))
    told = [(one.table, one.consumer) for one in mirrorlib.consumers(lake.root).streams]
    assert [("customers", "derive:out")] == told  # and no other, who would never come again


@pytest.mark.thorough
def test_tables_of_a_catalog_need_a_state_folder(lake: Lake) -> None:
    """With one they are sources and targets like any others."""
    lake.spark.sql("CREATE SCHEMA IF NOT EXISTS derived")
    names = "derived.orders", "derived.large"
    try:
        lake.spark.sql(
            f"CREATE TABLE {names[0]} ({ORDERS}) USING delta TBLPROPERTIES (delta.enableChangeDataFeed = true)"
        )
        with pytest.raises(mirrorlib.LandingZoneError, match="Say where it lives"):
            mirrorlib.derive(lake.spark, "large", names[0], large, names[1])
        folder = lake.spark.sql(f"DESCRIBE DETAIL {names[0]}").collect()[0]["location"]
        for again in (names[0].upper(), folder):
            with pytest.raises(mirrorlib.LandingZoneError, match="named twice"):
                mirrorlib.derive(
                    lake.spark,
                    "large",
                    [names[0], again],
                    named,
                    names[1],
                    state=lake.path("state"),
                )
        for number, how in enumerate(("full", "full", "nothing new")):
            if number < 2:
                lake.spark.sql(f"INSERT INTO {names[0]} VALUES ({number}, 1, 10, 'a')")
            state = lake.root / "state"
            report = mirrorlib.derive(lake.spark, "large", names[0], large, names[1], state=state)
            assert how == report.how
        assert [(0, 20, "a"), (1, 20, "a")] == sorted(
            map(tuple, lake.spark.table(names[1]).collect())
        )
    finally:
        lake.spark.sql("DROP SCHEMA derived CASCADE")


@pytest.mark.thorough
def test_results_that_no_table_can_hold_are_refused(lake: Lake) -> None:
    """By column, before anything is written; so are sources that are no two tables."""
    for transform, column in (
        (lambda o: o.selectExpr("id", "id AS ID"), "ID"),
        (lambda o: o.selectExpr("id", "NULL AS nothing"), "nothing"),
        (lambda o: o.selectExpr("id AS _change_type"), "_change_type"),
    ):
        with pytest.raises(mirrorlib.SchemaError, match=f"column {column}"):
            lake.derive(["orders"], transform)
    with pytest.raises(mirrorlib.KeysError, match="gives no DataFrame"):
        lake.derive(["orders"], lambda _: None)
    for sources in (["orders", "orders"], ["out"]):
        with pytest.raises(mirrorlib.LandingZoneError, match="named twice, or is the derived"):
            lake.derive(sources, large)
    with pytest.raises(mirrorlib.LandingZoneError, match="Choose another name"):
        mirrorlib.derive(lake.spark, "", lake.path("orders"), large, lake.path("out"))
    with pytest.raises(mirrorlib.LandingZoneError, match="in a source's folder"):
        mirrorlib.derive(
            lake.spark, "inside", lake.path("orders"), large, lake.path("orders/inside")
        )
    older = Lake(lake.spark, lake.root.parent / "older").make("orders", ORDERS, "id")
    places = [lake.path("orders"), older]
    with pytest.raises(mirrorlib.LandingZoneError, match="have the same name"):
        mirrorlib.derive(
            lake.spark, "out", places, named, lake.path("out"), state=lake.path("state")
        )
    assert not Path(lake.path("out")).exists()


@pytest.mark.thorough
def test_columns_that_cannot_be_compared_are_replaced_as_a_whole(lake: Lake) -> None:
    """A map: in full each time, and right; but not at a version that changes no row."""

    def mapped(orders: DataFrame) -> DataFrame:
        return orders.selectExpr("id", "map('a', amount) AS m")

    out = lake.path("out")
    for number in range(2):
        lake.run(f"UPDATE {{orders}} SET amount = {number} WHERE id = 1")
        report = mirrorlib.derive(lake.spark, "out", lake.path("orders"), mapped, out)
        assert "full" == report.how
    assert "cannot be compared" in report.why
    rows = lake.spark.read.format("delta").load(out).where("id = 1").collect()
    assert [(1, {"a": 1})] == [tuple(row) for row in rows]

    lake.run("ALTER TABLE {orders} SET TBLPROPERTIES ('x' = '1')")
    report = mirrorlib.derive(lake.spark, "out", lake.path("orders"), mapped, out)
    assert "nothing new" == report.how
    assert [] == mirrorlib.read_feed(lake.spark, out, after=newest_version(out) - 1).collect()


def test_a_target_in_a_catalog_is_one_in_any_case_of_letters() -> None:
    """A folder is not."""
    stream = SimpleNamespace(to="silver.orders", table="orders", consumer="derive:my orders")
    sources: Any = [SimpleNamespace(registry=SimpleNamespace(newest_stream=lambda: stream))]
    assert (stream,) == begun_streams(sources, "Silver.Orders")
    stream.to = "/silver/orders"
    with pytest.raises(JournalError, match=r"another derived table.* --drop 'derive:my orders'"):
        begun_streams(sources, "/Silver/Orders")
