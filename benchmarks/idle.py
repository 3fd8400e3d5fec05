"""Show what a run costs when nothing is new, against the bare listing; and what starting the command line costs.

The bare listing is every call of the zone's store that the run has made, made again by itself. One table is applied,
the others are its copies; 10,000 batches are ten real ones behind as many as lack, which are written into the journal
and Delta's log as a run writes them, but with no rows.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial, partialmethod
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).parent))

import pyarrow as pa
from data import make_changes, make_rows, write_file, write_load

import mirrorlib
from mirrorlib.journal.disk import Journal
from mirrorlib.journal.entries import Entry, Plan, new_attempt
from mirrorlib.names import TableName, sequence_name
from mirrorlib.store import LocalStore

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_ROWS = 1_000
_REAL = 10  # batches that are applied behind those that are written down
_CALLS = ("list_folder", "files_after", "first_names", "stat", "read", "put", "put_new")

Call = tuple[LocalStore, str, tuple[Any, ...], dict[str, Any]]


@dataclass(frozen=True, kw_only=True)
class Place:
    """A zone whose tables are current, and its target."""

    title: str
    folder: Path
    tables: int = 1

    @property
    def zone(self) -> Path:
        """Return the landing zone."""
        return self.folder / "zone"

    @property
    def target(self) -> Path:
        """Return where its tables are."""
        return self.folder / "tables"

    def apply(self, spark: SparkSession) -> None:
        """Run, and see that every table is current."""
        report = mirrorlib.apply(spark, self.zone, self.target)
        states = [table.state for table in report.tables]
        if states != ["current"] * self.tables:
            raise SystemExit(str(report))


def make_tables(spark: SparkSession, folder: Path, count: int) -> Place:
    """Apply one table, and copy it, its journal and its file."""
    title = f"{count:,} {'table' if count == 1 else 'tables'}"
    one = Place(title=title, folder=folder)
    write_load(one.zone / "t0", _ROWS, 1)
    one.apply(spark)
    first = TableName(None, "t0").segment
    journal = one.target / "_mirrorlib" / "journal"
    for number in range(1, count):
        # A link keeps the file's identity, which the journal knows.
        name = TableName(None, f"t{number}")
        copies = (
            (one.zone / "t0", one.zone / name.folder),
            (one.target / "t0", one.target / str(name)),
        )
        for source, copy in (*copies, (journal / first, journal / name.segment)):
            shutil.copytree(source, copy, copy_function=os.link)
    return replace(one, tables=count)


def make_batches(spark: SparkSession, folder: Path, batches: int) -> Place:
    """Apply a load and the last ten batches; write down those between, each with a file of its own."""
    place = Place(title=f"{batches:,} batches", folder=folder)
    write_load(place.zone / "t", _ROWS, 1)
    place.apply(spark)
    between = range(2, batches - _REAL + 1)
    for number in between:
        write_file(place.zone / "t", number, make_rows(pa.array([], pa.int64()), 0))
    pretend(place, between, each=True)
    for number in range(max(2, batches - _REAL + 1), batches + 1):
        _change(place, number)
        place.apply(spark)
    return place


def make_long(spark: SparkSession, folder: Path, names: int) -> Place:
    """Fill a folder with old files, of which the journal says that they were applied, and apply one more."""
    place = Place(title=f"{names:,} old files", folder=folder)
    write_load(place.zone / "t", _ROWS, 1)
    place.apply(spark)
    for number in range(2, names):
        os.close(os.open(place.zone / "t" / sequence_name(number), os.O_CREAT | os.O_WRONLY))
    pretend(place, range(2, names), each=False)
    _change(place, names)
    place.apply(spark)
    return place


def _change(place: Place, number: int) -> None:
    write_file(place.zone / "t", number, make_changes(_ROWS, 10, newest=0.5, salt=number))


def pretend(place: Place, numbers: range, *, each: bool) -> None:
    """Write into the journal and the table's log that files were applied: *each* by a batch, or all by one."""
    state = _Unflushed(place.target / "_mirrorlib")
    journal = Journal(state, TableName(None, "t"))
    (life,) = journal.lives()
    entry = journal.newest(life)
    if entry is None or entry.done is None:
        msg = "there is nothing to go on from"
        raise SystemExit(msg)
    for number in numbers if each else numbers[-1:]:
        plan, version = _following(place, entry.plan, entry.done.version, number)
        done = replace(entry.done, version=version)
        journal.write_plan(life, plan)
        journal.write_done(life, plan.batch, done)
        entry = Entry(plan=plan, done=done)


class _Unflushed(LocalStore):
    """A store that writes thousands of files without waiting for the disk."""

    def put_new(self, path: str, data: bytes) -> bool:
        place = Path(self.uri(path))
        place.write_bytes(data)
        return True


def _following(place: Place, old: Plan, version: int, number: int) -> tuple[Plan, int]:
    """Write the commit of the next batch, of one file, as the last one was written; return its plan and version."""
    last = (place.zone / "t" / sequence_name(number)).stat()
    etag = f"{last.st_ino:x}-{last.st_mtime_ns:x}-{last.st_size:x}"
    file = replace(old.files[-1], name=sequence_name(number), size=last.st_size, etag=etag)
    batch, attempt = old.batch + 1, new_attempt()
    log = place.target / "t" / "_delta_log"
    actions = map(json.loads, (log / f"{version:020d}.json").read_text().splitlines())
    said = {kind: one[kind] for one in actions for kind in one if kind in {"commitInfo", "txn"}}
    ours = json.loads(said["commitInfo"]["userMetadata"])
    ours["mirrorlib"] |= {"batch": batch, "attempt": attempt}
    said["commitInfo"] |= {"userMetadata": json.dumps(ours), "operation": "MERGE"}
    said["txn"]["version"] = 2 * batch
    lines = [json.dumps({kind: action}) for kind, action in said.items()]
    (log / f"{version + 1:020d}.json").write_text("\n".join(lines) + "\n")
    previous = {"batch": old.batch, "outcome": "applied", "version": version}
    plan = replace(
        old,
        batch=batch,
        attempt=attempt,
        files=(file,),
        before=old.after,
        after={"": number},
        table_version=version,
        previous=previous,
    )
    return plan, version + 1


@contextmanager
def recorded() -> Iterator[list[Call]]:
    """Note every call of a local store, but not those that it makes of itself."""
    calls: list[Call] = []
    inner = threading.local()
    kept = {name: getattr(LocalStore, name) for name in _CALLS}

    def noted(store: LocalStore, name: str, *given: Any, **more: Any) -> Any:  # noqa: ANN401
        if getattr(inner, "busy", False):
            return kept[name](store, *given, **more)
        inner.busy = True
        try:
            calls.append((store, name, given, more))
            return kept[name](store, *given, **more)
        finally:
            inner.busy = False

    for name in _CALLS:
        setattr(LocalStore, name, partialmethod(noted, name))
    try:
        yield calls
    finally:
        for name, method in kept.items():
            setattr(LocalStore, name, method)


def measure(spark: SparkSession, place: Place, rounds: int) -> None:
    """Compare runs with nothing new with the bare listing, in turn."""
    place.apply(spark)
    with recorded() as calls:
        place.apply(spark)
    listing = [call for call in calls if call[0].url == str(place.zone)]
    ours: list[tuple[float, float]] = []
    bare: list[tuple[float, float]] = []
    every: list[tuple[float, float]] = []
    for _ in range(rounds):
        ours.append(timed(partial(place.apply, spark)))
        bare.append(timed(partial(repeat, listing)))
        every.append(timed(partial(repeat, calls)))
    wrote = sum(1 for call in calls if call[1].startswith("put"))
    (run, cpu), (listed, listed_cpu), (all_, _) = map(middle, (ours, bare, every))
    print(
        f"{place.title:20} run {run * 1e3:9.1f} ms (CPU {cpu * 1e3:.1f}), bare listing {listed * 1e3:9.1f} "
        f"(CPU {listed_cpu * 1e3:.1f}; {len(listing):,} calls): {run / listed:.1f} x (CPU {cpu / listed_cpu:.1f}), "
        f"must be at most 2; all {len(calls):,} calls of stores alone {all_ * 1e3:.1f} ms, {wrote} of them write; "
        f"{run / place.tables * 1e3:.2f} ms a table (CPU {cpu / place.tables * 1e3:.2f})",
        flush=True,
    )


def repeat(calls: list[Call]) -> None:
    """Make calls again, without those that write."""
    for store, name, given, more in calls:
        if not name.startswith("put"):
            getattr(store, name)(*given, **more)


def timed(call: Callable[[], object]) -> tuple[float, float]:
    """Return seconds, and those of this process's CPU."""
    began, cpu = time.perf_counter(), time.process_time()
    call()
    return time.perf_counter() - began, time.process_time() - cpu


def middle(measured: list[tuple[float, float]]) -> tuple[float, float]:
    """Return the medians."""
    seconds, cpu = zip(*measured, strict=True)
    return statistics.median(seconds), statistics.median(cpu)


_MAIN = "import sys; from mirrorlib.cli.main import main; code = main(sys.argv[1:])"
_PROOF = f"{_MAIN}; sys.exit(code or ('pyspark' in sys.modules and 'pyspark was imported'))"


def measure_starts(place: Place, rounds: int) -> None:
    """Compare the start of the package and of its commands with that of Python."""
    sides = {
        "python -c pass": ["-c", "pass"],
        "import mirrorlib": ["-c", "import mirrorlib"],
        "mirrorlib --help": ["-c", _MAIN, "--help"],
        f"mirrorlib status, {place.tables:,} tables": ["-c", _PROOF, "status", str(place.target)],
        f"mirrorlib check, {place.tables:,} tables": ["-c", _PROOF, "check", str(place.zone)],
    }
    must = {"import mirrorlib": ", must be at most 2", "mirrorlib --help": ", must be at most 3"}
    measured: dict[str, list[tuple[float, float]]] = {name: [] for name in sides}
    for number in range(rounds):
        for name, words in sides.items():
            if place.tables == 1 or number < 3 or "tables" not in name:  # noqa: PLR2004  # they take long
                measured[name].append(start(words))
    bare, bare_cpu = middle(measured["python -c pass"])
    for name, each in measured.items():
        seconds, cpu = middle(each)
        print(
            f"{name:32} {seconds * 1e3:9.1f} ms (CPU {cpu * 1e3:.1f}): {seconds / bare:.1f} x "
            f"(CPU {cpu / bare_cpu:.1f}){must.get(name, '')}",
            flush=True,
        )
    print("status and check ran where there is no Java, and imported no pyspark")


def start(words: list[str]) -> tuple[float, float]:
    """Run Python where no Java can be found; return seconds, and those of its CPU."""
    env = {**os.environ, "PATH": "/nowhere", "JAVA_HOME": "/nowhere"}
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    began = time.perf_counter()
    subprocess.run([sys.executable, *words], env=env, stdout=subprocess.DEVNULL, check=True)  # noqa: S603
    seconds = time.perf_counter() - began
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return seconds, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    """Measure what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tables", type=int, nargs="*", default=[1, 200, 1_000])
    parser.add_argument("--batches", type=int, nargs="*", default=[10, 10_000])
    parser.add_argument("--names", type=int, nargs="*", default=[1_000_000], help="of one folder")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--folder", help="where to work (default: the machine's temporary folder)")
    arguments = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="mirrorlib-idle-", dir=arguments.folder))
    spark = mirrorlib.local_spark(cores=2, memory="1g")
    makers = [(make_batches, n) for n in arguments.batches] + [
        (make_long, n) for n in arguments.names
    ]
    try:
        for make, number in [(make_tables, n) for n in arguments.tables] + makers:
            place = make(spark, folder / f"{make.__name__}-{number}", number)
            measure(spark, place, arguments.rounds)
            if make is make_tables and number == max(arguments.tables):
                measure_starts(place, arguments.rounds)
            shutil.rmtree(place.folder)
        spark.stop()
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
