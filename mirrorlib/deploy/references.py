"""Follow what a job names: tasks, clusters, environments, parameters.

In: a rendered job. Out: sentences about what leads nowhere.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mirrorlib.deploy.read import Tree

_DYNAMIC = re.compile(r"\{\{\s*([^{}]+?)\s*\}\}")
_RETRIES = ("max_retries", "min_retry_interval_millis", "retry_on_timeout")


def all_tasks(job: Tree) -> Iterator[Tree]:
    """Return a job's tasks, and those inside of `for_each_task`."""
    for task in job.get("tasks", []):
        yield task
        inner = task.get("for_each_task", {}).get("task")
        if isinstance(inner, dict):
            yield inner


def texts_of(value: object) -> Iterator[str]:
    """Return every text in a tree."""
    if isinstance(value, Mapping):
        for one in value.values():
            yield from texts_of(one)
    elif isinstance(value, list):
        for one in value:
            yield from texts_of(one)
    elif isinstance(value, str):
        yield value


def dynamic_references(value: object) -> Iterator[str]:
    """Return what stands between double braces anywhere in a tree."""
    for text in texts_of(value):
        yield from _DYNAMIC.findall(text)


def reference_faults(job: Tree, jobs: Mapping[str, Tree]) -> Iterator[str]:
    """Say what a job names that is not there."""
    keys = [str(task.get("task_key")) for task in all_tasks(job)]
    yield from (
        f"two tasks are called {key}" for key in sorted({k for k in keys if keys.count(k) > 1})
    )
    clusters = {one.get("job_cluster_key") for one in job.get("job_clusters", [])}
    environments = {one.get("environment_key") for one in job.get("environments", [])}
    outer = {task.get("task_key") for task in job.get("tasks", [])}
    for task in all_tasks(job):
        name = task.get("task_key")
        for need in task.get("depends_on", []):
            if need.get("task_key") not in outer:
                yield f"the task {name} depends on {need.get('task_key')}, which is not there"
        if task.get("job_cluster_key", None) not in {None, *clusters}:
            yield f"the task {name} runs on the job cluster {task['job_cluster_key']}, which is not there"
        if task.get("environment_key", None) not in {None, *environments}:
            yield f"the task {name} runs in the environment {task['environment_key']}, which is not there"
        called = task.get("run_job_task", {}).get("job_id")
        if called is not None and called not in {f"id-of-jobs-{key}" for key in jobs}:
            yield f"the task {name} runs the job {called}, which is not in the bundle"
        yield from _loop_faults(task)
    yield from _dynamic_faults(job)


def _loop_faults(task: Tree) -> Iterator[str]:
    """Say what is wrong with a `for_each_task`: the workspace takes it, and fails at the run or the deploy."""
    loop = task.get("for_each_task")
    if not isinstance(loop, dict):
        return
    name = task.get("task_key")
    for retry in _RETRIES:
        if retry in task:
            yield f"the task {name} has {retry}, which belongs to the task inside of its for_each_task"
    inputs = loop.get("inputs")
    if isinstance(inputs, str) and _DYNAMIC.fullmatch(inputs) is None and not is_json_list(inputs):
        yield f"the inputs of {name} are neither a JSON list nor one reference: {inputs}"


def _dynamic_faults(job: Tree) -> Iterator[str]:
    """Say which references between double braces lead nowhere, and which list a loop cannot go through."""
    parameters: dict[str, Any] = {
        one.get("name", ""): one.get("default") for one in job.get("parameters", [])
    }
    tasks = {task.get("task_key") for task in all_tasks(job)}
    for reference in dict.fromkeys(dynamic_references(job.get("tasks", []))):
        parts = reference.split(".")
        if parts[:2] == ["job", "parameters"] and ".".join(parts[2:]) not in parameters:
            yield f"{{{{{reference}}}}} names no parameter of the job"
        if parts[0] == "tasks" and parts[1:2] and parts[1] not in tasks:
            yield f"{{{{{reference}}}}} names no task of the job"
    for task in job.get("tasks", []):
        inputs = str(task.get("for_each_task", {}).get("inputs", ""))
        named = re.fullmatch(r"\{\{\s*job\.parameters\.([^{}\s]+)\s*\}\}", inputs)
        if named and not is_json_list(parameters.get(named[1], "[]")):
            yield f"the parameter {named[1]}, which {task.get('task_key')} goes through, is no JSON list"
    used = {ref.removeprefix("job.parameters.") for ref in dynamic_references(job.get("tasks", []))}
    notebooks = any("notebook_task" in task for task in all_tasks(job))
    for name in parameters:
        if name not in used and not notebooks:
            yield f"no task uses the parameter {name}"


def is_json_list(text: object) -> bool:
    """Say whether a text is a list in JSON."""
    try:
        return isinstance(text, str) and isinstance(json.loads(text), list)
    except ValueError:
        return False
