"""Find a target's jobs in a workspace, by their names, and refuse those that another deployment made.

In: a rendered target. Out: ids. Two targets in one workspace whose jobs have the same names would else take
them from each other without a word, and the jobs of one would go on with the tables of the other.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from typing import TYPE_CHECKING

from mirrorlib.errors import BundleError, first_few

if TYPE_CHECKING:
    from databricks.sdk import WorkspaceClient

    from mirrorlib.deploy.read import Tree
    from mirrorlib.deploy.render import Rendered

_TAG = "mirrorlib_bundle"
_ON_EVERY_CLOUD = re.compile(
    r"[A-Za-z0-9][A-Za-z0-9_.-]{0,61}[A-Za-z0-9]"
)  # Google's are the shortest


def find_jobs(client: WorkspaceClient, rendered: Rendered, *, take_over: bool) -> dict[str, int]:
    """Return the ids of the jobs that are there, by their keys in the bundle.

    Args:
        client: of the workspace.
        rendered: the target.
        take_over: take a job that does not say which deployment made it for the target's.

    Raises:
        BundleError: a name is that of several jobs, or of one that is not the target's.

    """
    names = {key: str(job.get("name")) for key, job in rendered.jobs.items()}
    if twice := [name for name, times in Counter(names.values()).items() if times > 1]:
        msg = "jobs of the bundle have one name, by which they could not be found again"
        raise BundleError(msg, found=first_few(twice))
    found = {key: _tags_by_id(client, name) for key, name in names.items()}
    for key, tags in found.items():
        if len(tags) > 1:
            msg = f"the workspace has {len(tags)} jobs of one name"
            raise BundleError(msg, found=names[key], next_step="Remove all but one.")
        for tag in tags.values():
            _require_own(names[key], tag, deployment_of(rendered), take_over=take_over)
    return {key: next(iter(tags)) for key, tags in found.items() if tags}


def tagged(job: Tree, rendered: Rendered) -> Tree:
    """Say in a job which deployment makes it."""
    return {**job, "tags": {**(job.get("tags") or {}), _TAG: deployment_of(rendered)}}


def deployment_of(rendered: Rendered) -> str:
    """Name a deployment: it is known by its root path, as to the Databricks CLI, which no tag can hold."""
    root = str(rendered.facts["workspace"]["root_path"])
    digest = hashlib.sha256(root.encode()).hexdigest()
    name = f"{(rendered.tree.get('bundle') or {}).get('name')}.{rendered.target}.{digest[:12]}"
    return name if _ON_EVERY_CLOUD.fullmatch(name) else digest[:32]


def _tags_by_id(client: WorkspaceClient, name: str) -> dict[int, str | None]:
    """Return which deployment each job of a name says made it; the workspace itself looks past case."""
    return {
        one.job_id: (one.settings.tags or {}).get(_TAG)
        for one in client.jobs.list(name=name)
        if one.job_id and one.settings and one.settings.name == name
    }


def _require_own(name: str, tag: str | None, own: str, *, take_over: bool) -> None:
    """Refuse a job that is, or may be, another deployment's."""
    if tag is None and not take_over:
        msg = "a job of this name is there, and does not say which deployment made it"
        step = "If it is this target's, made by an earlier mirrorlib, take it over with --force."
        raise BundleError(msg, found=name, next_step=step)
    if tag not in {None, own}:
        msg = "a job of this name is there, and another deployment made it"
        step = (
            "Deploy to another workspace, or give this target's jobs names of their own. To take it over all the "
            f"same, remove its tag {_TAG} in the workspace, and deploy with --force."
        )
        raise BundleError(msg, found=f"{name}, of {tag}", next_step=step)
