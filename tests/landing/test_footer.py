"""Footers: what a file says of its columns, and which names can be carried."""

from __future__ import annotations

import base64
import contextlib
import io
from datetime import UTC, datetime, time
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

pytest.importorskip("pyarrow", minversion="21", reason="an older one has not all types")

import mirrorlib
from mirrorlib.errors import ChangeFileError, SchemaError
from mirrorlib.landing.footer import read_footer
from mirrorlib.landing.parquet import iter_batches, spark_decodes
from mirrorlib.landing.types import INSTANT, WALL_CLOCK
from mirrorlib.landing.values import canonical_values
from mirrorlib.store import StoredFile

if TYPE_CHECKING:
    from pathlib import Path

    from mirrorlib.landing.columns import FileSchema
    from mirrorlib.landing.types import NtzPolicy


def footer(table: pa.Table, *, ntz: NtzPolicy = "utc", **options: object) -> FileSchema:
    """Write a table and read its footer."""
    return read_bytes(written(table, **options), ntz=ntz)


def written(table: pa.Table, **options: object) -> bytes:
    """Write a table as Parquet."""
    sink = io.BytesIO()
    pq.write_table(table, sink, **options)
    return sink.getvalue()


def read_bytes(data: bytes, *, ntz: NtzPolicy = "utc") -> FileSchema:
    """Read the footer of a file's bytes."""
    now = datetime.now(UTC)
    file = StoredFile(path="orders/1.parquet", size=len(data), modified=now, etag="e")
    return read_footer(io.BytesIO(data), file, table="orders", ntz=ntz)


def decodes(table: pa.Table, **options: object) -> bool:
    """Write a table and ask whether Spark could read it."""
    return spark_decodes(io.BytesIO(written(table, **options)))


def refused(table: pa.Table) -> SchemaError:
    """Give the refusal of a file's columns."""
    with pytest.raises(SchemaError) as caught:
        footer(table)
    assert "1.parquet" == caught.value.file
    return caught.value


def test_timestamps_without_zone_may_stay_so() -> None:
    """Only on request; INT96 is an instant by its history."""
    moment = datetime(2026, 1, 1)
    table = pa.table({"t": pa.array([moment], pa.timestamp("us"))})

    assert INSTANT == footer(table).columns[0].type
    assert WALL_CLOCK == footer(table, ntz="keep").columns[0].type
    int96 = footer(table, ntz="keep", use_deprecated_int96_timestamps=True)
    assert INSTANT == int96.columns[0].type


@pytest.mark.parametrize(
    "kind,said", [("ENUM", b"\x25\x08\x4c\x4c\x00\x00"), ("JSON", b"\x25\x26\x4c\xcc\x00\x00")]
)
def test_text_of_a_special_kind_is_text(tmp_path: Path, kind: str, said: bytes) -> None:
    """As Spark reads it, whatever pyarrow's version; `check` says the same. No writer of pyarrow's has an ENUM."""
    plain = written(pa.table({"c": ["é"]}), store_schema=False)
    text = b"\x25\x00\x4c\x1c\x00\x00"  # a column's converted type, and its logical one
    assert 1 == plain.count(text)
    data = plain.replace(text, said)
    assert kind == pq.read_metadata(io.BytesIO(data)).schema.column(0).logical_type.type

    assert pa.string() == read_bytes(data).columns[0].type

    (tmp_path / "t").mkdir()
    (tmp_path / "t" / "_metadata.json").write_text("{}")
    (tmp_path / "t" / f"{1:020d}.parquet").write_bytes(data)
    (tmp_path / "t" / f"{2:020d}.parquet").write_bytes(plain)
    assert mirrorlib.check(tmp_path, deep=True).ok


@pytest.mark.parametrize("stored", [True, False])
@pytest.mark.parametrize(
    "kind,values,plain",
    [
        (pa.json_(), ["{}", None], pa.string()),
        (pa.json_(pa.large_string()), ["{}", None], pa.string()),
        (pa.uuid(), [b"0123456789abcdef", None], pa.binary()),
    ],
    ids=str,
)
def test_what_a_newer_pyarrow_has_a_name_for_is_read_as_it_was(
    kind: pa.DataType, values: list[object], plain: pa.DataType, *, stored: bool
) -> None:
    """By Spark, and with the same values here, with Arrow's own copy of the schema and without."""
    array = pa.ExtensionArray.from_storage(kind, pa.array(values, kind.storage_type))
    data = written(pa.table({"v": array}), store_schema=stored)

    (column,) = read_bytes(data).columns
    (piece,) = iter_batches(io.BytesIO(data))

    assert (plain, True) == (column.type, column.native)
    assert values == canonical_values(pa.chunked_array([piece["v"]]), plain).to_pylist()


# `optional binary v (DECIMAL(10, 2))`, by Java: pyarrow writes none.
_AVROS_DECIMAL = (
    "UEFSMRUGFUYVRhWgobuyCUwVCBUCFQgVDhUEFQARAAADC4ABBAMAAAAAAACAAQQDAgACAAAACAAAAAAAAAB9+QGGnxkRAhkYAfkZGAMBhp8V"
    "AhkWAgAZHBYIFX4WAAAZFgoAFQIZLEgBbRUCABUMJQIYAXYlChUEFRQsXBUEFRQAAAAWCBkcGRwmABwVDBkVDhkYAXYVABYIFn4WfiYIPDYC"
    "KAMBhp8YAfkAGRwVBhUOFQIAPBYKAAAWrAEVGhaGARUmABZ+FggmCBZ+FAAAGRwYEXdyaXRlci5tb2RlbC5uYW1lGAdleGFtcGxlABhKcGFy"
    "cXVldC1tciB2ZXJzaW9uIDEuMTcuMCAoYnVpbGQgZmFjMGM3NDY1MzJlMTMzYmViOTI4YTdmNmE3ZTU3YjUxMGI0NzdhMSkZHBwAAADdAAAA"
    "UEFSMQ=="
)


def test_a_short_decimal_in_bytes_of_any_length_is_not_read_by_spark() -> None:
    """It ends with a NullPointerException there, in every batch; Arrow reads it."""
    data = base64.b64decode(_AVROS_DECIMAL)

    (column,) = read_bytes(data).columns
    (piece,) = iter_batches(io.BytesIO(data))

    assert (pa.decimal128(10, 2), False) == (column.type, column.native)
    assert ["1.25", "-0.07", None, "999.99"] == piece["v"].cast(pa.string()).to_pylist()


def test_a_row_that_no_process_is_meant_to_hold_is_told_as_such() -> None:
    """Not as damage: the same file would be refused whenever it is uploaded again."""
    with pytest.raises(
        ChangeFileError, match=r"larger than a row may be \(found a row has 129 MiB"
    ):
        footer(pa.table({"v": [bytes(129 << 20)]}), compression="zstd", use_dictionary=False)


def test_the_footer_tells_columns_marker_and_rows() -> None:
    """The marker is none of the columns, whatever its case and place."""
    found = footer(pa.table({"id": [1], "__ROWMARKER__": ["1"], "v": ["x"]}))

    assert ["id", "v"] == [column.name for column in found.columns]
    assert ("__ROWMARKER__", pa.string(), 1) == (found.marker, found.marker_type, found.rows)
    assert found.column("V") is found.columns[1]
    assert None is found.column("w")


@pytest.mark.parametrize(
    "array,options,native",
    [
        (pa.array([1]), {}, True),
        (pa.array([datetime(2026, 1, 1)], pa.timestamp("us")), {}, True),
        (pa.array([datetime(2026, 1, 1)], pa.timestamp("us")), {"use_deprecated_int96_timestamps": True}, True),
        (pa.array([datetime(2026, 1, 1)], pa.timestamp("ns")), {}, False),
        (pa.array([time(1)], pa.time64("us")), {}, False),
        (pa.array([1.5], pa.float16()), {}, False),
        (pa.nulls(1), {}, False),
        (pa.array([1]), {"compression": "brotli"}, False),
        (pa.array([1]), {"compression": "lz4"}, True),
        (pa.array([1.5]), {"use_byte_stream_split": True, "use_dictionary": False}, False),
    ],
)  # fmt: skip
def test_what_spark_cannot_read_is_known(
    array: pa.Array, options: dict[str, object], native: bool
) -> None:
    """Such files are written again before Spark sees them."""
    table = pa.table({"v": array})

    assert native is (footer(table, **options).columns[0].native and decodes(table, **options))


def test_encodings_of_every_row_group_count() -> None:
    """DuckDB chooses them for each."""
    table, sink = pa.table({"v": [0.5, 1.5]}), io.BytesIO()
    footers = []
    # One file behind the other, at places of their own.
    for encoding in ("PLAIN", "BYTE_STREAM_SPLIT"):
        pq.write_table(table, sink, use_dictionary=False, column_encoding=encoding)
        footers.append(pq.read_metadata(io.BytesIO(sink.getvalue())))
    both, footer_of_both = footers[0], io.BytesIO()
    both.append_row_groups(footers[1])
    both.write_metadata_file(footer_of_both)
    writer = both.created_by.encode()
    sink.write(footer_of_both.getvalue()[4:].replace(writer, b"DuckDB".ljust(len(writer))))

    assert [0.5, 1.5] * 2 == pq.read_table(sink).column("v").to_pylist()
    assert not spark_decodes(sink)


@pytest.mark.parametrize(
    "name",
    [
        "_change_type",
        "_COMMIT_VERSION",
        "_commit_timestamp",
        "_metadata",
        "_mirror_",
        "_Mirror_op",
        "",
    ],
)
def test_reserved_names_are_refused(name: str) -> None:
    """In any case; a column without a name has none to be called by."""
    error = refused(pa.table({name: [1]}))

    assert (name or None) == error.column
    assert "Rename the column" in str(error)


@pytest.mark.parametrize("name", ["a\x00b", "a\x01b", "a\rb", "a`b", "x" * 256])
def test_names_that_cannot_be_carried_are_refused_printably(name: str) -> None:
    """Control characters and names too long, before anything is planned."""
    assert str(refused(pa.table({name: [1]}))).isprintable()


@pytest.mark.parametrize(
    "name", ["a b", "a,b", "a=b", "a.b", "a'b", "${x}", "ก", "x" * 255, "__index_level_0__"]
)
def test_other_names_are_taken(name: str) -> None:
    """Whatever Delta can hold."""
    assert name == footer(pa.table({name: [1]})).columns[0].name


@pytest.mark.parametrize(
    "names,reason",
    [
        (["v", "V"], "two columns differ only by case"),
        (["v", "v"], "two columns have the same name"),
        (["É", "é"], "two columns differ only by case"),
    ],
)
def test_columns_that_delta_takes_for_one_are_refused(names: list[str], reason: str) -> None:
    """And it is said whether they differ at all."""
    table = pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=names)

    assert reason in str(refused(table))


def test_two_markers_are_refused() -> None:
    """Equal in name or only without regard to case."""
    for names in (["__rowMarker__", "__ROWMARKER__"], ["__rowMarker__"] * 2):
        table = pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=names)
        assert "two row marker columns" in str(refused(table))
        assert "reset" not in str(refused(table))  # it would read the same file


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"PAR1",
        b"PAR1\0\0\0\0PAR1",
        b"\xff" * 1000,
        b"PAR1" + b"\0" * 100 + b"\xff\xff\xff\x7fPAR1",
    ],
)
def test_what_is_no_parquet_is_refused(data: bytes) -> None:
    """Whatever its last bytes claim."""
    with pytest.raises(ChangeFileError):
        read_bytes(data)


@pytest.mark.parametrize("bits", [0x01, 0x10, 0xFF])
def test_no_damaged_byte_ends_the_process(bits: int) -> None:
    """Arrow ends it when it is asked for a chunk's statistics and they are damaged."""
    whole = written(pa.table({"id": [1, 2], "v": ["a", "b"]}))

    for place in range(len(whole)):
        damaged = bytearray(whole)
        damaged[place] ^= bits
        spark_decodes(io.BytesIO(bytes(damaged)))
        with contextlib.suppress(ChangeFileError, SchemaError):
            read_bytes(bytes(damaged))


@pytest.mark.parametrize("name", ["1.csv", "1.TSV", "1.csv.gz"])
def test_text_that_is_taken_for_parquet_is_told_what_to_declare(name: str) -> None:
    """Metadata that states no format means Parquet; a name that says text is no damaged upload."""
    data = b"id,v\r\n1,a\r\n"
    file = StoredFile(path=f"orders/{name}", size=len(data), modified=datetime.now(UTC), etag="e")

    with pytest.raises(ChangeFileError) as caught:
        read_footer(io.BytesIO(data), file, table="orders", ntz="utc")

    assert "the change file is not Parquet" in caught.value.reason
    assert 'declare "FileFormat": "CSV"' in str(caught.value)


@pytest.mark.parametrize(
    "first, second",
    [
        ("id", "\u0130d"),
        ("id", "\u0131D"),
        ("\u00b5m", "\u03bcm"),
        ("pas\u017f", "PASS"),
        ("k", "\u212a"),
        ("\u0130", "i\u0307"),
    ],
)
def test_columns_that_spark_or_delta_takes_for_one_are_refused(first: str, second: str) -> None:
    """Python would tell them apart, and the table's first MERGE would fail for ever."""
    with pytest.raises(SchemaError, match="two columns differ only by case") as caught:
        footer(pa.table({first: [1], second: [2]}))

    assert f"{first} and {second}" == caught.value.found


@pytest.mark.parametrize("first, second", [("ß", "ss"), ("\ufb01", "fi"), ("é", "e")])
def test_columns_that_only_unicode_takes_for_one_are_carried(first: str, second: str) -> None:
    """Java compares names character by character."""
    assert [first, second] == [c.name for c in footer(pa.table({first: [1], second: [2]})).columns]


def test_a_column_is_found_as_spark_finds_it() -> None:
    """By a key, say, in another case that only Java knows."""
    found = footer(pa.table({"\u0130d": [1]})).column("id")

    assert found is not None
    assert "\u0130d" == found.name
