"""Metadata that comes to a plain folder: its table is kept, and goes on behind what was appended, each file once."""

from __future__ import annotations

import json
import shutil
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import mirrorlib
from mirrorlib.cli.main import main
from mirrorlib.errors import JournalError, MirrorError
from mirrorlib.ingest.batch.commit import carry_out
from mirrorlib.ingest.files.history import History
from mirrorlib.ingest.files.table_folder import open_folder
from mirrorlib.ingest.job import open_job, open_work
from mirrorlib.ingest.options import Options
from mirrorlib.ingest.work import Attempt
from mirrorlib.journal.disk import Journal
from mirrorlib.landing.listing import list_tables
from mirrorlib.store import open_store
from mirrorlib.store.target import Target
from mirrors import Killed, at, die
from tables import assert_feed_replays, read_rows
from zones import ZoneWriter, write_at

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from mirrorlib.ingest.report import TableReport
    from mirrorlib.ingest.work import Work

pytestmark = pytest.mark.slow

MARKER = "__rowMarker__"


def number(name: int) -> str:
    """Name a numbered file."""
    return f"{name:020d}.parquet"


def put(zone: ZoneWriter, name: str, rows: list[dict[str, object]] | str, second: float) -> Path:
    """Write a file of the table `plain`, at a second of the past."""
    path = zone.root / "plain" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(rows, str):
        path.write_text(rows)
    else:
        pq.write_table(pa.Table.from_pylist(rows), path)
    return write_at(path, second)


def declare(zone: ZoneWriter, **more: object) -> None:
    """Write `_metadata.json`."""
    told = {"keyColumns": ["id"], **more}
    (zone.root / "plain" / "_metadata.json").write_text(json.dumps(told))


def apply(spark: SparkSession, zone: ZoneWriter, target: str, **options: object) -> TableReport:
    """Apply the one table."""
    return mirrorlib.apply(spark, str(zone), target, **options).tables[0]  # type: ignore[arg-type]  # any option


def append(spark: SparkSession, zone: ZoneWriter, target: str, **options: object) -> None:
    """Append what is there, without metadata."""
    report = apply(spark, zone, target, plain_folders="append", **options)
    assert "current" == report.state, report.reason


def values(spark: SparkSession, target: str) -> list[tuple[object, object]]:
    """Read the table, sorted: id and v."""
    rows = read_rows(spark, Path(target) / "plain")
    return sorted(((row["id"], row["v"]) for row in rows), key=str)


@pytest.mark.smoke
def test_a_table_is_kept_and_goes_on_by_metadata_behind_what_was_appended(
    spark: SparkSession, zone: ZoneWriter, target: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """No file is read again, a change of a key of two rows changes both; the feed goes on."""
    put(zone, number(1), [{"id": 1, "v": "a"}, {"id": 2, "v": "b"}], 1)
    put(zone, number(2), [{"id": 2, "v": "b2"}, {"id": 3, "v": "c"}], 2)
    assert 0 == main(["apply", str(zone), target, "--plain-folders", "append"])
    declare(zone)
    put(zone, number(3), [{"id": 2, "v": "new", MARKER: 1}, {"id": 3, "v": None, MARKER: 2}], 3)
    capsys.readouterr()
    assert 1 == main(["apply", str(zone), target])
    assert "mirrorlib reset TARGET plain --keep" in capsys.readouterr().out
    with pytest.raises(SystemExit) as wrong:
        main(["reset", target, "plain", "--keep", "--start-at", "3"])
    assert 2 == wrong.value.code

    codes = [main(["reset", target, "plain", "--keep"]) for _ in range(2)]
    told = capsys.readouterr().out
    planned = mirrorlib.plan(spark, str(zone), target).tables[0]
    waiting = mirrorlib.status(target).tables[0]
    found = apply(spark, zone, target)

    assert [0, 0] == codes
    assert 2 == told.count("plain begins life 2: its rows stay")
    assert (1, 2, number(3), ()) == (
        planned.files,
        planned.rows,
        planned.first_file,
        planned.schema_changes,
    )
    assert ("behind", 1) == (waiting.state, waiting.unapplied)
    assert ("current", 3, 1) == (found.state, found.position, len(found.batches)), found.reason
    assert [(1, "a"), (2, "new"), (2, "new")] == values(spark, target)
    assert_feed_replays(spark, Path(target) / "plain")
    assert "current" == mirrorlib.status(target).tables[0].state
    with pytest.raises(JournalError, match="there is nothing to keep"):
        mirrorlib.reset(spark, target, "plain", keep=True)


@pytest.mark.thorough
def test_a_table_is_kept_where_its_zone_was_moved_to(
    spark: SparkSession, zone: ZoneWriter, target: str
) -> None:
    """Before any batch has come from there."""
    put(zone, number(1), [{"id": 1, "v": "a"}], 1)
    append(spark, zone, target)
    moved = ZoneWriter(zone.root.parent / "moved")
    shutil.copytree(zone.root, moved.root, dirs_exist_ok=True)
    append(spark, moved, target, moved_from=str(zone))
    declare(moved)
    put(moved, number(2), [{"id": 1, "v": "new", MARKER: 1}], 2)

    life = mirrorlib.reset(spark, target, "plain", keep=True)
    refused = apply(spark, moved, target)
    found = apply(spark, moved, target, moved_from=str(zone))

    assert open_store(str(moved)).url == life.zone
    assert "--moved-from" in refused.reason
    assert ("current", 2) == (found.state, found.position), found.reason
    assert [(1, "new")] == values(spark, target)


@pytest.mark.thorough
def test_files_that_nobody_has_applied_are_not_cleaned_up(
    spark: SparkSession, zone: ZoneWriter, target: str
) -> None:
    """Those that the plain folder had when it was first seen count for nothing behind it, either."""
    put(zone, number(1), [{"id": 1, "v": "a"}], 1)
    apply(spark, zone, target, plain_folders="append", include_existing=False)
    put(zone, number(2), [{"id": 2, "v": "b"}], 2)
    append(spark, zone, target)
    declare(zone)
    put(zone, number(3), [{"id": 3, "v": "c", MARKER: 0}], 3)
    mirrorlib.reset(spark, target, "plain", keep=True)

    found = apply(spark, zone, target, cleanup="move")

    assert ("current", 3) == (found.state, found.position), found.reason
    left = sorted(path.name for path in (zone.root / "plain").glob("*.parquet"))
    assert [number(1), number(3)] == left


@pytest.mark.thorough
def test_files_without_numbers_go_on_by_name(
    spark: SparkSession, zone: ZoneWriter, target: str
) -> None:
    """What was appended, and what was left out at first sight, is not read; one that comes late is."""
    put(zone, "left out.parquet", [{"id": 0, "v": "old"}], 1)
    apply(spark, zone, target, plain_folders="append", include_existing=False)
    put(zone, "b.parquet", [{"id": 1, "v": "a"}], 5)
    append(spark, zone, target)
    declare(
        zone, fileDetectionStrategy="LastUpdateTimeFileDetection", isUpsertDefaultRowMarker=True
    )
    put(zone, "a.parquet", [{"id": 1, "v": "late"}], 4)
    put(zone, "c.parquet", [{"id": 2, "v": "new"}], 6)

    mirrorlib.reset(spark, target, "plain", keep=True)
    reports = [apply(spark, zone, target, max_files=1) for _ in range(2)]

    assert [("current", 2), ("current", 0)] == [(one.state, len(one.batches)) for one in reports]
    assert [(1, "late"), (2, "new")] == values(spark, target)
    (zone.root / "plain" / "_metadata.json").unlink()
    assert "waiting" == apply(spark, zone, target, plain_folders="append").state


@pytest.mark.thorough
def test_the_first_number_counts_where_no_appended_file_had_one(
    spark: SparkSession, zone: ZoneWriter, target: str
) -> None:
    """And in each partition folder what follows on its own; nothing of the table is replaced."""
    put(zone, "LOAD7.parquet", [{"id": 1, "v": "a"}], 1)
    put(zone, f"Region=eu/{number(1)}", [{"id": 2, "v": "b"}], 2)
    append(spark, zone, target)
    declare(zone, isPartitionEnabled=True)
    put(zone, f"Region=eu/{number(2)}", [{"id": 2, "v": "b2", MARKER: 4}], 3)
    put(zone, f"Region=us/{number(1)}", [{"id": 3, "v": "c", MARKER: 0}], 4)
    put(zone, number(1), [{"id": 1, "v": "a2", MARKER: 4}], 5)

    mirrorlib.reset(spark, target, "plain", keep=True)
    found = apply(spark, zone, target, start_at=2)

    assert "current" == found.state, found.reason
    assert [(1, "a2"), (2, "b2"), (3, "c")] == values(spark, target)


def test_what_would_lose_or_double_a_row_is_refused_and_nothing_is_written(
    spark: SparkSession, zone: ZoneWriter, target: str
) -> None:
    """A missing key column, a missing number, a file that neither way would read, no metadata."""
    for name, second in ((number(1), 1), (number(2), 2), (number(5), 5)):
        put(zone, name, [{"id": second, "v": "a"}], second)
    append(spark, zone, target)

    def refused() -> str:
        with pytest.raises(JournalError) as caught:
            mirrorlib.reset(spark, target, "plain", keep=True)
        return str(caught.value)

    assert "has no _metadata.json" in refused()
    declare(zone, keyColumns=["key"])
    assert "column key" in (told := refused())
    assert "lacks a key column" in told
    declare(zone)
    assert "number 3" in (told := refused())
    assert "a number is missing" in told
    declare(zone, fileDetectionStrategy="LastUpdateTimeFileDetection")
    put(zone, "late.csv", "id,v\n9,x\n", 6)
    assert "late.csv" in (told := refused())
    assert "would not be read by _metadata.json either" in told
    (name,) = list_tables(open_store(str(zone)))
    journal = Journal(open_store(f"{target}/_mirrorlib"), name)
    assert 1 == len(journal.lives())
    with pytest.raises(ValueError, match="exclude each other"):
        mirrorlib.reset(spark, target, "plain", keep=True, start_at=2)


def begin_and_die(spark: SparkSession, zone: ZoneWriter, target: str, step: str, when: str) -> None:
    """Append two files, keep the table, publish a third, and die at a step of the first run."""
    for place in (1, 2):
        put(zone, number(place), [{"id": 1, "v": f"appended {place}"}], place)
    append(spark, zone, target)
    declare(zone)
    put(zone, number(3), [{"id": 2, "v": "new", MARKER: 0}], 3)
    mirrorlib.reset(spark, target, "plain", keep=True)

    with pytest.raises(Killed):
        apply(spark, zone, target, observe=at(step, when, die))


@pytest.mark.thorough
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("step", ["fence", "read", "plan", "guard", "stage", "commit", "done"])
def test_killed_at_any_step_every_file_has_one_effect(
    spark: SparkSession, zone: ZoneWriter, target: str, step: str, when: str
) -> None:
    """The next run ends right, and so does a reset that is asked for again before the life has begun."""
    begin_and_die(spark, zone, target, step, when)
    put(zone, number(4), [{"id": 3, "v": "newer", MARKER: 0}], 4)
    with suppress(JournalError):  # once the life has begun
        mirrorlib.reset(spark, target, "plain", keep=True)

    found = apply(spark, zone, target)

    assert ("current", 4) == (found.state, found.position), found.reason
    expected = [(1, "appended 1"), (1, "appended 2"), (2, "new"), (3, "newer")]
    assert expected == values(spark, target)
    assert 2 == mirrorlib.status(target).tables[0].life
    assert_feed_replays(spark, Path(target) / "plain")


def open_runner(spark: SparkSession, zone: ZoneWriter, target: str) -> Work:
    """Begin as a runner that no lock keeps off, as on a store that needs none."""
    options = Options(plain_folders="append")
    job = open_job(spark, str(zone), Target.of(target, catalog=None, state=None), options)
    folder = next(iter(list_tables(job.zone)))
    journal = Journal(job.state, folder)
    history = History(journal, job.zone.url)
    opened = open_folder(job.zone, folder, history, options=options)
    session = spark.newSession()
    session.conf.set("spark.sql.session.timeZone", "UTC")
    work = open_work(job, session, folder, opened, journal.lives())
    return replace(work, state=open_store(f"{target} staged elsewhere"))


@pytest.mark.thorough
@pytest.mark.parametrize("late", [False, True], ids=["before", "behind"])
def test_a_slow_runner_of_the_old_life_doubles_and_loses_nothing(
    spark: SparkSession, zone: ZoneWriter, target: str, *, late: bool
) -> None:
    """What it commits before the new life's fence counts as appended; behind the fence it commits nothing more."""
    put(zone, number(1), [{"id": 1, "v": "a"}], 1)
    append(spark, zone, target)
    put(zone, number(2), [{"id": 2, "v": "b"}], 2)

    with pytest.raises(Killed):
        apply(spark, zone, target, plain_folders="append", observe=at("plan", "after", die))
    runner = open_runner(spark, zone, target)
    plan = runner.journal.entry(runner.life, 2).plan
    declare(zone)
    put(zone, number(3), [{"id": 3, "v": "c", MARKER: 0}], 3)
    with pytest.raises(JournalError, match="batch 2 of a run that was stopped has no outcome"):
        mirrorlib.reset(spark, target, "plain", keep=True)
    # As if that run had planned only after the reset had looked.
    runner.journal.begin_life("reset", runner.source.zone.url, 2, keeps=True)
    if not late:
        carry_out(Attempt(work=runner, plan=plan), None)
        next(Path(target).rglob("*-2.done.json")).unlink()

    found = apply(spark, zone, target)
    if late:
        with pytest.raises(MirrorError, match="the table was reset meanwhile"):
            carry_out(Attempt(work=runner, plan=plan), None)

    assert ("current", 3) == (found.state, found.position), found.reason
    assert [(1, "a"), (2, "b"), (3, "c")] == values(spark, target)
    assert "current" == apply(spark, zone, target).state


@pytest.mark.thorough
def test_a_kept_table_knows_its_zone_by_what_was_appended(
    spark: SparkSession, zone: ZoneWriter, target: str
) -> None:
    """The zone may be moved, by what its files hold; another zone is refused by the file that differs."""
    put(zone, number(1), [{"id": 1, "v": "a"}], 1)
    append(spark, zone, target)
    declare(zone)
    mirrorlib.reset(spark, target, "plain", keep=True)
    moved = ZoneWriter(zone.root.rename(zone.root.with_name("moved")))
    put(moved, number(2), [{"id": 2, "v": "b", MARKER: 0}], 2)
    kept = (moved.root / "plain" / number(1)).read_bytes()
    put(moved, number(1), [{"id": 7, "v": "x"}], 1)
    refused = apply(spark, moved, target)
    assert "failed" == refused.state
    assert "holds something else" in refused.reason
    (moved.root / "plain" / number(1)).write_bytes(kept)

    found = apply(spark, moved, target)

    assert ("current", 2) == (found.state, found.position), found.reason
    assert [(1, "a"), (2, "b")] == values(spark, target)
