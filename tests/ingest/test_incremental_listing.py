"""Short looks hand over what full listings would: the same files, in the same order, each once."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import obstore.store
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mirrorlib.ingest.files import incremental_listing as look_module
from mirrorlib.names import sequence_name
from mirrorlib.store import LocalStore, ObjectStore, Store
from polls import Poller, counting
from zones import write_at

SHORT = {"listing": "incremental", "backfill_interval": 3600.0}
FULL = {"listing": "incremental", "backfill_interval": 0.0}
PARTITIONS = ("", "p=a", "p=b/q=1", "p=b/q=2")


def memory(*, seeks: bool = True) -> ObjectStore:
    """Make an object store, one that lists in order from a name on or one that does not."""
    store = ObjectStore("memory:///zone", obstore.store.MemoryStore())
    store.seeks = seeks
    return store


def describe(store: Store, **more: object) -> None:
    """Write the table's metadata."""
    store.put("orders/_metadata.json", json.dumps({"keyColumns": ["id"], **more}).encode())


def publish(store: Store, *numbers: int, partition: str = "") -> None:
    """Publish files by number."""
    for number in numbers:
        store.put(
            f"orders/{partition}/{sequence_name(number)}"
            if partition
            else f"orders/{sequence_name(number)}",
            b"x",
        )


def poller(store: Store) -> Poller:
    """Poll a zone from the beginning."""
    return Poller(zone=store, state=memory())


@pytest.fixture(params=["in order", "unordered", "local"])
def zone(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    """Give a zone in each kind of store, with metadata."""
    kind = request.param
    store = LocalStore(tmp_path) if kind == "local" else memory(seeks=kind == "in order")
    describe(store)
    return store


# A random history, against an oracle that sees everything


class Oracle:
    """What a publisher has published, and what has to be handed over at each poll."""

    def __init__(self) -> None:
        self.there: dict[str, set[int]] = {}
        self.applied: dict[str, int] = {}

    def poll(self) -> list[str]:
        """Take the longest run of consecutive numbers of each partition folder, one after the other."""
        names = []
        for partition in sorted(self.there):
            number = self.applied.get(partition, 0) + 1
            while number in self.there[partition]:
                names.append(
                    f"{partition}/{sequence_name(number)}" if partition else sequence_name(number)
                )
                self.applied[partition] = number
                number += 1
        return names

    def has_gap(self) -> bool:
        """Say whether a file waits behind a missing one."""
        return any(
            max(n, default=0) > self.applied.get(partition, 0)
            for partition, n in self.there.items()
        )


ACTIONS = st.one_of(
    st.tuples(st.just("publish"), st.sampled_from(PARTITIONS), st.integers(1, 3)),
    st.tuples(st.just("skip"), st.sampled_from(PARTITIONS), st.integers(1, 3)),
    st.tuples(st.just("fill"), st.sampled_from(PARTITIONS), st.just(0)),
    st.tuples(st.just("overwrite"), st.sampled_from(PARTITIONS), st.integers(0, 2)),
    st.tuples(st.just("clean"), st.sampled_from(PARTITIONS), st.integers(0, 1)),
    st.tuples(st.just("poll"), st.sampled_from(["short", "short", "full"]), st.integers(0, 2)),
)


def act(store: Store, oracle: Oracle, action: str, partition: str, count: int) -> None:
    """Let the publisher, or a cleaner beside it, do something."""
    there = oracle.there.setdefault(partition, set())
    applied = oracle.applied.get(partition, 0)
    newest = max([*there, applied])
    numbers: list[int] = []
    if action == "publish":
        numbers = [newest + 1 + one for one in range(count)]
    elif action == "skip":
        numbers = [newest + 1 + count]
    elif action == "fill":
        numbers = [min(set(range(applied + 1, newest + 2)) - there)]
    elif action == "overwrite":
        numbers = [number for number in there if number == applied - count]
    else:
        for number in [n for n in there if n < applied + count and n <= applied]:
            there.remove(number)
            store.delete(
                f"orders/{partition}/{sequence_name(number)}"
                if partition
                else f"orders/{sequence_name(number)}"
            )
    publish(store, *numbers, partition=partition)
    there.update(numbers)


@settings(max_examples=2 * settings().max_examples)
@given(
    history=st.lists(ACTIONS, min_size=5, max_size=40),
    seeks=st.booleans(),
    partitioned=st.booleans(),
)
def test_a_random_history_is_handed_over_as_full_listings_would(
    history: list[tuple[str, str, int]], seeks: bool, partitioned: bool
) -> None:
    """At every poll; files come late, in any order, are overwritten, cleaned up, and lie in folders of their own."""
    store, oracle = memory(seeks=seeks), Oracle()
    describe(store, isPartitionEnabled=partitioned)
    polled = poller(store)
    for action, word, count in [*history, ("poll", "full", 0)]:
        if action != "poll":
            act(store, oracle, action, word if partitioned else "", count)
            continue
        expected = oracle.poll()
        state, found = polled.poll(max_files=count or None, **(FULL if word == "full" else SHORT))
        assert expected == found
        if word == "full" and state != "waiting":
            assert ("blocked" if oracle.has_gap() else "current") == state
    assert len(polled.handed) == len(set(polled.handed))


@given(
    history=st.lists(st.tuples(st.sampled_from(["publish", "delete", "overwrite", "poll", "poll"]), st.integers(0, 99)), min_size=5, max_size=60),
    ordered=st.booleans(),
)  # fmt: skip
def test_a_random_history_without_numbers_loses_and_doubles_nothing(
    history: list[tuple[str, int]], ordered: bool
) -> None:
    """Whatever names come in; what short looks pass over comes with the eighth poll at the latest."""
    store = memory()
    describe(store, fileDetectionStrategy="LastUpdateTimeFileDetection")
    polled = poller(store)
    published: list[str] = []
    for place, (action, number) in enumerate(history):
        if action == "publish":
            name = f"{place if ordered else number:04d}-{place}.parquet"
            store.put(f"orders/{name}", b"x")
            published.append(name)
        elif action == "poll":
            polled.poll(max_files=number % 3 or None, **SHORT)
        elif polled.handed:
            name = polled.handed[number % len(polled.handed)]
            if action == "delete":
                store.delete(f"orders/{name}")
            else:
                store.put(f"orders/{name}", b"other")
    for _ in range(8):
        polled.poll(**SHORT)
    assert sorted(published) == sorted(polled.handed)
    if ordered:
        assert published == polled.handed


# What a poll costs


def idle_calls(store: Store, files: int, **options: Any) -> dict[str, int]:
    """Count what the zone is asked for by a poll that finds nothing new."""
    publish(store, *range(1, files + 1))
    counted, calls = counting(store)
    polled = poller(counted)
    for _ in range(2):
        polled.poll(**options)
    calls.asked()
    assert ("current", []) == polled.poll(**options)
    return calls.asked()


def test_a_poll_of_few_files_costs_what_a_poll_of_many_does(zone: Store) -> None:
    """Nothing is listed where a look at three files tells; the metadata is read."""
    few, many = (idle_calls(zone, files, **SHORT) for files in (3, 1_200))

    looks = {"files_after": 2} if zone.seeks else {"stat": 6}
    assert {"read": 2, **looks} == few == many


def test_a_folder_of_one_page_is_listed_in_full(zone: Store) -> None:
    """That costs one request, and shows everything; only a longer one is worth a short look."""
    assert {"list_folder": 2, "read": 2} == idle_calls(zone, look_module.PAGE)
    assert "list_folder" not in idle_calls(zone, look_module.PAGE + 1)


def test_full_listings_can_be_asked_for(zone: Store) -> None:
    """However long a folder is."""
    assert {"list_folder": 2, "read": 2} == idle_calls(zone, look_module.PAGE + 1, listing="full")


def test_partition_folders_are_listed_in_full(zone: Store) -> None:
    """A look into each of them costs what listing them does; what lies in a new one comes at once."""
    describe(zone, isPartitionEnabled=True)
    for partition in "p=a", "p=b":
        publish(zone, 1, 2, partition=partition)
    counted, calls = counting(zone)
    polled = poller(counted)
    polled.poll(**SHORT)
    calls.asked()

    assert ("current", []) == polled.poll(**SHORT)
    assert {"read", "list_folder"} == calls.asked().keys()
    publish(zone, 1, partition="p=c")
    assert ("current", [f"p=c/{sequence_name(1)}"]) == polled.poll(**SHORT)


def test_nothing_is_written_when_nothing_has_changed(zone: Store) -> None:
    """A table that is polled every second leaves its journal alone."""
    publish(zone, *range(1, 5))
    state, calls = counting(memory())
    polled = Poller(zone=zone, state=state)
    for _ in range(2):
        polled.poll(**SHORT)
    calls.asked()

    polled.poll(**SHORT)

    assert calls.asked().keys() <= {"list_folder", "first_names", "stat", "read"}


def test_a_table_that_is_not_current_is_listed_in_full(zone: Store) -> None:
    """Until it is: a blocked one shows at once what has come."""
    publish(zone, 1, 2)
    polled = poller(zone)
    polled.poll(**SHORT)
    publish(zone, 5, 6)
    assert (
        "current" == polled.poll(**SHORT)[0] or zone.seeks
    )  # two numbers are missing: nobody looks so far
    assert "blocked" == polled.poll(**FULL)[0]
    assert ("blocked", [sequence_name(3)]) == (publish(zone, 3), polled.poll(**SHORT))[1]

    publish(zone, 4)

    assert ("current", [sequence_name(number) for number in (4, 5, 6)]) == polled.poll(**SHORT)


def test_a_gap_that_a_full_listing_shows_is_not_forgotten_in_the_same_run(zone: Store) -> None:
    """Two numbers are missing behind what is applied first."""
    publish(zone, 1, 2, 5)

    state, names = poller(zone).poll(**SHORT)

    assert ("blocked", [sequence_name(1), sequence_name(2)]) == (state, names)


# What a full listing has shown


def test_every_full_listing_tells_what_short_looks_pass_over(zone: Store) -> None:
    """A short look does not see it."""
    publish(zone, *range(1, 5))
    zone.put("orders/notes.txt", b"x")
    polled = poller(zone)
    for options, told in (SHORT, True), (SHORT, False), (FULL, True), (SHORT, False):
        polled.poll(**options)

        assert told == any("notes.txt" in warning for warning in polled.warnings)


def test_changed_metadata_sends_for_a_full_listing(zone: Store) -> None:
    """It may be the first sign of a source that starts over."""
    publish(zone, *range(1, 5))
    counted, calls = counting(zone)
    polled = poller(counted)
    for _ in range(2):
        polled.poll(**SHORT)
    describe(zone, isUpsertDefaultRowMarker=True)
    calls.asked()

    polled.poll(**SHORT)

    assert "list_folder" in calls.asked()


def test_another_zone_is_listed_in_full_until_a_batch_comes_from_there(tmp_path: Path) -> None:
    """The same state over files that were copied: they have another identity there."""
    polled = poller(LocalStore(tmp_path / "old"))
    state = polled.state
    for place in ("old", "new"):
        describe(LocalStore(tmp_path / place))
        publish(LocalStore(tmp_path / place), *range(1, 5))
    for _ in range(2):
        polled.poll(**SHORT)
    store, calls = counting(LocalStore(tmp_path / "new"))
    polled = Poller(zone=store, state=state)

    for _ in range(2):
        assert ("current", []) == polled.poll(**SHORT)
        assert "list_folder" in calls.asked()
    publish(store, 5)
    assert ("current", [sequence_name(5)]) == polled.poll(**SHORT)
    calls.asked()
    assert ("current", []) == polled.poll(**SHORT)
    assert {"read": 2, "stat": 6} == calls.asked()


@pytest.mark.parametrize(
    "damage",
    [
        "{",
        '{"format": 1, "state": "current", "listing": 7}',
        '{"format": 1, "state": "current", "listing": {"zone": 1}}',
        '{"format": 1, "state": "current", "listing": {"zone": "$zone", "at": "2026-01-01", "metadata": "", "batch": 1, "short": 0}}',
    ],
)
def test_what_cannot_be_read_is_listed_anew(zone: Store, damage: str) -> None:
    """Nothing rests on what is remembered."""
    publish(zone, 1, 2)
    polled = poller(zone)
    polled.poll(**SHORT)
    polled.state.put("journal/orders/status.json", damage.replace("$zone", zone.url).encode())
    publish(zone, 3)

    assert ("current", [sequence_name(3)]) == polled.poll(**SHORT)


# Names without numbers


def by_time(store: Store, *names: str) -> Poller:
    """Poll files of such a table, one after the other."""
    describe(store, fileDetectionStrategy="LastUpdateTimeFileDetection")
    polled = poller(store)
    for name in names:
        store.put(f"orders/{name}.parquet", b"x")
        polled.poll(**SHORT)
    return polled


def test_names_in_order_are_listed_from_the_greatest_on() -> None:
    """Seven times; the eighth listing is full and finds what they passed over."""
    store = memory()
    polled = by_time(store, "2026-01", "2026-02", "2026-03")
    polled.poll(**FULL)
    for name in ("2026-02b", "2026-02c"):
        store.put(f"orders/{name}.parquet", b"x")
    found = []
    for day in range(9):
        store.put(f"orders/2026-04-{day}.parquet", b"x")
        found.append(polled.poll(max_files=1, **SHORT)[1])

    expected = [[f"2026-04-{day}.parquet"] for day in range(9)]
    expected[7] = ["2026-02b.parquet", "2026-02c.parquet", *expected[7]]
    assert expected == found


def test_a_format_that_nobody_states_is_what_was_applied() -> None:
    """Text that comes to a table of Parquet is left alone, whatever a listing shows beside it."""
    store = memory()
    polled = by_time(store, "2026-01", "2026-02", "2026-03")
    polled.poll(**FULL)
    store.put("orders/2026-04.csv", b"x")

    assert ("current", []) == polled.poll(**SHORT)


def test_all_that_one_listing_has_shown_is_applied_in_one_run(tmp_path: Path) -> None:
    """In many batches, though greater names come first; and what a full listing finds late."""
    store = LocalStore(tmp_path)
    describe(store, fileDetectionStrategy="LastUpdateTimeFileDetection")
    polled = poller(store)

    def write(name: str, second: float) -> None:
        store.put(f"orders/{name}.parquet", b"x")
        write_at(tmp_path / "orders" / f"{name}.parquet", second)

    def poll(**options: Any) -> list[str]:
        return [name.removesuffix(".parquet") for name in polled.poll(max_files=1, **options)[1]]

    for number in range(1, 4):
        write(str(number), number)
        poll(**SHORT)
    write("9", 4)
    write("8", 5)
    assert ["9", "8"] == poll(**SHORT)
    store.delete("orders/8.parquet")
    polled = Poller(zone=store, state=memory())
    poll(**SHORT)
    for name, second in (("2b", 2.5), ("2c", 2.6)):
        write(name, second)
    assert [] == poll(**SHORT)

    age = "journal/orders/status.json"
    said = json.loads(polled.state.read(age) or b"")
    said["listing"]["short"] = look_module.MOST_SHORT
    polled.state.put(age, json.dumps(said).encode())

    assert ["2b", "2c"] == poll(**SHORT)


def test_a_run_that_was_killed_sends_for_a_full_listing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it had listed and not applied may have smaller names than what it had applied."""
    store = LocalStore(tmp_path)
    describe(store, fileDetectionStrategy="LastUpdateTimeFileDetection")
    polled = poller(store)

    def write(name: str, second: float) -> None:
        store.put(f"orders/{name}", b"x")
        write_at(tmp_path / "orders" / name, second)

    for number, name in enumerate(("a", "b")):
        write(name + ".parquet", number)
        polled.poll(**SHORT)
    write("d.parquet", 10)
    write("c.parquet", 11)

    class KilledError(Exception):
        pass

    def die(*_: object) -> None:
        raise KilledError

    with monkeypatch.context() as patch:
        real = Poller._hand_over
        patch.setattr(Poller, "_hand_over", lambda *told: (real(*told), die()))
        with pytest.raises(KilledError):
            polled.poll(max_files=1, **SHORT)
    write("e.parquet", 12)

    assert ["c.parquet", "e.parquet"] == polled.poll(**SHORT)[1]


def test_names_in_no_order_are_listed_in_full() -> None:
    """Each file comes with the next poll, whatever it is called."""
    store = memory()
    polled = by_time(store, "c", "a", "b")

    store.put("orders/_x.parquet", b"x")
    store.put("orders/0.parquet", b"x")

    assert ["0.parquet"] == polled.poll(**SHORT)[1]


def test_short_folders_without_numbers_are_listed_in_full_unless_asked_for() -> None:
    """And where the store lists in no order, always."""
    store = memory()
    counted, calls = counting(store)
    polled = by_time(counted, "1", "2", "3")
    for options in ({"listing": "full"}, {}):
        calls.asked()
        polled.poll(**options)
        polled.poll(**options)
        assert "files_after" not in calls.asked()
    store.seeks = False
    for _ in range(2):
        polled.poll(**SHORT)
    store.put("orders/0.parquet", b"x")

    assert ["0.parquet"] == polled.poll(**SHORT)[1]
