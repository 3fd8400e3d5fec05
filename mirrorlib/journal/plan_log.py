"""What is planned and what became of it, by number, on disk: written once, the newest found by one short listing.

In: the store of a state folder. Out: frozen values read from, and written as, small JSON files that a
person can read: `<inverse>-<number>.plan.json`, `….done.json`, where `<inverse>` makes the newest sort first.
Promises: both, and the lives or streams of which they are, are written by put-if-absent, so whoever comes second reads
what the first has written, and a crash repeats the same plan.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import asdict, fields
from typing import Any, ClassVar, Generic, TypeAlias, TypeVar

from mirrorlib.errors import JournalError
from mirrorlib.store import Store, contents
from mirrorlib.store.records import read_record, record_bytes

LAST = 10**12 - 1  # numbers count down from it, as names sort up
_NUMBERED = re.compile(r"[0-9]{12}-[0-9]+\.(plan\.json|done\.json|json|parquet)")
_ORDINAL = re.compile(r"([0-9]{6}|[1-9][0-9]{6,})\.json")
_STRAYS = 50  # names that somebody else may have put in front; a store gives as many at once


class Value:
    """A frozen dataclass that is kept as a file. One that an older version wrote takes defaults for what came later."""

    __slots__ = ()
    __dataclass_fields__: ClassVar[dict[str, Any]]

    @staticmethod
    def revive(known: dict[str, Any]) -> dict[str, Any]:
        """Return the constructor's arguments of what JSON tells of them."""
        return known


V = TypeVar("V", bound=Value)
T = TypeVar("T")
S = TypeVar("S")
P = TypeVar("P", bound=Value)
D = TypeVar("D", bound=Value)
E = TypeVar("E")
# The classes of plans, outcomes and entries, and what tells a plan's number, and the name of its life or stream.
_Kinds: TypeAlias = tuple[
    type[P], type[D], Callable[..., E], Callable[[P], int], Callable[[S], str]
]


class PlanLog(Generic[S, P, D, E]):
    """A table's plans and their outcomes, and the last word about it; an entry is made of a plan and its outcome.

    Plans are numbered within the life, or stream, *of* which they are.
    """

    mend: ClassVar = (
        "Restore the file from a backup or, unless it lies in `lives`, reset the table."
    )

    def __init__(self, state: Store, table: str, folder: str, kinds: _Kinds[P, D, E, S]) -> None:
        self.state = state
        self.table = table
        self.folder = folder
        self._plans, self._outcomes, self._entry, self._number, self._name = kinds

    def folder_of(self, of: S) -> str:
        """Name the folder of a life's, or stream's, plans."""
        return f"{self.folder}/{self._name(of)}"

    def newest(self, of: S) -> E | None:
        """Return the newest plan and its outcome; None before the first."""
        names = newest_names(self.state, self.folder_of(of))
        # Of whichever it is: an outcome whose plan was lost must not pass unnoticed.
        return self._read(of, names[0].partition(".")[0]) if names else None

    def entry(self, of: S, number: int) -> E:
        """Return one plan and its outcome."""
        return self._read(of, numbered(number))

    def last_done(self, of: S, plan: P, done: D | None) -> D | None:
        """Return a plan's outcome or, while it has none, that of the plan before; None before the first."""
        before = self._path(of, self._number(plan) - 1, "done")
        return self._find(self._outcomes, before) if done is None else done

    def _read(self, of: S, stem: str) -> E:
        place = f"{self.folder_of(of)}/{stem}"
        plan = self._value(self._plans, f"{place}.plan.json")
        return self._entry(plan=plan, done=self._find(self._outcomes, f"{place}.done.json"))

    def record(
        self, path: str, revive: Callable[[dict[str, Any]], T], step: str | None = None
    ) -> T | None:
        """Read a file; None where there is none, `JournalError` where it is damaged or of another format."""
        error, step = JournalError, step or self.mend
        return read_record(self.state, path, revive, "the journal", error, self.table, step)

    def _find(self, kind: type[V], path: str) -> V | None:
        """Read a value as `record` does, where its file may be missing."""
        names = {field.name for field in fields(kind)}

        def revive(said: dict[str, Any]) -> V:
            return kind(**kind.revive({name: said[name] for name in said.keys() & names}))

        return self.record(path, revive)

    def _value(self, kind: type[V], path: str) -> V:
        """Read a value as `record` does; `JournalError` where its file is missing, too."""
        if (found := self._find(kind, path)) is not None:
            return found
        msg, file = "the journal lacks a file", f"{self.state.url}/{path}"
        raise JournalError(msg, table=self.table, file=file, next_step=self.mend)

    def _write_new(self, path: str, value: V) -> V:
        """Write a value unless its file is there; return the one that counts, never ours by belief."""
        self.state.put_new(path, record_bytes(asdict(value)))
        return self._value(type(value), path)

    def write_plan(self, of: S, plan: P) -> P:
        """Write a plan unless its number has one; return the plan that counts."""
        return self._write_new(self._path(of, self._number(plan), "plan"), plan)

    def write_done(self, of: S, number: int, done: D) -> D:
        """Write an outcome unless the plan has one; return the one that counts."""
        return self._write_new(self._path(of, number, "done"), done)

    def read_status(self) -> dict[str, Any]:
        """Return the last word about the table; empty when there is none that can be read: no batch rests on it."""
        return read_word(self.state, f"{self.folder}/status.json")

    def write_status(self, status: Mapping[str, Any]) -> None:
        """Replace the last word about the table."""
        write_word(self.state, f"{self.folder}/status.json", status)

    def _path(self, of: S, number: int, kind: str) -> str:
        return f"{self.folder_of(of)}/{numbered(number)}.{kind}.json"


def numbered(number: int) -> str:
    """Return what the file of a number is called, without what kind it is of."""
    return f"{LAST - number:012d}-{number}"


def newest_names(state: Store, folder: str) -> list[str]:
    """Name the files of a folder that are called by a number, the newest first; others are nobody's."""
    return [name for name in state.first_names(folder, _STRAYS) if _NUMBERED.fullmatch(name)]


def numbered_files(state: Store, folder: str) -> dict[int, str]:
    """Find the files of a folder that are called by a number, `000001.json`, in order; others are nobody's."""
    found = ((_ORDINAL.fullmatch(one.name), one.path) for one in contents(state, folder).files)
    return {int(number[1]): path for number, path in found if number}


def number_of(name: str) -> int:
    """Return the number of a file of `newest_names`."""
    return int(name.partition(".")[0].rpartition("-")[2])


def read_word(state: Store, path: str) -> dict[str, Any]:
    """Return the last word about something; empty when there is none that can be read: no batch rests on it."""
    with contextlib.suppress(JournalError):
        return read_record(state, path, dict, "the last word", JournalError) or {}
    return {}


def write_word(state: Store, path: str, word: Mapping[str, Any]) -> None:
    """Replace the last word about something."""
    state.put(path, record_bytes(word))


def read_object(data: bytes | str | None) -> dict[str, Any]:
    """Parse a JSON object; what is none, as its writer may have been killed in the middle, is an empty one."""
    try:
        value = json.loads(data or "{}")
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}
