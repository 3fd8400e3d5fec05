"""Say how to get back keys that were lost: by a call that works on the frame as it is, or by a step that has to change.

In: a trace, and the schema at its end. Out: sentences. A call names columns as they are called now.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from mirrorlib.errors import KeysError
from mirrorlib.keys.allowed import check_keys
from mirrorlib.keys.value import Keys

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pyspark.sql.types import StructType

    from mirrorlib.keys.tags import Declared
    from mirrorlib.keys.tracing.trace import Trace


def remedy_of(trace: Trace, schema: StructType) -> str:
    """Say how to get back what was lost; "" where nothing was."""
    declared = trace.declared
    if declared is None:
        return (
            "Declare them with key_by, behind the last step that loses them; "
            "a column that is gone has to be kept in that step."
        )
    return " ".join(
        filter(None, (_lost_before(declared), _lost_here(trace, declared.keys, schema)))
    )


def declaring(keys: Keys, schema: StructType) -> str:
    """Write the call that declares keys on a frame, and what has to be done before where it would be refused."""
    primary = bool(keys.primary)
    calls = f"{_call(keys)}."
    try:
        check_keys(
            schema,
            keys.partition,
            cdc=primary,
            deleted=keys.deleted if primary else None,
            order_by=keys.order_by if primary else (),
        )
    except KeysError as exc:
        return f"{calls} Before that: {exc}"
    return calls


def _lost_before(declared: Declared) -> str:
    lost = declared.keys.lost
    if not lost:
        return ""
    return (
        f"Keep {_listed(lost)} up to {declared.origin}: "
        "explain_keys of what goes into it says which step loses that."
    )


def _lost_here(trace: Trace, keys: Keys, schema: StructType) -> str:
    if trace.keys.has_all_of(keys):
        return ""
    names = _names_now(trace.names, keys.columns, schema.names)
    gone = [was for was in keys.columns if was not in names]
    if gone:
        return _keep(gone, trace)
    call = declaring(_renamed(keys, names), schema)
    if trace.keys and not trace.keys.lost and not trace.keys.primary and keys.primary:
        return f"Declare the primary key anew behind that step: {call}"
    return f"Propagate them where you know that they hold, or declare them anew behind that step: {call}"


def _names_now(
    known: Mapping[str, str | None], columns: Iterable[str], there: Sequence[str]
) -> dict[str, str]:
    """Say what columns are called: as they have been followed, else as they were, if another column is called so."""
    found = {was: now for was, now in known.items() if now is not None}
    free = set(there) - set(found.values())
    return found | {was: was for was in columns if was not in found and was in free}


def _keep(gone: Sequence[str], trace: Trace) -> str:
    steps = dict.fromkeys(
        loss.effect.label for loss in trace.losses if set(loss.columns) & set(gone)
    )
    where = f" ({', '.join(steps)})" if steps else ""
    step = f"Keep {_listed(gone)} in the step that loses what is gone{where}."
    if all(loss.columns for loss in trace.losses):
        return step
    return f"{step} Then declare them anew with key_by, behind the last step that loses keys."


def _renamed(keys: Keys, names: Mapping[str, str]) -> Keys:
    """Give keys other names; without a primary key where columns were lost before, as it would merge records."""
    partition = tuple(names[name] for name in keys.partition)
    if keys.lost or not keys.primary:
        return Keys(partition=partition)
    return replace(
        keys,
        partition=partition,
        primary=partition,
        deleted=None if keys.deleted is None else names[keys.deleted],
        order_by=tuple(names[name] for name in keys.order_by),
    )


def _call(keys: Keys) -> str:
    parts = [f"[{', '.join(map(repr, keys.partition))}]"]
    if keys.primary:
        parts.append("cdc=True")
    if keys.primary and keys.deleted is not None:
        parts.append(f"deleted={keys.deleted!r}")
    if keys.primary and keys.order_by:
        parts.append(f"order_by=[{', '.join(map(repr, keys.order_by))}]")
    return f"key_by(df, {', '.join(parts)})"


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names)
