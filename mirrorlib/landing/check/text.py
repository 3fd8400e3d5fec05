"""Review delimited text: header, fields of each row, encoding, line ends, markers, keys. A lint, no reader.

In: one listed file. Out: its `Facts`, None when its rows cannot be told, and findings on the way.
pyarrow cuts the text into fields, and goes on where a reader stops; what typed values they are is
for `values`. Everything passes in pieces.
"""

from __future__ import annotations

import csv
import io
import re
from array import array
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.csv

from mirrorlib.landing.check.columns import (
    DAMAGED,
    UNDECODABLE,
    UNPARSABLE,
    Facts,
    UnreadableError,
    good_names,
)
from mirrorlib.landing.check.metadata import known_encoding
from mirrorlib.landing.check.rows import (
    Policy,
    Rows,
    Scan,
    missing_keys,
    scan_keys,
    scan_markers,
    scan_unmarked,
    tell_marker,
    tell_rows,
)
from mirrorlib.landing.check.utf8 import Utf8Text, decompressed, separator
from mirrorlib.landing.columns import MARKER

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from mirrorlib.landing.check.findings import Findings
    from mirrorlib.landing.check.folder import ChangeFile
    from mirrorlib.landing.metadata import TableMetadata
    from mirrorlib.store import Store

_BLOCK = 8 << 20  # bytes: pyarrow wants a whole row in one block
_LINE_END = re.compile(r"\r\n|\n|\r")


def review_text(
    zone: Store,
    file: ChangeFile,
    metadata: TableMetadata | None,
    policy: Policy,
    found: Findings,
) -> Facts | None:
    """Read one file of delimited text.

    Raises:
        UnreadableError: it cannot be decoded, decompressed or cut into fields.
        StoreError: the store failed.

    """
    encoding = known_encoding(metadata)
    if encoding is None:
        return None
    with zone.open_file(file.stored.path) as handle:
        text = Utf8Text(decompressed(handle), encoding, metadata)
        try:
            names = _header(text, metadata)
            marker = _review_header(names, text, file.name, metadata, policy, found)
            if marker is None:
                return None
            scan = _scan(text, names, marker, file.name, metadata, policy, found)
        except UnicodeDecodeError as exc:
            told = f"line {text.line} is not {encoding}"
            raise UnreadableError(UNDECODABLE, told) from exc
        except (csv.Error, ValueError) as exc:  # ArrowInvalid is one, and so are odd separators
            raise UnreadableError(UNPARSABLE, "no rows and fields") from exc
        except (pa.ArrowException, OSError) as exc:
            raise UnreadableError(DAMAGED, "it cannot be decompressed") from exc
    if text.quotes % 2:
        found.add("text-open-quote", f"{text.quotes:,} quotes", file=file.name)
    for key in missing_keys(names, policy) if scan.rows else ():
        found.add("key-missing", "no such column", file=file.name, column=key)
    tell_rows(scan, policy, file.name, marker or None, found)
    return Facts(file=file, columns=(), marked=bool(marker), scan=scan)


def _header(text: Utf8Text, metadata: TableMetadata | None) -> list[str]:
    quote = separator(metadata, "QuoteCharacter", '"')
    escape = separator(metadata, "EscapeCharacter", "\\")
    rows = csv.reader(
        io.StringIO(text.peek(), newline=""),
        delimiter=separator(metadata, "ColumnSeparator", ",") or ",",
        quotechar=quote or None,
        quoting=csv.QUOTE_MINIMAL if quote else csv.QUOTE_NONE,
        escapechar=escape if escape and escape != quote else None,
    )
    return next(rows, [])


def _review_header(
    names: Sequence[str],
    text: Utf8Text,
    file: str,
    metadata: TableMetadata | None,
    policy: Policy,
    found: Findings,
) -> str | None:
    """Compare the header with what is declared; give the marker's name, "" without one, None for no header."""
    declared = {c.name.lower(): c.name for c in metadata.schema_definition} if metadata else {}
    header = [name.lower() for name in names]
    known = {*declared, *(key.lower() for key in policy.keys), MARKER}
    if not names or (len(known) > 1 and not known & set(header)):
        found.add("text-no-header", "no declared column's name in the first row", file=file)
        return None
    _review_line_end(text, file, metadata, found)
    good_names([name for name in names if name.lower() != MARKER], file, policy.table, found)
    for name in names if declared else ():
        if name.lower() not in declared and name.lower() != MARKER:
            found.add("text-column-undeclared", "it is not declared", file=file, column=name)
    for folded, name in declared.items():
        if folded not in header and folded not in {key.lower() for key in policy.keys}:
            found.add("text-column-missing", "it is declared", file=file, column=name)
    markers = [name for name in names if name.lower() == MARKER]
    if len(markers) > 1:
        found.add("marker-twice", " and ".join(markers)[:80], file=file)
        return None
    if markers:
        tell_marker(names, markers[0], None, file, found)
    return markers[0] if markers else ""


def _review_line_end(
    text: Utf8Text, file: str, metadata: TableMetadata | None, found: Findings
) -> None:
    stated = metadata.format_properties.get("RowSeparator") if metadata else None
    declared = stated or "\r\n"
    head = text.peek()
    end = _LINE_END.search(head)
    if metadata is None or end is None or (text.unended and end.end() == len(head)):
        return
    if end[0] != declared:
        told = f"{end[0]!a}, declared is {ascii(declared)[:20]}"
        found.add("text-row-separator", told, file=file)


def _scan(
    text: Utf8Text,
    names: Sequence[str],
    marker: str,
    file: str,
    metadata: TableMetadata | None,
    policy: Policy,
    found: Findings,
) -> Scan:
    """Read the rows: how many fields each has, the marker and the keys."""
    ragged: array[int] = array("q")
    columns = {name.lower(): f"f{place}" for place, name in enumerate(names)}
    keys = {key: columns[key.lower()] for key in policy.keys if key.lower() in columns}
    marked = columns[MARKER] if marker else None
    wanted = [*dict.fromkeys([*([marked] if marked else []), *keys.values()])]
    scan, seen = Scan(), 0
    for batch in _batches(text, len(names), wanted or ["f0"], metadata, ragged):
        if marked:
            scan_markers(scan, _values(batch, marked), seen, policy)
        scan_keys(scan, {key: _values(batch, place) for key, place in keys.items()}, seen)
        seen += len(batch)
    if not marked:
        scan = _unmarked(scan, seen, policy)
    if ragged:
        told = f"{len(ragged):,} rows" if len(ragged) > 1 else "1 row"
        found.add(
            "text-ragged-row",
            f"{told}; the header has {len(names)} fields",
            file=file,
            row=ragged[0],
        )
    for rows in (scan.unknown, scan.unmarked, scan.changes, *scan.null_keys.values()):
        _shift(rows, ragged)
    return scan


def _unmarked(scan: Scan, rows: int, policy: Policy) -> Scan:
    plain = scan_unmarked(rows, policy)
    plain.null_keys = scan.null_keys
    return plain


def _values(batch: pa.RecordBatch, name: str) -> pa.ChunkedArray:
    return pa.chunked_array([batch.column(name)])


def _shift(rows: Rows, ragged: array[int]) -> None:
    """Count the ragged rows, which pyarrow leaves out, into the place of a row."""
    for place in ragged if rows.first is not None else ():
        if rows.first is None or place > rows.first:
            return
        rows.first += 1


def _batches(
    text: Utf8Text,
    width: int,
    wanted: list[str],
    metadata: TableMetadata | None,
    ragged: array[int],
) -> pyarrow.csv.CSVStreamingReader:
    """Open the rows below the header; places of ragged rows go into *ragged*."""

    def skip(row: pyarrow.csv.InvalidRow) -> str:
        ragged.append(row.number - 2)  # from 1, and the header is the first
        return "skip"

    names = [f"f{place}" for place in range(width)]
    quote = separator(metadata, "QuoteCharacter", '"')
    escape = separator(metadata, "EscapeCharacter", "\\")
    properties: Mapping[str, str] = metadata.format_properties if metadata else {}
    return pyarrow.csv.open_csv(
        text,
        read_options=pyarrow.csv.ReadOptions(
            column_names=names, skip_rows_after_names=1, use_threads=False, block_size=_BLOCK
        ),
        parse_options=pyarrow.csv.ParseOptions(
            delimiter=separator(metadata, "ColumnSeparator", ",") or ",",
            quote_char=quote or False,
            double_quote=bool(quote),
            escape_char=escape if escape and escape != quote else False,
            newlines_in_values=True,
            invalid_row_handler=skip,
        ),
        convert_options=pyarrow.csv.ConvertOptions(
            column_types=dict.fromkeys(names, pa.string()),
            include_columns=wanted,
            null_values=["", properties.get("NullValue", "")],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        ),
    )
