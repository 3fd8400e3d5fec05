r"""Say how a table's delimited text is written: what its metadata states, else Microsoft's defaults.

In: `TableMetadata`. Out: a `Dialect`. Promises: what publishers really write is understood (blanks,
`\t` spelled as two characters, .NET's and ADF's names of encodings); what cannot be meant is
refused before a file is opened.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from mirrorlib.errors import MetadataError
from mirrorlib.identifiers import fold_name
from mirrorlib.landing.columns import MARKER
from mirrorlib.landing.delimited.encodings import codec_of
from mirrorlib.landing.delimited.values import DATA_TYPES, STRING
from mirrorlib.landing.metadata.declared import METADATA_NAME

if TYPE_CHECKING:
    from mirrorlib.landing.delimited.values import DataType
    from mirrorlib.landing.metadata.declared import DefinedColumn, TableMetadata

_SPELLED = {
    r"\t": "\t",
    r"\r\n": "\r\n",
    r"\n": "\n",
    r"\r": "\r",
    r"\"": '"',
    r"\'": "'",
    "\\\\": "\\",
}
_ROW_SEPARATORS = ("\r\n", "\n", "\r")


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """How a table's delimited text is written.

    Attributes:
        column_separator: One ASCII character.
        row_separator: As stated. The end of the header says what a file really uses.
        quote: One ASCII character; "" when nothing is quoted.
        escape: One ASCII character; "" when nothing is escaped.
        null_value: What NULL is written as, beside nothing at all; None when it is not stated.
        encoding: A codec of Python; a byte order mark overrules it.
        columns: What `SchemaDefinition` declares, the marker left out.
    """

    column_separator: str = ","
    row_separator: str = "\r\n"
    quote: str = '"'
    escape: str = "\\"
    null_value: str | None = None
    encoding: str = "utf-8"
    columns: tuple[DefinedColumn, ...] = ()

    def declared(self, name: str) -> DataType | None:
        """Return the declared type of a column, found without regard to case; None when there is none."""
        column = self._defined(name)
        return None if column is None else DATA_TYPES[column.data_type.strip().casefold()]

    def required(self, name: str) -> bool:
        """Say whether a column is declared with `IsNullable` false."""
        column = self._defined(name)
        return column is not None and column.nullable is False

    def data_type(self, name: str) -> DataType:
        """Return the type that a column is read as: the declared one, else String."""
        return self.declared(name) or STRING

    def _defined(self, name: str) -> DefinedColumn | None:
        folded = fold_name(name.strip())
        found = (column for column in self.columns if fold_name(column.name.strip()) == folded)
        return next(found, None)


def dialect_of(metadata: TableMetadata, *, table: str) -> Dialect:
    """Read how a table's text is written.

    Args:
        metadata: What the table's `_metadata.json` says.
        table: The table's name, for messages.

    Raises:
        MetadataError: a property is not what any publisher could mean, or not what can be read.
    """
    stated = metadata.format_properties
    _check_header(stated.get("FirstRowAsHeader", ""), table)
    separator = _separator(stated.get("ColumnSeparator", ","), table)
    quote = _mark("QuoteCharacter", stated.get("QuoteCharacter", '"'), table)
    escape = _mark("EscapeCharacter", stated.get("EscapeCharacter", "\\"), table)
    for name, character in (("QuoteCharacter", quote), ("EscapeCharacter", escape)):
        if character == separator:
            msg = f"ColumnSeparator and {name} are the same character"
            raise _refusal(msg, table, found=repr(separator))
    return Dialect(
        column_separator=separator,
        row_separator=_row_separator(stated.get("RowSeparator", ""), table),
        quote=quote,
        escape=escape,
        null_value=stated.get("NullValue"),
        encoding=_encoding(stated.get("Encoding", ""), table),
        columns=_columns(metadata.schema_definition, table),
    )


def _check_header(stated: str, table: str) -> None:
    if stated.strip().casefold() not in {"", "true"}:
        msg = "FirstRowAsHeader is not true, and without a header no column has a name"
        step = "Publish files with a header row, and say so in _metadata.json."
        raise _refusal(msg, table, found=stated.strip(), next_step=step)


def _separator(stated: str, table: str) -> str:
    separator = _character(stated)
    if len(separator) != 1 or not separator.isascii() or separator in "\r\n\0":
        msg = "ColumnSeparator is not one ASCII character"
        raise _refusal(msg, table, found=repr(stated))
    return separator


def _mark(name: str, stated: str, table: str) -> str:
    """Read a quote or escape character; a blank one is none."""
    mark = _character(stated).strip(" ")
    if len(mark) > 1 or not mark.isascii() or (mark and mark in "\r\n\0"):
        msg = f"{name} is neither empty nor one ASCII character"
        raise _refusal(msg, table, found=repr(stated))
    return mark


def _row_separator(stated: str, table: str) -> str:
    separator = _character(stated) or "\r\n"
    if separator not in _ROW_SEPARATORS:
        msg = r"RowSeparator is not \r\n, \n or \r"
        raise _refusal(msg, table, found=repr(stated))
    return separator


def _character(stated: str) -> str:
    """Read a character that may stand between blanks or be spelled out; a blank alone is itself."""
    bare = stated.strip(" ") or stated
    return _SPELLED.get(bare, bare)


def _encoding(stated: str, table: str) -> str:
    try:
        return codec_of(stated)
    except LookupError as exc:
        raise _unknown_encoding(stated, table) from exc


def _unknown_encoding(stated: str, table: str) -> MetadataError:
    msg = "the value of 'Encoding' is not known"
    step = "Name an encoding such as UTF-8, UTF-16, windows-1252 or shift_jis in _metadata.json."
    return _refusal(msg, table, found=ascii(stated)[1:-1][:80], next_step=step)


def _columns(defined: tuple[DefinedColumn, ...], table: str) -> tuple[DefinedColumn, ...]:
    seen: dict[str, str] = {}
    for column in defined:
        name, data_type = fold_name(column.name.strip()), column.data_type.strip()
        if name == MARKER:
            continue
        if data_type.casefold() not in DATA_TYPES:
            raise _unknown_type(column, table)
        if seen.setdefault(name, data_type.casefold()) != data_type.casefold():
            msg = "SchemaDefinition declares the column twice, with different types"
            raise _refusal(msg, table, column=column.name)
    return tuple(column for column in defined if fold_name(column.name.strip()) != MARKER)


def _unknown_type(column: DefinedColumn, table: str) -> MetadataError:
    names = ", ".join(declared.name for declared in DATA_TYPES.values())
    step = f"Declare one of {names}."
    if column.data_type.casefold().startswith(("decimal", "numeric")):
        step = "The format has no Decimal for text: declare Double or String, or publish Parquet."
    msg = "the DataType in SchemaDefinition is " + ("not known" if column.data_type else "missing")
    found = column.data_type or None
    return _refusal(msg, table, column=column.name, found=found, next_step=step)


def _refusal(
    reason: str,
    table: str,
    *,
    column: str | None = None,
    found: str | None = None,
    next_step: str | None = None,
) -> MetadataError:
    return MetadataError(
        reason, table=table, file=METADATA_NAME, column=column, found=found, next_step=next_step
    )
