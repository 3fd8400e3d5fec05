"""Read JSON as publishers really write it, and name what had to be repaired.

In: bytes. Out: the value and the repairs, each a short phrase with its line. What is accepted
beyond JSON is what Microsoft's own examples and known publishers show: byte order marks, trailing
commas, bare words, an unescaped backslash. Objects come back as pairs, so that the caller sees
properties that are given twice.
"""

from __future__ import annotations

import codecs
import json
import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeAlias, TypeVar

_T = TypeVar("_T")

Members: TypeAlias = tuple[tuple[str, "Json"], ...]
Json: TypeAlias = str | int | float | bool | list["Json"] | Members | None

DEEPEST = 40  # levels; deeper text is no metadata, and would end in a RecursionError
_MOST_REPAIRS = 1_000  # for each, lines are counted from the first
_BLANK = re.compile(r"\s*")
_WORD = re.compile(r"[\w.$+-]+")
_NUMBER = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")
_LONE_BACKSLASH = re.compile(r'"\\"(?=\s*[,}\]])')
_STRING = re.compile(r'"([^"\\\n]*(?:\\.?[^"\\\n]*)*)("?)')
_BACKSLASH = re.compile(r'\\(["\\/bfnrt]|u[0-9a-fA-F]{4})?')
_SURROGATE = re.compile("[\ud800-\udfff]")
_BYTE_ORDER_MARKS = (
    (codecs.BOM_UTF8, "utf-8", "a byte order mark"),
    (codecs.BOM_UTF16_LE, "utf-16-le", "UTF-16 in place of UTF-8"),
    (codecs.BOM_UTF16_BE, "utf-16-be", "UTF-16 in place of UTF-8"),
)
_LITERALS = frozenset({"true", "false", "null"})


class NotJsonError(ValueError):
    """The bytes are not JSON, even read leniently; says where and what was found."""

    def __init__(self, reason: str, line: int, column: int, found: str) -> None:
        self.claim = f"line {line}, column {column}: {reason}"
        self.found = found
        super().__init__(f"{self.claim}, found {found}")


@dataclass(slots=True)
class _Cursor:
    """A place in the text, and what was repaired up to there."""

    text: str
    lone_backslash: bool
    repairs: list[str]
    at: int = 0
    depth: int = 0


def read_lenient(data: bytes) -> tuple[Json, tuple[str, ...]]:
    r"""Read one JSON value, and name the repairs it took; raises `NotJsonError` where none makes it JSON.

    A backslash alone in its quotes, `"\"`, reads as the beginning of a longer string too. So it is believed only when
    that reading fails: valid JSON always keeps its meaning.
    """
    text, repairs = _decoded(data)
    try:
        return _read(_Cursor(text, lone_backslash=False, repairs=[*repairs]))
    except NotJsonError as first:
        try:
            return _read(_Cursor(text, lone_backslash=True, repairs=[*repairs]))
        except NotJsonError:
            raise first from None


def _decoded(data: bytes) -> tuple[str, tuple[str, ...]]:
    marks = (found for found in _BYTE_ORDER_MARKS if data.startswith(found[0]))
    mark, encoding, repair = next(marks, (b"", "utf-8", ""))
    bare = data.removeprefix(mark)
    try:
        return bare.decode(encoding), (repair,) if repair else ()
    except UnicodeDecodeError as exc:
        reason, line = f"it is not {encoding.upper()}", bare.count(b"\n", 0, exc.start) + 1
        raise NotJsonError(reason, line, 1, f"byte 0x{bare[exc.start]:02x}") from exc


def _read(cursor: _Cursor) -> tuple[Json, tuple[str, ...]]:
    value = _value(cursor)
    if _peek(cursor):
        raise _error(cursor, "expected the end")
    return value, tuple(cursor.repairs)


def _value(cursor: _Cursor) -> Json:
    first = _peek(cursor)
    if first == "{":
        return tuple(_items(cursor, "}", _member))
    if first == "[":
        return list(_items(cursor, "]", _value))
    if first == '"':
        return _string(cursor)
    found = _WORD.match(cursor.text, cursor.at)
    word = found[0] if found else ""
    # What is beyond all floats is text: JSON has no word for infinity.
    if word in _LITERALS or (_NUMBER.fullmatch(word) and math.isfinite(float(word))):
        cursor.at += len(word)
        value: Json = json.loads(word)
        return value
    return _bare(cursor, "a value")


def _items(cursor: _Cursor, close: str, read_item: Callable[[_Cursor], _T]) -> Iterator[_T]:
    """Read what stands between two brackets; one more comma may stand before the end."""
    cursor.at += 1
    cursor.depth += 1
    if cursor.depth > DEEPEST:
        raise _error(cursor, "nested too deeply")
    while _peek(cursor) != close:
        yield read_item(cursor)
        if _peek(cursor) == close:
            break
        if _peek(cursor) != ",":
            raise _error(cursor, f"expected ',' or '{close}'")
        comma = cursor.at
        cursor.at += 1
        if _peek(cursor) == close:
            _repaired(cursor, "a trailing comma", comma)
    cursor.depth -= 1
    cursor.at += 1


def _member(cursor: _Cursor) -> tuple[str, Json]:
    name = _string(cursor) if _peek(cursor) == '"' else _bare(cursor, "a property name")
    if _peek(cursor) != ":":
        raise _error(cursor, "expected ':'")
    cursor.at += 1
    return name, _value(cursor)


def _bare(cursor: _Cursor, what: str) -> str:
    found = _WORD.match(cursor.text, cursor.at)
    if not found:
        raise _error(cursor, f"expected {what}")
    _repaired(cursor, f"{what} without quotes")
    cursor.at = found.end()
    return found[0]


def _string(cursor: _Cursor) -> str:
    if cursor.lone_backslash and (lone := _LONE_BACKSLASH.match(cursor.text, cursor.at)):
        _repaired(cursor, "a lone backslash")
        cursor.at = lone.end()
        return "\\"
    found = _STRING.match(cursor.text, cursor.at)
    inside, end = found.groups() if found else ("", "")
    cursor.at += 1 + len(inside)
    if not end:
        raise _error(cursor, "a string without its closing quote")
    sound = _BACKSLASH.sub(lambda it: it[0] if it[1] else _escaped(cursor), inside)
    cursor.at += 1
    value: str = json.loads(f'"{sound}"', strict=False)
    if _SURROGATE.search(value):
        raise _error(cursor, "a string that is not valid Unicode")
    return value


def _escaped(cursor: _Cursor) -> str:
    """Escape a backslash that escapes nothing, and so stands for itself."""
    _repaired(cursor, "an unescaped backslash")
    return r"\\"


def _peek(cursor: _Cursor) -> str:
    """Skip blanks and give the next character; empty at the end."""
    blank = _BLANK.match(cursor.text, cursor.at)
    cursor.at = blank.end() if blank else cursor.at
    return cursor.text[cursor.at : cursor.at + 1]


def _line(cursor: _Cursor, at: int) -> int:
    return cursor.text.count("\n", 0, at) + 1


def _repaired(cursor: _Cursor, what: str, at: int | None = None) -> None:
    if len(cursor.repairs) >= _MOST_REPAIRS:
        raise _error(cursor, "too much to be repaired")
    cursor.repairs.append(f"{what} in line {_line(cursor, cursor.at if at is None else at)}")


def _error(cursor: _Cursor, reason: str) -> NotJsonError:
    column = cursor.at - cursor.text.rfind("\n", 0, cursor.at)
    next_one = cursor.text[cursor.at : cursor.at + 1]
    found = ascii(next_one) if next_one else "the end of the file"
    return NotJsonError(reason, _line(cursor, cursor.at), column, found)
