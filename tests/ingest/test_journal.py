"""The journal: written once, found by one short listing, and never taken for what it is not when somebody has damaged it."""

from __future__ import annotations

import errno
import json
import os
import shutil
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from pathlib import Path
from typing import cast

import pytest

from mirrorlib.errors import JournalError, MirrorError, StoreError
from mirrorlib.journal.disk import Journal, open_state
from mirrorlib.journal.entries import Done, Entry, Life, Plan, PlannedFile, Policies
from mirrorlib.names import TableName
from mirrorlib.store import LocalStore, Store
from mirrors import Mirror
from polls import CountingStore

TABLE = TableName("dbo", "orders")
PLAN = Plan(
    life="life",
    batch=1,
    attempt="mine",
    zone="/zone",
    files=(
        PlannedFile(
            name="00000000000000000001.parquet",
            size=10,
            etag="e",
            rows=2,
            modified="2026-01-01T00:00:00+00:00",
            fingerprint="f",
        ),
    ),
    before={},
    after={"": 1},
    policies=Policies(
        keys=('sp"äce', "b\n"),
        upsert_default=False,
        insert_policy="append",
        evolution="widen",
        ntz="utc",
    ),
    table_version=None,
    previous=None,
    listed_at="2026-01-01T00:00:00+00:00",
)
DONE = Done(
    outcome="applied",
    version=1,
    table_id="id",
    columns=(("id", "bigint"), ("a b", "decimal(9,2)")),
    table_bytes=10,
    kind="append",
    rows={"inserts": 2},
    seconds={"commit": 0.5},
    cause={"file": "x", "etag": None},
    finished_at="2026-01-01T00:00:00+00:00",
)


class LosesAnswers(LocalStore):
    """Every conditional put goes through, and is told as refused: its answer was lost and the client tried again."""

    def put_new(self, path: str, data: bytes) -> bool:
        """Write, and deny it."""
        super().put_new(path, data)
        return False


class KeepsNobodyOut(LocalStore):
    """A store whose conditional put is none."""

    def put_new(self, path: str, data: bytes) -> bool:
        """Replace what is there."""
        self.put(path, data)
        return True


@pytest.fixture
def state(tmp_path: Path) -> LocalStore:
    """Give an empty state folder."""
    return LocalStore(tmp_path / "state")


@pytest.fixture
def journal(state: LocalStore) -> Journal:
    """Give a table's journal, empty."""
    return Journal(state, TABLE)


@pytest.fixture
def life(journal: Journal) -> Life:
    """Begin a life."""
    return journal.begin_life("first seen", "/zone", 1)


def paths(state: LocalStore, pattern: str) -> list[Path]:
    """Find files of the state folder."""
    return sorted(Path(state.url).rglob(pattern))


def test_what_is_written_is_read_again(journal: Journal, life: Life) -> None:
    """Every value survives, odd characters and all."""
    odd = replace(PLAN, policies=replace(PLAN.policies, keys=("id", "\ud800", "\u2028")))

    assert (life,) == journal.lives()
    assert odd == journal.write_plan(life, odd)
    assert DONE == journal.write_done(life, 1, DONE)
    assert Entry(plan=odd, done=DONE) == journal.newest(life) == journal.entry(life, 1)


def test_a_life_without_a_plan_has_no_newest_batch(journal: Journal, life: Life) -> None:
    """Nothing is there, and nothing is made up."""
    assert journal.newest(life) is None


@pytest.mark.parametrize("count", [1, 9, 10, 11, 120])
def test_the_newest_batch_is_found_with_and_without_outcome(
    journal: Journal, life: Life, count: int
) -> None:
    """However many there are, also where the number gets a digit more."""
    for batch in range(1, count + 1):
        journal.write_plan(life, replace(PLAN, batch=batch))
        journal.write_done(life, batch, DONE)
    assert Entry(plan=replace(PLAN, batch=count), done=DONE) == journal.newest(life)

    journal.write_plan(life, replace(PLAN, batch=count + 1))
    assert Entry(plan=replace(PLAN, batch=count + 1), done=None) == journal.newest(life)


def test_whoever_comes_second_gets_what_the_first_has_written(journal: Journal, life: Life) -> None:
    """Plans, outcomes and lives are written once."""
    journal.write_plan(life, PLAN)
    journal.write_done(life, 1, DONE)

    assert PLAN == journal.write_plan(life, replace(PLAN, attempt="other"))
    assert DONE == journal.write_done(life, 1, replace(DONE, outcome="void"))
    assert life == journal.begin_life("reset", "/zone", 1)


def test_runners_that_begin_a_life_at_once_agree_on_it(journal: Journal) -> None:
    """Eight threads, one life."""
    with ThreadPoolExecutor(8) as pool:
        lives = set(
            pool.map(lambda turn: journal.begin_life(f"runner {turn}", "/zone", 1).uuid, range(8))
        )

    assert 1 == len(lives)


def test_a_lost_answer_is_no_other_runners_file(tmp_path: Path) -> None:
    """A plan that was written, although the store denies it, is ours by what it says."""
    journal = Journal(LosesAnswers(tmp_path), TABLE)
    life = journal.begin_life("first seen", "/zone", 1)

    assert PLAN == journal.write_plan(life, PLAN)
    assert DONE == journal.write_done(life, 1, DONE)


def test_lives_are_ordered_and_apart(journal: Journal, life: Life) -> None:
    """A new life begins with no batch, and the old one keeps its own."""
    journal.write_plan(life, PLAN)
    second = journal.begin_life("reset", "/zone", 2)

    assert (life, second) == journal.lives()
    assert journal.newest(second) is None
    assert journal.newest(life) == Entry(plan=PLAN, done=None)


def test_half_written_files_are_not_there(state: LocalStore, journal: Journal, life: Life) -> None:
    """What a killed runner left under a temporary name is nobody's plan."""
    journal.write_plan(life, PLAN)
    journal.write_move(life, "/old", "/new")
    for file in (
        *paths(state, "*.plan.json"),
        *paths(state, "moves/*/*"),
        *paths(state, "lives/*"),
    ):
        (file.parent / ".0a1b2c.tmp").write_text("{")

    assert Entry(plan=PLAN, done=None) == journal.newest(life)
    assert (life,) == journal.lives()
    assert (("/old", "/new"),) == journal.moves(life)


def test_stray_files_are_no_lives(state: LocalStore, journal: Journal, life: Life) -> None:
    """A Mac puts its own files beside others, and people their notes."""
    for name in ("._000001.json", "notes.json", "000002.json.bak"):
        (paths(state, "lives")[0] / name).write_text("{")

    assert (life,) == journal.lives()


def test_stray_files_are_no_plans(state: LocalStore, journal: Journal, life: Life) -> None:
    """What sorts before them, as copies of their own names do, hides neither a plan nor a checkpoint."""
    journal.write_plan(life, PLAN)
    journal.write_checkpoint(life, 1, b"rows")
    for own in (*paths(state, "*.plan.json"), *paths(state, "*.parquet")):
        for name in ("# notes", f"(1) {own.name}", own.name.replace(".", " (1).", 1)):
            (own.parent / name).write_text("{")

    assert Entry(plan=PLAN, done=None) == journal.newest(life)
    assert (1, b"rows") == journal.newest_checkpoint(life)


def test_tables_do_not_share_a_journal(state: LocalStore) -> None:
    """Names that look alike have folders of their own."""
    names = [
        TableName("dbo", "orders"),
        TableName(None, "dbo"),
        TableName(None, "orders"),
        TableName("dbo", "or.ders"),
        TableName("dbo.or", "ders"),
        TableName(None, "a%20b"),
        TableName(None, "a b"),
    ]
    lives = {Journal(state, name).begin_life("first seen", "/zone", 1).uuid for name in names}

    assert len(names) == len(lives)


GARBAGE = [
    b"",
    b"{",
    b"\xff\xfe",
    b"null",
    b"[]",
    b'"plan"',
    b"{}",
    b'{"format": 2}',
    b'{"format": 1}',
    b"[" * 100_000,
]


@pytest.mark.parametrize("data", GARBAGE)
@pytest.mark.parametrize("kind", ["*.plan.json", "*.done.json", "000001.json"])
def test_garbage_is_named(
    state: LocalStore, journal: Journal, life: Life, kind: str, data: bytes
) -> None:
    """A file that cannot be understood stops its table and is named; nothing is assumed in its place."""
    journal.write_plan(life, PLAN)
    journal.write_done(life, 1, DONE)
    path = paths(state, kind)[0]
    path.write_bytes(data)

    with pytest.raises(JournalError) as caught:
        (journal.lives(), journal.newest(life))

    assert path.name in str(caught.value)
    assert "dbo/orders" == caught.value.table


@pytest.mark.parametrize("name", ["files", "policies", "after", "life"])
def test_a_plan_that_lacks_a_value_is_named(
    state: LocalStore, journal: Journal, life: Life, name: str
) -> None:
    """As written by a version that did not have it, or by hand."""
    journal.write_plan(life, PLAN)
    path = paths(state, "*.plan.json")[0]
    path.write_text(
        json.dumps(
            {key: value for key, value in json.loads(path.read_text()).items() if key != name}
        )
    )

    with pytest.raises(JournalError, match=name):
        journal.newest(life)


@pytest.mark.parametrize(
    "name, value",
    [
        ("files", ["x"]),
        ("files", 1),
        ("files", []),
        ("files", [{**asdict(PLAN.files[0]), "modified": "soon"}]),
        ("policies", []),
        ("columns", ["x"]),
        ("finished_at", "soon"),
    ],
)
def test_a_value_of_another_shape_is_named(
    state: LocalStore, journal: Journal, life: Life, name: str, value: object
) -> None:
    """Valid JSON that is no plan and no outcome."""
    journal.write_plan(life, PLAN)
    journal.write_done(life, 1, DONE)
    path = paths(state, "*.done.json" if name in asdict(DONE) else "*.plan.json")[0]
    path.write_text(json.dumps({**json.loads(path.read_text()), name: value}))

    with pytest.raises(JournalError) as caught:
        journal.newest(life)

    assert path.name in str(caught.value)


def test_values_of_a_later_version_are_left_alone(
    state: LocalStore, journal: Journal, life: Life
) -> None:
    """The same format may say more than this version knows."""
    journal.write_plan(life, PLAN)
    path = paths(state, "*.plan.json")[0]
    path.write_text(json.dumps({**json.loads(path.read_text()), "colour": "blue"}))

    assert Entry(plan=PLAN, done=None) == journal.newest(life)


def test_an_outcome_without_its_plan_is_named(
    state: LocalStore, journal: Journal, life: Life
) -> None:
    """Else the batch would be planned anew, and the old outcome taken for the new plan's."""
    for batch in (1, 2):
        journal.write_plan(life, replace(PLAN, batch=batch))
        journal.write_done(life, batch, DONE)
    path = paths(state, "*-2.plan.json")[0]
    path.unlink()

    with pytest.raises(JournalError) as caught:
        journal.newest(life)

    assert path.name in str(caught.value)


def test_a_status_that_cannot_be_read_is_written_anew(state: LocalStore, journal: Journal) -> None:
    """Nothing rests on the last word."""
    journal.write_status({"state": "current"})
    path = paths(state, "status.json")[0]
    path.write_text("{")

    assert {} == journal.read_status()
    journal.write_status({"state": "behind"})
    assert "behind" == journal.read_status()["state"]


def test_a_status_is_one_request_whether_it_is_there_or_not(state: LocalStore) -> None:
    """Every run asks for every table's, twice."""
    asked = CountingStore(state)
    journal = Journal(cast("Store", asked), TABLE)

    assert ({}, {"read": 1}) == (journal.read_status(), asked.asked())
    journal.write_status({"state": "behind"})
    asked.asked()
    assert ("behind", {"read": 1}) == (journal.read_status()["state"], asked.asked())


def test_a_state_folder_is_tried_once(state: LocalStore) -> None:
    """It then says that it was, and no probe is left."""
    open_state(state)
    open_state(state)

    assert ["state.json"] == [path.name for path in paths(state, "*")]


def test_a_store_that_keeps_nobody_out_is_refused(tmp_path: Path) -> None:
    """Two runners could apply a batch twice; nothing is left behind."""
    with pytest.raises(JournalError, match="put-if-absent"):
        open_state(KeepsNobodyOut(tmp_path))

    assert [] == list(tmp_path.iterdir())


@pytest.mark.parametrize("number", [errno.EPERM, errno.ENOSYS, errno.EOPNOTSUPP])
def test_a_mount_without_hard_links_is_refused_with_what_to_do(
    state: LocalStore, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has no put-if-absent; a folder that may not be written is told as such."""

    def link(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "link", link)
    with pytest.raises(JournalError, match="Keep the state on another store, with --state"):
        open_state(state)

    assert [] == paths(state, "*")
    number = errno.EACCES
    with pytest.raises(StoreError, match="may be read and written"):
        open_state(state)


def test_a_state_folder_is_one_target_s(state: LocalStore) -> None:
    """The first that names it, be it years after the folder was made; another is refused, whose tables it does not know."""
    open_state(state)
    open_state(state, "c.bronze")
    open_state(state, "c.bronze")
    open_state(state)  # consumers of several targets may share one

    with pytest.raises(JournalError, match=r"another target's.*found c\.bronze.*--state") as told:
        open_state(state, "c.silver")

    assert told.value.wrong_usage
    assert "c.bronze" == json.loads(state.read("state.json") or b"")["target"]


@pytest.mark.parametrize("data", [b"{", b'{"format": 2}', b"[" * 100_000])
def test_a_state_folder_of_another_format_is_refused(state: LocalStore, data: bytes) -> None:
    """A newer version's journal is not for this one to write into."""
    open_state(state)
    state.put("state.json", data)

    with pytest.raises(JournalError, match=r"state\.json") as told:
        open_state(state)

    assert ("remove it" in str(told.value)) == (b"format" not in data)
    state.delete("state.json")
    open_state(state, "c.bronze")
    assert "c.bronze" == json.loads(state.read("state.json") or b"")["target"]


@pytest.mark.thorough
@pytest.mark.parametrize("pattern", ["*-2.plan.json", "*-2.done.json", "000001.json"])
def test_a_damaged_journal_stops_its_own_table_only(mirror: Mirror, pattern: str) -> None:
    """The file is named, other tables go on, and so does this one once the file is back."""
    mirror.zone.table("customers", keys=["id"]).file([{"id": 1}], [0])
    path = next(mirror.journal.rglob(pattern))
    whole = path.read_text()
    path.write_text(whole[: len(whole) // 2])
    mirror.publish()
    newest = mirror.newest

    states = {report.table: (report.state, report.error) for report in mirror.apply().tables}
    assert {"customers": ("current", None), mirror.name: ("failed", "JournalError")} == states
    report = mirror.assert_failed("JournalError", path.name)
    assert newest == mirror.newest
    assert "unless it lies in `lives`, reset the table" in report.reason

    path.write_text(whole)
    mirror.assert_current()


def test_a_folder_in_a_files_place_stops_its_own_table_only(mirror: Mirror) -> None:
    """What cannot be read at all is named as well."""
    path = next(mirror.journal.rglob("*-2.plan.json"))
    kept = path.rename(path.with_name("kept"))
    path.mkdir()
    mirror.publish()

    mirror.assert_failed("StoreError", path.name)
    path.rmdir()
    kept.rename(path)
    mirror.assert_current()


def test_a_lost_outcome_costs_a_look(mirror: Mirror) -> None:
    """The commit itself says how its batch ended."""
    mirror.forget(2)
    mirror.publish()

    mirror.assert_current()
    assert "applied" == mirror.outcome(2)["outcome"]


@pytest.mark.thorough
def test_a_lost_plan_is_never_made_again(mirror: Mirror) -> None:
    """Files of a plan that nobody has any more are not taken for unapplied, nor others for applied."""
    next(mirror.journal.rglob("*-2.plan.json")).unlink()
    mirror.publish()
    newest = mirror.newest

    mirror.assert_failed("JournalError", "-2.plan.json")
    assert newest == mirror.newest
    mirror.reset()
    mirror.assert_current()


@pytest.mark.thorough
def test_a_first_plan_that_was_lost_is_not_taken_for_another(fresh: Mirror) -> None:
    """The table's first batch is that of the lost plan, and the files of the new one are not in it."""
    fresh.publish()
    fresh.assert_current()
    shutil.rmtree(fresh.journal / "000001")
    fresh.publish()

    fresh.assert_failed("OutcomeUnknownError", "no commit names it")
    fresh.reset()
    fresh.assert_current()


@pytest.mark.thorough
def test_a_lost_status_is_written_anew(mirror: Mirror) -> None:
    """Garbage in the last word stops neither apply nor reset."""
    path = mirror.journal / "status.json"
    path.write_text("{")
    mirror.publish()
    mirror.assert_current()
    assert "current" == json.loads(path.read_text())["state"]

    path.write_text("{")
    mirror.reset()
    mirror.assert_current()


def test_a_zone_in_its_target_is_an_error_of_the_call(mirror: Mirror) -> None:
    """State inside the zone would be taken for a table."""
    with pytest.raises(MirrorError, match="one inside the other"):
        mirror.apply(state=str(mirror.root / "zone" / "state"))
