"""Write values as text from which the same values can be read, by Spark; and refuse types that have no place there."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f
from pyspark.sql import types as t

from mirrorlib.errors import SchemaError
from mirrorlib.feed.net import columns_of
from mirrorlib.identifiers import quote
from mirrorlib.nested import is_free_of, map_keys_in, name_of, types_in

# By default Spark leaves out fields that are NULL, cuts moments to milliseconds, and fills a column when it reads.
JSON_OPTIONS = {
    "columnNameOfCorruptRecord": "",
    "ignoreNullFields": "false",
    "timeZone": "UTC",
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}
_PLAIN = frozenset({
    "boolean", "byte", "short", "integer", "long", "float", "double", "decimal", "string",
    "char", "varchar", "binary", "date", "timestamp", "timestamp_ntz",
})  # fmt: skip
_NESTED = frozenset({"struct", "array", "map"})
_TAKEN = {"parquet": _NESTED, "jsonl": _NESTED, "Kafka": _NESTED | {"variant", "void"}}
_KEYS_IN_JSON = frozenset({"string", "byte", "short", "integer", "long"})


def check_types(frame: DataFrame, table: str, place: str) -> None:
    """See that every column is of a type that has a place where it is to go.

    That is "parquet", "jsonl" or "Kafka", which take nested values, or else what takes none, as errors call it.
    """
    taken = _PLAIN | _TAKEN.get(place, frozenset())
    for name in columns_of(frame):
        kind = frame.schema[name].dataType
        odd = [one.simpleString() for one in types_in(kind) if name_of(one) not in taken]
        if place == "jsonl":
            # Spark writes a map's keys as it holds them: a date would be a count of days.
            keys = [key for key in map_keys_in(kind) if name_of(key) not in _KEYS_IN_JSON]
            odd = [*(f"a map by {key.simpleString()}" for key in keys), *odd]
        if odd:
            msg = f"this type has no place in {place}"
            step = (
                "Make the column text, or let another consumer deliver to another kind of receiver."
            )
            raise SchemaError(msg, table=table, column=name, found=odd[0], next_step=step)


def decimal_text(value: Column, scale: int) -> Column:
    """Write a decimal with all its digits behind the point: a cast may write 1E-7."""
    digits = "0." + "0" * scale if scale else "0"
    return f.call_function("format_number", value, f.lit(digits))


def json_value(column: Column, kind: t.DataType) -> Column:
    """Turn what `to_json` would tell inexactly, at any depth, into what it tells exactly.

    A map is an object where its keys are strings: `to_json` writes keys of other types as Spark keeps them inside.
    """
    keys = all(isinstance(key, t.StringType) for key in map_keys_in(kind))
    if keys and is_free_of(kind, {"decimal"}):
        return column
    if isinstance(kind, t.DecimalType):
        return decimal_text(column, kind.scale)
    if isinstance(kind, t.ArrayType):
        return f.transform(column, lambda item: json_value(item, kind.elementType))
    if isinstance(kind, t.MapType):
        values = kind.valueType
        if isinstance(kind.keyType, t.StringType):
            return f.transform_values(column, lambda _, value: json_value(value, values))
        entry = t.StructType().add("key", kind.keyType).add("value", values)
        return f.transform(f.map_entries(column), lambda item: json_value(item, entry))
    assert isinstance(kind, t.StructType)  # noqa: S101  # nothing else is left
    fields = [
        json_value(column[field.name], field.dataType).alias(field.name) for field in kind.fields
    ]
    return f.when(column.isNotNull(), f.struct(*fields))


def json_of(
    frame: DataFrame,
    names: Sequence[str],
    tell: Callable[[Column, t.DataType], Column] = json_value,
) -> Column:
    """Write some columns as one JSON object, each as *tell* says."""
    values = [tell(f.col(quote(name)), frame.schema[name].dataType).alias(name) for name in names]
    return f.to_json(f.struct(*values), JSON_OPTIONS)
