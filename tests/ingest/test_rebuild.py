"""A table that is computed anew: nothing but what differs changes, at once, whatever is killed when; and it can be undone."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import mirrorlib
from mirrorlib.cli.main import main
from mirrorlib.delta.commits import Commits
from mirrorlib.delta.key_property import ON
from mirrorlib.delta.log import LOG, FileLog, commit_path
from mirrorlib.errors import FeedExpiredError, ForeignWriteError, JournalError
from mirrorlib.feed.owners import is_owners
from mirrorlib.ingest import next_batch, preview
from mirrorlib.ingest import rebuild as rebuild_module
from mirrorlib.ingest.files.table_folder import OpenedFolder
from mirrorlib.ingest.next_batch import Next
from mirrorlib.ingest.reset import start_over
from mirrorlib.journal.disk import Journal
from mirrorlib.journal.entries import Done, Life
from mirrorlib.landing.listing import FolderListing
from mirrorlib.names import parse_name
from mirrorlib.store import LocalStore, StoredFile, open_store
from mirrors import Killed, Mirror, at, die
from tables import newest_version
from zones import ZoneWriter

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from mirrorlib.ingest.report import ApplyReport, PlanReport, State

DAMAGE = (
    "DELETE FROM {t} WHERE id = 1",
    "UPDATE {t} SET v = 'x' WHERE id = 3",
    "INSERT INTO {t} VALUES (77, 'y')",
)


def rebuild(mirror: Mirror, **options: Any) -> Any:
    """Compute the table anew."""
    return mirrorlib.rebuild(mirror.spark, mirror.target, mirror.name, **options)


def undo(mirror: Mirror) -> None:
    """Give it the rows back that it had."""
    mirrorlib.undo_rebuild(mirror.spark, mirror.target, mirror.name)


def damage_rows(mirror: Mirror) -> Mirror:
    """Apply files, and let somebody else change, add and remove rows."""
    for _ in range(4):
        mirror.publish()
    mirror.assert_current()
    for statement in DAMAGE:
        mirror.do(statement)
    return mirror


@pytest.fixture(scope="module")
def _damaged(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Mirror:
    return damage_rows(Mirror(spark=spark, root=tmp_path_factory.mktemp("damaged")))


@pytest.fixture
def damaged(_damaged: Mirror, tmp_path: Path) -> Mirror:
    """Give a mirror of four files whose rows somebody else has changed."""
    return _damaged.copy(tmp_path)


def changes(mirror: Mirror, after: int) -> Counter[tuple[str, int, str]]:
    """Return what a table's feed tells of the versions behind one."""
    feed = mirrorlib.read_feed(mirror.spark, str(mirror.path), after=after).collect()
    return Counter((row["_change_type"], row["id"], row["v"]) for row in feed)


@pytest.mark.smoke
@pytest.mark.thorough("large")
@pytest.mark.parametrize("road", ["small", "large"])
def test_nothing_but_what_differs_changes(
    damaged: Mirror, road: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By one commit, which is foreseen, and after which the mirror goes on; a key of several rows is compared by row."""
    if road == "large":
        monkeypatch.setattr("mirrorlib.ingest.batch.open_batch.SMALL_BYTES", -1)
    before, written = damaged.newest, damaged.rows()

    plan: PlanReport = rebuild(damaged, plan=True)
    assert before == damaged.newest
    assert "inserts 2, updates 0 and deletes 2 rows" in plan.tables[0].differences, str(plan)
    report: ApplyReport = rebuild(damaged)

    assert [("current", "difference")] == [
        (one.state, ", ".join(batch.kind for batch in one.batches)) for one in report.tables
    ]
    damaged.assert_holds()
    assert written == damaged.rows(before)
    expected = {
        ("insert", 1, "by 4"),
        ("delete", 3, "x"),
        ("insert", 3, "by 3"),
        ("delete", 77, "y"),
    }
    found = changes(damaged, before)
    assert dict.fromkeys(expected, 1) == found
    damaged.publish()
    damaged.assert_current()


@pytest.mark.thorough
def test_a_row_that_differs_is_one_update(
    spark: SparkSession, zone: ZoneWriter, target: str
) -> None:
    """Where each key has one row; and consumers are given that, and no more."""
    table = zone.table("items", keys=["id"])
    table.file([{"id": n, "v": "a"} for n in range(5)])
    assert mirrorlib.apply(spark, str(zone), target).ok
    out = {"consumer": "copy", "to": f"delta:{target}-copy", "mode": "current"}
    assert mirrorlib.export(spark, target, **out).ok
    spark.sql(f"UPDATE delta.`{target}/items` SET v = 'b' WHERE id = 2")
    assert mirrorlib.export(spark, target, **out).tables[0].rows

    (planned,) = mirrorlib.rebuild(spark, target, "items", plan=True).tables
    assert "inserts 0, updates 1 and deletes 0 rows" in planned.differences
    assert ("the consumer copy will see what differs",) == planned.receivers
    assert mirrorlib.rebuild(spark, target, "items").ok
    (told,) = mirrorlib.export(spark, target, **out).tables

    feed = mirrorlib.read_feed(
        spark, f"{target}/items", after=newest_version(f"{target}/items") - 1
    )
    assert {("update_preimage", "b"), ("update_postimage", "a")} == {
        (row["_change_type"], row["v"]) for row in feed.collect()
    }
    assert 1 == told.windows
    copied = spark.read.format("delta").load(f"{target}-copy/items").collect()
    assert {(n, "a") for n in range(5)} == {(row["id"], row["v"]) for row in copied}


STEPS = ("list", "fence", "read", "plan", "guard", "stage", "commit", "done")


@pytest.mark.parametrize(
    "step, when",
    [
        pytest.param(s, w, marks=[] if (s, w) == ("commit", "after") else [pytest.mark.thorough])
        for s in STEPS
        for w in ("before", "after")
    ],
)
def test_killed_at_any_step_the_next_apply_ends_it(damaged: Mirror, step: str, when: str) -> None:
    """Readers see the rows of before, or those that are right; what came meanwhile is applied after them."""
    before = damaged.rows()
    damaged.publish()

    with pytest.raises(Killed):
        rebuild(damaged, observe=at(step, when, die))

    assert damaged.rows() in (before, damaged.expected(4))
    damaged.assert_current()
    damaged.assert_feed()


@pytest.mark.thorough
def test_called_again_it_goes_on(damaged: Mirror) -> None:
    """With the life that was begun; and once more, nothing differs."""
    with pytest.raises(Killed):
        rebuild(damaged, observe=at("plan", "before", die))

    assert rebuild(damaged).ok
    damaged.assert_holds()
    assert 2 == len(list((damaged.journal / "lives").iterdir()))
    before = damaged.newest
    assert rebuild(damaged).ok
    assert not changes(damaged, before)
    damaged.assert_current()


@pytest.mark.thorough
def test_a_rebuild_that_another_run_has_carried_out_is_done(
    damaged: Mirror, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one that watches may: the table has been computed anew, whoever did it."""

    def begin(*args: Any, **options: Any) -> Life:
        life = start_over(*args, **options)
        assert ["difference"] == [batch.kind for batch in damaged.assert_current().batches]
        return life

    monkeypatch.setattr(rebuild_module, "start_over", begin)

    report: ApplyReport = rebuild(damaged)

    assert [("current", 0)] == [(one.state, len(one.batches)) for one in report.tables]
    damaged.assert_holds()


@pytest.mark.thorough
def test_files_that_a_runner_cleans_up_meanwhile_are_missed_before_anything_begins(
    damaged: Mirror, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are looked at while nobody else works at the table."""

    def wait(*args: Any, **options: Any) -> Life:
        assert damaged.apply(cleanup="move", allow_foreign_writes=True).ok
        return start_over(*args, **options)

    damaged.publish()
    monkeypatch.setattr(rebuild_module, "start_over", wait)

    with pytest.raises(JournalError, match=r"is as it was.* is not in the landing zone"):
        rebuild(damaged)
    damaged.publish()
    assert damaged.apply(allow_foreign_writes=True).ok


@pytest.mark.thorough
def test_what_has_come_since_waits(damaged: Mirror) -> None:
    """Also a file that cannot be read, or that waits for another."""
    damaged.publish()
    damaged.table.garbage(6)

    (planned,) = rebuild(damaged, plan=True).tables
    assert (1, 4, "behind") == (planned.batches, planned.files, planned.state)
    (told,) = rebuild(damaged).tables

    assert ("behind", 4) == (told.state, told.position), told.reason
    damaged.assert_holds(4)
    (told,) = damaged.apply().tables
    assert ("failed", 5) == (told.state, told.position)
    damaged.assert_holds(5)


@pytest.mark.thorough
def test_what_stands_in_the_way_of_later_files_stands_in_no_rebuild_s(damaged: Mirror) -> None:
    """A number that is missing behind those that were applied."""
    damaged.table.file([{"id": 5, "v": "a"}], number=6)

    (told,) = rebuild(damaged).tables

    assert ("blocked", 1, 4) == (told.state, len(told.batches), told.position)
    damaged.assert_holds()


@pytest.mark.thorough
def test_a_snapshot_of_the_source_that_was_published_takes_the_place_of_all_before(
    damaged: Mirror,
) -> None:
    """Though the files before it are gone, and it was not applied yet."""
    rows = [{"id": n, "v": f"source {n}"} for n in (1, 5)]
    damaged.table.file(rows, number=6)
    for number in range(1, 4):
        damaged.table.path(number).unlink()
    with pytest.raises(JournalError, match=r"0001\.parquet is not in the landing zone"):
        rebuild(damaged)

    (told,) = rebuild(damaged, start_at=6).tables

    assert ("current", 6) == (told.state, told.position), told.reason
    with pytest.raises(JournalError, match=r"taken files.*Rebuild it again: mirrorlib"):
        undo(damaged)
    assert {(1, "source 1"), (5, "source 5")} == {
        (r["id"], r["v"])
        for r in damaged.spark.read.format("delta").load(str(damaged.path)).collect()
    }


@pytest.mark.thorough
@pytest.mark.parametrize("moved", [False, True])
def test_a_zone_that_was_refused_is_not_read(fresh: Mirror, *, moved: bool) -> None:
    """Though the last run named it, and it has such a file too; nor is it said to hold the table's files."""
    mirror, other = fresh, ZoneWriter(fresh.root / "staging")
    staging = other.table(fresh.name, keys=["id"])
    mirror.publish()
    mirror.assert_current()
    if moved:
        mirror.zone = ZoneWriter(mirror.zone.root.rename(mirror.root / "moved"))
        mirror.table.folder = mirror.zone.root / mirror.name
        mirror.assert_current()
    for number in (1, 2):
        staging.file([{"id": 9, "v": "staging"}], number=number)
    (refused,) = mirrorlib.apply(mirror.spark, str(other), mirror.target).tables
    assert "failed" == refused.state
    assert str(mirror.zone) == mirrorlib.status(mirror.target).tables[0].landing_zone
    assert "in its place" == mirrorlib.where_is(mirror.target, mirror.name, file=1).steps[-1].detail
    mirror.table.file([{"id": 1, "v": "source"}], number=2)

    assert rebuild(mirror, start_at=2).ok

    rows = mirror.spark.read.format("delta").load(str(mirror.path)).collect()
    assert [(1, "source")] == [(row["id"], row["v"]) for row in rows]


@pytest.mark.thorough
def test_what_a_killed_rebuild_has_begun_goes_on_from_the_same_zone(fresh: Mirror) -> None:
    """Nothing was applied in its life that would tell another zone, whose files are not the table's."""
    mirror, other = fresh, ZoneWriter(fresh.root / "staging")
    other.table(fresh.name, keys=["id"]).file([{"id": 9, "v": "staging"}])
    mirror.publish()
    mirror.assert_current()
    state = LocalStore(mirror.root / "target" / "_mirrorlib")
    Journal(state, parse_name(mirror.name)).begin_life("rebuild", str(mirror.zone), 2, 1)

    (refused,) = mirrorlib.apply(mirror.spark, str(other), mirror.target).tables
    former = str(mirror.zone)
    mirror.zone = ZoneWriter(mirror.zone.root.rename(mirror.root / "moved"))
    mirror.table.folder = mirror.zone.root / mirror.name
    report = mirrorlib.apply(mirror.spark, str(mirror.zone), mirror.target, moved_from=former)

    assert "failed" == refused.state
    assert "the table was filled from another landing zone" in str(refused.reason)
    assert report.ok, report
    mirror.assert_current()


@pytest.mark.thorough
def test_no_other_table_is_touched(spark: SparkSession, zone: ZoneWriter, target: str) -> None:
    """Neither one of its name in a schema, nor one that its name would match as a pattern."""
    names = ("orders", "dbo/orders", "x[ab]", "xa")
    for name in names:
        schema, _, table = name.rpartition("/")
        zone.table(table, keys=["id"], schema=schema or None).file([{"id": 1, "v": "a"}])
    assert mirrorlib.apply(spark, str(zone), target).ok
    for name in names:
        spark.sql(f"UPDATE delta.`{target}/{name}` SET v = 'b'")
        schema, _, table = name.rpartition("/")
        zone.table(table, keys=["id"], schema=schema or None).file([{"id": 2, "v": "a"}], number=2)

    for name in ("orders", "x[ab]"):
        (planned,) = mirrorlib.rebuild(spark, target, name, plan=True).tables
        (told,) = mirrorlib.rebuild(spark, target, name).tables
        assert ([name] * 2, 1, "behind") == ([planned.table, told.table], planned.files, told.state)

    found = {n: spark.read.format("delta").load(f"{target}/{n}").collect() for n in names}
    assert {"orders": "a", "dbo/orders": "b", "x[ab]": "a", "xa": "b"} == {
        n: rows[0]["v"] for n, rows in found.items()
    }


@pytest.mark.thorough
def test_other_files_or_rules_than_were_applied_are_refused(fresh: Mirror) -> None:
    """By name, before anything begins; the mirror goes on as it would have."""
    mirror = damage_rows(fresh)
    content = mirror.table.path(2).read_bytes()
    lives = list((mirror.journal / "lives").iterdir())
    for damage, words in (
        (
            lambda: mirror.table.replace(2, [{"id": 9, "v": "other"}], [0]),
            "is not what batch 1 has applied",
        ),
        (lambda: mirror.table.path(2).write_bytes(b"no parquet"), "not whole Parquet"),
    ):
        damage()
        assert words in str(rebuild(mirror, plan=True))
        with pytest.raises(JournalError, match=words):
            rebuild(mirror)
        mirror.table.path(2).write_bytes(content)
    metadata = mirror.table.folder / "_metadata.json"
    said = metadata.read_text()
    metadata.write_text(said.replace('"id"', '"v"'))
    for plan in (True, False):
        with pytest.raises(JournalError, match=r"_metadata.json says other things"):
            rebuild(mirror, plan=plan)
    metadata.write_text(said)
    with pytest.raises(JournalError, match=r"0005\.parquet is not in the landing zone"):
        rebuild(mirror, start_at=5)

    assert lives == list((mirror.journal / "lives").iterdir())
    assert rebuild(mirror).ok
    mirror.assert_holds()


@pytest.mark.thorough
def test_partition_folders_begin_each_for_itself(
    spark: SparkSession, zone: ZoneWriter, target: str
) -> None:
    """Of a life that began behind files of one, too."""
    table = zone.table("parts", keys=["id"], metadata={"isPartitionEnabled": True})
    for part, numbers in (("p=1", range(3, 6)), ("p=2", range(1, 3))):
        for number in numbers:
            table.file(
                [{"id": number * 10 + int(part[-1]), "v": "a"}], number=number, partition=part
            )
    assert mirrorlib.apply(spark, str(zone), target, start_at=3).ok
    rows = spark.read.format("delta").load(f"{target}/parts")
    before = sorted(rows.collect())
    spark.sql(f"UPDATE delta.`{target}/parts` SET v = 'b'")

    (told,) = mirrorlib.rebuild(spark, target, "parts").tables

    assert ("current", {"p=1": 5, "p=2": 2}) == (told.state, told.position), told.reason
    assert before == sorted(spark.read.format("delta").load(f"{target}/parts").collect())


@pytest.mark.thorough
def test_a_number_to_start_at_does_not_end_a_rebuild_that_was_killed(fresh: Mirror) -> None:
    """Else the rows of the files before it, which were applied, would be gone."""
    mirror = fresh
    for _ in range(6):
        mirror.publish()
    mirror.assert_current(max_files=1)
    with pytest.raises(Killed):
        rebuild(mirror, observe=at("plan", "before", die))

    mirror.assert_current(start_at=5)

    newest = max((mirror.journal / "lives").glob("*.json"))
    assert "rebuild" == json.loads(newest.read_text())["why"]


@pytest.mark.thorough
def test_what_somebody_wrote_meanwhile_outlives_an_undo(damaged: Mirror) -> None:
    """Whatever the rebuild has made of it, its undoing gives back what was there right before."""
    insert = at("plan", "after", lambda: damaged.do("INSERT INTO {t} VALUES (50, 'theirs')"))
    (told,) = rebuild(damaged, observe=insert).tables
    assert ("failed", 1) == (told.state, len(told.batches))
    assert "somebody else wrote" in told.reason

    undo(damaged)

    assert 1 == damaged.spark.read.format("delta").load(str(damaged.path)).where("id = 50").count()


@pytest.mark.parametrize(
    "state, missing, folder, how",
    [
        ("blocked", 1, "", "mirrorlib rebuild TARGET TABLE --start-at N"),
        ("current", 2, "", "mirrorlib rebuild TARGET TABLE --start-at N"),
        ("current", 2, "p=1", "mirrorlib reset TARGET TABLE --start-at N"),
    ],
)
def test_a_rebuild_that_has_begun_says_what_it_lacks(
    state: State, missing: int, folder: str, how: str
) -> None:
    """A cleaner has taken a file before the plan: to publish it, as other missing numbers, is no advice."""
    file = StoredFile(path="", size=0, etag="", modified=datetime.now(UTC))
    listing = FolderListing(partitions={folder: {3 - missing: file}}, foreign=())
    opened = OpenedFolder(listing=listing, metadata=None, warnings=(), listed_at="")

    told, files = next_batch._up_to({folder: 2}, Next(state=state, reason="is missing"), (), opened)

    assert ("blocked", None, ()) == (told.state, told.file, files)
    missed = f"{folder}/{missing:020d}.parquet".removeprefix("/")
    assert told.reason.startswith(f"{missed} is not in the landing zone")
    assert "publish a snapshot of the source" in told.reason
    assert told.reason.endswith(how)


def test_a_rebuild_lacks_nothing_of_a_folder_that_has_applied_nothing() -> None:
    """A life that began with a number passes over the files before it there."""
    file = StoredFile(path="", size=0, etag="", modified=datetime.now(UTC), below="p=1/3.parquet")
    listing = FolderListing(partitions={}, foreign=())
    opened = OpenedFolder(listing=listing, metadata=None, warnings=(), listed_at="")
    begins = Next(position={"p=1": 2, "p=2": 4}, state="failed")

    told, files = next_batch._up_to({"p=1": 3, "p=2": 4}, begins, ((3, file),), opened)

    assert ("current", ((3, file),)) == (told.state, files)


@pytest.mark.thorough
def test_a_rebuild_that_was_killed_can_be_foreseen(damaged: Mirror) -> None:
    """As long as it has planned nothing."""
    with pytest.raises(Killed):
        rebuild(damaged, observe=at("plan", "before", die))

    (planned,) = rebuild(damaged, plan=True).tables

    assert (1, 4) == (planned.batches, planned.files)


@pytest.mark.thorough
def test_it_can_be_undone_until_something_else_is_committed(damaged: Mirror) -> None:
    """Once, and for good; what somebody else had written is refused again, and the mirror goes on when that is accepted."""
    rows = damaged.rows()
    assert rebuild(damaged).ok
    other, state = f"{damaged.target}-other", f"{damaged.target}/_mirrorlib"
    with pytest.raises(JournalError, match="another target's"):
        mirrorlib.undo_rebuild(damaged.spark, other, damaged.name, state=state)

    undo(damaged)
    undo(damaged)

    assert rows == damaged.rows()
    found = changes(damaged, damaged.newest - 1)
    assert {"insert", "delete"} == {kind for kind, _, _ in found}
    assert 4 == sum(found.values())
    damaged.publish()
    damaged.assert_failed("ForeignWriteError", "somebody else wrote")
    assert "current" == damaged.run(allow_foreign_writes=True).state
    with pytest.raises(JournalError, match="no rebuild to undo"):
        undo(damaged)


@pytest.mark.thorough
def test_a_mirror_that_was_right_goes_on_behind_an_undo(mirror: Mirror) -> None:
    """Nobody else has written to it: there is nothing to accept."""
    assert rebuild(mirror).ok
    undo(mirror)

    mirror.publish()
    mirror.assert_current()


@pytest.mark.parametrize(
    "wrote, keys, is_ours",
    [
        (None, "", True),
        ("OPTIMIZE", "", True),
        ("DELETE", "", False),
        (None, "{}", False),
        ("", "", False),
    ],
    ids=["nobody", "upkeep", "somebody", "accepted before", "forgotten"],
)
def test_rows_of_others_do_not_become_ours_by_an_undo(
    tmp_path: Path, wrote: str | None, keys: str, is_ours: bool
) -> None:
    """Nor are they where keys were given up before, as they had been accepted; nor where the log does not tell."""
    life = Life(ordinal=1, uuid="ours", why="first seen", zone="z", started_at="")
    info = {"operation": wrote}
    if wrote is None:
        info = {"operation": "MERGE", "userMetadata": json.dumps({"mirrorlib": {"life": "ours"}})}
    (tmp_path / LOG).mkdir()
    for version in (1, 3, *((2,) if wrote != "" else ())):
        (tmp_path / commit_path(version)).write_text(json.dumps({"commitInfo": info}))
    was, done = (
        Done(
            outcome="applied",
            version=version,
            table_id=None,
            columns=(),
            table_bytes=0,
            kind="merge",
            finished_at="",
            keys=said,
        )
        for version, said in ((1, ""), (3, keys))
    )

    assert is_ours == rebuild_module._was_ours(FileLog(LocalStore(tmp_path)), [life], was, done)


@pytest.mark.parametrize("wrote, claims", [("OPTIMIZE", True), ("DELETE", False)])
def test_an_undone_rebuild_claims_no_key_of_rows_of_others(
    tmp_path: Path, wrote: str, claims: bool
) -> None:
    """Its commit says on which version its rows were computed, and who has written since then is looked at."""
    (tmp_path / LOG).mkdir()
    ours = {"operation": "MERGE", "userMetadata": json.dumps({"mirrorlib": {"life": "ours"}})}
    undone = {"life": None, "outcome": "undone", ON: 1}
    undo = {"operation": "MERGE", "userMetadata": json.dumps({"mirrorlib": undone})}
    for version, info in enumerate([ours, ours, {"operation": wrote}, ours, undo]):
        (tmp_path / commit_path(version)).write_text(json.dumps({"commitInfo": info}))

    assert claims == is_owners(Commits(LocalStore(tmp_path), "t"), 4)


@pytest.mark.thorough
def test_what_is_committed_while_it_is_undone_stays(
    damaged: Mirror, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By another machine, which no lock keeps off: nothing is undone then."""
    assert rebuild(damaged).ok
    staged = rebuild_module.stage_difference

    def meet(*given: Any) -> Any:
        found = staged(*given)
        damaged.do("INSERT INTO {t} VALUES (78, 'z')")
        return found

    monkeypatch.setattr(rebuild_module, "stage_difference", meet)
    with pytest.raises(ForeignWriteError, match="written to since"):
        undo(damaged)

    assert 1 == damaged.spark.read.format("delta").load(str(damaged.path)).where("id = 78").count()


@pytest.mark.thorough
def test_what_was_committed_since_is_not_undone(damaged: Mirror) -> None:
    """By whoever: it would be lost."""
    assert rebuild(damaged).ok
    damaged.do("INSERT INTO {t} VALUES (78, 'z')")

    with pytest.raises(ForeignWriteError, match="written to since"):
        undo(damaged)
    damaged.assert_failed("ForeignWriteError", "WRITE")


@pytest.mark.thorough
def test_rows_that_are_gone_are_not_given_back(damaged: Mirror) -> None:
    """After a vacuum, that is said; the table stays as it is."""
    assert rebuild(damaged).ok
    damaged.do(
        "ALTER TABLE {t} SET TBLPROPERTIES ('delta.deletedFileRetentionDuration' = 'interval 0 hours')"
    )
    mirrorlib.vacuum(damaged.spark, damaged.target, tables=[damaged.name], hours=0, force=True)

    with pytest.raises(FeedExpiredError):
        undo(damaged)
    damaged.assert_holds()


@pytest.mark.thorough
def test_other_columns_are_replaced_whole(damaged: Mirror) -> None:
    """As by a reset; there is nothing then that could be undone by what differs."""
    damaged.do("ALTER TABLE {t} ADD COLUMNS (w string)")

    assert "replaces the table" in str(rebuild(damaged, plan=True))
    (told,) = rebuild(damaged).tables

    assert ["overwrite"] == [batch.kind for batch in told.batches], told.reason
    damaged.assert_holds()
    with pytest.raises(JournalError, match="replaced the table whole"):
        undo(damaged)


def test_what_cannot_be_computed_anew_is_said_before_anything_begins(
    spark: SparkSession, zone: ZoneWriter, target: str
) -> None:
    """No table, no batch, no numbers, a file that is gone: each by name; nothing has changed."""
    zone.table("timed", keys=["id"], by_time=True).file([{"id": 1}])
    gap = zone.table("gap", keys=["id"])
    for number in (1, 2, 3):
        gap.file([{"id": number}])
    assert mirrorlib.apply(spark, str(zone), target).ok
    gap.path(2).unlink()
    words = "00000000000000000002.parquet"
    assert words in str(mirrorlib.rebuild(spark, target, "gap", plan=True))
    with pytest.raises(JournalError, match=words):
        mirrorlib.rebuild(spark, target, "gap")
    for table, words in (("none", "no such table"), ("timed", "files all have numbers")):
        for plan in (True, False):
            with pytest.raises(JournalError, match=words):
                mirrorlib.rebuild(spark, target, table, plan=plan)
    assert ["current"] * 2 == [one.state for one in mirrorlib.status(target).tables]
    begun = Journal(open_store(f"{target}/_mirrorlib"), parse_name("begun"))
    begun.begin_life("first seen", str(zone), 1)
    with pytest.raises(JournalError, match="apply once, with --allow-foreign-writes where it"):
        mirrorlib.rebuild(spark, target, "begun")


def test_of_a_table_that_was_removed_nothing_comes_back_before_all_of_it_can(
    spark: SparkSession, zone: ZoneWriter, target: str
) -> None:
    """Readers would take a half of it for the table, and what follows for changes."""
    orders = zone.table("orders", keys=["id"])
    for number in (1, 2, 3):
        orders.file([{"id": number}])
    assert mirrorlib.apply(spark, str(zone), target).ok
    shutil.rmtree(f"{target}/orders")
    whole = orders.path(2).read_bytes()
    orders.path(2).write_bytes(whole[: len(whole) // 2])

    with pytest.raises(JournalError, match=r"is as it was.*000002\.parquet"):
        mirrorlib.rebuild(spark, target, "orders")
    assert not Path(target, "orders").exists()
    orders.path(2).write_bytes(whole)
    (done,) = mirrorlib.rebuild(spark, target, "orders").tables
    assert ("current", 3) == (done.state, sum(batch.files for batch in done.batches)), done.reason


def test_what_would_differ_is_computed_for_a_plan_alone(
    fresh: Mirror, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It takes as long as the rebuild, which would be done twice."""
    fresh.publish()
    fresh.assert_current()
    monkeypatch.setattr(preview, "tell_difference", None)

    assert rebuild(fresh).ok
    assert not rebuild(fresh, plan=True).ok


@pytest.mark.thorough
def test_the_command_tells_does_and_undoes(
    damaged: Mirror, capsys: pytest.CaptureFixture[str]
) -> None:
    """With the report of plan, and that of apply."""
    words = ["rebuild", damaged.target, damaged.name]
    assert 0 == main([*words, "--plan"])
    told = capsys.readouterr().out
    assert "computes the table anew, and changes what differs" in told
    assert "--approve" not in told  # which is apply's
    assert 0 == main([*words, "--json"])
    assert "difference" in json.loads(capsys.readouterr().out)["tables"][0]["batches"][0]["kind"]
    assert 0 == main([*words, "--undo"])
    assert "had before its rebuild" in capsys.readouterr().out
    damaged.publish()
    damaged.run(allow_foreign_writes=True)
    assert 2 == main([*words, "--undo"])
    assert "there is no rebuild to undo" in capsys.readouterr().err
