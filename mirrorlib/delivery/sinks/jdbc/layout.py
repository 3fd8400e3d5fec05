"""Settle what a table has to be in the database, and refuse what it cannot be, before anything is written.

In: a delivery's frame and plan, and what the database has. Out: `TableLayout`. Nothing here touches the database.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NoReturn

from mirrorlib.commit.stage import FRESH, OP
from mirrorlib.delivery.sink import Delivery, check_continued, check_successor, tell_gap
from mirrorlib.delivery.sinks.jdbc.database import Held, Record
from mirrorlib.delivery.sinks.jdbc.kinds import JSON, form_of, kind_of
from mirrorlib.delta.columns import widening
from mirrorlib.errors import (
    JournalError,
    SchemaError,
    TableNameError,
    first_few,
    printable,
)
from mirrorlib.events import pick
from mirrorlib.identifiers import fold_name
from mirrorlib.journal.streams import Stream, begin_anew

if TYPE_CHECKING:
    from mirrorlib.delivery.sinks.jdbc.database import Session

_LONGEST_TYPE = 200  # of a type in an error
_OF_ITS_OWN = "Let each table have a name, a schema or a database of its own; or drop it there."


@dataclass(frozen=True, slots=True, kw_only=True)
class DatabaseColumn:
    """A column of the source, and of its copy."""

    source: str  # its name in the source
    name: str  # its name in the database; they may differ by case
    kind: str  # what it holds there
    nested: str  # what its values look like as JSON; "" where they are none
    key: bool  # it is one of the key's


@dataclass(frozen=True, slots=True, kw_only=True)
class TableLayout:
    """What a window finds and makes."""

    held: Held
    columns: tuple[DatabaseColumn, ...]  # its columns that the source has, in the source's order
    # Columns that are there and new to the source: it had dropped them, or somebody has added them. They begin as NULL.
    clear: tuple[DatabaseColumn, ...] = ()
    # A row that is new to the source must be new to the table: no window comes twice.
    strict: bool = False
    # And a row that is gone at the source was in the table: it began with a snapshot.
    exact: bool = False
    after: int | None = None  # only what was committed later than this version counts; None for all
    record: Record  # what is known of the table once the window is in it

    @property
    def kinds(self) -> dict[str, str]:
        """Return what each column holds."""
        return {column.name: column.kind for column in self.columns}


def read_columns(delivery: Delivery) -> list[DatabaseColumn]:
    """Read a delivery's columns; refuse types that no database has, or that cannot be a key."""
    table, keys = delivery.stream.table, delivery.keys
    columns = []
    for name in delivery.columns:
        if keys and fold_name(name) in {OP, FRESH}:
            msg = "the column's name is taken by what a window adds"
            raise SchemaError(msg, table=table, column=name, next_step="Rename it at the source.")
        data_type = delivery.frame.schema[name].dataType
        kind, key = kind_of(data_type), name in keys
        if kind is None or (key and kind == JSON):
            msg = f"a column of this type cannot be {'a key' if kind else 'kept'} in a database"
            step = "Leave it out of the key." if kind else "Change its type at the source."
            found = data_type.simpleString().partition("<")[0]
            raise SchemaError(msg, table=table, column=name, found=found, next_step=step)
        nested = form_of(data_type) if kind == JSON else ""
        columns.append(DatabaseColumn(source=name, name=name, kind=kind, nested=nested, key=key))
    return columns


def settle(
    session: Session, held: Held, columns: Sequence[DatabaseColumn], delivery: Delivery
) -> TableLayout:
    """Settle what a window makes of the table that the database has."""
    stream, plan, old = delivery.stream, delivery.plan, held.record
    for column in columns:
        if reason := session.check_column(column.name):
            raise TableNameError(reason, table=stream.table, column=printable(column.name))
    _check_owner(held, stream)
    if plan.kind == "changes":
        _check_follows(held, delivery)
    shape = _fitted(session, held, columns, delivery)
    if old is not None and set(shape.record.keys) != set(old.keys):
        msg = f"the table's keys in the database are ({', '.join(old.keys)})"
        found = f"({', '.join(shape.record.keys)})"
        raise SchemaError(msg, table=stream.table, found=found, next_step=_drop(stream))
    if old is None or plan.kind == "snapshot":
        return shape
    shape = _continued(shape, old, delivery)
    for name, nested in shape.record.nested.items():
        was = old.nested.get(name, nested)
        if was != nested:  # rows that no change tells of would keep the old form
            msg = "what the column holds inside has changed, and not all rows of it are told"
            found = f"{nested[:_LONGEST_TYPE]}, was {was[:_LONGEST_TYPE]}"
            step = begin_anew(stream)
            raise SchemaError(msg, table=stream.table, column=name, found=found, next_step=step)
    return shape


def _drop(stream: Stream) -> str:
    return f"Drop the table there. {begin_anew(stream)}"


def _fitted(
    session: Session, held: Held, columns: Sequence[DatabaseColumn], delivery: Delivery
) -> TableLayout:
    """Fit the source's columns to the table's: spelled as there, of the wider of both types."""
    types = dict(held.columns or ())
    spelled = {name.lower(): name for name in types} | {name: name for name in types}
    fitted = []
    for column in columns:
        name = spelled.get(column.name) or spelled.get(column.name.lower()) or column.name
        found = replace(column, name=name)
        kind = session.types.kind(types[name]) if name in types else found.kind
        exact = (found.kind, kind) != ("bigint", "double")
        if kind is not None and exact and widening(found.kind, kind):
            found = replace(found, kind=kind)  # an older schema of a stream that was rewound
        elif kind is None or not (kind == found.kind or session.widens(kind, found.kind)):
            wanted = session.types.of(column.kind)
            msg = f"the column's type in the database is not {wanted}, nor one that can be widened to it"
            table, step = delivery.stream.table, _drop(delivery.stream)
            raise SchemaError(msg, table=table, column=name, found=types[name], next_step=step)
        fitted.append(found)
    stream, plan = delivery.stream, delivery.plan
    return TableLayout(
        held=held,
        columns=tuple(fitted),
        record=Record(
            source_table=stream.table,
            consumer=stream.consumer,
            stream=stream.uuid,
            stream_ordinal=stream.ordinal,
            stream_began_at=stream.began_at,
            table_id=plan.table_id,
            delta_version=plan.until,
            columns=[column.name for column in fitted],
            nested={column.name: column.nested for column in fitted if column.nested},
            physical=delivery.physical,
            keys=[column.name for column in fitted if column.key],
        ),
    )


def _continued(shape: TableLayout, old: Record, delivery: Delivery) -> TableLayout:
    """Say how changes go on from what the table has; refuse what may be a renamed column: its values never came.

    A table without keys takes only what it has not: nothing tells a row that comes again from an equal one.
    """
    stream, plan, record = delivery.stream, delivery.plan, shape.record
    there = dict(shape.held.columns or ())
    if lost := [name for name in old.columns if name not in there]:
        msg = "somebody has taken a column from the table in the database, or renamed it there"
        _refuse(msg, stream, first_few(lost), begin_anew(stream))
    new = [column for column in shape.columns if column.name not in old.columns]
    strict = old.stream == stream.uuid and plan.after >= old.delta_version
    late = not record.keys and plan.after < old.delta_version
    passed = late and plan.until <= old.delta_version
    known = old if passed else record
    names, physical = (old.columns, record.columns), (old.physical, known.physical)
    check_continued(delivery, names, physical, begin_anew(stream))
    return replace(
        shape,
        clear=() if passed else tuple(column for column in new if column.name in there),
        strict=strict,
        exact=strict and stream.start_at is None,
        after=old.delta_version if late else None,
        record=replace(
            record,
            delta_version=max(old.delta_version, plan.until),
            **pick(known, "columns", "nested", "physical"),
        ),
    )


def _check_owner(held: Held, stream: Stream) -> None:
    record, where = held.record, held.place.sql
    if held.columns is None:
        return
    if record is None:
        msg = "the database has a table of this name that is not ours"
        step = "Rename it there, or export to another schema or database by another consumer."
        _refuse(msg, stream, where, step)
    last = {
        **pick(record, "consumer", "stream"),
        "table": record.source_table,
        "ordinal": record.stream_ordinal,
        "began_at": record.stream_began_at,
    }
    check_successor(stream, last, f"the table {where} in the database", _OF_ITS_OWN)


def _check_follows(held: Held, delivery: Delivery) -> None:
    stream, record = delivery.stream, held.record
    if record is None:
        if held.number or delivery.continues:
            msg = (
                f"the database has not the table {held.place.sql} any more that the changes are for"
            )
            _refuse(msg, stream, None, begin_anew(stream))
        return
    at = held.at if record.keys else record.delta_version
    gap = tell_gap(delivery, record.stream, record.table_id, record.delta_version, at)
    if not gap and not held.number and stream.start_at is None:
        gap = "does not hold the rows that the changes are for"
    if gap:
        _refuse(f"the table in the database {gap}", stream, held.place.sql, begin_anew(stream))


def _refuse(msg: str, stream: Stream, found: str | None, step: str) -> NoReturn:
    raise JournalError(msg, table=stream.table, found=found, next_step=step)
