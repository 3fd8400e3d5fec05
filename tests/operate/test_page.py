"""The status page: what it says, that nothing in it is more than text, and who is given it."""

from __future__ import annotations

import html
import http.client
import re
import signal
import sys
import threading
from html.parser import HTMLParser
from pathlib import Path

import pytest

import mirrorlib
from mirrorlib.cli.main import main
from mirrorlib.delivery.report import ConsumersReport, ConsumerStatus
from mirrorlib.errors import MirrorError, ParameterError
from mirrorlib.operate.ledger import LedgerReport, read_ledger
from mirrorlib.operate.lineage import LineageReport
from mirrorlib.operate.overview import read_overview
from mirrorlib.operate.page.render import make_page
from mirrorlib.operate.page.serve import LivePage, serve_page
from mirrorlib.operate.status import TableStatus
from pages import COLUMNS, HOSTILE, JournalWriter, batch, edge, full, many, overview, serving


class Tags(HTMLParser):
    """The tags and attributes of a page, and the texts of its table cells."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: set[str] = set()
        self.texts: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Remember what a tag is."""
        self.tags.append(tag)
        self.attributes |= {name for name, _ in attrs}

    def handle_data(self, data: str) -> None:
        """Remember a text."""
        self.texts.append(data)


@pytest.mark.parametrize("name", HOSTILE)
def test_what_others_have_named_is_text(name: str) -> None:
    """Wherever it stands: the page has the tags and attributes that it has of a harmless name, and its one script."""
    page = full(name)
    harmless, found = Tags(full("orders")), Tags(page)

    assert harmless.tags == found.tags
    assert harmless.attributes == found.attributes
    assert 1 == page.count("<script>") == page.count("</script>")
    shown = "\n".join(found.texts)
    assert name in shown or r"a\u202eb\x1b[2J" in shown


def test_a_page_asks_for_nothing() -> None:
    """No address of anybody is in it, and the browser is told to carry out its own script alone."""
    page = full("orders")

    assert [] == re.findall(r"(?:src|href)=\"(?!data:,\")[^\"]*|https?://|url\(|@import", page)
    assert "default-src &#39;none&#39;" in page
    assert "'unsafe-inline'" not in html.unescape(page)


def test_a_page_tells_what_the_reports_tell() -> None:
    """Every state in words, lag, throughput, the reason and what to do; consumers, ways, columns and batches."""
    behind = TableStatus(
        table="dbo/items", state="behind", unapplied=3, waiting_seconds=7300.0, lag_seconds=60.0
    )
    failed = TableStatus(
        table="dbo/orders",
        state="failed",
        version=5,
        life=1,
        position={"a": 1, "b": 2},
        reason="dbo/orders: 0041.parquet, row 3: the row marker is odd (found 9). Publish a good one.",
    )
    stream = ConsumerStatus(
        consumer="lake", table="dbo/orders", health="behind", versions=4, rows=12, seconds=90.0
    )
    report = overview(
        behind,
        failed,
        batches=(
            batch(upserts=90, version=5, schema=("+ amount bigint",)),
            batch(minutes=9, upserts=30, version=4, outcome="void", cause="it was cut short"),
        ),
        consumers=ConsumersReport(target="/lake", streams=(stream,)),
        ways=LineageReport(target="/lake", edges=(edge("/lake/dbo/orders", "/lake/gold/by_day"),)),
        failures=("something was not read",),
    )

    text = re.sub(r"\s+", " ", html.unescape(re.sub(r"<[^>]+>", " ", make_page(report))))

    for told in (
        "1 of 2 tables stopped.", "1 failed", "1 behind",
        "dbo/orders failed – – 120 30 – 5 2 partitions 0041.parquet, row 3: the row marker is odd (found 9). What to do Publish",
        "dbo/items behind oldest 2 h 3 files 60 s 0 – – – –",
        "lake dbo/orders behind 4 versions 12 90 s", "gold/by_day full, by id", "+ amount bigint",
        "voided: it was cut short", "something was not read", "Change rows", "Lag of the oldest file",
    ):  # fmt: skip
        assert told in text


def test_rows_of_all_lives_are_added_up() -> None:
    """A table that was reset has lives before this one, whose batches the ledger still tells."""
    table = TableStatus(table="dbo/orders", state="current", version=7, life=2)
    batches = (
        batch(minutes=1, life=2, version=7, inserts=30),
        batch(minutes=2, life=1, version=99, inserts=1),
    )

    assert ">31</td>" in make_page(overview(table, batches=batches))


def test_a_target_that_is_new_has_a_page() -> None:
    """It says so."""
    assert "Nothing has been applied to this target yet." in make_page(overview())


def test_columns_that_came_and_went_are_told(target: str, tmp_path: Path) -> None:
    """By the batch that changed them; a table that was made has changed nothing, nor has a batch like the one before."""
    orders = JournalWriter(target, tmp_path / "zone", "dbo/orders")
    for columns in (
        COLUMNS,
        COLUMNS,
        (*COLUMNS, ("n", "int")),
        (("id", "bigint"), ("n", "bigint")),
    ):
        orders.apply(columns)

    batches = read_ledger(target).batches

    assert [("- v", "n: int -> bigint"), ("+ n int",), (), ()] == [one.schema for one in batches]
    assert [("- v", "n: int -> bigint")] == [
        one.schema for one in read_ledger(target, last=1).batches
    ]


def test_what_is_known_of_the_ledger_is_not_read_again(
    target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What has come since is; the answer is the same as that of reading all."""
    orders, items = (JournalWriter(target, tmp_path / "zone", name) for name in ("orders", "items"))
    for _ in range(5):
        orders.apply()
    before = read_ledger(target, last=4)
    orders.apply((*COLUMNS, ("n", "int")))
    items.apply()
    read: list[int] = []
    entry = type(orders.journal).entry
    monkeypatch.setattr(
        type(orders.journal), "entry", lambda *a: read.append(a[2]) or entry(*a)  # type: ignore[func-returns-value]
    )  # fmt: skip

    found = read_ledger(target, last=4, before=before)

    assert [5] == read
    assert read_ledger(target, last=4) == found
    assert found == read_ledger(target, last=4, before=LedgerReport(target=target, batches=()))


def test_a_page_that_is_read_while_a_run_writes_lacks_no_batch(target: str, tmp_path: Path) -> None:
    """Each reading goes on from the one before."""
    orders = JournalWriter(target, tmp_path / "zone", "dbo/orders")
    orders.apply()
    stop = threading.Event()

    def run() -> None:
        while not stop.is_set():
            orders.apply()

    writer = threading.Thread(target=run)
    writer.start()
    try:
        seen = [read_overview(target)]
        while (seen[-1].status.tables[0].version or 0) < 6:
            seen.append(read_overview(target, before=seen[-1]))
    finally:
        stop.set()
        writer.join()

    versions = [one.status.tables[0].version or 0 for one in seen]
    assert sorted(versions) == versions
    for one in seen:
        assert [*range(one.ledger.batches[0].batch, 0, -1)][:100] == [
            b.batch for b in one.ledger.batches
        ]


def test_status_writes_the_page_beside_its_report(
    target: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Into folders that are not there, in place of what is; the exit code is that of the tables."""
    orders = JournalWriter(target, tmp_path / "zone", "dbo/orders")
    orders.apply()
    page = tmp_path / "new" / "status.html"

    assert 0 == main(["status", target, "--html", str(page)])
    assert "Every table is current." in page.read_text()
    (orders.folder / f"{9:020d}.parquet").write_bytes(b"PAR1")
    assert 1 == main(["status", target, "--html", str(page)])
    assert "1 of 1 table stopped." in page.read_text()
    assert "dbo/orders  blocked" in capsys.readouterr().out
    assert [page] == list(page.parent.iterdir())


@pytest.mark.parametrize("page", ["", "there/", "there"])
def test_a_page_that_cannot_be_written_is_refused(target: str, tmp_path: Path, page: str) -> None:
    """It is a file, with a name."""
    (tmp_path / "there").mkdir()
    JournalWriter(target, tmp_path / "zone", "dbo/orders").apply()

    with pytest.raises(MirrorError) as caught:
        read_overview(target).save(f"{tmp_path}/{page}" if page else "")

    assert caught.value.next_step


@pytest.mark.parametrize("module", ["jinja2", "waitress"])
def test_what_is_not_installed_is_named(
    target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: str
) -> None:
    """With what to type; a notebook shows how tables stand all the same."""
    JournalWriter(target, tmp_path / "zone", "dbo/orders").apply()
    monkeypatch.setitem(sys.modules, module, None)

    with pytest.raises(MirrorError, match=rf"{module} is not installed.*pip install '\.\[page\]'"):
        serve_page(target, port=0, every=1, tell=print)
    if module == "jinja2":
        shown = mirrorlib.overview(target)._repr_html_()
        assert "<td>dbo/orders</td>" in shown
        assert "jinja2 is not installed" in shown


# Served


def ask(live: LivePage, host: str = "localhost:8765", path: str = "/", method: str = "GET") -> str:
    """Ask for the page; give the answer's status."""
    said: list[str] = []
    live({"HTTP_HOST": host, "PATH_INFO": path, "REQUEST_METHOD": method}, lambda status, _: said.append(status))  # fmt: skip
    return said[0]


@pytest.mark.parametrize(
    "host, path, method, answer",
    [
        ("localhost", "/", "GET", "200"),
        ("127.0.0.1:9", "/", "GET", "200"),
        ("[::1]:9", "/", "GET", "200"),
        ("LOCALHOST:9", "/", "GET", "200"),
        ("evil.example:8765", "/", "GET", "403"),
        ("localhost.evil.example", "/", "GET", "403"),
        ("evil.example@localhost", "/", "GET", "403"),
        ("127.0.0.1.", "/", "GET", "403"),
        ("", "/", "GET", "403"),
        ("localhost", "/../etc/passwd", "GET", "404"),
        ("localhost", "/favicon.ico", "GET", "404"),
        ("localhost", "/", "POST", "404"),
    ],
)
def test_only_the_one_page_is_served_and_to_this_machine_alone(
    host: str, path: str, method: str, answer: str
) -> None:
    """Names that others have pointed here are refused before anything is read."""
    live = LivePage(lambda **_: many(1), every=9)

    assert answer == ask(live, host, path, method)[:3]


def test_the_target_is_looked_at_when_somebody_asks_and_not_more_often(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each look goes on from the one before; one that fails says why, and the next one is made anew."""
    looks: list[object] = []
    clock = [0.0]
    monkeypatch.setattr("mirrorlib.operate.page.serve.time.monotonic", lambda: clock[0])

    def read(before: object) -> mirrorlib.Overview:
        looks.append(before)
        clock[0] += 2  # what it takes
        if len(looks) == 2:
            msg = "the target is gone"
            raise MirrorError(msg)
        return many(1)

    live = LivePage(read, every=7)
    answers = []
    for moment in (10, 15, 18, 19, 22, 27):
        clock[0] = max(clock[0], moment)
        answers.append((ask(live)[:3], len(looks)))

    assert [("200", 1), ("200", 1), ("503", 2), ("200", 3), ("200", 3), ("200", 3)] == answers
    assert looks[0] is None
    assert looks[1] is looks[2] is not None


@pytest.mark.thorough
def test_the_command_serves_the_page_until_it_is_interrupted(target: str, tmp_path: Path) -> None:
    """To a request that names this machine; a second one at the same port says what to do."""
    JournalWriter(target, tmp_path / "zone", "dbo/orders").apply()

    def get(port: int, host: str) -> tuple[int, str | None, str]:
        connection = http.client.HTTPConnection("127.0.0.1", port)
        connection.request("GET", "/", headers={"Host": host})
        answer = connection.getresponse()
        page = answer.read().decode()
        connection.close()
        return answer.status, answer.headers["Cache-Control"], page

    with serving(target) as (url, child):
        port = int(url.strip("/").rpartition(":")[2])
        status, cached, page = get(port, f"localhost:{port}")
        assert (200, "no-store") == (status, cached)
        assert 'data-every="1"' in page
        assert 403 == get(port, "evil.example")[0]
        with pytest.raises(ParameterError, match="Choose one with --port"):
            serve_page(target, port=port, every=1, tell=pytest.fail)
        child.send_signal(signal.SIGINT)
        assert 0 == child.wait(timeout=60)


def test_a_target_to_which_nothing_was_applied_is_not_served(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A path may be wrong: it is said at once."""
    assert 2 == main(["serve", str(tmp_path), "--port", "0"])
    assert "nothing has been applied" in capsys.readouterr().err
