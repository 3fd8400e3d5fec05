"""Say which rule a file of delimited text breaks that its reader cannot go on with."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirrorlib.landing.check.columns import DAMAGED, UNDECODABLE, UNPARSABLE
from mirrorlib.landing.delimited import rows, text

if TYPE_CHECKING:
    from mirrorlib.errors import ChangeFileError

_RULES = {rows.OPEN_QUOTE: "text-open-quote", rows.NO_HEADER: "text-no-header"}


def rule_of(exc: ChangeFileError) -> tuple[str, str]:
    """Give the rule's name, and what was found."""
    if exc.reason.startswith(text.UNDECODABLE):
        codec = exc.reason.removeprefix(text.UNDECODABLE)
        return UNDECODABLE, f"line {exc.line} is not {codec}"
    if exc.reason.endswith(text.DAMAGED):
        return DAMAGED, "it cannot be decompressed"
    what = exc.reason if exc.found is None else f"{exc.reason}: {exc.found}"
    return _RULES.get(exc.reason, UNPARSABLE), what
