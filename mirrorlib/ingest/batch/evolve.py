"""Let a table's columns grow with its change files, or say which file does not fit and why.

In: the table's columns and opened files, in order. Out: `Growth`: the columns afterwards and what
has to be done to the table. Promises: a value that fits the table's type is cast, a type that holds
both is widened to, nothing is ever rounded; every file alone decides in its turn, so any cut of a
backlog into batches gives the same columns. Rules: docs/format.md, "Row markers,
columns and types".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from mirrorlib.delta.columns import NO_TYPE_STEP, Column, Columns, find_column, in_place, sql_type
from mirrorlib.errors import SchemaError
from mirrorlib.identifiers import by_name, fold_name
from mirrorlib.ingest.files.source import Source
from mirrorlib.ingest.rows.decode import OpenedFile
from mirrorlib.ingest.rows.read import find_misfit
from mirrorlib.ingest.rows.rescue import RESCUED_COLUMN
from mirrorlib.journal.entries import Policies, Readers
from mirrorlib.landing.columns import FileColumn
from mirrorlib.landing.types import widen_type

_NONE_HOLDS_BOTH = "a value of the file does not fit the table's type, and no type holds both"


class BatchEndsError(Exception):
    """A file has to begin a batch: only then can its types be judged by the rows that are left when it comes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Growth:
    """How a table's columns change: all of them afterwards, new ones at the end, and which are new or get a new type.

    What is widened Delta changes in place; for what is rewritten the table has to be written again.
    """

    columns: Columns
    added: Columns = ()
    widened: Columns = ()
    rewritten: Columns = ()

    def changes(self, before: Columns) -> tuple[str, ...]:
        """Say each change in words."""
        old = {column.name: column.sql_type for column in before}
        words = [f"adds the column {c.name} {c.sql_type}" for c in self.added]
        words += [
            f"widens {c.name} from {old[c.name]} to {c.sql_type} in place; "
            "readers without type widening (delta-rs) cannot read the table then"
            for c in self.widened
        ]
        for c in self.rewritten:
            words.append(f"rewrites the table for {c.name} from {old[c.name]} to {c.sql_type}")
        return tuple(words)


@dataclass(frozen=True, slots=True, kw_only=True)
class Newcomer:
    """One more file of a batch, and what may be done to the table for it.

    *before* are the columns that the table really has, *earlier* the files before it. Only a table that is
    *rewritable*, small enough, gets a type that Delta does not widen to. A batch that is *divisible* may end before
    the file.
    """

    landed: OpenedFile
    before: Columns
    earlier: Sequence[OpenedFile] = ()
    rewritable: bool = True
    divisible: bool = False

    def grow(self, columns: Columns) -> Columns:
        """Return *columns*, as the earlier files want them, as they have to be to take this one.

        Raises `SchemaError`: the file does not fit and the evolution policy, or Delta, does not allow it to;
        `BatchEndsError`: whether it fits depends on rows that the files before it may delete.
        """
        known = columns  # not *before*: a policy must not depend on which files share a batch
        policies = self.landed.source.policies
        rescued = policies.plain == "rescue"
        here = by_name(columns)
        for file_column in self.landed.schema.columns:
            name = fold_name(file_column.name)
            mine = here.get(name)
            if pa.types.is_null(file_column.type):
                continue
            if mine is None:
                here |= by_name(self._added(file_column, known))
                continue
            row = find_misfit(self.landed, file_column, mine.type)
            if row is None:
                continue
            keeps_type = widen_type(mine.type, file_column.type) in {None, mine.type}
            if policies.plain == "rescue" or (
                policies.plain == "add" and (keeps_type or policies.evolution != "widen")
            ):
                # What does not fit a column of a plain folder's table is kept beside it.
                rescued = True
                continue
            here[name], kept_beside = self._widened(mine, file_column, row)
            rescued = rescued or kept_beside
        if rescued and here:
            here.setdefault(RESCUED_COLUMN.name, RESCUED_COLUMN)
        return tuple(here.values())

    def _added(self, column: FileColumn, known: Columns) -> Columns:
        """Return a new column, none where the policy of a plain folder takes none into a table that has some."""
        policies = self.landed.source.policies
        if known and policies.plain in {"rescue", "none"}:
            return ()
        if known and policies.evolution == "strict":
            policy, option = _refusing(policies, "--evolution add or widen")
            msg = f"the file has a column that the table lacks, and {policy}"
            step = f"Allow it with {option}, or publish the file without it."
            raise self._error(column, msg, sql_type(column.type), step)
        find_misfit(self.landed, column, column.type)  # raises what its own type may refuse
        return (Column(column.name, column.type),)

    def _widened(self, mine: Column, column: FileColumn, row: int) -> tuple[Column, bool]:
        """Return a column with the type that holds the table's values and the file's; *row* is the first misfit.

        A double does not hold every bigint, nor a timestamp every date, so the values of the file, and of the batch's
        earlier ones, are looked at again; return also whether some, of a plain folder's file, have to be kept beside
        their column.
        """
        source, wider = self.landed.source, widen_type(mine.type, column.type)
        policies = source.policies
        types = f"{column.stored} in the file, {mine.sql_type} in the table"
        if wider is None or wider == mine.type:
            raise self._error(column, _NONE_HOLDS_BOTH, types, _way_out(source), row)
        old = find_column(self.before, mine.name)
        rewrites = old is not None and not _widens_in_place(old.type, wider, policies.readers)
        if policies.evolution != "widen":
            policy, option = _refusing(policies, "--evolution widen")
            msg = f"the column would have to become {sql_type(wider)}, and {policy}"
            raise self._error(column, msg, types, f"Allow it with {option}.", row)
        if rewrites and not self.rewritable:
            msg = f"the table would have to be rewritten as {sql_type(wider)}, and it is larger than the rewrite limit"
            step = f"Start the table over, `mirrorlib reset TARGET {source.table}`, or raise --rewrite-limit."
            raise self._error(column, msg, types, step, row)
        if rewrites and self.divisible and self.earlier:
            raise BatchEndsError
        wide = replace(mine, type=wider)
        unheld = find_misfit(self.landed, column, wider)
        if unheld is not None and policies.plain != "add":
            raise self._error(column, _NONE_HOLDS_BOTH, types, _way_out(source), unheld)
        loses = (mine.type, wider) == (pa.int64(), pa.float64()) or mine.type == pa.date32()
        for one in self.earlier if loses else ():
            its = one.schema.column(mine.name)
            if its is not None and find_misfit(one, its, wider) is not None:
                if self.divisible:
                    raise BatchEndsError
                msg = f"a value of {one.file.name} does not fit the type that would hold both"
                raise self._error(column, msg, types, _way_out(source))
        return wide, unheld is not None

    def _error(
        self, column: FileColumn, msg: str, found: str, step: str, row: int | None = None
    ) -> SchemaError:
        facts = {"column": column.name, "found": found, "next_step": step}
        return self.landed.fault(SchemaError, msg, row=row, **facts)


def _way_out(source: Source) -> str:
    """Say what to do where no type holds both: text has the type that is declared, in every file."""
    if source.policies.dialect is None or source.policies.plain is not None:
        return NO_TYPE_STEP
    return (
        "Declare the column in SchemaDefinition as it was (String where it was not declared); or start the table over, "
        f"which reads its files by what is declared now: mirrorlib reset TARGET {source.table}; where its first files "
        "are gone, with a full load as file N: --start-at N"
    )


def growth_of(before: Columns, after: Columns, readers: Readers | None = None) -> Growth:
    """Tell added, widened and rewritten columns apart; a table for plain readers is rewritten for every type."""
    known = by_name(before)
    old = {column: known.get(fold_name(column.name)) for column in after}
    added = tuple(column for column, was in old.items() if was is None)
    other = {column: was.type for column, was in old.items() if was and was.type != column.type}
    wide = tuple(c for c, was in other.items() if _widens_in_place(was, c.type, readers))
    rewritten = tuple(c for c in other if c not in wide)
    return Growth(columns=after, added=added, widened=wide, rewritten=rewritten)


def _widens_in_place(old: pa.DataType, new: pa.DataType, readers: Readers | None) -> bool:
    # Not for plain readers, as delta-rs and what is built on it cannot read a table after that.
    return readers != "plain" and in_place(old, new)


def _refusing(policies: Policies, option: str) -> tuple[str, str]:
    """Name the policy that refuses a change of columns, and the option that would allow it."""
    if policies.plain is None:
        return f"evolution is {policies.evolution}", option
    return f"plain evolution is {policies.plain}", "--plain-evolution add"
