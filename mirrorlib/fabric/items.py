"""Write Fabric items: a lakehouse, an environment with the wheel, the notebooks, and pipelines that run them.

In: a folder and the wheel. Out: one folder an item, as git integration and fabric-cicd read them. Promise:
the same input gives the same bytes; ids are made of names, so items that were published stay the same ones.
Folders of other items are left alone.
"""

from __future__ import annotations

import json
import shutil
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from mirrorlib.errors import LandingZoneError
from mirrorlib.platform.shipped import find_shipped

_THIS_WORKSPACE = "00000000-0000-0000-0000-000000000000"  # what is published replaces it
_STARS = "********************"  # behind the kind of a cell, in Fabric's source of a notebook
_SCHEMAS = "https://developer.microsoft.com/json-schemas/fabric/gitIntegration"
_NAMESPACE = uuid.UUID("3f2d3c5e-3a86-4c4b-9a3e-52a2a3c3f7d1")  # of our ids, whatever it is
_HOME = "mirrorlib"
_NOTEBOOKS = {
    "initial_load": "Load every table of a landing zone for the first time.",
    "incremental_apply": "Apply new change files, each exactly once.",
    "export_feed": "Deliver the change feed to one consumer.",
    "propagate_keys": "Keep a table that is made of others, with the keys that survive.",
    "check_landing_zone": "Review a landing zone as a strict reader.",
    "status": "Show how tables stand, and what was applied.",
    "self_test": "Try what this workspace lets through, with tables of its own.",
    "tour": "Go the whole way on real data.",
}
TABLES = "Tables"  # for a zone whose tables are in `.schema` folders: the lakehouse wants Tables/<schema>/<table>
# What the runtime has not; it has pyarrow. One version, so that an environment that is published again is the same: the
# one that the tests on Spark 3.5 run with.
_PACKAGES = "dependencies:\n  - pip:\n      - obstore==0.12.1\n"


class _Item(NamedTuple):
    """One item: its type, its name, what it is for, and the files of its folder."""

    type: str
    name: str
    what: str
    files: Mapping[str, str | bytes]


def write_items(
    folder: str | Path,
    wheel: str | Path,
    *,
    tables: Sequence[str] = (),
    target: str = TABLES,
    every: int | None = None,
) -> list[str]:
    """Write every item; return the names of their folders.

    Args:
        folder: where to; items of ours that are there are written anew.
        wheel: what the environment holds.
        tables: names or globs that the pipelines go through, a run each; without them all tables by one run.
        target: where in the lakehouse tables go: `Tables`, or `Tables/dbo` for a zone without `.schema` folders.
        every: minutes between two runs of the incremental apply; without them it is given no schedule.
    """
    root, file = Path(folder), Path(wheel)
    if not str(folder):
        msg = "the folder for the items has no name"
        raise LandingZoneError(msg, next_step="Name one; a variable may be empty.")
    if not file.is_file() or file.suffix != ".whl":
        msg = "there is no such wheel"
        step = "Build one, in a clone: make wheel"
        raise LandingZoneError(msg, found=str(wheel), next_step=step)
    lakehouse = {"lakehouse.metadata.json": _json({"defaultSchema": "dbo"})}
    environment: dict[str, str | bytes] = {
        f"Libraries/CustomLibraries/{file.name}": file.read_bytes(),
        "Libraries/PublicLibraries/environment.yml": _PACKAGES,
        "Setting/Sparkcompute.yml": "enable_native_execution_engine: false\nruntime_version: 1.3\n",
    }
    items = (
        _Item("Lakehouse", _HOME, "The landing zone, the tables and the journal.", lakehouse),
        _Item("Environment", _HOME, "The wheel.", environment),
        *(_notebook(name, what) for name, what in _NOTEBOOKS.items()),
        *(_pipeline(name, tables, target, every) for name in ("initial_load", "incremental_apply")),
    )
    return [_write(root, item) for item in items]


def item_id(kind: str, name: str) -> str:
    """Return an item's id, the same every time."""
    return str(uuid.uuid5(_NAMESPACE, f"{kind}/{name}"))


def _notebook(name: str, what: str) -> _Item:
    found = find_shipped("notebooks", f"{name}.ipynb")
    cells = json.loads(found.read_text(encoding="utf-8"))["cells"]
    bound = {
        "lakehouse": {
            "default_lakehouse": item_id("Lakehouse", _HOME),
            "default_lakehouse_name": _HOME,
            "default_lakehouse_workspace_id": _THIS_WORKSPACE,
        },
        "environment": {
            "environmentId": item_id("Environment", _HOME),
            "workspaceId": _THIS_WORKSPACE,
        },
    }
    files = {"notebook-content.py": _notebook_source(cells, bound)}
    return _Item("Notebook", _title(name), what, files)


def _notebook_source(cells: Sequence[Mapping[str, Any]], dependencies: Mapping[str, Any]) -> str:
    """Say a notebook as Fabric's git format does: one Python file, cells between comments.

    The cell that is tagged parameters says so, or a pipeline's values would have no effect. Magics are not
    expected: the notebooks that ship have none.
    """
    head = {"kernel_info": {"name": "synapse_pyspark"}, "dependencies": dependencies}
    parts = ["# Fabric notebook source\n", _metadata(head)]
    for cell in cells:
        text = "".join(cell["source"])  # one text, or its lines
        if cell["cell_type"] == "markdown":
            lines = "\n".join(f"# {line}".rstrip() for line in text.splitlines())
            parts.append(f"# MARKDOWN {_STARS}\n\n{lines}\n")
            continue
        is_parameters = "parameters" in cell.get("metadata", {}).get("tags", ())
        kind = "PARAMETERS CELL" if is_parameters else "CELL"
        language = {"language": "python", "language_group": "synapse_pyspark"}
        parts += [f"# {kind} {_STARS}\n\n{text}\n", _metadata(language)]
    return "\n".join(parts)


def _metadata(value: Mapping[str, Any]) -> str:
    lines = "\n".join(f"# META {line}" for line in json.dumps(value, indent=2).splitlines())
    return f"# METADATA {_STARS}\n\n{lines}\n"


def _pipeline(name: str, tables: Sequence[str], target: str, every: int | None) -> _Item:
    """Say a pipeline: its parameters, and a loop over its tables that runs the notebook; and when it runs."""
    # In the default lakehouse; the notebooks make OneLake's addresses of these.
    parameters = {"landing_zone": "Files/landing", "target": target, "state": "Files/mirrorlib"}
    handed = {one: _expression(f"@pipeline().parameters.{one}") for one in parameters}
    run = {
        "name": f"Run {name}",
        "type": "TridentNotebook",
        "dependsOn": [],
        "policy": {
            "timeout": "0.12:00:00",
            "retry": 2,
            "retryIntervalInSeconds": 60,
            "secureInput": False,
            "secureOutput": False,
        },
        "typeProperties": {
            "notebookId": item_id("Notebook", _title(name)),
            "workspaceId": _THIS_WORKSPACE,
            "parameters": {**handed, "tables": _expression("@item()")},
        },
    }
    loop = {
        "name": "For each",
        "type": "ForEach",
        "dependsOn": [],
        "typeProperties": {
            "items": {"value": "@pipeline().parameters.tables", "type": "Expression"},
            "isSequential": False,
            "batchCount": 4,  # tables at once
            "activities": [run],
        },
    }
    known: dict[str, dict[str, Any]] = {
        one: {"type": "string", "defaultValue": value} for one, value in parameters.items()
    }
    known["tables"] = {"type": "array", "defaultValue": list(tables) or ["*"]}
    content = {"activities": [loop], "parameters": known, "concurrency": 1}
    files = {"pipeline-content.json": _json({"properties": content})}
    if every and name == "incremental_apply":  # else a schedule that is there would be replaced
        files[".schedules"] = _schedules(every)
    return _Item("DataPipeline", _title(name), _NOTEBOOKS[name], files)


def _expression(text: str) -> dict[str, Any]:
    return {"value": {"value": text, "type": "Expression"}, "type": "string"}


def _schedules(every: int) -> str:
    """Say a schedule: every so many minutes."""
    when = {
        "type": "Cron",
        "startDateTime": "2026-01-01T00:00:00",  # Fabric wants both
        "endDateTime": "2036-01-01T00:00:00",
        "localTimeZoneId": "UTC",
        "interval": every,  # minutes
    }
    schedule = {"enabled": True, "jobType": "Execute", "configuration": when}
    return _json({"$schema": f"{_SCHEMAS}/schedules/1.0.0/schema.json", "schedules": [schedule]})


def _title(name: str) -> str:
    return f"{_HOME} {name.replace('_', ' ')}"


def _write(root: Path, item: _Item) -> str:
    folder = root / f"{item.name}.{item.type}"
    if folder.exists():
        shutil.rmtree(folder)
    platform: dict[str, Any] = {
        "$schema": f"{_SCHEMAS}/platformProperties/2.0.0/schema.json",
        "metadata": {"type": item.type, "displayName": item.name, "description": item.what},
        "config": {"version": "2.0", "logicalId": item_id(item.type, item.name)},
    }
    for name, content in {".platform": _json(platform), **item.files}.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return folder.name


def _json(value: object) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False) + "\n"
