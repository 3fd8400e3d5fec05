"""Decode change files, whatever their format: what one says of its columns, and its rows piece by piece.

In: a listed file and the policies by which it is read. Out: `OpenedFile`, and tables that fit into
memory. Nothing here asks whether the file is still the one that was listed: that is for the caller,
after the last byte.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import BinaryIO, TypeVar, cast

import pyarrow as pa

from mirrorlib.errors import ChangeFileError, MirrorError, SchemaError, first_line
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

_Error = TypeVar("_Error", bound=MirrorError)


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenedFile:
    """A change file, what it and its partition folders say about its columns, and by which policies it is read."""

    source: Source
    file: StoredFile
    schema: FileSchema
    rows: pa.Table | None = None  # decoded; None where they are read when they are asked for

    def fault(self, kind: type[_Error], reason: str, **facts: str | int | None) -> _Error:
        """Say what is wrong with the file."""
        return kind(reason, table=self.source.table, file=self.file.name, **facts)  # type: ignore[arg-type]  # its own parameters


def open_file(source: Source, file: StoredFile, handle: BinaryIO | None = None) -> OpenedFile:
    """Read what a file and its partition folders say about its columns; *handle* is the file, left open.

    It says so in a footer, the header of delimited text, all JSON lines.

    Raises `ChangeFileError`: the file is empty, cut short or not of its format; `SchemaError`: a column's name or type
    cannot be mirrored, a folder's value is not of its declared type, or a plain folder has no room for a column.
    """
    policies, table = source.policies, source.table
    kind = policies.kind_of(file.name)
    with nullcontext(handle) if handle else source.zone.open_file(file.path) as opened:
        if kind == "parquet":
            schema = read_footer(opened, file, table=table, ntz=policies.ntz)
        else:
            text = TextFile(opened, file, text_dialect(source), table)
            lines = kind == "lines"
            schema = read_line_schema(text) if lines else read_header(text, ntz=policies.ntz)
    if policies.plain is not None:
        schema = replace(schema, undeclared=())  # there is nowhere to declare them
        _check_plain(OpenedFile(source=source, file=file, schema=schema))
    # Else it is a publisher's first sign of life, from which no table is made (Q11).
    if schema.rows or not all(pa.types.is_null(column.type) for column in schema.columns):
        schema = add_given(schema, file.name, policies.dialect, table=table, ntz=policies.ntz)
    return OpenedFile(source=source, file=file, schema=schema)


def _check_plain(opened: OpenedFile) -> None:
    """Refuse row markers where nobody heeds them, and the names of what is rescued."""
    taken = opened.schema.marker
    msg = "the file has row markers, and the rows of a plain folder are all inserts"
    step = "Write _metadata.json, so that updates and deletes are applied, or rename the column."
    if taken is None:
        taken = next((name for name in (RESCUED, FILE_PATH) if opened.schema.column(name)), None)
        msg = "the column's name is reserved in a plain folder"
        step = "Rename the column at its publisher."
    if taken is not None:
        raise opened.fault(SchemaError, msg, column=taken, next_step=step)


def iter_pieces(
    opened: OpenedFile, columns: list[str] | None = None, *, handle: BinaryIO | None = None
) -> Iterator[pa.Table]:
    """Give a file's rows, or some of its columns, in pieces that fit into memory; *handle* is the file, left open.

    Raises `ChangeFileError`: a page is damaged, a row is ragged, a value does not fit its declared type.
    """
    source, file = opened.source, opened.file
    kind = source.policies.kind_of(file.name)
    with nullcontext(handle) if handle else source.zone.open_file(file.path) as data:
        if kind == "parquet":
            try:
                for batch in iter_batches(data, columns):
                    yield pa.Table.from_batches([batch])
            except (pa.ArrowException, OSError) as exc:
                raise damaged(opened, exc) from exc
            return
        text = TextFile(data, file, text_dialect(source), source.table)
        tables = iter_line_tables if kind == "lines" else iter_tables
        for rows in tables(text, opened.schema.own):
            yield rows if columns is None else rows.select(columns)


def text_dialect(source: Source) -> Dialect:
    """Return how a table's text is written; policies that do not say it call every file Parquet."""
    return cast("Dialect", source.policies.dialect)


def decode_all(source: Source, file: StoredFile) -> None:
    """Decode every page of a file, or every row of a text, and keep nothing; see `iter_pieces` for what is raised."""
    for _ in iter_pieces(open_file(source, file)):
        pass


def damaged(opened: OpenedFile, exc: Exception) -> ChangeFileError:
    """Say that a page of a Parquet file cannot be decoded."""
    msg = "a page of the change file is damaged"
    return opened.fault(ChangeFileError, msg, found=first_line(exc))
