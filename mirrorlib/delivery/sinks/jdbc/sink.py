"""Receive windows in a database: look, stage, then one transaction of statements that both databases understand.

In: deliveries. Out: `DatabaseSink`. Delivery: exactly once. All that Spark does comes before the transaction; what
the database had when the window was settled is looked at again under the lock that the transaction holds. Nothing is
visible before it commits.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, TypeAlias

from mirrorlib.delivery.sink import Delivery
from mirrorlib.delivery.sinks.jdbc import database
from mirrorlib.delivery.sinks.jdbc.database import STAGE, create, quote, quoted
from mirrorlib.delivery.sinks.jdbc.layout import TableLayout, read_columns, settle
from mirrorlib.delivery.sinks.jdbc.stage import NEW, PASSED, StagedWindow, find_unfit, stage_lines
from mirrorlib.errors import JournalError, LandingZoneError, SchemaError, TableBusyError
from mirrorlib.feed.net import VERSION
from mirrorlib.journal.streams import Stream, begin_anew
from mirrorlib.names import parse_name

if TYPE_CHECKING:
    from mirrorlib.delivery.sinks.jdbc.database import Session
    from mirrorlib.delivery.sinks.jdbc.postgres import Postgres
    from mirrorlib.delivery.sinks.jdbc.sqlite import Sqlite

    Database: TypeAlias = Postgres | Sqlite


def open_sink(address: str, _mode: str) -> DatabaseSink:
    """Open a receiver, see `open_database`; there is one mode."""
    return DatabaseSink(open_database(address))


def open_database(address: str) -> Database:
    """Open a database: `postgresql://…` or `sqlite:PATH`."""
    kind, _, rest = address.partition(":")
    if kind in {"postgresql", "postgres"}:
        from mirrorlib.delivery.sinks.jdbc.postgres import Postgres

        return Postgres(address)
    if kind == "sqlite":
        from mirrorlib.delivery.sinks.jdbc.sqlite import Sqlite

        return Sqlite(rest)
    msg = "no such database is known"
    step = "Give jdbc:postgresql://HOST:PORT/DATABASE?user=… or jdbc:sqlite:PATH."
    raise LandingZoneError(msg, found=f"jdbc:{kind}"[:80], next_step=step)


class DatabaseSink:
    """Copies of tables in a database, each as of the end of the last window that it was given."""

    pairs = False  # an update is a row that goes and one that comes

    def __init__(self, database: Database) -> None:
        self._database = database

    def position(self, stream: Stream) -> int:
        """Return the number of the last window that was committed; 0 when the stream is not known."""
        with self._database.session(stream.table, ()) as session:
            return database.position(session, stream) if database.has_books(session) else 0

    def deliver(self, delivery: Delivery) -> int | None:
        """Apply a window and advance the position, in one transaction; return how many rows were sent, or None."""
        shape = self._settle(delivery)
        frame, table = delivery.frame, delivery.stream.table
        if shape.after is not None:
            frame = frame.where(f"{VERSION} > {shape.after}")
        staged = stage_lines(delivery, frame, shape)
        try:
            self._apply(delivery, shape, staged)
        except database.UnfitError as exc:
            msg = "the database cannot hold a value of the column"
            step = "Correct the rows: text has to be UTF-8, for PostgreSQL without NUL and in its encoding, and years"
            # The window is repeated as it was planned.
            step = f"{step} from 1 to 9999. {begin_anew(delivery.stream)}"
            name, said = find_unfit(frame, shape), str(exc)
            raise SchemaError(msg, table=table, column=name, found=said, next_step=step) from exc
        return staged.rows or None

    def _settle(self, delivery: Delivery) -> TableLayout:
        stream, plan = delivery.stream, delivery.plan
        columns = read_columns(delivery)
        with self._database.session(stream.table, plan.keys) as session:
            place = session.place(parse_name(stream.table))
            session.prepare(place)
            held = database.read_held(session, place, stream)
            if held.number >= plan.number:
                raise _overtaken(stream)
            return settle(session, held, columns, delivery)

    def _apply(self, delivery: Delivery, shape: TableLayout, staged: StagedWindow) -> None:
        stream, plan, place = delivery.stream, delivery.plan, shape.held.place
        with self._database.session(stream.table, shape.record.keys) as session:
            session.begin(place)
            if database.read_held(session, place, stream) != shape.held:
                raise _overtaken(stream)
            if plan.kind == "snapshot":
                _replace_rows(session, shape, staged, stream.table)
            else:
                _change_rows(session, shape, staged, stream)
            database.write_record(session, place, shape.record, plan)
            session.commit()


def _overtaken(stream: Stream) -> TableBusyError:
    msg = "somebody else has changed the table in the database while its window was under way"
    return TableBusyError(msg, table=stream.table)


def _replace_rows(session: Session, shape: TableLayout, staged: StagedWindow, table: str) -> None:
    """Let the staged rows take the place of all others. DELETE, as TRUNCATE shows older readers an empty table."""
    held = shape.held
    _grow(session, shape)  # first: rows that went with a deferred foreign key on them forbid it
    if held.columns is not None:
        session.run(f"DELETE FROM {held.place.sql}")  # noqa: S608  # quoted
    staged.check(session.fill(held.place.sql, shape.kinds, staged), table)


def _change_rows(
    session: Session, shape: TableLayout, staged: StagedWindow, stream: Stream
) -> None:
    """Apply staged changes. The stage's columns are numbered, so that they clash with nothing."""
    table = stream.table
    place, staged_names = shape.held.place, [f"c{n}" for n in range(len(shape.columns))]
    kinds = {"op": "smallint", "copies": "bigint"}
    kinds |= dict(zip(staged_names, shape.kinds.values(), strict=True))
    types = {name: session.types.of(kind) for name, kind in kinds.items()}
    session.run(create(f"TEMPORARY TABLE {STAGE}", types, ends=session.stage_ends))
    staged.check(session.fill(STAGE, kinds, staged), table)
    _grow(session, shape)
    ends = ""
    if shape.record.keys:
        keys = {c.name: f"c{n}" for n, c in enumerate(shape.columns) if c.key}
        _check_keys(session, shape, keys, table)
        away = f"SELECT {', '.join(keys.values())} FROM {STAGE} WHERE op < 0"  # noqa: S608  # numbered
        session.run(f"DELETE FROM {place.sql} WHERE ({quoted(keys)}) IN ({away})")  # noqa: S608  # quoted
        ends = database.on_conflict(keys, [name for name in shape.kinds if name not in keys])
    else:
        taken = session.take_out(place, list(shape.kinds))
        gone = session.run(f"SELECT sum(copies) FROM {STAGE} WHERE op < 0")[0][0] or 0  # noqa: S608  # constants
        if shape.exact and taken != gone:
            msg = "the table in the database does not hold all rows that the source has deleted"
            step = f"See who else writes to it. {begin_anew(stream)}"
            raise JournalError(msg, table=table, found=f"{taken} of {gone}", next_step=step)
    session.run(
        f"INSERT INTO {place.sql} ({quoted(shape.kinds)})"  # noqa: S608  # quoted
        f" SELECT {', '.join(staged_names)} FROM {STAGE} WHERE op > 0{ends}"
    )


def _check_keys(session: Session, shape: TableLayout, keys: Mapping[str, str], table: str) -> None:
    """See that no key is NULL or occurs twice, in the window or, as far as that can be told, in the table."""
    nulls = ", ".join(f"count(*) - count({name})" for name in keys.values())
    found = session.run(f"SELECT max(copies), {nulls} FROM {STAGE}")[0]  # noqa: S608  # numbered
    for name, count in zip(keys, found[1:], strict=True):
        if count:
            raise database.null_key(table, name)
    twice = (found[0] or 0) > 1
    if shape.strict and not twice:  # then no row may be there already that the window has brought
        same = " AND ".join(f"held.{quote(name)} = stage.{column}" for name, column in keys.items())
        there = session.run(
            f"SELECT 1 FROM {STAGE} AS stage JOIN {shape.held.place.sql} AS held ON {same}"  # noqa: S608  # quoted
            f" WHERE stage.op IN ({NEW}, {PASSED}) LIMIT 1"
        )
        twice = bool(there)
    if twice:
        raise database.duplicate_key(table, keys)


def _grow(session: Session, shape: TableLayout) -> None:
    place, kinds = shape.held.place, shape.kinds
    types = {name: session.types.of(kind) for name, kind in kinds.items()}
    if shape.held.columns is None:
        session.run(create(f"TABLE {place.sql}", types, shape.record.keys))
        return
    there = dict(shape.held.columns)
    for name in [name for name in types if name not in there]:
        session.run(f"ALTER TABLE {place.sql} ADD COLUMN {quote(name)} {types[name]}")
    wider = {name: kinds[name] for name in types if there.get(name, types[name]) != types[name]}
    if wider:
        session.widen(place, wider)
    for column in shape.clear:
        session.run(f"UPDATE {place.sql} SET {quote(column.name)} = NULL")  # noqa: S608  # quoted
