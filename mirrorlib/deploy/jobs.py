"""Create a target's jobs in a workspace, or set those that are there anew.

In: a rendered target, and where its notebooks and its wheel lie. Out: `Sent`s. A job is found by its name;
one that runs another is sent behind it, and is told its id.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mirrorlib.deploy.references import callees_first
from mirrorlib.deploy.refusal import name_refusals
from mirrorlib.deploy.render import JobId
from mirrorlib.deploy.report import Sent
from mirrorlib.deploy.rights import OURS, permit
from mirrorlib.errors import BundleError

if TYPE_CHECKING:
    from databricks.sdk import WorkspaceClient

    from mirrorlib.deploy.read import Tree
    from mirrorlib.deploy.render import Rendered


@dataclass(frozen=True, slots=True, kw_only=True)
class Places:
    """Where in the workspace notebooks lie, by their paths here, and the wheel."""

    notebooks: Mapping[str, str]
    wheel: str


def send_jobs(client: WorkspaceClient, rendered: Rendered, places: Places) -> Iterator[Sent]:
    """Send every job.

    Raises:
        BundleError: the workspace refuses one, naming it.

    """
    ids: dict[str, int] = {}
    for key in callees_first(rendered.jobs):
        with name_refusals(f"the job {key}"):
            job = _placed(rendered.jobs[key], places, ids)
            job.setdefault("run_as", rendered.tree.get("run_as"))
            ids[key], done = _send_job(client, job)
            permit(client, str(ids[key]), rendered, job.get("permissions", []))
        yield Sent(kind="job", name=key, place=str(ids[key]), done=done)


def _placed(value: Any, places: Places, ids: Mapping[str, int], key: str = "") -> Any:  # noqa: ANN401  # a tree of YAML
    """Say the places in the workspace for the paths of this machine, and ids for jobs that are there now."""
    if isinstance(value, dict):
        return {name: _placed(one, places, ids, name) for name, one in value.items()}
    if isinstance(value, list):
        return [_placed(one, places, ids, key) for one in value]
    if isinstance(value, JobId):
        return ids[value.key]
    if key == "notebook_path":
        return places.notebooks[value]
    is_wheel = key in {"whl", "dependencies"} and isinstance(value, str) and value.endswith(".whl")
    return places.wheel if is_wheel else value


def _send_job(client: WorkspaceClient, job: Tree) -> tuple[int, str]:
    """Create a job, or set it anew when there is one of its name; return its id, and what was done."""
    from databricks.sdk.service.jobs import JobSettings

    fit = {k: v for k, v in job.items() if k not in OURS["jobs"] and v is not None}
    settings = JobSettings.from_dict(fit)
    known = [found.job_id for found in client.jobs.list(name=settings.name) if found.job_id]
    if len(known) > 1:
        msg = f"the workspace has {len(known)} jobs of one name"
        step = "Remove all but one."
        raise BundleError(msg, found=settings.name, next_step=step)
    if known:
        client.jobs.reset(known[0], settings)
        return known[0], "updated"
    fields = {field.name: getattr(settings, field.name) for field in dataclasses.fields(settings)}
    made = client.jobs.create(**{name: one for name, one in fields.items() if one is not None})
    return made.job_id or 0, "created"
