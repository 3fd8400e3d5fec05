"""Build a local Spark session with Delta: the only place in the package that builds one.

In: a few numbers and confs. Out: a session on this machine, in UTC, with Delta, that says nothing
on the console. Clusters and notebooks bring a session of their own; everything else takes it as its
first argument.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from mirrorlib.delta.sessions import READS_FEEDS
from mirrorlib.delta.trouble import tell_trouble
from mirrorlib.errors import LandingZoneError, LocalSparkError
from mirrorlib.extras import how_to_install

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OLDEST_JAVA = 17

_HADOOP = re.compile(r"hadoop-client-api-([0-9.]+)\.jar")
_MODULES = {
    "s3": "hadoop-aws",
    "s3a": "hadoop-aws",
    "abfs": "hadoop-azure",
    "abfss": "hadoop-azure",
}
_PLATFORMS = ("DATABRICKS_RUNTIME_VERSION", "PYSPARK_GATEWAY_PORT", "SPARK_REMOTE")
_INSTALL_JAVA = (
    f"Install Java {OLDEST_JAVA} or newer "
    "(Debian, Ubuntu: apt-get install openjdk-17-jre-headless; macOS: brew install openjdk@17), "
    "and let JAVA_HOME, where it is set, be that one's."
)


def local_spark(
    *,
    cores: int | None = None,
    memory: str = "2g",
    conf: Mapping[str, str] | None = None,
    stores: Sequence[str] = (),
) -> SparkSession:
    """Start, or give back, a local Spark session that reads and writes Delta tables.

    The first start on a machine downloads Delta's jars (about 90 MB) from Maven Central and keeps
    them. What other threads print while it starts is not shown, as what Java says is not.

    Args:
        cores: How many cores it may use; all of this machine's by default.
        memory: The heap of its one Java process.
        conf: More Spark confs; they win over the ones chosen here.
        stores: URLs that it has to reach, such as `s3://bucket`: Spark's connectors for them come along,
            half a gigabyte the first time.

    Raises:
        LocalSparkError: pyspark, delta-spark or Java is missing, naming what to install; or Spark does not start.
    """
    _require_packages_and_java()
    from delta import configure_spark_with_delta_pip  # an extra
    from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]  # comes with PySpark
    from pyspark.errors import PySparkRuntimeError  # an extra
    from pyspark.sql import SparkSession  # an extra

    # Else its workers are whatever `python3` is on the PATH: not this one where an environment is not activated.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable or "python3")
    cores = cores or os.cpu_count() or 1
    builder = SparkSession.builder.appName("mirrorlib").master(f"local[{cores}]")
    packages, reach = connectors_for(*stores)
    builder = builder.config(map={**_confs(cores, memory), **reach, **(conf or {})})
    with _java_output() as said:
        try:
            return configure_spark_with_delta_pip(builder, packages).getOrCreate()
        except PySparkRuntimeError as exc:
            msg = "Java started, but Spark did not"
            raise LocalSparkError(msg, next_step=_last_words(said)) from exc
        except Py4JJavaError as exc:
            told = tell_trouble(exc, "start")
            raise LocalSparkError(told.reason, found=told.found, next_step=told.next_step) from exc


def platform_spark() -> SparkSession | None:
    """Return the session of the platform that this process was started by, None on a machine of one's own.

    A Databricks task has its runtime's variable, a Spark application a gateway, and a client of Spark
    Connect the address of its server.
    """
    if not any(os.environ.get(name) for name in _PLATFORMS):
        return None
    from pyspark.sql import SparkSession  # an extra, which a platform brings

    return SparkSession.builder.getOrCreate()


def has_spark() -> bool:
    """Say whether this process has a session already, which it brought or a caller has made."""
    sql = sys.modules.get("pyspark.sql")
    return sql is not None and sql.SparkSession.getActiveSession() is not None


def refuse_passing_catalog(spark: SparkSession, catalog: str) -> None:
    """See that a catalog outlives a session that ends with its process."""
    lasts = spark.conf.get(f"spark.sql.catalog.{catalog}", None) is not None
    if catalog.lower() == "spark_catalog":
        lasts = spark.conf.get("spark.sql.catalogImplementation", "in-memory") != "in-memory"
    if not lasts:
        msg = "the Spark that is started on this machine has no such catalog that outlives it"
        step = "Give a path as the target, without --catalog."
        raise LandingZoneError(msg, found=f"--catalog {catalog}", next_step=step)


def _confs(cores: int, memory: str) -> dict[str, str]:
    os.umask(mask := os.umask(0o077))  # there is no other way to ask for it
    return {
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.sql.session.timeZone": "UTC",
        **READS_FEEDS,
        "spark.driver.memory": memory,
        # Nothing outside this machine has any business with it, and odd host names cannot break it.
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        # Otherwise `${env:HOME}` in a name would be replaced inside SQL, quoted or not.
        "spark.sql.variable.substitute": "false",
        # Delta's log files need no checksum files beside them, for each of which Hadoop forks a chmod.
        "spark.hadoop.fs.AbstractFileSystem.file.impl": "org.apache.hadoop.fs.local.RawLocalFs",
        # Delta's usual way to its log forks a readlink for every path it renames: a quarter of a small
        # commit. This one keeps the same promise, and neither keeps two processes apart: that is our lock's.
        "spark.delta.logStore.file.impl": "io.delta.storage.LocalLogStore",
        # Java's own is not asked: Hadoop gives each file and folder the rights that its default of 022 leaves.
        "spark.hadoop.fs.permissions.umask-mode": f"{mask:03o}",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        # Every failure comes back as an exception; logging it as well would print it three times.
        "spark.log.level": "FATAL",
        # Spark's default of 200 and Delta's of 50 are for clusters: on one machine they are all
        # overhead.
        "spark.sql.shuffle.partitions": str(max(2, cores)),
        "spark.databricks.delta.snapshotPartitions": "2",
        # VACUUM lists a table's folders by so many tasks; Spark's 10,000 take two cores 40 seconds.
        "spark.sql.sources.parallelPartitionDiscovery.parallelism": str(max(2, cores)),
        # Of Spark's default of 100 compiled queries a large merge takes most: with another one in between,
        # Java would begin to compile it anew each time.
        "spark.sql.codegen.cache.maxEntries": "2000",
        # Delta keeps the state of every table it has seen for an hour, up to 10,000 of them: more than
        # a small heap holds when a zone has a thousand tables.
        "spark.databricks.delta.delta.log.cacheSize": "100",
    }


def connectors_for(*urls: str) -> tuple[list[str], dict[str, str]]:
    """Choose the Maven packages and confs that a local Spark needs to reach the stores of URLs; local paths need none.

    Spark has connectors of its own, which PySpark leaves out; everything else here goes through obstore. Both are
    opened by the same environment variables (`AWS_ACCESS_KEY_ID`, `AWS_SECRET_ACCESS_KEY`, `AWS_REGION`,
    `AWS_ENDPOINT_URL` …): credentials are never copied into a conf, where an event log would show them. The packages
    have the version of PySpark's own Hadoop, which they have to match, unless they lie among its jars already.
    """
    # A receiver's URL has its kind before the place's: delta:s3://…
    schemes = {url.partition("://")[0].rpartition(":")[2].lower() for url in urls if "://" in url}
    modules = sorted({_MODULES[scheme] for scheme in schemes if scheme in _MODULES})
    if not modules:
        return [], {}
    import pyspark  # an extra

    jars = [path.name for path in (Path(pyspark.__file__).parent / "jars").glob("hadoop-*.jar")]
    version = next((known[1] for jar in jars if (known := _HADOOP.fullmatch(jar))), None)
    packages = [
        f"org.apache.hadoop:{module}:{version}"
        for module in modules
        if version is not None and not any(jar.startswith(f"{module}-") for jar in jars)
    ]
    conf = {}
    if "hadoop-aws" in modules:  # Spark's connector does not read these of the environment
        if endpoint := os.environ.get("AWS_ENDPOINT_URL") or os.environ.get("AWS_ENDPOINT"):
            conf["spark.hadoop.fs.s3a.endpoint"] = endpoint
            conf["spark.hadoop.fs.s3a.path.style.access"] = "true"
        if region := os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION"):
            conf["spark.hadoop.fs.s3a.endpoint.region"] = region
    return packages, conf


def _require_packages_and_java() -> None:
    """Refuse what is missing or too old before Spark does so in a page of text."""
    missing = [name for name in ("pyspark", "delta") if importlib.util.find_spec(name) is None]
    if missing:
        msg = f"the Python package {' and '.join(missing)} is not installed"
        raise LocalSparkError(msg, next_step=how_to_install("local"))
    if (version := java_version() or 0) < OLDEST_JAVA:
        msg, found = f"this machine has no Java {OLDEST_JAVA} or newer", f"Java {version}"
        raise LocalSparkError(msg, found=found if version else None, next_step=_INSTALL_JAVA)


def java_version() -> int | None:
    """Tell the major version of the Java that Spark would start: 17; None when there is none."""
    home = os.environ.get("JAVA_HOME")  # where spark-submit looks first
    java = str(Path(home, "bin", "java")) if home else shutil.which("java")
    if java is None:
        return None
    try:
        said = subprocess.run(  # noqa: S603  # Spark runs the same command
            [java, "-version"], capture_output=True, text=True, check=False
        )
    except OSError:
        return None
    found = re.search(r'version "(?:1\.)?(\d+)', said.stderr)  # Java 8 calls itself 1.8
    return int(found[1]) if found else None


@contextmanager
def _java_output() -> Iterator[list[bytes]]:
    """Keep what Java says while it starts off the console; pass on what it says later.

    The Java process inherits our standard output and error for life. So both are a pipe while it is
    started, and a thread reads the pipe: into the list that this yields until the block ends, from
    then on to the real standard error. Never to standard output: that is the program's own.
    """
    said: list[bytes] = []
    started = threading.Event()
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    reals = os.dup(1), os.dup(2)
    reading, writing = os.pipe()

    def pump() -> None:
        with os.fdopen(reading, "rb", buffering=0) as pipe:
            while chunk := pipe.read(65536):
                if started.is_set():
                    os.write(reals[1], chunk)
                else:
                    said.append(chunk)
        for real in reals:
            os.close(real)

    for place in (1, 2):
        os.dup2(writing, place)
    os.close(writing)
    threading.Thread(target=pump, name="java-output", daemon=True).start()
    locale = os.environ.get("LC_ALL")
    if locale in {"C", "POSIX"}:  # Java would write `?` for `é` in names of files
        os.environ["LC_ALL"] = "C.UTF-8"
    try:
        yield said
    finally:
        if locale is not None:
            os.environ["LC_ALL"] = locale
        for place, real in enumerate(reals, start=1):
            os.dup2(real, place)
        started.set()


def _last_words(said: list[bytes]) -> str:
    """Give the lines of Java's start that tell why it failed."""
    lines = b"".join(said).decode(errors="replace").splitlines()
    wrong = re.compile(r"error|exception|unresolved|not found|unable", re.IGNORECASE)
    telling = [line.strip().rstrip(".") for line in lines if wrong.search(line)]
    words = " | ".join(telling[:5]) or "nothing"
    lacks_jars = re.search("unresolved|not found", words, re.IGNORECASE)
    step = " Delta's jars come from Maven Central: is it in reach?" if lacks_jars else ""
    return f"It said: {words}.{step}"
