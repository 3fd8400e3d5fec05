"""Net changes are the difference of two snapshots, whatever was committed between them; judged by an oracle."""

from __future__ import annotations

import json
import random
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

import mirrorlib
from mirrorlib.delta.actions import Metadata
from mirrorlib.delta.table import spark_schema
from mirrorlib.errors import FeedError
from mirrorlib.feed.net import is_comparable

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

KEYS = 6
SEEDS = range(2)


@pytest.mark.thorough("1-*", "0-keyless")
@pytest.mark.parametrize("keyed", [True, False], ids=["keyed", "keyless"])
@pytest.mark.parametrize("seed", SEEDS)
def test_net_is_the_difference_of_the_two_ends(
    spark: SparkSession, tmp_path: Path, seed: int, *, keyed: bool
) -> None:
    """Random commits, with keys that occur several times, NULLs and NaN; every window of them."""
    dice, table = random.Random(seed), str(tmp_path / "t")
    make_history(spark, table, dice, vectors=seed % 2 == 0)
    newest = spark.sql(f"DESCRIBE HISTORY delta.`{table}` LIMIT 1").collect()[0]["version"]
    states = [snapshot(spark, table, version) for version in range(newest + 1)]
    for after, until in [
        (0, newest),
        *(sorted(dice.sample(range(newest + 1), 2)) for _ in range(3)),
    ]:
        frame = mirrorlib.read_feed(
            spark, table, after=after, until=until, net=True, keys=["k"] if keyed else ()
        )
        rows = [row.asDict() for row in frame.collect()]
        check_net(rows, states[after], states[until], keyed=keyed)
        assert all(after < row["_commit_version"] <= until for row in rows)


def make_history(spark: SparkSession, table: str, dice: random.Random, *, vectors: bool) -> None:
    """Create a table and commit ten times, anything."""
    name = f"delta.`{table}`"
    spark.sql(
        f"CREATE TABLE {name} (k bigint, v double, `odd name` string) USING delta TBLPROPERTIES "
        f"('delta.enableChangeDataFeed' = 'true', 'delta.columnMapping.mode' = 'name', "
        f"'delta.enableDeletionVectors' = '{str(vectors).lower()}')"
    )
    for _ in range(10):
        spark.sql(statement(dice, name))


def statement(dice: random.Random, name: str) -> str:
    """Make up a commit."""
    key, value = dice.randrange(KEYS), dice.choice(["1", "2", "NULL", "double('NaN')", "-0.0D"])
    rows = ", ".join(
        f"({dice.choice([str(dice.randrange(KEYS)), 'NULL'])}, {dice.choice(['1', '2', 'NULL'])}, 'x')"
        for _ in range(dice.randint(1, 4))
    )
    merge = (
        f"MERGE INTO {name} t USING (SELECT {key}L AS k) s ON t.k = s.k WHEN MATCHED THEN UPDATE SET v = 9 "
        "WHEN NOT MATCHED THEN INSERT (k, v) VALUES (s.k, 8)"
    )
    return dice.choice(
        [
            f"INSERT INTO {name} VALUES {rows}",
            f"INSERT INTO {name} VALUES {rows}",
            f"UPDATE {name} SET v = {value} WHERE k <= {key}",
            f"UPDATE {name} SET v = v WHERE k = {key}",
            f"DELETE FROM {name} WHERE k = {key}",
            f"INSERT OVERWRITE {name} VALUES {rows}",
            merge,
            f"OPTIMIZE {name}",
        ]
    )


def snapshot(spark: SparkSession, table: str, version: int) -> Counter[Any]:
    """Count the rows of a version."""
    rows = spark.read.format("delta").option("versionAsOf", version).load(table).collect()
    return Counter(comparable(row.asDict()) for row in rows)


def comparable(row: dict[str, Any]) -> tuple[Any, ...]:
    """Give a row's values so that NaN equals NaN."""
    return row["k"], str(0.0 if row["v"] == 0 else row["v"]), row["odd name"]


def check_net(
    rows: list[dict[str, Any]], before: Counter[Any], after: Counter[Any], *, keyed: bool
) -> None:
    """Compare net changes with the difference of two snapshots, row by row and key by key."""
    removed, added = before - after, after - before
    told = {kind: Counter(comparable(r) for r in rows if r["_change_type"] in kinds) for kind, kinds in {
        "removed": ("delete", "update_preimage"), "added": ("insert", "update_postimage"),
    }.items()}  # fmt: skip
    assert {"removed": removed, "added": added} == told
    updates = Counter(row["k"] for row in rows if row["_change_type"] == "update_preimage")
    assert updates == Counter(row["k"] for row in rows if row["_change_type"] == "update_postimage")
    gone, come = Counter[Any](), Counter[Any]()
    for counter, side in ((gone, removed), (come, added)):
        for row, count in side.items():
            counter[row[0]] += count
    assert updates == (gone & come if keyed else Counter())


def test_a_type_that_cannot_be_compared_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    """Maps cannot be grouped by."""
    table = str(tmp_path / "t")
    spark.sql(
        f"CREATE TABLE delta.`{table}` (k bigint, m map<string, int>) USING delta "
        "TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true')"
    )
    spark.sql(f"INSERT INTO delta.`{table}` VALUES (1, map('a', 1))")
    with pytest.raises(FeedError, match="cannot be compared"):
        mirrorlib.read_feed(spark, table, after=0, net=True, keys=["k"])


def test_types_are_told_by_what_they_are_not_by_what_fields_are_named() -> None:
    """A struct may have a field that is called geometry; a map counts however deep it lies."""
    from pyspark.sql import types  # tests without Spark run in seconds

    nested = types.ArrayType(types.MapType(types.StringType(), types.LongType()))

    assert is_comparable(types.StructType().add("geometry", types.StringType()))
    assert not is_comparable(types.StructType().add("plain", nested))


def test_text_with_a_collation_cannot_be_compared() -> None:
    """Two values may be one to Spark; and to read a schema does not change it, so that it can be read again."""
    types = pytest.importorskip("pyspark.sql.types")
    if not hasattr(types.StringType(), "collation"):
        pytest.skip("collations came with Spark 4")
    text = types.StringType("UTF8_LCASE")
    schema = types.StructType().add("v", types.ArrayType(text)).jsonValue()
    metadata = Metadata(id="t", schema=json.loads(json.dumps(schema)), properties={})

    assert spark_schema(metadata) == spark_schema(metadata)
    assert schema == metadata.schema
    assert not is_comparable(spark_schema(metadata))
    assert is_comparable(types.StructType().add("a collate b", types.StringType()))
