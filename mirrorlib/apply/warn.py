"""Tell what a publisher may not have meant: NULL keys, and updates that lack columns.

In: a prepared batch. Out: sentences, each once a table. Nothing here stops anything.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirrorlib.apply.marks import UPDATE, UPSERT

if TYPE_CHECKING:
    from mirrorlib.apply.prepare import Prepared

_NAMED = 3


def warnings_of(prepared: Prepared) -> tuple[str, ...]:
    """Look at a batch's key columns and at the columns of its updates."""
    told = []
    for landed in prepared.landed:
        if landed.null_keys:
            told.append(
                f"{landed.file.name} has {landed.null_keys} NULL key values; NULL is a key like any other here"
            )
        if landed.schema.undeclared:
            named = ", ".join(landed.schema.undeclared[:_NAMED])
            more = " …" if len(landed.schema.undeclared) > _NAMED else ""
            told.append(
                f"columns that SchemaDefinition does not declare are strings: {named}{more}"
            )
        missing = [c.name for c in prepared.growth.columns if landed.schema.column(c.name) is None]
        if missing and landed.counts[UPDATE] + landed.counts[UPSERT]:
            named = ", ".join(missing[:_NAMED]) + (" …" if len(missing) > _NAMED else "")
            told.append(
                f"updates lack columns of the table, which become NULL in the updated rows: {named}"
            )
    return tuple(dict.fromkeys(told))
