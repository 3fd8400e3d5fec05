"""Show what it takes to open a batch's files where answers are waited for: `python benchmarks/opening.py`.

The store is a local folder each of whose requests takes so many milliseconds; no Spark is started. One side opens a
file after the other, the other as many at once as are opened of an object store.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any, BinaryIO, cast

from data import make_changes, write_file
from workloads import timed

from mirrorlib.ingest.batch.open_batch import prepare_files
from mirrorlib.ingest.files.source import Source
from mirrorlib.journal.entries import Policies
from mirrorlib.store import LentFile, LocalStore, ObjectStore, StoredFile, contents


class Slow(LocalStore):
    """A store that takes a while to answer, and counts how often it is asked."""

    def __init__(self, root: Path, wait: float, at_once: int) -> None:
        super().__init__(root)
        self.at_once, self.asked, self._wait = at_once, 0, wait

    def answer(self) -> None:
        """Let a request be waited for."""
        self.asked += 1
        time.sleep(self._wait)

    def stat(self, path: str) -> StoredFile | None:
        """Look at a file."""
        self.answer()
        return super().stat(path)

    def open_file(self, path: str) -> BinaryIO:
        """Open a file, each read of which is a request."""
        self.answer()
        return cast("BinaryIO", _SlowFile(super().open_file(path), self))


class _SlowFile(LentFile):
    def __init__(self, file: BinaryIO, store: Slow) -> None:
        super().__init__(file)
        self._store = store

    def read(self, size: int = -1, /) -> bytes:
        self._store.answer()
        return super().read(size)


def main() -> None:
    """Measure and print a line for each side."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, default=100, help="of ten rows each")
    parser.add_argument("--wait", type=float, default=20, help="milliseconds that a request takes")
    parser.add_argument("--rounds", type=int, default=3, help="the median counts")
    given = parser.parse_args()
    medians = {}
    with tempfile.TemporaryDirectory(prefix="mirrorlib-opening-") as folder:
        (Path(folder) / "t").mkdir()
        for number in range(1, given.files + 1):
            write_file(Path(folder) / "t", number, make_changes(1_000, 10, newest=1.0, salt=number))
        for at_once in (1, ObjectStore.at_once):
            store = Slow(Path(folder), given.wait / 1_000, at_once)
            files = contents(store, "t").files
            rounds = [timed(_open, store, files) for _ in range(given.rounds)]
            medians[at_once] = statistics.median(rounds)
            asked = store.asked / given.rounds / len(files)
            print(f"{at_once} at once: {medians[at_once]:.2f} s, {asked:.1f} requests a file")
    one, many = medians.values()
    print(f"{one / many:.1f} times as fast")


def _open(store: Slow, files: tuple[StoredFile, ...]) -> None:
    keys: dict[str, Any] = {"keys": ("id",), "upsert_default": False, "insert_policy": "append"}
    policies = Policies(evolution="widen", ntz="utc", **keys)
    found = prepare_files(Source(zone=store, table="t", folder="t", policies=policies), files, ())
    if len(found.landed) < len(files):
        raise SystemExit(str(found.fault))


if __name__ == "__main__":
    main()
