"""Deliver windows to Kafka: one message a change, one transaction a window; docs/export.md says what is in them.

Delivery: exactly once for consumers that read committed messages, each window as a whole; changes of one
key in the order of their commits, as they lie in one partition. A window's transaction also carries its
number to a compacted topic, and has the stream's transactional id, so a runner that wakes up late is fenced off; one
that begins late finds there that a later stream has delivered.
"""

from __future__ import annotations

from mirrorlib.delivery.sink import Sink
from mirrorlib.delivery.sinks.kafka.address import parse_address
from mirrorlib.errors import LandingZoneError
from mirrorlib.extras import needed


def open_sink(address: str, _mode: str) -> Sink:
    """Open a receiver; no broker is asked yet."""
    found = parse_address(address)
    with needed("kafka", "confluent-kafka", LandingZoneError):
        import confluent_kafka  # noqa: F401
    from mirrorlib.delivery.sinks.kafka.receive import KafkaSink

    return KafkaSink(found)
