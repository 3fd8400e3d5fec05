"""Databricks volumes: databricks-sdk's own client against a server on this machine that speaks the Files API."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, unquote, urlsplit

import pyarrow as pa
import pytest

pytest.importorskip("databricks.sdk")

import mirrorlib
from mirrorlib.errors import StoreError
from mirrorlib.landing.publish.writer import LandingZoneWriter
from mirrorlib.store import Store
from mirrorlib.store.volumes import is_volume, open_volume
from promises import check_promises
from publishing import Fault, FaultyStore, batch, batches, publish

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

VOLUME = "/Volumes/main/default/landing"
FILES, FOLDERS = "/api/2.0/fs/files", "/api/2.0/fs/directories"
PAGE = 3
pytestmark = [
    pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning"),  # the SDK keeps its connections
    pytest.mark.filterwarnings("ignore::DeprecationWarning:google"),
]


@dataclass(slots=True)
class Volume:
    """What the server holds, and what it was asked."""

    files: dict[str, bytes] = field(default_factory=dict)
    folders: set[str] = field(default_factory=lambda: {VOLUME})
    asked: list[str] = field(default_factory=list)
    tokens: set[str | None] = field(default_factory=set)
    fail_once: list[int] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def put(self, path: str, data: bytes, *, overwrite: bool) -> int:
        """Upload a file, as the API answers."""
        with self.lock:
            if path.rpartition("/")[0] not in self.folders:
                return 404
            if path in self.files and not overwrite:
                return 409
            self.files[path] = data
            return 204

    def make(self, path: str) -> int:
        """Make a folder and all above it."""
        while path.startswith(VOLUME):
            self.folders.add(path)
            path = path.rpartition("/")[0]
        return 204

    def contents(self, path: str) -> list[dict[str, Any]]:
        """List a folder, in no order."""
        files = [
            {"path": name, "name": name.rpartition("/")[2], "is_directory": False}
            | {"file_size": len(data), "last_modified": 1_790_000_000_000}
            for name, data in self.files.items()
            if name.rpartition("/")[0] == path
        ]
        folders = [
            {"path": name, "name": name.rpartition("/")[2], "is_directory": True}
            for name in self.folders
            if name.rpartition("/")[0] == path
        ]
        return [*files[::-1], *folders]


class Handler(BaseHTTPRequestHandler):
    """The Files API, as far as its documentation goes."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = (
        True  # else each answer waits 40 ms for the client to acknowledge its headers
    )
    volume: Volume

    def _serve(self) -> None:
        url = urlsplit(self.path)
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.volume.asked.append(f"{self.command} {unquote(url.path)}")
        self.volume.tokens.add(self.headers.get("Authorization"))
        query = {name: values[0] for name, values in parse_qs(url.query).items()}
        if self.volume.fail_once:
            self._answer(self.volume.fail_once.pop())
        elif url.path.startswith(FILES):
            self._file(unquote(url.path.removeprefix(FILES)), body, query)
        elif url.path.startswith(FOLDERS):
            self._folder(unquote(url.path.removeprefix(FOLDERS)), query)
        else:
            self._answer(404)

    do_GET = do_PUT = do_HEAD = do_DELETE = do_POST = _serve  # noqa: N815  # http.server's names

    def _file(self, path: str, body: bytes, query: dict[str, str]) -> None:
        if self.command == "PUT":
            overwrite = query.get("overwrite") == "true"
            self._answer(self.volume.put(path, body, overwrite=overwrite))
        elif path not in self.volume.files:
            self._answer(404)
        elif self.command == "DELETE":
            del self.volume.files[path]
            self._answer(204)
        else:
            self._answer(200, self.volume.files[path])

    def _folder(self, path: str, query: dict[str, str]) -> None:
        if self.command == "PUT":
            self._answer(self.volume.make(path))
        elif path not in self.volume.folders:
            self._answer(404)
        elif self.command == "DELETE":
            self.volume.folders.discard(path)
            self._answer(204)
        else:
            start = int(query.get("page_token") or 0)
            found = self.volume.contents(path)
            page: dict[str, Any] = {"contents": found[start : start + PAGE]}
            if start + PAGE < len(found):
                page["next_page_token"] = str(start + PAGE)
            self._answer(200, json.dumps(page).encode(), "application/json")

    def _answer(
        self, status: int, data: bytes = b"", kind: str = "application/octet-stream"
    ) -> None:
        codes = {404: "NOT_FOUND", 409: "ALREADY_EXISTS", 403: "PERMISSION_DENIED"}
        if status >= 400:
            code = codes.get(status, "TEMPORARILY_UNAVAILABLE")
            data, kind = (
                json.dumps({"error_code": code, "message": code}).encode(),
                "application/json",
            )
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Last-Modified", formatdate(1_790_000_000, usegmt=True))
        if status != 204:
            self.send_header("Content-Length", str(len(data)))
        if status == 503:
            self.send_header("Retry-After", "0")
        self.end_headers()
        if self.command != "HEAD" and status != 204:
            self.wfile.write(data)

    def log_message(self, *arguments: object) -> None:
        """Say nothing."""


@pytest.fixture
def volume() -> Volume:
    """Give an empty volume."""
    return Volume()


@pytest.fixture
def options(volume: Volume, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, str]]:
    """Serve the volume on this machine; give what the SDK's client needs."""
    monkeypatch.setenv("DATABRICKS_CONFIG_FILE", "/nowhere")
    handler = type("Served", (Handler,), {"volume": volume})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    yield {"host": f"http://127.0.0.1:{server.server_port}", "token": "secret"}
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture
def store(options: dict[str, str]) -> Store:
    """Open the volume."""
    return open_volume(f"dbfs:{VOLUME}", options)


def test_a_table_is_published_into_a_volume(
    volume: Volume, options: dict[str, str], store: Store
) -> None:
    """From outside a workspace, by its URL, with host and token."""
    for scheme in ("dbfs:", "volumes:", "dbfs://"):
        writer = LandingZoneWriter(f"{scheme}{VOLUME}", source="x", storage_options=options)
        writer.table("dbo/orders", keys=["id"]).write(batch(scheme), batch_id=scheme)

    assert ["dbfs:", "volumes:", "dbfs://"] == batches(store)
    assert b'"keyColumns"' in volume.files[f"{VOLUME}/dbo.schema/orders/_metadata.json"]
    assert f"{VOLUME}/_partnerEvents.json" in volume.files
    assert "Bearer secret" in volume.tokens
    assert not [name for name in volume.files if "/staged/" in name]


@pytest.mark.thorough
def test_a_store_in_a_volume_keeps_every_promise(store: Store) -> None:
    """As every store does."""
    check_promises(store)


@pytest.mark.thorough
def test_a_zone_and_a_journal_in_volumes_are_as_good_as_folders(
    volume: Volume,
    options: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
    spark: SparkSession,
    tmp_path: Path,
) -> None:
    """`apply` reads the one and keeps the other, each batch once; so do `status` and `ledger`."""
    monkeypatch.setenv("DATABRICKS_HOST", options["host"])
    monkeypatch.setenv("DATABRICKS_TOKEN", options["token"])
    zone, state, target = f"dbfs:{VOLUME}/zone", f"dbfs:{VOLUME}/state", str(tmp_path / "tables")
    orders = LandingZoneWriter(zone).table("orders", keys=["id"])
    orders.upsert(batch("one"))

    first = mirrorlib.apply(spark, zone, target, state=state)
    again = mirrorlib.apply(spark, zone, target, state=state)

    assert ([1], [0]) == tuple(
        [table.total("files") for table in report.tables] for report in (first, again)
    )
    assert f"{VOLUME}/state/state.json" in volume.files
    assert ["current"] == [table.state for table in mirrorlib.status(target, state=state).tables]
    assert [1] == [one.batch for one in mirrorlib.ledger(target, state=state).batches]


def test_a_lost_answer_publishes_nothing_twice(store: Store) -> None:
    """At every call, as on every other store."""
    for at in range(1, 40):
        name = f"{at}"
        fault = Fault(at=at, mode="after")
        try:
            publish(FaultyStore(store, fault), name)  # type: ignore[arg-type]
        except StoreError:
            publish(store, name)
        if len(fault.calls) < at:
            break

    found = batches(store)
    assert sorted(set(found), key=int) == found


def test_a_refused_token_is_told(volume: Volume, store: Store) -> None:
    """With the place, and without the token."""
    volume.fail_once.append(403)

    with pytest.raises(StoreError, match=r"cannot look at dbfs:/Volumes") as caught:
        store.stat("x")
    assert "PermissionDenied" == type(caught.value.__cause__).__name__
    assert "secret" not in str(caught.value)


def test_a_busy_server_is_asked_again(volume: Volume, store: Store) -> None:
    """503 and 429 are the SDK's to retry."""
    volume.fail_once += [429]

    store.put("x", b"1")

    assert b"1" == store.read("x")


@pytest.mark.parametrize(
    "url,expected",
    [
        ("dbfs:/Volumes/a/b/c", True),
        ("dbfs:///Volumes/a/b/c", True),
        ("volumes:/Volumes/a/b/c", True),
        ("/Volumes/a/b/c", False),
        ("dbfs:/mnt/a", False),
        ("s3://Volumes/a", False),
    ],
)
def test_volumes_are_known_by_their_url(url: str, *, expected: bool) -> None:
    """The bare path is a mount inside a workspace."""
    assert expected == is_volume(url)


def test_missing_credentials_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """What to set is said."""
    monkeypatch.setenv("DATABRICKS_CONFIG_FILE", "/nowhere")
    monkeypatch.delenv("DATABRICKS_HOST", raising=False)
    monkeypatch.setenv("PATH", "/nowhere")

    with pytest.raises(StoreError, match=r"found default auth: .* DATABRICKS_TOKEN"):
        open_volume(f"dbfs:{VOLUME}")


def test_an_sdk_whose_repeated_uploads_are_empty_is_refused(
    options: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A journal of empty files would be the end of its tables; Databricks' runtimes bring such an SDK."""
    monkeypatch.setattr("databricks.sdk.version.__version__", "0.30.0")

    with pytest.raises(StoreError, match=r"too old \(found 0\.30\.0\)\. Install it: "):
        open_volume(f"dbfs:{VOLUME}", options)


def test_a_login_that_fails_is_told(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """The SDK raises a bare ValueError with the first request."""

    def refused(*_: object) -> None:
        msg = "oauth-m2m: invalid_client"
        raise ValueError(msg)

    monkeypatch.setattr(store._files, "get_metadata", refused)  # type: ignore[attr-defined]

    with pytest.raises(StoreError, match=r"cannot look at dbfs:.*oauth-m2m: invalid_client"):
        store.stat("x")


def test_an_upload_that_was_aborted_is_repeated(volume: Volume, store: Store) -> None:
    """Its answer is that of one whose file was there before."""
    volume.fail_once.append(409)

    assert store.put_new("x", b"1")
    assert (False, b"1") == (store.put_new("x", b"2"), store.read("x"))


def test_rows_of_any_size_go_up_as_they_are(volume: Volume, options: dict[str, str]) -> None:
    """Some megabytes in one request."""
    rows = pa.table(
        {"id": range(200_000), "v": [f"{n * 7919 % 1_000_003}" for n in range(200_000)]}
    )
    writer = LandingZoneWriter(f"dbfs:{VOLUME}", storage_options=options)

    done = writer.table("t", keys=["id"]).write(rows)

    assert done.files[0].size == len(volume.files[f"{VOLUME}/t/{done.file}"])
