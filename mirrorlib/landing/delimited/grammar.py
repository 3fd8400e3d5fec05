"""A dialect as patterns: where rows end, what their fields mean, what pyarrow has to be told.

In: a `Dialect` and the kind of line end. Out: a `Grammar`, which holds to what docs/format.md says of rows and fields.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

import pyarrow as pa
import pyarrow.compute as pc

from mirrorlib.landing.delimited.dialect import Dialect

_FEW, _MANY = 1 << 13, 1 << 24  # bytes: RE2 costs 0.1 ms to begin, and three copies of the text
_SHIELDS = "\x1f\x1e\x1d"  # for line ends that are data, where the dialect has no escape character
_EMPTY_LINES = frozenset({b"\n", b"\r\n", b"\r"})
_LINE_ENDS = {None: rb"(?:\r\n|\n|\r)", b"\n": rb"\r?\n", b"\r": rb"\r\n?"}
_STRAYS = {b"\n": rb"\r(?!\n)", b"\r": rb"(?<!\r)\n"}
_NEVER = rb"(?!)"


@dataclass(frozen=True, slots=True)
class Piece:
    """Whole rows, and the line on which the first starts, counted from 1."""

    text: bytes
    line: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Grammar:
    """A dialect as patterns, for one kind of line end."""

    line_end: bytes  # what counts as a line: a line feed or a carriage return
    quote: bytes  # empty when nothing is quoted
    escape: bytes  # empty when nothing is escaped, or only by doubling the quote
    shield: bytes  # what escapes line ends that are data, for pyarrow
    row: re.Pattern[bytes]  # one row with its end
    rows: str  # all whole rows, where values are quoted: for RE2, in a third of the time
    begun: re.Pattern[bytes]  # the whole fields that an unfinished row begins with
    unended: re.Pattern[bytes]  # a field that the text's end cuts off
    field: re.Pattern[bytes]  # one field (group 1) and what ends it
    pair: re.Pattern[bytes]  # an escape character with what it takes the meaning from (group 1)
    # What pyarrow reads in another way: pairs, to be kept (group 1), else what to escape.
    foreign: re.Pattern[bytes]

    def cut(self, text: bytes, *, last: bool) -> int:
        """Return where the last whole row ends; *last* says that no more text follows."""
        mark = self.quote or self.escape
        if self.line_end == b"\n" and not (mark and mark in text):
            return text.rfind(b"\n") + 1
        # A carriage return at the end may be half of a line end.
        limit = len(text) - (not last and text.endswith(b"\r"))
        if self.quote and _FEW <= limit <= _MANY:
            binary = pa.scalar(text[:limit], pa.large_binary())
            return limit - len(pc.replace_substring_regex(binary, self.rows, "").as_py())
        place = 0
        while found := self.row.match(text, place, limit):
            place = found.end()
        return place

    def escapes(self, text: bytes, place: int) -> bool:
        """Say whether the line end at *place* is data: escaped, which it can be where nothing is quoted."""
        if self.quote or not self.escape:
            return False
        before = text[:place]
        return (place - len(before.rstrip(self.escape))) % 2 == 1

    def rows_of(self, piece: Piece, *, width: int) -> Iterator[tuple[int, bytes]]:
        """Give each row's line and its text; empty lines are rows of one column only."""
        line, place = piece.line, 0
        while found := self.row.match(piece.text, place):
            if width == 1 or found[0] not in _EMPTY_LINES:
                yield line, found[0]
            line += found[0].count(self.line_end)
            place = found.end()

    def fields(self, row: bytes) -> list[bytes]:
        """Split a row, which has its end, into its fields as they are written."""
        return [found[1] for found in self.field.finditer(row)]

    def meaning(self, field: bytes) -> bytes:
        """Return what a written field means."""
        if self.quote and field.startswith(self.quote):
            field = field[1:-1].replace(self.quote * 2, self.quote)
        return self.pair.sub(rb"\1", field)

    def for_arrow(self, text: bytes) -> tuple[bytes, bytes]:
        """Write rows so that pyarrow reads what they mean; return also its escape character."""
        other = b"\r" if self.line_end == b"\n" else b"\n"
        strays = text.count(other) != text.count(b"\r\n")  # a line end of the other kind is data
        if not strays and not (self.escape and self.escape in text):
            return text, self.escape
        text = self.foreign.sub(lambda it: it[0] if it[1] else self.shield + it[0], text)
        return text, self.shield


@lru_cache(maxsize=64)
def grammar_of(dialect: Dialect, line_end: bytes | None = None) -> Grammar:
    """Write a dialect as patterns.

    Every text has one reading only, so that a match that fails has no second one to try: loops are possessive, as the
    ways back that `re` would keep take many times the memory of a long value. *line_end* is the kind of line end;
    None for a header, which may have any.
    """
    escape = "" if dialect.escape == dialect.quote else dialect.escape
    taken = dialect.column_separator + dialect.quote
    shield = escape or next(mark for mark in _SHIELDS if mark not in taken)
    marks = (dialect.column_separator, dialect.quote, escape)
    s, q, e = (re.escape(mark.encode()) for mark in marks)
    end = _LINE_ENDS[line_end]
    pair = _pair(s, q, e)
    quoted, field = _field(s, q, e, pair, line_end)
    row = rb"%b(?:%b%b)*+%b" % (field, s, field, end)
    kept = rb"(%b%b)" % (e, pair) if e else rb"(%b)" % _NEVER
    lone = rb"%b|%b" % (re.escape(shield.encode()), _STRAYS[line_end or b"\n"])
    return Grammar(
        line_end=line_end or b"\n",
        quote=dialect.quote.encode(),
        escape=escape.encode(),
        shield=shield.encode(),
        row=re.compile(row),
        rows=_rows(marks, line_end or b"\n"),
        begun=re.compile(rb"%b(?:%b%b)*+" % (field, s, field)),
        unended=re.compile(rb"%b?%b(?:%b|%b)?\Z" % (s, quoted, q, e or q) if q else _NEVER),
        field=re.compile(rb"(%b)(?:%b|%b)" % (field, s, end)),
        pair=re.compile(rb"%b(%b)" % (e, pair) if e else _NEVER + rb"()"),
        foreign=re.compile(rb"%b|%b" % (kept, lone)),
    )


def _rows(marks: Sequence[str], line_end: bytes) -> str:
    """Give the pattern of all whole rows that a text with quotes begins with: RE2 looks at nothing ahead."""
    s, q, e, n = (f"\\x{ord(mark):02x}" if mark else "" for mark in (*marks, line_end.decode()))
    pair, alone = (f"|{e}[{s}{q}{e}]|{e}[^{s}{q}{e}{n}]", f"{e}?") if e else ("", "")
    plain = f"(?:(?:[^{s}{q}{e}{n}]{pair})(?:[^{s}{e}{n}]{pair})*)?"
    quoted = f"{q}(?:[^{q}{e}]|{q}{q}{f'|{e}(?s:.)' if e else ''})*{q}"
    last = f"(?:{quoted}|{plain}{alone})"
    return rf"\A(?:(?:(?:{quoted}|{plain}){s})*{last}{_LINE_ENDS[line_end].decode()})*"


def _pair(s: bytes, q: bytes, e: bytes) -> bytes:
    """What an escape character takes the meaning from."""
    if q:
        return rb"[%b%b%b]" % (s, q, e)
    # Before a carriage return with its line feed it is data: nobody escapes half a line end.
    return rb"(?:[%b%b\n]|\r(?!\n))" % (s, e)


def _field(
    s: bytes, q: bytes, e: bytes, pair: bytes, line_end: bytes | None
) -> tuple[bytes, bytes]:
    """Give the patterns of a quoted field without its closing quote, and of any field."""
    other = rb"[^%b%b%b]*" % (s, e, line_end or b"\r\n")
    plain = rb"%b(?:%b(?:%b|(?!%b))%b)*+" % (other, e, pair, pair, other) if e else other
    if not q:
        return _NEVER, plain
    inner = rb"[^%b%b]*+" % (q, e)
    kept = rb"%b%b|%b(?s:.)" % (q, q, e) if e else rb"%b%b" % (q, q)
    quoted = rb"%b%b(?:(?:%b)%b)*+" % (q, inner, kept, inner)
    ended = rb"%b%b(?=%b|%b)" % (quoted, q, s, _LINE_ENDS[line_end])
    return quoted, rb"(?:%b|(?!%b)%b)" % (ended, q, plain)
