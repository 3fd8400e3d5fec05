"""What the journal holds: a table's lives, the plans of its batches, and how they ended.

In: nothing. Out: frozen values and their JSON, which a person can read. Protocol: docs/architecture.md, "The commit
protocol".
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal

from mirrorlib.journal.plan_log import Value
from mirrorlib.landing.delimited.dialect import Dialect
from mirrorlib.landing.metadata.declared import DefinedColumn, Detection
from mirrorlib.landing.plain import FileKind, kind_of

Readers = Literal["plain"]
REBUILD = "rebuild"  # why a life begins that computes anew what the one before has applied


@dataclass(frozen=True, slots=True, kw_only=True)
class Life(Value):
    """One life of a table folder, numbered from 1 on; `zone` is the landing zone's URL when it began."""

    ordinal: int
    uuid: str  # random; Delta's txn application id is made of it
    why: str  # what began it: "first seen", "reset", "rebuild", "re-created" or "start at"
    zone: str
    started_at: str  # ISO 8601, UTC
    start_at: int = 1  # the number of its first change file
    # False when the files of a plain folder that were there are passed over.
    include_existing: bool = True
    # It goes on with the table of the life before, a plain folder's, behind what that has appended.
    keeps: bool = False

    @property
    def app_id(self) -> str:
        """Return Delta's txn application id for every batch of this life."""
        return f"mirrorlib:{self.uuid}"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedFile:
    """A change file, by its path below the table's folder, as it was when the batch was planned."""

    name: str
    size: int
    etag: str  # what the store said identifies it; a copy of it has another
    rows: int  # what its footer said, or its text held
    modified: str  # ISO 8601, UTC
    fingerprint: str  # tells its content from any other, see `landing.footer`


@dataclass(frozen=True, slots=True, kw_only=True)
class Policies:
    """What a plan's outcome depends on beside its files; whoever carries it out uses these, not his own options."""

    keys: tuple[str, ...]
    upsert_default: bool
    insert_policy: Literal["append", "upsert"]
    evolution: Literal["widen", "add", "strict"]
    ntz: Literal["utc", "keep"]
    quiet: bool = False
    dialect: Dialect | None = None  # how delimited text is written; None for Parquet
    detection: Detection = "sequential"
    conditional: str | None = None  # an update counts only where this column is greater
    plain: Literal["add", "rescue", "fail", "none"] | None = None  # a plain folder's evolution
    readers: Readers | None = None  # "plain": the table has to stay readable by all
    partial: str | None = None  # what updates set, where it is not every column
    snapshots: bool = False  # each file is the table as it is from then on

    @property
    def by_time(self) -> bool:
        """Say whether files have no numbers and count by when they were written."""
        return self.detection == "last_update_time"

    @property
    def rescues(self) -> bool:
        """Say whether what fits no column is kept beside them."""
        return self.plain in {"add", "rescue"}

    def kind_of(self, name: str) -> FileKind:
        """Say how a file is read: in a plain folder its name tells, else the table's metadata."""
        if self.plain is not None:
            return kind_of(name)
        return "parquet" if self.dialect is None else "delimited"


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan(Value):
    """One batch: consecutive change files, in order, to be applied in one Delta commit, or voided as a whole."""

    life: str  # the life's uuid
    batch: int  # from 1 on
    attempt: str  # random, names this plan in `userMetadata`
    zone: str
    files: tuple[PlannedFile, ...]
    # Last applied number per partition folder; empty while the life has applied nothing. Files that have no numbers
    # are counted.
    before: Mapping[str, int]
    after: Mapping[str, int]  # the same once this batch is applied
    policies: Policies
    # The newest Delta version when it was planned, None when there was no table.
    table_version: int | None
    previous: Mapping[str, Any] | None  # how batch - 1 ended: applied or void, and its version
    listed_at: str  # when the folder was listed, ISO 8601, UTC
    # The same of the plans before, or when the newest of all their files was written: the store's clock may be ahead
    # of ours.
    seen_until: str = ""
    # When the folder was seen in full last, where only what is new has been looked for since; "" where this plan's
    # listing was full.
    unseen_since: str = ""

    @staticmethod
    def revive(known: dict[str, Any]) -> dict[str, Any]:
        """Give lists and objects their types back, and see that it has files, and says when each was written."""
        files = tuple(PlannedFile(**file) for file in known["files"])
        min(datetime.fromisoformat(file.modified) for file in files)
        policies = {**known["policies"], "keys": tuple(known["policies"]["keys"])}
        if (dialect := policies.get("dialect")) is not None:
            columns = tuple(DefinedColumn(**column) for column in dialect["columns"])
            policies["dialect"] = Dialect(**{**dialect, "columns": columns})
        return {**known, "files": files, "policies": Policies(**policies)}

    @property
    def rows(self) -> int:
        """Return the rows of all files, as their footers said."""
        return sum(file.rows for file in self.files)

    @property
    def bytes(self) -> int:
        """Return the size of all files."""
        return sum(file.size for file in self.files)


@dataclass(frozen=True, slots=True, kw_only=True)
class Done(Value):
    """How a batch ended, at which version of the Delta table, and what each stage took in seconds."""

    # Applied, or void: an empty commit has taken the plan's place.
    outcome: Literal["applied", "void"]
    version: int
    table_id: str | None
    columns: tuple[tuple[str, str], ...]  # the table's columns after it, (name, Spark type)
    # The table's size after it, roughly: it decides only how the next commit is run.
    table_bytes: int
    kind: str  # adopt, append, matched-only, merge, overwrite, difference or empty
    finished_at: str  # ISO 8601, UTC
    rows: Mapping[str, int] = field(default_factory=dict)  # change rows by marker name
    seconds: Mapping[str, float] = field(default_factory=dict)
    # What voided it, or an earlier batch: file, etag, error and reason; and `others`, which voided still earlier ones
    # and lie ahead too.
    cause: Mapping[str, Any] | None = None
    # A file that was replaced while the commit itself read it, so that it may be in the table either way; None when
    # nothing casts doubt on it.
    doubt: str | None = None
    keys: str = ""  # what the table's property says of its keys, "" for none

    @staticmethod
    def revive(known: dict[str, Any]) -> dict[str, Any]:
        """Give pairs their type back, and see that it says when it ended."""
        datetime.fromisoformat(known["finished_at"])
        return {**known, "columns": tuple((name, sql_type) for name, sql_type in known["columns"])}


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """The newest batch of a life: its plan, and its outcome once there is one."""

    plan: Plan
    done: Done | None

    @property
    def position(self) -> Mapping[str, int]:
        """Return the last applied number per partition folder, after this batch."""
        applied = self.done is not None and self.done.outcome == "applied"
        return self.plan.after if applied else self.plan.before


def proof_of(zone: str | None, entry: Entry | None) -> str | None:
    """Name what was proven of a zone that was moved: where, and up to which batch; None for nothing to prove."""
    if entry is None or entry.plan.zone == zone:
        return None
    return f"{_proof(entry.plan)}{zone}"


def _proof(plan: Plan) -> str:
    return f"batch {plan.batch} ({plan.attempt}) at "  # its number recurs in each life


def zone_of(word: Mapping[str, Any], entry: Entry | None) -> str | None:
    """Return the landing zone of a table, given its last word and newest batch: that one's, or where it has moved to.

    A run that was refused has named its zone in the last word, too; only before a batch there is nothing else.
    """
    if entry is None:
        return word.get("zone")
    proven, proof = str(word.get("proven")), _proof(entry.plan)
    return proven.removeprefix(proof) if proven.startswith(proof) else entry.plan.zone


def every_cause(cause: Mapping[str, Any] | None) -> tuple[Mapping[str, Any], ...]:
    """Return each of the causes that an outcome tells."""
    if not cause:
        return ()
    own = {name: value for name, value in cause.items() if name != "others"}
    return (own, *cause.get("others", ()))


def new_attempt() -> str:
    """Return a random name for one attempt."""
    return secrets.token_hex(8)


def now() -> str:
    """Return this moment as the journal writes it."""
    return datetime.now(UTC).isoformat(timespec="microseconds")
