"""Publish files into a bucket and apply each, in a process whose Spark has S3's connector.

Run by the tests with one argument, a JSON object: zone, target, files (each a list of rows). The last
line of its standard output is a JSON object: the table's rows and its change feed.
"""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

import pyarrow as pa

import mirrorlib
from mirrorlib.ingest.batch import open_batch as prepare
from mirrorlib.store import open_store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def main(task: dict[str, Any]) -> None:
    """Do what the task says; the last file takes the large road."""
    conf = {"spark.sql.shuffle.partitions": "2", "spark.sql.codegen.wholeStage": "false"}
    spark = mirrorlib.local_spark(cores=2, conf=conf, stores=[task["zone"]])
    table = mirrorlib.LandingZoneWriter(task["zone"]).table("dbo/orders", keys="id")
    for place, rows in enumerate(task["files"]):
        table.write(pa.Table.from_pylist(rows))
        if place == len(task["files"]) - 1:
            vars(prepare)["SMALL_BYTES"] = -1
        report = mirrorlib.apply(spark, task["zone"], task["target"])
        if not report.ok:
            raise SystemExit(str(report))
    path = f"{task['target'].replace('s3://', 's3a://')}/dbo/orders"
    reader = spark.read.format("delta")
    held = [row.asDict() for row in reader.load(path).collect()]
    feed = reader.option("readChangeFeed", "true").option("startingVersion", 0).load(path)
    changes = [row.asDict() for row in feed.drop("_commit_timestamp").collect()]
    begin_anew(spark, task)
    sys.stdout.write(json.dumps({"rows": held, "feed": changes}) + "\n")
    spark.stop()


def begin_anew(spark: SparkSession, task: dict[str, Any]) -> None:
    """Remove the table from the zone, so that it is dropped, and publish it again: nothing of it is in the way."""
    writer, rows = mirrorlib.LandingZoneWriter(task["zone"]), pa.table({"id": [1]})
    writer.table("items").write(rows)
    open_store(task["zone"]).delete_folder("dbo.schema/orders")
    for makes in (True, False):
        report = mirrorlib.apply(spark, task["zone"], task["target"], on_gone="drop")
        left = open_store(task["target"]).list_folder("dbo/orders/_delta_log")
        if not report.ok or (left is None) != makes:
            raise SystemExit(str(report))
        if makes:
            writer.table("dbo/orders", keys="id").write(rows)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
