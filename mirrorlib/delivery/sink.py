"""What a receiver has to be, so that it is given every window whole and none twice; and what no kept copy can take.

A receiver of one's own is a class with these two methods; `examples/own_sink.py` is one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from mirrorlib.errors import (
    JournalError,
    LandingZoneError,
    SchemaError,
    TableBusyError,
    first_few,
)
from mirrorlib.identifiers import find_name, fold_name
from mirrorlib.journal.streams import Stream, WindowPlan, begin_anew, snapshot_command

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from mirrorlib.store import Store

KEY_OPTIONS = "--key or --no-key"  # how other keys are given, for errors


@dataclass(frozen=True, kw_only=True)
class Delivery:
    """A window to be delivered.

    Attributes:
        spark: a session of this table's own.
        stream: whose it is. (stream.uuid, plan.number) names the window for ever.
        plan: which one: its number, bounds, kind and keys.
        frame: the table's columns, then `_change_type` (insert, update_preimage, update_postimage,
            delete), `_commit_version` and `_commit_timestamp`; a snapshot's rows are inserts of its version.
            The same rows whenever it is computed, in no order.
        scratch: a store for files that live no longer than the delivery.
        folder: the folder there that is this delivery's.
        collected: the rows of `frame` in this process, where they are few and were read so.
        stated_rows: how many rows the source's commits say that they change; None where one does not say.
        given: the number of the stream's last window whose rows the receiver was given, 0 for none; None for unknown.
        begins: the version up to which it was given them, None for the plan's: windows without a change leave nothing.
        physical: which column of the source's data files each name stands for, at the window's end and at any
            depth. Another one under a name of before holds other values in rows that no change tells of.
        begun: gives `physical` as of where the window begins, for a receiver that has forgotten what it was told then.
        renewed: gives what such columns have become, by what they were, where all rows were written again in another
            type; it looks through the table's log.
        mapped: the source has column mapping, without which a name stands for one column for ever.

    """

    spark: SparkSession
    stream: Stream
    plan: WindowPlan
    frame: DataFrame
    scratch: Store
    folder: str
    collected: pa.Table | None = None
    stated_rows: int | None = None
    given: int | None = None
    begins: int | None = None
    physical: Mapping[str, str] = field(default_factory=dict)
    begun: Callable[[], Mapping[str, str]] = dict
    renewed: Callable[[], Mapping[str, str]] = dict
    mapped: bool = False

    @property
    def columns(self) -> list[str]:
        """Name the source's columns."""
        from mirrorlib.feed.net import columns_of  # Spark comes with it

        return columns_of(self.frame)

    @property
    def keys(self) -> tuple[str, ...]:
        """Name the key columns as the source spells them; a window is not planned by what is no column."""
        columns = self.columns
        return tuple(find_name(columns, key) or key for key in self.plan.keys)

    @property
    def continues(self) -> bool:
        """Say whether the changes follow on a window of the stream: a receiver that has nothing of it was emptied."""
        was_given = self.given != 0 or self.stream.start_at is None  # a snapshot of no rows, too
        return self.plan.kind == "changes" and was_given


def comes_after(stream: Stream, ordinal: int, began_at: str) -> bool:
    """Say whether a stream began after another one of its consumer and table.

    They are numbered, as clocks may be wrong. The moment tells where the numbers do not: of a consumer whose
    state was lost, which begins with 1 once more.
    """
    if stream.ordinal == 1:
        return stream.began_at > began_at
    return (stream.ordinal, stream.began_at) > (ordinal, began_at)


def check_successor(stream: Stream, last: Mapping[str, Any], place: str, step: str) -> None:
    """See that a stream may write to a receiver's *place* after the *last* one: that one, or a later one of its table.

    The receiver says of that: consumer, table, stream (its uuid), ordinal and began_at.
    """
    if (last["consumer"], last["table"]) != (stream.consumer, stream.table):
        msg = f"{place} belongs to another consumer, or to another table"
        found = f"{last['consumer']}, {last['table']}"
        raise LandingZoneError(msg, table=stream.table, found=found, next_step=step)
    is_other = last["stream"] != stream.uuid
    if is_other and not comes_after(stream, last["ordinal"], last["began_at"]):
        msg = f"a stream of {stream.consumer} that began later writes to {place}"
        found = f"stream number {last['ordinal']}, this one is number {stream.ordinal}"
        anew = snapshot_command(stream.consumer, stream.table)
        step = f"Run again, or leave it to that; where the state folder was set back, repeat until past it: {anew}"
        raise TableBusyError(msg, table=stream.table, found=found, next_step=step)


def tell_gap(
    delivery: Delivery, stream: str, table_id: str, upto: int, at: int | None = None
) -> str:
    """Say why changes cannot follow on what a *stream* has given a receiver, up to a version; "" where they can.

    A copy whose rows go back with a rewind is *at* an earlier version until all windows have come again.
    """
    mine, plan = delivery.stream, delivery.plan
    if table_id != plan.table_id:
        return "holds rows of a table that was made anew since"
    if mine.net and plan.after < upto < plan.until:  # what came and went again is not told
        return (
            f"ends with version {upto}, in the midst of a window that is folded to its net changes"
        )
    begins = plan.after if delivery.begins is None else delivery.begins
    at = upto if at is None else at
    if stream != mine.uuid and begins > at:
        return f"ends with version {at}, and the stream begins after {begins} (rewound to {at}, it goes on)"
    return ""


def registry_set_back(stream: Stream, found: str) -> JournalError:
    """Say that a registry was set back: its next windows would be taken for others that are there."""
    msg = "the consumer's registry was set back: the receiver holds windows that it does not know"
    return JournalError(msg, table=stream.table, found=found, next_step=begin_anew(stream))


def receiver_set_back(stream: Stream, held: int, given: int) -> JournalError:
    """Say that a receiver holds less than it was given: it is a backup, or a standby that had not all."""
    found = f"window {held} of the stream in place of {given}"
    msg = "the receiver was set back"
    return JournalError(msg, table=stream.table, found=found, next_step=begin_anew(stream))


def check_same_window(delivery: Delivery, until: int) -> None:
    """Refuse to take what a receiver has of the window's number for the window, where it ends with another version."""
    plan = delivery.plan
    if until != plan.until:
        found = f"window {plan.number} up to version {until}, {plan.until} in the registry"
        raise registry_set_back(delivery.stream, found)


def check_continued(
    delivery: Delivery,
    names: tuple[Iterable[str], Iterable[str]],
    physical: tuple[Mapping[str, str], Mapping[str, str]],
    step: str,
) -> None:
    """Refuse a window whose columns, as they were and are, may hold other values in rows that no change tells of.

    Where some have gone, and new ones come, one may have been renamed. And every name has to stand for the physical
    column that it stood for, as far as that is known, or for one that it has become as it was written again in
    another type, with all its values.
    """
    table = delivery.stream.table
    before, after = ({fold_name(name): name for name in each} for each in names)
    gone = [name for folded, name in before.items() if folded not in after]
    came = [name for folded, name in after.items() if folded not in before]
    if gone and came:
        msg = "columns went and came at once, so one may have been renamed, and its values are not told"
        found = f"gone: {first_few(gone)}; new: {first_few(came)}"
        raise SchemaError(msg, table=table, found=found, next_step=step)
    was, now = {fold_name(name): one for name, one in physical[0].items()}, physical[1]
    others = [name for name, one in now.items() if was.get(fold_name(name), one) != one]
    renewed = delivery.renewed() if others and delivery.mapped else {}
    others = [name for name in others if renewed.get(was[fold_name(name)]) != now[name]]
    if others and delivery.mapped:
        msg = "the name stands for another column than before, and its values are not told"
        column, found = first_few(others), f"{now[others[0]]}, was {was[fold_name(others[0])]}"
        raise SchemaError(msg, table=table, column=column, found=found, next_step=step)


class Sink(Protocol):
    """A receiver.

    The runner delivers window after window of a stream, each until `deliver` has returned once. After
    a crash it asks `position` first, and delivers the window again where the receiver does not have it.
    So windows are neither lost nor doubled if one of these holds: `position` tells the truth, as it
    is written in one transaction with the window; or delivering a window twice is the same as once.

    A receiver to whom an update is the same as a delete and an insert of one key in one commit may say so by an
    attribute `pairs = False`: it costs less not to tell them apart.
    """

    def position(self, stream: Stream) -> int:
        """Return the number of the last window that the receiver holds of a stream; 0 for none or unknown."""

    def deliver(self, delivery: Delivery) -> int | None:
        """Write the window as a whole, and return its number of rows; forget the table first where `plan.reset` is set.

        0 says that it has left nothing there. None says the contrary of a window whose rows were there already.

        Raises:
            MirrorError: the receiver is not there, or cannot take the rows; nothing of the window is visible.

        """
