"""`mirrorlib publish` and `check`: put the rows of a file into a landing zone, and review one. Neither needs Spark."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from mirrorlib.cli.arguments import JSON, PLACE
from mirrorlib.cli.command import Command, call_shown
from mirrorlib.errors import LandingZoneError
from mirrorlib.landing.publish.published import Published
from mirrorlib.tabular import Report

_COUNTED = ("insert", "update", "delete", "upsert")


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class PublishReport(Report):
    """What was published."""

    columns: ClassVar = ("table", "file", "rows", *_COUNTED, "bytes", "")
    published: Published

    def rows(self) -> list[tuple[str, ...]]:
        """Return one line a change file."""
        found = list[tuple[str, ...]]()
        for file in self.published.files:
            counts = (file.rows, *(file.markers.get(name, 0) for name in _COUNTED), file.size)
            again = "was there already" if file.repeated else ""
            found.append((self.published.table, file.file, *map("{:,}".format, counts), again))
        return found

    def notes(self) -> list[str]:
        """Return what is worth knowing."""
        return list(self.published.notes)

    def to_dict(self) -> dict[str, Any]:
        """Give the facts as JSON-ready values."""
        done = self.published
        return {"ok": self.ok, "error": None, "table": done.table, "published": [done.to_dict()]}


def publish_file(arguments: argparse.Namespace) -> PublishReport:
    """Publish a file."""
    from mirrorlib.landing.publish.writer import LandingZoneWriter

    path = arguments.file
    if not Path(path).exists():
        msg = "the file to publish is not there"
        shown, step = path, "Check its path; nothing was published."
        if "://" in path:  # credentials may be in it
            shown = path.rpartition("@")[2].partition("?")[0]
            step = "Give a file of this machine, no URL; nothing was published."
        raise LandingZoneError(msg, table=arguments.table, file=shown, next_step=step)
    table = LandingZoneWriter(arguments.landing_zone, source=arguments.source).table(
        arguments.table,
        keys=arguments.keys,
        file_format=arguments.format,
        partition_by=arguments.partition_by,
    )
    done = table.write(path, arguments.marker, arguments.batch_id, force=arguments.force)
    return PublishReport(published=done)


def _check(arguments: argparse.Namespace) -> Report:
    from mirrorlib.landing.check.zone import check_zone

    return call_shown(check_zone, arguments)


PUBLISH = Command(
    more="The file becomes the next change file of the table, whole or not at all; numbers, metadata and schema "
    "checks are seen to. After an error or a crash publish it again: it is not published twice.",
    arguments={
        "LANDING_ZONE": "folder or URL that holds the table folders; dbfs:/Volumes/… for a Databricks volume",
        "TABLE": "the table: orders, or dbo/orders",
        "FILE": "a Parquet or CSV file",
        "--keys A,B": "key columns, when the table is new",
        "--marker N|COLUMN": "what the rows are: 0 insert, 1 update, 2 delete, 4 upsert, or the column that says it "
        "(default: __rowMarker__ where there is one)",
        "--format parquet|csv": "of the change files (default: parquet)",
        "--partition-by A,B": "columns whose values name partition folders",
        "--batch-id ID": "what these rows are called: published again under the same id, they are there once",
        "--source TEXT": "what is mirrored, for _partnerEvents.json",
        "--force": "publish a schema change that stops a Fabric table",
        **JSON,
    },
    defaults={"keys": (), "partition_by": ()},
    readers={"marker": lambda text: int(text) if text.isdecimal() else text},
    run=publish_file,
)
CHECK = Command(
    more="Nothing is written, and no Spark is started. Exit codes: 0 nothing but notes (and warnings), 1 errors "
    "(with --strict warnings too), 2 wrong usage. Every rule: docs/check.md.",
    arguments={
        **PLACE,
        "--strict": "count warnings as errors",
        "--deep": "decode every page of every file, not only footers, markers and keys",
        **JSON,
    },
    run=_check,
)
