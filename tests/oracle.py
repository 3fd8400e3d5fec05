"""Judge mirrorlib: replay change rows one by one, and change feeds version by version, in plain Python.

In: change files as Python values, in the order in which they count. Out: the rows a mirror must hold,
as a multiset. Shares nothing with the package, on purpose: no fold, no batches, no casts. What counts
as equal is said here once, in `canonical`.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any

INSERT, UPDATE, DELETE, UPSERT = 0, 1, 2, 4
FEED_COLUMNS = frozenset({"_change_type", "_commit_version", "_commit_timestamp"})
REMOVING = frozenset({"delete", "update_preimage"})
ADDING = frozenset({"insert", "update_postimage"})

Row = Mapping[str, object]
Canonical = frozenset[tuple[str, object]]
Rows = Counter[Canonical]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeFile:
    """A change file as its publisher means it.

    Attributes:
        columns: data columns in file order.
        rows: one mapping a row; an absent column is NULL.
        markers: one a row; None for a file without marker column.

    """

    columns: tuple[str, ...]
    rows: tuple[Row, ...]
    markers: tuple[int | None, ...] | None


@dataclass(slots=True)
class Replayed:
    """What a table holds after some files: columns in order of first appearance, and rows, equal ones repeated."""

    columns: list[str] = field(default_factory=list)
    rows: list[dict[str, object]] = field(default_factory=list)

    @property
    def multiset(self) -> Rows:
        """Return the rows, counted, in comparable form."""
        return multiset(self.rows)


def replay(
    files: Iterable[ChangeFile],
    *,
    keys: Sequence[str],
    insert_policy: str = "append",
    upsert_default: bool = False,
    conditional: str | None = None,
    partial: str | None = None,
) -> Replayed:
    """Apply every row of every file, in order, to an empty table.

    With *conditional*, an update or upsert counts only where its value there is greater than the row's.
    With *partial*, one keeps the row's values where it sets none: see `set_by`.
    """
    table = Replayed()
    lowered = [key.lower() for key in keys]
    default = UPSERT if upsert_default else INSERT
    for file in files:
        seen = {column.lower() for column in table.columns}
        table.columns += [column for column in file.columns if column.lower() not in seen]
        markers = file.markers if file.markers is not None else (default,) * len(file.rows)
        for row, marker in zip(file.rows, markers, strict=True):
            operation = default if marker is None else marker
            kept = None if operation == INSERT else partial
            if operation == INSERT and insert_policy == "upsert":
                operation = UPSERT
            lower = {name.lower(): value for name, value in row.items()}
            _apply_row(table, lower, operation, lowered, conditional, kept)
    return table


def _apply_row(
    table: Replayed,
    row: dict[str, object],
    operation: int,
    keys: Sequence[str],
    conditional: str | None,
    partial: str | None,
) -> None:
    if operation == INSERT:
        table.rows.append(row)
        return
    key = _key(row, keys)
    places = [place for place, old in enumerate(table.rows) if _key(old, keys) == key]
    if operation == DELETE:
        table.rows = [old for place, old in enumerate(table.rows) if place not in places]
    elif operation in {UPDATE, UPSERT}:
        names = None if partial is None else set_by(row, partial)
        if names is not None:
            row = {name: row.get(name) for name in names | {*keys}}
        for place in places:
            if conditional is None or is_greater(
                row.get(conditional.lower()), table.rows[place].get(conditional.lower())
            ):
                table.rows[place] = row if names is None else {**table.rows[place], **row}
        if not places:
            table.rows.append(row)
    else:
        msg = f"the oracle knows no marker {operation}"
        raise ValueError(msg)


def set_by(row: Row, partial: str) -> set[str] | None:
    """Say which columns an update sets: those it has, has values for, or lists with commas; None for all."""
    if partial in {"absent", "nulls"}:
        return {name for name, value in row.items() if partial == "absent" or value is not None}
    column = partial.removeprefix("listed:").lower()
    listed = row.get(column)
    return (
        None
        if listed is None
        else {column, *(name.strip().lower() for name in str(listed).split(","))}
    )


def is_greater(new: Any, old: Any) -> bool:
    """Compare two values of one column; NULL is less than every other."""
    return new is not None and (old is None or new > old)


def _key(row: Row, keys: Sequence[str]) -> tuple[object, ...]:
    return tuple(canonical(row.get(key)) for key in keys)


def canonical(value: object) -> object:
    """Return a value that is equal exactly when a mirror's values are.

    NULL equals NULL, NaN equals NaN, -0.0 equals 0.0, and numbers are equal across types (5, 5.0,
    Decimal("5.00")). A time without zone is UTC. A time of day is the text that Delta stores for it.
    True is no number.
    """
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return ("bool", value)
    if isinstance(value, int | float | Decimal):
        return "number NaN" if math.isnan(value) else value
    if isinstance(value, datetime):
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)
    if isinstance(value, date):
        return ("date", value)
    if isinstance(value, time):
        return value.strftime("%H:%M:%S.%f")
    if isinstance(value, bytes | bytearray):
        return ("bytes", bytes(value))
    msg = f"the oracle cannot compare a {type(value).__name__}"
    raise TypeError(msg)


def canonical_row(row: Row) -> Canonical:
    """Return a row in comparable form: names in lower case; NULLs left out, so that new columns change nothing."""
    return frozenset(
        (name.lower(), canonical(value)) for name, value in row.items() if value is not None
    )


def multiset(rows: Iterable[Row]) -> Rows:
    """Count rows in comparable form."""
    return Counter(canonical_row(row) for row in rows)


class FeedError(AssertionError):
    """A change feed that cannot be replayed: it removes what is not there, or half an update."""


def replay_feed(rows: Iterable[Row]) -> dict[int, Rows]:
    """Apply a change feed version by version; return the table's rows as they are after each version in it.

    Raises:
        FeedError: a version removes a row that the one before does not have, has an unknown change type, or not as many
            pre-images as post-images.

    """
    versions: dict[int, list[tuple[str, Canonical]]] = {}
    for row in rows:
        data = {name: value for name, value in row.items() if name not in FEED_COLUMNS}
        change = (str(row["_change_type"]), canonical_row(data))
        versions.setdefault(_version(row), []).append(change)
    states: dict[int, Rows] = {}
    state: Rows = Counter()
    for version in sorted(versions):
        state = _next_state(state, version, versions[version])
        states[version] = state
    return states


def _version(row: Row) -> int:
    version = row["_commit_version"]
    if not isinstance(version, int):
        msg = f"a feed row's version is {version!r}"
        raise FeedError(msg)
    return version


def _next_state(state: Rows, version: int, changes: Sequence[tuple[str, Canonical]]) -> Rows:
    unknown = {kind for kind, _ in changes} - REMOVING - ADDING
    kinds = Counter(kind for kind, _ in changes)
    if unknown or kinds["update_preimage"] != kinds["update_postimage"]:
        msg = f"version {version} has changes {dict(kinds)}"
        raise FeedError(msg)
    removed = Counter(row for kind, row in changes if kind in REMOVING)
    absent = removed - state
    if absent:
        msg = f"version {version} removes rows that are not there:\n{show(absent)}"
        raise FeedError(msg)
    return (state - removed) + Counter(row for kind, row in changes if kind in ADDING)


def state_at(states: Mapping[int, Rows], version: int) -> Rows:
    """Return the rows after *version*, which need not have changed any."""
    known = [number for number in states if number <= version]
    return states[max(known)] if known else Counter()


def assert_same_rows(expected: Rows, actual: Rows, what: str = "the table") -> None:
    """Fail naming the rows that are missing and those that are too many."""
    if expected == actual:
        return
    missing, extra = expected - actual, actual - expected
    msg = f"{what} differs.\nmissing:\n{show(missing)}\nunexpected:\n{show(extra)}"
    raise AssertionError(msg)


def show(rows: Rows, limit: int = 12) -> str:
    """Write rows one a line, with their count."""
    lines = sorted(f"  {count} x {dict(sorted(row))}" for row, count in rows.items())
    more = [f"  … and {len(lines) - limit} more"] if len(lines) > limit else []
    return "\n".join([*lines[:limit], *more]) or "  none"
