"""Whatever is done to a keyed DataFrame, no key is claimed that does not hold.

Random chains of transformations, judged twice: by an oracle that knows the rule table, and by the rows
themselves. The oracle says what may be claimed at most; what is claimed less often is counted as an event.
"""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, event, example, given, settings
from hypothesis import strategies as st

from key_oracle import ROW, SOURCE, STEPS, TRAPS, Chain, Oracle, run
from mirrorlib.keys.declare import key_by
from mirrorlib.keys.read import keys_of
from mirrorlib.keys.value import Keys
from mirrorlib.keys.view import current_view

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# No value is in two columns, so that each tells which column it comes from.
ROWS = [
    (1, "a", False, 100, "x", 11),
    (1, "a", False, 103, None, 12),
    (1, "b", False, 102, "y", 13),
    (1, "b", True, 104, None, 14),
    (2, "a", None, 105, "z", 15),
]
DDL = f"k1 int, k2 string, gone boolean, at int, v string, {ROW} int"
KEY = ("k1", "k2")
ROOT = Path(__file__).parents[2]
COUNTED = 300
GIVEN_UP = {"map_rows", "python", "python_filter", "union"}
PAIRS = {row[-1]: row[:2] for row in ROWS}
CHAINS = st.lists(
    st.tuples(st.sampled_from(sorted(STEPS)), st.integers(0, 6)), min_size=1, max_size=6
)


def source(session: SparkSession) -> DataFrame:
    """Give the changelog with its keys."""
    df = session.createDataFrame(ROWS, DDL)
    return key_by(df, KEY, cdc=True, deleted="gone", order_by="at")


def assert_allowed(oracle: Oracle, keys: Keys) -> None:
    """See that no more is claimed than the rule table allows."""
    assert not keys.partition or oracle.may_be_partition
    assert not keys.primary or oracle.may_be_primary
    origins = [oracle.columns[name] for name in keys.partition]
    assert sorted(set(origins)) == origins, "each once, and in order"
    assert all(origin.startswith("key") for origin in origins)
    assert keys.primary in {(), keys.partition}
    assert keys.deleted is None or oracle.columns[keys.deleted] == "gone"
    assert [oracle.columns[name] for name in keys.order_by] == (["at"] if keys.primary else [])
    assert not keys.partition or len(keys.partition) + len(keys.lost) == len(KEY)


def assert_same_rows(oracle: Oracle, df: DataFrame, keys: Keys) -> None:
    """See that every row has the key of the row that it is made of."""
    places = [int(oracle.columns[name][-1]) for name in keys.partition]
    for number, *key in df.select(ROW, *keys.partition).collect():
        assert [PAIRS[number][place] for place in places] == key


def assert_true(
    session: SparkSession, chain: Chain, oracle: Oracle, df: DataFrame, keys: Keys
) -> None:
    """See by the rows that what is claimed holds."""
    assert_same_rows(oracle, df, keys)
    if keys.primary and not keys.lost and oracle.commutes:
        _, first = run(session, current_view(source(session)), chain)
        assert sorted(map(repr, first.collect())) == sorted(map(repr, current_view(df).collect()))


def check(session: SparkSession, chain: Chain) -> None:
    """Judge a chain."""
    oracle, df = run(session, source(session), chain)
    assert list(oracle.columns) == [name for name in df.columns if name != ROW]
    keys = keys_of(df)
    assert_allowed(oracle, keys)
    if keys:
        assert_true(session, chain, oracle, df, keys)
    if bool(keys.primary) != oracle.may_be_primary or bool(keys) != oracle.may_be_partition:
        event(f"claimed less than allowed: {', '.join(kind for kind, _ in chain)}")


def test_a_key_of_another_row_is_noticed(spark: SparkSession) -> None:
    """The judge itself: all values are the source's, and two rows have exchanged them."""
    moved = [(2, *ROWS[0][1:]), *ROWS[1:4], (1, *ROWS[4][1:])]
    keys = Keys(partition=KEY)
    assert_same_rows(Oracle(), spark.createDataFrame(ROWS, DDL), keys)

    with pytest.raises(AssertionError):
        assert_same_rows(Oracle(), spark.createDataFrame(moved, DDL), keys)


@pytest.mark.thorough("connect")
@settings(
    max_examples=20,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(chain=CHAINS)
@example(chain=[("replaced_view", 1), ("replaced_view", 1)])
def test_no_key_is_claimed_falsely(session: SparkSession, chain: Chain) -> None:
    """On both kinds of Spark."""
    check(session, chain)


@pytest.mark.thorough
@pytest.mark.slow
@settings(max_examples=300, suppress_health_check=[HealthCheck.too_slow])
@given(chain=CHAINS)
def test_no_key_is_ever_claimed_falsely(spark: SparkSession, chain: Chain) -> None:
    """The same, as often as there is time for."""
    check(spark, chain)


@pytest.mark.thorough
@pytest.mark.parametrize("kind", sorted(STEPS))
def test_each_step_alone_claims_what_the_rules_allow(session: SparkSession, kind: str) -> None:
    """On every column."""
    for number in range(len(SOURCE)):
        check(session, [(kind, number)])


@pytest.mark.thorough
@pytest.mark.slow
def test_as_much_is_claimed_as_the_documentation_says(spark: SparkSession) -> None:
    """What is lost unnecessarily is counted, over chains that are always the same."""
    chance = random.Random(6)
    found: Counter[str] = Counter()
    for _ in range(COUNTED):
        chain = [
            (chance.choice(sorted(STEPS.keys() - TRAPS)), chance.randrange(7))
            for _ in range(chance.randint(1, 6))
        ]
        oracle, df = run(spark, source(spark), chain)
        count(found, chain, oracle, keys_of(df))

    assert told(found) in (ROOT / "docs" / "keys.md").read_text(encoding="utf-8")


def count(found: Counter[str], chain: Chain, oracle: Oracle, keys: Keys) -> None:
    """Count one chain: what holds by the values, what the rules give up, what is claimed, and how much is not."""
    allowed = oracle.there if oracle.partition else 0
    if oracle.true and oracle.there:
        found["true"] += 1
        found["union" if given_up(chain) == "union" else "Python"] += not oracle.partition
    found["claimed partition"] += bool(keys)
    found["columns"] += allowed - len(keys.partition)
    found["claimed primary"] += bool(keys.primary)


def given_up(chain: Chain) -> str:
    """Name the first step at which the rules give up what the values would let be."""
    return next((kind for kind, _ in chain if kind in GIVEN_UP), "")


def told(found: Counter[str]) -> str:
    """Give the sentences of the documentation."""
    claimed, primary = found["claimed partition"], found["claimed primary"]
    return f"""\
Of {COUNTED} random chains of one to six steps, the same in each run of a test, {found["true"]} leave a key column's values to each row: {claimed} keep a claim
({primary} the primary key's), {found["Python"]} lose it to a function of a user's and {found["union"]} to a plain union. Key columns that the rules keep and nobody claims: {found["columns"]}.
"""
