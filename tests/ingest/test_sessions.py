"""Sessions of our own on clusters that are configured for other work: no row is left out, no type means something else."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date, datetime
from typing import TYPE_CHECKING

import pytest

from mirrorlib.delta import sessions
from mirrorlib.identifiers import sql_text
from mirrors import Mirror, at
from zones import damage_pages

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@contextmanager
def configured_cluster(spark: SparkSession, conf: dict[str, str]) -> Iterator[None]:
    """Let the next session be one of a cluster that is configured so; others see it for a moment only."""
    idle = sessions._IDLE.pop(spark, [])
    cluster = spark.sparkContext._jsc.sc().conf()
    for name, value in conf.items():
        cluster.set(name, value)
    try:
        with sessions.lend_session(spark):
            pass
    finally:
        for name in conf:
            cluster.remove(name)
    yield
    sessions._IDLE[spark] = idle


@pytest.mark.thorough
@pytest.mark.parametrize("pinned", [True, False], ids=["by session", "by reader"])
@pytest.mark.parametrize("markers", [None, [4] * 6], ids=["append", "merge"])
def test_rows_of_a_damaged_page_are_not_left_out_where_the_cluster_ignores_corrupt_files(
    mirror: Mirror,
    monkeypatch: pytest.MonkeyPatch,
    markers: list[int] | None,
    pinned: bool,  # a case of the test
) -> None:
    """The table stops before the file; the reader alone sees to it where a session cannot be configured."""
    monkeypatch.setattr("mirrorlib.ingest.batch.open_batch.SMALL_BYTES", -1)
    if not pinned:
        monkeypatch.setattr(sessions, "_CONF", {"spark.sql.session.timeZone": "UTC"})
    rows = [{"id": 10 + number, "v": f"{number}"} for number in range(6)]
    path = mirror.table.file(rows, markers, number=3, parquet={"row_group_size": 2})
    damage_pages(path, group=1)

    with configured_cluster(mirror.spark, {"spark.sql.files.ignoreCorruptFiles": "true"}):
        mirror.assert_failed("ChangeFileError", mirror.file_name(3))

    mirror.assert_holds(2)


def test_a_file_that_is_gone_is_not_left_out_where_the_cluster_ignores_missing_files(
    mirror: Mirror, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file that is removed while Spark appends it voids its plan; the next one finds nothing to apply."""
    monkeypatch.setattr("mirrorlib.ingest.batch.open_batch.SMALL_BYTES", -1)
    path = mirror.publish([{"id": 50, "v": "planned"}], [0])

    with configured_cluster(mirror.spark, {"spark.sql.files.ignoreMissingFiles": "true"}):
        report = mirror.run(observe=at("commit", "before", path.unlink))

    assert ("current", "void") == (report.state, mirror.outcome(3)["outcome"])
    mirror.assert_holds(2)


def test_texts_and_names_mean_the_same_on_every_cluster(spark: SparkSession) -> None:
    """A table's properties hold names of columns, which may hold quotes and backslashes, and be words of SQL.

    And days that Java's older calendar left out are told to receivers as they are.
    """
    text = 'it\'s "a\\b"'
    odd = {
        "spark.sql.parser.escapedStringLiterals": "true",
        "spark.sql.parser.quotedRegexColumnNames": "true",
        "spark.sql.ansi.enabled": "true",
        "spark.sql.ansi.enforceReservedKeywords": "true",
        "spark.sql.legacy.timeParserPolicy": "LEGACY",
    }

    with configured_cluster(spark, odd), sessions.lend_session(spark) as session:
        assert text == session.sql(f"SELECT {sql_text(text)}").collect()[0][0]
        assert 0 == session.sql("SELECT 1 AS order").where("`order` IS NULL").count()
        days = session.sql("SELECT explode(array(DATE'1582-10-05')) AS day")
        assert "1582-10-05" == days.selectExpr("string(day)").collect()[0][0]


@pytest.mark.parametrize("small", [-1, 1 << 20], ids=["by Spark", "by Arrow"])
def test_types_mean_what_they_do_in_our_session_and_the_users_stays_active(
    fresh: Mirror, monkeypatch: pytest.MonkeyPatch, small: int
) -> None:
    """What belongs to no session, such as a type's name in a cast, is read by the active one, which gets back its place."""
    monkeypatch.setattr("mirrorlib.ingest.batch.open_batch.SMALL_BYTES", small)
    fresh.table.file([{"id": 1, "at": datetime(2020, 1, 1, 5)}])
    with sessions.configured(fresh.spark, {"spark.sql.timestampType": "TIMESTAMP_NTZ"}):
        assert "current" == fresh.run().state

    assert fresh.spark is type(fresh.spark).active()
    found = fresh.spark.read.format("delta").load(str(fresh.path))
    assert "timestamp" == dict(found.dtypes)["at"]


@pytest.mark.thorough
def test_types_mean_the_same_on_every_cluster(fresh: Mirror) -> None:
    """A date column that has to hold times becomes a timestamp, and a reset replaces columns, whatever the cluster's defaults."""
    fresh.table.file([{"id": 1, "d": date(1400, 1, 1)}])
    odd = {
        "spark.sql.timestampType": "TIMESTAMP_NTZ",
        "spark.sql.sources.partitionOverwriteMode": "dynamic",
        "spark.sql.parquet.datetimeRebaseModeInWrite": "LEGACY",
    }
    with configured_cluster(fresh.spark, odd):
        assert "current" == fresh.run().state
        fresh.table.file([{"id": 2, "d": datetime(2020, 1, 1, 5)}])
        assert "current" == fresh.run().state
        found = fresh.spark.read.format("delta").load(str(fresh.path))
        assert "timestamp" == dict(found.dtypes)["d"]
        fresh.reset()
        fresh.table.replace(2, [{"id": 2, "e": 1.5}])
        assert "current" == fresh.run().state

    found = fresh.spark.read.format("delta").load(str(fresh.path))
    assert {("id", "bigint"), ("d", "date"), ("e", "double")} == set(found.dtypes)
