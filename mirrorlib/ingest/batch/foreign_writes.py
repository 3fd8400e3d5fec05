"""Look at what was committed: did a batch of ours go through, and did anybody else write?

In: a `Work` and the version to look from. Out: `Standing`, or the commit that a plan has made.
Promise: an outcome is read from the commit that names (life, batch), never guessed; after RESTORE,
REPLACE, TRUNCATE or foreign DML nothing goes on, because the transaction record survives them and
rows would be lost (docs/guarantees.md, "Applying").
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mirrorlib.delta.columns import Columns, to_columns
from mirrorlib.delta.log import TRANSACTION_RETENTION, Commit, HistoryLog
from mirrorlib.delta.table import find_table
from mirrorlib.errors import ForeignWriteError, JournalError, OutcomeUnknownError, TableBusyError
from mirrorlib.ingest.files.source import start_over
from mirrorlib.ingest.work import Attempt, Work
from mirrorlib.journal.entries import Done, Entry, Plan, Readers

_NAMED = 3  # how many foreign commits an error names


@dataclass(frozen=True, slots=True, kw_only=True)
class Verified:
    """Up to which version nobody else wrote rows after a batch, as a run has seen it.

    Delta forgets its history after a while; what was looked at once need not be there for ever.
    """

    life: str
    batch: int
    version: int


def read_verified(word: Mapping[str, Any]) -> Verified | None:
    """Read what an earlier run has left in a table's last word; None where it says nothing."""
    said: Any = word.get("verified")
    try:
        parts = {name: said[name] for name in Verified.__slots__}
        return Verified(**{**parts, "version": int(parts["version"])})
    except (KeyError, TypeError, ValueError):
        return None  # then everything is looked at again


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """What the next batch stands on: the table as it is."""

    columns: Columns = ()
    table_id: str | None = None  # Delta's
    version: int | None  # the newest
    bytes: int = 0  # a guess
    verified: Verified | None = None  # what the next runs need not look at again
    readers: Readers | None = None  # whom the table is for, as it remembers
    vectors: bool = False  # it was looked at, and commits may leave deletion vectors in it


def stand(work: Work, entry: Entry | None, verified: Verified | None = None) -> Standing:
    """See that the table is as our last commit left it, but for operations that change no row.

    What others wrote between a plan and its commit counts too: the guard cannot have seen it. What an
    earlier run has *verified* is not looked at again.

    Raises `ForeignWriteError`: somebody else wrote, restored, replaced or removed the table.
    """
    last = entry.done if entry is not None and entry.position else None
    if entry is None or last is None:
        return _stand_at_first(work)
    plan = entry.plan
    if verified is not None and (verified.life, verified.batch) != (plan.life, plan.batch):
        verified = None
    known = verified.version if verified else last.version
    newest, commits = _read_since(work, plan, last, verified)
    if newest is None or newest < known or not _has_commit(work, last.version, commits):
        raise _gone(work, last)
    _refuse_old_journal(work, commits, plan.batch)
    newest_ours = commits[-1].ours if commits and commits[-1].version == newest else None
    if newest == last.version and newest_ours and newest_ours.get("life") == work.life.uuid:
        _guard(work, commits, last.version, newest)
        return Standing(
            columns=to_columns(last.columns),
            table_id=last.table_id,
            version=newest,
            bytes=last.table_bytes,
            readers=plan.policies.readers,
        )
    found = find_table(work.spark, work.ref)
    if found is None or (last.table_id is not None and found.id != last.table_id):
        raise _gone(work, last)
    _guard(work, commits, known, newest)
    if not work.options.allow_foreign_writes:
        _refuse_repeats(work, commits, plan.batch, last.version)
        verified = Verified(life=plan.life, batch=plan.batch, version=newest)
    return Standing(
        columns=found.columns,
        table_id=found.id,
        version=newest,
        bytes=found.bytes,
        verified=verified,
        readers=found.readers,
        vectors=found.vectors,
    )


def _read_since(
    work: Work, plan: Plan, last: Done, verified: Verified | None
) -> tuple[int | None, tuple[Commit, ...]]:
    """Return the newest version, and the commits since what was *verified*, or since the last batch was planned."""
    if verified is not None:
        newest = work.log.newest(at_least=verified.version)
        return newest, () if newest is None else work.log.commits(verified.version, newest)
    looked = last.version - 1
    compared = bool(plan.before) or last.kind == "difference"
    if compared and plan.table_version is not None:
        # What came between a plan and its commit; a batch that fills a table from nothing replaces that, too.
        looked = min(plan.table_version, looked)
    newest = work.log.newest(at_least=last.version)
    commits = () if newest is None else work.log.commits(looked, newest)
    # Under "WriteSerializable" rows may have come while a first batch was written, which it does not replace.
    read = commits[0].read if commits and not compared else None
    if newest is not None and read is not None and read < looked:
        commits = work.log.commits(read, newest)
    return newest, commits


def _has_commit(work: Work, version: int, commits: tuple[Commit, ...]) -> bool:
    """Say whether a version is ours still, as far as the log tells: others may have come up to it once it was lost."""
    # Nobody puts files back into a table whose folder is closed, and each look at its history takes a second.
    seen = isinstance(work.log, HistoryLog) or any(one.version == version for one in commits)
    found = commits if seen else work.log.commits(version - 1, version)
    lives = {life.uuid for life in work.lives}
    return all((one.ours or {}).get("life") in lives for one in found if one.version == version)


def refuse_set_back(work: Work, plan: Plan) -> None:
    """Refuse to carry out a plan on a table that lost the batch before it since, whatever others committed then."""
    before = plan.previous or {}
    if plan.before and not _has_commit(work, before["version"], ()):
        raise _gone(work, None)


def _refuse_old_journal(work: Work, commits: tuple[Commit, ...], batch: int) -> None:
    """Refuse to plan a batch again that the table has: a plan is written before its commit, and has been lost since.

    And to go on with a life that a later one has ended there, which has been lost since too.
    """
    mine = [said for one in commits if (said := one.ours or {}).get("life") == work.life.uuid]
    fenced = any(said.get("outcome") == "fence" for said in mine)
    if fenced and work.journal.lives()[-1].uuid == work.life.uuid:
        msg = "the journal was set back: it lacks the life that has ended its last one"
        anew = f"remove the Delta table and start it over: mirrorlib reset TARGET {work.table}"
        step = f"Bring the journal back as it was, or {anew}"
        raise JournalError(msg, table=work.table, next_step=step)
    newest = max((said.get("batch") or 0 for said in mine), default=0)
    # Another runner may have gone on meanwhile.
    entry = work.journal.newest(work.life) if newest > batch else None
    if newest > (entry.plan.batch if entry else batch):
        msg = "the journal was set back: it lacks a batch that the table has"
        found = f"batch {newest} in the table, batch {batch} in the journal"
        step = f"Bring the journal back as it was, or start the table over: mirrorlib reset TARGET {work.table}"
        raise JournalError(msg, table=work.table, found=found, next_step=step)


def _stand_at_first(work: Work) -> Standing:
    """Look at the table while nothing was applied: only whom it is for counts, and only where it is ours."""
    version = work.log.newest()
    found = find_table(work.spark, work.ref) if version is not None else None
    if found is None or not work.owns(found.properties):
        return Standing(version=version)
    return Standing(
        version=version, bytes=found.bytes, readers=found.readers, vectors=found.vectors
    )


def find_outcome(attempt: Attempt, *, anew: bool = False) -> tuple[int | None, Commit | None]:
    """Return the table's newest version and the commit that the plan made, if it has made one.

    Everything that was committed since the plan is looked at, so this is also the guard. *anew*
    looks at the whole history instead: a batch that fills a table from nothing may have filled one
    that was made since the plan, with versions of its own.
    """
    work, plan = attempt.work, attempt.plan
    start = -1 if plan.table_version is None or anew else plan.table_version
    newest = work.log.newest(at_least=start)
    if not plan.before and (newest is None or newest < start):
        start = -1  # the batch fills a table from nothing, so it may be one that is made anew
    if newest is None and start == -1:
        return None, None
    if newest is None or newest < start:
        raise _gone(work, None)
    commits = work.log.commits(start, newest)
    named = {"life": plan.life, "batch": plan.batch, "attempt": plan.attempt}
    mine = next((one for one in commits if named.items() <= (one.ours or {}).items()), None)
    if mine is None and len(commits) < newest - start:
        msg = f"the outcome of batch {plan.batch} is unknown: history no longer reaches back to version {start}"
        raise OutcomeUnknownError(msg, table=work.table, next_step=start_over(work.table))
    if mine is None and plan.before:
        _guard(work, commits, start, newest)
    return newest, mine


def _refuse_repeats(work: Work, commits: tuple[Commit, ...], batch: int, version: int) -> None:
    """Refuse to go on where a batch, whose commit is that of a *version*, or one before it came again later.

    A runner whose compute cannot mark a MERGE may do so beside one whose compute can, and which lays down no claim.
    """
    for commit in commits:
        said = commit.ours or {}
        known = 0 < (said.get("batch") or 0) <= batch and said["life"] == work.life.uuid
        if commit.version > version and known:
            msg = "a batch was committed twice, by runners on compute of two kinds at once"
            found = f"batch {said['batch']} in version {commit.version}, again"
            step = start_over(work.table)
            raise ForeignWriteError(msg, table=work.table, found=found, next_step=step)


def _guard(work: Work, commits: tuple[Commit, ...], first: int, newest: int) -> None:
    """Refuse to go on after commits of others that may have changed rows."""
    if work.options.allow_foreign_writes:
        return
    lives, present = {life.uuid for life in work.lives}, {c.version for c in commits}
    foreign = [c for c in commits if not c.harmless and (c.ours or {}).get("life") not in lives]
    if foreign and work.journal.lives()[-1].uuid != work.life.uuid:
        raise life_is_over(work)
    begin = "Run"
    if foreign:
        found = "; ".join(commit.told for commit in foreign[:_NAMED])
        msg = "somebody else wrote to the table since our last commit"
        if foreign[0].forgets:
            msg = "somebody lets Delta forget transactions"
            begin = f"Unset {TRANSACTION_RETENTION}, and run"
    elif present.issuperset(range(first + 1, newest + 1)):
        return
    else:
        found = f"version {first}"
        msg = "the table's history no longer reaches back to our last commit, so nobody can tell who wrote since"
    step = f"{begin} mirrorlib rebuild TARGET {work.table}, or reset; or accept it with --allow-foreign-writes."
    raise ForeignWriteError(msg, table=work.table, found=found, next_step=step)


def life_is_over(work: Work) -> TableBusyError:
    """Explain to a runner of an old life why it cannot go on."""
    return TableBusyError(
        "the table was reset meanwhile, which ended the life that this runner works for",
        table=work.table,
        next_step="Run again: the new life goes on from its own beginning.",
    )


def _gone(work: Work, last: Done | None) -> ForeignWriteError:
    since = "the batch was planned" if last is None else "our last commit"
    msg = f"the Delta table is gone, was set back, or replaced by another, since {since}"
    found = None if last is None else f"expected version {last.version} of table {last.table_id}"
    step = start_over(work.table)
    return ForeignWriteError(msg, table=work.table, found=found, next_step=step)
