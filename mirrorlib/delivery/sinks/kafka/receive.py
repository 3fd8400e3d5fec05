"""Receive windows for Kafka: one transaction each, and the truth about which came through.

In: an `Address`. Out: a `Sink`. Delivery: exactly once, as a window's number is committed with it. What
makes it true is an order that is never left: begin for the stream, which fences off all others and
settles what they left; then read its position, and whether a later stream of the consumer has delivered, which
the table is left to; then send. Whoever begins in between makes the sending fail.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mirrorlib.delivery.sinks.kafka.cluster import Cluster
from mirrorlib.delivery.sinks.kafka.messages import Message, reset_messages, resets, row_messages
from mirrorlib.delivery.sinks.kafka.positions import Positions, position_record
from mirrorlib.delivery.sinks.kafka.rows import rows_as_json
from mirrorlib.delivery.sinks.kafka.transact import Headers, Transactions, transactional_id
from mirrorlib.delivery.sinks.kafka.trouble import Scene
from mirrorlib.errors import TableBusyError
from mirrorlib.names import parse_name

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mirrorlib.delivery.sink import Delivery
    from mirrorlib.delivery.sinks.kafka.address import Address
    from mirrorlib.errors import StoreError
    from mirrorlib.journal.streams import Stream

_KEPT = 16  # connections between windows: a run has as many tables as it likes


@dataclass(slots=True)
class _Line:
    """An open way to the brokers for one stream.

    Attributes:
        transactions: sends, unless somebody else has begun.
        position: the last window that is committed, as of the beginning or by this very line.
        begun: the topic has something of the table by the consumer, as of the beginning or by this very line.
        turn: see `Position`.

    """

    transactions: Transactions
    position: int
    begun: bool
    turn: int


class KafkaSink:
    """A receiver of windows that sends them to topics; for many threads, each with streams of its own."""

    groups = (
        True  # a message's key says which changes keep their order, so several rows may share one
    )

    def __init__(self, address: Address) -> None:
        """Take the address; nobody is asked yet."""
        self._address = address
        self._cluster = Cluster(address)
        self._positions = Positions(self._cluster)
        self._lines: dict[str, _Line] = {}  # those that wait for a window, by stream
        self._lock = threading.Lock()

    def position(self, stream: Stream) -> int:
        """Return the number of the last window that was committed for a stream.

        Raises:
            StoreError: no broker answers, or it does not allow it.
            TableBusyError: a later stream of the consumer delivers the table.
            TableNameError: no topic can be named by the table.

        """
        line = self._take(stream) or self._open(stream)
        self._keep(stream, line)
        return line.position

    def deliver(self, delivery: Delivery) -> int:
        """Send a window's messages and its number, all or nothing; return how many rows it has.

        Raises:
            TableBusyError: another runner has begun to deliver the stream, or a later stream delivers the table.
            StoreError: nothing of the window is visible; or, where it says so, nobody knows.
            SchemaError: a column cannot be told in JSON.

        """
        stream, plan = delivery.stream, delivery.plan
        line = self._take(stream) or self._open(stream)
        if line.position >= plan.number:
            self._keep(stream, line)
            return 0
        scene = self._scene(stream)
        headers = Headers(stream.uuid, plan.number, plan.kind)
        if not line.position and delivery.continues:
            raise _emptied(scene)
        record = Message(*position_record(stream, plan, scene.topic, line.turn), 0)
        messages = self._messages(delivery, scene, begun=line.begun)
        rows = line.transactions.send_window(
            scene.topic, messages, headers, record, self._address.positions
        )
        # A line on which anything failed is never used again.
        line.position, line.begun = plan.number, True
        self._keep(stream, line)
        return rows

    def _messages(self, delivery: Delivery, scene: Scene, *, begun: bool) -> Iterator[Message]:
        plan, now_ms = delivery.plan, round(time.time() * 1000)
        table = delivery.stream.table
        frame = rows_as_json(delivery.frame, delivery.keys, table, ordered=plan.kind == "changes")
        rows = frame.toLocalIterator()
        if resets(delivery, begun=begun):
            partitions = self._cluster.topic(scene.topic, scene)
            yield from reset_messages(delivery, partitions, now_ms)
        yield from row_messages(delivery, rows, now_ms, tombstones=self._address.tombstones)

    def _open(self, stream: Stream) -> _Line:
        scene = self._scene(stream)
        self._cluster.positions(scene)
        name = transactional_id(stream, scene.topic)
        transactions = Transactions(self._address, scene, name)
        transactions.begin()  # first: a commit that is under way has to be settled
        found = self._positions.find(stream, scene)
        if found.overtaken:
            msg = f"a stream of {stream.consumer} that began later writes to topic {scene.topic}"
            raise TableBusyError(msg, table=stream.table, next_step="Leave the table to it.")
        if found.window and not self._cluster.has(scene.topic, scene):
            raise _emptied(scene)
        self._cluster.topic(scene.topic, scene)
        return _Line(transactions, found.window, found.begun, found.turn)

    def _scene(self, stream: Stream) -> Scene:
        address = self._address
        return Scene(
            brokers=address.brokers,
            topic=address.topic_of(parse_name(stream.table)),
            positions=address.positions,
            table=stream.table,
            timeout=address.timeout,
        )

    def _take(self, stream: Stream) -> _Line | None:
        with self._lock:
            return self._lines.pop(stream.uuid, None)

    def _keep(self, stream: Stream, line: _Line) -> None:
        """Keep a line for the next window; the one that has waited longest goes when there are many."""
        with self._lock:
            self._lines[stream.uuid] = line
            if len(self._lines) > _KEPT:
                del self._lines[next(iter(self._lines))]


def _emptied(scene: Scene) -> StoreError:
    reason = "what was delivered before is not there any more"
    step = (
        "Rewind the consumer to a snapshot: mirrorlib consumers TARGET --rewind NAME --to snapshot;"
        " or, to go on with what comes, create the topic."
    )
    return scene.error(reason, step)
