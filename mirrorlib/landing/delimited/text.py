"""Bytes to text: decompress, decode, and give UTF-8 blocks, in bounded memory.

In: a `TextFile`. Out: blocks of UTF-8 without byte order mark, cut anywhere. Promises:
compression is recognised by content, whatever the name says; a stream that ends early is refused;
in other encodings than UTF-8 an undecodable byte is named with its line (UTF-8 itself is checked
when its rows are parsed).
"""

from __future__ import annotations

import codecs
import io
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from typing import BinaryIO

import pyarrow as pa

from mirrorlib.errors import ChangeFileError, first_line
from mirrorlib.landing.delimited.dialect import Dialect
from mirrorlib.store import LentFile, StoredFile

_COMPRESSIONS = ((b"\x1f\x8b", "gzip"), (b"\x28\xb5\x2f\xfd", "zstd"))
_SNAPPY = (
    "Snappy, which cannot be read piece by piece",
    "Publish it as it is, or packed by gzip or zstd, under the same name.",
)
_FOREIGN = (  # what no text begins with, what that is, and what to do
    # A column may be called PAR1; Thrift's first byte is no text.
    (b"PAR1\x15", ("Parquet", 'Publish text, or state "FileFormat": "Parquet" in _metadata.json.')),
    (b"PK\x03\x04", ("a zip archive", None)),
    (b"\xff\x06\x00\x00sNaPpY", _SNAPPY),
)
# The longer mark first: UTF-32's begins with UTF-16's.
_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_LONGEST_MAGIC = 10
_SNAPPY_LENGTH = re.compile(rb"[\x80-\xff]{0,3}[\0-\x7f](?=.)", re.DOTALL)  # up to 256 MiB
_SNAPPY_MORE = 32  # bytes that compressing may add, and a sixth
_MOST_SNAPPY = 22  # times a block's bytes: a copy of 64 bytes takes three
_NO_TEXT = re.compile(rb"[\0-\x08\x0b\x0c\x0e-\x1f]")
UNDECODABLE = "the text is not "  # how the complaint begins; the codec follows
DAMAGED = "stream is cut short or damaged; it may be an upload under way"  # how it ends


@dataclass(frozen=True, slots=True)
class TextFile:
    """A change file of text that is open, and is left open; and how its text is written."""

    handle: BinaryIO
    file: StoredFile
    dialect: Dialect
    table: str  # its table's name, for messages
    # How much is read at a time: changes nothing but memory and speed.
    block_bytes: int = 4 << 20

    def fault(self, reason: str, **facts: str | int | None) -> ChangeFileError:
        """Say what is wrong with the file."""
        return ChangeFileError(reason, table=self.table, file=self.file.name, **facts)  # type: ignore[arg-type]  # its own parameters

    def no_escape(self, text: bytes) -> str:
        r"""Say how to state that nothing escapes, "" where nothing does: most writers leave `C:\dir\` as it is."""
        escape, quote = self.dialect.escape, self.dialect.quote
        if escape in ("", quote) or escape.encode() not in text:
            return ""
        return f' Where {escape} is data, state "EscapeCharacter": {json.dumps(quote)} in _metadata.json.'

    def undecodable(self, exc: UnicodeDecodeError, line: int, codec: str) -> ChangeFileError:
        """Name the bytes that are no text."""
        msg = f"{UNDECODABLE}{codec}"
        found = "the byte 0x" + exc.object[exc.start : max(exc.end, exc.start + 1)][:4].hex()
        step = "Publish it in the encoding that _metadata.json states, or else in UTF-8, or correct Encoding there."
        return self.fault(msg, line=line, found=found, next_step=step)


def iter_text(file: TextFile) -> Iterator[bytes]:
    """Give a file's text in UTF-8, a block at a time, from its first byte; a byte order mark overrules the dialect."""
    blocks = _iter_bytes(file)
    first = next(blocks, b"")
    marks = (found for found in _MARKS if first.startswith(found[0]))
    mark, codec = next(marks, (b"", file.dialect.encoding))
    if not mark and codec in {"utf-16", "utf-32"}:  # a header begins with an ASCII character
        codec += "-be" if first.startswith(b"\0") else "-le"
    whole = chain((first.removeprefix(mark),), blocks)
    return whole if codec == "utf-8" else _transcode(whole, codec, file)


def _iter_bytes(file: TextFile) -> Iterator[bytes]:
    handle, size = file.handle, max(file.block_bytes, _LONGEST_MAGIC)
    handle.seek(0)
    magic = _read_full(handle, _LONGEST_MAGIC)
    handle.seek(0)
    if not magic:
        msg = "the change file has no bytes; it may be an upload under way"
        raise file.fault(msg, found="0 bytes")
    foreign = next((what for prefix, what in _FOREIGN if magic.startswith(prefix)), None)
    if foreign or _is_raw_snappy(handle, magic):
        msg, (found, step) = "the change file is no text", foreign or _SNAPPY
        raise file.fault(msg, found=found, next_step=step)
    packed = next((name for prefix, name in _COMPRESSIONS if magic.startswith(prefix)), None)
    stream = pa.input_stream(LentFile(handle), compression=packed) if packed else handle
    try:
        while block := _read_full(stream, size):
            yield block
    except (pa.ArrowException, OSError) as exc:
        if packed is None:
            raise
        msg = f"the change file's {packed} {DAMAGED}"
        raise file.fault(msg, found=first_line(exc, 80)) from exc


def _is_raw_snappy(handle: BinaryIO, magic: bytes) -> bool:
    """Say whether a file is one raw Snappy block, which has no magic: its length, and a literal, come first.

    A length that so many bytes cannot hold rules it out, as it does for all text but the shortest. Source: Snappy's
    format_description.txt, and MaxCompressedLength.
    """
    found = _SNAPPY_LENGTH.match(magic)
    if found is None or magic[found.end()] & 0b11:
        return False
    length = sum((byte & 0x7F) << 7 * place for place, byte in enumerate(found[0]))
    size = handle.seek(0, io.SEEK_END)
    handle.seek(0)
    held = size <= _SNAPPY_MORE + length + length // 6 and 0 < length <= _MOST_SNAPPY * size
    try:
        data = _read_full(handle, size) if held else b""
        packed = _NO_TEXT.search(data) is not None  # short text may be a sound block by chance
        return packed and bool(pa.Codec("snappy").decompress(data, length))
    except (pa.ArrowException, OSError):
        return False
    finally:
        handle.seek(0)


def _read_full(handle: BinaryIO | pa.NativeFile, size: int) -> bytes:
    """Read *size* bytes unless the file ends before; one call may give less."""
    parts: list[bytes] = []
    missing = size
    while missing and (part := bytes(handle.read(missing))):
        parts.append(part)
        missing -= len(part)
    return b"".join(parts)


def _transcode(blocks: Iterator[bytes], codec: str, file: TextFile) -> Iterator[bytes]:
    feeds = returns = 0
    try:
        for text in codecs.iterdecode(blocks, codec):
            feeds += text.count("\n")
            returns += text.count("\r")
            yield text.encode()
    except UnicodeDecodeError as exc:
        sound = exc.object[: exc.start].decode(codec, "replace")
        line = 1 + max(feeds + sound.count("\n"), returns + sound.count("\r"))
        raise file.undecodable(exc, line, codec) from exc
