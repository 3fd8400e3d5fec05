"""Say why Spark failed to commit a batch: whose fault it is, where it is, and what to do.

In: a plan and what Spark or Delta has raised. Out: the fault of a file, or an error of ours that names what
stood in the way. What Py4J hands on has no conditions to ask for, so Delta's words are read where they name
something; values of the data are left out.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pyarrow as pa

from mirrorlib.delta.trouble import spark_error
from mirrorlib.errors import FileChangedError, MirrorError
from mirrorlib.ingest.batch.open_batch import FAULTS
from mirrorlib.ingest.rows.decode import decode_whole
from mirrorlib.ingest.rows.read import column_values, read_landed

if TYPE_CHECKING:
    from mirrorlib.ingest.files.source import Source
    from mirrorlib.ingest.work import Work
    from mirrorlib.journal.entries import Plan
    from mirrorlib.store import StoredFile

_CHECK = re.compile(r"CHECK constraint (?P<name>\S+) (?P<rule>\(.*\)) violated by row")
_NOT_NULL = re.compile(
    r"NOT NULL constraint violated for column: (?P<name>.+?)\.?\s*$", re.MULTILINE
)


def find_damage(source: Source, plan: Plan) -> MirrorError | None:
    """Look whether a file of the plan was replaced, has a damaged page, or a moment that Delta cannot hold."""
    for planned in plan.files:
        file = source.find(planned)
        try:
            if file is None:
                msg = "the change file was replaced or removed while it was applied"
                raise FileChangedError(msg, table=source.table, file=planned.name)
            decode_whole(source, file)
            _see_moments(source, file)
        except FAULTS as fault:
            return fault
    return None


def _see_moments(source: Source, file: StoredFile) -> None:
    """Read all timestamps as a mirror has them: milliseconds reach further than Delta's microseconds.

    Files are not asked for it before they are applied, as Spark refuses such a value by itself. What only
    Spark reads is not asked at all.

    Raises:
        SchemaError: one is beyond what a Delta timestamp can hold.

    """
    landed = read_landed(source, file, whole=False)
    for column in landed.schema.own.columns:
        if pa.types.is_timestamp(column.stored) and not column.moved:
            for values in column_values(source, landed, column):
                del values  # reading them is the check


def spark_failed(work: Work, plan: Plan, exc: Exception) -> MirrorError:
    """Say what Spark has against a batch whose files are all sound."""
    text = str(exc)
    check, required = _CHECK.search(text), _NOT_NULL.search(text)
    if check is not None:
        told = f"the constraint {check['name']} {check['rule']}"
        step = f"ALTER TABLE {work.ref.sql} DROP CONSTRAINT {check['name']}"
        return _constrained(work, plan, told, step)
    if required is not None:
        told = f"NOT NULL of the column {required['name']}"
        step = f"ALTER TABLE {work.ref.sql} ALTER COLUMN {required['name']} DROP NOT NULL"
        return _constrained(work, plan, told, step)
    return spark_error(exc, f"commit batch {plan.batch}", work.table)


def _constrained(work: Work, plan: Plan, told: str, statement: str) -> MirrorError:
    first, last = plan.files[0].name, plan.files[-1].name
    files = first if first == last else f"{first} to {last}"
    return MirrorError(
        f"somebody has put a constraint on the table, and a row of {files} violates it",
        table=work.table,
        found=told,
        next_step=f"Take it off: {statement}. The next run tries again.",
    )
