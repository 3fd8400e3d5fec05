"""Register our sources with a session: `mirror_feed` and `landing_zone` are formats from then on, and words of SQL."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirrorlib.delta.sessions import PYTHON_SOURCES, spark_generation
from mirrorlib.errors import ComputeError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def register_sources(spark: SparkSession) -> None:
    """Let a session read `mirror_feed` and `landing_zone`, in batches, streams and SQL; again is harmless.

    mirrorlib has to be installed where the cluster's tasks run, as they read the files.

    Raises:
        ComputeError: the Spark is older than 4.

    """
    if spark_generation() < PYTHON_SOURCES:
        msg = "sources that are written in Python need Spark 4"
        step = "Here there are mirrorlib.watch, or `mirrorlib apply --watch`, and mirrorlib.read_feed and stream_feed."
        raise ComputeError(msg, next_step=step)
    from mirrorlib.streaming.feed_source import MirrorFeed
    from mirrorlib.streaming.zone_source import LandingZone

    for source in (MirrorFeed, LandingZone):
        spark.dataSource.register(source)
