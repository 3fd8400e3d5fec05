"""Count the rows of each key, and refuse what a marker, which goes by key, would tell of too many rows.

In: Arrow rows of a feed in the order of `files.parts`, and how many rows readers hold of their keys. Out:
nothing, or a refusal. A mirror whose keys repeat, as inserts by marker 0 let them, changes and deletes all
rows of a key at once, and so do its markers. Where only some of them were changed, in a table whose
key does not tell its rows apart, no marker says so. Neither can be told from it what a mirror with
`quiet_updates` or a net window leaves out of repeated keys.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from mirrorlib.delivery.sinks.zone.batch import ANEW
from mirrorlib.delivery.sinks.zone.changes import flat, runs
from mirrorlib.errors import MarkerError
from mirrorlib.feed import net

if TYPE_CHECKING:
    from collections.abc import Sequence

COUNT = "_mirror_count"
_COMES, _GOES, _SETTLES = "_mirror_comes", "_mirror_goes", "_mirror_settles"
_BEFORE = -1  # what readers hold before a window stands before all versions


def count_rows(data: pa.Table, keys: Sequence[str]) -> pa.Table:
    """Give each row's key, and whether there is one row more of it (1) or less (-1)."""
    comes = pc.is_in(data[net.KIND], value_set=pa.array([net.INSERT, net.POST]))
    return data.select(keys).append_column(COUNT, _numbers(pc.if_else(comes, 1, -1)))


def tells_rows(data: pa.Table) -> bool:
    """Say whether rows were changed or deleted, which markers tell by key."""
    return pc.all(pc.equal(data[net.KIND], net.INSERT)).as_py() is False


def check_whole(data: pa.Table, keys: Sequence[str], held: pa.Table, table: str) -> None:
    """See that whatever was changed or deleted of a key, all of its rows were.

    Args:
        data: the window.
        keys: its key columns.
        held: how many rows readers hold of its keys, as `COUNT`; of a key that is not among them, none.
        table: the table's name.

    Raises:
        MarkerError: they were not.

    """
    rows = _by_key(data, keys, held)
    own = pc.subtract(rows[_COMES], rows[_GOES])
    before = flat(pc.subtract(pc.cumulative_sum(own), own))  # of all keys up to here
    key = runs(rows, keys)
    begins = pa.array([True] * min(len(key), 1), pa.bool_())
    first = pa.concat_arrays([begins, pc.greater(key[1:], key[:-1])])
    there = pc.subtract(before, before.filter(first).take(key))
    wrong = pc.and_(rows[_SETTLES], pc.greater(there, rows[_GOES]))
    if pc.any(wrong).as_py():
        raise _refusal(rows.filter(wrong).slice(0, 1), keys, table)


def _by_key(data: pa.Table, keys: Sequence[str], held: pa.Table) -> pa.Table:
    """Count what comes and goes of each key in each version, behind what readers hold of it; in order."""
    kinds = data[net.KIND]
    comes = pc.is_in(kinds, value_set=pa.array([net.INSERT, net.POST]))
    marked = data.select([*keys, net.VERSION])
    marked = marked.append_column(_COMES, _numbers(comes)).append_column(
        _GOES, _numbers(pc.invert(comes))
    )
    marked = marked.append_column(_SETTLES, _numbers(pc.not_equal(kinds, net.INSERT)))
    sums = [(_COMES, "sum"), (_GOES, "sum"), (_SETTLES, "max")]
    counted = marked.group_by([*keys, net.VERSION]).aggregate(sums)
    counted = counted.rename_columns([*keys, net.VERSION, _COMES, _GOES, _SETTLES])
    none = pa.repeat(pa.scalar(0, pa.int64()), held.num_rows)
    begun = held.select([*keys, COUNT]).rename_columns([*keys, _COMES])
    begun = begun.append_column(_GOES, none).append_column(_SETTLES, none)
    versions = pa.repeat(pa.scalar(_BEFORE, pa.int64()), held.num_rows)
    begun = begun.append_column(net.VERSION, versions).select(counted.column_names)
    rows = pa.concat_tables([begun, counted], promote_options="permissive")
    rows = rows.set_column(rows.num_columns - 1, _SETTLES, pc.greater(rows[_SETTLES], 0))
    return rows.sort_by([(name, "ascending") for name in (*keys, net.VERSION)])


def _numbers(values: pa.ChunkedArray) -> pa.ChunkedArray:
    return pc.cast(values, pa.int64())


def _refusal(row: pa.Table, keys: Sequence[str], table: str) -> MarkerError:
    msg = "some rows of a key were changed and others not, and a landing zone can only tell of all of them"
    found = f"in version {row[net.VERSION][0].as_py()}"
    step = (
        "Name the columns that tell its rows apart (--key TABLE=COLUMN,…, or keys={table: [columns]}), and begin anew; "
        f"a mirror whose keys repeat is exported without net, and applied without quiet updates. {ANEW}"
    )
    return MarkerError(msg, table=table, column=", ".join(keys), found=found, next_step=step)
