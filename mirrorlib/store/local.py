"""Files below a local folder.

The listing is ours, not obstore's: its local store omits names such as ``x.parquet#123`` and fails
a whole listing on one odd name.
"""

from __future__ import annotations

import contextlib
import errno
import heapq
import itertools
import os
import secrets
import shutil
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from stat import S_ISREG
from typing import BinaryIO

from mirrorlib.errors import StoreError
from mirrorlib.store.protocol import (
    Folder,
    Store,
    StoredFile,
    check_size,
    translated,
    translated_file,
)

# Not "fuseblk": NTFS has them.
_MADE_UP = frozenset({"fuse", "vfat", "exfat", "msdos", "9p", "cifs", "smb3"})
_NOT_THERE = (FileNotFoundError, NotADirectoryError)
_NO_FILE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)


class LocalStore(Store):
    """Files below a local folder, FUSE mounts included; put-if-absent by a hard link, as POSIX makes it atomic."""

    def __init__(self, root: Path) -> None:
        """Take *root* as it is; it need not exist yet."""
        self._root = Path(os.path.abspath(os.path.expanduser(root)))  # noqa: PTH100, PTH111  # others follow links, or raise
        self.url = str(self._root)

    def list_folder(self, folder: str) -> Folder | None:
        """List one level with one system call per file, sorted by name."""
        with translated("list", self._path(folder)):
            if (found := self._entries(folder)) is None:
                return None
            folders = [entry for entry in found if _is_folder(entry)]
            return Folder(
                folders=tuple(entry.name for entry in folders),
                files=tuple(self._files(folder, found)),
                links=tuple(entry.name for entry in folders if entry.is_symlink()),
            )

    def files_after(
        self, folder: str, name: str, *, before: str = "", count: int | None = None
    ) -> tuple[StoredFile, ...]:
        """Read all names, as a disk gives no fewer; look only at the files that are asked for."""
        with translated("list", self._path(folder)):
            found = self._entries(folder, name, before) or ()
            return tuple(itertools.islice(self._files(folder, found), count))

    def first_names(self, folder: str, count: int) -> tuple[str, ...]:
        """Pick the smallest names; drafts of `put` are left out."""
        with translated("list", self._path(folder)), contextlib.suppress(*_NOT_THERE):
            names = os.listdir(self._path(folder))  # noqa: PTH208  # names only, thousands of them
            return tuple(heapq.nsmallest(count, (one for one in names if one[0] != ".")))
        return ()

    def stat(self, path: str) -> StoredFile | None:
        """Return the file's size, time and identity."""
        return self._stored(path, self._path(path))

    def read(self, path: str, *, most: int | None = None) -> bytes | None:
        """Return the whole file, None when there is none."""
        with translated("read", self._path(path)), contextlib.suppress(*_NOT_THERE):
            if most is not None:  # somebody else writes it, and may have put a device there
                if (found := self.stat(path)) is None:
                    return None
                check_size(found.size, most, self._path(path))
            return self._inside(path).read_bytes()
        return None

    def open_file(self, path: str) -> BinaryIO:
        """Open the file; the operating system reads what is asked for."""
        with translated("open", self._path(path)):
            return translated_file(self._inside(path).open("rb"), "read", self._path(path))

    def open_new(self, path: str) -> BinaryIO:
        """Open the file itself: only its writer knows its name before it is closed."""
        with self._writing(path) as place:
            return place.open("wb")

    def put(self, path: str, data: bytes) -> None:
        """Write beside, flush, rename."""
        with self._written(path, data) as draft:
            draft.replace(self._path(path))

    def put_new(self, path: str, data: bytes) -> bool:
        """Write beside, flush, link: the link is made only where no name is."""
        with self._written(path, data) as draft, contextlib.suppress(FileExistsError):
            os.link(draft, self._path(path))
            return True
        return False

    def move_new(self, source: str, target: str, data: bytes | None = None) -> bool:
        """Link the new name, then remove the old one; a crash in between leaves both."""
        del data
        with self._writing(target) as new:
            try:
                os.link(self._path(source), new)
            except (FileExistsError, FileNotFoundError):
                return False
            _flush_folder(new.parent)
            self._path(source).unlink(missing_ok=True)
            return True

    def move(self, source: str, target: str) -> None:
        """Rename the file, in one step."""
        with self._writing(target) as new:
            self._path(source).replace(new)

    def copy_from(self, other: LocalStore, source: str, target: str) -> bool:
        """Copy a file of another folder, by the operating system's own means; it is as safe as what Spark writes."""
        with self._writing(target) as new:
            shutil.copyfile(other._inside(source), new)
        return True

    def delete(self, path: str) -> None:
        """Remove the file; nothing happens when there is none."""
        with translated("delete", self._path(path)):
            self._path(path).unlink(missing_ok=True)

    def delete_folder(self, folder: str) -> None:
        """Remove the tree."""
        with translated("delete", self._path(folder)), contextlib.suppress(FileNotFoundError):
            shutil.rmtree(self._path(folder))

    def delete_drafts(self, folder: str) -> None:
        """Remove the drafts in a tree, whose names begin with a dot, and each folder that has nothing else."""
        for place, _, names in os.walk(self._inside(folder), topdown=False):
            with translated("delete", place):
                for name in names:
                    if name.startswith("."):
                        Path(place, name).unlink(missing_ok=True)
            with contextlib.suppress(OSError):
                Path(place).rmdir()

    def uri(self, path: str) -> str:
        """Return the absolute path: Hadoop takes it literally, while a `file:` URL would be decoded."""
        return str(self._path(path))

    def _path(self, path: str) -> Path:
        return self._root / path

    def _inside(self, path: str) -> Path:
        """See that no link leads out: who may write here need not be who may read the rest of the disk."""
        place, parts = self._path(path), path.split("/")
        below = itertools.accumulate(parts, "{}/{}".format)
        plain = not {"", "..", "."} & {*parts}  # an absolute path would begin somewhere else
        if plain and not any(os.path.islink(f"{self._root}/{each}") for each in below):  # noqa: PTH114
            return place  # to resolve both would be most of what reading a small file takes
        real, root = (os.path.realpath(each) for each in (place, self._root))
        if not Path(real).is_relative_to(root):
            msg = f"{place} is a link that leads out of {self._root}, and is not followed"
            step = "Put the file itself there, or mount its folder there."
            raise StoreError(msg, found=real, next_step=step)
        return place

    @contextlib.contextmanager
    def _writing(self, path: str) -> Iterator[Path]:
        place = self._path(path)
        with translated("write", place):
            place.parent.mkdir(parents=True, exist_ok=True)
            yield place

    @contextlib.contextmanager
    def _written(self, path: str, data: bytes) -> Iterator[Path]:
        with self._writing(path) as final:
            draft = final.with_name(f".{secrets.token_hex(8)}.tmp")
            try:
                with draft.open("xb") as file:
                    file.write(data)
                    file.flush()
                    os.fsync(file.fileno())
                yield draft
            finally:
                draft.unlink(missing_ok=True)
            _flush_folder(final.parent)

    def _entries(
        self, folder: str, after: str = "", before: str = ""
    ) -> list[os.DirEntry[str]] | None:
        """Give what a folder has between two names, sorted by name; None where it is none."""
        with contextlib.suppress(*_NOT_THERE), os.scandir(self._path(folder)) as entries:
            found = [e for e in entries if e.name > after and (not before or e.name < before)]
            return sorted(found, key=lambda entry: entry.name)
        return None

    def _files(self, folder: str, entries: Iterable[os.DirEntry[str]]) -> Iterator[StoredFile]:
        """Look at those of a folder's entries that are files."""
        for entry in entries:
            if not _is_folder(entry):
                file = self._stored(f"{folder}/{entry.name}".lstrip("/"), entry)
                if file is not None:
                    yield file

    def _stored(self, path: str, entry: os.DirEntry[str] | Path) -> StoredFile | None:
        with translated("look at", entry):
            try:
                stat = entry.stat()
            except OSError as exc:
                if exc.errno in _NO_FILE:  # removed since it was listed, or a link to nowhere
                    return None
                raise
            if not S_ISREG(stat.st_mode):  # a device or a pipe has no end
                return None
            # Its inode tells a file that was replaced by one of the same size and time.
            inode = 0 if makes_up_inodes(stat.st_dev) else stat.st_ino
            return StoredFile(
                path=path,
                size=stat.st_size,
                modified=datetime.fromtimestamp(stat.st_mtime, UTC),
                etag=f"{inode:x}-{stat.st_mtime_ns:x}-{stat.st_size:x}",
                placed=datetime.fromtimestamp(stat.st_ctime, UTC),
            )


@lru_cache
def makes_up_inodes(device: int, mounts: str = "/proc/self/mountinfo") -> bool:
    """Say whether files of a device get another inode when the system has forgotten them; no where nobody tells."""
    number = f"{os.major(device)}:{os.minor(device)}"
    with contextlib.suppress(OSError):
        for line in Path(mounts).read_text(errors="replace").splitlines():
            # Fields are named in proc_pid_mountinfo(5); how many there are before " - " varies.
            mount, _, kind = line.partition(" - ")
            if mount.split(" ")[2] == number:
                return kind.partition(" ")[0].partition(".")[0] in _MADE_UP
    return False


def _is_folder(entry: os.DirEntry[str]) -> bool:
    """Say whether an entry is a folder; a link in a circle is none, and no reason to list nothing."""
    try:
        return entry.is_dir()
    except OSError:
        return False


def _flush_folder(folder: Path) -> None:
    """Make a rename or link survive a power cut; not every mount lets a folder be flushed."""
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
