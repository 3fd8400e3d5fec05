"""One MERGE of staged changes: which files of the table it opens."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from mirrorlib.commit.mark import Mark
from mirrorlib.commit.merge import commit_staged
from mirrorlib.commit.stage import DROP, OP, PUT, Stage, stage_frame, staged_table
from mirrorlib.delta.table import TableRef
from mirrorlib.names import parse_name
from mirrorlib.store import open_store

LEAST = -(2**63)


@pytest.mark.thorough
@pytest.mark.parametrize("memory", [True, False])
def test_files_without_such_keys_are_not_opened(
    spark: SparkSession, tmp_path: Path, memory: bool
) -> None:
    """Whichever key tells them apart, and up to the least number there is: a file that is lost shows what is opened."""
    table = tmp_path / "table"
    parts = [[("a", 1, "x"), ("a", 2, "x")], [("a", LEAST, "y"), ("b", -7, "y")]]
    for part in parts:
        rows = spark.createDataFrame(part, "company string, id bigint, v string").coalesce(1)
        rows.write.format("delta").mode("append").save(str(table))
    for file in table.glob("*.parquet"):
        if spark.read.parquet(str(file)).where("id > 0").count():
            file.unlink()
    changes = [("a", LEAST, "z", PUT), ("b", -7, "", DROP), ("b", -3, "new", PUT)]
    ddl = f"company string, id bigint, v string, {OP} tinyint"
    frame = spark.createDataFrame(changes, ddl)
    keys = ["company", "id"]
    if memory:
        columns = dict(zip(frame.columns, map(list, zip(*changes, strict=True)), strict=True))
        staged = staged_table(frame, pa.table(columns), keys)
    else:
        stage = Stage(spark=spark, state=open_store(tmp_path), folder="staged")
        staged = stage_frame(stage, "rows", frame, keys, {DROP, PUT})

    mark = Mark(app_id="one", version=2, facts={})
    ref = TableRef(name=parse_name("table"), sql=f"delta.`{table}`", path=str(table))
    commit_staged(spark.newSession(), ref, staged, mark, table_bytes=1 << 30)

    left = spark.read.format("delta").load(str(table)).where("id < 0")
    assert [("a", LEAST, "z"), ("b", -3, "new")] == sorted(map(tuple, left.collect()))
