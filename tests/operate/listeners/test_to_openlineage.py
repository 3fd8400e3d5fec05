"""OpenLineage is told of runs: inputs are files or versions, the output is a version, columns lead back to their sources."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from openlineage.client import OpenLineageClient
from openlineage.client.transport.file import FileConfig, FileTransport

import mirrorlib
from derived.lakes import Lake
from mirrorlib.events import emit, emit_state
from mirrorlib.operate.listeners.listen import Listener
from mirrorlib.operate.listeners.to_openlineage import open_client

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from zones import ZoneWriter

BATCH = {"event": "batch", "rows": {"inserts": 1}, "names": ["1.parquet"], "columns": {"id": "int"}}


class Told:
    """A client whose events are lines of a file, and what they say."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "runs.json"
        transport = FileTransport(FileConfig(log_file_path=str(self.path), append=True))
        self.listener = Listener("openlineage", open_client(OpenLineageClient(transport=transport)))

    def ends(self) -> list[dict[str, Any]]:
        """Give the ends of all runs, each of which has a start of the same identity that is not later."""
        told = [json.loads(line) for line in self.path.read_text().splitlines()]
        starts, ends = told[::2], told[1::2]
        assert ["START"] * len(ends) == [one["eventType"] for one in starts]
        assert [one["run"]["runId"] for one in starts] == [one["run"]["runId"] for one in ends]
        assert all(
            start["eventTime"] <= end["eventTime"] for start, end in zip(starts, ends, strict=True)
        )
        return ends


@pytest.fixture
def told(tmp_path: Path) -> Told:
    """Give a client."""
    return Told(tmp_path)


def test_a_merge_reads_files_and_writes_a_version(
    spark: SparkSession, zone: ZoneWriter, target: str, told: Told, tmp_path: Path
) -> None:
    """The target is no input of it, though MERGE reads it; a window reads that version."""
    orders = zone.table("orders", keys=["id"], schema="dbo")
    orders.file([{"id": 1, "v": "a"}])
    mirrorlib.apply(spark, str(zone), target)
    orders.file([{"id": 1, "v": "b"}, {"id": 2, "v": "c"}], markers=[1, 4])

    with mirrorlib.listen(told.listener):
        (table,) = mirrorlib.apply(spark, str(zone), target).tables
        to = f"files:{tmp_path}/lake?format=csv"
        mirrorlib.export(spark, target, consumer="lake", to=to)

    merge, window = told.ends()
    (source,), (written,) = merge["inputs"], merge["outputs"]
    assert ("COMPLETE", "apply.dbo/orders") == (merge["eventType"], merge["job"]["name"])
    assert ("file", f"{zone}/dbo.schema/orders") == (source["namespace"], source["name"])
    only = source["inputFacets"]["subset"]["inputCondition"]
    assert ("location", [orders.path(2).name]) == (only["type"], only["locations"])
    assert ("file", f"{target}/dbo/orders") == (written["namespace"], written["name"])
    assert str(table.version) == written["facets"]["version"]["datasetVersion"]
    columns = [(one["name"], one["type"]) for one in written["facets"]["schema"]["fields"]]
    assert [("id", "bigint"), ("v", "string")] == columns
    (source,), (written,) = window["inputs"], window["outputs"]
    assert "lake.dbo/orders" == window["job"]["name"]
    assert f"{target}/dbo/orders" == source["name"]
    assert str(table.version) == source["facets"]["version"]["datasetVersion"]
    assert f"{tmp_path}/lake/dbo/orders" == written["name"]


@pytest.mark.thorough
def test_columns_of_a_derived_table_lead_back_to_their_sources(
    spark: SparkSession, tmp_path: Path, told: Told
) -> None:
    """By table and column, through a join."""
    lake = Lake(spark, tmp_path / "lake")
    orders = lake.make("orders", "id INT, customer INT, amount INT", "id")
    people = lake.make("customers", "customer INT, name STRING", "customer")
    lake.run("INSERT INTO {orders} VALUES (1, 7, 5)", "INSERT INTO {customers} VALUES (7, 'Ada')")

    def join(orders: DataFrame, people: DataFrame) -> DataFrame:
        return orders.join(people, "customer").selectExpr("id", "concat(name, amount) AS text")

    with mirrorlib.listen(told.listener):
        mirrorlib.derive(spark, "texts", [orders, people], join, lake.path("texts"))

    (run,) = told.ends()
    (written,) = run["outputs"]
    assert "derive.texts" == run["job"]["name"]
    assert [(orders, "1"), (people, "1")] == [
        (one["name"], one["facets"]["version"]["datasetVersion"]) for one in run["inputs"]
    ]
    fields = written["facets"]["columnLineage"]["fields"]
    assert {"id": [(orders, "id")], "text": [(people, "name"), (orders, "amount")]} == {
        name: [(one["name"], one["field"]) for one in origins["inputFields"]]
        for name, origins in fields.items()
    }


@pytest.mark.parametrize(
    "place, namespace, name",
    [
        ("/data/t", "file", "/data/t"),
        ("/data/a#b?c", "file", "/data/a#b?c"),
        ("s3a://bucket/a/t", "s3://bucket", "a/t"),
        ("s3a://bucket/a/t#1", "s3://bucket", "a/t#1"),
        ("abfss://c@account.dfs.core.windows.net/t", "abfss://c@account.dfs.core.windows.net", "t"),
        ("`main`.`my``schema`.`t`", "spark", "main.my`schema.t"),
    ],
)
def test_places_have_the_names_that_openlineage_gives_them(
    told: Told, place: str, namespace: str, name: str
) -> None:
    """So that what others tell of the same table is the same data set."""
    with mirrorlib.listen(told.listener):
        facts = {**BATCH, "table": "t", "address": place, "version": 3, "zone": "/zone/t"}
        emit(text="%(table)s", **facts)  # type: ignore[arg-type]  # by name

    (written,) = told.ends()[0]["outputs"]
    assert (namespace, name) == (written["namespace"], written["name"])


@pytest.mark.parametrize(
    "to, namespace, name",
    [
        ("delta:/data/copy", "file", "/data/copy/dbo/t"),
        ("delta:main.copies", "spark", "main.copies.t"),
        ("delta:copies", "spark", "copies.t"),
        ("files:s3://bucket/a?format=csv", "s3://bucket", "a/dbo/t"),
        ("zone:/lake/zone", "file", "/lake/zone/dbo.schema/t"),
        ("jdbc:postgresql://host:5432/db?user=me", "postgres://host:5432", "db.dbo.t"),
        ("kafka://host:9092/topic", "kafka://host:9092", "topic"),
        ("kafka://host:9092/{schema}.{table}?tombstones=true", "kafka://host:9092", "dbo.t"),
    ],
)
def test_receivers_have_names_too(told: Told, to: str, namespace: str, name: str) -> None:
    """Those by which whoever reads them is told of: a table, a zone's folder, a topic."""
    with mirrorlib.listen(told.listener):
        emit("window", "%(table)s", table="dbo/t", to=to, consumer="c", sources=[("/data/t", 3)])

    (written,) = told.ends()[0]["outputs"]
    assert (namespace, name) == (written["namespace"], written["name"])


def test_a_table_that_stops_is_a_run_that_failed(told: Told) -> None:
    """With the reason, each time; that it goes on is shown by the runs that do. To verify is no run of an export."""
    with mirrorlib.listen(told.listener):
        emit_state("", table="t", state="failed", reason="no key")
        emit_state("failed", table="t", state="current", reason="")
        emit("verify", "%(table)s", table="t", consumer="lake", state="equal")
        emit_state("", table="t", state="failed", reason="gone", consumer="lake")

    first, second = told.ends()
    assert ("FAIL", "apply.t") == (first["eventType"], first["job"]["name"])
    assert "t: failed no key" == first["run"]["facets"]["errorMessage"]["message"]
    assert ("FAIL", "lake.t") == (second["eventType"], second["job"]["name"])
