"""Run the jobs of a rendered bundle on this machine, task by task, in the form in which they ship.

In: a rendered target and values of job parameters. Out: what became of each task. A notebook task runs in
a kernel that has `dbutils`, with parameters as a job hands them over: as the text of widgets. A script runs in, and a wheel task
calls the entry point of the wheel in, an environment of its own, into which the wheel was built and installed, beside what a
platform brings and what the wheel asks for, as Databricks does: by its name, with `sys.argv`, and what it returns is dropped. Not to be had here: clusters, grants, the
catalog's own rules.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from email import message_from_bytes
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from papermill.exceptions import PapermillExecutionError

from bundle import Rendered, filled, parameters_of
from papers import Reader

_SOURCE = (
    "LICENSE", "README.md", "bundles", "databricks.yml", "examples", "mirrorlib", "notebooks", "pyproject.toml", "tools",
)  # fmt: skip
# What a runtime has of its own, with all that each asks for: Spark, Delta, a client of Spark Connect, the plots.
_PLATFORM = (
    "delta-spark", "googleapis-common-protos", "grpcio", "grpcio-status", "jinja2", "markupsafe", "pandas", "pyspark", "zstandard",
)  # fmt: skip
_CALL = """
import importlib.metadata, sys
package, name, *sys.argv[1:] = sys.argv[1:]
(point,) = importlib.metadata.distribution(package).entry_points.select(name=name)
point.load()()
"""
_DBUTILS = """
from types import SimpleNamespace as _Names
class _Widgets:
    def __init__(self, job): self.job, self.made = job, {{}}
    def text(self, name, default): self.made[name] = self.job.get(name, default)
    def get(self, name): return self.made[name]
dbutils = _Names(widgets=_Widgets({parameters!r}), notebook=_Names(exit=print))
"""


@dataclass(frozen=True, slots=True)
class TaskRun:
    """What became of one task, or of one round of a loop."""

    task: str
    state: str  # succeeded, failed or excluded
    said: str = ""


@dataclass(slots=True)
class Environment:
    """A clean environment with the built wheel, what it asks for, and what a platform brings: none of its extras."""

    python: Path
    wheel: Path
    variables: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def make(cls, root: Path, folder: Path) -> Environment:
        """Build the wheel as a deployment does, beside the clone at *root*, and install it."""
        source = folder / "source"
        source.mkdir()
        for name in _SOURCE:
            (source / name).symlink_to(root / name)
        # The tests' environment has what builds it: nothing is downloaded. (For pip, false is on.)
        told = {"PIP_NO_BUILD_ISOLATION": "false", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
        words = [sys.executable, str(source / "tools" / "wheel.py")]
        said = subprocess.check_output(words, env={**os.environ, **told}, text=True)
        wheel = Path(said.strip())
        home = folder / "environment"
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(home)], check=True)
        python = home / "bin" / "python"
        subprocess.run(
            [
                sys.executable,
                "-m",
                "pip",
                "--python",
                str(python),
                "install",
                "--quiet",
                "--no-deps",
                "--no-index",
                str(wheel),
            ],
            check=True,
        )
        (site,) = (home / "lib").glob("python*/site-packages")
        link_distributions([*_PLATFORM, *needed_by(wheel)], site)
        return cls(python, wheel)

    def where(self, module: str) -> str:
        """Tell where the environment finds a module."""
        program = f"import {module}; print({module}.__file__)"
        done = subprocess.run(
            [str(self.python), "-I", "-c", program], capture_output=True, text=True, check=True
        )
        return done.stdout.strip()

    def call(self, package: str, entry_point: str, parameters: list[str]) -> tuple[bool, str]:
        """Call an entry point; say whether it came back, and what it said."""
        return self.python_runs("-c", _CALL, package, entry_point, *parameters)

    def python_runs(self, *words: str) -> tuple[bool, str]:
        """Run Python; say whether it ended well, and what it said."""
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        done = subprocess.run(
            [str(self.python), "-I", *words],
            capture_output=True,
            text=True,
            env={**environment, **self.variables},
            check=False,
        )
        return done.returncode == 0, done.stdout + done.stderr


def needed_by(wheel: Path) -> list[str]:
    """Name what a wheel asks for, its extras left out."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (one for one in archive.namelist() if one.endswith(".dist-info/METADATA"))
        told = message_from_bytes(archive.read(name))
    return _required(told.get_all("Requires-Dist", []))


def _required(told: Iterable[str]) -> list[str]:
    found = [Requirement(one) for one in told]
    return [one.name for one in found if one.marker is None or one.marker.evaluate({"extra": ""})]


def link_distributions(names: Iterable[str], site: Path) -> None:
    """Put distributions of the tests' own environment, and all that they ask for, into another one."""
    waiting, known = list(names), set()
    while waiting:
        if (name := canonicalize_name(waiting.pop())) in known:
            continue
        known.add(name)
        one = distribution(name)
        waiting += _required(one.requires or [])
        for top in {Path(file).parts[0] for file in one.files or []} - {"..", "__pycache__"}:
            if not (site / top).exists():
                (site / top).symlink_to(str(one.locate_file(top)))


@dataclass(slots=True)
class JobRunner:
    """Runs jobs: notebooks with *reader* and the session that *spark* makes there, wheels in *environment*."""

    rendered: Rendered
    reader: Reader
    environment: Environment
    spark: str

    def run(self, key: str, **parameters: str) -> list[TaskRun]:
        """Run a job as `run now` does, with other values of its parameters."""
        job = self.rendered.jobs[key]
        known = {one["name"]: str(one["default"]) for one in job["parameters"]}
        assert set(parameters) <= set(known)
        values = {
            **parameters_of(job),
            **{f"job.parameters.{name}": value for name, value in parameters.items()},
        }
        handed = {**known, **parameters}
        outcomes: dict[str, str] = {}
        done: list[TaskRun] = []
        for task in job["tasks"]:  # each behind what it depends on, which the checker sees to
            needs = task.get("depends_on", [])
            if any(
                outcomes[need["task_key"]] != need.get("outcome", "succeeded") for need in needs
            ):
                outcomes[task["task_key"]] = "excluded"
                done.append(TaskRun(task["task_key"], "excluded"))
                continue
            runs = list(self._rounds(task, values, handed))
            done += runs
            states = {run.state for run in runs}
            outcomes[task["task_key"]] = "failed" if "failed" in states else runs[-1].state
        return done

    def _rounds(self, task: dict[str, Any], values: dict[str, str], handed: dict[str, str]) -> Any:
        loop = task.get("for_each_task")
        if loop is None:
            yield self._run(task, values, handed)
            return
        for place, one in enumerate(json.loads(filled(loop["inputs"], values))):
            run = self._run(loop["task"], {**values, "input": one}, handed)
            yield TaskRun(f"{run.task}[{place}]", run.state, run.said)

    def _run(self, task: dict[str, Any], values: dict[str, str], handed: dict[str, str]) -> TaskRun:
        if "condition_task" in task:
            told = task["condition_task"]
            assert "EQUAL_TO" == told["op"]
            same = filled(told["left"], values) == filled(told["right"], values)
            return TaskRun(task["task_key"], str(same).lower())
        if "notebook_task" in task:
            return self._run_notebook(task, values, handed)
        told = task.get("python_wheel_task") or task["spark_python_task"]
        parameters = [filled(one, values) for one in told["parameters"]]
        if "python_file" in told:
            script = self.rendered.root / "bundles" / told["python_file"]
            well, said = self.environment.python_runs(str(script), *parameters)
        else:
            well, said = self.environment.call(
                told["package_name"], told["entry_point"], parameters
            )
        return TaskRun(task["task_key"], "succeeded" if well else "failed", said)

    def _run_notebook(
        self, task: dict[str, Any], values: dict[str, str], handed: dict[str, str]
    ) -> TaskRun:
        told = task["notebook_task"]
        base = {
            name: filled(value, values) for name, value in told.get("base_parameters", {}).items()
        }
        name = Path(told["notebook_path"]).stem
        self.reader.before = self.spark + _DBUTILS.format(parameters={**base, **handed})
        try:
            paper = self.reader.run(name)
        except PapermillExecutionError as exc:
            return TaskRun(task["task_key"], "failed", f"{exc.ename}: {exc.evalue}")
        finally:
            self.reader.before = ""
        return TaskRun(task["task_key"], "succeeded", paper.printed)
