"""Build the wheel that a bundle's tasks run, by the command that the bundle itself names.

In: a rendered target. Out: the wheel's path.
"""

from __future__ import annotations

import shlex
import subprocess
import sys
from typing import TYPE_CHECKING

from mirrorlib.errors import BundleError

if TYPE_CHECKING:
    from pathlib import Path

    from mirrorlib.deploy.render import Rendered

_DIST = "dist"


def build_wheel(rendered: Rendered) -> Path:
    """Run the build command in the bundle's folder; return the one wheel that it has written.

    Raises:
        BundleError: there is no such command, it fails, or it leaves no wheel.

    """
    told = rendered.tree.get("artifacts", {})
    command = next((one["build"] for one in told.values() if one.get("type") == "whl"), None)
    if command is None:
        msg = "the bundle names no command that builds a wheel"
        raise BundleError(msg, next_step="Give the wheel with --wheel PATH.")
    words = shlex.split(command)
    if words[0] in {"python", "python3"}:  # this one has pip; another may not
        words[0] = sys.executable
    done = subprocess.run(words, cwd=rendered.root, capture_output=True, text=True, check=False)  # noqa: S603  # what the bundle's owner wrote
    if done.returncode:
        msg = "the wheel cannot be built"
        raise BundleError(msg, found=(done.stderr.strip() or done.stdout.strip())[-300:])
    wheels = sorted((rendered.root / _DIST).glob("*.whl"), key=lambda path: path.stat().st_mtime)
    if not wheels:
        msg = f"the command has left no wheel in {_DIST}"
        raise BundleError(msg, found=command)
    return wheels[-1]
