"""Our own two tables in the database: which tables are ours, and how far each stream has come.

In: a session. Out: `Held`, what the database has of a table; and the records as a window's last statements, in
its transaction.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mirrorlib.apply.record import now
from mirrorlib.export.sinks.jdbc.database import POSITIONS, TABLES

if TYPE_CHECKING:
    from mirrorlib.export.record import Plan, Stream
    from mirrorlib.export.sinks.jdbc.database import Place, Session


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """What is known of a table that is ours.

    Attributes:
        source: the table's name in the target.
        consumer: whose it is.
        stream: uuid of the stream that it is given now.
        table_id: the Delta table's id.
        version: the newest Delta version whose changes it has.
        columns: those that the source had then, as the database spells them.
        keys: its key columns, likewise.

    """

    source: str
    consumer: str
    stream: str
    table_id: str
    version: int
    columns: tuple[str, ...]
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


def look(session: Session, place: Place, stream: Stream) -> Held:
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
        "SELECT source_table, consumer, stream, table_id, delta_version, columns, keys"  # noqa: S608  # constants
        f" FROM {TABLES} WHERE name = {session.mark}",
        place.sql,
    )
    if not found or not found[0][2]:  # a row without a stream is there to be locked
        return None
    source, consumer, stream, table_id, version, columns, keys = found[0]
    return Record(
        source=source,
        consumer=consumer,
        stream=stream,
        table_id=table_id,
        version=int(version),
        columns=tuple(json.loads(columns)),
        keys=tuple(json.loads(keys)),
    )


def hold_row(session: Session, place: Place) -> None:
    """See that there is a row to lock: one that says nothing, where the table has none."""
    marks = ", ".join([session.mark] * 9)
    session.run(
        f"INSERT INTO {TABLES} VALUES ({marks}) ON CONFLICT (name) DO NOTHING",  # noqa: S608  # constants
        place.sql, "", "", "", "", 0, "[]", "[]", now(),
    )  # fmt: skip


def write(session: Session, place: Place, record: Record, plan: Plan) -> None:
    """Write down what the table has now, and that the stream has come so far."""
    hold_row(session, place)
    values = (
        record.source,
        record.consumer,
        record.stream,
        record.table_id,
        record.version,
        json.dumps(record.columns),
        json.dumps(record.keys),
    )
    names = ("source_table", "consumer", "stream", "table_id", "delta_version", "columns", "keys")
    told = ", ".join(f"{name} = {session.mark}" for name in (*names, "updated_at"))
    session.run(
        f"UPDATE {TABLES} SET {told} WHERE name = {session.mark}",  # noqa: S608  # constants
        *values, now(), place.sql,
    )  # fmt: skip
    session.run(
        f"DELETE FROM {POSITIONS} WHERE stream = {session.mark}",  # noqa: S608  # constants
        record.stream,
    )
    session.run(
        f"INSERT INTO {POSITIONS} VALUES ({', '.join([session.mark] * 6)})",  # noqa: S608  # constants
        record.stream, record.consumer, record.source, plan.number, plan.until, now(),
    )  # fmt: skip
