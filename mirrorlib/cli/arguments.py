"""Arguments that several commands share, and what they mean to the library."""

from __future__ import annotations

import argparse
import contextlib
import json
import re
from dataclasses import fields
from typing import Any

from mirrorlib.delta.properties import REWRITE_LIMIT
from mirrorlib.ingest.options import MAX_LOSS, SETTLE, Options
from mirrorlib.landing.metadata.declared import is_partial


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


def add_zone(command: argparse.ArgumentParser) -> None:
    """Add what `apply` and `plan` share; `zone_options` reads it."""
    add_place(command)
    add_target(command)
    _add_meaning(command)
    _add_snapshots(command)
    _add_limits(command)
    _add_exceptions(command)
    _add_plain(command)
    add_start(command)
    _add_replaced(command)
    _add_gone(command)
    command.add_argument(
        "--memory",
        type=heap,
        default="2g",
        metavar="SIZE",
        help="heap of the local Spark (default: 2g)",
    )


def add_start(command: argparse.ArgumentParser) -> None:
    """Add where a table begins."""
    command.add_argument(
        "--start-at",
        type=positive,
        metavar="N",
        help="begin with file number N, where earlier ones are gone (default: 1)",
    )


def zone_options(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the options that `apply` and `plan` share, as the library calls them."""
    if arguments.retention is not None and arguments.cleanup is None:
        arguments.refuse("argument --retention: means nothing without --cleanup")
    known = {"catalog", "state", *(one.name for one in fields(Options))}
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


def _add_meaning(command: argparse.ArgumentParser) -> None:
    """Add how rows and columns are applied."""
    command.add_argument(
        "--insert-policy",
        choices=("append", "upsert"),
        default="append",
        help="marker 0 inserts without a look (append, the format's word) or replaces the row of its key (upsert)",
    )
    command.add_argument(
        "--evolution",
        choices=("widen", "add", "strict"),
        default="widen",
        help="how columns may change (default: widen)",
    )
    command.add_argument(
        "--ntz",
        choices=("utc", "keep"),
        default="utc",
        help="timestamps without zone are instants in UTC, or stay without zone",
    )
    command.add_argument(
        "--conditional-updates",
        action="store_true",
        help="honour ConditionalUpdateColumn: an update counts only if its value there is greater than the row's",
    )
    command.add_argument(
        "--readers",
        choices=("plain",),
        help="keep tables readable by every reader of Delta: no deletion vectors, no types widened in place; "
        "changes cost more. A table remembers it (default: as each remembers)",
    )
    command.add_argument(
        "--partial-updates",
        type=partial,
        metavar="WHAT",
        help="what an update sets: the columns that its file has (absent), what is not NULL (nulls), what a column "
        "lists (listed:COLUMN), every column (never); default: as partialUpdates in _metadata.json says, or every one",
    )


def partial(text: str) -> str:
    """Read what an update sets."""
    if text == "never" or is_partial(text):
        return text
    msg = f"{text!r} is none of absent, nulls, listed:COLUMN, never"
    raise argparse.ArgumentTypeError(msg)


def _add_snapshots(command: argparse.ArgumentParser) -> None:
    """Add whether files are whole tables."""
    command.add_argument(
        "--snapshots",
        action="store_true",
        help="each numbered file is the table as it is from then on: commit what differs, and nothing else",
    )
    command.add_argument(
        "--max-loss",
        type=share,
        default=MAX_LOSS,
        metavar="SHARE",
        help="refuse a snapshot that deletes more than this share of the table's rows (default: 0.5)",
    )


def _add_limits(command: argparse.ArgumentParser) -> None:
    """Add how much one commit holds, and from when on."""
    command.add_argument("--max-files", type=positive, metavar="N", help="change files a commit")
    command.add_argument(
        "--max-bytes", type=size, metavar="N", help="bytes of change files a commit (500m, 2g)"
    )
    command.add_argument(
        "--settle",
        type=seconds,
        default=SETTLE,
        metavar="SECONDS",
        help="how long text has to lie still before it is read (default: 10)",
    )


def _add_exceptions(command: argparse.ArgumentParser) -> None:
    """Add what is refused unless it is asked for."""
    command.add_argument(
        "--retry",
        action="store_true",
        help="try files again that damaged a plan, though they have not changed",
    )
    command.add_argument(
        "--allow-foreign-writes",
        action="store_true",
        help="go on although somebody else wrote to a table",
    )
    command.add_argument(
        "--moved-from", metavar="URL", help="the same landing zone was there before"
    )
    command.add_argument(
        "--rewrite-limit",
        type=size,
        default=REWRITE_LIMIT,
        metavar="N",
        help="rewrite a table for a new type up to this size (default: 1g)",
    )


def _add_plain(command: argparse.ArgumentParser) -> None:
    """Add what becomes of table folders without `_metadata.json`."""
    command.add_argument(
        "--plain-folders",
        choices=("wait", "append"),
        default="wait",
        help="a table folder without _metadata.json waits for it, or its Parquet, CSV and JSON lines files "
        "are appended, each once, from folders at any depth (default: wait)",
    )
    command.add_argument(
        "--plain-evolution",
        choices=("add", "rescue", "fail", "none"),
        default="add",
        help="what a plain folder's table does with new columns and types: add them and rescue what does not fit, "
        "rescue all of it into _rescued_data, fail, or leave new columns out (default: add)",
    )
    command.add_argument(
        "--include-existing",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="append what a plain folder holds when it is first seen, or only what comes later (default: append it)",
    )
    command.add_argument(
        "--allow-overwrites",
        action="store_true",
        help="append a plain folder's file again, whole, when its content has changed",
    )


def _add_replaced(command: argparse.ArgumentParser) -> None:
    """Add what becomes of rows that do not change, and of all rows of a table that begins anew."""
    command.add_argument(
        "--allow-empty",
        action="store_true",
        help="let a reset table be replaced by no rows, and an empty snapshot empty its table",
    )
    command.add_argument(
        "--quiet-updates",
        dest="quiet",
        action="store_true",
        help="leave rows alone that an update would not change; the change feed shrinks",
    )


def _add_gone(command: argparse.ArgumentParser) -> None:
    """Add what becomes of files that were applied, and of tables that are gone."""
    command.add_argument(
        "--cleanup",
        choices=("move", "delete"),
        help="move applied files to their folder's _ProcessedFiles (move) or _FilesReadyToDelete (delete)",
    )
    command.add_argument(
        "--retention",
        type=positive,
        metavar="DAYS",
        help="remove what --cleanup moved after this many days (default: 7)",
    )
    command.add_argument(
        "--on-gone",
        choices=("keep", "drop"),
        default="keep",
        help="what becomes of a Delta table whose folder is gone from the zone (default: keep)",
    )
