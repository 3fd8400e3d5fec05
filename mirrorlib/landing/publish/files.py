"""Read the file that somebody wants to publish: Parquet, a folder of it as Spark writes one, or CSV.

In: a path, and the types that the table has. Out: an Arrow table. Promises: no value is changed, fractions
aside, of which a float is the nearest. CSV has no types: a column is read as the table's type if all its
values are that, and otherwise as what they look like, so that the checks can say what has changed (see
`checks`). What is no plain number stays text.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from mirrorlib.errors import ChangeFileError, SchemaError, first_line
from mirrorlib.identifiers import fold_name
from mirrorlib.landing.parquet import open_parquet
from mirrorlib.landing.types import MAX_PRECISION, is_binary_float, is_number
from mirrorlib.landing.values import first_refused, fit_values

# A number that is nothing but its value: no leading zeros, no sign that would be lost, no digits too many.
_PLAIN_NUMBER = r"^-?(0|[1-9][0-9]*)(\.[0-9]+)?$"
_LONGEST_NUMBER = 17
# What a column of numbers takes no value from: an article number that begins with 0, a telephone's +, 0x1F.
_NO_NUMBER = r"^\s*(\+|-?0[0-9xX])"
_MANY_DIGITS = r"^-?[0-9]{8,}$"  # from 8 on, a float may have no room for them
_PARQUET = frozenset({".parquet", ".pq"})
_AS_UTF_8 = "Save the file as UTF-8, or read it yourself and give the rows as an Arrow table."


def read_file(path: Path, *, table: str, types: Mapping[str, pa.DataType]) -> pa.Table:
    """Read a file that is to be published: Parquet, a folder of it, or `.csv` with any compression behind it.

    *types* are the table's by column name, for CSV.
    """
    try:
        if path.is_dir():  # as Spark writes it
            return _read_parts(path, table)
        if path.suffix.lower() in _PARQUET:
            with path.open("rb") as file:
                return open_parquet(file).read()
        if ".csv" in (suffix.lower() for suffix in path.suffixes):
            return _read_csv(path, table, types)
    except (pa.ArrowException, OSError) as exc:
        raise _unreadable(path, table, exc) from exc
    msg = "the file to publish is neither .parquet nor .csv"
    step = "Rename it, or read it yourself and give the rows as an Arrow table."
    raise ChangeFileError(msg, table=table, file=path.name, next_step=step)


def has_no_numbers(texts: pa.ChunkedArray, kind: pa.DataType) -> bool:
    """Say whether a column of numbers would change any of the texts, fractions aside, which floats round."""
    if is_binary_float(kind):
        long = texts.filter(pc.match_substring_regex(texts, _MANY_DIGITS))
        try:
            fit_values(long.cast(pa.decimal128(MAX_PRECISION, 0)), kind)
        except pa.ArrowInvalid:
            return True
    return bool(pc.any(pc.match_substring_regex(texts, _NO_NUMBER)).as_py())


def _read_parts(folder: Path, table: str) -> pa.Table:
    for inner in sorted(path.name for path in folder.iterdir() if path.is_dir()):
        if inner == "_delta_log" or inner[0] not in "_.":
            msg = "the folder to publish holds another one, as a table's does: its rows are not just those of its files"
            step = "Read it with Spark, and publish the frame, or what it has written as Parquet."
            found = inner.partition("=")[0]  # behind it is a value
            raise ChangeFileError(msg, table=table, file=folder.name, found=found, next_step=step)
    parts = sorted(part for part in folder.glob("*.parquet") if part.name[0] not in "_.")
    if not parts:
        msg = "the folder to publish holds no Parquet files"
        step = "Give a folder that Spark has written as Parquet, or a file."
        raise ChangeFileError(msg, table=table, file=folder.name, next_step=step)
    tables = [read_file(part, table=table, types={}) for part in parts]
    for part, rows in zip(parts, tables, strict=True):
        if rows.schema != tables[0].schema:
            msg = "the folder's files have different columns"
            found = f"{parts[0].name} and {part.name}"
            step = "Write the folder anew, or publish its files one by one."
            raise ChangeFileError(msg, table=table, file=folder.name, found=found, next_step=step)
    return pa.concat_tables(tables)


def _read_csv(path: Path, table: str, types: Mapping[str, pa.DataType]) -> pa.Table:
    try:
        with csv.open_csv(path, parse_options=csv.ParseOptions(newlines_in_values=True)) as reader:
            names = reader.schema.names
    except UnicodeDecodeError as exc:
        msg = "the header is no UTF-8 text"
        raise ChangeFileError(msg, table=table, file=path.name, next_step=_AS_UTF_8) from exc
    if len(set(names)) < len(names):
        return _read(path, {})
    folded = {fold_name(name): kind for name, kind in types.items()}
    known = {name: folded[fold_name(name)] for name in names if fold_name(name) in folded}
    try:
        rows = _read(path, known)
    except pa.ArrowInvalid:
        _read(path, {})  # raises for a file that is broken, whatever the types
        for name, kind in list(known.items()):
            try:
                _read(path, {name: kind}, [name])
            except pa.ArrowInvalid:
                del known[name]
        rows = _read(path, known)
    _refuse_bytes(rows, known, path, table)
    return _with_texts(rows, known, path)


def _read(
    path: Path, types: Mapping[str, pa.DataType], columns: Sequence[str] | None = None
) -> pa.Table:
    options = csv.ConvertOptions(
        column_types=types,
        include_columns=columns,
        null_values=[""],
        strings_can_be_null=True,
        quoted_strings_can_be_null=False,
    )
    parse = csv.ParseOptions(newlines_in_values=True)
    return csv.read_csv(path, parse_options=parse, convert_options=options)


def _refuse_bytes(rows: pa.Table, known: Mapping[str, pa.DataType], path: Path, table: str) -> None:
    """Refuse what Arrow takes for bytes because it is no UTF-8: it is text of another encoding."""
    for field in rows.schema:
        if pa.types.is_binary(field.type) and field.name not in known:
            row = first_refused(rows[field.name], lambda head: head.cast(pa.string()))
            msg = "the value is no UTF-8 text"
            raise SchemaError(
                msg, table=table, file=path.name, column=field.name, row=row, next_step=_AS_UTF_8
            )


def _with_texts(rows: pa.Table, known: Mapping[str, pa.DataType], path: Path) -> pa.Table:
    """Give columns back as text whose values are no plain numbers: 007 is not 7."""
    numbers = [field.name for field in rows.schema if is_number(field.type)]
    if not numbers:
        return rows
    texts = _read(path, dict.fromkeys(numbers, pa.string()), numbers)
    for name in numbers:
        text = texts[name]
        if name in known:
            changes = has_no_numbers(text, known[name])
        else:
            plain = pc.match_substring_regex(text, _PLAIN_NUMBER)
            short = pc.less_equal(pc.utf8_length(text), _LONGEST_NUMBER)
            changes = pc.all(pc.and_(plain, short)).as_py() is False
        if changes:
            rows = rows.set_column(rows.schema.get_field_index(name), name, text)
    return rows


def _unreadable(path: Path, table: str, exc: Exception) -> ChangeFileError:
    """Say what is wrong with a file, as far as that can be found out; Arrow's own texts show values."""
    msg, step = "the file to publish cannot be read", "Check the path, and that the file is whole."
    found: str | int | None = type(exc).__name__
    row = None
    if isinstance(exc, OSError):
        found = first_line(exc)
    elif not path.stat().st_size:
        msg, found = "the file to publish is empty", None
    elif path.suffix.lower() not in _PARQUET and (ragged := _ragged_row(path)) is not None:
        width = ragged.expected_columns
        msg = f"the row and the header, which has {width}, differ in their fields"
        step = (
            "Correct the row; a value that holds a comma, a quote or a line end stands in quotes."
        )
        row, found = ragged.number - 2, ragged.actual_columns  # from 1, the header included
    return ChangeFileError(msg, table=table, file=path.name, row=row, found=found, next_step=step)


def _ragged_row(path: Path) -> Any | None:  # noqa: ANN401  # pyarrow has no types
    """Find the first row that has not as many fields as the header; only one thread counts the rows."""
    found: list[Any] = []

    def stop(row: Any) -> str:  # noqa: ANN401
        found.append(row)
        return "error"

    parse = csv.ParseOptions(newlines_in_values=True, invalid_row_handler=stop)
    with contextlib.suppress(pa.ArrowInvalid):
        csv.read_csv(path, csv.ReadOptions(use_threads=False), parse)
    return found[0] if found else None
