"""Say which columns of a DataFrame are its keys: one frozen value, and its JSON.

Nothing here knows Spark. `key_by` declares such a value, `keys_of` finds what is left of it, tables keep it
as JSON.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field


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
