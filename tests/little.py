"""How Spark is started for tables of a few rows, in the tests' own session and in their children."""

from __future__ import annotations

import contextlib
import io
import os
import sys
from collections.abc import Sequence

from mirrorlib.cli.main import make_parser

# Tables of a few rows: compiling a query takes longer than running it. The demo, the commands that run
# as processes and the benchmarks, which compare checksums, run as users do.
LITTLE = {
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.datetime.java8API.enabled": "false",  # as platforms have it, and `local_spark` has not
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    # Each task that reads a table's state compiles all the same.
    "spark.databricks.delta.snapshotPartitions": "1",
    # Spark describes each query's plan for a page that nobody looks at; this takes the least of its time.
    "spark.sql.ui.explainMode": "simple",
    # Hadoop forks a chmod for every file and every checksum file beside it. Not for everybody: S3's
    # connector wants the checked file system.
    "spark.hadoop.fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
}
# `make cluster`: executors are processes of their own then, and share nothing with the driver but files.
if "MIRRORLIB_MASTER" in os.environ:
    LITTLE["spark.master"] = os.environ["MIRRORLIB_MASTER"]
    LITTLE["spark.executor.memory"] = "1g"

# A Java that lives for seconds spends most of them compiling what it hardly runs.
# It reserves a fifth of the usual room for code then, which many exporters at once would fill.
SHORT_LIVED = (
    "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m -XX:+UseSerialGC -XX:-UsePerfData"
)


def child_environment() -> dict[str, str]:
    """Let a child import what its parent can."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}


def understand(argv: Sequence[str]) -> str:
    """Say what is wrong with the arguments of a command, "" when it takes them."""
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said), contextlib.redirect_stdout(said):
            make_parser().parse_args(argv)
    except SystemExit:
        return said.getvalue().strip().rpartition("error: ")[2]
    return ""
