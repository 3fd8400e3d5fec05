"""The other side: what the documentation everywhere shows and users run today.

`row_number()` over the key keeps the last change, then one MERGE with delete, update and insert
clauses; Delta's and Spark's defaults (200 shuffle partitions, no deletion vectors), feed on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from data import COLUMNS, MARKER
from pyspark.sql import Window
from pyspark.sql import functions as f

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from pyspark.sql import SparkSession


def default_session(spark: SparkSession, shuffle_partitions: int = 200) -> SparkSession:
    """Return a session with the defaults that `local_spark` changes put back."""
    session = spark.newSession()
    session.conf.set("spark.sql.shuffle.partitions", str(shuffle_partitions))
    session.conf.set("spark.databricks.delta.snapshotPartitions", "50")
    session.conf.set("spark.sql.session.timeZone", "UTC")
    return session


def create_table(spark: SparkSession, path: Path, files: Sequence[Path], *, vectors: bool) -> None:
    """Copy Parquet files into a Delta table with its feed on, without their markers."""
    rows = spark.read.parquet(*map(str, files)).drop(MARKER)
    writer = rows.write.format("delta").option("delta.enableChangeDataFeed", "true")
    writer.option("delta.enableDeletionVectors", str(vectors).lower()).save(str(path))


def merge_files(spark: SparkSession, path: Path, files: Sequence[Path]) -> None:
    """Apply change files to a Delta table; files without a marker column are inserts."""
    changes = spark.read.parquet(*map(str, files))
    if MARKER not in changes.columns:
        changes = changes.withColumn(MARKER, f.lit(0))
    newest = Window.partitionBy("id").orderBy(f.desc("_place"))
    changes = changes.withColumn("_place", f.monotonically_increasing_id())
    changes.withColumn("_rank", f.row_number().over(newest)).where(
        "_rank = 1"
    ).createOrReplaceTempView("changes")
    columns = ", ".join(COLUMNS)
    spark.sql(
        f"MERGE INTO delta.`{path}` t USING changes s ON t.id = s.id "
        f"WHEN MATCHED AND s.{MARKER} = 2 THEN DELETE "
        f"WHEN MATCHED THEN UPDATE SET {', '.join(f't.{name} = s.{name}' for name in COLUMNS)} "
        f"WHEN NOT MATCHED AND s.{MARKER} <> 2 THEN INSERT ({columns}) "
        f"VALUES ({', '.join(f's.{name}' for name in COLUMNS)})"
    )
