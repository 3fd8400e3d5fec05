r"""Bring a window's rows from Spark to where a database's client can read them: files of lines.

In: a frame of one text column, a line a row. Out: `Staged`. Spark writes with all its cores; reading holds
a piece of one file in memory, however large the window is. The lines are what PostgreSQL's COPY reads: values
between tabs, `\N` for NULL, a backslash before what would mean something else.

Spark's own JDBC writer is not used. It would want the database's driver jar on every cluster, which serverless
compute does not take, and each of its tasks commits by itself: what a killed run has left in the staging table
would be there for good. COPY runs in the one transaction that applies the window and advances the position.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mirrorlib.errors import StoreError
from mirrorlib.names import is_ignored

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from mirrorlib.delivery.sink import Delivery
    from mirrorlib.store import Store

_PIECE = 1 << 20  # bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Staged:
    """Rows of a window as files of lines.

    Attributes:
        store: where they lie.
        folder: the folder there.
        rows: how many lines Spark has written.

    """

    store: Store
    folder: str
    rows: int

    def pieces(self) -> Iterator[bytes]:
        """Read the lines, a piece at a time; a piece may end within a line, a file does not."""
        listed = self.store.list_folder(self.folder)
        for stored in listed.files if listed else ():
            if is_ignored(stored.name):
                continue
            with self.store.open_file(stored.path) as file:
                while piece := bytes(file.read(_PIECE)):
                    yield piece

    def lines(self) -> Iterator[bytes]:
        """Read line by line."""
        rest = b""
        for piece in self.pieces():
            *whole, rest = (rest + piece).split(b"\n")
            yield from whole

    def check(self, rows: int, table: str) -> None:
        """See that what was read is what was written: a listing may show what a lost task has left, or less.

        Raises:
            StoreError: it is not.

        """
        if rows != self.rows:
            msg = "the files that Spark has written for the database are not whole, or not alone"
            found = f"{rows} rows, written {self.rows}"
            raise StoreError(msg, table=table, found=found, next_step="Try again.")


def stage_lines(delivery: Delivery, lines: DataFrame) -> Staged:
    """Write lines into the delivery's folder, in a folder of this call's own: a former attempt may have left some."""
    from pyspark.sql import Observation
    from pyspark.sql import functions as f

    folder = f"{delivery.folder}/{uuid.uuid4()}"
    seen = Observation()
    counted = lines.observe(seen, f.count(f.lit(1)).alias("rows"))
    writer = counted.write.option("compression", "none").option("lineSep", "\n")
    writer.text(delivery.scratch.uri(folder))
    return Staged(store=delivery.scratch, folder=folder, rows=int(seen.get.get("rows") or 0))
