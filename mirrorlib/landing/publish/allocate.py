"""Publish content under the next number, once, whatever crashes and whoever else publishes.

In: a store, a place and content. Out: the claim under which the content is visible. The steps, each
durable before the next:

1. *Stage* the whole content under a name that readers ignore.
2. *Claim* the next number for it, put-if-absent: of two writers one gets it.
3. *Record* the number under the batch's key.
4. *Publish*: move the staged content to the number's name, unless there is a file; look at it again.

Only the newest claim of a place can be unfulfilled, because nobody claims a number before the one
below it is fulfilled, and anybody can fulfil it: the content is there. So there is no gap that lasts.
A repetition finds its batch by the record; `claims` says how a batch without an id is known. Killed in the instant
between the last note and the return, a call without an id has returned: nobody but its caller can know better.
"""

from __future__ import annotations

import hashlib
import logging
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from operator import attrgetter

import pyarrow as pa

from mirrorlib.errors import ChangeFileError, FileChangedError, TableBusyError
from mirrorlib.events import pick
from mirrorlib.landing.parquet import open_parquet
from mirrorlib.landing.publish.claims import Call, Claim, Content, FileSequence, largest_number
from mirrorlib.names import sequence_name
from mirrorlib.store import Store, contents

LOG = logging.getLogger(__name__)
_ABANDONED = timedelta(days=7)  # content without a claim for so long has no writer any more


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedFile:
    """One change file that is visible.

    Attributes:
        file: relative to the table folder.
        number: its sequence number.
        markers: rows by the marker's name; rows without a marker count as what they mean.
        size: bytes.
        repeated: it had been published before, or begun, and was not published twice. (Begun by a call
            that failed, or by another writer's with equal rows, which has published anew instead.)

    """

    file: str
    number: int
    rows: int
    markers: Mapping[str, int]
    size: int
    repeated: bool


def publish_next(
    zone: Store, place: FileSequence, call: Call, content: Content, *, after: int = 0
) -> PublishedFile:
    """Publish content under the next sequence number; where the store fails, repeat the call.

    *after* is the last number that this process knows to be taken; others may have gone on from there.
    """
    number = _fulfil_newest(zone, place, newest_number(zone, place, after))
    claim = None
    while (found := _find(zone, place, call)) is None:
        if call.follows not in {None, number}:
            if claim is not None:
                zone.delete(claim.staged)
            msg = "another batch was published since the caller looked at the table folder"
            last = sequence_name(number) if number else "no file"
            step = "See what follows on it, and publish that."
            raise TableBusyError(msg, table=place.table, found=last, next_step=step)
        if claim is None:
            claim = _staged(zone, place, call, content)
            if not after:
                _sweep(zone, place)
        claim = replace(claim, number=number + 1)
        if claim.write(zone, place.claim(number + 1)):
            return _landed(place, _fulfil(zone, place, claim, content.data))
        number = _fulfil_newest(zone, place, number)
    if claim is not None:  # the same batch, published by somebody else at the same moment
        zone.delete(claim.staged)
    found = fulfilled(zone, place, found)
    if zone.stat(place.refused(found)) is not None:
        found = _sent_again(zone, place, found, content)
    return _landed(place, found, repeated=True)


def published_before(zone: Store, place: FileSequence, call: Call) -> PublishedFile | None:
    """Find the file of a batch that was published, or begun, before; None where it has to be sent, or sent again."""
    found = _find(zone, place, call)
    if found is None or zone.stat(place.refused(found)) is not None:
        return None
    return _landed(place, fulfilled(zone, place, found), repeated=True)


def newest_number(zone: Store, place: FileSequence, after: int = 0) -> int:
    """Find the last number that is taken, by a file or a claim; 0 when none is. *after* is, and the first to look at.

    Files are listed first: readers move them away, and keep the newest. Where none is left, claims may begin above 1.
    """
    visible = largest_number(zone, place.files, after, place.extensions)
    if visible and zone.stat(place.claim(visible + 1)) is None:
        return max(after, visible)
    return max(after, visible, largest_number(zone, place.state("claims"), after))


def newest_claim(zone: Store, place: FileSequence, number: int) -> tuple[int, Claim | None]:
    """Find the last number that is taken, and its claim where it has one.

    *number* is one that was taken, and not long ago: claims above it are looked for one by one.
    """
    newest = Claim.read(zone, place.claim(number)) if number else None
    while (later := Claim.read(zone, place.claim(number + 1))) is not None:
        number, newest = number + 1, later
    return number, newest


def _fulfil_newest(zone: Store, place: FileSequence, number: int) -> int:
    """See to it that the newest claim is fulfilled; return its number."""
    number, newest = newest_claim(zone, place, number)
    return number if newest is None else fulfilled(zone, place, newest).number


def fulfilled(zone: Store, place: FileSequence, claim: Claim) -> Claim:
    """See to it that a claim is fulfilled, whose writer may be at work this moment, or dead."""
    return claim if zone.stat(claim.staged) is None else _fulfil(zone, place, claim)


def _fulfil(zone: Store, place: FileSequence, claim: Claim, data: bytes | None = None) -> Claim:
    """Make a claim's content visible, which is *data* when it is at hand; return the claim under which it is.

    Several may do this for one claim at once: each step is done once, by whoever comes first.
    """
    while True:
        zone.put_new(place.record(claim.key, claim.number), claim.to_json())
        path = f"{place.files}/{claim.file}"
        if zone.move_new(claim.staged, path, data):
            break
        there = zone.read(path)
        if there is not None and hashlib.sha256(there).hexdigest() != claim.sha256:
            claim = _moved_on(zone, place, claim)
        elif there is not None:
            zone.delete(claim.staged)
            break
        elif zone.stat(claim.staged) is None:  # another has done it, and a reader has moved it away
            return claim
    _verify(zone, place, claim)
    return claim


def _sent_again(zone: Store, place: FileSequence, claim: Claim, content: Content) -> Claim:
    """Publish a batch under its own number again, whose file was not what was sent and has been deleted.

    Only then: a file that is gone otherwise, a reader may have moved away.
    """
    if zone.put_new(f"{place.files}/{claim.file}", content.data):
        digest = hashlib.sha256(content.data).hexdigest()  # another version may have encoded it
        claim = replace(claim, sha256=digest, size=len(content.data))
    _verify(zone, place, claim)
    zone.delete(place.refused(claim))
    return claim


def _moved_on(zone: Store, place: FileSequence, claim: Claim) -> Claim:
    """Claim the next number: a program that knows no claims has put a file under ours."""
    LOG.warning("%s: %s is another program's; going on above it", place.table, claim.file)
    number = claim.number + 1
    while not (claim := replace(claim, number=number)).write(zone, place.claim(number)):
        number += 1
    return claim


def _staged(zone: Store, place: FileSequence, call: Call, content: Content) -> Claim:
    """Stage content, under a claim without a number that nobody has made yet."""
    claim = Claim(
        number=0,
        **pick(call, "key", "batch_id", "fingerprint"),
        staged=place.state("staged", f"{secrets.token_hex(16)}.{content.extension}"),
        sha256=hashlib.sha256(content.data).hexdigest(),
        size=len(content.data),
        markers=content.markers,
    )
    zone.put(claim.staged, content.data)
    return claim


def _find(zone: Store, place: FileSequence, call: Call) -> Claim | None:
    """Find the claim of a batch that was published, or begun; of several the last, see `_moved_on`."""
    newest = largest_number(zone, place.state("batches", call.key))
    found = Claim.read(zone, place.record(call.key, newest)) if newest else None
    if found is not None and found.fingerprint != call.fingerprint:
        msg = "the batch id was used before, for other content"
        step = "Give every batch an id of its own, and the same content whenever it is repeated."
        raise FileChangedError(
            msg, table=place.table, file=found.file, found=call.batch_id, next_step=step
        )
    return found


def _landed(place: FileSequence, claim: Claim, *, repeated: bool = False) -> PublishedFile:
    LOG.info("%s: published %s/%s, %d rows", place.table, place.files, claim.file, claim.rows)
    return PublishedFile(
        file=f"{place.partition}/{claim.file}".removeprefix("/"),
        **pick(claim, "number", "rows", "markers", "size"),
        repeated=repeated,
    )


def _verify(zone: Store, place: FileSequence, claim: Claim) -> None:
    """Look at what is visible now: its size, and its footer, or all of it where there is none."""
    path = f"{place.files}/{claim.file}"
    there = zone.stat(path)
    if there is None:  # a reader was quick to move it away
        return
    cause = None
    try:
        if there.size == claim.size and _is_complete(zone, path, claim):
            return
    except (pa.ArrowException, OSError) as exc:
        cause = exc
    zone.put_new(place.refused(claim), claim.to_json())
    msg = f"the published file is not what was sent, {claim.size:,} bytes with {claim.rows:,} rows"
    step = "Delete the file and publish the batch again; see whether anybody else writes to the table folder."
    found = f"{there.size:,} bytes"
    raise ChangeFileError(
        msg, table=place.table, file=claim.file, found=found, next_step=step
    ) from cause


def _is_complete(zone: Store, path: str, claim: Claim) -> bool:
    if not path.endswith(".parquet"):
        data = zone.read(path)
        return data is None or hashlib.sha256(data).hexdigest() == claim.sha256
    with zone.open_file(path) as file:
        return bool(open_parquet(file).metadata.num_rows == claim.rows)


def _sweep(zone: Store, place: FileSequence) -> None:
    """Remove what writers left that died before they had a number. The newest claim is fulfilled now.

    How old it is, the store's own clock tells, by what was staged a moment ago: ours may be days ahead.
    """
    staged = sorted(contents(zone, place.state("staged")).files, key=attrgetter("modified"))
    for file in staged:
        if staged[-1].modified - file.modified > _ABANDONED:
            zone.delete(file.path)
