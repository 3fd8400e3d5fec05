"""Windows in Kafka, on a real broker: each once and in order for who reads committed messages, whatever stops the runner."""

from __future__ import annotations

import contextlib
import json
import random
import re
import shutil
import subprocess
import sys
import time
from collections import Counter, defaultdict
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("confluent_kafka", reason="pip install '.[kafka]'")

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewTopic

from delivery import kafka_broker
from little import child_environment
from mirrorlib.delivery.consumers import drop_consumer, rewind_consumer
from mirrorlib.delivery.run import export_tables
from mirrorlib.delivery.sink import Delivery
from mirrorlib.delivery.sinks.kafka.address import parse_address
from mirrorlib.delivery.sinks.kafka.cluster import Cluster
from mirrorlib.delivery.sinks.kafka.messages import Message, rows_as_json
from mirrorlib.delivery.sinks.kafka.receive import Positions, open_sink, position_record
from mirrorlib.delivery.sinks.kafka.transact import Transactions, transactional_id, window_headers
from mirrorlib.delivery.sinks.kafka.trouble import Scene
from mirrorlib.delivery.sinks.open import open_sink as open_receiver
from mirrorlib.delivery.sinks.open import shown_url
from mirrorlib.delta.sessions import lend_session
from mirrorlib.errors import (
    LandingZoneError,
    SchemaError,
    StoreError,
    TableBusyError,
    TableNameError,
)
from mirrorlib.journal.registry import Registry
from mirrorlib.journal.streams import Stream, WindowPlan
from mirrorlib.keys.value import Keys
from mirrorlib.names import TableName, parse_name
from mirrorlib.store import LocalStore, open_store
from mirrors import Killed
from servers import lack

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from pyspark.sql import SparkSession

    from mirrorlib.delivery.report import StreamReport
    from mirrorlib.events import Event

pytestmark = pytest.mark.slow

FEED = "'delta.enableChangeDataFeed' = 'true'"
COMMITS = 11


@pytest.fixture(scope="module")
def starting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Start a broker; Spark starts meanwhile."""
    try:
        broker = kafka_broker.Broker(tmp_path_factory.mktemp("broker"))
    except kafka_broker.NotFetchedError as exc:
        lack("kafka", f"a broker cannot be fetched: {exc}")
    yield broker
    broker.stop()


@pytest.fixture(scope="module")
def broker(starting: Any, spark: SparkSession) -> Any:
    """Give a broker that answers."""
    del spark
    starting.wait()
    return starting


@pytest.fixture(scope="module")
def history(starting: Any, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give a target whose table `dbo/orders` has some random commits behind it; tests that change it take a copy."""
    del starting
    target = tmp_path_factory.mktemp("history") / "target"
    table = f"delta.`{target}/dbo/orders`"
    keyed = f"'mirrorlib.keys' = '{Keys(partition=('id',)).to_json()}'"
    few = f"{FEED}, {keyed}, 'delta.checkpointInterval' = '10'"
    spark.sql(
        f"CREATE TABLE {table} (id INT, part STRING, v INT) USING delta TBLPROPERTIES ({few})"
    )
    for statement in random_statements(random.Random(7), COMMITS):
        spark.sql(statement.format(t=table))
    return target


def random_statements(dice: random.Random, count: int) -> Iterator[str]:
    """Make commits of every kind: keys come, change, go, come back, become other keys, and are replaced."""
    yield f"INSERT INTO {{t}} VALUES {values(range(12), 0)}"
    for number in range(1, count):
        some = ", ".join(map(str, dice.sample(range(16), 6)))
        new = f"SELECT * FROM VALUES {values(range(3, 16), number)} n(id, part, v)"
        merge = f"MERGE INTO {{t}} t USING ({new}) n ON t.id = n.id"
        yield [
            f"INSERT INTO {{t}} VALUES {values(range(20 * number, 20 * number + 5), number)}",
            f"UPDATE {{t}} SET v = v + {number} WHERE id IN ({some})",
            f"DELETE FROM {{t}} WHERE id IN ({some})",
            f"{merge} WHEN MATCHED AND t.id IN ({some}) THEN DELETE WHEN MATCHED THEN UPDATE SET v = n.v WHEN NOT MATCHED THEN INSERT *",
            "UPDATE {t} SET id = 15 - id WHERE id < 16",
            f"INSERT OVERWRITE {{t}} VALUES {values(range(number % 4, 14), number)}",
        ][number % 6]


def values(ids: Sequence[int], number: int) -> str:
    """Write rows as SQL."""
    return ", ".join(f"({i}, 'p{i % 3}', {1000 * number + i})" for i in ids)


@dataclass(frozen=True)
class Told:
    """A message as a reader of committed messages finds it."""

    partition: int
    key: Any
    value: Any
    headers: dict[str, str]

    @property
    def window(self) -> tuple[str, int]:
        """Name its window."""
        return self.headers["mirrorlib.stream"], int(self.headers["mirrorlib.window"])

    @property
    def ordinal(self) -> int:
        """Say its place in the window."""
        return int(self.headers["mirrorlib.ordinal"])


def client(broker: Any) -> dict[str, Any]:
    """Configure a client of the test's own."""
    return {"bootstrap.servers": broker.address, "log_level": 0}


def read(broker: Any, topic: str) -> list[Told]:
    """Read what is committed in a topic, partition by partition, in order."""
    conf = {
        **client(broker),
        "group.id": "readers",
        "isolation.level": "read_committed",
        "enable.partition.eof": True,
        "enable.auto.commit": False,
    }
    consumer = Consumer(conf)
    partitions = consumer.list_topics(topic, 10).topics[topic].partitions
    consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in partitions])
    found, ended = [], set()
    end = time.monotonic() + 30
    while ended != set(partitions):
        assert time.monotonic() < end
        for message in consumer.consume(500, 0.2):
            if message.error():
                assert message.error().name() == "_PARTITION_EOF"
                ended.add(message.partition())
                continue
            key, value = message.key(), message.value()
            headers = {name: text.decode() for name, text in message.headers() or []}
            found.append(
                Told(
                    message.partition(),
                    None if key is None else key.decode(),
                    None if value is None else json.loads(value),
                    headers,
                )
            )
    consumer.close()
    return sorted(found, key=lambda told: told.partition)  # stable: order within a partition stays


def replay(told: Sequence[Told]) -> Counter[tuple[Any, ...]]:
    """Replay messages partition by partition, and see that each fits what was before it."""
    state: dict[tuple[int, str], Any] = {}
    homes: dict[str, int] = {}
    for message in told:
        if message.value is None:
            assert (message.partition, message.key) not in state, "a tombstone follows its delete"
            continue
        here, op = (message.partition, message.key), message.value["op"]
        before, after = message.value["before"], message.value["after"]
        if op == "t":
            state = {place: row for place, row in state.items() if place[0] != message.partition}
            continue
        assert homes.setdefault(message.key, message.partition) == message.partition
        assert json.loads(message.key) == {"id": (after or before)["id"]}
        assert before == (None if op == "r" else state.get(here)), (
            "each change starts where the last ended"
        )
        assert (before is None) == (op in "cr")
        assert (after is None) == (op == "d")
        if after is None:
            del state[here]
        else:
            state[here] = after
    return Counter(tuple(row.values()) for row in state.values())


def check_windows(told: Sequence[Told]) -> dict[str, int]:
    """See that each window is there once, whole and in order; count each stream's windows."""
    windows: dict[tuple[str, int], list[int]] = defaultdict(list)
    places: dict[tuple[str, int], list[tuple[int, int]]] = defaultdict(list)
    for message in told:
        stream, window = message.window
        windows[stream, window].append(message.ordinal)
        places[stream, message.partition].append((window, message.ordinal))
    for ordinals in windows.values():
        assert sorted(ordinals) == list(range(1, len(ordinals) + 1))
    for found in places.values():
        assert found == sorted(found)
    return Counter(stream for stream, _ in windows)


def rows_now(spark: SparkSession, target: Path) -> Counter[tuple[Any, ...]]:
    """Read the table itself."""
    rows = spark.read.format("delta").load(f"{target}/dbo/orders").collect()
    return Counter(tuple(row) for row in rows)


def export(
    spark: SparkSession, target: Path, to: Any, consumer: str, **options: Any
) -> StreamReport:
    """Deliver `dbo/orders` once."""
    told = {"keys": {"dbo/orders": ["id"]}, **options}
    report = export_tables(spark, str(target), ["dbo/orders"], consumer=consumer, to=to, **told)
    return report.tables[0]


def stream_of(target: Path, consumer: str) -> Stream:
    """Look a stream up."""
    registry = Registry(open_store(f"{target}/_mirrorlib"), consumer, parse_name("dbo/orders"))
    stream = registry.newest_stream()
    assert stream is not None
    return stream


def registry_of(target: Path, consumer: str) -> Registry:
    """Open what is kept of a consumer."""
    return Registry(open_store(f"{target}/_mirrorlib"), consumer, parse_name("dbo/orders"))


def once() -> Callable[[], bool]:
    """Stop after one window."""
    asked = iter((False,))
    return lambda: next(asked, True)


@pytest.mark.thorough
@pytest.mark.parametrize("net", [False, True], ids=["every change", "net"])
def test_random_commits_in_random_windows_replay_to_the_table(
    broker: Any, spark: SparkSession, history: Path, net: bool
) -> None:
    """Each change starts from the row before it; a key, named or the table's own, keeps its partition; tombstones follow deletes."""
    keys = None if net else {"dbo/orders": ["id"]}
    consumer, dice = f"random-{net}", random.Random(3)
    make_topics(broker, NewTopic(f"{consumer}.dbo.orders", 4))
    options = f"tombstones={'false' if net else 'true'}"
    to = f"kafka://{broker.address}/{consumer}.{{schema}}.{{table}}?{options}"
    windows, position = 0, 0
    while position < COMMITS:
        size = dice.randrange(2, 7)
        limits = {"max_versions": size, "stop": once()}
        report = export(spark, history, to, consumer, start=0, net=net, keys=keys, **limits)
        assert report.state in {"current", "behind"}, report.reason
        windows, position = windows + report.windows, report.position or 0
    told = read(broker, f"{consumer}.dbo.orders")

    assert rows_now(spark, history) == replay(told)
    assert [windows] == list(check_windows(told).values())
    assert {message.partition for message in told} == set(range(4))
    values = [message.value for message in told if message.value is not None]
    assert {"c", "u", "d"} == {value["op"] for value in values}
    assert {"dbo"} == {value["source"]["schema"] for value in values}
    for number, message in enumerate(told):
        if message.value is not None and message.value["op"] == "d" and not net:
            after = told[number + 1]
            assert (after.key, after.value, after.ordinal) == (
                message.key,
                None,
                message.ordinal + 1,
            )
    deletes = sum(value["op"] == "d" for value in values)
    assert len(told) - len(values) == (0 if net else deletes)
    if not net:
        assert set(range(1, COMMITS + 1)) >= {value["source"]["version"] for value in values}


class Death:
    """Ends a runner at one point of one window, as a kill does: nothing is tidied up."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.window, self.point = 0, ""
        self.instead: Callable[[], None] | None = (
            None  # what happens at the point, in place of death
        )
        send, commit = Transactions._send, Transactions._commit

        def dying_send(my: Any, topic: str, message: Any, headers: Any) -> None:
            told = dict(headers)
            here = bool(told) and int(told["mirrorlib.window"]) == self.window
            ordinal = int(told.get("mirrorlib.ordinal", 0))
            if here and ordinal == 3:
                my._flush()  # what was sent lies at the broker
            self._reach("first message", here and ordinal == 1)
            self._reach("third message", here and ordinal == 3)
            send(my, topic, message, headers)
            self.inside = here or (not told and self.inside)

        def dying_commit(my: Any) -> None:
            self._reach("before commit", self.inside)
            commit(my)
            self._reach("after commit", self.inside)

        self.inside = False
        monkeypatch.setattr(Transactions, "_send", dying_send)
        monkeypatch.setattr(Transactions, "_commit", dying_commit)

    def at(self, point: str, window: int) -> Death:
        """Say where."""
        self.point, self.window = point, window
        return self

    def _reach(self, point: str, here: bool) -> None:
        if here and point == self.point:
            self.window = 0
            if self.instead is None:
                raise Killed
            self.instead()

    def observe(self, event: Event) -> None:
        """Take an event of the runner."""
        self._reach(f"{event.when} {event.step}", event.batch == self.window)


POINTS = (
    *("before plan", "after plan", "before deliver", "first message", "third message"),
    *("before commit", "after commit", "after deliver", "before done", "after done"),
)


@pytest.mark.thorough
def test_whatever_ends_the_runner_each_window_is_seen_once(
    broker: Any, spark: SparkSession, history: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One window after another is interrupted, each at another point; every run goes on where the last one died."""
    death = Death(monkeypatch)
    monkeypatch.setattr(Transactions, "_give_up", lambda _: None)  # the dead abort nothing
    to = f"kafka://{broker.address}/crashes"
    options: dict[str, Any] = {"start": 0, "max_versions": 1, "observe": death.observe}
    for window, point in enumerate(POINTS, 1):
        death.at(point, window)
        with pytest.raises(Killed):
            export(spark, history, to, "crashes", **options)
        seen = check_windows(read(broker, "crashes")) if window > 1 else {}
        late = point in {"after commit", "after deliver", "before done", "after done"}
        assert sum(seen.values()) == (window if late else window - 1), point
    report = export(spark, history, to, "crashes", **options)
    told = read(broker, "crashes")

    assert (report.state, report.position) == ("current", COMMITS)
    assert [COMMITS] == list(check_windows(told).values())
    assert rows_now(spark, history) == replay(told)


CHILD = """
import sys
from mirrorlib.delivery.sinks.kafka.address import parse_address
from mirrorlib.delivery.sinks.kafka.messages import Message
from mirrorlib.delivery.sinks.kafka.transact import Transactions, window_headers
from mirrorlib.delivery.sinks.kafka.trouble import Scene
brokers, name, stream = sys.argv[1:]
scene = Scene(address=parse_address(f"//{brokers}/killed"), topic="killed", table="t")
sends = Transactions(scene, name)
sends.begin()
def stay():
    print("there", flush=True)
    sys.stdin.read()
sends._commit = stay
record = Message(stream.encode(), b'{"window": 9}', 0)
rows = [Message(b"1", b"{}", 1), Message(b"2", b"{}", 1)]
sends.send_window(rows, window_headers(stream, 9, "changes"), record)
"""


@pytest.mark.thorough
def test_a_killed_process_leaves_nothing(broker: Any) -> None:
    """Killed before its commit, position record and all; the next to ask is told the truth at once."""
    sink, stream = open_sink(f"//{broker.address}/killed", ""), a_stream("killed")
    assert 0 == sink.position(stream)
    command = [sys.executable, "-c", CHILD, broker.address]
    with subprocess.Popen(
        [*command, transactional_id(stream, "killed"), stream.uuid],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=child_environment(),
    ) as child:
        assert child.stdout is not None
        assert b"there\n" == child.stdout.readline()
        child.kill()
    sink = open_sink(f"//{broker.address}/killed?timeout=10", "")

    assert 0 == sink.position(stream)
    assert [] == read(broker, "killed")


def a_stream(name: str) -> Stream:
    """Make a stream of no runner."""
    return Stream(
        consumer=name,
        table="dbo/orders",
        ordinal=1,
        uuid=f"uuid of {name}",
        to="",
        mode="",
        net=False,
        start_at=None,
        table_id="of a table",
        on_expired="fail",
        began_at="2026-01-01T00:00:00+00:00",
    )


@pytest.mark.thorough
def test_a_runner_that_wakes_up_late_is_fenced_off(
    broker: Any, spark: SparkSession, history: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the middle of its window another one takes the stream over, delivers it, or begins a new one with a snapshot."""
    target = tmp_path / "target"
    shutil.copytree(history, target)
    death = Death(monkeypatch)
    for late in ("same stream", "rewound"):
        topic = late.replace(" ", "-")
        to = f"kafka://{broker.address}/{topic}"
        others: list[StreamReport] = []

        def take_over(
            late: str = late, topic: str = topic, to: str = to, others: list[Any] = others
        ) -> None:
            registry = registry_of(target, topic)
            registry.state.delete_folder(f"{registry.folder}/lease")  # it has run out
            if late == "rewound":
                rewind_consumer(str(target), topic, "snapshot")
            others.append(export(spark, target, to, topic))

        death.at("third message", 2).instead = take_over
        report = export(spark, target, to, topic, start=0, max_versions=8, observe=death.observe)
        told = read(broker, topic)

        assert ("busy", 1) == (report.state, report.windows), report.reason
        assert "another runner has taken over" in report.reason
        assert ("current", 1) == (others[0].state, others[0].windows)
        windows = list(check_windows(told).values())
        assert sorted(windows) == ([2] if late == "same stream" else [1, 1])
        assert rows_now(spark, target) == replay(told)
        assert ("current", 0) == (
            (again := export(spark, target, to, topic)).state,
            again.windows,
        )


@pytest.mark.thorough  # the client takes half a minute to hear of it
def test_a_runner_that_was_fenced_off_a_while_ago_says_so(broker: Any) -> None:
    """Its client knows by then, and refuses whatever it is asked in words of its own."""
    stream, address = a_stream("fenced"), f"//{broker.address}/fenced"
    deliver_nothing(address, stream, window=1)
    scene = open_sink(address, "")._scene(stream)  # type: ignore[attr-defined]
    name = transactional_id(stream, scene.topic)
    late, other = (Transactions(scene, name) for _ in "ab")
    late.begin()

    def messages() -> Iterator[Message]:
        yield Message(b"1", b"{}", 1)
        other.begin()
        wait_for_refusal(late._producer, scene.topic)
        yield Message(b"2", b"{}", 1)

    record = Message(stream.uuid.encode(), json.dumps({"window": 2}).encode(), 0)
    with pytest.raises(TableBusyError, match="another runner has taken over"):
        late.send_window(messages(), window_headers(stream.uuid, 2, ""), record)
    assert [] == read(broker, "fenced")


def wait_for_refusal(producer: Producer, topic: str) -> None:
    """Send until the client refuses by itself; what it hears of brokers stays unheard."""
    end = time.monotonic() + 30
    with contextlib.suppress(KafkaException):
        while time.monotonic() < end:
            producer.produce(topic, b"{}")
            time.sleep(0.01)
        pytest.fail("nobody fenced it off")


class Runner:
    """Delivers windows of a row to a topic as a runner does, with a receiver of its own."""

    def __init__(self, spark: SparkSession, scratch: Path, address: str) -> None:
        self._spark, self._scratch = spark, scratch
        self.sink: Any = open_sink(address, "")

    def deliver(self, stream: Stream, window: int) -> int | None:
        """Deliver a window: the first is a snapshot, later ones insert."""
        kind = "snapshot" if window == 1 else "changes"
        told = {"attempt": "a", "table_id": stream.table_id, "keys": ("id",), "reset": False}
        moments = {"until_at": "2026-01-01T00:00:00+00:00"}
        bounds = {"kind": kind, "after": window - 1, "until": window}
        plan: Any = {"stream": stream.uuid, "number": window, **told, **moments, **bounds}
        columns = "id int, _change_type string, _commit_version bigint, _commit_timestamp timestamp"
        rows = [(window, "insert", window, datetime(2026, 1, 1, tzinfo=UTC))]
        with lend_session(self._spark) as spark:
            delivery = Delivery(
                spark=spark,
                stream=stream,
                plan=WindowPlan(**plan),
                frame=spark.createDataFrame(rows, columns),
                scratch=LocalStore(self._scratch),
                folder="a",
            )
            delivered: int = self.sink.deliver(delivery)
            return delivered


def rewound(stream: Stream, **facts: Any) -> Stream:
    """Begin the stream that follows on one whose consumer was rewound."""
    told = {"ordinal": stream.ordinal + 1, "first_table_id": stream.lineage, **facts}
    return replace(stream, **{"uuid": f"{stream.uuid}+", **told})


LATER = "began later writes to topic"


def test_a_late_runner_that_begins_last_delivers_nothing(
    broker: Any, spark: SparkSession, tmp_path: Path
) -> None:
    """Nobody fences it off, so the records tell it; the table was made anew before the consumer was rewound."""
    address = f"//{broker.address}/begins-last"
    early, late, later = (Runner(spark, tmp_path, address) for _ in "abc")
    first = a_stream("begins last")
    second = rewound(first, table_id="made anew", began_at="2026-01-02T00:00:00+00:00")
    assert 1 == early.deliver(first, 1)
    assert 1 == later.deliver(second, 1)

    with pytest.raises(TableBusyError, match="another runner has taken over"):
        early.deliver(first, 2)
    for runner in (early, late, late):
        with pytest.raises(TableBusyError, match=LATER):
            runner.deliver(first, 2)
    with pytest.raises(TableBusyError, match=LATER):
        late.sink.position(first)
    with pytest.raises(TableBusyError, match="another runner has taken over"):
        later.deliver(second, 2)  # the late one has begun, no more
    assert 1 == later.deliver(second, 2)
    assert later.deliver(second, 2) is None
    assert {first.uuid: 1, second.uuid: 2} == check_windows(read(broker, "begins-last"))


@pytest.mark.thorough
def test_records_tell_streams_apart_by_number_and_table(
    broker: Any, spark: SparkSession, tmp_path: Path
) -> None:
    """Whatever clocks say; the same names in another target are another table; state that was lost begins with 1."""
    address = f"//{broker.address}/by-number"
    first = replace(a_stream("by number"), began_at="2099-01-01T00:00:00+00:00", ordinal=4)
    second = rewound(first, began_at="2026-01-02T00:00:00+00:00")
    elsewhere = replace(first, uuid="elsewhere", table_id="of another target", ordinal=1)
    anew = replace(first, uuid="anew", ordinal=1, began_at="2099-01-03T00:00:00+00:00")
    again = rewound(anew)
    for stream in (first, second, elsewhere, anew, again):
        assert 1 == Runner(spark, tmp_path, address).deliver(stream, 1)
        if stream is second:
            with pytest.raises(TableBusyError, match=LATER):
                Runner(spark, tmp_path, address).deliver(first, 2)
    for stream in (elsewhere, again):
        assert 1 == Runner(spark, tmp_path, address).deliver(stream, 2)
    with pytest.raises(TableBusyError, match=LATER):
        Runner(spark, tmp_path, address).deliver(anew, 2)


@pytest.mark.thorough
def test_a_reset_is_told_to_every_partition(
    broker: Any, spark: SparkSession, history: Path, tmp_path: Path
) -> None:
    """History is gone, so a snapshot takes its place, in one transaction with the word that voids what was before."""
    target = tmp_path / "target"
    shutil.copytree(history, target)
    make_topics(broker, NewTopic("reset", 4))
    to = f"kafka://{broker.address}/reset"
    options: dict[str, Any] = {"start": 0, "max_versions": 2, "on_expired": "snapshot"}
    export(spark, target, to, "reset", **options, stop=once())
    for version in (3, 4):
        (target / f"dbo/orders/_delta_log/{version:020d}.json").unlink()
    report = export(spark, target, to, "reset", **options)
    told = read(broker, "reset")

    assert ("current", 1, 1) == (report.state, report.windows, report.resets)
    assert [2] == list(check_windows(told).values())
    snapshot = [message for message in told if message.window[1] == 2]
    resets = [message for message in snapshot if message.value["op"] == "t"]
    assert [0, 1, 2, 3] == [message.partition for message in resets]
    assert {1, 2, 3, 4} == {message.ordinal for message in resets}
    assert {"r", "t"} == {message.value["op"] for message in snapshot}
    assert {"snapshot"} == {message.headers["mirrorlib.kind"] for message in snapshot}
    assert rows_now(spark, target) == replay(told)


@pytest.mark.thorough
def test_a_consumer_that_is_registered_again_voids_what_it_had_delivered(
    broker: Any, spark: SparkSession, history: Path, tmp_path: Path
) -> None:
    """Else readers would keep the keys that were deleted meanwhile; a topic that had nothing of it is told nothing."""
    target = tmp_path / "target"
    shutil.copytree(history, target)
    make_topics(broker, NewTopic("again", 2))
    to = f"kafka://{broker.address}/again"
    export(spark, target, to, "again")
    assert {"r"} == {message.value["op"] for message in read(broker, "again")}
    drop_consumer(str(target), "again")
    spark.sql(f"DELETE FROM delta.`{target}/dbo/orders` WHERE id % 2 = 0")
    export(spark, target, to, "again")
    told = read(broker, "again")

    fresh = [message for message in told if message.window[0] == stream_of(target, "again").uuid]
    assert ["t", "t"] == [message.value["op"] for message in fresh if message.value["op"] != "r"]
    assert rows_now(spark, target) == replay(told)


@pytest.mark.thorough
@pytest.mark.parametrize(
    "lost, why", [("topic", "create the topic"), ("positions", "positions does not tell any more")]
)
def test_a_topic_that_was_deleted_is_not_begun_anew_in_the_middle(
    broker: Any, spark: SparkSession, history: Path, lost: str, why: str
) -> None:
    """Nor when the topic of positions was: what is there cannot be told; a snapshot sets it right."""
    name = f"deleted-{lost}"
    to = f"kafka://{broker.address}/{name}?positions={name}-positions"
    export(spark, history, to, name, start=0, max_versions=2, stop=once())
    topic = name if lost == "topic" else f"{name}-positions"
    admin = AdminClient(client(broker))
    admin.delete_topics([topic])[topic].result(10)
    for _ in range(2):
        report = export(spark, history, to, name, start=0)
        assert ("failed", 0) == (report.state, report.windows)
        assert why in report.reason
    rewind_consumer(str(history), name, "snapshot")
    assert "current" == export(spark, history, to, name).state
    assert rows_now(spark, history) == replay(read(broker, name))


@pytest.mark.thorough
def test_a_broker_that_falls_silent_costs_no_window(
    broker: Any, spark: SparkSession, history: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While it is sent to: nothing is seen. At the commit: nobody knows, until the next run has asked."""
    death = Death(monkeypatch)
    to = f"kafka://{broker.address}/silence?timeout=3"
    options: dict[str, Any] = {"start": 0, "max_versions": 5, "observe": death.observe}
    for window, (point, reason) in enumerate(
        (
            ("third message", "no answer within 3 seconds"),
            ("before commit", "did not say whether it has committed"),
        ),
        1,
    ):
        death.at(point, window).instead = broker.freeze
        began = time.monotonic()
        report = export(spark, history, to, "silence", **options)
        seconds = time.monotonic() - began
        broker.thaw()
        assert ("failed", window - 1) == (report.state, report.windows)
        assert reason in report.reason
        assert f"topic silence at {broker.address}" in report.reason
        assert seconds < 30
    report = export(spark, history, to, "silence", **options)
    told = read(broker, "silence")

    assert ("current", "") == (report.state, report.reason)
    assert [3] == list(check_windows(told).values())
    assert rows_now(spark, history) == replay(told)


@pytest.mark.thorough
def test_a_position_behind_an_open_transaction_is_waited_for(broker: Any) -> None:
    """A reader of committed messages takes the beginning of somebody's open transaction for the end, and would deliver anew."""
    one, other = a_stream("one"), a_stream("other")
    address = f"//{broker.address}/behind?timeout=3"
    deliver_nothing(address, one, window=1)
    blocker = Producer({**client(broker), "transactional.id": "blocker"})
    blocker.init_transactions(10)
    blocker.begin_transaction()
    blocker.produce("_mirrorlib_positions", key=other.uuid, value='{"window": 5}')
    blocker.flush(10)
    deliver_nothing(address, one, window=2)

    with pytest.raises(StoreError, match="a transaction has not ended"):
        open_sink(address, "").position(one)
    blocker.abort_transaction(10)
    sink = open_sink(address, "")
    assert (2, 0) == (sink.position(one), sink.position(other))


def deliver_nothing(address: str, stream: Stream, window: int) -> None:
    """Commit a window without rows."""
    sink: Any = open_sink(address, "")
    scene = sink._scene(stream)
    sink._cluster.topic(scene)
    sink._cluster.positions(scene)
    sends = Transactions(scene, transactional_id(stream, scene.topic))
    sends.begin()
    plan: Any = SimpleNamespace(number=window, until=window)
    record = Message(*position_record(stream, plan, scene.topic, 1), 0)
    sends.send_window([], window_headers(stream.uuid, window, ""), record)


@pytest.mark.thorough
def test_positions_are_found_in_new_partitions_and_a_foreign_record_is_told(broker: Any) -> None:
    """Somebody adds partitions, so a stream's records lie in two; somebody writes what is no position."""
    admin = AdminClient(client(broker))
    address = f"//{broker.address}/spread?positions=spread-positions"
    streams = [a_stream(f"spread {number}") for number in range(4)]
    for stream in streams:
        deliver_nothing(address, stream, window=1)
    sink: Any = open_sink(address, "")
    assert {1} == {sink.position(stream) for stream in streams}
    add_partitions(admin, "spread-positions", 3)
    for stream in streams:
        deliver_nothing(address, stream, window=2)
    assert len({message.partition for message in read(broker, "spread-positions")}) > 1
    fresh: Any = open_sink(address, "")
    scene = sink._scene(streams[0])
    for positions in (fresh._positions, sink._positions):
        assert {2} == {positions.find(stream, scene).window for stream in streams}
    producer = Producer(client(broker))
    producer.produce("spread-positions", key="x", value="no JSON")
    producer.flush(10)
    with pytest.raises(StoreError, match="no position"):
        Positions(fresh._cluster).find(streams[0], scene)


def make_topics(broker: Any, *topics: NewTopic) -> None:
    """Make topics, as an administrator."""
    admin = AdminClient(client(broker))
    for made in admin.create_topics([*topics]).values():
        made.result(10)


def add_partitions(admin: AdminClient, topic: str, count: int) -> None:
    """Give a topic more partitions, and wait until it has them."""
    from confluent_kafka.admin import NewPartitions

    admin.create_partitions([NewPartitions(topic, count)])[topic].result(10)
    end = time.monotonic() + 10
    while len(admin.list_topics(topic, 10).topics[topic].partitions) < count:
        assert time.monotonic() < end


TYPES = {  # a column's type, a value in SQL, the same in JSON
    "k": ("DOUBLE", "-0.0D", -0.0),
    "the `key`": ("STRING", "'ü\"\\n'", 'ü"\n'),
    "b": ("BOOLEAN", "true", True),
    "i": ("BIGINT", "9223372036854775807", 2**63 - 1),
    "f": ("FLOAT", "float('NaN')", "NaN"),
    "g": ("DOUBLE", "double('-Infinity')", "-Infinity"),
    "d": ("DECIMAL(38,18)", "0.0000001", "0.000000100000000000"),
    "e": ("DECIMAL(12,0)", "-123456789012", "-123456789012"),
    "x": ("BINARY", "X'00FF10'", "AP8Q"),
    "day": ("DATE", "DATE'0001-01-01'", "0001-01-01"),
    "t": ("TIMESTAMP", "TIMESTAMP'2024-02-29 23:59:59.000001Z'", "2024-02-29T23:59:59.000001Z"),
    "n": ("TIMESTAMP_NTZ", "TIMESTAMP_NTZ'2024-02-29 01:02:03'", "2024-02-29T01:02:03.000000"),
    "none": ("STRING", "NULL", None),
    "s": ("STRUCT<a.b: DECIMAL(3,1), c: INT>", "struct(1.5, NULL)", {"a.b": "1.5", "c": None}),
    "l": ("ARRAY<DECIMAL(3,1)>", "array(2.5, NULL)", ["2.5", None]),
    "m": ("MAP<STRING, DECIMAL(3,1)>", "map('k', 3.5)", {"k": "3.5"}),
    "o": ("MAP<DATE, BINARY>", "map(DATE'2024-01-01', X'FF')", [{"key": "2024-01-01", "value": "/w=="}]),
    "v": ("VARIANT", "parse_json('{\"a\": [1, null]}')", {"a": [1, None]}),
    "text": ("STRING", "repeat('x', 3000)", "x" * 3000),
}  # fmt: skip


@pytest.fixture(scope="module")
def typed(starting: Any, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give a target with a table of every type, and one without keys."""
    del starting
    target = tmp_path_factory.mktemp("typed") / "target"
    columns = ", ".join(
        f"{quoted(name)} {kind.replace('a.b', '`a.b`')}" for name, (kind, _, _) in TYPES.items()
    )
    types, plain = (f"delta.`{target}/{name}`" for name in ("types", "plain"))
    mapped = f"{FEED}, 'delta.columnMapping.mode' = 'name'"
    spark.sql(f"CREATE TABLE {types} ({columns}) USING delta TBLPROPERTIES ({mapped})")
    spark.sql(f"INSERT INTO {types} VALUES ({', '.join(sql for _, sql, _ in TYPES.values())})")
    spark.sql(f"CREATE TABLE {plain} (id INT, v INT) USING delta TBLPROPERTIES ({FEED})")
    spark.sql(f"INSERT INTO {plain} VALUES (1, 1), (1, 1)")
    spark.sql(f"UPDATE {plain} SET v = 2")
    return target


def quoted(name: str) -> str:
    """Quote a name."""
    return "`" + name.replace("`", "``") + "`"


@pytest.mark.thorough
def test_every_type_is_told_and_tables_share_a_topic(
    broker: Any, spark: SparkSession, typed: Path
) -> None:
    """Side by side through one receiver; without keys, images of an update stay apart and have no key."""
    report = export_tables(
        spark,
        str(typed),
        consumer="typed",
        to=f"kafka://{broker.address}/shared",
        start=0,
        keys={"types": ["K", "THE `KEY`"]},
    )
    assert report.ok, str(report)
    told = read(broker, "shared")
    (one,) = (message for message in told if message.value["source"]["table"] == "types")
    plain = [message for message in told if message.value["source"]["table"] == "plain"]

    assert {name: value for name, (_, _, value) in TYPES.items()} == one.value["after"]
    assert '{"k":0.0,"the `key`":"ü\\"\\n"}' == one.key
    assert list(one.value) == ["before", "after", "source", "op", "ts_ms"]
    source = one.value["source"]
    assert (1, "mirrorlib", "typed", "false", None) == tuple(
        source[name] for name in ("version", "connector", "name", "snapshot", "schema")
    )
    assert 0 <= one.value["ts_ms"] - source["ts_ms"] < 3_600_000
    assert {None} == {message.key for message in plain}
    rows = [(m.value["op"], m.value["before"] or m.value["after"]) for m in plain]
    old, new = {"id": 1, "v": 1}, {"id": 1, "v": 2}
    assert Counter(map(str, rows)) == Counter(
        map(str, [("c", old)] * 2 + [("d", old)] * 2 + [("c", new)] * 2)
    )


def test_a_type_without_json_is_refused(spark: SparkSession) -> None:
    """By name."""
    feed = (
        "'insert' AS _change_type, 1L AS _commit_version, current_timestamp() AS _commit_timestamp"
    )
    frame = spark.sql(f"SELECT 1 AS id, array(INTERVAL '1' DAY) AS odd, {feed}")
    with pytest.raises(SchemaError, match=r"dbo/t: column odd: .*interval") as caught:
        rows_as_json(frame, ["id"], "dbo/t", ordered=True)
    assert "odd" == caught.value.column


@pytest.mark.thorough
def test_what_kafka_refuses_is_told_and_nothing_is_seen(
    broker: Any, spark: SparkSession, typed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every error names table, topic and broker, and what to do; passwords stay unsaid."""
    make_topics(
        broker,
        NewTopic("small", 1, 1, config={"max.message.bytes": "2000"}),
        NewTopic("compacted", 1, 1, config={"cleanup.policy": "compact"}),
        NewTopic("forgetful", 1, 1),
    )
    login = "security.protocol=SASL_PLAINTEXT&sasl.mechanism=PLAIN&timeout=3&sasl.username="
    open_port, guarded = broker.address, broker.guarded
    cases = [
        ("127.0.0.1:1/x?timeout=1", "types", "no answer within 1 seconds", "brokers run"),
        (f"{guarded}/x?{login}{kafka_broker.USER}", "types", "do not trust", "sasl"),
        (f"{guarded}/x?{login}{kafka_broker.STRANGER}", "types", "does not allow it", "Allow"),
        (f"{open_port}/x?message.max.bytes=2000", "types", "a message is larger", "max.message"),
        (f"{open_port}/small?compression.type=none", "types", "a message is larger", "max.mess"),
        (f"{open_port}/x?positions=forgetful", "types", "not compacted", "cleanup.policy"),
        (f"{open_port}/x?transaction.timeout.ms=1800000", "types", "that long", "transaction.max"),
        (f"{open_port}/x?transaction.timeout.ms=1000", "types", "within 1 seconds", "TRANSACTION_TIMEOUT_MS"),
        (f"{open_port}/x?sasl.pasword=wrong-word", "types", "sasl.pasword", "Correct an option"),
        (f"{open_port}/x?ssl.ca.location=/none&security.protocol=SSL", "types", "Kafka refuses", "an option in the URL or in MIRRORLIB_KAFKA_"),
        (f"{open_port}/compacted", "plain", "refuses a message", "key"),
    ]  # fmt: skip
    for number, (address, table, reason, step) in enumerate(cases):
        secret = kafka_broker.PASSWORD if kafka_broker.STRANGER in address else "wrong-word"
        began = time.monotonic()
        with monkeypatch.context() as patch:
            if "sasl.mech" in address:
                patch.setenv("MIRRORLIB_KAFKA_SASL_PASSWORD", secret)
            if "=1000" in address:
                patch.setattr(Transactions, "_flush", slowly(Transactions._flush))
            report = export_tables(
                spark,
                str(typed),
                [table],
                consumer=f"refused {number}",
                to=f"kafka://{address}",
                keys={"types": ["i"]},
            ).tables[0]

        assert "failed" == report.state, address
        assert reason in report.reason
        assert step in report.reason
        assert f"{table}: " in report.reason
        brokers, _, topic = address.partition("?")[0].partition("/")
        assert f"topic {topic} at {brokers}" in report.reason
        assert secret not in report.reason
        assert time.monotonic() - began < 30
    for topic in ("x", "small", "compacted"):
        assert [] == read(broker, topic)


def slowly(flush: Callable[[Any], None]) -> Callable[[Any], None]:
    """Take longer than a transaction may."""

    def flush_late(sends: Any) -> None:
        time.sleep(1.1)
        flush(sends)

    return flush_late


@pytest.mark.thorough
def test_who_logs_in_may_deliver(broker: Any, spark: SparkSession, typed: Path) -> None:
    """The password stands in the URL, escaped, and nowhere in the state folder."""
    escaped = "p%3Bss%26w%3Drd%20%2541"
    login = (
        f"security.protocol=SASL_PLAINTEXT&sasl.mechanism=PLAIN&sasl.username={kafka_broker.USER}"
    )
    to = f"kafka://{broker.guarded}/guarded?{login}&sasl.password={escaped}"
    report = export_tables(spark, str(typed), ["plain"], consumer="guarded", to=to)

    assert report.ok, str(report)
    assert ["r", "r"] == [message.value["op"] for message in read(broker, "guarded")]
    state = typed / "_mirrorlib/consumers/guarded"
    written = "".join(file.read_text() for file in state.rglob("*.json"))
    for secret in (escaped, kafka_broker.PASSWORD, "ss%26", "rd%20"):
        assert secret not in written
        assert secret not in str(report) + shown_url(to)


@pytest.mark.parametrize(
    "address, reason",
    [
        ("//host:1", "no broker or no topic"),
        ("///topic", "no broker or no topic"),
        ("host:1/topic", "no broker or no topic"),
        ("//me:word@host:1/topic", "has a user"),
        ("//host:1/a topic", "no topic can have this name"),
        ("//host:1/..", "no topic can have this name"),
        ("//host:1/t?acks=0", "unknown option"),
        ("//host:1/t?transactional.id=x", "unknown option"),
        ("//host:1/t?enable.idempotence=false", "unknown option"),
        ("//host:1/t?sasl.oauthbearer.config=word", "unknown option"),
        ("//host:1/t?word", "unknown option"),
        ("//host:1/t?sasl.password=a&word%=1", "unknown option"),
        ("//host:1/t?ssl.key.pem=word", "secret"),
        ("//host:1/t?sasl.oauthbearer.assertion.private.key.passphrase=word", "secret"),
        ("//host:1/t?sasl.password=a;word", "semicolon"),
        ("//host:1/t?tombstones=word", "neither true nor false"),
        ("//host:1/t?partitions=4", "unknown option.*Known are tombstones, positions"),
        ("//host:1/t?timeout=0", "no number"),
        ("//host:1/t?transaction.timeout.ms=word", "no number"),
        ("//host:1/t?positions=a/b", "positions"),
    ],
)
def test_an_address_that_cannot_be_used_is_refused(address: str, reason: str) -> None:
    """Before anything is written down; no value is repeated, as it may be a secret."""
    with pytest.raises(LandingZoneError, match=reason) as caught:
        parse_address(address, {})
    assert "word" not in str(caught.value).replace("password", "")


def test_an_address_says_all() -> None:
    """Options of our own, those of librdkafka, and those of the environment, which the URL overrules."""
    environment = {
        "MIRRORLIB_KAFKA_SASL_PASSWORD": "p&1",
        "MIRRORLIB_KAFKA_SSL_KEY_PEM": "-----BEGIN",
        "MIRRORLIB_KAFKA_SASL_USERNAME": "overruled",
        "HOME": "/",
    }
    text = "//a:1,[::1]:2/x-{schema}.{table}?tombstones=true"
    text += "&timeout=5&sasl.username=m%26e&compression.type=zstd&transaction.timeout.ms=60000"
    found = parse_address(text, environment)

    assert ("a:1,[::1]:2", True, 5.0, 60.0) == (
        *(found.brokers, found.tombstones, found.timeout, found.longest),
    )
    assert found.client == {
        "sasl.password": "p&1",
        "ssl.key.pem": "-----BEGIN",
        "sasl.username": "m&e",
    }
    assert found.producer == {"compression.type": "zstd", "transaction.timeout.ms": "60000"}
    assert "BEGIN" not in repr(found)
    assert "x-dbo.orders" == found.topic_of(TableName("dbo", "orders"))
    for table, reason in (
        (TableName(None, "orders"), "no schema"),
        (TableName("dbo", "größe"), "no topic"),
        (TableName("dbo", "a b"), "no topic"),
        (TableName("{table}", "b"), "no topic"),
        (TableName("dbo", "x" * 250), "no topic"),
    ):
        with pytest.raises(TableNameError, match=reason):
            found.topic_of(table)
    with pytest.raises(LandingZoneError, match="MIRRORLIB_KAFKA_PASSWORD"):
        parse_address("//a:1/x", {"MIRRORLIB_KAFKA_PASSWORD": "x"})


def test_a_topic_without_a_leader_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is there, so nobody tries to make it, which they may not be allowed to."""
    address = parse_address("//localhost:1/t", {})
    cluster, counts = Cluster(address), [0, 0, 3]
    monkeypatch.setattr(cluster, "_count", lambda _: counts.pop(0))
    monkeypatch.setattr(cluster, "_make", None)

    assert 3 == cluster.topic(Scene(address=address, table="t", topic="t"))
    assert [] == counts


@pytest.mark.parametrize("name", ["INVALID_REPLICATION_FACTOR", "TOPIC_AUTHORIZATION_FAILED"])
def test_where_no_topic_may_be_made_it_says_to_make_it_beforehand(name: str) -> None:
    """Brokers may refuse their own defaults, too."""
    scene = Scene(address=parse_address("//localhost:1/t", {}), table="t", topic="t")
    refused = KafkaError(getattr(KafkaError, name))
    said = str(scene.explain("find the topic t", refused))
    assert re.search("make (the topic|them) beforehand", said)


def test_fencing_is_by_table_consumer_and_topic() -> None:
    """A rewound stream fences off the one before it; another consumer, table or topic does not."""
    stream = a_stream("c")
    names = {
        transactional_id(stream, "t"),
        transactional_id(replace(stream, uuid="u", ordinal=2), "t"),
    }
    assert 1 == len(names)
    for other in (
        replace(stream, consumer="d"),
        replace(stream, table="dbo/other"),
        replace(stream, table_id="another"),
    ):
        names.add(transactional_id(other, "t"))
    names.add(transactional_id(rewound(stream, table_id="made anew"), "t"))
    names.add(transactional_id(stream, "u"))
    assert 5 == len(names)
    assert all(name.startswith("mirrorlib.") for name in names)


def test_without_the_package_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """And nothing of it is imported before it is used."""
    ours = "mirrorlib.delivery.sinks.kafka."
    for name in [name for name in sys.modules if name.startswith((ours, "confluent_kafka"))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "confluent_kafka", None)
    with pytest.raises(LandingZoneError, match=r"pip install '\.\[kafka\]'"):
        open_receiver("kafka://host:1/topic", None)
    script = "import sys, mirrorlib.delivery.run; sys.exit('confluent_kafka' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], env=child_environment(), check=False)
    assert 0 == done.returncode
