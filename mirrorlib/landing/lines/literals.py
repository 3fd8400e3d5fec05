"""JSON values as they are written: numbers keep their digits, and objects and arrays become text again.

In: what a decoder gives that makes a `Number` of each with a point or an exponent. Out: JSON
text without blanks in which each such number stands as it was written, and the reason why a value has
no place in a table.
"""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterator

BEYOND = "the number is beyond the range of a double"
_HALF = "the text has half a character, a lone surrogate"

_ENCODER = json.JSONEncoder(ensure_ascii=False)
_Nest: TypeAlias = "dict[str, Any] | list[Any]"


class Number(float):
    """A number with a point or an exponent: the nearest double, and how it was written."""

    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        """Keep the digits that the double may not hold."""
        self.text = text

    @property
    def is_held(self) -> bool:
        """Say whether a double is near it: neither without end, nor 0 in place of something else."""
        if self:
            return math.isfinite(self)
        digits = self.text.lower().partition("e")[0]
        return not digits.strip("-0.")


def json_text(value: object) -> str:
    """Write a value as JSON, however deep it is nested.

    Raises:
        ValueError: a number in it is beyond the range of a double.

    """
    if not isinstance(value, (dict, list)):
        return _scalar(value)
    written: list[str] = []
    within = [_pieces(value)]
    while within:
        piece = next(within[-1], None)
        if piece is None:
            within.pop()
        elif isinstance(piece, str):
            written.append(piece)
        else:
            within.append(_pieces(piece))
    return "".join(written)


def reason_against(value: object) -> str | None:
    """Say why a value of an object has no place in a table; None when it has."""
    try:
        if type(value) is Number:
            return None if value.is_held else BEYOND
        if type(value) is str:
            value.encode()
        elif type(value) is dict or type(value) is list:
            json_text(value).encode()
    except UnicodeEncodeError:
        return _HALF
    except ValueError:
        return BEYOND
    return None


def _pieces(value: _Nest) -> Iterator[str | _Nest]:
    """Give the text of an object or array; what is nested in it is given as it is."""
    comma = ""
    if isinstance(value, list):
        yield "["
        for item in value:
            yield comma
            yield item if type(item) is dict or type(item) is list else _scalar(item)
            comma = ","
        yield "]"
        return
    yield "{"
    for name, item in value.items():
        yield f"{comma}{_ENCODER.encode(name)}:"
        yield item if type(item) is dict or type(item) is list else _scalar(item)
        comma = ","
    yield "}"


def _scalar(value: object) -> str:
    if type(value) is not Number:
        return str(value) if type(value) is int else _ENCODER.encode(value)
    if not value.is_held:
        raise ValueError(BEYOND)
    return value.text
