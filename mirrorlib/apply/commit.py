"""Write one batch as one Delta commit that carries its own position.

In: staged changes and a `Mark`. Out: nothing; what became of it is read from the log (see
`protocol.py`), because a repeat is skipped by Delta without a word. Promise: whatever happens, the
commit is there as a whole or not at all, and at most once for its (application id, version).
Sources: Delta idempotent writes (`txnAppId`, `txnVersion`), design §9 for the kinds.
"""

from __future__ import annotations

import contextlib
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mirrorlib.apply.fold import ADD, CHANGE, DROP, OP, PUT
from mirrorlib.apply.table import read_table
from mirrorlib.landing.names import quote

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pyspark.sql import DataFrame, DataFrameWriter, SparkSession

    from mirrorlib.apply.columns import Columns
    from mirrorlib.apply.stage import Staged
    from mirrorlib.apply.table import TableRef

FENCE = 2**63 - 1  # a transaction version that nothing comes after
_SMALL_BATCH = 10_000  # rows: a commit whose fixed cost outweighs its work
_SMALL_TABLE = 32 << 20  # bytes
_SOURCE = "_mirror_changes"


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """What makes a commit ours and unrepeatable.

    Attributes:
        app_id: Delta's txn application id, one per life.
        version: Delta's txn version: the batch, or `FENCE`.
        facts: what `userMetadata` says about the batch.

    """

    app_id: str
    version: int
    facts: Mapping[str, Any]

    @property
    def text(self) -> str:
        """Return the commit's `userMetadata`."""
        return json.dumps({"mirrorlib": self.facts}, separators=(",", ":"))


def append_rows(ref: TableRef, rows: DataFrame, mark: Mark) -> None:
    """Insert rows; zero rows record the mark alone."""
    _save(_marked(rows, mark).mode("append"), ref)


def overwrite_rows(ref: TableRef, rows: DataFrame, mark: Mark, *, schema: bool) -> None:
    """Replace the table's content in one commit, and its columns too when *schema* says so."""
    _save(_marked(rows, mark).mode("overwrite").option("overwriteSchema", str(schema).lower()), ref)


def mark_nothing(spark: SparkSession, ref: TableRef, mark: Mark) -> None:
    """Record the mark in a commit that changes no row."""
    append_rows(ref, read_table(spark, ref).limit(0), mark)


def merge_changes(
    spark: SparkSession,
    ref: TableRef,
    staged: Staged,
    columns: Columns,
    keys: Sequence[str],
    mark: Mark,
    *,
    quiet: bool,
    table_bytes: int,
) -> None:
    """Carry out folded changes by one MERGE.

    Args:
        spark: a session of this table's own: the mark travels in its configuration.
        ref: the table.
        staged: one row per key and op, `ADD` rows beside.
        columns: the table's columns.
        keys: key columns, as the table spells them.
        mark: what the commit carries.
        quiet: leave rows alone that an update would not change.
        table_bytes: the table's size, which decides how the join is run.

    """
    staged.frame.createOrReplaceTempView(_SOURCE)
    try:
        with _configured(spark, _merge_conf(staged, mark, table_bytes)):
            spark.sql(_merge_sql(ref, staged.ops, columns, keys, quiet=quiet)).collect()
    finally:
        spark.catalog.dropTempView(_SOURCE)


def _merge_sql(
    ref: TableRef, ops: frozenset[int], columns: Columns, keys: Sequence[str], *, quiet: bool
) -> str:
    names = [quote(column.name) for column in columns]
    same = " AND ".join(f"t.{quote(key)} <=> s.{quote(key)}" for key in keys)
    matches = f"s.{OP} <> {ADD} AND {same}" if ADD in ops else same
    clauses = []
    if DROP in ops:
        clauses.append(f"WHEN MATCHED AND s.{OP} = {DROP} THEN DELETE")
    if ops & {PUT, CHANGE}:
        sets = ", ".join(f"t.{name} = s.{name}" for name in names)
        unlike = " OR ".join(f"NOT (t.{name} <=> s.{name})" for name in names)
        clauses.append(f"WHEN MATCHED{f' AND ({unlike})' if quiet else ''} THEN UPDATE SET {sets}")
    if ops & {PUT, ADD}:
        values = ", ".join(f"s.{name}" for name in names)
        clauses.append(
            f"WHEN NOT MATCHED AND s.{OP} IN ({PUT}, {ADD}) THEN INSERT ({', '.join(names)}) VALUES ({values})"  # noqa: S608  # every name in it is quoted
        )
    return f"MERGE INTO {ref.sql} AS t USING {_SOURCE} AS s ON {matches} {' '.join(clauses)}"


def _merge_conf(staged: Staged, mark: Mark, table_bytes: int) -> dict[str, str]:
    small = staged.rows is not None and staged.rows <= _SMALL_BATCH and table_bytes <= _SMALL_TABLE
    conf = {
        "spark.databricks.delta.write.txnAppId": mark.app_id,
        "spark.databricks.delta.write.txnVersion": str(mark.version),
        "spark.databricks.delta.commitInfo.userMetadata": mark.text,
        "spark.databricks.delta.merge.materializeSource": "none",
        "spark.sql.session.timeZone": "UTC",
    }
    if small:
        conf["spark.sql.shuffle.partitions"] = "1"
        conf["spark.sql.adaptive.enabled"] = "false"
        conf["spark.databricks.delta.merge.deletionVectors.persistent"] = "false"
    return conf


@contextlib.contextmanager
def _configured(spark: SparkSession, conf: Mapping[str, str]) -> Iterator[None]:
    """Set session configuration for one statement; what was set before is put back."""
    before = {name: spark.conf.get(name, None) for name in conf}
    try:
        for name, value in conf.items():
            spark.conf.set(name, value)
        yield
    finally:
        for name, old in before.items():
            if old is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, old)


def _marked(rows: DataFrame, mark: Mark) -> DataFrameWriter:
    return (
        rows.write.format("delta")
        .option("txnAppId", mark.app_id)
        .option("txnVersion", str(mark.version))
        .option("userMetadata", mark.text)
    )


def _save(writer: DataFrameWriter, ref: TableRef) -> None:
    if ref.path is None:
        writer.saveAsTable(ref.sql)
    else:
        writer.save(ref.path)
