"""Send a wheel, notebooks, schemas, volumes, grants and jobs to a workspace, and run a job, without the Databricks CLI.

In: a rendered target and a client of databricks-sdk. Out: `DeployReport`. Promise: sent again, nothing is
there twice: what is there is found by its name and brought up to date. A wheel's folder is named after its
content, so that no environment takes an older one of the same version for it.
"""

from __future__ import annotations

import dataclasses
import hashlib
import posixpath
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mirrorlib.deploy.rights import OURS, grant, permit
from mirrorlib.errors import BundleError, first_few, first_line
from mirrorlib.tabular import Report

if TYPE_CHECKING:
    from databricks.sdk import WorkspaceClient

    from mirrorlib.deploy.read import Tree
    from mirrorlib.deploy.render import Rendered

_LEFT = "dashboards"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """One thing that is in the workspace now: what it is, where or under which id, and whether it is new."""

    kind: str
    name: str
    place: str
    done: str


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class DeployReport(Report):
    """What was sent, and how the job that was run has ended."""

    target: str
    sent: tuple[Sent, ...]
    left: tuple[str, ...] = ()
    run: str | None = None
    failed: str | None = None

    @property
    def ok(self) -> bool:
        """Say whether the job that was run has ended well."""
        return self.failed is None

    def header(self) -> tuple[str, ...]:
        """Name the columns."""
        return ("", "name", "in the workspace", "")

    def rows(self) -> list[tuple[str, ...]]:
        """Return one row a thing."""
        return [(one.kind, one.name, one.place, one.done) for one in self.sent]

    def notes(self) -> list[str]:
        """Say what is not sent, and how the run ended."""
        left = [f"not sent: {name}; the Databricks CLI deploys it" for name in self.left]
        return [*left, *(text for text in (self.run, self.failed) if text)]


def connect_workspace() -> WorkspaceClient:
    """Open the workspace that the environment or a profile names.

    Raises:
        BundleError: databricks-sdk is missing, or finds no credentials.

    """
    try:
        from databricks.sdk import WorkspaceClient
    except ImportError as exc:
        msg = "a workspace cannot be reached without databricks-sdk"
        step = "Install it: pip install 'mirrorlib[databricks]'."
        raise BundleError(msg, next_step=step) from exc
    try:
        return WorkspaceClient()
    except ValueError as exc:  # what the SDK raises for a configuration that is not enough
        msg = "no workspace is configured"
        step = "Set DATABRICKS_HOST and DATABRICKS_TOKEN, or DATABRICKS_CONFIG_PROFILE."
        raise BundleError(msg, found=first_line(exc), next_step=step) from exc


def push(client: WorkspaceClient, rendered: Rendered, wheel: Path) -> DeployReport:
    """Bring a workspace to what a target says.

    Raises:
        BundleError: the workspace refuses something, naming it.

    """
    files = str(rendered.facts["workspace"]["file_path"])
    artifacts = str(rendered.facts["workspace"]["artifact_path"])
    with _told("the catalog"):
        sent = [*_send_schemas(client, rendered), *_send_volumes(client, rendered)]
    with _told("the workspace's files"):
        wheel_place = _send_wheel(client, wheel, artifacts)
        sent.append(Sent(kind="wheel", name=wheel.name, place=wheel_place, done="uploaded"))
        notebooks = {
            path: _send_notebook(client, rendered.root, path, files)
            for path in _notebooks(rendered)
        }
        sent += [
            Sent(kind="notebook", name=path, place=place, done="uploaded")
            for path, place in notebooks.items()
        ]
    for key, job in rendered.jobs.items():
        with _told(f"the job {key}"):
            placed = _placed(job, notebooks, wheel_place)
            placed.setdefault("run_as", rendered.tree.get("run_as"))
            sent.append(_send_job(client, key, placed, rendered.tree.get("permissions", [])))
    left = [f"{_LEFT}.{key}" for key in rendered.resources(_LEFT)]
    if rendered.tree.get("permissions"):
        left.append(f"permissions of the folder {rendered.facts['workspace']['root_path']}")
    return DeployReport(target=rendered.target, sent=tuple(sent), left=tuple(left))


def require_job(rendered: Rendered, key: str, parameters: Mapping[str, str]) -> None:
    """Refuse a run that cannot begin, before anything is sent.

    Raises:
        BundleError: the bundle has no such job, or the job no such parameter.

    """
    if key not in rendered.jobs:
        msg = "the bundle has no such job"
        raise BundleError(msg, found=key, next_step=f"Its jobs are {', '.join(rendered.jobs)}.")
    known = [str(one["name"]) for one in rendered.jobs[key].get("parameters", [])]
    unknown = [name for name in parameters if name not in known]
    if unknown:
        msg = f"the job {key} has no such parameter"
        step = f"Its parameters are {', '.join(known)}." if known else "It has none."
        raise BundleError(msg, found=first_few(unknown), next_step=step)


def run_job(
    client: WorkspaceClient,
    report: DeployReport,
    key: str,
    parameters: Mapping[str, str],
    patience: timedelta,
) -> DeployReport:
    """Run one of the jobs that were sent, and wait for its end.

    Raises:
        BundleError: the workspace refuses to, or it has not ended in time.

    """
    jobs = {one.name: one.place for one in report.sent if one.kind == "job"}
    with _told(f"the run of {key}"):
        started = client.jobs.run_now(int(jobs[key]), job_parameters=dict(parameters))
        run = started.result(timeout=patience)
    ended = run.state.result_state.value if run.state and run.state.result_state else "UNKNOWN"
    told = f"run {run.run_id} of {key}: {ended} {run.run_page_url or ''}".strip()
    if ended == "SUCCESS":
        return dataclasses.replace(report, run=told)
    said = (run.state.state_message if run.state else "") or "the workspace gives no reason"
    return dataclasses.replace(report, failed=f"{told}: {said}")


@contextmanager
def _told(what: str) -> Iterator[None]:
    """Say what the workspace refused, in place of the SDK's own error."""
    from databricks.sdk.errors import OperationFailed
    from databricks.sdk.errors.base import DatabricksError

    try:
        yield
    except (DatabricksError, OperationFailed, TimeoutError) as exc:
        msg = f"the workspace refuses, or does not answer for, {what}"
        step = "Correct it, and deploy again: what was sent stays, and is not sent twice."
        found = first_line(exc).partition(". Config: ")[0]  # the SDK adds who it was
        raise BundleError(msg, found=found, next_step=step) from exc


def _send_schemas(client: WorkspaceClient, rendered: Rendered) -> Iterator[Sent]:
    from databricks.sdk.errors import NotFound

    for schema in rendered.resources("schemas").values():
        name = f"{schema['catalog_name']}.{schema['name']}"
        try:
            client.schemas.get(name)
            done = "was there"
        except NotFound:
            client.schemas.create(**_told_of("schemas", schema))
            done = "created"
        yield Sent(kind="schema", name=name, place=name, done=done)
        yield from _send_grants(client, "schema", name, schema)


def _send_volumes(client: WorkspaceClient, rendered: Rendered) -> Iterator[Sent]:
    from databricks.sdk.errors import NotFound
    from databricks.sdk.service.catalog import VolumeType

    for volume in rendered.resources("volumes").values():
        name = ".".join(volume[part] for part in ("catalog_name", "schema_name", "name"))
        try:
            client.volumes.read(name)
            done = "was there"
        except NotFound:
            told = _told_of("volumes", volume)
            client.volumes.create(**{**told, "volume_type": VolumeType(told["volume_type"])})
            done = "created"
        place = f"/Volumes/{name.replace('.', '/')}"
        yield Sent(kind="volume", name=name, place=place, done=done)
        yield from _send_grants(client, "volume", name, volume)


def _send_grants(client: WorkspaceClient, kind: str, name: str, resource: Tree) -> Iterator[Sent]:
    """Grant what a schema or a volume says; what was granted before stays."""
    with _told(f"the grants of {name}"):
        granted = grant(client, kind, name, resource.get("grants", []))
    yield from (Sent(kind="grant", name=name, place=who, done="granted") for who in granted)


def _told_of(kind: str, resource: Tree) -> Tree:
    """Return what the workspace's API knows of a resource."""
    return {name: value for name, value in resource.items() if name not in OURS[kind]}


def _notebooks(rendered: Rendered) -> list[str]:
    """Name the notebooks that tasks run."""
    from mirrorlib.deploy.references import all_tasks

    tasks = (task for job in rendered.jobs.values() for task in all_tasks(job))
    return sorted(
        {task["notebook_task"]["notebook_path"] for task in tasks if "notebook_task" in task}
    )


def _send_wheel(client: WorkspaceClient, wheel: Path, artifacts: str) -> str:
    from databricks.sdk.service.workspace import ImportFormat

    data = wheel.read_bytes()
    folder = f"{artifacts}/.internal/{hashlib.sha256(data).hexdigest()[:12]}"
    client.workspace.mkdirs(folder)
    place = f"{folder}/{wheel.name}"
    client.workspace.upload(place, data, format=ImportFormat.AUTO, overwrite=True)
    return place


def _send_notebook(client: WorkspaceClient, root: Path, path: str, files: str) -> str:
    """Import a notebook, which loses its extension on the way."""
    from databricks.sdk.service.workspace import ImportFormat

    place = posixpath.join(files, posixpath.splitext(path)[0])
    client.workspace.mkdirs(posixpath.dirname(place))
    data = (root / path).read_bytes()
    client.workspace.upload(place, data, format=ImportFormat.JUPYTER, overwrite=True)
    return place


def _placed(value: Any, notebooks: Mapping[str, str], wheel: str, key: str = "") -> Any:  # noqa: ANN401  # a tree of YAML
    """Say the places in the workspace for the paths of this machine."""
    if isinstance(value, dict):
        return {name: _placed(one, notebooks, wheel, name) for name, one in value.items()}
    if isinstance(value, list):
        return [_placed(one, notebooks, wheel, key) for one in value]
    if key == "notebook_path":
        return notebooks[value]
    is_wheel = key in {"whl", "dependencies"} and isinstance(value, str) and value.endswith(".whl")
    return wheel if is_wheel else value


def _send_job(client: WorkspaceClient, key: str, job: Tree, permissions: list[Tree]) -> Sent:
    """Create a job, or set it anew when there is one of its name."""
    from databricks.sdk.service.jobs import JobSettings

    told = {name: value for name, value in _told_of("jobs", job).items() if value is not None}
    settings = JobSettings.from_dict(told)
    known = [found.job_id for found in client.jobs.list(name=settings.name) if found.job_id]
    if len(known) > 1:
        msg = f"the workspace has {len(known)} jobs of one name"
        step = "Remove all but one."
        raise BundleError(msg, found=settings.name, next_step=step)
    if known:
        client.jobs.reset(known[0], settings)
        job_id, done = known[0], "updated"
    else:
        fields = {
            field.name: getattr(settings, field.name) for field in dataclasses.fields(settings)
        }
        made = client.jobs.create(**{name: one for name, one in fields.items() if one is not None})
        job_id, done = made.job_id or 0, "created"
    permit(client, str(job_id), permissions, job.get("permissions", []))
    return Sent(kind="job", name=key, place=str(job_id), done=done)
