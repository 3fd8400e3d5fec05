"""Read delimited text as it is read where it is applied: every value by its declared DataType.

In: one listed file that the lint has looked at. Out: findings: what would stop the table at the file,
and NULLs in columns that are declared to have none. The file passes in pieces and is read to its
end, or to the first value that does not fit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from mirrorlib.errors import ChangeFileError, FileChangedError, MetadataError, SchemaError
from mirrorlib.landing.check.columns import UNPARSABLE
from mirrorlib.landing.check.rows import DELETE, Policy, Rows
from mirrorlib.landing.columns import MARKER
from mirrorlib.landing.delimited import dialect_of, iter_tables, line_of, read_header
from mirrorlib.landing.markers import small_markers
from mirrorlib.landing.metadata import METADATA_NAME

if TYPE_CHECKING:
    from mirrorlib.landing.check.findings import Findings
    from mirrorlib.landing.check.folder import ChangeFile
    from mirrorlib.landing.delimited import Dialect
    from mirrorlib.landing.metadata import TableMetadata
    from mirrorlib.store import Store


def review_values(
    zone: Store, file: ChangeFile, metadata: TableMetadata, policy: Policy, found: Findings
) -> None:
    """Read one file of delimited text to its end; what the lint has named already is not named again.

    Raises:
        StoreError: the store failed.

    """
    try:
        dialect = dialect_of(metadata, table=policy.table)
    except MetadataError as exc:
        if not found.has_error(METADATA_NAME):
            found.add("metadata-unreadable", exc.reason, file=METADATA_NAME)
        return
    try:
        _read(zone, file, dialect, policy, found)
    except FileChangedError:
        found.add("file-changing", "another file than was listed", file=file.name)
    except SchemaError as exc:
        if not found.has_error(file.name):
            found.add("text-no-header", exc.reason, file=file.name)
    except ChangeFileError as exc:
        if exc.column is None and found.has_error(file.name):
            return
        rule, told = UNPARSABLE, exc.reason
        if exc.column is not None:
            rule, told = (
                "text-value",
                f"{exc.found}; {dialect.data_type(exc.column).name} is declared",
            )
        found.add(rule, told, file=file.name, column=exc.column, row=exc.row, line=exc.line)


def _read(zone: Store, file: ChangeFile, dialect: Dialect, policy: Policy, found: Findings) -> None:
    stored, table = file.stored, policy.table
    keys = {key.lower() for key in policy.keys}  # NULL in a key is told with the keys
    with zone.open_file(stored.path) as handle:
        schema = read_header(handle, stored, dialect, table=table)
        required = [column.name for column in schema.columns if dialect.required(column.name)]
        nulls = {name: Rows() for name in required if name.lower() not in keys}
        seen = 0
        for rows in iter_tables(handle, stored, dialect, schema, table=table):
            _see_nulls(nulls, rows, seen)
            seen += len(rows)
        for name, missing in nulls.items():
            row, told = missing.first, missing.told
            if row is not None:
                line = line_of(handle, stored, dialect, schema, row, table=table)
                found.add("text-null", told, file=file.name, column=name, row=row, line=line)


def _see_nulls(nulls: dict[str, Rows], rows: pa.Table, start: int) -> None:
    """Take in a piece; a delete needs its key alone."""
    holes = [name for name in nulls if rows.column(name).null_count]
    if not holes:
        return
    markers = next((rows.column(n) for n in rows.column_names if n.lower() == MARKER), None)
    kept = None
    if markers is not None:
        kept = pc.fill_null(pc.not_equal(small_markers(markers), DELETE), fill_value=True)
    for name in holes:
        mask = pc.is_null(rows.column(name))
        nulls[name].see(mask if kept is None else pc.and_(mask, kept), start, rows.column(name))
