"""The command line: arguments in, one call of the library, a report for people or `--json` for machines.

Exit codes: 0 everything is well, 1 some table is blocked or failed, 2 wrong usage or no such place.
"""

from __future__ import annotations

import argparse
import json
import logging
import signal
import sys
import threading
from typing import TYPE_CHECKING, Any

from mirrorlib.apply.options import REWRITE_LIMIT, SETTLE
from mirrorlib.commands import publish
from mirrorlib.errors import JournalError, LandingZoneError, MirrorError
from mirrorlib.show import show_progress, show_report
from mirrorlib.version import VERSION

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import FrameType

    from pyspark.sql import SparkSession

    from mirrorlib.apply.report import Observer, PlanReport
    from mirrorlib.commands.publish import PublishReport
    from mirrorlib.landing.check.report import CheckObserver, CheckReport, CheckStep
    from mirrorlib.operate.status import StatusReport

    Commands = argparse._SubParsersAction[argparse.ArgumentParser]  # it has no public name  # noqa: SLF001  # it has no public name

OK, STOPPED, USAGE = 0, 1, 2
INTERRUPTED = 130  # as shells say it: 128 and SIGINT's number

_EPILOG = """\
examples:
  mirrorlib demo                                   see it work on real data, nothing prepared
  mirrorlib plan  /data/landing /data/tables       what would apply do?
  mirrorlib apply /data/landing /data/tables       bring every table up to date
  mirrorlib apply /data/landing /data/tables --table 'dbo/*' --watch 30
  mirrorlib status /data/tables --json             how does every table stand?
  mirrorlib check /data/landing --strict           is the zone as it has to be?
  mirrorlib publish /data/landing dbo/orders rows.parquet --keys id

exit codes: 0 all is well, 1 a table is blocked or failed (the others are applied), 2 wrong usage
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; return its exit code."""
    arguments = _parser().parse_args(argv)
    logging.basicConfig(
        level=logging.INFO if arguments.verbose else logging.ERROR,
        format="%(asctime)s %(levelname)s %(name)s %(message)s",
        stream=sys.stderr,
    )
    logging.getLogger("py4j").setLevel(logging.WARNING)
    try:
        code: int = arguments.run(arguments)
    except MirrorError as exc:
        _say_error(exc, as_json=arguments.json)
        return USAGE if isinstance(exc, (LandingZoneError, JournalError)) else STOPPED
    except KeyboardInterrupt:
        sys.stderr.write("mirrorlib: interrupted\n")
        return INTERRUPTED
    return code


def _apply(arguments: argparse.Namespace) -> int:
    from mirrorlib.apply.run import apply_zone

    spark = _spark(arguments)
    stop = _stop_on_signals()  # after PySpark, whose own Ctrl-C cancels the commits in flight
    while True:
        with show_progress(quiet=arguments.json) as observe:
            report = apply_zone(
                spark,
                arguments.landing_zone,
                arguments.target,
                **_options(arguments),
                parallelism=arguments.parallelism,
                allow_empty=arguments.allow_empty,
                quiet=arguments.quiet_updates,
                observe=observe,
                stop=stop.is_set,
            )
        if arguments.json:
            _say_json(report.to_dict(), lines=arguments.watch is not None)
        elif (
            arguments.watch is None
            or not report.ok
            or any(table.batches for table in report.tables)
        ):
            show_report(report)
        if arguments.watch is None or stop.wait(arguments.watch) or stop.is_set():
            return OK if report.ok else STOPPED


def _plan(arguments: argparse.Namespace) -> int:
    from mirrorlib.apply.preview import plan_zone

    report = plan_zone(
        _spark(arguments), arguments.landing_zone, arguments.target, **_options(arguments)
    )
    _say(report, as_json=arguments.json)
    return OK if report.ok else STOPPED


def _status(arguments: argparse.Namespace) -> int:
    from mirrorlib.operate.status import read_status

    report = read_status(arguments.target, catalog=arguments.catalog, state=arguments.state)
    _say(report, as_json=arguments.json)
    return OK if report.ok else STOPPED


def _check(arguments: argparse.Namespace) -> int:
    from mirrorlib.landing.check.zone import check_zone

    with show_progress(quiet=arguments.json) as observe:
        report = check_zone(
            arguments.landing_zone,
            tables=arguments.table,
            strict=arguments.strict,
            deep=arguments.deep,
            observe=_check_observer(observe),
        )
    _say(report, as_json=arguments.json)
    return OK if report.ok else STOPPED


def _check_observer(observe: Observer) -> CheckObserver:
    """Tell a review's steps as a run's: one bar a table, one step a file."""
    from mirrorlib.apply.report import Event

    def tell(step: CheckStep) -> None:
        if step.checked:
            observe(Event(table=step.table, step="done", when="after", files=1))
        else:
            observe(Event(table=step.table, step="read", when="before"))
            observe(Event(table=step.table, step="read", when="after", files=step.files))

    return tell


def _reset(arguments: argparse.Namespace) -> int:
    from mirrorlib.apply.run import reset_table

    life = reset_table(
        _spark(arguments),
        arguments.target,
        arguments.table,
        catalog=arguments.catalog,
        state=arguments.state,
    )
    if arguments.json:
        _say_json(
            {"table": arguments.table, "life": life.ordinal, "started_at": life.started_at},
            lines=False,
        )
    else:
        sys.stdout.write(
            f"{arguments.table} begins life {life.ordinal}: the next apply replaces its content in one commit. "
            "Until then readers see what is there.\n"
        )
    return OK


def _publish(arguments: argparse.Namespace) -> int:
    report = publish.publish_files(arguments)
    _say(report, as_json=arguments.json)
    return OK if report.ok else STOPPED


def _demo(arguments: argparse.Namespace) -> int:
    from mirrorlib.demo import run_demo

    run_demo(arguments.folder)
    return OK


def _options(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the options that `apply` and `plan` share."""
    return {
        "tables": arguments.table,
        "insert_policy": arguments.insert_policy,
        "evolution": arguments.evolution,
        "ntz": arguments.ntz,
        "max_files": arguments.max_files,
        "max_bytes": arguments.max_bytes,
        "catalog": arguments.catalog,
        "state": arguments.state,
        "retry": arguments.retry,
        "allow_foreign_writes": arguments.allow_foreign_writes,
        "moved_from": arguments.moved_from,
        "rewrite_limit": arguments.rewrite_limit,
        "settle": arguments.settle,
    }


def _spark(arguments: argparse.Namespace) -> SparkSession:
    from mirrorlib.session import local_spark

    return local_spark(memory=arguments.memory)


def _stop_on_signals() -> threading.Event:
    """Let Ctrl-C and a polite kill end the run after the commits in flight; a second Ctrl-C ends it at once."""
    stop = threading.Event()

    def ask(number: int, frame: FrameType | None) -> None:
        del frame
        if stop.is_set():
            raise KeyboardInterrupt
        sys.stderr.write(f"\n{signal.Signals(number).name}: stopping after the commits in flight\n")
        stop.set()

    signal.signal(signal.SIGINT, ask)
    signal.signal(signal.SIGTERM, ask)
    return stop


def _say(report: PlanReport | StatusReport | CheckReport | PublishReport, *, as_json: bool) -> None:
    if as_json:
        _say_json(report.to_dict(), lines=False)
    else:
        show_report(report)


def _say_json(value: dict[str, Any], *, lines: bool) -> None:
    sys.stdout.write(
        json.dumps(value, indent=None if lines else 2, ensure_ascii=False, default=str) + "\n"
    )
    sys.stdout.flush()


def _say_error(error: MirrorError, *, as_json: bool) -> None:
    if as_json:
        _say_json({"ok": False, **error.to_dict()}, lines=False)
    sys.stderr.write(f"mirrorlib: {error}\n")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="mirrorlib",
        description="Apply a landing zone of change files to Delta tables, in order and exactly once.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"mirrorlib {VERSION}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    _add_apply(commands)
    _add_plan(commands)
    _add_status(commands)
    _add_check(commands)
    _add_reset(commands)
    publish.add_arguments(_command(commands, "publish", _publish, publish.HELP, publish.MORE))
    _add_demo(commands)
    return parser


def _command(
    commands: Commands,
    name: str,
    run: Callable[[argparse.Namespace], int],
    text: str,
    more: str = "",
) -> argparse.ArgumentParser:
    command: argparse.ArgumentParser = commands.add_parser(
        name, help=text, description=f"{text[0].upper()}{text[1:]}. {more}".strip()
    )
    command.set_defaults(run=run, json=False, memory="2g")
    command.add_argument(
        "-v", "--verbose", action="store_true", help="log each table and commit to standard error"
    )
    return command


def _add_apply(commands: Commands) -> None:
    more = "A table that is blocked or failed says why and stops alone; it is tried again on every run."
    command = _command(commands, "apply", _apply, "bring every table up to date", more)
    _add_zone(command)
    command.add_argument(
        "--parallelism",
        type=_positive,
        metavar="N",
        help="tables at once (default: cores, at most 8)",
    )
    command.add_argument(
        "--watch",
        type=_seconds,
        metavar="SECONDS",
        help="keep applying, pausing this long in between, until Ctrl-C",
    )
    command.add_argument(
        "--quiet-updates",
        action="store_true",
        help="leave rows alone that an update would not change; the change feed shrinks",
    )
    command.add_argument(
        "--allow-empty", action="store_true", help="let a reset table be replaced by no rows"
    )


def _add_plan(commands: Commands) -> None:
    _add_zone(_command(commands, "plan", _plan, "say what apply would do, and write nothing"))


def _add_status(commands: Commands) -> None:
    more = (
        "States: current, behind (files wait), blocked (a file is missing), failed (something is wrong), "
        "waiting (no metadata or data yet)."
    )
    command = _command(commands, "status", _status, "show how every table of a target stands", more)
    _add_target(command)


def _add_check(commands: Commands) -> None:
    more = (
        "Nothing is written, and no Spark is started. Exit codes: 0 nothing but notes (and warnings), "
        "1 errors (with --strict warnings too), 2 wrong usage. Every rule: docs/check.md."
    )
    command = _command(commands, "check", _check, "review a landing zone as a strict reader", more)
    _add_place(command)
    command.add_argument("--strict", action="store_true", help="count warnings as errors")
    command.add_argument(
        "--deep",
        action="store_true",
        help="decode every page of every file, not only footers, markers and keys",
    )
    command.add_argument("--json", action="store_true", help="print JSON")


def _add_reset(commands: Commands) -> None:
    more = (
        "The next apply replaces its content, in one commit, by what the landing zone shows then. "
        "Nothing is deleted before."
    )
    command = _command(commands, "reset", _reset, "start one table over", more)
    _add_target(command)
    command.add_argument("table", metavar="TABLE", help="the table, as status shows it: dbo/orders")


def _add_demo(commands: Commands) -> None:
    command = _command(
        commands, "demo", _demo, "publish and apply real data, and show what happened"
    )
    command.add_argument(
        "--folder",
        metavar="PATH",
        default="mirrorlib-demo",
        help="where to (default: ./mirrorlib-demo)",
    )


def _add_place(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "landing_zone", metavar="LANDING_ZONE", help="folder or URL that holds the table folders"
    )
    command.add_argument(
        "--table",
        action="append",
        default=[],
        metavar="NAME",
        help="only this table; a glob such as 'dbo/*' too; may be repeated",
    )


def _add_zone(command: argparse.ArgumentParser) -> None:
    _add_place(command)
    _add_target(command)
    command.add_argument(
        "--insert-policy",
        choices=("append", "upsert"),
        default="append",
        help="marker 0 inserts without a look (append, the format's word) or replaces the row of its key (upsert)",
    )
    command.add_argument(
        "--evolution",
        choices=("widen", "add", "strict"),
        default="widen",
        help="how columns may change (default: widen)",
    )
    command.add_argument(
        "--ntz",
        choices=("utc", "keep"),
        default="utc",
        help="timestamps without zone are instants in UTC, or stay without zone",
    )
    command.add_argument("--max-files", type=_positive, metavar="N", help="change files a commit")
    command.add_argument(
        "--max-bytes", type=_size, metavar="N", help="bytes of change files a commit (500m, 2g)"
    )
    command.add_argument(
        "--retry",
        action="store_true",
        help="try files again that damaged a plan, though they have not changed",
    )
    command.add_argument(
        "--allow-foreign-writes",
        action="store_true",
        help="go on although somebody else wrote to a table",
    )
    command.add_argument(
        "--moved-from", metavar="URL", help="the same landing zone was there before"
    )
    command.add_argument(
        "--rewrite-limit",
        type=_size,
        default=REWRITE_LIMIT,
        metavar="N",
        help="rewrite a table for a new type up to this size (default: 1g)",
    )
    command.add_argument(
        "--settle",
        type=_seconds,
        default=SETTLE,
        metavar="SECONDS",
        help="how long delimited text has to lie still before it is read (default: 10)",
    )
    command.add_argument(
        "--memory", default="2g", metavar="SIZE", help="heap of the local Spark (default: 2g)"
    )


def _add_target(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "target",
        metavar="TARGET",
        help="root path or URL of the Delta tables; with --catalog, a schema's name",
    )
    command.add_argument(
        "--catalog", metavar="NAME", help="write tables of this Spark catalog, CATALOG.TARGET.table"
    )
    command.add_argument(
        "--state", metavar="PATH", help="where the journal lives (default: TARGET/_mirrorlib)"
    )
    command.add_argument("--json", action="store_true", help="print JSON")


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        msg = f"{text} is not 1 or more"
        raise argparse.ArgumentTypeError(msg)
    return number


def _seconds(text: str) -> float:
    number = float(text)
    if not 0 <= number < float("inf"):
        msg = f"{text} is not a number of seconds"
        raise argparse.ArgumentTypeError(msg)
    return number


def _size(text: str) -> int:
    """Read a size in bytes, with k, m or g behind it or not."""
    shifts = {"k": 10, "m": 20, "g": 30}
    unit = text[-1:].lower()
    number = _positive(text[:-1] if unit in shifts else text)
    return number << shifts.get(unit, 0)


if __name__ == "__main__":
    sys.exit(main())
