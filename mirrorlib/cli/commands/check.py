"""`mirrorlib check`: review a landing zone; needs no Spark, and writes nothing."""

from __future__ import annotations

import argparse

from mirrorlib.cli.arguments import JSON, PLACE
from mirrorlib.cli.command import Command, call
from mirrorlib.platform.show import show_progress
from mirrorlib.tabular import Report


def _check(arguments: argparse.Namespace) -> Report:
    from mirrorlib.landing.check.zone import check_zone

    with show_progress(quiet=arguments.json) as observe:
        return call(check_zone, arguments, observe=observe)


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
