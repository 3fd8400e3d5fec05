"""`mirrorlib reset`: start one table over at the next apply."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from mirrorlib.cli.arguments import add_start, add_target
from mirrorlib.cli.say import say_json
from mirrorlib.cli.spark import start_spark

if TYPE_CHECKING:
    import argparse

HELP = "start one table over"
MORE = (
    "The next apply replaces its content, in one commit, by what the landing zone shows then. "
    "Nothing is deleted before."
)


def add_arguments(command: argparse.ArgumentParser) -> None:
    """Add what `reset` takes."""
    add_target(command)
    command.add_argument("table", metavar="TABLE", help="the table, as status shows it: dbo/orders")
    add_start(command)


def run(arguments: argparse.Namespace) -> bool:
    """Begin a new life of the table, and say what comes of it."""
    from mirrorlib.ingest.reset import reset_table

    life = reset_table(
        start_spark(arguments),
        arguments.target,
        arguments.table,
        catalog=arguments.catalog,
        state=arguments.state,
        start_at=arguments.start_at or 1,
    )
    if arguments.json:
        say_json({"table": arguments.table, "life": life.ordinal, "started_at": life.started_at})
    else:
        sys.stdout.write(
            f"{arguments.table} begins life {life.ordinal}: the next apply replaces its content in one commit. "
            "Until then readers see what is there.\n"
        )
    return True
