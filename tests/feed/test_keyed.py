"""Keys that tables keep: who writes them, what is claimed when they are read, and when nothing is."""

from __future__ import annotations

import datetime as dt
import json
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import mirrorlib
from mirrorlib.delivery.run import export_tables
from mirrorlib.delta.address import find_feed_table
from mirrorlib.derived.changelog import key_feed
from mirrorlib.errors import FeedError
from mirrorlib.feed.declared_keys import read_table
from mirrorlib.feed.owners import stored_columns
from mirrorlib.feed.read import read_feed
from mirrorlib.keys.foundry import to_foundry_schema
from mirrorlib.keys.read import explain_keys, keys_of
from mirrorlib.keys.tags import tag_columns
from mirrorlib.keys.value import Keys
from mirrorlib.keys.view import current_view
from tables import newest_version, read_versions
from zones import ZoneWriter

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ID = Keys(partition=("id",), primary=("id",), unique=True)
GROUPED = Keys(partition=("id",))


def stored(table: str | Path) -> Keys | None:
    """Read the property from the table's log."""
    found = None
    for path in sorted((Path(table) / "_delta_log").glob("*.json")):
        for line in path.read_text(encoding="utf-8").splitlines():
            action = json.loads(line)
            if "metaData" in action:
                found = action["metaData"]["configuration"].get("mirrorlib.keys")
    return None if found is None else Keys.from_json(found)


def is_tagged(table: str | Path) -> bool:
    """Say whether a table's log has ever had a tag of ours."""
    logs = (Path(table) / "_delta_log").glob("*.json")
    return any("mirrorlib.key\\" in path.read_text(encoding="utf-8") for path in logs)


def claimed(spark: SparkSession, table: str | Path) -> tuple[Keys, bool]:
    """Read a table; give its keys, and whether each occurs once."""
    keys = keys_of(read_table(spark, table))
    return keys, keys.unique


def plain(spark: SparkSession, path: Path, keys: Keys, columns: str = "id int, v string") -> str:
    """Make a table with a feed and a property."""
    spark.sql(
        f"CREATE TABLE delta.`{path}` ({columns}) USING delta TBLPROPERTIES "
        f"('delta.enableChangeDataFeed' = 'true', 'delta.columnMapping.mode' = 'name', 'mirrorlib.keys' = '{keys.to_json()}')"
    )
    return str(path)


@pytest.mark.smoke
def test_a_mirror_has_the_keys_of_its_metadata(
    spark: SparkSession, zone: ZoneWriter, target: str
) -> None:
    """One row each where marker 0 is an upsert; a partition key alone where it may double them."""
    orders = zone.table("orders", keys=["ID"])
    orders.file([{"id": 1, "v": "a"}], markers=[0])
    once, twice = f"{target}/once", f"{target}/twice"
    mirrorlib.apply(spark, str(zone), once, insert_policy="upsert")
    mirrorlib.apply(spark, str(zone), twice)

    assert (ID, True) == claimed(spark, f"{once}/orders")
    assert (GROUPED, False) == claimed(spark, f"{twice}/orders")
    assert 1 == newest_version(f"{once}/orders")


@pytest.mark.thorough
def test_a_claim_that_is_given_up_does_not_come_back(
    spark: SparkSession, zone: ZoneWriter, target: str
) -> None:
    """A batch under the other policy may double keys; one under the first does not undo that."""
    orders = zone.table("orders", keys=["id"])
    table = f"{target}/orders"
    found = []
    for policy in ("upsert", "upsert", "append", "append", "upsert"):
        orders.file([{"id": 1, "v": policy}], markers=[0])
        mirrorlib.apply(spark, str(zone), target, insert_policy=policy)
        found.append((stored(table), newest_version(table)))

    assert [ID, ID, GROUPED, GROUPED, GROUPED] == [keys for keys, _ in found]
    # Creating, a commit a batch, and one more where the claim was given up.
    assert [1, 2, 4, 5, 6] == [version for _, version in found]
    assert not is_tagged(table)


@pytest.mark.thorough
def test_keys_that_are_declared_later_are_kept_from_then_on(
    spark: SparkSession, zone: ZoneWriter, target: str
) -> None:
    """Rows that were there before may have any."""
    orders = zone.table("orders")
    orders.file([{"id": 1, "v": "a"}])
    mirrorlib.apply(spark, str(zone), target, insert_policy="upsert")
    assert stored(f"{target}/orders") is None
    orders.metadata(keys=["id"])
    orders.file([{"id": 1, "v": "b"}], markers=[4])
    mirrorlib.apply(spark, str(zone), target, insert_policy="upsert")

    assert GROUPED == stored(f"{target}/orders")
    assert not keys_of(read_table(spark, f"{target}/orders")).primary


@pytest.mark.thorough
def test_who_else_writes_takes_the_claim_that_keys_occur_once(
    spark: SparkSession, zone: ZoneWriter, target: str
) -> None:
    """An append does, an OPTIMIZE does not; and a mirror that allows it gives the claim up for good."""
    orders = zone.table("orders", keys=["id"])
    orders.file([{"id": 1, "v": "a"}])
    mirrorlib.apply(spark, str(zone), target, insert_policy="upsert")
    table = f"{target}/orders"
    spark.sql(f"OPTIMIZE delta.`{table}`")
    assert (ID, True) == claimed(spark, table)

    spark.sql(f"INSERT INTO delta.`{table}` VALUES (1, 'other')")
    assert (GROUPED, False) == claimed(spark, table)
    assert keys_of(read_table(spark, table, version=1)).unique

    orders.file([{"id": 2, "v": "b"}], markers=[4])
    mirrorlib.apply(spark, str(zone), target, insert_policy="upsert", allow_foreign_writes=True)
    assert (GROUPED, False) == claimed(spark, table)


@pytest.mark.thorough
def test_a_commit_of_no_rows_vouches_for_none(
    spark: SparkSession, zone: ZoneWriter, target: str
) -> None:
    """After a reset an old life is fenced off first; what somebody else has written is there until the next commit."""
    orders = zone.table("orders", keys=["id"])
    orders.file([{"id": 1, "v": "a"}])
    mirrorlib.apply(spark, str(zone), target, insert_policy="upsert")
    table = f"{target}/orders"
    spark.sql(f"INSERT INTO delta.`{table}` VALUES (1, 'other')")
    mirrorlib.reset(spark, target, "orders")
    mirrorlib.apply(spark, str(zone), target, insert_policy="upsert")

    told = [(one.number, one.ours) for one in read_versions(table)]
    (fence,) = [version for version, ours in told if ours and ours.get("outcome") == "fence"]
    assert (ID, True) == claimed(spark, table)
    assert not keys_of(read_table(spark, table, version=fence)).primary


@pytest.mark.thorough
def test_copies_and_histories_have_keys(spark: SparkSession, tmp_path: Path) -> None:
    """A copy one row each, a history all states of each, a log none; other keys take their place."""
    table = plain(spark, tmp_path / "source" / "t", Keys(), "id int, k int, v string")
    spark.sql(f"INSERT INTO delta.`{table}` VALUES (1, 1, 'a'), (2, 2, 'b')")

    def export(mode: str, name: str, key: str) -> None:
        report = export_tables(
            spark,
            tmp_path / "source",
            consumer=name,
            to=f"delta:{tmp_path / mode}",
            mode=mode,
            keys=[key],
        )
        assert report.ok, str(report)

    for mode in ("current", "scd2", "changes"):
        export(mode, mode, "id")
    assert (ID, True) == claimed(spark, tmp_path / "current" / "t")
    assert (GROUPED, False) == claimed(spark, tmp_path / "scd2" / "t")
    assert (Keys(), False) == claimed(spark, tmp_path / "changes" / "t")

    before = newest_version(tmp_path / "current" / "t")
    for value in ("c", "d"):
        spark.sql(f"UPDATE delta.`{table}` SET v = '{value}'")
        export("current", "current", "k")
    assert Keys(partition=("k",), primary=("k",)) == stored(tmp_path / "current" / "t")
    assert before + 4 == newest_version(tmp_path / "current" / "t")


def test_columns_that_are_gone_leave_no_keys(spark: SparkSession, tmp_path: Path) -> None:
    """`explain_keys` says why; a name in another case is the same one."""
    table = plain(spark, tmp_path / "t", Keys(partition=("ID", "k")), "id int, k int, v string")
    assert Keys(partition=("id", "k")) == keys_of(read_table(spark, table))

    spark.sql(f"ALTER TABLE delta.`{table}` RENAME COLUMN k TO l")
    rows = read_table(spark, table)
    assert Keys() == keys_of(rows.where("v > ''"))
    assert "names are columns which it no longer has" in str(explain_keys(rows.where("v > ''")))
    assert Keys() == keys_of(read_feed(spark, table, after=-1))


@pytest.mark.thorough("new")
@pytest.mark.parametrize(
    "statements",
    [
        ["RENAME COLUMN id TO was", "ADD COLUMN id int"],
        ["RENAME COLUMN id TO was", "RENAME COLUMN k TO id", "RENAME COLUMN was TO k"],
    ],
    ids=["new", "exchanged"],
)
def test_columns_that_have_become_others_leave_no_keys(
    spark: SparkSession, tmp_path: Path, statements: list[str]
) -> None:
    """Another one has the name of the key now; before that, and by its other name, nothing has changed."""
    columns = "id int, k int, v string"
    table = plain(spark, tmp_path / "t", Keys(partition=("id",)), columns)
    rows = spark.createDataFrame([(1, 2, "a")], columns)
    mark = '{"mirrorlib": {"batch": 1}}'
    rows.write.format("delta").mode("append").option("userMetadata", mark).save(table)
    for statement in ("RENAME COLUMN v TO w", *statements):
        spark.sql(f"ALTER TABLE delta.`{table}` {statement}")

    assert GROUPED == keys_of(read_table(spark, table, version=2))
    assert Keys() == keys_of(read_table(spark, table))
    assert "names are columns which it no longer has" in str(explain_keys(read_table(spark, table)))
    assert Keys() == keys_of(read_feed(spark, table, after=0))
    commits = find_feed_table(spark, table).commits
    assert () == stored_columns(commits, commits.newest, grouping=True)


@pytest.mark.thorough
def test_a_column_of_another_type_is_no_key_any_more(spark: SparkSession, tmp_path: Path) -> None:
    """Whoever writes a table anew with another schema keeps its properties; a wider type has the same values."""
    table = str(tmp_path / "t")
    spark.sql(
        f"CREATE TABLE delta.`{table}` (id int, v string) USING delta "
        f"TBLPROPERTIES ('mirrorlib.keys' = '{GROUPED.to_json()}')"
    )
    for other in ("CAST(1 AS bigint)", "array(1)"):
        rows = spark.sql(f"SELECT {other} AS id, 'x' AS v").write.format("delta")
        rows.mode("overwrite").option("overwriteSchema", "true").save(table)
    commits = find_feed_table(spark, table).commits

    found = [keys_of(read_table(spark, table, version=version)) for version in range(3)]
    assert [GROUPED, GROUPED, Keys()] == found
    for version in (-1, 3):
        with pytest.raises(FeedError, match="version"):
            read_table(spark, table, version=version)
    assert GROUPED == stored(table)
    assert "names are columns which it no longer has" in str(explain_keys(read_table(spark, table)))
    told = [stored_columns(commits, version, grouping=True) for version in range(3)]
    assert [("id",), ("id",), ()] == told


@pytest.mark.thorough
def test_keys_of_a_quiet_table_outlive_its_log(
    spark: SparkSession, zone: ZoneWriter, target: str
) -> None:
    """A vacuum says again whose the rows are, before Delta forgets the commit that wrote them; not of others' rows."""
    zone.table("orders", keys=["id"]).file([{"id": 1, "v": "a"}], markers=[0])
    mirrorlib.apply(spark, str(zone), target, insert_policy="upsert")
    path, claims = Path(target, "orders"), []
    alter = f"ALTER TABLE delta.`{path}` SET TBLPROPERTIES"
    soon = ", ".join(
        f"'delta.{one}RetentionDuration' = 'interval 1 second'" for one in ("log", "deletedFile")
    )
    spark.sql(f"{alter} ('delta.checkpointInterval' = '1', {soon})")

    def forget(until: int) -> None:
        for version in range(until):
            for file in (path / "_delta_log").glob(f"{version:020d}.*"):
                file.unlink()
        claims.append(claimed(spark, path))

    for _ in range(2):
        assert mirrorlib.vacuum(spark, target).ok
        forget(newest_version(path))
    seen = newest_version(path)
    spark.sql(
        f"INSERT INTO delta.`{path}` VALUES (1, 'b')"
    )  # after it looked, and before it said so
    spark.sql(f"{alter} ('mirrorlib.seen' = '{seen}')")
    forget(0)
    forget(newest_version(path))
    assert mirrorlib.vacuum(spark, target).ok
    forget(newest_version(path))

    assert [(ID, True)] * 2 == claims[:2]
    assert [False] * 3 == [unique for _, unique in claims[2:]]


def test_a_feed_has_the_partition_key(spark: SparkSession, tmp_path: Path) -> None:
    """Net changes have it, too; a changelog needs to be told what identifies a row, as several may have a key."""
    table = plain(spark, tmp_path / "t", GROUPED)
    spark.sql(f"INSERT INTO delta.`{table}` VALUES (1, 'a')")
    spark.sql(f"UPDATE delta.`{table}` SET v = 'b'")

    assert GROUPED == keys_of(read_feed(spark, table, after=-1))
    assert GROUPED == keys_of(read_feed(spark, table, after=-1, net=True, images="post"))
    assert GROUPED == keys_of(mirrorlib.stream_feed(spark, table, after=0))
    changes = key_feed(read_feed(spark, table, after=-1), "id")
    assert [(1, "b")] == [row[:2] for row in current_view(changes).collect()]


def test_a_feed_tells_updates_by_the_keys_of_its_table(
    spark: SparkSession, zone: ZoneWriter, target: str
) -> None:
    """Where each is one row, until somebody else writes; `[]` asks for none."""
    orders = zone.table("orders", keys=["id"])
    path = f"{target}/orders"

    def net(**options: object) -> set[tuple[object, ...]]:
        rows = read_feed(spark, path, net=True, **options).select("_change_type", "id", "n")
        return {tuple(row) for row in rows.collect()}

    for n in (10, 11):
        orders.file([{"id": 1, "n": n}])
        assert mirrorlib.apply(spark, str(zone), target, insert_policy="upsert").ok
    after = newest_version(path) - 1
    update = {("update_preimage", 1, 10), ("update_postimage", 1, 11)}

    assert update == net(after=after)
    assert {("delete", 1, 10), ("insert", 1, 11)} == net(after=after, keys=[])
    spark.sql(f"INSERT INTO delta.`{path}` VALUES (2, 20)")
    assert update == net(after=after, until=after + 1)
    assert {("delete", 1, 10), ("insert", 1, 11), ("insert", 2, 20)} == net(after=after)


def test_dates_and_decimals_can_be_keys_of_a_table(spark: SparkSession, tmp_path: Path) -> None:
    """Mirrors have such; `key_by` and Foundry keep their own lists."""
    columns = "id decimal(9,2), at date, z timestamp_ntz, v string"
    keys = Keys(partition=("id", "at", "z"))
    table = plain(spark, tmp_path / "t", keys, columns)
    spark.sql(
        f"INSERT INTO delta.`{table}` VALUES (1.5, date'2024-01-01', timestamp_ntz'2024-01-01', 'a')"
    )

    assert keys == keys_of(read_table(spark, table).where("v = 'a'"))
    feed = read_feed(spark, table, after=-1)
    assert [(Decimal("1.50"), dt.date(2024, 1, 1))] == [
        row[:2] for row in current_view(key_feed(feed, ["id", "at", "z"])).collect()
    ]
    assert keys == keys_of(mirrorlib.propagate(keys, spark.read.format("delta").load(table)))
    with pytest.raises(mirrorlib.KeysError, match="a key column cannot have its type"):
        mirrorlib.key_by(read_table(spark, table), "at")
    with pytest.raises(mirrorlib.KeysError, match="column z"):
        to_foundry_schema(read_table(spark, table))


@pytest.mark.thorough
def test_tags_on_disk_count_for_nothing_and_are_not_passed_on(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Whoever wrote them: neither a reader nor a copy has them."""
    table = str(tmp_path / "source" / "t")
    rows = tag_columns(spark.createDataFrame([(1, "a")], "id int, v string"), ID, "key_by")
    rows.write.format("delta").option("delta.enableChangeDataFeed", "true").save(table)
    assert is_tagged(table)
    report = export_tables(
        spark, tmp_path / "source", consumer="c", to=f"delta:{tmp_path / 'copy'}", mode="current"
    )

    assert report.ok, str(report)
    assert not is_tagged(tmp_path / "copy" / "t")
    assert [{}, {}] == [field.metadata for field in read_table(spark, table).schema.fields]


@pytest.mark.thorough
def test_a_kept_view_is_read_with_its_keys(spark: SparkSession, tmp_path: Path) -> None:
    """Tombstones and all; new columns are added, and whoever else writes is refused."""
    view = str(tmp_path / "view")
    schema = "id int, gone boolean, at int"
    for rows, columns in (
        ([(1, False, 1), (2, True, 1)], schema),
        ([(3, False, 1, "x")], f"{schema}, v string"),
    ):
        changes = mirrorlib.key_by(
            spark.createDataFrame(rows, columns), "id", cdc=True, deleted="gone", order_by="at"
        )
        mirrorlib.maintain_current_view(changes, view)
    whole = Keys(partition=("id",), primary=("id",), deleted="gone", order_by=("at",))

    assert (whole, False) == claimed(spark, view)
    assert [1, 3] == sorted(row.id for row in current_view(read_table(spark, view)).collect())
    assert not is_tagged(view)

    spark.sql(f"DELETE FROM delta.`{view}` WHERE id = 2")
    assert (GROUPED, False) == claimed(spark, view)
    with pytest.raises(mirrorlib.ForeignWriteError, match="somebody else has written"):
        mirrorlib.maintain_current_view(changes, view)
