"""A table's lock keeps a second runner off, and off also while a killed runner's Java process may still commit.

Real processes hold the locks here: a Python that keeps the file, and another process that stands for its Java.
"""

from __future__ import annotations

import errno
import json
import os
import resource
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from obstore.store import MemoryStore

from children import child
from mirrorlib.delta import lock
from mirrorlib.delta.lock import find_locks, find_place, hold_table, lock_table
from mirrorlib.errors import StoreError, TableBusyError
from mirrorlib.journal.leases import process_started
from mirrorlib.names import parse_name
from mirrorlib.store import Store, open_store
from mirrorlib.store.objects import ObjectStore
from mirrorlib.store.target import Target
from mirrors import Mirror

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HOLDER = """
import os, sys, threading
from pathlib import Path
from mirrorlib.delta.lock import hold_table
with hold_table(Path(sys.argv[1]), "orders", int(sys.argv[2]), lambda: False):
    print("held", flush=True)
    threading.Event().wait()
"""
PATIENCE = 60.0


def never() -> bool:
    """Go on waiting."""
    return False


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Name a lock file that is not there yet."""
    return tmp_path / "locks" / "orders.lock"


@pytest.fixture
def java() -> Iterator[subprocess.Popen[bytes]]:
    """Start a process that lives until it is told to end, as a Java process whose Python was killed may."""
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    yield process
    process.kill()
    process.communicate()


@pytest.fixture
def killed(path: Path, java: subprocess.Popen[bytes]) -> Path:
    """Leave the lock of a runner that was killed while *java* lives on."""
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(path), str(java.pid)], stdout=subprocess.PIPE
    )
    assert holder.stdout is not None
    assert b"held\n" == holder.stdout.readline()
    holder.kill()
    holder.communicate()
    return path


@pytest.fixture
def looked(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Tell when somebody has looked whether a process lives, and so waits for it."""
    event = threading.Event()

    def look(pid: int) -> str | None:
        event.set()
        return process_started(pid)

    monkeypatch.setattr(lock, "process_started", look)
    return event


def end(process: subprocess.Popen[bytes]) -> None:
    """Let a process end and be gone."""
    process.communicate(b"\n")


def take(path: Path) -> str:
    """Hold the lock for a moment and return who it says holds it."""
    with hold_table(path, "orders", os.getpid(), never):
        return path.read_text()


def test_a_second_runner_waits_for_the_first(path: Path) -> None:
    """Two threads of a process are two runners; the second has the table when the first is done."""
    waiting, order = threading.Event(), []

    def second() -> None:
        with hold_table(path, "orders", os.getpid(), lambda: bool(waiting.set())):
            order.append("second")

    with ThreadPoolExecutor(1) as pool:
        with hold_table(path, "orders", os.getpid(), never):
            future = pool.submit(second)
            assert waiting.wait(PATIENCE)
            order.append("first")
        future.result(PATIENCE)

    assert ["first", "second"] == order


def test_a_runner_that_is_asked_to_stop_does_not_wait(path: Path) -> None:
    """Ctrl-C while another runner works leaves at once, and says why."""
    with (
        hold_table(path, "orders", os.getpid(), never),
        pytest.raises(TableBusyError, match="another runner is applying"),
        hold_table(path, "orders", os.getpid(), lambda: True),
    ):
        pass


def test_a_table_that_somebody_else_is_at_has_not_failed(mirror: Mirror) -> None:
    """Whoever is told to stop while he waits says nothing of it that would stay: the other one does."""
    mirror.publish()
    word = (mirror.journal / "status.json").read_bytes()
    lock_file = mirror.path.parent / "_mirrorlib" / "locks" / f"{mirror.name}.lock"
    with hold_table(lock_file, mirror.name, os.getpid(), never):
        report = mirror.run(stop=lambda: True)

    assert ("behind", None) == (report.state, report.error)
    assert "another runner is applying" in report.reason
    assert word == (mirror.journal / "status.json").read_bytes()


def test_a_failure_inside_frees_the_lock(path: Path) -> None:
    """Whatever happens to the holder, the next one gets in."""
    with suppress(ZeroDivisionError), hold_table(path, "orders", os.getpid(), never):
        raise ZeroDivisionError

    assert take(path)


def test_the_java_of_a_killed_runner_is_waited_for(
    killed: Path, java: subprocess.Popen[bytes], looked: threading.Event
) -> None:
    """Killing Python frees the file; the next runner goes on only when that Java is gone."""
    with ThreadPoolExecutor(1) as pool:
        next_one: Future[str] = pool.submit(take, killed)
        assert looked.wait(PATIENCE)
        assert not next_one.done()
        end(java)
        said = next_one.result(PATIENCE)

    assert os.getpid() == json.loads(said)["jvm"]


def test_a_java_that_never_ends_is_named(
    killed: Path, java: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a bound the runner gives up and says which process is in the way; once that has ended, the next run goes on."""
    monkeypatch.setattr(lock, "_LAST_BREATH", 0.1)

    with pytest.raises(TableBusyError, match=f"process {java.pid}"):
        take(killed)
    with pytest.raises(TableBusyError, match=f"End process {java.pid}"):
        take(killed)

    end(java)
    assert take(killed)


def test_a_process_that_only_has_the_number_of_the_last_java_is_not_waited_for(
    killed: Path, java: subprocess.Popen[bytes]
) -> None:
    """Numbers are used again; the time at which a process started tells them apart."""
    holder = json.loads(killed.read_text())
    assert process_started(java.pid) == holder["started"]
    killed.write_text(json.dumps({**holder, "started": "1"}))

    assert take(killed)


def test_a_java_on_another_machine_is_not_waited_for(killed: Path) -> None:
    """A shared folder: process numbers of another machine mean nothing here."""
    killed.write_text(json.dumps({**json.loads(killed.read_text()), "host": "elsewhere"}))

    assert take(killed)


def test_our_own_java_is_not_waited_for(path: Path) -> None:
    """The same process applies again and again."""
    assert take(path) == take(path)


def test_a_runner_that_ended_in_order_keeps_nobody_waiting(path: Path) -> None:
    """Its Java may live on in a notebook for days; whatever it was asked for has ended."""
    take(path)
    assert "" == path.read_text()

    with suppress(ZeroDivisionError), hold_table(path, "orders", os.getpid(), never):
        raise ZeroDivisionError
    assert "" == path.read_text()


def test_a_runner_that_was_interrupted_leaves_the_name_of_its_java(path: Path) -> None:
    """Ctrl-C in the middle of a commit ends Python's part of it only."""
    with suppress(KeyboardInterrupt), hold_table(path, "orders", os.getpid(), never):
        raise KeyboardInterrupt

    assert os.getpid() == json.loads(path.read_text())["jvm"]


def test_a_runner_that_lost_its_java_leaves_its_name(
    path: Path, java: subprocess.Popen[bytes]
) -> None:
    """When the connection breaks, Java may still be committing; any other error ends in order."""

    def fail(error: Exception) -> None:
        with hold_table(path, "orders", java.pid, never):
            raise RuntimeError from error

    with pytest.raises(RuntimeError):
        fail(ConnectionRefusedError())
    assert java.pid == json.loads(path.read_text())["jvm"]
    with pytest.raises(RuntimeError):
        fail(ValueError())
    assert "" == path.read_text()


def test_a_java_that_nobody_has_buried_is_gone(killed: Path, java: subprocess.Popen[bytes]) -> None:
    """A zombie commits nothing."""
    java.kill()
    os.waitid(os.P_PID, java.pid, os.WEXITED | os.WNOWAIT)  # dead, and not reaped

    assert process_started(java.pid) is None
    assert take(killed)


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '"orders"', "\x00\xff", '{"jvm": "many"}', '{"jvm": 1}']
)
def test_a_lock_file_that_says_nothing_sensible_keeps_nobody_out(path: Path, text: str) -> None:
    """Its writer was killed in the middle of a word."""
    path.parent.mkdir()
    path.write_text(text)

    assert os.getpid() == json.loads(take(path))["jvm"]


@pytest.mark.thorough
def test_a_table_whose_last_java_lives_on_fails_alone(
    mirror: Mirror, java: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other tables of the zone go on; the table itself does once the process is gone."""
    monkeypatch.setattr(lock, "_LAST_BREATH", 0.1)
    other = mirror.zone.table("customers", keys=["id"])
    other.file([{"id": 1}], [0])
    mirror.publish()
    file = mirror.path.parent / "_mirrorlib" / "locks" / f"{mirror.name}.lock"
    holder = {"jvm": java.pid, "started": process_started(java.pid), "host": os.uname().nodename}
    file.write_text(json.dumps(holder))

    states = {report.table: (report.state, report.error) for report in mirror.apply().tables}

    assert {"customers": ("current", None), mirror.name: ("failed", "TableBusyError")} == states
    end(java)
    mirror.assert_current()


@pytest.mark.thorough
def test_a_commit_in_flight_in_the_java_of_a_killed_python_counts_once(
    mirror: Mirror, looked: threading.Event
) -> None:
    """Python is killed inside its commit and its Java is held still: the next runner waits for it, then looks what it did."""
    mirror.publish()
    with child(mirror.zone, mirror.target) as runner, ThreadPoolExecutor(1) as pool:
        while (said := runner.next()) is not None and (said.get("step"), said.get("when")) != (
            "commit",
            "before",
        ):
            pass
        assert said is not None, (
            runner.last_words()
        )  # else it would be our own Java that is stopped
        lock_file = mirror.path.parent / "_mirrorlib" / "locks" / f"{mirror.name}.lock"
        java = int(json.loads(lock_file.read_text())["jvm"])
        os.kill(java, signal.SIGSTOP)
        runner.process.kill()
        runner.process.wait()
        looked.clear()
        next_one = pool.submit(mirror.run)
        assert looked.wait(PATIENCE)
        assert not next_one.done()
        os.kill(java, signal.SIGCONT)
        report = next_one.result()

    assert ("current", "") == (report.state, report.reason)
    mirror.assert_holds()
    assert 3 == mirror.plans()


@pytest.fixture
def bucket() -> Store:
    """Keep the state in an object store."""
    return ObjectStore("s3://bucket/state", MemoryStore())


def hold(
    spark: SparkSession, target: Target, state: Store, name: str
) -> AbstractContextManager[None]:
    """Lock a table, or say at once that somebody has."""
    return lock_table(spark, target, state, parse_name(name), lambda: True)


def test_a_lock_names_the_java_that_commits(
    spark: SparkSession, tmp_path: Path, bucket: Store
) -> None:
    """It is the driver's: on a cluster a query may be answered by an executor, now by this one, now by that."""
    target = Target(place=str(tmp_path / "tables"), catalog=None, state=bucket.url)
    with hold(spark, target, bucket, "orders"):
        found = json.loads(next(tmp_path.rglob("orders.lock")).read_text())
    said = Path(f"/proc/{found['jvm']}/cmdline").read_text(encoding="utf-8")

    assert ("org.apache.spark" in said, "ExecutorBackend" in said) == (True, False)


def test_a_local_table_is_locked_where_it_lies_wherever_its_state_does(
    spark: SparkSession, tmp_path: Path, bucket: Store
) -> None:
    """Delta is unsafe among writers where the table is local; two runners meet there with any state."""
    target = Target(place=str(tmp_path / "tables"), catalog=None, state=bucket.url)
    other = open_store(str(tmp_path / "state"))

    with hold(spark, target, bucket, "dbo/orders"):
        for state in (bucket, other):
            with (
                pytest.raises(TableBusyError, match="another runner"),
                hold(spark, target, state, "dbo/orders"),
            ):
                pass
        with hold(spark, target, bucket, "dbo/customers"):
            pass


@pytest.mark.parametrize("state", ["_mirrorlib", "dbo/_mirrorlib"])
def test_whoever_changes_one_table_holds_the_lock_of_every_target_above(
    spark: SparkSession, tmp_path: Path, state: str
) -> None:
    """A runner of the outer one knows nothing of the inner one's state, nor the other way round."""
    locks = [
        tmp_path / "_mirrorlib/locks/dbo~2Forders.lock",
        tmp_path / "dbo/_mirrorlib/locks/orders.lock",
    ]
    for lock_file in locks:
        lock_file.parent.mkdir(parents=True)
    (tmp_path / state / "state.json").write_text("{}")

    with find_place(spark, tmp_path / "dbo/orders").hold(spark):
        for lock_file in locks:
            with (
                pytest.raises(TableBusyError),
                hold_table(lock_file, "orders", os.getpid(), lambda: True),
            ):
                pass


def test_a_table_elsewhere_is_locked_with_a_local_state_and_else_not_at_all(
    spark: SparkSession, tmp_path: Path, bucket: Store
) -> None:
    """Two runners of one machine need not meet at the store; where nothing is local, Delta keeps them apart."""
    target = Target(place="s3://bucket/tables", catalog=None, state="")
    local = open_store(str(tmp_path / "state"))

    assert tmp_path / "state" / "locks" == find_locks(spark, target, local)
    assert find_locks(spark, target, bucket) is None
    with hold(spark, target, bucket, "orders"), hold(spark, target, bucket, "orders"):
        pass


def test_a_catalog_s_local_tables_are_locked_beside_them(
    spark: SparkSession, tmp_path: Path, bucket: Store
) -> None:
    """The catalog is asked where they lie; one that has no such schema leaves the lock to the state."""
    spark.sql(f"CREATE SCHEMA locked LOCATION '{tmp_path}/ware house'")
    target = Target(place="locked", catalog="spark_catalog", state=bucket.url)
    try:
        assert tmp_path / "ware house" / "_mirrorlib" / "locks" == find_locks(spark, target, bucket)
        with (
            hold(spark, target, bucket, "dbo/orders"),
            pytest.raises(TableBusyError),
            hold(spark, target, bucket, "dbo/orders"),
        ):
            pass
        assert find_locks(spark, replace(target, place="nowhere"), bucket) is None
    finally:
        spark.sql("DROP SCHEMA locked CASCADE")


def test_a_full_disk_is_named(path: Path) -> None:
    """As a file is that may not grow: what did not fit is not written again as the lock is let go."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    for room in (0, 40):  # nothing fits, or a part
        resource.setrlimit(resource.RLIMIT_FSIZE, (room, hard))
        try:
            with pytest.raises(StoreError, match=f"cannot lock {path} .found .Errno"):
                take(path)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))

    assert take(path)


@pytest.mark.parametrize("place", ["no locks", "a file"])
def test_a_place_that_has_no_locks_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    """As NFS without its lock daemon; or one where nothing can be written."""

    def refuse(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    path = tmp_path / "locks" / "orders.lock"
    if place == "a file":
        path.parent.touch()
    else:
        monkeypatch.setattr("fcntl.flock", refuse)

    with (
        pytest.raises(StoreError, match=f"cannot lock {path} .found .Errno"),
        hold_table(path, "orders", os.getpid(), never),
    ):
        pass
