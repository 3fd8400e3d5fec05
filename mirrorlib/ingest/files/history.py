"""Remember which files of a table have been applied, where names have no numbers that would tell.

In: a table's journal. Out: `AppliedFiles`. The truth is the chain of plans, without those that were
voided; every hundred batches what they say is compacted into a Parquet checkpoint, so that a start
costs the same however long a mirror lives. A file of a plain folder is its whole path.
"""

from __future__ import annotations

import io
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime

import pyarrow as pa
import pyarrow.parquet as pq

from mirrorlib.errors import JournalError
from mirrorlib.ingest.files.plan import Watched
from mirrorlib.journal.disk import Journal
from mirrorlib.journal.entries import Entry, Life
from mirrorlib.landing.listing import AppliedFiles
from mirrorlib.store import StoredFile, open_store
from mirrorlib.store.target import settled

_EVERY = 100  # batches
_SCHEMA = pa.schema(
    [
        ("name", pa.binary()),
        ("etag", pa.string()),
        ("modified", pa.timestamp("us", "UTC")),
        ("root", pa.string()),
    ]
)
# Not every name on a disk is text.
_NAMES = ("utf-8", "surrogateescape")
_UNKNOWN = ""  # the etag of a file that was applied from where the zone was before


def passed_files(files: Iterable[StoredFile]) -> bytes:
    """Write down files that a life is to pass over."""
    return _as_parquet({("", file.name): (file.etag, file.modified) for file in files})


def _as_parquet(files: Mapping[tuple[str, str], tuple[str, datetime]], **facts: str) -> bytes:
    etags, modified = zip(*files.values(), strict=True) if files else ((), ())
    names = [name.encode(*_NAMES) for _, name in files]
    table = pa.table([names, etags, modified, [root for root, _ in files]], schema=_SCHEMA)
    sink = io.BytesIO()
    pq.write_table(table.replace_schema_metadata(facts), sink, compression="zstd")
    return sink.getvalue()


def _files_in(table: pa.Table) -> dict[tuple[str, str], tuple[str, datetime]]:
    """Read what `_as_parquet` has written."""
    columns = [table.column(name).to_pylist() for name in _SCHEMA.names]
    return {
        (root, name.decode(*_NAMES)): (etag, modified)
        for name, etag, modified, root in zip(*columns, strict=True)
    }


@dataclass
class History:
    """The applied files of a table's present life, the newest one, or the one numbered *until*; reads each plan once.

    *planned* counts the files of a plan without an outcome too. What identified a file's content elsewhere than in the
    *zone* says nothing of what is here now. A plain folder's files that were read at *moved_from* are taken for those
    here.
    """

    journal: Journal
    zone: str
    moved_from: str | None = None
    planned: bool = False
    until: int | None = None

    def __post_init__(self) -> None:
        self.moved_from = settled(open_store(self.moved_from).url) if self.moved_from else None
        self._forget(None)

    def _forget(self, life: Life | None) -> None:
        self._life: Life | None = life
        self._moves: tuple[tuple[str, str], ...] | None = None
        self._batch = self._count = 0
        self._files: dict[tuple[str, str], tuple[str, datetime]] = {}
        self._passed: Mapping[str, tuple[str, datetime]] | None = None

    def newest(self) -> tuple[Life | None, Entry | None]:
        """Return the present life and its newest batch."""
        life = self._present()
        return life, self.journal.newest(life) if life else None

    def applied(self) -> AppliedFiles:
        """Read on to the newest batch."""
        life, newest = self.newest()
        if life is not None and life != self._life:
            self._begin(life)
        while life is not None and newest is not None and self._batch < newest.plan.batch:
            following = self._batch + 1
            here = following == newest.plan.batch
            entry = newest if here else self.journal.entry(life, following)
            if entry.done is None and not self.planned:
                break
            self._add(entry)
        files = self._here()
        etags = {name: etag for name, (etag, _) in files.items()}
        latest = max((modified for _, modified in files.values()), default=None)
        return AppliedFiles(etags=etags, newest=latest, count=self._count)

    def moves(self) -> bool:
        """Say whether files of a plain folder are taken for those that are here only because a caller says so."""
        roots = {root for root, _ in self._files if root}
        if self._life is not None and not self._life.include_existing:
            roots.add(self._life.zone)  # of what is passed over
        here = settled(self.zone)
        return any(self._is_here(one) and settled(one) not in self._roots_of(here) for one in roots)

    def keep_move(self) -> None:
        """Write down, once its caller has proven it, what `moves` tells, if it does."""
        if self._life is not None and self.moved_from is not None and self.moves():
            self.journal.write_move(self._life, self.moved_from, self.zone)
            self._moves = None

    def roots(self) -> Collection[str]:
        """Return where the files that are known here lie or lay, as the plans name it; "" for what has numbers."""
        roots = {root for root, _ in self._files}
        return {root for root in roots if not root or self._is_here(root)}

    def passed(self) -> Mapping[str, str]:
        """Return what identified the files that the present life passes over, by name."""
        return {name: etag for name, (etag, _) in self._passed_files().items()}

    def is_plain(self) -> bool | None:
        """Say whether the present life's files are those of a plain folder; None while it has none."""
        life, newest = self.newest()
        if life is None:
            return None
        if life.keeps:
            return False
        if newest is None or (newest.done is not None and not newest.position):
            return None if life.include_existing else True
        return newest.plan.policies.plain is not None

    def has_applied(self) -> bool:
        """Say whether the present life has applied any file, with or without a number."""
        life, newest = self.newest()
        kept = life is not None and life.keeps
        return kept or (newest is not None and bool(newest.position))

    def in_order(self, visible: Iterable[StoredFile]) -> bool:
        """Say whether names prove to be in the order of writing: those applied, and those that are *visible*."""
        times = {file.name: file.modified for file in visible}
        times |= {name: modified for name, (_, modified) in self._here().items()}
        by_time = sorted(times, key=lambda name: (times[name], name))
        return len(by_time) > 1 and by_time == sorted(by_time)

    def watched(self) -> Watched | None:
        """Return the file that the last run has left because it may have been an upload under way."""
        said = self.journal.read_status().get("watched")
        try:
            watched = Watched(**said) if said else None
            aware = watched is not None and datetime.fromisoformat(watched.seen_at).tzinfo
        except (TypeError, ValueError):
            return None  # nothing rests on it: the file is watched from now on
        return watched if aware else None

    def compact(self) -> None:
        """Write a checkpoint when it is time for one; whoever writes it writes the same."""
        if self._life is None or not self._batch or self._batch % _EVERY:
            return
        data = _as_parquet(self._files, count=str(self._count), zone=self.zone)
        self.journal.write_checkpoint(self._life, self._batch, data)

    def _present(self) -> Life | None:
        lives = self.journal.lives()[: self.until]
        return lives[-1] if lives else None

    def _begin(self, life: Life) -> None:
        """Start with the newest checkpoint of a life, or with what it has taken over."""
        self._forget(life)
        found = self.journal.newest_checkpoint(life)
        if found is None:
            self._take_over(life)
            return
        batch, data = found
        try:
            table = pq.read_table(io.BytesIO(data))
            said, files = table.schema.metadata, _files_in(table)
            count, zone = int(said[b"count"]), said[b"zone"].decode()
        except (pa.ArrowException, OSError, AttributeError, KeyError, TypeError, ValueError):
            self._take_over(life)  # the plans are the truth, and are all there
            return
        self._batch, self._count, self._files = batch, count, files
        if zone != self.zone:
            self._files = {
                (root, name): (etag if root else _UNKNOWN, at)
                for (root, name), (etag, at) in self._files.items()
            }

    def _take_over(self, life: Life) -> None:
        """Count as applied what the life before has appended or left out, where this one keeps its table.

        Its files were known by their whole paths, and those below the zone of then are the ones that are meant.
        """
        if not life.keeps:
            return
        before = History(self.journal, life.zone, until=life.ordinal - 1)
        count, left = before.applied().count, before._passed_files()
        files = {**left, **before._here()}
        here = life.zone == self.zone
        self._files = {
            ("", name): (etag if here else _UNKNOWN, at) for name, (etag, at) in files.items()
        }
        self._count = count + len(left)

    def _add(self, entry: Entry) -> None:
        plan = entry.plan
        self._batch = plan.batch
        if entry.done is not None and entry.done.outcome != "applied":
            return
        # A plain folder's files are known by where they lay, too.
        root = "" if plan.policies.plain is None else plan.zone
        known = root or plan.zone == self.zone
        for file in plan.files:
            written = datetime.fromisoformat(file.modified)
            self._files[root, file.name] = (file.etag if known else _UNKNOWN, written)
        self._count += len(plan.files)

    def _here(self) -> dict[str, tuple[str, datetime]]:
        """Return etag and time of the files that are known by the names that are here."""
        roots = {root for root, _ in self._files}
        mine = roots & {"", self.zone}
        moved = {root for root in roots - mine if self._is_here(root)}
        # The same place by another name has the same files.
        same = {root for root in moved if settled(root) == settled(self.zone)}
        found = {
            name: (etag if root in same else _UNKNOWN, at)
            for (root, name), (etag, at) in self._files.items()
            if root in moved
        }
        return found | {name: known for (root, name), known in self._files.items() if root in mine}

    def _is_here(self, root: str) -> bool:
        """Say whether a plain folder's root is this one, or has become it."""
        return settled(root) in self._roots_of(settled(self.zone), self.moved_from)

    def _roots_of(self, *places: str | None) -> Collection[str | None]:
        """Return places, and those whose files have moved there as far as the journal knows."""
        if self._moves is None:
            self._moves = self.journal.moves(self._life) if self._life else ()
        roots = {*places}
        for _ in self._moves:  # as far as a chain of them reaches
            roots |= {settled(old) for old, new in self._moves if settled(new) in roots}
        return roots

    def _passed_files(self) -> Mapping[str, tuple[str, datetime]]:
        life = self._present()
        if life is None or life.include_existing:
            return {}
        if life != self._life:
            self._begin(life)
        if not self._is_here(life.zone):
            return {}
        if self._passed is None:
            data = self.journal.read_passed(life)
            try:
                files = _files_in(pq.read_table(io.BytesIO(data or b"")))
            except (pa.ArrowException, OSError, AttributeError, KeyError) as exc:
                msg = "the journal cannot say which files were there when the table was first seen"
                step = "Restore the file from a backup, or reset the table, which then takes every file."
                file = f"{life.ordinal:06d}.passed.parquet"
                raise JournalError(msg, file=file, next_step=step) from exc
            here = life.zone == self.zone
            self._passed = {
                name: (etag if here else _UNKNOWN, at) for (_, name), (etag, at) in files.items()
            }
        return self._passed
