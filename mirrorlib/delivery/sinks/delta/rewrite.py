"""Fold few changes here, and write a small copy anew: MERGE would do the same to its one file by three queries more.

In: a window by key whose rows are in this process, and the copy as its newest commits tell it. Out: the window
folded as `last_states` does, in Arrow, or none where its rows are not here, or keys that Python may compare in another
way than Spark; and one commit, or none where somebody could tell the difference: a copy with a feed of its own, with
partitions, tracked rows or other features that MERGE has more to do for, or rows that Arrow may not read as Spark does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from mirrorlib.commit.mark import append_rows, overwrite_rows
from mirrorlib.commit.stage import DROP, FRESH, OP, PUT, WRONG
from mirrorlib.delivery.sinks.delta.work import WindowWork
from mirrorlib.delta.actions import ChangeFile
from mirrorlib.delta.columns import Columns
from mirrorlib.delta.commits import Commits
from mirrorlib.errors import StoreError
from mirrorlib.feed.files.direct import PLAIN_NAME, WINDOW_BYTES, read_file, to_frame
from mirrorlib.feed.net import FEED_COLUMNS, INSERT, KIND, POST, VERSION
from mirrorlib.identifiers import fold_name
from mirrorlib.store import open_store

_MOST_BYTES = 1 << 20  # of files
_MOST_FILES = 8  # each is fetched by itself
_MOST_COMMITS = 32  # this road replaces all rows, so that its own are told by the last few
_MOST_ROWS = 10_000  # whose keys are compared in Python
_KEYS = (pa.types.is_integer, pa.types.is_string, pa.types.is_binary, pa.types.is_boolean)
# What a table may ask of its writers without making a rewrite differ from a MERGE.
_PLAIN_WRITER_FEATURES = {
    "appendOnly", "changeDataFeed", "deletionVectors", "inCommitTimestamp", "invariants", "timestampNtz",
    "typeWidening", "typeWidening-preview", "v2Checkpoint", "vacuumProtocolCheck",
}  # fmt: skip


def fold_few(work: WindowWork) -> pa.Table | None:
    """Fold a window's changes by key here, where this process has them: it fetches no others, which may be long."""
    rows = work.collected
    if rows is None:
        return None
    kinds = [rows.schema.field(key).type for key in work.keys]
    if not all(any(is_kind(kind) for is_kind in _KEYS) for kind in kinds):
        return None
    return _fold(rows, work.keys, work.upto if work.overlaps else -1)


def rewrite_copy(work: WindowWork, folded: pa.Table) -> bool:
    """Bring a small copy to the end of a window, folded by `fold_few`; say whether that was done."""
    keys, columns = work.keys, work.found.columns
    if len(columns) < len(work.found.schema.fields):
        return False
    puts = _as_copied(work, folded, columns)
    rows = None if puts is None else _read_copy(work, columns)
    if puts is None or rows is None:
        return False
    there = _key_values(rows, [work.spelled(key) for key in keys])
    fresh = dict(zip(_key_values(folded, keys), folded.column(FRESH).to_pylist(), strict=True))
    met = [key for key in there if key in fresh]
    if len(set(met)) < len(met):
        return False  # two rows of a key, to which MERGE does the same
    if work.known and any(fresh[key] for key in met):
        raise work.twice()
    mark = work.mark()
    if not met:  # as MERGE does, which takes no file away then
        append_rows(work.ref, to_frame(work.spark, puts, work.found.schema).coalesce(1), mark)
        return True
    kept = rows.filter(pa.array([key not in fresh for key in there], pa.bool_()))
    whole = to_frame(work.spark, pa.concat_tables([kept, puts]), work.found.schema).coalesce(1)
    overwrite_rows(work.ref, whole, mark, schema=False)
    return True


def _fold(rows: pa.Table, keys: Sequence[str], upto: int) -> pa.Table:
    """Fold rows by key as `last_states` does."""
    comes = [kind in {INSERT, POST} for kind in rows.column(KIND).to_pylist()]
    versions = rows.column(VERSION).to_pylist()
    values = _key_values(rows, keys)
    first: dict[object, bool] = {}
    last: dict[object, int] = {}
    doubled: list[int] = []
    # What goes in a version goes before what comes.
    for place in sorted(range(len(values)), key=lambda place: (versions[place], comes[place])):
        key = values[place]
        if comes[place] and key in last and comes[last[key]]:
            doubled.append(place)
        first.setdefault(key, comes[place] and versions[place] > upto)
        last[key] = place
    places = [*last.values(), *doubled]
    ops = [PUT if comes[place] else DROP for place in last.values()] + [WRONG] * len(doubled)
    fresh = [first[values[place]] for place in places]
    kept = rows.drop_columns(list(FEED_COLUMNS)).take(pa.array(places, pa.int64()))
    kept = kept.append_column(OP, pa.array(ops, pa.int8()))
    return kept.append_column(FRESH, pa.array(fresh, pa.bool_()))


def _key_values(rows: pa.Table, keys: Sequence[str]) -> list[tuple[object, ...]]:
    """Give each row's key; text as bytes, as Spark's need not be UTF-8."""
    columns = [rows.column(key) for key in keys]
    told = (one.cast(pa.binary()) if pa.types.is_string(one.type) else one for one in columns)
    return list(zip(*(one.to_pylist() for one in told), strict=True))


def _read_copy(work: WindowWork, columns: Columns) -> pa.Table | None:
    """Read the copy's rows, where they are few and nothing but rows."""
    found = work.found
    if work.ref.path is None or found.bytes > _MOST_BYTES or found.has_feed:
        return None
    if not found.features or not found.features <= _PLAIN_WRITER_FEATURES:
        return None
    commits = Commits(open_store(work.ref.path), work.stream.table)
    files = _plain_files(commits, work.last.newest)
    if files is None:
        return None
    pieces = [pa.table({one.name: pa.array([], one.type) for one in columns})]
    for file in files:
        try:
            with commits.store.open_file(file.path) as source:
                piece = read_file(source, file, columns, most=_MOST_ROWS)
        except StoreError:
            return None
        if piece is None:
            return None
        pieces.append(piece.drop_columns([KIND]))
    rows = pa.concat_tables(pieces)
    return rows if len(rows) <= _MOST_ROWS and rows.nbytes <= WINDOW_BYTES else None


def _plain_files(commits: Commits, newest: int) -> list[ChangeFile] | None:
    """Name a table's files, where its last commits tell all of them and none lacks rows by a deletion vector.

    A checksum file tells them too, but may be of a version that was set back, from which Delta goes on.
    """
    files: list[ChangeFile] = []
    known: set[str] = set()
    for version in range(newest, newest - _MOST_COMMITS, -1):
        if not commits.has(version):
            return None
        actions = commits.actions(version, "commitInfo", "add", "remove")
        added = {one["add"]["path"]: one["add"] for one in actions if "add" in one}
        for path in added.keys() - known:
            file = added[path]
            if (
                file.get("deletionVector")
                or file.get("partitionValues")
                or not PLAIN_NAME.fullmatch(path)
            ):
                return None
            files.append(ChangeFile(path=path, size=file["size"], version=0, images=False))
        known |= {*added, *(one["remove"]["path"] for one in actions if "remove" in one)}
        if version == 0 or any(_replaces(one.get("commitInfo", {})) for one in actions):
            return files if len(files) <= _MOST_FILES else None
    return None


def _replaces(info: Mapping[str, Any]) -> bool:
    """Say whether a commit replaces all rows that a table without partitions had before."""
    how = info.get("operationParameters") or {}
    overwrites = info.get("operation") == "WRITE" and how.get("mode") == "Overwrite"
    return overwrites and "predicate" not in how


def _as_copied(work: WindowWork, folded: pa.Table, columns: Columns) -> pa.Table | None:
    """Give the rows that are put into the copy as it has them; None where they are of other types."""
    puts = folded.filter(pa.array([op == PUT for op in folded.column(OP).to_pylist()], pa.bool_()))
    given = {fold_name(name): puts.column(name) for name in work.columns}
    values = {}
    for column in columns:
        found = given.get(fold_name(column.name), pa.nulls(len(puts), column.type))
        if found.type != column.type:
            return None
        values[column.name] = found
    return pa.table(values)
