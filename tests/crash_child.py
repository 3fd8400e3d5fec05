"""Apply a landing zone in a process of its own, which can be killed at points that are told.

Run by the tests with one argument, a JSON object:

    zone, target    as for `apply`
    options         more arguments of `apply`
    park            {table: [step, when, count]}: the table's thread stops at that event when it comes
                    for the count-th time; once every table named here has stopped, the process kills
                    itself. So one death is a death of each table at a point of its own.
    whole           it dies with its Java process at the same instant; otherwise only Python is killed, and Java follows
    wait            it gets ready and waits for a line on its standard input before it applies
    meet            [step, when]: it waits for a line there, too, when it comes to that event for the first time
    java            options of its Java process
    shared          where a Java process tells of itself that it joins, instead of starting one
    large           batches are folded by Spark, as large ones are

It says what it does on its standard output, a JSON object a line, "at" being: ready, event, parked, met, report.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from collections import Counter
from collections.abc import Sequence
from typing import Any, NoReturn

from computes import let_nobody_configure
from little import LITTLE
from shared_java import attach


class Observer:
    """Tell every event, stop threads where they have to stop, and die once all are there."""

    def __init__(
        self, park: dict[str, list[Any]], meet: Sequence[str] = (), *, whole: bool
    ) -> None:
        self._park = {table: (step, when, count) for table, (step, when, count) in park.items()}
        self._meet = tuple(meet)
        self._whole = whole
        self._seen: Counter[tuple[str, str, str]] = Counter()
        self._parked: set[str] = set()
        self._lock = threading.Lock()

    def __call__(self, event: Any) -> None:  # the package is not imported up here
        """Take one event of one table."""
        here = (event.table, event.step, event.when)
        with self._lock:
            self._seen[here] += 1
            count = self._seen[here]
        tell("event", table=event.table, step=event.step, when=event.when, batch=event.batch)
        if self._park.get(event.table) == (event.step, event.when, count):
            self._stop_here(event.table)
        if self._meet == (event.step, event.when):
            self._meet = ()
            tell("met", table=event.table)
            sys.stdin.readline()

    def _stop_here(self, table: str) -> NoReturn:
        tell("parked", table=table)
        with self._lock:
            self._parked.add(table)
            everybody = self._parked == self._park.keys()
        if everybody:
            die(whole=self._whole)
        while True:
            threading.Event().wait()


def die(*, whole: bool) -> NoReturn:
    """Kill this process, and its Java process with it when *whole*: their parent made them a group."""
    if whole:
        os.killpg(0, signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError


def tell(at: str, **facts: object) -> None:
    """Write one line, as a whole, whatever other threads write."""
    os.write(1, (json.dumps({"at": at, **facts}) + "\n").encode())


def main(task: dict[str, Any]) -> int:
    """Do what the task says."""
    import mirrorlib

    shared = task.get("shared")
    conf = {**LITTLE, "spark.driver.extraJavaOptions": task["java"]}
    spark = attach(shared) if shared else mirrorlib.local_spark(cores=2, memory="2g", conf=conf)
    let_nobody_configure(spark)
    if task.get("large"):
        from mirrorlib.ingest.batch import open_batch as prepare

        vars(prepare)["SMALL_BYTES"] = -1  # no option, and should not be one
    tell("ready")
    if task.get("wait"):
        sys.stdin.readline()
    meeting = task.get("meet", [])
    observe = Observer(task.get("park", {}), meeting, whole=task.get("whole", False))
    options = task.get("options", {})
    report = mirrorlib.apply(spark, task["zone"], task["target"], observe=observe, **options)
    tell("report", ok=report.ok, text=str(report))
    if not shared:
        spark.stop()
    return 0 if report.ok else 1


if __name__ == "__main__":
    sys.exit(main(json.loads(sys.argv[1])))
