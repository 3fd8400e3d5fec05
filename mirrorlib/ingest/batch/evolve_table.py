"""Make the Delta table ready for a batch: created, owned by this life, wide enough for its columns.

In: a plan and its prepared files. Out: nothing but the table. Each change is a commit of its own,
made after the plan and before the batch's commit, and idempotent: whoever comes second finds it
done.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from mirrorlib.commit.mark import FENCE, mark_nothing, overwrite_columns, resume_feed
from mirrorlib.delta.columns import Columns, find_column, needs_mapping, to_pairs
from mirrorlib.delta.ddl import (
    add_columns,
    create_mirror,
    replace_columns,
    rewritten_rows,
    unset_statistics,
    widen_columns,
)
from mirrorlib.delta.key_property import (
    KEYS_PROPERTY,
    keep_keys,
    keys_property,
    mirror_keys,
    missing_columns,
    next_keys,
    stored_keys,
)
from mirrorlib.delta.log import REWRITE, TRANSACTION_RETENTION
from mirrorlib.delta.properties import LIFE_PROPERTY, READERS_PROPERTY, VECTORS, set_properties
from mirrorlib.delta.table import Found, check_made, find_table
from mirrorlib.errors import ForeignWriteError, SchemaError
from mirrorlib.events import emit
from mirrorlib.ingest.batch.foreign_writes import Standing, life_is_over
from mirrorlib.ingest.batch.open_batch import Prepared
from mirrorlib.ingest.work import Attempt, Work
from mirrorlib.journal.entries import Life, Readers

_NOT_PLAIN = ("deletionVectors", "typeWidening", "typeWidening-preview")


def evolve_table(attempt: Attempt, prepared: Prepared) -> tuple[Columns, bool]:
    """Create or widen the table as the batch needs it.

    Returns the columns of the batch's rows, and whether they replace the table's.

    Raises `SchemaError`: a value of the table itself does not fit a type that it would have to have; and as
    `refuse_table` does.
    """
    work, plan, growth = attempt.work, attempt.plan, prepared.growth
    if plan.before:
        before, keys = next_keys(plan, growth.columns, foreign=work.options.allow_foreign_writes)
        if before != keys_property(keys).get(KEYS_PROPERTY, ""):
            found = find_table(work.spark, work.ref)
            if found is not None:  # else the commit itself will fail and be looked into
                keep_keys(work.spark, work.ref.sql, found.properties, keys)
        if growth.added or growth.widened or growth.rewritten:
            _grow_table(attempt, prepared)
        return growth.columns, False
    found = _owned_table(attempt, growth.columns)
    old: Columns = ()
    if found.mapped or any(needs_mapping(column.name) for column in growth.columns):
        # Under column mapping, Delta's writers drop none.
        old = tuple(c for c in found.columns if find_column(growth.columns, c.name) is None)
    columns = (*growth.columns, *(old if found.bytes else ()))
    unset_statistics(work.spark, work.ref, columns, plan.policies.keys, found)
    if old and not found.bytes:
        replace_columns(work.spark, work.ref, old, columns, found)
    return columns, to_pairs(found.columns) != to_pairs(columns)


def _grow_table(attempt: Attempt, prepared: Prepared) -> None:
    work, growth = attempt.work, prepared.growth
    found = find_table(work.spark, work.ref)
    if found is None:
        return  # the guard has seen it a moment ago; the commit itself will fail and be looked into
    _refuse_lost_keys(work.table, found)
    has = found.columns
    added = tuple(c for c in growth.added if find_column(has, c.name) is None)
    for field in found.schema.fields:
        column = find_column(added, field.name)
        # It says nothing against the file, so its plan stays and is tried again.
        if column is not None:
            cause = _cause_of_rewrite(prepared, (column,))
            msg = "somebody has added a column of that name to the table, with a type that no mirror has"
            shown = f"{field.name} {field.dataType.simpleString()} in the table, {column.sql_type} in the file"
            step = f"Start the table over, which removes it: mirrorlib reset TARGET {work.table}"
            raise ForeignWriteError(
                msg, table=work.table, file=cause, column=column.name, found=shown, next_step=step
            )
    if any(c not in added and c not in has for c in growth.added):
        msg = "somebody has added a column of the batch meanwhile, with another type"
        raise RuntimeError(msg)  # a conflict like any other: the batch is prepared again
    widened, rewritten = (  # but for what another runner has widened meanwhile
        tuple(c for c in some if (mine := find_column(has, c.name)) and mine.type != c.type)
        for some in (growth.widened, growth.rewritten)
    )
    if rewritten:
        with attempt.step("rewrite"):
            file = _cause_of_rewrite(prepared, rewritten)
            rows = rewritten_rows(work.spark, work.ref, rewritten, file)
            own = attempt.mark({"outcome": REWRITE, "batch": None})
            mark = replace(own, version=own.version - 1)  # a void or a fence forbids both
            overwrite_columns(work.spark, work.ref, rows, mark, attempt.step)
    if added or widened:
        with attempt.step("widen"):
            if widened:
                widen_columns(work.spark, work.ref, widened, found)
            if added:
                add_columns(work.spark, work.ref, added, found)
    done = replace(growth, added=added, widened=widened, rewritten=rewritten)
    if changes := "; ".join(done.changes(has)):
        number = attempt.plan.batch
        emit("schema", "%(table)s: %(changes)s", table=work.table, batch=number, changes=changes)


def _refuse_lost_keys(table: str, found: Found) -> None:
    """Refuse to add a key column to rows: it would be NULL in all of them, and no change would find one any more."""
    keys = stored_keys(found.properties)
    lost = missing_columns(keys, found.schema.names) if keys else ()
    if lost and found.bytes:
        msg = "the table's rows lack a key column: somebody has renamed or dropped it, or it was declared later"
        step = f"Rename it back, or start the table over: mirrorlib reset TARGET {table}"
        raise ForeignWriteError(msg, table=table, column=lost[0], next_step=step)


def _cause_of_rewrite(prepared: Prepared, columns: Columns) -> str:
    """Name the first file that has a column of the new type; the first of all when none has it alone."""
    causes = (
        landed.file.name
        for landed in prepared.landed
        for column in columns
        if (its := landed.schema.column(column.name)) is not None and its.type == column.type
    )
    return next(causes, prepared.landed[0].file.name)


def _owned_table(attempt: Attempt, columns: Columns) -> Found:
    """Make sure of a table that this life owns and that no earlier life can write to any more."""
    work, plan = attempt.work, attempt.plan
    foreign, policies = work.options.allow_foreign_writes, plan.policies
    found = find_table(work.spark, work.ref)
    if found is None:
        keys = keys_property(mirror_keys(plan, columns, None, foreign=foreign, fresh=True))
        more = {**keys, **readers_property(policies.readers)}
        with attempt.step("create"):
            create_mirror(work.spark, work.ref, columns, policies.keys, work.life.uuid, more)
        found = check_made(find_table(work.spark, work.ref), work.table)
    refuse_table(work, found)
    resume_feed(work.spark, work.ref, found)
    if len(work.lives) > 1:
        with attempt.step("fence"):
            fence_lives(work, found)
    was = stored_keys(found.properties)
    now = mirror_keys(plan, columns, was, foreign=foreign, fresh=not found.bytes)
    keep_keys(work.spark, work.ref.sql, found.properties, now)
    return found


def fence_lives(work: Work, found: Found) -> None:
    """Let Delta skip every commit that an earlier life may still make, and say whose the table is."""
    for life in work.lives[:-1]:
        facts = {"life": life.uuid, "outcome": "fence"}
        mark_nothing(work.spark, work.ref, work.mark(life, FENCE, facts))
    if found.properties.get(LIFE_PROPERTY) != work.life.uuid:
        set_properties(work.spark, work.ref.sql, {LIFE_PROPERTY: work.life.uuid})


def refuse_table(work: Work, found: Found) -> None:
    """See that this runner may write to a table that its plan fills from nothing.

    Raises `ForeignWriteError`: it is not this mirror's, or Delta forgets its transactions; `TableBusyError`: it is a
    later life's: the table was reset since this runner began.
    """
    owner = found.properties.get(LIFE_PROPERTY)
    if not work.owns(found.properties) and owner in {life.uuid for life in work.journal.lives()}:
        raise life_is_over(work)
    refuse_others_table(work.table, work.lives, found)
    if TRANSACTION_RETENTION in found.properties and not work.options.allow_foreign_writes:
        msg = f"the table's property {TRANSACTION_RETENTION} lets Delta forget transactions"
        step = "Unset it (of new tables: what spark.databricks.delta.properties.defaults.… says), "
        step += "or accept that a batch may count twice with --allow-foreign-writes."
        raise ForeignWriteError(msg, table=work.table, next_step=step)


def refuse_others_table(table: str, lives: Sequence[Life], found: Found) -> None:
    """Raise `ForeignWriteError` where a table is not this mirror's."""
    owner = found.properties.get(LIFE_PROPERTY)
    if owner not in {life.uuid for life in lives}:
        msg = "the table belongs to a mirror whose state is not here"
        if owner is None:
            msg = "the target is a table that this mirror did not make"
        step = "Choose another target, remove the table, or name its state folder with --state."
        raise ForeignWriteError(msg, table=table, found=owner, next_step=step)


def readers_property(readers: Readers | None) -> dict[str, str]:
    """Return the properties of a table for these readers, beside or instead of a mirror's own; none for any table."""
    return {VECTORS: "false", READERS_PROPERTY: readers} if readers else {}


def heed_readers(work: Work, standing: Standing, *, write: bool = True) -> Work:
    """Let the next plans keep to what the table remembers, or what is asked for, written down unless *write* is off.

    Raises `SchemaError`: the table needs readers that know more.
    """
    wanted = work.options.readers or standing.readers
    told = wanted == standing.readers and not standing.vectors
    found = None if wanted is None or told else find_table(work.spark, work.ref)
    if found is not None and work.owns(found.properties):  # else made so, or refused as another's
        features = [name for name in _NOT_PLAIN if name in found.features]
        if features:
            msg = "the table already has features that plain readers do not know"
            step = f"Drop them, see docs/readers.md; without --readers and {READERS_PROPERTY} it goes on as it is."
            raise SchemaError(msg, table=work.table, found=", ".join(features), next_step=step)
        if write:
            set_properties(work.spark, work.ref.sql, readers_property(wanted))
    policies = replace(work.source.policies, readers=wanted)
    return replace(work, source=replace(work.source, policies=policies))
