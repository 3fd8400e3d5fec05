"""Reading windows of change feeds on real Delta: whole, or an error that says from where on they can be read."""

from __future__ import annotations

import json
import os
import shutil
from collections import Counter
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

import pytest

import mirrorlib
from feeds import FEED, Table, told
from mirrorlib.delta.address import find_feed_table
from mirrorlib.delta.commits import Commits
from mirrorlib.errors import FeedError, FeedExpiredError
from mirrorlib.feed.window import open_window
from mirrorlib.store import LocalStore, open_store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def seen(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Table:
    """Give a table that no test changes."""
    return make(spark, tmp_path_factory.mktemp("seen"))


@pytest.fixture
def table(spark: SparkSession, tmp_path: Path) -> Table:
    """Give a table of the test's own."""
    return make(spark, tmp_path)


def make(spark: SparkSession, folder: Path) -> Table:
    """Make a table of five versions: created, three rows, one updated, one deleted, one more."""
    # Version 3 can be read without those before it, which get lost.
    properties = f"{FEED}, 'delta.checkpointInterval' = '3'"
    return Table(spark, folder / "a table", "id bigint, v string", properties).run(
        "INSERT INTO {t} VALUES (1, 'a'), (2, 'b'), (3, 'c')",
        "UPDATE {t} SET v = 'B' WHERE id = 2",
        "DELETE FROM {t} WHERE id = 3",
        "INSERT INTO {t} VALUES (4, 'd')",
    )


ALL = [
    (1, "insert", 1, "a"), (1, "insert", 2, "b"), (1, "insert", 3, "c"),
    (2, "update_postimage", 2, "B"), (2, "update_preimage", 2, "b"),
    (3, "delete", 3, "c"),
    (4, "insert", 4, "d"),
]  # fmt: skip


@pytest.mark.thorough
@pytest.mark.parametrize("kind", ["Corrupt", "Missing"])
def test_a_session_that_leaves_files_out_is_no_reader(
    spark: SparkSession, seen: Table, kind: str
) -> None:
    """Delta heeds the session alone, so a window could lack changes without a word."""
    session = spark.newSession()
    session.conf.set(f"spark.sql.files.ignore{kind}Files", "true")

    with pytest.raises(FeedError, match=f"ignore{kind}Files"):
        mirrorlib.read_feed(session, seen.path, after=-1)
    with pytest.raises(FeedError, match=f"ignore{kind}Files"):
        mirrorlib.stream_feed(session, seen.path)


@pytest.mark.parametrize("until", [None, 1, 3, 4])
@pytest.mark.parametrize("after", [-1, 1, 2, 4])
def test_a_window_holds_what_came_after_one_version_and_up_to_another(
    seen: Table, after: int, until: int | None
) -> None:
    """Both ends stated, every version between them, none of the others."""
    if until is not None and until < after:
        with pytest.raises(FeedError, match="ends before it starts"):
            seen.read(after=after, until=until)
        return
    expected = [row for row in ALL if after < row[0] <= (4 if until is None else until)]

    assert expected == told(seen.read(after=after, until=until))


def test_moments_are_bounds_too(seen: Table) -> None:
    """A commit's own moment is behind `after` and within `until`; between two commits nothing has happened."""
    times = seen.times()
    for version in (0, 2, 4):
        moment = times[version]
        assert [row for row in ALL if row[0] > version] == told(seen.read(after=moment))
        assert [row for row in ALL if row[0] <= version] == told(seen.read(after=-1, until=moment))
        before = moment - timedelta(milliseconds=1)
        assert [row for row in ALL if row[0] >= version] == told(seen.read(after=before))
    text = times[2].strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]
    assert [row for row in ALL if row[0] > 2] == told(seen.read(after=text))
    assert ALL == told(seen.read(after="1999-12-31"))
    assert [] == told(seen.read(after=times[4], until=datetime.now(UTC)))


@pytest.mark.thorough
def test_bounds_beyond_the_last_commit_are_it_where_the_session_says_so(seen: Table) -> None:
    """As Delta's own setting has it: nothing after them, and up to the last commit."""
    setting = "spark.databricks.delta.changeDataFeed.timestampOutOfRange.enabled"
    seen.spark.conf.set(setting, "true")
    try:
        for beyond in (99, "2199-01-01", datetime(2199, 1, 1, tzinfo=UTC)):
            assert [] == told(seen.read(after=beyond))
            assert ALL == told(seen.read(after=-1, until=beyond))
    finally:
        seen.spark.conf.unset(setting)
    with pytest.raises(FeedError, match="beyond the newest version"):
        seen.read(after=-1, until=99)


@pytest.mark.thorough("Asia/Tokyo")
@pytest.mark.parametrize("zone", ["America/New_York", "Asia/Tokyo"])
def test_a_text_is_a_moment_in_utc_whatever_the_session_says(seen: Table, zone: str) -> None:
    """And an aware datetime, or a text that names its zone, is what it is, in any zone."""
    moment = seen.times()[2]
    there = moment.astimezone(ZoneInfo(zone))
    before = seen.spark.conf.get("spark.sql.session.timeZone") or "UTC"
    seen.spark.conf.set("spark.sql.session.timeZone", zone)
    try:
        text = moment.strftime("%Y-%m-%d %H:%M:%S.%f")
        found = [told(seen.read(after=one)) for one in (text, moment, there, there.isoformat())]
    finally:
        seen.spark.conf.set("spark.sql.session.timeZone", before)
    assert [[row for row in ALL if row[0] > 2]] * 4 == found


@pytest.mark.parametrize(
    "bounds, reason",
    [
        ({}, "where to start"),
        ({"after": 5}, "beyond the newest version"),
        ({"after": 0, "until": 5}, "beyond the newest version"),
        ({"after": -2}, "no version"),
        ({"after": True}, "no version"),
        ({"after": "yesterday"}, "no moment"),
        ({"after": "2024-02-31"}, "no moment"),
        ({"after": datetime(2024, 1, 1)}, "no time zone"),  # on purpose
        ({"after": "2199-01-01"}, "in the future"),
        ({"after": 0, "images": "pre"}, "neither"),
        ({"after": 0, "keys": ["nobody"]}, "no column"),
    ],
    ids=str,
)
def test_wrong_bounds_are_told(seen: Table, bounds: dict[str, Any], reason: str) -> None:
    """One error, which names the table and what was found."""
    with pytest.raises(FeedError, match=reason) as caught:
        seen.read(**bounds)
    assert not isinstance(caught.value, FeedExpiredError)
    assert caught.value.table == seen.path


def test_no_table(spark: SparkSession, tmp_path: Path) -> None:
    """Neither by path nor by name."""
    with pytest.raises(FeedError, match="no Delta table"):
        mirrorlib.read_feed(spark, str(tmp_path / "none"), after=0)
    with pytest.raises(FeedError, match="no such table"):
        mirrorlib.read_feed(spark, "default.none", after=0)


def test_a_version_gone_from_the_log_is_no_silent_gap(table: Table) -> None:
    """Delta rebuilds it from a checkpoint and leaves its changes out; the error says from where on all is there."""
    for version in (0, 1, 2):
        os.unlink(table.log(version))  # noqa: PTH108  # as Delta's own cleaning does

    for after in (-1, 0, 1):
        with pytest.raises(FeedExpiredError, match="no longer holds version") as caught:
            table.read(after=after)
        assert 3 == caught.value.first_readable
    assert [row for row in ALL if row[0] > 2] == told(table.read(after=2))
    with pytest.raises(FeedExpiredError):
        table.read(after="2001-01-01")


def test_versions_without_a_feed_are_told(spark: SparkSession, tmp_path: Path) -> None:
    """Switched on late, off for a while: the first version of the last stretch is named."""
    table = Table(spark, tmp_path / "t", "id bigint", "'delta.enableChangeDataFeed' = 'false'").run(
        "INSERT INTO {t} VALUES (1)",  # 1
        f"ALTER TABLE {{t}} SET TBLPROPERTIES ({FEED})",  # 2
        "INSERT INTO {t} VALUES (2)",  # 3
        "ALTER TABLE {t} SET TBLPROPERTIES ('delta.enableChangeDataFeed' = 'false')",  # 4
        "INSERT INTO {t} VALUES (3)",  # 5
        f"ALTER TABLE {{t}} SET TBLPROPERTIES ({FEED})",  # 6
        "INSERT INTO {t} VALUES (4)",  # 7
    )
    for after, until in ((0, 1), (0, 7), (1, 4), (2, 7), (3, 4), (4, 5)):
        with pytest.raises(FeedExpiredError, match="feed was off") as caught:
            table.read(after=after, until=until)
        assert 6 == caught.value.first_readable
    assert [(3, "insert", 2)] == told(table.read(after=1, until=3), "id")
    assert [(7, "insert", 4)] == told(table.read(after=5), "id")
    table.run("ALTER TABLE {t} SET TBLPROPERTIES ('delta.enableChangeDataFeed' = 'false')")
    with pytest.raises(FeedExpiredError, match="enable-feed") as caught:
        table.read(after=7)
    assert caught.value.first_readable is None


@pytest.mark.thorough
def test_a_vacuum_in_between_is_seen(spark: SparkSession, table: Table) -> None:
    """The files of the update and the delete are gone; what came after them can be read."""
    spark.conf.set("spark.databricks.delta.retentionDurationCheck.enabled", "false")
    spark.conf.set("spark.databricks.delta.vacuum.logging.enabled", "true")
    try:
        table.run("VACUUM {t} RETAIN 0 HOURS", "INSERT INTO {t} VALUES (5, 'e')")
    finally:
        spark.conf.unset("spark.databricks.delta.retentionDurationCheck.enabled")
        spark.conf.unset("spark.databricks.delta.vacuum.logging.enabled")

    with pytest.raises(FeedExpiredError, match="VACUUM") as caught:
        table.read(after=0)
    first = caught.value.first_readable
    assert first is not None
    assert [row for row in ALL if row[0] >= first] == told(table.read(after=first - 1, until=6))


@pytest.mark.thorough
def test_a_table_made_anew_is_another_one(spark: SparkSession, table: Table) -> None:
    """Replaced in place, its feed cannot go on."""
    spark.range(3).selectExpr("id", "'x' AS v").write.format("delta").option(
        "overwriteSchema", "true"
    ).mode("overwrite").save(table.path)
    assert [(5, "delete", 1, "a")] == told(table.read(after=4))[:1], (
        "the schema is the same, so it goes on"
    )
    spark.range(3).write.format("delta").option("overwriteSchema", "true").mode("overwrite").save(
        table.path
    )

    for after in (4, 5):  # 6 is the version that has replaced them
        with pytest.raises(FeedExpiredError, match="replaced rows and schema") as caught:
            table.read(after=after)
        assert 7 == caught.value.first_readable
    assert [] == told(table.read(after=6), "id")
    assert ["id", "_change_type", "_commit_version", "_commit_timestamp"] == table.read(
        after=6
    ).columns


@pytest.mark.thorough
def test_a_table_that_replaced_another_begins_with_what_comes(table: Table) -> None:
    """CREATE OR REPLACE TABLE gives it another id; the versions before it are read as they were."""
    place = f"LOCATION '{table.path}'"
    table.run(f"CREATE TABLE replaced USING delta {place}")
    try:
        columns = f"(id bigint, v string) USING delta TBLPROPERTIES ({FEED})"
        table.run(f"CREATE OR REPLACE TABLE replaced {columns} {place}")
    finally:
        table.run("DROP TABLE replaced")
    table.run("INSERT INTO {t} VALUES (9, 'z')")

    for after in (-1, 4):
        with pytest.raises(FeedExpiredError, match="version 5 made the table anew") as caught:
            table.read(after=after)
        assert 6 == caught.value.first_readable
    assert [(6, "insert", 9, "z")] == told(table.read(after=5))
    assert ALL == told(table.read(after=-1, until=4))


@pytest.mark.thorough
def test_a_table_made_again_in_the_same_place_is_read_as_what_it_is(
    spark: SparkSession, table: Table
) -> None:
    """A version that only the one before it had is told; positions that have to outlive that are a consumer's."""
    shutil.rmtree(table.path)
    again = Table(spark, Path(table.path), "id bigint, v string").run(
        "INSERT INTO {t} VALUES (9, 'z')"
    )

    assert [(1, "insert", 9, "z")] == told(again.read(after=-1))
    with pytest.raises(FeedError, match="beyond the newest version") as caught:
        again.read(after=4)
    assert "4, the newest is 1" in str(caught.value)


@pytest.mark.thorough
def test_a_window_of_nothing_below_the_log_is_told(table: Table) -> None:
    """What its columns were, nothing tells any more; the error leads on."""
    for version in (0, 1, 2):
        for file in Path(table.path, "_delta_log").glob(f"{version:020d}.*"):
            file.unlink()

    with pytest.raises(FeedExpiredError, match="no longer tells") as caught:
        table.read(after=1, until=1)
    assert 3 == caught.value.first_readable
    assert "read on; the log is whole from version 3 on" in str(caught.value)
    assert [] == told(table.read(after=3, until=3))


def test_a_log_that_begins_between_two_checkpoints_is_read_from_the_next_one_on(
    table: Table,
) -> None:
    """As Delta 3 cleans it, which reads no version before that, whatever files it has left."""
    for version in (0, 1):
        for file in Path(table.path, "_delta_log").glob(f"{version:020d}.*"):
            file.unlink()

    for after in (0, 1):
        with pytest.raises(FeedExpiredError) as caught:
            table.read(after=after)
        assert 3 == caught.value.first_readable
    assert [row for row in ALL if row[0] >= 3] == told(table.read(after=2))


def test_what_lies_before_the_first_version_is_none(seen: Table) -> None:
    """Nothing of it has been lost."""
    for version in (-1, "1999-12-31"):
        with pytest.raises(FeedError, match="before the table's first") as caught:
            mirrorlib.read_table(seen.spark, seen.path, version=version)  # type: ignore[arg-type]  # as a moment
        assert not isinstance(caught.value, FeedExpiredError)


@pytest.mark.thorough
def test_a_merge_that_writes_files_again_and_changes_nothing_is_none(
    spark: SparkSession, tmp_path: Path
) -> None:
    """As where each clause has a condition that no row meets; rows that a deletion vector hides do not count."""
    vectors = "'delta.enableDeletionVectors' ="
    table = Table(spark, tmp_path / "t", "id bigint, v string", f"{FEED}, {vectors} 'true'").run(
        "INSERT INTO {t} SELECT /*+ COALESCE(1) */ * FROM VALUES (1L, 'a'), (2L, 'b')",
        "DELETE FROM {t} WHERE id = 1",
        f"ALTER TABLE {{t}} SET TBLPROPERTIES ({vectors} 'false')",
        "MERGE INTO {t} t USING (SELECT 7L AS id) s ON t.id = s.id WHEN MATCHED THEN DELETE "
        "WHEN NOT MATCHED BY SOURCE AND t.v = 'z' THEN DELETE",
        "INSERT INTO {t} VALUES (3, 'c')",
    )
    merged = Path(table.log(4)).read_text("utf-8")
    assert '"operation":"MERGE"' in merged
    assert '"remove"' in merged

    assert [(5, "insert", 3, "c")] == told(table.read(after=3))


def test_columns_come_go_and_widen_within_a_window(spark: SparkSession, tmp_path: Path) -> None:
    """Each stretch is read with its own schema and told in the last one's."""
    table = Table(
        spark,
        tmp_path / "t",
        "id bigint, n int, old string",
        f"{FEED}, 'delta.enableTypeWidening' = 'true'",
    ).run(
        "INSERT INTO {t} VALUES (1, 10, 'o')",  # 1
        "ALTER TABLE {t} ALTER COLUMN n TYPE bigint",  # 2
        "UPDATE {t} SET n = 10000000000 WHERE id = 1",  # 3
        "ALTER TABLE {t} SET TBLPROPERTIES ('delta.columnMapping.mode' = 'name')",  # 4
        "ALTER TABLE {t} RENAME COLUMN n TO `the number`",  # 5
        "ALTER TABLE {t} DROP COLUMN old",  # 6
        "ALTER TABLE {t} ADD COLUMNS (old double)",  # 7
        "INSERT INTO {t} VALUES (2, 20, 2.5)",  # 8
    )
    frame = table.read(after=-1)

    assert [
        "id",
        "the number",
        "old",
        "_change_type",
        "_commit_version",
        "_commit_timestamp",
    ] == frame.columns
    assert [
        (1, "insert", 1, 10, None),
        (3, "update_postimage", 1, 10**10, None),
        (3, "update_preimage", 1, 10, None),
        (8, "insert", 2, 20, 2.5),
    ] == told(frame, "id", "`the number`", "old")
    assert [(1, "insert", 1, 10, "o")] == told(table.read(after=-1, until=1), "id", "n", "old")


@pytest.mark.smoke
def test_a_delete_and_an_insert_of_one_key_are_an_update(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Within one commit, where keys are known; keys of other commits and true images stay as they are."""
    table = Table(spark, tmp_path / "t", "id bigint, v string").run(
        "INSERT INTO {t} VALUES (1, 'a'), (2, 'b')",
        "INSERT OVERWRITE {t} VALUES (1, 'A'), (3, 'c')",
    )
    expected = [
        (2, "delete", 2, "b"),
        (2, "insert", 3, "c"),
        (2, "update_postimage", 1, "A"),
        (2, "update_preimage", 1, "a"),
    ]
    assert expected == told(table.read(after=1, keys=["ID"]))
    assert [row for row in expected if "pre" not in row[1]] == told(
        table.read(after=1, keys=["id"], images="post")
    )
    assert Counter(["delete"] * 2 + ["insert"] * 2) == Counter(
        row[1] for row in told(table.read(after=1))
    )


@pytest.mark.thorough
def test_by_catalog_name(spark: SparkSession) -> None:
    """A table of the session's catalog."""
    spark.sql("DROP TABLE IF EXISTS feed_by_name")
    spark.sql(f"CREATE TABLE feed_by_name (id bigint) USING delta TBLPROPERTIES ({FEED})")
    try:
        spark.sql("INSERT INTO feed_by_name VALUES (1)")
        assert [(1, "insert", 1)] == told(
            mirrorlib.read_feed(spark, "default.feed_by_name", after=0), "id"
        )
    finally:
        spark.sql("DROP TABLE feed_by_name")


@pytest.mark.parametrize("bound", [1.0, Decimal(1), date(2024, 1, 1), [1], float("nan")], ids=repr)
def test_bounds_of_other_types_are_told(seen: Table, bound: Any) -> None:
    """What is no whole number is no version, even where it is equal to one."""
    for bounds in ({"after": bound}, {"after": 0, "until": bound}):
        with pytest.raises(FeedError, match="is no version"):
            seen.read(**bounds)


@pytest.mark.thorough
def test_maps_do_not_hinder_the_telling_of_updates(spark: SparkSession, tmp_path: Path) -> None:
    """In whatever commit pairs; a map is no key itself."""
    table = Table(spark, tmp_path / "t", "id bigint, m map<string, int>, v variant").run(
        "INSERT INTO {t} VALUES (1, map('a', 1), NULL), (2, NULL, NULL)",
        "INSERT OVERWRITE {t} VALUES (1, map('a', 2), parse_json('[1]')), (3, NULL, NULL)",
    )
    expected = [
        (2, "delete", 2, None),
        (2, "insert", 3, None),
        (2, "update_postimage", 1, {"a": 2}),
        (2, "update_preimage", 1, {"a": 1}),
    ]

    for keys in (["id"], "id"):  # a lone text is one name
        assert expected == told(table.read(after=1, keys=keys), "id", "m")
    with pytest.raises(FeedError, match="no key"):
        table.read(after=1, keys=["m"])


def test_optimizing_pairs_nothing(spark: SparkSession, tmp_path: Path) -> None:
    """It removes and adds files, and changes no row."""
    table = Table(spark, tmp_path / "t", "id bigint").run(
        "INSERT INTO {t} VALUES (1)", "INSERT INTO {t} VALUES (2)", "OPTIMIZE {t}"
    )
    commits = find_feed_table(spark, table.path).commits

    assert (False, False) == (commits.read(3).changes, commits.read(3).pairs)


@pytest.mark.thorough
def test_columns_named_like_helpers_do_no_harm(spark: SparkSession, tmp_path: Path) -> None:
    """Whatever case they are in."""
    columns = "id bigint, _mirror_sign int, _MIRROR_place int, _mirror__times int"
    table = Table(spark, tmp_path / "t", columns).run(
        "INSERT INTO {t} VALUES (1, 5, 6, 7)", "INSERT OVERWRITE {t} VALUES (1, 8, 6, 7)"
    )
    for net in (False, True):
        frame = table.read(after=1, keys=["id"], net=net)
        assert [(2, "update_postimage", 8, 6, 7), (2, "update_preimage", 5, 6, 7)] == told(
            frame, "_mirror_sign", "_mirror_place", "_mirror__times"
        )


def test_each_commit_is_read_once_for_all_windows(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A long history in small windows costs what the history does, not its square."""
    table = Table(spark, tmp_path / "t", "id bigint").run("INSERT INTO {t} VALUES (1)")
    for version in range(2, 200):
        Path(table.log(version)).write_text('{"commitInfo": {"operation": "SET TBLPROPERTIES"}}\n')
    reads = count_reads(monkeypatch)
    commits = Commits(open_store(table.path), "t")
    windows = [open_window(commits, after, after + 4) for after in range(-1, 199, 4)]

    assert 199 == windows[-1].until
    assert {1} == {n for path, n in reads.items() if path.endswith(".json")}
    assert 200 == len(reads)


def handmade(table: Path, versions: int, files: int, properties: dict[str, str]) -> None:
    """Write the log of a table whose commits insert so many files; the third but last says again what the table is."""
    field = {"name": "id", "type": "long", "nullable": True, "metadata": {}}
    schema = json.dumps({"type": "struct", "fields": [field]})
    told = {"id": "t", "schemaString": schema, "configuration": properties}
    (table / "_delta_log").mkdir(parents=True)
    for version in range(versions):
        actions: list[dict[str, Any]] = [{"commitInfo": {"operation": "WRITE"}}]
        if version in {0, versions - 3}:
            actions.append({"metaData": told})
        for number in range(files):
            facts = {"path": f"{version}-{number}", "size": 1, "stats": "x" * 500}
            actions.append({"add": {**facts, "dataChange": True}})
        lines = (json.dumps(action) + "\n" for action in actions)
        (table / "_delta_log" / f"{version:020d}.json").write_text("".join(lines))


@pytest.mark.parametrize("files", [1, 40])
def test_a_commit_is_read_once_for_a_window_however_many_files_it_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: int
) -> None:
    """What it says of the table as a whole is kept of a long one; files so young nobody has vacuumed."""
    handmade(tmp_path, 30, files, {"delta.enableChangeDataFeed": "true"})
    reads = count_reads(monkeypatch)
    assert open_window(Commits(open_store(str(tmp_path)), "t"), 0, None).changes
    assert 29 <= len(reads) <= 30
    assert {1} == set(reads.values())


def test_a_window_long_behind_a_rewrite_of_types_is_read_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That there was one stands in the properties for ever."""
    properties = {"delta.enableChangeDataFeed": "true", "mirrorlib.feedPaused": "false"}
    handmade(tmp_path, 100, 1, properties)
    reads = count_reads(monkeypatch)
    assert open_window(Commits(open_store(str(tmp_path)), "t"), 97, None).changes
    assert 3 == len(reads)


def count_reads(patch: pytest.MonkeyPatch) -> Counter[str]:
    """Count how often each file of a local store is read from now on."""
    reads, read = Counter[str](), LocalStore.read
    patch.setattr(LocalStore, "read", lambda s, path: (reads.update([path]), read(s, path))[1])
    return reads


@pytest.mark.thorough
@pytest.mark.parametrize("between", [("INSERT INTO {t} VALUES (3)",), ()], ids=["rows", "none"])
def test_a_restore_that_brings_a_column_back_is_no_change_to_be_told(
    spark: SparkSession, tmp_path: Path, between: tuple[str, ...]
) -> None:
    """Rows that it does not touch have the column's values again, whether it touches others or none."""
    mapped = f"{FEED}, 'delta.columnMapping.mode' = 'name'"
    table = Table(spark, tmp_path / "t", "id bigint, v string", mapped).run(
        "INSERT INTO {t} VALUES (1, 'a'), (2, 'b')",
        "ALTER TABLE {t} DROP COLUMN v",
        *between,
        "RESTORE TABLE {t} TO VERSION AS OF 1",
    )
    newest = 3 + len(between)
    for after in (-1, newest - 1):
        with pytest.raises(FeedExpiredError, match="brought columns back") as caught:
            table.read(after=after)
        assert newest + 1 == caught.value.first_readable
