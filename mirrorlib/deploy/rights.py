"""Who may do what: hold grants, permissions and the lifecycle of resources to what there is, and send them.

In: what a bundle says of a resource beside the fields of the workspace's API. Out: sentences about what is
wrong, or calls of databricks-sdk. Grants and permissions are added; what is there already stays.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Mapping, Sequence
from enum import Enum
from typing import TYPE_CHECKING

from mirrorlib.deploy.fields import field_faults, type_faults

if TYPE_CHECKING:
    from databricks.sdk import WorkspaceClient

    from mirrorlib.deploy.read import Tree
    from mirrorlib.deploy.render import Rendered

# What a bundle's own permissions may say, and what the Databricks CLI makes of each for a job.
_BUNDLE_LEVELS = {"CAN_MANAGE": "CAN_MANAGE", "CAN_VIEW": "CAN_VIEW", "CAN_RUN": "CAN_MANAGE_RUN"}
_PRINCIPALS = ("group_name", "user_name", "service_principal_name")
OURS = {  # what a bundle says of a resource beside what the workspace's API knows
    "jobs": ("permissions", "lifecycle"),
    "schemas": ("grants", "lifecycle"),
    "volumes": ("grants", "lifecycle"),
    "dashboards": ("permissions", "lifecycle", "file_path", "dataset_catalog", "dataset_schema"),
}


def own_faults(kind: str, resource: Tree) -> Iterator[str]:
    """Say what is wrong with what a bundle adds to a resource of a kind."""
    types = _types(kind)
    for name in OURS.get(kind, ()):
        if name in resource:
            yield from type_faults(types[name], resource[name], f"{kind}.{name}")
    yield from _principal_faults(resource.get("permissions"), f"{kind}.permissions")


def bundle_permission_faults(permissions: object) -> Iterator[str]:
    """Say what is wrong with the permissions that a bundle gives on all it deploys."""
    level = Enum("Level", {word: word for word in _BUNDLE_LEVELS})  # type: ignore[misc]  # not of literals
    yield from type_faults(list[_permission(level)], permissions, "permissions")  # type: ignore[misc]  # nor is this
    yield from _principal_faults(permissions, "permissions")


def home_faults(permissions: object, root_path: object, deployer: str) -> Iterator[str]:
    """Say whose home a target's folder is in, when its permissions leave them out: a strict validation fails then.

    A folder that is in the home of whoever deploys is nobody's whom the bundle could name.
    """
    found = re.match(r"(?:/Workspace)?/Users/([^/]+)/", str(root_path))
    if not (found and isinstance(permissions, list) and permissions):
        return
    managers = [
        one.get(name)
        for one in permissions
        if isinstance(one, Mapping) and one.get("level") == "CAN_MANAGE"
        for name in _PRINCIPALS
    ]
    if found[1] not in {*managers, deployer}:
        yield f"its folder is in the home of {found[1]}, to whom permissions has to give CAN_MANAGE"


def run_as_faults(run_as: object) -> Iterator[str]:
    """Say what is wrong with who runs the jobs: a word that is not known would leave it to whoever deploys."""
    from databricks.sdk.service.jobs import JobRunAs

    yield from field_faults(JobRunAs, run_as, "run_as")


def permit(
    client: WorkspaceClient, job_id: str, rendered: Rendered, permissions: Sequence[Tree]
) -> None:
    """Add the permissions of the bundle, and of the job itself; whoever deploys owns it, which is more than any."""
    from databricks.sdk.service.iam import AccessControlRequest, PermissionLevel

    bundle = rendered.tree.get("permissions") or []
    of_all = [{**one, "level": _BUNDLE_LEVELS[one["level"]]} for one in bundle]
    owner = rendered.facts["workspace"]["current_user"]["userName"]
    wanted = [
        AccessControlRequest(
            permission_level=PermissionLevel(one["level"]),
            **{name: one[name] for name in _PRINCIPALS if name in one},
        )
        for one in (*of_all, *permissions)
        if owner not in (one.get("user_name"), one.get("service_principal_name"))
    ]
    if wanted:
        client.permissions.update("jobs", job_id, access_control_list=wanted)


def grant(client: WorkspaceClient, kind: str, name: str, grants: Sequence[Tree]) -> list[str]:
    """Add privileges on a schema or a volume; return who has them now."""
    from databricks.sdk.service.catalog import PermissionsChange, Privilege

    changes = [
        PermissionsChange(
            principal=one["principal"], add=[Privilege(word) for word in one["privileges"]]
        )
        for one in grants
    ]
    if changes:
        client.grants.update(kind, name, changes=changes)
    return [str(one["principal"]) for one in grants]


def _types(kind: str) -> dict[str, object]:
    """Return the type of each field that is a bundle's own."""
    from databricks.sdk.service.catalog import Privilege
    from databricks.sdk.service.iam import PermissionLevel
    from databricks.sdk.service.jobs import JobPermissionLevel

    granted = dataclasses.make_dataclass(
        "Grant", [("principal", str), ("privileges", list[Privilege])]
    )
    lifecycle = dataclasses.make_dataclass(
        "Lifecycle", [("prevent_destroy", bool, dataclasses.field(default=False))]
    )
    level = JobPermissionLevel if kind == "jobs" else PermissionLevel
    return {
        "grants": list[granted],  # type: ignore[valid-type]  # made just now
        "permissions": list[_permission(level)],  # type: ignore[misc]  # the same
        "lifecycle": lifecycle,
        "file_path": str,
        "dataset_catalog": str,
        "dataset_schema": str,
    }


def _permission(level: type[Enum]) -> type:
    who = [(name, str, dataclasses.field(default="")) for name in _PRINCIPALS]
    return dataclasses.make_dataclass("Permission", [("level", level), *who])


def _principal_faults(permissions: object, where: str) -> Iterator[str]:
    """Say which permissions are not of exactly one principal."""
    for place, one in enumerate(permissions if isinstance(permissions, list) else ()):
        if isinstance(one, Mapping) and sum(name in one for name in _PRINCIPALS) != 1:
            yield f"{where}[{place}] has to name one of {', '.join(_PRINCIPALS)}"
