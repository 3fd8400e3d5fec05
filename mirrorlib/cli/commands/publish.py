"""`mirrorlib publish`: put the rows of files into a landing zone, a change file each."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mirrorlib.cli.arguments import add_json
from mirrorlib.cli.command import Command
from mirrorlib.errors import LandingZoneError, MirrorError
from mirrorlib.names import named_twice
from mirrorlib.tabular import Report

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mirrorlib.landing.publish.published import Published

_AGAIN = "Then publish all the files again, in the same order: those that are there are not published twice."
_MARKERS = ("0", "1", "2", "4")
_COUNTED = ("insert", "update", "delete", "upsert")


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class PublishReport(Report):
    """What was published, and what stopped the rest.

    Attributes:
        table: the table's name.
        published: one for each file that was published.
        asked: how many files were to be published.
        error: why the next file was not; None when all were.

    """

    table: str
    published: tuple[Published, ...]
    asked: int
    error: MirrorError | None = None

    @property
    def ok(self) -> bool:
        """Whether everything was published."""
        return self.error is None

    def header(self) -> tuple[str, ...]:
        """Name the columns."""
        return ("table", "file", "rows", *_COUNTED, "bytes", "")

    def rows(self) -> list[tuple[str, ...]]:
        """Return one line a change file."""
        return [
            (
                self.table,
                file.file,
                f"{file.rows:,}",
                *(f"{file.markers.get(name, 0):,}" for name in _COUNTED),
                f"{file.size:,}",
                "was there already" if file.repeated else "",
            )
            for done in self.published
            for file in done.files
        ]

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
            "table": self.table,
            "published": [done.to_dict() for done in self.published],
            "error": None if self.error is None else self.error.to_dict(),
        }


def publish_files(arguments: argparse.Namespace) -> PublishReport:
    """Publish file by file; the first error ends it.

    Raises:
        MirrorError: nothing was published.

    """
    from mirrorlib.landing.publish.writer import LandingZoneWriter

    files = arguments.file
    _check_files(files, arguments.table)
    writer = LandingZoneWriter(arguments.landing_zone, source=arguments.source)
    table = writer.table(
        arguments.table,
        keys=arguments.keys,
        file_format=arguments.format,
        partition_by=arguments.partition_by,
        upsert_default=True if arguments.upsert_default else None,
        detection="last_update_time" if arguments.time_ordered else None,
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


def _add_arguments(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "landing_zone",
        metavar="LANDING_ZONE",
        help="folder or URL that holds the table folders; dbfs:/Volumes/… for a Databricks volume",
    )
    command.add_argument("table", metavar="TABLE", help="the table: orders, or dbo/orders")
    command.add_argument(
        "file",
        metavar="FILE",
        nargs="+",
        help="Parquet or CSV files, in the order of their changes",
    )
    _add_rows(command)
    _add_files(command)
    _add_call(command)
    add_json(command)


def _run(arguments: argparse.Namespace) -> Report:
    """Publish; say whether every file was published."""
    return publish_files(arguments)


def _add_rows(command: argparse.ArgumentParser) -> None:
    """Add what the rows are."""
    command.add_argument(
        "--keys", type=_names, default=(), metavar="A,B", help="key columns, when the table is new"
    )
    command.add_argument(
        "--marker",
        type=_marker,
        metavar="N|COLUMN",
        help="what the rows are: 0 insert, 1 update, 2 delete, 4 upsert, or the column that says it "
        "(default: __rowMarker__ where there is one)",
    )


def _add_files(command: argparse.ArgumentParser) -> None:
    """Add how change files are written and named."""
    command.add_argument(
        "--format", choices=("parquet", "csv"), help="of the change files (default: parquet)"
    )
    command.add_argument(
        "--partition-by",
        type=_names,
        default=(),
        metavar="A,B",
        help="columns whose values name partition folders",
    )
    command.add_argument(
        "--upsert-default", action="store_true", help="rows without markers are upserts"
    )
    command.add_argument(
        "--time-ordered", action="store_true", help="name files by chance; readers go by their time"
    )


def _add_call(command: argparse.ArgumentParser) -> None:
    """Add what is said of this one call."""
    command.add_argument(
        "--batch-id",
        metavar="ID",
        help="what these files are called: published again under the same id, they are there once",
    )
    command.add_argument(
        "--source", metavar="TEXT", help="what is mirrored, for _partnerEvents.json"
    )
    command.add_argument(
        "--force", action="store_true", help="publish a schema change that stops a Fabric table"
    )


def _check_files(files: Sequence[str], table: str) -> None:
    """Refuse to begin when a file is missing: it would stop the others in their midst."""
    for path in files:
        if not Path(path).exists():
            msg = "the file to publish is not there"
            step = "Check its path; nothing was published."
            raise LandingZoneError(msg, table=table, file=path, next_step=step)


def _names(text: str) -> Sequence[str]:
    """Read column names, each of which is given once."""
    names = tuple(name.strip() for name in text.split(",") if name.strip())
    if (twice := named_twice(names)) is not None:
        msg = f"{twice!r} is named twice"
        raise argparse.ArgumentTypeError(msg)
    return names


def _marker(text: str) -> int | str:
    """Read a row marker, or a column's name."""
    if not text.isdecimal():
        return text
    if text not in _MARKERS:
        msg = f"{text!r} is no row marker, which are {', '.join(_MARKERS)}"
        raise argparse.ArgumentTypeError(msg)
    return int(text)


PUBLISH = Command(
    name="publish",
    help="put the rows of files into a landing zone",
    more="Each file becomes the next change file of the table, whole or not at all; numbers, metadata and schema "
    "checks are seen to. After an error or a crash, publish the same files again, in the same order, when "
    "what was wrong with the rest is repaired: none is published twice.",
    add_arguments=_add_arguments,
    run=_run,
)
