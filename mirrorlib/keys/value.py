"""Say which columns of a DataFrame are its keys: one frozen value, its JSON, and what may be one.

Nothing here starts Spark. `key_by` declares such a value, `keys_of` finds what is left of it, tables keep it
as JSON. The types are those of Foundry's Key by; the keys of a table may have some more.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING

from mirrorlib.errors import KeysError
from mirrorlib.identifiers import find_name
from mirrorlib.names import as_names, named_twice

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

# By Spark's `typeName`, which for all but decimals is the whole type.
_BOTH = {"byte", "integer", "long", "short", "string", "timestamp"}
_KEY_TYPES = frozenset(_BOTH | {"binary", "boolean", "double", "float"})
TABLE_KEY_TYPES = _KEY_TYPES | {"date", "decimal", "timestamp_ntz"}  # of tables' keys
_ORDER_TYPES = frozenset(_BOTH | {"date", "decimal"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Keys:
    """The keys of a changelog. A value without keys is false.

    Attributes:
        partition: rows equal in all of these stay together and in order; they are not unique.
        primary: these identify a resolved record: the partition key again, or nothing.
        deleted: a Boolean column that says of a row that its record is gone.
        order_by: what orders the rows of one record, the most telling column first; without it, arrival does.
        lost: columns that were keys and are no longer: what is left is coarser than what was declared.
        unique: every primary key occurs once, as in a current view; two values are equal all the same.

    """

    partition: tuple[str, ...] = ()
    primary: tuple[str, ...] = ()
    deleted: str | None = None
    order_by: tuple[str, ...] = ()
    lost: tuple[str, ...] = ()
    unique: bool = field(default=False, compare=False)

    def __bool__(self) -> bool:
        return bool(self.partition)

    @property
    def columns(self) -> tuple[str, ...]:
        """Every column that has a part in the keys."""
        deleted = () if self.deleted is None else (self.deleted,)
        return tuple(dict.fromkeys((*self.partition, *self.primary, *deleted, *self.order_by)))

    def has_all_of(self, declared: Keys) -> bool:
        """Say whether all that was declared is there, whatever columns are called by now."""
        return (
            len(self.partition) == len(declared.partition)
            and bool(self.primary) == bool(declared.primary)
            and self.lost == declared.lost
        )

    def to_json(self) -> str:
        """Write the keys as JSON, as tables keep them."""
        return json.dumps({"format": 1, **asdict(self)}, ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str) -> Keys | None:
        """Read keys that `to_json` has written; None where the text is no such, or another version's."""
        with contextlib.suppress(KeyError, TypeError, ValueError):
            value = json.loads(text)
            names = ("partition", "primary", "order_by", "lost")
            lists = {name: tuple(map(str, value[name])) for name in names}
            deleted = value["deleted"] and str(value["deleted"])
            keys = cls(**lists, deleted=deleted, unique=bool(value["unique"]))
            return keys if json.loads(keys.to_json()) == value else None
        return None


def left_under(keys: Keys, names: Mapping[str, str | None], *, primary: bool = True) -> Keys:
    """Give what is left of keys under other names: of what identifies, what has one; of how to resolve, all or none."""
    partition = tuple(name for was in keys.partition if (name := names.get(was)) is not None)
    if not partition:
        return Keys()
    lost = (*keys.lost, *(was for was in keys.partition if names.get(was) is None))
    order = tuple(name for was in keys.order_by if (name := names.get(was)) is not None)
    deleted = None if keys.deleted is None else names.get(keys.deleted)
    resolves = (deleted is None) == (keys.deleted is None) and len(order) == len(keys.order_by)
    if not (primary and keys.primary and resolves):
        return Keys(partition=partition, lost=lost)
    return Keys(
        partition=partition,
        primary=partition,
        deleted=deleted,
        order_by=order,
        lost=lost,
        unique=keys.unique and not lost,
    )


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
    keys = named_columns(schema, columns, "key columns")
    order = named_columns(schema, order_by, "order columns")
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


def named_columns(schema: StructType, names: str | Sequence[str], what: str) -> tuple[str, ...]:
    """Give columns as a schema spells them; *what* they are is for messages."""
    found = tuple(_find(schema, name, what) for name in as_names(names))
    if double := named_twice(found):
        msg = f"the {what} name a column twice"
        raise KeysError(msg, column=double, next_step="Name it once.")
    return found


def _find(schema: StructType, name: str, what: str) -> str:
    if (found := find_name(schema.names, name)) is not None:
        return found
    msg = f"the {what} name one that is not there"
    raise KeysError(msg, column=name, found=", ".join(schema.names))


def _check_types(
    schema: StructType, names: Sequence[str], allowed: frozenset[str], what: str
) -> None:
    for name in names:
        kind = schema[name].dataType
        if kind.typeName() not in allowed:
            msg = f"{what} cannot have its type"
            step = f"Cast it before: {', '.join(sorted(allowed))} are allowed."
            raise KeysError(msg, column=name, found=kind.simpleString(), next_step=step)
