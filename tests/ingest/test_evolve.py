"""A table's columns grow with its files as far as the policy and Delta allow; else the file, column and row are named."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from mirrorlib import identifiers
from mirrorlib.delta.columns import Column, Columns, to_columns, to_pairs
from mirrorlib.delta.sessions import FULL_WIDENING, spark_generation
from mirrorlib.errors import SchemaError
from mirrorlib.ingest.batch import open_batch
from mirrorlib.ingest.batch.evolve import growth_of
from mirrorlib.ingest.batch.open_batch import Prepared, prepare_files, rows_of
from mirrorlib.ingest.files.source import Source
from mirrorlib.ingest.next_batch import warnings_of
from mirrorlib.journal.entries import Policies
from mirrorlib.landing.delimited.dialect import Dialect
from mirrorlib.names import sequence_number
from mirrorlib.store import open_store

if TYPE_CHECKING:
    from tests.zones import ZoneWriter

POLICIES = Policies(
    keys=(), upsert_default=False, insert_policy="append", evolution="widen", ntz="utc"
)
WIDENS_ALL = spark_generation() >= FULL_WIDENING
ROADS = pytest.mark.parametrize("small", [64 << 20, 0], ids=["small", "large"])


def prepared(
    zone: ZoneWriter,
    before: str,
    *files: pa.Table,
    rewritable: bool = True,
    **policies: object,
) -> Prepared:
    """Prepare files for a table of these columns, written as "id bigint, v string"."""
    orders = zone.table("orders")
    store = open_store(str(zone))
    listed = []
    for file in files:
        path = orders.file(file)
        stored = store.stat(f"orders/{path.name}")
        assert stored is not None
        listed.append(stored)
    source = Source(
        zone=store,
        table="orders",
        folder="orders",
        policies=replace(POLICIES, **policies),  # type: ignore[arg-type]  # names of its fields
    )
    return prepare_files(source, listed, columns(before), rewritable=rewritable)


def columns(text: str) -> Columns:
    """Read "id bigint, v string" as columns."""
    pairs = [part.split(" ") for part in text.split(", ") if part]
    return to_columns((name, kind) for name, kind in pairs)


def shown(some: Columns) -> str:
    """Write columns as `columns` reads them."""
    return ", ".join(" ".join(pair) for pair in to_pairs(some))


def fault(found: Prepared) -> SchemaError:
    """Give what stopped at a file."""
    assert isinstance(found.fault, SchemaError)
    return found.fault


def test_a_new_table_has_the_columns_of_its_files(zone: ZoneWriter) -> None:
    """In order of appearance, as the first file spells them; columns of no type are no columns."""
    found = prepared(
        zone, "", pa.table({"ID": [1], "n": pa.nulls(1)}), pa.table({"v": ["x"], "id": [2]})
    )

    assert "ID bigint, v string" == shown(found.growth.columns)
    assert "ID bigint, v string" == shown(found.growth.added)


def test_new_columns_go_to_the_end(zone: ZoneWriter) -> None:
    """Wherever the file has them."""
    found = prepared(zone, "id bigint, v string", pa.table({"new": [1.5], "id": [1], "v": ["x"]}))

    assert "id bigint, v string, new double" == shown(found.growth.columns)
    assert ("adds the column new double",) == found.growth.changes(columns("id bigint, v string"))


@ROADS
def test_values_that_fit_change_nothing(
    zone: ZoneWriter, small: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Under every policy: what fits is no evolution."""
    monkeypatch.setattr("mirrorlib.ingest.batch.open_batch.SMALL_BYTES", small)
    for policy in ("widen", "add", "strict"):
        found = prepared(
            zone, "id int, v int", pa.table({"id": [1.0], "v": pa.nulls(1)}), evolution=policy
        )
        assert (None, "id int, v int") == (found.fault, shown(found.growth.columns))


@ROADS
@pytest.mark.parametrize(
    "before,values,after,how",
    [
        ("v int", [2**40], "v bigint", "widened"),
        ("v int", [5.5], "v double", "widened"),
        ("v bigint", [5.5], "v double", "rewritten"),
        (
            "v decimal(4,2)",
            pa.array(["1.125"]).cast(pa.decimal128(5, 3)),
            "v decimal(5,3)",
            "widened",
        ),
        (
            "v decimal(4,1)",
            pa.array(["1.125"]).cast(pa.decimal128(4, 3)),
            "v decimal(6,3)",
            "widened",
        ),
        ("v float", [0.1], "v double", "widened"),
        ("v date", pa.array([1], pa.timestamp("us")), "v timestamp", "rewritten"),
    ],
)
def test_a_type_grows_when_a_value_needs_it(
    zone: ZoneWriter,
    before: str,
    values: object,
    after: str,
    how: str,
    small: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In place where the Delta at hand can, else the table is rewritten; never under another policy."""
    monkeypatch.setattr("mirrorlib.ingest.batch.open_batch.SMALL_BYTES", small)
    found = prepared(zone, before, pa.table({"v": values}))
    assert (None, after) == (found.fault, shown(found.growth.columns))
    assert after == shown(getattr(found.growth, how if WIDENS_ALL else "rewritten"))

    for policy in ("add", "strict"):
        error = fault(prepared(zone, before, pa.table({"v": values}), evolution=policy))
        assert ("v", 0) == (error.column, error.row)
        assert f"evolution is {policy}" in str(error)


def test_a_table_beyond_the_rewrite_limit_is_not_rewritten(zone: ZoneWriter) -> None:
    """The error names what to do; widening in place goes on."""
    error = fault(prepared(zone, "v bigint", pa.table({"v": [1.0, 5.5]}), rewritable=False))
    assert 1 == error.row
    assert "rewrite limit" in str(error)
    assert "mirrorlib reset" in str(error)

    wider = pa.table({"v": pa.array([2**20], pa.int32())})
    assert prepared(zone, "v smallint", wider, rewritable=False).fault is None


@pytest.mark.parametrize(
    "policy,second", [("strict", {"id": [2], "w": [1]}), ("add", {"id": [2], "v": [1.5]})]
)
def test_a_policy_does_not_depend_on_the_cut_of_a_backlog(
    zone: ZoneWriter, policy: str, second: dict[str, object]
) -> None:
    """A new table has its first file's columns; the second file of its first batch is judged by them."""
    found = prepared(zone, "", pa.table({"id": [1], "v": [1]}), pa.table(second), evolution=policy)

    assert f"evolution is {policy}" in str(fault(found))
    assert (1, "id bigint, v bigint") == (len(found.landed), shown(found.growth.columns))


@pytest.mark.parametrize("plain", ["add", None])
def test_columns_of_any_name_may_come_late(zone: ZoneWriter, plain: str | None) -> None:
    """Else they would count when they come with the table's first batch, and stop it later."""
    file = pa.table({"id": [2], "my col": [1]})
    detection = "last_update_time" if plain else "sequential"

    found = prepared(zone, "id bigint", file, plain=plain, detection=detection)

    assert (None, ["id", "my col"]) == (found.fault, [c.name for c in found.growth.columns])
    assert "column mapping is turned on for my col; " in " ".join(warnings_of(found, POLICIES))


def test_strict_takes_no_new_column(zone: ZoneWriter) -> None:
    """A column of no type is none."""
    error = fault(prepared(zone, "id bigint", pa.table({"id": [1], "v": [1]}), evolution="strict"))
    assert "evolution is strict" in str(error)
    assert "v" == error.column

    untyped = pa.table({"id": [1], "v": pa.nulls(1)})
    assert prepared(zone, "id bigint", untyped, evolution="strict").fault is None


@ROADS
def test_what_came_before_a_fault_is_kept(
    zone: ZoneWriter, small: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The columns are those that the sound files need, not the faulty one's."""
    monkeypatch.setattr("mirrorlib.ingest.batch.open_batch.SMALL_BYTES", small)
    files = [pa.table({"v": [1]}), pa.table({"v": [2], "w": [1]}), pa.table({"x": [1], "v": ["x"]})]

    found = prepared(zone, "v bigint", *files, pa.table({"v": [3]}))

    assert [1, 2] == [sequence_number(one.file.name) for one in found.landed]
    assert "v bigint, w bigint" == shown(found.growth.columns)
    error = fault(found)
    assert ("v", 0, f"{3:020d}.parquet") == (error.column, error.row, error.file)
    assert "string in the file, bigint in the table" in str(error)


@ROADS
def test_a_bigint_is_not_rounded_by_a_later_file(
    zone: ZoneWriter, small: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two files of one batch whose only common type would lose a digit: the second is at fault."""
    monkeypatch.setattr("mirrorlib.ingest.batch.open_batch.SMALL_BYTES", small)
    found = prepared(zone, "", pa.table({"v": [2**53 + 1]}), pa.table({"v": [5.5]}))

    assert [1] == [sequence_number(one.file.name) for one in found.landed]
    assert "v bigint" == shown(found.growth.columns)
    assert "does not fit" in str(fault(found))
    exact = prepared(zone, "", pa.table({"v": [2**53]}), pa.table({"v": [5.5]}))
    assert (None, "v double") == (exact.fault, shown(exact.growth.columns))


@ROADS
def test_a_date_that_no_timestamp_tells_is_no_fault_of_its_own_file(
    zone: ZoneWriter, small: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """DuckDB's infinity, say: the later file, whose type would hold both, is at fault."""
    monkeypatch.setattr("mirrorlib.ingest.batch.open_batch.SMALL_BYTES", small)
    days, moments = (pa.array([2**31 - 1], kind) for kind in (pa.int32(), pa.int64()))
    far, moment = days.cast(pa.date32()), moments.cast(pa.timestamp("us", "UTC"))
    found = prepared(zone, "", pa.table({"v": far}), pa.table({"v": moment}))

    assert [1] == [sequence_number(one.file.name) for one in found.landed]
    assert "v date" == shown(found.growth.columns)
    assert "does not fit" in str(fault(found))


@ROADS
@pytest.mark.parametrize("before", ["v float", "v double"])
def test_a_bigint_is_not_rounded_by_the_type_that_its_column_widens_to(
    zone: ZoneWriter, small: int, before: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its own file is at fault, by its row; a bigint that a double holds is taken."""
    monkeypatch.setattr("mirrorlib.ingest.batch.open_batch.SMALL_BYTES", small)

    error = fault(prepared(zone, before, pa.table({"v": [1, 2**53 + 1]})))

    assert ("v", 1) == (error.column, error.row)
    assert "no type holds both" in str(error)
    assert "mirrorlib reset TARGET TABLE --start-at N" in str(error)
    exact = prepared(zone, before, pa.table({"v": [1, 2**24 + 1]}))
    assert (None, "v double") == (exact.fault, shown(exact.growth.columns))


def test_text_that_is_declared_otherwise_than_before_is_told_a_way_that_works(
    zone: ZoneWriter,
) -> None:
    """Every file is read by what is declared now, once the table starts over."""
    orders = zone.table("orders")
    (orders.folder / "1.csv").write_bytes(b"v\nx\n")
    store = open_store(str(zone))
    policies = replace(POLICIES, dialect=Dialect())
    source = Source(zone=store, table="orders", folder="orders", policies=policies)

    error = fault(prepare_files(source, [store.stat("orders/1.csv")], columns("v int")))

    assert "no type holds both" in str(error)
    assert "mirrorlib reset TARGET orders;" in str(error)


@ROADS
def test_a_plain_folder_keeps_beside_its_column_what_the_wider_type_does_not_hold(
    zone: ZoneWriter, small: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The column widens for the others."""
    monkeypatch.setattr("mirrorlib.ingest.batch.open_batch.SMALL_BYTES", small)

    found = prepared(zone, "v float", pa.table({"v": [2**24 + 1, 2**53 + 1]}), plain="add")

    assert (None, "v double, _rescued_data string") == (found.fault, shown(found.growth.columns))


@ROADS
def test_dates_are_moments_without_a_zone_where_these_are_kept(
    zone: ZoneWriter, small: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every date fits; a column of dates widens for a time of day, and one of moments in UTC for none."""
    monkeypatch.setattr("mirrorlib.ingest.batch.open_batch.SMALL_BYTES", small)
    days, clock = pa.array([1], pa.date32()), pa.array([1], pa.timestamp("us"))

    same = prepared(zone, "v timestamp_ntz", pa.table({"v": days}), ntz="keep")
    wider = prepared(zone, "v date", pa.table({"v": clock}), ntz="keep")
    other = prepared(zone, "v timestamp", pa.table({"v": clock}), ntz="keep")

    assert (None, "v timestamp_ntz") == (same.fault, shown(same.growth.columns))
    assert (None, "v timestamp_ntz") == (wider.fault, shown(wider.growth.rewritten))
    assert "no type holds both" in str(fault(other))


def test_files_of_one_batch_are_read_in_one_type(zone: ZoneWriter) -> None:
    """The widest; columns that a file lacks are NULL."""
    found = prepared(zone, "", pa.table({"v": [1]}), pa.table({"w": ["x"]}), pa.table({"v": [2.5]}))

    rows, markers = rows_of(found)

    assert [{"v": 1.0, "w": None}, {"v": None, "w": "x"}, {"v": 2.5, "w": None}] == rows.to_pylist()
    assert [0, 0, 0] == markers.to_pylist()


def test_many_files_and_many_columns_take_time_by_their_number(
    zone: ZoneWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not by its square: no file lets go of all before it, and no column is looked for among all others."""
    calls = Counter[str]()

    def counted(name: str) -> Callable[..., Any]:
        real = getattr(open_batch if name == "replace" else identifiers, name)
        return lambda *given, **more: (calls.update([name]), real(*given, **more))[1]

    monkeypatch.setattr(open_batch, "replace", counted("replace"))
    monkeypatch.setattr(open_batch, "SMALL_BYTES", 0)
    prepared(zone, "", *[pa.table({"id": [number]}) for number in range(20)])
    monkeypatch.undo()
    monkeypatch.setattr(identifiers, "fold_name", counted("fold_name"))
    wide = pa.table({f"c{number}": [number] for number in range(200)})
    found = prepared(zone, "", wide, wide)
    warnings_of(found, POLICIES)
    rows_of(found)

    assert calls["replace"] <= 20
    assert calls["fold_name"] < 20 * 200


def test_growth_tells_added_widened_and_rewritten_apart() -> None:
    """Each column once."""
    before, after = (
        columns("a smallint, b bigint, c string"),
        columns("a int, b double, c string, d date"),
    )

    growth = growth_of(before, after)

    assert ("d date", "a int", "b double") == tuple(
        shown(some) for some in (growth.added, growth.widened, growth.rewritten)
    )
    assert 3 == len(growth.changes(before))


def test_every_type_rewrites_a_table_for_plain_readers() -> None:
    """Small integers too, which any Delta widens in place."""
    growth = growth_of(columns("a smallint, b bigint"), columns("a int, b double"), "plain")

    assert ("", "a int, b double") == (shown(growth.widened), shown(growth.rewritten))


def test_columns_of_foreign_types_are_left_out() -> None:
    """Somebody added an array by hand: it stays NULL in new rows."""
    assert (Column("id", pa.int64()),) == to_columns([("id", "bigint"), ("a", "array<int>")])
