"""Mirrors, derived tables and copies in a catalog that outlives the session: Spark's own, with a Hive metastore."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import mirrorlib

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.fixture
def steps(tmp_path: Path) -> Callable[..., list[Any]]:
    """Take steps in a new process; give what each returned."""

    def run(*names: str) -> list[Any]:
        child = Path(__file__).with_name("hive_child.py")
        done = subprocess.run(
            [sys.executable, str(child), str(tmp_path), *names],
            capture_output=True,
            text=True,
            check=False,
            cwd=tmp_path,
        )
        assert done.returncode == 0, done.stderr[-3000:]
        return [json.loads(line[5:]) for line in done.stdout.splitlines() if line[:5] == "step "]

    return run


@pytest.mark.thorough
@pytest.mark.timeout(600)
def test_what_a_metastore_remembers_goes_on_in_the_next_session(
    tmp_path: Path, steps: Callable[..., list[Any]]
) -> None:
    """Names that it folds to lower case, a schema at its own place, a table that is dropped and made anew."""
    zone = mirrorlib.LandingZoneWriter(str(tmp_path / "zone"), source="PostgreSQL")
    orders = zone.table("dbo/Orders", keys=["ID"])
    items = zone.table("items", keys=["Id", "Région"])
    orders.write(pa.table({"ID": [1, 2, 3], "Größe": ["a", "b", "c"], "n": [1, 2, 3]}))
    items.write(pa.table({"Id": [1], "Région": ["x"], "a b": [1]}))
    current = {"dbo/Orders": "current", "items": "current"}
    first = [[1, "a", 1], [2, "b", 2], [3, "c", 3]]

    _, applied, again, _, copied, refused, found = steps(
        "schemas", "apply", "apply", "derive", "export", "self_test", "rows"
    )

    assert (current, current, []) == (applied, again, refused)
    assert {"items": "current", "orders": "current"} == copied
    assert {
        "bronze.items": [[1, "x", 1]],
        "bronze.orders": first,
        "silver.items": [[1, "x", 1]],
        "silver.large": first[1:],
        "silver.orders": first,
    } == found
    assert (tmp_path / "elsewhere/bronze/orders/_delta_log").is_dir()

    orders.upsert(pa.table({"ID": [2, 4], "Größe": ["B", "d"], "n": [2, 4]}))
    orders.delete(pa.table({"ID": [3]}))
    second = [[1, "a", 1], [2, "B", 2], [4, "d", 4]]

    applied, how, copied, found, _, gone, _, anew, after = steps(
        "apply", "derive", "export", "rows", "drop", "apply", "reset", "apply", "rows"
    )

    assert (current, ["affected keys"]) == (applied, how)
    assert {"items": "current", "orders": "current"} == copied
    assert (second, second[1:], second) == tuple(
        found[name] for name in ("bronze.orders", "silver.large", "silver.orders")
    )
    assert "the Delta table is gone" in gone["dbo/Orders"]
    assert "current" == gone["items"]
    assert (current, second) == (anew, after["bronze.orders"])
