"""Status pages without Spark: of overviews that are made up, and of journals as runs leave them.

A page is looked at by Debian's Chromium, without a window; where it is missing, such tests are left out.
"""

from __future__ import annotations

import functools
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import servers
from little import child_environment
from mirrorlib.delivery.report import ConsumersReport, ConsumerStatus
from mirrorlib.journal.disk import Journal
from mirrorlib.journal.entries import Done, Plan, PlannedFile, Policies
from mirrorlib.names import parse_name
from mirrorlib.operate.ledger import Applied, LedgerReport
from mirrorlib.operate.lineage import Edge, LineageReport
from mirrorlib.operate.overview import Overview
from mirrorlib.operate.page.render import make_page
from mirrorlib.operate.status import StatusReport, TableStatus
from mirrorlib.store import open_store

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

NOW = datetime.now(UTC)
POLICIES = Policies(
    keys=("id",), upsert_default=False, insert_policy="append", evolution="widen", ntz="utc"
)
COLUMNS = (("id", "bigint"), ("v", "string"))


HOSTILE = (
    "<script>alert(1)</script>", "</script><img src=x onerror=alert(2)>", 'a" onfocus=alert(3) autofocus="', "a' b='c",
    "{{ 7 * 7 }}{% raw %}", "]]>--><!--", "</title></style></textarea>", "javascript:alert(4)", "&lt;b&gt;", "a\u202eb\x1b[2J",
)  # fmt: skip


def batch(table: str = "dbo/orders", minutes: float = 0, **facts: object) -> Applied:
    """Give a batch that ended so many minutes ago."""
    moment = (NOW - timedelta(minutes=minutes)).isoformat()
    known: dict[str, object] = {
        "table": table, "life": 1, "batch": 1, "outcome": "applied", "kind": "merge", "files": 1, "bytes": 1,
        "first_file": "1", "last_file": "1", "inserts": 0, "updates": 0, "deletes": 0, "upserts": 0, "version": 1,
        "seconds": {"stage": 0.5, "commit": 1.5}, "waited_seconds": 3.0, "planned_at": moment, "finished_at": moment,
        "cause": None,
    }  # fmt: skip
    return Applied(**{**known, **facts})  # type: ignore[arg-type]  # a batch's own


def overview(*tables: TableStatus, batches: tuple[Applied, ...] = (), **parts: object) -> Overview:
    """Give an overview of these tables."""
    status = StatusReport(target="/lake", tables=tables)
    ledger = LedgerReport(target="/lake", batches=batches)
    return Overview(status=status, ledger=ledger, **parts)  # type: ignore[arg-type]  # an overview's own


def edge(source: str, target: str, **facts: object) -> Edge:
    """Give a way of a derived table."""
    known: dict[str, object] = {"kind": "derive", "name": target, "keys": ("id",), "how": "full"}
    return Edge(source=source, target=target, **{**known, **facts})  # type: ignore[arg-type]  # an edge's own


@functools.cache
def full(name: str) -> str:
    """Make a page that has a name, and texts that hold it, wherever a page can."""
    reason = f"{name}: {name} is odd (found {name}). Do {name}.\nAnd {name}"
    table = TableStatus(
        table=name, state="failed", reason=reason, warnings=(name,), file=name, landing_zone=name
    )
    ways = (edge(name, f"{name}/b", lost=(name,), keys=(name,), how=name), edge(f"{name}/b", "c"))
    streams = (
        ConsumerStatus(consumer=name, table=name, health="failed", to=name, mode=name, reason=name),
    )
    one = batch(name, seconds={name: 1.0}, kind=name, schema=(f"+ {name} int",), upserts=1)
    return make_page(
        overview(
            table,
            batches=(one, batch(name, 3, outcome="void", cause=name)),
            consumers=ConsumersReport(target=name, streams=streams),
            ways=LineageReport(target=name, edges=ways),
            failures=(name,),
        )
    )


def many(count: int) -> Overview:
    """Give an overview of many tables, some of them stopped."""
    states = ("failed", *["current"] * 40, "blocked", *["behind"] * 9)
    tables = [
        TableStatus(
            table=f"dbo/table_{n:04d}",
            state=states[n % len(states)],
            reason=""
            if states[n % len(states)] == "current"
            else "It is odd. Do what is said here.",
            version=n,
            position=n,
            lag_seconds=n * 7 % 1000 if states[n % len(states)] == "behind" else None,
            last_commit=NOW.isoformat(),
        )
        for n in range(count)
    ]
    batches = [
        batch(f"dbo/table_{n:04d}", (n * 13 + m * 60) % 997, inserts=n * 31 % 5000, updates=n * 7, version=n)
        for n in range(count)
        for m in range(5)
    ]  # fmt: skip
    return overview(*tables, batches=tuple(batches))


class JournalWriter:
    """One table's journal, as runs leave it that have applied a file each."""

    def __init__(self, target: str, zone: Path, name: str) -> None:
        """Begin its first life."""
        self.name = parse_name(name)
        self.journal = Journal(open_store(f"{target}/_mirrorlib"), self.name)
        self.zone = str(zone)
        self.folder = zone / self.name.folder
        self.folder.mkdir(parents=True)
        (self.folder / "_metadata.json").write_text('{"keyColumns": ["id"]}')
        self.life = self.journal.begin_life("first seen", self.zone, 1)
        self.last = 0

    def apply(self, columns: tuple[tuple[str, str], ...] = COLUMNS, **word: object) -> None:
        """Write one more batch, and the last word."""
        self.last += 1
        name = f"{self.last:020d}.parquet"
        (self.folder / name).write_bytes(b"PAR1")
        moment = datetime.now(UTC).isoformat()
        plan = Plan(
            life=self.life.uuid, batch=self.last, attempt="a", zone=self.zone, policies=POLICIES, table_version=None,
            files=(PlannedFile(name=name, size=1, etag="e", rows=1, modified=moment, fingerprint="f"),), previous=None,
            before={"": self.last - 1} if self.last > 1 else {}, after={"": self.last}, listed_at=moment,
        )  # fmt: skip
        self.journal.write_plan(self.life, plan)
        done = Done(
            outcome="applied", version=self.last, table_id="t", columns=columns, table_bytes=1, kind="append",
            rows={"inserts": 7}, seconds={"commit": 0.5}, finished_at=moment,
        )  # fmt: skip
        self.journal.write_done(self.life, self.last, done)
        known = {"state": "current", "reason": "", "zone": self.zone, "since": moment}
        self.journal.write_status({**known, **word})


@contextmanager
def serving(target: str) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """Serve a target by the command, read anew every second; give the page's URL, and the process."""
    command = [
        sys.executable,
        "-m",
        "mirrorlib.cli",
        "serve",
        target,
        "--port",
        "0",
        "--every",
        "1",
    ]
    environment = child_environment()
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as child:
        assert child.stdout is not None
        yield child.stdout.readline().split()[-1], child
        child.kill()


def find_browser() -> str:
    """Return where Chromium is; leave the test out where it is not."""
    pytest.importorskip("playwright")
    found = shutil.which("chromium")
    return found or servers.lack("chromium", "it is not installed: apt-get install chromium")


@contextmanager
def browse() -> Iterator[Browser]:
    """Start a browser."""
    path = find_browser()
    from playwright.sync_api import sync_playwright

    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=path, args=["--no-sandbox"])
        try:
            yield browser
        finally:
            browser.close()


class Looked:
    """A page that a browser shows, and what went wrong in it."""

    def __init__(
        self, browser: Browser, url: str, *, width: int = 1280, scheme: str = "light"
    ) -> None:
        """Open it."""
        self.page: Page = browser.new_page(
            viewport={"width": width, "height": 900},
            color_scheme=scheme,  # type: ignore[arg-type]  # light or dark
        )
        self.errors: list[str] = []
        self.page.on("console", lambda said: self.errors.append(said.text))
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("dialog", lambda dialog: self.errors.append(dialog.message))
        self.page.goto(url)

    def names(self) -> list[str]:
        """Return the tables that are shown, in their order."""
        found = self.page.evaluate(
            "[...document.querySelectorAll('#tables > tbody:not([hidden])')].map(row => row.querySelector('th').textContent)"
        )
        return [str(name) for name in found]
