"""`mirrorlib publish` and `check`: put the rows of a file into a landing zone, and review one. Neither needs Spark."""

from __future__ import annotations

import argparse
from pathlib import Path

from mirrorlib.cli.arguments import JSON, PLACE
from mirrorlib.cli.command import Command, call_shown, say
from mirrorlib.errors import LandingZoneError
from mirrorlib.tabular import Report


def _publish(arguments: argparse.Namespace) -> bool:
    """Publish a file, and say of each change file what it holds."""
    from mirrorlib.landing.publish.writer import LandingZoneWriter

    path = arguments.file
    if not Path(path).exists():
        msg = "the file to publish is not there"
        step = "Give the path of a file of this machine, no URL; nothing was published."
        # A URL may have credentials in it.
        shown = path.rpartition("@")[2].partition("?")[0] if "://" in path else path
        raise LandingZoneError(msg, table=arguments.table, file=shown, next_step=step)
    table = LandingZoneWriter(arguments.landing_zone, source=arguments.source).table(
        arguments.table,
        keys=arguments.keys,
        file_format=arguments.format,
        partition_by=arguments.partition_by,
    )
    done = table.write(path, arguments.marker, arguments.batch_id, force=arguments.force)
    told = {"error": None, "table": done.table, "published": [done.to_dict()]}
    lines = []
    for file in done.files:
        rows = ", ".join(f"{count:,} {marker}" for marker, count in file.markers.items() if count)
        again = ", was there already" if file.repeated else ""
        lines.append(
            f"{done.table}: {file.file}, rows: {rows or 'none'}, {file.size:,} bytes{again}"
        )
    return say(arguments, told, *lines, *done.notes)


def _check(arguments: argparse.Namespace) -> Report:
    from mirrorlib.landing.check.zone import check_zone

    return call_shown(check_zone, arguments)


PUBLISH = Command(
    more="The file becomes the table's next change file. After an error or a crash publish it again: by the same "
    "--batch-id it is there once.",
    arguments={
        "LANDING_ZONE": "folder or URL that holds the table folders; dbfs:/Volumes/… for a Databricks volume",
        "TABLE": "the table: orders, or dbo/orders",
        "FILE": "a Parquet or CSV file",
        "--keys A,B": "key columns, when the table is new",
        "--marker N|COLUMN": "0 insert, 1 update, 2 delete, 4 upsert, or what column says it (default: __rowMarker__)",
        "--format parquet|csv": "of the change files (default: parquet)",
        "--partition-by A,B": "columns whose values name partition folders, which nothing orders: a key stays in one",
        "--batch-id ID": "what these rows are called: published again under the same id, they are there once",
        "--source TEXT": "what is mirrored, for _partnerEvents.json",
        "--force": "publish a schema change that stops a Fabric table",
        **JSON,
    },
    defaults={"keys": (), "partition_by": ()},
    readers={"marker": lambda text: int(text) if text.isdecimal() else text},
    run=_publish,
)
CHECK = Command(
    more="Nothing is written, no Spark started. Exit code 1: errors, or with --strict warnings. Rules: docs/check.md.",
    arguments={
        **PLACE,
        "--strict": "count warnings as errors",
        "--deep": "decode every page of every file, not only footers, markers and keys",
        **JSON,
    },
    run=_check,
)
