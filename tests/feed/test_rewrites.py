"""Types that a mirror gives its rows by writing them again: the feed goes on over that, and nothing has changed."""

from __future__ import annotations

import contextlib
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING, Any

import pytest

import mirrorlib
from mirrorlib.delivery.sinks.delta import fit, sink
from mirrorlib.errors import FeedError, FeedExpiredError
from mirrorlib.journal.registry import Registry
from mirrorlib.names import parse_name
from mirrorlib.store import open_store
from oracle import multiset, replay_feed
from tables import newest_version, read_rows, read_versions

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from zones import TableWriter, ZoneWriter

UPSERT = 4


class Numbers:
    """A mirror of keyed numbers, whole ones first."""

    def __init__(self, spark: SparkSession, zone: ZoneWriter, target: str) -> None:
        self.spark, self.zone, self.target = spark, zone, target
        self.table: TableWriter = zone.table("numbers", keys=["id"])
        self.path = f"{target}/numbers"

    def publish(self, *rows: tuple[int, float], marker: int = UPSERT) -> None:
        """Publish a change file and apply it."""
        self.table.file([{"id": key, "n": n} for key, n in rows], [marker] * len(rows))
        report = mirrorlib.apply(self.spark, str(self.zone), self.target)
        assert report.ok, str(report)

    @property
    def rewritten(self) -> int:
        """Find the version that wrote the rows again."""
        ours = {version.number: version.ours or {} for version in read_versions(self.path)}
        (found,) = [number for number, facts in ours.items() if facts.get("outcome") == "rewrite"]
        return found

    def feed(self, **bounds: int) -> list[tuple[int, str, int, object]]:
        """Read the feed: version, change, key, number."""
        frame = mirrorlib.read_feed(self.spark, self.path, **bounds)
        rows = frame.select("_commit_version", "_change_type", "id", "n").collect()
        return sorted(tuple(row) for row in rows)


@pytest.fixture
def numbers(spark: SparkSession, zone: ZoneWriter, target: str) -> Numbers:
    """Give a mirror whose numbers were whole, and have become fractions."""
    mirror = Numbers(spark, zone, target)
    mirror.publish((1, 10), (2, 20))
    mirror.publish((1, 11))
    mirror.publish((2, 0), marker=2)
    mirror.publish((3, 1.5), (1, 12))
    return mirror


def test_days_that_became_moments_are_those_of_the_table_in_any_session(
    spark: SparkSession, zone: ZoneWriter, target: str
) -> None:
    """A reader far from Greenwich is told the midnight that the rows have, so that changes of them cancel out."""
    days = zone.table("days", keys=["id"])
    for row in (
        {"id": 1, "d": date(2026, 1, 2)},
        {"id": 2, "d": datetime(2026, 1, 2, 10, tzinfo=UTC)},
        {"id": 1, "d": datetime(2026, 5, 5, tzinfo=UTC)},
    ):
        days.file([row], [UPSERT])
        assert mirrorlib.apply(spark, str(zone), target).ok
    session = spark.newSession()
    session.conf.set("spark.sql.session.timeZone", "Europe/Berlin")

    def read(**options: Any) -> list[tuple[object, ...]]:
        rows = mirrorlib.read_feed(session, f"{target}/days", after=0, **options)
        shown = rows.selectExpr("_change_type", "id", "unix_micros(d) div 3600000000")
        return sorted(map(tuple, shown.collect()))

    was, since = 1767312000 // 3600, 1777939200 // 3600  # hours
    assert [
        ("insert", 1, was),
        ("insert", 2, was + 10),
        ("update_postimage", 1, since),
        ("update_preimage", 1, was),
    ] == read()
    assert [("insert", 1, since), ("insert", 2, was + 10)] == read(net=True, keys=["id"])


@pytest.mark.thorough
def test_a_feed_goes_on_over_rows_written_again(numbers: Numbers) -> None:
    """No row of it changed: what was before is told in the new type, and the changes lead to the table."""
    again, newest = numbers.rewritten, newest_version(numbers.path)
    told = numbers.feed(after=-1)

    assert again not in {version for version, *_ in told}
    assert all(isinstance(n, float) for *_, n in told)
    assert [(newest, "insert", 3, 1.5), (newest, "update_postimage", 1, 12.0),
            (newest, "update_preimage", 1, 11.0)] == numbers.feed(after=again)  # fmt: skip
    assert [] == numbers.feed(after=again - 1, until=again)
    rows = [
        row.asDict() for row in mirrorlib.read_feed(numbers.spark, numbers.path, after=-1).collect()
    ]
    assert multiset(read_rows(numbers.spark, numbers.path)) == replay_feed(rows)[newest]
    net = mirrorlib.read_feed(numbers.spark, numbers.path, after=again - 2, net=True, keys=["id"])
    assert {("delete", 2, 20.0), ("insert", 3, 1.5), ("update_preimage", 1, 11.0),
            ("update_postimage", 1, 12.0)} == {tuple(row) for row in net.select("_change_type", "id", "n").collect()}  # fmt: skip


@pytest.mark.thorough
def test_what_came_before_is_still_read_as_it_was(numbers: Numbers) -> None:
    """A window that ends before it has the type of then."""
    frame = mirrorlib.read_feed(numbers.spark, numbers.path, after=-1, until=numbers.rewritten - 1)

    assert ("n", "bigint") in frame.dtypes
    assert {(1, 10), (1, 11), (2, 20)} == {(row["id"], row["n"]) for row in frame.collect()}


@pytest.mark.thorough
def test_a_number_that_the_new_type_does_not_hold_is_not_rounded(
    spark: SparkSession, zone: ZoneWriter, target: str
) -> None:
    """It was there, and gone before the type changed: reading it in that type fails, in its own it does not."""
    numbers = Numbers(spark, zone, target)
    numbers.publish((1, 2**53 + 1), (2, 2))
    numbers.publish((1, 0), marker=2)
    numbers.publish((2, 2.5))
    again = numbers.rewritten

    assert 2**53 + 1 in {n for *_, n in numbers.feed(after=-1, until=again - 1)}
    with pytest.raises(Exception, match="does not fit the double"):
        numbers.feed(after=-1)


@pytest.mark.thorough
def test_a_stream_goes_on_after_rows_written_again(numbers: Numbers, tmp_path: Path) -> None:
    """Not over them: it is told what to read first."""
    again = numbers.rewritten
    for after in (0, again - 1):
        with pytest.raises(FeedError, match="one stream cannot span") as found:
            mirrorlib.stream_feed(numbers.spark, numbers.path, after=after)
        assert f"Read after version {after} up to version {again} " in str(found.value)
        assert not isinstance(found.value, FeedExpiredError)
    query = mirrorlib.stream_feed(numbers.spark, numbers.path, after=again).writeStream
    query = query.format("parquet").option("checkpointLocation", str(tmp_path / "checkpoint"))
    query.trigger(availableNow=True).start(str(tmp_path / "out")).awaitTermination()

    rows = numbers.spark.read.parquet(str(tmp_path / "out")).collect()
    assert [1.5, 11.0, 12.0] == sorted(row["n"] for row in rows)


@pytest.mark.thorough
@pytest.mark.parametrize("mode", ["changes", "current", "scd2"])
def test_consumers_go_on_over_rows_written_again(
    spark: SparkSession, zone: ZoneWriter, target: str, tmp_path: Path, mode: str
) -> None:
    """Without a snapshot: the receiver's own column gets the type, and its rows stay what they were."""
    numbers = Numbers(spark, zone, target)
    numbers.publish((1, 10), (2, 20))
    to = f"delta:{tmp_path / mode}"

    def export() -> None:
        report = mirrorlib.export(spark, target, consumer="c", to=to, mode=mode)
        assert (True, 0) == (report.ok, report.tables[0].resets), str(report)

    export()
    numbers.publish((1, 11))
    numbers.publish((2, 20.5), (3, 1.5))
    export()
    numbers.publish((3, 2.5))
    export()

    copy = f"{tmp_path / mode}/numbers"
    rows = read_rows(spark, copy)
    assert all(isinstance(row["n"], float) for row in rows)
    if mode == "current":
        assert multiset(read_rows(spark, numbers.path)) == multiset(rows)
        return
    assert {10.0, 11.0, 20.0, 20.5, 1.5, 2.5} == {row["n"] for row in rows}


@pytest.mark.thorough
@pytest.mark.parametrize("mode", ["current", "scd2"])
def test_a_receiver_s_rows_are_written_again_as_often_as_types_change(
    spark: SparkSession, zone: ZoneWriter, target: str, tmp_path: Path, mode: str
) -> None:
    """A column each time: what is no window's commit has no mark that Delta takes once."""
    table, to = zone.table("numbers", keys=["id"]), f"delta:{tmp_path / mode}"
    for row in ({"a": 1, "b": 1}, {"a": 1.5, "b": 2}, {"a": 2.5, "b": 2.5}):
        table.file([{"id": 1, **row}], [UPSERT])
        assert mirrorlib.apply(spark, str(zone), target).ok
        report = mirrorlib.export(spark, target, consumer="c", to=to, mode=mode)
        assert (True, 0) == (report.ok, report.tables[0].resets), str(report)

    states = {(row["a"], row["b"]) for row in read_rows(spark, f"{tmp_path / mode}/numbers")}
    assert states == ({(2.5, 2.5)} if mode == "current" else {(1.0, 1.0), (1.5, 2.0), (2.5, 2.5)})


@pytest.mark.thorough
@pytest.mark.parametrize("mode", ["changes", "current", "scd2"])
def test_a_late_rewrite_takes_nothing_that_another_runner_has_written(
    spark: SparkSession,
    zone: ZoneWriter,
    target: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    mode: str,
) -> None:
    """As on object stores, where no lock is: it has read the receiver's rows, another delivers, then it writes them.

    The other has changed the types, so Delta refuses what was read before.
    """
    numbers, met = Numbers(spark, zone, target), []
    registry = Registry(open_store(f"{target}/_mirrorlib"), "c", parse_name("numbers"))

    def export() -> None:
        to = f"delta:{tmp_path / mode}"
        report = mirrorlib.export(spark, target, consumer="c", to=to, mode=mode)
        assert (True, 0) == (report.ok, report.tables[0].resets), str(report)

    def overwrite(*given: Any, **named: Any) -> None:
        if not met:
            met.append(1)
            registry.state.delete_folder(f"{registry.folder}/lease")
            export()
            numbers.publish((2, 30.5))
            export()
        real(*given, **named)

    real = fit.overwrite_columns
    monkeypatch.setattr(sink, "lock_table", lambda *_: contextlib.nullcontext())
    monkeypatch.setattr(fit, "overwrite_columns", overwrite)
    numbers.publish((1, 10), (2, 20))
    export()
    numbers.publish((2, 20.5))
    export()
    numbers.publish((3, 2.5))
    export()

    assert [1] == met
    states = sorted((row["id"], row["n"]) for row in read_rows(spark, f"{tmp_path / mode}/numbers"))
    if mode == "current":
        assert states == [(1, 10.0), (2, 30.5), (3, 2.5)]
    elif mode == "scd2":
        assert states == [(1, 10.0), (2, 20.0), (2, 20.5), (2, 30.5), (3, 2.5)]
    else:
        assert 2 == states.count((2, 20.5))  # as it came, and as it went
        assert {(1, 10.0), (2, 20.0), (2, 30.5), (3, 2.5)} < set(states)
