"""Receive windows for Kafka: one transaction each, and the truth about which came through.

In: an `Address`. Out: a `Sink`. Delivery: exactly once, as a window's number is committed with it. What
makes it true is an order that is never left: begin for the stream, which fences off all others and
settles what they left; then read its position, and whether a later stream of the consumer has delivered, which
the table is left to; then send. Whoever begins in between makes the sending fail.

How far each stream has come is read from the topic that their transactions write it to: every transaction that ended
before the question is in the answer. Two things need care. A consumer of committed messages stops where the oldest
open transaction begins, whoever's it is, and takes that for the end: so the end is asked for with open transactions in
it, and what lies before it is waited for. And a transaction of the stream itself whose commit is still under way must
be settled first, which beginning does.
"""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from mirrorlib.errors import LandingZoneError
from mirrorlib.extras import needed

with needed("kafka", "confluent-kafka", LandingZoneError):
    from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
    from confluent_kafka import Message as Read

from mirrorlib.delivery.sink import Delivery, check_successor
from mirrorlib.delivery.sinks.kafka.address import Address, parse_address
from mirrorlib.delivery.sinks.kafka.cluster import Cluster, client_conf
from mirrorlib.delivery.sinks.kafka.messages import Message, window_messages
from mirrorlib.delivery.sinks.kafka.transact import Transactions, transactional_id, window_headers
from mirrorlib.delivery.sinks.kafka.trouble import Scene, translated
from mirrorlib.events import pick
from mirrorlib.journal.plan_log import read_object
from mirrorlib.journal.streams import Stream, WindowPlan, begin_anew
from mirrorlib.names import parse_name

_KEPT = 16  # connections between windows: a run has as many tables as it likes
_AT_ONCE = 500  # messages
_POLL = 0.02  # seconds
_WAIT = 10  # milliseconds that a broker may wait for more: nobody waits for what is to come
# A record tells a window's number, and whose it is.
_Record: TypeAlias = Mapping[str, Any]
_TOLD = {"window", "consumer", "table", "topic", "lineage", "turn", "ordinal", "began_at"}


def open_sink(address: str, _mode: str) -> KafkaSink:
    """Open a receiver; no broker is asked yet."""
    return KafkaSink(parse_address(address))


class KafkaSink:
    """A receiver of windows that sends them to topics; for many threads, each with streams of its own."""

    groups = True  # a message's key says what keeps its order, so several rows may share one

    def __init__(self, address: Address) -> None:
        """Take the address; nobody is asked yet."""
        self._address = address
        self._cluster = Cluster(address)
        self._positions = Positions(self._cluster)
        # Ways to the brokers that wait for a window, by stream; as far as each came by itself, or when it was opened.
        self._lines: dict[str, tuple[Transactions, Position]] = {}
        self._lock = threading.Lock()

    def position(self, stream: Stream) -> int:
        """Return the number of the last window that was committed for a stream."""
        sends, found = self._take(stream)
        self._keep(stream, sends, found)
        return found.window

    def deliver(self, delivery: Delivery) -> int | None:
        """Send a window's messages and its number, all or nothing; return how many rows it has."""
        stream, plan = delivery.stream, delivery.plan
        sends, found = self._take(stream)
        if found.window >= plan.number:
            self._keep(stream, sends, found)
            return None
        scene = self._scene(stream)
        if not found.window and delivery.continues:
            msg = (
                f"{self._address.positions} does not tell any more how far the table was delivered"
            )
            raise scene.error(msg, begin_anew(stream))
        record = Message(*position_record(stream, plan, scene.topic, found.turn), 0)
        # The first snapshot of a stream voids what an earlier one has begun: what was deleted since is not in it.
        resets = plan.kind == "snapshot" and (found.begun or plan.reset or stream.ordinal > 1)
        partitions = self._cluster.topic(scene) if resets else 0
        messages = window_messages(delivery, partitions, tombstones=self._address.tombstones)
        headers = window_headers(stream.uuid, plan.number, plan.kind)
        rows = sends.send_window(messages, headers, record)
        # A way on which anything failed is never used again.
        self._keep(stream, sends, replace(found, window=plan.number, begun=True))
        return rows

    def _take(self, stream: Stream) -> tuple[Transactions, Position]:
        with self._lock:
            line = self._lines.pop(stream.uuid, None)
        return line or self._open(stream)

    def _open(self, stream: Stream) -> tuple[Transactions, Position]:
        scene = self._scene(stream)
        self._cluster.positions(scene)
        transactions = Transactions(scene, transactional_id(stream, scene.topic))
        transactions.begin()  # first: a commit that is under way has to be settled
        found = self._positions.find(stream, scene)
        if not self._cluster.topic(scene, make=not found.window):
            msg = "what was delivered before is not there any more"
            step = f"To go on with what comes, create the topic. {begin_anew(stream)}"
            raise scene.error(msg, step)
        return transactions, found

    def _scene(self, stream: Stream) -> Scene:
        topic = self._address.topic_of(parse_name(stream.table))
        return Scene(address=self._address, table=stream.table, topic=topic)

    def _keep(self, stream: Stream, sends: Transactions, found: Position) -> None:
        """Keep a way for the next window; the one that has waited longest goes when there are many."""
        with self._lock:
            self._lines[stream.uuid] = sends, found
            if len(self._lines) > _KEPT:
                del self._lines[next(iter(self._lines))]


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """How far a stream has come."""

    window: int  # the number of its last committed one; 0 for none
    begun: bool  # some stream of its consumer has delivered the table to the topic
    turn: int  # its place among the streams of its lineage, by when each delivered first; from 1


def position_record(stream: Stream, plan: WindowPlan, topic: str, turn: int) -> tuple[bytes, bytes]:
    """Write a window's number, and whose it is, as key and value of a message."""
    record = {
        "window": plan.number,
        "version": plan.until,
        **pick(stream, "consumer", "table", "lineage", "ordinal", "began_at"),
        "topic": topic,
        "turn": turn,
    }
    return stream.uuid.encode(), json.dumps(record, ensure_ascii=False).encode()


class Positions:
    """The topic of positions, read as far as was needed; for many threads."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._lock = threading.Lock()
        self._read_to: dict[int, int] = {}  # by partition
        self._records: dict[str, _Record] = {}  # the last of each stream

    def find(self, stream: Stream, scene: Scene) -> Position:
        """Find how far a stream has come; raises `TableBusyError` where the last one to deliver is a later one."""
        ends = self._cluster.ends(self._cluster.positions(scene), scene)
        with self._lock:
            starts = {number: self._read_to.get(number, 0) for number in ends}
        behind = any(starts[number] < end for number, end in ends.items())
        reached, records = _read_on(starts, ends, scene) if behind else ({}, [])
        with self._lock:  # another thread may have read further
            for number, offset in reached.items():
                self._read_to[number] = max(offset, self._read_to.get(number, 0))
            for uuid, record in records:
                if record["window"] >= self._records.get(uuid, record)["window"]:
                    self._records[uuid] = record
            return self._position(stream, scene.topic)

    def _position(self, stream: Stream, topic: str) -> Position:
        """Say what the records tell."""
        known, whose = self._records.get(stream.uuid), (stream.consumer, stream.table, topic)
        every = self._records.values()
        ours = [one for one in every if (one["consumer"], one["table"], one["topic"]) == whose]
        turns = {one["turn"]: one for one in ours if one["lineage"] == stream.lineage}
        if turns and (last := turns[max(turns)]) is not known:
            check_successor(stream, {**last, "stream": ""}, f"topic {topic}", begin_anew(stream))
        return Position(
            window=known["window"] if known else 0,
            begun=bool(ours),
            turn=known["turn"] if known else max(turns, default=0) + 1,
        )


def _read_on(
    starts: Mapping[int, int], ends: Mapping[int, int], scene: Scene
) -> tuple[dict[int, int], list[tuple[str, _Record]]]:
    """Read on until each partition's end is reached, as long as there is progress; return how far, and the records."""
    topic, heard = scene.address.positions, deque[KafkaError](maxlen=1)
    verb, reached, records = f"read the topic {topic}", dict(starts), list[tuple[str, _Record]]()
    consumer = Consumer(
        {
            **client_conf(scene.address, heard.append),
            "group.id": "mirrorlib.positions",  # has to be there; no offset is kept under it
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
            "fetch.wait.max.ms": _WAIT,
        }
    )
    with contextlib.closing(consumer):
        consumer.assign([TopicPartition(topic, number, at) for number, at in starts.items()])
        deadline = time.monotonic() + scene.address.timeout
        while any(reached[number] < end for number, end in ends.items()):
            with translated(scene, verb, lambda: heard[-1] if heard else None):
                messages = consumer.consume(_AT_ONCE, _POLL)
                for message in messages:
                    records += _take(message, reached, scene)
            if messages:
                deadline = time.monotonic() + scene.address.timeout
            elif time.monotonic() > deadline and heard:
                raise scene.explain(verb, heard[-1])
            elif time.monotonic() > deadline:
                msg = f"cannot {verb} to its end: a transaction has not ended"
                minutes = scene.address.longest / 60
                step = f"Kafka ends it {minutes:g} minutes after it began; the next run goes on."
                raise scene.error(msg, step)
    return reached, records


def _take(message: Read, reached: dict[int, int], scene: Scene) -> list[tuple[str, _Record]]:
    """Take a record, or learn how far there is nothing: marks of transactions take places too."""
    error, partition, offset = message.error(), message.partition(), message.offset()
    if error is not None and error.code() != KafkaError._PARTITION_EOF:  # noqa: SLF001
        raise KafkaException(error)
    if partition is None or offset is None:
        return []
    if error is not None:
        reached[partition] = max(reached[partition], offset)
        return []
    reached[partition] = offset + 1
    key, value = message.key(), message.value()
    if key is None or value is None:
        return []
    told, topic = read_object(value), scene.address.positions
    if not told.keys() >= _TOLD or not isinstance(told["window"], int):
        msg = f"the topic {topic} has a record that is no position"
        step = f"Give another consumer a topic of its own for them: ?positions=…, not {topic}."
        raise scene.error(msg, step, f"partition {partition}, offset {offset}")
    return [(key.decode(), told)]
