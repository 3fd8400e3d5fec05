"""Every liberty that publishers take with the format, applied on real Delta, on both roads.

Each case writes one table folder and says what has to become of it; a case that yields again publishes more in between. All
cases of a road lie in one zone. The small road folds in Arrow; for the large one every batch counts as large, so Spark reads
the files.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

import mirrorlib
from tests.oracle import assert_same_rows, multiset
from tests.zones import TableWriter, ZoneWriter

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from mirrorlib.ingest.report import TableReport

pytestmark = pytest.mark.slow
ROADS = {"small": 64 << 20, "large": -1}
FIRST, SECOND, THIRD = (f"{number:020d}.parquet" for number in (1, 2, 3))
Row = dict[str, object]


@dataclass(frozen=True, kw_only=True)
class Want:
    """What has to become of a case's table.

    Attributes:
        rows: the table's rows; None when there is no table yet.
        state: current unless said otherwise.
        reason: pieces that the reason has to have.
        file: the file that is named.
        position: the last applied number.
        types: Spark types of some columns.
        warnings: pieces of warnings, each in some warning.

    """

    rows: list[Row] | None
    state: str = "current"
    reason: tuple[str, ...] = ()
    file: str | None = None
    position: int | None = None
    types: dict[str, str] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()


Case = Callable[[ZoneWriter], Iterator[Want]]
CASES: dict[str, Case] = {}
BEFORE_THE_FORK: set[str] = set()


def case(build: Case) -> Case:
    """Take a case into the zone."""
    CASES[build.__name__] = build
    return build


def case_before_the_fork(build: Case) -> Case:
    """Take a case that is decided before a batch takes its road, so that one road shows it."""
    BEFORE_THE_FORK.add(build.__name__)
    return case(build)


def pairs(**values: object) -> list[Row]:
    """Write rows of id and v: a1=2 is {"id": 1, "v": 2}."""
    return [{"id": int(name[1:]), "v": value} for name, value in values.items()]


# Markers


@case
def markers_of_any_type_at_any_place(zone: ZoneWriter) -> Iterator[Want]:
    """Q1-Q4: by name in any case, first, last or in the middle, required or not."""
    t = zone.table("markers_of_any_type_at_any_place", keys=["id"])
    kinds = [
        pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint64(), pa.float32(), pa.float64(),
        pa.decimal128(1, 0), pa.decimal128(10, 2), pa.string(), pa.large_string(),
        pa.dictionary(pa.int32(), pa.string()), pa.dictionary(pa.int8(), pa.int32()),
        pa.float16(), pa.decimal256(50, 0), pa.string_view(),
    ]  # fmt: skip
    places = ("first", "middle", "last")
    t.file([{"id": i, "v": 0} for i in range(len(kinds) + 1)])
    for i, kind in enumerate(kinds):
        rows = [
            {"id": i, "v": 1},
            {"id": 100, "v": 1},
            {"id": 100, "v": 2},
            {"id": 200 + i, "v": i},
        ]
        t.file(
            rows,
            [1, 4, 2, 0],
            marker_type=kind,
            marker_at=places[i % 3],
            marker_name=("__rowMarker__", "__ROWMARKER__", "__rowmarker__")[i % 3],
            marker_required=i % 2 == 0,
        )
    rows = [{"id": i, "v": 1} for i in range(len(kinds))] + [{"id": len(kinds), "v": 0}]
    rows += [{"id": 200 + i, "v": i} for i in range(len(kinds))]
    yield Want(rows=rows, position=len(kinds) + 1)


@case
def white_space_around_markers(zone: ZoneWriter) -> Iterator[Want]:
    """What Unicode calls white space around a digit means nothing, on either road."""
    t = zone.table("white_space_around_markers", keys=["id"])
    t.file(pairs(a1="a", a2="a"))
    markers = pa.array(["\u00a01", " 2\t"])
    t.file(pa.table({"id": [1, 2], "v": ["b", None], "__rowMarker__": markers}))
    yield Want(rows=pairs(a1="b"), position=2)


@case_before_the_fork
def marker_that_python_cannot_show(zone: ZoneWriter) -> Iterator[Want]:
    """Nanoseconds are no marker; the message says so, and the file before is kept."""
    t = zone.table("marker_that_python_cannot_show", keys=["id"])
    t.file(pairs(a1="a"))
    markers = pa.array([1], pa.timestamp("ns"))
    t.file(pa.table({"id": [1], "v": ["b"], "__rowMarker__": markers}))
    reason = (SECOND, "row 0", "found a timestamp[ns]", "not 0, 1, 2 or 4")
    yield Want(rows=pairs(a1="a"), state="failed", reason=reason, file=SECOND, position=1)


@case
def dates_that_python_has_not(zone: ZoneWriter) -> Iterator[Want]:
    """A key may be later than the year 9999; nobody looks at it in Python."""
    t = zone.table("dates_that_python_has_not", keys=["id"])
    days = pa.array([5_865_794, 0], pa.int32()).cast(pa.date32())
    t.file(pa.table({"id": days, "v": ["a", "a"]}))
    markers = pa.array([2, 4], pa.int8())
    t.file(pa.table({"id": days, "v": ["b", "b"], "__rowMarker__": markers}))
    yield Want(rows=[{"id": date(1970, 1, 1), "v": "b"}], position=2)


@case
def unknown_marker(zone: ZoneWriter) -> Iterator[Want]:
    """Q6: nothing of that file is applied, all before it is; a repaired file under the same name goes on."""
    t = zone.table("unknown_marker", keys=["id"])
    t.file(pairs(a1="a"))
    t.file(pairs(a1="b", a2="b"), [1, 3])
    t.file(pairs(a3="c"))
    reason = (SECOND, "row 1", "column __rowMarker__", "found 3", "not 0, 1, 2 or 4")
    yield Want(rows=pairs(a1="a"), state="failed", reason=reason, file=SECOND, position=1)
    t.replace(2, pairs(a1="b", a2="b"), [1, 4])
    yield Want(rows=pairs(a1="b", a2="b", a3="c"), position=3)


@case
def null_marker(zone: ZoneWriter) -> Iterator[Want]:
    """A NULL marker means nothing where files are inserts by default."""
    t = zone.table("null_marker", keys=["id"])
    t.file(pairs(a1="a", a2="a", a3="b"), [0, 0, None])
    yield Want(rows=None, state="failed", reason=(FIRST, "row 2", "marker is NULL"), file=FIRST)


@case
def null_marker_with_upsert_default(zone: ZoneWriter) -> Iterator[Want]:
    """There it is the default: an upsert; a column of nothing but NULL too. Booleans come as text (Q22)."""
    metadata = {"isUpsertDefaultRowMarker": "TRUE"}
    t = zone.table("null_marker_with_upsert_default", keys=["id"], metadata=metadata)
    t.file(pairs(a1="a", a2="a"), [0, None])
    t.file(pairs(a1="b", a3="b"), [None, None], marker_type=pa.null())
    t.file(pairs(a1="c", a2="c"), [None, 2], marker_type=pa.string())
    rows = pairs(a1="c", a3="b")
    yield Want(rows=rows, position=3, warnings=("isUpsertDefaultRowMarker is a string",))


@case
def files_without_marker_are_inserts(zone: ZoneWriter) -> Iterator[Want]:
    """Q5: before and after files with markers; no duplicate check; no new snapshot."""
    t = zone.table("files_without_marker_are_inserts", keys=["id"])
    t.file(pairs(a1="a"))
    t.file(pairs(a1="b"), [4])
    t.file(pairs(a1="c"))
    yield Want(rows=[*pairs(a1="b"), *pairs(a1="c")], position=3)


@case
def files_without_marker_are_upserts_by_flag(zone: ZoneWriter) -> Iterator[Want]:
    """`isUpsertDefaultRowMarker` turns them into upserts."""
    metadata = {"isUpsertDefaultRowMarker": True}
    t = zone.table("files_without_marker_are_upserts_by_flag", keys=["id"], metadata=metadata)
    t.file([*pairs(a1="a", a2="a"), *pairs(a1="b")])
    yield Want(rows=pairs(a1="b", a2="a"), position=1)
    t.file(pairs(a2="c"))
    yield Want(rows=pairs(a1="b", a2="c"), position=2)


@case
def updates_without_keys(zone: ZoneWriter) -> Iterator[Want]:
    """Q24: `[""]` is no key; inserts are applied, the first update is named."""
    t = zone.table("updates_without_keys", keys=[""])
    t.file(pairs(a1="a"), [0])
    t.file(pairs(a2="a", a1="b"), [0, 2])
    reason = (SECOND, "row 1", "found 2", "need keys", "Declare keyColumns")
    yield Want(rows=pairs(a1="a"), state="failed", reason=reason, file=SECOND, position=1)


@case_before_the_fork
def keys_in_other_words(zone: ZoneWriter) -> Iterator[Want]:
    """Q20, Q21, Q23: other case, blanks, a trailing comma, a byte order mark; the repairs are named."""
    text = '\ufeff{"KeyColumns": [" ID ", "region",],\n "protocolVersion": 1}'
    t = zone.table("keys_in_other_words", metadata=text)
    t.file([{"id": 1, "Region": "x", "v": 1}, {"id": 1, "Region": "y", "v": 1}])
    t.file([{"REGION": "x", "v": 2, "Id": 1}], [1])
    warnings = (
        "byte order mark",
        "trailing comma",
        "blanks around",
        "the key column 'ID' is 'id' in the files",
        "the key column 'region' is 'Region' in the files",
        "unknown property: protocolVersion",
    )
    rows = [{"id": 1, "region": "x", "v": 2}, {"id": 1, "region": "y", "v": 1}]
    yield Want(rows=rows, position=2, warnings=warnings, types={"Region": "string"})


@case_before_the_fork
def two_markers(zone: ZoneWriter) -> Iterator[Want]:
    """Nobody can say which one counts."""
    t = zone.table("two_markers", keys=["id"])
    t.file(pa.table({"id": [1], "__rowMarker__": [0], "__ROWMARKER__": [1]}))
    yield Want(rows=None, state="failed", reason=(FIRST, "two row marker columns"), file=FIRST)


@case
def the_same_key_many_times(zone: ZoneWriter) -> Iterator[Want]:
    """Q7, Q8: delete and insert again, insert and delete what was never seen, duplicates by marker 0."""
    t = zone.table("the_same_key_many_times", keys=["id"])
    t.file(pairs(a1="old", a2="old", a3="old", a4="old"))
    yield Want(rows=pairs(a1="old", a2="old", a3="old", a4="old"))
    changes = [
        (1, "gone", 2), (1, "new", 1), (2, "gone", 2), (2, "x", 0), (2, "y", 0), (3, "dup", 0), (3, "both", 1),
        (9, "x", 0), (9, "x", 2), (8, "x", 2), (7, "a", 0), (7, "b", 0), (7, "c", 4), (6, "u", 1),
    ]  # fmt: skip
    t.file([{"id": i, "v": v} for i, v, _ in changes], [marker for *_, marker in changes])
    rows = [
        (1, "new"),
        (2, "x"),
        (2, "y"),
        (3, "both"),
        (3, "both"),
        (4, "old"),
        (7, "c"),
        (7, "c"),
        (6, "u"),
    ]
    yield Want(rows=[{"id": i, "v": v} for i, v in rows], position=2)


@case
def keys_that_are_odd_values(zone: ZoneWriter) -> Iterator[Want]:
    """NULL, NaN and -0.0 are keys like any other; keys of every type together; NULL keys are told."""
    t = zone.table("keys_that_are_odd_values", keys=["d", "s", "b", "x", "n"])
    columns = {
        "d": pa.array([math.nan, -0.0, None, 1.5], pa.float64()),
        "s": ["", "ä", None, "a'b\\`"],
        "b": [True, False, None, True],
        "x": [b"", b"\0", None, b"x"],
        "n": [Decimal("1.0"), Decimal("-0.5"), None, Decimal(7)],
    }
    t.file(pa.table({**columns, "v": [1, 2, 3, 4]}))
    yield Want(rows=None)
    columns["d"] = pa.array([-math.nan, 0.0, None, 1.5], pa.float64())
    t.file(pa.table({**columns, "v": [10, 20, 30, 40]}), [1, 4, 1, 2])
    rows = [
        {"d": math.nan, "s": "", "b": True, "x": b"", "n": 1, "v": 10},
        {"d": 0.0, "s": "ä", "b": False, "x": b"\0", "n": Decimal("-0.5"), "v": 20},
        {"v": 30},
    ]
    yield Want(rows=rows, position=2, warnings=("NULL key values",))


# Folders and files


@case_before_the_fork
def no_metadata_yet(zone: ZoneWriter) -> Iterator[Want]:
    """The table waits, however many files there are, and goes on by itself."""
    t = zone.table("no_metadata_yet", with_metadata=False)
    t.file(pairs(a1="a"))
    yield Want(rows=None, state="waiting", reason=("_metadata.json is missing",))
    t.metadata(keys=["id"])
    yield Want(rows=pairs(a1="a"), position=1)


@case_before_the_fork
def no_files_yet(zone: ZoneWriter) -> Iterator[Want]:
    """Q32: an empty folder waits, for weeks if need be; ignored and foreign files change nothing."""
    t = zone.table("no_files_yet", keys=["id"])
    (t.folder / "_00000000000000000001.parquet").write_bytes(b"half")
    (t.folder / "_scratchPad").mkdir()
    (t.folder / "notes.txt").write_text("x")
    yield Want(rows=None, state="waiting", reason=("No change file",), warnings=("notes.txt",))


@case_before_the_fork
def broken_metadata(zone: ZoneWriter) -> Iterator[Want]:
    """What no repair makes JSON fails its table, and is read again on the next run."""
    t = zone.table("broken_metadata", metadata='{"keyColumns": ["id"')
    t.file(pairs(a1="a"))
    yield Want(
        rows=None, state="failed", reason=("_metadata.json", "not JSON"), file="_metadata.json"
    )
    t.metadata(keys=["id"])
    yield Want(rows=pairs(a1="a"), position=1)


@case_before_the_fork
def gap(zone: ZoneWriter) -> Iterator[Want]:
    """Q29: the awaited name, since when, and what to do; the missing file sets all free."""
    t = zone.table("gap", keys=["id"])
    t.file(pairs(a1="a"))
    t.file(pairs(a3="c"), number=3)
    t.file(pairs(a4="d"), number=4)
    reason = (
        f"{SECOND} is missing and 2 later files wait behind it since 20",
        " UTC",
        "Publish it.",
    )
    yield Want(rows=pairs(a1="a"), state="blocked", reason=reason, file=SECOND, position=1)
    t.file(pairs(a1="b"), [1], number=2)
    yield Want(rows=pairs(a1="b", a3="c", a4="d"), position=4)


@case_before_the_fork
def zero_bytes(zone: ZoneWriter) -> Iterator[Want]:
    """Q34: the table stops before it, keeps what came earlier and goes on once the file is good."""
    t = zone.table("zero_bytes", keys=["id"])
    t.file(pairs(a1="a"))
    t.zero_bytes()
    t.file(pairs(a1="z"), [1])
    reason = (SECOND, "no bytes")
    yield Want(rows=pairs(a1="a"), state="failed", reason=reason, file=SECOND, position=1)
    t.replace(2, pairs(a1="b", a2="b"), [1, 4])
    yield Want(rows=pairs(a1="z", a2="b"), position=3)


@case_before_the_fork
def truncated(zone: ZoneWriter) -> Iterator[Want]:
    """A file without its footer."""
    t = zone.table("truncated", keys=["id"])
    t.truncated(pairs(a9="x"))
    yield Want(rows=None, state="failed", reason=(FIRST, "not whole Parquet"), file=FIRST)


@case_before_the_fork
def no_parquet(zone: ZoneWriter) -> Iterator[Want]:
    """A file of something else."""
    t = zone.table("no_parquet", keys=["id"])
    t.garbage()
    yield Want(rows=None, state="failed", reason=(FIRST, "not whole Parquet"), file=FIRST)


@case_before_the_fork
def growing(zone: ZoneWriter) -> Iterator[Want]:
    """Q35: an upload straight to the final name, seen in the middle."""
    t = zone.table("growing", keys=["id"])
    upload = t.growing(pairs(a1="a"))
    yield Want(rows=None, state="failed", reason=(FIRST, "still being written"), file=FIRST)
    upload.finish()
    yield Want(rows=pairs(a1="a"), position=1)


@case_before_the_fork
def applied_file_changed(zone: ZoneWriter) -> Iterator[Want]:
    """Q30: several writers take one number; that is reported and never read again; later files are applied."""
    t = zone.table("applied_file_changed", keys=["id"])
    t.file(pairs(a1="a"))
    t.file(pairs(a2="a"))
    yield Want(rows=pairs(a1="a", a2="a"), position=2)
    t.file(pairs(a3="c"))
    yield Want(rows=pairs(a1="a", a2="a", a3="c"), position=3)
    t.replace(1, pairs(a1="other"))
    t.zero_bytes(2)
    t.file(pairs(a4="d"), number=4)
    warnings = (f"has been changed since is not read again: {FIRST}, {SECOND} (2 in all)",)
    yield Want(rows=pairs(a1="a", a2="a", a3="c", a4="d"), position=4, warnings=warnings)
    t.replace(4, pairs(a4="other"))
    rows = pairs(a1="a", a2="a", a3="c", a4="d")
    reason = (f"{4:020d}.parquet", "holds something else")
    yield Want(rows=rows, position=4, state="failed", reason=reason, file=f"{4:020d}.parquet")


@case
def zero_rows(zone: ZoneWriter) -> Iterator[Want]:
    """Q11, Q36: fine anywhere, as first file with columns of no type too."""
    t = zone.table("zero_rows", keys=["id"])
    t.file(pa.table({"id": pa.nulls(0), "v": pa.nulls(0)}))
    t.file(pa.table({"id": pa.array([], pa.int32()), "w": pa.array([], pa.int8())}), [])
    t.file(pairs(a1="a"))
    t.file(pa.table({"v": pa.nulls(0)}))
    yield Want(rows=pairs(a1="a"), position=4, types={"id": "int", "w": "tinyint"})
    t.file(pa.table({"id": pa.nulls(0)}), [])
    yield Want(rows=pairs(a1="a"), position=5)


@case_before_the_fork
def only_untyped_columns(zone: ZoneWriter) -> Iterator[Want]:
    """Such a table waits for a file that says what its columns are."""
    t = zone.table("only_untyped_columns", keys=["id"])
    t.file(pa.table({"id": pa.nulls(0), "v": pa.nulls(0)}))
    yield Want(rows=None, state="waiting", reason=("column with a type",), file=FIRST)
    t.zero_bytes()
    yield Want(rows=None, state="failed", reason=(SECOND, "no bytes"), file=SECOND)


@case
def deletes_with_keys_only(zone: ZoneWriter) -> Iterator[Want]:
    """Q9: missing columns are no schema change; deleting what is not there is nothing."""
    t = zone.table("deletes_with_keys_only", keys=["id"])
    t.file(pairs(a1="a", a2="b"))
    yield Want(rows=pairs(a1="a", a2="b"))
    t.file([{"id": 1}, {"id": 7}], [2, 2], marker_at="first", marker_type=pa.int64())
    yield Want(rows=pairs(a2="b"), position=2)


@case
def a_key_column_is_missing(zone: ZoneWriter) -> Iterator[Want]:
    """A change without its key has no meaning."""
    t = zone.table("a_key_column_is_missing", keys=["id", "w"])
    t.file([{"id": 1, "w": 1}])
    t.file([{"id": 1}], [2])
    reason = (SECOND, "column w", "missing in the file")
    yield Want(rows=[{"id": 1, "w": 1}], state="failed", reason=reason, file=SECOND, position=1)


@case_before_the_fork
def metadata_written_again(zone: ZoneWriter) -> Iterator[Want]:
    """Q25: while data flows, with other words, and absent for a moment."""
    t = zone.table("metadata_written_again", keys=["id"])
    t.file(pairs(a1="a"))
    yield Want(rows=pairs(a1="a"), position=1)
    (t.folder / "_metadata.json").unlink()
    t.file(pairs(a1="b"), [1])
    yield Want(rows=pairs(a1="a"), state="waiting", reason=("_metadata.json is missing",))
    t.metadata({"keyColumns": ["ID"], "isUpsertDefaultRowMarker": "false"})
    yield Want(rows=pairs(a1="b"), position=2)


@case
def many_small_files(zone: ZoneWriter) -> Iterator[Want]:
    """Q37: a row each; the huge ones are in the benchmarks."""
    t = zone.table("many_small_files", keys=["id"])
    for number in range(30):
        t.file([{"id": number % 7, "v": number}], [4])
    yield Want(rows=[{"id": n % 7, "v": n} for n in range(23, 30)], position=30)


# Columns


@case
def nullability_flips(zone: ZoneWriter) -> Iterator[Want]:
    """Q19: required in one file, optional in the next, and a new column that is required."""
    t = zone.table("nullability_flips", keys=["id"])
    key = pa.field("id", pa.int64(), nullable=False)
    required, optional = pa.field("v", pa.string(), nullable=False), pa.field("v", pa.string())
    new = pa.field("w", pa.int32(), nullable=False)
    t.file(pa.table({"id": [1], "v": ["a"]}, schema=pa.schema([key, required])))
    t.file(pa.table({"id": [2], "v": [None]}, schema=pa.schema([key, optional])))
    t.file(pa.table({"id": [3], "v": ["c"], "w": [7]}, schema=pa.schema([key, required, new])))
    t.file(pairs(a4="d"), number=4)
    rows: list[Row] = [
        {"id": 1, "v": "a"},
        {"id": 2},
        {"id": 3, "v": "c", "w": 7},
        {"id": 4, "v": "d"},
    ]
    yield Want(rows=rows, position=4)


@case_before_the_fork
def what_stands_for_null_is_kept(zone: ZoneWriter) -> Iterator[Want]:
    """Q18: an empty text, "None" and 0 are values; nobody can tell that they were meant otherwise."""
    t = zone.table("what_stands_for_null_is_kept", keys=["id"])
    rows: list[Row] = [{"id": 1, "v": "", "n": 0}, {"id": 2, "v": "None", "n": 0}]
    t.file(rows)
    yield Want(rows=rows, position=1)


@case
def columns_come_and_go(zone: ZoneWriter) -> Iterator[Want]:
    """Q12: any order, new ones at the end or in the middle, dropped ones are NULL, other case is the same."""
    t = zone.table("columns_come_and_go", keys=["id"])
    t.file([{"id": 1, "a": "a1", "b": "b1"}])
    t.file([{"b": "b2", "id": 2, "a": "a2"}])
    yield Want(rows=[{"id": 1, "a": "a1", "b": "b1"}, {"id": 2, "a": "a2", "b": "b2"}])
    t.file([{"c": 1.5, "id": 3, "B": "b3", "d": True, "A": "a3"}])
    t.file([{"A": "a1x", "ID": 1}], [1])
    t.file(pa.table({"id": [4], "a": pa.nulls(1), "e": pa.nulls(1)}))
    rows: list[Row] = [
        {"id": 1, "a": "a1x"}, {"id": 2, "a": "a2", "b": "b2"},
        {"id": 3, "a": "a3", "b": "b3", "c": 1.5, "d": True}, {"id": 4},
    ]  # fmt: skip
    types = {"id": "bigint", "a": "string", "b": "string", "c": "double", "d": "boolean"}
    yield Want(rows=rows, position=5, types=types, warnings=("updates lack columns",))


@case
def untyped_columns_become_typed(zone: ZoneWriter) -> Iterator[Want]:
    """Q10: Arrow's null type is no type; Spark would read it as int."""
    t = zone.table("untyped_columns_become_typed", keys=["id"])
    t.file(pa.table({"id": [1], "v": pa.nulls(1)}))
    t.file(pa.table({"id": [2], "v": ["b"]}))
    t.file(pa.table({"id": [3], "v": pa.nulls(1)}))
    yield Want(rows=[{"id": 1}, {"id": 2, "v": "b"}, {"id": 3}], types={"v": "string"})
    t.file(pa.table({"id": [2], "v": pa.nulls(1)}), [1])
    yield Want(rows=[{"id": 1}, {"id": 2}, {"id": 3}], position=4)


@case
def numbers_drift(zone: ZoneWriter) -> Iterator[Want]:
    """Q13, Q14: whole doubles fit, wider types widen in place, the rest rewrites the table."""
    t = zone.table("numbers_drift", keys=["id"])
    first = {
        "id": pa.array([1], pa.int32()), "whole": pa.array([5], pa.int64()), "broken": pa.array([6], pa.int64()),
        "grows": pa.array([7], pa.int32()), "dec": pa.array([Decimal("12.34")], pa.decimal128(4, 2)),
        "scale": pa.array([Decimal("1.5")], pa.decimal128(2, 1)), "f": pa.array([0.1], pa.float32()),
        "small": pa.array([1], pa.int8()), "intdec": pa.array([3], pa.int32()), "back": pa.array([1.0]),
        "day": [date(2026, 3, 1)],
    }  # fmt: skip
    t.file(pa.table(first))
    single = pa.array([0.1], pa.float32())[0].as_py()
    rows = [{**{name: values[0] for name, values in first.items() if name != "f"}, "f": single}]
    rows = [
        {name: v.as_py() if isinstance(v, pa.Scalar) else v for name, v in row.items()}
        for row in rows
    ]
    types = {"whole": "bigint", "dec": "decimal(4,2)", "f": "float", "small": "tinyint"}
    yield Want(rows=rows, types=types)
    second = {
        "id": pa.array([2], pa.int64()), "whole": [8.0], "broken": [5.5], "grows": [2**40],
        "dec": pa.array([Decimal("99999.5")], pa.decimal128(6, 1)),
        "scale": pa.array([Decimal("1.125")], pa.decimal128(4, 3)), "f": [0.2], "small": pa.array([300], pa.int16()),
        "intdec": pa.array([Decimal("2.5")], pa.decimal128(3, 1)), "back": pa.array([2**53], pa.int64()),
        "day": pa.array([datetime(2026, 3, 1, 12)], pa.timestamp("us")),
    }  # fmt: skip
    t.file(pa.table(second))
    added = {
        name: pa.array(v)[0].as_py() if isinstance(v, list) else v[0].as_py()
        for name, v in second.items()
    }
    rows = [{**rows[0], "day": datetime(2026, 3, 1, tzinfo=UTC)}]
    types = {
        "id": "int", "whole": "bigint", "broken": "double", "grows": "bigint", "dec": "decimal(7,2)",
        "scale": "decimal(4,3)", "f": "double", "small": "smallint", "intdec": "decimal(11,1)", "back": "double",
        "day": "timestamp",
    }  # fmt: skip
    yield Want(rows=[*rows, added], position=2, types=types)


@case
def numbers_fit_what_is_narrower(zone: ZoneWriter) -> Iterator[Want]:
    """A wider type whose values all fit changes nothing, value by value."""
    t = zone.table("numbers_fit_what_is_narrower", keys=["id"])
    t.file(
        pa.table(
            {
                "id": pa.array([1], pa.int16()),
                "d": pa.array([Decimal("1.50")], pa.decimal128(9, 2)),
                "f": pa.array([1.5], pa.float32()),
                "t": [date(2026, 1, 1)],
            }
        )
    )
    t.file(
        pa.table(
            {
                "id": [2.0],
                "d": pa.array([2], pa.int64()),
                "f": [2.5],
                "t": pa.array([datetime(2026, 1, 2)], pa.timestamp("ms")),
            }
        )
    )
    t.file(
        pa.table(
            {
                "id": pa.array([3], pa.uint64()),
                "d": [3.25],
                "f": pa.array([3], pa.int8()),
                "t": pa.array([datetime(2026, 1, 3)], pa.timestamp("ns")),
            }
        )
    )
    t.file(
        pa.table(
            {
                "id": pa.array([Decimal("4.000")]),
                "d": pa.array([Decimal("4.100")], pa.decimal256(30, 3)),
                "f": [math.nan],
                "t": [None],
            }
        )
    )
    rows: list[Row] = [
        {"id": 1, "d": Decimal("1.5"), "f": 1.5, "t": date(2026, 1, 1)}, {"id": 2, "d": 2, "f": 2.5, "t": date(2026, 1, 2)},
        {"id": 3, "d": Decimal("3.25"), "f": 3, "t": date(2026, 1, 3)}, {"id": 4, "d": Decimal("4.1"), "f": math.nan},
    ]  # fmt: skip
    yield Want(
        rows=rows,
        types={"id": "smallint", "d": "decimal(9,2)", "f": "float", "t": "date"},
        position=4,
    )


@case
def no_type_holds_both(zone: ZoneWriter) -> Iterator[Want]:
    """No bigint is ever rounded to a double: not in a batch."""
    t = zone.table("no_type_holds_both", keys=["id"])
    t.file(pa.table({"id": [1], "v": [2**60 + 1]}))
    t.file(pa.table({"id": [2], "v": [5.5]}))
    reason = (SECOND, "column v", "fit")
    rows = [{"id": 1, "v": 2**60 + 1}]
    yield Want(
        rows=rows, state="failed", reason=reason, file=SECOND, position=1, types={"v": "bigint"}
    )


@case
def no_type_holds_both_later(zone: ZoneWriter) -> Iterator[Want]:
    """Nor when the table is rewritten, at the very end of the range either."""
    t = zone.table("no_type_holds_both_later", keys=["id"])
    t.file(pa.table({"id": [1], "v": [2**63 - 1]}))
    rows = [{"id": 1, "v": 2**63 - 1}]
    yield Want(rows=rows)
    t.file(pa.table({"id": [2], "v": [5.5]}))
    yield Want(
        rows=rows,
        state="failed",
        file=SECOND,
        reason=("column v", "bigint"),
        position=1,
        types={"v": "bigint"},
    )


@case
def timestamps(zone: ZoneWriter) -> Iterator[Want]:
    """Q15: every unit, with zone and without, INT96 with its far years; without zone is UTC."""
    t = zone.table("timestamps", keys=["id"])
    moment = datetime(2026, 3, 1, 12, 30, 15, 123456)
    plus = timezone(timedelta(hours=5, minutes=30))
    milli, aware = moment.replace(microsecond=123000), moment.replace(tzinfo=plus)
    t.file(pa.table({"id": [1], "t": pa.array([moment], pa.timestamp("us"))}))
    t.file(pa.table({"id": [2], "t": pa.array([milli], pa.timestamp("ms"))}))
    t.file(pa.table({"id": [3], "t": pa.array([moment], pa.timestamp("ns"))}))
    t.file(pa.table({"id": [4], "t": pa.array([aware], pa.timestamp("us", "+05:30"))}))
    t.file(pa.table({"id": [5], "t": pa.array([milli], pa.timestamp("ms", "UTC"))}))
    t.file(pa.table({"id": [6], "t": pa.array([moment], pa.timestamp("ns", "Asia/Bangkok"))}))
    far = [datetime(9999, 12, 31, 23, 59, 59, 999999), datetime(1600, 1, 1, 5), moment]
    t.file(
        pa.table({"id": [7, 8, 9], "t": pa.array(far, pa.timestamp("us"))}),
        parquet={"use_deprecated_int96_timestamps": True},
    )
    t.file(pa.table({"id": [10, 11], "t": pa.array(far[:2], pa.timestamp("us"))}))
    t.file(pa.table({"id": [12], "t": [date(2026, 3, 1)]}))
    values = [
        moment, milli, moment, aware, milli, moment.replace(tzinfo=UTC), *far, *far[:2], datetime(2026, 3, 1),
    ]  # fmt: skip
    yield Want(
        rows=[{"id": i, "t": value} for i, value in enumerate(values, 1)],
        types={"t": "timestamp"},
        position=9,
    )


@case
def nanoseconds_that_are_no_microseconds(zone: ZoneWriter) -> Iterator[Want]:
    """They are never cut; the row is named."""
    t = zone.table("nanoseconds_that_are_no_microseconds", keys=["id"])
    t.file(pa.table({"id": [1]}))
    t.file(pa.table({"id": [1, 2, 3], "t": pa.array([1000, None, 1001], pa.timestamp("ns"))}))
    reason = (SECOND, "row 2", "column t", "timestamp[ns]", "microseconds")
    yield Want(rows=[{"id": 1}], state="failed", reason=reason, file=SECOND, position=1)


@case
def times_of_day(zone: ZoneWriter) -> Iterator[Want]:
    """Delta has no TIME: text with six digits, that sorts as it should."""
    t = zone.table("times_of_day", keys=["id"])
    noon = time(12, 0, 1, 500)
    t.file(pa.table({"id": [1], "t": pa.array([noon], pa.time64("us"))}))
    t.file(pa.table({"id": [2], "t": pa.array([time(0)], pa.time32("ms"))}))
    t.file(pa.table({"id": [3], "t": pa.array([time(23, 59, 59, 999999)], pa.time64("ns"))}))
    rows = [
        {"id": 1, "t": "12:00:01.000500"},
        {"id": 2, "t": "00:00:00.000000"},
        {"id": 3, "t": "23:59:59.999999"},
    ]
    yield Want(rows=rows, types={"t": "string"}, position=3)
    t.file(pa.table({"id": [4], "t": pa.array([1001], pa.time64("ns"))}))
    yield Want(
        rows=rows,
        state="failed",
        reason=("row 0", "column t"),
        file=f"{4:020d}.parquet",
        position=3,
    )


@case
def types_without_a_place_of_their_own(zone: ZoneWriter) -> Iterator[Want]:
    """Unsigned, float16, dictionaries, large and fixed binary, views, decimal256."""
    t = zone.table("types_without_a_place_of_their_own", keys=["id"])
    values = {
        "id": pa.array([1], pa.int64()), "u8": pa.array([255], pa.uint8()), "u16": pa.array([2**16 - 1], pa.uint16()),
        "u32": pa.array([2**32 - 1], pa.uint32()), "u64": pa.array([2**64 - 1], pa.uint64()),
        "f16": pa.array([1.5], pa.float16()), "dict": pa.array(["x"]).dictionary_encode(),
        "ls": pa.array(["x"], pa.large_string()), "lb": pa.array([b"\xff"], pa.large_binary()),
        "fb": pa.array([b"abc"], pa.binary(3)), "d256": pa.array([Decimal("1.5")], pa.decimal256(38, 2)),
        "sv": pa.array(["x"], pa.string_view()), "bv": pa.array([b"x"], pa.binary_view()), "d64": pa.array([date(2026, 1, 1)], pa.date64()),
        "neg": pa.array([Decimal("-0.01")], pa.decimal128(38, 10)),
    }  # fmt: skip
    t.file(pa.table(values))
    types = {
        "u8": "smallint", "u16": "int", "u32": "bigint", "u64": "decimal(20,0)", "f16": "float", "dict": "string",
        "fb": "binary", "d256": "decimal(38,2)", "sv": "string", "bv": "binary", "d64": "date",
    }  # fmt: skip
    yield Want(rows=[{name: array[0].as_py() for name, array in values.items()}], types=types)
    plain = {name: v for name, v in values.items() if name in {"u8", "u32", "fb", "ls"}}
    t.file(pa.table({"id": [2], **plain}))
    rows = [
        {"id": i, **{name: v[0].as_py() for name, v in some.items() if name != "id"}}
        for i, some in ((1, values), (2, plain))
    ]
    yield Want(rows=rows, position=2)


@case
def type_flips(zone: ZoneWriter) -> Iterator[Want]:
    """Q16: file, column, both types and the row; NULLs before it are no misfit."""
    t = zone.table("type_flips", keys=["id"])
    t.file(pa.table({"id": [1], "t": [datetime(2026, 1, 1)]}))
    t.file(pa.table({"id": [2], "t": pa.array([None], pa.string())}))
    t.file(pa.table({"id": [3, 4, 5], "t": [None, None, "not a date"]}))
    reason = (
        THIRD,
        "row 2",
        "column t",
        "string in the file, timestamp in the table",
        "no type holds both",
    )
    rows = [{"id": 1, "t": datetime(2026, 1, 1)}, {"id": 2}]
    yield Want(rows=rows, state="failed", reason=reason, file=THIRD, position=2)


def _refused(
    zone: ZoneWriter, name: str, value: object, kind: pa.DataType, reason: str, column: str = "v"
) -> Iterator[Want]:
    t = zone.table(name, keys=["id"])
    t.file(pa.table({"id": [2], column: pa.array([value], kind)}))
    want = (FIRST, f"column {column}", reason)
    yield Want(rows=None, state="failed", reason=want, file=FIRST)


@case_before_the_fork
def lists_are_refused(zone: ZoneWriter) -> Iterator[Want]:
    """Nested values have no place in the format: JSON text has."""
    yield from _refused(zone, "lists_are_refused", [1], pa.list_(pa.int64()), "JSON string")


@case_before_the_fork
def structs_are_refused(zone: ZoneWriter) -> Iterator[Want]:
    """Structs neither."""
    yield from _refused(
        zone, "structs_are_refused", {"a": 1}, pa.struct([("a", pa.int64())]), "JSON string"
    )


@case_before_the_fork
def decimals_too_long_are_refused(zone: ZoneWriter) -> Iterator[Want]:
    """Delta ends at 38 digits."""
    yield from _refused(
        zone, "decimals_too_long_are_refused", Decimal(1), pa.decimal256(39, 0), "38 digits"
    )


@case_before_the_fork
def reserved_names_are_refused(zone: ZoneWriter) -> Iterator[Want]:
    """The change feed has columns of its own."""
    yield from _refused(
        zone, "reserved_names_are_refused", "x", pa.string(), "reserved", "_Change_Type"
    )


@case_before_the_fork
def our_own_names_are_refused(zone: ZoneWriter) -> Iterator[Want]:
    """So has mirrorlib while it works."""
    yield from _refused(
        zone, "our_own_names_are_refused", "x", pa.string(), "reserved", "_mirror_op"
    )


@case_before_the_fork
def names_too_long_are_refused(zone: ZoneWriter) -> Iterator[Want]:
    """What came before the file with the name is applied."""
    t = zone.table("names_too_long_are_refused", keys=["id"])
    t.file(pa.table({"id": [1]}))
    t.file(pa.table({"id": [2], "x" * 300: [1]}))
    reason = (SECOND, "too long")
    yield Want(rows=[{"id": 1}], state="failed", reason=reason, file=SECOND, position=1)


@case_before_the_fork
def names_that_differ_by_case_are_refused(zone: ZoneWriter) -> Iterator[Want]:
    """In one file they are two columns, in Delta one."""
    t = zone.table("names_that_differ_by_case_are_refused", keys=["id"])
    t.file(pa.table({"id": [1], "v": [1], "V": [2]}))
    yield Want(
        rows=None, state="failed", reason=(FIRST, "differ only by case", "v and V"), file=FIRST
    )


@case_before_the_fork
def names_that_need_column_mapping_late(zone: ZoneWriter) -> Iterator[Want]:
    """A table that was created without it gets it then."""
    t = zone.table("names_that_need_column_mapping_late", keys=["id"])
    t.file(pa.table({"id": [1]}))
    yield Want(rows=[{"id": 1}])
    t.file(pa.table({"id": [2]}))
    t.file(pa.table({"id": [3], "a b": [1]}))
    yield Want(rows=[{"id": 1}, {"id": 2}, {"id": 3, "a b": 1}], position=3)


@case_before_the_fork
def pandas_index_is_a_column(zone: ZoneWriter) -> Iterator[Want]:
    """Q17: stray, but data."""
    t = zone.table("pandas_index_is_a_column", keys=["id"])
    t.file([{"id": 1, "__index_level_0__": 7}])
    yield Want(rows=[{"id": 1, "__index_level_0__": 7}])


@case
def writers_of_every_kind(zone: ZoneWriter) -> Iterator[Want]:
    """Q38: codecs, page versions, encodings, row groups; Spark cannot read all of them by itself."""
    t = zone.table("writers_of_every_kind", keys=["id"])
    plain: dict[str, object] = {"use_dictionary": False}
    deltas = {"id": "DELTA_BINARY_PACKED", "v": "DELTA_LENGTH_BYTE_ARRAY", "d": "PLAIN"}
    kinds: list[dict[str, object]] = [
        *[{"compression": codec} for codec in ("snappy", "gzip", "zstd", "brotli", "none", "lz4")],
        *[{"data_page_version": version, "row_group_size": 2} for version in ("1.0", "2.0")],
        {**plain, "use_byte_stream_split": ["d"]},
        {**plain, "column_encoding": deltas, "data_page_version": "2.0"},
        {**plain, "column_encoding": {**deltas, "v": "DELTA_BYTE_ARRAY"}},
        {"store_schema": False, "version": "1.0"},
        {"write_page_index": True, "write_page_checksum": True, "sorting_columns": None},
    ]  # fmt: skip
    want: list[Row] = []
    for i, kind in enumerate(kinds):
        rows: list[Row] = [{"id": 10 * i + j, "v": f"{i}-{j}" * j, "d": j / 3} for j in range(5)]
        t.file(rows, [4] * 5, parquet=kind)
        want += rows
    yield Want(rows=want, position=len(kinds))


# The same for both roads


@dataclass(frozen=True)
class Run:
    """One road's results: reports and tables after each phase."""

    phases: list[dict[str, tuple[Want, TableReport, pa.Table | None]]]


def cases_of(road: str) -> list[str]:
    """Name the cases that a road decides."""
    return [name for name in CASES if road == "small" or name not in BEFORE_THE_FORK]


def _phases(spark: SparkSession, root: Path, names: list[str]) -> Run:
    zone, target = ZoneWriter(root / "zone"), root / "target"
    steps = {name: CASES[name](zone) for name in names}
    phases = []
    while steps:
        wants = {name: want for name, step in steps.items() if (want := next(step, None))}
        steps = {name: steps[name] for name in wants}
        if not wants:
            break
        report = mirrorlib.apply(spark, str(zone), str(target), tables=list(wants))
        phases.append(
            {
                one.table: (wants[one.table], one, _rows(spark, target / one.table))
                for one in report.tables
            }
        )
    return Run(phases)


def _rows(spark: SparkSession, table: Path) -> tuple[dict[str, str], list[Row]] | None:
    if not (table / "_delta_log").exists():
        return None
    frame = spark.read.format("delta").load(str(table))
    return dict(frame.dtypes), [row.asDict() for row in frame.collect()]


@pytest.fixture(scope="module")
def runs(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Run]:
    """Publish and apply all cases of a road, phase by phase, when its first case is looked at."""

    @cache
    def run(road: str) -> Run:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("mirrorlib.ingest.batch.open_batch.SMALL_BYTES", ROADS[road])
            return _phases(spark, tmp_path_factory.mktemp(road), cases_of(road))

    return run


@pytest.mark.thorough("large-*")
@pytest.mark.parametrize("road, name", [(road, name) for road in ROADS for name in cases_of(road)])
def test_case(runs: Callable[[str], Run], road: str, name: str) -> None:
    """State, reason, file, position, warnings, rows and types, after every phase."""
    phases = runs(road).phases
    seen = [phase[name] for phase in phases if name in phase]

    assert seen
    for want, report, table in seen:
        judge(want, report, table)


def judge(want: Want, report: TableReport, table: tuple[dict[str, str], list[Row]] | None) -> None:
    """Compare one table with what a case wants."""
    assert want.state == report.state, report.reason
    for piece in want.reason:
        assert piece in report.reason
    assert bool(want.reason) == bool(report.reason)
    assert want.file == report.file
    assert want.position in {None, report.position}
    for piece in want.warnings:
        assert any(piece in warning for warning in report.warnings), report.warnings
    if want.rows is None:
        return
    assert table is not None, "there is no table"
    types, rows = table
    assert not [name for name in types if name.lower() == "__rowmarker__" or "_mirror" in name]
    assert want.types == {name: types.get(name) for name in want.types}
    assert_same_rows(multiset(want.rows), multiset(rows))


# Options, and what only the large road has


@pytest.fixture(params=ROADS)
def road(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Take each road in turn."""
    monkeypatch.setattr("mirrorlib.ingest.batch.open_batch.SMALL_BYTES", ROADS[request.param])
    return str(request.param)


@pytest.mark.thorough("large")
@pytest.mark.usefixtures("road")
def test_rows_keep_their_order_over_files_and_row_groups(
    spark: SparkSession, zone: ZoneWriter, target: str
) -> None:
    """However Spark splits the files: the last change of a key wins, by file, then by row."""
    t = zone.table("t", keys=["id"])
    t.file([{"id": i, "v": -1} for i in range(20)])
    last: dict[int, int] = {}
    for number in range(3):
        rows = [{"id": (i * 7 + number) % 20, "v": number * 1000 + i} for i in range(300)]
        marker_free = number == 1
        markers = [1 + 3 * (i % 2) for i in range(300)]
        t.file(
            rows[:20] if marker_free else rows,
            None if marker_free else markers,
            parquet={"row_group_size": 16},
        )
        if not marker_free:
            last |= {row["id"]: row["v"] for row in rows}
    spark.conf.set("spark.sql.files.maxPartitionBytes", "2048")
    try:
        policy = mirrorlib.apply(spark, str(zone), target, insert_policy="upsert")
    finally:
        spark.conf.unset("spark.sql.files.maxPartitionBytes")

    assert policy.ok
    _, rows = _rows(spark, Path(target) / "t") or ({}, [])
    assert_same_rows(multiset({"id": i, "v": v} for i, v in last.items()), multiset(rows))


@pytest.mark.thorough
@pytest.mark.usefixtures("road")
def test_policies_are_kept(spark: SparkSession, zone: ZoneWriter, target: str) -> None:
    """Strict takes no column, add no type, a limit no rewrite; keep leaves timestamps without zone; limits cut batches."""
    moment = datetime(2026, 3, 1, 12)
    for name in ("strict", "add", "limit", "ntz"):
        t = zone.table(name, keys=["id"])
        t.file(pa.table({"id": [1], "v": [1], "t": pa.array([moment], pa.timestamp("ms"))}))
    mirrorlib.apply(spark, str(zone), target, tables=["strict", "add", "limit"])
    for name in ("strict", "add", "limit"):
        t = TableWriter(folder=zone.root / name, name=name, last=1)
        t.file(pa.table({"id": [2], "v": [2.0]}))
        t.file(pa.table({"id": [3], "w": ["x"]}))
        t.file(pa.table({"id": [4], "v": [5.5]}))
    found = {
        name: mirrorlib.apply(spark, str(zone), target, tables=[name], **options).tables[0]
        for name, options in {
            "strict": {"evolution": "strict", "max_files": 1},
            "add": {"evolution": "add", "max_bytes": 1},
            "limit": {"rewrite_limit": 0},
            "ntz": {"ntz": "keep"},
        }.items()
    }

    assert [2, 3, 3, 1] == [found[name].position for name in ("strict", "add", "limit", "ntz")]
    assert "evolution is strict" in found["strict"].reason
    assert "evolution is add" in found["add"].reason
    assert "rewrite limit" in found["limit"].reason
    assert [1, 2, 1, 1] == [len(found[name].batches) for name in ("strict", "add", "limit", "ntz")]
    types, rows = _rows(spark, Path(target) / "ntz") or ({}, [])
    assert "timestamp_ntz" == types["t"]
    assert [moment] == [row["t"] for row in rows]


def test_limits_do_not_hide_the_first_typed_file(
    spark: SparkSession, zone: ZoneWriter, target: str
) -> None:
    """Q11 with one file a batch: files without types go along with the first that has them."""
    t = zone.table("t", keys=["id"])
    for _ in range(3):
        t.file(pa.table({"id": pa.nulls(0), "v": pa.nulls(0)}))
    t.file(pairs(a1="a"))
    t.file(pairs(a2="b"))
    assert "behind" == mirrorlib.plan(spark, str(zone), target, max_files=1).tables[0].state

    report = mirrorlib.apply(spark, str(zone), target, max_files=1).tables[0]

    assert ("current", 5) == (report.state, report.position)
    assert [4, 1] == [batch.files for batch in report.batches]


def test_limits_do_not_hide_a_broken_file_behind_one_without_types(
    spark: SparkSession, zone: ZoneWriter, target: str
) -> None:
    """The second file is opened for its types, and is the one that is wrong."""
    t = zone.table("t", keys=["id"])
    t.file(pa.table({"id": pa.nulls(0)}))
    broken = t.zero_bytes()

    planned = mirrorlib.plan(spark, str(zone), target, max_files=1).tables[0]
    report = mirrorlib.apply(spark, str(zone), target, max_files=1).tables[0]

    assert ("failed", broken.name) == (report.state, report.file) == (planned.state, planned.file)


@pytest.mark.parametrize(
    "options", [{"insert_policy": "Upsert"}, {"evolution": "any"}, {"ntz": ""}, {"max_files": 0}]
)
def test_words_that_mean_nothing_are_refused(
    spark: SparkSession, zone: ZoneWriter, target: str, options: dict[str, object]
) -> None:
    """They would otherwise be taken for the other choice, in silence."""
    with pytest.raises(ValueError, match="has to be"):
        mirrorlib.apply(spark, str(zone), target, **options)  # type: ignore[arg-type]  # on purpose
