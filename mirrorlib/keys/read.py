"""Say which keys of a DataFrame are still true, what became of the others, and how to get those back.

They come back by a call, in which columns are called as they are now, or by a step that has to change.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, ClassVar

from mirrorlib.errors import KeysLostError
from mirrorlib.keys.tracing.trace import Trace, trace_keys
from mirrorlib.keys.value import Keys, left_under
from mirrorlib.tabular import Report, cells

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType


def keys_of(df: DataFrame) -> Keys:
    """Return the keys of a DataFrame that are still true after all that was done to it; runs no job.

    None are claimed where that is not certain. The price is that of printing the plan; a Spark Connect server
    plans the query for it, so call it once for each output.
    """
    return trace_keys(df).keys


def require_keys(df: DataFrame, *, primary: bool = False) -> Keys:
    """Return the keys of a DataFrame, all that were declared.

    Args:
        df: a keyed DataFrame.
        primary: a primary key is needed, not only a partition key.

    Raises:
        KeysLostError: there are none, or a part of them was lost; it says where, and how to get it back.

    """
    report = explain_keys(df)
    keys = report.keys
    if keys and not keys.lost and (keys.primary or not primary):
        return keys
    if report.trouble:
        raise KeysLostError(report.trouble, next_step=report.remedy)
    msg = "no primary key was declared, only a partition key"
    call = _declaring(replace(keys, primary=keys.partition))
    raise KeysLostError(msg, next_step=f"Say cdc=True in key_by: {call}")


def explain_keys(df: DataFrame) -> KeysReport:
    """Say which keys a DataFrame has, which were lost on the way, where, and how to get them back.

    And what orders the rows of a key: never more than the weakest link of the lineage leaves.
    """
    trace = trace_keys(df)
    known = {one.name: getattr(trace, one.name) for one in fields(trace)}
    return KeysReport(**known, remedy=_remedy(trace, df.schema))


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class KeysReport(Trace, Report):
    """What became of the keys of a DataFrame, and the *remedy*: how to get back what was lost; "" when nothing was."""

    columns: ClassVar = ("key", "declared", "now")
    remedy: str

    @property
    def ok(self) -> bool:
        """Say whether all keys that were declared hold."""
        return self.declared is not None and self.keys.has_all_of(self.declared)

    @property
    def trouble(self) -> str:
        """Say what is wrong, a clause; "" when nothing is."""
        if self.ok:
            lost = f"a part of the keys had been lost before {self.origin}: "
            return f"{lost}{_listed(self.keys.lost)}" if self.keys.lost else ""
        if not self.steps:
            return self.unclear or "no keys were declared"
        losses = "; ".join(f"{step.operator}: {step.lost} ({step.why})" for step in self.steps)
        return f"keys were lost: {losses}"

    def to_dict(self) -> dict[str, Any]:
        """Return the report as JSON-ready values; the shape is a contract."""
        return {**super(KeysReport, self).to_dict(), "trouble": self.trouble}

    def rows(self) -> list[tuple[str, ...]]:
        """Return one row for each part of the keys."""
        both = (self.declared or Keys(), self.keys)
        was, now = (cells(keys, "partition primary deleted order_by") for keys in both)
        names = ("partition key", "primary key", "deletion column", "order columns")
        return [*zip(names, was, now, strict=True)]

    def notes(self) -> list[str]:
        """Return what was lost where, how to get it back, and what orders rows."""
        lost = [f"{step.operator} lost the {step.lost}: {step.why}." for step in self.steps]
        if not self.ok and not lost:
            lost = [f"{self.trouble[0].upper()}{self.trouble[1:]}."]
        return [*lost, *filter(None, [self.remedy]), self.ordering]

    @property
    def ordering(self) -> str:
        """Say what orders the rows of a key, a sentence."""
        link = f" Weakest link: {self.weakest_link}." if self.weakest_link else ""
        keys = self.declared
        if keys is None or self.order == "none":
            return f"Order: nothing is promised.{link}"
        rows = f"rows that had the same {_listed(keys.partition)} at {self.origin}"
        if self.order == "arrival":
            return f"Order: {rows} come as they arrived, if the source kept their order.{link}"
        if self.order == "inputs":
            return f"Order: {rows} come as they arrived inside each input, not among several.{link}"
        if not self.keys.order_by:
            return f"Order: only order columns could tell it, and there are none.{link}"
        return (
            f"Order: only {_listed(self.keys.order_by)} tells which of the {rows} is newer.{link}"
        )


def _remedy(trace: Trace, schema: StructType) -> str:
    """Say how to get back what was lost; "" where nothing was."""
    keys = trace.declared
    if keys is None:
        return (
            "Declare them with key_by, behind the last step that loses them; "
            "a column that is gone has to be kept in that step."
        )
    said = []
    if keys.lost:
        said.append(
            f"Keep {_listed(keys.lost)} up to {trace.origin}: "
            "explain_keys of what goes into it says which step loses that."
        )
    if not trace.keys.has_all_of(keys):
        said.append(_lost_here(trace, keys, schema))
    return " ".join(said)


def _lost_here(trace: Trace, keys: Keys, schema: StructType) -> str:
    # Columns are called as they have been followed, else as they were, if no other column is called so.
    names = {was: now for was, now in trace.names.items() if now is not None}
    free = set(schema.names) - set(names.values())
    names |= {was: was for was in keys.columns if was not in names and was in free}
    if gone := [was for was in keys.columns if was not in names]:
        return f"Keep {_listed(gone)} in the step that loses that; declare them anew behind any other: key_by."
    # Without a primary key where columns were lost before, as it would merge records.
    call = _declaring(left_under(keys, names, primary=not keys.lost))
    return f"Declare them anew behind that step, or propagate them where you know that they hold: {call}"


def _declaring(keys: Keys) -> str:
    """Write the call that declares keys on a frame; where it is refused, it says what has to be done before."""
    parts = [f"[{', '.join(map(repr, keys.partition))}]"]
    if keys.primary:
        parts.append("cdc=True")
    if keys.deleted is not None:
        parts.append(f"deleted={keys.deleted!r}")
    if keys.order_by:
        parts.append(f"order_by=[{', '.join(map(repr, keys.order_by))}]")
    return f"key_by(df, {', '.join(parts)})."


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names) or "-"
