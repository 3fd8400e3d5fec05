"""Files are what they hold: another zone, an overwritten file and a moved folder are told apart by content alone.

Name, size, row count and time of a file prove nothing. What would be passed over is compared with what was applied.
"""

from __future__ import annotations

import json
import os
import shutil
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import mirrorlib
from mirrorlib.errors import FileChangedError
from mirrorlib.ingest.files.history import History
from mirrorlib.ingest.files.source import Source
from mirrorlib.ingest.files.source_identity import changed_since, judge_changes
from mirrorlib.ingest.files.table_folder import open_folder, policies_of
from mirrorlib.ingest.options import Options
from mirrorlib.ingest.rows.read import read_landed
from mirrorlib.journal.disk import Journal
from mirrorlib.journal.entries import Done, Plan, PlannedFile, now
from mirrorlib.landing.footer import Hashing, end_of
from mirrorlib.names import TableName
from mirrorlib.store import LocalStore, open_store
from mirrors import Killed, at, die
from tables import read_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from mirrorlib.ingest.report import TableReport
    from mirrorlib.ingest.work import Work

NUMBERED = {"keyColumns": ["id"]}
BY_TIME = {**NUMBERED, "fileDetectionStrategy": "LastUpdateTimeFileDetection"}
PARTITIONED = {**NUMBERED, "isPartitionEnabled": True}
TEXT = {
    **NUMBERED,
    "FileFormat": "CSV",
    "SchemaDefinition": {"Columns": [{"Name": "id", "DataType": "Int64"}]},
}
FIRST = "00000000000000000001"


def put(zone: Path, name: str, *ids: int, metadata: dict[str, Any] | None = NUMBERED) -> Path:
    """Write a file of ids, of the same size whatever they are; its name's ending says of which kind."""
    path = zone / "t" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    stated = zone / "t" / "_metadata.json"
    if metadata is not None and not stated.exists():
        stated.write_text(json.dumps(metadata))
    if name.endswith(".parquet"):
        pq.write_table(pa.table({"id": pa.array(ids, pa.int64())}), path, compression="none")
    elif name.endswith(".csv"):
        path.write_text("id\n" + "".join(f"{i}\n" for i in ids))
    else:
        path.write_text("".join(f'{{"id": {i}}}\n' for i in ids))
    return path


def apply(spark: SparkSession, zone: Path, target: str, **options: Any) -> TableReport:
    """Apply once, and see that `plan` has foreseen how it ends."""
    options = {"settle": 0, "plain_folders": "append", **options}
    foreseen = mirrorlib.plan(spark, str(zone), target, **options).tables[0]
    found = mirrorlib.apply(spark, str(zone), target, **options).tables[0]
    assert (foreseen.state in {"current", "behind"}) == (found.state == "current")
    if found.state == "failed":
        assert foreseen.reason == found.reason
    return found


def ids(spark: SparkSession, target: str) -> list[int]:
    """Return the ids that the table holds."""
    return sorted(int(row["id"]) for row in read_rows(spark, Path(target) / "t"))


SHAPES = [
    pytest.param(f"{FIRST}.parquet", NUMBERED, id="numbered"),
    pytest.param(f"{FIRST}.csv", TEXT, id="text", marks=pytest.mark.thorough),
    pytest.param("a.parquet", BY_TIME, id="without numbers", marks=pytest.mark.thorough),
    pytest.param(f"r=1/{FIRST}.parquet", PARTITIONED, id="partitions", marks=pytest.mark.thorough),
]


@pytest.mark.parametrize("name, metadata", SHAPES)
def test_another_zone_is_refused_by_a_file_that_holds_something_else(
    spark: SparkSession, tmp_path: Path, name: str, metadata: dict[str, Any]
) -> None:
    """Of the same name, size, row count and time; and nothing of it is applied, told that it was moved or not."""
    target = str(tmp_path / "target")
    ours = put(tmp_path / "z1", name, 1, metadata=metadata)
    theirs = put(tmp_path / "z2", name, 2, metadata=metadata)
    put(tmp_path / "z2", name.replace("1.", "2.").replace("a.", "b."), 3, metadata=metadata)
    os.utime(theirs, ns=(ours.stat().st_mtime_ns,) * 2)
    assert ours.stat().st_size == theirs.stat().st_size
    assert "current" == apply(spark, tmp_path / "z1", target).state

    for options in ({}, {"moved_from": str(tmp_path / "z1")}):
        refused = apply(spark, tmp_path / "z2", target, **options)

        assert ("failed", "FileChangedError", name) == (refused.state, refused.error, refused.file)
        assert "holds something else" in refused.reason
        assert [1] == ids(spark, target)
    assert "current" == apply(spark, tmp_path / "z1", target).state


@pytest.mark.parametrize("name, metadata", SHAPES)
def test_the_same_zone_elsewhere_goes_on(
    spark: SparkSession,
    tmp_path: Path,
    name: str,
    metadata: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Copied with other times, it proves itself without a word of its owner; where files are waited for, side by side."""
    target = str(tmp_path / "target")
    put(tmp_path / "z1", name, 1, metadata=metadata)
    put(tmp_path / "z1", name.replace("1.", "2.").replace("a.", "b."), 2, metadata=metadata)
    assert "current" == apply(spark, tmp_path / "z1", target).state
    shutil.copytree(tmp_path / "z1", tmp_path / "z2", copy_function=shutil.copyfile)

    pools, real = set(), Source.holds_same

    def compare(*given: Any) -> bool:
        pools.add(threading.current_thread() is not threading.main_thread())
        return real(*given)

    monkeypatch.setattr(LocalStore, "at_once", 2)
    monkeypatch.setattr(Source, "holds_same", compare)

    idle = apply(spark, tmp_path / "z2", target)
    put(tmp_path / "z2", name.replace("1.", "3.").replace("a.", "c."), 3, metadata=metadata)

    assert ("current", (), (), True) == (idle.state, idle.batches, idle.warnings, True in pools)
    assert "current" == apply(spark, tmp_path / "z2", target).state
    assert [1, 2, 3] == ids(spark, target)


@pytest.mark.thorough
def test_a_table_of_a_zone_that_was_moved_is_gone_or_starts_over_there(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Once that zone has proven to be the same one, before any batch has come from it; and it stays so."""
    target, old, new = str(tmp_path / "target"), tmp_path / "z1", tmp_path / "z2"
    for table in ("s", "t"):
        put(old, f"../{table}/{FIRST}.parquet", 1)
    shutil.copy(old / "t" / "_metadata.json", old / "s")
    mirrorlib.apply(spark, str(old), target)
    shutil.copytree(old, new, copy_function=shutil.copyfile)
    mirrorlib.apply(spark, str(new), target)
    shutil.rmtree(new / "t")

    found = mirrorlib.apply(spark, str(new), target).tables
    dropped = mirrorlib.apply(spark, str(new), target, on_gone="drop").tables
    ways = {edge.source for edge in mirrorlib.lineage(target).edges}
    life = mirrorlib.reset(spark, target, "s")

    assert ["current", "gone"] == [one.state for one in found] == [one.state for one in dropped]
    assert not (tmp_path / "target" / "t").exists()
    assert {life.zone} == ways == {open_store(str(new)).url}


@pytest.mark.thorough
def test_an_older_file_that_holds_something_else_is_named(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Every file that would be passed over is compared, not the newest alone."""
    target = str(tmp_path / "target")
    for number in (1, 2, 3):
        put(tmp_path / "z1", f"{number:020d}.parquet", number)
    assert "current" == apply(spark, tmp_path / "z1", target, max_files=1).state
    shutil.copytree(tmp_path / "z1", tmp_path / "z2")
    put(tmp_path / "z2", f"{1:020d}.parquet", 9)

    refused = apply(spark, tmp_path / "z2", target)

    assert ("failed", f"{1:020d}.parquet") == (refused.state, refused.file)
    assert "batch 1" in refused.reason


def test_a_file_that_was_overwritten_is_refused_until_it_is_back(
    spark: SparkSession, tmp_path: Path
) -> None:
    """The newest batch's, in the same zone: a zone that is mounted in another's place looks so. Touched, it is the same."""
    target, zone = str(tmp_path / "target"), tmp_path / "zone"
    first = put(zone, f"{FIRST}.parquet", 1)
    assert "current" == apply(spark, zone, target).state
    first.touch()
    assert ("current", ()) == (
        apply(spark, zone, target).state,
        apply(spark, zone, target).warnings,
    )
    put(zone, f"{FIRST}.parquet", 2)
    put(zone, f"{2:020d}.parquet", 3)

    refused = apply(spark, zone, target)

    assert ("failed", f"{FIRST}.parquet") == (refused.state, refused.file)
    assert "remove it and publish its rows under the next name" in refused.reason
    assert [1] == ids(spark, target)
    first.unlink()
    assert "current" == apply(spark, zone, target).state
    assert [1, 3] == ids(spark, target)


def look(zone: Path, state: Path) -> tuple[tuple[str, ...], str]:
    """Name the files that have changed, and say what looks as if the source had started over; two batches are applied."""
    name = TableName(None, "t")
    store, journal = open_store(str(zone)), Journal(open_store(str(state)), name)
    opened = open_folder(store, name, History(journal, store.url))
    assert opened.metadata is not None
    policies = policies_of(opened.metadata, opened.dialect, Options())
    source = Source(zone=store, table="t", folder="t", policies=policies)
    life = journal.begin_life("first seen", store.url, 1)
    for batch, file in enumerate(opened.listing.partitions[""].values(), start=1):
        planned = PlannedFile(
            name=file.name,
            size=file.size,
            etag=file.etag,
            rows=1,
            modified=file.modified.isoformat(),
            fingerprint=read_landed(source, file, decode=False).fingerprint,
        )
        drafted = Plan(
            life=life.uuid,
            batch=batch,
            attempt="a",
            zone=store.url,
            files=(planned,),
            before={"": batch - 1} if batch > 1 else {},
            after={"": batch},
            policies=policies,
            table_version=None,
            previous=None,
            listed_at=now(),
        )
        done = Done(
            outcome="applied", version=batch, table_id=None, columns=(), table_bytes=0, kind="merge", finished_at=now()
        )  # fmt: skip
        journal.write_plan(life, drafted)  # what stands there counts
        journal.write_done(life, batch, done)
    entry = journal.newest(life)
    work = SimpleNamespace(source=source, journal=journal, life=life, table="t")
    changed = changed_since(cast("Work", work), opened, entry)
    return changed, judge_changes(cast("Work", work), opened, entry, changed)


def test_a_folder_that_was_touched_costs_no_plans(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A restore or `chmod -R` lets all files come to their places anew; reading a plan a file, each poll would do it again."""
    zone, state = tmp_path / "zone", tmp_path / "state"
    for number in range(1, 103):
        put(zone, f"{number:020d}.parquet", 1)
    look(zone, state)
    for path in zone.glob("t/*.parquet"):
        path.chmod(0o600)

    monkeypatch.setattr(Journal, "entry", None)

    assert ((), "") == look(zone, state)


@pytest.mark.parametrize("metadata", [NUMBERED, BY_TIME], ids=["numbered", "by time"])
def test_behind_a_move_an_overwritten_file_is_refused(
    tmp_path: Path, metadata: dict[str, Any]
) -> None:
    """Though no batch has come from the new place yet; other times alone are nothing."""
    zone, state = tmp_path / "z1", tmp_path / "state"
    for number in (1, 2):
        put(zone, f"{number:020d}.parquet", number, metadata=metadata)
    look(zone, state)
    shutil.copytree(zone, tmp_path / "z2", copy_function=shutil.copyfile)

    assert ((), "") == look(tmp_path / "z2", state)
    put(tmp_path / "z2", f"{2:020d}.parquet", 99)
    with pytest.raises(FileChangedError, match=r"0002\.parquet: the change file holds something"):
        look(tmp_path / "z2", state)


def test_by_time_the_newest_file_is_known_by_its_name(tmp_path: Path) -> None:
    """Where a cleaner has taken the first, numbers are no longer those of the journal."""
    zone, state = tmp_path / "zone", tmp_path / "state"
    for number in (1, 2, 3):
        put(zone, f"{number:020d}.parquet", number, metadata=BY_TIME)
    look(zone, state)
    (zone / "t" / f"{FIRST}.parquet").unlink()
    written = (zone / "t" / f"{2:020d}.parquet").stat().st_mtime_ns
    second = put(zone, f"{2:020d}.parquet", 77)
    os.utime(second, ns=(written - 10**9, written - 10**9))
    (zone / "t" / "_metadata.json").touch()

    changed, evidence = look(zone, state)

    assert ((f"{2:020d}.parquet",), "") == (changed, evidence)


def test_behind_a_move_a_source_that_starts_over_is_seen(tmp_path: Path) -> None:
    """A copy whose newest file a cleaner has taken looks like one but for what the first file holds."""
    zone, state = tmp_path / "z1", tmp_path / "state"
    for number in (1, 2):
        put(zone, f"{number:020d}.parquet", number)
    look(zone, state)
    shutil.copytree(zone, tmp_path / "z2", copy_function=shutil.copyfile)
    (tmp_path / "z2" / "t" / f"{2:020d}.parquet").unlink()

    assert ((), "") == look(tmp_path / "z2", state)
    put(tmp_path / "z2", f"{FIRST}.parquet", 7)
    changed, evidence = look(tmp_path / "z2", state)

    assert (f"{FIRST}.parquet",) == changed
    assert "the source may have started over" in evidence


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["part-0.csv", "part-0.parquet", "d/part-0.json"])
def test_a_plain_file_is_its_whole_path(spark: SparkSession, tmp_path: Path, name: str) -> None:
    """A daily root with the names of yesterday's is read; and each root's files once, in whatever order they recur."""
    target = str(tmp_path / "target")
    for day in (1, 2):
        put(tmp_path / f"day{day}", name, day, metadata=None)

    for day, held in ((1, [1]), (2, [1, 2]), (1, [1, 2]), (2, [1, 2])):
        assert "current" == apply(spark, tmp_path / f"day{day}", target).state
        assert held == ids(spark, target)


@pytest.mark.thorough
def test_a_plain_folder_that_was_moved_is_proven_once_and_known_from_then_on(
    spark: SparkSession, tmp_path: Path
) -> None:
    """What was there is passed over by what it holds; later runs need not be told, and a third root is another one."""
    target, old, new = str(tmp_path / "target"), tmp_path / "old", tmp_path / "new"
    put(old, "a.csv", 1, metadata=None)
    put(old, "b.csv", 2, metadata=None)
    assert "current" == apply(spark, old, target, max_files=1).state
    old.rename(new)
    (new / "t" / "b.csv").write_text("id\n9\n")

    refused = apply(spark, new, target, moved_from=str(old))
    (new / "t" / "b.csv").write_text("id\n2\n")
    taken = apply(spark, new, target, moved_from=str(old))

    assert ("failed", "b.csv") == (refused.state, refused.file)
    assert ("current", ()) == (taken.state, taken.batches)
    put(new, "c.csv", 3, metadata=None)
    assert "current" == apply(spark, new, target).state
    assert [1, 2, 3] == ids(spark, target)
    put(tmp_path / "other", "a.csv", 4, metadata=None)
    assert "current" == apply(spark, tmp_path / "other", target).state
    assert () == apply(spark, new, target).batches
    assert [1, 2, 3, 4] == ids(spark, target)


@pytest.mark.thorough
def test_each_move_of_a_plain_folder_is_proven(spark: SparkSession, tmp_path: Path) -> None:
    """Also one that is told only once the folder's newest files are of the new root."""
    target, old, new = str(tmp_path / "target"), tmp_path / "old", tmp_path / "new"
    put(old, "a.csv", 1, metadata=None)
    put(new, "b.csv", 2, metadata=None)
    for root in (old, new):
        assert "current" == apply(spark, root, target).state
    put(new, "a.csv", 9, metadata=None)

    told = apply(spark, new, target, moved_from=str(old))

    assert ("failed", "a.csv") == (told.state, told.file)
    assert "current" == apply(spark, new, target).state
    assert [1, 2, 9] == ids(spark, target)


def test_text_is_hashed_whole_however_it_is_read(tmp_path: Path) -> None:
    """Readers go back, and may leave the end unread."""
    path = tmp_path / "text"
    path.write_bytes(bytes(range(256)) * 40)
    with path.open("rb") as file:
        hashing = Hashing(file)
        hashing.read(10)
        hashing.seek(0)
        hashing.read(100)
        told = hashing.finish()
    with path.open("rb") as file:
        assert Hashing(file).finish() == told
    path.write_bytes(b"\0" * 256 * 40)
    with path.open("rb") as file:
        assert Hashing(file).finish() != told


def test_parquet_is_told_by_its_end(tmp_path: Path) -> None:
    """Statistics stand there, and all of a small file."""
    found = set()
    for value in (1, 2):
        for statistics in (True, False):
            path = tmp_path / "file"
            rows = pa.table({"id": pa.array([value] * 10, pa.int64())})
            pq.write_table(rows, path, write_statistics=statistics, compression="none")
            with path.open("rb") as file:
                found.add(end_of(file, path.stat().st_size))
    assert 4 == len(found)


def killed_behind_its_commit(spark: SparkSession, zone: Path, target: str) -> None:
    """Apply, and die before the outcome is written down."""
    with pytest.raises(Killed):
        mirrorlib.apply(
            spark, str(zone), target, settle=0, plain_folders="append",
            observe=at("commit", "after", die),
        )  # fmt: skip


def test_another_zone_does_not_go_on_behind_a_commit_whose_runner_died(
    spark: SparkSession, tmp_path: Path
) -> None:
    """What the batch has applied counts only once its outcome is known, and is compared then."""
    target, name = str(tmp_path / "target"), f"{FIRST}.parquet"
    put(tmp_path / "z1", name, 1)
    put(tmp_path / "z2", name, 2)
    put(tmp_path / "z2", name.replace("1.", "2."), 3)
    killed_behind_its_commit(spark, tmp_path / "z1", target)

    for options in ({}, {"moved_from": str(tmp_path / "z1")}):
        refused = apply(spark, tmp_path / "z2", target, **options)

        assert ("failed", "FileChangedError", name) == (refused.state, refused.error, refused.file)
        assert [1] == ids(spark, target)


@pytest.mark.thorough
def test_a_zone_that_was_copied_behind_such_a_commit_goes_on(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What Spark has read where it lay is told by what it holds: nothing was replaced."""
    monkeypatch.setattr("mirrorlib.ingest.batch.open_batch.SMALL_BYTES", -1)
    target = str(tmp_path / "target")
    put(tmp_path / "z1", f"{FIRST}.parquet", 1)
    killed_behind_its_commit(spark, tmp_path / "z1", target)
    shutil.copytree(tmp_path / "z1", tmp_path / "z2")

    report = apply(spark, tmp_path / "z2", target, moved_from=str(tmp_path / "z1"))

    assert "current" == report.state, report.reason
    assert [1] == ids(spark, target)


@pytest.mark.thorough
def test_a_plain_folder_that_was_moved_behind_such_a_commit_is_known_from_then_on(
    spark: SparkSession, tmp_path: Path
) -> None:
    """The move is written down although the batch was the only one from the old root."""
    target, old, new = str(tmp_path / "target"), tmp_path / "old", tmp_path / "new"
    put(old, "a.csv", 1, metadata=None)
    killed_behind_its_commit(spark, old, target)
    old.rename(new)

    for options in ({"moved_from": str(old)}, {}):
        assert "current" == apply(spark, new, target, **options).state
        assert [1] == ids(spark, target)
