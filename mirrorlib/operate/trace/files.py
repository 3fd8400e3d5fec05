"""Tell what became of a change file, by the journal, the landing zone and the consumers; no Spark is needed.

In: a table, and what people call the file. Out: `Step` values, which print as a table, are JSON, and make a DataFrame.
No journal is read through: positions grow from batch to batch, as versions do from window to window.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Collection, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from functools import cache, partial
from itertools import islice, product
from typing import TYPE_CHECKING, Any, ClassVar

from mirrorlib.errors import JournalError, MirrorError
from mirrorlib.feed.changes import Change, Changes
from mirrorlib.ingest.files.continued_life import newest_entry
from mirrorlib.ingest.files.history import History
from mirrorlib.ingest.files.table_folder import open_folder
from mirrorlib.journal.disk import Journal
from mirrorlib.journal.entries import Entry, Life, Plan, PlannedFile, zone_of
from mirrorlib.journal.registry import FOLDER, Registry
from mirrorlib.journal.streams import Stream
from mirrorlib.landing.columns import MARKER_NAMES
from mirrorlib.names import WHOLE_FOLDER, TableName, sequence_number
from mirrorlib.operate.status import status_of
from mirrorlib.operate.verify.applied_files import open_planned
from mirrorlib.store import Store, contents, open_store
from mirrorlib.tabular import Report, cells

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_FRAME = (
    "what string, at timestamp, life int, batch bigint, version bigint, file string, row bigint, "
    "rows map<string,bigint>, consumer string, window string, detail string, before string, after string"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One thing that happened.

    A file is published, listed, applied, void, under way, waiting or passed over. A key's steps are insert, update and
    delete; behind those of a version stands every *row* of the key in the files that made it. A version is delivered;
    *now* is what is there. Rows are counted from 0, or by marker; a window is `(after, until]`, a moment ISO 8601.
    """

    what: str
    at: str | None = None
    life: int | None = None
    batch: int | None = None
    version: int | None = None
    file: str | None = None
    row: int | None = None
    rows: Mapping[str, int] | None = None
    consumer: str | None = None
    window: str | None = None
    detail: str = ""
    before: Mapping[str, Any] | None = None
    after: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class WhereReport(Report):
    """What happened to a *file* or a *key*, and what of the past is *lost*."""

    columns: ClassVar = (
        "what", "at", "life", "batch", "version", "file", "row", "consumer", "detail",
    )  # fmt: skip
    target: str
    table: str
    file: str | None
    key: Mapping[str, Any] | None
    steps: tuple[Step, ...]
    lost: tuple[str, ...]

    def rows(self) -> list[tuple[str, ...]]:
        """Return one row a step."""
        found, keys = list[tuple[str, ...]](), tuple(self.key or ())
        for one in self.steps:
            counts = (f"{count:,} {marker}" for marker, count in (one.rows or {}).items() if count)
            detail = ", ".join(filter(None, (*counts, one.window, one.detail)))
            if one.before or one.after:
                told = Change(
                    version=0, timestamp="", change="", before=one.before, after=one.after
                )
                detail = Changes("", (told,), keys, more=False).rows()[0][-1]
            shown = cells(one, "what at:moment life batch version file row consumer")
            found.append((*shown, detail))
        return found

    def notes(self) -> list[str]:
        """Say what can no longer be told."""
        return [f"no longer there: {one}" for one in self.lost]

    def to_frame(self, spark: SparkSession) -> DataFrame:
        """Make the steps a DataFrame, in which the rows before and after a change are JSON."""
        from mirrorlib.operate.book import to_row

        facts = [asdict(step) for step in self.steps]
        for one, side in product(facts, ("before", "after")):
            one[side] = json.dumps(one[side], default=str) if one[side] else None
        return spark.createDataFrame([to_row(_FRAME, one) for one in facts], _FRAME)


class Past:
    """What is there of a table's past; what is found to be gone is in *lost*, each once."""

    def __init__(self, state: Store, name: TableName, called: Collection[TableName] = ()) -> None:
        """Open it; its consumers know the table of a catalog by what it is *called* there."""
        self.state, self.name, self.lost = state, name, dict[str, None]()
        self.journal = Journal(state, name)
        self.lives = self.journal.lives()
        found = map(self.journal.newest, reversed(self.lives))
        self.newest = next(filter(None, found), None)  # batch, of the newest life that has one
        zone = zone_of(self.journal.read_status(), self.journal.newest_of(self.lives))
        self.zone = open_store(zone or state.url)
        names = [TableName.from_segment(one).table for one in contents(state, FOLDER).folders]
        pairs = product(names, called or [name])
        self._registries = [Registry(state, consumer, table) for consumer, table in pairs]
        self._streams, self._window = cache(Registry.all_streams), cache(Registry.entry)

    def files_of(self, life: Life, batch: int) -> list[tuple[Plan, PlannedFile]]:
        """Name the files of a batch that count, none where the journal has lost it; of snapshots it is the last one."""
        try:
            plan = self.journal.entry(life, batch).plan
        except JournalError as exc:
            self.lost[f"batch {batch} of life {life.ordinal}: {exc}"] = None
            return []
        return [(plan, one) for one in plan.files][-1 if plan.policies.snapshots else 0 :]

    def deliveries(self, version: int, table_id: str | None) -> Iterator[Step]:
        """Tell by which window of each of its streams a consumer was given a version of a Delta table."""
        for registry in self._registries:
            try:
                for stream in self._streams(registry):
                    yield from self._given(registry, stream, version, table_id)
            except MirrorError as exc:
                self.lost[f"what {registry.consumer} was given: {exc}"] = None

    def _given(
        self, registry: Registry, stream: Stream, version: int, table_id: str | None
    ) -> Iterator[Step]:
        newest, read = registry.newest(stream), partial(self._window, registry, stream)
        numbers = range(1, newest.plan.number + 1 if newest else 1)
        first = bisect_left(numbers, version, key=lambda number: read(number).plan.until)
        # One that was voided has given nothing, and the next stands in for it.
        given = (one for one in map(read, numbers[first:]) if one.position == one.plan.until)
        for plan, done in ((one.plan, one.done) for one in islice(given, 1) if one.done):
            if plan.after < version and plan.table_id == (table_id or plan.table_id):
                window = f"({plan.after}, {plan.until}]"
                what = f"{plan.kind}, window {plan.number}, to {stream.to}"
                step = partial(Step, what="delivered", at=done.finished_at, version=version)
                yield step(consumer=stream.consumer, window=window, detail=what)


def trace_file(past: Past, file: str) -> list[Step]:
    """Tell the life of a file that is called by its number, its name, or a path that ends with it."""
    steps = list[Step]()
    for life in past.lives:
        try:
            for entry in _batches_of(past, life, file):
                some = (planned for planned in entry.plan.files if _fits(planned.name, file))
                steps += [step for planned in some for step in _tell(past, life, entry, planned)]
        except JournalError as exc:
            past.lost[f"batches of life {life.ordinal}: {exc}"] = None
    taken = [one for one in steps if one.what in {"applied", "under way"}]
    ends = (at for at, life in enumerate(past.lives, 1) if not life.keeps)
    known = [one.file for one in taken if (one.life or 0) >= max(ends, default=1)]
    try:
        steps += _unapplied(past, file, known)
    except MirrorError as exc:
        past.lost[f"the landing zone: {exc}"] = None
    if steps:
        return steps
    msg = "no batch has had such a change file, and the landing zone has none"
    newest = past.newest.plan.files[-1].name if past.newest else "no file"
    found = "; ".join((*past.lost, f"{newest} in the newest batch"))
    step = "Give its number, or its path below the table's folder."
    raise JournalError(msg, table=past.name.shown, file=file, found=found, next_step=step)


def _fits(name: str, file: str) -> bool:
    if file.isdecimal():
        return sequence_number(name) == int(file)
    return f"/{file}".endswith(f"/{name}") or name.endswith(f"/{file}")


def _batches_of(past: Past, life: Life, file: str) -> list[Entry]:
    """Find the batches of a life that a file was planned for."""
    if (newest := past.journal.newest(life)) is None:
        return []
    read = cache(partial(past.journal.entry, life))
    numbers, policies = range(1, newest.plan.batch + 1), newest.plan.policies
    number = int(file) if file.isdecimal() else sequence_number(file)
    wanted = [(partition, number) for partition in newest.plan.after if number is not None]
    ends = {numbers[-1]}
    if policies.plain is not None or policies.by_time:
        # Numbered in the order in which they were applied; where some were applied again, nothing tells the batch.
        applied = History(past.journal, newest.plan.zone, until=life.ordinal).applied()
        names = enumerate(applied.etags, start=1)
        wanted = [(WHOLE_FOLDER, place) for place, name in names if _fits(name, file)]
        ends.update(numbers if applied.count > len(applied.etags) else ())
    for partition, place in wanted:
        before = partial(lambda part, batch: read(batch).position.get(part, 0), partition)
        ends.update(numbers[bisect_left(numbers, place, key=before) :][:1])
    found = dict[int, Entry]()
    for end in ends:
        for entry in map(read, range(end, 0, -1)):
            batch, done = entry.plan.batch, entry.done
            # Right before a batch stand those that were voided, whose files it may have.
            if batch < end and done and done.outcome == "applied" and not done.cause:
                break
            if any(_fits(planned.name, file) for planned in entry.plan.files):
                found[batch] = entry
    return [found[batch] for batch in sorted(found)]


def _tell(past: Past, life: Life, entry: Entry, planned: PlannedFile) -> Iterator[Step]:
    """Tell what a batch made of a file, and where that is now."""
    plan, done = entry.plan, entry.done
    step = partial(Step, life=life.ordinal, batch=plan.batch, file=planned.name)
    yield step(what="published", at=planned.modified, detail=f"{planned.size:,} bytes")
    yield step(what="listed", at=plan.listed_at)
    rows, detail = done.rows if done else {}, "" if len(plan.files) == 1 else "in its whole batch"
    try:
        landed = open_planned(past.zone, past.name, plan, planned)
        rows, detail = {f"{MARKER_NAMES[one]}s": count for one, count in landed.counts.items()}, ""
        path = landed.file.path.removeprefix(past.name.folder).removesuffix(planned.name)
        place = path.strip("/") or "in its place"
    except MirrorError as exc:
        place = exc.reason
    if done is None:
        yield step(what="under way", detail="the next apply tells how it ends")
    else:
        end = partial(step, what=done.outcome, at=done.finished_at, version=done.version)
        if done.outcome == "void":
            yield end(detail=str((done.cause or {}).get("reason", "")))
        else:
            if plan.policies.snapshots and planned != plan.files[-1]:
                detail = "a later snapshot of its batch took its place"
            doubt = "it was replaced meanwhile, and may be in the table either way"
            yield end(rows=rows, detail=doubt if done.doubt == planned.name else detail)
            yield from past.deliveries(done.version, done.table_id)
    yield step(what="now", detail=place)


def _unapplied(past: Past, file: str, known: Collection[str | None]) -> Iterator[Step]:
    """Look for a file in the landing zone, and say why no batch of the present life has it."""
    opened = open_folder(past.zone, past.name, History(past.journal, past.zone.url))
    entry = newest_entry(past.journal, past.lives, opened.metadata)
    for partition, files in opened.listing.partitions.items():
        for number, one in files.items():
            if not _fits(one.name, file) or one.name in known:
                continue
            told = Step(what="passed over", file=one.name, at=one.modified.isoformat())
            if number > (entry.position.get(partition, 0) if entry else 0):
                status = status_of(past.journal, past.name, datetime.now(UTC))
                told = replace(told, what="waiting", detail=status.reason if status else "")
            yield told
