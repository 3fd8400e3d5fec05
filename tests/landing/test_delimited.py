"""Delimited text: rows come out as they were meant, or the file is refused on its line."""

from __future__ import annotations

import io
from datetime import UTC, date, datetime
from pathlib import Path

import pyarrow as pa
import pytest

from mirrorlib.errors import ChangeFileError, FileChangedError, SchemaError
from mirrorlib.landing.delimited.dialect import Dialect
from mirrorlib.landing.delimited.tables import iter_tables, read_header
from mirrorlib.landing.delimited.text import TextFile
from mirrorlib.store import open_store
from texts import dialect, header, listed, refusal, rows, tables

AB = dialect({"a": "String", "b": "String"})
ID = dialect({"id": "Int32", "v": "String"})
BARE = dialect({"a": "String", "b": "String"}, quote="", escape="")
GOOD_FILE = "Publish a good file under the same name; the next run reads it."
NO_ESCAPE = ' Where \\ is data, state "EscapeCharacter": "\\"" in _metadata.json.'


@pytest.mark.parametrize(
    "stated,data",
    [
        ("\r\n", b"id,v\r\n1,x\r\n2,y\r\n"),
        ("\r\n", b"id,v\n1,x\n2,y\n"),
        ("\r\n", b"id,v\r\n1,x\n2,y\r\n"),
        ("\r\n", b"id,v\r1,x\r2,y"),
        ("\n", b"id,v\r\n1,x\r\n2,y"),
        ("\n", b"id,v\n1,x\n2,y"),
        ("\r", b"id,v\n1,x\n2,y\n"),
        ("\r", b"id,v\r1,x\r2,y\r"),
        ("\r", b"id,v\r1,x\r\n2,y\r\n"),
    ],
)
@pytest.mark.parametrize("block_bytes", [10, 11, 12, 13, 1000])
def test_q26_rows_end_as_the_header_does_whatever_is_declared(
    stated: str, data: bytes, block_bytes: int
) -> None:
    r"""A declared `\r\n` with LF data is what a publisher really ships, last line unterminated."""
    how = dialect({"id": "Int32", "v": "String"}, row_separator=stated)

    assert [(1, "x"), (2, "y")] == rows(data, how, block_bytes=block_bytes)


def test_q26_the_marker_is_found_by_name_and_not_in_the_definition() -> None:
    """First, in the middle or last, in any case; it comes out as text, under its own name."""
    for place in range(3):
        names, values = ["id", "v"], ["1", "x"]
        names.insert(place, "__ROWMARKER__")
        values.insert(place, "4")
        data = f"{','.join(names)}\n{','.join(values)}\n".encode()

        found = header(data, ID)
        table = tables(data, ID)[0]

        assert ["id", "v"] == [column.name for column in found.columns]
        assert ("__ROWMARKER__", pa.string()) == (found.marker, found.marker_type)
        assert names == table.column_names
        assert {"id": 1, "v": "x", "__ROWMARKER__": "4"} == table.to_pylist()[0]


def test_q26_a_column_that_is_not_declared_is_text_and_reported() -> None:
    """One publisher's fifth file has such a column, and no marker."""
    found = header(b"id,v,since\n1,x,2025-01-01\n", ID)

    assert ("since",) == found.undeclared
    assert None is found.marker
    assert [(1, "x", "2025-01-01")] == rows(b"id,v,since\n1,x,2025-01-01\n", ID)


def test_q26_a_declared_column_may_be_missing_and_in_another_place() -> None:
    """A delete needs its keys only; columns go by name, without regard to case and blanks."""
    found = header(b"\xef\xbb\xbf V ,ID\nx,1\n", ID)

    assert [("V", pa.string()), ("ID", pa.int32())] == [(c.name, c.type) for c in found.columns]
    assert (-1, -1, ()) == (found.rows, found.decoded_bytes, found.undeclared)
    assert [("x", 1)] == rows(b"\xef\xbb\xbf V ,ID\nx,1\n", ID)
    assert [(7, "2")] == rows(b"id,__rowMarker__\n7,2\n", ID)


@pytest.mark.parametrize("block_bytes", [16, 1 << 20])
def test_a_byte_order_mark_inside_of_a_file_is_part_of_a_value(block_bytes: int) -> None:
    """Wherever a block begins: only the first character of a file is none."""
    values = ["\ufeffA1", "\ufeff\ufeffA2", "A3", "\ufeff", "\ufeffA4"]
    data = "v\r\n" + "".join(f"{value}\r\n" for value in values)

    assert [(value,) for value in values] == rows(
        data.encode("utf-8-sig"), ID, block_bytes=block_bytes
    )


def test_q34_a_file_of_a_header_alone_has_no_rows() -> None:
    """Its one table is empty, and typed."""
    for data in (b"id,v", b"id,v\n", b"id,v\r\n\r\n\r\n", b"\xef\xbb\xbfid,v\r"):
        (table,) = tables(data, ID)

        assert 0 == len(table)
        assert pa.schema([("id", pa.int32()), ("v", pa.string())]) == table.schema


def test_q34_a_file_without_bytes_may_be_an_upload_under_way() -> None:
    """It stops its table as a Parquet file does, and so does a file with nothing but line ends."""
    error = refusal(b"", ID)

    assert "the change file has no bytes; it may be an upload under way" == error.reason
    assert ("0 bytes", GOOD_FILE) == (error.found, error.next_step)
    for data in (b"\n", b"\r\n1,x\n", b"\xef\xbb\xbf", b"\r"):
        reason = "the change file has no header row; it may be an upload under way"
        assert reason == refusal(data, ID).reason


@pytest.mark.parametrize("null_value", [None, "", "N/A", "\\N", "0"])
def test_q39_nothing_a_quoted_nothing_and_both_null_values_are_four_things(
    null_value: str | None,
) -> None:
    """Nothing and the plain NullValue are NULL; quoted, either is the text itself."""
    how = dialect({"a": "String", "b": "String"}, null_value=null_value, escape="")
    plain = None if null_value else "N/A"
    word = null_value or "N/A"

    found = rows(f'a,b\n,""\n{word},"{word}"\n'.encode(), how)

    assert [(None, ""), (plain, word)] == found


@pytest.mark.parametrize(
    "declared", ["Int16", "Int32", "Int64", "Double", "Single", "DateTime", "IDate", "ITime"]
)
def test_q39_an_empty_field_is_null_in_every_type(declared: str) -> None:
    """So is a quoted empty one, or blanks: only a String can be empty."""
    how = dialect({"id": "Int32", "v": declared}, null_value="N/A")

    found = rows(b'id,v\n1,\n2,""\n3, \n4,N/A\n', how)

    assert [(1, None), (2, None), (3, None), (4, None)] == found
    error = refusal(b'id,v\n1,\n2,"N/A"\n', how)
    assert (3, 1, "v") == (error.line, error.row, error.column)
    assert "3 characters, letters and signs" == error.found


def test_q39_a_quoted_null_value_that_is_a_number_is_that_number() -> None:
    """-1 for nothing is common; quoted it is a value."""
    how = dialect({"id": "Int32", "v": "Int32"}, null_value="-1")

    assert [(None, -1)] == rows(b'id,v\n-1,"-1"\n', how)


@pytest.mark.parametrize(
    "declared,value",
    [
        ("Int16", "32768"),
        ("Int32", "-2147483649"),
        ("Int64", "9223372036854775808"),
        ("Int32", "40000000000.0"),
        ("Single", "3.5e38"),
        ("Double", "-1e309"),
    ],
)
def test_q40_an_overflow_names_the_declared_type_and_the_line(declared: str, value: str) -> None:
    """A publisher declared Int16 for what outgrew it."""
    how = dialect({"id": "String", "v": declared})

    error = refusal(f"id,v\n1,\n2,1\n3,{value}\n4,x\n".encode(), how)

    reason = f"the value is no {declared}, the type in SchemaDefinition"
    assert reason == error.reason
    assert (4, 2, "v") == (error.line, error.row, error.column)
    assert str(error.found).startswith(f"{len(value)} characters, ")
    assert "correct DataType in _metadata.json" in str(error.next_step)
    assert value not in str(error)


def test_q41_separators_line_ends_and_quotes_stand_in_quoted_values() -> None:
    """Quotes doubled or escaped; the line of what follows is still right."""
    data = b'a,b\n"x,y","l1\r\nl2\nl3\rl4"\n"q""q","e\\"e"\n"\\\\","""\n"""\n,bad,\n'

    error = refusal(data, AB)

    expected = [("x,y", "l1\r\nl2\nl3\rl4"), ('q"q', 'e"e'), ("\\", '"\n"')]
    for block_bytes in (10, 11, 17, 1000):
        assert expected == rows(data[: data.index(b",bad")], AB, block_bytes=block_bytes)
    assert (8, 3) == (error.line, error.row)


@pytest.mark.parametrize(
    "field,meaning",
    [
        (b"C:\\temp", "C:\\temp"),
        (b'"C:\\temp\\\\"', "C:\\temp\\"),
        (b'"\\n"', "\\n"),
        (b"a\\,b", "a,b"),
        (b'"a\\,b"', "a,b"),
        (b"\\\\share", "\\share"),
        (b'\\"a\\"', '"a"'),
        (b'"\\\\\\""', '\\"'),
        (b"\\N", "\\N"),
        (b'5" pipe', '5" pipe'),
        (b" x ", " x "),
        (b"'x'", "'x'"),
    ],
)
def test_q41_the_escape_character_means_only_what_it_is_for(field: bytes, meaning: str) -> None:
    """Before a quote, a separator and itself; a path of an unsuspecting publisher stays whole."""
    data = b"a,b\n" + field + b",2\n1," + field

    assert [(meaning, "2"), ("1", meaning)] == rows(data, AB)
    assert [(meaning, "2"), ("1", meaning)] == rows(data + b"\r\n", AB, block_bytes=10)


def test_q41_a_backslash_may_end_a_row() -> None:
    """Where values are quoted, nobody escapes a line end."""
    for end in (b"\n", b"\r\n", b"\r", b""):
        assert [("1", "C:\\temp\\")] == rows(b"a,b\n1,C:\\temp\\" + end, AB, block_bytes=10)


@pytest.mark.parametrize(
    "options,field,meaning",
    [
        ({"escape": ""}, b'"a\\"', "a\\"),
        ({"escape": ""}, b'"a""b"', 'a"b'),
        ({"escape": '"'}, b'"a""b\\"', 'a"b\\'),
        ({"escape": "/"}, b'"a/"b//"', 'a"b/'),
        ({"quote": "'"}, b"'a''b\"'", "a'b\""),
        ({"quote": "", "escape": ""}, b'"a"', '"a"'),
        ({"quote": "", "escape": ""}, b"\\", "\\"),
        ({"quote": ""}, b"a\\\nb\\,\\\\c", "a\nb,\\c"),
        ({"quote": ""}, b'"a\\"', '"a\\"'),
        ({"quote": ""}, b"C:\\", "C:\\"),
    ],
)
def test_q41_quote_and_escape_are_what_the_metadata_says(
    options: dict[str, str], field: bytes, meaning: str
) -> None:
    """Empty ones quote and escape nothing."""
    how = dialect({"a": "String", "b": "String"}, **options)
    for end in (b"\r\n", b"\r"):
        if field == b"C:\\" and end == b"\r":
            continue  # there a carriage return is escaped
        data = b"a,b" + end + b"1," + field + end + b"2,z" + end

        assert [("1", meaning), ("2", "z")] == rows(data, how, block_bytes=10)


@pytest.mark.parametrize("how", [AB, BARE, dialect({"a": "String"}, escape="", quote="'")])
def test_the_other_line_end_is_data(how: Dialect) -> None:
    """Where rows end in CR, an LF is data, and the reverse; whatever Arrow itself takes for ends."""
    for block_bytes in (10, 11, 12, 13, 1000):
        feeds = rows(b"a,b\r1,x\ny\r\x1f\n,\n\r", how, block_bytes=block_bytes)
        returns = rows(b"a,b\n1,x\ry\n\x1f\r,\r\r\n", how, block_bytes=block_bytes)

        assert [("1", "x\ny"), ("\x1f\n", "\n")] == feeds
        assert [("1", "x\ry"), ("\x1f\r", "\r")] == returns
        both = rows(b"a,b\r" + b"1,xy\r\n" * 20, how, block_bytes=block_bytes)
        assert [("1", "xy")] * 20 == both


def test_a_control_character_may_be_the_separator_beside_line_ends_in_data() -> None:
    """Whatever keeps line ends from Arrow must be none of the file's own marks."""
    for separator, other in ("\x1f\x1e", "\x1e\x1f", "\x01\x1f"):
        how = dialect({"a": "String"}, column_separator=separator, quote="\x1d", escape="")
        data = f"a{separator}b\n1{separator}x\ry{other}\n".encode()

        assert [("1", f"x\ry{other}")] == rows(data, how)


def test_q39_q40_q41_a_business_central_export_is_read() -> None:
    """The most used publisher of text: every text quoted, backslash escapes, empty dates, marker last."""
    how = dialect(
        {
            "timestamp-0": "Int64",
            "No-1": "String",
            "Amount-2": "Double",
            "Blocked-3": "Boolean",
            "PostingDate-4": "IDate",
            "Time-5": "ITime",
            "Status-6": "String",
            "systemCreatedAt-2000000001": "DateTime",
            "$Company": "String",
        }
    )
    data = (
        b"timestamp-0,No-1,Amount-2,Blocked-3,PostingDate-4,Time-5,Status-6,"
        b"systemCreatedAt-2000000001,$Company,__rowMarker__\r\n"
        b'512,"A \\"B\\" \\\\",-1.5,false,2025-06-17,14:30:00.5,Open,2025-06-17T14:30:00.120Z,"CRONUS, Ltd.",4\r\n'
        b'513,"",0,false,,,,,"CRONUS, Ltd.",2\r\n'
    )

    first, second = rows(data, how)

    created = datetime(2025, 6, 17, 14, 30, 0, 120000, UTC)
    day, company = date(2025, 6, 17), "CRONUS, Ltd."
    told = (512, 'A "B" \\', -1.5, False, day, "14:30:00.500000", "Open", created, company, "4")
    assert told == first
    assert (513, "", 0.0, False, None, None, None, None, company, "2") == second


@pytest.mark.parametrize("block_bytes", range(1, 20))
def test_an_escaped_line_end_before_an_empty_line_is_data(block_bytes: int) -> None:
    """Wherever the blocks are cut: what looks like two empty lines is the end of a value and one row's end."""
    how = dialect({"c": "String"}, quote="")

    found = rows(b"c\n" + b"\\\n\n\\\\\n\nb\n" * 5, how, block_bytes=block_bytes)

    assert [("\n",), ("\\",), (None,), ("b",)] * 5 == found


def test_empty_lines_are_no_rows_but_in_one_column() -> None:
    """There an empty line is one empty field, unless nothing follows."""
    assert [("1", "2"), ("3", "4")] == rows(b"a,b\n\n1,2\n\r\n\n3,4\n\n\n", AB)
    one = dialect({"a": "String"})
    for end in (b"\n", b"\r\n", b"\r"):
        data = end.join([b"a", b"", b"1", b"", b"", b'""', b"2", b"", b"", b""])
        for block_bytes in (10, 11, 12, 13, 1000):
            found = rows(data, one, block_bytes=block_bytes)

            assert [(None,), ("1",), (None,), (None,), ("",), ("2",)] == found


@pytest.mark.parametrize(
    "row,found,fewer",
    [
        (b"1", "1 in place of 2", True),
        (b"1,2,3", "3 in place of 2", False),
        (b'1,"2",', "3 in place of 2", False),
        (b'"1,2"', "1 in place of 2", True),
        (b"1,2\\,3,4,5", "4 in place of 2", False),
        (b" ", "1 in place of 2", True),
    ],
)
@pytest.mark.parametrize("block_bytes", [10, 1000])
def test_a_ragged_row_is_refused_on_its_line(
    row: bytes, found: str, fewer: bool, block_bytes: int
) -> None:
    """Empty lines and quoted ones before it count as lines."""
    data = b'a,b\n1,"2\n3"\n\n' + row + b"\n1,2\n"

    error = refusal(data, AB, block_bytes=block_bytes)

    much = "fewer" if fewer else "more"
    assert f"the row has {much} fields than the header" == error.reason
    assert (5, 1, found, GOOD_FILE) == (error.line, error.row, error.found, error.next_step)


@pytest.mark.parametrize("block_bytes", [10, 11, 12, 1000])
def test_a_quoted_value_without_end_is_refused_where_it_begins(block_bytes: int) -> None:
    """Arrow would take the rest of the file for its value."""
    for rest in (b'"abc\n4,5\n', b'"abc""\n', b'"', b'"a\\"\n', b'"\\'):
        error = refusal(b"a,b\n1,2\n3," + rest, AB, block_bytes=block_bytes)

        reason = "a quoted value has no end; the file may be an upload under way"
        step = GOOD_FILE + (NO_ESCAPE if b"\\" in rest else "")
        assert (reason, 3, step) == (error.reason, error.line, error.next_step)


@pytest.mark.parametrize("block_bytes", [10, 11, 12, 1000])
def test_text_behind_a_closing_quote_is_refused(block_bytes: int) -> None:
    """Arrow would drop the quotes and keep the rest."""
    for value in (b'"5" pipe"', b'"a"b', b'"a" ', b'""a""'):
        data = b'a,b\n"1\n1",2\n3,' + value + b"\n" + b"x,y\n" * 9

        error = refusal(data, AB, block_bytes=block_bytes)

        assert ("there is text behind a closing quote", 4) == (error.reason, error.line)
        step = "Double or escape the quotes inside quoted values, and publish the file again."
        assert step == error.next_step


@pytest.mark.parametrize("path", [b"C:\\dir\\", b'"C:\\dir\\"'])
def test_what_an_escape_may_have_broken_says_how_to_state_none(path: bytes) -> None:
    """As a path that ends in a backslash does, of a writer that escapes nothing."""
    error = refusal(b"a,b\n1,2\n" + path + b",3\n", AB)

    assert (error.next_step or "").endswith(NO_ESCAPE)


@pytest.mark.thorough("data2*")
@pytest.mark.parametrize(
    "data,reason,line",
    [
        (b"a\n1\n" + b"\n" * (2 << 20) + b"1\n", "there are more than 1 MiB of empty lines", 3),
        (b'a,b\n1,"' + b"x" * (2 << 20), "a row is longer than 1 MiB; a quoted value may have no end", 2),
        (b'a,"\n' + b"1,2\n" * (1 << 20), "a row is longer than 2 MiB; a quoted value may have no end", 1),
    ],
)  # fmt: skip
def test_a_row_without_end_is_refused_before_it_fills_the_memory(
    monkeypatch: pytest.MonkeyPatch, data: bytes, reason: str, line: int
) -> None:
    """The limits are larger; here less. A header's is looked at again with every block."""
    monkeypatch.setattr("mirrorlib.landing.delimited.rows.LONGEST_ROW", 1 << 20)
    monkeypatch.setattr("mirrorlib.landing.delimited.rows.LONGEST_HEADER", 2 << 20)

    error = refusal(data, AB, block_bytes=1 << 16)

    assert (reason, line) == (error.reason, error.line)


def test_the_first_bad_row_is_named_whatever_column_it_is_in() -> None:
    """And so the message does not depend on how much is read at a time."""
    how = dialect({"a": "Int32", "b": "IDate", "c": "Int16"})
    data = b"a,b,c\n1,2025-01-01,1\n2,2025-02-30,x\nx,2025-01-01,x\n"

    for block_bytes in (10, 16, 1000):
        error = refusal(data, how, block_bytes=block_bytes)

        assert "the value is no IDate, the type in SchemaDefinition" == error.reason
        assert (3, 1, "b") == (error.line, error.row, error.column)
        assert "10 characters, digits and signs" == error.found
        step = "Write it as 2025-06-17, under the same name, or correct DataType in _metadata.json."
        assert step == error.next_step
        assert str(error) == (
            "orders: 1.csv, line 3, column b: the value is no IDate, the type in SchemaDefinition "
            f"(found 10 characters, digits and signs). {step}"
        )


@pytest.mark.parametrize(
    "names,reason",
    [
        ("a,A", "two columns differ only by case, which Delta cannot hold"),
        ("a, a ", "two columns have the same name"),
        ("a,", "a column has no name"),
        ('a,"",b', "a column has no name"),
        ("a,_change_type", "the column's name is reserved"),
        ("a,_mirror_x", "the column's name is reserved"),
        ("a,__rowMarker__,__ROWMARKER__", "the file has two row marker columns"),
        ("a,b`c", "Delta cannot carry a backtick in a column's name"),
    ],
)
def test_names_are_refused_as_those_of_parquet(names: str, reason: str) -> None:
    """Before any row is read."""
    with pytest.raises(SchemaError) as caught:
        header(names.encode(), AB)

    assert (reason, "1.csv") == (caught.value.reason, caught.value.file)


def test_a_header_without_any_declared_column_is_refused() -> None:
    """Most likely the separator is another one; reading on would make a table of one odd column."""
    with pytest.raises(SchemaError) as caught:
        header(b"a;b;__rowMarker__\n1;2;0\n", AB)

    assert "none of the file's columns is in SchemaDefinition" == caught.value.reason
    assert "1 column" == caught.value.found
    step = "Check ColumnSeparator and SchemaDefinition in _metadata.json."
    assert step == caught.value.next_step


def test_a_header_may_be_quoted_and_hold_what_it_likes() -> None:
    """Separators, quotes and line ends, as any field."""
    data = b'"x,y","q""q","l\nl", "\n1,2,3,4\nbad\n'

    found = header(data, dialect())

    assert ["x,y", 'q"q', "l\nl", '"'] == [column.name for column in found.columns]
    assert ("x,y", 'q"q', "l\nl", '"') == found.undeclared
    assert 4 == refusal(data, dialect()).line


def test_the_header_must_be_the_one_that_was_read() -> None:
    """A file that was replaced in between is not read under the old one's schema."""
    old, new = b"id,v\n1,x\n", b"v,id\nx,1\n"
    with pytest.raises(FileChangedError) as caught:
        list(iter_tables(TextFile(io.BytesIO(new), listed(new), ID, "orders"), header(old, ID)))

    assert "the change file has another header than before" == caught.value.reason


def test_tables_have_no_more_rows_than_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    """And come in row order."""
    monkeypatch.setattr("mirrorlib.landing.delimited.tables.ROWS_AT_A_TIME", 64)
    data = b"id,v\n" + b"".join(b"%d,x\n" % i for i in range(1000))

    found = tables(data, ID)

    assert 64 == max(map(len, found))
    assert list(range(1000)) == [i for table in found for i in table.column("id").to_pylist()]


def test_it_reads_real_files_through_the_store(tmp_path: Path) -> None:
    """Header and rows from one handle, which stays open."""
    store = open_store(str(tmp_path))
    store.put("orders/00000000000000000001.csv", b"id,v\r\n1,x\r\n")
    file = store.stat("orders/00000000000000000001.csv")
    assert file is not None

    with store.open_file(file.path) as handle:
        text = TextFile(handle, file, ID, "orders")
        found = list(iter_tables(text, read_header(text)))

    assert [{"id": 1, "v": "x"}] == found[0].to_pylist()


def test_a_refusal_is_a_fault_of_the_file() -> None:
    """Which is what stops its table, and no other."""
    assert isinstance(refusal(b"id,v\nx,y\n", ID), ChangeFileError)


@pytest.mark.parametrize("block_bytes", [10, 11, 1 << 16])
def test_a_line_of_stray_returns_is_a_row(block_bytes: int) -> None:
    """Behind a line feed a bare carriage return is data, and so the row is ragged, wherever blocks end."""
    error = refusal(b"a,b\n\r\r\nN,x", dialect(), block_bytes=block_bytes)

    assert "the row has fewer fields than the header" == error.reason
    assert (2, "1 in place of 2") == (error.line, error.found)
