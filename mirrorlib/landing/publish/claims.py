"""Claims: which batch a number belongs to, durable before anything is published under it.

In: a store. Out: `Claim` values in a table folder's `_mirrorlib/`, which readers ignore:

    staged/[<partition>/]<attempt>.parquet         the content, whole, before it has a number
    claims/[<partition>/]<number>.json             whose number it is
    batches/[<partition>/]<key>/<number>.json      which number a batch has, found by what its caller knows of it
    refused/[<partition>/]<number>.json            whose file was not what was sent, until the batch is published again
    calls/<content>/<count>.done              which call without a batch id has returned with this content

A claim is fulfilled once its staged content is gone. All but the content and the notes is plain JSON;
all but the content is written with put-if-absent, never changed and, but for `refused`, never removed: whoever
comes late can do no harm.

A call without an id cannot tell whether what lies under its key was begun by a dead call that it
repeats, or by another one that is at work with equal rows. It need not: of all calls that meet there, the
one whose token is in the note returns with it, and each of the others publishes anew under the next key.
So there are as many files as calls that have returned, and at most one more, which the next call takes.
"""

from __future__ import annotations

import contextlib
import hashlib
import secrets
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from mirrorlib.errors import StoreError
from mirrorlib.landing.metadata.declared import TableMetadata
from mirrorlib.landing.poll import AFTER_NUMBERS
from mirrorlib.landing.publish.known import STATE
from mirrorlib.names import extension_of, sequence_name, sequence_number
from mirrorlib.store import Store, contents
from mirrorlib.store.records import read_record, record_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class FileSequence:
    """One sequence of files: a table folder, or one partition folder of it."""

    table: str  # the table's name, for messages
    folder: str  # the table folder, relative to the zone
    # The partition folder, relative to the table folder; `""` for the table folder itself.
    partition: str = ""
    # What change files' names end in, without the dot; what has another extension is nobody's, whatever its number.
    extensions: tuple[str, ...] = TableMetadata().numbered

    @property
    def files(self) -> str:
        """Return the folder of the change files."""
        return _joined(self.folder, self.partition)

    def state(self, kind: str, *steps: str) -> str:
        """Return the folder of claims, of staged content or of batches, or what is in it."""
        return _joined(self.folder, STATE, kind, self.partition, *steps)

    def record(self, key: str, number: int) -> str:
        """Return the path of a batch's record."""
        return self.state("batches", key, sequence_name(number, "json"))

    def claim(self, number: int) -> str:
        """Return the path of a number's claim."""
        return self.state("claims", sequence_name(number, "json"))

    def refused(self, claim: Claim) -> str:
        """Return the path of the note that a claim's file was not what was sent."""
        return self.state("refused", sequence_name(claim.number, "json"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Content:
    """A change file before it has a name."""

    data: bytes = field(repr=False)
    extension: str  # without the dot
    markers: Mapping[str, int]  # how many rows of each kind there are, by the marker's name


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One call of a publisher, which may publish to several partition folders, and may be repeated."""

    # Names the batch: by its id; without one by its content, and how often that was published.
    key: str
    batch_id: str | None  # as the caller gave it
    fingerprint: str  # of the rows as they were given, whatever the table's schema makes of them
    # The path of the note that the call has returned; None for a batch with an id, which is the same batch for ever.
    note: str | None = None
    token: str = ""  # random; tells whose note it is
    # The number that its file has to follow on; None where any that is free will do.
    follows: int | None = None


def recognize_call(zone: Store, folder: str, fingerprint: str, batch_id: str | None) -> Call:
    """Find out which batch a call is about: without an id, the one that was begun and has not returned."""
    if batch_id:  # an empty one names nothing: a variable may be empty
        key = f"id-{hashlib.sha256(batch_id.encode()).hexdigest()}"
        return Call(key=key, batch_id=batch_id, fingerprint=fingerprint)
    calls = _joined(folder, STATE, "calls", fingerprint)
    count = 1 + largest_number(zone, calls)
    key, note = f"content-{fingerprint}-{count}", f"{calls}/{sequence_name(count, 'done')}"
    token = secrets.token_hex(16)
    return Call(key=key, batch_id=None, fingerprint=fingerprint, note=note, token=token)


def largest_number(
    zone: Store, folder: str, after: int = 0, extensions: Collection[str] = ("json", "done")
) -> int:
    """Return the largest number that a file of a folder is named by; 0 when none is, from *after* on.

    The *extensions* of change files are their table's.
    """
    files = zone.files_after(folder, f"{after:020d}", before=AFTER_NUMBERS)
    if files is None:
        files = contents(zone, folder).files
    names = (file.name for file in files if extension_of(file.name) in extensions)
    return max((sequence_number(name) or 0 for name in names), default=0)


def note_return(zone: Store, call: Call) -> bool:
    """Note that a call returns; False when another with equal rows has returned with what lies under its key.

    Raises `StoreError` where nobody can tell; the call has not returned then.
    """
    if call.note is None:
        return True
    mine = call.token.encode()
    with contextlib.suppress(StoreError):  # the answer may be all that was lost
        if zone.put_new(call.note, mine):
            return True
    if zone.read(call.note) is None:
        zone.put_new(call.note, mine)
    return zone.read(call.note) == mine


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """A number, and the one batch that it belongs to."""

    number: int  # the sequence number; 0 before it is given one
    key: str  # see `Call`, also for *batch_id* and *fingerprint*
    batch_id: str | None
    fingerprint: str
    staged: str  # the path of the staged content, relative to the zone; no other claim has it
    sha256: str  # of the content
    size: int  # bytes
    markers: Mapping[str, int]  # how many rows of each kind there are, by the marker's name

    @property
    def file(self) -> str:
        """Return the change file's name."""
        return sequence_name(self.number, self.staged.rpartition(".")[2])

    @property
    def rows(self) -> int:
        """Return how many rows there are."""
        return sum(self.markers.values())

    def to_json(self) -> bytes:
        """Write it down."""
        return record_bytes(asdict(self))

    @classmethod
    def read(cls, zone: Store, path: str) -> Claim | None:
        """Read a claim or a batch's record; None when there is none. Raises what `read_record` does."""
        names = [field.name for field in fields(cls)]  # earlier claims say more

        def revive(value: Mapping[str, Any]) -> Claim:
            return cls(**{name: value[name] for name in names})

        return read_record(zone, path, revive, "the claim of a number")

    def write(self, zone: Store, path: str) -> bool:
        """Write it unless there is a claim; True when the one there is this very one.

        A store may repeat a call whose answer was lost, and meet its own file.
        """
        if zone.put_new(path, self.to_json()):
            return True
        there = Claim.read(zone, path)
        return there is not None and there.staged == self.staged


def _joined(*parts: str) -> str:
    return "/".join(part for part in parts if part)
