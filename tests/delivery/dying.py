"""A store to which something happens in the middle of what a receiver writes.

In: a store, and which write. Out: the store as it is up to there; then, its user dies, or somebody else comes first.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from export_child import WRITES
from mirrorlib.store import Store
from mirrors import die


class Dying:
    """A store to which something happens before its user writes for the n-th time: death, if nothing else is said."""

    def __init__(self, real: Store, at: int, happens: Callable[[], None] = die) -> None:
        self._real, self._left, self._happens = real, at, happens

    def __getattr__(self, name: str) -> Any:
        real = getattr(self._real, name)
        return partial(self._call, real) if name in WRITES else real

    def _call(self, real: Callable[..., object], *arguments: object) -> object:
        self._left -= 1
        if not self._left:
            self._happens()
        return real(*arguments)
