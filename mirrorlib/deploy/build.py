"""Build the wheel that a bundle's tasks run, by the command that the bundle itself names; or that of a clone.

In: a rendered target, or a folder. Out: the wheel's path. A clone's wheel has a version of its own for each
content, and so has a bundle's that asks for it (`dynamic_version`, or the preset, which development has).
"""

from __future__ import annotations

import shlex
import subprocess
import sys
import tomllib
from typing import TYPE_CHECKING

from mirrorlib.deploy.stamp import stamp
from mirrorlib.errors import BundleError, first_few

if TYPE_CHECKING:
    from pathlib import Path

    from mirrorlib.deploy.read import Tree
    from mirrorlib.deploy.render import Rendered

_DIST = "dist"
_PROJECT = "mirrorlib"
_COMMAND = f"python3 -m pip wheel --quiet --no-deps --wheel-dir {_DIST} ."


def build_wheel(rendered: Rendered) -> Path:
    """Run the build command in the bundle's folder; return the newest wheel there.

    Raises:
        BundleError: there is no such command, it fails, or it leaves no wheel.

    """
    told = _artifact(rendered)
    wheel = _built(rendered.root, told["build"])
    preset = (rendered.tree.get("presets") or {}).get("artifacts_dynamic_version", False)
    return stamp(wheel) if told.get("dynamic_version", preset) else wheel


def require_wheel(wheel: Path) -> Path:
    """Refuse a path that leads to no wheel, before anything is sent.

    Raises:
        BundleError: it does.

    """
    if not wheel.is_file() or wheel.suffix != ".whl":
        msg = "there is no such wheel"
        raise BundleError(msg, found=str(wheel), next_step="Without --wheel one is built.")
    return wheel


def _artifact(rendered: Rendered) -> Tree:
    """Find what says how the wheel is built, in the bundle's own folder."""
    step = "Give the wheel with --wheel PATH."
    told = (rendered.tree.get("artifacts") or {}).items()
    wheels: dict[str, Tree] = {key: one for key, one in told if one and one.get("type") == "whl"}
    if len(wheels) > 1:
        msg = "the bundle builds several wheels, of which one can be sent"
        raise BundleError(msg, found=first_few(wheels), next_step=step)
    for key, one in wheels.items():
        if one.get("path", ".") not in {".", "./"}:
            msg = f"the artifact {key} is built elsewhere than in the bundle's folder"
            raise BundleError(msg, found=str(one["path"]), next_step=step)
        if isinstance(one.get("build"), str):
            return one
    msg = "the bundle names no command that builds a wheel"
    raise BundleError(msg, next_step=step)


def build_clone(folder: Path) -> Path:
    """Build the wheel of the clone that a folder is.

    Raises:
        BundleError: it is none, or the wheel cannot be built.

    """
    file = folder / "pyproject.toml"
    told = tomllib.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
    if told.get("project", {}).get("name") != _PROJECT:
        msg = "there is no clone of mirrorlib here whose wheel could be built"
        step = "Give the wheel with --wheel PATH, or work in a clone."
        raise BundleError(msg, found=str(folder), next_step=step)
    return stamp(_built(folder, _COMMAND))


def _built(folder: Path, command: str) -> Path:
    """Run a command; return the newest wheel."""
    words = shlex.split(command)
    if words[0] in {"python", "python3"}:  # this one has pip; another may not
        words[0] = sys.executable
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False)  # noqa: S603  # what the bundle's owner wrote
    if done.returncode:
        msg = "the wheel cannot be built"
        raise BundleError(msg, found=(done.stderr.strip() or done.stdout.strip())[-300:])
    wheels = sorted((folder / _DIST).glob("*.whl"), key=lambda path: path.stat().st_mtime)
    if not wheels:
        msg = f"the command has left no wheel in {_DIST}"
        raise BundleError(msg, found=command)
    return wheels[-1]
