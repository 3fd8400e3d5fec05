"""Settle what a table has to be in the database, and refuse what it cannot be, before anything is written.

In: a delivery's frame and plan, and what the database has. Out: `Shape`. Nothing here touches the database.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NoReturn

from mirrorlib.delivery.sinks.jdbc.books import Record
from mirrorlib.delivery.sinks.jdbc.database import BEGIN_ANEW, Field
from mirrorlib.delivery.sinks.jdbc.kinds import JSON, form_of, kind_of, widens
from mirrorlib.delivery.sinks.jdbc.owned import check_follows, check_owner
from mirrorlib.delivery.sinks.renamed import check_physical, check_renamed
from mirrorlib.errors import SchemaError, TableNameError, printable

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from mirrorlib.delivery.sink import Delivery
    from mirrorlib.delivery.sinks.jdbc.books import Held
    from mirrorlib.delivery.sinks.jdbc.database import Place, Session
    from mirrorlib.journal.streams import Plan, Stream

_LONGEST_TYPE = 200  # of a type in an error


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A column of the source, and of its copy.

    Attributes:
        source: its name in the source.
        name: its name in the database; they may differ by case.
        kind: what it holds there.
        nested: what its values look like as JSON; "" where they are none.
        key: it is one of the key's.

    """

    source: str
    name: str
    kind: str
    nested: str
    key: bool

    @property
    def field(self) -> Field:
        """Return it as a column of the database."""
        return Field(self.name, self.kind)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """What a window finds and makes.

    Attributes:
        place: the table.
        columns: its columns that the source has, in the source's order.
        make: there is no such table yet.
        add: columns that it lacks.
        widen: columns that need a wider type.
        clear: columns that come again after the source had dropped them.
        strict: a row that is new to the source must be new to the table: no window comes twice.
        exact: and a row that is gone at the source was in the table: it began with a snapshot.
        after: only what was committed later than this version counts; None for all.
        known: what is remembered as the source's columns.
        nested: what is remembered of those that are nested.
        physical: what is remembered as the physical columns that the source's names stand for.
        version: what is remembered as the newest version.

    """

    place: Place
    columns: tuple[Column, ...]
    make: bool
    add: tuple[Column, ...]
    widen: tuple[Column, ...]
    clear: tuple[Column, ...]
    strict: bool
    exact: bool
    after: int | None
    known: tuple[str, ...]
    nested: Mapping[str, str]
    physical: Mapping[str, str]
    version: int

    @property
    def keys(self) -> tuple[str, ...]:
        """Name the key columns as the database does."""
        return tuple(column.name for column in self.columns if column.key)

    @property
    def fields(self) -> tuple[Field, ...]:
        """Return all columns as the database's."""
        return tuple(column.field for column in self.columns)

    def record(self, stream: Stream, plan: Plan) -> Record:
        """Say what is known of the table once the window is in it."""
        return Record(
            source=stream.table,
            consumer=stream.consumer,
            stream=stream.uuid,
            ordinal=stream.ordinal,
            began_at=stream.began_at,
            table_id=plan.table_id,
            version=self.version,
            columns=self.known,
            nested=self.nested,
            physical=self.physical,
            keys=self.keys,
        )


def read_columns(delivery: Delivery) -> tuple[Column, ...]:
    """Read a delivery's columns.

    Raises:
        SchemaError: a column is of a type that no database has, or cannot be a key; or a key is no column.

    """
    table = delivery.stream.table
    keys = delivery.keys
    fields = [delivery.frame.schema[name] for name in delivery.columns]
    columns = []
    for field in fields:
        kind = kind_of(field.dataType)
        key = field.name in keys
        if kind is None or (key and kind == JSON):
            msg = f"a column of this type cannot be {'a key' if kind else 'kept'} in a database"
            step = "Leave it out of the key." if kind else "Change its type at the source."
            found = field.dataType.simpleString().partition("<")[0]
            raise SchemaError(msg, table=table, column=field.name, found=found, next_step=step)
        nested = form_of(field.dataType) if kind == JSON else ""
        column = Column(source=field.name, name=field.name, kind=kind, nested=nested, key=key)
        columns.append(column)
    if not columns:
        msg = "the table has no columns"
        raise SchemaError(msg, table=table, next_step="Give it some.")
    return tuple(columns)


def check_names(session: Session, columns: Sequence[Column], table: str) -> None:
    """See that the database can have columns of these names.

    Raises:
        TableNameError: it cannot.

    """
    for column in columns:
        reason = session.check_column(column.name)
        if reason:
            shown = printable(column.name)
            step = "Rename the column at the source."
            raise TableNameError(reason, table=table, column=shown, next_step=step)


def settle(session: Session, held: Held, columns: Sequence[Column], delivery: Delivery) -> Shape:
    """Settle what a window makes of the table that the database has.

    Raises:
        JournalError: the table is not ours, not this consumer's, or not what the window follows.
        SchemaError: its columns or its keys are not what the source has.
        FeedError: a net window begins before what the table holds, and ends after it.
        TableBusyError: a later stream of the consumer has been given the table.

    """
    stream, plan = delivery.stream, delivery.plan
    check_names(session, columns, stream.table)
    check_owner(held, stream)
    if plan.kind == "changes":
        check_follows(held, delivery)
    whole = plan.kind == "snapshot"
    shape = Shape(
        place=held.place,
        columns=tuple(columns),
        make=held.columns is None,
        add=(),
        widen=(),
        clear=(),
        strict=False,
        exact=False,
        after=None,
        known=tuple(column.name for column in columns),
        nested=_nested(columns),
        physical=delivery.physical,
        version=plan.until,
    )
    if held.columns is None or held.record is None:
        return shape
    shape = _fitted(session, held.columns, held.record, shape, stream, plan)
    if whole:
        return shape
    record = held.record
    strict = record.stream == stream.uuid and plan.after >= record.version
    exact = strict and stream.start_at is None
    shape = replace(shape, strict=strict, exact=exact, version=max(record.version, plan.until))
    if not shape.keys and plan.after < record.version:
        shape = _later(shape, record, plan)
    _check_nested(shape, record, stream.table)
    if delivery.mapped:
        step = f"Let the consumer {BEGIN_ANEW}"
        check_physical(record.physical, shape.physical, stream.table, step, delivery.renewed)
    return shape


def _nested(columns: Sequence[Column]) -> Mapping[str, str]:
    return {column.name: column.nested for column in columns if column.nested}


def _fitted(
    session: Session,
    there: Sequence[tuple[str, str]],
    record: Record,
    shape: Shape,
    stream: Stream,
    plan: Plan,
) -> Shape:
    """Fit the source's columns to the table's: spelled as there, of the wider of both types."""
    spelled = {name.lower(): name for name, _ in there} | {name: name for name, _ in there}
    types = dict(there)
    columns, add, widen = [], [], []
    for column in shape.columns:
        name = spelled.get(column.name) or spelled.get(column.name.lower()) or column.name
        found = replace(column, name=name)
        if name in types:
            kind = session.types.kind(types[name])
            if kind is None or not (kind == found.kind or widens(kind, found.kind)):
                if kind is None or not widens(found.kind, kind):
                    _refuse_type(session, found, types[name], stream.table)
                found = replace(found, kind=kind)  # an older schema of a stream that was rewound
            elif kind != found.kind:
                widen.append(found)
        else:
            add.append(found)
        columns.append(found)
    fitted = replace(
        shape,
        columns=tuple(columns),
        add=tuple(add),
        widen=tuple(widen),
        known=tuple(column.name for column in columns),
        nested=_nested(columns),
    )
    _check_keys(fitted, record, stream.table)
    return fitted if plan.kind == "snapshot" else _with_returned(fitted, record, stream.table)


def _refuse_type(session: Session, column: Column, found: str, table: str) -> NoReturn:
    wanted = session.types.of(column.kind)
    msg = f"the column's type in the database is not {wanted}, nor one that can be widened to it"
    step = f"Drop the table there, and {BEGIN_ANEW}"
    raise SchemaError(msg, table=table, column=column.name, found=found, next_step=step)


def _check_keys(shape: Shape, record: Record, table: str) -> None:
    if set(shape.keys) != set(record.keys):
        msg = f"the table's keys in the database are ({', '.join(record.keys)})"
        step = f"Drop the table there, and {BEGIN_ANEW}"
        found = f"({', '.join(shape.keys)})"
        raise SchemaError(msg, table=table, found=found, next_step=step)


def _with_returned(shape: Shape, record: Record, table: str) -> Shape:
    """Find columns that come again; refuse what may be a renamed one: its values never came as changes."""
    known = set(record.columns)
    new = [column for column in shape.columns if column.name not in known]
    gone = [name for name in record.columns if name not in shape.known]
    came = [column.name for column in new]
    check_renamed(gone, came, table, f"Let the consumer {BEGIN_ANEW}")
    return replace(shape, clear=tuple(column for column in new if column not in shape.add))


def _check_nested(shape: Shape, record: Record, table: str) -> None:
    """See that nested columns look as they did: rows that no change tells of would keep the old form."""
    for name, nested in shape.nested.items():
        was = record.nested.get(name, nested) if name in record.columns else nested
        if was != nested:
            msg = "what the column holds inside has changed, and not all rows of it are told"
            found = f"{nested[:_LONGEST_TYPE]}, was {was[:_LONGEST_TYPE]}"
            step = f"Let the consumer {BEGIN_ANEW}"
            raise SchemaError(msg, table=table, column=name, found=found, next_step=step)


def _later(shape: Shape, record: Record, plan: Plan) -> Shape:
    """Let a table without keys take only what it has not: nothing tells a row that comes again from an equal one."""
    shape = replace(shape, after=record.version)
    if plan.until > record.version:
        return shape
    return replace(
        shape, clear=(), known=record.columns, nested=record.nested, physical=record.physical
    )
