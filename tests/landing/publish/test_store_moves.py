"""Moving a file to a name that is free: what publishing rests on, on every kind of store."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from mirrorlib.errors import LandingZoneError, StoreError
from mirrorlib.store import LocalStore, Store, open_store
from publishing import stores


@pytest.fixture(params=list(stores()))
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    """Give an empty store of each kind."""
    return stores()[request.param](tmp_path)


@pytest.mark.parametrize("data", [None, b"content"], ids=["alone", "with its content"])
def test_a_file_moves_to_a_free_name(store: Store, data: bytes | None) -> None:
    """Into a folder that is not there yet; the old name is gone."""
    store.put("_staged/x", b"content")

    assert store.move_new("_staged/x", "a=1/file", data)

    assert (None, b"content") == (store.read("_staged/x"), store.read("a=1/file"))


def test_a_file_moves_over_no_other(store: Store) -> None:
    """Both stay as they are."""
    store.put("x", b"new")
    store.put("file", b"old")

    assert not store.move_new("x", "file")

    assert (b"new", b"old") == (store.read("x"), store.read("file"))


def test_a_file_that_is_not_there_does_not_move(store: Store) -> None:
    """Another has moved it already."""
    assert not store.move_new("x", "file")
    assert store.read("file") is None


def test_of_many_movers_one_moves(store: Store) -> None:
    """To one name, from many."""
    for number in range(16):
        store.put(f"{number}", f"{number}".encode())

    with ThreadPoolExecutor(8) as pool:
        moved = list(pool.map(lambda number: store.move_new(f"{number}", "file"), range(16)))

    assert 1 == sum(moved)
    assert f"{moved.index(True)}".encode() == store.read("file")


def test_a_place_that_takes_nothing_is_told(tmp_path: Path) -> None:
    """A file where a folder has to be."""
    store = LocalStore(tmp_path)
    store.put("x", b"1")
    store.put("file", b"1")

    with pytest.raises(StoreError, match="cannot write"):
        store.move_new("x", "file/inside")


def test_options_reach_the_object_store() -> None:
    """Credentials and endpoint, as obstore names them; an unknown one is refused."""
    given = {"aws_access_key_id": "a", "aws_secret_access_key": "b", "aws_region": "eu-west-1"}

    assert "s3://bucket/zone" == open_store("s3://bucket/zone", given).url
    with pytest.raises(LandingZoneError, match="cannot open"):
        open_store("s3://bucket/zone", {"no_such_option": "x"})


@pytest.mark.parametrize(
    "url",
    [
        "abfss://workspace@onelake.dfs.fabric.microsoft.com/db.MountedRelationalDatabase/Files/LandingZone",
        "abfss://container@account.dfs.core.windows.net/zone",
    ],
)
def test_azure_and_onelake_are_opened_by_their_urls(url: str) -> None:
    """With a token that the caller brings."""
    assert url == open_store(url, {"azure_storage_token": "t"}).url
