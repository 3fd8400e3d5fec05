"""Hold a resource to databricks-sdk's own classes: which fields there are, of which type, which have to be set.

In: a mapping and a class. Out: sentences about what is wrong, none when all is well.
"""

from __future__ import annotations

import dataclasses
import enum
import inspect
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Union, get_args, get_origin, get_type_hints

_SCALARS = (str, int, bool, float)
_HOLDERS: dict[Any, str] = {list: "list", dict: "mapping"}


def field_faults(kind: type, value: object, where: str) -> Iterator[str]:
    """Say what of a value does not fit a class of the SDK."""
    if not isinstance(value, Mapping):
        yield f"{where} has to be a mapping, not {value!r}"
        return
    known = {field.name: field for field in dataclasses.fields(kind)}
    for name in value:
        if name not in known:
            yield f"{where} has no field {name}"
    for name, field in known.items():
        required = field.default is dataclasses.MISSING
        if name in value:
            yield from type_faults(_evaluated(kind, field), value[name], f"{where}.{name}")
        elif required and field.default_factory is dataclasses.MISSING:
            yield f"{where} lacks the field {name}"


def class_of(call: Callable[..., object]) -> type:
    """Make a class of the parameters of one of the SDK's calls, for `field_faults`."""
    hints = get_type_hints(call)
    fields: list[Any] = [
        (
            name,
            hints[name],
            *([] if one.default is one.empty else [dataclasses.field(default=one.default)]),
        )
        for name, one in inspect.signature(call).parameters.items()
        if name in hints
    ]
    return dataclasses.make_dataclass(call.__name__, fields, kw_only=True)


def _evaluated(kind: type, field: dataclasses.Field[Any]) -> object:
    """Evaluate an annotation in its module: `get_type_hints` takes `Task.compute` for the module `compute`."""
    if not isinstance(field.type, str):
        return field.type
    return eval(field.type, dict(vars(sys.modules[kind.__module__])))  # noqa: S307  # the SDK's own annotations


def type_faults(kind: Any, value: object, where: str) -> Iterator[str]:  # noqa: ANN401  # a type, however it is written
    """Say what of a value does not fit a type."""
    inner = get_args(kind)
    if get_origin(kind) is Union:
        yield from type_faults(inner[0], value, where)
    elif get_origin(kind) in _HOLDERS:
        yield from _held_faults(_HOLDERS[get_origin(kind)], inner[-1], value, where)
    elif isinstance(kind, type) and issubclass(kind, enum.Enum):
        words = [one.value for one in kind]
        if value not in words:
            yield f"{where} has to be one of {', '.join(words)}, not {value!r}"
    elif dataclasses.is_dataclass(kind) and isinstance(kind, type):
        yield from field_faults(kind, value, where)
    elif kind in _SCALARS and not _is(value, kind):
        yield f"{where} has to be of type {kind.__name__}, not {value!r}"


def _held_faults(holder: str, inner: object, value: object, where: str) -> Iterator[str]:
    """Hold what is in a list or in a mapping to its type."""
    if not isinstance(value, list if holder == "list" else Mapping):
        yield f"{where} has to be a {holder}, not {value!r}"
        return
    found = value.items() if isinstance(value, Mapping) else enumerate(value)
    for place, one in found:
        yield from type_faults(inner, one, f"{where}[{place}]")


def _is(value: object, kind: type) -> bool:
    """Say whether a value has a plain type; True is no number."""
    if isinstance(value, bool):
        return kind is bool
    return isinstance(value, (int, float) if kind is float else kind)
