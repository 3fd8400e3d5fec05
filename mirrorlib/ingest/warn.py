"""Tell what a publisher may not have meant: NULLs, updates that lack columns, fewer digits than before.

In: a prepared batch. Out: sentences, each once a table. Nothing here stops anything.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from mirrorlib.delta.columns import Columns, find_column, needs_mapping
from mirrorlib.errors import first_few
from mirrorlib.identifiers import fold_name
from mirrorlib.ingest.batch.open_batch import Prepared
from mirrorlib.ingest.rows.read import Landed
from mirrorlib.ingest.rows.rescue import RESCUED_COLUMN
from mirrorlib.journal.entries import Policies
from mirrorlib.landing.columns import UPDATE, UPSERT


def warnings_of(prepared: Prepared, policies: Policies) -> tuple[str, ...]:
    """Look at the key columns that a batch has, as *policies* name them, and at the columns of its updates."""
    growth, found = prepared.growth, []
    # Blanks around them are told of the metadata.
    for key in policies.keys if prepared.landed else ():
        column = prepared.landed[0].schema.key(key)
        if column is not None and column.name.strip() != key.strip():
            repaired = f"the key column {key.strip()!r} is {column.name!r} in the files"
            found.append(f"_metadata.json was repaired: {repaired}")
    for landed in prepared.landed:
        found += _warnings_of_file(landed, growth.columns, policies)
    # A new table's columns too where it is for plain readers.
    new = growth.added == growth.columns and policies.readers == "plain"
    mapped = growth.mapped or tuple(c for c in growth.columns if new and needs_mapping(c.name))
    if mapped:
        names = first_few(column.name for column in mapped)
        found.append(
            f"column mapping is turned on for {names}; readers without it cannot read the table then"
        )
    narrowed = dict.fromkeys(_narrowed(prepared))
    if narrowed:
        found.append(
            "columns of doubles came in single precision, in which 0.1 is another number; "
            f"the values are applied as their file has them: {first_few(narrowed)}"
        )
    return tuple(dict.fromkeys(found))


def _warnings_of_file(landed: Landed, columns: Columns, policies: Policies) -> Iterator[str]:
    name = landed.file.name
    if landed.null_keys:
        yield f"{name} has {landed.null_keys} NULL key values; NULL is a key like any other here"
    if landed.missing:
        yield (
            f"{name} has {sum(landed.missing.values())} NULL values where SchemaDefinition "
            f"says IsNullable false, which are applied as NULL: {first_few(landed.missing)}"
        )
    if landed.schema.undeclared:
        undeclared = first_few(landed.schema.undeclared)
        yield f"columns that SchemaDefinition does not declare are strings: {undeclared}"
    typed = [c.name for c in landed.schema.columns if not pa.types.is_null(c.type)]
    extra = [name for name in typed if find_column(columns, name) is None]
    if extra:
        kept = find_column(columns, RESCUED_COLUMN.name) is not None
        what = "are rescued" if kept else "are left out"
        yield f"columns that the table lacks {what}: {first_few(extra)}"
    missing = [c.name for c in columns if landed.schema.column(c.name) is None]
    if missing and landed.counts[UPDATE] + landed.counts[UPSERT] and policies.partial is None:
        lacking = "updates lack columns of the table, which become NULL in the updated rows"
        yield f"{lacking}: {first_few(missing)}"


def _narrowed(prepared: Prepared) -> Iterator[str]:
    """Name the columns of doubles that a later file has as singles: 0.1 is not the same number in both."""
    growth = prepared.growth
    changed = {column.name for column in (*growth.added, *growth.widened, *growth.rewritten)}
    double = {
        fold_name(column.name)
        for column in growth.columns
        if column.type == pa.float64() and column.name not in changed
    }
    for landed in prepared.landed:
        for column in landed.schema.columns:
            if column.type == pa.float32() and fold_name(column.name) in double:
                yield column.name
            elif column.type == pa.float64():
                double.add(fold_name(column.name))
