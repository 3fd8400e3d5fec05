"""What the footers of staged rows tell is what the rows are."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from mirrorlib.commit.difference import difference
from mirrorlib.commit.stage import ADD, CHANGE, DROP, OP, PUT, Stage, stage_frame
from mirrorlib.store import open_store

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

OPS = (DROP, PUT, CHANGE, ADD)


@pytest.mark.parametrize(
    "rows, ops, ends",
    [
        ([(1, PUT), (5, PUT)], {PUT}, (1, 5)),
        ([(1, DROP), (2, CHANGE)], {DROP, PUT, CHANGE}, (1, 2)),
        ([(None, ADD)], {ADD}, None),
        ([], set(), None),
    ],
)
def test_rows_ops_and_ends_come_from_footers(
    spark: SparkSession,
    tmp_path: Path,
    rows: list[tuple[int | None, int]],
    ops: set[int],
    ends: tuple[int, int] | None,
) -> None:
    """Of ops no less than there are; a key that is NULL is told."""
    stage = Stage(spark=spark, state=open_store(tmp_path), folder="staged")
    frame = spark.createDataFrame(rows, f"id bigint, {OP} tinyint")

    staged = stage_frame(stage, "rows", frame, ["id"], OPS)

    assert (len(rows), ops) == (staged.rows, staged.ops)
    assert ends == staged.ranges.get("id")
    assert any(key is None for key, _ in rows) == staged.null_keys
    assert sorted(map(str, rows)) == sorted(str(tuple(row)) for row in staged.frame.collect())


def test_a_field_of_a_struct_is_not_taken_for_a_column_with_a_dot(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Both have one path in Parquet: nothing is known then, and NULLs are possible."""
    stage = Stage(spark=spark, state=open_store(tmp_path), folder="staged")
    frame = spark.sql(
        f"SELECT named_struct('b', 1) AS a, CAST(NULL AS INT) AS `a.b`, CAST(2 AS TINYINT) AS {OP}"
    )

    staged = stage_frame(stage, "rows", frame, ["a.b"], OPS)

    assert (True, {}) == (staged.null_keys, staged.ranges)


def test_rows_that_become_fewer_go_and_come_again(spark: SparkSession) -> None:
    """Equal rows are counted; by keys, one that goes and one that comes are a change."""
    old = spark.createDataFrame([(1, "a"), (1, "a"), (2, "b"), (3, "c")], "id int, v string")
    new = spark.createDataFrame([(1, "a"), (2, "B"), (4, None)], "id int, v string")

    plain = {tuple(row) for row in difference(old, new).collect()}
    keyed = {tuple(row) for row in difference(old.distinct(), new, ["id"]).collect()}

    changed = {(2, "b", DROP), (2, "B", ADD)}
    rest = {(3, "c", DROP), (4, None, ADD)}
    assert {(1, "a", DROP), (1, "a", ADD), *changed, *rest} == plain
    assert {(2, "B", CHANGE), *rest} == keyed
