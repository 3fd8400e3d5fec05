"""Remember which keys a table's readers may hold, so that they can be deleted when a snapshot takes the place of all.

In: a landing zone. Out: `_mirrorlib/export/keys/<number>-<window>.parquet` in the table's folder, which readers
ignore: the keys of a change file, which readers move away, each with whether it is gone. Written before that file,
under the number that it will have, so that no key is missing; a key too many does no harm, as a delete of what is not
there does nothing. Beside each key stands how many rows more or less of it the file has brought.

Of several notes of a number, of different windows, that one counts whose window was published under it;
of a number that is not taken yet, none: its window was refused, or its runner died.
"""

from __future__ import annotations

import hashlib
import io
import re
from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from mirrorlib.delivery.sinks.zone.batch import ANEW, Batch
from mirrorlib.delivery.sinks.zone.changes import COUNT, check_all_rows, count_rows, tells_rows
from mirrorlib.errors import LandingZoneError, SchemaError
from mirrorlib.identifiers import find_name
from mirrorlib.landing.columns import DELETE, INSERT
from mirrorlib.landing.parquet import open_parquet
from mirrorlib.landing.publish.claims import Claim, FileSequence
from mirrorlib.landing.publish.rows import MARKER_COLUMN, mark_rows
from mirrorlib.landing.types import INSTANT, widen_type
from mirrorlib.store import Store, StoredFile, contents

_GONE = "_mirror_gone"
_ALL = b"mirrorlib.all"  # readers of the change file hold no other rows than it says
_NAME = re.compile(r"(\d{20})-[0-9a-f]{16}\.parquet")
_MOST_FILES = 64  # then they are folded to one


class KnownKeys:
    """The keys that readers of one table may hold, for one window."""

    def __init__(
        self, zone: Store, place: FileSequence, keys: Sequence[str], batch: Batch, data: pa.Schema
    ) -> None:
        self._zone = zone
        self._place = place
        self._folder = f"{place.folder}/_mirrorlib/export/keys"
        self._keys = list(keys)
        self._types = [data.field(key).type for key in keys]
        self._numbered = [str(number) for number in range(len(keys))]
        self._batch = batch.id

    def note(self, number: int, data: pa.Table, rows: pa.Table, *, replaces: bool) -> None:
        """Note the keys of the *rows* of the change file that is about to be published under a number, for a window.

        It says of itself whether they take the place of all that readers hold.
        """
        marked = rows if MARKER_COLUMN in rows.column_names else mark_rows(rows, INSERT)
        gone = pc.equal(marked[MARKER_COLUMN], DELETE)
        keys = rows.select(self._keys).append_column(_GONE, gone)
        counts = count_rows(data, self._keys)
        noted = self._last(pa.concat_tables([counts, keys], promote_options="permissive"))
        # What the window has noted there before says as much, or more where several were folded to it.
        self._zone.put_new(self._path(number), _encode(noted, whole=replaces))

    def read(self, published: int) -> pa.Table:
        """Return the keys that readers may hold, in order; *published* is the number of the last change file."""
        held = self._fold(published)
        if held is None:
            msg = f"the landing zone's folder {self._place.folder} does not tell any more which keys its readers hold"
            raise LandingZoneError(msg, table=self._place.table, next_step=ANEW)
        rows = held.select(self._keys).rename_columns(self._numbered)
        ordered = rows.sort_by([(name, "ascending") for name in self._numbered])
        return ordered.rename_columns(self._keys)

    def check(self, published: int, data: pa.Table) -> None:
        """See that whatever a window changed or deleted of a key, all of its rows were, as far as these were noted."""
        if tells_rows(data):
            held = self._fold(published, wanted=pc.unique(data[self._keys[0]]))
            held = count_rows(data.slice(0, 0), self._keys) if held is None else held
            check_all_rows(data, self._keys, held, self._place.table)

    def tidy(self, published: int, *, replaces: bool) -> None:
        """Forget what was noted below this window's number, once it is published, if it *replaces* all that was before.

        Otherwise its note does so when there are many: they are folded to it, and it names the keys that are left.
        """
        if not replaces:
            if len(self._files()) <= _MOST_FILES or (held := self._fold(published)) is None:
                return
            self._zone.put(self._path(published), _encode(held, whole=True))
        for number, file in self._files():
            if number < published:
                self._zone.delete(file.path)

    def _files(self) -> list[tuple[int, StoredFile]]:
        """List what was noted, with the numbers that it was noted under, in their order."""
        files = contents(self._zone, self._folder).files
        return [(int(name[1]), one) for one in files if (name := _NAME.fullmatch(one.name))]

    def _notes(self, published: int) -> Iterator[tuple[int, pa.Table]]:
        """Read what was noted of numbers that are published, by the window that was published there.

        What was noted above them no reader holds: whoever publishes it meanwhile makes this window's file fail.
        """
        files = [(number, file) for number, file in self._files() if number <= published]
        numbers = [number for number, _ in files]
        for number, file in files:
            if numbers.count(number) > 1:
                claim = Claim.read(self._zone, self._place.claim(number))
                if claim is None or file.name != _name(number, claim.batch_id or ""):
                    continue  # whose runner was overtaken
            with self._zone.open_file(file.path) as source:
                yield number, self._as_now(open_parquet(source).read())

    def _as_now(self, noted: pa.Table) -> pa.Table:
        """Give a note's keys the names and types that they have now: they may be spelled otherwise, or be widened."""
        columns = {name: noted[name] for name in (_GONE, COUNT)}
        for key, kind in zip(self._keys, self._types, strict=True):
            was = noted[find_name(noted.column_names, key) or key]
            if not _is_widened(was.type, kind):
                msg = "the key has another type than in what the landing zone's readers hold"
                table, found = self._place.table, f"{kind}, was {was.type}"
                raise SchemaError(msg, table=table, column=key, found=found, next_step=ANEW)
            columns[key] = was.cast(kind)
        return pa.table(columns).replace_schema_metadata(noted.schema.metadata)

    def _fold(self, published: int, wanted: pa.Array | None = None) -> pa.Table | None:
        """Fold files to the keys that may be there, None where the first are gone; or to some, as far as is known."""
        tables: list[pa.Table] = []
        begun = wanted is not None
        for number, noted in self._notes(published):
            begun |= number == 1  # somebody may remove files by their age
            if _ALL in (noted.schema.metadata or {}):
                begun = True
                tables.clear()
            keys = noted
            if wanted is not None:
                keys = keys.filter(pc.is_in(keys[self._keys[0]], value_set=wanted))
            tables.append(keys.replace_schema_metadata(None))
        if not (tables and begun):
            return None
        held = self._last(pa.concat_tables(tables, promote_options="permissive"))
        return held.filter(pc.invert(held[_GONE]))

    def _last(self, keys: pa.Table) -> pa.Table:
        """Keep of each key whether it is gone at last, and the sum of its counts."""
        folds = [(_GONE, "last"), (COUNT, "sum")]
        rows = keys.select([*self._keys, _GONE, COUNT])
        rows = rows.rename_columns([*self._numbered, _GONE, COUNT])  # a dot would begin a path
        grouped = rows.group_by(self._numbered, use_threads=False).aggregate(folds)
        return grouped.rename_columns([*self._keys, _GONE, COUNT])

    def _path(self, number: int) -> str:
        return f"{self._folder}/{_name(number, self._batch)}"


def _name(number: int, batch_id: str) -> str:
    return f"{number:020d}-{hashlib.sha256(batch_id.encode()).hexdigest()[:16]}.parquet"


def _encode(keys: pa.Table, *, whole: bool) -> bytes:
    sink = io.BytesIO()
    told = keys.replace_schema_metadata({_ALL: b""} if whole else {})
    pq.write_table(told, sink, compression="zstd")
    return sink.getvalue()


def _is_widened(was: pa.DataType, kind: pa.DataType) -> bool:
    """Say whether one type holds all values of another; a day is no moment, nor is every bigint a double."""
    unlike = [(pa.int64(), pa.float64()), (pa.date32(), INSTANT)]
    return kind == widen_type(was, kind) and (was, kind) not in unlike
