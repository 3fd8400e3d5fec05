"""What jobs of ours have to say: one run at a time, how long it may take, who runs it and who is told.

In: a rendered job. Out: sentences about what is missing.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from mirrorlib.deploy.quartz import is_quartz

if TYPE_CHECKING:
    from mirrorlib.deploy.read import Tree
    from mirrorlib.deploy.render import Rendered

_TRIGGERS = ("schedule", "trigger", "triggers", "continuous")
_SHORTEST = 60  # seconds between two triggers
_WAITS = ("min_time_between_triggers_seconds", "wait_after_last_change_seconds")


def policy_faults(rendered: Rendered, job: Tree) -> Iterator[str]:
    """Say what a job lacks."""
    if job.get("max_concurrent_runs") != 1:
        yield "max_concurrent_runs has to be 1: a second run would wait for the first table by table"
    yield from _trigger_faults(job)
    if not rendered.production:
        return
    if not job.get("timeout_seconds"):
        yield "a production job needs timeout_seconds"
    if not job.get("email_notifications", {}).get("on_failure") and not job.get(
        "webhook_notifications", {}
    ).get("on_failure"):
        yield "a production job needs somebody who is told of failures"
    if not (job.get("run_as") or rendered.tree.get("run_as")):
        yield "a production job needs run_as"


def _trigger_faults(job: Tree) -> Iterator[str]:
    present = [name for name in _TRIGGERS if name in job]
    if len(present) > 1:
        yield f"a job has one of {' and '.join(present)}, not both"
    quartz = job.get("schedule", {}).get("quartz_cron_expression")
    if quartz is not None and not is_quartz(str(quartz)):
        yield f"{quartz} is no Quartz expression: six or seven fields from seconds on, one of the days a ?"
    trigger = job.get("trigger", {})
    url = trigger.get("file_arrival", {}).get("url")
    if url is not None and not str(url).endswith("/"):
        yield f"the url of file_arrival has to end in /: {url}"
    for kind in ("file_arrival", "table_update"):
        for wait in _WAITS:
            if trigger.get(kind, {}).get(wait, _SHORTEST) < _SHORTEST:
                yield f"{kind}.{wait} has to be {_SHORTEST} or more"
    if "table_update" in trigger and not trigger["table_update"].get("table_names"):
        yield "table_update needs table_names"
