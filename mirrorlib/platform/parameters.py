"""Read parameters strictly, each as the kind that is asked for, whoever hands it over: as text, or as a value.

In: a name, a value and its kind. Out: the value. Promise: what cannot be read is named, before anything is touched.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeAlias, get_args, get_origin, get_type_hints

from mirrorlib.errors import ParameterError, first_few
from mirrorlib.ingest.options import Options

Kind: TypeAlias = Any  # as in an annotation: `str`, `int | None`, `Literal["a", "b"]`
# What each is, as a text, and as a value.
_SINGLE: Mapping[Kind, tuple[str, str, tuple[type, ...]]] = {
    str: ("a text that is not empty", r"(?s).+", ()),
    int: ("a whole number", r"-?[0-9]{1,99}", (int,)),  # Python reads 4,300 digits at most
    float: ("a number", r"-?[0-9]+(\.[0-9]+)?", (int, float)),
    bool: ("true or false", r"(?ai)true|false", (bool,)),
}
_GLOB = re.compile(r"""\[[^]"']+\].*[^]]""")  # a name such as [a-m]*
_LONGEST = 200  # characters of a wrong value that are shown


class Place(str):
    """The kind of one of several places; names of tables are never taken for some."""

    __slots__ = ()


def read_options(value: object, name: str = "options") -> dict[str, Any]:
    """Read options of `apply` from JSON, each as its kind; `tables` is none of them.

    Raises:
        ParameterError: it is no JSON mapping, an option is not known, or its value is not what is expected.

    """
    kinds = {one: kind for one, kind in get_type_hints(Options).items() if one != "tables"}
    expected = 'a JSON mapping of options of `apply`, such as {"max_bytes": 500000000}'
    options = _json(name, value if str(value or "").strip() else "{}", expected)
    if not isinstance(options, dict):
        raise _wrong(name, value, expected)
    if unknown := [one for one in options if one not in kinds]:
        msg = f"{first_few(unknown)} is no option of `apply`"
        raise ParameterError(msg, next_step=f"There are {', '.join(kinds)}.")
    return {one: read_parameter(one, given, kinds[one]) for one, given in options.items()}


def read_parameter(name: str, value: object, kind: Kind) -> object:
    """Read one value as a kind; nothing is guessed.

    Raises:
        ParameterError: it cannot be read so; what is expected is said, and what was found.

    """
    if isinstance(value, str):
        value = value.strip()
    words = get_args(kind)
    origin: object = get_origin(kind)
    if kind == list[str]:
        return _list(name, value)
    if kind == list[Place]:
        if found := _list(name, value):
            return found
        raise _wrong(name, value, "at least one place: a JSON list of them, or one")
    if origin is dict:
        return _mapping(name, value)
    if origin is Literal:
        if isinstance(value, str) and value in words:
            return value
        raise _wrong(name, value, f"one of {', '.join(words)}")
    if words:  # one of several kinds
        return _first_that_reads(name, value, words)
    return _single(name, value, kind)


def _first_that_reads(name: str, value: object, kinds: Sequence[Kind]) -> object:
    """Read a value as the first kind that it can be; what it could be is said where it is none."""
    if value in (None, "") and type(None) in kinds:
        return None
    wrong = []
    for kind in kinds:
        if kind is not type(None):
            try:
                return read_parameter(name, value, kind)
            except ParameterError as exc:
                wrong.append(exc.reason.partition(" has to be ")[2])
    raise _wrong(name, value, " or ".join(wrong))


def _single(name: str, value: object, kind: Kind) -> object:
    """Read a text, a number or a flag."""
    expected, pattern, types = _SINGLE[kind]
    if isinstance(value, str) and re.fullmatch(pattern, value):
        return value.lower() == "true" if kind is bool else kind(value)
    if isinstance(value, types) and isinstance(value, bool) == (kind is bool):
        return kind(value)
    raise _wrong(name, value, expected)


def _list(name: str, value: object) -> list[str]:
    """Read JSON, one bare name, or nothing."""
    if value in (None, ""):
        return []
    if isinstance(value, str) and (_GLOB.fullmatch(value) or not value.startswith(("[", "{"))):
        return [value]
    expected = 'a JSON list of texts, such as ["dbo/orders", "dbo/items"], or one name'
    found = _json(name, value, expected)
    if isinstance(found, (list, tuple)) and all(isinstance(one, str) and one for one in found):
        return list(found)
    raise _wrong(name, value, expected)


def _mapping(name: str, value: object) -> dict[str, list[str]]:
    """Read JSON: a list of texts for each table."""
    expected = 'a JSON mapping of tables to lists, such as {"dbo/orders": ["id"]}'
    found = _json(name, value, expected)
    if isinstance(found, dict) and all(isinstance(one, list) for one in found.values()):
        return {str(table): _list(name, one) for table, one in found.items()}
    raise _wrong(name, value, expected)


def _json(name: str, value: object, expected: str) -> object:
    """Read JSON where a value is text."""
    try:
        return json.loads(value) if isinstance(value, str) else value
    except (ValueError, RecursionError) as exc:
        raise _wrong(name, value, expected) from exc


def _wrong(name: str, value: object, expected: str) -> ParameterError:
    msg = f"the parameter {name} has to be {expected}"
    return ParameterError(msg, found=f"{type(value).__name__} {ascii(value)[:_LONGEST]}")
