"""Review `_metadata.json`: what it says, what had to be assumed, what it forgets.

In: its bytes. Out: `TableMetadata` for the other rooms, None when there is none; findings on the
way.
"""

from __future__ import annotations

import difflib
from dataclasses import replace
from typing import TYPE_CHECKING

from mirrorlib.errors import MetadataError
from mirrorlib.landing.delimited import Dialect, dialect_of
from mirrorlib.landing.delimited.values import STRING
from mirrorlib.landing.metadata.declared import METADATA_NAME, TableMetadata, as_published
from mirrorlib.landing.metadata.lenient import read_lenient
from mirrorlib.landing.metadata.reading import parse_metadata

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mirrorlib.landing.check.findings import Findings
    from mirrorlib.landing.metadata.declared import DefinedColumn

MOST_KEYS = 4
_KNOWN = (
    "keyColumns",
    "fileDetectionStrategy",
    "isUpsertDefaultRowMarker",
    "FileFormat",
    "FileExtension",
    "FileFormatTypeProperties",
    "SchemaDefinition",
    "ConditionalUpdateColumn",
    "isPartitionEnabled",
    "FirstRowAsHeader",
    "RowSeparator",
    "ColumnSeparator",
    "QuoteCharacter",
    "EscapeCharacter",
    "NullValue",
    "Encoding",
)
_KNOWN_BY_FOLDED = {name.casefold(): name for name in _KNOWN}
_SIMILAR = 0.7  # "keyColumn" and "primaryKeyColumns" are, "protocolVersion" is not
_DOCUMENTED = {
    "RowSeparator": ("\r\n", "\n", "\r"),
    "ColumnSeparator": (",", ";", "|", "\t"),
    "QuoteCharacter": ('"', "'", ""),
    "EscapeCharacter": ("\\", "/", '"', ""),
}


def review_metadata(
    data: bytes | None, table: str, found: Findings, names: Iterable[str] = ()
) -> TableMetadata | None:
    """Read what a table's publisher states; None when it states nothing that can be understood.

    Args:
        data: `_metadata.json`, None when it is absent.
        table: for messages.
        found: takes findings.
        names: the table's files, which tell the format where it is not stated.

    """
    if data is None:
        found.add("metadata-missing", "no _metadata.json", file=METADATA_NAME)
        return None
    try:
        metadata = as_published(parse_metadata(data, table), names)
    except MetadataError as exc:
        what = exc.reason if exc.found is None else f"{exc.reason} (found {exc.found})"
        found.add("metadata-unreadable", what, file=METADATA_NAME)
        return None
    for repair in (*metadata.repairs, *metadata.assumed):
        found.add("metadata-repaired", repair, file=METADATA_NAME)
    _review_unknown(metadata, found)
    if len(metadata.key_columns) > MOST_KEYS:
        found.add("many-keys", f"{len(metadata.key_columns)} key columns", file=METADATA_NAME)
    if metadata.conditional_update:
        found.add("conditional-update", "it is declared", file=METADATA_NAME)
    if metadata.file_format == "delimited":
        _review_delimited(metadata, found)
        if _states_delimited_text(data) and not metadata.file_extension:
            found.add("extension-undeclared", "no FileExtension", file=METADATA_NAME)
    return metadata


def review_dialect(metadata: TableMetadata | None, table: str, found: Findings) -> Dialect | None:
    """Say how a table's text is written; the usual way where nothing states it, None where nothing can be read.

    The reader is asked of each property that has a rule of its own, and then of all the others together.
    """
    if metadata is None:
        return Dialect()
    if metadata.file_format != "delimited":
        return None
    stated = dict(metadata.format_properties)
    readable = _is_known(metadata, "Encoding", table)
    if not readable:
        what = f"Encoding {ascii(stated.pop('Encoding'))[:40]}"
        found.add("encoding-unknown", what, file=METADATA_NAME)
    if not _is_known(metadata, "FirstRowAsHeader", table):
        del stated["FirstRowAsHeader"]
        found.add("header-not-declared", "FirstRowAsHeader is not true", file=METADATA_NAME)
    columns = tuple(_typed(column, table, found) for column in metadata.schema_definition)
    try:
        sound = replace(metadata, format_properties=stated, schema_definition=columns)
        dialect = dialect_of(sound, table=table)
    except MetadataError as exc:
        found.add("metadata-unreadable", exc.reason, file=METADATA_NAME, column=exc.column)
        return None
    return dialect if readable else None


def _is_known(metadata: TableMetadata, name: str, table: str) -> bool:
    """Ask the reader whether it takes a property's value."""
    values = {name: metadata.format_properties[name]} if name in metadata.format_properties else {}
    return _is_read(TableMetadata(format_properties=values), table)


def _typed(column: DefinedColumn, table: str, found: Findings) -> DefinedColumn:
    """Ask the reader whether it takes a column; one that it does not is text from here on."""
    if _is_read(TableMetadata(schema_definition=(column,)), table):
        return column
    what = f"the DataType {ascii(column.data_type)[:40]}"
    found.add("data-type-unknown", what, file=METADATA_NAME, column=column.name)
    return replace(column, data_type=STRING.name)


def _is_read(metadata: TableMetadata, table: str) -> bool:
    try:
        dialect_of(metadata, table=table)
    except MetadataError:
        return False
    return True


def _review_unknown(metadata: TableMetadata, found: Findings) -> None:
    for name in metadata.unknown:
        folded = name.strip().casefold()
        near = difflib.get_close_matches(folded, _KNOWN_BY_FOLDED, n=1, cutoff=_SIMILAR)
        if near:
            meant = _KNOWN_BY_FOLDED[near[0]]
            step = f"Spell it {meant}, and place it where that belongs, if that is what is meant."
            found.add("property-misspelt", f"{ascii(name)[:60]}", file=METADATA_NAME, fix=step)
        else:
            found.add("property-unknown", f"{ascii(name)[:60]}", file=METADATA_NAME)


def _states_delimited_text(data: bytes) -> bool:
    """Say whether the format is DelimitedText in so many words: CSV, the other word, has an extension of its own."""
    members, _ = read_lenient(data)
    stated = dict(members) if isinstance(members, tuple) else {}
    return any(
        name.strip().casefold() == "fileformat" and str(value).strip().casefold() == "delimitedtext"
        for name, value in stated.items()
    )


def _review_delimited(metadata: TableMetadata, found: Findings) -> None:
    properties = metadata.format_properties
    if not metadata.schema_definition:
        found.add("schema-definition-missing", "no SchemaDefinition.Columns", file=METADATA_NAME)
    for name, documented in _DOCUMENTED.items():
        if properties.get(name, documented[0]) not in documented:
            what = f"{name} {ascii(properties[name])[:20]}"
            found.add("format-property", what, file=METADATA_NAME)
