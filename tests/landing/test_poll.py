"""A look at a table's folder finds what is next, at the cost of what is next, or says that it cannot tell."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import obstore.store
import pytest

from mirrorlib.landing.listing import FolderContent
from mirrorlib.landing.poll import MOST_PROBES, see_after, see_next
from mirrorlib.names import sequence_name
from mirrorlib.store import LocalStore, ObjectStore, Store
from polls import FOLDER, counting

Make = Callable[[Path], Store]


def in_order(_: Path) -> Store:
    """Make a store that lists in order from a name on."""
    return ObjectStore("memory:///zone", obstore.store.MemoryStore())


def unordered(_: Path) -> Store:
    """Make an object store that does not: one file at a time can be asked for."""
    store = ObjectStore("memory:///zone", obstore.store.MemoryStore())
    store.seeks = False
    return store


@pytest.fixture(params=[in_order, unordered, LocalStore], ids=["in order", "unordered", "local"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    """Give an empty store of each kind."""
    made: Make = request.param
    return made(tmp_path)


def publish(store: Store, *numbers: int, extension: str = "parquet") -> None:
    """Publish files by number."""
    for number in numbers:
        store.put(f"orders/{sequence_name(number, extension)}", b"x")


def anchor(store: Store, number: int, extension: str = "parquet") -> tuple[str, str]:
    """Remember a file as it is now, to look for what follows it."""
    name = sequence_name(number, extension)
    found = store.stat(f"orders/{name}")
    assert found is not None
    return name, found.etag


def look(store: Store, newest: tuple[str, str], *, most: int | None = None) -> list[str] | None:
    """Look for Parquet files; give names, ascending."""
    return names(see_next(store, FOLDER, newest, ["parquet"], most=most))


def names(seen: FolderContent | None) -> list[str] | None:
    """Give names, ascending."""
    return None if seen is None else sorted(file.name for file in seen.files)


def test_what_follows_is_found_and_nothing_else(store: Store) -> None:
    """From the newest applied file on, which is shown too."""
    publish(store, 1, 2, 3, 4, 5)
    store.put("orders/_metadata.json", b"{}")
    store.put("orders/_ProcessedFiles/00000000000000000009.parquet", b"x")

    assert [sequence_name(number) for number in (3, 4, 5)] == look(store, anchor(store, 3))
    assert [sequence_name(5)] == look(store, anchor(store, 5))


@pytest.mark.parametrize("there", [10, 1_000])
def test_a_look_that_finds_nothing_costs_the_same_whatever_is_there(
    store: Store, there: int
) -> None:
    """One listing from a name on, or three files looked at; k new files cost k more."""
    publish(store, *range(1, there + 1))
    newest = anchor(store, there)
    counted, calls = counting(store)

    look(counted, newest)
    idle = calls.asked()
    publish(store, there + 1, there + 2)
    look(counted, newest)
    busy = calls.asked()

    assert (
        ({"files_after": 1}, {"files_after": 1}) == (idle, busy)
        if store.seeks
        else (
            {"stat": 3},
            {"stat": 5},
        )
        == (idle, busy)
    )


def test_an_applied_file_that_is_not_as_it_was_needs_a_full_listing(store: Store) -> None:
    """Changed or gone: the source may have started over."""
    publish(store, 1, 2, 3)
    newest = anchor(store, 2)
    store.put(f"orders/{sequence_name(2)}", b"other")
    assert look(store, newest) is None

    store.delete(f"orders/{sequence_name(2)}")

    assert look(store, newest) is None


def test_a_number_that_is_passed_over_is_noticed(store: Store) -> None:
    """Where the store lists, it is shown; else the one behind it sends for a full listing."""
    publish(store, 1, 3)

    found = look(store, anchor(store, 1))

    assert ([sequence_name(1), sequence_name(3)] if store.seeks else None) == found


def test_files_that_are_enough_end_the_look(store: Store) -> None:
    """Though foreign names lie among the numbers."""
    publish(store, *range(1, 60))
    counted, calls = counting(store)
    first = look(counted, anchor(store, 1), most=5)
    assert first is not None
    assert {"files_after": 1} == calls.asked() if store.seeks else len(first) == 6
    for number in range(30):
        store.put(f"orders/{sequence_name(1)}.{number:02d}.tmp", b"x")

    found = look(store, anchor(store, 1), most=5)

    assert found is not None
    numbered = [name for name in found if not name.endswith(".tmp")]
    assert [sequence_name(number) for number in range(1, 7)] == numbered[:6]


def test_a_folder_and_an_empty_file_are_no_next_file(tmp_path: Path) -> None:
    """Spark writes folders of such names; a hierarchical account shows them as empty files, a bucket what stands for them."""
    local, azure, bucket = LocalStore(tmp_path), unordered(tmp_path), in_order(tmp_path)
    for store in (local, azure, bucket):
        publish(store, 1)
    (tmp_path / "orders" / sequence_name(2)).mkdir()
    azure.put(f"orders/{sequence_name(2)}", b"")
    bucket.put(f"orders/{sequence_name(2)}", b"")

    assert [sequence_name(1)] == look(local, anchor(local, 1))
    assert look(azure, anchor(azure, 1)) is None
    assert look(bucket, anchor(bucket, 1)) is None


def test_a_backlog_is_listed_and_not_looked_at_one_by_one(tmp_path: Path) -> None:
    """Beyond a page of numbers."""
    store = LocalStore(tmp_path)
    publish(store, *range(1, MOST_PROBES + 3))

    assert look(store, anchor(store, 1)) is None
    assert MOST_PROBES == len(look(store, anchor(store, 3)) or ())


def test_text_is_looked_for_by_every_extension(store: Store) -> None:
    """The one that was seen last, and those that the metadata allows."""
    publish(store, 1, extension="CSV")
    publish(store, 2, extension="CSV")
    publish(store, 3, extension="tsv")
    newest = anchor(store, 1, extension="CSV")

    found = names(see_next(store, FOLDER, newest, ["csv", "tsv"]))

    assert [f"{number:020d}.{end}" for number, end in ((1, "CSV"), (2, "CSV"), (3, "tsv"))] == found


def test_names_without_numbers_are_listed_from_one_on(store: Store) -> None:
    """But not where the store lists in no order."""
    for name in ("2026-01.parquet", "2026-02.parquet", "2026-03.parquet", "_metadata.json"):
        store.put(f"orders/{name}", b"x")

    found = names(see_after(store, FOLDER, "2026-01.parquet"))

    can = store.seeks or isinstance(store, LocalStore)
    assert (["2026-02.parquet", "2026-03.parquet"] if can else None) == found


def test_checksums_beside_change_files_hide_none(store: Store) -> None:
    """A short listing is long enough for the files that count, however many others have numbers."""
    publish(store, 1, 2)
    for kind in range(12):
        publish(store, 1, extension=f"md{kind}")

    found = look(store, anchor(store, 1), most=1)

    assert found is not None
    assert sequence_name(2) in found
