"""Keys as a value: what it says, and its JSON."""

from __future__ import annotations

import pytest

from mirrorlib.keys.value import Keys

WHOLE = Keys(partition=("a", "b"), primary=("a", "b"), deleted="d", order_by=("ts",), lost=("c",))


def test_no_keys_are_false() -> None:
    """A caller can ask `if keys_of(df)`."""
    assert not Keys()
    assert Keys(partition=("a",))


def test_keys_outlive_json() -> None:
    """What tables keep is read as it was written."""
    assert WHOLE == Keys.from_json(WHOLE.to_json())
    assert Keys.from_json(Keys(partition=("a",), unique=True).to_json()).unique


def test_the_json_is_a_contract() -> None:
    """It lies in tables."""
    assert (
        '{"format": 1, "partition": ["a", "b"], "primary": ["a", "b"], "deleted": "d", '
        '"order_by": ["ts"], "lost": ["c"], "unique": false}'
    ) == WHOLE.to_json()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "null",
        '{"format": 1}',
        WHOLE.to_json().replace('"format": 1', '"format": 2'),
        WHOLE.to_json().replace('["ts"]', '"ts"'),
        WHOLE.to_json().replace('["ts"]', "[1]"),
        WHOLE.to_json().replace('"d"', "3"),
        WHOLE.to_json().replace("false", '"no"'),
        WHOLE.to_json().replace("lost", "gone"),
        WHOLE.to_json().replace("{", '{"more": 1, '),
    ],
)
def test_other_json_is_none(text: str) -> None:
    """Nothing is guessed."""
    assert Keys.from_json(text) is None


def test_every_column_is_named_once() -> None:
    """The partition key first."""
    assert ("a", "b", "d", "ts") == WHOLE.columns
