"""Start runners as real processes, follow what they do, kill them, and make the zones that they work on.

In: a zone and a target. Out: `Child`, whose every end this module sees to; `BusyZone`, whose tables
change all the time in ways that a repeated or lost batch would show.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import mirrorlib
from little import SHORT_LIVED, child_environment
from oracle import ChangeFile, assert_same_rows, multiset, replay
from shared_java import SharedJava
from tables import assert_feed_replays, assert_one_effect_per_file, batches_of, read_rows
from zones import TableWriter, ZoneWriter

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCRIPT = Path(__file__).with_name("crash_child.py")
PATIENCE = 180.0  # seconds until a child that says nothing is given up


class Child:
    """A runner in a process of its own, with its Java process in one group."""

    def __init__(
        self,
        zone: object,
        target: object,
        *,
        script: Path = SCRIPT,
        shared: SharedJava | None = None,
        **task: Any,
    ) -> None:
        """Start it, in a group of its own or in *shared*'s; see its script for what a task can hold."""
        task = {"zone": str(zone), "target": str(target), "java": SHORT_LIVED, **task}
        if shared is not None:
            task["shared"] = str(shared.place)
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115  # lives as long as the child
        self.process = subprocess.Popen(
            [sys.executable, str(script), json.dumps(task)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._stderr,
            process_group=shared.group if shared else 0,
            env=child_environment(),
        )
        self._group = shared.group if shared else self.process.pid
        self.told: list[dict[str, Any]] = []
        self._lines: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        assert self.process.stdout is not None
        with contextlib.suppress(ValueError):  # closed under our hands at the very end
            for line in self.process.stdout:
                if line.startswith(b'{"at"'):
                    self._lines.put(json.loads(line))

    def next(self, seconds: float = PATIENCE) -> dict[str, Any] | None:
        """Return what it says next; None when it has ended, or says nothing for too long."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            ended = self.process.poll() is not None
            with contextlib.suppress(queue.Empty):
                self.told.append(self._lines.get(timeout=0.05))
                return self.told[-1]
            if ended:
                return None
        return None

    def until(self, at: str) -> dict[str, Any]:
        """Read on until it says *at*."""
        while (said := self.next()) is not None:
            if said["at"] == at:
                return said
        msg = f"the child ended, or fell silent, before it said {at!r}: {self.last_words()}"
        raise AssertionError(msg)

    def go(self) -> None:
        """Let a child that waits begin."""
        assert self.process.stdin is not None
        self.process.stdin.write(b"go\n")
        self.process.stdin.flush()

    def kill(self, *, whole: bool) -> None:
        """Kill Python alone, or Java at the same instant too."""
        with contextlib.suppress(ProcessLookupError):
            if whole:
                os.killpg(self._group, signal.SIGKILL)
            else:
                self.process.kill()

    def follow(self) -> int:
        """Read what it says until it ends; return its exit code, negative for a signal."""
        while self.next() is not None:
            pass
        if self.process.poll() is None:
            msg = f"the child fell silent: {self.last_words()}"
            raise AssertionError(msg)
        return self.process.returncode

    def last_words(self) -> str:
        """Return what it told last, and the end of its standard error."""
        self._stderr.seek(0)
        text = self._stderr.read().decode(errors="replace")
        return f"it told {self.told[-5:]} and wrote\n{text[-3000:]}"

    @property
    def parked(self) -> set[str]:
        """Return the tables that have stopped where they had to."""
        return {said["table"] for said in self.told if said["at"] == "parked"}

    def close(self, *, whole: bool = True) -> None:
        """See that nothing of it is left, shared Java included unless told otherwise, and give its pipes back."""
        self.kill(whole=whole)
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout, self._stderr):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()


@contextlib.contextmanager
def child(zone: object, target: object, **task: Any) -> Iterator[Child]:
    """Start a child and see to its end."""
    started = Child(zone, target, **task)
    try:
        yield started
    finally:
        started.close()


def throw_dice(seed: int) -> random.Random:
    """Make dice that fall the same way for the same seed."""
    return random.Random(seed)


@dataclass(slots=True)
class BusyTable:
    """A table whose files insert keys that are there, update and delete: a batch done twice, or never, shows.

    Attributes:
        writer: its folder.
        files: what was published, for the oracle.

    """

    writer: TableWriter
    files: list[ChangeFile] = field(default_factory=list)

    def publish(self, rows: Sequence[Mapping[str, object]], markers: Sequence[int] | None) -> None:
        """Publish one file."""
        columns = tuple(dict.fromkeys(name for row in rows for name in row))
        self.writer.file(rows, markers)
        self.files.append(
            ChangeFile(
                columns=columns,
                rows=tuple(rows),
                markers=None if markers is None else tuple(markers),
            )
        )

    def publish_random(self, dice: random.Random) -> None:
        """Publish the next file: a load, then changes; later ones bring a column, wider types and fractions."""
        number = self.writer.last + 1
        if number == 1:
            rows = [{"id": key, "v": f"1-{key}", "n": key} for key in range(1, 9)]
            self.publish(rows, None)
            return
        rows, markers = [], []
        for place in range(dice.randrange(1, 7)):
            row: dict[str, object] = {
                "id": dice.randrange(1, 11),
                "v": f"{number}-{place}",
                "n": 2**40 + place if number % 7 == 0 else place,  # always int64 in pyarrow
            }
            if number % 3 == 0:
                row["later"] = f"c{place}"
            if number % 11 == 0:
                row["n"] = place + 0.5
            rows.append(row)
            markers.append(dice.choice([0, 0, 1, 2, 4]))
        self.publish(rows, markers)

    def check(self, spark: SparkSession, target: Path) -> None:
        """Compare the table, its feed and its commits with what was published, each file once."""
        path = target / self.writer.name
        expected = replay(self.files, keys=["id"])
        assert_same_rows(expected.multiset, multiset(read_rows(spark, path)), self.writer.name)
        assert_feed_replays(spark, path)
        life = batches_of(path)[-1]["life"]
        assert_one_effect_per_file(path, range(1, len(self.files) + 1), life=life)


class BusyZone:
    """A landing zone of busy tables."""

    def __init__(self, root: Path, dice: random.Random, tables: int) -> None:
        self._zone = ZoneWriter(root)
        self._dice = dice
        self.tables = [
            BusyTable(writer=self._zone.table(f"t{number}", keys=["id"]))
            for number in range(tables)
        ]

    def __str__(self) -> str:
        """Give the path, as `apply` takes it."""
        return str(self._zone)

    def publish(self, files: int) -> None:
        """Publish that many more files of every table."""
        for table in self.tables:
            for _ in range(files):
                table.publish_random(self._dice)

    def check(self, spark: SparkSession, target: Path) -> None:
        """Let a plain apply bring all to an end, then compare everything."""
        report = mirrorlib.apply(spark, str(self), str(target))
        assert report.ok, str(report)
        check_all(spark, target, self.tables)


def check_all(spark: SparkSession, target: Path, tables: Sequence[BusyTable]) -> None:
    """Check tables side by side: each is a handful of tiny Spark jobs."""
    with ThreadPoolExecutor(max_workers=2) as pool:
        list(pool.map(lambda table: table.check(spark, target), tables))


def kill_at_random(
    spark: SparkSession,
    folder: Path,
    *,
    kills: int,
    dice: random.Random,
    at_once: int = 10,
) -> list[str]:
    """Kill runners at random moments, one after another on each target, and all targets come out right all the same.

    Each runner finds what its predecessors left, and new files. *at_once* runners share a Java process,
    whose start costs more than all their work; the next ones get ready while they work. In half of the
    rounds one kill takes them all with Java, in the others each is killed alone, and Java outlives it.

    Returns:
        where each was when it was killed.

    """
    zones = [BusyZone(folder / f"zone{number}", dice, tables=1) for number in range(at_once)]
    moments: list[str] = []
    with contextlib.ExitStack() as stack, ThreadPoolExecutor(at_once) as pool:

        def start() -> list[Child]:
            shared = SharedJava(memory="2g", java=SHORT_LIVED)
            stack.callback(shared.stop)
            stack.callback(shared.kill)
            task = {"shared": shared, "wait": True, "options": {"max_files": 1}}
            return [
                stack.enter_context(child(zone, folder / f"target{number}", **task))
                for number, zone in enumerate(zones)
            ]

        coming = start()
        while len(moments) < kills:
            runners, whole = coming, dice.random() < 0.5
            for zone in zones:
                zone.publish(1 if moments else 2)
            for runner in runners:
                runner.until("ready")
            if len(moments) + at_once < kills:
                coming = start()
            for runner in runners:
                runner.go()
            deadly = dice.choice(runners) if whole else None
            seeds = [throw_dice(dice.randrange(1 << 32)) for _ in runners]
            moments += pool.map(partial(_kill_in_the_middle, deadly=deadly), runners, seeds)
            for runner in runners:
                runner.close()
    for number, zone in enumerate(zones):
        zone.check(spark, folder / f"target{number}")
    return moments


def _kill_in_the_middle(runner: Child, dice: random.Random, *, deadly: Child | None) -> str:
    """Let some events pass, then a random moment, then kill; a runner that is done before is a moment too.

    Where one runner is *deadly*, its moment is everybody's, and Java's.
    """
    kills = deadly in {None, runner}
    events = dice.randrange(1, 40) if kills else sys.maxsize  # a file of a table is some 18
    last = "before the first step"
    while events > 0 and (said := runner.next()) is not None and said["at"] == "event":
        last = f"{said['when']} {said['step']} of {said['table']}"
        events -= 1
    if kills:
        time.sleep(dice.random() * 0.3)  # the moment itself: nothing is waited for
        runner.kill(whole=deadly is not None)
    died = "killed" if runner.follow() == -9 else "done"
    return f"{died} {last}, {'Python alone' if deadly is None else 'with its Java process'}"
