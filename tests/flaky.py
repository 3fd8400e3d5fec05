"""Stand between a client and a server of S3's protocol, and let requests go wrong as they are told to."""

from __future__ import annotations

import contextlib
import http.client
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Literal
from urllib.parse import urlsplit

# What can go wrong with a request: a status is answered, the connection is closed before the server
# hears of it, after it has done what was asked, or in the middle of its answer; or nothing ever comes.
Mishap = Literal[429, 500, 501, 503, "refused", "unanswered", "half", "silent"]
ANSWER = (
    b'<?xml version="1.0"?><Error><Code>SlowDown</Code>\n<Message>Less, please.\nSoon.</Message>'
    b"<Token-0>a session's token</Token-0></Error>"
)
_HOP_BY_HOP = {"connection", "transfer-encoding", "content-length", "keep-alive"}


@dataclass(slots=True)
class Mishaps:
    """Which requests go wrong, how, and how many of them still; and which were made.

    Attributes:
        kind: how.
        verb: the method of those that do.
        ending: how their path ends.
        after: how many go well before.
        left: how many go wrong then.
        seen: the matching requests, whatever became of them.

    """

    kind: Mishap = 503
    verb: str = ""
    ending: str = ""
    after: int = 0
    left: float = 0
    seen: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def plan(
        self, kind: Mishap, verb: str, ending: str, times: float = 1, *, after: int = 0
    ) -> None:
        """Let *times* requests of a method to a path go wrong, *after* some that go well."""
        with self.lock:
            self.kind, self.verb, self.ending = kind, verb, ending
            self.after, self.left, self.seen = after, times, 0

    def strike(self, verb: str, path: str) -> Mishap | None:
        """Take note of a request; say what goes wrong with it."""
        with self.lock:
            if verb != self.verb or not urlsplit(path).path.endswith(self.ending):
                return None
            self.seen += 1
            if self.seen <= self.after:
                return None
            self.left -= 1
            return self.kind if self.left >= 0 else None


class _Proxy(BaseHTTPRequestHandler):
    """Pass a request on and its answer back, or do what `Mishaps` says."""

    protocol_version = "HTTP/1.1"
    mishaps: Mishaps
    server_at: str

    def do_GET(self) -> None:
        mishap = self.mishaps.strike(self.command, self.path)
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if mishap == "silent":
            self.connection.recv(1)  # until the client gives up
        if mishap in {"silent", "refused"}:
            self.close_connection = True
        elif isinstance(mishap, int):
            self._answer(mishap, {}, ANSWER)
        else:
            self._pass_on(body, mishap)

    do_HEAD = do_PUT = do_POST = do_DELETE = do_GET  # noqa: N815  # names that the base class looks for

    def _pass_on(self, body: bytes, mishap: Mishap | None) -> None:
        server = http.client.HTTPConnection(self.server_at)
        with contextlib.closing(server):
            server.request(self.command, self.path, body, dict(self.headers))
            answer = server.getresponse()
            data = answer.read()
        if mishap == "unanswered":
            self.close_connection = True
            return
        headers = {k: v for k, v in answer.getheaders() if k.lower() not in _HOP_BY_HOP}
        if self.command == "HEAD":
            headers["Content-Length"] = answer.getheader("Content-Length") or "0"
        self._answer(answer.status, headers, data, half=mishap == "half")

    def _answer(
        self, status: int, headers: dict[str, str], data: bytes, *, half: bool = False
    ) -> None:
        self.send_response_only(status)
        for name, value in headers.items():
            self.send_header(name, value)
        if "Content-Length" not in headers and status != http.HTTPStatus.NO_CONTENT:
            self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(
            b"" if self.command == "HEAD" else data[: len(data) // 2] if half else data
        )
        self.close_connection = half

    def log_message(self, format: str, *_: object) -> None:  # noqa: A002  # the base class calls it so
        """Say nothing."""


@contextlib.contextmanager
def flaky_proxy(server: str) -> Iterator[tuple[str, Mishaps]]:
    """Run before the server at an address; give the address to use instead, and what goes wrong there."""
    mishaps = Mishaps()
    handler = type("Handler", (_Proxy,), {"mishaps": mishaps, "server_at": urlsplit(server).netloc})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as proxy:
        proxy.daemon_threads = True
        thread = threading.Thread(target=proxy.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{proxy.server_port}", mishaps
        proxy.shutdown()
        thread.join()
