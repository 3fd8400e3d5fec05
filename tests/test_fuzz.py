"""Damaged input of every kind, by the thousand: each ends in a report or in an error of ours that says what to do.

`make fuzz MINUTES=60` goes on from a random seed; what fails names its seed.
"""

from __future__ import annotations

import gzip
import io
import json
import os
import random
import shutil
import time
from datetime import UTC, datetime
from decimal import Decimal
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import mirrorlib
from mirrorlib.errors import MirrorError
from mirrorlib.ingest.batch.open_batch import prepare_files
from mirrorlib.ingest.files.history import History
from mirrorlib.ingest.files.source import Source
from mirrorlib.ingest.files.table_folder import open_folder, policies_of
from mirrorlib.ingest.options import Options
from mirrorlib.journal.disk import Journal
from mirrorlib.landing.listing import list_tables
from mirrorlib.names import TableName, sequence_name
from mirrorlib.operate.status import read_status
from mirrorlib.store import LocalStore

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import SparkSession

MINUTES = float(os.environ.get("MIRRORLIB_FUZZ", "0"))
INPUTS = 400  # of each kind in the whole suite, where no time is given
FOUND = (1032483620849,)  # seeds that ended badly once: a time zone that is not UTF-8
SLOWEST = 30  # seconds for one input: far from what any takes, so that only one that hangs is found
PAGE = "a page of the change file is damaged"  # of which a check reads those of the markers only
CSV = b'id,v,"q x",__rowMarker__\r\n1,a,"2020-01-01 10:00:00",0\r\n2,"x ""y""\r\n z",\\N,1\r\n3,\xc3\xa9,,4\r\n'
LINES = b'{"id":1,"v":{"a":[1,2,null,{"b":1e40}]}}\n{"id":2,"v":"\\u00e9","w":true}\n'
KEYS = b'{"keyColumns":["id"]}'
PARTNER = b'{"partnerName":"x","sourceInfo":{"sourceType":"SQL","additionalInformation":{"a":1}}}'
METADATA = json.dumps(
    {
        "keyColumns": ["id"],
        "isUpsertDefaultRowMarker": True,
        "fileDetectionStrategy": "SequentialFileName",
        "FileFormat": "CSV",
        "FileFormatTypeProperties": {
            "FirstRowAsHeader": True,
            "RowSeparator": "\r\n",
            "ColumnSeparator": ",",
            "QuoteCharacter": '"',
            "EscapeCharacter": "\\",
            "NullValue": "\\N",
            "Encoding": "UTF-8",
        },
        "SchemaDefinition": {
            "Columns": [
                {"Name": "id", "DataType": "Int32", "IsNullable": False},
                {"Name": "v", "DataType": "String"},
                {"Name": "q x", "DataType": "DateTime", "IsNullable": True},
            ]
        },
    }
).encode()
TOKENS = (b"\xff\xff\xff\x7f", b"\0\0\0\0", b"\xff\xff\xff\xff", b"1e999", b"null", b"[[[[", b"{", b'"', b"\\", b"\n",
          b"\r", b",", b"-", b"\xef\xbb\xbf", b"\xed\xa0\x80", b"9999999999999999999999", b"\x1b[2J")  # fmt: skip


def parquet_file(**options: object) -> bytes:
    """Write a change file with a column of each family."""
    rows = {
        "id": [1, 2, 3],
        "v": ["a", "é", None],
        "t": [datetime(2020, 1, 1, tzinfo=UTC)] * 3,
        "d": [Decimal("1.20")] * 3,
        "b": pa.array([b"", None, b"\0"], pa.binary()),
        "__rowMarker__": [0, 1, 4],
    }
    file = io.BytesIO()
    pq.write_table(pa.table(rows), file, **options)
    return file.getvalue()


PARQUET = (
    parquet_file(),
    parquet_file(compression="zstd", version="1.0"),
    parquet_file(use_dictionary=False, write_page_index=True),
)


def mutated(dice: random.Random, data: bytes) -> bytes:
    """Damage bytes in one to sixteen places; often near the end, where footers are."""
    found = bytearray(data)
    for _ in range(dice.choice((1, 1, 2, 4, 16))):
        place = dice.randrange(len(found) + 1)
        if dice.random() < 0.5:
            place = len(found) - dice.randrange(min(len(found), 400) + 1)
        match dice.randrange(6):
            case 0:
                found[place : place + 1] = bytes([dice.randrange(256)])
            case 1:
                del found[place : place + dice.choice((1, 2, 4, 30))]
            case 2:
                found[place:place] = dice.randbytes(dice.choice((1, 4, 40)))
            case 3:
                piece = found[max(0, place - dice.randrange(60)) : place]
                found[place:place] = piece * dice.choice((1, 3, 200))
            case 4:
                found[place : place + 4] = dice.choice(TOKENS)
            case _:
                del found[place:]
    return bytes(found)


def put(folder: Path, name: str, data: bytes) -> None:
    """Write one file."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(data)


def parquet(dice: random.Random, zone: Path) -> None:
    """Damage a Parquet file."""
    put(zone / "t", "_metadata.json", KEYS)
    put(zone / "t", sequence_name(1), mutated(dice, dice.choice(PARQUET)))


def text(dice: random.Random, zone: Path) -> None:
    """Damage delimited text, in several encodings."""
    encoding = dice.choice(("UTF-8", "UTF-16", "GB18030", "ISO-8859-1", "x"))
    put(zone / "t", "_metadata.json", METADATA.replace(b"UTF-8", encoding.encode()))
    codec = "utf-16" if encoding == "UTF-16" else "utf-8"
    put(zone / "t", sequence_name(1, "csv"), mutated(dice, CSV.decode().encode(codec)))


def packed(dice: random.Random, zone: Path) -> None:
    """Damage compressed text, before and after it was compressed."""
    put(zone / "t", "_metadata.json", METADATA)
    data = mutated(dice, CSV)
    squeezed = (
        gzip.compress(data)
        if dice.random() < 0.5
        else pa.Codec("zstd").compress(data, asbytes=True)
    )
    put(zone / "t", sequence_name(1, "csv"), mutated(dice, squeezed))


def lines(dice: random.Random, zone: Path) -> None:
    """Damage JSON lines in a plain folder."""
    put(zone / "t", "a.jsonl", mutated(dice, LINES))


def metadata(dice: random.Random, zone: Path) -> None:
    """Damage what a publisher states, and what is said of him."""
    put(zone / "t", "_metadata.json", mutated(dice, METADATA))
    put(zone / "t", sequence_name(1, "csv"), CSV)
    put(zone, "_partnerEvents.json", mutated(dice, PARTNER))


def names(dice: random.Random, zone: Path) -> None:
    """Give folders and files odd names."""
    odd = [
        mutated(dice, dice.choice((b"t", b"dbo.schema", b"a=1", sequence_name(1).encode())))
        for _ in range(3)
    ]
    safe = [name.replace(b"/", b"").replace(b"\0", b"")[:200].strip(b".") or b"x" for name in odd]
    folder = Path(os.fsdecode(os.path.join(os.fsencode(zone), *safe[: dice.choice((1, 2))])))  # noqa: PTH118  # of bytes
    put(folder, "_metadata.json", KEYS)
    put(folder, sequence_name(1), PARQUET[0])
    put(folder, os.fsdecode(safe[2]), PARQUET[0])


ZONES = {each.__name__: each for each in (parquet, text, packed, lines, metadata, names)}


def seeds(inputs: int) -> Iterator[int]:
    """Give the same seeds each time, or others for so long as there is time."""
    yield from FOUND
    if not MINUTES:
        yield from range(inputs)
        return
    start, end = random.randrange(1 << 40), time.monotonic() + 60 * MINUTES / (len(ZONES) + 1)
    for number in count(start):
        if time.monotonic() > end:
            print(f"{number - start:,} inputs")  # noqa: T201  # what `make fuzz` shows
            return
        yield number


def tried(
    folder: Path,
    make: Callable[[random.Random, Path], None],
    use: Callable[[Path], None],
    inputs: int,
) -> None:
    """Make an input for each seed and use it."""
    for seed in seeds(inputs):
        place = folder / str(seed)
        started = time.monotonic()
        try:
            make(random.Random(seed), place)
            use(place)
        except Exception as exc:
            exc.add_note(f"seed {seed}")
            raise
        assert time.monotonic() - started < SLOWEST, seed
        shutil.rmtree(place, ignore_errors=True)


def use_zone(place: Path) -> None:
    """Check a zone, and open each table's files as an apply does; what the one finds sound the other opens."""
    sound = mirrorlib.check(place).ok
    zone = LocalStore(place)
    for name in list_tables(zone):
        fault = opened_fault(zone, name)
        if fault is not None:
            assert not sound or PAGE in fault.reason, f"check found nothing, but {fault}"
            assert str(fault).isprintable(), ascii(str(fault))


def opened_fault(zone: LocalStore, name: TableName) -> MirrorError | None:
    """Open a table's files; say what is wrong."""
    options = Options(plain_folders="append", settle=0)
    try:
        opened = open_folder(zone, name, options=options)
        if opened.metadata is None:
            return None
        policies = policies_of(opened.metadata, opened.dialect, options)
        source = Source(zone=zone, table=str(name), folder=name.folder, policies=policies)
        files = [file for each in opened.listing.partitions.values() for file in each.values()]
        return prepare_files(source, files, ()).fault if files else None
    except MirrorError as exc:
        return exc


def error_of(read: Callable[[], object]) -> MirrorError | None:
    """Give the error of ours that a call ends in; another one is raised."""
    try:
        read()
    except MirrorError as exc:
        return exc
    return None


@pytest.mark.thorough("names", "packed")
@pytest.mark.timeout(0 if MINUTES else 300)
@pytest.mark.parametrize("kind", ZONES)
def test_no_zone_is_a_crash(tmp_path: Path, kind: str, rounds: Callable[[int], int]) -> None:
    """A damaged file, metadata or name is refused by an error of ours."""
    tried(tmp_path, ZONES[kind], use_zone, rounds(INPUTS))


@pytest.mark.timeout(0 if MINUTES else 300)
def test_no_journal_is_a_crash(
    spark: SparkSession, tmp_path: Path, rounds: Callable[[int], int]
) -> None:
    """A damaged journal is refused by an error of ours, and never read as another one's beginning."""
    zone, target = tmp_path / "zone", tmp_path / "target"
    put(zone / "t", "_metadata.json", KEYS)
    for number in (1, 2):
        put(zone / "t", sequence_name(number), PARQUET[0])
        mirrorlib.apply(spark, zone, target, state=tmp_path / "state")
    written = [path for path in (tmp_path / "state").rglob("*") if path.is_file()]

    def damage(dice: random.Random, place: Path) -> None:
        shutil.copytree(tmp_path / "state", place)
        file = place / dice.choice(written).relative_to(tmp_path / "state")
        file.write_bytes(mutated(dice, file.read_bytes()))

    def use(place: Path) -> None:
        for read in (lambda: read_status(target, state=place), lambda: applied(place)):
            error = error_of(read)
            assert error is None or str(error).isprintable(), ascii(str(error))

    def applied(place: Path) -> object:
        return History(Journal(LocalStore(place), TableName(None, "t")), str(zone)).applied()

    tried(tmp_path / "tries", damage, use, rounds(INPUTS))
