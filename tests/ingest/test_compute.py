"""Compute that lets nobody configure a session: what it refuses is found out, and nothing is done without it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

import mirrorlib
from computes import MARKS, SETTABLE, STATIC, refusing
from ingest import test_protocol as protocol
from mirrorlib.commit.claim import Claim
from mirrorlib.delta import sessions
from mirrorlib.delta.sessions import SMALL_COMMIT, configured, new_session, read_conf
from mirrorlib.errors import ComputeError
from mirrorlib.ingest.batch.commit import carry_out
from mirrorlib.ingest.batch.foreign_writes import stand
from mirrorlib.ingest.work import Attempt
from mirrorlib.journal.leases import Lease, hold
from mirrorlib.store import open_store
from mirrors import Mirror

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Refuse = Callable[[Callable[[str], bool]], None]


@pytest.fixture
def refuse(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> Iterator[Refuse]:
    """Let sessions refuse to set some names as Spark refuses a static one; none that is set up already is lent."""
    kind = type(spark.conf)
    usual = kind.set

    def refuse(refused: Callable[[str], bool]) -> None:
        monkeypatch.setattr(kind, "set", refusing(usual, refused))

    idle = sessions._IDLE.pop(spark, [])
    yield refuse
    monkeypatch.undo()
    sessions._IDLE[spark] = idle


def test_a_merge_that_cannot_carry_its_mark_as_a_setting_carries_it_in_its_condition(
    mirror: Mirror, refuse: Refuse, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log says what it would have said; on other compute the next run goes on from there."""
    mirror.publish()
    refuse(lambda name: name not in SETTABLE)

    mirror.assert_current()
    operation, said = mirror.commits()[-1]
    assert ("MERGE", 3, "merge") == (operation, said["batch"], said["kind"])
    monkeypatch.undo()
    mirror.publish()

    mirror.assert_current()
    assert 4 == mirror.plans()


@pytest.mark.thorough
def test_rows_that_touch_no_other_carry_their_mark_as_an_option(
    fresh: Mirror, refuse: Refuse
) -> None:
    """So does the load of a table that is new: no configuration is needed for it, nor for reading the feed."""
    fresh.publish()
    refuse(lambda name: name.startswith(MARKS))
    fresh.assert_current()
    refuse(lambda _: True)

    feed = mirrorlib.read_feed(fresh.spark, fresh.path, after=-1)

    assert 2 == feed.count()


def test_where_somebody_has_set_otherwise_what_nobody_can_set_nothing_is_planned(
    mirror: Mirror, refuse: Refuse, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What rows and types mean depends on it."""
    mirror.publish()
    refuse(lambda name: name not in SETTABLE)
    kind, name = type(mirror.spark.conf), "spark.sql.storeAssignmentPolicy"
    told = kind.get
    monkeypatch.setattr(kind, "get", lambda *asked: "LEGACY" if name in asked else told(*asked))

    mirror.assert_failed("ComputeError", name, "which the result depends on", "classic compute")

    assert 2 == mirror.plans()
    mirror.assert_holds(2)


def test_a_name_that_would_be_taken_for_a_variable_is_refused_where_nobody_can_prevent_that(
    fresh: Mirror, refuse: Refuse, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark would put a value in its place, also within quotes."""
    fresh.publish([{"id": 1, "${env:HOME}": "a"}])
    refuse(lambda name: name not in SETTABLE)
    kind, name = type(fresh.spark.conf), "spark.sql.variable.substitute"
    told = kind.get  # a session of the tests has it off from the start
    monkeypatch.setattr(kind, "get", lambda *asked: None if name in asked else told(*asked))

    fresh.assert_failed("ComputeError", "${env:HOME}", name)


def test_a_second_runner_is_kept_off_by_a_lease(mirror: Mirror, refuse: Refuse) -> None:
    """Each would take away the other's claim, again and again; once the first has ended, the second goes on."""
    mirror.publish()
    refuse(lambda name: name not in SETTABLE)
    folder = "leases/orders"
    other = Lease(
        open_store(f"{mirror.target}/_mirrorlib"), folder, "orders", "applies to the table"
    )

    with hold(other):
        mirror.assert_failed(
            "TableBusyError", "another runner applies to the table", os.uname().nodename
        )

    mirror.assert_current()


@pytest.mark.thorough
def test_a_batch_that_runners_on_compute_of_two_kinds_commit_at_once_is_told(
    mirror: Mirror, refuse: Refuse, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that marks its MERGE lays no claim down: what the other has committed meanwhile is found by the next run."""
    mirror.publish()
    mirror.run_until("plan", "after")
    refuse(lambda name: name not in SETTABLE)
    claimed = mirror.open_work()
    monkeypatch.undo()

    def overtake() -> None:
        marked = mirror.open_work()
        assert (
            "applied" == carry_out(Attempt(work=marked, plan=mirror.plan(marked, 3)), None).outcome
        )

    looked = Claim.lay

    def lay(self: Claim, *given: Any, **more: Any) -> Any:
        rows = looked(self, *given, **more)
        overtake()
        return rows

    monkeypatch.setattr(Claim, "lay", lay)
    carry_out(Attempt(work=claimed, plan=mirror.plan(claimed, 3)), None)

    mirror.assert_failed("ForeignWriteError", "a batch was committed twice", "batch 3")


def test_the_next_batch_of_another_runner_is_no_repeat(mirror: Mirror) -> None:
    """A plan takes no lock: what is committed behind the batch that it goes on from is told, and accepted."""
    work = mirror.open_work()
    entry = work.journal.newest(work.life)
    mirror.publish()
    mirror.assert_current()

    assert mirror.newest == stand(work, entry).version


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM {t} WHERE id = 1 AND v <> 'mirrorlib:x'",
        "DELETE FROM {t} WHERE id = 1 AND v <> 'mirrorlib:bm90aGluZw=='",
        "INSERT OVERWRITE {t} SELECT * FROM {t} WHERE v <> 'mirrorlib.feedPaused'",
    ],
)
def test_texts_of_others_that_look_like_ours_are_theirs(mirror: Mirror, statement: str) -> None:
    """A condition is read for what it says; what says nothing is a foreign write, and no more."""
    mirror.do(statement)
    mirror.publish()

    mirror.assert_failed("ForeignWriteError", "somebody else wrote to the table")


SLOW = [
    *(
        (protocol.test_a_slow_runner_never_carries_out_a_voided_plan, {"step": step})
        for step in protocol.SLOW_STEPS
    ),
    *(
        (
            protocol.test_a_slow_runner_has_no_second_effect,
            {"kind": kind, "step": protocol.SLOW_STEPS[-1]},
        )
        for kind in protocol.KINDS
    ),
    *(
        (protocol.test_a_commit_whose_runner_died_is_looked_up, {"step": "commit", "when": when})
        for when in ("before", "after")
    ),
    (protocol.test_a_slow_runner_of_an_older_batch_comes_too_late, {}),
    (protocol.test_a_runner_of_an_old_life_that_was_about_to_commit_is_fenced, {}),
    (protocol.test_a_reset_that_is_killed_anywhere_is_carried_to_its_end, {}),
]


@pytest.mark.thorough("[0-35-9]*", "1[0-9]*")
@pytest.mark.parametrize("number", range(len(SLOW)))
def test_claims_stand_for_marks(mirror: Mirror, refuse: Refuse, number: int) -> None:
    """The same interleavings end the same where no MERGE carries a mark; `make serverless PYTEST=--thorough` tries all others."""
    refuse(lambda name: name not in SETTABLE)
    test, given = SLOW[number]

    test(mirror, **given)


@pytest.mark.thorough
def test_what_only_makes_it_faster_is_left_out(mirror: Mirror, refuse: Refuse) -> None:
    """A merge without its tuning is a merge."""
    mirror.publish()
    told = ("spark.databricks.delta.merge.", "spark.sql.maxConcurrent", *SMALL_COMMIT)
    refuse(lambda name: name.startswith(told))

    mirror.assert_current()


def test_a_setting_that_is_refused_but_is_so_already_will_do(spark: SparkSession) -> None:
    """Nothing that was set stays behind, also where the next one is refused."""
    session = new_session(spark)
    told = str(session.conf.get(STATIC))
    before = session.conf.get("spark.sql.shuffle.partitions")

    with configured(session, {STATIC: told}):
        pass
    with (
        pytest.raises(ComputeError, match=f"set {STATIC}"),
        configured(session, {STATIC: "/other"}, {"spark.sql.shuffle.partitions": "7"}),
    ):
        pytest.fail("the block was entered")

    assert before == read_conf(session, "spark.sql.shuffle.partitions")
