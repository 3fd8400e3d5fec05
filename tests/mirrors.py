"""One mirror under test: its zone, its target, and the log of what its publisher meant.

In: a session and an empty folder. Out: `Mirror`, which publishes files that show each doubled or lost effect, runs `apply`, and
compares the table, its feed and its commits with the oracle. `at` makes an observer that does something at one step, once.
"""

from __future__ import annotations

import json
import os
import shutil
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import mirrorlib
from computes import said_by
from mirrorlib.delta.sessions import _set_up, is_remote
from mirrorlib.events import Event
from mirrorlib.ingest.files.table_folder import open_folder
from mirrorlib.ingest.job import open_job, open_work
from mirrorlib.ingest.options import Options
from mirrorlib.ingest.report import ApplyReport, TableReport
from mirrorlib.journal.disk import Journal
from mirrorlib.landing.listing import list_tables
from mirrorlib.store import open_store
from mirrorlib.store.target import Target
from oracle import ChangeFile, Row, Rows, assert_same_rows, multiset, replay, replay_feed
from zones import ZoneWriter

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from mirrorlib.ingest.work import Work
    from mirrorlib.journal.entries import Plan
    from zones import TableWriter

KEYS = ["id"]
TALLY = 100  # a key that every file inserts once more: its rows count the files that took effect
Observer = Callable[[Event], None]


class Killed(BaseException):
    """A runner ends here: no handler of the product may stop it."""


@dataclass(slots=True)
class Mirror:
    """A landing zone with one table, the target that it is applied to, and what the table must hold."""

    spark: SparkSession
    root: Path
    name: str = "orders"
    files: list[ChangeFile] = field(default_factory=list)
    zone: ZoneWriter = field(init=False)
    table: TableWriter = field(init=False)

    def __post_init__(self) -> None:
        """Make the zone's folders."""
        self.zone = ZoneWriter(self.root / "zone")
        self.table = self.zone.table(self.name, keys=KEYS)

    @property
    def target(self) -> str:
        """Return the target's root."""
        return str(self.root / "target")

    @property
    def path(self) -> Path:
        """Return the Delta table's folder."""
        return self.root / "target" / self.name

    @property
    def sql(self) -> str:
        """Return the Delta table as SQL addresses it."""
        return f"delta.`{self.path}`"

    @property
    def journal(self) -> Path:
        """Return the table's folder in the journal."""
        return self.root / "target" / "_mirrorlib" / "journal" / self.name

    def publish(self, rows: Sequence[Row] = (), markers: Sequence[int] | None = None) -> Path:
        """Publish the next file; by default one that inserts, updates, deletes, and counts itself."""
        if not rows:
            rows, markers = file_rows(len(self.files) + 1)
        self.files.append(change_file(rows, markers))
        return self.table.file(rows, markers, number=len(self.files))

    def replace(
        self, number: int, rows: Sequence[Row] = (), markers: Sequence[int] | None = None
    ) -> Path:
        """Publish other content under a number that is taken; it is what counts from now on."""
        if not rows:
            rows, markers = file_rows(number, word="again")
        self.files[number - 1] = change_file(rows, markers)
        return self.table.replace(number, rows, markers)

    def file_name(self, number: int) -> str:
        """Return a change file's name."""
        return self.table.path(number).name

    def apply(self, **options: Any) -> ApplyReport:
        """Apply the zone."""
        return mirrorlib.apply(self.spark, str(self.zone), self.target, **options)

    def run(self, **options: Any) -> TableReport:
        """Apply the zone and return what became of the table."""
        return next(report for report in self.apply(**options).tables if report.table == self.name)

    def run_until(self, step: str, when: str) -> None:
        """Apply, and die at a step."""
        with pytest.raises(Killed):
            self.apply(observe=at(step, when, die))

    def run_until_foreign(
        self, statement: str, step: str, when: str, end: str, end_when: str
    ) -> None:
        """Apply, let somebody else run SQL at one step, and die at another."""
        meddle, end_it = at(step, when, lambda: self.do(statement)), at(end, end_when, die)

        def observe(event: Event) -> None:
            meddle(event)
            end_it(event)

        with pytest.raises(Killed):
            self.apply(observe=observe)

    def drop_and_publish(self, count: int) -> None:
        """Remove the table folder's files and publish others from number 1, as a source does that starts over."""
        for path in self.table.folder.glob("*.parquet"):
            path.unlink()
        self.files.clear()
        for number in range(1, count + 1):
            self.publish(*file_rows(number, word="anew"))

    def reset(self) -> None:
        """Begin a new life of the table."""
        mirrorlib.reset(self.spark, self.target, self.name)

    def do(self, statement: str) -> None:
        """Let somebody else run SQL, `{t}` being the table."""
        session = self.spark if is_remote(self.spark) else self.spark.newSession()
        session.sql(statement.format(t=self.sql)).collect()

    def open_work(self, **options: Any) -> Work:
        """Begin as a runner of its own that nothing keeps off the table, as on a store where no lock is needed."""
        job = open_job(
            self.spark,
            str(self.zone),
            Target.of(self.target, catalog=None, state=None),
            Options(**options),
        )
        folder = next(one for one in list_tables(job.zone) if str(one) == self.name)
        lives = Journal(job.state, folder).lives()
        session = _set_up(self.spark)  # for good: the work may outlive any block
        work = open_work(job, session, folder, open_folder(job.zone, folder), lives)
        return replace(work, state=open_store(str(self.root / "staged elsewhere")))

    def plan(self, work: Work, batch: int) -> Plan:
        """Return a plan of the journal."""
        return work.journal.entry(work.life, batch).plan

    def outcome(self, batch: int, life: int = 1) -> dict[str, Any]:
        """Return what the journal says that became of a batch."""
        path = next((self.journal / f"{life:06d}").glob(f"*-{batch}.done.json"))
        return dict(json.loads(path.read_text()))

    def forget(self, batch: int, life: int = 1) -> None:
        """Lose the journal's word on how a batch ended."""
        next((self.journal / f"{life:06d}").glob(f"*-{batch}.done.json")).unlink()

    def plans(self, life: int = 1) -> int:
        """Count the plans of a life."""
        return len(list((self.journal / f"{life:06d}").glob("*.plan.json")))

    def rows(self, version: int | None = None) -> Rows:
        """Return the table's rows."""
        reader = self.spark.read.format("delta")
        if version is not None:
            reader = reader.option("versionAsOf", version)
        return multiset(row.asDict() for row in reader.load(str(self.path)).collect())

    def expected(self, files: int | None = None) -> Rows:
        """Return the rows that the first *files* files make."""
        return replay(self.files[:files], keys=KEYS).multiset

    def commits(self) -> list[tuple[str, Mapping[str, Any]]]:
        """Return every commit's operation and what mirrorlib wrote into it, oldest first."""
        found = []
        for path in sorted((self.path / "_delta_log").glob("*.json")):
            lines = [json.loads(line) for line in path.read_text().splitlines()]
            info = next(line["commitInfo"] for line in lines if "commitInfo" in line)
            found.append((info["operation"], said_by(info)))
        return found

    @property
    def newest(self) -> int:
        """Return the table's newest version."""
        return max(int(path.stem) for path in (self.path / "_delta_log").glob("*.json"))

    def assert_holds(self, files: int | None = None) -> None:
        """See that the table holds the first *files* files' effects, each once, and that no batch was committed twice."""
        assert_same_rows(self.expected(files), self.rows())
        batches = Counter(
            (said["life"], said["batch"]) for _, said in self.commits() if said.get("batch")
        )
        assert [] == [batch for batch, count in batches.items() if count > 1]

    def assert_feed(self) -> None:
        """See that replaying the table's feed gives the table."""
        changes = (
            self.spark.read.format("delta")
            .option("readChangeFeed", "true")
            .option("startingVersion", 0)
        )
        states = replay_feed(row.asDict() for row in changes.load(str(self.path)).collect())
        assert_same_rows(self.rows(), states[max(states)], "the feed")

    def move_zone(self, place: str = "zone elsewhere") -> None:
        """Move the zone; its files keep their identity."""
        (self.root / "zone").rename(self.root / place)
        self.use_zone(place)

    def use_zone(self, place: str) -> None:
        """Publish to, and apply, another zone from now on."""
        self.zone = ZoneWriter(self.root / place)
        self.table = self.zone.table(self.name, keys=KEYS)

    def assert_current(self, **options: Any) -> TableReport:
        """See that a plain apply brings the table to what its publisher meant."""
        report = self.run(**options)

        assert ("current", "") == (report.state, report.reason)
        self.assert_holds()
        return report

    def assert_failed(self, error: str, *words: str, **options: Any) -> TableReport:
        """See that an apply fails the table, and says what is wrong."""
        report = self.run(**options)

        assert ("failed", error) == (report.state, report.error), report.reason
        assert [] == [word for word in words if word not in report.reason], report.reason
        return report

    def assert_foreseen(self, *words: str, state: str = "failed", **options: Any) -> None:
        """See that a plan says what an apply would."""
        (table,) = mirrorlib.plan(self.spark, str(self.zone), self.target, **options).tables

        assert state == table.state, table.reason
        assert [] == [word for word in words if word not in table.reason], table.reason

    def copy(self, root: Path) -> Mirror:
        """Return a mirror of its own that has come as far; the zone's files keep their identity."""
        shutil.copytree(self.root / "zone", root / "zone", copy_function=os.link)
        if self.path.parent.exists():
            shutil.copytree(self.root / "target", root / "target")
        for path in (root / "target" / "_mirrorlib" / "journal").rglob("*.json"):
            path.write_text(path.read_text().replace(str(self.zone), str(root / "zone")))
        return Mirror(spark=self.spark, root=root, name=self.name, files=list(self.files))


def file_rows(number: int, word: str = "by") -> tuple[list[Row], list[int]]:
    """Make a file's rows: one new key, one row more of `TALLY`, an update of key 1, and a delete of a key two files back."""
    said = f"{word} {number}"
    rows: list[Row] = [{"id": number, "v": said}, {"id": TALLY, "v": said}]
    markers = [0, 0]
    if number > 1:
        rows.append({"id": 1, "v": said})
        markers.append(1)
    if number > 3:
        rows.append({"id": number - 2, "v": None})
        markers.append(2)
    return rows, markers


def change_file(rows: Sequence[Row], markers: Sequence[int] | None) -> ChangeFile:
    """Tell the oracle about a file."""
    columns = tuple(dict.fromkeys(name for row in rows for name in row))
    return ChangeFile(
        columns=columns, rows=tuple(rows), markers=None if markers is None else tuple(markers)
    )


def at(step: str, when: str, action: Callable[[], object]) -> Observer:
    """Make an observer that does something once, the first time that a step is reached."""
    pending = [action]

    def observe(event: Event) -> None:
        if (event.step, event.when) == (step, when) and pending:
            pending.pop()()

    return observe


def die() -> None:
    """End a runner."""
    raise Killed
