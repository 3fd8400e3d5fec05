"""Say a notebook as Fabric's git format does: one Python file, cells between comments.

In: a notebook's cells, and what it is bound to. Out: the text of `notebook-content.py`. Magics are not
expected: the notebooks that ship have none.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

_STARS = "********************"
_CELL = {"language": "python", "language_group": "synapse_pyspark"}


def notebook_source(cells: Sequence[Mapping[str, Any]], dependencies: Mapping[str, Any]) -> str:
    """Return the file; the cell that is tagged parameters says so, or a pipeline's values would have no effect."""
    head = {"kernel_info": {"name": "synapse_pyspark"}, "dependencies": dependencies}
    parts = ["# Fabric notebook source\n", _metadata(head)]
    for cell in cells:
        source = cell["source"]
        text = source if isinstance(source, str) else "".join(source)
        if cell["cell_type"] == "markdown":
            parts.append(f"# MARKDOWN {_STARS}\n\n{_commented(text)}\n")
            continue
        is_parameters = "parameters" in cell.get("metadata", {}).get("tags", ())
        kind = "PARAMETERS CELL" if is_parameters else "CELL"
        parts += [f"# {kind} {_STARS}\n\n{text}\n", _metadata(_CELL)]
    return "\n".join(parts)


def _commented(text: str) -> str:
    return "\n".join(f"# {line}".rstrip() for line in text.splitlines())


def _metadata(value: Mapping[str, Any]) -> str:
    lines = "\n".join(f"# META {line}" for line in json.dumps(value, indent=2).splitlines())
    return f"# METADATA {_STARS}\n\n{lines}\n"
