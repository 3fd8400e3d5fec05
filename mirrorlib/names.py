"""Turn names of folders and files into typed values: tables, sequence numbers.

In: names as a listing gives them. Out: `TableName`, numbers, and refusals by name
(`TableNameError`). Pure: no store, no Spark. What a name may hold was tried on real Delta; only
what truly cannot be carried is refused.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from urllib.parse import unquote as percent_decode

from mirrorlib.errors import LandingZoneError, MirrorError, TableNameError, first_few, printable
from mirrorlib.identifiers import fold_name, with_twins

WHOLE_FOLDER = ""  # the partition folder of a table that has none
NO_VALUE = "__HIVE_DEFAULT_PARTITION__"
SCHEMA_SUFFIX = ".schema"
LONGEST_PART = 255  # bytes: what every file system takes as one name
LONGEST_SEGMENT = 240  # bytes: a name in the state folder gets endings of its own
LARGEST_NUMBER = 10**20 - 1

_ODD = re.compile(r"[^\w.-]")
_SEQUENTIAL = re.compile(r"(?:.*/)?([0-9]{20})\.[A-Za-z0-9]+", re.DOTALL)


@dataclass(frozen=True, slots=True)
class TableName:
    """A table of a landing zone: "dbo/orders", or "orders" in a zone without schema folders."""

    schema: str | None
    table: str

    def __str__(self) -> str:
        """Give the name as users say it, which is also the Delta table's path below the target."""
        return self.table if self.schema is None else f"{self.schema}/{self.table}"

    @property
    def shown(self) -> str:
        """The name as reports and JSON carry it: control characters and broken UTF-8 as escapes."""
        return "".join(
            ascii(character)[1:-1] if unicodedata.category(character) in {"Cc", "Cs"} else character
            for character in str(self)
        )

    @property
    def folder(self) -> str:
        """The table's folder in a landing zone, relative to the zone: "dbo.schema/orders", or "orders"."""
        return self.table if self.schema is None else f"{self.schema}{SCHEMA_SUFFIX}/{self.table}"

    @property
    def segment(self) -> str:
        """The whole name as one path segment that any store takes: "dbo~2Forders".

        Letters and digits of any script, `-`, `_` and `.` stand for themselves; every other
        character is `~` and two hex digits for each of its bytes (percent-encoding, without the `%`
        that URLs would decode once too often).
        """
        return _ODD.sub(_encoded, str(self))

    @classmethod
    def from_segment(cls, segment: str) -> TableName:
        """Give back the name that `segment` was made of."""
        return parse_name(percent_decode(segment.replace("~", "%"), errors="surrogateescape"))


def _encoded(odd: re.Match[str]) -> str:
    return "".join(f"~{byte:02X}" for byte in odd[0].encode(errors="surrogateescape"))


def parse_name(text: str) -> TableName:
    """Read a table's name as `str` writes it: "dbo/orders" or "orders"."""
    schema, slash, table = text.rpartition("/")
    if "/" not in schema:
        return TableName(schema if slash else None, table)
    msg = "a table is named as table or schema/table"
    raise TableNameError(msg, table=text, next_step="Correct the name.")


def parse_visible(text: str) -> TableName:
    """Read the name of a table whose folder we make: one that can be carried, and that readers do not ignore."""
    name = parse_name(text)
    if refusal := uncarriable(name):
        raise refusal
    if any(map(is_ignored, text.split("/"))):
        msg = "readers ignore folders whose name begins with _ or ."
        raise TableNameError(msg, table=text, next_step="Give the table another name.")
    return name


def is_ignored(name: str) -> bool:
    """Tell whether a file or folder is ignored: its name begins with `_` or `.`, or a disk keeps repairs in it."""
    return name.startswith(("_", ".")) or name == "lost+found"


def sequence_number(name: str) -> int | None:
    """Read the number, from 1 on, of a file name of exactly 20 digits and an extension, in any folder; else None."""
    found = _SEQUENTIAL.fullmatch(name)
    return int(found[1]) or None if found else None


def extension_of(name: str) -> str:
    """Return a file name's extension, in lower case and without its dot; "" when it has none."""
    _, dot, extension = name.rpartition("/")[2].rpartition(".")
    return extension.lower() if dot else ""


def sequence_name(number: int, extension: str = "parquet") -> str:
    """Name the file of a sequence number: `00000000000000000001.parquet` for 1."""
    if not 1 <= number <= LARGEST_NUMBER:
        msg = f"a sequence number has at most 20 digits and begins at 1, not {number}"
        raise ValueError(msg)
    return f"{number:020d}.{extension.removeprefix('.')}"


def partition_of(name: str) -> str:
    """Return the partition folder of a file's name below its table's folder; `WHOLE_FOLDER` outside of any."""
    return name.rpartition("/")[0]


def partition_values(name: str) -> dict[str, str | None]:
    """Read what partition folders state, `Region=eu/Day=2026-01-28`, escaped as Spark does; `=eu` names no column."""
    pairs = (step.partition("=") for step in partition_of(name).split("/") if "=" in step)
    return {
        _decoded(column): None if value == NO_VALUE else _decoded(value)
        for column, _, value in pairs
        if column
    }


def _decoded(escaped: str) -> str:
    return percent_decode(escaped, errors="surrogateescape")


def find_key(names: Iterable[str], key: str) -> str | None:
    """Find a key column among names: by its whole name, else without the blanks around it, as publishers copy them."""
    folded = {fold_name(name): name for name in names}
    return folded.get(fold_name(key)) or folded.get(fold_name(key.strip()))


def named_twice(names: Sequence[str]) -> str | None:
    """Return the first column name that repeats an earlier one, in whatever case; None when none does."""
    return next((name for name, first in with_twins(names) if first is not None), None)


def as_names(given: str | Iterable[str]) -> tuple[str, ...]:
    """Take a lone text for the one name that it is, not for its letters, of which `*` would be every table."""
    return (given,) if isinstance(given, str) else tuple(given)


def matches(name: TableName, patterns: Sequence[str]) -> bool:
    """Tell whether a table is asked for; without patterns every table is, a lone text is one.

    A pattern is a name or a glob (`dbo/*`, `*_log`), case-sensitive; without a slash it also
    matches the table part alone, whatever its schema.
    """
    patterns = as_names(patterns)
    return not patterns or any(
        text == pattern or fnmatchcase(text, pattern)
        for pattern in patterns
        for text in ((str(name),) if "/" in pattern else (str(name), name.table))
    )


def only_table(known: Iterable[TableName], called: str, error: type[MirrorError]) -> TableName:
    """Find the one table that is called so: by its whole name before its table part alone."""
    known = tuple(known)
    fitting = [name for name in known if matches(name, called)]
    found = [name for name in fitting if str(name) == called] or fitting
    if len(found) != 1:
        msg = "several tables are called so" if found else "there is no such table"
        shown = first_few(name.shown for name in found or known) or "none"
        raise error(msg, table=called, found=shown, next_step="Name one of them.")
    return found[0]


def refuse_unmatched(
    patterns: Sequence[str], shown: Collection[TableName], known: Iterable[TableName] = ()
) -> None:
    """Raise `LandingZoneError` where a pattern fits no table that a landing zone shows, or is *known* for."""
    there = (*shown, *known)
    for pattern in as_names(patterns):
        if not any(matches(name, pattern) for name in there):
            msg = "no table matches"
            found = f"tables {', '.join(name.shown for name in [*shown][:10]) or 'none'}"
            raise LandingZoneError(msg, table=pattern, found=found, next_step="Correct the name.")


def uncarriable(name: TableName) -> TableNameError | None:
    """Say why a name cannot be a folder name of the target and its state; None when it can."""
    for part in (name.table,) if name.schema is None else (name.schema, name.table):
        if reason := _uncarriable_part(part):
            return TableNameError(reason, table=printable(str(name)))
    if len(name.segment.encode()) > LONGEST_SEGMENT:
        msg = f"schema and table name together are longer than {LONGEST_SEGMENT} bytes"
        return TableNameError(msg, table=str(name))
    return None


def _uncarriable_part(part: str) -> str | None:
    """Say why one part of a name cannot be carried; None when it can."""
    if part in {"", ".", ".."}:
        return f"{part!r} is not a name"
    if any("\ud800" <= character <= "\udfff" for character in part):
        return "the name is not valid UTF-8"
    if any(unicodedata.category(character) == "Cc" for character in part):
        return "the name has a control character in it"
    if "/" in part or "\\" in part:
        return "the name has a slash or backslash in it"
    if len(part.encode()) > LONGEST_PART:
        return f"the name is longer than {LONGEST_PART} bytes"
    return None


def find_conflicts(names: Iterable[TableName]) -> Mapping[TableName, TableNameError]:
    """Find the tables that cannot lie in one target together; every one of a conflict is refused.

    Two names that differ only by case are one on case-insensitive stores and in catalogs. Of two
    names where one is a path prefix of the other, cleaning up the outer table would delete the
    inner one's files.
    """
    names = tuple(names)
    by_path: dict[str, list[TableName]] = {}
    for name in names:
        by_path.setdefault(_folded(str(name)), []).append(name)
    found: dict[TableName, TableNameError] = {}
    for name in names:
        if twins := [other for other in by_path[_folded(str(name))] if other != name]:
            found[name] = _conflict(name, twins[0], "differ only by case")
        outer = by_path.get(_folded(name.schema), []) if name.schema is not None else []
        for other in outer:
            found.setdefault(name, _conflict(name, other, "would lie one inside the other"))
            found.setdefault(other, _conflict(other, name, "would lie one inside the other"))
    return found


def _folded(path: str) -> str:
    return unicodedata.normalize("NFC", path.casefold())


def _conflict(name: TableName, other: TableName, how: str) -> TableNameError:
    return TableNameError(f"the tables {name} and {other} {how}", table=str(name))
