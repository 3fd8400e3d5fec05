"""Find the keys of a window whose changes are not their net changes as they are.

In: the window's files, in which each key is one row of every version. Out: for each key that changed more
than once, or by an update that changes nothing, the first thing that went and the last that came. Spark would
bring all keys together for it, which costs it as much as to read the window; here it takes a third, in the
memory of a few of the files and of the rows of these keys.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import partial, reduce
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from mirrorlib.errors import StoreError
from mirrorlib.feed.files.arrow import read_file
from mirrorlib.feed.net import DELETE, INSERT, KIND, POST, PRE

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from mirrorlib.delta.actions import ChangeFile
    from mirrorlib.delta.columns import Columns
    from mirrorlib.delta.commits import Commits

ORDER = {DELETE: 0, PRE: 1, INSERT: 2, POST: 3}  # within a version; what came is 2 or more
BITS = 2  # that say which of them; a place is a version and these
FIRST, LAST = "_mirror_first", "_mirror_last"
NOWHERE = -1  # the place of what an update that changes nothing took and gave
_MOST_BYTES = 256 << 20  # of files: each is read here
_MOST_KEPT = 256 << 20  # bytes of rows that are put in order
_MOST_VALUES = 32_000_000  # of the rows that are read a second time: files that compress well are many times their size
_AT_ONCE = 4  # files
_PLACE = "_mirror_place"
_COUNT = "count_all"


class _NotToldError(Exception):
    """The files alone do not tell what happened to each key."""


def find_repeated(
    commits: Commits, files: Sequence[ChangeFile], columns: Columns, keys: Sequence[str]
) -> pa.Table | None:
    """Find these keys, and the places of their ends; None where that is not told by the files alone.

    Args:
        commits: of the table.
        files: of the window; each key is one row of every version.
        columns: of the table.
        keys: key columns.

    """
    narrow = tuple(one for one in columns if one.name in keys)
    # Spark knows one NaN, and one zero.
    floating = any(pa.types.is_floating(one.type) for one in narrow)
    if floating or sum(file.size for file in files) > _MOST_BYTES:
        return None
    try:
        things = _read(commits, files, narrow, _things)
        if len(things) * len(columns) > _MOST_VALUES:
            return None
        several = _repeated_in_several(things, keys)
        suspects = partial(_suspects, several=several)
        rows = _read(commits, files, columns, suspects)
        return None if rows.nbytes > _MOST_KEPT else _ends(rows.combine_chunks(), keys)
    except (_NotToldError, pa.ArrowException):
        return None


def _read(
    commits: Commits, files: Sequence[ChangeFile], columns: Columns, keep: Callable[[pa.Table], Any]
) -> pa.Table:
    """Read files, and the place of each change, and keep some rows.

    Raises:
        _NotToldError: a file does not tell all.

    """

    def read_one(file: ChangeFile) -> pa.Table:
        try:
            with commits.store.open_file(file.path) as source:
                rows = read_file(source, file, columns)
        except StoreError as exc:
            raise _NotToldError from exc
        if rows is None:
            raise _NotToldError
        rows = rows.combine_chunks()
        within = pc.index_in(rows.column(KIND), value_set=pa.array(ORDER))
        if within.null_count:
            raise _NotToldError
        place = pc.add(within.cast(pa.int64()), file.version << BITS)
        rows = rows.append_column(_PLACE, place)
        return rows.filter(keep(rows)) if len(rows) else rows

    with ThreadPoolExecutor(_AT_ONCE) as pool:
        return pa.concat_tables(pool.map(read_one, files))


def _things(rows: pa.Table) -> pa.ChunkedArray:
    """Mark one row for each thing that happened.

    Raises:
        _NotToldError: some update's images do not lie side by side.

    """
    before = pc.equal(rows.column(KIND), PRE)
    keys = [name for name in rows.column_names if name not in (KIND, _PLACE)]
    if _count(before) != _count(_pairs(rows, keys)):
        raise _NotToldError
    return pc.invert(before)


def _repeated_in_several(things: pa.Table, keys: Sequence[str]) -> pa.Table:
    """Name the keys that several things happened to."""
    numbered = [str(place) for place in range(len(keys))]  # a key may have the name of the count
    found = things.select(keys).rename_columns(numbered).group_by(numbered)
    counted = found.aggregate([([], _COUNT)])
    several = counted.filter(pc.greater(counted.column(_COUNT), 1)).select(numbered)
    return several.rename_columns(keys)


def _pairs(rows: pa.Table, columns: Sequence[str]) -> pa.ChunkedArray:
    """Mark the rows before an update that are followed by the row after it, and equal it in these columns."""
    one, next_one = rows.slice(0, max(len(rows) - 1, 0)), rows.slice(1)
    sides = pc.and_(pc.equal(one.column(KIND), PRE), pc.equal(next_one.column(KIND), POST))
    return reduce(pc.and_, (_equal(one.column(c), next_one.column(c)) for c in columns), sides)


def _suspects(rows: pa.Table, several: pa.Table) -> pa.ChunkedArray:
    """Mark the rows of keys that may be repeated in several versions, and of updates that change nothing."""
    keys = several.column_names
    again = reduce(
        pc.and_, (pc.is_in(rows.column(key), value_set=several.column(key)) for key in keys)
    )
    same = _pairs(rows, [name for name in rows.column_names if name not in (KIND, _PLACE)])
    none = pa.array([False])
    before = pa.chunked_array([*same.chunks, none])
    after = pa.chunked_array([none, *same.chunks])
    return pc.or_(again, pc.or_(before, after))


def _ends(rows: pa.Table, keys: Sequence[str]) -> pa.Table:
    """Give the places of the first and the last thing that happened to each key, where these are not its net change."""
    order = [(key, "ascending") for key in keys]
    rows = rows.take(pc.sort_indices(rows, sort_keys=[*order, (_PLACE, "ascending")]))
    firsts, lasts = _bounds(rows, keys)
    first, last = firsts.column(_PLACE), lasts.column(_PLACE)
    values = [name for name in rows.column_names if name not in (*keys, KIND, _PLACE)]
    equal = (_equal(firsts.column(name), lasts.column(name)) for name in values)
    update = pc.and_(_went(first), pc.invert(_went(last)))
    nothing = reduce(pc.and_, equal, update)
    found = firsts.select(keys)
    for name, place in ((FIRST, first), (LAST, last)):
        found = found.append_column(name, pc.if_else(nothing, NOWHERE, place))
    return found.filter(pc.or_(nothing, pc.invert(_is_net(first, last))))


def _bounds(rows: pa.Table, keys: Sequence[str]) -> tuple[pa.Table, pa.Table]:
    """Give the first and the last row of each key, of rows in order."""
    if not rows:
        return rows, rows
    one, next_one = rows.slice(0, len(rows) - 1), rows.slice(1)
    same = reduce(pc.and_, (_equal(one.column(key), next_one.column(key)) for key in keys))
    other = pc.invert(same).chunks
    edge = pa.array([True])
    return rows.filter(pa.chunked_array([edge, *other])), rows.filter(
        pa.chunked_array([*other, edge])
    )


def _is_net(first: pa.ChunkedArray, last: pa.ChunkedArray) -> pa.ChunkedArray:
    """Say whether a key's ends are all that happened to it: one update, one insert or one delete."""
    update = pc.and_(pc.equal(_kind(first), ORDER[PRE]), pc.equal(_kind(last), ORDER[POST]))
    version = pc.equal(pc.shift_right(first, BITS), pc.shift_right(last, BITS))
    return pc.or_(pc.equal(first, last), pc.and_(version, update))


def _kind(place: pa.ChunkedArray) -> pa.ChunkedArray:
    return pc.bit_wise_and(place, (1 << BITS) - 1)


def _went(place: pa.ChunkedArray) -> pa.ChunkedArray:
    return pc.less(_kind(place), ORDER[INSERT])


def _equal(one: pa.ChunkedArray, other: pa.ChunkedArray) -> pa.ChunkedArray:
    """Compare values as Spark groups them: NULL is NULL, and NaN is NaN."""
    same = pc.equal(one, other)
    if pa.types.is_floating(one.type):
        same = pc.or_(same, pc.and_(pc.is_nan(one), pc.is_nan(other)))
    if not same.null_count:
        return same
    return pc.coalesce(same, pc.and_(pc.is_null(one), pc.is_null(other)))


def _count(mask: pa.ChunkedArray) -> int:
    return int(pc.sum(mask, min_count=0).as_py())
