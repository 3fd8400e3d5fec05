"""Build the wheel of a clone, with a version for each content: no environment takes an older build for it.

In: a clone's folder. Out: the wheel under its version and a number of its content: equal content, equal bytes. pip
leaves an installed version alone when a wheel has the same one, whatever is in it. The Databricks CLI does
this for `dynamic_version: true`, with a time behind a `+`, which not every platform lets into a file's name.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path

from mirrorlib.errors import ParameterError

_DIST = "dist"
_STAMPED = f"{_DIST}/stamped"  # where no pattern for built wheels, dist/*.whl, finds it
_TOLD = "SETUPTOOLS_SCM_PRETEND_VERSION"  # where a build takes its version from, and else from git


def build_clone(folder: Path) -> Path:
    """Build the wheel of the clone that a folder is: once to learn its version and content, then as what it is."""
    file = folder / "pyproject.toml"
    project = tomllib.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
    if project.get("project", {}).get("name") != "mirrorlib-delta":
        msg = "there is no clone of mirrorlib here whose wheel could be built"
        step = "Give the wheel with --wheel PATH, or work in a clone."
        raise ParameterError(msg, found=str(folder), next_step=step)
    version = _own_version(_built(folder, _DIST))
    shutil.rmtree(folder / _STAMPED, ignore_errors=True)
    return _built(folder, _STAMPED, {_TOLD: version})


def _built(folder: Path, place: str, told: Mapping[str, str] | None = None) -> Path:
    """Have pip build the wheel; two builds of equal content are equal bytes."""
    words = ["-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", place, "."]
    done = subprocess.run(  # noqa: S603  # our own words
        [sys.executable, *words],
        cwd=folder,
        env={**os.environ, **(told or {})},
        capture_output=True,
        text=True,
        check=False,
    )
    wheels = sorted((folder / place).glob("*.whl"), key=lambda path: path.stat().st_mtime)
    if done.returncode or not wheels:
        msg = "the wheel cannot be built"
        said = (done.stderr.strip() or done.stdout.strip())[-300:]
        step = "Build it by hand, and give it with --wheel PATH."
        raise ParameterError(msg, found=said, next_step=step)
    return wheels[-1]


def _own_version(wheel: Path) -> str:
    """Give a wheel's version with a number of its content, a post-release, before that of a development (PEP 440)."""
    release, dot, development = wheel.stem.split("-")[1].partition(".dev")
    number = int(hashlib.sha256(wheel.read_bytes()).hexdigest(), 16) % 10**9
    return f"{release}.post{number}{dot}{development}"
