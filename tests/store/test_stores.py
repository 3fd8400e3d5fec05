"""Stores: a folder and real servers of S3's and Azure Blob's protocols, from the listing to a whole mirror."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator, Sequence
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import obstore.store
import pyarrow as pa
import pytest
from azure.storage.blob import BlobServiceClient

import mirrorlib
from mirrorlib.errors import JournalError, StoreError
from mirrorlib.journal.disk import Journal, open_state
from mirrorlib.landing.poll import see_next
from mirrorlib.names import parse_name, sequence_name
from mirrorlib.platform.session import connectors_for
from mirrorlib.store import ObjectStore, Store, StoredFile, contents, copy_file, open_store
from oracle import ChangeFile, assert_same_rows, multiset, replay, replay_feed, state_at
from polls import FOLDER, counting
from promises import check_promises
from servers import lack

CHILD = Path(__file__).with_name("s3_child.py")
ROUND_TRIPS = Path(__file__).parents[1] / "round_trips.py"
AZURE_ACCOUNT = "devstoreaccount1"  # account and key that Azurite documents
AZURE_KEY = (
    "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
)
PATIENCE = 900  # seconds: the first start downloads half a gigabyte of connector
FILES = (
    [{"id": 1, "v": "a"}, {"id": 2, "v": "a"}, {"id": 3, "v": "a"}],
    [
        {"id": 1, "v": "b", "__rowMarker__": 1},
        {"id": 2, "v": None, "__rowMarker__": 2},
        {"id": 4, "v": "b", "__rowMarker__": 4},
    ],
    [{"id": 4, "v": "c", "__rowMarker__": 1}, {"id": 2, "v": "c", "__rowMarker__": 0}],
)


@pytest.fixture(scope="module")
def s3() -> Iterator[str]:
    """Start a server of S3's protocol and give its address."""
    from moto.server import ThreadedMotoServer  # takes a second

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture(scope="module")
def azure() -> Iterator[str]:
    """Start a server of Azure Blob's protocol and give its address; `make` installs it where there is npm."""
    installed = Path(sys.prefix) / "azurite" / "node_modules" / ".bin"
    command = shutil.which("azurite-blob", path=f"{installed}{os.pathsep}{os.environ['PATH']}")
    if command is None:
        lack("azurite", "it is not installed: npm install -g azurite")
    options = ["--skipApiVersionCheck", "--silent", "--inMemoryPersistence", "--disableTelemetry"]
    port = _free_port()
    with subprocess.Popen([command, *options, "--blobPort", str(port)]) as server:
        _wait_for(port)
        yield f"http://127.0.0.1:{port}/{AZURE_ACCOUNT}"
        server.terminate()


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return int(taken.getsockname()[1])


def _wait_for(port: int) -> None:
    end = time.monotonic() + 60
    while time.monotonic() < end:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
            return
        time.sleep(0.05)
    msg = "azurite does not answer"
    raise AssertionError(msg)


@pytest.fixture
def bucket(s3: str, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> str:
    """Make a bucket, and let the environment lead to it."""
    for name, value in {
        "AWS_ACCESS_KEY_ID": "somebody",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": s3,
        "AWS_ALLOW_HTTP": "true",
    }.items():
        monkeypatch.setenv(name, value)
    name = _place_name(request)
    _put(f"{s3}/{name}")
    return f"s3://{name}"


def _put(url: str) -> None:
    make = urllib.request.Request(url, method="PUT")  # noqa: S310  # our own server
    urllib.request.urlopen(make).close()  # noqa: S310  # the same


@pytest.fixture
def container(azure: str, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> str:
    """Make a container, and let the environment lead to it."""
    for name, value in {
        "AZURE_STORAGE_ACCOUNT_NAME": AZURE_ACCOUNT,
        "AZURE_STORAGE_ACCOUNT_KEY": AZURE_KEY,
        "AZURE_STORAGE_ENDPOINT": azure,
        "AZURE_ALLOW_HTTP": "true",
    }.items():
        monkeypatch.setenv(name, value)
    name = _place_name(request)
    with BlobServiceClient(azure, credential=AZURE_KEY) as client:
        client.create_container(name)
    return f"az://{name}"


def _place_name(request: pytest.FixtureRequest) -> str:
    return re.sub("[^a-z0-9]+", "-", request.node.name.lower())[:60].strip("-")


@pytest.fixture
def folder(tmp_path: Path) -> str:
    """Give a folder of this machine."""
    return str(tmp_path)


@pytest.fixture(params=["folder", "bucket", "container"])
def place(request: pytest.FixtureRequest) -> str:
    """Give a place in each store in turn."""
    return str(request.getfixturevalue(request.param))


def test_the_store_keeps_every_promise(place: str) -> None:
    """Put-if-absent is the server's own."""
    check_promises(open_store(f"{place}/somewhere"))


def test_a_store_copies_between_two_places_of_its_own(place: str, tmp_path: Path) -> None:
    """As files come from a zone into a table; neither another store's file nor another cloud's namesake's is its own."""
    zone, table = open_store(f"{place}/zone%2F 1"), open_store(f"{place}/table")
    zone.put("a/one", b"content")
    file = zone.stat("a/one")
    assert file is not None

    assert copy_file(zone, file, table, "b/copy")
    assert b"content" == open_store(place).read("zone%2F 1/a/one")  # as Spark takes a name
    assert b"content" == table.read("b/copy")
    assert b"content" == zone.read("a/one")
    if "://" in place:
        assert not copy_file(zone, replace(file, path="a/gone"), table, "b/gone")
        elsewhere = ObjectStore(f"gs://{place.partition('://')[2]}", obstore.store.MemoryStore())
        assert not copy_file(zone, file, elsewhere, "b/elsewhere")
        assert not copy_file(zone, file, open_store(tmp_path), "copy")
        assert not copy_file(open_store(tmp_path), file, zone, "copy")


def test_an_object_that_stands_for_a_folder_is_none_of_its_files(bucket: str) -> None:
    """Consoles and Hadoop make one of no bytes; in a plain folder, one in `x.parquet/` would be a file cut short."""
    store = open_store(f"{bucket}/zone")
    for key in ("zone/", "zone/orders/", "zone/orders/x.parquet/"):
        _put(f"{os.environ['AWS_ENDPOINT_URL']}/{bucket[5:]}/{key}")
    listed = [store.list_folder(folder) for folder in ("", "orders", "orders/x.parquet", "gone")]

    _put(f"{os.environ['AWS_ENDPOINT_URL']}/{bucket[5:]}/zone/odd/a%01b")
    with pytest.raises(StoreError, match=r"a.x01b.*Remove or rename that object"):
        store.list_folder("odd")

    assert [("orders",), ("x.parquet",), (), None] == [one and one.folders for one in listed]
    assert [(), (), (), None] == [one and one.files for one in listed]


def test_what_is_gone_from_a_page_hinders_nobody_to_remove_the_rest() -> None:
    """Another may be first; and on Google, Hadoop leaves objects for folders whose names nobody can give."""
    held = obstore.store.MemoryStore()

    def delete(paths: Sequence[str]) -> None:
        if "a/stand-in" in paths:
            raise FileNotFoundError
        obstore.delete(held, paths)

    store = ObjectStore("gs://bucket", held, delete)
    for name in ("x", "stand-in", "y"):
        store.put(f"a/{name}", b"")

    store.delete_folder("a")

    assert ("a/stand-in",) == tuple(file.path for file in contents(store, "a").files)


@pytest.mark.thorough
def test_a_folder_of_many_pages_is_listed_whole_and_looked_at_in_little(place: str) -> None:
    """A page holds a thousand names. What follows a number costs one listing, or three looks where the store has another order."""
    store = open_store(f"{place}/many")
    names = [sequence_name(number) for number in range(1, 1_101)]
    for name in names:
        store.put(f"orders/{name}", b"x")

    listed = store.list_folder("orders")

    assert listed is not None
    assert names == [file.name for file in listed.files]
    assert tuple(names[:2]) == store.first_names("orders", 2)
    assert place.startswith("s3:") == store.seeks
    newest = listed.files[-1]
    counted, calls = counting(store)
    assert names[-1:] == follow(counted, newest)
    assert ({"files_after": 1} if store.seeks else {"stat": 3}) == calls.asked()
    assert (names[89:] if store.seeks else None) == follow(store, listed.files[89])


def follow(store: Store, newest: StoredFile) -> list[str] | None:
    """Look for what follows a file."""
    seen = see_next(store, FOLDER, (newest.name, newest.etag), ["parquet"])
    return None if seen is None else [file.name for file in seen.files]


def test_a_store_that_gives_what_lies_before_is_not_believed(container: str) -> None:
    """Azurite takes the name to begin at, and begins at the first; so each file is looked at alone."""
    store = ObjectStore(container, obstore.store.from_url(container))
    for number in range(1, 5):
        store.put(f"orders/{sequence_name(number)}", b"x")
    newest = store.stat(f"orders/{sequence_name(3)}")
    assert newest is not None
    store.seeks = True

    found = follow(store, newest)

    assert [sequence_name(3), sequence_name(4)] == found
    assert not store.seeks


@pytest.mark.parametrize("bucket, seeks", [("data", True), ("data--use1-az4--x-s3", False)])
def test_a_directory_bucket_lists_in_no_order(bucket: str, seeks: bool) -> None:
    """Its name says what it is."""
    raw = obstore.store.S3Store(bucket, region="us-east-1", skip_signature=True)

    assert seeks == ObjectStore(f"s3://{bucket}/zone", raw).seeks


class Unordered(BaseHTTPRequestHandler):
    """A bucket of some names, twenty a page, the last ones first."""

    def do_GET(self) -> None:
        """Give a page of the listing."""
        asked = parse_qs(urlsplit(self.path).query)
        begin = int(asked.get("continuation-token", ["0"])[0])
        names = [f"{number:03d}" for number in range(100, 0, -1)][begin : begin + 20]
        found = "".join(
            f"<Contents><Key>{asked['prefix'][0]}{name}</Key><Size>1</Size><ETag>x</ETag>"
            "<LastModified>2026-11-27T10:00:00Z</LastModified></Contents>"
            for name in names
        )
        more = f"<NextContinuationToken>{begin + 20}</NextContinuationToken>" if begin < 80 else ""
        data = f"<ListBucketResult>{found}{more}</ListBucketResult>".encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *arguments: object) -> None:
        """Say nothing."""


def test_the_first_names_of_a_directory_bucket_are_of_all() -> None:
    """The newest plan has the first one: of one page alone, the journal would look as if it were set back."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Unordered) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        raw = obstore.store.S3Store(
            "data--use1-az4--x-s3",
            endpoint=f"http://127.0.0.1:{server.server_port}",
            client_options={"allow_http": True},
            skip_signature=True,
            region="us-east-1",
        )
        store = ObjectStore("s3://data--use1-az4--x-s3", raw)

        assert ("001", "002") == store.first_names("plans", 2)

        server.shutdown()
        thread.join()


def test_a_store_without_a_conditional_put_is_refused(
    bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one is that is set up so; nothing is left behind."""
    monkeypatch.setenv("AWS_CONDITIONAL_PUT", "disabled")
    zone = open_store(f"{bucket}/zone")

    with pytest.raises(JournalError, match="has no put-if-absent"):
        open_state(zone)
    with pytest.raises(StoreError, match="has no put-if-absent"):
        mirrorlib.LandingZoneWriter(zone).table("dbo/orders").write(pa.table({"id": [1]}))

    assert zone.list_folder("") is None


def test_a_zone_is_published_and_checked(place: str) -> None:
    """Metadata first, then numbered files; a strict reader finds nothing."""
    table = mirrorlib.LandingZoneWriter(f"{place}/zone").table("dbo/orders", keys="id")
    for rows in FILES:
        table.write(pa.Table.from_pylist(rows))

    assert [] == list(mirrorlib.check(f"{place}/zone").findings)
    listed = open_store(f"{place}/zone").list_folder("dbo.schema/orders")
    assert listed is not None
    assert [1, 2, 3] == [int(f.name[:20]) for f in listed.files if f.name.endswith(".parquet")]


def test_of_two_who_write_one_plan_the_second_reads_the_first(place: str) -> None:
    """The journal's put-if-absent is the store's, and is tried before anything rests on it."""
    state = open_store(f"{place}/state")
    open_state(state)
    journal = Journal(state, parse_name("dbo/orders"))

    first, second = (journal.begin_life("first seen", place, 1) for _ in range(2))

    assert first == second
    assert (first,) == journal.lives()


@pytest.mark.thorough
@pytest.mark.slow
def test_a_zone_in_a_bucket_becomes_a_table_in_a_bucket(bucket: str) -> None:
    """Zone, table and journal in S3: file by file, by both roads, as the oracle says; the feed too."""
    task = json.dumps(
        {"zone": f"{bucket}/zone%201", "target": f"{bucket}/my%20tables", "files": FILES}
    )

    ran = subprocess.run(
        [sys.executable, str(CHILD), task],
        capture_output=True,
        timeout=PATIENCE,
        check=False,
        text=True,
    )

    assert 0 == ran.returncode, ran.stderr[-3000:]
    found = json.loads(ran.stdout.splitlines()[-1])
    files = [change_file(rows) for rows in FILES]
    expected = replay(files, keys=["id"]).multiset
    assert_same_rows(expected, multiset(found["rows"]))
    states = replay_feed(found["feed"])
    assert_same_rows(expected, state_at(states, max(states)))
    state = mirrorlib.status(f"{bucket}/my%20tables").tables[0]
    assert ("current", 1, "") == (state.state, state.position, state.reason)  # made anew


@pytest.mark.thorough
@pytest.mark.slow
def test_every_type_comes_back_from_a_bucket(bucket: str) -> None:
    """Published, applied and read back in S3, in both formats: see `tests/test_round_trip.py` for a folder."""
    ran = subprocess.run(
        [sys.executable, str(ROUND_TRIPS), "3", bucket],
        capture_output=True,
        timeout=PATIENCE,
        check=False,
        text=True,
    )

    assert 0 == ran.returncode, ran.stderr[-3000:]


def change_file(rows: list[dict[str, object]]) -> ChangeFile:
    """Give a file to the oracle."""
    data = tuple({k: v for k, v in row.items() if k != "__rowMarker__"} for row in rows)
    markers = tuple(int(str(row.get("__rowMarker__", 0))) for row in rows)
    return ChangeFile(columns=("id", "v"), rows=data, markers=markers)


def test_a_url_says_which_connector_spark_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of PySpark's own Hadoop version; local paths need none, and no credential gets into a conf."""
    for name in ("AWS_ENDPOINT_URL", "AWS_ENDPOINT", "AWS_REGION", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name, raising=False)
    assert ([], {}) == connectors_for("/data/zone", "x")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")

    packages, conf = connectors_for("s3://bucket/zone", "abfss://c@a.dfs.core.windows.net/t")

    assert ["hadoop-aws", "hadoop-azure"] == [name.split(":")[1] for name in packages]
    assert "http://127.0.0.1:1" == conf["spark.hadoop.fs.s3a.endpoint"]
    assert "secret" not in str(conf)
    assert packages[:1] == connectors_for("delta:s3://bucket/copy")[0]
