"""Say whose a table's rows are, and by which columns they can be told apart.

In: a table's log. Out: whether the rows are as mirrorlib has left them, and the keys that hold while they are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from mirrorlib.delta.actions import Metadata
from mirrorlib.delta.commits import Commits
from mirrorlib.delta.key_property import ON, grouping_columns, identifying_columns
from mirrorlib.delta.log import REWRITE, Commit
from mirrorlib.errors import FeedExpiredError
from mirrorlib.feed.schemas import physical_name, widens_to
from mirrorlib.identifiers import fold_name
from mirrorlib.keys.value import TABLE_KEY_TYPES

# Outcomes of commits of ours that say nothing of the rows that are there.
_NO_ROWS = frozenset({"fence", "grow", REWRITE, "void"})


def stored_columns(commits: Commits, version: int, *, grouping: bool = False) -> tuple[str, ...]:
    """Name the keys that a table's property names: columns that tell its rows apart, or those that *group* them."""
    metadata = commits.metadata_at(version)
    if grouping:
        columns = grouping_columns(metadata.properties, _names(metadata))
        return columns if columns and keeps_columns(commits, version, columns) else ()
    if not is_owners(commits, version):
        return ()
    return identifying_columns(metadata.properties, _names(metadata))


def keeps_columns(commits: Commits, version: int, columns: Sequence[str]) -> bool:
    """Say whether columns are still those that they were when mirrorlib last wrote rows.

    A name that is there may be another column's by now: where columns can be renamed, and where somebody has
    written the table anew with another schema, which keeps its properties. Not where the log does not tell.
    """
    made = map(commits.provenance, range(version, commits.first - 1, -1))
    ours = next(filter(_has_rows, made), None)
    if ours is None and commits.first > 0:
        return False
    was = _metadata_at(commits, 0 if ours is None else ours.version)
    if was is None:
        return False
    before, since = (
        {fold_name(field["name"]): field for field in one.schema["fields"]}
        for one in (was, commits.metadata_at(version))
    )
    return all(_is_same(before.get(name), since.get(name)) for name in map(fold_name, columns))


def _is_same(was: Mapping[str, Any] | None, now: Mapping[str, Any] | None) -> bool:
    """Say whether a column may be a key and is the one that it was, by its name in the files and by its type."""
    if was is None or now is None or physical_name(was) != physical_name(now):
        return False
    kind = now["type"]
    known = isinstance(kind, str) and kind.partition("(")[0] in TABLE_KEY_TYPES
    return known and (was["type"] == kind or widens_to(was["type"], kind))


def is_one_row(commits: Commits, version: int, columns: tuple[str, ...]) -> bool:
    """Say whether every value of some columns occurs once in a version; not where the log does not tell."""
    if not commits.first <= version <= commits.newest:
        return False
    return _identifies(commits, version, columns) and is_owners(commits, version)


def stays_one_row(commits: Commits, after: int, until: int, columns: tuple[str, ...]) -> bool:
    """Say whether every value of some columns occurs once in each version of a window, and in the one before it.

    That it does at the end is not enough: of two rows of a key one may have gone since, and the other stayed.
    """
    return (
        is_one_row(commits, until, columns)
        and (after < 0 or is_one_row(commits, after, columns))
        and all(
            _identifies(commits, version, columns)
            and _is_undisturbed(commits, commits.provenance(version))
            for version in range(after + 1, until + 1)
        )
    )


def _identifies(commits: Commits, version: int, columns: tuple[str, ...]) -> bool:
    metadata = _metadata_at(commits, version)
    if metadata is None or not columns:
        return False
    return identifying_columns(metadata.properties, _names(metadata)) == columns


def _metadata_at(commits: Commits, version: int) -> Metadata | None:
    try:
        return commits.metadata_at(version)
    except FeedExpiredError:
        return None


def _names(metadata: Metadata) -> list[str]:
    return [field["name"] for field in metadata.schema["fields"]]


def is_owners(commits: Commits, version: int) -> bool:
    """Say whether the rows of a version are as a commit of mirrorlib has left them, or there are none yet."""
    return owned_since(commits, version) is not None


def owned_since(commits: Commits, version: int) -> int | None:
    """Return the commit by which the rows of a version are as mirrorlib has left them; None where they are not.

    Not where somebody has written before it, but after what it was computed on; Delta lets both be.
    """
    for number in range(version, commits.first - 1, -1):
        provenance = commits.provenance(number)
        if not _is_undisturbed(commits, provenance):
            return None
        if _has_rows(provenance):
            return number
    return None if commits.first else 0


def _has_rows(commit: Commit) -> bool:
    """Say whether a commit of ours tells of all rows: of those that it wrote, or of those that it has `SEEN`.

    That counts only where nothing has come since it looked.
    """
    if commit.ours is None or commit.ours.get("outcome") in _NO_ROWS:
        return False
    return not commit.harmless or commit.ours.get(ON) == commit.version - 1


def _is_let(commit: Commit) -> bool:
    return commit.ours is not None or commit.harmless


def _is_undisturbed(commits: Commits, commit: Commit) -> bool:
    """Say whether a commit is ours or harmless, and none but such, and no window's, has come while it was computed."""
    if commit.ours is None or not _has_rows(commit):
        return _is_let(commit)
    between = range(max(commit.ours.get(ON, commit.version) + 1, commits.first), commit.version)
    came = map(commits.provenance, between)
    return all(_is_let(one) and not one.has_window for one in came)
