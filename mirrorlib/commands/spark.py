"""Give a command its Spark: the platform's that runs it, else a local one that reaches the stores it was given."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirrorlib.errors import LocalSparkError

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


def check_java(spark: SparkSession) -> None:
    """See that the session's Java is still there.

    Raises:
        LocalSparkError: it has ended, and nothing can be done with the session any more.

    """
    from mirrorlib.apply.lock import has_lost_java

    try:
        spark.conf.get("spark.sql.session.timeZone")
    except Exception as exc:
        if not has_lost_java(exc):
            return  # the tables have said what is wrong
        msg = "the Java process has ended: it ran out of memory, or was killed"
        step = "Start the command again, with more --memory if it was too little; the next run goes on."
        raise LocalSparkError(msg, next_step=step) from exc
