"""SQLite: a file, through Python's own sqlite3.

In: a path. Out: `Sqlite`. SQLite has nothing that holds a decimal, a day or a moment, so these are text: decimals to
their last digit, the others so that they sort, moments in UTC. NaN, which it would make NULL, is text too; of -0.0 it
keeps no sign. One transaction at a time writes, and readers wait for the end of a large one, unless the file's journal
is in the mode WAL.
"""

from __future__ import annotations

import contextlib
import math
import re
import sqlite3
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from mirrorlib.delivery.sinks.jdbc import database
from mirrorlib.delivery.sinks.jdbc.database import OURS, STAGE, DatabaseTable, quote, quoted
from mirrorlib.delivery.sinks.jdbc.kinds import JSON, Types
from mirrorlib.delivery.sinks.jdbc.stage import StagedWindow
from mirrorlib.delta.columns import widening
from mirrorlib.errors import (
    LandingZoneError,
    SchemaError,
    StoreError,
    TableBusyError,
    TableNameError,
    printable,
)
from mirrorlib.names import TableName

_PATIENCE = 60.0  # seconds until another program that writes is told
_ROW_IDS = ("rowid", "_rowid_", "oid")  # a column may have one of these names, and hides it
# TEXT, INT, FLOA and DOUB in a name are what SQLite goes by. Never "INTEGER": such a key takes NULL for a number
# to be chosen. TEXT comes first, as Python's own converters of declared types go by the first word.
_TYPES = Types(
    plain={
        "boolean": "BOOLEAN",
        "smallint": "SMALLINT",
        "int": "INT",
        "bigint": "BIGINT",
        "float": "FLOAT",
        "double": "DOUBLE",
        "string": "TEXT",
        "binary": "BLOB",
        "date": "TEXT DATE",
        "timestamp": "TEXT TIMESTAMP",
        "timestamp_ntz": "TEXT TIMESTAMP_NTZ",
        JSON: "TEXT JSON",
    },
    decimal="TEXT DECIMAL",
)
_ESCAPE = re.compile(r"\\(.)")
_PLAIN = {"t": "\t", "n": "\n", "r": "\r", "\\": "\\"}


class Sqlite:
    """A SQLite file."""

    def __init__(self, path: str) -> None:
        """Take a path, or what follows `sqlite:` in a URL such as `sqlite:///folder/file.db`."""
        self._path = path.removeprefix("//")
        if not self._path or self._path == ":memory:" or "\0" in self._path:
            msg = "a SQLite database is a file here"
            raise LandingZoneError(msg, next_step="Give jdbc:sqlite:PATH.")
        self._writing = threading.Lock()  # threads wait for each other without a limit

    @contextlib.contextmanager
    def reading(self, table: str) -> Iterator[SqliteSession]:
        """Open the file, which has to be there, for a transaction that sees one state of it, and writes nothing."""
        with self.session(table, (), mode="ro") as session:
            session.run("BEGIN")
            yield session

    @contextlib.contextmanager
    def session(
        self, table: str, keys: Sequence[str], *, mode: str = "rwc"
    ) -> Iterator[SqliteSession]:
        """Open the file. What is not committed when the block ends is undone; errors as of `Postgres.session`."""
        try:
            with contextlib.ExitStack() as stack:
                place = f"{Path(self._path).absolute().as_uri()}?mode={mode}"
                connection = sqlite3.connect(
                    place, timeout=_PATIENCE, isolation_level=None, uri=True
                )
                stack.callback(connection.close)
                connection.execute("PRAGMA synchronous = FULL")
                yield SqliteSession(connection, lambda: stack.enter_context(self._writing))
        except sqlite3.IntegrityError as exc:
            raise _broken(exc, table, keys) from None  # it may quote a value
        except sqlite3.Error as exc:
            if getattr(exc, "sqlite_errorname", "").startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
                msg = f"another program keeps the SQLite file {Path(self._path).name} locked"
                raise TableBusyError(msg, table=table) from exc
            msg = f"the SQLite file {self._path} cannot be read or written"
            step = database.TOO_LARGE if "too many columns" in str(exc) else None
            raise StoreError(msg, table=table, found=str(exc), next_step=step) from exc


class SqliteSession:
    """A connection to a SQLite file; see `PostgresSession`."""

    mark = "?"
    alike = " COLLATE NOCASE"
    stage_ends = ""
    names = "SELECT name FROM pragma_table_info(?)"
    types = _TYPES

    def __init__(self, connection: sqlite3.Connection, wait: Callable[[], object]) -> None:
        self._connection = connection
        self._wait = wait

    def place(self, table: TableName) -> DatabaseTable:
        """Put the schema's name before the table's."""
        name = table.table if table.schema is None else f"{table.schema}_{table.table}"
        if name.lower() in OURS or name.lower().startswith("sqlite_") or not name or "\0" in name:
            msg = "SQLite cannot have a table of this name, or it is one of our own tables"
            raise TableNameError(msg, table=printable(str(table)))
        return DatabaseTable(None, name)

    def check_column(self, name: str) -> str | None:
        """Say why SQLite cannot have a column of this name; None when it can."""
        return "SQLite takes no name with a character NUL" if "\0" in name or not name else None

    def widens(self, narrow: str, wide: str) -> bool:
        """Say whether a column may hold another kind: a wider one that is kept alike, as SQLite changes no types."""
        scales = {kind.partition(",")[2] for kind in (narrow, wide)}
        alike = narrow == "float" or (narrow.startswith("decimal") and len(scales) == 1)
        return (alike or wide.endswith("int")) and widening(narrow, wide) is not None

    def prepare(self, place: DatabaseTable) -> None:
        """Make our own tables."""
        if not database.has_books(self):
            self.begin(place)
            database.make_books(self)
            self.run("COMMIT")

    def begin(self, place: DatabaseTable) -> None:
        """Begin as the one who writes."""
        del place
        self._wait()
        self.run("BEGIN IMMEDIATE")

    def run(self, statement: str, *values: str | int) -> list[tuple[Any, ...]]:
        """Run a statement."""
        return self._connection.execute(statement, values).fetchall()

    def columns(self, place: DatabaseTable) -> Sequence[tuple[str, str]] | None:
        """Return names and types of what has the name, a view too, in order; None when nothing has."""
        return self.run("SELECT name, type FROM pragma_table_info(?)", place.table) or None

    def fill(self, name: str, kinds: Mapping[str, str], staged: StagedWindow) -> int:
        """Insert the lines, read back as values, one after another."""
        readers = [_reader(kind) for kind in kinds.values()]
        marks = ", ".join("?" * len(kinds))
        statement = f"INSERT INTO {name} ({quoted(kinds)}) VALUES ({marks})"  # noqa: S608  # quoted
        try:
            done = self._connection.executemany(
                statement, (_values(line, readers) for line in staged.lines())
            )
        except UnicodeDecodeError:
            msg = "text that is not UTF-8"
            raise database.UnfitError(msg) from None  # it quotes the text
        return max(done.rowcount, 0)

    def widen(self, place: DatabaseTable, wider: Mapping[str, str]) -> None:
        """Leave all types as they are: what is let widen here is kept alike."""

    def texts(
        self, place: DatabaseTable, columns: Sequence[str]
    ) -> Iterator[tuple[str | None, ...]]:
        """Read rows as text; bytes as PostgreSQL does."""
        self._connection.text_factory = partial(str, encoding="utf-8", errors="replace")
        statement = f"SELECT {quoted(columns)} FROM {place.sql}"  # noqa: S608  # quoted
        return (tuple(map(_text, row)) for row in self._connection.execute(statement))

    def take_out(self, place: DatabaseTable, columns: Sequence[str]) -> int:
        """Take out as many of each row as the stage lists as gone; `IS` holds NULL for equal to NULL."""
        taken = {name.lower() for name, _ in self.columns(place) or ()}
        row_id = next((name for name in _ROW_IDS if name not in taken), None)
        if row_id is None:
            msg = "a table without keys cannot have all three names that SQLite has for a row's number"
            found = ", ".join(_ROW_IDS)
            raise SchemaError(msg, table=place.table, found=found, next_step="Rename a column.")
        numbered = [f"c{n}" for n in range(len(columns))]
        listed = ", ".join(numbered)
        gone = f"SELECT min(rowid) AS gone, sum(copies) AS times, {listed} FROM {STAGE} WHERE op < 0 GROUP BY {listed}"  # noqa: S608  # numbered
        # As two rows: of comparisons joined by AND, SQLite takes no more than 1,000.
        here = ", ".join(f"h.{quote(name)}" for name in columns)
        same = f"({here}) IS ({', '.join(f'g.{name}' for name in numbered)})"
        nth = "row_number() OVER (PARTITION BY g.gone) AS nth"
        # A CROSS JOIN's sides stay in this order; else SQLite compares each row that goes with all of the table.
        found = f"SELECT h.{row_id} AS id, {nth}, g.times FROM {place.sql} AS h CROSS JOIN ({gone}) AS g ON {same}"  # noqa: S608  # quoted
        chosen = f"SELECT id FROM ({found}) WHERE nth <= times"  # noqa: S608  # quoted
        statement = f"DELETE FROM {place.sql} WHERE {row_id} IN ({chosen})"  # noqa: S608  # quoted
        return self._connection.execute(statement).rowcount

    def commit(self) -> None:
        """Commit."""
        self.run("COMMIT")


def _text(value: object) -> str | None:
    if isinstance(value, bytes):
        return f"\\x{value.hex()}"
    return None if value is None else str(value)


def _values(line: bytes, readers: Sequence[Callable[[str], object]]) -> list[object]:
    parts = line.decode().split("\t")
    return [
        None if part == "\\N" else read(part) for read, part in zip(readers, parts, strict=True)
    ]


def _reader(kind: str) -> Callable[[str], object]:
    if kind == "boolean":
        return lambda part: int(part == "true")
    if kind in {"smallint", "int", "bigint"}:
        return int
    if kind in {"float", "double"}:
        return lambda part: "NaN" if math.isnan(float(part)) else float(part)
    if kind == "binary":
        return lambda part: bytes.fromhex(part.removeprefix("\\\\x"))
    return lambda part: _ESCAPE.sub(lambda found: _PLAIN[found[1]], part) if "\\" in part else part


def _broken(exc: sqlite3.IntegrityError, table: str, keys: Sequence[str]) -> SchemaError:
    name = getattr(exc, "sqlite_errorname", "")
    if name == "SQLITE_CONSTRAINT_PRIMARYKEY":
        return database.duplicate_key(table, keys)
    if name == "SQLITE_CONSTRAINT_NOTNULL":
        return database.null_key(table, ", ".join(keys))
    return database.refused_row(table, name)
