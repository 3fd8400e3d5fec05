"""What a publisher may not have meant is told, once, and stops nothing. No Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from mirrorlib.ingest.batch.open_batch import prepare_files
from mirrorlib.ingest.files.source import Source
from mirrorlib.ingest.next_batch import warnings_of
from mirrorlib.journal.entries import Policies
from mirrorlib.store import open_store

if TYPE_CHECKING:
    from tests.zones import TableWriter, ZoneWriter


@pytest.fixture
def orders(zone: ZoneWriter) -> TableWriter:
    """Give a table folder."""
    return zone.table("orders", keys=["id"])


def warnings(orders: TableWriter) -> tuple[str, ...]:
    """Prepare every file that is there, and give the warnings."""
    policies = Policies(
        keys=("id",),
        upsert_default=False,
        insert_policy="append",
        evolution="widen",
        ntz="utc",
    )
    zone = open_store(str(orders.folder.parent))
    source = Source(zone=zone, table="orders", folder="orders", policies=policies)
    listed = zone.list_folder("orders")
    assert listed is not None
    files = [file for file in listed.files if file.name[0] != "_"]
    prepared = prepare_files(source, files, ())
    assert prepared.fault is None
    return warnings_of(prepared, policies)


@pytest.mark.parametrize("name, told", [("ID", 1), ("id", 0)])
def test_a_key_in_another_case_is_told_once(orders: TableWriter, name: str, told: int) -> None:
    """As the first file spells it, however many files follow."""
    for _ in range(2):
        orders.file([{name: 1, "v": 1}])

    found = warnings(orders)

    assert told == len(found)
    assert told == sum("the key column 'id' is 'ID' in the files" in warning for warning in found)


def test_null_keys_are_told_by_one_sentence(orders: TableWriter) -> None:
    """However many files have some."""
    for _ in range(5):
        orders.file([{"id": 1, "v": 1}, {"id": None, "v": 2}, {"id": None, "v": 3}])

    (told,) = warnings(orders)

    assert told.startswith("10 NULL key values; ")
    assert told.endswith(
        f" {', '.join(f'{number:020d}.parquet' for number in (1, 2, 3))} … (5 in all)"
    )
