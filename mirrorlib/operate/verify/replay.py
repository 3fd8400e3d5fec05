"""Find the landing files that a table was made of, and read their rows in its columns.

In: the batches that a table's journal knows as applied, and the zone. Out: rows with their markers, as `compare` folds
them. Files are decoded and cast as `apply` does it, by each batch's policies.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from typing import TYPE_CHECKING

from mirrorlib.commit.stage import SET, Stage
from mirrorlib.delta.columns import Columns
from mirrorlib.errors import FileChangedError, JournalError
from mirrorlib.identifiers import find_name, quote
from mirrorlib.ingest.batch.evolve import Growth
from mirrorlib.ingest.batch.open_batch import Prepared
from mirrorlib.ingest.batch.spark_reader import read_frame
from mirrorlib.ingest.files.cleanup import PLACES
from mirrorlib.ingest.files.continued_life import applied_entries
from mirrorlib.ingest.files.source import Source
from mirrorlib.ingest.rows.marks import ORDER, ROWS_PER_FILE
from mirrorlib.ingest.rows.read import Landed, read_landed
from mirrorlib.journal.disk import Journal
from mirrorlib.journal.entries import Entry, Plan, PlannedFile
from mirrorlib.landing.columns import INSERT
from mirrorlib.names import TableName
from mirrorlib.operate.verify.compare import all_set, unite
from mirrorlib.store import Store

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def list_batches(journal: Journal, until: int) -> list[Entry]:
    """Give the batches that make up a table at a version, oldest first; of snapshots the last file alone.

    Raises:
        JournalError: there is none.

    """
    lives = journal.lives()
    first = max((place for place, life in enumerate(lives) if not life.keeps), default=0)
    found = [
        entry
        for life in lives[first:]
        for entry in reversed([*applied_entries(journal, life, journal.newest(life))])
        if entry.done is not None and entry.done.version <= until
    ]
    if not found:
        msg = "no batch of the table's present life has been applied"
        raise JournalError(msg, next_step="Run: mirrorlib apply")
    last = found[-1].plan
    if last.policies.snapshots:
        return [replace(found[-1], plan=replace(last, files=last.files[-1:]))]
    return found


def open_files(zone: Store, name: TableName, entries: Sequence[Entry]) -> list[Landed]:
    """Open the files of batches where they were, or where applied files are moved to.

    Raises:
        FileChangedError: one is gone, or is not what was applied.

    """
    places = [*list_places(zone, name)]
    planned = [(entry.plan, file) for entry in entries for file in entry.plan.files]
    return [open_planned(zone, name, plan, file, places) for plan, file in planned]


def list_places(zone: Store, name: TableName) -> Iterator[str]:
    """Name the folders in which a table's applied files may lie, their own first."""
    yield name.folder
    for place in PLACES.values():
        listed = zone.list_folder(f"{name.folder}/{place}")
        days = ("", *(f"/{day}" for day in listed.folders)) if listed else ()
        yield from (f"{name.folder}/{place}{day}" for day in days)


def open_in(places: Iterable[str], source: Source, name: str) -> Iterator[Landed]:
    """Open a file in each of some places that has it."""
    for place in places:
        if (file := source.zone.stat(f"{place}/{name}")) is not None:
            yield read_landed(source, replace(file, below=name), decode=False)


def open_planned(
    zone: Store, name: TableName, plan: Plan, planned: PlannedFile, places: Iterable[str]
) -> Landed:
    """Open a file of a plan in the first place that has it; `FileChangedError` where none has."""
    source = Source(zone=zone, table=name.shown, folder=name.folder, policies=plan.policies)
    msg = "the change file is gone"
    for landed in open_in(places, source, planned.name):
        if landed.fingerprint == planned.fingerprint:
            return landed
        msg = "the change file is not what was applied"
    step = "Bring it back, or verify only what comes from now on: --mark"
    raise FileChangedError(msg, table=source.table, file=planned.name, next_step=step)


def read_files(
    stage: Stage, opened: Sequence[Landed], columns: Columns, start: DataFrame | None
) -> tuple[DataFrame | None, DataFrame | None, int]:
    """Read all rows in a table's *columns*: those of *start* and of the plain inserts that it began with, and the rest.

    The rest, which comes with how many it is, has what `replay_rows` needs: `MARKER`, `ORDER` over all files and, where
    updates are partial, `SET`.
    """
    from pyspark.sql import functions as f

    first = next((place for place, one in enumerate(opened) if _folds(one)), len(opened))
    names = [quote(column.name) for column in columns]
    begun: list[DataFrame] = []
    rest: list[DataFrame] = []
    if start is not None:
        had = [find_name(start.columns, column.name) for column in columns]
        values = [f.col(quote(name)) if name else f.lit(None) for name in had]
        typed = [v.cast(c.sql_type).alias(c.name) for v, c in zip(values, columns, strict=True)]
        begun.append(start.select(*typed))
    runs = groupby(enumerate(opened), lambda one: (one[0] < first, one[1].source))
    for (is_first, source), some in runs:
        run = [*some]
        seen, landed = run[0][0], tuple(one for _, one in run)
        growth = Growth(columns=columns)
        prepared = Prepared(source=source, landed=landed, growth=growth, fault=None)
        part = replace(stage, folder=f"{stage.folder}/{seen}")
        rows = read_frame(part, prepared, ordered=not is_first)
        if is_first:
            begun.append(rows.select(*names))
        else:
            rest.append(rows.withColumn(ORDER, f.col(ORDER) + seen * ROWS_PER_FILE))
    if any(SET in one.columns for one in rest):
        everything = all_set(columns)
        rest = [one if SET in one.columns else one.withColumn(SET, everything) for one in rest]
    return unite(begun), unite(rest), sum(one.schema.rows for one in opened[first:])


def _folds(landed: Landed) -> bool:
    """Say whether a file has more than plain inserts."""
    plain, policies = landed.counts[INSERT] == landed.schema.rows, landed.source.policies
    return bool(policies.keys) and (policies.insert_policy == "upsert" or not plain)
