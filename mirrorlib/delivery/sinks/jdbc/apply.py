"""Apply a staged window to its table: statements that both databases understand, in one transaction.

In: a session that has begun, a shape, staged lines. Out: the table as of the window's end, once the session
commits. Nothing is visible before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirrorlib.delivery.sinks.jdbc.database import (
    STAGE,
    Field,
    duplicate_key,
    missing_rows,
    null_key,
    quote,
    quoted,
)
from mirrorlib.delivery.sinks.jdbc.fold import NEW, PASSED, stage_fields

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mirrorlib.delivery.sinks.jdbc.database import Session
    from mirrorlib.delivery.sinks.jdbc.layout import Column, Shape
    from mirrorlib.delivery.sinks.jdbc.stage import Staged


def replace_rows(session: Session, shape: Shape, staged: Staged, table: str) -> None:
    """Let the staged rows take the place of all others. DELETE, as TRUNCATE shows older readers an empty table."""
    if not shape.make:
        session.run(f"DELETE FROM {shape.place.sql}")  # noqa: S608  # quoted
    _grow(session, shape)
    staged.check(session.fill(shape.place.sql, shape.fields, staged), table)


def change_rows(session: Session, shape: Shape, staged: Staged, table: str) -> None:
    """Apply staged changes.

    Raises:
        JournalError: the table lacks rows that are gone at the source.
        SchemaError: a key is NULL, or several rows have the same.
        StoreError: the staged files are not whole.

    """
    fields = stage_fields(shape)
    session.run(
        f"CREATE TEMPORARY TABLE {STAGE} ({_definitions(session, fields)}){session.stage_ends}"
    )
    staged.check(session.fill(STAGE, fields, staged), table)
    _grow(session, shape)
    if not shape.keys:
        taken = session.take_out(shape.place, shape.fields)
        if shape.exact:
            _check_taken(session, taken, table)
        _put(session, shape, "")
        return
    _check_keys(session, shape, table)
    keys = _staged_names(shape, keys=True)
    session.run(
        f"DELETE FROM {shape.place.sql} WHERE ({quoted(shape.keys)})"  # noqa: S608  # quoted
        f" IN (SELECT {keys} FROM {STAGE} WHERE op < 0)"
    )
    _put(session, shape, _on_conflict(shape))


def _put(session: Session, shape: Shape, on_conflict: str) -> None:
    names = quoted([column.name for column in shape.columns])
    session.run(
        f"INSERT INTO {shape.place.sql} ({names})"  # noqa: S608  # quoted
        f" SELECT {_staged_names(shape)} FROM {STAGE} WHERE op > 0 {on_conflict}"
    )


def _on_conflict(shape: Shape) -> str:
    others = [quote(column.name) for column in shape.columns if not column.key]
    values = ", ".join(f"{name} = excluded.{name}" for name in others)
    what = f"UPDATE SET {values}" if others else "NOTHING"
    return f"ON CONFLICT ({quoted(shape.keys)}) DO {what}"


def _staged_names(shape: Shape, *, keys: bool = False) -> str:
    chosen = (n for n, column in enumerate(shape.columns) if column.key or not keys)
    return ", ".join(f"c{n}" for n in chosen)


def _check_keys(session: Session, shape: Shape, table: str) -> None:
    """See that no key is NULL or occurs twice, in the window or, as far as that can be told, in the table."""
    keys = {column.name: f"c{n}" for n, column in enumerate(shape.columns) if column.key}
    nulls = ", ".join(f"count(*) - count({name})" for name in keys.values())
    found = session.run(f"SELECT max(copies), {nulls} FROM {STAGE}")[0]  # noqa: S608  # numbered
    for name, count in zip(keys, found[1:], strict=True):
        if count:
            raise null_key(table, name)
    if (found[0] or 0) > 1 or (shape.strict and _has_fresh(session, shape, keys)):
        raise duplicate_key(table, list(keys))


def _check_taken(session: Session, taken: int, table: str) -> None:
    """See that every row that is gone at the source was found in the table."""
    found = session.run(f"SELECT sum(copies) FROM {STAGE} WHERE op < 0")  # noqa: S608  # constants
    gone = int(found[0][0] or 0)
    if taken != gone:
        raise missing_rows(table, taken, gone)


def _has_fresh(session: Session, shape: Shape, keys: dict[str, str]) -> bool:
    """Say whether the table has a key already that the window has brought."""
    same = " AND ".join(f"held.{quote(name)} = stage.{column}" for name, column in keys.items())
    found = session.run(
        f"SELECT 1 FROM {STAGE} AS stage JOIN {shape.place.sql} AS held ON {same}"  # noqa: S608  # quoted
        f" WHERE stage.op IN ({NEW}, {PASSED}) LIMIT 1"
    )
    return bool(found)


def _grow(session: Session, shape: Shape) -> None:
    """Make the table, or what it lacks."""
    place = shape.place.sql
    if shape.make:
        primary = f", PRIMARY KEY ({quoted(shape.keys)})" if shape.keys else ""
        definitions = _definitions(session, shape.fields, not_null=shape.columns)
        session.run(f"CREATE TABLE {place} ({definitions}{primary})")
        return
    for column in shape.add:
        session.run(f"ALTER TABLE {place} ADD COLUMN {_definitions(session, [column.field])}")
    if shape.widen:
        session.widen(shape.place, [column.field for column in shape.widen])
    for column in shape.clear:
        session.run(f"UPDATE {place} SET {quote(column.name)} = NULL")  # noqa: S608  # quoted


def _definitions(
    session: Session, fields: Sequence[Field], *, not_null: Sequence[Column] = ()
) -> str:
    keys = {column.name for column in not_null if column.key}
    return ", ".join(
        f"{quote(field.name)} {session.types.of(field.kind)}"
        + (" NOT NULL" if field.name in keys else "")
        for field in fields
    )
