"""Keep a second runner off a table where Delta itself cannot: on a local file system.

Delta's local log store is safe inside one JVM only; two can overwrite each other's commit. So a
runner holds an `flock`, whose file names its JVM: killing Python frees the lock half a second
before its JVM dies, so the next holder waits for that process to be gone. Elsewhere (abfss, GCS,
HDFS) Delta's own commit is safe; on S3 without a multi-writer log store one runner is a documented
condition. docs/guarantees.md, "Applying". `find_place` says which locks a table may have that is known by its address.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import json
import logging
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO
from weakref import WeakKeyDictionary

from mirrorlib.delta.address import address_of, split_dotted
from mirrorlib.delta.table import TableRef, describe_schema, refer
from mirrorlib.errors import LandingZoneError, TableBusyError, TableNameError
from mirrorlib.identifiers import quote
from mirrorlib.journal.leases import process_started
from mirrorlib.journal.plan_log import read_object
from mirrorlib.names import TableName, parse_name
from mirrorlib.store import LocalStore, PathOrUrl, Store, open_store
from mirrorlib.store.protocol import translated
from mirrorlib.store.target import STATE_FOLDER, Target, targets_above

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LOG = logging.getLogger(__name__)
_PROCESSES: WeakKeyDictionary[SparkSession, int] = WeakKeyDictionary()  # asking takes 20 ms
_LOCKS = "locks"  # the folder of them, where a state is or would be
_PAUSE = 0.05  # seconds between two looks at a lock that somebody holds
_LAST_BREATH = 30.0  # seconds that a JVM gets to end once its Python has let go of the lock


@contextlib.contextmanager
def hold_table(path: Path, table: str, jvm: int, stop: Callable[[], bool]) -> Iterator[None]:
    """Hold the table's lock for the JVM, by its process id, that will commit; wait as long as another runner works.

    Raises `TableBusyError` where the last holder's JVM lives on without its runner, or *stop* said so while waiting;
    `StoreError` where the place has no locks, or cannot be written.
    """
    with translated("lock", path):
        path.parent.mkdir(parents=True, exist_ok=True)
        # Else closing it writes again what did not fit on the disk.
        opened = path.open("a+b", buffering=0)
    with opened as file:
        waited = False
        while not _take(file, path):
            if not waited:
                _LOG.info("%s: waiting for another runner (%s)", table, _holder(file))
            waited = True
            if stop():
                msg = "another runner is applying to the table"
                raise TableBusyError(msg, table=table)
            time.sleep(_PAUSE)
        _wait_for_last_jvm(file, table, jvm)
        host, started = os.uname().nodename, process_started(jvm)
        holder = {"jvm": jvm, "started": started, "python": os.getpid(), "host": host}
        said = json.dumps(holder).encode()
        with translated("lock", path):
            file.truncate(0)
            if file.write(said) < len(said):  # on a disk that is full meanwhile
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        try:
            yield
        except Exception as exc:
            if not has_lost_java(exc):
                file.truncate(0)
            raise
        # Whoever ends in order has nothing in flight: nobody needs to wait for his JVM, which may
        # live on in a notebook for days. A kill, or a Ctrl-C in the middle, leaves its name here.
        file.truncate(0)


def has_lost_java(exc: BaseException) -> bool:
    """Say whether an error means that nobody knows what Java is doing: it may still be committing."""
    seen: BaseException | None = exc
    while seen is not None:
        if isinstance(seen, (ConnectionError, EOFError)) or "Py4JNetwork" in type(seen).__name__:
            return True
        seen = seen.__cause__ or seen.__context__
    return False


def _take(file: BinaryIO, path: Path) -> bool:
    """Take a lock, unless somebody holds it."""
    with translated("lock", path):
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True


def _holder(file: BinaryIO) -> dict[str, object]:
    file.seek(0)
    return read_object(file.read())


def _wait_for_last_jvm(file: BinaryIO, table: str, jvm: int) -> None:
    holder = _holder(file)
    pid, started = holder.get("jvm"), holder.get("started")
    if not isinstance(pid, int) or pid == jvm or holder.get("host") != os.uname().nodename:
        return
    end = time.monotonic() + _LAST_BREATH
    while started is not None and process_started(pid) == started:
        if time.monotonic() > end:
            msg = "the last runner is gone, but its Spark process lives on and may still be committing"
            step = f"End process {pid} (kill -9), or wait for its end; the next run goes on from there."
            raise TableBusyError(msg, table=table, found=f"process {pid}", next_step=step)
        time.sleep(_PAUSE)


@contextlib.contextmanager
def lock_table(
    spark: SparkSession,
    target: Target,
    state: Store | None,
    name: TableName,
    stop: Callable[[], bool],
) -> Iterator[None]:
    """Lock a table where it lies on a local file system, wherever its state does; raises as `hold_table` does.

    A local *state* holds the lock of a table elsewhere: two runners of one machine then need not meet at the store.
    """
    folder = find_locks(spark, target, state)
    if folder is None:
        yield
        return
    if spark not in _PROCESSES:
        # Of rows the optimizer answers by itself, in the process that commits; without, an executor may say who it is.
        call = "SELECT java_method('java.lang.ProcessHandle', 'current') AS pid FROM VALUES (1)"
        _PROCESSES[spark] = int(spark.sql(call).collect()[0]["pid"])
    lock = name.segment  # as the table is named in the target, whoever writes to it
    if target.catalog is not None:
        table = refer(target, name).sql.lower().encode("utf-8", "surrogatepass")
        lock = f"catalog-{hashlib.sha256(table).hexdigest()}"
    with hold_table(folder / f"{lock}.lock", str(name), _PROCESSES[spark], stop):
        yield


def find_locks(spark: SparkSession, target: Target, state: Store | None) -> Path | None:
    """Return the folder of a target's locks: beside its tables, else with its state; None where neither is local."""
    place: str | None = target.place
    if target.catalog is not None:
        schema = f"{quote(target.catalog)}.{quote(target.place)}"
        place = describe_schema(spark, schema).get("Location")
    if place is not None:
        with contextlib.suppress(LandingZoneError):  # a catalog may know places that we do not
            tables = open_store(place)
            if isinstance(tables, LocalStore):
                return Path(tables.url) / STATE_FOLDER / _LOCKS
    return Path(state.url) / _LOCKS if isinstance(state, LocalStore) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class TablePlace:
    """Where one table lies."""

    shown: str
    ref: TableRef  # how SQL and writers address it
    # What its state folder, "" where nobody has said it, belongs to; the table has the name of `ref` in it.
    root: Target

    @contextlib.contextmanager
    def hold(self, spark: SparkSession) -> Iterator[None]:
        """Keep other Java processes off the table where Delta does not: on a local file system.

        Each runner has the lock of its own target, which may be any of the folders above: all that have locks are
        held, the outermost first.
        """
        state = open_store(self.root.state) if self.root.state else None
        above = [(self.root.place, self.ref.name)]
        if self.ref.path is not None:
            above = _targets_of(open_store(self.ref.path).url.rstrip("/"))[::-1]
        with contextlib.ExitStack() as held:
            for folder, name in above:
                target = replace(self.root, place=folder)
                locks = find_locks(spark, target, state)
                if folder == self.root.place or (locks is not None and os.path.isdir(locks)):  # noqa: PTH112  # False where nobody may look
                    held.enter_context(lock_table(spark, target, state, name, lambda: False))
            yield


def find_place(
    spark: SparkSession, table: PathOrUrl, *, state: PathOrUrl | None = None
) -> TablePlace:
    """Address a table, which need not be there."""
    shown = address_of(table)
    if "/" in shown or "\\" in shown:
        folder, name = _root_of(open_store(shown).url.rstrip("/"))
        root = Target.of(folder, catalog=None, state=state)
    else:
        parts = split_dotted(shown)
        catalog = parts[-3] if len(parts) > 2 else spark.catalog.currentCatalog()  # noqa: PLR2004  # catalog.schema.table
        schema = parts[-2] if len(parts) > 1 else split_dotted(spark.catalog.currentDatabase())[-1]
        kept = open_store(state).url if state is not None else ""
        root, name = Target(place=schema, catalog=catalog, state=kept), TableName(None, parts[-1])
    return TablePlace(shown=shown, ref=refer(root, name), root=root)


def _root_of(url: str) -> tuple[str, TableName]:
    """Find the target that a table belongs to: the next folder above with a state in it, else the one it lies in."""
    found = _targets_of(url)
    if not found:
        msg = "a table lies in a folder, and this is none's path"
        raise LandingZoneError(msg, found=url, next_step="Give the path of a table's own folder.")
    for root, name in found:
        there = open_store(root).list_folder(STATE_FOLDER)
        # Locks alone are no state, and left by whoever has changed a table.
        if there is not None and (there.files or {*there.folders} - {_LOCKS}):
            return root, name
    return found[0]


def _targets_of(url: str) -> list[tuple[str, TableName]]:
    """List the folders that may be a table's target, as stores know them, and its name in each: the next one first."""
    found = []
    for root, name in targets_above(url):
        with contextlib.suppress(TableNameError):
            found.append((open_store(root).url, parse_name(name)))
    return found
