"""Tell OpenLineage of batches, windows and derived tables: runs that read files or versions, and make a version.

What MERGE reads of its own target is no input. A run's start is told at its end: nobody knows before what it does.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from openlineage.client import OpenLineageClient
from openlineage.client import event_v2 as ol
from openlineage.client import facet_v2 as facets
from openlineage.client.uuid import generate_new_uuid

from mirrorlib.delta.address import split_dotted
from mirrorlib.names import TableName, parse_name
from mirrorlib.operate.listeners.listen import Tell

_JOBS = {"batch": "apply", "block": "apply", "failure": "apply", "derive": "derive"}
_SCHEME = re.compile(r"(delta|files|zone|jdbc):(?!//)")  # in front of a receiver's own place


def open_client(client: OpenLineageClient | None = None) -> Tell:
    """Tell a client, by default the one that OpenLineage's own variables set up."""
    told = client or OpenLineageClient()

    def tell(record: logging.LogRecord, said: Mapping[str, Any]) -> None:
        way = said.get("consumer") or _JOBS.get(said["event"])
        if way is None or not said["table"] or said["event"] in {"recovery", "verify"}:
            return
        fails, job = record.levelno > logging.INFO, ol.Job("mirrorlib", f"{way}.{said['table']}")
        what = facets.error_message_run.ErrorMessageRunFacet(record.getMessage(), "python")
        run = ol.Run(str(generate_new_uuid()), {"errorMessage": what} if fails else {})
        end = ol.RunState.FAIL if fails else ol.RunState.COMPLETE
        for kind, ago in ((ol.RunState.START, said.get("seconds", 0)), (end, 0)):
            at = datetime.fromtimestamp(record.created - ago, UTC).isoformat()
            one = ol.RunEvent(eventTime=at, eventType=kind, run=run, job=job)
            one.inputs, one.outputs = _inputs(said), _outputs(said)
            told.emit(one)

    return tell


def _inputs(said: Mapping[str, Any]) -> list[ol.InputDataset]:
    if "names" in said:
        some = facets.base_subset_dataset.LocationSubsetCondition(said["names"])
        only = facets.base_subset_dataset.InputSubsetInputDatasetFacet(some)
        return [ol.InputDataset(*_named(said["zone"]), {"subset": only})]
    read = said.get("sources", ())
    return [ol.InputDataset(*_named(at), facets=_version(until)) for at, until in read]


def _outputs(said: Mapping[str, Any]) -> list[ol.OutputDataset]:
    if "to" in said:
        return [ol.OutputDataset(*_received(said["to"], parse_name(said["table"])))]
    if "columns" not in said:
        return []
    schema, of = facets.schema_dataset, facets.column_lineage_dataset
    columns = [schema.SchemaDatasetFacetFields(*one) for one in said["columns"].items()]
    told = {**_version(said["version"]), "schema": schema.SchemaDatasetFacet(columns)}
    origins = {
        name: of.Fields([of.InputField(*_named(at), column) for at, column in columns])
        for name, columns in said.get("origins", {}).items()
    }
    if origins:
        told["columnLineage"] = of.ColumnLineageDatasetFacet(origins)
    return [ol.OutputDataset(*_named(said["address"]), facets=told)]


def _version(version: int) -> dict[str, facets.DatasetFacet]:
    return {"version": facets.dataset_version_dataset.DatasetVersionDatasetFacet(str(version))}


def _received(to: str, table: TableName) -> tuple[str, str]:
    """Name what a receiver has of a table, as whoever reads it there does."""
    kind, place = to.partition(":")[0], _SCHEME.sub("", to).partition("?")[0]
    if kind == "kafka":
        place = place.replace("{schema}", table.schema or "").replace("{table}", table.table)
        return _named(place)
    if place.startswith("postgresql:"):
        schema = f"{place.replace('postgresql', 'postgres', 1)}.{table.schema or 'public'}"
        return _named(f"{schema}.{table.table}")
    if kind == "delta" and not {"/", "\\"} & {*place}:
        return "spark", ".".join((*split_dotted(place), table.table))
    return _named(f"{place}/{table.folder if kind == 'zone' else table}")


def _named(place: str) -> tuple[str, str]:
    """Name a place as OpenLineage does: a namespace, and a name in it."""
    if place.startswith("`"):
        return "spark", ".".join(split_dotted(place))
    if "://" not in place:
        return "file", place
    scheme, _, rest = place.partition("://")  # in a store, a `#` or `?` is part of a name
    host, _, path = rest.partition("/")
    return f"{scheme.replace('s3a', 's3')}://{host}", path.strip("/")
