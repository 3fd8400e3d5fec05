"""Write a window by Spark: a few files whose rows stand in the order of the changes, in the shape of a format.

In: a delivery. Out: files in a folder that nobody else knows yet, and their number of rows. Promises: nothing passes
through this process; a small window is one file, and how many a large one becomes is left to Spark; their order, and
what each format makes of a value, without a loss, is as docs/export.md says.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, TypeAlias

from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as f
from pyspark.sql.types import DataType

from mirrorlib.delivery.sink import Delivery
from mirrorlib.delta.columns import write_type
from mirrorlib.delta.sessions import configured
from mirrorlib.feed.exact_text import JSON_OPTIONS
from mirrorlib.feed.net import VERSION, place_of_kind
from mirrorlib.identifiers import quote
from mirrorlib.nested import is_free_of, name_of
from mirrorlib.store import Store, StoredFile, contents

FileFormat: TypeAlias = Literal["parquet", "jsonl", "csv"]

_SPARKS = "org.apache.spark.sql.execution.datasources"
_ROWS_PER_FILE = 5_000_000  # at most, where Spark has fewer partitions than the window needs
_FASTER = {
    # Small partitions are joined until they are worth a file, and not kept apart for the sake of more cores.
    "spark.sql.adaptive.enabled": "true",
    "spark.sql.adaptive.coalescePartitions.enabled": "true",
    "spark.sql.adaptive.coalescePartitions.parallelismFirst": "false",
    "spark.sql.adaptive.advisoryPartitionSizeInBytes": "128m",
    # Spark's default; by Databricks' own, files of lost tasks stay beside the others, which its readers pass over.
    "spark.sql.sources.commitProtocolClass": f"{_SPARKS}.SQLHadoopMapReduceCommitProtocol",
    "spark.sql.legacy.nullValueWrittenAsQuotedEmptyStringCsv": "false",  # another default
}
# Here too: a session that all share is nobody's to set up.
_CONF = {"spark.sql.legacy.timeParserPolicy": "CORRECTED"}
# Spark's default, INT96, is read as nanoseconds by others: years after 2262 would be lost.
_MOMENTS = {"spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS"}
_TEXT = {
    **JSON_OPTIONS,  # moments in CSV are those of JSON
    "compression": "none",  # whatever the cluster's default is, the name says nothing of it
    "encoding": "UTF-8",
    "lineSep": "\n",
    "dateFormat": "yyyy-MM-dd",
}
_CSV = {
    **_TEXT,
    "header": "true",
    "quote": '"',
    "escape": '"',  # Spark's default is a backslash
    "nullValue": "",
    "emptyValue": '""',
    "ignoreLeadingWhiteSpace": "false",  # otherwise Spark strips what it writes
    "ignoreTrailingWhiteSpace": "false",
}
# Spark's name of each, and its options.
_WRITERS: Mapping[FileFormat, tuple[str, Mapping[str, str]]] = {
    "parquet": ("parquet", {}),
    "jsonl": ("json", _TEXT),
    "csv": ("csv", _CSV),
}


def write_parts(
    delivery: Delivery, store: Store, folder: str, file_format: FileFormat
) -> tuple[tuple[StoredFile, ...], int]:
    """Write a window into a new folder, nobody else's; return the files in order, and how many rows they hold."""
    counted, kinds = Observation(), [field.dataType for field in delivery.frame.schema.fields]
    has_moments = not all(is_free_of(kind, {"timestamp"}) for kind in kinds)
    needed = _CONF | (_MOMENTS if has_moments and file_format == "parquet" else {})
    with configured(delivery.frame.sparkSession, needed, _FASTER):
        rows = _shaped(_in_order(delivery), file_format)
        rows = rows.observe(counted, f.count(f.lit(1)).alias("rows"))
        name, options = _WRITERS[file_format]
        writer = rows.write.format(name).options(**options)
        writer.option("maxRecordsPerFile", _ROWS_PER_FILE).save(store.uri(folder))
    files = contents(store, folder).files  # Spark's names sort as their rows do
    return tuple(file for file in files if file.name.startswith("part-")), int(counted.get["rows"])


def _in_order(delivery: Delivery) -> DataFrame:
    """Put changes in order; a snapshot, whose rows are of one version, is only divided evenly."""
    frame = delivery.frame
    if delivery.plan.kind == "snapshot":
        return frame.hint("rebalance")  # known to Spark only while plans are adapted
    return frame.orderBy(VERSION, *map(quote, delivery.keys), place_of_kind())


def _shaped(frame: DataFrame, file_format: FileFormat) -> DataFrame:
    """Cast what the format's writer would lose or spell otherwise: decimals, at any depth, and bytes in CSV."""
    if file_format == "parquet":
        return frame
    columns = []
    for field in frame.schema.fields:
        column = f.col(quote(field.name))
        if not is_free_of(field.dataType, {"decimal"}):
            column = column.cast(write_type(field.dataType, _type_in_text))
        elif file_format == "csv" and field.dataType.typeName() == "binary":
            # Some versions of Spark break the line.
            column = f.translate(f.base64(column), "\r\n", "")
        columns.append(column.alias(field.name))
    return frame.select(*columns)


def _type_in_text(leaf: DataType) -> str:
    return "string" if name_of(leaf) == "decimal" else leaf.simpleString()
