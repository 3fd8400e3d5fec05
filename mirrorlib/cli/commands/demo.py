"""`mirrorlib demo`: publish and apply real data, and show what happened."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirrorlib.cli.command import Command

if TYPE_CHECKING:
    import argparse


def _add_arguments(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--folder",
        metavar="PATH",
        default="mirrorlib-demo",
        help="where to (default: ./mirrorlib-demo)",
    )


def _run(arguments: argparse.Namespace) -> bool:
    """Run the demo, which raises when something is wrong."""
    from mirrorlib.platform.demo import run_demo

    run_demo(arguments.folder)
    return True


DEMO = Command(
    name="demo",
    help="publish and apply real data, and show what happened",
    add_arguments=_add_arguments,
    run=_run,
)
