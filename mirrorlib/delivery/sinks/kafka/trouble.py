"""Tell what Kafka refuses as errors that name broker, topic and table, and what to do.

In: an error of librdkafka. Out: `TableBusyError` for a runner that was fenced off, else `StoreError`.
Promise: no value of an option and no value of the data is in the text.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from confluent_kafka import KafkaError, KafkaException

from mirrorlib.delivery.sinks.kafka.address import ENVIRONMENT, Address
from mirrorlib.errors import MirrorError, StoreError, TableBusyError, first_line


def codes(*names: str) -> frozenset[int]:
    """Return codes of errors by their names; those of librdkafka's own begin with an underscore."""
    return frozenset(getattr(KafkaError, name) for name in names)


FENCED = codes(
    "_FENCED", "PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH", "INVALID_PRODUCER_ID_MAPPING"
)
MISSING = codes("UNKNOWN_TOPIC_OR_PART", "_UNKNOWN_TOPIC")
_AWAY = codes("_ALL_BROKERS_DOWN", "_RESOLVE", "_TIMED_OUT", "_MSG_TIMED_OUT")
_AWAY |= codes("_TIMED_OUT_QUEUE", "_TRANSPORT")
UNSEEN = codes("TOPIC_AUTHORIZATION_FAILED", "CLUSTER_AUTHORIZATION_FAILED")
_FORBIDDEN = UNSEEN | codes("GROUP_AUTHORIZATION_FAILED", "TRANSACTIONAL_ID_AUTHORIZATION_FAILED")
_STRANGER = codes("_AUTHENTICATION", "_SSL", "SASL_AUTHENTICATION_FAILED")
_LONGEST = 300  # characters of what librdkafka says


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """Who talks to whom about what."""

    address: Address
    table: str
    topic: str  # where the table's messages go

    def error(self, reason: str, step: str, found: str | None = None) -> StoreError:
        """Build an error about the topic."""
        msg = f"{reason}, topic {self.topic} at {self.address.brokers}"
        return StoreError(msg, table=self.table, found=found, next_step=step)

    def explain(
        self, verb: str, error: KafkaError, latest: KafkaError | None = None
    ) -> MirrorError:
        """Say what an error means; *latest* is what else was heard of the brokers."""
        code = error.code()
        if code in FENCED:
            msg = f"another runner has taken over the table's messages to topic {self.topic}"
            return TableBusyError(msg, table=self.table)
        if code in _AWAY and latest is not None:
            error = latest  # a refused password reads as silence
        reason, step = self._advice(error.code())
        return self.error(f"cannot {verb}: {reason}", step, first_line(error.str(), _LONGEST))

    def _advice(self, code: int) -> tuple[str, str]:
        if code in _AWAY:
            reason = f"no answer within {self.address.timeout:g} seconds"
            return reason, "See that the brokers run and can be reached; the next run goes on."
        if code in _STRANGER:
            step = "Check security.protocol, sasl.… and ssl.…; a password may be in MIRRORLIB_KAFKA_SASL_PASSWORD."
            return "the broker and this client do not trust each other", step
        if code in _FORBIDDEN:
            step = (
                "Allow Describe and Write on the topic;"
                f" Describe, DescribeConfigs, Read and Write on {self.address.positions};"
                " Create for both, or make them beforehand; and Write on transactional ids that begin with mirrorlib."
            )
            return "the broker does not allow it", step
        if code == KafkaError.INVALID_TRANSACTION_TIMEOUT:
            step = f"Set {ENVIRONMENT}TRANSACTION_TIMEOUT_MS up to the broker's transaction.max.timeout.ms."
            return "the broker does not allow transactions that long", step
        if code == KafkaError.MSG_SIZE_TOO_LARGE:
            step = f"Raise max.message.bytes of the topic, and set {ENVIRONMENT}MESSAGE_MAX_BYTES as high."
            return "a message is larger than it may be", step
        if code == KafkaError.INVALID_RECORD:
            step = "A compacted topic takes no messages without a key: name the key columns, or use another topic."
            return "the broker refuses a message", step
        step = f"Correct an option in the URL or in {ENVIRONMENT}…, or make the topic beforehand; else run again."
        return "Kafka refuses", step


@contextlib.contextmanager
def translated(
    scene: Scene, verb: str, latest: Callable[[], KafkaError | None] = lambda: None
) -> Iterator[None]:
    """Turn what librdkafka raises into errors that name the place."""
    try:
        yield
    except KafkaException as exc:
        raise scene.explain(verb, error_of(exc), latest()) from exc


def error_of(exc: KafkaException) -> KafkaError:
    """Take the error out of the exception."""
    error = exc.args[0]
    assert isinstance(error, KafkaError)  # noqa: S101  # librdkafka's exceptions hold nothing else
    return error
