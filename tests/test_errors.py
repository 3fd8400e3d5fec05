"""Errors carry their facts, say what to do next, and hold no data."""

from __future__ import annotations

import copy
import inspect
import pickle

import pytest

from mirrorlib import errors
from mirrorlib.errors import (
    ChangeFileError,
    FileChangedError,
    MarkerError,
    MirrorError,
    SchemaError,
)

KINDS = [
    kind
    for _, kind in inspect.getmembers(errors, inspect.isclass)
    if issubclass(kind, MirrorError) and kind is not MirrorError
]


def test_the_text_is_built_from_the_facts_and_ends_in_what_to_do() -> None:
    """Table, file, row and column come first, advice last."""
    error = MarkerError(
        "the row marker is not 0, 1, 2 or 4",
        table="dbo/orders",
        file="00000000000000000003.parquet",
        column="__rowMarker__",
        row=17,
        found=3,
        next_step="Publish it again.",
    )

    assert (
        "dbo/orders: 00000000000000000003.parquet, row 17, column __rowMarker__: "
        "the row marker is not 0, 1, 2 or 4 (found 3). Publish it again." == str(error)
    )


def test_a_line_of_a_text_file_is_shown_in_place_of_the_row() -> None:
    """An editor goes to a line, and both are known to code."""
    error = ChangeFileError("it is no Int32", file="1.csv", column="id", row=4, line=7)

    assert "1.csv, line 7, column id" == error.place
    assert (4, 7) == (error.to_dict()["row"], error.to_dict()["line"])


@pytest.mark.parametrize("kind", KINDS)
def test_every_error_says_what_to_do_without_being_told(kind: type[MirrorError]) -> None:
    """A class's own advice ends its text."""
    error = kind("something is wrong")

    assert error.next_step == kind.advice
    assert str(error) == f"something is wrong. {kind.advice}"
    assert kind.advice.endswith(".")


def test_an_error_is_json_ready() -> None:
    """Every attribute is in it, next to the class's name and the text."""
    error = FileChangedError("it is another file now", table="t", file="1.parquet")

    assert {
        "error": "FileChangedError",
        "message": str(error),
        "reason": "it is another file now",
        "table": "t",
        "file": "1.parquet",
        "column": None,
        "row": None,
        "line": None,
        "found": None,
        "next_step": FileChangedError.advice,
    } == error.to_dict()


def test_an_error_keeps_its_facts_across_processes() -> None:
    """Pickling and copying lose nothing."""
    error = MarkerError("the row marker is NULL", table="t", row=0)

    for other in (pickle.loads(pickle.dumps(error)), copy.copy(error)):  # noqa: S301  # our own bytes
        assert type(error) is type(other)
        assert error.to_dict() == other.to_dict()


def test_what_others_have_written_stays_in_one_line() -> None:
    """A name or what was found may hold anything; only a reason, or what to do next, has lines of its own."""
    facts = {"table": "a\nb", "file": "1\n.csv", "column": "c\x1b[2J", "found": "x\r\ny"}
    error = SchemaError("first\nsecond", next_step="Do it.", **facts)

    assert ["a\\nb: 1\\n.csv, column c\\x1b[2J: first", "second (found x\\r\\ny). Do it."] == str(
        error
    ).split("\n")
