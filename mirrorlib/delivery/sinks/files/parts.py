"""Write a window by Spark: a few files whose rows stand in the order of the changes.

In: a delivery. Out: `Parts`, files in a folder that nobody else knows yet, and their number of rows.
Promises: read one after another, the parts of changes are in order of the commit version, then of the
key; of one key in one version what is removed stands before what takes its place. A snapshot has no
order. Nothing passes through this process. A small window is one file; how many a large one becomes
is left to Spark.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mirrorlib.delta.sessions import configured
from mirrorlib.feed.net import DELETE, KIND, POST, PRE, VERSION
from mirrorlib.identifiers import quote

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pyspark.sql import DataFrame

    from mirrorlib.delivery.sink import Delivery
    from mirrorlib.store import Store, StoredFile

_ROWS_PER_FILE = 5_000_000  # at most, where Spark has fewer partitions than the window needs
_FASTER = {
    # Small partitions are joined until they are worth a file, and not kept apart for the sake of more cores.
    "spark.sql.adaptive.enabled": "true",
    "spark.sql.adaptive.coalescePartitions.enabled": "true",
    "spark.sql.adaptive.coalescePartitions.parallelismFirst": "false",
    "spark.sql.adaptive.advisoryPartitionSizeInBytes": "128m",
}
_CONF = {
    # Spark's default, INT96, is read as nanoseconds by others: years after 2262 would be lost.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
    "spark.sql.legacy.timeParserPolicy": "CORRECTED",
}
_NUMBERS = re.compile(r"part-(\d+)-.*?(?:-c(\d+))?\.[^-]*")
_ROWS = "rows"


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What Spark wrote.

    Attributes:
        files: in order.
        rows: how many there are in all of them.

    """

    files: tuple[StoredFile, ...]
    rows: int


def write_parts(
    delivery: Delivery,
    store: Store,
    folder: str,
    file_format: str,
    *,
    shape: Callable[[DataFrame], DataFrame],
    options: Mapping[str, str],
) -> Parts:
    """Write a window into a new folder.

    Args:
        delivery: the window.
        store: where to.
        folder: there; nobody else's.
        file_format: as Spark names it.
        shape: what is made of the rows, one by one, once they are in order.
        options: more options of Spark's writer.

    """
    from pyspark.sql import Observation
    from pyspark.sql import functions as f

    counted = Observation()
    with configured(delivery.frame.sparkSession, _CONF, _FASTER):
        rows = shape(_in_order(delivery)).observe(counted, f.count(f.lit(1)).alias(_ROWS))
        writer = rows.write.format(file_format).options(**options)
        writer.option("maxRecordsPerFile", _ROWS_PER_FILE).save(store.uri(folder))
    listed = store.list_folder(folder)
    found = [file for file in listed.files if file.name.startswith("part-")] if listed else []
    return Parts(files=tuple(sorted(found, key=_place)), rows=int(counted.get[_ROWS]))


def _in_order(delivery: Delivery) -> DataFrame:
    """Put changes in order; a snapshot, whose rows are of one version, is only divided evenly."""
    from pyspark.sql import functions as f

    frame = delivery.frame
    if delivery.plan.kind == "snapshot":
        return frame.hint("rebalance")  # known to Spark only while plans are adapted
    kind = f.col(KIND)
    place = f.when(kind == DELETE, 0).when(kind == PRE, 1).when(kind == POST, 2).otherwise(3)
    return frame.orderBy(VERSION, *map(quote, delivery.keys), place)


def _place(file: StoredFile) -> tuple[int, int, str]:
    """Read a part's place: the partition, and the file of it where it was too large for one."""
    found = _NUMBERS.fullmatch(file.name)
    return (int(found[1]), int(found[2] or 0), file.name) if found else (0, 0, file.name)
