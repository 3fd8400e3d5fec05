"""`mirrorlib enable-feed`: switch the change feed of tables on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirrorlib.cli.arguments import add_json, add_tables, positive
from mirrorlib.cli.spark import start_spark

if TYPE_CHECKING:
    import argparse

    from mirrorlib.tabular import Report

HELP = "switch the change feed of tables on"
MORE = (
    "Mirrors have it on. For other Delta tables: from the commit that this makes on, changes are recorded. "
    "A table with a column whose name the feed has for itself is refused, with the statements that rename it."
)


def add_arguments(command: argparse.ArgumentParser) -> None:
    """Add what `enable-feed` takes."""
    command.add_argument(
        "target",
        metavar="TARGET",
        help="a Delta table's path, or a folder of them; with --catalog, a schema's name",
    )
    command.add_argument("--catalog", metavar="NAME", help="tables of this Spark catalog")
    add_tables(command)
    command.add_argument(
        "--days",
        type=positive,
        metavar="N",
        help="how long changes are to be readable (default: 7, unless the table says otherwise)",
    )
    add_json(command)
    command.set_defaults(state=None)


def run(arguments: argparse.Namespace) -> Report:
    """Do it; say whether every table has its feed on."""
    from mirrorlib.feed.enable import enable_feed

    return enable_feed(
        start_spark(arguments),
        arguments.target,
        catalog=arguments.catalog,
        tables=arguments.tables,
        days=arguments.days,
    )
