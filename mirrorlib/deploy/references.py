"""Follow what a job names: tasks, clusters, environments, parameters.

In: a rendered job. Out: sentences about what leads nowhere.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mirrorlib.deploy.read import Tree

_DYNAMIC = re.compile(r"\{\{\s*([^{}]+?)\s*\}\}")
_OUTCOMES = ("true", "false")
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
    yield from (f"two tasks are called {key}" for key in _twice(all_tasks(job), "task_key"))
    for kind, field in (("job_clusters", "job_cluster_key"), ("environments", "environment_key")):
        yield from (f"two {kind} are called {key}" for key in _twice(job.get(kind, []), field))
    clusters = {one.get("job_cluster_key") for one in job.get("job_clusters", [])}
    environments = {one.get("environment_key") for one in job.get("environments", [])}
    for task in all_tasks(job):
        name = task.get("task_key")
        if task.get("job_cluster_key", None) not in {None, *clusters}:
            yield f"the task {name} runs on the job cluster {task['job_cluster_key']}, which is not there"
        if task.get("environment_key", None) not in {None, *environments}:
            yield f"the task {name} runs in the environment {task['environment_key']}, which is not there"
        called = task.get("run_job_task", {}).get("job_id")
        if called is not None and getattr(called, "key", None) not in jobs:
            yield f"the task {name} runs the job {called}, which is not in the bundle"
        yield from _loop_faults(task)
    yield from _order_faults(job)


def _twice(told: Iterable[Tree], field: str) -> list[str]:
    """Name what stands more than once in one field."""
    found = [str(one.get(field)) for one in told]
    return sorted({one for one in found if found.count(one) > 1})


def callees_first(jobs: Mapping[str, Tree]) -> list[str]:
    """Return the jobs' keys, each behind those of the jobs that it runs; there is no circle."""
    return list(TopologicalSorter(_called(jobs)).static_order())


def circle_faults(jobs: Mapping[str, Tree]) -> Iterator[str]:
    """Say which jobs run each other."""
    if circle := _circle(_called(jobs)):
        yield f"jobs run each other in a circle: {circle}"


def _called(jobs: Mapping[str, Tree]) -> dict[str, list[str]]:
    """Return of each job those of the bundle that it runs."""
    calls = {
        key: [
            task["run_job_task"].get("job_id") for task in all_tasks(job) if "run_job_task" in task
        ]
        for key, job in jobs.items()
    }
    return {key: [one.key for one in ids if hasattr(one, "key")] for key, ids in calls.items()}


def _circle(graph: Mapping[str, Iterable[str]]) -> str:
    """Name what stands in a circle, "" when there is none."""
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as exc:
        return " and ".join(dict.fromkeys(exc.args[1]))
    return ""


def _needs(job: Tree) -> dict[str, list[str]]:
    """Return of each task those that it depends on."""
    return {
        str(task.get("task_key")): [
            str(need.get("task_key")) for need in task.get("depends_on", [])
        ]
        for task in job.get("tasks", [])
    }


def upstream(job: Tree) -> dict[str, set[str]]:
    """Return of each task all those that end before it begins."""
    needs = _needs(job)
    result: dict[str, set[str]] = {}
    for key in needs:
        found: set[str] = set()
        waiting = list(needs[key])
        while waiting:
            one = waiting.pop()
            if one not in found:
                found.add(one)
                waiting += needs.get(one, [])
        result[key] = found
    return result


def _order_faults(job: Tree) -> Iterator[str]:
    """Say which tasks wait for what is not there, for each other, or for what never comes."""
    conditions = {task.get("task_key") for task in job.get("tasks", []) if "condition_task" in task}
    needs = _needs(job)
    for task in all_tasks(job):
        name = task.get("task_key")
        for need in task.get("depends_on", []):
            key, outcome = need.get("task_key"), need.get("outcome")
            if key not in needs:
                yield f"the task {name} depends on {key}, which is not there"
            elif outcome is not None and key not in conditions:
                yield f"the task {name} depends on an outcome of {key}, which is no condition"
            elif outcome not in {None, *_OUTCOMES}:
                yield f"the task {name} depends on the outcome {outcome} of {key}: it is true or false"
    if circle := _circle(needs):
        yield f"tasks depend on each other in a circle: {circle}"


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


def is_json_list(text: object) -> bool:
    """Say whether a text is a list in JSON."""
    try:
        return isinstance(text, str) and isinstance(json.loads(text), list)
    except ValueError:
        return False
