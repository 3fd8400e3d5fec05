"""What is kept of a consumer, read back from files that somebody has damaged. No Spark."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from datetime import UTC, datetime, timedelta, tzinfo
from typing import TYPE_CHECKING

import pytest

import mirrorlib
from mirrorlib.delta.commits import Commits
from mirrorlib.errors import JournalError, TableBusyError
from mirrorlib.feed.window import plan_window
from mirrorlib.journal.entries import now
from mirrorlib.journal.leases import hold, process_started
from mirrorlib.journal.registry import Registry
from mirrorlib.journal.streams import WindowDone, WindowEntry, WindowPlan, last_seen
from mirrorlib.names import parse_name
from mirrorlib.store import LocalStore, open_store

if TYPE_CHECKING:
    from pathlib import Path

    from mirrorlib.journal.streams import Stream

WANTED = {
    "to": "delta:/lake",
    "mode": "current",
    "net": False,
    "start_at": None,
    "table_id": "t",
    "on_expired": "fail",
}


@pytest.fixture
def registry(tmp_path: Path) -> Registry:
    """Give a consumer's registry."""
    return Registry(open_store(str(tmp_path)), "lake", parse_name("orders"))


def delivered(registry: Registry) -> Stream:
    """Begin a stream and deliver one window."""
    stream = registry.begin(WANTED, 1)
    plan = WindowPlan(
        stream=stream.uuid, number=1, attempt="a", kind="changes", reset=False, after=0, until=3,
        until_at=now(), table_id="t", keys=("id",),
    )  # fmt: skip
    assert plan == registry.write_plan(stream, plan)
    done = WindowDone(outcome="delivered", rows=2, seconds=0.5, finished_at=now(), given=1)
    assert done == registry.write_done(stream, 1, done)
    assert WindowEntry(plan=plan, done=done) == registry.newest(stream)
    return stream


@pytest.mark.parametrize("kind,lost", [("plan", "until"), ("plan", "keys"), ("done", "outcome")])
@pytest.mark.parametrize("damage", ["without it", "in another shape", "no JSON", "nothing"])
def test_a_damaged_window_is_named(
    registry: Registry, tmp_path: Path, kind: str, lost: str, damage: str
) -> None:
    """By its file: an error that says so, never a bare one of Python's."""
    stream = delivered(registry)
    file = next((tmp_path / registry.folder / stream.uuid).glob(f"*.{kind}.json"))
    told = json.loads(file.read_text())
    told[lost] = 5 if damage == "in another shape" else told.pop(lost)
    whole = json.dumps({name: value for name, value in told.items() if name != lost})
    text = {"in another shape": json.dumps(told), "no JSON": "{", "nothing": ""}.get(damage, whole)
    file.write_text(text)

    if (damage, lost) in {("in another shape", "until"), ("in another shape", "outcome")}:
        assert registry.newest(stream) is not None  # what no reader takes apart is not looked into
        return
    with pytest.raises(JournalError) as caught:
        registry.newest(stream)

    assert "orders" == caught.value.table
    assert file.name == str(caught.value.file).rpartition("/")[2]


def commit(root: Path, version: int, said: str) -> Commits:
    """Write a version of the table, in place of what is there."""
    made = {"metaData": {"id": "t", "schemaString": '{"type": "struct", "fields": []}'}}
    log = root / "orders" / "_delta_log"
    log.mkdir(parents=True, exist_ok=True)
    lines = [json.dumps(one) for one in ({"commitInfo": {"said": said}}, made)]
    (log / f"{version:020d}.json").write_text("\n".join(lines))
    return Commits(open_store(log.parent), "orders")


def test_a_table_that_was_put_back_and_has_grown_is_another_one(
    registry: Registry, tmp_path: Path
) -> None:
    """By its log's file of the version that a plan has come to, as long as that is there; older plans know no hash."""
    commit(tmp_path, 0, "a")
    stream = registry.begin(WANTED, 1)
    plan = registry.write_plan(stream, plan_window(commit(tmp_path, 1, "b"), stream, None, None, 1))
    done = WindowDone(outcome="delivered", rows=2, seconds=0.5, finished_at=now(), given=1)
    entry = WindowEntry(plan=plan, done=done)

    assert commit(tmp_path, 2, "c").is_still(*last_seen(stream, entry))
    assert not commit(tmp_path, 1, "d").is_still(*last_seen(stream, entry))
    older = replace(entry, plan=replace(plan, until_hash=""))
    assert commit(tmp_path, 1, "d").is_still(*last_seen(stream, older))
    assert commit(tmp_path, 1, "b").is_still(*last_seen(stream, entry))
    (tmp_path / "orders" / "_delta_log" / f"{1:020d}.json").unlink()
    assert commit(tmp_path, 3, "e").is_still(*last_seen(stream, entry))


def test_a_receiver_that_was_given_nothing_is_not_reset(registry: Registry, tmp_path: Path) -> None:
    """A first snapshot that was void is followed by another; one that had to reset is followed by one that has to."""
    commits, stream = commit(tmp_path, 0, "a"), registry.begin(WANTED, 1)
    void = WindowDone(outcome="void", rows=None, seconds=0.5, finished_at=now(), given=0)
    first = plan_window(commits, stream, None, None, 0)
    then = plan_window(commits, stream, WindowEntry(plan=first, done=void), None, 0)
    assert (False, False) == (first.reset, then.reset)
    done = replace(void, outcome="delivered", rows=1)
    lost = plan_window(commits, stream, WindowEntry(plan=first, done=done), None, 0)
    again = plan_window(commits, stream, WindowEntry(plan=lost, done=void), None, 0)
    assert (True, True) == (lost.reset, again.reset)


def test_consumers_tell_when_the_last_window_was_given(registry: Registry, tmp_path: Path) -> None:
    """Also while the next one is under way; nothing before the first."""

    def last() -> str | None:
        return mirrorlib.consumers(tmp_path, state=tmp_path).streams[0].last

    commits, stream = commit(tmp_path, 0, "a"), registry.begin(WANTED, 1)
    assert last() is None
    plan = registry.write_plan(stream, plan_window(commits, stream, None, None, 0))
    assert last() is None
    done = WindowDone(outcome="delivered", rows=2, seconds=0.5, finished_at=now(), given=1)
    registry.write_done(stream, 1, done)
    assert done.finished_at == last()
    commits, entry = commit(tmp_path, 1, "b"), WindowEntry(plan=plan, done=done)
    registry.write_plan(stream, plan_window(commits, stream, entry, 0, 1))
    assert done.finished_at == last()


def test_consumers_of_another_target_in_one_state_folder_are_left_alone(tmp_path: Path) -> None:
    """A target without any of its own may be one that was moved, and so may a table that is still the same."""
    state, ours, theirs = tmp_path / "state", tmp_path / "ours", tmp_path / "theirs"
    commit(ours, 0, "moved")
    (ours / "orders").rename(ours / "moved")
    for table, target in (("orders", ours), ("lines", theirs), ("moved", theirs)):
        registry = Registry(open_store(str(state)), "lake", parse_name(table))
        registry.begin({**WANTED, "target": str(target)}, 1)

    told = mirrorlib.consumers(ours, state=state).streams
    unknown = mirrorlib.consumers(tmp_path / "elsewhere", state=state).streams

    assert ["moved", "orders"] == sorted(one.table for one in told)
    assert 3 == len(unknown)
    with pytest.raises(JournalError, match="no consumer lake is registered for these tables"):
        mirrorlib.drop_consumer(ours, "lake", tables=["lines"], state=state)
    assert {"moved", "orders"} == {*mirrorlib.drop_consumer(ours, "lake", state=state)}
    assert ("lines",) == mirrorlib.drop_consumer(theirs, "lake", state=state)


def test_a_damaged_stream_is_named(registry: Registry, tmp_path: Path) -> None:
    """And can still be forgotten, by the name of its file."""
    delivered(registry)
    file = tmp_path / registry.folder / "streams" / "000001.json"
    file.write_text(json.dumps({"format": 1, "consumer": "lake"}))

    with pytest.raises(JournalError, match="the journal cannot be read"):
        registry.newest_stream()
    registry.forget()

    assert 1 == registry.forgotten()[0]


@pytest.mark.parametrize("at", range(1, 4))
def test_a_drop_that_is_killed_brings_no_earlier_stream_back(
    registry: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: int
) -> None:
    """Before each stream's file is removed, and in a folder of any order; dropped again, it is known how many there were."""
    streams = [registry.begin(WANTED, ordinal) for ordinal in (1, 2, 3)]
    left, delete = iter(range(1, at)), LocalStore.delete

    def die(store: LocalStore, path: str) -> None:
        if next(left, None) is None:
            raise KeyboardInterrupt
        delete(store, path)

    def die_behind_the_first(_: LocalStore, folder: str) -> None:
        for file in sorted((tmp_path / folder).glob("*.json"))[-1:]:
            file.unlink()
        raise KeyboardInterrupt

    monkeypatch.setattr(LocalStore, "delete", die)
    monkeypatch.setattr(LocalStore, "delete_folder", die_behind_the_first)
    with pytest.raises(KeyboardInterrupt):
        registry.forget()
    monkeypatch.undo()

    assert streams[-1] == registry.newest_stream()
    registry.forget()
    assert 3 == registry.forgotten()[0]


def test_a_stream_that_cannot_be_read_says_how_to_begin_anew(
    registry: Registry, tmp_path: Path
) -> None:
    """A reset of the table would not mend it."""
    delivered(registry)
    next(tmp_path.rglob("streams/*.json")).write_text("{")

    with pytest.raises(JournalError, match="or drop it and export again"):
        registry.newest_stream()
    registry.forget()
    assert registry.newest_stream() is None


def test_stray_files_are_no_streams(registry: Registry, tmp_path: Path) -> None:
    """A Mac puts its own files beside others, and people their notes; how many streams there were is told without them."""
    stream = delivered(registry)
    for name in ("._000001.json", "notes.json", "000002.json.bak"):
        (tmp_path / registry.folder / "streams" / name).write_text("{")

    assert stream == registry.newest_stream()
    registry.forget()

    assert (1, "t") == registry.forgotten()


def test_stray_files_are_no_leases(registry: Registry, tmp_path: Path) -> None:
    """What sorts before a lease does not let a second runner in."""
    with hold(registry.lease()):
        (tmp_path / registry.folder / "lease" / "# notes").write_text("{")

        with pytest.raises(TableBusyError), hold(registry.lease()):
            pass


DAMAGE = {
    "no JSON": "{",
    "nested too deep": "[" * 100_000,
    "nothing": "",
    "no moment": {"until": "soon"},
    "null": {"until": None},
    "a number": {"until": 5},
    "no zone": {"until": "2999-01-01T00:00:00"},
}


def lease_of(registry: Registry, tmp_path: Path, told: object) -> Path:
    """Take a lease, give it back, and damage its file."""
    with hold(registry.lease()):
        pass
    file = next((tmp_path / registry.folder / "lease").iterdir())
    if isinstance(told, dict):
        told = json.dumps(json.loads(file.read_text()) | told)
    file.write_text(str(told))
    return file


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_lease_that_cannot_be_read_is_nobody_s(
    registry: Registry, tmp_path: Path, damage: str
) -> None:
    """A lease is written as a whole, so nobody is at one that is damaged, and nobody waits for it."""
    lease_of(registry, tmp_path, DAMAGE[damage])

    with hold(registry.lease()):
        assert str(os.getpid()) in registry.lease().newest()[1]


@pytest.mark.parametrize("pid", [None, "7", [], 1.5])
def test_a_lease_of_no_process_is_held_until_it_runs_out(
    registry: Registry, tmp_path: Path, pid: object
) -> None:
    """Nobody can tell whether it has ended."""
    soon = datetime.now(UTC) + timedelta(seconds=30)
    file = lease_of(registry, tmp_path, {"pid": pid, "until": soon.isoformat(), "started": "1"})
    assert str(os.uname().nodename) in registry.lease().newest()[1]

    told = json.loads(file.read_text())
    del told["pid"]
    file.write_text(json.dumps(told))
    assert str(os.uname().nodename) in registry.lease().newest()[1]
    file.write_text(json.dumps(told | {"until": (soon - timedelta(minutes=1)).isoformat()}))
    assert not registry.lease().newest()[1]
    tomorrow = {"until": (soon + timedelta(days=1)).isoformat()}
    file.write_text(json.dumps(told | tomorrow))  # its clock was ahead: nobody asks for so long
    assert not registry.lease().newest()[1]
    past = {"pid": os.getpid(), "started": "0", "until": soon.isoformat()}
    assert process_started(os.getpid()) != "0"
    file.write_text(json.dumps(told | past))
    assert not registry.lease().newest()[1]


def test_a_lease_that_was_given_back_is_free_whatever_the_clock_says(
    registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The clock was set back since, in a process that lives on; or the next runner's is behind that of the last."""

    class Earlier(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> datetime:  # type: ignore[override]  # a plain one does
            return datetime.now(tz) - timedelta(hours=2)

    with hold(registry.lease()):
        pass
    monkeypatch.setattr("mirrorlib.journal.leases.datetime", Earlier)

    assert "" == registry.lease().newest()[1]
    with hold(registry.lease()):
        assert str(os.getpid()) in registry.lease().newest()[1]
