"""`mirrorlib check`: exit codes, what it prints, and the shape of its JSON."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from mirrorlib.cli.main import main

if TYPE_CHECKING:
    from zones import TableWriter, ZoneWriter

ROWS = [{"id": 1, "v": "a"}]


def orders(zone: ZoneWriter) -> TableWriter:
    """Make a table with a sound first file."""
    table = zone.table("orders", keys=["id"], schema="dbo")
    table.file(ROWS)
    return table


def warned(zone: ZoneWriter) -> None:
    """Make a zone that deserves a warning and a note."""
    orders(zone).file(ROWS, markers=[1], marker_name="__ROWMARKER__", marker_at="first")


@pytest.mark.parametrize(
    "options, code", [([], 0), (["--strict"], 1), (["--deep"], 0), (["--deep", "--strict"], 1)]
)
def test_warnings_count_only_when_strict(zone: ZoneWriter, options: list[str], code: int) -> None:
    """0 with warnings, 1 with --strict."""
    warned(zone)

    assert code == main(["check", str(zone), *options])


@pytest.mark.parametrize("options", [[], ["--strict"], ["--strict", "--deep"]])
def test_a_clean_zone_is_0(
    zone: ZoneWriter, options: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """However closely one looks; nothing is written to standard error where nobody watches."""
    orders(zone).file(ROWS, markers=[1])

    assert 0 == main(["check", str(zone), *options])

    streams = capsys.readouterr()
    assert ("Nothing was found.", "") == (streams.out.splitlines()[-1], streams.err)


def test_an_error_is_1(zone: ZoneWriter, capsys: pytest.CaptureFixture[str]) -> None:
    """And told with its table, file, rule and fix."""
    orders(zone).zero_bytes()

    assert 1 == main(["check", str(zone)])

    text = capsys.readouterr().out
    assert f"error [zero-byte] dbo/orders: {2:020d}.parquet: a change file has no bytes" in text
    assert "Publish whole files by renaming them into place" in text


@pytest.mark.parametrize("as_json", [False, True])
@pytest.mark.parametrize("wrong", ["zone", "table", "file"])
def test_places_that_are_not_there_are_2(
    zone: ZoneWriter, wrong: str, as_json: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    """A typing error must not pass for a clean zone."""
    orders(zone)
    (zone.root / "file").write_text("")
    arguments = {
        "zone": [f"{zone}x"],
        "table": [str(zone), "--table", "oders"],
        "file": [f"{zone}/file"],
    }

    assert 2 == main(["check", *arguments[wrong], *(["--json"] if as_json else [])])

    streams = capsys.readouterr()
    assert streams.err.startswith("mirrorlib: ")
    assert not as_json or json.loads(streams.out)["error"] == "LandingZoneError"


@pytest.mark.parametrize(
    "arguments", [[], ["zone", "target"], ["zone", "--stric=1"], ["zone", "-x"]]
)
def test_wrong_usage_is_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """With the usage on standard error."""
    with pytest.raises(SystemExit) as left:
        main(["check", *arguments])

    assert 2 == left.value.code
    assert "usage: mirrorlib" in capsys.readouterr().err


def test_tables_can_be_chosen(zone: ZoneWriter, capsys: pytest.CaptureFixture[str]) -> None:
    """By globs, repeatedly."""
    orders(zone).zero_bytes()
    for name in ("one", "two", "three"):
        zone.table(name, keys=["id"]).file(ROWS)

    assert 0 == main(["check", str(zone), "--table", "t*", "--table", "one", "--json"])

    tables = json.loads(capsys.readouterr().out)["tables"]
    assert ["one", "three", "two"] == [table["table"] for table in tables]


def test_json_is_a_contract(zone: ZoneWriter, capsys: pytest.CaptureFixture[str]) -> None:
    """Publishers' CI reads it; docs/check.md promises it."""
    orders(zone).file(ROWS, markers=[3])

    assert 1 == main(["check", str(zone), "--json", "--strict"])

    report: dict[str, Any] = json.loads(capsys.readouterr().out)
    (table,) = report["tables"]
    assert table.pop("first") <= table.pop("last")
    assert {
        "ok": False,
        "errors": 1,
        "warnings": 0,
        "notes": 0,
        "landing_zone": str(zone),
        "strict": True,
        "deep": False,
        "tables": [{"table": "dbo/orders", "files": 2, "errors": 1, "warnings": 0, "notes": 0}],
        "findings": [
            {
                "severity": "error",
                "rule": "marker-unknown",
                "title": "a row marker is not 0, 1, 2 or 4",
                "table": "dbo/orders",
                "file": f"{2:020d}.parquet",
                "column": "__rowMarker__",
                "row": 0,
                "found": "1 row, the first with the marker '3'",
                "fix": "Write 0 for insert, 1 for update, 2 for delete, 4 for upsert.",
                "more": 0,
                "line": None,
            }
        ],
    } == report


def test_it_runs_as_a_program(zone: ZoneWriter) -> None:
    """From another process, with plain text where no terminal is."""
    orders(zone).zero_bytes()

    done = subprocess.run(
        [sys.executable, "-m", "mirrorlib.cli", "check", str(zone)],
        capture_output=True,
        text=True,
        check=False,
    )

    assert (1, "") == (done.returncode, done.stderr)
    assert done.stdout.startswith("table ")
