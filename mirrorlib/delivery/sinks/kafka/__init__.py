"""Deliver windows to Kafka: one message a change, one transaction a window.

In: `kafka://HOST:PORT[,HOST:PORT…]/TOPIC?options`. `{schema}` and `{table}` in TOPIC stand for a table's;
without them all tables share the topic. A topic that is there is used as it is; one that is not is made as
the brokers make topics by default. Options: `tombstones=true`, `positions=TOPIC`, `timeout=SECONDS`, and
librdkafka's own `security.protocol`, `sasl.…`, `ssl.…` and a few more (`address`), which may come from the
environment too, as `MIRRORLIB_KAFKA_SASL_PASSWORD`.

Out, for each change:

    key        JSON of the key columns; none where the table has no keys
    value      {"before": …, "after": …, "source": {…}, "op": …, "ts_ms": …}, named as Debezium names them:
               op is c, u, d, or r for a row of a snapshot; source has the Delta version, when it was committed
               (ts_ms), schema, table and consumer; ts_ms is when the window was delivered
    headers    mirrorlib.stream (uuid), mirrorlib.window, mirrorlib.ordinal (from 1 within it), mirrorlib.kind

Both images of an update are one message; where the key itself has changed, or there is none, they are a
delete and an insert. With `tombstones=true` a message without a value follows each delete. A snapshot
that takes the place of what was delivered before begins with a message of op "t" in each partition
of the topic: what it held of the table is void. Values: decimals and what JSON has no number for (NaN,
Infinity, -Infinity) are strings, binary is base64, moments are ISO 8601 in UTC to the microsecond
(without a Z where they have no zone), a map is an object where its keys are strings, else a list of
{"key", "value"}.

Delivery: exactly once for consumers that read committed messages, each window as a whole; changes of one
key in the order of their commits, as they lie in one partition. A window's transaction also carries its
number to a compacted topic, `_mirrorlib_positions`, and has the stream's transactional id, so a runner
that wakes up late is fenced off; one that begins late finds there that a later stream has delivered. A
window has to be sent within `transaction.timeout.ms` (15 minutes, the most that brokers allow unless told
otherwise); where it is too large for that, nothing of it is seen.
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
