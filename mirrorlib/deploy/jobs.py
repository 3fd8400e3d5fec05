"""Create a target's jobs in a workspace, or set those that are there anew.

In: a rendered target, where its notebooks and its wheel lie, and which of its jobs are there. Out: `Sent`s. A job
that runs another is sent behind it, and is told its id.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mirrorlib.deploy.libraries import is_local_wheel
from mirrorlib.deploy.owner import tagged
from mirrorlib.deploy.references import callees_first
from mirrorlib.deploy.refusal import name_refusals
from mirrorlib.deploy.render import JobId
from mirrorlib.deploy.report import Sent
from mirrorlib.deploy.rights import OURS, permit

if TYPE_CHECKING:
    from databricks.sdk import WorkspaceClient

    from mirrorlib.deploy.read import Tree
    from mirrorlib.deploy.render import Rendered


@dataclass(frozen=True, slots=True, kw_only=True)
class Places:
    """Where in the workspace notebooks lie, by their paths here, and the wheel."""

    notebooks: Mapping[str, str]
    wheel: str


def send_jobs(
    client: WorkspaceClient, rendered: Rendered, places: Places, known: Mapping[str, int]
) -> Iterator[Sent]:
    """Send every job; those whose ids are known are set anew.

    Raises:
        BundleError: the workspace refuses one, naming it.

    """
    ids: dict[str, int] = {}
    for key in callees_first(rendered.jobs):
        with name_refusals(f"the job {key}"):
            job = tagged(_placed(rendered.jobs[key], places, ids), rendered)
            job.setdefault("run_as", rendered.tree.get("run_as"))
            ids[key] = _send_job(client, job, known.get(key))
            permit(client, str(ids[key]), rendered, job.get("permissions", []))
        done = "updated" if key in known else "created"
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
    is_ours = key in {"whl", "dependencies"} and is_local_wheel(value)  # no other one comes here
    return places.wheel if is_ours else value


def _send_job(client: WorkspaceClient, job: Tree, known: int | None) -> int:
    """Create a job, or set the one that is known anew; return its id."""
    from databricks.sdk.service.jobs import JobSettings

    fit = {k: v for k, v in job.items() if k not in OURS["jobs"] and v is not None}
    settings = JobSettings.from_dict(fit)
    if known is not None:
        client.jobs.reset(known, settings)
        return known
    fields = {field.name: getattr(settings, field.name) for field in dataclasses.fields(settings)}
    made = client.jobs.create(**{name: one for name, one in fields.items() if one is not None})
    return made.job_id or 0
