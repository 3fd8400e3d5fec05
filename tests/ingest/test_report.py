"""Reports render in a notebook, and say so where there is nothing to show."""

from __future__ import annotations

import sys
from typing import get_args

import pytest

import mirrorlib
from mirrorlib.ingest.report import ApplyReport, BatchReport, PlanReport, TableReport
from mirrorlib.operate.status import StatusReport, TableStatus
from mirrorlib.tabular import Report

BATCH = BatchReport(
    batch=1,
    kind="append",
    files=2,
    bytes=10,
    first_file="a",
    last_file="b",
    inserts=1234,
    updates=0,
    deletes=0,
    upserts=0,
    version=3,
    seconds={"read": 2.0},
)


def reports(of: type[Report] = Report) -> list[type[Report]]:
    """Find every kind of report."""
    assert all(getattr(mirrorlib, name) is not None for name in mirrorlib.__all__)
    return [one for kind in of.__subclasses__() for one in (kind, *reports(kind))]


def test_every_report_has_what_it_shows() -> None:
    """A cell for each column, and an attribute for each cell."""
    shown = {one.__name__: one for one in reports() if one.facts}

    assert {"ExportReport", "LedgerReport", "PlanReport", "StatusReport"} < {*shown}
    for name, one in shown.items():
        values = eval(one.__annotations__[one.each], vars(sys.modules[one.__module__]))  # noqa: S307
        facts = [fact.partition(":")[::2] for fact in one.facts.split()]
        assert len(one.columns) == len(facts), name
        assert [] == [fact for fact, _ in facts if fact not in dir(get_args(values)[0])], name
        assert {how for _, how in facts} <= {"", ".1f", "count", "duration", "flag", "moment"}


def test_an_apply_renders_in_a_notebook() -> None:
    """A row for each table, reasons and warnings below, and whatever a name holds is no markup."""
    report = ApplyReport(
        landing_zone="/zone",
        target="/target",
        tables=(
            TableReport(table="dbo/<b>", state="current", version=3, batches=(BATCH,)),
            TableReport(table="items", state="failed", reason="items: 1 < 2", warnings=("a & b",)),
        ),
        seconds=2.0,
    )

    html = report._repr_html_()

    assert html.startswith("<table><thead><tr><th>table</th><th>state</th>")
    first = "<tr><td>dbo/&lt;b&gt;</td><td>current</td><td>append</td><td>2</td><td>1,234</td>"
    assert first in html
    assert 3 == html.count("<tr>")
    assert "<p>items is failed: 1 &lt; 2</p>" in html
    assert "<p>items: warning: a &amp; b</p>" in html
    assert html.endswith("<p>append: rows were added, none was looked for: all are inserts</p>")


def test_a_status_renders_in_a_notebook() -> None:
    """The same for how tables stand."""
    table = TableStatus(
        table="dbo/<i>",
        state="blocked",
        reason="x is missing",
        file="x",
        since="2026-01-02T03:04:05+00:00",
        position={"r=1": 2, "r=2": 1},
        version=7,
        last_commit="2026-01-02T03:04:05+00:00",
        lag_seconds=60.0,
        waiting_seconds=90.0,
        unapplied=4,
        landing_zone="/zone",
        life=1,
        warnings=(),
    )

    html = StatusReport(target="/target", tables=(table,))._repr_html_()

    row = ("dbo/&lt;i&gt;", "blocked", "2 partitions", "7", "2026-01-02 03:04:05", "4", "60 s")
    assert "".join(f"<td>{cell}</td>" for cell in row) in html
    assert "<p>dbo/&lt;i&gt; is blocked since 2026-01-02 03:04:05: x is missing</p>" in html


@pytest.mark.parametrize("warnings", [(), ("It may not be mounted.",)])
def test_a_zone_without_a_table_is_told(warnings: tuple[str, ...]) -> None:
    """An empty table alone would look like a run that forgot something."""
    applied = ApplyReport(
        landing_zone="/zone", target="/target", tables=(), seconds=0.0, warnings=warnings
    )
    planned = PlanReport(landing_zone="/zone", target="/target", warnings=warnings)

    expected = [f"warning: {each}" for each in warnings] or ["The landing zone shows no table."]
    assert [expected, expected] == [applied.notes(), planned.notes()]
