"""`mirrorlib publish`: files in, change files out, exit codes and JSON as everywhere."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mirrorlib.cli.main import main
from mirrorlib.store import LocalStore
from publishing import batch, batches, rows_of, visible


@pytest.fixture
def rows(tmp_path: Path) -> list[str]:
    """Write three Parquet files of rows."""
    paths = [tmp_path / f"{name}.parquet" for name in "abc"]
    for path in paths:
        pq.write_table(batch(path.stem), path)
    return [str(path) for path in paths]


@pytest.fixture
def zone(tmp_path: Path) -> str:
    """Name a zone that does not exist yet."""
    return str(tmp_path / "zone")


def said(capsys: pytest.CaptureFixture[str]) -> Any:
    """Read what was printed as JSON."""
    return json.loads(capsys.readouterr().out)


def test_a_file_becomes_the_next_change_file(
    zone: str, rows: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """In the order of the commands; a line tells what there is now."""
    for path in rows:
        assert 0 == main(["publish", zone, "dbo/orders", path, "--keys", "id"])

    assert ["a", "b", "c"] == batches(LocalStore(Path(zone)))
    out = capsys.readouterr().out
    assert f"dbo/orders: {3:020d}.parquet, rows: 2 insert, " in out


def test_a_file_published_again_under_its_id_is_there_once(
    zone: str, rows: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """After a crash: the same commands."""
    for place, path in [*enumerate(rows)] * 2:
        words = ["publish", zone, "dbo/orders", path, "--keys", "id", "--batch-id", f"{place}"]
        assert 0 == main([*words, "--json"])
    text = capsys.readouterr().out
    report = json.loads(text[text.rindex("\n{\n") :])

    assert ["a", "b", "c"] == batches(LocalStore(Path(zone)))
    assert [True] == [file["repeated"] for done in report["published"] for file in done["files"]]
    assert 0 == main(["publish", zone, "dbo/orders", rows[0]])
    assert ["a", "b", "c", "a"] == batches(LocalStore(Path(zone)))
    assert "was there already" not in capsys.readouterr().out


def test_every_option_reaches_the_zone(
    zone: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """CSV in, CSV out, markers from a column, partitions, a source."""
    path = tmp_path / "in.csv"
    path.write_text("id,region,op\n1,eu,0\n2,us,4\n")
    options = [
        "--keys",
        "id, region",
        "--marker",
        "op",
        "--format",
        "csv",
        "--partition-by",
        "region",
    ]
    options += ["--source", "SQL", "--json"]

    assert 0 == main(["publish", zone, "t", str(path), *options])

    report = said(capsys)
    assert (True, 2) == (report["ok"], report["published"][0]["rows"])
    store = LocalStore(Path(zone))
    metadata = json.loads(store.read("t/_metadata.json") or b"")
    assert ["id", "region"] == metadata["keyColumns"]
    assert b"SQL" in (store.read("_partnerEvents.json") or b"")
    assert {f"{1:020d}.csv": b'"id","region","__rowMarker__"\n2,"us",4\n'} == visible(
        store, "t/region=us"
    )


@pytest.mark.parametrize("options", [("--partition-by", "batch"), ("--format", "csv")])
def test_what_is_published_passes_the_strict_check(
    zone: str, rows: list[str], options: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    """Our own zones are as they have to be, whatever they are declared to be."""
    for path in rows:
        assert 0 == main(["publish", zone, "dbo/orders", path, "--keys", "id", *options])

    assert 0 == main(["check", zone, "--strict"]), capsys.readouterr().out


def test_a_marker_for_all_rows(zone: str, rows: list[str]) -> None:
    """A number is a marker, not a column."""
    assert 0 == main(["publish", zone, "t", rows[0], "--keys", "id", "--marker", "4"])

    (data,) = visible(LocalStore(Path(zone)), "t").values()
    assert [4, 4] == [row["__rowMarker__"] for row in rows_of(data)]


def test_bad_input_is_exit_1_and_publishes_nothing(
    zone: str, rows: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """The error is JSON for machines, and one line for people."""
    assert 1 == main(["publish", zone, "t", rows[0], "--keys", "nothing", "--json"])

    streams = capsys.readouterr()
    error = json.loads(streams.out)
    assert (False, "SchemaError", "nothing") == (error["ok"], error["error"], error["column"])
    assert streams.err.startswith(
        "mirrorlib: t: a.parquet, column nothing: the data has no such column."
    )
    assert not Path(zone).exists()


def test_what_is_refused_can_be_forced(zone: str, rows: list[str], tmp_path: Path) -> None:
    """What was published before it is there; a type that stops a Fabric table is published when that is asked for."""
    bad = tmp_path / "bad.parquet"
    pq.write_table(pa.table({"id": ["x"], "batch": ["x"]}), bad)

    assert 0 == main(["publish", zone, "dbo/orders", rows[0], "--keys", "id"])
    assert 1 == main(["publish", zone, "dbo/orders", str(bad)])
    assert ["a"] == batches(LocalStore(Path(zone)))
    assert 0 == main(["publish", zone, "dbo/orders", str(bad), "--force"])


@pytest.mark.parametrize("value", ["7", "x", "1.5", "2026-01-28"])
@pytest.mark.parametrize("file_format", ["parquet", "csv"])
def test_a_column_without_values_is_the_same_whatever_type_it_has_by_then(
    zone: str, tmp_path: Path, file_format: str, value: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """CSV has no types: a file that is published again is known though the column has one since."""
    first, empty, full = (tmp_path / f"{name}.csv" for name in ("first", "empty", "full"))
    first.write_text("id,x\n0,\n" if file_format == "parquet" else f"id,x\n0,{value}\n")
    empty.write_text("id,x\n1,\n2,\n")
    full.write_text(f"id,x\n3,{value}\n")
    for path in (first, empty, full, first, empty, full):
        options = ["--keys", "id", "--format", file_format, "--batch-id", path.stem]
        assert 0 == main(["publish", zone, "t", str(path), *options])

    assert 3 == capsys.readouterr().out.count("was there already")
    assert 3 == len(visible(LocalStore(Path(zone)), "t"))


def test_equal_files_are_published_each(zone: str, rows: list[str]) -> None:
    """The same command after it has returned is another one."""
    for path in (rows[0], rows[0], rows[1], rows[0]):
        assert 0 == main(["publish", zone, "dbo/orders", path, "--keys", "id"])

    assert ["a", "a", "b", "a"] == batches(LocalStore(Path(zone)))


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("zone",),
        ("zone", "t"),
        ("zone", "t", __file__, "--format", "xml"),
        ("zone", "t", __file__, "--marker"),
        ("zone", "t", __file__, "--batch-id", ""),
        ("zone", "t", __file__, "--keys", " "),
    ],
)
def test_wrong_usage_is_2(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: tuple[str, ...],
    capsys: pytest.CaptureFixture[str],
) -> None:
    """With the usage on standard error, the argument's own fault behind it, and before anything is written."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as left:
        main(["publish", *arguments])

    assert 2 == left.value.code
    told = capsys.readouterr().err
    assert "usage: mirrorlib publish" in told
    assert len(arguments) < 4 or arguments[3].strip("-") in told.splitlines()[-1]
    assert [] == list(tmp_path.iterdir())


def test_a_missing_file_is_2(zone: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Before anything is written."""
    assert 2 == main(["publish", zone, "t", "no such file.csv", "--json"])

    streams = capsys.readouterr()
    assert "no such file.csv: the file to publish is not there" in streams.err
    assert "no such file.csv" == json.loads(streams.out)["file"]
    assert not Path(zone).exists()


def test_it_explains_itself(capsys: pytest.CaptureFixture[str]) -> None:
    """Every option with a word to it."""
    with pytest.raises(SystemExit) as left:
        main(["publish", "--help"])

    assert 0 == left.value.code
    text = capsys.readouterr().out
    options = (
        "--keys",
        "--marker",
        "--format",
        "--partition-by",
        "--batch-id",
        "--force",
        "--json",
    )
    assert all(option in text for option in options)


def test_it_needs_no_spark(zone: str, rows: list[str]) -> None:
    """Neither pyspark nor databricks-sdk is imported, in a process of its own."""
    program = (
        "import sys; from mirrorlib.cli.main import main; "
        f"code = main(['publish', {zone!r}, 't', {rows[0]!r}]); "
        "sys.exit(code or any(name in sys.modules for name in ('pyspark', 'delta', 'databricks')))"
    )

    assert 0 == subprocess.run([sys.executable, "-c", program], check=False).returncode
