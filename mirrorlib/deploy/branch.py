"""Refuse a deployment from another git branch than the one that a target names.

In: a rendered target. Out: nothing, or `BundleError`. Where git names no branch, in a checkout of a single
commit or outside of a repository, nothing is known and nothing refused, as with the Databricks CLI.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirrorlib.errors import BundleError

if TYPE_CHECKING:
    from pathlib import Path

    from mirrorlib.deploy.render import Rendered

_HEAD = "ref: refs/heads/"
_ELSEWHERE = "gitdir: "  # what a worktree's .git says in place of being a folder


def require_branch(rendered: Rendered) -> None:
    """Refuse a branch that is not the target's.

    Raises:
        BundleError: the clone is on another one.

    """
    wanted = ((rendered.tree.get("bundle") or {}).get("git") or {}).get("branch")
    actual = branch_of(rendered.root)
    if wanted and actual and wanted != actual:
        msg = f"the target {rendered.target} is deployed from the branch {wanted}"
        step = f"Deploy from {wanted}, or from here all the same with --force."
        raise BundleError(msg, found=actual, next_step=step)


def branch_of(folder: Path) -> str | None:
    """Return the branch that the clone around a folder is on."""
    for parent in (folder, *folder.parents):
        place = parent / ".git"
        if place.is_file():
            place = parent / place.read_text().strip().removeprefix(_ELSEWHERE)
        if (head := place / "HEAD").is_file():
            told = head.read_text().strip()
            return told.removeprefix(_HEAD) if told.startswith(_HEAD) else None
    return None
