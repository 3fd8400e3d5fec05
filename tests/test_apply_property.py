"""Whatever is published, in whatever cut it is applied, the table and its change feed are what the oracle says.

Spark costs seconds, a log costs milliseconds: six logs that hypothesis made up are six tables of
one landing zone. More zones than CI runs: `MIRRORLIB_EXAMPLES=20 pytest tests/test_apply_property.py`;
each has logs of its own, always the same. `MIRRORLIB_SHRINK=1` makes a failing log smaller before it
is shown, which takes minutes.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pytest

import mirrorlib
from logs import Log, make_logs, publish_file
from oracle import Replayed, assert_same_rows, canonical, multiset
from tables import (
    assert_each_file_once,
    assert_feed_replays,
    assert_no_reserved_columns,
    assert_one_effect_per_file,
    newest_version,
    read_columns,
    read_rows,
)
from zones import TableWriter, ZoneWriter

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOGS_PER_ZONE = 6
FOLDER, FOLDERS = "a_folder", ("x/y", "z")


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """How a zone's files come and are applied.

    Attributes:
        name: for people.
        first: how many of a log's files are there at the first apply; all of them by default.
        options: of every apply.
        large: batches are folded by Spark, as large ones are.
        by_time: files count by when they were written, and have no numbers.
        folders: each file's rows are split over two partition folders by their keys.

    """

    name: str
    first: int = 100
    options: Mapping[str, Any] = field(default_factory=dict)
    large: bool = False
    by_time: bool = False
    folders: bool = False


CUTS = (
    Cut(name="backlog-at-once"),
    Cut(name="file-by-file", first=1, options={"max_files": 1}),
    Cut(name="two-halves-folded-by-spark", first=2, large=True),
    Cut(
        name="twos-upserting-quietly",
        first=1,
        options={"max_files": 2, "insert_policy": "upsert", "quiet": True},
    ),
    Cut(name="threes-by-spark", options={"max_files": 3, "parallelism": 1}, large=True),
    Cut(name="tiny-bytes-by-time", first=3, options={"max_bytes": 1}, by_time=True),
    Cut(name="partition-folders", first=2, options={"max_files": 3}, folders=True),
    Cut(name="partition-folders-by-spark", folders=True, large=True),
    Cut(name="upserting-by-spark", first=1, options={"insert_policy": "upsert"}, large=True),
    Cut(name="absent-kept", first=2, options={"partial_updates": "absent", "max_files": 2}),
    Cut(
        name="nulls-kept-upserting-by-spark",
        options={"partial_updates": "nulls", "insert_policy": "upsert", "quiet": True},
        large=True,
    ),
)
ZONES = int(os.environ.get("MIRRORLIB_EXAMPLES", len(CUTS)))


@cache
def all_logs() -> list[Log]:
    """Make the logs of all zones, once."""
    return make_logs(LOGS_PER_ZONE * ZONES)


@pytest.mark.thorough("[!2]-*", "1?-*")
@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "number", [pytest.param(n, id=f"{n}-{CUTS[n % len(CUTS)].name}") for n in range(ZONES)]
)
def test_table_and_change_feed_are_what_the_oracle_says(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """Every log, in every cut, ends as its rows replayed one by one; its feed replays to it, version by version."""
    cut = CUTS[number % len(CUTS)]
    if cut.large:  # the size from which Spark folds is no option, and should not be one
        monkeypatch.setattr("mirrorlib.ingest.batch.open_batch.SMALL_BYTES", -1)
    logs = all_logs()[number * LOGS_PER_ZONE :][:LOGS_PER_ZONE]
    failures = failures_of(spark, tmp_path, cut, logs, every_version=number % 2 == 0)
    if failures and os.environ.get("MIRRORLIB_SHRINK"):
        at, error = next(iter(failures.items()))
        log, error = shrunk(spark, tmp_path / "shrink", cut, logs[at], error)
        failures = {at: f"{error}\nsmallest log found:\n{log}"}

    assert {} == failures, "\n\n".join(f"t{at}: {why}\n{logs[at]}" for at, why in failures.items())


def failures_of(
    spark: SparkSession, folder: Path, cut: Cut, logs: list[Log], *, every_version: bool
) -> dict[int, str]:
    """Publish logs as the tables of one zone, apply them in a cut, and say which tables are wrong."""
    zone, target = ZoneWriter(folder / "zone"), folder / "target"
    for number, log in enumerate(logs):
        publish(zone.table(f"t{number}", by_time=cut.by_time), log, cut, cut.first)
    failures: dict[int, str] = {}
    stopped = apply_once(spark, zone, target, cut)
    for number, log in enumerate(logs):
        table = zone.table(f"t{number}", with_metadata=False, by_time=cut.by_time)
        table.last = min(cut.first, len(log.files))
        publish(table, log, cut)
    stopped |= apply_once(spark, zone, target, cut)

    def check(number: int) -> None:
        table = f"t{number}"
        try:
            assert table not in stopped, stopped[table]
            every = every_version and number < 3
            check_table(spark, target / table, logs[number], cut, every_version=every)
        except Exception as exc:  # noqa: BLE001  # one table's error must not hide the others'
            failures[number] = f"{type(exc).__name__}: {exc}"

    with ThreadPoolExecutor(max_workers=2) as pool:
        list(pool.map(check, range(len(logs))))
    return failures


def publish(table: TableWriter, log: Log, cut: Cut, until: int | None = None) -> None:
    """Publish a log's files as a cut has them."""
    if not cut.folders:
        log.publish(table, until)
        return
    flags = {"isUpsertDefaultRowMarker": log.upsert_default, "isPartitionEnabled": True}
    table.metadata(flags, keys=log.keys)
    for number, file in enumerate(log.files[table.last : until], start=table.last + 1):
        names = [name for name, _ in file.types]
        partitions = [folder_of(log, dict(zip(names, row, strict=True))) for row in file.rows]
        for folder in FOLDERS:
            mine = [place for place, partition in enumerate(partitions) if partition == folder]
            table.last = number - 1
            part = replace(
                file,
                rows=tuple(file.rows[place] for place in mine),
                markers=file.markers and tuple(file.markers[place] for place in mine),
            )
            publish_file(table, part, partition=f"{FOLDER}={quote(folder, safe='')}")


def folder_of(log: Log, row: Mapping[str, object]) -> str:
    """Choose the partition folder of a row by its key, whatever types the key's values have."""
    lowered = {name.lower(): value for name, value in row.items()}
    numbers = (_number_of(canonical(lowered.get(name.lower()))) for name in log.keys)
    return FOLDERS[sum(numbers) % len(FOLDERS)]


def _number_of(value: object) -> int:
    """Give equal values equal numbers, the same in every process: a failure can be run again."""
    if isinstance(value, int | float | Decimal):
        return hash(value)
    return zlib.crc32(repr(value).encode())


def expect(log: Log, cut: Cut) -> Replayed:
    """Replay a log; with partition folders each row has one more column."""
    expected = log.replay(
        insert_policy=cut.options.get("insert_policy", "append"),
        partial=cut.options.get("partial_updates"),
    )
    if not cut.folders:
        return expected
    rows = [{**row, FOLDER: folder_of(log, row)} for row in expected.rows]
    return Replayed(columns=[*expected.columns, FOLDER], rows=rows)


def apply_once(spark: SparkSession, zone: ZoneWriter, target: Path, cut: Cut) -> dict[str, str]:
    """Apply a zone; give the tables that stopped, and why."""
    report = mirrorlib.apply(spark, str(zone), str(target), **cut.options)
    return {
        table.table: f"{table.state}: {table.reason} ({table.file})"
        for table in report.tables
        if table.state not in {"current", "waiting"}
    }


def apply_in_two(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> tuple[list[Log], ZoneWriter, Path]:
    """Publish the logs of a cut, as tables t0, t1 …, and apply them by it: some files at first, then the others."""
    cut = CUTS[number]
    if cut.large:
        monkeypatch.setattr("mirrorlib.ingest.batch.open_batch.SMALL_BYTES", -1)
    logs = all_logs()[number * LOGS_PER_ZONE :][:LOGS_PER_ZONE]
    zone, target = ZoneWriter(tmp_path / "zone"), tmp_path / "target"
    for last in (cut.first, 100):
        for place, log in enumerate(logs):
            table = zone.table(f"t{place}", with_metadata=last == cut.first, by_time=cut.by_time)
            table.last = 0 if last == cut.first else min(cut.first, len(log.files))
            publish(table, log, cut, last)
        assert {} == apply_once(spark, zone, target, cut)
    return logs, zone, target


def check_table(
    spark: SparkSession, table: Path, log: Log, cut: Cut, *, every_version: bool
) -> None:
    """Compare a table, its columns, its feed and its commits with what the oracle says of its log."""
    expected = expect(log, cut)
    if not expected.columns:
        assert not table.exists(), "no file has a typed column, and yet there is a table"
        return
    columns = read_columns(spark, table)
    wanted, found = ([name.lower() for name in some] for some in (expected.columns, columns))
    assert sorted(wanted) == sorted(found)
    assert cut.folders or wanted == found  # a folder's column comes after those of its first file
    assert_no_reserved_columns(columns)
    assert_same_rows(expected.multiset, multiset(read_rows(spark, table)))
    assert_feed_replays(spark, table, every_version=every_version)
    if cut.by_time or cut.folders:
        assert_each_file_once(table, len(log.files) * (len(FOLDERS) if cut.folders else 1))
    else:
        assert_one_effect_per_file(table, range(1, len(log.files) + 1))


def shrunk(spark: SparkSession, folder: Path, cut: Cut, log: Log, error: str) -> tuple[Log, str]:
    """Find a log that has nothing to spare and still fails, one step at a time."""
    tries = 0
    again = True
    while again:
        again = False
        for smaller in log.smaller():
            tries += 1
            failures = failures_of(spark, folder / str(tries), cut, [smaller], every_version=False)
            if failures:
                log, error, again = smaller, failures[0], True
                break
    return log, error


def test_apply_with_nothing_new_commits_nothing(
    spark: SparkSession, zone: ZoneWriter, target: str
) -> None:
    """A second apply of the same files leaves the table at its version and reports no batch."""
    table = zone.table("t", keys=["id"])
    table.file([{"id": 1, "v": "a"}])
    mirrorlib.apply(spark, str(zone), target)
    version = newest_version(Path(target) / "t")
    report = mirrorlib.apply(spark, str(zone), target)

    assert () == report.tables[0].batches
    assert version == newest_version(Path(target) / "t")


@pytest.mark.thorough
def test_every_cut_of_a_backlog_gives_the_same_table(
    spark: SparkSession, zone: ZoneWriter, tmp_path: Path
) -> None:
    """The same zone, applied at once and with every number of files a batch, makes equal tables."""
    log = max(
        all_logs(), key=lambda log: len(log.files) * 100 + sum(len(f.rows) for f in log.files)
    )
    log.publish(zone.table("t"))
    expected = log.replay(insert_policy="append")
    for size in (None, *range(1, len(log.files))):
        target = tmp_path / f"target-{size}"
        assert mirrorlib.apply(spark, str(zone), str(target), max_files=size).ok

        assert_same_rows(
            expected.multiset, multiset(read_rows(spark, target / "t")), f"max_files={size}"
        )
