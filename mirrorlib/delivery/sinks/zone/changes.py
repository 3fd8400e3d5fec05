"""Turn a window's feed rows into rows of a change file: the marker of each, and what is left out.

In: Arrow rows in the order of `files.parts`: by version, then key; of one key in one version what is
removed stands before what takes its place. Out: rows without the feed's columns and, where the table
has keys, with `__rowMarker__`, in the order in which a reader applies them:

    delete              2
    update_preimage     left out; 2 where no row with its key follows in the version: the key was changed
    update_postimage    4
    insert              0, so that keys that occur several times in the source do so in the mirror

Markers go by key, so rows of one key that become different rows in one version (the key was deleted
and inserted several times) are a delete and inserts; `counts` refuses what changes only some of a key's
rows. Without keys there are inserts alone, and no markers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from mirrorlib.errors import MarkerError
from mirrorlib.feed import net
from mirrorlib.landing.publish.rows import DELETE, INSERT, MARKER_COLUMN, MARKER_TYPE, UPSERT

if TYPE_CHECKING:
    from collections.abc import Sequence


def bare_rows(data: pa.Table) -> pa.Table:
    """Leave out the feed's columns; every column may be NULL, as what a feed says of that changes from read to read."""
    rows = data.drop_columns(list(net.FEED_COLUMNS))
    return rows.cast(pa.schema([pa.field(field.name, field.type) for field in rows.schema]))


def change_rows(data: pa.Table, keys: Sequence[str], table: str) -> pa.Table:
    """Give changes their markers.

    Raises:
        MarkerError: rows were updated or deleted, and the table has no keys.

    """
    kinds = flat(data[net.KIND])
    if not keys:
        if pc.all(pc.equal(kinds, net.INSERT)).as_py() is False:
            msg = "rows were updated or deleted, and the table has no keys by which a landing zone could say so"
            step = (
                "Give its keys (--key TABLE=COLUMN,…, or keys={table: [columns]}), "
                "or export it to another kind of receiver."
            )
            raise MarkerError(msg, table=table, next_step=step)
        return bare_rows(data)
    markers = _markers(data, kinds, keys)
    rows = bare_rows(data).append_column(pa.field(MARKER_COLUMN, MARKER_TYPE), markers)
    return rows.filter(pc.is_valid(markers))


def replacing_rows(data: pa.Table, gone: pa.Table) -> pa.Table:
    """Delete keys, then insert a snapshot's rows: what a reader holds afterwards is the snapshot.

    Args:
        data: the snapshot.
        gone: the keys that a reader may hold.

    """
    rows = bare_rows(data)
    deletes = _marked(gone, DELETE)
    inserts = _marked(rows, INSERT)
    names = inserts.schema.names
    both = pa.concat_tables([deletes, inserts], promote_options="permissive")
    return both.select(names)


def _marked(rows: pa.Table, marker: int) -> pa.Table:
    markers = pa.repeat(pa.scalar(marker, MARKER_TYPE), rows.num_rows)
    return rows.append_column(pa.field(MARKER_COLUMN, MARKER_TYPE), markers)


def _markers(data: pa.Table, kinds: pa.Array, keys: Sequence[str]) -> pa.Array:
    """Give each row its marker; NULL to those that are left out."""
    groups = runs(data, (net.VERSION, *keys))
    post, delete = pc.equal(kinds, net.POST), pc.equal(kinds, net.DELETE)
    posts = _per_group(groups, post.cast(pa.int64()), "sum")
    pres = _per_group(groups, pc.equal(kinds, net.PRE).cast(pa.int64()), "sum")
    several = pc.and_(pc.greater(posts, 0), pc.greater(pres, posts))
    if pc.any(pc.greater(posts, 1)).as_py():
        others = pc.or_(_per_group(groups, delete, "max"), pc.not_equal(pres, posts))
        several = pc.or_(several, _several(data, groups, post, posts, others))
    kept = pc.or_(pc.equal(posts, 0), several)
    removes = pc.or_(delete, pc.and_(pc.equal(kinds, net.PRE), kept))
    adds = pc.if_else(pc.and_(post, pc.invert(several)), UPSERT, INSERT)
    left_out = pc.equal(kinds, net.PRE)
    others = pc.if_else(left_out, pa.scalar(None, pa.int64()), adds.cast(pa.int64()))
    return pc.if_else(removes, pa.scalar(DELETE, pa.int64()), others).cast(MARKER_TYPE)


def runs(data: pa.Table, columns: Sequence[str]) -> pa.Array:
    """Number the runs of rows that are equal in some columns."""
    begins = pa.repeat(pa.scalar(value=False), max(data.num_rows - 1, 0))
    for name in columns:
        values = flat(data[name])
        same = pc.equal(values[1:], values[:-1]).fill_null(False)  # noqa: FBT003  # its only parameter
        begins = pc.or_(begins, pc.invert(same))
    first = pa.repeat(pa.scalar(0, pa.int64()), min(data.num_rows, 1))
    return pc.cumulative_sum(pa.concat_arrays([first, begins.cast(pa.int64())]))


def flat(values: pa.ChunkedArray) -> pa.Array:
    """Give a column in one piece."""
    return pa.concat_arrays(values.chunks) if values.num_chunks else pa.array([], values.type)


def _per_group(groups: pa.Array, values: pa.Array, what: str) -> pa.Array:
    """Aggregate per group, and give each row its group's result; groups are numbered from 0 without gaps."""
    table = pa.table({"group": groups, "value": values})
    grouped = table.group_by("group").aggregate([("value", what)]).sort_by("group")
    return flat(grouped[f"value_{what}"]).take(groups)


def _several(
    data: pa.Table, groups: pa.Array, post: pa.Array, posts: pa.Array, others: pa.Array
) -> pa.Array:
    """Mark the groups of several rows that became different ones, or more: an upsert would make them all the same."""
    places = pc.indices_nonzero(pc.and_(post, pc.greater(posts, 1)))
    rows = data.take(places).drop_columns([net.TIME]).to_pylist()
    numbers = groups.take(places).to_pylist()
    values: dict[int, set[str]] = {}
    for number, row in zip(numbers, rows, strict=True):
        values.setdefault(number, set()).add(repr(row))  # as text NaN equals NaN
    different = pa.array([n for n, found in values.items() if len(found) > 1], pa.int64())
    among = pc.and_(pc.greater(posts, 1), others)
    return pc.or_(pc.is_in(groups, value_set=different), among)
