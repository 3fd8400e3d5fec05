"""Take a table over from the life before, in a life that keeps it: from then on nobody else can commit to it.

In: a `Work` whose life has planned nothing yet. Out: the life before is fenced off and its last batch has
an outcome, so that what it has appended is certain; the journal holds all of it. Every step may be
repeated, and is until the first plan of the new life is written.
"""

from __future__ import annotations

from collections.abc import Sequence

from mirrorlib.delta.columns import Columns, find_key_column
from mirrorlib.delta.table import find_table
from mirrorlib.errors import JournalError
from mirrorlib.ingest.batch.evolve_table import fence_lives, refuse_table
from mirrorlib.ingest.batch.foreign_writes import find_outcome
from mirrorlib.ingest.batch.outcome import outcome_of
from mirrorlib.ingest.work import Attempt, Work


def take_over(work: Work) -> bool:
    """See that the life before can commit nothing more, and write down how its last batch ended.

    Returns whether the life has yet to begin; what the life before has appended is known for certain only now.

    Raises `JournalError`: the table lacks a key column; `ForeignWriteError`: it is not this mirror's, or somebody else
    wrote to it; `OutcomeUnknownError`: nobody can tell any more what became of the last batch.
    """
    if not work.life.keeps or work.journal.newest(work.life) is not None:
        return False
    found = find_table(work.spark, work.ref)
    if found is None:
        return True  # the guard says so
    refuse_table(work, found)
    check_key_columns(work.table, found.columns, work.source.policies.keys)
    with work.step("fence", {}):
        fence_lives(work, found)
    before = work.lives[-2]
    entry = work.journal.newest(before)
    if entry is not None and entry.done is None:
        attempt = Attempt(work=work, plan=entry.plan)
        _, ended = find_outcome(attempt)
        if ended is not None:  # else it never will be
            done = outcome_of(attempt, ended)
            work.journal.write_done(before, entry.plan.batch, done)
    return True


def check_key_columns(table: str, columns: Columns, keys: Sequence[str]) -> None:
    """See that a table that is kept has the columns of its new keys.

    Raises `JournalError`: it lacks one, so that no change could find the rows that were appended.
    """
    missing = next((key for key in keys if find_key_column(columns, key) is None), None)
    if missing is not None:
        msg = "the table cannot be kept: it lacks a key column that _metadata.json names"
        step = f"Correct keyColumns, or let the table start over: mirrorlib reset TARGET {table}"
        raise JournalError(msg, table=table, column=missing, next_step=step)
