"""Plain folders: every file below a table's folder counts once, by its path, in the order of writing."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from mirrorlib.landing.listing import (
    AppliedFiles,
    FolderContent,
    FolderListing,
    see_below,
    see_folder,
)
from mirrorlib.landing.plain import kind_of, order_plain
from mirrorlib.names import TableName
from mirrorlib.store import LocalStore, StoredFile
from zones import write_at

FOLDER = TableName(None, "t")


def names(listing: FolderListing) -> list[str]:
    """Give the files that are listed, in order."""
    return [file.name for partition in listing.partitions.values() for file in partition.values()]


def new(listing: FolderListing, applied: dict[str, str]) -> list[str]:
    """Give the files that are not applied: their numbers go on from those that are."""
    (partition,) = listing.partitions.values()
    return [file.name for number, file in partition.items() if number > len(applied)]


def stored(name: str, second: int, etag: str = "e") -> StoredFile:
    """Give a file's listing."""
    modified = datetime.fromtimestamp(second, UTC)
    return StoredFile(path=f"t/{name}", size=1, modified=modified, etag=etag, below=name)


def order(
    files: list[StoredFile], applied: dict[str, str], passed: dict[str, str], *, overwrites: bool
) -> tuple[FolderListing, list[str]]:
    """Order files; what was applied was written at second 5."""
    history = AppliedFiles(etags=applied, newest=datetime.fromtimestamp(5, UTC), count=len(applied))
    seen = FolderContent(metadata=None, files=tuple(files))
    listing, left = order_plain(seen, history, passed, overwrites=overwrites)
    return listing, [file.name for file in left]


def test_files_at_every_level_come_in_the_order_of_writing(tmp_path: Path) -> None:
    """Dates and numbers in names say nothing; what begins with _ or . is ignored wherever it is."""
    published = {
        "LOAD00000002.csv": 1,
        "2021/12/02/a.json.gz": 2,
        "2021/12/01/a.ndjson": 4,
        "year=2021/month=12/b.snappy.parquet": 3,
        "LOAD00000001.CSV.zst": 3,
        "_temporary/a.csv": 9,
        "2021/_SUCCESS": 9,
        "2021/.a.csv.crc": 9,
        "2021/_drafts/deep/a.csv": 9,
        "notes.txt": 9,
        "2021/a.tsv": 9,
    }
    for name, second in published.items():
        path = tmp_path / "t" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x")
        write_at(path, second)
    store = LocalStore(tmp_path)
    seen = see_below(store, FOLDER, see_folder(store, FOLDER), plain=True)

    listing, _ = order_plain(
        seen, AppliedFiles(etags={}, newest=None, count=0), {}, overwrites=False
    )

    assert [
        "LOAD00000002.csv",
        "2021/12/02/a.json.gz",
        "LOAD00000001.CSV.zst",
        "year=2021/month=12/b.snappy.parquet",
        "2021/12/01/a.ndjson",
    ] == names(listing)
    assert {"notes.txt", "2021/a.tsv"} == set(listing.foreign)


def test_linked_folders_are_named_and_not_followed(tmp_path: Path) -> None:
    """Else a row counts under every path that leads to it; the table's own folder may be a link."""
    (tmp_path / "elsewhere" / "deep").mkdir(parents=True)
    (tmp_path / "elsewhere" / "deep" / "a.json").write_text("{}")
    (tmp_path / "apart").mkdir()
    (tmp_path / "elsewhere" / "deep" / "far").symlink_to(tmp_path / "apart")
    (tmp_path / "elsewhere" / "loop").symlink_to(".")
    (tmp_path / "elsewhere" / "_old").symlink_to("deep")
    (tmp_path / "t").symlink_to("elsewhere")
    store = LocalStore(tmp_path)

    seen = see_below(store, FOLDER, see_folder(store, FOLDER), plain=True)
    listing, _ = order_plain(
        seen, AppliedFiles(etags={}, newest=None, count=0), {}, overwrites=False
    )

    assert ["deep/a.json"] == names(listing)
    assert ("loop", "deep/far") == listing.foreign


@pytest.mark.parametrize(
    "name, kind",
    [
        ("a.parquet", "parquet"),
        ("A.Snappy.PARQUET", "parquet"),
        ("a.csv", "delimited"),
        ("a.csv.gz", "delimited"),
        ("2021.json/a.csv.zst", "delimited"),
        ("a.json", "lines"),
        ("a.jsonl.gz", "lines"),
        ("a.ndjson", "lines"),
    ],
)
def test_the_name_tells_the_format(name: str, kind: str) -> None:
    """By its ending, in any case, with a compression's behind it or not."""
    assert kind == kind_of(name)


def test_an_applied_path_counts_once_unless_overwrites_do() -> None:
    """A late file in an old folder is new; one that has changed is told, or is new as well."""
    files = [stored("old/a.csv", 1), stored("old/late.csv", 2), stored("b.csv", 6, "other")]
    applied = {"old/a.csv": "e", "b.csv": "e", "gone.csv": "e"}

    once, _ = order(files, applied, {}, overwrites=False)
    again, _ = order(files, applied, {}, overwrites=True)

    assert ["old/late.csv"] == new(once, applied)
    assert (("b.csv",), 1) == (once.changed, once.late)
    assert ["old/late.csv", "b.csv"] == new(again, applied)
    assert () == again.changed


def test_what_was_there_at_first_sight_is_passed_over_until_it_is_overwritten() -> None:
    """Whether that counts is asked each time; what was applied since is as applied as any."""
    files = [stored("a.csv", 1), stored("b.csv", 2, "other"), stored("c.csv", 3)]
    passed = {"a.csv": "e", "b.csv": "e"}

    listing, left = order(files, {}, passed, overwrites=False)
    assert (["c.csv"], ["a.csv", "b.csv"]) == (names(listing), left)

    listing, left = order(files, {}, passed, overwrites=True)
    assert (["b.csv", "c.csv"], ["a.csv"]) == (names(listing), left)

    listing, left = order(files, {"b.csv": "other"}, passed, overwrites=False)
    assert (["c.csv"], ["a.csv"]) == (new(listing, {"b.csv": "other"}), left)
