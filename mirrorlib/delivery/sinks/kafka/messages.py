"""Turn a window's rows, in order, into messages: what was before, what is after, what was done.

In: rows of JSON, by commit, key and kind. Out: `Message`s, lazily: a handful of rows is held at a time.
Promise: the images of an update are one message where a key tells that they belong together, and so are
a delete and an insert of one key in one commit; whoever keeps the last state of each key is right.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime
from itertools import chain, groupby, islice
from typing import TYPE_CHECKING, Literal

from mirrorlib.delivery.sinks.kafka.rows import KEY, MOMENT, ORDER, PLACE, ROW
from mirrorlib.feed.net import POST, VERSION
from mirrorlib.names import parse_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pyspark.sql import Row

    from mirrorlib.delivery.sink import Delivery

Op = Literal["c", "u", "d", "r", "t"]
_ANY = -1  # the partition that the key tells
_HELD = 10_000  # rows of one key that one commit has taken away


@dataclass(frozen=True, slots=True)
class Message:
    """A message to be sent.

    Attributes:
        key: JSON; None where the table has no keys.
        value: JSON; None in a tombstone.
        rows: how many rows of the window it tells.
        partition: to which it goes, -1 where that is the key's to say.

    """

    key: bytes | None
    value: bytes | None
    rows: int
    partition: int = _ANY


@dataclass(frozen=True, slots=True)
class _Change:
    op: Op
    before: str | None
    after: str | None
    row: Row  # one of its rows: key, version and moment


def resets(delivery: Delivery, *, begun: bool) -> bool:
    """Tell whether a window voids what its receiver has of the table.

    So does the first snapshot of a stream where an earlier one of the consumer has *begun*: what was deleted
    since is not in it.
    """
    plan = delivery.plan
    return plan.kind == "snapshot" and (begun or plan.reset or delivery.stream.ordinal > 1)


def reset_messages(delivery: Delivery, partitions: int, now_ms: int) -> Iterator[Message]:
    """Tell every partition's reader that what it has of the table is void.

    The key makes it last in a compacted topic, which takes no message without one.
    """
    plan, teller = delivery.plan, _Teller(delivery, now_ms)
    moment = round(datetime.fromisoformat(plan.until_at).timestamp() * 1000)
    key = _json({"mirrorlib_reset": delivery.stream.table}).encode()
    value = teller.value("t", None, None, plan.until, moment)
    for partition in range(partitions):
        yield Message(key, value, 0, partition)


def row_messages(
    delivery: Delivery, rows: Iterable[Row], now_ms: int, *, tombstones: bool
) -> Iterator[Message]:
    """Tell every change."""
    teller = _Teller(delivery, now_ms)
    for change in _changes(delivery, rows):
        row = change.row
        key = None if row[KEY] is None else row[KEY].encode()
        value = teller.value(change.op, change.before, change.after, row[VERSION], row[MOMENT])
        yield Message(key, value, 2 if change.op == "u" else 1)
        if tombstones and change.op == "d" and key is not None:
            yield Message(key, None, 0)


def _changes(delivery: Delivery, rows: Iterable[Row]) -> Iterator[_Change]:
    if delivery.plan.kind == "snapshot":
        return (_Change("r", None, row[ROW], row) for row in rows)
    if not delivery.plan.keys:
        return (_alone(row) for row in rows)
    groups = groupby(rows, key=lambda row: (row[VERSION], row[KEY]))
    return chain.from_iterable(_paired(group) for _, group in groups)


def _alone(row: Row) -> _Change:
    if _is_added(row):
        return _Change("c", None, row[ROW], row)
    return _Change("d", row[ROW], None, row)


def _paired(group: Iterator[Row]) -> Iterator[_Change]:
    """Pair what one commit took away of a key with what it added.

    What has no other half comes first or last: the key's last message is its state.
    """
    taken: list[Row] = []
    added: list[Row] = []
    for row in group:
        if _is_added(row):
            added = [row, *islice(group, max(len(taken) - 1, 0))]
            break
        if len(taken) < _HELD:
            taken.append(row)
        else:  # no key has as many rows; told apart they are as right
            yield _alone(row)
    yield from map(_alone, taken[len(added) :])
    for before, after in zip(taken, added, strict=False):
        yield _Change("u", before[ROW], after[ROW], after)
    yield from map(_alone, added[len(taken) :])
    yield from map(_alone, group)


def _is_added(row: Row) -> bool:
    return bool(row[PLACE] >= ORDER[POST])


class _Teller:
    """Writes values: what a commit's messages have in common is written once."""

    def __init__(self, delivery: Delivery, now_ms: int) -> None:
        stream = delivery.stream
        name = parse_name(stream.table)
        self._common = {
            "connector": "mirrorlib",
            "name": stream.consumer,
            "snapshot": "true" if delivery.plan.kind == "snapshot" else "false",
            "schema": name.schema,
            "table": name.table,
        }
        self._now = now_ms
        self._commit: tuple[int, int] | None = None
        self._source = ""

    def value(self, op: Op, before: str | None, after: str | None, version: int, ms: int) -> bytes:
        """Write one."""
        if self._commit != (version, ms):
            self._commit = version, ms
            self._source = _json({"version": version, "ts_ms": ms, **self._common})
        return (
            f'{{"before":{before or "null"},"after":{after or "null"},"source":{self._source},'
            f'"op":"{op}","ts_ms":{self._now}}}'
        ).encode()


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
