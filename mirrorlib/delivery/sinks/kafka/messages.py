"""Turn a window's rows, in order, into messages: what was before, what is after, what was done.

In: a delivery's frame. Out: rows of JSON, written on Spark's side, by commit, key and kind; of them `Message`s, lazily:
a handful of rows is held at a time. Promise: the images of an update are one message where a key tells that they belong
together, and so are a delete and an insert of one key in one commit; whoever keeps the last state of each key is right.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import chain, groupby, islice
from typing import Literal, TypeAlias

from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as f
from pyspark.sql import types as t

from mirrorlib.delivery.sink import Delivery
from mirrorlib.feed.exact_text import check_types, json_of, json_value
from mirrorlib.feed.net import ORDER, POST, TIME, VERSION, columns_of, place_of_kind
from mirrorlib.names import parse_name

Op = Literal["c", "u", "d", "r", "t"]
_Change: TypeAlias = tuple[Op, str | None, str | None, Row]
_Teller: TypeAlias = Callable[[Op, str | None, str | None, int, int], bytes]
_HELD = 10_000  # rows of one key that one commit has taken away
_KEY, _ROW, _PLACE, _MOMENT = "_mirror_key", "_mirror_row", "_mirror_place", "_mirror_moment"


@dataclass(frozen=True, slots=True)
class Message:
    """A message to be sent."""

    key: bytes | None  # JSON; None where the table has no keys
    value: bytes | None  # JSON; None in a tombstone
    rows: int  # how many rows of the window it tells
    partition: int = -1  # to which it goes; -1 is the one that the key tells


def window_messages(delivery: Delivery, resets: int, *, tombstones: bool) -> Iterator[Message]:
    """Tell every change of a window; before them, in each of *resets* partitions, that what was told before is void.

    The key makes that last in a compacted topic, which takes no message without one.
    """
    plan, table = delivery.plan, delivery.stream.table
    frame = rows_as_json(delivery.frame, delivery.keys, table, ordered=plan.kind == "changes")
    rows, value_of = frame.toLocalIterator(), _teller(delivery, round(time.time() * 1000))
    moment = round(datetime.fromisoformat(plan.until_at).timestamp() * 1000)
    reset = _json({"mirrorlib_reset": table}).encode()
    for partition in range(resets):
        yield Message(reset, value_of("t", None, None, plan.until, moment), 0, partition)
    for op, before, after, row in _changes(delivery, rows):
        key = None if row[_KEY] is None else row[_KEY].encode()
        value = value_of(op, before, after, row[VERSION], row[_MOMENT])
        yield Message(key, value, 2 if op == "u" else 1)
        if tombstones and op == "d" and key is not None:
            yield Message(key, None, 0)


def _changes(delivery: Delivery, rows: Iterable[Row]) -> Iterator[_Change]:
    if delivery.plan.kind == "snapshot":
        return (("r", None, row[_ROW], row) for row in rows)
    if not delivery.plan.keys:
        return (_alone(row) for row in rows)
    groups = groupby(rows, key=lambda row: (row[VERSION], row[_KEY]))
    return chain.from_iterable(_paired(group) for _, group in groups)


def _alone(row: Row) -> _Change:
    if row[_PLACE] >= ORDER[POST]:
        return "c", None, row[_ROW], row
    return "d", row[_ROW], None, row


def _paired(group: Iterator[Row]) -> Iterator[_Change]:
    """Pair what one commit took away of a key with what it added; the key's last message is its state."""
    taken: list[Row] = []
    added: list[Row] = []
    for row in group:
        if row[_PLACE] >= ORDER[POST]:
            added = [row, *islice(group, max(len(taken) - 1, 0))]
            break
        if len(taken) < _HELD:
            taken.append(row)
        else:  # no key has as many rows; told apart they are as right
            yield _alone(row)
    yield from map(_alone, taken[len(added) :])
    for before, after in zip(taken, added, strict=False):
        yield "u", before[_ROW], after[_ROW], after
    yield from map(_alone, added[len(taken) :])
    yield from map(_alone, group)


def _teller(delivery: Delivery, now_ms: int) -> _Teller:
    """Return what writes a message's value: what a window's messages have in common is written once."""
    stream, name = delivery.stream, parse_name(delivery.stream.table)
    common = {
        "connector": "mirrorlib",
        "name": stream.consumer,
        "snapshot": "true" if delivery.plan.kind == "snapshot" else "false",
        "schema": name.schema,
        "table": name.table,
    }

    rest = _json(common)[1:]

    def value(op: Op, before: str | None, after: str | None, version: int, ms: int) -> bytes:
        return (
            f'{{"before":{before or "null"},"after":{after or "null"},'
            f'"source":{{"version":{version},"ts_ms":{ms},{rest},"op":"{op}","ts_ms":{now_ms}}}'
        ).encode()

    return value


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def rows_as_json(frame: DataFrame, keys: Sequence[str], table: str, *, ordered: bool) -> DataFrame:
    """Return key and row as JSON, the kind's place in their order, version and moment (milliseconds).

    Without *keys* the key is NULL; *ordered* is by commit, key and kind, which the rows of a snapshot do not need.
    """
    check_types(frame, table, "Kafka")
    key = json_of(frame, keys, _key) if keys else f.lit(None).cast("string")
    records = frame.select(
        key.alias(_KEY),
        json_of(frame, columns_of(frame)).alias(_ROW),
        place_of_kind().alias(_PLACE),
        f.col(VERSION),
        f.unix_millis(f.col(TIME)).alias(_MOMENT),
    )
    return records.orderBy(VERSION, _KEY, _PLACE) if ordered else records


def _key(column: Column, kind: t.DataType) -> Column:
    """Tell a key's value: 0.0 and -0.0 are one key, so they are one text."""
    if isinstance(kind, t.FloatType | t.DoubleType):
        zero = f.lit(0.0).cast(kind)
        return f.when(column == zero, zero).otherwise(column)
    return json_value(column, kind)
