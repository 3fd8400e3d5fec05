"""The next batch is the longest run of consecutive unapplied files within the limits; a gap is named."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirrorlib.ingest.files.plan import (
    Watched,
    changed_files,
    is_young,
    next_run,
    position_after,
    within,
)
from mirrorlib.journal.entries import Plan, PlannedFile, Policies
from mirrorlib.landing.listing import FolderListing
from mirrorlib.names import sequence_name
from mirrorlib.store import StoredFile

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


def stored(number: int, *, size: int = 10, extension: str = "parquet", age: int = 0) -> StoredFile:
    """Give the listing of a change file, *age* seconds before noon."""
    return StoredFile(
        path=f"orders/{sequence_name(number, extension)}",
        size=size,
        modified=NOON - timedelta(seconds=age),
        etag=f"e{number}",
    )


def listing(*files: StoredFile) -> FolderListing:
    """Give a folder that shows these files."""
    return FolderListing(partitions={"": {int(file.name[:20]): file for file in files}}, foreign=())


def folder(*numbers: int) -> FolderListing:
    """Give a folder that shows files of these numbers."""
    return listing(*[stored(number) for number in numbers])


def numbers(
    found: FolderListing,
    position: int,
    max_files: int | None = None,
    max_bytes: int | None = None,
) -> list[int]:
    """Give the numbers of the next batch."""
    files = next_run(found, {"": position}).files
    return [number for number, _ in within(files, max_files, max_bytes)]


def test_an_empty_folder_has_no_next_run() -> None:
    """Nothing there is nothing to do and nothing to wait for."""
    run = next_run(folder(), {"": 0})

    assert ((), None, "") == (run.files, run.awaited, run.gap)


def test_all_consecutive_files_are_one_run() -> None:
    """Without limits a backlog is one batch."""
    assert [1, 2, 3] == numbers(folder(1, 2, 3), 0)


def test_applied_files_are_left_out() -> None:
    """Files at or below the position are applied; the newest of them stays in the folder by the format's rule."""
    assert [4, 5] == numbers(folder(2, 3, 4, 5), 3)
    assert [] == numbers(folder(3), 3)


def test_a_gap_ends_the_run_and_is_named() -> None:
    """The missing name, since when files wait behind it, and how many do."""
    found = listing(stored(1), stored(3, age=60), stored(4, age=90), stored(7, age=5))

    run = next_run(found, {"": 0})

    assert [1] == [number for number, _ in run.files]
    assert "00000000000000000002.parquet" == run.awaited
    assert "00000000000000000002.parquet is missing" in run.gap
    assert "3 later files wait behind it since 2026-03-01 11:58:30 UTC" in run.gap


def test_a_gap_right_behind_the_position_blocks_everything() -> None:
    """No later file is applied, however many there are."""
    run = next_run(folder(1, 3, 4), {"": 1})

    assert () == run.files
    assert run.gap
    assert "1 later file waits" in next_run(folder(3), {"": 1}).gap


def test_a_zone_that_begins_late_awaits_its_first_file() -> None:
    """Numbers begin at 1; a new table whose first file is 5 has lost four."""
    run = next_run(folder(5), {"": 0})

    assert "00000000000000000001.parquet" == run.awaited
    assert "start-at" not in run.gap
    assert next_run(folder(5), {}).gap.endswith(
        "gone for good and number 5 is a full load: --start-at 5, for this table alone."
    )
    assert "start-at" not in next_run(folder(1, 3), {}).gap


def test_the_awaited_name_has_the_extension_of_the_files_behind() -> None:
    """A publisher of other extensions is told his own name."""
    run = next_run(listing(stored(2, extension="snappy")), {"": 0})

    assert "00000000000000000001.snappy" == run.awaited


def test_the_number_of_files_is_limited() -> None:
    """The rest waits for the next batch."""
    assert [1, 2] == numbers(folder(1, 2, 3), 0, max_files=2)


def test_the_bytes_are_limited() -> None:
    """A batch ends before the file that would exceed the limit."""
    found = listing(*[stored(number, size=size) for number, size in ((1, 40), (2, 60), (3, 1))])

    assert [1, 2] == numbers(found, 0, max_bytes=100)
    assert [1] == numbers(found, 0, max_bytes=99)


def test_a_batch_holds_at_least_one_file() -> None:
    """A file larger than the limit is not refused."""
    assert [1] == numbers(listing(stored(1, size=1000), stored(2)), 0, max_bytes=1)


def test_the_largest_number_is_applied_like_any_other() -> None:
    """Twenty digits do not overflow."""
    last = 10**20 - 1

    assert [last] == numbers(folder(last), last - 1)


@given(
    st.sets(st.integers(1, 30)),
    st.integers(0, 30),
    st.none() | st.integers(1, 5),
    st.none() | st.integers(1, 60),
)
def test_runs_of_any_cut_follow_each_other(
    present: set[int], position: int, max_files: int | None, max_bytes: int | None
) -> None:
    """Run after run, every file up to the gap is taken once and in order, within the limits."""
    found = folder(*sorted(present))
    taken: list[int] = []
    at = position
    while batch := numbers(found, at, max_files, max_bytes):
        assert max_files is None or len(batch) <= max_files
        assert max_bytes is None or len(batch) == 1 or 10 * len(batch) <= max_bytes
        taken += batch
        at = batch[-1]

    assert taken == numbers(found, position)
    assert taken == list(range(position + 1, position + 1 + len(taken)))
    assert at + 1 not in present


def plan_of(*files: StoredFile, listed_at: datetime = NOON) -> Plan:
    """Give an applied plan of these files."""
    return Plan(
        life="l",
        batch=1,
        attempt="a",
        zone="/zone",
        files=tuple(
            PlannedFile(
                name=file.name,
                size=file.size,
                etag=file.etag,
                rows=1,
                modified="2026-01-01T00:00:00+00:00",
                fingerprint="f",
            )
            for file in files
        ),
        before={},
        after={"": len(files)},
        policies=Policies(
            keys=(), upsert_default=False, insert_policy="append", evolution="widen", ntz="utc"
        ),
        table_version=None,
        previous=None,
        listed_at=listed_at.isoformat(),
    )


def test_applied_files_that_stayed_are_not_reported() -> None:
    """The usual case is silent."""
    assert ((), ()) == changed_files(folder(1, 2), plan_of(stored(1), stored(2)), {"": 2})


def test_an_applied_file_with_another_identity_is_named() -> None:
    """Same name, other content: the format forbids it."""
    other = StoredFile(path="orders/" + sequence_name(2), size=9, modified=NOON, etag="new")

    found = changed_files(listing(stored(1), other), plan_of(stored(1), stored(2)), {"": 2})

    assert ((sequence_name(2),), ()) == found


def test_a_file_of_an_older_plan_is_told_by_its_time() -> None:
    """Older plans are not read again; what was written after the newest plan's listing has changed."""
    found = listing(stored(1, age=-5), stored(2, age=50), stored(3))

    assert ((sequence_name(1),), ()) == changed_files(found, plan_of(stored(3)), {"": 3})


def test_a_file_of_an_older_plan_may_be_younger_than_all_of_the_newest() -> None:
    """As uploads out of order are where the store's clock is ahead of ours: an older plan has seen it."""
    newest = plan_of(stored(3, age=60), listed_at=NOON - timedelta(hours=1))
    found = listing(stored(1), stored(2, age=30), stored(3, age=60))

    changed = (sequence_name(1), sequence_name(2))
    assert (changed, ()) == changed_files(found, newest, {"": 3})
    knowing = replace(newest, seen_until=(NOON - timedelta(seconds=30)).isoformat())
    assert ((sequence_name(1),), ()) == changed_files(found, knowing, {"": 3})
    assert ((), ()) == changed_files(found, replace(newest, seen_until=NOON.isoformat()), {"": 3})


def test_a_file_behind_the_position_is_no_changed_file() -> None:
    """What is not applied may change."""
    found = listing(stored(1), stored(2, age=-5))
    assert ((), ()) == changed_files(found, plan_of(stored(1)), {"": 1})


@pytest.mark.parametrize(
    "age, seen, etag, young",
    [
        (9, None, "", True),
        (10, None, "", False),
        (-3600, None, "", True),
        (-3600, 9, "e1", True),
        (-3600, 10, "e1", False),
        (-3600, 10, "other", True),
        (60, 1, "e1", False),
    ],
)
def test_text_is_young_until_it_has_lain_still(
    age: int, seen: int | None, etag: str, young: bool
) -> None:
    """By its own time, or by two listings that show the same content."""
    at = None if seen is None else (NOON - timedelta(seconds=seen)).isoformat()
    name = sequence_name(1)
    watched = None if at is None else Watched(file=name, etag=etag, seen_at=at)

    assert young == is_young(stored(1, age=age), NOON.isoformat(), 10.0, watched)


# Partition folders


def in_folder(folder: str, *numbers: int) -> dict[int, StoredFile]:
    """Give the files of a partition folder."""
    return {
        number: replace(stored(number), below=f"{folder}/{sequence_name(number)}".lstrip("/"))
        for number in numbers
    }


def test_each_partition_folder_has_its_own_numbers() -> None:
    """One folder after the other; a gap in one does not hold the others."""
    partitions = {
        "p=a": in_folder("p=a", 1, 2),
        "p=b": in_folder("p=b", 4, 6),
        "p=c": in_folder("p=c", 2),
    }

    run = next_run(FolderListing(partitions=partitions, foreign=()), {"p=a": 1, "p=b": 3})

    assert [f"p=a/{sequence_name(2)}", f"p=b/{sequence_name(4)}"] == [
        file.name for _, file in run.files
    ]
    assert f"p=b/{sequence_name(5)}" == run.awaited
    assert "1 other partition folders" in run.gap


def test_the_position_keeps_other_folders() -> None:
    """What is applied counts in the files' own folders, or in all when they have no numbers."""
    before = {"p=a": 1, "p=b": 2}
    files = [*in_folder("p=b", 3).items(), *in_folder("p=c", 1).items()]

    assert {"p=a": 1, "p=b": 3, "p=c": 1} == position_after(before, files, by_time=False)
    assert {"": 2} == position_after({"": 1}, in_folder("p=b", 2).items(), by_time=True)
    assert {"p=a": 1, "p=b": 2} == before


@given(
    st.dictionaries(st.sampled_from(["", "p=a", "p=b/q=c"]), st.integers(0, 5)),
    st.lists(st.sampled_from(["", "p=a", "p=b/q=c"]), max_size=8),
)
def test_the_position_follows_every_folder(before: dict[str, int], partitions: list[str]) -> None:
    """Whatever folders a batch's files lie in, the last number of each counts."""
    at = dict(before)
    files: list[tuple[int, StoredFile]] = []
    for partition in partitions:
        at[partition] = at.get(partition, 0) + 1
        files += in_folder(partition, at[partition]).items()

    assert at == position_after(before, files, by_time=False)
