r"""Say how a table's delimited text is written: what its metadata states, else Microsoft's defaults.

In: `TableMetadata`. Out: a `Dialect`. Promises: what publishers really write is understood (blanks,
`\t` spelled as two characters, .NET's and ADF's names of encodings); what cannot be meant is
refused before a file is opened.
"""

from __future__ import annotations

import codecs
import contextlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from mirrorlib.identifiers import fold_name
from mirrorlib.landing.columns import MARKER
from mirrorlib.landing.delimited.values import DATA_TYPES, STRING, DataType
from mirrorlib.landing.metadata.declared import DefinedColumn, TableMetadata, metadata_error

_SPELLED = {
    r"\t": "\t",
    r"\r\n": "\r\n",
    r"\n": "\n",
    r"\r": "\r",
    r"\"": '"',
    r"\'": "'",
    "\\\\": "\\",
}
# Encodings are called as by .NET, Windows, Azure Data Factory or Python. The format is Microsoft's: a name means what
# .NET writes under it, and the East Asian names Windows' code pages: docs/bad-input.md, "Delimited text", has it all.
_NAMES = {"unicode": "utf-16", "unicodefffe": "utf-16-be"}  # what Python does not know
_PAGE = re.compile(r"^(?:windows|ibm|cp|dos|ms)?-?0*([0-9]{2,5})$")
_SUPERSETS = {
    "shift_jis": "cp932",
    "gb2312": "gb18030",
    "gbk": "gb18030",  # the same characters, and those that came later
    "euc_kr": "cp949",
    "big5": "cp950",
    "utf-8-sig": "utf-8",  # whether there is a mark is seen
}
_MARK_STATED = re.compile(r"\s+with(out)?\s+bom$")
# Text to Python, but no encodings of files; "mbcs" and "oem" mean what the machine means.
_NO_ENCODINGS = frozenset({
    "utf-7", "idna", "punycode", "unicode_escape", "raw_unicode_escape", "undefined", "mbcs", "oem",
})  # fmt: skip


@dataclass(frozen=True, kw_only=True)  # slots would leave no room for what is kept
class Dialect:
    """How a table's delimited text is written."""

    column_separator: str = ","  # one ASCII character
    row_separator: str = "\r\n"  # as stated. The end of the header says what a file really uses.
    quote: str = '"'  # one ASCII character; "" when nothing is quoted
    escape: str = "\\"  # one ASCII character; "" when nothing is escaped
    # What NULL is written as, beside nothing at all; None when it is not stated.
    null_value: str | None = None
    encoding: str = "utf-8"  # a codec of Python; a byte order mark overrules it
    columns: tuple[DefinedColumn, ...] = ()  # what `SchemaDefinition` declares, the marker left out

    def data_type(self, name: str) -> DataType:
        """Return the type that a column is read as: the declared one, else String."""
        column = self.defined(name)
        return STRING if column is None else DATA_TYPES[column.data_type.strip().casefold()]

    def defined(self, name: str) -> DefinedColumn | None:
        """Find a column's declaration without regard to case; None when there is none."""
        return self._defined.get(fold_name(name.strip()))

    @cached_property
    def _defined(self) -> Mapping[str, DefinedColumn]:
        """Keep the declarations by name, of two of one name the first: a header asks for each of its columns."""
        return {fold_name(column.name.strip()): column for column in reversed(self.columns)}


def dialect_of(metadata: TableMetadata, *, table: str) -> Dialect:
    """Read how a table's text is written; *table* is its name, for messages."""
    stated = metadata.format_properties
    header = stated.get("FirstRowAsHeader", "").strip()
    if header.casefold() not in {"", "true"}:
        msg = "FirstRowAsHeader is not true, and without a header no column has a name"
        step = "Publish files with a header row, and say so in _metadata.json."
        raise metadata_error(msg, table, found=header, next_step=step)
    separator = _character(stated.get("ColumnSeparator", ","))
    rows = _character(stated.get("RowSeparator", "")) or "\r\n"
    # A blank mark is none.
    quote = _character(stated.get("QuoteCharacter", '"')).strip(" ")
    escape = _character(stated.get("EscapeCharacter", "\\")).strip(" ")
    claims = {
        "ColumnSeparator is not one ASCII character": bool(separator) and _is_mark(separator),
        "QuoteCharacter is neither empty nor one ASCII character": _is_mark(quote),
        "EscapeCharacter is neither empty nor one ASCII character": _is_mark(escape),
        "ColumnSeparator and QuoteCharacter are the same character": quote != separator,
        "ColumnSeparator and EscapeCharacter are the same character": escape != separator,
        r"RowSeparator is not \r\n, \n or \r": rows in {"\r\n", "\n", "\r"},
    }
    for claim, is_so in claims.items():
        if not is_so:
            found = repr(stated.get(claim.split()[0], ","))
            raise metadata_error(claim, table, found=found)
    return Dialect(
        column_separator=separator,
        row_separator=rows,
        quote=quote,
        escape=escape,
        null_value=stated.get("NullValue"),
        encoding=_encoding(stated.get("Encoding", ""), table),
        columns=_columns(metadata.schema_definition, table),
    )


def _character(stated: str) -> str:
    """Read a character that may stand between blanks or be spelled out; a blank alone is itself."""
    bare = stated.strip(" ") or stated
    return _SPELLED.get(bare, bare)


def _is_mark(character: str) -> bool:
    return not character or (
        len(character) == 1 and character.isascii() and character not in "\r\n\0"
    )


def _encoding(stated: str, table: str) -> str:
    """Give Python's codec of an encoding's name; nothing is UTF-8."""
    name, codec = _MARK_STATED.sub("", stated.strip().casefold()) or "utf-8", None
    page = _PAGE.match(name)
    name = f"cp{page[1]:0>3}" if page else _NAMES.get(name, name)
    with contextlib.suppress(LookupError, ValueError):  # the latter for a NUL in the name
        "".encode(name)  # fails for codecs that are no text encodings, such as "base64"
        codec = codecs.lookup(name)
    if codec is None or codec.name in _NO_ENCODINGS or codec.incrementaldecoder is None:
        msg, found = "the value of 'Encoding' is not known", ascii(stated)[1:-1][:80]
        step = "Name an encoding such as UTF-8, UTF-16 or windows-1252 in _metadata.json."
        raise metadata_error(msg, table, found=found, next_step=step)
    return _SUPERSETS.get(codec.name, codec.name)


def _columns(defined: tuple[DefinedColumn, ...], table: str) -> tuple[DefinedColumn, ...]:
    seen: dict[str, str] = {}
    columns = tuple(column for column in defined if fold_name(column.name.strip()) != MARKER)
    for column in columns:
        stated = column.data_type
        kind = stated.strip().casefold()
        if kind not in DATA_TYPES:
            msg = "the DataType in SchemaDefinition is " + ("not known" if stated else "missing")
            step = f"Declare one of {', '.join(declared.name for declared in DATA_TYPES.values())}."
            if kind.startswith(("decimal", "numeric")):
                step = "The format has no Decimal for text: declare Double or String, or publish Parquet."
            found = stated or None
            raise metadata_error(msg, table, column=column.name, found=found, next_step=step)
        if seen.setdefault(fold_name(column.name.strip()), kind) != kind:
            msg = "SchemaDefinition declares the column twice, with different types"
            raise metadata_error(msg, table, column=column.name)
    return columns
