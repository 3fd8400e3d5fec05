"""What the receiver asks of a database, and the values that both talk in.

In: nothing. Out: `Database` and `Session`, which `postgres` and `sqlite` are.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from mirrorlib.delivery.sink import KEY_OPTIONS
from mirrorlib.errors import JournalError, SchemaError

if TYPE_CHECKING:
    from mirrorlib.delivery.sinks.jdbc.kinds import Types
    from mirrorlib.delivery.sinks.jdbc.stage import Staged
    from mirrorlib.names import TableName

BEGIN_ANEW = "begin anew: mirrorlib consumers TARGET --rewind NAME --to snapshot"
TABLES, POSITIONS = "_mirrorlib_tables", "_mirrorlib_positions"
STAGE = "_mirrorlib_stage"
# Both databases understand this; in PostgreSQL the first schema of the search path is where these tables are.
MAKE_TABLES = f"""CREATE TABLE IF NOT EXISTS {TABLES} (
    name text NOT NULL PRIMARY KEY,
    source_table text NOT NULL,
    consumer text NOT NULL,
    stream text NOT NULL,
    table_id text NOT NULL,
    delta_version bigint NOT NULL,
    columns text NOT NULL,
    keys text NOT NULL,
    updated_at timestamp with time zone NOT NULL
)"""
LATER_COLUMNS = {  # what the first versions did not write down of a table
    "stream_ordinal": "bigint NOT NULL DEFAULT 0",
    "stream_began_at": "text NOT NULL DEFAULT ''",
    "nested": "text NOT NULL DEFAULT '{}'",
    "physical": "text NOT NULL DEFAULT '{}'",
}
MAKE_POSITIONS = f"""CREATE TABLE IF NOT EXISTS {POSITIONS} (
    stream text NOT NULL PRIMARY KEY,
    consumer text NOT NULL,
    source_table text NOT NULL,
    window_number bigint NOT NULL,
    delta_version bigint NOT NULL,
    updated_at timestamp with time zone NOT NULL
)"""


class UnfitError(Exception):
    """A value is none that the database can hold; the text is the database's code for it, never the value."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a table lies: its schema, None where databases have none, and its name."""

    schema: str | None
    table: str

    @property
    def sql(self) -> str:
        """Return the name for SQL."""
        return ".".join(quote(part) for part in (self.schema, self.table) if part is not None)


@dataclass(frozen=True, slots=True)
class Field:
    """A column of any table of the database, and its kind."""

    name: str
    kind: str


class Session(Protocol):
    """A connection for one table; without `commit`, all that was done since `begin` is undone."""

    mark: str  # stands for a value in a statement
    stage_ends: str  # what ends the definition of a temporary table
    types: Types

    def place(self, table: TableName) -> Place:
        """Say where a table belongs.

        Raises:
            TableNameError: the database cannot have a table of this name.

        """

    def check_column(self, name: str) -> str | None:
        """Say why the database cannot have a column of this name; None when it can."""

    def has_books(self) -> bool:
        """Say whether our own two tables are there."""

    def prepare(self, place: Place) -> None:
        """Make our own two tables, and the table's schema; at once."""

    def begin(self, place: Place) -> None:
        """Begin a transaction that has the table for itself among those who deliver."""

    def run(self, statement: str, *values: str | int) -> list[tuple[Any, ...]]:
        """Run a statement; return its rows."""

    def columns(self, place: Place) -> tuple[tuple[str, str], ...] | None:
        """Return names and types of a table's columns, in order; None when nothing has its name."""

    def fill(self, name: str, fields: Sequence[Field], staged: Staged) -> int:
        """Insert all staged rows into a table; return how many there were.

        Raises:
            UnfitError: the database cannot hold a value.

        """

    def widen(self, place: Place, wider: Sequence[Field]) -> None:
        """Give columns wider types."""

    def take_out(self, place: Place, fields: Sequence[Field]) -> int:
        """Take as many rows out of a table as the stage says, of each that it lists as gone; return how many it had."""

    def commit(self) -> None:
        """Let all be seen."""


class Database(Protocol):
    """A database that receives tables."""

    def session(self, table: str, keys: Sequence[str]) -> AbstractContextManager[Session]:
        """Connect; what the database refuses is told as an error that names the table.

        Raises:
            StoreError: the database is not there, or was lost.
            SchemaError: it refuses a row: a key that is NULL, or is there already.
            TableBusyError: somebody else keeps the table.

        """


def quote(name: str) -> str:
    """Quote a name for a database's SQL; whatever it holds, it stays one identifier."""
    escaped = name.replace('"', '""')
    return f'"{escaped}"'


def quoted(names: Sequence[str]) -> str:
    """Quote names for a list."""
    return ", ".join(map(quote, names))


def null_key(table: str, key: str) -> SchemaError:
    """Say that a key column is NULL in some row."""
    msg = "a key column is NULL in some row, and a primary key takes no NULL"
    step = f"Correct the rows at the source, or give other keys or none ({KEY_OPTIONS}); then {BEGIN_ANEW}"
    return SchemaError(msg, table=table, column=key, next_step=step)


def missing_rows(table: str, taken: int, gone: int) -> JournalError:
    """Say that rows went at the source that the table does not hold."""
    msg = "the table in the database does not hold all rows that the source has deleted"
    step = f"See who else writes to it; then let the consumer {BEGIN_ANEW}"
    return JournalError(msg, table=table, found=f"{taken} of {gone}", next_step=step)


def duplicate_key(table: str, keys: Sequence[str]) -> SchemaError:
    """Say that the table has several rows of one key."""
    msg = "several rows of the table have the same key"
    step = f"Make them one at the source, or give other keys or none ({KEY_OPTIONS}); then {BEGIN_ANEW}"
    return SchemaError(msg, table=table, column=", ".join(keys), next_step=step)
