"""What `plan` says where a runner was stopped in the middle: what `apply` then does."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import mirrorlib
from mirrorlib.ingest.report import PlannedTable
from mirrors import KEYS

if TYPE_CHECKING:
    from mirrors import Mirror

WIDER = [{"id": 8, "v": "x", "w": 1}]


def planned(mirror: Mirror, **options: Any) -> PlannedTable:
    """Plan the one table; nothing is written by that."""
    before = {path: path.stat().st_mtime_ns for path in mirror.root.rglob("*")}
    (table,) = mirrorlib.plan(mirror.spark, str(mirror.zone), mirror.target, **options).tables
    assert before == {path: path.stat().st_mtime_ns for path in mirror.root.rglob("*")}
    return table


@pytest.mark.thorough("commit")
@pytest.mark.parametrize("step", ["plan", "commit"])
def test_files_behind_a_pending_plan_are_judged_by_the_table(mirror: Mirror, step: str) -> None:
    """They add columns to it, under a policy that lets them; the plan itself counts until it is committed."""
    mirror.publish()
    mirror.run_until(step, "after")
    mirror.publish(WIDER, [0])

    found, strict = planned(mirror), planned(mirror, evolution="strict")

    batches = 2 if step == "plan" else 1
    assert ("behind", batches, batches) == (found.state, found.batches, found.files)
    assert ("adds the column w bigint",) == found.schema_changes
    assert ("failed", mirror.file_name(4)) == (strict.state, strict.file)
    assert "evolution is strict" in strict.reason
    report = mirror.run()
    assert ("current", 4) == (report.state, report.position)


def test_a_pending_first_plan_makes_the_table(fresh: Mirror) -> None:
    """With its own columns; the file behind it adds to them."""
    fresh.publish()
    fresh.run_until("plan", "after")
    fresh.publish(WIDER, [0])

    found = planned(fresh)

    assert (2, 2) == (found.batches, found.files)
    assert ("creates the table with 2 columns", "adds the column w bigint") == found.schema_changes


@pytest.mark.thorough
def test_foreign_writes_behind_a_pending_plan_are_told(mirror: Mirror) -> None:
    """As apply will tell them."""
    mirror.publish()
    mirror.run_until("plan", "after")
    mirror.do("DELETE FROM {t} WHERE id = 1")

    found = planned(mirror)

    assert "failed" == found.state
    assert f"version {mirror.newest}, DELETE by " in found.reason
    mirror.assert_failed("ForeignWriteError", f"version {mirror.newest}, DELETE by ")


@pytest.mark.thorough
def test_a_pending_plan_that_has_to_be_voided_counts_no_more(mirror: Mirror) -> None:
    """Its file was replaced: the one that is there now is next."""
    mirror.publish()
    mirror.run_until("plan", "after")
    mirror.replace(3, WIDER, [0])

    found = planned(mirror)

    assert ("behind", 1, 1) == (found.state, found.batches, found.files)
    assert ("adds the column w bigint",) == found.schema_changes
    assert ("current", 3) == ((report := mirror.run()).state, report.position)


@pytest.mark.thorough
@pytest.mark.parametrize("by_time", [False, True], ids=["number", "time"])
def test_a_pending_plan_that_is_too_large_is_foreseen_in_smaller_batches(
    fresh: Mirror, *, by_time: bool
) -> None:
    """With its files, whether numbers or names tell which of them have been applied."""
    fresh.table = fresh.zone.table(fresh.name, keys=KEYS, by_time=by_time)
    for _ in range(3):
        fresh.publish()
    fresh.run_until("plan", "after")

    found, same = planned(fresh, max_files=2, retry=True), planned(fresh, max_files=2)

    assert (2, 3, 1) == (found.batches, found.files, same.batches)
    assert [2, 1] == [
        batch.files for batch in fresh.assert_current(max_files=2, retry=True).batches
    ]
