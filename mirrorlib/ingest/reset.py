"""Begin a new life of one table: it starts over, or keeps what a plain folder has appended."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirrorlib.delta.lock import lock_table
from mirrorlib.errors import JournalError, MirrorError
from mirrorlib.ingest.files.table_folder import open_folder
from mirrorlib.ingest.keep import begin_kept_life
from mirrorlib.ingest.lifecycle import check_first
from mirrorlib.journal.disk import STATE_FILE, Journal, check_owner
from mirrorlib.landing.listing import TableFolder
from mirrorlib.names import parse_name
from mirrorlib.store import open_store
from mirrorlib.store.target import Target

_REPLACED = "The table was reset; the next apply replaces its content."
_KEPT = "The table is kept; the next apply goes on by _metadata.json, behind what was appended."

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from mirrorlib.journal.entries import Life
    from mirrorlib.names import TableName
    from mirrorlib.store import PathOrUrl


def reset_table(
    spark: SparkSession,
    target: PathOrUrl,
    table: str,
    *,
    catalog: str | None = None,
    state: PathOrUrl | None = None,
    start_at: int = 1,
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
        start_at: the number of the first change file, where earlier ones are gone.
        keep: the table was appended from a folder without `_metadata.json`, which has come: keep its rows, and go
            on by the metadata behind the files that were appended. Until the next apply the call may be repeated.

    Returns:
        the new life.

    Raises:
        ValueError: *keep* and *start_at* together.
        JournalError: the target has no such table, or its first change file is gone from the zone; with *keep*,
            the table lacks a key column, or a file would be lost or counted twice.
        MirrorError: with *keep*, the zone or its metadata cannot be read, or the table is not this mirror's.

    """
    return reset_told(
        spark, target, table, catalog=catalog, state=state, start_at=start_at, keep=keep
    )[0]


def reset_told(
    spark: SparkSession,
    target: PathOrUrl,
    table: str,
    *,
    catalog: str | None,
    state: PathOrUrl | None,
    start_at: int,
    keep: bool,
) -> tuple[Life, tuple[str, ...]]:
    """Do what `reset_table` does, and say what is to be known of a table that is kept."""
    if keep and start_at != 1:
        msg = "keep and start_at exclude each other: a kept table goes on behind what was appended"
        raise ValueError(msg)
    places = Target.of(target, catalog=catalog, state=state)
    store = open_store(places.state)
    journal = Journal(store, parse_name(table))
    if not journal.lives():
        msg = "the target has no such table"
        raise JournalError(
            msg, table=table, next_step="See its tables with: mirrorlib status TARGET"
        )
    if (told := store.read(STATE_FILE)) is not None:
        check_owner(store, told, places.owner)
    with lock_table(spark, places, store, parse_name(table), lambda: False):
        if keep:
            life, warnings = begin_kept_life(spark, places, journal, parse_name(table))
            _write_status(journal, life, _KEPT)
            return life, warnings
        lives = journal.lives()
        zone = _zone_of(journal, lives[-1])
        check_first(_visible(zone, parse_name(table)), start_at, table)
        life = journal.begin_life("reset", zone, lives[-1].ordinal + 1, start_at)
        _write_status(journal, life, _REPLACED)
    return life, ()


def _write_status(journal: Journal, life: Life, reason: str) -> None:
    """Say what the next apply does."""
    word = {**journal.read_status(), "state": "behind", "reason": reason, "since": life.started_at}
    journal.write_status({**word, "position": None, "error": None, "file": None})


def _zone_of(journal: Journal, life: Life) -> str:
    """Return where a table's files come from, by its newest plan, or by its life where plans were lost."""
    try:
        newest = journal.newest(life)
    except JournalError:
        return life.zone
    return newest.plan.zone if newest else life.zone


def _visible(zone: str, name: TableName) -> list[tuple[int, int]]:
    """Return the smallest and the largest number that each partition folder shows; none while nobody can tell."""
    try:
        opened = open_folder(open_store(zone), TableFolder(name=name, path=name.folder))
    except MirrorError:
        return []  # the next apply says what is wrong with it
    if opened.listing.by_time or opened.metadata is None:
        return []
    return [(min(files), max(files)) for files in opened.listing.lanes.values()]
