"""Whatever is done to a keyed DataFrame, no key is claimed that does not hold.

Random chains of transformations, judged twice: by an oracle that knows the rule table, and by the rows
themselves. The oracle says what may be claimed at most; what is claimed less often is counted as an event.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from key_oracle import SOURCE, STEPS, Chain, Oracle, run
from mirrorlib.keys.declare import key_by
from mirrorlib.keys.read import keys_of
from mirrorlib.keys.value import Keys
from mirrorlib.keys.view import current_view

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# No value is in two columns, so that each tells which column it comes from.
ROWS = [
    (1, "a", False, 100, "x"),
    (1, "a", False, 103, None),
    (1, "b", False, 102, "y"),
    (1, "b", True, 104, None),
    (2, "a", None, 105, "z"),
]
DDL = "k1 int, k2 string, gone boolean, at int, v string"
KEY = ("k1", "k2")
PAIRS = {row[:2] for row in ROWS}
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


def assert_true(
    session: SparkSession, chain: Chain, oracle: Oracle, df: DataFrame, keys: Keys
) -> None:
    """See by the rows that what is claimed holds."""
    places = [int(oracle.columns[name][-1]) for name in keys.partition]
    found = {tuple(row) for row in df.select(*keys.partition).collect()}
    assert found <= {tuple(pair[place] for place in places) for pair in PAIRS}
    if keys.primary and not keys.lost and oracle.commutes:
        _, first = run(session, current_view(source(session)), chain)
        assert sorted(map(repr, first.collect())) == sorted(map(repr, current_view(df).collect()))


def check(session: SparkSession, chain: Chain) -> None:
    """Judge a chain."""
    oracle, df = run(session, source(session), chain)
    assert list(oracle.columns) == df.columns
    keys = keys_of(df)
    assert_allowed(oracle, keys)
    if keys:
        assert_true(session, chain, oracle, df, keys)
    if bool(keys.primary) != oracle.may_be_primary or bool(keys) != oracle.may_be_partition:
        event(f"claimed less than allowed: {', '.join(kind for kind, _ in chain)}")


@settings(
    max_examples=20,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(chain=CHAINS)
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
