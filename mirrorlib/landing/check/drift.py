"""Review how the files of a table differ: types and nullability, columns and markers that come and go.

In: the `Review` of each file, in the order in which they apply. Out: findings. What mirrorlib would
make of a type is told by the same functions that apply the file.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import pyarrow as pa

from mirrorlib.identifiers import fold_name
from mirrorlib.landing.check.facts import Policy, Review
from mirrorlib.landing.check.parquet import misfit
from mirrorlib.landing.check.report import Findings
from mirrorlib.landing.types import comparable, widen_type
from mirrorlib.names import WHOLE_FOLDER, find_key, partition_of
from mirrorlib.store import Store


@dataclass(slots=True)
class _Partition:
    """What the files of one partition folder had so far: only among them is one earlier than another."""

    columns: dict[str, pa.Field] = field(default_factory=dict)
    files: int = 0  # how many there were with columns
    marked: bool = False  # one of them had a marker column


@dataclass(slots=True)
class Drift:
    """The table's columns so far, by folded name, and what each of its partitions had; one a table."""

    zone: Store  # where its files are, whose rows are looked at where the review is deep
    policy: Policy
    found: Findings
    # The columns that files had, with the type that the table has then.
    columns: dict[str, pa.Field] = field(default_factory=dict)
    # By partition folder; files ordered by time are in one.
    partitions: dict[str, _Partition] = field(default_factory=dict)
    rows: bool = False  # a file with columns had rows

    def take(self, file: Review) -> None:
        """Compare one more file with those before it."""
        folder = WHOLE_FOLDER if self.policy.by_time else partition_of(file.file.name)
        partition = self.partitions.setdefault(folder, _Partition())
        if partition.marked and not file.marked and file.rows:
            file.tell("marker-missing", "no row marker")
        partition.marked = partition.marked or file.marked
        if file.columns is None:
            return
        if file.rows > file.deletes:  # some row is to have all columns
            keys = (*self.policy.metadata.stated_keys, *self.policy.metadata.key_columns)
            there = {fold_name(name) for name in (*keys, *(c.name for c in file.columns))}
            for folded, column in partition.columns.items():
                if folded not in there:
                    rule = "dropped-column" if column.nullable else "dropped-required-column"
                    file.tell(rule, "no such column", column=column.name)
        for column in file.columns:
            self._take_column(file, column, partition)
        partition.files += 1
        self.rows = self.rows or file.rows > 0

    def close(self) -> None:
        """Say what no file has settled."""
        for key in self.policy.metadata.stated_keys if self.rows else ():
            name = find_key(self.columns, key)
            column = None if name is None else self.columns[name]
            if column is not None and pa.types.is_null(column.type):
                self.found.add("key-untyped", "no type in any file", column=column.name)

    def _take_column(self, file: Review, column: pa.Field, partition: _Partition) -> None:
        folded = fold_name(column.name)
        before = partition.columns.setdefault(folded, column)
        if before is column and partition.files and not column.nullable:
            file.tell("new-required-column", "a new column, required", column=column.name)
        known = self.columns.setdefault(folded, column)
        if known.nullable != column.nullable:
            what = "optional before, required here" if known.nullable else "required before"
            file.tell("nullability-flip", what, column=column.name)
        if known.type != column.type and not pa.types.is_null(column.type):
            kind = self._drifted(file, column, known.type)
            self.columns[folded] = known.with_type(kind)

    def _drifted(self, file: Review, column: pa.Field, known: pa.DataType) -> pa.DataType:
        """Say that a column's type is another one; return the type that the table has then."""
        if pa.types.is_null(known):
            return column.type
        wider = widen_type(known, column.type)
        deep = self.policy.deep or not file.rows  # without rows, nothing can misfit
        row = misfit(self.zone, file.file, column, known) if deep and file.rows else None
        if row is not None and wider is not None:  # a double does not hold every bigint
            unheld = misfit(self.zone, file.file, column, wider)
            wider, row = (wider, row) if unheld is None else (None, unheld)
        types = f"{column.type} here, {known} before"
        rule, what = "schema-drift", ""
        if deep and row is None:
            wider, what = known, f"mirrorlib casts every value to {known}"
        elif wider is None and (deep or not comparable(column.type, known)):
            rule, what = "schema-conflict", "no type holds both"
        elif wider is None:
            what = f"mirrorlib takes the file only if {known} holds every value: see with --deep"
        elif wider == known:
            what = f"mirrorlib casts to {known}"
        else:
            what = f"mirrorlib widens the column to {wider}, where values need it"
        file.tell(rule, f"{types}; {what}", column=column.name, row=row)
        return known if wider is None else wider
