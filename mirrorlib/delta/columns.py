"""The columns of a Delta table as Arrow types and as Spark SQL types, and how the two words map.

In: Spark type names, as a schema or the journal writes them. Out: `Column` values and back. Only
the types that a mirror has; a column of any other type (somebody added it by hand) is left out and
stays NULL in new rows.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from mirrorlib.identifiers import find_named, quote
from mirrorlib.landing.types import INSTANT, WALL_CLOCK
from mirrorlib.names import find_key

if TYPE_CHECKING:
    from collections.abc import Iterable

_SQL_TYPES = {
    pa.bool_(): "boolean",
    pa.int8(): "tinyint",
    pa.int16(): "smallint",
    pa.int32(): "int",
    pa.int64(): "bigint",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.string(): "string",
    pa.binary(): "binary",
    pa.date32(): "date",
    INSTANT: "timestamp",
    WALL_CLOCK: "timestamp_ntz",
}
_ARROW_TYPES = {name: kind for kind, name in _SQL_TYPES.items()}
_MAPPED = set(" ,;{}()\n\t=")
_DECIMAL = re.compile(r"decimal\((\d+),(\d+)\)")


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a mirror: its name as the table spells it, and its mirror type."""

    name: str
    type: pa.DataType

    @property
    def sql_type(self) -> str:
        """Return the Spark SQL name of the type."""
        return sql_type(self.type)

    @property
    def ddl(self) -> str:
        """Return the column's definition for CREATE and ADD COLUMNS."""
        return f"{quote(self.name)} {self.sql_type}"


Columns = tuple[Column, ...]


def needs_mapping(name: str) -> bool:
    """Say whether Delta takes a column of this name only in a table with column mapping."""
    return bool(_MAPPED & set(name))


def find_column(columns: Iterable[Column], name: str) -> Column | None:
    """Find a column as Delta does, without regard to case."""
    return find_named(columns, name)


def find_key_column(columns: Iterable[Column], key: str) -> Column | None:
    """Find a key column, see `find_key`."""
    columns = tuple(columns)
    found = find_key((column.name for column in columns), key)
    return None if found is None else find_column(columns, found)


def spelled_keys(columns: Columns, keys: Iterable[str]) -> tuple[str, ...]:
    """Name the key columns that a table has as it spells them."""
    found = (find_key_column(columns, key) for key in keys)
    return tuple(column.name for column in found if column is not None)


def sql_type(kind: pa.DataType) -> str:
    """Return the Spark SQL name of a mirror type."""
    return (
        f"decimal({kind.precision},{kind.scale})" if pa.types.is_decimal(kind) else _SQL_TYPES[kind]
    )


def to_columns(pairs: Iterable[tuple[str, str]]) -> Columns:
    """Read (name, Spark type) pairs; columns of types that no mirror has are left out."""
    found = ((name, _arrow_type(text)) for name, text in pairs)
    return tuple(Column(name, kind) for name, kind in found if kind is not None)


def to_pairs(columns: Columns) -> tuple[tuple[str, str], ...]:
    """Write columns as (name, Spark type) pairs."""
    return tuple((column.name, column.sql_type) for column in columns)


def _arrow_type(text: str) -> pa.DataType | None:
    decimal = _DECIMAL.fullmatch(text)
    if decimal:
        return pa.decimal128(int(decimal[1]), int(decimal[2]))
    return _ARROW_TYPES.get(text)
