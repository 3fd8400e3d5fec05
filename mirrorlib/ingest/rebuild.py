"""Compute a table anew from its landing files, beside the one that readers see, and change what differs by one commit.

In: a table of a target. Out: what `plan` or `apply` tells of it. A rebuild is a life of the table: its first batch has
the files that were applied before, so it can be killed at every step and is carried to its end like any batch. Its
commit is a MERGE of differences. Undoing it is one more of those, as long as Delta keeps the version before.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from mirrorlib.commit.claim import claim_table
from mirrorlib.commit.mark import Mark
from mirrorlib.commit.merge import commit_staged
from mirrorlib.delta.address import find_feed_table
from mirrorlib.delta.columns import spelled_keys
from mirrorlib.delta.lock import lock_table
from mirrorlib.delta.sessions import lend_session
from mirrorlib.delta.table import check_made, find_location, find_table, open_log, refer
from mirrorlib.errors import ForeignWriteError, JournalError
from mirrorlib.events import Event, Observer, emit, unobserved
from mirrorlib.feed.declared_keys import table_address
from mirrorlib.feed.read import read_rows
from mirrorlib.ingest.batch.snapshot import stage_difference
from mirrorlib.ingest.batch.spark_reader import Stage
from mirrorlib.ingest.files.table_folder import open_folder
from mirrorlib.ingest.job import open_job
from mirrorlib.ingest.options import Asked, Options
from mirrorlib.ingest.preview import plan_job
from mirrorlib.ingest.report import StateReport
from mirrorlib.ingest.reset import check_first, start_over
from mirrorlib.ingest.run import apply_zone
from mirrorlib.journal.disk import Journal
from mirrorlib.journal.entries import REBUILD, Entry, Life, Policies, new_attempt
from mirrorlib.landing.listing import TableFolder
from mirrorlib.names import TableName, parse_name, sequence_name
from mirrorlib.store import PathOrUrl, open_store
from mirrorlib.store.target import Target
from mirrorlib.version import VERSION

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_REASON = "The table is being computed anew; the next apply changes what differs."
_UNDONE = "undone"


def rebuild_table(
    spark: SparkSession,
    target: PathOrUrl,
    table: str,
    *,
    plan: bool = False,
    start_at: int | None = None,
    catalog: str | None = None,
    state: PathOrUrl | None = None,
    observe: Observer | None = None,
) -> StateReport:
    """Compute a table anew from the files that were applied to it, and change by one commit what differs.

    Readers see the table as it is until that commit, whose feed has only the differences. Files are read by the rules
    that the newest batch was applied by; what has come since waits for the next apply. Where the table has other
    columns than the files come to, its content is replaced whole. Killed at any step, the next apply goes on.

    Args:
        spark: as for `apply`.
        target: as for `apply`.
        table: its name, "dbo/orders" or "orders".
        plan: write nothing, and say what would be changed.
        start_at: begin with this file, which holds the table as a snapshot of its source; by default with the first one
            of what was applied.
        catalog: as for `apply`.
        state: as for `apply`.
        observe: told before and after each step.

    Returns:
        what `apply`, or with *plan* what `plan`, tells.

    Raises:
        JournalError: there is no such table, its files have no numbers, or some of them are gone.

    """
    places, name = Target.of(target, catalog=catalog, state=state), parse_name(table)
    journal = Journal(open_store(places.state), name)
    if plan:
        entry, first = _check(journal, name, start_at)
        options = replace(Options(**_asked(entry.plan.policies, name)), start_at=first)
        return plan_job(replace(open_job(spark, entry.plan.zone, places, options), rebuilds=True))
    start_over(spark, places, name, partial(_begin, name, start_at), _REASON, kind=REBUILD)
    entry = next(filter(None, map(journal.newest, reversed(journal.lives()))))
    observe, ended = observe or unobserved, list[Event]()
    return apply_zone(
        spark,
        entry.plan.zone,
        target,
        catalog=catalog,
        state=state,
        observe=partial(_observe, observe, ended),
        stop=lambda: bool(ended),
        **_asked(entry.plan.policies, name),
    )


def _observe(observe: Observer, ended: list[Event], event: Event) -> None:
    if (event.step, event.when) == ("done", "after"):
        ended.append(event)
    observe(event)


def _begin(name: TableName, start_at: int | None, journal: Journal) -> Life:
    """Begin the life, or return the one that has begun and applied nothing yet."""
    last = journal.lives()[-1]
    begun = last.why == REBUILD and journal.newest(last) is None
    if begun and start_at in {None, last.start_at}:
        return last
    entry, first = _check(journal, name, start_at)
    return journal.begin_life(REBUILD, entry.plan.zone, last.ordinal + 1, first)


def _check(journal: Journal, name: TableName, start_at: int | None) -> tuple[Entry, int]:
    """Return the newest batch, and the first number, where all that was applied is there to be read again.

    Raises `JournalError`: it is not, or its files cannot be told by numbers.
    """
    lives, table = journal.lives(), str(name)
    entry = journal.newest_of(lives)
    if entry is None or entry.done is None or not entry.position:
        msg = "there is nothing to rebuild: no batch has been applied, or one is under way"
        raise JournalError(msg, table=table, next_step="Run mirrorlib apply once, and call again.")
    policies = entry.plan.policies
    if policies.by_time or policies.plain is not None or lives[-1].keeps:
        msg = "only a table whose files all have numbers can be rebuilt"
        step = f"Start it over, which replaces its content: mirrorlib reset TARGET {table}"
        raise JournalError(msg, table=table, next_step=step)
    zone = open_store(entry.plan.zone)
    start = start_at or lives[-1].start_at
    check_first(zone.url, name, start)
    listing = open_folder(zone, TableFolder(name=name, path=name.folder)).listing
    for partition, last in entry.position.items():
        there = listing.partitions.get(partition, {})
        first = start if start > 1 else min(there, default=1)
        missing = next((one for one in range(first, last + 1) if one not in there), None)
        if missing is not None:
            msg = (
                "the table cannot be rebuilt: a file that was applied is gone from the landing zone"
            )
            file = f"{partition}/{sequence_name(missing, 'parquet')}".removeprefix("/")
            step = "Bring it back, or publish a snapshot of the source, and begin with that: --start-at N"
            raise JournalError(msg, table=table, file=file, next_step=step)
    return entry, start


def _asked(policies: Policies, name: TableName) -> Asked:
    """Ask for the rules that a batch was applied by."""
    return {
        "tables": [str(name)],
        "insert_policy": policies.insert_policy,
        "evolution": policies.evolution,
        "ntz": policies.ntz,
        "quiet": policies.quiet,
        "conditional_updates": policies.conditional is not None,
        "readers": policies.readers,
        "partial_updates": policies.partial or "never",
        "snapshots": policies.snapshots,
    }


def undo_rebuild(
    spark: SparkSession,
    target: PathOrUrl,
    table: str,
    *,
    catalog: str | None = None,
    state: PathOrUrl | None = None,
) -> None:
    """Give a table the rows back that it had before its rebuild, by one commit whose feed has only the differences.

    Possible until something else has been committed, and until that version's files are gone. Undone once, however
    often it is called. Arguments mean the same as for `rebuild`.

    Raises:
        JournalError: the table's newest batch is no rebuild, or one that has replaced its content whole.
        ForeignWriteError: something has been committed since.
        FeedExpiredError: the version before is no longer there.

    """
    places, name = Target.of(target, catalog=catalog, state=state), parse_name(table)
    store = open_store(places.state)
    journal = Journal(store, name)
    lives = journal.lives()
    entry = journal.newest_of(lives)
    done = entry.done if entry and lives[-1].why == REBUILD and entry.plan.batch == 1 else None
    if entry is None or done is None or done.kind != "difference":
        msg = (
            "there is no rebuild to undo: the newest batch is none, or has replaced the table whole"
        )
        step = "See what was applied: mirrorlib ledger TARGET"
        raise JournalError(msg, table=str(name), next_step=step)
    with lock_table(spark, places, store, name, lambda: False), lend_session(spark) as session:
        ref = refer(places, name)
        log = open_log(session, ref, find_location(session, ref))
        newest = log.newest(at_least=done.version) or done.version
        since = [one for one in log.commits(done.version, newest) if not one.harmless]
        mine = [one for one in since if (one.ours or {}).get("outcome") == _UNDONE]
        if mine:
            return
        if since:
            msg = "the table has been written to since its rebuild, so undoing that would lose it"
            what = f"version {since[0].version}: {since[0].operation}"
            raise ForeignWriteError(msg, table=str(name), found=what)
        source = find_feed_table(session, table_address(places, name), shown=name.shown)
        rows = read_rows(session, source, entry.plan.table_version or 0)
        found = check_made(find_table(session, ref), str(name))
        stage = Stage(
            spark=session, state=store, folder=f"staged/{name.segment}/undo-{new_attempt()}"
        )
        try:
            keys = spelled_keys(found.columns, entry.plan.policies.keys)
            staged, by = stage_difference(stage, ref, rows, keys)
            facts = {
                "life": lives[-1].uuid,
                "batch": None,
                "outcome": _UNDONE,
                "mirrorlib": VERSION,
            }
            claim = claim_table(session, ref, log, store, newest, f"mirrorlib:apply:{name}")
            mark = Mark(app_id=f"{lives[-1].app_id}:undo", version=1, facts=facts, claim=claim)
            commit_staged(session, ref, staged, found.columns, by, mark, table_bytes=found.bytes)
        finally:
            store.delete_folder(stage.folder)
    reason = "Its rebuild was undone."
    emit(
        "reset",
        "%(table)s: %(reason)s",
        table=name.shown,
        kind="undo",
        reason=reason,
        zone=lives[-1].zone,
    )
