"""Carry out staged changes by one MERGE, as fast as the applier does.

In: `Staged`. Out: one commit. One clause is of a copy's own: where a row of a
key cannot be there and is, the whole commit fails, since keys do not tell the source's rows apart.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirrorlib.commit.merge import commit_staged
from mirrorlib.commit.staged import FRESH, OP
from mirrorlib.delivery.sink import KEY_OPTIONS
from mirrorlib.delta.columns import sized_column
from mirrorlib.errors import SchemaError
from mirrorlib.identifiers import quote
from mirrorlib.journal.streams import snapshot_command

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mirrorlib.commit.staged import Staged
    from mirrorlib.delivery.sinks.delta.work import Work

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
    columns = tuple(
        sized_column(field.name, field.dataType)
        for field in staged.frame.schema.fields
        if field.name not in {OP, FRESH}
    )
    refused = _fails(staged, keys[0]) if check else ""
    mark, size = work.mark(), work.found.bytes
    try:
        commit_staged(
            work.spark,
            work.ref,
            staged,
            columns,
            keys,
            mark,
            table_bytes=size,
            dropped=work.dropped,
            refused=refused,
        )
    except Exception as exc:
        if _TWICE in str(exc):
            raise twice(work, keys) from exc
        raise


def _fails(staged: Staged, key: str) -> str:
    """Raise where a fresh row meets one; it asks for the target's row, else Spark would look at the source's alone."""
    first = f"t.{quote(key)}"
    there = f"{first} <=> s.{quote(key)}" if staged.null_keys else f"{first} IS NOT NULL"
    return f"CASE WHEN s.{FRESH} AND {there} THEN raise_error('{_TWICE}') ELSE false END"


def twice(work: Work, keys: Sequence[str]) -> SchemaError:
    """Say that a key does not tell the source's rows apart."""
    msg = "a key occurs more than once in the source, so a copy by key cannot hold its rows"
    step = (
        f"Name the columns that tell its rows apart, or none ({KEY_OPTIONS}); the window was planned with these, "
        f"so begin anew: {snapshot_command(work.stream.consumer)}"
    )
    return SchemaError(msg, table=work.table, column=", ".join(keys), next_step=step)
