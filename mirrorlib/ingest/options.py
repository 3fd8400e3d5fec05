"""What a caller may ask of an apply, as one frozen value that every stage reads."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields
from inspect import Parameter, signature
from numbers import Integral, Real
from types import NoneType
from typing import Literal, ParamSpec, TypedDict, TypeVar, get_args, get_origin, get_type_hints

from mirrorlib.delta.properties import REWRITE_LIMIT
from mirrorlib.journal.entries import Readers
from mirrorlib.landing.metadata.declared import is_partial
from mirrorlib.names import as_names

InsertPolicy = Literal["append", "upsert"]
Evolution = Literal["widen", "add", "strict"]
Ntz = Literal["utc", "keep"]
OnGone = Literal["keep", "drop"]
Cleanup = Literal["move", "delete"]
PlainFolders = Literal["wait", "append"]
PlainEvolution = Literal["add", "rescue", "fail", "none"]
Listing = Literal["auto", "full", "incremental"]
RETENTION = 7  # days
SETTLE = 10.0  # seconds
_LEAST = {
    **dict.fromkeys(("max_files", "max_bytes", "start_at", "retention", "parallelism"), 1),
    **dict.fromkeys(("rewrite_limit", "settle", "backfill_interval"), 0),
}
# How kinds of values are called, and what is of them.
_KINDS: dict[object, tuple[str, tuple[type, ...]]] = {
    bool: ("True or False", (bool,)),
    int: ("a whole number", (Integral,)),
    float: ("a number", (Real,)),
    str: ("a text", (str,)),
    NoneType: ("None", (NoneType,)),
    Sequence[str]: ("names", (str, Iterable)),
}
_P = ParamSpec("_P")
_R = TypeVar("_R")


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What `apply` and `plan` may be asked for: each is an argument of the same name there.

    Attributes:
        tables: names or globs of the tables to apply; empty is all of them.
        insert_policy: what marker 0 means: "append" inserts without a look (the format's word),
            "upsert" is marker 4.
        evolution: how columns may change: "widen", "add" (new columns only) or "strict".
        ntz: timestamps without zone become instants in UTC ("utc") or `timestamp_ntz` ("keep").
        max_files: change files a batch.
        max_bytes: bytes of change files a batch; a batch holds at least one file.
        parallelism: tables at once; by default as many as there are cores, at most eight.
        retry: try files again that have not changed since they damaged a plan; cut a batch that an earlier run has
            planned, and that no other one is at, as small as this run asks for.
        allow_foreign_writes: go on although somebody else wrote to a table.
        allow_empty: let a reset table be replaced by no rows, and an empty snapshot empty its table.
        quiet: leave rows alone that an update would not change; the change feed shrinks.
        conditional_updates: where a table's metadata states `ConditionalUpdateColumn`, an update or
            upsert counts only if its value there is greater than the row's; NULL is less than all.
        moved_from: the zone's former URL, when the same zone is now elsewhere.
        rewrite_limit: bytes up to which a table is rewritten for a type that Delta does not widen
            to.
        settle: seconds that text has to lie still before it is read.
        start_at: the number of a table's first change file, where earlier ones are gone; it means
            nothing once a file was applied, nor for a table that starts over and shows earlier ones.
        on_gone: what becomes of a Delta table whose folder is gone from the zone: "keep" or "drop".
        cleanup: where applied files are moved to, in their table's folder: `_ProcessedFiles` ("move")
            or `_FilesReadyToDelete` ("delete"); by default they stay where they are. Only for the one target
            that reads the zone: another finds them missing.
        retention: days after which moved files are removed, seven by default; goes with *cleanup*.
        plain_folders: a table folder without `_metadata.json` waits for it ("wait"), or its files are
            rows to be appended, each file once ("append"): Parquet, CSV with a header, JSON lines,
            at any depth.
        plain_evolution: what such a table does with a column that it lacks or a type that does not
            fit: "add" columns, widen types as *evolution* says and rescue what does not fit;
            "rescue" all of it into `_rescued_data`; "fail"; or leave new columns out ("none").
        include_existing: append the files too that a plain folder has when it is first seen; means
            nothing later.
        allow_overwrites: append a file of a plain folder again, whole, when it has been written again.
        listing: "auto" looks only for the next numbers where a folder holds more names than one page
            of a listing, and lists files without numbers from the greatest applied name on while names
            prove to be in the order of writing; "incremental" does so in every folder; "full" lists
            every folder in full. What such a look passes over, the next full listing shows: at the latest
            after seven short ones of files without numbers. The report says which listing it was.
        backfill_interval: seconds after which a folder is listed in full all the same.
        readers: "plain" keeps the tables readable by every reader of Delta: no deletion vectors, no types widened
            in place, at the price that docs/readers.md tells. A table remembers it, and later runs keep to it.
        partial_updates: what an update or upsert sets: the columns that its file has ("absent"), what is not
            NULL ("nulls"), what a column of the files lists ("listed:COLUMN"), or every column ("never");
            by default as `partialUpdates` in the table's metadata says, and without it every column.
        snapshots: each numbered file is the table as it is from then on (a nightly dump); what differs from
            the table is committed, and nothing else.
        max_loss: the share of a table's rows that a snapshot may delete; one that deletes more is refused
            until it is approved by a run with a greater share and *retry*.

    """

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
    backfill_interval: float = 3600.0  # seconds
    readers: Readers | None = None
    partial_updates: str | None = None
    snapshots: bool = False
    max_loss: float = 0.5  # of a table's rows

    def __post_init__(self) -> None:
        """Take a lone name for a list of one; refuse what means nothing, or would be taken for another choice."""
        for name, hint in get_type_hints(type(self)).items():
            _check_kind(name, getattr(self, name), (hint, *get_args(hint)))
        names = as_names(self.tables)
        object.__setattr__(self, "tables", names)  # the value is frozen from here on
        for name in names:
            _check_kind("tables", name, (str,))
        for name, least in _LEAST.items():
            number = getattr(self, name)
            if number is not None and not number >= least:  # which NaN is not either
                msg = f"{name} is {number}; it has to be {least} or more"
                raise ValueError(msg)
        if self.retention is not None and self.cleanup is None:
            msg = f"retention is {self.retention}; it means nothing without cleanup"
            raise ValueError(msg)
        partial = self.partial_updates
        if partial is not None and partial != "never" and not is_partial(partial):
            msg = f"partial_updates is {partial!r}; it has to be absent, nulls, listed:COLUMN or never"
            raise ValueError(msg)
        if not 0 <= self.max_loss <= 1:
            msg = f"max_loss is {self.max_loss}; it has to be a share from 0 to 1"
            raise ValueError(msg)


def _check_kind(name: str, value: object, kinds: Sequence[object]) -> None:
    """Refuse a value that is of no kind that its annotation names, and no word of it: text counts as true."""
    words = [word for kind in kinds if get_origin(kind) is Literal for word in get_args(kind)]
    known = [_KINDS[kind] for kind in kinds if kind in _KINDS]
    told, types = [one for one, _ in known], [one for _, ones in known for one in ones]
    # Python takes a flag for a number, too.
    fits = bool in types if isinstance(value, bool) else isinstance(value, tuple(types))
    if not fits and value not in words:
        wanted = f"one of {', '.join(map(str, (*told, *words)))}" if words else " or ".join(told)
        msg = f"{name} is {value!r}; it has to be {wanted}"
        raise ValueError(msg)


class Asked(TypedDict, total=False):
    """The same by their names, as keyword arguments; those that are not given are as in `Options`."""

    tables: Sequence[str]
    insert_policy: InsertPolicy
    evolution: Evolution
    ntz: Ntz
    max_files: int | None
    max_bytes: int | None
    parallelism: int | None
    retry: bool
    allow_foreign_writes: bool
    allow_empty: bool
    quiet: bool
    conditional_updates: bool
    moved_from: str | None
    rewrite_limit: int
    settle: float
    start_at: int | None
    on_gone: OnGone
    cleanup: Cleanup | None
    retention: int | None
    plain_folders: PlainFolders
    plain_evolution: PlainEvolution
    include_existing: bool
    allow_overwrites: bool
    listing: Listing
    backfill_interval: float
    readers: Readers | None
    partial_updates: str | None
    snapshots: bool
    max_loss: float


def show_options(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Let help and completion show the options of a function with `**asked: Unpack[Asked]`, with their defaults."""
    own = signature(function)
    shown = (
        Parameter(one.name, Parameter.KEYWORD_ONLY, default=one.default, annotation=one.type)
        for one in fields(Options)
    )
    *before, _ = own.parameters.values()
    function.__signature__ = own.replace(parameters=[*before, *shown])  # type: ignore[attr-defined]  # inspect's way
    return function
