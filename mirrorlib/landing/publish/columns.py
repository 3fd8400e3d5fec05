"""Fit one column to its table: the type that it is published as, and whether it may be NULL.

In: a column as it was given, and what is known of it. Out: `FittedColumn`. Promises: a value is cast
only where every one survives; a change of type or nullability that would stop a Fabric table is
refused with the reason.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from mirrorlib.errors import SchemaError
from mirrorlib.identifiers import fold_name
from mirrorlib.landing.metadata.declared import DefinedColumn
from mirrorlib.landing.publish.declare import PublishFormat, published_type
from mirrorlib.landing.publish.files import is_number, no_numbers
from mirrorlib.landing.publish.known import KnownColumn, KnownSchema
from mirrorlib.landing.values import (
    canonical_values,
    first_misfit,
    first_refused,
    fit_values,
)

OR_ANEW = "or delete the table folder and publish the table anew; force publishes it as it is."
_YEARS = (-719_162, 2_932_897)  # days since 1970: the first of year 1, and of year 10000
_DAY = 86_400_000_000  # microseconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """What the checks go by: what the table is, what is known of it, and whether it may be overridden."""

    table: str
    keys: tuple[str, ...]
    file_format: PublishFormat
    upsert_default: bool
    known: KnownSchema
    partition_by: tuple[str, ...] = ()
    force: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class FittedColumn:
    """A column that fits: its values, and how it is known and declared."""

    values: pa.ChunkedArray
    known: KnownColumn
    defined: DefinedColumn


def fit_column(data: pa.Table, field: pa.Field, given: Given) -> FittedColumn | None:
    """Give a column its table's type; None for a column of nothing that nobody has seen yet."""
    values = data[field.name]
    known = given.known.column(field.name)
    kind, data_type = published_type(field.type, given.file_format)
    if kind is None:
        raise _no_place(field, given)
    if known is None and pa.types.is_null(kind):
        _refuse_untyped(field, given)
        return None
    nullable = _nullable(field, known, values, given)
    if known is not None:
        values = _as_known(values, kind, known, field, given)
        kind = values.type
    else:
        values = _as_published(values, kind, field.name, given)
    name = known.name if known is not None else field.name
    return FittedColumn(
        values=values,
        known=KnownColumn(name=name, type=kind, nullable=nullable),
        defined=DefinedColumn(name=name, data_type=data_type, nullable=nullable),
    )


def _as_published(
    values: pa.ChunkedArray, kind: pa.DataType, name: str, given: Given
) -> pa.ChunkedArray:
    """Cast to the type that is published; only nanoseconds and far years can fail."""
    try:
        published = canonical_values(values, kind, "keep")
    except pa.ArrowInvalid as exc:
        msg = f"a value is finer than {kind} can hold"
        step = "Round the values yourself, as it suits your data."
        raise SchemaError(
            msg, table=given.table, column=name, found=str(values.type), next_step=step
        ) from exc
    if given.file_format == "csv":
        _refuse_far_years(published, name, given)
    return published


def _refuse_far_years(values: pa.ChunkedArray, name: str, given: Given) -> None:
    """Refuse years that are not of four digits: every reader of delimited text stops at them."""
    if not pa.types.is_date(values.type) and not pa.types.is_timestamp(values.type):
        return
    ticks = values.cast(pa.int32() if pa.types.is_date(values.type) else pa.int64())
    first, beyond = _YEARS if pa.types.is_date(values.type) else (day * _DAY for day in _YEARS)
    fits = pc.and_(pc.greater_equal(ticks, first), pc.less(ticks, beyond))
    row = pc.index(fits, value=False).as_py()
    if row >= 0:
        msg = "delimited text has a place for the years 1 to 9999 alone"
        step = "Publish Parquet, or correct the value."
        raise SchemaError(msg, table=given.table, column=name, row=row, next_step=step)


def _as_known(
    values: pa.ChunkedArray, kind: pa.DataType, known: KnownColumn, field: pa.Field, given: Given
) -> pa.ChunkedArray:
    """Cast to the type that was published before, if every value survives."""
    if values.null_count == len(values):
        return pa.chunked_array([pa.nulls(len(values), known.type)], known.type)
    published = _as_published(values, kind, field.name, given)
    try:
        return fit_values(published, known.type)
    except pa.ArrowInvalid as exc:
        if given.force:
            return published
        msg = f"the column was published as {known.type} before, and a type change stops a Fabric table"
        raise SchemaError(
            msg,
            table=given.table,
            column=field.name,
            row=_misfit(published, known.type),
            found=str(field.type),
            next_step=f"Convert the values, {OR_ANEW}",
        ) from exc


def _misfit(values: pa.ChunkedArray, kind: pa.DataType) -> int | None:
    """Find the first value that is none of the table's type; of text, the first that is not written like one."""

    def read(texts: pa.ChunkedArray) -> pa.ChunkedArray:
        if is_number(kind) and pc.any(no_numbers(texts)).as_py():
            msg = "text that is no number"
            raise pa.ArrowInvalid(msg)
        return texts.cast(kind)

    row = first_refused(values, read) if pa.types.is_string(values.type) else None
    return first_misfit(values, kind) if row is None else row


def _nullable(
    field: pa.Field, known: KnownColumn | None, values: pa.ChunkedArray, given: Given
) -> bool:
    """Say whether the column may be NULL, from now on as before.

    Arrow calls a column nullable when nobody says otherwise: one without a NULL goes with NOT NULL.
    """
    if not field.nullable and values.null_count:
        msg = "the column is declared NOT NULL, and has a NULL"
        row = pc.index(pc.is_null(values), value=True).as_py()
        raise SchemaError(
            msg, table=given.table, column=field.name, row=row, next_step="Correct the data."
        )
    if not given.known.columns or given.force:
        return bool(field.nullable)
    if known is None and not field.nullable:
        msg = "a new column is NOT NULL, which a Fabric table refuses"
        raise refused(msg, field.name, f"Declare it nullable, {OR_ANEW}", given)
    if known is not None and known.nullable and not field.nullable:
        msg = "the column was published as nullable before and is NOT NULL now, which stops a Fabric table"
        raise refused(msg, field.name, f"Declare it nullable, {OR_ANEW}", given)
    if known is not None and not known.nullable and values.null_count:
        msg = "the column was published as NOT NULL before and has a NULL now, which stops a Fabric table"
        raise refused(msg, field.name, f"Fill the value in, {OR_ANEW}", given)
    return True if known is None else known.nullable


def _refuse_untyped(field: pa.Field, given: Given) -> None:
    """Let a column of nothing but NULL wait until its type is known; delimited text cannot wait."""
    keys = {fold_name(key) for key in given.keys}
    if given.file_format == "csv" or fold_name(field.name) in keys:
        msg = "the column has no type: all its values are NULL"
        raise refused(msg, field.name, "Give it a type.", given)


def _no_place(field: pa.Field, given: Given) -> SchemaError:
    where = "delimited text" if given.file_format == "csv" else "the open mirroring format"
    step = (
        "Publish Parquet, or convert the column to double or string."
        if given.file_format == "csv"
        else "Publish nested values as a JSON string and numbers with at most 38 digits."
    )
    msg = f"this type has no place in {where}"
    return SchemaError(
        msg, table=given.table, column=field.name, found=str(field.type), next_step=step
    )


def refused(reason: str, column: str, step: str, given: Given) -> SchemaError:
    """Say why a column is refused, and what to do."""
    return SchemaError(reason, table=given.table, column=column, next_step=step)
