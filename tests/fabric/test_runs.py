"""A notebook in Fabric's form, run as Fabric runs it: its utilities and session in place, values behind the parameters."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from mirrorlib.errors import StoppedError
from mirrorlib.fabric.items import write_items
from tables import read_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.zones import ZoneWriter

CELL = "# CELL ********************"


@pytest.fixture
def items(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Generate the items."""
    monkeypatch.setenv("AZURE_STORAGE_TOKEN", "mine")
    wheel = tmp_path / "mirrorlib_delta-0.1.0-py3-none-any.whl"
    wheel.touch()
    write_items(tmp_path / "items", wheel)
    return tmp_path / "items"


def run(spark: SparkSession, items: Path, name: str, /, **given: object) -> Any:
    """Run a notebook; give what it has exited with."""
    exits: list[Any] = []
    utilities = SimpleNamespace(
        notebook=SimpleNamespace(exit=lambda value: exits.append(json.loads(value))),
        credentials=SimpleNamespace(getToken=lambda _: "token"),
        runtime=SimpleNamespace(context={"currentWorkspaceId": "w", "defaultLakehouseId": "l"}),
    )
    source = (items / f"mirrorlib {name}.Notebook" / "notebook-content.py").read_text()
    first, *rest = source.split(CELL)
    assert "# PARAMETERS CELL" in first
    values = "".join(f"{name} = {value!r}\n" for name, value in given.items())
    program = CELL.join([first, f"\n{values}", *rest])
    exec(compile(program, "notebook", "exec"), {"spark": spark, "notebookutils": utilities})  # noqa: S102  # that is the test
    (told,) = exits
    return told


def rounds(items: Path, name: str, **places: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Expand a pipeline as Fabric does, with other places than its own: each round's notebook, and what it is handed."""
    told = json.loads(
        (items / f"mirrorlib {name}.DataPipeline" / "pipeline-content.json").read_text()
    )
    parameters = told["properties"]["parameters"]
    assert set(places) <= set(parameters)
    known = {one: said["defaultValue"] for one, said in parameters.items()} | places
    (loop,) = told["properties"]["activities"]
    (activity,) = loop["typeProperties"]["activities"]
    ids = {
        json.loads(path.read_text())["config"]["logicalId"]: path.parent.stem
        for path in items.glob("*.Notebook/.platform")
    }
    notebook = ids[activity["typeProperties"]["notebookId"]].removeprefix("mirrorlib ")
    handed = activity["typeProperties"]["parameters"]
    for item in valued(loop["typeProperties"]["items"], known):
        here = {**known, "item": item}
        yield notebook, {one: valued(said["value"], here) for one, said in handed.items()}


def valued(expression: dict[str, str], known: dict[str, Any]) -> Any:
    """Give the value of an expression; there are two of them in our pipelines."""
    assert "Expression" == expression["type"]
    if expression["value"] == "@item()":
        return known["item"]
    return known[expression["value"].removeprefix("@pipeline().parameters.")]


@pytest.mark.smoke
def test_a_notebook_in_fabrics_form_applies_and_fails_as_everywhere(
    spark: SparkSession, zone: ZoneWriter, target: str, items: Path, tmp_path: Path
) -> None:
    """With what its pipeline hands over; its report is its value; a stopped table is an error."""
    orders = zone.table("orders", keys=["id"])
    orders.file([{"id": 1, "v": "a"}])
    places = {"landing_zone": str(zone), "target": target, "state": str(tmp_path / "state")}
    ((name, given),) = rounds(items, "incremental apply", **places)

    report = run(spark, items, name, **given)
    orders.file([{"id": 2, "v": "b"}], number=3)

    assert (True, ["current"]) == (report["ok"], [table["state"] for table in report["tables"]])
    assert [{"id": 1, "v": "a"}] == read_rows(spark, f"{target}/orders")
    assert any((tmp_path / "state").iterdir())
    with pytest.raises(StoppedError, match="orders is blocked"):
        run(spark, items, name, **given)
    assert "notebookutils" not in sys.modules


@pytest.mark.thorough
def test_every_other_notebook_runs_in_fabrics_form(
    spark: SparkSession, zone: ZoneWriter, target: str, items: Path, tmp_path: Path
) -> None:
    """From the look at the landing zone to the derived table."""
    zone.table("orders", keys=["Id"]).file([{"Id": 1, "v": "a"}, {"Id": 2, "v": None}])
    copy, made, book = (str(tmp_path / name) for name in ("copy", "made", "book"))
    rows = [{"Id": 1, "v": "a"}, {"Id": 2, "v": None}]

    assert run(spark, items, "check landing zone", landing_zone=str(zone))["ok"]
    loaded = run(spark, items, "initial load", landing_zone=str(zone), target=target)
    to = {"to": f"delta:{copy}", "mode": "current"}
    sent = run(spark, items, "export feed", target=target, consumer="lake", **to)
    derived = {"name": "made", "sources": f"{target}/orders", "target": made}
    kept = run(spark, items, "propagate keys", **derived)
    stands = run(spark, items, "status", target=target, to=book)
    tested = run(spark, items, "self test", folder=str(tmp_path / "tested"))

    assert [True] * 5 == [report["ok"] for report in (loaded, sent, kept, stands, tested)]
    run(spark, items, "tour", folder=str(tmp_path / "tour"))
    assert rows == read_rows(spark, f"{target}/orders") == read_rows(spark, f"{copy}/orders")
    assert [{"id": 1, "v": "a"}, {"id": 2, "v": None}] == read_rows(spark, made)
    assert ["orders"] == [row["table"] for row in read_rows(spark, f"{book}/mirrorlib_ledger")]
