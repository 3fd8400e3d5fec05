"""Make sure of the target table: it is there, it is this consumer's, and nobody else has written to it.

In: a window and its target's address. Out: the table as it is. A table is known by properties that it
is made with, so one that somebody else has made is never written to.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirrorlib.delivery.sinks.delta.work import Work
from mirrorlib.delta.ddl import make_table
from mirrorlib.delta.key_property import KEYS_PROPERTY, keep_keys, keys_property
from mirrorlib.delta.properties import FEED, VECTORS
from mirrorlib.errors import ForeignWriteError, LandingZoneError, MirrorError, first_line
from mirrorlib.identifiers import quote
from mirrorlib.journal.streams import snapshot_command
from mirrorlib.keys.value import Keys

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

    from mirrorlib.delta.table import Found, TableRef
    from mirrorlib.journal.streams import Stream

CONSUMER, SOURCE, MODE = "mirrorlib.consumer", "mirrorlib.source", "mirrorlib.mode"
_REMOVED = "the table that the consumer keeps was removed and is empty now"


def create_table(
    spark: SparkSession,
    ref: TableRef,
    columns: StructType,
    stream: Stream,
    mode: str,
    keys: Sequence[str] = (),
) -> None:
    """Create an empty table of this consumer's, of rows that *keys* tell apart; nothing happens when there is one.

    Raises:
        LandingZoneError: its folder holds something else, or the catalog has no such schema.

    """
    properties = {
        CONSUMER: stream.consumer,
        SOURCE: stream.table,
        MODE: mode,
        VECTORS: "true",
        **keys_property(_keys_in(mode, tuple(keys))),
    }
    if mode == "changes":  # its columns have the names that a feed of its own would need
        properties[FEED] = "false"
    if ref.path is None:
        _check_schema(spark, ref, stream.table)
    try:
        make_table(spark, ref, columns.fields, properties, stream.table)
    except Exception as exc:
        if ref.path is not None or isinstance(exc, MirrorError):
            raise
        msg = "the catalog does not take the table"
        step = "Choose another address, or rename the table at the source."
        found = first_line(exc)
        raise LandingZoneError(msg, table=stream.table, found=found, next_step=step) from exc


def loosen_keys(work: Work) -> None:
    """Take back what the table's property says of keys, where a window goes by others."""
    if work.found.properties.get(KEYS_PROPERTY) != _planned_keys(work).get(KEYS_PROPERTY):
        keep_keys(work.spark, work.ref.sql, work.found.properties, Keys())


def settle_keys(work: Work) -> None:
    """Write down the keys that a window, which is written now, went by."""
    if work.found.properties.get(KEYS_PROPERTY) != _planned_keys(work).get(KEYS_PROPERTY):
        keep_keys(work.spark, work.ref.sql, {}, _keys_in(work.mode, _spelled(work)))


def _planned_keys(work: Work) -> dict[str, str]:
    return keys_property(_keys_in(work.mode, _spelled(work)))


def _spelled(work: Work) -> tuple[str, ...]:
    if work.mode == "changes":
        return ()
    return tuple(work.spelled(name) for name in work.keys)


def _keys_in(mode: str, keys: tuple[str, ...]) -> Keys:
    """Say what keys are in a table of a mode: one row each in a copy, all of its states in a history."""
    if mode == "current":
        return Keys(partition=keys, primary=keys, unique=bool(keys))
    return Keys(partition=keys) if mode == "scd2" else Keys()


def _check_schema(spark: SparkSession, ref: TableRef, table: str) -> None:
    schema = ref.sql.removesuffix(f".{quote(ref.name.table)}")
    if not spark.catalog.databaseExists(schema):
        msg = "the catalog has no such schema"
        step = f"Create it: CREATE SCHEMA {schema}"
        raise LandingZoneError(msg, table=table, found=schema, next_step=step)


def check_owner(found: Found, stream: Stream, mode: str) -> None:
    """See that a table was made for this consumer, table and mode.

    Raises:
        ForeignWriteError: it was not.

    """
    wanted = {CONSUMER: stream.consumer, SOURCE: stream.table, MODE: mode}
    for name, value in wanted.items():
        owner = found.properties.get(name)
        if owner == value:
            continue
        what = {
            CONSUMER: "the target is a table that another consumer has made",
            SOURCE: "the target is what another source table becomes",
            MODE: "the target was made in another mode",
        }[name]
        if owner is None:
            what = "the target is a table that no consumer has made"
        step = "Choose another address, or remove the table."
        raise ForeignWriteError(what, table=stream.table, found=owner, next_step=step)


def check_continuous(work: Work) -> None:
    """See that a window of changes goes on where the table ends.

    Raises:
        ForeignWriteError: somebody else wrote to the table, or it was removed; its rows are not what the
            window's changes began with.

    """
    if work.plan.kind == "snapshot":
        return
    reason, found = _discontinuity(work)
    if reason:
        step = f"Let a snapshot set it right: {snapshot_command(work.stream.consumer)}"
        raise ForeignWriteError(reason, table=work.table, found=found, next_step=step)


def check_kept(work: Work) -> None:
    """See that a table that windows of the stream were written to still has them.

    Raises:
        ForeignWriteError: it was removed.

    """
    if _is_emptied(work):
        step = f"Let a snapshot set it right: {snapshot_command(work.stream.consumer)}"
        raise ForeignWriteError(_REMOVED, table=work.table, next_step=step)


def _is_emptied(work: Work) -> bool:
    return work.fresh and work.plan.number > 1 and work.delivery.continues


def _discontinuity(work: Work) -> tuple[str, str | None]:
    last, stream, plan = work.last, work.stream, work.plan
    if last.foreign is not None:
        commit = last.foreign
        who = f"version {commit.version}, {commit.operation} by {commit.user}"
        return "somebody else has written to the table that the consumer keeps", who
    if last.facts is None:
        if _is_emptied(work):
            return _REMOVED, None
        if not last.whole and plan.number == 1:
            return "nobody can tell any more how far the table that the consumer keeps goes", None
        return "", None
    facts = last.facts
    if facts.get("table_id") != plan.table_id:
        return "the copy is one of a table that was made anew since", None
    if facts.get("stream") == stream.uuid:
        return "", None
    upto = int(facts["upto"])
    if plan.after > upto and not work.delivery.unchanged_since(upto):
        found = f"version {upto}, the stream begins after {plan.after}"
        return "the copy ends before the stream begins", found
    if stream.net:
        msg = "net changes are none since where the copy stands, which another stream has left"
        return msg, None
    return "", None
