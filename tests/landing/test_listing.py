"""Listing a zone finds its table folders and their numbered files, and nothing else."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from mirrorlib.errors import LandingZoneError
from mirrorlib.landing.check.facts import Policy
from mirrorlib.landing.check.folder import review_folder
from mirrorlib.landing.check.report import Findings
from mirrorlib.landing.listing import (
    NOTHING_APPLIED,
    AppliedFiles,
    FolderListing,
    list_tables,
    order_by_number,
    order_by_time,
    see_below,
    see_folder,
)
from mirrorlib.landing.metadata.declared import TableMetadata
from mirrorlib.names import TableName, partition_values, sequence_name
from mirrorlib.store import LocalStore, StoredFile, open_store
from zones import write_at


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Give an empty zone."""
    place = tmp_path / "zone"
    place.mkdir()
    return place


def tables(root: Path) -> list[str]:
    """List a zone's tables by name, refused ones with a mark."""
    found = list_tables(open_store(str(root)))
    return [f"{name}!" if refusal else str(name) for name, refusal in found.items()]


def listed(root: Path, folder: TableName) -> FolderListing:
    """List a folder's numbered files."""
    return order_by_number(see_folder(open_store(str(root)), folder), str(folder))


def files(found: FolderListing) -> dict[int, StoredFile]:
    """Give the files of a table without partition folders."""
    assert found.partitions.keys() <= {""}
    return dict(found.partitions.get("", {}))


def orders(root: Path) -> TableName:
    """Make the folder of a table."""
    (root / "orders").mkdir(exist_ok=True)
    return TableName(None, "orders")


def test_tables_of_both_layouts_are_found(root: Path) -> None:
    """A `.schema` folder holds tables; any other folder is one, dots or not."""
    for folder in (
        "dbo.schema/orders",
        "dbo.schema/a.b",
        "sales.schema/orders",
        "items",
        "mongo.items",
    ):
        (root / folder).mkdir(parents=True)

    assert ["dbo/a.b", "dbo/orders", "items", "mongo.items", "sales/orders"] == tables(root)


def test_ignored_folders_are_no_tables(root: Path) -> None:
    """Names beginning with `_` or `.` belong to publishers, at either level (Q27); one belongs to the disk."""
    for folder in (
        "_scratchPad",
        "_Temp",
        ".state",
        "lost+found",
        "dbo.schema/_scratch",
        "dbo.schema/.x",
        ".schema/t",
        "_a.schema/t",
    ):
        (root / folder).mkdir(parents=True)
    (root / "_partnerEvents.json").write_text("{}")
    (root / "readme.txt").write_text("not a table")

    assert [] == tables(root)


def test_an_empty_zone_has_no_tables(root: Path) -> None:
    """That is no error: the publisher has not begun."""
    assert [] == tables(root)


def test_a_schema_folder_that_cannot_be_listed_hides_no_other(
    root: Path, close_folder: Callable[[str], None]
) -> None:
    """It is refused under its own name, and collides with nothing."""
    for folder in ("closed.schema/orders", "dbo.schema/orders", "closed", "items"):
        (root / folder).mkdir(parents=True)
    assert ["closed!", "closed/orders!", "dbo/orders", "items"] == tables(root)
    close_folder("closed.schema")
    assert ["closed", "closed/*!", "dbo/orders", "items"] == tables(root)


def test_a_missing_zone_is_an_error(root: Path) -> None:
    """A mistyped path must not look like a zone without tables."""
    with pytest.raises(LandingZoneError, match="there is no landing zone"):
        tables(root / "zoen")


def test_a_file_is_no_zone(root: Path) -> None:
    """Nor is a path that names a file."""
    (root / "file").write_text("")

    with pytest.raises(LandingZoneError, match="there is no landing zone"):
        tables(root / "file")


def test_conflicting_tables_are_refused_and_their_neighbours_are_not(root: Path) -> None:
    """Tables that differ by case only, or lie one inside the other in the target."""
    for folder in ("dbo.schema/orders", "dbo.schema/Orders", "x", "x.schema/y", "free"):
        (root / folder).mkdir(parents=True)

    assert ["dbo/Orders!", "dbo/orders!", "free", "x!", "x/y!"] == sorted(tables(root))


def test_names_that_no_store_can_carry_are_refused_alone(root: Path) -> None:
    """Control characters, backslashes and broken UTF-8 stop their own table only."""
    for name in (b"good", b"new\nline", b"back\\slash", b"bad\xff"):
        os.mkdir(os.path.join(os.fsencode(root), name))  # noqa: PTH102, PTH118  # bytes, not text

    found = list_tables(open_store(str(root)))

    assert ["good"] == [str(name) for name, refusal in found.items() if refusal is None]
    refusals = [str(refusal) for refusal in found.values() if refusal]
    assert 3 == sum(refusal.isprintable() for refusal in refusals) == len(refusals)


def test_change_files_are_found_in_numerical_order(root: Path) -> None:
    """Whatever order the store lists in."""
    folder = orders(root)
    for number in (10, 9, 2, 1):
        (root / "orders" / sequence_name(number)).write_bytes(b"x" * number)

    listing = listed(root, folder)

    assert [1, 2, 9, 10] == list(files(listing))
    assert [1, 2, 9, 10] == [file.size for file in files(listing).values()]


@pytest.mark.parametrize(
    "name",
    [
        "_00000000000000000001.parquet",
        "_00000000000000000001.parquet_TEMP",
        "_00000000000000000001.parquet.temp",
        ".00000000000000000001.parquet",
        ".DS_Store",
        "_SUCCESS",
        "_state.pkl",
        "_partnerEvents.json",
    ],
)
def test_ignored_files_are_not_even_foreign(root: Path, name: str) -> None:
    """Temporary names and publishers' own files are left alone without a word (Q27)."""
    folder = orders(root)
    (root / "orders" / name).write_bytes(b"x")

    listing = listed(root, folder)

    assert ({}, ()) == (files(listing), listing.foreign)


@pytest.mark.parametrize(
    "name",
    [
        "1.parquet",
        "0000000000000000001.parquet",
        "000000000000000000001.parquet",
        "00000000000000000001",
        "00000000000000000001.parquet.temp",
        "00000000000000000001.parquet#123",
        "0000000000000000000a.parquet",
        "٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠١.parquet",
        "8f14e45f-ceea-467f-a0e6-1a2b3c4d5e6f.parquet",
        "_current_timestamp.json"[1:],
        "00000000000000000000.parquet",
    ],
)
def test_other_files_are_foreign(root: Path, name: str) -> None:
    """They are named, so that a publisher who cannot count finds out; numbers begin at 1."""
    folder = orders(root)
    (root / "orders" / name).write_bytes(b"x")

    listing = listed(root, folder)

    assert ({}, (name,)) == (files(listing), listing.foreign)


def test_a_folder_named_like_a_change_file_is_none(root: Path) -> None:
    """Spark writes folders of that kind."""
    folder = orders(root)
    (root / "orders" / sequence_name(1)).mkdir()

    assert {} == files(listed(root, folder))


def test_the_metadata_file_is_found(root: Path) -> None:
    """By its exact name; while it is absent there is none."""
    folder = orders(root)
    assert see_folder(open_store(str(root)), folder).metadata is None

    (root / "orders" / "_metadata.json").write_text("{}")

    metadata = see_folder(open_store(str(root)), folder).metadata
    assert metadata is not None
    assert "orders/_metadata.json" == metadata.path


def test_two_files_of_one_number_are_told_and_hide_no_other(root: Path) -> None:
    """Nobody can say which one is meant; the one that came first is the one that may have been applied."""
    folder = orders(root)
    for second, (number, extension) in enumerate(
        ((1, "parquet"), (2, "PARQUET"), (2, "parquet"), (3, "parquet"))
    ):
        write(root, sequence_name(number, extension), second)

    found = order_by_number(see_folder(open_store(str(root)), folder), "orders", ("parquet",))

    assert [1, 2, 3] == list(files(found))
    assert (sequence_name(2, "PARQUET"), (sequence_name(2),)) == (
        files(found)[2].name,
        found.foreign,
    )
    assert [sequence_name(2, "PARQUET")] == list(found.doubled)
    told = str(found.doubled[sequence_name(2, "PARQUET")])
    assert "two change files carry the sequence number 2" in told
    assert f"{sequence_name(2, 'PARQUET')} and {sequence_name(2)}" in told


def test_a_number_with_another_extension_is_foreign(root: Path) -> None:
    """A checksum or an upload under way beside a change file is none; case means nothing."""
    folder = orders(root)
    for extension in ("Parquet", "md5", "tmp", "csv", "parquet2"):
        (root / "orders" / sequence_name(1, extension)).write_bytes(b"x")

    found = order_by_number(see_folder(open_store(str(root)), folder), "orders", ("parquet",))

    assert {1: sequence_name(1, "Parquet")} == {n: file.name for n, file in files(found).items()}
    others = {sequence_name(1, extension) for extension in ("md5", "tmp", "csv", "parquet2")}
    assert (others, {}) == (set(found.foreign), dict(found.doubled))


def test_a_folder_that_is_gone_shows_nothing(root: Path) -> None:
    """It may be deleted between two listings (Q33)."""
    gone = see_folder(open_store(str(root)), TableName(None, "gone"))

    assert (None, ()) == (gone.metadata, gone.files)


def test_a_dangling_link_does_not_hide_its_neighbours(root: Path) -> None:
    """One odd entry must not fail the listing of a whole zone."""
    folder = orders(root)
    (root / "orders" / sequence_name(1)).write_bytes(b"x")
    (root / "orders" / sequence_name(2)).symlink_to(root / "nowhere")
    (root / "loop").symlink_to(root / "loop")

    assert [1] == list(files(listed(root, folder)))
    assert ["orders"] == tables(root)


def test_replacing_a_file_changes_its_identity(root: Path) -> None:
    """Even by one of the same size."""
    store = LocalStore(root)
    (root / "a").write_bytes(b"1")
    before = store.stat("a")
    (root / "b").write_bytes(b"2")
    (root / "b").replace(root / "a")
    after = store.stat("a")

    assert before is not None
    assert after is not None
    assert before.size == after.size
    assert before.etag != after.etag


# Files without numbers


def by_time(
    root: Path, folder: TableName, applied: AppliedFiles = NOTHING_APPLIED
) -> FolderListing:
    """List a folder's Parquet files by when they were written."""
    return order_by_time(see_folder(open_store(str(root)), folder), (".parquet",), applied)


def write(root: Path, name: str, second: float) -> Path:
    """Write a file of a table at a second of the past."""
    path = root / "orders" / name
    path.write_bytes(b"x")
    return write_at(path, second)


def names(found: FolderListing) -> list[tuple[int, str]]:
    """Give numbers and names."""
    return [(number, file.name) for number, file in files(found).items()]


def test_files_without_numbers_come_in_the_order_of_writing(root: Path) -> None:
    """Whatever they are called; of one moment's files the name decides."""
    folder = orders(root)
    for name, second in (("b.parquet", 2), ("c.parquet", 1), ("A.PARQUET", 2), ("a.parquet", 2)):
        write(root, name, second)

    found = names(by_time(root, folder))

    assert [(1, "c.parquet"), (2, "A.PARQUET"), (3, "a.parquet"), (4, "b.parquet")] == found


def test_what_is_no_data_is_left_alone_by_time_too(root: Path) -> None:
    """Metadata, temporary names, and files of another kind beside the data."""
    folder = orders(root)
    for name in ("_metadata.json", "_x.parquet", ".x.parquet", "x.parquet.temp", "x.csv", "x"):
        write(root, name, 1)

    found = by_time(root, folder)

    assert ({}, ("x", "x.csv", "x.parquet.temp")) == (files(found), found.foreign)


def test_an_applied_file_is_known_by_its_name(root: Path) -> None:
    """New content under it is told; an older file that nobody has seen is new, and late."""
    folder = orders(root)
    for name, second in (("same.parquet", 5), ("other.parquet", 6)):
        write(root, name, second)
    seen = see_folder(open_store(str(root)), folder).files
    etags = {file.name: file.etag for file in seen} | {"gone.parquet": "e"}
    applied = AppliedFiles(etags=etags, newest=max(file.modified for file in seen), count=3)
    write(root, "other.parquet", 9)
    write(root, "late.parquet", 1)
    write(root, "new.parquet", 8)

    found = by_time(root, folder, applied)

    assert [(4, "late.parquet"), (5, "new.parquet")] == [
        pair for pair in names(found) if pair[0] > 3
    ]  # applied
    assert (("other.parquet",), 1) == (found.changed, found.late)


# Partition folders


def test_partition_folders_are_seen_at_any_depth(root: Path) -> None:
    """Each numbers its own files; folders that are ignored or no partition are not looked into."""
    folder = orders(root)
    for place in (
        "Region=eu/Day=1",
        "Region=eu/Day=2",
        "Region=us",
        "_x=1",
        "plain",
        "Region=eu/_t=1",
    ):
        (root / "orders" / place).mkdir(parents=True)
        for name in (sequence_name(1), sequence_name(2), "_draft", "notes.txt"):
            (root / "orders" / place / name).write_bytes(b"x")
    store = open_store(str(root))

    seen = see_below(store, folder, see_folder(store, folder), plain=False)
    found = order_by_number(seen, "orders")

    assert ["Region=eu/Day=1", "Region=eu/Day=2", "Region=us"] == list(found.partitions)
    assert [[1, 2]] * 3 == [list(numbered) for numbered in found.partitions.values()]
    assert f"Region=us/{sequence_name(2)}" == found.partitions["Region=us"][2].name
    assert f"orders/Region=us/{sequence_name(2)}" == found.partitions["Region=us"][2].path
    assert {"Region=us/notes.txt"} < set(found.foreign)


def test_partition_folders_that_are_links_are_named_and_not_followed(root: Path) -> None:
    """Else each row counts under every path that leads to it; in a circle, dozens of times."""
    folder, table = orders(root), root / "orders"
    (table / "day=1" / "hour=1").mkdir(parents=True)
    for place in ("day=1", "day=1/hour=1"):
        (table / place / sequence_name(1)).write_bytes(b"x")
    (table / "day=latest").symlink_to("day=1")
    (table / "day=1" / "loop=1").symlink_to(".")
    (table / "old").symlink_to("day=1")
    store = open_store(str(root))

    bare = see_folder(store, folder)
    seen = see_below(store, folder, bare, plain=False)
    found, timed = (
        order_by_number(seen, "orders"),
        order_by_time(seen, (".parquet",), NOTHING_APPLIED),
    )

    assert ["day=1", "day=1/hour=1"] == list(found.partitions)
    assert (2, 2) == (found.count, timed.count)
    assert {"day=latest", "day=1/loop=1"} == set(found.foreign) == set(timed.foreign)
    assert ("old",) == found.unread
    # Of a table without partition folders they are folders like others.
    assert () == order_by_number(bare, "orders").foreign
    metadata = TableMetadata(partitioned=True)
    policy = Policy(table="orders", metadata=metadata, dialect=None, deep=False)
    findings = Findings("orders")
    reviewed = review_folder(seen, policy, findings)
    assert [f"{place}/{sequence_name(1)}" for place in ("day=1", "day=1/hour=1")] == [
        file.name for file in reviewed
    ]
    assert [("foreign-folder", "a link", 2)] == [
        (one.rule, one.found, one.more) for one in findings.all()
    ]


@pytest.mark.parametrize(
    "name, values",
    [
        ("1.parquet", {}),
        ("Region=eu/Day=2026-01-28/1.parquet", {"Region": "eu", "Day": "2026-01-28"}),
        ("a=b%2Fc%20d/1.parquet", {"a": "b/c d"}),
        ("a=/1.parquet", {"a": ""}),
        ("a==/1.parquet", {"a": "="}),
        ("a%3Db=c/1.parquet", {"a=b": "c"}),
        ("=w/a=1/==/1.parquet", {"a": "1"}),
        ("a=%FF%C3%BC/1.parquet", {"a": "\udcffü"}),
        ("a=__HIVE_DEFAULT_PARTITION__/1.parquet", {"a": None}),
    ],
)
def test_partition_folders_state_columns(name: str, values: dict[str, str | None]) -> None:
    """Escaped as Hive and Spark do."""
    assert values == partition_values(name)
