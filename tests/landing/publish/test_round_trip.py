"""What is published reads back equal: every type, in Parquet and in delimited text, on both kinds of store."""

from __future__ import annotations

import csv
import datetime as dt
import io
import math
from decimal import Decimal
from pathlib import Path
from typing import Any

import obstore.store
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirrorlib.landing.footer import read_footer
from mirrorlib.landing.publish.rows import encode_rows
from mirrorlib.landing.publish.writer import LandingZoneWriter
from mirrorlib.store import LocalStore, ObjectStore
from publishing import visible

MARKER = "__rowMarker__"
TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), max_size=8)
FLOATS_32 = st.floats(width=32)
KINDS: dict[pa.DataType, st.SearchStrategy[Any]] = {
    pa.bool_(): st.booleans(),
    pa.int8(): st.integers(-(2**7), 2**7 - 1),
    pa.int16(): st.integers(-(2**15), 2**15 - 1),
    pa.int32(): st.integers(-(2**31), 2**31 - 1),
    pa.int64(): st.integers(-(2**63), 2**63 - 1),
    pa.float32(): FLOATS_32,
    pa.float64(): st.floats(),
    pa.decimal128(12, 3): st.decimals(-(10**8), 10**8, places=3),
    pa.decimal128(38, 0): st.integers(-(10**38) + 1, 10**38 - 1).map(Decimal),
    pa.string(): TEXT,
    pa.binary(): st.binary(max_size=8),
    pa.date32(): st.dates(),
    pa.timestamp("us"): st.datetimes(),
    pa.timestamp("us", "UTC"): st.datetimes(timezones=st.just(dt.UTC)),
}
NO_CSV = {kind for kind in KINDS if pa.types.is_decimal(kind)}


@st.composite
def tables(draw: st.DrawFn, without: set[pa.DataType]) -> pa.Table:
    """Make a table of a key and some columns, with NULL and NOT NULL, in one or more chunks."""
    count = draw(st.integers(0, 5))
    kinds = draw(st.lists(st.sampled_from([k for k in KINDS if k not in without]), max_size=6))
    fields, arrays = [pa.field("id", pa.int64())], [pa.array(range(count), pa.int64())]
    for place, kind in enumerate(kinds):
        nullable = draw(st.booleans())
        values = KINDS[kind] | st.none() if nullable else KINDS[kind]
        fields.append(pa.field(f"c{place}", kind, nullable=nullable))
        arrays.append(pa.array(draw(st.lists(values, min_size=count, max_size=count)), kind))
    table = pa.Table.from_arrays(arrays, schema=pa.schema(fields))
    cut = draw(st.integers(0, count))
    return pa.concat_tables([table.slice(0, cut), table.slice(cut)])


def published(rows: pa.Table, markers: list[int] | None, file_format: Any) -> bytes:
    """Publish rows in a zone of their own; give the file."""
    store = ObjectStore("memory:///", obstore.store.MemoryStore())
    if markers is not None:
        rows = rows.add_column(0, "op", pa.array(markers, pa.int64()))
    table = LandingZoneWriter(store).table("t", keys=["id"], file_format=file_format)
    table.write(rows, None if markers is None else "op")
    (data,) = visible(store, "t").values()
    return data


@st.composite
def marked(draw: st.DrawFn, without: set[pa.DataType]) -> tuple[pa.Table, list[int] | None]:
    """Make a table, and markers or none."""
    rows = draw(tables(without))
    count = rows.num_rows
    marks = st.lists(st.sampled_from([0, 1, 2, 4]), min_size=count, max_size=count)
    return rows, draw(marks | st.none())


def same(left: Any, right: Any) -> bool:
    """Compare values; NaN is itself."""
    both_nan = isinstance(left, float) and isinstance(right, float) and math.isnan(left)
    return (both_nan and math.isnan(right)) or (type(left) is type(right) and left == right)


@given(case=marked(set()))
def test_parquet_reads_back_equal(case: tuple[pa.Table, list[int] | None]) -> None:
    """Types, NULL and NOT NULL, values, order; markers as int32, last."""
    rows, markers = case
    read = pq.read_table(io.BytesIO(published(rows, markers, "parquet")))

    expected = rows.schema
    if markers is not None:
        expected = expected.append(pa.field(MARKER, pa.int32()))
        assert markers == read[MARKER].to_pylist()
    assert expected == read.schema
    assert not read.schema.metadata
    for name in rows.column_names:
        pairs = zip(rows[name].to_pylist(), read[name].to_pylist(), strict=True)
        assert all(same(left, right) for left, right in pairs)


def csv_value(text: str, kind: pa.DataType) -> Any:
    """Read a field as its declared type; Python's csv cannot tell NULL from an empty text."""
    if not text and not pa.types.is_string(kind):
        return None
    if pa.types.is_boolean(kind):
        return {"true": True, "false": False}[text]
    if pa.types.is_integer(kind):
        return int(text)
    if pa.types.is_floating(kind):
        return pa.scalar(float(text), kind).as_py()
    if pa.types.is_date(kind):
        return dt.date.fromisoformat(text)
    if pa.types.is_timestamp(kind):
        return dt.datetime.fromisoformat(text)
    if pa.types.is_binary(kind):
        assert text.startswith("0x")
        return bytes.fromhex(text[2:])
    return text


def as_csv(value: Any, kind: pa.DataType) -> Any:
    """Give what Python's csv reader can see of a value: no NULL beside empty text, no zone."""
    if pa.types.is_timestamp(kind):
        return None if value is None else value.replace(tzinfo=None)
    return value or "" if pa.types.is_string(kind) else value


@pytest.mark.smoke  # older pyarrow wrote again what came before an empty piece
def test_rows_in_pieces_some_of_which_are_empty_are_written_once() -> None:
    """Neither the header nor a row comes twice."""
    pieces = [[], ["a"], [], [], ["b"], []]
    rows = pa.table({"v": pa.chunked_array(pieces, pa.string())})

    assert ['"v"', '"a"', '"b"'] == encode_rows(rows, text=True).decode().split()


@given(case=marked(NO_CSV))
def test_delimited_text_reads_back_equal(case: tuple[pa.Table, list[int] | None]) -> None:
    """With Python's own csv module, and whatever stands in a text."""
    rows, markers = case
    text = published(rows, markers, "csv").decode("utf-8")
    header, *lines = csv.reader(io.StringIO(text, newline=""), strict=True)

    assert [*rows.column_names, *([] if markers is None else [MARKER])] == header
    assert rows.num_rows == len(lines)
    if markers is not None:
        assert markers == [int(line[-1]) for line in lines]
    for place, field in enumerate(rows.schema):
        for line, value in zip(lines, rows[field.name].to_pylist(), strict=True):
            left, right = as_csv(value, field.type), csv_value(line[place], field.type)
            assert same(left, right), (field.type, left, right)


def test_null_and_empty_text_are_two_things_in_delimited_text() -> None:
    """Nothing at all, and two quotes."""
    data = published(pa.table({"id": [1, 2], "v": [None, ""]}), None, "csv")

    assert b'"id","v"\n1,\n2,""\n' == data


def test_our_reader_takes_what_we_publish(tmp_path: Path) -> None:
    """Footer, names and types, each as it was meant."""
    rows = pa.Table.from_arrays(
        [pa.nulls(0, kind) for kind in KINDS], names=[f"c{n}" for n in range(len(KINDS))]
    )
    store = LocalStore(tmp_path)
    LandingZoneWriter(store).table("t").write(rows)
    (file,) = (f for f in store.list_folder("t").files if f.name.endswith(".parquet"))  # type: ignore[union-attr]
    with store.open_file(file.path) as source:
        schema = read_footer(source, file, table="t", ntz="keep")

    assert list(KINDS) == [column.type for column in schema.columns]
    assert all(column.native for column in schema.columns)
