"""A process of its own against a Hive catalog whose metastore outlives it: `hive_child.py FOLDER STEP...`.

Each step is a line of JSON: what a function of this module returned.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import mirrorlib
from mirrorlib.platform.self_test import self_test as try_out

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame, SparkSession

FOLDER = Path(sys.argv[1])
STATE = {"catalog": "spark_catalog", "state": str(FOLDER / "state")}


def session() -> SparkSession:
    """Start Spark with a Hive metastore in Derby, in the folder."""
    place = f"jdbc:derby:;databaseName={FOLDER}/metastore;create=true"
    conf = {
        "spark.sql.catalogImplementation": "hive",
        "spark.sql.warehouse.dir": f"{FOLDER}/warehouse",
        "spark.hadoop.javax.jdo.option.ConnectionURL": place,
        "spark.hadoop.datanucleus.schema.autoCreateAll": "true",
        "spark.hadoop.hive.metastore.schema.verification": "false",
    }
    return mirrorlib.local_spark("hive", conf=conf)


def schemas(spark: SparkSession) -> None:
    """Make two, one of them at a place of its own."""
    spark.sql(f"CREATE SCHEMA bronze LOCATION '{FOLDER}/elsewhere/bronze'")
    spark.sql("CREATE SCHEMA silver")


def apply(spark: SparkSession) -> dict[str, str]:
    """Apply the zone; give each table's state, or why it is not current."""
    report = mirrorlib.apply(spark, FOLDER / "zone", "bronze", **STATE)
    return {table.table: table.reason or table.state for table in report.tables}


def derive(spark: SparkSession) -> list[str]:
    """Keep a table of another schema that is derived of the mirror; give how."""

    def large(orders: DataFrame) -> DataFrame:
        return orders.where("n > 1").withColumnRenamed("Größe", "g")

    names = ["spark_catalog.bronze.orders"], large, "spark_catalog.silver.Large"
    report = mirrorlib.derive(spark, "Large", *names, state=str(FOLDER / "derived"))
    return [report.how]


def export(spark: SparkSession) -> dict[str, str]:
    """Copy the mirrors to the other schema."""
    report = mirrorlib.export(
        spark, "bronze", consumer="c", to="delta:spark_catalog.silver", mode="current", **STATE
    )
    return {table.table: table.state for table in report.tables}


def rows(spark: SparkSession) -> dict[str, list[Sequence[object]]]:
    """Read every table of both schemas."""
    names = [
        f"{schema}.{table.tableName}"
        for schema in ("bronze", "silver")
        for table in spark.sql(f"SHOW TABLES IN {schema}").collect()
    ]
    return {name: sorted(map(list, spark.table(name).collect())) for name in names}


def drop(spark: SparkSession) -> None:
    """Drop a mirror behind mirrorlib's back."""
    spark.sql("DROP TABLE bronze.orders")


def reset(spark: SparkSession) -> None:
    """Start it over."""
    mirrorlib.reset(spark, "bronze", "dbo/Orders", **STATE)


def self_test(spark: SparkSession) -> list[str]:
    """Try all that a platform is asked for, in both schemas; give what was refused."""
    report = try_out(
        spark, str(FOLDER / "own"), "spark_catalog.bronze", other="spark_catalog.silver"
    )
    return [f"{one.step}: {one.outcome}. {one.said}" for one in report.steps if one.outcome != "ok"]


def main() -> None:
    """Take the steps."""
    spark = session()
    every = (schemas, apply, derive, export, rows, drop, reset, self_test)
    for name in sys.argv[2:]:
        step = {f.__name__: f for f in every}[name]
        sys.stdout.write(f"step {json.dumps(step(spark))}\n")


if __name__ == "__main__":
    main()
