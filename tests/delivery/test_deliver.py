"""Consumers: windows without a gap and each once, whatever stops the runner, and what becomes of lost history."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import mirrorlib
from mirrorlib.delivery.sink import comes_after
from mirrorlib.errors import FeedExpiredError, JournalError, TableBusyError
from mirrorlib.journal.leases import Lease, hold
from mirrorlib.journal.registry import Registry, registries
from mirrorlib.journal.streams import Stream
from mirrorlib.names import parse_name
from mirrorlib.store import LocalStore, open_store
from mirrors import Killed, at, die

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from mirrorlib.delivery.report import StreamReport
    from mirrorlib.delivery.sink import Delivery
    from mirrorlib.events import Event
    from mirrorlib.journal.streams import OnExpired, Start
    from mirrorlib.store import StoredFile

pytestmark = pytest.mark.slow


class Kept:
    """A receiver that keeps every window as a file; it can tell what it has, or not."""

    def __init__(self, folder: Path, *, tells: bool = True) -> None:
        self.folder, self.tells = folder, tells
        folder.mkdir(exist_ok=True)
        self.calls = 0

    def position(self, stream: Stream) -> int:
        """Find the last file of a stream."""
        files = self.folder.glob(f"{stream.uuid}-*") if self.tells else ()
        return max((int(file.name.rpartition("-")[2]) for file in files), default=0)

    def deliver(self, delivery: Delivery) -> int:
        """Write one file, whole."""
        self.calls += 1
        rows = [list(row) for row in delivery.frame.drop("_commit_timestamp").collect()]
        plan = delivery.plan
        said = {"rows": rows, "kind": plan.kind, "reset": plan.reset, "keys": plan.keys}
        said |= {"after": plan.after, "until": plan.until, "attempt": plan.attempt}
        part = self.folder / f"part-{plan.stream}"  # tables are delivered side by side
        part.write_text(json.dumps(said))
        part.rename(self.folder / f"{plan.stream}-{plan.number:05d}")
        return len(rows)

    def windows(self) -> list[dict[str, Any]]:
        """Give what was received, in order of writing."""
        files = sorted(self.folder.iterdir(), key=lambda file: (file.stat().st_mtime_ns, file.name))
        return [json.loads(file.read_text()) for file in files]


class Source:
    """A target with one table, `orders`, that SQL changes."""

    def __init__(self, spark: SparkSession, root: Path) -> None:
        self.spark, self.root = spark, root
        self.target = str(root / "target")
        self.table = f"delta.`{self.target}/orders`"
        self.sink = Kept(root / "received")

    def make(self) -> Source:
        """Make the table, of four versions."""
        feed = "'delta.enableChangeDataFeed' = 'true', 'delta.checkpointInterval' = '1'"
        self.run(
            f"CREATE TABLE {self.table} (id INT, v STRING) USING delta TBLPROPERTIES ({feed})",
            "INSERT INTO {t} VALUES (1, 'a'), (2, 'b')",
            "UPDATE {t} SET v = 'c' WHERE id = 1",
            "DELETE FROM {t} WHERE id = 2",
        )
        return self

    def copy(self, root: Path) -> Source:
        """Give a table of its own that has come as far: making one takes seconds."""
        shutil.copytree(self.target, root / "target")
        return Source(self.spark, root)

    def run(self, *statements: str) -> None:
        """Run SQL, a commit each."""
        for statement in statements:
            self.spark.sql(statement.format(t=self.table))

    def export(self, **options: Any) -> StreamReport:
        """Deliver once."""
        told = {"consumer": "lake", "to": self.sink, "keys": {"orders": ["id"]}, **options}
        report = mirrorlib.export(self.spark, self.target, **told)
        return report.tables[0]

    @property
    def registry(self) -> Registry:
        """The consumer's."""
        return Registry(open_store(f"{self.target}/_mirrorlib"), "lake", parse_name("orders"))

    def status(self) -> Any:
        """Say how the consumer stands."""
        return mirrorlib.consumers(self.target).streams[0]

    def lose(self, *versions: int) -> None:
        """Remove versions from the log."""
        for version in versions:
            Path(self.target, "orders", "_delta_log", f"{version:020d}.json").unlink()


@pytest.fixture(scope="module")
def _template(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Source:
    return Source(spark, tmp_path_factory.mktemp("template")).make()


@pytest.fixture
def source(_template: Source, tmp_path: Path) -> Source:
    """Give a table of four versions."""
    return _template.copy(tmp_path)


def feed_rows(source: Source, after: int) -> Counter[tuple[Any, ...]]:
    """Read the feed itself."""
    frame = mirrorlib.read_feed(source.spark, f"{source.target}/orders", after=after)
    return Counter(tuple(row) for row in frame.drop("_commit_timestamp").collect())


@pytest.mark.thorough
def test_a_window_does_not_read_the_whole_log_behind_a_rewrite_of_types(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What names have become of others is only looked for where one stands for another column than before."""
    source = Source(spark, tmp_path)
    properties = (
        "'delta.enableChangeDataFeed' = 'true', 'delta.columnMapping.mode' = 'name', "
        "'mirrorlib.feedPaused' = 'false'"
    )
    source.run(f"CREATE TABLE {{t}} (id INT) USING delta TBLPROPERTIES ({properties})")
    source.run(*[f"INSERT INTO {{t}} VALUES ({number})" for number in range(1, 4)])
    source.run("COMMENT ON TABLE {t} IS 'with what it is'")
    to = f"delta:{tmp_path}/copy"
    source.export(to=to, mode="current")
    source.run("INSERT INTO {t} VALUES (4)")
    reads, read = list[str](), LocalStore.read

    def noted(store: LocalStore, path: str, **how: Any) -> bytes | None:
        reads.append(f"{store.url}/{path}")
        return read(store, path, **how)

    monkeypatch.setattr(LocalStore, "read", noted)
    report = source.export(to=to, mode="current")
    assert ("current", 1, 5) == (report.state, report.windows, report.position), report.reason
    old = [path for path in reads if path.endswith(f"target/orders/_delta_log/{1:020d}.json")]
    assert [] == old


@pytest.mark.thorough
@pytest.mark.parametrize("column", ["_change_type", "_Commit_Version"])
def test_a_snapshot_of_columns_that_a_feed_has_for_itself_is_refused(
    spark: SparkSession, tmp_path: Path, column: str
) -> None:
    """As a log that another consumer keeps has them: they would be replaced without a word."""
    source = Source(spark, tmp_path)
    source.run(f"CREATE TABLE {{t}} (id INT, {column} STRING) USING delta")
    source.run("INSERT INTO {t} VALUES (1, 'delete')")
    report = source.export()
    assert "failed" == report.state
    said = f"orders: column {column}: the column's name is reserved for the change feed. Leave the table out, as"
    assert report.reason.startswith(said)
    assert [] == source.sink.windows()

    for statement in (
        report.reason.partition("rename it: ")[2].partition(" The window is")[0].split("; ")
    ):
        spark.sql(statement)
    assert "--rewind lake --to snapshot --table orders" in report.reason
    mirrorlib.rewind_consumer(source.target, "lake", "snapshot")
    assert "current" == source.export().state
    assert [[1, "delete", "insert", 3]] == source.sink.windows()[0]["rows"]


@pytest.mark.thorough
def test_a_net_consumer_of_a_column_that_cannot_be_compared_is_told_a_way_out(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Which works."""
    source = Source(spark, tmp_path)
    feed = "'delta.enableChangeDataFeed' = 'true'"
    source.run(f"CREATE TABLE {{t}} (id INT, m MAP<INT, INT>) USING delta TBLPROPERTIES ({feed})")
    source.export(net=True)
    source.run("INSERT INTO {t} VALUES (1, map(1, 2))")
    report = source.export(net=True)
    assert "failed" == report.state
    assert "column m: a column of this type cannot be compared, so net changes" in report.reason
    assert "drop it (mirrorlib consumers TARGET --drop NAME) and begin without" in report.reason

    mirrorlib.drop_consumer(source.target, "lake")
    assert ("current", 1) == (source.export().state, source.export().position)


def test_a_snapshot_comes_first_then_windows_without_a_gap(source: Source) -> None:
    """All rows, then every change since, in windows as large as is asked for."""
    first = source.export()
    assert (first.state, first.windows, first.position, first.rows) == ("current", 1, 3, 1)
    source.run("INSERT INTO {t} VALUES (3, 'd')", "OPTIMIZE {t}", "UPDATE {t} SET v = 'e'")
    mirror = source.export(max_versions=2)
    again = source.export()
    assert (mirror.windows, mirror.position) == (2, mirror.newest)
    assert (again.windows, again.state) == (0, "current")
    windows = source.sink.windows()
    assert [(w["kind"], w["after"], w["until"]) for w in windows] == [
        ("snapshot", -1, 3),
        ("changes", 3, 5),
        ("changes", 5, mirror.newest),
    ]
    assert windows[0]["rows"] == [[1, "c", "insert", 3]]
    assert windows[0]["keys"] == ["id"]
    delivered = Counter(tuple(row) for window in windows[1:] for row in window["rows"])
    assert delivered == feed_rows(source, 3)


def test_a_consumer_begins_where_it_says(source: Source) -> None:
    """With what comes, or after a version; one that cannot be read registers nobody."""
    now = source.export(consumer="now", start="now", to=Kept(source.root / "now"))
    one = Kept(source.root / "one")
    report = source.export(consumer="one", start=1, to=one)
    assert (now.windows, now.position) == (0, 3)
    assert (report.rows, one.windows()[0]["after"]) == (3, 1)
    report = source.export(consumer="keys", keys=["no"], to=Kept(source.root / "keys"))
    assert (report.state, "the key is no column" in report.reason) == ("failed", True)
    assert source.export(consumer="keys", to=Kept(source.root / "keys")).state == "current"
    alone = Kept(source.root / "alone")
    assert source.export(consumer="alone", keys="id", start=-1, to=alone).state == "current"
    assert [(-1, 3, ["id"])] == [(w["after"], w["until"], w["keys"]) for w in alone.windows()]
    report = source.export(consumer="none", start=9, to=Kept(source.root / "none"))
    assert report.state == "failed"
    assert "`start` is beyond the newest version" in report.reason
    known = {stream.consumer for stream in mirrorlib.consumers(source.target).streams}
    assert {"alone", "keys", "now", "one"} == known
    with pytest.raises(mirrorlib.JournalError, match="no consumer non is registered"):
        mirrorlib.consumers(source.target, consumer="non")


@pytest.mark.thorough
@pytest.mark.parametrize("tells", [True, False])
def test_whatever_stops_the_runner_the_same_window_is_delivered_again(
    source: Source, *, tells: bool
) -> None:
    """Receivers that can tell what they have, and receivers for which twice is the same as once."""
    source.sink = Kept(source.sink.folder, tells=tells)
    steps = [("plan", "before"), ("plan", "after"), ("deliver", "before"), ("deliver", "after")]
    steps += [("done", "before"), ("done", "after")]
    for number, step in enumerate(steps):
        source.run(f"INSERT INTO {{t}} VALUES ({number}, 'x')")
        with pytest.raises(Killed):
            source.export(observe=at(*step, die))
        planned = source.registry.newest(source.registry.newest_stream())
        source.run(f"INSERT INTO {{t}} VALUES ({number}, 'y')")  # the plan stays what it was
        assert source.export().state == "current"
        if step != ("plan", "before"):
            told = [w["attempt"] for w in source.sink.windows()]
            assert told.count(planned.plan.attempt) == 1
    windows = source.sink.windows()
    assert windows[0]["kind"] == "snapshot"
    changes = windows[1:]
    assert [w["after"] for w in changes] == [w["until"] for w in windows[:-1]]
    delivered = Counter(tuple(row) for window in changes for row in window["rows"])
    assert delivered == feed_rows(source, windows[0]["until"])


def test_what_a_killed_runner_staged_goes_with_its_window(source: Source) -> None:
    """The dead tidy nothing up; who delivers the window does."""
    staged = Path(source.target, "_mirrorlib", "staged")
    with pytest.raises(Killed):
        source.export(observe=at("deliver", "before", die))
    plan = source.registry.newest(source.registry.newest_stream()).plan
    left = staged / "exports" / source.registry.folder / plan.attempt / "a" / "part"
    left.parent.mkdir(parents=True)
    left.write_bytes(b"rows")
    assert source.export().state == "current"
    assert [] == [path for path in staged.rglob("*") if path.is_file()]
    for let_go in (
        lambda: mirrorlib.rewind_consumer(source.target, "lake", "snapshot"),
        lambda: mirrorlib.drop_consumer(source.target, "lake"),
    ):
        left.parent.mkdir(parents=True)
        left.write_bytes(b"rows")
        let_go()
        assert [] == [path for path in staged.rglob("*") if path.is_file()]


def test_a_receiver_that_was_set_back_is_not_given_what_comes_later(source: Source) -> None:
    """A backup of it was put back: the windows in between would be missing in it without a word."""
    for value in "ab":
        source.export()
        source.run(f"INSERT INTO {{t}} VALUES (7, '{value}')")
    source.export()
    received = sorted(source.sink.folder.iterdir())
    assert 3 == len(received)
    source.run("OPTIMIZE {t}")  # a window without rows is delivered to nobody
    assert "current" == source.export().state
    received[2].unlink()
    source.run("INSERT INTO {t} VALUES (8, 'c')")

    stopped = source.export()

    assert "failed" == stopped.state
    assert "found window 2 of the stream in place of 3" in stopped.reason
    assert "--rewind lake --to snapshot" in stopped.reason
    assert 2 == len(source.sink.windows())
    mirrorlib.rewind_consumer(source.target, "lake", "snapshot")
    assert "current" == source.export().state


@pytest.mark.thorough
def test_a_registry_that_was_set_back_does_not_pass_windows_over(source: Source) -> None:
    """A backup of the state was put back: what it plans next has the number of another window that the receiver has."""
    source.export()
    kept = source.root / "kept"
    shutil.copytree(Path(source.target, "_mirrorlib"), kept)
    for value in "ab":
        source.run(f"INSERT INTO {{t}} VALUES (7, '{value}')")
        source.export()
    shutil.rmtree(Path(source.target, "_mirrorlib"))
    shutil.copytree(kept, Path(source.target, "_mirrorlib"))
    source.run("INSERT INTO {t} VALUES (8, 'c')")

    for _ in range(2):
        stopped = source.export()
        assert "failed" == stopped.state
        assert "found window 3 of the stream, 1 in the registry" in stopped.reason
    assert 3 == len(source.sink.windows())


@pytest.mark.thorough
@pytest.mark.parametrize("step, known", [("plan", 0), ("deliver", 1)])
def test_a_registry_of_a_window_under_way_does_not_pass_windows_over(
    source: Source, step: str, known: int
) -> None:
    """A backup that was taken meanwhile is put back: of a window that has not ended, or before the first is planned."""
    state, kept = Path(source.target, "_mirrorlib"), source.root / "kept"

    def keep(event: Event) -> None:
        if (event.step, event.when) == (step, "before"):
            shutil.copytree(state, kept)

    source.export(observe=keep)
    for value in "ab":
        source.run(f"INSERT INTO {{t}} VALUES (7, '{value}')")
        source.export()
    shutil.rmtree(state)
    shutil.rmtree(next(kept.rglob("lease")))  # it ran out long ago
    shutil.copytree(kept, state)
    source.run("INSERT INTO {t} VALUES (8, 'c')")

    for _ in range(2):
        stopped = source.export()
        assert "failed" == stopped.state
        assert f"found window 3 of the stream, {known} in the registry" in stopped.reason
    assert 3 == len(source.sink.windows())


@pytest.mark.thorough
def test_a_receiver_that_was_never_given_anything_was_not_emptied(source: Source) -> None:
    """Though the log does not tell any more that nothing has changed since the stream began; the registry does."""
    source.export(start="now")
    for _ in range(3):
        source.run("ALTER TABLE {t} SET TBLPROPERTIES ('a' = 'b')")
        assert "current" == source.export(start="now").state
    given = [source.registry.given_before(stream_of(source), number) for number in (1, 2, 3, 4)]
    source.run("INSERT INTO {t} VALUES (8, 'c')")
    told: list[tuple[bool, int | None]] = []
    deliver = source.sink.deliver
    source.sink.deliver = lambda one: told.append((one.continues, one.given)) or deliver(one)  # type: ignore[method-assign,func-returns-value]  # to see what it is told

    source.export(start="now")
    source.run("INSERT INTO {t} VALUES (9, 'd')")
    source.export(start="now")

    assert [0, 0, 0, 0] == given
    assert [(False, 0), (True, 4)] == told


def stream_of(source: Source) -> Stream:
    """Give the consumer's stream."""
    stream = source.registry.newest_stream()
    assert stream is not None
    return stream


@pytest.mark.thorough
def test_lost_history_stops_the_stream_or_resets_the_receiver(source: Source) -> None:
    """Nobody reads over a gap: the stream stops, or a marked snapshot takes its place."""
    kept = Kept(source.root / "careful")
    source.export(consumer="careful", to=kept)
    source.export(on_expired="snapshot")
    source.run("INSERT INTO {t} VALUES (3, 'd')", "INSERT INTO {t} VALUES (4, 'd')")
    source.lose(4)
    failed = source.export(consumer="careful", to=kept)
    assert failed.state == "failed"
    assert "the log no longer holds version 4" in failed.reason
    assert "5" in failed.reason
    reset = source.export(on_expired="snapshot")
    assert (reset.state, reset.resets, reset.position) == ("current", 1, 5)
    last = source.sink.windows()[-1]
    assert (last["kind"], last["reset"], len(last["rows"])) == ("snapshot", True, 3)
    states = {s.consumer: s for s in mirrorlib.consumers(source.target).streams}
    assert (states["careful"].health, states["lake"].health) == ("expired", "current")
    assert "--rewind careful --to snapshot" in (states["careful"].reason or "")
    assert "version 4" in states["careful"].reason


@pytest.mark.thorough
@pytest.mark.parametrize("then", ["fail", "snapshot"])
def test_a_planned_window_whose_changes_are_lost_gives_way_to_a_snapshot(
    source: Source, then: OnExpired
) -> None:
    """A plan is repeated as it is, unless it cannot be carried out any more."""
    source.export(on_expired=then)
    source.run("INSERT INTO {t} VALUES (3, 'd')")
    with pytest.raises(Killed):
        source.export(on_expired=then, observe=at("plan", "after", die))
    source.run("INSERT INTO {t} VALUES (4, 'd')")
    source.lose(4)
    report = source.export(on_expired=then)
    if then == "fail":
        assert "failed" == report.state
        assert "--rewind lake --to snapshot" in report.reason
        return
    assert (report.state, report.windows, report.resets) == ("current", 1, 1)
    assert [w["kind"] for w in source.sink.windows()] == ["snapshot", "snapshot"]


@pytest.mark.thorough
def test_a_table_made_anew_is_noticed(source: Source) -> None:
    """Its versions have the same numbers, and mean something else."""
    source.export(on_expired="snapshot")
    careful = Kept(source.root / "careful")
    source.export(consumer="careful", to=careful)
    shutil.rmtree(f"{source.target}/orders")
    again = Source(source.spark, source.root).make()  # as many versions as there were
    assert {"expired"} == {each.health for each in mirrorlib.consumers(source.target).streams}
    report = again.export(on_expired="snapshot")
    assert (report.state, report.resets) == ("current", 1)
    report = again.export(consumer="careful", to=careful)
    assert report.state == "failed"
    assert "made anew since it was read (found its first version is 0)" in report.reason
    assert "--rewind careful --to snapshot" in report.reason


@pytest.mark.thorough
def test_a_table_that_was_put_back_and_has_grown_is_noticed(source: Source) -> None:
    """What the backup lacks was given, and what has come since has its versions; a window planned before, too."""
    table, kept = Path(source.target, "orders"), source.root / "kept"
    shutil.copytree(table, kept)
    source.run("INSERT INTO {t} VALUES (7, 'a')")
    source.export()

    def put_back() -> None:
        shutil.rmtree(table)
        shutil.copytree(kept, table)
        source.run("INSERT INTO {t} VALUES (8, 'b')", "INSERT INTO {t} VALUES (9, 'c')")

    put_back()
    report = source.export()
    assert "failed" == report.state
    assert "put back from a backup or made anew since it was read" in report.reason
    assert "expired" == source.status().health
    mirrorlib.rewind_consumer(source.target, "lake", "snapshot")
    assert "current" == source.export().state

    source.run("INSERT INTO {t} VALUES (7, 'a')")
    with pytest.raises(Killed):
        source.export(observe=at("deliver", "before", die))
    source.registry.state.delete_folder(f"{source.registry.folder}/lease")
    put_back()
    source.run("INSERT INTO {t} VALUES (10, 'd')", "INSERT INTO {t} VALUES (11, 'e')")
    assert "put back from a backup" in source.export().reason


@pytest.mark.thorough("4")
@pytest.mark.parametrize("start", [4, "now"])
def test_a_table_that_was_put_back_before_the_first_window_is_noticed(
    source: Source, start: Start
) -> None:
    """Of a consumer that has begun with a version and was given nothing yet."""
    table, kept = Path(source.target, "orders"), source.root / "kept"
    shutil.copytree(table, kept)
    source.run("INSERT INTO {t} VALUES (7, 'a')")
    assert ("current", 0) == ((told := source.export(start=start)).state, told.windows)
    shutil.rmtree(table)
    shutil.copytree(kept, table)
    source.run(*[f"INSERT INTO {{t}} VALUES ({number}, 'b')" for number in (8, 9)])

    assert "put back from a backup" in source.export().reason
    assert "expired" == source.status().health


def test_a_consumer_of_a_table_that_was_put_back_begins_with_a_snapshot_alone(
    source: Source,
) -> None:
    """No changes lead from what it was given to what is there."""
    table, kept = Path(source.target, "orders"), source.root / "kept"
    shutil.copytree(table, kept)
    source.run("INSERT INTO {t} VALUES (7, 'a')")
    source.export()
    shutil.rmtree(table)
    shutil.copytree(kept, table)

    for _ in range(2):  # nor once a snapshot was asked for, and none delivered
        for to in (1, "now"):
            with pytest.raises(FeedExpiredError, match=r"put back from a backup.*--to snapshot"):
                mirrorlib.rewind_consumer(source.target, "lake", to)
        mirrorlib.rewind_consumer(source.target, "lake", "snapshot")
    assert "current" == source.export().state
    mirrorlib.rewind_consumer(source.target, "lake", 1)


def test_another_receiver_needs_another_consumer(source: Source, tmp_path: Path) -> None:
    """A position says what one receiver has; wrong words are refused before anything runs."""
    source.export()
    report = source.export(net=True)
    assert report.state == "failed"
    assert "registered with another `net`" in report.reason
    source.run("INSERT INTO {t} VALUES (3, 'd')")
    assert source.status().health == "behind"  # a slip of the pen is no failure of the consumer
    with pytest.raises(mirrorlib.LandingZoneError, match="nothing is known that receives"):
        source.export(to=f"ftp:{tmp_path}")
    with pytest.raises(mirrorlib.LandingZoneError, match="has no mode scd2"):
        source.export(to=f"files:{tmp_path}", mode="scd2")
    with pytest.raises(mirrorlib.LandingZoneError, match="a consumer's name"):
        source.export(consumer="a/b")


def test_words_that_nobody_defined_are_refused(source: Source) -> None:
    """A misspelt one would mean a snapshot, which replaces what the receiver has."""
    for wrong in (
        {"start": "nwo"},
        {"on_expired": "Fail"},
        {"parallelism": 0},
        {"max_versions": -1},
        {"consumer": ".."},
        {"consumer": "\N{GRINNING FACE}" * 60},
    ):
        with pytest.raises(mirrorlib.LandingZoneError):
            source.export(**wrong)
    source.export()
    with pytest.raises(mirrorlib.LandingZoneError, match="begins with"):
        mirrorlib.rewind_consumer(source.target, "lake", "newest")  # type: ignore[arg-type]


@pytest.mark.thorough
def test_a_consumer_that_was_dropped_by_half_begins_anew(source: Source) -> None:
    """What is left of a forgotten stream is nobody's: the next one of that name is given all rows."""
    source.export()
    shutil.rmtree(f"{source.target}/_mirrorlib/consumers/lake/orders/streams")  # killed there
    source.run("INSERT INTO {t} VALUES (3, 'd')")
    other = Kept(source.root / "other")
    assert source.export(to=other).rows == 2
    assert [window["kind"] for window in other.windows()] == ["snapshot"]


@pytest.mark.thorough
@pytest.mark.parametrize("change", ["drop", "rewind"])
def test_a_runner_whose_stream_ends_as_it_begins_delivers_nothing(
    source: Source, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    """It has read which stream counts, and that is dropped or rewound before the runner holds it."""
    source.export()
    source.run("INSERT INTO {t} VALUES (3, 'd')")

    def hold_late(lease: Lease) -> Any:
        monkeypatch.undo()
        if change == "drop":
            mirrorlib.drop_consumer(source.target, "lake")
        else:
            mirrorlib.rewind_consumer(source.target, "lake", "snapshot")
        return hold(lease)

    monkeypatch.setattr("mirrorlib.delivery.run_stream.hold", hold_late)
    late = source.export()
    assert (late.state, late.windows) == ("busy", 0)
    assert "dropped or rewound a moment ago" in late.reason
    assert source.export().rows == 2
    assert source.sink.windows()[-1]["kind"] == "snapshot"


@pytest.mark.thorough
@pytest.mark.parametrize("on_expired", ["fail", "snapshot"])
def test_a_runner_that_looked_before_another_delivered_looks_again(
    source: Source, monkeypatch: pytest.MonkeyPatch, on_expired: str
) -> None:
    """Its log ends before what the other one has delivered: that is no table that was put back."""
    source.export(on_expired=on_expired)
    source.run("INSERT INTO {t} VALUES (3, 'd')")

    def hold_late(lease: Lease) -> Any:
        monkeypatch.undo()
        source.run("INSERT INTO {t} VALUES (4, 'e')")
        assert 1 == source.export(on_expired=on_expired).windows
        return hold(lease)

    monkeypatch.setattr("mirrorlib.delivery.run_stream.hold", hold_late)
    late = source.export(on_expired=on_expired)

    assert ("current", 0, 0) == (late.state, late.windows, late.resets), late.reason
    assert ["snapshot", "changes"] == [window["kind"] for window in source.sink.windows()]


def test_a_snapshot_whose_files_are_gone_ends_the_run(source: Source) -> None:
    """It is void, and tried again by the next run, which looks at the table anew."""

    class Unlucky(Kept):
        def deliver(self, delivery: Delivery) -> int:
            self.calls += 1
            msg = "gone"
            raise mirrorlib.FeedExpiredError(msg, table=delivery.stream.table)

    unlucky = Unlucky(source.root / "unlucky")
    for calls in (1, 2):
        report = source.export(to=unlucky, on_expired="snapshot")
        assert (report.state, unlucky.calls) == ("failed", calls)


@pytest.mark.thorough
def test_changes_that_went_without_a_word_give_way_to_a_snapshot(source: Source) -> None:
    """Not every VACUUM writes down that it ran; what the reader misses is looked for."""
    source.export(on_expired="snapshot")
    careful = Kept(source.root / "careful")
    source.export(consumer="careful", to=careful)
    source.run("UPDATE {t} SET v = 'x'")
    for file in Path(source.target, "orders", "_change_data").glob("*.parquet"):
        file.unlink()
    report = source.export(on_expired="snapshot")
    assert (report.state, report.resets) == ("current", 1)
    stopped = source.export(consumer="careful", to=careful)
    assert stopped.state == "failed"
    assert "the changes of version 4 were removed" in stopped.reason


@pytest.mark.thorough
def test_two_runners_keep_apart(source: Source) -> None:
    """A lease holds until it is given back, runs out, or its process has ended."""
    source.export()
    source.run("INSERT INTO {t} VALUES (3, 'd')")
    with hold(source.registry.lease()) as lease:
        busy = source.export()
        assert (busy.state, busy.windows) == ("busy", 0)
        assert "another runner delivers" in busy.reason
        assert source.status().health == "delivering"
        with pytest.raises(TableBusyError):
            mirrorlib.drop_consumer(source.target, "lake")
        lease.check()
        lease.write(until=datetime.now(UTC) - timedelta(seconds=1))  # it runs out
        assert source.export().windows == 1
        with pytest.raises(TableBusyError, match="taken over"):
            lease.check()
    held = next(Path(source.target).glob("_mirrorlib/consumers/lake/orders/lease/*"))
    gone = json.loads(held.read_text())
    gone |= {"until": "2999-01-01T00:00:00+00:00", "started": "another process"}
    held.write_text(json.dumps(gone))  # held by a process that has ended
    source.run("INSERT INTO {t} VALUES (4, 'd')")
    assert source.export().windows == 1


@pytest.mark.thorough
def test_consumers_are_listed_rewound_and_dropped(source: Source) -> None:
    """Lag in versions, seconds and rows; a rewound stream is given again what it had."""
    source.export()
    source.run("INSERT INTO {t} VALUES (3, 'd'), (4, 'e')", "DELETE FROM {t} WHERE id = 3")
    status = source.status()
    assert (status.health, status.position, status.newest) == ("behind", 3, 5)
    assert (status.versions, status.rows) == (2, 3)
    assert status.seconds >= 0
    source.export()
    assert source.status().health == "current"
    assert mirrorlib.rewind_consumer(source.target, "lake", 3) == ("orders",)
    assert source.status().position == 3
    assert source.export().rows == 3
    first, second = source.sink.windows()[-2:]
    assert Counter(map(tuple, first["rows"])) == Counter(map(tuple, second["rows"]))
    mirrorlib.rewind_consumer(source.target, "lake", "snapshot")
    assert source.status().position is None
    assert source.export().rows == 2
    with pytest.raises(mirrorlib.FeedError, match="`to` is beyond the newest"):
        mirrorlib.rewind_consumer(source.target, "lake", 99)
    assert mirrorlib.drop_consumer(source.target, "lake") == ("orders",)
    assert mirrorlib.consumers(source.target).streams == ()
    with pytest.raises(JournalError, match="no consumer lake"):
        mirrorlib.drop_consumer(source.target, "lake")
    source.export()
    again = source.registry.newest_stream()
    assert again is not None
    assert 4 == again.ordinal  # one more than it had come to: receivers go by it


def test_streams_of_a_consumer_share_their_lineage(source: Source) -> None:
    """Though the table was made anew, or the consumer dropped since: receivers know a late runner by it."""
    wanted = {"to": "", "mode": "", "net": False, "start_at": None, "on_expired": "fail"}
    source.registry.begin({**wanted, "table_id": "of a table that was there before"}, 1)
    mirrorlib.rewind_consumer(source.target, "lake", "snapshot")
    rewound = source.registry.newest_stream()
    mirrorlib.drop_consumer(source.target, "lake")
    assert source.export().state == "current"
    again = source.registry.newest_stream()
    for ordinal, stream in ((2, rewound), (3, again)):
        assert stream is not None
        assert (ordinal, "of a table that was there before") == (stream.ordinal, stream.lineage)
        assert stream.table_id != stream.lineage


def test_targets_that_share_their_state_share_no_consumer_of_a_table(
    source: Source, tmp_path: Path
) -> None:
    """The copy of one would become that of the other without a word; one that was moved goes on."""
    (tmp_path / "other").mkdir()
    other = Source(source.spark, tmp_path / "other")
    other.run("CREATE TABLE {t} (id INT, v STRING) USING delta")
    told = {"state": str(tmp_path / "state"), "on_expired": "snapshot"}
    assert "current" == source.export(**told).state
    refused = other.export(**told)
    moved = source.copy(tmp_path / "moved")
    shutil.rmtree(source.target)

    assert "failed" == refused.state
    assert f"in another target (found {source.target})" in refused.reason
    assert ("current", "") == (moved.export(**told).state, moved.export(**told).reason)

    # A rewind from where the tables are now makes the consumer theirs, whatever became of them.
    mirrorlib.rewind_consumer(moved.target, "lake", "snapshot", state=told["state"])
    stream = registries(open_store(told["state"]), "lake")[0].newest_stream()
    assert stream is not None
    assert str(moved.target) == stream.target


def test_a_stream_comes_after_another_by_its_number() -> None:
    """A late runner's clock makes it no newer; the moment tells where the consumer's numbers were lost."""

    def stream(ordinal: int, began_at: str) -> Stream:
        facts: dict[str, Any] = {"consumer": "c", "table": "t", "uuid": "u", "to": "", "mode": ""}
        facts |= {"net": False, "start_at": None, "table_id": "", "on_expired": "fail"}
        return Stream(**facts, ordinal=ordinal, began_at=began_at)

    for newer, older in (
        (stream(4, "2026-01-02"), stream(3, "2026-01-01")),
        (stream(4, "2026-01-02"), stream(3, "2099-01-01")),
        (stream(1, "2026-01-02"), stream(1, "2026-01-01")),
        (stream(2, "2026-01-02"), stream(2, "2026-01-01")),
    ):
        assert comes_after(newer, older.ordinal, older.began_at)
        assert not comes_after(older, newer.ordinal, newer.began_at)
    assert comes_after(stream(1, "2026-01-02"), 3, "2026-01-01")


def test_one_table_stops_alone(source: Source) -> None:
    """Its neighbours are delivered; a name that fits no table is told, and one that lies too deep."""
    other = f"delta.`{source.target}/dbo/lines`"
    source.spark.sql(f"CREATE TABLE {other} (id INT) USING delta")  # without a feed
    source.spark.sql(f"INSERT INTO {other} VALUES (1)")
    shutil.copytree(f"{source.target}/orders", f"{source.target}/a/b/orders")
    options: dict[str, Any] = {"consumer": "both", "to": source.sink, "start": 0}
    report = mirrorlib.export(source.spark, source.target, **options)
    assert not report.ok
    states = {table.table: table for table in report.tables}
    assert states["orders"].state == "current"
    assert states["dbo/lines"].state == "failed"
    assert "the feed was off" in states["dbo/lines"].reason
    assert "dbo/lines" in str(report)
    assert "a table is named as table or schema/table" in states["a/b/orders"].reason
    report = mirrorlib.export(source.spark, source.target, ["nothing"], **options)
    assert "there is no such Delta table in the target. Check its name." in report.tables[0].reason


def test_a_table_that_is_gone_fails_until_its_consumer_is_dropped(source: Source) -> None:
    """Else its receiver's rows would age and nobody be told; but it may be another target's, or not be asked for."""
    state = str(source.root / "state")
    told: dict[str, Any] = {"consumer": "lake", "to": source.sink, "start": "now", "state": state}
    assert mirrorlib.export(source.spark, source.target, **told).ok
    other = source.root / "other"
    other.mkdir()
    assert mirrorlib.export(source.spark, other, **told).ok
    told["keys"] = {"orders": ["id"]}
    shutil.rmtree(f"{source.target}/orders")

    for patterns in ((), "orders"):
        gone = mirrorlib.export(source.spark, source.target, patterns, **told).tables[0]
        assert ("orders", "failed") == (gone.table, gone.state)
        assert "--drop lake --table orders" in gone.reason
        assert not mirrorlib.consumers(source.target, state=state).ok
    asked = mirrorlib.export(source.spark, source.target, "lines", **told)
    assert ["lines"] == [table.table for table in asked.tables]
    mirrorlib.drop_consumer(source.target, "lake", tables=["orders"], state=state)
    assert mirrorlib.export(source.spark, source.target, **told | {"keys": None}).ok


@pytest.mark.thorough
def test_a_table_that_failed_is_mended_and_goes_on(source: Source) -> None:
    """Its neighbour is delivered meanwhile; then the next run gives what is still to come, and that once."""
    lines = Source(source.spark, source.root)
    lines.table = f"delta.`{source.target}/dbo/lines`"
    feed = "'delta.enableChangeDataFeed' = 'true'"
    lines.run(
        f"CREATE TABLE {lines.table} (id INT, v STRING) USING delta TBLPROPERTIES ({feed})",
        "INSERT INTO {t} VALUES (1, 'a')",
    )

    def export() -> dict[str, StreamReport]:
        report = mirrorlib.export(source.spark, source.target, consumer="both", to=source.sink)
        return {table.table: table for table in report.tables}

    assert {"current"} == {table.state for table in export().values()}
    for each in (source, lines):
        each.run("INSERT INTO {t} VALUES (8, 'x')", "INSERT INTO {t} VALUES (9, 'y')")
    log = Path(source.target, "dbo/lines/_delta_log", f"{2:020d}.json")
    log.rename(source.root / "lost")
    for windows in (1, 0):
        tables = export()
        orders, failed = tables["orders"], tables["dbo/lines"]
        assert ("current", windows) == (orders.state, orders.windows)
        assert ("failed", 0) == (failed.state, failed.windows)
        assert "version 2" in failed.reason
    (source.root / "lost").rename(log)
    mended = export()["dbo/lines"]
    assert ("current", 1, 2) == (mended.state, mended.windows, mended.rows)
    assert {"current"} == {each.health for each in mirrorlib.consumers(source.target).streams}


@pytest.fixture
def two(source: Source) -> Source:
    """Give a target of two tables, and one consumer of both."""
    shutil.copytree(f"{source.target}/orders", f"{source.target}/lines")
    report = mirrorlib.export(source.spark, source.target, consumer="lake", to=source.sink)
    assert report.ok, str(report)
    return source


@pytest.mark.thorough
def test_consumers_are_changed_in_all_tables_or_in_none(two: Source) -> None:
    """A runner that is at one of them hinders it before anything is changed."""
    with hold(two.registry.lease()):
        with pytest.raises(TableBusyError):
            mirrorlib.drop_consumer(two.target, "lake")
        with pytest.raises(TableBusyError):
            mirrorlib.rewind_consumer(two.target, "lake", 1)
    assert [("lines", 3), ("orders", 3)] == [
        (stream.table, stream.position) for stream in mirrorlib.consumers(two.target).streams
    ]
    assert ("lines", "orders") == mirrorlib.rewind_consumer(two.target, "lake", 1)
    assert ("lines", "orders") == mirrorlib.drop_consumer(two.target, "lake")


@pytest.mark.thorough
def test_a_damaged_consumer_hides_no_other(two: Source) -> None:
    """It is failed, and its table is left alone by VACUUM; what cannot be read can be dropped."""
    stream = Path(two.target, "_mirrorlib", two.registry.folder, "streams", "000001.json")
    stream.write_text("{")

    report = mirrorlib.consumers(two.target)
    assert [("lines", "current"), ("orders", "failed")] == [
        (stream.table, stream.health) for stream in report.streams
    ]
    assert "000001.json" in report.streams[1].reason
    tables = mirrorlib.vacuum(two.spark, two.target, dry_run=True).tables
    assert [("lines", "ready"), ("orders", "refused")] == [(t.table, t.state) for t in tables]
    assert ("orders",) == mirrorlib.drop_consumer(two.target, "lake", tables="orders")
    assert ["lines"] == [stream.table for stream in mirrorlib.consumers(two.target).streams]


@pytest.mark.thorough
def test_a_log_that_cannot_be_read_hides_no_consumer(two: Source) -> None:
    """Its stream has failed; the others are told."""
    two.run("INSERT INTO {t} VALUES (3, 'd')")
    Path(two.target, "orders", "_delta_log", f"{4:020d}.json").write_text("no JSON\n")

    report = mirrorlib.consumers(two.target)

    told = [(stream.table, stream.health) for stream in report.streams]
    assert [("lines", "current"), ("orders", "failed")] == told
    assert not report.ok


@pytest.mark.thorough
def test_a_consumer_that_fails_behind_a_clock_that_was_ahead_has_failed(source: Source) -> None:
    """A window that seems to be delivered later than now is none that went well since."""
    source.export()
    (done,) = Path(source.target, "_mirrorlib", source.registry.folder).rglob("*.done.json")
    tomorrow = (datetime.now(UTC) + timedelta(days=1)).isoformat(timespec="microseconds")
    done.write_text(json.dumps(json.loads(done.read_text()) | {"finished_at": tomorrow}))
    source.run("INSERT INTO {t} VALUES (3, 'd')", "INSERT INTO {t} VALUES (4, 'd')")
    log = Path(source.target, "orders", "_delta_log", f"{4:020d}.json")
    log.rename(source.root / "lost")
    assert "failed" == source.export().state
    (source.root / "lost").rename(log)

    assert "failed" == source.status().health


@pytest.mark.thorough
def test_a_rewound_consumer_has_not_failed(source: Source) -> None:
    """The last word was about a stream that is over."""
    source.export()
    source.run("INSERT INTO {t} VALUES (3, 'd')", "INSERT INTO {t} VALUES (4, 'd')")
    source.lose(4)
    assert "failed" == source.export().state

    mirrorlib.rewind_consumer(source.target, "lake", "snapshot")

    report = mirrorlib.consumers(source.target)
    assert ("behind", "", True) == (report.streams[0].health, report.streams[0].reason, report.ok)


@pytest.mark.thorough
def test_net_windows_are_folded(source: Source) -> None:
    """What came and went within a window is not delivered."""
    source.export(net=True)
    source.run("INSERT INTO {t} VALUES (7, 'x')", "DELETE FROM {t} WHERE id = 7")
    assert source.export(net=True).rows == 0
    assert source.sink.windows()[-1]["rows"] == []


@pytest.mark.thorough
def test_vacuum_leaves_what_a_consumer_has_still_to_read(source: Source) -> None:
    """A table is refused while somebody needs what would go; the check says the same."""
    source.export()
    source.run("UPDATE {t} SET v = 'z'")
    source.spark.conf.set("spark.databricks.delta.retentionDurationCheck.enabled", "false")
    try:
        age_log(source, hours=24 * 9)
        kept = mirrorlib.vacuum(source.spark, source.target)
        assert (kept.tables[0].state, kept.tables[0].losers) == ("refused", ("lake",))
        assert "read up to version 3" in kept.tables[0].reason
        assert not kept.ok
        check = mirrorlib.vacuum(source.spark, source.target, dry_run=True)
        assert check.tables[0].state == "refused"
        forced = mirrorlib.vacuum(source.spark, source.target, dry_run=True, force=True)
        assert (forced.tables[0].state, forced.tables[0].losers) == ("ready", ("lake",))
        source.export()
        done = mirrorlib.vacuum(source.spark, source.target)
        assert (done.tables[0].state, done.tables[0].losers) == ("vacuumed", ())
        assert done.ok
    finally:
        source.spark.conf.unset("spark.databricks.delta.retentionDurationCheck.enabled")


@pytest.mark.thorough
def test_vacuum_leaves_nothing_to_who_can_be_served_by_a_snapshot_alone(source: Source) -> None:
    """Its next version has left the log, so it reads none of those behind it either."""
    source.export()
    source.run("UPDATE {t} SET v = 'y'", "UPDATE {t} SET v = 'z'")
    age_log(source, hours=24 * 9)
    told = []
    for lost in ((), (4,)):
        source.lose(*lost)
        check = mirrorlib.vacuum(source.spark, source.target, dry_run=True).tables[0]
        told.append((check.state, check.losers))

    assert [("refused", ("lake",)), ("ready", ())] == told


@pytest.mark.thorough
def test_vacuum_leaves_what_delta_would_take_whatever_it_is_asked_to_keep(source: Source) -> None:
    """Some Delta keeps what the table says, and no longer; where it lets itself be told, it keeps what is asked."""
    source.export()
    source.run("UPDATE {t} SET v = 'z'")
    age_log(source, hours=24 * 9)
    long = mirrorlib.vacuum(source.spark, source.target, hours=720, dry_run=True)
    source.export()
    for file in filter(Path.is_file, Path(source.target, "orders").rglob("*")):
        os.utime(file, (then := time.time() - 24 * 3600 * 9, then))
    asked = [
        mirrorlib.vacuum(source.spark, source.target, hours=hours, dry_run=True).tables[0].files
        for hours in (720, 170)
    ]

    assert ("refused", ("lake",)) == (long.tables[0].state, long.tables[0].losers)
    changed = list(Path(source.target, "orders", "_change_data").glob("*.parquet"))
    assert len(changed) > 1
    assert [0, len(changed)] == asked  # not the folder that they are in


@pytest.mark.thorough
def test_vacuum_leaves_what_a_commit_of_a_day_wrote_first(source: Source) -> None:
    """Delta goes by the age of a change file, which is older than the commit that a consumer has still to read."""
    source.export()
    source.run("UPDATE {t} SET v = 'z'")
    age_log(source, hours=24 * 6 + 1)
    early = mirrorlib.vacuum(source.spark, source.target, dry_run=True)
    age_log(source, hours=-3)
    young = mirrorlib.vacuum(source.spark, source.target, dry_run=True)

    assert [("refused", ("lake",)), ("ready", ())] == [
        (report.tables[0].state, report.tables[0].losers) for report in (early, young)
    ]


@pytest.mark.thorough
def test_vacuum_leaves_what_lies_behind_a_commit_of_a_clock_that_was_ahead(source: Source) -> None:
    """Each version's own time counts: they need not rise."""
    source.export()
    source.run("UPDATE {t} SET v = 'y'", "UPDATE {t} SET v = 'z'")
    age_log(source, hours=24 * 9)
    ahead = Path(source.target, "orders", "_delta_log", f"{4:020d}.json")
    os.utime(ahead, (then := time.time() - 24 * 3600 * 5, then))
    told = mirrorlib.vacuum(source.spark, source.target, dry_run=True).tables[0]

    assert ("refused", ("lake",)) == (told.state, told.losers)
    assert "the changes of version 5 may be removed" in told.reason


@pytest.mark.thorough
def test_vacuum_goes_by_what_the_table_says_to_the_minute(source: Source) -> None:
    """Its statement takes whole hours: by them, a table that keeps files for less would be refused each time."""
    names = ("delta.deletedFileRetentionDuration", "delta.logRetentionDuration")
    told = ", ".join(f"'{name}' = 'interval 20 minutes'" for name in names)
    source.run(f"ALTER TABLE {{t}} SET TBLPROPERTIES ({told})")
    report = mirrorlib.vacuum(source.spark, source.target, dry_run=True)
    assert [("ready", "")] == [(table.state, table.reason) for table in report.tables]


@pytest.mark.thorough
def test_a_log_that_runs_out_is_told_before_it_has(source: Source) -> None:
    """Nothing keeps commits for a consumer: a checkpoint takes them by their age, those without a change too."""
    names = ("delta.deletedFileRetentionDuration", "delta.logRetentionDuration")
    told = ", ".join(f"'{name}' = 'interval 2 days'" for name in names)
    source.run(f"ALTER TABLE {{t}} SET TBLPROPERTIES ({told})")
    source.export()
    source.run("ALTER TABLE {t} SET TBLPROPERTIES ('mine' = 'changes no row')")
    assert ("behind", "") == (source.status().health, source.status().reason)
    age_log(source, hours=73)

    report = mirrorlib.consumers(source.target)
    assert ("expiring", False) == (report.streams[0].health, report.ok)
    assert "version 5 may leave the log from" in report.streams[0].reason
    check = mirrorlib.vacuum(source.spark, source.target, dry_run=True).tables[0]
    assert ("refused", ("lake",)) == (check.state, check.losers)
    assert "unless delta.logRetentionDuration is raised" in check.reason

    source.run("UPDATE {t} SET v = 'z'")
    assert "expired" == source.status().health
    assert source.export().state == "failed"


@pytest.mark.thorough
def test_only_lost_history_is_told_as_lost(source: Source, monkeypatch: pytest.MonkeyPatch) -> None:
    """A store that fails says nothing of what is there, nor does a duration that nobody understands."""
    source.export()
    source.run(
        "ALTER TABLE {t} SET TBLPROPERTIES ('delta.logRetentionDuration' = 'interval 52 weeks')"
    )
    newest = Path(source.target, "orders", "_delta_log", f"{4:020d}.json")
    newest.write_text(newest.read_text().replace("interval 52 weeks", "interval 9 months"))
    unclear = source.status()
    source.run("UPDATE {t} SET v = 'z'")
    age_log(source, hours=24 * 9)
    stat = LocalStore.stat

    def refuse(store: LocalStore, path: str) -> StoredFile | None:
        if path.endswith(".parquet"):
            msg = "access is denied"
            raise mirrorlib.StoreError(msg)
        return stat(store, path)

    monkeypatch.setattr(LocalStore, "stat", refuse)
    refused = source.status()

    assert ("behind", 4) == (unclear.health, unclear.newest)
    assert "logRetentionDuration cannot be understood (found interval 9 months)" in unclear.reason
    assert ("failed", 3, 5) == (refused.health, refused.position, refused.newest)
    assert "access is denied" in refused.reason


@pytest.mark.parametrize("state", [None, "state"])
def test_vacuum_finds_consumers_wherever_they_are_registered(
    source: Source, state: str | None
) -> None:
    """Of a target within what is vacuumed, and one that has not been given anything yet."""
    where = {"state": state and str(source.root / state)}

    class Down(Kept):
        def deliver(self, delivery: Delivery) -> int:
            msg = "the receiver is down"
            raise mirrorlib.MirrorError(msg, table=delivery.stream.table)

    assert source.export(to=Down(source.root / "down"), start=-1, **where).state == "failed"
    age_log(source, hours=24 * 9)
    for target in (source.target, f"{source.target}/orders", str(source.root)):
        report = mirrorlib.vacuum(source.spark, target, dry_run=True, **where)
        assert [("refused", ("lake",))] == [(each.state, each.losers) for each in report.tables]


@pytest.mark.thorough
def test_a_catalog_s_table_is_kept_for_consumers_of_its_folder(source: Source) -> None:
    """Whichever way somebody is registered, the files are the same."""
    source.export()
    source.run("UPDATE {t} SET v = 'z'")
    age_log(source, hours=24 * 9)
    schema = "kept_for_consumers"
    source.run(f"CREATE SCHEMA {schema} LOCATION '{source.root}/schema'")
    try:
        source.run(f"CREATE TABLE {schema}.o USING delta LOCATION '{source.target}/orders'")
        report = mirrorlib.vacuum(
            source.spark,
            schema,
            catalog="spark_catalog",
            state=str(source.root / "state"),
            dry_run=True,
        )
    finally:
        source.run(f"DROP SCHEMA {schema} CASCADE")
    assert [("o", "refused", ("lake",))] == [(t.table, t.state, t.losers) for t in report.tables]
    assert f"(registered in {source.target}/_mirrorlib)" in report.tables[0].reason


def test_a_vacuum_that_spark_refuses_says_why(source: Source) -> None:
    """Of a table that is the target itself, too."""
    for target in (source.target, f"{source.target}/orders"):
        (table,) = mirrorlib.vacuum(source.spark, target, hours=0).tables
        assert "failed" == table.state
        assert "would be removed sooner than readers of it may need them" in table.reason


def age_log(source: Source, *, hours: int) -> None:
    """Let all versions have been written long ago."""
    for file in filter(Path.is_file, Path(source.target, "orders", "_delta_log").iterdir()):
        then = file.stat().st_mtime - hours * 3600
        os.utime(file, (then, then))
