"""What is published, applied and read back is what it was: every type, in both formats."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyarrow", minversion="21", reason="an older one has not all types")

import mirrorlib
from round_trips import assert_came_back, make_trips

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.thorough
@pytest.mark.slow
@pytest.mark.parametrize(
    "number, road, options",
    [(0, "small", {}), (1, "large", {}), (2, "small", {"ntz": "keep"})],
    ids=["small", "large", "without-zone"],
)
def test_every_type_comes_back_from_a_folder(
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    number: int,
    road: str,
    options: dict[str, Any],
) -> None:
    """NULL, extremes, empty text, no rows, with and without markers, in Parquet and in delimited text."""
    if road == "large":
        monkeypatch.setattr("mirrorlib.ingest.batch.open_batch.SMALL_BYTES", -1)
    trips = make_trips(number)
    for trip in trips:
        trip.publish(str(tmp_path / "zone"))
    target = tmp_path / "target"

    report = mirrorlib.apply(spark, str(tmp_path / "zone"), str(target), settle=0, **options)

    assert report.ok, report
    assert_came_back(
        trips, lambda name: spark.read.format("delta").load(str(target / name)).toArrow()
    )
