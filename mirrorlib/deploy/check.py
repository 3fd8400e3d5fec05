"""Find in a rendered bundle what the workspace would refuse, and what would go wrong there without a word.

In: `Rendered`. Out: `Fault`s. Not to be found without a workspace: grants, quotas, cluster policies, how an
environment is built.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from mirrorlib.deploy.dynamic import dynamic_faults
from mirrorlib.deploy.fields import class_of, field_faults
from mirrorlib.deploy.policy import policy_faults
from mirrorlib.deploy.references import circle_faults, reference_faults
from mirrorlib.deploy.rights import (
    OURS,
    bundle_permission_faults,
    home_faults,
    own_faults,
    run_as_faults,
)
from mirrorlib.deploy.tasks import task_faults
from mirrorlib.errors import BundleError, first_few
from mirrorlib.extras import how_to_install

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mirrorlib.deploy.read import Tree
    from mirrorlib.deploy.render import Rendered

Understand = Callable[
    ["Sequence[str]"], str
]  # says what is wrong with a wheel's arguments, "" when nothing is


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """Something that is wrong: which resource, and what."""

    resource: str
    what: str

    def __str__(self) -> str:
        """Say both."""
        return f"{self.resource}: {self.what}"


def check_bundle(rendered: Rendered, understand: Understand) -> tuple[Fault, ...]:
    """Check a rendered target.

    Args:
        rendered: the target.
        understand: tells what is wrong with arguments of the wheel's entry point.

    """
    return tuple(_faults(rendered, understand))


def require_sound(rendered: Rendered, understand: Understand) -> None:
    """Refuse a target with faults.

    Raises:
        BundleError: there are some; the first are named.

    """
    faults = check_bundle(rendered, understand)
    if faults:
        msg = f"the target {rendered.target} has {len(faults)} faults"
        raise BundleError(msg, found=first_few(str(fault) for fault in faults))


def _faults(rendered: Rendered, understand: Understand) -> Iterator[Fault]:
    """Hold resources to their fields; jobs that have the right ones are followed further."""
    shaped = dict(rendered.jobs)
    for kind in rendered.tree.get("resources", {}):
        for key, resource in rendered.resources(kind).items():
            for what in _resource_faults(rendered.root, kind, resource):
                if kind == "jobs":
                    shaped.pop(key, None)
                yield Fault(resource=f"{kind}.{key}", what=what)
    for key, job in shaped.items():
        for what in (
            *reference_faults(job, rendered.jobs),
            *dynamic_faults(job),
            *task_faults(rendered.root, job, understand),
            *policy_faults(rendered, job),
        ):
            yield Fault(resource=f"jobs.{key}", what=what)
    for what in circle_faults(shaped):
        yield Fault(resource="bundle", what=what)
    yield from _bundle_faults(rendered)


def _bundle_faults(rendered: Rendered) -> Iterator[Fault]:
    """Say what is wrong with what a target says once, for all that it deploys."""
    if (permissions := rendered.tree.get("permissions")) is not None:
        for what in bundle_permission_faults(permissions):
            yield Fault(resource="bundle", what=what)
    if (run_as := rendered.tree.get("run_as")) is not None:
        for what in run_as_faults(run_as):
            yield Fault(resource="bundle", what=what)
    workspace = rendered.tree.get("workspace") or {}
    if rendered.production:
        deployer = rendered.facts["workspace"]["current_user"]["userName"]
        for what in home_faults(permissions, workspace.get("root_path"), deployer):
            yield Fault(resource="workspace", what=what)
    if rendered.production and "root_path" not in workspace:
        yield Fault(resource="workspace", what="a production target has to say its root_path")
    yield from _mode_faults(rendered)
    yield from _key_faults(rendered)


def _mode_faults(rendered: Rendered) -> Iterator[Fault]:
    """Say that a target for others to rely on has no mode: what production asks for would not be looked at."""
    workspace = rendered.tree.get("workspace") or {}
    told = {"root_path": workspace.get("root_path"), "run_as": rendered.tree.get("run_as")}
    said = [name for name, value in told.items() if value is not None]
    if said and rendered.tree.get("mode") is None:
        what = f"it says {' and '.join(said)}, but no mode: say production, or development"
        yield Fault(resource=f"targets.{rendered.target}", what=what)


def _key_faults(rendered: Rendered) -> Iterator[Fault]:
    """Say which resources have one key: a command that names a key could mean either."""
    told = {**rendered.tree.get("resources", {}), "scripts": rendered.tree.get("scripts") or {}}
    kinds: dict[str, list[str]] = {}
    for kind, resources in told.items():
        for key in resources or {}:
            kinds.setdefault(key, []).append(kind)
    for key, found in kinds.items():
        if len(found) > 1:
            what = f"{' and '.join(found)} have the same key"
            yield Fault(resource=key, what=f"{what}, which the Databricks CLI refuses")


def _resource_faults(root: Path, kind: str, resource: Tree) -> Iterator[str]:
    """Hold a resource to the SDK's class, and what is ours to what is there."""
    known = _class_of(kind)
    if known is None:
        yield f"the checker knows no resources of the kind {kind}"
        return
    told = {name: value for name, value in resource.items() if name not in OURS.get(kind, ())}
    yield from field_faults(known, told, kind)
    yield from own_faults(kind, resource)
    path = resource.get("file_path")
    if isinstance(path, str) and not (root / path).is_file():
        yield f"there is no file {path}"


def _class_of(kind: str) -> type | None:
    """Return the SDK's class of a resource, or one of the parameters of the call that makes it."""
    try:
        from databricks.sdk.service import catalog, dashboards, jobs
    except ImportError as exc:
        msg = "a bundle cannot be checked without databricks-sdk"
        raise BundleError(msg, next_step=how_to_install("databricks")) from exc
    classes: dict[str, type] = {
        "jobs": jobs.JobSettings,
        "dashboards": dashboards.Dashboard,
        "schemas": class_of(catalog.SchemasAPI.create),
        "volumes": class_of(catalog.VolumesAPI.create),
    }
    return classes.get(kind)
