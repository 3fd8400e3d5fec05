"""Look at what was committed: did a batch of ours go through, and did anybody else write?

In: a `Work` and the version to look from. Out: `Standing`, or the commit that a plan has made.
Promise: an outcome is read from the commit that names (life, batch), never guessed; after RESTORE,
REPLACE, TRUNCATE or foreign DML nothing goes on, because the transaction record survives them and
rows would be lost (design §4, steps 2 and 4).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeGuard

from mirrorlib.delta.columns import to_columns
from mirrorlib.delta.log import find_commit
from mirrorlib.delta.table import find_table
from mirrorlib.errors import ForeignWriteError, OutcomeUnknownError, TableBusyError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mirrorlib.delta.columns import Columns
    from mirrorlib.delta.log import Commit
    from mirrorlib.ingest.work import Work
    from mirrorlib.journal.entries import Done, Entry, Plan, Readers

_NAMED = 3  # how many foreign commits an error names


@dataclass(frozen=True, slots=True, kw_only=True)
class Verified:
    """Up to which version nobody else wrote rows after a batch, as a run has seen it.

    Delta forgets its history after a while; what was looked at once need not be there for ever.
    """

    life: str
    batch: int
    table_id: str
    version: int


def read_verified(word: Mapping[str, Any]) -> Verified | None:
    """Read what an earlier run has left in a table's last word; None where it says nothing."""
    said = word.get("verified")
    try:
        return Verified(**{**said, "version": int(said["version"])}) if said else None
    except (KeyError, TypeError, ValueError):
        return None  # then everything is looked at again


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """What the next batch stands on.

    Attributes:
        columns: the table's.
        table_id: Delta's.
        version: the newest.
        bytes: the table's size, a guess.
        verified: what the next runs need not look at again; None where that is nothing.
        readers: whom the table is for, as it remembers; None where nobody has said.
        vectors: it was looked at, and commits may leave deletion vectors in it.

    """

    columns: Columns
    table_id: str | None
    version: int | None
    bytes: int
    verified: Verified | None = None
    readers: Readers | None = None
    vectors: bool = False


def stand(work: Work, entry: Entry | None, verified: Verified | None = None) -> Standing:
    """See that the table is as our last commit left it, but for operations that change no row.

    What others wrote between a plan and its commit counts too: the guard cannot have seen it. What an
    earlier run has *verified* is not looked at again.

    Raises:
        ForeignWriteError: somebody else wrote, restored, replaced or removed the table.

    """
    last = entry.done if entry is not None and entry.position else None
    if entry is None or last is None:
        return _stand_at_nothing(work)
    verified = verified if _is_about(verified, entry.plan, last) else None
    known = verified.version if verified else last.version
    newest = work.log.newest(at_least=known)
    if newest is None or newest < known:
        raise _gone(
            work, "the Delta table is gone, or was replaced by another, since our last commit", last
        )
    looked = known if verified else _looked_until(entry.plan, last)
    commits = work.log.commits(looked, newest)
    if newest == last.version and _is_ours(work, commits[-1:], newest):
        _guard(work, commits, last.version, newest)
        return Standing(
            columns=to_columns(last.columns),
            table_id=last.table_id,
            version=newest,
            bytes=last.table_bytes,
            readers=entry.plan.policies.readers,
        )
    found = find_table(work.spark, work.ref)
    if found is None or (last.table_id is not None and found.id != last.table_id):
        raise _gone(work, "the Delta table was replaced by another since our last commit", last)
    _guard(work, commits, known, newest)
    if not work.options.allow_foreign_writes:
        plan = entry.plan
        verified = Verified(life=plan.life, batch=plan.batch, table_id=found.id, version=newest)
    return Standing(
        columns=found.columns,
        table_id=found.id,
        version=newest,
        bytes=found.bytes,
        verified=verified,
        readers=found.readers,
        vectors=found.vectors,
    )


def _stand_at_nothing(work: Work) -> Standing:
    """See whom a table is for that no batch was applied to."""
    version = work.log.newest()
    found = find_table(work.spark, work.ref) if version is not None else None
    empty = Standing(columns=(), table_id=None, version=version, bytes=0)
    if found is None or not work.owns(found.properties):
        return empty
    return replace(empty, readers=found.readers, vectors=found.vectors)


def _is_about(verified: Verified | None, plan: Plan, last: Done) -> TypeGuard[Verified]:
    """Say whether what was verified is the table as it is after this batch."""
    return (
        verified is not None
        and (verified.life, verified.batch) == (plan.life, plan.batch)
        and last.table_id in {None, verified.table_id}
        and verified.version >= last.version
    )


def _looked_until(plan: Plan, last: Done) -> int:
    """Return the version up to which nobody else wrote: the plan's, unless its batch replaced the table anyway."""
    if not plan.before or plan.table_version is None:
        return last.version - 1
    return min(plan.table_version, last.version - 1)


def find_outcome(work: Work, plan: Plan, *, anew: bool = False) -> tuple[int | None, Commit | None]:
    """Return the table's newest version and the commit that the plan made, if it has made one.

    Everything that was committed since the plan is looked at, so this is also the guard. *anew*
    looks at the whole history instead: a batch that fills a table from nothing may have filled one
    that was made since the plan, with versions of its own.
    """
    start = -1 if plan.table_version is None or anew else plan.table_version
    newest = work.log.newest(at_least=start)
    if not plan.before and (newest is None or newest < start):
        start = -1  # the batch fills a table from nothing, so it may be one that is made anew
        newest = work.log.newest()
    if newest is None and start == -1:
        return None, None
    if newest is None or newest < start:
        msg = "the Delta table is gone, or was replaced by another, since the batch was planned"
        raise _gone(work, msg, None)
    commits = work.log.commits(start, newest)
    mine = find_commit(commits, plan.life, plan.batch)
    if mine is None and len(commits) < newest - start:
        msg = (
            f"the outcome of batch {plan.batch} is unknown: "
            f"the table's history no longer reaches back to version {start}"
        )
        step = f"Start the table over: mirrorlib reset TARGET {work.table}"
        raise OutcomeUnknownError(msg, table=work.table, next_step=step)
    if mine is None and plan.before:
        _guard(work, commits, start, newest)
    return newest, mine


def _guard(work: Work, commits: tuple[Commit, ...], first: int, newest: int) -> None:
    """Refuse to go on after commits of others that may have changed rows."""
    if work.options.allow_foreign_writes:
        return
    lives = {life.uuid for life in work.lives}
    foreign = [
        c
        for c in commits
        if not c.harmless and not (c.ours is not None and c.ours.get("life") in lives)
    ]
    if foreign and work.journal.lives()[-1].uuid != work.life.uuid:
        raise life_is_over(work)
    if foreign:
        named = "; ".join(
            f"version {c.version}: {c.operation} by {c.user}" for c in foreign[:_NAMED]
        )
        msg = (
            "somebody else wrote to the table since our last commit"
            if not foreign[0].forgets
            else "somebody lets Delta forget transactions"
        )
        raise ForeignWriteError(msg, table=work.table, found=named, next_step=_next_step(work))
    present = {c.version for c in commits}
    if any(version not in present for version in range(first + 1, newest + 1)):
        msg = "the table's history no longer reaches back to our last commit, so nobody can tell who wrote since"
        raise ForeignWriteError(
            msg, table=work.table, found=f"version {first}", next_step=_next_step(work)
        )


def life_is_over(work: Work) -> TableBusyError:
    """Explain to a runner of an old life why it cannot go on."""
    return TableBusyError(
        "the table was reset meanwhile, which ended the life that this runner works for",
        table=work.table,
        next_step="Run again: the new life goes on from its own beginning.",
    )


def _is_ours(work: Work, commits: tuple[Commit, ...], version: int) -> bool:
    return (
        len(commits) == 1
        and commits[0].version == version
        and commits[0].ours is not None
        and commits[0].ours.get("life") == work.life.uuid
    )


def _gone(work: Work, msg: str, last: Done | None) -> ForeignWriteError:
    found = None if last is None else f"expected version {last.version} of table {last.table_id}"
    return ForeignWriteError(
        msg,
        table=work.table,
        found=found,
        next_step=f"Start the table over: mirrorlib reset TARGET {work.table}",
    )


def _next_step(work: Work) -> str:
    return f"Start the table over, mirrorlib reset TARGET {work.table}, or accept it with --allow-foreign-writes."
