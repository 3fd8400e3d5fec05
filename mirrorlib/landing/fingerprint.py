"""Tell a change file by what it holds: its name, size and time prove nothing.

In: an open file. Out: a fingerprint, text for the journal. Of Parquet its end is hashed, which holds sizes,
statistics and offsets of all that is before, and is read anyway: a file of up to 64 KiB as a whole, a larger one
that differs by nothing but values without statistics and of the same size is not told apart. Of text all
of it is hashed, while it is read.
"""

from __future__ import annotations

import hashlib
import io
from typing import BinaryIO

_END = 64 << 10  # bytes of a Parquet file, or its whole footer where that is longer
_BLOCK = 4 << 20
_LENGTH = 8  # bytes behind a footer: how long it is, and Parquet's magic number
END, WHOLE = "end", "whole"


def end_of(handle: BinaryIO, size: int) -> str:
    """Take the fingerprint of a Parquet file, of which that many bytes are known to be there."""
    footer = int.from_bytes(_from(handle, size - _LENGTH)[:4], "little") + _LENGTH
    end = _from(handle, size - max(_END, footer))
    return f"{END}:{hashlib.blake2b(b'%d:%b' % (size, end), digest_size=16).hexdigest()}"


def _from(handle: BinaryIO, place: int) -> bytes:
    """Read to the end; one call may give less."""
    handle.seek(max(place, 0))
    return b"".join(iter(lambda: bytes(handle.read(_BLOCK)), b""))


def whole_of(handle: BinaryIO) -> str:
    """Take the fingerprint of text."""
    hashing = Hashing(handle)
    return hashing.finish()


def same_kind(handle: BinaryIO, size: int, fingerprint: str) -> str:
    """Take a file's fingerprint as another one was taken."""
    return end_of(handle, size) if fingerprint.startswith(END) else whole_of(handle)


class Hashing(io.RawIOBase):
    """A file that is hashed while it is read; whoever reads may go back, and is not counted twice."""

    def __init__(self, file: BinaryIO) -> None:
        """Take the open file, which is left open."""
        self._file = file
        self._digest = hashlib.blake2b(digest_size=16)
        self._hashed = 0

    def readable(self) -> bool:
        """Say that it can be read."""
        return True

    def seekable(self) -> bool:
        """Say that readers may go back."""
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        """Go to a place."""
        return self._file.seek(offset, whence)

    def tell(self) -> int:
        """Return the place."""
        return self._file.tell()

    def read(self, size: int = -1, /) -> bytes:
        """Read on, and hash what has not been read before."""
        start = self._file.tell()
        data = bytes(self._file.read(size))
        new = self._hashed - start
        if 0 <= new < len(data):
            self._digest.update(memoryview(data)[new:])
            self._hashed += len(data) - new
        return data

    def finish(self) -> str:
        """Read what is left, and return the fingerprint."""
        self._file.seek(self._hashed)
        while self.read(_BLOCK):
            pass
        return f"{WHOLE}:{self._digest.hexdigest()}"
