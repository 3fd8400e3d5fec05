"""`mirrorlib demo`: publish and apply real data, and show what happened."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import argparse

HELP = "publish and apply real data, and show what happened"
MORE = ""


def add_arguments(command: argparse.ArgumentParser) -> None:
    """Add what `demo` takes."""
    command.add_argument(
        "--folder",
        metavar="PATH",
        default="mirrorlib-demo",
        help="where to (default: ./mirrorlib-demo)",
    )


def run(arguments: argparse.Namespace) -> bool:
    """Run the demo, which raises when something is wrong."""
    from mirrorlib.platform.demo import run_demo

    run_demo(arguments.folder)
    return True
