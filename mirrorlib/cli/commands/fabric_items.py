"""`mirrorlib fabric-items`: write the notebooks, the wheel and their schedule as Microsoft Fabric items."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from mirrorlib.cli.arguments import add_json, add_tables, positive
from mirrorlib.cli.command import Command

if TYPE_CHECKING:
    import argparse

    from mirrorlib.tabular import Report


def _add_arguments(command: argparse.ArgumentParser) -> None:
    command.add_argument("out", metavar="OUT", help="folder that the items are written into")
    command.add_argument(
        "--wheel",
        metavar="PATH",
        help="the wheel of mirrorlib (default: build that of the clone that one is in)",
    )
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


def _run(arguments: argparse.Namespace) -> Report:
    """Write them, with the wheel that is given or built."""
    from mirrorlib.fabric.items import ALL_TABLES, write_items
    from mirrorlib.fabric.wheel import build_clone

    return write_items(
        arguments.out,
        arguments.wheel or build_clone(Path.cwd()),
        tables=arguments.tables or ALL_TABLES,
        target=arguments.target,
        every=arguments.every,
    )


FABRIC_ITEMS = Command(
    name="fabric-items",
    help="write notebooks, wheel and schedule as Microsoft Fabric items",
    more="A lakehouse, an environment that holds the wheel, the notebooks, and pipelines that run them for each "
    "--table; for fabric-cicd to publish. docs/start/fabric.md says how.",
    add_arguments=_add_arguments,
    run=_run,
)
