"""Refuse windows after which a kept copy would have values of one column under the name of another.

In: the names that a copy has, and those of a window. Out: nothing, or a refusal. A feed tells nothing of rows that
stay when a column gets another name, so only a snapshot can say what they hold under it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirrorlib.errors import SchemaError, first_few

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


def check_renamed(gone: Sequence[str], new: Iterable[str], table: str, step: str) -> None:
    """See that columns have only gone, or only come.

    Args:
        gone: those that were there with the last window, and are no more.
        new: those that were not.
        table: the source.
        step: how a snapshot is asked for.

    Raises:
        SchemaError: some have gone as others came, so one may have been renamed.

    """
    came = list(new)
    if gone and came:
        msg = "columns went and came at once, so one may have been renamed, and its values are not told"
        found = f"gone: {first_few(gone)}; new: {first_few(came)}"
        raise SchemaError(msg, table=table, found=found, next_step=step)
