"""Review `_metadata.json`: what it says, what had to be assumed, what it forgets.

In: its bytes. Out: `TableMetadata` for the other rooms, `UNSTATED` when there is none; findings on the
way.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from mirrorlib.errors import MetadataError
from mirrorlib.landing.check.facts import UNSTATED
from mirrorlib.landing.check.report import Findings, tell_claim
from mirrorlib.landing.delimited.dialect import Dialect, dialect_of
from mirrorlib.landing.metadata.declared import METADATA_NAME, TableMetadata, as_published
from mirrorlib.landing.metadata.reading import FORMAT_PROPERTIES, PROPERTIES, parse_metadata

_KNOWN = {**PROPERTIES, **FORMAT_PROPERTIES}
_SIMILAR = 0.7  # "keyColumn" and "primaryKeyColumns" are, "protocolVersion" is not
_DOCUMENTED = {
    "RowSeparator": ("\r\n", "\n", "\r"),
    "ColumnSeparator": (",", ";", "|", "\t"),
    "QuoteCharacter": ('"', "'", ""),
    "EscapeCharacter": ("\\", "/", '"', ""),
}


def review_metadata(
    data: bytes | None, table: str, found: Findings, names: Iterable[str]
) -> TableMetadata:
    """Read what a table's publisher states; *names* are its files, which tell the format where it is not stated."""
    if data is None:
        found.add("metadata-missing", "no _metadata.json", file=METADATA_NAME)
        return UNSTATED
    try:
        metadata = as_published(parse_metadata(data, table), names)
    except MetadataError as exc:
        found.add("metadata-unreadable", tell_claim(exc), file=METADATA_NAME)
        return UNSTATED
    for repair in (*metadata.repairs, *metadata.assumed):
        found.add("metadata-repaired", repair, file=METADATA_NAME)
    for name in metadata.unknown:
        near = difflib.get_close_matches(name.strip().casefold(), _KNOWN, n=1, cutoff=_SIMILAR)
        rule, step = "property-unknown", None
        if near:
            rule, meant = "property-misspelt", _KNOWN[near[0]]
            step = f"Spell it {meant}, and place it where that belongs, if that is what is meant."
        found.add(rule, ascii(name)[:60], file=METADATA_NAME, fix=step)
    if metadata.conditional_update:
        found.add("conditional-update", "it is declared", file=METADATA_NAME)
    if metadata.is_text:
        _review_delimited(metadata, found)
    return metadata


def _review_delimited(metadata: TableMetadata, found: Findings) -> None:
    if not metadata.schema_definition:
        found.add("schema-definition-missing", "no SchemaDefinition.Columns", file=METADATA_NAME)
    for name, documented in _DOCUMENTED.items():
        stated = metadata.format_properties.get(name, documented[0])
        if stated not in documented:
            found.add("format-property", f"{name} {ascii(stated)[:20]}", file=METADATA_NAME)
    if metadata.delimited_text and not metadata.file_extension:
        found.add("extension-undeclared", "no FileExtension", file=METADATA_NAME)


def review_dialect(metadata: TableMetadata, table: str, found: Findings) -> Dialect | None:
    """Say how a table's text is written; the usual way where nothing states it, None where nothing can be read."""
    if metadata is UNSTATED:
        return Dialect()
    if not metadata.is_text:
        return None
    try:
        return dialect_of(metadata, table=table)
    except MetadataError as exc:
        what, column, step = tell_claim(exc), exc.column, exc.next_step
        found.add("metadata-unreadable", what, file=METADATA_NAME, column=column, fix=step)
        return None
