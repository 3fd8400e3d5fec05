"""Tell in our words what Spark and Delta have against something; their names for it never reach a user as the reason.

In: an exception. Out: `Trouble`: reason, next step, and what was found, without names of classes. What is not known
here is told as what Spark could not do, with the first line of its cause. Of errors about rows nothing is repeated, as
their texts hold values. Py4J hands on errors of running jobs without their names, so these are looked for in the text.
"""

from __future__ import annotations

import contextlib
import logging
import re
import traceback
from collections.abc import Iterator
from dataclasses import dataclass, replace

from mirrorlib.errors import MirrorError, first_line

_LOGGER = logging.getLogger(__name__)
_CONDITION = re.compile(r"\[([A-Z][A-Z0-9_]+(?:\.[A-Z0-9_]+)*)\]")
_STATE = re.compile(r"\s*SQLSTATE: \w+")
_CAUSE = re.compile(r"^Caused by: (.*)$", re.MULTILINE)
_RAISED = re.compile(  # the last line of a traceback of Python's, and where it was raised
    r'^  File "[^"\n]*", (?P<place>line \d+, in \S+)\n(?:^(?: {4}.*| *)\n)*^(?P<kind>[A-Za-z_][\w.]*)',
    re.MULTILINE,
)
_LONGEST = 300  # characters of what Spark says
_AGAIN = "The next run tries again."
_LOG = f"The log has the whole story at DEBUG of the logger mirrorlib (-vv). {_AGAIN}"
_NEWER = "Run the version of Spark and Delta that whoever changed the table has, or a newer one."
_START_OVER = "Start the table over with `mirrorlib reset`, or restore what was removed."
# A log that is there is read, so that a reset alone would come to the same trouble.
MEND_LOG = "Restore it. A mirror can be made anew: remove the Delta table, and mirrorlib reset TARGET TABLE"
_SMALLER = (
    "Give it more (--memory), or, where several files make a batch, smaller ones (--max-bytes with --retry, but for a "
    "table that starts over; export: --max-versions, but for a window that has begun)"
)
_COPY = "Copy the table's rows as they are now, and read on from its newest version."
_NO_CONSTRAINT = f"Take it off: ALTER TABLE … DROP CONSTRAINT, or DROP NOT NULL. {_AGAIN}"
_WAIT = f"{_AGAIN} If it stays, stop the other writer."
_FILE = r"(?:reading file|file) (?P<found>\S+\.(?:parquet|json|bin))"


@dataclass(frozen=True, slots=True, kw_only=True)
class Trouble:
    """What is wrong, and what to do; *found* is what of Spark's text is repeated, by a group of that name."""

    reason: str
    next_step: str
    found: str | None = None
    # It lies in the table or the machine, whatever the rows are: no file has to be looked at for it.
    outside: bool = False


_RIGHTS = Trouble(
    reason="Spark may not read or write the table or its files",
    next_step="Give whoever runs this the rights to it.", outside=True,
    found=r"(?P<found>(?:User|[Pp]rincipal)\b[^\n]*? does not have [^\n]+?)\.?$")  # fmt: skip
ENDED = Trouble(
    reason="the Spark Connect server has ended the session, as when nobody has used it for an hour",
    next_step="Start anew; the next run goes on.", outside=True)  # fmt: skip
# By how their names begin; the first that fits counts.
_KNOWN: dict[tuple[str, ...], Trouble] = {
    ("DELTA_CONCURRENT", "DELTA_METADATA_CHANGED", "DELTA_PROTOCOL_CHANGED", "DELTA_MAX_COMMIT_RETRIES",
     "DELTA_SCHEMA_CHANGED", "DELTA_SCHEMA_CHANGE_SINCE_ANALYSIS"): Trouble(
        reason="somebody else committed to the table at the same moment", next_step=_WAIT),
    ("DELTA_CANNOT_MODIFY_APPEND_ONLY",): Trouble(
        reason="somebody has set the table to take new rows only, and rows have to be changed",
        next_step=f"Take that off: ALTER TABLE … UNSET TBLPROPERTIES ('delta.appendOnly'). {_AGAIN}",
        outside=True),
    ("DELTA_UNSUPPORTED_FEATURE", "DELTA_INVALID_PROTOCOL"): Trouble(
        reason="the table has a feature that this version of Delta does not know", next_step=_NEWER,
        found=r"unsupported by Delta Lake (?P<found>[^\n]+?)\.?$"),
    ("FAILED_READ_FILE.FILE_NOT_EXIST", "DELTA_FILE_NOT_FOUND"): Trouble(
        reason="a file of the table is gone, by VACUUM or by hand", next_step=_START_OVER, found=_FILE),
    ("FAILED_READ_FILE", "CANNOT_READ_FILE"): Trouble(
        reason="Spark cannot read a file: a store may be out of reach for a moment, or the file is damaged",
        next_step=f"{_AGAIN} If it stays and the file is the table's own: {_START_OVER}", found=_FILE),
    ("DELTA_TRUNCATED_TRANSACTION_LOG", "DELTA_LOG_FILE_NOT_FOUND", "DELTA_VERSIONS_NOT_CONTIGUOUS",
     "DELTA_VERSION_NOT_FOUND", "DELTA_STATE_RECOVER", "DELTA_MISSING_PART_FILES", "DELTA_NO_COMMITS_FOUND"): Trouble(
        reason="the table's log lacks versions that are needed", next_step=MEND_LOG),
    ("DELTA_UNSUPPORTED_TIME_TRAVEL_BEYOND_DELETED_FILE_RETENTION",): Trouble(
        reason="the versions are older than the table keeps the files that it needs for them",
        next_step=_COPY),
    ("DELTA_CHANGE_DATA_FEED_INCOMPATIBLE", "DELTA_BLOCK_COLUMN_MAPPING_AND_CDC"): Trouble(
        reason="the table's columns have become others, and its change feed does not go over that",
        next_step=_COPY),
    ("DELTA_MISSING_CHANGE_DATA", "DELTA_CHANGE_TABLE_FEED_DISABLED"): Trouble(
        reason="the table's change feed was off for some of the versions",
        next_step="Switch it on for what comes: mirrorlib enable-feed TARGET"),
    ("PATH_NOT_FOUND", "DELTA_MISSING_DELTA_TABLE", "DELTA_TABLE_NOT_FOUND", "DELTA_PATH_DOES_NOT_EXIST",
     "TABLE_OR_VIEW_NOT_FOUND", "DELTA_SCHEMA_NOT_SET"): Trouble(
        reason="there is no such Delta table", next_step="Check its name and place."),
    ("EXPECT_TABLE_NOT_VIEW", "DELTA_ONLY_OPERATION"): Trouble(
        reason="a view, or a table that is none of Delta's, has the table's place",
        next_step=f"Drop or rename it, or choose another target. {_AGAIN}"),
    ("SCHEMA_NOT_FOUND", "CATALOG_NOT_FOUND", "REQUIRES_SINGLE_PART_NAMESPACE",
     "_LEGACY_ERROR_TEMP_1126"): Trouble(  # nested databases, for which the session catalog takes a catalog's name
        reason="the catalog or its schema is not there",
        next_step="Create it, or correct the target."),
    ("TABLE_OR_VIEW_ALREADY_EXISTS", "DELTA_TABLE_ALREADY_EXISTS", "FIELD_ALREADY_EXISTS", "FIELDS_ALREADY_EXISTS",
     "DELTA_DUPLICATE_COLUMNS_FOUND", "COLUMN_ALREADY_EXISTS"): Trouble(
        reason="somebody else has made the same table or column at the same moment", next_step=_WAIT),
    ("DELTA_CANNOT_CREATE_LOG_PATH", "DELTA_CREATE_TABLE_"): Trouble(
        reason="the table cannot be made where it has to be: something else has its place",
        next_step="Remove what is there if nobody needs it, as after a run that was killed while it made the table; "
        "else choose another target.", found=r"location \('(?P<found>[^']+)'\)"),
    ("DELTA_INVALID_CHARACTERS_IN_COLUMN_NAME", "DELTA_INVALID_COLUMN_NAMES", "INVALID_ATTRIBUTE_NAME_SYNTAX",
     "PARSE_SYNTAX_ERROR"): Trouble(
        reason="Delta cannot carry a column's name in this table", next_step="Rename the column at its publisher."),
    ("DELTA_CONSTRAINT_DEPENDENT", "DELTA_CONSTRAINT_DATA_TYPE"): Trouble(
        reason="somebody has put a constraint on a column of the table, which has to become another one",
        next_step=_NO_CONSTRAINT, found=r"constraint\(s\):\s+(?P<found>[^\n]+)"),
    ("DELTA_VIOLATE_CONSTRAINT", "DELTA_NOT_NULL_CONSTRAINT"): Trouble(
        reason="somebody has put a constraint on the table, and a row violates it",
        next_step=_NO_CONSTRAINT, outside=True,
        found=r"(?P<found>CHECK constraint \S+ \(.*\)|for column: [^\n]+?)(?: violated|\.?$)"),
    ("DELTA_EXCEED_CHAR_VARCHAR_LIMIT", "EXCEED_LIMIT_LENGTH"): Trouble(
        reason="somebody has made a column of the table too short for a value",
        next_step=f"Give it the type STRING. {_AGAIN}", found=r"Failed check: (?P<found>[^\n]+?)\.?$"),
    ("DELTA_GENERATED_COLUMN", "DELTA_IDENTITY"): Trouble(
        reason="somebody has made a column of the table one that Delta fills by itself",
        next_step="Start the table over with `mirrorlib reset`."),
    ("DELTA_FAILED_TO_MERGE_FIELDS", "DELTA_MERGE_INCOMPATIBLE", "DELTA_CANNOT_CHANGE", "DELTA_METADATA_MISMATCH",
     "NOT_SUPPORTED_CHANGE_COLUMN", "DELTA_ALTER_TABLE", "DELTA_UNSUPPORTED_TYPE_CHANGE", "DATATYPE_MISMATCH",
     "INCOMPATIBLE_DATA_FOR_TABLE", "DELTA_UNSUPPORTED_COLUMN", "UNRESOLVED_COLUMN", "DELTA_MERGE_UNRESOLVED"): Trouble(
        reason="the table's columns are not those that the rows were made for",
        next_step=f"{_AGAIN} If it stays, start the table over with `mirrorlib reset`."),
    ("DELTA_MULTIPLE_SOURCE_ROW_MATCHING",): Trouble(
        reason="a row of the table is to become several rows at once",
        next_step="Name the columns that tell the rows apart as keys."),
    ("CAST_", "ARITHMETIC_OVERFLOW", "NUMERIC_VALUE_OUT_OF_RANGE", "DATETIME_"): Trouble(
        reason="a value does not fit the type that it is to have", next_step=_LOG),
    ("DELTA_VACUUM_RETENTION",): Trouble(
        reason="the table's files would be removed sooner than readers of it may need them",
        next_step="Keep them for a week or more."),
    ("DELTA_ICEBERG_COMPAT_VIOLATION.DELETION_VECTORS",
     "DELTA_VIOLATE_TABLE_PROPERTY_VALIDATION_FAILED.PERSISTENT_DELETION_VECTORS"): Trouble(
        reason="a property that new tables have by default here does not go with deletion vectors",
        next_step="Take the default away; or mirrorlib reset TARGET TABLE, and apply with --readers plain.",
        outside=True, found=r"(?P<found>IcebergCompatV\d|symlink manifest)"),
    ("DELTA_UNKNOWN_CONFIGURATION", "DELTA_CANNOT_MODIFY_TABLE_PROPERTY"): Trouble(
        reason="this Delta does not take a property that the table has to have", next_step=_NEWER),
    ("INSUFFICIENT_PERMISSIONS", "UNAUTHORIZED", "PERMISSION_DENIED"): _RIGHTS,
    ("INVALID_HANDLE",): ENDED,
}  # fmt: skip
_OLDER = {  # words of Spark 3.5 and Delta 3 that have no condition there, and the one that they have since
    "It is possible the underlying files have been updated": "FAILED_READ_FILE.FILE_NOT_EXIST",
    "Encountered error while reading file": "FAILED_READ_FILE",
    "Cannot time travel Delta table to version": "DELTA_VERSION_NOT_FOUND",
    "such a low retention period": "DELTA_VACUUM_RETENTION",
    "plugin class not found": "CATALOG_NOT_FOUND",
}
_TEXTS = {  # what comes from below Spark has no condition
    "java.lang.OutOfMemoryError": Trouble(reason="Spark ran out of memory", next_step=f"{_SMALLER}."),
    "No space left on device": Trouble(reason="the disk is full", next_step=f"Make room. {_AGAIN}", outside=True),
    "Mkdirs failed to create": Trouble(
        reason="Spark cannot make a folder",
        next_step=f"See that it may, and that the disk has room, for more files too. {_AGAIN}", outside=True),
    "System memory": Trouble(
        reason="Spark needs more memory to start", next_step='Give it more: --memory 1g, in Python memory="1g".'),
    "Permission denied": _RIGHTS,
    "AccessDenied": _RIGHTS,
}  # fmt: skip
_THEIRS = frozenset({"delta", "grpc", "py4j", "pyspark"})  # packages
_GONE = Trouble(
    reason="Spark's process has ended, most likely because it had too little memory",
    next_step=f"{_SMALLER}, and run again.", outside=True)  # fmt: skip


def _is_gone(exc: BaseException) -> bool:
    """Say whether nobody is there any more to be called."""
    lost = isinstance(exc, ConnectionError) or type(exc).__name__ == "Py4JNetworkError"
    return lost or "does not exist in the JVM" in str(exc)


def is_sparks(exc: BaseException) -> bool:
    """Say whether an exception is Spark's, Delta's, or of the way to them."""
    return _is_gone(exc) or type(exc).__module__.partition(".")[0] in _THEIRS


def conditions_of(exc: BaseException) -> list[str]:
    """Name what Spark calls an error, which is a class to PySpark 3.5, and what its causes are called."""
    ask = getattr(exc, "getCondition", None) or getattr(exc, "getErrorClass", None)
    own, text = None if ask is None else ask(), str(exc)
    older = (name for words, name in _OLDER.items() if words in text)
    return [*filter(None, [own]), *_CONDITION.findall(text), *older]


def tell_trouble(exc: BaseException, doing: str) -> Trouble:
    """Tell an error in our words, or what Spark could not do (*doing*, as in "could not commit")."""
    if _is_gone(exc):
        return _GONE
    names, text = conditions_of(exc), str(exc)
    for begins, trouble in _KNOWN.items():
        if any(name.startswith(begins) for name in names):
            plain = _STATE.sub("", text)
            said = re.search(trouble.found, plain, re.MULTILINE) if trouble.found else None
            return replace(trouble, found=said["found"][:_LONGEST] if said else None)
    for word, trouble in _TEXTS.items():
        if word in text:
            return replace(trouble, found=None)
    if raised := _RAISED.search(text):  # its own words may hold values
        found = f"{raised['kind']}, {raised['place']}"
        reason = "a Python function failed that rows go through"
        return Trouble(reason=reason, next_step=_LOG, found=found)
    causes = _CAUSE.findall(text)
    line = first_line(causes[-1] if causes else exc, _LONGEST)
    return Trouble(reason=f"Spark could not {doing}", next_step=_LOG, found=line)


def spark_error(exc: BaseException, doing: str, table: str | None = None) -> MirrorError:
    """Make an error of ours of one of Spark's."""
    told = tell_trouble(exc, doing)
    return MirrorError(told.reason, table=table, found=told.found, next_step=told.next_step)


def as_mirror_error(exc: Exception, table: str) -> MirrorError:
    """Give an error as reports tell it: Spark's in our words, what nobody foresaw by its class and first line.

    Catch everything and ask here where one table's trouble is not to be its neighbours'. The log has its own words at
    DEBUG alone, as they may hold values of rows.
    """
    if isinstance(exc, MirrorError):
        return exc
    _LOGGER.debug("%s: failed unexpectedly", table, exc_info=exc)
    if is_sparks(exc):
        return spark_error(exc, "do what the table needs", table)
    where = "".join(traceback.format_tb(exc.__traceback__))
    _LOGGER.error("%s: an unexpected %s from\n%s", table, type(exc).__name__, where)
    msg = f"an unexpected {type(exc).__name__}"
    return MirrorError(msg, table=table, found=first_line(exc, _LONGEST), next_step=_LOG)


@contextlib.contextmanager
def in_our_words(table: str) -> Iterator[None]:
    """Raise what Spark has against what a block does as `as_mirror_error` gives it, and anything else as it is."""
    try:
        yield
    except Exception as exc:
        if not is_sparks(exc):
            raise
        raise as_mirror_error(exc, table) from exc
