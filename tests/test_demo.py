"""The demo publishes real data as a publisher does, and ends with the rows that it has to have."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from mirrorlib.cli.main import main
from mirrorlib.errors import LandingZoneError
from mirrorlib.platform import demo


def published(zone: Path) -> list[Path]:
    """Give a zone's change files in order."""
    return sorted((zone / demo.TABLE_FOLDER).glob("[0-9]*.parquet"))


@pytest.fixture(scope="module")
def zone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Publish the real data once."""
    folder = tmp_path_factory.mktemp("zone")
    demo.publish_all(folder, *demo.split(demo.read_price_paid(demo.find_data())))
    return folder


def test_the_zone_looks_as_a_publisher_leaves_it(zone: Path) -> None:
    """Metadata, numbered files without a gap, nothing half written."""
    names = sorted(path.name for path in (zone / demo.TABLE_FOLDER).iterdir() if path.is_file())

    assert [*(f"{number:020d}.parquet" for number in range(1, 11)), "_metadata.json"] == names
    metadata = json.loads((zone / demo.TABLE_FOLDER / "_metadata.json").read_text())
    assert {"keyColumns": ["transaction_id"]} == metadata


def test_the_initial_load_has_no_markers_and_the_changes_have_them(zone: Path) -> None:
    """Four files of plain additions come first."""
    marked = ["__rowMarker__" in pq.read_schema(path).names for path in published(zone)]

    assert [False] * 4 + [True] * 6 == marked


def test_replayed_row_by_row_the_files_leave_the_registers_rows(zone: Path) -> None:
    """94,248 change rows: 89,969 additions, 2,512 changes, 1,767 deletes; 92,481 rows remain."""
    table, seen = dict[str, int](), [0, 0, 0]
    for path in published(zone):
        rows = pq.read_table(path)
        markers = (
            rows["__rowMarker__"].to_pylist()
            if "__rowMarker__" in rows.column_names
            else [0] * len(rows)
        )
        for key, price, marker in zip(
            rows["transaction_id"].to_pylist(), rows["price"].to_pylist(), markers, strict=True
        ):
            seen[marker] += 1
            if marker == 2:
                table.pop(key, None)
            else:
                assert key not in table or marker == 1
                table[key] = price

    assert [89_969, 2_512, 1_767] == seen
    assert 92_481 == len(table)


def test_a_folder_of_somebody_elses_is_refused(tmp_path: Path) -> None:
    """The demo empties only what a demo made."""
    (tmp_path / "precious.txt").touch()

    with pytest.raises(LandingZoneError, match=r"is not empty.*--folder"):
        demo.run_demo(tmp_path)

    assert [tmp_path / "precious.txt"] == list(tmp_path.iterdir())


@pytest.mark.thorough("own")
@pytest.mark.usefixtures("signals", "spark")
@pytest.mark.parametrize("program", [[], [sys.executable, "-m", "mirrorlib.cli"]], ids=["", "own"])
def test_the_demo_runs_as_a_user_runs_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], program: list[str]
) -> None:
    """It tells the rows it found, the feed of its last changes, and commands that work; with a Spark of its own, too."""

    def run(*words: str) -> str:
        if program:
            done = subprocess.run([*program, *words], capture_output=True, text=True, check=False)
            code, said, wrong = done.returncode, done.stdout, done.stderr
        else:
            code = main(words)
            said, wrong = capsys.readouterr()
        assert ("", 0) == (wrong, code)
        return said

    said = run("demo", "--folder", str(tmp_path / "demo"))
    assert "The Delta table has 92,481 rows" in said
    changes = [
        line.split()[1]
        for line in said.splitlines()
        if line.split()[1:2] in (["insert"], ["update"], ["delete"])
    ]
    assert ["delete", "insert", "update", "update", "update"] == sorted(changes)
    assert 3 == len(re.findall(r"update .* price: [0-9]+ → [0-9]+$", said, re.MULTILINE))
    (table,) = json.loads(run("status", str(tmp_path / "demo" / "tables"), "--json"))["tables"]
    assert (demo.TABLE, "current", 11) == (table["table"], table["state"], table["position"])
