"""Tables whose change feed tests read."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import mirrorlib

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FEED = "'delta.enableChangeDataFeed' = 'true'"
# A column of every type, a row of values at their ends, and one of NULLs.
COLUMNS = (
    "id int, flag boolean, tiny tinyint, small smallint, big bigint, single float, double double, "
    "money decimal(38,18), text string, bytes binary, day date, at timestamp, wall timestamp_ntz"
)
ROW = (
    "({id}, true, 1Y, -2S, 9223372036854775807, float('NaN'), -0.0D, 12345678901234567890.123456789012345678, "
    "'Grüße ✓', X'00FF', DATE'0001-01-01', TIMESTAMP'1500-02-28 01:02:03.456789', TIMESTAMP_NTZ'9999-12-31 23:59:59')"
)
NULLS = f"({{id}}{', NULL' * 12})"


class Table:
    """A Delta table that SQL changes, `{t}` being its name."""

    def __init__(
        self, spark: SparkSession, path: Path, columns: str, properties: str = FEED
    ) -> None:
        self.spark, self.path = spark, str(path)
        self.run(f"CREATE TABLE {{t}} ({columns}) USING delta TBLPROPERTIES ({properties})")

    @classmethod
    def at(cls, spark: SparkSession, path: Path) -> Table:
        """Take a table that is still to be made."""
        table = cls.__new__(cls)
        table.spark, table.path = spark, str(path)
        return table

    def run(self, *statements: str) -> Table:
        """Run SQL, a commit each."""
        for statement in statements:
            self.spark.sql(statement.format(t=f"delta.`{self.path}`"))
        return self

    def read(self, **bounds: Any) -> DataFrame:  # as `read_feed` takes them
        """Read its feed."""
        return mirrorlib.read_feed(self.spark, self.path, **bounds)

    def log(self, version: int) -> str:
        """Name the file of a version."""
        return f"{self.path}/_delta_log/{version:020d}.json"

    def times(self) -> list[datetime]:
        """Give when each version was committed."""
        rows = self.spark.sql(f"DESCRIBE HISTORY delta.`{self.path}`").collect()
        return [
            row["timestamp"].replace(tzinfo=UTC)
            for row in sorted(rows, key=lambda row: row["version"])
        ]

    def age(self, days: int) -> Table:
        """Let the log look as if everything had been committed that long ago."""
        then = (datetime.now(UTC) - timedelta(days=days)).timestamp()
        for file in Path(self.path, "_delta_log").iterdir():
            if file.is_file():
                os.utime(file, (then, then))
        return self


def told(frame: DataFrame, *columns: str) -> list[tuple[Any, ...]]:
    """Give version, change and columns, in order."""
    rows = frame.select("_commit_version", "_change_type", *(columns or ("id", "v"))).collect()
    return sorted((tuple(row) for row in rows), key=str)
