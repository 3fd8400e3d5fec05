"""What is kept of a consumer, read back from files that somebody has damaged. No Spark."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from mirrorlib.errors import JournalError
from mirrorlib.journal.entries import now
from mirrorlib.journal.registry import Registry
from mirrorlib.journal.streams import WindowDone, WindowEntry, WindowPlan
from mirrorlib.names import parse_name
from mirrorlib.store import open_store

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
        until_at=now(), table_id="t", keys=("id",), planned_at=now(),
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


def test_a_damaged_stream_is_named(registry: Registry, tmp_path: Path) -> None:
    """And can still be forgotten, by the name of its file."""
    delivered(registry)
    file = tmp_path / registry.folder / "streams" / "000001.json"
    file.write_text(json.dumps({"format": 1, "consumer": "lake"}))

    with pytest.raises(JournalError, match="the journal lacks a value"):
        registry.newest_stream()
    registry.forget()

    assert 1 == registry.forgotten()[0]
