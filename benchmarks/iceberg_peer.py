"""Iceberg's side: a process that loads tables and merges change files on demand, a JSON line each.

Runs in an environment of its own with the newest Spark that Iceberg supports. In: ["merge", TABLE, FILE] on standard
input. Out: "answer JSON" on standard output.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import pyspark
from data import COLUMNS, MARKER
from pyspark.sql import SparkSession

ICEBERG = "1.12.0"
_PACKAGE = f"org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:{ICEBERG}"
_PROPERTIES = ", ".join(
    f"'{name}' = '{value}'"
    for name, value in {
        "format-version": "3",
        "write.merge.mode": "merge-on-read",
        "write.update.mode": "merge-on-read",
        "write.delete.mode": "merge-on-read",
    }.items()
)


def start(folder: str) -> SparkSession:
    """Start a session like the benchmarks' own: two cores, the same heap."""
    settings = {
        "spark.driver.memory": "6g",
        "spark.ui.enabled": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.jars.packages": _PACKAGE,
        "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        "spark.sql.catalog.ice": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.ice.type": "hadoop",
        "spark.sql.catalog.ice.warehouse": folder,
    }
    builder = SparkSession.builder.master("local[2]").appName("iceberg")
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


class Tables:
    """Tables by name, and the snapshot that each was loaded as."""

    def __init__(self, spark: SparkSession) -> None:
        self.spark = spark
        self.loaded: dict[str, int] = {}

    def load(self, name: str, *files: str) -> None:
        """Make a table of Parquet files."""
        self.spark.sql(f"DROP TABLE IF EXISTS ice.db.`{name}` PURGE")
        self.spark.read.parquet(*files).createOrReplaceTempView("load")
        self.spark.sql(
            f"CREATE TABLE ice.db.`{name}` USING iceberg TBLPROPERTIES ({_PROPERTIES}) AS SELECT * FROM load"
        )
        snapshots = (
            f"SELECT snapshot_id FROM ice.db.`{name}`.snapshots ORDER BY committed_at DESC LIMIT 1"
        )
        self.loaded[name] = self.spark.sql(snapshots).collect()[0][0]

    def begin(self, name: str) -> None:
        """Roll back to what was loaded."""
        self.spark.sql(f"CALL ice.system.rollback_to_snapshot('db.`{name}`', {self.loaded[name]})")

    def merge(self, name: str, file: str) -> None:
        """Merge a change file; its keys are each there once."""
        self.spark.read.parquet(file).createOrReplaceTempView("changes")
        columns = ", ".join(COLUMNS)
        self.spark.sql(
            f"MERGE INTO ice.db.`{name}` t USING changes s ON t.id = s.id "
            f"WHEN MATCHED AND s.{MARKER} = 2 THEN DELETE "
            f"WHEN MATCHED THEN UPDATE SET {', '.join(f't.{one} = s.{one}' for one in COLUMNS)} "
            f"WHEN NOT MATCHED AND s.{MARKER} <> 2 THEN INSERT ({columns}) "
            f"VALUES ({', '.join(f's.{one}' for one in COLUMNS)})"
        )

    def digest(self, name: str) -> tuple[int, str]:
        """Return row count and checksum, as the benchmarks compute them of Delta tables."""
        names = ", ".join(f"`{one}`" for one in COLUMNS)
        sums = f"count(*), sum(cast(xxhash64({names}) AS decimal(38, 0)))"
        count, checksum = self.spark.sql(f"SELECT {sums} FROM ice.db.`{name}`").collect()[0]
        return count, str(checksum)


def answer(value: Any) -> None:  # noqa: ANN401  # whatever JSON has
    """Say that it is done."""
    print("answer", json.dumps(value), flush=True)


def main() -> None:
    """Answer until nobody asks."""
    spark = start(sys.argv[1])
    tables = Tables(spark)
    answer(f"Iceberg {ICEBERG}, Spark {pyspark.__version__}")
    for line in sys.stdin:
        verb, *words = json.loads(line)
        answer(getattr(tables, verb)(*words))
    spark.stop()


if __name__ == "__main__":
    main()
