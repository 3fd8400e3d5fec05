"""Deliver windows to Kafka: one message a change, one transaction a window; docs/export.md says what is in them.

Delivery: exactly once for consumers that read committed messages, each window as a whole, as `receive` says; changes of
one key in the order of their commits, as they lie in one partition while its text is the same.
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
