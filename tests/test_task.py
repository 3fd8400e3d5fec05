"""A command as a job's task: an error where a shell would be given an exit code, and the platform's own session."""

from __future__ import annotations

import sys

import pytest

from little import understand
from mirrorlib.cli.main import run_task
from mirrorlib.errors import StoppedError
from mirrorlib.platform.session import platform_spark
from zones import ZoneWriter


def test_a_task_that_ends_well_returns_nothing(
    zone: ZoneWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Leaving the process would be a failure on Databricks, whatever the code."""
    zone.table("orders", keys=["id"]).file([{"id": 1}])
    for arguments in (["check", str(zone)], ["--version"], ["apply", "--help"]):
        monkeypatch.setattr(sys, "argv", ["mirrorlib-task", *arguments])
        run_task()


@pytest.mark.parametrize(
    "arguments, code",
    [(["check"], 2), (["check", "/nowhere"], 2), (["check", "{zone}"], 1), ([], 2)],
)
def test_a_task_that_does_not_end_well_raises(
    zone: ZoneWriter, monkeypatch: pytest.MonkeyPatch, arguments: list[str], code: int
) -> None:
    """Wrong usage as well as findings: what a task returns is dropped."""
    zone.table("orders", keys=["id"]).file([{"id": 1}], number=2)
    monkeypatch.setattr(
        sys, "argv", ["mirrorlib-task", *(one.format(zone=zone) for one in arguments)]
    )

    with pytest.raises(StoppedError, match=f"exit code {code}"):
        run_task()


def test_arguments_are_understood_or_said_to_be_wrong() -> None:
    """Without running anything."""
    assert "" == understand(["apply", "zone", "target", "--table=*"])
    assert "unrecognized arguments: --tabel=*" == understand(
        ["apply", "zone", "target", "--tabel=*"]
    )


def test_a_machine_of_ones_own_has_no_platforms_session(monkeypatch: pytest.MonkeyPatch) -> None:
    """A command starts Spark itself there."""
    for name in ("DATABRICKS_RUNTIME_VERSION", "PYSPARK_GATEWAY_PORT", "SPARK_REMOTE"):
        monkeypatch.delenv(name, raising=False)

    assert platform_spark() is None
