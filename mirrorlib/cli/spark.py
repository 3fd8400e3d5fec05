"""Give a command its Spark: the platform's that runs it, else a local one that reaches the stores it was given."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirrorlib.errors import LocalSparkError

if TYPE_CHECKING:
    import argparse

    from pyspark.sql import SparkSession


def start_spark(arguments: argparse.Namespace, *more: str) -> SparkSession:
    """Take it, or start it: a zone, target, state, or place *more*, in a store costs a download the first time.

    Raises:
        LandingZoneError: the tables would be those of a catalog that ends with this command.
        LocalSparkError: it cannot be started.

    """
    from mirrorlib.platform.session import (
        has_spark,
        local_spark,
        platform_spark,
        refuse_passing_catalog,
    )

    if (session := platform_spark()) is not None:
        return session
    places = (getattr(arguments, "landing_zone", None), arguments.target, arguments.state, *more)
    brought = has_spark()
    spark = local_spark(memory=arguments.memory, stores=[place for place in places if place])
    if arguments.catalog is not None and not brought:
        refuse_passing_catalog(spark, arguments.catalog)
    return spark


def check_java(spark: SparkSession) -> None:
    """See that the session's Java is still there.

    Raises:
        LocalSparkError: it has ended, and nothing can be done with the session any more.

    """
    from mirrorlib.delta.lock import has_lost_java

    try:
        spark.conf.get("spark.sql.session.timeZone")
    except Exception as exc:
        if not has_lost_java(exc):
            return  # the tables have said what is wrong
        msg = "the Java process has ended: it ran out of memory, or was killed"
        step = "Start the command again, with more --memory if it was too little; the next run goes on."
        raise LocalSparkError(msg, next_step=step) from exc
