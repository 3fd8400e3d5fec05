"""`mirrorlib export`: deliver what changed in tables to a consumer, once or again and again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirrorlib.cli.arguments import add_rounds, add_target, key, positive, start
from mirrorlib.cli.command import Command
from mirrorlib.cli.spark import start_spark
from mirrorlib.cli.watch import run_command, stop_on_signals
from mirrorlib.platform.show import show_progress

if TYPE_CHECKING:
    import argparse

    from mirrorlib.delivery.report import ExportReport


def _add_arguments(command: argparse.ArgumentParser) -> None:
    add_target(command)
    command.add_argument(
        "tables", nargs="*", metavar="TABLE", help="names or globs such as 'dbo/*' (default: all)"
    )
    command.add_argument("--consumer", required=True, metavar="NAME", help="who is delivered to")
    command.add_argument(
        "--to",
        required=True,
        metavar="URL",
        help="delta:PATH, delta:catalog.schema, files:URL?format=parquet|jsonl|csv, zone:URL, "
        "jdbc:postgresql://…, jdbc:sqlite:PATH or kafka://HOST:PORT/TOPIC",
    )
    command.add_argument(
        "--mode",
        choices=("changes", "current", "scd2"),
        help="delta: every change appended, a kept copy, or every state with its validity (default: changes)",
    )
    command.add_argument(
        "--net", action="store_true", help="fold each window to what is different between its ends"
    )
    _add_beginning(command)
    _add_keys(command)
    command.add_argument(
        "--max-versions",
        type=lambda text: positive(text) if text else None,  # a job's parameter may be empty
        metavar="N",
        help="versions a window (default: all)",
    )
    add_rounds(command, "delivering")


def _add_keys(command: argparse.ArgumentParser) -> None:
    """Add by which columns rows are told apart."""
    choice = command.add_mutually_exclusive_group()
    choice.add_argument(
        "--key",
        action="append",
        type=key,
        metavar="COLUMN|TABLE=COLUMN,…",
        help="a key column of every table, or the key columns of one (TABLE= for none), in place of those that are "
        "known from its landing zone; may be repeated, or all in one as a JSON list or mapping",
    )
    choice.add_argument(
        "--no-key",
        action="store_true",
        help="go by no keys, though they are known: equal rows are counted",
    )


def _keys(arguments: argparse.Namespace) -> dict[str, tuple[str, ...]] | tuple[str, ...] | None:
    """Return the keys that are given, by table or for all of them; None leaves it to what is known."""
    if arguments.no_key:
        return ()
    by_table: dict[str, tuple[str, ...]] = {}
    for table, columns in (pair for pairs in arguments.key or () for pair in pairs):
        by_table[table] = by_table.get(table, ()) + columns
    if "" in by_table and len(by_table) > 1:
        arguments.refuse("--key says columns of every table or those of one, not both")
    return by_table.get("", by_table or None)


def _add_beginning(command: argparse.ArgumentParser) -> None:
    """Add with what a consumer begins, and begins again."""
    command.add_argument(
        "--start",
        type=start,
        default="snapshot",
        metavar="snapshot|now|N",
        help="a new consumer is given all rows, only what comes, or what came after version N (default: snapshot)",
    )
    command.add_argument(
        "--on-expired",
        choices=("fail", "snapshot"),
        default="fail",
        help="when changes that it has not read are gone: stop, or replace all it has by a snapshot (default: fail)",
    )


def _run(arguments: argparse.Namespace) -> bool:
    """Deliver, with `--watch` until a signal comes; say whether no table was stopped the last time."""
    from mirrorlib.delivery.run import export_tables
    from mirrorlib.delivery.sinks.open import place_of

    keys = _keys(arguments)
    spark = start_spark(arguments, place_of(arguments.to))
    stop = stop_on_signals()  # after PySpark, whose own Ctrl-C cancels what is in flight

    def one() -> ExportReport:
        with show_progress(quiet=arguments.json) as observe:
            return export_tables(
                spark,
                arguments.target,
                arguments.tables,
                consumer=arguments.consumer,
                to=arguments.to,
                mode=arguments.mode,
                net=arguments.net,
                start=arguments.start,
                on_expired=arguments.on_expired,
                keys=keys,
                catalog=arguments.catalog,
                state=arguments.state,
                max_versions=arguments.max_versions,
                parallelism=arguments.parallelism,
                observe=observe,
                stop=stop.is_set,
            )

    return run_command(arguments, spark, stop, one, is_news=_is_news)


def _is_news(report: ExportReport) -> bool:
    return any(table.windows for table in report.tables)


EXPORT = Command(
    name="export",
    help="deliver what changed to a consumer",
    more="A consumer is a name, with a position in each table that is kept beside the target: every run goes on "
    "where the last one ended, and a run that was killed is carried to its end. Where a table's keys are not "
    "known from its landing zone, say them with --key; where they do not tell its rows apart, with --no-key.",
    add_arguments=_add_arguments,
    run=_run,
)
