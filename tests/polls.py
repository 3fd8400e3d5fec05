"""Poll one table without Spark: the listing, the journal and the choice of files are real, and a file counts as applied when it is handed over.

In: a zone and a state folder. Out: `Poller`, which hands over files as a run of `apply` does, and `CountingStore`, which counts what a zone
is asked for.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, cast

from mirrorlib.ingest.applying import Applying
from mirrorlib.ingest.files.history import History
from mirrorlib.ingest.files.incremental_listing import IncrementalListing, read_listed
from mirrorlib.ingest.files.plan import next_run, position_after, within
from mirrorlib.ingest.files.table_folder import OpenedFolder, open_folder, policies_of
from mirrorlib.ingest.options import Options
from mirrorlib.ingest.report import TableReport
from mirrorlib.journal.disk import Journal
from mirrorlib.journal.entries import Done, Entry, Life, Plan, PlannedFile, new_attempt, now
from mirrorlib.names import TableName
from mirrorlib.store import Store, StoredFile

FOLDER = TableName(None, "orders")


class CountingStore:
    """A store that counts its calls."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.calls: Counter[str] = Counter()

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._store, name)
        return self._counted(name, found) if callable(found) else found

    def _counted(self, name: str, call: Callable[..., object]) -> Callable[..., object]:
        def counted(*args: object, **more: object) -> object:
            self.calls[name] += 1
            return call(*args, **more)

        return counted

    def asked(self) -> dict[str, int]:
        """Give the calls since the last time."""
        calls, self.calls = dict(self.calls), Counter()
        return calls


def counting(store: Store) -> tuple[Store, CountingStore]:
    """Give a store twice: as the product sees it, and as the test does."""
    counted = CountingStore(store)
    return cast("Store", counted), counted


@dataclass(slots=True)
class Poller:
    """One table of a zone, polled again and again."""

    zone: Store
    state: Store
    warnings: tuple[str, ...] = ()
    handed: list[str] = field(default_factory=list)

    def poll(self, **options: Any) -> tuple[str, list[str]]:
        """Hand over what a run would apply; give the state that it would end in, and the files."""
        asked = Options(**options)
        journal = Journal(self.state, FOLDER)
        history = History(journal, self.zone.url)
        told = TableReport(table=str(FOLDER), state="waiting")
        course = Applying(told=told, zone=self.zone.url, others_wait=lambda: False)
        left = read_listed(journal.read_status())
        opened = open_folder(
            self.zone,
            FOLDER,
            history,
            incremental=IncrementalListing(history, asked, left, due=False),
        )
        if opened.waits_for:
            course.record(journal, course.report("waiting", opened.waits_for))
            return "waiting", []
        lives = journal.lives()
        life = lives[-1] if lives else journal.begin_life("first seen", self.zone.url, 1)
        incremental = IncrementalListing(history, asked, left)
        opened = open_folder(self.zone, FOLDER, history, incremental=incremental)
        if opened.listing.by_time:  # as `advance_table` does
            opened = open_folder(self.zone, FOLDER, history, incremental=incremental)
        self.warnings = opened.warnings
        names: list[str] = []
        while True:
            entry = course.entry = journal.newest(life)
            position = entry.position if entry else {}
            run = next_run(opened.listing, position)
            if not run.files:
                break
            files = within(run.files, asked.max_files, asked.max_bytes)
            names += self._hand_over(journal, life, entry, opened, files, asked)
            opened = open_folder(self.zone, FOLDER, history, incremental=incremental)
        course.listed = incremental.result(course.entry)
        state, reason = ("blocked", run.gap) if run.gap else ("current", "")
        course.record(journal, course.report(state, reason))  # type: ignore[arg-type]  # both are states
        self.handed += names
        return state, names

    def _hand_over(
        self,
        journal: Journal,
        life: Life,
        entry: Entry | None,
        opened: OpenedFolder,
        files: tuple[tuple[int, StoredFile], ...],
        options: Options,
    ) -> list[str]:
        """Write the plan and the outcome of a batch, as a run does."""
        assert opened.metadata is not None
        policies = policies_of(opened.metadata, opened.dialect, options)
        before = entry.position if entry else {}
        plan = Plan(
            life=life.uuid,
            batch=entry.plan.batch + 1 if entry else 1,
            attempt=new_attempt(),
            zone=self.zone.url,
            files=tuple(
                PlannedFile(
                    name=file.name,
                    size=file.size,
                    etag=file.etag,
                    rows=1,
                    modified=file.modified.isoformat(),
                    fingerprint="",
                )
                for _, file in files
            ),
            before=before,
            after=position_after(before, files, by_time=policies.by_time),
            policies=policies,
            table_version=None,
            previous=None,
            listed_at=opened.listed_at,
        )
        journal.write_plan(life, plan)
        journal.write_done(
            life,
            plan.batch,
            Done(
                outcome="applied",
                version=plan.batch,
                table_id=None,
                columns=(),
                table_bytes=0,
                kind="append",
                finished_at=now(),
            ),
        )
        return [file.name for file in plan.files]
