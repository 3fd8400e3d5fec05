"""Prove that files which are passed over are those that were applied: by what they hold.

In: files that are there, and the plans that have applied others under their names. Out: which were proven,
or the error that names one that holds something else. Name, size and time of a file prove nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from mirrorlib.errors import FileChangedError
from mirrorlib.ingest.files.kept import applied_entries
from mirrorlib.ingest.rows.decode import count_rows
from mirrorlib.landing.footer import same_kind

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from mirrorlib.ingest.work import Work
    from mirrorlib.journal.entries import Entry, Plan, PlannedFile
    from mirrorlib.store import StoredFile


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """What was found of files that are passed over.

    Attributes:
        newest: some file of the newest applied batch is there, as it was applied or as far as anybody can tell.
        unproven: how many were applied by an earlier version, which kept no fingerprint.

    """

    newest: bool
    unproven: int


def prove_passed(
    work: Work, entry: Entry, files: Iterable[StoredFile], roots: Collection[str] = ()
) -> Proof:
    """Compare files with the plans that have applied what was there under their names, the newest first.

    Args:
        work: the table.
        entry: its newest batch.
        files: what is there.
        roots: where a plain folder's plans have found them; empty where names alone tell files.

    Raises:
        FileChangedError: one holds something else.

    """
    waiting = {file.name: file for file in files}
    newest, unproven = None, 0
    for plan in _applied_plans(work, entry):
        if not waiting:
            break
        if roots and plan.zone not in roots:
            continue
        there = [(waiting.pop(one.name), one) for one in plan.files if one.name in waiting]
        for file, planned in there:
            if not planned.fingerprint:
                unproven += 1
            elif not holds_same(work, file, planned):
                raise _other(work, file, plan)
        if newest is None:
            newest = any(_may_be(work, file, planned) for file, planned in there)
    return Proof(newest=bool(newest), unproven=unproven)


def holds_same(work: Work, file: StoredFile, planned: PlannedFile) -> bool:
    """Say whether a file holds what was applied."""
    if file.size != planned.size:
        return False
    with work.source.zone.open_file(file.path) as handle:
        return same_kind(handle, file.size, planned.fingerprint) == planned.fingerprint


def _may_be(work: Work, file: StoredFile, planned: PlannedFile) -> bool:
    """Say whether a file is what was applied, by size and rows where no fingerprint was kept."""
    if planned.fingerprint:
        return True
    return file.size == planned.size and count_rows(work.source, file) == planned.rows


def _applied_plans(work: Work, entry: Entry) -> Iterator[Plan]:
    for one in applied_entries(work.journal, work.life, entry):
        yield one.plan
    if work.life.keeps:
        before = work.lives[-2]
        for one in applied_entries(work.journal, before, work.journal.newest(before)):
            if one.plan.zone == work.life.zone:  # under another root, plain files are other ones
                yield one.plan


def _other(work: Work, file: StoredFile, plan: Plan) -> FileChangedError:
    msg = f"the file holds something else than what batch {plan.batch} has applied under its name"
    found = f"{work.source.zone.url} instead of {plan.zone}"
    step = (
        "Use the landing zone that the table was filled from, or put the file back as it was there, or remove it. "
        f"To fill the table from this zone, start it over: mirrorlib reset TARGET {work.table}"
    )
    return FileChangedError(msg, table=work.table, file=file.name, found=found, next_step=step)
