"""A small keyed changelog for tests: two keys, a deletion column, an order column and a value."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from mirrorlib.keys.declare import key_by
from mirrorlib.keys.value import Keys

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SCHEMA = "k1 int, k2 string, d boolean, ts long, v long, w string"
ROWS = [
    (1, "a", False, 1, 10, "x"),
    (1, "a", False, 3, 20, None),
    (1, "b", False, 2, 30, "y"),
    (1, "b", True, 4, None, None),
    (2, "a", None, 5, 40, "z"),
]
KEY = ("k1", "k2")
WHOLE = Keys(partition=KEY, primary=KEY, deleted="d", order_by=("ts",))
PARTITION = Keys(partition=KEY)
NONE = Keys()


def plain(session: SparkSession) -> DataFrame:
    """Give the changelog without keys."""
    return session.createDataFrame(ROWS, SCHEMA)


def keyed(session: SparkSession) -> DataFrame:
    """Give the changelog with all its keys."""
    return key_by(plain(session), KEY, cdc=True, deleted="d", order_by="ts")


def static(session: SparkSession) -> DataFrame:
    """Give a table without keys to join with."""
    return session.createDataFrame(
        [(1, "a", "one"), (3, "c", "three")], "k1 int, k2 string, s string"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """What a transformation is tried on: a session, the keyed changelog, and Spark's functions."""

    session: SparkSession
    df: DataFrame
    f: Any

    def view(self, name: str = "kv") -> str:
        """Make a view of the changelog, and give its name."""
        self.df.createOrReplaceTempView(name)
        return name


Step: TypeAlias = Callable[[Case], "DataFrame"]


def tried(session: SparkSession) -> Case:
    """Give a case of the keyed changelog."""
    from pyspark.sql import functions as f

    return Case(session=session, df=keyed(session), f=f)


class Cases:
    """Transformations, each with the keys that have to be left."""

    def __init__(self) -> None:
        self.all: list[tuple[str, Step, Keys]] = []

    @property
    def ids(self) -> list[str]:
        """Return their names."""
        return [name for name, _, _ in self.all]

    @property
    def values(self) -> list[tuple[Step, Keys]]:
        """Return what each does, and what has to be left."""
        return [(step, keys) for _, step, keys in self.all]

    def add(self, name: str, expected: Keys, step: Step) -> None:
        """Add one."""
        self.all.append((name, step, expected))

    def leave(self, name: str, expected: Keys) -> Callable[[Step], Step]:
        """Add one that is a function."""

        def added(step: Step) -> Step:
            self.add(name, expected, step)
            return step

        return added


def renamed(**names: str) -> Keys:
    """Give the whole keys with other names."""
    key = tuple(names.get(name, name) for name in KEY)
    deleted, order = (names.get(name, name) for name in ("d", "ts"))
    return Keys(partition=key, primary=key, deleted=deleted, order_by=(order,))


def without(*lost: str) -> Keys:
    """Give the whole keys without some of the key columns."""
    left = tuple(name for name in KEY if name not in lost)
    return Keys(partition=left, primary=left, deleted="d", order_by=("ts",), lost=lost)
