"""JSON lines: an object on every line, from the bytes of a file to typed Arrow tables, in the order of its lines.

In: a `TextFile`. Out: a `FileSchema`, which takes a pass over the whole file as there
is no footer, and tables whose columns have its types. Promises: no value is guessed, and
none rounded, but that a column of numbers with a point or an exponent has the nearest doubles, as
readers of JSON do; memory is bounded by the blocks and the longest line; what has no place in a table, is no
object, or says one thing twice, fails the file with its line, never with its content.
Objects and arrays are JSON text, and so is every value but text in a column that no other type holds.
pyarrow.json is faster, but reads 2^53 + 1 beside 1.5 as 2^53, 2^64 as a double, text that looks like
a date as a timestamp, and no array of several types.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NoReturn, TypeAlias

import pyarrow as pa

from mirrorlib.errors import FileChangedError
from mirrorlib.landing.columns import (
    LONGEST_ROW,
    MOST_COLUMNS,
    FileSchema,
    split_marker,
    text_columns,
)
from mirrorlib.landing.delimited.text import TextFile, iter_text
from mirrorlib.landing.types import MAX_PRECISION

_EXACT_IN_DOUBLE = 1 << 53
_CELLS = 1 << 23  # of a table: few names on long lines are many NULLs on short ones
_LARGE = pa.decimal128(MAX_PRECISION, 0)
_BEYOND = "the number is beyond the range of a double"
_DEEPEST = 100  # objects and arrays inside of one another: the stack always holds more
_TOO_DEEP = f"there are more than {_DEEPEST} objects or arrays inside of one another"
_ONE_A_LINE = "Write one object a line, without an array around them."
_encode = json.JSONEncoder(ensure_ascii=False).encode
_Objects: TypeAlias = list[tuple[int, dict[str, Any]]]  # each with its line, counted from 1


class _Number(float):
    """A number with a point or an exponent: the nearest double, and how it was written."""

    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        self.text = text

    @property
    def is_held(self) -> bool:
        """Say whether a double is near it: neither without end, nor 0 in place of something else."""
        if self:
            return math.isfinite(self)
        return not self.text.lower().partition("e")[0].strip("-0.")


_CHECKED = frozenset({_Number, str, dict, list})


@dataclass(slots=True)
class _Kinds:
    """Of what types a column's values are, and between which numbers its integers lie."""

    types: set[type] = field(default_factory=set)
    low: int = 0
    high: int = 0

    def add(self, values: list[Any]) -> None:
        found = set(map(type, values))
        self.types |= found
        if int in found:
            integers = [value for value in values if type(value) is int]
            self.low, self.high = min(self.low, *integers), max(self.high, *integers)

    def arrow(self) -> pa.DataType:
        """Return the type that holds every value as it is."""
        types = self.types - {type(None)}
        if not types:
            return pa.null()
        if types == {bool}:
            return pa.bool_()
        largest = max(self.high, -self.low)
        if types == {int} and largest < 10**MAX_PRECISION:
            return pa.int64() if self.low >= -(1 << 63) and self.high < 1 << 63 else _LARGE
        numbers = types in ({_Number}, {_Number, int})
        return pa.float64() if numbers and largest <= _EXACT_IN_DOUBLE else pa.string()


def read_line_schema(text: TextFile) -> FileSchema:
    """Read a file to its end for its columns, in the order in which they come, their types, and its rows."""
    kinds: dict[str, _Kinds] = {}
    rows = 0
    for piece in _iter_objects(text, once=True):
        found: dict[str, list[Any]] = {}
        for line, row in piece:
            for name, value in row.items():
                if type(value) in _CHECKED:
                    _check_value(value, name, line, text)
                found.setdefault(name, []).append(value)
        for name, values in found.items():
            kinds.setdefault(name, _Kinds()).add(values)
        rows += len(piece)
        if len(kinds) > MOST_COLUMNS + 1:  # one may be the marker
            break
    names, marker = split_marker(kinds, table=text.table, file=text.file.name)
    columns = text_columns({name: kinds[name].arrow() for name in names})
    kind = kinds[marker].arrow() if marker else None
    return FileSchema(columns=columns, marker=marker, marker_type=kind, rows=rows)


def iter_line_tables(text: TextFile, schema: FileSchema) -> Iterator[pa.Table]:
    """Give a file's rows, as *schema* types them; a file without lines gives one empty table."""
    types = pa.schema([(column.name, column.type) for column in schema.columns])
    most = max(_CELLS // max(len(types), 1), 1)
    pieces = _iter_objects(text, once=False)
    some = False
    for piece in (whole[at : at + most] for whole in pieces for at in range(0, len(whole), most)):
        some = True
        try:
            columns = [_array([row.get(one.name) for _, row in piece], one.type) for one in types]
        except (pa.ArrowException, OverflowError, TypeError, ValueError) as exc:
            msg = "the change file has other values than before"
            raise FileChangedError(msg, table=text.table, file=text.file.name) from exc
        # A table without columns would forget how many rows it has.
        counted = pa.table([pa.nulls(len(piece)), *columns], names=["", *types.names])
        yield counted.select(types.names)
    if not some:
        yield types.empty_table()


def _array(values: list[Any], kind: pa.DataType) -> pa.Array:
    if pa.types.is_string(kind):
        values = [v if v is None or type(v) is str else _json_text(v) for v in values]
    return pa.array(values, kind)


def _check_value(value: object, name: str, line: int, file: TextFile) -> None:
    """Refuse JSON that has no place in a table: numbers beyond a double, text that is not Unicode, deep nesting."""
    try:
        text = value if type(value) is str else _json_text(value)
        text.encode()
    except UnicodeEncodeError as exc:
        msg = "the text has half a character, a lone surrogate"
        raise file.fault(msg, column=name, line=line) from exc
    except ValueError as exc:
        raise file.fault(str(exc), column=name, line=line) from exc


def _json_text(value: object, levels: int = _DEEPEST) -> str:
    """Write a value as JSON; raises `ValueError`, with the reason, for what has no place in a table."""
    if type(value) is _Number:
        if not value.is_held:
            raise ValueError(_BEYOND)
        return value.text
    if not value or not isinstance(value, dict | list):
        return _encode(value)
    if not levels:
        raise ValueError(_TOO_DEEP)
    if isinstance(value, list):
        return f"[{','.join(_json_text(item, levels - 1) for item in value)}]"
    inner = (f"{_encode(name)}:{_json_text(item, levels - 1)}" for name, item in value.items())
    return f"{{{','.join(inner)}}}"


def _iter_objects(text: TextFile, *, once: bool) -> Iterator[_Objects]:
    """Give the objects of a file, a block of lines at a time; *once* sees that none says one thing twice."""
    decoder = json.JSONDecoder(
        object_pairs_hook=_object if once else None,
        parse_float=_Number,
        parse_constant=_refuse_constant,
    )
    first = 1
    for lines in _iter_lines(iter_text(text), text):
        piece = _parsed(lines, first, decoder, text)
        if piece:
            yield piece
        first += lines.count(b"\n")


def _iter_lines(blocks: Iterator[bytes], file: TextFile) -> Iterator[bytes]:
    """Cut text where lines end; the last line may lack its end."""
    waiting: list[bytes] = []
    line = 1
    for block in blocks:
        cut = block.rfind(b"\n") + 1
        if cut:
            whole = b"".join([*waiting, block[:cut]])
            yield whole
            line, waiting = line + whole.count(b"\n"), []
        waiting.append(block[cut:])
        if sum(map(len, waiting)) > LONGEST_ROW:
            msg = f"a line is longer than {LONGEST_ROW >> 20} MiB"
            raise file.fault(msg, line=line, next_step=_ONE_A_LINE)
    yield b"".join(waiting)


def _parsed(text: bytes, first: int, decoder: json.JSONDecoder, file: TextFile) -> _Objects:
    try:
        decoded = text.decode()
    except UnicodeDecodeError as exc:
        place = first + text.count(b"\n", 0, exc.start)
        fault = file.undecodable(exc, place, "utf-8")
        raise fault.but(next_step="Publish it in UTF-8.") from exc  # nothing can state an encoding
    objects: _Objects = []
    for number, line in enumerate(decoded.split("\n"), start=first):
        if line.isspace() or not line:
            continue
        try:
            row = decoder.decode(line)
        except (ValueError, RecursionError) as exc:  # what the parser says shows no data
            found = str(exc)[:80]
            if isinstance(exc, json.JSONDecodeError):
                found = f"{exc.msg}, character {exc.colno}"
            elif isinstance(exc, RecursionError):
                found = "objects or arrays nested too deep"
            msg = "the line is not JSON; the file may be an upload under way"
            raise file.fault(msg, line=number, found=found) from exc
        if type(row) is not dict:
            kinds = {list: "an array", str: "a string", bool: "true or false", type(None): "null"}
            msg, found = "the line is no JSON object", kinds.get(type(row), "a number")
            raise file.fault(msg, line=number, found=found, next_step=_ONE_A_LINE)
        objects.append((number, row))
    return objects


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        msg = "a name is given twice in one object"
        raise ValueError(msg)
    return found


def _refuse_constant(name: str) -> NoReturn:
    msg = f"{name} is no number in JSON"
    raise ValueError(msg)
