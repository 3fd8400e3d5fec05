"""A publisher that is killed at any step, then started again, leaves each batch once, in order, without gaps."""

from __future__ import annotations

import shutil
import signal
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from mirrorlib.store import LocalStore
from publishing import (
    FOLDER,
    Fault,
    FaultyStore,
    assert_each_once,
    batches,
    context,
    publish,
    publish_at_once,
    publish_equal_at_once,
    publish_with_fault,
    publish_with_system_fault,
    run_child,
    visible,
    with_system_fault,
)

pytestmark = pytest.mark.slow
WITH_ID: Mapping[str, Any] = {"ids": True}
WITHOUT_ID: Mapping[str, Any] = {"ids": False}


def steps(tmp_path: Path, *, system: bool, options: Mapping[str, Any]) -> int:
    """Count the steps of publishing one more batch."""
    zone, fault = tmp_path / "counted", Fault()
    publish(zone, "first", **options)
    if system:
        with_system_fault(fault, lambda: publish(zone, "second", **options))
    else:
        publish(FaultyStore(LocalStore(zone), fault), "second", **options)  # type: ignore[arg-type]
    shutil.rmtree(zone)
    return len(fault.calls)


def deaths(total: int) -> Iterator[tuple[int, Any]]:
    """Give each step to die at: before every one, and after the last; after any other is before the next."""
    for at in range(1, total + 1):
        yield at, "kill before"
    yield total, "kill after"


def is_over(zone: Path) -> bool:
    """Say whether the killed call had noted that it returns, which is the last thing that it does.

    Without a batch id, the same rows are a new batch from then on.
    """
    return len(list(zone.rglob("*.done"))) > 1


def check_retried(zone: Path, where: str, options: Mapping[str, Any]) -> None:
    """The same batch, published again, is there once; the next one follows it."""
    again = ["second"] if is_over(zone) else []
    publish(zone, "second", **options)
    assert ["first", "second", *again] == batches(LocalStore(zone)), where

    publish(zone, "third", **options)
    assert ["first", "second", *again, "third"] == batches(LocalStore(zone)), where


def check_continued(zone: Path, where: str, options: Mapping[str, Any]) -> None:
    """Another batch goes on without a gap; the killed one is there at most once, and once when it is retried."""
    again = ["second"] if is_over(zone) else []
    publish(zone, "third", **options)
    found = batches(LocalStore(zone))
    assert found in (["first", "third"], ["first", "second", "third"]), where

    publish(zone, "second", "fourth", **options)
    found = batches(LocalStore(zone))
    assert_each_once(["first", "second", "third", "fourth", *again], found)
    assert "fourth" == found[-1], where


@pytest.mark.thorough
@pytest.mark.parametrize("options", [WITH_ID, WITHOUT_ID], ids=["id", "no id"])
@pytest.mark.parametrize("system", [False, True], ids=["store", "system"])
def test_killed_at_any_step_then_retried_or_continued(
    tmp_path: Path, options: Mapping[str, Any], *, system: bool
) -> None:
    """Every call of the store, and every call of the operating system under it, is once the last."""
    child = publish_with_system_fault if system else publish_with_fault
    total = steps(tmp_path, system=system, options=options)
    assert total > 10

    for at, mode in deaths(total):
        where = f"{mode} step {at}"
        zone, copy = tmp_path / where, tmp_path / f"{where}, copy"
        publish(zone, "first", **options)
        code = run_child(child, zone, "second", at, mode, options)
        assert -signal.SIGKILL == code, where
        shutil.copytree(zone, copy)
        check_retried(zone, where, options)
        check_continued(copy, where, options)


@pytest.mark.thorough
def test_killed_while_the_table_is_made(tmp_path: Path) -> None:
    """The very first batch declares the table too: metadata is there before a file is."""
    fault = Fault()
    publish(FaultyStore(LocalStore(tmp_path / "counted"), fault), "first")  # type: ignore[arg-type]

    for at, mode in deaths(len(fault.calls)):
        zone = tmp_path / f"{mode} {at}"
        assert -signal.SIGKILL == run_child(publish_with_fault, zone, "first", at, mode, WITH_ID)
        store = LocalStore(zone)
        assert not visible(store) or store.stat(f"{FOLDER}/_metadata.json")
        publish(zone, "first", "second")
        assert ["first", "second"] == batches(store), f"{mode} step {at}"


@pytest.mark.thorough
def test_killed_between_partitions_completes_the_others(tmp_path: Path) -> None:
    """A batch of two partitions, killed at every step, is once in each."""
    options = {"partition_by": ["id"], "ids": False}
    fault = Fault()
    publish(tmp_path / "counted", "first", **options)
    publish(FaultyStore(LocalStore(tmp_path / "counted"), fault), "second", **options)  # type: ignore[arg-type]

    assert fault.calls[-1].endswith(".done")
    for at in range(1, len(fault.calls)):
        zone = tmp_path / f"{at}"
        publish(zone, "first", **options)
        run_child(publish_with_fault, zone, "second", at, "kill after", options)
        publish(zone, "second", **options)
        store = LocalStore(zone)
        for partition in ("id=0", "id=1"):
            assert ["first", "second"] == batches(store, f"{FOLDER}/{partition}"), f"step {at}"


# Several writers


def run_all(children: Sequence[Any]) -> None:
    """Start processes together, and see that each ends well."""
    for child in children:
        child.start()
    for child in children:
        child.join(60)
        assert 0 == child.exitcode
        child.close()


def race(zone: Path, writers: Mapping[str, str | None], count: int) -> dict[str, list[str]]:
    """Let writers publish at the same moment; give what each of them published."""
    start = context().Barrier(len(writers))
    told = {writer: [f"{writer}-{number:02d}" for number in range(count)] for writer in writers}
    children = [
        context().Process(target=publish_at_once, args=(zone, tuple(told[writer]), start, column))
        for writer, column in writers.items()
    ]
    run_all(children)
    return told


@pytest.mark.thorough("one new column", "plain")
@pytest.mark.parametrize(
    "writers",
    [
        {"a": None, "b": None},
        {"a": "from_a", "b": "from_b"},
        {"a": "same", "b": "same", "c": None},
    ],
    ids=["plain", "new columns", "one new column"],
)
def test_racing_writers_each_get_their_own_numbers(
    tmp_path: Path, writers: Mapping[str, str | None]
) -> None:
    """No number is given twice, none is left out, and each writer's batches stay in its order."""
    told = race(tmp_path, writers, 12)

    found = batches(LocalStore(tmp_path))
    assert_each_once(found, [name for names in told.values() for name in names])
    for writer, names in told.items():
        assert names == [name for name in found if name.startswith(writer)]


def test_the_same_batch_from_two_writers_is_there_once(tmp_path: Path) -> None:
    """Two schedulers started the same job: its batches have the same ids."""
    start = context().Barrier(2)
    names = tuple(f"{number}" for number in range(10))
    children = [
        context().Process(target=publish_at_once, args=(tmp_path, names, start, None))
        for _ in range(2)
    ]
    run_all(children)

    assert list(names) == batches(LocalStore(tmp_path))


@pytest.mark.thorough
def test_equal_rows_from_two_writers_are_there_as_often_as_they_were_published(
    tmp_path: Path,
) -> None:
    """Without ids, a call that returns has a file of its own, whatever others publish meanwhile."""
    start = context().Barrier(2)
    children = [
        context().Process(target=publish_equal_at_once, args=(tmp_path, 10, start))
        for _ in range(2)
    ]
    run_all(children)

    assert ["same"] * 20 == batches(LocalStore(tmp_path))
