"""Turn Delta's refusals to read into errors that say from where on it can be read.

In: what Delta says, when a read is loaded or planned. Out: `FeedExpiredError` where history is at fault, so
that a snapshot helps; `FeedError` where the table is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirrorlib.delta.sessions import READS_WHOLE, read_conf
from mirrorlib.delta.trouble import conditions_of, tell_trouble
from mirrorlib.errors import FeedError, FeedExpiredError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from mirrorlib.delta.address import FeedTable
    from mirrorlib.delta.trouble import Trouble

TOO_OLD = "DELTA_UNSUPPORTED_TIME_TRAVEL_BEYOND_DELETED_FILE_RETENTION_DURATION"
_HISTORY = (
    TOO_OLD,
    "DELTA_CHANGE_DATA_FEED_INCOMPATIBLE",
    "DELTA_MISSING_CHANGE_DATA",
    "DELTA_TRUNCATED_TRANSACTION_LOG",
    "DELTA_VERSION_NOT_FOUND",
    "DELTA_VERSIONS_NOT_CONTIGUOUS",
)
_PLANNING = "Error occurred during query planning"


def condition_of(exc: Exception) -> str:
    """Return the name that Spark has for an error, "" when it has none; PySpark 3.5 calls it a class."""
    ask = getattr(exc, "getCondition", None) or getattr(exc, "getErrorClass", None)
    return (ask() if ask is not None else None) or ""


def refused_load(table: FeedTable, exc: Exception) -> FeedError:
    """Say what Delta has against reading a table."""
    told = tell_trouble(exc, "read the table")
    if any(name.startswith(_HISTORY) for name in conditions_of(exc)):
        return _expired(table, told)
    return FeedError(told.reason, table=table.shown, found=told.found)


def refuse_losses(spark: SparkSession, table: FeedTable) -> None:
    """See that the session leaves out no file that it cannot read; of Delta's files, no option of a reader says it.

    Raises:
        FeedError: it would, without a word.

    """
    for name, whole in READS_WHOLE.items():
        found = read_conf(spark, name) or whole  # what nobody is told, nobody has set
        if found.lower() != whole:
            msg = "the session leaves out files that it cannot read, so changes could be missing"
            step = f'Run: spark.conf.set("{name}", "{whole}")'
            raise FeedError(msg, table=table.shown, found=f"{name} = {found}", next_step=step)


def analysed(frame: DataFrame) -> DataFrame:
    """Let Delta look at a read now: a client of Spark Connect sends it only when somebody asks for something.

    Its server keeps what it has analysed for a while, and does not look at the age of versions again.
    """
    frame.schema  # noqa: B018  # asks
    return frame


def check_planned(spark: SparkSession, table: FeedTable, frame: DataFrame) -> None:
    """Let Delta plan a read now: what it refuses, it refuses only then, in whatever the caller does next.

    Raises:
        FeedExpiredError: it refuses, as history is gone.
        FeedError: it refuses for another reason.

    """
    try:
        told = spark.sql("EXPLAIN SELECT * FROM {feed}", feed=frame).collect()
    except Exception as exc:  # some of Delta's refusals are PySpark's errors, others Py4J's
        raise refused_load(table, exc) from exc
    lines = "\n".join(row[0] for row in told).split("\n")
    if lines[0].startswith(_PLANNING):
        raise _refused(table, " ".join(lines[1:]))


def _refused(table: FeedTable, told: str) -> FeedError:
    """Tell history that is gone from whatever else hinders planning, which may be over a moment later."""
    return refused_load(table, _SaidError(told))


def _expired(table: FeedTable, told: Trouble) -> FeedExpiredError:
    """Send the reader to what is still to come, which can be read whatever is wrong with what was."""
    first = table.commits.newest + 1
    return FeedExpiredError(told.reason, table=table.shown, found=told.found, first_readable=first)


class _SaidError(Exception):
    """Carries what Spark has printed of an error."""
