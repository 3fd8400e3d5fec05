"""Say what is wrong, where, and what to do next: one error tree, below `MirrorError`."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import KW_ONLY, asdict, dataclass, replace
from functools import partial
from typing import ClassVar, Self

_NAMED = 3  # how many names a sentence lists
_CALLING = "An error occurred while calling "  # Py4J's first line, which says nothing
_CLASS = re.compile(r"\b[A-Z]\w*(?:Exception|Error)\b")
_CLASSES = re.compile(
    r"^[ :]*(?:[a-z]\w*(?:\.\w+)+(?:Exception|Error)\b:?\s*)*(?:\[[A-Z_][A-Z0-9_.]+\]\s*)?|\s*SQLSTATE: \w+.*$"
)


@dataclass(eq=False, repr=False)
class MirrorError(Exception):
    """The base of every error that mirrorlib raises.

    The text is built from the facts: `table: file, row, column: reason (found …). Next step.`

    Args:
        reason: The broken claim, a clause without a full stop: "the row marker is not 0, 1, 2 or
            4".
        table: The table as its user names it, "dbo/orders".
        file: The change file, relative to its table folder, or the state file.
        column: The column's name.
        row: The row's place in its file, counted from 0.
        line: The line of a text file where the trouble starts, counted from 1 as editors do; shown
            in place of *row*.
        found: What was there instead: a marker, a type, a property's value, never data.
        next_step: What to do, a sentence; the class's own advice when it is not given.
    """

    advice: ClassVar[str] = ""
    wrong_usage: ClassVar[bool] = False  # what was asked for cannot be, whatever the tables hold
    reason: str
    _: KW_ONLY
    table: str | None = None
    file: str | None = None
    column: str | None = None
    row: int | None = None
    line: int | None = None
    found: str | int | None = None
    next_step: str | None = None

    def __post_init__(self) -> None:
        if self.next_step is None:
            self.next_step = self.advice
        super().__init__(self._text())

    def __reduce__(self) -> tuple[object, ...]:
        """Keep the attributes when the error crosses a process."""
        return partial(type(self), **asdict(self)), ()

    def but(self, **facts: str | int | None) -> Self:
        """Say the same of another place: a file, or a line instead of a row."""
        return replace(self, **facts)  # type: ignore[arg-type]  # its own fields

    @property
    def place(self) -> str:
        """Where it happened inside the table: file, line or row, and column, as far as known."""
        return place_in(self.file, self.row, self.line, self.column)

    def _text(self) -> str:
        named = (printable(part) for part in (self.table, self.place) if part)
        claim = ": ".join([*named, self.reason])
        found = "" if self.found is None else f" (found {printable(str(self.found))})"
        advice = f" {self.next_step}" if self.next_step else ""
        return "\n".join(printable(line) for line in f"{claim}{found}.{advice}".split("\n"))

    def to_dict(self) -> dict[str, str | int | None]:
        """Give the facts as JSON-ready values: class name, whole text and every attribute."""
        return {"error": type(self).__name__, "message": str(self), **asdict(self)}


class LandingZoneError(MirrorError):
    """The landing zone or the target is not where, or what, it has to be."""

    advice = "Check both paths."
    wrong_usage = True


class TableNameError(MirrorError):
    """A schema, table or column name cannot be carried to the target."""

    advice = "Rename it at the source."


class MetadataError(MirrorError):
    """`_metadata.json` cannot be understood, even read leniently."""

    advice = "Correct _metadata.json; the next run reads it again."


class ChangeFileError(MirrorError):
    """A change file is empty, cut short, still growing or unreadable."""

    advice = "Publish a good file under the same name; the next run reads it."


class FileChangedError(ChangeFileError):
    """A change file is no longer the one that was planned or applied."""

    advice = "Leave it in place; the next run reads it as it is then."


class MarkerError(MirrorError):
    """A row marker is unknown or NULL, or an update or delete has no keys to go by."""

    advice = "Publish a corrected file under the same name; the next run reads it."


class SchemaError(MirrorError):
    """A change file's schema does not fit the table's, or a column cannot be carried."""

    advice = "Publish a corrected file under the same name; the next run reads it."


class SnapshotError(MirrorError):
    """A snapshot has a key in more than one row, or loses more of the table's rows than it may."""

    advice = "Publish it whole under the same name; the next run reads it."


class JournalError(MirrorError):
    """The state beside the target cannot be read, trusted or written."""

    advice = "Check the target and --state; nothing was applied."
    wrong_usage = True


class ForeignWriteError(MirrorError):
    """Somebody else wrote to the Delta table since mirrorlib's last commit."""

    advice = "Run `mirrorlib rebuild`, or `reset`; or allow it with --allow-foreign-writes."


class OutcomeUnknownError(MirrorError):
    """Nobody can tell any more whether a batch was applied: the table's history is too short."""

    advice = "Run `mirrorlib reset` to load the table again."


class TableBusyError(MirrorError):
    """Another process is applying to this table."""

    advice = "Wait for it to end; the next run goes on from there."


@dataclass(eq=False, repr=False, kw_only=True)
class FeedError(MirrorError):
    """A change feed cannot be read as asked: the bounds are wrong, or the table has none.

    Attributes:
        first_readable: The first version whose changes can be read, where that is known.
    """

    advice = "Check the table, and the versions that are asked for."
    wrong_usage = True
    first_readable: int | None = None


class FeedExpiredError(FeedError):
    """Some commit of the window is gone, or was made while the feed was off: reading on would lose its changes."""

    advice = "Copy the table's rows as they are now, and read on from its newest version."
    wrong_usage = False


class KeysError(MirrorError):
    """Keys cannot be declared, read or stated as asked: a column is missing, or its type is not allowed."""

    advice = "Check the columns that are named as keys."
    wrong_usage = True


class KeysLostError(KeysError):
    """Keys that are needed no longer hold after what was done to the DataFrame."""

    advice = "Declare them anew with key_by, after the step that lost them."


class ParameterError(MirrorError):
    """A parameter of a notebook or a bundle is missing, unknown or of the wrong kind."""

    advice = "Correct the parameter."
    wrong_usage = True


class StoppedError(MirrorError):
    """A run ended with something blocked or failed, where a return value would not be looked at."""

    advice = "Its report, above, says what to do."


class ComputeError(MirrorError):
    """The compute refuses something that a correct result needs, such as a session's configuration."""

    advice = "Run it on compute whose sessions can be configured: on Databricks a job cluster with classic compute."


class StoreError(MirrorError):
    """The object store failed, or cannot do what is asked of it."""

    advice = "Try again; if it stays, see that the place is there, and may be read and written."


class LocalSparkError(MirrorError):
    """A local Spark session cannot be started on this machine, or what needs Spark is asked for where there is none."""

    advice = "Install what is missing and try again."


def place_in(file: str | None, row: int | None, line: int | None, column: str | None) -> str:
    """Say where something is, as far as known; a line, which people can look up, counts for more than a row."""
    named = (("row", row) if line is None else ("line", line), ("column", column))
    parts = [f"{what} {which}" for what, which in named if which is not None]
    return ", ".join([file, *parts] if file else parts)


def printable(text: str) -> str:
    """Make what others have written safe to print: control characters and broken UTF-8 as escapes."""
    return "".join(
        character if character.isprintable() else ascii(character)[1:-1] for character in text
    )


def first_line(exc: BaseException | str, length: int = 200) -> str:
    """Say briefly what a library found: its first line, without names of Java's and Spark's classes, cut short.

    The class's name stands for an error of Java's that has no text.
    """
    for line in str(exc).splitlines():
        if line.startswith("\tat "):
            break
        text = _CLASSES.sub("", line)
        if text.strip(" :.") and not line.startswith(_CALLING):
            return text[:length].strip()
    if named := _CLASS.search(str(exc)):
        return named[0]
    return "no text" if isinstance(exc, str) else type(exc).__name__


def first_few(names: Iterable[str]) -> str:
    """Name the first three, for a sentence about many."""
    listed = list(names)
    return ", ".join(listed[:_NAMED]) + (" …" if len(listed) > _NAMED else "")
