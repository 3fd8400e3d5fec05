"""`--conditional-updates`: an update counts only where its ConditionalUpdateColumn is greater than the row's."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import mirrorlib
from mirrorlib.commit.stage import ADD, CHANGE, DROP, OP, PUT
from mirrorlib.ingest.batch.fold import fold_frame
from mirrorlib.ingest.rows.marks import MARKER, ORDER
from oracle import ChangeFile, assert_same_rows, is_greater, multiset, replay
from tables import assert_feed_replays, read_rows
from zones import ZoneWriter

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LONGEST = 4
STEPS = tuple(itertools.product((0, 1, 2, 4), (None, 1, 2)))  # a marker and a value
Step = tuple[int, int | None]
Held = tuple[int | None, int]  # a row's value and where it comes from; below 0: from the table
EXISTING: tuple[tuple[Held, ...], ...] = ((), ((1, -1),), ((None, -1), (2, -2)))


def replayed(sequence: Sequence[Step], existing: Sequence[Held]) -> Counter[Held]:
    """Replay the changes of one key, one by one."""
    rows = list(existing)
    for place, (marker, value) in enumerate(sequence):
        if marker == 0 or (marker != 2 and not rows):
            rows.append((value, place))
        elif marker == 2:
            rows = []
        else:
            rows = [(value, place) if is_greater(value, row[0]) else row for row in rows]
    return Counter(rows)


def merged(changes: Sequence[tuple[int, Held]], existing: Sequence[Held]) -> Counter[Held]:
    """Carry out the folded changes of one key as one MERGE does: all at once, each update where it is greater."""
    rows = list(existing)
    matching = [(op, held) for op, held in changes if op in {DROP, PUT, CHANGE}]
    assert len(matching) <= 1, f"a row of the table would match {len(matching)} times"
    for op, held in matching:
        if op == DROP:
            rows = []
        elif rows:
            rows = [held if is_greater(held[0], row[0]) else row for row in rows]
        elif op == PUT:
            rows = [held]
    return Counter(rows + [held for op, held in changes if op == ADD])


def sequences() -> Iterator[tuple[Step, ...]]:
    """Give every short log of one key."""
    for length in range(1, LONGEST + 1):
        yield from itertools.product(STEPS, repeat=length)


@pytest.mark.thorough
def test_every_short_log_folds(spark: SparkSession, tmp_path: Path) -> None:
    """Every sequence of up to four markers and values, on no, one and two existing rows, by brute force."""
    logs = list(sequences())
    rows = [
        (key, place, marker, value)
        for key, sequence in enumerate(logs)
        for place, (marker, value) in enumerate(sequence)
    ]
    rows.sort(key=lambda row: row[1])
    keys, places, markers, values = zip(*rows, strict=True)
    log = pa.table(
        {
            "id": pa.array(keys, pa.int64()),
            "place": pa.array(places, pa.int64()),
            "v": pa.array(values, pa.int64()),
            MARKER: pa.array(markers, pa.int8()),
            ORDER: pa.array(range(len(rows)), pa.int64()),
        }
    )
    pq.write_table(log, tmp_path / "log.parquet")

    folded = fold_frame(spark.read.parquet(str(tmp_path / "log.parquet")), ["id"], "v")

    assert ["id", "place", "v", OP] == folded.columns
    changes: dict[int, list[tuple[int, Held]]] = {}
    for row in folded.collect():
        changes.setdefault(row["id"], []).append((row[OP], (row["v"], row["place"])))
    for key, sequence in enumerate(logs):
        for existing in EXISTING:
            expected = replayed(sequence, existing)
            actual = merged(changes.get(key, []), existing)
            assert expected == actual, f"{sequence} on {existing}: {changes.get(key)}"


def random_file(dice: random.Random, number: int) -> ChangeFile:
    """Make a file that changes few keys, with values that are often equal or NULL."""
    count = dice.randrange(1, 9)
    rows = tuple(
        {
            "id": dice.randrange(4),
            "Seq": dice.choice([None, 1, 2, 3, number]),
            "v": f"{number}-{place}",
        }
        for place in range(count)
    )
    markers = tuple(dice.choice([0, 1, 1, 2, 4, 4]) for _ in range(count))
    return ChangeFile(columns=("id", "Seq", "v"), rows=rows, markers=markers)


@pytest.mark.thorough("file by file")
@pytest.mark.parametrize("cut", [None, 1], ids=["at once", "file by file"])
def test_any_cut_gives_what_the_oracle_says(
    spark: SparkSession, zone: ZoneWriter, target: str, cut: int | None
) -> None:
    """Table and feed are those of a row by row replay, however the log is cut into batches."""
    dice = random.Random(f"cut {cut}")
    files = [random_file(dice, number) for number in range(1, 6)]
    table = zone.table("t", keys=["id"])
    table.metadata({"ConditionalUpdateColumn": "seq"}, keys=["id"])
    for file in files:
        table.file(file.rows, file.markers)

    report = mirrorlib.apply(spark, str(zone), target, conditional_updates=True, max_files=cut)

    assert report.ok, str(report)
    assert not report.tables[0].warnings
    expected = replay(files, keys=["id"], conditional="seq").multiset
    assert expected != replay(files, keys=["id"]).multiset
    assert_same_rows(expected, multiset(read_rows(spark, Path(target) / "t")))
    assert_feed_replays(spark, Path(target) / "t")


def test_without_the_option_the_column_is_warned_about(
    spark: SparkSession, zone: ZoneWriter, target: str
) -> None:
    """Changes apply in file order, and the report says so."""
    table = zone.table("t", keys=["id"])
    table.metadata({"ConditionalUpdateColumn": "seq"}, keys=["id"])
    table.file([{"id": 1, "seq": 2}])
    table.file([{"id": 1, "seq": 1}], [1])

    report = mirrorlib.apply(spark, str(zone), target)

    assert any("--conditional-updates" in warning for warning in report.tables[0].warnings)
    assert [{"id": 1, "seq": 1}] == read_rows(spark, Path(target) / "t")


@pytest.mark.thorough
def test_an_update_without_the_column_stops_the_table(
    spark: SparkSession, zone: ZoneWriter, target: str
) -> None:
    """It could never be greater, and would be lost without a word; a delete needs no value."""
    table = zone.table("t", keys=["id"])
    table.metadata({"ConditionalUpdateColumn": "seq"}, keys=["id"])
    table.file([{"id": 1, "seq": 2}, {"id": 2, "seq": 2}])
    table.file([{"id": 2}], [2])
    table.file([{"id": 1, "v": "new"}], [1])

    stopped = mirrorlib.apply(spark, str(zone), target, conditional_updates=True).tables[0]

    assert ("failed", 2, "00000000000000000003.parquet") == (
        stopped.state,
        stopped.position,
        stopped.file,
    )
    assert "ConditionalUpdateColumn is missing" in stopped.reason
    assert "seq" in stopped.reason
    assert [{"id": 1, "seq": 2}] == read_rows(spark, Path(target) / "t")


@pytest.mark.thorough
def test_updates_wait_while_the_column_has_no_type(
    spark: SparkSession, zone: ZoneWriter, target: str
) -> None:
    """Until then all its values are NULL, which is not greater; without the column, each update would count."""
    table = zone.table("t", keys=["id"])
    table.metadata({"ConditionalUpdateColumn": "seq"}, keys=["id"])
    table.file([{"id": 1, "v": "old", "seq": None}])
    table.file([{"id": 1, "v": "not greater", "seq": None}], [1])

    options = {"conditional_updates": True, "max_files": 1}
    waiting = mirrorlib.apply(spark, str(zone), target, **options).tables[0]
    table.file([{"id": 2, "v": "new", "seq": 1}], [1])
    mirrorlib.apply(spark, str(zone), target, **options)

    assert ("waiting", 1) == (waiting.state, waiting.position)
    assert "The ConditionalUpdateColumn seq has no type in any published file yet" in waiting.reason
    expected = [{"id": 1, "v": "old", "seq": None}, {"id": 2, "v": "new", "seq": 1}]
    assert expected == sorted(read_rows(spark, Path(target) / "t"), key=lambda row: row["id"])
