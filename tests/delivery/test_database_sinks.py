"""Databases as receivers: a table there equals the source, whatever is killed, or says why it does not."""

from __future__ import annotations

import contextlib
import json
import logging
import pickle
import random
import signal
import sqlite3
import subprocess
import sys
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import types

import mirrorlib
from delivery.postgres import PASSWORD, Cluster, running_cluster
from little import child_environment
from mirrorlib.delivery.sink import Delivery
from mirrorlib.delivery.sinks.jdbc.database import STAGE, DatabaseTable
from mirrorlib.delivery.sinks.jdbc.kinds import kind_of
from mirrorlib.delivery.sinks.jdbc.postgres import PostgresSession
from mirrorlib.delivery.sinks.jdbc.sink import open_database, open_sink
from mirrorlib.delivery.sinks.jdbc.sqlite import Sqlite, SqliteSession
from mirrorlib.delta.columns import widening
from mirrorlib.errors import (
    JournalError,
    LandingZoneError,
    MirrorError,
    SchemaError,
    StoreError,
    TableBusyError,
    TableNameError,
)
from mirrorlib.journal.streams import Stream, WindowPlan
from mirrorlib.store import open_store
from mirrors import Killed, at, die
from tables import newest_version

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from mirrorlib.delivery.report import StreamReport
    from mirrorlib.delivery.sinks.jdbc.sink import DatabaseSink

Row = tuple[Any, ...]
FEED = "'delta.enableChangeDataFeed' = 'true'"
TOLD = "'insert' AS _change_type, 1L AS _commit_version, timestamp'2024-01-01' AS _commit_timestamp"
SECRET = "secret"  # noqa: S105  # of nobody
BOTH = pytest.mark.parametrize("kind", ["postgres", "sqlite"])


@dataclass(slots=True)
class Receiver:
    """A database of a test's own.

    Attributes:
        kind: postgres or sqlite.
        address: as `jdbc:` takes it.
        cluster: the server; None for SQLite.
        name: the database's name, or its file's path.

    """

    kind: str
    address: str
    cluster: Cluster | None
    name: str

    @property
    def sink(self) -> DatabaseSink:
        """Open it."""
        return open_sink(self.address, "current")

    @property
    def session(self) -> type[PostgresSession | SqliteSession]:
        """Name the class whose methods a test may stop."""
        return SqliteSession if self.cluster is None else PostgresSession

    def run(self, statement: str) -> list[Row]:
        """Run SQL, as somebody else; the schema `dbo` is a part of the name in SQLite."""
        if self.cluster is not None:
            return self.cluster.rows(self.name, statement)
        with contextlib.closing(sqlite3.connect(self.name, isolation_level=None)) as connection:
            return connection.execute(statement.replace("dbo.", "dbo_")).fetchall()

    def rows(self, table: str = "dbo.orders", columns: str = "*") -> Counter[Row]:
        """Read a table; without it there are no rows."""
        try:
            return Counter(_plain(row) for row in self.run(f"SELECT {columns} FROM {table}"))
        except Exception as exc:
            if "no such table" in str(exc) or "does not exist" in str(exc):
                return Counter()
            raise


def _plain(row: Row) -> Row:
    return tuple(json.dumps(value) if isinstance(value, dict | list) else value for value in row)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """Start a server for this file's tests."""
    with running_cluster() as cluster:
        yield cluster


@pytest.fixture
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[str], Receiver]:
    """Make databases; only who asks for PostgreSQL starts one."""

    def receiver(kind: str) -> Receiver:
        if kind == "sqlite":
            path = f"{tmp_path}/{uuid.uuid4()}.db"
            return Receiver(kind, f"sqlite:{path}", None, path)
        cluster: Cluster = request.getfixturevalue("cluster")
        name = f"d{uuid.uuid4().hex}"
        cluster.make_database(name)
        return Receiver(kind, cluster.url(name), cluster, name)

    return receiver


@pytest.fixture
def receiver(kind: str, make: Callable[[str], Receiver]) -> Receiver:
    """Give an empty database."""
    return make(kind)


class Feed:
    """Deliveries made by hand: a stream, its windows, and rows that say what happened to them."""

    def __init__(self, spark: SparkSession, folder: Path, **told: Any) -> None:
        self.spark, self.folder = spark, folder
        facts: dict[str, Any] = {
            "consumer": "lake", "table": "dbo/orders", "ordinal": 1, "uuid": str(uuid.uuid4()), "to": "",
            "mode": "current", "net": False, "start_at": None, "table_id": "T", "on_expired": "fail",
            "began_at": "", **told,
        }  # fmt: skip
        self.stream = Stream(**facts)
        self.number = self.until = 0
        self.keys: tuple[str, ...] = ("id",)

    def rewound(self, start_at: int | None) -> Feed:
        """Begin a new stream of the same consumer."""
        fresh = Feed(self.spark, self.folder)
        ordinal, new = self.stream.ordinal + 1, str(uuid.uuid4())
        fresh.stream = replace(self.stream, ordinal=ordinal, uuid=new, start_at=start_at)
        fresh.until, fresh.keys = start_at or 0, self.keys
        return fresh

    def frame(self, schema: str, rows: list[Row]) -> DataFrame:
        """Make a window's rows: values, then what happened; the version is the window's last, or told."""
        told = [row if isinstance(row[-1], int) else (*row, self.until) for row in rows]
        frame = self.spark.createDataFrame(
            [(*row[:-2], row[-2], row[-1]) for row in told],
            f"{schema}, _change_type string, _commit_version bigint",
        )
        return frame.selectExpr("*", "timestamp'2024-01-01' AS _commit_timestamp")

    def window(
        self, frame: DataFrame, after: int, *, kind: str = "changes", **told: Any
    ) -> Delivery:
        """Make a delivery."""
        facts: dict[str, Any] = {
            "stream": self.stream.uuid, "number": self.number, "attempt": uuid.uuid4().hex, "kind": kind,
            "reset": False, "after": after, "until": self.until, "until_at": "", "table_id": "T",
            "keys": self.keys, **told,
        }  # fmt: skip
        plan = WindowPlan(**facts)
        store = open_store(str(self.folder / "state"))
        folder = f"staged/{plan.attempt}"
        return Delivery(
            spark=self.spark,
            stream=self.stream,
            plan=plan,
            frame=frame,
            scratch=store,
            folder=folder,
            given=self.number - 1,
        )

    def next(
        self,
        schema: str,
        rows: list[Row],
        *,
        versions: int = 1,
        snapshot: bool = False,
        **told: Any,
    ) -> Delivery:
        """Make the next window."""
        after, self.number, self.until = self.until, self.number + 1, self.until + versions
        kind = "snapshot" if snapshot else "changes"
        return self.window(self.frame(schema, rows), after, kind=kind, **told)


@pytest.fixture
def feed(spark: SparkSession, tmp_path: Path) -> Feed:
    """Give a stream of `dbo/orders`, whose key is `id`."""
    return Feed(spark, tmp_path)


# Against real Delta: random commits, random windows.


class History:
    """A Delta table that changes at random, and what it held after each version, kept in plain Python."""

    def __init__(self, spark: SparkSession, target: Path, dice: random.Random) -> None:
        self.spark, self.target, self.dice = spark, target, dice
        self.sql = f"delta.`{target}/dbo/orders`"
        self.rows: dict[int, dict[str, Any]] = {}
        self.columns = ["id", "v", "n"]
        self.states: dict[int, list[Row]] = {}
        properties = f"{FEED}, 'delta.enableTypeWidening' = 'true'"
        self._commit(
            f"CREATE TABLE {{t}} (id INT, v STRING, n INT) USING delta TBLPROPERTIES ({properties})"
        )

    def _commit(self, statement: str) -> None:
        self.spark.sql(statement.format(t=self.sql))
        version = newest_version(
            self.target / "dbo/orders"
        )  # a statement that finds no row commits nothing
        self.states[version] = [
            tuple(row.get(c) for c in self.columns) for row in self.rows.values()
        ]

    def change(self) -> None:
        """Make one commit."""
        steps = [self.insert, self.insert, self.update, self.delete, self.move, self.replace]
        self.dice.choice(steps if self.rows else [self.insert])()

    def insert(self) -> None:
        """Insert rows of new keys, or of keys that were there before."""
        free = [key for key in range(12) if key not in self.rows]
        chosen = self.dice.sample(free, min(len(free), 3))
        for key in chosen:
            self.rows[key] = {c: self._value(c) for c in self.columns} | {"id": key}
        told = ", ".join(f"({self._literals(self.rows[key])})" for key in chosen)
        self._commit(
            f"INSERT INTO {{t}} VALUES {told}"
            if chosen
            else "INSERT INTO {t} SELECT * FROM {t} WHERE 1 = 0"
        )

    def update(self) -> None:
        """Update one row in three."""
        rest, value = self.dice.randrange(3), self._value("v")
        for key, row in self.rows.items():
            if key % 3 == rest:
                row["v"] = value
        self._commit(f"UPDATE {{t}} SET v = {_literal(value)} WHERE id % 3 = {rest}")

    def delete(self) -> None:
        """Delete one row in four."""
        rest = self.dice.randrange(4)
        self.rows = {key: row for key, row in self.rows.items() if key % 4 != rest}
        self._commit(f"DELETE FROM {{t}} WHERE id % 4 = {rest}")

    def move(self) -> None:
        """Give every row the next key: each key but two is another row's then."""
        self.rows = {key + 1: row | {"id": key + 1} for key, row in self.rows.items()}
        self._commit("UPDATE {t} SET id = id + 1")

    def replace(self) -> None:
        """Replace all rows: one commit deletes and inserts."""
        self.rows = {key: row | {"n": key} for key, row in self.rows.items() if key % 5}
        chosen = ", ".join("id AS n" if c == "n" else c for c in self.columns)
        self._commit(f"INSERT OVERWRITE {{t}} SELECT {chosen} FROM {{t}} WHERE id % 5 <> 0")

    def grow(self) -> None:
        """Add a column."""
        self.columns.append("later")
        self._commit("ALTER TABLE {t} ADD COLUMN later DOUBLE")

    def widen(self, column: str) -> None:
        """Let a column hold larger numbers."""
        self._commit(f"ALTER TABLE {{t}} ALTER COLUMN {column} TYPE BIGINT")

    def _value(self, column: str) -> Any:
        if column == "v":
            return self.dice.choice(
                [None, "", "tab\tand \\", "line\nfeed", "\\N", "é", f"{self.dice.random()}"]
            )
        return self.dice.choice([None, 0.5, -1.25]) if column == "later" else self.dice.randrange(9)

    def _literals(self, row: dict[str, Any]) -> str:
        return ", ".join(_literal(row.get(column)) for column in self.columns)


def _literal(value: Any) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, str):
        return "'" + value.replace("\\", "\\\\").replace("\t", "\\t").replace("\n", "\\n") + "'"
    return str(value)


class Consumer:
    """A consumer of the history: a receiver, and how it is delivered to."""

    def __init__(self, history: History, receiver: Receiver, **options: Any) -> None:
        self.history, self.receiver = history, receiver
        self.name = f"{receiver.kind}-{len(options)}"
        self.options = {"keys": {"dbo/orders": ["id"]}, "to": f"jdbc:{receiver.address}", **options}

    def export(self, **options: Any) -> StreamReport:
        """Deliver once."""
        told = {"consumer": self.name, **self.options, **options}
        return mirrorlib.export(self.history.spark, str(self.history.target), **told).tables[0]

    def check(self, report: StreamReport) -> None:
        """Compare the table with what the source held at the version that was delivered."""
        assert report.state in {"current", "behind"}, report.reason
        assert report.position is not None
        self.check_rows(report.position)

    def check_rows(self, version: int) -> None:
        """Compare the table with what the source held at a version."""
        expected = Counter(self.history.states[version])
        width = len(next(iter(expected), ()))
        columns = ", ".join(self.history.columns[:width] or ["*"])
        assert expected == self.receiver.rows(columns=columns), f"{self.name} at {version}"


@pytest.mark.slow
@pytest.mark.thorough
def test_random_commits_in_random_windows_end_equal_to_the_source(
    spark: SparkSession, tmp_path: Path, make: Callable[[str], Receiver]
) -> None:
    """Keyed and keyless, plain and net, in both databases; after every window, and after a stream was rewound."""
    dice = random.Random(5)
    history = History(spark, tmp_path / "target", dice)
    consumers = [
        Consumer(history, make("postgres")),
        Consumer(history, make("postgres"), net=True),
        Consumer(history, make("sqlite"), keys={}, parallelism=1),
    ]
    for step in range(10):
        history.change()
        if step == 4:
            history.grow()
        if step == 7:
            history.widen("id")
            history.widen("n")
        if step in {1, 9}:
            due, limit = consumers, None
        else:
            due, limit = dice.sample(consumers, step % 2), dice.choice([2, None])
        with ThreadPoolExecutor(2) as pool:
            reports = list(pool.map(partial(Consumer.export, max_versions=limit), due))
        for consumer, report in zip(due, reports, strict=True):
            consumer.check(report)
    for file in (history.target / "_mirrorlib").rglob("*.json"):
        assert "password=***" in (text := file.read_text()) or "password" not in text
    for consumer, limit in zip(consumers, (4, None, 4), strict=True):
        mirrorlib.rewind_consumer(str(history.target), consumer.name, 4)
        consumer.check(consumer.export(max_versions=limit))
    net = consumers[1]
    history.insert()
    mirrorlib.rewind_consumer(str(history.target), net.name, 4)
    assert "in the midst of a window that is folded" in net.export().reason
    mirrorlib.rewind_consumer(str(history.target), net.name, "snapshot")
    net.check(net.export())


@pytest.mark.thorough
def test_a_key_that_goes_and_comes_in_one_commit_needs_no_pairs(
    spark: SparkSession,
    tmp_path: Path,
    make: Callable[[str], Receiver],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An update is a row that goes and one that comes, with keys and without: nobody has to tell it as one."""
    history = History(spark, tmp_path / "target", random.Random(1))
    history.insert()
    consumers = [Consumer(history, make("sqlite")), Consumer(history, make("sqlite"), keys={})]
    for consumer in consumers:
        consumer.check(consumer.export())
    history.replace()
    monkeypatch.delattr("mirrorlib.feed.read.pair_updates")
    for consumer in consumers:
        consumer.check(consumer.export())


def test_whatever_stops_the_runner_the_table_equals_the_source(
    spark: SparkSession, tmp_path: Path, make: Callable[[str], Receiver]
) -> None:
    """Before and after the plan, the delivery and the record of it, until a run finds that all was done."""
    history = History(spark, tmp_path / "target", random.Random(1))
    history.insert()
    steps = [("plan", "before"), ("plan", "after"), ("deliver", "before"), ("deliver", "after")]
    steps += [("done", "before"), ("done", "after")]
    consumers = [Consumer(history, make("postgres")), Consumer(history, make("sqlite"))]
    for consumer in consumers:
        consumer.check(consumer.export())
    before = newest_version(history.target / "dbo/orders")
    history.update()
    history.delete()
    for consumer in consumers:
        for step in steps:  # one after another, all at the same window
            with pytest.raises(Killed):
                consumer.export(observe=at(*step, die))
            delivered = step[0] == "done" or step == ("deliver", "after")
            consumer.check_rows(max(history.states) if delivered else before)
        report = consumer.export()
        consumer.check(report)
        assert report.windows == 0


# Windows made by hand: every statement a place to stop at.


def small_windows(feed: Feed) -> Iterator[tuple[Delivery, Counter[Row]]]:
    """Give windows that do all there is to do, and what the table holds after each."""
    narrow = "id int, v string, n decimal(4,2)"
    wide = "id int, v string, n decimal(12,2), later double"
    one, nine, four = map(Decimal, ("1.00", "9.00", "4.00"))
    yield (
        feed.next(narrow, [(1, "a", one, "insert"), (2, "b", None, "insert"), (3, "c", nine, "insert")], snapshot=True),
        Counter([(1, "a", "1.00"), (2, "b", None), (3, "c", "9.00")]),
    )  # fmt: skip
    rows = [
        (1, "a", one, "update_preimage"), (1, "A", nine, "update_postimage"), (2, "b", None, "delete"), (4, "d", four, "insert"),
    ]  # fmt: skip
    yield feed.next(narrow, rows), Counter([(1, "A", "9.00"), (3, "c", "9.00"), (4, "d", "4.00")])
    rows = [(3, "c", nine, None, "delete"), (5, "e", Decimal("5.25"), 0.5, "insert")]
    grown = [(1, "A", "9.00", None), (4, "d", "4.00", None), (5, "e", "5.25", 0.5)]
    yield feed.next(wide, rows), Counter(grown)
    yield (
        feed.next(wide, [(7, "g", None, None, "insert")], snapshot=True, reset=True),
        Counter([(7, "g", None, None)]),
    )


def read_small(receiver: Receiver, width: int) -> Counter[Row]:
    """Read the table of `small_windows`; decimals as text, as SQLite holds them."""
    found = receiver.rows(columns=", ".join(["id", "v", "n", "later"][:width]))
    return Counter({tuple(_shown(value) for value in row): times for row, times in found.items()})


def _shown(value: Any) -> Any:
    return str(value) if isinstance(value, Decimal) else value


class Stops:
    """Stop a session before one of its calls, and after its commit; or let all pass."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, kind: type) -> None:
        self.calls, self.at = 0, sys.maxsize
        self.stop: Callable[[], None] = die
        for name in ("begin", "run", "fill", "widen", "take_out", "commit"):
            monkeypatch.setattr(kind, name, self._wrapped(getattr(kind, name)))

    def _wrapped(self, method: Any) -> Any:
        def call(*args: Any) -> Any:
            here, self.calls = self.calls, self.calls + 1
            if here == self.at:
                self.stop()
            done = method(*args)
            if method.__name__ == "commit" and self.at < sys.maxsize:
                self.stop()
            return done

        return call

    def before(self, at: int) -> None:
        """Stop before the call of this number, and after a commit."""
        self.calls, self.at = 0, at

    def never(self) -> None:
        """Let all pass."""
        self.at = sys.maxsize


@pytest.mark.thorough("keyless-*")
@BOTH
@pytest.mark.parametrize("keys", [("id",), ()], ids=["keyed", "keyless"])
def test_stopped_at_any_statement_all_or_nothing_is_there(
    receiver: Receiver, feed: Feed, monkeypatch: pytest.MonkeyPatch, keys: tuple[str, ...]
) -> None:
    """Creation, changes, growth, reset: before each call, and after the commit."""
    feed.keys = keys
    sink, stops = receiver.sink, Stops(monkeypatch, receiver.session)
    before: Counter[Row] = Counter()
    points = 0
    for delivery, after in small_windows(feed):
        plan = delivery.plan
        shape = sink._settle(delivery)
        staged = stage(sink, delivery, shape)
        for call in range(99):
            stops.before(call)
            with pytest.raises(Killed):
                sink._apply(delivery, shape, staged)
            stops.never()
            points += 1
            committed = sink.position(delivery.stream) == plan.number
            expected = after if committed else before
            found = read_small(receiver, len(next(iter(expected), (1, 2, 3))))
            assert expected == found, f"window {plan.number}, before call {call}"
            if committed:
                break
        with pytest.raises(TableBusyError, match="while its window was under way"):
            sink._apply(delivery, shape, staged)  # whoever comes second
        before = after
    assert points > 40


def stage(sink: DatabaseSink, delivery: Delivery, shape: Any) -> Any:
    """Stage once what is applied many times."""
    from mirrorlib.delivery.sinks.jdbc.stage import stage_lines

    del sink
    return stage_lines(delivery, delivery.frame, shape)


@pytest.mark.parametrize("kind", ["postgres"])
def test_a_server_that_ends_the_connection_is_told_and_nothing_is_half_there(
    receiver: Receiver, feed: Feed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the middle of COPY, and before every third call on the way to COMMIT."""
    (delivery, first), (following, second), *_ = small_windows(feed)
    sink, cluster = receiver.sink, receiver.cluster
    assert cluster is not None
    sink.deliver(delivery)
    shape = sink._settle(following)
    args = (following, shape, stage(sink, following, shape))
    ended: list[int] = []

    def end() -> None:
        ended.append(cluster.end_backends(receiver.name))

    pieces = type(args[-1]).pieces
    with monkeypatch.context() as within:
        within.setattr(type(args[-1]), "pieces", lambda staged: _broken(pieces(staged), end))
        with pytest.raises(StoreError) as told:
            sink._apply(*args)
    assert (ended[0], told.value.table) == (1, "dbo/orders")
    assert f"127.0.0.1:{cluster.port}" in str(told.value)
    with monkeypatch.context() as within:
        stops = Stops(within, receiver.session)
        stops.stop = end
        for call in range(1, 60, 3):
            stops.before(call)
            with contextlib.suppress(StoreError):
                sink._apply(*args)
                break
            assert ended[-1] >= 1  # a connection that was closed may still be there
            stops.never()
            assert (first, 1) == (read_small(receiver, 3), sink.position(following.stream))
    assert len(ended) > 5
    assert (second, 2) == (read_small(receiver, 3), sink.position(following.stream))


def _broken(pieces: Iterator[bytes], end: Callable[[], None]) -> Iterator[bytes]:
    for piece in pieces:
        yield piece[:7]
        end()
        yield piece[7:]


@pytest.mark.parametrize("kind", ["postgres"])
def test_an_unheard_commit_is_found_by_the_next_run(
    receiver: Receiver, feed: Feed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The connection is lost after COMMIT: the error says that nobody knows, and the position knows."""
    delivery, expected = next(small_windows(feed))
    cluster, commit = receiver.cluster, PostgresSession.commit
    assert cluster is not None

    def unheard(session: PostgresSession) -> None:
        commit(session)
        cluster.end_backends(receiver.name)
        session.run("SELECT 1")

    with monkeypatch.context() as within:
        within.setattr(PostgresSession, "commit", unheard)
        with pytest.raises(StoreError, match="asked first"):
            receiver.sink.deliver(delivery)
    assert (expected, 1) == (read_small(receiver, 3), receiver.sink.position(delivery.stream))


CHILD = """
import os, pickle, signal, sys
task = pickle.load(open(sys.argv[1], "rb"))
from mirrorlib.delivery.sinks.jdbc.sink import open_sink
from mirrorlib.delivery.sinks.jdbc.postgres import PostgresSession
from mirrorlib.delivery.sinks.jdbc.sqlite import Sqlite, SqliteSession

def deadly(method, when):
    def call(*args):
        if when == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        done = method(*args)
        os.kill(os.getpid(), signal.SIGKILL)
    return call

kind = {"postgres": PostgresSession, "sqlite": SqliteSession}[task["kind"]]
setattr(kind, task["name"], deadly(getattr(kind, task["name"]), task["when"]))
open_sink(task["address"], "current")._apply(*task["args"])
"""


@pytest.mark.thorough("sqlite")
@BOTH
def test_a_killed_process_leaves_all_or_nothing(
    receiver: Receiver, feed: Feed, tmp_path: Path
) -> None:
    """SIGKILL with the rows in the database, before the commit, and right after it."""
    (delivery, before), (following, after), *_ = small_windows(feed)
    receiver.sink.deliver(delivery)
    shape = receiver.sink._settle(following)
    args = (following, shape, stage(receiver.sink, following, shape))
    bare = Delivery(
        spark=None, stream=following.stream, plan=following.plan, frame=None, scratch=None, folder=""  # type: ignore[arg-type]  # all that is applied was staged
    )  # fmt: skip
    for name, when, expected in (
        ("fill", "after", before), ("commit", "before", before), ("commit", "after", after),
    ):  # fmt: skip
        task = {"kind": receiver.kind, "address": receiver.address, "name": name, "when": when}
        file = tmp_path / f"{name}-{when}"
        file.write_bytes(pickle.dumps({**task, "args": (bare, *args[1:])}))
        done = subprocess.run(
            [sys.executable, "-c", CHILD, str(file)], env=child_environment(), check=False
        )
        assert done.returncode == -signal.SIGKILL
        assert expected == read_small(receiver, 3), f"{when} {name}"
    assert receiver.sink.position(following.stream) == 2


# What becomes of values.

ALL_TYPES = {  # a column's type: an SQL literal, what PostgreSQL gives for it, what SQLite gives
    "boolean": ("true", True, 1),
    "tinyint": ("-128Y", -128, -128),
    "smallint": ("32767S", 32767, 32767),
    "int": ("-2147483648", -(2**31), -(2**31)),
    "bigint": ("9223372036854775807", 2**63 - 1, 2**63 - 1),
    "float": ("float(0.1)", 0.1, 0.10000000149011612),  # psycopg gives the shortest text of a real
    "double": ("-1.7976931348623157E308D", -sys.float_info.max, -sys.float_info.max),
    "decimal(38,18)": (
        "12345678901234567890.123456789012345678BD",
        Decimal("12345678901234567890.123456789012345678"),
        "12345678901234567890.123456789012345678",
    ),
    "string": ("'tab\\t nl\\n cr\\r back\\\\ \\\\N \\\\. é 😀'", "tab\t nl\n cr\r back\\ \\N \\. é 😀", ...),
    "binary": ("X'00FF5C09'", b"\x00\xff\\\t", ...),
    "date": ("date'0001-01-01'", date(1, 1, 1), "0001-01-01"),
    "timestamp": (
        "timestamp'2024-02-29 23:59:59.000001+01:00'",
        datetime(2024, 2, 29, 22, 59, 59, 1, tzinfo=UTC),
        "2024-02-29 22:59:59.000001+00:00",
    ),
    "timestamp_ntz": ("timestamp_ntz'9999-12-31 12:00:00.5'", datetime(9999, 12, 31, 12, 0, 0, 500000), "9999-12-31 12:00:00.5"),
    "struct<a: int, b: timestamp>": (
        "named_struct('a', null, 'b', timestamp'2024-01-01 00:00:00.123456')",
        '{"a": null, "b": "2024-01-01T00:00:00.123456Z"}', '{"a":null,"b":"2024-01-01T00:00:00.123456Z"}',
    ),
    "array<string>": ("array('x\\ty', null)", '["x\\ty", null]', '["x\\ty",null]'),
    "map<string, decimal(4,2)>": ("map('k', 1.50BD)", '{"k": 1.5}', '{"k":1.50}'),
    "variant": ("""parse_json('{"a": [1]}')""", '{"a": [1]}', '{"a":[1]}'),
}  # fmt: skip


@pytest.mark.thorough
def test_every_type_comes_back(
    spark: SparkSession, make: Callable[[str], Receiver], tmp_path: Path
) -> None:
    """As the database's own type, to the last digit; NULL of each; and where it is a key, the row is found."""
    keyed, count = 13, len(ALL_TYPES)  # what is nested is no key
    columns = [f"c{number}" for number in range(count)]
    target, table = str(tmp_path / "target"), f"delta.`{tmp_path}/target/dbo/orders`"
    told = ", ".join(f"{name} {kind}" for name, kind in zip(columns, ALL_TYPES, strict=True))
    spark.sql(f"CREATE TABLE {table} ({told}, n int) USING delta TBLPROPERTIES ({FEED})")
    literals = [literal for literal, _, _ in ALL_TYPES.values()]
    other = ["false", *literals[1:keyed], *["null"] * (count - keyed)]
    spark.sql(f"INSERT INTO {table} VALUES ({', '.join(literals)}, 1), ({', '.join(other)}, 1)")
    receivers = {kind: make(kind) for kind in ("postgres", "sqlite")}
    for _ in range(2):
        for kind, receiver in receivers.items():
            keys = {"dbo/orders": columns[:keyed]}
            report = mirrorlib.export(
                spark, target, consumer=kind, to=f"jdbc:{receiver.address}", keys=keys
            )
            assert report.ok, str(report)
        spark.sql(f"UPDATE {table} SET n = 2 WHERE c0 AND n = 1")
    for kind, receiver in receivers.items():
        places = {"postgres": 1, "sqlite": 2}
        values = [
            each[1] if each[places[kind]] is ... else each[places[kind]]
            for each in ALL_TYPES.values()
        ]
        nulls = [not values[0], *values[1:keyed], *[None] * (count - keyed)]
        assert Counter([(*values, 2), (*nulls, 1)]) == receiver.rows()


@pytest.mark.thorough
@BOTH
def test_rows_of_any_types_are_found_without_keys(receiver: Receiver, feed: Feed) -> None:
    """Of three equal rows two go, and of rows that differ by a NULL only the one that is meant."""
    feed.keys = ()
    everything = ", ".join(f"{told[0]} AS c{n}" for n, told in enumerate(ALL_TYPES.values()))
    row = f"SELECT {everything}, double('NaN') AS nan"
    sink = receiver.sink
    for until, kind, what, values in (
        (1, "snapshot", "insert", ["1", "1", "1", "null", "null", "2"]),
        (2, "changes", "delete", ["1", "1", "null"]),
    ):
        rows = " UNION ALL ".join(f"{row}, int({value}) AS v" for value in values)
        told = TOLD.replace("'insert'", f"'{what}'").replace("1L", f"{until}L")
        feed.number = feed.until = until
        sink.deliver(
            feed.window(feed.spark.sql(f"SELECT *, {told} FROM ({rows})"), until - 1, kind=kind)
        )
    assert Counter([(1,), (None,), (2,)]) == receiver.rows(columns="v")


@BOTH
def test_columns_without_keys_may_be_called_as_our_statements_call_things(
    receiver: Receiver, feed: Feed
) -> None:
    """An update and a delete find their rows, whatever names the user's columns share with our SQL."""
    feed.keys, sink = (), receiver.sink
    names = (
        "times",
        "gone",
        "nth",
        "id",
        "op",
        "copies",
        "c0",
        "c1",
        "h",
        "g",
        "f",
        "held",
        "rowid",
        "stage",
        "t",
        "c",
        "oid",
    )
    schema = ", ".join(f"{name} int" for name in names)

    def row(value: int, what: str) -> Row:
        return (*(value + n for n in range(len(names))), what)

    sink.deliver(feed.next(schema, [row(n, "insert") for n in (1, 1, 2, 3)], snapshot=True))
    told = [row(1, "delete"), row(2, "update_preimage"), row(20, "update_postimage")]
    sink.deliver(feed.next(schema, told))
    assert Counter([(1,), (3,), (20,)]) == receiver.rows(columns="times")


def test_rows_are_found_without_keys_in_a_table_that_somebody_has_divided(
    make: Callable[[str], Receiver],
) -> None:
    """Rows in the same place of two parts are two rows."""
    receiver, place = make("postgres"), DatabaseTable("public", "t")
    for statement in (
        "CREATE TABLE t (id int) PARTITION BY LIST (id)",
        "CREATE TABLE one PARTITION OF t FOR VALUES IN (1)",
        "CREATE TABLE two PARTITION OF t FOR VALUES IN (2)",
        "INSERT INTO t VALUES (1), (2)",
        "ALTER TABLE t OWNER TO mirror",
    ):
        receiver.run(statement)
    with open_database(receiver.address).session("t", ()) as session:
        session.run(f"CREATE TEMPORARY TABLE {STAGE} (op int, copies int, c0 int)")
        session.run(f"INSERT INTO {STAGE} VALUES (-1, 1, 1)")
        assert 1 == session.take_out(place, ["id"])
        session.commit()
    assert Counter([(2,)]) == receiver.rows("t")


def test_rows_are_found_without_keys_in_a_time_that_grows_with_them(tmp_path: Path) -> None:
    """Twice as many rows take twice as many steps of SQLite, and not four times."""

    def steps(rows: int) -> int:
        taken, place = [0], DatabaseTable(None, "t")
        with Sqlite(f"{tmp_path}/{rows}").session("t", ()) as session:
            session.run("CREATE TABLE t (id INT, v TEXT)")
            session.run(f"CREATE TEMPORARY TABLE {STAGE} (op INT, copies INT, c0 INT, c1 TEXT)")
            numbers = (
                f"WITH RECURSIVE n(id) AS (SELECT 1 UNION ALL SELECT id + 1 FROM n LIMIT {rows})"
            )
            session.run(f"{numbers} INSERT INTO t SELECT id, NULL FROM n")
            session.run(f"INSERT INTO {STAGE} SELECT -1, 1, id, v FROM t")
            session._connection.set_progress_handler(lambda: taken.append(1), 100)
            assert rows == session.take_out(place, ["id", "v"])
        return len(taken)

    assert steps(1_000) < 3 * steps(500)


def test_rows_as_wide_as_sqlite_has_them_are_found_without_keys(tmp_path: Path) -> None:
    """Of two equal ones with a NULL one goes; the stage has two columns of its own."""
    width = 1_998
    with Sqlite(f"{tmp_path}/wide").session("t", ()) as session:
        for table, own, names in (("t", "", "v"), (STAGE, "op INT, copies INT, ", "c")):
            columns = ", ".join(f"{names}{n} INT" for n in range(width))
            session.run(f"CREATE TABLE {table} ({own}{columns})")
        row = f"NULL{', 7' * (width - 1)}"
        session.run(f"INSERT INTO t VALUES ({row}), ({row})")
        session.run(f"INSERT INTO {STAGE} VALUES (-1, 1, {row})")

        assert 1 == session.take_out(DatabaseTable(None, "t"), [f"v{n}" for n in range(width)])


@BOTH
def test_numbers_that_are_none_and_the_largest_ones(receiver: Receiver, feed: Feed) -> None:
    """NaN and infinities come back as what they are; SQLite, which has no NaN, holds its name."""
    feed.keys = ()
    values = ["double('NaN')", "double('Infinity')", "double('-Infinity')", "-0.0D", "double(null)"]
    rows = " UNION ALL ".join(f"SELECT {value} AS d, float({value}) AS f" for value in values)
    feed.number = feed.until = 1
    frame = feed.spark.sql(f"SELECT *, {TOLD} FROM ({rows})")
    receiver.sink.deliver(feed.window(frame, 0, kind="snapshot"))
    text = [tuple(map(str, row)) for row in receiver.rows()]
    nan, zero = ("nan", "-0.0") if receiver.kind == "postgres" else ("NaN", "0.0")
    expected = [(nan, nan), ("inf", "inf"), ("-inf", "-inf"), (zero, zero), ("None", "None")]
    assert sorted(expected) == sorted(text)


def test_values_that_postgresql_has_not_are_refused_by_column(
    make: Callable[[str], Receiver], feed: Feed
) -> None:
    """NUL in text, alone or nested; years before 1: no row comes, and SQLite takes them all."""
    odd = {
        "s string": ("'a' || char(0)", "a\0"),
        "j array<string>": ("array('a' || char(0))", '["a\\u0000"]'),
        "d date": ("date'-0044-03-15'", "-0044-03-15"),
        "t timestamp_ntz": ("timestamp_ntz'+10000-01-01 00:00:00'", "+10000-01-01 00:00:00"),
    }
    for column, (literal, text) in odd.items():
        name = column.partition(" ")[0]
        for kind in ("postgres", "sqlite"):
            receiver = make(kind)
            stream = Feed(feed.spark, feed.folder)
            stream.number = stream.until = 1
            frame = feed.spark.sql(f"SELECT 1 AS id, 'b' AS other, {literal} AS {name}, {TOLD}")
            delivery = stream.window(frame, 0, kind="snapshot")
            if kind == "sqlite":
                receiver.sink.deliver(delivery)
                assert Counter([(1, "b", text)]) == receiver.rows()
                continue
            with pytest.raises(SchemaError, match="cannot hold a value") as refused:
                receiver.sink.deliver(delivery)
            assert (refused.value.table, refused.value.column) == ("dbo/orders", name)
            assert "0044" not in str(refused.value)
            assert Counter() == receiver.rows()


@pytest.mark.thorough("sqlite", "postgres")
@BOTH
def test_text_that_is_not_utf8_is_refused_by_column(receiver: Receiver, feed: Feed) -> None:
    """Spark takes any bytes for text; no row comes. What SQLite takes is not what it refuses."""
    other = "concat('b', char(0))" if receiver.kind == "sqlite" else "'b'"
    text = f"SELECT 1 AS id, {other} AS other, CAST(X'61FF' AS string) AS v, {TOLD}"
    frame = feed.spark.sql(text)
    feed.number = feed.until = 1
    delivery = feed.window(frame, 0, kind="snapshot")
    words = ("cannot hold a value", "column v", "has to be UTF-8", "--rewind")
    refuse(receiver, delivery, SchemaError, *words)


# What is refused, and what is converged to.


def refuse(
    receiver: Receiver, delivery: Delivery, kind: type[MirrorError], *words: str
) -> MirrorError:
    """See that a delivery is refused, in words, and that nothing has changed."""
    before, position = receiver.rows(), receiver.sink.position(delivery.stream)
    with pytest.raises(kind) as told:
        receiver.sink.deliver(delivery)
    text = str(told.value)
    assert delivery.stream.table in text
    for word in words:
        assert word in text, text
    assert (before, position) == (receiver.rows(), receiver.sink.position(delivery.stream))
    return told.value


@pytest.mark.thorough
@BOTH
def test_keys_are_neither_null_nor_twice(receiver: Receiver, feed: Feed) -> None:
    """In a snapshot, in a window, and against what the table holds; the table and its keys are named.

    Also where an earlier table has kept the name that PostgreSQL gives the table's primary key.
    """
    if receiver.kind == "postgres":
        receiver.run("CREATE SCHEMA dbo AUTHORIZATION mirror")
        receiver.run("CREATE TABLE dbo.earlier (id int CONSTRAINT orders_pkey PRIMARY KEY)")
    schema, keys = "id int, k string, v int", ("id", "k")
    feed.keys = keys
    sink = receiver.sink
    for rows, words in (
        (
            [(1, "a", 1, "insert"), (1, "a", 2, "insert")],
            "several rows of the table have the same key",
        ),
        ([(1, "a", 1, "insert"), (1, None, 2, "insert")], "a key column is NULL"),
    ):
        bad = Feed(feed.spark, feed.folder)
        bad.keys = keys
        error = refuse(receiver, bad.next(schema, rows, snapshot=True), SchemaError, words)
        assert "k" in str(error.column)
    sink.deliver(feed.next(schema, [(1, "a", 1, "insert"), (2, "a", 2, "insert")], snapshot=True))
    number, until = feed.number, feed.until
    for rows, versions, words in (
        ([(3, "a", 1, "insert"), (3, "a", 1, "insert")], 1, "same key"),
        ([(3, "a", 1, "insert", 2), (3, "a", 1, "insert", 3)], 2, "same key"),
        ([(1, "a", 9, "insert")], 1, "same key"),
        ([(1, "a", 1, "update_preimage"), (1, "a", 3, "update_postimage")] * 2, 1, "same key"),
        ([(5, None, 9, "insert")], 1, "column k: a key column is NULL"),
        ([(None, "a", 9, "insert")], 1, "column id: a key column is NULL"),
    ):
        feed.number, feed.until = number, until
        refuse(receiver, feed.next(schema, rows, versions=versions), SchemaError, words, "--rewind")
    feed.number, feed.until = number, until
    rows = [(1, "a", 1, "delete", 2), (1, "a", 8, "insert", 3), (2, "a", 2, "delete", 3)]
    sink.deliver(feed.next(schema, rows, versions=2))
    assert Counter([(1, "a", 8)]) == receiver.rows()
    refuse(
        receiver,
        replace_plan(feed.next(schema, []), keys=("id", "nothing")),
        SchemaError,
        "the table's keys in the database are (id, k)",
    )
    refuse(
        receiver,
        replace_plan(feed.next(schema, []), keys=("id",)),
        SchemaError,
        "(id, k)",
        "Drop the table",
    )


def replace_plan(delivery: Delivery, **told: Any) -> Delivery:
    """Change a delivery's plan."""
    return replace(delivery, plan=replace(delivery.plan, **told))


@pytest.mark.thorough("sqlite", "postgres")
@BOTH
def test_a_rewound_stream_ends_where_the_table_was(receiver: Receiver, feed: Feed) -> None:
    """By key the last state counts; without keys only what the table has not, however the windows are cut."""
    schema = "id int, v string"
    changes = [
        (1, "a", "insert", 1), (1, "a", "insert", 1), (2, None, "insert", 2), (1, "a", "delete", 3),
        (2, None, "update_preimage", 4), (2, "c", "update_postimage", 4), (1, "a", "insert", 5),
    ]  # fmt: skip
    sink = receiver.sink
    feed.keys = ()
    sink.deliver(feed.next(schema, [], snapshot=True, versions=0))
    sink.deliver(feed.next(schema, changes, versions=5))
    held = Counter([(1, "a"), (1, "a"), (2, "c")])
    assert held == receiver.rows()
    again = feed.rewound(1)
    passed = [row for row in changes if 1 < row[-1] <= 3]
    assert sink.deliver(again.next(schema, passed, versions=2)) is None
    rows = [row for row in changes if row[-1] > 3]
    sink.deliver(
        again.next(schema, [*rows, (7, "new", "insert", 6), (1, "a", "delete", 6)], versions=3)
    )
    assert Counter([(1, "a"), (2, "c"), (7, "new")]) == receiver.rows()
    refuse(receiver, feed.next(schema, []), TableBusyError, "that began later writes to the table")
    net = again.rewound(4)
    net.stream = replace(net.stream, net=True)
    words = ("ends with version 6, in the midst of a window", "--rewind")
    refuse(receiver, net.next(schema, [], versions=9), JournalError, *words)

    keyed = Feed(feed.spark, feed.folder, table="dbo/keyed")
    sink.deliver(keyed.next(schema, [(1, "a", "insert"), (2, "b", "insert")], snapshot=True))
    sink.deliver(keyed.next(schema, [(3, "c", "insert"), (1, "a", "delete")]))
    keyed = keyed.rewound(1)
    sink.deliver(keyed.next(schema, [(3, "c", "insert"), (1, "a", "delete")]))
    sink.deliver(keyed.next(schema, [(1, "back", "insert"), (3, "c", "delete")]))
    assert Counter([(1, "back"), (2, "b")]) == receiver.rows("dbo.keyed")
    fresh = keyed.rewound(None)
    sink.deliver(fresh.next(schema, [(9, "only", "insert")], snapshot=True, versions=9))
    assert Counter([(9, "only")]) == receiver.rows("dbo.keyed")


@pytest.mark.thorough("sqlite")
@BOTH
def test_a_table_in_the_midst_of_a_rewind_goes_on_from_there_alone(
    receiver: Receiver, feed: Feed
) -> None:
    """By key its rows, and its columns, go back with the windows that come again."""
    sink, narrow, wide = receiver.sink, "id int, v string", "id int, v string, n int"
    sink.deliver(feed.next(narrow, [(1, "a", "insert"), (2, "b", "insert")], snapshot=True))
    sink.deliver(feed.next(narrow, [(2, "b", "update_preimage"), (2, "c", "update_postimage")]))
    later = [(1, "a", None, "update_preimage"), (1, "a", 5, "update_postimage")]
    later += [(2, "c", None, "delete")]
    sink.deliver(feed.next(wide, later))
    again = feed.rewound(1)
    sink.deliver(again.next(narrow, [(2, "b", "update_preimage"), (2, "c", "update_postimage")]))
    forward, came = again.rewound(3), [(4, "d", 6, "insert")]
    words = ("ends with version 2, and the stream begins after 3 (rewound to 2, it goes on)", "--")
    refuse(receiver, forward.next(wide, came), JournalError, *words)

    back = forward.rewound(2)
    sink.deliver(back.next(wide, later))
    sink.deliver(back.next(wide, came))
    assert Counter([(1, "a", 5), (4, "d", 6)]) == receiver.rows(columns="id, v, n")


def test_windows_without_changes_leave_no_gap(make: Callable[[str], Receiver], feed: Feed) -> None:
    """They never reach the database; so a stream that begins where the table ends may go on later."""
    receiver, schema = make("sqlite"), "id int"
    receiver.sink.deliver(feed.next(schema, [(1, "insert")], snapshot=True))
    later = feed.rewound(1)
    later.next(schema, [])
    receiver.sink.deliver(replace(later.next(schema, [(2, "insert")]), given=0, begins=1))
    assert Counter([(1,), (2,)]) == receiver.rows()


def test_a_net_window_that_begins_before_what_the_table_holds_is_refused(
    make: Callable[[str], Receiver], feed: Feed
) -> None:
    """A key that came before its beginning was given, and that went after it, is in no such window."""
    receiver, schema = make("sqlite"), "id int, v string"
    feed.stream = replace(feed.stream, net=True)
    receiver.sink.deliver(feed.next(schema, [(1, "a", "insert")], snapshot=True, versions=2))
    receiver.sink.deliver(feed.next(schema, [(2, "b", "insert")], versions=2))
    words = ("ends with version 4, in the midst of a window", "--rewind")
    refuse(receiver, feed.rewound(2).next(schema, [], versions=4), JournalError, *words)
    receiver.sink.deliver(feed.rewound(2).next(schema, [(2, "b", "insert")], versions=2))
    assert Counter([(1, "a"), (2, "b")]) == receiver.rows()


def test_a_key_that_is_held_twice_for_a_moment_is_refused(
    make: Callable[[str], Receiver], feed: Feed
) -> None:
    """Whichever of its rows goes again within the window; a key that has but one at a time comes and goes."""
    receiver, schema = make("sqlite"), "id int, v string"
    receiver.sink.deliver(feed.next(schema, [(1, "a", "insert")], snapshot=True))
    renamed = [(1, "a", "update_preimage", 2), (1, "c", "update_postimage", 2)]
    for rows in (
        [(1, "b", "insert", 2), (1, "a", "delete", 3)],
        [*renamed, (1, "b", "insert", 3), (1, "c", "delete", 4)],
        [(1, "a", "delete", 2), (1, "b", "insert", 2), (1, "c", "insert", 2), (1, "b", "delete", 3)],
        [(2, "b", "insert", 2), (2, "c", "insert", 3), (2, "b", "delete", 4)],
    ):  # fmt: skip
        feed.number = feed.until = 1
        refuse(receiver, feed.next(schema, rows, versions=3), SchemaError, "have the same key")
    feed.number = feed.until = 1
    passing = [(2, "b", "insert", 2), (2, "b", "delete", 3)]
    receiver.sink.deliver(feed.next(schema, [*renamed, *passing], versions=3))
    assert Counter([(1, "c")]) == receiver.rows()
    gone = [(1, "c", "delete", 5), (1, "d", "insert", 6), (1, "d", "delete", 7)]
    receiver.sink.deliver(feed.next(schema, gone, versions=3))
    assert Counter() == receiver.rows()


@BOTH
def test_rows_that_went_at_the_source_have_to_be_in_a_table_without_keys(
    receiver: Receiver, feed: Feed
) -> None:
    """One that somebody has removed is told; a stream that did not begin with all rows cannot tell."""
    feed.keys = ()
    schema, sink = "id int, v string", receiver.sink
    twice = [(1, "a", "insert"), (1, "a", "insert"), (2, None, "insert")]
    sink.deliver(feed.next(schema, twice, snapshot=True))
    receiver.run("DELETE FROM dbo.orders WHERE id = 2")
    gone = [(1, "a", "delete"), (2, None, "delete")]
    words = ("not hold all rows that the source has deleted", "found 1 of 2", "--rewind")
    refuse(receiver, feed.next(schema, gone), JournalError, *words)
    sink.deliver(feed.rewound(1).next(schema, gone))
    assert Counter([(1, "a")]) == receiver.rows()


@pytest.mark.thorough
def test_a_nested_column_that_looks_otherwise_asks_for_a_snapshot(
    make: Callable[[str], Receiver], feed: Feed
) -> None:
    """Rows that nothing touches would keep the old form; whole numbers look alike, however long."""
    receiver = make("sqlite")
    for keys in (("id",), ()):
        stream = Feed(feed.spark, feed.folder, table=f"dbo/t{len(keys)}")
        stream.keys, sink = keys, receiver.sink
        row = (1, (1,), "insert")
        sink.deliver(stream.next("id int, s struct<a: int>", [row], snapshot=True))
        sink.deliver(stream.next("id int, s struct<a: bigint>", [(2, (2**40,), "insert")]))
        for inner in ("x: int", "a: int, b: int", "a: string"):
            window = stream.next(f"id int, s struct<{inner}>", [])
            words = ("column s: what the column holds inside has changed", "--rewind")
            refuse(receiver, window, SchemaError, *words)
            stream.number, stream.until = stream.number - 1, stream.until - 1
        anew = stream.rewound(None)
        grown = "id int, s struct<a: int, b: array<int>>"
        sink.deliver(anew.next(grown, [(1, (1, [5]), "insert")], snapshot=True, versions=9))
        changes = [(1, (1, [5]), "delete"), (3, (3, None), "insert")]
        sink.deliver(anew.next(grown, changes))
        found = receiver.rows(f"dbo.t{len(keys)}")
        assert Counter([(3, '{"a":3,"b":null}')]) == found


def test_the_first_snapshot_of_a_stream_that_was_dropped_comes_too_late(
    make: Callable[[str], Receiver], feed: Feed
) -> None:
    """Its runner slept while the consumer was registered again: the newer rows stay, and the newer stream goes on."""
    receiver, schema = make("sqlite"), "id int"
    late = feed.next(schema, [(1, "insert")], snapshot=True)
    newer = feed.rewound(None)
    receiver.sink.deliver(newer.next(schema, [(2, "insert")], snapshot=True))
    refuse(receiver, late, TableBusyError, "a stream of lake that began later writes to the table")
    receiver.sink.deliver(newer.next(schema, [(3, "insert")]))
    assert Counter([(2,), (3,)]) == receiver.rows()


def test_decimals_have_all_their_digits_as_text(
    make: Callable[[str], Receiver], feed: Feed
) -> None:
    """Without ANSI, Spark writes the smallest ones with an exponent, which widening and keys could not go on from."""
    receiver, conf = make("sqlite"), feed.spark.conf
    values = ["0E-7", "1E-7", "-1E-7", "-120.5", "0.0000010"]
    rows = [(Decimal(value), Decimal(value), "insert") for value in values]
    before = conf.get("spark.sql.ansi.enabled")
    conf.set("spark.sql.ansi.enabled", "false")
    try:
        narrow = "id decimal(12,7), d decimal(12,7)"
        receiver.sink.deliver(feed.next(narrow, rows, snapshot=True))
        wide = "id decimal(14,7), d decimal(14,7)"
        changes = [(*rows[1][:2], "delete"), (*rows[2][:2], "update_preimage")]
        changed = (Decimal("-1E-7"), Decimal("2E-7"), "update_postimage")
        receiver.sink.deliver(feed.next(wide, [*changes, changed]))
    finally:
        conf.set("spark.sql.ansi.enabled", str(before))
    expected = [
        ("0.0000000", "0.0000000"), ("-0.0000001", "0.0000002"),
        ("-120.5000000", "-120.5000000"), ("0.0000010", "0.0000010"),
    ]  # fmt: skip
    assert Counter(expected) == receiver.rows()


@pytest.mark.parametrize("key", ["Date", "Timestamp", "Binary", "Decimal", "Double"])
def test_a_map_whose_keys_json_does_not_have_is_kept_nowhere(key: str) -> None:
    """Spark would write them as it holds them: a day as a count of days."""
    bad = types.MapType(getattr(types, f"{key}Type")(), types.IntegerType())
    good = types.MapType(types.IntegerType(), types.StringType())

    inside = (
        types.ArrayType(bad),
        types.StructType().add("m", bad),
        types.MapType(types.StringType(), bad),
    )
    assert [None] * 4 == [kind_of(kind) for kind in (bad, *inside)]
    assert ["json"] * 2 == [kind_of(kind) for kind in (good, types.ArrayType(good))]


@pytest.mark.parametrize("kind", ["sqlite"])
def test_sqlite_follows_wider_types_that_it_keeps_alike_and_asks_to_drop_the_table_for_others(
    receiver: Receiver, feed: Feed
) -> None:
    """It changes no types; what somebody has made of the table stays, until they have dropped it."""
    narrow, wide = "id int, f float, d decimal(4,1)", "id bigint, f double, d decimal(20,1)"
    was, large = (1, 0.5, Decimal("1.5")), (2**40, 0.1, Decimal(10) ** 18)
    receiver.sink.deliver(feed.next(narrow, [(*was, "insert")], snapshot=True))
    receiver.run("CREATE INDEX theirs ON dbo.orders (f)")
    receiver.run("CREATE VIEW theirs_too AS SELECT id FROM dbo.orders")
    for number in range(2):
        row = (large[0] + number, *large[1:])
        assert 1 == receiver.sink.deliver(feed.next(wide, [(*row, "insert")]))
    expected = [(1, 0.5, "1.5"), *((2**40 + n, 0.1, f"{10**18}.0") for n in range(2))]
    assert Counter(expected) == receiver.rows()
    assert [("theirs",)] == receiver.run("SELECT name FROM sqlite_master WHERE sql LIKE '%INDEX%'")

    changes = feed.next("id double, f double, d decimal(20,1)", [(1.5, 0.5, None, "insert")])
    refuse(receiver, changes, SchemaError, "column id: ", "Drop the table there", "--rewind")
    anew = feed.rewound(None)
    snapshot = anew.next(wide.replace("(20,1)", "(20,2)"), [(*was, "insert")], snapshot=True)
    refuse(receiver, snapshot, SchemaError, "column d: ", "found TEXT DECIMAL(4,1)", "Drop the")
    receiver.run("DROP TABLE dbo.orders")
    assert 1 == receiver.sink.deliver(snapshot)
    assert Counter([(1, 0.5, "1.50")]) == receiver.rows()


@BOTH
def test_whole_numbers_are_not_rounded_to_the_fractions_that_a_column_has_there(
    receiver: Receiver, feed: Feed
) -> None:
    """As once the source was made anew: two keys could be one."""
    first = feed.next("id double, v string", [(1.5, "a", "insert")], snapshot=True)
    receiver.sink.deliver(first)
    anew = feed.rewound(None)

    rows = [(2**53, "a", "insert"), (2**53 + 1, "b", "insert")]
    snapshot = anew.next("id bigint, v string", rows, snapshot=True)
    refuse(receiver, snapshot, SchemaError, "column id: ", "Drop the table there", "--rewind")
    receiver.run("DROP TABLE dbo.orders")
    assert 2 == receiver.sink.deliver(snapshot)
    assert Counter([(2**53, "a"), (2**53 + 1, "b")]) == receiver.rows()


def test_whole_numbers_fit_decimals_that_have_as_many_digits() -> None:
    """As many as Delta asks for, which widens no shorter one to decimal(5,0); nothing is widened back."""
    for narrow, wide in (
        *(("smallint", "decimal(10,0)"), ("int", "decimal(10,0)"), ("int", "bigint")),
        *(("bigint", "decimal(22,2)"), ("bigint", "double"), ("date", "timestamp")),
    ):
        assert widening(narrow, wide) is not None
        assert widening(wide, narrow) is None
    assert widening("int", "decimal(10,1)") is None
    assert widening("decimal(10,0)", "decimal(10,0)") is None


@BOTH
def test_a_stream_that_begins_behind_where_the_table_ends_is_refused(
    receiver: Receiver, feed: Feed
) -> None:
    """Rewound to now over what was not delivered."""
    schema, sink = "id int, v string", receiver.sink
    sink.deliver(feed.next(schema, [(1, "a", "insert"), (2, "b", "insert")], snapshot=True))
    later = feed.rewound(2)
    window = later.next(schema, [(3, "c", "insert")])
    refuse(receiver, window, JournalError, "ends with version 1, and the stream begins")
    assert Counter([(1, "a"), (2, "b")]) == receiver.rows()


@BOTH
def test_a_table_that_was_removed_is_not_begun_anew_in_the_middle(
    receiver: Receiver, feed: Feed
) -> None:
    """With our own two tables, as a database file that was deleted; windows without a change were never delivered."""
    schema, sink = "id int, v string", receiver.sink
    feed.stream = replace(feed.stream, start_at=0)
    sink.deliver(feed.next(schema, [(1, "a", "insert")]))
    for table in ("dbo.orders", "_mirrorlib_tables", "_mirrorlib_positions"):
        receiver.run(f"DROP TABLE {table}")
    window = feed.next(schema, [(2, "b", "insert")])
    refuse(receiver, window, JournalError, "has not the table", 'orders" any more')
    sink.deliver(replace(window, given=0))
    assert Counter([(2, "b")]) == receiver.rows()


@BOTH
def test_a_column_that_somebody_has_renamed_there_is_no_new_one(
    receiver: Receiver, feed: Feed
) -> None:
    """In its place would be NULL, for every row that no change tells of, though the names differ by case alone."""
    schema, sink = "id int, v string", receiver.sink
    sink.deliver(feed.next(schema, [(1, "a", "insert"), (2, "b", "insert")], snapshot=True))
    for was, name in (("v", "V"), ("V", "w")):
        receiver.run(f'ALTER TABLE dbo.orders RENAME COLUMN "{was}" TO "{name}"')
        window = feed.next(schema, [(2, "b", "delete")])
        refuse(receiver, window, JournalError, "or renamed it there (found v)", "--rewind")
    sink.deliver(feed.rewound(None).next(schema, [(1, "a", "insert")], snapshot=True))
    assert Counter([(1, "a")]) == receiver.rows(columns="id, v")


@pytest.mark.thorough
@BOTH
def test_a_key_that_loses_its_sign_is_the_same_key(receiver: Receiver, feed: Feed) -> None:
    """-0.0 equals 0.0, for Spark and for databases: an update, and a delete with an insert."""
    schema, sink = "id double, v string", receiver.sink
    sink.deliver(feed.next(schema, [(-0.0, "a", "insert"), (1.0, "b", "insert")], snapshot=True))
    sink.deliver(
        feed.next(schema, [(-0.0, "a", "update_preimage"), (0.0, "c", "update_postimage")])
    )
    assert Counter([(0.0, "c"), (1.0, "b")]) == receiver.rows()
    gone = [(0.0, "c", "delete", 3), (-0.0, "d", "insert", 4)]
    sink.deliver(feed.next(schema, gone, versions=2))
    assert Counter([(0.0, "d"), (1.0, "b")]) == receiver.rows()
    sink.deliver(feed.next(schema, [(-0.0, "d", "delete")]))
    assert Counter([(1.0, "b")]) == receiver.rows()


@pytest.mark.thorough
@BOTH
def test_columns_come_and_go(receiver: Receiver, feed: Feed) -> None:
    """A dropped column stays and begins anew when it returns; what may be a rename stops the stream; others are left alone."""
    sink = receiver.sink
    sink.deliver(
        feed.next(
            "id int, v string, w int", [(1, "a", 1, "insert"), (2, "b", 2, "insert")], snapshot=True
        )
    )
    receiver.run('ALTER TABLE dbo.orders ADD COLUMN "their own" int DEFAULT 7')
    sink.deliver(
        feed.next(
            "id int, V string",
            [(1, "a", "update_preimage"), (1, "A", "update_postimage"), (3, "c", "insert")],
        )
    )
    assert Counter([(1, "A", 1, 7), (2, "b", 2, 7), (3, "c", None, 7)]) == receiver.rows()
    refuse(
        receiver,
        feed.next("id int, renamed string", []),
        SchemaError,
        "gone: v; new: renamed",
        "--rewind",
    )
    feed.number -= 1
    sink.deliver(feed.next("id int, v string, w int", [(4, "d", 4, "insert")]))
    assert (
        Counter([(1, "A", None, 7), (2, "b", None, 7), (3, "c", None, 7), (4, "d", 4, 7)])
        == receiver.rows()
    )
    delivery = feed.next("id int, v int, w int", [])
    words = (
        "column v",
        "INT" if receiver.kind == "sqlite" else "integer",
        "text",
        "Drop the table",
    )
    refuse(receiver, delivery, SchemaError, *words[:2])
    sink.deliver(
        feed.next(
            "id int, w int, brand_new date", [(8, None, date(2024, 1, 1), "insert")], snapshot=True
        )
    )
    assert [(8, date(2024, 1, 1))] == [
        (row[0], date.fromisoformat(str(row[1]))) for row in receiver.rows(columns="id, brand_new")
    ]


@pytest.mark.thorough
@BOTH
def test_a_table_that_is_too_wide_is_told_what_can_be_done(receiver: Receiver, feed: Feed) -> None:
    """Nothing can be corrected in the database."""
    schema = ", ".join(["id int", *(f"c{n} int" for n in range(2000))])
    with pytest.raises(StoreError, match="export a derived table with fewer columns"):
        receiver.sink.deliver(feed.next(schema, [(1, *[None] * 2000, "insert")], snapshot=True))


@pytest.mark.thorough
@pytest.mark.parametrize("kind", ["postgres"])
def test_wider_types_are_followed_and_narrower_windows_fit(receiver: Receiver, feed: Feed) -> None:
    """Rows and keys that were there are found again; an index that somebody made stays."""
    sink = receiver.sink
    narrow = "id decimal(4,1), a smallint, b int, c float, d date, e int, f int"
    wide = "id decimal(12,3), a bigint, b decimal(12,2), c double, d timestamp_ntz, e double, f decimal(10,0)"
    day, one = date(2024, 1, 2), Decimal("1.5")
    sink.deliver(
        feed.next(
            narrow,
            [
                (one, 1, 2, 0.5, day, 3, 4, "insert"),
                (Decimal(2), None, None, None, None, None, None, "insert"),
            ],
            snapshot=True,
        )
    )
    receiver.run("CREATE INDEX theirs ON dbo.orders (a)")
    moment, large = datetime(2024, 1, 2, 12), Decimal(9_999_999_999)
    big = (Decimal("1.500"), 2**40, Decimal("2.25"), 0.25, moment, 0.5, large)
    was = (one, 1, Decimal(2), 0.5, datetime(2024, 1, 2), 3.0, Decimal(4))
    sink.deliver(feed.next(wide, [(*was, "update_preimage"), (*big, "update_postimage")]))
    assert Counter([Decimal(2), one]) == Counter(
        Decimal(row[0]) for row in receiver.rows(columns="id")
    )
    feed = feed.rewound(1)
    rows = [
        (one, 1, 2, 0.5, day, 3, 4, "insert"),
        (Decimal(2), None, None, None, None, None, None, "delete"),
    ]
    sink.deliver(feed.next(narrow, rows))
    (row,) = receiver.rows()
    assert (Decimal(row[0]), row[1], Decimal(row[2]), row[3], row[5]) == (one, 1, 2, 0.5, 3)
    assert Decimal(4) == Decimal(row[6])
    assert datetime(2024, 1, 2) == row[4]
    assert ("theirs",) in receiver.run("SELECT indexname FROM pg_indexes")
    # The only kind of foreign key that lets rows go and come again.
    deferred = "numeric REFERENCES dbo.orders (id) DEFERRABLE INITIALLY DEFERRED"
    receiver.run(
        f"CREATE TABLE of_orders AS SELECT id FROM dbo.orders; ALTER TABLE of_orders ADD of {deferred}"
    )
    receiver.run("UPDATE of_orders SET of = id")
    rows = [(one, 1, 2, 0.5, day, 3, 4, 5, "insert")]
    sink.deliver(feed.next(f"{narrow}, g int", rows, snapshot=True))
    assert [5] == [row[-1] for row in receiver.rows()]


@pytest.mark.parametrize("kind", ["sqlite"])
def test_a_column_that_is_called_as_what_a_window_adds_is_refused_at_once(
    receiver: Receiver, feed: Feed
) -> None:
    """Not by the changes that follow on a snapshot, in Spark's words."""
    delivery = feed.next("id int, _Mirror_op int", [], snapshot=True)
    refuse(receiver, delivery, SchemaError, "column _Mirror_op: the column's name is taken")
    feed.keys = ()  # whose rows are counted
    delivery = feed.next("id int, _Mirror_op int", [(1, 7, "insert")], snapshot=True)
    receiver.sink.deliver(delivery)
    assert {(1, 7): 1} == receiver.rows()


@BOTH
def test_tables_of_others_are_not_touched(
    receiver: Receiver, feed: Feed, make: Callable[[str], Receiver]
) -> None:
    """One that was there, one of another consumer, one of another source, one that was dropped, and one made anew."""
    schema, row = "id int, v string", [(1, "a", "insert")]
    sink = receiver.sink
    if receiver.kind == "postgres":
        receiver.run("CREATE SCHEMA dbo AUTHORIZATION mirror")
    receiver.run("CREATE TABLE dbo.orders (id int)")
    delivery = feed.next(schema, row, snapshot=True)
    refuse(receiver, delivery, JournalError, "a table of this name that is not ours", "orders")
    receiver.run("DROP TABLE dbo.orders")
    sink.deliver(delivery)
    other = Feed(feed.spark, feed.folder, consumer="somebody else")
    refuse(
        receiver,
        other.next(schema, row, snapshot=True),
        LandingZoneError,
        "belongs to another consumer",
        "found lake, dbo/orders",
    )
    if receiver.kind == "sqlite":  # whose names ignore case
        twin = Feed(feed.spark, feed.folder, table="dbo/Orders").next(schema, row, snapshot=True)
        refuse(receiver, twin, LandingZoneError, "belongs to another", "found lake, dbo/orders")
        receiver.run("ALTER TABLE dbo.orders RENAME TO was")
        twins = Feed(feed.spark, feed.folder, table="dbo/Orders")
        for snapshot in (True, False):  # whose record is there beside that of the one that is gone
            sink.deliver(
                twins.next(schema, row if snapshot else [(2, "b", "insert")], snapshot=snapshot)
            )
        receiver.run("DROP TABLE dbo.orders")
        receiver.run("ALTER TABLE was RENAME TO dbo.orders")
    anew = replace_plan(feed.next(schema, row), table_id="U")
    refuse(receiver, anew, JournalError, "made anew since", "--rewind")
    receiver.run("DROP TABLE dbo.orders")
    refuse(receiver, anew, JournalError, "any more that the changes are for", "--rewind")
    lost = make(receiver.kind)  # a database that was lost, with the positions in it
    refuse(lost, anew, JournalError, "any more that the changes are for")
    sink.deliver(feed.rewound(None).next(schema, row, snapshot=True))
    assert Counter([(1, "a")]) == receiver.rows()


@pytest.mark.thorough
def test_names_that_a_database_cannot_have_are_refused(
    make: Callable[[str], Receiver], feed: Feed
) -> None:
    """Those that PostgreSQL would cut short, those that it keeps, and those of our own tables; quotes are no trouble."""
    long = "ü" * 31 + "xy"
    tables = ["t", '"; DROP TABLE x; --%s', "select", "a b", "Ä'?"]
    refused = {
        "postgres": [
            long,
            f"{long}/t",
            "pg_new/t",
            "information_schema/t",
            "_mirrorlib_tables",
            "dbo/_mirrorlib_stage",
        ],
        "sqlite": ["sqlite_x", "_Mirrorlib_positions", "sqlite/x"],
    }
    columns = {"postgres": [long, "ctid"], "sqlite": []}
    for kind, names in refused.items():
        receiver = make(kind)
        for name in names:
            stream = Feed(feed.spark, feed.folder, table=name)
            with pytest.raises(TableNameError, match="Rename it at the source"):
                receiver.sink.deliver(stream.next("id int", [], snapshot=True))
        for name in columns[kind]:
            stream = Feed(feed.spark, feed.folder)
            delivery = stream.next(f"id int, `{name}` int", [], snapshot=True)
            refuse(receiver, delivery, TableNameError, f"column {name}")
        if kind == "postgres":
            assert [] == receiver.run(
                "SELECT 1 FROM pg_tables WHERE schemaname IN ('dbo', 'public') AND tablename !~ '^_m'"
            )
        for name in tables:
            odd = name.replace("`", "``")
            stream = Feed(feed.spark, feed.folder, table=f"{name}/{name}")
            stream.keys = (name,)
            schema = f"`{odd}` int, `v{odd}` string"
            sink = receiver.sink
            sink.deliver(
                stream.next(schema, [(1, name, "insert"), (2, "b", "insert")], snapshot=True)
            )
            rows = [(1, name, None, "delete"), (3, "%s", 5, "insert")]
            sink.deliver(stream.next(f"{schema}, `n{odd}` int", rows))
            quoted = '"' + name.replace('"', '""') + '"'
            where = (
                f"{quoted}.{quoted}"
                if kind == "postgres"
                else '"' + f"{name}_{name}".replace('"', '""') + '"'
            )
            assert Counter([(2, "b", None), (3, "%s", 5)]) == receiver.rows(where)
    stream = Feed(feed.spark, feed.folder)
    receiver = make("postgres")
    with pytest.raises(SchemaError, match="column gone: a column of this type") as told:
        receiver.sink.deliver(
            stream.window(
                feed.spark.sql(f"SELECT 1 AS id, interval '1' day AS gone, {TOLD}"),
                0,
                kind="snapshot",
            )
        )
    assert told.value.found == "interval day"


@pytest.mark.thorough
@BOTH
def test_one_runner_at_a_time(
    receiver: Receiver, feed: Feed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever comes second waits, and finds the window delivered; several tables go on side by side."""
    sink, other = receiver.sink, receiver.sink
    delivery = feed.next("id int", [(1, "insert")], snapshot=True)
    shape = sink._settle(delivery)
    staged = stage(sink, delivery, shape)
    commit, second = receiver.session.commit, ThreadPoolExecutor(1)

    def wait(session: Any) -> None:
        with monkeypatch.context() as within:
            within.setattr(receiver.session, "commit", commit)
            late.append(second.submit(other._apply, delivery, shape, staged))
            with contextlib.suppress(TimeoutError):
                late[0].result(
                    timeout=0.3
                )  # it waits for us: that nothing comes is what is looked at
            assert not late[0].done()
            commit(session)

    late: list[Any] = []
    with monkeypatch.context() as within:
        within.setattr(receiver.session, "commit", wait)
        sink._apply(delivery, shape, staged)
    with pytest.raises(TableBusyError, match="while its window was under way"):
        late[0].result()
    second.shutdown()
    with pytest.raises(TableBusyError):
        sink.deliver(delivery)
    feeds = [Feed(feed.spark, feed.folder, table=f"new/t{n}") for n in range(4)]
    first = [each.next("id int", [(n, "insert")], snapshot=True) for n, each in enumerate(feeds)]
    with ThreadPoolExecutor(4) as pool:
        assert [1] * 4 == list(pool.map(sink.deliver, first))
    assert Counter([(1,)]) == receiver.rows()


@pytest.mark.thorough
def test_a_locked_table_is_told(
    make: Callable[[str], Receiver], feed: Feed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody else's lock is waited for, but not for ever."""
    from mirrorlib.delivery.sinks.jdbc import postgres, sqlite

    monkeypatch.setattr(postgres, "_SETTINGS", postgres._SETTINGS.replace("60s", "100ms"))
    monkeypatch.setattr(sqlite, "_PATIENCE", 0.1)
    for kind in ("postgres", "sqlite"):
        receiver, stream = make(kind), Feed(feed.spark, feed.folder)
        receiver.sink.deliver(stream.next("id int", [(1, "insert")], snapshot=True))
        delivery = stream.next("id int, later int", [(2, 2, "insert")])
        if receiver.cluster is not None:
            with receiver.cluster.admin(receiver.name) as connection, connection.transaction():
                connection.execute("SELECT * FROM dbo.orders")
                refuse(receiver, delivery, TableBusyError, "locked", str(receiver.cluster.port))
            with postgres.Postgres(receiver.address).session("dbo/orders", ()) as other:
                other.begin(DatabaseTable("dbo", "orders"))  # as another runner does
                refuse(receiver, delivery, TableBusyError, "locked")
        else:
            with contextlib.closing(
                sqlite3.connect(receiver.name, isolation_level=None)
            ) as connection:
                connection.execute("BEGIN IMMEDIATE")
                refuse(receiver, delivery, TableBusyError, "locked")
        receiver.sink.deliver(delivery)
        assert Counter([(1, None), (2, 2)]) == receiver.rows()


def test_readers_see_the_old_rows_until_the_new_ones_are_there(
    make: Callable[[str], Receiver], feed: Feed
) -> None:
    """A transaction that began before a snapshot sees none of it, not even that rows are gone."""
    receiver = make("postgres")
    sink, cluster = receiver.sink, receiver.cluster
    assert cluster is not None
    sink.deliver(feed.next("id int", [(1, "insert"), (2, "insert")], snapshot=True))
    with cluster.admin(receiver.name) as reader:
        reader.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
        reader.execute("SELECT 1")
        sink.deliver(feed.next("id int", [(9, "insert")], snapshot=True, reset=True))
        assert [(1,), (2,)] == reader.execute("SELECT id FROM dbo.orders ORDER BY id").fetchall()
    assert Counter([(9,)]) == receiver.rows()


def test_servers_that_are_not_there_and_addresses_that_are_wrong(
    make: Callable[[str], Receiver],
    feed: Feed,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Host and port are told, a password never, in whatever form it comes; nor is a value of the data."""
    caplog.set_level(logging.DEBUG, logger="mirrorlib")
    receiver = make("postgres")
    cluster = receiver.cluster
    assert cluster is not None
    delivery = feed.next("id int", [(1, "insert")], snapshot=True)
    nobody = f"postgresql://me:{SECRET}@127.0.0.1:1/x"
    told = []
    for address, words in (
        (nobody, "127.0.0.1:1 cannot be reached"),
        (cluster.url("nothing"), "does not exist"),
        (cluster.url(receiver.name, password=SECRET), "password authentication failed"),
    ):
        with pytest.raises(StoreError, match=words) as error:
            open_sink(address, "current").deliver(delivery)
        told.append(error.value)
    for address, words in (
        ("postgresql://u:secret/w@h/d", "Write @ as %40"),
        ("postgresql://u:secret@w@h/d", "Write @ as %40"),
        ("postgresql://u@h:secret@h/d", "Write @ as %40"),
        ("postgresql://h/d?password=%zzsecret", "postgresql://HOST"),
        ("postgresql://h/d?currentSchema=x&password=secret", "postgresql://HOST"),
        ("oracle:secret@x", "postgresql://HOST"),
    ):
        with pytest.raises(LandingZoneError, match=words) as wrong:
            open_sink(address, "current")
        told.append(wrong.value)
    with monkeypatch.context() as within:
        within.setenv("PGPASSWORD", PASSWORD)
        bare = f"postgresql://mirror@127.0.0.1:{cluster.port}/{receiver.name}"
        assert open_sink(bare, "current").position(delivery.stream) == 0
    with monkeypatch.context() as within:
        within.setitem(sys.modules, "psycopg", None)
        within.delitem(sys.modules, "mirrorlib.delivery.sinks.jdbc.postgres")
        with pytest.raises(LandingZoneError, match=r"pip install '\.\[postgres\]'"):
            open_sink(nobody, "current")
    for address in ("sqlite:", "sqlite::memory:"):
        with pytest.raises(LandingZoneError, match="is a file"):
            open_sink(address, "current")
    with pytest.raises(StoreError, match="see that the place is there"):
        open_sink(f"sqlite:{tmp_path}/nothing/x.db", "current").position(delivery.stream)
    (tmp_path / "text.db").write_text("this is no database" * 99)
    with pytest.raises(StoreError, match="cannot be read"):
        open_sink(f"sqlite:{tmp_path}/text.db", "current").position(delivery.stream)
    with cluster.admin(receiver.name) as connection:
        connection.execute(f"ALTER DATABASE {receiver.name} OWNER TO postgres")
    with pytest.raises(StoreError, match="permission denied for schema public") as denied:
        receiver.sink.deliver(delivery)
    told.append(denied.value)
    for each in told:
        chain = [each, each.__cause__, each.__context__ if not each.__suppress_context__ else None]
        assert "secret" not in "".join(str(one) for one in chain) + caplog.text
        assert PASSWORD not in str(each)


@pytest.mark.thorough
@BOTH
def test_a_constraint_of_somebody_else_is_told_without_the_row(
    receiver: Receiver, feed: Feed
) -> None:
    """Its name, and never the value that it refuses."""
    sink = receiver.sink
    sink.deliver(feed.next("id int, v string", [(1, "a", "insert")], snapshot=True))
    receiver.run("CREATE UNIQUE INDEX theirs ON dbo.orders (v)")
    error = refuse(
        receiver,
        feed.next(
            "id int, v string", [(2, "a", "insert"), (3, "hush", "insert"), (4, "hush", "insert")]
        ),
        SchemaError,
        "a constraint that the table has",
    )
    assert "hush" not in str(error)
    if receiver.kind == "postgres":
        assert error.found == "theirs"
