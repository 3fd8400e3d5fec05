"""`mirror_feed`: a table's change feed as a source of Spark's, read by Arrow in processes that have no session.

In: options `path`, `after` (-1 without it) and `until`, as `read_feed` takes them. Out: what `read_feed(…, keys=[])`
gives, or an error that names it where a window takes more than to read files as they are. Delivery: each change of a
window once, no version skipped; a query is as far as its checkpoint. Only `register_sources` imports this module.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pyspark.sql import datasource as ds
from pyspark.sql.types import StructType

from mirrorlib.delta.address import FeedTable, find_table_at
from mirrorlib.errors import FeedError, FeedExpiredError, ParameterError
from mirrorlib.feed.files.direct import change_files, columns_of_window, read_file, tell_commit
from mirrorlib.feed.read import feed_schema
from mirrorlib.feed.schemas import spans
from mirrorlib.feed.stream import ANEW
from mirrorlib.feed.window import NOTHING, open_window, settle_bound
from mirrorlib.landing.parquet import ROWS_AT_A_TIME
from mirrorlib.store import open_store

if TYPE_CHECKING:
    import pyarrow as pa

_WITH_SPARK = "Read it with mirrorlib.read_feed, or stream it with mirrorlib.stream_feed."


class Batch(ds.DataSourceReader):
    """All that a query would read, from its beginning up to now."""

    def __init__(self, stream: ds.DataSourceStreamReader) -> None:
        self.stream = stream

    def partitions(self) -> Sequence[ds.InputPartition]:
        """Share out what there is."""
        stream = self.stream
        return stream.partitions(stream.initialOffset(), stream.latestOffset({}, None))  # type: ignore[arg-type]  # ours ask for no limit

    def read(self, partition: ds.InputPartition) -> Iterator[pa.RecordBatch]:
        """Read one part; where there is none, Spark gives one of nothing."""
        return iter(()) if partition.value is None else self.stream.read(partition)


class Source(ds.DataSource):
    """Reads a batch as its query would read it; an option that it has not is refused, else it would go for nothing."""

    known: tuple[str, ...]  # options, `path` first

    def __init__(self, options: dict[str, str]) -> None:
        super().__init__(options)
        unknown = sorted(set(map(str.lower, options)) - {*self.known})
        if unknown or not options.get("path"):
            msg = f"{self.name()} has no such option" if unknown else f"{self.name()} needs a path"
            known = ", ".join(self.known)
            raise ParameterError(
                msg, found=", ".join(unknown) or None, next_step=f"It has {known}."
            )

    def reader(self, schema: StructType) -> ds.DataSourceReader:
        """Read what there is."""
        return Batch(self.streamReader(schema))


class MirrorFeed(Source):
    """The changes of one table."""

    known = "path", "after", "until"

    @classmethod
    def name(cls) -> str:
        """Return what SQL calls it."""
        return "mirror_feed"

    def schema(self) -> StructType:
        """Give the columns as of the end of what is asked for."""
        stream = _FeedReader(dict(self.options), StructType())
        end = stream.latestOffset()["version"]
        return feed_schema(open_window(stream.look().commits, end, end))

    def streamReader(self, schema: StructType) -> ds.DataSourceStreamReader:  # noqa: N802  # Spark's name
        """Read window after window."""
        return _FeedReader(dict(self.options), schema)


class _FeedReader(ds.DataSourceStreamReader):
    def __init__(self, options: dict[str, str], schema: StructType) -> None:
        self.options, self.wanted = options, schema
        self._seen: FeedTable | None = None  # not before it is asked for: readers travel

    def look(self) -> FeedTable:
        """Look at the table's log as it is now."""
        seen = self._seen
        self._seen = seen.refresh() if seen else find_table_at(self.options["path"])
        return self._seen

    def _offset(self, name: str, default: int | None) -> dict[str, Any]:
        """Tell the version that an option means, and which it is: made anew or put back, a table has others."""
        commits, bound = self.look().commits, self.options.get(name, default)
        if isinstance(bound, str) and re.fullmatch("-?[0-9]+", bound):  # else it is a moment
            bound = int(bound)
        version = commits.newest if bound is None else settle_bound(commits, name, bound)
        known = commits.hash_of(version) if commits.has(version) else ""
        return {"version": version, "table": commits.metadata.id, "hash": known}

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        return self._offset("after", NOTHING)

    def latestOffset(self, start: object = None, limit: object = None) -> dict[str, Any]:  # noqa: N802
        del start, limit
        return self._offset("until", None)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[ds.InputPartition]:
        table = self.look()
        known = start.get("hash", "")  # none of an older mirrorlib's
        begun = start["table"], start["version"], known
        if start["table"] != end["table"] or not table.commits.is_still(*begun):
            msg = "the query has read another table, or one that was made anew or put back from a backup since"
            raise FeedExpiredError(msg, table=table.shown, next_step=ANEW)
        window = open_window(table.commits, start["version"], end["version"])
        if feed_schema(window) != self.wanted:
            # A query that was started again repeats the batch that it was at, and may know columns that came later.
            newest = table.commits.metadata_at(max(self._offset("until", None)["version"], 0))
            window = replace(window, metadata=newest) if spans(window.metadata, newest) else window
            if feed_schema(window) != self.wanted:
                msg = "the table's columns are no longer those that were asked for"
                step = "Load the feed again: make the view anew, or start the query again."
                raise FeedError(msg, table=table.shown, next_step=step)
        files = change_files(table, window) if window.files != () else ()
        if files is None:
            msg = f"it takes more than to read files to tell ({window.after}, {window.until}]"
            raise FeedError(msg, table=table.shown, next_step=_WITH_SPARK)
        columns = columns_of_window(window)
        times = table.commits.fed_at(window.after + 1, window.until) if files else {}
        return [ds.InputPartition((file, columns, times[file.version])) for file in files]

    def read(self, partition: ds.InputPartition) -> Iterator[pa.RecordBatch]:
        file, columns, at = partition.value
        with open_store(self.options["path"]).open_file(file.path) as source:
            rows = read_file(source, file, columns)
        if rows is None:
            msg = "a file of the feed has values that only Spark reads"
            raise FeedError(msg, file=file.path, next_step=_WITH_SPARK)
        yield from in_pieces(tell_commit(rows, file, at))


def in_pieces(rows: pa.Table) -> Iterator[pa.RecordBatch]:
    """Give rows as Spark takes them, to which a batch without any would be the end."""
    return (one for one in rows.to_batches(max_chunksize=ROWS_AT_A_TIME) if one.num_rows)
