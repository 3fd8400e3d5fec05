"""Begin a new life of one table: it starts over, or keeps what a plain folder has appended."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from mirrorlib.delta.lock import lock_table
from mirrorlib.delta.table import find_table, refer
from mirrorlib.errors import JournalError, MirrorError
from mirrorlib.events import emit
from mirrorlib.ingest.batch.evolve_table import refuse_others_table
from mirrorlib.ingest.files.continued_life import numbers_of, position_behind
from mirrorlib.ingest.files.history import History
from mirrorlib.ingest.files.source import refuse_changed_source
from mirrorlib.ingest.files.table_folder import OpenedFolder, open_folder
from mirrorlib.ingest.lifecycle import check_key_columns
from mirrorlib.journal.disk import Journal, check_owner
from mirrorlib.journal.entries import Entry, Life, zone_of
from mirrorlib.landing.listing import see_below, see_folder
from mirrorlib.landing.metadata.declared import TableMetadata
from mirrorlib.landing.plain import order_plain
from mirrorlib.names import TableName, parse_name, sequence_number
from mirrorlib.store import PathOrUrl, Store, open_store
from mirrorlib.store.target import Target

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_REPLACED = "The table was reset; the next apply replaces its content."
_KEPT = "The table is kept; the next apply goes on by _metadata.json, behind what was appended."
_APPEND = (
    "Take _metadata.json away, append what is there with --plain-folders append, put it back, and call again. "
    "Without --keep the table starts over by _metadata.json."
)


def reset_table(
    spark: SparkSession,
    target: PathOrUrl,
    table: str,
    *,
    catalog: str | None = None,
    state: PathOrUrl | None = None,
    start_at: int | None = None,
    keep: bool = False,
) -> Life:
    """Begin a new life of a table: the next apply replaces its content, in one commit, by what the zone shows then.

    Nothing is deleted, and readers see the old content until that commit.

    Args:
        spark: reads a table that is kept; the table's lock needs to know its process, and a catalog's place.
        target: as for `apply`.
        table: its name, "dbo/orders" or "orders".
        catalog: as for `apply`.
        state: as for `apply`.
        start_at: the number of the first change file, where earlier ones are gone or do not count; 1 by default, and to
            be given where the table has begun with another.
        keep: the table was appended from a folder without `_metadata.json`, which has come: keep its rows, and go
            on by the metadata behind the files that were appended. Until the next apply the call may be repeated.

    Returns:
        the new life.

    Raises:
        ValueError: *keep* and *start_at* together.
        JournalError: the target has no such table, its first change file is gone from the zone, or *start_at* is to
            be given; with *keep*, the table lacks a key column, or a file would be lost or counted twice.
        MirrorError: with *keep*, the zone or its metadata cannot be read, or the table is not this mirror's.

    """
    if keep and start_at is not None:
        msg = "keep and start_at exclude each other: a kept table goes on behind what was appended"
        raise ValueError(msg)
    places, name = Target.of(target, catalog=catalog, state=state), parse_name(table)
    if keep:
        begin = partial(_begin_kept_life, spark, places, name)
        return start_over(spark, places, name, begin, _KEPT, kind="keep")
    return start_over(spark, places, name, partial(_begin_anew, name, start_at), _REPLACED)


def start_over(
    spark: SparkSession,
    places: Target,
    name: TableName,
    begin: Callable[[Journal], Life],
    reason: str,
    *,
    kind: str = "reset",
) -> Life:
    """Begin a life of a table that is there, while nobody else works at it, and say so.

    Raises `JournalError`: the target has no such table; and what *begin* does.
    """
    store = open_store(places.state)
    journal = Journal(store, name)
    lives_in(journal, name)
    check_owner(store, places.owner)
    with lock_table(spark, places, store, name, lambda: False):
        life = begin(journal)
        word = {
            **(old := journal.read_status()),
            "before": old.get("before") or old.get("state"),
            "state": "behind",
            "reason": reason,
            "since": life.started_at,
        }
        journal.write_status({**word, "position": None, "error": None, "file": None})
    text = "%(table)s: %(reason)s"
    emit("reset", text, table=name.shown, kind=kind, reason=reason, zone=life.zone)
    return life


def lives_in(journal: Journal, name: TableName) -> tuple[Life, ...]:
    """Return a table's lives; `JournalError` where the target has no such table."""
    if lives := journal.lives():
        return lives
    msg = "the target has no such table"
    step = "See its tables with: mirrorlib status TARGET"
    raise JournalError(msg, table=str(name), next_step=step)


def _begin_anew(name: TableName, start_at: int | None, journal: Journal) -> Life:
    last = journal.lives()[-1]
    # File N may be a full load, which holds all before it; or the source has started over.
    if start_at is None and last.start_at > 1:
        msg = "the table has not begun with number 1, so a reset has to say where it begins"
        again = f"mirrorlib reset TARGET {name} --start-at"
        step = f"As before: {again} {last.start_at}. With all files: {again} 1"
        raise JournalError(msg, table=str(name), found=f"number {last.start_at}", next_step=step)
    start_at = start_at or 1
    zone = last.zone
    with suppress(JournalError):  # plans were lost
        newest = journal.newest(last)
        if newest is not None:
            zone = zone_of(journal.read_status(), newest) or zone
    _check_first(zone, name, start_at)
    return journal.begin_life("reset", zone, last.ordinal + 1, start_at)


def _check_first(zone: str, name: TableName, start_at: int) -> None:
    """See that a new life can begin with a number, so that no file would wait for ever for one that is gone."""
    table = str(name)
    try:
        opened = open_folder(open_store(zone), name)
    except MirrorError:
        return  # the next apply says what is wrong with it
    partitions = opened.listing.partitions.values()
    ends = [(min(files), max(files)) for files in partitions if files]
    if not ends or opened.listing.by_time or opened.metadata is None:
        return
    lows, highs = zip(*ends, strict=True)
    if start_at == 1 < max(lows):  # of the folder that has lost most
        first = max(lows)
        msg = "the table cannot start over: its first change files are gone from the landing zone"
        step = f"Put them back, as from _ProcessedFiles, or, where number {first} is a full load, begin with that: "
        step += f"mirrorlib reset TARGET {table} --start-at {first}"
        others = [one for one in opened.listing.foreign if (sequence_number(one) or first) < first]
        if others:  # which what is there would leave out
            msg = f"the table cannot start over: files of another format lie before it, as {others[0]}"
            step = f"Publish all rows as file N, and begin with that: mirrorlib reset TARGET {table} --start-at N"
        raise JournalError(msg, table=table, found=f"number {first} as the first", next_step=step)
    if not min(lows) <= start_at <= max(highs) + 1:
        msg = "the table cannot start at a number that is not there"
        step = f"Choose one from {min(lows)} to {max(highs)}."
        raise JournalError(msg, table=table, found=f"number {start_at}", next_step=step)


def _begin_kept_life(
    spark: SparkSession, places: Target, name: TableName, journal: Journal
) -> Life:
    """Begin the life, or return the one that has begun and applied nothing yet."""
    lives, table = journal.lives(), str(name)
    last, newest = lives[-1], journal.newest(lives[-1])
    if journal.is_gone(last):
        msg = "the table cannot be kept: its folder was gone meanwhile, so its files may be other ones"
        step = f"Start it over: mirrorlib reset TARGET {table}"
        raise JournalError(msg, table=table, next_step=step)
    again = last.keeps and newest is None
    url = last.zone if again else _zone_of_appended(journal, newest, table)
    zone = open_store(url)
    opened = open_folder(zone, name)
    if opened.metadata is None:
        msg = "there is nothing to go on by: the table's folder has no _metadata.json"
        step = "Call again when its publisher has written it."
        raise JournalError(msg, table=table, next_step=step)
    found = find_table(spark, refer(places, name))
    if found is None:
        msg = "there is nothing to keep: the Delta table is gone"
        step = f"Start it over: mirrorlib reset TARGET {table}"
        raise JournalError(msg, table=table, next_step=step)
    refuse_others_table(table, lives, found)
    check_key_columns(table, found.columns, opened.metadata.stated_keys)
    if again:
        return last
    _check_files(zone, name, opened, opened.metadata, History(journal, url))
    return journal.begin_life("reset", url, last.ordinal + 1, keeps=True)


def _zone_of_appended(journal: Journal, entry: Entry | None, table: str) -> str:
    if entry is None or not entry.position or entry.plan.policies.plain is None:
        msg = "there is nothing to keep: the table was not appended from a folder without _metadata.json"
        step = f"Without --keep it starts over: mirrorlib reset TARGET {table}"
        raise JournalError(msg, table=table, next_step=step)
    if entry.done is None:
        msg = f"the table cannot be kept yet: batch {entry.plan.batch} of a run that was stopped has no outcome"
        step = "Run mirrorlib apply once, which ends that batch before it asks for this, and call again."
        raise JournalError(msg, table=table, next_step=step)
    refuse_changed_source(table, entry)
    return zone_of(journal.read_status(), entry) or entry.plan.zone


def _check_files(
    zone: Store,
    name: TableName,
    opened: OpenedFolder,
    metadata: TableMetadata,
    history: History,
) -> None:
    """See that every file is either behind the new life's beginning or was appended; none is both, or neither.

    And that no number is missing among those that were appended: its file would be passed over when it comes.
    """
    table = str(name)
    applied, left = history.applied(), history.passed()
    known = {*applied.etags, *left}
    partitions = numbers_of(known, metadata) if metadata.detection == "sequential" else {}
    for partition, numbers in partitions.items():
        missing = next((n for n in range(min(numbers), max(numbers)) if n not in numbers), None)
        if missing is not None:
            msg = "the table cannot be kept: a number is missing among the files that were appended"
            found = f"{partition}/{missing}" if partition else f"number {missing}"
            raise JournalError(msg, table=table, found=found, next_step=_APPEND)
    position = position_behind(known, applied.count, metadata)
    ahead = {
        file.name
        for partition, files in opened.listing.partitions.items()
        for number, file in files.items()
        if (
            file.name not in known
            if opened.listing.by_time
            else number > position.get(partition, 0)
        )
    }
    below = see_below(zone, name, see_folder(zone, name), plain=True)
    listing, _ = order_plain(below, applied, left, overwrites=False)
    for file in (file for files in listing.partitions.values() for file in files.values()):
        if (file.name in known) == (file.name in ahead):
            msg = "the table cannot be kept: a file was not appended, and would not be read by _metadata.json either"
            if file.name in known:
                msg = "the table cannot be kept: a file that was appended would be read again"
            raise JournalError(msg, table=table, file=file.name, next_step=_APPEND)
