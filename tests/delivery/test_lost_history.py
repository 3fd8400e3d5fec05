"""What becomes of windows whose history goes, or seems to, after they were planned."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import mirrorlib
from delivery.test_deliver import Kept, Source

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import SparkSession

    from mirrorlib.delivery.sink import Delivery
    from mirrorlib.events import Event

VACUUMS = "spark.databricks.delta.retentionDurationCheck.enabled"


@pytest.fixture(scope="module")
def _template(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Source:
    return Source(spark, tmp_path_factory.mktemp("template")).make()


@pytest.fixture
def source(_template: Source, tmp_path: Path) -> Source:
    """Give a table of four versions, and a receiver that can be told to do something first."""
    source = _template.copy(tmp_path)
    source.sink = Told(tmp_path / "told")
    return source


@pytest.fixture
def vacuuming(spark: SparkSession) -> Iterator[None]:
    """Let VACUUM take everything."""
    spark.conf.set(VACUUMS, "false")
    yield
    spark.conf.unset(VACUUMS)


class Told(Kept):
    """A receiver that does what it was told before it takes a window, once."""

    first: Callable[[], None] | None = None

    def deliver(self, delivery: Delivery) -> int:
        """Do it, then take the window."""
        told, self.first = self.first, None
        if told is not None:
            told()
        return super().deliver(delivery)


def fail() -> None:
    """Be down."""
    msg = "the receiver is down"
    raise mirrorlib.MirrorError(msg)


def kinds(source: Source) -> list[tuple[str, int]]:
    """Give what was received: the kind of each window, and its last version."""
    return [(window["kind"], window["until"]) for window in source.sink.windows()]


def after_plan(number: int, action: Callable[[], None]) -> dict[str, Any]:
    """Do something once a window is planned."""

    def observe(event: Event) -> None:
        if (event.step, event.when, event.batch) == ("plan", "after", number):
            action()

    return {"observe": observe}


@pytest.mark.thorough
@pytest.mark.usefixtures("vacuuming")
def test_a_planned_snapshot_whose_rows_are_gone_gives_way_to_a_fresh_one(source: Source) -> None:
    """Whatever is to happen when changes are gone: nothing was promised yet."""
    source.sink.first = fail
    assert "failed" == source.export().state
    source.run("UPDATE {t} SET v = 'z'")
    check = mirrorlib.vacuum(source.spark, source.target, hours=0, dry_run=True).tables[0]
    assert ("ready", ()) == (check.state, check.losers)
    source.sink.first = fail
    assert "failed" == source.export().state
    assert 1 == source.registry.newest(source.registry.newest_stream()).plan.number
    source.run("VACUUM {t} RETAIN 0 HOURS")

    report = source.export()

    assert ("current", "") == (report.state, report.reason)
    (window,) = source.sink.windows()
    assert ("snapshot", [[1, "z", "insert", report.newest]]) == (window["kind"], window["rows"])
    assert "current" == source.status().health


def test_a_type_that_is_widened_in_the_middle_of_a_run_loses_nothing(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Delta reads with the table's newest schema, so the log is looked at again for each window."""
    source = Source(spark, tmp_path)
    told = "'delta.enableChangeDataFeed' = 'true', 'delta.enableTypeWidening' = 'true'"
    source.run(
        f"CREATE TABLE {source.table} (id INT, n INT) USING delta TBLPROPERTIES ({told})",
        *(f"INSERT INTO {{t}} VALUES ({number}, {number})" for number in range(3)),
    )
    widen = after_plan(1, lambda: source.run("ALTER TABLE {t} ALTER COLUMN n TYPE BIGINT"))
    options: dict[str, Any] = {"start": 0, "max_versions": 1, "on_expired": "snapshot"}

    report = source.export(**options, **widen)

    assert ("current", 0, 3) == (report.state, report.resets, report.position), report.reason
    assert [("changes", version) for version in (1, 2, 3)] == kinds(source)
    assert (4, 0) == (source.export(**options).position, source.status().versions)


def test_a_receiver_is_asked_before_it_is_given_a_window_again(source: Source) -> None:
    """What has failed may be the answer of one that has it, while the table has moved on."""

    class Lost(Kept):
        def deliver(self, delivery: Delivery) -> int:
            super().deliver(delivery)
            source.run("INSERT INTO {t} VALUES (9, 'z')")
            msg = "the connection was lost"
            raise ConnectionError(msg)

    source.sink = Lost(source.sink.folder)

    assert ("current", 3) == (source.export().state, source.status().position)
    assert 1 == source.sink.calls


@pytest.mark.thorough("snapshot")
@pytest.mark.parametrize("on_expired", ["fail", "snapshot"])
def test_a_version_that_goes_while_it_is_delivered_is_no_silent_gap(
    source: Source, monkeypatch: pytest.MonkeyPatch, on_expired: str
) -> None:
    """Delta leaves it out without a word, so the receiver's window does not count."""
    monkeypatch.setattr(
        "mirrorlib.feed.files.direct._is_plain", lambda _: False
    )  # else Delta is not asked
    source.sink.first = lambda: source.lose(2)

    report = source.export(start=0, on_expired=on_expired)

    window = source.sink.windows()[0]
    assert {1, 3} == {row[-1] for row in window["rows"]}  # what Delta does
    if on_expired == "snapshot":
        assert ("current", 1, 3) == (report.state, report.resets, report.position), report.reason
        assert [("changes", 3), ("snapshot", 3)] == kinds(source)
        return
    for _ in range(2):
        assert "failed" == report.state
        assert "may lack some of their changes" in report.reason
        assert "--rewind lake --to snapshot" in report.reason
        report = source.export(start=0)
    assert "expired" == source.status().health
    mirrorlib.rewind_consumer(source.target, "lake", "snapshot")
    assert "current" == source.export().state
    assert "current" == source.status().health


@pytest.mark.thorough
def test_a_version_that_goes_between_windows_is_no_silent_gap(source: Source) -> None:
    """What was delivered before it counts; what comes after it is not read."""
    lose = after_plan(1, lambda: source.lose(2))

    report = source.export(start=0, max_versions=1, **lose)

    assert ("failed", 1, 1) == (report.state, report.windows, report.position)
    assert "the log no longer holds version 2" in report.reason
    assert [("changes", 1)] == kinds(source)
