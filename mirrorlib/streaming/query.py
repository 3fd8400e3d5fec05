"""Apply a landing zone as a Structured Streaming query, and register the sources that it and SQL read by.

In: a zone, a target, options. Out: a writer of a query. What comes into the zone moves it, `apply` does the work.
Delivery: exactly once, by the protocol of `apply` alone. The checkpoint says which files the query has seen, and
nothing else: lost, or of a batch that was applied and never written down, it repeats what changes nothing.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from typing import Unpack

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter

from mirrorlib.delta.sessions import PYTHON_SOURCES, is_remote, spark_generation
from mirrorlib.errors import ComputeError, StoppedError, first_few
from mirrorlib.events import STOPPED, Observer
from mirrorlib.ingest.job import open_job
from mirrorlib.ingest.options import Asked, Options, show_options
from mirrorlib.ingest.report import ApplyReport
from mirrorlib.ingest.run import apply_zone
from mirrorlib.store import PathOrUrl
from mirrorlib.store.target import Target

_NEXT = "Every other table is applied. Mend these and start the query again: it goes on from there."


def register_sources(spark: SparkSession) -> None:
    """Let a session read `mirror_feed` and `landing_zone`, in batches, streams and SQL; again is harmless.

    mirrorlib has to be installed where the cluster's tasks run, as they read the files. Raises `ComputeError` where
    the Spark is older than 4.
    """
    if spark_generation() < PYTHON_SOURCES:
        msg = "sources that are written in Python need Spark 4"
        step = "Here there are mirrorlib.watch, or `mirrorlib apply --watch`, and mirrorlib.read_feed and stream_feed."
        raise ComputeError(msg, next_step=step)
    from mirrorlib.streaming.feed_source import MirrorFeed
    from mirrorlib.streaming.zone_source import LandingZone

    for source in (MirrorFeed, LandingZone):
        spark.dataSource.register(source)


@show_options
def stream_apply(  # noqa: D417  # `apply` tells of the others
    spark: SparkSession,
    landing_zone: PathOrUrl,
    target: PathOrUrl,
    *,
    catalog: str | None = None,
    state: PathOrUrl | None = None,
    observe: Observer | None = None,
    stop_on_trouble: bool = True,
    **asked: Unpack[Asked],
) -> DataStreamWriter:
    """Make a query of `apply`: each batch brings all tables up to date. Exactly once per change file, as `apply`.

    A batch comes when the zone has changed since the last one, and every ten seconds while a table is not current.
    Other arguments are those of `apply`; `Options` says what they mean.

    Args:
        stop_on_trouble: end the query where a table is blocked or failed, once all others are applied. Begun again, it
            repeats that batch with all that has come for the others. Without it the query goes on, and `status`,
            the log and *observe* tell what is wrong.

    Returns:
        a writer: give it a `checkpointLocation` and a trigger, and start it. Its query ends with `StoppedError`.

    Raises:
        ComputeError: the Spark is older than 4.
        LandingZoneError: the zone lies inside its target, or the reverse.

    """
    register_sources(spark)
    place = Target.of(target, catalog=catalog, state=state)
    job = open_job(spark, landing_zone, place, Options(**asked))
    run = partial(
        apply_zone,
        landing_zone=job.zone.url,
        target=place.place,
        catalog=catalog,
        state=place.state,
        observe=observe,
        **asked,
    )
    files = spark.readStream.format("landing_zone").options(
        path=job.zone.url, state=job.state.url, tables=json.dumps(job.options.tables)
    )
    # A server of Spark Connect calls from a process of its own, where the batch has the session.
    session = None if is_remote(spark) else spark
    return files.load().writeStream.foreachBatch(
        partial(_apply_batch, run, session, stop_on_trouble)
    )


def _apply_batch(
    run: Callable[[SparkSession], ApplyReport],
    spark: SparkSession | None,
    stops: bool,  # noqa: FBT001  # of a partial
    files: DataFrame,
    _: int,
) -> None:
    files.count()  # so that progress counts them; what there is to apply, the zone says
    report = run(spark or files.sparkSession)
    if stops and not report.ok:
        ill = [one for one in report.tables if one.state in STOPPED]
        told = first_few(f"{one.error or one.state}: {one.reason}" for one in ill)
        msg = f"{len(ill)} of {len(report.tables)} tables cannot go on"
        raise StoppedError(msg, found=told, next_step=_NEXT)
