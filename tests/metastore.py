"""A Hive metastore as a service of its own: sessions come and go, and several share it at once.

It is of the jars that PySpark brings; Derby, of which one process alone may have a folder, is inside it.
"""

from __future__ import annotations

import contextlib
import socket
import subprocess
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

_PATIENCE = 180.0  # seconds until one that does not answer is given up
_SETTINGS = (
    "datanucleus.schema.autoCreateAll=true",
    "hive.metastore.schema.verification=false",
    "hive.metastore.server.min.threads=4",
)
# Hive would have Log4j write by a library that Spark does not bring.
_LOGGING = "-Dlog4j2.contextSelector=org.apache.logging.log4j.core.selector.BasicContextSelector"


@contextlib.contextmanager
def running_metastore(folder: Path) -> Iterator[str]:
    """Start one that keeps what it knows in a folder; give its address, and see to its end."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    spark = find_spec("pyspark")
    assert spark is not None
    assert spark.origin is not None
    place = (
        f"javax.jdo.option.ConnectionURL=jdbc:derby:;databaseName={folder}/metastore;create=true"
    )
    command = [
        *("java", "-Xmx320m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", _LOGGING),
        *("-cp", f"{Path(spark.origin).parent}/jars/*"),
        *("org.apache.hadoop.hive.metastore.HiveMetaStore", "-p", str(port)),
        *(word for setting in (*_SETTINGS, place) for word in ("--hiveconf", setting)),
    ]
    log = folder / "metastore.log"
    with log.open("wb") as said:
        process = subprocess.Popen(command, stdout=said, stderr=said, cwd=folder)
    try:
        _wait(process, port, log)
        yield f"thrift://127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()


def _wait(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    """Wait until it answers."""
    end = time.monotonic() + _PATIENCE
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            assert process.poll() is None, log.read_text()[-3000:]
            assert time.monotonic() < end, log.read_text()[-3000:]
            time.sleep(0.1)
        else:
            return
