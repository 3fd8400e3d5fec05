"""Measure exports to Delta tables against what the documentation shows: `python benchmarks/export.py [NAME…]`.

    changes  the feed into a log, against `readChangeFeed` and a write
    current  windows of 1 % and of 10 % of the rows, and of ten rows, into a copy, against the foreachBatch recipe
    net      net changes of twenty versions, against reading the plain feed
    receivers  one commit of 1 % of the rows into a log, files and a landing zone, against Delta's reader alone
    idle     finding nothing to export for 200 tables, against exporting one commit of one table

Both sides run in one process; copies must end equal. Sources are mirrors, whose feed MERGE has written.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from data import COLUMNS, make_changes, write_file, write_load
from pyspark.sql import Window
from pyspark.sql import functions as f
from recipe import default_session

import mirrorlib
from mirrorlib import local_spark
from mirrorlib.delivery.run import export_tables

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from mirrorlib.delivery.sink import Delivery, Sink
    from mirrorlib.journal.streams import Stream

_FILES = 10
_VERSIONS = 20
_SHARE = 100  # one row in so many changes
_SMALL_ROWS = 1_000
_COMMITS = 20
_RECEIVERS = ("delta:{}", "files:{}?format=parquet", "files:{}?format=jsonl", "zone:{}")
_WARM_UP = 40  # commits: until then both sides mostly measure how Java compiles itself


@dataclass(kw_only=True)
class Mirror:
    """A table with a history, made by `mirrorlib.apply`."""

    spark: SparkSession
    folder: Path
    rows: int
    files: int = _FILES
    changes: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        write_load(self.folder / "zone" / "orders", self.rows, self.files)
        self._apply()

    @property
    def root(self) -> Path:
        """Return the target."""
        return self.folder / "mirror"

    @property
    def table(self) -> str:
        """Return the table's path."""
        return str(self.root / "orders")

    @property
    def newest(self) -> int:
        """Return the newest version."""
        log = self.root / "orders" / "_delta_log"
        return max(int(file.stem) for file in log.glob("*.json") if file.stem.isdigit())

    def change(self, count: int) -> None:
        """Commit a change file of random keys."""
        self.changes += 1
        rows = make_changes(self.rows, count, newest=1.0, salt=self.changes)
        write_file(self.folder / "zone" / "orders", self.files + self.changes, rows)
        self._apply()

    def _apply(self) -> None:
        zone, root = str(self.folder / "zone"), str(self.root)
        # So that each key is one row, and its feed knows that.
        report = mirrorlib.apply(self.spark, zone, root, insert_policy="upsert")
        if not report.ok:
            raise SystemExit(str(report))

    def feed(self, spark: SparkSession, after: int, until: int) -> DataFrame:
        """Read the feed as the documentation shows it."""
        reader = spark.read.format("delta").option("readChangeFeed", "true")
        reader = reader.option("startingVersion", after + 1).option("endingVersion", until)
        return reader.load(self.table)

    def export(self, mode: str, to: Path, **options: object) -> None:
        """Export what there is."""
        export(self.spark, self.root, f"delta:{to}", mode=mode, **options)


def export(spark: SparkSession, root: Path, to: str | Sink, **options: object) -> int:
    """Export what there is; return how many windows that were."""
    options = {"consumer": "benchmark", **options}
    report = export_tables(spark, str(root), to=to, **options)  # type: ignore[arg-type]  # as its callers give them
    if not report.ok:
        raise SystemExit(str(report))
    return sum(table.windows for table in report.tables)


@dataclass(kw_only=True)
class Bench:
    """A session, a folder, and the large mirror, made when it is first needed."""

    spark: SparkSession
    folder: Path
    rows: int
    rounds: int
    tables: int

    @cached_property
    def large(self) -> Mirror:
        """Return the large mirror, after twenty commits."""
        mirror = Mirror(spark=self.spark, folder=self.folder / "large", rows=self.rows)
        for _ in range(_VERSIONS):
            mirror.change(self.rows // _SHARE)
        return mirror

    def digest(self, path: Path | str) -> tuple[object, ...]:
        """Return a table's row count and an order-free checksum."""
        names = ", ".join(f"`{name}`" for name in COLUMNS)
        sums = f"count(*), sum(cast(xxhash64({names}) AS decimal(38, 0)))"
        return tuple(self.spark.sql(f"SELECT {sums} FROM delta.`{path}`").collect()[0])


def run_changes(bench: Bench) -> None:
    """Append twenty commits to a log, as one window."""
    mirror, ours, theirs = bench.large, [], []
    until = mirror.newest
    after = until - _VERSIONS
    for number in range(bench.rounds):
        log, bare = bench.folder / f"log-{number}", bench.folder / f"bare-{number}"
        theirs.append(timed(_write, mirror.feed(bench.spark, after, until), bare))
        ours.append(timed(mirror.export, "changes", log, consumer=f"log-{number}", start=after))
        equal = bench.digest(bare) == bench.digest(log / "orders")
        shutil.rmtree(bare)
        shutil.rmtree(log)
    title = f"{_VERSIONS} commits of {bench.rows // _SHARE:,} rows into a log"
    show(title, ours, "readChangeFeed and write", theirs, ">= 0.8", equal=equal)


def _write(feed: DataFrame, to: Path) -> None:
    feed.write.format("delta").save(str(to))


def run_current(bench: Bench) -> None:
    """Keep a copy: 1 % of the rows in a window, then 10 %, then ten rows."""
    session = default_session(bench.spark)
    copies = Copies(mirror=bench.large, folder=bench.folder / "copies", session=session)
    for share, rounds, bounds in ((_SHARE, bench.rounds, (4, 1.8)), (10, 2, (2.8, None))):
        sides = [copies.one_window(bench.rows // share) for _ in range(rounds)]
        ours, plain, vectors = (list(side) for side in zip(*sides, strict=True))
        equal = copies.are_equal(bench)
        title = f"1/{share} of {bench.rows:,} rows into a copy"
        show(title, ours, "recipe", plain, f">= {bounds[0]}", equal=equal)
        told = f">= {bounds[1]}" if bounds[1] else "told only"
        show(title, ours, "recipe, deletion vectors", vectors, told)

    small = Mirror(spark=bench.spark, folder=bench.folder / "small", rows=_SMALL_ROWS, files=1)
    copies = Copies(mirror=small, folder=bench.folder / "small-copies", session=session)
    sides = [copies.one_window(10) for _ in range(_WARM_UP + _COMMITS)][_WARM_UP:]
    title = f"10 rows into a copy of {_SMALL_ROWS:,}, median of {_COMMITS} after {_WARM_UP} of each side"
    ours, plain, _ = ([statistics.median(side)] for side in zip(*sides, strict=True))
    show(title, ours, "recipe", plain, ">= 5", equal=copies.are_equal(bench))


@dataclass(kw_only=True)
class Copies:
    """Copies of a mirror: ours, and two that the recipe keeps, one of them with deletion vectors."""

    mirror: Mirror
    folder: Path
    session: SparkSession

    def __post_init__(self) -> None:
        self.mirror.export("current", self.folder / "ours")
        rows = self.session.read.format("delta").load(self.mirror.table)
        for name, vectors in (("recipe", "false"), ("vectors", "true")):
            writer = rows.write.format("delta").option("delta.enableDeletionVectors", vectors)
            writer.save(str(self.folder / name))

    def one_window(self, count: int) -> tuple[float, float, float]:
        """Change rows of the mirror; return how long each copy took to follow."""
        before = self.mirror.newest
        self.mirror.change(count)
        feed = self.mirror.feed(self.session, before, self.mirror.newest)
        theirs = [
            timed(merge_feed, self.session, feed, self.folder / name)
            for name in ("recipe", "vectors")
        ]
        ours = timed(self.mirror.export, "current", self.folder / "ours")
        return ours, theirs[0], theirs[1]

    def are_equal(self, bench: Bench) -> bool:
        """Compare all copies."""
        paths = (self.folder / "ours" / "orders", self.folder / "recipe", self.folder / "vectors")
        return len({bench.digest(path) for path in paths}) == 1


def merge_feed(session: SparkSession, feed: DataFrame, copy: Path) -> None:
    """Do what the documentation shows for `foreachBatch`: keep each key's last change, then MERGE."""
    newest = Window.partitionBy("id").orderBy(f.desc("_commit_version"))
    changes = feed.where("_change_type <> 'update_preimage'")
    changes = changes.withColumn("_rank", f.row_number().over(newest)).where("_rank = 1")
    changes.createOrReplaceTempView("changes")
    sets = ", ".join(f"t.{name} = s.{name}" for name in COLUMNS)
    session.sql(
        f"MERGE INTO delta.`{copy}` t USING changes s ON t.id = s.id "
        f"WHEN MATCHED AND s._change_type = 'delete' THEN DELETE WHEN MATCHED THEN UPDATE SET {sets} "
        f"WHEN NOT MATCHED AND s._change_type <> 'delete' THEN INSERT ({', '.join(COLUMNS)}) "
        f"VALUES ({', '.join(f's.{name}' for name in COLUMNS)})"
    )


def run_net(bench: Bench) -> None:
    """Read twenty commits as they are, and folded to their net changes."""
    mirror = bench.large
    until = mirror.newest
    after = until - _VERSIONS
    sides = [
        (
            timed(_drain, mirror.feed(bench.spark, after, until)),
            timed(_read, mirror, after, until, keys=[]),
            timed(_read, mirror, after, until, net=True),
        )
        for _ in range(2 + bench.rounds)
    ]
    theirs, plain, net = (list(side) for side in zip(*sides[2:], strict=True))
    title = f"{_VERSIONS} versions x {bench.rows // _SHARE:,} rows"
    show(f"all changes of {title}", plain, "readChangeFeed", theirs, "told only")
    show(f"net changes of {title}", net, "readChangeFeed", theirs, ">= 0.5 (ours <= 2 x)")


def _read(mirror: Mirror, after: int, until: int, **options: Any) -> None:  # noqa: ANN401  # as `read_feed` takes them
    _drain(mirrorlib.read_feed(mirror.spark, mirror.table, after=after, until=until, **options))


def _drain(frame: DataFrame) -> None:
    frame.write.format("noop").mode("overwrite").save()


def run_idle(bench: Bench) -> None:
    """Find that there is nothing to export for many tables; then export one commit of one of them."""
    small = Mirror(spark=bench.spark, folder=bench.folder / "one", rows=_SMALL_ROWS, files=1)
    many = bench.folder / "many"
    for number in range(bench.tables):
        shutil.copytree(small.table, many / f"t{number:03d}")
    if export(bench.spark, many, Nowhere()) != bench.tables:
        raise SystemExit("not every table was exported")  # noqa: EM101, TRY003  # it is a script
    idle = [timed(export, bench.spark, many, Nowhere()) for _ in range(bench.rounds)]
    small.export("current", bench.folder / "one-copy")
    one = []
    for _ in range(_WARM_UP // 4 + bench.rounds):
        small.change(10)
        one.append(timed(small.export, "current", bench.folder / "one-copy"))
    title = f"nothing to export for {bench.tables} tables"
    show(title, idle, "one commit of one table", one[-bench.rounds :], ">= 1")


def run_receivers(bench: Bench) -> None:
    """Deliver one commit to receivers that take what changes, and are places in a file system."""
    mirror = bench.large
    until = mirror.newest
    for to in _RECEIVERS:
        theirs, ours = [], []
        for number in range(bench.rounds):
            place = bench.folder / "receiver"
            theirs.append(timed(_drain, mirror.feed(bench.spark, until - 1, until)))
            options = {"consumer": f"{_RECEIVERS.index(to)}-{number}", "start": until - 1}
            ours.append(timed(export, bench.spark, mirror.root, to.format(place), **options))
            shutil.rmtree(place)
        title = f"one commit of {bench.rows // _SHARE:,} rows to {to.format('PATH')}"
        show(title, ours, "readChangeFeed, alone", theirs, "told only")


class Nowhere:
    """A receiver that takes windows and keeps nothing: none is looked for where nothing is to be exported."""

    def position(self, stream: Stream) -> int:
        """Know nothing."""
        del stream
        return 0

    def deliver(self, delivery: Delivery) -> int:
        """Do nothing."""
        del delivery
        return 0


def show(
    title: str,
    ours: Sequence[float],
    name: str,
    theirs: Sequence[float],
    target: str,
    *,
    equal: bool | None = None,
) -> None:
    """Print both sides' seconds and their ratio, fastest rounds."""
    ratio = min(theirs) / min(ours)
    print(f"\n{title}")
    print(f"  mirrorlib {min(ours):8.2f} s   (each round: {_rounds(ours)})")
    print(
        f"  {name:26} {min(theirs):8.2f} s   {ratio:5.2f} x ours, must be {target}   (each round: {_rounds(theirs)})"
    )
    if equal is not None:
        print(f"  equal: {'yes' if equal else 'NO'}")
    print(end="", flush=True)


def _rounds(seconds: Sequence[float]) -> str:
    return ", ".join(f"{one:.2f}" for one in seconds)


def timed(call: Callable[..., object], *arguments: object, **options: object) -> float:
    """Return the seconds that a call takes."""
    began = time.perf_counter()
    call(*arguments, **options)
    return time.perf_counter() - began


RUNS = {
    "changes": run_changes,
    "current": run_current,
    "net": run_net,
    "receivers": run_receivers,
    "idle": run_idle,
}


def main() -> None:
    """Run what is asked for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"{' '.join(RUNS)} (default: all)")
    parser.add_argument("--rows", type=int, default=10_000_000, help="rows of the large table")
    parser.add_argument(
        "--rounds", type=int, default=3, help="how often each side runs; the fastest counts"
    )
    parser.add_argument(
        "--tables", type=int, default=200, help="tables that have nothing to export"
    )
    parser.add_argument("--folder", type=Path, help="where to work (default: a temporary folder)")
    arguments = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="mirrorlib-export-", dir=arguments.folder))
    spark = local_spark(cores=2, memory="6g")
    try:
        bench = Bench(
            spark=spark,
            folder=folder,
            rows=arguments.rows,
            rounds=arguments.rounds,
            tables=arguments.tables,
        )
        for name in arguments.names or RUNS:
            RUNS[name](bench)
    finally:
        spark.stop()
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
