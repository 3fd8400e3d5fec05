"""PostgreSQL: through psycopg, rows by COPY.

In: a libpq URL. Out: `Postgres`. Whatever the server or the role has as defaults, a window is committed durably, is
never ended by a timeout for statements, and waits a minute at most for somebody else's lock. What the server refuses
is told as an error that names the table, and neither a value nor a password.
"""

from __future__ import annotations

import contextlib
import os
import re
from typing import Any

from mirrorlib.delivery.sinks.jdbc import database
from mirrorlib.delivery.sinks.jdbc.database import OURS, STAGE, DatabaseTable, quote, quoted
from mirrorlib.delivery.sinks.jdbc.kinds import JSON, Types
from mirrorlib.delta.columns import widening
from mirrorlib.errors import (
    LandingZoneError,
    StoreError,
    TableBusyError,
    TableNameError,
    first_line,
    printable,
)
from mirrorlib.extras import needed

with needed("postgres", "psycopg", LandingZoneError):
    import psycopg
    from psycopg import errors
    from psycopg.conninfo import conninfo_to_dict

from collections.abc import Iterator, Mapping, Sequence

from mirrorlib.delivery.sinks.jdbc.stage import StagedWindow
from mirrorlib.names import TableName

_LONGEST_NAME = 63  # bytes; the server would cut the rest off without a word
# What PostgreSQL calls a primary key: its table's name, cut short where it is long, and a number where that is taken.
_PRIMARY = re.compile(r"(.+)_pkey\d*", re.DOTALL)
# Classes of SQLSTATE whose messages speak of names and settings; all others may quote a value.
_SPEAKING = ("08", "0A", "25", "28", "2B", "3D", "3F", "42", "53", "54", "55", "57", "58")
_LOST = ("08", "57")
_BUSY = (errors.LockNotAvailable, errors.DeadlockDetected, errors.SerializationFailure)
_SYSTEM_COLUMNS = {"tableoid", "xmin", "cmin", "xmax", "cmax", "ctid"}
_TYPES = Types(
    plain={
        "boolean": "boolean",
        "smallint": "smallint",
        "int": "integer",
        "bigint": "bigint",
        "float": "real",
        "double": "double precision",
        "string": "text",
        "binary": "bytea",
        "date": "date",
        "timestamp": "timestamp with time zone",
        "timestamp_ntz": "timestamp without time zone",
        JSON: "jsonb",
    },
    decimal="numeric",
)
_CONNECTION = {  # a server that is gone without a word is noticed within a minute or two
    "application_name": "mirrorlib",
    "client_encoding": "utf8",
    "keepalives_idle": "30",
    "keepalives_interval": "10",
    "keepalives_count": "3",
    "tcp_user_timeout": "60000",
}
# Where libpq takes a part of a password for the host or the database.
_SPLIT = re.compile(r"@.*@|//[^@]*/.*@")
_SETTINGS = (
    "SET LOCAL TimeZone = 'UTC'; SET LOCAL DateStyle = 'ISO, YMD'; SET LOCAL synchronous_commit = on;"
    " SET LOCAL lock_timeout = '60s'; SET LOCAL statement_timeout = 0;"
    " SET LOCAL idle_in_transaction_session_timeout = 0; SET LOCAL client_min_messages = error"
)
_ROWS = 10_000  # that are read at a time
_ADVISORY = 7_108_511_230_841_093_632  # any number: whoever makes our own tables at the same time takes the same


class Postgres:
    """A PostgreSQL database."""

    def __init__(self, url: str) -> None:
        """Take a libpq URL; nothing is connected yet.

        Raises:
            LandingZoneError: it is none. What libpq says of it is not told: it may quote a password.

        """
        try:
            parameters = {name: str(value) for name, value in conninfo_to_dict(url).items()}
        except psycopg.ProgrammingError:
            msg = "the address is no PostgreSQL URL, or has an option that libpq does not know"
            step = "Give postgresql://HOST:PORT/DATABASE?user=NAME, special characters as %XX."
            raise LandingZoneError(msg, next_step=step) from None
        if _SPLIT.search(url.partition("?")[0]):
            msg = "the address has a character in its user, password or database that has a meaning there"
            step = "Write @ as %40, / as %2F and : as %3A, or leave the password to PGPASSWORD or .pgpass."
            raise LandingZoneError(msg, next_step=step)
        self._options = {**_CONNECTION, **parameters}
        if "PGCONNECT_TIMEOUT" not in os.environ:
            self._options.setdefault("connect_timeout", "10")
        host = parameters.get("host") or os.environ.get("PGHOST") or "localhost"
        port = parameters.get("port") or os.environ.get("PGPORT") or "5432"
        self._server, self._password = f"{host}:{port}", parameters.get("password", "")

    @contextlib.contextmanager
    def reading(self, table: str) -> Iterator[PostgresSession]:
        """Connect for a transaction that sees one state of all tables, and gives values that can be read back."""
        with self.session(table, ()) as session:
            session.run("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
            session.run(
                f"{_SETTINGS}; SET LOCAL bytea_output = hex; SET LOCAL extra_float_digits = 1"
            )
            yield session

    @contextlib.contextmanager
    def session(self, table: str, keys: Sequence[str]) -> Iterator[PostgresSession]:
        """Connect for one table; what is not committed is undone. Raises `UnfitError` where it cannot hold a value."""
        try:
            connection = psycopg.connect(**self._options, prepare_threshold=None)  # type: ignore[arg-type]  # libpq's own options, as text
            with contextlib.closing(connection):
                connection.isolation_level = psycopg.IsolationLevel.READ_COMMITTED
                connection.read_only = False
                yield PostgresSession(connection)
        except psycopg.Error as exc:
            # What psycopg says may quote a row, so it does not travel along.
            raise self._explained(exc, table, keys) from None

    def _explained(self, exc: psycopg.Error, table: str, keys: Sequence[str]) -> Exception:
        state = exc.sqlstate or ""
        if isinstance(exc, psycopg.IntegrityError):
            return _broken(exc, table, keys)
        if isinstance(exc, _BUSY):
            msg = f"somebody keeps the table, or a row of it, locked on the PostgreSQL server {self._server}"
            return TableBusyError(msg, table=table)
        if isinstance(exc, psycopg.DataError):
            return database.UnfitError(f"SQLSTATE {state}")
        lost = isinstance(exc, (psycopg.OperationalError, psycopg.InterfaceError))
        if lost and (not state or state[:2] in _LOST):
            msg = f"the PostgreSQL server {self._server} cannot be reached, or has ended the connection"
            step = "See that it runs and lets you in, then run again: "
            step += "whether the last window was committed is asked first."
            found = exc.diag.message_primary or first_line(exc)
            found = found.replace(self._password, "***") if self._password else found
        else:
            msg = f"the PostgreSQL server {self._server} refuses"
            step = "Correct that there; the next run goes on from here."
            if state.startswith("54"):
                step = database.TOO_LARGE
            said = exc.diag.message_primary if state[:2] in _SPEAKING else None
            found = said or f"SQLSTATE {state}"
        return StoreError(msg, table=table, found=found, next_step=step)


def _broken(exc: psycopg.IntegrityError, table: str, keys: Sequence[str]) -> Exception:
    """Tell which constraint is broken: the primary key that we have made, or one of somebody else's."""
    diag = exc.diag
    if isinstance(exc, errors.NotNullViolation) and diag.column_name in keys:
        return database.null_key(table, str(diag.column_name))
    if isinstance(exc, errors.UniqueViolation):
        primary = _PRIMARY.fullmatch(diag.constraint_name or "")
        if primary is not None and (diag.table_name or "").startswith(primary[1]):
            return database.duplicate_key(table, keys)
    return database.refused_row(table, diag.constraint_name or diag.column_name)


class PostgresSession:
    """A connection for one table; without `commit`, all that was done since `begin` is undone."""

    mark = "%s"  # stands for a value in a statement
    alike = ""  # behind a comparison of tables' names
    # Of a temporary table's definition: a pool may hand the connection on.
    stage_ends = " ON COMMIT DROP"
    # The columns of one of our own tables.
    names = "SELECT attname FROM pg_attribute WHERE attrelid = to_regclass(%s) AND NOT attisdropped"
    types = _TYPES

    def __init__(self, connection: psycopg.Connection[tuple[Any, ...]]) -> None:
        self._connection = connection

    def place(self, table: TableName) -> DatabaseTable:
        """Put a table into the schema of its name; without one into the first of the search path."""
        schema = table.schema or self.run("SELECT current_schema()")[0][0]
        if schema is None:
            msg = "no schema of the search path is there"
            step = "Make one, or set PGOPTIONS=-csearch_path=NAME."
            raise TableNameError(msg, table=str(table), next_step=step)
        reason = _refused(str(schema)) or _refused(table.table)
        if not reason and (str(schema).startswith("pg_") or schema == "information_schema"):
            reason = "PostgreSQL keeps this schema's name for itself"
        elif not reason and table.table in OURS:
            reason = "the table's name is that of one of our own tables in the database"
        if reason:
            raise TableNameError(reason, table=printable(str(table)))
        return DatabaseTable(str(schema), table.table)

    def check_column(self, name: str) -> str | None:
        """Say why PostgreSQL cannot have a column of this name, or would cut it short; None when it can."""
        if name in _SYSTEM_COLUMNS:
            return "PostgreSQL has a system column of this name"
        return _refused(name)

    def widens(self, narrow: str, wide: str) -> bool:
        """Say whether a column may be changed to another kind: each wider one."""
        return widening(narrow, wide) is not None

    def prepare(self, place: DatabaseTable) -> None:
        """Make our own tables, and the table's schema; one runner at a time, as IF NOT EXISTS waits for nobody."""
        known = self.run("SELECT 1 FROM pg_namespace WHERE nspname = %s", str(place.schema))
        if not (known and database.has_books(self)):
            self.run(_SETTINGS)
            self.run("SELECT pg_advisory_xact_lock(%s)", _ADVISORY)
            database.make_books(self)
            if not known:
                self.run(f"CREATE SCHEMA IF NOT EXISTS {quote(str(place.schema))}")
        self._connection.commit()

    def begin(self, place: DatabaseTable) -> None:
        """Begin a transaction; lock the table's name until it ends, against others who deliver."""
        self.run(_SETTINGS)
        self.run("SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", place.sql)

    def texts(
        self, place: DatabaseTable, columns: Sequence[str]
    ) -> Iterator[tuple[str | None, ...]]:
        """Read rows as text, a few thousand at a time."""
        listed = ", ".join(f"{quote(name)}::text" for name in columns)
        with self._connection.cursor(name="mirrorlib") as cursor:
            cursor.itersize = _ROWS
            yield from cursor.execute(f"SELECT {listed} FROM {place.sql}".encode())  # noqa: S608  # quoted

    def run(self, statement: str, *values: str | int) -> list[tuple[Any, ...]]:
        """Run a statement; without values, a percent sign in it is one."""
        found = self._connection.execute(statement.encode(), values or None)
        return found.fetchall() if found.description else []

    def columns(self, place: DatabaseTable) -> Sequence[tuple[str, str]] | None:
        """Return names and types of what has the name, a view too, in order; None when nothing has."""
        found = self.run(
            "SELECT a.attname, format_type(a.atttypid, a.atttypmod)"
            " FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace"
            " LEFT JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped"
            " WHERE n.nspname = %s AND c.relname = %s ORDER BY a.attnum",
            str(place.schema), place.table,
        )  # fmt: skip
        return [(name, kind) for name, kind in found if name is not None] if found else None

    def fill(self, name: str, kinds: Mapping[str, str], staged: StagedWindow) -> int:
        """COPY the lines as they are into a table, by name for SQL; return how many there were."""
        statement = f"COPY {name} ({quoted(kinds)}) FROM STDIN".encode()
        with self._connection.cursor() as cursor:
            with cursor.copy(statement) as copy:
                for piece in staged.pieces():
                    copy.write(piece)
            rows = cursor.rowcount
        self.run(f"ANALYZE {name}")  # for whoever plans the statements that read it
        return rows

    def widen(self, place: DatabaseTable, wider: Mapping[str, str]) -> None:
        """Give columns wider kinds; the session's zone makes moments of dates in UTC."""
        changes = ", ".join(
            f"ALTER COLUMN {quote(name)} TYPE {_TYPES.of(kind)}" for name, kind in wider.items()
        )
        self.run(f"ALTER TABLE {place.sql} {changes}")

    def take_out(self, place: DatabaseTable, columns: Sequence[str]) -> int:
        """Take out as many of each row as the stage lists as gone; return how many the table had.

        Rows are compared as values of their own: NULL equals NULL then, and the server can hash or sort them.
        Where its owner has divided the table, each part numbers its rows anew.
        """
        row = f"ROW({quoted(columns)})"
        staged = f"ROW({', '.join(f'c{n}' for n in range(len(columns)))})"
        gone = f"SELECT {staged} AS gone, sum(copies) AS times FROM {STAGE} WHERE op < 0 GROUP BY 1"  # noqa: S608  # numbered
        held = f"SELECT tableoid AS oid, ctid AS id, {row} AS held FROM {place.sql}"  # noqa: S608  # quoted
        nth = "row_number() OVER (PARTITION BY gone) AS nth"
        found = f"SELECT oid, id, {nth}, times FROM ({held}) AS h JOIN ({gone}) AS g ON held = gone"  # noqa: S608  # quoted
        chosen = f"SELECT oid, id FROM ({found}) AS f WHERE nth <= times"  # noqa: S608  # quoted
        same = "t.ctid = c.id AND t.tableoid = c.oid"
        statement = f"DELETE FROM {place.sql} AS t USING ({chosen}) AS c WHERE {same}"  # noqa: S608  # quoted
        return self._connection.execute(statement.encode()).rowcount

    def commit(self) -> None:
        """Commit."""
        self._connection.commit()


def _refused(name: str) -> str | None:
    if not name or "\0" in name:
        return "PostgreSQL takes no empty name, and none with a character NUL"
    if len(name.encode(errors="replace")) > _LONGEST_NAME:
        return f"the name is longer than the {_LONGEST_NAME} bytes that PostgreSQL keeps of one"
    return None
