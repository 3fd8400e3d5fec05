"""Columns of a derived table are followed through its plan to the columns that their values are made of."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import pytest

import mirrorlib
from derived.lakes import Lake

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

ORDERS, PEOPLE = "id INT, customer INT, amount INT, tags ARRAY<STRING>", "customer INT, name STRING"


def sql(text: str) -> Callable[..., DataFrame]:
    """Give a transformation that is a statement of SQL."""

    def run(orders: DataFrame, people: DataFrame) -> DataFrame:
        orders.createOrReplaceTempView("o")
        people.createOrReplaceTempView("p")
        return orders.sparkSession.sql(text)

    return run


CASES: dict[str, tuple[str, dict[str, str]]] = {
    "a copy, a sum and a constant": (
        "SELECT id AS a, id + amount AS b, 1 AS c FROM o",
        {"a": "o.id", "b": "o.amount o.id", "c": ""},
    ),
    "what only chooses rows is none": (
        "SELECT id FROM o WHERE amount > 1 AND customer IN (SELECT customer FROM p)",
        {"id": "o.id"},
    ),
    "an aggregate of a join": (
        "SELECT name, sum(amount) AS total FROM o JOIN p USING (customer) GROUP BY name",
        {"name": "p.name", "total": "o.amount"},
    ),
    "a window and what is exploded": (
        "SELECT explode(tags) AS tag, row_number() OVER (PARTITION BY customer ORDER BY id) AS n FROM o",
        {"tag": "o.tags", "n": "o.customer o.id"},
    ),
    "a union, and an expression that is named and used twice": (
        "WITH q AS (SELECT customer, amount * 2 AS z FROM o) SELECT q.customer AS k, r.z AS z FROM q JOIN q r USING (customer) UNION ALL SELECT customer, length(name) FROM p",
        {"k": "o.customer p.customer", "z": "o.amount p.name"},
    ),
    "odd names": (
        "SELECT id AS `x AS y, #1`, amount AS `b``c` FROM o",
        {"b`c": "o.amount"},
    ),
}


@pytest.mark.thorough("a copy*", "what*", "an aggregate*", "odd*", "*union*")
@pytest.mark.parametrize("case", CASES)
def test_a_column_leads_back_to_its_sources(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture, case: str
) -> None:
    """By table and name; where nobody can tell, nothing is said."""
    caplog.set_level(logging.INFO, logger="mirrorlib.events")
    lake = Lake(spark, tmp_path)
    places = [lake.make("o", ORDERS, "id"), lake.make("p", PEOPLE, "customer")]
    text, expected = CASES[case]

    mirrorlib.derive(spark, "derived", places, sql(text), lake.path("derived"))

    (origins,) = (one.origins for one in caplog.records if getattr(one, "event", "") == "derive")  # type: ignore[attr-defined]  # an extra
    assert expected == {
        name: " ".join(f"{table.rpartition('/')[2]}.{column}" for table, column in of)
        for name, of in origins.items()
        if of or name in expected
    }
