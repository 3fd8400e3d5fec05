"""Say whose a table's rows are, and by which columns they can be told apart.

In: a table's log. Out: whether the rows are as mirrorlib has left them, and the keys that hold while they are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirrorlib.apply.commit import REWRITE
from mirrorlib.apply.keyed import ON, grouping_columns, identifying_columns

if TYPE_CHECKING:
    from mirrorlib.apply.log import Commit
    from mirrorlib.feed.commits import Commits

# Outcomes of commits of ours that say nothing of the rows that are there.
_NO_ROWS = frozenset({"fence", "grow", REWRITE, "void"})


def stored_columns(commits: Commits, version: int, *, grouping: bool = False) -> tuple[str, ...]:
    """Name the keys that a table's property names: columns that tell its rows apart, or those that *group* them."""
    metadata = commits.metadata_at(version)
    names = [field["name"] for field in metadata.schema["fields"]]
    if grouping:
        return grouping_columns(metadata.properties, names)
    if not is_owners(commits, version):
        return ()
    return identifying_columns(metadata.properties, names)


def is_one_row(commits: Commits, version: int, columns: tuple[str, ...]) -> bool:
    """Say whether every value of some columns occurs once in a version; not where the log does not tell."""
    if not commits.first <= version <= commits.newest:
        return False
    metadata = commits.metadata_at(version)
    names = [field["name"] for field in metadata.schema["fields"]]
    told = identifying_columns(metadata.properties, names)
    return bool(told) and told == columns and is_owners(commits, version)


def _is_let(commit: Commit) -> bool:
    return commit.ours is not None or commit.harmless


def is_owners(commits: Commits, version: int) -> bool:
    """Say whether the rows of a version are as a commit of mirrorlib has left them.

    Not where somebody has written before it, but after what it was computed on; Delta lets both be.
    """
    for number in range(version, commits.first - 1, -1):
        provenance = commits.provenance(number)
        if not _is_let(provenance):
            return False
        ours = provenance.ours
        if ours is not None and ours.get("outcome") not in _NO_ROWS:
            between = range(max(ours.get(ON, number) + 1, commits.first), number)
            return all(_is_let(commits.provenance(one)) for one in between)
    return False
