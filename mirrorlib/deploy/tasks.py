"""Hold tasks to what they run: a notebook's cell of parameters, a wheel's entry points and arguments.

In: a rendered job and the bundle's folder. Out: sentences about what does not fit.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

from mirrorlib.deploy.cells import asks_for, needed_parameters, read_parameters
from mirrorlib.deploy.libraries import brings, project_of, stranger_faults
from mirrorlib.deploy.references import all_tasks, dynamic_references

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from mirrorlib.deploy.read import Tree

_OURS = "mirrorlib"
_RAISES = "mirrorlib-task"
_CLUSTERS = ("job_cluster_key", "existing_cluster_id", "new_cluster")
_KIND = "_task"  # how the names of all kinds end


def task_faults(root: Path, job: Tree, understand: Callable[[Sequence[str]], str]) -> Iterator[str]:
    """Say which tasks cannot run what they name, or would run what is somebody else's."""
    yield from stranger_faults(job)
    for task in all_tasks(job):
        name = task.get("task_key")
        kinds = [key for key in task if key.endswith(_KIND)]
        if len(kinds) != 1:
            yield f"the task {name} has to be of one kind, not of {len(kinds)}"
        if "notebook_task" in task:
            yield from (f"the task {name}: {what}" for what in _notebook_faults(root, job, task))
        if "python_wheel_task" in task:
            yield from (
                f"the task {name}: {what}" for what in _wheel_faults(root, job, task, understand)
            )


def _notebook_faults(root: Path, job: Tree, task: Tree) -> Iterator[str]:
    if "environment_key" in task:
        yield "a notebook task takes no environment_key; on serverless it cannot be handed the wheel"
    told = task["notebook_task"]
    path = root / str(told.get("notebook_path", ""))
    try:
        cell = read_parameters(path)
    except ValueError as exc:
        yield f"{path.name}: {exc}"
        return
    if cell is None:
        yield f"{told.get('notebook_path')} is not there, or is no notebook"
        return
    if asks_for(path, str(project_of(root).get("name"))):
        yield from _wheel_on_cluster(task, str(project_of(root).get("name")))
    yield from _parameter_faults(path, cell, job, told.get("base_parameters", {}))


def _parameter_faults(
    path: Path, cell: Mapping[str, object], job: Tree, base: Mapping[str, str]
) -> Iterator[str]:
    """Say which parameters a notebook lacks, or is not handed."""
    for name in base:
        if name not in cell:
            yield f"{path.name} has no parameter {name} in its cell of parameters"
    handed = {one.get("name") for one in job.get("parameters", [])}
    for name in sorted(handed & set(base)):
        yield f"the job's parameter {name} counts for more than the task's of the same name"
    used = {ref.removeprefix("job.parameters.") for ref in dynamic_references(job.get("tasks", []))}
    for name in sorted(handed - set(cell) - used):
        yield f"{path.name} has no parameter {name}, which the job hands over"
    for name in needed_parameters(path):
        if name not in handed | set(base):
            yield f"{path.name} needs the parameter {name}, which nobody hands over"


def _wheel_faults(
    root: Path, job: Tree, task: Tree, understand: Callable[[Sequence[str]], str]
) -> Iterator[str]:
    if "libraries" in task and "environment_key" in task:
        yield "a task of an environment takes no libraries"
    told = task["python_wheel_task"]
    project = project_of(root)
    if "environment_key" in task:
        environments = {one.get("environment_key"): one for one in job.get("environments", [])}
        chosen = environments.get(task["environment_key"])
        if chosen is not None and not brings(chosen.get("spec"), str(told.get("package_name"))):
            yield f"the environment {task['environment_key']} lacks the wheel in its dependencies"
    else:
        yield from _wheel_on_cluster(task, str(told.get("package_name")))
    if told.get("package_name") != project.get("name"):
        yield f"the wheel is of {project.get('name')}, not of {told.get('package_name')}"
    if told.get("entry_point") not in project.get("scripts", {}):
        yield f"{told.get('entry_point')} is no entry point of [project.scripts]"
        return
    if told.get("package_name") == _OURS and told["entry_point"] != _RAISES:
        yield f"{told['entry_point']} returns an exit code, which Databricks drops: take {_RAISES}, which raises"
    if told.get("named_parameters"):
        yield "it has named_parameters, but a command is words in their order: use parameters"
        return
    defaults = parameters_of(job)
    wrong = understand([filled(str(one), defaults) for one in told.get("parameters", [])])
    if wrong:
        yield f"its parameters are not understood: {wrong}"


def _wheel_on_cluster(task: Tree, package: str) -> Iterator[str]:
    """Say that a task has no cluster, or that its cluster is not handed the wheel."""
    if not any(name in task for name in _CLUSTERS):
        handed = "cannot be handed the wheel" if "notebook_task" in task else "need an environment"
        yield f"it names no cluster, and tasks of its kind on serverless compute {handed}"
    elif not brings(task.get("libraries"), package):
        yield "it runs on a cluster, and lacks the wheel in its libraries"


def parameters_of(job: Tree) -> dict[str, str]:
    """Return what references to a job's parameters stand for when nobody sets them."""
    told = job.get("parameters", [])
    return {f"job.parameters.{one.get('name')}": str(one.get("default", "")) for one in told}


def filled(text: str, values: Mapping[str, str]) -> str:
    """Put values in the place of references between double braces; one that is not known becomes a word."""
    return re.sub(r"\{\{\s*([^{}]*?)\s*\}\}", lambda found: values.get(found[1], "value"), text)
