"""Look at a target table: what it is, and what it has for columns.

In: its address. Out: `Found`, as the applier knows tables, and its schema. A table by path is read from
its log, without a job; one of a catalog is asked for.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from mirrorlib.delta.columns import to_columns
from mirrorlib.delta.commits import Commits
from mirrorlib.delta.log import FileLog, commit_path
from mirrorlib.delta.table import Found, find_table, read_table
from mirrorlib.store import open_store

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

    from mirrorlib.delta.table import TableRef
    from mirrorlib.store import Store


def find_target(spark: SparkSession, ref: TableRef) -> tuple[Found, StructType] | None:
    """Look at a table; None when there is none.

    Raises:
        LandingZoneError: something that is no Delta table has its place.

    """
    from pyspark.sql.types import StructType

    if ref.path is None:
        found = find_table(spark, ref)
        return None if found is None else (found, read_table(spark, ref).schema)
    store = open_store(ref.path)
    version = FileLog(store).newest()
    if version is None:
        return None
    metadata = Commits(store, str(ref.name)).metadata_at(version)
    schema = StructType.fromJson(dict(metadata.schema))
    size = _size(store, version)
    if size is None:
        size = spark.sql(f"DESCRIBE DETAIL {ref.sql}").collect()[0]["sizeInBytes"]
    found = Found(
        id=metadata.id,
        bytes=size or 0,
        columns=to_columns((field.name, field.dataType.simpleString()) for field in schema.fields),
        properties=metadata.properties,
        location=ref.path,
    )
    return found, schema


def read_checksum(store: Store, version: int) -> Mapping[str, Any]:
    """Read what the writer of a version has noted of the table as a whole; nothing where it has not, or not yet.

    Source: Delta PROTOCOL.md, "Version Checksum File".
    """
    data = store.read(commit_path(version).removesuffix("json") + "crc")
    try:
        told: Any = json.loads(data or b"{}")
    except ValueError:  # it is not written at once
        return {}
    return told if isinstance(told, dict) else {}


def _size(store: Store, version: int) -> int | None:
    """Return a table's bytes, where the writer of its newest version has told them."""
    size = read_checksum(store, version).get("tableSizeBytes")
    return size if isinstance(size, int) else None
