"""An overview is all that is known of a target, of one moment: status, ledger, consumers and lineage."""

from __future__ import annotations

import html
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import mirrorlib
from mirrorlib.cli.main import main
from mirrorlib.errors import ParameterError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from zones import ZoneWriter


def test_an_overview_is_as_well_as_its_tables(
    spark: SparkSession, zone: ZoneWriter, target: str
) -> None:
    """It tells what `status` tells, in the same shape, and has the ledger's last batches."""
    orders = zone.table("orders", keys=["id"])
    orders.file([{"id": 1}])
    mirrorlib.apply(spark, str(zone), target, max_files=1)
    orders.file([{"id": 2}])
    mirrorlib.apply(spark, str(zone), target, max_files=1)
    well = mirrorlib.overview(target, last=1)
    orders.file([{"id": 8}], number=4)
    mirrorlib.apply(spark, str(zone), target)
    stopped = mirrorlib.overview(target)

    assert (True, False) == (well.ok, stopped.ok)
    assert (1, 2) == (len(well.ledger.batches), len(stopped.ledger.batches))
    assert mirrorlib.status(target).to_dict()["tables"][0]["state"] == "blocked"
    assert "blocked" == stopped.to_dict()["tables"][0]["state"]
    assert str(stopped.status) == str(stopped)
    assert [] == [*stopped.consumers.streams] if stopped.consumers else False
    assert ["apply"] == [way.kind for way in stopped.ways.edges] if stopped.ways else False
    (done, *_) = sorted(Path(target, "_mirrorlib", "journal", "orders").rglob("*.done.json"))
    done.write_text("{")
    damaged = mirrorlib.overview(target)
    assert "the ledger is not whole: orders" in damaged.failures[0]
    assert "orders" in str(damaged.status)
    shown = stopped._repr_html_()
    assert shown.startswith('<iframe title="Status"')
    assert "1 of 1 table stopped." in html.unescape(shown)
    assert 1 == shown.count("<") - shown.count("</")


def test_a_job_may_look_at_a_target_before_the_first_load(
    target: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Where that is asked for; a path that is wrong stays an error."""
    report = mirrorlib.overview(target, allow_new=True)

    assert (True, ()) == (report.ok, report.failures)
    assert ["nothing has been applied to this target yet"] == report.notes()
    assert "Nothing has been applied to this target yet." in html.unescape(report._repr_html_())
    assert [0, 2, 2] == [
        main(command)
        for command in (["ledger", target, "--allow-new"], ["ledger", target], ["status", target])
    ]
    said = capsys.readouterr().err
    assert [2, 2] == [said.count(f"mirrorlib {step}") for step in ("apply LAND", "lineage TARGET")]


def test_what_cannot_be_read_or_kept_takes_nothing_else_along(
    spark: SparkSession, zone: ZoneWriter, target: str, tmp_path: Path
) -> None:
    """The tables are shown, and the run is not well."""
    zone.table("orders", keys=["id"]).file([{"id": 1}])
    mirrorlib.apply(spark, str(zone), target)
    (tmp_path / "book").write_text("no folder")
    stream = (
        Path(target) / "_mirrorlib" / "consumers" / "lake" / "orders" / "streams" / "000001.json"
    )
    stream.parent.mkdir(parents=True)
    stream.write_text("{")

    report = mirrorlib.overview(target, to=str(tmp_path / "book"), spark=spark)

    assert (True, False) == (report.status.ok, report.ok)
    not_kept, not_read = report.failures
    assert "the lineage is not whole" in not_read
    assert (
        ["failed"] == [one.health for one in report.consumers.streams]
        if report.consumers
        else False
    )
    assert "the ledger was not written" in not_kept
    assert "orders" in report._repr_html_()
    assert not_read in html.unescape(html.unescape(report._repr_html_()))
    assert not_kept in str(report)
    assert ["apply"] == [way.kind for way in report.ways.edges] if report.ways else False
    assert list(report.failures) == report.to_dict()["failures"] == report.notes()[-2:]


def test_a_ledger_is_kept_by_a_session(tmp_path: Path) -> None:
    """Without one, it is said before anything is read."""
    with pytest.raises(ParameterError, match="Give spark, too"):
        mirrorlib.overview(tmp_path, to=str(tmp_path / "book"))
