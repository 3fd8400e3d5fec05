"""The bundle's jobs do what the library does: rendered as they ship, run on this machine, table by table compared."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("databricks.sdk")
pytest.importorskip("grpc")
pytest.importorskip("papermill")

import mirrorlib
from connecting import connect
from job_runner import Environment, JobRunner, TaskRun
from mirrorlib.deploy.read import read_bundle
from mirrorlib.deploy.render import Rendered, render
from papers import reader
from zones import ZoneWriter

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).parents[2]
SCHEMA = "bundle_jobs"


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """Build the wheel and install it, once."""
    return Environment.make(render(read_bundle(ROOT), "staging"), tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give a folder in which kernels write."""
    return tmp_path_factory.mktemp("kernel")


@pytest.fixture
def zone(tmp_path: Path) -> ZoneWriter:
    """Publish two tables."""
    zone = ZoneWriter(tmp_path / "zone")
    orders = zone.table("orders", keys=["id"], schema="dbo")
    orders.file([{"id": 1, "v": "a"}, {"id": 2, "v": "b"}])
    orders.file([{"id": 1, "v": "A"}, {"id": 2, "v": None}], markers=[1, 2])
    zone.table("items", keys=["id"]).file([{"id": 7}])
    return zone


@pytest.fixture
def rendered(spark: SparkSession, zone: ZoneWriter, tmp_path: Path) -> Iterator[Rendered]:
    """Render staging with this machine's places for the workspace's."""
    spark.sql(f"DROP SCHEMA IF EXISTS {SCHEMA} CASCADE")
    spark.sql(f"CREATE SCHEMA {SCHEMA} LOCATION '{tmp_path}/tables'")
    yield render(
        read_bundle(ROOT),
        "staging",
        variables={
            "catalog": "spark_catalog",
            "schema": SCHEMA,
            "landing_zone": str(zone),
            "state_path": str(tmp_path / "state"),
            "export_to": f"delta:{tmp_path}/copies",
        },
    )
    spark.sql(f"DROP SCHEMA {SCHEMA} CASCADE")


@pytest.fixture
def runner(
    spark: SparkSession, rendered: Rendered, environment: Environment, home: Path
) -> Iterator[JobRunner]:
    """Give a runner whose kernel and whose wheel both reach the tests' Spark, the wheel as a client of Spark Connect."""
    connect(spark).stop()
    java = spark.sparkContext._jvm
    assert java is not None
    port = java.org.apache.spark.SparkEnv.get().conf().get("spark.connect.grpc.binding.port")
    environment.variables = {"SPARK_REMOTE": f"sc://localhost:{port}"}
    with reader(home) as papers:
        yield JobRunner(rendered, papers, environment)


def states(runs: list[TaskRun]) -> dict[str, str]:
    """Give each task's state."""
    return {run.task: run.state for run in runs}


def rows(spark: SparkSession, table: str) -> list[dict[str, object]]:
    """Read a table of the job's schema."""
    return [row.asDict() for row in spark.table(f"spark_catalog.{SCHEMA}.{table}").collect()]


def test_the_wheels_tasks_leave_the_tables_that_apply_leaves(
    spark: SparkSession, runner: JobRunner, zone: ZoneWriter, tmp_path: Path
) -> None:
    """One run for all tables; the notebooks' tasks are left out; run again, nothing happens."""
    first = runner.run("incremental_apply", compute="serverless")
    again = runner.run("incremental_apply", compute="serverless")
    mirrorlib.apply(spark, str(zone), tmp_path / "other")

    expected = {"compute": "false", "classic": "excluded", "serverless_each[0]": "succeeded"}
    assert [expected, expected] == [states(first), states(again)], first[-1].said
    for table, path in (("orders", "dbo/orders"), ("items", "items")):
        other = spark.read.format("delta").load(f"{tmp_path}/other/{path}")
        assert [row.asDict() for row in other.collect()] == rows(spark, table)
