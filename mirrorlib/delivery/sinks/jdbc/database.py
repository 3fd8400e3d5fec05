"""What the receiver asks of a database: the values that both talk in, and our own two tables there.

In: a session. Out: `Held`, what the database has of a table; which tables are ours and how far each stream has
come, written as a window's last statements, in its transaction. Errors that every database has are made here.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from mirrorlib.delivery.sink import KEY_OPTIONS
from mirrorlib.errors import SchemaError
from mirrorlib.events import pick
from mirrorlib.journal.entries import now
from mirrorlib.journal.streams import Stream, WindowPlan

if TYPE_CHECKING:
    from mirrorlib.delivery.sinks.jdbc.postgres import PostgresSession
    from mirrorlib.delivery.sinks.jdbc.sqlite import SqliteSession

    Session: TypeAlias = PostgresSession | SqliteSession

_BEGIN_ANEW = "begin anew: mirrorlib consumers TARGET --rewind NAME --to snapshot --table TABLE"
TOO_LARGE = "It is more than the database can hold: export a derived table with fewer columns, or to another receiver."
TABLES, POSITIONS = "_mirrorlib_tables", "_mirrorlib_positions"
STAGE = "_mirrorlib_stage"
OURS = {TABLES, POSITIONS, STAGE}
_AS_JSON = frozenset({"columns", "nested", "physical", "keys"})


class UnfitError(Exception):
    """A value is none that the database can hold; the text is the database's code for it, never the value."""


@dataclass(frozen=True, slots=True)
class DatabaseTable:
    """Where a table lies: its schema, None where databases have none, and its name."""

    schema: str | None
    table: str

    @property
    def sql(self) -> str:
        """Return the name for SQL."""
        return ".".join(quote(part) for part in (self.schema, self.table) if part is not None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """What is known of a table that is ours, as its row in `_mirrorlib_tables`; one by default says nothing yet."""

    source_table: str = ""
    consumer: str = ""
    stream: str = ""  # uuid of the stream that it is given now
    stream_ordinal: int = 0  # the stream's number among the consumer's
    stream_began_at: str = ""
    table_id: str = ""  # Delta's
    delta_version: int = 0  # the newest Delta version whose changes it has
    columns: Sequence[str] = ()  # those that the source had then, as the database spells them
    nested: Mapping[str, str] = field(default_factory=dict)  # what those look like that are nested
    # Which physical column each of the source's names stands for.
    physical: Mapping[str, str] = field(default_factory=dict)
    keys: Sequence[str] = ()  # its key columns, as the database spells them

    def values(self) -> dict[str, str | int]:
        """Return it by the columns of our own table."""
        held = asdict(self).items()
        return {name: json.dumps(one) if name in _AS_JSON else one for name, one in held}


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """What the database has of a table."""

    place: DatabaseTable  # where
    columns: Sequence[tuple[str, str]] | None  # names and types; None when there is no such table
    record: Record | None  # what is known of it; None when it is not ours
    number: int  # the last window of the stream; 0 when the stream is not known
    at: int  # the last version of the last window that was given to the table


def has_books(session: Session) -> bool:
    """Say whether our own two tables are there, which are made in one transaction."""
    return bool(session.run(session.names, POSITIONS))


def make_books(session: Session) -> None:
    """Make our own two tables; in PostgreSQL the first schema of the search path is where they are."""
    text, number, moment = "text NOT NULL", "bigint NOT NULL", "timestamp with time zone NOT NULL"
    known = Record().values().items()
    record = {name: number if isinstance(one, int) else text for name, one in known}
    whose = {"consumer": text, "source_table": text}
    how_far = {"window_number": number, "delta_version": number}
    for table, key, others in ((TABLES, "name", record), (POSITIONS, "stream", whose | how_far)):
        types = {key: "text", **others, "updated_at": moment}
        session.run(create(f"TABLE IF NOT EXISTS {table}", types, [key]))


def read_held(session: Session, place: DatabaseTable, stream: Stream) -> Held:
    """Look what the database has of a table."""
    columns = session.columns(place)
    record = None if columns is None else _read_record(session, place)
    at = 0 if record is None else _last_window(session, record.stream)[1]
    number = position(session, stream)
    return Held(place=place, columns=columns, record=record, number=number, at=at)


def position(session: Session, stream: Stream) -> int:
    """Return a stream's last window; 0 when it is not known."""
    return _last_window(session, stream.uuid)[0]


def _last_window(session: Session, stream: str) -> tuple[int, int]:
    """Return the number of a stream's last window and its last version; zeros when it is not known."""
    found = session.run(
        f"SELECT window_number, delta_version FROM {POSITIONS} WHERE stream = {session.mark}",  # noqa: S608  # constants
        stream,
    )
    return (int(found[0][0]), int(found[0][1])) if found else (0, 0)


def _read_record(session: Session, place: DatabaseTable) -> Record | None:
    names = list(Record().values())
    found = session.run(
        f"SELECT {', '.join(names)} FROM {TABLES} WHERE name = {session.mark}{session.alike} "  # noqa: S608  # constants
        f"ORDER BY name = {session.mark} DESC",  # that of a table which was dropped may stand there too
        place.sql,
        place.sql,
    )
    if not found:
        return None
    values = dict(zip(names, found[0], strict=True))
    return Record(
        **{name: json.loads(one) if name in _AS_JSON else one for name, one in values.items()}
    )


def write_record(session: Session, place: DatabaseTable, record: Record, plan: WindowPlan) -> None:
    """Write down what the table has now, and that the stream has come so far."""
    _write_row(session, TABLES, {"name": place.sql, **record.values(), "updated_at": now()})
    position = {
        **pick(record, "stream", "consumer", "source_table"),
        "window_number": plan.number,
        "delta_version": plan.until,
        "updated_at": now(),
    }
    _write_row(session, POSITIONS, position)


def _write_row(session: Session, table: str, values: Mapping[str, str | int]) -> None:
    """Write a row of one of our own tables in place of one with its key, the first value."""
    key, *others = values
    marks = ", ".join([session.mark] * len(values))
    ends = on_conflict([key], others)
    session.run(
        f"INSERT INTO {table} ({quoted(values)}) VALUES ({marks}){ends}",  # noqa: S608  # quoted
        *values.values(),
    )


def quote(name: str) -> str:
    """Quote a name for a database's SQL; whatever it holds, it stays one identifier."""
    escaped = name.replace('"', '""')
    return f'"{escaped}"'


def quoted(names: Iterable[str]) -> str:
    """Quote names for a list."""
    return ", ".join(map(quote, names))


def on_conflict(keys: Iterable[str], others: Iterable[str]) -> str:
    """Write how an INSERT ends that sets *others* where its keys are there already; nothing where there are none."""
    values = ", ".join(f"{quote(name)} = excluded.{quote(name)}" for name in others)
    return f" ON CONFLICT ({quoted(keys)}) DO {f'UPDATE SET {values}' if values else 'NOTHING'}"


def create(what: str, types: Mapping[str, str], keys: Collection[str] = (), ends: str = "") -> str:
    """Write the statement that makes a table, "TABLE name": types by name, and a primary key, which is never NULL."""
    columns = [f"{quote(n)} {kind}{' NOT NULL' if n in keys else ''}" for n, kind in types.items()]
    primary = [f"PRIMARY KEY ({quoted(keys)})"] if keys else []
    return f"CREATE {what} ({', '.join([*columns, *primary])}){ends}"


def null_key(table: str, key: str) -> SchemaError:
    """Say that a key column is NULL in some row."""
    msg = "a key column is NULL in some row, and a primary key takes no NULL"
    step = f"Correct the rows at the source, or give other keys or none ({KEY_OPTIONS}); then {_BEGIN_ANEW}"
    return SchemaError(msg, table=table, column=key, next_step=step)


def duplicate_key(table: str, keys: Iterable[str]) -> SchemaError:
    """Say that the table has several rows of one key."""
    msg = "several rows of the table have the same key"
    step = "Make them one at the source, see who else writes to the table in the database, or give other keys or none"
    step = f"{step} ({KEY_OPTIONS}); then {_BEGIN_ANEW}"
    return SchemaError(msg, table=table, column=", ".join(keys), next_step=step)


def refused_row(table: str, found: str | None) -> SchemaError:
    """Say that somebody else's constraint refuses a row."""
    msg = "a constraint that the table has in the database refuses a row"
    step = "Take it off there; the next run goes on from here."
    return SchemaError(msg, table=table, found=found, next_step=step)
