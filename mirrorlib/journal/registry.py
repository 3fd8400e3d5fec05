"""The registry: which consumers a target has, and how far each has come, on disk, beside its tables.

In: a `Store` over the state folder. Out: frozen values read from, and written as, small JSON files:

    consumers/<consumer>/<table>/streams/000001.json                how it receives the table
    consumers/<consumer>/<table>/<stream>/<inverse>-<n>.plan.json   a window: what is delivered as one
    consumers/<consumer>/<table>/<stream>/<inverse>-<n>.done.json   it was
    consumers/<consumer>/<table>/lease/<inverse>-<n>.json           who delivers now
    consumers/<consumer>/<table>/status.json                        the last word, for people
    consumers/<consumer>/<table>/forgotten.json                     how many streams there were when it was dropped

`<inverse>`, and what is promised: see `plan_log`. `<stream>` is random: what is left of a stream that was forgotten
half is nobody's.
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Container, Mapping
from operator import attrgetter
from typing import Any

from mirrorlib.errors import JournalError, LandingZoneError
from mirrorlib.journal.entries import now
from mirrorlib.journal.leases import Lease
from mirrorlib.journal.plan_log import PlanLog, numbered_files, write_word
from mirrorlib.journal.streams import Stream, WindowDone, WindowEntry, WindowPlan
from mirrorlib.names import TableName, uncarriable
from mirrorlib.store import Store, contents

FOLDER = "consumers"
_LEASE = "lease"
_LONGEST_NAME = 60
_FORGOTTEN = "forgotten.json"


class Registry(PlanLog[Stream, WindowPlan, WindowDone, WindowEntry]):
    """One consumer's streams, windows and outcomes for one table, in the store of a state folder."""

    mend = "Restore the file, or drop it and export again: mirrorlib consumers TARGET --drop NAME --table TABLE"

    def __init__(self, state: Store, consumer: str, table: TableName) -> None:
        folder = f"{FOLDER}/{TableName(None, consumer).segment}/{table.segment}"
        kinds = (WindowPlan, WindowDone, WindowEntry, attrgetter("number"), attrgetter("uuid"))
        super().__init__(state, str(table), folder, kinds)
        self.consumer = consumer

    def newest_stream(self) -> Stream | None:
        """Return the stream that counts; None when the consumer does not receive the table."""
        files = self.streams()
        return self._value(Stream, files[max(files)]) if files else None

    def present_stream(self) -> Stream:
        """Return the stream that counts; `JournalError` where the consumer is gone since it was found."""
        stream = self.newest_stream()
        if stream is None:
            msg = "the consumer was dropped a moment ago"
            raise JournalError(msg, table=self.table, next_step="Try again.")
        return stream

    def forgotten(self) -> tuple[int, str]:
        """Return how many streams there were before the consumer was dropped, and their lineage, "" where not known."""
        path = f"{self.folder}/{_FORGOTTEN}"
        step = (
            "Restore the file, or remove it: the consumer counts as one that was never there then."
        )
        told = self.record(path, lambda said: (int(said["ordinal"]), said.get("lineage", "")), step)
        return told or (0, "")

    def streams(self) -> dict[int, str]:
        """Name the files of the streams by number; none where the consumer does not receive the table."""
        return numbered_files(self.state, f"{self.folder}/streams")

    def all_streams(self) -> list[Stream]:
        """Return the streams, first to newest."""
        return [self._value(Stream, path) for path in self.streams().values()]

    def begin(self, wanted: Mapping[str, Any], ordinal: int) -> Stream:
        """Begin stream *ordinal*, or return the one that another runner began first."""
        facts = {**wanted, "ordinal": ordinal, "uuid": str(uuid.uuid4()), "began_at": now()}
        stream = Stream(consumer=self.consumer, table=self.table, **facts)
        return self._write_new(f"{self.folder}/streams/{ordinal:06d}.json", stream)

    def given_before(self, stream: Stream, number: int) -> int | None:
        """Return the last window before *number* whose rows the receiver was given; 0 for none, None for a round."""
        if number == 1:
            return 0
        return self._value(WindowDone, self._path(stream, number - 1, "done")).given

    def forget_rest(self) -> None:
        """Remove the last word, which a new stream has not earned, and what killed runners left; who holds it may."""
        self.state.delete_folder(self.scratch)
        self.state.delete(f"{self.folder}/status.json")

    def forget(self) -> None:
        """Remove all but the lease; the streams go first: what is left without them is nobody's.

        How many there were stays, and their lineage: receivers know by them whether a stream is a late one.
        """
        files = self.streams()
        if files:  # of the name, as what it holds may be damaged
            last = max(files)
            record: dict[str, Any] = {"ordinal": last}
            with contextlib.suppress(JournalError):
                record["lineage"] = self._value(Stream, files[last]).lineage
            write_word(self.state, f"{self.folder}/{_FORGOTTEN}", record)
        # Whenever this is killed, no earlier one has taken the newest's place.
        for number in sorted(files):
            self.state.delete(files[number])
        self.state.delete_folder(f"{self.folder}/streams")
        for name in contents(self.state, self.folder).folders:
            if name != _LEASE:
                self.state.delete_folder(f"{self.folder}/{name}")
        self.forget_rest()

    @property
    def scratch(self) -> str:
        """Name the folder, in the state's store, of what deliveries write before it counts."""
        return f"staged/exports/{self.folder}"

    def lease(self, does: str = "delivers the table to this consumer") -> Lease:
        """Return what keeps other runners off the stream, once it is held; they are told what its holder *does*."""
        return Lease(self.state, f"{self.folder}/{_LEASE}", self.table, does)


def registries(
    state: Store, consumer: str | None = None, *, but: Container[str] = ()
) -> list[Registry]:
    """Find every stream that is registered in a state folder, or those of one consumer; none of tables *but* which."""
    one = () if consumer is None else (TableName(None, consumer).segment,)
    found = []
    for name in one or contents(state, FOLDER).folders:
        for table in contents(state, f"{FOLDER}/{name}").folders:
            shown = TableName.from_segment(name).table
            registry = Registry(state, shown, TableName.from_segment(table))
            if registry.table not in but and registry.streams():
                found.append(registry)
    return found


def check_name(consumer: str) -> None:
    """Refuse a name that cannot be a folder's, or is too long for people to read."""
    shown = consumer.isprintable() and len(consumer) <= _LONGEST_NAME
    if shown and uncarriable(TableName(None, consumer)) is None:
        return
    most = _LONGEST_NAME
    msg = f"a consumer's name is printable, without a slash, and has up to {most} characters"
    raise LandingZoneError(msg, found=ascii(consumer)[:80], next_step="Choose another name.")
