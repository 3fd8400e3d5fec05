"""Where one table's change files lie, and how they are read: what every stage from here on is given."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mirrorlib.apply.record import Policies
    from mirrorlib.store import Store


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Where one table's change files lie and by which policies they are read."""

    zone: Store
    table: str
    folder: str
    policies: Policies
