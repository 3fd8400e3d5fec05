"""Exporters that die by SIGKILL: a plain export afterwards leaves every receiver equal to the source, each window once.

The exporters are real processes. One delivers to all receivers side by side, so that one death is a death
of each stream wherever it is: at a random moment, or at a point of its own where all have stopped.
"""

from __future__ import annotations

import contextlib
import os
import random
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from children import Child, throw_dice
from delivery.receivers import (
    History,
    Point,
    Receiver,
    embedded_receivers,
    points_of,
    served_points,
    served_receivers,
)
from little import SHORT_LIVED
from servers import lack
from shared_java import SharedJava

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from delivery.postgres import Cluster

TORTURE = os.environ.get("MIRRORLIB_TORTURE")
# A mark wins over the command line: whoever asks for many kills wants them all.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(0 if TORTURE else 900)]

SCRIPT = Path(__file__).parents[1] / "export_child.py"
KILLS = int(TORTURE or 2)
TABLES = ("dbo/orders", "items")
# Where every second counts, two are left to the exact points: a history is written as a copy is, and a database has its own.
AT_RANDOM = {"log", "copy", "lines", "parts", "zone"}


def exporter(history: History, receivers: Sequence[Receiver], **task: Any) -> Child:
    """Start a process that delivers to all receivers."""
    exports = {receiver.name: receiver.options for receiver in receivers}
    return Child("", history.target, script=SCRIPT, exports=exports, **task)


def end_well(history: History, receivers: Sequence[Receiver]) -> None:
    """Let plain exports bring all to an end, then compare every receiver with the source."""
    with ThreadPoolExecutor(max_workers=2) as pool:
        list(pool.map(lambda receiver: receiver.export(history), receivers))
        list(pool.map(lambda receiver: receiver.check(history), receivers))
    staged = Path(history.target, "_mirrorlib", "staged")
    assert [] == [path for path in staged.rglob("*") if path.is_file()]


# At random moments


@pytest.mark.thorough
@pytest.mark.torture
def test_killed_at_random_moments_every_receiver_ends_equal_to_the_source(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Python alone, or all with Java; commits go on between the deaths; the last death takes Java along."""
    receivers = [
        receiver
        for receiver in embedded_receivers(tmp_path)
        if TORTURE or receiver.name in AT_RANDOM
    ]

    moments = kill_at_random(spark, tmp_path, receivers, throw_dice(6))

    assert any(moment.startswith("killed") for moment in moments), moments


@pytest.mark.thorough
@pytest.mark.torture
def test_killed_at_random_moments_every_server_ends_equal_to_the_source(
    spark: SparkSession, tmp_path: Path
) -> None:
    """PostgreSQL and a Kafka broker, which outlive their exporters."""
    with servers(tmp_path) as (cluster, broker):
        receivers = served_receivers(cluster, broker)
        moments = kill_at_random(spark, tmp_path, receivers, throw_dice(7))

    assert any(moment.startswith("killed") for moment in moments), moments


@contextlib.contextmanager
def servers(folder: Path) -> Iterator[tuple[Cluster, Any]]:
    """Start PostgreSQL and a Kafka broker, and see to their end."""
    pytest.importorskip("confluent_kafka", reason="pip install '.[kafka]'")
    from delivery import kafka_broker
    from delivery.postgres import running_cluster

    (folder / "broker").mkdir()
    try:
        broker = kafka_broker.Broker(folder / "broker")
    except kafka_broker.NotFetchedError as exc:
        lack("kafka", f"a broker cannot be fetched: {exc}")
    with contextlib.ExitStack() as stack:
        stack.callback(broker.stop)
        cluster = stack.enter_context(running_cluster())
        broker.wait()
        yield cluster, broker


def kill_at_random(
    spark: SparkSession, folder: Path, receivers: Sequence[Receiver], dice: random.Random
) -> list[str]:
    """Kill one exporter after another; each finds what its predecessors left, and new commits.

    The next one gets ready while one works. A Java process serves until a death takes it along.

    Returns:
        where each was when it was killed.

    """
    streams = len(receivers) * len(TABLES)
    moments: list[str] = []
    with contextlib.ExitStack() as stack:
        java = start_java(stack)
        history = History(spark, folder, *TABLES)

        def join(java: SharedJava) -> Child:
            runner = exporter(history, receivers, shared=java, wait=True)
            stack.callback(runner.close)
            return runner

        coming = join(java)
        while len(moments) < KILLS:
            runner, last = coming, len(moments) == KILLS - 1
            whole = last or dice.random() < 0.3
            history.publish(1)
            runner.until("ready")
            if whole and not last:
                java = start_java(stack)
            if not last:
                coming = join(java)
            runner.go()
            # A window is six events. Some get far, so that no stream stays behind for ever.
            far = 4 if not moments else dice.choice((4, 12))
            moments.append(kill_in_the_middle(runner, dice, far * streams, whole=whole))
    history.publish(1)
    end_well(history, receivers)
    return moments


def start_java(stack: contextlib.ExitStack) -> SharedJava:
    """Start a Java process for exporters, and see to its end."""
    java = SharedJava(memory="2g", java=SHORT_LIVED)
    stack.callback(java.stop)
    stack.callback(java.kill)
    return java


def kill_in_the_middle(runner: Child, dice: random.Random, events: int, *, whole: bool) -> str:
    """Let some events pass, then a random moment, then kill; an exporter that is done before is a moment too."""
    last = "before the first step"
    for _ in range(dice.randrange(1, events)):
        said = runner.next()
        if said is None or said["at"] != "event":
            break
        last = f"{said['when']} {said['step']} of {said['table']}"
    time.sleep(dice.random() * 0.3)  # the moment itself: nothing is waited for
    runner.kill(whole=whole)
    died = "killed" if runner.follow() == -9 else "done"
    return f"{died} {last}, {'with Java' if whole else 'Python alone'}"


# At exact points


def test_killed_at_any_step_files_and_a_copy_end_equal_to_the_source(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Of what is below, what takes seconds: two kinds of receivers, and one death with Java."""
    place = tmp_path / "receivers"
    place.mkdir()
    two = points_of(str(place), place, ["lines", "copy"])
    kill_at_points(spark, tmp_path, list(two), whole=True)


@pytest.mark.thorough
@pytest.mark.parametrize("whole", [True, False], ids=["with-java", "python-alone"])
def test_killed_at_any_step_every_receiver_ends_equal_to_the_source(
    spark: SparkSession, tmp_path: Path, *, whole: bool
) -> None:
    """Before and after each step of a second window, and before each write to files and to a landing zone."""
    place = tmp_path / "receivers"
    place.mkdir()
    kill_at_points(spark, tmp_path, list(points_of(str(place), place)), whole=whole)


@pytest.mark.thorough
@pytest.mark.parametrize("whole", [True, False], ids=["with-java", "python-alone"])
def test_killed_at_any_step_every_server_ends_equal_to_the_source(
    spark: SparkSession, tmp_path: Path, *, whole: bool
) -> None:
    """The same before and after each step, for databases of PostgreSQL and topics of Kafka."""
    with servers(tmp_path) as (cluster, broker):
        kill_at_points(spark, tmp_path, list(served_points(cluster, broker)), whole=whole)


def kill_at_points(
    spark: SparkSession, folder: Path, points: Sequence[tuple[Receiver, Point]], *, whole: bool
) -> None:
    """Kill an exporter once each of its consumers has come to its point, and let another one go on."""
    history = History(spark, folder, "orders")
    history.publish(2)
    receivers = [receiver for receiver, _ in points]
    park = {receiver.name: point for receiver, point in points}
    with contextlib.closing(exporter(history, receivers, park=park, whole=whole)) as runner:
        code = runner.follow()

        assert park.keys() == runner.parked, runner.last_words()
        assert -9 == code
        history.publish(1)
        end_well(history, receivers)
