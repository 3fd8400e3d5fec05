"""A feed published again as a landing zone: what its readers hold is the source, window by window, whatever crashes."""

from __future__ import annotations

import io
import json
import math
import random
from collections import Counter
from contextlib import nullcontext, suppress
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import mirrorlib
from delivery.dying import Dying
from mirrorlib.delivery.consumers import rewind_consumer
from mirrorlib.delivery.run import export_tables
from mirrorlib.delivery.sink import Delivery
from mirrorlib.delivery.sinks.zone import known
from mirrorlib.delivery.sinks.zone.batch import Batch
from mirrorlib.delivery.sinks.zone.changes import COUNT, change_rows, check_all_rows
from mirrorlib.delivery.sinks.zone.sink import ZoneSink
from mirrorlib.delta.sessions import lend_session
from mirrorlib.errors import (
    JournalError,
    LandingZoneError,
    MarkerError,
    SchemaError,
    TableBusyError,
)
from mirrorlib.journal.streams import Stream, WindowPlan
from mirrorlib.landing.publish.claims import FileSequence
from mirrorlib.store import LocalStore, Store
from mirrors import Killed, at, die
from oracle import ChangeFile, Row, Rows, assert_same_rows, multiset, replay
from publishing import memory_store
from tables import newest_version, read_rows
from zones import ZoneWriter

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import SparkSession

    from mirrorlib.delivery.report import StreamReport

pytestmark = pytest.mark.slow

INSERT, PRE, POST, DELETE = "insert", "update_preimage", "update_postimage", "delete"
PLACES = {DELETE: 0, PRE: 1, POST: 2, INSERT: 3}
MARKER = "__rowMarker__"
TABLE, FOLDER = "dbo/orders", "dbo.schema/orders"
STARTED = datetime(2026, 1, 1, tzinfo=UTC)


def change_files(zone: Store, folder: str = FOLDER) -> list[ChangeFile]:
    """Read what readers see of a folder: its files by number, which have to be 1, 2, 3 … without a gap."""
    listed = zone.list_folder(folder)
    names = [file.name for file in listed.files if file.name[0] not in "_."] if listed else []
    assert [f"{number:020d}.parquet" for number in range(1, len(names) + 1)] == names
    files = []
    for name in names:
        rows = pq.read_table(io.BytesIO(zone.read(f"{folder}/{name}") or b"")).to_pylist()
        marked = any(MARKER in row for row in rows)
        markers = tuple(row.pop(MARKER) for row in rows) if marked else None
        columns = tuple(rows[0]) if rows else ()
        files.append(ChangeFile(columns=columns, rows=tuple(rows), markers=markers))
    return files


def keys_of(zone: Store, folder: str = FOLDER) -> list[str]:
    """Read the declared keys."""
    keys: list[str] = json.loads(zone.read(f"{folder}/_metadata.json") or b"")["keyColumns"]
    return keys


# What the markers of one file make of a copy, judged without Spark.


def feed(rows: Sequence[tuple[int, str, dict[str, Any]]]) -> pa.Table:
    """Make a window of (version, kind, row), in the order of `files.parts`."""
    ordered = sorted(rows, key=lambda row: (row[0], row[2]["id"], PLACES[row[1]]))
    values = [
        {**row, "_change_type": kind, "_commit_version": version, "_commit_timestamp": STARTED}
        for version, kind, row in ordered
    ]
    fields = [("id", pa.int64()), ("v", pa.string()), ("_change_type", pa.string())]
    fields += [("_commit_version", pa.int64()), ("_commit_timestamp", pa.timestamp("us", "UTC"))]
    return pa.Table.from_pylist(values, schema=pa.schema(fields))


def applied(state: Sequence[Row], windows: Sequence[pa.Table]) -> Rows:
    """Apply change files on top of rows."""
    files = [ChangeFile(columns=("id", "v"), rows=tuple(state), markers=None)]
    for window in windows:
        rows = window.to_pylist()
        markers = tuple(row.pop(MARKER) for row in rows)
        files.append(ChangeFile(columns=("id", "v"), rows=tuple(rows), markers=markers))
    return replay(files, keys=["id"]).multiset


def test_markers_make_of_a_copy_what_a_mirror_became() -> None:
    """Keys that occur several times, all operations in one version, told as a mirror's feed tells them."""
    dice = random.Random(7)
    for _ in range(300):
        state: dict[int, list[str]] = {
            key: [f"old{dice.randrange(2)}" for _ in range(dice.choice([0, 1, 1, 1, 2, 3]))]
            for key in range(4)
        }
        begun = [{"id": key, "v": v} for key, held in state.items() for v in held]
        rows: list[tuple[int, str, dict[str, Any]]] = []
        for version in range(1, dice.randrange(2, 5)):
            for key in dice.sample(sorted(state), dice.randrange(1, 4)):
                state[key], told = mirrored(dice, state[key])
                rows += [(version, kind, {"id": key, "v": v}) for kind, v in told]
        dice.shuffle(rows)
        expected = multiset({"id": key, "v": v} for key, held in state.items() for v in held)

        check_all_rows(feed(rows), ["id"], held_of(begun), "t")
        window = change_rows(feed(rows), ["id"], "t")

        assert_same_rows(
            expected, applied(begun, [window]), f"the copy, by {sorted(rows, key=str)}"
        )


def mirrored(dice: random.Random, before: list[str]) -> tuple[list[str], list[tuple[str, str]]]:
    """Apply some changes to one key, as a mirror does in one commit; return its rows and its feed's."""
    held, touched, deleted = list(before), len(before), False
    updated = False
    for _ in range(dice.randrange(1, 5)):
        value, what = f"new{dice.randrange(3)}", dice.choice("iiud")
        if what == "d":
            held, touched, deleted, updated = [], 0, True, False
        elif what == "u" and held:
            held, updated = [value] * len(held), True
        else:
            held.append(value)
    if (
        deleted
    ):  # a reader of feeds tells deletes and inserts of a key as updates, as far as there are both
        gone, come = dice.sample(before, len(before)), dice.sample(held, len(held))
        pairs = min(len(gone), len(come)) * dice.randrange(2)
        told = [(PRE, v) for v in gone[:pairs]] + [(POST, v) for v in come[:pairs]]
        return held, told + [(DELETE, v) for v in gone[pairs:]] + [
            (INSERT, v) for v in come[pairs:]
        ]
    if updated and touched:
        told = [(PRE, v) for v in before] + [(POST, v) for v in held[:touched]]
        return held, told + [(INSERT, v) for v in held[touched:]]
    return held, [(INSERT, v) for v in held[touched:]]


def held_of(rows: Sequence[Row]) -> pa.Table:
    """Count the rows of each key."""
    counts = Counter(row["id"] for row in rows)
    keys, many = pa.array(list(counts), pa.int64()), pa.array(counts.values(), pa.int64())
    return pa.table({"id": keys, COUNT: many})


def test_what_some_rows_of_a_key_became_is_told_right_or_refused() -> None:
    """Whatever SQL does to rows one by one; keys that tell rows apart are never refused."""
    dice, ends = random.Random(13), Counter[str]()
    for _ in range(600):
        held = [(dice.randrange(3), dice.choice("ab")) for _ in range(dice.randrange(4))]
        begun: list[Row] = [{"id": key, "v": v} for key, v in held]
        rows: list[tuple[int, str, dict[str, Any]]] = []
        unique = is_unique(held)
        for version in range(1, dice.randrange(2, 4)):
            held, told = changed_by_sql(dice, held)
            rows += [(version, kind, {"id": key, "v": v}) for kind, (key, v) in told]
            unique &= is_unique(held)
        window = feed(rows)
        try:
            check_all_rows(window, ["id"], held_of(begun), "t")
        except MarkerError:
            assert not unique, rows
            ends["refused"] += 1
            continue
        expected = multiset({"id": key, "v": v} for key, v in held)
        found = applied(begun, [change_rows(window, ["id"], "t")])
        assert_same_rows(expected, found, f"the copy of {begun}, by {sorted(rows, key=str)}")
        ends["unique" if unique else "repeated"] += 1
    assert min(ends.values()) > 50, ends
    assert 3 == len(ends)


def is_unique(held: Sequence[tuple[int, str]]) -> bool:
    """Say whether each key has one row."""
    return len({key for key, _ in held}) == len(held)


def changed_by_sql(
    dice: random.Random, held: list[tuple[int, str]]
) -> tuple[list[tuple[int, str]], list[tuple[str, tuple[int, str]]]]:
    """Let a statement change some rows; return all rows and the feed's."""
    some = [place for place in range(len(held)) if dice.randrange(2)]
    rest = [row for place, row in enumerate(held) if place not in some]
    before = [held[place] for place in some]
    match dice.choice(["insert", "delete", "update", "rename"]):
        case "insert":
            new = [(dice.randrange(4), dice.choice("ab")) for _ in range(dice.randrange(3))]
            return held + new, [(INSERT, row) for row in new]
        case "delete":
            return rest, [(DELETE, row) for row in before]
        case "update":
            value = dice.choice("abc")
            after = [(key, value) for key, _ in before]
        case _:
            step, same = dice.randrange(1, 3), dice.randrange(2)
            after = [(9 if same else key + step, v) for key, v in before]
    return rest + after, [(PRE, row) for row in before] + [(POST, row) for row in after]


def test_a_key_that_was_changed_is_gone_under_its_old_value() -> None:
    """SQL may update a key: its images have different ones."""
    rows = [(1, PRE, {"id": n, "v": f"{n}"}) for n in (1, 2, 3)]
    rows += [(1, POST, {"id": n + 1, "v": f"{n}"}) for n in (1, 2, 3)]
    rows += [(2, PRE, {"id": 2, "v": "1"}), (2, POST, {"id": 9, "v": "1"})]

    window = change_rows(feed(rows), ["id"], "t")

    state = [{"id": n, "v": f"{n}"} for n in (1, 2, 3)]
    expected = multiset([{"id": 9, "v": "1"}, {"id": 3, "v": "2"}, {"id": 4, "v": "3"}])
    assert_same_rows(expected, applied(state, [window]))
    assert [2, 4, 4, 4, 2, 4] == window[MARKER].to_pylist()


def test_the_rows_of_a_key_that_is_nan_are_of_one_key() -> None:
    """All of them are told by a delete and inserts; that one more was left as it is, is refused."""
    kinds = [(PRE, "a"), (PRE, "b"), (POST, "c"), (POST, "c")]
    rows = feed([(1, kind, {"id": 1, "v": v}) for kind, v in kinds])
    rows = rows.set_column(0, "id", pa.array([math.nan] * len(kinds)))

    assert [2, 2, 0, 0] == change_rows(rows, ["id"], "t")[MARKER].to_pylist()
    held = pa.table({"id": [math.nan], COUNT: [3]})
    with pytest.raises(MarkerError, match="some rows of a key"):
        check_all_rows(rows, ["id"], held, "t")


def test_rows_without_keys_can_only_be_inserted() -> None:
    """They have no markers; anything else is refused, and the error says what to do."""
    inserts = change_rows(feed([(1, INSERT, {"id": 1, "v": "a"})]), [], "log")
    assert ["id", "v"] == inserts.column_names
    with pytest.raises(MarkerError, match=r"log: .*no keys.*keys=\{table"):
        change_rows(feed([(1, DELETE, {"id": 1, "v": "a"})]), [], "log")


# The receiver on its own, with windows made by hand.


class Windows:
    """A stream of windows into a zone in memory, and what its readers have to hold."""

    def __init__(
        self, spark: SparkSession, scratch: Path, uuid: str = "one", **stream: Any
    ) -> None:
        self.spark, self.scratch = spark, scratch
        self.zone = memory_store()
        facts = {"consumer": "lake", "table": TABLE, "ordinal": 1, "to": "zone", "mode": "changes"}
        facts |= {"net": False, "start_at": None, "table_id": "T", "on_expired": "fail"}
        self.stream = Stream(**{**facts, "uuid": uuid, "began_at": "2026-01-01", **stream})
        self.keys: tuple[str, ...] = ("id",)
        self.number = 0

    def follower(self, uuid: str, began_at: str, **stream: Any) -> Windows:
        """Begin another stream into the same zone."""
        other = Windows(self.spark, self.scratch, uuid, began_at=began_at, **stream)
        other.zone = self.zone
        return other

    def deliver(
        self,
        *rows: tuple[int, str, int | None, str],
        sink: ZoneSink | None = None,
        again: bool = False,
        given: int | None = None,
        begins: int | None = None,
        **plan: Any,
    ) -> int | None:
        """Deliver (version, kind, id, v), as the next window or as the same *again*, as a runner does."""
        self.number += not again
        versions = [version for version, *_ in rows]
        until = plan.get("until", max(versions, default=0))
        facts = {"kind": "changes", "reset": False, "after": until - 1, "until": until}
        facts |= {"table_id": "T", "until_at": "", "keys": self.keys}
        planned = WindowPlan(
            stream=self.stream.uuid, number=self.number, attempt="a", **facts | plan
        )
        sink = sink or ZoneSink(self.zone)
        if sink.position(self.stream) >= self.number:
            return -1
        with lend_session(self.spark) as spark:
            columns = "id bigint, v string, _change_type string, _commit_version bigint, _commit_timestamp timestamp"
            values = [(key, v, kind, version, STARTED) for version, kind, key, v in rows]
            delivery = Delivery(
                spark=spark,
                stream=self.stream,
                plan=planned,
                frame=spark.createDataFrame(values, columns).coalesce(1),
                scratch=LocalStore(self.scratch),
                folder=f"staged/{uuid4()}",
                given=self.number - 1 if given is None else given,
                begins=begins,
            )
            return sink.deliver(delivery)

    def rows(self) -> list[tuple[object, object]]:
        """Apply what is published; give what a reader holds."""
        held = replay(change_files(self.zone), keys=keys_of(self.zone)).rows
        return sorted((row["id"], row["v"]) for row in held)


@pytest.fixture
def windows(spark: SparkSession, tmp_path: Path) -> Windows:
    """Give a zone without a window."""
    return Windows(spark, tmp_path)


@pytest.mark.thorough
def test_a_window_is_published_once_wherever_its_runner_dies(windows: Windows) -> None:
    """Snapshot, changes with a reset behind them: before each write of each, and each file is there once."""
    dice = random.Random(3)
    held: dict[int, str] = {}
    files, deaths = 0, Counter[str]()
    for kind in ("snapshot", "changes", "reset"):
        for write in range(1, 40):
            files += 1
            rows: list[tuple[int, str, int | None, str]]
            if kind == "changes":
                key = dice.choice(sorted(held))
                rows = [
                    (files, DELETE, key, held.pop(key)),
                    (files, INSERT, 100 + files, f"{files}"),
                ]
                rows += (
                    [(files, PRE, 0, held[0]), (files, POST, 0, f"{files}")] if 0 in held else []
                )
                held |= {100 + files: f"{files}"} | ({0: f"{files}"} if 0 in held else {})
            else:
                if kind == "snapshot":  # the first of a zone
                    windows.zone, windows.number, files = memory_store(), 0, 1
                held = dict.fromkeys(dice.sample(range(10), 4), f"{files}") | {0: "zero"}
                rows = [(files, INSERT, key, v) for key, v in held.items()]
            plan = {} if kind == "changes" else {"kind": "snapshot", "reset": kind == "reset"}
            deadly = ZoneSink(Dying(windows.zone, write))  # type: ignore[arg-type]
            try:
                windows.deliver(*rows, sink=deadly, **plan)
            except Killed:
                deaths[kind] += 1
                windows.deliver(*rows, again=True, **plan)
                assert -1 == windows.deliver(*rows, again=True, **plan)
            else:
                break
            finally:
                assert len(change_files(windows.zone)) in {files - 1, files}
            assert sorted(held.items()) == windows.rows()
            assert files == len(change_files(windows.zone))
    assert {"snapshot": 8, "changes": 5, "reset": 6} == {
        kind: min(count, {"snapshot": 8, "changes": 5, "reset": 6}[kind])
        for kind, count in deaths.items()
    }


@pytest.mark.thorough
def test_two_runners_of_one_reset_publish_it_once(windows: Windows) -> None:
    """A whole delivery by another runner before each write of the first, which then goes on, with the same rows."""
    windows.deliver((1, INSERT, 1, "a"), (1, INSERT, 2, "b"), kind="snapshot")
    met = 0
    for version in range(2, 20):
        happened: list[int] = []
        rows = [(version, INSERT, version, "c"), (version, INSERT, 0, f"{version}")]
        plan = {"kind": "snapshot", "reset": True}

        def meet(rows: Any = rows, plan: Any = plan, happened: list[int] = happened) -> None:
            happened.append(windows.deliver(*rows, again=True, **plan))

        first = ZoneSink(Dying(windows.zone, version - 1, meet))  # type: ignore[arg-type]
        windows.deliver(*rows, sink=first, **plan)
        assert version == len(change_files(windows.zone))
        assert [(0, f"{version}"), (version, "c")] == windows.rows()
        if not happened:
            break
        met += 1
    assert met >= 6  # keys, content, claim, record, name, former keys


CLAIM, NAME = 4, 6  # what a delivery writes to the zone: keys, schema, content, claim, record, name


def begin_twice(windows: Windows) -> Windows:
    """Publish a snapshot by a stream, and begin the one that its consumer was rewound to."""
    windows.deliver((1, INSERT, 1, "a"), (1, INSERT, 2, "b"), kind="snapshot")
    return windows.follower("two", "2026-01-02", ordinal=2)


def noted(keys: Sequence[str], first: pa.Array) -> tuple[Store, pa.Table]:
    """Give a zone where the keys of two rows are noted, and the rows."""
    zone, window = memory_store(), keyed(INSERT, keys, first)
    notes(zone, window.column_names[:2], window.schema).note(
        1, window, window.select(keys), replaces=True
    )
    return zone, window


def keyed(kind: str, keys: Sequence[str], first: pa.Array) -> pa.Table:
    """Make rows of a feed; the key that comes first in the alphabet has these values."""
    told = {key: first if key == min(keys, key=str.lower) else pa.array([6, 5]) for key in keys}
    facts = {"_change_type": [kind] * 2, "_commit_version": [1] * 2}
    return pa.table({**told, **facts, "_commit_timestamp": [STARTED] * 2})


def notes(zone: Store, keys: Sequence[str], schema: pa.Schema) -> known.KnownKeys:
    """Open a zone's notes for a window of these columns."""
    batch = Batch(
        consumer="lake", table=TABLE, stream="one", table_id="T", began_at="2026-01-01", ordinal=1,
        keys=tuple(keys), columns=tuple(keys), physical={}, number=1, until=1,
    )  # fmt: skip
    place = FileSequence(table=TABLE, folder=FOLDER)
    return known.KnownKeys(zone, place, keys, batch, schema)


DAYS = pa.array([date(2026, 1, 1), date(2026, 1, 2)])


@pytest.mark.parametrize(
    "was, now, values, became",
    [
        (["a", "b"], ["A", "B"], pa.array([1, 2]), pa.int64()),
        (["a", "b"], ["b", "a"], pa.array([1, 2]), pa.int64()),
        ([".a", "[0]"], [".a", "[0]"], pa.array([1, 2]), pa.int64()),
        (["a", "b"], ["a", "b"], pa.array([1, 2], pa.int32()), pa.int64()),
        (["a", "b"], ["a", "b"], pa.array([1, 2]), pa.decimal128(20, 0)),
        (["a", "b"], ["a", "b"], DAYS, pa.timestamp("us")),
    ],
)
def test_keys_that_are_spelled_otherwise_or_widened_are_the_same_keys(
    was: list[str], now: list[str], values: pa.Array, became: pa.DataType
) -> None:
    """In any order, and whatever characters are in their names."""
    zone, _ = noted(was, values)
    window = keyed(DELETE, now, values.cast(became))
    keys = notes(zone, now, window.schema)
    keys.check(1, window)
    assert sorted(window.select(now).to_pylist(), key=str) == sorted(
        keys.read(1).to_pylist(), key=str
    )


@pytest.mark.parametrize(
    "values, became",
    [
        *((pa.array([1, 2]), kind) for kind in (pa.int32(), pa.string(), pa.date32())),
        (pa.array([1, 2]), pa.float64()),
        (pa.array([Decimal("1.25"), Decimal("2.25")]), pa.float64()),  # most have no double
        (DAYS, pa.timestamp("us", "UTC")),
    ],
)
def test_a_key_of_another_type_is_refused_by_name(values: pa.Array, became: pa.DataType) -> None:
    """No reader could delete what it holds by it."""
    zone, window = noted(["a", "b"], values)
    schema = window.schema.set(0, pa.field("a", became))
    with pytest.raises(SchemaError, match=r"column a: the key has another type.*Delete the table"):
        notes(zone, ["a", "b"], schema).read(1)


@pytest.mark.parametrize(
    "at",
    [1, *(pytest.param(at, marks=pytest.mark.thorough) for at in range(2, NAME + 1))],
)
def test_a_late_runner_publishes_nothing_behind_a_later_stream(windows: Windows, at: int) -> None:
    """The new stream's snapshot comes before the n-th write of the old one's runner, which has collected its window."""
    later = begin_twice(windows)
    claimed = at > CLAIM

    def rewound() -> None:
        later.deliver((2, INSERT, 1, "a"), (2, INSERT, 7, "x"), kind="snapshot")

    late = ZoneSink(Dying(windows.zone, at, rewound))  # type: ignore[arg-type]
    with pytest.raises(TableBusyError, match="began later") if not claimed else nullcontext():
        windows.deliver((2, INSERT, 7, "x"), (2, DELETE, 1, "a"), sink=late)
    assert [(1, "a"), (7, "x")] == windows.rows()
    assert (3 if claimed else 2) == len(change_files(windows.zone))
    later.deliver((3, PRE, 7, "x"), (3, POST, 7, "y"), (3, INSERT, 3, "c"))
    assert [(1, "a"), (3, "c"), (7, "y")] == windows.rows()
    later.deliver((4, INSERT, 9, "z"), kind="snapshot", reset=True)
    assert [(9, "z")] == windows.rows()


def test_what_was_noted_is_not_written_over_by_a_late_runner(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of the same window, which another runner has folded since, or of another window."""
    monkeypatch.setattr(known, "_MOST_FILES", 1)
    zone, place = memory_store(), FileSequence(table=TABLE, folder=FOLDER)
    table = mirrorlib.LandingZoneWriter(zone).table(TABLE, keys=["id"])
    facts: dict[str, Any] = {"consumer": "lake", "table": TABLE, "stream": "one", "table_id": "T"}
    facts |= {"began_at": "2026-01-01", "ordinal": 1, "keys": ("id",), "columns": ("id", "v")}
    facts["physical"] = {"id": "id", "v": "v"}
    batches = [Batch(number=number, until=number, **facts) for number in (1, 2)]
    windows = [feed([(number, INSERT, {"id": number, "v": "a"})]) for number in (1, 2)]

    def note(batch: Batch, window: pa.Table, number: int) -> known.KnownKeys:
        keys = known.KnownKeys(zone, place, ["id"], batch, window.schema)
        keys.note(number, window, change_rows(window, ["id"], "t"), replaces=False)
        return keys

    for number, (batch, window) in enumerate(zip(batches, windows, strict=True), 1):
        keys = note(batch, window, number)
        table.write(change_rows(window, ["id"], "t"), batch_id=batch.id, follows=number - 1)
        keys.tidy(number, replaces=False)
    listed = zone.list_folder(f"{FOLDER}/_mirrorlib/export/keys")
    assert listed is not None
    assert [f"{2:020d}"] == [file.name.partition("-")[0] for file in listed.files]
    other = Batch(number=9, until=9, **facts)
    for batch, window in ((batches[1], windows[1]), (other, feed([(9, DELETE, {"id": 1})]))):
        note(batch, window, 2)
        assert [1, 2] == keys.read(2)["id"].to_pylist()


def test_a_window_that_was_refused_leaves_no_keys_to_delete(windows: Windows) -> None:
    """What the writer refuses was noted before: a snapshot of the corrected rows is published all the same."""
    windows.deliver((1, INSERT, 1, "a"), kind="snapshot")
    with pytest.raises(SchemaError, match="column id: a key is NULL"):
        windows.deliver((2, INSERT, None, "n"), (2, INSERT, 2, "b"))
    anew = windows.follower("two", "2026-01-02", ordinal=2)
    anew.deliver((3, INSERT, 2, "B"), kind="snapshot")
    assert [(2, "B")] == anew.rows()
    told = change_files(anew.zone)[-1]
    assert [(1, 2), (2, 0)] == [
        (row["id"], marker) for row, marker in zip(told.rows, told.markers or (), strict=True)
    ]
    anew.deliver((4, INSERT, 3, "c"), kind="snapshot", reset=True)
    assert [(3, "c")] == anew.rows()


def test_keys_whose_first_notes_were_removed_for_their_age_are_not_all() -> None:
    """A snapshot that deletes the others alone would leave rows with readers that are gone."""
    zone, window = noted(["a", "b"], pa.array([1, 2]))
    keys = notes(zone, ["a", "b"], window.schema)
    keys.note(2, window, window.select(["a", "b"]), replaces=False)
    assert [1, 2] == keys.read(2)["a"].to_pylist()
    listed = zone.list_folder(f"{FOLDER}/_mirrorlib/export/keys")
    assert listed is not None
    zone.delete(min(file.path for file in listed.files))
    with pytest.raises(LandingZoneError, match="does not tell any more which keys"):
        keys.read(2)
    keys.check(2, keyed(DELETE, ["a", "b"], pa.array([1, 2])))


def test_a_key_whose_new_type_was_refused_is_compared_in_its_old_one() -> None:
    """Its window was noted and not published; the type was taken back at the source."""
    zone, window = noted(["a", "b"], pa.array([1, 2], pa.int32()))
    wider = keyed(INSERT, ["a", "b"], pa.array([1, 1 << 40]))
    notes(zone, ["a", "b"], wider.schema).note(2, wider, wider.select(["a", "b"]), replaces=False)
    assert [1, 2] == notes(zone, ["a", "b"], window.schema).read(1)["a"].to_pylist()


@pytest.mark.parametrize(
    "at",
    [1, *(pytest.param(at, marks=pytest.mark.thorough) for at in range(2, NAME + 1))],
)
def test_a_snapshot_deletes_what_a_late_runner_has_published_meanwhile(
    windows: Windows, at: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The new stream's runner looks again, and makes its file anew; keys that were folded are known too."""
    monkeypatch.setattr(known, "_MOST_FILES", 1)
    later = begin_twice(windows)

    def late() -> None:
        with suppress(TableBusyError):
            windows.deliver((2, INSERT, 7, "x"), (2, DELETE, 1, "a"))

    snapshot = [(2, INSERT, 2, "b"), (2, INSERT, 7, "x")]
    first = ZoneSink(Dying(windows.zone, at, late))  # type: ignore[arg-type]
    later.deliver(*snapshot, sink=first, kind="snapshot")
    assert [(2, "b"), (7, "x")] == windows.rows()
    assert (3 if at <= CLAIM else 2) == len(change_files(windows.zone))
    later.deliver((3, DELETE, 7, "x"), (3, INSERT, 3, "c"))
    assert [(2, "b"), (3, "c")] == windows.rows()
    later.deliver((4, INSERT, 9, "z"), kind="snapshot", reset=True)
    assert [(9, "z")] == windows.rows()


@pytest.mark.thorough
def test_a_reset_deletes_what_readers_hold_and_nobody_lists_any_more(
    windows: Windows, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Keys are known although change files are gone, and stay few; one whose end was not published stays live."""
    monkeypatch.setattr(known, "_MOST_FILES", 3)
    windows.deliver((1, INSERT, 1, "a"), (1, INSERT, 2, "b"), kind="snapshot")
    before = change_files(windows.zone)
    for version in range(2, 9):
        windows.deliver(
            (version, INSERT, version * 10, "c"), (version, DELETE, version * 10 - 10, "c")
        )
        before = change_files(windows.zone)
    kept = windows.zone.list_folder(f"{FOLDER}/_mirrorlib/export/keys")
    assert kept is not None
    assert len(kept.files) <= 4
    with pytest.raises(Killed):  # it was noted that 80 is gone, and that was never published
        windows.deliver((9, DELETE, 80, "c"), sink=ZoneSink(Dying(windows.zone, 2)))  # type: ignore[arg-type]
    for number in range(1, 5):  # a reader has moved them away
        windows.zone.delete(f"{FOLDER}/{number:020d}.parquet")
    anew = windows.follower("two", "2026-01-02")
    anew.deliver((9, INSERT, 2, "b"), (9, INSERT, 7, "z"), kind="snapshot")

    newest = pq.read_table(io.BytesIO(windows.zone.read(f"{FOLDER}/{9:020d}.parquet") or b""))
    rows = newest.to_pylist()
    markers = tuple(row.pop(MARKER) for row in rows)
    files = [*before, ChangeFile(columns=("id", "v"), rows=tuple(rows), markers=markers)]
    expected = multiset([{"id": 2, "v": "b"}, {"id": 7, "v": "z"}])
    assert_same_rows(expected, replay(files, keys=["id"]).multiset)


def test_keys_that_occur_several_times_survive_a_reset(windows: Windows) -> None:
    """Every copy that readers hold is deleted, every row of the snapshot inserted; there may be none."""
    windows.deliver(kind="snapshot")
    assert [] == windows.rows()
    windows = windows.follower("two", "2026-01-02")
    windows.deliver((1, INSERT, 1, "a"), (1, INSERT, 1, "b"), (1, INSERT, 2, "x"), kind="snapshot")
    windows.deliver((2, INSERT, 2, "y"))
    windows.deliver(
        (3, INSERT, 1, "c"), (3, INSERT, 2, "x"), (3, INSERT, 2, "x"), kind="snapshot", reset=True
    )
    assert [(1, "c"), (2, "x"), (2, "x")] == windows.rows()
    windows.deliver(kind="snapshot", reset=True, until=4)
    assert [] == windows.rows()
    assert 5 == len(change_files(windows.zone))


REFUSED = r"dbo/orders: column id: some rows of a key were changed .*found in version"


@pytest.mark.thorough
def test_changes_of_some_rows_of_a_key_are_refused(windows: Windows) -> None:
    """Whether its rows came in one window or in several; of all its rows they are told, and those of others."""
    windows.deliver((1, INSERT, 1, "a"), (1, INSERT, 1, "b"), (1, INSERT, 2, "x"), kind="snapshot")
    windows.deliver((2, PRE, 2, "x"), (2, POST, 2, "y"))
    windows.deliver((3, INSERT, 2, "z"))
    for rows in (
        [(4, DELETE, 1, "b")],
        [(4, PRE, 2, "y"), (4, POST, 2, "w")],
        [(4, PRE, 2, "y"), (4, POST, 3, "y")],
        [(4, INSERT, 7, "a"), (5, INSERT, 7, "b"), (6, DELETE, 7, "b")],
    ):
        with pytest.raises(MarkerError, match=REFUSED):
            windows.deliver(*rows)
    assert 3 == len(change_files(windows.zone))
    windows.deliver((4, DELETE, 1, "a"), (4, DELETE, 1, "b"), (5, INSERT, 1, "c"))
    windows.deliver((6, PRE, 2, "y"), (6, PRE, 2, "z"), (6, POST, 2, "w"), (6, POST, 2, "w"))
    windows.deliver((7, DELETE, 1, "c"))
    assert [(2, "w"), (2, "w")] == windows.rows()


@pytest.mark.thorough
def test_rows_of_a_key_are_counted_whatever_was_noted(
    windows: Windows, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Notes that were folded, that a crash left behind, and that a reset replaces."""
    monkeypatch.setattr(known, "_MOST_FILES", 2)
    windows.deliver((1, INSERT, 1, "a"), kind="snapshot")
    for version in range(2, 6):
        windows.deliver((version, INSERT, 1, f"{version}"), (version, INSERT, version, "x"))
    gone = [(6, DELETE, 1, v) for v in "a2345"]
    with pytest.raises(MarkerError, match=REFUSED):
        windows.deliver(*gone[1:])
    with pytest.raises(Killed):  # it was noted and not published
        windows.deliver(*gone, sink=ZoneSink(Dying(windows.zone, 2)))  # type: ignore[arg-type]
    windows.deliver(*gone, again=True)
    windows.deliver((7, INSERT, 1, "b"), (7, INSERT, 1, "c"))
    with pytest.raises(MarkerError, match=REFUSED):
        windows.deliver((8, DELETE, 1, "c"))
    windows.deliver((8, INSERT, 1, "b"), kind="snapshot", reset=True)
    windows.deliver((9, DELETE, 1, "b"))
    assert [] == windows.rows()


def test_versions_that_were_published_are_not_published_again(windows: Windows) -> None:
    """A rewound consumer goes on where the zone ends, without keys too; an insert would stand there twice."""
    windows.keys = ()
    windows.deliver((1, INSERT, 1, "a"), kind="snapshot")
    windows.deliver((2, INSERT, 2, "b"))
    windows.deliver((3, INSERT, 3, "c"))
    again = windows.follower("two", "2026-01-02", start_at=1)
    again.keys = ()
    assert again.deliver((2, INSERT, 2, "b")) is None
    assert 1 == again.deliver((3, INSERT, 3, "c"), (4, INSERT, 4, "d"), after=2)
    assert 1 == again.deliver((5, INSERT, 5, "e"))
    assert [(n, "abcde"[n - 1]) for n in range(1, 6)] == windows.rows()
    with pytest.raises(TableBusyError, match="began later"):
        windows.deliver((6, INSERT, 6, "f"))


def test_a_folder_that_was_set_back_to_an_earlier_stream_is_noticed(windows: Windows) -> None:
    """What the stream has given since is missing; where it has given nothing yet, nothing is."""
    windows.deliver((1, INSERT, 1, "a"), kind="snapshot")
    again = windows.follower("two", "2026-01-02", ordinal=2, start_at=1)
    again.number = 2
    with pytest.raises(LandingZoneError, match="ends with version 1, and the stream begins aft"):
        again.deliver((4, INSERT, 4, "d"), given=2)
    assert 1 == again.deliver((4, INSERT, 4, "d"), again=True, given=0, begins=1)
    assert [(1, "a"), (4, "d")] == windows.rows()


def test_what_a_registry_that_was_set_back_had_planned_is_not_taken_for_another_window(
    windows: Windows,
) -> None:
    """Of the same number, and up to another version: the rest of its rows would be lost."""
    windows.deliver((1, INSERT, 1, "a"), kind="snapshot")
    dying = ZoneSink(Dying(windows.zone, NAME))  # type: ignore[arg-type]
    with pytest.raises(Killed):
        windows.deliver((2, INSERT, 2, "b"), sink=dying)
    more = [(2, INSERT, 2, "b"), (3, INSERT, 3, "c")]
    for _ in range(2):
        with pytest.raises(JournalError, match=r"found window 2 up to version 2, 3 in the regis"):
            windows.deliver(*more, again=True, after=1)
    windows.deliver((2, INSERT, 2, "b"), again=True)
    assert [(1, "a"), (2, "b")] == windows.rows()


def test_streams_follow_by_number_whatever_the_clocks_say(windows: Windows) -> None:
    """The first runner's clock was far ahead; one that is registered again begins with 1."""
    windows.deliver((1, INSERT, 1, "a"), kind="snapshot")
    ahead = windows.follower("ahead", "2099-01-01", ordinal=2)
    ahead.deliver((2, INSERT, 2, "b"), kind="snapshot")
    behind = windows.follower("behind", "2026-01-02", ordinal=3)
    behind.deliver((3, INSERT, 3, "c"), kind="snapshot")
    again = windows.follower("again", "2026-01-03", ordinal=1)
    again.deliver((4, INSERT, 4, "d"), kind="snapshot")
    assert [(4, "d")] == windows.rows()
    with pytest.raises(TableBusyError, match="began later"):
        windows.deliver((5, INSERT, 5, "e"))


def test_a_folder_that_was_emptied_is_not_begun_anew_in_the_middle(windows: Windows) -> None:
    """Of a stream that began after a version too; windows without a change, or without a net one, are no files."""
    numbered = windows.follower("two", "2026-01-02", start_at=0)
    numbered.deliver((1, INSERT, 1, "a"))
    windows.zone.delete_folder(FOLDER)
    with pytest.raises(LandingZoneError, match=r"lacks the change files .* somebody emptied it"):
        numbered.deliver((2, INSERT, 2, "b"))
    quiet = windows.follower("three", "2026-01-03", start_at=0)
    quiet.number = 1
    quiet.deliver((2, INSERT, 2, "b"), given=0)
    assert [(2, "b")] == windows.rows()
    windows.zone.delete_folder(FOLDER)
    net = windows.follower("four", "2026-01-04", start_at=0, net=True)
    net.number = 1
    net.deliver((2, INSERT, 2, "b"), given=0)
    assert [(2, "b")] == windows.rows()
    windows.zone.delete_folder(FOLDER)
    with pytest.raises(LandingZoneError, match="lacks the change files"):
        net.deliver((3, INSERT, 3, "c"), given=2)


@pytest.mark.parametrize(
    "stream, plan, reason",
    [
        ({"start_at": 7}, {}, "ends with version 2, and the stream begins after 7"),
        ({"start_at": 1, "net": True}, {"after": 1, "until": 4}, "folded to its net changes"),
        ({"start_at": 1}, {"table_id": "other"}, "made anew"),
        (
            {"consumer": "shop"},
            {"kind": "snapshot"},
            r"another consumer, or to another table .found lake, dbo/orders",
        ),
        ({}, {"kind": "snapshot", "keys": ("v",)}, "filled by other keys .found v instead of id"),
    ],
    ids=["gap", "net", "other-table", "other-consumer", "other-keys"],
)
def test_a_stream_that_does_not_follow_is_refused(
    windows: Windows, stream: dict[str, Any], plan: dict[str, Any], reason: str
) -> None:
    """Nothing is published that would not make of the zone's readers what the source is."""
    windows.deliver((1, INSERT, 1, "a"), kind="snapshot")
    windows.deliver((2, INSERT, 2, "b"))
    other = windows.follower("two", "2026-01-02", **stream)
    with pytest.raises(LandingZoneError, match=reason) as refused:
        other.deliver((8, INSERT, 8, "x"), **plan)
    assert refused.value.table == TABLE
    assert "ewind" in str(refused.value)
    assert 2 == len(change_files(windows.zone))


def test_without_keys_nothing_can_be_taken_back(windows: Windows) -> None:
    """The error says how to begin anew, and so it goes."""
    windows.deliver((1, INSERT, 1, "a"), kind="snapshot")
    windows.zone.delete_folder(f"{FOLDER}/_mirrorlib/export")
    with pytest.raises(LandingZoneError, match="does not tell any more which keys"):
        windows.deliver((2, INSERT, 1, "a"), kind="snapshot", reset=True)
    windows.zone.delete_folder(FOLDER)
    windows.number, windows.keys = 0, ()
    windows.deliver((1, INSERT, 1, "a"), kind="snapshot")
    with pytest.raises(LandingZoneError, match=r"no keys to delete by.*Delete the table's folder"):
        windows.deliver((3, INSERT, 3, "c"), kind="snapshot", reset=True)
    with pytest.raises(MarkerError, match="no keys"):
        windows.deliver((3, DELETE, 1, "a"), again=True)
    windows.zone.delete_folder(FOLDER)
    with pytest.raises(LandingZoneError, match="somebody emptied it"):
        windows.deliver((3, INSERT, 1, "a"))
    windows.deliver((3, INSERT, 3, "c"), kind="snapshot", reset=True)
    assert [(3, "c")] == windows.rows()


def test_a_delta_table_s_folder_is_left_alone(windows: Windows) -> None:
    """Its VACUUM would remove the change files."""
    windows.zone.put(f"{FOLDER}/_delta_log/{0:020d}.json", b"")
    with pytest.raises(LandingZoneError, match="the folder of a Delta table"):
        windows.deliver((1, INSERT, 1, "a"), kind="snapshot")
    assert () == windows.zone.list_folder(FOLDER).files  # type: ignore[union-attr]  # it is there


def test_bad_input_is_refused_by_table_and_column(windows: Windows) -> None:
    """A key without a value; a folder that others fill; nothing of the window is visible."""
    with pytest.raises(SchemaError, match=r"dbo/orders: .*column id: a key is NULL"):
        windows.deliver((1, INSERT, None, "a"), kind="snapshot")
    assert [] == change_files(windows.zone)
    mirrorlib.LandingZoneWriter(windows.zone).table(TABLE).write(pa.table({"id": [1]}))
    windows.keys = ("id",)
    with pytest.raises(LandingZoneError, match="another publisher"):
        windows.deliver((1, INSERT, 1, "a"), kind="snapshot", again=True)
    windows.zone.delete_folder(FOLDER)
    windows.deliver((1, INSERT, 1, "a"), kind="snapshot", again=True)
    windows.zone.put(f"{FOLDER}/_metadata.json", b'{"keyColumns": ["v"]}')
    with pytest.raises(SchemaError, match=r"found id instead of v.*or begin anew\. Delete the tab"):
        windows.deliver((2, INSERT, 2, "b"))


# With the runner, from real tables to real mirrors.


@pytest.mark.thorough
def test_a_mirror_of_the_export_of_a_mirror_is_the_mirror(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Equal rows after every window, so an equal net feed: keys several times over, a column that comes, two tables."""
    dice = random.Random(11)
    published = ZoneWriter(tmp_path / "first")
    orders = published.table("orders", keys=["id"], schema="dbo")
    log = published.table("plain log")
    first, zone, second = (str(tmp_path / name) for name in ("one", "zone", "two"))
    for number in (1, 2, 3):
        orders.file(*random_file(dice, number))
    log.file([{"line": "a", "n": n} for n in range(2)])
    assert mirrorlib.apply(spark, str(published), first, settle=0, max_files=1).ok
    report = export_tables(
        spark, first, consumer="lake", to=f"zone:{zone}", start=0, max_versions=1
    )
    assert report.ok, str(report)
    applied = mirrorlib.apply(spark, zone, second, settle=0, max_files=1)
    assert applied.ok, str(applied)
    for name, files in (("dbo/orders", 3), ("plain log", 1)):
        one, other = f"{first}/{name}", f"{second}/{name}"
        for back in range(files):
            expected = multiset(read_rows(spark, one, newest_version(one) - back))
            found = multiset(read_rows(spark, other, newest_version(other) - back))
            assert_same_rows(expected, found, f"{name}, {back} files before the last")
    assert ["id"] == keys_of(LocalStore(tmp_path / "zone"))
    assert "Delta Lake" in (tmp_path / "zone" / "_partnerEvents.json").read_text()


def random_file(
    dice: random.Random, number: int
) -> tuple[list[dict[str, object]], list[int] | None]:
    """Make up a change file; the first is a load, later ones have a column more."""
    rows: list[dict[str, object]] = [
        {"id": dice.randrange(1, 9), "v": f"{number}-{place}"}
        | ({"w": place} if number > 2 else {})
        for place in range(6)
    ]
    return rows, None if number == 1 else [dice.choice([0, 0, 1, 2, 4]) for _ in rows]


class Source:
    """A Delta table that SQL changes, the rows that it holds after each version, and its export to a zone."""

    def __init__(self, spark: SparkSession, root: Path) -> None:
        self.spark, self.root = spark, root
        self.target, self.path = str(root / "source"), str(root / "source" / "orders")
        self.zone = LocalStore(root / "zone")
        self.states: list[dict[int, str]] = [{}]
        feed = "'delta.enableChangeDataFeed' = 'true', 'delta.checkpointInterval' = '1'"
        self.run(f"CREATE TABLE {{t}} (id BIGINT, v STRING) USING delta TBLPROPERTIES ({feed})")

    def run(self, statement: str) -> None:
        """Run SQL."""
        self.spark.sql(statement.format(t=f"delta.`{self.path}`"))

    def commit(self, dice: random.Random) -> None:
        """Commit inserts, updates, deletes and re-inserts at once."""
        version, held = len(self.states), dict(self.states[-1])
        keys = dice.sample(range(9), dice.randrange(1, 6))
        gone = [key for key in keys if key in held and dice.random() < 0.4]
        values = ", ".join(f"({key}, 'v{version}', {key in gone})".lower() for key in keys)
        self.run(
            f"MERGE INTO {{t}} t USING (VALUES {values} AS s(id, v, gone)) s ON t.id = s.id "
            "WHEN MATCHED AND s.gone THEN DELETE WHEN MATCHED THEN UPDATE SET v = s.v "
            "WHEN NOT MATCHED THEN INSERT (id, v) VALUES (s.id, s.v)"
        )
        held |= dict.fromkeys(keys, f"v{version}")
        self.states.append({key: v for key, v in held.items() if key not in gone})

    def export(self, **options: Any) -> StreamReport:
        """Deliver what there is."""
        told = {"consumer": "lake", "to": f"zone:{self.zone.url}", "keys": {"orders": ["id"]}}
        return export_tables(self.spark, self.target, **{**told, **options}).tables[0]

    def held(self, files: int | None = None) -> dict[Any, Any]:
        """Apply the first of the published files, or all; give what a reader holds."""
        found = change_files(self.zone, "orders")[:files]
        rows = replay(found, keys=["id"]).rows
        assert len({row["id"] for row in rows}) == len(rows)
        return {row["id"]: row["v"] for row in rows}


@pytest.mark.thorough
def test_a_renamed_column_asks_for_a_snapshot(spark: SparkSession, tmp_path: Path) -> None:
    """Rows that nothing touches would lack its values; columns that only come, or only go, are followed."""
    source = Source(spark, tmp_path)
    source.run("ALTER TABLE {t} SET TBLPROPERTIES ('delta.columnMapping.mode' = 'name')")
    source.run("INSERT INTO {t} VALUES (1, 'one'), (2, 'two')")
    assert "current" == source.export().state
    source.run("ALTER TABLE {t} RENAME COLUMN v TO name")
    source.run("UPDATE {t} SET name = 'zwei' WHERE id = 2")
    report = source.export()
    assert "failed" == report.state
    for words in ("columns went and came at once", "gone: v; new: name", "--rewind lake --to snap"):
        assert words in report.reason
    assert 1 == len(change_files(source.zone, "orders"))
    rewind_consumer(source.target, "lake", "snapshot")
    steps = ("ADD COLUMNS (w INT)", "DROP COLUMN w", "ADD COLUMNS (x INT)")
    for number, step in enumerate(("", *steps)):
        if step:
            source.run(f"ALTER TABLE {{t}} {step}")
            source.run(f"UPDATE {{t}} SET name = '{number}' WHERE id = 2")
        report = source.export()
        assert "current" == report.state, report.reason
    rows = replay(change_files(source.zone, "orders"), keys=["id"]).rows
    assert {1: "one", 2: "3"} == {row["id"]: row["name"] for row in rows}


@pytest.mark.thorough
def test_readers_hold_the_source_whatever_step_a_run_dies_at_and_whatever_history_is_lost(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Random commits; a run is killed before and after each step, and the next goes on; a reset is one file more."""
    dice = random.Random(5)
    source = Source(spark, tmp_path)
    source.commit(dice)
    wishes: dict[str, Any] = {"on_expired": "snapshot", "max_versions": 1}
    assert "current" == source.export(**wishes).state
    source.commit(dice)
    for step in ("plan", "deliver", "done"):
        for when in ("before", "after"):
            with pytest.raises(Killed):
                source.export(observe=at(step, when, die), **wishes)
    assert "current" == source.export(**wishes).state
    for version in (1, 2):  # a file each
        assert source.states[version] == source.held(version)
    source.commit(dice)
    source.commit(dice)
    Path(source.path, "_delta_log", f"{3:020d}.json").unlink()
    report = source.export(**wishes)
    assert ("current", 1) == (report.state, report.resets), report.reason
    assert source.states[4] == source.held()
    assert 3 == len(change_files(source.zone, "orders"))


@pytest.mark.thorough
def test_nested_columns_and_the_markers_name_are_refused(
    spark: SparkSession, tmp_path: Path
) -> None:
    """By name, before anything is published, and a table beside them goes on."""
    for name, column in (("a", "s STRUCT<x: INT>"), ("b", "`__rowmarker__` INT"), ("c", "n INT")):
        spark.sql(f"CREATE TABLE delta.`{tmp_path}/t/{name}` (id INT, {column}) USING delta")
    report = export_tables(spark, str(tmp_path / "t"), consumer="lake", to=f"zone:{tmp_path}/zone")
    states = {table.table: table.state for table in report.tables}
    assert {"a": "failed", "b": "failed", "c": "current"} == states
    reasons = [table.reason for table in report.tables]
    assert "a: column s: this type has no place in the open mirroring format" in reasons[0]
    assert "b: column __rowmarker__" in reasons[1]


@pytest.mark.thorough
def test_what_is_advised_can_be_done(spark: SparkSession, tmp_path: Path) -> None:
    """Where a type cannot change, or nothing tells rows apart: begin anew."""
    table, tables = f"delta.`{tmp_path}/t/a`", str(tmp_path / "t")
    wider = "'delta.enableChangeDataFeed' = 'true', 'delta.enableTypeWidening' = 'true'"
    spark.sql(f"CREATE TABLE {table} (id INT, v INT) USING delta TBLPROPERTIES ({wider})")
    spark.sql(f"INSERT INTO {table} VALUES (1, 1)")

    def export(name: str, **options: Any) -> Any:
        wishes = {"consumer": name, "to": f"zone:{tmp_path}/{name}", **options}
        return export_tables(spark, tables, **wishes).tables[0]

    for name, options in (("keyed", {"keys": ["id"]}), ("keyless", {})):
        assert "current" == export(name, **options).state
    spark.sql(f"ALTER TABLE {table} ALTER COLUMN v TYPE BIGINT")
    spark.sql(f"UPDATE {table} SET v = 10000000000")
    for name, options in (("keyed", {"keys": ["id"]}), ("keyless", {})):
        reason = export(name, **options).reason
        assert "and begin anew" in reason or "or begin anew" in reason
        assert "Delete the table's folder there" in reason
        assert "force" not in reason
