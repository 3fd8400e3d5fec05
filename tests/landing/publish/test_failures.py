"""A store that fails at any call, or loses the answer, makes no gap and publishes nothing twice."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest

from mirrorlib.errors import StoreError
from mirrorlib.landing.publish.writer import LandingZoneWriter
from mirrorlib.store import Store
from publishing import (
    FOLDER,
    TABLE,
    Fault,
    FaultyStore,
    assert_each_once,
    batch,
    batches,
    publish,
    stores,
)

KINDS = tuple(stores())
FAILURES = ("before", "after", "denied")


def attempt(store: Store, at: int, mode: Any, *, ids: bool) -> tuple[bool, Fault]:
    """Publish the second batch while the store fails once; say whether the call returned."""
    fault = Fault(at=at, mode=mode)
    try:
        publish(FaultyStore(store, fault), "second", ids=ids)  # type: ignore[arg-type]
    except StoreError:
        return False, fault
    return True, fault


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("mode", FAILURES)
@pytest.mark.parametrize("ids", [True, False], ids=["id", "no id"])
def test_failure_at_any_call_then_retried(
    tmp_path: Path, kind: str, mode: Any, *, ids: bool
) -> None:
    """A caller who repeats what did not return has each batch once, in its order."""
    for at in itertools.count(1):
        store = stores()[kind](tmp_path / f"{at}")
        publish(store, "first", ids=ids)
        returned, fault = attempt(store, at, mode, ids=ids)
        if len(fault.calls) < at:
            break
        where = f"{mode} {fault.calls[at - 1]}"
        if not returned:
            publish(store, "second", ids=ids)
        publish(store, "third", ids=ids)
        assert ["first", "second", "third"] == batches(store), where
    assert at > 10


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("mode", FAILURES)
def test_failure_at_any_call_then_continued(tmp_path: Path, kind: str, mode: Any) -> None:
    """A caller who goes on with something else leaves no gap, and can come back to it."""
    for at in itertools.count(1):
        store = stores()[kind](tmp_path / f"{at}")
        publish(store, "first")
        _, fault = attempt(store, at, mode, ids=True)
        if len(fault.calls) < at:
            break
        publish(store, "third")
        assert batches(store) in (["first", "third"], ["first", "second", "third"])
        publish(store, "second")
        assert_each_once(["first", "second", "third"], batches(store))


@pytest.mark.parametrize("mode", FAILURES)
def test_one_writer_goes_on_after_any_failure(tmp_path: Path, mode: Any) -> None:
    """The same table object, with all that it remembers, is used again and again."""
    for at in range(1, 60):
        fault = Fault(at=at, mode=mode)
        store = stores()["memory"](tmp_path)
        orders = LandingZoneWriter(FaultyStore(store, fault)).table(TABLE, keys=["id"])  # type: ignore[arg-type]
        for name in ("first", "second", "second", "third"):
            try:
                orders.write(batch(name))
            except StoreError:
                orders.write(batch(name))
        found = batches(store)
        assert ["first", "second", "second", "third"] == found, fault.calls[at - 1]


def test_a_note_that_cannot_be_written_is_written_before_the_next_batch(tmp_path: Path) -> None:
    """Without an id, a batch that has returned is over: the same rows are a new batch."""
    counted = Fault()
    publish(FaultyStore(stores()["memory"](tmp_path), counted), "first", ids=False)  # type: ignore[arg-type]
    note = [place for place, call in enumerate(counted.calls, 1) if call.endswith(".done")][-1]
    store, fault = stores()["memory"](tmp_path), Fault(at=note, mode="before")
    orders = LandingZoneWriter(FaultyStore(store, fault)).table(TABLE, keys=["id"])  # type: ignore[arg-type]

    orders.write(batch("first"))
    assert ["first"] == batches(store)

    orders.write(batch("first"))
    assert ["first", "first"] == batches(store)


def test_a_foreign_file_under_the_next_number_is_gone_round(tmp_path: Path) -> None:
    """Another program knows no claims: its file stays, ours goes above it, and nothing is lost."""
    store = stores()["local"](tmp_path)
    orders = LandingZoneWriter(store).table(TABLE, keys=["id"])
    orders.write(batch("first"))
    foreign = tmp_path / FOLDER / f"{2:020d}.parquet"
    foreign.write_bytes((tmp_path / FOLDER / f"{1:020d}.parquet").read_bytes()[::-1])
    before = foreign.read_bytes()

    assert 3 == orders.write(batch("second"), batch_id="second").number
    assert 3 == publish(store, "second")[0]
    assert 4 == publish(store, "third")[0]
    assert before == foreign.read_bytes()
