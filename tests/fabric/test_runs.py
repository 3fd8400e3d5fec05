"""A notebook in Fabric's form, run as Fabric runs it: its utilities and session in place, values behind the parameters."""

from __future__ import annotations

import json
import sys
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


def run(spark: SparkSession, folder: Path, **given: object) -> list[Any]:
    """Run the incremental apply; give what it has exited with."""
    exits: list[Any] = []
    utilities = SimpleNamespace(
        notebook=SimpleNamespace(exit=lambda value: exits.append(json.loads(value))),
        credentials=SimpleNamespace(getToken=lambda _: "token"),
        runtime=SimpleNamespace(context={"currentWorkspaceId": "w", "defaultLakehouseId": "l"}),
    )
    source = (folder / "mirrorlib incremental apply.Notebook" / "notebook-content.py").read_text()
    first, *rest = source.split(CELL)
    assert "# PARAMETERS CELL" in first
    values = "".join(f"{name} = {value!r}\n" for name, value in given.items())
    program = CELL.join([first, f"\n{values}", *rest])
    exec(compile(program, "notebook", "exec"), {"spark": spark, "notebookutils": utilities})  # noqa: S102  # that is the test
    return exits


@pytest.mark.smoke
def test_a_notebook_in_fabrics_form_applies_and_fails_as_everywhere(
    spark: SparkSession,
    zone: ZoneWriter,
    target: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its report is its value; a stopped table is an error."""
    monkeypatch.setenv("AZURE_STORAGE_TOKEN", "mine")
    wheel = tmp_path / "mirrorlib-0.1.0-py3-none-any.whl"
    wheel.touch()
    write_items(tmp_path / "items", wheel)
    orders = zone.table("orders", keys=["id"])
    orders.file([{"id": 1, "v": "a"}])
    given = {"landing_zone": str(zone), "target": target, "tables": "*"}

    (report,) = run(spark, tmp_path / "items", **given)
    orders.file([{"id": 2, "v": "b"}], number=3)

    assert (True, ["current"]) == (report["ok"], [table["state"] for table in report["tables"]])
    assert [{"id": 1, "v": "a"}] == read_rows(spark, f"{target}/orders")
    with pytest.raises(StoppedError, match="orders is blocked"):
        run(spark, tmp_path / "items", **given)
    assert "notebookutils" not in sys.modules
