"""One table of a landing zone, to publish into: its writes, and what is remembered between them."""

from __future__ import annotations

import contextlib
import secrets
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from mirrorlib.errors import (
    LandingZoneError,
    MarkerError,
    SchemaError,
    StoreError,
    TableBusyError,
)
from mirrorlib.identifiers import find_name
from mirrorlib.landing.columns import DELETE, UPSERT, check_names
from mirrorlib.landing.listing import is_unlisted, list_tables
from mirrorlib.landing.publish.allocate import PublishedFile, publish_next, published_before
from mirrorlib.landing.publish.claims import Call, FileSequence, note_return, recognize_call
from mirrorlib.landing.publish.declare import Wanted
from mirrorlib.landing.publish.draft import Draft, FolderState, make_draft, partitions, read_state
from mirrorlib.landing.publish.rows import (
    MARKER_COLUMN,
    change_key_rows,
    fingerprint_rows,
    spelled_in,
    take_rows,
)
from mirrorlib.names import TableName, find_conflicts
from mirrorlib.store import Store, keeps_out

_ATTEMPTS = 20  # writers that bring new columns at the same moment wait for each other


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """What one call published: one file, or one for each partition folder.

    Attributes:
        table: the table, "dbo/orders".
        files: in the order of their partition folders.
        notes: what is worth knowing, a sentence each.

    """

    table: str
    files: tuple[PublishedFile, ...]
    notes: tuple[str, ...] = ()

    @property
    def file(self) -> str | None:
        """The file, or the first of several; None when there was no row to put into a partition."""
        return self.files[0].file if self.files else None

    @property
    def number(self) -> int | None:
        """The sequence number of `file`."""
        return self.files[0].number if self.files else None

    @property
    def rows(self) -> int:
        """How many rows all the files hold."""
        return sum(file.rows for file in self.files)

    @property
    def repeated(self) -> bool:
        """Whether all of it had been published before."""
        return bool(self.files) and all(file.repeated for file in self.files)

    def to_dict(self) -> dict[str, Any]:
        """Give the facts as JSON-ready values."""
        return {**asdict(self), "rows": self.rows}


class LandingTable:
    """One table of a landing zone, to publish into. `LandingZoneWriter.table` makes it.

    For one thread; any number of threads, processes and machines may have one of their own.
    """

    def __init__(self, zone: Store, name: TableName, wanted: Wanted, partner: bytes | None) -> None:
        self._zone = zone
        self._table, self._name = name, str(name)
        self._place = FileSequence(table=self._name, folder=name.folder)
        self._wanted = wanted
        self._partner = partner
        self._state = FolderState()
        self._begun: dict[str, Call] = {}  # calls without an id that have not returned

    def write(
        self,
        data: object,
        marker: int | str | None = None,
        batch_id: str | None = None,
        *,
        force: bool = False,
        follows: int | None = None,
    ) -> Published:
        """Publish rows as one change file, or one for each partition.

        Args:
            data: An Arrow table, batch or reader; a Spark, polars or DuckDB frame; or the path of a
                Parquet or CSV file.
            marker: What the rows are: 0 insert, 1 update, 2 delete, 4 upsert, or the name of the
                column that says it. None: as `__rowMarker__` says; without it, a file without markers.
            batch_id: What the caller calls this batch. Publishing it again, after whatever went
                wrong, does nothing but say where it is (with partition folders, while it fits the
                table's schema). Without an id, rows are recognized by their content until a call with
                them has returned, which one that lost its last answer has for all but this writer; of
                calls with equal rows that several writers make at the same moment, each one that
                returns has a file of its own.
            force: Publish although it changes the schema in a way that stops a Fabric table.
            follows: Publish behind the file of this number (0: as the first), or not at all: for rows that are
                right there only. Partition folders count each for itself. None: behind what there is.

        Raises:
            ChangeFileError: a file cannot be read, or what was published is not what was sent.
            FileChangedError: the batch id was used for other content.
            MarkerError: a marker is not known, or there are updates or deletes and no keys.
            MetadataError: the table was declared otherwise before.
            SchemaError: the rows do not go with the format, or with what was published before.
            StoreError: the store failed; call this writer again with the same rows.
            TableNameError: the table is new, and another one would stop beside it.
            TableBusyError: another file follows there; nothing was published, but into the partition folders before it.

        """
        try:
            rows = self._take(data, marker)
            return self._publish(rows, batch_id, force=force, follows=follows)
        except (MarkerError, SchemaError) as exc:
            if isinstance(data, str | Path) and exc.file is None:
                raise exc.but(file=Path(data).name) from exc
            raise

    def upsert(
        self, data: object, batch_id: str | None = None, *, force: bool = False
    ) -> Published:
        """Publish whole rows as inserts or updates, by whether their key is there."""
        return self.write(data, UPSERT, batch_id, force=force)

    def delete(
        self, data: object, batch_id: str | None = None, *, force: bool = False
    ) -> Published:
        """Publish deletes of the rows' keys; other columns are left out, but for those that must not be NULL."""
        rows = self._take(data, DELETE)
        by = partitions(self._wanted, self._state, table=self._name)
        known = [column.name for column in self._state.known.columns if not column.nullable]
        needed = [find_name(rows.column_names, name) or name for name in known]
        names = dict.fromkeys((*self._keys(rows), *by, *needed, MARKER_COLUMN))
        rows = rows.select([name for name in names if name in rows.column_names])
        return self._publish(rows, batch_id, force=force)

    def change_keys(
        self, old: object, new: object, batch_id: str | None = None, *, force: bool = False
    ) -> Published:
        """Publish rows whose keys have changed: deletes of the old keys, then the new rows, in one file.

        Args:
            old: The old keys, one for each new row, in the same order.
            new: The whole rows, with their new keys.
            batch_id: As `write`.
            force: As `write`.

        """
        before, after = self._take(old, None), self._take(new, None)
        by = partitions(self._wanted, self._state, table=self._name)
        keys = self._keys(after)
        rows = change_key_rows(before, after, keys=keys, fixed=by, table=self._name)
        return self._publish(rows, batch_id, force=force)

    def _take(self, data: object, marker: int | str | None) -> pa.Table:
        types = {column.name: column.type for column in self._refresh().known.columns}
        rows = take_rows(data, marker, table=self._name, types=types)
        names = [name for name in rows.column_names if name != MARKER_COLUMN]
        check_names(names, table=self._name, file="the data")
        return rows

    def _refresh(self) -> FolderState:
        self._state = read_state(self._zone, self._place, self._state)
        return self._state

    def _keys(self, rows: pa.Table) -> tuple[str, ...]:
        """Give the key columns as the rows spell them."""
        metadata = self._state.metadata
        keys = (metadata.key_columns if metadata else ()) or self._wanted.keys or ()
        return tuple(spelled_in(rows, key, self._name) for key in keys)

    def _publish(
        self, rows: pa.Table, batch_id: str | None, *, force: bool, follows: int | None = None
    ) -> Published:
        """Check and encode everything, declare the table, then publish partition by partition."""
        batch_id = None if batch_id is None else str(batch_id)
        # What was right once need not fit what the table has become, and is not to change it back.
        if force and (before := self._before(rows, batch_id)):
            return before
        try:
            draft = self._declared(rows, force=force)
        except (MarkerError, SchemaError):
            if before := self._before(rows, batch_id):
                return before
            raise
        fingerprint = fingerprint_rows(rows)
        while True:
            # One without an id that has failed here before is gone on with.
            begun = None if batch_id else self._begun.get(fingerprint)
            call = begun or recognize_call(self._zone, self._place.folder, fingerprint, batch_id)
            if call.note is not None:
                self._begun[fingerprint] = call
            published = self._landed(draft, replace(call, follows=follows))
            is_its_own = note_return(self._zone, call)  # else it has to publish anew
            if call.note is not None:
                del self._begun[fingerprint]
            if is_its_own:
                return published

    def _before(self, rows: pa.Table, batch_id: str | None) -> Published | None:
        """Find what was published under an id before, of a table without partition folders."""
        if not batch_id or self._state.metadata is None or self._state.known.partition_by:
            return None
        try:
            fingerprint = fingerprint_rows(rows)
        except pa.ArrowException:  # of values that no file holds
            return None
        call = recognize_call(self._zone, self._place.folder, fingerprint, batch_id)
        file = published_before(self._zone, self._place, call)
        return Published(table=self._name, files=(file,)) if file else None

    def _declared(self, rows: pa.Table, *, force: bool) -> Draft:
        """Make the draft, and have the table declared as it says; another writer may be first."""
        wanted = replace(self._wanted, force=force)
        for _ in range(_ATTEMPTS):
            state = self._state
            draft = make_draft(rows, state, wanted, self._place)
            if state.metadata is None:
                self._check_name()
            if not state.known.version:
                self._check_store()
            done = draft.declare(self._zone, self._place.folder, state, self._partner)
            if not done or draft.metadata != state.metadata or draft.known != state.known:
                self._refresh()
            if done:
                return draft
        msg = "other writers keep changing the table's schema"
        raise TableBusyError(msg, table=self._name, next_step="Publish again when they are done.")

    def _check_name(self) -> None:
        """Refuse a new table beside which a good one of the zone would stop, as readers stop both."""
        # Where the zone itself is not there yet, or may not be listed, nobody can tell.
        with contextlib.suppress(LandingZoneError, StoreError):
            shown = list_tables(self._zone).items()
            others = (name for name, refusal in shown if not is_unlisted(name, refusal))
            if error := find_conflicts({self._table, *others}).get(self._table):
                step = "Publish under another name, or remove the other table's folder first."
                raise error.but(next_step=step)

    def _check_store(self) -> None:
        """See, before anything is published into a folder, that no two writers can take one number there."""
        if not keeps_out(self._zone, self._place.state(f"probe-{secrets.token_hex(16)}")):
            msg = f"{self._zone.url} has no put-if-absent, without which two writers could take one number"
            step = "Publish into an object store that keeps to If-None-Match, or a disk with hard links."
            raise StoreError(msg, table=self._name, next_step=step)

    def _landed(self, draft: Draft, call: Call) -> Published:
        files, notes = [], draft.notes
        for place, content in draft.contents:
            taken = self._state.taken
            after = taken.get(place.partition, 0)
            file = publish_next(self._zone, place, call, content, after=after)
            taken[place.partition] = max(after, file.number)
            files.append(file)
        if not files:
            notes = (*notes, "without rows there is no partition folder to publish into")
        return Published(table=self._name, files=tuple(files), notes=notes)
