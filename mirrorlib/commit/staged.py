"""Changes as a commit takes them: at most one row for each key that matches, and what to do with it in `OP`.

Whoever writes a Delta table folds to this: the marker fold of a batch, the net changes of a window.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mirrorlib.identifiers import quote

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

OP = "_mirror_op"
SET = "_mirror_set"  # by place, which columns an update sets
FRESH = "_mirror_fresh"  # no row of the key was there before the window, nor in what the target has of it
# nothing can carry it out: the rows are not what the target goes by · delete · update or insert · update only ·
# insert without a look
WRONG, DROP, PUT, CHANGE, ADD = 0, 1, 2, 3, 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Staged:
    """A batch's changes, ready to be committed."""

    frame: DataFrame  # the table's columns, plus `OP` unless every row is to be inserted
    # Which ops occur, as far as known; all that markers allow for a large batch.
    ops: frozenset[int]
    rows: int  # how many rows, at most
    bytes: int  # how many bytes were staged, 0 when the change files themselves are read
    keys: Sequence[str] = ()  # the columns by which rows of the table are found, as it spells them
    null_keys: bool = False  # some key may be NULL
    private: bool = True  # the frame reads staged files, not the landing zone
    # The column whose value has to be greater for an update to count; None where all count.
    conditional: str | None = None
    partial: bool = False  # updates set those columns alone of which `SET` says so
    # Smallest and largest value of the first key column, where both are known.
    key_range: tuple[object, object] | None = None
    # Rows by marker name, where they are not those of the files.
    counts: Mapping[str, int] | None = None


def count_doubles(rows: DataFrame, keys: Sequence[str]) -> int:
    """Count the keys that are there more than once."""
    from pyspark.sql import functions as f

    copies = f.count(f.lit(1)).alias("_mirror_copies")  # a key may be called "count"
    return rows.groupBy(*map(quote, keys)).agg(copies).where("_mirror_copies > 1").count()
