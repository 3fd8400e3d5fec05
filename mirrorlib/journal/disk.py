"""The journal: what a table's lives, plans and outcomes are, on disk, beside the target.

In: a `Store` over the state folder. Out: frozen values read from, and written as, small JSON files
that a person can read:

    journal/<table>/lives/000001.json                       one life of the table folder
    journal/<table>/gone/000001.json                        when its folder was seen absent
    journal/<table>/000001/<inverse>-<batch>.plan.json      what a batch is
    journal/<table>/000001/<inverse>-<batch>.done.json      how it ended
    journal/<table>/000001.applied/<inverse>-<batch>.parquet  files without numbers, applied until then
    journal/<table>/000001.passed.parquet                   which files a plain folder's life passes over
    journal/<table>/moves/000001/<uuid>.json                to where a plain folder's files have moved
    journal/<table>/status.json                             the last word about the table

`<inverse>`, and what is promised: see `plan_log`. Protocol: docs/architecture.md, "The commit protocol".
"""

from __future__ import annotations

import contextlib
import re
import uuid
from collections.abc import Sequence
from operator import attrgetter
from typing import Any

from mirrorlib.errors import JournalError, TableNameError
from mirrorlib.journal.entries import Done, Entry, Life, Plan, new_attempt, now
from mirrorlib.journal.plan_log import (
    PlanLog,
    newest_names,
    number_of,
    numbered,
    numbered_files,
)
from mirrorlib.names import TableName
from mirrorlib.store import Store, contents, keeps_out
from mirrorlib.store.records import read_record, record_bytes

STATE_FILE = "state.json"
_FOLDER = "journal"
_WORD = re.compile(r"[0-9a-f-]+\.json")  # not what killed runners, or others, have left


class Journal(PlanLog[Life, Plan, Done, Entry]):
    """One table's lives, plans and outcomes in the store of a state folder."""

    def __init__(self, state: Store, table: TableName) -> None:
        kinds = (Plan, Done, Entry, attrgetter("batch"), lambda life: f"{life.ordinal:06d}")
        super().__init__(state, str(table), f"{_FOLDER}/{table.segment}", kinds)

    def lives(self) -> tuple[Life, ...]:
        """Return all lives, first to newest."""
        files = numbered_files(self.state, f"{self.folder}/lives")
        return tuple(self._value(Life, path) for path in files.values())

    def begin_life(
        self, why: str, zone: str, ordinal: int, start_at: int = 1, **flags: bool
    ) -> Life:
        """Begin life *ordinal*, with *flags* of `Life`; or return the one that another runner began first."""
        facts: dict[str, Any] = {**flags, "ordinal": ordinal, "start_at": start_at}
        life = Life(uuid=str(uuid.uuid4()), why=why, zone=zone, started_at=now(), **facts)
        return self._write_new(f"{self.folder}/lives/{ordinal:06d}.json", life)

    def write_passed(self, ordinal: int, data: bytes) -> None:
        """Write down, before a life begins, which files it passes over; what was written first counts."""
        self.state.put_new(f"{self.folder}/{ordinal:06d}.passed.parquet", data)

    def read_passed(self, life: Life) -> bytes | None:
        """Return what `write_passed` has written for a life."""
        return self.state.read(f"{self.folder_of(life)}.passed.parquet")

    def write_move(self, life: Life, old: str, new: str) -> None:
        """Write down that a plain folder's files, which were read at one URL, are at another; proven by its caller."""
        said = record_bytes({"from": old, "to": new, "seen_at": now()})
        folder = f"{self.folder}/moves/{life.ordinal:06d}"
        self.state.put_new(f"{folder}/{uuid.uuid4()}.json", said)

    def moves(self, life: Life) -> tuple[tuple[str, str], ...]:
        """Return from where to where a plain folder's files have moved, in no order."""
        moves = contents(self.state, f"{self.folder}/moves/{life.ordinal:06d}")
        words = [file.path for file in moves.files if _WORD.fullmatch(file.name)]
        records = (self.record(path, dict) or {} for path in words)
        return tuple((str(one.get("from")), str(one.get("to"))) for one in records)

    def write_gone(self, life: Life) -> None:
        """Write down that the folder was seen absent, which ends a life."""
        path = f"{self.folder}/gone/{life.ordinal:06d}.json"
        self.state.put_new(path, record_bytes({"seen_at": now()}))

    def is_gone(self, life: Life) -> bool:
        """Say whether the folder was seen absent in a life."""
        return self.state.stat(f"{self.folder}/gone/{life.ordinal:06d}.json") is not None

    def newest_of(self, lives: Sequence[Life]) -> Entry | None:
        """Return the newest batch of the present life, the last one; None before the first life or plan."""
        return self.newest(lives[-1]) if lives else None

    def newest_checkpoint(self, life: Life) -> tuple[int, bytes] | None:
        """Return the newest checkpoint of the applied files and the batch that it reaches to."""
        folder = f"{self.folder_of(life)}.applied"
        names = newest_names(self.state, folder)
        data = self.state.read(f"{folder}/{names[0]}") if names else None
        return None if data is None else (number_of(names[0]), data)

    def write_checkpoint(self, life: Life, batch: int, data: bytes) -> None:
        """Write down all files that were applied up to a batch; the one before stays, for who has just found it."""
        folder = f"{self.folder_of(life)}.applied"
        self.state.put_new(f"{folder}/{numbered(batch)}.parquet", data)
        for name in newest_names(self.state, folder)[2:]:
            self.state.delete(f"{folder}/{name}")


def find_journals(state: Store) -> dict[TableName, Journal]:
    """Find the journals of a state folder, by their tables in order; a folder that is called like none is nobody's."""
    names = list[TableName]()
    for segment in contents(state, _FOLDER).folders:
        with contextlib.suppress(TableNameError):
            names.append(TableName.from_segment(segment))
    return {name: Journal(state, name) for name in sorted(names, key=str)}


def open_state(state: Store, owner: str | None = None) -> None:
    """See that the state folder can be trusted: its put-if-absent must refuse a second writer. Tried once a folder.

    It becomes the journal of the target *owner* if it has none yet; None for what is no journal. Raises `JournalError`
    where the store does not keep a second writer out, or as `check_owner` does.
    """
    if (said := check_owner(state, owner)) is not None:
        if owner is not None and said.get("target") is None:
            state.put(STATE_FILE, record_bytes({**said, "target": owner}))
        return
    if not keeps_out(state, f"probe-{new_attempt()}.json"):
        why = "without which two runners could apply a batch twice"
        msg = f"{state.url} has no put-if-absent, {why}"
        raise JournalError(msg, next_step="Keep the state on another store, with --state.")
    owned = {} if owner is None else {"target": owner}
    state.put_new(STATE_FILE, record_bytes({"created_at": now(), **owned}))
    check_owner(state, owner)  # another runner may have been first


def check_owner(state: Store, owner: str | None) -> dict[str, Any] | None:
    """See that a state folder is a target's own, by what it says of itself; return that, None where there is none.

    Raises `JournalError` where it is another target's, or of another format.
    """
    step = "Restore the file from a backup, or remove it: the next run writes it anew."
    said = read_record(state, STATE_FILE, dict, "the journal", JournalError, step=step)
    if said is None or owner is None or said.get("target") in {None, owner}:
        return said
    msg = "the state folder is another target's, whose journal says nothing about this one"
    step = f"Name this target's own with --state; if it was moved, write {owner} into the folder's state.json."
    raise JournalError(msg, file=f"{state.url}/{STATE_FILE}", found=said["target"], next_step=step)
