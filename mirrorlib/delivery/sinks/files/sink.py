"""Deliver windows as files of a folder or an object store: each once, complete when its name is visible.

In: windows. Out: files, called as docs/export.md says. Steps, each of which may be the last of a process, and is done
once whoever repeats it:

1. Spark writes an attempt's files under `_staging`, where nobody looks.
2. A claim, put-if-absent, says which attempt counts, and what its files will be called.
3. Each file is given its name. It is whole then.
4. The manifest gets its entry.
5. What was staged is removed, the claim with it: a late runner whose claim succeeds now finds the entry.

Guarantee: each window once, with the same files, for readers of names and of the manifest alike.
"""

from __future__ import annotations

from typing import get_args

from mirrorlib.delivery.sink import Delivery, check_same_window
from mirrorlib.delivery.sinks.files.manifest import File, ManifestEntry, Receiver
from mirrorlib.delivery.sinks.files.parts import FileFormat, write_parts
from mirrorlib.delta.sessions import side_by_side
from mirrorlib.errors import LandingZoneError, StoreError
from mirrorlib.events import pick
from mirrorlib.feed.exact_text import check_types
from mirrorlib.journal.entries import new_attempt, now
from mirrorlib.journal.streams import Stream
from mirrorlib.store import Store, open_store


class FilesSink:
    """A folder, or a prefix of an object store, that receives windows as files."""

    def __init__(self, store: Store, file_format: FileFormat = "parquet") -> None:
        self._store = store
        self._format = file_format

    def position(self, stream: Stream) -> int:
        """Return the number of the last window that is known to be there."""
        return Receiver(self._store, stream.table).last(stream)

    def deliver(self, delivery: Delivery) -> int | None:
        """Make the window visible, once."""
        receiver = Receiver(self._store, delivery.stream.table)
        place = "CSV" if self._format == "csv" else self._format
        check_types(delivery.frame, delivery.stream.table, place)
        window = receiver.admit(delivery)
        if receiver.last(delivery.stream) > delivery.plan.number:
            return None  # the stream has gone on; readers do not look back
        entry = receiver.entry(window) or self._finish(receiver, window, delivery)
        check_same_window(delivery, entry.until)
        receiver.tidy(entry)
        return entry.rows

    def _finish(self, receiver: Receiver, window: str, delivery: Delivery) -> ManifestEntry:
        """Make an attempt unless one counts already, and carry out the one that does."""
        claim = receiver.claim(window) or self._attempt(receiver, window, delivery)
        check_same_window(delivery, claim.until)
        if (there := receiver.entry(window)) is not None:
            return there  # before the claim could be made; its own files are tidied away
        side_by_side(
            lambda file: _show(receiver, window, file), claim.files, receiver.store.at_once
        )
        receiver.write_entry(claim)
        return claim

    def _attempt(self, receiver: Receiver, window: str, delivery: Delivery) -> ManifestEntry:
        """Write a window's files where nobody looks; return the claim that counts, this one or another's."""
        folder = receiver.staged(window, new_attempt())
        parts, rows = write_parts(delivery, self._store, folder, self._format)
        count = len(parts)
        # One file has the window's name, several say how many there are.
        names = [f"{window}.part-{number:05d}-of-{count:05d}" for number in range(1, count + 1)]
        names = [window] if count == 1 else names
        stream, plan = delivery.stream, delivery.plan
        claim = ManifestEntry(
            **pick(stream, "table", "consumer"),
            **pick(plan, "number", "kind", "reset", "after", "until", "until_at"),
            window=window,
            stream=stream.uuid,
            keys=delivery.keys,
            file_format=self._format,
            columns=tuple(
                {"name": field.name, "type": field.dataType.simpleString()}
                for field in delivery.frame.schema
            ),
            rows=rows,
            files=tuple(
                File(name=f"{name}.{self._format}", bytes=part.size, staged=part.path)
                for name, part in zip(names, parts, strict=True)
            ),
            delivered_at=now(),
        )
        receiver.write_claim(claim)
        return receiver.claim(window) or claim  # gone where another runner has come to the end


def open_sink(address: str, _mode: str) -> FilesSink:
    """Open `URL?format=parquet|jsonl|csv`; there is one mode."""
    url, _, options = address.partition("?")
    formats: dict[str, FileFormat] = {f"format={each}": each for each in get_args(FileFormat)}
    if options and options not in formats:
        msg = "files are exported with one option, the format"
        step = "Give files:URL?format=parquet, jsonl or csv."
        raise LandingZoneError(msg, found=options.partition("=")[0], next_step=step)
    return FilesSink(open_store(url), formats.get(options, "parquet"))


def _show(receiver: Receiver, window: str, file: File) -> None:
    """Give a staged file its name; several runners may do so at once.

    Moving is safe without "if absent": the name is the claim's, and one attempt at a time has a claim.
    """
    store, path = receiver.store, f"{receiver.folder}/{file.name}"
    there = store.stat(path)
    if there is None:
        try:
            store.move(file.staged, path)
        except StoreError:
            if store.stat(path) is None and store.stat(file.staged) is not None:
                raise
        there = store.stat(path)
    if there is not None and there.size == file.bytes:
        return
    if there is None and receiver.entry(window) is not None:
        return  # another runner came to the end, and a reader took the file away
    what = "was removed before its window was complete" if there is None else "is another file"
    msg = f"{store.url}/{path} {what}"
    step = "See who else writes there; then rewind the consumer to a snapshot."
    raise StoreError(msg, table=receiver.table, next_step=step)
