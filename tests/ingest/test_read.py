"""Opening change files: every row's marker is seen, whatever its type; damage is found and named. No Spark."""

from __future__ import annotations

import threading
from dataclasses import replace
from datetime import date
from decimal import Decimal
from typing import TYPE_CHECKING, Any, BinaryIO

import pyarrow as pa
import pytest

from mirrorlib.errors import ChangeFileError, FileChangedError, MarkerError, SchemaError
from mirrorlib.ingest.batch.open_batch import prepare_files
from mirrorlib.ingest.files.source import Source
from mirrorlib.ingest.rows.decode import decode_all
from mirrorlib.ingest.rows.marks import read_marks
from mirrorlib.ingest.rows.read import (
    Landed,
    Room,
    column_values,
    open_batches,
    read_landed,
)
from mirrorlib.journal.entries import Policies
from mirrorlib.landing import parquet
from mirrorlib.landing.delimited.dialect import Dialect
from mirrorlib.store import LocalStore, StoredFile, open_store
from tests.zones import damage_pages, marker_array

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.zones import TableWriter, ZoneWriter

POLICIES = Policies(
    keys=("id",), upsert_default=False, insert_policy="append", evolution="widen", ntz="utc"
)


@pytest.fixture
def orders(zone: ZoneWriter) -> TableWriter:
    """Give a table folder."""
    return zone.table("orders", keys=["id"])


def source(orders: TableWriter, **policies: object) -> Source:
    """Give a table's source, under other policies when they are named."""
    return Source(
        zone=open_store(str(orders.folder.parent)),
        table="orders",
        folder="orders",
        policies=replace(POLICIES, **policies),  # type: ignore[arg-type]  # names of its fields
    )


def listed(orders: TableWriter, path: Path) -> StoredFile:
    """List one file."""
    file = open_store(str(orders.folder.parent)).stat(f"orders/{path.name}")
    assert file is not None
    return file


def landed(orders: TableWriter, path: Path, *, decode: bool = True, **policies: object) -> Landed:
    """Open a file."""
    return read_landed(source(orders, **policies), listed(orders, path), decode=decode)


@pytest.mark.parametrize("decode", [True, False])
@pytest.mark.parametrize(
    "kind",
    [
        pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64(), pa.float16(),
        pa.float32(), pa.float64(), pa.decimal128(1, 0), pa.decimal128(38, 10), pa.decimal256(50, 2), pa.string(),
        pa.large_string(), pa.dictionary(pa.int8(), pa.string()), pa.dictionary(pa.int32(), pa.int64()),
    ],
    ids=str,
)  # fmt: skip
def test_markers_are_read_from_any_type(
    orders: TableWriter, kind: pa.DataType, decode: bool
) -> None:
    """By value, not by type or position; rows are counted by marker."""
    path = orders.file(
        [{"id": i} for i in range(5)], [0, 1, 2, 4, 4], marker_type=kind, marker_at="first"
    )

    found = landed(orders, path, decode=decode)

    assert {0: 1, 1: 1, 2: 1, 4: 2} == found.counts
    assert ["id"] == [column.name for column in found.schema.columns]
    if found.rows is not None:
        assert [0, 1, 2, 4, 4] == read_marks(found, found.rows).to_pylist()


@pytest.mark.parametrize("decode", [True, False])
@pytest.mark.parametrize("encoding", ["DELTA_LENGTH_BYTE_ARRAY", "DELTA_BYTE_ARRAY"])
def test_texts_of_which_arrow_makes_no_dictionary_are_read(
    orders: TableWriter, encoding: str, decode: bool
) -> None:
    """Markers among them, and more than a few KB: as DuckDB writes them, and Java by its second version."""
    texts = [f"{i:020d}" for i in range(10_000)]
    rows = pa.table({"id": texts, "__rowMarker__": ["1", "4"] * 5_000})
    path = orders.file(rows, parquet={"use_dictionary": False, "column_encoding": encoding})

    assert {0: 0, 1: 5_000, 2: 0, 4: 5_000} == landed(orders, path, decode=decode).counts


@pytest.mark.parametrize(
    "values,shown",
    [
        (pa.array([0, 3]), "3"),
        (pa.array([0, -1]), "-1"),
        (pa.array([0, 260]), "260"),
        (pa.array([0, 2**63 - 1]), "9223372036854775807"),
        (pa.array([0, 2**64 - 1], pa.uint64()), "18446744073709551615"),
        (pa.array([0, 1.5]), "1.5"),
        (pa.array([0, float("nan")]), "nan"),
        (pa.array([0, float("inf")]), "inf"),
        (pa.array([Decimal("0.0"), Decimal("0.1")]), "0.1"),
        (pa.array(["0", "3"]), "3"),
        (pa.array(["0", ""]), ""),
        (pa.array(["0", "I"]), "I"),
        (pa.array(["0", "1.0"]), "1.0"),
        (pa.array(["0", "11"]), "11"),
        (pa.array(["0", "١"]), "١"),
        (pa.array(["0", "x" * 500]), "x" * 20),
    ],
)
def test_unknown_markers_are_named(orders: TableWriter, values: pa.Array, shown: str) -> None:
    """File, row and value; guessing would corrupt, for publishers disagree about 2 and 3."""
    path = orders.file(pa.table({"id": [1, 2], "__rowMarker__": values}))

    with pytest.raises(MarkerError, match="is not 0, 1, 2 or 4") as caught:
        landed(orders, path)

    error = caught.value
    assert (path.name, 1, "__rowMarker__", shown) == (
        error.file,
        error.row,
        error.column,
        error.found,
    )


@pytest.mark.parametrize(
    "values", [pa.array([True, False]), pa.array([date(1970, 1, 1)] * 2), pa.array([b"0", b"1"])]
)
def test_markers_of_a_type_without_numbers_are_unknown(
    orders: TableWriter, values: pa.Array
) -> None:
    """The first row is named."""
    path = orders.file(pa.table({"id": [1, 2], "__rowMarker__": values}))

    with pytest.raises(MarkerError) as caught:
        landed(orders, path)

    assert 0 == caught.value.row


@pytest.mark.parametrize("kind", [pa.int32(), pa.string(), pa.float64(), pa.null()], ids=str)
def test_null_markers_need_the_upsert_default(orders: TableWriter, kind: pa.DataType) -> None:
    """With it they are upserts, without it they are refused by row."""
    markers = [None, None] if pa.types.is_null(kind) else [1, None]
    path = orders.file([{"id": 1}, {"id": 2}], markers, marker_type=kind)

    with pytest.raises(MarkerError, match="NULL") as caught:
        landed(orders, path)
    found = landed(orders, path, upsert_default=True)

    assert markers.index(None) == caught.value.row
    assert markers.count(None) == found.counts[4]


def test_nulls_do_not_hide_an_unknown_marker(orders: TableWriter) -> None:
    """The default is for NULL only."""
    path = orders.file([{"id": i} for i in range(3)], [None, 4, 3])

    with pytest.raises(MarkerError) as caught:
        landed(orders, path, upsert_default=True)

    assert (2, "3") == (caught.value.row, caught.value.found)


def test_the_row_is_counted_over_row_groups(orders: TableWriter) -> None:
    """A row's place is its place in the file, on either road."""
    markers = [0] * 9 + [7]
    path = orders.file([{"id": i} for i in range(10)], markers, parquet={"row_group_size": 3})

    for decode in (True, False):
        with pytest.raises(MarkerError) as caught:
            landed(orders, path, decode=decode)
        assert 9 == caught.value.row


@pytest.mark.parametrize("marker", [1, 2, 4])
def test_only_inserts_do_without_keys(orders: TableWriter, marker: int) -> None:
    """The row that needs a key is named."""
    path = orders.file([{"id": 1}, {"id": 2}], [0, marker])

    with pytest.raises(MarkerError, match="need keys") as caught:
        landed(orders, path, keys=())

    assert 1 == caught.value.row
    assert 2 == landed(orders, orders.file([{"id": 1}] * 2, [0, 0]), keys=()).counts[0]


def test_upserts_by_default_need_keys(orders: TableWriter) -> None:
    """A marker-free file too."""
    path = orders.file([{"id": 1}])

    with pytest.raises(MarkerError, match="need keys"):
        landed(orders, path, keys=(), upsert_default=True)


def test_key_columns_are_found_without_regard_to_case(orders: TableWriter) -> None:
    """And one that is missing is named, in files that have rows."""
    assert landed(orders, orders.file([{"ID": 1}]))
    assert landed(orders, orders.file(pa.table({"v": pa.array([], pa.int64())})))
    with pytest.raises(SchemaError, match="key column of the table is missing") as caught:
        landed(orders, orders.file([{"v": 1}]))

    assert "id" == caught.value.column


def test_damaged_pages_behind_a_good_footer_are_found(orders: TableWriter) -> None:
    """By decoding the whole file, not by a look at its end."""
    path = orders.damaged([{"id": i} for i in range(100)])
    file = listed(orders, path)

    with pytest.raises(ChangeFileError, match="damaged") as caught:
        landed(orders, path)
    with pytest.raises(ChangeFileError, match="damaged"):
        decode_all(source(orders), file)

    assert path.name == caught.value.file


@pytest.mark.parametrize("size", [0, 1, 4, 8, 12, 100])
def test_a_file_cut_anywhere_is_refused(orders: TableWriter, size: int) -> None:
    """Zero bytes, the magic alone, half a footer."""
    path = orders.file([{"id": i, "v": "x" * 100} for i in range(50)])
    path.write_bytes(path.read_bytes()[:size])

    with pytest.raises(ChangeFileError) as caught:
        landed(orders, path)

    assert "Publish a good file under the same name" in str(caught.value)


def test_a_file_that_is_replaced_while_it_is_read_is_noticed(orders: TableWriter) -> None:
    """Its identity is compared after the last byte."""
    path = orders.file([{"id": 1}])
    file = listed(orders, path)
    orders.replace(1, [{"id": 2}])

    with pytest.raises(FileChangedError, match="replaced or has grown"):
        source(orders).check(file)
    path.unlink()
    with pytest.raises(FileChangedError, match="removed"):
        source(orders).check(file)


@pytest.mark.parametrize("decode", [True, False])
def test_a_file_removed_since_it_was_listed_is_told_as_such(
    orders: TableWriter, *, decode: bool
) -> None:
    """Not as a store that cannot be reached."""
    path = orders.file([{"id": 1}])
    file = listed(orders, path)
    path.unlink()

    with pytest.raises(FileChangedError, match="the change file was removed"):
        read_landed(source(orders), file, decode=decode)


def test_text_is_opened_once(orders: TableWriter, monkeypatch: pytest.MonkeyPatch) -> None:
    """For its header and its rows: an object store is asked twice for each time."""
    path = orders.path(1).with_suffix(".csv")
    path.write_text("id\n1\n")
    opened, open_file = list[str](), LocalStore.open_file

    def counted(store: LocalStore, name: str) -> BinaryIO:
        opened.append(name)
        return open_file(store, name)

    monkeypatch.setattr(LocalStore, "open_file", counted)

    assert 1 == landed(orders, path, dialect=Dialect()).schema.rows
    assert 1 == len(opened)


def test_large_files_are_read_in_pieces(
    orders: TableWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In row order, each piece with its markers; one column alone too, though another's name begins like it."""
    monkeypatch.setattr("mirrorlib.landing.parquet.ROWS_AT_A_TIME", 3)
    rows = [{"a.b": f"x{i}", "a": i, "id": i} for i in range(8)]
    path = orders.file(rows, [0, 4] * 4, parquet={"row_group_size": 5})
    large = landed(orders, path, decode=False)
    column = large.schema.column("a")

    pieces = list(open_batches(large))

    assert large.rows is None
    decoded = [one.rows for one, _ in pieces if one.rows is not None]
    assert [3, 3, 2] == [len(one) for one in decoded] or len(decoded) > 1
    assert [row["a"] for row in rows] == [v for one in decoded for v in one["a"].to_pylist()]
    assert [0, 4] * 4 == [marker for _, markers in pieces for marker in markers.to_pylist()]
    assert column is not None
    values = [v for piece in column_values(large, column) for v in piece.to_pylist()]
    assert list(range(8)) == values


def test_decoding_ends_as_soon_as_a_file_takes_more_memory_than_there_is_room_for(
    orders: TableWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A dictionary says a value once, so only decoding tells; what is known by then is that the file is large."""
    decoded = _count_decoded(monkeypatch)
    monkeypatch.setattr(parquet, "_ROWS_OF_TEXT", 10)
    path = orders.file([{"id": n, "v": "x" * 1000} for n in range(500)])

    found = read_landed(source(orders), listed(orders, path), decode=True, room=Room(25_000))

    assert (None, 500) == (found.rows, found.counts[0])
    assert 30 == sum(decoded)
    assert 25_000 > path.stat().st_size


def test_a_file_that_has_damaged_a_plan_is_decoded_whole_though_there_is_no_room_to_keep_it(
    orders: TableWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else each run would plan it again, and void it."""
    monkeypatch.setattr("mirrorlib.ingest.batch.open_batch.SMALL_DECODED", 0)
    path = orders.file([{"id": number, "v": "x" * 40} for number in range(100)])
    damage_pages(path)
    file = listed(orders, path)

    assert prepare_files(source(orders), [file], ()).fault is None
    fault = prepare_files(source(orders), [file], (), suspects={file.name}).fault
    assert "a page of the change file is damaged" in str(fault)


@pytest.mark.parametrize("kind", ["string", "string_view", "categories"])
def test_text_takes_its_room_however_its_publisher_held_it(orders: TableWriter, kind: str) -> None:
    """Categories of pandas and polars are read as such: small until they are put into a table."""
    texts = pa.array(["x" * 200, "y" * 200] * 500)
    values = texts.dictionary_encode() if kind == "categories" else texts.cast(kind)
    file = listed(orders, orders.file(pa.table({"id": range(1000), "v": values})))

    kept = [
        read_landed(source(orders), file, decode=True, room=Room(room)).rows
        for room in (250_000, 210_000)
    ]

    assert [True, False] == [rows is not None for rows in kept]
    assert kept[0] is not None
    assert texts.to_pylist() == kept[0]["v"].to_pylist()


def test_no_row_is_decoded_of_a_file_whose_columns_cannot_fit(
    orders: TableWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Numbers of rows and types of fixed width tell it before: runs and NULLs take no room in a file."""
    decoded = _count_decoded(monkeypatch)
    same = pa.repeat(pa.scalar(7, pa.int64()), 10_000)
    path = orders.file(pa.table({"id": same, "v": same, "w": pa.nulls(10_000, pa.int64())}))

    found = read_landed(source(orders), listed(orders, path), decode=True, room=Room(200_000))

    assert (None, [], 240_000) == (found.rows, decoded, found.schema.decoded_bytes)
    assert 200_000 > path.stat().st_size


def test_the_files_of_a_batch_share_the_room(
    orders: TableWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two files that would each fit make a large batch."""
    monkeypatch.setattr("mirrorlib.ingest.batch.open_batch.SMALL_DECODED", 6_000)
    files = [
        listed(orders, orders.file([{"id": n or None, "v": "x" * 1000} for n in range(4)]))
        for _ in range(2)
    ]

    assert prepare_files(source(orders), files[:1], ()).small
    found = prepare_files(source(orders), files, ())
    assert not found.small
    # What was decoded before is told like what was not.
    assert [(None, 1, 1)] * 2 == [
        (one.rows, one.null_keys, one.key_ends["id"].nulls) for one in found.landed
    ]


def test_files_of_an_object_store_are_opened_at_once_and_count_in_order(
    orders: TableWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its answers are waited for together; the first file at fault ends a batch, and all share the room."""
    files = [listed(orders, orders.file([{"id": n, "v": "x" * 1000}])) for n in range(6)]
    broken = orders.file([{"id": 6}], [9])
    zone = source(orders)
    met = threading.Barrier(4)

    def open_together(its: Source, file: StoredFile, **how: Any) -> Landed:
        if file in files[1:5]:  # the first is opened alone: a table may have stopped there
            met.wait(60)
        return read_landed(its, file, **how)

    monkeypatch.setattr("mirrorlib.ingest.batch.open_batch.read_landed", open_together)
    monkeypatch.setattr("mirrorlib.store.local.LocalStore.at_once", 4, raising=False)

    found = prepare_files(zone, [*files[:5], listed(orders, broken), files[5]], ())

    assert files[:5] == [one.file for one in found.landed]
    assert found.small
    assert isinstance(found.fault, MarkerError)
    monkeypatch.setattr("mirrorlib.ingest.batch.open_batch.SMALL_DECODED", 3_000)
    large = prepare_files(zone, files, ())
    assert [None] * 6 == [one.rows for one in large.landed]


def _count_decoded(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Count the rows that are decoded with all their columns."""
    decoded: list[int] = []
    decode_pieces = parquet.iter_batches

    def counted(handle: BinaryIO, columns: list[str] | None = None) -> Iterator[pa.RecordBatch]:
        for piece in decode_pieces(handle, columns):
            decoded.extend([len(piece)] if columns is None else [])
            yield piece

    monkeypatch.setattr("mirrorlib.ingest.rows.read.iter_batches", counted)
    return decoded


def test_the_row_of_a_misfit_is_counted_over_pieces(
    orders: TableWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A timestamp that is too fine is named by its place in the file."""
    monkeypatch.setattr("mirrorlib.landing.parquet.ROWS_AT_A_TIME", 3)
    times = pa.array([1000] * 7 + [1001], pa.timestamp("ns"))
    path = orders.file(pa.table({"id": list(range(8)), "t": times}))

    for decode in (True, False):
        found = landed(orders, path, decode=decode)
        column = found.schema.column("t")
        assert column is not None
        with pytest.raises(SchemaError) as caught:
            list(column_values(found, column))
        assert (7, "t") == (caught.value.row, caught.value.column)


@pytest.mark.parametrize("decode", [True, False])
def test_days_of_an_old_calendar_are_left_to_spark(orders: TableWriter, decode: bool) -> None:
    """A file that Spark has written so is kept in memory only where all its days are the same in both."""
    told = {"org.apache.spark.version": "3.5.0", "org.apache.spark.legacyDateTime": ""}
    old, new = (
        pa.table({"id": [1, 2], "d": [date(2026, 1, 1), day]}).replace_schema_metadata(told)
        for day in (date(1582, 10, 14), date(1582, 10, 15))
    )

    kept = landed(orders, orders.file(new), decode=decode)
    left = landed(orders, orders.file(old), decode=decode)

    assert (decode, False) == (kept.rows is not None, left.rows is not None)
    column = left.schema.column("d")
    assert column is not None
    with pytest.raises(SchemaError, match="CORRECTED") as caught:
        list(column_values(left, column))
    assert (1, "d") == (caught.value.row, caught.value.column)
    assert 2 == sum(map(len, column_values(kept, column)))


def test_markers_of_zero_rows_are_no_markers(orders: TableWriter) -> None:
    """A zero-row file is sound, with a marker of no type too."""
    empty = pa.table({"id": pa.nulls(0), "__rowMarker__": pa.nulls(0)})

    assert 0 == sum(landed(orders, orders.file(empty)).counts.values())


def test_the_marker_helper_writes_what_it_says() -> None:
    """The tests' own tool is tested where it could fool them."""
    assert ["1", None] == marker_array([1, None], pa.string()).to_pylist()


@pytest.mark.parametrize(
    "markers, policies, found",
    [
        (["0", "3"], {}, "3"),
        (["0", ""], {}, "NULL"),
        (["0", "2"], {"keys": ()}, "2"),
        (["", "x"], {"upsert_default": True}, "x"),
    ],
    ids=["unknown", "null", "without-keys", "behind-a-default"],
)
@pytest.mark.parametrize("rows_before", [0, 50_000])
def test_a_bad_marker_in_text_is_named_with_its_row(
    orders: TableWriter,
    markers: list[str],
    policies: dict[str, object],
    found: str,
    rows_before: int,
) -> None:
    """Counted through the whole file, which is read in pieces."""
    head = "id,v,__rowMarker__\n" + f'1,"a\n{"b" * 100}",4\n' * rows_before
    rows = "".join(f'1,"a\nb",{marker}\n' for marker in markers)
    path = orders.path(1).with_suffix(".csv")
    path.write_text((head if policies.get("keys") != () else head.replace(",4", ",0")) + rows)

    with pytest.raises(MarkerError) as caught:
        landed(orders, path, **{"dialect": Dialect(), **policies})

    row = rows_before + 1
    assert (row, found) == (caught.value.row, caught.value.found)
    assert f"row {row}, column __rowMarker__" in str(caught.value)
