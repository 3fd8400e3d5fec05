"""An overview is the status, the ledger and the plots of one moment."""

from __future__ import annotations

import sys
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
    """It tells what `status` tells, in the same shape, and shows the ledger's last batches below."""
    pytest.importorskip("matplotlib")
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
    assert str(stopped.status) in str(stopped)
    assert str(stopped.ledger) in str(stopped)


def test_a_job_may_look_at_a_target_before_the_first_load(
    target: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Where that is asked for; a path that is wrong stays an error."""
    pytest.importorskip("matplotlib")
    report = mirrorlib.overview(target, allow_new=True)

    assert (True, ()) == (report.ok, report.failures)
    assert ["nothing has been applied to this target yet"] == report.notes()
    assert report.picture is not None
    assert [0, 2, 2] == [
        main(command)
        for command in (["ledger", target, "--allow-new"], ["ledger", target], ["status", target])
    ]
    assert 2 == capsys.readouterr().err.count("Start with: mirrorlib apply")


def test_what_cannot_be_drawn_or_kept_takes_nothing_else_along(
    spark: SparkSession,
    zone: ZoneWriter,
    target: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The tables are shown, and the run is not well."""
    zone.table("orders", keys=["id"]).file([{"id": 1}])
    mirrorlib.apply(spark, str(zone), target)
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    (tmp_path / "book").write_text("no folder")

    report = mirrorlib.overview(target, to=str(tmp_path / "book"), spark=spark)

    assert (True, False) == (report.status.ok, report.ok)
    not_kept, not_drawn = report.failures
    assert f"the ledger was not written to {tmp_path / 'book'}" in not_kept
    assert "pip install '.[notebooks]'" in not_drawn
    assert "orders" in report._repr_html_()
    assert not_drawn in str(report)
    assert list(report.failures) == report.to_dict()["failures"] == report.notes()[-2:]


def test_a_ledger_is_kept_by_a_session(tmp_path: Path) -> None:
    """Without one, it is said before anything is read."""
    with pytest.raises(ParameterError, match="Give spark, too"):
        mirrorlib.overview(tmp_path, to=str(tmp_path / "book"))
