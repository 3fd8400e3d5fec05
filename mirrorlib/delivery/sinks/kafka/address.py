"""Read where messages go and how: brokers, topic and options.

In: `//HOST:PORT[,HOST:PORT…]/TOPIC?options`, and the environment. Out: `Address`. Promise: what is handed
to librdkafka is on a list, as some of its options would take the guarantees away; a secret that stands
where it would be shown later is refused, and no error shows a value.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import unquote

from mirrorlib.errors import LandingZoneError, TableNameError, printable
from mirrorlib.names import TableName

POSITIONS = "_mirrorlib_positions"
ENVIRONMENT = "MIRRORLIB_KAFKA_"
PATIENCE = 30.0  # seconds that a broker may be silent
# Milliseconds: what a broker allows unless it is told otherwise.
LONGEST_TRANSACTION = 15 * 60 * 1000
TRANSACTION_TIMEOUT = "transaction.timeout.ms"
MESSAGE_BYTES = "message.max.bytes"
_PASSED = ("broker.address.", "client.", "sasl.", "security.", "socket.", "ssl.")
_PASSED_TOO = ("enable.ssl.certificate.verification", "metadata.max.age.ms", "retry.backoff.ms")
_TUNING = ("batch.size", "compression.level", "compression.type", "linger.ms")
_PRODUCER = (*_TUNING, MESSAGE_BYTES, TRANSACTION_TIMEOUT)
_FREE_TEXT = "sasl.oauthbearer.config"  # librdkafka quotes it in errors, secrets and all
# Secrets that `shown_url` does not know as such, so that a registry would show them.
_NOT_IN_A_URL = re.compile(r"pem$|passphrase$|private\.key|jaas")
_OWN = ("tombstones", "positions", "timeout")
_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")
_HELP = "It is kafka://HOST:PORT[,HOST:PORT…]/TOPIC?options."


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """Where messages go, and how."""

    brokers: str  # HOST:PORT, several with commas between
    topic: str  # with `{schema}` and `{table}` in it or not
    client: Mapping[str, str] = field(repr=False)  # for every client of librdkafka, secrets within
    producer: Mapping[str, str]  # for producers besides
    tombstones: bool
    positions: str  # the topic that holds the number of each stream's last window
    timeout: float  # seconds that a broker may be silent

    @property
    def longest(self) -> float:
        """Return how many seconds a transaction may take."""
        return int(self.producer[TRANSACTION_TIMEOUT]) / 1000

    def topic_of(self, table: TableName) -> str:
        """Name the topic of a table."""
        if "{schema}" in self.topic and table.schema is None:
            msg = "the table has no schema, which the topic is named by"
            step = "Leave {schema} out of the URL, or export the table on its own."
            raise TableNameError(msg, table=str(table), found=self.topic, next_step=step)
        # Both at once: a schema may be called `{table}`.
        parts = {"{schema}": table.schema or "", "{table}": table.table}
        name = re.sub(r"\{schema\}|\{table\}", lambda found: parts[found[0]], self.topic)
        if not _is_topic(name):
            msg = "no topic can be named by the table: it takes letters, digits, '.', '_' and '-', up to 249"
            step = "Name the topic in the URL without {table} and {schema}."
            raise TableNameError(msg, table=str(table), found=printable(name), next_step=step)
        return name


def parse_address(text: str, environment: Mapping[str, str] | None = None) -> Address:
    """Read what follows `kafka:`, and what the environment adds to it."""
    place, _, query = text.partition("?")
    brokers, slash, topic = place.removeprefix("//").partition("/")
    if "@" in place:  # in a topic, too: the slash may be one of the password
        msg = "the URL has a user before its brokers"
        step = f"Give `sasl.username` as an option, and the password in {ENVIRONMENT}SASL_PASSWORD."
        raise LandingZoneError(msg, next_step=step)
    if not (place.startswith("//") and brokers and slash and topic):
        msg = "the URL names no broker or no topic"
        raise LandingZoneError(msg, next_step=_HELP)
    if not _is_topic(re.sub(r"\{schema\}|\{table\}", "x", topic)):
        msg = "no topic can have this name: it takes letters, digits, '.', '_' and '-', up to 249"
        raise LandingZoneError(msg, found=printable(topic), next_step=_HELP)
    options = dict(_option(*one) for one in enumerate(query.split("&"), 1) if one[1])
    positions = options.get("positions", POSITIONS)
    if not _is_topic(positions):
        msg = "no topic can have the name in `positions`"
        raise LandingZoneError(msg, next_step=_HELP)
    found = _from(os.environ if environment is None else environment)
    # A registered URL cannot be changed, so how messages are produced is the environment's last word.
    options = {**found, **options, **{name: found[name] for name in found if name in _PRODUCER}}
    producer = {TRANSACTION_TIMEOUT: str(LONGEST_TRANSACTION), "compression.type": "lz4"}
    producer |= {name: value for name, value in options.items() if name in _PRODUCER}
    tombstones = options.get("tombstones", "false")
    if tombstones not in {"true", "false"}:
        msg = "`tombstones` is neither true nor false"
        raise LandingZoneError(msg, next_step=_HELP)
    for number in (TRANSACTION_TIMEOUT, MESSAGE_BYTES):
        _count(producer, number)
    return Address(
        brokers=brokers,
        topic=topic,
        client={name: value for name, value in options.items() if name not in (*_OWN, *_PRODUCER)},
        producer=producer,
        tombstones=tombstones == "true",
        positions=positions,
        timeout=float(_count(options, "timeout") or PATIENCE),
    )


def _option(place: int, pair: str) -> tuple[str, str]:
    """Read one option; one that is not known is not repeated, as it may be the rest of a password."""
    name, equals, value = pair.partition("=")
    if not equals or not (name in _OWN or _is_passed(name)):
        msg = "the URL has an unknown option"
        step = f"Known are {', '.join(_OWN)}; {', '.join(_PASSED)}…; {', '.join(_PRODUCER)}."
        raise LandingZoneError(msg, found=f"number {place}", next_step=step)
    if _NOT_IN_A_URL.search(name):
        msg = "the option holds a secret that would be written down with the URL"
        raise LandingZoneError(msg, found=name, next_step=f"Give it in {_variable(name)}.")
    if ";" in value:  # an end of a password to whoever hides it
        msg = "the option's value has a semicolon"
        raise LandingZoneError(msg, found=name, next_step=f"Write %3B, or use {_variable(name)}.")
    return name, unquote(value)


def _from(environment: Mapping[str, str]) -> dict[str, str]:
    """Take options from the environment; one that is not known may be a password with a slip in its name."""
    found = {
        name.removeprefix(ENVIRONMENT).lower().replace("_", "."): value
        for name, value in environment.items()
        if name.startswith(ENVIRONMENT)
    }
    for name in found:
        if not _is_passed(name):
            msg = "a variable of the environment is no option of Kafka"
            raise LandingZoneError(msg, found=_variable(name), next_step="Correct its name.")
    return found


def _is_passed(name: str) -> bool:
    return name != _FREE_TEXT and (name.startswith(_PASSED) or name in (*_PASSED_TOO, *_PRODUCER))


def _variable(name: str) -> str:
    return ENVIRONMENT + name.upper().replace(".", "_")


def _is_topic(name: str) -> bool:
    return _TOPIC.fullmatch(name) is not None and name not in {".", ".."}


def _count(values: Mapping[str, str], name: str) -> int | None:
    value = values.get(name)
    if value is None:
        return None
    if not re.fullmatch(r"[1-9][0-9]{0,8}", value):
        msg = f"`{name}` is no number above 0"
        raise LandingZoneError(msg, next_step=_HELP)
    return int(value)
