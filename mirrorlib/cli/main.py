"""The command line: which command is asked for, and the exit code. What each does is in `commands`.

Exit codes: 0 everything is well, 1 some table is blocked or failed, 2 wrong usage or no such place,
130 (SIGINT) or 143 (SIGTERM) a run was cut short.
"""

from __future__ import annotations

import argparse
import io
import logging
import os
import signal
import sys
from collections.abc import Sequence

from mirrorlib.cli.command import say_error, say_json
from mirrorlib.cli.commands import apply, check, export, feed, ledger, platforms, publish
from mirrorlib.cli.watch import CutShortError
from mirrorlib.delta.trouble import is_sparks, spark_error
from mirrorlib.errors import MirrorError, StoppedError
from mirrorlib.platform.show import show_report
from mirrorlib.tabular import Report
from mirrorlib.version import VERSION

OK, STOPPED, USAGE = 0, 1, 2
SIGNALLED = 128  # and the signal's number, as shells say it
INTERRUPTED, CLOSED = SIGNALLED + signal.SIGINT, SIGNALLED + signal.SIGPIPE

_EPILOG = """\
examples:
  mirrorlib demo                                   see it work on real data, nothing prepared
  mirrorlib plan  /data/landing /data/tables       what would apply do?
  mirrorlib apply /data/landing /data/tables       bring every table up to date
  mirrorlib apply /data/landing /data/tables --table 'dbo/*' --watch 30
  mirrorlib status /data/tables --json             how does every table stand?
  mirrorlib ledger /data/tables                    what was applied, batch by batch?
  mirrorlib feed /data/tables dbo/orders --after 7 what has changed since version 7?
  mirrorlib export /data/tables --consumer lake --to delta:/data/copy --mode current
  mirrorlib consumers /data/tables                 who is delivered to, and how far is each?
  mirrorlib lineage /data/tables                   where do tables come from, and with which keys?
  mirrorlib check /data/landing --strict           is the zone as it has to be?
  mirrorlib publish /data/landing dbo/orders rows.parquet --keys id

exit codes: 0 all is well, 1 a table is blocked or failed (the others are applied), 2 wrong usage,
130 or 143 Ctrl-C or a kill cut the run short; the next one goes on (--watch ends so too, with 0 or 1)
"""


_COMMANDS = (
    apply.APPLY,
    apply.PLAN,
    check.STATUS,
    ledger.LEDGER,
    feed.FEED,
    feed.ENABLE_FEED,
    export.EXPORT,
    export.CONSUMERS,
    export.VACUUM,
    ledger.LINEAGE,
    check.CHECK,
    apply.RESET,
    publish.PUBLISH,
    platforms.FABRIC_ITEMS,
    platforms.DEMO,
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; return its exit code."""
    arguments = make_parser().parse_args(argv)
    # A file's name may be no text: it is shown as errors are.
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    logging.basicConfig(
        level=logging.INFO if arguments.verbose else logging.ERROR,
        format="%(asctime)s %(levelname)s %(name)s %(message)s",
        stream=sys.stderr,
    )
    logging.getLogger("py4j").setLevel(logging.WARNING)
    try:
        answer: Report | bool = arguments.run(arguments)
        if not isinstance(answer, bool):
            if arguments.json:
                say_json(answer.to_dict())
            else:
                show_report(answer)
    except MirrorError as exc:
        say_error(exc, as_json=arguments.json)
        return USAGE if exc.wrong_usage else STOPPED
    except CutShortError as exc:
        sys.stderr.write(f"mirrorlib: {exc}\n")
        return SIGNALLED + exc.number
    except KeyboardInterrupt:
        sys.stderr.write("mirrorlib: interrupted\n")
        return INTERRUPTED
    except BrokenPipeError:  # whoever read our output has seen enough, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return CLOSED
    except Exception as exc:
        if not is_sparks(exc):
            raise
        logging.getLogger(__name__).exception("Spark failed", exc_info=exc)
        say_error(spark_error(exc, "do what was asked for"), as_json=arguments.json)
        return STOPPED
    well = answer if isinstance(answer, bool) else answer.ok
    return OK if well else STOPPED


def run_task() -> None:
    """Run one command as a task of a job, for schedulers that look at errors and not at exit codes.

    Databricks calls a wheel's entry point itself: what it returns is dropped, and leaving the process is a
    failure whatever the code.

    Raises:
        StoppedError: the command did not end well; it has said why.

    """
    try:
        code = main(sys.argv[1:])
    except SystemExit as exc:  # argparse, after it has said what is wrong
        code = exc.code if isinstance(exc.code, int) else USAGE
    if code:
        msg = f"mirrorlib {' '.join(sys.argv[1:2])} has not ended well"
        raise StoppedError(msg, found=f"exit code {code}")


def make_parser() -> argparse.ArgumentParser:
    """Make the parser of all commands."""
    parser = argparse.ArgumentParser(
        prog="mirrorlib",
        description="Apply a landing zone of change files to Delta tables, in order and exactly once.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"mirrorlib {VERSION}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for command in _COMMANDS:
        text = command.help
        said = f"{text[0].upper()}{text[1:]}. {command.more}".strip()
        one = commands.add_parser(command.name, help=text, description=said)
        one.set_defaults(run=command.run, refuse=one.error, json=False, memory="2g", state=None)
        one.add_argument(
            "-v",
            "--verbose",
            action="store_true",
            help="log each table and commit to standard error",
        )
        command.add_to(one)
    return parser
