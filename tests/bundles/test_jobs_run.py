"""The bundle's jobs do what the library does: rendered as they ship, run on this machine, table by table compared."""

from __future__ import annotations

import os
import re
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("databricks.bundles")
pytest.importorskip("grpc")
pytest.importorskip("papermill")

import mirrorlib
import shared_java
from bundle import Rendered, render
from connecting import connect
from job_runner import Environment, JobRunner, TaskRun, needed_by
from papers import reader
from zones import ZoneWriter

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).parents[2]
SCHEMA, COPIES = "bundle_jobs", "bundle_jobs_copies"


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """Build the wheel and install it, once."""
    return Environment.make(ROOT, tmp_path_factory.mktemp("wheel"))


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
    """Render staging with folders of this machine for the workspace's volumes, and a catalog that is here."""
    for schema in (SCHEMA, COPIES):
        spark.sql(f"DROP SCHEMA IF EXISTS {schema} CASCADE")
        spark.sql(f"CREATE SCHEMA {schema} LOCATION '{tmp_path}/{schema}'")
    yield render(
        ROOT,
        "staging",
        variables={
            "catalog": "spark_catalog",
            "schema": SCHEMA,
            "landing_zone": str(zone),
            "state_path": str(tmp_path / "state"),
        },
    )
    for schema in (SCHEMA, COPIES):
        spark.sql(f"DROP SCHEMA {schema} CASCADE")


@pytest.fixture
def runner(
    spark: SparkSession, rendered: Rendered, environment: Environment, home: Path
) -> Iterator[JobRunner]:
    """Give a runner whose kernel and whose wheel both reach the tests' Spark, the wheel as a client of Spark Connect."""
    connect(spark).stop()
    java = spark.sparkContext._jvm
    assert java is not None
    port = java.org.apache.spark.SparkEnv.get().conf().get("spark.connect.grpc.binding.port")
    remote = f"sc://localhost:{port}"
    environment.variables = {"SPARK_REMOTE": remote}
    session = "from pyspark.sql import SparkSession\nspark = SparkSession.builder."
    with reader(home) as papers:
        if os.environ.get(shared_java.PLACE):  # else the kernel is a client too
            papers.start_spark()
            session += "getOrCreate()\n"
        else:
            session += f"remote({remote!r}).getOrCreate()\n"
        yield JobRunner(rendered, papers, environment, session)


def states(runs: list[TaskRun]) -> dict[str, str]:
    """Give each task's state."""
    return {run.task: run.state for run in runs}


def rows(spark: SparkSession, table: str, schema: str = SCHEMA) -> list[dict[str, object]]:
    """Read a table of one of the jobs' schemas."""
    return [row.asDict() for row in spark.table(f"spark_catalog.{schema}.{table}").collect()]


@pytest.mark.thorough
def test_the_wheels_tasks_leave_the_tables_that_apply_leaves(
    spark: SparkSession, runner: JobRunner, zone: ZoneWriter, tmp_path: Path
) -> None:
    """One run for all tables; the notebooks' tasks are left out."""
    runs = runner.run("incremental_apply", compute="serverless")
    mirrorlib.apply(spark, str(zone), tmp_path / "other")

    expected = {"compute": "false", "classic": "excluded", "serverless_each[0]": "succeeded"}
    assert expected == states(runs), runs[-1].said
    for table, path in (("orders", "dbo/orders"), ("items", "items")):
        other = spark.read.format("delta").load(f"{tmp_path}/other/{path}")
        assert [row.asDict() for row in other.collect()] == rows(spark, table)


@pytest.mark.thorough
@pytest.mark.slow
def test_one_table_goes_through_the_notebook_and_then_through_the_wheel(
    spark: SparkSession, runner: JobRunner, zone: ZoneWriter
) -> None:
    """Both read the same journal: each applies what is new for it, once."""
    noted = runner.run("incremental_apply", compute="classic", each='["items"]')
    zone.table("items", keys=["id"]).file([{"id": 8}], number=2)
    packed = runner.run("incremental_apply", compute="serverless", each='["items"]')

    first = {"compute": "true", "classic_each[0]": "succeeded", "serverless": "excluded"}
    assert first == states(noted), noted[1].said
    second = {"compute": "false", "classic": "excluded", "serverless_each[0]": "succeeded"}
    assert second == states(packed), packed[-1].said
    found = rows(spark, "items")
    assert [{"id": 7}, {"id": 8}] == sorted(found, key=lambda row: str(row["id"]))


@pytest.mark.thorough
def test_the_environment_holds_the_wheel_and_not_the_clone(environment: Environment) -> None:
    """With the notebooks and the demo's data in it; it asks for two libraries, and no extra's is there."""
    said = environment.call("mirrorlib-delta", "mirrorlib-task", ["--version"])
    names = zipfile.ZipFile(environment.wheel).namelist()

    version = environment.wheel.name.split("-")[1]
    assert re.fullmatch(r"\d+\.\d+\.\d+\.post\d+", version)  # of a copy without a history
    assert (True, f"mirrorlib {version}\n") == said
    assert "mirrorlib/_notebooks/incremental_apply.ipynb" in names
    assert environment.python.parents[1] in Path(environment.where("mirrorlib")).parents
    assert ["obstore", "pyarrow"] == sorted(needed_by(environment.wheel))
    here = {path.name for path in environment.python.parents[1].glob("lib/*/site-packages/*")}
    assert {"obstore", "pyarrow", "pyspark", "delta"} <= here
    assert not {"rich", "psycopg", "confluent_kafka", "databricks", "fabric_cicd", "pytest"} & here


@pytest.mark.thorough
def test_the_notebooks_tasks_leave_the_same_tables(spark: SparkSession, runner: JobRunner) -> None:
    """A run for each name; the wheel's tasks are left out."""
    runs = runner.run("incremental_apply", compute="classic", each='["dbo/orders", "items"]')

    assert {
        "compute": "true",
        "classic_each[0]": "succeeded",
        "classic_each[1]": "succeeded",
        "serverless": "excluded",
    } == states(runs)
    assert [[{"id": 1, "v": "A"}], [{"id": 7}]] == [
        rows(spark, name) for name in ("orders", "items")
    ]


@pytest.mark.thorough
@pytest.mark.parametrize(
    "compute, task", [("classic", "classic_each"), ("serverless", "serverless_each")]
)
def test_a_stopped_table_fails_its_task(
    spark: SparkSession, runner: JobRunner, zone: ZoneWriter, compute: str, task: str
) -> None:
    """The others are applied; what is said names the table."""
    zone.table("items").file([{"id": 8}], number=3)

    *_, classic, serverless = runner.run("incremental_apply", compute=compute)

    ended = classic if compute == "classic" else serverless
    assert (f"{task}[0]", "failed") == (ended.task, ended.state)
    assert "StoppedError" in ended.said
    assert "items is blocked" in ended.said
    assert [{"id": 1, "v": "A"}] == rows(spark, "orders")


@pytest.mark.slow
@pytest.mark.thorough
@pytest.mark.parametrize("compute", ["classic", "serverless"])
def test_every_job_runs_one_after_the_other(
    spark: SparkSession, runner: JobRunner, compute: str
) -> None:
    """Load, keep the ledger that the dashboard reads, check, export, a derived table: each where it ships to.

    The ledger lies beside the mirrors, and is none of them; it is begun by a clock that may strike before the load.
    """
    done = {"before": runner.run("status", compute=compute)}
    done |= {key: runner.run(key, compute=compute) for key in ("check", "initial_load", "status")}
    done["export_feed"] = runner.run("export_feed", compute=compute)
    last = ("incremental_apply", "propagate_keys", "self_test")
    done |= {key: runner.run(key, compute=compute) for key in last}

    failed = [
        f"{key}: {run.said}" for key, ran in done.items() for run in ran if run.state == "failed"
    ]
    assert not failed, "\n".join(failed)
    for table in ("orders", "items"):
        assert rows(spark, table) == rows(spark, table, COPIES)
    assert rows(spark, "orders") == rows(spark, "derived_orders", COPIES)
    assert ["items", "orders"] == sorted(
        str(row["table"]).rpartition("/")[2] for row in rows(spark, "mirrorlib_ledger")
    )
    copied = {row["tableName"] for row in spark.sql(f"SHOW TABLES IN {COPIES}").collect()}
    assert copied <= {"orders", "items", "derived_orders"}
