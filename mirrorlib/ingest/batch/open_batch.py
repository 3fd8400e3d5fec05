"""Open a run of change files and keep the longest part that can be applied as it is.

In: listed files in order, the table's columns. Out: `Prepared`: the sound files, the columns they
need, and what stopped at the next one. A small batch is decoded here, before anything is planned,
so that damage is found while nothing has to be undone.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial

import pyarrow as pa

from mirrorlib.delta.columns import Columns, spelled_keys
from mirrorlib.delta.sessions import side_by_side
from mirrorlib.delta.table import Found
from mirrorlib.errors import (
    ChangeFileError,
    MarkerError,
    MirrorError,
    SchemaError,
    SnapshotError,
    StoreError,
)
from mirrorlib.ingest.batch.evolve import BatchEndsError, Growth, Newcomer, growth_of
from mirrorlib.ingest.files.source import Source
from mirrorlib.ingest.rows.decode import decode_all
from mirrorlib.ingest.rows.marks import read_marks
from mirrorlib.ingest.rows.read import SMALL_BYTES, SMALL_DECODED, Landed, Room, read_landed
from mirrorlib.ingest.rows.rescue import fitted_rows
from mirrorlib.ingest.work import Attempt
from mirrorlib.landing.columns import MARKER_NAMES
from mirrorlib.store import StoredFile


class BatchTooLargeError(ChangeFileError):
    """A batch that an earlier run has planned holds more than a batch may now: it may be what stopped that run."""

    advice = "Its files are planned again, in smaller batches."


FAULTS = (ChangeFileError, MarkerError, SchemaError, SnapshotError)


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """A batch that can be planned: sound files in order, the columns that they need, what is wrong with the next."""

    source: Source  # where its files lie, and by which policies they were opened
    landed: tuple[Landed, ...]
    growth: Growth
    fault: MirrorError | None

    @property
    def small(self) -> bool:
        """Say whether the rows are in memory."""
        return all(landed.rows is not None for landed in self.landed)

    @property
    def rows(self) -> int:
        """Return the change rows of all files."""
        return sum(landed.schema.rows for landed in self.landed)

    @property
    def newest(self) -> Prepared:
        """Return the last file alone: of snapshots it is what the table will be."""
        return replace(self, landed=self.landed[-1:])

    def check_files(self) -> None:
        """See that the files are still those that were listed; raises as `Source.check` does."""
        files = [one.file for one in self.landed]
        side_by_side(self.source.check, files, self.source.zone.at_once)

    @property
    def keys(self) -> tuple[str, ...]:
        """Name the key columns as the table spells them."""
        return spelled_keys(self.growth.columns, self.source.policies.keys)

    @property
    def counts(self) -> dict[int, int]:
        """Return the rows by marker."""
        return {
            marker: sum(landed.counts[marker] for landed in self.landed) for marker in MARKER_NAMES
        }


def prepare_files(
    source: Source,
    files: Sequence[StoredFile],
    before: Columns,
    *,
    rewritable: bool = True,
    suspects: Collection[str] = (),
    divisible: bool = False,
) -> Prepared:
    """Open files, in the order in which they count, until one is at fault.

    One that the store does not give ends a batch before it, as nothing says that the file is at fault. *before* are
    the table's columns, none when its content is to be replaced. *suspects* have damaged earlier plans, and are
    decoded whole before they may enter another. A batch that is *divisible* may end before a sound file, one that
    has to begin a batch. For *rewritable*, see `Newcomer`.

    Raises `StoreError`: the first file cannot be read, or one that has to go along with it.
    """
    # Text has to be read to its end to be opened: it is kept as long as there is room, and read once.
    sizes = [file.size for file in files if source.policies.kind_of(file.name) == "parquet"]
    small = sum(sizes) <= SMALL_BYTES
    landed: list[Landed] = []
    columns, room, fault = before, Room(SMALL_DECODED), None

    def open_one(file: StoredFile) -> Landed:
        opened = read_landed(source, file, decode=small, room=room)
        if opened.rows is None and file.name in suspects:
            decode_all(source, file)
        return opened

    for file, opened_one in _open_ahead(open_one, files, source.zone.at_once):
        try:
            opened = opened_one()
            newcomer = Newcomer(
                landed=opened,
                before=before,
                earlier=landed,
                rewritable=rewritable,
                divisible=divisible,
            )
            columns = newcomer.grow(columns)
        except BatchEndsError:
            break
        except FAULTS as exc:
            fault = exc
            break
        except StoreError as exc:
            if landed and divisible:
                break  # as the first file of the next batch, it says what is wrong
            raise exc.but(file=file.name) from exc
        if small and opened.rows is None:
            small = False  # once: for each later file again, it would take time by their square
            landed = [replace(one, rows=None) for one in landed]
        landed.append(opened if small else replace(opened, rows=None))
    growth = growth_of(before, columns, source.policies.readers)
    return Prepared(source=source, landed=tuple(landed), growth=growth, fault=fault)


def _open_ahead(
    open_one: Callable[[StoredFile], Landed], files: Sequence[StoredFile], at_once: int
) -> Iterator[tuple[StoredFile, Callable[[], Landed]]]:
    """Open files in order, up to so many at once, and no more bytes of them than a small batch has.

    Where it is one, its caller's thread opens it; and none is opened ahead before the first was good.
    """
    if at_once == 1:
        yield from ((file, partial(open_one, file)) for file in files)
        return
    pool, most = ThreadPoolExecutor(at_once), 1
    try:
        ahead, size = deque[tuple[StoredFile, Future[Landed]]](), 0
        for file in files:
            while ahead and (len(ahead) >= most or size + file.size > SMALL_BYTES):
                opened, opening = ahead.popleft()
                size -= opened.size
                yield opened, opening.result
                most = at_once
            ahead.append((file, pool.submit(open_one, file)))
            size += file.size
        yield from ((file, opening.result) for file, opening in ahead)
    finally:
        pool.shutdown(cancel_futures=True)


def prepare_again(attempt: Attempt, found: Found | None) -> Prepared:
    """Open a plan's files as its planner did, by the plan's own policies; *found* is the table, if it was there then.

    Raises `ChangeFileError`: a file is not what was planned, or there are too many, so the plan has to be voided.
    """
    plan, source = attempt.plan, attempt.source
    if attempt.is_too_large:
        msg = "an earlier run has planned more than a batch may hold now"
        held = f"{len(plan.files):,} files of {plan.bytes:,} bytes"
        raise BatchTooLargeError(msg, table=source.table, found=held)
    find = partial(source.find, batch=plan.batch)
    files = side_by_side(find, plan.files, source.zone.at_once)
    prepared = prepare_files(source, files, found.columns if found else ())
    if prepared.fault is not None:
        raise prepared.fault
    return prepared


def rows_of(prepared: Prepared) -> tuple[pa.Table, pa.ChunkedArray]:
    """Return a small batch's rows in the table's types, in (file, row) order, and their markers."""
    schema = pa.schema([pa.field(column.name, column.type) for column in prepared.growth.columns])
    tables = [fitted_rows(landed, prepared.growth.columns) for landed in prepared.landed]
    read = (read_marks(landed, landed.rows) for landed in prepared.landed)
    markers = [chunk for markers in read for chunk in markers.chunks]
    return pa.concat_tables([schema.empty_table(), *tables]), pa.chunked_array(markers, pa.int8())
