"""Say what may be a key: which columns there are, which types they may have, what goes together.

In: a schema and what a caller names. Out: `Keys` by the schema's own spelling, or `KeysError`. The types are
those of Foundry's Key by; the keys of a table may have some more.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from mirrorlib.errors import KeysError
from mirrorlib.identifiers import find_name
from mirrorlib.keys.value import Keys
from mirrorlib.names import as_names, named_twice

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

# By Spark's `typeName`, which for all but decimals is the whole type.
_BOTH = {"byte", "integer", "long", "short", "string", "timestamp"}
_KEY_TYPES = frozenset(_BOTH | {"binary", "boolean", "double", "float"})
TABLE_KEY_TYPES = _KEY_TYPES | {"date", "decimal", "timestamp_ntz"}  # of tables' keys
_ORDER_TYPES = frozenset(_BOTH | {"date", "decimal"})


def check_keys(
    schema: StructType,
    columns: str | Sequence[str],
    *,
    cdc: bool,
    deleted: str | None,
    order_by: str | Sequence[str],
    types: frozenset[str] = _KEY_TYPES,
) -> Keys:
    """Return the keys that are meant; *types* are those that a key column may have."""
    if double := named_twice(schema.names):
        msg = "two columns have the same name, so a key could mean either"
        raise KeysError(msg, column=double, next_step="Rename or drop one of them.")
    keys = _named(schema, columns, "key columns")
    order = _named(schema, order_by, "order columns")
    gone = None if deleted is None else _find(schema, deleted, "deletion column")
    if not keys:
        msg = "no key columns are named"
        raise KeysError(msg, next_step="Name at least one.")
    if not cdc and (gone is not None or order):
        msg = "a deletion column and order columns belong to a primary key, and none is declared"
        raise KeysError(msg, column=gone or order[0], next_step="Say cdc=True, or leave them out.")
    for name, what in ((gone, "deletion"), *((name, "order") for name in order)):
        if name in keys:
            msg = f"a column is a key and the {what} column, and is equal in all rows of a key"
            raise KeysError(msg, column=name, next_step="Name another one, or none.")
    _check_types(schema, keys, types, "a key column")
    _check_types(schema, order, _ORDER_TYPES, "an order column")
    if gone is not None:
        _check_types(schema, [gone], frozenset({"boolean"}), "the deletion column")
    return Keys(partition=keys, primary=keys if cdc else (), deleted=gone, order_by=order)


def check_again(schema: StructType, keys: Keys) -> Keys:
    """See that columns may have their part in keys that are known, by the same rules as wherever keys are declared."""
    if not keys:
        return keys
    found = check_keys(
        schema,
        keys.partition,
        cdc=bool(keys.primary),
        deleted=keys.deleted,
        order_by=keys.order_by,
        types=TABLE_KEY_TYPES,
    )
    return replace(found, lost=keys.lost, unique=keys.unique)


def _named(schema: StructType, names: str | Sequence[str], what: str) -> tuple[str, ...]:
    found = tuple(_find(schema, name, what) for name in as_names(names))
    if double := named_twice(found):
        msg = f"the {what} name a column twice"
        raise KeysError(msg, column=double, next_step="Name it once.")
    return found


def _find(schema: StructType, name: str, what: str) -> str:
    if (found := find_name(schema.names, name)) is not None:
        return found
    msg = f"the {what} name one that is not there"
    raise KeysError(
        msg, column=name, found=", ".join(schema.names), next_step="Name one that it has."
    )


def _check_types(
    schema: StructType, names: Sequence[str], allowed: frozenset[str], what: str
) -> None:
    for name in names:
        kind = schema[name].dataType
        if kind.typeName() not in allowed:
            msg = f"{what} cannot have its type"
            step = f"Cast it before: {', '.join(sorted(allowed))} are allowed."
            raise KeysError(msg, column=name, found=kind.simpleString(), next_step=step)
