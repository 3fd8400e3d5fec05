"""The lint of delimited text: encodings, separators, compression, ragged rows."""

from __future__ import annotations

import gzip
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from mirrorlib.landing.check.zone import check_zone

if TYPE_CHECKING:
    from mirrorlib.landing.check.report import Finding
    from zones import ZoneWriter

COLUMNS = [
    {"Name": "id", "DataType": "String"},
    {"Name": "Größe", "DataType": "String", "IsNullable": True},
]
HEADER = "id,Größe,__rowMarker__"


def lint(zone: ZoneWriter, content: str | bytes, **properties: object) -> tuple[Finding, ...]:
    """Review a zone of one file of text."""
    metadata = {
        "FileFormat": "csv",
        "SchemaDefinition": {"Columns": COLUMNS},
        "FileFormatTypeProperties": properties,
    }
    table = zone.table("orders", keys=["id"], metadata=metadata)
    data = content.encode() if isinstance(content, str) else content
    (table.folder / f"{1:020d}.csv").write_bytes(data)
    return check_zone(str(zone)).findings


def rules(findings: tuple[Finding, ...]) -> set[str]:
    """Name the rules that are broken."""
    return {finding.rule for finding in findings}


@pytest.mark.parametrize(
    "encoding",
    ["utf-8", "UTF-8", "utf-8-sig", "utf-16", "utf-16-le", "windows-1252", "iso-8859-1", ""],
)
def test_every_declared_encoding_is_read(zone: ZoneWriter, encoding: str) -> None:
    """Headers beyond ASCII, byte order marks, two bytes a character."""
    content = f"{HEADER}\r\n1,ä,0\r\n".encode(encoding or "utf-8")

    assert () == lint(zone, content, Encoding=encoding)


def test_a_byte_order_mark_is_no_part_of_the_first_name(zone: ZoneWriter) -> None:
    """Many writers put one before UTF-8 without saying so."""
    assert () == lint(zone, f"\ufeff{HEADER}\r\n1,ä,0\r\n")


@pytest.mark.parametrize("rows", [1, 400_000])
def test_bytes_of_another_encoding_are_named_with_their_line(zone: ZoneWriter, rows: int) -> None:
    """Also far behind the piece that the header is read from."""
    content = f"{HEADER}\r\n".encode() + b"1,a,0\r\n" * rows + b"2,\xe4,0\r\n"

    (finding,) = lint(zone, content)

    assert ("text-undecodable", f"line {rows + 2} is not utf-8") == (finding.rule, finding.found)


@pytest.mark.parametrize(
    "separator, end, quote, escape",
    [
        (",", "\r\n", '"', "\\"),
        (";", "\n", "'", "/"),
        ("|", "\r", '"', '"'),
        ("\t", "\r\n", "", ""),
    ],
)
def test_documented_separators_are_read(
    zone: ZoneWriter, separator: str, end: str, quote: str, escape: str
) -> None:
    """Quoted separators and line ends, escaped quotes (Q41)."""
    value = f"{quote}a{separator}b{end}c{escape}{quote}d{quote}" if quote else "a"
    lines = [HEADER.replace(",", separator), separator.join(("1", value, "0"))]
    properties = {
        "ColumnSeparator": separator,
        "RowSeparator": end,
        "QuoteCharacter": quote,
        "EscapeCharacter": escape,
    }

    assert () == lint(zone, end.join(lines) + end, **properties)


@pytest.mark.parametrize("codec", ["gzip", "zstd"])
def test_compression_is_told_by_content(zone: ZoneWriter, codec: str) -> None:
    """The name does not say it."""
    content = f"{HEADER}\r\n1,a,3\r\n".encode()
    data = gzip.compress(content) if codec == "gzip" else pa.compress(content, codec, asbytes=True)

    assert {"marker-unknown"} == rules(lint(zone, data))


@pytest.mark.parametrize("content", [HEADER, f"{HEADER}\r\n", f"{HEADER}\r\n1,a,0"])
def test_the_last_line_need_not_end(zone: ZoneWriter, content: str) -> None:
    """A lone header is zero rows."""
    assert () == lint(zone, content)


def test_ragged_rows_count_in_the_place_of_others(zone: ZoneWriter) -> None:
    """A marker's row is its row in the file, though rows before it have no place for one."""
    rows = ["1,a,0", "2,b", "3,c,0", "4", "5,e,9", "6,f", "7,g,8"]

    found = {one.rule: one for one in lint(zone, "\r\n".join([HEADER, *rows, ""]))}

    assert {"text-ragged-row", "marker-unknown"} == set(found)
    assert (1, 4) == (found["text-ragged-row"].row, found["marker-unknown"].row)
    assert "3 rows; the header has 3 fields" == found["text-ragged-row"].found
    assert found["marker-unknown"].found.startswith("2 rows")


@pytest.mark.parametrize("rows", [0, 3, 300_000])
def test_rows_count_over_all_pieces(zone: ZoneWriter, rows: int) -> None:
    """A null key far behind the first block is named with its row."""
    width = 40
    content = [HEADER, *[f"{n},{'x' * width},0" for n in range(rows)], ",y,0", ""]

    (finding,) = lint(zone, "\r\n".join(content))

    assert ("key-null", rows) == (finding.rule, finding.row)


@pytest.mark.parametrize(
    "field, null", [("", True), ("N/A", True), ('""', False), ('"N/A"', False), ("NA", False)]
)
def test_nothing_and_an_empty_text_are_two_things(zone: ZoneWriter, field: str, null: bool) -> None:
    """Only what is not quoted is NULL (Q39)."""
    findings = lint(zone, f"{HEADER}\r\n{field},a,0\r\n", NullValue="N/A")

    assert ({"key-null"} if null else set()) == rules(findings)


@pytest.mark.parametrize(
    "value, odd",
    [
        ('"a"', False),
        ('"a""b"', False),
        (r'"a\"b"', False),
        (r'"a\\"', False),
        ('"a', True),
        ('"a""', True),
        (r'"a\"', True),
    ],
)
def test_a_quote_that_is_not_closed_is_seen(zone: ZoneWriter, value: str, odd: bool) -> None:
    """Doubled and escaped quotes are none; a quote left open makes one value of all that follows."""
    findings = lint(zone, f"__rowMarker__,id,Größe\r\n0,1,{value}\r\n")

    assert ("text-open-quote" in rules(findings)) is odd
    assert rules(findings) <= {"text-open-quote", "marker-not-last", "text-unparsable"}


def test_columns_may_stand_in_any_order_and_case(zone: ZoneWriter) -> None:
    """They are found by name."""
    assert () == lint(zone, "GRÖSSE,ID,__rowMarker__\r\na,1,0\r\n".replace("GRÖSSE", "größe"))


def test_a_text_column_in_excess_is_named(zone: ZoneWriter) -> None:
    """It is a warning: mirrorlib reads it as strings (Q26)."""
    (finding,) = lint(zone, "id,Größe,new,__rowMarker__\r\n1,a,b,0\r\n")

    assert ("text-column-undeclared", "new") == (finding.rule, finding.column)


def test_text_without_metadata_is_still_read(zone: ZoneWriter) -> None:
    """Separators are then the usual ones, and no key is missed."""
    table = zone.table("orders", with_metadata=False)
    (table.folder / f"{1:020d}.csv").write_text("a,__rowMarker__\n1,3\n")

    findings = check_zone(str(zone)).findings

    assert {"metadata-missing", "marker-unknown"} == rules(findings)


def test_a_value_that_is_not_of_its_type_is_named_with_its_line(zone: ZoneWriter) -> None:
    """As it is read where it is applied; what the lint has found beside it stays, and no value is shown."""
    columns = [{"Name": "id", "DataType": "Int32"}, {"Name": "d", "DataType": "IDate"}]
    metadata = {"FileFormat": "csv", "SchemaDefinition": {"Columns": columns}}
    table = zone.table("orders", keys=["id"], metadata=metadata)
    rows = ['"1\n",2026-01-02,0', "2,2026-01-02,9", "3,2026-02-30,0"]
    text = "\r\n".join(["id,d,__rowMarker__", *rows, ""])
    (table.folder / f"{1:020d}.csv").write_text(text, newline="")

    found = {one.rule: one for one in check_zone(str(zone)).findings}

    assert {"marker-unknown", "text-value"} == set(found)
    value = found["text-value"]
    assert (f"{1:020d}.csv", "d", 2, 5) == (value.file, value.column, value.row, value.line)
    assert "10 characters, digits and signs; IDate is declared" == value.found
    assert "line 5, column d" in str(value)


def test_a_null_where_none_may_be_is_found_in_any_piece(zone: ZoneWriter) -> None:
    """Counted through the file; the first is named."""
    columns = [COLUMNS[0], {"Name": "v", "DataType": "Int64", "IsNullable": False}]
    metadata = {"FileFormat": "csv", "SchemaDefinition": {"Columns": columns}}
    table = zone.table("orders", keys=["id"], metadata=metadata)
    long = "1" * 200  # several pieces of 4 MiB
    content = "id,v\r\n" + f"{long},1\r\n" * 50_000 + '2,""\r\n3,\r\n'
    (table.folder / f"{1:020d}.csv").write_bytes(content.encode())

    (finding,) = check_zone(str(zone)).findings

    assert ("text-null", "2 rows") == (finding.rule, finding.found)
    assert 50_000 == finding.row


@pytest.mark.parametrize("properties", [{"RowSeparator": ";"}, {"ColumnSeparator": "||"}])
def test_what_no_reader_takes_is_an_error(zone: ZoneWriter, properties: dict[str, object]) -> None:
    """Nothing passes here that stops the table there; it is told once, not once a file."""
    (zone.root / "orders").mkdir()
    (zone.root / "orders" / f"{2:020d}.csv").write_text(f"{HEADER}\r\n1,a,0\r\n")

    found = lint(zone, f"{HEADER}\r\n1,a,0\r\n", **properties)

    assert ["metadata-unreadable"] == [one.rule for one in found if one.severity == "error"]
