"""One run of a derived table: what its steps share, the table as it is found, and how it is written.

In: nothing. Out: `DeriveJob`; `DerivedTarget`, which says whether the table is as the last round has left it; one
commit that carries a round. Promise: rows that stay the same are not written, so that the table's own feed tells what
is different and nothing else.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from mirrorlib.commit.difference import NET, NEW
from mirrorlib.commit.last_commit import LastCommit, read_last_commit
from mirrorlib.commit.mark import Mark, overwrite_columns, overwrite_rows, resume_feed
from mirrorlib.commit.merge import commit_staged
from mirrorlib.commit.stage import ADD, CHANGE, DROP, FRESH, OP, SET, stage_frame, staging
from mirrorlib.delta.columns import is_same
from mirrorlib.delta.ddl import make_table
from mirrorlib.delta.key_property import keys_property
from mirrorlib.delta.lock import TablePlace
from mirrorlib.delta.properties import FEED_DAYS, VECTORS, feed_properties
from mirrorlib.delta.table import Found, check_made, find_table, open_log
from mirrorlib.derived.sources import Round, SourceTable
from mirrorlib.errors import ForeignWriteError, SchemaError
from mirrorlib.events import Event, Observer, When
from mirrorlib.feed.net import FEED_COLUMNS
from mirrorlib.identifiers import fold_name
from mirrorlib.journal.leases import Lease
from mirrorlib.keys.tags import bare_columns, untag
from mirrorlib.keys.value import Keys
from mirrorlib.names import named_twice
from mirrorlib.nested import is_free_of
from mirrorlib.store import open_store

if TYPE_CHECKING:
    from mirrorlib.derived.frames import Transform

OWNER = "mirrorlib.derived"  # the name of the derived table that a table is
MEANT = "target"  # in what a commit says: the id of the table that it was meant for
_OURS = frozenset({FRESH, NET, NEW, OP, SET})  # columns of what is staged


@dataclass(frozen=True, slots=True, kw_only=True)
class DeriveJob:
    """One run."""

    spark: SparkSession  # the caller's session, in which rows are computed
    session: SparkSession  # one of our own, which commits: marks travel in its configuration
    name: str
    place: TablePlace
    sources: Sequence[SourceTable]
    transform: Transform
    rebuild: bool
    lease: Lease  # keeps other runners off
    observe: Observer  # told before and after each step
    began: float  # when, by a clock of no date

    def tell(self, step: str, when: When, planned: Round | None = None, rows: int = 0) -> None:
        """Tell whoever watches the run that a step begins or has ended."""
        batch = planned.number if planned is not None else None
        self.observe(Event(table=self.name, step=step, when=when, batch=batch, rows=rows))


@dataclass(frozen=True, slots=True, kw_only=True)
class DerivedTarget:
    """The table at this moment."""

    last: LastCommit  # what its log tells of our rounds
    found: Found | None = None
    # What the last round's commit says; None where the table's log tells of no round of ours.
    held: Mapping[str, Any] | None = None

    @property
    def is_new(self) -> bool:
        """Say whether no run has filled it: there is none, or one died before it could."""
        return self.held is None and (self.found is None or not self.found.bytes)


def open_target(job: DeriveJob) -> DerivedTarget:
    """Open the table as it is now."""
    session, ref = job.session, job.place.ref
    # Delta knows a mark for longer than the log tells of it, and late runners have those of a table that was removed:
    # now is ahead of them. A round whose commit nobody can see any more is compared with what is there, so it may come
    # again.
    fresh = {"epoch": int(time.time()) // 2}
    if (found := find_table(session, ref)) is None:
        return DerivedTarget(last=LastCommit(log=open_log(session, ref), newest=-1, facts=fresh))
    owner = found.properties.get(OWNER)
    if owner != job.name:
        msg = "the target is a table that is not this derived table"
        step = "Choose another target, or remove the table."
        raise ForeignWriteError(msg, table=job.place.shown, found=owner, next_step=step)
    resume_feed(session, ref, found)
    last = read_last_commit(open_log(session, ref, found.location))
    foreign = last.foreign
    if foreign is not None and not job.rebuild:
        msg = "somebody else has written to the derived table"
        step = "Let it be computed anew, which undoes that: derive(…, rebuild=True)."
        raise ForeignWriteError(msg, table=job.place.shown, found=foreign.told, next_step=step)
    last = last if last.facts else replace(last, facts=fresh)
    # A late runner's commit tells of the table that was there before this one.
    is_own = last.facts.get(MEANT, found.id) == found.id
    held = last.facts if is_own and last.facts.get("derived") == job.name else None
    return DerivedTarget(last=last, found=found, held=held)


def make_derived(job: DeriveJob, columns: StructType, keys: Keys) -> Found:
    """Make an empty derived table, with a feed and deletion vectors, where there is none."""
    owned = {VECTORS: "true", OWNER: job.name, **keys_property(keys)}
    properties, shown = {**feed_properties(FEED_DAYS), **owned}, job.place.shown
    make_table(job.session, job.place.ref, columns.fields, properties, shown)
    return check_made(open_target(job).found, shown)


def check_columns(place: TablePlace, rows: DataFrame) -> None:
    """Refuse a result that no table with a feed can hold."""
    again = named_twice(rows.columns)
    for field in rows.schema.fields:
        msg = ""
        if field.name == again:
            msg = "two columns of the result have the same name"
        elif fold_name(field.name) in FEED_COLUMNS or field.name in _OURS:
            msg = "the column's name is reserved"
        elif not is_free_of(field.dataType, {"void"}):
            msg = "the column has no type"
        if msg:
            step = "Rename or cast it in the transformation."
            raise SchemaError(msg, table=place.shown, column=field.name, next_step=step)


def added_columns(target: DerivedTarget, rows: DataFrame) -> tuple[str, ...] | None:
    """Name the columns that a table lacks; None where one that it has is not among the rows, or of another type."""
    there = target.found.schema.fields if target.found is not None else []
    has = {fold_name(field.name): field.dataType for field in there}
    wants = {fold_name(field.name): field for field in rows.schema.fields}
    if any(
        name not in wants or not is_same(kind, wants[name].dataType) for name, kind in has.items()
    ):
        return None
    return tuple(field.name for name, field in wants.items() if name not in has)


def replace_rows(job: DeriveJob, target: DerivedTarget, rows: DataFrame, mark: Mark) -> None:
    """Let rows take the place of all that are there, and their columns too where they are others."""
    if target.found is not None and added_columns(target, rows) != ():
        bare = rows.select(*bare_columns(rows, rows.columns))
        overwrite_columns(job.session, job.place.ref, bare, mark)
    else:
        overwrite_rows(job.place.ref, untag(rows), mark, schema=False)


def write_difference(
    job: DeriveJob, found: Found, changes: DataFrame, keys: Sequence[str], mark: Mark
) -> tuple[int, int]:
    """Stage what is different, and carry it out by one commit; return how many rows came, and went.

    *keys* are a primary key that occurs once, by which rows are found faster; none where there is none.
    """
    state, place = open_store(job.place.root.state), f"staged/derive/{job.place.ref.name.segment}"
    names = [name for name in changes.columns if name != OP]
    by = keys or names
    with staging(job.session, state, place, tidies=True) as stage:
        staged = stage_frame(stage, "differences", untag(changes), by, (DROP, CHANGE, ADD))
        counts = {op: rows for op, rows in staged.frame.groupBy(OP).count().collect()}  # noqa: C416
        staged = replace(staged, ops=frozenset(counts))
        commit_staged(job.session, job.place.ref, staged, mark, table_bytes=found.bytes)
    changed = counts.get(CHANGE, 0)
    return counts.get(ADD, 0) + changed, counts.get(DROP, 0) + changed
