"""`mirrorlib status`: show how every table of a target stands; needs no Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirrorlib.cli.arguments import add_target
from mirrorlib.cli.command import Command

if TYPE_CHECKING:
    import argparse

    from mirrorlib.tabular import Report


def _status(arguments: argparse.Namespace) -> Report:
    from mirrorlib.operate.status import read_status

    return read_status(arguments.target, catalog=arguments.catalog, state=arguments.state)


STATUS = Command(
    name="status",
    help="show how every table of a target stands",
    more="States: current, behind (files wait), blocked (a file is missing), failed (something is wrong), "
    "waiting (no metadata or data yet), gone (its folder is no longer there).",
    add_arguments=add_target,
    run=_status,
)
