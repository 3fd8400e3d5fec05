"""A source of several tables, a consumer for each kind of receiver, and who judges what each has come to.

In: a folder. Out: `History`, whose commits plain Python knows; `Receiver`, which says how it is exported to
and compares what it holds with what the source was. Nothing of the package judges.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import mirrorlib
from delivery import test_delta_sink as delta
from delivery.test_files_sink import DELETE, PRE, Source, entries, leftovers, read_file, windows_of
from delivery.test_zone_sink import change_files
from mirrorlib.store import LocalStore
from oracle import replay

if TYPE_CHECKING:
    from datetime import datetime

    from delivery.postgres import Cluster

Rows = Counter[tuple[Any, ...]]


class History(Source):
    """Tables that change at random, and what each version of them held."""

    @property
    def tables(self) -> list[str]:
        """Name the tables."""
        return list(self.feed)

    def publish(self, commits: int) -> None:
        """Commit to every table; each commit changes rows."""
        for table in self.tables:
            for _ in range(commits):
                self.commit(table)

    def state(self, table: str, version: int) -> dict[int, str]:
        """Give the rows of a version."""
        held: dict[int, str] = {}
        for at, key, kind, (value,) in self.feed[table]:
            if at > version:
                break
            if kind == DELETE:
                del held[key]
            elif kind != PRE:
                held[key] = value
        return held

    def rows(self, table: str) -> Rows:
        """Count the rows as they are."""
        return Counter(self.state(table, self.versions[table]).items())


@dataclass(frozen=True, slots=True)
class Receiver:
    """A consumer and its receiver.

    Attributes:
        name: of the consumer.
        options: more arguments of `export`.
        judge: compares what it holds of a table with the source.

    """

    name: str
    options: dict[str, Any]
    judge: Callable[[History, str], None] = field(compare=False)

    def export(self, history: History, **options: Any) -> None:
        """Deliver what there is, which has to work."""
        told = {**self.options, **options}
        report = mirrorlib.export(history.spark, history.target, consumer=self.name, **told)
        assert report.ok, str(report)

    def check(self, history: History) -> None:
        """Compare every table."""
        for table in history.tables:
            self.judge(history, table)


def folder_of(root: Path, table: str) -> Path:
    """Return a table's folder, as Delta and files have it."""
    return root.joinpath(*table.split("/"))


# Delta


class Told:
    """The versions of a table, as the oracle of Delta receivers asks for them."""

    columns = ("id", "v")

    def __init__(self, history: History, table: str) -> None:
        self._history, self._table = history, table
        self.newest = history.versions[table]

    def rows(self, version: int) -> Rows:
        """Count the rows of a version."""
        return Counter(self._history.state(self._table, version).items())

    def times(self) -> dict[int, datetime]:
        """Give when each version was committed."""
        place = folder_of(Path(self._history.target), self._table)
        told = self._history.spark.sql(f"DESCRIBE HISTORY delta.`{place}`").collect()
        return {row["version"]: row["timestamp"] for row in told}


class Copy:
    """A Delta table that received a table, as the same oracle asks for it."""

    def __init__(self, root: Path, mode: str, history: History, table: str) -> None:
        self.mode, self.name, self.source = mode, f"{mode} {table}", Told(history, table)
        self._spark, self._path = history.spark, folder_of(root, table)

    def rows(self, columns: Sequence[str] = ()) -> Rows:
        """Count the rows."""
        return delta.count(self._spark, self._path, columns or self.source.columns)

    def windows(self) -> list[int]:
        """Give the number of each window that the log names, oldest first."""
        told = [delta.facts(self._path, version) for version in delta.versions(self._path)]
        return [fact["window"] for fact in told if "window" in fact]


def judge_delta(root: Path, mode: str) -> Callable[[History, str], None]:
    """Judge a log, a copy or a history; each window is one commit."""

    def judge(history: History, table: str) -> None:
        copy = Copy(root, mode, history, table)
        delta.check(copy, first=0)  # type: ignore[arg-type]  # what it asks for is there
        assert sorted(set(copy.windows())) == copy.windows(), copy.name

    return judge


# Files


def judge_files(root: Path) -> Callable[[History, str], None]:
    """Judge files of every change: each window once, in order, and nothing left of attempts."""

    def judge(history: History, table: str) -> None:
        told = history.check(table, folder_of(root, table), 0)
        assert list(range(1, len(told) + 1)) == [entry["number"] for entry in told]
        assert [] == leftovers(root)

    return judge


def judge_net_files(root: Path) -> Callable[[History, str], None]:
    """Judge files of net changes behind a snapshot: each leads from state to state, and says what was."""

    def judge(history: History, table: str) -> None:
        folder = folder_of(root, table)
        told, found = entries(folder), windows_of(folder)
        assert list(range(1, len(told) + 1)) == [entry["number"] for entry in told]
        assert ["snapshot"] + ["changes"] * (len(told) - 1) == [entry["kind"] for entry in told]
        after = -1
        for entry, files in zip(told, found.values(), strict=True):
            before, held = history.state(table, after), history.state(table, entry["until"])
            rows = [row for path in files for row in read_file(path)]
            assert (before.items() - held.items()) == _pairs(rows, {DELETE, PRE})
            assert (held.items() - before.items()) == _pairs(rows, {"insert", "update_postimage"})
            after = entry["until"]
        assert history.versions[table] == after
        assert [] == leftovers(root)

    return judge


def _pairs(rows: Iterable[dict[str, Any]], kinds: set[str]) -> set[tuple[int, str]]:
    chosen = [(row["id"], row["v"]) for row in rows if row["_change_type"] in kinds]
    assert len(set(chosen)) == len(chosen)
    return set(chosen)


# The landing zone


def judge_zone(root: Path) -> Callable[[History, str], None]:
    """Judge a zone that got a file for each version since the first: what each makes of a copy is that version."""

    def judge(history: History, table: str) -> None:
        schema, _, name = table.rpartition("/")
        files = change_files(LocalStore(root), f"{schema}.schema/{name}" if schema else name)
        first = history.versions[table] - len(files) + 1
        for count in range(1, len(files) + 1):
            found = replay(files[:count], keys=["id"]).rows
            expected = history.state(table, first + count - 1)
            assert Counter(expected.items()) == Counter((row["id"], row["v"]) for row in found)

    return judge


# Databases and Kafka


def judge_sqlite(path: Path) -> Callable[[History, str], None]:
    """Judge a database file."""

    def judge(history: History, table: str) -> None:
        with contextlib.closing(sqlite3.connect(path)) as connection:
            found = connection.execute(f'SELECT id, v FROM "{table.replace("/", "_")}"').fetchall()
        assert history.rows(table) == Counter(found)

    return judge


def judge_postgres(cluster: Cluster, database: str) -> Callable[[History, str], None]:
    """Judge a database of a server."""

    def judge(history: History, table: str) -> None:
        name = table.replace("/", ".")
        found = cluster.rows(database, f"SELECT id, v FROM {name}")
        assert history.rows(table) == Counter(found)

    return judge


def judge_kafka(broker: Any, name: str) -> Callable[[History, str], None]:
    """Judge a topic, as a reader of committed messages sees it: windows once and in order, changes that fit."""
    from delivery import test_kafka_sink as kafka

    def judge(history: History, table: str) -> None:
        told = kafka.read(broker, f"{name}.{table.rpartition('/')[2]}")
        windows = {message.window for message in told}
        assert [len(windows)] == list(kafka.check_windows(told).values())
        assert history.rows(table) == kafka.replay(told)

    return judge


def embedded_receivers(root: Path) -> list[Receiver]:
    """Make a consumer of each kind of receiver that needs no server; net and plain, from the start or a snapshot on."""
    root = root / "receivers"
    by_id: dict[str, Any] = {"keys": ["id"]}
    every = {**by_id, "start": 0}
    made: list[tuple[str, str, dict[str, Any], Callable[[History, str], None]]] = [
        ("log", "delta:{}", {"mode": "changes", **every}, judge_delta(root / "log", "changes")),
        (
            "copy",
            "delta:{}",
            {"mode": "current", "net": True, **by_id},
            judge_delta(root / "copy", "current"),
        ),
        ("past", "delta:{}", {"mode": "scd2", **every}, judge_delta(root / "past", "scd2")),
        (
            "lines",
            "files:{}?format=jsonl",
            {"max_versions": 2, **every},
            judge_files(root / "lines"),
        ),
        ("parts", "files:{}", {"net": True, **by_id}, judge_net_files(root / "parts")),
        ("zone", "zone:{}", {"max_versions": 1, **by_id}, judge_zone(root / "zone")),
        ("base", "jdbc:sqlite:{}", by_id, judge_sqlite(root / "base")),
    ]
    root.mkdir()
    return [
        Receiver(name, {"to": to.format(root / name), **options}, judge)
        for name, to, options, judge in made
    ]


def served_receivers(cluster: Cluster, broker: Any) -> list[Receiver]:
    """Make a consumer of each receiver that is a server."""
    cluster.make_database("received")
    topics = f"kafka://{broker.address}/received.{{table}}"
    return [
        Receiver(
            "served",
            {"to": f"jdbc:{cluster.url('received')}", "net": True, "keys": ["id"]},
            judge_postgres(cluster, "received"),
        ),
        Receiver(
            "told",
            {"to": topics, "keys": ["id"], "max_versions": 2},
            judge_kafka(broker, "received"),
        ),
    ]


# Points at which an exporter may die

STEPS = tuple((step, when) for step in ("plan", "deliver", "done") for when in ("before", "after"))
Point = tuple[str, str, int]
_KINDS: dict[str, tuple[str, dict[str, Any], Callable[[Path], Callable[[History, str], None]]]] = {
    "log": ("delta:{}", {"mode": "changes"}, lambda at: judge_delta(at, "changes")),
    "copy": ("delta:{}", {"mode": "current"}, lambda at: judge_delta(at, "current")),
    "past": ("delta:{}", {"mode": "scd2"}, lambda at: judge_delta(at, "scd2")),
    "lines": ("files:{}?format=jsonl", {}, judge_files),
    "zone": ("zone:{}", {}, judge_zone),
    "base": ("jdbc:sqlite:{}", {}, judge_sqlite),
}
# How often a receiver writes while it takes two windows of changes.
_WRITES = {"lines": 11, "zone": 13}


def points_of(
    place: str, root: Path, kinds: Sequence[str] = tuple(_KINDS), **options: Any
) -> Iterator[tuple[Receiver, Point]]:
    """Give a consumer of its own for each point: before and after the steps of a second window, before each write to files.

    Args:
        place: path or URL of the folder that they receive in.
        root: where it is judged.
        kinds: of receivers.
        options: more arguments of `export`.

    """
    for kind in kinds:
        writes = [("write", "before", count) for count in range(1, _WRITES.get(kind, 0) + 1)]
        for step, when, count in [*writes, *((step, when, 2) for step, when in STEPS)]:
            name = f"{kind}-{when}-{step}-{count}"
            yield (
                receiver_of(kind, name, place, root, max_versions=1, **options),
                (step, when, count),
            )


def served_points(cluster: Cluster, broker: Any) -> Iterator[tuple[Receiver, Point]]:
    """Give a database and a topic of its own for each point, and a consumer of each."""
    plain: dict[str, Any] = {"keys": ["id"], "start": 0, "max_versions": 1}
    for step, when in STEPS:
        name, point = f"{when}-{step}", (step, when, 2)
        cluster.make_database(name)
        base = {"to": f"jdbc:{cluster.url(name)}", **plain}
        yield Receiver(f"base-{name}", base, judge_postgres(cluster, name)), point
        topics = {"to": f"kafka://{broker.address}/{name}.{{table}}", **plain}
        yield Receiver(f"topic-{name}", topics, judge_kafka(broker, name)), point


def receiver_of(kind: str, name: str, place: str, root: Path, **options: Any) -> Receiver:
    """Make a consumer of a kind, which is given every change."""
    to, told, judge = _KINDS[kind]
    wanted = {"to": to.format(f"{place}/{name}"), "keys": ["id"], "start": 0, **told, **options}
    return Receiver(name, wanted, judge(root / name))
