"""Apply presets: what a target says once of all that it deploys, and what development mode adds to it.

In: a tree and its presets. Out: the tree, with names, tags and pauses. As the Databricks CLI does.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from mirrorlib.errors import BundleError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mirrorlib.deploy.read import Tree

_TRIGGERS = ("schedule", "trigger", "continuous")
_PAUSES = ("PAUSED", "UNPAUSED")
_RUNS_AT_ONCE = 4  # of a job in development, where it does not say itself


def settled(presets: Mapping[str, Any], mode: str | None, user_name: str, short_name: str) -> Tree:
    """Return the presets with what the mode adds.

    Raises:
        BundleError: one cannot be applied, or, in development, would meet other developers' resources.

    """
    _require_known(presets)
    if mode != "development":
        return dict(presets)
    if presets.get("trigger_pause_status") == "UNPAUSED":
        msg = "in development triggers are paused; a single job may say otherwise of its own"
        raise BundleError(msg, found="trigger_pause_status: UNPAUSED")
    prefix = presets.get("name_prefix") or f"[dev {short_name}] "
    if user_name not in prefix and short_name not in prefix:
        msg = "in development the preset name_prefix has to hold the developer's name"
        step = "Put ${workspace.current_user.short_name} into it."
        raise BundleError(msg, found=prefix, next_step=step)
    return {
        "artifacts_dynamic_version": True,
        "jobs_max_concurrent_runs": _RUNS_AT_ONCE,
        "trigger_pause_status": "PAUSED",
        **presets,
        "name_prefix": prefix,
        "tags": {"dev": short_name, **(presets.get("tags") or {})},
    }


def named(resources: Tree, presets: Tree) -> Tree:
    """Name and tag resources; a schema's name takes letters, digits and underscores alone."""
    prefix = presets.get("name_prefix") or ""
    inside = prefix.replace("[", "").strip(" ")
    of_schemas = plain(inside) + ("_" if inside.endswith("]") else "")
    return {
        kind: {key: _renamed(kind, one, prefix, of_schemas, presets) for key, one in found.items()}
        for kind, found in resources.items()
    }


def paused(job: Tree, presets: Tree) -> Tree:
    """Pause a job's triggers, or not, where they do not say it themselves."""
    status = presets.get("trigger_pause_status")
    told = {name: job[name] for name in _TRIGGERS if status and isinstance(job.get(name), dict)}
    return {**job, **{name: {"pause_status": status, **one} for name, one in told.items()}}


def plain(text: str) -> str:
    """Leave letters and digits, in lower case; whatever is between them becomes one underscore."""
    kept = "".join(one if one.isalpha() or one.isdecimal() else "_" for one in text.lower())
    return re.sub("_+", "_", kept).strip("_")


def _require_known(presets: Mapping[str, Any]) -> None:
    """Refuse what cannot be applied."""
    pause = presets.get("trigger_pause_status")
    if pause is not None and pause not in _PAUSES:
        msg = f"the preset trigger_pause_status has to be {' or '.join(_PAUSES)}"
        raise BundleError(msg, found=str(pause))
    if presets.get("source_linked_deployment"):
        msg = "the preset source_linked_deployment is not supported here"
        step = "Leave it out, or deploy with the Databricks CLI inside the workspace."
        raise BundleError(msg, next_step=step)


def _renamed(kind: str, one: Tree, prefix: str, of_schemas: str, presets: Tree) -> Tree:
    """Put the prefix before the name of one resource; volumes are in a schema that has it."""
    if kind == "schemas":
        return {**one, "name": f"{of_schemas}{one.get('name', '')}"}
    if kind == "dashboards":
        return {**one, "display_name": f"{prefix}{one.get('display_name', '')}"}
    return _named_job(one, prefix, presets) if kind == "jobs" else one


def _named_job(job: Tree, prefix: str, presets: Tree) -> Tree:
    """Name and tag a job, and say how many of its runs go at once."""
    result = {**job, "name": f"{prefix}{job.get('name', '')}"}
    if tags := presets.get("tags"):
        result["tags"] = {**tags, **(job.get("tags") or {})}
    if runs := presets.get("jobs_max_concurrent_runs"):
        result.setdefault("max_concurrent_runs", runs)
    return result
