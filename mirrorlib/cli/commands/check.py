"""`mirrorlib check`: review a landing zone; needs no Spark, and writes nothing."""

from __future__ import annotations

import argparse

from mirrorlib.cli.arguments import JSON, PLACE
from mirrorlib.cli.command import Command, call
from mirrorlib.events import Observer
from mirrorlib.landing.check.report import CheckObserver, CheckStep
from mirrorlib.platform.show import show_progress
from mirrorlib.tabular import Report


def _check(arguments: argparse.Namespace) -> Report:
    from mirrorlib.landing.check.zone import check_zone

    with show_progress(quiet=arguments.json) as observe:
        return call(check_zone, arguments, observe=check_observer(observe))


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
    more="Nothing is written, and no Spark is started. Exit codes: 0 nothing but notes (and warnings), 1 errors "
    "(with --strict warnings too), 2 wrong usage. Every rule: docs/check.md.",
    arguments={
        **PLACE,
        "--strict": "count warnings as errors",
        "--deep": "decode every page of every file, not only footers, markers and keys",
        **JSON,
    },
    run=_check,
)
