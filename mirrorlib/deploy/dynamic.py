"""Follow what stands between double braces: what a job knows only while it runs.

In: a rendered job. Out: sentences about what would stay empty, or stop the run.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from mirrorlib.deploy.references import all_tasks, dynamic_references, is_json_list, upstream

if TYPE_CHECKING:
    from mirrorlib.deploy.read import Tree

_KNOWN = re.compile(
    r"job\.(id|name|run_id|repair_count|(start_time|trigger|parameters)\..+)"
    r"|task\.(name|run_id|execution_count|notebook_path)"
    r"|tasks\.[^.]+\.(run_id|result_state|error_code|execution_count|notebook_path|(values|output)\..+)"
    r"|input(\..+)?|workspace\.(id|url)|backfill\..+"
    r"|job_id|run_id|start_date|start_time|task_retry_count|parent_run_id|task_key"  # the older ones
)
_LISTS = re.compile(r"\{\{\s*(job\.parameters|tasks\.[^.{}\s]+\.(values|output))\.[^{}\s]+\s*\}\}")


def dynamic_faults(job: Tree) -> Iterator[str]:
    """Say which references lead nowhere, and which list a loop cannot go through."""
    defaults: dict[str, Any] = {
        one.get("name", ""): one.get("default") for one in job.get("parameters", [])
    }
    before = upstream(job)
    for task in job.get("tasks", []):
        name = str(task.get("task_key"))
        loop = task.get("for_each_task") or {}
        inside = dict.fromkeys(dynamic_references(loop.get("task")))
        own = {**task, "for_each_task": {**loop, "task": None}}
        for reference in dict.fromkeys([*dynamic_references(own), *inside]):
            told = f"{{{{{reference}}}}}"
            yield from (f"{told} {what}" for what in _wrong(reference, name, defaults, before))
            if reference.partition(".")[0] == "input" and reference not in inside:
                yield f"{told} stands outside of a loop, in the task {name}"
        yield from _input_faults(name, loop.get("inputs"), defaults)
    used = {ref.removeprefix("job.parameters.") for ref in dynamic_references(job.get("tasks", []))}
    notebooks = any("notebook_task" in task for task in all_tasks(job))
    for name in defaults:
        if name not in used and not notebooks:
            yield f"no task uses the parameter {name}"


def _wrong(
    reference: str, task: str, parameters: dict[str, Any], before: dict[str, set[str]]
) -> Iterator[str]:
    """Say what is wrong with one reference of a task."""
    first, _, rest = reference.partition(".")
    if _KNOWN.fullmatch(reference) is None:
        yield "is nothing that a job knows"
    elif reference.startswith("job.parameters.") and rest.partition(".")[2] not in parameters:
        yield "names no parameter of the job"
    elif first == "tasks" and (named := rest.partition(".")[0]) not in before:
        yield "names no task of the job"
    elif first == "tasks" and named not in before[task]:
        yield f"names a task that {task} does not wait for"


def _input_faults(name: str, inputs: object, parameters: dict[str, Any]) -> Iterator[str]:
    """Say what is wrong with what a loop goes through, when it is a reference."""
    if not isinstance(inputs, str) or "{{" not in inputs:
        return
    if _LISTS.fullmatch(inputs) is None:
        yield f"the loop {name} cannot go through {inputs}: no parameter, and no value of a task"
    named = re.fullmatch(r"\{\{\s*job\.parameters\.([^{}\s]+)\s*\}\}", inputs)
    if named and not is_json_list(parameters.get(named[1], "[]")):
        yield f"the parameter {named[1]}, which {name} goes through, is no JSON list"
