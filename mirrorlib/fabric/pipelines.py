"""Say a Fabric pipeline that runs a notebook for each table, and when.

In: the notebook's id, and what it is handed. Out: the JSON of `pipeline-content.json` and `.schedules`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

THIS_WORKSPACE = "00000000-0000-0000-0000-000000000000"  # what is published replaces it
_SCHEDULES = (
    "https://developer.microsoft.com/json-schemas/fabric/gitIntegration/schedules/1.0.0/schema.json"
)
_AT_ONCE = 4
_FIRST, _LAST = "2026-01-01T00:00:00", "2036-01-01T00:00:00"  # Fabric wants both
USUAL_MINUTES = 15


def pipeline_content(
    name: str, notebook: str, parameters: Mapping[str, str], tables: Sequence[str]
) -> dict[str, Any]:
    """Return a pipeline: its parameters, and a loop over its tables that runs the notebook.

    Args:
        name: the notebook's name, for the activity.
        notebook: its id.
        parameters: what it is handed, and the pipeline's defaults of it.
        tables: names or globs, a run each; the pipeline's default.

    """
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
            "notebookId": notebook,
            "workspaceId": THIS_WORKSPACE,
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
            "batchCount": _AT_ONCE,
            "activities": [run],
        },
    }
    known = {one: {"type": "string", "defaultValue": value} for one, value in parameters.items()}
    listed = {"type": "array", "defaultValue": list(tables)}
    return {
        "properties": {
            "activities": [loop],
            "parameters": {**known, "tables": listed},
            "concurrency": 1,
        }
    }


def schedules(every: int | None) -> dict[str, Any]:
    """Return a schedule: every so many minutes, or one that is switched off."""
    return {
        "$schema": _SCHEDULES,
        "schedules": [
            {
                "enabled": every is not None,
                "jobType": "Execute",
                "configuration": {
                    "type": "Cron",
                    "startDateTime": _FIRST,
                    "endDateTime": _LAST,
                    "localTimeZoneId": "UTC",
                    "interval": every or USUAL_MINUTES,
                },
            }
        ],
    }


def _expression(text: str) -> dict[str, Any]:
    return {"value": {"value": text, "type": "Expression"}, "type": "string"}
