"""What a caller may ask of an apply, as one frozen value that every stage reads."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from types import NoneType
from typing import Any, Literal, get_args, get_origin, get_type_hints

from mirrorlib.delta.properties import REWRITE_LIMIT
from mirrorlib.journal.entries import Readers
from mirrorlib.landing.metadata.declared import is_partial

InsertPolicy = Literal["append", "upsert"]
Evolution = Literal["widen", "add", "strict"]
Ntz = Literal["utc", "keep"]
OnGone = Literal["keep", "drop"]
Cleanup = Literal["move", "delete"]
PlainFolders = Literal["wait", "append"]
PlainEvolution = Literal["add", "rescue", "fail", "none"]
Listing = Literal["auto", "full", "incremental"]
BACKFILL_INTERVAL = 3600.0  # seconds
_SECONDS = {"second": 1, "minute": 60, "hour": 3600, "day": 86400, "week": 604800}
_INTERVAL = re.compile(rf"(?P<number>[0-9]+(\.[0-9]+)?)( *(?P<unit>{'|'.join(_SECONDS)})s?)?")
RETENTION = 7  # days
SETTLE = 10.0  # seconds
MAX_LOSS = 0.5  # of a table's rows


def read_interval(given: float | str) -> float:
    """Read seconds, or a number and a unit in words: "90 seconds", "1 day", "2 weeks".

    Raises:
        ValueError: it is neither, or endless.

    """
    found = _INTERVAL.fullmatch(given.strip().lower()) if isinstance(given, str) else None
    number = float(found["number"]) * _SECONDS[found["unit"] or "second"] if found else given
    if isinstance(number, str) or not 0 <= number < float("inf"):
        msg = f"backfill_interval is {given}; it has to be a number of seconds, or words such as 1 day"
        raise ValueError(msg)
    return float(number)


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Options of `apply` and `plan`, as callers give them; what each means stands at `apply_zone`."""

    tables: Sequence[str] = ()
    insert_policy: InsertPolicy = "append"
    evolution: Evolution = "widen"
    ntz: Ntz = "utc"
    max_files: int | None = None
    max_bytes: int | None = None
    parallelism: int | None = None
    retry: bool = False
    allow_foreign_writes: bool = False
    allow_empty: bool = False
    quiet: bool = False
    conditional_updates: bool = False
    moved_from: str | None = None
    rewrite_limit: int = REWRITE_LIMIT
    settle: float = SETTLE
    start_at: int | None = None
    on_gone: OnGone = "keep"
    cleanup: Cleanup | None = None
    retention: int | None = None
    plain_folders: PlainFolders = "wait"
    plain_evolution: PlainEvolution = "add"
    include_existing: bool = True
    allow_overwrites: bool = False
    listing: Listing = "auto"
    backfill_interval: float | str = BACKFILL_INTERVAL
    readers: Readers | None = None
    partial_updates: str | None = None
    snapshots: bool = False
    max_loss: float = MAX_LOSS

    @classmethod
    def given(cls, parameters: Mapping[str, Any]) -> Options:
        """Take the options among the parameters of a function that has one of the same name for each that it takes."""
        return cls(
            **{one.name: parameters[one.name] for one in fields(cls) if one.name in parameters}
        )

    def __post_init__(self) -> None:
        """Take a lone name for a list of one; refuse what means nothing, or would be taken for another choice."""
        names = (self.tables,) if isinstance(self.tables, str) else tuple(self.tables)
        object.__setattr__(self, "tables", names)  # the value is frozen from here on
        for name in ("max_files", "max_bytes", "start_at", "retention", "parallelism"):
            number = getattr(self, name)
            if number is not None and number < 1:
                msg = f"{name} is {number}; it has to be 1 or more"
                raise ValueError(msg)
        if self.rewrite_limit < 0:
            msg = f"rewrite_limit is {self.rewrite_limit}; it has to be 0 or more"
            raise ValueError(msg)
        if self.retention is not None and self.cleanup is None:
            msg = f"retention is {self.retention}; it means nothing without cleanup"
            raise ValueError(msg)
        object.__setattr__(self, "backfill_interval", read_interval(self.backfill_interval))
        partial = self.partial_updates
        if partial is not None and partial != "never" and not is_partial(partial):
            msg = f"partial_updates is {partial!r}; it has to be absent, nulls, listed:COLUMN or never"
            raise ValueError(msg)
        if not 0 <= self.max_loss <= 1:
            msg = f"max_loss is {self.max_loss}; it has to be a share from 0 to 1"
            raise ValueError(msg)
        for name, hint in get_type_hints(type(self)).items():
            nothing = (None,) if NoneType in get_args(hint) else ()
            for kind in (hint, *get_args(hint)):
                word, words = getattr(self, name), (*nothing, *get_args(kind))
                if get_origin(kind) is Literal and word not in words:
                    msg = f"{name} is {word!r}; it has to be one of {', '.join(map(str, words))}"
                    raise ValueError(msg)
