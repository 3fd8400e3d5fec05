"""Deliver to consumers in a process of its own, which can be killed at points that are told.

Run by the tests with one argument, a JSON object:

    target          as for `export`
    exports         {consumer: more arguments of `export`}: all of them side by side
    park            {consumer: [step, when, count]}: its thread stops at that event when it comes for the
                    count-th time; once every consumer named here has stopped, the process kills itself
    whole           it dies with its Java process at the same instant; otherwise only Python is killed, and Java follows
    wait            it gets ready and waits for a line on its standard input before it delivers
    java            options of its Java process
    shared          where a Java process tells of itself that it joins, instead of starting one
    lose            what becomes of the first answer to each put-if-absent of an object store: "denied" for one that
                    was repeated and met its own file, "lost" for one that never came
    tries           how often it delivers until all is well; once by default

A receiver of files is called by its consumer's name: so each write to one is a step "write" of that
consumer. What the process says on its standard output is a JSON object a line, "at" being: ready, event,
parked, report.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from computes import let_nobody_configure
from crash_child import Observer, tell
from little import LITTLE
from shared_java import attach

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from mirrorlib.store import Store

WRITES = ("put", "put_new", "move_new", "move", "delete", "delete_folder")


class Watched:
    """A store of a receiver that tells before and after each write."""

    def __init__(self, real: Store, observe: Callable[[Any], None]) -> None:
        self._real, self._observe = real, observe

    def __getattr__(self, name: str) -> Any:
        real = getattr(self._real, name)
        return partial(self._write, real) if name in WRITES else real

    def _write(self, real: Callable[..., Any], *arguments: Any) -> Any:
        from mirrorlib.events import Event

        table = self._real.url.rpartition("/")[2]
        event = Event(table=table, step="write", when="before", batch=None)
        self._observe(event)
        done = real(*arguments)
        self._observe(replace(event, when="after"))
        return done


def watch_writes(observe: Callable[[Any], None]) -> None:
    """Watch the stores of all receivers that are files."""
    from mirrorlib.delivery.sinks.files import sink as files
    from mirrorlib.delivery.sinks.zone import sink as zone

    for module in (files, zone):
        opened = vars(module)["open_store"]
        vars(module)["open_store"] = lambda url, opened=opened: Watched(opened(url), observe)


def lose_answers(how: str) -> None:
    """Lose the first answer to each put-if-absent of an object store; a lease's is repeated by the client."""
    from mirrorlib.errors import StoreError
    from mirrorlib.store import ObjectStore

    put_new, seen = ObjectStore.put_new, set[str]()

    def losing(store: ObjectStore, path: str, data: bytes) -> bool:
        place = f"{store.url}/{path}"
        known = re.sub("probe-[0-9a-f]+", "probe", place)  # which each run calls otherwise
        first = known not in seen
        seen.add(known)
        done = put_new(store, path, data)
        if first and how == "lost" and "/lease/" not in path:
            msg = f"cannot write {place}"
            raise StoreError(msg, found="connection reset by peer")
        return False if first else done

    vars_of: Any = ObjectStore  # no option, and should not be one
    vars_of.put_new = losing


def deliver(spark: SparkSession, task: dict[str, Any], observe: Observer, consumer: str) -> Any:
    """Deliver to one consumer, as often as it may be tried; a run that finds no state has no report."""
    import mirrorlib
    from mirrorlib.errors import MirrorError

    def told(event: Any) -> None:
        observe(replace(event, table=consumer))

    options = task["exports"][consumer]
    for left in reversed(range(task.get("tries", 1))):
        try:
            report = mirrorlib.export(
                spark, task["target"], consumer=consumer, observe=told, **options
            )
        except MirrorError:
            if not left:
                raise
        else:
            if report.ok or not left:
                return report
    raise AssertionError


def main(task: dict[str, Any]) -> int:
    """Do what the task says."""
    import mirrorlib

    shared = task.get("shared")
    conf = {**LITTLE, "spark.driver.extraJavaOptions": task["java"]}
    spark = attach(shared) if shared else mirrorlib.local_spark(cores=2, memory="2g", conf=conf)
    let_nobody_configure(spark)
    observe = Observer(task.get("park", {}), whole=task.get("whole", False))
    watch_writes(observe)
    if "lose" in task:
        lose_answers(task["lose"])
    tell("ready")
    if task.get("wait"):
        sys.stdin.readline()
    with ThreadPoolExecutor(len(task["exports"])) as pool:
        reports = list(pool.map(partial(deliver, spark, task, observe), task["exports"]))
    ok = all(report.ok for report in reports)
    tell("report", ok=ok, text="\n".join(map(str, reports)))
    if not shared:
        spark.stop()
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main(json.loads(sys.argv[1])))
