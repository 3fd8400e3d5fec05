"""Show what it costs to verify a table, against one scan of both sides; and that one changed row is found.

A scan reads every column of every landing file and of the table, hashes each row and adds that up: nobody who compares
them can do less. Each workload is applied, verified, and verified again once a plain UPDATE has changed one row.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).parent))

import clock
import pyarrow as pa
from data import make_changes, make_rows, mark, write_file, write_load
from workloads import timed

import mirrorlib
from mirrorlib.operate.verify.report import VerifyReport

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_FILES = 10
_CHANGED = 100  # one row in so many, by each of three files


def load(folder: Path, rows: int) -> None:
    """Publish a first load without markers."""
    write_load(folder, rows, _FILES)


def changes(folder: Path, rows: int) -> None:
    """Publish it, and updates, inserts and deletes of random keys."""
    load(folder, rows)
    for number in range(1, 4):
        some = make_changes(rows, rows // _CHANGED, newest=1.0, salt=number)
        write_file(folder, _FILES + number, some)


def upserts(folder: Path, rows: int) -> None:
    """Publish rows that all have marker 4, so that each has to be looked for among all the others."""
    load(folder, rows)
    each = rows // _FILES
    for number in range(_FILES):
        ids = pa.array(range(number * each, (number + 1) * each), pa.int64())
        write_file(folder, number + 1, mark(make_rows(ids, 0), [4]))


WORKLOADS: dict[str, Callable[[Path, int], None]] = {
    "load": load,
    "changes": changes,
    "upserts": upserts,
}


def scan(*sides: DataFrame) -> None:
    """Read and hash all rows of all sides."""
    from pyspark.sql import functions as f

    for side in sides:
        half = f.xxhash64(*side.columns).bitwiseAND(0xFFFFFFFF)
        side.agg(f.count(f.lit(1)), f.sum(half)).collect()


def measure(spark: SparkSession, folder: Path, name: str, rows: int, rounds: int) -> None:
    """Measure one workload, in turn with the bare scan."""
    zone, target = folder / "zone", folder / "tables"
    WORKLOADS[name](zone / "t", rows)
    applied = mirrorlib.apply(spark, zone, target)
    if not applied.ok:
        raise SystemExit(str(applied))
    table = spark.read.format("delta").load(f"{target}/t")
    found: list[VerifyReport] = []

    def verify() -> None:
        found.append(mirrorlib.verify(spark, zone, target))

    def both() -> None:
        paths = sorted(str(path) for path in (zone / "t").glob("*.parquet"))
        parts = [some for some in (paths[:_FILES], paths[_FILES:]) if some]  # of one schema each
        scan(*(spark.read.parquet(*some) for some in parts), table)

    bare, equal = list[float](), list[float]()
    for _ in range(rounds):
        bare.append(timed(both))
        equal.append(timed(verify))
    if not found[-1].ok:
        raise SystemExit(str(found[-1]))
    spark.sql(f"UPDATE delta.`{target}/t` SET note = concat(note, '!') WHERE id = {rows // 2}")
    different = [timed(verify) for _ in range(rounds)]
    told = found[-1].tables[0]
    if [one.key for one in told.differences] != [{"id": rows // 2}]:
        raise SystemExit(str(found[-1]))
    one, same, other = map(statistics.median, (bare, equal, different))
    print(
        f"{name:8} {told.expected:,} rows, {told.files} files: scan of both sides {one:.1f} s, equal {same:.1f} s "
        f"({same / one:.2f} x, must be at most 2), one changed row found {other:.1f} s ({other / one:.2f} x)",
        flush=True,
    )


def main() -> None:
    """Measure what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("workloads", nargs="*", default=list(WORKLOADS), help="of these")
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--cpu", action="store_true", help="count CPU seconds, as others work too")
    parser.add_argument("--folder", help="where to work (default: the machine's temporary folder)")
    arguments = parser.parse_args()
    if arguments.cpu:
        clock.count_cpu()
    folder = Path(tempfile.mkdtemp(prefix="mirrorlib-verify-", dir=arguments.folder))
    spark = mirrorlib.local_spark(cores=2, memory="3g")
    try:
        for name in arguments.workloads:
            measure(spark, folder / name, name, arguments.rows, arguments.rounds)
            shutil.rmtree(folder / name)
        spark.stop()
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
