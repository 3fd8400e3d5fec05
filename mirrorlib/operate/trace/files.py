"""Tell what became of a change file, by the journal, the landing zone and the consumers; no Spark is needed.

In: a table's past, and what people call the file. Out: `Step` values. A journal is not read through: positions grow
from batch to batch, as versions do from window to window.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import cache, cached_property, partial

from mirrorlib.errors import JournalError, MirrorError
from mirrorlib.ingest.files.continued_life import newest_entry
from mirrorlib.ingest.files.history import History
from mirrorlib.ingest.files.plan import first_position
from mirrorlib.ingest.files.source import Source
from mirrorlib.ingest.files.table_folder import open_folder
from mirrorlib.ingest.rows.marks import MARKER_NAMES
from mirrorlib.ingest.rows.read import Landed
from mirrorlib.journal.disk import Journal
from mirrorlib.journal.entries import Entry, Life, Plan, PlannedFile
from mirrorlib.journal.registry import FOLDER, Registry
from mirrorlib.journal.streams import Stream, WindowEntry
from mirrorlib.landing.listing import TableFolder
from mirrorlib.names import WHOLE_FOLDER, TableName, sequence_number
from mirrorlib.operate.replay import list_places, open_planned
from mirrorlib.operate.status import status_of
from mirrorlib.operate.trace.steps import Step
from mirrorlib.store import Store, open_store


class Past:
    """What is there of a table's past; what is found to be gone is in *lost*, each once."""

    def __init__(self, state: Store, name: TableName) -> None:
        self.state, self.name, self.lost = state, name, dict[str, None]()
        self.journal = Journal(state, name)
        self.lives = self.journal.lives()
        found = map(self.journal.newest, reversed(self.lives))
        self.newest = next(filter(None, found), None)  # batch, of the newest life that has one

    @cached_property
    def zone(self) -> Store:
        """Open the landing zone of the newest batch, or where the table was looked for last."""
        said = self.newest.plan.zone if self.newest else self.journal.read_status().get("zone")
        if said is None:
            msg = "the journal does not say where the table's landing zone is"
            raise JournalError(msg, table=self.name.shown)
        return open_store(str(said))

    @cached_property
    def _places(self) -> list[str]:
        return list_places(self.zone, self.name)

    def open(self, plan: Plan, planned: PlannedFile) -> tuple[Source, Landed]:
        """Open a file of a batch where it lies now; raises as `open_planned` does."""
        policies, folder = plan.policies, self.name.folder
        source = Source(zone=self.zone, table=self.name.shown, folder=folder, policies=policies)
        return source, open_planned(source, planned, self._places)

    def deliveries(self, version: int, table_id: str | None) -> Iterator[Step]:
        """Tell by which window of each of its streams a consumer was given a version of a Delta table."""
        for stream, last, read in self._streams:
            numbers = range(1, last + 1)
            first = bisect_left(numbers, version, key=lambda one, read=read: read(one).plan.until)
            for plan, done in ((one.plan, one.done) for one in map(read, numbers[first:])):
                if done and done.outcome == "void":
                    continue  # it has given nothing; the next one stands in for it
                if done and plan.after < version and plan.table_id == (table_id or plan.table_id):
                    changes = plan.kind == "changes"
                    what = "changes" if changes else f"all rows as of version {plan.until}"
                    yield Step(
                        what="delivered",
                        at=done.finished_at,
                        version=version,
                        consumer=stream.consumer,
                        window=f"({plan.after}, {plan.until}]" if changes else None,
                        detail=f"{what}, window {plan.number}, to {stream.to}",
                    )
                break

    @cached_property
    def _streams(self) -> list[tuple[Stream, int, Callable[[int], WindowEntry]]]:
        """Give each consumer's streams, how many windows each has, and what reads one."""
        listed = self.state.list_folder(FOLDER)
        consumers = listed.folders if listed else ()
        return [
            (stream, newest.plan.number, cache(partial(registry.entry, stream)))
            for consumer in consumers
            for registry in [
                Registry(self.state, TableName.from_segment(consumer).table, self.name)
            ]
            for stream in registry.all_streams()
            if (newest := registry.newest(stream)) is not None
        ]


def trace_file(past: Past, file: str) -> list[Step]:
    """Tell the life of a file that is called by its number, its name, or a path that ends with it.

    Raises:
        JournalError: nobody knows it.

    """
    steps = list[Step]()
    for life in past.lives:
        try:
            for entry in _batches_of(past, life, file):
                some = (planned for planned in entry.plan.files if _fits(planned.name, file))
                steps += [step for planned in some for step in _tell(past, life, entry, planned)]
        except JournalError as exc:
            past.lost[f"batches of life {life.ordinal}: {exc}"] = None
    here = {
        one.file
        for one in steps
        if one.what in {"applied", "under way"} and one.life == len(past.lives)
    }
    try:
        steps += [one for one in _unapplied(past, file) if one.file not in here]
    except MirrorError as exc:
        past.lost[f"the landing zone: {exc}"] = None
    if steps:
        return steps
    newest = past.newest.plan.files[-1].name if past.newest else "none"
    msg = "no batch has had such a change file, and the landing zone has none"
    found = "; ".join(past.lost) or f"{newest}, the newest in a batch"
    step = "Give its number, or its path below the table's folder."
    raise JournalError(msg, table=past.name.shown, file=file, found=found, next_step=step)


def _fits(name: str, file: str) -> bool:
    if file.isdecimal():
        return sequence_number(name.rpartition("/")[2]) == int(file)
    return f"/{file}".endswith(f"/{name}") or name.endswith(f"/{file}")


def _batches_of(past: Past, life: Life, file: str) -> list[Entry]:
    """Find the batches of a life that a file was planned for."""
    newest = past.journal.newest(life)
    if newest is None:
        return []
    read = cache(partial(past.journal.entry, life))
    numbers, policies = range(1, newest.plan.batch + 1), newest.plan.policies
    number = int(file) if file.isdecimal() else sequence_number(file.rpartition("/")[2])
    wanted = [(partition, number) for partition in newest.plan.after if number is not None]
    overwritten = False
    if (
        policies.plain is not None or policies.by_time
    ):  # numbered in the order in which they were applied
        applied = History(past.journal, newest.plan.zone, until=life.ordinal).applied()
        named = enumerate(applied.etags, start=1)
        wanted = [(WHOLE_FOLDER, place) for place, name in named if _fits(name, file)]
        overwritten = applied.count != len(applied.etags)

    likely = {
        batch
        for partition, number in wanted
        for place in [
            bisect_left(numbers, number, key=lambda one: read(one).position.get(partition, 0))
        ]
        for batch in numbers[place : place + 1]
    }
    found = dict[int, Entry]()
    for last in numbers if overwritten else {*likely, numbers[-1]}:
        for entry in map(read, range(last, 0, -1)):
            batch, done = entry.plan.batch, entry.done
            # Right before a batch stand those that were voided, whose files it may have.
            if batch < last and done and done.outcome == "applied" and not done.cause:
                break
            if any(_fits(planned.name, file) for planned in entry.plan.files):
                found[batch] = entry
    return [found[batch] for batch in sorted(found)]


def _tell(past: Past, life: Life, entry: Entry, planned: PlannedFile) -> Iterator[Step]:
    """Tell what a batch made of a file, and where that is now."""
    plan, done = entry.plan, entry.done
    step = partial(Step, life=life.ordinal, batch=plan.batch, file=planned.name)
    rows, whose = done.rows if done else {}, "" if len(plan.files) == 1 else "in the whole batch"
    try:
        _, landed = past.open(plan, planned)
        rows, whose = {MARKER_NAMES[one]: count for one, count in landed.counts.items()}, ""
        folder = landed.file.path.removesuffix(planned.name).removeprefix(past.name.folder)
        place = folder.strip("/") or "in its place"
    except MirrorError as exc:
        place = exc.reason
    yield step(what="published", at=planned.modified or None, detail=f"{planned.size:,} bytes")
    yield step(what="listed", at=plan.listed_at)
    if done is None:
        yield step(what="under way", detail="the next apply tells how it ends")
    else:
        end = partial(step, what=done.outcome, at=done.finished_at or None, version=done.version)
        if done.outcome == "void":
            yield end(detail=str((done.cause or {}).get("reason", "")))
        else:
            if plan.policies.snapshots and planned != plan.files[-1]:
                whose = "but a later snapshot of its batch took its place"
            doubt = "it was replaced meanwhile, and may be in the table either way"
            yield end(rows=rows, detail=doubt if done.doubt == planned.name else whose)
            yield from past.deliveries(done.version, done.table_id)
    yield step(what="now", detail=place)


def _unapplied(past: Past, file: str) -> Iterator[Step]:
    """Look for a file in the landing zone, and say why it is not applied."""
    folder = TableFolder(name=past.name, path=past.name.folder)
    opened = open_folder(past.zone, folder, History(past.journal, past.zone.url))
    entry = newest_entry(past.journal, past.lives, opened.metadata)
    begin = first_position(opened.listing, past.lives[-1].start_at) if past.lives else {}
    position = (entry.position if entry else {}) or begin
    for partition, files in opened.listing.partitions.items():
        for number, stored in files.items():
            if not _fits(stored.name, file):
                continue
            step = partial(Step, file=stored.name, at=stored.modified.isoformat())
            if number <= position.get(partition, 0):
                why = "what comes after it was applied before it was there, so it never is"
                yield step(what="passed over", detail=why)
            else:
                status = status_of(past.state, past.name, datetime.now(UTC))
                yield step(what="waiting", detail=status.reason if status else "")
