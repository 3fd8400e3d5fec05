"""Tell the wheel that a bundle builds from other files that its tasks need: it alone is uploaded.

In: a rendered job, or one text of its libraries and dependencies. Out: what each is. A path that begins with / or
with a scheme is remote, as to the Databricks CLI, and stays as it is.
"""

from __future__ import annotations

import posixpath
import re
import tomllib
from collections.abc import Iterator
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

from mirrorlib.deploy.read import LOCAL
from mirrorlib.deploy.references import all_tasks, texts_of
from mirrorlib.errors import BundleError

if TYPE_CHECKING:
    from pathlib import Path

    from mirrorlib.deploy.read import Tree
    from mirrorlib.deploy.render import Rendered

_OURS = "mirrorlib"
_BUILT = "dist"
_FILES = {"whl", "jar", "egg", "requirements", "python_file"}  # keys whose values are paths
# Options of pip, before a path.
_OPTION = re.compile(r"\s*(-[rce]|--(requirement|constraint|editable))[\s=]+")
# The name with extras, versions and markers; behind an @ there is an address, whose package is what it says.
_STRANGER = re.compile(r"\s*mirrorlib\s*(\[[^]]*\]\s*)?([=<>!~;,(].*)?", re.IGNORECASE)


def brings(told: object, package: str) -> bool:
    """Say whether libraries or dependencies bring a package: as a wheel, or by its name."""
    named = re.compile(rf"{re.escape(package)}(?![\w.-])")
    return any(_is_wheel_of(text, package) or named.match(text) for text in texts_of(told))


def is_local_wheel(text: object) -> bool:
    """Say whether a library is a wheel on this machine."""
    if not isinstance(text, str) or text.startswith(("/", "-")):
        return False
    return text.endswith(".whl") and ":/" not in text


def require_no_other_file(rendered: Rendered) -> None:
    """Refuse jobs with a file of this machine that is not the wheel that is sent.

    Raises:
        BundleError: one has.

    """
    package = str(project_of(rendered.root).get("name", _OURS))
    for key, job in rendered.jobs.items():
        for text in _local_files([job.get("tasks"), job.get("environments")]):
            if not (is_local_wheel(text) and _is_wheel_of(text, package)):
                msg = (
                    f"the job {key} needs a file beside the wheel of {package}, which alone is sent"
                )
                step = (
                    f"Put it into a volume and name it there, or deploy with the Databricks CLI, which uploads it. "
                    f"The bundle's own wheel is {_BUILT}/*.whl."
                )
                raise BundleError(msg, found=text, next_step=step)


def _local_files(value: object, key: str = "") -> Iterator[str]:
    """Name the files of this machine that are in a tree, but its notebooks, which are sent."""
    if isinstance(value, dict):
        for name, one in value.items():
            yield from _local_files(one, str(name))
    elif isinstance(value, list):
        for one in value:
            yield from _local_files(one, key)
    elif isinstance(value, str) and (key in _FILES or key == "dependencies"):
        option = _OPTION.match(value)
        path = value[option.end() :] if option else value
        is_file = key in _FILES or option is not None or path.startswith(LOCAL)
        if (is_file or is_local_wheel(path)) and not path.startswith("/") and ":/" not in path:
            yield value


def stranger_faults(job: Tree) -> Iterator[str]:
    """Say where mirrorlib is asked for by its name: the package index has another one."""
    step = "on PyPI that is somebody else's package; hand over the bundle's wheel, dist/*.whl"
    for task in all_tasks(job):
        for library in task.get("libraries", []):
            told = library.get("pypi", {})
            if "repo" not in told and _STRANGER.fullmatch(str(told.get("package", ""))):
                yield f"the task {task.get('task_key')} asks for {told['package']}: {step}"
    for environment in job.get("environments", []):
        for one in (environment.get("spec") or {}).get("dependencies", []):
            if _STRANGER.fullmatch(str(one)):
                yield f"the environment {environment.get('environment_key')} asks for {one}: {step}"


def project_of(root: Path) -> dict[str, Any]:
    """Return what the bundle's folder says of the project whose wheel it builds."""
    path = root / "pyproject.toml"
    if not path.is_file():
        return {}
    found: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8")).get("project", {})
    return found


def _is_wheel_of(text: str, package: str) -> bool:
    """Say whether a wheel is a package's, by its name; where wheels are built, a pattern may stand for it."""
    if not text.endswith(".whl"):
        return False
    folder, name = posixpath.split(text)
    stem = name.removesuffix(".whl").partition("-")[0].lower()
    wanted = re.sub(r"[-_.]+", "_", package).lower()
    return stem == wanted or (posixpath.basename(folder) == _BUILT and fnmatchcase(wanted, stem))
