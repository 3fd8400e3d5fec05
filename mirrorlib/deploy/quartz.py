"""Say whether a text is a Quartz expression: six or seven fields, each within its bounds.

In: a text. Out: yes or no. Unlike cron it begins with seconds, and one of its two days is a `?`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_MONTHS = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")
_DAYS = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Field:
    """The least and the greatest value of a field, words for them, and what else may stand there."""

    least: int
    most: int
    words: tuple[str, ...] = ()
    special: str = "(?!)"


_DAY = rf"(?:[1-7]|{'|'.join(_DAYS)})"
_SIXTY = _Field(least=0, most=59)
_FIELDS = (
    _SIXTY,
    _SIXTY,
    _Field(least=0, most=23),
    _Field(least=1, most=31, special=r"\?|L|LW|L-\d{1,2}|(?:[12]?[1-9]|[123]0|31)W"),
    _Field(least=1, most=12, words=_MONTHS),
    _Field(least=1, most=7, words=_DAYS, special=rf"\?|L|{_DAY}L|{_DAY}#[1-5]"),
    _Field(least=1970, most=2099),
)
_DAYS_OF = (3, 5)  # the fields that say a day


def is_quartz(text: str) -> bool:
    """Say whether a text is a Quartz expression."""
    parts = text.upper().split()
    if len(parts) not in (len(_FIELDS) - 1, len(_FIELDS)):
        return False
    if [parts[place] for place in _DAYS_OF].count("?") != 1:
        return False
    pairs = zip(parts, _FIELDS, strict=False)  # the year may be left out
    return all(_fits(one, field) for part, field in pairs for one in part.split(","))


def _fits(text: str, field: _Field) -> bool:
    """Say whether one member of a field's list is `*`, a value or a range, with a step or without."""
    if re.fullmatch(field.special, text):
        return True
    base, slash, step = text.partition("/")
    if slash and not (step.isdecimal() and 1 <= int(step) <= field.most):
        return False
    return base == "*" or all(_is_value(one, field) for one in base.split("-", 1))


def _is_value(text: str, field: _Field) -> bool:
    if text in field.words:
        return True
    return text.isdecimal() and field.least <= int(text) <= field.most
