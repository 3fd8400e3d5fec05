"""Exports of tables that are no mirrors go by the keys that their property names."""

from __future__ import annotations

import contextlib
import json
import sqlite3
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import mirrorlib
from delivery.postgres import running_cluster
from mirrorlib.delivery.run import export_tables
from mirrorlib.delta.sessions import configured
from mirrorlib.feed.declared_keys import key_statements
from mirrorlib.keys.value import Keys

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from mirrorlib.delivery.sink import Delivery


def table(spark: SparkSession, root: Path, name: str, keys: Keys) -> None:
    """Make a table with a property, as its owner would."""
    path = f"delta.`{root / name}`"
    spark.sql(
        f"CREATE TABLE {path} (id int, v string) USING delta TBLPROPERTIES "
        f"('delta.enableChangeDataFeed' = 'true', 'mirrorlib.keys' = '{keys.to_json()}')"
    )
    rows = spark.createDataFrame([(1, "a"), (2, "b")], "id int, v string")
    writer = rows.write.format("delta").mode("append")
    writer.option("userMetadata", '{"mirrorlib": {}}').save(str(root / name))


class Grouping:
    """A receiver that sends what belongs together the same way, as Kafka's does."""

    groups = True

    def __init__(self) -> None:
        self.keys: dict[str, Any] = {}

    def position(self, _: object) -> int:
        """Hold nothing."""
        return 0

    def deliver(self, delivery: Delivery) -> int:
        """Remember the keys."""
        self.keys[delivery.stream.table] = delivery.plan.keys
        return 0


class Telling(Grouping):
    """A receiver that has one row for each key."""

    groups = False


def test_receivers_go_by_the_property(spark: SparkSession, tmp_path: Path) -> None:
    """One row each for those that have rows, the partition key for those that send messages."""
    root = tmp_path / "tables"
    table(spark, root, "one", Keys(partition=("ID",), primary=("ID",), unique=True))
    table(spark, root, "many", Keys(partition=("id",)))
    table(spark, root, "part", Keys(partition=("id",), lost=("k",)))
    telling, grouping = Telling(), Grouping()
    for name, sink in (("telling", telling), ("grouping", grouping)):
        assert export_tables(spark, root, consumer=name, to=sink).ok

    assert {"one": ("id",), "many": (), "part": ()} == telling.keys
    assert {"one": ("id",), "many": ("id",), "part": ()} == grouping.keys


@pytest.mark.thorough
def test_a_derived_table_is_exported_by_its_keys(spark: SparkSession, tmp_path: Path) -> None:
    """A copy, a database and a landing zone; what is read of the copy has the keys again."""
    table(spark, tmp_path / "bronze", "t", Keys(partition=("id",), primary=("id",), unique=True))
    silver = tmp_path / "silver"

    def run() -> None:
        mirrorlib.derive(
            spark,
            "t",
            [str(tmp_path / "bronze" / "t")],
            lambda t: t.withColumnRenamed("id", "key").where("v < 'x'"),
            silver / "t",
        )
        for name, to in (
            ("copy", f"delta:{tmp_path / 'copy'}"),
            ("base", f"jdbc:sqlite:{tmp_path / 'base'}"),
            ("zone", f"zone:{tmp_path / 'zone'}"),
        ):
            mode = "current" if name == "copy" else None
            assert export_tables(spark, silver, consumer=name, to=to, mode=mode).ok

    run()
    ours = {"spark.databricks.delta.commitInfo.userMetadata": '{"mirrorlib": {}}'}
    with configured(spark, ours):  # else nobody would know that keys still occur once
        spark.sql(f"UPDATE delta.`{tmp_path / 'bronze' / 't'}` SET v = upper(v) WHERE id = 1")
    run()

    kept = mirrorlib.keys_of(mirrorlib.read_table(spark, tmp_path / "copy" / "t"))
    assert (Keys(partition=("key",), primary=("key",)), True) == (kept, kept.unique)
    metadata = json.loads((tmp_path / "zone" / "t" / "_metadata.json").read_text("utf-8"))
    assert ["key"] == metadata["keyColumns"]
    with contextlib.closing(sqlite3.connect(tmp_path / "base")) as connection:
        assert [(1, "A"), (2, "b")] == connection.execute("SELECT * FROM t ORDER BY 1").fetchall()
        key = connection.execute("SELECT name FROM pragma_table_info('t') WHERE pk").fetchall()
        assert [("key",)] == key


@pytest.mark.thorough
def test_a_tables_primary_key_is_postgresqls(spark: SparkSession, tmp_path: Path) -> None:
    """A row is found by it from then on."""
    root = tmp_path / "tables"
    table(spark, root, "t", Keys(partition=("id",), primary=("id",), unique=True))
    ours = {"spark.databricks.delta.commitInfo.userMetadata": '{"mirrorlib": {}}'}
    with running_cluster() as cluster:
        cluster.make_database("d")
        for _ in range(2):
            to = f"jdbc:{cluster.url('d')}"
            assert export_tables(spark, root, consumer="base", to=to).ok
            with configured(spark, ours):
                spark.sql(f"UPDATE delta.`{root / 't'}` SET v = 'A' WHERE id = 1")

        key = "indrelid = 't'::regclass AND indisprimary AND attrelid = indrelid AND attnum = any(indkey)"
        found = cluster.rows("d", f"SELECT attname FROM pg_index, pg_attribute WHERE {key}")
        assert [("id",)] == [tuple(row) for row in found]
        rows = cluster.rows("d", "SELECT id, v FROM t ORDER BY id")
        assert [(1, "A"), (2, "b")] == [tuple(row) for row in rows]


def test_keys_are_written_as_statements() -> None:
    """A primary key only where each occurs once; names are quoted, and text is."""
    keys = Keys(partition=("a`b", "it's"), primary=("a`b", "it's"), unique=True)

    assert (
        "ALTER TABLE `c`.`s`.`t t` ALTER COLUMN `a``b` SET NOT NULL",
        "ALTER TABLE `c`.`s`.`t t` ALTER COLUMN `it's` SET NOT NULL",
        "ALTER TABLE `c`.`s`.`t t` ADD CONSTRAINT `t t_key` PRIMARY KEY (`a``b`, `it's`)",
        "COMMENT ON TABLE `c`.`s`.`t t` IS 'Partition key: a`b, it\\'s; primary key: a`b, it\\'s'",
    ) == key_statements("c.s.`t t`", keys)
    changelog = Keys(partition=("k",), primary=("k",), deleted="gone", order_by=("at",))
    assert (
        "COMMENT ON TABLE `t` IS 'Partition key: k; primary key: k; deleted where gone; newest by at'",
    ) == key_statements("t", changelog)
    assert () == key_statements("t", Keys())
