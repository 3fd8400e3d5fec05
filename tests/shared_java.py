"""One Java process for several Python processes: each of its own would compile the same code again.

A test run's workers share one, which is a third of the run's time; and so do runners that are killed at
random moments. Run as a script with one argument, `{"place": …, "memory": …, "java": …, "stores": […]}`: starts
Spark, writes `{"port": …, "secret": …}` to the file at the place, lives until its standard input ends.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from little import LITTLE, child_environment

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PLACE = "MIRRORLIB_TESTS_JAVA"  # the environment variable that tells workers where
_PATIENCE = 180.0  # seconds until Java counts as not coming


class SharedJava:
    """The process that holds Java, with whoever joins its group."""

    def __init__(self, *, memory: str, java: str = "", stores: Sequence[str] = ()) -> None:
        """Start it; what runs meanwhile need not wait.

        Args:
            memory: the heap.
            java: options of the Java process.
            stores: URLs that it has to reach.

        """
        self._folder = tempfile.TemporaryDirectory(prefix="mirrorlib-java-")
        self.place = Path(self._folder.name) / "gateway.json"
        task = {"place": str(self.place), "memory": memory, "java": java, "stores": [*stores]}
        self._process = subprocess.Popen(
            [sys.executable, __file__, json.dumps(task)],
            stdin=subprocess.PIPE,
            process_group=0,
            env=child_environment(),
        )

    @property
    def group(self) -> int:
        """Return the process group of Java and of all that joined it."""
        return self._process.pid

    def kill(self) -> None:
        """Kill the whole group at one instant."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.group, signal.SIGKILL)

    def stop(self) -> None:
        """End it, and see that it has ended."""
        self._process.communicate()
        self._folder.cleanup()


def attach(place: str) -> SparkSession:
    """Return a session of this process in the Java process that tells of itself at *place*: configuration and views of its own."""
    from pyspark import SparkConf, SparkContext
    from pyspark.java_gateway import launch_gateway
    from pyspark.sql import SparkSession

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # as `local_spark` does
    gateway_of = _await(Path(place))
    told = {
        "PYSPARK_GATEWAY_PORT": str(gateway_of["port"]),
        "PYSPARK_GATEWAY_SECRET": str(gateway_of["secret"]),
    }
    os.environ.update(told)
    try:
        gateway = launch_gateway()
    finally:
        for name in told:  # children start a Java of their own
            del os.environ[name]
    running = gateway.jvm.org.apache.spark.SparkContext.getOrCreate()
    jsc = gateway.jvm.JavaSparkContext.fromSparkContext(running)
    context = SparkContext(gateway=gateway, jsc=jsc, conf=SparkConf(_jconf=jsc.getConf()))
    return SparkSession(context).newSession()


@contextlib.contextmanager
def called_back(spark: SparkSession, place: str) -> Iterator[None]:
    """Let Java call this process alone: of those that share it, it calls the one that said so last."""
    from py4j.java_gateway import JavaObject
    from pyspark.java_gateway import ensure_callback_server_started

    gateway = spark.sparkContext._gateway
    with Path(place).with_suffix(".called").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        ensure_callback_server_started(gateway)
        server = JavaObject("GATEWAY_SERVER", gateway._gateway_client)
        address = server.getCallbackClient().getAddress()
        server.resetCallbackClient(address, gateway._python_proxy_port)
        yield


def _await(place: Path) -> dict[str, object]:
    end = time.monotonic() + _PATIENCE
    while not place.exists():
        if time.monotonic() > end:
            msg = "the shared Java process has not started; what it said is on the standard error"
            raise TimeoutError(msg)
        time.sleep(0.1)
    told: dict[str, object] = json.loads(place.read_text())
    return told


def main(task: dict[str, Any]) -> None:
    """Do what the task says."""
    import mirrorlib

    conf = {**LITTLE, "spark.driver.extraJavaOptions": task["java"]}
    if task["stores"]:
        del conf["spark.hadoop.fs.file.impl"]
    spark = mirrorlib.local_spark(cores=2, memory=task["memory"], conf=conf, stores=task["stores"])
    parameters = (
        spark.sparkContext._gateway.gateway_parameters
    )  # nothing public tells how to attach
    place = Path(task["place"])
    ready = place.with_suffix(".part")
    ready.write_text(json.dumps({"port": parameters.port, "secret": parameters.auth_token}))
    ready.rename(place)
    sys.stdin.read()
    spark.stop()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
