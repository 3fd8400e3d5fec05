"""Keep a second runner off a stream while the first is at it.

In: a stream's registry. Out: a lease, held while its file is renewed. The next lease is taken by
put-if-absent once the newest one was given back, has run out, or belongs to a process of this
machine that has ended. What is delivered rests on windows and receivers, not on leases: two clocks
may differ, and a runner that was paused for too long wakes up to find its lease taken.
"""

from __future__ import annotations

import contextlib
import json
import os
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mirrorlib.errors import MirrorError, TableBusyError
from mirrorlib.journal.entries import new_attempt
from mirrorlib.journal.plan_log import json_bytes, numbered
from mirrorlib.journal.registry import LEASE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mirrorlib.journal.registry import Registry

TERM = timedelta(seconds=60)
_RENEWAL = 20.0  # seconds


class Lease:
    """A lease that this runner holds."""

    def __init__(self, registry: Registry, number: int, holder: str) -> None:
        self._registry = registry
        self._number = number
        self._holder = holder

    def check(self) -> None:
        """See that nobody has taken it.

        Raises:
            TableBusyError: somebody has.

        """
        if _newest(self._registry)[0] != self._number:
            msg = "another runner has taken over, as this one's lease had run out"
            raise TableBusyError(msg, table=self._registry.table)

    def write(self, *, until: datetime) -> None:
        """Say until when it is held."""
        path = _path(self._registry, self._number)
        self._registry.state.put(path, _said(self._holder, until))


@contextlib.contextmanager
def hold_stream(registry: Registry) -> Iterator[Lease]:
    """Hold the stream's lease, renewing it from a thread of its own.

    Raises:
        TableBusyError: another runner holds it.

    """
    lease = _take(registry)
    done = threading.Event()
    renewer = threading.Thread(target=_renew, args=(lease, done), daemon=True)
    renewer.start()
    try:
        yield lease
    finally:
        done.set()
        renewer.join()
        with contextlib.suppress(MirrorError):  # it runs out by itself
            lease.write(until=_now())


def holder_of(registry: Registry) -> str:
    """Name who delivers now, as machine and process; "" when nobody does."""
    _, held = _newest(registry)
    return f"{held.get('host')}, process {held.get('pid')}" if _is_held(held) else ""


def _take(registry: Registry) -> Lease:
    number, held = _newest(registry)
    if _is_held(held):
        msg = "another runner delivers the table to this consumer"
        found = f"{held.get('host')}, process {held.get('pid')}"
        raise TableBusyError(msg, table=registry.table, found=found)
    holder, path = new_attempt(), _path(registry, number + 1)
    registry.state.put_new(path, _said(holder, _now() + TERM))
    if _read(registry, path).get("holder") != holder:
        msg = "another runner has just begun to deliver the table to this consumer"
        raise TableBusyError(msg, table=registry.table)
    if number:
        registry.state.delete(_path(registry, number))
    return Lease(registry, number + 1, holder)


def _renew(lease: Lease, done: threading.Event) -> None:
    while not done.wait(_RENEWAL):
        with contextlib.suppress(MirrorError):  # tried again, well before it runs out
            lease.check()
            lease.write(until=_now() + TERM)


def _newest(registry: Registry) -> tuple[int, dict[str, Any]]:
    name = next(iter(registry.state.first_names(f"{registry.folder}/{LEASE}", 1)), "")
    number = name.removesuffix(".json").rpartition("-")[2]
    if not number.isdecimal():
        return 0, {}
    return int(number), _read(registry, f"{registry.folder}/{LEASE}/{name}")


def _is_held(held: dict[str, Any]) -> bool:
    if "until" not in held or datetime.fromisoformat(held["until"]) <= _now():
        return False
    here = held.get("host") == os.uname().nodename
    return not here or process_started(held["pid"]) == held.get("started")


def _read(registry: Registry, path: str) -> dict[str, Any]:
    try:
        value = json.loads(registry.state.read(path) or b"{}")
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def _path(registry: Registry, number: int) -> str:
    return f"{registry.folder}/{LEASE}/{numbered(number)}.json"


def _said(holder: str, until: datetime) -> bytes:
    pid = os.getpid()
    return json_bytes(
        {
            "holder": holder,
            "until": until.isoformat(),
            "host": os.uname().nodename,
            "pid": pid,
            "started": process_started(pid),
        }
    )


def _now() -> datetime:
    return datetime.now(UTC)


def process_started(pid: int) -> str | None:
    """Return something that tells a process from a later one with its number; None when there is no such process."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except FileNotFoundError:
        return None if Path("/proc/self/stat").exists() else _started_without_proc(pid)
    except ProcessLookupError:
        return None
    return None if fields[0] == "Z" else fields[19]


def _started_without_proc(pid: int) -> str | None:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return None
    except PermissionError:
        return "running"
    return "running"
