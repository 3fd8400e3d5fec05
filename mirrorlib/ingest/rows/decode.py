"""Decode change files, whatever their format: what one says of its columns, and its rows piece by piece.

In: a listed file and the policies by which it is read. Out: a `FileSchema`, and tables that fit into
memory. Nothing here asks whether the file is still the one that was listed: that is for the caller,
after the last byte.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from typing import BinaryIO, cast

import pyarrow as pa

from mirrorlib.errors import ChangeFileError, SchemaError, first_line
from mirrorlib.ingest.files.source import Source
from mirrorlib.landing.columns import FileSchema
from mirrorlib.landing.delimited.dialect import Dialect
from mirrorlib.landing.delimited.tables import iter_tables, read_header
from mirrorlib.landing.delimited.text import TextFile
from mirrorlib.landing.footer import read_footer
from mirrorlib.landing.given import add_given
from mirrorlib.landing.lines import iter_line_tables, read_line_schema
from mirrorlib.landing.parquet import iter_batches
from mirrorlib.landing.plain import FILE_PATH, RESCUED
from mirrorlib.store import StoredFile


def open_schema(source: Source, file: StoredFile, opened: BinaryIO | None = None) -> FileSchema:
    """Read what a file and its partition folders say about its columns; *opened* is the file, left open.

    It says so in a footer, the header of delimited text, all JSON lines.

    Raises `ChangeFileError`: the file is empty, cut short or not of its format; `SchemaError`: a column's name or type
    cannot be mirrored, a folder's value is not of its declared type, or a plain folder has no room for a column.
    """
    policies, table = source.policies, source.table
    kind = policies.kind_of(file.name)
    with nullcontext(opened) if opened else source.zone.open_file(file.path) as handle:
        if kind == "parquet":
            schema = read_footer(handle, file, table=table, ntz=policies.ntz)
        else:
            text = TextFile(handle, file, text_dialect(source), table)
            lines = kind == "lines"
            schema = read_line_schema(text) if lines else read_header(text, ntz=policies.ntz)
    if policies.plain is not None:
        schema = replace(schema, undeclared=())  # there is nowhere to declare them
        _check_plain(source, file, schema)
    if not schema.rows and all(pa.types.is_null(column.type) for column in schema.columns):
        return schema  # a publisher's first sign of life, from which no table is made (Q11)
    return add_given(schema, file.name, policies.dialect, table=table, ntz=policies.ntz)


def _check_plain(source: Source, file: StoredFile, schema: FileSchema) -> None:
    """Refuse row markers where nobody heeds them, and the names of what is rescued."""
    taken = schema.marker
    msg = "the file has row markers, and the rows of a plain folder are all inserts"
    step = "Write _metadata.json, so that updates and deletes are applied, or rename the column."
    if taken is None:
        taken = next((name for name in (RESCUED, FILE_PATH) if schema.column(name)), None)
        msg = "the column's name is reserved in a plain folder"
        step = "Rename the column at its publisher."
    if taken is not None:
        raise SchemaError(msg, table=source.table, file=file.name, column=taken, next_step=step)


def iter_pieces(
    source: Source,
    file: StoredFile,
    schema: FileSchema,
    columns: list[str] | None = None,
    *,
    opened: BinaryIO | None = None,
) -> Iterator[pa.Table]:
    """Give a file's rows, or some of its columns, in pieces that fit into memory; *opened* is the file, left open.

    Raises `ChangeFileError`: a page is damaged, a row is ragged, a value does not fit its declared type.
    """
    kind = source.policies.kind_of(file.name)
    with nullcontext(opened) if opened else source.zone.open_file(file.path) as handle:
        if kind == "parquet":
            try:
                for batch in iter_batches(handle, columns):
                    yield pa.Table.from_batches([batch])
            except (pa.ArrowException, OSError) as exc:
                raise damaged(source, file, exc) from exc
            return
        text = TextFile(handle, file, text_dialect(source), source.table)
        tables = iter_line_tables if kind == "lines" else iter_tables
        for rows in tables(text, schema.own):
            yield rows if columns is None else rows.select(columns)


def text_dialect(source: Source) -> Dialect:
    """Return how a table's text is written; policies that do not say it call every file Parquet."""
    return cast("Dialect", source.policies.dialect)


def decode_all(source: Source, file: StoredFile) -> None:
    """Decode every page of a file, or every row of a text, and keep nothing; see `iter_pieces` for what is raised."""
    for _ in iter_pieces(source, file, open_schema(source, file)):
        pass


def damaged(source: Source, file: StoredFile, exc: Exception) -> ChangeFileError:
    """Say that a page of a Parquet file cannot be decoded."""
    msg = "a page of the change file is damaged"
    return ChangeFileError(msg, table=source.table, file=file.name, found=first_line(exc))
