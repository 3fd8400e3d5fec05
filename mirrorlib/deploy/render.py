"""Render a target of a bundle: variables and references resolved, the target's mode applied.

In: a bundle, a target's name, values of variables. Out: `Rendered`, in which nothing is left to be
resolved. What only a workspace can tell (who I am, ids) is made up by whoever has none.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mirrorlib.deploy.read import merged
from mirrorlib.errors import BundleError, first_few

if TYPE_CHECKING:
    from mirrorlib.deploy.read import Bundle, Tree

_REFERENCE = re.compile(r"\$\{([^{}$]+)\}")
_DEEPEST = 20  # references that lead to references
_TRIGGERS = ("schedule", "trigger", "continuous")
_OVERRIDES = (
    "workspace", "run_as", "permissions", "presets", "resources", "bundle", "git", "artifacts", "sync", "mode",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class User:
    """Who deploys."""

    name: str = "someone@example.com"

    @property
    def short_name(self) -> str:
        """Return the name as development mode puts it before others."""
        return re.sub(r"[^A-Za-z0-9_]", "_", self.name.partition("@")[0])


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
    chosen = targets[name] or {}
    tree = {key: value for key, value in bundle.tree.items() if key != "targets"}
    tree = merged(tree, {key: chosen[key] for key in _OVERRIDES if key in chosen})
    who = user or User()
    values = _values(tree, chosen, variables or {})
    tree = _in_mode(_with_defaults(tree), who)
    facts = _facts(tree, name, who, values)
    whole = _Resolver(facts).resolve({k: v for k, v in tree.items() if k != "variables"})
    resolved = _Resolver(facts).resolve(values)
    places = _Resolver(facts).resolve(facts["workspace"])
    return Rendered(
        root=bundle.root, target=name, tree=whole, variables=resolved, facts={"workspace": places}
    )


def _values(tree: Tree, chosen: Tree, given: Mapping[str, Any]) -> Tree:
    """Settle each variable's value: given, the target's, the default."""
    declared = tree.get("variables", {})
    overrides = chosen.get("variables", {})
    unknown = [name for name in (*given, *overrides) if name not in declared]
    if unknown:
        msg = "a variable is set that is not declared"
        raise BundleError(msg, found=first_few(unknown))
    values = {}
    for name, told in declared.items():
        value = given.get(name, overrides.get(name, (told or {}).get("default")))
        if value is None and "lookup" in (told or {}):
            ((kind, wanted),) = told["lookup"].items()
            value = f"lookup:{kind}:{wanted}"
        if value is None:
            msg = f"the variable {name} has no value"
            raise BundleError(msg, next_step=f"Give it one: --var {name}=VALUE.")
        values[name] = value
    return values


def _with_defaults(tree: Tree) -> Tree:
    """Say what the Databricks CLI takes for granted, where a bundle does not say it."""
    resources = dict(tree.get("resources", {}))
    resources["volumes"] = {
        key: {"volume_type": "MANAGED", **volume}
        for key, volume in resources.get("volumes", {}).items()
    }
    return {**tree, "resources": resources}


def _in_mode(tree: Tree, user: User) -> Tree:
    """Name and pause what a target in development mode deploys, as the Databricks CLI does."""
    if tree.get("mode") != "development":
        return tree
    resources = dict(tree.get("resources", {}))
    resources["jobs"] = {
        key: _developed_job(job, user) for key, job in resources.get("jobs", {}).items()
    }
    resources["schemas"] = {
        key: {**schema, "name": f"dev_{user.short_name}_{schema.get('name', key)}"}
        for key, schema in resources.get("schemas", {}).items()
    }
    return {**tree, "resources": resources}


def _developed_job(job: Tree, user: User) -> Tree:
    developed = {
        **job,
        "name": f"[dev {user.short_name}] {job.get('name', '')}",
        "tags": {**job.get("tags", {}), "dev": user.short_name},
    }
    developed.setdefault("max_concurrent_runs", 4)
    for trigger in _TRIGGERS:
        if trigger in developed:
            developed[trigger] = {"__paused__": developed[trigger]}
    return developed


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
    if kind != "volumes":
        return {"id": f"id-of-{kind}-{key}"}
    parts = (resource.get(part, "") for part in ("catalog_name", "schema_name", "name"))
    return {"id": f"id-of-{kind}-{key}", "volume_path": "/".join(("/Volumes", *parts))}


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
            if set(value) == {"__paused__"}:
                return self._paused(value["__paused__"], depth)
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

    def _paused(self, trigger: Any, depth: int) -> Tree:  # noqa: ANN401  # a mapping, or a reference to one
        """Pause a trigger, unless it says itself what it is."""
        resolved: Tree = self.resolve(trigger, depth)
        return {"pause_status": "PAUSED", **resolved}

    def _find(self, reference: str) -> Any:  # noqa: ANN401  # whatever YAML holds
        found: Any = self._facts
        for part in reference.split("."):
            if not isinstance(found, Mapping) or part not in found:
                msg = "a reference leads nowhere"
                raise BundleError(msg, found=f"${{{reference}}}")
            found = found[part]
        return found
