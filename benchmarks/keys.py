"""Show what asking for keys costs: `keys_of` against analyzing the same query, on classic Spark and Spark Connect.

No job runs. Analyzing is what Spark does anyway when a DataFrame is made; `keys_of` prints the plan and reads
it, and a Spark Connect server optimizes and plans the query before it prints.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from connecting import CONNECT_MODE, connect
from mirrorlib import Keys, key_by, keys_of, local_spark

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

SHAPES = ((50, 20), (50, 100), (300, 20), (300, 100))


def main() -> None:
    """Measure each shape on both kinds of Spark."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--rounds", type=int, default=3, help="how often each is measured; the median counts"
    )
    parser.add_argument("--classic", action="store_true", help="leave Spark Connect out")
    arguments = parser.parse_args()
    spark = local_spark(cores=2, memory="4g")
    print("          columns  operators   analyze   keys_of   ratio")
    for columns, operators in SHAPES:
        show("classic", spark, columns, operators, arguments.rounds)
    if not arguments.classic:
        os.environ[CONNECT_MODE] = "1"
        client = connect(spark)
        for columns, operators in SHAPES:
            show("connect", client, columns, operators, arguments.rounds)
        client.stop()
        del os.environ[CONNECT_MODE]
    spark.stop()


def show(kind: str, spark: SparkSession, columns: int, operators: int, rounds: int) -> None:
    """Measure one shape, and print a line."""
    source = key_by(wide(spark, columns), ["c0", "c1"], cdc=True, order_by="c2")
    analyze = median(lambda: work(source, operators).schema, rounds)
    df = work(source, operators)
    if keys_of(df) != Keys(partition=("c0", "c1"), primary=("c0", "c1"), order_by=("c2",)):
        msg = f"{kind}, {columns} columns, {operators} operators: the keys are lost"
        raise RuntimeError(msg)
    ask = median(lambda: keys_of(df), rounds)
    print(
        f"{kind:8} {columns:9,} {operators:10,} {analyze:8.3f} s {ask:8.3f} s {ask / analyze:7.1f}",
        flush=True,
    )


def wide(spark: SparkSession, columns: int) -> DataFrame:
    """Give a frame of many columns."""
    return spark.createDataFrame([], ", ".join(f"c{n} bigint" for n in range(columns)))


def work(df: DataFrame, operators: int) -> DataFrame:
    """Do a filter and a computed column in turn."""
    last = df.columns[-1]
    for number in range(operators // 2):
        df = df.where(f"{last} > {number}").withColumn(last, computed(last))
    return df


def computed(name: str) -> Column:
    """Compute a column by functions of Spark's."""
    from pyspark.sql import functions as f

    return f.coalesce(f.abs(f.col(name)), f.lit(0))


def median(call: Callable[[], object], rounds: int) -> float:
    """Time a call."""
    seconds = []
    for _ in range(rounds):
        began = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - began)
    return statistics.median(seconds)


if __name__ == "__main__":
    main()
