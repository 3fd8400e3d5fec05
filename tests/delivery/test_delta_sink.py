"""Windows as Delta tables: logs, copies and histories are what an oracle makes of the source's versions."""

from __future__ import annotations

import contextlib
import json
import random
import shutil
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import pytest

import mirrorlib
from computes import said_by
from mirrorlib.commit.last_commit import LastCommit
from mirrorlib.commit.mark import overwrite_rows
from mirrorlib.delivery.report import StreamReport
from mirrorlib.delivery.run import export_tables
from mirrorlib.delivery.sinks.delta import rewrite, sink, work
from mirrorlib.delivery.sinks.delta.sink import open_sink
from mirrorlib.delta.address import find_tables
from mirrorlib.errors import LandingZoneError, StoreError, TableBusyError
from mirrorlib.journal import registry
from mirrorlib.journal.registry import Registry
from mirrorlib.journal.streams import Stream
from mirrorlib.names import parse_name
from mirrorlib.store import open_store
from mirrors import Killed, at, die

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from mirrorlib.delivery.sink import Delivery

pytestmark = pytest.mark.slow

FEED = "'delta.enableChangeDataFeed' = 'true'"
MODES = ("changes", "current", "scd2")
STATE = ("valid_from", "valid_to", "is_current")
ADDED = {"insert", "update_postimage"}
Rows = Counter[tuple[Any, ...]]


class Source:
    """A target with one Delta table whose feed is on; SQL changes it, `{t}` being its name."""

    def __init__(
        self, spark: SparkSession, folder: Path, columns: str, properties: str = FEED
    ) -> None:
        self.spark, self.folder, self.root = spark, folder, folder / "source"
        self.path = self.root / "dbo" / "t"
        self.run(f"CREATE TABLE {{t}} ({columns}) USING delta TBLPROPERTIES ({properties})")

    def run(self, *statements: str) -> Source:
        """Run SQL, a commit each."""
        for statement in statements:
            self.spark.sql(statement.replace("{t}", f"delta.`{self.path}`"))
        return self

    @property
    def newest(self) -> int:
        """Return the newest version."""
        return versions(self.path)[-1]

    @property
    def columns(self) -> list[str]:
        """Name its columns."""
        return self.spark.read.format("delta").load(str(self.path)).columns

    def rows(self, version: int | None = None) -> Rows:
        """Count the rows of a version; columns that it lacks are NULL."""
        return count(self.spark, self.path, self.columns, version)

    def times(self) -> dict[int, datetime]:
        """Give when each version was committed."""
        told = self.spark.sql(f"DESCRIBE HISTORY delta.`{self.path}`").collect()
        return {row["version"]: row["timestamp"] for row in told}


class Receiver:
    """A consumer of one source, and its Delta table."""

    def __init__(
        self, source: Source, mode: str, keys: Sequence[str] = ("id",), at: str = ""
    ) -> None:
        self.source, self.mode, self.keys = source, mode, keys
        self.name, self.spark = at or mode, source.spark
        self.root = source.folder / (at or mode)
        self.path = self.root / "dbo" / "t"

    def run(self, **options: Any) -> StreamReport:
        """Export what there is."""
        report = export_tables(
            self.spark,
            str(self.source.root),
            **{
                "consumer": self.name,
                "to": f"delta:{self.root}",
                "mode": self.mode,
                "keys": {"dbo/t": self.keys},
                **options,
            },
        )
        return report.tables[0]

    def take(self, **options: Any) -> StreamReport:
        """Export what there is; it has to work."""
        report = self.run(**options)
        assert "current" == report.state, report.reason
        return report

    def fail(self, **options: Any) -> str:
        """Export, which has to fail, and say why."""
        report = self.run(**options)
        assert "failed" == report.state
        return report.reason

    def rewind(self, to: int | None) -> None:
        """Let the consumer begin anew, after a version or with a snapshot."""
        told = asdict(self.stream) | {"start_at": to}
        own = {"consumer", "table", "ordinal", "uuid", "began_at"}
        wanted = {name: value for name, value in told.items() if name not in own}
        self.registry.begin(wanted, self.stream.ordinal + 1)

    @property
    def registry(self) -> Registry:
        """Return what is kept of the consumer."""
        state = open_store(f"{self.source.root}/_mirrorlib")
        return Registry(state, self.name, parse_name("dbo/t"))

    @property
    def stream(self) -> Stream:
        """Return the consumer's stream."""
        stream = self.registry.newest_stream()
        assert stream is not None
        return stream

    def set_back(self, kept: Path) -> None:
        """Put a copy of the table's folder in its place, as from a backup."""
        shutil.rmtree(self.path)
        shutil.copytree(kept, self.path)
        self.spark.catalog.clearCache()

    def let_go(self) -> None:
        """Let the runner's lease run out."""
        self.registry.state.delete_folder(f"{self.registry.folder}/lease")

    def rows(self, columns: Sequence[str] = ()) -> Rows:
        """Count the rows of the table."""
        return count(self.spark, self.path, columns or self.source.columns)

    def windows(self) -> list[tuple[str, int]]:
        """Give stream and number of each window that its log names, oldest first."""
        told = [facts(self.path, version) for version in versions(self.path)]
        return [(fact["stream"], fact["window"]) for fact in told if "window" in fact]


def versions(path: Path) -> list[int]:
    """List the versions of a Delta table."""
    return sorted(
        int(file.stem) for file in (path / "_delta_log").glob("*.json") if file.stem.isdigit()
    )


def facts(path: Path, version: int) -> dict[str, Any]:
    """Read what a commit says of itself."""
    lines = (path / "_delta_log" / f"{version:020d}.json").read_text().splitlines()
    info = next((json.loads(line)["commitInfo"] for line in lines if '"commitInfo"' in line), {})
    return said_by(info)


def count(
    spark: SparkSession, path: Path, columns: Sequence[str], version: int | None = None
) -> Rows:
    """Count the rows of a Delta table, in some columns."""
    reader = spark.read.format("delta")
    frame = (reader if version is None else reader.option("versionAsOf", version)).load(str(path))
    return Counter(
        tuple(comparable(row.asDict(recursive=True).get(name)) for name in columns)
        for row in frame.collect()
    )


def comparable(value: Any) -> Any:
    """Give a value that equals what Spark takes for equal."""
    if isinstance(value, float):
        return "NaN" if value != value else value + 0.0  # noqa: PLR0124  # that is what NaN is
    if isinstance(value, dict):
        told = {name: comparable(inner) for name, inner in value.items() if inner is not None}
        return repr(sorted(told.items()))  # a field that was added is NULL where it was not yet
    if isinstance(value, list):
        return repr([comparable(inner) for inner in value])
    return repr(value) if isinstance(value, bytearray) else value


def check(*receivers: Receiver, first: int) -> None:
    """Compare what receivers have with what an oracle makes of the source's versions from *first* on."""
    source = receivers[0].source
    states = {v: source.rows(v) for v in range(first, source.newest + 1)}
    columns, times = source.columns, source.times()
    for receiver in receivers:
        if receiver.mode == "current":
            assert states[source.newest] == receiver.rows(), receiver.name
        elif receiver.mode == "scd2":
            assert replay(states, times) == receiver.rows([*columns, *STATE])
        else:
            check_log(receiver, states, times)


def replay(states: Mapping[int, Rows], times: Mapping[int, datetime]) -> Rows:
    """Make the history of a table out of its versions: what was added opens, what was removed closes the oldest."""
    opened: dict[tuple[Any, ...], deque[datetime]] = {}
    history: Rows = Counter()
    before: Rows = Counter()
    for version, rows in states.items():
        for row in (before - rows).elements():
            history[*row, opened[row].popleft(), times[version], False] += 1
        for row in (rows - before).elements():
            opened.setdefault(row, deque()).append(times[version])
        before = rows
    for row, since in opened.items():
        history.update([(*row, moment, None, True) for moment in since])
    return history


def check_log(
    receiver: Receiver, states: Mapping[int, Rows], times: Mapping[int, datetime]
) -> None:
    """Each version's rows in the log lead from one state to the next, and tell when it was."""
    told: dict[int, tuple[Rows, Rows]] = {v: (Counter(), Counter()) for v in states}
    columns = [*receiver.source.columns, "_change_type", "_commit_version", "_commit_timestamp"]
    for (*row, kind, version, time), many in receiver.rows(columns).items():
        assert times[version] == time
        told[version][kind in ADDED][tuple(row)] += many
    before: Rows = Counter()
    for version, rows in states.items():
        removed, added = told[version]
        assert rows == before - (removed - added) + (added - removed), version
        before = rows


def side_by_side(
    call: Callable[..., Any], receivers: Sequence[Receiver], **options: Any
) -> list[Any]:
    """Let several receivers do the same at the same time."""
    with ThreadPoolExecutor(max_workers=2) as pool:
        return list(pool.map(partial(call, **options), receivers))


# Random commits in random windows


@pytest.mark.thorough
@pytest.mark.parametrize("keyed", [True, False], ids=["keyed", "keyless"])
def test_random_commits_in_random_windows_equal_the_oracle(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, keyed: bool
) -> None:
    """Inserts, updates, deletes, keys that come again, NULLs and NaN, duplicates where no key forbids them, a new column."""
    dice, live = random.Random(5 + keyed), set[str]()
    properties = f"{FEED}, 'delta.columnMapping.mode' = 'name', 'delta.enableDeletionVectors' = '{str(keyed).lower()}'"
    source = Source(spark, tmp_path, "id bigint, v double, `odd name` string", properties)
    source.run(*[statement(dice, live, keyed=keyed) for _ in range(3)])
    first = source.newest
    modes = MODES if keyed else MODES[1:]
    receivers = [Receiver(source, mode, ["ID"] if keyed else []) for mode in modes]
    side_by_side(Receiver.take, receivers)
    source.run(*[statement(dice, live, keyed=keyed) for _ in range(5)])
    with monkeypatch.context() as patch:
        let_none_be_few(patch)
        side_by_side(Receiver.take, receivers, max_versions=3 if keyed else None)
    source.run("ALTER TABLE {t} ADD COLUMNS (later double)", *again(keyed=keyed))
    source.run(statement(dice, live | {"9"}, keyed=keyed))
    side_by_side(Receiver.take, receivers)
    check(*receivers, first=first)


def statement(dice: random.Random, live: set[str], *, keyed: bool) -> str:
    """Make up a commit; *live* are the keys that are there, where they are to stay unique."""
    keys = [str(key) for key in range(6)] + ["NULL"]
    key, other = dice.sample(keys, 2)
    values = ["1", "2", "NULL", "double('NaN')", "-0.0D"]
    some = [dice.choice(keys) for _ in range(dice.randint(1, 5))]
    kind = dice.choice(["insert", "insert", "update", "same", "delete", "overwrite", "rename"])
    if keyed:
        some = [one for one in dict.fromkeys(some) if kind == "overwrite" or one not in live]
        if kind == "rename" and (key not in live or other in live):
            kind = "update"
        if kind == "insert" and not some:
            kind = "delete"
    rows = ", ".join(f"({one}, {dice.choice(values)}, '{dice.randrange(2)}')" for one in some)
    match kind:
        case "insert":
            live |= set(some)
            return f"INSERT INTO {{t}} (id, v, `odd name`) VALUES {rows}"
        case "overwrite":
            live.clear()
            live |= set(some)
            return f"INSERT OVERWRITE {{t}} (id, v, `odd name`) VALUES {rows}"
        case "delete":
            live -= {key}
            return f"DELETE FROM {{t}} WHERE id <=> {key}"
        case "rename":
            live -= {key}
            live |= {other}
            return f"UPDATE {{t}} SET id = {other} WHERE id <=> {key}"
        case "same":
            return f"UPDATE {{t}} SET v = v WHERE id <=> {key}"
    return f"UPDATE {{t}} SET v = {dice.choice(values)} WHERE NOT id <=> {key}"


def again(*, keyed: bool) -> list[str]:
    """Fill the new column of some rows, delete a key and insert it again."""
    rows = "(9, 9, '9', 9)" if keyed else "(9, 9, '9', 9), (9, 9, '9', 9)"
    insert = f"INSERT INTO {{t}} VALUES {rows}"
    return ["UPDATE {t} SET later = 5 WHERE id > 2", insert, "DELETE FROM {t} WHERE id = 9", insert]


# Crashes


def crash_after(call: Callable[..., object]) -> Callable[..., NoReturn]:
    """Make a call the last thing that happens."""

    def crash(*arguments: object, **named: object) -> NoReturn:
        call(*arguments, **named)
        raise Killed

    return crash


def crash(receiver: Receiver, **options: Any) -> None:
    """Run to a crash."""
    with pytest.raises(Killed):
        pytest.fail(str(receiver.run(**options)))


STEPS = [(step, when) for step in ("plan", "deliver", "done") for when in ("before", "after")]


@pytest.mark.thorough("changes", "scd2")
@pytest.mark.parametrize("mode", ["changes", "current", "scd2"])
def test_interrupted_anywhere_each_window_counts_once(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    """After the table is made, after the commit, before and after each step of the runner."""
    source = Source(spark, tmp_path, "id bigint, v string").run("INSERT INTO {t} VALUES (1, 'a')")
    receiver = Receiver(source, mode)
    first = source.newest
    with monkeypatch.context() as patch:
        patch.setattr(sink, "_create_table", crash_after(sink._create_table))
        crash(receiver)
    with monkeypatch.context() as patch:
        patch.setattr(LastCommit, "prove_next", crash_after(LastCommit.prove_next))
        crash(receiver)
        receiver.take()  # it is known to be there
        source.run("INSERT INTO {t} VALUES (2, 'b')", "UPDATE {t} SET v = 'c' WHERE id = 1")
        crash(receiver)
    source.run("INSERT INTO {t} VALUES (3, 'd')")
    for step, when in STEPS:
        crash(receiver, observe=at(step, when, die))
    receiver.take()
    check(receiver, first=first)
    windows = receiver.windows()
    assert list(range(1, len(windows) + 1)) == [number for _, number in windows]
    assert 1 == len({stream for stream, _ in windows})


# Lost history, and beginning anew


@pytest.mark.thorough
def test_a_snapshot_takes_the_place_of_lost_changes(spark: SparkSession, tmp_path: Path) -> None:
    """The log tells that it is reset, the copy equals the source, the history closes and opens at the snapshot."""
    properties = f"{FEED}, 'delta.checkpointInterval' = '4'"
    source = Source(spark, tmp_path, "id bigint, v string", properties)
    source.run("INSERT INTO {t} VALUES (1, 'a'), (2, 'b'), (3, 'c')")
    first, before, times = source.newest, source.rows(), source.times()
    receivers = [Receiver(source, mode) for mode in MODES]
    side_by_side(Receiver.take, receivers, on_expired="snapshot")
    source.run("UPDATE {t} SET v = 'B' WHERE id = 2", "DELETE FROM {t} WHERE id = 3")
    source.run("INSERT INTO {t} VALUES (4, 'd')")
    lost, after = source.newest, source.rows()
    for version in range(lost):
        (source.path / "_delta_log" / f"{version:020d}.json").unlink()
    reports = side_by_side(Receiver.take, receivers, on_expired="snapshot")
    assert [1, 1, 1] == [report.resets for report in reports]
    source.run("DELETE FROM {t} WHERE id = 1")
    side_by_side(Receiver.take, receivers, on_expired="snapshot")

    log, copy, history = receivers
    times |= source.times()
    assert source.rows() == copy.rows()
    states = {first: before, lost: after, lost + 1: source.rows()}
    assert replay(states, times) == history.rows(["id", "v", *STATE])
    told = log.rows(["_change_type", "_commit_version", "id", "v", "_commit_timestamp"])
    assert 1 == told["reset", lost, None, None, times[lost]]
    since = {(key, v) for kind, version, key, v, _ in told if (kind, version) == ("insert", lost)}
    assert set(after) == since


@pytest.mark.thorough
def test_a_source_that_has_become_narrower_fits_every_receiver(
    spark: SparkSession, tmp_path: Path
) -> None:
    """As a mirror that was reset, whose first file has other types, or a derived table; for inserts alone, too."""
    source = Source(spark, tmp_path, "id bigint, v double").run("INSERT INTO {t} VALUES (1, 0.5)")
    receivers = [Receiver(source, mode) for mode in MODES]
    side_by_side(Receiver.take, receivers, on_expired="snapshot")
    anew = spark.sql("SELECT CAST(2 AS int) id, CAST(1.5 AS float) v").write.format("delta")
    anew.mode("overwrite").option("overwriteSchema", "true").save(str(source.path))
    side_by_side(Receiver.take, receivers, on_expired="snapshot")
    source.run("INSERT INTO {t} VALUES (3, 2.5)")
    side_by_side(Receiver.take, receivers, on_expired="snapshot")

    log, copy, history = receivers
    assert source.rows() == copy.rows()
    assert {(1, 0.5), (2, 1.5), (3, 2.5)} == {row[:2] for row in history.rows(["id", "v"])}
    assert {(2, 1.5), (3, 2.5)} < {row[:2] for row in log.rows(["id", "v"])}


@pytest.mark.thorough
def test_a_copy_that_has_lost_a_file_is_no_reason_to_load_its_source_anew(
    spark: SparkSession, tmp_path: Path
) -> None:
    """The next step is that of the consumer, and works."""
    source = Source(spark, tmp_path, "id bigint, v string").run("INSERT INTO {t} VALUES (1, 'a')")
    copy = Receiver(source, "current")
    copy.take()
    for file in copy.path.glob("*.parquet"):
        file.unlink()
    source.run("UPDATE {t} SET v = 'b'")

    assert "consumers TARGET --rewind current --to snapshot --table dbo/t" in copy.fail()
    copy.rewind(None)
    copy.take()
    assert source.rows() == copy.rows()


@pytest.mark.thorough
def test_a_snapshot_is_told_at_its_own_time_by_a_history_without_rows(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Which tells no time that it could begin behind."""
    source = Source(spark, tmp_path, "id bigint, v string")
    history = Receiver(source, "scd2")
    history.take()
    source.run("INSERT INTO {t} VALUES (1, 'a')")
    history.rewind(None)
    history.take()

    states = Counter({(1, "a", source.times()[source.newest], None, True): 1})
    assert states == history.rows(["id", "v", *STATE])


@pytest.mark.thorough
def test_a_snapshot_of_a_source_that_was_put_back_begins_where_that_ends(
    spark: SparkSession, tmp_path: Path
) -> None:
    """What comes then has versions that the receiver had before, and it is other rows: none is left out."""
    source = Source(spark, tmp_path, "id bigint, v string").run("INSERT INTO {t} VALUES (1, 'a')")
    receivers = [
        Receiver(source, "current"),
        Receiver(source, "current", [], at="keyless"),
        Receiver(source, "scd2"),
    ]
    shutil.copytree(source.path, tmp_path / "kept")
    source.run("INSERT INTO {t} VALUES (7, 'x')", "INSERT INTO {t} VALUES (8, 'y')")
    side_by_side(Receiver.take, receivers, on_expired="snapshot")
    shutil.rmtree(source.path)
    shutil.copytree(tmp_path / "kept", source.path)
    spark.catalog.clearCache()

    reports = side_by_side(Receiver.take, receivers, on_expired="snapshot")
    for key in (2, 3):
        source.run(f"INSERT INTO {{t}} VALUES ({key}, 'b')")
        side_by_side(Receiver.take, receivers, on_expired="snapshot")

    assert [1, 1, 1] == [report.resets for report in reports]
    for receiver in receivers[:2]:
        assert source.rows() == receiver.rows(), receiver.name
    still = [row[:2] for row in receivers[2].rows([*source.columns, *STATE]) if row[-1]]
    assert source.rows() == Counter(still)


@pytest.mark.thorough
def test_a_rewound_stream_ends_in_the_same_copy(spark: SparkSession, tmp_path: Path) -> None:
    """Windows that come again change no copy and no history, those of fewer columns neither, nor does a snapshot."""
    source = Source(spark, tmp_path, "id bigint, v string").run("INSERT INTO {t} VALUES (1, 'a')")
    first = source.newest
    receivers = [
        Receiver(source, "current"),
        Receiver(source, "current", [], at="keyless"),
        Receiver(source, "scd2", []),
    ]

    def deliver_again(receiver: Receiver) -> None:
        receiver.take()
        receiver.rewind(first)
        assert 3 == receiver.take(max_versions=2).windows

    def begin_anew(receiver: Receiver) -> None:
        receiver.rewind(first + 1)  # and on beyond what is there
        receiver.take()
        receiver.rewind(None)
        receiver.take()

    side_by_side(Receiver.take, receivers)
    source.run("INSERT INTO {t} VALUES (2, 'b')", "UPDATE {t} SET v = 'A'")
    source.run("DELETE FROM {t} WHERE id = 2")
    source.run("ALTER TABLE {t} ADD COLUMNS (c int)", "UPDATE {t} SET c = 1")
    side_by_side(deliver_again, receivers)
    source.run("INSERT INTO {t} VALUES (2, 'c', 2)")
    side_by_side(begin_anew, receivers)
    check(*receivers, first=first)


@pytest.mark.thorough
def test_a_copy_in_the_midst_of_a_rewind_goes_on_from_there_alone(
    spark: SparkSession, tmp_path: Path
) -> None:
    """By key its rows go back with the windows that come again; without keys, and in a history, they do not."""
    source = Source(spark, tmp_path, "id bigint, v string").run("INSERT INTO {t} VALUES (1, 'a')")
    first = source.newest
    receivers = [
        Receiver(source, "current"),
        Receiver(source, "current", [], at="keyless"),
        Receiver(source, "scd2"),
    ]
    side_by_side(Receiver.take, receivers)
    source.run("INSERT INTO {t} VALUES (2, 'b')", "UPDATE {t} SET v = 'A' WHERE id = 1")
    source.run("DELETE FROM {t} WHERE id = 2", "UPDATE {t} SET v = 'Z' WHERE id = 1")
    side_by_side(Receiver.take, receivers)
    last = source.newest
    for receiver in receivers:
        receiver.rewind(first)
        rounds = iter([False, True])
        assert 1 == receiver.run(max_versions=2, stop=partial(next, rounds)).windows
        receiver.rewind(last)
    source.run("INSERT INTO {t} VALUES (3, 'c')")

    copy = receivers[0]
    told = f"ends with version {first + 2}, and the stream begins after {last} (rewound to {first + 2}, it goes on)"
    assert told in copy.fail()
    copy.rewind(first + 2)
    side_by_side(Receiver.take, receivers)
    check(*receivers, first=first)


@pytest.mark.thorough
@pytest.mark.parametrize("mode", ["current", "scd2"])
def test_a_key_that_goes_and_comes_in_one_commit_needs_no_pairs(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    """In a copy and in a history an update is a row that goes and one that comes: nobody has to tell it as one."""
    source = Source(spark, tmp_path, "id bigint, v string")
    source.run("INSERT INTO {t} VALUES (1, 'a'), (2, 'b'), (3, 'c')")
    first, receiver = source.newest, Receiver(source, mode)
    receiver.take()
    source.run("INSERT OVERWRITE {t} VALUES (1, 'a'), (2, 'B'), (4, 'd')")
    monkeypatch.delattr("mirrorlib.feed.read.pair_updates")
    receiver.take()
    check(receiver, first=first)


@pytest.mark.thorough
def test_a_rewound_log_has_what_came_again(spark: SparkSession, tmp_path: Path) -> None:
    """A window is appended again, a snapshot begins with a reset."""
    source = Source(spark, tmp_path, "id bigint").run("INSERT INTO {t} VALUES (1)")
    log = Receiver(source, "changes")
    log.take()
    source.run("INSERT INTO {t} VALUES (2)")
    log.take()
    log.rewind(1)
    log.take()
    log.rewind(None)
    log.take()
    assert {
        ("insert", 1, 1): 1, ("insert", 2, 2): 2,
        ("reset", 2, None): 1, ("insert", 2, 1): 1,
    } | {("insert", 2, 2): 3} == log.rows(["_change_type", "_commit_version", "id"])  # fmt: skip


@pytest.mark.thorough
def test_a_copy_that_a_stream_does_not_go_on_from_is_refused(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Rewound to later than the copy ends, or net since somewhere else; not net since where it stands."""
    source = Source(spark, tmp_path, "id bigint").run("INSERT INTO {t} VALUES (1)")
    copy = Receiver(source, "current")
    copy.take(net=True)
    source.run("INSERT INTO {t} VALUES (2)", "INSERT INTO {t} VALUES (3)")
    copy.rewind(2)
    assert "the copy ends with version 1, and the stream begins after 2" in copy.fail(net=True)
    copy.rewind(0)
    assert "in the midst of a window that is folded" in copy.fail(net=True)
    copy.rewind(1)  # where it stands
    copy.take(net=True)
    assert source.rows() == copy.rows()


# What is refused


@pytest.mark.thorough
def test_a_key_that_does_not_tell_rows_apart_is_refused(
    spark: SparkSession, tmp_path: Path
) -> None:
    """In a snapshot, within a window, by a row that meets one, and when keys are given later; nothing is written."""
    source = Source(spark, tmp_path, "id bigint, v string")
    source.run("INSERT INTO {t} VALUES (1, 'a'), (1, 'b')")
    copy = Receiver(source, "current")
    assert "dbo/t: column id: a key occurs more than once" in copy.fail()
    assert Counter() == copy.rows()
    source.run("DELETE FROM {t} WHERE v = 'b'")
    copy.rewind(None)
    copy.take()
    for values in ("(2, 'c'), (2, 'd')", "(1, 'c')"):
        before = copy.rows()
        source.run(f"INSERT INTO {{t}} VALUES {values}")
        assert "a key occurs more than once" in copy.fail()
        assert before == copy.rows()
        copy.rewind(None)
        copy.take(keys={})  # rows are told apart by all columns
        assert source.rows() == copy.rows()
        source.run("DELETE FROM {t} WHERE v IN ('c', 'd')")
        copy.take(keys={})
    source.run("INSERT INTO {t} VALUES (3, 'e'), (3, 'f')")
    copy.take(keys={})
    source.run("INSERT INTO {t} VALUES (4, 'g')")
    assert "a key occurs more than once" in copy.fail()


@pytest.mark.thorough
def test_somebody_elses_table_is_left_alone(spark: SparkSession, tmp_path: Path) -> None:
    """A table that nobody made for the consumer, another consumer's, another mode's; a folder of files."""
    source = Source(spark, tmp_path, "id bigint").run("INSERT INTO {t} VALUES (1)")
    copy, log = Receiver(source, "current"), Receiver(source, "changes")
    spark.range(3).write.format("delta").save(str(copy.path))
    told = copy.fail()
    assert "no consumer has made" in told
    assert "by another consumer, or remove the table" in told
    assert "no consumer has made" in copy.fail(consumer="own", to=f"delta:{source.root}")
    log.take()
    assert "another consumer has made (found changes)" in log.fail(consumer="else")
    log.registry.forget()
    assert "another mode (found changes)" in log.fail(mode="current")
    files = tmp_path / "files" / "dbo" / "t"
    files.mkdir(parents=True)
    (files / "mine.txt").touch()
    assert "other files in it (found mine.txt" in copy.fail(
        consumer="f", to=f"delta:{tmp_path}/files"
    )
    assert [files / "mine.txt"] == list(files.iterdir())


@pytest.mark.thorough
def test_a_copy_that_somebody_has_written_to_is_refused(
    spark: SparkSession, tmp_path: Path
) -> None:
    """OPTIMIZE is harmless, a DELETE is not, a removed table neither; a snapshot sets both right."""
    source = Source(spark, tmp_path, "id bigint").run("INSERT INTO {t} VALUES (1), (2)")
    copy, log = Receiver(source, "current"), Receiver(source, "changes")
    for receiver in (copy, log):
        receiver.take()
        spark.sql(f"OPTIMIZE delta.`{receiver.path}`")
    source.run("INSERT INTO {t} VALUES (3)")
    for receiver in (copy, log):
        receiver.take()
        spark.sql(f"DELETE FROM delta.`{receiver.path}` WHERE id = 1")
    source.run("INSERT INTO {t} VALUES (4)")
    assert "somebody else has written" in (reason := copy.fail())
    assert "DELETE" in reason
    assert "mirrorlib consumers TARGET --rewind current --to snapshot" in reason
    log.take()
    copy.rewind(None)
    copy.take()
    assert source.rows() == copy.rows()
    shutil.rmtree(copy.path)
    source.run("INSERT INTO {t} VALUES (5)")
    assert "was removed" in copy.fail()
    copy.rewind(None)
    copy.take()
    assert source.rows() == copy.rows()


@pytest.mark.thorough
def test_a_window_that_delta_skips_is_no_window_written(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Delta says nothing when it knows a mark; that no commit names the window tells."""
    source = Source(spark, tmp_path, "id bigint").run("INSERT INTO {t} VALUES (1)")
    log = Receiver(source, "changes")
    log.take()
    app = "mirrorlib:export:changes:dbo/t"
    rows = spark.read.format("delta").load(str(log.path)).limit(0).write.format("delta")
    rows.mode("append").option("txnAppId", app).option("txnVersion", 1 << 62).save(str(log.path))
    source.run("INSERT INTO {t} VALUES (2)")
    assert "Delta skipped window 2" in log.fail()


class Sleeper:
    """A receiver that falls asleep over a window, and does nothing more by itself."""

    def __init__(self, receiver: Receiver) -> None:
        self.inner = open_sink(str(receiver.root), receiver.mode)
        self.window: Delivery | None = None
        self.sleeps = False

    def position(self, stream: Stream) -> int:
        """Say what there is."""
        return self.inner.position(stream)

    def deliver(self, delivery: Delivery) -> int:
        """Deliver, or keep the window."""
        if not self.sleeps:
            return self.inner.deliver(delivery)
        self.window = delivery
        raise Killed


@pytest.mark.thorough
def test_a_run_that_a_rewind_has_overtaken_writes_nothing(
    spark: SparkSession, tmp_path: Path
) -> None:
    """It had planned a window, slept, and wakes up to find the copy further than that."""
    source = Source(spark, tmp_path, "id bigint").run("INSERT INTO {t} VALUES (1)")
    copy = Receiver(source, "current")
    sleeper = Sleeper(copy)
    copy.take(to=sleeper)
    source.run("UPDATE {t} SET id = 2")
    sleeper.sleeps = True
    crash(copy, to=sleeper)
    sleeper.sleeps = False
    copy.rewind(None)
    source.run("UPDATE {t} SET id = 3")
    copy.take(to=sleeper)
    assert sleeper.window is not None
    with pytest.raises(
        TableBusyError, match=r"began later writes to the table that the consumer keeps.*--rewind"
    ):
        sleeper.inner.deliver(sleeper.window)
    assert source.rows() == copy.rows()


def meet(patch: pytest.MonkeyPatch, mode: str, happens: Callable[[], object]) -> None:
    """Let something happen once, after a runner has looked at its target and before it writes, where no lock is."""
    (columns, real), met = sink._MODES[mode], []

    def write(work: Any) -> int | None:
        if not met:
            met.append(1)
            happens()
        return real(work)

    patch.setattr(sink, "lock_table", lambda *_: contextlib.nullcontext())
    patch.setitem(sink._MODES, mode, (columns, write))


@pytest.mark.thorough
@pytest.mark.parametrize("mode", MODES)
def test_a_late_runner_of_an_earlier_stream_writes_nothing_where_no_lock_is(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    """As on object stores: it has looked at the table, the new stream writes newer rows, then it goes on."""
    source = Source(spark, tmp_path, "id bigint, v string")
    source.run("INSERT INTO {t} VALUES (1, 'a'), (2, 'b')")
    copy = Receiver(source, mode)
    copy.take()
    source.run("UPDATE {t} SET v = 'old' WHERE id = 1")

    def others() -> None:
        source.run("UPDATE {t} SET v = 'new' WHERE id = 1")
        copy.let_go()
        copy.rewind(None)
        copy.take()

    meet(monkeypatch, mode, others)
    report = copy.run()
    assert "busy" == report.state, report.reason
    assert "another runner has taken over" in report.reason
    assert 2 == len(copy.windows())
    assert (copy.stream.uuid, 1) == copy.windows()[-1]


@pytest.mark.thorough
@pytest.mark.parametrize("mode", ["current", "scd2"])
def test_a_window_that_meets_another_commit_is_staged_again(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    """What an earlier try has staged is in nobody's way."""
    source = Source(spark, tmp_path, "v bigint").run("INSERT INTO {t} VALUES (1), (1), (2)")
    copy = Receiver(source, mode, keys=())
    copy.take()
    source.run("DELETE FROM {t} WHERE v = 2").run("INSERT INTO {t} VALUES (3)")
    real, met = work.commit_staged, []

    def commit(*given: Any, **named: Any) -> None:
        if not met:
            met.append(1)
            spark.sql(f"ALTER TABLE delta.`{copy.path}` SET TBLPROPERTIES ('a' = 'b')")
            msg = "as Delta says of a conflict"
            raise RuntimeError(msg)
        real(*given, **named)

    monkeypatch.setattr(work, "commit_staged", commit)
    copy.take()
    assert [1] == met
    if mode == "current":
        assert source.rows() == copy.rows()


@pytest.mark.thorough
@pytest.mark.parametrize("mode", MODES[:2])
def test_what_was_set_back_is_noticed_where_only_a_catalog_finds_the_table(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    """No position is told then: the registry of one window, and of two, and the table are put back from backups."""
    monkeypatch.setattr(sink.DeltaSink, "position", lambda *_: 0)
    source = Source(spark, tmp_path, "id bigint").run("INSERT INTO {t} VALUES (1)")
    copy = Receiver(source, mode)
    state = source.root / "_mirrorlib"
    for number in (1, 2):
        copy.take()
        shutil.copytree(state, tmp_path / f"state{number}")
        shutil.copytree(copy.path, tmp_path / f"table{number}")
        source.run(f"INSERT INTO {{t}} VALUES ({number + 1})")
    copy.take()
    shutil.copytree(state, tmp_path / "state3")
    source.run("INSERT INTO {t} VALUES (9)")
    rows = copy.rows()

    for number in (1, 2):
        shutil.rmtree(state)
        shutil.copytree(tmp_path / f"state{number}", state)
        said = copy.fail()
        assert f"was set back: the receiver holds windows that it does not know (found window 3 of the stream, {number}" in said  # fmt: skip
    assert rows == copy.rows()

    shutil.rmtree(state)
    shutil.copytree(tmp_path / "state3", state)
    copy.set_back(tmp_path / "table2")
    assert "was set back (found window 2 of the stream in place of 3)" in copy.fail()


@pytest.mark.thorough
@pytest.mark.parametrize("mode", MODES)
def test_a_table_that_was_set_back_to_an_earlier_stream_is_noticed(
    spark: SparkSession, tmp_path: Path, mode: str
) -> None:
    """It has no window of the stream then, as before the first one."""
    source = Source(spark, tmp_path, "id bigint").run("INSERT INTO {t} VALUES (1)")
    copy = Receiver(source, mode)
    copy.take()
    shutil.copytree(copy.path, tmp_path / "kept")
    copy.rewind(source.newest)
    for key in (2, 3):
        source.run(f"INSERT INTO {{t}} VALUES ({key})")
        copy.take()
    copy.set_back(tmp_path / "kept")
    source.run("INSERT INTO {t} VALUES (4)")

    assert "was set back (found window 0 of the stream in place of 2)" in copy.fail()
    copy.rewind(None)
    copy.take()
    assert 4 == sum(copy.rows().values()) - (mode == "changes") * 2


@pytest.mark.thorough
@pytest.mark.parametrize("mode", ["current", "scd2"])
def test_a_table_that_was_set_back_is_noticed_when_its_stream_brought_nothing_new(
    spark: SparkSession, tmp_path: Path, mode: str
) -> None:
    """What comes again after a rewind is left out of a table without keys; it is given all the same."""
    source = Source(spark, tmp_path, "id bigint").run("INSERT INTO {t} VALUES (1)")
    copy = Receiver(source, mode, [])
    copy.take()
    first = source.newest
    shutil.copytree(copy.path, tmp_path / "kept")
    source.run("INSERT INTO {t} VALUES (2)")
    copy.take()
    copy.rewind(first)
    copy.take()
    assert 2 == sum(copy.rows().values())
    copy.set_back(tmp_path / "kept")
    source.run("INSERT INTO {t} VALUES (3)")

    assert "was set back (found window 0 of the stream in place of 1)" in copy.fail()
    copy.rewind(None)
    copy.take()
    assert source.rows() == copy.rows()


@pytest.mark.thorough
def test_a_registry_that_was_set_back_is_noticed_however_windows_are_cut(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the version that the table has come to: a window without changes has a number, and never comes there."""
    monkeypatch.setattr(sink.DeltaSink, "position", lambda *_: 0)
    source = Source(spark, tmp_path, "id bigint").run("INSERT INTO {t} VALUES (1)")
    copy = Receiver(source, "changes")
    copy.take()
    state = source.root / "_mirrorlib"
    shutil.copytree(state, tmp_path / "state")
    source.run("ALTER TABLE {t} SET TBLPROPERTIES ('a' = 'b')").run("INSERT INTO {t} VALUES (2)")
    copy.take()
    rows = copy.rows()
    shutil.rmtree(state)
    shutil.copytree(tmp_path / "state", state)

    assert "was set back" in copy.fail(max_versions=1)
    assert rows == copy.rows()


@pytest.mark.thorough
@pytest.mark.parametrize("mode", MODES)
def test_a_slow_runner_finds_that_another_has_gone_on(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    """Delta skips its window, as the other one has delivered it and the next: nothing is wrong."""
    source = Source(spark, tmp_path, "id bigint").run("INSERT INTO {t} VALUES (1)")
    copy = Receiver(source, mode)
    copy.take()
    source.run("INSERT INTO {t} VALUES (2)")

    def others() -> None:
        copy.let_go()
        copy.take()
        source.run("INSERT INTO {t} VALUES (3)")
        copy.let_go()
        copy.take()

    meet(monkeypatch, mode, others)
    copy.take()
    assert [1, 2, 3] == [number for _, number in copy.windows()]


@pytest.mark.thorough
def test_streams_follow_by_number_whatever_the_clocks_say(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first runner's clock was far ahead; a consumer that was dropped and registered again counts on."""
    source = Source(spark, tmp_path, "id bigint").run("INSERT INTO {t} VALUES (1)")
    copy = Receiver(source, "current")
    with monkeypatch.context() as patch:
        patch.setattr(registry, "now", lambda: "2099-01-01T00:00:00+00:00")
        copy.take()
    copy.rewind(None)
    source.run("UPDATE {t} SET id = 2")
    copy.take()
    assert source.rows() == copy.rows()
    copy.rewind(None)
    copy.take()
    copy.registry.forget()
    source.run("UPDATE {t} SET id = 3")
    copy.take()
    assert 4 == copy.stream.ordinal
    assert source.rows() == copy.rows()
    source.run("UPDATE {t} SET id = 4")
    copy.take()
    assert source.rows() == copy.rows()


@pytest.mark.thorough
@pytest.mark.parametrize("mode", MODES)
def test_a_target_that_was_removed_is_not_begun_anew_in_the_middle(
    spark: SparkSession, tmp_path: Path, mode: str
) -> None:
    """Whatever the stream began with; a snapshot sets it right."""
    source = Source(spark, tmp_path, "id bigint").run("INSERT INTO {t} VALUES (1)")
    for name, start in (("begun", "snapshot"), ("numbered", 0)):
        copy = Receiver(source, mode, at=name)
        copy.take(start=start)
        shutil.rmtree(copy.root)
        source.run(f"INSERT INTO {{t}} VALUES ({source.newest + 1})")
        for _ in "ab":
            assert "was removed and is empty now" in copy.fail()
        copy.rewind(None)
        copy.take()
        assert source.rows() == copy.rows()


@pytest.mark.thorough
@pytest.mark.parametrize("mode", MODES)
def test_windows_without_changes_leave_no_gap(
    spark: SparkSession, tmp_path: Path, mode: str
) -> None:
    """They never reach the receiver; so a stream that began after a version may have given it nothing, or one ends earlier."""
    source = Source(spark, tmp_path, "id bigint")
    quiet = "ALTER TABLE {t} SET TBLPROPERTIES ('a' = 'b')"
    numbered, copy = (Receiver(source, mode, at=at) for at in ("numbered", "copy"))
    source.run(quiet)
    numbered.take(start=0)
    source.run("INSERT INTO {t} VALUES (1)")
    for receiver in (numbered, copy):
        receiver.take()
    source.run(quiet)
    copy.take()
    if mode == "changes":  # a copy that begins behind a version asks for a snapshot
        copy.rewind(source.newest)
    source.run("INSERT INTO {t} VALUES (2)")
    copy.take()
    copy.rewind(source.newest)
    source.run(quiet)
    copy.take()
    source.run("INSERT INTO {t} VALUES (3)")
    for receiver in (numbered, copy):
        receiver.take()
        assert source.rows() == receiver.rows()


@pytest.mark.thorough
@pytest.mark.parametrize("keys", [("id",), ()], ids=["keyed", "keyless"])
def test_a_row_that_goes_before_it_comes_is_a_current_one(
    spark: SparkSession, tmp_path: Path, keys: tuple[str, ...]
) -> None:
    """Of a history that began with what comes, which has never had it: what goes closes nothing that opens later."""
    source = Source(spark, tmp_path, "id bigint, v string")
    source.run("INSERT INTO {t} VALUES (1, 'a'), (2, 'b')")
    history = Receiver(source, "scd2", keys)
    history.take(start="now")
    for value in ("b", "a", "b", "a"):
        source.run(f"UPDATE {{t}} SET v = '{value}' WHERE id = 1")

    history.take()

    held = spark.read.format("delta").load(str(history.path)).orderBy("valid_from").collect()
    assert [("b", False), ("a", False), ("b", False), ("a", True)] == [
        (row["v"], row["is_current"]) for row in held
    ]
    assert all((row["valid_to"] is None) == row["is_current"] for row in held)
    assert all(row["is_current"] or row["valid_from"] < row["valid_to"] for row in held)


@pytest.mark.thorough
def test_a_history_does_not_go_back_in_time_with_its_source(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Put back from a backup, that has rows again whose states have ended: they open behind what the history tells."""
    source = Source(spark, tmp_path, "id bigint, v string")
    source.run("INSERT INTO {t} VALUES (1, 'a'), (2, 'a')")
    history = Receiver(source, "scd2")
    history.take()
    shutil.copytree(source.path, tmp_path / "kept")
    source.run("UPDATE {t} SET v = 'b' WHERE id = 1")
    history.take()
    shutil.rmtree(source.path)
    (tmp_path / "kept").rename(source.path)
    spark.catalog.clearCache()
    history.rewind(None)
    history.take()

    held = spark.read.format("delta").load(str(history.path)).where("id = 1").collect()
    first, then, now = ordered = sorted(
        held, key=lambda row: (row["valid_from"], row["is_current"], row["v"])
    )
    assert [("a", False), ("b", False), ("a", True)] == [(r["v"], r["is_current"]) for r in ordered]
    assert first["valid_to"] == then["valid_from"] <= then["valid_to"] == now["valid_from"]


@pytest.mark.thorough
@pytest.mark.parametrize("mode", ["current", "scd2"])
def test_a_stream_that_begins_behind_where_the_copy_ends_is_told_where_to_begin(
    spark: SparkSession, tmp_path: Path, mode: str
) -> None:
    """Rewound to there, it goes on with the copy as it is."""
    source = Source(spark, tmp_path, "id bigint").run("INSERT INTO {t} VALUES (1)")
    copy = Receiver(source, mode)
    copy.take()
    source.run("ALTER TABLE {t} SET TBLPROPERTIES ('a' = 'b')", "INSERT INTO {t} VALUES (2)")
    copy.rewind(2)
    assert "and the stream begins after 2 (rewound to 1, it goes on)" in copy.fail()
    copy.rewind(1)
    copy.take()
    assert source.rows() == copy.rows()
    assert 3 == facts(copy.path, versions(copy.path)[-1])["upto"]


@pytest.mark.thorough
def test_a_log_takes_a_column_that_comes_as_another_widens(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Both in one window, whose rows are read in a session of their own."""
    wide = f"{FEED}, 'delta.enableTypeWidening' = 'true'"
    source = Source(spark, tmp_path, "id bigint, n smallint", wide)
    log = Receiver(source, "changes")
    source.run("INSERT INTO {t} VALUES (1, 1)")
    log.take()
    source.run(
        "INSERT INTO {t} VALUES (2, 2)",
        "ALTER TABLE {t} ALTER COLUMN n TYPE int",
        "ALTER TABLE {t} ADD COLUMNS (w string)",
        "INSERT INTO {t} VALUES (3, 70000, 'x')",
    )
    log.take()
    check(log, first=1)


@pytest.mark.thorough
@pytest.mark.parametrize("mode", MODES)
def test_a_receiver_follows_a_day_that_becomes_a_wall_clock(
    spark: SparkSession, tmp_path: Path, mode: str
) -> None:
    """It is given the feature that such a column asks of a table, as its rows are written again."""
    has = "'delta.enableTypeWidening' = 'true', 'delta.feature.timestampNtz' = 'supported'"
    source = Source(spark, tmp_path, "id bigint, at date", f"{FEED}, {has}")
    source.run("INSERT INTO {t} VALUES (1, DATE'2026-01-02')")
    copy = Receiver(source, mode)
    copy.take()
    source.run(
        "ALTER TABLE {t} ALTER COLUMN at TYPE timestamp_ntz",
        "INSERT INTO {t} VALUES (2, TIMESTAMP_NTZ'2026-01-02 12:00:00')",
    )
    copy.take()
    assert source.rows() == copy.rows()


@pytest.mark.thorough
@pytest.mark.parametrize("mode", MODES)
def test_a_receiver_bounds_no_text_that_may_grow_in_the_source(
    spark: SparkSession, tmp_path: Path, mode: str
) -> None:
    """A column that came with a window is as long as it has to be."""
    source = Source(spark, tmp_path, "id bigint").run("INSERT INTO {t} VALUES (1)")
    copy = Receiver(source, mode)
    copy.take()
    source.run("ALTER TABLE {t} ADD COLUMNS (c VARCHAR(3))", "INSERT INTO {t} VALUES (2, 'abc')")
    copy.take()
    source.run(
        "ALTER TABLE {t} ALTER COLUMN c TYPE VARCHAR(10)", "INSERT INTO {t} VALUES (3, 'abcdef')"
    )
    copy.take()
    assert source.rows() == copy.rows()


@pytest.mark.thorough
def test_renamed_and_changed_columns_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    """What the feed cannot tell of the rows that are there: a snapshot brings it. What is dropped stays."""
    source = Source(
        spark, tmp_path, "id bigint, a int, b int", f"{FEED}, 'delta.columnMapping.mode' = 'name'"
    )
    source.run("INSERT INTO {t} VALUES (1, 1, 1), (2, 2, 2)")
    copy, history, log = receivers = [
        Receiver(source, mode) for mode in ("current", "scd2", "changes")
    ]
    side_by_side(Receiver.take, receivers)
    source.run("ALTER TABLE {t} RENAME COLUMN a TO c", "UPDATE {t} SET c = 5 WHERE id = 1")
    for receiver in (copy, history):
        told = receiver.fail()
        assert "one may have been renamed" in told
        assert "gone: a; new: c" in told
        receiver.rewind(None)
        receiver.take()
    log.take()
    assert source.rows() == copy.rows(["id", "c", "b"])
    open_ = {
        row[:-1]: n for row, n in history.rows(["id", "c", "b", "is_current"]).items() if row[-1]
    }
    assert source.rows() == open_
    source.run("ALTER TABLE {t} DROP COLUMN b", "UPDATE {t} SET c = 6 WHERE id = 1")
    side_by_side(Receiver.take, receivers)
    assert {(1, 6, None): 1, (2, 2, 2): 1} == copy.rows(["id", "c", "b"])
    source.run("ALTER TABLE {t} ADD COLUMNS (b string)", "UPDATE {t} SET b = 'x'")
    for rewound in (False, True):
        if rewound:
            copy.rewind(source.newest - 3)  # a window of a version that it has, too
        assert "column b: a column that had been dropped is back" in copy.fail()
    assert "column b: the source's column is of a type" in log.fail()
    copy.rewind(None)
    copy.take()
    assert source.rows() == copy.rows()


@pytest.mark.thorough
def test_what_no_receiver_can_take_is_told(spark: SparkSession, tmp_path: Path) -> None:
    """Names that a history adds, a key that is no column, columns that cannot be compared, odd addresses."""
    source = Source(spark, tmp_path, "id bigint, m map<string, int>, Valid_To date")
    source.run("INSERT INTO {t} VALUES (1, map('a', 1), NULL)")
    copy, history = Receiver(source, "current"), Receiver(source, "scd2")
    assert "column Valid_To: the column's name is taken" in history.fail()
    assert "column nobody: the key is no column" in copy.fail(
        consumer="a", keys={"dbo/t": ["nobody"]}
    )
    assert "column m: a column of this type cannot be compared" in copy.fail(consumer="b", keys={})
    assert not copy.path.exists()
    copy.take()
    assert source.rows() == copy.rows()
    for address in ("copy", "a.b.c", "", "a b.c"):
        with pytest.raises(LandingZoneError, match="neither a path"):
            open_sink(address, "current")
    assert "no such schema" in copy.fail(consumer="x", to="delta:spark_catalog.nowhere")
    with pytest.raises(StoreError, match="the catalog or its schema is not there"):
        find_tables(spark, "no", "none")


# Columns and places


@pytest.mark.thorough
def test_types_and_their_growth(spark: SparkSession, tmp_path: Path) -> None:
    """Nested fields that come, integers that widen, a type that needs a feature, a name that needs mapping."""
    columns = "id bigint, s struct<`a b`: int>, n int, x array<double>, d decimal(9,2), b binary"
    properties = (
        f"{FEED}, 'delta.enableTypeWidening' = 'true', 'delta.columnMapping.mode' = 'name', "
        "'delta.feature.timestampNtz' = 'supported'"
    )
    source = Source(spark, tmp_path, columns, properties).run(
        "INSERT INTO {t} VALUES (1, struct(1), 1, array(1, double('NaN')), 1.5, X'00')",
        "INSERT INTO {t} VALUES (NULL, NULL, 2, NULL, NULL, NULL)",
    )
    first, receivers = source.newest, [Receiver(source, mode) for mode in MODES]
    side_by_side(Receiver.take, receivers)
    source.run(
        "ALTER TABLE {t} ADD COLUMNS (s.c string, `new one` timestamp_ntz)",
        "UPDATE {t} SET d = 2 WHERE id IS NULL",
    )
    side_by_side(Receiver.take, receivers)
    source.run(
        "ALTER TABLE {t} ALTER COLUMN n TYPE bigint",
        "INSERT INTO {t} VALUES (3, struct(1, 'c'), 5000000000, NULL, NULL, NULL, '2024-01-01')",
        "DELETE FROM {t} WHERE id = 1",
    )
    side_by_side(Receiver.take, receivers)
    for receiver in receivers:
        frame = spark.read.format("delta").load(str(receiver.path))
        assert "bigint" == frame.schema["n"].dataType.simpleString()
    assert source.rows() == receivers[1].rows()
    assert source.rows() == Counter(
        {
            row[:-1]: many
            for row, many in receivers[2].rows([*source.columns, "is_current"]).items()
            if row[-1]
        }
    )
    assert first


@pytest.mark.thorough
def test_tables_of_a_catalog(spark: SparkSession, tmp_path: Path) -> None:
    """Made and kept by name; another source schema's table of the same name is refused."""
    source = Source(spark, tmp_path, "id bigint").run("INSERT INTO {t} VALUES (1)")
    to = {"to": "delta:spark_catalog.`export_to`"}
    spark.sql("DROP SCHEMA IF EXISTS export_to CASCADE")
    spark.sql("CREATE SCHEMA export_to")
    try:
        copy = Receiver(source, "current")
        copy.take(**to)
        source.run("INSERT INTO {t} VALUES (2)", "DELETE FROM {t} WHERE id = 1")
        copy.take(**to)
        assert [(2,)] == [tuple(row) for row in spark.table("export_to.t").collect()]
        shutil.copytree(source.path, source.root / "other" / "t")
        report = copy.run(tables=["other/t"], **to)
        assert "another source table becomes (found dbo/t)" in report.reason
        shutil.copytree(source.path, source.root / "dbo" / "odd name")
        assert "the catalog does not take the table" in copy.run(tables=["odd name"], **to).reason
    finally:
        spark.sql("DROP SCHEMA export_to CASCADE")


# Keys that turn out not to tell rows apart, whatever the stream began with


def let_none_be_few(patch: pytest.MonkeyPatch) -> None:
    """Let every window go the way of those that have many rows."""
    patch.setattr("mirrorlib.feed.files.direct.WINDOW_ROWS", -1)


@pytest.mark.thorough
@pytest.mark.parametrize("many", [False, True], ids=["few", "many"])
def test_a_second_row_of_a_key_is_refused_whatever_the_stream_began_with(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, many: bool
) -> None:
    """After a version, from now on, after a rewind into what the copy has; a row that comes again is none."""
    if many:
        let_none_be_few(monkeypatch)
    source = Source(spark, tmp_path, "id bigint, v string").run("INSERT INTO {t} VALUES (0, 'z')")
    numbered, coming, rewound, behind = copies = [
        Receiver(source, "current", at=at) for at in ("numbered", "coming", "rewound", "behind")
    ]
    numbered.take(start=0)
    coming.take(start="now")
    side_by_side(Receiver.take, [rewound, behind])
    source.run("INSERT INTO {t} VALUES (1, 'a')")
    side_by_side(Receiver.take, copies)
    rewound.rewind(1)
    behind.rewind(0)
    behind.take(max_versions=1)
    before = source.rows()
    source.run("INSERT INTO {t} VALUES (1, 'b')", "DELETE FROM {t} WHERE v = 'a'")
    for copy in copies:
        assert "column id: a key occurs more than once" in copy.fail()
        assert (before if copy is not coming else Counter({(1, "a"): 1})) == copy.rows()


@pytest.mark.thorough
def test_a_second_row_of_a_key_without_its_first_column_is_refused(
    spark: SparkSession, tmp_path: Path
) -> None:
    """NULL equals NULL, in a key of one column and of two; a row that goes and comes again is another thing."""
    source = Source(spark, tmp_path, "id bigint, n int, v string")
    source.run("INSERT INTO {t} VALUES (NULL, 1, 'a')")
    copies = [Receiver(source, "current", ["id"], at="one")]
    copies.append(Receiver(source, "current", ["id", "n"], at="two"))
    side_by_side(Receiver.take, copies)
    source.run("DELETE FROM {t}", "INSERT INTO {t} VALUES (NULL, 1, 'b')")
    side_by_side(Receiver.take, copies)
    before = source.rows()
    source.run("INSERT INTO {t} VALUES (NULL, 1, 'c')")
    for copy in copies:
        assert "a key occurs more than once" in copy.fail()
        assert before == copy.rows()


@pytest.mark.thorough
def test_fields_that_come_in_the_midst_of_a_struct_keep_their_values(
    spark: SparkSession, tmp_path: Path
) -> None:
    """A target puts them last; rows are told by the names of fields, in arrays too."""
    columns = "id bigint, s struct<a: int, c: int>, x array<struct<a: int, c: int>>"
    properties = f"{FEED}, 'delta.columnMapping.mode' = 'name'"
    source = Source(spark, tmp_path, columns, properties)
    source.run(
        "INSERT INTO {t} VALUES (1, named_struct('a', 1, 'c', 3), array(named_struct('a', 1, 'c', 3))), (2, NULL, NULL)"
    )
    first = source.newest
    receivers = [
        *(Receiver(source, mode) for mode in MODES),
        Receiver(source, "current", [], at="keyless copy"),
        Receiver(source, "scd2", [], at="keyless history"),
    ]
    side_by_side(Receiver.take, receivers)
    value = "named_struct('a', {0}, 'b', {0} + 1, 'c', {0} + 2)"
    row = f"({{0}}, {value}, array({value}, NULL))"
    source.run(
        "ALTER TABLE {t} ADD COLUMNS (s.b int AFTER a, x.element.b int AFTER a)",
        f"INSERT INTO {{t}} VALUES {row.format(10)}, {row.format(20)}",
    )
    side_by_side(Receiver.take, receivers)
    source.run("DELETE FROM {t} WHERE id = 20", "UPDATE {t} SET s.b = 7 WHERE id = 1")
    source.run(f"INSERT INTO {{t}} VALUES {row.format(30)}")
    side_by_side(Receiver.take, receivers)
    source.run("UPDATE {t} SET s.c = 8 WHERE id IN (10, 30)")
    side_by_side(Receiver.take, receivers)
    check(*receivers, first=first)
    for receiver in receivers[1:]:
        receiver.rewind(None)
    side_by_side(Receiver.take, receivers)
    check(*receivers, first=first)


@pytest.mark.thorough
def test_fields_in_a_map_keep_their_values(spark: SparkSession, tmp_path: Path) -> None:
    """Only a copy with keys takes one."""
    properties = f"{FEED}, 'delta.columnMapping.mode' = 'name'"
    columns = "id bigint, m map<string, struct<a: int, c: int>>"
    source = Source(spark, tmp_path, columns, properties)
    source.run("INSERT INTO {t} VALUES (1, map('k', named_struct('a', 1, 'c', 3)))")
    copy, log = Receiver(source, "current"), Receiver(source, "changes")
    first = source.newest
    side_by_side(Receiver.take, [copy, log])
    source.run(
        "ALTER TABLE {t} ADD COLUMNS (m.value.b int AFTER a)",
        "INSERT INTO {t} VALUES (2, map('l', named_struct('a', 4, 'b', 5, 'c', 6)))",
        "UPDATE {t} SET m = map('m', named_struct('a', 7, 'b', 8, 'c', 9)) WHERE id = 1",
    )
    side_by_side(Receiver.take, [copy, log])
    check(copy, log, first=first)


# Small copies, which are written anew as a whole

ALL_TYPES = (
    "id bigint, n int, flag boolean, tiny tinyint, small smallint, single float, double double, "
    "money decimal(38,18), v string, bytes binary, day date, at timestamp, wall timestamp_ntz"
)
VALUES = (
    "true, 1Y, -2S, float('NaN'), -0.0D, 12345678901234567890.123456789012345678, 'Grüße ✓', X'00FF', "
    "DATE'0001-01-01', TIMESTAMP'1500-02-28 01:02:03.456789', TIMESTAMP_NTZ'9999-12-31 23:59:59'"
)


def operations(receiver: Receiver) -> list[str]:
    """Name what Delta did to a copy for each window, oldest first."""
    told = receiver.spark.sql(f"DESCRIBE HISTORY delta.`{receiver.path}`").collect()
    kept = [row for row in told if "window" in said_by(row.asDict())]
    return [row["operation"] for row in sorted(kept, key=lambda row: row["version"])]


@pytest.mark.thorough
def test_a_small_copy_is_written_anew(spark: SparkSession, tmp_path: Path) -> None:
    """Rows that come, change and go, keys that are NULL, the last row of all, and the first after it."""
    source = Source(spark, tmp_path, ALL_TYPES)
    source.run(f"INSERT INTO {{t}} VALUES (1, 1, {VALUES}), (1, NULL, {VALUES})")
    copy = Receiver(source, "current", ["id", "n"])
    copy.take()
    for statements in (
        [f"INSERT INTO {{t}} VALUES (NULL, 2, {VALUES}), (3, 3, {VALUES})"],
        ["UPDATE {t} SET v = 'new', day = NULL WHERE n IS NULL", "DELETE FROM {t} WHERE n = 3"],
        ["DELETE FROM {t}"],
        [f"INSERT INTO {{t}} VALUES (1, 1, {VALUES})"],
    ):
        source.run(*statements)
        copy.take()
        assert source.rows() == copy.rows()
    # What takes all rows out has no images, so Spark reads it.
    assert ["WRITE", "WRITE", "WRITE", "MERGE", "WRITE"] == operations(copy)
    assert [False, False, True, True, False] == [bool(gone) for gone in files_removed(copy)]


def files_removed(receiver: Receiver) -> list[int]:
    """Count the files that each window's commit takes away, oldest first."""
    commits = [receiver.path / "_delta_log" / f"{v:020d}.json" for v in versions(receiver.path)]
    told = [commit.read_text() for commit in commits if '\\"window\\"' in commit.read_text()]
    return [text.count('{"remove":') for text in told]


SHAPES: dict[str, tuple[list[str], list[str], list[str]]] = {
    # what is done to the copy, what to the source, and what becomes of the window
    "a column of the copy alone": (
        ["ADD COLUMNS (mine string)"],
        ["INSERT INTO {t} VALUES (70, 'g')"],
        ["WRITE", "WRITE"],
    ),
    "a column that came": ([], ["ALTER TABLE {t} ADD COLUMNS (w int)"], ["WRITE"]),
    "a column that went": (  # under column mapping Spark reads the changes
        [],
        ["ALTER TABLE {t} DROP COLUMN v"],
        ["MERGE"],
    ),
    "several files": ([], ["INSERT INTO {t} VALUES (80, 'h')"], ["WRITE", "WRITE"]),
    "no checksum file": (["checksum"], [], ["WRITE"]),
    "rows taken out of a file": (["vector"], [], ["MERGE", "MERGE"]),
}


@pytest.mark.thorough
@pytest.mark.parametrize("shape", SHAPES)
def test_a_small_copy_of_any_shape_is_what_the_source_is(
    spark: SparkSession, tmp_path: Path, shape: str
) -> None:
    """By one way or the other."""
    at_copy, at_source, wanted = SHAPES[shape]
    mapped = f"{FEED}, 'delta.columnMapping.mode' = 'name'" if "went" in shape else FEED
    source = Source(spark, tmp_path, "id bigint, v string", mapped)
    source.run("INSERT INTO {t} SELECT id, 'a' FROM RANGE(1, 10)")
    copy = Receiver(source, "current")
    copy.take()
    for change in at_copy:
        if change == "checksum":
            (copy.path / "_delta_log" / f"{versions(copy.path)[-1]:020d}.crc").unlink()
        elif change == "vector":
            take_a_row_out(copy)
        else:
            spark.sql(f"ALTER TABLE delta.`{copy.path}` {change}")
    source.run(*at_source)
    if at_source and len(wanted) > 1:
        copy.take()
    source.run("DELETE FROM {t} WHERE id = 2", "UPDATE {t} SET id = 40 WHERE id = 3")
    copy.take()
    assert source.rows() == copy.rows()
    assert wanted == operations(copy)[1:]


@pytest.mark.thorough
def test_a_small_copy_is_not_written_anew_from_what_a_version_was_before_it_was_set_back(
    spark: SparkSession, tmp_path: Path
) -> None:
    """A backup was put over the log: the checksum of a version that is gone stays, and Delta writes no other one."""
    source = Source(spark, tmp_path, "id bigint, v string").run("INSERT INTO {t} VALUES (1, 'a')")
    copy = Receiver(source, "current")
    copy.take()
    source.run("INSERT INTO {t} VALUES (2, 'b')")
    copy.take()
    newest = copy.path / "_delta_log" / f"{versions(copy.path)[-1]:020d}"
    newest.with_suffix(".json").unlink()
    stale = newest.with_suffix(".crc").read_text()
    source.run("INSERT INTO {t} VALUES (3, 'c')")
    assert "was set back" in copy.fail()

    copy.rewind(None)
    copy.take()
    assert stale == newest.with_suffix(".crc").read_text()
    # As in a process of its own, Delta goes on from the old one, and signs the next.
    spark._jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()  # there is no public way
    for statement in ("INSERT INTO {t} VALUES (4, 'd')", "UPDATE {t} SET v = 'A' WHERE id = 1"):
        source.run(statement)
        copy.take()
    assert source.rows() == copy.rows()


def take_a_row_out(copy: Receiver) -> None:
    """Let the consumer's own MERGE of many rows leave a deletion vector."""
    with pytest.MonkeyPatch.context() as patch:
        let_none_be_few(patch)
        patch.setattr("mirrorlib.commit.merge._SMALL_MERGE", {})
        copy.source.run("INSERT INTO {t} VALUES (50, 'e')", "DELETE FROM {t} WHERE id = 1")
        copy.take()


@pytest.mark.thorough
def test_what_somebody_wrote_while_a_copy_was_written_anew_is_told(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is gone from the copy, as its files were read before; the next window is refused, and says by whom."""
    source = Source(spark, tmp_path, "id bigint, v string").run("INSERT INTO {t} VALUES (1, 'a')")
    copy = Receiver(source, "current")
    copy.take()

    def write_beside(*args: Any, **options: Any) -> None:
        spark.sql(f"INSERT INTO delta.`{copy.path}` VALUES (7, 'mine')")
        overwrite_rows(*args, **options)

    source.run("UPDATE {t} SET v = 'b'")
    with monkeypatch.context() as patch:
        patch.setattr(rewrite, "overwrite_rows", write_beside)
        copy.take()
    assert source.rows() == copy.rows()
    source.run("UPDATE {t} SET v = 'c'")
    assert "somebody else has written to the table" in copy.fail()


@pytest.mark.thorough
@pytest.mark.parametrize("mode", ["current", "scd2"])
def test_what_somebody_wrote_between_a_look_and_a_merge_is_told(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    """The MERGE leaves it where it is: nobody claims keys that occur once then, and the next window is refused."""
    source = Source(spark, tmp_path, "id bigint, v string").run("INSERT INTO {t} VALUES (1, 'a')")
    copy = Receiver(source, mode)
    copy.take()
    source.run("INSERT INTO {t} VALUES (2, 'b')")
    mine = f"INSERT INTO delta.`{copy.path}` (id, v) VALUES (1, 'mine')"
    with monkeypatch.context() as patch:
        let_none_be_few(patch)
        meet(patch, mode, lambda: spark.sql(mine))
        copy.take()
    assert () == mirrorlib.keys_of(mirrorlib.read_table(spark, copy.path)).primary
    source.run("UPDATE {t} SET v = 'c' WHERE id = 2")
    assert "somebody else has written to the table" in copy.fail()


@pytest.mark.thorough
def test_a_key_may_be_called_count(spark: SparkSession, tmp_path: Path) -> None:
    """As what is counted is by Spark; one that comes twice is refused all the same."""
    source = Source(spark, tmp_path, "count bigint, v string")
    source.run("INSERT INTO {t} VALUES (1, 'a'), (2, 'b')")
    copy = Receiver(source, "current", ["count"])
    copy.take()
    source.run("INSERT INTO {t} VALUES (2, 'c')")
    copy.rewind(None)
    assert "a key occurs more than once" in copy.fail()


@pytest.mark.thorough
def test_keys_that_are_no_utf8_are_keys(spark: SparkSession, tmp_path: Path) -> None:
    """Spark's text is bytes."""
    source = Source(spark, tmp_path, "id string, v string")
    source.run("INSERT INTO {t} VALUES (CAST(X'FF' AS string), 'a'), ('x', 'a')")
    copy = Receiver(source, "current")
    copy.take()
    source.run("UPDATE {t} SET v = 'b' WHERE id = 'x'")
    copy.take()
    source.run("UPDATE {t} SET v = 'c' WHERE id <> 'x'")
    copy.take()
    rows = spark.read.format("delta").load(str(copy.path)).selectExpr("hex(id)", "v").collect()
    assert {("FF", "c"), ("78", "b")} == {tuple(row) for row in rows}


@pytest.mark.thorough
@pytest.mark.parametrize(
    "change",
    [
        pytest.param("SET TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true')", id="feed"),
        pytest.param("SET TBLPROPERTIES ('delta.enableRowTracking' = 'true')", id="rows"),
        pytest.param("ADD CONSTRAINT positive CHECK (id > 0)", id="constraint"),
    ],
)
def test_a_copy_that_others_look_at_closer_is_merged_into(
    spark: SparkSession, tmp_path: Path, change: str
) -> None:
    """A feed of its own tells what has changed, and not that all was written anew."""
    source = Source(spark, tmp_path, "id bigint, v string")
    source.run("INSERT INTO {t} VALUES (1, 'a'), (2, 'b')")
    copy = Receiver(source, "current")
    copy.take()
    spark.sql(f"ALTER TABLE delta.`{copy.path}` {change}")
    source.run("UPDATE {t} SET v = 'c' WHERE id = 1")
    copy.take()
    assert source.rows() == copy.rows()
    assert ["WRITE", "MERGE"] == operations(copy)


@pytest.mark.thorough
def test_a_second_row_of_a_key_is_refused_where_a_copy_is_written_anew(
    spark: SparkSession, tmp_path: Path
) -> None:
    """As MERGE refuses it: the copy stays as it is."""
    source = Source(spark, tmp_path, "id bigint, v string").run("INSERT INTO {t} VALUES (1, 'a')")
    copy = Receiver(source, "current")
    copy.take()
    source.run("INSERT INTO {t} VALUES (1, 'b')")
    assert "column id: a key occurs more than once" in copy.fail()
    assert Counter({(1, "a"): 1}) == copy.rows()
    assert ["WRITE"] == operations(copy)
