"""`mirrorlib export`, `consumers`, `vacuum` and `optimize`: deliver changes, say to whom, keep tables fast."""

from __future__ import annotations

import argparse

import mirrorlib
from mirrorlib.cli.arguments import MEMORY, TABLES, TARGET, positive, rounds
from mirrorlib.cli.command import Command, call, say
from mirrorlib.cli.run import run_command, start_spark
from mirrorlib.delivery.report import ExportReport
from mirrorlib.errors import ParameterError
from mirrorlib.platform.parameters import read_parameter
from mirrorlib.tabular import Report

_KEYS = dict[str, list[str]] | list[str] | None


def _export(arguments: argparse.Namespace) -> bool:
    """Deliver, with `--watch` until a signal comes; say whether no table was stopped the last time."""
    from mirrorlib.delivery.sinks.open import place_of

    keys, place = _keys(arguments), place_of(arguments.to)

    def is_news(report: ExportReport) -> bool:
        return any(table.windows for table in report.tables)

    return run_command(arguments, mirrorlib.export, place, is_news=is_news, keys=keys)


def _keys(arguments: argparse.Namespace) -> object:
    """Return the keys that are given, a mapping by table or for all of them; None leaves it to what is known."""
    if arguments.no_key:
        return ()
    keys: object = arguments.keys or None
    if len(arguments.keys) == 1:  # which may say all of them; a job's parameter may be empty
        try:
            keys = read_parameter("--key", arguments.keys[0], _KEYS)
        except ParameterError as exc:
            arguments.refuse(str(exc))
    return keys


def _consumers(arguments: argparse.Namespace) -> Report | bool:
    if (arguments.rewind is None) != (arguments.to is None):
        arguments.refuse("--rewind NAME goes with --to snapshot, now or VERSION, and --to with it")
    if arguments.drop is not None:
        what, name = "dropped", arguments.drop
        tables = call(mirrorlib.drop_consumer, arguments, consumer=name)
    else:
        spark = start_spark(arguments) if arguments.catalog is not None else None
        if arguments.rewind is None:
            return call(mirrorlib.consumers, arguments, spark=spark)
        what, name = "rewound", arguments.rewind
        tables = call(mirrorlib.rewind_consumer, arguments, consumer=name, spark=spark)
    told = {"consumer": name, what: list(tables)}
    return say(arguments, told, f"{what}: {name}, {', '.join(tables)}")


EXPORT = Command(
    more="A consumer is a name with a position in each table: every run goes on where the last one ended. Keys that "
    "are not known from the landing zone are said with --key; where they tell no rows apart, say --no-key.",
    arguments={
        **TARGET,
        "TABLE*": "names or globs such as 'dbo/*', with --catalog without the schema folder (default: all)",
        "--consumer! NAME": "who is delivered to",
        "--to! URL": "delta:PATH, delta:catalog.schema, files:URL?format=parquet|jsonl|csv, zone:URL, "
        "jdbc:postgresql://…, jdbc:sqlite:PATH or kafka://HOST:PORT/TOPIC",
        "--mode changes|current|scd2": "delta: every change (default), a kept copy, or every state with its validity",
        "--net": "fold each window to what is different between its ends",
        "--start snapshot|now|N": "give a new consumer all rows (default), what comes, or what came after version N",
        "--on-expired fail|snapshot": "when changes it has not read are gone: stop (default), or replace all it has",
        "--key* COLUMN|JSON": "a key column of every table, in place of those known from its landing zone; may "
        """be repeated, or all of them as a JSON list, or by table: '{"dbo/orders": ["id"]}', where [] is none""",
        "--no-key": "go by no keys, though they are known: equal rows are counted",
        "--max-versions N": "versions a window (default: all)",
        **rounds("delivering"),
        **MEMORY,
    },
    defaults={"start": "snapshot", "on_expired": "fail"},
    # A job's parameter may be empty.
    readers={"max_versions": lambda text: positive(text) if text else None},
    either=("keys", "no_key"),
    run=_export,
)
CONSUMERS = Command(
    more="Health: current, behind, delivering (a run is at it), failed, expiring (what it has not read may soon leave "
    "the table's log: export, or raise delta.logRetentionDuration), expired (it is gone), or unknown (its table cannot "
    "be read). Consumers are found by the --state with which they were registered.",
    arguments={
        **TARGET,
        **TABLES,
        "--consumer NAME": "only this one",
        "--drop NAME": "forget a consumer; what its receiver holds stays there",
        "--rewind NAME": "let a consumer begin again, at what --to says",
        "--to snapshot|now|N": "for --rewind: all rows, only what comes, or what came after version N",
    },
    either=("consumer", "drop", "rewind"),
    run=_consumers,
)
VACUUM = Command(
    more="A table is refused while a registered consumer needs what Delta's VACUUM would take, or what may soon leave "
    "its log; --dry-run only says so, by exit code 1. Consumers are known by the --state of their registration.",
    arguments={
        **TARGET,
        **TABLES,
        "--hours N": "how long removed files are kept (default: what each table says, else Delta's week)",
        "--dry-run": "remove nothing, say what would be",
        "--force": "remove them although consumers need them; name these",
        **MEMORY,
    },
    run=lambda arguments: call(mirrorlib.vacuum, arguments, spark=start_spark(arguments)),
)
OPTIMIZE = Command(
    more="Run it now and then: after some hundred batches the next takes up to twice as long. It changes no row, and "
    "what it has replaced is removed by vacuum.",
    arguments={**TARGET, **TABLES, **MEMORY},
    run=lambda arguments: call(mirrorlib.optimize, arguments, spark=start_spark(arguments)),
)
