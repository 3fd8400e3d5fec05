r"""Bring what of a window counts from Spark to where a database's client can read it: files of lines.

In: the delivery's frame. Out: `StagedWindow`. A snapshot's line is a row's values; of changes it is what to do, how
often the key was there at once, where it may be there once, then the values. The lines are what PostgreSQL's COPY
reads: values between tabs, `\N` for NULL, a backslash before what would mean something else. Reading holds a piece of
one file in memory, however large the window is.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as f

from mirrorlib.commit.stage import DROP, FRESH, OP, WRONG
from mirrorlib.delivery.sink import Delivery
from mirrorlib.delivery.sinks.jdbc.kinds import JSON
from mirrorlib.delivery.sinks.jdbc.layout import DatabaseColumn, TableLayout
from mirrorlib.errors import StoreError
from mirrorlib.feed.exact_text import JSON_OPTIONS, decimal_text
from mirrorlib.feed.net import KIND, count_changes, last_states
from mirrorlib.identifiers import quote
from mirrorlib.names import is_ignored
from mirrorlib.store import Store, contents

# What to do. As the window tells it, what is NEW or has PASSED was not there before: it came, and is there or gone.
GONE, PUT, NEW, PASSED = -1, 1, 2, -2
_ESCAPES = (("\\", "\\\\"), ("\t", "\\t"), ("\n", "\\n"), ("\r", "\\r"))
_PIECE = 1 << 20  # bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedWindow:
    """Rows of a window as files of lines: in a folder of a store, as many rows as Spark has written."""

    store: Store
    folder: str
    rows: int

    def pieces(self) -> Iterator[bytes]:
        """Read the lines, a piece at a time; a piece may end within a line, a file does not."""
        for stored in contents(self.store, self.folder).files:
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
        """See that what was read is what was written: a listing may show what a lost task has left, or less."""
        if rows != self.rows:
            msg = "the files that Spark has written for the database are not whole, or not alone"
            found = f"{rows} rows, written {self.rows}"
            raise StoreError(msg, table=table, found=found, next_step="Try again.")


def stage_lines(delivery: Delivery, frame: DataFrame, shape: TableLayout) -> StagedWindow:
    """Write what counts of a frame into a folder of this call's own: a former attempt may have left some."""
    if delivery.plan.kind == "snapshot":
        lines = frame.select(_line(shape.columns))
    else:
        lines = _keyed_lines(frame, shape) if shape.record.keys else _counted_lines(frame, shape)
    folder = f"{delivery.folder}/{uuid.uuid4()}"
    seen = Observation()
    counted = lines.observe(seen, f.count(f.lit(1)).alias("rows"))
    writer = counted.write.option("compression", "none").option("lineSep", "\n")
    writer.text(delivery.scratch.uri(folder))
    return StagedWindow(store=delivery.scratch, folder=folder, rows=int(seen.get.get("rows") or 0))


def _keyed_lines(frame: DataFrame, shape: TableLayout) -> DataFrame:
    keys = {column.source: column.kind for column in shape.columns if column.key}
    plain = {name: f.col(quote(name)).cast(kind) for name, kind in keys.items()}
    rows = last_states(frame.withColumns(plain), list(keys))
    gone, fresh = f.col(OP) == DROP, f.col(FRESH)
    op = f.when(gone & fresh, PASSED).when(gone, GONE).when(fresh, NEW).otherwise(PUT)
    copies = f.when(f.col(OP) == WRONG, 2).otherwise(1)
    return rows.select(_joined([op, copies, _line(shape.columns)]))


def _counted_lines(frame: DataFrame, shape: TableLayout) -> DataFrame:
    """Write which rows came, each as often as it did, and which went, with how often."""
    lines = frame.select(KIND, _line(shape.columns).alias("line"))
    counted = count_changes(lines, ["line"], "more")
    came = f.when(f.col("more") > 0, f.col("more")).otherwise(1)
    each = counted.withColumn("nth", f.explode(f.sequence(f.lit(1), came)))
    op = f.when(f.col("more") > 0, PUT).otherwise(GONE)
    copies = f.greatest(-f.col("more"), f.lit(1))
    return each.select(_joined([op, copies, f.col("line")]))


def find_unfit(frame: DataFrame, shape: TableLayout) -> str | None:
    """Find a column that holds text that is none, or else what PostgreSQL has not; None when it is no known case."""
    texts = [(one.source, _no_text(one)) for one in shape.columns if one.kind == "string"]
    others = [(one.source, test) for one in shape.columns if (test := _unfit(one)) is not None]
    known = [*texts, *others]
    if not known:
        return None
    row = frame.agg(*(f.max(test) for _, test in known)).collect()[0]
    return next((name for (name, _), found in zip(known, row, strict=True) if found), None)


def _unfit(column: DatabaseColumn) -> SparkColumn | None:
    value = f.col(quote(column.source))
    if column.kind == "string":
        return f.contains(value.cast("string"), f.lit("\0"))
    if column.kind == JSON:
        return f.contains(f.to_json(value, JSON_OPTIONS), f.lit("\\u0000"))
    if column.kind in {"date", "timestamp", "timestamp_ntz"}:
        return ~f.year(value).between(1, 9999)
    return None


def _no_text(column: DatabaseColumn) -> SparkColumn:
    text = f.col(quote(column.source)).cast("string")
    if hasattr(f, "is_valid_utf8"):
        return ~f.is_valid_utf8(text)
    data = text.cast("binary")  # up to Spark 3.5, which puts U+FFFD in the place of what is none
    return f.encode(f.decode(data, "UTF-8"), "UTF-8") != data


def _line(columns: Sequence[DatabaseColumn]) -> SparkColumn:
    return _joined([f.coalesce(_text(column), f.lit("\\N")) for column in columns])


def _joined(values: Sequence[SparkColumn]) -> SparkColumn:
    return f.concat_ws("\t", *(value.cast("string") for value in values)).alias("value")


def _text(column: DatabaseColumn) -> SparkColumn:
    """Write a value as text that reads back as the same value."""
    value = f.col(quote(column.source))
    if column.kind == JSON:
        return _escaped(f.to_json(value, JSON_OPTIONS))
    value = value.cast(column.kind)
    if column.kind.startswith("decimal"):
        return decimal_text(value, int(column.kind.partition(",")[2].strip(")")))
    if column.kind == "string":
        return _escaped(value)
    if column.kind == "binary":
        return f.concat(f.lit("\\\\x"), f.hex(value))
    if column.kind == "timestamp":
        return f.concat(value.cast("string"), f.lit("+00:00"))
    if column.kind == "float":  # the shortest text of a float is another number as a double
        return value.cast("double").cast("string")
    return value.cast("string")


def _escaped(text: SparkColumn) -> SparkColumn:
    for plain, escape in _ESCAPES:
        text = f.replace(text, f.lit(plain), f.lit(escape))
    return text
