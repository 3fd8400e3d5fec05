"""What a publication did: which files are visible now, with how many rows of each marker."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedFile:
    """One change file that is visible.

    Attributes:
        file: relative to the table folder.
        number: its sequence number.
        markers: rows by the marker's name; rows without a marker count as what they mean.
        size: bytes.
        repeated: it had been published before, or begun, and was not published twice. (Begun by a call
            that failed, or by another writer's with equal rows, which has published anew instead.)

    """

    file: str
    number: int
    rows: int
    markers: Mapping[str, int]
    size: int
    repeated: bool


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
