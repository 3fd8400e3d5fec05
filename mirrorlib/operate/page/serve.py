"""Serve the status page of a target to browsers on this machine, as the target is now.

In: a target. Out: nothing, until it is interrupted; waitress is needed. Promise: it listens on the loopback address and
answers no request that names another host, so that no page of somebody else's can read it under a name that it has
pointed here (DNS rebinding). Nothing is written, and a target is read while runs write to it.
"""

from __future__ import annotations

import re
import socket
import threading
import time
from collections.abc import Callable, Mapping
from functools import partial

from mirrorlib.errors import MirrorError, ParameterError
from mirrorlib.extras import needed
from mirrorlib.operate.overview import Overview, read_overview
from mirrorlib.operate.page.render import make_page
from mirrorlib.store import PathOrUrl

_HOSTS = re.compile(r"(localhost|127\.0\.0\.1|\[::1\])(:[0-9]+)?", re.IGNORECASE)
_REST = 4  # reading a target is followed by a pause so many times as long
_HEADERS = [
    ("Cache-Control", "no-store"),
    ("Content-Security-Policy", "frame-ancestors 'none'"),  # the rest is in the page
    ("X-Content-Type-Options", "nosniff"),
]


class LivePage:
    """An application by WSGI, whose one page is read anew when it is asked for and is *every* so many seconds old."""

    def __init__(self, read: Callable[..., Overview], every: int) -> None:
        self._read, self._every = read, every
        self._lock = threading.Lock()
        self._seen: Overview | None = None
        self._page, self._until = b"", 0.0

    def __call__(
        self, request: Mapping[str, str], start: Callable[[str, list[tuple[str, str]]], object]
    ) -> list[bytes]:
        """Answer a request."""
        kind, page = "text/plain", b"There is one page here, /, to be read by the name localhost."
        if not _HOSTS.fullmatch(request.get("HTTP_HOST", "")):
            answer = "403 Forbidden"
        elif (request["REQUEST_METHOD"], request["PATH_INFO"]) != ("GET", "/"):
            answer = "404 Not Found"
        else:
            try:
                answer, kind, page = "200 OK", "text/html", self.page()
            except MirrorError as exc:
                answer, kind, page = "503 Service Unavailable", "text/plain", str(exc).encode()
        start(answer, [("Content-Type", f"{kind}; charset=utf-8"), *_HEADERS])
        return [page]

    def page(self) -> bytes:
        """Return the page; while one request reads it, others wait for the same."""
        with self._lock:
            if (began := time.monotonic()) >= self._until:
                self._seen = self._read(before=self._seen)
                self._page = make_page(self._seen, every=self._every).encode()
                self._until = began + max(self._every, _REST * (time.monotonic() - began))
            return self._page


def serve_page(
    target: PathOrUrl,
    *,
    port: int,
    every: int,
    catalog: str | None = None,
    state: PathOrUrl | None = None,
    tell: Callable[[str], None],
) -> None:
    """Serve the page on *port* until Ctrl-C, and *tell* its URL. The rest means the same as for `status`.

    Raises:
        JournalError: nothing has ever been applied to this target.
        MirrorError: waitress or jinja2 is not installed.
        ParameterError: the port cannot be had.

    """
    with needed("page", "waitress"):
        from waitress import create_server
    live = LivePage(partial(read_overview, target, catalog=catalog, state=state), every)
    live.page()
    try:
        listening = socket.create_server(("127.0.0.1", port))
    except (OSError, OverflowError) as exc:
        msg = f"port {port} cannot be had"
        raise ParameterError(msg, found=f"{exc}", next_step="Choose one with --port.") from exc
    tell(f"http://127.0.0.1:{listening.getsockname()[1]}/")
    create_server(live, sockets=[listening], ident=None).run()
