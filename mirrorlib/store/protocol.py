"""What mirrorlib asks of a place that holds files, what such a place shows of them, and how it says that it failed."""

from __future__ import annotations

import contextlib
import errno
import io
import os
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, BinaryIO, Literal, Protocol, cast

from obstore.exceptions import BaseError

from mirrorlib.errors import StoreError, first_line

if TYPE_CHECKING:
    from typing_extensions import Buffer

_NO_LINKS = {errno.EPERM, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP}  # by file system
_LONGEST = 600  # characters: what was asked of whom, how often, and the answer
# Of a server's answer, only this: others of its elements echo the session token that was sent.
_ANSWER = re.compile(
    r": \ufeff?<.*?<Code>(.*?)</Code>(?:\s*<Message>(.*?)</Message>)?.*", re.DOTALL
)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredFile:
    """A file as a listing shows it."""

    path: str  # relative to the store's root
    size: int  # bytes
    modified: datetime  # aware UTC
    etag: str  # what the store says identifies this content; changes when the file is replaced
    below: str = ""  # the path below its table's folder, where that is more than one segment
    # When it came to its place, aware UTC, where that is told apart from when it was written: a file that is moved or
    # copied on a disk keeps its time.
    placed: datetime | None = None

    @property
    def name(self) -> str:
        """Return what its table knows the file by: its path below the table's folder."""
        return self.below or self.path.rpartition("/")[2]


@dataclass(frozen=True, slots=True, kw_only=True)
class Folder:
    """One level of a listing: the names of its folders and its files, each sorted by name.

    The *links* are those of the folders that are links to a folder somewhere else, or to one above.
    """

    folders: tuple[str, ...]
    files: tuple[StoredFile, ...]
    links: tuple[str, ...] = ()


class Store(Protocol):
    """What mirrorlib asks of a place that holds files. All paths are relative to `url`; `""` is the root."""

    url: str  # the root, without a slash at its end, as recorded in the journal
    seeks: bool = False  # whether `files_after` costs what it gives, not what the folder holds
    at_once: int = 1  # files to open at one time: many where its answers are waited for

    def list_folder(self, folder: str) -> Folder | None:
        """List one level, sorted by name; None when there is no such folder."""

    def files_after(
        self, folder: str, name: str, *, before: str = "", count: int | None = None
    ) -> tuple[StoredFile, ...] | None:
        """List a folder's own files whose names sort after *name* and before *before*, in order.

        *count* is how many are asked for; None is all. None comes back from a store that does not list
        from a name on, or whose listing shows that it did not.
        """
        del folder, name, before, count
        return None

    def first_names(self, folder: str, count: int) -> tuple[str, ...]:
        """Return the first *count* file names of a folder in byte order, listing no more where the store can."""
        return tuple(file.name for file in contents(self, folder).files[:count])

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

        *data* is what the file holds, when that is at hand: a store that cannot rename writes it once more.
        """
        content = self.read(source) if data is None else data
        if content is None or not self.put_new(target, content):
            return False
        self.delete(source)
        return True

    def move(self, source: str, target: str) -> None:
        """Give a file another name, replacing what is there; a crash in between leaves both, never neither.

        A store that cannot rename lets the file be copied, or writes it once more, and removes the old one.
        """
        if not self.copy(source, target):
            content = self.read(source)
            if content is None:
                return
            self.put(target, content)
        self.delete(source)

    def copy(self, source: str, target: str) -> bool:
        """Let the store itself copy a file; False where it cannot."""
        del source, target
        return False

    def delete(self, path: str) -> None:
        """Remove the file; nothing happens when there is none."""

    def delete_folder(self, folder: str) -> None:
        """Remove a folder with all that is in it; nothing happens when there is none."""

    def uri(self, path: str) -> str:
        """Return what Spark has to be told to read the same file or folder."""


def contents(store: Store, folder: str) -> Folder:
    """List one level, sorted by name; a folder that is not there is an empty one."""
    return store.list_folder(folder) or Folder(folders=(), files=())


@contextlib.contextmanager
def translated(verb: str, place: object) -> Iterator[None]:
    """Turn what a store raises into one kind of error that names the place."""
    try:
        yield
    # The third is obstore's, too; the fourth is what databricks-sdk raises for a login that is refused. Python raises
    # this or the last for a file of a year that no moment has.
    except (OSError, BaseError, NotImplementedError, ValueError, OverflowError) as exc:
        msg = f"cannot {verb} {os.fspath(place) if isinstance(place, os.PathLike) else place}"
        # obstore adds pages for those who debug it.
        found = _ANSWER.sub(r": \1 \2", str(exc)) or exc
        # obstore lists nothing where one name is none to it.
        odd = "Encountered object with invalid path" in str(exc)
        step = (
            "Remove or rename that object; the next run lists what is there then." if odd else None
        )
        raise StoreError(msg, found=first_line(found, _LONGEST), next_step=step) from exc


def tries(patience: float) -> Iterator[None]:
    """Let something be tried again, behind pauses that grow, until so many seconds are over."""
    begun, pause = time.monotonic(), 0.05
    yield
    while time.monotonic() - begun < patience:
        time.sleep(pause)
        pause = min(2 * pause, 5.0)
        yield


def write_new(
    write: Callable[[], object],
    refusal: type[Exception],
    find: Callable[[], object],
    patience: float,
) -> bool:
    """Write under the condition that there is none; False where somebody's file is found behind the store's *refusal*.

    Stores refuse alike while others are writing there, and a call that was aborted: that is tried again.
    """
    for _ in tries(patience):
        try:
            write()
        except refusal as exc:
            refused = exc
        else:
            return True
        if find() is not None:
            return False
    raise refused


def check_size(size: int | None, most: int | None, place: object) -> None:
    """See that what is read in one piece is not more than memory is meant to hold of it."""
    if most is not None and (size or 0) > most:
        msg = f"{place} is larger than what is read of such a file"
        step = "See what has been written there, and by whom."
        found = f"{size:,} bytes, and {most:,} at most"
        raise StoreError(msg, found=found, next_step=step)


def keeps_out(store: Store, probe: str) -> bool:
    """Say whether a store's put-if-absent refuses a second writer; it is tried at a path of which nobody else knows."""
    try:
        store.put_new(probe, b"1")  # not by its answer, which may have been lost
        return not store.put_new(probe, b"2") and store.read(probe) == b"1"
    except StoreError as exc:
        if not _has_no_put_new(exc):
            raise
        return False
    finally:
        with contextlib.suppress(StoreError):  # who may not remove files may leave one
            store.delete(probe)


def _has_no_put_new(error: StoreError) -> bool:
    """Say whether a store failed because it has no put-if-absent: a mount without hard links, for one.

    obstore has no error of its own for what a server says of it.
    """
    cause = error.__cause__
    if isinstance(cause, OSError):
        return cause.errno in _NO_LINKS
    return isinstance(cause, NotImplementedError) or "status code: 501 " in str(cause)


def translated_file(file: BinaryIO, verb: Literal["read", "write"], place: object) -> BinaryIO:
    """Wrap a file whose calls raise the same kind of error."""
    return cast("BinaryIO", _TranslatedFile(file, verb, place))


class LentFile(io.RawIOBase):
    """A file that has what pyarrow asks for, and that its reader does not close: it is the caller's."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file

    def readable(self) -> bool:
        """Say that it can be read."""
        return not self.writable()

    def seekable(self) -> bool:
        """Say that readers may go back."""
        return not self.writable()

    def read(self, size: int = -1, /) -> bytes:
        """Read on."""
        return bytes(self._file.read() if size < 0 else self._file.read(size))

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        """Go to a place."""
        return self._file.seek(offset, whence)

    def tell(self) -> int:
        """Return the place."""
        return self._file.tell()


class _TranslatedFile(LentFile):
    """A file whose calls fail as the store's own do: a lost connection is no damaged file."""

    def __init__(self, file: BinaryIO, verb: Literal["read", "write"], place: object) -> None:
        super().__init__(file)
        self._verb = verb
        self._place = place

    def writable(self) -> bool:
        return self._verb == "write"

    def read(self, size: int = -1, /) -> bytes:
        with translated(self._verb, self._place):
            return super().read(size)

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        with translated(self._verb, self._place):
            return super().seek(offset, whence)

    def write(self, data: Buffer, /) -> int:
        with translated(self._verb, self._place):
            self._file.write(data)
        return memoryview(data).nbytes

    def close(self) -> None:
        if not self.closed:
            super().close()
            with translated(self._verb, self._place):
                self._file.close()
