"""`mirrorlib ledger` and `lineage`: what was applied, batch by batch, and where tables come from and go to."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirrorlib.cli.arguments import add_memory, add_tables, add_target, positive
from mirrorlib.cli.command import Command
from mirrorlib.cli.spark import start_spark
from mirrorlib.operate.ledger import LAST

if TYPE_CHECKING:
    import argparse

    from mirrorlib.tabular import Report


def _lineage(arguments: argparse.Namespace) -> Report:
    from mirrorlib.operate.lineage import lineage

    return lineage(arguments.target, catalog=arguments.catalog, state=arguments.state)


def _add_ledger(command: argparse.ArgumentParser) -> None:
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
    add_memory(command)


def _ledger(arguments: argparse.Namespace) -> Report:
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


LEDGER = Command(
    name="ledger",
    help="show what was applied, batch by batch",
    more="With --to, batches and changes of state that are not there yet are added to two Delta tables, "
    "mirrorlib_ledger and mirrorlib_events; without it, no Spark is needed.",
    add_arguments=_add_ledger,
    run=_ledger,
)
LINEAGE = Command(
    name="lineage",
    help="show where tables come from and go to, with the keys on each way",
    more="Landing zones, mirrors, derived tables and consumers, as of their last runs. Needs no Spark.",
    add_arguments=add_target,
    run=_lineage,
)
