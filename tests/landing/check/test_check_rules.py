"""Every rule of the review has a zone that breaks exactly it, and a twin that breaks nothing."""

from __future__ import annotations

import gzip
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mirrorlib.landing.check import zone as checked_zone
from mirrorlib.landing.check.report import RULES
from mirrorlib.landing.check.zone import check_zone
from mirrorlib.store import LocalStore
from zones import MARKER, TableWriter, ZoneWriter

if TYPE_CHECKING:
    from mirrorlib.landing.check.report import CheckReport

ROWS = [{"id": 1, "v": "a"}, {"id": 2, "v": "b"}]
TYPED = pa.schema([("id", pa.int64()), ("v", pa.string())])
REQUIRED = pa.schema([("id", pa.int64()), pa.field("v", pa.string(), nullable=False)])
BY_TIME = {"fileDetectionStrategy": "LastUpdateTimeFileDetection"}
COLUMNS = [{"Name": "id", "DataType": "Int32"}, {"Name": "v", "DataType": "String"}]
CSV: dict[str, object] = {"FileFormat": "csv", "SchemaDefinition": {"Columns": COLUMNS}}
HEADER = "id,v,__rowMarker__\r\n"
WHOLE = f"{HEADER}1,a,0\r\n2,b,1\r\n"

Build = Callable[[ZoneWriter, bool], "LocalStore | None"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """How a zone that breaks one rule is made, and its clean twin."""

    rule: str
    name: str
    build: Build
    deep: bool
    beside: frozenset[str]


CASES: list[Case] = []


def breaks(
    rule: str, *, deep: bool = False, beside: frozenset[str] = frozenset()
) -> Callable[[Build], Build]:
    """Register a builder: with True it breaks the rule, and those that cannot but be broken beside it; with False none."""

    def register(build: Build) -> Build:
        name = build.__name__.strip("_")
        CASES.append(Case(rule=rule, name=name, build=build, deep=deep, beside=beside))
        return build

    return register


def orders(zone: ZoneWriter, **metadata: object) -> TableWriter:
    """Make a table with a sound first file."""
    table = zone.table("orders", keys=["id"], metadata=metadata)
    table.file(ROWS, columns=TYPED)
    return table


def empty(zone: ZoneWriter, **metadata: object) -> TableWriter:
    """Make a table without files."""
    return zone.table("orders", keys=["id"], metadata=metadata)


def text(
    zone: ZoneWriter, content: str | bytes, number: int = 1, **metadata: object
) -> TableWriter:
    """Make a table of delimited text with one file."""
    table = zone.table("orders", keys=["id"], metadata={**CSV, **metadata})
    data = content.encode() if isinstance(content, str) else content
    (table.folder / f"{number:020d}.csv").write_bytes(data)
    return table


def one_column(name: str, kind: pa.DataType, value: object) -> pa.Table:
    """Make a file's rows with one more column."""
    return pa.table({"id": pa.array([1]), name: pa.array([value], kind)})


# Where things lie


@breaks("no-tables")
def _no_tables(zone: ZoneWriter, broken: bool) -> None:
    if not broken:
        orders(zone)


@breaks("too-many-tables")
def _too_many_tables(zone: ZoneWriter, broken: bool) -> None:
    table = orders(zone)
    for number in range(1000 if broken else 999):
        shutil.copytree(table.folder, zone.root / f"t{number}")


@breaks("tables-collide")
def _tables_by_case(zone: ZoneWriter, broken: bool) -> None:
    for name in ("orders", "Orders" if broken else "orders2"):
        zone.table(name, keys=["id"], schema="dbo").file(ROWS)


@breaks("tables-collide")
def _tables_one_inside_the_other(zone: ZoneWriter, broken: bool) -> None:
    zone.table("x", keys=["id"]).file(ROWS)
    zone.table("y", keys=["id"], schema="x" if broken else "z").file(ROWS)


@breaks("table-name")
def _table_name(zone: ZoneWriter, broken: bool) -> None:
    orders(zone)
    if broken:
        os.mkdir(os.fsencode(zone.root) + b"/new\nline")  # noqa: PTH102  # bytes, not text
        os.mkdir(os.fsencode(zone.root) + b"/bad\xff")  # noqa: PTH102  # bytes, not text


@breaks("not-checked")
def _not_checked(zone: ZoneWriter, broken: bool) -> None:
    table = orders(zone)
    if broken:
        table.folder.parent.with_name("elsewhere.json").write_bytes(b"{}")
        (table.folder / "_metadata.json").unlink()
        (table.folder / "_metadata.json").symlink_to(
            table.folder.parent.with_name("elsewhere.json")
        )


@breaks("no-files")
def _no_files(zone: ZoneWriter, broken: bool) -> None:
    table = empty(zone)
    if not broken:
        table.file((), columns=TYPED)


@breaks("wrong-name")
def _short_number(zone: ZoneWriter, broken: bool) -> None:
    orders(zone).file(ROWS, name="2.parquet" if broken else None)


@breaks("wrong-name")
def _number_zero(zone: ZoneWriter, broken: bool) -> None:
    orders(zone).file(ROWS, name=f"{0:020d}.parquet" if broken else None)


@breaks("wrong-name")
def _uuid_in_a_numbered_table(zone: ZoneWriter, broken: bool) -> None:
    name = "0f8fad5b-d9cb-469f-a165-70867728950e.parquet"
    metadata = {} if broken else BY_TIME
    empty(zone, **metadata).file(ROWS, name=name)


@breaks("wrong-name")
def _text_without_a_number(zone: ZoneWriter, broken: bool) -> None:
    table = text(zone, WHOLE)
    (table.folder / ("more.csv" if broken else "_more.csv")).write_text(WHOLE)


@breaks("other-extension")
def _text_in_a_parquet_table(zone: ZoneWriter, broken: bool) -> None:
    table = orders(zone, FileFormat="parquet")
    table.file(ROWS, name=f"{2:020d}.{'csv' if broken else 'parquet'}")


@breaks("wrong-extension")
def _text_in_a_parquet_table_by_time(zone: ZoneWriter, broken: bool) -> None:
    table = empty(zone, FileFormat="parquet", **BY_TIME)
    table.file(ROWS, name="a.parquet")
    table.file(ROWS, name=f"b.{'csv' if broken else 'parquet'}")


@breaks("foreign-file")
def _foreign_file(zone: ZoneWriter, broken: bool) -> None:
    (orders(zone).folder / ("state.db" if broken else "_state.db")).write_text("x")


@breaks("foreign-folder")
def _foreign_folder(zone: ZoneWriter, broken: bool) -> None:
    (orders(zone).folder / ("old" if broken else "_old")).mkdir()


@breaks("partition-undeclared")
def _partition_undeclared(zone: ZoneWriter, broken: bool) -> None:
    table = empty(zone, isPartitionEnabled=not broken)
    table.file(ROWS, partition="Year=2026/Region=eu")


@breaks("first-number")
def _first_number(zone: ZoneWriter, broken: bool) -> None:
    empty(zone).file(ROWS, number=2 if broken else 1)


@breaks("first-number")
def _first_number_of_a_partition(zone: ZoneWriter, broken: bool) -> None:
    table = empty(zone, isPartitionEnabled=True)
    table.file(ROWS, number=1, partition="Region=eu")
    table.file(ROWS, number=2 if broken else 1, partition="Region=us")


@breaks("cleaned-up")
def _cleaned_up(zone: ZoneWriter, broken: bool) -> None:
    table = empty(zone)
    table.file(ROWS, number=16 if broken else 1)
    (table.folder / "_ProcessedFiles").mkdir()


@breaks("cleaned-up")
def _cleaned_up_of_a_partition(zone: ZoneWriter, broken: bool) -> None:
    table = empty(zone, isPartitionEnabled=True)
    table.file(ROWS, number=2 if broken else 1, partition="Region=eu")
    (table.folder / "_ProcessedFiles").mkdir()


@breaks("gap")
def _gap(zone: ZoneWriter, broken: bool) -> None:
    orders(zone).file(ROWS, number=3 if broken else 2)


@breaks("gap")
def _gap_in_a_partition(zone: ZoneWriter, broken: bool) -> None:
    table = empty(zone, isPartitionEnabled=True)
    table.file(ROWS, number=1, partition="Region=eu")
    table.file(ROWS, number=4 if broken else 2, partition="Region=eu")


@breaks("duplicate-number")
def _duplicate_number(zone: ZoneWriter, broken: bool) -> None:
    table = orders(zone)
    table.file(ROWS)
    table.file(ROWS, name=f"{2 if broken else 3:020d}.PARQUET")


@breaks("zero-byte")
def _zero_byte(zone: ZoneWriter, broken: bool) -> None:
    table = orders(zone)
    if broken:
        table.zero_bytes()
    else:
        table.file((), columns=TYPED)


@breaks("zero-byte")
def _zero_byte_text(zone: ZoneWriter, broken: bool) -> None:
    text(zone, "" if broken else HEADER)


@breaks("small-files")
def _small_files(zone: ZoneWriter, broken: bool) -> None:
    table = orders(zone)
    for number in range(2, 51 if broken else 50):
        shutil.copy(table.path(1), table.path(number))


@breaks("large-file")
def _large_file(zone: ZoneWriter, broken: bool) -> None:
    """A hole between the pages and the footer: large to look at, small on disk."""
    path = orders(zone).file(ROWS, columns=TYPED)
    data = path.read_bytes()
    footer = int.from_bytes(data[-8:-4], "little") + 8
    with path.open("wb") as file:
        file.write(data[:-footer])
        file.seek((1 << 30) if broken else (1 << 20), os.SEEK_CUR)
        file.write(data[-footer:])


# Metadata


@breaks("metadata-missing")
def _metadata_missing(zone: ZoneWriter, broken: bool) -> None:
    zone.table("orders", keys=["id"], with_metadata=not broken).file(ROWS)


@breaks("metadata-unreadable")
def _metadata_cut_short(zone: ZoneWriter, broken: bool) -> None:
    orders(zone).metadata("{" if broken else "{}")


@breaks("metadata-unreadable")
def _metadata_of_an_unknown_strategy(zone: ZoneWriter, broken: bool) -> None:
    orders(zone, fileDetectionStrategy="ByName" if broken else "SequentialFileName")


@breaks("metadata-repaired")
def _metadata_with_a_trailing_comma(zone: ZoneWriter, broken: bool) -> None:
    orders(zone).metadata('{"keyColumns": ["id",]}' if broken else '{"keyColumns": ["id"]}')


@breaks("metadata-repaired")
def _metadata_with_a_flag_as_text(zone: ZoneWriter, broken: bool) -> None:
    orders(zone, isUpsertDefaultRowMarker="true" if broken else True)


@breaks("property-misspelt")
def _property_misspelt(zone: ZoneWriter, broken: bool) -> None:
    orders(zone, **{"isUpsertDefaultRowMaker" if broken else "isUpsertDefaultRowMarker": False})


@breaks("property-misspelt")
def _property_misplaced(zone: ZoneWriter, broken: bool) -> None:
    properties = {"Encoding": "UTF-8"}
    metadata = properties if broken else {"FileFormatTypeProperties": properties}
    text(zone, WHOLE, **metadata)


@breaks("property-unknown")
def _property_unknown(zone: ZoneWriter, broken: bool) -> None:
    orders(zone, **({"protocolVersion": "1"} if broken else {}))


@breaks("conditional-update")
def _conditional_update(zone: ZoneWriter, broken: bool) -> None:
    orders(zone, ConditionalUpdateColumn="v" if broken else None)


@breaks("schema-definition-missing")
def _schema_definition_missing(zone: ZoneWriter, broken: bool) -> None:
    text(zone, WHOLE, SchemaDefinition=None if broken else CSV["SchemaDefinition"])


@breaks("metadata-unreadable")
def _data_type_unknown(zone: ZoneWriter, broken: bool) -> None:
    value = {"Name": "v", "DataType": "Decimal" if broken else "Double"}
    text(zone, f"{HEADER}1,1.5,0\r\n", SchemaDefinition={"Columns": [COLUMNS[0], value]})


@breaks("extension-undeclared")
def _extension_undeclared(zone: ZoneWriter, broken: bool) -> None:
    text(zone, WHOLE, FileFormat="DelimitedText", FileExtension=None if broken else ".csv")


@breaks("metadata-unreadable")
def _header_not_declared(zone: ZoneWriter, broken: bool) -> None:
    text(zone, WHOLE, FileFormatTypeProperties={"FirstRowAsHeader": not broken})


@breaks("format-property")
def _format_property(zone: ZoneWriter, broken: bool) -> None:
    separator = "#" if broken else ";"
    content = WHOLE.replace(",", separator)
    text(zone, content, FileFormatTypeProperties={"ColumnSeparator": separator})


@breaks("metadata-unreadable")
@breaks("metadata-unreadable", deep=True)
def _encoding_unknown(zone: ZoneWriter, broken: bool) -> None:
    text(zone, WHOLE, FileFormatTypeProperties={"Encoding": "hex" if broken else "ascii"})


@breaks("metadata-repaired")
def _format_missing(zone: ZoneWriter, broken: bool) -> None:
    text(zone, WHOLE, FileFormat=None if broken else "CSV")


# Columns


@breaks("unreadable")
def _garbage(zone: ZoneWriter, broken: bool) -> None:
    table = orders(zone)
    if broken:
        table.garbage()


@breaks("unreadable")
def _cut_short(zone: ZoneWriter, broken: bool) -> None:
    growing = orders(zone).growing(ROWS)
    if not broken:
        growing.finish()


@breaks("damaged", deep=True)
def _damaged_pages(zone: ZoneWriter, broken: bool) -> None:
    table = orders(zone)
    if broken:
        table.damaged(ROWS)


@breaks("damaged")
def _cut_gzip(zone: ZoneWriter, broken: bool) -> None:
    data = gzip.compress(WHOLE.encode())
    text(zone, data[:-12] if broken else data)


class Racing(LocalStore):
    """A store whose publisher rewrites a file at the moment somebody opens it."""

    def open_file(self, path: str) -> BinaryIO:
        """Open the file as it is by now."""
        if path.endswith("2.parquet"):
            (Path(self.url) / path).write_bytes(b"the first half of another upload")
        return super().open_file(path)


@breaks("unreadable")
def _file_changing(zone: ZoneWriter, broken: bool) -> LocalStore | None:
    orders(zone).file(ROWS)
    return Racing(zone.root) if broken else None


class Vanishing(LocalStore):
    """A store whose publisher removes a file at the moment somebody opens it."""

    def open_file(self, path: str) -> BinaryIO:
        """Come too late."""
        (Path(self.url) / path).unlink()
        return super().open_file(path)


@breaks("not-checked")
def _file_vanishing(zone: ZoneWriter, broken: bool) -> LocalStore | None:
    orders(zone)
    return Vanishing(zone.root) if broken else None


@breaks("column-name")
def _column_reserved(zone: ZoneWriter, broken: bool) -> None:
    empty(zone).file([{"id": 1, "_change_type" if broken else "change_type": "x"}])


@breaks("column-name")
def _column_with_a_backtick(zone: ZoneWriter, broken: bool) -> None:
    empty(zone).file([{"id": 1, "a`b" if broken else "a b": "x"}])


@breaks("column-name")
def _column_in_text(zone: ZoneWriter, broken: bool) -> None:
    name = "_mirror_x" if broken else "mirror_x"
    columns = [COLUMNS[0], {"Name": name, "DataType": "String"}]
    text(zone, WHOLE.replace("v,", f"{name},", 1), SchemaDefinition={"Columns": columns})


@breaks("columns-collide")
def _columns_collide(zone: ZoneWriter, broken: bool) -> None:
    empty(zone).file([{"id": 1, "v": "a", "V" if broken else "w": "b"}])


@breaks("columns-collide")
def _columns_collide_in_java(zone: ZoneWriter, broken: bool) -> None:
    empty(zone).file([{"id": 1, "\u00b5": "a", "\u03bc" if broken else "w": "b"}])


@breaks("column-type")
@breaks("column-type", deep=True)
def _column_nested(zone: ZoneWriter, broken: bool) -> None:
    kind = pa.list_(pa.int32()) if broken else pa.int32()
    empty(zone).file(one_column("v", kind, [1] if broken else 1))


@breaks("column-untyped")
def _column_untyped(zone: ZoneWriter, broken: bool) -> None:
    empty(zone).file(one_column("v", pa.null() if broken else pa.string(), None))


@breaks("value-out-of-range", deep=True)
def _value_out_of_range(zone: ZoneWriter, broken: bool) -> None:
    empty(zone).file(one_column("v", pa.timestamp("ms", "UTC"), 1 << 60 if broken else 1))


@breaks("column-name")
def _column_of_a_partition(zone: ZoneWriter, broken: bool) -> None:
    folder = "a`b=x" if broken else "ab=x"
    empty(zone, isPartitionEnabled=True).file(ROWS, partition=folder)


# From file to file


@breaks("schema-drift")
@breaks("schema-drift", deep=True)
def _integers_grow(zone: ZoneWriter, broken: bool) -> None:
    table = empty(zone)
    table.file(one_column("v", pa.int32(), 1))
    table.file(one_column("v", pa.int64() if broken else pa.int32(), 1))


@breaks("schema-drift")
def _integers_turn_into_decimals(zone: ZoneWriter, broken: bool) -> None:
    """No type holds both, and whether every value fits is seen by looking at them."""
    table = empty(zone)
    table.file(one_column("v", pa.float64(), 1))
    table.file(one_column("v", pa.decimal128(9, 2) if broken else pa.float64(), 1))


@breaks("schema-conflict")
@breaks("schema-conflict", deep=True)
def _text_turns_into_numbers(zone: ZoneWriter, broken: bool) -> None:
    table = empty(zone)
    table.file(one_column("v", pa.string(), "a"))
    table.file(one_column("v", pa.int64() if broken else pa.string(), 1 if broken else "b"))


@breaks("nullability-flip")
def _nullability_flip(zone: ZoneWriter, broken: bool) -> None:
    table = empty(zone)
    table.file(ROWS, columns=REQUIRED)
    table.file(ROWS, columns=TYPED if broken else REQUIRED)


@breaks("new-required-column")
def _new_required_column(zone: ZoneWriter, broken: bool) -> None:
    added = TYPED.append(pa.field("w", pa.int32(), nullable=not broken))
    orders(zone).file([{"id": 1, "v": "a", "w": 1}], columns=added)


@breaks("dropped-required-column")
def _dropped_required_column(zone: ZoneWriter, broken: bool) -> None:
    """A delete carries its keys only, and drops nothing."""
    table = empty(zone)
    table.file(ROWS, columns=REQUIRED)
    table.file([{"id": 1}], markers=[1 if broken else 2])


@breaks("dropped-column")
def _dropped_column(zone: ZoneWriter, broken: bool) -> None:
    table = orders(zone)
    table.file([{"id": 1}, {"id": 2}], markers=[2, 4 if broken else 2])


# Delimited text


@breaks("text-undecodable")
def _text_undecodable(zone: ZoneWriter, broken: bool) -> None:
    text(zone, f"{HEADER}1,\u00e4,0\r\n".encode("windows-1252" if broken else "utf-8"))


@breaks("text-no-header")
def _text_no_header(zone: ZoneWriter, broken: bool) -> None:
    text(zone, "1,a,0\r\n2,b,1\r\n" if broken else WHOLE)


@breaks("text-no-header")
def _text_blank_first_line(zone: ZoneWriter, broken: bool) -> None:
    text(zone, f"\r\n{WHOLE}" if broken else f"{WHOLE}\r\n")


@breaks("text-ragged-row")
def _text_short_row(zone: ZoneWriter, broken: bool) -> None:
    text(zone, f"{HEADER}1,a\r\n" if broken else WHOLE)


@breaks("text-ragged-row")
def _text_unquoted_separator(zone: ZoneWriter, broken: bool) -> None:
    text(zone, f"{HEADER}1,a,b,0\r\n" if broken else f'{HEADER}1,"a,b",0\r\n')


@breaks("text-unparsable")
def _text_behind_a_quote(zone: ZoneWriter, broken: bool) -> None:
    text(zone, f'{HEADER}1,"a"{"b" if broken else ""},0\r\n')


@breaks("text-unparsable")
def _parquet_in_a_text_table(zone: ZoneWriter, broken: bool) -> None:
    text(zone, b"PAR1\x15\x04" if broken else WHOLE)


@breaks("text-open-quote")
def _text_open_quote(zone: ZoneWriter, broken: bool) -> None:
    """All that follows is one long value, which the file cuts off."""
    end = "" if broken else '"'
    text(zone, f'{HEADER}1,a,0\r\n2,b,"1{end}\r\n')


@breaks("text-column-undeclared")
def _text_column_undeclared(zone: ZoneWriter, broken: bool) -> None:
    text(zone, "id,v,w,__rowMarker__\r\n1,a,x,0\r\n" if broken else WHOLE)


@breaks("text-column-missing")
def _text_column_missing(zone: ZoneWriter, broken: bool) -> None:
    text(zone, "id,__rowMarker__\r\n1,0\r\n" if broken else WHOLE)


@breaks("text-value")
def _text_value(zone: ZoneWriter, broken: bool) -> None:
    text(zone, f"{HEADER}{'x' if broken else 1},a,0\r\n")


@breaks("text-value")
def _text_value_of_a_folder(zone: ZoneWriter, broken: bool) -> None:
    """What a folder states is read as the text beside it, and is not missed in the header."""
    columns = {"Columns": [*COLUMNS, {"Name": "r", "DataType": "Int32"}]}
    table = zone.table(
        "orders",
        keys=["id", "r"],
        metadata={**CSV, "SchemaDefinition": columns, "isPartitionEnabled": True},
    )
    folder = table.folder / ("r=x" if broken else "r=1")
    folder.mkdir()
    (folder / f"{1:020d}.csv").write_bytes(WHOLE.encode())


@breaks("text-value")
def _text_value_out_of_range(zone: ZoneWriter, broken: bool) -> None:
    text(zone, f"{HEADER}{2**31 - 1 + broken},a,0\r\n")


@breaks("text-null")
def _text_null(zone: ZoneWriter, broken: bool) -> None:
    columns = [COLUMNS[0], {"Name": "v", "DataType": "String", "IsNullable": False}]
    content = (
        f"{HEADER}1,{'' if broken else chr(34) * 2},0\r\n2,,2\r\n"  # a delete needs its key alone
    )
    text(zone, content, SchemaDefinition={"Columns": columns})


@breaks("text-row-separator")
def _text_row_separator(zone: ZoneWriter, broken: bool) -> None:
    declared = {} if broken else {"RowSeparator": "\n"}
    text(zone, WHOLE.replace("\r\n", "\n"), FileFormatTypeProperties=declared)


# Markers and keys


@breaks("marker-twice")
def _marker_twice(zone: ZoneWriter, broken: bool) -> None:
    name = "__ROWMARKER__" if broken else "marker"
    orders(zone).file([{"id": 1, "v": "a", name: 1}], markers=[1])


@breaks("marker-twice")
def _marker_twice_in_text(zone: ZoneWriter, broken: bool) -> None:
    text(zone, "id,v,__ROWMARKER__,__rowMarker__\r\n1,a,0,0\r\n" if broken else WHOLE)


@breaks("marker-type")
def _marker_type(zone: ZoneWriter, broken: bool) -> None:
    orders(zone).file(ROWS, markers=[1, 2], marker_type=pa.string() if broken else pa.int8())


@breaks("marker-name")
def _marker_name(zone: ZoneWriter, broken: bool) -> None:
    orders(zone).file(ROWS, markers=[1, 2], marker_name="__ROWMARKER__" if broken else MARKER)


@breaks("marker-not-last")
def _marker_first(zone: ZoneWriter, broken: bool) -> None:
    orders(zone).file(ROWS, markers=[1, 2], marker_at="first" if broken else "last")


@breaks("marker-not-last")
def _marker_in_the_middle_of_text(zone: ZoneWriter, broken: bool) -> None:
    text(zone, "id,__rowMarker__,v\r\n1,0,a\r\n" if broken else WHOLE)


@breaks("marker-missing")
def _marker_missing(zone: ZoneWriter, broken: bool) -> None:
    table = orders(zone)
    table.file(ROWS, markers=[1, 1])
    table.file(ROWS, markers=None if broken else [1, 1])


@breaks("marker-missing")
def _marker_missing_in_text(zone: ZoneWriter, broken: bool) -> None:
    text(zone, WHOLE)
    text(zone, "id,v\r\n1,a\r\n" if broken else WHOLE, number=2)


@breaks("marker-unknown")
def _marker_unknown(zone: ZoneWriter, broken: bool) -> None:
    orders(zone).file(ROWS, markers=[1, 3 if broken else 4])


@breaks("marker-unknown")
def _marker_unknown_in_text(zone: ZoneWriter, broken: bool) -> None:
    text(zone, f"{HEADER}1,a,{'D' if broken else '2'}\r\n")


@breaks("marker-null")
def _marker_null(zone: ZoneWriter, broken: bool) -> None:
    orders(zone).file(ROWS, markers=[1, None if broken else 4])


@breaks("marker-null-defaulted")
def _marker_null_defaulted(zone: ZoneWriter, broken: bool) -> None:
    table = orders(zone, isUpsertDefaultRowMarker=True)
    table.file(ROWS, markers=[1, None if broken else 4])


@breaks("no-keys")
def _no_keys(zone: ZoneWriter, broken: bool) -> None:
    table = zone.table("orders")
    table.file(ROWS)
    table.file(ROWS, markers=[0, 2 if broken else 0])


@breaks("no-keys")
def _no_keys_by_default(zone: ZoneWriter, broken: bool) -> None:
    zone.table("orders", metadata={"isUpsertDefaultRowMarker": broken}).file(ROWS)


@breaks("marker-missing")
def _marker_missing_in_a_partition(zone: ZoneWriter, broken: bool) -> None:
    """Only within a partition folder is one file later than another."""
    table = empty(zone, isPartitionEnabled=True)
    table.file(ROWS, partition="r=a")
    table.file(ROWS, markers=[1, 1], partition="r=a")
    if broken:
        table.file(ROWS, partition="r=a")
    table.file(ROWS, number=1, partition="r=b")


@breaks("key-untyped", beside=frozenset({"column-untyped", "key-null"}))
def _key_untyped(zone: ZoneWriter, broken: bool) -> None:
    table = zone.table("orders", keys=["v"])
    for _ in range(2):
        table.file(one_column("v", *((pa.null(), None) if broken else (pa.int64(), 1))))


@breaks("key-null")
def _key_of_nothing_in_text(zone: ZoneWriter, broken: bool) -> None:
    """What is NULL in its type is a NULL key, however it is written."""
    text(zone, f"{HEADER}{' ' if broken else 1},a,0\r\n")


@breaks("key-missing")
def _key_that_no_partition_gives(zone: ZoneWriter, broken: bool) -> None:
    """A folder's column can be a key."""
    table = zone.table("orders", keys=["id", "r"], metadata={"isPartitionEnabled": True})
    table.file(ROWS, partition="s=a" if broken else "r=a")


@breaks("key-missing")
def _key_missing(zone: ZoneWriter, broken: bool) -> None:
    orders(zone).file([{"v": "a"} if broken else {"ID": 1, "v": "a"}])


@breaks("key-missing")
def _key_missing_in_text(zone: ZoneWriter, broken: bool) -> None:
    text(zone, "v,__rowMarker__\r\na,0\r\n" if broken else WHOLE)


@breaks("key-null")
@breaks("key-null", deep=True)
def _key_null(zone: ZoneWriter, broken: bool) -> None:
    orders(zone).file([{"id": 1, "v": "a"}, {"id": None if broken else 2, "v": "b"}])


@breaks("key-null")
def _key_null_in_text(zone: ZoneWriter, broken: bool) -> None:
    """Nothing at all is NULL; an empty text in quotes is a value, if its column is of texts."""
    columns = [{**COLUMNS[0], "DataType": "String"}, COLUMNS[1]]
    content = f"{HEADER},a,0\r\n" if broken else f'{HEADER}"",a,0\r\n'
    text(zone, content, SchemaDefinition={"Columns": columns})


@breaks("key-null")
def _key_of_nothing_in_a_typed_column(zone: ZoneWriter, broken: bool) -> None:
    """A number that is written as nothing between quotes is NULL."""
    value = '""' if broken else '"1"'
    text(zone, f"{HEADER}{value},a,0\r\n")


@breaks("key-null")
def _key_of_an_empty_line(zone: ZoneWriter, broken: bool) -> None:
    """In a file of one column an empty line is a row."""
    columns = {"Columns": COLUMNS[:1]}
    text(zone, f"id\r\n1\r\n{'' if broken else '2'}\r\n3\r\n", SchemaDefinition=columns)


# The table of cases, run


def review(
    zone: ZoneWriter, case: Case, monkeypatch: pytest.MonkeyPatch, *, broken: bool
) -> CheckReport:
    """Build one of the twins and review it, through a store of its own when the case has one."""
    store = case.build(zone, broken)
    if store is not None:
        monkeypatch.setattr(checked_zone, "open_store", lambda _: store)
    return check_zone(str(zone), deep=case.deep)


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.rule}-{case.name}-{case.deep}")
def test_a_broken_zone_breaks_exactly_its_rule(
    case: Case, zone: ZoneWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The finding says which rule, with the rule's severity and a fix."""
    report = review(zone, case, monkeypatch, broken=True)

    its = [finding for finding in report.findings if finding.rule not in case.beside]
    assert {case.rule} | case.beside == {finding.rule for finding in report.findings}, str(report)
    assert {RULES[case.rule].severity} == {finding.severity for finding in its}
    assert all(finding.found and finding.fix.endswith(".") for finding in report.findings)


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.rule}-{case.name}-{case.deep}")
def test_its_clean_twin_breaks_nothing(
    case: Case, zone: ZoneWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not even a note."""
    report = review(zone, case, monkeypatch, broken=False)

    assert () == report.findings
    assert report.ok


def test_every_rule_has_a_case() -> None:
    """No rule is only claimed."""
    assert set(RULES) == {case.rule for case in CASES}


def test_hole_is_a_readable_file(tmp_path: Path) -> None:
    """The large file of the case above is Parquet, and holds its rows."""
    zone = ZoneWriter(tmp_path / "zone")
    _large_file(zone, broken=True)

    assert 2 == pq.read_metadata(zone.root / "orders" / f"{2:020d}.parquet").num_rows
