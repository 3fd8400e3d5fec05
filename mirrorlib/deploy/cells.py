"""Read a notebook's cells without running them: its parameters, which of them have to be given, what it imports.

In: the path of a notebook. Out: names and values. A cell that is no Python, as one of SQL, says nothing here.
"""

from __future__ import annotations

import ast
import json
import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

_SOURCE = "# Databricks notebook source"
_WIDGET = re.compile(r"dbutils\.widgets\.(text|dropdown|combobox|multiselect)")
_EMPTY = ("", "[]")
_MAGIC = re.compile(r"^([ \t]*)[%!].*$", re.MULTILINE)  # %pip, !ls: lines for the notebook's host


def asks_for(path: Path, package: str) -> bool:
    """Say whether a notebook uses a package that it does not install itself."""
    text = path.read_text(encoding="utf-8")
    return (
        "%pip" not in text
        and re.search(rf"\b(from|import) {re.escape(package)}\b", text) is not None
    )


def read_parameters(path: Path) -> dict[str, object] | None:
    """Read the cell of parameters; None when there is no such notebook.

    Raises:
        ValueError: a parameter is no literal, or the cell no Python.

    """
    if path.suffix == ".py":
        return _read_widgets(path.read_text(encoding="utf-8")) if path.is_file() else None
    cells = _cells(path)
    if cells is None:
        return None
    parts = (cell for cell in cells if "parameters" in cell.get("metadata", {}).get("tags", ()))
    tree = _parsed("\n".join(_source(cell) for cell in parts))
    msg = "its cell of parameters holds more than literals"
    if tree is None:
        raise ValueError(msg)
    try:
        return {
            ast.unparse(one.targets[0]): ast.literal_eval(one.value)
            for one in tree.body
            if isinstance(one, ast.Assign)
        }
    except (TypeError, ValueError) as exc:
        raise ValueError(msg) from exc


def _read_widgets(source: str) -> dict[str, object] | None:
    """Read the widgets that a notebook in the source format makes; None when it is no notebook."""
    tree = _parsed(source) if source.startswith(_SOURCE) else None
    if tree is None:
        return None
    calls = (one for one in ast.walk(tree) if isinstance(one, ast.Call) and one.args)
    return {
        str(call.args[0].value): ""
        for call in calls
        if isinstance(call.args[0], ast.Constant) and _WIDGET.fullmatch(ast.unparse(call.func))
    }


def needed_parameters(path: Path) -> list[str]:
    """Name the parameters that are empty in their cell, and of a kind that has to be given."""
    cell = read_parameters(path) or {}
    sources = (_source(part) for part in _cells(path) or [] if part["cell_type"] == "code")
    kinds = {
        str(one.arg): ast.unparse(one.value)
        for tree in map(_parsed, sources)
        if tree is not None
        for call in ast.walk(tree)
        if isinstance(call, ast.Call) and ast.unparse(call.func).endswith("resolve")
        for one in call.keywords
    }
    return [name for name, value in cell.items() if _is_needed(kinds.get(name, ""), value)]


def _parsed(source: str) -> ast.Module | None:
    """Parse a cell, without the lines that are its host's; None when it is of another language."""
    for text in (source, _MAGIC.sub(r"\1pass", source)):
        try:
            return ast.parse(text)
        except SyntaxError:
            continue
    return None


def _is_needed(kind: str, value: object) -> bool:
    """Say whether a parameter has no default: an empty text, or, of places, an empty list."""
    if not kind or kind == "list[str]" or "None" in kind:  # empty means all of them, or not given
        return False
    return value in _EMPTY if kind.startswith("list[") else value == ""


def _cells(path: Path) -> list[dict[str, Any]] | None:
    try:
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return cells if isinstance(cells, list) else None


def _source(cell: dict[str, Any]) -> str:
    source = cell.get("source", "")
    return source if isinstance(source, str) else "".join(source)
