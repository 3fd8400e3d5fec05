"""Start one table over: a new life, which the next apply fills."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirrorlib.delta.lock import lock_table
from mirrorlib.errors import JournalError, MirrorError
from mirrorlib.ingest.files.table_folder import open_folder
from mirrorlib.ingest.lifecycle import check_first
from mirrorlib.journal.disk import STATE_FILE, Journal, check_owner
from mirrorlib.landing.listing import TableFolder
from mirrorlib.names import parse_name
from mirrorlib.store import open_store
from mirrorlib.store.target import Target

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
) -> Life:
    """Begin a new life of a table: the next apply replaces its content, in one commit, by what the zone shows then.

    Nothing is deleted, and readers see the old content until that commit.

    Args:
        spark: not used for the reset itself; the table's lock needs to know its process, and a catalog's place.
        target: as for `apply`.
        table: its name, "dbo/orders" or "orders".
        catalog: as for `apply`.
        state: as for `apply`.
        start_at: the number of the first change file, where earlier ones are gone.

    Returns:
        the new life.

    Raises:
        JournalError: the target has no such table, or its first change file is gone from the zone.

    """
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
        lives = journal.lives()
        zone = _zone_of(journal, lives[-1])
        check_first(_visible(zone, parse_name(table)), start_at, table)
        life = journal.begin_life("reset", zone, lives[-1].ordinal + 1, start_at)
        word = {
            **journal.read_status(),
            "state": "behind",
            "reason": "The table was reset; the next apply replaces its content.",
        }
        journal.write_status(
            {**word, "since": life.started_at, "position": None, "error": None, "file": None}
        )
    return life


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
