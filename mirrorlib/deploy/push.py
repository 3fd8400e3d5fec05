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
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from mirrorlib.deploy.jobs import Places, send_jobs
from mirrorlib.deploy.libraries import require_no_other_file
from mirrorlib.deploy.owner import find_jobs
from mirrorlib.deploy.references import all_tasks, texts_of
from mirrorlib.deploy.refusal import name_refusals
from mirrorlib.deploy.render import LOOKUP, MADE_UP, User
from mirrorlib.deploy.report import DeployReport, Sent
from mirrorlib.deploy.rights import OURS, grant
from mirrorlib.errors import BundleError, first_few, first_line
from mirrorlib.extras import how_to_install

if TYPE_CHECKING:
    from databricks.sdk import WorkspaceClient

    from mirrorlib.deploy.read import Tree
    from mirrorlib.deploy.render import Rendered

_LEFT = "dashboards"


def connect_workspace() -> WorkspaceClient:
    """Open the workspace that the environment or a profile names.

    Raises:
        BundleError: databricks-sdk is missing, or finds no credentials.

    """
    try:
        from databricks.sdk import WorkspaceClient
    except ImportError as exc:
        msg = "a workspace cannot be reached without databricks-sdk"
        raise BundleError(msg, next_step=how_to_install("databricks")) from exc
    try:
        return WorkspaceClient()
    except ValueError as exc:  # what the SDK raises for a configuration that is not enough
        msg = "no workspace is configured"
        step = "Set DATABRICKS_HOST and DATABRICKS_TOKEN, or DATABRICKS_CONFIG_PROFILE."
        raise BundleError(msg, found=first_line(exc), next_step=step) from exc


def current_user(client: WorkspaceClient) -> User:
    """Ask the workspace who deploys.

    Raises:
        BundleError: it does not know, or may not be asked.

    """
    with name_refusals("the question who you are"):
        me = client.current_user.me()
    return User(name=str(me.user_name), display_name=me.display_name or "")


def push(
    client: WorkspaceClient, rendered: Rendered, wheel: Path, *, take_over: bool = False
) -> DeployReport:
    """Bring a workspace to what a target says.

    Args:
        client: of the workspace.
        rendered: the target.
        wheel: what its tasks are handed.
        take_over: take jobs that do not say which deployment made them for the target's.

    Raises:
        BundleError: the workspace refuses something, naming it, or has jobs of another deployment.

    """
    require_known_ids(rendered)
    require_no_other_file(rendered)
    with name_refusals("the list of jobs"):
        known = find_jobs(client, rendered, take_over=take_over)
    files = str(rendered.facts["workspace"]["file_path"])
    artifacts = str(rendered.facts["workspace"]["artifact_path"])
    with name_refusals("the catalog"):
        sent = [*_send_schemas(client, rendered), *_send_volumes(client, rendered)]
    with name_refusals("the workspace's files"):
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
    sent += send_jobs(client, rendered, Places(notebooks=notebooks, wheel=wheel_place), known)
    left = [f"{_LEFT}.{key}" for key in rendered.resources(_LEFT)]
    if rendered.tree.get("permissions"):
        left.append(f"permissions of the folder {rendered.facts['workspace']['root_path']}")
    return DeployReport(target=rendered.target, sent=tuple(sent), left=tuple(left))


def require_known_ids(rendered: Rendered) -> None:
    """Refuse jobs that name what only the Databricks CLI finds out, before anything is sent.

    Raises:
        BundleError: one does.

    """
    lookups = {
        name: value
        for name, value in rendered.variables.items()
        if isinstance(value, str) and value.startswith(LOOKUP)
    }
    for key, job in rendered.jobs.items():
        for text in texts_of(job):
            if names := [name for name, value in lookups.items() if value in text]:
                msg = f"the job {key} needs the id that the lookup of {names[0]} asks for"
                step = f"Give it: --var {names[0]}=ID; the Databricks CLI alone looks it up."
                raise BundleError(msg, found=lookups[names[0]], next_step=step)
            if MADE_UP in text:
                msg = f"the job {key} needs an id that is not known before everything is deployed"
                step = "Give the id as a value, or deploy with the Databricks CLI."
                raise BundleError(msg, found=text, next_step=step)


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
    """Run one of the jobs that were sent, and wait for its end; one that takes longer goes on, and the report says so.

    Raises:
        BundleError: the workspace refuses to.

    """
    jobs = {one.name: one.place for one in report.sent if one.kind == "job"}
    with name_refusals(f"the run of {key}"):
        started = client.jobs.run_now(int(jobs[key]), job_parameters=dict(parameters))
        try:
            run = started.result(timeout=patience)
        except TimeoutError:
            run = client.jobs.get_run(started.run_id)
    if run.state and run.state.result_state is None:
        goes_on = f"run {run.run_id} of {key} has not ended after {patience}, and goes on"
        return dataclasses.replace(report, failed=f"{goes_on} {run.run_page_url or ''}".strip())
    ended = run.state.result_state.value if run.state and run.state.result_state else "UNKNOWN"
    told = f"run {run.run_id} of {key}: {ended} {run.run_page_url or ''}".strip()
    if ended == "SUCCESS":
        return dataclasses.replace(report, run=told)
    said = (run.state.state_message if run.state else "") or "the workspace gives no reason"
    return dataclasses.replace(report, failed=f"{told}: {said}")


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
    with name_refusals(f"the grants of {name}"):
        granted = grant(client, kind, name, resource.get("grants", []))
    yield from (Sent(kind="grant", name=name, place=who, done="granted") for who in granted)


def _told_of(kind: str, resource: Tree) -> Tree:
    """Return what the workspace's API knows of a resource."""
    return {name: value for name, value in resource.items() if name not in OURS[kind]}


def _notebooks(rendered: Rendered) -> list[str]:
    """Name the notebooks that tasks run."""
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
    from databricks.sdk.service.workspace import ImportFormat, Language

    place = posixpath.join(files, posixpath.splitext(path)[0])
    client.workspace.mkdirs(posixpath.dirname(place))
    data = (root / path).read_bytes()
    form, language = ImportFormat.JUPYTER, None
    if path.endswith(".py"):
        form, language = ImportFormat.SOURCE, Language.PYTHON
    client.workspace.upload(place, data, format=form, language=language, overwrite=True)
    return place
