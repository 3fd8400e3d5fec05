"""Delimited text on its way into Delta tables: the same road as Parquet, on both of its partitions.

Text is written by hand and judged by the oracle. The small partition folds
in Arrow; for the large one every batch counts as large, so the text is staged for Spark.
"""

from __future__ import annotations

import gzip
import json
import os
import time
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import mirrorlib
from mirrorlib.errors import JournalError
from tests.children import throw_dice
from tests.oracle import ChangeFile, assert_same_rows, multiset, replay
from tests.tables import assert_feed_replays, assert_one_effect_per_file, read_rows
from tests.zones import MARKER, TableWriter, ZoneWriter

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from mirrorlib.ingest.report import TableReport

Row = dict[str, object]
TYPES = {"id": "Int32", "v": "String", "n": "Int64"}
SOON = timedelta(minutes=10)


@pytest.fixture(params=["small", "large"])
def partition(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Fold in Arrow, or have every batch count as large."""
    if request.param == "large":
        monkeypatch.setattr("mirrorlib.ingest.batch.open_batch.SMALL_BYTES", -1)
    return str(request.param)


def text_table(
    zone: ZoneWriter, types: dict[str, str] | None = None, **properties: object
) -> TableWriter:
    """Make the folder of a table of text with keys, as bc2adls does."""
    columns = [{"Name": name, "DataType": kind} for name, kind in (types or TYPES).items()]
    metadata = {
        "FileFormat": "CSV",
        "SchemaDefinition": {"Columns": columns},
        "FileFormatTypeProperties": {"RowSeparator": "\n", "EscapeCharacter": "", **properties},
    }
    return zone.table("orders", keys=["id"], metadata=metadata)


def publish(table: TableWriter, text: str | bytes, number: int | None = None) -> Path:
    """Publish a file of text, under the next number if none is told."""
    path = table.path(number or table.last + 1).with_suffix(".csv")
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    table.last = max(table.last, number or table.last + 1)
    return path


def run(spark: SparkSession, zone: ZoneWriter, target: str, **options: object) -> TableReport:
    """Apply the one table at once."""
    options = {"settle": 0.0, **options}
    (report,) = mirrorlib.apply(spark, str(zone), target, **options).tables  # type: ignore[arg-type]
    return report


def rows_of(spark: SparkSession, target: str) -> list[Row]:
    """Read the table."""
    return [dict(row) for row in read_rows(spark, Path(target) / "orders")]


@pytest.mark.thorough("large")
def test_every_declared_type_reaches_the_table(
    spark: SparkSession, zone: ZoneWriter, target: str, partition: str
) -> None:
    """Values are read by SchemaDefinition, found by the header's names in whatever order."""
    types = {
        "id": "Int32", "double": "Double", "single": "Single", "short": "Int16", "long": "Int64",
        "moment": "DateTime", "day": "IDate", "clock": "ITime", "text": "String", "flag": "Boolean",
        "bytes": "ByteArray",
    }  # fmt: skip
    table = text_table(zone, types)
    publish(
        table,
        f"text,id,{MARKER},double,single,short,long,moment,day,clock,flag,bytes\n"
        '"a ""quoted"", one",1,4,0.1,0.5,-7,9007199254740993,2026-01-02T03:04:05Z,2026-01-02,14:30:00,true,0xFF00\n'
        ",2,4,,,,,,,,,\n",
    )

    report = run(spark, zone, target)

    assert ("current", "") == (report.state, report.reason), partition
    moment = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    one: Row = {
        "id": 1, "double": 0.1, "single": 0.5, "short": -7, "long": 9007199254740993, "day": date(2026, 1, 2),
        "moment": moment, "clock": "14:30:00.000000", "text": 'a "quoted", one', "flag": True, "bytes": b"\xff\x00",
    }  # fmt: skip
    two: Row = {**dict.fromkeys(one), "id": 2}
    assert_same_rows(multiset([one, two]), multiset(rows_of(spark, target)))


@pytest.mark.thorough("*-[123]-*")
@pytest.mark.smoke
@pytest.mark.parametrize("seed, separator", list(enumerate([",", ";", "\t", "|"])))
def test_a_log_of_text_gives_the_oracle_s_table_and_feed(
    spark: SparkSession, zone: ZoneWriter, target: str, seed: int, separator: str, partition: str
) -> None:
    """Random files with and without markers, one batch each: table, feed and one effect a file."""
    dice = throw_dice(seed)
    table = text_table(zone, ColumnSeparator=separator)
    published: list[ChangeFile] = []
    words = [None, "", "a,b;c|d\te", 'say "so"', "two\nlines", "é ß 東"]
    for number in range(1, 6):
        rows: list[Row] = [
            {"id": dice.randrange(6), "v": dice.choice(words), "n": dice.choice([None, 2**40, -1])}
            for _ in range(dice.randrange(1, 8))
        ]
        markers = None if number == 1 else [dice.choice([0, 1, 2, 4]) for _ in rows]
        lines = [separator.join(["id", "v", "n", *([MARKER] if markers else [])])]
        for place, row in enumerate(rows):
            quoted = None if row["v"] is None else '"' + str(row["v"]).replace('"', '""') + '"'
            fields = [row["id"], quoted, row["n"], *([markers[place]] if markers else [])]
            lines.append(separator.join("" if field is None else str(field) for field in fields))
        publish(table, "\n".join(lines))  # the last line without an end
        published.append(
            ChangeFile(
                columns=("id", "v", "n"),
                rows=tuple(rows),
                markers=None if markers is None else tuple(markers),
            )
        )

    report = run(spark, zone, target, max_files=1 if seed % 2 else None)

    assert ("current", "") == (report.state, report.reason), partition
    expected = replay(published, keys=["id"])
    path = Path(target) / "orders"
    assert_same_rows(expected.multiset, multiset(read_rows(spark, path)))
    assert_feed_replays(spark, path)
    assert_one_effect_per_file(path, range(1, 6))


@pytest.mark.thorough("large-*", "small-overflow", "small-ragged")
@pytest.mark.smoke
@pytest.mark.parametrize(
    "line, found",
    [
        ("2,b,x1", ["line 3", "column n", "Int64"]),
        ("2,b", ["line 3", "2 in place of 3"]),
        ("2,b,99999999999999999999", ["line 3", "column n", "Int64"]),
    ],
    ids=["bad-value", "ragged", "overflow"],
)
def test_what_does_not_fit_stops_the_table_before_its_file(
    spark: SparkSession, zone: ZoneWriter, target: str, partition: str, line: str, found: list[str]
) -> None:
    """The message names file, line and column; what came earlier stays; the repaired file is read."""
    table = text_table(zone)
    publish(table, "id,v,n\n1,a,1\n")
    bad = publish(table, f"id,v,n\n7,g,7\n{line}\n")

    report = run(spark, zone, target)

    assert ("failed", bad.name, 1) == (report.state, report.file, report.position), partition
    assert [piece for piece in [bad.name, *found] if piece not in report.reason] == []
    assert [{"id": 1, "v": "a", "n": 1}] == rows_of(spark, target)
    publish(table, "id,v,n\n2,b,2\n", 2)
    assert "current" == run(spark, zone, target).state
    assert 2 == len(rows_of(spark, target))


def test_no_byte_stops_the_table_and_no_row_does_not(
    spark: SparkSession, zone: ZoneWriter, target: str
) -> None:
    """Q34: a header alone is zero rows; a file without a byte may be an upload under way."""
    table = text_table(zone)
    publish(table, "id,v,n\n1,a,1\n")
    publish(table, "id,v,n\n")
    empty = publish(table, "")

    report = run(spark, zone, target)

    assert ("failed", empty.name, 2) == (report.state, report.file, report.position)
    publish(table, f"id,{MARKER}\n1,2\n", 3)
    assert "current" == run(spark, zone, target).state
    assert [] == rows_of(spark, target)


def test_text_that_was_written_a_moment_ago_waits_until_it_has_settled(
    spark: SparkSession, zone: ZoneWriter, target: str
) -> None:
    """Half a file looks whole, so only what has lain still is read; a later old file waits behind it."""
    table = text_table(zone)
    for number, age in ((1, 60), (2, 0), (3, 60)):
        path = publish(table, f"id,v,n\n{number},a,1\n")
        moment = time.time() - age
        os.utime(path, (moment, moment))

    report = run(spark, zone, target, settle=30.0)

    assert ("behind", 1) == (report.state, report.position)
    assert "00000000000000000002.csv was written less than 30 s ago" in report.reason
    report = run(spark, zone, target)
    assert ("current", 3) == (report.state, report.position)
    path.touch()
    with pytest.raises(JournalError, match=r"written less than 10 s ago.* Call again in a moment"):
        mirrorlib.rebuild(spark, target, "orders")


def reset_table(spark: SparkSession, zone: ZoneWriter, target: str) -> TableWriter:
    """Make a table of one file that was applied, and reset it."""
    table = text_table(zone)
    publish(table, "id,v,n\n1,a,1\n")
    assert "current" == run(spark, zone, target).state
    mirrorlib.reset(spark, target, "orders")
    return table


def age(table: TableWriter, *numbers: int) -> None:
    """Let files have been written two hours ago."""
    moment = time.time() - 7200
    for number in numbers:
        os.utime(next(table.folder.glob(f"*{number}.csv")), (moment, moment))


@pytest.mark.thorough
def test_a_table_that_starts_over_does_not_wait_for_text_that_was_just_written(
    spark: SparkSession, zone: ZoneWriter, target: str
) -> None:
    """It is like a file that has yet to be published; else a table to which files come often would never start over."""
    table = reset_table(spark, zone, target)
    age(table, 1)
    publish(table, "id,v,n\n2,a,1\n")

    report = run(spark, zone, target, settle=3600.0)

    assert ("behind", 1) == (report.state, report.position), report.reason
    assert "00000000000000000002.csv was written less than" in report.reason
    assert ("current", 2) == ((report := run(spark, zone, target)).state, report.position)


@pytest.mark.thorough
def test_text_that_was_just_written_hides_no_gap_from_a_table_that_starts_over(
    spark: SparkSession, zone: ZoneWriter, target: str
) -> None:
    """It would be replaced by what is before the gap."""
    table = reset_table(spark, zone, target)
    for number in (2, 3, 4):
        publish(table, f"id,v,n\n{number},a,1\n")
    age(table, 1, 3)
    next(table.folder.glob("*2.csv")).unlink()

    report = run(spark, zone, target, settle=3600.0)

    assert ("blocked", True) == (report.state, "2.csv is missing" in report.reason), report.reason


def test_text_of_a_clock_that_is_ahead_is_read_once_two_listings_agree(
    spark: SparkSession, zone: ZoneWriter, target: str
) -> None:
    """Its own time would keep it young for an hour; a listing of a while ago shows that it has lain still."""
    path = publish(text_table(zone), "id,v,n\n1,a,1\n")
    moment = time.time() + 3600
    os.utime(path, (moment, moment))
    for _ in range(2):
        assert "behind" == run(spark, zone, target, settle=30.0).state
    seen_first(target, seconds=31)

    report = run(spark, zone, target, settle=30.0)

    assert ("current", 1) == (report.state, report.position), report.reason


def test_text_that_was_seen_before_our_clock_was_set_back(
    spark: SparkSession, zone: ZoneWriter, target: str
) -> None:
    """A listing of what is now tomorrow says nothing: it is watched anew, not until tomorrow."""
    path = publish(text_table(zone), "id,v,n\n1,a,1\n")
    moment = time.time() + 3600
    os.utime(path, (moment, moment))
    assert "behind" == run(spark, zone, target, settle=30.0).state
    seen_first(target, seconds=-86_400)
    assert "behind" == run(spark, zone, target, settle=30.0).state
    seen_first(target, seconds=31)

    report = run(spark, zone, target, settle=30.0)

    assert ("current", 1) == (report.state, report.position), report.reason


def seen_first(target: str, *, seconds: float) -> None:
    """Let the watched file have been seen so long before now."""
    word = Path(target) / "_mirrorlib" / "journal" / "orders" / "status.json"
    said = json.loads(word.read_text())
    assert abs(datetime.now(UTC) - datetime.fromisoformat(said["watched"]["seen_at"])) < SOON
    seen = datetime.now(UTC) - timedelta(seconds=seconds)
    said["watched"]["seen_at"] = seen.isoformat(timespec="microseconds")
    word.write_text(json.dumps(said))


def test_columns_that_nobody_declared_are_strings_and_reported(
    spark: SparkSession, zone: ZoneWriter, target: str
) -> None:
    """Q26: data columns outside of SchemaDefinition are kept as they are written."""
    table = text_table(zone)
    publish(table, "id,extra,v,n\n1,007,a,1\n")

    report = run(spark, zone, target)

    assert "current" == report.state
    assert any("extra" in warning for warning in report.warnings)
    assert "007" == rows_of(spark, target)[0]["extra"]


@pytest.mark.thorough("large-*", "*-utf-8-sig", "*-windows-1252")
@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "windows-1252", "shift_jis"])
def test_compressed_text_of_any_encoding(
    spark: SparkSession, zone: ZoneWriter, target: str, encoding: str, partition: str
) -> None:
    """Compression is recognised by content, the encoding by its name or its mark."""
    word = {"windows-1252": "é", "shift_jis": "東"}.get(encoding, "é東")
    table = text_table(zone, Encoding=encoding)
    publish(table, gzip.compress(f"id,v,n\r\n1,{word},1\r\n".encode(encoding)))

    report = run(spark, zone, target)

    assert ("current", "") == (report.state, report.reason), partition
    assert [{"id": 1, "v": word, "n": 1}] == rows_of(spark, target)


def test_a_bad_marker_far_down_a_long_text_is_named_by_its_row(
    spark: SparkSession, zone: ZoneWriter, target: str, partition: str
) -> None:
    """Rows are counted through all pieces of a file."""
    table = text_table(zone)
    lines = [f"{row},a,1,{9 if row == 200_001 else 4}" for row in range(200_010)]
    publish(table, f"id,v,n,{MARKER}\n" + "\n".join(lines))

    report = run(spark, zone, target)

    assert ("failed", "MarkerError") == (report.state, report.error), partition
    assert "row 200001" in report.reason


def test_a_plan_carries_how_its_text_is_written(
    spark: SparkSession, zone: ZoneWriter, target: str
) -> None:
    """Whoever carries a plan out reads its files as its planner did, whatever the metadata says by then."""
    table = text_table(zone, ColumnSeparator=";")
    publish(table, "id;v;n\n1;a;1\n")

    class StopError(Exception):
        pass

    def stop(event: mirrorlib.Event) -> None:
        if (event.step, event.when) == ("plan", "after"):
            raise StopError

    assert "failed" == run(spark, zone, target, observe=stop).state
    metadata = json.loads((table.folder / "_metadata.json").read_text())
    metadata["FileFormatTypeProperties"]["ColumnSeparator"] = "|"
    table.metadata(metadata)

    assert "current" == run(spark, zone, target).state
    assert [{"id": 1, "v": "a", "n": 1}] == rows_of(spark, target)
