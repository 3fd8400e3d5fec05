"""What was published before decides what may be published now: fitted without loss, or refused with the reason."""

from __future__ import annotations

import datetime as dt
import io
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mirrorlib import identifiers
from mirrorlib.errors import SchemaError
from mirrorlib.landing.publish.writer import LandingZoneWriter
from mirrorlib.store import LocalStore
from publishing import visible

UTC_MICROS = pa.timestamp("us", "UTC")
MICROS = pa.timestamp("us")
NOON = dt.datetime(2026, 1, 2, 12, tzinfo=dt.UTC)
BARE_NOON = dt.datetime(2026, 1, 2, 12)


def column(kind: pa.DataType, *values: Any, nullable: bool = True) -> pa.Table:
    """Make rows of a key and one column."""
    fields = [pa.field("id", pa.int64()), pa.field("v", kind, nullable=nullable)]
    arrays = [pa.array(range(len(values)), pa.int64()), pa.array(values, kind)]
    return pa.Table.from_arrays(arrays, schema=pa.schema(fields))


def after(zone: Path, *tables: pa.Table, **options: Any) -> pa.Table:
    """Publish tables one after the other; read the last one back."""
    table = LandingZoneWriter(zone).table("t", keys=["id"], **options)
    for rows in tables:
        table.write(rows)
    return pq.read_table(io.BytesIO(list(visible(LocalStore(zone), "t").values())[-1]))


def refusal(zone: Path, *tables: pa.Table, **options: Any) -> SchemaError:
    """Publish tables the last of which is refused; give the refusal. Nothing of it is visible."""
    table = LandingZoneWriter(zone).table("t", keys=["id"], **options)
    for rows in tables[:-1]:
        table.write(rows)
    before = visible(LocalStore(zone), "t")
    with pytest.raises(SchemaError) as caught:
        table.write(tables[-1])
    assert before == visible(LocalStore(zone), "t")
    assert caught.value.next_step
    assert "t" == caught.value.table
    return caught.value


# Types


@pytest.mark.parametrize(
    "stored,value,published",
    [
        (pa.bool_(), True, pa.bool_()),
        (pa.int8(), -1, pa.int8()),
        (pa.int16(), -1, pa.int16()),
        (pa.int32(), -1, pa.int32()),
        (pa.int64(), -1, pa.int64()),
        (pa.uint8(), 255, pa.int16()),
        (pa.uint16(), 65_535, pa.int32()),
        (pa.uint32(), 2**32 - 1, pa.int64()),
        (pa.uint64(), 2**64 - 1, pa.decimal128(20, 0)),
        (pa.float32(), 1.5, pa.float32()),
        (pa.float64(), 1.5, pa.float64()),
        (pa.decimal128(9, 2), Decimal("1.50"), pa.decimal128(9, 2)),
        (pa.string(), "ä", pa.string()),
        (pa.large_string(), "ä", pa.string()),
        (pa.dictionary(pa.int32(), pa.string()), "ä", pa.string()),
        (pa.binary(), b"\x00", pa.binary()),
        (pa.binary(2), b"ab", pa.binary()),
        (pa.date32(), dt.date(2026, 1, 2), pa.date32()),
        (pa.date64(), dt.date(2026, 1, 2), pa.date32()),
        (pa.time32("s"), dt.time(1, 2, 3), pa.string()),
        (UTC_MICROS, NOON, UTC_MICROS),
        (pa.timestamp("ms", "Europe/Berlin"), NOON, UTC_MICROS),
        (MICROS, BARE_NOON, MICROS),
        (pa.timestamp("s"), BARE_NOON, MICROS),
        (pa.timestamp("ns"), BARE_NOON, MICROS),
    ],
)
def test_every_type_is_published_as_one_that_delta_has(
    tmp_path: Path, stored: pa.DataType, value: Any, published: pa.DataType
) -> None:
    """However pandas, polars or a driver stores it, a column's type is the same in every file."""
    read = after(tmp_path, column(stored, value, None))

    assert published == read.schema.field("v").type
    assert [None] == read["v"].to_pylist()[1:]


@pytest.mark.parametrize(
    "kind,value",
    [
        (pa.list_(pa.int32()), [1]),
        (pa.struct([("a", pa.int32())]), {"a": 1}),
        (pa.map_(pa.string(), pa.int32()), [("a", 1)]),
        (pa.decimal256(60, 0), Decimal(1)),
        (pa.duration("us"), 1),
    ],
)
def test_a_type_without_a_place_in_the_format_is_refused(
    tmp_path: Path, kind: pa.DataType, value: Any
) -> None:
    """Nested values, numbers of more than 38 digits, and durations, whose unit no reader would know."""
    found = refusal(tmp_path, column(kind, value))

    assert ("v", str(kind)) == (found.column, found.found)
    assert "no place in the open mirroring format" in found.reason


@pytest.mark.parametrize("kind,value", [(pa.decimal128(9, 2), Decimal(1)), (pa.uint64(), 1)])
def test_delimited_text_has_no_decimals(tmp_path: Path, kind: pa.DataType, value: Any) -> None:
    """Rather than rounding them to a double."""
    found = refusal(tmp_path, column(kind, value), file_format="csv")

    assert "no place in delimited text" in found.reason


def test_delimited_text_is_utf_8(tmp_path: Path) -> None:
    """No reader would take a file of other bytes."""
    latin = pa.array([b"a", b"caf\xe9"]).view(pa.string())

    found = refusal(tmp_path, pa.table({"id": [1, 2], "v": latin}), file_format="csv")

    assert ("v", "text that is not UTF-8, which delimited text has to be") == (
        found.column,
        found.reason,
    )


@pytest.mark.parametrize("kind", [pa.date32(), UTC_MICROS, MICROS, pa.timestamp("s"), pa.date64()])
@pytest.mark.parametrize("days", [-719_163, 2_932_897])
def test_delimited_text_has_four_digits_for_a_year(
    tmp_path: Path, kind: pa.DataType, days: int
) -> None:
    """Years before 1 and after 9999: every reader would stop at the file. Parquet takes them."""
    inside = pa.array([0, -719_162, 2_932_896, None], pa.int32()).cast(pa.date32()).cast(kind)
    beyond = pa.array([0, days], pa.int32()).cast(pa.date32()).cast(kind)
    options = {"file_format": "csv"}

    found = refusal(
        tmp_path,
        pa.table({"id": range(4), "v": inside}),
        pa.table({"id": [5, 6], "v": beyond}),
        **options,
    )

    assert ("v", 1) == (found.column, found.row)
    assert "years 1 to 9999" in found.reason
    LandingZoneWriter(tmp_path).table("p").write(pa.table({"id": [5, 6], "v": beyond}))


@pytest.mark.parametrize("kind", [pa.decimal128(5, -2), pa.decimal256(5, -2)])
def test_decimals_with_a_negative_scale_are_published_as_whole_numbers(
    tmp_path: Path, kind: pa.DataType
) -> None:
    """Parquet has no word for them; their values have a place."""
    rows = pa.table({"id": [1], "v": pa.array([Decimal(12300)], kind)})
    table = LandingZoneWriter(tmp_path).table("t", keys=["id"])

    table.write(rows, batch_id="one")

    assert table.write(rows, batch_id="one").repeated
    read = pq.read_table(io.BytesIO(next(iter(visible(LocalStore(tmp_path), "t").values()))))
    assert pa.decimal128(7, 0) == read.schema.field("v").type
    assert [Decimal(12300)] == read["v"].to_pylist()


@pytest.mark.parametrize("kind", [pa.timestamp("ns"), pa.time64("ns")])
def test_nanoseconds_that_would_be_lost_are_refused(tmp_path: Path, kind: pa.DataType) -> None:
    """Microseconds are what Delta holds."""
    found = refusal(tmp_path, column(kind, 1))

    assert found.reason.startswith("a value is finer than a microsecond")


# The type before


@pytest.mark.parametrize(
    "before,then,value",
    [
        (pa.int64(), pa.int32(), 5),
        (pa.int32(), pa.int64(), 5),
        (pa.int64(), pa.float64(), 5.0),
        (pa.float64(), pa.int64(), 5),
        (pa.decimal128(9, 2), pa.decimal128(4, 1), Decimal("1.5")),
        (pa.float64(), pa.float32(), 1.5),
        (UTC_MICROS, pa.timestamp("ns", "UTC"), NOON),
        (UTC_MICROS, pa.date32(), dt.date(2026, 1, 2)),
        (pa.string(), pa.large_string(), "ä"),
        (pa.string(), pa.null(), None),
        (pa.date32(), pa.float64(), None),
    ],
)
def test_values_that_fit_are_written_with_the_type_before(
    tmp_path: Path, before: pa.DataType, then: pa.DataType, value: Any
) -> None:
    """An integer that pandas made a double, a shorter decimal, a column of nothing: no change of schema."""
    read = after(tmp_path, column(before, None), column(then, value, None))

    assert before == read.schema.field("v").type
    assert 1 == len({before, read.schema.field("v").type})
    assert (value is None) == (read["v"][0].as_py() is None)


@pytest.mark.parametrize(
    "before,then,value",
    [
        (pa.int64(), pa.float64(), 1.5),
        (pa.int32(), pa.int64(), 2**40),
        (pa.int64(), pa.string(), "5"),
        (pa.string(), pa.int64(), 5),
        (pa.decimal128(4, 1), pa.decimal128(9, 2), Decimal("1.25")),
        (pa.date32(), UTC_MICROS, NOON),
        (UTC_MICROS, MICROS, BARE_NOON),
        (MICROS, UTC_MICROS, NOON),
        (UTC_MICROS, pa.string(), "not a time"),
        (pa.binary(), pa.string(), "x"),
        (pa.bool_(), pa.int8(), 1),
    ],
)
def test_a_type_change_is_refused(
    tmp_path: Path, before: pa.DataType, then: pa.DataType, value: Any
) -> None:
    """It would stop a Fabric table: column, row and both types are named."""
    found = refusal(tmp_path, column(before, None), column(then, None, value))

    assert ("v", 1, str(then)) == (found.column, found.row, found.found)
    assert f"published as {before} before" in found.reason
    assert "force" in found.next_step


def test_force_publishes_a_type_change_and_remembers_it(tmp_path: Path) -> None:
    """From then on the new type is the type before."""
    table = LandingZoneWriter(tmp_path).table("t", keys=["id"])
    first = table.write(column(pa.int64(), 1), batch_id="first")
    table.write(column(pa.string(), "x"), force=True)
    table.write(column(pa.string(), "y"))

    with pytest.raises(SchemaError, match="published as string before"):
        table.write(column(pa.int64(), 1))
    # A batch that is there is not published again, so it changes no type either.
    for force in (False, True):
        again = table.write(column(pa.int64(), 1), batch_id="first", force=force)
        assert (True, first.file) == (again.repeated, again.file)
    assert 4 == table.write(column(pa.string(), "z")).number


# Columns that come and go


def test_new_columns_stand_at_the_end_and_known_ones_in_their_order(tmp_path: Path) -> None:
    """Whatever order, and case, the rows have them in."""
    first = pa.table({"id": [1], "b": [1], "a": [1]})
    second = pa.table({"new": [2], "A": [2], "B": [2], "ID": [2]})

    assert ["id", "b", "a", "new"] == after(tmp_path, first, second).column_names


def test_known_columns_are_not_gone_through_for_each_column(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Thousands took time by their square."""
    wide = pa.table({"id": [1], **{f"c{at}": [at] for at in range(100)}})
    table = LandingZoneWriter(tmp_path).table("t", keys=["id"])
    table.write(wide)
    folded = []
    fold = identifiers.fold_name
    monkeypatch.setattr(identifiers, "fold_name", lambda name: folded.append(1) or fold(name))

    table.upsert(wide)
    assert len(folded) < 1000


def test_a_nullable_column_may_be_missing(tmp_path: Path) -> None:
    """Its rows become NULL, which is said."""
    table = LandingZoneWriter(tmp_path).table("t", keys=["id"])
    table.write(column(pa.int64(), 1))

    done = table.write(pa.table({"id": [1]}))

    assert ("the rows lack columns that were published before, which become NULL: v",) == done.notes
    assert () == table.delete(pa.table({"id": [1]})).notes


@pytest.mark.parametrize("file_format", ["parquet", "csv"])
def test_what_partial_updates_lack_is_not_set(tmp_path: Path, file_format: Any) -> None:
    """Parquet leaves it out, and it keeps its value; delimited text cannot. An insert is a whole row."""
    table = LandingZoneWriter(tmp_path).table("t", keys=["id"], file_format=file_format)
    table.write(column(pa.int64(), 1))
    metadata = tmp_path / "t" / "_metadata.json"
    stated = json.loads(metadata.read_text()) | {"partialUpdates": "absent"}
    metadata.write_text(json.dumps(stated))
    lacking = pa.table({"id": [1]})

    if file_format == "csv":
        with pytest.raises(SchemaError, match="cannot leave one out") as refused:
            table.write(lacking, 1)
        assert "v" == refused.value.column
    else:
        assert () == table.write(lacking, 1).notes
        assert () == table.upsert(lacking).notes
    assert "which become NULL: v" in table.write(pa.table({"id": [2]}), 0).notes[0]
    assert () == table.delete(lacking).notes


def test_a_column_of_nothing_waits_for_its_type(tmp_path: Path) -> None:
    """It is never written as null type, which other readers take for an integer."""
    table = LandingZoneWriter(tmp_path).table("t", keys=["id"])

    assert ("column v is left out: it has no values and no type yet",) == table.write(
        column(pa.null(), None)
    ).notes
    read = after(tmp_path, column(pa.string(), "x"), column(pa.null(), None))
    assert pa.string() == read.schema.field("v").type


def test_what_another_publisher_wrote_is_the_type_before(tmp_path: Path) -> None:
    """His newest files' footers say it, the columns that a file of deletes lacks included."""
    (tmp_path / "t").mkdir()
    (tmp_path / "t/_metadata.json").write_text('{"keyColumns": ["id"]}')
    pq.write_table(column(pa.int32(), 1), tmp_path / "t" / f"{1:020d}.parquet")
    pq.write_table(
        pa.table({"id": [1], "__rowMarker__": [2]}), tmp_path / "t" / f"{2:020d}.parquet"
    )

    assert "published as int32 before" in refusal(tmp_path, column(pa.string(), "x")).reason
    assert pa.int32() == after(tmp_path, column(pa.int64(), 5)).schema.field("v").type


# Nullability


def test_a_column_without_null_goes_with_not_null(tmp_path: Path) -> None:
    """Arrow calls a column nullable when nobody says otherwise."""
    read = after(tmp_path, column(pa.int64(), 1, nullable=False), column(pa.int64(), 2))

    assert not read.schema.field("v").nullable


@pytest.mark.parametrize(
    "tables,text",
    [
        ((column(pa.int64(), 1), column(pa.int64(), 1, nullable=False)), "is NOT NULL now"),
        ((column(pa.int64(), 1, nullable=False), column(pa.int64(), None)), "has a NULL now"),
        ((column(pa.int64(), 1, nullable=False), pa.table({"id": [1]})), "is missing now"),
        ((pa.table({"id": [1]}), column(pa.int64(), 1, nullable=False)), "the column is new"),
    ],
    ids=["nullable to not null", "not null to null", "not null missing", "new not null"],
)
def test_a_change_of_nullability_is_refused(
    tmp_path: Path, tables: tuple[pa.Table, ...], text: str
) -> None:
    """Each of them ends in SchemaMergeFailure in Fabric; `force` publishes it."""
    found = refusal(tmp_path, *tables)

    assert text in found.reason
    assert "v" == found.column
    LandingZoneWriter(tmp_path).table("t").write(tables[-1], force=True)


def test_deletes_lack_no_column_that_must_not_be_null(tmp_path: Path) -> None:
    """A file of keys alone would lack it; whole rows go through, without the other columns."""
    rows = column(pa.int64(), 1, nullable=False).append_column("more", pa.array(["x"]))
    table = LandingZoneWriter(tmp_path).table("t", keys=["id"])
    table.write(rows)

    with pytest.raises(SchemaError, match=r"is missing now.*Add the column"):
        table.delete(rows.select(["id"]))
    assert 2 == table.delete(rows).number
    (deleted,) = list(visible(LocalStore(tmp_path), "t").values())[1:]
    assert ["id", "v", "__rowMarker__"] == pq.read_schema(io.BytesIO(deleted)).names
    assert 3 == table.write(rows, 2).number


# Delimited text


def test_delimited_text_takes_no_new_columns(tmp_path: Path) -> None:
    """Its types are declared once."""
    found = refusal(tmp_path, column(pa.int64(), 1), ROWS_WITH_MORE, file_format="csv")

    assert ("more", "a table of delimited text takes no new columns") == (
        found.column,
        found.reason,
    )


ROWS_WITH_MORE = pa.table({"id": [1], "v": [1], "more": ["x"]})


def test_names_that_are_one_without_blanks_are_refused(tmp_path: Path) -> None:
    """As a header's names are read; Parquet has both."""
    rows = pa.table({"id": [1], "a": [1], " a": [1]})

    assert "two columns have the same name" == refusal(tmp_path, rows, file_format="csv").reason
    assert 1 == LandingZoneWriter(tmp_path).table("p", keys=["id"]).write(rows).number


def test_text_goes_into_a_time_of_delimited_text_where_it_is_one(tmp_path: Path) -> None:
    """Both are text in a mirror, and every reader would stop at what is no time."""
    times = column(pa.time64("us"), dt.time(10, 30))
    texts = column(pa.string(), "10:30", None)
    table = LandingZoneWriter(tmp_path).table("t", keys=["id"], file_format="csv")
    table.write(times)
    table.write(texts)

    no_time = column(pa.string(), "10:30", "a-secret")
    caught = refusal(tmp_path, no_time)
    assert ("the value is no ITime, as which the column is declared", "v", 1) == (
        caught.reason,
        caught.column,
        caught.row,
    )
    assert 3 == table.write(no_time, force=True).number


@pytest.mark.parametrize("force", [False, True])
def test_a_column_of_nothing_keeps_the_type_that_delimited_text_declares(
    tmp_path: Path, *, force: bool
) -> None:
    """Forced or not: a column cannot be declared without one."""
    table = LandingZoneWriter(tmp_path).table("t", keys=["id"], file_format="csv")
    table.write(column(pa.string(), "a"))
    table.write(column(pa.null(), None), force=force)

    declared = json.loads((tmp_path / "t" / "_metadata.json").read_text())
    columns = declared["SchemaDefinition"]["Columns"]
    assert ["Int64", "String"] == [one["DataType"] for one in columns]
    assert 3 == table.write(column(pa.string(), "b")).number


def test_delimited_text_needs_a_type_at_once(tmp_path: Path) -> None:
    """A column of nothing cannot be declared."""
    assert "no type" in refusal(tmp_path, column(pa.null(), None), file_format="csv").reason


# Keys


@pytest.mark.parametrize(
    "rows,text,row",
    [
        (pa.table({"id": [1, None]}), "a key is NULL", 1),
        (pa.table({"other": [1]}), "no such column", None),
        (pa.table({"id": pa.nulls(1)}), "a key is NULL", 0),
        (pa.table({"id": pa.nulls(0)}), "no type", None),
    ],
)
def test_keys_are_there_and_not_null(
    tmp_path: Path, rows: pa.Table, text: str, row: int | None
) -> None:
    """Without them no row could be found again."""
    found = refusal(tmp_path, rows)

    assert text in found.reason
    assert ("id", row) == (found.column, row if found.row is None else found.row)


@pytest.mark.parametrize(
    "kind,texts,row,found",
    [
        ("int64", ["5", "", "5.5"], 2, "double"),
        ("int64", ["5", "007"], 1, "string"),
        ("int64", ["5", "6", "x"], 2, "string"),
        ("double", ["5", "+49"], 1, "string"),
        ("double", ["5", "12345678", "9007199254740993"], 2, "string"),
        ("int64", ["5", "0x1F"], 1, "string"),
        ("bool", ["true", "maybe"], 1, "string"),
    ],
)
def test_a_csv_file_of_another_type_is_refused_with_file_column_row_and_types(
    tmp_path: Path, kind: str, texts: list[str], row: int, found: str
) -> None:
    """As Arrow rows are; `force` publishes it as it is."""
    path = tmp_path / "rows.csv"
    path.write_text("id,v\n" + "".join(f"{at},{text}\n" for at, text in enumerate(texts)))
    table = LandingZoneWriter(tmp_path / "zone").table("t", keys=["id"])
    table.write(pa.table({"id": [0], "v": pa.nulls(1).cast(kind)}))

    with pytest.raises(SchemaError, match=f"published as {kind} before") as caught:
        table.write(path)
    assert ("rows.csv", "v", row, found) == (
        caught.value.file,
        caught.value.column,
        caught.value.row,
        caught.value.found,
    )
    assert 2 == table.write(path, force=True).number
