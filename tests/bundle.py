"""Our own bundle, for the tests: read with a target laid over it, its variables filled in, built by Databricks' typed classes.

In: the folder of `databricks.yml`, and a target. Out: `Rendered`. Only what our bundle says is understood; the rules of every
other bundle are the Databricks CLI's. Fields, types and words are held to `databricks-bundles`, which refuses any that it
does not know.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

Tree = dict[str, Any]
MAIN = "databricks.yml"
_REFERENCE = re.compile(r"\$\{([^{}]+)\}")


@dataclass(frozen=True, slots=True)
class Rendered:
    """A target of the bundle."""

    root: Path
    target: str
    tree: Tree
    typed: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    @property
    def jobs(self) -> dict[str, Tree]:
        """Give the jobs as they are written, by key."""
        found: dict[str, Tree] = self.tree["resources"]["jobs"]
        return found


def render(
    root: Path,
    target: str,
    variables: Mapping[str, Any] | None = None,
    *,
    root_of_ours: Path | None = None,
) -> Rendered:
    """Lay a target over the bundle, fill its references in, and build every resource; *root_of_ours* is what it calls `mirrorlib`."""
    tree = read(root, root_of_ours)
    chosen = tree.pop("targets")[target]
    lists = {name: [*tree.get(name, []), *chosen.get(name, [])] for name in ("permissions",)}
    tree = {**joined(tree, {**chosen, "variables": {}}, over=True), **lists}
    values = {name: told.get("default") for name, told in tree.pop("variables").items()}
    values |= {"warehouse_id": "abc", **chosen.get("variables", {}), **(variables or {})}
    places = {
        **values_of(tree["resources"]),
        "bundle.name": tree["bundle"]["name"],
        "bundle.target": target,
    }
    known = {**{f"var.{name}": value for name, value in values.items()}, **places}
    filled_in = fill(tree, known)
    assert "${" not in json.dumps(filled_in), "a reference leads nowhere"
    return Rendered(root, target, filled_in, built(filled_in))


def targets(root: Path) -> list[str]:
    """Name the targets, the default first."""
    return list(_load(root / MAIN)["targets"])


def read(root: Path, ours: Path | None = None) -> Tree:
    """Read `databricks.yml` and what it includes; nothing may be said twice."""
    tree = _load(root / MAIN)
    for pattern in tree.pop("include"):
        place = ours if ours and pattern.startswith("mirrorlib/") else root
        files = sorted(place.glob(pattern.removeprefix("mirrorlib/") if place is ours else pattern))
        assert files, pattern
        for path in files:
            tree = joined(tree, _load(path))
    return tree


def _load(path: Path) -> Tree:
    loaded: Tree = yaml.load(path.read_text(), Strict)  # noqa: S506  # a kind of SafeLoader
    return loaded


class Strict(yaml.SafeLoader):
    """A loader that refuses a key that stands twice, of which YAML would keep the last."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:  # noqa: FBT002  # the base's own
        """Make a mapping."""
        keys = [self.construct_object(name, deep=True) for name, _ in node.value]
        assert len(keys) == len(set(keys)), (node.start_mark.line, keys)
        return super().construct_mapping(node, deep)


def joined(tree: Tree, more: Tree, *, over: bool = False) -> Tree:
    """Join two mappings; the other one counts for more, or may not say the same."""
    result = dict(tree)
    for key, value in more.items():
        if isinstance(value, dict) and isinstance(result.get(key), dict):
            result[key] = joined(result[key], value, over=over)
        else:
            assert over or key not in result, key
            result[key] = value
    return result


def values_of(resources: Tree) -> dict[str, Any]:
    """Give what references to resources stand for."""
    found = {
        f"resources.{kind}.{key}.{name}": value
        for kind, ones in resources.items()
        for key, one in ones.items()
        for name, value in one.items()
    }
    path = "/Volumes/{catalog_name}/{schema_name}/{name}"
    return found | {
        f"resources.volumes.{key}.volume_path": path.format(**one)
        for key, one in resources.get("volumes", {}).items()
    }


def fill(value: Any, known: Mapping[str, Any]) -> Any:
    """Fill references in, and those in what they stand for."""
    if isinstance(value, dict):
        return {name: fill(one, known) for name, one in value.items()}
    if isinstance(value, list):
        return [fill(one, known) for one in value]
    if not isinstance(value, str):
        return value
    whole = _REFERENCE.fullmatch(value)
    if whole:
        return fill(known[whole[1]], known)
    return _REFERENCE.sub(lambda found: str(fill(known[found[1]], known)), value)


def built(tree: Tree) -> dict[str, dict[str, Any]]:
    """Build every resource by its class."""
    from databricks.bundles.dashboards import Dashboard
    from databricks.bundles.jobs import Job
    from databricks.bundles.schemas import Schema
    from databricks.bundles.volumes import Volume

    classes = {"jobs": Job, "schemas": Schema, "volumes": Volume, "dashboards": Dashboard}
    return {
        kind: {key: classes[kind].from_dict(one) for key, one in ones.items()}
        for kind, ones in tree["resources"].items()
    }


def all_tasks(job: Tree) -> Iterator[Tree]:
    """Give the tasks of a job; of a loop, the one inside."""
    for task in job["tasks"]:
        yield task.get("for_each_task", {}).get("task", task)


def parameters_of(job: Tree) -> dict[str, str]:
    """Return what references to a job's parameters stand for when nobody sets them."""
    return {f"job.parameters.{one['name']}": str(one["default"]) for one in job["parameters"]}


def filled(text: str, values: Mapping[str, str]) -> str:
    """Put values in the place of references between double braces."""
    return re.sub(r"\{\{\s*([^{}]*?)\s*\}\}", lambda found: values[found[1]], text)


def read_parameters(path: Path) -> dict[str, object]:
    """Read a notebook's cell of parameters."""
    tree = ast.parse("\n".join(source for source, tags in _cells(path) if "parameters" in tags))
    return {
        ast.unparse(one.targets[0]): ast.literal_eval(one.value)
        for one in tree.body
        if isinstance(one, ast.Assign)
    }


def needed_parameters(path: Path) -> set[str]:
    """Name the parameters that are empty in their cell, and of a kind that has to be given."""
    cell = read_parameters(path)
    calls = (
        call
        for source, _ in _cells(path)
        for call in ast.walk(ast.parse(source))
        if isinstance(call, ast.Call) and ast.unparse(call.func).endswith("resolve")
    )
    kinds = {str(one.arg): ast.unparse(one.value) for call in calls for one in call.keywords}
    given = {name for name, kind in kinds.items() if kind != "list[str]" and "None" not in kind}
    return {
        name
        for name in given
        if cell.get(name) in ("", "[]")
        and not (cell[name] == "[]" and not kinds[name].startswith("list["))
    }


def _cells(path: Path) -> Iterator[tuple[str, list[str]]]:
    for cell in json.loads(path.read_text())["cells"]:
        if cell["cell_type"] == "code" and not "".join(cell["source"]).startswith("%"):
            yield "".join(cell["source"]), cell.get("metadata", {}).get("tags", [])
