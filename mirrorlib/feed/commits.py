"""Read what a table's log says of each version, as far as its change feed depends on it.

In: the store of a table's folder. Out: `FeedCommit` and `Metadata` values. No Spark: a listing and
the log's own files, as a version that Delta can rebuild from a checkpoint is not one whose changes
it can give. Source: Delta PROTOCOL.md, "Delta Log Entries", "Change Metadata", "Checkpoints", and
"In-Commit Timestamps".
"""

from __future__ import annotations

import json
from bisect import bisect_right
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import pyarrow.parquet as pq

from mirrorlib.apply.log import DIGITS, LOG, commit_path, commit_version
from mirrorlib.apply.table import FEED, MAPPING
from mirrorlib.errors import FeedError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from mirrorlib.store import Store, StoredFile

_ONE_KIND = frozenset({"UPDATE", "DELETE"})
_MERGED = ("numTargetRowsInserted", "numTargetRowsUpdated", "numTargetRowsDeleted")


@dataclass(frozen=True, slots=True, kw_only=True)
class Metadata:
    """A table's metadata from one version on.

    Attributes:
        id: the table's id: another one is another table.
        schema: its schema, Spark's JSON.
        properties: its table properties.

    """

    id: str
    schema: Mapping[str, Any]
    properties: Mapping[str, str]

    @property
    def has_feed(self) -> bool:
        """Say whether commits record their changes."""
        return self.properties.get(FEED, "").lower() == "true"

    @property
    def mapped(self) -> bool:
        """Say whether columns are known by ids, so that they can be renamed and dropped."""
        return self.properties.get(MAPPING, "none") != "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedCommit:
    """What one version says of its changes.

    Attributes:
        version: its number.
        metadata: what it sets the table's metadata to; None when it leaves it.
        changes: it adds, removes or changes rows.
        forgotten: Delta's reader leaves it out by its metrics, although it changes rows.
        rows: how many rows it changes, as its metrics say; None where they do not.
        pairs: it may delete and insert rows of one key.
        files: the data and change files that hold its changes, relative to the table.
        vacuums: it begins a VACUUM, which keeps what was in use within that time; None when it does not.

    """

    version: int
    metadata: Metadata | None
    changes: bool
    forgotten: bool
    rows: int | None
    pairs: bool
    files: tuple[str, ...]
    vacuums: timedelta | None


class Commits:
    """The versions of one table that its log still holds."""

    def __init__(self, store: Store, shown: str) -> None:
        """Take the store of the table's folder, and the table's name for errors."""
        self._store = store
        self._shown = shown

    def check(self) -> None:
        """See that the log holds a version.

        Raises:
            FeedError: there is none, so there is no Delta table.

        """
        if not self._listed:
            msg = "there is no Delta table"
            raise FeedError(msg, table=self._shown, next_step="Check the path.")

    @cached_property
    def _files(self) -> tuple[StoredFile, ...]:
        """List the log once: what is asked of it later is all of one moment."""
        folder = self._store.list_folder(LOG)
        return folder.files if folder else ()

    @cached_property
    def _listed(self) -> dict[int, datetime]:
        """Map each version that has a file of its own to when that was written, in order."""
        found = {commit_version(file.name): file.modified for file in self._files}
        versions = sorted(version for version in found if version is not None)
        return {version: found[version] for version in versions}

    @property
    def newest(self) -> int:
        """Return the newest version."""
        return next(reversed(self._listed))

    @cached_property
    def first(self) -> int:
        """Return the version from which on none is missing."""
        version = self.newest
        while version - 1 in self._listed:
            version -= 1
        return version

    @cached_property
    def _times(self) -> list[datetime]:
        """Return when each version from `first` on was committed; as Delta has it, each later than the one before."""
        times: list[datetime] = []
        newest = self.metadata_at(self.newest).properties
        tells = newest.get("delta.enableInCommitTimestamps") == "true"
        for version in range(self.first, self.newest + 1):
            told = self._in_commit_time(version) if tells else None
            at = told or _whole_milliseconds(self._listed[version])
            if times and at <= times[-1]:
                at = times[-1] + timedelta(milliseconds=1)
            times.append(at)
        return times

    def committed_at(self, version: int) -> datetime:
        """Return when a version was committed, as its feed tells it."""
        return self._times[version - self.first]

    def written_at(self, version: int) -> datetime:
        """Return when a version's file was written."""
        return self._listed[version]

    def last_at(self, moment: datetime) -> int:
        """Return the last version that was committed at or before a moment; one before `first` when none was."""
        return self.first + bisect_right(self._times, moment) - 1

    def _in_commit_time(self, version: int) -> datetime | None:
        info: Mapping[str, Any] = next(
            (
                line["commitInfo"]
                for line in self._lines(version, '"commitInfo"')
                if "commitInfo" in line
            ),
            {},
        )
        told = info.get("inCommitTimestamp")
        return None if told is None else datetime.fromtimestamp(told / 1000, UTC)

    def read(self, version: int) -> FeedCommit:
        """Read one version.

        Raises:
            FeedError: its file is gone since the log was listed.

        """
        actions = list(self._lines(version))
        told = {kind: action[kind] for action in actions for kind in action}
        changed = [a.get("add") or a.get("remove") for a in actions if "add" in a or "remove" in a]
        data = [file for file in changed if file and file.get("dataChange")]
        images = [action["cdc"]["path"] for action in actions if "cdc" in action]
        info = told.get("commitInfo") or {}
        metrics = info.get("operationMetrics") or {}
        inserted, updated, deleted = (metrics.get(name) for name in _MERGED)
        merge = info.get("operation") == "MERGE"
        return FeedCommit(
            version=version,
            metadata=_metadata(told["metaData"]) if "metaData" in told else None,
            changes=bool(data or images),
            forgotten=bool(data or images) and merge and {inserted, updated, deleted} == {"0"},
            rows=_rows(metrics) if data or images else 0,
            pairs=not (merge and "0" in {inserted, deleted})
            and info.get("operation") not in _ONE_KIND
            and not _only_adds(actions),
            files=tuple(unquote(path) for path in (images or (file["path"] for file in data))),
            vacuums=_kept(info),
        )

    def metadata_at(self, version: int) -> Metadata:
        """Find the metadata in force once a version is committed, going back to the checkpoint before it."""
        checkpoints = self._checkpoints
        for number in range(version, -1, -1):
            if number in self._listed:
                for line in self._lines(number, '"metaData"'):
                    if "metaData" in line:
                        return _metadata(line["metaData"])
            if number in checkpoints:
                return self._metadata_of_checkpoint(checkpoints[number])
        msg = f"the log no longer tells the table's metadata as of version {version}"
        raise FeedError(msg, table=self._shown)

    @cached_property
    def _checkpoints(self) -> dict[int, list[str]]:
        found: dict[int, list[str]] = {}
        for file in self._files:
            number, _, rest = file.name.partition(".")
            if rest.startswith("checkpoint.") and len(number) == DIGITS and number.isdigit():
                found.setdefault(int(number), []).append(file.path)
        return found

    def _metadata_of_checkpoint(self, paths: list[str]) -> Metadata:
        for path in paths:
            if path.endswith(".json"):
                data = self._store.read(path) or b""
                rows = [
                    json.loads(line) for line in data.decode().splitlines() if '"metaData"' in line
                ]
                found = next((row["metaData"] for row in rows if row.get("metaData")), None)
            else:
                with self._store.open_file(path) as file:
                    column = pq.read_table(file, columns=["metaData"]).column(0)
                found = next((row for row in column.drop_null().to_pylist() if row), None)
            if found is not None:
                return _metadata(found)
        msg = "a checkpoint of the table's log has no metadata in it"
        raise FeedError(msg, table=self._shown, file=paths[0])

    def holds(self, path: str) -> bool:
        """Say whether a data or change file is still there; files elsewhere, as a clone has, are not looked at."""
        return "://" in path or path.startswith("/") or self._store.stat(path) is not None

    def _lines(self, version: int, word: str = "") -> Iterator[dict[str, Any]]:
        path = commit_path(version)
        data = self._store.read(path)
        if data is None:
            msg = f"version {version} has gone from the log while it was read"
            raise FeedError(msg, table=self._shown, file=path, next_step="Try again.")
        for line in data.decode("utf-8", "surrogatepass").split("\n"):
            if line.strip() and word in line:
                yield json.loads(line)


def _rows(metrics: Mapping[str, Any]) -> int | None:
    """Add up the rows that a commit says it changed: a MERGE tells three kinds, all others one."""
    for names in (_MERGED, ("numUpdatedRows",), ("numDeletedRows",), ("numOutputRows",)):
        if all(str(metrics.get(name, "")).isdecimal() for name in names):
            return sum(int(metrics[name]) for name in names)
    return None


def _kept(info: Mapping[str, Any]) -> timedelta | None:
    """Return for how long a VACUUM keeps files; nothing is known to be kept where it does not say."""
    if info.get("operation") != "VACUUM START":
        return None
    told = info.get("operationParameters") or {}
    kept = told.get("specifiedRetentionMillis", told.get("defaultRetentionMillis", 0))
    return timedelta(milliseconds=int(kept))


def _only_adds(actions: list[dict[str, Any]]) -> bool:
    return not any("remove" in action or "cdc" in action for action in actions)


def _metadata(action: Mapping[str, Any]) -> Metadata:
    properties = action.get("configuration") or {}
    return Metadata(
        id=action["id"],
        schema=json.loads(action["schemaString"]),
        properties=dict(properties),  # a checkpoint has a list of pairs
    )


def _whole_milliseconds(moment: datetime) -> datetime:
    return moment.replace(microsecond=moment.microsecond // 1000 * 1000)
