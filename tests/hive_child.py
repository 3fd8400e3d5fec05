"""A process of its own against a Hive catalog whose metastore outlives it: `hive_child.py FOLDER METASTORE STEP...`.

Each step is a line of JSON: what a function of this module returned.
"""

from __future__ import annotations

import json
import os
import sys
import time
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

import mirrorlib
from little import LITTLE, SHORT_LIVED

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame, SparkSession

FOLDER, METASTORE = Path(sys.argv[1]), sys.argv[2]
MEETINGS, PATIENCE = count(), 300.0
STATE = {"catalog": "spark_catalog", "state": str(FOLDER / "state")}


def session() -> SparkSession:
    """Start Spark on the metastore."""
    conf = {
        **LITTLE,
        "spark.driver.extraJavaOptions": SHORT_LIVED,
        "spark.sql.catalogImplementation": "hive",
        "spark.sql.warehouse.dir": f"{FOLDER}/warehouse",
        "spark.hadoop.hive.metastore.uris": METASTORE,
    }
    return mirrorlib.local_spark(conf=conf)


def schemas(spark: SparkSession) -> None:
    """Make four, one of them at a place of its own."""
    spark.sql(f"CREATE SCHEMA bronze LOCATION '{FOLDER}/elsewhere/bronze'")
    for name in ("silver", "outer", "gold"):
        spark.sql(f"CREATE SCHEMA {name}")


def meet(_spark: SparkSession) -> None:
    """Go on at the moment at which the other process comes here too, which does so as many times."""
    mine = f"meeting-{next(MEETINGS)}"
    (FOLDER / f"{mine}-{os.getpid()}").touch()
    end = time.monotonic() + PATIENCE
    while len([*FOLDER.glob(f"{mine}-*")]) < 2:
        assert time.monotonic() < end, "the other one did not come"
        time.sleep(0.01)


def apply(spark: SparkSession) -> dict[str, str]:
    """Apply the zone; give each table's state, or why it is not current."""
    report = mirrorlib.apply(spark, FOLDER / "zone", "bronze", max_files=1, **STATE)
    return {table.table: table.reason or table.state for table in report.tables}


def derive(spark: SparkSession) -> list[str]:
    """Keep a table of another schema that is derived of the mirror; give how."""

    def large(orders: DataFrame) -> DataFrame:
        return orders.where("n > 1").withColumnRenamed("Größe", "g")

    names = ["spark_catalog.bronze.orders"], large, "spark_catalog.silver.Large"
    try:
        report = mirrorlib.derive(spark, "Large", *names, state=str(FOLDER / "derived"))
    except mirrorlib.TableBusyError:
        return ["busy"]
    return [report.how]


def export(spark: SparkSession) -> dict[str, str]:
    """Copy the mirrors to the other schema; give each one's state, or why it failed."""
    report = mirrorlib.export(
        spark, "bronze", consumer="c", to="delta:spark_catalog.silver", mode="current", **STATE
    )
    return {t.table: t.reason if t.state == "failed" else t.state for t in report.tables}


def register(spark: SparkSession) -> str:
    """Mirror the items at a path, and make the table there an external one of a schema; give its type."""
    mirrorlib.apply(spark, FOLDER / "zone", FOLDER / "lake", tables=["items"])
    spark.sql(f"CREATE TABLE outer.Items USING delta LOCATION '{FOLDER}/lake/items'")
    told = spark.sql("DESCRIBE TABLE EXTENDED outer.items").collect()
    return next(row["data_type"] for row in told if row["col_name"] == "Type")


def move(spark: SparkSession) -> dict[str, str]:
    """Let the mirror go on in that table, by its name."""
    state = FOLDER / "lake/_mirrorlib"
    told = json.loads((state / "state.json").read_text())
    (state / "state.json").write_text(json.dumps({**told, "target": "spark_catalog.outer"}))
    place = {"catalog": "spark_catalog", "state": str(state), "tables": ["items"]}
    report = mirrorlib.apply(spark, FOLDER / "zone", "outer", **place)
    return {table.table: table.reason or table.state for table in report.tables}


def carry(spark: SparkSession) -> list[str]:
    """Derive a table of the external one, and copy that; give how, and the copy's state."""
    state = {"catalog": "spark_catalog", "state": str(FOLDER / "carried")}
    target = "spark_catalog.gold.Positive"
    derived = mirrorlib.derive(
        spark,
        "positive",
        ["spark_catalog.outer.items"],
        lambda items: items.where("Id > 0"),
        target,
        state=state["state"],
    )
    to = "delta:spark_catalog.gold"
    report = mirrorlib.export(spark, "outer", consumer="d", to=to, mode="current", **state)
    return [derived.how, *(table.state for table in report.tables)]


def rows(spark: SparkSession) -> dict[str, list[Sequence[object]]]:
    """Read every table."""
    names = [
        f"{schema}.{table.tableName}"
        for schema in ("bronze", "silver", "outer", "gold")
        for table in spark.sql(f"SHOW TABLES IN {schema}").collect()
    ]
    return {name: sorted(map(list, spark.table(name).collect())) for name in names}


def drop(spark: SparkSession) -> None:
    """Drop a mirror behind mirrorlib's back."""
    spark.sql("DROP TABLE bronze.orders")


def reset(spark: SparkSession) -> None:
    """Start it over."""
    mirrorlib.reset(spark, "bronze", "dbo/Orders", **STATE)


def main() -> None:
    """Take the steps."""
    spark = session()
    steps = (schemas, meet, apply, derive, export, register, move, carry, rows, drop, reset)
    known = {step.__name__: step for step in steps}
    for name in sys.argv[3:]:
        sys.stdout.write(f"step {json.dumps(known[name](spark))}\n")


if __name__ == "__main__":
    main()
