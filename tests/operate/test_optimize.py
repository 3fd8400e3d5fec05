"""Rows of many small files are put into few: no consumer is given anything for it, and batches go on as before."""

from __future__ import annotations

import json
import logging
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import mirrorlib
from mirrorlib.cli.main import main
from mirrorlib.delta.lock import hold_table

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

    from zones import TableWriter, ZoneWriter

pytestmark = pytest.mark.slow


def fill(spark: SparkSession, zone: ZoneWriter, target: str, *names: str) -> list[TableWriter]:
    """Make tables of three files each, by as many batches."""
    tables = [zone.table(name, keys=["id"]) for name in names]
    for number in range(3):
        for table in tables:
            table.file([{"id": number, "v": "a"}], markers=[0])
        assert mirrorlib.apply(spark, str(zone), target).ok
    return tables


@pytest.mark.thorough
@pytest.mark.smoke
def test_small_files_become_one_and_everything_goes_on(
    spark: SparkSession,
    zone: ZoneWriter,
    target: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The next batch, consumers, and who verifies; once more, nothing is left to do."""
    (orders,) = fill(spark, zone, target, "orders")
    lake = {"consumer": "lake", "to": f"files:{tmp_path}/lake?format=jsonl"}
    mirrorlib.export(spark, target, **lake)
    version = mirrorlib.status(target).tables[0].version
    told = []
    for _ in range(2):
        assert 0 == main(["optimize", target, "--json"])
        (table,) = json.loads(capsys.readouterr().out)["tables"]
        told.append([table[name] for name in ("table", "state", "replaced", "written", "reason")])
    feed = mirrorlib.read_feed(spark, f"{target}/orders", after=version)

    assert [["orders", "optimized", 3, 1, ""], ["orders", "current", 0, 0, ""]] == told
    assert 0 == feed.count()
    orders.file([{"id": 1, "v": "b"}], markers=[1])
    assert mirrorlib.apply(spark, str(zone), target).ok
    assert [2] == [table.rows for table in mirrorlib.export(spark, target, **lake).tables]
    assert mirrorlib.verify(spark, str(zone), target).ok
    assert mirrorlib.verify_consumer(spark, target, consumer="lake").ok


@pytest.mark.thorough
def test_a_file_that_is_gone_fails_its_table_alone(
    spark: SparkSession, zone: ZoneWriter, target: str
) -> None:
    """Whatever the session ignores: else its rows would be gone without a word."""
    fill(spark, zone, target, "a", "b")
    next(Path(target, "a").glob("*.parquet")).unlink()
    session = spark.newSession()
    for name in ("Missing", "Corrupt"):
        session.conf.set(f"spark.sql.files.ignore{name}Files", "true")
    report = mirrorlib.optimize(session, target)
    failed, done = report.tables

    assert (False, "failed", "optimized") == (report.ok, failed.state, done.state)
    assert failed.reason.startswith("a: ")
    assert failed.reason in str(report)
    assert 3 == mirrorlib.status(target).tables[0].version


@pytest.mark.thorough("vacuum", "enable_feed")
@pytest.mark.parametrize(
    "upkeep",
    [mirrorlib.optimize, mirrorlib.vacuum, partial(mirrorlib.enable_feed, days=30)],
    ids=["optimize", "vacuum", "enable_feed"],
)
def test_a_runner_at_the_table_is_waited_for(
    spark: SparkSession,
    zone: ZoneWriter,
    target: str,
    monkeypatch: pytest.MonkeyPatch,
    upkeep: Callable[..., object],
) -> None:
    """On a local disk one Java process may overwrite what another commits."""
    fill(spark, zone, target, "orders")
    waits, log = threading.Event(), logging.getLogger("mirrorlib.delta.lock")
    monkeypatch.setattr(log, "level", logging.INFO)
    heard = logging.Handler()
    heard.emit = lambda record: waits.set() if "waiting" in record.msg else None  # type: ignore[method-assign]
    log.addHandler(heard)
    lock, commits = Path(target, "_mirrorlib/locks/orders.lock"), Path(target, "orders/_delta_log")
    try:
        with ThreadPoolExecutor(1) as pool:
            with hold_table(lock, "orders", os.getpid(), lambda: False):
                before = len([*commits.glob("*.json")])
                coming = pool.submit(upkeep, spark, target)
                assert waits.wait(120)
                assert before == len([*commits.glob("*.json")])
            assert coming.result().ok
    finally:
        log.removeHandler(heard)
    assert before < len([*commits.glob("*.json")])
