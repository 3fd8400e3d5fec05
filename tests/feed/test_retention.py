"""Histories older than the table keeps removed files: read while all is there, else an error that leads on."""

from __future__ import annotations

import json
import shutil
import threading
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import mirrorlib
from feeds import FEED, Table, told
from mirrorlib.delta.address import find_feed_table
from mirrorlib.delta.commits import Commits
from mirrorlib.errors import FeedError, FeedExpiredError
from mirrorlib.feed.proof import duration_of, first_readable
from mirrorlib.feed.read import read_snapshot
from mirrorlib.store import open_store

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

    from mirrorlib.delta.actions import FeedCommit

LIFTED = "spark.databricks.delta.vacuum.enforceTimeTravelWithinDeletedFileRetentionDuration"


@pytest.fixture
def old(spark: SparkSession, tmp_path: Path) -> Table:
    """Give a table of a row and its deletion, a month old, and a row of now."""
    table = Table(spark, tmp_path / "t", "id bigint").run(
        "INSERT INTO {t} VALUES (1)", "DELETE FROM {t} WHERE id = 1"
    )
    return table.age(days=30).run("INSERT INTO {t} VALUES (2)")


@pytest.mark.parametrize(
    "text, expected",
    [
        ("INTERVAL 7 DAYS", timedelta(days=7)),
        ("Interval 1 Week 2 days", timedelta(days=9)),
        ("interval 1500 milliseconds 3 MICROSECONDS", timedelta(microseconds=1_500_003)),
        ("7 days", timedelta(days=7)),
        ("interval 1000000 days", timedelta(days=365_000)),  # no moment lies so far back
        ("interval 1 month", None),
        ("seven days", None),
    ],
)
def test_how_long_a_table_keeps_is_read_as_delta_reads_it(
    text: str, expected: timedelta | None
) -> None:
    """In letters of any case, down to the smallest unit; a month is of no fixed length."""
    assert expected == duration_of(text)


@pytest.fixture
def vacuuming(spark: SparkSession) -> Iterator[None]:
    """Let VACUUM take everything, and write nothing of it into the log."""
    conf = {
        "spark.databricks.delta.retentionDurationCheck.enabled": "false",
        "spark.databricks.delta.vacuum.logging.enabled": "false",
    }
    for name, value in conf.items():
        spark.conf.set(name, value)
    yield
    for name in conf:
        spark.conf.unset(name)


def test_old_changes_are_read_as_long_as_they_are_there(spark: SparkSession, old: Table) -> None:
    """Delta refuses them by their age alone; afterwards it does so as before."""
    assert [(1, "insert", 1), (2, "delete", 1), (3, "insert", 2)] == told(old.read(after=-1), "id")
    assert [(2, "delete", 1)] == told(old.read(after=1, until=2), "id")
    assert spark.conf.get(LIFTED, None) is None


def test_old_changes_are_looked_for_at_once(old: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a store's answers are waited for, those of several versions are waited for together."""
    met, holds = threading.Barrier(2), Commits.holds
    first = iter([met.wait] * 2)

    def hold_together(commits: Commits, path: str) -> bool:
        next(first, lambda _: 0)(60)
        return holds(commits, path)

    monkeypatch.setattr(Commits, "holds", hold_together)
    monkeypatch.setattr("mirrorlib.store.local.LocalStore.at_once", 2, raising=False)

    assert [(1, "insert", 1), (2, "delete", 1), (3, "insert", 2)] == told(old.read(after=-1), "id")


def test_versions_are_looked_for_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A consumer that has stopped asks at every poll from where on it could read."""
    schema = '{"type": "struct", "fields": []}'
    feed = {"configuration": {"delta.enableChangeDataFeed": "true"}}
    made = {"metaData": {"id": "t", "schemaString": schema, "partitionColumns": [], **feed}}
    (tmp_path / "_delta_log").mkdir()
    for version in range(5):
        told = json.dumps({"commitInfo": {"operation": "WRITE"}} if version else made)
        (tmp_path / "_delta_log" / f"{version:020d}.json").write_text(told)
    met, read = threading.Barrier(2), Commits.read

    def read_together(commits: Commits, version: int) -> FeedCommit:
        met.wait(20)
        return read(commits, version)

    monkeypatch.setattr(Commits, "read", read_together)
    monkeypatch.setattr("mirrorlib.store.local.LocalStore.at_once", 2, raising=False)

    assert 1 == first_readable(Commits(open_store(tmp_path), "t"), 1)


@pytest.mark.usefixtures("vacuuming")
def test_old_changes_that_are_gone_are_told(old: Table) -> None:
    """Without a word of the VACUUM in the log; what came after them can be read."""
    old.run("VACUUM {t} RETAIN 0 HOURS")

    with pytest.raises(FeedExpiredError, match="VACUUM") as caught:
        old.read(after=-1)
    assert 3 == caught.value.first_readable
    assert [(3, "insert", 2)] == told(old.read(after=2), "id")


@pytest.mark.thorough
@pytest.mark.usefixtures("vacuuming")
def test_reasons_are_told_together(spark: SparkSession, tmp_path: Path) -> None:
    """The log begins before the files do: the first version that is named can be read for all of them."""
    often = "ALTER TABLE {t} SET TBLPROPERTIES ('delta.checkpointInterval' = '1')"
    table = Table(spark, tmp_path / "t", "id bigint").run(
        "INSERT INTO {t} VALUES (1)", "DELETE FROM {t} WHERE id = 1"
    )
    table.age(days=30).run(often, "INSERT INTO {t} VALUES (2)", "VACUUM {t} RETAIN 0 HOURS")
    Path(table.log(0)).unlink()

    for after in (-1, "2001-01-01"):
        with pytest.raises(FeedExpiredError, match="no longer") as caught:
            table.read(after=after)
        assert 3 == caught.value.first_readable
    assert [(4, "insert", 2)] == told(table.read(after=2), "id")


@pytest.mark.usefixtures("vacuuming")
def test_changes_that_a_silent_vacuum_took_are_told(spark: SparkSession, old: Table) -> None:
    """Where Delta itself does not refuse what is old, as before 4.1, and the log says nothing of the VACUUM."""
    old.run("VACUUM {t} RETAIN 0 HOURS")
    spark.conf.set(LIFTED, "false")
    try:
        with pytest.raises(FeedExpiredError, match="VACUUM") as caught:
            old.read(after=-1)
    finally:
        spark.conf.unset(LIFTED)
    assert 3 == caught.value.first_readable


@pytest.mark.thorough
@pytest.mark.usefixtures("vacuuming")
def test_deletion_vectors_that_are_gone_are_told(spark: SparkSession, tmp_path: Path) -> None:
    """The file is still there, but not the vector that said which of its rows an earlier version had."""
    properties = (
        f"{FEED}, 'delta.enableDeletionVectors' = 'true', 'delta.randomizeFilePrefixes' = 'true'"
    )
    table = Table(spark, tmp_path / "t", "id bigint", properties).run(
        "INSERT INTO {t} SELECT /*+ COALESCE(1) */ id FROM range(1000)",
        "DELETE FROM {t} WHERE id = 3",
        "DELETE FROM {t} WHERE id = 4",
        "INSERT INTO {t} VALUES (9999)",
    )
    table.age(days=30).run("INSERT INTO {t} VALUES (2)")
    assert [(2, "delete", 3), (3, "delete", 4)] == told(table.read(after=1, until=3), "id")
    table.run("VACUUM {t} RETAIN 0 HOURS")

    with pytest.raises(FeedExpiredError, match="version 3 were removed") as caught:
        table.read(after=1)
    assert 4 == caught.value.first_readable


@pytest.mark.thorough
def test_the_newest_rows_are_read_however_old_they_are(spark: SparkSession, old: Table) -> None:
    """Even where another commit has come since the log was looked at; a version before it is refused."""
    old.age(days=30)
    table = find_feed_table(spark, old.path)
    old.run("INSERT INTO {t} VALUES (3)")

    assert [(3, "insert", 2)] == told(read_snapshot(spark, table, 3), "id")
    with pytest.raises(FeedExpiredError) as caught:
        read_snapshot(spark, find_feed_table(spark, old.path), 2)
    assert 5 == caught.value.first_readable


@pytest.mark.thorough
def test_what_delta_refuses_otherwise_is_an_error_of_ours(spark: SparkSession, old: Table) -> None:
    """A table that is gone since it was found is not one whose history is."""
    table = find_feed_table(spark, old.path)
    shutil.rmtree(old.path)

    with pytest.raises(
        FeedError, match=r"Spark could not read the table .*does not exist"
    ) as caught:
        read_snapshot(spark, table, 3)
    assert not isinstance(caught.value, FeedExpiredError)


class Receiver:
    """A sink that keeps what it is given."""

    def __init__(self) -> None:
        self.windows: list[tuple[str, list[Any]]] = []

    def position(self, _: Any) -> int:
        """Say how many windows it has."""
        return len(self.windows)

    def deliver(self, delivery: Any) -> int:
        """Keep a window."""
        rows = sorted(row["id"] for row in delivery.frame.collect())
        self.windows.append((delivery.plan.kind, rows))
        return len(rows)


@pytest.mark.thorough
@pytest.mark.usefixtures("vacuuming")
def test_consumers_go_on_over_old_changes(old: Table) -> None:
    """As windows while they are there; with a snapshot once they are gone."""
    receiver = Receiver()
    wishes: dict[str, Any] = {"consumer": "c", "to": receiver, "on_expired": "snapshot", "start": 0}
    place = str(Path(old.path).parent)
    assert mirrorlib.export(old.spark, place, max_versions=1, **wishes).ok
    assert [("changes", [1]), ("changes", [1]), ("changes", [2])] == receiver.windows
    old.run("DELETE FROM {t}", "INSERT INTO {t} VALUES (4)").age(days=30).run(
        "INSERT INTO {t} VALUES (5)", "VACUUM {t} RETAIN 0 HOURS"
    )

    assert mirrorlib.export(old.spark, place, **wishes).ok
    assert ("snapshot", [4, 5]) == receiver.windows[-1]
    assert 4 == len(receiver.windows)


@pytest.mark.thorough
@pytest.mark.usefixtures("vacuuming")
@pytest.mark.parametrize("logged", ["true", "false"])
def test_a_clone_is_read_after_a_vacuum_of_it(
    spark: SparkSession, tmp_path: Path, logged: str
) -> None:
    """Its first files are its source's, where a VACUUM of the clone takes nothing."""
    spark.conf.set("spark.databricks.delta.vacuum.logging.enabled", logged)
    source = Table(spark, tmp_path / "source", "id bigint").run("INSERT INTO {t} VALUES (1), (2)")
    clone = Table.at(spark, tmp_path / "clone")
    clone.run(f"CREATE TABLE {{t}} SHALLOW CLONE delta.`{source.path}`")
    clone.age(days=30).run("INSERT INTO {t} VALUES (3)", "VACUUM {t} RETAIN 0 HOURS")

    assert [(0, "insert", 1), (0, "insert", 2), (1, "insert", 3)] == told(
        clone.read(after=-1), "id"
    )


@pytest.mark.thorough
def test_streams_begin_with_old_changes(spark: SparkSession, old: Table) -> None:
    """After a version, or with all rows; their age is no hindrance."""
    for after, expected in ((0, [1, 1, 2]), (None, [2])):
        out = f"{old.path}-{after}"
        query = mirrorlib.stream_feed(spark, old.path, after=after).writeStream.format("parquet")
        query = query.option("checkpointLocation", f"{out}-checkpoint").trigger(availableNow=True)
        query.start(out).awaitTermination()
        assert expected == sorted(row["id"] for row in spark.read.parquet(out).collect())


def test_a_stream_of_a_table_whose_feed_is_off_is_refused(
    spark: SparkSession, tmp_path: Path
) -> None:
    """At once, and not by Spark once it runs."""
    table = Table(spark, tmp_path / "t", "id bigint", "'delta.enableChangeDataFeed' = 'false'")
    for after in (None, 0):
        with pytest.raises(FeedError, match="enable-feed"):
            mirrorlib.stream_feed(spark, table.path, after=after)
