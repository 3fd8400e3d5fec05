"""Options take what callers give, and refuse what would be taken for something else."""

from __future__ import annotations

from typing import Any

import pytest

import mirrorlib
from mirrorlib.ingest.options import Options


@pytest.mark.parametrize(
    "given,expected",
    [
        ((), ()),
        ("dbo/*", ("dbo/*",)),
        (["a", "b"], ("a", "b")),
        (("a",), ("a",)),
        (iter(["a", "b"]), ("a", "b")),
        ("", ("",)),
    ],
)
def test_a_lone_name_is_a_list_of_one(given: Any, expected: tuple[str, ...]) -> None:
    """Not one of letters; and what was given can change no more."""
    assert expected == Options(tables=given).tables


@pytest.mark.parametrize(
    "wrong,told",
    [
        ({"max_files": 0}, "max_files is 0; it has to be 1 or more"),
        ({"parallelism": 0}, "parallelism is 0; it has to be 1 or more"),
        ({"rewrite_limit": -1}, "rewrite_limit is -1; it has to be 0 or more"),
        ({"max_bytes": -1}, "max_bytes is -1; it has to be 1 or more"),
        ({"insert_policy": "replace"}, "insert_policy is 'replace'; it has to be one of append, upsert"),
        ({"evolution": "any"}, "evolution is 'any'; it has to be one of widen, add, strict"),
        ({"readers": "every"}, "readers is 'every'; it has to be one of None, plain"),
        ({"plain_folders": "yes"}, "plain_folders is 'yes'; it has to be one of wait, append"),
        ({"plain_evolution": "widen"}, "plain_evolution is 'widen'; it has to be one of add, rescue, fail, none"),
        ({"retention": 3}, "retention is 3; it means nothing without cleanup"),
        ({"ntz": "local"}, "ntz is 'local'; it has to be one of utc, keep"),
        ({"allow_empty": "false"}, "allow_empty is 'false'; it has to be True or False"),
        ({"quiet": 1}, "quiet is 1; it has to be True or False"),
        ({"max_files": "3"}, "max_files is '3'; it has to be a whole number or None"),
        ({"settle": True}, "settle is True; it has to be a number"),
        ({"settle": -1}, "settle is -1; it has to be 0 or more"),
        ({"moved_from": 7}, "moved_from is 7; it has to be a text or None"),
        ({"tables": [3]}, "tables is 3; it has to be a text"),
        ({"tables": None}, "tables is None; it has to be names or a text"),
    ],
)  # fmt: skip
def test_what_means_nothing_is_refused(wrong: dict[str, Any], told: str) -> None:
    """Before anything is opened, whoever calls."""
    with pytest.raises(ValueError, match=told):
        Options(**wrong)


def test_an_option_that_is_none_is_refused() -> None:
    """A misspelt one would go for nothing."""
    with pytest.raises(TypeError, match="unexpected keyword argument 'tabels'"):
        mirrorlib.plan(None, "/nowhere", "/nowhere/else", tabels=["a"])  # type: ignore[call-arg]  # that is the test
