"""A small lake for tests of derived tables: sources that SQL changes, and an oracle that computes all of it anew.

In: a session and a folder. Out: `Lake`. After each run a table has to be what the transformation gives on the
sources as they are, and its own feed has to lead there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import mirrorlib
from mirrorlib.keys.value import Keys

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

    from mirrorlib.derived.report import DeriveReport

Transform = Callable[..., "DataFrame"]
UNIQUE, GROUPED = "unique", "grouped"


def _plain(row: Row) -> tuple[Any, ...]:
    """Give a row as values that are equal where Spark takes them for equal; a struct is its fields in any order."""
    return tuple(
        tuple(sorted(zip(value.__fields__, _plain(value), strict=True)))
        if hasattr(value, "__fields__")
        else ("NaN" if value != value else value)  # noqa: PLR0124  # so NaN is known
        for value in row
    )


class Lake:
    """Tables below a folder, by name."""

    def __init__(self, spark: SparkSession, root: Path) -> None:
        self.spark, self.root = spark, root

    def path(self, name: str) -> str:
        """Return where a table lies."""
        return str(self.root / name)

    def make(self, name: str, columns: str, *keys: str, unique: bool = True) -> str:
        """Make an empty source with a feed, and keys as a mirror would have them."""
        told = Keys(partition=keys, primary=keys if unique else (), unique=unique)
        stored = f", 'mirrorlib.keys' = '{told.to_json()}'" if keys else ""
        self.spark.sql(
            f"CREATE TABLE delta.`{self.path(name)}` ({columns}) USING delta "
            f"TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true'{stored})"
        )
        return self.path(name)

    def run(self, *statements: str) -> None:
        """Run SQL as mirrorlib would commit it, `{name}` being a table."""
        self.spark.conf.set(
            "spark.databricks.delta.commitInfo.userMetadata", '{"mirrorlib":{"test":1}}'
        )
        for statement in statements:
            self.foreign(statement)
        self.spark.conf.unset("spark.databricks.delta.commitInfo.userMetadata")

    def foreign(self, statement: str) -> None:
        """Run SQL as somebody else would."""
        for name in ("orders", "customers", "out", "silver"):
            statement = statement.replace(f"{{{name}}}", f"delta.`{self.path(name)}`")
        self.spark.sql(statement)

    def derive(
        self,
        sources: Sequence[str] | Mapping[str, str],
        transform: Transform,
        target: str = "out",
        **options: Any,
    ) -> DeriveReport:
        """Derive a table, and judge it."""
        told: Any = (
            {name: self.path(table) for name, table in sources.items()}
            if isinstance(sources, Mapping)
            else [self.path(table) for table in sources]
        )
        report = mirrorlib.derive(self.spark, target, told, transform, self.path(target), **options)
        self.check(sources, transform, target)
        return report

    def rows(self, name: str) -> Counter[tuple[Any, ...]]:
        """Count the rows of a table."""
        return Counter(map(_plain, self.spark.read.format("delta").load(self.path(name)).collect()))

    def check(
        self, sources: Sequence[str] | Mapping[str, str], transform: Transform, target: str
    ) -> None:
        """Compare a table with the transformation of all rows, and with what its feed comes to."""
        read = {
            name: mirrorlib.read_table(self.spark, self.path(name))
            for name in (sources.values() if isinstance(sources, Mapping) else sources)
        }
        if isinstance(sources, Mapping):
            expected = transform(**{name: read[table] for name, table in sources.items()})
        else:
            expected = transform(*(read[name] for name in sources))
        found = self.rows(target)
        assert Counter(map(_plain, expected.collect())) == found
        assert self.replayed(target) in (None, found)

    def replayed(self, name: str) -> Counter[tuple[Any, ...]] | None:
        """Replay a table's feed; None where it cannot be read from the beginning."""
        try:
            feed = mirrorlib.read_feed(self.spark, self.path(name), after=-1)
        except mirrorlib.FeedExpiredError:
            return None
        rows: Counter[tuple[Any, ...]] = Counter()
        for row in feed.collect():
            comes = row["_change_type"] in {"insert", "update_postimage"}
            rows[_plain(row)[:-3]] += 1 if comes else -1
        return +rows
