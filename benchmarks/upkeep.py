"""Show what upkeep does for a mirror after many batches: `python benchmarks/upkeep.py`.

A table takes batches of random changes, one after the other. Then copies of it get no upkeep, Delta's `OPTIMIZE`, or
that with the files of `mirrorlib optimize`, and each takes the same changes: of random keys, of the newest, of a few of
these. All copies must end equal.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import clock
from data import make_changes, write_file, write_load
from workloads import Bench, timed

import mirrorlib
from mirrorlib import local_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_FILES = 4
_UPKEEP = {  # the statement, and the bytes of a file where these are not Delta's 1 GB
    "none": ("", None),
    "1 GB": ("OPTIMIZE {}", None),
    "32 MB": ("OPTIMIZE {}", 32 << 20),
}
_CHANGES = {  # the share of the rows, and the newest share of the keys that they lie in
    "1 % of random keys": (0.01, 1.0),
    "1 % of the newest 2 % of the keys": (0.01, 0.02),
    "0.01 % of the newest 2 %": (0.0001, 0.02),
}


def age(spark: SparkSession, zone: Path, target: Path, rows: int, batches: int) -> list[float]:
    """Load a table, and let it take batches; return what each has taken."""
    write_load(zone / "orders", rows, _FILES)
    mirrorlib.apply(spark, zone, target)
    seconds = []
    for number in range(1, batches + 1):
        changes = make_changes(rows, rows // 1_000, newest=1.0, salt=number)
        write_file(zone / "orders", _FILES + number, changes)
        seconds.append(timed(mirrorlib.apply, spark, zone, target))
    return seconds


def main() -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--batches", type=int, default=1_000, help="each of a thousandth of rows")
    parser.add_argument("--rounds", type=int, default=3, help="the median counts")
    parser.add_argument("--cpu", action="store_true", help="count CPU seconds, as others work too")
    given = parser.parse_args()
    if given.cpu:
        clock.count_cpu()
    spark = local_spark()
    folder = Path(tempfile.mkdtemp(prefix="mirrorlib-upkeep-"))
    bench = Bench(spark=spark, folder=folder, rows=given.rows, rounds=given.rounds)
    try:
        zone, aged = folder / "zone", folder / "aged"
        took = age(spark, zone, aged, given.rows, given.batches)
        tenth = max(1, len(took) // 10)
        first, last = statistics.median(took[tenth : 2 * tenth]), statistics.median(took[-tenth:])
        print(f"a batch: {first:.2f} s at first, {last:.2f} s at last", flush=True)
        kept = {}
        for name, (statement, size) in _UPKEEP.items():
            kept[name] = folder / f"aged-{name}"
            shutil.copytree(aged, kept[name])
            session = spark.newSession()
            for bound in ("min", "max") if size else ():
                session.conf.set(f"spark.databricks.delta.optimize.{bound}FileSize", str(size))
            if statement:
                spent = timed(session.sql, statement.format(f"delta.`{kept[name]}/orders`"))
                print(f"{name}: {spent:.1f} s", flush=True)
        for title, (share, newest) in _CHANGES.items():
            changes = make_changes(given.rows, int(given.rows * share), newest=newest, salt=10**6)
            write_file(zone / "orders", _FILES + given.batches + 1, changes)
            seconds: dict[str, list[float]] = {name: [] for name in kept}
            digests = set()
            for _ in range(given.rounds):
                for name, target in kept.items():
                    run = bench.copy(target)
                    seconds[name].append(timed(mirrorlib.apply, spark, zone, run))
                    digests.add(bench.digest(run / "orders"))
            shown = ", ".join(
                f"{name} {statistics.median(one):.2f} s" for name, one in seconds.items()
            )
            print(f"{title}: {shown}; equal: {'yes' if len(digests) == 1 else 'NO'}", flush=True)
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
