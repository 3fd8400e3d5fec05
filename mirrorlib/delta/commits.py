"""Read what a table's log says of each version, as far as its change feed depends on it.

In: the store of a table's folder. Out: `FeedCommit` and `Metadata` values; a version's file is read
about once, however many windows are opened on one look at the log. No Spark: a listing and the log's
own files, as a version that Delta can rebuild from a checkpoint is not one whose changes it can give.
Source: Delta PROTOCOL.md, "Delta Log Entries", "Change Metadata", "Checkpoints", and
"In-Commit Timestamps".
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import cached_property
from hashlib import sha256
from itertools import takewhile
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from mirrorlib.delta.actions import (
    FeedCommit,
    Held,
    Metadata,
    read_commit,
    read_metadata,
    read_moves,
)
from mirrorlib.delta.log import Commit, commit_path, list_log, read_actions, read_checksum
from mirrorlib.delta.sessions import side_by_side
from mirrorlib.errors import FeedError, FeedExpiredError
from mirrorlib.store import Store

# Bytes; a bigger commit is read again when its files are asked for, so that a long history fits into memory.
_SMALL = 16 << 10
_OF_TABLE = ("metaData", "commitInfo", "protocol")  # what a version says of the table as a whole
_OUT_OF_ORDER = 100  # versions
_MILLISECOND = timedelta(milliseconds=1)
_BEGINNING = datetime.min.replace(tzinfo=UTC)


class Commits:
    """The versions of one table that its log still holds, by the store of its folder; errors call it *shown*."""

    def __init__(self, store: Store, shown: str) -> None:
        self.store = store
        self.shown = shown
        self._files = list_log(store)  # once: what is asked of it later is all of one moment
        self._read_commits: dict[int, FeedCommit] = {}  # small ones
        self._glimpses: dict[int, FeedCommit] = {}  # of the others, without files
        self._metadata: dict[int, Metadata] = {}
        self._hashes: dict[int, str] = {}
        self._protocol: Mapping[str, Any] | None = None
        self._horizons: dict[int, datetime] = {}  # without a gap up to the newest version

    @property
    def exist(self) -> bool:
        """Say whether the log holds a version, so that there is a Delta table."""
        return bool(self._files.versions)

    def check(self) -> None:
        """Raise `FeedError` where there is no Delta table."""
        if not self.exist:
            msg = "there is no Delta table"
            raise FeedError(msg, table=self.shown, next_step="Check the path.")

    def refresh(self) -> Commits:
        """List the log anew; what was read of a version is kept. Returns itself where nothing has come or gone.

        Where the newest version has gone the log was set back, and another table's may follow: nothing is kept then.

        Raises `FeedError` where there is no Delta table any more.
        """
        anew = Commits(self.store, self.shown)
        if anew._files == self._files:
            return self
        anew.check()
        now, was = anew._files.versions, self._files.versions
        stands = self.exist and self.newest in now
        if stands and all(now.get(number, file) == file for number, file in was.items()):
            anew._read_commits, anew._glimpses = self._read_commits, self._glimpses
            anew._metadata, anew._hashes = self._metadata, self._hashes
        return anew

    @property
    def newest(self) -> int:
        """Return the newest version."""
        return next(reversed(self._files.versions))

    @cached_property
    def first(self) -> int:
        """Return the version from which on none is missing."""
        version = self.newest
        while self.has(version - 1):
            version -= 1
        return version

    def has(self, version: int) -> bool:
        """Say whether a version has a file of its own, whatever those around it have."""
        return version in self._files.versions

    @cached_property
    def _times(self) -> list[datetime]:
        """Return when each version from `first` on was committed; as Delta has it, each later than the one before.

        The newest may state it; those before them were written earlier, whatever times their files have got since.
        """
        tells = self.metadata.properties.get("delta.enableInCommitTimestamps", "").lower() == "true"
        newest_first = (self.glance(at).stated_at for at in range(self.newest, self.first - 1, -1))
        stated = [at for at in takewhile(bool, newest_first) if at][::-1] if tells else []
        files = range(self.first, self.newest + 1 - len(stated))
        older = [*_rising(map(self.written_at, files))]
        for back, at in enumerate(reversed(older), 1):
            older[-back] = min(at, stated[0] - back * _MILLISECOND) if stated else at
        return [*older, *stated]

    def committed_at(self, version: int) -> datetime:
        """Return when a version was committed, as its feed tells it."""
        return self._times[version - self.first]

    def fed_at(self, first: int, last: int) -> dict[int, datetime]:
        """Say when versions were committed that do not tell it themselves, as Delta's feed of just these has it.

        By the times of their files, each later than the one before. Source: `CDCReader`, and
        `DeltaHistoryManager`, which looks a hundred versions back for times that are out of order.
        """
        versions = range(max(first - _OUT_OF_ORDER, self.first), last + 1)
        return dict(zip(versions, _rising(map(self.written_at, versions)), strict=True))

    def written_at(self, version: int) -> datetime:
        """Return when a version's file was written."""
        return self._files.versions[version].modified

    @property
    def made_at(self) -> int:
        """Return the first version that belongs to the table as it is now: making it anew gives it another id."""
        wanted, version = self.metadata.id, self.newest
        for number in range(self.newest, self.first - 1, -1):
            metadata = self._stated_metadata(number)
            if metadata is not None and metadata.id != wanted:
                break
            version = number
        return version

    def last_at(self, moment: datetime) -> int:
        """Return the last version that was committed at or before a moment; one before `first` when none was."""
        return self.first + bisect_right(self._times, moment) - 1

    def read(self, version: int) -> FeedCommit:
        """Read one version, once: what a commit says never changes; `FeedError` where its file is gone since."""
        return self._read_commits.get(version) or self._read(version)

    def read_all(self, first: int, last: int) -> Sequence[FeedCommit]:
        """Read versions, many at once where a store's answers are waited for; raises as `read` does."""
        return side_by_side(self.read, range(first, last + 1), self.store.at_once)

    def moves(self, version: int) -> tuple[list[Held], list[Held]]:
        """Name the files that a version takes out of the table, and those that it puts in; raises as `read` does."""
        return read_moves(self.actions(version, "add", "remove"))

    def actions(self, version: int, *kinds: str) -> list[dict[str, Any]]:
        """Return a version's actions of some kinds; raises as `read` does."""
        data = self._data(version)
        return list(read_actions(data, self.store, commit_path(version), *kinds))

    def provenance(self, version: int) -> Commit:
        """Say who made a version, and how; raises as `read` does."""
        return self.glance(version).provenance

    def glance(self, version: int) -> FeedCommit:
        """Read what a version says of the table as a whole; of a big one nothing else; raises as `read` does."""
        found = self._read_commits.get(version) or self._glimpses.get(version)
        return found or self._read(version, *_OF_TABLE)

    def _read(self, version: int, *kinds: str) -> FeedCommit:
        data = self._data(version)
        small = len(data) <= _SMALL
        asked = () if small else kinds
        actions = read_actions(data, self.store, commit_path(version), *asked)
        commit = read_commit(version, actions)
        if small:
            self._read_commits[version] = commit
        else:
            self._glimpses[version] = replace(commit, files=(), change_files=None)
        return commit

    @property
    def metadata(self) -> Metadata:
        """Return the metadata in force now."""
        return self.metadata_at(self.newest)

    def is_still(self, table: str, version: int, known: str = "") -> bool:
        """Say whether the table is the one of an id that was read up to a version: neither made anew nor put back.

        One that has grown since it was put back is told by the version's hash, where that is known and its file there.
        """
        same = self.metadata.id == table and version <= self.newest
        return same and (not known or not self.has(version) or self.hash_of(version) == known)

    def hash_of(self, version: int) -> str:
        """Return a short hash of a version's file, the same wherever the table lies; raises as `read` does."""
        if version not in self._hashes:
            self._hashes[version] = sha256(self._data(version)).hexdigest()[:16]
        return self._hashes[version]

    def metadata_at(self, version: int) -> Metadata:
        """Find the metadata in force once a version is committed, going back to the checkpoint before it.

        Raises `FeedExpiredError` where the log begins behind that one, as Delta 3 lets it: nor does Delta read there.
        """
        passed = []
        for number in range(version, -1, -1):
            passed.append(number)
            found = self._metadata.get(number) or self._stated_metadata(number)
            if found is not None:
                self._metadata.update(dict.fromkeys(passed, found))
                return found
        later = (number for number in self._files.checkpoints if number > version)
        first = next(later, self.newest + 1)
        msg = f"the log no longer tells the table's metadata as of version {version}"
        step = f"Copy the table's rows as they are now, and read on; the log is whole from version {first} on."
        raise FeedExpiredError(msg, table=self.shown, first_readable=first, next_step=step)

    def _stated_metadata(self, version: int) -> Metadata | None:
        """Find what a version itself says of the metadata, or the checkpoint of it."""
        found = self.glance(version).metadata if self.has(version) else None
        if found is None and version in self._files.checkpoints:
            action = self._of_checkpoint(version, "metaData")
            return read_metadata(action) if action else None
        return found

    @property
    def checksum(self) -> Mapping[str, Any]:
        """Return what the writer of the newest version has noted of the table as a whole; nothing where it has not.

        A version that was set back leaves its own to the next one of its number. Raises as `read` does.
        """
        said = read_checksum(self.store, self.newest)
        return said if said.get("txnId") == self.glance(self.newest).transaction else {}

    @property
    def protocol(self) -> Mapping[str, Any]:
        """Return what the newest version demands of readers and writers; nothing where the log does not tell."""
        for version in range(self.newest, -1, -1) if self._protocol is None else ():
            found = self.glance(version).protocol if self.has(version) else None
            if found is None and version in self._files.checkpoints:
                found = self._of_checkpoint(version, "protocol")
            if found is not None:
                self._protocol = found
                break
        return self._protocol or {}

    def vacuumed_until(self, version: int) -> datetime:
        """Say up to when files were written that a VACUUM of a version, or of one after it, may have taken."""
        known = self.newest + 1 - len(self._horizons)
        for number in range(known - 1, version - 1, -1):
            kept = self.glance(number).vacuums
            end = _BEGINNING if kept is None else self.written_at(number) - kept
            self._horizons[number] = max(end, self._horizons.get(number + 1, _BEGINNING))
        return self._horizons[version]

    def _of_checkpoint(self, version: int, kind: str) -> Mapping[str, Any] | None:
        """Read an action of a checkpoint; None where that is not whole, which a writer that was killed leaves."""
        for path in self._files.checkpoints[version]:
            rows: list[Mapping[str, Any] | None] = []
            if path.endswith(".json"):
                actions = read_actions(self.store.read(path) or b"", self.store, path, kind)
                rows = [one.get(kind) for one in actions]
            else:
                with suppress(pa.ArrowException, OSError), self.store.open_file(path) as file:
                    rows = pq.read_table(file, columns=[kind]).column(0).drop_null().to_pylist()
            found = next(filter(None, rows), None)
            if found is not None:
                return found
        return None

    def holds(self, path: str) -> bool:
        """Say whether a data or change file is still there."""
        return self.store.stat(path) is not None

    def _data(self, version: int) -> bytes:
        path = commit_path(version)
        data = self.store.read(path)
        if data is None:
            msg = f"version {version} has gone from the log while it was read"
            raise FeedError(msg, table=self.shown, file=path, next_step="Try again.")
        return data


def _rising(moments: Iterable[datetime]) -> Iterator[datetime]:
    """Give moments as Delta has them, in whole milliseconds, each later than the one before."""
    latest = _BEGINNING
    for moment in moments:
        at = moment.replace(microsecond=moment.microsecond // 1000 * 1000)
        latest = at if at > latest else latest + _MILLISECOND
        yield latest
