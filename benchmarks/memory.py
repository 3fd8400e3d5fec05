"""Show what memory a run takes: Java's heap after each collection, and the resident sets of Java, executors and Python.

`python benchmarks/memory.py load A D H batches --memory 1g`: each workload in a process of its own, with a Spark of
its own, whose Java writes down what every collection has left; the input is made by another process. `load` lands 4 GB
of Parquet, half of it with markers, so that it is folded too; A and D are those of `workloads.py`, H is 10,000 files of
ten rows, and `batches` is 1,000 runs of one small file each, which has to be flat.
"""

from __future__ import annotations

import argparse
import gc
import json
import multiprocessing
import re
import shutil
import statistics
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).parent))

import pyarrow as pa
import pyarrow.parquet as pq
from data import MARKER, make_changes, make_rows, write_file, write_load

import mirrorlib

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

_LARGE_FILES = 16  # of 4 GB
_LARGE_ROWS = 2_000_000  # a file; 128 bytes a row that no codec makes smaller
_TINY_ROWS = 10
_SMALL_TABLE = 1_000
_EACH = 100  # batches between two looks
_WARM = 300  # batches until Java has loaded and compiled what it needs
_LEFT = re.compile(r"Pause .*?\d+M->(\d+)M\(\d+M\)")
_MB = 1 << 20


@dataclass(kw_only=True)
class Run:
    """One workload: where it lies, how large it is, and the session that it runs in."""

    folder: Path
    rows: int
    files: int
    batches: int
    memory: str
    master: str

    @property
    def zone(self) -> Path:
        """Return the folder of the one table."""
        return self.folder / "zone" / "orders"

    @property
    def logs(self) -> Path:
        """Return where Java writes down its collections."""
        return self.folder / "collections"

    def apply(self, spark: SparkSession, **options: Any) -> None:  # noqa: ANN401  # those of `apply`
        """Bring the table up to date."""
        report = mirrorlib.apply(spark, self.folder / "zone", self.folder / "tables", **options)
        if not report.ok:
            raise SystemExit(str(report))

    def start(self) -> SparkSession:
        """Start a Spark whose processes write down what each collection leaves of their heap."""
        shutil.rmtree(self.logs, ignore_errors=True)
        self.logs.mkdir()
        log = f"-Xlog:gc:file={self.logs}/%p.log"
        executors = {"spark.executor.extraJavaOptions": log, "spark.executor.memory": self.memory}
        conf = {"spark.master": self.master, "spark.driver.extraJavaOptions": log, **executors}
        return mirrorlib.local_spark(cores=2, memory=self.memory, conf=conf)


@dataclass(kw_only=True)
class Peaks:
    """What one workload has taken, in MB: *heap* is what collections have left, the others are resident sets."""

    seconds: float
    rows: int
    heap: dict[str, int]
    resident: dict[str, int]
    slopes: dict[str, float] = field(default_factory=dict)


def land_load(run: Run) -> None:
    """Land files larger than the heap, of which the second half has markers."""
    run.zone.mkdir(parents=True)
    (run.zone / "_metadata.json").write_text(json.dumps({"keyColumns": ["id"]}))
    with Path("/dev/urandom").open("rb") as source:
        for number in range(_LARGE_FILES):
            ids = pa.array(range(number * _LARGE_ROWS, (number + 1) * _LARGE_ROWS), pa.int64())
            noise = pa.FixedSizeBinaryArray.from_buffers(
                pa.binary(120), _LARGE_ROWS, [None, pa.py_buffer(source.read(120 * _LARGE_ROWS))]
            )
            rows = pa.table({"id": ids, "noise": noise})
            if number >= _LARGE_FILES // 2:
                rows = _marked(rows)
            path = run.zone / f"{number + 1:020d}.parquet"
            pq.write_table(rows, path, compression="none", use_dictionary=False)


def land_a(run: Run) -> None:
    """Land the initial load."""
    write_load(run.zone, run.rows, 10)


def add_d(run: Run) -> None:
    """Change 10 % of the rows, random keys."""
    changes = make_changes(run.rows, run.rows // 10, newest=1.0, salt=ord("D"))
    write_file(run.zone, 11, changes)


def land_h(run: Run) -> None:
    """Land tiny files with markers."""
    write_load(run.zone, _TINY_ROWS, 1)
    for number in range(1, run.files):
        ids = pa.array(range(number * _TINY_ROWS, (number + 1) * _TINY_ROWS), pa.int64())
        write_file(run.zone, number + 1, _marked(make_rows(ids, 0)))


def land_batches(run: Run) -> None:
    """Land a small table, and what changes it where a run does not see it yet."""
    write_load(run.zone, _SMALL_TABLE, 1)
    coming = run.folder / "coming"
    coming.mkdir()
    for number in range(run.batches):
        changes = make_changes(_SMALL_TABLE, _TINY_ROWS, newest=0.5, salt=number + 1)
        write_file(coming, number + 2, changes)


def _marked(rows: pa.Table) -> pa.Table:
    return rows.append_column(MARKER, pa.repeat(pa.scalar(4, pa.int32()), rows.num_rows))


def apply_all(run: Run) -> Peaks:
    """Apply all that is there, in batches of as many bytes as mirrorlib takes by itself; the load in two."""
    options = {"max_files": _LARGE_FILES // 2} if run.folder.name == "load" else {}
    return _measured(run, lambda spark: run.apply(spark, **options))


def apply_batches(run: Run) -> Peaks:
    """Apply one file a run; look every hundred runs at what a full collection leaves, and at how long one takes."""
    looks: list[tuple[int, ...]] = []
    seconds: list[float] = []

    def one_by_one(spark: SparkSession) -> None:
        run.apply(spark)
        for number in range(1, run.batches + 1):
            name = f"{number + 1:020d}.parquet"
            (run.folder / "coming" / name).rename(run.zone / name)
            began = time.perf_counter()
            run.apply(spark)
            seconds.append(time.perf_counter() - began)
            if number % _EACH == 0:
                looks.append((number, *_look(spark)))
                print("   batches, heap, metaspace, Python, Java:", looks[-1], end="; ")
                print(f"a run {statistics.median(seconds[-_EACH:]):.3f} s", flush=True)

    peaks = _measured(run, one_by_one)
    settled = [look for look in looks if look[0] >= _WARM]
    batches, *values = zip(*settled, strict=True)
    for name, seen in zip(("heap", "metaspace", "Python", "Java"), values, strict=True):
        slope = statistics.linear_regression(batches, seen).slope
        peaks.slopes[name] = round(slope * _EACH / 1024, 2)
    return peaks


def _look(spark: SparkSession) -> tuple[int, int, int, int]:
    """Collect everything; return KB of heap and metaspace, and the resident sets of Python and Java."""
    gc.collect()
    java = spark._jvm.java.lang  # type: ignore[union-attr]  # noqa: SLF001  # Java's own figures
    java.System.gc()
    beans = java.management.ManagementFactory
    heap = beans.getMemoryMXBean().getHeapMemoryUsage().getUsed() // 1024
    other = beans.getMemoryMXBean().getNonHeapMemoryUsage().getUsed() // 1024
    return heap, other, _status("self", "VmRSS"), _status(_java(spark), "VmRSS")


def _measured(run: Run, act: Callable[[SparkSession], None]) -> Peaks:
    spark = run.start()
    began = time.perf_counter()
    act(spark)
    seconds = time.perf_counter() - began
    java = _java(spark)
    rows = spark.read.format("delta").load(str(run.folder / "tables" / "orders")).count()
    resident = {"Python": _status("self", "VmHWM") >> 10, "driver": _status(java, "VmHWM") >> 10}
    heap = {}
    for log in run.logs.glob("*.log"):
        pid = int(log.stem)
        name = "driver" if pid == java else f"executor {pid}"
        heap[name] = max(map(int, _LEFT.findall(log.read_text())), default=0)
        resident.setdefault(name, _status(pid, "VmHWM") >> 10)
    spark.stop()
    return Peaks(seconds=seconds, rows=rows, heap=heap, resident=resident)


def _java(spark: SparkSession) -> int:
    return int(spark._jvm.java.lang.ProcessHandle.current().pid())  # type: ignore[union-attr]  # noqa: SLF001


def _status(pid: int | str, name: str) -> int:
    """Read KB of what the system says of a process."""
    text = Path(f"/proc/{pid}/status").read_text()
    return int(re.search(rf"{name}:\s+(\d+) kB", text)[1])  # type: ignore[index]  # it is always there


WORKLOADS: dict[str, tuple[list[Callable[[Run], object]], Callable[[Run], Peaks]]] = {
    "load": ([land_load], apply_all),
    "A": ([land_a], apply_all),
    "D": ([land_a, apply_all, add_d], apply_all),
    "H": ([land_h], apply_all),
    "batches": ([land_batches], apply_batches),
}


def main() -> None:
    """Run the workloads that are asked for, each in a process of its own."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("workloads", nargs="*", metavar="WORKLOAD", help="load A D H batches")
    parser.add_argument("--rows", type=int, default=10_000_000, help="of A and D")
    parser.add_argument("--files", type=int, default=10_000, help="of H")
    parser.add_argument("--batches", type=int, default=1_000)
    parser.add_argument("--memory", default="1g", help="heap of each Java process (default: 1g)")
    parser.add_argument(
        "--master", default="local[2]", help="local-cluster[2,1,1024]: executors of their own"
    )
    parser.add_argument("--folder", help="where to work (default: the machine's temporary folder)")
    arguments = vars(parser.parse_args())
    folder = Path(tempfile.mkdtemp(prefix="mirrorlib-memory-", dir=arguments.pop("folder")))
    context = multiprocessing.get_context("spawn")
    try:
        with ProcessPoolExecutor(1, mp_context=context, max_tasks_per_child=1) as pool:
            for name in arguments.pop("workloads") or WORKLOADS:
                steps, act = WORKLOADS[name]
                run = Run(folder=folder / name, **arguments)
                for step in steps:
                    pool.submit(step, run).result()
                show(name, run, pool.submit(act, run).result())
                shutil.rmtree(run.folder)
    finally:
        shutil.rmtree(folder)


def show(name: str, run: Run, peaks: Peaks) -> None:
    """Print one workload's peaks."""
    landed = sum(path.stat().st_size for path in run.zone.glob("*.parquet")) / _MB
    print(f"{name}: {landed:,.0f} MB of Parquet, {peaks.rows:,} rows, {peaks.seconds:.0f} s")
    for process, resident in peaks.resident.items():
        left = peaks.heap.get(process)
        heap = f", after collections {left:,} MB of a heap of {run.memory}" if left else ""
        print(f"  {process:16} at most {resident:,} MB resident{heap}", flush=True)
    for what, slope in peaks.slopes.items():
        print(f"  {what:16} {slope:+.2f} MB every {_EACH} batches", flush=True)


if __name__ == "__main__":
    main()
