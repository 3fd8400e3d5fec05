"""Delimited text, any of it: what plain Python writes is read back, in bounded memory."""

from __future__ import annotations

import base64
import csv
import io
import string
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, date, datetime, time, timedelta, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from mirrorlib.errors import MirrorError
from mirrorlib.landing.delimited.dialect import Dialect
from mirrorlib.landing.delimited.grammar import grammar_of
from mirrorlib.landing.delimited.tables import iter_tables, read_header
from mirrorlib.landing.delimited.text import TextFile
from mirrorlib.store import StoredFile
from texts import dialect, listed, refusal, rows, written

ENCODINGS = ("utf-8", "utf-8-sig", "utf-16", "cp1252", "shift_jis", "gb18030", "ascii", "cp037")
MARKED = {"utf-8-sig": "utf-8"}
LETTERS: dict[str, st.SearchStrategy[str]] = {
    codec: st.characters(exclude_categories=["Cs"])
    if codec.startswith("utf")
    else st.sampled_from(bytes(range(256)).decode(codec, "ignore") + "日本表ソ終é€")
    for codec in ENCODINGS
}
BLOCKS = st.sampled_from([10, 11, 16, 29, 64, 1 << 16])
ENDS = st.sampled_from(["\n", "\r\n", "\r"])


@st.composite
def dialects(draw: st.DrawFn) -> Dialect:
    """Any dialect that a publisher may state."""
    separator = draw(st.sampled_from(",;|\t \x1f-^"))
    quote = draw(st.sampled_from(['"', "'", ""]))
    return dialect(
        column_separator=separator,
        row_separator=draw(ENDS),
        quote=quote,
        escape=draw(st.sampled_from(["\\", "/", '"' if quote else "", ""])),
        null_value=draw(st.sampled_from([None, "", "N/A", "\\N", "null"])),
        encoding=draw(st.sampled_from(ENCODINGS)),
    )


def texts(how: Dialect) -> st.SearchStrategy[str]:
    """Text with many of the characters that mean something, as far as the dialect can write them."""
    marks = [how.column_separator, how.quote, how.escape, "\r", "\n", " ", "\x1f", "\x1e", "N/A"]
    loud = st.lists(st.sampled_from([mark for mark in marks if mark]), max_size=6).map("".join)
    quiet = st.text(LETTERS[how.encoding], max_size=6)
    mixed = st.builds(str.__add__, loud, quiet) | st.builds(str.__add__, quiet, loud)
    return mixed.filter(lambda value: _writable(value, how))


def _writable(value: str, how: Dialect) -> bool:
    if value.encode(how.encoding, "replace").decode(how.encoding) != value:
        return False  # two characters share a code, or there is none
    if how.quote:
        return True
    if value in {"", how.null_value}:
        return False
    if how.escape:
        return not value.endswith("\r")  # before an LF it would look like a row's end
    return not set(value) & {how.column_separator, "\r", "\n"}


@given(dialects(), st.sampled_from([b"\n", b"\r"]), st.booleans(), st.data())
def test_much_text_ends_where_its_rows_end_one_by_one(
    how: Dialect, end: bytes, last: bool, data: st.DataObject
) -> None:
    """Much of it is looked through by another engine of patterns than a little."""
    marks = [how.column_separator, how.quote, how.escape, "a", "é", "\r", "\n", "\r\n"]
    some = st.lists(st.sampled_from([mark for mark in marks if mark]), min_size=1, max_size=12)
    begin, again = ("".join(data.draw(some)).encode() for _ in range(2))
    text, grammar = begin + again * 8_200, grammar_of(how, end)
    place, limit = 0, len(text) - (not last and text.endswith(b"\r"))
    while found := grammar.row.match(text, place, limit):
        place = found.end()

    assert place == grammar.cut(text, last=last)


@given(st.data())
def test_any_text_in_any_dialect_is_read_back(data: st.DataObject) -> None:
    """Whatever is quoted, escaped or neither, in any encoding, however the blocks are cut."""
    how = data.draw(dialects())
    names = [f"c{place}" for place in range(data.draw(st.integers(1, 4)))]
    fields = st.none() | texts(how)
    lines = data.draw(st.lists(st.tuples(*[fields] * len(names)), max_size=8))
    spell = data.draw(st.integers(0, 20))
    text = written(names, lines, how, spell=spell)
    stated = replace(how, encoding=MARKED.get(how.encoding, how.encoding))
    while (
        len(names) == 1
        and lines
        and lines[-1] == (None,)
        and not (how.null_value and (spell + len(lines)) % 3 == 0)  # spelled out, as `written` does
    ):
        lines.pop()  # an empty line at the file's end is no row

    found = rows(text.encode(how.encoding), stated, block_bytes=data.draw(BLOCKS))

    assert lines == found


@given(st.text(st.sampled_from('",\nab '), max_size=40), BLOCKS)
def test_any_text_means_what_pythons_strict_reader_says(body: str, block_bytes: int) -> None:
    """An oracle of another make: the same rows, or a refusal by both."""
    how = dialect({"a": "String", "b": "String"}, escape="")
    text = f"a,b\n{body}"
    try:
        expected = [row for row in csv.reader(io.StringIO(text, newline=""), strict=True) if row]
    except csv.Error:
        expected = [[]]

    if all(len(row) == 2 for row in expected):
        found = rows(text.encode(), how, block_bytes=block_bytes)
        assert [tuple(row) for row in expected[1:]] == [(a or "", b or "") for a, b in found]
    else:
        error = refusal(text.encode(), how, block_bytes=block_bytes)
        assert error.line is not None
        assert 2 <= error.line <= text.count("\n") + 1


@pytest.mark.parametrize("line_end", ["\n", "\r"])
@given(st.data())
def test_the_size_of_a_block_changes_nothing(line_end: str, data: st.DataObject) -> None:
    """Neither rows nor a refusal, however odd the text: stray line ends, blank lines, half a file."""
    alphabet = st.sampled_from(["a", "N", ",", '"', "\\", "\n", "\r", "\r\n", "\x1f"])
    names = data.draw(st.sampled_from(["a", "a,b"]))
    body = "".join(data.draw(st.lists(alphabet, max_size=12)))
    quote = data.draw(st.sampled_from(['"', ""]))
    how = dialect(quote=quote, null_value="N")
    text = f"{names}{line_end}x{body}".encode()

    found = [outcome(text, how, block_bytes) for block_bytes in (10, 11, 1 << 16)]

    assert found[0] == found[1] == found[2]


def outcome(text: bytes, how: Dialect, block_bytes: int) -> object:
    """Give a file's rows, or what is said of it in place of them."""
    try:
        return rows(text, how, block_bytes=block_bytes)
    except MirrorError as exc:
        return exc.reason, exc.line


WRITERS: list[tuple[dict[str, Any], dict[str, str]]] = [
    ({}, {"escape": ""}),
    ({"quoting": csv.QUOTE_ALL}, {"escape": ""}),
    ({"quoting": csv.QUOTE_NONNUMERIC, "quotechar": "'"}, {"escape": "'", "quote": "'"}),
    ({"quoting": csv.QUOTE_ALL, "doublequote": False, "escapechar": "\\"}, {}),
    ({"doublequote": False, "escapechar": "/"}, {"escape": "/"}),
    ({"quoting": csv.QUOTE_ALL, "delimiter": "\t"}, {"escape": "", "column_separator": "\t"}),
    ({"quoting": csv.QUOTE_NONE, "escapechar": "\\", "quotechar": None}, {"quote": ""}),
]


@given(st.data())
@pytest.mark.parametrize("options,stated", WRITERS)
def test_what_pythons_writer_writes_is_read_back(
    options: dict[str, Any], stated: dict[str, str], data: st.DataObject
) -> None:
    """In each of its ways; most publishers' scripts use it, or pandas, which does."""
    values = st.text(st.sampled_from("ab \"',;\t\n\\/é"), min_size=1, max_size=6)
    lines = data.draw(st.lists(st.tuples(values, values, values), max_size=6))
    end = data.draw(st.sampled_from(["\n", "\r\n"]))
    file = io.StringIO(newline="")
    writer = csv.writer(file, lineterminator=end, **options)
    writer.writerows([("a", "b", "c"), *lines])
    how = dialect({"a": "String"}, row_separator=end, **stated)

    assert lines == rows(file.getvalue().encode(), how, block_bytes=data.draw(BLOCKS))


DAYS = st.dates()
MOMENTS = st.datetimes(datetime(2, 1, 1), datetime(9998, 1, 1))  # zones come after
ZONES = st.integers(-14 * 60, 14 * 60).map(lambda minutes: timezone(timedelta(minutes=minutes)))
VALUES: dict[str, st.SearchStrategy[tuple[str, Any]]] = {
    "Int16": st.integers(-(2**15), 2**15 - 1).map(lambda v: (str(v), v)),
    "Int32": st.integers(-(2**31), 2**31 - 1).map(lambda v: (f"{v}.0", v)),
    "Int64": st.integers(-(2**63), 2**63 - 1).map(lambda v: (f" {v:+}", v)),
    "Double": st.floats(allow_nan=False).map(lambda v: (repr(v), v)),
    "Single": st.floats(allow_nan=False, width=32).map(lambda v: (repr(v), v)),
    "Boolean": st.booleans().map(lambda v: (str(v), v)),
    "IDate": DAYS.map(lambda v: (v.isoformat(), v)),
    "ITime": st.times().map(lambda v: (v.isoformat(), v.isoformat("microseconds"))),
    "DateTime": st.tuples(MOMENTS, ZONES).map(
        lambda v: (v[0].replace(tzinfo=v[1]).isoformat(), v[0].replace(tzinfo=v[1]))
    ),
    "ByteArray": st.binary().map(lambda v: (base64.b64encode(v).decode(), v or None)),
    "String": st.text(string.printable).map(lambda v: (v, v)),
}


@given(st.data())
def test_any_value_of_any_type_is_read_back(data: st.DataObject) -> None:
    """As Python writes it, next to NULLs."""
    kinds = data.draw(st.lists(st.sampled_from(sorted(VALUES)), min_size=2, max_size=5))
    how = dialect({f"c{place}": kind for place, kind in enumerate(kinds)}, null_value="N/A")
    pairs = st.tuples(*(st.just((None, None)) | VALUES[kind] for kind in kinds))
    lines = data.draw(st.lists(pairs, max_size=8))
    firsts = [
        next((line[place][0] for line in lines if line[place][0]), "")
        for place in range(len(kinds))
    ]
    assume(not any(k == "ByteArray" and f[:2] == "0x" for k, f in zip(kinds, firsts, strict=True)))

    text = written(
        [f"c{place}" for place in range(len(kinds))],
        [[field for field, _ in line] for line in lines],
        how,
        spell=data.draw(st.integers(0, 20)),
    )

    expected = [tuple(value for _, value in line) for line in lines]
    assert expected == rows(text.encode(), how, block_bytes=data.draw(BLOCKS))


@given(st.data())
def test_the_line_of_a_bad_value_is_where_an_editor_shows_it(data: st.DataObject) -> None:
    """However many line ends are quoted before it, and however the blocks are cut."""
    end = data.draw(ENDS)
    inner = st.text(st.sampled_from('ab,"' + end[-1]), max_size=5)
    before = data.draw(st.lists(st.tuples(inner, st.just("1")), max_size=8))
    how = dialect({"a": "String", "b": "Int32"}, row_separator=end, escape="")
    good = written(["a", "b"], before, how, spell=1)
    text = good + "".join(f"x,{value}{end}" for value in ("bad", "2", "3"))

    error = refusal(text.encode(), how, block_bytes=data.draw(BLOCKS))

    mark = "\r" if end == "\r" else "\n"
    assert (1 + good.count(mark), len(before)) == (error.line, error.row)


def fifty_megabytes(path: Path) -> StoredFile:
    """Write a file of quoted, escaped and typed values."""
    row = b'%d,"a value, with ""quotes"" of some length, and more of it",2025-06-17T14:30:00Z,1.5,4\r\n'
    block = b"".join(row % number for number in range(10_000))
    with path.open("wb") as file:
        file.write(b"id,text,moment,amount,__rowMarker__\r\n")
        for _ in range((50 << 20) // len(block) + 1):
            file.write(block)
    return replace(listed(b"x"), size=path.stat().st_size)


def peaks(tables: Iterator[pa.Table], seen: list[int]) -> Iterator[int]:
    """Give each table's rows, and note what Arrow holds meanwhile."""
    for table in tables:
        seen.append(pa.total_allocated_bytes())
        yield len(table)


def test_a_large_file_is_read_in_bounded_memory(tmp_path: Path) -> None:
    """Fifty megabytes pass through less than a fifth of that, header to last row."""
    file = fifty_megabytes(tmp_path / "1.csv")
    how = dialect({"id": "Int32", "text": "String", "moment": "DateTime", "amount": "Double"})
    before = pa.total_allocated_bytes()
    seen: list[int] = []

    with (tmp_path / "1.csv").open("rb") as handle:
        text = TextFile(handle, file, how, "orders", block_bytes=1 << 20)
        found = iter_tables(text, read_header(text))
        total = sum(peaks(found, seen))

    assert 0 == total % 10_000
    assert file.size > 50 << 20
    assert max(seen) - before < 10 << 20


def test_a_header_costs_one_block_of_a_large_file(tmp_path: Path) -> None:
    """Planning opens every file of a backlog."""
    file = replace(listed(b"x"), size=1 << 20)
    (tmp_path / "1.csv").write_bytes(b"id,v\n" + b"1,x\n" * (1 << 18))

    with (tmp_path / "1.csv").open("rb", buffering=0) as handle:
        schema = read_header(TextFile(handle, file, dialect({"id": "Int32"}), "orders"))

        assert 1 << 16 == handle.tell()
    assert ("v",) == schema.undeclared


def test_a_long_row_is_longer_than_many_blocks() -> None:
    """It is looked at again only when there is twice as much of it."""
    value = 'x,"\n' * 300_000
    how = dialect({"a": "Int32", "b": "String"}, escape="")
    text = written(["a", "b"], [("1", "y"), ("2", value), ("3", "z")], how, spell=1)

    found = rows(text.encode(), how, block_bytes=1 << 12)

    assert [(1, "y"), (2, value), (3, "z")] == found


@pytest.mark.parametrize("block_bytes", [10, 4096])
def test_times_of_day_and_days_are_python_values(block_bytes: int) -> None:
    """A plain example beside the random ones."""
    how = dialect({"d": "IDate", "t": "ITime"})
    data = f"d,t\n{date(2025, 6, 17)},{time(14, 30)}\n".encode()

    assert [(date(2025, 6, 17), "14:30:00.000000")] == rows(data, how, block_bytes=block_bytes)


def test_an_instant_is_utc_whatever_zone_it_was_written_in() -> None:
    """The oracle above compares instants; this one shows the zone."""
    how = dialect({"d": "DateTime", "x": "String"})
    ((found, _),) = rows(b"d,x\n2025-06-17T14:30:00+02:00,\n", how)

    assert datetime(2025, 6, 17, 12, 30, tzinfo=UTC) == found
    assert timedelta(0) == found.utcoffset()
