"""Read a bundle: `databricks.yml` and the files that it includes, as one tree.

In: a folder. Out: `Bundle`. A key that stands twice in one mapping is refused, where YAML would keep the
last one without a word; local paths, which a file says relative to itself, become relative to the folder.
"""

from __future__ import annotations

import posixpath
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from mirrorlib.deploy.keys import require_known_keys
from mirrorlib.errors import BundleError
from mirrorlib.extras import how_to_install

if TYPE_CHECKING:
    from yaml import Loader, MappingNode

Tree: TypeAlias = dict[str, Any]
MAIN = "databricks.yml"
_PATHS = {"notebook_path", "whl", "file_path"}  # keys whose values are paths
LOCAL = ("./", "../")


@dataclass(frozen=True, slots=True, kw_only=True)
class Bundle:
    """A bundle as it is written.

    Attributes:
        root: its folder.
        tree: all files as one; `targets` are in it as they stand.

    """

    root: Path
    tree: Tree


def read_bundle(root: str | Path) -> Bundle:
    """Read a bundle.

    Raises:
        BundleError: a file is missing, no YAML, has a key twice, or an include matches nothing.

    """
    folder = Path(root).resolve()
    tree = _read(folder, folder / MAIN)
    for pattern in tree.pop("include", []):
        if "**" in pattern:
            msg = "an include with ** is not read recursively"
            raise BundleError(msg, file=MAIN, found=pattern, next_step="Name each folder.")
        found = sorted(path for path in folder.glob(pattern) if path.name != MAIN)
        if not found:
            msg = "an include matches no file"
            raise BundleError(msg, file=MAIN, found=pattern)
        for path in found:
            tree = merged(tree, _read(folder, path), str(path.relative_to(folder)))
    return Bundle(root=folder, tree=tree)


def merged(tree: Tree, more: Tree, file: str) -> Tree:
    """Join the mappings of two files.

    Raises:
        BundleError: both say the same thing.

    """
    result = dict(tree)
    for key, value in more.items():
        old = result.get(key)
        if isinstance(old, dict) and isinstance(value, dict):
            result[key] = merged(old, value, file)
        elif key in result:
            msg = f"{key} stands in another file too"
            raise BundleError(msg, file=file)
        else:
            result[key] = value
    return result


def _read(root: Path, path: Path) -> Tree:
    """Read one file."""
    yaml = _yaml()
    shown = path.relative_to(root).as_posix()
    try:
        found = yaml.load(path.read_text(encoding="utf-8"), _loader(shown))  # a kind of SafeLoader
    except OSError as exc:
        msg = "the bundle's file cannot be read"
        raise BundleError(msg, file=shown, found=exc.strerror) from exc
    except yaml.YAMLError as exc:
        msg = "the bundle's file is no YAML"
        raise BundleError(msg, file=shown, found=str(exc).replace("\n", " ")) from exc
    if not isinstance(found, dict):
        msg = "the bundle's file is no mapping"
        raise BundleError(msg, file=shown)
    require_known_keys(found, shown)
    told = {key: value for key, value in found.items() if value is not None}
    placed = _placed(told, path.parent.relative_to(root).as_posix())
    return dict(placed) if isinstance(placed, dict) else {}


def _placed(value: object, folder: str, key: str = "") -> object:
    """Make local paths relative to the bundle's folder."""
    if isinstance(value, Mapping):
        return {name: _placed(one, folder, str(name)) for name, one in value.items()}
    if isinstance(value, list):
        return [_placed(one, folder, key) for one in value]
    if isinstance(value, str) and _is_local(value, key):
        return posixpath.normpath(posixpath.join(folder, value))
    return value


def _is_local(value: str, key: str) -> bool:
    """Say whether a text is a path beside the file that says it; of dependencies, whether it is one of a wheel."""
    if key == "dependencies":
        return value.startswith(LOCAL) and value.endswith(".whl")
    return key in _PATHS and ":/" not in value and not value.startswith(("/", "${"))


def _loader(shown: str) -> type[Loader]:
    """Make a loader of plain values that refuses a key that stands twice."""
    yaml = _yaml()

    class Strict(yaml.SafeLoader):  # type: ignore[name-defined, misc]  # imported where it is used
        def construct_mapping(self, node: MappingNode, deep: bool = False) -> dict[Hashable, Any]:  # noqa: FBT001, FBT002  # the base's own
            seen: set[Hashable] = set()
            for name, _ in node.value:
                key: Hashable = self.construct_object(name, deep=True)
                if not isinstance(key, str | int | float | None):
                    msg = "a key is no text: what stands between braces needs quotes around it"
                    raise BundleError(msg, file=shown, line=name.start_mark.line + 1)
                if key in seen:
                    msg = f"the key {key} stands twice"
                    raise BundleError(msg, file=shown, line=name.start_mark.line + 1)
                seen.add(key)
            found: dict[Hashable, Any] = super().construct_mapping(node, deep)
            return found

    return Strict


def _yaml() -> Any:  # noqa: ANN401  # a module of an extra
    try:
        import yaml
    except ImportError as exc:
        msg = "a bundle cannot be read without PyYAML"
        raise BundleError(msg, next_step=how_to_install("databricks")) from exc
    return yaml
