"""`mirrorlib status`: show how every table of a target stands; needs no Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirrorlib.cli.arguments import add_target

if TYPE_CHECKING:
    import argparse

    from mirrorlib.tabular import Report

HELP = "show how every table of a target stands"
MORE = (
    "States: current, behind (files wait), blocked (a file is missing), failed (something is wrong), "
    "waiting (no metadata or data yet), gone (its folder is no longer there)."
)


def add_arguments(command: argparse.ArgumentParser) -> None:
    """Add what `status` takes."""
    add_target(command)


def run(arguments: argparse.Namespace) -> Report:
    """Read how tables stand."""
    from mirrorlib.operate.status import read_status

    return read_status(arguments.target, catalog=arguments.catalog, state=arguments.state)
