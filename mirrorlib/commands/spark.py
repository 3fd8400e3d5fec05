"""Start the local Spark that a command needs, with connectors for the stores that it was given."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import argparse

    from pyspark.sql import SparkSession


def start_spark(arguments: argparse.Namespace, *more: str) -> SparkSession:
    """Start it; a zone, target, state, or a place *more*, in an object store costs a download the first time."""
    from mirrorlib.session import local_spark

    places = (getattr(arguments, "landing_zone", None), arguments.target, arguments.state, *more)
    return local_spark(memory=arguments.memory, stores=[place for place in places if place])
