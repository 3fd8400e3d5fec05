"""Publish small batches, break the store or the process while it happens, and read the zone back.

In: a folder or a store. Out: what a reader would see: numbers and rows, in order. Nothing here uses
the writer's own state in `_mirrorlib/`.
"""

from __future__ import annotations

import io
import multiprocessing
import os
import signal
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Literal

import obstore.store
import pyarrow as pa
import pyarrow.parquet as pq

from mirrorlib.errors import StoreError
from mirrorlib.landing.publish.writer import LandingZoneWriter
from mirrorlib.store import LocalStore, ObjectStore, Store

pa.scalar(
    0
)  # pyarrow takes pandas along with the first value, where there is one: once for all children

Mode = Literal["before", "after", "denied", "kill before", "kill after"]
VERBS = (
    "list_folder", "files_after", "stat", "read", "open_file", "put", "put_new", "move_new", "delete",
)  # fmt: skip
SYSTEM_CALLS = ("link", "unlink", "replace", "fsync", "mkdir", "scandir", "listdir")
TABLE = "dbo/orders"
FOLDER = "dbo.schema/orders"


def batch(name: str, rows: int = 2) -> pa.Table:
    """Make the rows of a batch that can be told from every other by its name."""
    return pa.table({"id": list(range(rows)), "batch": [name] * rows})


def memory_store() -> Store:
    """Make an object store without a server: obstore's own, with put-if-absent and without rename."""
    return ObjectStore("memory:///zone", obstore.store.MemoryStore())


def stores() -> dict[str, Callable[[Path], Store]]:
    """Name the kinds of store that everything has to hold on."""
    return {"local": LocalStore, "memory": lambda _: memory_store()}


def publish(
    zone: str | Path | Store, *names: str, ids: bool = True, **table: Any
) -> list[int | None]:
    """Publish batches in this order; give their numbers."""
    orders = LandingZoneWriter(zone).table(TABLE, **{"keys": ["id"], **table})
    return [orders.write(batch(name), batch_id=name if ids else None).number for name in names]


def visible(zone: Store, folder: str = FOLDER) -> dict[str, bytes]:
    """Give what every reader sees of a folder: its data files by name, in order."""
    listed = zone.list_folder(folder)
    names = [file.name for file in listed.files] if listed else []
    return {name: zone.read(f"{folder}/{name}") or b"" for name in names if name[0] not in "_."}


def rows_of(data: bytes) -> list[dict[str, Any]]:
    """Read a Parquet file's rows."""
    found: list[dict[str, Any]] = pq.read_table(io.BytesIO(data)).to_pylist()
    return found


def batches(zone: Store, folder: str = FOLDER) -> list[str]:
    """Give the batches in the order of their numbers, which have to be 1, 2, 3 … without a gap."""
    files = visible(zone, folder)
    expected = [f"{number:020d}.parquet" for number in range(1, len(files) + 1)]
    assert expected == list(files)
    found = [{row["batch"] for row in rows_of(data)} for data in files.values()]
    assert all(len(names) == 1 for names in found)
    return [name for names in found for name in names]


def assert_each_once(found: Iterable[str], expected: Iterable[str]) -> None:
    """Compare batches without regard to their order."""
    assert sorted(expected) == sorted(found)


@dataclass(slots=True)
class Fault:
    """What goes wrong: at the count-th call, and how."""

    at: int = 0
    mode: Mode = "before"
    calls: list[str] = field(default_factory=list)

    def strike(self, call: str) -> Mode | None:
        """Take note of a call; say what goes wrong with it."""
        self.calls.append(call)
        return self.mode if len(self.calls) == self.at else None


class FaultyStore:
    """A store one of whose calls fails, loses its answer, or is the last thing that its process does."""

    def __init__(self, real: Store, fault: Fault) -> None:
        self._real = real
        self._fault = fault

    def __getattr__(self, name: str) -> Any:
        real = getattr(self._real, name)
        return partial(self._call, name, real) if name in VERBS else real

    def _call(
        self, verb: str, real: Callable[..., object], *arguments: object, **named: object
    ) -> object:
        mode = self._fault.strike(f"{verb} {arguments[0]}")
        if mode == "before":
            raise _lost(verb)
        if mode == "kill before":
            die()
        result = real(*arguments, **named)
        if mode == "after":
            raise _lost(verb)
        if mode == "kill after":
            die()
        return False if mode == "denied" and result is True else result


class MeetingStore:
    """A store at whose count-th call somebody else comes first, and does all that they have to do."""

    def __init__(self, real: Store, at: int, meet: Callable[[], object]) -> None:
        self._real = real
        self._at = at
        self._meet = meet
        self.calls = 0

    def __getattr__(self, name: str) -> Any:
        real = getattr(self._real, name)
        return partial(self._call, real) if name in VERBS else real

    def _call(self, real: Callable[..., object], *arguments: object, **named: object) -> object:
        self.calls += 1
        if self.calls == self._at:
            self._meet()
        return real(*arguments, **named)


def _lost(verb: str) -> StoreError:
    msg = f"cannot {verb}"
    return StoreError(msg, found="connection reset by peer")


def die() -> None:
    """Kill this process at once."""
    os.kill(os.getpid(), signal.SIGKILL)


# Children: processes of their own, forked from a server that has imported everything once.


def context() -> Any:
    """Give the way in which children are started."""
    found = multiprocessing.get_context("forkserver")
    found.set_forkserver_preload(["pytest", "publishing", "pyarrow.parquet"])
    return found


def run_child(target: Callable[..., None], *arguments: object) -> int:
    """Run a function in a child; give its exit code, negative for a signal."""
    child = context().Process(target=target, args=arguments)
    child.start()
    child.join(60)
    assert child.exitcode is not None
    code: int = child.exitcode
    child.close()
    return code


def publish_with_fault(
    zone: Path, name: str, at: int, mode: Mode, options: Mapping[str, Any]
) -> None:
    """Publish a batch in a process that dies at a call of the store."""
    publish(FaultyStore(LocalStore(zone), Fault(at=at, mode=mode)), name, **options)  # type: ignore[arg-type]


def publish_with_system_fault(
    zone: Path, name: str, at: int, mode: Mode, options: Mapping[str, Any]
) -> None:
    """Publish a batch in a process that dies at a call of the operating system."""
    with_system_fault(Fault(at=at, mode=mode), lambda: publish(zone, name, **options))


def with_system_fault(fault: Fault, work: Callable[[], object]) -> None:
    """Do work while the operating system's calls are counted, and one of them is the last."""
    real = {name: getattr(os, name) for name in SYSTEM_CALLS}

    def call(name: str, *arguments: object, **more: object) -> object:
        mode = fault.strike(name)
        if mode == "kill before":
            die()
        try:
            return real[name](*arguments, **more)
        finally:
            if mode == "kill after":
                die()

    for name in real:
        setattr(os, name, partial(call, name))
    try:
        work()
    finally:
        for name, function in real.items():
            setattr(os, name, function)


def publish_equal_at_once(zone: Path, count: int, start: Any) -> None:
    """Wait for the others, then publish the same rows again and again, without ids."""
    orders = LandingZoneWriter(zone).table(TABLE, keys=["id"])
    start.wait(30)
    for _ in range(count):
        orders.write(batch("same"), 0)


def publish_at_once(zone: Path, names: tuple[str, ...], start: Any, column: str | None) -> None:
    """Wait for the others, then publish batch after batch; every second one may bring a column of its own."""
    orders = LandingZoneWriter(zone).table(TABLE, keys=["id"])
    start.wait(30)
    for place, name in enumerate(names):
        rows = batch(name)
        if column is not None and place % 2:
            rows = rows.append_column(column, pa.array(["x"] * rows.num_rows))
        orders.write(rows, batch_id=name)
