"""Every kind of receiver that needs no server keeps up with the same source, on each pair of Spark and Delta."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from delivery.receivers import History, embedded_receivers

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession


@pytest.mark.thorough
@pytest.mark.smoke
def test_every_receiver_ends_equal_to_the_source(spark: SparkSession, tmp_path: Path) -> None:
    """Delta tables of each mode, files, a landing zone and SQLite: a snapshot or the first change, then what comes."""
    history, receivers = History(spark, tmp_path, "orders"), embedded_receivers(tmp_path)
    for commits in (1, 2):
        history.publish(commits)
        with ThreadPoolExecutor(max_workers=2) as pool:
            list(pool.map(lambda receiver: receiver.export(history), receivers))
    for receiver in receivers:
        receiver.check(history)
