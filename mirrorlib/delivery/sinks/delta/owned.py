"""Make sure of the target table: it is there, it is this consumer's, and nobody else has written to it.

In: a window and its target's address. Out: the table as it is. A table is known by properties that it
is made with, so one that somebody else has made is never written to.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirrorlib.delta.ddl import make_table
from mirrorlib.delta.key_property import KEYS_PROPERTY, keys_property
from mirrorlib.delta.properties import FEED, VECTORS
from mirrorlib.delta.table import Found, TableRef
from mirrorlib.errors import ForeignWriteError, LandingZoneError, MirrorError, first_line
from mirrorlib.identifiers import quote
from mirrorlib.journal.streams import Stream
from mirrorlib.keys.value import Keys

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

    from mirrorlib.delivery.sinks.delta.work import WindowWork

CONSUMER, SOURCE, MODE = "mirrorlib.consumer", "mirrorlib.source", "mirrorlib.mode"


def create_table(
    spark: SparkSession,
    ref: TableRef,
    columns: StructType,
    stream: Stream,
    mode: str,
    keys: tuple[str, ...],
) -> None:
    """Create an empty table of this consumer's, of rows that *keys* tell apart; nothing happens when there is one."""
    properties = {
        CONSUMER: stream.consumer,
        SOURCE: stream.table,
        MODE: mode,
        VECTORS: "true",
        **keys_property(_keys_in(mode, keys)),
    }
    if mode == "changes":  # its columns have the names that a feed of its own would need
        properties[FEED] = "false"
    schema = ref.sql.removesuffix(f".{quote(ref.name.table)}")
    if ref.path is None and not spark.catalog.databaseExists(schema):
        msg, step = "the catalog has no such schema", f"Create it: CREATE SCHEMA {schema}"
        raise LandingZoneError(msg, table=stream.table, found=schema, next_step=step)
    try:
        make_table(spark, ref, columns.fields, properties, stream.table)
    except Exception as exc:
        if ref.path is not None or isinstance(exc, MirrorError):
            raise
        msg = "the catalog does not take the table"
        step = "Choose another address, or rename the table at the source."
        found = first_line(exc)
        raise LandingZoneError(msg, table=stream.table, found=found, next_step=step) from exc


def changed_keys(work: WindowWork) -> Keys | None:
    """Return the keys that a window goes by where the table's property says others, None where it says these."""
    names = () if work.mode == "changes" else work.keys
    keys = _keys_in(work.mode, tuple(work.spelled(name) for name in names))
    said = work.found.properties.get(KEYS_PROPERTY)
    return None if keys_property(keys).get(KEYS_PROPERTY) == said else keys


def _keys_in(mode: str, keys: tuple[str, ...]) -> Keys:
    """Say what keys are in a table of a mode: one row each in a copy, all of its states in a history."""
    if mode == "current":
        return Keys(partition=keys, primary=keys, unique=bool(keys))
    return Keys(partition=keys) if mode == "scd2" else Keys()


def check_owner(found: Found, stream: Stream, mode: str) -> None:
    """See that a table was made for this consumer, table and mode."""
    wanted = {
        CONSUMER: (stream.consumer, "the target is a table that another consumer has made"),
        SOURCE: (stream.table, "the target is what another source table becomes"),
        MODE: (mode, "the target was made in another mode"),
    }
    for name, (value, what) in wanted.items():
        owner = found.properties.get(name)
        if owner != value:
            msg = what if owner is not None else "the target is a table that no consumer has made"
            step = "Choose another address, or remove the table."
            raise ForeignWriteError(msg, table=stream.table, found=owner, next_step=step)


def check_untouched(work: WindowWork) -> None:
    """See that a window of changes goes on where the table ends; of a log only that it was not removed."""
    reason, found = _discontinuity(work) if work.plan.kind == "changes" else ("", None)
    if reason:
        table, step = work.stream.table, work.set_right
        raise ForeignWriteError(reason, table=table, found=found, next_step=step)


def _discontinuity(work: WindowWork) -> tuple[str, str | None]:
    last, stream, plan, facts = work.last, work.stream, work.plan, work.last.facts
    is_log = work.mode == "changes"
    if last.foreign is not None and not is_log:
        commit = last.foreign
        who = f"version {commit.version}, {commit.operation} by {commit.user}"
        return "somebody else has written to the table that the consumer keeps", who
    if work.fresh and plan.number > 1 and work.continues:
        return "the table that the consumer keeps was removed and is empty now", None
    if facts is None and not last.complete and plan.number == 1 and not is_log:
        return "nobody can tell any more how far the table that the consumer keeps goes", None
    if facts is None or is_log:
        return "", None
    if facts.get("table_id") != plan.table_id:
        return "the copy is one of a table that was made anew since", None
    if facts.get("stream") == stream.uuid:
        return "", None
    upto = int(facts["upto"])
    if plan.after > upto and not work.unchanged_since(upto):
        found = f"version {upto}, the stream begins after {plan.after}"
        return "the copy ends before the stream begins", found
    if stream.net:
        msg = "net changes are none since where the copy stands, which another stream has left"
        return msg, None
    return "", None
