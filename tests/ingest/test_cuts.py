"""Any cut of a backlog into batches gives the same table: what the limits are decides nothing."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from datetime import datetime
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa
import pytest

import mirrorlib
from mirrorlib.ingest import next_batch
from mirrorlib.ingest.batch.foreign_writes import Standing
from mirrorlib.ingest.files.source import Source
from mirrorlib.ingest.files.table_folder import open_folder, policies_of
from mirrorlib.ingest.options import Options
from mirrorlib.ingest.rows.read import Landed, read_landed
from mirrorlib.names import parse_name
from mirrorlib.store import StoredFile, open_store
from mirrors import Mirror
from oracle import assert_same_rows, multiset
from zones import MARKER, ZoneWriter

if TYPE_CHECKING:
    from pathlib import Path

    from mirrorlib.ingest.report import TableReport
    from mirrorlib.ingest.work import Work
    from oracle import Rows


def in_every_cut(mirror: Mirror, files: Sequence[pa.Table]) -> tuple[TableReport, Rows]:
    """Apply files in one batch, and file by file; see that both come to the same."""
    found = []
    for limit in (None, 1):
        shutil.rmtree(mirror.target, ignore_errors=True)
        for path in mirror.table.folder.glob("*.parquet"):
            path.unlink()
        for number, file in enumerate(files, start=1):
            mirror.table.file(file, number=number)
        report = mirror.run(max_files=limit)
        read = mirror.spark.read.format("delta").load(str(mirror.path))
        found.append((report, multiset(row.asDict() for row in read.collect()), read.dtypes))
    (whole, rows, types), (single, rows_of_single, types_of_single) = found
    assert (whole.state, whole.reason, types) == (single.state, single.reason, types_of_single)
    assert_same_rows(rows, rows_of_single)
    return whole, rows


@pytest.mark.thorough
def test_a_key_that_gets_its_type_later_is_no_question_of_limits(fresh: Mirror) -> None:
    """Files whose key is all NULL are applied together with the first one that has a type."""
    untyped = pa.table({"id": pa.nulls(1), "v": ["a"]})

    report, rows = in_every_cut(fresh, [untyped, untyped, pa.table({"id": [1], "v": ["b"]})])

    assert ("current", 3) == (report.state, report.position)
    expected = [{"id": None, "v": "a"}, {"id": None, "v": "a"}, {"id": 1, "v": "b"}]
    assert_same_rows(multiset(expected), rows)


@pytest.mark.parametrize("typed", [None, 12], ids=["none has a type", "one has"])
def test_files_whose_key_has_no_type_are_opened_a_few_times(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, typed: int | None
) -> None:
    """Not once for each that follows; and at most twice as many are taken along as up to the first that has one."""
    orders = ZoneWriter(tmp_path).table("orders", keys=["id", "k"])
    for number in range(1, 21):
        kind = pa.int64() if number == typed else pa.null()
        orders.file(pa.table({"id": pa.nulls(1, pa.int64()), "k": pa.nulls(1, kind)}))
    zone, opened = open_store(str(tmp_path)), list[str]()
    folder = open_folder(zone, parse_name("orders"))
    assert folder.metadata is not None
    policies = policies_of(folder.metadata, folder.dialect, Options())
    source = Source(zone=zone, table="orders", folder="orders", policies=policies)
    every = tuple(folder.listing.partitions[""].items())

    def read(source: Source, file: StoredFile, **options: Any) -> Landed:
        opened.append(file.name)
        return read_landed(source, file, **options)

    monkeypatch.setattr("mirrorlib.ingest.batch.open_batch.read_landed", read)
    work = cast("Work", SimpleNamespace(source=source, options=Options()))
    found = next_batch._prepare(work, Standing(version=None), every[:1], every, (), divisible=True)

    assert len(found[0]) == len(found[1].landed)
    assert (typed or 20) <= len(found[0]) <= min(2 * (typed or 20), 20)
    assert len(opened) <= 3 * len(found[0])


def test_a_key_without_a_type_in_any_file_waits(fresh: Mirror) -> None:
    """So `plan` and `apply` say, and a damaged file behind is told as such."""
    fresh.table.file(pa.table({"id": pa.nulls(1), "v": ["a"]}))
    report = fresh.run(max_files=1)
    planned = mirrorlib.plan(fresh.spark, str(fresh.zone), fresh.target).tables[0]

    assert ("waiting", "waiting", planned.reason) == (report.state, planned.state, report.reason)
    assert "The key column id has no type in any published file yet" in report.reason

    fresh.table.zero_bytes()
    fresh.assert_failed("ChangeFileError", fresh.file_name(2), "no bytes")


@pytest.mark.thorough
def test_a_column_of_any_name_may_come_with_any_file(fresh: Mirror) -> None:
    """Column mapping is turned on for it, which readers of the feed do not notice, and is warned of."""
    files = [pa.table({"id": [1], "v": ["a"]}), pa.table({"id": [1], "a b": [2], MARKER: [4]})]

    report, rows = in_every_cut(fresh, files)

    assert "current" == report.state
    assert_same_rows(multiset([{"id": 1, "v": None, "a b": 2}]), rows)
    feed = mirrorlib.read_feed(fresh.spark, str(fresh.path), after=-1)
    assert {None, 2} == {row["a b"] for row in feed.collect()}
    assert [2] == [
        row["a b"]
        for row in mirrorlib.read_feed(
            fresh.spark, str(fresh.path), after=-1, net=True, keys=["id"]
        ).collect()
    ]


@pytest.mark.thorough
def test_column_mapping_that_is_turned_on_is_told(mirror: Mirror) -> None:
    """Readers without it cannot read the table any more, so `plan` and `apply` say so."""
    mirror.table.file([{"id": 9, "a b": 2}], number=3)

    planned = mirrorlib.plan(mirror.spark, str(mirror.zone), mirror.target).tables[0]
    report = mirror.run()

    for told in (planned, report):
        assert "column mapping is turned on for a b" in " ".join(told.warnings)
    mirror.table.file([{"id": 10, "a c": 2}], number=4)
    assert "column mapping" not in " ".join(mirror.run().warnings)


@pytest.mark.thorough("beside*", "alone")
@pytest.mark.parametrize("first", [[2**60], [7, 2**60]], ids=["alone", "beside another"])
def test_a_value_that_is_gone_by_then_hinders_no_type(fresh: Mirror, first: list[int]) -> None:
    """A double comes when the bigint that it cannot hold has been deleted, in the same batch or an earlier one."""
    files = [
        pa.table({"id": list(range(len(first))), "v": first}),
        pa.table({"id": [len(first) - 1], MARKER: [2]}),
        pa.table({"id": [5], "v": [1.5], MARKER: [4]}),
    ]

    report, rows = in_every_cut(fresh, files)

    assert ("current", "") == (report.state, report.reason)
    kept = [{"id": number, "v": float(value)} for number, value in enumerate(first[:-1])]
    assert_same_rows(multiset([*kept, {"id": 5, "v": 1.5}]), rows)


@pytest.mark.thorough
def test_a_value_of_the_table_that_its_batch_deletes_hinders_no_type(fresh: Mirror) -> None:
    """The file that has the table rewritten begins a batch, so the delete before it counts.

    What its owner has it clustered by stays, too.
    """
    fresh.table.file([{"id": 1, "v": 2**60}])
    assert "current" == fresh.run().state
    fresh.do("ALTER TABLE {t} CLUSTER BY (id)")
    fresh.table.file([{"id": 1}], [2])
    fresh.table.file([{"id": 2, "v": 1.5}], [4])

    report = fresh.run()

    assert ("current", 2) == (report.state, len(report.batches)), report.reason
    detail = fresh.spark.sql(f"DESCRIBE DETAIL {fresh.sql}").collect()[0]
    assert ["id"] == detail["clusteringColumns"]
    fresh.table.file([{"id": 3, "v": 1.5}], [4])
    assert "current" == fresh.run().state


@pytest.mark.thorough
def test_a_value_that_stays_hinders_a_type_in_every_cut(fresh: Mirror) -> None:
    """It is told of the file that does not fit, and nothing of that is applied."""
    files = [pa.table({"id": [1], "v": [2**60]}), pa.table({"id": [2], "v": [1.5]})]

    report, rows = in_every_cut(fresh, files)

    assert ("failed", 1, fresh.file_name(2)) == (report.state, report.position, report.file)
    assert_same_rows(multiset([{"id": 1, "v": 2**60}]), rows)
    done = json.loads(next((fresh.journal / "000001").glob("*-2.done.json")).read_text())
    assert "void" == done["outcome"]


@pytest.mark.thorough
@pytest.mark.parametrize("days_first", [False, True])
@pytest.mark.parametrize("small", [64 << 20, 0], ids=["small", "large"])
def test_days_and_moments_without_a_zone_are_one_column(
    fresh: Mirror, small: int, monkeypatch: pytest.MonkeyPatch, *, days_first: bool
) -> None:
    """A day is its midnight, whichever came first."""
    monkeypatch.setattr("mirrorlib.ingest.batch.open_batch.SMALL_BYTES", small)
    days, moments = pa.array([1], pa.date32()), pa.array([86_400_000_001], pa.timestamp("us"))
    files = [pa.table({"id": [1], "at": days}), pa.table({"id": [2], "at": moments})]
    for file in files if days_first else reversed(files):
        fresh.table.file(file)
        assert "current" == fresh.run(ntz="keep").state

    read = fresh.spark.read.format("delta").load(str(fresh.path))
    assert "timestamp_ntz" == dict(read.dtypes)["at"]
    midnight = datetime(1970, 1, 2)
    found = {row["id"]: row["at"] for row in read.collect()}
    assert {1: midnight, 2: midnight.replace(microsecond=1)} == found


@pytest.mark.thorough
def test_a_reset_table_may_have_moments_without_a_zone(fresh: Mirror) -> None:
    """Whatever it had before; the table that is replaced needs a feature for them."""
    fresh.table.file(pa.table({"id": [1], "at": pa.array([1], pa.timestamp("us"))}))
    assert "current" == fresh.run().state
    mirrorlib.reset(fresh.spark, fresh.target, fresh.name)

    assert "current" == fresh.run(ntz="keep").state

    types = dict(fresh.spark.read.format("delta").load(str(fresh.path)).dtypes)
    assert "timestamp_ntz" == types["at"]
