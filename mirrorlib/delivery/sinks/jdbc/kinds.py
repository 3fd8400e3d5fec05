"""Kinds of columns: what both sides of the way to a database have a type for.

In: Spark's types. Out: a kind's name, which is the name of a Spark SQL type that `cast` takes, or `JSON` for
what is nested: text there, `jsonb` where the database has it. Bytes of eight bits are `smallint`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from pyspark.sql.types import DataType

from mirrorlib.delta.columns import write_type
from mirrorlib.nested import map_keys_in

JSON = "json"
_WHOLE = ("smallint", "int", "bigint")
_PLAIN = {
    *_WHOLE, "boolean", "float", "double", "string", "binary", "date", "timestamp", "timestamp_ntz",
}  # fmt: skip
_DECIMAL = re.compile(r"decimal\((\d+),(\d+)\)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Types:
    """How a database calls the kinds, no two the same; `(precision,scale)` goes behind the word for decimals."""

    plain: Mapping[str, str]
    decimal: str

    def of(self, kind: str) -> str:
        """Return the type of a kind."""
        return self.plain.get(kind) or kind.replace("decimal", self.decimal)

    def kind(self, type_name: str) -> str | None:
        """Return the kind that has a type; None for a type that we never make."""
        decimal = type_name.replace(self.decimal, "decimal", 1)
        if type_name.startswith(self.decimal) and _DECIMAL.fullmatch(decimal):
            return decimal
        return next((kind for kind, name in self.plain.items() if name == type_name), None)


def kind_of(data_type: DataType) -> str | None:
    """Return the kind of a Spark type; None when no database has it."""
    name = data_type.simpleString()
    if name.startswith(("struct<", "array<", "map<")) or name == "variant":
        # Spark's JSON has a map's keys as it holds them: a date is a count of days, bytes are nothing at all.
        known = (kind_of(key) in {"string", *_WHOLE} for key in map_keys_in(data_type))
        return JSON if all(known) else None
    if name.startswith(("string", "char(", "varchar(")):  # "string collate …" among them
        return "string"
    if name == "tinyint":
        return "smallint"
    return name if name in _PLAIN or _DECIMAL.fullmatch(name) else None


def form_of(data_type: DataType) -> str:
    """Say what a nested value looks like as JSON: the same for types whose values are written alike."""

    def form_of_leaf(leaf: DataType) -> str:
        kind = kind_of(leaf)
        if kind is None or kind == JSON:
            return leaf.simpleString()
        return "integer" if kind in _WHOLE else kind

    return write_type(data_type, form_of_leaf)
