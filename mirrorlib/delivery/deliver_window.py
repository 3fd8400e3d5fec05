"""Carry out one planned window: read it, let the receiver have it, write down how that ended.

In: a `StreamJob` and a plan. Out: `WindowDone`. A window whose changes are gone is void where a snapshot may
take its place, and stops the stream where not.
"""

from __future__ import annotations

import time

from mirrorlib.commit.stage import staging
from mirrorlib.delivery.sink import Delivery, receiver_set_back, registry_set_back
from mirrorlib.delivery.stream_job import StreamJob
from mirrorlib.errors import FeedExpiredError, MirrorError, SchemaError, TableNameError
from mirrorlib.events import emit, pick
from mirrorlib.feed.files.direct import read_small_window, to_frame
from mirrorlib.feed.proof import expired, prove_files, prove_rows
from mirrorlib.feed.read import feed_schema, read_snapshot, read_window, tell_changes
from mirrorlib.feed.schemas import physical_names, renewed_columns
from mirrorlib.feed.window import NOTHING, check_table, open_window
from mirrorlib.journal.entries import now
from mirrorlib.journal.streams import (
    Stream,
    WindowDone,
    WindowEntry,
    WindowPlan,
    advise_snapshot,
    begin_anew,
    snapshot_command,
)


def end_window(job: StreamJob, plan: WindowPlan) -> tuple[WindowDone, StreamJob]:
    """Deliver a window unless the receiver has it, or void it where changes are gone; comes with the refreshed job."""
    stream, began = job.stream, time.perf_counter()
    job.tell(plan, "deliver", "before")
    rows: int | None = None
    lost: FeedExpiredError | None = None
    given = job.registry.given_before(stream, plan.number)
    try:
        if not _is_delivered(job, plan, given):
            rows = _deliver_again(job, plan, given)
    except FeedExpiredError as exc:
        if stream.on_expired == "fail" and plan.kind == "changes":
            raise advise_snapshot(exc, stream) from exc
        lost = exc
    # What killed runners left there.
    job.registry.state.delete_folder(f"{job.registry.scratch}/{plan.attempt}")
    job = job.refresh()
    lost = lost or _lost_meanwhile(job, plan)
    job.tell(plan, "deliver", "after", rows)
    done = WindowDone(
        outcome="delivered" if lost is None else "void",
        rows=rows if lost is None else None,
        seconds=round(time.perf_counter() - began, 3),
        finished_at=now(),
        given=plan.number if lost is None and rows != 0 else given,
    )
    job.tell(plan, "done", "before")
    done = job.registry.write_done(stream, plan.number, done)
    job.tell(plan, "done", "after")
    _tell(job, plan, done)
    if lost is not None:
        refuse_void(stream, plan)
        commits = job.source.commits
        newest = commits.newest, commits.metadata.id
        if plan.kind == "snapshot" and newest == (plan.until, plan.table_id):
            raise lost  # another snapshot would be the same one
    return done, job


def _tell(job: StreamJob, plan: WindowPlan, done: WindowDone) -> None:
    told = {**pick(job.stream, "table", "consumer", "to"), **pick(done, "outcome", "seconds")}
    text = "%(table)s: window %(window)d up to version %(version)d %(outcome)s to %(consumer)s, "
    emit(
        "window",
        f"{text}{done.rows or 0} rows",
        well=done.outcome == "delivered",
        **{**told, "window": plan.number, "version": plan.until, "rows": {"given": done.rows or 0}},
        kind="reset" if plan.reset else plan.kind,
        sources=[(job.source.path or job.source.sql, plan.until)],
    )


def _is_delivered(job: StreamJob, plan: WindowPlan, given: int | None) -> bool:
    """Say whether the receiver has a window."""
    stream = job.stream
    position = job.run.sink.position(stream)
    if given is not None and 0 < position < given:  # 0 may mean unknown: the receiver looks itself
        raise receiver_set_back(stream, position, given)
    return position >= plan.number


def check_registry(job: StreamJob, entry: WindowEntry | None) -> None:
    """Refuse a registry that was set back: its next windows would be taken for others that are there."""
    stream, known = job.stream, 0 if entry is None else entry.plan.number
    position = job.run.sink.position(stream)
    if position <= known or job.registry.newest(stream) != entry:
        return
    raise registry_set_back(stream, f"window {position} of the stream, {known} in the registry")


def refuse_void(stream: Stream, plan: WindowPlan) -> None:
    """Refuse to let a snapshot follow on a window that is void where the consumer is to be told first."""
    if plan.kind == "changes" and stream.on_expired == "fail":
        msg = "versions left the log while they were delivered, so the receiver may lack some of their changes"
        found = f"the window after version {plan.after} up to version {plan.until}"
        raise FeedExpiredError(msg, table=stream.table, found=found, next_step=begin_anew(stream))


def _lost_meanwhile(job: StreamJob, plan: WindowPlan) -> FeedExpiredError | None:
    """Say whether versions left the log before their delivery had ended: Delta leaves them out without a word."""
    if plan.kind == "snapshot":
        return None
    try:
        check_table(job.stream, job.source.commits, plan.table_id, plan.until, plan.until_hash)
    except FeedExpiredError as exc:
        return exc
    commits = job.source.commits
    for version in range(plan.after + 1, plan.until + 1):
        if not commits.has(version):  # whatever those around it have
            return expired(commits, f"the log no longer holds version {version}", version)
    return None


def _deliver_again(job: StreamJob, plan: WindowPlan, given: int | None) -> int | None:
    """Deliver a window; once more if Spark fails, or is refused, by a log that has moved on since it was looked at.

    A type that was widened meanwhile is no lost history.
    """
    try:
        return _deliver_or_explain(job, plan, given)
    except Exception as exc:
        if isinstance(exc, MirrorError) and not isinstance(exc, FeedExpiredError):
            raise  # it is about the rows, or the receiver
        again = job.refresh()
        if again is job:
            raise
        if _is_delivered(again, plan, given):  # what failed was the answer
            return None
        return _deliver_or_explain(again, plan, given)


def _deliver_or_explain(job: StreamJob, plan: WindowPlan, given: int | None) -> int | None:
    """Deliver a window, and tell rows or changes that went away under it from all else that can fail."""
    try:
        return _deliver(job, plan, given)
    except FeedExpiredError:
        raise
    except Exception as exc:
        _blame_lost_history(job, plan, exc)
        if isinstance(exc, (SchemaError, TableNameError)) and exc.column:
            command = snapshot_command(job.stream.consumer, job.stream.table)
            if "--rewind" not in (exc.next_step or ""):  # its versions are delivered as they were
                then = f"The window is repeated as it was planned, so begin anew then: {command}"
                raise exc.but(next_step=f"{exc.next_step} {then}") from exc
        raise


def _blame_lost_history(job: StreamJob, plan: WindowPlan, exc: Exception) -> None:
    """Say so if versions or files are gone: not every VACUUM writes down that it ran."""
    try:
        source = job.refresh().source
        if plan.kind == "snapshot":
            prove_rows(source.commits, plan.until)
        else:
            open_window(source.commits, plan.after, plan.until)
            prove_files(source.commits, range(plan.after + 1, plan.until + 1))
    except FeedExpiredError as lost:
        raise lost from exc
    except MirrorError:  # what went wrong first is told
        return


def _deliver(job: StreamJob, plan: WindowPlan, given: int | None) -> int | None:
    spark, source, stream, state = job.spark, job.source, job.stream, job.registry.state
    collected = stated_rows = None
    check_table(stream, source.commits, plan.table_id, plan.until, plan.until_hash)
    if plan.kind == "snapshot":
        frame = read_snapshot(spark, source, plan.until)
    else:
        window = open_window(source.commits, plan.after, plan.until)
        if not window.changes:
            return 0
        collected, stated_rows = read_small_window(source, window), window.rows
        rows = (
            read_window(spark, source, window)
            if collected is None
            else to_frame(spark, collected, feed_schema(window))
        )
        pairs = getattr(job.run.sink, "pairs", True)
        frame = tell_changes(rows, window, source, plan.keys, net=stream.net, pairs=pairs)
        collected = collected if frame is rows else None

    metadata, begins = source.commits.metadata_at(plan.until), _begins(job, plan, given)
    since = begins if metadata.mapped else plan.after  # the log may not go back so far
    # A stage of this call's own: a runner that was taken for gone may still be at the same window.
    with staging(spark, state, f"{job.registry.scratch}/{plan.attempt}") as stage:
        delivery = Delivery(
            spark=spark,
            stream=stream,
            plan=plan,
            frame=frame,
            scratch=state,
            folder=stage.folder,
            collected=collected,
            stated_rows=stated_rows,
            given=given,
            begins=begins,
            physical=physical_names(metadata),
            begun=lambda: physical_names(source.commits.metadata_at(since)),
            renewed=lambda: renewed_columns(source.commits, NOTHING, plan.until),
            mapped=metadata.mapped,
        )
        return job.run.sink.deliver(delivery)


def _begins(job: StreamJob, plan: WindowPlan, given: int | None) -> int:
    """Say up to which version the receiver was given the stream's rows, by the last window that has left any there."""
    if given in {None, plan.number - 1}:
        return plan.after
    if given:
        return job.registry.entry(job.stream, given).plan.until
    return plan.after if job.stream.start_at is None else job.stream.start_at
