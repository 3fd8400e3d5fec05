"""Let a target's columns grow with the source's, or say which one does not fit and why.

In: a target as it is, and the columns that a window wants. Out: the window with its target as it is
then. Growing is a commit of its own, before the window's, and idempotent. What is added or widened
leaves the rows that are there as they are; for a type that holds the old one's values and that Delta does
not widen to, they are written again, as the applier does it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pyspark.sql import functions as f
from pyspark.sql import types as t

from mirrorlib.commit.mark import Mark, append_rows, overwrite_columns
from mirrorlib.delivery.sink import Delivery, check_continued
from mirrorlib.delivery.sinks.delta.work import WindowWork
from mirrorlib.delta.columns import Column, Columns, extends, in_place, is_same, widening
from mirrorlib.delta.ddl import allow_columns, need_mapping, rewritten_rows, widen_columns
from mirrorlib.delta.log import REWRITE
from mirrorlib.delta.properties import REWRITE_LIMIT
from mirrorlib.delta.table import find_table
from mirrorlib.errors import FeedExpiredError, MirrorError, SchemaError
from mirrorlib.feed.net import is_comparable
from mirrorlib.feed.schemas import in_its_order
from mirrorlib.identifiers import find_name, fold_name, quote
from mirrorlib.journal.streams import begin_anew, snapshot_command
from mirrorlib.landing.columns import OURS


def check_columns(delivery: Delivery, *reserved: str, comparable: bool) -> None:
    """Refuse a source's column whose name the target needs, or by which rows cannot be compared that have to be."""
    table, mode = delivery.stream.table, delivery.stream.mode
    for name in delivery.columns:
        if fold_name(name) in reserved or fold_name(name).startswith(OURS):
            msg = f"the column's name is taken by what mode {mode} adds"
            step = "Rename it at the source, or let another consumer choose another mode."
            raise SchemaError(msg, table=table, column=name, next_step=step)
    for field in delivery.frame.schema.fields if comparable else ():
        if not is_comparable(field.dataType):
            msg = "a column of this type cannot be compared, so equal rows cannot be told"
            kind = field.dataType.simpleString().partition("<")[0]
            step = "Let another consumer choose mode changes, or current by keys."
            raise SchemaError(msg, table=table, column=field.name, found=kind, next_step=step)


def fit_columns(work: WindowWork) -> WindowWork:
    """Make a window's target hold the wanted columns; refuse what does not widen, and what may stand for others now."""
    wanted = {fold_name(field.name): field for field in work.wanted.fields}
    has = {fold_name(field.name): field for field in work.found.schema.fields}
    gone = tuple(field.name for name, field in has.items() if name not in wanted)
    if work.mode == "current" and work.plan.kind == "snapshot":  # it is about to be replaced
        mapped = work.found.mapped or need_mapping(work.wanted.fields)
        # Delta drops no column of a table with column mapping and a feed of its own.
        return replace(work, dropped=gone if work.found.has_feed and mapped else ())
    added = [field for name, field in wanted.items() if name not in has]
    if work.plan.kind == "changes" and work.mode != "changes":
        _check_same_columns(work)
    both = [(has[name], field) for name, field in wanted.items() if name in has]
    others = [(old, new) for old, new in both if not is_same(old.dataType, new.dataType)]
    added += _change_types(work, others)
    work = replace(work, dropped=gone)
    if added:
        allow_columns(work.spark, work.ref, added, work.found)
        if work.mode != "changes":  # whose window's own commit adds them
            rows = work.spark.createDataFrame([], t.StructType(added))
            append_rows(work.ref, rows, _side_mark(work, "grow"), grows=True)
        work = replace(work, found=find_table(work.spark, work.ref) or work.found)
    # What is narrower than the target's, as in a table that was made anew, is cast: an append by path does not.
    narrow = {
        new.name: f.col(quote(new.name)).cast(old.dataType)
        for old, new in others
        if widening(new.dataType.simpleString(), old.dataType.simpleString())
    }
    # The window's structs get the target's order of fields.
    rows = work.frame.withColumns(narrow) if narrow else work.frame
    ordered = in_its_order(rows, work.found.schema)
    collected = work.collected if ordered is work.frame else None
    return replace(work, frame=ordered, collected=collected)


def _check_same_columns(work: WindowWork) -> None:
    """Refuse what may be a column under a new name: the rows that have not changed would lack its values.

    Columns that the target alone has, a history's or its owner's own, have not gone.
    """
    table = work.stream.table
    step = begin_anew(work.stream)
    before = set(work.dropped_before)
    theirs = {fold_name(name) for name in (*work.physical_before, *work.columns)}
    back = [name for name in before if find_name(work.columns, name)]
    if back and not work.passed:
        msg, found = "a column that had been dropped is back", ", ".join(back)
        raise SchemaError(msg, table=table, column=back[0], found=found, next_step=step)
    known = (name for name in work.found.schema.names if fold_name(name) in theirs)
    was = [name for name in known if name not in before]
    physical = work.physical_before, work.physical_after
    check_continued(work, (was, work.columns), physical, step)


def _change_types(
    work: WindowWork, pairs: Sequence[tuple[t.StructField, t.StructField]]
) -> list[t.StructField]:
    """Widen columns; return those that get more fields."""
    wider, rewritten, nested = [], [], []
    for old, new in pairs:
        was, becomes = old.dataType.simpleString(), new.dataType.simpleString()
        types, back = widening(was, becomes), widening(becomes, was)
        if types is not None and in_place(*types):
            wider.append(Column(old.name, types[1]))
        elif types is not None:
            rewritten.append(Column(old.name, types[1]))
        elif extends(new.dataType, old.dataType):
            nested.append(new)
        elif back is None or not in_place(*back):  # else as in a table that was made anew
            raise _misfit(work, old, becomes)
    if wider:
        widen_columns(work.spark, work.ref, tuple(wider), work.found)
    if rewritten:
        _rewrite(work, tuple(rewritten))
    return nested


def _rewrite(work: WindowWork, columns: Columns) -> None:
    """Write the target's rows again with other types; where that cannot be, a snapshot may set a copy right."""
    old, new = work.found.schema[columns[0].name], columns[0].sql_type
    if work.found.bytes > REWRITE_LIMIT:
        raise _misfit(work, old, new, f"{work.found.bytes} bytes are more than are written again")
    try:
        rows = rewritten_rows(work.spark, work.ref, columns, "")
    except SchemaError as exc:
        raise _misfit(work, work.found.schema[exc.column or old.name], new, exc.reason) from exc
    overwrite_columns(work.spark, work.ref, rows, _side_mark(work, REWRITE))


def _misfit(work: WindowWork, old: t.StructField, new: str, why: str = "") -> MirrorError:
    msg = "the source's column is of a type that the target's does not widen to"
    found = f"{old.dataType.simpleString()} in the target, {new} now" + (f": {why}" if why else "")
    step = "Export to another address by another consumer, or remove the table and let it begin with a snapshot"
    if work.mode == "current":
        step = "Let a snapshot replace the table"
    step = f"{step}: {snapshot_command(work.stream.consumer, work.stream.table)}"
    kind = FeedExpiredError if why and work.mode == "current" else SchemaError
    return kind(msg, table=work.stream.table, column=old.name, found=found, next_step=step)


def _side_mark(work: WindowWork, outcome: str) -> Mark:
    """Return the mark of a commit that is no window's."""
    facts = {"consumer": work.stream.consumer, "table": work.stream.table, "outcome": outcome}
    return Mark(app_id="", facts=facts)
