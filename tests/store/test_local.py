"""What a folder on a disk, or on a mount that is none, shows of its files."""

from __future__ import annotations

import os
import shutil
from datetime import UTC, datetime
from pathlib import Path
from stat import S_IFREG
from types import SimpleNamespace

import pytest

from mirrorlib.errors import StoreError
from mirrorlib.store import LocalStore, StoredFile, copy_file
from mirrorlib.store.local import makes_up_inodes


@pytest.mark.parametrize(
    "kind,made_up",
    [
        ("ext4 /dev/sda1 rw", False),
        ("fuse.blobfuse2 blobfuse2 rw", True),
        ("fuse /dev/fuse rw", True),
        ("fuseblk /dev/sdb1 rw", False),
        ("9p drvfs rw", True),
    ],
)
def test_a_mount_that_makes_inodes_up_is_known_by_its_kind(
    tmp_path: Path, kind: str, made_up: bool
) -> None:
    """As the system tells it; a device that it does not tell has its own."""
    mounts = tmp_path / "mountinfo"
    mounts.write_text(
        f"22 1 8:1 / / rw,relatime shared:1 - xfs /dev/sdc rw\n36 22 0:42 / /data rw - {kind}\n"
    )

    assert made_up is makes_up_inodes(os.makedev(0, 42), str(mounts))
    assert not makes_up_inodes(os.makedev(0, 43), str(mounts))
    assert not makes_up_inodes(os.makedev(0, 42), str(tmp_path / "none"))


@pytest.mark.parametrize("made_up", [False, True])
def test_a_file_is_told_by_its_inode_where_that_lasts(
    tmp_path: Path, made_up: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else by its size and time, which a new inode for the same content does not change."""
    monkeypatch.setattr("mirrorlib.store.local.makes_up_inodes", lambda device: made_up and device)
    store, path = LocalStore(tmp_path), tmp_path / "file"
    path.write_bytes(b"one")
    first = store.stat("file")
    shutil.copy2(path, tmp_path / "copy")
    (tmp_path / "copy").replace(path)
    second = store.stat("file")
    os.utime(path, ns=(0, 0))
    third = store.stat("file")

    assert first is not None
    assert second is not None
    assert third is not None
    assert made_up is (first.etag == second.etag)
    assert second.etag != third.etag


@pytest.mark.parametrize("seconds", [3e11, -1e12, 9.3e18])
def test_a_file_of_a_year_that_no_moment_has_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seconds: float
) -> None:
    """As a disk in memory has it from whoever set its time."""
    (tmp_path / "file").write_bytes(b"one")
    odd = SimpleNamespace(st_mtime=seconds, st_ctime=seconds, st_mtime_ns=1, st_size=3, st_ino=1)
    odd.st_dev, odd.st_mode = 0, S_IFREG

    with monkeypatch.context() as patched:
        patched.setattr(type(tmp_path), "stat", lambda _: odd)
        with pytest.raises(StoreError, match=rf"cannot look at {tmp_path}/file .*out of range"):
            LocalStore(tmp_path).stat("file")


@pytest.mark.parametrize("path", ["../secret", "a/../../secret", "linked", "linked/below", "far/x"])
def test_nothing_outside_is_read(tmp_path: Path, path: str) -> None:
    """By whatever way, nor copied: a path that goes up, a link to a file or a folder; one that stays inside is followed."""
    root = tmp_path / "root"
    (root / "a").mkdir(parents=True)
    (tmp_path / "outside" / "below").mkdir(parents=True)
    for place in (tmp_path / "secret", tmp_path / "outside" / "x", root / "a" / "mine"):
        place.write_text("text")
    (root / "far").symlink_to(tmp_path / "outside")
    (root / "linked").symlink_to(tmp_path / ("outside" if "below" in path else "secret"))
    (root / "near").symlink_to("a")
    store, table = LocalStore(root), LocalStore(tmp_path / "table")

    def copied(path: str) -> bool:
        file = StoredFile(path=path, size=4, modified=datetime.now(UTC), etag="")
        return copy_file(store, file, table, "copy")

    assert b"text" == store.read("near/mine")
    assert copied("near/mine")
    for read in (store.read, store.open_file, copied):
        with pytest.raises(StoreError, match="is a link that leads out of"):
            read(path)
    with pytest.raises(StoreError, match="is a link that leads out of"):
        store.read(str(tmp_path / "secret"))


def test_drafts_go_and_nothing_else(tmp_path: Path) -> None:
    """A folder goes with them where they were all that it had."""
    store = LocalStore(tmp_path)
    store.put("log/below/.draft", b"")
    store.put("log/.draft.tmp", b"")
    store.put("log/more/0.json", b"")
    store.put("left/below/.draft", b"")

    for folder in ("log", "left", "none"):
        store.delete_drafts(folder)

    assert ["log", "log/more", "log/more/0.json"] == sorted(
        str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*")
    )


def test_a_tilde_without_a_home_is_a_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a shell."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", "/home/ada")

    assert [f"{tmp_path}/~nobody-here/a", "/home/ada/a"] == [
        LocalStore(Path(each)).url for each in ("~nobody-here/a", "~/a")
    ]
