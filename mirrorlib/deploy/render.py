"""Render a target of a bundle: variables and references resolved, the target's mode applied.

In: a bundle, a target's name, values of variables. Out: `Rendered`, in which nothing is left to be
resolved. What only a workspace can tell (who I am, ids) is made up by whoever has none.
"""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mirrorlib.deploy.overlay import targeted
from mirrorlib.deploy.presets import named, paused, plain, settled
from mirrorlib.errors import BundleError, first_few

if TYPE_CHECKING:
    from mirrorlib.deploy.read import Bundle, Tree

_REFERENCE = re.compile(r"\$\{([^{}$]+)\}")
_DEEPEST = 20  # references that lead to references
LOOKUP = "<lookup of "  # what stands for an id that only a workspace can tell
MADE_UP = "<id of "  # the same, of a resource that is not deployed yet


class JobId(int):
    """The id of a job that is not deployed yet; what is sent has the real one in its place."""

    key: str

    def __str__(self) -> str:
        """Say whose id it is, for whoever finds it inside of a text."""
        return f"{MADE_UP}jobs.{self.key}>"

    __repr__ = __str__


@dataclass(frozen=True, slots=True, kw_only=True)
class User:
    """Who deploys."""

    name: str = "someone@example.com"
    display_name: str = ""

    @property
    def short_name(self) -> str:
        """Return the name as development mode puts it before others; a service principal's own is a number."""
        chosen = self.display_name if is_service_principal(self.name) else ""
        return plain((chosen or self.name).partition("@")[0])


@dataclass(frozen=True, slots=True, kw_only=True)
class Rendered:
    """A target as the workspace would be told.

    Attributes:
        root: the bundle's folder; paths are relative to it.
        target: its name.
        tree: everything, resolved.
        variables: the variables' values.
        facts: what references may name: workspace paths, resources.

    """

    root: Path
    target: str
    tree: Tree
    variables: Mapping[str, Any] = field(default_factory=dict)
    facts: Mapping[str, Any] = field(default_factory=dict)

    def resources(self, kind: str) -> Mapping[str, Tree]:
        """Return the resources of a kind by their keys."""
        found: Mapping[str, Tree] = self.tree.get("resources", {}).get(kind, {})
        return found

    @property
    def jobs(self) -> Mapping[str, Tree]:
        """Return the jobs by their keys."""
        return self.resources("jobs")

    @property
    def production(self) -> bool:
        """Say whether the target is one that others rely on."""
        return bool(self.tree.get("mode") == "production")


def is_service_principal(name: str) -> bool:
    """Say whether a user's name is that of a service principal: an application's id."""
    try:
        uuid.UUID(name)
    except ValueError:
        return False
    return True


def target_names(bundle: Bundle) -> list[str]:
    """Return the targets, the default first."""
    targets = bundle.tree.get("targets", {})
    return sorted(targets, key=lambda name: not (targets[name] or {}).get("default", False))


def render(
    bundle: Bundle,
    target: str | None = None,
    *,
    variables: Mapping[str, Any] | None = None,
    user: User | None = None,
) -> Rendered:
    """Resolve a target.

    Args:
        bundle: as it was read.
        target: its name; the default target without one.
        variables: values that win over the bundle's own.
        user: who deploys; made up without one.

    Raises:
        BundleError: there is no such target, a variable has no value or is not declared, or a reference
            leads nowhere.

    """
    name = target or next(iter(target_names(bundle)), "")
    targets = bundle.tree.get("targets", {})
    if name not in targets:
        msg = "the bundle has no such target"
        known = first_few(target_names(bundle)) or "none"
        raise BundleError(msg, found=name, next_step=f"Its targets are {known}.")
    tree = targeted(bundle.tree, targets[name] or {})
    who = user or User()
    values = _values(tree, variables or {})
    presets = _presets(tree, name, who, values)
    tree = {**_with_defaults(tree), "presets": presets}
    tree["resources"] = named(tree["resources"], presets)
    facts = _facts(tree, name, who, values)
    whole = _Resolver(facts).resolve({k: v for k, v in tree.items() if k != "variables"})
    jobs = whole["resources"].get("jobs", {})
    whole["resources"]["jobs"] = {key: paused(job, presets) for key, job in jobs.items()}
    resolved = _Resolver(facts).resolve(values)
    places = _Resolver(facts).resolve(facts["workspace"])
    return Rendered(
        root=bundle.root, target=name, tree=whole, variables=resolved, facts={"workspace": places}
    )


def _values(tree: Tree, given: Mapping[str, Any]) -> Tree:
    """Settle each variable's value: given, or what the target or the bundle says."""
    declared = tree["variables"]
    if unknown := [name for name in given if name not in declared]:
        msg = "a variable is set that is not declared"
        raise BundleError(msg, found=first_few(unknown))
    values = {}
    for name, told in declared.items():
        value = (told or {}).get("default")
        if name in given:
            value = _typed(name, given[name], told or {})
        elif "lookup" in (told or {}):
            value = _looked_up(name, told["lookup"])
        if value is None:
            msg = f"the variable {name} has no value"
            raise BundleError(msg, next_step=f"Give it one: --var {name}=VALUE.")
        values[name] = value
    return values


def _typed(name: str, value: object, told: Tree) -> object:
    """Read a text as the kind of value that the variable's default is; a complex one as JSON."""
    default = told.get("default")
    is_plain = told.get("type") != "complex" and not isinstance(default, (bool, int, float))
    if not isinstance(value, str) or is_plain:
        return value
    try:
        found = json.loads(value)
    except ValueError:
        found = None
    kind = (dict, list) if told.get("type") == "complex" else type(default)
    if isinstance(found, bool) == isinstance(default, bool) and isinstance(found, kind):
        return found
    expected = "a list or a mapping, as JSON" if isinstance(kind, tuple) else f"like {default!r}"
    msg = f"the variable {name} has to be {expected}"
    raise BundleError(msg, found=value)


def _looked_up(name: str, lookup: object) -> str:
    """Make up an id that only the workspace can tell."""
    if not isinstance(lookup, dict) or len(lookup) != 1:
        msg = f"the lookup of the variable {name} has to name one kind of resource"
        raise BundleError(msg, found=str(lookup))
    ((kind, wanted),) = lookup.items()
    return f"{LOOKUP}{kind} {wanted}>"


def _presets(tree: Tree, target: str, user: User, values: Tree) -> Tree:
    """Resolve the presets, which name resources, and so cannot refer to them."""
    facts = _facts({**tree, "resources": {}}, target, user, values)
    told = _Resolver(facts).resolve(tree.get("presets") or {})
    return settled(told, tree.get("mode"), user.name, user.short_name)


def _with_defaults(tree: Tree) -> Tree:
    """Say what the Databricks CLI takes for granted, where a bundle does not say it."""
    resources = {kind: found or {} for kind, found in (tree.get("resources") or {}).items()}
    for kind, found in resources.items():
        for key, one in found.items():
            if not isinstance(one, dict):
                msg = f"the resource {kind}.{key} has to be a mapping"
                raise BundleError(msg, found=str(one))
    resources["volumes"] = {
        key: {"volume_type": "MANAGED", **volume}
        for key, volume in resources.get("volumes", {}).items()
    }
    return {**tree, "resources": resources}


def _facts(tree: Tree, target: str, user: User, values: Tree) -> Tree:
    """Gather what references may name."""
    bundle = {**tree.get("bundle", {}), "target": target, "environment": target}
    default = f"/Workspace/Users/{user.name}/.bundle/{bundle.get('name', '')}/{target}"
    root = tree.get("workspace", {}).get("root_path", default)
    workspace = {
        "root_path": root,
        "file_path": f"{root}/files",
        "artifact_path": f"{root}/artifacts",
        "state_path": f"{root}/state",
        **tree.get("workspace", {}),
        "current_user": {"userName": user.name, "short_name": user.short_name},
    }
    resources = {
        kind: {key: {**_computed(kind, key, one), **one} for key, one in of_kind.items()}
        for kind, of_kind in tree.get("resources", {}).items()
    }
    return {"var": values, "bundle": bundle, "workspace": workspace, "resources": resources}


def _computed(kind: str, key: str, resource: Tree) -> Tree:
    """Name what the workspace computes of a resource."""
    parts = [str(resource.get(part, "")) for part in ("catalog_name", "schema_name", "name")]
    if kind == "volumes":
        return {"id": ".".join(parts), "volume_path": "/".join(("/Volumes", *parts))}
    if kind == "schemas":
        return {"id": f"{parts[0]}.{parts[2]}"}
    if kind != "jobs":
        return {"id": f"{MADE_UP}{kind}.{key}>"}
    made_up = JobId()
    made_up.key = key
    return {"id": made_up}


class _Resolver:
    """Resolves references in a tree."""

    def __init__(self, facts: Tree) -> None:
        self._facts = facts

    def resolve(self, value: Any, depth: int = 0) -> Any:  # noqa: ANN401  # whatever YAML holds
        """Resolve a value; a text that is one reference becomes what it names, of whatever type."""
        if depth > _DEEPEST:
            msg = "references lead to each other in a circle"
            raise BundleError(msg, found=str(value))
        if isinstance(value, dict):
            return {key: self.resolve(one, depth) for key, one in value.items()}
        if isinstance(value, list):
            return [self.resolve(one, depth) for one in value]
        if not isinstance(value, str):
            return value
        if (whole := _REFERENCE.fullmatch(value)) is not None:
            return self.resolve(self._find(whole[1]), depth + 1)
        if _REFERENCE.search(value) is None:
            return value
        return self.resolve(
            _REFERENCE.sub(lambda found: str(self._find(found[1])), value), depth + 1
        )

    def _find(self, reference: str) -> Any:  # noqa: ANN401  # whatever YAML holds
        found: Any = self._facts
        for part in reference.split("."):
            if not isinstance(found, Mapping) or part not in found:
                msg = "a reference leads nowhere"
                raise BundleError(msg, found=f"${{{reference}}}")
            found = found[part]
        return found
