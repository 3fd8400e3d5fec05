"""What came of a comparison: of each table, its state and the first of what differs."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from mirrorlib.delta.trouble import as_mirror_error
from mirrorlib.errors import LandingZoneError, printable
from mirrorlib.events import emit, pick
from mirrorlib.feed.changes import Change
from mirrorlib.tabular import StateReport

if TYPE_CHECKING:
    from mirrorlib.operate.verify.compare import Sides  # which takes Spark

COLUMNS = ("table", "state", "version", "files", "expected", "found", "seconds")


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """A key whose rows differ, or, with an empty *key*, a row of a table without keys.

    *values* are what is expected and found, by column, where that is to be shown: of a row on both sides what differs.
    """

    key: Mapping[str, Any]
    what: str
    values: Mapping[str, tuple[Any, Any]]

    @classmethod
    def of(cls, change: Change, keys: Sequence[str], *, show_values: bool) -> Difference:
        """Tell a change of what is expected to what is found."""
        expected, found = change.before or {}, change.after or {}
        row, what = expected or found, "is missing" if expected else "is not expected"
        pairs = {name: (expected.get(name), found.get(name)) for name in row}
        if expected and found:
            pairs = {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}
            what = f"differs in {', '.join(pairs)}"
        key = {name: row[name] for name in keys}
        return cls(key=key, what=what, values=pairs if show_values else {})

    def __str__(self) -> str:
        """Say it in one line, NULL as None."""
        key = ", ".join(f"{name} = {value}" for name, value in self.key.items())
        pairs = [f"{name} {one} -> {other}" for name, (one, other) in self.values.items()]
        said = f"{key or 'a row'} {self.what}"
        return printable(f"{said}: {', '.join(pairs)}" if pairs else said)


@dataclass(frozen=True, slots=True, kw_only=True)
class Verified:
    """What came of one table.

    Attributes:
        table: "dbo/orders".
        state: equal; different; marked, and taken for right from now on; or not verified.
        version: the Delta version that was looked at.
        since: the version that was taken for right, and verified from there; None where all of the past was.
        files: how many landing files were read.
        expected: how many rows there have to be, of those that were looked at; *found* how many there are.
        differences: the first of them; there may be *more*.
        reasons: why it was not verified, what of it was not, and what else is to be known.

    """

    table: str
    state: Literal["equal", "different", "marked", "not verified"]
    version: int | None = None
    since: int | None = None
    files: int = 0
    expected: int = 0
    found: int = 0
    differences: tuple[Difference, ...] = ()
    more: bool = False
    reasons: tuple[str, ...] = ()
    seconds: float = 0.0

    def compared(self, sides: Sides, left: Sequence[str], *, show_values: bool) -> Verified:
        """Compare two sides, and add what comes of it; nothing is said of the columns that are *left* out."""
        expected, found, changes, more = sides.compare()
        told = (Difference.of(one, sides.keys, show_values=show_values) for one in changes)
        reasons = [f"a sample: {sides.sample:g} of the keys"] if sides.sample < 1 else []
        reasons += [f"not verified: the column {name}" for name in left]
        return replace(
            self,
            state="different" if changes or more else "equal",
            expected=expected,
            found=found,
            differences=tuple(told),
            more=more,
            reasons=(*self.reasons, *reasons),
        )


def check_sample(sample: float) -> None:
    """Refuse what is no share of the keys."""
    if not 0 < sample <= 1:
        msg = "a sample is a share of the keys"
        raise LandingZoneError(msg, found=repr(sample), next_step="Give a number up to 1.")


def verify_safely(shown: str, verify: Callable[[Verified], Verified], **facts: str) -> Verified:
    """Verify one table, and tell the log what came of it; what cannot be verified is not its neighbours' trouble."""
    began, told = time.perf_counter(), Verified(table=shown, state="not verified")
    try:
        told = verify(told)
    except Exception as exc:  # noqa: BLE001  # one table's trouble is not its neighbours'
        told = replace(told, reasons=(f"not verified: {as_mirror_error(exc, shown)}",))
    told = replace(told, seconds=round(time.perf_counter() - began, 1))
    said = {**pick(told, *COLUMNS, "reasons"), "well": told.state not in VerifyReport.ill, **facts}
    emit("verify", "%(table)s: %(state)s, version %(version)s", **said)
    return told


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class VerifyReport(StateReport):
    """What came of every table."""

    columns: ClassVar = COLUMNS
    facts: ClassVar = "table state version:count files:count expected:count found:count seconds:.1f"
    ill: ClassVar = frozenset({"different", "not verified"})
    target: str
    tables: tuple[Verified, ...]

    def notes(self) -> list[str]:
        """Say of each table what differs, and what is to be known."""
        lines = list[str]()
        for table in self.tables:
            said = [*table.differences, *(["there may be more"] if table.more else ())]
            lines += [f"{table.table}: {one}" for one in (*said, *table.reasons)]
        return lines
