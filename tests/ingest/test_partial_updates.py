"""Partial updates: what an update does not set keeps its value, within a file, across files, and in any cut."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import mirrorlib
from mirrorlib.commit.stage import ADD, CHANGE, DROP, OP, PUT, SET
from mirrorlib.delta.columns import Column
from mirrorlib.ingest.batch.fold import fold_partially
from mirrorlib.ingest.options import Options
from mirrorlib.ingest.rows.marks import MARKER, ORDER
from oracle import ChangeFile, Row, assert_same_rows, multiset, replay
from tables import assert_feed_replays, read_rows

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark.sql import SparkSession

    from zones import ZoneWriter

LONGEST = 4
SETS = ((), ("a",), ("b",), ("a", "b"))
STEPS = ((0, ("a", "b")), (2, ()), *((1, names) for names in SETS))
Step = tuple[int, tuple[str, ...]]
Held = tuple[int | None, int | None]
EXISTING: tuple[tuple[Held, ...], ...] = ((), ((-1, -2),), ((-1, None), (-3, -4)))


def sequences() -> Iterator[tuple[Step, ...]]:
    """Give every short log of one key."""
    for length in range(1, LONGEST + 1):
        yield from itertools.product(STEPS, repeat=length)


def patched(held: Held, values: Held, sets: Sequence[bool]) -> Held:
    """Return a row after an update; what is not set stays."""
    a, b = (new if flag else old for old, new, flag in zip(held, values, sets, strict=True))
    return a, b


def replayed(sequence: Sequence[Step], existing: Sequence[Held]) -> Counter[Held]:
    """Replay the changes of one key, one by one; each writes its place."""
    rows = list(existing)
    for place, (marker, names) in enumerate(sequence):
        sets = ["a" in names, "b" in names]
        if marker == 2:
            rows = []
        elif marker == 0 or not rows:
            rows.append(patched((None, None), (place, place), sets))
        else:
            rows = [patched(row, (place, place), sets) for row in rows]
    return Counter(rows)


@pytest.mark.thorough
def test_every_short_log_of_partial_updates_folds(spark: SparkSession, tmp_path: Path) -> None:
    """Every sequence of up to four inserts, deletes and updates of some columns, on no, one and two rows."""
    logs = list(sequences())
    rows = [
        {
            "id": key,
            "a": place if "a" in names else None,
            "b": place if "b" in names else None,
            MARKER: marker,
        }
        | {
            SET: [True, marker == 0 or "a" in names, marker == 0 or "b" in names],
            ORDER: place * len(logs) + key,
        }
        for key, sequence in enumerate(logs)
        for place, (marker, names) in enumerate(sequence)
    ]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "log.parquet")
    columns = tuple(Column(name, pa.int64()) for name in ("id", "a", "b"))

    folded = fold_partially(spark.read.parquet(str(tmp_path / "log.parquet")), ["id"], columns)

    assert ["id", "a", "b", SET, OP] == folded.columns
    changes: dict[int, list[tuple[int, Held, list[bool]]]] = {}
    for row in folded.collect():
        changes.setdefault(row["id"], []).append((row[OP], (row["a"], row["b"]), row[SET]))
    for key, sequence in enumerate(logs):
        for existing in EXISTING:
            after = list(existing)
            matching = [change for change in changes.get(key, []) if change[0] != ADD]
            assert len(matching) <= 1, sequence
            for op, held, sets in matching:
                if op == DROP:
                    after = []
                elif after:
                    assert op in {PUT, CHANGE}
                    after = [patched(row, held, sets[1:]) for row in after]
                elif op == PUT:
                    after = [held]
            after += [held for op, held, _ in changes.get(key, []) if op == ADD]
            assert replayed(sequence, existing) == Counter(after), f"{sequence} on {existing}"


def files_of(mode: str) -> list[tuple[list[Row], list[int]]]:
    """Give change files of one table that meet every case in one key or another."""
    listed = mode.startswith("listed:")

    def row(key: int, sets: str = "a,b,c", **values: object) -> Row:
        return {"id": key, **values, **({"Set": sets} if listed else {})}

    return [
        ([row(key, a="a", b="b", c="c") for key in range(5)], [0] * 5),
        (
            [row(0, "a", a="x"), row(1, "a", a=None), row(2, "a"), row(7, "a", a="new")],
            [1, 1, 2, 4],
        ),
        (
            [
                row(0, "c, B", b=None, c="y"),
                row(2, "b,c", b="again", c=None),
                row(0, "b", b="z", c=None),
            ],
            [1, 4, 1],
        ),
        (
            [
                row(3, b="whole", a="w"),
                row(3, "a", a="v", b=None),
                row(9, b="twice", a="1"),
                row(9, "b", b=None, a="2"),
            ],
            [4, 1, 0, 1],
        ),
    ]


@pytest.mark.thorough("absent", "nulls")
@pytest.mark.parametrize("mode", ["absent", "nulls", "listed:set"])
def test_partial_updates_keep_what_they_do_not_set(
    spark: SparkSession, zone: ZoneWriter, tmp_path: Path, mode: str
) -> None:
    """At once, file by file, and by the metadata's word: the table is the oracle's, and the feed replays to it."""
    table = zone.table("t", keys=["id"], metadata={"partialUpdates": mode})
    published = files_of(mode)
    for rows, markers in published:
        names = list(dict.fromkeys(name for row in rows for name in row))
        table.file(
            pa.Table.from_pylist(
                rows, pa.schema([(n, pa.int64() if n == "id" else pa.string()) for n in names])
            ),
            markers,
        )
    files = [
        ChangeFile(
            columns=tuple(names := tuple(dict.fromkeys(name for row in rows for name in row))),
            rows=tuple({name: row.get(name) for name in names} for row in rows),
            markers=tuple(markers),
        )
        for rows, markers in published
    ]
    expected = replay(files, keys=["id"], partial=mode).multiset
    for cut, options in (
        ("at once", {}),
        ("by file", {"max_files": 1, "partial_updates": mode, "quiet": True}),
    ):
        target = tmp_path / cut
        report = mirrorlib.apply(spark, str(zone), str(target), **options)
        assert report.ok, str(report)
        assert () == report.tables[0].warnings
        assert_same_rows(expected, multiset(read_rows(spark, target / "t")), cut)
        assert_feed_replays(spark, target / "t")
    table.metadata(keys=["id"])
    mirrorlib.apply(spark, str(zone), str(tmp_path / "whole"))
    assert expected != multiset(read_rows(spark, tmp_path / "whole" / "t"))


@pytest.mark.thorough
def test_a_list_that_names_no_column_of_the_table_stops_it(
    spark: SparkSession, zone: ZoneWriter, target: str
) -> None:
    """A name that is misspelt would set nothing: file, row and column are named, and no value."""
    table = zone.table("t", keys=["id"])
    table.file(
        [{"id": 1, "a": "x", "set": json.dumps(["a"])}, {"id": 2, "a": "y", "set": "a, nosuch"}],
        [4, 4],
    )
    options = {"partial_updates": "listed:set", "insert_policy": "upsert"}
    refused = mirrorlib.apply(spark, str(zone), target, **options).tables[0]

    assert ("failed", "SchemaError") == (refused.state, refused.error)
    assert (
        "row 1, column set: the list of what is set names a column that the table lacks"
        in refused.reason
    )
    assert "nosuch" not in refused.reason
    table.replace(1, [{"id": 1, "a": "x", "set": '["A", "set"]'}], [4])
    assert mirrorlib.apply(spark, str(zone), target, **options).ok
    assert [{"id": 1, "a": "x", "set": '["A", "set"]'}] == read_rows(spark, Path(target) / "t")
    table.file([{"id": 1, "a": "whole", "set": "nosuch"}], [0])
    assert mirrorlib.apply(spark, str(zone), target, **options).ok
    assert [{"id": 1, "a": "whole", "set": "nosuch"}] == read_rows(spark, Path(target) / "t")


@pytest.mark.thorough
def test_a_list_that_no_file_has_stops_the_table(
    spark: SparkSession, zone: ZoneWriter, target: str
) -> None:
    """Else each update would set every column; the option's right word is enough to go on, with blanks around it or not."""
    table = zone.table("t", keys=["id"])
    table.file([{"id": 1, "a": "x", "b": "y", "set": None}], [0])
    assert mirrorlib.apply(spark, str(zone), target, partial_updates="listed:sets").ok
    table.file([{"id": 1, "a": "z", "b": None, "set": "a"}], [1])
    wrong = {"partial_updates": "listed:sets"}
    refused = mirrorlib.apply(spark, str(zone), target, **wrong).tables[0]

    assert ("failed", "SchemaError") == (refused.state, refused.error)
    assert "column sets: no file of the table has the column that lists" in refused.reason
    assert refused.reason == mirrorlib.plan(spark, str(zone), target, **wrong).tables[0].reason
    assert mirrorlib.apply(spark, str(zone), target, partial_updates="listed: set ").ok
    assert [{"id": 1, "a": "z", "b": "y", "set": "a"}] == read_rows(spark, Path(target) / "t")


@pytest.mark.thorough
def test_a_list_without_a_type_lists_nothing(
    spark: SparkSession, zone: ZoneWriter, target: str
) -> None:
    """Each update sets every column then, whichever later files share its batch."""
    table = zone.table("t", keys=["id"], metadata={"partialUpdates": "listed:set"})
    table.file([{"id": 1, "a": "x", "b": "y", "set": None}], [4])
    table.file([{"id": 1, "a": "z", "b": None, "set": None}], [1])
    table.file([{"id": 2, "a": "x", "b": "y", "set": "a"}], [4])

    report = mirrorlib.apply(spark, str(zone), target, max_files=1)

    assert report.ok, str(report)
    rows = sorted(read_rows(spark, Path(target) / "t"), key=lambda row: row["id"])
    assert [("z", None), ("x", None)] == [(row["a"], row["b"]) for row in rows]


def test_partial_updates_are_asked_for_in_known_words(
    spark: SparkSession, zone: ZoneWriter, target: str
) -> None:
    """An option or a property that means nothing is refused, and partial updates that are conditional too."""
    for word in ("some", "listed:", "listed: "):
        with pytest.raises(ValueError, match="partial_updates"):
            Options(partial_updates=word)
    zone.table("odd", keys=["id"], metadata={"partialUpdates": "some"}).file([{"id": 1}])
    both = {"partialUpdates": "absent", "ConditionalUpdateColumn": "id"}
    zone.table("both", keys=["id"], metadata=both).file([{"id": 1}])
    told = {
        table.table: table.reason
        for table in mirrorlib.apply(spark, str(zone), target, conditional_updates=True).tables
    }
    assert "none of absent, nulls, listed:COLUMN, never" in told["odd"]
    assert "updates cannot be partial and conditional at once" in told["both"]
    assert "--partial-updates never" in told["both"]
