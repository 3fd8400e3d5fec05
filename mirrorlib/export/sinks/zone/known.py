"""Remember which keys a table's readers may hold, so that they can be deleted when a snapshot takes the place of all.

In: a landing zone. Out: `_mirrorlib/export/keys/<number>.parquet` in the table's folder, which readers
ignore: the keys of a change file, each with whether it is gone. The format has no word for "forget", and
readers move change files away. Written before the change file, under the number that it will have, so that
no key is missing; a key too many does no harm, as a delete of what is not there does nothing.
"""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from mirrorlib.errors import LandingZoneError
from mirrorlib.export.sinks.zone.batch import ANEW
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

    def note(self, number: int, rows: pa.Table) -> None:
        """Note the keys of the change file that is about to be published under a number."""
        gone = pa.chunked_array([pa.repeat(pa.scalar(value=False), rows.num_rows)])
        if MARKER_COLUMN in rows.column_names:
            gone = pc.equal(rows[MARKER_COLUMN], DELETE)
        keys = rows.select(self._keys).append_column(_GONE, gone)
        self._write(number, self._last(keys))

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

    def forget_earlier(self) -> None:
        """Keep the newest file alone: the change file that it is about has replaced all that was before."""
        for file in self._files()[:-1]:
            self._zone.delete(file.path)

    def compact(self, published: int) -> None:
        """Fold many files to one, which names the keys that are left."""
        files = self._files()
        if len(files) > _MOST_FILES and (held := self._fold(files, published)) is not None:
            self._write(sequence_number(files[-1].name) or 0, held)
            self.forget_earlier()

    def _files(self) -> list[StoredFile]:
        listed = self._zone.list_folder(self._folder)
        return [file for file in listed.files if sequence_number(file.name)] if listed else []

    def _fold(self, files: Sequence[StoredFile], published: int) -> pa.Table | None:
        """Fold files to the keys that may be there; None when there are no files.

        What was noted and not published has taken no key away. What this very window noted before a
        crash is left out: its rows have to be the same again.
        """
        tables = []
        for file in files:
            with self._zone.open_file(file.path) as source:
                keys = open_parquet(source).read()
            if (sequence_number(file.name) or 0) > published:
                if (keys.schema.metadata or {}).get(_BATCH) == self._batch:
                    continue
                gone = pa.repeat(pa.scalar(value=False), keys.num_rows)
                keys = keys.set_column(keys.num_columns - 1, _GONE, gone)
            tables.append(keys)
        if not tables:
            return None
        held = self._last(pa.concat_tables(tables, promote_options="permissive"))
        return held.filter(pc.invert(held[_GONE]))

    def _last(self, keys: pa.Table) -> pa.Table:
        """Keep the last row of each key."""
        grouped = keys.group_by(self._keys, use_threads=False).aggregate([(_GONE, "last")])
        last = grouped[f"{_GONE}_last"]
        return grouped.select(self._keys).append_column(_GONE, last)

    def _write(self, number: int, keys: pa.Table) -> None:
        sink = io.BytesIO()
        named = keys.replace_schema_metadata({_BATCH: self._batch})
        pq.write_table(named, sink, compression="zstd")
        self._zone.put(f"{self._folder}/{sequence_name(number)}", sink.getvalue())
