"""Commands hand their arguments to the library by name: an option that no parameter has would have no effect."""

from __future__ import annotations

import argparse
import inspect
from typing import TYPE_CHECKING

import pytest

import mirrorlib
from mirrorlib.cli.arguments import bound, seconds
from mirrorlib.cli.command import Command
from mirrorlib.cli.main import make_parser
from mirrorlib.fabric.items import write_items
from mirrorlib.operate.page.serve import serve_page

if TYPE_CHECKING:
    from collections.abc import Callable

# Of the command line alone, or read by the command itself.
OWN = {"help", "verbose", "json", "memory", "events", "alert"}
CALLS: dict[str, tuple[Callable[..., object], set[str]]] = {
    "apply": (mirrorlib.apply, {"watch", "options"}),
    "plan": (mirrorlib.plan, set()),
    "reset": (mirrorlib.reset, set()),
    "status": (mirrorlib.status, {"html"}),
    "serve": (serve_page, set()),
    "check": (mirrorlib.check, set()),
    "ledger": (mirrorlib.ledger, {"to"}),
    "lineage": (mirrorlib.lineage, set()),
    "export": (mirrorlib.export, {"watch", "no_key"}),
    "consumers": (mirrorlib.consumers, {"drop", "rewind", "to"}),
    "vacuum": (mirrorlib.vacuum, set()),
    "optimize": (mirrorlib.optimize, set()),
    "enable-feed": (mirrorlib.enable_feed, {"target"}),
    "fabric-items": (write_items, {"out"}),
}


@pytest.mark.parametrize("name", CALLS)
def test_every_option_is_a_parameter(name: str) -> None:
    """Whoever renames one on either side sees it here."""
    (commands,) = (
        one for one in make_parser()._actions if isinstance(one, argparse._SubParsersAction)
    )
    options = {action.dest for action in commands.choices[name]._actions} - OWN
    function, own = CALLS[name]

    assert own == options - {*inspect.signature(function).parameters}


def test_arguments_are_read_as_they_are_spelled() -> None:
    """By their places, once, more often, as switches, as one of some words, and as numbers."""
    command = Command(
        arguments={
            "PLACE": "",
            "TABLE*": "",
            "--key* COLUMN": "",
            "--events* TO": "",
            "--to! URL": "",
            "--last N": "",
            "--mode fast|slow": "",
            "--ntz WORD": "",
            "--dry-run": "",
            "--include-existing": "",
        },
        defaults={"last": 7},
        run=lambda _: True,
    )
    parser = argparse.ArgumentParser()
    command.add_to(parser)

    assert {
        "place": "p",
        "tables": (),
        "keys": [],
        "events": [],
        "to": "u",
        "last": 7,
        "mode": None,
        "ntz": "utc",
        "dry_run": False,
        "include_existing": True,
    } == vars(parser.parse_args(["p", "--to", "u"]))
    words = "p a b --key x --key y --to u --last 3 --mode slow --ntz keep --dry-run --no-include-existing"
    assert ["p", ["a", "b"], ["x", "y"], [], "u", 3, "slow", "keep", True, False] == [
        *vars(parser.parse_args(words.split())).values()
    ]


@pytest.mark.parametrize("text", ["--5", "-", "soon"])
def test_what_is_no_version_is_left_to_be_read_as_a_moment(text: str) -> None:
    """So that it is refused in our words, with the table's name."""
    assert (text, -1, 7) == (bound(text), bound("-1"), bound("7"))


@pytest.mark.parametrize(
    "text, length",
    [("0.5", 0.5), ("1 day", 86_400), ("1.5 Hours", 5_400), (" 2  weeks ", 1_209_600)],
)
def test_an_interval_may_be_said_in_words(text: str, length: float) -> None:
    """A number alone is seconds."""
    assert length == seconds(text)


@pytest.mark.parametrize(
    "text", ["", "day", "1 dey", "1 day ago", "-1 day", "inf weeks", "1e308 weeks"]
)
def test_what_is_no_interval_is_refused(text: str) -> None:
    """Nothing is guessed."""
    with pytest.raises(argparse.ArgumentTypeError, match="not a number of seconds"):
        seconds(text)
