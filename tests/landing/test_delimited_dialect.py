"""Dialects: what publishers write in their metadata is understood, what cannot be meant is refused."""

from __future__ import annotations

import json

import pytest

from mirrorlib.errors import MetadataError
from mirrorlib.landing.delimited.dialect import Dialect, dialect_of
from mirrorlib.landing.metadata.reading import parse_metadata

CORRECT = "Correct _metadata.json; the next run reads it again."


def stated(columns: list[tuple[str, str]] | None = None, **properties: object) -> Dialect:
    """Write a `_metadata.json`, and read it to a dialect."""
    metadata = {
        "FileFormat": "CSV",
        "FileFormatTypeProperties": properties,
        "SchemaDefinition": {
            "Columns": [{"Name": name, "DataType": kind} for name, kind in columns or []]
        },
    }
    return dialect_of(parse_metadata(json.dumps(metadata).encode(), "orders"), table="orders")


def refused(columns: list[tuple[str, str]] | None = None, **properties: object) -> MetadataError:
    """Give the refusal; it names the table and the file to correct."""
    with pytest.raises(MetadataError) as caught:
        stated(columns, **properties)
    assert ("orders", "_metadata.json") == (caught.value.table, caught.value.file)
    return caught.value


def test_what_is_not_stated_is_as_microsoft_says() -> None:
    """A comma, a double quote, a backslash, UTF-8 and no word for NULL."""
    assert stated() == Dialect(
        column_separator=",",
        row_separator="\r\n",
        quote='"',
        escape="\\",
        null_value=None,
        encoding="utf-8",
        columns=(),
    )


def test_microsofts_own_example_is_understood() -> None:
    """Its lone backslash is no JSON."""
    data = rb"""{"KeyColumns": ["id"], "FileFormat": "DelimitedText", "FileExtension": "tsv",
    "SchemaDefinition": {"Columns": [{"Name": "id", "DataType": "Int32"}]},
    "FileFormatTypeProperties": {"FirstRowAsHeader": true, "RowSeparator": "\r\n",
    "ColumnSeparator": ",", "QuoteCharacter": "'", "EscapeCharacter": "\", "NullValue": "N/A",
    "Encoding": "UTF-8"}}"""

    found = dialect_of(parse_metadata(data, "orders"), table="orders")

    assert (",", "'", "\\", "N/A") == (
        found.column_separator,
        found.quote,
        found.escape,
        found.null_value,
    )
    assert ("\r\n", "utf-8", "Int32") == (
        found.row_separator,
        found.encoding,
        found.data_type("ID").name,
    )


@pytest.mark.parametrize(
    "name,value,attribute,meaning",
    [
        ("ColumnSeparator", ";", "column_separator", ";"),
        ("ColumnSeparator", " | ", "column_separator", "|"),
        ("ColumnSeparator", "\t", "column_separator", "\t"),
        ("ColumnSeparator", r"\t", "column_separator", "\t"),
        ("ColumnSeparator", " ", "column_separator", " "),
        ("ColumnSeparator", "\x1f", "column_separator", "\x1f"),
        ("RowSeparator", "\r", "row_separator", "\r"),
        ("RowSeparator", r"\r\n", "row_separator", "\r\n"),
        ("RowSeparator", r" \n ", "row_separator", "\n"),
        ("RowSeparator", "", "row_separator", "\r\n"),
        ("QuoteCharacter", "'", "quote", "'"),
        ("QuoteCharacter", r"\"", "quote", '"'),
        ("QuoteCharacter", "", "quote", ""),
        ("QuoteCharacter", " ", "quote", ""),
        ("EscapeCharacter", "\\\\", "escape", "\\"),
        ("EscapeCharacter", "/", "escape", "/"),
        ("EscapeCharacter", '"', "escape", '"'),
        ("EscapeCharacter", "", "escape", ""),
        ("NullValue", "", "null_value", ""),
        ("NullValue", " N/A", "null_value", " N/A"),
        ("FirstRowAsHeader", " TRUE ", "quote", '"'),
        ("FirstRowAsHeader", "", "quote", '"'),
        ("Encoding", "", "encoding", "utf-8"),
        ("Encoding", "UTF8", "encoding", "utf-8"),
        ("Encoding", " utf-8 ", "encoding", "utf-8"),
        ("Encoding", "UTF-8 without BOM", "encoding", "utf-8"),
        ("Encoding", "utf-8-sig", "encoding", "utf-8"),
        ("Encoding", "65001", "encoding", "utf-8"),
        ("Encoding", "cp65001", "encoding", "utf-8"),
        ("Encoding", "1252", "encoding", "cp1252"),
        ("Encoding", "IBM037", "encoding", "cp037"),
        ("Encoding", "UTF-16", "encoding", "utf-16"),
        ("Encoding", "Unicode", "encoding", "utf-16"),
        ("Encoding", "unicodeFFFE", "encoding", "utf-16-be"),
        ("Encoding", "UTF-16LE", "encoding", "utf-16-le"),
        ("Encoding", "ASCII", "encoding", "ascii"),
        ("Encoding", "us-ascii", "encoding", "ascii"),
        ("Encoding", "Windows-1252", "encoding", "cp1252"),
        ("Encoding", "windows-874", "encoding", "cp874"),
        ("Encoding", "IBM00858", "encoding", "cp858"),
        ("Encoding", "1250", "encoding", "cp1250"),
        ("Encoding", "ISO-8859-1", "encoding", "iso8859-1"),
        ("Encoding", "Latin-1", "encoding", "iso8859-1"),
        ("Encoding", "shift_jis", "encoding", "cp932"),
        ("Encoding", "SHIFT-JIS", "encoding", "cp932"),
        ("Encoding", "932", "encoding", "cp932"),
        ("Encoding", "949", "encoding", "cp949"),
        ("Encoding", "037", "encoding", "cp037"),
        ("Encoding", "gb2312", "encoding", "gb18030"),
        ("Encoding", "GBK", "encoding", "gb18030"),
        ("Encoding", "936", "encoding", "gb18030"),
        ("Encoding", "GB18030", "encoding", "gb18030"),
        ("Encoding", "ks_c_5601-1987", "encoding", "cp949"),
        ("Encoding", "EUC-KR", "encoding", "cp949"),
        ("Encoding", "big5", "encoding", "cp950"),
    ],
)
def test_what_publishers_write_is_understood(
    name: str, value: str, attribute: str, meaning: str
) -> None:
    """Blanks, characters spelled out, and each platform's names of encodings."""
    assert meaning == getattr(stated(**{name: value}), attribute)


@pytest.mark.parametrize(
    "properties,reason,found",
    [
        (
            {"FirstRowAsHeader": False},
            "FirstRowAsHeader is not true, and without a header no column has a name",
            "false",
        ),
        ({"ColumnSeparator": ",,"}, "ColumnSeparator is not one ASCII character", "',,'"),
        ({"ColumnSeparator": ""}, "ColumnSeparator is not one ASCII character", "''"),
        ({"ColumnSeparator": "¦"}, "ColumnSeparator is not one ASCII character", "'¦'"),
        ({"ColumnSeparator": r"\n"}, "ColumnSeparator is not one ASCII character", r"'\\n'"),
        ({"ColumnSeparator": "\0"}, "ColumnSeparator is not one ASCII character", r"'\x00'"),
        (
            {"QuoteCharacter": "''"},
            "QuoteCharacter is neither empty nor one ASCII character",
            "\"''\"",
        ),
        (
            {"EscapeCharacter": "”"},
            "EscapeCharacter is neither empty nor one ASCII character",
            "'”'",
        ),
        ({"RowSeparator": "|"}, r"RowSeparator is not \r\n, \n or \r", "'|'"),
        ({"RowSeparator": "\n\n"}, r"RowSeparator is not \r\n, \n or \r", r"'\n\n'"),
        (
            {"ColumnSeparator": '"'},
            "ColumnSeparator and QuoteCharacter are the same character",
            "'\"'",
        ),
        (
            {"ColumnSeparator": "/", "EscapeCharacter": "/"},
            "ColumnSeparator and EscapeCharacter are the same character",
            "'/'",
        ),
        ({"Encoding": "klingon"}, "the value of 'Encoding' is not known", "klingon"),
        ({"Encoding": "base64"}, "the value of 'Encoding' is not known", "base64"),
        ({"Encoding": "rot13"}, "the value of 'Encoding' is not known", "rot13"),
        ({"Encoding": "idna"}, "the value of 'Encoding' is not known", "idna"),
        ({"Encoding": "UTF7"}, "the value of 'Encoding' is not known", "UTF7"),
        ({"Encoding": "undefined"}, "the value of 'Encoding' is not known", "undefined"),
        ({"Encoding": "1200"}, "the value of 'Encoding' is not known", "1200"),
        ({"Encoding": "20127"}, "the value of 'Encoding' is not known", "20127"),
        ({"Encoding": "9999"}, "the value of 'Encoding' is not known", "9999"),
        ({"Encoding": "a\0b"}, "the value of 'Encoding' is not known", r"a\x00b"),
    ],
)
def test_what_cannot_be_meant_is_refused(
    properties: dict[str, object], reason: str, found: str
) -> None:
    """Before any file is opened."""
    error = refused(**properties)

    assert (reason, found) == (error.reason, error.found)


def test_a_refusal_says_what_to_write() -> None:
    """In the words of the file that has to be corrected."""
    step = "Publish files with a header row, and say so in _metadata.json."
    assert step == refused(FirstRowAsHeader="no").next_step
    step = "Name an encoding such as UTF-8, UTF-16 or windows-1252 in _metadata.json."
    assert step == refused(Encoding="?").next_step
    assert CORRECT == refused(ColumnSeparator="").next_step


@pytest.mark.parametrize(
    "kind,reason,found,step",
    [
        (
            "Decimal",
            "the DataType in SchemaDefinition is not known",
            "Decimal",
            "The format has no Decimal for text: declare Double or String, or publish Parquet.",
        ),
        (
            "decimal(10,2)",
            "the DataType in SchemaDefinition is not known",
            "decimal(10,2)",
            "The format has no Decimal for text: declare Double or String, or publish Parquet.",
        ),
        (
            "varchar",
            "the DataType in SchemaDefinition is not known",
            "varchar",
            "Declare one of String, Int16, Int32, Int64, Double, Single, Boolean, DateTime, IDate, ITime, ByteArray.",
        ),
        (
            "",
            "the DataType in SchemaDefinition is missing",
            None,
            "Declare one of String, Int16, Int32, Int64, Double, Single, Boolean, DateTime, IDate, ITime, ByteArray.",
        ),
    ],
)
def test_an_unknown_data_type_is_refused_by_column(
    kind: str, reason: str, found: str | None, step: str
) -> None:
    """The format has eleven."""
    error = refused([("id", "Int32"), ("price", kind)])

    assert ("price", reason, found, step) == (
        error.column,
        error.reason,
        error.found,
        error.next_step,
    )


def test_a_column_declared_twice_must_be_the_same_twice() -> None:
    """Case and blanks make no difference."""
    assert 2 == len(stated([("id", "Int32"), (" ID ", "int32")]).columns)
    error = refused([("id", "Int32"), ("ID", "Int64")])

    assert "SchemaDefinition declares the column twice, with different types" == error.reason
    assert "ID" == error.column


def test_a_declared_marker_is_left_out_whatever_its_type() -> None:
    """It is no data, and its text is read with every other marker."""
    found = stated([("id", "Int32"), ("__ROWMARKER__", "Byte")])

    assert ["id"] == [column.name for column in found.columns]
    assert None is found.defined("__rowMarker__")


def test_types_are_found_by_name_without_regard_to_case_and_blanks() -> None:
    """Undeclared columns are text."""
    found = stated([(" Id ", "int64")])

    assert "Int64" == found.data_type("ID ").name
    assert ("String", None) == (found.data_type("x").name, found.defined("x"))
