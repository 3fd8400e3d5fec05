"""Where one table's change files lie, and how they are read: what every stage from here on is given.

A batch may hold another file than was planned, where its commit has read the landing zone itself: too late
for a void, and nobody can tell which of the two contents Spark has read, or parts of both. Nothing goes on
then, for as long as the table's life lasts.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from mirrorlib.errors import FileChangedError
from mirrorlib.journal.entries import Entry, PlannedFile, Policies
from mirrorlib.landing.footer import same_kind
from mirrorlib.store import Store, StoredFile


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Where one table's change files lie and by which policies they are read."""

    zone: Store
    table: str
    folder: str
    policies: Policies

    def find(self, planned: PlannedFile, batch: int) -> StoredFile:
        """Find a file as it was planned for a batch; `FileChangedError` where it was replaced or removed since."""
        path, since = f"{self.folder}/{planned.name}", f"after batch {batch} was planned"
        return replace(self._seen(path, planned, since), below=planned.name)

    def check(self, file: StoredFile) -> None:
        """See that a file is still the one that was listed; `FileChangedError` where it was replaced, or removed."""
        self._seen(file.path, file, "while it was read")  # applied files lie elsewhere

    def _seen(self, path: str, file: PlannedFile | StoredFile, since: str) -> StoredFile:
        stored = self.zone.stat(path)
        if stored is None or stored.etag != file.etag:
            what = "was removed" if stored is None else "was replaced or has grown"
            msg = f"the change file {what} {since}"
            raise FileChangedError(msg, table=self.table, file=file.name)
        return stored

    def has(self, planned: PlannedFile) -> bool:
        """Say whether a file is there as it was planned, or holds the same, as one that was copied does."""
        stored = self.zone.stat(f"{self.folder}/{planned.name}")
        return stored is not None and (
            stored.etag == planned.etag or self.holds_same(stored, planned)
        )

    def holds_same(self, file: StoredFile, planned: PlannedFile) -> bool:
        """Say whether a file holds what was planned, whatever its identity is."""
        if file.size != planned.size:
            return False
        with self.zone.open_file(file.path) as handle:
            return same_kind(handle, file.size, planned.fingerprint) == planned.fingerprint


def start_over(table: str) -> str:
    """Advise to begin a table anew."""
    return f"Start the table over: mirrorlib reset TARGET {table}"


def changed_source_of(table: str, entry: Entry | None) -> FileChangedError | None:
    """Return what casts doubt on a table's newest batch; a life in doubt has no later one."""
    if entry is None or entry.done is None or entry.done.doubt is None:
        return None
    return FileChangedError(
        f"the change file was replaced while batch {entry.plan.batch} was committed, and may be in it either way",
        table=table,
        file=entry.done.doubt,
        next_step=start_over(table),
    )


def refuse_changed_source(table: str, entry: Entry | None) -> None:
    """Go on only where nothing casts doubt on a table's newest batch; else not before the table is reset."""
    doubt = changed_source_of(table, entry)
    if doubt is not None:
        raise doubt
