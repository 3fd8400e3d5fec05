"""`mirrorlib check`: review a landing zone as a strict reader; needs no Spark and writes nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirrorlib.cli.arguments import add_json, add_place
from mirrorlib.cli.command import Command
from mirrorlib.platform.show import show_progress

if TYPE_CHECKING:
    import argparse

    from mirrorlib.events import Observer
    from mirrorlib.landing.check.report import CheckObserver, CheckStep
    from mirrorlib.tabular import Report


def _add_arguments(command: argparse.ArgumentParser) -> None:
    add_place(command)
    command.add_argument("--strict", action="store_true", help="count warnings as errors")
    command.add_argument(
        "--deep",
        action="store_true",
        help="decode every page of every file, not only footers, markers and keys",
    )
    add_json(command)


def _run(arguments: argparse.Namespace) -> Report:
    """Review."""
    from mirrorlib.landing.check.zone import check_zone

    with show_progress(quiet=arguments.json) as observe:
        return check_zone(
            arguments.landing_zone,
            tables=arguments.tables,
            strict=arguments.strict,
            deep=arguments.deep,
            observe=check_observer(observe),
        )


def check_observer(observe: Observer) -> CheckObserver:
    """Tell a review's steps as a run's: one bar a table, one step a file."""
    from mirrorlib.events import Event

    def tell(step: CheckStep) -> None:
        if step.checked:
            observe(Event(table=step.table, step="done", when="after", files=1))
        else:
            observe(Event(table=step.table, step="read", when="before"))
            observe(Event(table=step.table, step="read", when="after", files=step.files))

    return tell


CHECK = Command(
    name="check",
    help="review a landing zone as a strict reader",
    more="Nothing is written, and no Spark is started. Exit codes: 0 nothing but notes (and warnings), 1 errors "
    "(with --strict warnings too), 2 wrong usage. Every rule: docs/check.md.",
    add_arguments=_add_arguments,
    run=_run,
)
