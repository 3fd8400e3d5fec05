"""What mirrorlib asks of a place that holds files, and what such a place shows of them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import BinaryIO, Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredFile:
    """A file as a listing shows it.

    Attributes:
        path: relative to the store's root.
        size: bytes.
        modified: aware UTC.
        etag: what the store says identifies this content; changes when the file is replaced.
        below: the path below its table's folder, where that is more than one segment.
        placed: when it came to its place, aware UTC, where that is told apart from when it was written: a file that
            is moved or copied on a disk keeps its time.

    """

    path: str
    size: int
    modified: datetime
    etag: str
    below: str = ""
    placed: datetime | None = None

    @property
    def name(self) -> str:
        """Return what its table knows the file by: its path below the table's folder."""
        return self.below or self.path.rpartition("/")[2]


@dataclass(frozen=True, slots=True, kw_only=True)
class Folder:
    """One level of a listing: the names of its folders and its files, each sorted by name.

    Attributes:
        folders: the names of its folders.
        files: its files.
        links: those of the folders that are links to a folder somewhere else, or to one above.

    """

    folders: tuple[str, ...]
    files: tuple[StoredFile, ...]
    links: tuple[str, ...] = ()


class Store(Protocol):
    """What mirrorlib asks of a place that holds files. All paths are relative to `url`; `""` is the root."""

    @property
    def url(self) -> str:
        """Return the root, as recorded in the journal."""

    def list_folder(self, folder: str) -> Folder | None:
        """List one level, sorted by name; None when there is no such folder."""

    @property
    def seeks(self) -> bool:
        """Say whether `files_after` costs what it gives, not what the folder holds."""

    def files_after(
        self, folder: str, name: str, *, before: str = "", count: int | None = None
    ) -> tuple[StoredFile, ...] | None:
        """List a folder's own files whose names sort after *name* and before *before*, in order.

        *count* is how many are asked for; None is all. None comes back from a store that does not list
        from a name on, or whose listing shows that it did not.
        """

    def first_names(self, folder: str, count: int) -> tuple[str, ...]:
        """Return the first *count* file names of a folder in byte order, listing no more where the store can."""

    def stat(self, path: str) -> StoredFile | None:
        """Return the file at *path*, None when there is none."""

    def read(self, path: str, *, most: int | None = None) -> bytes | None:
        """Return the whole file, None when there is none; one of more than *most* bytes is refused, unread."""

    def open_file(self, path: str) -> BinaryIO:
        """Open the file at *path* for reading at random places."""

    def open_new(self, path: str) -> BinaryIO:
        """Open a file for writing piece by piece; what it holds counts only once it is closed."""

    def put(self, path: str, data: bytes) -> None:
        """Write the file, replacing what is there as a whole."""

    def put_new(self, path: str, data: bytes) -> bool:
        """Write the file unless there is one already; False when there was.

        The one that was there may be this very call's: a store that repeats a call whose answer was
        lost meets its own file. Who has to know looks at what is there.
        """

    def move_new(self, source: str, target: str, data: bytes | None = None) -> bool:
        """Give a file another name unless that is taken; False when it is, or when there is no such file.

        *data* is what the file holds, when that is at hand: not every store can rename.
        """

    def move(self, source: str, target: str) -> None:
        """Give a file another name, replacing what is there; a crash in between leaves both, never neither."""

    def copy(self, source: str, target: str) -> bool:
        """Let the store itself copy a file, to the disk; False where it cannot."""

    def delete(self, path: str) -> None:
        """Remove the file; nothing happens when there is none."""

    def delete_folder(self, folder: str) -> None:
        """Remove a folder with all that is in it; nothing happens when there is none."""

    def uri(self, path: str) -> str:
        """Return what Spark has to be told to read the same file or folder."""
