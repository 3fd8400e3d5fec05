"""Read Delta tables as other tools do, each by its own library: what docs/readers.md says is what they did here.

In: `{"reader": name, "tables": {kind: path}}` as the script's one argument. Out: JSON, the reader with its version, and for
what it was asked and each kind how many rows it gave and a digest of them, or the first line of what it said instead. It
runs by itself, in the environment that has the reader: nothing of the package is needed but for `Spark`, which starts its
session. Order is not compared.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Read = Callable[[str], Iterable[Iterable[object]]]
Answers = dict[str, dict[str, str]]
WHAT_CHANGED = ("_change_type", "_commit_version")
_LONGEST = 240  # of what a reader says


def digest(rows: Iterable[Iterable[object]]) -> str:
    """Tell rows apart from others, in whatever order they come."""
    texts = sorted(json.dumps([*row], default=str) for row in rows)
    return f"{len(texts)} rows {hashlib.sha256(''.join(texts).encode()).hexdigest()[:8]}"


def answer(read: Read, path: str) -> str:
    """Give the digest of what a reader reads, or what it says."""
    try:
        return digest(read(path))
    except Exception as exc:  # noqa: BLE001  # whatever it is, that is the answer
        said = getattr(exc, "java_exception", exc)
        line = next(line for line in str(said).splitlines() if line.strip())
        return f"{type(exc).__name__}: {line.replace(path, 'TABLE')[:_LONGEST]}"


def spark(session: SparkSession) -> dict[str, Read]:
    """Read by Spark, rows and Delta's own change feed."""

    def rows(path: str) -> Iterable[Iterable[object]]:
        return session.read.format("delta").load(path).collect()

    def changes(path: str) -> Iterable[Iterable[object]]:
        reader = session.read.format("delta").option("readChangeFeed", "true")
        return reader.option("startingVersion", 0).load(path).drop("_commit_timestamp").collect()

    return {"rows": rows, "changes": changes}


def kernel(session: SparkSession) -> dict[str, Read]:
    """Read by Delta Kernel for Java, which comes with Delta's jars."""
    engine_of = session._jvm.io.delta.kernel.defaults.engine.DefaultEngine
    tools = session._jvm.io.delta.kernel.internal

    def rows(path: str) -> Iterable[Iterable[object]]:
        engine = engine_of.create(session._jsc.hadoopConfiguration())
        table = session._jvm.io.delta.kernel.Table.forPath(engine, path)
        scan = table.getLatestSnapshot(engine).getScanBuilder().build()
        state = scan.getScanState(engine)
        wanted = tools.data.ScanStateRow.getPhysicalDataReadSchema(state)
        kinds = [field.getDataType().toString() for field in scan_fields(tools, state)]
        for file in each(tools.util.Utils.intoRows(scan.getScanFiles(engine))):
            status = tools.InternalScanFileUtils.getAddFileStatus(file)
            of_one = tools.util.Utils.singletonCloseableIterator
            none = session._jvm.java.util.Optional.empty()
            for part in each(
                engine.getParquetHandler().readParquetFiles(of_one(status), wanted, none)
            ):
                turned = session._jvm.io.delta.kernel.Scan.transformPhysicalData(
                    engine, state, file, of_one(part.getData())
                )
                for row in each(tools.util.Utils.intoRows(turned)):
                    yield [_value(row, at, kind) for at, kind in enumerate(kinds)]

    return {"rows": rows}


def scan_fields(tools: Any, state: Any) -> Iterable[Any]:
    """Give the columns that a scan of the kernel has."""
    return tools.data.ScanStateRow.getLogicalSchema(state).fields()


def each(iterator: Any) -> Iterable[Any]:
    """Go through a Java iterator."""
    while iterator.hasNext():
        yield iterator.next()


def _value(row: Any, at: int, kind: str) -> object:
    if row.isNullAt(at):
        return None
    if kind == "timestamp_ntz":
        return datetime(1970, 1, 1) + timedelta(microseconds=row.getLong(at))
    return row.getInt(at) if kind == "integer" else row.getLong(at)


def delta_rs(path: str) -> Iterable[Iterable[object]]:
    """Read by delta-rs's own engine."""
    from deltalake import DeltaTable, QueryBuilder

    return _turned(
        QueryBuilder().register("t", DeltaTable(path)).execute("SELECT * FROM t").read_all()
    )


def delta_rs_changes(path: str) -> Iterable[Iterable[object]]:
    """Read the change feed by delta-rs."""
    import pyarrow as pa
    from deltalake import DeltaTable

    found = pa.table(DeltaTable(path).load_cdf(starting_version=0).read_all())
    names = [name for name in found.column_names if not name.startswith("_")]
    return _turned(found.select([*names, *WHAT_CHANGED]))


def delta_rs_dataset(path: str) -> Iterable[Iterable[object]]:
    """Read by the dataset that delta-rs makes for pyarrow, on which others build."""
    from deltalake import DeltaTable

    return _turned(DeltaTable(path).to_pyarrow_dataset().to_table())


def pandas(path: str) -> Iterable[Iterable[object]]:
    """Read into pandas."""
    from deltalake import DeltaTable

    return DeltaTable(path).to_pandas().to_numpy().tolist()


def polars(path: str) -> Iterable[Iterable[object]]:
    """Read by polars."""
    import polars as pl

    return pl.scan_delta(path).collect().rows()


def duckdb(path: str) -> Iterable[Iterable[object]]:
    """Read by DuckDB, whose extension for Delta is a package, too."""
    import duckdb as db
    import duckdb_ext

    place = next(Path(duckdb_ext.__path__[0]).rglob("delta.duckdb_extension"))
    with db.connect() as connection:
        connection.execute(f"LOAD '{place}'")
        return connection.execute("SELECT * FROM delta_scan(?)", [path]).fetchall()


ALONE: Mapping[str, Mapping[str, Read]] = {
    "deltalake": {"rows": delta_rs, "changes": delta_rs_changes},
    "deltalake's pyarrow dataset": {"rows": delta_rs_dataset},
    "pandas, by deltalake": {"rows": pandas},
    "polars": {"rows": polars},
    "DuckDB": {"rows": duckdb},
}
# What has to be installed for them, the one whose version counts first.
NEEDED = {
    "deltalake": ("deltalake", "pyarrow"),
    "deltalake's pyarrow dataset": ("deltalake", "pyarrow"),
    "pandas, by deltalake": ("deltalake", "pyarrow", "pandas"),
    "polars": ("polars", "deltalake"),
    "DuckDB": ("duckdb", "duckdb_ext"),
    "Spark": ("pyspark", "delta"),
}


def _turned(table: Any) -> Iterable[Iterable[object]]:
    """Give the rows of an Arrow table, whichever library's."""
    import pyarrow as pa

    return [tuple(row.values()) for row in pa.table(table).to_pylist()]


def ask(ways: Mapping[str, Read], tables: Mapping[str, str]) -> dict[str, dict[str, str]]:
    """Let one reader read every table."""
    return {
        what: {kind: answer(read, path) for kind, path in tables.items()}
        for what, read in ways.items()
    }


def ask_alone(reader: str, tables: Mapping[str, str]) -> dict[str, dict[str, str]]:
    """Let a reader read every table, which for Spark means to start it first."""
    if reader != "Spark":
        return ask(ALONE[reader], tables)
    import mirrorlib
    from little import LITTLE

    session = mirrorlib.local_spark(cores=2, memory="1g", conf=LITTLE)
    try:
        return ask(spark(session), tables)
    finally:
        session.stop()


def named(reader: str, package: str) -> str:
    """Name a reader with its version."""
    return f"{reader} {version(package)}"


def main(task: Mapping[str, Any]) -> None:
    """Read, and print what came of it."""
    reader = task["reader"]
    answers = ask_alone(reader, task["tables"])
    told = {"reader": named(reader, NEEDED[reader][0]), "answers": answers}
    print(json.dumps(told))  # noqa: T201  # the answer


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
