"""What became of a batch, read from the commit that has ended its plan; never guessed (design §4).

In: a plan, and the commit. Out: `Done`, or the error that says why nobody can tell.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal

from mirrorlib.delta.columns import to_pairs
from mirrorlib.delta.key_property import KEYS_PROPERTY, keys_property, next_keys
from mirrorlib.delta.table import find_table
from mirrorlib.errors import FileChangedError, MirrorError, OutcomeUnknownError
from mirrorlib.ingest.batch.foreign_writes import life_is_over
from mirrorlib.ingest.files.changed_source import find_doubt
from mirrorlib.ingest.work import source_of
from mirrorlib.journal.entries import Done, every_cause, now

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mirrorlib.delta.log import Commit
    from mirrorlib.ingest.batch.open_batch import Prepared
    from mirrorlib.ingest.work import Work
    from mirrorlib.journal.entries import Plan

DIRECT = "direct"  # in a commit's facts: Spark has read the landing zone itself, nothing was staged


def outcome_of(
    work: Work,
    plan: Plan,
    ended: Commit,
    prepared: Prepared | None = None,
    clock: Mapping[str, float] = MappingProxyType({}),
    table_bytes: int = 0,
) -> Done:
    """Read from the commit that has ended a plan how its batch ended."""
    facts: dict[str, Any] = dict(ended.ours or {})
    outcome: Literal["applied", "void"] = "void" if facts.get("outcome") == "void" else "applied"
    alone = plan.table_version is not None and ended.version == plan.table_version + 1
    previous = plan.previous or {}
    keys: str | None = None
    if outcome == "applied" and prepared is not None and plan.before and alone:
        columns, found = to_pairs(prepared.growth.columns), None
        _, kept = next_keys(plan, prepared.growth.columns, foreign=work.allow_foreign_writes)
        keys = keys_property(kept).get(KEYS_PROPERTY, "")
    else:
        found = find_table(work.spark, work.ref)
        columns = () if found is None else to_pairs(found.columns)
        keys = None if found is None else found.properties.get(KEYS_PROPERTY, "")
    return Done(
        outcome=outcome,
        version=ended.version,
        table_id=found.id if found else previous.get("table_id"),
        columns=columns,
        table_bytes=found.bytes if found else table_bytes + facts.get("bytes", 0),
        kind=facts.get("kind", outcome),
        rows=facts.get("rows", {}),
        seconds=dict(clock),
        cause=standing_cause(plan, facts.get("cause")),
        doubt=find_doubt(source_of(work, plan), plan) if facts.get(DIRECT) else None,
        finished_at=now(),
        keys=keys,
    )


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
    return {
        "file": file.name,
        # A file that was replaced or removed is not damaged: what is there next may be read at once.
        "etag": None if isinstance(fault, FileChangedError) else file.etag,
        "error": type(fault).__name__,
        "reason": str(fault),
    }


def explain_skip(work: Work, plan: Plan) -> MirrorError:
    """Explain a commit that Delta skipped and no commit accounts for: the life is over, or the record is not ours."""
    if work.journal.lives()[-1].uuid != work.life.uuid:
        return life_is_over(work)
    msg = f"Delta skipped batch {plan.batch} as already recorded, but no commit names it"
    return OutcomeUnknownError(
        msg,
        table=work.table,
        next_step=f"Start the table over: mirrorlib reset TARGET {work.table}",
    )
