"""Short looks through `mirrorlib.apply`: what is next is applied at once, and nothing that goes wrong is passed over for good."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import mirrorlib
from mirrorlib.ingest.files import incremental_listing
from mirrorlib.store import LocalStore
from mirrors import Mirror
from tables import assert_each_file_once, assert_feed_replays
from zones import ZoneWriter, write_at

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from mirrorlib.ingest.report import TableReport
    from mirrorlib.store import Folder

pytestmark = pytest.mark.slow
SHORT = {"listing": "incremental"}
FULL = {"listing": "incremental", "backfill_interval": 0}


@pytest.fixture
def listings(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Note the folders that are listed in full."""
    seen: list[str] = []
    real = LocalStore.list_folder

    def list_folder(store: LocalStore, folder: str) -> Folder | None:
        seen.append(folder)
        return real(store, folder)

    monkeypatch.setattr(LocalStore, "list_folder", list_folder)
    return seen


def short(mirror: Mirror, listings: list[str]) -> TableReport:
    """Apply by a short look, and see that it is one."""
    listings.clear()
    report = mirror.run(**SHORT)
    assert mirror.name not in listings
    return report


def status(mirror: Mirror, listings: list[str]) -> tuple[str, int]:
    """Ask how the table stands, by a short look: its state and how many files wait."""
    listings.clear()
    seen = mirrorlib.status(mirror.target).tables[0]
    assert mirror.name not in listings
    return seen.state, seen.unapplied


@pytest.mark.thorough
def test_numbered_files_are_applied_by_short_looks(mirror: Mirror, listings: list[str]) -> None:
    """What is next, a gap and its filling, an overwritten file, the zone elsewhere, a source that starts over, a folder that goes."""
    mirror.run(**SHORT)
    for _ in range(2):
        mirror.publish()
    assert ("current", 4) == ((found := short(mirror, listings)).state, found.position)
    mirror.assert_holds()

    meant = mirror.files[0]
    mirror.replace(1)  # against the format, and not read again
    mirror.files[0] = meant
    assert () == short(mirror, listings).warnings
    mirror.publish()
    assert ((), 5) == ((found := short(mirror, listings)).warnings, found.position)
    (told,) = mirror.run(**FULL).warnings
    assert mirror.file_name(1) in told
    assert () == short(mirror, listings).warnings

    waiting = [mirror.publish() for _ in range(3)]
    hidden = [path.rename(mirror.root / path.name) for path in waiting[:2]]
    assert "current" == short(mirror, listings).state  # two numbers on: nobody looks so far
    blocked = mirror.run(**FULL)
    assert ("blocked", mirror.file_name(6)) == (blocked.state, blocked.file)
    assert "blocked" == mirror.run(**SHORT).state
    for path in hidden:
        path.rename(mirror.table.folder / path.name)
    mirror.assert_current(**SHORT)
    assert 8 == short(mirror, listings).position

    old = str(mirror.zone)
    mirror.move_zone()
    mirror.assert_failed("FileChangedError", mirror.file_name(1), moved_from=old, **SHORT)
    mirror.table.path(1).unlink()
    mirror.assert_current(moved_from=old, **SHORT)
    mirror.publish()
    # In full: the newest batch, which tells where to look on from, came from the old place.
    mirror.assert_current(**SHORT)
    mirror.publish()
    assert 10 == short(mirror, listings).position
    mirror.publish()
    assert ("behind", 1) == status(mirror, listings)
    mirror.assert_current(**SHORT)
    assert ("current", 0) == status(mirror, listings)

    mirror.drop_and_publish(2)
    mirror.table.metadata(keys=["id"])
    assert "the source may have started over" in mirror.run(**SHORT).reason
    mirror.zone.table("other", keys=["id"])
    shutil.rmtree(mirror.table.folder)
    assert "gone" == mirror.run(**SHORT).state


def test_a_short_folder_is_listed_in_full(
    spark: SparkSession, zone: ZoneWriter, target: str
) -> None:
    """As that is one request, whatever names it has; so is one whose names are not in the order of writing."""
    orders = zone.table("orders", keys=["id"], by_time=True)
    for number, name in enumerate(("a", "b")):
        write_at(orders.file([{"id": number}], name=f"{name}.parquet"), number)

    found = [mirrorlib.apply(spark, str(zone), target).tables[0].listing for _ in range(2)]

    assert ["full", "full"] == found


@pytest.mark.thorough
@pytest.mark.parametrize("listing", ["auto", "incremental"])
def test_files_without_numbers_are_found_by_the_eighth_listing(
    spark: SparkSession,
    zone: ZoneWriter,
    target: str,
    listings: list[str],
    listing: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A name that sorts before what was applied waits for it; the rest is applied at once, each file once.

    `auto` does so by itself where the folder is long; the report says which listing it was.
    """
    monkeypatch.setattr(incremental_listing, "PAGE", 1 if listing == "auto" else 1000)
    orders = zone.table("orders", keys=["id"], by_time=True)

    def put(name: str, second: float) -> None:
        number = int(second)
        write_at(orders.file([{"id": number}, {"id": 0}], [0, 0], name=f"{name}.parquet"), second)

    def apply() -> TableReport:
        found = mirrorlib.apply(spark, str(zone), target, listing=listing).tables[0]
        assert ("current", "") == (found.state, found.reason)
        assert found.listing == ("full" if "orders" in listings else "incremental")
        return found

    put("2026-01", 1)
    put("2026-02", 2)
    apply()
    put("2026-01-late", 3)
    applied = []
    for day in range(9):
        listings.clear()
        if day in {0, 5}:
            put(f"2026-03-{day}", 10 + day)
        found = [batch.files for batch in apply().batches]
        applied.append((found, "orders" in listings))

    expected: list[tuple[list[int], bool]] = [([], False)] * 9
    expected[0] = expected[5] = ([1], False)
    expected[7] = ([1], True)
    assert expected[:8] == applied[:8]
    assert_each_file_once(Path(target) / "orders", 5)
    assert_feed_replays(spark, Path(target) / "orders")
    state = mirrorlib.status(target).tables[0]
    assert ("current", "", 5, 0) == (state.state, state.reason, state.position, state.unapplied)
