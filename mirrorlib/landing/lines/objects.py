"""Parse JSON lines: text in, the objects of whole lines out, a block at a time.

A line that is no object, or that says one thing twice, fails the file with its number, never with its
content. Blank lines are none; the last line needs no end. Text is UTF-8, compression is told by
content.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO, NoReturn

from mirrorlib.errors import ChangeFileError
from mirrorlib.landing.columns import LONGEST_ROW
from mirrorlib.landing.delimited.text import Origin, iter_text
from mirrorlib.landing.lines.literals import Number
from mirrorlib.store import StoredFile


@dataclass(frozen=True, slots=True)
class Objects:
    """The objects of whole lines, and the line of each, counted from 1."""

    rows: list[dict[str, Any]]
    lines: list[int]

    def names(self) -> list[str]:
        """Return the names that occur, in the order in which they come."""
        found: dict[str, Any] = {}
        for row in self.rows:
            found |= row
        return list(found)

    def values(self, name: str) -> list[Any]:
        """Return a column's values; what a row lacks is NULL."""
        return [row.get(name) for row in self.rows]


def iter_objects(
    handle: BinaryIO, file: StoredFile, origin: Origin, block_bytes: int, *, once: bool
) -> Iterator[Objects]:
    """Give the objects of a file, a block of lines at a time; *once* sees that none says one thing twice.

    Raises:
        ChangeFileError: the file is empty or cut short, or a line is no object.

    """
    if file.size == 0:
        msg = "the change file has no bytes; it may be an upload under way"
        raise origin.fault(msg, found="0 bytes")
    decoder = json.JSONDecoder(
        object_pairs_hook=_object if once else None,
        parse_float=Number,
        parse_constant=_refuse_constant,
    )
    first = 1
    for lines in _iter_lines(iter_text(handle, "utf-8", origin, block_bytes=block_bytes), origin):
        piece = _parsed(lines, first, decoder, origin)
        if piece.rows:
            yield piece
        first += lines.count(b"\n")


def _iter_lines(blocks: Iterator[bytes], origin: Origin) -> Iterator[bytes]:
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
            step = "Write one object a line; a JSON document over many lines is no JSON lines."
            raise origin.fault(msg, line=line, next_step=step)
    yield b"".join(waiting)


def _parsed(text: bytes, first: int, decoder: json.JSONDecoder, origin: Origin) -> Objects:
    rows: list[dict[str, Any]] = []
    lines: list[int] = []
    for number, line in enumerate(_decoded(text, first, origin).split("\n"), start=first):
        if line.isspace() or not line:
            continue
        try:
            row = decoder.decode(line)
        except (ValueError, RecursionError) as exc:
            raise _no_json(exc, number, origin) from exc
        if type(row) is not dict:
            raise _no_object(row, number, origin)
        rows.append(row)
        lines.append(number)
    return Objects(rows, lines)


def _decoded(text: bytes, first: int, origin: Origin) -> str:
    try:
        return text.decode()
    except UnicodeDecodeError as exc:
        line = first + text.count(b"\n", 0, exc.start)
        found = "the byte 0x" + text[exc.start : exc.start + 1].hex()
        step = "Publish it in UTF-8."
        msg = "the text is not utf-8"
        raise origin.fault(msg, line=line, found=found, next_step=step) from exc


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        msg = "a name is given twice in one object"
        raise ValueError(msg)
    return found


def _refuse_constant(name: str) -> NoReturn:
    msg = f"{name} is no number in JSON"
    raise ValueError(msg)


def _no_json(exc: ValueError | RecursionError, line: int, origin: Origin) -> ChangeFileError:
    """Say why a line cannot be read; what the parser says of it shows no data."""
    found = str(exc)[:80]
    if isinstance(exc, json.JSONDecodeError):
        found = f"{exc.msg}, character {exc.colno}"
    elif isinstance(exc, RecursionError):
        found = "objects or arrays nested too deep"
    msg = "the line is not JSON; the file may be an upload under way"
    return origin.fault(msg, line=line, found=found)


def _no_object(row: object, line: int, origin: Origin) -> ChangeFileError:
    kinds = {list: "an array", str: "a string", bool: "true or false", type(None): "null"}
    msg = "the line is no JSON object"
    step = "Write one object a line, without an array around them."
    found = kinds.get(type(row), "a number")
    return origin.fault(msg, line=line, found=found, next_step=step)
