"""Which names of a table's folder are its numbered change files, and what two files of one number stop."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import mirrorlib
from mirrorlib.ingest.files.table_folder import OpenedFolder, open_folder
from mirrorlib.ingest.next_batch import choose_files
from mirrorlib.names import parse_name, sequence_name
from mirrorlib.store import open_store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from zones import TableWriter, ZoneWriter


@pytest.fixture
def orders(zone: ZoneWriter) -> TableWriter:
    """Give a table of three Parquet files."""
    table = zone.table("orders", keys=["id"])
    for number in (1, 2, 3):
        table.file([{"id": number}])
    return table


def opened(zone: ZoneWriter) -> OpenedFolder:
    """Open the table's folder."""
    folder = parse_name("orders")
    return open_folder(open_store(str(zone)), folder)


def test_two_files_of_one_number_stop_only_what_comes_behind(
    zone: ZoneWriter, orders: TableWriter
) -> None:
    """Earlier files are next, and once they are applied the table fails by both names."""
    orders.file([{"id": 3}], name=sequence_name(3, "PARQUET"))
    found = opened(zone)

    coming = choose_files(found, {}, {}, 10.0)
    idle = choose_files(found, {"": 2}, {}, 10.0)

    assert [1, 2] == [number for number, _ in coming.files]
    assert ("failed", sequence_name(3)) == (idle.state, idle.file)
    assert f"{sequence_name(3)} and {sequence_name(3, 'PARQUET')}" in idle.reason
    assert "ChangeFileError" == idle.error


def test_a_twin_of_an_applied_file_stops_nothing(zone: ZoneWriter, orders: TableWriter) -> None:
    """It is left alone, with a warning."""
    orders.file([{"id": 1}], name=sequence_name(1, "PARQUET"))
    found = opened(zone)

    coming = choose_files(found, {"": 1}, {}, 10.0)

    assert [2, 3] == [number for number, _ in coming.files]
    assert any(sequence_name(1, "PARQUET") in warning for warning in found.warnings)


@pytest.mark.parametrize(
    "metadata, extensions",
    [
        ({}, {"parquet", "PARQUET", "csv", "txt"}),
        ({"FileFormat": "parquet"}, {"parquet", "PARQUET"}),
        ({"FileFormat": "CSV"}, {"csv", "txt"}),
        ({"FileFormat": "DelimitedText", "FileExtension": ".DAT"}, {"dat"}),
        ({"FileExtension": "pq"}, {"parquet", "PARQUET", "csv", "txt", "pq"}),
    ],
)
def test_only_the_table_s_extensions_count(
    zone: ZoneWriter, metadata: dict[str, object], extensions: set[str]
) -> None:
    """Others are named in a warning; text counts, to be refused, where no format is stated."""
    table = zone.table("orders", metadata={"keyColumns": ["id"], **metadata})
    every = ["parquet", "PARQUET", "csv", "txt", "dat", "pq", "md5", "tmp"]
    for number, extension in enumerate(every, start=1):
        (table.folder / sequence_name(number, extension)).write_bytes(b"x")

    found = opened(zone)

    files = found.listing.partitions[""].values()
    assert extensions == {file.name.rpartition(".")[2] for file in files}
    told = " ".join(found.warnings)
    assert f"{len(every) - len(extensions)} files are no change files" in told
    assert "mirrorlib check LANDING_ZONE" in told


def test_a_checksum_beside_change_files_is_left_alone(
    spark: SparkSession, zone: ZoneWriter, target: str, orders: TableWriter
) -> None:
    """Beside a file to come, and beside one that was applied."""
    (orders.folder / sequence_name(3, "md5")).write_text("x")

    first = mirrorlib.apply(spark, str(zone), target).tables[0]
    (orders.folder / sequence_name(1, "md5")).write_text("x")
    orders.file([{"id": 4}])
    second = mirrorlib.apply(spark, str(zone), target).tables[0]

    assert [("current", 3), ("current", 4)] == [(t.state, t.position) for t in (first, second)]
    assert any(sequence_name(3, "md5") in warning for warning in first.warnings)
