"""The ledger: what a target has applied, batch by batch, as its journal has it.

In: a target. Out: `LedgerReport`, newest batches first for each table; needs no Spark and writes
nothing. `book.py` writes the same rows into Delta tables, for dashboards.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from typing import ClassVar

from mirrorlib.errors import JournalError, LandingZoneError
from mirrorlib.ingest.report import BatchReport
from mirrorlib.journal.disk import Journal, find_journals
from mirrorlib.journal.entries import Done, Life, Plan
from mirrorlib.names import TableName, matches, refuse_unmatched
from mirrorlib.store import PathOrUrl, Store, open_store
from mirrorlib.store.target import Target
from mirrorlib.tabular import PartReport, noted

LAST = 100
_COUNTED = ("insert", "update", "delete", "upsert")
_MEASURED = ("version", "seconds", "waited")
NEW = "nothing has been applied to this target yet"


@dataclass(frozen=True, slots=True, kw_only=True)
class Applied(BatchReport):
    """One batch that has ended.

    Attributes:
        table: "dbo/orders".
        life: which life of the table folder it belongs to, 1 for the first.
        outcome: applied or void.
        waited_seconds: how old the oldest of its files was when it ended.
        planned_at: when its folder was listed, ISO 8601.
        finished_at: when it ended, ISO 8601.
        cause: what voided it.
        schema: what became of the table's columns since the batch before: "+ amount bigint", "- note", "amount: int ->
            bigint".

    """

    table: str
    life: int
    outcome: str
    waited_seconds: float
    planned_at: str
    finished_at: str
    cause: str | None
    schema: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class LedgerReport(PartReport):
    """The newest batches of every table of a target."""

    columns: ClassVar = ("table", "batch", "finished", "files", *_COUNTED, *_MEASURED)
    each: ClassVar = "batches"
    facts: ClassVar = (
        "table batch finished_at:moment files:count inserts:count updates:count deletes:count upserts:count "
        "version spent:.1f waited_seconds:duration"
    )
    target: str
    batches: tuple[Applied, ...]

    def notes(self) -> list[str]:
        """Say why batches were voided, then what is missing."""
        void = (one for one in self.batches if one.outcome == "void")
        why = [f"{one.table}: batch {one.batch} was voided: {one.cause}" for one in void]
        return [*why, *self.failures]


def read_ledger(
    target: PathOrUrl,
    *,
    tables: Sequence[str] = (),
    catalog: str | None = None,
    state: PathOrUrl | None = None,
    last: int = LAST,
    allow_new: bool = False,
    before: LedgerReport | None = None,
) -> LedgerReport:
    """Read the newest batches of every table of a target; where a journal is damaged, those behind that, and say so.

    *last* is how many batches a table; *tables* are names or globs, and empty is all of them. *before* is an earlier
    answer, whose batches are not read again. The rest means the same as for `status`.

    Raises:
        JournalError: nothing has ever been applied to this target.
        LandingZoneError: *last* is no number from 1 on.

    """
    if last < 1:
        msg = "a ledger has at least one batch a table"
        raise LandingZoneError(msg, found=last, next_step="Give a whole number from 1 on.")
    places = Target.of(target, catalog=catalog, state=state)
    known: defaultdict[str, list[Applied]] = defaultdict(list)
    for one in before.batches if before and before.ok else ():  # else a gap would stay
        known[one.table].append(one)
    found, failures = list[Applied](), list[str]()
    applied = find_applied(open_store(places.state), allow_new=allow_new)
    if applied:
        refuse_unmatched(tables, tuple(applied))
    for name, journal in applied.items():
        if matches(name, tables):
            had = known[name.shown]
            after = (had[0].life, had[0].batch) if had else (0, 0)
            new = _readable(newest_batches(journal, name, after), failures)
            found += [*islice(new, last), *had][:last]
    return LedgerReport(target=places.shown, batches=tuple(found), failures=tuple(failures))


def _readable(batches: Iterator[Applied], failures: list[str]) -> Iterator[Applied]:
    with noted(failures):
        yield from batches


def newest_batches(journal: Journal, name: TableName, after: tuple[int, int]) -> Iterator[Applied]:
    """Read a table's batches that have ended *after* that life and batch, newest first, as they are asked for."""
    ended = _ended(journal)
    one = next(ended, None)
    while one is not None and (one[0].ordinal, one[1].batch) > after:
        try:
            before = next(ended, None)
        except JournalError:
            yield _applied(name, *one, ())
            if (one[0].ordinal, one[1].batch - 1) <= after:
                return  # nothing is asked of what cannot be read
            raise
        yield _applied(name, *one, before[2].columns if before else ())
        one = before


def _ended(journal: Journal) -> Iterator[tuple[Life, Plan, Done]]:
    for life in reversed(journal.lives()):
        entry = journal.newest(life)
        while entry is not None:
            if entry.done is not None:
                yield life, entry.plan, entry.done
            number = entry.plan.batch - 1
            entry = journal.entry(life, number) if number else None


def find_applied(state: Store, *, allow_new: bool = False) -> dict[TableName, Journal]:
    """Find the journals of a target, by their tables in order.

    Raises:
        JournalError: it has none, and that is not allowed.

    """
    found = find_journals(state)
    if not found and not allow_new:
        step = "Start with: mirrorlib apply LANDING_ZONE TARGET. Of derived tables tells: mirrorlib lineage TARGET"
        raise JournalError(NEW, found=state.url, next_step=step)
    return found


def _changed(before: Mapping[str, str], after: Mapping[str, str]) -> Iterator[str]:
    """Say what became of columns; nothing of a table that was just made, or not yet."""
    if before and after:
        yield from (f"+ {name} {kind}" for name, kind in after.items() if name not in before)
        yield from (f"- {name}" for name in before if name not in after)
        both = [(name, before[name], kind) for name, kind in after.items() if name in before]
        yield from (f"{name}: {old} -> {new}" for name, old, new in both if old != new)


def _applied(
    name: TableName, life: Life, plan: Plan, done: Done, before: Sequence[tuple[str, str]]
) -> Applied:
    written = min(datetime.fromisoformat(one.modified) for one in plan.files)
    waited = datetime.fromisoformat(done.finished_at) - written
    return Applied.of(
        plan,
        done,
        table=name.shown,
        life=life.ordinal,
        outcome=done.outcome,
        waited_seconds=round(max(waited.total_seconds(), 0.0), 1),
        planned_at=plan.listed_at,
        finished_at=done.finished_at,
        cause=str((done.cause or {}).get("reason", "")) or None,
        schema=tuple(_changed(dict(before), dict(done.columns))),
    )
