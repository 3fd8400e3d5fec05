"""Read row markers, whatever type a publisher gave them (Q2): integers, digits as text, floats, decimals.

In: a marker column as pyarrow shows it. Out: the same rows as int8, where -1 stands for what no
marker can be. NULL stays NULL: what it means is the table's policy, not the column's.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

KNOWN_MARKERS = (0, 1, 2, 4)  # insert, update, delete, upsert


def show_marker(values: pa.ChunkedArray, row: int) -> str:
    """Show one marker for a message; its type where it is a moment: pyarrow shows such by pandas, or not at all."""
    if pa.types.is_temporal(values.type):
        return f"a {values.type}"
    return str(values[row].as_py())[:20]


def small_markers(values: pa.ChunkedArray) -> pa.ChunkedArray:
    """Give markers as int8; -1 stands for what is no small whole number."""
    kind = values.type
    if pa.types.is_dictionary(kind):
        return small_markers(values.cast(kind.value_type))
    if str(kind) == "string_view":  # pyarrow 14 has no such type, nor a function that asks for it
        return small_markers(values.cast(pa.string()))
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        text = pc.utf8_trim_whitespace(values)
        return pc.if_else(pc.match_substring_regex(text, r"^[0-9]$"), text, "-1").cast(pa.int8())
    if not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)):
        return pc.if_else(pc.is_valid(values), pa.scalar(-1, pa.int8()), pa.scalar(None, pa.int8()))
    number = values.cast(pa.float64(), safe=False)
    digits = pc.is_in(number, value_set=pa.array([float(marker) for marker in KNOWN_MARKERS]))
    return pc.if_else(pc.or_(digits, pc.is_null(number)), number, -1.0).cast(pa.int8())
