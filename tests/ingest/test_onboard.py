"""What a table folder shows beside its change files is told, and stops nothing. No Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from mirrorlib.ingest.files.table_folder import OpenedFolder, open_folder
from mirrorlib.names import parse_name
from mirrorlib.store import open_store

if TYPE_CHECKING:
    from tests.zones import TableWriter, ZoneWriter

EU, US = "Region=eu", "Region=us"
BY_TIME = {"fileDetectionStrategy": "LastUpdateTimeFileDetection"}
PARTITIONED = {"isPartitionEnabled": True}
SEE_WHY = ". See why with: mirrorlib check LANDING_ZONE"


def table(zone: ZoneWriter, **metadata: Any) -> TableWriter:
    """Make the table's folder."""
    return zone.table("orders", keys=["id"], metadata=metadata)


def opened(zone: ZoneWriter) -> OpenedFolder:
    """Open the table's folder."""
    name = parse_name("orders")
    return open_folder(open_store(str(zone)), name)


def test_partition_folders_that_nobody_declared_are_what_a_table_waits_with(
    zone: ZoneWriter,
) -> None:
    """Their publisher takes the rows for published."""
    orders = table(zone)
    for folder in (EU, US):
        orders.file([{"id": 1}], number=1, partition=folder)

    found = opened(zone)

    assert found.waits_for == "No change file has been published yet."
    assert (f"2 folders are not read: {EU}, {US}{SEE_WHY}",) == found.warnings


def test_partition_folders_that_nobody_declared_are_told_beside_files(zone: ZoneWriter) -> None:
    """A current table would hide them."""
    orders = table(zone)
    orders.file([{"id": 1}])
    orders.file([{"id": 1}], number=1, partition=EU)

    found = opened(zone)

    assert ("", 1) == (found.waits_for, found.listing.count)
    assert (f"1 folders are not read: {EU}{SEE_WHY}",) == found.warnings


@pytest.mark.parametrize("metadata", [{}, BY_TIME, PARTITIONED])
def test_any_other_folder_is_told(zone: ZoneWriter, metadata: dict[str, Any]) -> None:
    """By number, by time, beside partition folders; one that the format ignores is not."""
    orders = table(zone, **metadata)
    orders.file([{"id": 1}])
    for folder in ("2024", "_ProcessedFiles", ".trash"):
        orders.file([{"id": 1}], partition=folder)

    assert (f"1 folders are not read: 2024{SEE_WHY}",) == opened(zone).warnings


def test_a_folder_inside_a_partition_folder_is_told(zone: ZoneWriter) -> None:
    """With its path; the partition folders are read."""
    orders = table(zone, **PARTITIONED)
    for folder in (EU, f"{EU}/2024", f"{EU}/Day=1"):
        orders.file([{"id": 1}], number=1, partition=folder)

    found = opened(zone)

    assert {EU, f"{EU}/Day=1"} == found.listing.partitions.keys()
    assert (f"1 folders are not read: {EU}/2024{SEE_WHY}",) == found.warnings


def test_a_plain_folder_s_folders_are_all_read(zone: ZoneWriter) -> None:
    """There is nothing to tell."""
    orders = zone.table("orders", with_metadata=False)
    orders.file([{"id": 1}], number=1, partition="2024")

    assert () == opened(zone).warnings


COLUMNS = {"SchemaDefinition": {"Columns": [{"Name": "id", "DataType": "Int32"}]}}


def text(zone: ZoneWriter, name: str, **metadata: Any) -> OpenedFolder:
    """Open a table folder with one file of text."""
    (table(zone, **metadata).folder / name).write_text("id\r\n1\r\n")
    return opened(zone)


@pytest.mark.parametrize(
    "name,metadata", [(f"{1:020d}.csv", COLUMNS), ("a.csv", {**COLUMNS, **BY_TIME})]
)
def test_columns_of_text_without_a_format_are_csv(
    zone: ZoneWriter, name: str, metadata: dict[str, Any]
) -> None:
    """It is the documented default, and is told."""
    found = text(zone, name, **metadata)

    assert found.dialect is not None
    assert 1 == found.listing.count
    assert (
        "_metadata.json was completed: it states no FileFormat, and SchemaDefinition is of delimited text: CSV",
    ) == found.warnings


def test_text_that_nothing_declares_is_read_where_names_say_what_is_read(zone: ZoneWriter) -> None:
    """Files decide where metadata is silent: a folder of nothing but text has the documented default."""
    found = text(zone, "a.csv", **BY_TIME)

    assert found.dialect is not None
    assert 1 == found.listing.count
    assert found.warnings[0].endswith("states no FileFormat, and all files are .csv: CSV")


def test_text_beside_parquet_is_named_where_names_say_what_is_read(zone: ZoneWriter) -> None:
    """It would wait for ever."""
    orders = table(zone, **BY_TIME)
    (orders.folder / "b.parquet").write_bytes(b"PAR1")

    found = text(zone, "a.csv", **BY_TIME)

    assert found.warnings[0].startswith("1 files are no change files and were left alone: a.csv.")


def test_a_number_with_two_extensions_is_told(zone: ZoneWriter) -> None:
    """The format has one extension behind the number; the check says how to name it."""
    found = text(zone, f"{1:020d}.csv.gz", FileFormat="CSV")

    assert 0 == found.listing.count
    assert f"left alone: {1:020d}.csv.gz. See why" in " ".join(found.warnings)
