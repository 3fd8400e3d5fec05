"""Receive windows for Kafka: one transaction each, and the truth about which came through.

In: an `Address`. Out: a `Sink`. Delivery: exactly once, as a window's number is committed with it. What
makes it true is an order that is never left: begin for the stream, which fences off all others and
settles what they left; then read its position, and whether a later stream of the consumer has delivered, which
the table is left to; then send. Whoever begins in between makes the sending fail.
"""

from __future__ import annotations

import threading
from dataclasses import replace

from mirrorlib.delivery.sink import Delivery
from mirrorlib.delivery.sinks.kafka.address import Address
from mirrorlib.delivery.sinks.kafka.cluster import Cluster
from mirrorlib.delivery.sinks.kafka.messages import Message, window_messages
from mirrorlib.delivery.sinks.kafka.positions import Position, Positions, position_record
from mirrorlib.delivery.sinks.kafka.transact import Transactions, transactional_id, window_headers
from mirrorlib.delivery.sinks.kafka.trouble import Scene
from mirrorlib.errors import StoreError, TableBusyError
from mirrorlib.journal.streams import Stream
from mirrorlib.names import parse_name

_KEPT = 16  # connections between windows: a run has as many tables as it likes


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
        """Return the number of the last window that was committed for a stream.

        Raises:
            StoreError: no broker answers, or it does not allow it.
            TableBusyError: a later stream of the consumer delivers the table.
            TableNameError: no topic can be named by the table.

        """
        sends, found = self._take(stream)
        self._keep(stream, sends, found)
        return found.window

    def deliver(self, delivery: Delivery) -> int:
        """Send a window's messages and its number, all or nothing; return how many rows it has.

        Raises:
            TableBusyError: another runner has begun to deliver the stream, or a later stream delivers the table.
            StoreError: nothing of the window is visible; or, where it says so, nobody knows.
            SchemaError: a column cannot be told in JSON.

        """
        stream, plan = delivery.stream, delivery.plan
        sends, found = self._take(stream)
        if found.window >= plan.number:
            self._keep(stream, sends, found)
            return 0
        scene = self._scene(stream)
        if not found.window and delivery.continues:
            raise _emptied(scene)
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
        if found.overtaken:
            msg = f"a stream of {stream.consumer} that began later writes to topic {scene.topic}"
            raise TableBusyError(msg, table=stream.table, next_step="Leave the table to it.")
        if not self._cluster.topic(scene, make=not found.window):
            raise _emptied(scene)
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


def _emptied(scene: Scene) -> StoreError:
    reason = "what was delivered before is not there any more"
    step = (
        "Rewind the consumer to a snapshot: mirrorlib consumers TARGET --rewind NAME --to snapshot;"
        " or, to go on with what comes, create the topic."
    )
    return scene.error(reason, step)
