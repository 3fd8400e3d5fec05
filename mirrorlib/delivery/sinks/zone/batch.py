"""Say in a change file's batch id which window it is, and read there what a table's folder holds.

In: the claims of the landing zone's writer, which are never changed nor removed. Out: `Batch` values.
A claim is there before its file is, and whoever comes next makes it visible, so the newest claim
tells the truth about what was published, whatever crashed; nothing else has to be written down.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass

from mirrorlib.delivery.sink import Delivery, check_continued, check_successor, tell_gap
from mirrorlib.errors import LandingZoneError
from mirrorlib.events import pick
from mirrorlib.identifiers import fold_name
from mirrorlib.journal.plan_log import read_object
from mirrorlib.journal.streams import begin_anew
from mirrorlib.landing.publish.claims import Claim, FileSequence

ANEW = (
    "Delete the table's folder there, let its readers see that it is gone, and rewind the consumer to a snapshot; "
    "or export to another zone by another consumer."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """A window as a change file's batch id names it."""

    consumer: str
    table: str
    stream: str  # the stream's uuid
    began_at: str  # when the stream began
    number: int  # the window's number in it
    table_id: str  # the Delta table's id
    until: int  # the window's last version
    keys: tuple[str, ...]
    ordinal: int  # the stream's number among the consumer's
    columns: tuple[str, ...]  # the source's
    # Which physical column each name stands for; of those that are gone, too, stood for: readers hold their values.
    physical: Mapping[str, str]

    @classmethod
    def of(cls, delivery: Delivery, last: Batch | None) -> Batch:
        """Name a window that follows on the *last* one; a snapshot takes the place of all that there was."""
        stream, plan = delivery.stream, delivery.plan
        before = last.physical if last is not None and plan.kind == "changes" else {}
        return cls(
            **pick(stream, "consumer", "table", "began_at", "ordinal"),
            **pick(plan, "number", "table_id", "until", "keys"),
            stream=stream.uuid,
            columns=tuple(delivery.columns),
            physical={**before, **delivery.physical},
        )

    @property
    def id(self) -> str:
        """Return the batch id; the same for the same window, for ever."""
        return json.dumps({"mirrorlib_export": 1, **asdict(self)}, ensure_ascii=False)


def read_batch(claim: Claim | None) -> Batch | None:
    """Read in a change file's claim which window it is; None for one of another publisher."""
    try:
        value = read_object(claim.batch_id if claim is not None else None)
        if value.pop("mirrorlib_export", None) != 1:
            return None
        lists = {name: tuple(value[name]) for name in ("keys", "columns")}
        return Batch(**{**value, **lists})
    except (KeyError, TypeError):
        return None


def follows(number: int, last: Batch | None, place: FileSequence, delivery: Delivery) -> bool:
    """See that a window may follow on the newest change file of the table's folder, or be the first.

    Not where what it brings was published before: by its stream, which has gone on, or by an earlier one.
    """
    stream, plan = delivery.stream, delivery.plan
    if not number:
        # A window whose net changes are none is no file.
        unsaid = stream.start_at is not None and stream.net and not delivery.given
        if delivery.continues and not unsaid:
            what = "the snapshot" if stream.start_at is None else "the change files"
            what = f"lacks {what} that the changes follow on: somebody emptied it"
            raise _misplaced(place, what, "Rewind the consumer to a snapshot.")
        return True
    if last is None:
        raise _misplaced(place, "was filled by another publisher", ANEW)
    check_successor(stream, asdict(last), f"the landing zone's folder {place.folder}", ANEW)
    if {*map(fold_name, last.keys)} != {*map(fold_name, plan.keys)}:
        found = f"{', '.join(plan.keys) or 'none'} instead of {', '.join(last.keys) or 'none'}"
        raise _misplaced(place, "was filled by other keys", ANEW, found)
    if plan.kind == "changes":
        if gap := tell_gap(delivery, last.stream, last.table_id, last.until):
            to = f"version {last.until}, or to " if last.table_id == plan.table_id else ""
            raise _misplaced(place, gap, f"Rewind the consumer to {to}a snapshot.")
    elif not plan.keys:
        what = "cannot be told to forget what it holds, as the table has no keys to delete by"
        raise _misplaced(place, what, ANEW)
    gone_on = last.stream == stream.uuid and last.number > plan.number
    return not (gone_on or (plan.kind == "changes" and plan.until <= last.until))


def check_columns(last: Batch, delivery: Delivery) -> None:
    """See that changes have the columns that readers hold rows of: those that stay are not told again."""
    step = begin_anew(delivery.stream) if delivery.plan.keys else ANEW
    names, physical = (last.columns, delivery.columns), (last.physical, delivery.physical)
    check_continued(delivery, names, physical, step)


def _misplaced(
    place: FileSequence, what: str, step: str, found: str | None = None
) -> LandingZoneError:
    msg = f"the landing zone's folder {place.folder} {what}"
    return LandingZoneError(msg, table=place.table, found=found, next_step=step)
