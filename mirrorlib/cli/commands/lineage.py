"""`mirrorlib lineage`: show where tables come from and go to, and the keys on each way."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirrorlib.cli.arguments import add_target

if TYPE_CHECKING:
    import argparse

    from mirrorlib.tabular import Report

HELP = "show where tables come from and go to, with the keys on each way"
MORE = (
    "Landing zones, mirrors, derived tables and consumers, as of their last runs. Needs no Spark."
)


def add_arguments(command: argparse.ArgumentParser) -> None:
    """Add what `lineage` takes."""
    add_target(command)


def run(arguments: argparse.Namespace) -> Report:
    """Show the ways."""
    from mirrorlib.operate.lineage import lineage

    return lineage(arguments.target, catalog=arguments.catalog, state=arguments.state)
