"""Arguments that several commands share, and what they mean to the library."""

from __future__ import annotations

import argparse
import contextlib
import json
import re
from collections.abc import Callable
from dataclasses import fields
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, get_args, get_type_hints

from mirrorlib.ingest.options import Options, read_interval
from mirrorlib.landing.metadata.declared import is_partial

if TYPE_CHECKING:
    from collections.abc import Mapping

# What `apply` and `plan` share, in the order of `--help`, by the names that the library has for it.
_ZONE_OPTIONS: Mapping[str, str] = MappingProxyType(
    {
        "insert_policy": "marker 0 inserts without a look (append, the format's word) or replaces the row of its key "
        "(upsert)",
        "evolution": "how columns may change (default: widen)",
        "ntz": "timestamps without zone are instants in UTC, or stay without zone",
        "conditional_updates": "honour ConditionalUpdateColumn: an update counts only if its value there is greater "
        "than the row's",
        "readers": "keep tables readable by every reader of Delta: no deletion vectors, no types widened in place; "
        "changes cost more. A table remembers it (default: as each remembers)",
        "partial_updates": "what an update sets: the columns that its file has (absent), what is not NULL (nulls), "
        "what a column lists (listed:COLUMN), every column (never); default: as partialUpdates in _metadata.json says, "
        "or every one",
        "snapshots": "each numbered file is the table as it is from then on: commit what differs, and nothing else",
        "max_loss": "refuse a snapshot that deletes more than this share of the table's rows (default: 0.5)",
        "max_files": "change files a commit",
        "max_bytes": "bytes of change files a commit (500m, 2g)",
        "settle": "how long text has to lie still before it is read (default: 10)",
        "retry": "try files again that damaged a plan, though they have not changed",
        "allow_foreign_writes": "go on although somebody else wrote to a table",
        "moved_from": "the same landing zone was there before",
        "rewrite_limit": "rewrite a table for a new type up to this size (default: 1g)",
        "plain_folders": "a table folder without _metadata.json waits for it, or its Parquet, CSV and JSON lines files "
        "are appended, each once, from folders at any depth (default: wait)",
        "plain_evolution": "what a plain folder's table does with new columns and types: add them and rescue what does "
        "not fit, rescue all of it into _rescued_data, fail, or leave new columns out (default: add)",
        "include_existing": "append what a plain folder holds when it is first seen, or only what comes later "
        "(default: append it)",
        "allow_overwrites": "append a plain folder's file again, whole, when its content has changed",
        "start_at": "begin with file number N, where earlier ones are gone (default: 1)",
        "allow_empty": "let a reset table be replaced by no rows, and an empty snapshot empty its table",
        "quiet": "leave rows alone that an update would not change; the change feed shrinks",
        "cleanup": "move applied files to their folder's _ProcessedFiles (move) or _FilesReadyToDelete (delete)",
        "retention": "remove what --cleanup moved after this many days (default: 7)",
        "on_gone": "what becomes of a Delta table whose folder is gone from the zone (default: keep)",
    }
)


def add_place(command: argparse.ArgumentParser) -> None:
    """Add the landing zone, and which of its tables."""
    command.add_argument(
        "landing_zone", metavar="LANDING_ZONE", help="folder or URL that holds the table folders"
    )
    add_tables(command)


def add_tables(command: argparse.ArgumentParser) -> None:
    """Add which tables."""
    command.add_argument(
        "--table",
        dest="tables",
        action="append",
        default=[],
        metavar="NAME",
        help="only this table; a glob such as 'dbo/*' too; may be repeated",
    )


def add_target(command: argparse.ArgumentParser) -> None:
    """Add where the tables and the journal are."""
    command.add_argument(
        "target",
        metavar="TARGET",
        help="root path or URL of the Delta tables; with --catalog, a schema's name",
    )
    command.add_argument(
        "--catalog",
        metavar="NAME",
        help="the tables are this Spark catalog's, CATALOG.TARGET.table, where a platform brings the session",
    )
    command.add_argument(
        "--state", metavar="PATH", help="where the journal lives (default: TARGET/_mirrorlib)"
    )
    add_json(command)


def add_json(command: argparse.ArgumentParser) -> None:
    """Add the choice of JSON, for machines."""
    command.add_argument("--json", action="store_true", help="print JSON")


def add_memory(command: argparse.ArgumentParser) -> None:
    """Add the memory of a local Spark."""
    command.add_argument(
        "--memory",
        type=heap,
        default="2g",
        metavar="SIZE",
        help="heap of the local Spark (default: 2g)",
    )


def add_rounds(command: argparse.ArgumentParser, what: str) -> None:
    """Add how many tables a run takes at once, and whether runs follow each other."""
    add_option(command, "parallelism", "tables at once (default: cores, at most 8)")
    command.add_argument(
        "--watch",
        type=seconds,
        metavar="SECONDS",
        help=f"keep {what}, pausing this long in between, until Ctrl-C",
    )


def add_zone(command: argparse.ArgumentParser) -> None:
    """Add what `apply` and `plan` share; `zone_options` reads it."""
    add_place(command)
    add_target(command)
    for name, text in _ZONE_OPTIONS.items():
        add_option(command, name, text)
    add_memory(command)


def add_option(command: argparse.ArgumentParser, name: str, text: str = "") -> None:
    """Add an option of `Options`: its choices and its default are there, and how it is read is here."""
    kind, default = _KINDS[name], _DEFAULTS[name]
    details: dict[str, Any] = {"dest": name, "default": default}
    words = [one for part in (kind, *get_args(kind)) for one in get_args(part)]
    if kind is bool:
        details["action"] = argparse.BooleanOptionalAction if default else "store_true"
    elif name in _READ_AS:
        details["type"], details["metavar"] = _READ_AS[name]
    else:
        details["choices"] = tuple(dict.fromkeys(one for one in words if isinstance(one, str)))
    flag = "quiet-updates" if name == "quiet" else name.replace("_", "-")
    command.add_argument(f"--{flag}", help=text or _ZONE_OPTIONS[name], **details)


def zone_options(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the options that `apply` and `plan` share, as the library calls them."""
    if arguments.retention is not None and arguments.cleanup is None:
        arguments.refuse("argument --retention: means nothing without --cleanup")
    known = {"catalog", "state", *_DEFAULTS}
    return {name: value for name, value in vars(arguments).items() if name in known}


def positive(text: str) -> int:
    """Read a whole number from 1 on."""
    if not text.isdecimal() or int(text) < 1:
        msg = f"{text!r} is not a whole number from 1 on"
        raise argparse.ArgumentTypeError(msg)
    return int(text)


def key(text: str) -> list[tuple[str, tuple[str, ...]]]:
    """Read key columns by table: `COLUMN` of every table, `TABLE=COLUMN,…`, `TABLE=` for none, or JSON of these."""
    if text.startswith(("[", "{")):
        return _key_json(text)
    table, sign, columns = text.partition("=")
    if not sign:
        return [("", (text,))] if text else []  # a job's parameter may be empty
    names = tuple(name.strip() for name in columns.split(",")) if columns else ()
    if table and all(names):
        return [(table, names)]
    msg = f"{text!r} is neither a column nor TABLE=COLUMN[,COLUMN…]"
    raise argparse.ArgumentTypeError(msg)


def _key_json(text: str) -> list[tuple[str, tuple[str, ...]]]:
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    by_table = found if isinstance(found, dict) else {"": found}
    if all(_are_names(columns) for columns in by_table.values()):
        return [(table, tuple(columns)) for table, columns in by_table.items() if table or columns]
    msg = f"""{text!r} is neither a JSON list of columns nor a mapping such as {{"dbo/orders": ["id"]}}"""
    raise argparse.ArgumentTypeError(msg)


def _are_names(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(one, str) and one for one in value)


def start(text: str) -> str | int:
    """Read with what a consumer begins: snapshot, now, or a version from -1 on."""
    if text in {"snapshot", "now"}:
        return text
    if text.removeprefix("-").isdecimal() and int(text) >= -1:
        return int(text)
    msg = f"{text!r} is neither snapshot, nor now, nor a version"
    raise argparse.ArgumentTypeError(msg)


def seconds(text: str) -> float:
    """Read a number of seconds, which is not endless."""
    with contextlib.suppress(ValueError):
        if 0 <= (number := float(text)) < float("inf"):
            return number
    msg = f"{text!r} is not a number of seconds"
    raise argparse.ArgumentTypeError(msg)


def share(text: str) -> float:
    """Read a share from 0 to 1."""
    with contextlib.suppress(ValueError):
        if 0 <= (number := float(text)) <= 1:
            return number
    msg = f"{text!r} is not a share from 0 to 1"
    raise argparse.ArgumentTypeError(msg)


def size(text: str) -> int:
    """Read a size in bytes, with k, m or g behind it or not."""
    shifts = {"k": 10, "m": 20, "g": 30}
    unit = text[-1:].lower()
    number = positive(text[:-1] if unit in shifts else text)
    return number << shifts.get(unit, 0)


def heap(text: str) -> str:
    """Read the size of a Java heap: megabytes or gigabytes."""
    if not re.fullmatch(r"[1-9][0-9]*[mMgG]", text):
        msg = f"{text!r} is not a size such as 2g or 900m"
        raise argparse.ArgumentTypeError(msg)
    return text


def partial(text: str) -> str:
    """Read what an update sets."""
    if text == "never" or is_partial(text):
        return text
    msg = f"{text!r} is none of absent, nulls, listed:COLUMN, never"
    raise argparse.ArgumentTypeError(msg)


def interval(text: str) -> float:
    """Read seconds, or a number and a unit in words."""
    try:
        return read_interval(text)
    except ValueError as exc:
        raise argparse.ArgumentTypeError(str(exc)) from exc


_DEFAULTS = {one.name: one.default for one in fields(Options)}
_KINDS = get_type_hints(Options)
_READ_AS: Mapping[str, tuple[Callable[[str], object], str]] = {
    "partial_updates": (partial, "WHAT"),
    "max_loss": (share, "SHARE"),
    "max_files": (positive, "N"),
    "max_bytes": (size, "N"),
    "settle": (seconds, "SECONDS"),
    "moved_from": (str, "URL"),
    "rewrite_limit": (size, "N"),
    "start_at": (positive, "N"),
    "retention": (positive, "DAYS"),
    "parallelism": (positive, "N"),
    "backfill_interval": (interval, "INTERVAL"),
}
