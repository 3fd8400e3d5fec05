"""What every store promises, whatever is behind it."""

from __future__ import annotations

from typing import Any

import pytest

from mirrorlib.errors import StoreError
from mirrorlib.store import Store


def check_listing_from_a_name(store: Store) -> None:
    """Give a folder's own files after a name, in order, or say that it cannot be done."""
    for name in ("é#1 %20.x", "z", "in/y"):
        store.put(f"d/{name}", b"")

    def names(after: str, **limits: Any) -> list[str] | None:
        found = store.files_after("d", after, **limits)
        return None if found is None else [file.name for file in found]

    if names("") is None:
        assert not store.seeks
        return
    assert ["f", "g", "z", "é#1 %20.x"] == names("e")
    assert [["f", "g"], ["f"], []] == [
        names("e", before="z"),
        names("e", count=1),
        names("é#1 %20.x"),
    ]
    assert [] == (store.files_after("nowhere", "") or [])
    store.delete("d/é#1 %20.x")
    store.delete("d/z")


def check_promises(store: Store) -> None:
    """Put, put-if-absent, move, list in order over several pages, read, delete; the store is empty before."""
    assert (None, None, None) == (store.stat("a"), store.read("a"), store.list_folder("d"))
    store.put("a b/ü#1.json", b"1")
    store.put("a b/ü#1.json", b"22")
    assert b"22" == store.read("a b/ü#1.json")
    assert (False, True) == (store.put_new("a b/ü#1.json", b"3"), store.put_new("n", b"3"))
    found = store.stat("a b/ü#1.json")
    assert found is not None
    assert (2, "ü#1.json") == (found.size, found.name)
    assert (False, False) == (store.move_new("n", "a b/ü#1.json"), store.move_new("none", "x"))
    assert store.move_new("n", "m")
    assert (None, b"3") == (store.read("n"), store.read("m"))
    for name in "gcaebdf":
        store.put(f"d/{name}", b"")
    store.put("d/in/x", b"")
    listed = store.list_folder("d")
    assert listed is not None
    assert (list("abcdefg"), ("in",)) == ([file.name for file in listed.files], listed.folders)
    alone = store.stat("d/a")
    assert alone is not None
    assert alone.etag == listed.files[0].etag
    assert ("a", "b") == store.first_names("d", 2)
    check_listing_from_a_name(store)
    with store.open_new("w") as file:
        file.write(b"12")
        file.write(b"3")
    with store.open_file("w") as file:
        assert b"123" == file.read()
    store.delete("w")
    store.delete("w")
    with pytest.raises(StoreError, match="cannot open"):
        store.open_file("w")
    store.delete_folder("d")
    assert store.list_folder("d") is None
