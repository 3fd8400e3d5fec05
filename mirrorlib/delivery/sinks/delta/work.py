"""One window on its way into one target table: what its writers need to know, and what its commit says.

In: a `Delivery` and what was found at its target. Out: `WindowWork`, frozen. And its rows, counted and merged: tables
without keys, and histories, go by how often each comes, or goes when that is negative; rows are equal when all columns
of the source are. One clause of the MERGE is of a copy's own: where a row of a key cannot be there and is, the whole
commit fails, since keys do not tell the source's rows apart.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as f
from pyspark.sql import types as t

from mirrorlib.commit.difference import NET
from mirrorlib.commit.last_commit import LastCommit
from mirrorlib.commit.mark import Mark, mark_nothing
from mirrorlib.commit.merge import commit_staged
from mirrorlib.commit.stage import ADD, DROP, FRESH, OP, WRONG, Stage, Staged, stage_frame
from mirrorlib.delivery.sink import KEY_OPTIONS, Delivery
from mirrorlib.delta.key_property import ON
from mirrorlib.delta.table import Found, TableRef
from mirrorlib.errors import ForeignWriteError, SchemaError
from mirrorlib.events import pick
from mirrorlib.feed.net import VERSION, count_changes
from mirrorlib.identifiers import find_name, fold_name, quote
from mirrorlib.journal.entries import new_attempt
from mirrorlib.journal.streams import begin_anew

_TWICE = "MIRRORLIB_KEY_TWICE"


@dataclass(frozen=True, kw_only=True)
class WindowWork(Delivery):
    """A window and its target."""

    mode: str  # what becomes of it
    wanted: t.StructType  # the columns that the target has to have for it
    ref: TableRef  # the target
    found: Found
    last: LastCommit  # what its log tells
    dropped: tuple[str, ...] = ()  # the target's columns that the source has no longer

    @property
    def fresh(self) -> bool:
        """Say whether no window was written to the table yet."""
        return not self.last.facts and self.last.complete

    @property
    def upto(self) -> int:
        """Return up to which version of the source the target has everything; -1 for nothing."""
        facts = self.last.facts
        same = facts.get("table_id") == self.plan.table_id
        return int(facts["upto"]) if same else self.plan.after

    @property
    def at(self) -> int:
        """Return at which version the target's rows are, once it has some: a copy by key goes back with a rewind."""
        facts = self.last.facts
        return int(facts["until" if self.mode == "current" and facts.get("keys") else "upto"])

    @property
    def overlaps(self) -> bool:
        """Say whether the window brings versions again that the target has, as a rewound stream does."""
        return self.plan.kind == "changes" and self.upto > self.plan.after

    @property
    def passed(self) -> bool:
        """Say whether the target has all of the window's versions, so that its columns go on from later ones."""
        return self.overlaps and self.plan.until <= self.upto

    @property
    def dropped_before(self) -> Sequence[str]:
        """Return which of the target's columns the source lacked at the last version that the target has."""
        if self.last.facts:
            return tuple(self.last.facts.get("dropped", ()))
        there = {fold_name(name) for name in self.physical_before}
        return tuple(name for name in self.found.schema.names if fold_name(name) not in there)

    @property
    def physical_after(self) -> Mapping[str, str]:
        """Return which physical columns the names stand for, as the target holds them after the window."""
        if self.mode == "changes":
            return {}
        # Versions that the target has are left out.
        once = self.mode == "scd2" or not self.keys
        return self.physical_before if once and self.passed else self.physical

    @property
    def physical_before(self) -> Mapping[str, str]:
        """Return what they stood for before; changes only follow on those of the same table."""
        if not self.last.complete:  # its log has forgotten what the last window said
            return self.begun()
        physical: Mapping[str, str] = self.last.facts.get("physical", self.physical)
        return physical

    @property
    def exact(self) -> bool:
        """Say whether the target can only hold what the source held before the window: it began with a snapshot."""
        return self.stream.start_at is None

    @property
    def known(self) -> bool:
        """Say whether `upto` is true, so that a row which came after it and is there already is there twice."""
        return self.exact or bool(self.last.facts) or self.last.complete

    def twice(self) -> SchemaError:
        """Say that a key does not tell the source's rows apart."""
        msg = "a key occurs more than once in the source, so a copy by key cannot hold its rows"
        step = (
            f"Name the columns that tell its rows apart, or none ({KEY_OPTIONS}); the window was planned with these. "
            f"{begin_anew(self.stream)}"
        )
        column = ", ".join(self.keys)
        return SchemaError(msg, table=self.stream.table, column=column, next_step=step)

    def new_rows(self) -> DataFrame:
        """Return the rows without the versions that the target has: a rewound stream brings them again."""
        return self.frame.where(f"{VERSION} > {self.upto:d}") if self.overlaps else self.frame

    def mark(self) -> Mark:
        """Return what makes the window's commit ours and unrepeatable, see `LastCommit.next_mark`."""
        stream, plan = self.stream, self.plan
        facts: dict[str, Any] = {
            **pick(stream, "consumer", "table", "ordinal", "began_at"),
            **pick(plan, "attempt", "kind", "after", "until"),
            "upto": plan.until if plan.kind == "snapshot" else max(plan.until, self.upto),
            "table_id": plan.table_id,
            "keys": list(plan.keys),
            "dropped": list(self.dropped_before if self.passed else self.dropped),
            "physical": dict(self.physical_after),
        }
        if self.mode != "current" or plan.kind == "changes":  # a snapshot takes the place of all
            facts[ON] = self.last.newest
        app_id = f"mirrorlib:export:{stream.consumer}:{stream.table}"
        return self.last.next_mark(
            self.spark, self.ref, self.scratch, app_id, stream, plan.number, facts
        )

    def spelled(self, name: str) -> str:
        """Name a column as the target does."""
        return find_name(self.found.schema.names, name) or name

    def merge_rows(self, staged: Staged) -> None:
        """Commit staged rows. `ADD` rows match nothing; where it is `known`, a match of a `FRESH` row fails all."""
        key, refused = quote(staged.keys[0]), ""
        if self.known and FRESH in staged.frame.columns:
            # It asks for the target's row, else Spark would look at the source's alone.
            there = f"t.{key} <=> s.{key}" if staged.null_keys else f"t.{key} IS NOT NULL"
            raising = f"raise_error('{_TWICE}')"
            refused = f"CASE WHEN s.{FRESH} AND {there} THEN {raising} ELSE false END"
        try:
            commit_staged(
                self.spark,
                self.ref,
                staged,
                self.mark(),
                table_bytes=self.found.bytes,
                dropped=self.dropped,
                refused=refused,
            )
        except Exception as exc:
            if _TWICE in str(exc):
                raise self.twice() from exc
            raise

    def stage_rows(
        self, frame: DataFrame, name: str, keys: Sequence[str], ops: Iterable[int]
    ) -> Staged:
        """Stage a frame with `OP`, one of *ops*, under a name of this delivery's own; *keys* will match its rows."""
        stage = Stage(spark=self.spark, state=self.scratch, folder=self.folder)
        # Each try has its own.
        return stage_frame(stage, f"{name}-{new_attempt()}", frame, keys, ops)

    def merge_counts(
        self,
        rows: DataFrame,
        columns: Sequence[str],
        by: Sequence[str],
        keys: Sequence[str],
        tell: Callable[[DataFrame, DataFrame | None], DataFrame],
    ) -> int:
        """Count how often each row of a feed comes or goes, equal in *columns*, and merge what *tell* makes of it.

        That is given the rows that do not cancel out, with `NET`, and which of them go, None for none; it gives rows
        with `OP`. Equal values of *by* lie together, *keys* match the target's rows. Returns how many rows it took.
        """
        counts = count_changes(rows.repartition(*map(quote, by)), columns, NET)
        op = f.when(f.col(NET) > 0, ADD).otherwise(DROP).cast("tinyint")
        counted = self.stage_rows(counts.withColumn(OP, op), "counted", by, (DROP, ADD))
        if not counted.ops:
            mark_nothing(self.spark, self.ref, self.mark())
            return 0
        gone = counted.frame.where(f"{OP} = {DROP}") if DROP in counted.ops else None
        staged = self.stage_rows(tell(counted.frame, gone), "folded", keys, (WRONG, DROP, ADD))
        if WRONG in staged.ops:
            msg = "the target lacks rows that the source has removed, so it is not what the changes began with"
            raise ForeignWriteError(msg, table=self.stream.table, next_step=begin_anew(self.stream))
        self.merge_rows(staged)
        return staged.rows
