"""What the receiver's folder says of itself: its streams, its windows, and which attempt at a window counts.

In: a `Store`. Out: values, and their JSON:

    <table>/_manifest/streams/000001.json   who delivers; one more after each rewind
    <table>/_manifest/<window>.json         a window that is there: what it is and which files it has
    <table>/_manifest/newest.json           the last of them
    _staging/<table>/<window>/claim.json    the attempt at a window that counts; gone once the window is there

All but `newest.json` is written by put-if-absent and never changed. Names in one folder sort as they
were delivered, as the stream's place comes first and the window's number next.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, TypeVar

from mirrorlib.delivery.sink import Delivery, check_successor
from mirrorlib.delivery.sinks.open import check_no_table
from mirrorlib.errors import JournalError, LandingZoneError
from mirrorlib.events import pick
from mirrorlib.journal.plan_log import numbered_files
from mirrorlib.journal.streams import Stream
from mirrorlib.names import parse_name, parse_visible
from mirrorlib.store import Store, contents
from mirrorlib.store.records import read_record, record_bytes

_PLACE = 6  # digits of a stream's place in a window's name
_CLAIM = "claim.json"
T = TypeVar("T")
_ANEW = "Remove the table's folder there and rewind the consumer to a snapshot, or let another consumer export."


@dataclass(frozen=True, slots=True, kw_only=True)
class File:
    """One file of a window."""

    name: str  # in the table's folder
    bytes: int
    staged: str = ""  # where the attempt that counts has left it; "" in a manifest


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestEntry:
    """One window: what it is, and its files."""

    window: str  # its name
    table: str
    consumer: str
    stream: str  # the stream's uuid
    number: int  # the window's number in its stream
    # "changes", or "snapshot": all rows as of *until*, which take the place of all that came before.
    kind: str
    reset: bool  # the snapshot stands for changes that were lost
    after: int  # the last version before it; -1 for a snapshot
    until: int  # its last version
    until_at: str  # when that was written, ISO 8601, UTC
    keys: tuple[str, ...]
    file_format: str  # parquet, jsonl or csv
    columns: tuple[Mapping[str, str], ...]  # `name` and Spark's `type` of each, in order
    rows: int
    files: tuple[File, ...]  # in order
    delivered_at: str  # ISO 8601, UTC

    def to_json(self, *, staged: bool) -> bytes:
        """Write it down, with where its files are *staged* while they are."""
        value = asdict(self)
        for file in () if staged else value["files"]:
            del file["staged"]
        return record_bytes(value)


class Receiver:
    """One table's folder at the receiver."""

    def __init__(self, store: Store, table: str) -> None:
        self.store = store
        self.table = table
        self.folder = str(parse_visible(table))
        self._staging = f"_staging/{parse_name(table).segment}"
        self._manifest = f"{self.folder}/_manifest"

    def admit(self, delivery: Delivery) -> str:
        """Let a window's stream write here, a new one behind those that have; return what the window is called.

        That is 20 digits that sort as windows were delivered, and what it is unless it is changes.
        """
        stream, plan = delivery.stream, delivery.plan
        # Attempts of streams whose folder was removed: their claims are for other rows. They are listed before the
        # streams, so that whoever is at an attempt now is among these.
        left = () if delivery.continues else contents(self.store, self._staging).folders
        places = [int(name[:_PLACE]) for name in left if name[:_PLACE].isdecimal()]
        while True:
            said = numbered_files(self.store, f"{self._manifest}/streams")
            # Whoever removes files by their age takes the streams' own away: the last window tells whose was the last.
            last = {} if said else self._newest()
            gone = int(last.get("window", "0")[:_PLACE])
            number = max([*said] or [*places, gone])
            newest = (self._read(said[number], dict) if said else None) or {}
            if newest.get("stream") == stream.uuid:
                mark = "" if plan.kind == "changes" else "-reset" if plan.reset else "-snapshot"
                return f"{number:0{_PLACE}d}{plan.number:014d}{mark}"
            if last.get("stream") == stream.uuid:
                number = gone - 1
            else:
                self._check_successor(delivery, newest)
            facts = pick(stream, "consumer", "table", "ordinal", "began_at")
            data = record_bytes({"stream": stream.uuid, **facts})
            self.store.put_new(f"{self._manifest}/streams/{number + 1:06d}.json", data)

    def last(self, stream: Stream) -> int:
        """Return the number of a stream's last window that is known to be here; 0 for none."""
        newest = self._newest()
        return int(newest["number"]) if newest.get("stream") == stream.uuid else 0

    def entry(self, window: str) -> ManifestEntry | None:
        """Return a window that is here."""
        return self._read(f"{self._manifest}/{window}.json", _revived)

    def entries(self) -> list[ManifestEntry]:
        """Return the windows of the stream that wrote last, in their order, from its last snapshot on."""
        files = contents(self.store, self._manifest).files
        names = sorted(file.name.removesuffix(".json") for file in files)
        windows = [name for name in names if name[:1].isdecimal()]
        windows = [name for name in windows if name.startswith(windows[-1][:_PLACE])]
        begins = max((place for place, name in enumerate(windows) if "-" in name), default=0)
        found = map(self.entry, windows[begins:])
        return [entry for entry in found if entry is not None]

    def claim(self, window: str) -> ManifestEntry | None:
        """Return the attempt at a window that counts."""
        return self._read(self.staged(window, _CLAIM), _revived)

    def staged(self, window: str, attempt: str) -> str:
        """Return the folder of an attempt at a window, or its claim."""
        return f"{self._staging}/{window}/{attempt}"

    def write_claim(self, entry: ManifestEntry) -> None:
        """Let an attempt count unless another one does."""
        self.store.put_new(self.staged(entry.window, _CLAIM), entry.to_json(staged=True))

    def write_entry(self, entry: ManifestEntry) -> None:
        """Say that a window is here."""
        self.store.put_new(f"{self._manifest}/{entry.window}.json", entry.to_json(staged=False))

    def tidy(self, entry: ManifestEntry) -> None:
        """Say that a window is the last one, and remove what attempts at it and former ones have left."""
        # Others may have gone on, of a new stream too.
        if self._newest().get("window", "") < entry.window:
            said = record_bytes(pick(entry, "stream", "number", "window"))
            self.store.put(f"{self._manifest}/newest.json", said)
        for window in contents(self.store, self._staging).folders:
            if window <= entry.window:  # a later one is another runner's, which has gone on
                self.store.delete_folder(f"{self._staging}/{window}")

    def _check_successor(self, delivery: Delivery, newest: dict[str, Any]) -> None:
        """See that a stream may begin to write behind the one that did so last."""
        stream, place = delivery.stream, f"{self.store.url}/{self.folder}"
        if newest:
            check_successor(stream, newest, place, _ANEW)
        else:
            check_no_table(self.store, self.folder, self.table)
        if delivery.continues:
            what = "the snapshot" if stream.start_at is None else "the window"
            msg = f"{place} does not have {what} that the changes follow on"
            step = "Somebody emptied it: rewind the consumer to a snapshot."
            raise LandingZoneError(msg, table=self.table, next_step=step)

    def _newest(self) -> dict[str, Any]:
        """Read which window is the last one here, and whose it is."""
        return self._read(f"{self._manifest}/newest.json", dict) or {}

    def _read(self, path: str, revive: Callable[[dict[str, Any]], T]) -> T | None:
        what = "the list of what was delivered"
        return read_record(self.store, path, revive, what, JournalError, self.table)


def _revived(value: dict[str, Any]) -> ManifestEntry:
    known = {name: value[name] for name in ManifestEntry.__slots__}
    return ManifestEntry(**known | {"files": tuple(File(**one) for one in known["files"])})
