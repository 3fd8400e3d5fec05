"""Write a window's rows as JSON, on Spark's side: key, row and what was done to it, in the order of delivery.

In: a delivery's frame. Out: a DataFrame of text. Promise: every value is told in full: decimals with all
their digits, moments to the microsecond, NULLs as such; a type that JSON cannot carry is refused by name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirrorlib.delivery.sinks.exact_text import JSON_OPTIONS, decimal_text
from mirrorlib.errors import SchemaError
from mirrorlib.feed.net import DELETE, INSERT, KIND, POST, PRE, TIME, VERSION, columns_of
from mirrorlib.identifiers import quote
from mirrorlib.nested import is_free_of, map_keys_in, name_of, types_in

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType

# Rows that are taken away come before those that are added: an image meets the other one of its update.
ORDER = {PRE: 0, DELETE: 1, POST: 2, INSERT: 3}
KEY, ROW, PLACE, MOMENT = "_mirror_key", "_mirror_row", "_mirror_place", "_mirror_moment"
_TOLD = frozenset(
    (
        *(
            "boolean",
            "byte",
            "short",
            "integer",
            "long",
            "float",
            "double",
            "decimal",
            "string",
            "binary",
        ),
        *(
            "char",
            "varchar",
            "date",
            "timestamp",
            "timestamp_ntz",
            "variant",
            "void",
            "struct",
            "array",
            "map",
        ),
    )
)


def rows_as_json(frame: DataFrame, keys: Sequence[str], table: str, *, ordered: bool) -> DataFrame:
    """Return key and row as JSON, the kind's place in `ORDER`, version and moment (milliseconds).

    Args:
        frame: columns, then those of the feed.
        keys: key columns as the frame has them; without any the key is NULL.
        table: its name, for errors.
        ordered: by commit, key and kind; the rows of a snapshot need no order.

    Raises:
        SchemaError: a column's type cannot be told in JSON.

    """
    from pyspark.sql import functions as f

    columns = columns_of(frame)
    for name in columns:
        _check(frame.schema[name].dataType, name, table)
    key = f.lit(None).cast("string")
    if keys:
        parts = [_key(f.col(quote(n)), frame.schema[n].dataType).alias(n) for n in keys]
        key = f.to_json(f.struct(*parts), JSON_OPTIONS)
    row = f.struct(
        *[_json_value(f.col(quote(n)), frame.schema[n].dataType).alias(n) for n in columns]
    )
    places = f.create_map(*[f.lit(value) for pair in ORDER.items() for value in pair])
    records = frame.select(
        key.alias(KEY),
        f.to_json(row, JSON_OPTIONS).alias(ROW),
        places[f.col(KIND)].alias(PLACE),
        f.col(VERSION),
        f.unix_millis(f.col(TIME)).alias(MOMENT),
    )
    return records.orderBy(VERSION, KEY, PLACE) if ordered else records


def _check(kind: DataType, column: str, table: str) -> None:
    odd = next((one for one in types_in(kind) if name_of(one) not in _TOLD), None)
    if odd is not None:
        msg = "a column of this type cannot be told in JSON"
        step = "Change its type, or export the table to a receiver that takes it."
        found = odd.simpleString()
        raise SchemaError(msg, table=table, column=column, found=found, next_step=step)


def _key(column: Column, kind: DataType) -> Column:
    """Tell a key's value: 0.0 and -0.0 are one key, so they are one text."""
    from pyspark.sql import functions as f
    from pyspark.sql import types as t

    if isinstance(kind, t.FloatType | t.DoubleType):
        zero = f.lit(0.0).cast(kind)
        return f.when(column == zero, zero).otherwise(column)
    return _json_value(column, kind)


def _json_value(column: Column, kind: DataType) -> Column:
    """Turn what `to_json` would tell inexactly, at any depth, into what it tells exactly."""
    from pyspark.sql import functions as f
    from pyspark.sql import types as t

    if _is_exact(kind):
        return column
    if isinstance(kind, t.DecimalType):
        return decimal_text(column, kind.scale)
    if isinstance(kind, t.ArrayType):
        inner = kind.elementType
        return f.transform(column, lambda item: _json_value(item, inner))
    if isinstance(kind, t.MapType):
        return _json_map(column, kind)
    assert isinstance(kind, t.StructType)  # noqa: S101  # nothing else is left
    fields = [
        _json_value(column[field.name], field.dataType).alias(field.name) for field in kind.fields
    ]
    return f.when(column.isNotNull(), f.struct(*fields))


def _json_map(column: Column, kind: DataType) -> Column:
    """Tell a map as an object; `to_json` writes keys that are no strings as Spark keeps them inside."""
    from pyspark.sql import functions as f
    from pyspark.sql import types as t

    assert isinstance(kind, t.MapType)  # noqa: S101  # the caller has seen
    keys, values = kind.keyType, kind.valueType
    if isinstance(keys, t.StringType):
        return f.transform_values(column, lambda _, value: _json_value(value, values))
    return f.transform(
        f.map_entries(column),
        lambda entry: f.struct(
            _json_value(entry["key"], keys).alias("key"),
            _json_value(entry["value"], values).alias("value"),
        ),
    )


def _is_exact(kind: DataType) -> bool:
    from pyspark.sql import types as t

    keys = all(isinstance(key, t.StringType) for key in map_keys_in(kind))
    return keys and is_free_of(kind, {"decimal"})
