"""Files in OneLake are deleted one by one, with a token that is lent: it refuses obstore's bulk requests."""

from __future__ import annotations

import http.server
import threading
from collections.abc import Iterator
from functools import partial
from urllib.parse import unquote

import pytest

from mirrorlib.errors import StoreError
from mirrorlib.store import lend_azure_token, open_store
from mirrorlib.store.onelake import delete_each, deletes_in_onelake

PLACE = "abfss://workspace@onelake.dfs.fabric.microsoft.com/my.Lakehouse/Files/landing"


class OneLake(http.server.BaseHTTPRequestHandler):
    """Answers a delete as OneLake does, whose first answers may be others."""

    files: set[str]
    first: list[int]
    tokens: set[str | None]

    def do_DELETE(self) -> None:
        """Take the file away, if whoever asks may."""
        self.tokens.add(self.headers["Authorization"])
        path = unquote(self.path)
        status = self.first.pop() if self.first else 202 if path in self.files else 404
        if status == 202:
            self.files.remove(path)
        self.send_response(status)
        self.send_header("content-length", "0")
        self.end_headers()


@pytest.fixture
def onelake() -> Iterator[tuple[str, type[OneLake]]]:
    """Start a server; comes with the address of a folder that has two files."""
    files = {"/ws/zone/a b#1.parquet", "/ws/zone/x=%2F/ü.parquet"}
    answers = type("Answers", (OneLake,), {"files": files, "first": [], "tokens": set()})
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), answers) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/ws/zone", answers
        server.shutdown()
        thread.join()


def test_files_go_one_by_one(onelake: tuple[str, type[OneLake]]) -> None:
    """By any name, through passing troubles; what is not there is no trouble."""
    place, server = onelake
    server.first[:] = [503, 429]

    delete_each(place, lambda: "lent", ["a b#1.parquet", "x=%2F/ü.parquet", "gone.parquet"])

    assert (set(), {"Bearer lent"}) == (server.files, server.tokens)


@pytest.mark.parametrize("answers", [[403], 5 * [503]])
def test_what_is_refused_is_told(
    onelake: tuple[str, type[OneLake]], answers: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the store, with the place; the file stays."""
    place, server = onelake
    monkeypatch.setattr("mirrorlib.store.onelake._PATIENCE", 0.1)
    server.first[:] = answers
    lend_azure_token(lambda: "lent")
    store = open_store(PLACE)
    monkeypatch.setattr(store, "_delete", partial(delete_each, place, lambda: "lent"))

    with pytest.raises(StoreError, match=rf"cannot delete {PLACE}/.*{answers[0]}"):
        store.delete("a b#1.parquet")

    assert 2 == len(server.files)


def test_a_sign_in_that_fails_is_told(
    onelake: tuple[str, type[OneLake]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A token that is stated is taken; without one, azure-identity is asked."""
    place, server = onelake

    class Nobody:
        def get_token(self, _: str) -> None:
            msg = "no credential in this chain\nprovided a token"
            raise RuntimeError(msg)

    monkeypatch.setattr("mirrorlib.store.onelake._credential", Nobody)
    with pytest.raises(StoreError, match=r"nobody is signed in .*no credential in .*az login"):
        delete_each(place, None, ["a b#1.parquet"])
    monkeypatch.setenv("AZURE_STORAGE_TOKEN", "stated")
    delete_each(place, None, ["a b#1.parquet"])

    assert (1, {"Bearer stated"}) == (len(server.files), server.tokens)


def test_only_onelake_is_asked_so() -> None:
    """A workspace, its item and folder become an address of the Blob service."""
    lake = "https://onelake.blob.fabric.microsoft.com/workspace/my.Lakehouse/Files/landing"
    odd = (f"{PLACE}/ü %", f"{lake}/%C3%BC%20%25")
    same = [(url, lake) for url in (PLACE, lake, lake.replace(".blob.", ".dfs."))]
    for url, address in (*same, odd, (odd[1], odd[1])):
        found = deletes_in_onelake(url, None)
        assert isinstance(found, partial)
        assert (address, None) == found.args
    for url in ("abfss://c@account.dfs.core.windows.net/zone", "s3://bucket/fabric.microsoft.com"):
        assert deletes_in_onelake(url, None) is None
