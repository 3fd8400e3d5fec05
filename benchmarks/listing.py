"""Show what a look at a landing zone costs: folders in full against the next names only, in one process.

No Spark is started: what is measured is `open_folder`, which a run calls once for each table when nothing is new.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import obstore.store

from mirrorlib.ingest.applying import Applying
from mirrorlib.ingest.files.history import History
from mirrorlib.ingest.files.incremental_listing import IncrementalListing, read_listed
from mirrorlib.ingest.files.table_folder import open_folder, policies_of
from mirrorlib.ingest.options import Options
from mirrorlib.ingest.report import TableReport
from mirrorlib.journal.disk import Journal
from mirrorlib.journal.entries import Done, Entry, Plan, PlannedFile, new_attempt, now
from mirrorlib.names import TableName, sequence_name
from mirrorlib.store import Folder, ObjectStore, Store, open_store

_METADATA = json.dumps({"keyColumns": ["id"]}).encode()
_FULL = Options(listing="full")
_NEXT = Options(listing="incremental")


@dataclass(kw_only=True)
class Zone:
    """A zone to be looked at.

    Attributes:
        title: for people.
        store: its files.
        requests: how many requests the store has had.
        publish: adds a file to a table.
        tables: how many it has.
        files: how many files each has.

    """

    title: str
    store: Store
    requests: Callable[[], int]
    publish: Callable[[str, int], object]
    tables: int
    files: int


class CountingStore:
    """A store that counts what it asks of a disk: a folder's names, and every file that it looks at."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.requests = 0

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401  # whatever the store has
        found = getattr(self._store, name)
        return self._counted(found) if callable(found) else found

    def _counted(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*args: object, **more: object) -> Any:  # noqa: ANN401  # whatever the store gives
            given = call(*args, **more)
            self.requests += 1 + (len(given.files) if isinstance(given, Folder) else 0)
            return given

        return counted


def main() -> None:
    """Measure a local disk, then a server of S3's protocol."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--names", type=int, default=1_000_000, help="names of the long folder")
    parser.add_argument("--tables", type=int, default=1_000, help="tables of 100 files")
    parser.add_argument(
        "--scale", type=int, default=20, help="the S3 server gets so many times less of both"
    )
    parser.add_argument("--folder", help="where to work (default: the machine's temporary folder)")
    arguments = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="mirrorlib-listing-", dir=arguments.folder))
    shapes = ((arguments.tables, 100), (1, arguments.names))
    try:
        for tables, files in shapes:
            measure(local_zone(folder / f"{tables}", tables, files))
    finally:
        shutil.rmtree(folder)
    print(
        f"\nThe S3 server (moto, in this process) is slow to fill: it gets {arguments.scale} times less."
    )
    with s3_server() as (address, served):
        for tables, files in shapes:
            fewer = (
                (tables // arguments.scale, files) if tables > 1 else (1, files // arguments.scale)
            )
            measure(s3_zone(address, lambda: len(served), *fewer))


def measure(zone: Zone) -> None:
    """Look at every table of a zone: the first time, again with nothing new, again with one new file each."""
    print(f"\n{zone.title}: {zone.tables:,} tables x {zone.files:,} files")
    names = [f"t{number}" for number in range(zone.tables)]
    state = ObjectStore("memory:///state", obstore.store.MemoryStore())
    first = look_at(zone, state, names, _NEXT)
    print(f"  first listing       full {first}")
    for name in names:
        apply_all(zone, state, name)
    for title, published in (("nothing new", ()), ("1 new file each", names)):
        for name in published:
            zone.publish(name, zone.files + 1)
        full, ours = (look_at(zone, state, names, options) for options in (_FULL, _NEXT))
        print(
            f"  {title:18}  full {full}   next names {ours}   "
            f"{full.requests / ours.requests:,.1f} x fewer requests, {full.seconds / ours.seconds:,.1f} x faster",
            flush=True,
        )


@dataclass(frozen=True, kw_only=True)
class Cost:
    """What looking at all tables has cost."""

    requests: int
    seconds: float

    def __str__(self) -> str:
        return f"{self.requests:>9,} requests {self.seconds:9.3f} s"


def look_at(zone: Zone, state: Store, names: Iterable[str], options: Options) -> Cost:
    """Look at every table once."""
    before, began = zone.requests(), time.perf_counter()
    for name in names:
        journal, folder = _table(state, name)
        history = History(journal, zone.store.url)
        listing = IncrementalListing(history, options, read_listed(journal.read_status()))
        opened = open_folder(zone.store, folder, history, incremental=listing)
        if not opened.listing.count:
            msg = f"{name} shows no file"
            raise RuntimeError(msg)
    return Cost(requests=zone.requests() - before, seconds=time.perf_counter() - began)


def apply_all(zone: Zone, state: Store, name: str) -> None:
    """Write into the journal that all files of a table were applied, as a run does; no row is read."""
    journal, folder = _table(state, name)
    life = journal.begin_life("first seen", zone.store.url, 1)
    last = zone.store.stat(f"{name}/{sequence_name(zone.files)}")
    opened = open_folder(zone.store, folder)
    if last is None or opened.metadata is None:
        msg = f"{name} lacks files"
        raise RuntimeError(msg)
    written = last.modified.isoformat()
    planned = PlannedFile(
        name=last.name, size=last.size, etag=last.etag, rows=0, modified=written, fingerprint=""
    )
    plan = Plan(
        life=life.uuid,
        batch=1,
        attempt=new_attempt(),
        zone=zone.store.url,
        files=(planned,),
        before={},
        after={"": zone.files},
        policies=policies_of(opened.metadata, opened.dialect, _NEXT),
        table_version=None,
        previous=None,
        listed_at=now(),
    )
    done = Done(
        outcome="applied", version=1, table_id=None, columns=(), table_bytes=0, kind="append", finished_at=now()
    )  # fmt: skip
    told = TableReport(table=name, state="waiting")
    course = Applying(told=told, zone=zone.store.url, others_wait=lambda: False)
    course.entry = Entry(
        plan=journal.write_plan(life, plan), done=journal.write_done(life, 1, done)
    )
    history = History(journal, zone.store.url)
    listing = IncrementalListing(history, _NEXT, None)
    open_folder(zone.store, folder, history, incremental=listing)
    course.listed = listing.result(course.entry)
    course.record(journal, course.report("current"))


def _table(state: Store, name: str) -> tuple[Journal, TableName]:
    table = TableName(None, name)
    return Journal(state, table), table


def local_zone(root: Path, tables: int, files: int) -> Zone:
    """Make a zone of empty files on a local disk."""

    def publish(name: str, number: int) -> None:
        os.close(os.open(root / name / sequence_name(number), os.O_CREAT | os.O_WRONLY))
        os.truncate(root / name / sequence_name(number), 1)

    for table in range(tables):
        (root / f"t{table}").mkdir(parents=True)
        (root / f"t{table}" / "_metadata.json").write_bytes(_METADATA)
        for number in range(1, files + 1):
            publish(f"t{table}", number)
    store = CountingStore(open_store(str(root)))
    return Zone(
        title="local disk (requests: a folder's names are one, and each file that is looked at)",
        store=cast("Store", store),
        requests=lambda: store.requests,
        publish=publish,
        tables=tables,
        files=files,
    )


@contextmanager
def s3_server() -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Start a server of S3's protocol; give its address and the requests that it has had, as WSGI tells them."""
    from moto.server import ThreadedMotoServer  # of the dev extra

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    served: list[dict[str, Any]] = []
    inner = server._server.app  # type: ignore[union-attr]  # noqa: SLF001  # to count what comes over the wire

    def counted(environ: Any, respond: Any) -> Any:  # noqa: ANN401  # WSGI's
        served.append(environ)
        return inner(environ, respond)

    server._server.app = counted  # type: ignore[union-attr]  # noqa: SLF001  # the same
    host, port = server.get_host_and_port()
    address = f"http://{host}:{port}"
    os.environ |= {
        "AWS_ACCESS_KEY_ID": "somebody",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": address,
        "AWS_ALLOW_HTTP": "true",
    }
    yield address, served
    server.stop()


def s3_zone(address: str, requests: Callable[[], int], tables: int, files: int) -> Zone:
    """Make a zone of small objects in a bucket of its own."""
    make = urllib.request.Request(f"{address}/zone-{tables}", method="PUT")  # noqa: S310  # our own server
    urllib.request.urlopen(make).close()  # noqa: S310  # the same
    store = open_store(f"s3://zone-{tables}/zone")

    def publish(name: str, number: int) -> None:
        store.put(f"{name}/{sequence_name(number)}", b"x")

    for table in range(tables):
        store.put(f"t{table}/_metadata.json", _METADATA)
        for number in range(1, files + 1):
            publish(f"t{table}", number)
    return Zone(
        title="S3 (requests that its server has answered)",
        store=store,
        requests=requests,
        publish=publish,
        tables=tables,
        files=files,
    )


if __name__ == "__main__":
    main()
