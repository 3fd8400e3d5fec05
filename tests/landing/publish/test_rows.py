"""Rows and markers are taken from whatever hands out Arrow, without changing a value."""

from __future__ import annotations

import gzip
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mirrorlib.errors import ChangeFileError, MarkerError, SchemaError
from mirrorlib.landing.publish.rows import (
    MARKER_COLUMN,
    change_key_rows,
    count_markers,
    fingerprint_rows,
    take_rows,
)

ROWS = pa.table({"id": [1, 2], "v": ["a", None]})


def taken(data: object, marker: int | str | None = None, **types: pa.DataType) -> pa.Table:
    """Take rows for a table that is called t."""
    return take_rows(data, marker, table="t", types=types)


class SparkFrame:
    """A frame that gives itself away as Spark's does."""

    def toArrow(self) -> pa.Table:  # noqa: N802  # Spark's name
        """Collect."""
        return ROWS


class StreamFrame:
    """A frame that speaks the Arrow C stream, as polars' and DuckDB's do."""

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return ROWS.__arrow_c_stream__(requested_schema)


@pytest.mark.parametrize(
    "data",
    [
        ROWS,
        ROWS.to_batches()[0],
        ROWS.to_reader(),
        SparkFrame(),
        StreamFrame(),
        ROWS.replace_schema_metadata({"pandas": "{}"}),
    ],
    ids=["table", "batch", "reader", "spark", "stream", "with metadata"],
)
def test_rows_are_taken_from_whatever_hands_out_arrow(data: object) -> None:
    """They are the same rows, without what others noted in the schema."""
    rows = taken(data)

    assert ROWS.equals(rows, check_metadata=True)


def test_rows_are_taken_from_frames_of_pandas_and_polars() -> None:
    """They compare with anything value by value, which no frame that is made up does."""
    for frame in (ROWS.to_pandas(), pl.from_arrow(ROWS)):
        assert ROWS.to_pylist() == taken(frame).to_pylist()


def test_what_arrow_cannot_hold_is_refused_as_such() -> None:
    """Pandas hands it out by other errors than Arrow's."""
    frame = ROWS.to_pandas()
    frame["v"] = [2**70, 1]
    of_objects = pl.DataFrame(
        {"v": pl.Series([{}, {}], dtype=pl.Object)}
    )  # which come as addresses
    for one in (frame, of_objects):
        with pytest.raises(SchemaError, match="cannot be handed out as Arrow"):
            taken(one)


def test_a_frame_of_mixed_values_is_refused_without_showing_them() -> None:
    """As pandas' is, whose columns may hold anything: Arrow's own text shows the value."""

    class MixedFrame:
        def __arrow_c_stream__(self, requested_schema: object = None) -> object:
            return pa.table({"v": pa.array([1, "a-secret"])}).__arrow_c_stream__(requested_schema)

    with pytest.raises(SchemaError, match="cannot be handed out as Arrow") as caught:
        taken(MixedFrame())
    assert caught.value.__suppress_context__
    assert "secret" not in str(caught.value)


def test_the_index_of_a_pandas_frame_is_no_column_unless_it_has_a_name() -> None:
    """Rows that were filtered have one, which would become a column of the table for ever."""
    frame = ROWS.to_pandas()[::2]

    assert ROWS.slice(0, 1).equals(taken(pa.Table.from_pandas(frame)))
    assert ["v", "id"] == taken(pa.Table.from_pandas(frame.set_index("id"))).column_names
    own = pa.table({"__index_level_0__": [1]})
    assert own.equals(taken(own))


def test_equal_rows_have_one_name_whichever_arrow_holds_them_and_how() -> None:
    """A publisher that died may come back with another version of pyarrow, and repeats its batch."""
    texts, flags = pa.array(["a", None, "b"]), pa.array([None, True, False])
    rows = pa.table({"id": pa.array([1, 2, 3], pa.int32()), "v": texts, "b": flags})
    named = "2cad47a3b045388e25fd74659187fac2c8b0fa6db3f2eb1348a8270a92b06219"

    assert named == fingerprint_rows(rows)
    assert named == fingerprint_rows(pa.concat_tables([rows, rows]).slice(3))
    large = rows.set_column(1, "v", texts.cast(pa.large_string()).dictionary_encode())
    assert named == fingerprint_rows(pa.concat_tables([large.slice(0, 1), large.slice(1)]))
    others = [rows.slice(1), rows.rename_columns(["id", "w", "b"]), rows.set_column(2, "b", texts)]
    assert named not in map(fingerprint_rows, others)


@pytest.mark.parametrize("data", [None, 5, [{"id": 1}], {"id": [1]}])
def test_anything_else_is_a_type_error(data: object) -> None:
    """It says what would do."""
    with pytest.raises(TypeError, match="give an Arrow table"):
        taken(data)


# Files


def test_parquet_files_and_folders_are_read(tmp_path: Path) -> None:
    """A folder as Spark writes it: part files in order, `_SUCCESS` and the like left alone."""
    folder = tmp_path / "frame"
    folder.mkdir()
    pq.write_table(ROWS.slice(1), folder / "part-00001.snappy.parquet")
    pq.write_table(ROWS.slice(0, 1), folder / "part-00000.snappy.parquet")
    pq.write_table(ROWS, folder / "_hidden.parquet")
    (folder / "_SUCCESS").touch()

    assert ROWS.equals(taken(folder))
    assert ROWS.slice(1).equals(taken(str(folder / "part-00001.snappy.parquet")))
    pq.write_table(pa.table({"other": [1]}), folder / "part-00002.parquet")
    with pytest.raises(
        ChangeFileError, match="the folder's files have different columns"
    ) as caught:
        taken(folder)
    assert "part-00000.snappy.parquet and part-00002.parquet" == caught.value.found


@pytest.mark.parametrize("inner,found", [("_delta_log", "_delta_log"), ("state=new", "state")])
def test_a_folder_that_is_a_table_is_not_read_by_its_files(
    tmp_path: Path, inner: str, found: str
) -> None:
    """Files in a Delta table's folder may be removed from it, and those in partition folders are rows, too."""
    pq.write_table(ROWS, tmp_path / "part-00000.parquet")
    (tmp_path / "_temporary").mkdir()
    assert ROWS.equals(taken(tmp_path))
    (tmp_path / inner).mkdir()
    with pytest.raises(ChangeFileError, match="holds another one") as caught:
        taken(tmp_path)
    assert found == caught.value.found


@pytest.mark.parametrize(
    "text,expected",
    [
        ("id,v\n1,a\n", {"id": [1], "v": ["a"]}),
        ('id,v\n1,\n2,""\n', {"id": [1, 2], "v": [None, ""]}),
        ("id,v\n1,007\n2,8\n", {"id": [1, 2], "v": ["007", "8"]}),
        ("id,v\n1,+5\n", {"id": [1], "v": ["+5"]}),
        ("id,v\n1,1.5\n2,2\n", {"id": [1, 2], "v": [1.5, 2.0]}),
        (
            "id,v\n1,1.5\n2,12345678901234567\n",
            {"id": [1, 2], "v": ["1.5", "12345678901234567"]},
        ),
        ("id,v\n1,1.5\n2,9007199254740992\n", {"id": [1, 2], "v": [1.5, 2.0**53]}),
        ("id,v\n1,00.5\n", {"id": [1], "v": ["00.5"]}),
        ("id,v\n1,123456789012345678901\n", {"id": [1], "v": ["123456789012345678901"]}),
        ('id,v\n1,"a\nb"\n', {"id": [1], "v": ["a\nb"]}),
        ("id,v\n1,true\n", {"id": [1], "v": [True]}),
        ("id,v\n 1 , x \n", {"id": [" 1 "], "v": [" x "]}),
        ("id,v\n1,2026-01-28\n", {"id": [1], "v": [date(2026, 1, 28)]}),
        ("id,v\n1,12:30:01\n", {"id": [1], "v": ["12:30:01"]}),
        (
            "id,v\n1,2026-01-28T12:30:01.5\n",
            {"id": [1], "v": [datetime(2026, 1, 28, 12, 30, 1, 500_000)]},
        ),
        (
            "id,v\n1,2026-01-28 12:30+01:00\n",
            {"id": [1], "v": [datetime(2026, 1, 28, 11, 30, tzinfo=UTC)]},
        ),
        (
            "id,v\n1,2026-01-28 12:30:01.1234560\n",
            {"id": [1], "v": [datetime(2026, 1, 28, 12, 30, 1, 123_456)]},
        ),
        ("id,v\n1, true\n2, 2026-01-28\n", {"id": [1, 2], "v": [" true", " 2026-01-28"]}),
        ("id\na\n\nb\n", {"id": ["a", "b"]}),
        ("id,v\n", {"id": [], "v": []}),
        ("id,v\n1,N/A\n", {"id": [1], "v": ["N/A"]}),
    ],
)
def test_csv_is_read_without_changing_a_value(
    tmp_path: Path, text: str, expected: dict[str, Any]
) -> None:
    """What is not plainly a number stays text; only an empty field is NULL."""
    path = tmp_path / "rows.csv"
    path.write_text(text)

    assert expected == taken(path).to_pydict()


def test_csv_is_read_with_the_types_that_are_known(tmp_path: Path) -> None:
    """And with the markers in it; compressed files too."""
    path = tmp_path / "rows.csv.gz"
    path.write_bytes(gzip.compress(b"id,price,__rowMarker__\n1,1.50,4\n"))

    rows = taken(path, price=pa.decimal128(9, 2))

    assert {"id": [1], "price": [Decimal("1.50")], MARKER_COLUMN: [4]} == rows.to_pydict()
    assert {"upsert": 1} == count_markers(rows, 0)


@pytest.mark.parametrize(
    "name,data,text",
    [
        ("rows.parquet", b"PAR1 no", "cannot be read"),
        ("rows.parquet", None, "cannot be read"),
        ("rows.csv", b"", "has no bytes"),
        ("rows.csv", None, "cannot be read"),
        (
            "rows.csv",
            b"id,v\n1,2\n1\n",
            r"line 3: the row has fewer fields than the header .found 1 in place of 2.*quotes",
        ),
        (
            "rows.csv",
            b"id,caf\xe9\n1,2\n",
            "line 1: the text is not utf-8 .*Save the file as UTF-8",
        ),
        ("rows.xlsx", b"PK", "neither .parquet nor .csv"),
        ("rows.csv.bz2", b"BZ", "neither .parquet nor .csv, plain or packed by gzip or zstd"),
        ("folder/", None, "holds no Parquet files"),
    ],
)
def test_a_file_that_cannot_be_read_is_named(
    tmp_path: Path, name: str, data: bytes | None, text: str
) -> None:
    """Cut short, missing, empty, ragged, of another kind."""
    path = tmp_path / name
    if data is not None:
        path.write_bytes(data)
    elif name.endswith("/"):
        path.mkdir()

    with pytest.raises(ChangeFileError, match=text) as caught:
        taken(path)

    assert path.name == caught.value.file
    assert caught.value.next_step


def test_no_path_is_not_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A variable that is not set would publish every Parquet file of it."""
    pq.write_table(ROWS, tmp_path / "any.parquet")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ChangeFileError, match="the path of the file to publish is empty"):
        take_rows("", None, table="t", types={})


@pytest.mark.parametrize("types", [{}, {"v": pa.string()}, {"v": pa.int64()}])
def test_text_of_another_encoding_is_refused(tmp_path: Path, types: dict[str, pa.DataType]) -> None:
    """It would be published as bytes, or as other letters."""
    path = tmp_path / "rows.csv"
    path.write_bytes(b"id,v\n1,a\n2,caf\xe9\n")

    with pytest.raises(ChangeFileError, match=r"rows\.csv, line 3: the text is not utf-8"):
        taken(path, **types)


@pytest.mark.parametrize(
    "kind,text,expected",
    [
        (pa.int64(), "5", 5),
        (pa.int64(), " 5", 5),
        (pa.int64(), "5.5", 5.5),
        (pa.int64(), "007", "007"),
        (pa.int64(), "-01", "-01"),
        (pa.int64(), "x", "x"),
        (pa.int8(), "300", 300),
        (pa.float64(), "007", "007"),
        (pa.float64(), "+5", "+5"),
        (pa.float64(), "1e-05", 1e-05),
        (pa.float64(), "0.5", 0.5),
        (pa.int64(), "0x1F", "0x1F"),
        (pa.float64(), "9007199254740993", "9007199254740993"),
        (pa.float64(), " 9007199254740993", " 9007199254740993"),
        (pa.float64(), "9007199254740992", 2.0**53),
        (pa.float64(), "12345678901234567000", 12345678901234567000.0),  # as JavaScript writes it
        (pa.float32(), "16777217", "16777217"),
        (pa.float32(), "16777217.0", "16777217.0"),  # as pandas writes integers beside a NULL
        (pa.float64(), "9007199254740993.", "9007199254740993."),
        (pa.float64(), "99999999.00", 99999999.0),
        (pa.float32(), "1e39", "1e39"),
        (pa.float64(), "-1e400", "-1e400"),
        (pa.float64(), "-inf", float("-inf")),
        (pa.decimal128(9, 2), "01.50", "01.50"),
        (pa.decimal128(9, 2), "1.505", 1.505),
        (pa.string(), "5", "5"),
        (pa.bool_(), "maybe", "maybe"),
    ],
)
def test_csv_that_is_not_of_the_tables_type_is_read_as_what_it_is(
    tmp_path: Path, kind: pa.DataType, text: str, expected: Any
) -> None:
    """The checks can say then what has changed, and nothing is made to fit."""
    path = tmp_path / "rows.csv"
    path.write_text(f"id,V\n1,{text}\n2,\n")

    rows = taken(path, id=pa.int32(), v=kind)

    assert {"id": [1, 2], "V": [expected, None]} == rows.to_pydict()
    assert pa.int32() == rows.schema.field("id").type


# Markers


@pytest.mark.parametrize(
    "kind,values",
    [
        (pa.int8(), [0, 4]),
        (pa.int64(), [0, 4]),
        (pa.string(), ["0", "4"]),
        (pa.float64(), [0.0, 4.0]),
        (pa.decimal128(3, 0), [Decimal(0), Decimal(4)]),
        (pa.dictionary(pa.int8(), pa.string()), ["0", "4"]),
    ],
)
@pytest.mark.parametrize("name", ["__rowMarker__", "__ROWMARKER__", "op"])
def test_markers_are_taken_by_name_from_any_type(
    kind: pa.DataType, values: list[Any], name: str
) -> None:
    """Wherever the column stands, it is no data column."""
    rows = taken(ROWS.add_column(0, name, pa.array(values, kind)), "op" if name == "op" else None)

    assert ROWS.append_column(MARKER_COLUMN, pa.array([0, 4], pa.int32())).equals(rows)


@pytest.mark.parametrize(
    "values,row,found",
    [([0, 3], 1, 3), ([None, 0], 0, "NULL"), ([0, -1], 1, -1), (["1", "3"], 1, 3)],
)
def test_an_unknown_marker_is_named_with_its_row(values: list[Any], row: int, found: Any) -> None:
    """3 means delete elsewhere: guessing would corrupt."""
    with pytest.raises(MarkerError, match="not 0, 1, 2 or 4") as caught:
        taken(ROWS.append_column("__rowMarker__", pa.array(values)))

    assert (row, str(found)) == (caught.value.row, caught.value.found)


@pytest.mark.parametrize("values", [["I", "D"], [0.5, 1.0], [[0], [1]], [True, False]])
def test_markers_that_are_no_numbers_are_refused(values: list[Any]) -> None:
    """Words, fractions, lists; true and false say nothing either."""
    with pytest.raises(MarkerError):
        taken(ROWS.append_column("__rowMarker__", pa.array(values)))


def test_a_marker_is_stated_once() -> None:
    """In a column or beside it, in one column and not two, and in one that exists."""
    marked = ROWS.append_column("__rowMarker__", pa.array([0, 0]))

    with pytest.raises(MarkerError, match="given beside it"):
        taken(marked, 4)
    with pytest.raises(MarkerError, match="given beside it"):
        taken(marked, "id")
    with pytest.raises(SchemaError, match="two row marker columns"):
        taken(marked.append_column("__rowmarker__", pa.array([0, 0])))
    with pytest.raises(SchemaError, match="no such column"):
        taken(ROWS, "op")
    assert [*ROWS.column_names, MARKER_COLUMN] == taken(marked, MARKER_COLUMN).column_names


# Changed keys


def changed(old: pa.Table, new: pa.Table, *keys: str, fixed: tuple[str, ...] = ()) -> pa.Table:
    """Change the keys of a table that is called t."""
    return change_key_rows(taken(old), taken(new), keys=keys, fixed=fixed, table="t")


def test_changed_keys_are_paired_by_place() -> None:
    """As many old keys as new rows, every key column in both, and of one type."""
    new = pa.table({"a": [1], "b": [2], "v": ["x"]})

    with pytest.raises(SchemaError, match="2 old keys and 1 new rows"):
        changed(pa.table({"a": [1, 2], "b": [1, 2]}), new, "a", "b")
    with pytest.raises(SchemaError, match="no such column") as caught:
        changed(pa.table({"a": [1]}), new, "a", "b")
    assert "b" == caught.value.column
    with pytest.raises(SchemaError, match="do not fit the new rows' type, int64"):
        changed(pa.table({"a": ["x"]}), new, "a")
    with pytest.raises(MarkerError, match="markers of their own"):
        changed(pa.table({"a": [1], "__rowMarker__": [2]}), new, "a")


def test_old_keys_take_the_new_ones_type() -> None:
    """int32 beside int64 is one key."""
    old = pa.table({"a": pa.array([1], pa.int32())})

    rows = changed(old, pa.table({"a": [2], "v": ["x"]}), "a")

    assert {"a": [1, 2], "v": [None, "x"], MARKER_COLUMN: [2, 0]} == rows.to_pydict()


def test_a_changed_key_stays_in_its_partition() -> None:
    """The old key has to say in which it lies."""
    old, new = pa.table({"a": [1], "p": ["x"]}), pa.table({"a": [2], "p": ["x"]})

    assert ["x", "x"] == changed(old, new, "a", fixed=("p",))["p"].to_pylist()
    with pytest.raises(SchemaError, match="different partitions"):
        changed(old, pa.table({"a": [2], "p": ["y"]}), "a", fixed=("p",))
    with pytest.raises(SchemaError, match="no such column"):
        changed(old.select(["a"]), new, "a", fixed=("p",))
