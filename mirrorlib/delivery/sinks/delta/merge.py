"""Carry out staged changes by one MERGE, as fast as the applier does.

In: `Staged`. Out: one commit. The statement has one clause more than the applier's: where a row of a
key cannot be there and is, the whole commit fails, since keys do not tell the source's rows apart.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirrorlib.commit.mark import append_rows
from mirrorlib.commit.merge import changes_of, mark_conf, merge_conf
from mirrorlib.commit.staged import ADD, DROP, OP, PUT
from mirrorlib.delivery.sink import KEY_OPTIONS
from mirrorlib.delta.columns import sized_column
from mirrorlib.delta.sessions import configured
from mirrorlib.errors import SchemaError
from mirrorlib.identifiers import quote
from mirrorlib.journal.streams import snapshot_command

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mirrorlib.commit.staged import Staged
    from mirrorlib.delivery.sinks.delta.work import Work

FRESH = "_mirror_fresh"  # no row of the key was there before the window, nor in what the target has of it
_VIEW = "_mirror_changes"
_TWICE = "MIRRORLIB_KEY_TWICE"


def merge_rows(work: Work, staged: Staged, keys: Sequence[str], *, check: bool = False) -> None:
    """Delete, update and insert staged rows in one commit.

    Args:
        work: the window.
        staged: rows with `OP`, in which `ADD` rows match nothing.
        keys: the columns by which the others match.
        check: rows have `FRESH`, and fail the commit where they meet one.

    Raises:
        SchemaError: they did.

    """
    if staged.ops == {ADD}:
        append_rows(work.ref, staged.frame.drop(OP), work.mark())
        return
    columns = tuple(
        sized_column(field.name, field.dataType)
        for field in staged.frame.schema.fields
        if field.name not in {OP, FRESH}
    )
    faster = merge_conf(staged, columns, keys, work.found.bytes)
    changes_of(staged, keys).createOrReplaceTempView(_VIEW)
    try:
        with configured(work.spark, mark_conf(work.mark()), faster):
            work.spark.sql(
                _sql(work, staged, [column.name for column in columns], keys, check=check)
            )
    except Exception as exc:
        if _TWICE in str(exc):
            raise twice(work, keys) from exc
        raise
    finally:
        work.spark.catalog.dropTempView(_VIEW)


def twice(work: Work, keys: Sequence[str]) -> SchemaError:
    """Say that a key does not tell the source's rows apart."""
    msg = "a key occurs more than once in the source, so a copy by key cannot hold its rows"
    step = (
        f"Name the columns that tell its rows apart, or none ({KEY_OPTIONS}); the window was planned with these, "
        f"so begin anew: {snapshot_command(work.stream.consumer)}"
    )
    return SchemaError(msg, table=work.table, column=", ".join(keys), next_step=step)


def _sql(
    work: Work, staged: Staged, names: Sequence[str], keys: Sequence[str], *, check: bool
) -> str:
    ops = staged.ops
    equal = "<=>" if staged.null_keys else "="
    same = " AND ".join(f"t.{quote(key)} {equal} s.{quote(key)}" for key in keys)
    clauses = []
    if check:  # it asks for the target's row, else Spark would look at the source's alone
        first = f"t.{quote(keys[0])}"
        there = f"{first} <=> s.{quote(keys[0])}" if staged.null_keys else f"{first} IS NOT NULL"
        fails = f"CASE WHEN s.{FRESH} AND {there} THEN raise_error('{_TWICE}') ELSE false END"
        clauses.append(f"WHEN MATCHED AND {fails} THEN DELETE")
    if DROP in ops:
        clauses.append(f"WHEN MATCHED AND s.{OP} = {DROP} THEN DELETE")
    if PUT in ops:
        sets = [f"t.{quote(name)} = s.{quote(name)}" for name in names]
        sets += [f"t.{quote(name)} = NULL" for name in work.dropped]
        clauses.append(f"WHEN MATCHED THEN UPDATE SET {', '.join(sets)}")
    if ops & {PUT, ADD}:
        told = ", ".join(map(quote, names))
        values = ", ".join(f"s.{quote(name)}" for name in names)
        clauses.append(
            f"WHEN NOT MATCHED AND s.{OP} IN ({PUT}, {ADD}) THEN INSERT ({told}) VALUES ({values})"  # noqa: S608  # every name in it is quoted
        )
    matches = f"s.{OP} <> {ADD} AND {same}" if ADD in ops else same
    return f"MERGE INTO {work.ref.sql} AS t USING {_VIEW} AS s ON {matches} {' '.join(clauses)}"
