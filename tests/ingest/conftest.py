"""Fixtures of the apply tests: mirrors that nothing was applied to, or that have come some way."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from mirrors import Mirror

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def fresh(spark: SparkSession, tmp_path: Path) -> Mirror:
    """Give a mirror with no file and no table."""
    return Mirror(spark=spark, root=tmp_path)


@pytest.fixture(scope="session")
def _template(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Mirror:
    mirror = Mirror(spark=spark, root=tmp_path_factory.mktemp("template"))
    for _ in range(2):
        mirror.publish()
        mirror.assert_current()
    return mirror


@pytest.fixture
def mirror(_template: Mirror, tmp_path: Path) -> Mirror:
    """Give a mirror whose first two files were applied, a batch each."""
    return _template.copy(tmp_path)


@pytest.fixture(params=["small", "large"])
def road(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Take a batch through memory, then through Spark."""
    if request.param == "large":
        monkeypatch.setattr("mirrorlib.ingest.batch.open_batch.SMALL_BYTES", -1)
    return str(request.param)
