"""Say where a change file went, or what has changed a key and which rows of which files did.

In: a target, a table, and a file or a key. Out: `WhereReport`. A table's feed says what has changed a key, each commit
whose batch it was; of that batch's files the key's columns are read as `apply` reads and casts them, in this process.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import datetime
from functools import partial, reduce
from itertools import groupby
from operator import or_
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from mirrorlib.delta.address import FeedTable, find_feed_table
from mirrorlib.delta.columns import Column, spelled_keys, to_columns
from mirrorlib.delta.sessions import lend_session
from mirrorlib.delta.table import refer
from mirrorlib.errors import (
    FeedExpiredError,
    JournalError,
    KeysError,
    LandingZoneError,
    MirrorError,
)
from mirrorlib.feed.changes import Change, first_changes
from mirrorlib.feed.window import Bound, open_window
from mirrorlib.identifiers import fold_name, quote
from mirrorlib.ingest.rows.decode import iter_pieces
from mirrorlib.ingest.rows.marks import read_marks
from mirrorlib.ingest.rows.read import Landed
from mirrorlib.ingest.rows.rescue import fitted_rows
from mirrorlib.journal.registry import registries
from mirrorlib.landing.columns import MARKER_NAMES
from mirrorlib.landing.types import INSTANT
from mirrorlib.landing.values import fit_values
from mirrorlib.names import find_key, only_table, parse_name
from mirrorlib.operate.ledger import find_applied
from mirrorlib.operate.trace.files import Past, Step, WhereReport, trace_file
from mirrorlib.operate.verify.applied_files import open_planned
from mirrorlib.store import PathOrUrl, open_store
from mirrorlib.store.target import Target

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Key: TypeAlias = dict[Column, pa.ChunkedArray]  # of one value, or of both zeros
_MOST = 1_000  # changes of a key


def where_is(
    target: PathOrUrl,
    table: str,
    *,
    file: str | int | None = None,
    key: Mapping[str, Any] | None = None,
    spark: SparkSession | None = None,
    after: Bound | None = None,
    show_values: bool = False,
    catalog: str | None = None,
    state: PathOrUrl | None = None,
) -> WhereReport:
    """Say what became of a change file, or what has changed a key and which rows of which files did.

    Args:
        target: as for `status`.
        table: "dbo/orders".
        file: its number, its name, or a path that ends with it.
        key: a value for each key column; text is read as the column's type.
        spark: any Spark with Delta, for keys.
        after: the version or moment, as for `read_feed`, behind which to begin to tell a key's changes.
        show_values: tell the key's rows before and after each change.
        catalog: as for `status`.
        state: as for `status`.

    Raises:
        JournalError: the target has no such table, or nobody knows the file.
        KeysError: these are not the key's columns, or a value is none of its column's.
        LandingZoneError: there is not one of file and key, or no session for a key.

    """
    if (file is None) == (key is None) or (key is not None and spark is None):
        msg = "it is a file that is asked for, or a key, which takes a session"
        step = "Give --file or --key; in Python file=, or key= and spark=."
        raise LandingZoneError(msg, table=table, next_step=step)
    place = Target.of(target, catalog=catalog, state=state)
    store = open_store(place.state)
    name = only_table(find_applied(store), table, JournalError)
    exported = {one.table for one in registries(store)} if catalog is not None else ()
    called = [parse_name(one) for one in exported if fold_name(one) == fold_name(name.table)]
    past = Past(store, name, called)
    if spark is None or key is None:
        steps = trace_file(past, str(file))
    else:
        with lend_session(spark) as session:
            delta = find_feed_table(session, refer(place, past.name).address, shown=past.name.shown)
            typed = _read_key(session, past, delta, key)
            steps = [*_trace_key(session, past, delta, typed, after)]
        key = {column.name: values[0].as_py() for column, values in typed.items()}
        if not show_values:
            steps = [replace(step, before=None, after=None) for step in steps]
    return WhereReport(
        target=place.shown,
        table=past.name.shown,
        file=None if file is None else str(file),
        key=key,
        steps=tuple(steps),
        lost=tuple(past.lost),
    )


def _read_key(spark: SparkSession, past: Past, table: FeedTable, given: Mapping[str, Any]) -> Key:
    """Give the values of a key the types of the table's columns; raises `KeysError` where that cannot be."""
    from mirrorlib.feed.read import read_rows  # Spark comes with it, which files take none of

    shown, newest = past.name.shown, past.newest
    columns = to_columns(read_rows(spark, table, table.commits.newest).dtypes)
    keys = spelled_keys(columns, newest.plan.policies.keys if newest else ())
    names = [find_key(keys, name) or name for name in given]
    if not keys or sorted(names) != sorted(keys):
        msg, asked = "this is not the table's key", ", ".join(given) or "nothing"
        step = f"Give {' and '.join(keys)}, each as a --key of its own."
        step = step if keys else "It has none; see its changes with: mirrorlib feed TARGET TABLE"
        raise KeysError(msg, table=shown, found=asked, next_step=step)
    key: Key = {}
    for name, value in zip(names, given.values(), strict=True):
        column = next(one for one in columns if one.name == name)
        try:
            # In UTC, if it has no zone.
            moment = isinstance(value, datetime) and column.type == INSTANT
            one = pa.chunked_array([pa.array([value], INSTANT if moment else None)])
            cast = one.cast if isinstance(value, str) else partial(fit_values, one)
            key[column] = cast(column.type)
            if pa.types.is_floating(column.type) and key[column][0].as_py() == 0:
                # Equal, but to readers of Parquet.
                key[column] = pa.chunked_array([[0.0, -0.0]], column.type)
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as exc:
            msg = f"the value is no {column.sql_type}"
            raise KeysError(msg, table=shown, column=name, found=repr(value)) from exc
    return key


def _trace_key(
    spark: SparkSession, past: Past, table: FeedTable, key: Key, after: Bound | None
) -> Iterator[Step]:
    """Tell every change of a key that the feed has, and what is there of it now."""
    from pyspark.sql import functions as f

    from mirrorlib.feed.read import read_rows, read_window, tell_changes

    commits, names, is_key = table.commits, [column.name for column in key], f.lit(col=True)
    for column, values in key.items():
        texts = (one if isinstance(one, bytes | None) else str(one) for one in values.to_pylist())
        typed = (f.lit(text).cast(column.sql_type) for text in texts)
        is_key &= reduce(or_, (f.col(quote(column.name)).eqNullSafe(one) for one in typed))
    try:
        window = open_window(commits, -1 if after is None else after, None)
    except FeedExpiredError as exc:
        first = exc.first_readable or commits.newest + 1
        past.lost[f"changes before version {first}: {exc.reason}"] = None
        window = open_window(commits, first - 1, None)
    frame = read_window(spark, table, window).where(is_key)
    told = tell_changes(frame, window, table, names, net=False)
    found = first_changes(told, past.name.shown, names, _MOST)
    for version, changes in groupby(found.changes, key=lambda change: change.version):
        yield from _tell_version(past, table, version, changes, key)
    if found.more:
        yield Step(what="more", detail=f"go on with --after {found.changes[-1].version - 1}")
    count = read_rows(spark, table, commits.newest).where(is_key).count()
    detail = "in the table" if count else "not in the table"
    yield Step(what="now", version=commits.newest, rows={"rows": count}, detail=detail)


def _tell_version(
    past: Past, table: FeedTable, version: int, changes: Iterable[Change], key: Key
) -> Iterator[Step]:
    """Tell what a version has changed, by which rows of files, and who was given it."""
    commit = table.commits.provenance(version)
    ours = commit.ours or {}
    life = next((one for one in past.lives if one.uuid == ours.get("life")), None)
    batch = ours.get("batch") if life else None
    step = partial(Step, version=version, life=life.ordinal if life else None, batch=batch)
    for one in changes:
        was, now = one.before or one.after or {}, one.after or {}
        differ = ", ".join(name for name, value in now.items() if was[name] != value)
        detail = differ if life else f"{commit.operation} by {commit.user}"
        told = step(what=one.change, at=one.timestamp, detail=detail)
        yield replace(told, before=one.before, after=one.after)
    for plan, planned in past.files_of(life, batch) if life and batch else ():
        try:
            landed = open_planned(past.zone, past.name, plan, planned)
            found = [*_find_rows(landed, key)]
        except (MirrorError, pa.ArrowInvalid) as exc:
            reason = exc.reason if isinstance(exc, MirrorError) else str(exc)
            past.lost[f"rows of {planned.name}, batch {batch}: {reason}"] = None
            continue
        row = partial(step, what="row", file=planned.name)
        yield from (row(row=place, detail=marker) for place, marker in found)
    yield from past.deliveries(version, table.commits.metadata_at(version).id)


def _find_rows(landed: Landed, key: Key) -> Iterator[tuple[int, str]]:
    """Read the key's columns of a file, piece by piece, and give the places and markers of its rows."""
    named = (landed.schema.column(column.name) for column in key)
    own = tuple(one for one in named if one is not None and not pa.types.is_null(one.type))
    names = [one.name for one in own if one.given is None]
    names += [landed.schema.marker] if landed.schema.marker else []
    seen = 0
    for rows in iter_pieces(landed, names or None):
        schema = replace(landed.schema, columns=own, rows=len(rows))
        piece = replace(landed, schema=schema, rows=rows)
        fitted, markers = fitted_rows(piece, tuple(key)), read_marks(piece, rows)
        # As Spark compares: NULL is NULL here, and NaN is NaN.
        same = (pc.is_in(fitted.column(one.name), value_set=key[one]) for one in key)
        for row in pc.indices_nonzero(reduce(pc.and_, same)).to_pylist():
            yield seen + row, MARKER_NAMES[markers[row].as_py()]
        seen += len(rows)
