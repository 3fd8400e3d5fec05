"""Carry out one planned window: read it, let the receiver have it, write down how that ended.

In: a `Courier` and a plan. Out: `Done`. A window whose changes are gone is void where a snapshot may
take its place, and stops the stream where not.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from mirrorlib.apply.record import new_attempt, now
from mirrorlib.errors import FeedError, FeedExpiredError, MirrorError
from mirrorlib.export.courier import check_table, tell_step
from mirrorlib.export.record import Done
from mirrorlib.export.sink import Delivery
from mirrorlib.feed.read import read_snapshot, read_window, tell_changes
from mirrorlib.feed.window import open_window, prove_files

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from mirrorlib.export.courier import Courier
    from mirrorlib.export.record import Outcome, Plan, Stream
    from mirrorlib.feed.place import FeedTable


def carry_out(courier: Courier, spark: SparkSession, stream: Stream, plan: Plan) -> Done:
    """Deliver a window, unless the receiver has it; void one whose changes are gone, where a snapshot may follow."""
    began = time.perf_counter()
    tell_step(courier, plan, "deliver", "before")
    outcome: Outcome = "delivered"
    rows: int | None = None
    lost: FeedExpiredError | None = None
    try:
        if courier.sink.position(stream) < plan.number:
            rows = _deliver_whole(courier, spark, stream, plan)
    except FeedExpiredError as exc:
        if stream.on_expired == "fail" and plan.kind == "changes":
            raise
        outcome, lost = "void", exc
    courier.registry.state.delete_folder(_scratch(courier, plan))  # what killed runners left there
    tell_step(courier, plan, "deliver", "after", rows or 0)
    seconds = round(time.perf_counter() - began, 3)
    done = Done(outcome=outcome, rows=rows, seconds=seconds, finished_at=now())
    tell_step(courier, plan, "done", "before")
    done = courier.registry.write_done(stream, plan.number, done)
    tell_step(courier, plan, "done", "after")
    if lost is not None and plan.kind == "snapshot":
        raise lost  # what this run knows of the table is too old; the next one looks anew
    return done


def _deliver_whole(courier: Courier, spark: SparkSession, stream: Stream, plan: Plan) -> int:
    """Deliver a window, and tell changes that went away under it from all else that can fail."""
    try:
        return _deliver(courier, spark, stream, plan)
    except FeedExpiredError:
        raise
    except Exception as exc:
        if plan.kind == "changes":
            _blame_missing_files(courier.source, plan, exc)
        raise


def _blame_missing_files(source: FeedTable, plan: Plan, exc: Exception) -> None:
    """Say so if files of the changes are gone: not every VACUUM writes down that it ran."""
    try:
        prove_files(source.commits, source.shown, range(plan.after + 1, plan.until + 1))
    except FeedExpiredError as lost:
        raise lost from exc
    except MirrorError:  # what went wrong first is told
        return


def _is_unchanged(source: FeedTable, after: int, until: int) -> bool:
    """Say whether no row has changed in (after, until]; not where the log does not tell any more."""
    try:
        return not open_window(source.commits, source.shown, after, until).changes
    except FeedError:
        return False


def _scratch(courier: Courier, plan: Plan) -> str:
    """Return the folder, in the state's store, of what deliveries of a window write before it counts."""
    return f"staged/exports/{courier.registry.folder}/{plan.attempt}"


def _deliver(courier: Courier, spark: SparkSession, stream: Stream, plan: Plan) -> int:
    source = courier.source
    told_rows: int | None = None
    if plan.kind == "snapshot":
        frame = read_snapshot(spark, source, plan.until)
    else:
        check_table(courier, stream, plan.table_id, plan.after)
        window = open_window(source.commits, source.shown, plan.after, plan.until)
        if not window.changes:
            return 0
        frame = read_window(spark, source, window)
        frame = tell_changes(frame, window, source.shown, plan.keys, net=stream.net)
        told_rows = window.rows
    state = courier.registry.state
    # Of this call's own: a runner that was taken for gone may still be at the same window.
    folder = f"{_scratch(courier, plan)}/{new_attempt()}"
    delivery = Delivery(
        spark=spark,
        stream=stream,
        plan=plan,
        frame=frame,
        scratch=state,
        folder=folder,
        told_rows=told_rows,
        unchanged_since=lambda version: _is_unchanged(source, version, plan.after),
    )
    try:
        return courier.sink.deliver(delivery)
    finally:
        state.delete_folder(folder)
