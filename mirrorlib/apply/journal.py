"""The journal: what a table's lives, plans and outcomes are, on disk, beside the target.

In: a `Store` over the state folder. Out: frozen values read from, and written as, small JSON files
that a person can read:

    journal/<table>/lives/000001.json                       one life of the table folder; its uuid
                                                            is the Delta txn application id
    journal/<table>/gone/000001.json                        when its folder was seen absent
    journal/<table>/000001/<inverse>-<batch>.plan.json      what a batch is; written once
    journal/<table>/000001/<inverse>-<batch>.done.json      how it ended; written once
    journal/<table>/000001.applied/<inverse>-<batch>.parquet  which files were applied until then,
                                                            where names have no numbers to tell
    journal/<table>/status.json                             the last word about the table, for
                                                            people; nothing rests on it

`<inverse>` makes the newest batch sort first, so one short listing finds it. Promises: lives, plans
and outcomes are written by put-if-absent, so whoever comes second reads what the first has written.
Protocol: design §4.
"""

from __future__ import annotations

import json
import secrets
import uuid
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from mirrorlib.errors import JournalError
from mirrorlib.landing.delimited import Dialect
from mirrorlib.landing.metadata import DefinedColumn, Detection

if TYPE_CHECKING:
    from mirrorlib.landing.names import TableName
    from mirrorlib.store import Store

FORMAT = 1
_LAST = 10**12 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Life:
    """One life of a table folder.

    Attributes:
        ordinal: 1 for the first.
        uuid: random; Delta's txn application id is made of it.
        why: what began it: "first seen", "reset", "re-created" or "start at".
        zone: the landing zone's URL when it began.
        started_at: ISO 8601, UTC.
        start_at: the number of its first change file.

    """

    ordinal: int
    uuid: str
    why: str
    zone: str
    started_at: str
    start_at: int = 1

    @property
    def app_id(self) -> str:
        """Return Delta's txn application id for every batch of this life."""
        return f"mirrorlib:{self.uuid}"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedFile:
    """A change file as it was when the batch was planned; *rows* is what its footer said, *modified* ISO 8601, UTC."""

    name: str
    size: int
    etag: str
    rows: int
    modified: str = ""


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

    @property
    def by_time(self) -> bool:
        """Say whether files have no numbers and count by when they were written."""
        return self.detection == "last_update_time"


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """One batch: consecutive change files to be applied in one Delta commit, or voided as a whole.

    Attributes:
        life: the life's uuid.
        batch: 1 for the first.
        attempt: random, names this plan in `userMetadata`.
        zone: the landing zone's URL.
        files: in order.
        before: last applied number per partition folder; empty while the life has applied nothing.
            Files that have no numbers are counted.
        after: the same once this batch is applied.
        table_version: the newest Delta version when it was planned, None when there was no table.
        previous: how batch - 1 ended: applied or void, and its version.
        listed_at: when the folder was listed, ISO 8601, UTC.

    """

    life: str
    batch: int
    attempt: str
    zone: str
    files: tuple[PlannedFile, ...]
    before: Mapping[str, int]
    after: Mapping[str, int]
    policies: Policies
    table_version: int | None
    previous: Mapping[str, Any] | None
    listed_at: str

    @property
    def rows(self) -> int:
        """Return the rows of all files, as their footers said."""
        return sum(file.rows for file in self.files)

    @property
    def bytes(self) -> int:
        """Return the size of all files."""
        return sum(file.size for file in self.files)


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """How a batch ended.

    Attributes:
        outcome: applied, or void: an empty commit has taken the plan's place.
        version: the Delta version.
        table_id: the Delta table's id.
        columns: the table's columns after it, (name, Spark type).
        table_bytes: the table's size after it, roughly: it decides only how the next commit is run.
        kind: append, matched-only, merge, overwrite or empty.
        rows: change rows by marker name.
        seconds: per stage.
        cause: what voided it: file, etag, error and reason.
        finished_at: ISO 8601, UTC.

    """

    outcome: Literal["applied", "void"]
    version: int
    table_id: str | None
    columns: tuple[tuple[str, str], ...]
    table_bytes: int
    kind: str
    rows: Mapping[str, int] = field(default_factory=dict)
    seconds: Mapping[str, float] = field(default_factory=dict)
    cause: Mapping[str, Any] | None = None
    finished_at: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """The newest batch of a life: its plan, and its outcome once there is one."""

    plan: Plan
    done: Done | None

    @property
    def position(self) -> Mapping[str, int]:
        """Return the last applied number per partition folder, after this batch."""
        return (
            self.plan.after
            if self.done is not None and self.done.outcome == "applied"
            else self.plan.before
        )


V = TypeVar("V", Life, Plan, Done)


class Journal:
    """One table's lives, plans and outcomes in a state folder."""

    def __init__(self, state: Store, table: TableName) -> None:
        """Take the store of the state folder; nothing is read yet."""
        self._state = state
        self._table = str(table)
        self._folder = f"journal/{table.segment}"

    def lives(self) -> tuple[Life, ...]:
        """Return all lives, first to newest."""
        listed = self._state.list_folder(f"{self._folder}/lives")
        paths = [file.path for file in listed.files] if listed else []
        return tuple(
            self._value(Life, path) for path in paths if path.endswith(".json") and "/." not in path
        )

    def begin_life(self, why: str, zone: str, ordinal: int, start_at: int = 1) -> Life:
        """Begin life *ordinal*, or return the one that another runner began first."""
        life = Life(
            ordinal=ordinal,
            uuid=str(uuid.uuid4()),
            why=why,
            zone=zone,
            started_at=now(),
            start_at=start_at,
        )
        path = f"{self._folder}/lives/{ordinal:06d}.json"
        self._state.put_new(path, _text(life))
        return self._value(
            Life, path
        )  # never ours by belief: an answer of put-if-absent may have been lost

    def write_gone(self, life: Life) -> None:
        """Write down that the folder was seen absent, which ends a life."""
        said = _json_bytes({"format": FORMAT, "seen_at": now()})
        self._state.put_new(self._gone(life), said)

    def is_gone(self, life: Life) -> bool:
        """Say whether the folder was seen absent in a life."""
        return self._state.stat(self._gone(life)) is not None

    def newest(self, life: Life) -> Entry | None:
        """Return the newest batch of a life; None before the first plan."""
        folder = self._batches(life)
        names = self._state.first_names(folder, 2)
        newest = next((name for name in names if name.endswith((".plan.json", ".done.json"))), None)
        if newest is None:
            return None
        stem = newest.rsplit(".", 2)[0]  # an outcome whose plan was lost must not pass unnoticed
        done = f"{stem}.done.json"
        return Entry(
            plan=self._value(Plan, f"{folder}/{stem}.plan.json"),
            done=self._value(Done, f"{folder}/{done}") if done in names else None,
        )

    def write_plan(self, life: Life, plan: Plan) -> Plan:
        """Write a plan unless its batch has one; return the plan that counts."""
        path = self._path(life, plan.batch, "plan")
        self._state.put_new(path, _text(plan))
        return self._value(Plan, path)

    def write_done(self, life: Life, batch: int, done: Done) -> Done:
        """Write an outcome unless the batch has one; return the one that counts."""
        path = self._path(life, batch, "done")
        self._state.put_new(path, _text(done))
        return self._value(Done, path)

    def entry(self, life: Life, batch: int) -> Entry:
        """Return one batch's plan and outcome."""
        path = self._path(life, batch, "done")
        done = self._value(Done, path) if self._state.stat(path) else None
        return Entry(plan=self._value(Plan, self._path(life, batch, "plan")), done=done)

    def newest_checkpoint(self, life: Life) -> tuple[int, bytes] | None:
        """Return the newest checkpoint of the applied files and the batch that it reaches to."""
        folder = f"{self._batches(life)}.applied"
        name = next(iter(self._state.first_names(folder, 1)), "")
        batch = name.removesuffix(".parquet").rpartition("-")[2]
        data = self._state.read(f"{folder}/{name}") if batch.isdecimal() else None
        return None if data is None else (int(batch), data)

    def write_checkpoint(self, life: Life, batch: int, data: bytes) -> None:
        """Write down all files that were applied up to a batch."""
        path = f"{self._batches(life)}.applied/{_LAST - batch:012d}-{batch}.parquet"
        self._state.put_new(path, data)

    def read_status(self) -> dict[str, Any]:
        """Return the last word about the table; empty when there is none that can be read: nothing rests on it."""
        path = f"{self._folder}/status.json"
        try:
            return self._json(path) if self._state.stat(path) else {}
        except JournalError:
            return {}

    def write_status(self, status: Mapping[str, Any]) -> None:
        """Replace the last word about the table."""
        self._state.put(f"{self._folder}/status.json", _json_bytes({"format": FORMAT, **status}))

    def _gone(self, life: Life) -> str:
        return f"{self._folder}/gone/{life.ordinal:06d}.json"

    def _batches(self, life: Life) -> str:
        return f"{self._folder}/{life.ordinal:06d}"

    def _path(self, life: Life, batch: int, kind: str) -> str:
        return f"{self._batches(life)}/{_LAST - batch:012d}-{batch}.{kind}.json"

    def _json(self, path: str) -> dict[str, Any]:
        return _check_format(self._state.read(path), path, self._table)

    def _value(self, kind: type[V], path: str) -> V:
        value = self._json(path)
        try:
            return _from_json(kind, value)
        except (AttributeError, KeyError, TypeError, ValueError) as exc:
            msg = "the journal lacks a value"
            raise JournalError(msg, table=self._table, file=path, found=str(exc)) from exc


def new_attempt() -> str:
    """Return a random name for one attempt."""
    return secrets.token_hex(8)


def now() -> str:
    """Return this moment as the journal writes it."""
    return datetime.now(UTC).isoformat(timespec="microseconds")


def open_state(state: Store) -> None:
    """See that the state folder can be trusted: its put-if-absent must refuse a second writer. Tried once a folder.

    Raises:
        JournalError: the store does not keep a second writer out, or the folder is of another
            format.

    """
    data = state.read("state.json")
    if data is not None:
        _check_format(data, "state.json")
        return
    probe = f"probe-{new_attempt()}.json"
    try:
        kept_out = state.put_new(probe, b"{}") and not state.put_new(probe, b"{}")
    finally:
        state.delete(probe)
    if not kept_out:
        msg = (
            f"{state.url} has no put-if-absent, without which two runners could apply a batch twice"
        )
        raise JournalError(msg, next_step="Keep the state on another store, with --state.")
    state.put_new("state.json", _json_bytes({"format": FORMAT, "created_at": now()}))


def _check_format(data: bytes | None, path: str, table: str | None = None) -> dict[str, Any]:
    """Parse a file of the state folder.

    Raises:
        JournalError: it is missing, cannot be read, or is of another format.

    """
    try:
        value = json.loads(data or b"")
    except ValueError as exc:
        msg = "the journal cannot be read" if data is not None else "the journal lacks a file"
        step = "Restore the file from a backup, or reset the table."
        raise JournalError(msg, table=table, file=path, next_step=step) from exc
    if not isinstance(value, dict) or value.get("format") != FORMAT:
        msg = "the journal is written in another format"
        step = "Use the mirrorlib version that wrote it, or a newer one."
        raise JournalError(msg, table=table, file=path, next_step=step)
    return value


def _from_json(kind: type[V], value: Mapping[str, Any]) -> V:
    known = {field.name: value[field.name] for field in fields(kind) if field.name in value}
    if kind is Plan:
        known["files"] = tuple(PlannedFile(**file) for file in known["files"])
        known["policies"] = _policies(known["policies"])
    if kind is Done:
        known["columns"] = tuple((name, sql_type) for name, sql_type in known["columns"])
    return kind(**known)


def _policies(stored: Mapping[str, Any]) -> Policies:
    dialect = stored.get("dialect")
    if dialect is not None:
        columns = tuple(DefinedColumn(**column) for column in dialect["columns"])
        dialect = Dialect(**{**dialect, "columns": columns})
    return Policies(**{**stored, "keys": tuple(stored["keys"]), "dialect": dialect})


def _text(value: Life | Plan | Done) -> bytes:
    return _json_bytes({"format": FORMAT, **asdict(value)})


def _json_bytes(value: Mapping[str, Any]) -> bytes:
    return (json.dumps(value, indent=1, ensure_ascii=False) + "\n").encode("utf-8", "surrogatepass")
