"""`mirrorlib publish` and `check`: put the rows of files into a landing zone, and review one. Neither needs Spark."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from mirrorlib.cli.arguments import JSON, PLACE
from mirrorlib.cli.command import Command, call_shown
from mirrorlib.errors import LandingZoneError, MirrorError
from mirrorlib.landing.publish.published import Published
from mirrorlib.tabular import Report

_AGAIN = "Then publish all the files again, in the same order: those that are there are not published twice."
_COUNTED = ("insert", "update", "delete", "upsert")


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class PublishReport(Report):
    """What was published, of as many files as were *asked* for, and what stopped the rest: None when nothing did."""

    columns: ClassVar = ("table", "file", "rows", *_COUNTED, "bytes", "")
    table: str
    published: tuple[Published, ...]
    asked: int
    error: MirrorError | None = None

    @property
    def ok(self) -> bool:
        """Whether everything was published."""
        return self.error is None

    def rows(self) -> list[tuple[str, ...]]:
        """Return one line a change file."""
        found = list[tuple[str, ...]]()
        for file in (file for done in self.published for file in done.files):
            counts = (file.rows, *(file.markers.get(name, 0) for name in _COUNTED), file.size)
            again = "was there already" if file.repeated else ""
            found.append((self.table, file.file, *map("{:,}".format, counts), again))
        return found

    def notes(self) -> list[str]:
        """Return what is worth knowing, and the error."""
        notes = list(dict.fromkeys(note for done in self.published for note in done.notes))
        if self.error is None:
            return notes
        if len(self.published) == self.asked:
            return [*notes, str(self.error)]
        return [*notes, f"The rest is not published: {self.error}", _AGAIN]

    def to_dict(self) -> dict[str, Any]:
        """Give the facts as JSON-ready values."""
        return {
            "ok": self.ok,
            **({"error": None} if self.error is None else self.error.to_dict()),
            "table": self.table,
            "published": [done.to_dict() for done in self.published],
        }


def publish_files(arguments: argparse.Namespace) -> PublishReport:
    """Publish file by file; the first error ends it."""
    from mirrorlib.landing.publish.writer import LandingZoneWriter

    files = arguments.files
    for path in files:  # a missing one would stop the others in their midst
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
    calls = table.write_files(files, arguments.marker, arguments.batch_id, force=arguments.force)
    published: list[Published] = []
    error = None
    try:
        published.extend(calls)  # one by one: those before an error stay
    except MirrorError as exc:
        if not published:
            raise
        error = exc
    return PublishReport(
        table=arguments.table, published=tuple(published), asked=len(files), error=error
    )


def _check(arguments: argparse.Namespace) -> Report:
    from mirrorlib.landing.check.zone import check_zone

    return call_shown(check_zone, arguments)


PUBLISH = Command(
    more="Each file becomes the next change file of the table, whole or not at all; numbers, metadata and schema "
    "checks are seen to. After an error or a crash, publish the same files again, in the same order, when "
    "what was wrong with the rest is repaired: none is published twice.",
    arguments={
        "LANDING_ZONE": "folder or URL that holds the table folders; dbfs:/Volumes/… for a Databricks volume",
        "TABLE": "the table: orders, or dbo/orders",
        "FILE+": "Parquet or CSV files, in the order of their changes",
        "--keys A,B": "key columns, when the table is new",
        "--marker N|COLUMN": "what the rows are: 0 insert, 1 update, 2 delete, 4 upsert, or the column that says it "
        "(default: __rowMarker__ where there is one)",
        "--format parquet|csv": "of the change files (default: parquet)",
        "--partition-by A,B": "columns whose values name partition folders",
        "--batch-id ID": "what these files are called: published again under the same id, they are there once",
        "--source TEXT": "what is mirrored, for _partnerEvents.json",
        "--force": "publish a schema change that stops a Fabric table",
        **JSON,
    },
    defaults={"keys": (), "partition_by": ()},
    readers={"marker": lambda text: int(text) if text.isdecimal() else text},
    run=publish_files,
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
