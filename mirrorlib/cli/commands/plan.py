"""`mirrorlib plan`: say what `apply` would do, and write nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirrorlib.cli.arguments import add_zone, zone_options
from mirrorlib.cli.spark import start_spark

if TYPE_CHECKING:
    import argparse

    from mirrorlib.tabular import Report

HELP = "say what apply would do, and write nothing"
MORE = ""


def add_arguments(command: argparse.ArgumentParser) -> None:
    """Add what `plan` takes."""
    add_zone(command)


def run(arguments: argparse.Namespace) -> Report:
    """Plan."""
    from mirrorlib.ingest.preview import plan_zone

    options = zone_options(arguments)
    spark = start_spark(arguments)
    return plan_zone(spark, arguments.landing_zone, arguments.target, **options)
