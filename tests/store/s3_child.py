"""Publish files into a bucket and apply each, in a process whose Spark has S3's connector.

Run by the tests with one argument, a JSON object: zone, target, files (each a list of rows). The last
line of its standard output is a JSON object: the table's rows and its change feed.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import pyarrow as pa

import mirrorlib
from mirrorlib.ingest.batch import open_batch as prepare


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
    sys.stdout.write(json.dumps({"rows": held, "feed": changes}) + "\n")
    spark.stop()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
