"""See that a table in the database is the stream's, and that it holds what a window follows on.

In: what the database has, a delivery. Out: nothing, or the refusal. Nothing here touches the database.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

from mirrorlib.delivery.sink import comes_after
from mirrorlib.delivery.sinks.jdbc.database import BEGIN_ANEW
from mirrorlib.errors import FeedError, JournalError, TableBusyError

if TYPE_CHECKING:
    from mirrorlib.delivery.sink import Delivery
    from mirrorlib.delivery.sinks.jdbc.books import Held
    from mirrorlib.journal.streams import Stream

_OF_ITS_OWN = "Let each target have a consumer, and a schema or a database, of its own."


def check_owner(held: Held, stream: Stream) -> None:
    """See that the table is this stream's.

    Raises:
        JournalError: it is somebody else's.
        TableBusyError: a later stream of the consumer has been given it.

    """
    record, where = held.record, held.place.sql
    if held.columns is None:
        return
    if record is None:
        msg = "the database has a table of this name that is not ours"
        _refuse(msg, stream, where, "Rename it there, or export to another schema or database.")
    if record.source != stream.table:
        msg = "the table's name in the database belongs to another table"
        _refuse(msg, stream, f"{where}, of {record.source}", "Rename one of the two at the source.")
    if record.consumer != stream.consumer:
        msg = "the table in the database belongs to another consumer"
        step = "Export to another schema or database; or drop it there."
        _refuse(msg, stream, f"{where}, of {record.consumer}", step)
    if held.number and record.stream != stream.uuid:
        msg = "another stream has been given the table in the database since"
        _refuse(msg, stream, where, _OF_ITS_OWN)
    if record.stream != stream.uuid and not comes_after(stream, record.ordinal, record.began_at):
        msg = "a stream of the consumer that began later has been given the table in the database"
        raise TableBusyError(
            msg, table=stream.table, found=where, next_step=f"Run again. {_OF_ITS_OWN}"
        )


def check_follows(held: Held, delivery: Delivery) -> None:
    """See that the table holds what the changes follow on.

    Raises:
        FeedError: a net window begins before what the table holds, and ends after it.
        JournalError: the table is not there, or is another one's, or ends too early.

    """
    stream, plan, record = delivery.stream, delivery.plan, held.record
    step = f"Let the consumer {BEGIN_ANEW}"
    if record is None:
        if held.number or delivery.continues:
            msg = "the database has not the table any more that the changes are for"
            _refuse(msg, stream, None, step)
        return
    if record.table_id != plan.table_id or (not held.number and stream.start_at is None):
        msg = "the table in the database does not hold the rows that the changes are for"
        _refuse(msg, stream, held.place.sql, step)
    before, ours = record.version, record.stream == stream.uuid
    if not ours and plan.after > before and not delivery.unchanged_since(before):
        msg = "the table in the database ends before the stream begins"
        found = f"version {before}, the stream begins after {plan.after}"
        _refuse(msg, stream, found, step)
    if stream.net and plan.after < before < plan.until:  # what came and went again is not told
        msg = f"the net window {plan.after} to {plan.until} begins before what the table holds"
        raise FeedError(msg, table=stream.table, found=f"version {before}", next_step=step)


def _refuse(msg: str, stream: Stream, found: str | None, step: str) -> NoReturn:
    raise JournalError(msg, table=stream.table, found=found, next_step=step)
