"""Say where a change file went, or what has changed a key and which rows of which files did.

In: a target, a table, and a file or a key. Out: `WhereReport`. A table's feed says what has changed a key, each commit
whose batch it was; of that batch's files the key's columns are read as `apply` reads and casts them, in this process.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial, reduce
from itertools import groupby
from math import isnan
from operator import and_
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from mirrorlib.delta.address import FeedTable, find_feed_table
from mirrorlib.delta.columns import Column, Columns, find_key_column, to_columns
from mirrorlib.delta.sessions import lend_session
from mirrorlib.errors import (
    FeedExpiredError,
    JournalError,
    KeysError,
    LandingZoneError,
    MirrorError,
)
from mirrorlib.feed.changes import Change, first_changes
from mirrorlib.feed.declared_keys import table_address
from mirrorlib.feed.read import read_rows, read_window, tell_changes
from mirrorlib.feed.window import Bound, open_window
from mirrorlib.identifiers import quote
from mirrorlib.ingest.rows.decode import iter_pieces
from mirrorlib.ingest.rows.marks import read_marks
from mirrorlib.ingest.rows.rescue import fitted_rows
from mirrorlib.journal.entries import Plan, PlannedFile
from mirrorlib.landing.columns import MARKER_NAMES
from mirrorlib.landing.types import INSTANT
from mirrorlib.landing.values import fit_values
from mirrorlib.names import find_key, matches
from mirrorlib.operate.ledger import list_applied
from mirrorlib.operate.trace.files import Past, trace_file
from mirrorlib.operate.trace.steps import Step, WhereReport
from mirrorlib.store import PathOrUrl, open_store
from mirrorlib.store.target import Target

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Key: TypeAlias = dict[Column, pa.Scalar]
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
        key: a value for each key column; text is read as the column's type, a moment without a zone is UTC.
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
        msg = "a file is asked for, or a key, which takes a session"
        raise LandingZoneError(msg, table=table, next_step="Give file=, or key= and spark=.")
    place = Target.of(target, catalog=catalog, state=state)
    store = open_store(place.state)
    known = list_applied(store)
    names = [name for name in known if str(name) == table] or [
        name for name in known if matches(name, [table])
    ]
    if len(names) != 1:
        msg = "several tables are called so" if names else "the target has no such table"
        found = ", ".join(name.shown for name in names or known)
        raise JournalError(msg, table=table, found=found, next_step="Name one of them.")
    past = Past(store, names[0])
    if spark is None or key is None:
        steps = trace_file(past, str(file))
    else:
        with lend_session(spark) as session:
            address = table_address(place, past.name)
            delta = find_feed_table(session, address, shown=past.name.shown)
            key, steps = _trace_key(session, past, delta, key, after, show_values=show_values)
    return WhereReport(
        target=place.shown,
        table=past.name.shown,
        file=None if file is None else str(file),
        key=key,
        steps=tuple(steps),
        lost=tuple(past.lost),
    )


def _trace_key(
    spark: SparkSession,
    past: Past,
    table: FeedTable,
    given: Mapping[str, Any],
    after: Bound | None,
    *,
    show_values: bool,
) -> tuple[dict[str, Any], list[Step]]:
    """Tell every change of a key, and what is there of it now."""
    from pyspark.sql import functions as f

    commits, shown = table.commits, past.name.shown
    rows = read_rows(spark, table, commits.newest)
    keys = past.newest.plan.policies.keys if past.newest else ()
    key = _read_key(shown, to_columns(rows.dtypes), keys, given)
    names = [column.name for column in key]
    values = {column.name: value.as_py() for column, value in key.items()}
    texts = [v if isinstance(v, bytes | None) else str(v) for v in values.values()]
    same = (
        f.col(quote(column.name)).eqNullSafe(f.lit(text).cast(column.sql_type))
        for column, text in zip(key, texts, strict=True)
    )
    is_key = reduce(and_, same)
    try:
        window = open_window(commits, -1 if after is None else after, None)
    except FeedExpiredError as exc:
        first = exc.first_readable or commits.newest + 1
        past.lost[f"changes before version {first}: {exc.reason}"] = None
        window = open_window(commits, first - 1, None)
    frame = read_window(spark, table, window).where(is_key)
    found = first_changes(tell_changes(frame, window, table, names, net=False), shown, names, _MOST)
    if found.more:
        last = found.changes[-1].version
        past.lost[f"here, but in the feed: what came later; go on with --after {last - 1}"] = None
    steps = list[Step]()
    for version, changes in groupby(found.changes, key=lambda one: one.version):
        steps += _tell_version(past, table, version, [*changes], key, show_values=show_values)
    count = rows.where(is_key).count()
    steps.append(
        Step(
            what="now",
            version=commits.newest,
            rows={"rows": count},
            detail="in the table" if count else "not in the table",
        )
    )
    return values, steps


def _read_key(table: str, columns: Columns, keys: Sequence[str], given: Mapping[str, Any]) -> Key:
    """Give the values of a key the types of the table's columns; raises `KeysError` where that cannot be."""
    if not keys:
        msg, step = "the table has no keys", "See its changes with: mirrorlib feed TARGET TABLE"
        raise KeysError(msg, table=table, next_step=step)
    values = {find_key(keys, name) or name: value for name, value in given.items()}
    if wrong := sorted({*keys} ^ {*values}):
        msg = "the key has this column" if wrong[0] in keys else "the key has no such column"
        step = f"Give {' and '.join(keys)}, each with a --key of its own."
        raise KeysError(msg, table=table, column=wrong[0], next_step=step)
    key: Key = {}
    for name, value in values.items():
        column = find_key_column(columns, name)
        if column is None:
            msg = "the table has lost a column of its key"
            raise KeysError(msg, table=table, column=name)
        try:
            key[column] = _typed(value, column.type)
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as exc:
            msg, found = f"the value is no {column.sql_type}", repr(value)
            raise KeysError(msg, table=table, column=column.name, found=found) from exc
    return key


def _typed(value: Any, kind: pa.DataType) -> pa.Scalar:  # noqa: ANN401  # of whatever type its caller gives
    """Read a text as `feed --json` writes the type; cast any other value without loss."""
    if isinstance(value, str) and kind != INSTANT and not pa.types.is_binary(kind):
        return pa.array([value]).cast(kind)[0]
    if isinstance(value, str):
        value = datetime.fromisoformat(value) if kind == INSTANT else bytes.fromhex(value)
    if isinstance(value, datetime) and kind == INSTANT:
        value = value.replace(tzinfo=value.tzinfo or UTC).astimezone(UTC)
    return fit_values(pa.chunked_array([[value]]), kind)[0]


def _tell_version(
    past: Past,
    table: FeedTable,
    version: int,
    changes: Sequence[Change],
    key: Key,
    *,
    show_values: bool,
) -> Iterator[Step]:
    """Tell what a version has changed, by which rows of files, and who was given it."""
    commit = table.commits.provenance(version)
    ours = commit.ours or {}
    life = next((one for one in past.lives if one.uuid == ours.get("life")), None)
    batch = ours.get("batch") if life else None
    step = partial(Step, version=version, life=life.ordinal if life else None, batch=batch)
    for one in changes:
        before, after = one.before or {}, one.after or {}
        names = [name for name, value in after.items() if before and before.get(name) != value]
        detail = ", ".join(names) if batch else f"{commit.operation} by {commit.user}"
        told = step(what=one.change, at=one.timestamp, detail=detail)
        yield replace(told, before=one.before, after=one.after) if show_values else told
    if life and batch:
        plan = past.journal.entry(life, batch).plan
        for planned in plan.files[-1:] if plan.policies.snapshots else plan.files:
            row = partial(step, what="row", file=planned.name)
            try:
                found = [*_search(past, plan, planned, key)]
                yield from (row(row=place, detail=marker) for place, marker in found)
            except (MirrorError, pa.ArrowInvalid) as exc:
                reason = exc.reason if isinstance(exc, MirrorError) else str(exc)
                past.lost[f"rows of {planned.name}, batch {batch}: {reason}"] = None
    yield from past.deliveries(version, table.commits.metadata_at(version).id)


def _search(past: Past, plan: Plan, planned: PlannedFile, key: Key) -> Iterator[tuple[int, str]]:
    """Read the key's columns of a file, piece by piece, and give the places and markers of its rows."""
    source, landed = past.open(plan, planned)
    named = (landed.schema.column(column.name) for column in key)
    own = tuple(one for one in named if one is not None and not pa.types.is_null(one.type))
    names = [one.name for one in own if one.given is None]
    names += [landed.schema.marker] if landed.schema.marker else []
    seen = 0
    for rows in iter_pieces(source, landed.file, landed.schema, names or None):
        schema = replace(landed.schema, columns=own, rows=len(rows))
        fitted = fitted_rows(source, replace(landed, schema=schema, rows=rows), tuple(key))
        markers = read_marks(source, landed.file, schema, rows, None)
        same = reduce(pc.and_, (_equal(fitted.column(one.name), key[one]) for one in key))
        for row in pc.indices_nonzero(same).to_pylist():
            yield seen + row, MARKER_NAMES[markers[row].as_py()]
        seen += len(rows)


def _equal(values: pa.ChunkedArray, wanted: pa.Scalar) -> pa.ChunkedArray:
    """Compare as Spark does: NULL and NaN are equal to themselves."""
    if not wanted.is_valid:
        return pc.is_null(values)
    is_nan = pa.types.is_floating(wanted.type) and isnan(wanted.as_py())
    same = pc.is_nan(values) if is_nan else pc.equal(values, wanted)
    return pc.fill_null(same, fill_value=False)
