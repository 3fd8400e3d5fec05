"""What `plan` says where a runner was stopped in the middle."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import mirrorlib
from mirrorlib.ingest.report import PlannedTable

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
def test_a_pending_plan_is_told_by_what_it_holds(mirror: Mirror, step: str) -> None:
    """What comes behind it depends on how it ends, and is told then."""
    mirror.publish()
    mirror.run_until(step, "after")
    mirror.publish(WIDER, [0])

    found = planned(mirror)

    assert ("behind", 1, 1, 3) == (found.state, found.batches, found.files, found.rows)
    assert mirror.file_name(3) == found.first_file == found.last_file
    assert "How batch 3 of a run that was stopped" in found.reason
    report = mirror.run()
    assert ("current", 4) == (report.state, report.position)
    assert "current" == planned(mirror).state


@pytest.mark.thorough
def test_a_pending_plan_that_was_looked_at_is_carried_out_alone(mirror: Mirror) -> None:
    """The file behind it waits, as nobody has seen what it does."""
    mirror.publish()
    mirror.run_until("plan", "after")
    mirror.publish()
    options = (mirror.spark, str(mirror.zone), mirror.target)

    report = mirror.run(approve=mirrorlib.plan(*options).hash)

    assert ("behind", 3) == (report.state, report.position)
    mirror.assert_current()
