"""`mirrorlib vacuum`: remove files that nobody needs, and none that a consumer has still to read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirrorlib.cli.arguments import add_tables, add_target, positive
from mirrorlib.cli.spark import start_spark

if TYPE_CHECKING:
    import argparse

    from mirrorlib.tabular import Report

HELP = "remove files that nobody needs any more"
MORE = (
    "Delta's VACUUM takes change files too, whoever has still to read them. Here a table is refused while a "
    "registered consumer needs what would go, or what may soon leave the table's log. --dry-run is the check to run "
    "before maintenance elsewhere: its exit code is 1 when something would be lost. Consumers that were registered "
    "with --state are known only to a vacuum with the same --state."
)


def add_arguments(command: argparse.ArgumentParser) -> None:
    """Add what `vacuum` takes."""
    add_target(command)
    add_tables(command)
    command.add_argument(
        "--hours",
        type=positive,
        metavar="N",
        help="how long removed files are kept (default: what each table says, else Delta's week)",
    )
    command.add_argument("--dry-run", action="store_true", help="remove nothing, say what would be")
    command.add_argument(
        "--force", action="store_true", help="remove them although consumers need them; name these"
    )


def run(arguments: argparse.Namespace) -> Report:
    """Do it; say whether no table was refused."""
    from mirrorlib.operate.vacuum import vacuum_tables

    return vacuum_tables(
        start_spark(arguments),
        arguments.target,
        tables=arguments.tables,
        hours=arguments.hours,
        dry_run=arguments.dry_run,
        force=arguments.force,
        catalog=arguments.catalog,
        state=arguments.state,
    )
