"""What became of a batch, read from the commit that has ended its plan; never guessed.

In: a plan, and the commit, or what Spark has raised in its place. Out: `Done`, or an error that says why nobody can
tell, or which file is at fault.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import pyarrow as pa

from mirrorlib.delta.columns import to_pairs
from mirrorlib.delta.key_property import KEYS_PROPERTY, keys_property, next_keys
from mirrorlib.delta.log import Commit
from mirrorlib.delta.sessions import side_by_side
from mirrorlib.delta.table import Found, find_table
from mirrorlib.errors import FileChangedError, MirrorError
from mirrorlib.ingest.batch.open_batch import FAULTS, BatchTooLargeError, Prepared
from mirrorlib.ingest.files.source import Source
from mirrorlib.ingest.rows.decode import decode_all
from mirrorlib.ingest.rows.read import column_values, read_landed
from mirrorlib.ingest.work import Attempt
from mirrorlib.journal.entries import Done, Plan, PlannedFile, every_cause, now
from mirrorlib.store import StoredFile

DIRECT = "direct"  # in a commit's facts: Spark has read the landing zone itself, nothing was staged


def outcome_of(
    attempt: Attempt, ended: Commit, prepared: Prepared | None = None, found: Found | None = None
) -> Done:
    """Read from the commit that has ended a plan how its batch ended; *found* is the table, where it was seen since."""
    work, plan = attempt.work, attempt.plan
    facts: dict[str, Any] = dict(ended.ours or {})
    outcome: Literal["applied", "void"] = "void" if facts.get("outcome") == "void" else "applied"
    alone = plan.table_version is not None and ended.version == plan.table_version + 1
    if outcome == "applied" and prepared is not None and plan.before and alone:
        columns = to_pairs(prepared.growth.columns)
        _, kept = next_keys(
            plan, prepared.growth.columns, foreign=work.options.allow_foreign_writes
        )
        keys = keys_property(kept).get(KEYS_PROPERTY, "")
    else:
        found = found or find_table(work.spark, work.ref)
        columns = () if found is None else to_pairs(found.columns)
        keys = "" if found is None else found.properties.get(KEYS_PROPERTY, "")
    # A batch may also replace what is there: only where nothing tells, it is taken to come on top, until that doubles.
    size = found.bytes if found else work.log.table_bytes(ended.version)
    if size is None:
        size = attempt.table_bytes + facts.get("bytes", 0)
        if size.bit_length() > attempt.table_bytes.bit_length():
            looked_at = find_table(work.spark, work.ref)
            size = looked_at.bytes if looked_at else size
    return Done(
        outcome=outcome,
        version=ended.version,
        table_id=found.id if found else (plan.previous or {}).get("table_id"),
        columns=columns,
        table_bytes=size,
        kind=facts.get("kind", outcome),
        rows=facts.get("rows", {}),
        seconds=dict(attempt.clock),
        cause=standing_cause(plan, facts.get("cause")),
        doubt=_first_changed(attempt.source, plan) if facts.get(DIRECT) else None,
        finished_at=now(),
        keys=keys,
    )


def _first_changed(source: Source, plan: Plan) -> str | None:
    there = side_by_side(source.has, plan.files, source.zone.at_once)
    return next((file.name for file, same in zip(plan.files, there, strict=True) if not same), None)


def standing_cause(plan: Plan, voided: Mapping[str, Any] | None = None) -> Mapping[str, Any] | None:
    """Put what voided a plan before what voided earlier ones, which is carried on until a batch is past those files."""
    passed = {file.name for file in plan.files}
    earlier = every_cause((plan.previous or {}).get("cause"))
    standing = [cause for cause in earlier if cause["file"] not in passed]
    causes = [voided, *standing] if voided else standing
    if len(causes) < 2:  # noqa: PLR2004  # one stands alone
        return next(iter(causes), None)
    return {**causes[0], "others": causes[1:]}


def cause_of_void(plan: Plan, fault: MirrorError) -> dict[str, Any]:
    """Write down what keeps a plan from being carried out.

    A fault that names no file of the plan stands before its first one: without a file to wait for, the
    same plan would be made and voided for ever.
    """
    file = next((file for file in plan.files if file.name == fault.file), plan.files[0])
    # A file that was replaced or removed is not damaged: what is there next may be read at once. Nor is one of many.
    etag = None if isinstance(fault, (BatchTooLargeError, FileChangedError)) else file.etag
    return {**cause_of(file, fault), "etag": etag}


def cause_of(file: PlannedFile | StoredFile, fault: MirrorError) -> dict[str, Any]:
    """Write down why a file stands in the way of its partition folder until it has another etag."""
    error = type(fault).__name__
    return {"file": file.name, "etag": file.etag, "error": error, "reason": str(fault)}


def find_damage(source: Source, plan: Plan) -> MirrorError | None:
    """Look whether a file of the plan was replaced, has a damaged page, or a moment that Delta cannot hold."""
    for planned in plan.files:
        try:
            file = source.find(planned, plan.batch)
            decode_all(source, file)
            # Milliseconds reach further than Delta's microseconds. Files are not asked for it before they are
            # applied, as Spark refuses such a value by itself. What only Spark reads is not asked at all.
            landed = read_landed(source, file, decode=False)
            for column in landed.schema.own.columns:
                if pa.types.is_timestamp(column.stored) and not column.moved:
                    for values in column_values(landed, column):
                        del values  # reading them is the check
        except FAULTS as fault:
            return fault
    return None
