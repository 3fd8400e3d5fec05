"""AUTO CDC's side: what Spark 4.2 has of Databricks' engine, as far as Delta lets it be measured.

A pipeline refuses Delta tables as yet ("does not support row-level operations"), and Iceberg 1.12 does not load on
Spark 4.2. So what a pipeline's stream gives each of its batches to is called directly: the check for NULLs, one row a
key by `max_by`, the batch's deletes into the auxiliary table, and the MERGE. The stream with its listing and checkpoint
is left out, which a pipeline needs in addition.
"""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any

from data import COLUMNS, MARKER
from peers import Copied
from pyspark.sql import functions as f
from recipe import default_session

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

_PACKAGE = "org.apache.spark.sql.pipelines.autocdc"
_SEQUENCE = "_sequence"


class AutoCdc(Copied):
    """Spark's AUTO CDC, type 1, into Delta tables with deletion vectors and their feed on."""

    lacks = (
        "no pipeline into Delta as yet (what it does with a batch is measured alone), no order but a column's, a batch"
        " is two commits and is repeated after a crash"
    )

    def __init__(self, spark: SparkSession) -> None:
        self.name = f"AUTO CDC, Spark {spark.version}"
        self._spark = default_session(spark)
        self._jvm: Any = self._spark._jvm  # noqa: SLF001  # Spark offers the handler to pipelines alone

    def load(self, table: Path, files: Sequence[Path]) -> None:
        """Make the table and its auxiliary one, and apply the files as the first batch."""
        batch = self._read(files)
        metadata = self._object("Scd1BatchProcessor$").cdcMetadataColName()
        sequences = "STRUCT<deleteSequence: BIGINT, upsertSequence: BIGINT>"
        empty = batch.where("false").withColumn(metadata, f.lit(None).cast(sequences))
        for path, columns in ((table, COLUMNS), (_auxiliary(table), ["id"])):
            shutil.rmtree(path, ignore_errors=True)
            writer = empty.select(*columns, metadata).write.format("delta")
            for name in ("enableChangeDataFeed", "enableDeletionVectors"):
                writer.option(f"delta.{name}", "true")
            writer.save(str(path))
        self._execute(table, batch)

    def begin(self, table: Path) -> None:
        """Copy both tables: a round changes the copies."""
        for path, copy in (
            (table, self.place(table)),
            (_auxiliary(table), _auxiliary(self.place(table))),
        ):
            shutil.rmtree(copy, ignore_errors=True)
            shutil.copytree(path, copy)

    def merge(self, table: Path, file: Path) -> None:
        """Apply a change file as a batch."""
        self._execute(self.place(table), self._read([file]))

    def _read(self, files: Sequence[Path]) -> DataFrame:
        """Read a batch, each row with its place in the order of the files: their numbers, then the rows'."""
        rows = self._spark.read.parquet(*map(str, files))
        if MARKER not in rows.columns:
            rows = rows.withColumn(MARKER, f.lit(0))
        place = "CAST(substring(_metadata.file_name, 1, 20) AS BIGINT) * 4294967296 + _metadata.row_index"
        return rows.withColumn(_SEQUENCE, f.expr(place))

    def _execute(self, table: Path, batch: DataFrame) -> None:
        """Give a batch to the handler, as a pipeline's stream does."""
        jvm, names = self._jvm, self._names
        selection = self._new("ColumnSelection$ExcludeColumns", names([MARKER, _SEQUENCE]))
        arguments = self._new(
            "ChangeArgs",
            names(["id"]),
            f.col(_SEQUENCE)._jc,  # noqa: SLF001  # as above
            self._object("ScdType$Type1$"),
            jvm.scala.Option.apply(f.expr(f"{MARKER} = 2")._jc),  # noqa: SLF001
            jvm.scala.Option.apply(selection),
        )
        rows = batch._jdf  # noqa: SLF001  # as above
        processor = self._new(
            "Scd1BatchProcessor", arguments, rows.schema().apply(_SEQUENCE).dataType()
        )
        tables = (self._identifier(path) for path in (_auxiliary(table), table))
        self._new("Scd1ForeachBatchHandler", processor, *tables).execute(rows, 0)

    def _names(self, names: list[str]) -> Any:  # noqa: ANN401  # Scala's
        unqualified = [self._new("UnqualifiedColumnName", name) for name in names]
        return self._jvm.org.apache.spark.api.python.PythonUtils.toSeq(unqualified)

    def _identifier(self, path: Path) -> Any:  # noqa: ANN401  # Scala's
        some = self._jvm.scala.Option.apply("delta")
        return self._jvm.org.apache.spark.sql.catalyst.TableIdentifier(str(path), some)

    def _new(self, name: str, *arguments: Any) -> Any:  # noqa: ANN401  # Scala's
        return getattr(self._jvm, f"{_PACKAGE}.{name}")(*arguments)

    def _object(self, name: str) -> Any:  # noqa: ANN401  # Scala's
        return getattr(getattr(self._jvm, f"{_PACKAGE}.{name}"), "MODULE$")


def _auxiliary(table: Path) -> Path:
    return table.with_name(f"{table.name}-auxiliary")
