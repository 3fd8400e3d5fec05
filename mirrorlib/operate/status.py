"""Say how every table of a target stands, from its journal and a look at its landing zone; no Spark is started.

In: a target. Out: `StatusReport`. The journal's last word tells what stopped a table; the zone's
listing tells what has come since. A zone that cannot be reached leaves the last word as it is, and
says so.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import ClassVar

from mirrorlib.errors import MirrorError, StoreError
from mirrorlib.events import STOPPED
from mirrorlib.ingest.files.continued_life import newest_entry
from mirrorlib.ingest.files.history import History
from mirrorlib.ingest.files.incremental_listing import IncrementalListing, read_listed
from mirrorlib.ingest.files.plan import first_position, next_run
from mirrorlib.ingest.files.source import changed_source_of
from mirrorlib.ingest.files.table_folder import EMPTIED, OpenedFolder, open_folder
from mirrorlib.ingest.options import Options
from mirrorlib.ingest.report import (
    GONE,
    SHOWS_NOTHING,
    State,
    TableState,
    reason_line,
    shown_position,
)
from mirrorlib.journal.disk import Journal
from mirrorlib.journal.entries import zone_of
from mirrorlib.landing.listing import list_tables
from mirrorlib.landing.metadata.partner import Partner, read_partner
from mirrorlib.names import TableName
from mirrorlib.operate.ledger import NEW, find_applied
from mirrorlib.store import PathOrUrl, open_store
from mirrorlib.store.target import Target
from mirrorlib.tabular import StateReport, shown_moment

_BACK = "Its folder is back, and the next apply begins a new life. Run: mirrorlib apply"


@dataclass(frozen=True, slots=True, kw_only=True)
class TableStatus(TableState):
    """How one table stands.

    Attributes:
        last_commit: when its version was committed, ISO 8601.
        lag_seconds: age of the newest change file that is not applied, None when there is none.
        waiting_seconds: age of the oldest one.
        unapplied: how many files are not applied.
        landing_zone: where they come from.
        life: how many lives the table folder has had.

    """

    last_commit: str | None = None
    lag_seconds: float | None = None
    waiting_seconds: float | None = None
    unapplied: int = 0
    landing_zone: str | None = None
    life: int = 0

    @property
    def reached(self) -> str | int | None:
        """Return the position as one cell has it."""
        position = self.position
        return f"{len(position)} partitions" if isinstance(position, Mapping) else position


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class StatusReport(StateReport):
    """How every table of a target stands."""

    columns: ClassVar = ("table", "state", "position", "version", "last commit", "waiting", "lag")
    facts: ClassVar = (
        "table state reached version last_commit:moment unapplied lag_seconds:duration"
    )
    target: str
    tables: tuple[TableStatus, ...]
    publisher: Partner | None = None

    def notes(self) -> list[str]:
        """Say for each table why it is not current, then what it warns about."""
        if not self.tables:
            return [NEW]
        lines = []
        for t in self.tables:
            told = t.since and t.state in {*STOPPED, "current"}
            since = f" since {shown_moment(t.since)}" if told else ""
            lines += [reason_line(t.table, f"{t.state}{since}", t.reason)] if t.reason else []
        lines += [f"{t.table}: warning: {warning}" for t in self.tables for warning in t.warnings]
        return [*lines, f"published by {self.publisher}"] if self.publisher else lines


def read_status(
    target: PathOrUrl,
    *,
    catalog: str | None = None,
    state: PathOrUrl | None = None,
    allow_new: bool = False,
) -> StatusReport:
    """Read how every table of a target stands.

    *target*, *catalog* and *state* mean the same as for `apply`. With *allow_new*, a target to which nothing was
    applied yet is empty, where by default it is an error: a path may be wrong. That is for jobs that run by a clock
    from their deployment on.

    Raises:
        JournalError: nothing has ever been applied to this target.

    """
    places = Target.of(target, catalog=catalog, state=state)
    moment = datetime.now(UTC)
    tables: list[TableStatus] = []
    away: dict[str, str] = {}
    for name, journal in find_applied(open_store(places.state), allow_new=allow_new).items():
        try:
            status = status_of(journal, name, moment, away)
        except MirrorError as exc:
            table, reason = name.shown, str(exc)
            status = TableStatus(table=table, state="failed", reason=reason, file=exc.file)
        if status is not None:
            tables.append(status)
    publisher = _publisher(tables)
    return StatusReport(target=places.shown, tables=tuple(tables), publisher=publisher)


def _publisher(tables: Iterable[TableStatus]) -> Partner | None:
    """Read who publishes the zone, in its root."""
    for url in dict.fromkeys(one.landing_zone for one in tables if one.landing_zone is not None):
        # A table's own status says what is wrong with its zone.
        with contextlib.suppress(MirrorError):
            return read_partner(open_store(url))
    return None


def status_of(
    journal: Journal, name: TableName, moment: datetime, away: dict[str, str] | None = None
) -> TableStatus | None:
    """Read how a table stands; None where it has no folder, and never began.

    Zones that are found *away* are noted there, by URL and with the reason, and not asked again for other tables.
    """
    away = {} if away is None else away
    lives = journal.lives()
    entry = journal.newest_of(lives)
    word = journal.read_status()
    said = ("state", "reason", "file", "since", "position", "version", "last_commit")
    known = {one: word[one] for one in said if one in word} | {"life": len(lives)}
    zone_url, warnings = zone_of(word, entry), tuple(word.get("warnings", ()))
    status = TableStatus(table=name.shown, landing_zone=zone_url, warnings=warnings, **known)
    if entry is not None:
        status = replace(status, position=shown_position(entry.position))
        if (done := journal.last_done(lives[-1], entry.plan, entry.done)) is not None:
            status = replace(status, version=done.version, last_commit=done.finished_at)
    if (doubt := changed_source_of(name.shown, entry)) is not None:  # whatever the last word is
        status = _turned(status, "failed", str(doubt), doubt.file)
    if status.landing_zone is None:
        return status
    if status.landing_zone in away:
        return _unread(status, away[status.landing_zone])
    try:
        zone = open_store(status.landing_zone)
        history = History(journal, zone.url)
        incremental = IncrementalListing(history, Options(), read_listed(word), due=False)
        opened = open_folder(zone, name, history, incremental=incremental)
        if not opened.listing.count and zone.list_folder(name.folder) is None:
            if zone.list_folder("") is None or not list_tables(zone):  # as one that is not mounted
                return replace(status, warnings=(*status.warnings, SHOWS_NOTHING))
            gone = status if status.state == "gone" else _turned(status, "gone", GONE)
            return gone if lives else None
    except MirrorError as exc:
        _note_away(away, status.landing_zone, exc)
        return _unread(status, str(exc))
    if lives and journal.is_gone(lives[-1]):  # what was applied belongs to the life before
        return _with_listing(status, opened, {}, moment)
    entry = newest_entry(journal, lives, opened.metadata)
    begin = first_position(opened.listing, lives[-1].start_at) if lives else {}
    return _with_listing(status, opened, (entry.position if entry else {}) or begin, moment)


def _note_away(away: dict[str, str], zone: str, exc: MirrorError) -> None:
    """Note a zone that cannot even be listed: a lost connection is tried again for some seconds, each time."""
    if isinstance(exc, StoreError):
        try:
            open_store(zone).list_folder("")
        except MirrorError:
            away[zone] = str(exc)


def _unread(status: TableStatus, why: str) -> TableStatus:
    if why in status.reason:  # what stopped the table is still so
        return status
    warning = f"the landing zone cannot be read: {why}"
    return replace(status, warnings=(*status.warnings, warning))


def _with_listing(
    status: TableStatus, opened: OpenedFolder, position: Mapping[str, int], moment: datetime
) -> TableStatus:
    """Compare the last word with what the zone shows now."""
    listing = opened.listing
    run = next_run(listing, position)
    partitions = [(position.get(one, 0), files) for one, files in listing.partitions.items()]
    unapplied = [one for last, files in partitions for n, one in files.items() if n > last]
    ages = [round(max((moment - file.modified).total_seconds(), 0.0), 1) for file in unapplied]
    status = replace(
        status,
        unapplied=len(unapplied),
        lag_seconds=min(ages, default=None),
        waiting_seconds=max(ages, default=None),
    )
    if status.state == "failed" or (status.state == "blocked" and status.file is None):
        return status  # only a run can tell; without a file, it is the owner who has to say
    if status.state == "waiting" and (status.file is not None or opened.waits_for):
        # A file is named where none has a type yet, which only a run can tell, as whether metadata is needed.
        known = status.file is not None or opened.metadata is None
        return status if known else replace(status, reason=opened.waits_for)
    if run.gap and (not run.files or status.file == run.awaited):
        return _turned(status, "blocked", run.gap, run.awaited)
    if status.state == "gone" and not position:  # else it goes on, as a plain folder does
        return _turned(status, "behind", _BACK)
    if run.files:
        files = "1 change file is" if len(run.files) == 1 else f"{len(run.files)} change files are"
        reason = f"{files} not applied yet. Run: mirrorlib apply"
        return _turned(status, "behind", reason, run.files[0][1].name)
    if status.state in {"behind", "blocked", "waiting", "gone"} and not unapplied:
        status = _turned(status, "current")
    if status.state == "current":
        reason = EMPTIED if opened.emptied else ""
        since = status.since if reason == status.reason else None  # which the next run writes down
        status = replace(status, reason=reason, since=since)
    return status


def _turned(
    status: TableStatus, state: State, reason: str = "", file: str | None = None
) -> TableStatus:
    """Tell a state; since when it is another than the last word's, nobody has written down."""
    since = status.since if state == status.state else None
    return replace(status, state=state, reason=reason, file=file, since=since)
