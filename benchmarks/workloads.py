"""The workloads of the speed table, each a function from `Bench` to `Result`.

Both sides start from copies of the same table, run in turn in one process, and must end equal.
"""

from __future__ import annotations

import shutil
import statistics
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import clock
from data import COLUMNS, make_changes, write_file, write_load
from recipe import create_table, default_session, merge_files

import mirrorlib
from mirrorlib.names import sequence_name

if TYPE_CHECKING:
    from collections.abc import Callable

    from peers import Peer
    from pyspark.sql import SparkSession

_FILES = 10
_SMALL_ROWS = 1_000
_TABLES = 40
_RECIPE_TABLES = (
    4  # of the 40: the recipe takes minutes; its seconds are scaled up, and the output says so
)
_COMMITS = 20
_WARM_UP = 40  # commits: until then both sides mostly measure how Java compiles itself


@dataclass(kw_only=True)
class Side:
    """What somebody else needed."""

    name: str
    target: str = "(shown)"
    rounds: list[float] = field(default_factory=list)

    @property
    def seconds(self) -> float:
        """Return the median of the rounds."""
        return statistics.median(self.rounds)


@dataclass(kw_only=True)
class Result:
    """One workload, measured."""

    name: str
    title: str
    our_rounds: list[float]
    sides: list[Side]
    equal: bool

    @property
    def ours(self) -> float:
        """Return the median of mirrorlib's rounds."""
        return statistics.median(self.our_rounds)

    def to_dict(self) -> dict[str, Any]:
        """Return seconds and ratios as JSON-ready values."""
        ratios = {side.name: round(side.seconds / self.ours, 2) for side in self.sides}
        return {**asdict(self), "ours": self.ours, "ratios": ratios}


@dataclass(kw_only=True)
class Bench:
    """A session, a folder, and the large table's starting points, made when they are first needed."""

    spark: SparkSession
    folder: Path
    rows: int
    rounds: int
    peers: list[Peer] = field(default_factory=list)
    commits: int = _COMMITS
    warm_up: int = _WARM_UP
    shuffle_partitions: int = 200  # the recipe's; fewer only where no time counts

    @cached_property
    def loaded(self) -> list[tuple[Peer, Path]]:
        """Let every peer load the large table; return where each has it."""
        self.only_load()
        tables = [(peer, self.folder / f"peer{place}") for place, peer in enumerate(self.peers)]
        for peer, table in tables:
            peer.load(table, self.load)
        return tables

    @cached_property
    def zone(self) -> Path:
        """Return the zone with the initial load of the large table."""
        write_load(self.folder / "zone" / "orders", self.rows, _FILES)
        return self.folder / "zone"

    @property
    def load(self) -> list[Path]:
        """Return the files of the initial load."""
        return [self.zone / "orders" / sequence_name(number) for number in range(1, _FILES + 1)]

    @cached_property
    def ours(self) -> Path:
        """Return a target that mirrorlib has filled from the initial load."""
        self.only_load()
        mirrorlib.apply(self.spark, str(self.zone), str(self.folder / "ours"))
        return self.folder / "ours"

    @cached_property
    def plain(self) -> Path:
        """Return the same for every reader of Delta: no deletion vectors."""
        self.only_load()
        mirrorlib.apply(self.spark, str(self.zone), self.folder / "plain", readers="plain")
        return self.folder / "plain"

    @cached_property
    def theirs(self) -> Path:
        """Return the same table for the recipe: no deletion vectors."""
        create_table(self.spark, self.folder / "theirs", self.load, vectors=False)
        return self.folder / "theirs"

    @cached_property
    def theirs_with_vectors(self) -> Path:
        """Return the same table for the recipe, with deletion vectors."""
        create_table(self.spark, self.folder / "theirs-dv", self.load, vectors=True)
        return self.folder / "theirs-dv"

    def copy(self, table: Path) -> Path:
        """Copy a table, or a whole target, for one round."""
        run = self.folder / "run" / table.name
        shutil.rmtree(run, ignore_errors=True)
        shutil.copytree(table, run)
        return run

    def digest(self, path: Path, kind: str = "delta") -> tuple[Any, ...]:
        """Return a table's row count and an order-free checksum; or a Parquet file's."""
        names = ", ".join(f"`{name}`" for name in COLUMNS)
        sums = f"count(*), sum(cast(xxhash64({names}) AS decimal(38, 0)))"
        return tuple(self.spark.sql(f"SELECT {sums} FROM {kind}.`{path}`").collect()[0])

    def equals(self, peer: Peer, table: Path, expected: tuple[Any, ...]) -> bool:
        """Say whether the table of a peer's round is as expected."""
        found = peer.digest(table)
        return expected == (self.digest(peer.place(table)) if found is None else found)

    def only_load(self) -> None:
        """Take change files out of the zone."""
        for path in (self.zone / "orders").glob("*.parquet"):
            if path not in self.load:
                path.unlink()


def run_a(bench: Bench) -> Result:
    """Load a table for the first time."""
    bench.only_load()
    copy = Side(name="plain Spark copy", target=">= 0.91 (ours <= 1.1 x)")
    recipe = Side(name="recipe")
    theirs = [Side(name=peer.name) for peer in bench.peers]
    ours, equal = [], True
    for round_ in range(bench.rounds):
        run = bench.folder / "run"
        shutil.rmtree(run, ignore_errors=True)
        run.mkdir()
        session = default_session(bench.spark, bench.shuffle_partitions)
        copy.rounds.append(timed(create_table, session, run / "copy", bench.load, vectors=True))
        ours.append(timed(_apply, bench, run / "ours"))
        expected = bench.digest(run / "ours" / "orders")
        equal = equal and bench.digest(run / "copy") == expected
        for place, peer in enumerate(bench.peers):
            table = bench.folder / f"load{place}"
            theirs[place].rounds.append(timed(peer.load, table, bench.load))
            peer.begin(table)
            equal = equal and bench.equals(peer, table, expected)
        if round_ == 0:
            create_table(session, run / "recipe", bench.load[:1], vectors=False)
            session.sql(f"DELETE FROM delta.`{run / 'recipe'}`")
            recipe.rounds.append(timed(merge_files, session, run / "recipe", bench.load))
    title = (
        f"initial load, {bench.rows:,} rows x {len(COLUMNS)} columns in {_FILES} files, no marker"
    )
    return Result(
        name="A", title=title, our_rounds=ours, sides=[copy, recipe, *theirs], equal=equal
    )


def run_b(bench: Bench) -> Result:
    """Change 1 % of the rows, random keys."""
    sides = [
        Side(name="recipe", target=">= 4"),
        Side(name="recipe, deletion vectors", target=">= 1.8"),
    ]
    return _changes(bench, "B", "1 % of the rows, random keys", 0.01, 1.0, sides)


def run_c(bench: Bench) -> Result:
    """Change as many rows in the newest 2 % of the keys."""
    return _changes(
        bench,
        "C",
        "1 % of the rows, in the newest 2 % of the keys",
        0.01,
        0.02,
        [Side(name="recipe", target=">= 2.2")],
    )


def run_d(bench: Bench) -> Result:
    """Change 10 % of the rows, random keys."""
    return _changes(
        bench,
        "D",
        "10 % of the rows, random keys",
        0.1,
        1.0,
        [Side(name="recipe", target=">= 2.8")],
    )


def run_e(bench: Bench) -> Result:
    """Commit ten changed rows into a small table, again and again."""
    folder = bench.folder / "small"
    shutil.rmtree(folder, ignore_errors=True)
    load = write_load(folder / "zone" / "t", _SMALL_ROWS, 1)
    session = default_session(bench.spark, bench.shuffle_partitions)
    create_table(session, folder / "recipe", load, vectors=False)
    apply_to(bench, folder / "zone", folder / "ours")
    recipe, ours = Side(name="recipe", target=">= 5"), []
    theirs = begun(bench, folder, load)
    for commit in range(1, bench.warm_up + bench.commits + 1):
        file = write_file(
            folder / "zone" / "t",
            commit + 1,
            make_changes(_SMALL_ROWS, 10, newest=0.5, salt=commit),
        )
        recipe.rounds.append(timed(merge_files, session, folder / "recipe", [file]))
        ours.append(timed(apply_to, bench, folder / "zone", folder / "ours"))
        for peer, table, side in theirs:
            side.rounds.append(timed(peer.merge, table, file))
    expected = bench.digest(folder / "ours" / "t")
    equal = bench.digest(folder / "recipe") == expected
    equal = equal and all(bench.equals(peer, table, expected) for peer, table, _ in theirs)
    sides = [recipe, *(side for _, _, side in theirs)]
    for side in sides:
        del side.rounds[: bench.warm_up]
    title = (
        f"10 changed rows into a table of {_SMALL_ROWS:,}, "
        f"{bench.commits} commits after {bench.warm_up} of each side"
    )
    return Result(name="E", title=title, our_rounds=ours[bench.warm_up :], sides=sides, equal=equal)


def begun(bench: Bench, folder: Path, load: list[Path]) -> list[tuple[Peer, Path, Side]]:
    """Let every peer load a small table, to be changed once."""
    theirs = []
    for place, peer in enumerate(bench.peers):
        table = folder / f"{folder.name}{place}"
        peer.load(table, load)
        peer.begin(table)
        theirs.append((peer, table, Side(name=peer.name)))
    return theirs


def run_f(bench: Bench) -> Result:
    """Bring forty small tables up to date that five files wait for."""
    folder = bench.folder / "many"
    shutil.rmtree(folder, ignore_errors=True)
    session = default_session(bench.spark, bench.shuffle_partitions)
    tables = [f"t{number:02d}" for number in range(_TABLES)]
    for table in tables:
        load = write_load(folder / "zone" / table, _SMALL_ROWS, 1)
        if len(list(folder.glob("recipe*"))) < _RECIPE_TABLES:
            create_table(session, folder / f"recipe-{table}", load, vectors=False)
    apply_to(bench, folder / "zone", folder / "ours")
    files = {
        table: _five_files(folder / "zone" / table, place) for place, table in enumerate(tables)
    }
    some = tables[:_RECIPE_TABLES]
    seconds = sum(
        timed(merge_files, session, folder / f"recipe-{table}", [file])
        for table in some
        for file in files[table]
    )
    recipe = Side(
        name=f"recipe, {len(some)} tables x {_TABLES // len(some)}",
        target=">= 20",
        rounds=[seconds * _TABLES / len(some)],
    )
    ours = timed(apply_to, bench, folder / "zone", folder / "ours")
    expected = {table: bench.digest(folder / "ours" / table) for table in some}
    equal = all(bench.digest(folder / f"recipe-{table}") == expected[table] for table in some)
    sides = [recipe]
    for peer in bench.peers:
        seconds = 0.0
        for table in some:
            own = folder / f"many-{table}"
            peer.load(own, [folder / "zone" / table / sequence_name(1)])
            peer.begin(own)
            seconds += sum(timed(peer.merge, own, file) for file in files[table])
            equal = equal and bench.equals(peer, own, expected[table])
        sides.append(Side(name=peer.name, rounds=[seconds * _TABLES / len(some)]))
    title = f"{_TABLES} tables x 5 files x 10 rows, everybody else's a MERGE a file"
    return Result(name="F", title=title, our_rounds=[ours], sides=sides, equal=equal)


def run_s(bench: Bench) -> Result:
    """Take a dump of the large table, of which 1 % of the rows has changed, against the same as changes."""
    changes = make_changes(bench.rows, int(bench.rows * 0.01), newest=1.0, salt=ord("B"))
    start = bench.ours
    write_file(bench.zone / "orders", _FILES + 1, changes)
    run = bench.copy(start)
    _apply(bench, run)
    expected = bench.digest(run / "orders")
    dumps = bench.folder / "dumps"
    shutil.rmtree(dumps, ignore_errors=True)
    write_load(dumps / "orders", 1, 1)
    _dump(bench, start / "orders", dumps / "orders" / f"{1:020d}.parquet")
    mirrorlib.apply(bench.spark, dumps, bench.folder / "dumped", snapshots=True)
    _dump(bench, run / "orders", dumps / "orders" / f"{2:020d}.parquet")
    theirs, ours, equal = Side(name="the same as changes (B)", target=">= 0.5"), [], True
    for _ in range(bench.rounds):
        run = bench.copy(start)
        theirs.rounds.append(timed(_apply, bench, run))
        run = bench.copy(bench.folder / "dumped")
        ours.append(timed(mirrorlib.apply, bench.spark, dumps, run, snapshots=True))
        equal = equal and bench.digest(run / "orders") == expected
    title = f"a whole dump of {bench.rows:,} rows, 1 % of them changed"
    return Result(name="S", title=title, our_rounds=ours, sides=[theirs], equal=equal)


def _dump(bench: Bench, table: Path, file: Path) -> None:
    """Write a table as one Parquet file."""
    folder = bench.folder / "dump"
    rows = bench.spark.read.format("delta").load(str(table)).coalesce(1)
    rows.write.mode("overwrite").parquet(str(folder))
    next(folder.glob("*.parquet")).replace(file)


def _changes(
    bench: Bench, name: str, what: str, share: float, newest: float, sides: list[Side]
) -> Result:
    """Apply one change file to copies of the large table, side by side, round by round."""
    starts = [bench.theirs, bench.theirs_with_vectors]
    changes = make_changes(bench.rows, int(bench.rows * share), newest=newest, salt=ord(name))
    start, plain_start = bench.ours, bench.plain
    plain = Side(name="mirrorlib, --readers plain", target="(shown: its price)")
    loaded, theirs = bench.loaded, [Side(name=peer.name) for peer in bench.peers]
    file = write_file(bench.zone / "orders", _FILES + 1, changes)
    session = default_session(bench.spark, bench.shuffle_partitions)
    ours, equal = [], True
    for _ in range(bench.rounds):
        run = bench.copy(start)
        ours.append(timed(_apply, bench, run))
        expected = bench.digest(run / "orders")
        run = bench.copy(plain_start)
        plain.rounds.append(timed(_apply, bench, run))
        equal = equal and bench.digest(run / "orders") == expected
        for side, table in zip(sides, starts, strict=False):
            copy = bench.copy(table)
            side.rounds.append(timed(merge_files, session, copy, [file]))
            equal = equal and bench.digest(copy) == expected
        for side, (peer, table) in zip(theirs, loaded, strict=True):
            peer.begin(table)
            side.rounds.append(timed(peer.merge, table, file))
            equal = equal and bench.equals(peer, table, expected)
    title, sides = f"{what} of {bench.rows:,}", [*sides, plain, *theirs]
    return Result(name=name, title=title, our_rounds=ours, sides=sides, equal=equal)


def _five_files(folder: Path, table: int) -> list[Path]:
    return [
        write_file(
            folder, number, make_changes(_SMALL_ROWS, 10, newest=0.5, salt=table * 10 + number)
        )
        for number in range(2, 7)
    ]


def _apply(bench: Bench, target: Path) -> None:
    apply_to(bench, bench.zone, target)


def apply_to(bench: Bench, zone: Path, target: Path, **options: Any) -> mirrorlib.ApplyReport:  # noqa: ANN401  # apply's own
    """Apply a zone, or end here."""
    report = mirrorlib.apply(bench.spark, str(zone), str(target), **options)
    if not report.ok:
        raise SystemExit(str(report))
    return report


def timed(call: Callable[..., object], *arguments: object, **options: object) -> float:
    """Return the seconds that a call takes, by the clock that counts."""
    began = clock.read()
    call(*arguments, **options)
    return clock.read() - began
