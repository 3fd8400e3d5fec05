"""What is told of derived tables to people, and to `lineage`: one file each, beside the table; nothing rests on it.

derived/<table>.json        the derived table that a table of the target is: sources, keys, losses, last run
"""

from __future__ import annotations

import contextlib
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from mirrorlib.errors import JournalError
from mirrorlib.journal.entries import now
from mirrorlib.journal.plan_log import FORMAT, check_format, json_bytes
from mirrorlib.store import open_store

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mirrorlib.derived.place import Place
    from mirrorlib.derived.report import DeriveReport
    from mirrorlib.store import Store

_FOLDER = "derived"
_MEMBERS = {"address", "name", "sources", "keys", "losses", "how"}


def write_record(place: Place, report: DeriveReport) -> None:
    """Replace what is told of a derived table."""
    value = {
        "format": FORMAT,
        "address": place.address,
        "table": str(place.ref.name),
        **asdict(report),
        "at": now(),
    }
    open_store(place.state).put(f"{_FOLDER}/{place.ref.name.segment}.json", json_bytes(value))


def read_records(state: Store) -> Iterator[dict[str, Any]]:
    """Give what is told of the derived tables whose state is in a folder; what cannot be read is left out."""
    listed = state.list_folder(_FOLDER)
    for file in listed.files if listed else ():
        with contextlib.suppress(JournalError):
            record = check_format(state.read(file.path), file.path)
            if record.keys() >= _MEMBERS:
                yield record
