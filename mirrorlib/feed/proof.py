"""Prove that what a version tells, or holds, is still there; where it is not, say from where on all is.

In: a table's log. Out: nothing, or `FeedExpiredError` with the first version from which on every change up to
the newest version can be read, for whatever reasons those before it cannot.
Delta's own refusals to read are told in the same way, see `refused_load`. And how long a table keeps removed files and
commits. Source: Delta's `MetadataCleanup`: each checkpoint removes commits that are older than
`delta.logRetentionDuration`, whoever has still to read them, unless `delta.enableExpiredLogCleanup` is false.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from mirrorlib.delta.actions import FOREVER, FeedCommit, Held, Metadata
from mirrorlib.delta.address import FeedTable
from mirrorlib.delta.commits import Commits
from mirrorlib.delta.properties import FILE_RETENTION, LOG_RETENTION, PAUSED
from mirrorlib.delta.sessions import READS_WHOLE, read_conf, side_by_side
from mirrorlib.delta.trouble import conditions_of, tell_trouble
from mirrorlib.errors import FeedError, FeedExpiredError
from mirrorlib.feed.schemas import spans, widens

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

CLOCKS = timedelta(hours=1)  # by which a store's and a machine's clock may differ
TOO_OLD = "DELTA_UNSUPPORTED_TIME_TRAVEL_BEYOND_DELETED_FILE_RETENTION_DURATION"
_HISTORY = (
    TOO_OLD, "DELTA_CHANGE_DATA_FEED_INCOMPATIBLE", "DELTA_MISSING_CHANGE_DATA", "DELTA_TRUNCATED_TRANSACTION_LOG",
    "DELTA_VERSION_NOT_FOUND", "DELTA_VERSIONS_NOT_CONTIGUOUS",
)  # fmt: skip
_DEFAULTS = {FILE_RETENTION: "interval 1 week", LOG_RETENTION: "interval 30 days"}  # Delta's own
_NOTICE = 10  # of the time that a version is kept, the last part in which it is told that it goes
_PART = re.compile(r"(\d+)\s+((?:micro|milli)?second|minute|hour|day|week)s?")
_PLANNING = "Error occurred during query planning"


def expired(commits: Commits, reason: str, version: int) -> FeedExpiredError:
    """Say that changes are gone up to a version, which is the last that is known to be so, and where to read on."""
    first = first_readable(commits, version + 1)
    step = "Switch it on for what comes: mirrorlib enable-feed TARGET"
    if first is not None:
        then = f"the first version whose changes can be read is {first}"
        step = f"Copy the table's rows as they are now, and read on; {then}."
    return FeedExpiredError(reason, table=commits.shown, first_readable=first, next_step=step)


def first_readable(commits: Commits, lowest: int = 0) -> int | None:
    """Find the first version, not before *lowest*, from which on all can be read; None while the feed is off."""
    if not commits.metadata.has_feed:
        return None
    first = commits.newest + 1
    for commit in _newest_first(commits, max(lowest, commits.first)):
        try:
            current = metadata_before(commits, commit)
        except FeedError:
            break
        if current is None or flaw_of(commit, current, commits.metadata):
            break
        old = commits.written_at(commit.version) <= vacuumed_until(commits, commit.version)
        if old and not all(side_by_side(commits.holds, commit.files, commits.store.at_once)):
            break
        first = commit.version
    return first


def _newest_first(commits: Commits, lowest: int) -> Iterator[FeedCommit]:
    """Read versions down to one, as many at once as a store serves: it may be the second that ends it."""
    most = commits.store.at_once
    for last in range(commits.newest, lowest - 1, -most):
        yield from reversed(commits.read_all(max(lowest, last - most + 1), last))


def flaw_of(commit: FeedCommit, current: Metadata, newest: Metadata) -> str:
    """Say why a version's changes cannot be told beside those before it, *current* then; "" where they can."""
    version, became = commit.version, commit.metadata or current
    if became.id != current.id:
        return f"version {version} made the table anew"
    # A column that has had another name since is read as NULL, or as another one.
    unmapped = became.mapped and not newest.mapped and became.id == newest.id
    if (commit.changes and unmapped) or (current.mapped and not became.mapped):
        return f"column mapping was taken away since version {version}, and Delta finds its columns no more"
    if not (became.has_feed or commit.rewrites or is_idle(commit, became)):
        return f"the feed was off when version {version} was committed"
    if commit.changes and not (spans(current, became) or widens(current, became)):
        return f"version {version} replaced rows and schema at once"
    # Rows that it leaves alone have the values again that a column had before it was dropped.
    if commit.provenance.operation == "RESTORE" and became.mapped and not spans(became, current):
        return f"version {version}, a RESTORE, brought columns back whose values no change tells"
    return ""


def is_idle(commit: FeedCommit, became: Metadata) -> bool:
    """Say whether a version changes no row while a rewrite has the feed off."""
    return not (commit.changes or became.has_feed) and became.properties.get(PAUSED) == "true"


def metadata_before(commits: Commits, commit: FeedCommit) -> Metadata | None:
    """Find the metadata that a commit meets: it may be the one that changes them. None where nothing tells."""
    if commit.metadata is None or commit.version == 0:
        return commit.metadata or commits.metadata_at(commit.version)
    try:
        return commits.metadata_at(commit.version - 1)
    except FeedError:
        return None if commit.changes else commit.metadata


def vacuumed_until(commits: Commits, version: int) -> datetime:
    """Say up to when files were written that a VACUUM may have taken: not each writes down that it ran.

    One that does not is taken to have kept what the table keeps; younger files need no looking for.
    """
    unsaid = datetime.now(UTC) - (kept_for(commits, FILE_RETENTION) or timedelta())
    return max(unsaid, commits.vacuumed_until(version)) + CLOCKS


def prove_files(commits: Commits, versions: Sequence[int], until: datetime | None = None) -> None:
    """Raise `FeedExpiredError` if a file of changes is gone, of those versions that were written up to a moment."""
    files = [
        (version, path)
        for version in reversed(versions)
        if until is None or commits.written_at(version) <= until
        for path in commits.read(version).files
    ]
    most = 16 * commits.store.at_once  # at a time: of a wide window the first that is gone ends it
    for begin in range(0, len(files), most):
        part = files[begin : begin + most]
        there = side_by_side(lambda file: commits.holds(file[1]), part, commits.store.at_once)
        for (version, _), held in zip(part, there, strict=True):
            if not held:
                what = f"the changes of version {version} were removed by VACUUM"
                raise expired(commits, what, version)


def prove_rows(commits: Commits, version: int) -> None:
    """Raise `FeedExpiredError` if a file of a version's rows is gone: VACUUM takes what later versions removed."""
    came: set[Held] = set()
    for number in range(max(version + 1, commits.first), commits.newest + 1):
        removed, added = commits.moves(number)
        if not all(commits.holds(path) for held in removed if held not in came for path in held):
            raise expired(commits, f"the rows of version {version} were removed by VACUUM", version)
        came.update(added)


def refused_load(table: FeedTable, exc: Exception) -> FeedError:
    """Say what Delta has against reading a table; what is still to come can be read whatever is wrong with what was."""
    told, shown = tell_trouble(exc, "read the table"), table.shown
    if any(name.startswith(_HISTORY) for name in conditions_of(exc)):
        first = table.commits.newest + 1
        return FeedExpiredError(told.reason, table=shown, found=told.found, first_readable=first)
    return FeedError(told.reason, table=shown, found=told.found)


def refuse_losses(spark: SparkSession, table: FeedTable) -> None:
    """Raise `FeedError` if the session leaves out files that it cannot read; no reader's option says it of Delta's."""
    for name, whole in READS_WHOLE.items():
        found = read_conf(spark, name) or whole  # what nobody is told, nobody has set
        if found.lower() != whole:
            msg = "the session leaves out files that it cannot read, so changes could be missing"
            step = f'Run: spark.conf.set("{name}", "{whole}")'
            raise FeedError(msg, table=table.shown, found=f"{name} = {found}", next_step=step)


def check_planned(spark: SparkSession, table: FeedTable, frame: DataFrame) -> None:
    """Let Delta plan a read now: what it refuses, it refuses only then, in whatever the caller does next.

    Raises `FeedError` where it refuses, `FeedExpiredError` as history is gone.
    """
    try:
        plan = spark.sql("EXPLAIN SELECT * FROM {feed}", feed=frame).collect()
    except Exception as exc:  # some of Delta's refusals are PySpark's errors, others Py4J's
        raise refused_load(table, exc) from exc
    lines = "\n".join(row[0] for row in plan).split("\n")
    if lines[0].startswith(_PLANNING):
        raise refused_load(table, RuntimeError(" ".join(lines[1:])))


def retention_of(commits: Commits, name: str) -> timedelta:
    """Read how long a property says that a table keeps files or commits; `FeedError` where it cannot be understood."""
    kept = kept_for(commits, name)
    if kept is None:
        msg = f"the table's {name} cannot be understood"
        found = commits.metadata.properties.get(name)
        step = f"Set it as Delta writes it: {_DEFAULTS[name]}."
        raise FeedError(msg, table=commits.shown, found=found, next_step=step)
    return kept


def kept_for(commits: Commits, name: str) -> timedelta | None:
    """Read how long a property says that something is kept; None where it cannot be understood."""
    return duration_of(commits.metadata.properties.get(name, _DEFAULTS[name]))


def may_leave_log(commits: Commits, after: int) -> datetime | None:
    """Say from when on the first version behind one may leave the log; None while most of its time is still to come."""
    cleans = commits.metadata.properties.get("delta.enableExpiredLogCleanup", "true")
    if cleans.lower() == "false":
        return None
    kept = retention_of(commits, LOG_RETENTION)
    if not commits.first <= after + 1 <= commits.newest:
        return None
    leaves = commits.written_at(after + 1) + kept
    return leaves if leaves - kept / _NOTICE <= datetime.now(UTC) else None


def duration_of(text: str) -> timedelta | None:
    """Read a duration as Delta writes it; None where it cannot be understood."""
    text = text.lower()
    parts = _PART.findall(text)
    if not parts or _PART.sub("", text).replace("interval", "").strip():
        return None
    kept = sum((timedelta(**{f"{unit}s": int(n)}) for n, unit in parts), timedelta())
    return min(kept, FOREVER)
