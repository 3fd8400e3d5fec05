"""Our own two tables in the database: which tables are ours, and how far each stream has come.

In: a session. Out: `Held`, what the database has of a table; and the records as a window's last statements, in
its transaction.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mirrorlib.delivery.sinks.jdbc.database import POSITIONS, TABLES
from mirrorlib.journal.entries import now

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mirrorlib.delivery.sinks.jdbc.database import Place, Session
    from mirrorlib.journal.streams import Plan, Stream

# What is written down of a table, and what says nothing yet.
_BLANK: dict[str, str | int] = {
    "source_table": "", "consumer": "", "stream": "", "stream_ordinal": 0, "stream_began_at": "",
    "table_id": "", "delta_version": 0, "columns": "[]", "nested": "{}", "physical": "{}",
    "keys": "[]",
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """What is known of a table that is ours.

    Attributes:
        source: the table's name in the target.
        consumer: whose it is.
        stream: uuid of the stream that it is given now.
        ordinal: that stream's number among the consumer's; 0 where an older version has not said it.
        began_at: when that stream began; "" likewise.
        table_id: the Delta table's id.
        version: the newest Delta version whose changes it has.
        columns: those that the source had then, as the database spells them.
        nested: what those of them look like that are nested; older versions have not said it.
        physical: which physical column each of the source's names stands for; older versions have not
            said it.
        keys: its key columns, as the database spells them.

    """

    source: str
    consumer: str
    stream: str
    ordinal: int
    began_at: str
    table_id: str
    version: int
    columns: tuple[str, ...]
    nested: Mapping[str, str]
    physical: Mapping[str, str]
    keys: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """What the database has of a table.

    Attributes:
        place: where.
        columns: names and types; None when there is no such table.
        record: what is known of it; None when it is not ours.
        number: the last window of the stream; 0 when the stream is not known.

    """

    place: Place
    columns: tuple[tuple[str, str], ...] | None
    record: Record | None
    number: int


def read_held(session: Session, place: Place, stream: Stream) -> Held:
    """Look what the database has of a table."""
    columns = session.columns(place)
    return Held(
        place=place,
        columns=columns,
        record=None if columns is None else _record(session, place),
        number=position(session, stream),
    )


def position(session: Session, stream: Stream) -> int:
    """Return a stream's last window; 0 when it is not known."""
    found = session.run(
        f"SELECT window_number FROM {POSITIONS} WHERE stream = {session.mark}",  # noqa: S608  # constants
        stream.uuid,
    )
    return int(found[0][0]) if found else 0


def _record(session: Session, place: Place) -> Record | None:
    found = session.run(
        f"SELECT {', '.join(_BLANK)} FROM {TABLES} WHERE name = {session.mark}",  # noqa: S608  # constants
        place.sql,
    )
    values = dict(zip(_BLANK, found[0], strict=True)) if found else {}
    if not values.get("stream"):  # a row without a stream is there to be locked
        return None
    return Record(
        source=values["source_table"],
        consumer=values["consumer"],
        stream=values["stream"],
        ordinal=int(values["stream_ordinal"]),
        began_at=values["stream_began_at"],
        table_id=values["table_id"],
        version=int(values["delta_version"]),
        columns=tuple(json.loads(values["columns"])),
        nested=json.loads(values["nested"]),
        physical=json.loads(values["physical"]),
        keys=tuple(json.loads(values["keys"])),
    )


def hold_row(session: Session, place: Place) -> None:
    """See that there is a row to lock: one that says nothing, where the table has none."""
    names = ", ".join(("name", *_BLANK, "updated_at"))
    marks = ", ".join([session.mark] * (len(_BLANK) + 2))
    session.run(
        f"INSERT INTO {TABLES} ({names}) VALUES ({marks}) ON CONFLICT (name) DO NOTHING",  # noqa: S608  # constants
        place.sql, *_BLANK.values(), now(),
    )  # fmt: skip


def write(session: Session, place: Place, record: Record, plan: Plan) -> None:
    """Write down what the table has now, and that the stream has come so far."""
    hold_row(session, place)
    values: dict[str, str | int] = {
        "source_table": record.source,
        "consumer": record.consumer,
        "stream": record.stream,
        "stream_ordinal": record.ordinal,
        "stream_began_at": record.began_at,
        "table_id": record.table_id,
        "delta_version": record.version,
        "columns": json.dumps(record.columns),
        "nested": json.dumps(record.nested),
        "physical": json.dumps(record.physical),
        "keys": json.dumps(record.keys),
    }
    assignments = ", ".join(f"{name} = {session.mark}" for name in (*values, "updated_at"))
    session.run(
        f"UPDATE {TABLES} SET {assignments} WHERE name = {session.mark}",  # noqa: S608  # constants
        *values.values(), now(), place.sql,
    )  # fmt: skip
    session.run(
        f"DELETE FROM {POSITIONS} WHERE stream = {session.mark}",  # noqa: S608  # constants
        record.stream,
    )
    session.run(
        f"INSERT INTO {POSITIONS} VALUES ({', '.join([session.mark] * 6)})",  # noqa: S608  # constants
        record.stream, record.consumer, record.source, plan.number, plan.until, now(),
    )  # fmt: skip
