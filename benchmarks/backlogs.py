"""The workloads of what waits in a zone: marked first loads, larger tables, many tiny files, text.

Each is a function from `Bench` to its results. What mirrorlib has to be level with is here often mirrorlib itself,
with less rows or as Parquet; the tables must be equal to the recipe's, or to what `replay` says in Arrow.
"""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from data import (
    COLUMNS,
    MARKER,
    declare_text,
    make_changes,
    make_rows,
    mark,
    replay,
    write_file,
    write_load,
    write_text,
)
from recipe import create_table, default_session, merge_files
from workloads import Bench, Result, Side, apply_to, begun, timed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

_HOT = 200_000  # keys: the newest, in which G's changes lie
_CHANGES = 10_000
_SMALL = 1_000  # rows of H's table
_LEVEL = ">= 0.67 (ours <= 1.5 x)"


def run_a3(bench: Bench) -> Iterator[Result]:
    """Load a table for the first time from files with markers: all inserts, all upserts, both."""
    bench.only_load()
    count = len(bench.load)
    kinds = {
        "every row 0": [[0]] * count,
        "every row 4": [[4]] * count,
        "files of 0, files of 4, one of both": [
            [0] if place < count // 2 else [4] if place < count - 1 else [0, 4]
            for place in range(count)
        ],
    }
    zones = {
        kind: _mark_load(bench, bench.folder / f"marked{place}", markers)
        for place, (kind, markers) in enumerate(kinds.items())
    }
    run = bench.folder / "run"
    copy, session = (
        Side(name="plain Spark copy", target=_LEVEL),
        default_session(bench.spark, bench.shuffle_partitions),
    )
    ours: dict[str, list[float]] = {kind: [] for kind in kinds}
    equal = dict.fromkeys(kinds, True)
    for _ in range(bench.rounds):
        shutil.rmtree(run, ignore_errors=True)
        marked = sorted((zones["every row 4"] / "orders").glob("*.parquet"))
        copy.rounds.append(timed(create_table, session, run / "copy", marked, vectors=True))
        expected = bench.digest(run / "copy")
        for kind, zone in zones.items():
            shutil.rmtree(run / "ours", ignore_errors=True)
            ours[kind].append(timed(apply_to, bench, zone, run / "ours"))
            equal[kind] = equal[kind] and bench.digest(run / "ours" / "orders") == expected
    for kind, rounds in ours.items():
        title = f"initial load, {bench.rows:,} rows x {len(COLUMNS)} columns in {count} files, marked: {kind}"
        yield Result(name="A3", title=title, our_rounds=rounds, sides=[copy], equal=equal[kind])


def _mark_load(bench: Bench, zone: Path, markers: Sequence[list[int]]) -> Path:
    write_load(zone / "orders", 1, 1)
    for number, (file, some) in enumerate(zip(bench.load, markers, strict=True), start=1):
        write_file(zone / "orders", number, mark(pq.read_table(file), some))
    return zone


def run_g(bench: Bench) -> Iterator[Result]:
    """Change rows of a hot range of as many keys, in tables of a tenth, one and three times the rows."""
    least, some, most = sizes = [bench.rows // 10, bench.rows, bench.rows * 3]
    hot = min(_HOT, least)
    wanted: dict[int, tuple[Any, ...]] = {}
    for rows in sizes:
        folder = bench.folder / f"of-{rows}"
        load = write_load(folder / "zone" / "orders", rows, rows // least)
        apply_to(bench, folder / "zone", folder / f"ours-{rows}")
        changes = make_changes(rows, min(_CHANGES, hot), newest=hot / rows, salt=ord("G"))
        write_file(folder / "zone" / "orders", len(load) + 1, changes)
        wanted[rows] = _digest_changed(bench, folder, rows, changes)
    ours: dict[int, list[float]] = {rows: [] for rows in sizes}
    equal = True
    for _ in range(bench.rounds):
        for rows, want in wanted.items():
            folder = bench.folder / f"of-{rows}"
            run = bench.copy(folder / f"ours-{rows}")
            ours[rows].append(timed(apply_to, bench, folder / "zone", run))
            equal = equal and bench.digest(run / "orders") == want
    for rows in sizes:
        shutil.rmtree(bench.folder / f"of-{rows}")
    level = Side(name=f"mirrorlib, {least:,} rows", target=">= 0.77 (ours <= 1.3 x)")
    level.rounds = ours[least]
    sides = [level, Side(name=f"mirrorlib, {some:,} rows", rounds=ours[some])]
    title = f"{min(_CHANGES, hot):,} changes in the newest {hot:,} keys of {most:,} rows"
    yield Result(name="G", title=title, our_rounds=ours[most], sides=sides, equal=equal)


def _digest_changed(bench: Bench, folder: Path, rows: int, changes: pa.Table) -> tuple[Any, ...]:
    """Say what the digest of a loaded table has to be once its rows are changed: it is a sum over rows."""
    keys, markers = changes.column("id"), changes.column(MARKER)
    gone = make_rows(keys.filter(pc.less(keys, rows)).combine_chunks(), 0)
    come = changes.filter(pc.not_equal(markers, 2)).drop_columns([MARKER])
    digests = [bench.digest(folder / f"ours-{rows}" / "orders")]
    for number, part in enumerate((gone, come)):
        digests.append(bench.digest(write_file(folder, number, part), "parquet"))
    return tuple(whole - less + more for whole, less, more in zip(*digests, strict=True))


def run_h(bench: Bench) -> Iterator[Result]:
    """Bring a small table up to date that thousands of tiny files wait for, in one batch, and as limits say."""
    folder = bench.folder / "tiny"
    shutil.rmtree(folder, ignore_errors=True)
    zone = folder / "zone"
    load = write_load(zone / "t", _SMALL, 1)
    apply_to(bench, zone, folder / "ours")
    count = max(100, min(10_000, bench.rows // 1_000))
    changes = [make_changes(_SMALL, 10, newest=0.5, salt=salt) for salt in range(1, count + 1)]
    files = [write_file(zone / "t", number, rows) for number, rows in enumerate(changes, start=2)]
    sides, equal = _merge_some(bench, folder, load, files, changes)
    write_file(folder, 0, replay(pq.read_table(load[0]), changes))
    expected = bench.digest(folder / f"{0:020d}.parquet", "parquet")
    sizes = [file.stat().st_size for file in files]
    limits: list[dict[str, int]] = [
        {"max_files": count // 10},
        {"max_bytes": sum(sizes) // 8},
    ]
    ours: list[float] = []
    for options in [*[{}] * bench.rounds, *limits]:
        run = bench.copy(folder / "ours")
        made: list[int] = []
        seconds = timed(_note_batches, bench, zone, run, options, made)
        equal = equal and made == _batches(sizes, **options)
        equal = equal and bench.digest(run / "t") == expected
        words = ", ".join(f"{name}={limit:,}" for name, limit in options.items())
        if words:
            sides.append(Side(name=f"mirrorlib, {words}: {len(made)} batches", rounds=[seconds]))
        else:
            ours.append(seconds)
    title = f"{count:,} files x 10 rows of one table in one batch"
    yield Result(name="H", title=title, our_rounds=ours, sides=sides, equal=equal)


def _merge_some(
    bench: Bench,
    folder: Path,
    load: list[Path],
    files: list[Path],
    changes: list[pa.Table],
) -> tuple[list[Side], bool]:
    """Let everybody else merge the first files one by one, and scale that up; say whether they end equal."""
    warm, some = min(10, bench.warm_up), max(2, min(30, len(files) // 100))
    session = default_session(bench.spark, bench.shuffle_partitions)
    create_table(session, folder / "recipe", load, vectors=False)
    peers = begun(bench, folder, load)
    sides = [Side(name="recipe", target=">= 20"), *(side for _, _, side in peers)]
    for file in files[: warm + some]:
        sides[0].rounds.append(timed(merge_files, session, folder / "recipe", [file]))
        for peer, table, side in peers:
            side.rounds.append(timed(peer.merge, table, file))
    write_file(folder, 1, replay(pq.read_table(load[0]), changes[: warm + some]))
    expected = bench.digest(folder / f"{1:020d}.parquet", "parquet")
    equal = bench.digest(folder / "recipe") == expected
    equal = equal and all(bench.equals(peer, table, expected) for peer, table, _ in peers)
    for side in sides:
        side.name += f", a MERGE a file, {some} of {len(files):,}"
        side.rounds = [sum(side.rounds[warm:]) * len(files) / some]
    return sides, equal


def _note_batches(
    bench: Bench, zone: Path, target: Path, options: dict[str, Any], made: list[int]
) -> None:
    """Apply, and note how many files each batch has taken."""
    (table,) = apply_to(bench, zone, target, **options).tables
    made += [batch.files for batch in table.batches]


def _batches(sizes: list[int], max_files: int = 1 << 60, max_bytes: int = 1 << 60) -> list[int]:
    """Say how many files each batch has to take."""
    batches: list[int] = []
    taken = 0
    for size in sizes:
        if not batches or batches[-1] == max_files or taken + size > max_bytes:
            batches.append(0)
            taken = 0
        batches[-1] += 1
        taken += size
    return batches


def run_i(bench: Bench) -> Iterator[Result]:
    """Load and change tables from text, against the same as Parquet."""
    for rows in (bench.rows // 5, min(_CHANGES, bench.rows // 10)):
        folder = bench.folder / f"text-{rows}"
        load = make_rows(pa.array(range(rows), pa.int64()), 0)
        _write_both(folder, 1, load)
        yield _text_result(bench, folder, None, load, f"initial load of {rows:,} rows as text")
    folder = bench.folder / f"text-{bench.rows // 5}"
    load = make_rows(pa.array(range(bench.rows // 5), pa.int64()), 0)
    changes = make_changes(len(load), min(_CHANGES, len(load) // 10), newest=1.0, salt=ord("I"))
    for kind in ("csv", "parquet"):
        apply_to(bench, folder / kind, folder / f"{kind}-loaded", settle=0.0)
    _write_both(folder, 2, changes)
    title = f"{len(changes):,} changes of {len(load):,} rows as text, random keys"
    yield _text_result(bench, folder, "loaded", replay(load, [changes]), title)


def _write_both(folder: Path, number: int, rows: pa.Table) -> None:
    """Write rows as Parquet and as text, in the types that text knows."""
    at = rows.column_names.index("price")
    rows = rows.set_column(at, "price", rows.column("price").cast(pa.float64()))
    declare_text(folder / "csv" / "t")
    write_text(folder / "csv" / "t", number, rows)
    if number == 1:
        write_load(folder / "parquet" / "t", 1, 1)
    write_file(folder / "parquet" / "t", number, rows)


def _text_result(
    bench: Bench, folder: Path, start: str | None, want: pa.Table, title: str
) -> Result:
    """Apply both zones in turn to nothing, or to copies of what they have loaded."""
    write_file(folder, 0, want.set_column(4, "price", want.column("price").cast(pa.float64())))
    expected = bench.digest(folder / f"{0:020d}.parquet", "parquet")
    rounds: dict[str, list[float]] = {"csv": [], "parquet": []}
    equal = True
    for _ in range(bench.rounds):
        for kind, seconds in rounds.items():
            run = bench.folder / "run" / kind
            shutil.rmtree(run, ignore_errors=True)
            if start:
                run = bench.copy(folder / f"{kind}-{start}")
            seconds.append(timed(apply_to, bench, folder / kind, run, settle=0.0))
            equal = equal and bench.digest(run / "t") == expected
    parquet = Side(name="the same as Parquet", target=_LEVEL, rounds=rounds["parquet"])
    return Result(name="I", title=title, our_rounds=rounds["csv"], sides=[parquet], equal=equal)


RUNS: dict[str, Callable[[Bench], Iterator[Result]]] = {
    "A3": run_a3,
    "G": run_g,
    "H": run_h,
    "I": run_i,
}
