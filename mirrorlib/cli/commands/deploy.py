"""`mirrorlib deploy`: bring a Databricks workspace to what a bundle says, without the Databricks CLI."""

from __future__ import annotations

import argparse
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from mirrorlib.cli.arguments import add_json, seconds
from mirrorlib.cli.say import say_report

if TYPE_CHECKING:
    from mirrorlib.deploy.render import Rendered, User
    from mirrorlib.deploy.report import DeployReport

HELP = "bring a Databricks workspace to what a bundle says"
MORE = (
    "For whoever has no Databricks CLI: checks the bundle, uploads wheel and notebooks, makes schemas and volumes "
    "that are not there, adds grants, creates or updates the jobs. Host and credentials as databricks-sdk finds them."
)
_HOUR = 3600.0


def add_arguments(command: argparse.ArgumentParser) -> None:
    """Add what `deploy` takes."""
    command.add_argument(
        "bundle",
        metavar="BUNDLE",
        nargs="?",
        default=".",
        help="folder of databricks.yml (default: .)",
    )
    command.add_argument("--target", metavar="NAME", help="default: the bundle's default target")
    command.add_argument(
        "--var",
        type=_assignment,
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="the value of a variable; may be repeated",
    )
    command.add_argument(
        "--check", action="store_true", help="only check the bundle; needs no workspace"
    )
    command.add_argument(
        "--force",
        action="store_true",
        help="deploy from another git branch than the target names, and take over jobs of its names that no "
        "deployment says it made",
    )
    command.add_argument("--wheel", type=Path, metavar="PATH", help="send this one; do not build")
    command.add_argument(
        "--run", dest="job", metavar="JOB", help="then run this job, and wait for its end"
    )
    command.add_argument(
        "--param",
        type=_assignment,
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a parameter of that run; may be repeated",
    )
    command.add_argument(
        "--timeout",
        type=seconds,
        default=_HOUR,
        metavar="SECONDS",
        help="how long to wait for it (default: 3600)",
    )
    add_json(command)


def run(arguments: argparse.Namespace) -> bool:
    """Check, send, and run when asked to."""
    from mirrorlib.deploy.branch import require_branch
    from mirrorlib.deploy.build import build_wheel, require_wheel
    from mirrorlib.deploy.push import connect_workspace, current_user, push, run_job
    from mirrorlib.deploy.render import User  # the one above is for types

    if arguments.param and not arguments.job:
        arguments.refuse("argument --param: means nothing without --run")
    if arguments.check:
        rendered = _rendered(arguments, User())
        say_report(_nothing_sent(rendered), as_json=arguments.json)
        return True
    client = connect_workspace()
    rendered = _rendered(arguments, current_user(client))
    if not arguments.force:
        require_branch(rendered)
    wheel = require_wheel(arguments.wheel) if arguments.wheel else build_wheel(rendered)
    report = push(client, rendered, wheel, take_over=arguments.force)
    if arguments.job:
        patience = timedelta(seconds=arguments.timeout)
        report = run_job(client, report, arguments.job, dict(arguments.param), patience)
    say_report(report, as_json=arguments.json)
    return report.ok


def _rendered(arguments: argparse.Namespace, user: User) -> Rendered:
    """Render the target, and refuse one with faults, or a run that cannot begin."""
    from mirrorlib.deploy.check import require_sound
    from mirrorlib.deploy.push import require_job
    from mirrorlib.deploy.read import read_bundle
    from mirrorlib.deploy.render import render

    bundle = read_bundle(arguments.bundle)
    rendered = render(bundle, arguments.target, variables=dict(arguments.var), user=user)
    require_sound(rendered, arguments.understand)
    if arguments.job:
        require_job(rendered, arguments.job, dict(arguments.param))
    return rendered


def _nothing_sent(rendered: Rendered) -> DeployReport:
    from mirrorlib.deploy.report import DeployReport, Sent  # the one above is for types

    sent = [
        Sent(kind=kind, name=key, place="-", done="sound")
        for kind in rendered.tree.get("resources", {})
        for key in rendered.resources(kind)
    ]
    return DeployReport(target=rendered.target, sent=tuple(sent))


def _assignment(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not (name and equals):
        msg = f"{text!r} is not NAME=VALUE"
        raise argparse.ArgumentTypeError(msg)
    return name, value
