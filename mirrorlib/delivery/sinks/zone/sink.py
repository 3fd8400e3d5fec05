"""Deliver windows as change files of a landing zone: the feed published again, for Fabric or for another mirror.

In: windows. Out: one numbered change file a window, by mirrorlib's own writer. The format has no word for "forget": a
snapshot that takes the place of what was published is one file that deletes every key that readers may hold (see
`known`), then inserts all rows: readers apply it as one.

Guarantee: each version's changes once, and a window as a whole, as one file is; `batch` says how a repeated one is
recognized. A window becomes the file that follows on the one that it was made for, or none: a runner that was
overtaken looks again, and leaves the table to a later stream.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from mirrorlib.delivery.sink import Delivery, check_same_window
from mirrorlib.delivery.sinks.open import check_no_table
from mirrorlib.delivery.sinks.zone import changes
from mirrorlib.delivery.sinks.zone.batch import ANEW, Batch, check_columns, follows, read_batch
from mirrorlib.delivery.sinks.zone.known import KnownKeys
from mirrorlib.errors import (
    FileChangedError,
    LandingZoneError,
    MarkerError,
    SchemaError,
    TableBusyError,
)
from mirrorlib.feed.net import VERSION
from mirrorlib.journal.streams import Stream
from mirrorlib.landing.publish.allocate import fulfilled, newest_claim, newest_number
from mirrorlib.landing.publish.claims import Claim, FileSequence
from mirrorlib.landing.publish.declare import OR_ANEW
from mirrorlib.landing.publish.table import LandingTable
from mirrorlib.landing.publish.writer import LandingZoneWriter
from mirrorlib.names import parse_name
from mirrorlib.store import Store, open_store

_ATTEMPTS = 20  # runners of an earlier stream may publish until this one has
_SOURCE = "Delta Lake"  # what `_partnerEvents.json` says is mirrored


class ZoneSink:
    """A landing zone that receives windows as change files."""

    def __init__(self, zone: Store) -> None:
        self._zone = zone
        self._writer = LandingZoneWriter(zone, source=_SOURCE)

    def position(self, stream: Stream) -> int:
        """Return the number of the last window that is visible."""
        _, claim, last = self._newest(_place(stream))
        if claim is None or last is None or last.stream != stream.uuid:
            return 0
        visible = self._zone.stat(claim.staged) is None
        return last.number if visible else last.number - 1

    def deliver(self, delivery: Delivery) -> int | None:
        """Publish the window, once."""
        stream, plan = delivery.stream, delivery.plan
        place = _place(stream)
        check_no_table(self._zone, place.folder, stream.table)
        data: pa.Table | None = None
        for _ in range(_ATTEMPTS):
            number, claim, last = self._newest(place)
            if claim and last and (last.stream, last.number) == (stream.uuid, plan.number):
                check_same_window(delivery, last.until)
                fulfilled(self._zone, place, claim)
                return claim.rows
            if not follows(number, last, place, delivery):
                return None
            data = changes.collect_rows(delivery) if data is None else data
            try:
                return self._publish(delivery, data, number, last)
            except (FileChangedError, LandingZoneError, MarkerError, TableBusyError):
                # Another runner may have published meanwhile: then nothing that was made of the older state counts.
                if self._newest(place)[0] == number:
                    raise
        msg = "other runners keep publishing to the landing zone"
        raise TableBusyError(msg, table=place.table, found=place.folder)

    def _publish(
        self, delivery: Delivery, data: pa.Table, number: int, last: Batch | None
    ) -> int | None:
        """Publish the window as the file that follows on a number, and as no other; *last* is the window there."""
        stream, keys, batch = delivery.stream, delivery.keys, Batch.of(delivery, last)
        table = self._writer.table(stream.table, keys=delivery.plan.keys)
        replaces = delivery.plan.kind == "snapshot"
        known = KnownKeys(self._zone, _place(stream), keys, batch, data.schema)
        if not replaces:
            came = data.num_rows
            if last is not None:  # leave out what an earlier stream has published
                data = data.filter(pc.greater(data[VERSION], last.until))
                if data.num_rows:
                    check_columns(last, delivery)
            if keys:
                known.check(number, data)
            rows = changes.change_rows(data, keys, stream.table)
            if not rows.num_rows:
                return None if data.num_rows < came else 0
        elif number:
            rows = changes.replacing_rows(data, known.read(number))
        else:
            rows = changes.bare_rows(data)
        if keys:
            known.note(number + 1, data, rows, replaces=replaces)
        written = _write(table, rows, batch, number)
        if keys:
            known.tidy(number + 1, replaces=replaces)
        return written

    def _newest(self, place: FileSequence) -> tuple[int, Claim | None, Batch | None]:
        """Find the newest change file: its number, 0 for none, its writer's claim, and which of our windows it is."""
        number, claim = newest_claim(self._zone, place, newest_number(self._zone, place))
        return number, claim, read_batch(claim)


def _write(table: LandingTable, rows: pa.Table, batch: Batch, number: int) -> int:
    """Write a change file, and return how many rows it has; what its writer advises is told as a consumer can do it."""
    try:
        return table.write(rows, batch_id=batch.id, follows=number).rows
    except SchemaError as exc:
        step = (exc.next_step or "").removesuffix(OR_ANEW)
        if step == exc.next_step:
            raise
        raise exc.but(next_step=f"{step}or begin anew. {ANEW}") from exc


def open_sink(address: str, _mode: str) -> ZoneSink:
    """Open the landing zone at a URL; there is one mode."""
    return ZoneSink(open_store(address))


def _place(stream: Stream) -> FileSequence:
    return FileSequence(table=stream.table, folder=parse_name(stream.table).folder)
