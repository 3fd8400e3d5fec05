"""A run that is given a plan's hash carries out that plan, or nothing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import mirrorlib
from mirrorlib.cli.main import main
from mirrorlib.errors import MirrorError
from mirrors import Mirror, at

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

    from zones import ZoneWriter


def look(mirror: Mirror, **options: Any) -> str:
    """Plan, and give the hash of what was foreseen."""
    return mirrorlib.plan(mirror.spark, str(mirror.zone), mirror.target, **options).hash


def written(root: Path) -> dict[Path, int]:
    """Give the times of all that is there."""
    return {path: path.stat().st_mtime_ns for path in root.rglob("*")}


def test_what_was_looked_at_is_applied(fresh: Mirror) -> None:
    """By the hash that it has as long as nothing changes; a run after it has another plan."""
    fresh.publish()
    approved = look(fresh)

    assert look(fresh) == approved
    report = fresh.run(approve=approved)

    assert ("current", 1) == (report.state, report.position)
    with pytest.raises(MirrorError, match="no longer the plan"):
        fresh.apply(approve=approved)


def test_a_table_that_the_plan_says_is_stopped_stops_the_run_too(fresh: Mirror) -> None:
    """What stands before its broken file is applied; whoever looks at the exit code alone is told."""
    fresh.publish()
    fresh.table.garbage(2)
    (planned,) = mirrorlib.plan(fresh.spark, str(fresh.zone), fresh.target).tables

    report = fresh.run(approve=look(fresh))

    assert ("failed", "failed", 1) == (planned.state, report.state, report.position)
    assert report.reason == planned.reason


def a_new_file(mirror: Mirror) -> None:
    """Publish one."""
    mirror.publish()


def another_content(mirror: Mirror) -> None:
    """Write a file again."""
    mirror.replace(3)


def a_new_column(mirror: Mirror) -> None:
    """Write a file again, wider."""
    mirror.table.replace(3, [{"id": 8, "v": "x", "w": 1}], [0])


def another_default(mirror: Mirror) -> None:
    """Let rows without a marker be upserts."""
    told = json.loads((mirror.table.folder / "_metadata.json").read_text())
    told["isUpsertDefaultRowMarkerOfTable"] = told["isUpsertDefaultRowMarker"] = True
    (mirror.table.folder / "_metadata.json").write_text(json.dumps(told))


def nothing(mirror: Mirror) -> None:
    """Leave all as it is."""


@pytest.mark.thorough("another*", "nothing*")
@pytest.mark.parametrize(
    "change, options, last",
    [
        (a_new_file, {}, 4),
        (another_content, {}, 3),
        (a_new_column, {}, 3),
        (another_default, {}, 3),
        (nothing, {"evolution": "strict"}, 3),
        (nothing, {"tables": ["orders"]}, 3),
    ],
)
def test_another_plan_is_refused_before_anything_is_written(
    mirror: Mirror, change: Callable[[Mirror], None], options: dict[str, Any], last: int
) -> None:
    """And the files that are there by now are named."""
    mirror.publish()
    approved = look(mirror)
    change(mirror)
    before = written(mirror.root)

    with pytest.raises(MirrorError, match="no longer the plan") as refused:
        mirror.apply(approve=approved, **options)

    assert before == written(mirror.root)
    assert f"orders {last - 2} up to {mirror.file_name(last)}" in str(refused.value)


@pytest.mark.thorough("x", "a-*")
@pytest.mark.parametrize("approved", ["", "x", "a-b-c-d-e", 5])
def test_what_is_no_hash_approves_nothing(fresh: Mirror, approved: Any) -> None:
    """Not even an empty text, as a variable may be."""
    fresh.publish()

    with pytest.raises(MirrorError, match="no longer the plan"):
        fresh.apply(approve=approved)

    assert not Path(fresh.target).exists()


@pytest.mark.thorough("plan", "done")
@pytest.mark.parametrize("step", ["list", "plan", "done"])
def test_a_file_that_comes_while_a_plan_is_carried_out_waits(mirror: Mirror, step: str) -> None:
    """What was approved is applied, and nothing else."""
    mirror.publish()
    approved = look(mirror)

    report = mirror.run(approve=approved, observe=at(step, "before", mirror.publish))

    assert ("behind", 3, 1) == (report.state, report.position, report.total("files"))
    assert "1 file waits for the next run." == report.reason
    mirror.assert_current()


def test_a_file_that_comes_to_one_partition_folder_stops_no_other(
    spark: SparkSession, zone: ZoneWriter, target: str
) -> None:
    """What was approved of each is applied."""
    orders = zone.table("orders", keys=["id"], metadata={"isPartitionEnabled": True})
    for folder in (1, 2):
        orders.file([{"id": folder}], number=1, partition=f"p={folder}")
    approved = mirrorlib.plan(spark, str(zone), target).hash

    def publish() -> None:
        orders.file([{"id": 3}], number=2, partition="p=1")

    options: dict[str, Any] = {"approve": approved, "observe": at("list", "before", publish)}
    (report,) = mirrorlib.apply(spark, str(zone), target, **options).tables

    assert ("behind", {"p=1": 1, "p=2": 1}) == (report.state, report.position)


@pytest.mark.thorough
def test_a_file_that_is_replaced_while_a_plan_is_carried_out_waits(mirror: Mirror) -> None:
    """Its content was not looked at; nor were other rules."""
    mirror.publish()
    approved = look(mirror)
    replaced = mirror.run(
        approve=approved, observe=at("list", "before", lambda: another_content(mirror))
    )
    other = mirror.run(
        approve=look(mirror), observe=at("list", "before", lambda: another_default(mirror))
    )

    assert ("behind", 2) == (replaced.state, replaced.position)
    assert ("behind", 2) == (other.state, other.position)


@pytest.mark.usefixtures("signals")
def test_the_command_line_takes_what_plan_says(
    spark: SparkSession,
    zone: ZoneWriter,
    target: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """And plan says what is written again, and what consumers will see."""
    orders = zone.table("orders", keys=["id"])
    orders.file([{"id": 1, "v": 1}])
    mirrorlib.apply(spark, str(zone), target)
    mirrorlib.export(spark, target, consumer="lake", to=f"files:{tmp_path}/lake")
    orders.file([{"id": 2, "v": 1.5}])

    assert 0 == main(["plan", str(zone), target, "--json"])
    told = json.loads(capsys.readouterr().out)
    assert 0 == main(["plan", str(zone), target])
    shown = capsys.readouterr().out
    assert 1 == main(["apply", str(zone), target, "--approve", "0"])
    assert 0 == main(["apply", str(zone), target, "--approve", told["hash"]])
    with pytest.raises(SystemExit):
        main(["apply", str(zone), target, "--approve", told["hash"], "--watch", "1"])

    (table,) = told["tables"]
    assert [orders.path(2).name] == [name for name, *_ in table["contents"]]
    assert ["id"] == table["policies"]["keys"]
    assert f"--approve {told['hash']}" in shown
    assert "orders: the consumer lake will see what 1 change rows come to" in shown
    assert "bytes of the table again, of 1,073,741,824 that --rewrite-limit allows" in shown
    assert 2 == mirrorlib.status(target).tables[0].position


@pytest.mark.thorough
def test_a_table_that_begins_anew_tells_its_consumers(
    spark: SparkSession, zone: ZoneWriter, target: str, tmp_path: Path
) -> None:
    """All rows will go and come."""
    zone.table("orders", keys=["id"]).file([{"id": 1}])
    mirrorlib.apply(spark, str(zone), target)
    mirrorlib.export(spark, target, consumer="lake", to=f"files:{tmp_path}/lake")
    mirrorlib.reset(spark, target, "orders")

    (table,) = mirrorlib.plan(spark, str(zone), target).tables

    assert ("the consumer lake will see all rows go and come",) == table.receivers
