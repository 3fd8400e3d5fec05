"""Keep a second runner off a stream, or a table, while the first is at it.

In: a state folder. Out: a lease, held while its file is renewed. The next lease is taken by
put-if-absent once the newest one was given back, has run out, or belongs to a process of this
machine that has ended; or cannot be read, as no runner leaves one. What is delivered or applied rests on windows and
marks, not on leases: two clocks may differ, and a runner that was paused for too long wakes up to find its lease taken.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from mirrorlib.errors import MirrorError, TableBusyError
from mirrorlib.journal.entries import new_attempt
from mirrorlib.journal.plan_log import newest_names, number_of, numbered, read_object
from mirrorlib.store import Store
from mirrorlib.store.records import json_bytes

TERM = timedelta(seconds=60)
_LONG_AGO = datetime.fromtimestamp(0, UTC)  # past by every clock, also one that is set back
_RENEWAL = 20.0  # seconds


class Lease:
    """A lease of a stream, or of what a runner *does* to a table otherwise: this runner's once it is taken."""

    def __init__(self, state: Store, folder: str, table: str, does: str) -> None:
        self._state = state
        self._folder = folder
        self._table = table
        self._does = does
        self._number = 0
        self._holder = new_attempt()

    def take(self) -> None:
        """Take it; raises `TableBusyError` where another runner holds it, or takes it at the same moment."""
        number, by = self.newest()
        msg = f"another runner {self._does}"
        if by:
            raise TableBusyError(msg, table=self._table, found=by)
        self._number = number + 1
        path = self._path(self._number)
        self._state.put_new(path, self._said(datetime.now(UTC) + TERM))
        if read_object(self._state.read(path)).get("holder") != self._holder:
            raise TableBusyError(msg, table=self._table, found="it has just begun")
        if number:
            self._state.delete(self._path(number))

    def check(self) -> None:
        """See that nobody has taken it; raises `TableBusyError` where somebody has."""
        if self.newest()[0] != self._number:
            msg = "another runner has taken over, as this one's lease had run out"
            raise TableBusyError(msg, table=self._table)

    def write(self, *, until: datetime) -> None:
        """Say until when it is held."""
        self._state.put(self._path(self._number), self._said(until))

    def renew(self, done: threading.Event) -> None:
        """Renew it until somebody is done."""
        while not done.wait(_RENEWAL):
            with contextlib.suppress(MirrorError):  # tried again, well before it runs out
                self.check()
                self.write(until=datetime.now(UTC) + TERM)

    def newest(self) -> tuple[int, str]:
        """Return the number of the newest lease, and who holds it, as machine and process; "" when nobody does."""
        names = newest_names(self._state, self._folder)
        if not names:
            return 0, ""
        held = read_object(self._state.read(f"{self._folder}/{names[0]}"))
        by = f"{held.get('host')}, process {held.get('pid')}" if _is_held(held) else ""
        return number_of(names[0]), by

    def _path(self, number: int) -> str:
        return f"{self._folder}/{numbered(number)}.json"

    def _said(self, until: datetime) -> bytes:
        pid = os.getpid()
        process = {"host": os.uname().nodename, "pid": pid, "started": process_started(pid)}
        return json_bytes({"holder": self._holder, "until": until.isoformat(), **process})


def _is_held(held: dict[str, Any]) -> bool:
    try:
        left = datetime.fromisoformat(held["until"]) - datetime.now(UTC)
        # Nobody asks for more than a term: where more is left, its clock was ahead, and it may have ended.
        if not timedelta() < left <= 2 * TERM:
            return False
    except (KeyError, TypeError, ValueError):  # it does not say until when, or not in which zone
        return False
    here, pid = held.get("host") == os.uname().nodename, held.get("pid")
    return not here or not isinstance(pid, int) or process_started(pid) == held.get("started")


@contextlib.contextmanager
def hold(lease: Lease) -> Iterator[Lease]:
    """Hold a lease, renewing it from a thread of its own; `TableBusyError` where another runner holds it."""
    lease.take()
    done = threading.Event()
    renewer = threading.Thread(target=lease.renew, args=(done,), daemon=True)
    renewer.start()
    try:
        yield lease
    finally:
        done.set()
        renewer.join()
        with contextlib.suppress(MirrorError):  # it runs out by itself
            lease.write(until=_LONG_AGO)


def process_started(pid: int) -> str | None:
    """Return something that tells a process from a later one with its number; None when there is no such process."""
    with contextlib.suppress(ProcessLookupError, FileNotFoundError):
        if Path("/proc/self/stat").exists():
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            return None if fields[0] == "Z" else fields[19]
        with contextlib.suppress(PermissionError):  # it is there, and somebody else's
            os.kill(pid, 0)
        return "running"
    return None
