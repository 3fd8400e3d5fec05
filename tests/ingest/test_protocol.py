"""Break the commit protocol: damage, replacement, slow runners, resets, other people's writes, and a history cut short.

Each test is one interleaving on a real Delta table, made by doing something at one step of a run. What counts is the end: the
table holds what its publisher meant, each file's effect once, or the run says what is wrong and has touched nothing.
"""

from __future__ import annotations

import logging
import os
import shutil
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext, suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import pyarrow as pa
import pytest

import mirrorlib
from computes import SERVERLESS
from mirrorlib.commit.merge import commit_staged
from mirrorlib.delta import sessions
from mirrorlib.delta.log import FileLog
from mirrorlib.delta.table import find_table
from mirrorlib.errors import TableBusyError
from mirrorlib.ingest.batch.commit import carry_out
from mirrorlib.ingest.batch.open_batch import prepare_again
from mirrorlib.ingest.work import Attempt
from mirrorlib.store import LocalStore
from mirrors import KEYS, Killed, Mirror, at, die
from oracle import assert_same_rows, multiset
from tables import read_rows
from zones import ZoneWriter, damage_pages

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from mirrorlib.events import Event
    from mirrorlib.ingest.report import TableReport

pytestmark = pytest.mark.slow
TRANSACTIONS = "delta.setTransactionRetentionDuration"


@pytest.fixture
def by_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let Spark read every batch, as it does large ones."""
    monkeypatch.setattr("mirrorlib.ingest.batch.open_batch.SMALL_BYTES", -1)


# Damage


def test_a_small_batch_with_a_damaged_page_is_never_planned(mirror: Mirror) -> None:
    """A page damaged behind a good footer stops the table before its file; the files before it are applied."""
    mirror.publish()
    damage_pages(mirror.publish())

    report = mirror.assert_failed("ChangeFileError", mirror.file_name(4))

    assert (mirror.file_name(4), 3, 3) == (report.file, report.position, mirror.plans())
    mirror.assert_holds(3)


@pytest.mark.thorough
def test_a_repaired_file_is_read_by_itself(mirror: Mirror) -> None:
    """The same name with good pages is all that it takes to go on."""
    damage_pages(mirror.publish())
    mirror.assert_failed("ChangeFileError", mirror.file_name(3))

    mirror.replace(3)

    mirror.assert_current()


@pytest.mark.usefixtures("by_spark")
def test_a_large_batch_with_a_damaged_page_is_voided_and_its_good_files_applied(
    mirror: Mirror,
) -> None:
    """What Spark finds while it decodes voids the plan; the next plan ends before the damaged file."""
    mirror.publish()
    damage_pages(mirror.publish())

    report = mirror.assert_failed("ChangeFileError", mirror.file_name(4))

    assert ("void", "applied") == (mirror.outcome(3)["outcome"], mirror.outcome(4)["outcome"])
    assert (mirror.file_name(4), 3) == (report.file, report.position)
    mirror.assert_holds(3)


@pytest.mark.thorough
@pytest.mark.usefixtures("by_spark")
def test_what_spark_appends_by_itself_counts_for_the_tables_size(fresh: Mirror) -> None:
    """By which the rewrite limit is held, and a batch is taken for a small one."""
    sizes = []
    for number in (1, 2, 3):
        fresh.publish([{"id": number, "v": "x"}], [0])
        fresh.assert_current()
        sizes.append(sum(file.stat().st_size for file in fresh.path.glob("*.parquet")))

    assert sizes == [fresh.outcome(batch)["table_bytes"] for batch in (1, 2, 3)]


@pytest.mark.thorough
def test_what_is_updated_again_and_again_does_not_count_as_growth(
    fresh: Mirror, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where no log tells a size, as that of a table whose folder is closed, the sum is looked at once it has doubled."""
    monkeypatch.setattr(FileLog, "table_bytes", lambda *_: None)
    for letter in "abcd":
        fresh.publish([{"id": 1, "v": letter * 100_000}], [4])

    fresh.assert_current(max_files=1)

    assert fresh.outcome(4)["table_bytes"] < 100_000


@pytest.mark.thorough
def test_what_a_killed_run_has_left_is_carried_out_by_the_tables_size(
    mirror: Mirror, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A small batch into a large table is another commit than into a small one, whoever began it."""
    mirror.publish()
    mirror.run_until("plan", "after")
    sizes = []

    def commit(*args: Any, **options: Any) -> None:
        sizes.append(options["table_bytes"])
        commit_staged(*args, **options)

    monkeypatch.setattr("mirrorlib.ingest.batch.commit.commit_staged", commit)

    mirror.assert_current()

    assert [mirror.outcome(2)["table_bytes"]] == sizes


@pytest.mark.thorough
def test_what_a_killed_run_has_staged_is_removed_where_no_lock_tells_that_it_is_gone(
    mirror: Mirror,
) -> None:
    """As in an object store; what another runner may be at is left alone."""
    place = mirror.path.parent / "_mirrorlib" / "staged" / "tables" / "orders"
    today = datetime.now(UTC).date()
    old, new = (place / f"{today - timedelta(days=days)}-killed" for days in (2, 0))
    mirror.publish()

    mirror.assert_current(
        observe=at("plan", "after", lambda: (old.mkdir(parents=True), new.mkdir()))
    )

    assert [new] == list(place.iterdir())


@pytest.mark.thorough
@pytest.mark.usefixtures("by_spark")
def test_two_files_that_voided_plans_are_both_left_alone(fresh: Mirror) -> None:
    """Each in its partition folder, until it changes: an unchanged zone makes no more plans."""
    table = fresh.zone.table("parted", keys=["id"], metadata={"isPartitionEnabled": True})
    for part in ("A=1", "B=1"):
        damage_pages(table.file([{"id": 1, "v": part}], [0], number=1, partition=part))
    first = apply_one(fresh, "parted")
    plans = {path.name for path in plans_of(fresh, "parted")}

    second = apply_one(fresh, "parted")

    assert ["failed"] * 2 == [first.state, second.state]
    assert plans == {path.name for path in plans_of(fresh, "parted")}
    assert 2 == len(plans)


def apply_one(mirror: Mirror, name: str) -> TableReport:
    """Apply one table; give its report."""
    zone = str(mirror.zone.root)
    (report,) = mirrorlib.apply(mirror.spark, zone, mirror.target, tables=[name]).tables
    return report


def plans_of(mirror: Mirror, name: str) -> list[Path]:
    """List the plans of a table's first life."""
    return sorted(
        (Path(mirror.target) / "_mirrorlib/journal" / name / "000001").glob("*.plan.json")
    )


@pytest.mark.thorough
@pytest.mark.usefixtures("by_spark")
def test_a_file_that_voided_a_plan_is_left_alone_until_it_changes(mirror: Mirror) -> None:
    """An unchanged file is not tried again; --retry decodes it first; a repaired one is simply read."""
    damage_pages(mirror.publish())
    mirror.assert_failed("ChangeFileError")
    before = (mirror.plans(), mirror.newest)

    mirror.assert_failed("ChangeFileError", mirror.file_name(3))
    mirror.assert_failed("ChangeFileError", mirror.file_name(3), retry=True)
    assert before == (mirror.plans(), mirror.newest)

    mirror.replace(3)
    mirror.publish()
    mirror.assert_current()
    mirror.assert_feed()


@pytest.mark.thorough
@pytest.mark.parametrize("column", ["v", "a b"])
@pytest.mark.parametrize("how", ["damaged", "replaced"])
@pytest.mark.usefixtures("by_spark")
def test_a_first_batch_that_is_voided_leaves_no_trace_in_the_columns(
    fresh: Mirror, how: str, column: str
) -> None:
    """A void needs a table to stand in; the first good batch replaces its columns, with column mapping too."""
    path = fresh.publish([{"id": 1, "old": "x"}], [0])
    if how == "damaged":
        damage_pages(path)
        fresh.assert_failed("ChangeFileError", fresh.file_name(1))
    else:
        fresh.run_until("plan", "after")
    fresh.replace(1, [{"id": 1, column: "x"}, {"id": 2, column: "y"}], [0, 0])
    fresh.assert_current()

    assert "void" == fresh.outcome(1)["outcome"]
    assert ["id", column] == fresh.spark.read.format("delta").load(str(fresh.path)).columns
    if column == "a b":  # whose columns are dropped before the rows come
        feed = mirrorlib.read_feed(fresh.spark, str(fresh.path), after=-1)
        assert [(1, "insert"), (2, "insert")] == sorted(feed.select("id", "_change_type").collect())


# Files that change under a run


@pytest.mark.thorough("large-*", "small-stage-before", "small-commit-after", "small-stage-after")
@pytest.mark.parametrize(
    "step, when",
    [("plan", "after"), ("stage", "before"), ("stage", "after"), ("commit", "after")],
)
def test_a_file_replaced_during_a_run_counts_once_as_one_of_the_two(
    mirror: Mirror, road: str, step: str, when: str
) -> None:
    """Either the planned content is applied, and the other is not passed over in silence, or the plan is voided and the new content is."""
    mirror.publish()
    planned = mirror.files[2]

    report = mirror.run(observe=at(step, when, lambda: mirror.replace(3)))

    if mirror.outcome(3)["outcome"] == "applied":
        mirror.files[2] = planned
        assert ("failed", mirror.file_name(3)) == (report.state, report.file), road
        mirror.table.path(3).unlink()
    else:
        assert "current" == report.state, (road, report.reason)
    mirror.publish()
    mirror.assert_current()


@pytest.mark.thorough
@pytest.mark.usefixtures("by_spark")
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_file_replaced_before_it_is_staged_voids_its_plan(mirror: Mirror, when: str) -> None:
    """A large batch is read after it is planned, so its files are looked at again."""
    mirror.publish()
    step = ("stage", "before") if when == "before" else ("guard", "after")

    mirror.run(observe=at(*step, lambda: mirror.replace(3)))

    assert "void" == mirror.outcome(3)["outcome"]
    mirror.assert_current()


@pytest.mark.usefixtures("by_spark")
def test_a_file_replaced_while_spark_appends_it_is_told(mirror: Mirror) -> None:
    """Inserts alone are read from the landing zone by the commit itself: nobody may take that for the planned content in silence."""
    mirror.publish([{"id": 50, "v": "planned"}], [0])

    report = mirror.run(
        observe=at("commit", "before", lambda: mirror.replace(3, [{"id": 51, "v": "other"}], [0]))
    )

    assert ("failed", 3, mirror.file_name(3)) == (report.state, report.position, report.file)
    assert "may be in it either way" in report.reason


@pytest.mark.thorough("False")
@pytest.mark.usefixtures("by_spark")
@pytest.mark.parametrize("killed", [False, True])
def test_a_table_in_doubt_stays_so_until_it_is_reset(
    mirror: Mirror,
    killed: bool,  # a case of the test
) -> None:
    """No later run, whoever carried out the plan, takes back that one of two contents was appended."""
    mirror.publish([{"id": 50, "v": "planned"}], [0])
    replace_it = at("commit", "before", lambda: mirror.replace(3, [{"id": 51, "v": "new"}], [0]))

    def observe(event: Event) -> None:
        replace_it(event)
        if killed and (event.step, event.when) == ("commit", "after"):
            raise Killed

    with pytest.raises(Killed) if killed else nullcontext():
        mirror.apply(observe=observe)
    mirror.publish()

    report = mirror.assert_failed("FileChangedError", mirror.file_name(3))

    planned = mirrorlib.plan(mirror.spark, str(mirror.zone), mirror.target).tables[0]
    (mirror.journal / "status.json").unlink()
    status = mirrorlib.status(mirror.target).tables[0]
    assert {("failed", report.reason)} == {(t.state, t.reason) for t in (report, planned, status)}
    assert 3 == report.position
    mirror.reset()
    mirror.assert_current()


@pytest.mark.thorough
def test_a_file_removed_between_plan_and_commit_is_awaited(mirror: Mirror, road: str) -> None:
    """A removed file is applied from memory or its plan is voided; put back as it was, it is read without --retry."""
    path = mirror.publish()
    kept = path.with_name("_kept")

    mirror.run(observe=at("plan", "after", lambda: path.rename(kept)))

    assert ("applied" if road == "small" else "void") == mirror.outcome(3)["outcome"]
    kept.rename(path)
    mirror.assert_current()


def test_an_applied_file_that_was_replaced_by_an_older_one_is_told(
    mirror: Mirror, tmp_path: Path
) -> None:
    """It was moved there with its old time; one that came back from a backup is what it was."""
    first = mirror.table.path(1)
    written = first.stat().st_mtime_ns
    shutil.copy2(first, tmp_path / "backup").replace(first)
    assert () == mirror.run().warnings

    os.utime(mirror.replace(1), ns=(written, written - 1))

    told = f"changed since is not read again: {first.name} (1 in all)"
    assert told in mirror.run().warnings[0]


def test_applied_files_that_were_replaced_are_told_by_one_sentence(mirror: Mirror) -> None:
    """A publisher that writes all anew would fill report and status with it."""
    while len(mirror.files) < 6:
        mirror.publish()
    mirror.run()
    for number in range(1, 6):
        mirror.replace(number)

    (told,) = mirror.run().warnings

    assert told.endswith(f" {', '.join(map(mirror.file_name, (1, 2, 3)))} … (5 in all)")


@pytest.mark.thorough
def test_an_applied_file_that_is_overwritten_during_a_run_is_told(mirror: Mirror) -> None:
    """The listing behind a batch shows it, and the next plan would take it for known."""
    meant = mirror.files[1]
    mirror.publish()

    def overwrite() -> None:
        mirror.replace(2)
        mirror.publish()

    found = mirror.run(observe=at("commit", "before", overwrite))

    mirror.files[1] = meant
    mirror.assert_holds()
    told = f"what was applied and has been changed since is not read again: {mirror.file_name(2)} (1 in all)"
    assert ("current", 4, (told,)) == (found.state, found.position, found.warnings)


@pytest.mark.thorough
def test_a_source_that_starts_over_during_a_run_stops_the_table(mirror: Mirror) -> None:
    """What it publishes then continues nothing, though its numbers do."""
    mirror.publish()
    meant = list(mirror.files)

    def start_over() -> None:
        mirror.drop_and_publish(4)
        mirror.table.metadata(keys=KEYS)

    found = mirror.run(observe=at("commit", "before", start_over))

    assert ("blocked", 3) == (found.state, found.position)
    assert "the source may have started over" in found.reason
    mirror.files = meant
    mirror.assert_holds()
    assert "the source may have started over" in mirror.run().reason
    mirror.assert_holds()


@pytest.mark.thorough
def test_a_file_from_a_clock_ahead_of_ours_stays_known(mirror: Mirror) -> None:
    """A later batch of older files does not make it look as if it had been changed since."""
    ahead = mirror.publish()
    moment = ahead.stat().st_mtime + 3600
    os.utime(ahead, (moment, moment))
    mirror.assert_current()
    for _ in range(2):
        mirror.publish()
        mirror.assert_current()

    assert () == mirror.assert_current().warnings
    ahead.write_bytes(ahead.read_bytes() + b" ")
    os.utime(ahead, (moment + 1, moment + 1))
    assert ahead.name in " ".join(mirror.assert_current().warnings)


@pytest.mark.thorough
@pytest.mark.usefixtures("road")
def test_a_planned_file_that_was_replaced_while_no_runner_lived_voids_the_plan(
    mirror: Mirror,
) -> None:
    """The runner dies behind its plan; who comes next finds another file and plans again."""
    mirror.publish()
    mirror.run_until("plan", "after")
    mirror.replace(3)

    mirror.assert_current()

    assert ("void", "applied") == (mirror.outcome(3)["outcome"], mirror.outcome(4)["outcome"])


@pytest.mark.thorough
def test_a_planned_file_that_was_gone_for_a_while_is_read_when_it_is_back(mirror: Mirror) -> None:
    """A file that was moved away and back is as good as before: its plan is void, the file is not damaged."""
    path = mirror.publish()
    mirror.run_until("plan", "after")
    kept = path.rename(path.with_name("_kept"))
    mirror.run()
    kept.rename(path)

    mirror.assert_current()


def test_a_store_that_fails_while_a_file_is_read_damages_nothing(
    mirror: Mirror, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A connection that breaks while a planned file is read again is no damage: the plan stays and is carried out."""
    mirror.publish()
    mirror.run_until("plan", "after")
    whole = LocalStore.open_file
    with monkeypatch.context() as broken:
        broken.setattr(LocalStore, "open_file", lambda self, path: break_off(whole(self, path)))
        mirror.assert_failed("StoreError")

    mirror.assert_current()
    assert "applied" == mirror.outcome(3)["outcome"]


def break_off(file: Any) -> Any:
    """Let the connection behind a file break after its footer was read."""
    file._file = _Broken(file._file)
    return file


class _Broken:
    """A connection that breaks."""

    def __init__(self, file: Any) -> None:
        self._file = file
        self._reads = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def read(self, size: int = -1) -> Any:
        self._reads += 1
        if self._reads > 2:
            msg = "connection reset by peer"
            raise OSError(msg)
        return self._file.read(size)


@pytest.mark.thorough
def test_a_table_value_that_no_wider_type_holds_fails_the_file_once(mirror: Mirror) -> None:
    """The table's own value stands against a rewrite: that file is named, good ones before it are applied, nothing is tried forever."""
    mirror.publish([{"id": 60, "v": "x", "n": 2**53 + 1}], [0])
    mirror.assert_current()
    mirror.publish()
    mirror.publish([{"id": 61, "v": "x", "n": 1.5}], [0])

    mirror.assert_failed("SchemaError", mirror.file_name(5), "column n")
    mirror.assert_holds(4)
    plans = mirror.plans()
    mirror.assert_failed("SchemaError", mirror.file_name(5), "column n")
    assert plans == mirror.plans()
    mirror.assert_failed("SchemaError", mirror.file_name(5), "column n", retry=True)

    mirror.replace(5, [{"id": 61, "v": "x", "n": 15}], [0])
    mirror.assert_current()


# Slow runners

Batch = tuple[list[dict[str, object]], list[int]]
KINDS: dict[str, Batch | None] = {
    "merge": None,
    "append": ([{"id": 100, "v": "more"}, {"id": 70, "v": "new"}], [0, 0]),
    "matched-only": ([{"id": 1, "v": None}, {"id": 100, "v": None}], [2, 2]),
}


def publish_kind(mirror: Mirror, kind: str) -> None:
    """Publish a file that makes a commit of one kind."""
    content = KINDS[kind]
    mirror.publish(*content) if content else mirror.publish()


def carry_slowly(
    mirror: Mirror,
    batch: int,
    step: tuple[str, str],
    meanwhile: Callable[[], object],
) -> str:
    """Carry a batch's plan out as a runner that opened its files long ago, and do something at one of its steps."""
    work = mirror.open_work()
    plan = mirror.plan(work, batch)
    prepared = prepare_again(Attempt(work=work, plan=plan), find_table(work.spark, work.ref))
    return carry_out(
        Attempt(work=replace(work, observe=at(*step, meanwhile)), plan=plan), prepared
    ).outcome


SLOW_STEPS = [("guard", "before"), ("guard", "after"), ("stage", "after"), ("commit", "before")]


@pytest.mark.smoke
@pytest.mark.thorough("guard-*", "stage-after")
@pytest.mark.parametrize("step", SLOW_STEPS, ids="-".join)
def test_a_slow_runner_never_carries_out_a_voided_plan(
    mirror: Mirror, step: tuple[str, str]
) -> None:
    """Whenever the other runner voids the plan, the slow one finds that out by the commit that stands in its place."""
    mirror.publish()
    mirror.run_until("plan", "after")

    def void() -> None:
        mirror.replace(3)
        mirror.assert_current()
        mirror.forget(3)

    assert "void" == carry_slowly(mirror, 3, step, void)
    assert "void" == mirror.outcome(3)["outcome"]
    mirror.assert_holds()
    mirror.publish()
    mirror.assert_current()


@pytest.mark.thorough
@pytest.mark.parametrize("end", ["void", "fence"])
def test_a_slow_runner_rewrites_nothing_after_the_end_of_its_plan(mirror: Mirror, end: str) -> None:
    """Making way for a batch is as forbidden as the batch: its rows are of a moment that has passed."""
    mirror.publish([{"id": 60, "v": "x", "n": 1}], [0])
    mirror.assert_current()
    mirror.publish([{"id": 61, "v": "x", "n": 1.5}], [0])
    mirror.run_until("plan", "after")

    def void() -> None:
        mirror.replace(4, [{"id": 61, "v": "better", "n": 2}], [0])
        mirror.publish([{"id": 62, "v": "later", "n": 3}], [0])
        mirror.assert_current()

    def fence() -> None:
        mirror.reset()
        mirror.replace(4, [{"id": 61, "v": "better", "n": 2}], [0])
        mirror.assert_current()

    action = {"void": void, "fence": fence}[end]
    with suppress(TableBusyError):
        assert "void" == carry_slowly(mirror, 4, ("rewrite", "before"), action)

    mirror.assert_holds()
    assert "rewrite" not in [said.get("outcome") for _, said in mirror.commits()]
    mirror.publish()
    mirror.assert_current()


@pytest.mark.thorough
@pytest.mark.parametrize("kind", ["append", "matched-only"])
def test_a_slow_runner_skips_a_voided_plan_whatever_its_commit_is(
    mirror: Mirror, kind: str
) -> None:
    """MERGE, append and delete alike are skipped by Delta once the void is recorded."""
    publish_kind(mirror, kind)
    mirror.run_until("plan", "after")

    def void() -> None:
        mirror.replace(3, [{"id": 80, "v": "other"}], [0])
        mirror.assert_current()

    assert "void" == carry_slowly(mirror, 3, ("commit", "before"), void)
    mirror.assert_holds()


@pytest.mark.smoke
@pytest.mark.thorough("merge-step[123]", "append-*", "matched-only-*")
@pytest.mark.parametrize(
    "kind, step",
    [
        *(("merge", step) for step in SLOW_STEPS),
        *((kind, SLOW_STEPS[-1]) for kind in ("append", "matched-only")),
    ],
)
def test_a_slow_runner_has_no_second_effect(
    mirror: Mirror, kind: str, step: tuple[str, str]
) -> None:
    """The other runner carries the same plan out first; its word in the journal is lost, so the commit is looked up."""
    publish_kind(mirror, kind)
    mirror.run_until("plan", "after")

    def overtake() -> None:
        mirror.assert_current()
        mirror.forget(3)

    assert "applied" == carry_slowly(mirror, 3, step, overtake)
    mirror.assert_holds()
    assert mirror.newest == mirror.outcome(3)["version"]


@pytest.mark.thorough
def test_a_slow_runner_has_no_second_effect_on_a_first_batch(fresh: Mirror) -> None:
    """The first batch replaces the table; replacing it twice would lose what came between."""
    fresh.publish()
    fresh.run_until("plan", "after")

    def overtake() -> None:
        fresh.assert_current()
        fresh.publish()
        fresh.assert_current()

    assert "applied" == carry_slowly(fresh, 1, ("commit", "before"), overtake)
    fresh.assert_holds()


@pytest.mark.thorough
def test_a_slow_runner_of_an_older_batch_comes_too_late(mirror: Mirror) -> None:
    """Several batches on, the plan is still found to be applied."""
    mirror.publish()
    mirror.run_until("plan", "after")

    def overtake() -> None:
        for _ in range(2):
            mirror.publish()
            mirror.assert_current(max_files=1)
        mirror.forget(3)

    assert "applied" == carry_slowly(mirror, 3, ("commit", "before"), overtake)
    mirror.assert_holds()
    mirror.publish()
    mirror.assert_current()


@pytest.mark.smoke
@pytest.mark.thorough("done-before")
@pytest.mark.parametrize("step, when", [("commit", "after"), ("done", "before")])
def test_a_commit_whose_runner_died_is_looked_up(mirror: Mirror, step: str, when: str) -> None:
    """The commit went through and nobody wrote that down: the next runner reads it from the commit."""
    mirror.publish()
    mirror.run_until(step, when)
    mirror.publish()

    report = mirror.assert_current()

    assert [3, 4] == [batch.batch for batch in report.batches]
    mirror.assert_feed()


@pytest.mark.smoke
@pytest.mark.usefixtures("by_spark")
def test_a_void_whose_runner_died_is_looked_up(mirror: Mirror) -> None:
    """The void went through and nobody wrote that down: the next runner must not take it for applied."""
    damage_pages(mirror.publish())
    mirror.run_until("void", "after")

    report = mirror.assert_failed("ChangeFileError", mirror.file_name(3))

    assert (2, "void") == (report.position, mirror.outcome(3)["outcome"])
    mirror.replace(3)
    mirror.assert_current()


@pytest.mark.thorough
@pytest.mark.parametrize("case", ["files", "bytes", "killed"])
def test_a_retry_in_smaller_batches_voids_a_larger_plan(mirror: Mirror, case: str) -> None:
    """One that was too large for memory would be carried out first, for ever, whatever the limits are."""
    for _ in range(3):
        mirror.publish()
    mirror.run_until("stage", "before")
    less = {"max_bytes": 1} if case == "bytes" else {"max_files": 1}
    limits: dict[str, Any] = {**less, "retry": True}
    mirror.assert_foreseen(state="behind", **limits)
    if case == "killed":
        with pytest.raises(Killed):
            mirror.apply(observe=at("void", "after", die), **limits)

    report = mirror.assert_current(**limits)

    assert [1, 1, 1] == [batch.files for batch in report.batches]
    assert [4, 5, 6] == [batch.batch for batch in report.batches]
    assert "void" == mirror.outcome(3)["outcome"]
    assert "more than a batch may hold now" in mirror.outcome(3)["cause"]["reason"]
    mirror.assert_feed()


@pytest.mark.thorough
@pytest.mark.parametrize("first", [False, True], ids=["", "first"])
def test_a_plan_within_the_limits_or_of_a_table_that_starts_over_is_carried_out(
    mirror: Mirror, first: bool
) -> None:
    """A table that starts over is replaced by all files at once; and one file is a batch, whatever its size."""
    if first:
        mirror.reset()
    mirror.publish()
    mirror.run_until("stage", "before")
    mirror.publish()

    report = mirror.assert_current(max_files=1, max_bytes=1, retry=True)

    assert [3 if first else 1, 1] == [batch.files for batch in report.batches]


@pytest.mark.thorough
def test_the_first_plan_of_a_table_is_made_smaller_too(fresh: Mirror) -> None:
    """The table that the void has to stand in gets the columns of its first rows."""
    for _ in range(3):
        fresh.publish()
    fresh.run_until("commit", "before")

    report = fresh.assert_current(max_files=2, retry=True)

    assert [2, 1] == [batch.files for batch in report.batches]
    assert ["id", "v"] == fresh.spark.read.format("delta").load(str(fresh.path)).columns


@pytest.mark.thorough
@pytest.mark.parametrize("meanwhile", ["void", "commit"])
def test_of_a_slow_runner_and_one_that_asks_for_less_one_ends_the_plan(
    mirror: Mirror, meanwhile: str
) -> None:
    """Whichever commits first; the other finds that out by the commit that stands there."""
    for _ in range(2):
        mirror.publish()
    mirror.run_until("plan", "after")

    def shrink(**options: Any) -> None:
        mirror.assert_current(max_files=1, retry=True, **options)
        mirror.forget(3)

    if meanwhile == "void":
        assert "void" == carry_slowly(mirror, 3, ("commit", "before"), shrink)
    else:
        work = mirror.open_work()
        plan = mirror.plan(work, 3)
        commit = partial(carry_out, Attempt(work=work, plan=plan), None)
        shrink(observe=at("void", "before", commit))
    ended = ["void" if meanwhile == "void" else "applied"]
    assert ended == [said["outcome"] for _, said in mirror.commits() if said.get("batch") == 3]
    mirror.assert_holds()
    mirror.publish()
    mirror.assert_current()


@pytest.mark.thorough
@pytest.mark.skipif(SERVERLESS, reason="there, a lease keeps them apart")
def test_two_runners_that_nothing_keeps_apart_have_one_effect(mirror: Mirror) -> None:
    """Where no lock is needed, Delta decides who commits; both runners agree on the outcome."""
    mirror.publish()
    mirror.run_until("plan", "after")
    start = threading.Barrier(2)

    def carry() -> str:
        work = mirror.open_work()
        work = replace(work, observe=lambda event: _meet(event, start))
        return carry_out(Attempt(work=work, plan=mirror.plan(work, 3)), None).outcome

    with ThreadPoolExecutor(2) as pool:
        outcomes = [future.result() for future in [pool.submit(carry), pool.submit(carry)]]

    assert ["applied", "applied"] == outcomes
    mirror.assert_current()


def _meet(event: Event, start: threading.Barrier) -> None:
    """Let both runners begin their commit at the same moment; a runner that tries again goes alone."""
    if (event.step, event.when) == ("commit", "before") and not start.broken:
        with suppress(threading.BrokenBarrierError):
            start.wait(timeout=30)
        start.abort()


def test_two_applies_in_one_process_at_the_same_moment_have_one_effect(fresh: Mirror) -> None:
    """Two threads of one process are two runners: one waits for the other."""
    for _ in range(3):
        fresh.publish()
    start = threading.Barrier(2)

    def run() -> str:
        start.wait(timeout=30)
        return fresh.run(max_files=1).state

    with ThreadPoolExecutor(2) as pool:
        states = [future.result() for future in [pool.submit(run), pool.submit(run)]]

    assert ["current", "current"] == states
    fresh.assert_current()
    assert 3 == fresh.plans()


# Resets


@pytest.mark.thorough
def test_a_reset_replaces_the_content_in_one_commit(mirror: Mirror) -> None:
    """Readers see the old content until the one commit that brings the new."""
    old, first = mirror.rows(), mirror.newest
    mirror.drop_and_publish(2)

    mirror.reset()
    assert_same_rows(old, mirror.rows())
    mirror.assert_current()

    contents = [mirror.rows(version) for version in range(first, mirror.newest + 1)]
    assert [old] * (len(contents) - 1) + [mirror.expected()] == contents
    mirror.assert_feed()


@pytest.mark.thorough
@pytest.mark.parametrize("trouble", ["page", "gap", "bytes"])
def test_a_reset_table_is_not_replaced_by_a_half(mirror: Mirror, road: str, trouble: str) -> None:
    """What was there stays until every file that is visible can be applied."""
    old = mirror.rows()
    mirror.reset()
    mirror.drop_and_publish(3)
    if trouble == "page":
        damage_pages(mirror.table.path(3))
    elif trouble == "gap":
        mirror.table.path(2).unlink()
    else:
        mirror.table.path(3).write_bytes(b"")

    planned = mirrorlib.plan(mirror.spark, str(mirror.zone), mirror.target).tables[0]
    report = mirror.run()

    assert old == mirror.rows(), road
    assert ("blocked" if trouble == "gap" else "failed") == report.state
    assert planned.state == report.state or (road, trouble) == ("large", "page")
    mirror.replace(2 if trouble == "gap" else 3)
    mirror.assert_current()


@pytest.mark.thorough
@pytest.mark.parametrize("names", [("a b", "a b"), ("a b", "c"), ("c", "a b")])
def test_a_reset_table_with_column_mapping_keeps_what_delta_cannot_drop(
    spark: SparkSession, tmp_path: Path, names: tuple[str, str]
) -> None:
    """Delta drops no column of a table with column mapping and a feed: an old one stays and is NULL."""
    zone, target = ZoneWriter(tmp_path / "zone"), str(tmp_path / "target")
    table = zone.table("t", keys=["id"])
    table.file([{"id": 1, names[0]: "x", "gone": 1}])
    assert mirrorlib.apply(spark, str(zone), target).ok
    table.drop()
    table.make()
    table.metadata(keys=["id"])
    table.file([{"id": 2, names[1]: "y"}])
    mirrorlib.reset(spark, target, "t")

    report = mirrorlib.apply(spark, str(zone), target)

    assert report.ok, str(report)
    rows = read_rows(spark, tmp_path / "target" / "t")
    expected = {"id": 2, names[0]: None, names[1]: "y", "gone": None}
    assert_same_rows(multiset([expected]), multiset(rows))


@pytest.mark.thorough
def test_a_feed_that_a_killed_first_batch_left_off_is_on_again(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Its commit is found and counts, and no later batch would look at the feed."""
    zone, target = ZoneWriter(tmp_path / "zone"), str(tmp_path / "target")
    table = zone.table("t", keys=["id"])
    table.file([{"id": 1, "a b": 1}])
    assert mirrorlib.apply(spark, str(zone), target).ok
    table.drop()
    table.make()
    table.metadata(keys=["id"])
    table.file([{"id": 2, "a b": "x"}])
    mirrorlib.reset(spark, target, "t")
    with pytest.raises(Killed):
        mirrorlib.apply(spark, str(zone), target, observe=at("resume", "before", die))

    assert mirrorlib.apply(spark, str(zone), target).ok
    table.file([{"id": 3, "a b": "y"}])
    report = mirrorlib.apply(spark, str(zone), target)

    assert report.ok, str(report)
    after = (report.tables[0].version or 0) - 1
    (told,) = mirrorlib.read_feed(spark, f"{target}/t", after=after).collect()
    assert (3, "insert") == (told["id"], told["_change_type"])


@pytest.mark.thorough
def test_a_reset_table_is_not_replaced_by_no_rows_unasked(mirror: Mirror) -> None:
    """A first file without rows, after a reset, is rather a mistake than a wish."""
    old = mirror.rows()
    mirror.drop_and_publish(0)
    columns = pa.schema([("id", pa.int64()), ("v", pa.string())])
    mirror.table.file([], [], number=1, columns=columns)
    mirror.reset()

    mirror.assert_foreseen("--allow-empty")
    mirror.assert_foreseen(state="behind", allow_empty=True)
    mirror.assert_failed("MirrorError", "--allow-empty")
    assert_same_rows(old, mirror.rows())

    assert "current" == mirror.run(allow_empty=True).state
    assert not mirror.rows()


RESET_STEPS = [
    ("plan", "after"),
    ("fence", "after"),
    ("commit", "before"),
    ("commit", "after"),
    ("done", "after"),
]


@pytest.mark.thorough
@pytest.mark.parametrize(
    "kind, step", [*(("merge", step) for step in RESET_STEPS), ("append", ("fence", "after"))]
)
def test_a_runner_of_an_old_life_changes_nothing_in_the_new_one(
    mirror: Mirror, kind: str, step: tuple[str, str]
) -> None:
    """It planned before the reset and commits at some moment of the new life's first batch, or after it."""
    publish_kind(mirror, kind)
    mirror.run_until("plan", "after")
    slow = mirror.open_work()
    plan = mirror.plan(slow, 3)
    prepared = prepare_again(Attempt(work=slow, plan=plan), find_table(slow.spark, slow.ref))
    mirror.reset()
    ended: list[str] = []

    def commit() -> None:
        try:
            ended.append(carry_out(Attempt(work=slow, plan=plan), prepared).outcome)
        except TableBusyError:
            ended.append("fenced")

    assert "current" == mirror.run(observe=at(*step, commit)).state

    assert ["applied" if step == ("plan", "after") else "fenced"] == ended
    mirror.assert_holds()
    mirror.publish()
    mirror.assert_current()


@pytest.mark.smoke
def test_a_runner_of_an_old_life_that_was_about_to_commit_is_fenced(mirror: Mirror) -> None:
    """The whole new life's first batch passes between its staging and its commit."""
    mirror.publish()
    mirror.run_until("plan", "after")

    def renew() -> None:
        mirror.reset()
        mirror.assert_current()

    with pytest.raises(TableBusyError, match="reset"):
        carry_slowly(mirror, 3, ("commit", "before"), renew)
    mirror.assert_holds()
    mirror.publish()
    mirror.assert_current()


@pytest.mark.thorough("void")
@pytest.mark.parametrize("damage", [False, True], ids=["commit", "void"])
def test_a_runner_of_an_old_life_s_first_batch_is_told_of_the_reset(
    fresh: Mirror, damage: bool
) -> None:
    """The new life has made the table meanwhile: it is nobody else's, and nothing has to be removed."""
    fresh.publish()
    fresh.run_until("plan", "after")
    slow = fresh.open_work()
    plan = fresh.plan(slow, 1)
    prepared = None if damage else prepare_again(Attempt(work=slow, plan=plan), None)
    if damage:
        fresh.replace(1)
    fresh.reset()
    fresh.assert_current()
    newest = fresh.newest

    with pytest.raises(TableBusyError, match="reset"):
        carry_out(Attempt(work=slow, plan=plan), prepared)

    assert newest == fresh.newest
    fresh.assert_current()


@pytest.mark.thorough
def test_an_old_life_cannot_void_its_plan_any_more(mirror: Mirror) -> None:
    """A void of the old life after the reset is as fenced as any other commit of it."""
    mirror.publish()
    mirror.run_until("plan", "after")
    slow = mirror.open_work()
    plan = mirror.plan(slow, 3)
    mirror.replace(3)
    mirror.reset()
    mirror.assert_current()
    newest = mirror.newest

    with pytest.raises(TableBusyError, match="reset"):
        carry_out(Attempt(work=slow, plan=plan), None)

    assert newest == mirror.newest


@pytest.mark.thorough
def test_a_reset_that_is_killed_anywhere_is_carried_to_its_end(mirror: Mirror) -> None:
    """Two resets in a row, the first one's batch never committed: one new content, once."""
    mirror.publish()
    mirror.reset()
    mirror.run_until("fence", "after")
    mirror.reset()
    mirror.run_until("commit", "after")

    mirror.assert_current()
    mirror.publish()
    mirror.assert_current()


# Other people's writes


@pytest.mark.thorough("INSERT*", "MERGE*", "ALTER*", "DELETE FROM {t}-*", "UPDATE*", "RESTORE*")
@pytest.mark.parametrize(
    "statement, words",
    [
        ("RESTORE TABLE {t} TO VERSION AS OF 1", "RESTORE"),
        ("DELETE FROM {t} WHERE id = 1", "DELETE"),
        ("UPDATE {t} SET v = 'mine' WHERE id = 1", "UPDATE"),
        ("INSERT INTO {t} VALUES (7, 'mine')", "WRITE"),
        ("INSERT OVERWRITE {t} VALUES (7, 'mine')", "WRITE"),
        ("DELETE FROM {t}", "DELETE"),
        (
            "MERGE INTO {t} t USING (SELECT 1 AS id) s ON t.id = s.id WHEN MATCHED THEN DELETE",
            "MERGE",
        ),
        (
            f"ALTER TABLE {{t}} SET TBLPROPERTIES ('{TRANSACTIONS}' = 'interval 1 days')",
            "SET TBLPROPERTIES",
        ),
    ],
)
def test_a_foreign_write_stops_the_table_until_its_owner_decides(
    mirror: Mirror, statement: str, words: str
) -> None:
    """The version, what was done, by whom, and the command to go on are named; nothing is applied, nothing is written."""
    mirror.do(statement)
    newest = mirror.newest
    mirror.publish()

    mirror.assert_failed(
        "ForeignWriteError",
        f"version {newest}, {words} by ",
        f"Unset {TRANSACTIONS}, and run" if TRANSACTIONS in statement else "Run",
        f" mirrorlib rebuild TARGET {mirror.name}, or reset",
    )
    assert (newest, 2) == (mirror.newest, mirror.plans())

    heal(mirror)
    mirror.reset()
    mirror.assert_current()


def heal(mirror: Mirror) -> None:
    """Take back what a reset does not."""
    mirror.do(f"ALTER TABLE {{t}} UNSET TBLPROPERTIES IF EXISTS ('{TRANSACTIONS}')")


@pytest.mark.thorough
@pytest.mark.parametrize(
    "statement, step",
    [
        ("DELETE FROM {t} WHERE id = 1", ("plan", "after")),
        ("DELETE FROM {t} WHERE id = 1", ("guard", "after")),
        ("RESTORE TABLE {t} TO VERSION AS OF 1", ("stage", "after")),
        ("INSERT INTO {t} VALUES (7, 'mine')", ("commit", "before")),
        ("DELETE FROM {t} WHERE id = 1", ("commit", "after")),
        (
            f"ALTER TABLE {{t}} SET TBLPROPERTIES ('{TRANSACTIONS}' = 'interval 1 days')",
            ("commit", "before"),
        ),
    ],
)
def test_a_foreign_write_beside_a_commit_is_noticed(
    mirror: Mirror, statement: str, step: tuple[str, str]
) -> None:
    """What others commit between a plan and its commit is between two of our commits too, and stays noticed."""
    mirror.publish()
    report = mirror.run(observe=at(*step, lambda: mirror.do(statement)))
    assert ("failed", "ForeignWriteError") == (report.state, report.error), report

    mirror.assert_failed("ForeignWriteError", "version ")
    mirror.publish()
    mirror.assert_failed("ForeignWriteError", "version ")
    heal(mirror)
    mirror.reset()
    mirror.assert_current()


@pytest.mark.thorough
def test_a_foreign_write_beside_a_batch_whose_runner_died_is_noticed(mirror: Mirror) -> None:
    """The batch is found to be applied, and the write before it is found as well."""
    mirror.publish()
    mirror.run_until_foreign("DELETE FROM {t} WHERE id = 1", "commit", "before", "commit", "after")

    mirror.assert_failed("ForeignWriteError", "DELETE by ")


@pytest.mark.thorough
def test_an_owner_may_accept_a_foreign_write(mirror: Mirror) -> None:
    """With --allow-foreign-writes the table goes on from what is there, then and afterwards."""
    mirror.do("INSERT INTO {t} VALUES (7, 'mine')")
    mirror.publish([{"id": 90, "v": "next"}], [0])
    mirror.assert_failed("ForeignWriteError")

    assert "current" == mirror.run(allow_foreign_writes=True).state
    mirror.publish([{"id": 91, "v": "next"}], [0])
    assert "current" == mirror.run().state
    mine = mirror.rows() - mirror.expected()
    assert ([frozenset({("id", 7), ("v", "mine")})], mirror.expected()) == (
        list(mine),
        mirror.rows() - mine,
    )


COMPACTING = (("enabled", "true"), ("minNumFiles", "2"))
HARMLESS = [
    "OPTIMIZE {t}",
    "VACUUM {t}",
    "ALTER TABLE {t} SET TBLPROPERTIES ('somebody' = 'here')",
    "ALTER TABLE {t} UNSET TBLPROPERTIES ('somebody')",
    "ALTER TABLE {t} CHANGE COLUMN v COMMENT 'what was said'",
    "ALTER TABLE {t} ADD COLUMNS (note STRING)",
    "COMMENT ON TABLE {t} IS 'orders'",
    "ALTER TABLE {t} SET TBLPROPERTIES ('delta.enableRowTracking' = 'true')",
    "ALTER TABLE {t} DROP FEATURE rowTracking",
    "ALTER TABLE {t} DROP FEATURE domainMetadata",
]


@pytest.mark.thorough
def test_upkeep_by_others_is_no_foreign_write(mirror: Mirror) -> None:
    """OPTIMIZE, VACUUM, properties, comments and new columns change no row; the table goes on."""
    for statement in HARMLESS:
        mirror.do(statement)
    mirror.publish()

    mirror.assert_current()
    mirror.assert_feed()


@pytest.mark.thorough
@pytest.mark.skipif(SERVERLESS, reason="it lets nobody say how many files are many")
def test_what_delta_compacts_behind_a_batch_is_none_of_its_commits(
    mirror: Mirror, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Auto compaction is done in the session of a MERGE, so its own commit is given the mark of that batch, too."""
    compacting = {f"spark.databricks.delta.autoCompact.{name}": value for name, value in COMPACTING}
    monkeypatch.setattr(sessions, "_CONF", sessions._CONF | compacting)
    monkeypatch.setattr(sessions, "_IDLE", WeakKeyDictionary())

    for _ in range(2):
        mirror.publish()
        assert "current" == mirror.run().state
        assert_same_rows(mirror.expected(), mirror.rows())

    said = (path.read_text() for path in (mirror.path / "_delta_log").glob("*.json"))
    assert [one for one in said if '"operation":"OPTIMIZE"' in one and '"life' in one]
    mirror.assert_feed()


@pytest.mark.thorough
@pytest.mark.parametrize(
    "step",
    [
        ("plan", "after"),
        ("guard", "after"),
        ("stage", "after"),
        ("commit", "before"),
        ("commit", "after"),
    ],
    ids="-".join,
)
def test_upkeep_by_others_beside_a_commit_changes_nothing(
    mirror: Mirror, step: tuple[str, str]
) -> None:
    """OPTIMIZE and ALTER between any two steps: the batch is applied, once."""

    def keep_up() -> None:
        for statement in (HARMLESS[0], HARMLESS[2]):
            mirror.do(statement)
        mirror.do("ALTER TABLE {t} ADD COLUMNS (note STRING)")

    mirror.publish()
    mirror.run(observe=at(*step, keep_up))

    mirror.assert_current()
    mirror.publish([{"id": 95, "v": "x", "note": "ours"}], [0])
    mirror.assert_current()


@pytest.mark.thorough
def test_a_column_of_others_that_no_mirror_can_have_is_told_by_name(mirror: Mirror) -> None:
    """It is no fault of the file that brings the name; a reset removes what is in the way."""
    mirror.do("ALTER TABLE {t} ADD COLUMNS (x array<int>)")
    mirror.publish()
    mirror.assert_current()
    mirror.table.file([{"id": 1, "X": "a"}], [1], number=4)

    for _ in range(2):
        report = mirror.assert_failed("ForeignWriteError", mirror.file_name(4), "column X")
        assert "x array<int> in the table, string in the file" in report.reason
        assert "mirrorlib reset" in report.reason

    mirror.reset()
    assert "current" == mirror.run().state


@pytest.mark.thorough
@pytest.mark.parametrize("marker", [0, 4], ids=["append", "merge"])
def test_a_constraint_of_others_is_told_by_name(
    mirror: Mirror, marker: int, caplog: pytest.LogCaptureFixture
) -> None:
    """And how to take it off, after which the same plan is carried out; no value of the data is told, or logged."""
    caplog.set_level(logging.INFO)
    mirror.do("ALTER TABLE {t} ADD CONSTRAINT low CHECK (id < 1000 OR id = 4711)")
    mirror.publish([{"id": 123456, "v": "secret"}], [marker])

    report = mirror.assert_failed(
        "MirrorError",
        mirror.file_name(3),
        "CHECK constraint low (",
        "ALTER TABLE … DROP CONSTRAINT",
    )

    assert not [told for told in ("secret", "123456") if told in f"{report.reason}{caplog.text}"]
    mirror.do("ALTER TABLE {t} DROP CONSTRAINT low")
    mirror.assert_current()


@pytest.mark.thorough
@pytest.mark.usefixtures("by_spark")
@pytest.mark.parametrize("marker", [0, 4], ids=["append", "merge"])
def test_a_moment_that_delta_cannot_hold_is_told_by_its_place(mirror: Mirror, marker: int) -> None:
    """Milliseconds reach further than microseconds: Spark says no more than that a long overflows."""
    times = pa.array([0, 2**62], pa.timestamp("ms"))
    mirror.table.file(pa.table({"id": [8, 9], "t": times}), [marker] * 2, number=3)

    report = mirror.assert_failed("SchemaError", mirror.file_name(3), "row 1, column t")

    assert ("void", 2) == (mirror.outcome(3)["outcome"], report.position)


@pytest.mark.thorough
def test_a_column_that_others_add_meanwhile_keeps_its_type(mirror: Mirror) -> None:
    """A column of another type than the batch's appears under its feet: no value is cast without a look."""
    mirror.publish([{"id": 96, "v": "x", "n": 1.5}], [0])
    mirror.run(
        observe=at("guard", "after", lambda: mirror.do("ALTER TABLE {t} ADD COLUMNS (n INT)"))
    )

    mirror.assert_current()


@pytest.mark.thorough
def test_a_column_that_others_added_beside_an_older_batch_keeps_its_type(mirror: Mirror) -> None:
    """What the journal says about the columns is what the table had after the batch, not before."""
    mirror.publish()
    mirror.run(
        observe=at("stage", "after", lambda: mirror.do("ALTER TABLE {t} ADD COLUMNS (n INT)"))
    )
    mirror.publish([{"id": 96, "v": "x", "n": 1.5}], [0])

    mirror.assert_current()


@pytest.mark.thorough
def test_upkeep_all_the_time_ends_right(mirror: Mirror) -> None:
    """Another thread compacts and alters without a pause while several batches are applied."""
    over = threading.Event()

    def keep_up() -> None:
        session, turn = mirror.spark, 0
        while not over.is_set():
            turn += 1
            with suppress(Exception):  # it may lose against the batch
                session.sql(f"OPTIMIZE {mirror.sql}").collect()
                session.sql(
                    f"ALTER TABLE {mirror.sql} SET TBLPROPERTIES ('turn' = '{turn}')"
                ).collect()

    for _ in range(4):
        mirror.publish()
    with ThreadPoolExecutor(1) as pool:
        loop = pool.submit(keep_up)
        try:
            report = mirror.run(max_files=1)
        finally:
            over.set()
        loop.result()

    assert "current" == report.state or "met other commits" in report.reason, report.reason
    mirror.assert_current()
    mirror.assert_feed()


# Tables that are not there, or not ours


def delete_table(mirror: Mirror) -> None:
    """Remove the Delta table."""
    shutil.rmtree(mirror.path)


def make_table(mirror: Mirror, versions: int = 1) -> None:
    """Let somebody else make a Delta table of some versions in its place."""
    mirror.do("CREATE TABLE {t} (id BIGINT, v STRING) USING delta")
    for _ in range(1, versions):
        mirror.do("INSERT INTO {t} SELECT coalesce(max(id), 0) + 1, 'theirs' FROM {t}")


def test_a_deleted_table_is_not_made_again_unasked(mirror: Mirror) -> None:
    """What was applied is gone with the table: only a reset can bring it back."""
    delete_table(mirror)
    mirror.publish()

    mirror.assert_failed("ForeignWriteError", "gone", f"mirrorlib reset TARGET {mirror.name}")
    assert not mirror.path.exists()

    mirror.reset()
    mirror.assert_current()


@pytest.mark.thorough("-1", "1")
@pytest.mark.parametrize("more", [-1, 0, 1])
def test_a_table_that_somebody_else_made_in_its_place_is_left_alone(
    mirror: Mirror, more: int
) -> None:
    """With fewer, as many, or more versions than ours: it is not ours, and says so."""
    versions = mirror.newest + 1 + more
    delete_table(mirror)
    make_table(mirror, versions)
    theirs = mirror.rows()
    mirror.publish()

    mirror.assert_failed("ForeignWriteError", "replaced", f"mirrorlib reset TARGET {mirror.name}")
    mirror.reset()
    mirror.assert_failed("ForeignWriteError", "did not make")
    assert (theirs, versions - 1) == (mirror.rows(), mirror.newest)

    delete_table(mirror)
    mirror.assert_current()


@pytest.mark.thorough
@pytest.mark.parametrize("seen", ["", "seen", "planned"], ids=["not seen", "seen", "planned"])
def test_a_table_that_was_set_back_is_refused_whatever_upkeep_came_since(
    mirror: Mirror, seen: str
) -> None:
    """A version of others stands where our last commit was, whose rows are gone, also where a run has seen some, or has died behind its plan."""
    kept, upkeep = mirror.root / "kept", "ALTER TABLE {t} SET TBLPROPERTIES (a = 1)"
    shutil.copytree(mirror.path, kept)
    mirror.publish()
    mirror.assert_current()
    if seen == "seen":
        mirror.do(upkeep)
        mirror.assert_current()
    newest = mirror.newest
    if seen == "planned":
        mirror.publish()
        mirror.run_until("plan", "after")
    shutil.rmtree(mirror.path)
    shutil.move(kept, mirror.path)
    while mirror.newest < newest:
        mirror.do(upkeep)
    mirror.publish()

    mirror.assert_failed("ForeignWriteError", "set back", f"mirrorlib reset TARGET {mirror.name}")
    mirror.reset()
    mirror.assert_current()


@pytest.mark.thorough
def test_a_journal_that_was_set_back_to_before_a_reset_is_told(mirror: Mirror) -> None:
    """Nobody else wrote, and no reset alone would own the table again."""
    kept = shutil.copytree(mirror.journal, mirror.root / "kept")
    mirror.reset()
    mirror.assert_current()
    shutil.rmtree(mirror.journal)
    kept.rename(mirror.journal)
    mirror.publish()

    mirror.assert_failed("JournalError", "journal was set back", "remove the Delta table")
    delete_table(mirror)
    mirror.reset()
    mirror.assert_current()


@pytest.mark.thorough
def test_a_table_that_went_away_behind_a_plan_is_not_made_again(mirror: Mirror) -> None:
    """The runner died behind its plan, then somebody deleted the table."""
    mirror.publish()
    mirror.run_until("plan", "after")
    delete_table(mirror)

    mirror.assert_failed("ForeignWriteError", "gone")
    mirror.reset()
    mirror.assert_current()


@pytest.mark.thorough
def test_a_table_that_was_there_before_is_refused_and_left_alone(fresh: Mirror, road: str) -> None:
    """Not even a void is written into it, whatever happens to the file of the refused plan."""
    make_table(fresh, 2)
    theirs = fresh.rows()
    fresh.publish()

    fresh.assert_foreseen("did not make")
    fresh.assert_failed("ForeignWriteError", "did not make")
    fresh.replace(1)
    fresh.assert_failed("ForeignWriteError", "did not make")
    damage_pages(fresh.table.path(1))
    fresh.run()

    assert (theirs, 1) == (fresh.rows(), fresh.newest), road
    delete_table(fresh)
    fresh.replace(1)
    fresh.assert_current()


def test_a_folder_with_other_files_is_refused_and_left_alone(fresh: Mirror) -> None:
    """No table is made among somebody's files."""
    fresh.path.mkdir(parents=True)
    (fresh.path / "diary.txt").write_text("dear diary")
    fresh.publish()

    report = fresh.run()

    assert ("failed", "LandingZoneError") == (report.state, report.error)
    assert f"diary.txt in {fresh.path}" in report.reason
    assert ["diary.txt"] == [path.name for path in fresh.path.iterdir()]
    (fresh.path / "diary.txt").unlink()
    fresh.assert_current()


@pytest.mark.thorough
def test_a_table_whose_state_was_lost_is_refused_and_left_alone(mirror: Mirror) -> None:
    """Nobody knows what was applied to it."""
    kept = mirror.path.parent / "_kept"
    shutil.move(mirror.path.parent / "_mirrorlib", kept)
    newest = mirror.newest

    mirror.assert_failed("ForeignWriteError", "state is not here", "--state")
    assert newest == mirror.newest

    shutil.rmtree(mirror.path.parent / "_mirrorlib")
    shutil.move(kept, mirror.path.parent / "_mirrorlib")
    mirror.publish()
    mirror.assert_current()


@pytest.mark.thorough
def test_transactions_that_delta_may_forget_stay_refused_after_a_reset(mirror: Mirror) -> None:
    """The property outlives a reset, and so does the danger."""
    mirror.do(f"ALTER TABLE {{t}} SET TBLPROPERTIES ('{TRANSACTIONS}' = 'interval 1 days')")
    mirror.reset()

    mirror.assert_failed("ForeignWriteError", TRANSACTIONS)
    heal(mirror)
    mirror.assert_current()


# Zones that moved


@pytest.mark.thorough
def test_the_same_zone_elsewhere_is_taken(mirror: Mirror) -> None:
    """Its newest applied file proves it."""
    mirror.move_zone()
    mirror.publish()

    mirror.assert_current()


def test_another_zone_is_refused(mirror: Mirror) -> None:
    """A typo must not apply one zone at another's position."""
    mirror.use_zone("other")
    mirror.table.file([{"id": 1, "v": "other"}], [0], number=1)
    mirror.table.file([{"id": 2, "v": "other"}], [0], number=2)
    mirror.table.file([{"id": 3, "v": "other"}], [0], number=3)

    mirror.assert_failed("FileChangedError", "holds something else", f"{mirror.root / 'zone'}")
    mirror.assert_holds()
    for number in (1, 2):
        mirror.table.path(number).unlink()
    mirror.assert_failed("JournalError", "another landing zone", "--moved-from")


@pytest.mark.thorough
def test_a_zone_that_was_moved_and_pruned_is_taken_when_told(mirror: Mirror) -> None:
    """Without the newest applied file, its former place has to be named."""
    former = str(mirror.zone)
    mirror.move_zone()
    for number in (1, 2):
        mirror.table.path(number).unlink()
    mirror.publish()

    mirror.assert_failed("JournalError", former)
    mirror.assert_current(moved_from=f"{os.path.relpath(former)}/")
    mirror.publish()
    mirror.assert_current()


@pytest.mark.thorough
def test_another_zone_is_refused_even_while_a_plan_waits(mirror: Mirror) -> None:
    """The plan of the right zone is not voided by the files of the wrong one."""
    mirror.publish()
    mirror.run_until("plan", "after")
    mirror.use_zone("other")
    for number in (1, 2, 3):
        mirror.table.file([{"id": number, "v": "other"}], [0], number=number)
    mirror.assert_failed("FileChangedError", "holds something else")

    mirror.use_zone("zone")
    mirror.assert_current()
    assert "applied" == mirror.outcome(3)["outcome"]


@pytest.mark.thorough
def test_a_zone_that_moved_while_a_plan_waits_is_taken(mirror: Mirror) -> None:
    """The plan's own newest file proves it as well."""
    mirror.publish()
    mirror.run_until("plan", "after")
    mirror.move_zone()

    mirror.assert_current()


# History


def cut_history(mirror: Mirror) -> None:
    """Let Delta write a checkpoint, then clean the log up to it."""
    mirror.do("ALTER TABLE {t} SET TBLPROPERTIES ('delta.checkpointInterval' = '1')")
    mirror.do("ALTER TABLE {t} SET TBLPROPERTIES ('somebody' = 'here')")
    clean_log(mirror)


def clean_log(mirror: Mirror) -> None:
    """Remove every commit before the newest, which has a checkpoint."""
    log = mirror.path / "_delta_log"
    assert list(log.glob(f"{mirror.newest:020d}.checkpoint*"))
    newest = mirror.newest
    for path in log.glob("*.json"):
        if int(path.stem) < newest:
            path.unlink()


@pytest.mark.thorough
@pytest.mark.parametrize("step", [("plan", "after"), ("commit", "after")], ids="-".join)
def test_an_outcome_that_history_forgot_is_never_guessed(
    mirror: Mirror, step: tuple[str, str]
) -> None:
    """Whether or not the batch was committed: nobody can tell, so nothing is applied."""
    mirror.publish()
    mirror.run_until(*step)
    cut_history(mirror)
    rows, newest = mirror.rows(), mirror.newest

    mirror.assert_failed(
        "OutcomeUnknownError",
        "outcome of batch 3 is unknown",
        "history",
        f"mirrorlib reset TARGET {mirror.name}",
    )
    assert (rows, newest) == (mirror.rows(), mirror.newest)

    mirror.reset()
    mirror.assert_current()


@pytest.mark.thorough
def test_a_log_that_was_cleaned_up_to_our_last_commit_goes_on(mirror: Mirror) -> None:
    """Nothing is unknown while our last commit is the newest."""
    mirror.do("ALTER TABLE {t} SET TBLPROPERTIES ('delta.checkpointInterval' = '1')")
    mirror.publish()
    mirror.assert_current()
    clean_log(mirror)
    mirror.publish()

    mirror.assert_current()


@pytest.mark.thorough
def test_a_log_that_was_cleaned_beyond_our_last_commit_is_not_trusted(mirror: Mirror) -> None:
    """Somebody may have written in the versions that are gone."""
    cut_history(mirror)
    mirror.publish()

    mirror.assert_failed("ForeignWriteError", "history", f"mirrorlib rebuild TARGET {mirror.name}")
    mirror.reset()
    mirror.assert_current()


@pytest.mark.thorough
def test_upkeep_that_a_run_has_seen_may_be_forgotten(mirror: Mirror) -> None:
    """A quiet table loses the history behind its last batch; what runs have seen of it is enough, and no more than that."""
    cut_here = mirror.newest
    mirror.do("ALTER TABLE {t} SET TBLPROPERTIES ('delta.checkpointInterval' = '1')")
    mirror.do("ALTER TABLE {t} SET TBLPROPERTIES ('somebody' = 'here')")
    mirror.assert_current()
    written = (mirror.journal / "status.json").stat().st_mtime_ns
    mirror.assert_current()
    assert written == (mirror.journal / "status.json").stat().st_mtime_ns
    clean_log(mirror)
    mirror.do("ALTER TABLE {t} SET TBLPROPERTIES ('somebody' = 'there')")
    clean_log(mirror)
    assert cut_here + 3 == mirror.newest
    mirror.assert_current()

    mirror.do("DELETE FROM {t} WHERE id = 1")
    mirror.publish()

    mirror.assert_failed("ForeignWriteError", f"version {mirror.newest}, DELETE by ")


@pytest.mark.thorough
def test_a_batch_follows_upkeep_that_was_forgotten(mirror: Mirror) -> None:
    """And what was verified before it means nothing any more."""
    mirror.do("ALTER TABLE {t} SET TBLPROPERTIES ('delta.checkpointInterval' = '1')")
    mirror.assert_current()
    clean_log(mirror)
    mirror.publish()
    mirror.assert_current()
    mirror.do("ALTER TABLE {t} SET TBLPROPERTIES ('somebody' = 'here')")
    clean_log(mirror)

    mirror.assert_current()
    mirror.do("ALTER TABLE {t} SET TBLPROPERTIES ('somebody' = 'there')")
    mirror.do("ALTER TABLE {t} SET TBLPROPERTIES ('somebody' = 'elsewhere')")
    clean_log(mirror)
    mirror.assert_failed("ForeignWriteError", "history", f"mirrorlib rebuild TARGET {mirror.name}")


@pytest.mark.thorough
def test_reports_of_a_batch_are_the_same_when_it_was_looked_up(mirror: Mirror) -> None:
    """Rows by marker travel in the commit, so a runner that died loses none of them."""
    path: Path = mirror.publish()
    mirror.run_until("commit", "after")

    report = mirror.assert_current()

    assert [(1, 2, 1, 0, path.name)] == [
        (b.files, b.inserts, b.updates, b.deletes, b.last_file) for b in report.batches
    ]
    assert "merge" == report.batches[0].kind


@pytest.mark.thorough
def test_a_key_column_that_somebody_renamed_is_missed(mirror: Mirror) -> None:
    """Even where others may write: added anew, it would be NULL in all rows, and no change would find its own."""
    mapping = "'delta.columnMapping.mode' = 'name', 'delta.minReaderVersion' = '2', 'delta.minWriterVersion' = '5'"
    mirror.do(f"ALTER TABLE {{t}} SET TBLPROPERTIES ({mapping})")
    mirror.do("ALTER TABLE {t} RENAME COLUMN id TO order_id")
    mirror.publish()

    mirror.assert_failed("ForeignWriteError", "Rename it back", allow_foreign_writes=True)

    mirror.do("ALTER TABLE {t} RENAME COLUMN order_id TO id")
    mirror.assert_current(allow_foreign_writes=True)


def test_rows_that_came_while_a_first_batch_was_written_are_seen(fresh: Mirror) -> None:
    """Under "WriteSerializable", which Delta's open source only reads, its overwrite does not replace them."""
    fresh.publish()
    fresh.run_until("done", "before")
    fresh.do("INSERT INTO {t} SELECT 77L, 'foreign'")
    log = fresh.path / "_delta_log"
    ours, others = (log / f"{version:020d}.json" for version in (fresh.newest - 1, fresh.newest))
    ours.rename(log / "ours")
    others.rename(ours)
    (log / "ours").rename(others)
    for checksum in log.glob("*.crc"):
        checksum.unlink()
    fresh.spark.catalog.clearCache()

    fresh.assert_failed("ForeignWriteError", "somebody else wrote to the table", "WRITE by")
