"""Requests that go wrong between a store and its server: repeated with bounds, and never half done."""

from __future__ import annotations

import http.client
import itertools
import math
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from flaky import Mishap, Mishaps, flaky_proxy
from mirrorlib.errors import JournalError, StoreError
from mirrorlib.journal.disk import Journal, open_state
from mirrorlib.names import parse_name
from mirrorlib.store import Store, open_store
from publishing import batches, publish

BUCKET = "bucket"
BIG = bytes(range(256)) * 8_192  # 2 MiB: more than one read of a range
SHORT = {
    "max_retries": 3,
    "retry_timeout": timedelta(seconds=20),
    "backoff": {
        "init_backoff": timedelta(milliseconds=1),
        "max_backoff": timedelta(milliseconds=10),
        "base": 2,
    },
}
MISHAPS: tuple[Mishap, ...] = (429, 500, 503, "refused", "unanswered", "half")


@pytest.fixture(scope="module")
def proxied() -> Iterator[tuple[str, Mishaps]]:
    """Start a server of S3's protocol with a bucket, and a flaky proxy before it."""
    from moto.server import ThreadedMotoServer  # takes a second

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    with flaky_proxy(f"http://{host}:{port}") as (address, mishaps):
        with closing(http.client.HTTPConnection(urlsplit(address).netloc)) as client:
            client.request("PUT", f"/{BUCKET}")
            assert 200 == client.getresponse().status
        yield address, mishaps
    server.stop()


@pytest.fixture
def mishaps(proxied: tuple[str, Mishaps], monkeypatch: pytest.MonkeyPatch) -> Mishaps:
    """Let the environment lead to the proxy, and have little patience; nothing goes wrong yet."""
    address, told = proxied
    told.plan(503, "GET", "", 0)
    for name, value in {
        "AWS_ACCESS_KEY_ID": "somebody",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": address,
        "AWS_ALLOW_HTTP": "true",
        "AWS_TIMEOUT": "500ms",
    }.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("mirrorlib.store.open.RETRIES", SHORT)
    return told


@pytest.fixture
def store(mishaps: Mishaps, tmp_path: Path) -> Store:
    """Give a place of its own in the bucket, with a few files; *mishaps* leads there."""
    assert mishaps.left == 0
    found = open_store(f"s3://{BUCKET}/{tmp_path.name}")
    found.put("f/big", BIG)
    found.put("f/small", b"1")
    return found


@dataclass(frozen=True, slots=True)
class Call:
    """A call of a store: its verb in messages, the request that it makes, its result."""

    verb: str
    request: tuple[str, str]
    make: Callable[[Store], object]
    expected: object

    def __str__(self) -> str:
        """Name the test by it."""
        return f"{self.verb}-{self.request[0]}"


def listed(store: Store) -> object:
    """Give the names in the folder."""
    folder = store.list_folder("f")
    return folder and [file.name for file in folder.files]


def listed_after(store: Store) -> object:
    """Give the names behind another."""
    files = store.files_after("f", "big")
    return files and [file.name for file in files]


def read_range(store: Store) -> object:
    """Read from within a file."""
    with store.open_file("f/big") as file:
        file.seek(1 << 20)
        return file.read()


def moved(store: Store) -> object:
    """Move a file and read it where it is then."""
    store.move("f/small", "f/moved")
    return store.read("f/moved"), store.read("f/small")


def written(store: Store) -> object:
    """Write a file that nobody else writes, and read it."""
    return store.put_new("f/new", b"2") in {True, False} and store.read("f/new")


CALLS = (
    Call("list", ("GET", f"/{BUCKET}"), listed, ["big", "small"]),
    Call("list", ("GET", f"/{BUCKET}"), lambda store: store.first_names("f", 1), ("big",)),
    Call("list", ("GET", f"/{BUCKET}"), listed_after, ["small"]),
    Call("look at", ("HEAD", "/big"), lambda store: store.stat("f/big").size, len(BIG)),  # type: ignore[union-attr]
    Call("read", ("GET", "/big"), lambda store: store.read("f/big"), BIG),
    Call("read", ("GET", "/big"), read_range, BIG[1 << 20 :]),
    Call("write", ("PUT", "/put"), lambda store: store.put("f/put", b"3"), None),
    Call("write", ("PUT", "/new"), written, b"2"),
    Call("write", ("PUT", "/moved"), moved, (b"1", None)),
    Call("delete", ("POST", f"/{BUCKET}"), lambda store: store.delete("f/small"), None),
    Call("delete", ("POST", f"/{BUCKET}"), lambda store: store.delete_folder("f"), None),
)


@pytest.mark.thorough("*-429", "*-500")
@pytest.mark.parametrize("mishap", MISHAPS)
@pytest.mark.parametrize("call", CALLS, ids=str)
def test_a_call_that_goes_wrong_twice_succeeds(
    store: Store, mishaps: Mishaps, call: Call, mishap: Mishap
) -> None:
    """Whatever went wrong, the result is that of a call that went well."""
    mishaps.plan(mishap, *call.request, times=2)

    assert call.expected == call.make(store)

    assert mishaps.seen > 2 or mishap == "half"  # which an answer without a body cannot be


@pytest.mark.parametrize("call", CALLS, ids=str)
@pytest.mark.parametrize("mishap", [503, "refused"])
def test_a_call_that_goes_wrong_for_ever_ends(
    store: Store, mishaps: Mishaps, call: Call, mishap: Mishap
) -> None:
    """In an error that names the place, what was tried and the answer, in one line, without secrets; nothing has appeared."""
    before = listed(store)
    mishaps.plan(mishap, *call.request, times=math.inf)
    begun = time.monotonic()

    with pytest.raises(StoreError, match=f"^cannot {call.verb} s3://{BUCKET}/") as caught:
        call.make(store)

    assert time.monotonic() - begun < 5
    assert 4 <= mishaps.seen <= 3 * 4
    assert "after 3 retries" in str(caught.value.found)
    answered = mishap == 503 and call.request[0] != "HEAD"
    assert answered == (": SlowDown Less, please.)" in str(caught.value))
    assert "token" not in str(caught.value)
    assert 1 == len(str(caught.value).splitlines())
    mishaps.plan(503, "GET", "", 0)
    assert before == listed(store)


def test_a_folder_is_removed_by_as_few_requests_as_it_takes(store: Store, mishaps: Mishaps) -> None:
    """One for a thousand files."""
    for number in range(60):
        store.put(f"f/{number}", b"1")
    mishaps.plan(503, "POST", f"/{BUCKET}", 0)

    store.delete_folder("f")

    assert (1, None) == (mishaps.seen, store.list_folder("f"))


def test_a_server_that_says_nothing_is_not_waited_for(store: Store, mishaps: Mishaps) -> None:
    """A request takes as long as AWS_TIMEOUT says at most, and is made again."""
    mishaps.plan("silent", "GET", "/big", 1)
    assert BIG == store.read("f/big")

    mishaps.plan("silent", "GET", "/big", math.inf)
    begun = time.monotonic()
    with pytest.raises(StoreError, match="cannot read"):
        store.read("f/big")
    assert 2 <= time.monotonic() - begun < 10


def test_an_upload_that_breaks_off_shows_nothing(store: Store, mishaps: Mishaps) -> None:
    """Its parts were taken, its end was not: there is no such file, not half of one."""
    mishaps.plan("refused", "POST", "/parts", math.inf, after=1)  # the first begins the upload

    file = store.open_new("f/parts")
    for _ in range(12):
        file.write(BIG)
    with pytest.raises(StoreError, match="cannot write"):
        file.close()

    assert 2 < mishaps.seen
    assert ["big", "small"] == listed(store)


def test_a_put_new_whose_answer_was_lost_is_told_by_what_is_there(
    store: Store, mishaps: Mishaps
) -> None:
    """The repetition met its own file; another's file is as it was."""
    mishaps.plan("unanswered", "PUT", "/mine", 1)
    assert not store.put_new("f/mine", b"mine")
    assert b"mine" == store.read("f/mine")

    mishaps.plan("unanswered", "PUT", "/small", 1)
    assert not store.put_new("f/small", b"mine")
    assert b"1" == store.read("f/small")


@pytest.mark.thorough
def test_a_batch_is_published_once_whichever_answer_is_lost(store: Store, mishaps: Mishaps) -> None:
    """Schema, metadata, content, claim, record, change file, note: each in its turn."""
    for at in itertools.count():
        zone = open_store(f"{store.url}/{at}")
        mishaps.plan("unanswered", "PUT", "", after=at)
        publish(zone, "first", ids=False)
        if mishaps.seen <= at:
            break
        publish(zone, "second", ids=False)
        assert ["first", "second"] == batches(zone)
    assert at > 6


def test_a_server_that_knows_no_condition_is_told_to_be_one(store: Store, mishaps: Mishaps) -> None:
    """Some work-alikes of S3 say so themselves; and who may not remove files may have a journal."""
    mishaps.plan(501, "PUT", ".json", math.inf)
    with pytest.raises(JournalError, match="has no put-if-absent"):
        open_state(open_store(f"{store.url}/one"))

    mishaps.plan(503, "POST", f"/{BUCKET}", math.inf)
    open_state(open_store(f"{store.url}/two"))


def test_the_journal_trusts_no_answer(store: Store, mishaps: Mishaps) -> None:
    """A state folder is not refused, and a life is its writer's, though every first answer is lost."""
    for at in range(3):  # the probe, what it must not replace, and the folder's own file
        state = open_store(f"{store.url}/state-{at}")
        mishaps.plan("unanswered", "PUT", "", after=at)
        open_state(state)
        assert state.read("state.json") is not None

    journal = Journal(state, parse_name("dbo/orders"))
    mishaps.plan("unanswered", "PUT", "")
    life = journal.begin_life("first seen", "zone", 1)

    assert (life,) == journal.lives()
    assert life == journal.begin_life("first seen", "zone", 1)
