"""Say what a name is to Spark: how it is quoted, in SQL and for columns, and which names it takes for one.

The one place that does, for whoever writes or compares names of columns and tables; and for texts in SQL.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Protocol, TypeVar


class _Named(Protocol):
    @property
    def name(self) -> str: ...


_N = TypeVar("_N", bound=_Named)


def quote(identifier: str) -> str:
    """Quote a name for Spark SQL; whatever it holds, it stays one identifier."""
    escaped = identifier.replace("`", "``")
    return f"`{escaped}`"


def fold_name(name: str) -> str:
    """Give a column's name without its case, as Java's `equalsIgnoreCase` sees it, by which Spark finds columns.

    Each character by itself, upper case first: Turkish letters are `i`, the long s is `s`, the micro sign
    is mu, and `ß` is not `ss`.
    """
    return name.lower() if name.isascii() else "".join(map(_fold_character, name))


def _fold_character(character: str) -> str:
    """Fold by the mappings of one character to one, which Python has only as far as they are its full ones."""
    capitals = (character.upper(), character.title())
    upper = next((one for one in capitals if len(one) == 1), character)
    return upper.lower()[:1]  # that of a dotted capital I is `i` and a dot above


def find_name(names: Iterable[str], name: str) -> str | None:
    """Find a name among others as Spark does, without regard to case."""
    folded = fold_name(name)
    return next((one for one in names if fold_name(one) == folded), None)


def find_named(items: Iterable[_N], name: str) -> _N | None:
    """Find what has a name, as Spark finds columns, without regard to case."""
    folded = fold_name(name)
    return next((item for item in items if fold_name(item.name) == folded), None)


def by_name(items: Iterable[_N]) -> dict[str, _N]:
    """Give what has names by these, folded: whoever asks for each of many would search all of them each time."""
    return {fold_name(item.name): item for item in items}


def with_twins(names: Iterable[str]) -> Iterator[tuple[str, str | None]]:
    """Give each name with the first that cannot stand beside it: by Spark's way to fold names, or Delta's; or None."""
    seen: dict[str, str] = {}
    for name in names:
        folds = (fold_name(name), name.lower())
        first = next((seen[folded] for folded in folds if folded in seen), None)
        yield name, first
        if first is None:
            seen |= dict.fromkeys(folds, name)


def sql_text(value: str) -> str:
    """Write a SQL string literal."""
    escaped = value.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
