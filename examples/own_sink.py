"""A receiver of one's own: JSON lines, a file a table, each window in it once.

    python examples/own_sink.py /data/tables /data/lines

`orders.position` says which file holds the table's lines, how many of its bytes count, and which window
came last. It is replaced as a whole once the lines are on disk, so a window that was cut short is written
over by the next run. A snapshot begins a new file, which takes the old one's place at the same moment.
"""
# ruff: noqa: INP001  # a script, no package

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import mirrorlib

if TYPE_CHECKING:
    from mirrorlib.export.record import Stream

_LINE = """to_json(struct(*), map('ignoreNullFields', 'false',
    'timestampFormat', "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX")) AS line"""


class JsonLines:
    """Exactly once: what `position` says is written in one step with what it is about."""

    def __init__(self, folder: str) -> None:
        """Take the folder, which is made."""
        self.folder = Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)

    def position(self, stream: Stream) -> int:
        """Return the stream's last window."""
        held = self._held(stream.table)
        return int(held["window"]) if held["stream"] == stream.uuid else 0

    def deliver(self, delivery: mirrorlib.Delivery) -> int:
        """Write a window's lines behind those that count, then let them count."""
        plan, table, rows = delivery.plan, delivery.stream.table, 0
        held = self._held(table)
        if plan.kind == "snapshot" or not held["file"]:
            held |= {"file": f"{quote(table, safe='')}.{plan.attempt}.jsonl", "bytes": 0}
        with (self.folder / held["file"]).open("ab") as file:
            file.truncate(held["bytes"])
            for row in delivery.frame.selectExpr(_LINE).toLocalIterator():
                rows += 1
                file.write(row["line"].encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())
            held |= {"bytes": file.tell(), "stream": plan.stream, "window": plan.number}
        part = self._place(table).with_suffix(".part")
        part.write_text(json.dumps(held))
        part.replace(self._place(table))
        return rows

    def _held(self, table: str) -> dict[str, Any]:
        place = self._place(table)
        nothing = {"file": "", "bytes": 0, "stream": "", "window": 0}
        return json.loads(place.read_text()) if place.exists() else nothing

    def _place(self, table: str) -> Path:
        return self.folder / f"{quote(table, safe='')}.position"


if __name__ == "__main__":
    tables, lines = sys.argv[1:]
    report = mirrorlib.export(
        mirrorlib.local_spark(), tables, consumer="lines", to=JsonLines(lines)
    )
    print(report)  # noqa: T201
