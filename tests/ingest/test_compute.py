"""Compute that lets nobody configure a session: what it refuses is found out, and nothing is done without it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest

import mirrorlib
from mirrorlib.delta import sessions
from mirrorlib.delta.sessions import SMALL_COMMIT, configured, new_session, read_conf
from mirrorlib.errors import ComputeError
from mirrors import Mirror

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

STATIC = "spark.sql.warehouse.dir"  # Spark itself lets nobody set it
MARKS = "spark.databricks.delta.write."
# What a Databricks user may set on serverless compute.
SERVERLESS = {
    "spark.sql.shuffle.partitions",
    "spark.sql.session.timeZone",
    "spark.sql.ansi.enabled",
    "spark.sql.files.maxPartitionBytes",
    "spark.sql.legacy.timeParserPolicy",
}
Refuse = Callable[[Callable[[str], bool]], None]


@pytest.fixture
def refuse(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> Iterator[Refuse]:
    """Let sessions refuse to set some names as Spark refuses a static one; none that is set up already is lent."""
    kind = type(spark.conf)
    usual = kind.set

    def refuse(refused: Callable[[str], bool]) -> None:
        def take(conf: object, name: str, value: str) -> None:
            usual(conf, STATIC if refused(name) else name, value)

        monkeypatch.setattr(kind, "set", take)

    idle = sessions._IDLE.pop(spark, [])
    yield refuse
    monkeypatch.undo()
    sessions._IDLE[spark] = idle


def test_a_merge_that_cannot_carry_its_mark_is_not_made(
    mirror: Mirror, refuse: Refuse, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The table fails, and says on which compute it goes on; there, the same batch is applied once."""
    mirror.publish()
    refuse(lambda name: name.startswith(MARKS))

    mirror.assert_failed("ComputeError", f"set {MARKS}txnAppId", "classic compute", STATIC)
    mirror.assert_holds(2)
    monkeypatch.undo()

    mirror.assert_current()
    assert 3 == mirror.plans()


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


def test_where_nothing_but_serverless_settings_can_be_set_nothing_is_planned(
    mirror: Mirror, refuse: Refuse
) -> None:
    """What rows and types mean depends on the others."""
    mirror.publish()
    refuse(lambda name: name not in SERVERLESS)

    mirror.assert_failed("ComputeError", "which the result depends on", "classic compute")

    assert 2 == mirror.plans()
    mirror.assert_holds(2)


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
