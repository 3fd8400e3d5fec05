"""`mirrorlib ledger`: show what was applied, batch by batch, or keep it in Delta tables for dashboards."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirrorlib.cli.arguments import add_tables, add_target, heap, positive
from mirrorlib.cli.spark import start_spark
from mirrorlib.operate.ledger import LAST

if TYPE_CHECKING:
    import argparse

    from mirrorlib.tabular import Report

HELP = "show what was applied, batch by batch"
MORE = (
    "With --to, batches and changes of state that are not there yet are added to two Delta tables, "
    "mirrorlib_ledger and mirrorlib_events; without it, no Spark is needed."
)


def add_arguments(command: argparse.ArgumentParser) -> None:
    """Add what `ledger` takes."""
    add_target(command)
    add_tables(command)
    command.add_argument(
        "--last",
        type=positive,
        default=LAST,
        metavar="N",
        help=f"show so many batches a table (default: {LAST})",
    )
    command.add_argument(
        "--to",
        metavar="PLACE",
        help="where the two Delta tables are: a path with a slash in it, a URL, or catalog.schema",
    )
    command.add_argument(
        "--allow-new",
        action="store_true",
        help="a target to which nothing was applied yet is no error: for jobs that run by a clock",
    )
    command.add_argument(
        "--memory",
        type=heap,
        default="2g",
        metavar="SIZE",
        help="heap of the local Spark (default: 2g)",
    )


def run(arguments: argparse.Namespace) -> Report:
    """Show the ledger, or keep it."""
    from mirrorlib.operate.ledger import read_ledger

    place = {
        "catalog": arguments.catalog,
        "state": arguments.state,
        "allow_new": arguments.allow_new,
    }
    if arguments.to is None:
        return read_ledger(arguments.target, tables=arguments.tables, last=arguments.last, **place)
    from mirrorlib.operate.book import write_ledger

    if arguments.tables:
        arguments.refuse("argument --table: means nothing with --to, which keeps every table's")
    spark = start_spark(arguments, arguments.to)
    return write_ledger(spark, arguments.target, arguments.to, **place)
