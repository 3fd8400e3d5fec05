"""Bytes to text: compression and encodings are recognised, and what is damaged is refused."""

from __future__ import annotations

import codecs
import gzip
import io
import json

import pyarrow as pa
import pytest

from mirrorlib.errors import StoreError
from mirrorlib.landing.delimited.dialect import dialect_of
from mirrorlib.landing.delimited.tables import read_header
from mirrorlib.landing.delimited.text import TextFile
from mirrorlib.landing.metadata.reading import parse_metadata
from texts import dialect, listed, refusal, rows

AB = {"a": "String", "b": "String"}
PLAIN = b"a,b\r\n" + b"".join(b'%d,"line %d"\r\n' % (i, i) for i in range(3000))
ROWS = [(str(i), f"line {i}") for i in range(3000)]
SPELL = "Publish it in the encoding that _metadata.json states, or else in UTF-8, or correct Encoding there."


def raw_snappy(data: bytes) -> bytes:
    """Compress into one block, as Snappy's own libraries do."""
    return bytes(pa.Codec("snappy").compress(data, asbytes=True))


def zstd(data: bytes) -> bytes:
    """Compress as Arrow does, which Python itself cannot before 3.14."""
    sink = io.BytesIO()
    with pa.CompressedOutputStream(pa.PythonFile(Unclosed(sink), mode="w"), "zstd") as stream:
        stream.write(data)
    return sink.getvalue()


class Unclosed(io.RawIOBase):
    """A file that stays open, so that what was written can be read."""

    def __init__(self, file: io.BytesIO) -> None:
        self.file = file

    def writable(self) -> bool:
        """Take bytes."""
        return True

    def write(self, data: bytes) -> int:
        """Keep them."""
        return self.file.write(data)


@pytest.mark.parametrize("packed", [gzip.compress, zstd])
@pytest.mark.parametrize("block_bytes", [10, 1000, 1 << 20])
def test_compression_is_recognised_by_content(packed: object, block_bytes: int) -> None:
    """The name says nothing; several streams in a row are one file, as `cat a.gz b.gz` makes them."""
    assert callable(packed)
    whole = packed(PLAIN)
    cut = len(PLAIN) // 3
    parts = packed(PLAIN[:cut]) + packed(PLAIN[cut:])

    assert ROWS == rows(whole, dialect(AB), block_bytes=block_bytes)
    assert ROWS == rows(parts, dialect(AB), block_bytes=block_bytes)


@pytest.mark.parametrize("name,packed", [("gzip", gzip.compress), ("zstd", zstd)])
def test_a_stream_that_ends_early_is_refused(name: str, packed: object) -> None:
    """Wherever it was cut, and when a byte is another one."""
    assert callable(packed)
    whole = packed(PLAIN)
    reason = (
        f"the change file's {name} stream is cut short or damaged; it may be an upload under way"
    )

    for end in (len(whole) - 1, len(whole) - 5, len(whole) // 2, 12):
        assert reason == refusal(whole[:end], dialect(AB)).reason
    assert reason == refusal(whole + b"junk", dialect(AB)).reason


def test_text_is_read_a_block_at_a_time_whatever_it_begins_with() -> None:
    """The first letters of many a Chinese header could be a length, if lengths had no end."""
    longest = 0

    class Watched(io.BytesIO):
        def read(self, size: int | None = -1, /) -> bytes:
            nonlocal longest
            data = super().read(size)
            longest = max(longest, len(data))
            return data

    data = "姓名,b\r\n".encode() + b"1,2\r\n" * 2_000_000
    file = TextFile(Watched(data), listed(data), dialect({}), "t", block_bytes=1 << 16)

    assert ["姓名", "b"] == [column.name for column in read_header(file).columns]
    assert longest <= 1 << 16


@pytest.mark.parametrize(
    "data,found",
    [
        (b"PAR1\x15\x04", "Parquet"),
        (b"PK\x03\x04....", "a zip archive"),
        (b"\xff\x06\x00\x00sNaPpY....", "Snappy, which cannot be read piece by piece"),
        (raw_snappy(b"a,b\n1,2\n"), "Snappy, which cannot be read piece by piece"),
        (raw_snappy(b"a,b\n" + b"1,2\n" * 100_000), "Snappy, which cannot be read piece by piece"),
    ],
)
def test_other_formats_are_named(data: bytes, found: str) -> None:
    """They would be one odd column otherwise."""
    error = refusal(data, dialect(AB))

    assert ("the change file is no text", found) == (error.reason, error.found)
    assert ('"FileFormat": "Parquet"' in str(error)) is (found == "Parquet")
    assert ("gzip or zstd" in str(error)) is found.startswith("Snappy")


def test_short_text_is_not_taken_for_a_block_of_snappy() -> None:
    """It may be a sound one by chance: its first letter a length, commas and line ends copies of what is before."""
    data = b"ID,Name,City\r\n30285,Dieter,Ivan\r\n24761,Dieter,Carla\r\n64323,Moritz,Julia\r\n"
    file = TextFile(io.BytesIO(data), listed(data), dialect({}), "t")
    assert ["ID", "Name", "City"] == [column.name for column in read_header(file).columns]


def test_columns_may_be_called_as_parquet_begins() -> None:
    """They stopped their table for ever."""
    data = b"PAR1,PAR2\r\n1,2\r\n"
    file = TextFile(io.BytesIO(data), listed(data), dialect({}), "t")
    assert ["PAR1", "PAR2"] == [column.name for column in read_header(file).columns]


@pytest.mark.parametrize(
    "stated,codec,mark",
    [
        ("utf-8", "utf-8", b""),
        ("utf-8", "utf-8", codecs.BOM_UTF8),
        ("utf-8", "utf-16-le", codecs.BOM_UTF16_LE),
        ("utf-8", "utf-32-be", codecs.BOM_UTF32_BE),
        ("cp1252", "utf-8", codecs.BOM_UTF8),
        ("utf-16", "utf-16-le", codecs.BOM_UTF16_LE),
        ("utf-16", "utf-16-be", codecs.BOM_UTF16_BE),
        ("utf-16", "utf-16-le", b""),
        ("utf-16", "utf-16-be", b""),
        ("utf-16-be", "utf-16-be", b""),
        ("utf-32", "utf-32-le", codecs.BOM_UTF32_LE),
        ("utf-32", "utf-32-le", b""),
        ("gb18030", "gb18030", b""),
        ("shift_jis", "shift_jis", b""),
        ("euc_jp", "euc_jp", b""),
        ("iso2022_jp", "iso2022_jp", b""),
        ("cp932", "cp932", b""),
    ],
)
@pytest.mark.parametrize("block_bytes", [10, 11, 13, 1000])
def test_every_encoding_is_read_however_its_blocks_are_cut(
    stated: str, codec: str, mark: bytes, block_bytes: int
) -> None:
    """A byte order mark knows better than the metadata."""
    values = [("1", "日本"), ("日,本", "表\nソ"), ("", "終")]
    text = 'a,b\r\n1,日本\r\n"日,本","表\nソ"\r\n"",終'

    assert values == rows(
        mark + text.encode(codec), dialect(AB, encoding=stated), block_bytes=block_bytes
    )


@pytest.mark.parametrize("codec", ["cp1252", "iso8859-1", "cp1250", "cp850"])
def test_single_byte_encodings_are_read(codec: str) -> None:
    """Characters beyond ASCII are what their code page says."""
    data = 'a,b\n1,"é;ü"\n'.encode(codec)

    assert [("1", "é;ü")] == rows(data, dialect(AB, encoding=codec))


@pytest.mark.parametrize(
    "stated,data,line,found",
    [
        ("utf-8", b"a,b\n1,2\n3,\xe9\n", 3, "the byte 0xe9"),
        ("utf-8", b'a,b\n"1\n1",2\n3,\xc3"\n', 4, "the byte 0xc3"),
        ("utf-8", b"a,\xe9\n1,2\n", 1, "the byte 0xe9"),
        ("utf-8", b"a,b\r1,2\r3,\xed\xa0\x80\r", 3, "the byte 0xed"),
        ("ascii", b"a,b\n1,2\n3,\xc3\xa9\n", 3, "the byte 0xc3"),
        ("cp1252", b"a,b\r\n1,2\r\n3,\x81\r\n", 3, "the byte 0x81"),
        ("cp1252", b"a,b\r1,2\r3,\x81\r", 3, "the byte 0x81"),
        ("shift_jis", b"a,b\n1,2\n3,\xff\n", 3, "the byte 0xff"),
        ("utf-16-le", "a,b\n1,2\n".encode("utf-16-le") + b"\x00\xdc", 3, "the byte 0x00dc"),
        ("utf-16-le", "a,b\n1,2\n3".encode("utf-16-le") + b"\x00", 3, "the byte 0x00"),
    ],
)
@pytest.mark.parametrize("block_bytes", [10, 11, 1000])
def test_an_undecodable_byte_is_named_with_its_line(
    stated: str, data: bytes, line: int, found: str, block_bytes: int
) -> None:
    """And the encoding that it is not."""
    error = refusal(data, dialect(AB, encoding=stated), block_bytes=block_bytes)

    assert f"the text is not {stated}" == error.reason
    assert (line, found, SPELL) == (error.line, error.found, error.next_step)


def test_a_lost_connection_is_no_damaged_file() -> None:
    """What the store says goes through, also from inside a compressed stream."""

    class Lost(io.BytesIO):
        def read(self, _size: int | None = -1, /) -> bytes:
            if self.tell():
                msg = "cannot read"
                raise StoreError(msg)
            return super().read(10)

    for data in (PLAIN, gzip.compress(PLAIN)):
        with pytest.raises(StoreError):
            read_header(TextFile(Lost(data), listed(data), dialect(AB), "orders"))


@pytest.mark.parametrize(
    "name,data,text",
    [
        ("shift_jis", b"10\x81`20 \x81|5 \x87@", "10\uff5e20 \uff0d5 \u2460"),
        ("shift_jis", b"\xfb\xfc", "\u9ad9"),
        ("gb2312", b"\xa1\xa4\xa1\xaa \x81@", "\u00b7\u2014 \u4e02"),
        ("ks_c_5601-1987", b"\x81A", "\uac02"),
        ("big5", b"\xa1\xe3\xf9\xd6", "\uff5e\u7881"),
        ("iso-8859-1", b"\x80", "\x80"),
    ],
)
def test_a_name_means_what_windows_writes_under_it(name: str, data: bytes, text: str) -> None:
    """Its East Asian code pages are more than the standards of the same names, and differ in some signs."""
    stated = json.dumps({"FileFormat": "CSV", "FileFormatTypeProperties": {"Encoding": name}})
    how = dialect_of(parse_metadata(stated.encode(), "orders"), table="orders")

    assert [(text, "x")] == rows(b"a,b\n" + data + b",x\n", how)
