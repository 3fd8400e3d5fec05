"""Build the wheel of this clone, with a version for each content: no environment takes an older build for it.

`make wheel`: the wheel in `dist/stamped/`, alone, under its version and a number of its content: equal content, equal
bytes. pip leaves an installed version alone when a wheel has the same one, whatever is in it. The Databricks CLI does
this for `dynamic_version: true`, with a time behind a `+`, which not every platform lets into a file's name.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).parents[1]
DIST = ROOT / "dist" / "stamped"  # where no pattern for built wheels, dist/*.whl, finds it
_TOLD = "SETUPTOOLS_SCM_PRETEND_VERSION"  # where a build takes its version from, and else from git


def build(place: str | Path, told: Mapping[str, str] | None = None) -> Path:
    """Have pip build the wheel into a folder without one; end with what it ends with, as it has said why."""
    words = ["-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(place), "."]
    environment = {**os.environ, **(told or {})}
    done = subprocess.run([sys.executable, *words], cwd=ROOT, env=environment, check=False)
    if done.returncode:
        sys.exit(done.returncode)
    (wheel,) = Path(place).glob("*.whl")
    return wheel


def own_version(wheel: Path) -> str:
    """Give a wheel's version with a number of its content, a post-release, before that of a development (PEP 440)."""
    release, dot, development = wheel.stem.split("-")[1].partition(".dev")
    number = int(hashlib.sha256(wheel.read_bytes()).hexdigest(), 16) % 10**9
    return f"{release}.post{number}{dot}{development}"


def main() -> None:
    """Build once to learn version and content, then as what it is; say where that lies."""
    with TemporaryDirectory() as folder:
        version = own_version(build(folder))
    for older in DIST.glob("*.whl"):
        older.unlink()
    print(build(DIST, {_TOLD: version}))


if __name__ == "__main__":
    main()
