"""Find the Delta tables of a target: the folders below a root, or the tables of a catalog's schema.

In: a place as a caller says it. Out: names, and what `find_feed_table` takes for each.
"""

from __future__ import annotations

from itertools import dropwhile
from typing import TYPE_CHECKING

from mirrorlib.errors import StoreError
from mirrorlib.identifiers import quote
from mirrorlib.names import TableName, matches
from mirrorlib.store import open_store

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark.sql import SparkSession

    from mirrorlib.store import Store

LEDGER, EVENTS = (
    "mirrorlib_ledger",
    "mirrorlib_events",
)  # kept by `operate.book`, often beside mirrors
_DETAILS = "# Detailed Table Information"
_DEPTH = 3  # folders below a root: catalog, schema, table


def find_tables(
    spark: SparkSession, place: str, catalog: str | None, patterns: Sequence[str] = ()
) -> list[tuple[str, str]]:
    """Find tables by name or glob, all without one; views and tables of other formats are none.

    A ledger that is kept in the same place is found by its name only: its rows are about the others.

    Raises:
        StoreError: the place cannot be listed.

    """
    found = _of_schema(spark, catalog, place) if catalog is not None else _of_folder(place)
    asked = [
        (name, address)
        for name, address in found
        if _asked(name, patterns) and (name == place or not _is_ledger(name, patterns))
    ]
    if catalog is None:
        return asked
    return [(name, address) for name, address in asked if _may_be_delta(spark, address)]


def _asked(name: str, patterns: Sequence[str]) -> bool:
    schema, _, table = name.rpartition("/")
    return matches(TableName(schema or None, table), patterns)


def _is_ledger(name: str, patterns: Sequence[str]) -> bool:
    """Say whether a table is about others, and nobody has named it."""
    table = name.rpartition("/")[2]
    return table in {LEDGER, EVENTS} and not {name, table} & set(patterns)


def _of_schema(spark: SparkSession, catalog: str, schema: str) -> list[tuple[str, str]]:
    rows = spark.sql(f"SHOW TABLES IN {quote(catalog)}.{quote(schema)}").collect()
    names = sorted(row["tableName"] for row in rows if not row["isTemporary"])
    return [(name, ".".join(map(quote, (catalog, schema, name)))) for name in names]


def _may_be_delta(spark: SparkSession, address: str) -> bool:
    """Leave out what the catalog knows to be something else; what it cannot describe is whoever's who reads it."""
    from pyspark.errors import AnalysisException

    try:
        rows = spark.sql(f"DESCRIBE TABLE EXTENDED {address}").collect()
    except (
        AnalysisException
    ):  # such as a table whose folder is gone, which is to be told by its name
        return True
    details = dropwhile(
        lambda row: row["col_name"] != _DETAILS, rows
    )  # behind the table's own columns
    told = {row["col_name"]: row["data_type"] for row in details}
    return told.get("Provider", "delta").lower() == "delta" and not told.get("Type", "").endswith(
        "VIEW"
    )


def _of_folder(place: str) -> list[tuple[str, str]]:
    store = open_store(place)
    names = list(_walk(store, "", _DEPTH))
    return [(name or place, f"{store.url}/{name}".rstrip("/")) for name in names]


def _walk(store: Store, folder: str, depth: int) -> Iterator[str]:
    """Find the Delta tables at and below a folder; a table holds no tables."""
    there = store.list_folder(folder)
    if there is None and not folder:
        msg = f"there is no folder {store.url}"
        raise StoreError(msg, next_step="Check the path.")
    if there is None:
        return
    if "_delta_log" in there.folders:
        yield folder
        return
    for name in there.folders if depth else ():
        if not name.startswith(("_", ".")):
            yield from _walk(store, f"{folder}/{name}".lstrip("/"), depth - 1)
