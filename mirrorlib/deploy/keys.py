"""Know which keys a bundle's files have, so that a misspelt one is not passed over.

In: a file's tree. Out: nothing, or `BundleError`. What resources say is held to the SDK's classes elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from mirrorlib.errors import BundleError, first_few

if TYPE_CHECKING:
    from mirrorlib.deploy.read import Tree

MODES = ("development", "production")
_SHARED = "artifacts bundle permissions presets resources run_as sync workspace variables"
_ROOT = {*_SHARED.split(), "include", "scripts", "targets"}
_TARGET = {*_SHARED.split(), "default", "git", "mode"}
_PARTS = {  # the keys of what stands in either
    "bundle": {
        "databricks_cli_version", "deployment", "engine", "git", "name", "uuid",
    },
    "git": {"branch", "origin_url"},
    "presets": {
        "artifacts_dynamic_version", "jobs_max_concurrent_runs", "name_prefix", "pipelines_development",
        "source_linked_deployment", "tags", "trigger_pause_status",
    },
    "sync": {"exclude", "include", "paths"},
    "workspace": {
        "account_id", "artifact_path", "auth_type", "azure_client_id", "azure_environment", "azure_login_app_id",
        "azure_tenant_id", "azure_use_msi", "azure_workspace_resource_id", "client_id",
        "experimental_is_unified_host", "file_path", "google_service_account", "host", "profile",
        "resource_path", "root_path", "state_path", "workspace_id",
    },
}  # fmt: skip
_LISTS = ("include", "permissions")
_OF_MAPPINGS = ("artifacts", "resources", "targets", "variables")
_MAPPINGS = (*_OF_MAPPINGS, *_PARTS, "run_as", "scripts")
_ARTIFACT = {"build", "dynamic_version", "executable", "files", "path", "type"}
_VARIABLE = {"default", "description", "lookup", "type"}
_CLI_ONLY = {"cluster_id", "compute_id", "definitions", "environments", "experimental", "python"}


def require_known_keys(tree: Tree, file: str) -> None:
    """Refuse a file with a key that nothing reads, a value of another kind, or a target with a mode that there is not.

    Raises:
        BundleError: there is one; it is named with where it stands.

    """
    if (wrong := next(_misshapen(tree), None)) is not None:
        raise BundleError(wrong, file=file)
    unknown = [*_unknown(tree, _ROOT, "")]
    for name, told in _mapping(tree.get("variables")).items():
        unknown += _among(told, _VARIABLE, f"variables.{name}.")
    for name, target in _mapping(tree.get("targets")).items():
        unknown += _unknown(target, _TARGET, f"targets.{name}.")
        mode = _mapping(target).get("mode")
        if mode is not None and mode not in MODES:
            msg = f"the mode of the target {name} has to be {' or '.join(MODES)}"
            raise BundleError(msg, file=file, found=str(mode))
    if left := [key for key in unknown if key.rpartition(".")[2] in _CLI_ONLY]:
        msg = "a key is not supported here"
        step = "Leave it out, or deploy with the Databricks CLI alone."
        raise BundleError(msg, file=file, found=first_few(left), next_step=step)
    if unknown:
        msg = "a bundle has no such key"
        raise BundleError(msg, file=file, found=first_few(unknown))


def _misshapen(tree: Mapping[str, object], where: str = "") -> Iterator[str]:
    """Say which keys of a file or a target hold another kind of value than all that reads them takes."""
    for key, value in tree.items():
        if key in _LISTS and not isinstance(value, list | None):
            yield f"{where}{key} has to be a list"
        elif key in _MAPPINGS and not isinstance(value, Mapping | None):
            yield f"{where}{key} has to be a mapping"
        elif key in _OF_MAPPINGS and not (where and key == "variables"):  # there they are values
            for name, one in _mapping(value).items():
                if not isinstance(one, Mapping | None):
                    yield f"{where}{key}.{name} has to be a mapping"
    for name, target in _mapping(tree.get("targets")).items():
        yield from _misshapen(_mapping(target), f"targets.{name}.")


def _unknown(tree: object, known: set[str], where: str) -> Iterator[str]:
    """Name the keys that are not known of a file or a target, and of their parts."""
    yield from _among(tree, known, where)
    parts = dict(_mapping(tree))
    for name, told in _mapping(parts.get("artifacts")).items():
        yield from _among(told, _ARTIFACT, f"{where}artifacts.{name}.")
    parts["git"] = parts.get("git") or _mapping(parts.get("bundle")).get("git")
    for name, keys in _PARTS.items():
        yield from _among(parts.get(name), keys, f"{where}{name}.")


def _among(tree: object, known: set[str], where: str) -> Iterator[str]:
    yield from (f"{where}{key}" for key in _mapping(tree) if key not in known)


def _mapping(value: object) -> Mapping[str, object]:
    return value if isinstance(value, Mapping) else {}
