"""Carry out staged changes by one commit, a MERGE where one is needed, several times faster than its defaults.

In: staged changes, at most one row per key that matches. Out: one Delta commit: the mark alone where nothing changes,
an append where nothing can match. What makes MERGE fast, by statement and session configuration alone
(measured, see `benchmarks/README.md`): the staged file is private and immutable, so it need not be
materialised again; deletion vectors; a runtime bloom filter in front of the one join that cannot be
broadcast (source LEFT OUTER target); broadcast in the others; and for small commits one partition,
no adaptive execution and no deletion vectors, whose fixed cost is larger than the work.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql import functions as f
from pyspark.sql.types import StructField

from mirrorlib.commit.mark import METADATA, Mark, append_rows, as_condition, claimed, mark_nothing
from mirrorlib.commit.stage import ADD, CHANGE, DROP, FRESH, OP, PUT, SET, Staged
from mirrorlib.delta.columns import to_columns
from mirrorlib.delta.sessions import SMALL_COMMIT, TXN_APP, configured, is_small
from mirrorlib.delta.table import TableRef, named_rows
from mirrorlib.identifiers import quote

_LARGEST_BROADCAST = 128 << 20  # bytes
_ADAPTIVE_FROM = 1 << 30  # staged bytes: from here on Spark knows better how to cut its shuffles
_BYTES_PER_PARTITION = 8 << 20
_BITS_PER_KEY = 10  # about one false positive in a hundred
_ROW_OVERHEAD = 8  # bytes a row that Spark's planner adds
_SIZES = {pa.bool_(): 1, pa.string(): 20, pa.binary(): 100}  # of all others as wide as in Arrow
# Not for other commits: Delta 3.3 reads no table with deletion vectors while it skips nothing.
_SMALL_MERGE = {
    "spark.databricks.delta.merge.deletionVectors.persistent": "false",
    "spark.databricks.delta.stats.skipping": "false",
}


def commit_staged(
    spark: SparkSession,
    ref: TableRef,
    staged: Staged,
    mark: Mark,
    *,
    table_bytes: int,
    quiet: bool = False,
    dropped: Sequence[str] = (),
    refused: str = "",
) -> None:
    """Carry out folded changes, one row per key and op and `ADD` rows beside, by one commit.

    The session is this table's own, as the mark travels in its configuration; where it has a claim, in the condition.
    The table's size decides how the join is run. A *quiet* commit leaves rows alone that an update would not change.
    An update sets *dropped*, other columns of the table, to NULL. *refused* is a condition on rows `s` and `t` that
    match, as SQL; it fails the commit where it has to.
    """
    if not staged.ops:
        mark_nothing(spark, ref, mark)
        return
    if staged.ops == {ADD}:
        append_rows(ref, staged.frame.drop(OP, SET), mark)
        return
    matches = _matches(staged)
    columns = [one for one in staged.frame.schema.fields if one.name not in {OP, SET, FRESH}]
    names = [quote(column.name) for column in columns]
    carried = {  # a MERGE has no options
        TXN_APP: mark.app_id,
        "spark.databricks.delta.write.txnVersion": str(mark.version),
        METADATA: mark.text,
    }
    if mark.claim is not None:
        carried = {}
        matches = f"{as_condition(f's.{OP}', mark.text)} AND {matches}"
    clauses = " ".join(_clauses(staged, names, quiet=quiet, dropped=dropped, refused=refused))
    # What is always true: Spark builds bloom filters of selective sides only.
    with claimed(mark, staged.frame.where(f.col(OP) > 0)) as rows:
        if rows is None:
            return
        conf = configured(spark, carried, _merge_conf(staged, columns, table_bytes))
        with named_rows(rows, spark) as source, conf:
            # Not lazy: it runs here.
            spark.sql(f"MERGE INTO {ref.sql} AS t USING {source} AS s ON {matches} {clauses}")


def _matches(staged: Staged) -> str:
    """Say which row of the table a change finds, and between which keys to look for any."""
    # "=" joins faster, and is the same where no key is NULL.
    equal = "<=>" if staged.null_keys else "="
    parts = [f"t.{quote(key)} {equal} s.{quote(key)}" for key in staged.keys]
    if not staged.null_keys:
        # Delta knows each file's ends, and does not open those without such keys.
        ends = staged.ranges.items()
        parts += [f"t.{quote(key)} BETWEEN {least} AND {most}" for key, (least, most) in ends]
    if ADD in staged.ops:
        parts.append(f"s.{OP} <> {ADD}")
    return " AND ".join(parts)


def _clauses(
    staged: Staged, names: Sequence[str], *, quiet: bool, dropped: Sequence[str], refused: str
) -> list[str]:
    ops = staged.ops
    clauses = [f"WHEN MATCHED AND {refused} THEN DELETE"] if refused else []
    if DROP in ops:
        clauses.append(f"WHEN MATCHED AND s.{OP} = {DROP} THEN DELETE")
    if ops & {PUT, CHANGE}:
        values = [f"s.{name}" for name in names]
        if staged.partial:
            values = [
                f"CASE WHEN s.{SET}[{place}] THEN s.{name} ELSE t.{name} END"
                for place, name in enumerate(names)
            ]
        pairs = list(zip(names, values, strict=True))
        sets = [f"t.{name} = {value}" for name, value in pairs]
        sets += [f"t.{quote(name)} = NULL" for name in dropped]
        unlike = " OR ".join(f"NOT (t.{name} <=> {value})" for name, value in pairs)
        greater = ""
        if staged.conditional:
            by = quote(staged.conditional)
            greater = f" AND (s.{by} > t.{by} OR s.{by} IS NOT NULL AND t.{by} IS NULL)"
        changed = f" AND ({unlike})" if quiet else ""
        clauses.append(f"WHEN MATCHED{greater}{changed} THEN UPDATE SET {', '.join(sets)}")
    if ops & {PUT, ADD}:
        given = ", ".join(f"s.{name}" for name in names)
        clauses.append(
            f"WHEN NOT MATCHED AND s.{OP} IN ({PUT}, {ADD}) THEN INSERT ({', '.join(names)}) VALUES ({given})"  # noqa: S608  # every name in it is quoted
        )
    return clauses


def _merge_conf(staged: Staged, columns: Sequence[StructField], table_bytes: int) -> dict[str, str]:
    """Return the configuration that lets one MERGE of staged changes run fast.

    The broadcast threshold lies between Spark's guess for the keys alone and for whole rows. Below it, two joins
    on the keys are broadcast; above it, the one with whole rows is shuffled and gets the bloom filter. One that
    missed both sides would shuffle the whole table.
    """
    conf = {
        "spark.databricks.delta.merge.materializeSource": "none",
        # Rows and their feed are written side by side; else Spark sorts them apart first.
        "spark.sql.maxConcurrentOutputFileWriters": "4",
    }
    if is_small(staged.rows, table_bytes):
        return {**conf, **SMALL_COMMIT, **_SMALL_MERGE}
    bloom = "spark.sql.optimizer.runtime.bloomFilter"
    bits = staged.rows * _BITS_PER_KEY
    whole = sum(_spark_size(column) for column in columns) + _ROW_OVERHEAD
    alone = (
        sum(_spark_size(column) for column in columns if column.name in staged.keys) + _ROW_OVERHEAD
    )
    between = int(staged.bytes * math.sqrt(alone / whole))
    conf |= {
        f"{bloom}.enabled": "true",
        f"{bloom}.applicationSideScanSizeThreshold": "0",
        f"{bloom}.creationSideThreshold": str(1 << 40),
        f"{bloom}.expectedNumItems": str(staged.rows),
        f"{bloom}.maxNumItems": str(max(staged.rows, 4_000_000)),
        f"{bloom}.numBits": str(bits),
        f"{bloom}.maxNumBits": str(max(bits, 67_108_864)),
        "spark.sql.autoBroadcastJoinThreshold": str(min(between, _LARGEST_BROADCAST)),
    }
    if staged.bytes <= _ADAPTIVE_FROM:
        partitions = 2 * math.ceil(staged.bytes / (2 * _BYTES_PER_PARTITION))  # even, as cores are
        conf["spark.sql.adaptive.enabled"] = "false"
        conf["spark.sql.shuffle.partitions"] = str(partitions)
    return conf


def _spark_size(column: StructField) -> int:
    """Return the bytes that Spark's planner reckons with for a value (DataType.defaultSize)."""
    known = to_columns([(column.name, column.dataType.simpleString())])
    kind = known[0].type if known else pa.string()  # what no mirror has is taken for text
    return _SIZES.get(kind) or kind.bit_width // 8
