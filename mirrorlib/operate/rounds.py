"""Run again and again, until told to stop: `mirrorlib apply --watch` and `mirrorlib export --watch`, from Python.

In: a run, as a call without arguments. Out: what each round came to, as soon as it is known. A round that
cannot begin, as where a zone is not mounted for a moment, is told, and the next round tries again.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Iterator
from typing import TypeVar

from mirrorlib.errors import MirrorError, ParameterError
from mirrorlib.events import emit_state

_PAUSE = 0.1  # seconds after which a pause looks whether it is to end

R = TypeVar("R")


def watch(
    run: Callable[[], R],
    seconds: float,
    *,
    tell: Callable[[R | MirrorError], None] | None = None,
    stop: Callable[[], bool] | None = None,
) -> R | MirrorError:
    """Run with a pause in between, again and again, until told to stop.

    Args:
        run: called for each round, such as `lambda: mirrorlib.export(spark, target, …, stop=stop)`, or the same
            of `mirrorlib.apply`.
        seconds: the pause between the end of a round and the next one.
        tell: given what each round came to: what *run* returned, or why it could not begin.
        stop: asked after each round and all through a pause; True ends the watch. Give it to *run* too, and
            a round ends after what is in flight. By default only an interrupt ends it.

    Returns:
        what the last round came to.

    Raises:
        MirrorError: the first round could not begin: it is wrong usage, or a place that is not there.
        ParameterError: the pause is no number of seconds.

    """
    if not 0 <= seconds < math.inf:
        msg = "a watch pauses for a number of seconds"
        raise ParameterError(msg, found=repr(seconds), next_step="Give 0 or more.")
    tell, stop = tell or (lambda _: None), stop or (lambda: False)
    outcome: R | MirrorError = run()
    tell(outcome)
    while not _ends_within(seconds, stop):
        before = "failed" if isinstance(outcome, MirrorError) else ""
        try:
            with told_of_trouble(before):
                outcome = run()
        except MirrorError as exc:
            outcome = exc
        tell(outcome)
    return outcome


@contextlib.contextmanager
def told_of_trouble(before: str = "") -> Iterator[None]:
    """Tell whoever listens that a run could not begin, or could again; *before* is the state of the run before it."""
    try:
        yield
    except MirrorError as exc:
        emit_state(before, state="failed", reason=str(exc), error=type(exc).__name__, table="")
        raise
    emit_state(before, state="current", reason="the run could begin", table="")


def _ends_within(seconds: float, stop: Callable[[], bool]) -> bool:
    """Wait, unless it is to end; say whether it is."""
    until = time.monotonic() + seconds
    while not stop():
        left = until - time.monotonic()
        if left <= 0:
            return False
        time.sleep(min(left, _PAUSE))
    return True
