"""Carry out one plan by one commit, whoever else is at it: read the state, write, prove.

In: a `Committer`: a batch of change files, a window of a feed, a round of a derived table. Out: what its commit tells.
Promise: the plan has one effect, or none. Its commit has a mark that Delta takes once, and skips later without a word;
so what became of it is read from the table's log before and after, never guessed (docs/architecture.md, "The commit
protocol"). A failure is not told where a commit that came since the state was read explains it: all is read anew.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from typing import Generic, TypeVar

from mirrorlib.errors import MirrorError

_LOG = logging.getLogger(__name__)
_TRIES = 5  # against writers that commit in between
Before = TypeVar("Before")  # the state of the table
Ended = TypeVar("Ended")  # what a plan's commit tells


class OvertakenError(Exception):
    """Another runner has come first."""


class Committer(ABC, Generic[Before, Ended]):
    """One plan on its way into one table."""

    @abstractmethod
    def read_state(self) -> tuple[Before, Ended | None]:
        """See the table as it is, and what has ended the plan already; refuse one that may not be written to."""

    @abstractmethod
    def write(self, before: Before) -> None:
        """Write the plan, or what voids it, by one commit that has its mark; others may make way for that."""

    @abstractmethod
    def is_overtaken(self, before: Before, failure: Exception) -> bool:
        """Say whether a commit that came after the state *before* explains a failure."""

    @abstractmethod
    def prove(self, before: Before) -> Ended | None:
        """Find what has ended the plan; None where Delta skipped it, and its state tells why."""


def commit_plan(committer: Committer[Before, Ended], what: str, table: str) -> Ended:
    """Carry out a plan, which people call *what*, "batch 3" of a *table*.

    Raises `MirrorError`: it cannot be carried out, by what the committer says; or others have committed each time.
    """
    failure: Exception | None = None
    for _ in range(_TRIES):
        before, ended = committer.read_state()
        if ended is not None:
            return ended
        try:
            committer.write(before)
        except Exception as exc:
            if not came_late(committer, before, exc):
                raise
            _LOG.info("%s: %s met another commit and is tried again", table, what)
            failure = exc
            continue
        ended = committer.prove(before)
        if ended is not None:
            return ended
    if isinstance(failure, MirrorError):
        raise failure
    msg, step = f"{what} met other commits {_TRIES} times", "Run again when the table is quieter."
    raise MirrorError(msg, table=table, next_step=step) from failure


def came_late(committer: Committer[Before, Ended], before: Before, failure: Exception) -> bool:
    """Say whether a plan's writer failed because another runner, or writer, came first."""
    return isinstance(failure, OvertakenError) or committer.is_overtaken(before, failure)
