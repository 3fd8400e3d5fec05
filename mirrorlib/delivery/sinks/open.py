"""Choose a receiver by what a caller says: `delta:PATH`, `files:URL`, `zone:URL`, `jdbc:…` or `kafka://…`.

In: a URL, and a mode where there are several. Out: a `Sink`, and the URL as it may be shown. A receiver's module is
imported when one is opened, so it may import Spark at its head.
And keep what is delivered apart from the folders of Delta tables, see `check_disjoint`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from importlib import import_module
from typing import NoReturn

from mirrorlib.delivery.sink import Sink
from mirrorlib.delta.address import split_dotted
from mirrorlib.delta.log import LOG
from mirrorlib.errors import LandingZoneError, StoreError
from mirrorlib.store import Store, open_store
from mirrorlib.store.target import Target, settled
from mirrorlib.store.volumes import is_volume

_KINDS = {  # what a URL begins with, the module that receives, and its modes: the first is the default
    "delta": ("mirrorlib.delivery.sinks.delta.sink", ("changes", "current", "scd2")),
    "files": ("mirrorlib.delivery.sinks.files.sink", ("changes",)),
    "zone": ("mirrorlib.delivery.sinks.zone.sink", ("changes",)),
    "jdbc": ("mirrorlib.delivery.sinks.jdbc.sink", ("current",)),
    "kafka": ("mirrorlib.delivery.sinks.kafka.receive", ("changes",)),
}
_PART = r"(?:`(?:[^`]|``)+`|[^.`\s]+)"
_SCHEMA = re.compile(rf"{_PART}\.{_PART}")
# Without a slash Delta's is a schema of a catalog.
_RELATIVE = re.compile(
    r"(delta:(?=.*/)|files:|zone:|jdbc:sqlite:)(?!/|~|[\w+.-]+:)([^?]+)(.*)", re.DOTALL
)
_SECRET = re.compile(  # an escaped name may be any option's
    r"(//[^/:@?]*:)(?!\d*\?)[^/]*(?=@)"
    r"|((?:passw[^=&]*|passphrase|secret|token|sig|pem|(?<=[?&])[^=&]*(?:_key|%[^=&]*))=)[^&]*",
    re.IGNORECASE,
)


def open_sink(to: str, mode: str | None) -> tuple[Sink, str]:
    """Open a receiver, and settle its mode."""
    kind, _, address = to.partition(":")
    if kind not in _KINDS or not address.partition("?")[0]:
        msg = "nothing is known that receives changes under this URL"
        step = "Give delta:PATH, files:URL, zone:URL, jdbc:… or kafka://HOST:PORT/TOPIC."
        raise LandingZoneError(msg, found=shown_url(kind)[:80], next_step=step)
    module, modes = _KINDS[kind]
    if mode is not None and mode not in modes:
        msg = f"a receiver of kind {kind} has no mode {mode}"
        raise LandingZoneError(msg, next_step=f"It has: {', '.join(modes)}.")
    chosen = mode or modes[0]
    sink: Sink = import_module(module).open_sink(address, chosen)
    return sink, chosen


def absolute(to: str) -> str:
    """Make a local path in a receiver's URL absolute: what is registered means one place, wherever a run is started."""
    found = _RELATIVE.fullmatch(to)
    return f"{found[1]}{os.path.abspath(found[2])}{found[3]}" if found else to  # noqa: PTH100  # resolve() follows links


def place_of(to: str) -> str:
    """Return the part of a receiver's URL that says where it is."""
    return to.partition(":")[2]


def open_place(address: str) -> Target:
    """Read a Delta receiver's address: a path below which the tables go, or a schema of a catalog."""
    if "/" in address or "\\" in address:
        return Target.of(address, catalog=None, state=None)
    if not _SCHEMA.fullmatch(address):
        msg = "the address is neither a path, which has a slash in it, nor catalog.schema"
        step = (
            "Give /data/copy, ./copy, a URL, or catalog.schema; a receiver's stands behind delta:."
        )
        raise LandingZoneError(msg, found=ascii(address)[1:-1][:80], next_step=step)
    catalog, schema = split_dotted(address)
    return Target(place=schema, catalog=catalog, state="")


def is_same_url(one: str, other: str) -> bool:
    """Say whether two URLs name one receiver: neither a slash at the end of the place nor a password makes two."""
    kept = (shown_url(absolute(url)).replace("?", "&", 1) for url in (one, other))
    places = [re.sub(r":\*{3}(?=@)|&[^&]*=\*{3}(?=&|$)", "", url).partition("&") for url in kept]
    first, second = ((place.rstrip("/"), options) for place, _, options in places)
    return first == second


def shown_url(to: str) -> str:
    """Leave passwords out."""
    return _SECRET.sub(lambda found: f"{found[1] or found[2]}***", to)


def check_disjoint(to: str, target: str | None) -> None:
    """See that nothing is delivered to where tables lie, a catalog's apart: VACUUM, or the next run, would take it."""
    kind, address = to.partition(":")[0], place_of(to)
    if kind == "files":
        address = address.partition("?")[0]
    is_folder = kind in {"files", "zone"} or (kind == "delta" and {"/", "\\"} & set(address))
    if not is_folder or not address or is_volume(address):  # no table can be in a volume
        return
    place = _settled(address)
    if target is not None:
        root = _settled(target)
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


def _settled(address: str) -> str:
    url = open_store(address).url.rstrip("/")
    return settled(url) if "://" in url else url  # a link is a place of its own


def check_no_table(store: Store, folder: str, table: str) -> None:
    """See that the folder of a receiver's store where a table is delivered to is none of a Delta table, nor in one."""
    for there in _folders_above(folder):
        if store.first_names(f"{there}/{LOG}", 1):
            _refuse(f"{store.url}/{there}", table)


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
