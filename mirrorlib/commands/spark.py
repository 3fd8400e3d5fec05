"""Give a command its Spark: the platform's that runs it, else a local one that reaches the stores it was given."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import argparse

    from pyspark.sql import SparkSession


def start_spark(arguments: argparse.Namespace, *more: str) -> SparkSession:
    """Take it, or start it: a zone, target, state, or place *more*, in a store costs a download the first time."""
    from mirrorlib.session import local_spark, platform_spark

    if (session := platform_spark()) is not None:
        return session
    places = (getattr(arguments, "landing_zone", None), arguments.target, arguments.state, *more)
    return local_spark(memory=arguments.memory, stores=[place for place in places if place])
