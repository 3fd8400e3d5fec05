"""A folded batch, carried out at once, gives what replaying it row by row gives: every short log, by brute force."""

from __future__ import annotations

import itertools
import struct
from collections import Counter
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from mirrorlib.commit.stage import ADD, CHANGE, DROP, OP, PUT
from mirrorlib.ingest.batch.fold import fold_frame, fold_rows
from mirrorlib.ingest.rows.marks import MARKER, ORDER

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pyspark.sql import SparkSession

INSERT, UPDATE, DELETE, UPSERT = 0, 1, 2, 4
LONGEST = 6
SEQUENCES = tuple(
    sequence
    for length in range(1, LONGEST + 1)
    for sequence in itertools.product((INSERT, UPDATE, DELETE, UPSERT), repeat=length)
)
EXISTING = 0, 1, 2  # rows of the key that the table holds before
Change = tuple[int, int]  # op and value


def replayed(sequence: Sequence[int], existing: int) -> Counter[int]:
    """Replay the changes of one key; existing rows have negative values, changed ones their place."""
    rows = [-1 - place for place in range(existing)]
    for place, marker in enumerate(sequence):
        if marker == INSERT:
            rows.append(place)
        elif marker == DELETE:
            rows = []
        else:
            rows = [place] * len(rows) or [place]
    return Counter(rows)


def merged(changes: Iterable[Change], existing: int) -> Counter[int]:
    """Carry out the folded changes of one key as one MERGE does: matches first seen, all at once."""
    rows = [-1 - place for place in range(existing)]
    after = list(rows)
    for op, value in changes:
        if op == DROP:
            after = after[len(rows) :]
        elif op in {PUT, CHANGE} and rows:
            after = [value] * len(rows) + after[len(rows) :]
        elif op in {PUT, ADD}:
            after.append(value)
    return Counter(after)


def judge(
    changes: Iterable[tuple[int, int, int]], sequences: Sequence[Sequence[int]] = SEQUENCES
) -> None:
    """Compare (key, op, value) rows with the replay of every sequence, for 0 to 2 existing rows."""
    by_key: dict[int, list[Change]] = {}
    for key, op, value in changes:
        by_key.setdefault(key, []).append((op, value))
    for key, sequence in enumerate(sequences):
        mine = by_key.get(key, [])
        matching = [op for op, _ in mine if op in {DROP, PUT, CHANGE}]
        assert len(matching) <= 1, (
            f"{sequence}: a row of the table would match {len(matching)} times"
        )
        mine.sort(key=lambda change: change[0] == ADD)
        for existing in EXISTING:
            expected, actual = replayed(sequence, existing), merged(mine, existing)
            assert expected == actual, f"{sequence} on {existing} rows: {mine}"


@pytest.fixture(scope="module")
def log() -> pa.Table:
    """Give every sequence a key of its own; the rows of the keys are interleaved."""
    rows = [
        (place, key, marker)
        for key, sequence in enumerate(SEQUENCES)
        for place, marker in enumerate(sequence)
    ]
    rows.sort()
    values, keys, markers = zip(*rows, strict=True)
    return pa.table(
        {
            "id": pa.array(keys, pa.int64()),
            "v": pa.array(values, pa.int64()),
            MARKER: pa.array(markers, pa.int8()),
        }
    )


def test_every_short_log_folds_in_memory(log: pa.Table) -> None:
    """Every sequence of up to six markers, on no, one and two existing rows."""
    folded = fold_rows(log.select(["id", "v"]), log.column(MARKER), ["id"])

    judge(zip(*[folded.column(name).to_pylist() for name in ("id", OP, "v")], strict=True))


def test_keys_that_come_once_fold_in_memory(log: pa.Table) -> None:
    """A batch in which no key comes twice, on no, one and two existing rows."""
    once = [sequence for sequence in SEQUENCES if len(sequence) == 1]
    log = log.filter(pc.less(log.column("id"), len(once)))
    folded = fold_rows(log.select(["id", "v"]), log.column(MARKER), ["id"])

    judge(zip(*[folded.column(name).to_pylist() for name in ("id", OP, "v")], strict=True), once)


def test_every_short_log_folds_on_spark(spark: SparkSession, log: pa.Table, tmp_path: Path) -> None:
    """The large road has the same meaning."""
    order = pa.array(range(len(log)), pa.int64())
    pq.write_table(log.append_column(ORDER, order), tmp_path / "log.parquet")

    folded = fold_frame(spark.read.parquet(str(tmp_path / "log.parquet")), ["id"])

    assert ["id", "v", OP] == folded.columns
    judge((row["id"], row[OP], row["v"]) for row in folded.collect())


def test_what_is_folded_twice_is_the_same(log: pa.Table) -> None:
    """Any cut of a log into two batches gives the same rows as one batch."""
    cut = len(log) // 2
    halves = (log.slice(0, cut), log.slice(cut))
    tables: dict[tuple[int, int], Counter[int]] = {}
    for half in halves:
        folded = fold_rows(half.select(["id", "v"]), half.column(MARKER), ["id"])
        changes: dict[int, list[Change]] = {}
        columns = [folded.column(name).to_pylist() for name in ("id", OP, "v")]
        for key, op, value in zip(*columns, strict=True):
            changes.setdefault(key, []).append((op, value))
        for key, mine in changes.items():
            mine.sort(key=lambda change: change[0] == ADD)
            for existing in EXISTING:
                before = tables.get((key, existing), replayed((), existing))
                rows = list(before.elements())
                named = merged(mine, len(rows))
                back = {-1 - place: value for place, value in enumerate(rows)}
                tables[key, existing] = Counter(
                    back.get(value, value) for value in named.elements()
                )

    for (key, existing), rows in tables.items():
        assert replayed(SEQUENCES[key], existing) == rows, SEQUENCES[key]


def test_without_keys_every_row_is_an_insert() -> None:
    """Tables without keys only grow."""
    rows = pa.table({"v": [1, 1, 2]})

    folded = fold_rows(rows, pa.chunked_array([pa.array([0, 0, 0], pa.int8())]), [])

    assert [ADD] * 3 == folded.column(OP).to_pylist()


def test_no_rows_fold_to_no_rows() -> None:
    """A zero-row batch is no trouble."""
    rows = pa.table({"id": pa.array([], pa.int64())})

    assert 0 == len(fold_rows(rows, pa.chunked_array([], pa.int8()), ["id"]))


def nan(payload: int) -> float:
    """Give a NaN of a certain bit pattern."""
    return float(struct.unpack("<d", struct.pack("<Q", 0x7FF8000000000000 | payload))[0])


NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
SAME_KEYS = {
    "null": (pa.int32(), [None, None], [1]),
    "nan": (pa.float64(), [nan(1), nan(2)], [1.0]),
    "zero": (pa.float64(), [0.0, -0.0], [1.0]),
    "float zero": (pa.float32(), [-0.0, 0.0], [float("nan")]),
    "null is no nan": (pa.float64(), [None, None], [float("nan")]),
    "text": (pa.string(), ["ä", "ä"], ["a", "A", "", "ä ", None]),
    "binary": (pa.binary(), [b"\0", b"\0"], [b"", b"\0\0", None]),
    "boolean": (pa.bool_(), [True, True], [False, None]),
    "date": (pa.date32(), [date(1, 1, 1)] * 2, [date(9999, 12, 31)]),
    "instant": (pa.timestamp("us", "UTC"), [NOON] * 2, [NOON.replace(microsecond=1)]),
    "decimal": (pa.decimal128(38, 2), [Decimal("1.00")] * 2, [Decimal("-1.00"), None]),
    "big": (pa.int64(), [2**63 - 1] * 2, [-(2**63), 2**63 - 2]),
}


@pytest.mark.parametrize("name", SAME_KEYS)
def test_keys_are_equal_in_memory_as_they_are_in_spark(name: str) -> None:
    """NULL equals NULL, NaN equals NaN, -0.0 equals 0.0, and nothing else is made equal."""
    kind, same, others = SAME_KEYS[name]
    keys = [*same, *others]
    rows = pa.table({"k": pa.array(keys, kind), "v": list(range(len(keys)))})
    markers = pa.chunked_array([pa.repeat(pa.scalar(UPSERT, pa.int8()), len(keys))])

    folded = fold_rows(rows, markers, ["k"])

    assert list(range(1, len(keys))) == sorted(folded.column("v").to_pylist())


def test_keys_are_equal_on_spark(spark: SparkSession, tmp_path: Path) -> None:
    """All those key types at once, as one composite key: the first two rows are one, each other row differs."""
    arrays = {
        name: pa.array([*same, *[others[0]] * 1], kind)
        for name, (kind, same, others) in SAME_KEYS.items()
    }
    table = pa.table(arrays).append_column("v", pa.array([0, 1, 2]))
    marked = table.append_column(MARKER, pa.array([UPSERT] * 3, pa.int8()))
    pq.write_table(
        marked.append_column(ORDER, pa.array([0, 1, 2], pa.int64())), tmp_path / "k.parquet"
    )

    folded = fold_frame(spark.read.parquet(str(tmp_path / "k.parquet")), list(SAME_KEYS))
    in_memory = fold_rows(table, marked.column(MARKER), list(SAME_KEYS))

    assert [1, 2] == sorted(row["v"] for row in folded.collect())
    assert [1, 2] == sorted(in_memory.column("v").to_pylist())


def test_composite_keys_do_not_run_together() -> None:
    """("a", "bc") and ("ab", "c") are two keys, and so is every other pair."""
    pairs = list(itertools.product(["a", "ab", "", None], ["bc", "c", "", None]))
    rows = pa.table(
        {
            "k": [one for one, _ in pairs],
            "l": [two for _, two in pairs],
            "v": list(range(len(pairs))),
        }
    )
    markers = pa.chunked_array([pa.repeat(pa.scalar(UPSERT, pa.int8()), len(pairs))])

    assert len(pairs) == len(fold_rows(rows, markers, ["k", "l"]))
