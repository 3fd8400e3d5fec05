"""Write our own JSON, for people too, and read it back where it has to be whole and of a format that we know.

In: a store and a path. Out: bytes, or what a record stands for. Promise: a record of a newer format is refused by name,
and nothing is made of what it says. The same value always makes the same bytes: writers compare them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from mirrorlib.errors import MirrorError, StoreError, first_line
from mirrorlib.store.protocol import Store

_FORMAT = 1
_STEP = "Use the mirrorlib version that wrote it, or a newer one; never edit what lies there."
T = TypeVar("T")


def json_bytes(value: Mapping[str, object]) -> bytes:
    """Write JSON, a line a value."""
    return f"{json.dumps(value, indent=2, ensure_ascii=False)}\n".encode("utf-8", "surrogatepass")


def record_bytes(value: Mapping[str, object]) -> bytes:
    """Write a record, which says its format."""
    return json_bytes({"format": _FORMAT, **value})


def read_record(
    store: Store,
    path: str,
    revive: Callable[[dict[str, Any]], T],
    what: str,
    error: type[MirrorError] = StoreError,
    table: str | None = None,
    step: str = _STEP,
) -> T | None:
    """Read back a record, of which *revive* makes what it stands for; None when there is none.

    *what* names, for an *error* about a table, what it is part of; *step* is what to do where it is damaged.
    """
    data = store.read(path)
    if data is None:
        return None
    cause = None
    try:
        value = {**json.loads(data)}
        number = value.pop("format")
        if number == _FORMAT:
            return revive(value)
        found, step = f"format {number}", _STEP
    except (AttributeError, KeyError, RecursionError, TypeError, ValueError) as exc:
        cause, found = exc, f"no {exc}" if isinstance(exc, KeyError) else first_line(exc)
    msg, file = f"{what} cannot be read", f"{store.url}/{path}"
    raise error(msg, table=table, file=file, found=found, next_step=step) from cause
