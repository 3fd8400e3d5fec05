"""Read the file that somebody wants to publish: Parquet, a folder of it as Spark writes one, or CSV.

In: a path, and the types that the table has. Out: an Arrow table. Promises: no value is changed, fractions
aside, of which a float is the nearest. CSV is as in plain folders, and has no types: a column is read as the table's
type if all its values are that, and otherwise as what they look like, so that the checks can say what has changed (see
`checks`). What is no plain number stays text.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from pathlib import Path
from typing import cast

import pyarrow as pa
import pyarrow.compute as pc

from mirrorlib.errors import ChangeFileError, SchemaError, first_line
from mirrorlib.identifiers import fold_name
from mirrorlib.landing.delimited.tables import iter_tables, read_header
from mirrorlib.landing.delimited.text import TextFile
from mirrorlib.landing.parquet import open_parquet, read_schema
from mirrorlib.landing.plain import PLAIN_DIALECT
from mirrorlib.landing.types import INSTANT, MAX_PRECISION, is_number
from mirrorlib.landing.values import fit_values
from mirrorlib.store import LocalStore, StoredFile

# A number that is nothing but its value: no leading zeros, no sign that would be lost, no digits too many.
_PLAIN_NUMBER = r"^-?(0|[1-9][0-9]*)(\.[0-9]+)?$"
_LONGEST_NUMBER = 17
# What a column of numbers takes no value from: an article number that begins with 0, a telephone's +, 0x1F.
_NO_NUMBER = r"^(\+|-?0[0-9xX])"
_MANY_DIGITS = r"^-?[0-9]{8,}(\.0*)?$"  # from 8 on, a float may have no room for them
_PARQUET = frozenset({".parquet", ".pq"})
# The first that takes all values of a column is its type.
_LOOKS = (
    pa.int64(),
    pa.bool_(),
    pa.date32(),
    pa.timestamp("us"),
    INSTANT,
    pa.timestamp("ns"),
    pa.timestamp("ns", "UTC"),
    pa.float64(),
)
_PACKED_OTHERWISE = frozenset({".bz2", ".br", ".lz4", ".xz"})
_WELL_WRITTEN = "Save the file as UTF-8, with a header and quotes where they are needed, or give an Arrow table."


def read_file(path: Path, *, table: str, types: Mapping[str, pa.DataType]) -> pa.Table:
    """Read a file that is to be published: Parquet, a folder of it, or `.csv`, plain or packed by gzip or zstd.

    *types* are the table's by column name, for CSV.
    """
    try:
        if path.is_dir():  # as Spark writes it
            return _read_parts(path, table)
        if path.suffix.lower() in _PARQUET:
            with path.open("rb") as file:
                schema, _ = read_schema(file)
                # Which moments are instants, their types alone do not say.
                return open_parquet(file).read().cast(schema)
        suffixes = {suffix.lower() for suffix in path.suffixes}
        if ".csv" in suffixes and not suffixes & _PACKED_OTHERWISE:
            return _read_csv(path, table, types)
    except (pa.ArrowException, OSError) as exc:
        msg = "the file to publish cannot be read"
        step = "Check the path, and that the file is whole."
        # Arrow's own texts show values.
        found = first_line(exc) if isinstance(exc, OSError) else type(exc).__name__
        raise ChangeFileError(
            msg, table=table, file=path.name, found=found, next_step=step
        ) from exc
    msg = "the file to publish is neither .parquet nor .csv, plain or packed by gzip or zstd"
    step = "Rename it, pack it so, or read it yourself and give the rows as an Arrow table."
    raise ChangeFileError(msg, table=table, file=path.name, next_step=step)


def has_no_numbers(texts: pa.ChunkedArray, kind: pa.DataType) -> bool:
    """Say whether a column of numbers would change any of the texts, fractions aside, which floats round."""
    texts = pc.ascii_trim_whitespace(texts)
    if pa.types.is_floating(kind):
        endless = texts.filter(pc.is_inf(texts.cast(kind)))
        if pc.any(pc.match_substring_regex(endless, "[0-9]")).as_py():
            return True
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
    """Read text as a plain folder's is read, which says what is wrong with it, and give each column a type."""
    with path.open("rb") as handle:
        file = cast("StoredFile", LocalStore(path.parent).stat(path.name))
        text = TextFile(handle, file, PLAIN_DIALECT, table)
        try:
            texts = pa.concat_tables(iter_tables(text, read_header(text)))
        except (ChangeFileError, SchemaError) as exc:
            raise exc.but(next_step=_WELL_WRITTEN) from exc
    if texts.num_columns == 1:
        texts = texts.drop_null()  # an empty line is no row
    folded = {fold_name(name): kind for name, kind in types.items()}
    known = {name: folded.get(fold_name(name)) for name in texts.column_names}
    return pa.table({name: _typed(texts[name], kind) for name, kind in known.items()})


def _typed(texts: pa.ChunkedArray, known: pa.DataType | None) -> pa.ChunkedArray:
    """Read a column as the table's type, if all its values are that, else as what they look like: 007 is not 7."""
    if texts.null_count == len(texts):  # whatever the table has by now: the same, published again
        return pa.chunked_array([pa.nulls(len(texts))])
    if known in (pa.string(), pa.binary()):
        return texts.cast(known)
    bare = pc.ascii_trim_whitespace(texts)
    for kind in _LOOKS if known is None else (known, *_LOOKS):
        with contextlib.suppress(pa.ArrowInvalid, pa.ArrowNotImplementedError):
            values = (bare if kind == known else texts).cast(kind)
            if not is_number(kind):
                return values
            changes = has_no_numbers(texts, kind) or (kind != known and _is_not_plain(texts))
            return texts if changes else values
    return texts


def _is_not_plain(texts: pa.ChunkedArray) -> bool:
    """Say whether some text is more, or less, than a number."""
    plain = pc.match_substring_regex(texts, _PLAIN_NUMBER)
    short = pc.less_equal(pc.utf8_length(texts), _LONGEST_NUMBER)
    return pc.all(pc.and_(plain, short)).as_py() is False
