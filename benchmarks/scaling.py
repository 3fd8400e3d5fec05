"""Measure what a batch costs, fit it, and count what that comes to for 10,000 tables and 1 TB of changes a day.

    python benchmarks/scaling.py --requests                            # measures, fits, writes scaling.json
    python benchmarks/scaling.py --master 'local-cluster[2,1,2048]'    # tells the driver from executors
    python benchmarks/scaling.py --simulate                            # what scaling.json comes to: no Spark

CPU seconds are those of this process, its Java and the executors, read from Linux's /proc: a machine with other work
stretches them less than the clock's seconds. docs/scaling.md tells what came of it.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import sys
import tempfile
import time
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).parent))

from data import make_changes, write_file, write_load
from scaling_fit import Batch, fit_all, published, show_batches
from scaling_model import show_days
from scaling_requests import count_requests
from usage import Usage, read_usage

import mirrorlib

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WRITTEN = Path(__file__).with_name("scaling.json")
# Rows and files of a table; then the changed rows of a batch, and the newest share of the keys that they lie in.
Shape = tuple[int, int, list[tuple[int, float]]]
SHAPES: list[Shape] = [
    (1_000, 1, [(10, 1.0), (100, 1.0), (500, 1.0)]),
    (100_000, 1, [(10, 1.0), (1_000, 1.0), (10_000, 1.0)]),
    (500_000, 1, [(10, 1.0), (1_000, 1.0), (10_000, 1.0), (100_000, 1.0)]),
    (1_000_000, 4, [(10, 1.0), (10_000, 1.0), (100_000, 1.0)]),
    (4_000_000, 1, [(10, 1.0), (10_000, 1.0), (100_000, 1.0), (1_000_000, 1.0)]),
    (4_000_000, 16, [(10, 1.0), (10, 0.02), (10_000, 1.0), (10_000, 0.02), (100_000, 1.0)]),
    (8_000_000, 32, [(50_000, 0.02), (1_000_000, 1.0)]),
]
QUICK: list[Shape] = [
    (1_000, 1, [(10, 1.0), (500, 1.0)]),
    (500_000, 1, [(10, 1.0), (10_000, 1.0)]),
    (2_000_000, 8, [(10, 1.0), (10, 0.02), (100_000, 1.0), (500_000, 1.0)]),
    (2_000_000, 1, [(10, 1.0), (100_000, 1.0)]),
]
AT_ONCE = (1, 2, 4, 8)


@dataclass(frozen=True, kw_only=True)
class Size:
    """How much is measured: batches of each kind, commits before, tables of a run, how many of them at once."""

    rounds: int
    warm: int = 40
    shapes: list[Shape] = field(default_factory=lambda: SHAPES)
    many: int = 40
    at_once: tuple[int, ...] = AT_ONCE


def main() -> None:
    """Measure, fit, write down; or only tell what was written down."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--rounds", type=int, default=3, help="batches of a kind; the median counts"
    )
    parser.add_argument("--master", default="local[2]", help="where Spark runs")
    parser.add_argument("--quick", action="store_true", help="fewer kinds, tables and commits")
    parser.add_argument(
        "--requests", action="store_true", help="count requests to an S3 server, too"
    )
    parser.add_argument("--simulate", action="store_true", help="measure nothing")
    arguments = parser.parse_args()
    size = Size(rounds=arguments.rounds)
    if arguments.quick:
        size = replace(size, warm=12, shapes=QUICK, many=8, at_once=(1, 2))
    known: dict[str, Any] = json.loads(WRITTEN.read_text()) if WRITTEN.exists() else {}
    known = {"RESULTS.md": published(), **known}
    if not arguments.simulate:
        known[arguments.master] = measure(arguments.master, size)
        write(known)
    if arguments.requests:
        known["requests"] = count_requests()
        write(known)
    show_days(known)


def write(known: dict[str, Any]) -> None:
    """Keep what was measured."""
    WRITTEN.write_text(json.dumps(known, indent=1) + "\n")


def measure(master: str, size: Size) -> dict[str, Any]:
    """Measure batches and runs in one session."""
    folder = Path(tempfile.mkdtemp(prefix="mirrorlib-scaling-"))
    spark = mirrorlib.local_spark(cores=2, memory="3g", conf={"spark.master": master})
    try:
        measure_shape(spark, folder / "warm", (1_000, 1, [(10, 1.0)]), size.warm)
        batches = [
            batch
            for place, shape in enumerate(size.shapes)
            for batch in measure_shape(spark, folder / f"{place}", shape, size.rounds)
        ]
        runs = measure_runs(spark, folder / "runs", size)
    finally:
        spark.stop()
        shutil.rmtree(folder)
    show_batches(batches)
    return {"batches": [asdict(batch) for batch in batches], "runs": runs, "fits": fit_all(batches)}


def measure_shape(spark: SparkSession, folder: Path, shape: Shape, rounds: int) -> list[Batch]:
    """Load a table, then apply batches of each kind to it, one after another; the first of a kind does not count."""
    zone, (rows, files, changes) = folder / "zone" / "t", shape
    write_load(zone, rows, files)
    apply(spark, folder)
    number, found = files, []
    for count, newest in changes:
        kind = []
        for _ in range(rounds + 1):
            number += 1
            change = make_changes(rows, count, newest=newest, salt=number)
            size = write_file(zone, number, change).stat().st_size
            seconds, usage = apply(spark, folder)
            touched, scanned = _looked_through(folder / "tables" / "t", whole=newest == 1.0)
            kind.append((seconds, usage, touched, scanned, size))
        found.append(_median(rows, files, count, newest, kind[1:]))
        print(json.dumps(asdict(found[-1])), flush=True)
    shutil.rmtree(folder)
    return found


def apply(spark: SparkSession, folder: Path, **options: Any) -> tuple[float, Usage]:  # noqa: ANN401  # any option
    """Apply a zone; return the seconds, and what its processes used."""
    before, began = read_usage(), time.perf_counter()
    report = mirrorlib.apply(spark, folder / "zone", folder / "tables", **options)
    seconds = time.perf_counter() - began
    if not report.ok:
        raise SystemExit(str(report))
    return seconds, read_usage() - before


def _median(rows: int, files: int, count: int, newest: float, kind: list[Any]) -> Batch:
    seconds, usages, touched, scanned, sizes = zip(*kind, strict=True)
    return Batch(
        table_rows=rows,
        table_files=files,
        newest=newest,
        rows=count,
        size=round(statistics.median(sizes)),
        touched=round(statistics.median(touched)),
        scanned=round(statistics.median(scanned)),
        seconds=statistics.median(seconds),
        python=statistics.median(usage.python for usage in usages),
        java=statistics.median(usage.java for usage in usages),
        executors=statistics.median(usage.executors for usage in usages),
    )


def _looked_through(table: Path, *, whole: bool) -> tuple[int, int]:
    """Count the files that the newest commit touched, and the rows among which it had to look for its keys.

    These are all of the table's where the keys lie anywhere in it, else those of the files that it touched.
    """
    *before, newest = sorted((table / "_delta_log").glob("*.json"))
    rows: dict[str, int] = {}  # of each file that the table had
    for path in before:
        for action in map(json.loads, path.read_text().splitlines()):
            rows.pop(action.get("remove", {}).get("path"), None)
        for action in map(json.loads, path.read_text().splitlines()):
            if "add" in action:
                rows[action["add"]["path"]] = json.loads(action["add"]["stats"])["numRecords"]
    actions = map(json.loads, newest.read_text().splitlines())
    touched = {action["remove"]["path"] for action in actions if "remove" in action}
    return len(touched), sum(rows[path] for path in (rows if whole else touched))


def measure_runs(spark: SparkSession, folder: Path, size: Size) -> list[dict[str, Any]]:
    """Apply ten rows to each of many small tables, and then nothing, by so many tables at once."""
    found: list[dict[str, Any]] = []
    number, tables = 1, [folder / "zone" / f"t{table:02d}" for table in range(size.many)]
    for table in tables:
        write_load(table, 1_000, 1)
    apply(spark, folder)
    for at_once in size.at_once:
        news, idle = [], []
        for _ in range(size.rounds + 1):
            number += 1
            for place, table in enumerate(tables):
                salt = number * size.many + place
                write_file(table, number, make_changes(1_000, 10, newest=0.5, salt=salt))
            news.append(apply(spark, folder, parallelism=at_once))
            idle.append(apply(spark, folder, parallelism=at_once))
        for what, runs in (("commit", news), ("idle", idle)):
            found.append({"at_once": at_once, "what": what, **_a_table(runs[1:], size.many)})
            print(json.dumps(found[-1]), flush=True)
    return found


def _a_table(runs: list[tuple[float, Usage]], tables: int) -> dict[str, float]:
    """Give the median run's seconds and CPU seconds, for one table."""
    of = {
        name: statistics.median(getattr(usage, name) for _, usage in runs) / tables
        for name in ("python", "java", "executors")
    }
    return {"seconds": statistics.median(seconds for seconds, _ in runs) / tables, **of}


if __name__ == "__main__":
    main()
