"""Read JSON as publishers really write it, and name what had to be repaired.

In: bytes. Out: the value and the repairs, each a short phrase with its line. What is accepted
beyond JSON is what Microsoft's own examples and known publishers show: byte order marks, trailing
commas, bare words, an unescaped backslash. Objects come back as pairs, so that the caller sees
properties that are given twice, unless it asks for something else.
"""

from __future__ import annotations

import json
import math
import re
from typing import TypeAlias

Members: TypeAlias = tuple[tuple[str, "Json"], ...]
Json: TypeAlias = str | int | float | bool | list["Json"] | Members | None

DEEPEST = 40  # levels; deeper text is no metadata, and would end in a RecursionError
_MOST_REPAIRS = 1_000  # for each, lines are counted from the first
_PIECE = r"""
    (?P<text>"[^"\\\n]*(?:\\.[^"\\\n]*)*")
  | (?P<comma>,(?=\s*[}\]]))
  | (?P<name>[\w.$+-]+(?=\s*:))
  | (?P<word>[\w.$+-]+)
  | (?P<blank>\s+)
  | (?P<opening>[{\[])
  | (?P<closing>[}\]])
  | (?P<quote>")
  | .
"""
_PIECES = re.compile(_PIECE, re.VERBOSE)
_OR_LONE_BACKSLASH = re.compile(rf'(?P<lone>"\\"(?=\s*[,}}\]]))|{_PIECE}', re.VERBOSE)
_NUMBER = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")
_BACKSLASH = re.compile(r'\\(["\\/bfnrt]|u[0-9a-fA-F]{4})?')
_SURROGATE = re.compile("[\ud800-\udfff]")
_ODD_BLANK = re.compile(r"[^ \t\r\n]")
_REPAIRED: dict[str, tuple[str, ...]] = {"utf-8": (), "utf-8-sig": ("a byte order mark",)}
_LITERALS = frozenset({"true", "false", "null"})
_NO_ITEMS = frozenset({"", ",", ":", "{", "["})  # behind these, a comma is no trailing one


class NotJsonError(ValueError):
    """The bytes are not JSON, even read leniently; says where and what was found."""

    def __init__(self, reason: str, line: int, column: int, found: str) -> None:
        self.claim = f"line {line}, column {column}: {reason}"
        self.found = found
        super().__init__(f"{self.claim}, found {found}")


def read_lenient(data: bytes, pairs: type = tuple) -> tuple[Json, tuple[str, ...]]:
    r"""Read one JSON value, and name the repairs it took; raises `NotJsonError` where none makes it JSON.

    A backslash alone in its quotes, `"\"`, reads as the beginning of a longer string too. So it is believed only when
    that reading fails: valid JSON always keeps its meaning.
    """
    text, repairs = _decoded(data)
    try:
        return _read(text, _PIECES, [*repairs], pairs)
    except NotJsonError as first:
        try:
            return _read(text, _OR_LONE_BACKSLASH, [*repairs], pairs)
        except NotJsonError:
            raise first from None


def _decoded(data: bytes) -> tuple[str, tuple[str, ...]]:
    encoding = json.detect_encoding(data)
    name = encoding.removesuffix("-sig").upper()
    try:
        return data.decode(encoding), _REPAIRED.get(encoding, (f"{name[:6]} in place of UTF-8",))
    except UnicodeDecodeError as exc:
        reason, line = f"it is not {name}", exc.object.count(b"\n", 0, exc.start) + 1
        raise NotJsonError(reason, line, 1, f"byte 0x{exc.object[exc.start]:02x}") from exc


def _read(
    text: str, pieces: re.Pattern[str], repairs: list[str], pairs: type
) -> tuple[Json, tuple[str, ...]]:
    """Make JSON of a text, piece by piece, each on its line, and have that read."""
    sound: list[str] = []
    depth, before = 0, ""
    for found in pieces.finditer(text):
        place, kind = found.start(), found.lastgroup
        piece, repaired = _mended(found, before)
        sound.append(piece)
        if repaired:
            repairs.append(f"{repaired} in line {_line(text, place)}")
        depth += (kind == "opening") - (kind == "closing")
        if depth > DEEPEST:
            raise _error(text, place, "nested too deeply")
        if len(repairs) > _MOST_REPAIRS:
            raise _error(text, place, "too much to be repaired")
        before = before if kind == "blank" else found[0]
    whole = "".join(sound)
    try:
        value: Json = json.loads(whole, object_pairs_hook=pairs, strict=False)
    except json.JSONDecodeError as exc:
        raise _error(whole, exc.pos, exc.msg[:1].lower() + exc.msg[1:]) from None
    return value, tuple(repairs)


def _mended(found: re.Match[str], before: str) -> tuple[str, str]:
    """Give a piece as JSON has it, and what was repaired in it, "" for nothing; *before* is the one that it follows."""
    piece, kind = found[0], found.lastgroup
    if kind == "text":
        return _string(found)
    if kind == "quote":
        raise _error(found.string, found.start(), "a string without its closing quote")
    if kind == "word" and (piece in _LITERALS or _is_number(piece)):
        return piece, ""
    if kind == "comma" and before in _NO_ITEMS:
        return piece, ""
    mended = {
        "lone": (r'"\\"', "a lone backslash"),
        "comma": ("", "a trailing comma"),
        "name": (f'"{piece}"', "a property name without quotes"),
        "word": (f'"{piece}"', "a value without quotes"),
        "blank": (_ODD_BLANK.sub(" ", piece), ""),
    }
    return mended.get(kind or "", (piece, ""))


def _is_number(word: str) -> bool:
    """What is beyond all floats is text: JSON has no word for infinity."""
    return _NUMBER.fullmatch(word) is not None and math.isfinite(float(word))


def _string(found: re.Match[str]) -> tuple[str, str]:
    """Escape the backslashes that escape nothing, and so stand for themselves."""
    text = _BACKSLASH.sub(lambda it: it[0] if it[1] else r"\\", found[0])
    if _SURROGATE.search(json.loads(text, strict=False)):
        raise _error(found.string, found.start(), "a string that is not valid Unicode")
    return text, "" if text == found[0] else "an unescaped backslash"


def _line(text: str, at: int) -> int:
    return text.count("\n", 0, at) + 1


def _error(text: str, at: int, reason: str) -> NotJsonError:
    column = at - text.rfind("\n", 0, at)
    next_one = text[at : at + 1]
    found = ascii(next_one) if next_one else "the end of the file"
    return NotJsonError(reason, _line(text, at), column, found)
