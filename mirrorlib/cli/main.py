"""The command line: which command is asked for, and the exit code. What each does is in `commands`.

Nothing else is imported before a command is asked for: `--help` is to come at once.
"""

from __future__ import annotations

import argparse
import importlib
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:  # else `typing` is a third of what `--help` takes
    from collections.abc import Sequence

    from mirrorlib.cli.command import Command

OK, STOPPED, USAGE = 0, 1, 2
SIGNALLED = 128  # and the signal's number, as shells say it
CLOSED = SIGNALLED + 13  # SIGPIPE

_EPILOG = """\
examples:
  mirrorlib demo                                   # see it work on real data, nothing prepared
  mirrorlib apply /data/landing /data/tables       # bring every table up to date
  mirrorlib feed /data/tables dbo/orders --after 7 # what has changed since version 7?
  mirrorlib export /data/tables --consumer lake --to delta:/data/copy --mode current
  mirrorlib publish /data/landing dbo/orders rows.parquet --keys id

exit codes: 0 all is well, 1 a table is blocked or failed (the others are applied), 2 wrong usage,
130 or 143 Ctrl-C or a kill cut the run short; the next one goes on (--watch ends so too, with 0 or 1)
"""


# By name: the module of `commands` that has it, and what `--help` says.
_COMMANDS = {
    "apply": ("apply", "bring every table up to date"),
    "plan": ("apply", "say what apply would do, and write nothing"),
    "status": ("operate", "show how every table of a target stands"),
    "serve": ("operate", "show how a target stands as a live page, to browsers on this machine"),
    "ledger": ("operate", "show what was applied, batch by batch"),
    "where-is": ("operate", "tell the life of a change file, or every change of a key"),
    "feed": ("feed", "print what changed in a table"),
    "enable-feed": ("feed", "switch the change feed of tables on"),
    "export": ("export", "deliver what changed to a consumer"),
    "consumers": ("export", "show who is delivered to, and how far each has come"),
    "vacuum": ("export", "remove files that nobody needs any more"),
    "optimize": ("export", "put the rows of many small files into few, so that batches stay fast"),
    "lineage": ("operate", "show where tables come from and go to, with the keys on each way"),
    "verify": ("operate", "compare tables with what their landing files come to"),
    "check": ("landing", "review a landing zone as a strict reader"),
    "reset": ("apply", "start one table over"),
    "rebuild": ("apply", "compute one table anew, and change what differs"),
    "publish": ("landing", "put the rows of a file into a landing zone"),
    "fabric-items": ("platforms", "write notebooks, wheel and schedule as Microsoft Fabric items"),
    "demo": ("platforms", "publish and apply real data, and show what happened"),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; return its exit code."""
    words = sys.argv[1:] if argv is None else argv
    # A name may be no text, or of letters that a terminal has not.
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="backslashreplace")
    if [*words[:1]] == ["--version"]:  # which takes longer to find than all the rest
        from mirrorlib.version import VERSION

        sys.stdout.write(f"mirrorlib {VERSION}\n")
        return OK
    arguments = make_parser(words).parse_args(words)
    from mirrorlib.cli.run import run_one

    return run_one(arguments)


def run_task() -> None:
    """Run one command as a task of a job, for schedulers that look at errors and not at exit codes.

    Databricks calls a wheel's entry point itself: what it returns is dropped, and leaving the process is a
    failure whatever the code.

    Raises:
        StoppedError: the command did not end well; it has said why.

    """
    from mirrorlib.errors import StoppedError

    try:
        code = main(sys.argv[1:])
    except SystemExit as exc:  # argparse, after it has said what is wrong
        code = exc.code if isinstance(exc.code, int) else USAGE
    if code:
        msg = f"mirrorlib {' '.join(sys.argv[1:2])} has not ended well"
        raise StoppedError(msg, found=f"exit code {code}")


def make_parser(words: Sequence[str] | None = None) -> argparse.ArgumentParser:
    """Make the parser of all commands; of those that are not among *words*, it knows no arguments."""
    parser = argparse.ArgumentParser(
        prog="mirrorlib",
        description="Apply a landing zone of change files to Delta tables, in order and exactly once.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="store_true", help="show the version number and exit")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for name, (module, text) in _COMMANDS.items():
        one = commands.add_parser(name, help=text)
        if words is None or name in words:
            found = importlib.import_module(f"mirrorlib.cli.commands.{module}")
            _fill(one, text, getattr(found, name.upper().replace("-", "_")))
    return parser


def _fill(parser: argparse.ArgumentParser, text: str, command: Command) -> None:
    parser.description = f"{text[0].upper()}{text[1:]}. {command.more}".strip()
    parser.set_defaults(run=command.run, refuse=parser.error, json=False, memory="2g", state=None)
    parser.add_argument(
        "-v",
        "--verbose",
        action="count",
        default=0,
        help="log each table and commit to standard error; -vv also what Spark says, which may hold values of rows",
    )
    command.add_to(parser)
