"""Lay a target over its bundle, as the Databricks CLI does.

In: the bundle's tree and one of its targets. Out: one tree. Mappings are joined; lists are put end to end,
but tasks, clusters, parameters and grants of one key become one; of everything else the target's counts.
`run_as`, `mode` and a variable's value are the target's alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mirrorlib.errors import BundleError

if TYPE_CHECKING:
    from mirrorlib.deploy.read import Tree

_KEYS = {  # lists whose members have a name
    "tasks": "task_key",
    "job_clusters": "job_cluster_key",
    "parameters": "name",
    "grants": "principal",
}
_SETS = ("privileges",)
_JOINED = ("artifacts", "bundle", "permissions", "presets", "resources", "sync", "workspace")
_REPLACED = ("mode", "run_as")
_WHOLE = (  # a variable of a target that is said in full, not by its value
    {"default", "type", "description"},
    {"default", "type"},
    {"default", "description"},
    {"default"},
    {"lookup", "description"},
    {"lookup"},
)


def targeted(tree: Tree, target: Tree) -> Tree:
    """Lay a target over the whole.

    Raises:
        BundleError: the target sets a variable that is not declared, or says a list where the bundle says none.

    """
    root = {key: value for key, value in tree.items() if key != "targets"}
    for key in _JOINED:
        if key in target:
            root[key] = overlaid(root.get(key), target[key], key)
    root |= {key: target[key] for key in _REPLACED if key in target}
    if "git" in target:
        root["bundle"] = overlaid(root.get("bundle"), {"git": target["git"]}, "bundle")
    root["variables"] = _variables(root.get("variables") or {}, target.get("variables") or {})
    return {key: value for key, value in root.items() if value is not None}


def overlaid(old: Any, new: Any, key: str) -> Any:  # noqa: ANN401  # whatever YAML holds
    """Lay one value over another; *key* is what both stand under.

    Raises:
        BundleError: they are of different kinds.

    """
    if old is None or new is None:
        return old if new is None else new
    if isinstance(old, dict) and isinstance(new, dict):
        return {**old, **{name: overlaid(old.get(name), one, name) for name, one in new.items()}}
    if isinstance(old, list) and isinstance(new, list):
        return _end_to_end(old, new, key)
    if isinstance(old, (dict, list)) or isinstance(new, (dict, list)):
        msg = f"a target says {key} as another kind of value than the bundle"
        raise BundleError(msg, found=str(new), next_step="Say both alike, or use a variable.")
    return new


def _end_to_end(old: list[Any], new: list[Any], key: str) -> list[Any]:
    """Put one list behind another; a member that has the name of another is laid over it."""
    if key in _SETS:
        return list(dict.fromkeys([*old, *new]))
    name = _KEYS.get(key, "")
    if not all(isinstance(one, dict) and name in one for one in (*old, *new)):
        return [*old, *new]
    result = list(old)
    for one in new:
        places = [place for place, known in enumerate(result) if known[name] == one[name]]
        if places:
            result[places[0]] = overlaid(result[places[0]], one, key)
        else:
            result.append(one)
    return result


def _variables(declared: Tree, given: Tree) -> Tree:
    """Set what a target sets; a value drops a lookup, and a lookup a value."""
    if unknown := [name for name in given if name not in declared]:
        msg = "a variable is set that is not declared"
        raise BundleError(msg, found=", ".join(unknown))
    result = dict(declared)
    for name, value in given.items():
        whole = value if isinstance(value, dict) and set(value) in _WHOLE else {"default": value}
        kept = {k: v for k, v in (declared[name] or {}).items() if k not in {"default", "lookup"}}
        result[name] = {**kept, **whole}
    return result
