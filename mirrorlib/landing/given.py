"""What partition folders state: columns that are the same in every row of a file, which the file itself lacks.

In: what a file says of its columns, and its name below its table's folder. Out: the same with what the
folders say. Promise: a value is read as the text beside it would be; without a declared type it is text.
"""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa

from mirrorlib.errors import SchemaError
from mirrorlib.landing.columns import FileColumn, FileSchema, check_names
from mirrorlib.landing.delimited.dialect import Dialect
from mirrorlib.landing.delimited.values import STRING, read_values, shape_of
from mirrorlib.landing.types import NtzPolicy
from mirrorlib.names import partition_values


def add_given(
    schema: FileSchema, file: str, dialect: Dialect | None, *, table: str, ntz: NtzPolicy = "utc"
) -> FileSchema:
    """Add the columns that a file's partition folders state and the file lacks.

    *file* is its name below its table's folder; *dialect* is None where the table's files are no text.
    """
    values = partition_values(file)
    lacking = {name: value for name, value in values.items() if schema.column(name) is None}
    check_names(list(lacking), table=table, file=file)
    columns = list(schema.columns)
    for name, value in lacking.items():
        if any("\ud800" <= character <= "\udfff" for character in value or ""):
            msg, found = "the folder's value is no text", "bytes that are not UTF-8"
            step = "Publish its files in a folder whose name is UTF-8; move none that was applied."
            raise SchemaError(msg, table=table, file=file, column=name, found=found, next_step=step)
        declared = STRING if dialect is None else dialect.data_type(name)
        kind = declared.mirror_type(ntz)
        try:
            read = read_values(pa.chunked_array([[value]], pa.string()), declared, kind)[0]
        except pa.ArrowInvalid as exc:
            msg = f"the folder's value is no {declared.name}, the type in SchemaDefinition"
            step = f"Write it as {declared.written} in the folder's name, or correct DataType in _metadata.json."
            found = shape_of(value or "")
            raise SchemaError(
                msg, table=table, file=file, column=name, found=found, next_step=step
            ) from exc
        known = kind if read.is_valid else pa.null()
        columns.append(FileColumn(name=name, stored=known, type=known, native=True, given=read))
    return replace(schema, columns=tuple(columns))
