"""Count what a run asks of an object store: listings, journal, Delta's log and data, Spark's own requests among them.

The store is moto's server of S3's protocol in this process, the Spark has S3's connector: what is counted has come over
the wire. Its seconds mean nothing, as Python answers.
"""

from __future__ import annotations

import json
import logging
import statistics
import urllib.request
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs

import pyarrow as pa
from data import MARKER
from listing import s3_server

import mirrorlib
from mirrorlib.store import open_store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BUCKET = "scaling"
ZONE, TARGET = f"s3://{BUCKET}/zone", f"s3://{BUCKET}/tables"
_COMMITS = 11  # the last ten have one of Delta's checkpoints among them
_NAMES = 1_500  # folders of a zone that is only listed: two pages
WRITES = ("PUT", "COPY", "POST", "LIST")  # what S3 prices like a write

Counts = dict[str, dict[str, float]]


def count_requests() -> dict[str, Any]:
    """Count a table's first batch, its later ones and its looks, and what finding all tables takes."""
    logging.getLogger("werkzeug").setLevel(logging.ERROR)  # a line for each request
    with s3_server() as (address, served):
        make = urllib.request.Request(f"{address}/{BUCKET}", method="PUT")  # noqa: S310  # our own server
        urllib.request.urlopen(make).close()  # noqa: S310  # the same
        spark = mirrorlib.local_spark(cores=2, memory="2g", stores=[ZONE])
        try:
            found = _count_table(spark, served)
            found["find"] = _count_find(spark, served)
        finally:
            spark.stop()
    for what, counts in found.items():
        print(f"  {what}: {counts}")
    return found


def _count_table(spark: SparkSession, served: list[dict[str, Any]]) -> dict[str, Any]:
    table = mirrorlib.LandingZoneWriter(ZONE).table("t", keys="id")

    def look(**options: Any) -> Counts:  # noqa: ANN401  # any option
        return _counted(served, lambda: _apply(spark, **options))

    def change(number: int) -> Counts:
        table.write(_rows(number))
        return look()

    table.write(_rows(0))
    first = look()
    commits = [change(number) for number in range(1, _COMMITS + 1)][-10:]
    idle = [look() for _ in range(2)]
    short = [look(listing="incremental") for _ in range(2)]
    mean = {
        place: {
            verb: round(statistics.mean(one.get(place, {}).get(verb, 0) for one in commits), 2)
            for verb in verbs
        }
        for place, verbs in _kinds(commits).items()
    }
    return {"first": first, "commit": mean, "idle": idle[-1], "idle, incremental": short[-1]}


def _kinds(counts: list[Counts]) -> dict[str, list[str]]:
    places = sorted({place for one in counts for place in one})
    return {
        place: sorted({verb for one in counts for verb in one.get(place, {})}) for place in places
    }


def _count_find(spark: SparkSession, served: list[dict[str, Any]]) -> dict[str, Any]:
    """Count what a run of one table asks for where the zone has thousands that are none of its own."""
    store = open_store(ZONE)
    before = _counted(served, lambda: _apply(spark, tables=["t"]))
    for number in range(_NAMES):
        store.put(f"other{number:05d}/_metadata.json", b'{"keyColumns": ["id"]}')
    after = _counted(served, lambda: _apply(spark, tables=["t"]))
    return {"folders": _NAMES, "before": before, "after": after}


def _apply(spark: SparkSession, **options: Any) -> None:  # noqa: ANN401  # any option
    report = mirrorlib.apply(spark, ZONE, TARGET, **options)
    if not report.ok:
        raise SystemExit(str(report))


def _rows(number: int) -> pa.Table:
    ids = pa.array(range(number, number + 10), pa.int64())
    rows = pa.table({"id": ids, "v": pa.array([f"v{number}"] * 10)})
    return rows.append_column(MARKER, pa.array([4] * 10, pa.int32()))


def _counted(served: list[dict[str, Any]], call: Callable[[], object]) -> Counts:
    before = len(served)
    call()
    found = Counter(map(_kind, served[before:]))
    counts: Counts = {}
    for (place, verb), count in sorted(found.items()):
        counts.setdefault(place, {})[verb] = count
    return counts


def _kind(environ: dict[str, Any]) -> tuple[str, str]:
    """Say what a request is about, and what kind it is."""
    query = parse_qs(environ.get("QUERY_STRING", ""), keep_blank_values=True)
    verb, path = (
        environ["REQUEST_METHOD"],
        environ["PATH_INFO"].removeprefix(f"/{BUCKET}").lstrip("/"),
    )
    if verb == "GET" and ("prefix" in query or "list-type" in query):
        verb, path = "LIST", query.get("prefix", [""])[0]
    if "HTTP_X_AMZ_COPY_SOURCE" in environ:
        verb = "COPY"
    if path.startswith("zone"):
        return "zone", verb
    if "_mirrorlib" in path:
        return "journal", verb
    return ("log" if "_delta_log" in path else "data"), verb


def total(counts: Counts, *, writes: bool | None = None) -> float:
    """Sum up requests: all, or those that are priced like writes, or those that are not."""
    return sum(
        count
        for verbs in counts.values()
        for verb, count in verbs.items()
        if writes is None or (verb in WRITES) == writes
    )


if __name__ == "__main__":
    print(json.dumps(count_requests(), indent=1))
