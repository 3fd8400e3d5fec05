"""Tell what a store raises as one kind of error that names the place: `StoreError`."""

from __future__ import annotations

import contextlib
import errno
import io
import os
from typing import TYPE_CHECKING, BinaryIO, Literal, cast

from obstore.exceptions import BaseError, NotSupportedError

from mirrorlib.errors import StoreError, first_line

if TYPE_CHECKING:
    from collections.abc import Iterator

    from typing_extensions import Buffer

_NO_LINKS = {errno.EPERM, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP}  # by file system
_LONGEST = 400  # characters: what was asked of whom, how often, and the answer


@contextlib.contextmanager
def translated(verb: str, place: object) -> Iterator[None]:
    """Turn what a store raises into one kind of error that names the place."""
    try:
        yield
    except (OSError, BaseError) as exc:
        msg = f"cannot {verb} {os.fspath(place) if isinstance(place, os.PathLike) else place}"
        raise StoreError(
            msg,
            found=first_line(exc, _LONGEST),  # obstore adds pages for those who debug it
            next_step="See that the place is reachable and may be read and written",
        ) from exc


def check_size(size: int | None, most: int | None, place: object) -> None:
    """See that what is read in one piece is not more than memory is meant to hold of it."""
    if most is not None and (size or 0) > most:
        msg = f"{place} is larger than what is read of such a file"
        step = "See what has been written there, and by whom."
        found = f"{size:,} bytes, and {most:,} at most"
        raise StoreError(msg, found=found, next_step=step)


def has_no_put_new(error: StoreError) -> bool:
    """Say whether a store failed because it has no put-if-absent: a mount without hard links, for one."""
    cause = error.__cause__
    if isinstance(cause, OSError):
        return cause.errno in _NO_LINKS
    return isinstance(cause, NotSupportedError)


def translated_file(file: BinaryIO, verb: Literal["read", "write"], place: object) -> BinaryIO:
    """Wrap a file whose calls raise the same kind of error."""
    return cast("BinaryIO", _TranslatedFile(file, verb, place))


class _TranslatedFile(io.RawIOBase):
    """A file whose calls fail as the store's own do: a lost connection is no damaged file.

    And one that has what pyarrow asks for, which obstore's own lack.
    """

    def __init__(self, file: BinaryIO, verb: Literal["read", "write"], place: object) -> None:
        self._file = file
        self._verb = verb
        self._place = place

    def readable(self) -> bool:
        return self._verb == "read"

    def seekable(self) -> bool:
        return self._verb == "read"

    def writable(self) -> bool:
        return self._verb == "write"

    def read(self, size: int = -1, /) -> bytes:
        with translated(self._verb, self._place):
            return bytes(self._file.read() if size < 0 else self._file.read(size))

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        with translated(self._verb, self._place):
            return self._file.seek(offset, whence)

    def tell(self) -> int:
        return self._file.tell()

    def write(self, data: Buffer, /) -> int:
        with translated(self._verb, self._place):
            self._file.write(data)
        return memoryview(data).nbytes

    def close(self) -> None:
        if not self.closed:
            super().close()
            with translated(self._verb, self._place):
                self._file.close()
