"""Read a zone's `_partnerEvents.json`: who publishes, and from what.

In: a store over the zone. Out: `Partner`, or None where nobody says so. Nothing rests on it, so
nothing is refused: names are compared without case, and what cannot be read is left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from mirrorlib.landing.metadata.declared import METADATA_BYTES
from mirrorlib.landing.metadata.lenient import NotJsonError, read_lenient
from mirrorlib.store import Store

PARTNER_FILE = "_partnerEvents.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Partner:
    """Who publishes a zone."""

    name: str | None
    source_type: str | None  # what is mirrored: "PostgreSQL"
    source_version: str | None
    # What else it says of the source, as it stands in `additionalInformation`.
    information: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        source = " ".join(word for word in (self.source_type, self.source_version) if word)
        return f"{self.name or 'unknown'}{f', from {source}' if source else ''}"


def read_partner(zone: Store) -> Partner | None:
    """Read the file in the zone's root."""
    data = zone.read(PARTNER_FILE, most=METADATA_BYTES)
    try:
        members = _members(read_lenient(data, dict)[0]) if data is not None else {}
    except NotJsonError:
        return None
    source = _members(members.get("sourceinfo"))
    name, kind = _word(members.get("partnername")), _word(source.get("sourcetype"))
    version = _word(source.get("sourceversion"))
    if name is None and kind is None:
        return None
    information = source.get("additionalinformation")
    if not isinstance(information, dict):
        information = {}
    return Partner(name=name, source_type=kind, source_version=version, information=information)


def _members(value: object) -> dict[str, Any]:
    return {name.casefold(): it for name, it in value.items()} if isinstance(value, dict) else {}


def _word(value: object) -> str | None:
    """Return a text, or a number as it was written: 2019, not 2019.0."""
    if isinstance(value, float):
        return f"{value:.15g}"
    return str(value) if isinstance(value, str | int) and not isinstance(value, bool) else None
