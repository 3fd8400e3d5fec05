"""Compute a table anew from its landing files, beside the one that readers see, and change what differs by one commit.

In: a table of a target. Out: what `plan` or `apply` tells of it. A rebuild is a life of the table: its first batch has
the files that were applied before, so it can be killed at every step and is carried to its end like any batch. Its
commit is a MERGE of differences. Undoing it is one more of those, as long as Delta keeps the version before.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import partial

from pyspark.sql import SparkSession

from mirrorlib.commit.claim import claim_table
from mirrorlib.commit.mark import Mark
from mirrorlib.commit.merge import commit_staged
from mirrorlib.commit.stage import staging
from mirrorlib.delta.address import find_feed_table
from mirrorlib.delta.columns import spelled_keys
from mirrorlib.delta.key_property import ON
from mirrorlib.delta.lock import lock_table
from mirrorlib.delta.log import Commit, TableLog
from mirrorlib.delta.sessions import lend_session
from mirrorlib.delta.table import check_made, find_table, open_log, refer
from mirrorlib.errors import ForeignWriteError, JournalError
from mirrorlib.events import Observer, emit, unobserved
from mirrorlib.feed.read import read_rows
from mirrorlib.ingest.batch.snapshot import stage_difference
from mirrorlib.ingest.files.continued_life import find_rebuilt
from mirrorlib.ingest.files.table_folder import open_folder, policies_of
from mirrorlib.ingest.job import Job, open_job
from mirrorlib.ingest.options import Options
from mirrorlib.ingest.preview import plan_job
from mirrorlib.ingest.reset import lives_in, start_over
from mirrorlib.ingest.run import apply_job
from mirrorlib.journal.disk import Journal, check_owner
from mirrorlib.journal.entries import REBUILD, Done, Entry, Life, zone_of
from mirrorlib.names import WHOLE_FOLDER, TableName, parse_name
from mirrorlib.store import PathOrUrl, open_store
from mirrorlib.store.target import Target
from mirrorlib.tabular import StateReport
from mirrorlib.version import VERSION

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
    zone, options = _check(journal, name, start_at)
    job = replace(open_job(spark, zone, places, options, observe), only=name)
    quiet = replace(job, rebuilds=True, observe=unobserved)
    if plan:
        return plan_job(quiet, compares=True)
    begin = partial(_begin, quiet, options.start_at or 1)
    life = start_over(spark, places, name, begin, _REASON, kind=REBUILD)
    return apply_job(replace(job, stop=partial(_has_applied, journal, life)))


def _has_applied(journal: Journal, life: Life) -> bool:
    """Say whether a life has applied its first batch, by whatever run."""
    entry = journal.newest(life)
    return entry is not None and bool(entry.position)


def _begin(job: Job, first: int, journal: Journal) -> Life:
    """Begin the life, or return the one that has begun and applied nothing yet.

    Raises `JournalError` where it could not take what was applied: where there are locks, nobody cleans up what is
    looked at here.
    """
    (told,) = plan_job(job, compares=False).tables
    if not told.batches:
        msg = "the table cannot be computed anew, and is as it was"
        step = "Start it over, which replaces its content by what the zone shows: mirrorlib reset"
        if told.state == "behind":
            step = "Call again in a moment."
        raise JournalError(
            msg, table=str(job.only), file=told.file, found=told.reason, next_step=step
        )
    last = journal.lives()[-1]
    begun = last.why == REBUILD and journal.newest(last) is None and last.start_at == first
    return last if begun else journal.begin_life(REBUILD, job.zone.url, last.ordinal + 1, first)


def _check(journal: Journal, name: TableName, start_at: int | None) -> tuple[str, Options]:
    """Return the zone and the rules by which a table is to be computed anew, those of its newest batch.

    A file's columns were taken when it was applied, by whatever rule, so they are taken again.

    Raises `JournalError`: nothing has been applied, or its files cannot be told by numbers, or `_metadata.json` says
    other things by now.
    """
    lives, table = lives_in(journal, name), str(name)
    known = find_rebuilt(journal, lives)
    newest = journal.newest_of(lives)
    if known is not None and journal.is_gone(lives[-1]):
        msg = "the table's folder was gone from the landing zone, and with it what it would be computed from"
        step = "Bring the folder back and run mirrorlib apply, which begins anew by what is there."
        raise JournalError(msg, table=table, next_step=step)
    if known is None or (newest is not None and newest.done is None):
        msg = "there is nothing to rebuild: nothing has been applied, or a batch is under way"
        step = "Run mirrorlib apply once, with --allow-foreign-writes where it refuses others' writes, and call again."
        raise JournalError(msg, table=table, next_step=step)
    life, entry = known
    policies = entry.plan.policies
    if policies.by_time or policies.plain is not None or life.keeps:
        msg = "only a table whose files all have numbers can be rebuilt"
        step = f"Start it over, which replaces its content: mirrorlib reset TARGET {table}"
        raise JournalError(msg, table=table, next_step=step)
    if start_at is not None and set(entry.position) - {WHOLE_FOLDER}:
        msg = "a table with partition folders cannot begin with one number: each folder has its own"
        step = f"Rebuild it without --start-at, or start it over: mirrorlib reset TARGET {table}"
        raise JournalError(msg, table=table, found=str(start_at), next_step=step)
    options = Options(
        insert_policy=policies.insert_policy,
        ntz=policies.ntz,
        quiet=policies.quiet,
        conditional_updates=policies.conditional is not None,
        readers=policies.readers,
        partial_updates=policies.partial or "never",
        snapshots=policies.snapshots,
        start_at=start_at or life.start_at,
    )
    zone = zone_of(journal.read_status(), entry) or entry.plan.zone
    opened = open_folder(open_store(zone), name)
    asked = opened.metadata and policies_of(opened.metadata, opened.dialect, options)
    if asked is None or asked != replace(policies, evolution=options.evolution):
        msg = "_metadata.json says other things than when the newest batch was applied, or is gone"
        step = f"Put it back, or start the table over: mirrorlib reset TARGET {table}"
        raise JournalError(msg, table=table, file="_metadata.json", next_step=step)
    return zone, options


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
    often it is called. What somebody else had written is refused by `apply` again. Arguments mean the same as for
    `rebuild`.

    Raises:
        JournalError: the table's newest batch is no rebuild, or one that has replaced its content whole.
        ForeignWriteError: something has been committed since.
        FeedExpiredError: the version before is no longer there.

    """
    places, name = Target.of(target, catalog=catalog, state=state), parse_name(table)
    store = open_store(places.state)
    check_owner(store, places.owner)
    journal = Journal(store, name)
    life, entry, done, was = _find_undoable(journal, name)
    with lock_table(spark, places, store, name, lambda: False), lend_session(spark) as session:
        ref = refer(places, name)
        log = open_log(session, ref)
        newest = log.newest(at_least=done.version) or done.version
        if _is_undone(log.commits(done.version, newest), str(name)):
            return
        source = find_feed_table(session, ref.address, shown=name.shown)
        rows = read_rows(session, source, done.version - 1)
        found = check_made(find_table(session, ref), str(name))
        with staging(session, store, f"staged/tables/{name.segment}") as stage:
            keys = spelled_keys(found.columns, entry.plan.policies.keys)
            staged = stage_difference(stage, ref, rows, keys)
            now = log.newest(at_least=newest) or newest
            if _is_undone(log.commits(newest, now), str(name)):  # by another, since the first look
                return
            # Else foreign rows would count as ours from now on, and what is claimed of keys would not hold.
            ours = _was_ours(log, journal.lives(), was, done)
            facts = {"life": life.uuid if ours else None, "batch": None, "outcome": _UNDONE}
            said = {**facts, ON: was.version, "mirrorlib": VERSION}
            claim = claim_table(session, ref, log, store, newest, f"mirrorlib:apply:{name}")
            mark = Mark(app_id=f"{life.app_id}:undo", version=1, facts=said, claim=claim)
            commit_staged(session, ref, staged, mark, table_bytes=found.bytes)
    reason = "Its rebuild was undone."
    text = "%(table)s: %(reason)s"
    emit("reset", text, table=name.shown, kind="undo", reason=reason, zone=life.zone)


def _was_ours(log: TableLog, lives: Iterable[Life], was: Done, done: Done) -> bool:
    """Say whether a rebuild found the table as the batch before had left it, keys included; not where none can tell."""
    known = {one.uuid for one in lives}
    between = log.commits(was.version, done.version - 1)
    whole = len(between) == done.version - 1 - was.version
    ours = (one.harmless or (one.ours or {}).get("life") in known for one in between)
    return whole and all(ours) and was.keys == done.keys


def _find_undoable(journal: Journal, name: TableName) -> tuple[Life, Entry, Done, Done]:
    """Return the life of a rebuild that can be undone, its batch, and how the one before ended; else `JournalError`."""
    lives, table = lives_in(journal, name), str(name)
    entry, was = journal.newest_of(lives), find_rebuilt(journal, lives[:-1])
    done = entry.done if entry else None
    if entry is None or done is None or done.kind != "difference":
        msg = "there is no rebuild to undo: the newest batch is none, or replaced the table whole"
        step = "See what was applied: mirrorlib ledger TARGET"
        raise JournalError(msg, table=table, next_step=step)
    before = was[1].done if was and was[1].position == entry.position else None
    if before is None or entry.plan.table_version is None:
        msg = "the rebuild cannot be undone: it has taken files that were not applied before"
        step = f"Rebuild it again: mirrorlib rebuild TARGET {table} [--start-at N]"
        raise JournalError(msg, table=table, file=entry.plan.files[-1].name, next_step=step)
    return lives[-1], entry, done, before


def _is_undone(commits: Iterable[Commit], table: str) -> bool:
    """Say whether a rebuild was undone by a commit since; `ForeignWriteError` where another has changed the table."""
    since = [one for one in commits if not one.harmless]
    if any((one.ours or {}).get("outcome") == _UNDONE for one in since):
        return True
    if since:
        msg = "the table has been written to since its rebuild, so undoing that would lose it"
        what = f"version {since[0].version}: {since[0].operation}"
        step = f"Nothing was undone. See mirrorlib ledger TARGET; to take both back, mirrorlib rebuild TARGET {table}"
        raise ForeignWriteError(msg, table=table, found=what, next_step=step)
    return False
