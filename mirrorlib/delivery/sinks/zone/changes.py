"""Turn a window's feed rows into rows of a change file: the marker of each, and what is left out.

In: Arrow rows in the order of `files.parts`: by version, then key; of one key in one version what is
removed stands before what takes its place. Out: rows without the feed's columns and, where the table
has keys, with `__rowMarker__`, in the order in which a reader applies them:

    delete              2
    update_preimage     left out; 2 where no row with its key follows in the version: the key was changed
    update_postimage    4
    insert              0, so that keys that occur several times in the source do so in the mirror

Markers go by key, so several rows of one key that change in one version are a delete and inserts; that only some of
its rows were changed no marker says, and `check_all_rows` refuses it. Without keys there are inserts alone.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from mirrorlib.delivery.sink import Delivery
from mirrorlib.delivery.sinks.files.parts import write_parts
from mirrorlib.delivery.sinks.zone.batch import ANEW
from mirrorlib.errors import MarkerError, SchemaError, StoreError
from mirrorlib.feed import net
from mirrorlib.feed.exact_text import check_types
from mirrorlib.landing.columns import DELETE, INSERT, MARKER, UPSERT
from mirrorlib.landing.parquet import open_parquet
from mirrorlib.landing.publish.rows import MARKER_COLUMN, MARKER_TYPE, mark_rows
from mirrorlib.landing.values import equal_values

COUNT = "_mirror_count"
_COMES, _GOES, _SETTLES = "_mirror_comes", "_mirror_goes", "_mirror_settles"
_BEFORE = -1  # what readers hold before a window stands before all versions


def collect_rows(delivery: Delivery) -> pa.Table:
    """Bring a window into memory, by way of files: Spark's driver would need as much again."""
    table = delivery.stream.table
    check_types(delivery.frame, table, "the open mirroring format")
    for name in delivery.frame.columns:
        if name.lower() == MARKER:
            msg = "a column has the name of the landing zone's row marker"
            raise SchemaError(msg, table=table, column=name, next_step="Rename it in the source.")
    parts, count = write_parts(delivery, delivery.scratch, delivery.folder, "parquet")
    tables = []
    for part in parts:
        with delivery.scratch.open_file(part.path) as file:
            tables.append(open_parquet(file).read())
    data = pa.concat_tables(tables)
    if data.num_rows != count:
        msg = "what was staged of the window was removed meanwhile"
        raise StoreError(msg, table=table, next_step="See that no other runner is at it.")
    return data


def bare_rows(data: pa.Table) -> pa.Table:
    """Leave out the feed's columns; every column may be NULL, as what a feed says of that changes from read to read."""
    rows = data.drop_columns(list(net.FEED_COLUMNS))
    return rows.cast(pa.schema([pa.field(field.name, field.type) for field in rows.schema]))


def change_rows(data: pa.Table, keys: Sequence[str], table: str) -> pa.Table:
    """Give changes their markers."""
    if not keys:
        if tells_rows(data):
            msg = "rows were updated or deleted, and the table has no keys by which a landing zone could say so"
            step = (
                "Let another consumer deliver it to another kind of receiver; or give its keys (--key, or keys={table: "
                f"[columns]}}), and begin anew, as the window was planned without. {ANEW}"
            )
            raise MarkerError(msg, table=table, next_step=step)
        return bare_rows(data)
    markers = _markers(data, keys)
    rows = bare_rows(data).append_column(pa.field(MARKER_COLUMN, MARKER_TYPE), markers)
    return rows.filter(pc.is_valid(markers))


def replacing_rows(data: pa.Table, gone: pa.Table) -> pa.Table:
    """Delete the keys that a reader may hold, then insert a snapshot's rows: afterwards it holds the snapshot."""
    inserts = mark_rows(bare_rows(data), INSERT)
    both = pa.concat_tables([mark_rows(gone, DELETE), inserts], promote_options="permissive")
    return both.select(inserts.column_names)


def _markers(data: pa.Table, keys: Sequence[str]) -> pa.Array:
    """Give each row its marker; NULL to those that are left out."""
    groups, kinds = _runs(data, (net.VERSION, *keys)), data[net.KIND].combine_chunks()
    pre, post, delete = (pc.equal(kinds, kind) for kind in (net.PRE, net.POST, net.DELETE))
    told = pa.table({"group": groups, net.PRE: pre, net.POST: post})
    sums = told.group_by("group").aggregate([(net.PRE, "sum"), (net.POST, "sum")])
    counted = sums.sort_by("group").take(groups)
    pres, posts = (counted[f"{kind}_sum"].combine_chunks() for kind in (net.PRE, net.POST))
    # An upsert would make several rows all the same, or one of them.
    several = pc.or_(pc.greater(posts, 1), pc.and_(pc.greater(posts, 0), pc.greater(pres, posts)))
    kept = pc.or_(pc.equal(posts, 0), several)
    removes = pc.or_(delete, pc.and_(pre, kept))
    adds = pc.if_else(pc.and_(post, pc.invert(several)), UPSERT, INSERT)
    stays = pc.if_else(pre, pa.scalar(None, adds.type), adds)
    return pc.if_else(removes, pa.scalar(DELETE, adds.type), stays).cast(MARKER_TYPE)


def _runs(data: pa.Table, columns: Sequence[str]) -> pa.Array:
    """Number the runs of rows that are equal in some columns."""
    begins = pa.repeat(pa.scalar(value=False), max(data.num_rows - 1, 0))
    for name in columns:
        values = data[name].combine_chunks()
        begins = pc.or_(begins, pc.invert(equal_values(values[1:], values[:-1])))
    first = pa.repeat(pa.scalar(0, pa.int64()), min(data.num_rows, 1))
    return pc.cumulative_sum(pa.concat_arrays([first, begins.cast(pa.int64())]))


def count_rows(data: pa.Table, keys: Sequence[str]) -> pa.Table:
    """Give each row's key, and whether there is one row more of it (1) or less (-1)."""
    return data.select(keys).append_column(COUNT, pc.if_else(_comes(data), 1, -1))


def tells_rows(data: pa.Table) -> bool:
    """Say whether rows were changed or deleted, which markers tell by key."""
    return pc.all(pc.equal(data[net.KIND], net.INSERT)).as_py() is False


def check_all_rows(data: pa.Table, keys: Sequence[str], held: pa.Table, table: str) -> None:
    """See that whatever a window changed or deleted of a key, all of its rows were.

    *held* says how many rows readers hold of its keys, as `COUNT`; of a key that is not among them, none.
    """
    comes = _comes(data)
    settles = pc.not_equal(data[net.KIND], net.INSERT)
    numbered = [str(number) for number in range(len(keys))]  # a dot in a name would begin a path
    told = data.select([*keys, net.VERSION]).rename_columns([*numbered, net.VERSION])
    for name, values in ((_COMES, comes), (_GOES, pc.invert(comes)), (_SETTLES, settles)):
        told = told.append_column(name, values.cast(pa.int64()))
    sums = [(name, "sum") for name in (_COMES, _GOES, _SETTLES)]
    begun = held.select([*keys, COUNT]).rename_columns([*numbered, _COMES])
    versions = pa.repeat(pa.scalar(_BEFORE, pa.int64()), held.num_rows)
    begun = begun.append_column(net.VERSION, versions)
    rows = pa.concat_tables([begun, told], promote_options="permissive")
    rows = rows.group_by([*numbered, net.VERSION]).aggregate(sums)
    rows = rows.sort_by([(name, "ascending") for name in (*numbered, net.VERSION)])
    came, went, settled = (rows[f"{name}_sum"].combine_chunks().fill_null(0) for name, _ in sums)
    own = pc.subtract(came, went)
    before = pc.subtract(pc.cumulative_sum(own), own)  # of all keys up to here
    key = _runs(rows, numbered)
    first = pa.array([True] * min(len(key), 1), pa.bool_())
    begins = pa.concat_arrays([first, pc.greater(key[1:], key[:-1])])
    there = pc.subtract(before, before.filter(begins).take(key))
    wrong = pc.and_(pc.greater(settled, 0), pc.greater(there, went))
    if pc.any(wrong).as_py():
        version = rows.filter(wrong)[net.VERSION][0].as_py()
        msg = "some rows of a key were changed and others not, and a landing zone can only tell of all of them"
        step = (
            "Name the columns that tell its rows apart (--key, or keys={table: [columns]}), and begin anew; a mirror "
            f"whose keys repeat is exported without net, and applied without quiet or conditional updates. {ANEW}"
        )
        found = f"in version {version}"
        raise MarkerError(msg, table=table, column=", ".join(keys), found=found, next_step=step)


def _comes(data: pa.Table) -> pa.ChunkedArray:
    """Say of each row whether it is there after its version, and was not before."""
    return pc.is_in(data[net.KIND], value_set=pa.array([net.INSERT, net.POST]))
