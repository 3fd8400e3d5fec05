"""`mirrorlib status` and `serve`: show how tables stand, in the terminal and as a page; need no Spark."""

from __future__ import annotations

import argparse
import sys
from functools import partial

from mirrorlib.cli.arguments import TARGET
from mirrorlib.cli.command import Command, call
from mirrorlib.tabular import Report


def _status(arguments: argparse.Namespace) -> Report:
    """Show how tables stand, and write the page."""
    if arguments.html is None:
        from mirrorlib.operate.status import read_status

        return call(read_status, arguments)
    from mirrorlib.operate.overview import read_overview

    overview = call(read_overview, arguments)
    overview.save(arguments.html)
    sys.stderr.writelines(f"{failure}\n" for failure in overview.failures)
    return overview.status


def _serve(arguments: argparse.Namespace) -> bool:
    from mirrorlib.operate.page.serve import serve_page

    call(serve_page, arguments, tell=partial(print, "Shown until Ctrl-C:", flush=True))
    return True


STATUS = Command(
    more="States: current, behind (files wait), blocked (a file is missing), failed (something is wrong), "
    "waiting (no metadata or data yet), gone (its folder is no longer there).",
    arguments={
        **TARGET,
        "--html PAGE": "write a page of it to this file, too, with charts, consumers and changes of columns: one file "
        "that needs nothing from elsewhere",
    },
    run=_status,
)
SERVE = Command(
    more="It is the page of `status --html`, for browsers on this machine alone, and it is read anew while somebody "
    "looks at it. Order, filter and place stay as they are.",
    arguments={
        **{name: text for name, text in TARGET.items() if name != "--json"},
        "--port N": "listen on this port of 127.0.0.1 (default: 8765)",
        "--every N": "look at the target again after so many seconds (default: 10)",
    },
    defaults={"port": 8765, "every": 10},
    readers={"port": int},  # 0 is any that is free
    run=_serve,
)
