"""Keys as a value: what it says, and its JSON."""

from __future__ import annotations

import pytest

from mirrorlib.errors import KeysError
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
    "text, reason",
    [
        ("{", "not JSON"),
        ("[]", "a format that this version does not know"),
        ('{"format": 2}', "a format that this version does not know"),
        ('{"format": 1}', "lack a part"),
        (WHOLE.to_json().replace('["ts"]', '"ts"'), "not what it has to be"),
        (WHOLE.to_json().replace('"d"', "3"), "not what it has to be"),
        (WHOLE.to_json().replace("lost", "gone"), "not what it has to be|lack a part"),
    ],
)
def test_other_json_is_refused(text: str, reason: str) -> None:
    """Nothing is guessed."""
    with pytest.raises(KeysError, match=reason):
        Keys.from_json(text)


def test_every_column_is_named_once() -> None:
    """The partition key first."""
    assert ("a", "b", "d", "ts") == WHOLE.columns
