"""A current view that is kept in a table: late changes, repeated ones, tombstones."""

from __future__ import annotations

import itertools
import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from threading import Barrier
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import PySparkException

from mirrorlib.delta.sessions import configured
from mirrorlib.derived import maintain
from mirrorlib.derived.changelog import key_feed
from mirrorlib.derived.maintain import maintain_current_view, read_current_view
from mirrorlib.errors import (
    ForeignWriteError,
    KeysError,
    KeysLostError,
    LandingZoneError,
    MirrorError,
    SchemaError,
)
from mirrorlib.feed.declared_keys import read_table
from mirrorlib.feed.read import read_feed
from mirrorlib.feed.stream import stream_feed
from mirrorlib.keys.declare import key_by
from mirrorlib.keys.foundry import to_foundry_schema
from mirrorlib.keys.read import keys_of
from mirrorlib.keys.value import Keys
from mirrorlib.keys.view import current_view
from tables import newest_version, read_versions

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("callbacks")]

SCHEMA = "id int, gone boolean, at int, v string"
INSERT, UPDATE, DELETE = (1, False, 1, "inserted"), (1, None, 2, "updated"), (1, True, 3, None)
OTHER = (2, False, 9, "other")


@pytest.fixture
def view(tmp_path: Path) -> str:
    """Name a table that does not exist yet."""
    return str(tmp_path / "view")


def changelog(spark: SparkSession, *rows: tuple[object, ...]) -> DataFrame:
    """Give changes with their keys."""
    return key_by(
        spark.createDataFrame(rows, SCHEMA), "id", cdc=True, deleted="gone", order_by="at"
    )


def live(spark: SparkSession, view: str) -> list[tuple[object, ...]]:
    """Read the rows of a view."""
    return sorted(tuple(row) for row in read_current_view(spark, view).collect())


@pytest.mark.thorough
@pytest.mark.smoke
def test_a_late_insert_brings_no_record_back(spark: SparkSession, view: str) -> None:
    """The tombstone is kept, and is newer; what is newer than it counts."""
    for change in (INSERT, DELETE, UPDATE):
        maintain_current_view(changelog(spark, change), view)
    assert [] == live(spark, view)

    maintain_current_view(changelog(spark, (1, False, 4, "again"), OTHER), view)
    assert [(1, False, 4, "again"), OTHER] == live(spark, view)


@pytest.mark.thorough
@pytest.mark.parametrize("order", list(itertools.permutations((INSERT, UPDATE, DELETE))))
def test_any_order_of_changes_ends_in_the_same_view(
    spark: SparkSession, tmp_path: Path, order: tuple[tuple[object, ...], ...]
) -> None:
    """However they are cut into batches."""
    for cut in (1, 2):
        view = str(tmp_path / f"view{cut}")
        maintain_current_view(changelog(spark, *order[:cut]), view)
        maintain_current_view(changelog(spark, *order[cut:]), view)

        assert live(spark, view) == sorted(
            tuple(row) for row in current_view(changelog(spark, *order)).collect()
        )


@pytest.mark.thorough
def test_a_batch_that_comes_again_changes_nothing(spark: SparkSession, view: str) -> None:
    """Exactly once in effect, for a tombstone too: when it came stays what it was."""
    changes = changelog(spark, INSERT, DELETE, OTHER)
    maintain_current_view(changes, view)
    before = sorted(map(tuple, spark.read.format("delta").load(view).collect()), key=repr)
    maintain_current_view(changes, view)

    assert before == sorted(map(tuple, spark.read.format("delta").load(view).collect()), key=repr)


@pytest.mark.thorough
def test_a_repeated_batch_of_a_stream_changes_nothing(
    spark: SparkSession, view: str, tmp_path: Path
) -> None:
    """Its progress is lost, and all of it comes once more."""
    source = str(tmp_path / "source")
    changelog(spark, INSERT, OTHER).write.format("delta").save(source)
    for checkpoint in ("first", "second"):
        stream = key_by(
            spark.readStream.format("delta").load(source),
            "id",
            cdc=True,
            deleted="gone",
            order_by="at",
        )
        query = maintain_current_view(
            stream, view, checkpoint=str(tmp_path / checkpoint), available_now=True
        )
        assert query is not None
        query.awaitTermination()

        assert [INSERT, OTHER] == live(spark, view)


@pytest.mark.thorough
def test_a_stream_goes_on_where_it_stopped(spark: SparkSession, view: str, tmp_path: Path) -> None:
    """New changes are applied by the next run, late ones are not."""
    source, checkpoint = str(tmp_path / "source"), str(tmp_path / "checkpoint")
    for change, expected in ((DELETE, []), (UPDATE, []), (OTHER, [OTHER])):
        spark.createDataFrame([change], SCHEMA).write.format("delta").mode("append").save(source)
        stream = key_by(
            spark.readStream.format("delta").load(source),
            "id",
            cdc=True,
            deleted="gone",
            order_by="at",
        )
        query = maintain_current_view(stream, view, checkpoint=checkpoint, available_now=True)
        assert query is not None
        query.awaitTermination()

        assert expected == live(spark, view)


@pytest.mark.thorough
def test_retention_forgets_tombstones_that_are_old_enough(spark: SparkSession, view: str) -> None:
    """Then, and no earlier, a late change can bring its record back."""
    maintain_current_view(
        changelog(spark, DELETE, OTHER), view, tombstone_retention=timedelta(days=1)
    )
    assert 2 == spark.read.format("delta").load(view).count()

    maintain_current_view(changelog(spark, UPDATE), view, tombstone_retention=timedelta(0))
    assert [OTHER] == live(spark, view)
    assert 1 == spark.read.format("delta").load(view).count()

    maintain_current_view(changelog(spark, UPDATE), view)
    assert [UPDATE, OTHER] == live(spark, view)


@pytest.mark.thorough
def test_what_changes_nothing_makes_no_tombstone(spark: SparkSession, view: str) -> None:
    """A changelog without deletion column needs none."""
    df = key_by(spark.createDataFrame([INSERT], SCHEMA), "id", cdc=True, order_by="at")
    maintain_current_view(df, view)

    assert ["id", "gone", "at", "v"] == spark.read.format("delta").load(view).columns
    assert [INSERT] == live(spark, view)


@pytest.mark.thorough
def test_arrival_decides_where_order_does_not(spark: SparkSession, view: str) -> None:
    """Its columns are kept, and compared from batch to batch."""
    for change in ((1, False, 7, "b"), (1, False, 9, "c"), (1, False, 8, "a")):
        df = key_by(spark.createDataFrame([change], SCHEMA), "id", cdc=True, deleted="gone")
        maintain_current_view(df, view, arrival="at")

    assert [(1, False, 9, "c")] == live(spark, view)


@pytest.mark.thorough
def test_another_arrival_is_refused(spark: SparkSession, view: str) -> None:
    """It would resolve the same rows otherwise; one that says nothing new is none."""
    columns = "id int, at int, file int, row int"
    df = spark.createDataFrame([(1, 7, 1, 2)], columns)
    changes = key_by(df, "id", cdc=True, order_by="at")
    maintain_current_view(changes, view, arrival=["file", "row"])
    told = r'columns of arrival.*found keys id; .*\["file", "row"\].*Name the'
    for arrival in ((), "file", ["row", "file"]):
        with pytest.raises(KeysError, match=told):
            maintain_current_view(changes, view, arrival=arrival)

    before = newest_version(view)
    maintain_current_view(changes, view, arrival=["at", "file", "row"])
    assert before + 1 == newest_version(view)


@pytest.mark.thorough
@pytest.mark.parametrize("told", ["current", '{"format": 2}'])
def test_a_view_of_another_version_is_refused(spark: SparkSession, view: str, told: str) -> None:
    """What it was made with cannot be read: its rows may have been resolved otherwise."""
    changes = changelog(spark, INSERT)
    maintain_current_view(changes, view)
    spark.sql(f"ALTER TABLE delta.`{view}` SET TBLPROPERTIES ('mirrorlib.view' = '{told}')")
    with pytest.raises(KeysError, match="made with other keys or columns of arrival"):
        maintain_current_view(changes, view)


@pytest.mark.thorough
def test_the_view_has_its_keys(spark: SparkSession, view: str) -> None:
    """And its columns have no tags: they are in the table's property."""
    maintain_current_view(changelog(spark, INSERT), view)

    assert Keys(partition=("id",), primary=("id",), deleted="gone", order_by=("at",)) == keys_of(
        read_current_view(spark, view)
    )
    assert keys_of(read_current_view(spark, view)).unique
    assert [{}] * 5 == [
        field.metadata for field in spark.read.format("delta").load(view).schema.fields
    ]


def test_a_change_feed_becomes_a_view(spark: SparkSession, tmp_path: Path, view: str) -> None:
    """Insert, update, delete, and a row that is replaced in one commit."""
    table = str(tmp_path / "table")
    spark.sql(
        f"CREATE TABLE delta.`{table}` (id int, v string) USING delta TBLPROPERTIES (delta.enableChangeDataFeed = true)"
    )
    spark.sql(f"INSERT INTO delta.`{table}` VALUES (1, 'a'), (2, 'b'), (3, 'c')")
    spark.sql(f"UPDATE delta.`{table}` SET v = 'd' WHERE id = 2")
    spark.sql(f"DELETE FROM delta.`{table}` WHERE id = 1")
    spark.read.format("delta").load(table).selectExpr("id", "upper(v) AS v").write.format(
        "delta"
    ).mode("overwrite").save(table)
    expected = sorted(map(tuple, spark.read.format("delta").load(table).collect()))
    for after, until in ((1, 4), (-1, 2)):  # the older half comes late
        maintain_current_view(
            key_feed(read_feed(spark, table, after=after, until=until), "id"), view
        )

    assert expected == [row[:2] for row in live(spark, view)]


@pytest.fixture
def rekeyed(spark: SparkSession, tmp_path: Path) -> str:
    """Make a table in which keys were updated: 1 became 4, 2 and 3 changed places, 5 stayed what it was."""
    table = str(tmp_path / "table")
    spark.sql(
        f"CREATE TABLE delta.`{table}` (id int, v string) USING delta TBLPROPERTIES (delta.enableChangeDataFeed = true)"
    )
    spark.sql(f"INSERT INTO delta.`{table}` VALUES (1, 'a'), (2, 'b'), (3, 'c'), (5, 'e')")
    spark.sql(
        f"UPDATE delta.`{table}` SET id = CASE id WHEN 1 THEN 4 WHEN 2 THEN 3 WHEN 3 THEN 2 ELSE id END, v = upper(v)"
    )
    return table


REKEYED = [(2, "C"), (3, "B"), (4, "A"), (5, "E")]


@pytest.mark.thorough
def test_a_key_that_is_updated_leaves_no_record_behind(
    spark: SparkSession, rekeyed: str, view: str
) -> None:
    """Its old one is gone, unless another row has it now; and a key that stays keeps its row."""
    changes = key_feed(read_feed(spark, rekeyed, after=-1), "id")
    for after, until in ((1, 2), (-1, 1)):  # the older half comes late
        maintain_current_view(
            key_feed(read_feed(spark, rekeyed, after=after, until=until), "id"), view
        )

    assert REKEYED == sorted(row[:2] for row in current_view(changes).collect())
    assert REKEYED == [row[:2] for row in live(spark, view)]


@pytest.mark.thorough
def test_a_key_that_is_updated_leaves_no_record_behind_in_a_stream(
    spark: SparkSession, rekeyed: str, view: str, tmp_path: Path
) -> None:
    """Neither in one of all changes, nor in one that begins with the rows as they are."""
    feed = stream_feed(spark, rekeyed, after=-1)
    query = maintain_current_view(
        key_feed(feed, "id"), view, checkpoint=str(tmp_path / "checkpoint"), available_now=True
    )
    assert query is not None
    query.awaitTermination()
    assert REKEYED == [row[:2] for row in live(spark, view)]

    stream = key_feed(stream_feed(spark, rekeyed), "id")
    for update in (None, "id = 9 WHERE id = 5"):
        if update is not None:
            spark.sql(f"UPDATE delta.`{rekeyed}` SET {update}")
        query = maintain_current_view(
            stream, f"{view}2", checkpoint=str(tmp_path / "checkpoint2"), available_now=True
        )
        assert query is not None
        query.awaitTermination()
    assert [*REKEYED[:-1], (9, "E")] == [row[:2] for row in live(spark, f"{view}2")]


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["a b", "a,b", "é", "a.b"])
def test_columns_may_have_any_name(spark: SparkSession, view: str, name: str) -> None:
    """Keys, order and all."""
    df = spark.createDataFrame([(1, 1), (1, 2)], ["k", "at"]).toDF(name, f"{name}2")
    maintain_current_view(key_by(df, name, cdc=True, order_by=f"{name}2"), view)

    assert [(1, 2)] == live(spark, view)


@pytest.mark.thorough
def test_a_catalogs_table_can_hold_the_view(spark: SparkSession) -> None:
    """By its name."""
    spark.sql("CREATE SCHEMA IF NOT EXISTS kept")
    maintain_current_view(changelog(spark, INSERT), "kept.view")
    found = live(spark, "kept.view")
    spark.sql("DROP SCHEMA kept CASCADE")

    assert [INSERT] == found


@pytest.mark.thorough
def test_a_key_that_is_null_is_refused(spark: SparkSession, view: str) -> None:
    """And nothing is written."""
    maintain_current_view(changelog(spark, INSERT), view)
    before = newest_version(view)
    with pytest.raises(KeysError, match="column id: a primary key is NULL"):
        maintain_current_view(changelog(spark, (None, False, 5, "x"), OTHER), view)

    assert before == newest_version(view)


def test_changelogs_that_cannot_be_kept_are_refused(spark: SparkSession, view: str) -> None:
    """Without a key, without an order, without a checkpoint, with a column that the view needs."""
    plain = spark.createDataFrame([INSERT], SCHEMA)
    with pytest.raises(KeysLostError):
        maintain_current_view(plain, view)
    with pytest.raises(KeysError, match="nothing tells which row"):
        maintain_current_view(key_by(plain, "id", cdc=True), view)
    with pytest.raises(KeysError, match=r"resolved already.*Hand over the changelog itself"):
        maintain_current_view(current_view(changelog(spark, DELETE)), view)
    with pytest.raises(KeysError, match="_mirror_deleted_at"):
        maintain_current_view(
            key_by(
                plain.withColumnRenamed("v", "_mirror_deleted_at"), "id", cdc=True, order_by="at"
            ),
            view,
        )
    with pytest.raises(LandingZoneError, match="address is empty"):
        maintain_current_view(changelog(spark, DELETE), "")
    for retention in (5, timedelta(days=-1)):
        with pytest.raises(KeysError, match="no length of time"):
            maintain_current_view(changelog(spark, DELETE), view, tombstone_retention=retention)  # type: ignore[arg-type]
    assert not Path(view).exists()
    stream = spark.readStream.format("rate").load()
    with pytest.raises(KeysError, match="Name a checkpoint"):
        maintain_current_view(key_by(stream, "value", cdc=True, order_by="timestamp"), view)


@pytest.mark.thorough
def test_another_changelogs_table_is_left_alone(spark: SparkSession, view: str) -> None:
    """One with other keys, with other columns; and what is no view cannot be read as one."""
    maintain_current_view(changelog(spark, INSERT), view)
    other = spark.createDataFrame([INSERT], SCHEMA)
    with pytest.raises(KeysError, match="made with other keys"):
        maintain_current_view(key_by(other, "at", cdc=True, order_by="id"), view)
    for odd, found in (
        (other.withColumnRenamed("v", "w"), "string in the table, nothing in the changelog"),
        (other.selectExpr("id", "gone", "at", "1 AS v", "2 AS a"), "string in the table, int in"),
    ):
        with pytest.raises(SchemaError, match=rf"column v: the table's columns are not.*{found}"):
            maintain_current_view(key_by(odd, "id", cdc=True, deleted="gone", order_by="at"), view)

    other.write.format("delta").save(f"{view}2")
    with pytest.raises(KeysError, match="holds no current view"):
        read_current_view(spark, f"{view}2")


@pytest.mark.thorough
def test_columns_are_the_same_in_any_case_of_letters(spark: SparkSession, view: str) -> None:
    """Key, deletion, order and arrival among them; the table keeps its own."""
    maintain_current_view(changelog(spark, INSERT, OTHER), view, arrival="v")
    loud = spark.createDataFrame(
        [UPDATE, (2, True, 10, None)], "ID int, GONE boolean, AT int, V string"
    )
    loud = key_by(loud, "ID", cdc=True, deleted="GONE", order_by="AT")
    maintain_current_view(loud, view, arrival="V")

    assert [UPDATE] == live(spark, view)
    assert ["id", "gone", "at", "v"] == read_current_view(spark, view).columns


@pytest.mark.thorough
def test_a_batch_means_what_it_does_in_the_callers_session(spark: SparkSession, view: str) -> None:
    """What Spark asks its session for only when it runs, too."""
    conf = {
        "spark.sql.ansi.enabled": "false",
        "spark.sql.legacy.timeParserPolicy": "LEGACY",
        "spark.sql.mapKeyDedupPolicy": "LAST_WIN",
    }
    with configured(spark, conf):
        rows = spark.createDataFrame([(1, 1, "2020-1-5")], "id int, at int, v string")
        rows = rows.selectExpr(
            "id",
            "at",
            "to_timestamp(v, 'yyyy-MM-dd') AS day",
            "map_from_arrays(array(v, v), array(id, at + 1)) AS m",
        )
        maintain_current_view(key_by(rows, "id", cdc=True, order_by="at"), view)

    assert [(1, 1, datetime(2020, 1, 5), {"2020-1-5": 2})] == live(spark, view)


@pytest.mark.thorough
@pytest.mark.parametrize("was", ["id", "gone"], ids=["key", "deletion column"])
def test_a_column_that_is_another_one_is_not_taken_for_a_key(
    spark: SparkSession, view: str, was: str
) -> None:
    """Renamed, and its name given to a new one: by that every row is live, or one record."""
    maintain_current_view(changelog(spark, DELETE, OTHER), view)
    kind = spark.table(f"delta.`{view}`").schema[was].dataType.simpleString()

    def change(statement: str) -> None:
        spark.sql(f"ALTER TABLE delta.`{view}` {statement}")

    change("SET TBLPROPERTIES ('delta.columnMapping.mode' = 'name')")
    assert [OTHER] == live(spark, view)
    change(f"RENAME COLUMN {was} TO was")
    change(f"RENAME COLUMN was TO {was.upper()}")  # which is the same name
    kept = keys_of(read_current_view(spark, view))
    assert ("ID" if was == "id" else "id",) == kept.partition
    change(f"RENAME COLUMN {was.upper()} TO was")
    with pytest.raises(KeysError, match=f"column {was}: a column of the view's keys was renamed"):
        read_current_view(spark, view)
    change(f"ADD COLUMN {was} {kind}")
    with pytest.raises(KeysError, match="a column of the view's keys was renamed"):
        read_current_view(spark, view)


def marks(view: str) -> list[dict[str, object]]:
    """Return what the commits of a table say that are marked as ours."""
    return [version.ours for version in read_versions(view) if version.ours is not None]


@pytest.mark.thorough
def test_views_that_are_kept_at_the_same_time_mark_their_own_commits_alone(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Two threads of one session; what their caller writes then is not taken for mirrorlib's."""
    views = [str(tmp_path / name) for name in ("one", "other")]
    together = Barrier(len(views))

    def keep(view: str) -> None:
        changes = changelog(spark, INSERT, OTHER)
        together.wait()
        maintain_current_view(changes, view)

    with ThreadPoolExecutor(len(views)) as threads:
        list(threads.map(keep, views))

    ids = [spark.sql(f"DESCRIBE DETAIL delta.`{view}`").collect()[0]["id"] for view in views]
    assert [[{"view": told, "on": 0}] for told in ids] == [marks(view) for view in views]
    for view in views:
        spark.sql(f"DELETE FROM delta.`{view}` WHERE id = 2")
        with pytest.raises(ForeignWriteError, match="DELETE by"):
            maintain_current_view(changelog(spark, OTHER), view)


@pytest.mark.thorough
def test_a_commit_for_another_view_is_somebody_elses(spark: SparkSession, view: str) -> None:
    """Though mirrorlib has marked it."""
    changes = changelog(spark, INSERT)
    maintain_current_view(changes, view)
    rows, mark = spark.read.format("delta").load(view).limit(1), {"mirrorlib": {"view": "another"}}
    writer = rows.write.format("delta").mode("append")
    writer.option("userMetadata", json.dumps(mark)).save(view)
    with pytest.raises(ForeignWriteError, match="somebody else has written"):
        maintain_current_view(changes, view)


@pytest.mark.thorough
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_write_beside_a_merge_does_not_pass_unnoticed(
    spark: SparkSession, view: str, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    """Between the look at the table and the merge, or that and the forgetting: nobody claims a primary key then."""
    maintain_current_view(changelog(spark, INSERT), view)
    merge = maintain._merge

    def merge_and_meddle(*given: Any) -> None:
        insert = f"INSERT INTO delta.`{view}` VALUES (1, false, 7, 'mine', NULL)"
        for step in (merge, None) if when == "after" else (None, merge):
            spark.sql(insert) if step is None else step(*given)

    with monkeypatch.context() as patch:
        patch.setattr(maintain, "_merge", merge_and_meddle)
        maintain_current_view(
            changelog(spark, DELETE, OTHER), view, tombstone_retention=timedelta(0)
        )

    ours = [version.ours is not None for version in read_versions(view)[2:]]
    assert ours == [when == "after", when == "before", True]
    keys = keys_of(read_current_view(spark, view))
    assert (("id",), ()) == (keys.partition, keys.primary)
    with pytest.raises(ForeignWriteError, match=r"version \d, WRITE by"):
        maintain_current_view(changelog(spark, OTHER), view)


@pytest.mark.thorough
def test_a_kept_view_is_never_said_to_have_each_key_once(spark: SparkSession, view: str) -> None:
    """Its tombstones are rows, too: so what is written in its property does not count."""
    maintain_current_view(changelog(spark, INSERT, OTHER), view)
    maintain_current_view(changelog(spark, DELETE), view)

    def found() -> list[tuple[object, ...]]:
        table = read_table(spark, view)
        assert not keys_of(table).unique
        assert "gone" in json.dumps(to_foundry_schema(table)["primaryKey"])
        return [tuple(row)[:-1] for row in current_view(table).collect()]

    assert [OTHER] == found() == live(spark, view)
    told = replace(keys_of(read_table(spark, view)), unique=True).to_json()
    spark.sql(f"ALTER TABLE delta.`{view}` SET TBLPROPERTIES ('mirrorlib.keys' = '{told}')")
    assert [OTHER] == found()


@pytest.mark.thorough
def test_a_copy_of_a_view_claims_no_keys_that_somebody_may_have_doubled(
    spark: SparkSession, view: str
) -> None:
    """A clone begins with the rows of another table, whoever wrote them there; one that is new has none."""
    maintain_current_view(changelog(spark, INSERT, OTHER), view)
    spark.sql(f"INSERT INTO delta.`{view}` VALUES (1, false, 7, 'mine', NULL)")
    spark.sql(f"CREATE TABLE delta.`{view}2` SHALLOW CLONE delta.`{view}`")
    kept = spark.sql(f"SHOW TBLPROPERTIES delta.`{view}`").collect()
    told = ", ".join(f"'{key}' = '{value}'" for key, value in kept if key.startswith("mirrorlib."))
    columns = f"{SCHEMA}, _mirror_deleted_at timestamp"
    spark.sql(f"CREATE TABLE delta.`{view}3` ({columns}) USING delta TBLPROPERTIES ({told})")

    for copy, primary in ((f"{view}2", ()), (f"{view}3", ("id",))):
        keys = keys_of(read_current_view(spark, copy))
        assert (("id",), primary) == (keys.partition, keys.primary)


@pytest.mark.thorough
def test_a_changelog_that_is_resolved_already_is_refused(spark: SparkSession, view: str) -> None:
    """Its tombstones are gone, so a deleted record would stay; one without deletions has none to miss."""
    with pytest.raises(KeysError, match="column gone: the changelog is resolved already"):
        maintain_current_view(current_view(changelog(spark, INSERT, DELETE, OTHER)), view)
    changes = spark.createDataFrame([OTHER], SCHEMA)
    resolved = current_view(key_by(changes, "id", cdc=True, order_by="at"))
    maintain_current_view(resolved, view)
    assert [OTHER] == live(spark, view)
    assert not keys_of(read_table(spark, view)).unique


def test_only_a_feed_is_taken_for_one(spark: SparkSession) -> None:
    """It has the feed's columns, and none of ours."""
    feed = spark.createDataFrame(
        [],
        "id int, _change_type string, _commit_version long, _commit_timestamp timestamp, _mirror_deleted int",
    )
    with pytest.raises(KeysError, match="no change feed"):
        key_feed(feed.drop("_change_type"), "id")
    with pytest.raises(
        KeysError, match="column _mirror_deleted: a column has a name that is needed"
    ):
        key_feed(feed, "id")


@pytest.mark.thorough
def test_nested_columns_are_kept(spark: SparkSession, view: str) -> None:
    """Those that the table is made with, and those that come later."""
    columns = (
        "id int, gone boolean, at int, tags array<string>, s struct<`a b`:int,c:timestamp_ntz>"
    )
    keys = {"cdc": True, "deleted": "gone", "order_by": "at"}
    first = spark.createDataFrame([(1, False, 1, ["x"], (2, None))], columns)
    maintain_current_view(key_by(first, "id", **keys), view)
    later = spark.createDataFrame(
        [(2, False, 2, [], (3, None), {"k": 4})], f"{columns}, m map<string,int>"
    )

    maintain_current_view(key_by(later, "id", **keys), view)

    found = {
        row["id"]: (row["tags"], row["s"][0], row["m"])
        for row in read_current_view(spark, view).collect()
    }
    assert {1: (["x"], 2, None), 2: ([], 3, {"k": 4})} == found


@pytest.mark.thorough("True")
@pytest.mark.parametrize("meets", [True, False])
def test_a_merge_that_another_commit_has_refused_is_tried_again(
    spark: SparkSession, view: str, monkeypatch: pytest.MonkeyPatch, meets: bool
) -> None:
    """Where there is such a commit; else what Spark says is told in our words."""
    maintain_current_view(changelog(spark, INSERT), view)
    merge, calls = maintain._merge, []

    def refused_once(*args: Any) -> None:
        calls.append(args)
        if len(calls) == 1:
            if meets:
                spark.sql(f"ALTER TABLE delta.`{view}` SET TBLPROPERTIES ('somebody' = 'else')")
            msg = "a file was removed by another commit"
            raise PySparkException(msg)
        merge(*args)

    monkeypatch.setattr(maintain, "_merge", refused_once)
    if meets:
        maintain_current_view(changelog(spark, OTHER), view)
        assert [INSERT, OTHER] == live(spark, view)
    else:
        with pytest.raises(MirrorError, match="view"):
            maintain_current_view(changelog(spark, OTHER), view)
