"""`mirrorlib status`: show how every table of a target stands; needs no Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirrorlib.cli.arguments import add_target
from mirrorlib.cli.say import say_report

if TYPE_CHECKING:
    import argparse

HELP = "show how every table of a target stands"
MORE = (
    "States: current, behind (files wait), blocked (a file is missing), failed (something is wrong), "
    "waiting (no metadata or data yet), gone (its folder is no longer there)."
)


def add_arguments(command: argparse.ArgumentParser) -> None:
    """Add what `status` takes."""
    add_target(command)


def run(arguments: argparse.Namespace) -> bool:
    """Read how tables stand; say whether none is stopped."""
    from mirrorlib.operate.status import read_status

    report = read_status(arguments.target, catalog=arguments.catalog, state=arguments.state)
    say_report(report, as_json=arguments.json)
    return report.ok
