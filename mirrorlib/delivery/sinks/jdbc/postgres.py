"""PostgreSQL: through psycopg, rows by COPY.

In: a libpq URL. Out: `Postgres`. Whatever the server or the role has as defaults, a window is committed durably, is
never ended by a timeout for statements, and waits a minute at most for somebody else's lock.
"""

from __future__ import annotations

import contextlib
import os
import re
from typing import TYPE_CHECKING, Any

from mirrorlib.delivery.sinks.jdbc.books import hold_row
from mirrorlib.delivery.sinks.jdbc.database import (
    LATER_COLUMNS,
    MAKE_POSITIONS,
    MAKE_TABLES,
    POSITIONS,
    STAGE,
    TABLES,
    Place,
    quote,
    quoted,
)
from mirrorlib.delivery.sinks.jdbc.kinds import JSON, Types
from mirrorlib.delivery.sinks.jdbc.refusals import Refusals
from mirrorlib.errors import LandingZoneError, TableNameError, printable
from mirrorlib.names import TableName

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import psycopg

    from mirrorlib.delivery.sinks.jdbc.database import Field
    from mirrorlib.delivery.sinks.jdbc.stage import Staged

_LONGEST_NAME = 63  # bytes; the server would cut the rest off without a word
_OURS = {TABLES, POSITIONS, STAGE}
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
_ADVISORY = 7_108_511_230_841_093_632  # any number: whoever makes our own tables at the same time takes the same


class Postgres:
    """A PostgreSQL database."""

    def __init__(self, url: str) -> None:
        """Take a libpq URL; nothing is connected yet.

        Raises:
            LandingZoneError: it is none. What libpq says of it is not told: it may quote a password.

        """
        import psycopg  # an extra
        from psycopg.conninfo import conninfo_to_dict

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
        self._refusals = Refusals(f"{host}:{port}", parameters.get("password", ""))

    @contextlib.contextmanager
    def session(self, table: str, keys: Sequence[str]) -> Iterator[PostgresSession]:
        """Connect. What is not committed when the block ends is undone by the server."""
        import psycopg  # an extra

        with self._refusals.translated(table, keys), contextlib.ExitStack() as stack:
            connection = psycopg.connect(**self._options, prepare_threshold=None)  # type: ignore[arg-type]  # libpq's own options, as text
            stack.callback(connection.close)
            connection.isolation_level = psycopg.IsolationLevel.READ_COMMITTED
            connection.read_only = False
            yield PostgresSession(connection)


class PostgresSession:
    """A connection to PostgreSQL."""

    mark = "%s"
    stage_ends = " ON COMMIT DROP"  # a pool may hand the connection on
    types = _TYPES

    def __init__(self, connection: psycopg.Connection[tuple[Any, ...]]) -> None:
        self._connection = connection

    def place(self, table: TableName) -> Place:
        """Put a table into the schema of its name; without one into the first of the search path."""
        schema = table.schema or self.run("SELECT current_schema()")[0][0]
        if schema is None:
            msg = "no schema of the search path is there"
            step = "Name one: &options=-csearch_path%3DNAME"
            raise TableNameError(msg, table=str(table), next_step=step)
        reasons = [_refused(part) for part in (str(schema), table.table)]
        if str(schema).startswith("pg_") or schema == "information_schema":
            reasons.append("PostgreSQL keeps this schema's name for itself")
        if table.table in _OURS:
            reasons.append("the table's name is that of one of our own tables in the database")
        reason = next(filter(None, reasons), None)
        if reason:
            step = "Rename it at the source."
            raise TableNameError(reason, table=printable(str(table)), next_step=step)
        return Place(str(schema), table.table)

    def check_column(self, name: str) -> str | None:
        """Refuse what PostgreSQL cannot have or would cut short."""
        if name in _SYSTEM_COLUMNS:
            return "PostgreSQL has a system column of this name"
        return _refused(name)

    def has_books(self) -> bool:
        """Look for them on the search path."""
        names = [(name,) for name in (TABLES, POSITIONS)]
        return all(self.run("SELECT to_regclass(%s)", *name)[0][0] is not None for name in names)

    def prepare(self, place: Place) -> None:
        """Make what is missing; one runner at a time, as IF NOT EXISTS does not wait for another's."""
        known = self.run("SELECT 1 FROM pg_namespace WHERE nspname = %s", str(place.schema))
        if not (known and self.has_books()) or self._lacking():
            self.run(_SETTINGS)
            self.run("SELECT pg_advisory_xact_lock(%s)", _ADVISORY)
            for statement in (MAKE_TABLES, MAKE_POSITIONS):
                self.run(statement)
            for name in self._lacking():
                self.run(f"ALTER TABLE {TABLES} ADD COLUMN {name} {LATER_COLUMNS[name]}")
            if not known:
                self.run(f"CREATE SCHEMA IF NOT EXISTS {quote(str(place.schema))}")
        self._connection.commit()

    def _lacking(self) -> list[str]:
        """Name what an older version has not made."""
        attributes = "FROM pg_attribute WHERE attrelid = to_regclass(%s) AND NOT attisdropped"
        taken = {name for (name,) in self.run(f"SELECT attname {attributes}", TABLES)}  # a constant
        return [name for name in LATER_COLUMNS if name not in taken]

    def begin(self, place: Place) -> None:
        """Lock the table's row among our own."""
        self.run(_SETTINGS)
        hold_row(self, place)
        self.run(f"SELECT 1 FROM {TABLES} WHERE name = %s FOR UPDATE", place.sql)  # noqa: S608  # a constant

    def run(self, statement: str, *values: str | int) -> list[tuple[Any, ...]]:
        """Run a statement; without values, a percent sign in it is one."""
        found = self._connection.execute(statement.encode(), values or None)
        return found.fetchall() if found.description else []

    def columns(self, place: Place) -> tuple[tuple[str, str], ...] | None:
        """Ask the catalog; anything that has the name counts, a view too."""
        found = self.run(
            "SELECT a.attname, format_type(a.atttypid, a.atttypmod)"
            " FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace"
            " LEFT JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped"
            " WHERE n.nspname = %s AND c.relname = %s ORDER BY a.attnum",
            str(place.schema),
            place.table,
        )
        return tuple((name, kind) for name, kind in found if name is not None) if found else None

    def fill(self, name: str, fields: Sequence[Field], staged: Staged) -> int:
        """COPY the lines as they are, then let the planner know how many they were."""
        columns = quoted([field.name for field in fields])
        statement = f"COPY {name} ({columns}) FROM STDIN".encode()
        with self._connection.cursor() as cursor:
            with cursor.copy(statement) as copy:
                for piece in staged.pieces():
                    copy.write(piece)
            rows = cursor.rowcount
        self.run(f"ANALYZE {name}")
        return rows

    def widen(self, place: Place, wider: Sequence[Field]) -> None:
        """Change the types; the session's zone makes moments of dates in UTC."""
        changes = ", ".join(
            f"ALTER COLUMN {quote(field.name)} TYPE {_TYPES.of(field.kind)}" for field in wider
        )
        self.run(f"ALTER TABLE {place.sql} {changes}")

    def take_out(self, place: Place, fields: Sequence[Field]) -> int:
        """Compare rows as values of their own: NULL equals NULL then, and the server can hash or sort them."""
        row = f"ROW({quoted([field.name for field in fields])})"
        staged = f"ROW({', '.join(f'c{n}' for n in range(len(fields)))})"
        gone = f"SELECT {staged} AS gone, sum(copies) AS times FROM {STAGE} WHERE op < 0 GROUP BY 1"  # noqa: S608  # numbered
        held = f"SELECT ctid AS id, {row} AS held FROM {place.sql}"  # noqa: S608  # quoted
        nth = "row_number() OVER (PARTITION BY gone) AS nth"
        found = f"SELECT id, {nth}, times FROM ({held}) AS h JOIN ({gone}) AS g ON held = gone"  # noqa: S608  # quoted
        chosen = f"SELECT id FROM ({found}) AS f WHERE nth <= times"  # noqa: S608  # quoted
        statement = f"DELETE FROM {place.sql} WHERE ctid IN ({chosen})"  # noqa: S608  # quoted
        return self._connection.execute(statement.encode()).rowcount

    def commit(self) -> None:
        """Commit."""
        self._connection.commit()


def _refused(name: str) -> str | None:
    """Say why PostgreSQL cannot have a name."""
    if not name or "\0" in name:
        return "PostgreSQL takes no empty name, and none with a character NUL"
    if len(name.encode(errors="replace")) > _LONGEST_NAME:
        return f"the name is longer than the {_LONGEST_NAME} bytes that PostgreSQL keeps of one"
    return None
