"""A client of Spark Connect is a Spark like any other: what reads, derives and delivers needs no Java beside it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

import pytest

import mirrorlib
from computes import confine
from connecting import CONNECT_MODE, connect
from feeds import Table, told
from mirrorlib.delta import sessions
from mirrorlib.delta.address import find_feed_table
from mirrorlib.errors import FeedExpiredError
from mirrorlib.feed.read import read_snapshot, read_window
from mirrorlib.feed.window import open_window
from mirrors import Mirror
from oracle import assert_same_rows, multiset, replay_feed
from tables import read_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from tests.zones import ZoneWriter

ZONE = "spark.sql.session.timeZone"
PACKAGE = Path(mirrorlib.__file__).parent
# What a client of Spark Connect, and serverless compute, does not have.
FORBIDDEN = {
    "RDD", "SparkContext", "StorageLevel", "_jconf", "_jdf", "_jreader", "_jsc", "_jsparkSession", "_jvm", "_jwrite",
    "_sc", "cache", "checkpoint", "createGlobalTempView", "createOrReplaceGlobalTempView", "getActiveSession",
    "localCheckpoint", "persist", "rdd", "sparkContext", "unpersist",
}  # fmt: skip
# Where it is needed, and why it does no harm.
ALLOWED = {
    # Sessions find no other view of each other's; not where the compute has one session for all.
    ("delta/table.py", "createOrReplaceGlobalTempView"),
    # On classic Spark only, where a session is made active.
    ("delta/sessions.py", "_jsparkSession"),
    ("delta/sessions.py", "_jvm"),
    ("delta/sessions.py", "getActiveSession"),
    # A command asks on a machine of one's own, where no platform has a session for it.
    ("platform/session.py", "getActiveSession"),
    ("derived/strategy/fingerprint.py", "_jdf"),  # as below
    ("keys/tracing/plan.py", "_jdf"),  # on classic Spark only: a client is asked in another way
}


def names_in(path: Path) -> set[str]:
    """Return what a module asks for, by a dot or by its name in quotes, and what it imports of Spark."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Attribute):
            found.add(node.attr)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            found.add(node.value)
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("pyspark"):
            found |= {alias.name for alias in node.names}
    return found


def test_the_package_asks_for_nothing_that_spark_connect_lacks() -> None:
    """But where it is named here, which has to be where it is."""
    found = {
        (path.relative_to(PACKAGE).as_posix(), name)
        for path in PACKAGE.rglob("*.py")
        for name in names_in(path) & FORBIDDEN
    }

    assert ALLOWED == found


@pytest.fixture(scope="module")
def server(spark: SparkSession) -> Iterator[SparkSession]:
    """Connect to a server of Spark Connect in the tests' own Java."""
    if spark.version < "4.1":
        pytest.skip("this Spark has no server of Spark Connect whose sessions can be cloned")
    pytest.importorskip("grpc")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(CONNECT_MODE, "1")
        session = connect(spark)
    yield session
    session.stop()


@pytest.fixture
def client(server: SparkSession, monkeypatch: pytest.MonkeyPatch) -> SparkSession:
    """Be a process that knows no other Spark."""
    monkeypatch.setenv(CONNECT_MODE, "1")
    return server


@pytest.fixture
def remote(client: SparkSession, tmp_path: Path) -> Mirror:
    """Give a mirror that is kept by the client: a load, and a merge after it."""
    mirror = Mirror(spark=client, root=tmp_path)
    for _ in range(2):
        mirror.publish()
        report = mirror.run()
        assert ("current", "") == (report.state, report.reason)
    return mirror


@pytest.fixture
def confined(client: SparkSession, monkeypatch: pytest.MonkeyPatch) -> Iterator[SparkSession]:
    """Be on compute that has one session for all, and lets nobody set or read but what serverless documents."""
    confine(client, monkeypatch.setattr)
    idle = sessions._IDLE.pop(client, [])
    yield client
    sessions._UNMARKED.discard(client)
    sessions._IDLE[client] = idle


@pytest.mark.parametrize("zone", ["Europe/Berlin", pytest.param(None, marks=pytest.mark.thorough)])
def test_where_nobody_can_configure_or_make_a_session_the_one_there_is_does_for_all_tables(
    spark: SparkSession,
    confined: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    zone: str | None,
) -> None:
    """Loads, merges of two tables at once, a copy and a derived table are as elsewhere; the session is left as it was."""
    confined.conf.set(ZONE, zone) if zone else confined.conf.unset(ZONE)
    mirrors = [Mirror(spark=confined, root=tmp_path, name=name) for name in ("orders", "items")]
    for number in range(2):
        for mirror in mirrors:
            mirror.publish([{"id": 0, "v": f"by {number}"}, {"id": number, "v": "new"}], [4, 4])
        assert mirrors[0].apply(parallelism=2).ok
        to = f"delta:{tmp_path}/copy"
        assert mirrorlib.export(
            confined, mirrors[0].target, consumer="lake", to=to, mode="current"
        ).ok
        source = str(mirrors[0].path)
        mirrorlib.derive(confined, "named", source, named, tmp_path / "made")
    left = confined.conf.get(ZONE, None)
    confined.conf.unset(ZONE)
    monkeypatch.undo()

    assert zone == left
    for mirror in mirrors:
        local = Mirror(spark=spark, root=tmp_path, name=mirror.name, files=mirror.files)
        local.assert_holds()
        assert ["WRITE", "MERGE"] == [how for how, said in local.commits() if said.get("batch")]
        copied = read_rows(spark, tmp_path / "copy" / mirror.name)
        assert_same_rows(local.rows(), multiset(copied), "the copy")
    assert {"id", "name"} == read_rows(spark, tmp_path / "made")[0].keys()


def test_a_merge_and_its_feed_are_the_same_on_spark_connect(
    spark: SparkSession, remote: Mirror, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each batch is there once; the feed that the client reads leads to the table."""
    feed = mirrorlib.read_feed(remote.spark, remote.path, after=-1)
    changes = [row.asDict() for row in feed.collect()]
    monkeypatch.delenv(CONNECT_MODE)

    local = Mirror(spark=spark, root=remote.root, files=remote.files)
    local.assert_holds()
    states = replay_feed(changes)
    assert_same_rows(local.rows(), states[max(states)], "the feed")


def test_what_delta_refuses_is_an_error_of_ours_on_spark_connect(
    client: SparkSession, tmp_path: Path
) -> None:
    """A client is told of it only when it asks for something; what is only old is read."""
    table = Table(client, tmp_path / "t", "id int").run(
        "INSERT INTO {t} VALUES (1)", "DELETE FROM {t} WHERE id = 1"
    )
    table.age(days=30).run("INSERT INTO {t} VALUES (2)")
    assert [(1, "insert", 1), (2, "delete", 1)] == told(table.read(after=-1, until=2), "id")
    found = find_feed_table(client, table.path)
    with pytest.raises(FeedExpiredError, match="older than the table keeps the files"):
        read_snapshot(client, found, 1)

    window = open_window(found.commits, 2, 3)
    table.run(
        "ALTER TABLE {t} SET TBLPROPERTIES ('delta.enableTypeWidening' = 'true')",
        "ALTER TABLE {t} ALTER COLUMN id TYPE bigint",
    )
    with pytest.raises(FeedExpiredError, match="its change feed does not go over that"):
        read_window(client, found, window).collect()


def named(orders: DataFrame) -> DataFrame:
    """Leave out rows without a value, and give the column another name."""
    return orders.where("v IS NOT NULL").withColumnRenamed("v", "name")


@pytest.mark.thorough
def test_exports_and_derived_tables_are_the_same_on_spark_connect(
    spark: SparkSession,
    client: SparkSession,
    zone: ZoneWriter,
    target: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """All rows at first, then what has changed; derived row by row, with the keys that survive."""
    orders, source, made = zone.table("orders", keys=["id"]), f"{target}/orders", tmp_path / "made"
    files: list[list[dict[str, object]]] = [
        [{"id": 1, "v": "a"}, {"id": 2, "v": None}],
        [{"id": 1, "v": "A"}, {"id": 3, "v": "c"}],
    ]
    for number, rows in enumerate(files, 1):
        orders.file(rows, [4] * len(rows), number=number)
        assert mirrorlib.apply(client, str(zone), target, insert_policy="upsert").ok
        to = f"delta:{tmp_path}/copy"
        assert mirrorlib.export(client, target, consumer="lake", to=to, mode="current").ok
        report = mirrorlib.derive(client, "named", source, named, made)
    monkeypatch.delenv(CONNECT_MODE)

    expected = [{"id": 1, "v": "A"}, {"id": 2, "v": None}, {"id": 3, "v": "c"}]
    copied = read_rows(spark, tmp_path / "copy" / "orders")
    assert expected == sorted(copied, key=lambda row: str(row["id"]))
    found = sorted(read_rows(spark, made), key=lambda row: str(row["id"]))
    assert [{"id": 1, "name": "A"}, {"id": 3, "name": "c"}] == found
    assert ("row-wise", ("id",)) == (report.how, report.keys.primary)


def looking(orders: DataFrame) -> DataFrame:
    """Choose by the number of rows, and go through a view, which a client looks up when it reads."""
    many = orders.count() > 1
    orders.createOrReplaceTempView("looked_at")
    return orders.sparkSession.sql(f"SELECT id, v, {many} AS many FROM looked_at")


@pytest.mark.thorough
def test_a_view_of_changed_rows_is_not_taken_for_one_of_all(
    spark: SparkSession,
    client: SparkSession,
    zone: ZoneWriter,
    target: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The transformation is tried on the changed rows, and its view means them from then on."""
    orders = zone.table("orders", keys=["id"])
    how = []
    for rows in ([{"id": 1, "v": "a"}, {"id": 2, "v": "b"}], [{"id": 1, "v": "A"}]):
        orders.file(rows, [4] * len(rows))
        assert mirrorlib.apply(client, str(zone), target, insert_policy="upsert").ok
        report = mirrorlib.derive(client, "l", f"{target}/orders", looking, tmp_path / "made")
        how.append((report.how, "looks at the rows" in report.why))
    monkeypatch.delenv(CONNECT_MODE)

    assert [("full", False), ("full", True)] == how
    found = sorted(tuple(row.values()) for row in read_rows(spark, tmp_path / "made"))
    assert [(1, "A", True), (2, "b", True)] == found


@pytest.mark.thorough
def test_a_current_view_is_kept_on_spark_connect(
    spark: SparkSession, client: SparkSession, tmp_path: Path
) -> None:
    """From a batch, and from a stream, whose micro-batches are applied beside the server."""
    table, view = str(tmp_path / "table"), str(tmp_path / "view")
    spark.sql(
        f"CREATE TABLE delta.`{table}` (id int, v string) USING delta TBLPROPERTIES (delta.enableChangeDataFeed = true)"
    )
    found = []
    for statement in (
        "INSERT INTO {} VALUES (1, 'a'), (2, 'b')",
        "UPDATE {} SET id = 3 WHERE id = 1",
    ):
        spark.sql(statement.format(f"delta.`{table}`"))
        changes = mirrorlib.key_feed(mirrorlib.read_feed(client, table, after=-1), "id")
        mirrorlib.maintain_current_view(changes, view)
        query = mirrorlib.maintain_current_view(
            mirrorlib.key_feed(mirrorlib.stream_feed(client, table), "id"),
            f"{view}2",
            checkpoint=str(tmp_path / "checkpoint"),
            available_now=True,
        )
        assert query is not None
        query.awaitTermination()
        for kept in (view, f"{view}2"):
            rows = mirrorlib.read_current_view(client, kept).collect()
            found.append(sorted(tuple(row)[:2] for row in rows))

    before, after = [(1, "a"), (2, "b")], [(2, "b"), (3, "a")]
    assert [before, before, after, after] == found


def test_a_client_that_cannot_have_a_session_of_its_own_is_told_so(
    client: SparkSession, zone: ZoneWriter, target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As those before PySpark 4.1, and some platforms' own."""
    zone.table("orders", keys=["id"]).file([{"id": 1}])
    monkeypatch.delattr(type(client), "cloneSession")
    monkeypatch.setattr(sessions, "_IDLE", WeakKeyDictionary())

    (report,) = mirrorlib.apply(client, str(zone), target).tables

    assert ("failed", "ComputeError") == (report.state, report.error)
    assert "cannot make a session of its own" in report.reason
