"""Measure mirrorlib against the MERGE recipe, both sides in one process: `python -m benchmarks B E --rounds 2`."""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import workloads
from workloads import Bench, Result

from mirrorlib import local_spark


def main() -> None:
    """Run the workloads that are asked for and print one line each."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument(
        "workloads", nargs="*", metavar="WORKLOAD", help="A B C D E F S (default: all)"
    )
    parser.add_argument(
        "--rows", type=int, default=10_000_000, help="rows of the large table (default: 10,000,000)"
    )
    parser.add_argument(
        "--rounds", type=int, default=3, help="how often each side runs; the fastest counts"
    )
    parser.add_argument("--folder", type=Path, help="where to work (default: a temporary folder)")
    parser.add_argument("--json", action="store_true", help="print JSON lines")
    arguments = parser.parse_args()
    names = [name.upper() for name in arguments.workloads] or list("ABCDEFS")
    folder = arguments.folder or Path(tempfile.mkdtemp(prefix="mirrorlib-bench-"))
    spark = local_spark(cores=2, memory="6g")
    try:
        bench = Bench(spark=spark, folder=folder, rows=arguments.rows, rounds=arguments.rounds)
        for name in names:
            show(getattr(workloads, f"run_{name.lower()}")(bench), as_json=arguments.json)
    finally:
        spark.stop()
        if arguments.folder is None:
            shutil.rmtree(folder, ignore_errors=True)


def show(result: Result, *, as_json: bool) -> None:
    """Print one workload's seconds and ratios."""
    if as_json:
        print(json.dumps(result.to_dict()), flush=True)
        return
    print(f"\n{result.name}  {result.title}")
    print(f"  mirrorlib {result.ours:8.2f} s   (each round: {_rounds(result.our_rounds)})")
    for side in result.sides:
        ratio = side.seconds / result.ours
        print(
            f"  {side.name:32} {side.seconds:8.2f} s   {ratio:5.2f} x ours, must be {side.target}"
            f"   (each round: {_rounds(side.rounds)})"
        )
    print(f"  tables equal: {'yes' if result.equal else 'NO'}", flush=True)


def _rounds(seconds: list[float]) -> str:
    return ", ".join(f"{one:.2f}" for one in seconds)


if __name__ == "__main__":
    main()
