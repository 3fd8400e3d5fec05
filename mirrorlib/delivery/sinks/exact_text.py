"""Write values as text from which the same values can be read, by Spark; and refuse types that have no place there."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from mirrorlib.errors import SchemaError
from mirrorlib.feed.net import columns_of
from mirrorlib.nested import map_keys_in, name_of, types_in

# By default Spark leaves out fields that are NULL, and cuts moments to milliseconds.
JSON_OPTIONS = {
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
