"""Keep in mind that a batch may hold another file than was planned: nothing goes on, on a table that is in doubt.

In: a plan whose commit has read the landing zone itself, and what became of it. Out: the name of a file that
is no longer what was planned, or nothing; and, for as long as the table's life lasts, the error that says so.
It is too late for a void then, and nobody can tell which of the two contents Spark has read, or parts of both.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirrorlib.errors import FileChangedError

if TYPE_CHECKING:
    from mirrorlib.ingest.files.source import Source
    from mirrorlib.journal.entries import Entry, Plan


def find_changed_source(source: Source, plan: Plan) -> str | None:
    """Return the first file of a plan that was replaced or removed since, None when all are as they were."""
    return next((planned.name for planned in plan.files if source.find(planned) is None), None)


def changed_source_error(table: str, entry: Entry | None) -> FileChangedError | None:
    """Return what casts doubt on a table's newest batch; a life in doubt has no later one."""
    if entry is None or entry.done is None or entry.done.doubt is None:
        return None
    return FileChangedError(
        f"the change file was replaced while batch {entry.plan.batch} was committed, and may be in it either way",
        table=table,
        file=entry.done.doubt,
        next_step=f"Start the table over: mirrorlib reset TARGET {table}",
    )


def check_changed_source(table: str, entry: Entry | None) -> None:
    """See that nothing casts doubt on a table's newest batch.

    Raises:
        FileChangedError: something does, until the table is reset.

    """
    doubt = changed_source_error(table, entry)
    if doubt is not None:
        raise doubt
