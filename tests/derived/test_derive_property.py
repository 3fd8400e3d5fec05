"""Random changes of random sources: a derived table is what its transformation gives, however it got there."""

from __future__ import annotations

import os
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from derived.lakes import Lake, Transform
from mirrorlib.keys.declare import key_by

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_EXAMPLES = int(os.environ.get("MIRRORLIB_DERIVE_EXAMPLES", "30"))
_FEW = st.integers(0, 3)
_VALUE = st.one_of(st.none(), st.integers(-3, 3))
_DOUBLE = st.sampled_from(["0", "-0", "NaN", "1.5"])


@dataclass(frozen=True, slots=True)
class Recipe:
    """A transformation of orders (customer, id, v, x), and of customers (customer, name) where it takes two.

    Attributes:
        name: what it is.
        transform: it.
        sources: its sources.
        in_full: it goes by no key.
        edited: what becomes of it between two rounds; else fewer rows.

    """

    name: str
    transform: Transform
    sources: tuple[str, ...] = ("orders",)
    in_full: bool = False
    edited: Transform | None = None

    def other(self, *frames: DataFrame) -> DataFrame:
        """Transform as it is after the edit."""
        if self.edited is not None:
            return self.edited(*frames)
        result = self.transform(*frames)
        return result.where(f"{result.columns[0]} > 0")


BOTH = ("orders", "customers")


def _ranked(orders: DataFrame) -> DataFrame:
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    return orders.withColumn("s", f.sum("v").over(Window.partitionBy("customer")))


def _union(orders: DataFrame, customers: DataFrame) -> DataFrame:
    other = customers.selectExpr("customer", "customer AS id", "length(name) AS v", "0D AS x")
    return key_by(orders.unionByName(other), ["customer", "id"], cdc=True, order_by="v")


def _exploded(orders: DataFrame) -> DataFrame:
    return orders.selectExpr("id", "customer AS c", "explode(sequence(1, v)) AS e")


def _joined(by: str, how: str = "left") -> Transform:
    """Join orders and customers where an expression of the one is the other's key."""

    def transform(orders: DataFrame, customers: DataFrame) -> DataFrame:
        from pyspark.sql import functions as f

        named = customers.selectExpr("customer AS k", "name")
        return orders.join(named, f.expr(f"{by} = k"), how).select("customer", "id", "v", "name")

    return transform


def _named(orders: DataFrame, customers: DataFrame) -> DataFrame:
    """Join by a column of the customers' own, too, that comes out: NULL where nothing matches."""
    named = customers.selectExpr("customer AS k", "length(name) AS a", "name")
    return orders.join(named, named.k.eqNullSafe(orders.v) & (named.a == named.k), "left").select(
        "customer", "id", "v", "a", "name"
    )


def _nested(*fields: str) -> Transform:
    """Put columns of orders into a struct."""
    return lambda orders: orders.selectExpr("id", "customer", f"struct({', '.join(fields)}) AS s")


def _queried(query: str) -> Transform:
    """Give a query over a view of orders."""

    def transform(orders: DataFrame) -> DataFrame:
        orders.createOrReplaceTempView("seen_orders")
        return orders.sparkSession.sql(query)

    return transform


_EXCHANGED = "WITH q AS (SELECT customer AS id, id AS customer, v FROM seen_orders) SELECT * FROM q"
_GROUPED = (
    "WITH q AS (SELECT customer AS c, v AS customer, count(*) AS n FROM seen_orders GROUP BY customer, v) "
    "SELECT customer, n FROM q"
)
_NAMES = "map(0, 7, 1, 7, 2, 8)"
_LOOKED_UP = f"WITH q AS (SELECT {_NAMES}[customer] AS customer, {_NAMES}[id] AS id FROM seen_orders) SELECT * FROM q"

RECIPES = (
    Recipe("rows", lambda o: o.where("v > 1").selectExpr("id AS i", "customer", "v + 1 AS w")),
    Recipe("explode", _exploded),
    Recipe("part of the key", lambda o: o.select("customer", "v")),
    Recipe("group", lambda o: o.groupBy("customer").agg({"v": "sum", "*": "count"})),
    Recipe("distinct", lambda o: o.select("customer", "v").distinct()),
    Recipe("window", _ranked),
    Recipe("left", lambda o, c: o.join(c, "customer", "left"), BOTH),
    Recipe("inner", lambda o, c: o.join(c, "customer").groupBy("customer").count(), BOTH),
    Recipe("semi", lambda o, c: o.join(c, "customer", "left_semi").drop("id"), BOTH),
    Recipe("anti", lambda o, c: o.join(c, "customer", "left_anti"), BOTH),
    Recipe("by a value", _joined("v"), BOTH),
    Recipe("of rows that name themselves", _named, BOTH),
    Recipe("as text", lambda o: o.selectExpr("id", "customer", "CAST(x AS string) AS t")),
    Recipe("nested", _nested("v", "x"), edited=_nested("x", "v")),
    Recipe("negated", _joined("-v"), BOTH, in_full=True),
    Recipe("negated, inner", _joined("-v", "inner"), BOTH, in_full=True),
    Recipe("complemented", _joined("~v"), BOTH, in_full=True),
    Recipe("complemented, inner", _joined("~v", "inner"), BOTH, in_full=True),
    Recipe("full", lambda o, c: o.join(c, "customer", "full"), BOTH, in_full=True),
    Recipe("union, then key by", _union, BOTH),
    Recipe("group by a value", lambda o: o.groupBy("v").count(), in_full=True),
    Recipe("self join", lambda o: o.join(o.groupBy().max("v")), in_full=True),
    Recipe("top", lambda o: o.sort("customer", "id", "v").limit(2), in_full=True),
    Recipe("exchanged by SQL", _queried(_EXCHANGED)),
    Recipe("another column by SQL", _queried(_GROUPED), in_full=True),
    Recipe("looked up by SQL", _queried(_LOOKED_UP), in_full=True),
    Recipe("counted", lambda o: o.selectExpr("*", f"v + {o.count()} AS w"), in_full=True),
)


@st.composite
def changes(draw: st.DrawFn) -> str:
    """Give a statement that changes a source, and keeps its keys apart."""
    customer, key, value = draw(_FEW), draw(_FEW), draw(_VALUE)
    told = "NULL" if value is None else str(value)
    number = f"CAST('{draw(_DOUBLE)}' AS double)"
    which = f"customer = {customer} AND id = {key}"
    insert = f"INSERT INTO {{orders}} SELECT {customer}, {key}, {told}, {number} WHERE NOT EXISTS"
    return draw(
        st.sampled_from(
            [
                f"{insert} (SELECT 1 FROM {{orders}} WHERE {which})",
                f"UPDATE {{orders}} SET v = {told} WHERE {which}",
                f"UPDATE {{orders}} SET v = {told} WHERE id = {key}",
                f"UPDATE {{orders}} SET x = {number} WHERE {which}",
                f"UPDATE {{orders}} SET id = 3 - id WHERE customer = {customer}",
                f"UPDATE {{orders}} SET customer = 3 - customer WHERE id = {key}",
                f"DELETE FROM {{orders}} WHERE {which}",
                f"DELETE FROM {{orders}} WHERE customer = {customer}",
                f"UPDATE {{customers}} SET name = '{told}' WHERE customer = {customer}",
                f"DELETE FROM {{customers}} WHERE customer = {customer}",
                (
                    f"INSERT INTO {{customers}} SELECT {customer}, '{told}' "
                    f"WHERE NOT EXISTS (SELECT 1 FROM {{customers}} WHERE customer = {customer})"
                ),
            ]
        )
    )


# Without a new version nobody looks at the transformation.
_MORE = "INSERT INTO {orders} VALUES (9, 9, 1, 0)"
_ROUNDS = st.lists(st.lists(changes(), min_size=1, max_size=3), min_size=1, max_size=2)


def play(
    spark: SparkSession,
    root: Path,
    recipe: Recipe,
    rounds: Sequence[Sequence[str]],
    *,
    unique: bool,
    edits: bool = False,
) -> None:
    """Change sources and derive, in turns; the lake judges. Where *edits* says so the last round is of another form."""
    lake = Lake(spark, root / uuid.uuid4().hex)
    lake.make("orders", "customer int, id int, v int, x double", "customer", "id", unique=unique)
    lake.make("customers", "customer int, name string", "customer")
    lake.run(
        "INSERT INTO {orders} VALUES (0, 0, 1, 0), (0, 1, 2, 0), (1, 0, NULL, 1), (1, 1, 3, NULL), (2, 0, 2, 0)",
        "INSERT INTO {customers} VALUES (0, 'zero'), (1, 'one'), (3, NULL)",
    )
    if not unique:
        lake.run("INSERT INTO {orders} VALUES (0, 0, 1, 0), (0, 1, 3, 0), (2, 0, 2, 1)")
    lake.derive(recipe.sources, recipe.transform)
    for number, statements in enumerate(rounds, 1):
        edited = edits and number == len(rounds)
        lake.run(*statements, *([_MORE] if edited else []))
        report = lake.derive(recipe.sources, recipe.other if edited else recipe.transform)
        assert recipe.in_full or edited or report.how != "full", report.why


@pytest.mark.thorough
@pytest.mark.parametrize(
    "name, unique", [("left", True), ("window", False)], ids=["left join", "window"]
)
def test_a_derived_table_ends_right_after_some_changes(
    spark: SparkSession, tmp_path: Path, name: str, *, unique: bool
) -> None:
    """Changes of both kinds, two rounds; where keys occur once, and where they do not."""
    recipe = next(one for one in RECIPES if one.name == name)
    rounds = [
        ["UPDATE {orders} SET v = 9 WHERE id = 1", "DELETE FROM {orders} WHERE customer = 2"],
        [
            "UPDATE {customers} SET name = 'uno' WHERE customer = 1",
            "INSERT INTO {orders} VALUES (3, 0, 1, 0)",
        ],
    ]
    play(spark, tmp_path, recipe, rounds, unique=unique)


@pytest.mark.slow
@pytest.mark.thorough
@given(recipe=st.sampled_from(RECIPES), rounds=_ROUNDS, unique=st.booleans(), edits=st.booleans())
@settings(max_examples=_EXAMPLES, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_derived_table_is_what_its_transformation_gives(
    spark: SparkSession,
    tmp_path: Path,
    recipe: Recipe,
    rounds: list[list[str]],
    *,
    unique: bool,
    edits: bool,
) -> None:
    """After every round, as rows and as what its feed comes to; never in full where keys tell."""
    play(spark, tmp_path, recipe, rounds, unique=unique, edits=edits)
