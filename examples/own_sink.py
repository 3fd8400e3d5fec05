"""A receiver of one's own: a log of changes in a SQLite file, each window in it once.

    python examples/own_sink.py /data/tables /data/changes.db

A window's rows say which one they are, and are committed together, so they are what `position` goes by;
a window without rows may as well come twice. A snapshot takes the place of all that the table has.
"""
# ruff: noqa: INP001  # a script, no package

from __future__ import annotations

import sqlite3
import sys
from contextlib import closing

import mirrorlib

_TABLE = "CREATE TABLE IF NOT EXISTS changes (source TEXT, stream TEXT, number INT, line TEXT)"
_LINE = """to_json(struct(*), map('ignoreNullFields', 'false',
    'timestampFormat', "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX")) AS line"""


class ChangeLog:
    """Exactly once: a window is a transaction, which takes out first what is there of the same window."""

    def __init__(self, path: str) -> None:
        """Take the file, which is made."""
        self.path = path

    def position(self, stream: mirrorlib.Stream) -> int:
        """Return the stream's last window."""
        with closing(sqlite3.connect(self.path)) as db:
            db.execute(_TABLE)
            last = "SELECT ifnull(max(number), 0) FROM changes WHERE stream = ?"
            return int(db.execute(last, [stream.uuid]).fetchone()[0])

    def deliver(self, delivery: mirrorlib.Delivery) -> int:
        """Write a window's lines."""
        plan, table = delivery.plan, delivery.stream.table
        if plan.kind == "changes" and delivery.given and not self.position(delivery.stream):
            msg = "the log was emptied"
            raise mirrorlib.JournalError(msg, next_step="Rewind the consumer to a snapshot.")
        rows = delivery.frame.selectExpr(_LINE).toLocalIterator()
        lines = ((table, plan.stream, plan.number, row["line"]) for row in rows)
        with closing(sqlite3.connect(self.path)) as db, db:
            same = "DELETE FROM changes WHERE source = ? AND (? OR (stream, number) = (?, ?))"
            db.execute(same, [table, plan.kind == "snapshot", plan.stream, plan.number])
            return db.executemany("INSERT INTO changes VALUES (?, ?, ?, ?)", lines).rowcount


if __name__ == "__main__":
    tables, path = sys.argv[1:]
    report = mirrorlib.export(mirrorlib.local_spark(), tables, consumer="log", to=ChangeLog(path))
    print(report)  # noqa: T201
