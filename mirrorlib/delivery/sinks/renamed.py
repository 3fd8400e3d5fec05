"""Refuse windows after which a kept copy would have values of one column under the name of another.

In: the names that a copy has, and those of a window. Out: nothing, or a refusal. A feed tells nothing of rows that
stay when a column gets another name, so only a snapshot can say what they hold under it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from mirrorlib.delivery.sink import Delivery
from mirrorlib.errors import SchemaError, first_few
from mirrorlib.identifiers import fold_name


def check_renamed(was: Iterable[str], now: Iterable[str], table: str, step: str) -> None:
    """Refuse a window with which columns have gone, and new ones come: one may have been renamed."""
    before, after = ({fold_name(name): name for name in names} for names in (was, now))
    gone = [name for folded, name in before.items() if folded not in after]
    came = [name for folded, name in after.items() if folded not in before]
    if gone and came:
        msg = "columns went and came at once, so one may have been renamed, and its values are not told"
        found = f"gone: {first_few(gone)}; new: {first_few(came)}"
        raise SchemaError(msg, table=table, found=found, next_step=step)


def check_physical(
    delivery: Delivery, was: Mapping[str, str], now: Mapping[str, str], step: str
) -> None:
    """See that every name stands for the physical column that it stood for, as far as *was* knows it.

    Or for one that it has become as it was written again in another type, with all its values.
    """
    before = {fold_name(name): physical for name, physical in was.items()}
    others = [
        name
        for name, physical in now.items()
        if (old := before.get(fold_name(name), physical)) != physical
        and delivery.renewed.get(old) != physical
    ]
    if others and delivery.mapped:
        msg = "the name stands for another column than before, and its values are not told"
        table, column = delivery.stream.table, first_few(others)
        found = f"{now[others[0]]}, was {before[fold_name(others[0])]}"
        raise SchemaError(msg, table=table, column=column, found=found, next_step=step)
