"""Write the keys of a table as SQL for platforms that have informational constraints, as Unity Catalog does.

In: a table's name and keys. Out: statements, which nobody runs here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirrorlib.delta.address import quote_dotted, split_dotted
from mirrorlib.identifiers import quote, sql_text

if TYPE_CHECKING:
    from mirrorlib.keys.value import Keys


def key_statements(table: str, keys: Keys) -> tuple[str, ...]:
    """Write statements that tell a catalog the keys of a table: a primary key, and a comment.

    A primary key is told only where each occurs once, as in a mirror under `insert_policy="upsert"`, a copy, or a
    current view; its columns are declared to be never NULL first, which a table that has a NULL there refuses.

    Args:
        table: its name in the catalog.
        keys: as `keys_of(read_table(spark, table))` tells them.

    """
    if not keys:
        return ()
    name = quote_dotted(table)
    statements = []
    if keys.primary and keys.unique:
        columns = [quote(column) for column in keys.primary]
        statements += [
            f"ALTER TABLE {name} ALTER COLUMN {column} SET NOT NULL" for column in columns
        ]
        constraint = quote(f"{split_dotted(table)[-1]}_key")
        told = ", ".join(columns)
        statements.append(f"ALTER TABLE {name} ADD CONSTRAINT {constraint} PRIMARY KEY ({told})")
    return (*statements, f"COMMENT ON TABLE {name} IS {sql_text(_comment(keys))}")


def _comment(keys: Keys) -> str:
    parts = [f"Partition key: {', '.join(keys.partition)}"]
    if keys.primary:
        parts.append(f"primary key: {', '.join(keys.primary)}")
    if keys.deleted is not None:
        parts.append(f"deleted where {keys.deleted}")
    if keys.order_by:
        parts.append(f"newest by {', '.join(keys.order_by)}")
    return "; ".join(parts)
