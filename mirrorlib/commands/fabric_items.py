"""`mirrorlib fabric-items`: write the notebooks, the wheel and their schedule as Microsoft Fabric items."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirrorlib.commands.arguments import add_json, add_tables, positive
from mirrorlib.commands.say import say_report

if TYPE_CHECKING:
    import argparse

HELP = "write notebooks, wheel and schedule as Microsoft Fabric items"
MORE = (
    "A lakehouse, an environment that holds the wheel, the notebooks, and pipelines that run them for each --table; "
    "for git integration, or for fabric-cicd to publish. docs/start/fabric.md has both."
)


def add_arguments(command: argparse.ArgumentParser) -> None:
    """Add what `fabric-items` takes."""
    command.add_argument("out", metavar="OUT", help="folder that the items are written into")
    command.add_argument("--wheel", required=True, metavar="PATH", help="the wheel of mirrorlib")
    add_tables(command)
    command.add_argument(
        "--target",
        default="Tables",
        metavar="PLACE",
        help="where in the lakehouse tables go (default: Tables; without .schema folders in the zone say Tables/dbo)",
    )
    command.add_argument(
        "--every",
        type=positive,
        metavar="MINUTES",
        help="run the incremental apply so often (default: its schedule is switched off)",
    )
    add_json(command)


def run(arguments: argparse.Namespace) -> bool:
    """Write them."""
    from mirrorlib.fabric.items import ALL_TABLES, write_items

    report = write_items(
        arguments.out,
        arguments.wheel,
        tables=arguments.table or ALL_TABLES,
        target=arguments.target,
        every=arguments.every,
    )
    say_report(report, as_json=arguments.json)
    return report.ok
