"""`mirrorlib consumers` and `vacuum`: who is delivered to, how far; remove what none of them has still to read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirrorlib.cli.arguments import add_tables, add_target, positive, start
from mirrorlib.cli.command import Command
from mirrorlib.cli.say import say_json
from mirrorlib.cli.spark import start_spark

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from mirrorlib.tabular import Report


def _add_consumers(command: argparse.ArgumentParser) -> None:
    add_target(command)
    add_tables(command)
    command.add_argument("--consumer", metavar="NAME", help="only this one")
    choice = command.add_mutually_exclusive_group()
    choice.add_argument(
        "--drop", metavar="NAME", help="forget a consumer; what its receiver holds stays there"
    )
    choice.add_argument(
        "--rewind", metavar="NAME", help="let a consumer begin again, at what --to says"
    )
    command.add_argument(
        "--to",
        type=start,
        metavar="snapshot|now|N",
        help="for --rewind: all rows, only what comes, or what came after version N",
    )


def _consumers(arguments: argparse.Namespace) -> Report | bool:
    """Show the consumers, or change one."""
    from mirrorlib.delivery.consumers import drop_consumer, list_consumers, rewind_consumer

    _check_to(arguments)
    place = {"catalog": arguments.catalog, "state": arguments.state}
    if arguments.drop is not None:
        gone = drop_consumer(arguments.target, arguments.drop, tables=arguments.tables, **place)
        return _say_done("dropped", arguments.drop, gone, as_json=arguments.json)
    spark = start_spark(arguments) if arguments.catalog is not None else None
    if arguments.rewind is not None:
        back = rewind_consumer(
            arguments.target,
            arguments.rewind,
            arguments.to,
            tables=arguments.tables,
            spark=spark,
            **place,
        )
        return _say_done("rewound", arguments.rewind, back, as_json=arguments.json)
    return list_consumers(
        arguments.target, consumer=arguments.consumer, tables=arguments.tables, spark=spark, **place
    )


def _check_to(arguments: argparse.Namespace) -> None:
    from mirrorlib.errors import LandingZoneError

    if arguments.rewind is not None and arguments.to is None:
        msg = "--rewind has to know where to begin again"
        raise LandingZoneError(msg, next_step="Add --to snapshot, --to now, or --to VERSION.")
    if arguments.rewind is None and arguments.to is not None:
        msg = "--to says where a rewound consumer begins again, and none is rewound"
        raise LandingZoneError(msg, next_step="Add --rewind NAME, or leave --to out.")


def _say_done(what: str, consumer: str, tables: Sequence[str], *, as_json: bool) -> bool:
    if as_json:
        say_json({"ok": True, "consumer": consumer, what: list(tables)})
    else:
        print(f"{what}: {consumer}, {', '.join(tables)}")  # noqa: T201  # the command's answer
    return True


def _add_vacuum(command: argparse.ArgumentParser) -> None:
    add_target(command)
    add_tables(command)
    command.add_argument(
        "--hours",
        type=positive,
        metavar="N",
        help="how long removed files are kept (default: what each table says, else Delta's week)",
    )
    command.add_argument("--dry-run", action="store_true", help="remove nothing, say what would be")
    command.add_argument(
        "--force", action="store_true", help="remove them although consumers need them; name these"
    )


def _vacuum(arguments: argparse.Namespace) -> Report:
    """Do it; say whether no table was refused."""
    from mirrorlib.operate.vacuum import vacuum_tables

    return vacuum_tables(
        start_spark(arguments),
        arguments.target,
        tables=arguments.tables,
        hours=arguments.hours,
        dry_run=arguments.dry_run,
        force=arguments.force,
        catalog=arguments.catalog,
        state=arguments.state,
    )


CONSUMERS = Command(
    name="consumers",
    help="show who is delivered to, and how far each has come",
    more="Health: current, behind (it has not been given the newest versions), delivering (a run is at it), "
    "failed, expiring (what it has not read may soon leave the table's log: export, or raise "
    "delta.logRetentionDuration), or expired (it is gone). Consumers that were registered with --state are "
    "found only with the same --state. Needs Spark only for tables of a catalog.",
    add_arguments=_add_consumers,
    run=_consumers,
)
VACUUM = Command(
    name="vacuum",
    help="remove files that nobody needs any more",
    more="Delta's VACUUM takes change files too, whoever has still to read them. Here a table is refused while a "
    "registered consumer needs what would go, or what may soon leave the table's log. --dry-run is the check "
    "to run before maintenance elsewhere: its exit code is 1 when something would be lost. Consumers that "
    "were registered with --state are known only to a vacuum with the same --state.",
    add_arguments=_add_vacuum,
    run=_vacuum,
)
