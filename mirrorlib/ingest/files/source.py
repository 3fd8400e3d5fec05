"""Where one table's change files lie, and how they are read: what every stage from here on is given."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mirrorlib.journal.entries import PlannedFile, Policies
    from mirrorlib.store import Store, StoredFile


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Where one table's change files lie and by which policies they are read."""

    zone: Store
    table: str
    folder: str
    policies: Policies

    def find(self, planned: PlannedFile) -> StoredFile | None:
        """Find a file as it was planned; None when it was replaced or removed since."""
        stored = self.zone.stat(f"{self.folder}/{planned.name}")
        if stored is None or stored.etag != planned.etag:
            return None
        return replace(stored, below=planned.name)
