"""The commit protocol of one table: plan, guard, commit, outcome, done; and void where a plan cannot be carried out.

In: a `Work` (one table's journal, life, source and session). Out: `Done` values. Promise: each batch takes effect exactly once,
whoever runs, whatever dies when (design §4). The chain of plans is the truth; Delta's transaction marks make a repeat a no-op;
an outcome is never guessed: it is read from the commit that names (life, batch).
"""

from __future__ import annotations

import contextlib
import logging
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from mirrorlib.apply.columns import find_column, to_columns, to_pairs
from mirrorlib.apply.commit import FENCE, Mark, append_rows, mark_nothing, merge_changes, overwrite_rows
from mirrorlib.apply.fold import ADD, CHANGE, DROP
from mirrorlib.apply.journal import Done, Plan, new_attempt, now
from mirrorlib.apply.log import find_commit
from mirrorlib.apply.prepare import FAULTS, prepare_files
from mirrorlib.apply.read import MARKER_NAMES, check_identity, decode_whole
from mirrorlib.apply.report import Event
from mirrorlib.apply.stage import Stage, stage_batch
from mirrorlib.apply.table import (
    LIFE_PROPERTY,
    add_columns,
    create_table,
    find_table,
    rewritten_rows,
    set_life,
    widen_columns,
)
from mirrorlib.errors import FileChangedError, ForeignWriteError, MirrorError, OutcomeUnknownError, TableBusyError
from mirrorlib.version import VERSION

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

    from mirrorlib.apply.columns import Columns
    from mirrorlib.apply.journal import Journal, Life
    from mirrorlib.apply.log import Commit, TableLog
    from mirrorlib.apply.prepare import Prepared
    from mirrorlib.apply.read import Source
    from mirrorlib.apply.report import Kind, Observer
    from mirrorlib.apply.table import Found, TableRef
    from mirrorlib.store import Store, StoredFile

_LOG = logging.getLogger(__name__)
_TRIES = 5  # of one batch against writers that commit in between
_NAMED = 3  # how many foreign commits an error names
_PLACEHOLDER_COLUMN = ("_mirror_void", "boolean")  # the column of a table that was made only to hold a void


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """One table, everything that its batches need.

    Attributes:
        spark: a session of its own: transaction marks of MERGE are session configuration.
        ref: the Delta table.
        log: its commits.
        source: where its change files lie, with the policies of new plans.
        journal: its lives, plans and outcomes.
        lives: all lives, the present one last.
        state: the state folder.
        observe: told before and after each step.
        allow_foreign_writes: go on after somebody else's commits.
        allow_empty: a new life may replace a table by no rows.

    """

    spark: SparkSession
    ref: TableRef
    log: TableLog
    source: Source
    journal: Journal
    lives: tuple[Life, ...]
    state: Store
    observe: Observer
    allow_foreign_writes: bool = False
    allow_empty: bool = False

    @property
    def life(self) -> Life:
        """Return the present life."""
        return self.lives[-1]

    @property
    def table(self) -> str:
        """Return the table as its users name it."""
        return self.source.table

    @contextlib.contextmanager
    def step(self, name: str, clock: dict[str, float], plan: Plan | None = None, files: int = 0, rows: int = 0) -> Iterator[None]:
        """Tell the observer about a step and add its seconds to *clock*."""
        batch = plan.batch if plan else None
        event = Event(table=self.table, step=name, when="before", batch=batch, files=files, rows=rows)
        self.observe(event)
        began = time.perf_counter()
        yield
        clock[name] = round(clock.get(name, 0.0) + time.perf_counter() - began, 4)
        self.observe(replace(event, when="after"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """What the next batch stands on: the table's columns, its id, its newest version, its size in bytes (a guess)."""

    columns: Columns
    table_id: str | None
    version: int | None
    bytes: int


def stand(work: Work, last: Done | None) -> Standing:
    """See that the table is as our last commit left it, but for operations that change no row.

    Raises:
        ForeignWriteError: somebody else wrote, restored, replaced or removed the table.

    """
    if last is None:
        return Standing(columns=(), table_id=None, version=work.log.newest(), bytes=0)
    newest = work.log.newest(at_least=last.version)
    if newest is None or newest < last.version:
        raise _gone(work, "the Delta table is gone, or was replaced by another, since our last commit", last)
    if newest == last.version and _is_ours(work, work.log.commits(newest - 1, newest)):
        return Standing(columns=to_columns(last.columns), table_id=last.table_id, version=newest, bytes=last.table_bytes)
    found = find_table(work.spark, work.ref)
    if found is None or (last.table_id is not None and found.id != last.table_id):
        raise _gone(work, "the Delta table was replaced by another since our last commit", last)
    _guard(work, work.log.commits(last.version - 1, newest), last.version, newest)
    return Standing(columns=found.columns, table_id=found.id, version=newest, bytes=found.bytes)


def carry_out(work: Work, plan: Plan, prepared: Prepared | None, clock: dict[str, float], table_bytes: int = 0) -> Done:
    """Bring a plan to its end, applied or void, whoever else is carrying it out.

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
    failure: Exception | None = None
    for _ in range(_TRIES):
        with work.step("guard", clock, plan):
            seen, ended = _look(work, plan)
        if ended is not None:
            return _finish(work, plan, ended, prepared, clock, table_bytes)
        try:
            ready = prepared if prepared is not None else _prepare_again(work, plan)
            _commit(work, plan, ready, clock, table_bytes)
        except FAULTS as fault:
            _void(work, plan, fault, clock)
        except MirrorError:
            raise
        except Exception as exc:
            failure = exc
            fault = _find_damage(work, plan)
            if fault is not None:
                _void(work, plan, fault, clock)
            elif work.log.newest(at_least=-1 if seen is None else seen) == seen:
                raise _spark_failed(work, plan, exc) from exc
            _LOG.info("%s: batch %d met another commit and is tried again", work.table, plan.batch)
            continue
        _, ended = _look(work, plan)
        if ended is None:
            raise _skipped(work, plan)
        return _finish(work, plan, ended, prepared, clock, table_bytes)
    msg = f"batch {plan.batch} met other commits {_TRIES} times"
    raise MirrorError(msg, table=work.table, next_step="Run again when the table is quieter.") from failure


def _look(work: Work, plan: Plan) -> tuple[int | None, Commit | None]:
    """Return the table's newest version and the commit that the plan made, if it has made one.

    Everything that was committed since the plan is looked at, so this is also the guard.
    """
    start = -1 if plan.table_version is None else plan.table_version
    newest = work.log.newest(at_least=start)
    if newest is None and plan.table_version is None:
        return None, None
    if newest is None or newest < start:
        msg = "the Delta table is gone, or was replaced by another, since the batch was planned"
        raise _gone(work, msg, None)
    commits = work.log.commits(start, newest)
    mine = find_commit(commits, plan.life, plan.batch)
    if mine is None and len(commits) < newest - start:
        msg = f"the outcome of batch {plan.batch} is unknown: the table's history no longer reaches back to version {start}"
        step = f"Start the table over: mirrorlib reset TARGET {work.table}"
        raise OutcomeUnknownError(msg, table=work.table, next_step=step)
    if mine is None and plan.before:
        _guard(work, commits, start, newest)
    return newest, mine


def _guard(work: Work, commits: tuple[Commit, ...], first: int, newest: int) -> None:
    """Refuse to go on after commits of others that may have changed rows."""
    if work.allow_foreign_writes:
        return
    lives = {life.uuid for life in work.lives}
    foreign = [c for c in commits if not c.harmless and not (c.ours is not None and c.ours.get("life") in lives)]
    if foreign:
        named = "; ".join(f"version {c.version}: {c.operation} by {c.user}" for c in foreign[:_NAMED])
        msg = "somebody else wrote to the table since our last commit" if not foreign[0].forgets else "somebody lets Delta forget transactions"
        raise ForeignWriteError(msg, table=work.table, found=named, next_step=_next_step(work))
    present = {c.version for c in commits}
    if any(version not in present for version in range(first + 1, newest + 1)):
        msg = "the table's history no longer reaches back to our last commit, so nobody can tell who wrote since"
        raise ForeignWriteError(msg, table=work.table, found=f"version {first}", next_step=_next_step(work))


def _is_ours(work: Work, commits: tuple[Commit, ...]) -> bool:
    return len(commits) == 1 and commits[0].ours is not None and commits[0].ours.get("life") == work.life.uuid


def _prepare_again(work: Work, plan: Plan) -> Prepared:
    """Open a plan's files as its planner did, by the plan's own policies.

    Raises:
        ChangeFileError: a file is not what was planned, so the plan has to be voided.

    """
    source = _source_of(work, plan)
    files: list[tuple[int, StoredFile]] = []
    for planned in plan.files:
        stored = source.zone.stat(f"{source.folder}/{planned.name}")
        if stored is None or stored.etag != planned.etag:
            msg = "the change file was removed" if stored is None else "the change file was replaced"
            raise FileChangedError(
                f"{msg} after batch {plan.batch} was planned", table=work.table, file=planned.name,
                next_step="Leave it in place; the next run reads it as it is then.",
            )
        files.append((int(planned.name.partition(".")[0]), stored))
    found = find_table(work.spark, work.ref) if plan.before else None
    prepared = prepare_files(source, files, found.columns if found else ())
    if prepared.fault is not None:
        raise prepared.fault
    return prepared


def _commit(work: Work, plan: Plan, prepared: Prepared, clock: dict[str, float], table_bytes: int) -> None:
    columns = prepared.growth.columns
    keys = tuple(found.name for key in plan.policies.keys if (found := find_column(columns, key)) is not None)
    replaces = not plan.before
    changes_schema = _ready_table(work, plan, prepared, clock)
    stage = Stage(spark=work.spark, state=work.state, folder=staging_folder(work, plan))
    source = _source_of(work, plan)
    try:
        with work.step("stage", clock, plan, len(plan.files), plan.rows):
            staged = stage_batch(stage, source, prepared, keys, replaces=replaces)
        kind = "overwrite" if replaces else _kind(staged.ops)
        mark = _mark(work, plan, {"outcome": "applied", "kind": kind, "rows": _named(prepared), "bytes": staged.bytes})
        with work.step("commit", clock, plan, len(plan.files), plan.rows):
            if replaces:
                overwrite_rows(work.ref, staged.frame, mark, schema=changes_schema)
            elif kind == "empty":
                mark_nothing(work.spark, work.ref, mark)
            elif kind == "append":
                append_rows(work.ref, staged.frame, mark)
            else:
                merge_changes(
                    work.spark, work.ref, staged, columns, keys, mark, quiet=plan.policies.quiet, table_bytes=table_bytes
                )
        if not staged.private:
            for landed in prepared.landed:
                check_identity(source, landed.file)
    finally:
        with work.step("clean", clock, plan):
            stage.clean()


def _ready_table(work: Work, plan: Plan, prepared: Prepared, clock: dict[str, float]) -> bool:
    """Create or widen the table as the batch needs it; say whether its columns have to be replaced with its content."""
    growth = prepared.growth
    if not plan.before:
        found = _owned_table(work, plan, growth.columns, clock)
        return to_pairs(found.columns) != to_pairs(growth.columns)
    found = find_table(work.spark, work.ref) if growth.added or growth.widened or growth.rewritten else None
    if found is None:
        return False
    added = tuple(column for column in growth.added if find_column(found.columns, column.name) is None)
    widened = tuple(c for c in growth.widened if (mine := find_column(found.columns, c.name)) and mine.type != c.type)
    rewritten = tuple(c for c in growth.rewritten if (mine := find_column(found.columns, c.name)) and mine.type != c.type)
    if rewritten:
        with work.step("rewrite", clock, plan):
            rows = rewritten_rows(work.spark, work.ref, rewritten)
            mark = Mark(app_id=f"{work.life.app_id}:rewrite", version=plan.batch, facts=_facts(work, plan, {"batch": None}))
            overwrite_rows(work.ref, rows, mark, schema=True)
    if added or widened:
        with work.step("widen", clock, plan):
            if widened:
                widen_columns(work.spark, work.ref, widened, found)
            if added:
                add_columns(work.spark, work.ref, added, found)
    return False


def _owned_table(work: Work, plan: Plan, columns: Columns, clock: dict[str, float]) -> Found:
    """Make sure of a table that this life owns and that no earlier life can write to any more."""
    found = find_table(work.spark, work.ref)
    if found is None:
        with work.step("create", clock, plan):
            create_table(work.spark, work.ref, columns, plan.policies.keys, work.life.uuid)
        found = find_table(work.spark, work.ref)
    owner = found.properties.get(LIFE_PROPERTY) if found else None
    if found is None or owner not in {life.uuid for life in work.lives}:
        msg = "the target is a table that this mirror did not make" if owner is None else "the table belongs to a mirror whose state is not here"
        step = "Choose another target, remove the table, or name its state folder with --state."
        raise ForeignWriteError(msg, table=work.table, found=owner, next_step=step)
    if len(work.lives) > 1:
        with work.step("fence", clock, plan):
            for life in work.lives[:-1]:
                facts = {"life": life.uuid, "outcome": "fence"}
                mark_nothing(work.spark, work.ref, Mark(app_id=life.app_id, version=FENCE, facts=facts))
            if owner != work.life.uuid:
                set_life(work.spark, work.ref, work.life.uuid)
    return found


def _void(work: Work, plan: Plan, fault: MirrorError, clock: dict[str, float]) -> None:
    """Let an empty commit take the plan's place: from then on no slow runner can carry it out."""
    if work.journal.entry(work.life, plan.batch).done is not None:
        return
    etag = next((file.etag for file in plan.files if file.name == fault.file), None)
    cause = {"file": fault.file, "etag": etag, "error": type(fault).__name__, "reason": str(fault)}
    with work.step("void", clock, plan):
        if find_table(work.spark, work.ref) is None:
            create_table(work.spark, work.ref, to_columns([_PLACEHOLDER_COLUMN]), (), work.life.uuid)
        mark_nothing(work.spark, work.ref, _mark(work, plan, {"outcome": "void", "cause": cause}))


def _finish(
    work: Work, plan: Plan, ended: Commit, prepared: Prepared | None, clock: dict[str, float], table_bytes: int
) -> Done:
    """Write down how a batch ended; a runner that was killed before this only costs the next one a look."""
    facts: dict[str, Any] = dict(ended.ours or {})
    outcome: Literal["applied", "void"] = "void" if facts.get("outcome") == "void" else "applied"
    known = outcome == "applied" and prepared is not None and plan.before
    found = None if known else find_table(work.spark, work.ref)
    previous = plan.previous or {}
    done = Done(
        outcome=outcome,
        version=ended.version,
        table_id=found.id if found else previous.get("table_id"),
        columns=to_pairs(found.columns) if found else to_pairs(prepared.growth.columns) if prepared else (),
        table_bytes=found.bytes if found else table_bytes + facts.get("bytes", 0),
        kind=facts.get("kind", outcome),
        rows=facts.get("rows", {}),
        seconds=dict(clock),
        cause=facts.get("cause") or _standing_cause(plan),
        finished_at=now(),
    )
    with work.step("done", clock, plan, len(plan.files), plan.rows):
        done = work.journal.write_done(work.life, plan.batch, done)
    _LOG.info(
        "%s: batch %d %s as version %d, %d files, %d rows",
        work.table, plan.batch, done.outcome, done.version, len(plan.files), plan.rows,
    )
    return done


def _standing_cause(plan: Plan) -> Any:
    """Carry on what voided an earlier plan, until a batch has got past that file."""
    cause = (plan.previous or {}).get("cause") or {}
    return None if cause.get("file") in {file.name for file in plan.files} else cause or None


def staging_folder(work: Work, plan: Plan) -> str:
    """Name the folder of one attempt to carry out a plan; unlike any other attempt's."""
    return f"staged/{work.ref.name.segment}/{plan.batch}-{new_attempt()}"


def _find_damage(work: Work, plan: Plan) -> MirrorError | None:
    """After Spark failed: look whether a file of the plan was replaced or has a damaged page."""
    source = _source_of(work, plan)
    for planned in plan.files:
        stored = source.zone.stat(f"{source.folder}/{planned.name}")
        try:
            if stored is None or stored.etag != planned.etag:
                msg = "the change file was replaced or removed while it was applied"
                raise FileChangedError(msg, table=work.table, file=planned.name)
            decode_whole(source, stored)
        except FAULTS as fault:
            return fault
    return None


def _source_of(work: Work, plan: Plan) -> Source:
    return replace(work.source, policies=plan.policies)


def _kind(ops: frozenset[int]) -> Kind:
    if not ops:
        return "empty"
    if ops == {ADD}:
        return "append"
    return "matched-only" if ops <= {DROP, CHANGE} else "merge"


def _named(prepared: Prepared) -> dict[str, int]:
    return {MARKER_NAMES[marker]: count for marker, count in prepared.counts.items()}


def _mark(work: Work, plan: Plan, facts: dict[str, Any]) -> Mark:
    return Mark(app_id=work.life.app_id, version=plan.batch, facts=_facts(work, plan, facts))


def _facts(work: Work, plan: Plan, more: dict[str, Any]) -> dict[str, Any]:
    return {
        "life": work.life.uuid,
        "batch": plan.batch,
        "attempt": plan.attempt,
        "first": plan.files[0].name,
        "last": plan.files[-1].name,
        "files": len(plan.files),
        "mirrorlib": VERSION,
        **more,
    }


def _skipped(work: Work, plan: Plan) -> MirrorError:
    """Explain a commit that Delta skipped and no commit accounts for: the life is over, or the record is not ours."""
    if work.journal.lives()[-1].uuid != work.life.uuid:
        msg = f"batch {plan.batch} belongs to a life that was ended by a reset meanwhile"
        return TableBusyError(msg, table=work.table, next_step="Run again: the new life goes on from its own beginning.")
    msg = f"Delta skipped batch {plan.batch} as already recorded, but no commit names it"
    return OutcomeUnknownError(msg, table=work.table, next_step=f"Start the table over: mirrorlib reset TARGET {work.table}")


def _gone(work: Work, msg: str, last: Done | None) -> ForeignWriteError:
    found = None if last is None else f"expected version {last.version} of table {last.table_id}"
    return ForeignWriteError(
        msg, table=work.table, found=found, next_step=f"Start the table over: mirrorlib reset TARGET {work.table}"
    )


def _next_step(work: Work) -> str:
    return f"Start the table over, mirrorlib reset TARGET {work.table}, or accept it with --allow-foreign-writes."


def _spark_failed(work: Work, plan: Plan, exc: Exception) -> MirrorError:
    text = next((line.strip() for line in str(exc).splitlines() if line.strip()), type(exc).__name__)
    msg = f"Spark failed to commit batch {plan.batch}"
    return MirrorError(msg, table=work.table, found=f"{type(exc).__name__}: {text[:300]}", next_step="Run again; the log has the whole story.")
