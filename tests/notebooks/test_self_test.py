"""The self-test tries every step, tells what was refused in the platform's words, and leaves nothing behind."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from mirrorlib.platform.self_test import self_test

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession


@pytest.fixture
def schemas(spark: SparkSession, tmp_path: Path) -> Iterator[list[str]]:
    """Make two in Spark's own catalog."""
    names = ["self_test", "self_test_other"]
    for name in names:
        spark.sql(f"CREATE SCHEMA {name} LOCATION '{tmp_path}/{name}'")
    yield [f"spark_catalog.{name}" for name in names]
    for name in names:
        spark.sql(f"DROP SCHEMA {name} CASCADE")


@pytest.mark.thorough
def test_every_step_is_well_in_a_catalog(
    spark: SparkSession, schemas: list[str], tmp_path: Path
) -> None:
    """With the derived table in another schema; tables and folders are gone afterwards."""
    schema, other = schemas

    report = self_test(spark, str(tmp_path / "volume"), schema, other=other)

    assert {("ok", "")} == {(one.outcome, one.said) for one in report.steps}, str(report)
    assert "remove" == report.steps[-1].step
    assert [] == [*(tmp_path / "volume").iterdir()]
    assert [] == [row for name in schemas for row in spark.sql(f"SHOW TABLES IN {name}").collect()]


def test_what_is_refused_is_told_and_what_was_made_is_removed(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Steps that need it are left out, and say so."""
    report = self_test(spark, str(tmp_path), "spark_catalog.no_such_schema")

    outcomes = {one.step: one.outcome for one in report.steps}
    (refused,) = (one for one in report.steps if one.outcome == "refused")
    assert not report.ok
    assert ("ok", "ok", "refused", "left out") == tuple(outcomes.values())[:4]
    assert ("load", "ok") == (refused.step, outcomes["remove"])
    assert "the catalog or its schema is not there" in refused.said
    assert "It said: The schema `spark_catalog`.`no_such_schema` cannot be found" in refused.said
    assert "merge: it needs: load." in report.notes()
    assert [] == [*tmp_path.iterdir()]
