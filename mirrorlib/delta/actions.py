"""Tell what the actions of one version mean for its change feed.

In: the lines of a version's file, as JSON values. Out: `FeedCommit` and `Metadata` values. Source: Delta
PROTOCOL.md, "Actions", "Change Metadata" and "Deletion Vector Descriptor Schema".
"""

from __future__ import annotations

import base64
import json
import re
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote
from uuid import UUID

from mirrorlib.delta.log import REWRITE, read_ours
from mirrorlib.delta.properties import FEED, MAPPING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

Held = tuple[str, ...]  # a data file, and its deletion vector where it has one
_ONE_KIND = frozenset({"UPDATE", "DELETE"})
_WRITES = frozenset({"CREATE TABLE AS SELECT", "MERGE", "STREAMING UPDATE", "WRITE"})  # new files
_MERGED = ("numTargetRowsInserted", "numTargetRowsUpdated", "numTargetRowsDeleted")
# Absolute, as a clone names its source's files.
_ELSEWHERE = re.compile(r"/|[A-Za-z][A-Za-z0-9+.-]*:")
_Z85 = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
_B85 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~"
_TO_B85 = str.maketrans(_Z85, _B85)
_MAPPED_READER = 2  # the version that means column mapping; features have names from 3 on
_UUID_LENGTH = 20  # characters of a UUID in Z85


@dataclass(frozen=True, slots=True, kw_only=True)
class Metadata:
    """A table's metadata from one version on.

    Attributes:
        id: the table's id: another one is another table.
        schema: its schema, Spark's JSON.
        properties: its table properties.
        partitions: the columns that its files leave out, as their folders tell them.

    """

    id: str
    schema: Mapping[str, Any]
    properties: Mapping[str, str]
    partitions: tuple[str, ...] = ()

    @property
    def has_feed(self) -> bool:
        """Say whether commits record their changes."""
        return self.properties.get(FEED, "").lower() == "true"

    @property
    def mapped(self) -> bool:
        """Say whether columns are known by ids, so that they can be renamed and dropped."""
        return self.properties.get(MAPPING, "none") != "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeFile:
    """A file each row of which is a change.

    Attributes:
        path: relative to the table.
        size: in bytes.
        version: the commit that wrote it.
        images: its rows say themselves what they are; else the commit inserted them.

    """

    path: str
    size: int
    version: int
    images: bool

    @property
    def name(self) -> str:
        """Return its name."""
        return self.path.rpartition("/")[2]


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
        rewrites: it writes all rows again in other types, and changes none, as mirrorlib says of it.
        removes: it takes files out of the table, whatever that means to its rows.
        files: the data and change files that hold its changes, and their deletion vectors, relative to the
            table; those that lie elsewhere, as a clone's first ones do, are not among them.
        whole: these files, where each of their rows is a change, and its file's time that of the commit; None
            where it takes more to tell the changes.
        features: what it demands of a table's readers to know; None when it leaves that.
        vacuums: it begins a VACUUM, which keeps what was in use within that time; None when it does not.

    """

    version: int
    metadata: Metadata | None
    changes: bool
    forgotten: bool
    rows: int | None
    pairs: bool
    rewrites: bool
    removes: bool
    files: tuple[str, ...]
    whole: tuple[ChangeFile, ...] | None
    features: frozenset[str] | None
    vacuums: timedelta | None


def read_commit(version: int, actions: Sequence[Mapping[str, Any]]) -> FeedCommit:
    """Read what a version's actions say."""
    by_kind = {kind: action[kind] for action in actions for kind in action}
    changed = [a.get("add") or a.get("remove") for a in actions if "add" in a or "remove" in a]
    data = [file for file in changed if file and file.get("dataChange")]
    images = [action["cdc"]["path"] for action in actions if "cdc" in action]
    info = by_kind.get("commitInfo") or {}
    metrics = info.get("operationMetrics") or {}
    inserted, updated, deleted = (metrics.get(name) for name in _MERGED)
    ours = read_ours(info.get("userMetadata")) or {}
    rewrites = ours.get("outcome") == REWRITE and "metaData" in by_kind
    merge = info.get("operation") == "MERGE"
    changes = bool(data or images) and not rewrites
    return FeedCommit(
        version=version,
        metadata=read_metadata(by_kind["metaData"]) if "metaData" in by_kind else None,
        changes=changes,
        forgotten=changes
        and merge
        and {inserted, updated, deleted} == {"0"}
        and (bool(images) or not _is_copy(actions)),  # every change but a plain append has images
        rows=_rows(metrics, replaces=_replaces(info, actions)) if changes else 0,
        pairs=changes
        and not (merge and "0" in {inserted, deleted})
        and info.get("operation") not in _ONE_KIND
        and not _only_adds(actions),
        rewrites=rewrites,
        removes=any("remove" in action for action in actions),
        files=() if rewrites else tuple(_here(images or _paths(data))),
        whole=_whole(version, actions, info),
        features=read_features(by_kind["protocol"]) if "protocol" in by_kind else None,
        vacuums=_kept(info),
    )


def read_metadata(action: Mapping[str, Any]) -> Metadata:
    """Read a table's metadata, from a commit or from a checkpoint."""
    properties = action.get("configuration") or {}
    return Metadata(
        id=action["id"],
        schema=json.loads(action["schemaString"]),
        properties=dict(properties),  # a checkpoint has a list of pairs
        partitions=tuple(action.get("partitionColumns") or ()),
    )


def read_moves(actions: Iterable[Mapping[str, Any]]) -> tuple[list[Held], list[Held]]:
    """Name what a version takes out of the table, and what it puts in: data files with their deletion vectors."""
    removed, added = list[Held](), list[Held]()
    for action in actions:
        for kind, moves in (("remove", removed), ("add", added)):
            if kind in action:
                moves.append(tuple(_here(_paths([action[kind]]))))
    return removed, added


def read_features(action: Mapping[str, Any]) -> frozenset[str]:
    """Name what a protocol demands of readers to know."""
    version = action["minReaderVersion"]
    if version == _MAPPED_READER:
        return frozenset({"columnMapping"})
    return frozenset(action.get("readerFeatures") or ())


def _whole(
    version: int, actions: Sequence[Mapping[str, Any]], info: Mapping[str, Any]
) -> tuple[ChangeFile, ...] | None:
    """Name the files each row of which is a change; None where some lie elsewhere, were there before, or lack rows."""
    images = [action["cdc"] for action in actions if "cdc" in action]
    added = [action["add"] for action in actions if "add" in action]
    inserts = (
        info.get("operation") in _WRITES
        and _only_adds(actions)
        and all(one.get("dataChange") and not one.get("deletionVector") for one in added)
    )
    files = images or (added if inserts else [])
    paths = list(_here(file["path"] for file in files))
    if not files or len(paths) < len(files) or "inCommitTimestamp" in info:
        return None
    return tuple(
        ChangeFile(path=path, size=file["size"], version=version, images=bool(images))
        for path, file in zip(paths, files, strict=True)
    )


def _is_copy(actions: Sequence[Mapping[str, Any]]) -> bool:
    """Say whether as many rows come as go: a MERGE writes files again in which no clause of it applies to a row."""
    rows = 0
    for action in actions:
        for kind, sign in (("add", 1), ("remove", -1)):
            if kind in action:
                live = _live(action[kind])
                if live is None:
                    return False
                rows += sign * live
    return rows == 0


def _live(file: Mapping[str, Any]) -> int | None:
    """Count the rows of a file that its deletion vector leaves; None where its statistics do not tell."""
    count = json.loads(file.get("stats") or "{}").get("numRecords")
    vector = file.get("deletionVector") or {}
    return None if count is None else int(count) - int(vector.get("cardinality", 0))


def _paths(files: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Name the data files, and the deletion vectors without which they cannot be read."""
    for file in files:
        yield file["path"]
        vector = file.get("deletionVector") or {}
        if vector.get("storageType") == "u":
            yield _vector_path(vector["pathOrInlineDv"])


def _vector_path(encoded: str) -> str:
    """Name the file of a deletion vector, which the log has as a folder and a UUID in Z85."""
    folder, code = encoded[:-_UUID_LENGTH], encoded[-_UUID_LENGTH:]
    name = f"deletion_vector_{UUID(bytes=base64.b85decode(code.translate(_TO_B85)))}.bin"
    return f"{folder}/{name}" if folder else name


def _here(paths: Sequence[str] | Iterator[str]) -> Iterator[str]:
    """Keep the files below the table's folder: those elsewhere are another table's, and not ours to look at."""
    return (unquote(path) for path in paths if not _ELSEWHERE.match(path))


def _replaces(info: Mapping[str, Any], actions: Sequence[Mapping[str, Any]]) -> bool:
    """Say whether a commit took files away whose rows it does not tell one by one, as an overwrite does."""
    dml = info.get("operation") in {"MERGE", "UPDATE", "DELETE"}
    return not dml and any("remove" in action for action in actions)


def _rows(metrics: Mapping[str, Any], *, replaces: bool) -> int | None:
    """Add up the rows that a commit says it changed: a MERGE tells three kinds, all others one.

    What replaces rows has to tell those that went and those that came; most say the latter alone.
    """
    each = (_MERGED, ("numUpdatedRows",), ("numDeletedRows",), ("numOutputRows",))
    for names in (("numDeletedRows", "numOutputRows"),) if replaces else each:
        if all(str(metrics.get(name, "")).isdecimal() for name in names):
            return sum(int(metrics[name]) for name in names)
    return None


def _kept(info: Mapping[str, Any]) -> timedelta | None:
    """Return for how long a VACUUM keeps files; nothing is known to be kept where it does not say."""
    if info.get("operation") != "VACUUM START":
        return None
    parameters = info.get("operationParameters") or {}
    kept = parameters.get("specifiedRetentionMillis", parameters.get("defaultRetentionMillis", 0))
    return timedelta(milliseconds=int(kept))


def _only_adds(actions: Sequence[Mapping[str, Any]]) -> bool:
    return not any("remove" in action or "cdc" in action for action in actions)
