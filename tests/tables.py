"""Read what a mirror made, with Spark's own Delta reader: rows, change feeds, commits.

In: a session and a table's path. Out: plain dicts, for the oracle. The feed is read in stretches of
one schema: Delta refuses to read it across a change of a column's type, so each stretch is read from
a view of the table that ends with it.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections import Counter
from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import mirrorlib
from computes import said_by
from oracle import (
    FEED_COLUMNS,
    Rows,
    assert_same_rows,
    canonical_row,
    multiset,
    replay_feed,
    state_at,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True, slots=True, kw_only=True)
class Version:
    """One commit: its number, the column types from then on, whether it took files away, what mirrorlib says."""

    number: int
    types: dict[str, str]
    removes: bool
    ours: dict[str, Any] | None


def read_rows(
    spark: SparkSession, table: str | Path, version: int | None = None
) -> list[dict[str, object]]:
    """Return the table's rows, now or as they were at a version."""
    reader = spark.read.format("delta")
    if version is not None:
        reader = reader.option("versionAsOf", version)
    return [row.asDict() for row in reader.load(str(table)).collect()]


def read_columns(spark: SparkSession, table: str | Path) -> list[str]:
    """Return the table's columns in order."""
    return list(spark.read.format("delta").load(str(table)).columns)


def read_versions(table: str | Path) -> list[Version]:
    """Return all commits, from the log's own files."""
    found: list[Version] = []
    types: dict[str, str] = {}
    for path in sorted((Path(table) / "_delta_log").glob("*.json")):
        actions = [
            json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line
        ]
        for action in actions:
            if "metaData" in action:
                fields = json.loads(action["metaData"]["schemaString"])["fields"]
                types = {field["name"].lower(): str(field["type"]) for field in fields}
        info: dict[str, Any] = next(
            (action["commitInfo"] for action in actions if "commitInfo" in action), {}
        )
        ours = said_by(info) or None
        removes = any("remove" in action for action in actions)
        found.append(Version(number=int(path.stem), types=types, removes=removes, ours=ours))
    return found


def newest_version(table: str | Path) -> int:
    """Return the number of the last commit."""
    return max(int(path.stem) for path in (Path(table) / "_delta_log").glob("*.json"))


def read_feed(spark: SparkSession, table: str | Path) -> list[dict[str, object]]:
    """Return the whole change feed, whatever types the columns had on the way.

    A commit that gives a column another type and replaces the table has no readable feed: Delta reads the files that it
    removed with the new type. Its rows are the difference of the two versions instead. One that only rewrites the
    rows in other types is told by mirrorlib's own reader, which has to say that nothing changed.
    """
    rows: list[dict[str, object]] = []
    versions = read_versions(table)
    start = 0
    for at, version in enumerate(versions):
        following = versions[at + 1] if at + 1 < len(versions) else None
        if start <= at and (following is None or _retyped(version, following)):
            rows += _read_stretch(spark, table, versions[start].number, version.number)
            start = at + 1
        if following is not None and _retyped(version, following) and following.removes:
            if (following.ours or {}).get("outcome") == "rewrite":
                window = {"after": version.number, "until": following.number}
                assert [] == mirrorlib.read_feed(spark, table, **window).collect()
                assert _is_same(spark, table, version.number, following.number)
            rows += _difference(spark, table, version.number, following.number)
            start = at + 2
    return rows


def _retyped(before: Version, after: Version) -> bool:
    return any(after.types.get(name, kind) != kind for name, kind in before.types.items()) or bool(
        before.types.keys() - after.types.keys()
    )


def _read_stretch(
    spark: SparkSession, table: str | Path, start: int, end: int
) -> list[dict[str, object]]:
    with tempfile.TemporaryDirectory() as folder:
        view = Path(folder) / "table"
        _view_until(Path(table), view, end)
        reader = spark.read.format("delta").option("readChangeFeed", "true")
        found = reader.option("startingVersion", start).load(str(view)).collect()
        return [row.asDict() for row in found]


def _view_until(table: Path, view: Path, end: int) -> None:
    """Make a table whose newest version is *end*: the same files, a log that stops there."""
    (view / "_delta_log").mkdir(parents=True)
    for entry in table.iterdir():
        if entry.name != "_delta_log":
            (view / entry.name).symlink_to(entry)
    for entry in (table / "_delta_log").iterdir():
        number = entry.name.partition(".")[0]
        if number.isdigit() and int(number) <= end:
            shutil.copy(entry, view / "_delta_log" / entry.name)


def _is_same(spark: SparkSession, table: str | Path, before: int, after: int) -> bool:
    """Say whether two versions hold the same rows; a day is its midnight in UTC."""
    old, new = read_rows(spark, table, before), read_rows(spark, table, after)
    return multiset(map(_days_as_moments, old)) == multiset(map(_days_as_moments, new))


def _days_as_moments(row: dict[str, object]) -> dict[str, object]:
    return {
        name: datetime(value.year, value.month, value.day, tzinfo=UTC)
        if isinstance(value, date) and not isinstance(value, datetime)
        else value
        for name, value in row.items()
    }


def _difference(
    spark: SparkSession, table: str | Path, before: int, after: int
) -> list[dict[str, object]]:
    """Write what a commit changed as feed rows, deletes first."""
    old, new = read_rows(spark, table, before), read_rows(spark, table, after)
    left = multiset(new)
    rows = []
    for row in old:
        key = canonical_row(row)
        if left[key] > 0:
            left[key] -= 1
        else:
            rows.append({**row, "_change_type": "delete", "_commit_version": after})
    for row in new:
        key = canonical_row(row)
        if left[key] > 0:
            left[key] -= 1
            rows.append({**row, "_change_type": "insert", "_commit_version": after})
    return rows


def assert_feed_replays(
    spark: SparkSession, table: str | Path, *, every_version: bool = False
) -> dict[int, Rows]:
    """See that replaying the change feed gives the table: now, and *every_version* on the way there too."""
    states = replay_feed(read_feed(spark, table))
    newest = newest_version(table)
    for version in range(newest + 1) if every_version else [newest]:
        found = multiset(read_rows(spark, table, version))
        assert_same_rows(
            found, state_at(states, version), f"{table}: the feed replayed to version {version}"
        )
    return states


def batches_of(table: str | Path) -> list[dict[str, Any]]:
    """Return what each commit of a batch says of it, voids included."""
    found = (version.ours for version in read_versions(table) if version.ours is not None)
    return [ours for ours in found if ours.get("batch") is not None]


def assert_one_effect_per_file(
    table: str | Path, numbers: range, *, life: str | None = None
) -> None:
    """See that each change file is in exactly one batch that was applied, and that each batch ended once.

    Args:
        table: its path.
        numbers: the sequence numbers that were published.
        life: the life to look at, when the table was reset.

    """
    batches = [batch for batch in batches_of(table) if life is None or batch["life"] == life]
    endings = Counter((batch["life"], batch["batch"]) for batch in batches)
    assert [name for name, count in endings.items() if count > 1] == [], (
        f"{table}: batches that ended twice"
    )

    applied: Counter[int] = Counter()
    for batch in batches:
        if batch["outcome"] == "applied":
            first, last = (int(batch[end].partition(".")[0]) for end in ("first", "last"))
            assert last - first + 1 == batch["files"], f"{table}: {batch}"
            applied.update(range(first, last + 1))
    assert dict.fromkeys(numbers, 1) == dict(applied), (
        f"{table}: files and how often they were applied"
    )


def assert_each_file_once(table: str | Path, count: int) -> None:
    """See that each batch ended once, and that the applied ones hold as many files as were published."""
    endings = Counter((batch["life"], batch["batch"]) for batch in batches_of(table))
    assert [] == [name for name, times in endings.items() if times > 1], f"{table}: ended twice"
    applied = [batch["files"] for batch in batches_of(table) if batch["outcome"] == "applied"]
    assert count == sum(applied), f"{table}: files and how many of them were applied"


def assert_no_reserved_columns(columns: list[str]) -> None:
    """See that neither the marker nor anything of the feed's has become a column."""
    lowered = {column.lower() for column in columns}
    assert lowered & (FEED_COLUMNS | {"__rowmarker__"}) == set()
