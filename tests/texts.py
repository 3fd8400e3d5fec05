"""Write delimited text as plain Python would, and read it back through the package."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from mirrorlib.errors import ChangeFileError
from mirrorlib.landing.delimited.dialect import Dialect
from mirrorlib.landing.delimited.tables import iter_tables, read_header
from mirrorlib.landing.delimited.text import TextFile
from mirrorlib.landing.metadata.declared import DefinedColumn
from mirrorlib.store import StoredFile

if TYPE_CHECKING:
    from mirrorlib.landing.columns import FileSchema
    from mirrorlib.landing.types import NtzPolicy


def dialect(types: Mapping[str, str] | None = None, **options: str | None) -> Dialect:
    """Give a dialect that declares columns by name and `DataType`."""
    columns = tuple(
        DefinedColumn(name=name, data_type=kind, nullable=None)
        for name, kind in (types or {}).items()
    )
    return Dialect(columns=columns, **options)  # type: ignore[arg-type]  # one option may be None


def listed(data: bytes) -> StoredFile:
    """Give the listing of a change file of these bytes."""
    return StoredFile(path="orders/1.csv", size=len(data), modified=datetime.now(UTC), etag="e")


def header(data: bytes, how: Dialect, *, ntz: NtzPolicy = "utc") -> FileSchema:
    """Read a file's header."""
    return read_header(TextFile(io.BytesIO(data), listed(data), how, "orders"), ntz=ntz)


def tables(data: bytes, how: Dialect, *, ntz: NtzPolicy = "utc", **sizes: int) -> list[pa.Table]:
    """Read a file from one handle: its header, then its rows."""
    handle = io.BytesIO(data)
    text = TextFile(handle, listed(data), how, "orders", **sizes)
    schema = read_header(text, ntz=ntz)
    found = list(iter_tables(text, schema))
    assert not handle.closed, "the handle is its caller's"
    return found


def rows(data: bytes, how: Dialect, *, ntz: NtzPolicy = "utc", **sizes: int) -> list[tuple]:
    """Read a file's rows as tuples."""
    whole = pa.concat_tables(tables(data, how, ntz=ntz, **sizes))
    return list(zip(*(column.to_pylist() for column in whole.columns), strict=True))


def refusal(data: bytes, how: Dialect, *, ntz: NtzPolicy = "utc", **sizes: int) -> ChangeFileError:
    """Give the refusal of a file; it names the table and the file, and shows no data."""
    with pytest.raises(ChangeFileError) as caught:
        tables(data, how, ntz=ntz, **sizes)
    assert ("orders", "1.csv") == (caught.value.table, caught.value.file)
    return caught.value


def written(
    names: Sequence[str], lines: Sequence[Sequence[str | None]], how: Dialect, *, spell: int = 0
) -> str:
    """Write a header and rows the way *how* says.

    Args:
        names: the header.
        lines: the fields of each row; None is NULL.
        how: the dialect.
        spell: each number spells the same fields in another way: quoted without need, quotes
            doubled or escaped, NULL as nothing or as the `NullValue`.

    """
    end = how.row_separator
    fields = [list(map(str, names)), *lines]
    text = [
        how.column_separator.join(
            _field(field, how, spell + row + place) for place, field in enumerate(line)
        )
        for row, line in enumerate(fields)
    ]
    return end.join(text) + (end if spell % 2 else "")


def _field(value: str | None, how: Dialect, spell: int) -> str:
    quote, escape = how.quote, "" if how.escape == how.quote else how.escape
    if value is None:
        return how.null_value if how.null_value and spell % 3 == 0 else ""
    special = {how.column_separator, "\r", "\n", quote} - {""}
    must = value in {"", how.null_value} or any(mark in value for mark in special)
    if quote and (must or spell % 5 == 0):
        body = value.replace(escape, escape * 2) if escape else value
        other = escape if escape and spell % 2 else quote
        return quote + body.replace(quote, other + quote) + quote
    if not quote and escape:
        return "".join(escape + c if c in special | {escape} else c for c in value)
    return value.replace(escape, escape * 2) if escape else value
