"""`mirrorlib demo` and `fabric-items`: show it on real data; write what Microsoft Fabric runs as its items."""

from __future__ import annotations

import argparse

from mirrorlib.cli.arguments import JSON, TABLES
from mirrorlib.cli.command import Command, call, say


def _demo(arguments: argparse.Namespace) -> bool:
    """Run the demo, which raises when something is wrong."""
    from mirrorlib.platform.demo import run_demo

    run_demo(arguments.folder)
    return True


def _fabric_items(arguments: argparse.Namespace) -> bool:
    from mirrorlib.fabric.items import write_items

    written = call(write_items, arguments, folder=arguments.out)
    return say(arguments, {"folder": arguments.out, "items": written}, *written)


DEMO = Command(
    arguments={"--folder PATH": "where to (default: ./mirrorlib-demo)"},
    defaults={"folder": "mirrorlib-demo"},
    run=_demo,
)
FABRIC_ITEMS = Command(
    more="A lakehouse, an environment, notebooks, and pipelines that run them for each --table: docs/start/fabric.md.",
    arguments={
        "OUT": "folder that the items are written into",
        "--wheel! PATH": "the wheel of mirrorlib, as `make wheel` builds it in a clone",
        **TABLES,
        "--target PLACE": "where tables go (default: Tables; Tables/dbo for a zone without .schema folders)",
        "--every MINUTES": "run the incremental apply so often (default: it is given no schedule)",
        **JSON,
    },
    defaults={"target": "Tables"},
    run=_fabric_items,
)
