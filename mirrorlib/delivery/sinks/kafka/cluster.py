"""Know the topics of a cluster, and make those that are missing.

In: an `Address`. Out: how many partitions a topic has, where they end. Promise: the topic of positions is
compacted, else nothing is delivered: it would forget how far each stream has come. Nothing is made by
merely asking, whatever the broker makes by itself.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import cached_property
from typing import Any

from confluent_kafka import (
    IsolationLevel,
    KafkaError,
    KafkaException,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, OffsetSpec  # type: ignore[attr-defined]  # its types do not say what is public

from mirrorlib.delivery.sinks.kafka.address import Address
from mirrorlib.delivery.sinks.kafka.trouble import MISSING, UNSEEN, Scene, error_of, translated

_COMPACT = "compact"
_POLICY = "cleanup.policy"
# The segment that is written to is never compacted, and each run reads all that is not. Four hours are what
# brokers for hire allow at least.
_COMPACTED = {_POLICY: _COMPACT, "segment.ms": "14400000"}
_BREATH = 0.1  # seconds between looks at a topic that is being made


class Cluster:
    """The brokers, as an administrator asks them; for many threads."""

    def __init__(self, address: Address) -> None:
        self.address = address
        self._heard: deque[KafkaError] = deque(maxlen=1)

    def topic(self, scene: Scene, *, make: bool = True) -> int:
        """See that a table's topic is there, and count its partitions; 0 where there is none and none is to be made."""
        with self._asked(f"find the topic {scene.topic}", scene):
            return self._ready(NewTopic(scene.topic), scene, make=make)

    def positions(self, scene: Scene) -> int:
        """See that the topic of positions is there and compacted, and count its partitions."""
        name = self.address.positions
        with self._asked(f"find the topic {name}", scene):
            count = self._ready(NewTopic(name, 1, config=_COMPACTED), scene)
            self._check_compacted(name, scene)
            return count

    def ends(self, partitions: int, scene: Scene) -> dict[int, int]:
        """Return where each partition of the topic of positions ends, messages of open transactions within."""
        name = self.address.positions
        latest = OffsetSpec.latest()  # type: ignore[no-untyped-call]
        asked = {TopicPartition(name, number): latest for number in range(partitions)}
        with self._asked(f"find the end of {name}", scene):
            answers = self._admin.list_offsets(
                asked,
                isolation_level=IsolationLevel.READ_UNCOMMITTED,
                request_timeout=self.address.timeout,
            )
            return {place.partition: future.result().offset for place, future in answers.items()}

    def _asked(self, verb: str, scene: Scene) -> AbstractContextManager[None]:
        """Tell what goes wrong, with what was heard last of brokers that cannot be talked to."""

        def latest() -> KafkaError | None:
            if "_admin" in vars(self):  # else it could not be made
                self._admin.poll(0)
            return self._heard[-1] if self._heard else None

        return translated(scene, verb, latest)

    @cached_property
    def _admin(self) -> AdminClient:
        return AdminClient(client_conf(self.address, self._heard.append))

    def _count(self, name: str) -> int | None:
        """Count a topic's partitions; 0 when it is not ready, None when there is no such topic."""
        asked = TopicCollection([name])
        answers = self._admin.describe_topics(asked, request_timeout=self.address.timeout)
        try:
            partitions = answers[name].result().partitions
        except KafkaException as exc:
            if error_of(exc).code() in MISSING:
                return None
            raise
        ready = all(one.leader is not None and one.leader.id >= 0 for one in partitions)
        return len(partitions) if ready else 0

    def _ready(self, topic: NewTopic, scene: Scene, *, make: bool = True) -> int:
        """Wait for a topic's leaders, and make it where there is none; count its partitions, 0 if it is not made."""
        name, end = topic.topic, time.monotonic() + self.address.timeout
        count = self._count(name)
        if count is None and not make:
            return 0
        if count is None:
            self._make(topic)
        while not count:
            if time.monotonic() > end:
                msg = f"the topic {name} has no leader"
                raise scene.error(msg, "See that enough brokers run; the next run goes on.")
            time.sleep(_BREATH)
            count = self._count(name)
        return count

    def _make(self, topic: NewTopic) -> None:
        timeout = self.address.timeout
        made = self._admin.create_topics([topic], request_timeout=timeout)[topic.topic]
        try:
            made.result()
        except KafkaException as exc:
            if error_of(exc).code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise

    def _check_compacted(self, name: str, scene: Scene) -> None:
        """Refuse a topic that forgets; one that may not be looked at is taken on trust."""
        asked = ConfigResource(ConfigResource.Type.TOPIC, name)
        timeout = self.address.timeout
        (answer,) = self._admin.describe_configs([asked], request_timeout=timeout).values()
        try:
            policy = answer.result()[_POLICY].value
        except KafkaException as exc:
            if error_of(exc).code() in UNSEEN:
                return
            raise
        if policy != _COMPACT:
            msg = f"the topic {name} is not compacted, and would forget what was delivered"
            step = "Set cleanup.policy=compact on it, or let a new consumer name another: ?positions=…."
            raise scene.error(msg, step, policy)


def client_conf(address: Address, hear: Callable[[KafkaError], None]) -> dict[str, Any]:
    """Configure a client, as librdkafka takes it: whom to ask, and who hears of trouble."""
    return {
        **address.client,
        "bootstrap.servers": address.brokers,
        "error_cb": hear,
        "log_level": 0,  # what matters of it is told in errors
        "log.connection.close": False,
    }
