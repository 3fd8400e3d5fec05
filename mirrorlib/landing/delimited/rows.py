"""Cut text where rows end: the header, then pieces that pyarrow can parse on their own.

In: a `TextFile`, whose blocks are cut anywhere. Out: the header's names and `Piece`s of whole rows, each with the
line it starts on. Promises: a piece is no larger than two blocks or its longest row; a quoted value
that never ends, or with text behind its closing quote, is refused on its line: pyarrow would take
either for something else. Where rows end: docs/format.md, "Delimited text".
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain

from mirrorlib.errors import ChangeFileError
from mirrorlib.landing.columns import LONGEST_ROW, MOST_COLUMNS
from mirrorlib.landing.delimited.grammar import Grammar, Piece, grammar_of
from mirrorlib.landing.delimited.text import TextFile, iter_text

LONGEST_HEADER = 4 << 20  # 30,000 columns of the longest names
OPEN_QUOTE = "a quoted value has no end; the file may be an upload under way"
NO_HEADER = "the change file has no header row; it may be an upload under way"


@dataclass(frozen=True, slots=True)
class Opened:
    """A file whose header is read."""

    file: TextFile
    names: tuple[str, ...]  # the header's, without blanks around them
    end: bytes  # how the header ends; empty when the file ends with it
    grammar: Grammar  # as the header's end settled it
    rest: Piece  # what was read behind the header
    blocks: Iterator[bytes]  # what is still to be read


def open_rows(file: TextFile) -> Opened:
    """Read the header."""
    blocks = iter_text(file)
    grammar, text = grammar_of(file.dialect), b""
    while True:
        block = next(blocks, None)
        bare = len(text) + len(block or b"")
        text = _with_end(text) if block is None else text + block
        _check_header(text, file)
        limit = len(text) - (block is not None and text.endswith(b"\r"))
        if found := grammar.row.match(text, 0, limit):
            break
        _check_unfinished(Piece(text, 1), grammar, file, LONGEST_HEADER, last=block is None)
    header = found[0]
    end = header[len(header.rstrip(b"\r\n")) :]
    if header == end:
        raise file.fault(NO_HEADER)
    settled = grammar_of(file.dialect, b"\r" if header.endswith(b"\r") else b"\n")
    check_utf8(Piece(header, 1), settled, file)
    names = tuple(grammar.meaning(field).decode().strip() for field in grammar.fields(header))
    rest = Piece(text[len(header) :], 1 + header.count(settled.line_end))
    return Opened(file, names, end if len(header) <= bare else b"", settled, rest, blocks)


def iter_pieces(opened: Opened) -> Iterator[Piece]:
    """Cut the rows behind the header into pieces; empty lines at the file's end are left out."""
    grammar, line = opened.grammar, opened.rest.line
    waiting, unfinished = [opened.rest.text], 0
    for block in chain(opened.blocks, (None,)):
        waiting.append(block or b"")
        # What is left of a long row is looked at again only when there is twice as much of it.
        if block is not None and sum(map(len, waiting)) < 2 * unfinished:
            continue
        text = b"".join(waiting)
        cut = grammar.cut(text, last=block is None)
        if block is None and text[cut:].strip(b"\r\n"):
            text = _with_end(text)
            cut = grammar.cut(text, last=True)
        whole = _before_empty_lines(text, cut, grammar) if len(opened.names) == 1 else cut
        if whole:
            yield Piece(text[:whole], line)
        if text[cut:].strip(b"\r\n"):
            begins = line + text.count(grammar.line_end, 0, cut)
            unended = Piece(text[cut:], begins)
            _check_unfinished(unended, grammar, opened.file, LONGEST_ROW, last=block is None)
        line += text.count(grammar.line_end, 0, whole)
        if cut - whole > LONGEST_ROW:
            msg = f"there are more than {LONGEST_ROW >> 20} MiB of empty lines"
            raise opened.file.fault(msg, line=line)
        waiting, unfinished = [text[whole:]], len(text) - whole


def check_utf8(piece: Piece, grammar: Grammar, file: TextFile) -> None:
    """Name the line of a piece on which UTF-8 ends."""
    try:
        piece.text.decode()
    except UnicodeDecodeError as exc:
        line = piece.line + piece.text.count(grammar.line_end, 0, exc.start)
        raise file.undecodable(exc, line, "utf-8") from exc


def _before_empty_lines(text: bytes, cut: int, grammar: Grammar) -> int:
    """Step back over empty lines: in one column they are rows, but not at the file's end."""
    ends = (b"\n",) if grammar.line_end == b"\n" else (b"\r", b"\r\n")
    while cut:
        before = cut - (2 if text.endswith(b"\r\n", 0, cut) else 1)
        if before and (not text.endswith(ends, 0, before) or grammar.escapes(text, before - 1)):
            return cut
        cut = before
    return cut


def _with_end(text: bytes) -> bytes:
    """End a last row that has no end: with both characters, which no escape takes for data."""
    return text + (b"\n" if text.endswith(b"\r") else b"\r\n")


def _check_unfinished(
    piece: Piece, grammar: Grammar, file: TextFile, most: int, *, last: bool
) -> None:
    """See that what has no row's end yet may still get one."""
    text = piece.text if last else piece.text.removesuffix(b"\r")  # half a row's end, perhaps
    begun = grammar.begun.match(text)
    place = begun.end() if begun else 0
    unended = grammar.unended.match(text, place)
    if len(text) > most:
        msg = f"a row is longer than {most >> 20} MiB; a quoted value may have no end"
        raise file.fault(msg, line=piece.line)
    if not last and (unended or place == len(text)):
        return
    line = piece.line + text.count(grammar.line_end, 0, place)
    hint = file.no_escape(text[place:])
    if unended:
        raise file.fault(OPEN_QUOTE, line=line, next_step=ChangeFileError.advice + hint)
    msg = "there is text behind a closing quote"
    step = "Double or escape the quotes inside quoted values, and publish the file again."
    raise file.fault(msg, line=line, next_step=step + hint)


def _check_header(text: bytes, file: TextFile) -> None:
    """See that what has no end yet, or no end of columns, is no header before a pattern looks at all of it."""
    end = re.search(rb"[\r\n]", text)
    length = end.start() if end else len(text)
    msg, found = "", f"the first line has {length:,} bytes"
    if text.count(file.dialect.column_separator.encode(), 0, length) >= MOST_COLUMNS:
        msg = f"the file has more than {MOST_COLUMNS:,} columns"
    elif length > LONGEST_HEADER:
        msg = f"the header row is longer than {LONGEST_HEADER >> 20} MiB"
    if msg:
        step = "See whether the file is text, and has a header row."
        raise file.fault(msg, found=found, next_step=step)
