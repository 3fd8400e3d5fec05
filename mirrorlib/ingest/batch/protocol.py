"""The commit protocol of one table: plan, guard, commit, outcome, done; and void where a plan cannot be carried out.

In: a `Work` (one table's journal, life, source and session). Out: `Done` values. Promise: each
batch takes effect exactly once, whoever runs, whatever dies when (design §4). The chain of plans is
the truth; Delta's transaction marks make a repeat a no-op; an outcome is never guessed: it is read
from the commit that names (life, batch).
"""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING

from mirrorlib.commit.mark import mark_nothing, overwrite_rows
from mirrorlib.commit.merge import commit_staged
from mirrorlib.commit.pause import overwrite_columns, resume_feed
from mirrorlib.commit.staged import ADD, CHANGE, DROP
from mirrorlib.delta.columns import spelled_keys, to_columns
from mirrorlib.delta.ddl import create_mirror
from mirrorlib.delta.sessions import SMALL_COMMIT, configured, is_small
from mirrorlib.delta.table import find_table
from mirrorlib.errors import FileChangedError, MirrorError
from mirrorlib.ingest.batch.adopt import adopt_batch
from mirrorlib.ingest.batch.evolve_table import evolve_table, readers_property, refuse_table
from mirrorlib.ingest.batch.foreign_writes import find_outcome
from mirrorlib.ingest.batch.open_batch import FAULTS, prepare_files
from mirrorlib.ingest.batch.outcome import (
    DIRECT,
    cause_of_void,
    explain_skip,
    find_damage,
    outcome_of,
    spark_failed,
)
from mirrorlib.ingest.batch.snapshot import stage_snapshot
from mirrorlib.ingest.batch.stage import stage_batch
from mirrorlib.ingest.rows.marks import MARKER_NAMES
from mirrorlib.ingest.rows.spark_reader import Stage
from mirrorlib.ingest.work import mark_of, source_of
from mirrorlib.journal.entries import Done, new_attempt

if TYPE_CHECKING:
    from mirrorlib.delta.log import Commit
    from mirrorlib.ingest.batch.open_batch import Prepared
    from mirrorlib.ingest.report import Kind
    from mirrorlib.ingest.work import Work
    from mirrorlib.journal.entries import Plan
    from mirrorlib.store import StoredFile

_LOG = logging.getLogger(__name__)
_TRIES = 5  # of one batch against writers that commit in between
# The column of a table that was made only to hold a void.
_PLACEHOLDER_COLUMN = ("_mirror_void", "boolean")


def carry_out(
    work: Work, plan: Plan, prepared: Prepared | None, clock: dict[str, float], table_bytes: int = 0
) -> Done:
    """Bring a plan to its end, applied or void, whoever else is carrying it out; or applied in doubt, as `Done` says.

    Args:
        work: the table.
        plan: the plan that the journal holds for its batch.
        prepared: the batch as it was opened for this very plan; None to open it again.
        clock: seconds per step.
        table_bytes: the table's size, roughly.

    Raises:
        OutcomeUnknownError: nobody can tell any more what became of it.
        ForeignWriteError: somebody else wrote to the table.
        MirrorError: Spark failed although every file is sound.

    """
    small = prepared is not None and prepared.small and is_small(plan.rows, table_bytes)
    with configured(work.spark, {}, SMALL_COMMIT if small else {}):
        return _carry_out(work, plan, prepared, clock, table_bytes)


def _carry_out(
    work: Work, plan: Plan, prepared: Prepared | None, clock: dict[str, float], table_bytes: int
) -> Done:
    failure: Exception | None = None
    for _ in range(_TRIES):
        with work.step("guard", clock, plan):
            seen, ended = find_outcome(work, plan)
        if ended is not None:
            return _finish(work, plan, ended, prepared, clock, table_bytes)
        damage: MirrorError | None = None
        try:
            ready = prepared if prepared is not None else prepare_again(work, plan)
            _commit(work, plan, ready, clock, table_bytes)
        except FAULTS as fault:
            damage = fault
        except MirrorError:
            raise
        except Exception as exc:
            failure = exc
            stale = prepared is not None and seen != plan.table_version
            if stale or _met_another(work, plan, seen):
                prepared = None  # the other commit may have changed the columns
                continue
            damage = find_damage(source_of(work, plan), plan)
            if damage is None:
                _LOG.exception("%s: batch %d failed", work.table, plan.batch)
                raise spark_failed(work, plan, exc) from exc
        if damage is not None and not _void(work, plan, damage, clock, seen):
            continue
        return _finish(work, plan, _committed(work, plan), prepared, clock, table_bytes)
    msg = f"batch {plan.batch} met other commits {_TRIES} times"
    raise MirrorError(
        msg, table=work.table, next_step="Run again when the table is quieter."
    ) from failure


def _committed(work: Work, plan: Plan) -> Commit:
    """Find the commit that has ended a plan, ours or another runner's."""
    _, ended = find_outcome(work, plan)
    if ended is None and not plan.before:
        _, ended = find_outcome(work, plan, anew=True)
    if ended is None:
        raise explain_skip(work, plan)
    return ended


def prepare_again(work: Work, plan: Plan) -> Prepared:
    """Open a plan's files as its planner did, by the plan's own policies.

    Raises:
        ChangeFileError: a file is not what was planned, so the plan has to be voided.

    """
    source = source_of(work, plan)
    files: list[StoredFile] = []
    for planned in plan.files:
        file = source.find(planned)
        if file is None:
            msg = f"the change file was replaced or removed after batch {plan.batch} was planned"
            raise FileChangedError(
                msg,
                table=work.table,
                file=planned.name,
                next_step="Leave it in place; the next run reads it as it is then.",
            )
        files.append(file)
    found = find_table(work.spark, work.ref) if plan.before else None
    if found is not None:
        resume_feed(work.spark, work.ref, found)
    prepared = prepare_files(source, files, found.columns if found else ())
    if prepared.fault is not None:
        raise prepared.fault
    return prepared


def _commit(
    work: Work, plan: Plan, prepared: Prepared, clock: dict[str, float], table_bytes: int
) -> None:
    """Commit a batch."""
    replaces = not plan.before
    ready = evolve_table(work, plan, prepared, clock)
    columns = ready.columns
    prepared = replace(prepared, growth=replace(prepared.growth, columns=columns))
    keys = spelled_keys(columns, plan.policies.keys)
    stage = Stage(spark=work.spark, state=work.state, folder=staging_folder(work, plan))
    source = source_of(work, plan)
    if not ready.replaces_columns and adopt_batch(work, plan, prepared, keys, clock):
        return
    try:
        with work.step("stage", clock, plan, len(plan.files), plan.rows):
            if plan.policies.snapshots:
                staged = stage_snapshot(work, stage, source, prepared, keys, replaces=replaces)
            else:
                staged = stage_batch(stage, source, prepared, keys, replaces=replaces)
        kind = "overwrite" if replaces else _kind(staged.ops)
        facts = {
            "outcome": "applied",
            "kind": kind,
            "rows": _named(prepared) if staged.counts is None else dict(staged.counts),
            "bytes": staged.bytes,
        }
        if not staged.private:
            facts |= {DIRECT: True, "bytes": plan.bytes}
        mark = mark_of(work, plan, facts)
        with work.step("commit", clock, plan, len(plan.files), plan.rows):
            if ready.replaces_columns:
                overwrite_columns(work.spark, work.ref, staged.frame, mark)
            elif replaces:
                overwrite_rows(work.ref, staged.frame, mark, schema=False)
            else:
                commit_staged(
                    work.spark,
                    work.ref,
                    staged,
                    columns,
                    keys or [column.name for column in columns],
                    mark,
                    table_bytes=table_bytes,
                    quiet=plan.policies.quiet,
                )
    finally:
        with work.step("clean", clock, plan):
            stage.clean()


def _met_another(work: Work, plan: Plan, seen: int | None) -> bool:
    """Say whether somebody has committed since version *seen*, which makes a failure a conflict."""
    if work.log.newest(at_least=-1 if seen is None else seen) == seen:
        return False
    _LOG.info("%s: batch %d met another commit and is tried again", work.table, plan.batch)
    return True


def _void(
    work: Work, plan: Plan, fault: MirrorError, clock: dict[str, float], seen: int | None
) -> bool:
    """Let an empty commit take the plan's place: from then on no slow runner can carry it out.

    Returns:
        False when it met another commit, and has to be tried again.

    """
    if work.journal.entry(work.life, plan.batch).done is not None:
        return True
    cause = cause_of_void(plan, fault)
    with work.step("void", clock, plan):
        found = find_table(work.spark, work.ref)
        if found is not None:
            refuse_table(work, found)
            resume_feed(work.spark, work.ref, found)
        else:
            columns = to_columns([_PLACEHOLDER_COLUMN])
            more = readers_property(plan.policies.readers)
            create_mirror(work.spark, work.ref, columns, (), work.life.uuid, more)
        mark = mark_of(work, plan, {"outcome": "void", "cause": cause})
        try:
            mark_nothing(work.spark, work.ref, mark)
        except Exception:
            if not _met_another(work, plan, seen):
                raise
            return False
    return True


def _finish(
    work: Work,
    plan: Plan,
    ended: Commit,
    prepared: Prepared | None,
    clock: dict[str, float],
    table_bytes: int,
) -> Done:
    """Write down how a batch ended; a runner that was killed before this only costs the next one a look."""
    done = outcome_of(work, plan, ended, prepared, clock, table_bytes)
    with work.step("done", clock, plan, len(plan.files), plan.rows):
        done = work.journal.write_done(work.life, plan.batch, done)
    _LOG.info(
        "%s: batch %d %s as version %d, %d files, %d rows",
        work.table,
        plan.batch,
        done.outcome,
        done.version,
        len(plan.files),
        plan.rows,
    )
    return done


def staging_folder(work: Work, plan: Plan) -> str:
    """Name the folder of one attempt to carry out a plan; unlike any other attempt's."""
    return f"staged/{work.ref.name.segment}/{plan.batch}-{new_attempt()}"


def _kind(ops: frozenset[int]) -> Kind:
    if not ops:
        return "empty"
    if ops == {ADD}:
        return "append"
    return "matched-only" if ops <= {DROP, CHANGE} else "merge"


def _named(prepared: Prepared) -> dict[str, int]:
    return {MARKER_NAMES[marker]: count for marker, count in prepared.counts.items()}
