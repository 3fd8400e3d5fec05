"""Show the whole way on real data: publish, apply, change a little, read the change feed.

In: a folder to work in. Out: a landing zone and Delta tables in it, and a story on standard output.
The data is one monthly update of HM Land Registry's price paid register (see
`examples/uk-price-paid`), published by `LandingZoneWriter`.
"""

from __future__ import annotations

import shlex
import shutil
import sys
import time
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

import mirrorlib
from mirrorlib.errors import LandingZoneError, MirrorError
from mirrorlib.feed.changes import first_changes
from mirrorlib.platform.shipped import find_shipped
from mirrorlib.platform.show import show_progress, show_report

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

KEY = "transaction_id"
TABLE_FOLDER = "land_registry.schema/price_paid"
TABLE = "land_registry/price_paid"

_OURS = ".mirrorlib-demo"
_MARKER = "__rowMarker__"
_MARKERS = {"A": 0, "C": 1, "D": 2}
_COLUMNS = (
    KEY, "price", "date_of_transfer", "postcode", "property_type", "new_build", "tenure", "house",
    "flat", "street", "locality", "town", "district", "county", "category", "record_status",
)  # fmt: skip
_INITIAL_ROWS, _INITIAL_FILES, _CHANGE_FILES = 60_000, 4, 6


def run_demo(folder: str | Path) -> None:
    """Publish real data in *folder*, apply it, change a few rows, apply those; tell what happened.

    A folder that an earlier demo made is begun anew; any other that is not empty is refused.
    """
    began = time.perf_counter()
    zone, target = _begin(Path(folder))
    data = read_price_paid(find_data())
    additions, changes = split(data)
    published = len(publish_all(zone, additions, changes))
    _say(
        f"Published {data.num_rows:,} rows of HM Land Registry's price paid register "
        f"as {published} change files:",
        f"  {zone / TABLE_FOLDER}",
        f"  {_INITIAL_FILES} files of additions without markers, "
        f"then {_CHANGE_FILES} of additions, changes and deletions with them.",
        "",
        "Starting Spark … (the very first time it downloads Delta's jars, about 90 MB)",
    )
    spark = mirrorlib.local_spark()
    _apply(spark, zone, target)
    rows = spark.read.format("delta").load(str(target / TABLE)).count()
    _say("", f"The Delta table has {rows:,} rows: every addition, and every change, once.")
    more = some_changes(additions)
    publish(zone, more, "made up")
    _say(
        "",
        f"Published {more.num_rows} more changes, made up for this demo: "
        "3 corrected prices, 1 deletion, 1 new sale.",
        "",
    )
    report = _apply(spark, zone, target)
    _say("", "The change feed of that commit, before and after each change:", "")
    feed = mirrorlib.read_feed(spark, target / TABLE, after=(report.tables[0].version or 0) - 1)
    shown = feed.select(KEY, "postcode", "street", "price", *feed.columns[-3:])
    show_report(first_changes(shown, TABLE, [KEY], more.num_rows))
    _say(*_what_next(Path(folder), zone, target, time.perf_counter() - began))


def find_data() -> Path:
    """Find the demo's data."""
    return find_shipped("examples", "uk-price-paid/pp-monthly-update.csv.zip")


def read_price_paid(path: Path) -> pa.Table:
    """Read the zipped CSV file: prices as numbers, dates as dates, empty text as NULL."""
    types = dict.fromkeys(_COLUMNS, pa.string()) | {
        "price": pa.int64(),
        "date_of_transfer": pa.timestamp("s"),
    }
    with (
        zipfile.ZipFile(path) as archive,
        archive.open("pp-monthly-update-new-version.csv") as file,
    ):
        data = csv.read_csv(
            file,
            read_options=csv.ReadOptions(column_names=_COLUMNS),
            convert_options=csv.ConvertOptions(
                column_types=types,
                timestamp_parsers=["%Y-%m-%d %H:%M"],
                strings_can_be_null=True,
                null_values=[""],
            ),
        )
    place = data.schema.get_field_index("date_of_transfer")
    return data.set_column(place, "date_of_transfer", data.column(place).cast(pa.date32()))


def publish_all(zone: str | Path, additions: pa.Table, changes: pa.Table) -> list[str | None]:
    """Publish the initial load and the changes, once however often it is called; return the files."""
    parts = [*_cut(additions, _INITIAL_FILES), *_cut(changes, _CHANGE_FILES)]
    return [publish(zone, part, f"register {number}") for number, part in enumerate(parts)]


def publish(zone: str | Path, rows: pa.Table, batch_id: str) -> str | None:
    """Publish one change file, which is there already where its batch was published before; return its name."""
    writer = mirrorlib.LandingZoneWriter(zone)
    return writer.table(TABLE, keys=[KEY]).write(rows, batch_id=batch_id).file


def some_changes(rows: pa.Table) -> pa.Table:
    """Make up changes of the first rows: three corrected prices, one deletion, one new sale."""
    corrected: list[dict[str, Any]] = [
        row | {"price": row["price"] + 5_000, _MARKER: 1} for row in rows.slice(0, 3).to_pylist()
    ]
    deleted = [{KEY: rows.column(KEY)[3].as_py(), _MARKER: 2}]
    model = rows.slice(4, 1).to_pylist()[0]
    sold = [model | {KEY: "{00000000-0000-0000-0000-000000000001}", "price": 1_000_000, _MARKER: 0}]
    schema = rows.schema.append(pa.field(_MARKER, pa.int32()))
    return pa.Table.from_pylist([*corrected, *deleted, *sold], schema=schema)


def _begin(folder: Path) -> tuple[Path, Path]:
    """Make an empty landing zone and an empty target."""
    if folder.exists() and not (folder / _OURS).exists() and any(folder.iterdir()):
        msg = f"the folder {folder} is not empty, and no earlier demo made it"
        raise LandingZoneError(msg, next_step="Name another with --folder PATH.")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / _OURS).touch()
    zone, target = folder.resolve() / "landing", folder.resolve() / "tables"
    for place in (zone, target):
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir()
    return zone, target


def split(data: pa.Table) -> tuple[pa.Table, pa.Table]:
    """Split the register into an initial load without markers and the changes with them."""
    added = pc.equal(data["record_status"], "A")
    first = pc.and_(added, pc.less_equal(pc.cumulative_sum(added.cast(pa.int32())), _INITIAL_ROWS))
    changes = data.filter(pc.invert(first))
    statuses = changes["record_status"].to_pylist()
    markers = pa.array([_MARKERS[status] for status in statuses], pa.int32())
    status = ["record_status"]
    marked = changes.drop_columns(status).append_column(_MARKER, markers)
    return data.filter(first).drop_columns(status), marked


def _cut(rows: pa.Table, parts: int) -> list[pa.Table]:
    size = -(-rows.num_rows // parts)
    return [rows.slice(start, size) for start in range(0, rows.num_rows, size)]


def _apply(spark: SparkSession, zone: Path, target: Path) -> mirrorlib.ApplyReport:
    with show_progress() as observe:
        report = mirrorlib.apply(spark, str(zone), str(target), observe=observe)
    show_report(report)
    if not report.ok:
        msg = "the demo's table could not be applied"
        raise MirrorError(msg, table=TABLE, next_step=report.tables[0].reason)
    return report


def _what_next(folder: Path, zone: Path, target: Path, seconds: float) -> tuple[str, ...]:
    command = shlex.quote(sys.argv[0])  # as it was called
    landing, tables = (_short(place) for place in (zone, target))
    return (
        "",
        f"All of it took {seconds:.0f} s. The tables are plain Delta: {_short(target / TABLE)}",
        "Try next:",
        f"  {command} status {tables}",
        f"  {command} plan {landing} {tables}",
        f"  {command} apply {landing} {tables}",
        "      (applies nothing: every change file has its effect once)",
        f"  {command} apply {landing} {tables} --watch 5",
        "      (then publish files of your own; Ctrl-C ends it)",
        f"  rm -r {_short(folder.resolve())}",
    )


def _short(path: Path) -> str:
    here = Path.cwd()
    return shlex.quote(str(path.relative_to(here) if path.is_relative_to(here) else path))


def _say(*lines: str) -> None:
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    sys.stdout.flush()
