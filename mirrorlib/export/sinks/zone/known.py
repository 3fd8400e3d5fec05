"""Remember which keys a table's readers may hold, so that they can be deleted when a snapshot takes the place of all.

In: a landing zone. Out: `_mirrorlib/export/keys/<number>.parquet` in the table's folder, which readers
ignore: the keys of a change file, each with whether it is gone. The format has no word for "forget", and
readers move change files away. Written before the change file, under the number that it will have, so that
no key is missing; a key too many does no harm, as a delete of what is not there does nothing. Beside each
key stands how many rows more or less of it the file has brought, so that rows of repeated keys are told.
"""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from mirrorlib.errors import LandingZoneError
from mirrorlib.export.sinks.zone.batch import ANEW
from mirrorlib.export.sinks.zone.counts import COUNT, count_rows
from mirrorlib.landing.footer import open_parquet
from mirrorlib.landing.names import sequence_name, sequence_number
from mirrorlib.landing.publish.rows import DELETE, MARKER_COLUMN

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mirrorlib.export.sinks.zone.batch import Batch
    from mirrorlib.landing.publish.claims import Place
    from mirrorlib.store import Store, StoredFile

_GONE = "_mirror_gone"
_BATCH = b"mirrorlib.batch"
_ALL = b"mirrorlib.all"  # readers of the change file hold no other rows than it says
_MOST_FILES = 64  # then they are folded to one


class KnownKeys:
    """The keys that readers of one table may hold, for one window."""

    def __init__(self, zone: Store, place: Place, keys: Sequence[str], batch: Batch) -> None:
        """Take the table's folder and its key columns, and the window that is under way."""
        self._zone = zone
        self._place = place
        self._folder = f"{place.folder}/_mirrorlib/export/keys"
        self._keys = list(keys)
        self._batch = batch.id.encode()

    def note(self, number: int, data: pa.Table, rows: pa.Table, *, replaces: bool) -> None:
        """Note the keys of the change file that is about to be published under a number.

        Args:
            number: of the file.
            data: the window.
            rows: those of the file.
            replaces: they take the place of all that readers hold.

        """
        gone = pa.chunked_array([pa.repeat(pa.scalar(value=False), rows.num_rows)])
        if MARKER_COLUMN in rows.column_names:
            gone = pc.equal(rows[MARKER_COLUMN], DELETE)
        keys = rows.select(self._keys).append_column(_GONE, gone)
        counts = count_rows(data, self._keys)
        noted = pa.concat_tables([counts, keys], promote_options="permissive")
        self._write(number, self._last(noted), replaces=replaces)

    def read(self, published: int) -> pa.Table:
        """Return the keys that readers may hold, in order; *published* is the number of the last change file.

        Raises:
            LandingZoneError: somebody removed what was noted.

        """
        held = self._fold(self._files(), published)
        if held is None:
            msg = f"the landing zone's folder {self._place.folder} does not tell any more which keys its readers hold"
            raise LandingZoneError(msg, table=self._place.table, next_step=ANEW)
        return held.select(self._keys).sort_by([(key, "ascending") for key in self._keys])

    def count(self, published: int, data: pa.Table) -> pa.Table:
        """Return how many rows of a window's keys readers hold, as `COUNT`, as far as that was noted."""
        first = self._keys[0]
        wanted = pc.unique(data[first])
        held = self._fold(self._files(), published, wanted=wanted)
        nothing = count_rows(data.slice(0, 0), self._keys)
        return nothing if held is None else held.select(nothing.column_names)

    def forget_earlier(self) -> None:
        """Keep the newest file alone: the change file that it is about has replaced all that was before."""
        for file in self._files()[:-1]:
            self._zone.delete(file.path)

    def compact(self, published: int) -> None:
        """Fold many files to one, which names the keys that are left."""
        files = self._files()
        if len(files) > _MOST_FILES and (held := self._fold(files, published)) is not None:
            self._write(sequence_number(files[-1].name) or 0, held, replaces=True)
            self.forget_earlier()

    def _files(self) -> list[StoredFile]:
        listed = self._zone.list_folder(self._folder)
        return [file for file in listed.files if sequence_number(file.name)] if listed else []

    def _fold(
        self, files: Sequence[StoredFile], published: int, wanted: pa.Array | None = None
    ) -> pa.Table | None:
        """Fold files to the keys that may be there, or to some of them; None when there are no files.

        What was noted and not published has taken no key away and brought no row. What this very window
        noted before a crash is left out: its rows have to be the same again.
        """
        tables: list[pa.Table] = []
        for file in files:
            with self._zone.open_file(file.path) as source:
                keys = open_parquet(source).read()
            told = keys.schema.metadata or {}
            if wanted is not None:
                keys = keys.filter(_is_among(keys[self._keys[0]], wanted))
            if (sequence_number(file.name) or 0) > published:
                if told.get(_BATCH) == self._batch:
                    continue
                keys = _with(keys.select(self._keys), _GONE, pa.scalar(value=False))
            elif _ALL in told:
                tables.clear()
            if COUNT not in keys.column_names:  # nor did older versions count
                keys = _with(keys, COUNT, pa.scalar(0, pa.int64()))
            tables.append(keys.replace_schema_metadata(None))
        if not tables:
            return None
        held = self._last(pa.concat_tables(tables, promote_options="permissive"))
        return held.filter(pc.invert(held[_GONE]))

    def _last(self, keys: pa.Table) -> pa.Table:
        """Keep of each key whether it is gone at last, and the sum of its counts."""
        folds = [(_GONE, "last"), (COUNT, "sum")]
        grouped = keys.group_by(self._keys, use_threads=False).aggregate(folds)
        return grouped.rename_columns([*self._keys, _GONE, COUNT])

    def _write(self, number: int, keys: pa.Table, *, replaces: bool) -> None:
        sink = io.BytesIO()
        named = keys.replace_schema_metadata(
            {_BATCH: self._batch} | ({_ALL: b""} if replaces else {})
        )
        pq.write_table(named, sink, compression="zstd")
        self._zone.put(f"{self._folder}/{sequence_name(number)}", sink.getvalue())


def _with(keys: pa.Table, name: str, value: pa.Scalar) -> pa.Table:
    """Add a column of one value."""
    return keys.append_column(name, pa.repeat(value, keys.num_rows))


def _is_among(values: pa.ChunkedArray, wanted: pa.Array) -> pa.ChunkedArray:
    """Say which values are wanted; a column may have been widened since they were noted."""
    return pc.is_in(values.cast(wanted.type), value_set=wanted)
