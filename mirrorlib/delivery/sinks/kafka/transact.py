"""Send windows of one stream, each in one transaction.

In: messages, and the record of the window's position. Out: all of them at once, or none. Promise: of all
who ever began to send for a stream, only the one that began last can: `begin` fences the others off, and
settles what they left under way. Memory stays bounded; so does the time in which nothing moves.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import time
from collections import deque
from collections.abc import Iterable
from typing import TypeAlias

from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka import Message as Sent

from mirrorlib.delivery.sinks.kafka.address import ENVIRONMENT, MESSAGE_BYTES
from mirrorlib.delivery.sinks.kafka.cluster import client_conf
from mirrorlib.delivery.sinks.kafka.messages import Message
from mirrorlib.delivery.sinks.kafka.trouble import FENCED, Scene, codes, error_of, translated
from mirrorlib.errors import MirrorError, StoreError
from mirrorlib.journal.streams import Stream
from mirrorlib.names import TableName, parse_name

_QUEUE_KB = 64 << 10  # what is sent and not acknowledged yet
_LOOK = 1000  # messages between looks at the clock and at what came back
_POLL = 0.1  # seconds
_GIVE_UP = 5.0  # seconds for an abort; the broker aborts by itself, or the next to begin makes it
_DROPPED = codes("_FATAL", "_PURGE_INFLIGHT", "_PURGE_QUEUE", "_STATE")  # consequences, no causes
Headers: TypeAlias = list[tuple[str, str | bytes | None]]  # as librdkafka takes them


def window_headers(stream: str, window: int, kind: str) -> Headers:
    """Return what names a window's messages for ever, beside their place in it."""
    return [
        ("mirrorlib.stream", stream.encode()),
        ("mirrorlib.window", b"%d" % window),
        ("mirrorlib.kind", kind.encode()),
    ]


def transactional_id(stream: Stream, topic: str) -> str:
    """Name who sends: a consumer's way of one Delta table into a topic.

    Not by the stream's uuid, nor by the id of a table that was made anew: when a stream is rewound, the new one has
    to fence off a late runner of the old one.
    """
    route = json.dumps([stream.consumer, stream.table, stream.lineage, topic]).encode()
    names = (TableName(None, stream.consumer).segment, parse_name(stream.table).segment)
    return ".".join(("mirrorlib", *names, hashlib.sha256(route).hexdigest()[:16]))


class Transactions:
    """The one that sends for a stream; for one thread at a time."""

    def __init__(self, scene: Scene, name: str) -> None:
        """Prepare; `name` is the transactional id."""
        self._scene = scene
        self._timeout, self._longest = scene.address.timeout, scene.address.longest
        self._trouble: deque[KafkaError] = deque(maxlen=1)  # of brokers that cannot be talked to
        self._refused: list[KafkaError] = []  # of messages, the first
        self._sent = 0
        self._began = 0.0
        self._committing = False
        refused = self._refused  # who hears knows no producer, so that one that is let go of ends

        def hear(error: KafkaError | None, _: Sent) -> None:
            if error is not None and not refused and error.code() not in _DROPPED:
                refused.append(error)

        largest = int(scene.address.producer.get(MESSAGE_BYTES, 0)) >> 10
        with translated(scene, "connect"):
            self._producer = Producer(
                {
                    **client_conf(scene.address, self._trouble.append),
                    **scene.address.producer,
                    "transactional.id": name,
                    "partitioner": "murmur2_random",  # where Java's producers put the same key
                    # Or it waits for ever.
                    "queue.buffering.max.kbytes": max(_QUEUE_KB, 2 * largest),
                    "delivery.report.only.error": True,
                    "on_delivery": hear,
                }
            )

    def begin(self) -> None:
        """Fence off whoever sent for the stream before, once what they left under way has come to an end."""
        with translated(self._scene, "begin a transaction", self._latest):
            self._producer.init_transactions(self._timeout)

    def send_window(self, messages: Iterable[Message], headers: Headers, position: Message) -> int:
        """Send messages to the table's topic, and the window's position to theirs, in one transaction; count rows.

        Raises `TableBusyError` where somebody has begun to send for the stream since, and `StoreError` where nothing
        of it is visible; or, where it says so, nobody knows.
        """
        try:
            self._producer.begin_transaction()
            self._sent, self._began, rows = 0, 0.0, 0
            for message in messages:
                ordinal = ("mirrorlib.ordinal", b"%d" % (self._sent + 1))
                self._send(self._scene.topic, message, [*headers, ordinal])
                rows += message.rows
            # Last, and on its own: who reads the positions of others waits while it is not committed.
            self._flush()
            self._send(self._scene.address.positions, position, [])
            self._flush()
            self._commit()
        except BaseException as exc:
            self._give_up()
            if isinstance(exc, KafkaException):
                raise self._explained(error_of(exc)) from exc
            raise
        return rows

    def _send(self, topic: str, message: Message, headers: Headers) -> None:
        self._began = self._began or time.monotonic()
        while True:
            try:
                self._producer.produce(
                    topic, message.value, message.key, message.partition, headers=headers
                )
                break
            except BufferError:
                self._wait()
        self._sent += 1
        if self._sent % _LOOK == 0:
            self._producer.poll(0)
            self._look()

    def _flush(self) -> None:
        while len(self._producer):
            self._wait()
        self._look()

    def _wait(self) -> None:
        """Wait until fewer messages are on their way; the brokers' silence has its bounds."""
        waiting, end = len(self._producer), time.monotonic() + self._timeout
        while self._producer.flush(_POLL) >= waiting:
            self._look()
            if time.monotonic() > end:
                raise KafkaException(KafkaError(KafkaError._TIMED_OUT, "no message was taken"))  # noqa: SLF001
        self._look()

    def _look(self) -> None:
        if self._refused:
            raise KafkaException(self._refused[0])
        if self._began and time.monotonic() - self._began > self._longest:
            raise self._too_slow()

    def _commit(self) -> None:
        """Commit; a broker that is silent is asked again, and what it then has done is not known."""
        self._committing = True
        end = time.monotonic() + self._timeout
        while self._committing:
            try:
                self._producer.commit_transaction(max(end - time.monotonic(), _POLL))
                self._committing = False
            except KafkaException as exc:
                error = error_of(exc)
                if error.retriable() and not error.txn_requires_abort():
                    if time.monotonic() < end:
                        continue
                    reason = "the broker did not say whether it has committed the window"
                    step = "The next run asks it, and delivers the window again only if it has not."
                    raise self._scene.error(reason, step, error.name()) from exc
                self._committing = not error.txn_requires_abort()
                raise

    def _give_up(self) -> None:
        """Abort what was sent, unless its commit is under way; nobody uses this object after."""
        with contextlib.suppress(KafkaException, RuntimeError):
            if not self._committing:
                self._producer.abort_transaction(min(_GIVE_UP, self._timeout))
            self._producer.purge()

    def _explained(self, error: KafkaError) -> MirrorError:
        """Say why, by the first cause that is known: librdkafka fails what comes after it in ways of its own."""
        trouble = self._latest()
        known = [error, *self._refused, trouble]
        causes = [found for found in known if found is not None and found.code() not in _DROPPED]
        plain = FENCED | {KafkaError.MSG_SIZE_TOO_LARGE}
        cause = next((found for found in causes if found.code() in plain), (causes or [error])[0])
        late = self._began and time.monotonic() - self._began >= self._longest
        if cause.code() in FENCED and late:  # so does a broker fence off who is too slow
            return self._too_slow()
        return self._scene.explain("deliver a window", cause, trouble)

    def _too_slow(self) -> StoreError:
        reason = f"the window cannot be sent within {self._longest:g} seconds, as long as a transaction may take"
        step = (
            "Raise the broker's transaction.max.timeout.ms, and set"
            f" {ENVIRONMENT}TRANSACTION_TIMEOUT_MS as high."
        )
        return self._scene.error(reason, step, f"{self._sent:,} messages were sent")

    def _latest(self) -> KafkaError | None:
        """Hear what has not been heard yet: a fatal error is raised once, whenever the next one asks."""
        try:
            self._producer.poll(0)
        except KafkaException as exc:
            self._trouble.append(error_of(exc))
        return self._trouble[-1] if self._trouble else None
