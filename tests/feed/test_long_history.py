"""A long history of every kind of commit, read in random windows: `make history N=10000` makes ten thousand."""

from __future__ import annotations

import os
import random
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import UnsupportedOperationException

import mirrorlib
from mirrorlib.delta.sessions import SMALL_COMMIT

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COMMITS = int(os.environ.get("MIRRORLIB_HISTORY", "100"))  # in all of a test's cases together
STRETCH = 50  # commits between two looks
KEYS = 8
State = Counter[tuple[tuple[str, str], ...]]


@pytest.mark.thorough
@pytest.mark.timeout(0 if "MIRRORLIB_HISTORY" in os.environ else 900)
@pytest.mark.parametrize("vectors", [True, False], ids=["vectors", "rewritten"])
def test_windows_lead_from_state_to_state(
    spark: SparkSession, tmp_path: Path, *, vectors: bool
) -> None:
    """The state before a window and what its feed tells, commit by commit, is the state after each of them."""
    dice, table = random.Random(COMMITS + vectors), str(tmp_path / "t")
    session = spark.newSession()
    for conf, value in SMALL_COMMIT.items():  # a quarter more commits a second
        session.conf.set(conf, value)
    history = History(session, table, dice, vectors=vectors)
    while (first := history.newest()) < COMMITS // 2:
        for _ in range(STRETCH):  # some change nothing, and commit nothing
            history.commit()
        newest = history.newest()
        history.check(first, newest)
        after, until = sorted(dice.sample(range(first, newest + 1), 2))
        history.check(after, until)
        history.check(max(0, first - dice.randrange(3 * STRETCH)), newest, net=True)
        history.forget(first - 3 * STRETCH)


class History:
    """A table, and what may be done to it."""

    def __init__(
        self, spark: SparkSession, table: str, dice: random.Random, *, vectors: bool
    ) -> None:
        self.spark, self.table, self.dice = spark, table, dice
        self.name = f"delta.`{table}`"
        self.columns = ["k", "v"]
        self.grown = 0  # the version that added the last column
        spark.sql(
            f"CREATE TABLE {self.name} (k bigint, v double) USING delta TBLPROPERTIES "
            f"('delta.enableChangeDataFeed' = 'true', 'delta.enableDeletionVectors' = '{str(vectors).lower()}')"
        )

    def newest(self) -> int:
        """Ask Delta for its newest version."""
        rows = self.spark.sql(f"DESCRIBE HISTORY {self.name} LIMIT 1").collect()
        return int(rows[0]["version"])

    def commit(self) -> None:
        """Do anything."""
        name, dice = self.name, self.dice
        key = dice.randrange(KEYS)
        rows = ", ".join(
            f"({dice.choice([dice.randrange(KEYS), 'NULL'])}, {dice.randrange(5)}.0D)"
            for _ in range(dice.randint(1, 5))
        )
        source = f"(SELECT {key}L AS k, {dice.randrange(5)}.0D AS v)"
        into = f"INSERT INTO {name} (k, v)"
        later = ", CAST(NULL AS string)" * (len(self.columns) - 2)  # this statement takes no list
        kinds = [
            f"{into} VALUES {rows}",
            f"{into} VALUES {rows}",
            f"{into} SELECT * FROM VALUES {rows} AS r(k, v) WHERE k < 0",
            f"UPDATE {name} SET v = v + 1 WHERE k <= {key}",
            f"UPDATE {name} SET v = v WHERE k = {key}",
            f"DELETE FROM {name} WHERE k = {key}",
            f"DELETE FROM {name} WHERE v > 3",
            f"INSERT INTO {name} REPLACE WHERE k = {key} SELECT {key}L, 7.0D{later}",
            (
                f"MERGE INTO {name} t USING {source} s ON t.k = s.k WHEN MATCHED THEN UPDATE SET v = s.v "
                "WHEN NOT MATCHED THEN INSERT (k, v) VALUES (s.k, s.v)"
            ),
            (
                f"MERGE INTO {name} t USING {source} s ON t.k = s.k WHEN MATCHED AND t.v > s.v THEN DELETE "
                "WHEN MATCHED THEN UPDATE SET v = s.v WHEN NOT MATCHED BY SOURCE AND t.v = 1 THEN DELETE"
            ),
            f"OPTIMIZE {name}",
            f"ALTER TABLE {name} SET TBLPROPERTIES ('delta.enableDeletionVectors' = '{dice.choice(['true', 'false'])}')",
        ]
        chosen = dice.choice(kinds)
        if dice.random() < 0.03:
            chosen = f"DELETE FROM {name}"
        elif dice.random() < 0.03:
            # Not to before a column came: that takes it away, which no window spans.
            version = max(self.grown, self.newest() - dice.randrange(4))
            chosen = f"RESTORE TABLE {name} TO VERSION AS OF {version}"
        elif dice.random() < 0.02 and len(self.columns) < 30:
            self.columns.append(f"c{len(self.columns)}")
            chosen = f"ALTER TABLE {name} ADD COLUMNS ({self.columns[-1]} string)"
            self.grown = self.newest() + 1
        elif dice.random() < 0.05 and len(self.columns) > 2:
            chosen = f"UPDATE {name} SET {self.columns[-1]} = 'x' WHERE k = {key}"
        try:
            self.spark.sql(chosen)
        except UnsupportedOperationException as exc:
            # To a version with vectors, where they have been switched off: Delta refuses, and commits nothing.
            if "ADDING_DELETION_VECTORS_DISALLOWED" not in str(exc) or "RESTORE" not in chosen:
                raise

    def forget(self, version: int) -> None:
        """Clean the log up to a version, as Delta does after a month: each commit lists all that is there."""
        log = Path(self.table, "_delta_log")
        points = [int(file.name[:20]) for file in log.glob("*.checkpoint*.parquet")]
        known = max((point for point in points if point <= version), default=0)
        for file in log.iterdir():
            if file.name[:20].isdecimal() and int(file.name[:20]) < known:
                file.unlink()

    def state(self, version: int) -> State:
        """Count the rows of a version by time travel, which knows nothing of feeds."""
        frame = self.spark.read.format("delta").option("versionAsOf", version).load(self.table)
        return Counter(plain(row.asDict()) for row in frame.collect())

    def check(self, after: int, until: int, *, net: bool = False) -> None:
        """Go from the state at one version to the state at another by what the feed tells."""
        frame = mirrorlib.read_feed(
            self.spark, self.table, after=after, until=until, net=net, keys=["k"] if net else ()
        )
        rows = [row.asDict() for row in frame.collect()]
        state = self.state(after)
        checked = set(self.dice.sample(range(after, until + 1), 1)) if until > after else set()
        for version in [until] if net else range(after + 1, until + 1):
            mine = rows if net else [row for row in rows if row["_commit_version"] == version]
            gone = Counter(
                plain(row) for row in mine if row["_change_type"] in {"delete", "update_preimage"}
            )
            come = Counter(
                plain(row) for row in mine if row["_change_type"] in {"insert", "update_postimage"}
            )
            assert not gone - (state + Counter()), (version, gone - state)
            state = state - gone + come
            if not net and version in checked:
                assert state == self.state(version), version
            assert not net or not gone & come
        assert state == self.state(until), (after, until)


def plain(row: dict[str, Any]) -> tuple[tuple[str, str], ...]:
    """Give what a row holds; a column that a version has not yet is one without a value."""
    return tuple(
        sorted((name, repr(v)) for name, v in row.items() if v is not None and name[0] != "_")
    )
