"""Say which keys of a DataFrame are still true, and what became of the others."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from mirrorlib.errors import KeysLostError
from mirrorlib.keys.remedy import declaring, remedy_of
from mirrorlib.keys.tracing.trace import Loss, Trace, trace_keys
from mirrorlib.keys.value import Keys
from mirrorlib.tabular import Report

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

    from mirrorlib.keys.tracing.rules import Order


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
    if not report.ok:
        raise KeysLostError(report.trouble, next_step=report.remedy)
    if keys.lost:
        msg = f"a part of the keys had been lost before {report.origin}: {_names(keys.lost)}"
        raise KeysLostError(msg, next_step=report.remedy)
    msg = "no primary key was declared, only a partition key"
    call = declaring(replace(keys, primary=keys.partition), df.schema)
    raise KeysLostError(msg, next_step=f"Say cdc=True in key_by: {call}")


def explain_keys(df: DataFrame) -> KeysReport:
    """Say which keys a DataFrame has, which were lost on the way, where, and how to get them back.

    And what orders the rows of a key: never more than the weakest link of the lineage leaves.
    """
    return KeysReport.of(trace_keys(df), df.schema)


@dataclass(frozen=True, slots=True, kw_only=True)
class KeysStep:
    """A step that took something from the keys.

    Attributes:
        operator: what it is: "dropDuplicates", "join (LeftOuter)".
        lost: "partition key", "primary key", or the columns.
        why: the reason.

    """

    operator: str
    lost: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class KeysReport(Report):
    """What became of the keys of a DataFrame.

    Attributes:
        keys: what is left.
        declared: what was declared; None where nothing was, or it cannot be found.
        origin: which function declared it.
        steps: what took something from it, in the order of the data's way.
        order: "arrival", "inputs" (inside each input of a union), "columns" (only what order columns tell) or "none".
        weakest_link: what in the lineage leaves no more order than that.
        unclear: why nothing is claimed, where that is not known better.
        remedy: how to get back what was lost, in sentences; "" when nothing was.

    """

    keys: Keys
    declared: Keys | None
    origin: str
    steps: tuple[KeysStep, ...]
    order: Order
    weakest_link: str
    unclear: str
    remedy: str

    @classmethod
    def of(cls, trace: Trace, schema: StructType) -> KeysReport:
        """Tell the trace of a frame of that schema."""
        return cls(
            keys=trace.keys,
            declared=trace.declared.keys if trace.declared else None,
            origin=trace.declared.origin if trace.declared else "",
            steps=tuple(map(_step, trace.losses)),
            order=_order(trace),
            weakest_link=_weakest(trace),
            unclear=trace.unclear,
            remedy=remedy_of(trace, schema),
        )

    @property
    def ok(self) -> bool:
        """Say whether all keys that were declared hold."""
        return self.declared is not None and self.keys.has_all_of(self.declared)

    @property
    def trouble(self) -> str:
        """Say what is wrong, a clause; "" when nothing is."""
        if self.ok:
            return ""
        if not self.steps:
            return self.unclear or "no keys were declared"
        losses = "; ".join(f"{step.operator}: {step.lost} ({step.why})" for step in self.steps)
        return f"keys were lost: {losses}"

    def to_dict(self) -> dict[str, Any]:
        """Return the report as JSON-ready values; the shape is a contract."""
        return {**super(KeysReport, self).to_dict(), "trouble": self.trouble}

    def header(self) -> tuple[str, ...]:
        """Name the columns of the table that the report prints as."""
        return ("key", "declared", "now")

    def rows(self) -> list[tuple[str, ...]]:
        """Return one row for each part of the keys."""
        was, now = self.declared or Keys(), self.keys
        return [
            ("partition key", _names(was.partition), _names(now.partition)),
            ("primary key", _names(was.primary), _names(now.primary)),
            ("deletion column", was.deleted or "-", now.deleted or "-"),
            ("order columns", _names(was.order_by), _names(now.order_by)),
        ]

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
        rows = f"rows that had the same {_names(keys.partition)} at {self.origin}"
        if self.order == "arrival":
            return f"Order: {rows} come as they arrived, if the source kept their order.{link}"
        if self.order == "inputs":
            return f"Order: {rows} come as they arrived inside each input, not among several.{link}"
        if not self.keys.order_by:
            return f"Order: only order columns could tell it, and there are none.{link}"
        return f"Order: only {_names(self.keys.order_by)} tells which of the {rows} is newer.{link}"


def _step(loss: Loss) -> KeysStep:
    effect = loss.effect
    if loss.columns:
        lost = f"column {', '.join(loss.columns)}"
    else:
        lost = "primary key" if effect.partition else "partition key and primary key"
    return KeysStep(operator=effect.label, lost=lost, why=effect.why)


def _order(trace: Trace) -> Order:
    if (
        trace.declared is not None
        and trace.declared.origin == "union_keyed"
        and trace.order == "arrival"
    ):
        return "inputs"
    return trace.order


def _weakest(trace: Trace) -> str:
    return trace.weakest or ("union" if _order(trace) == "inputs" else "")


def _names(names: tuple[str, ...]) -> str:
    return ", ".join(names) or "-"
