"""Receive windows in a database: look, stage, then one transaction.

In: deliveries. Out: `DatabaseSink`. Delivery: exactly once. All that Spark does comes before the transaction; what
the database had when the window was settled is looked at again under the lock that the transaction holds.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from mirrorlib.delivery.sinks.jdbc.apply import change_rows, replace_rows
from mirrorlib.delivery.sinks.jdbc.books import position, read_held, write
from mirrorlib.delivery.sinks.jdbc.database import UnfitError
from mirrorlib.delivery.sinks.jdbc.fold import (
    counted_lines,
    find_unfit,
    keyed_lines,
    snapshot_lines,
)
from mirrorlib.delivery.sinks.jdbc.layout import read_columns, settle
from mirrorlib.delivery.sinks.jdbc.stage import stage_lines
from mirrorlib.errors import LandingZoneError, SchemaError, TableBusyError
from mirrorlib.feed.net import VERSION
from mirrorlib.names import parse_name

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from mirrorlib.delivery.sink import Delivery
    from mirrorlib.delivery.sinks.jdbc.books import Held
    from mirrorlib.delivery.sinks.jdbc.database import Database
    from mirrorlib.delivery.sinks.jdbc.layout import Shape
    from mirrorlib.delivery.sinks.jdbc.stage import Staged
    from mirrorlib.journal.streams import Stream

_LOG = logging.getLogger(__name__)


def open_sink(address: str, mode: str) -> DatabaseSink:
    """Open a database: `postgresql://…` or `sqlite:PATH`.

    Raises:
        LandingZoneError: the address is of neither.

    """
    del mode  # there is one
    kind = address.partition(":")[0]
    if kind in {"postgresql", "postgres"}:
        from mirrorlib.delivery.sinks.jdbc.postgres import Postgres

        return DatabaseSink(Postgres(address))
    if kind == "sqlite":
        from mirrorlib.delivery.sinks.jdbc.sqlite import Sqlite

        return DatabaseSink(Sqlite(address.partition(":")[2]))
    msg = "no such database is known"
    step = "Give jdbc:postgresql://HOST:PORT/DATABASE?user=… or jdbc:sqlite:PATH."
    raise LandingZoneError(msg, found=f"jdbc:{kind}"[:80], next_step=step)


class DatabaseSink:
    """Copies of tables in a database, each as of the end of the last window that it was given."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def position(self, stream: Stream) -> int:
        """Return the number of the last window that was committed; 0 when the stream is not known."""
        with self._database.session(stream.table, ()) as session:
            return position(session, stream) if session.has_books() else 0

    def deliver(self, delivery: Delivery) -> int:
        """Apply a window and advance the position, in one transaction; return how many rows were sent.

        Raises:
            JournalError: the table is not ours, or not what the window follows.
            SchemaError: a column, a type or a key does not fit, or the database cannot hold a value.
            StoreError: the database is not there, was lost, or refuses.
            TableBusyError: another runner has delivered to the table meanwhile.
            TableNameError: the database cannot have a name.

        """
        held, shape = self._settle(delivery)
        frame = delivery.frame
        if shape.after is not None:
            frame = frame.where(f"{VERSION} > {shape.after}")
        staged = stage_lines(delivery, _lines(delivery, frame, shape))
        try:
            self._apply(delivery, held, shape, staged)
        except UnfitError as exc:
            msg = "the database cannot hold a value of the column"
            step = "It takes no text with a character NUL, and no years before 1 or after 9999: correct the rows."
            name = find_unfit(frame, shape)
            table = delivery.stream.table
            raise SchemaError(
                msg, table=table, column=name, found=str(exc), next_step=step
            ) from exc
        number = delivery.plan.number
        _LOG.info("%s: window %d, %d rows, committed", delivery.stream.table, number, staged.rows)
        return staged.rows

    def _settle(self, delivery: Delivery) -> tuple[Held, Shape]:
        stream, plan = delivery.stream, delivery.plan
        columns = read_columns(delivery)
        with self._database.session(stream.table, plan.keys) as session:
            place = session.place(parse_name(stream.table))
            session.prepare(place)
            held = read_held(session, place, stream)
            if held.number >= plan.number:
                raise _overtaken(stream)
            return held, settle(session, held, columns, delivery)

    def _apply(self, delivery: Delivery, held: Held, shape: Shape, staged: Staged) -> None:
        stream, plan = delivery.stream, delivery.plan
        with self._database.session(stream.table, shape.keys) as session:
            session.begin(held.place)
            if read_held(session, held.place, stream) != held:
                raise _overtaken(stream)
            apply = replace_rows if plan.kind == "snapshot" else change_rows
            apply(session, shape, staged, stream.table)
            write(session, shape.place, shape.record(stream, plan), plan)
            session.commit()


def _lines(delivery: Delivery, frame: DataFrame, shape: Shape) -> DataFrame:
    if delivery.plan.kind == "snapshot":
        return snapshot_lines(frame, shape)
    return keyed_lines(frame, shape) if shape.keys else counted_lines(frame, shape)


def _overtaken(stream: Stream) -> TableBusyError:
    msg = "somebody else has changed the table in the database while its window was under way"
    return TableBusyError(msg, table=stream.table)
