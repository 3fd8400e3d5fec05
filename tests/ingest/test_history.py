"""Which files of a table without numbers were applied is read from the plans, and from checkpoints of them."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from mirrorlib.errors import JournalError
from mirrorlib.ingest.files.history import History, passed_files
from mirrorlib.journal.disk import Journal
from mirrorlib.journal.entries import Done, Life, Plan, PlannedFile, Policies, now
from mirrorlib.names import TableName
from mirrorlib.store import LocalStore, StoredFile

PLAN = Plan(
    life="life",
    batch=1,
    attempt="mine",
    zone="/zone",
    files=(),
    before={},
    after={},
    policies=Policies(
        keys=(), upsert_default=False, insert_policy="append", evolution="widen", ntz="utc"
    ),
    table_version=None,
    previous=None,
    listed_at="",
)
DONE = Done(
    outcome="applied", version=1, table_id="id", columns=(), table_bytes=0, kind="append", finished_at=now()
)  # fmt: skip


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    """Give an empty journal."""
    return Journal(LocalStore(tmp_path), TableName(None, "t"))


def planned(batch: int) -> Plan:
    """Plan two files; their time is the batch's."""
    moment = f"2026-01-01T{batch // 60:02d}:{batch % 60:02d}:00+00:00"
    files = tuple(
        PlannedFile(
            name=f"{batch}{part}.parquet",
            size=1,
            etag=f"e{batch}",
            rows=1,
            modified=moment,
            fingerprint="f",
        )
        for part in "ab"
    )
    return replace(PLAN, batch=batch, files=files)


def end(journal: Journal, life: Life, batch: int, outcome: str = "applied") -> None:
    """Plan a batch and write down its end."""
    journal.write_plan(life, planned(batch))
    journal.write_done(life, batch, replace(DONE, outcome=outcome))


def test_nothing_is_applied_before_the_first_plan(journal: Journal) -> None:
    """Neither without a life nor at its begin."""
    assert (0, None) == (
        History(journal, "/zone").applied().count,
        History(journal, "/zone").applied().newest,
    )

    journal.begin_life("first seen", "/zone", 1)

    assert {} == History(journal, "/zone").applied().etags


def test_applied_batches_count_and_voided_ones_do_not(journal: Journal) -> None:
    """A plan without an outcome only where it is asked for."""
    life = journal.begin_life("first seen", "/zone", 1)
    history = History(journal, "/zone")
    end(journal, life, 1)
    assert ["1a.parquet", "1b.parquet"] == list(history.applied().etags)
    end(journal, life, 2, outcome="void")
    end(journal, life, 3)
    journal.write_plan(life, planned(4))

    found = history.applied()

    assert {
        "1a.parquet": "e1",
        "1b.parquet": "e1",
        "3a.parquet": "e3",
        "3b.parquet": "e3",
    } == found.etags
    assert ("2026-01-01T00:03:00+00:00", 4) == (str(found.newest).replace(" ", "T"), found.count)
    assert found == History(journal, "/zone").applied()
    assert 6 == History(journal, "/zone", planned=True).applied().count


def test_a_new_life_has_applied_nothing(journal: Journal) -> None:
    """Its files are all new, the same names too."""
    end(journal, journal.begin_life("first seen", "/zone", 1), 1)
    history = History(journal, "/zone")
    assert 2 == history.applied().count

    journal.begin_life("reset", "/zone", 2)

    assert 0 == history.applied().count


def test_a_checkpoint_stands_for_the_plans_before_it(journal: Journal, tmp_path: Path) -> None:
    """Every hundred batches, and two stay; a start then reads what came after, and a damaged one is no loss."""
    life = journal.begin_life("first seen", "/zone", 1)
    history = History(journal, "/zone")
    for batch in range(1, 304):
        end(journal, life, batch)
        history.applied()
        history.compact()
    whole = history.applied()
    folder = tmp_path / "journal" / "t" / "000001.applied"
    checkpoints = sorted(folder.iterdir())
    assert ["300", "200"] == [path.stem.rpartition("-")[2] for path in checkpoints]
    reads: list[str] = []
    kept = journal.entry

    def entry(life: Life, batch: int) -> object:
        reads.append(str(batch))
        return kept(life, batch)

    journal.entry = entry  # type: ignore[method-assign,assignment]  # to see what is read
    assert whole == History(journal, "/zone").applied()
    assert ["301", "302"] == reads

    checkpoints[0].write_bytes(b"damaged")

    assert whole == History(journal, "/zone").applied()


def test_what_a_life_passes_over_is_written_before_it_begins(
    journal: Journal, tmp_path: Path
) -> None:
    """The first word counts, and only for a life that says so; without it nobody guesses."""
    moment = datetime(2026, 1, 1, tzinfo=UTC)
    files = [StoredFile(path=f"t/{n}", size=1, modified=moment, etag=f"e{n}") for n in "ab"]
    journal.write_passed(1, passed_files(files))
    journal.write_passed(1, passed_files([]))
    assert {} == History(journal, "/zone").passed()
    journal.begin_life("first seen", "/zone", 1, include_existing=False)

    history = History(journal, "/zone")

    assert {"a": "ea", "b": "eb"} == history.passed() == history.passed()
    (tmp_path / "journal" / "t" / "000001.passed.parquet").unlink()
    with pytest.raises(JournalError, match="cannot say which files were there"):
        History(journal, "/zone").passed()
    journal.begin_life("reset", "/zone", 2)
    assert {} == history.passed()
    journal.write_passed(3, passed_files([]))
    journal.begin_life("x", "/zone", 3, include_existing=False)
    assert {} == history.passed()


def test_what_identified_a_file_elsewhere_says_nothing_of_it_here(
    journal: Journal, tmp_path: Path
) -> None:
    """A copy has other times and nodes: after a move no file is taken for a changed one, whatever was compacted."""
    life = journal.begin_life("first seen", "/zone", 1, include_existing=False)
    moment = datetime(2026, 1, 1, tzinfo=UTC)
    journal.write_passed(
        1, passed_files([StoredFile(path="t/p", size=1, modified=moment, etag="e")])
    )
    history = History(journal, "/zone")
    for batch in range(1, 101):
        end(journal, life, batch)
        history.applied()
        history.compact()
    journal.write_plan(life, replace(planned(101), zone="/moved"))
    journal.write_done(life, 101, DONE)

    moved = History(journal, "/moved")

    known = {name: etag for name, etag in moved.applied().etags.items() if etag}
    assert {"101a.parquet": "e101", "101b.parquet": "e101"} == known
    assert 202 == len(moved.applied().etags) == moved.applied().count
    assert {} == moved.passed()
    assert {"p": ""} == History(journal, "/moved", moved_from="/zone").passed()
    assert {"p": "e"} == history.passed()
    (checkpoint,) = (tmp_path / "journal" / "t" / "000001.applied").iterdir()
    pq.write_table(pq.read_table(checkpoint).drop_columns(["root"]), checkpoint)
    assert moved.applied() == History(journal, "/moved").applied()
    assert "e100" == History(journal, "/zone").applied().etags["100a.parquet"]


def test_a_plain_folder_that_moves_twice_is_known_by_its_first_place(journal: Journal) -> None:
    """What was applied there, and what is passed over; each move is told by one run."""
    moment = datetime(2026, 1, 1, tzinfo=UTC)
    passed = StoredFile(path="t/p", size=1, modified=moment, etag="e")
    journal.write_passed(1, passed_files([passed]))
    life = journal.begin_life("first seen", "/zone", 1, include_existing=False)
    for old, new in ("/zone", "/second"), ("/second", "/third"):
        history = History(journal, new, moved_from=old)
        assert "p" in history.passed()
        assert history.moves()
        history.keep_move()
        assert "p" in History(journal, new).passed()
    plain = replace(PLAN.policies, plain="add")
    journal.write_plan(life, replace(planned(1), policies=plain))
    journal.write_done(life, 1, DONE)
    assert ["1a.parquet", "1b.parquet"] == list(History(journal, "/third").applied().etags)
    fourth = History(journal, "/fourth", moved_from="/third")
    assert ["1a.parquet", "1b.parquet"] == list(fourth.applied().etags)
    assert fourth.moves()
    fourth.keep_move()
    assert not fourth.moves()


def test_what_has_moved_is_read_of_a_plain_folder_alone(
    journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other files are known by their names, wherever they lie: a run that finds nothing new lists nothing for it."""
    end(journal, journal.begin_life("first seen", "/zone", 1), 1)
    monkeypatch.setattr(Journal, "moves", None)
    history = History(journal, "/zone")

    assert 2 == history.applied().count
    assert not history.moves()


def test_names_that_are_no_text_are_remembered(journal: Journal) -> None:
    """A disk takes any bytes; they come back as Python shows them, and as they were."""
    name = b"caf\xe9.csv".decode(errors="surrogateescape")
    life = journal.begin_life("first seen", "/zone", 1, include_existing=False)
    moment = datetime(2026, 1, 1, tzinfo=UTC)
    file = StoredFile(path=f"t/{name}", size=1, modified=moment, etag="e")
    journal.write_passed(1, passed_files([file]))
    history = History(journal, "/zone")
    for batch in range(1, 101):
        plan = planned(batch)
        files = tuple(replace(one, name=f"{batch}{name}") for one in plan.files[:1])
        journal.write_plan(life, replace(plan, files=files))
        journal.write_done(life, batch, DONE)
        history.applied()
    history.compact()

    assert history.applied() == History(journal, "/zone").applied()
    assert f"100{name}" in history.applied().etags
    assert {name: "e"} == history.passed()


@pytest.mark.parametrize("plain, expected", [("add", True), (None, False)])
def test_a_lifes_files_are_all_of_one_kind(
    journal: Journal, plain: str | None, expected: object
) -> None:
    """Its newest plan tells, once it has applied something or may yet do so."""
    assert History(journal, "/zone").is_plain() is None
    life = journal.begin_life("first seen", "/zone", 1)
    plan = replace(planned(1), policies=replace(PLAN.policies, plain=plain))  # type: ignore[arg-type]  # a word
    journal.write_plan(life, plan)
    assert expected == History(journal, "/zone").is_plain()
    journal.write_done(life, 1, replace(DONE, outcome="void"))
    assert History(journal, "/zone").is_plain() is None
    journal.write_plan(life, replace(plan, batch=2, after={"": 2}))
    journal.write_done(life, 2, DONE)

    assert expected == History(journal, "/zone").is_plain()
