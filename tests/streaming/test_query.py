"""The apply as a streaming query: what it applies, how far it says it is, and that nothing counts twice."""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import mirrorlib
from mirrorlib.errors import ComputeError
from mirrorlib.ingest.report import ApplyReport
from mirrorlib.streaming import query as module

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from tests.zones import TableWriter, ZoneWriter

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("callbacks")]

PATIENCE = 120  # seconds for what a query does in a few


class Stage:
    """A zone with two tables of a file each, the queries on it, and what they made."""

    def __init__(self, spark: SparkSession, zone: ZoneWriter, target: str) -> None:
        self.spark, self.zone, self.target = spark, zone, target
        self.checkpoint = f"{target}-checkpoint"
        self.orders = self._table("orders", 1)
        self.items = self._table("items", 1)

    def _table(self, name: str, key: int) -> TableWriter:
        table = self.zone.table(name, keys=["id"], schema="dbo")
        table.file([{"id": key, "v": "a"}], markers=[0])
        return table

    def start(self, *, every: str | None = None, **wanted: Any) -> StreamingQuery:
        """Start a query that ends by itself, or looks *every* so often."""
        writer = mirrorlib.stream_apply(self.spark, str(self.zone), self.target, **wanted)
        writer = writer.option("checkpointLocation", self.checkpoint)
        if every is None:
            return writer.trigger(availableNow=True).start()
        return writer.trigger(processingTime=every).start()

    def run(self, **wanted: Any) -> list[int]:
        """Run one to its end; give how many files each of its batches was given."""
        query = self.start(**wanted)
        query.awaitTermination()
        return [one.numInputRows for one in query.recentProgress if one.numInputRows]

    def rows(self, name: str = "orders") -> list[tuple[int, str]]:
        """Give a table's rows."""
        if not self.versions(name):  # a folder comes before its first commit
            return []
        found = self.spark.read.format("delta").load(f"{self.target}/dbo/{name}").collect()
        return sorted((row["id"], row["v"]) for row in found)

    def versions(self, name: str = "orders") -> int:
        """Count a table's commits."""
        return len([*Path(self.target, "dbo", name, "_delta_log").glob("*.json")])


@pytest.fixture
def stage(spark: SparkSession, zone: ZoneWriter, target: str) -> Stage:
    """Give a zone and a target."""
    return Stage(spark, zone, target)


def wait_for(query: StreamingQuery, seen: Callable[[], bool]) -> None:
    """Wait until something is seen of a query that runs."""
    until = time.monotonic() + PATIENCE
    while not seen():
        assert query.isActive, query.exception()
        assert time.monotonic() < until
        time.sleep(0.1)


def test_a_query_applies_what_is_there_and_its_checkpoint_may_be_lost(stage: Stage) -> None:
    """Its progress has the files as rows and their numbers as offset; begun anew, it finds everything applied."""
    stage.orders.file([{"id": 1, "v": "b"}, {"id": 2, "v": "c"}], markers=[1, 0])
    query = stage.start()
    query.awaitTermination()

    assert 3 == query.lastProgress.numInputRows
    assert '"newest": 2' in query.lastProgress.sources[0].endOffset
    assert [(1, "b"), (2, "c")] == stage.rows()
    before = stage.versions()
    # As if it had been killed when the batch was applied and not yet written down.
    for file in Path(stage.checkpoint, "commits").glob("*0*"):
        file.unlink()
    assert [3] == stage.run()
    assert before == stage.versions()
    shutil.rmtree(stage.checkpoint)
    stage.orders.file([{"id": 2, "v": "d"}], markers=[1])
    assert [4] == stage.run()
    assert ([(1, "b"), (2, "d")], before + 1) == (stage.rows(), stage.versions())


@pytest.mark.thorough
def test_a_broken_file_ends_the_query_and_holds_no_other_table_up(stage: Stage) -> None:
    """The query's exception names table, file and error; begun again, it applies what has come for the others."""
    stage.orders.garbage()
    stage.items.file([{"id": 1, "v": "b"}], markers=[1])
    with pytest.raises(
        Exception, match=r"StoppedError: 1 of 2 tables(.|\n)*ChangeFileError: dbo/orders: 0+2"
    ):
        stage.run()
    assert ([(1, "a")], [(1, "b")]) == (stage.rows(), stage.rows("items"))

    stage.items.file([{"id": 1, "v": "c"}], markers=[1])
    with pytest.raises(Exception, match="ChangeFileError"):
        stage.run()
    assert [(1, "c")] == stage.rows("items")

    stage.orders.replace(2, [{"id": 1, "v": "mended"}], markers=[1])
    stage.run()
    assert [(1, "mended")] == stage.rows()


@pytest.mark.thorough
def test_a_query_that_runs_takes_what_is_published_and_can_be_stopped_at_any_moment(
    stage: Stage,
) -> None:
    """With its checkpoint or without it, the next one goes on from there."""
    rows = [(1, "a")]

    def publish() -> None:
        rows.append((len(rows) + 1, "a"))
        stage.orders.file([{"id": len(rows), "v": "a"}], markers=[0])

    for keeps in (True, False, True):
        query = stage.start(every="0 seconds")
        for _ in range(2):
            publish()
            wait_for(query, lambda: stage.rows() == rows)
        publish()
        query.stop()  # maybe in the middle of this one
        assert query.exception() is None
        if not keeps:
            shutil.rmtree(stage.checkpoint)
    stage.run()

    assert rows == stage.rows()


@pytest.mark.thorough
def test_what_is_applied_and_not_written_down_is_applied_once(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A batch that ends badly once `apply` has done its work is repeated, and changes nothing."""

    def die(*given: Any, **wanted: Any) -> ApplyReport:
        report = mirrorlib.apply(*given, **wanted)
        assert report.ok
        msg = "killed"
        raise RuntimeError(msg)

    with monkeypatch.context() as patched:
        patched.setattr(module, "apply_zone", die)
        with pytest.raises(Exception, match="killed"):
            stage.run()
    before = stage.versions()

    assert [2] == stage.run()
    assert (before, [(1, "a")]) == (stage.versions(), stage.rows())


@pytest.mark.thorough
def test_a_query_may_go_on_without_a_table_and_tries_it_again(stage: Stage) -> None:
    """A mended file, and metadata that comes late, are found although no file has a new number."""
    late = stage.zone.table("late", with_metadata=False)
    late.file([{"id": 1}])
    stage.orders.garbage()
    query = stage.start(every="0 seconds", stop_on_trouble=False)
    stage.items.file([{"id": 1, "v": "b"}], markers=[1])
    wait_for(query, lambda: stage.rows("items") == [(1, "b")])
    stage.orders.replace(2, [{"id": 1, "v": "mended"}], markers=[1])
    late.metadata(keys=["id"])
    wait_for(query, lambda: stage.rows() == [(1, "mended")])
    wait_for(query, lambda: Path(stage.target, "late").exists())
    query.stop()

    assert mirrorlib.status(stage.target).ok


@pytest.mark.thorough
def test_options_are_those_of_apply(stage: Stage) -> None:
    """Files of tables that are not asked for are no rows, and what cannot be is refused before anything starts."""
    assert [1] == stage.run(tables=["dbo/items"])
    assert ([], [(1, "a")]) == (stage.rows(), stage.rows("items"))
    with pytest.raises(mirrorlib.LandingZoneError, match="one inside the other"):
        mirrorlib.stream_apply(stage.spark, str(stage.zone), f"{stage.zone}/tables")


@pytest.mark.thorough
def test_a_checkpoint_of_another_target_or_of_other_options_keeps_nothing_back(
    stage: Stage,
) -> None:
    """Nothing has come into the zone since, and there is something to apply all the same."""
    stage.run(tables=["dbo/items"])
    stage.run()
    assert [(1, "a")] == stage.rows()
    stage.target += "-other"
    stage.run()
    assert [(1, "a")] == stage.rows() == stage.rows("items")
    shutil.rmtree(stage.target)
    stage.run()
    assert [(1, "a")] == stage.rows()


def test_an_older_spark_is_told_what_there_is_instead(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sources that are written in Python came with Spark 4."""
    monkeypatch.setattr(module, "spark_generation", lambda: 3)
    with pytest.raises(ComputeError, match=r"Spark 4.*apply --watch"):
        mirrorlib.stream_apply(spark, "zone", "target")
