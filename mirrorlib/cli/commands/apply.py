"""`mirrorlib apply`: bring every table of a landing zone up to date, once or again and again."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from mirrorlib.cli.arguments import add_zone, positive, seconds, zone_options
from mirrorlib.cli.spark import start_spark
from mirrorlib.cli.watch import run_command, stop_on_signals
from mirrorlib.errors import ParameterError
from mirrorlib.ingest.options import BACKFILL_INTERVAL, read_interval
from mirrorlib.platform.notebook import read_options
from mirrorlib.platform.show import show_progress

if TYPE_CHECKING:
    from mirrorlib.ingest.report import ApplyReport

HELP = "bring every table up to date"
MORE = "A table that is blocked or failed says why and stops alone; it is tried again on every run."


def add_arguments(command: argparse.ArgumentParser) -> None:
    """Add what `apply` takes."""
    add_zone(command)
    command.add_argument(
        "--parallelism",
        type=positive,
        metavar="N",
        help="tables at once (default: cores, at most 8)",
    )
    command.add_argument(
        "--watch",
        type=seconds,
        metavar="SECONDS",
        help="keep applying, pausing this long in between, until Ctrl-C",
    )
    _add_listing(command)
    command.add_argument(
        "--options",
        type=_options,
        default={},
        metavar="JSON",
        help="these and others, by the names that they have in Python; what a job hands over as one text counts "
        """for more: '{"max_bytes": 500000000, "plain_evolution": "rescue"}'""",
    )


def _add_listing(command: argparse.ArgumentParser) -> None:
    """Add how much of a folder is looked at."""
    command.add_argument(
        "--listing",
        choices=("auto", "full", "incremental"),
        default="auto",
        help="look only for what has come to long folders of numbers, or of names in the order of writing (auto), "
        "to all folders where that can be done (incremental), or list every folder in full (default: auto)",
    )
    command.add_argument(
        "--backfill-interval",
        type=_interval,
        default=BACKFILL_INTERVAL,
        metavar="INTERVAL",
        help="list such a folder in full all the same after this long: seconds, or words such as '1 day' "
        "(default: 1 hour)",
    )


def _interval(text: str) -> float:
    try:
        return read_interval(text)
    except ValueError as exc:
        raise argparse.ArgumentTypeError(str(exc)) from exc


def _options(text: str) -> dict[str, Any]:
    try:
        return read_options(text)
    except ParameterError as exc:
        raise argparse.ArgumentTypeError(str(exc)) from exc


def run(arguments: argparse.Namespace) -> bool:
    """Apply, with `--watch` until a signal comes; say whether no table was stopped the last time."""
    from mirrorlib.ingest.run import apply_zone

    options = zone_options(arguments) | arguments.options
    spark = start_spark(arguments)
    stop = stop_on_signals()  # after PySpark, whose own Ctrl-C cancels the commits in flight

    def one() -> ApplyReport:
        with show_progress(quiet=arguments.json) as observe:
            return apply_zone(
                spark,
                arguments.landing_zone,
                arguments.target,
                **options,
                observe=observe,
                stop=stop.is_set,
            )

    return run_command(arguments, spark, stop, one, is_news=_is_news)


def _is_news(report: ApplyReport) -> bool:
    return bool(report.warnings) or any(table.batches for table in report.tables)
