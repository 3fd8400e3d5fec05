"""Run: deliver what changed in many tables to one consumer, side by side, each for itself.

In: a session, a target, a consumer's name, a receiver. Out: `ExportReport`. Delivery: every window
whole and in order; once where the receiver can tell a repetition (see each in `sinks`). A table that
cannot go on says why and stops alone.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from shlex import quote
from typing import Any

from pyspark.sql import SparkSession

from mirrorlib.delivery.report import ExportReport, StreamReport
from mirrorlib.delivery.run_stream import bring_up_to_date
from mirrorlib.delivery.sink import Sink
from mirrorlib.delivery.sinks.open import absolute, check_disjoint, open_sink, shown_url
from mirrorlib.delivery.stream_job import OtherWishesError, Run, StreamJob
from mirrorlib.delta.address import EVENTS, LEDGER, find_feed_table, find_tables, parse_found
from mirrorlib.delta.sessions import side_by_side
from mirrorlib.delta.trouble import as_mirror_error, is_sparks
from mirrorlib.errors import JournalError, LandingZoneError, MirrorError, TableBusyError, printable
from mirrorlib.events import Observer, emit_state, pick, unobserved
from mirrorlib.feed.window import begin_stream
from mirrorlib.journal.disk import open_state
from mirrorlib.journal.entries import now
from mirrorlib.journal.registry import Registry, check_name, registries
from mirrorlib.journal.streams import OnExpired, Start, Stream, check_start, snapshot_command
from mirrorlib.names import as_names, matches, parse_name, refuse_unmatched
from mirrorlib.store import PathOrUrl, open_store
from mirrorlib.store.target import Target

_LOG = logging.getLogger(__name__)


def export_tables(
    spark: SparkSession,
    target: PathOrUrl,
    tables: Sequence[str] = (),
    *,
    consumer: str,
    to: str | Sink,
    mode: str | None = None,
    net: bool = False,
    start: Start = "snapshot",
    on_expired: OnExpired = "fail",
    keys: Mapping[str, Sequence[str]] | Sequence[str] | None = None,
    catalog: str | None = None,
    state: PathOrUrl | None = None,
    max_versions: int | None = None,
    parallelism: int | None = None,
    observe: Observer | None = None,
    stop: Callable[[], bool] | None = None,
) -> ExportReport:
    """Deliver what changed in tables since the consumer was last given something; one that cannot go on raises nothing.

    Args:
        spark: any Spark with Delta; each table in flight gets a session of its own from it.
        target: root path or URL of the tables; with *catalog*, the schema's name.
        tables: names or globs; empty is all of them.
        consumer: a name; its position in each table is kept beside the target.
        to: a URL, `delta:PATH`, `delta:catalog.schema`, `files:URL?format=parquet|jsonl|csv`, `zone:URL`,
            `jdbc:…` or `kafka://HOST:PORT/TOPIC`; or a `Sink` of your own.
        mode: what a Delta receiver makes of changes: "changes", "current" or "scd2".
        net: fold each window to its net changes.
        start: what a new consumer is given first: all rows ("snapshot"), only what comes ("now"), or what
            came after a version.
        on_expired: when changes that were not read are gone: stop ("fail"), or reset the receiver with a "snapshot".
        keys: key columns by table, or those of every table; `()` is none. By default what the mirror goes by, and of
            other tables the key that their property names, if it tells rows apart; for Kafka, the partition key.
        catalog: a Spark catalog.
        state: where consumers are registered; by default `target/_mirrorlib`.
        max_versions: versions a window; by default all there are.
        parallelism: tables at once; by default as many as there are cores, at most eight.
        observe: told before and after each step, from several threads.
        stop: asked between windows; True ends the run after those in flight.

    Raises:
        LandingZoneError: the consumer's name, the receiver's URL or another word cannot be used.
        StoreError: the target cannot be listed.
        JournalError: the state folder cannot be used.

    """
    began = time.perf_counter()
    _check_words(consumer, start, on_expired, max_versions=max_versions, parallelism=parallelism)
    place = Target.of(target, catalog=catalog, state=state)
    run = Run(
        spark=spark,
        target=place,
        **_receiver(to, mode, place, net=net),
        state=open_store(place.state),
        consumer=consumer,
        start=start,
        on_expired=on_expired,
        max_versions=max_versions,
        keys=keys,
        observe=observe or unobserved,
        stop=stop or (lambda: False),
    )
    found = _chosen(run, as_names(tables))
    open_state(run.state)  # there has to be a folder to write down how far
    reports = side_by_side(lambda table: _export_one(run, *table), found, parallelism)
    seconds = round(time.perf_counter() - began, 3)
    return ExportReport(consumer=consumer, to=run.to, tables=reports, seconds=seconds)


def _receiver(to: str | Sink, mode: str | None, target: Target, *, net: bool) -> dict[str, Any]:
    """Open who receives what changed in a target, for a `Run`; comes with its name for people, mode and net."""
    if not isinstance(to, str) and hasattr(to, "deliver"):
        return {"sink": to, "to": type(to).__qualname__, "mode": mode or "", "net": net}
    to = str(to)  # what is neither is no receiver's URL
    check_disjoint(to, target.place if target.catalog is None else None)
    sink, chosen = open_sink(to, mode)
    if net and chosen == "scd2":  # states that came and went within a window would be missing
        msg = (
            "mode scd2 keeps every state of a row, and net changes leave out those within a window"
        )
        raise LandingZoneError(msg, next_step="Leave --net out, or choose mode current.")
    return {"sink": sink, "to": shown_url(absolute(to)), "mode": chosen, "net": net}


def _chosen(run: Run, patterns: Sequence[str]) -> list[tuple[str, str]]:
    """Find the tables; a glob that fits none is refused, a name, and what is `_gone`, told as one that is not there.

    Keys of a table that is asked for and not there are refused: those of a misspelt one would go for nothing.
    """
    globs = [pattern for pattern in patterns if set("*?[") & set(pattern)]
    found = find_tables(run.spark, run.target.place, run.target.catalog, patterns)
    gone = _gone(run, patterns, {name for name, _ in found})
    known = [*(name for name, _ in found), *gone]
    fit = [*map(parse_found, known)]
    odd = [one for one in globs if one.strip("*") and not any(matches(name, one) for name in fit)]
    every = find_tables(run.spark, run.target.place, run.target.catalog) if odd else ()
    refuse_unmatched(odd, [parse_found(name) for name, _ in every])
    there = {*known, *(name.rpartition("/")[2] for name in known)}
    missing = [name for name in patterns if name not in {*there, *globs}]
    there.update(part for name in missing for part in (name, name.rpartition("/")[2]))
    listed = [*found, *((name, "") for name in [*gone, *missing])]
    for table in run.keys if isinstance(run.keys, Mapping) else ():
        if table not in there and matches(parse_found(table), patterns):
            msg = "keys are given for a table that is not there"
            what = f"tables {', '.join(name for name, _ in listed[:10]) or 'none'}"
            raise LandingZoneError(msg, table=table, found=what, next_step="Correct its name.")
    return listed


def _gone(run: Run, patterns: Sequence[str], there: set[str]) -> list[str]:
    """Name the tables of this target that the consumer is given and that are not there: its copy would age unsaid."""
    found = []
    for registry in registries(run.state, run.consumer, but=there):
        name = parse_name(registry.table)
        if name.table not in {LEDGER, EVENTS} and matches(name, patterns):
            with contextlib.suppress(JournalError):  # of a damaged stream nobody knows whose it is
                if _is_own(run, registry.newest_stream()):
                    found.append(registry.table)
    return found


def _is_own(run: Run, stream: Stream | None) -> bool:
    """Say whether a stream is of the run's target: several may have one state folder."""
    return stream is not None and stream.target == run.target.owner


def _export_one(run: Run, name: str, address: str) -> StreamReport:
    """Deliver one table; whatever goes wrong with it is its report, not its neighbours' trouble."""
    report, began = StreamReport(table=name), time.perf_counter()
    error: MirrorError | None = None
    try:
        for so_far in bring_up_to_date(_open_stream(run, name, address), report):
            report = so_far
        if report.position != report.newest:
            reason = f"{name} is behind: the run was stopped."
            report = replace(report, state="behind", reason=reason)
    except TableBusyError as exc:
        report = replace(report, state="busy", reason=str(exc))
    except Exception as exc:  # noqa: BLE001  # one table's trouble is not its neighbours'
        error = as_mirror_error(exc, printable(name))
        if is_sparks(exc) and run.to.startswith("delta:") and "reset" in (error.next_step or ""):
            anew = f"where it is the receiver's table, {snapshot_command(run.consumer, name)}"
            error = error.but(next_step=f"{str(error.next_step).rstrip('.')}; {anew}")
        report = replace(report, state="failed", reason=str(error))
    report = replace(report, seconds=round(time.perf_counter() - began, 3))
    before = report.state if isinstance(error, OtherWishesError) else _record(run, report)
    kind = None if error is None else type(error).__name__
    said = {"address": address, "consumer": run.consumer, "error": kind}
    emit_state(before, **pick(report, "table", "state", "reason"), **said)
    return report


def _open_stream(run: Run, name: str, address: str) -> StreamJob:
    """Find a table and its stream, which is registered where the consumer is new."""
    registry = Registry(run.state, run.consumer, parse_name(name))
    stream = registry.newest_stream()
    if not address:
        msg, step = "there is no such Delta table in the target", "Check its name."
        if _is_own(run, stream):
            which = f"--drop {quote(run.consumer)} --table {quote(name)}"
            step = f"Bring it back, or forget it: mirrorlib consumers TARGET {which}"
        raise LandingZoneError(msg, table=name, next_step=step)
    source = find_feed_table(run.spark, address, shown=name)
    if stream is None:
        begin = begin_stream(source.commits, run.start)
        count, lineage = registry.forgotten()
        wishes = pick(run, "to", "mode", "net", "on_expired")
        stream = registry.begin(
            {**wishes, **begin, "first_table_id": lineage, "target": run.target.owner}, count + 1
        )
    goal = source.commits.newest
    return StreamJob(
        run=run, spark=run.spark, source=source, goal=goal, registry=registry, stream=stream
    )


def _record(run: Run, report: StreamReport) -> str:
    """Write down the last word about a stream that is registered, when there is a new one; return the state before."""
    before = ""
    if report.state in {"busy", "behind"}:  # it may stop there again
        return ""
    try:
        registry = Registry(run.state, run.consumer, parse_name(report.table))
        before = str(registry.read_status().get("state", ""))
        if report.state == "current" and not report.windows and before != "failed":
            return before
        if registry.newest_stream() is None:
            return report.state  # nobody remembers it: what has not begun does not stop
        registry.write_status({"state": report.state, "reason": report.reason, "at": now()})
    except MirrorError as exc:  # the last word is for people; losing it must not hide what happened
        _LOG.warning("%s: its status could not be written: %s", report.table, exc)
    return before


def _check_words(consumer: str, start: Start, on_expired: OnExpired, **counts: int | None) -> None:
    """Refuse words that nobody defined: a misspelt one would mean a snapshot."""
    check_name(consumer)
    check_start(start)
    if on_expired not in {"fail", "snapshot"}:
        msg = 'on_expired is "fail" or "snapshot"'
        raise LandingZoneError(msg, found=repr(on_expired)[:80], next_step="Give one of them.")
    for name, count in counts.items():
        if count is not None and count < 1:
            msg = f"{name} is at least 1"
            raise LandingZoneError(msg, found=count, next_step="Give another number, or none.")
