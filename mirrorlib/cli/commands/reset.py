"""`mirrorlib reset`: start one table over at the next apply, or go on by metadata that has come to a plain folder."""

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
_REPLACED = (
    "the next apply replaces its content in one commit. Until then readers see what is there."
)
_KEPT = "its rows stay, and the next apply goes on by _metadata.json, behind the files that were appended."


def add_arguments(command: argparse.ArgumentParser) -> None:
    """Add what `reset` takes."""
    add_target(command)
    command.add_argument("table", metavar="TABLE", help="the table, as status shows it: dbo/orders")
    add_start(command)
    command.add_argument(
        "--keep",
        action="store_true",
        help="keep the rows of a folder that was appended without _metadata.json, and go on by it behind them",
    )


def run(arguments: argparse.Namespace) -> bool:
    """Begin a new life of the table, and say what comes of it."""
    from mirrorlib.ingest.reset import reset_with_warnings

    if arguments.keep and arguments.start_at is not None:
        arguments.refuse(
            "argument --keep: a kept table goes on behind what was appended, so not with --start-at"
        )
    life, warnings = reset_with_warnings(
        start_spark(arguments),
        arguments.target,
        arguments.table,
        catalog=arguments.catalog,
        state=arguments.state,
        start_at=arguments.start_at or 1,
        keep=arguments.keep,
    )
    if arguments.json:
        said = {"table": arguments.table, "life": life.ordinal, "started_at": life.started_at}
        say_json({**said, "warnings": list(warnings)} if arguments.keep else said)
    else:
        coming = _KEPT if arguments.keep else _REPLACED
        sys.stdout.write(f"{arguments.table} begins life {life.ordinal}: {coming}\n")
        sys.stdout.writelines(f"warning: {warning}\n" for warning in warnings)
    return True
