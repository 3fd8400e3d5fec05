"""Open the next batch of a table: which files it takes, what they hold, and what the table lacks for them.

In: a folder's listing and where the table stands. Out: `Ahead`. `apply` and `plan` go by it alike.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from mirrorlib.delta.columns import find_key_column
from mirrorlib.errors import MirrorError
from mirrorlib.ingest.batch.open_batch import Prepared, prepare_files
from mirrorlib.ingest.files.next_batch import (
    UNTYPED,
    UNTYPED_KEY,
    Bar,
    bar_of,
    causes_of,
    coming_files,
    is_batch,
    next_files,
)
from mirrorlib.ingest.files.plan import Limits
from mirrorlib.ingest.warn import warnings_of
from mirrorlib.journal.entries import Entry

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from mirrorlib.ingest.batch.foreign_writes import Standing
    from mirrorlib.ingest.files.next_batch import Next
    from mirrorlib.ingest.files.table_folder import Folder
    from mirrorlib.ingest.options import Options
    from mirrorlib.ingest.work import Work


@dataclass(frozen=True, slots=True, kw_only=True)
class Ahead:
    """What is next in a folder: a batch, or why there is none.

    Attributes:
        coming: its files, or what has been found instead.
        prepared: the batch, opened; None where nothing can be applied now.
        untyped: what the table has to wait for.
        stopped: files wait, and the run was told to stop.
        warnings: of the files that were opened.

    """

    coming: Next
    prepared: Prepared | None = None
    untyped: str = ""
    stopped: bool = False
    warnings: tuple[str, ...] = ()


def open_next(
    work: Work,
    entry: Entry | None,
    standing: Standing,
    opened: Folder,
    position: Mapping[str, int],
    bars: dict[str, Bar],
    options: Options,
    clock: dict[str, float],
    stop: Callable[[], bool] = lambda: False,
) -> Ahead:
    """Open the next batch; files that cannot be applied are added to *bars*, and what is before them is taken.

    `apply` and `plan` both go by it, so that what the one says is what the other does.
    """
    warnings: list[str] = []
    while True:
        coming = coming_files(work, standing, opened, position, bars, options)
        if not coming.files:
            return Ahead(coming=coming, warnings=tuple(warnings))
        if stop():
            return Ahead(coming=coming, stopped=True, warnings=tuple(warnings))
        with work.step("read", clock, files=len(coming.files)):
            coming, prepared = _prepare_typed(work, entry, standing, opened, coming, bars, options)
        warnings += warnings_of(prepared, work.source.policies)
        untyped = _untyped_part(work, prepared)
        if prepared.fault is not None:
            bars |= bar_of(coming, prepared, prepared.fault)
            if untyped or not is_batch(coming, prepared):
                continue
        if untyped:
            untyped = "" if coming.barred is not None else untyped
            return Ahead(coming=coming, untyped=untyped, warnings=tuple(warnings))
        return Ahead(coming=coming, prepared=prepared, warnings=tuple(warnings))


def _prepare_next(
    work: Work,
    entry: Entry | None,
    standing: Standing,
    coming: Next,
    options: Options,
    *,
    divisible: bool,
) -> Prepared:
    """Open the next files, and see how the columns of the table have to change for them."""
    return prepare_files(
        work.source,
        [file for _, file in coming.files],
        standing.columns,
        rewritable=standing.bytes <= options.rewrite_limit,
        suspects={cause["file"] for cause in causes_of(entry)},
        divisible=divisible,
    )


def _untyped_part(work: Work, prepared: Prepared) -> str:
    """Say what a table cannot be without and no file has a type for, "" when there is nothing (Q10, Q11)."""
    columns = prepared.growth.columns
    if not columns:
        return UNTYPED
    keys = work.source.policies.keys if prepared.rows else ()
    untyped = next((key for key in keys if find_key_column(columns, key) is None), None)
    return "" if untyped is None else UNTYPED_KEY.format(key=untyped)


def _prepare_typed(
    work: Work,
    entry: Entry | None,
    standing: Standing,
    opened: Folder,
    coming: Next,
    bars: Mapping[str, Bar],
    options: Options,
) -> tuple[Next, Prepared]:
    """Open the next files, and more than the limits allow while these leave a type open; return those too."""
    divisible = not coming.replaces
    prepared = _prepare_next(work, entry, standing, coming, options, divisible=divisible)
    every = next_files(opened, coming.position, Limits(), bars, options).files
    for count in range(len(prepared.landed) + 1, len(every) + 1):
        if prepared.fault is not None or not _untyped_part(work, prepared):
            break
        coming = replace(coming, files=every[:count])
        prepared = _prepare_next(work, entry, standing, coming, options, divisible=False)
    return coming, prepared


def check_emptiness(work: Work, prepared: Prepared, options: Options, *, replaces: bool) -> None:
    """See that a table is not replaced by nothing.

    Raises:
        MirrorError: it would empty its table, and nobody has said that it may.

    """
    rows = prepared.newest.rows if options.snapshots else prepared.rows
    if replaces and rows == 0 and not options.allow_empty:
        msg = "the first batch of the new life holds no rows, and would empty the table"
        step = "Publish its rows, or accept an empty table with --allow-empty."
        raise MirrorError(msg, table=work.table, file=prepared.landed[0].file.name, next_step=step)
