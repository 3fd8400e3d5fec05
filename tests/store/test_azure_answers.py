"""Answers that are not the last word: a copy that is under way, a file that is in the way and is not there."""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

import obstore.store
import pytest

from mirrorlib.errors import StoreError
from mirrorlib.store import ObjectStore, Store

OLD, NEW = "/c/staged/x", "/c/final/x"
CONTENT = bytes(range(256)) * 8
BATCH = b"--b\r\nContent-Type: application/http\r\nContent-ID: 0\r\n\r\nHTTP/1.1 202 Accepted\r\n\r\n\r\n--b--\r\n"


DIRECTORY = (
    "<Blob><Name>{}</Name><Properties><Last-Modified>Thu, 27 Nov 2025 10:00:00 GMT</Last-Modified><Etag>0x1</Etag>"
    "<ResourceType>directory</ResourceType><Content-Length>0</Content-Length><Content-Type>x</Content-Type></Properties></Blob>"
)


@dataclass
class Account:
    """What the server holds, what it was asked, and how often it has to be asked for a copy until that is done."""

    files: dict[str, bytes] = field(default_factory=lambda: {OLD: CONTENT})
    asked: list[str] = field(default_factory=list)
    pending: int = 3
    ends_well: bool = True
    copied: bytes = b""
    conflicts: float = 0  # how many writes are refused before one is taken
    folders: set[str] = field(default_factory=set)  # of a hierarchical account

    def copy(self, old: str) -> None:
        """Begin a copy: until it is done, there is a file of no bytes."""
        self.copied, self.files[NEW] = self.files[old], b""

    def see(self, path: str) -> bytes | None:
        """Look at a file; a copy goes on meanwhile."""
        if path == NEW and self.copied:
            self.pending -= 1
            if self.pending <= 0 and self.ends_well:
                self.files[NEW], self.copied = self.copied, b""
        return self.files.get(path)

    def remove(self, path: str) -> None:
        """Remove a file, which has to wait for a copy of it."""
        if path in self.folders:
            self.asked.append(f"remove {path}")
            self.folders.remove(path)
            return
        self.asked.append(f"remove {path} while the copy is {len(self.files[NEW])} bytes")
        self.files.pop(path)

    def list(self, prefix: str, *, whole: bool) -> bytes:
        """List the folders below a prefix, or those right below it."""
        names = (path.removeprefix("/c/") for path in sorted(self.folders))
        below = [name for name in names if name.startswith(prefix)]
        if whole:
            found = "".join(DIRECTORY.format(name) for name in below)
        else:
            right = [name for name in below if "/" not in name.removeprefix(prefix)]
            found = "".join(f"<BlobPrefix><Name>{name}/</Name></BlobPrefix>" for name in right)
        return (
            f"<EnumerationResults><Blobs>{found}</Blobs><NextMarker/></EnumerationResults>".encode()
        )


class Handler(BaseHTTPRequestHandler):
    """Azure Blob's protocol, as far as a move asks for it; a HEAD's size is the copied file's from the first on."""

    protocol_version = "HTTP/1.1"
    account: Account

    def do_PUT(self) -> None:
        """Take a file, or begin a copy."""
        path, data = urlsplit(self.path).path, self._body()
        source = self.headers.get("x-ms-copy-source")
        self.account.asked.append(f"{'copy to' if source else 'write'} {path}")
        if source:
            self.account.copy(urlsplit(source).path)
            return self._answer(202, {"x-ms-copy-status": "pending", "x-ms-copy-id": "1"})
        if self.account.conflicts > 0 or (
            path in self.account.files and self.headers["If-None-Match"]
        ):
            self.account.conflicts -= 1
            return self._answer(409)
        self.account.files[path], self.account.copied = data, b""
        return self._answer(201)

    def do_HEAD(self) -> None:
        """Tell a file's size."""
        data = self.account.files.get(urlsplit(self.path).path)
        self._answer(404 if data is None else 200, data=self.account.copied or data or b"")

    def do_GET(self) -> None:
        """Give a file, or a range of it."""
        asked = parse_qs(urlsplit(self.path).query)
        if "comp" in asked:
            listed = self.account.list(asked["prefix"][0], whole="delimiter" not in asked)
            return self._answer(200, data=listed)
        data = self.account.see(urlsplit(self.path).path)
        if data is None:
            return self._answer(404)
        asked = self.headers.get("range") or self.headers.get("x-ms-range")
        if asked is None:
            return self._answer(200, data=data)
        first, last = (int(end) for end in asked.removeprefix("bytes=").split("-"))
        part = data[first : last + 1]
        if not part:
            return self._answer(416)
        return self._answer(206, {"Content-Range": f"bytes {first}-{last}/{len(data)}"}, part)

    def do_DELETE(self) -> None:
        """Remove a file, as older clients ask for it."""
        self.account.remove(urlsplit(self.path).path)
        self._answer(202)

    def do_POST(self) -> None:
        """Remove the one file of a batch."""
        (line,) = (one for one in self._body().decode().splitlines() if one.startswith("DELETE"))
        self.account.remove(urlsplit(line.split()[1]).path)
        self._answer(202, {"Content-Type": "multipart/mixed; boundary=b"}, BATCH)

    def _body(self) -> bytes:
        return self.rfile.read(int(self.headers.get("Content-Length") or 0))

    def _answer(self, status: int, more: dict[str, str] | None = None, data: bytes = b"") -> None:
        self.send_response(status)
        headers = {
            "ETag": '"0x1"',
            "Last-Modified": "Thu, 27 Nov 2025 10:00:00 GMT",
            **(more or {}),
        }
        for name, value in {**headers, "Content-Length": str(len(data))}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def log_message(self, *arguments: object) -> None:
        """Say nothing."""


@pytest.fixture
def account() -> Account:
    """Give an account that holds one file."""
    return Account()


@pytest.fixture
def store(account: Account) -> Iterator[Store]:
    """Serve the account on this machine."""
    handler = type("Served", (Handler,), {"account": account})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    raw = obstore.store.AzureStore(
        "c",
        account_name="a",
        account_key="a2V5",
        endpoint=f"http://127.0.0.1:{server.server_port}",
        client_options={"allow_http": True},
        retry_config={"max_retries": 0},
    )
    yield ObjectStore("abfss://c@a.dfs.core.windows.net", raw)
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.mark.parametrize("content", [CONTENT, b""], ids=["bytes", "none"])
def test_a_file_is_moved_once_its_copy_is_there(
    store: Store, account: Account, content: bytes
) -> None:
    """Though the answer came while the copy was pending."""
    account.files[OLD] = content

    store.move("staged/x", "final/x")

    assert [
        f"copy to {NEW}",
        f"remove {OLD} while the copy is {len(content)} bytes",
    ] == account.asked
    assert {NEW: content} == account.files


def test_a_copy_that_is_never_done_is_none(
    store: Store, account: Account, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is not left there, its source is; and a file that has to move is written once more."""
    monkeypatch.setattr("mirrorlib.store.objects._PATIENCE", 0.2)
    account.ends_well = False

    assert not store.copy("staged/x", "final/x")
    assert {OLD: CONTENT} == account.files

    store.move("staged/x", "final/x")
    assert {NEW: CONTENT} == account.files
    assert [
        f"write {NEW}",
        f"remove {OLD} while the copy is {len(CONTENT)} bytes",
    ] == account.asked[-2:]


def test_a_file_that_is_said_to_be_there_and_is_not_is_written(
    store: Store, account: Account
) -> None:
    """S3 answers so while two write at once, and neither of them need have come to an end."""
    account.conflicts = 2

    assert store.put_new("final/x", b"1")
    assert not store.put_new("final/x", b"2")
    assert b"1" == account.files[NEW]


def test_a_file_that_is_never_there_and_never_taken_is_an_error(
    store: Store, account: Account, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody is told that another was first."""
    monkeypatch.setattr("mirrorlib.store.objects._PATIENCE", 0.2)
    account.conflicts = math.inf

    with pytest.raises(StoreError, match=r"cannot write abfss://.*/final/x"):
        store.put_new("final/x", b"1")


def test_directories_of_a_hierarchical_account_go_with_what_was_in_them(
    store: Store, account: Account
) -> None:
    """Innermost first: they would be listed for ever, and obstore neither lists nor removes any."""
    inner = ["/c/staged/day/x/y", "/c/staged/day/x", "/c/staged/day/z"]
    account.folders = {*inner, "/c/staged/day", "/c/staged/day 2"}

    store.delete_folder("staged/day")

    assert {"/c/staged/day 2"} == account.folders
    assert [f"remove {path}" for path in [*inner, "/c/staged/day"]] == account.asked
