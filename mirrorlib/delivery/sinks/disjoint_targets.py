"""Keep what is delivered apart from Delta tables: from those that are exported, and from any other's folder.

In: where a receiver is. Out: nothing, or a refusal. A Delta table's VACUUM removes every file of its folder
that the table does not know, and so would take what was delivered there.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NoReturn

from mirrorlib.delivery.sinks.open import place_of, shown_url
from mirrorlib.delta.log import LOG
from mirrorlib.errors import LandingZoneError, StoreError
from mirrorlib.store import Store, open_store
from mirrorlib.store.volumes import is_volume


def check_disjoint(to: str, target: str | None) -> None:
    """See that nothing is delivered to where tables lie, a catalog's apart: VACUUM, or the next run, would take it."""
    kind, address = to.partition(":")[0], _folder_of(to)
    if not address or is_volume(address):  # no table can be in a volume
        return
    place = open_store(address).url.rstrip("/")
    if target is not None:
        root = open_store(target).url.rstrip("/")
        msg = ""
        # In the target itself each copy meets its own source, which is refused by name.
        if kind == "delta" and place.startswith(f"{root}/"):
            msg = "the receiver lies inside the target whose tables it would receive"
        elif kind != "delta" and place == root:
            msg = "the receiver is the target itself, whose tables' folders would get what is delivered"
        if msg:
            step = "Export to a place beside the target."
            raise LandingZoneError(msg, found=shown_url(to), next_step=step)
    for folder in _folders_above(place):
        try:
            is_table = open_store(folder).first_names(LOG, 1)
        except (LandingZoneError, StoreError):  # closed to this user, as are those above it
            return
        if is_table:
            _refuse(folder)


def check_no_table(store: Store, folder: str, table: str) -> None:
    """See that the folder of a receiver's store where a table is delivered to is none of a Delta table, nor in one."""
    for there in _folders_above(folder):
        if store.first_names(f"{there}/{LOG}", 1):
            _refuse(f"{store.url}/{there}", table)


def _folder_of(to: str) -> str:
    """Return the folder that a receiver's URL names; "" where it is none."""
    kind, address = to.partition(":")[0], place_of(to)
    if kind == "files":
        return address.partition("?")[0]
    is_folder = kind == "zone" or (kind == "delta" and {"/", "\\"} & set(address))
    return address if is_folder else ""


def _folders_above(place: str) -> Iterator[str]:
    """Name a place and every folder above it, up to the bucket or the first folder of a disk."""
    root, separator, path = place.rpartition("://")
    steps = path.split("/")
    for depth in range(len(steps), 0, -1):
        if folder := "/".join(steps[:depth]):
            yield f"{root}{separator}{folder}"


def _refuse(folder: str, table: str | None = None) -> NoReturn:
    msg = "the receiver lies in the folder of a Delta table, whose VACUUM would remove what is delivered"
    step = "Export to a place outside of every table."
    raise LandingZoneError(msg, table=table, found=folder, next_step=step)
