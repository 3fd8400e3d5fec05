"""Keep count of one table's run: the batches it applied, what it warns about, and the state it ends in.

In: outcomes as they come. Out: a `TableReport`, and the same word in the journal for `status` to
read.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Any

from mirrorlib.events import pick
from mirrorlib.ingest.batch.foreign_writes import Verified
from mirrorlib.ingest.files.incremental_listing import Listed
from mirrorlib.ingest.files.plan import Watched
from mirrorlib.ingest.report import BatchReport, State, TableReport, shown_position
from mirrorlib.journal.disk import Journal
from mirrorlib.journal.entries import Done, Entry, Plan, now


@dataclass(slots=True, kw_only=True)
class Progress:
    """What is known about a table while its run goes on; the one value here that changes."""

    table: str
    zone: str
    entry: Entry | None = None
    batches: list[BatchReport] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    watched: Watched | None = None
    listed: Listed | None = None
    verified: Verified | None = None
    proven: str | None = None
    emptied: str | None = None
    listing: str = ""

    def recall(self, word: Mapping[str, Any]) -> None:
        """Take over what an earlier run has left in the table's last word; nothing rests on it."""
        self.proven = word.get("proven")
        with contextlib.suppress(KeyError, TypeError, ValueError):
            datetime.fromisoformat(word["emptied"])
            self.emptied = str(word["emptied"])

    def add(self, plan: Plan, done: Done) -> None:
        """Take over a batch that has ended; a void one applied nothing."""
        self.entry = Entry(plan=plan, done=done)
        if done.outcome == "applied":
            self.batches.append(BatchReport.of(plan, done))

    def warn(self, *warnings: str) -> None:
        """Note warnings, each once."""
        self.warnings += [warning for warning in warnings if warning not in self.warnings]

    def end(
        self, state: State, reason: str = "", *, file: str | None = None, error: str | None = None
    ) -> TableReport:
        """End in a state."""
        return TableReport(
            table=self.table,
            state=state,
            reason=reason,
            file=file,
            error=error,
            position=shown_position(self.applied),
            version=self.entry.done.version if self.entry and self.entry.done else None,
            batches=tuple(self.batches),
            warnings=tuple(self.warnings),
            listing=self.listing,
        )

    @property
    def applied(self) -> Mapping[str, int]:
        """Return the last applied number per partition folder; empty while there is none."""
        return self.entry.position if self.entry else {}


def record_status(journal: Journal, progress: Progress, report: TableReport) -> tuple[str, str]:
    """Write a table's last word into the journal, unless it stands there; return the state before, and since when."""
    old = journal.read_status()
    before = str(old.get("before") or old.get("state", ""))
    same = (old.get("state"), old.get("reason")) == (report.state, report.reason)
    since = old["since"] if same and "since" in old else now()
    done, listed = progress.entry.done if progress.entry else None, progress.listed
    word: dict[str, Any] = {
        **pick(report, "table", "state", "reason", "file", "error", "position", "version"),
        "since": since,
        "zone": progress.zone,
        "last_commit": done.finished_at if done else None,
        "warnings": list(report.warnings),
        "watched": asdict(progress.watched) if progress.watched else None,
        "listing": listed and {**asdict(listed), "warnings": list(listed.warnings)},
        "verified": asdict(progress.verified) if progress.verified else old.get("verified"),
        **({"proven": progress.proven} if progress.proven else {}),
        **({"emptied": progress.emptied} if progress.emptied else {}),
        **({"before": before} if report.state == "behind" else {}),  # it may stop there again
    }
    if {name: value for name, value in old.items() if name != "format"} != word:
        journal.write_status(word)
    return before, str(since)
