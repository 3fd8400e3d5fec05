"""Measure mirrorlib against the MERGE recipe and its peers, side by side: `python -m benchmarks B E --rounds 2`."""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).parent))

import clock
import workloads
from backlogs import RUNS
from peers import open_peers
from results import write_results
from workloads import Bench, Result, Side

from mirrorlib import local_spark

if TYPE_CHECKING:
    from collections.abc import Iterator

QUICK = ["A", "A3", "B", "C", "D", "E", "G", "H", "I"]
ALL = [*"ABCDEFS", "A3", "H", "I", "G"]  # the largest tables last


def main() -> None:
    """Run the workloads that are asked for and print one line each."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument(
        "workloads", nargs="*", metavar="WORKLOAD", help="A A3 B C D E F G H I S (default: all)"
    )
    parser.add_argument(
        "--rows", type=int, default=10_000_000, help="rows of the large table (default: 10,000,000)"
    )
    parser.add_argument(
        "--rounds", type=int, default=3, help="how often each side runs; the median counts"
    )
    parser.add_argument(
        "--quick",
        action="store_true",
        help="see that everything runs and ends equal: 100,000 rows, one round",
    )
    parser.add_argument(
        "--peers",
        action="store_true",
        help="delta-rs, Iceberg and AUTO CDC too, as far as they are installed",
    )
    parser.add_argument(
        "--results", action="store_true", help="write benchmarks/RESULTS.md and its plot"
    )
    parser.add_argument("--folder", type=Path, help="where to work (default: a temporary folder)")
    parser.add_argument(
        "--cpu",
        action="store_true",
        help="CPU seconds of Python and Java, where the machine has other work",
    )
    parser.add_argument("--json", action="store_true", help="print JSON lines")
    parser.add_argument(
        "--master",
        default="local[2]",
        help="where both sides' Spark runs (local-cluster[2,1,2048]: executors in processes of their own)",
    )
    arguments = parser.parse_args()
    if arguments.cpu:
        clock.count_cpu()
    names = [name.upper() for name in arguments.workloads] or list(
        QUICK if arguments.quick else ALL
    )
    folder = arguments.folder or Path(tempfile.mkdtemp(prefix="mirrorlib-bench-"))
    spark = local_spark(cores=2, memory="6g", conf={"spark.master": arguments.master})
    peers = open_peers(folder, spark, quick=arguments.quick) if arguments.peers else []
    size: dict[str, Any] = {"rows": arguments.rows, "rounds": arguments.rounds}
    if arguments.quick:
        size = {"rows": 100_000, "rounds": 1, "commits": 2, "warm_up": 1, "shuffle_partitions": 2}
    results = []
    try:
        bench = Bench(spark=spark, folder=folder, peers=peers, **size)
        for name in names:
            for result in run(name, bench):
                results.append(result)
                show(result, as_json=arguments.json)
        if arguments.results:
            print(f"\n{write_results(results, peers)} is written")
    finally:
        for peer in peers:
            peer.close()
        spark.stop()
        if arguments.folder is None:
            shutil.rmtree(folder, ignore_errors=True)
    if not all(result.equal for result in results):
        sys.exit("some tables ended different")


def run(name: str, bench: Bench) -> Iterator[Result]:
    """Run a workload; some have several results."""
    if name in RUNS:
        yield from RUNS[name](bench)
    else:
        yield getattr(workloads, f"run_{name.lower()}")(bench)


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
            f"  {side.name:32} {side.seconds:8.2f} s   {ratio:5.2f} x ours{_must(side)}"
            f"   (each round: {_rounds(side.rounds)})"
        )
    print(f"  tables equal: {'yes' if result.equal else 'NO'}", flush=True)


def _must(side: Side) -> str:
    return "" if side.target.startswith("(") else f", must be {side.target}"


def _rounds(seconds: list[float]) -> str:
    return ", ".join(f"{one:.2f}" for one in seconds)


if __name__ == "__main__":
    main()
