"""Show how fresh tables are while `mirrorlib.watch` applies and a publisher puts a file a second into each of them.

A file is published when it has its name, and readable when the commit that has it is in the table's log: the journal
says which commit that is, and the commit's own file when it was written. Beside it stands what one apply of one such
file takes, warm, in the same process: no file can be fresher than that. Afterwards every table must have every row.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).parent))

import pyarrow as pa
from data import MARKER, make_rows, write_file, write_load

import mirrorlib
from mirrorlib.journal.disk import Journal
from mirrorlib.names import TableName, sequence_name
from mirrorlib.store import LocalStore

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_ROWS = 10  # a file
_LOAD = 1_000
_FABRIC = 78.6  # seconds until a marker was visible: docs of prwani/fabric-mirroring-benchmark, one observation


@dataclass(kw_only=True)
class Zone:
    """Tables, the files that wait to be published, and when each was.

    Attributes:
        next_number: of the files that come, the same in every table.

    """

    folder: Path
    tables: list[str]
    next_number: int = 2
    published: dict[tuple[str, str], float] = field(default_factory=dict)

    def write(self, files: int) -> None:
        """Write the load of every table, and what will be published."""
        for table in self.tables:
            write_load(self.folder / "zone" / table, _LOAD, 1)
            coming = self.folder / "coming" / table
            coming.mkdir(parents=True)
            for number in range(2, files + 2):
                ids = pa.array(range(number * _LOAD, number * _LOAD + _ROWS), pa.int64())
                marker = pa.repeat(pa.scalar(4, pa.int32()), _ROWS)
                write_file(coming, number, make_rows(ids, 0).append_column(MARKER, marker))

    def publish(self, tables: list[str]) -> None:
        """Give the next file of some tables its name."""
        name = sequence_name(self.next_number)
        for table in tables:
            (self.folder / "coming" / table / name).rename(self.folder / "zone" / table / name)
            self.published[table, name] = time.time()
        self.next_number += 1

    def publish_all(self, seconds: int) -> None:
        """Publish a file a second into every table."""
        began = time.monotonic()
        for second in range(seconds):
            time.sleep(max(0.0, began + second - time.monotonic()))
            self.publish(self.tables)

    def apply(self, spark: SparkSession) -> mirrorlib.ApplyReport:
        """Run once."""
        report = mirrorlib.apply(spark, self.folder / "zone", self.folder / "tables")
        if not report.ok:
            raise SystemExit(str(report))
        return report

    def ages(self, table: str) -> Iterator[float]:
        """Give for every file that was published while a watch went on how long it was until it could be read."""
        name = TableName(None, table)
        journal = Journal(LocalStore(self.folder / "tables" / "_mirrorlib"), name)
        (life,) = journal.lives()
        newest = journal.newest(life)
        for batch in range(1, newest.plan.batch + 1 if newest else 1):
            entry = journal.entry(life, batch)
            if entry.done is not None:
                log = self.folder / "tables" / str(name) / "_delta_log"
                written = (log / f"{entry.done.version:020d}.json").stat().st_mtime
                places = ((table, file.name) for file in entry.plan.files)
                yield from (
                    written - self.published[one] for one in places if one in self.published
                )


def measure(spark: SparkSession, zone: Zone, seconds: int, warm: int, pause: float) -> None:
    """Measure one apply, then let a publisher and a watch go side by side."""
    zone.write(seconds + warm)
    zone.apply(spark)
    rounds = [_one_apply(spark, zone) for _ in range(warm)][warm // 2 :]
    one = statistics.median(rounds)
    zone.published.clear()
    publisher = threading.Thread(target=zone.publish_all, args=(seconds,))
    publisher.start()
    runs: list[float] = []
    idle = threading.Event()

    def tell(report: mirrorlib.ApplyReport | mirrorlib.MirrorError) -> None:
        if isinstance(report, mirrorlib.MirrorError):
            raise SystemExit(str(report))
        runs.append(report.seconds)
        if not any(table.batches for table in report.tables) and not publisher.is_alive():
            idle.set()

    mirrorlib.watch(lambda: zone.apply(spark), pause, tell=tell, stop=idle.is_set)
    each = [sorted(zone.ages(table)) for table in zone.tables]
    ages = sorted(age for one in each for age in one)
    equal = len(ages) == len(zone.published) and all(_is_whole(spark, zone, t) for t in zone.tables)
    p50, p95 = at(ages, 0.5), at(ages, 0.95)
    tables = sorted(at(one, 0.95) for one in each)
    print(
        f"{len(zone.tables)} tables, {len(ages):,} files, one a second into each: published to readable "
        f"p50 {p50:.2f} s, p95 {p95:.2f} s (by table {tables[0]:.2f} to {tables[-1]:.2f}); "
        f"one apply of one file into each {one:.2f} s: p95 {p95 / one:.1f} x, must be at most 3; "
        f"{len(runs)} runs, each {statistics.median(runs):.2f} s; "
        f"Fabric {_FABRIC} s, {_FABRIC / p95:.1f} x p95; whole: {'yes' if equal else 'NO'}",
        flush=True,
    )


def at(ordered: list[float], share: float) -> float:
    """Return the value below which a share of them is."""
    return ordered[int(len(ordered) * share)]


def _one_apply(spark: SparkSession, zone: Zone) -> float:
    zone.publish(zone.tables)
    return zone.apply(spark).seconds


def _is_whole(spark: SparkSession, zone: Zone, table: str) -> bool:
    rows = spark.read.format("delta").load(str(zone.folder / "tables" / table)).count()
    return rows == _LOAD + _ROWS * (zone.next_number - 2)


def main() -> None:
    """Measure one table, then many."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tables", type=int, nargs="*", default=[1, 20])
    parser.add_argument("--minutes", type=float, default=5)
    parser.add_argument(
        "--warm", type=int, default=20, help="applies of one file before; half count"
    )
    parser.add_argument("--watch", type=float, default=0.1, help="seconds between two runs")
    parser.add_argument("--folder", help="where to work (default: the machine's temporary folder)")
    arguments = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="mirrorlib-freshness-", dir=arguments.folder))
    spark = mirrorlib.local_spark(cores=2)
    try:
        for count in arguments.tables:
            zone = Zone(folder=folder / f"{count}", tables=[f"t{one}" for one in range(count)])
            measure(spark, zone, int(arguments.minutes * 60), arguments.warm, arguments.watch)
        spark.stop()
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
