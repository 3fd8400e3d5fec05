"""Tell what the actions of one version mean for its change feed.

In: the lines of a version's file, as JSON values. Out: `FeedCommit` and `Metadata` values. Source: Delta
PROTOCOL.md, "Actions", "Change Metadata" and "Deletion Vector Descriptor Schema".
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, TypeAlias
from urllib.parse import unquote
from uuid import UUID

from mirrorlib.delta.log import REWRITE, Commit, tell_commit
from mirrorlib.delta.properties import Described

if TYPE_CHECKING:
    Action: TypeAlias = Mapping[str, Any]

Held = tuple[str, ...]  # a data file, and its deletion vector where it has one
FOREVER = timedelta(days=365_000)  # what is kept for longer, as no calendar goes so far
_ONE_KIND = frozenset({"UPDATE", "DELETE"})
_DML = _ONE_KIND | {"MERGE"}  # tell their rows one by one, which an overwrite does not
_WRITES = frozenset({"CREATE TABLE AS SELECT", "MERGE", "STREAMING UPDATE", "WRITE"})  # new files
_MERGED = ("numTargetRowsInserted", "numTargetRowsUpdated", "numTargetRowsDeleted")
# Absolute, as a clone names its source's files.
_ELSEWHERE = re.compile(r"/|[A-Za-z][A-Za-z0-9+.-]*:")
_Z85 = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
_B85 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~"
_TO_B85 = str.maketrans(_Z85, _B85)
_UUID_LENGTH = 20  # characters of a UUID in Z85


@dataclass(frozen=True, slots=True, kw_only=True)
class Metadata(Described):
    """A table's metadata from one version on: another id is another table, the schema is Spark's JSON.

    `partitions` are the columns that its files leave out, as their folders tell them.
    """

    id: str
    schema: Mapping[str, Any]
    properties: Mapping[str, str]
    partitions: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeFile:
    """A file each row of which is a change, by its path relative to the table, and the version that wrote it.

    With `images`, its rows say themselves what they are; else the commit inserted them.
    """

    path: str
    size: int
    version: int
    images: bool

    @property
    def name(self) -> str:
        """Return its name, without folders."""
        return self.path.rpartition("/")[2]


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedCommit:
    """What one version says of its changes."""

    version: int
    provenance: Commit  # who made it, and how
    transaction: str | None  # which no other version has, where it says so
    stated_at: datetime | None  # when it was committed, where it says so itself
    metadata: Metadata | None  # what it sets the table's metadata to; None when it leaves it
    changes: bool  # it adds, removes or changes rows
    rows: int | None  # how many rows it changes, as its metrics say; None where they do not
    pairs: bool  # it may delete and insert rows of one key
    # It writes all rows again in other types, and changes none, as mirrorlib says of it.
    rewrites: bool
    # The data and change files that hold its changes, and their deletion vectors, relative to the table; those that
    # lie elsewhere, as a clone's first ones do, are not among them.
    files: tuple[str, ...]
    # These files, where each of their rows is a change, and its file's time that of the commit; None where it takes
    # more to tell the changes.
    change_files: tuple[ChangeFile, ...] | None
    # What it demands of a table's readers and writers, as it says; None when it leaves that.
    protocol: Action | None
    # It begins a VACUUM, which keeps what was in use within that time; None when it does not.
    vacuums: timedelta | None


def read_commit(version: int, actions: Iterable[Action]) -> FeedCommit:
    """Read what a version's actions say."""
    found: dict[str, list[Action]] = {}
    for action in actions:
        for kind, said in action.items():
            found.setdefault(kind, []).append(said or {})
    adds, removes, images = (found.get(kind, []) for kind in ("add", "remove", "cdc"))
    metadata, protocol, info = (
        found[kind][-1] if kind in found else None
        for kind in ("metaData", "protocol", "commitInfo")
    )
    info = info or {}
    operation, metrics = info.get("operation"), info.get("operationMetrics") or {}
    inserted, _, deleted = (metrics.get(name) for name in _MERGED)
    provenance = tell_commit(version, info)
    stated = info.get("inCommitTimestamp")
    data = [file for file in (*adds, *removes) if file.get("dataChange")]
    rewrites = (provenance.ours or {}).get("outcome") == REWRITE and metadata is not None
    changes = bool(data or images) and not rewrites
    alone = operation in _ONE_KIND or (operation == "MERGE" and "0" in {inserted, deleted})
    asked = info.get("operationParameters") or {}
    kept = int(asked.get("specifiedRetentionMillis", asked.get("defaultRetentionMillis", 0)))
    return FeedCommit(
        version=version,
        provenance=provenance,
        transaction=info.get("txnId"),
        stated_at=None if stated is None else datetime.fromtimestamp(stated / 1000, UTC),
        metadata=None if metadata is None else read_metadata(metadata),
        changes=changes,
        rows=_rows(metrics, replaces=bool(removes) and operation not in _DML) if changes else 0,
        pairs=changes and not alone and bool(removes or images),
        rewrites=rewrites,
        files=() if rewrites else _files(images or data),
        change_files=_change_files(version, adds, removes, images, info),
        protocol=protocol,
        # Nothing is known to be kept where it does not say for how long.
        vacuums=min(timedelta(milliseconds=kept), FOREVER) if operation == "VACUUM START" else None,
    )


def read_metadata(action: Action) -> Metadata:
    """Read a table's metadata, from a commit or from a checkpoint."""
    return Metadata(
        id=action["id"],
        schema=json.loads(action["schemaString"]),
        properties=dict(action.get("configuration") or {}),  # a checkpoint has a list of pairs
        partitions=tuple(action.get("partitionColumns") or ()),
    )


def read_moves(actions: Iterable[Action]) -> tuple[list[Held], list[Held]]:
    """Name what a version takes out of the table, and what it puts in: data files with their deletion vectors."""
    moves: dict[str, list[Held]] = {"remove": [], "add": []}
    for action in actions:
        for kind in moves.keys() & action.keys():
            moves[kind].append(_files([action[kind]]))
    return moves["remove"], moves["add"]


def _change_files(
    version: int,
    adds: Sequence[Action],
    removes: Sequence[Action],
    images: Sequence[Action],
    info: Action,
) -> tuple[ChangeFile, ...] | None:
    """Name the files each row of which is a change; None where some lie elsewhere, were there before, or lack rows."""
    new = info.get("operation") in _WRITES and not removes
    inserts = new and all(one.get("dataChange") and not one.get("deletionVector") for one in adds)
    files, by = images or (adds if inserts else []), bool(images)
    here = not any(_ELSEWHERE.match(file["path"]) for file in files)
    if not files or not here or "inCommitTimestamp" in info:
        return None
    named = ((unquote(file["path"]), file["size"]) for file in files)
    return tuple(ChangeFile(path=path, size=n, version=version, images=by) for path, n in named)


def _files(files: Iterable[Action]) -> Held:
    """Name files, and the deletion vectors without which they cannot be read, below the table's folder.

    Those elsewhere are another table's, and not ours to look at. The log has a vector's file as a folder and a UUID
    in Z85.
    """
    paths = []
    for file in files:
        paths.append(file["path"])
        vector = file.get("deletionVector") or {}
        if vector.get("storageType") == "u":
            said = vector["pathOrInlineDv"]
            folder, code = said[:-_UUID_LENGTH], said[-_UUID_LENGTH:]
            name = f"deletion_vector_{UUID(bytes=base64.b85decode(code.translate(_TO_B85)))}.bin"
            paths.append(f"{folder}/{name}" if folder else name)
    return tuple(unquote(path) for path in paths if not _ELSEWHERE.match(path))


def _rows(metrics: Action, *, replaces: bool) -> int | None:
    """Add up the rows that a commit says it changed: a MERGE tells three kinds, all others one.

    What replaces rows has to tell those that went and those that came; most say the latter alone.
    """
    each = (_MERGED, ("numUpdatedRows",), ("numOutputRows",), ("numDeletedRows",))
    for names in (("numDeletedRows", "numOutputRows"),) if replaces else each:
        if all(str(metrics.get(name, "")).isdecimal() for name in names):
            return sum(int(metrics[name]) for name in names)
    return None
