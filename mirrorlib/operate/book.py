"""Keep the ledger, and what happened to tables, in two Delta tables that dashboards can read.

In: a target, and a place for `mirrorlib_ledger`, a row for each batch that has ended, and `mirrorlib_events`, a row for
each time that a table was found in another state, or with another reason. Promise: a batch is in the ledger once,
however often and by however many it is written.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

from mirrorlib.delivery.sinks.open import open_place
from mirrorlib.delta.address import EVENTS, LEDGER
from mirrorlib.delta.ddl import make_table
from mirrorlib.delta.lock import lock_table
from mirrorlib.delta.sessions import lend_session
from mirrorlib.delta.table import TableRef, find_table, named_rows, read_table, refer
from mirrorlib.delta.trouble import in_our_words
from mirrorlib.errors import JournalError
from mirrorlib.journal.disk import Journal
from mirrorlib.names import TableName, parse_name
from mirrorlib.operate.ledger import Applied, newest_batches
from mirrorlib.operate.status import StatusReport, read_status
from mirrorlib.store import PathOrUrl, Store, open_store
from mirrorlib.store.target import Target
from mirrorlib.tabular import PartReport, noted

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LEDGER_COLUMNS = (
    "target string, table string, life int, batch bigint, outcome string, kind string, files int, bytes bigint, "
    "first_file string, last_file string, inserts bigint, updates bigint, deletes bigint, upserts bigint, "
    "version bigint, seconds double, seconds_by_stage map<string,double>, waited_seconds double, "
    "planned_at timestamp, finished_at timestamp, cause string"
)
EVENT_COLUMNS = (
    "target string, table string, state string, reason string, file string, since timestamp, seen_at timestamp, "
    "position string, version bigint, unapplied bigint, waiting_seconds double"
)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
Row: TypeAlias = tuple[Any, ...]  # values as the columns have them


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """How many rows a table was given."""

    table: str
    rows: int


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class BookReport(PartReport):
    """What was written down; of a table whose journal is damaged no batch is, until it is whole again."""

    columns: ClassVar = ("table", "new rows")
    facts: ClassVar = "table rows:count"
    tables: tuple[Written, ...]


def write_ledger(
    spark: SparkSession,
    target: PathOrUrl,
    to: str,
    *,
    catalog: str | None = None,
    state: PathOrUrl | None = None,
    allow_new: bool = False,
) -> BookReport:
    """Write down what has happened since the last time: batches that have ended, tables in another state.

    The two tables go *to* a path or URL, or to `catalog.schema`. The rest means the same as for `status`, but
    *allow_new* does not count where the ledger has batches of the target, whose journal is lost then.

    Raises:
        JournalError: nothing has ever been applied to this target, or its journal is lost.
        LandingZoneError: *to* is no place for tables.
        MirrorError: Spark could not write them.

    """
    place = open_place(to)
    journals = open_store(Target.of(target, catalog=catalog, state=state).state)
    ledger, events = (refer(place, parse_name(name)) for name in (LEDGER, EVENTS))
    beside = open_store(place.state) if place.state else None
    alone = lock_table(spark, place, beside, parse_name(LEDGER), lambda: False)
    words = in_our_words(to)
    with words, alone, lend_session(spark) as session:  # which keeps the microseconds of moments
        status = read_status(target, catalog=catalog, state=state, allow_new=allow_new)
        for ref, columns in ((ledger, LEDGER_COLUMNS), (events, EVENT_COLUMNS)):
            if find_table(session, ref) is None:
                shape = session.createDataFrame([], columns).schema.fields
                make_table(session, ref, shape, {}, str(ref.name))
        if not status.tables and _newest(session, ledger, status, "batch"):
            msg = "the ledger has batches of this target, and its journal is not there"
            step = "Say the right state; a journal that is lost means loading every table again."
            raise JournalError(msg, found=journals.url, next_step=step)
        batches, failures = _new_batches(session, ledger, status, journals)
        _merge(session, ledger, batches, LEDGER_COLUMNS, by=("target", "table", "life", "batch"))
        happened = _new_events(session, events, status)
        _merge(session, events, happened, EVENT_COLUMNS, by=("target", "table", "seen_at"))
    written = ((LEDGER, batches), (EVENTS, happened))
    told = tuple(Written(table=name, rows=len(rows)) for name, rows in written)
    return BookReport(tables=told, failures=tuple(failures))


def _new_batches(
    spark: SparkSession, ledger: TableRef, status: StatusReport, state: Store
) -> tuple[list[Row], list[str]]:
    """Read each table's journal back to what the ledger has; comes with what could not be read."""
    known = _newest(spark, ledger, status, "life", "batch", "unix_micros(finished_at)")
    rows, failures = list[Row](), list[str]()
    for table in status.tables:
        name = parse_name(table.table)
        life, number, ended = known.get(table.table, (0, 0, 0))
        found, well = list[Applied](), False
        with noted(failures):
            journal = Journal(state, name)
            if number:
                _check_known(journal, name, life, number, ended)
            for batch in newest_batches(journal, name, (life, number)):
                found.append(batch)
            well = True
        # All that is new of a life or nothing: the newest batch tells where to go on.
        whole = [one for one in found if well or found[-1].batch == 1 or one.life > found[-1].life]
        for batch in whole:
            more = {
                "target": status.target,
                "seconds": batch.spent,
                "seconds_by_stage": dict(batch.seconds),
            }
            rows.append(to_row(LEDGER_COLUMNS, asdict(batch) | more))
    return rows, failures


def _check_known(journal: Journal, name: TableName, life: int, number: int, ended: int) -> None:
    """Raise `JournalError` where a journal has begun again since: its batch is another than the ledger's last one."""
    lives = [one for one in journal.lives() if one.ordinal == life]
    try:
        newest = journal.newest(lives[0]) if lives else None
        done = (
            journal.entry(lives[0], number).done if newest and newest.plan.batch >= number else None
        )
    except JournalError:
        return  # what cannot be read contradicts nothing
    if done is not None:
        # A ledger may have been written by a session that cuts moments to the millisecond.
        apart = datetime.fromisoformat(done.finished_at) - _EPOCH - timedelta(microseconds=ended)
        if abs(apart) < timedelta(milliseconds=1):
            return
    msg = "the ledger has batches of this table that its journal has not"
    found = f"in the ledger life {life}, batch {number}"
    step = "Say the right state; if it was loaded again, write the ledger to another place."
    raise JournalError(msg, table=name.shown, found=found, next_step=step)


def _new_events(spark: SparkSession, events: TableRef, status: StatusReport) -> list[Row]:
    """Choose the tables that are not as they were when they were last written down."""
    known = _newest(spark, events, status, "unix_micros(seen_at)", "state", "reason")
    now, rows = datetime.now(UTC), list[Row]()
    for table in status.tables:
        last, *was = known.get(table.table, (0,))
        if was != [table.state, table.reason]:
            # Behind the last one, whose clock may have been ahead.
            seen_at = max(now, _EPOCH + timedelta(microseconds=last + 1))
            more = {"target": status.target, "seen_at": seen_at}
            rows.append(to_row(EVENT_COLUMNS, asdict(table) | more))
    return rows


def _newest(
    spark: SparkSession, ref: TableRef, status: StatusReport, *columns: str
) -> dict[str, Row]:
    """Return the greatest row of each table of a target, compared column by column."""
    from pyspark.sql import functions as f

    mine = read_table(spark, ref).where(f.col("target") == f.lit(status.target))
    newest = mine.groupBy("table").agg(f.max(f.struct(*map(f.expr, columns))).alias("newest"))
    return {row["table"]: tuple(row["newest"]) for row in newest.collect()}


def _merge(
    spark: SparkSession, ref: TableRef, rows: Sequence[Row], columns: str, *, by: Sequence[str]
) -> None:
    """Add rows that are not there, in one commit; none without rows."""
    if not rows:
        return
    same = " AND ".join(f"t.{name} = s.{name}" for name in by)
    with named_rows(spark.createDataFrame(rows, columns), spark) as source:
        spark.sql(
            f"MERGE INTO {ref.sql} AS t USING {source} AS s ON {same} WHEN NOT MATCHED THEN INSERT *"
        )


def to_row(columns: str, facts: Mapping[str, Any]) -> Row:
    """Order facts as columns; moments are texts in them, and a position is a number or several."""
    row = []
    for name, kind in (column.split() for column in columns.split(", ")):
        value = facts[name]
        if kind == "timestamp" and isinstance(value, str):
            value = datetime.fromisoformat(value) if value else None
        elif kind == "string" and value is not None:
            value = str(value)
        row.append(value)
    return tuple(row)
