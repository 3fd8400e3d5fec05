"""Plain folders on their way into Delta tables: every file once, on both roads, and what does not fit by each mode's word."""

from __future__ import annotations

import gzip
import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import mirrorlib
from mirrors import Killed, at, die
from oracle import assert_same_rows, multiset
from tables import (
    assert_each_file_once,
    assert_feed_replays,
    newest_version,
    read_columns,
    read_rows,
)
from zones import ZoneWriter, write_at

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from mirrorlib.ingest.report import ApplyReport, TableReport

pytestmark = pytest.mark.slow

Row = dict[str, object]


def put(zone: ZoneWriter, name: str, data: bytes | str | pa.Table, second: float) -> Path:
    """Write a file of the table `plain`, at a second of the past."""
    path = zone.root / "plain" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(data, pa.Table):
        pq.write_table(data, path)
    else:
        path.write_bytes(data.encode() if isinstance(data, str) else data)
    return write_at(path, second)


def apply_all(spark: SparkSession, zone: ZoneWriter, target: str, **options: object) -> ApplyReport:
    """Apply the zone, plain folders too."""
    options = {"plain_folders": "append", **options}
    return mirrorlib.apply(spark, str(zone), target, **options)  # type: ignore[arg-type]  # any option


def apply(spark: SparkSession, zone: ZoneWriter, target: str, **options: object) -> TableReport:
    """Apply the one plain table."""
    return apply_all(spark, zone, target, tables="plain", **options).tables[0]


def rows(spark: SparkSession, target: str) -> list[Row]:
    """Read the table; NULLs are left out."""
    found = read_rows(spark, Path(target) / "plain")
    for row in found:
        if row.get("_rescued_data") is not None:
            row["_rescued_data"] = text(json.loads(str(row["_rescued_data"])))
    return [{name: value for name, value in row.items() if value is not None} for row in found]


def text(rescued: Row) -> str:
    """Write rescued values so that their order does not matter."""
    return json.dumps(rescued, sort_keys=True)


def ids(spark: SparkSession, target: str) -> list[object]:
    """Read the ids of the rows, sorted as text."""
    return sorted((row["id"] for row in read_rows(spark, Path(target) / "plain")), key=str)


@pytest.mark.thorough
def test_a_folder_whose_files_were_all_removed_goes_on_when_one_comes(
    spark: SparkSession, zone: ZoneWriter, target: str
) -> None:
    """An object store shows no such folder: what was appended stays, and the next file is appended."""
    zone.table("other", keys=["id"]).file([{"id": 1}])
    put(zone, "a.csv", "id\n1\n", 1)
    assert "current" == apply(spark, zone, target).state
    shutil.rmtree(zone.root / "plain")

    gone = apply_all(spark, zone, target, on_gone="drop")

    (told,) = (one for one in gone.tables if one.table == "plain")
    assert "gone" == told.state
    assert "goes on with new files" in told.reason
    shown = {one.table: one.state for one in mirrorlib.status(target).tables}
    assert {"other": "current", "plain": "gone"} == shown
    put(zone, "a.csv", "id\n1\n", 1)
    put(zone, "b.csv", "id\n2\n", 2)
    back = next(one for one in mirrorlib.status(target).tables if one.table == "plain")
    assert ("behind", 1) == (back.state, back.unapplied)
    assert "new life" not in back.reason
    assert "current" == apply(spark, zone, target).state
    assert ["1", "2"] == ids(spark, target)
    shutil.rmtree(zone.root / "plain")
    mirrorlib.reset(spark, target, "plain")
    assert "gone" == apply_all(spark, zone, target).tables[-1].state
    put(zone, "c.csv", "id\n3\n", 3)
    assert "current" == apply(spark, zone, target).state
    assert ["3"] == ids(spark, target)


@pytest.mark.thorough
@pytest.mark.parametrize("road", ["small", "large"])
def test_all_formats_at_all_levels_make_one_table_on_both_roads(
    spark: SparkSession, zone: ZoneWriter, target: str, monkeypatch: pytest.MonkeyPatch, road: str
) -> None:
    """Late and nested files, folders that state columns, types that widen, text that is rescued: file by file as all at once."""
    if road == "large":
        monkeypatch.setattr("mirrorlib.ingest.batch.open_batch.SMALL_BYTES", -1)
    put(zone, "2021/12/01/a.parquet", pa.table({"id": [1, 2], "v": ["a", None]}), 1)
    put(
        zone,
        "b.json.gz",
        gzip.compress(b'{"id": 3, "tags": ["x", {"y": 1}]}\n{"id": 4.5, "v": "b"}\n'),
        2,
    )
    put(zone, "year=2021/month=12/c.jsonl", '{"id": 5, "at (UTC)": 0.5}\n', 3)
    put(zone, "LOAD00000001.csv.gz", gzip.compress(b'v,w\r\n"say ""hi""",\r\n,""\r\n'), 4)
    put(zone, "d.csv", "id,v\nseven,d\n", 5)
    put(zone, "e.parquet", pa.table({"id": [8], "extra": [0.5]}), 6)
    file = str(zone.root / "plain" / "d.csv")
    expected = [
        {"id": 1.0, "v": "a"},
        {"id": 2.0},
        {"id": 3.0, "tags": '["x",{"y":1}]'},
        {"id": 4.5, "v": "b"},
        {"id": 5.0, "at (UTC)": 0.5, "year": "2021", "month": "12"},
        {"v": 'say "hi"'},
        {"w": ""},
        {"v": "d", "_rescued_data": text({"id": "seven", "_file_path": file})},
        {"id": 8.0, "extra": 0.5},
    ]

    planned = mirrorlib.plan(spark, str(zone), target, plain_folders="append").tables[0]
    whole = apply(spark, zone, target)
    pieces = apply(spark, zone, f"{target} by one", max_files=1)

    assert ("current", 6, 1) == (whole.state, whole.position, len(whole.batches)), whole.reason
    assert (6, 9) == (planned.files, planned.rows)
    assert ("current", 6) == (pieces.state, len(pieces.batches)), pieces.reason
    assert_same_rows(multiset(expected), multiset(rows(spark, target)))
    assert_same_rows(multiset(expected), multiset(rows(spark, f"{target} by one")))
    assert read_columns(spark, Path(target) / "plain") == read_columns(
        spark, Path(f"{target} by one") / "plain"
    )
    assert_feed_replays(spark, Path(f"{target} by one") / "plain")
    assert [0, 0, 0, 9] == [
        sum(getattr(batch, kind) for batch in pieces.batches)
        for kind in ("updates", "deletes", "upserts", "inserts")
    ]
    put(zone, "2021/11/30/late.csv", "id,v\n,late\n", 0)

    later = apply(spark, zone, target)

    assert ("current", 7) == (later.state, later.position)
    assert any("1 files came late" in warning for warning in later.warnings)
    late = [*expected, {"v": "late"}]
    assert_same_rows(multiset(late), multiset(rows(spark, target)))
    assert_feed_replays(spark, Path(target) / "plain")
    assert_each_file_once(Path(target) / "plain", 7)
    assert "current" == mirrorlib.status(target).tables[0].state


@pytest.mark.thorough
def test_a_file_counts_once_or_again_when_it_is_overwritten(
    spark: SparkSession, zone: ZoneWriter, target: str
) -> None:
    """As is asked each time; a file that has been removed says nothing."""
    put(zone, "d/a.csv", "id\n1\n", 1)
    put(zone, "d/b.csv", "id\n2\n", 2)
    assert "current" == apply(spark, zone, target).state
    version = newest_version(Path(target) / "plain")
    put(zone, "d/a.csv", "id\n1\n10\n", 3)
    (zone.root / "plain" / "d" / "b.csv").unlink()

    told = apply(spark, zone, target)

    assert (version, ()) == (newest_version(Path(target) / "plain"), told.batches)
    assert any("not read again: d/a.csv (1 in all)" in warning for warning in told.warnings)

    again = apply(spark, zone, target, allow_overwrites=True, cleanup="move")

    assert ("current", 3, ()) == (again.state, again.position, again.warnings)
    assert ["1", "1", "10", "2"] == ids(spark, target)
    assert () == apply(spark, zone, target, allow_overwrites=True).batches
    (processed,) = (zone.root / "plain" / "_ProcessedFiles").iterdir()
    assert [processed / "d" / "a.csv"] == [path for path in processed.rglob("*") if path.is_file()]
    put(zone, "d/c.csv", "id\n3\n", 4)
    moved = zone.root.rename(zone.root.with_name("elsewhere"))
    refused = mirrorlib.apply(
        spark,
        str(moved),
        target,
        plain_folders="append",
        allow_overwrites=True,
        moved_from=str(zone),
    ).tables[0]
    assert "failed" == refused.state
    assert "nobody can tell a file that was moved" in refused.reason


@pytest.mark.thorough
def test_what_was_there_at_first_sight_counts_unless_it_is_left_out(
    spark: SparkSession, zone: ZoneWriter, target: str
) -> None:
    """Only the first sight asks; a killed one and an empty one are first sights too; a reset takes all."""
    put(zone, "a.csv", "id\n1\n", 1)
    options = {"include_existing": False, "settle": 0.0}
    other = f"{target} of an empty folder"

    planned = mirrorlib.plan(
        spark, str(zone), target, plain_folders="append", include_existing=False
    ).tables[0]
    first = apply(spark, zone, target, **options)
    folder, away = zone.root / "plain", zone.root.parent / "away"
    folder.rename(away)
    apply_all(spark, zone, target, **options)
    away.rename(folder)
    put(zone, "b.csv", "id\n2\n", 0)
    waiting = mirrorlib.status(target).tables[0]
    second = apply(spark, zone, target)

    assert ("waiting", 0) == (planned.state, planned.files)
    assert ("waiting", None) == (first.state, first.position)
    assert "1 files were there" in first.reason == planned.reason
    assert 1 == waiting.unapplied
    assert ("current", 1) == (second.state, second.position)
    assert ["2"] == ids(spark, target)
    mirrorlib.reset(spark, target, "plain")
    assert "current" == apply(spark, zone, target, **options).state
    assert ["1", "2"] == ids(spark, target)

    for path in (zone.root / "plain").iterdir():
        path.unlink()
    assert "waiting" == apply(spark, zone, other, **options).state
    put(zone, "c.csv", "id\n3\n", 1)
    assert "current" == apply(spark, zone, other, **options).state
    assert ["3"] == ids(spark, other)


@pytest.mark.thorough
@pytest.mark.parametrize("road", ["small", "large"])
def test_every_mode_keeps_its_word_about_columns(
    spark: SparkSession, zone: ZoneWriter, target: str, monkeypatch: pytest.MonkeyPatch, road: str
) -> None:
    """The first file makes the columns; a new one, a wider type and a wrong type are what the mode says."""
    if road == "large":
        monkeypatch.setattr("mirrorlib.ingest.batch.open_batch.SMALL_BYTES", -1)
    first = {"id": 1, "n": 1}
    put(zone, "a.json", json.dumps(first), 1)
    put(zone, "b.parquet", pa.table({"id": [2, 3], "n": [2.0, 2.5], "new": ["x", None]}), 2)
    put(
        zone,
        "c.json",
        '{"id": 4, "n": "many", "new": true, "more": {"y": [1]}}\n{"id": 5, "n": "5"}',
        3,
    )
    place = {
        name: {"_file_path": str(zone.root / "plain" / name)} for name in ("b.parquet", "c.json")
    }
    many = {"n": "many", "new": True, **place["c.json"]}

    def run(mode: str, **options: object) -> tuple[TableReport, list[Row]]:
        folder = f"{target} {mode} {len(options)}"
        report = apply(spark, zone, folder, plain_evolution=mode, **options)
        return report, sorted(rows(spark, folder), key=lambda row: str(row["id"]))

    report, found = run("rescue")
    more = {**many, "more": '{"y":[1]}'}
    assert ("current", 3) == (report.state, report.position), report.reason
    assert [
        {**first},
        {"id": 2, "n": 2, "_rescued_data": text({"new": "x", **place["b.parquet"]})},
        {"id": 3, "_rescued_data": text({"n": 2.5, **place["b.parquet"]})},
        {"id": 4, "_rescued_data": text(more)},
        {"id": 5, "_rescued_data": text({"n": "5", **place["c.json"]})},
    ] == found
    assert any("new, more" in told or "are rescued: new" in told for told in report.warnings)

    for options in ({}, {"max_files": 1}):
        report, found = run("add", **options)
        assert ("current", 3) == (report.state, report.position), report.reason
        assert [
            {"id": 1, "n": 1.0},
            {"id": 2, "n": 2.0, "new": "x"},
            {"id": 3, "n": 2.5},
            {"id": 4, "more": '{"y":[1]}', "_rescued_data": text(many)},
            {"id": 5, "_rescued_data": text({"n": "5", **place["c.json"]})},
        ] == found

    report, found = run("fail")
    assert ("failed", "b.parquet", [first]) == (report.state, report.file, found)
    assert "column n" in report.reason
    assert "plain evolution is fail" in report.reason

    report, found = run("none")
    assert ("failed", "b.parquet", [first]) == (report.state, report.file, found)
    put(zone, "b.parquet", pa.table({"id": [2], "n": [2.0], "new": ["x"]}), 2)
    (zone.root / "plain" / "c.json").unlink()
    report, found = run("none", max_files=9)
    assert ("current", [first, {"id": 2, "n": 2}]) == (report.state, found)
    assert any("are left out: new" in told for told in report.warnings)


def test_one_bad_file_stops_its_table_and_no_other(
    spark: SparkSession, zone: ZoneWriter, target: str
) -> None:
    """A broken line is named; young text and row markers wait for somebody; metadata asks for a reset."""
    put(zone, "2026/a.json", '{"id": 1}\n', 1)
    broken = put(zone, "2026/b.json", '{"id": 2}\n{"id": 3\n', 2)
    put(zone, "2026/c.json", '{"id": 4}\n', 3)
    other = zone.table("mirrored", keys=["id"])
    other.file([{"id": 1}], [0])

    report = apply_all(spark, zone, target)

    mirrored, plain = report.tables
    assert ("current", "failed") == (mirrored.state, plain.state)
    assert ("2026/b.json", 1) == (plain.file, plain.position)
    assert "2026/b.json, line 2: the line is not JSON" in plain.reason
    assert [1] == ids(spark, target)
    broken.write_text('{"id": 2}\n')

    assert "behind" == apply(spark, zone, target, settle=60.0).state
    assert "current" == apply(spark, zone, target, settle=0.0).state
    assert [1, 2, 4] == ids(spark, target)
    marked = put(zone, "z.csv", "id,__rowMarker__\n1,2\n", 9)
    refused = apply(spark, zone, target)
    assert ("failed", "z.csv") == (refused.state, refused.file)
    assert "column __rowMarker__: the file has row markers" in refused.reason
    marked.unlink()
    metadata = zone.root / "plain" / "_metadata.json"
    metadata.write_text('{"fileDetectionStrategy": "LastUpdateTimeFileDetection"}')
    put(zone, "z.parquet", pa.table({"id": [9]}), 10)
    refused = apply(spark, zone, target)
    assert "failed" == refused.state
    assert "_metadata.json has come to a plain folder" in refused.reason
    assert "mirrorlib reset TARGET plain" in refused.reason
    mirrorlib.reset(spark, target, "plain")
    assert "current" == apply(spark, zone, target).state
    assert [9] == ids(spark, target)
    metadata.unlink()

    lost = apply(spark, zone, target)

    assert ("waiting", 1) == (lost.state, len(ids(spark, target)))
    assert "_metadata.json is missing" in lost.reason
    (other.folder / "_metadata.json").unlink()
    assert "waiting" == apply_all(spark, zone, target, tables="mirrored").tables[0].state


@pytest.mark.thorough
@pytest.mark.parametrize(
    "step, when", [("plan", "after"), ("commit", "before"), ("commit", "after")]
)
def test_a_killed_run_is_carried_to_its_end(
    spark: SparkSession, zone: ZoneWriter, target: str, step: str, when: str
) -> None:
    """Its plan knows its files, their formats and the mode, whatever is asked for by then."""
    put(zone, "a.json", '{"id": 1}\n', 1)
    apply(spark, zone, target, plain_evolution="rescue")
    put(zone, "b/c.csv", "id\n2\n", 3)

    with pytest.raises(Killed):
        apply(spark, zone, target, plain_evolution="rescue", observe=at(step, when, die))
    put(zone, "b/b.json", '{"id": 3}\n', 2)

    report = apply(spark, zone, target, plain_evolution="fail")

    assert ("current", 3) == (report.state, report.position), report.reason
    rescued = {"id": "2", "_file_path": str(zone.root / "plain" / "b" / "c.csv")}
    assert_same_rows(
        multiset([{"id": 1}, {"_rescued_data": text(rescued)}, {"id": 3}]),
        multiset(rows(spark, target)),
    )
    assert_each_file_once(Path(target) / "plain", 3)
    assert_feed_replays(spark, Path(target) / "plain")
