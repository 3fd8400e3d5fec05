"""Mirrors, derived tables and copies in a catalog that outlives the session, and that sessions share: Spark's own, with a Hive metastore."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import mirrorlib
from metastore import running_metastore
from tables import assert_one_effect_per_file

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


CHILD = Path(__file__).with_name("hive_child.py")
CURRENT = {"dbo/Orders": "current", "items": "current"}
COPIED = {"items": "current", "orders": "current"}


@pytest.fixture
def together(tmp_path: Path) -> Iterator[Callable[..., list[list[Any]]]]:
    """Take steps in new processes, all at once; give what each process's steps returned."""

    def run(*ways: str) -> list[list[Any]]:
        said = [(tmp_path / f"said-{n}").open("w+") for n in range(len(ways))]
        children = [
            subprocess.Popen(
                [sys.executable, str(CHILD), str(tmp_path), metastore, *way.split()],
                stdout=one,
                stderr=subprocess.STDOUT,
                cwd=tmp_path,
            )
            for way, one in zip(ways, said, strict=True)
        ]
        try:
            codes = [child.wait() for child in children]
        finally:
            for child in children:
                child.kill()
        texts = [Path(one.name).read_text() for one in said]
        for one in said:
            one.close()
        assert {0} == set(codes), "\n".join(text[-3000:] for text in texts)
        return [
            [json.loads(line[5:]) for line in text.splitlines() if line[:5] == "step "]
            for text in texts
        ]

    with running_metastore(tmp_path) as metastore:
        yield run


@pytest.fixture
def steps(together: Callable[..., list[list[Any]]]) -> Callable[[str], list[Any]]:
    """Take steps in a new process; give what each returned."""
    return lambda way: together(way)[0]


@pytest.mark.thorough
@pytest.mark.timeout(600)
def test_what_a_metastore_remembers_goes_on_in_the_next_session(
    tmp_path: Path, steps: Callable[[str], list[Any]]
) -> None:
    """Names that it folds to lower case, a schema at its own place, a table that is dropped and made anew."""
    zone = mirrorlib.LandingZoneWriter(str(tmp_path / "zone"), source="PostgreSQL")
    orders = zone.table("dbo/Orders", keys=["ID"])
    items = zone.table("items", keys=["Id", "Région"])
    orders.write(pa.table({"ID": [1, 2, 3], "Größe": ["a", "b", "c"], "n": [1, 2, 3]}))
    items.write(pa.table({"Id": [1], "Région": ["x"], "a b": [1]}))
    first = [[1, "a", 1], [2, "b", 2], [3, "c", 3]]

    _, applied, again, _, copied, found = steps("schemas apply apply derive export rows")

    assert (CURRENT, CURRENT, COPIED) == (applied, again, copied)
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
        "apply derive export rows drop apply reset apply rows"
    )

    assert (CURRENT, ["affected keys"], COPIED) == (applied, how, copied)
    assert (second, second[1:], second) == tuple(
        found[name] for name in ("bronze.orders", "silver.large", "silver.orders")
    )
    assert "the Delta table is gone" in gone["dbo/Orders"]
    assert "current" == gone["items"]
    assert (CURRENT, second) == (anew, after["bronze.orders"])


@pytest.mark.thorough
@pytest.mark.timeout(600)
def test_an_external_table_is_a_source_and_then_a_mirror(
    tmp_path: Path, steps: Callable[[str], list[Any]]
) -> None:
    """A mirror at a path, which the catalog is told of, is derived and copied by name; it goes on by its name too."""
    zone = mirrorlib.LandingZoneWriter(str(tmp_path / "zone"), source="PostgreSQL")
    items = zone.table("items", keys=["Id"])
    items.write(pa.table({"Id": [1, 2], "v": ["a", "b"]}))

    _, kind, carried = steps("schemas register carry")

    assert ("EXTERNAL", ["full", "current"]) == (kind, carried)

    items.upsert(pa.table({"Id": [2, 3], "v": ["B", "c"]}))
    moved, carried, found = steps("move carry rows")

    assert ({"items": "current"}, ["affected keys", "current"]) == (moved, carried)
    rows = [[1, "a"], [2, "B"], [3, "c"]]
    assert dict.fromkeys(("gold.items", "gold.positive", "outer.items"), rows) == found
    assert_one_effect_per_file(tmp_path / "lake/items", range(1, 3))
    assert not (tmp_path / "warehouse/outer.db/items").exists()


@pytest.mark.thorough
@pytest.mark.timeout(900)
def test_two_sessions_at_once_share_a_metastore(
    tmp_path: Path, together: Callable[..., list[list[Any]]]
) -> None:
    """Each file has one effect, each sees the other's tables, and what the other has dropped and made anew."""
    zone = mirrorlib.LandingZoneWriter(str(tmp_path / "zone"), source="PostgreSQL")
    orders = zone.table("dbo/Orders", keys=["ID"])
    items = zone.table("items", keys=["Id"])
    for n in (1, 3, 5):
        orders.write(pa.table({"ID": [n, n + 1], "Größe": ["a", "b"], "n": [n, n + 1]}))
        items.write(pa.table({"Id": [n, n + 1]}))
    wanted = [[n, "ba"[n % 2], n] for n in range(1, 7)]

    one, other = together(
        "schemas meet apply meet derive meet export meet rows meet drop reset apply meet",
        "meet apply meet derive meet export meet rows meet meet apply rows derive export rows",
    )

    *_, apply, _, how, _, copied, _, found, _, _, _, anew, _ = one
    assert [CURRENT] * 4 == [apply, anew, other[1], other[10]]
    # Whoever comes while the other one is at work says so, or finds nothing left to do.
    assert "full" in {how[0], other[3][0]} <= {"full", "nothing new", "busy"}
    for name in COPIED:
        assert "current" in {copied[name], other[5][name]} <= {"current", "busy"}
    assert found == other[7] == other[11]
    assert dict.fromkeys(("bronze.orders", "silver.orders"), wanted) == {
        name: found[name] for name in ("bronze.orders", "silver.orders")
    }
    assert wanted[1:] == found["silver.large"]
    assert [[n] for n in range(1, 7)] == found["bronze.items"] == found["silver.items"]
    # Of the table that was made anew, everybody is told.
    *_, how, copied, found = other
    assert (["full"], "current") == (how, copied["items"])
    assert "made anew" in copied["orders"]
    assert wanted[1:] == found["silver.large"]
    for table in ("orders", "items"):
        assert_one_effect_per_file(tmp_path / "elsewhere/bronze" / table, range(1, 4))
