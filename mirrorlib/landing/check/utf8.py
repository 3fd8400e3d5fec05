"""Read a file of delimited text as UTF-8, whatever its encoding and compression, in pieces."""

from __future__ import annotations

import codecs
import io
import re
from typing import TYPE_CHECKING, BinaryIO

import pyarrow as pa

if TYPE_CHECKING:
    from mirrorlib.landing.metadata import TableMetadata

_PIECE = 1 << 20
_MAGIC = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd"}


class Utf8Text(io.RawIOBase):
    """A file's text as UTF-8, whatever it was; counts lines and quotes, and closes the last line.

    pyarrow takes a quote that is never closed for a long value, and a lone header without a line
    end for half a row.
    """

    def __init__(self, source: BinaryIO, encoding: str, metadata: TableMetadata | None) -> None:
        self._source = source
        self._quote = separator(metadata, "QuoteCharacter", '"')
        escape = separator(metadata, "EscapeCharacter", "\\")
        self._escape = escape if escape != self._quote else ""
        self._escaped = re.compile(re.escape(self._escape) + "(?s:.)")
        self._held = ""  # an escape character at a piece's end, which belongs to the next one
        self._last = "\n"
        self.quotes = 0
        self.unended = False  # the last line had no line end of its own
        name = "utf-8-sig" if encoding == "utf-8" else encoding
        self._decoder = codecs.getincrementaldecoder(name)()
        self._pending = b""
        self.line = 1

    def readable(self) -> bool:
        """Say that it is; pyarrow asks."""
        return True

    def read(self, size: int = -1, /) -> bytes:
        """Return the next bytes of UTF-8, at most *size*; none at the end."""
        while (size < 0 or not self._pending) and self._fill():
            pass
        taken = self._pending if size < 0 else self._pending[:size]
        self._pending = self._pending[len(taken) :]
        return taken

    def peek(self) -> str:
        """Return the beginning of the text, and leave it there."""
        while len(self._pending) < _PIECE and self._fill():
            pass
        return self._pending.decode()

    def _fill(self) -> bool:
        """Decode one more piece; False at the end."""
        piece = self._source.read(_PIECE)
        try:
            text = self._decoder.decode(piece, final=not piece)
        except UnicodeDecodeError as exc:
            self.line += exc.object[: exc.start].count(b"\n")
            raise
        if not piece and self._last not in "\r\n":
            text += "\n"
            self.unended = True
        self.line += text.count("\n")
        self._count_quotes(text)
        self._last = text[-1:] or self._last
        self._pending += text.encode()
        return bool(piece)

    def _count_quotes(self, text: str) -> None:
        if not self._quote:
            return
        text = self._held + text
        if self._escape and self._escape in text:
            text = self._escaped.sub("", text)
        self._held = self._escape if self._escape and text.endswith(self._escape) else ""
        self.quotes += text.count(self._quote)


def decompressed(handle: BinaryIO) -> BinaryIO:
    """Give the file's bytes; compression is told by content, not by name."""
    head = handle.read(4)
    handle.seek(0)
    for magic, codec in _MAGIC.items():
        if head.startswith(magic):
            stream: BinaryIO = pa.CompressedInputStream(pa.PythonFile(handle, mode="r"), codec)
            return stream
    return handle


def separator(metadata: TableMetadata | None, name: str, default: str) -> str:
    """Return a separator, quote or escape: one character, or none."""
    stated = metadata.format_properties.get(name) if metadata else None
    return default if stated is None or len(stated) > 1 else stated
