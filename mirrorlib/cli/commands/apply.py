"""`mirrorlib apply`, `plan`, `reset` and `rebuild`: bring tables up to date, say what that would do, begin one anew."""

from __future__ import annotations

import argparse
from typing import Any

import mirrorlib
from mirrorlib.cli.arguments import DEFAULTS, EVENTS, MEMORY, TARGET, ZONE, rounds
from mirrorlib.cli.command import Command, call, call_shown, say
from mirrorlib.cli.run import run_command, start_spark
from mirrorlib.errors import ParameterError
from mirrorlib.ingest.options import Options
from mirrorlib.ingest.report import ApplyReport
from mirrorlib.journal.disk import Journal
from mirrorlib.journal.entries import zone_of
from mirrorlib.names import parse_name
from mirrorlib.platform.parameters import read_options
from mirrorlib.store import open_store
from mirrorlib.store.target import Target
from mirrorlib.tabular import Report

_REPLACED = "the next apply replaces its content. Until then readers see what is there."
_KEPT = "its rows stay, and the next apply goes on by _metadata.json, behind the files that were appended."

_SAID = "Bytes may be said as 500m or 2g, seconds in words: '1 day'."


def _apply(arguments: argparse.Namespace) -> bool:
    """Apply, with `--watch` until a signal comes; say whether no table was stopped the last time."""
    more = _check(arguments, arguments.options)
    return run_command(arguments, mirrorlib.apply, is_news=_is_news, **more)


def _check(arguments: argparse.Namespace, text: str | None = None) -> dict[str, Any]:
    """Refuse what does not go together, or is beyond bounds, before Spark is started; return what *text* has."""
    more: dict[str, Any] = {}
    try:
        more = read_options(text)
        asked = {**vars(arguments), **more}
        Options(**{name: value for name, value in asked.items() if name in DEFAULTS})
    except (ParameterError, ValueError) as exc:
        arguments.refuse(str(exc))
    return more


def _is_news(report: ApplyReport) -> bool:
    return bool(report.warnings) or any(table.batches for table in report.tables)


def _plan(arguments: argparse.Namespace) -> Report:
    _check(arguments)
    return call(mirrorlib.plan, arguments, spark=start_spark(arguments))


def _reset(arguments: argparse.Namespace) -> bool:
    life = call(mirrorlib.reset, arguments, spark=start_spark(arguments))
    told = {"table": arguments.table, "life": life.ordinal, "started_at": life.started_at}
    coming = _KEPT if arguments.keep else _REPLACED
    return say(arguments, told, f"{arguments.table} begins life {life.ordinal}: {coming}")


def _rebuild(arguments: argparse.Namespace) -> Report | bool:
    """Compute the table anew, or give it back the rows that it had before that."""
    if arguments.undo and arguments.start_at is not None:
        arguments.refuse("argument --undo: gives back what was there, so not with --start-at")
    place = Target.of(arguments.target, catalog=arguments.catalog, state=arguments.state)
    journal = Journal(open_store(place.state), parse_name(arguments.table))
    zone = zone_of(journal.read_status(), journal.newest_of(journal.lives()))
    spark = start_spark(arguments, zone or "")
    if arguments.undo:
        call(mirrorlib.undo_rebuild, arguments, spark=spark)
        line = f"{arguments.table} has the rows that it had before its rebuild."
        return say(arguments, {"table": arguments.table}, line)
    return call_shown(mirrorlib.rebuild, arguments, spark=spark)


APPLY = Command(
    more=f"A table that is blocked or failed says why and stops alone; it is tried again on every run. {_SAID}",
    arguments={
        **ZONE,
        **rounds("applying"),
        "--approve HASH": "apply what plan said when it told this hash, with these options, and nothing else",
        "--options JSON": "these and others, by the names that they have in Python; what a job hands over as one text "
        """counts for more: '{"max_bytes": 500000000, "plain_evolution": "rescue"}'""",
    },
    either=("approve", "watch"),
    run=_apply,
)
PLAN = Command(more=_SAID, arguments=ZONE, run=_plan)
RESET = Command(
    more="The next apply replaces its content, in one commit, by what the landing zone shows then.",
    arguments={
        **TARGET,
        "TABLE": "the table, as status shows it: dbo/orders",
        "--start-at N": "begin with file number N, where earlier ones are gone (default: 1, where it began so)",
        "--keep": "keep the rows of a folder that was appended without _metadata.json, and go on by it behind them",
        **EVENTS,
        **MEMORY,
    },
    either=("start_at", "keep"),
    run=_reset,
)
REBUILD = Command(
    more="By the rules of its newest batch, from the files that were applied, or from a full load that is file N. "
    "Readers and consumers see nothing but what differs; all rows, where the columns do.",
    arguments={
        **TARGET,
        "TABLE": "the table, as status shows it: dbo/orders",
        "--plan": "write nothing, and say what would be changed",
        "--undo": "give the table back the rows that it had before, until something else is committed, or a vacuum",
        "--start-at N": "begin with file number N, which holds all rows (default: as the table began)",
        **EVENTS,
        **MEMORY,
    },
    either=("plan", "undo"),
    run=_rebuild,
)
