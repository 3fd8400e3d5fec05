"""Mirrors in a catalog are exported as those of a folder are: by their keys, although a catalog drops the schema's part."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from mirrorlib.cli.main import main
from mirrorlib.feed.declared_keys import find_mirror
from mirrorlib.journal.disk import Journal
from mirrorlib.journal.registry import Registry
from mirrorlib.names import parse_name
from mirrorlib.store import open_store
from operate.test_status import applied

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.zones import ZoneWriter


@pytest.fixture
def schema(spark: SparkSession, tmp_path: Path) -> Iterator[str]:
    """Give a schema of the catalog."""
    spark.sql(f"CREATE SCHEMA exported LOCATION '{tmp_path}/warehouse'")
    yield "exported"
    spark.sql("DROP SCHEMA exported CASCADE")


@pytest.mark.thorough
@pytest.mark.smoke
def test_a_consumer_s_whole_life_in_a_catalog(
    zone: ZoneWriter, schema: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`dbo/Orders` is the catalog's `orders`; its keys let a landing zone receive an update."""
    place = [schema, "--catalog", "spark_catalog", "--state", str(tmp_path / "state"), "--json"]
    out = tmp_path / "out"

    def run(command: str, *arguments: str) -> tuple[int, str]:
        capsys.readouterr()
        code = main([command, *place, *arguments])
        return code, capsys.readouterr().out

    def health() -> tuple[int, str]:
        code, told = run("consumers")
        return code, json.loads(told)["streams"][0]["health"]

    orders = zone.table("Orders", keys=["ID"], schema="dbo")
    orders.file([{"ID": 1, "v": "a"}, {"ID": 2, "v": "a"}])
    assert 0 == main(["apply", str(zone), *place])
    export = ["--consumer", "lake", "--to", f"zone:{out}"]
    assert 0 == run("export", *export)[0]
    assert ["ID"] == json.loads((out / "orders" / "_metadata.json").read_text())["keyColumns"]

    orders.file([{"ID": 1, "v": "b"}, {"ID": 2, "v": None}], [1, 2])
    assert 0 == main(["apply", str(zone), *place])
    assert (0, "behind") == health()
    assert 0 == main(["export", schema, "orders", *place[1:], *export])
    assert (0, "current") == health()
    code, told = run("vacuum", "--dry-run")
    assert (0, "ready") == (code, json.loads(told)["tables"][0]["state"])
    reader = Registry(open_store(tmp_path / "state"), "derive:out", parse_name("Orders"))
    reader.state.put(f"{reader.folder}/streams/000001.json", b"{")  # it may have read nothing
    code, told = run("vacuum", "--dry-run")
    assert (1, ["derive:out"]) == (code, json.loads(told)["tables"][0]["losers"])
    reader.forget()
    code, told = run("optimize")
    assert {"failed"}.isdisjoint(one["state"] for one in json.loads(told)["tables"]), told
    assert (0, "current") == (code, health()[1])
    assert 0 == run("consumers", "--rewind", "lake", "--to", "snapshot")[0]
    assert (0, "behind") == health()
    assert 0 == run("export", *export)[0]
    assert 3 == len(list((out / "orders").glob("*.parquet")))

    locks = tmp_path / "warehouse" / "_mirrorlib" / "locks"
    before = {*locks.iterdir()}
    assert 0 == run("ledger", "--to", f"spark_catalog.{schema}")[0]
    assert 1 == len({*locks.iterdir()} - before)  # as the warehouse is a local disk

    code, told = run("feed", "dbo/Orders", "--after", "-1", "--net")
    assert (0, {"ID": 1, "v": "b"}) == (code, json.loads(told)["after"])
    assert 0 == main(["feed", *place[:3], "dbo/Orders"])  # the property of the table has them too
    assert "update" in capsys.readouterr().out


def test_the_journal_of_a_catalog_s_table_is_found_by_its_table_part(
    tmp_path: Path, zone: ZoneWriter
) -> None:
    """Whatever its case; the schema of which was applied, where there are two; also while a new life has no plan."""
    state = tmp_path / "state"
    orders = zone.table("Orders", keys=["id"], schema="dbo")
    orders.file([{"id": 1}])
    applied(zone, str(tmp_path), orders)
    (tmp_path / "_mirrorlib").rename(state)
    refused = Journal(open_store(state), parse_name("sales/orders"))
    refused.write_status({"state": "failed"})

    for table in ("orders", "ORDERS", "dbo/Orders"):
        _, keys = find_mirror("s", table, catalog="c", state=str(state))
        assert ("id",) == keys
    Journal(open_store(state), parse_name("dbo/Orders")).begin_life("reset", str(zone), 2)
    _, keys = find_mirror("s", "orders", catalog="c", state=str(state))
    assert ("id",) == keys
    _, keys = find_mirror("s", "order", catalog="c", state=str(state))
    assert () == keys


@pytest.mark.parametrize("state", [None, "state"])
def test_names_with_dots_stay_one_name(tmp_path: Path, state: str | None) -> None:
    """In a catalog's address, with a state folder and without."""
    where = None if state is None else str(tmp_path / state)
    expected = ("`my.catalog`.`a.b`.`c.d`", ())
    assert expected == find_mirror("a.b", "dbo/c.d", catalog="my.catalog", state=where)
