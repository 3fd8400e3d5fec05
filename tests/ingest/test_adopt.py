"""Files that become a part of their table as they are: which do, that they count once whatever dies, and what is told of them."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

import mirrorlib
from mirrorlib.delta.log import checksum_path, read_checksum
from mirrorlib.delta.sessions import configured
from mirrorlib.errors import StoreError, TableBusyError
from mirrorlib.ingest.batch import adopt
from mirrorlib.ingest.batch.adopt import tell_ends
from mirrorlib.ingest.batch.commit import carry_out
from mirrorlib.ingest.report import TableReport
from mirrorlib.ingest.rows.marks import Ends
from mirrorlib.ingest.work import Attempt
from mirrorlib.store import open_store
from mirrorlib.store.local import LocalStore
from mirrors import Mirror, at
from oracle import Row
from zones import damage_pages

pytestmark = pytest.mark.slow
MORE: list[Row] = [{"id": 100, "v": "more"}, {"id": 70, "v": "new"}]


@pytest.fixture(autouse=True)
def _every_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let batches count as large ones, whose files are worth to be kept."""
    monkeypatch.setattr("mirrorlib.ingest.batch.open_batch.SMALL_BYTES", -1)
    monkeypatch.setattr("mirrorlib.ingest.batch.adopt._WORTH_IT", 0)


def kinds(report: TableReport) -> list[str]:
    """Name the roads of a report's batches."""
    return [batch.kind for batch in report.batches]


def adds(mirror: Mirror) -> list[dict[str, Any]]:
    """Read the newest commit's added files."""
    text = (mirror.path / "_delta_log" / f"{mirror.newest:020d}.json").read_text()
    return [line["add"] for line in map(json.loads, text.splitlines()) if "add" in line]


def test_a_first_load_takes_its_files_as_they_are(fresh: Mirror) -> None:
    """Byte for byte, with every row an insert of one version's feed, and the ends of the key told for readers that skip."""
    published = [fresh.publish([{"id": n, "v": "x"}, {"id": n + 1, "v": None}]) for n in (1, 7)]

    report = fresh.assert_current()

    assert ["adopt"] == kinds(report)
    assert 4 == report.batches[0].inserts
    assert digests(published) == digests(fresh.path.glob("*.parquet"))
    told = [json.loads(add["stats"]) for add in adds(fresh)]
    assert [(2, {"id": 1}, {"id": 2}), (2, {"id": 7}, {"id": 8})] == [
        (one["numRecords"], one["minValues"], one["maxValues"]) for one in told
    ]
    fresh.assert_feed()
    feed = mirrorlib.read_feed(fresh.spark, fresh.path, after=0)
    assert ["insert"] * 4 == [row["_change_type"] for row in feed.collect()]


@pytest.mark.parametrize("trouble", ["", "lost", "stale"])
def test_the_table_is_summed_up_beside_the_commit(
    fresh: Mirror, monkeypatch: pytest.MonkeyPatch, trouble: str
) -> None:
    """As Delta itself counts; not behind another version's sums, and the batch is there even if they are lost."""

    def lose(store: LocalStore, path: str, data: bytes) -> None:
        if path.endswith(".crc"):
            msg = "the store is out of reach"
            raise StoreError(msg)
        put(store, path, data)

    def spoil(*given: Any) -> bool:
        path = fresh.path / checksum_path(fresh.newest)
        path.write_text(json.dumps({**json.loads(path.read_text()), "txnId": "another"}))
        return decode(*given)

    put, decode = LocalStore.put, adopt._decode
    if trouble == "lost":
        monkeypatch.setattr(LocalStore, "put", lose)
    if trouble == "stale":
        monkeypatch.setattr(adopt, "_decode", spoil)
    fresh.publish([{"id": 1, "v": "x"}])
    fresh.publish(MORE)

    assert ["adopt"] == kinds(fresh.assert_current())

    said = read_checksum(open_store(str(fresh.path)), fresh.newest)
    detail = fresh.spark.sql(f"DESCRIBE DETAIL {fresh.sql}").collect()[0]
    sums = {"numFiles": detail["numFiles"], "tableSizeBytes": detail["sizeInBytes"]}
    assert ({} if trouble else sums) == {name: said[name] for name in sums if name in said}


def test_the_ends_that_are_told_are_those_of_the_rows(fresh: Mirror) -> None:
    """A footer may lie about them, by which rows would be passed over, or end the process that asks it."""
    path = fresh.publish([{"id": 5, "v": "x"}, {"id": 77, "v": None}])
    data = path.read_bytes()
    size = int.from_bytes(data[-8:-4], "little")
    body, footer = data[: -8 - size], data[-8 - size :]
    lying = footer.replace((77).to_bytes(8, "little"), (6).to_bytes(8, "little"))
    assert lying != footer
    path.write_bytes(body + lying)

    report = fresh.assert_current()

    assert ["adopt"] == kinds(report)
    (added,) = adds(fresh)
    assert {"id": 77} == json.loads(added["stats"])["maxValues"]


def test_ends_that_a_log_cannot_hold_are_not_told() -> None:
    """Dates that Python has not, text that is none, and texts that are long; NULLs are counted all the same."""
    odd = pa.array([b"\xff\xfe", b"a"])
    columns = {
        "id": pa.array([7, None]),
        "day": pa.array([1, 4_000_000], pa.date32()),
        "odd": pa.StringArray.from_buffers(2, *odd.buffers()[1:]),
        "long": pa.array(["x" * 37, "y"]),
        "word": pa.array(["x", "y"]),
    }
    seen = {name: Ends() for name in columns}
    for name, values in columns.items():
        seen[name].see(values)

    told = tell_ends(seen)

    assert {"id": 7, "word": "x"} == told["minValues"]
    assert {"id": 7, "word": "y"} == told["maxValues"]
    assert dict.fromkeys(columns, 0) | {"id": 1} == told["nullCount"]


def digests(paths: Any) -> list[str]:
    """Tell files by what they hold."""
    return sorted(hashlib.sha256(Path(path).read_bytes()).hexdigest() for path in paths)


@pytest.mark.thorough
def test_later_files_are_taken_too_and_changed_like_any_rows(fresh: Mirror) -> None:
    """Between merges that update and delete what was adopted."""
    fresh.publish([{"id": 1, "v": "x"}, {"id": 2, "v": "x"}])
    fresh.assert_current()
    fresh.publish([{"id": 1, "v": "y"}, {"id": 2, "v": None}], [1, 2])
    fresh.assert_current()
    fresh.publish(MORE)
    report = fresh.assert_current()
    fresh.publish([{"id": 100, "v": "z"}], [4])
    fresh.assert_current()

    assert ["adopt"] == kinds(report)
    fresh.assert_feed()


@pytest.mark.thorough
def test_a_column_that_a_file_lacks_is_null(fresh: Mirror) -> None:
    """As in every file of the format."""
    fresh.publish([{"id": 1, "v": "x", "w": 1}])
    fresh.assert_current()
    fresh.publish([{"id": 2, "v": "x"}])

    assert ["adopt"] == kinds(fresh.assert_current())


@pytest.mark.thorough
def test_new_columns_come_before_the_files_that_have_them(fresh: Mirror) -> None:
    """The table grows by a commit of its own, and then takes the file."""
    fresh.publish([{"id": 1, "v": "x"}])
    fresh.assert_current()
    fresh.publish([{"id": 2, "v": "x", "w": 1}])

    assert ["adopt"] == kinds(fresh.assert_current())
    fresh.assert_feed()


def narrow(mirror: Mirror) -> None:
    """Publish whole numbers that are narrower than the table's."""
    mirror.table.file(pa.table({"id": pa.array([70], pa.int32()), "v": ["x"]}), number=3)


def marked(mirror: Mirror) -> None:
    """Publish markers, all of them inserts."""
    mirror.table.file([{"id": 70, "v": "x"}], [0], number=3)


def packed(mirror: Mirror) -> None:
    """Publish what Spark has no codec for."""
    pq.write_table(pa.table({"id": [70], "v": ["x"]}), mirror.table.path(3), compression="brotli")


def constrained(mirror: Mirror) -> None:
    """Give the table a rule that rows have to be held against."""
    mirror.do("ALTER TABLE {t} ADD CONSTRAINT positive CHECK (id > 0)")
    mirror.table.file([{"id": 70, "v": "x"}], number=3)


@pytest.mark.thorough
@pytest.mark.parametrize("publish", [narrow, marked, packed, constrained])
def test_what_does_not_fit_is_read(mirror: Mirror, publish: Callable[[Mirror], None]) -> None:
    """By Spark, as ever; the table holds the row all the same."""
    publish(mirror)

    report = mirror.run()

    assert (("current", ""), ["append"]) == ((report.state, report.reason), kinds(report))
    assert 1 == mirror.spark.read.format("delta").load(str(mirror.path)).where("id = 70").count()


@pytest.mark.thorough
def test_files_whose_path_looks_like_a_pattern_are_read(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Spark looks at such paths all over again for each of them, so they are not read side by side."""
    mirror = Mirror(spark=spark, root=tmp_path / "zone [1]")
    mirror.publish([{"id": 1, "v": "x"}])

    assert ["overwrite"] == kinds(mirror.assert_current())


@pytest.mark.thorough
@pytest.mark.parametrize("day", [date(1, 1, 1), datetime(1899, 12, 31, tzinfo=UTC)], ids=str)
@pytest.mark.parametrize("mode", ["EXCEPTION", "LEGACY"])
def test_days_that_other_readers_take_for_others_are_written_by_spark(
    fresh: Mirror, day: date, mode: str
) -> None:
    """Its files say by which calendar; of one that does not, Spark 3.5 refuses those before 1582, or reads other days."""
    fresh.publish([{"id": 1, "day": day}])

    assert ["overwrite"] == kinds(fresh.assert_current())

    with configured(fresh.spark, {"spark.sql.parquet.datetimeRebaseModeInRead": mode}):
        rows = fresh.spark.read.format("delta").load(str(fresh.path))
        assert 1 == rows.where(f"day = '{day}'").count()


def test_a_table_for_plain_readers_takes_files_too(fresh: Mirror) -> None:
    """They are Parquet that every reader knows."""
    fresh.publish([{"id": 1, "v": "x"}])

    assert ["adopt"] == kinds(fresh.assert_current(readers="plain"))


@pytest.mark.thorough
@pytest.mark.parametrize("policy", [{"insert_policy": "upsert"}, {"allow_foreign_writes": True}])
def test_rows_that_may_meet_others_are_read(mirror: Mirror, policy: dict[str, Any]) -> None:
    """Where inserts are upserts, and where nobody looks who else has written."""
    mirror.table.file([{"id": 70, "v": "x"}], number=3)

    assert "adopt" not in kinds(mirror.run(**policy))


@pytest.mark.thorough
def test_a_name_that_needs_column_mapping_is_read(fresh: Mirror) -> None:
    """Its files name columns by what they are mapped to."""
    fresh.publish([{"id": 1, "a b": "x"}])

    assert ["overwrite"] == kinds(fresh.assert_current())


@pytest.mark.thorough
def test_a_table_with_partitions_is_written_by_spark(mirror: Mirror) -> None:
    """The log tells the values of such columns: those in a file that is only copied would be NULL."""
    rows = mirror.spark.sql(f"SELECT * FROM {mirror.sql}").localCheckpoint()
    anew = rows.write.format("delta").mode("overwrite").option("overwriteSchema", "true")
    anew.partitionBy("v").save(str(mirror.path))
    mirrorlib.reset(mirror.spark, mirror.target, mirror.name)
    mirror.publish(MORE)
    assert "adopt" not in kinds(mirror.assert_current())
    mirror.publish([{"id": 5000, "v": "5000"}])

    assert ["append"] == kinds(mirror.assert_current())
    mirror.assert_holds()


@pytest.mark.thorough
def test_a_table_on_a_mount_without_hard_links_is_written_by_spark(
    fresh: Mirror, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Delta itself needs none, and the state lies elsewhere; nothing is copied that could not count."""
    link = os.link

    def refuse(source: Path, target: Path) -> None:
        if fresh.path in target.parents:
            raise OSError(errno.EOPNOTSUPP, "no hard links here")
        link(source, target)

    monkeypatch.setattr(os, "link", refuse)
    fresh.publish([{"id": 1, "v": "x"}])

    report = fresh.assert_current(state=str(fresh.root / "state"))

    assert ["overwrite"] == kinds(report)
    assert [] == list(fresh.path.glob("1-*.parquet"))


STEPS = [("stage", "before"), ("stage", "after"), ("commit", "before"), ("commit", "after")]


@pytest.mark.thorough("stage-*", "commit-before-*", "done-*", "*-later")
@pytest.mark.parametrize("first", [True, False], ids=["first", "later"])
@pytest.mark.parametrize("step", [*STEPS, ("done", "before")], ids="-".join)
def test_a_run_that_dies_anywhere_has_one_effect(
    fresh: Mirror, step: tuple[str, str], first: bool
) -> None:
    """The next one finishes it, or finds it done."""
    if not first:
        fresh.publish()
        fresh.assert_current()
    fresh.publish(MORE)
    fresh.run_until(*step)
    fresh.publish()

    fresh.assert_current()
    fresh.assert_feed()


def test_a_file_that_is_replaced_while_it_is_copied_does_not_count(mirror: Mirror) -> None:
    """The plan is voided, and the file read as it is then."""
    mirror.publish(MORE)

    report = mirror.run(observe=at("stage", "before", lambda: mirror.replace(3, MORE[:1])))

    assert "void" == mirror.outcome(3)["outcome"], report
    mirror.assert_current()
    mirror.assert_feed()


def test_a_damaged_page_is_found_before_its_file_counts(mirror: Mirror) -> None:
    """Behind a good footer; the file before it is taken."""
    mirror.publish(MORE)
    damage_pages(mirror.publish(MORE))

    mirror.assert_failed("ChangeFileError", mirror.file_name(4))

    assert ("void", "applied") == (mirror.outcome(3)["outcome"], mirror.outcome(4)["outcome"])
    mirror.assert_holds(3)


def test_a_commit_of_somebody_else_is_never_passed_over(mirror: Mirror) -> None:
    """The version behind it is another than the one that was looked at; what was copied is gone."""
    mirror.publish(MORE)
    meddle = at("commit", "before", lambda: mirror.do("INSERT INTO {t} VALUES (500, 'foreign')"))

    report = mirror.run(observe=meddle)

    assert ("failed", "ForeignWriteError") == (report.state, report.error)
    assert [] == [path.name for path in mirror.path.glob("3-*.parquet")]


@pytest.mark.thorough
def test_a_harmless_commit_only_costs_another_try(mirror: Mirror) -> None:
    """As OPTIMIZE and properties are."""
    mirror.publish(MORE)
    meddle = at("commit", "before", lambda: mirror.do("ALTER TABLE {t} SET TBLPROPERTIES (a = 1)"))

    report = mirror.run(observe=meddle)

    assert ("current", ["adopt"]) == (report.state, kinds(report))
    mirror.assert_holds()


def test_a_journal_that_was_set_back_adds_no_file_again(mirror: Mirror) -> None:
    """The table has a batch that it knows nothing of, which Delta would skip, and who adds files does not see."""
    kept = mirror.root / "kept"
    shutil.copytree(mirror.journal, kept)
    mirror.publish(MORE)
    mirror.assert_current()
    shutil.rmtree(mirror.journal)
    shutil.move(kept, mirror.journal)

    mirror.assert_failed("JournalError", "batch 3 in the table, batch 2 in the journal")
    mirror.assert_holds()
    mirror.reset()
    mirror.assert_current()


@pytest.mark.thorough
def test_a_new_life_on_a_table_with_rows_replaces_them(mirror: Mirror) -> None:
    """What is there has to go, which adding files does not do."""
    mirror.reset()
    mirror.drop_and_publish(1)
    mirror.replace(1, MORE)

    report = mirror.assert_current()

    assert ["overwrite"] == kinds(report)


@pytest.mark.thorough
def test_a_slow_runner_of_an_old_life_adds_nothing(mirror: Mirror) -> None:
    """Its plan is of a life that has ended, which it sees in the commits since."""
    mirror.publish(MORE)
    mirror.run_until("plan", "after")
    work = mirror.open_work()
    plan = mirror.plan(work, 3)

    def reset() -> None:
        mirror.reset()
        mirror.assert_current()

    with pytest.raises(TableBusyError):
        carry_out(
            Attempt(work=replace(work, observe=at("commit", "before", reset)), plan=plan), None
        )

    mirror.assert_holds()
    mirror.publish()
    mirror.assert_current()


def test_two_runners_with_one_plan_remove_nothing_of_each_other(mirror: Mirror) -> None:
    """The one that comes too late takes back its own copies alone."""
    mirror.publish(MORE)
    mirror.run_until("plan", "after")
    work = mirror.open_work()
    plan = mirror.plan(work, 3)

    def overtake() -> None:
        mirror.assert_current()
        mirror.forget(3)

    done = carry_out(
        Attempt(work=replace(work, observe=at("commit", "before", overtake)), plan=plan), None
    )

    assert ("applied", "adopt") == (done.outcome, done.kind)
    mirror.assert_holds()
    assert 1 == len(list(mirror.path.glob("3-*.parquet")))
