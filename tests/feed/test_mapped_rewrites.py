"""Types that rows get by being written again under column mapping, where Delta asks for the feed to be off meanwhile."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest

import mirrorlib
from mirrors import Killed, at, die
from oracle import multiset, replay_feed
from tables import newest_version, read_rows, read_versions

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from zones import ZoneWriter

pytestmark = pytest.mark.slow

UPSERT = 4
NAME = "Umsatz in €"


class Sheet:
    """A mirror of an unmodified Excel publisher's table: a blank in a column's name, whole numbers first."""

    def __init__(self, spark: SparkSession, zone: ZoneWriter, target: str) -> None:
        self.spark, self.zone, self.target = spark, zone, target
        self.table = zone.table("sheet", keys=["id"])
        self.path = f"{target}/sheet"

    def publish(self, *rows: tuple[int, object], marker: int = UPSERT) -> None:
        """Publish a change file."""
        self.table.file([{"id": key, NAME: value} for key, value in rows], [marker] * len(rows))

    def apply(self, **options: object) -> None:
        """Apply everything."""
        report = mirrorlib.apply(self.spark, str(self.zone), self.target, **options)
        assert report.ok, str(report)

    @property
    def rewriting(self) -> list[int]:
        """Find the versions that belong to the rewrite."""
        ours = {version.number: version.ours or {} for version in read_versions(self.path)}
        return [number for number, facts in ours.items() if facts.get("outcome") == "rewrite"]

    @property
    def rows(self) -> dict[object, object]:
        """Read the table."""
        return {row["id"]: row[NAME] for row in read_rows(self.spark, self.path)}

    @property
    def fed(self) -> bool:
        """Say whether the feed is on."""
        detail = self.spark.sql(f"DESCRIBE DETAIL delta.`{self.path}`").collect()[0]
        return detail["properties"]["delta.enableChangeDataFeed"] == "true"


@pytest.fixture
def sheet(spark: SparkSession, zone: ZoneWriter, target: str) -> Sheet:
    """Give a mirror of whole numbers, to which a file with fractions is published."""
    mirror = Sheet(spark, zone, target)
    mirror.publish((1, 10), (2, 20))
    mirror.apply()
    mirror.publish((1, 11))
    mirror.apply()
    mirror.publish((3, 1.5), (2, 21.0))
    return mirror


@pytest.mark.thorough
def test_a_blank_in_a_name_keeps_no_type_from_changing(sheet: Sheet) -> None:
    """Feed off, rows in the new type, feed on: three commits that change no row, and none of them is in the feed."""
    sheet.apply()

    assert {1: 11.0, 2: 21.0, 3: 1.5} == sheet.rows
    newest = newest_version(sheet.path)
    assert [newest - 3, newest - 2, newest - 1] == sheet.rewriting
    assert sheet.fed
    told = mirrorlib.read_feed(sheet.spark, sheet.path, after=-1).collect()
    rows = [row.asDict() for row in told]
    assert multiset(read_rows(sheet.spark, sheet.path)) == replay_feed(rows)[newest]
    assert {10.0, 20.0, 11.0, 21.0, 1.5} == {row[NAME] for row in rows}
    assert not {row["_commit_version"] for row in rows} & set(sheet.rewriting)
    net = mirrorlib.read_feed(sheet.spark, sheet.path, after=1, net=True, keys=["id"])
    changed = {(row["id"], row[NAME], row["_change_type"]) for row in net.collect()}
    assert {(1, 10.0, "update_preimage"), (1, 11.0, "update_postimage"), (2, 20.0, "update_preimage"),
            (2, 21.0, "update_postimage"), (3, 1.5, "insert")} == changed  # fmt: skip
    sheet.apply()
    assert newest == newest_version(sheet.path)


@pytest.mark.thorough("pause-*", "resume-after", "rewrite-*")
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("step", ["pause", "resume", "rewrite"])
def test_killed_at_any_commit_of_it_the_next_run_ends_the_same(
    sheet: Sheet, step: str, when: str
) -> None:
    """The feed is on again before a row changes, and misses none."""
    with pytest.raises(Killed):
        mirrorlib.apply(sheet.spark, str(sheet.zone), sheet.target, observe=at(step, when, die))
    left = newest_version(sheet.path)
    mirrorlib.plan(sheet.spark, str(sheet.zone), sheet.target)
    assert left == newest_version(sheet.path)  # a plan switches nothing on
    # As upkeep, or a claim, may come in between.
    sheet.spark.sql(f"ALTER TABLE delta.`{sheet.path}` SET TBLPROPERTIES ('theirs' = 'x')")
    sheet.apply()

    assert {1: 11.0, 2: 21.0, 3: 1.5} == sheet.rows
    assert sheet.fed
    told = mirrorlib.read_feed(sheet.spark, sheet.path, after=-1).collect()
    newest = newest_version(sheet.path)
    rows = replay_feed([row.asDict() for row in told])[newest]
    assert multiset(read_rows(sheet.spark, sheet.path)) == rows


@pytest.mark.thorough
@pytest.mark.parametrize("to", ["delta", "files"])
def test_consumers_go_over_it(sheet: Sheet, tmp_path: Path, to: str) -> None:
    """A copy takes the wider type and every change beside it; one of files begins a part of that type."""
    options: dict[str, Any] = {"consumer": "c", "to": f"{to}:{tmp_path}/of-{to}"}
    options |= {"mode": "current"} if to == "delta" else {}
    first = mirrorlib.export(sheet.spark, sheet.target, **options)
    assert [""] == [table.reason for table in first.tables]
    sheet.apply()
    sheet.publish((1, 0.25))
    sheet.apply()

    report = mirrorlib.export(sheet.spark, sheet.target, **options)

    assert [""] == [table.reason for table in report.tables]
    if to == "delta":
        copied = read_rows(sheet.spark, f"{tmp_path}/of-delta/sheet")
        assert {1: 0.25, 2: 21.0, 3: 1.5} == {row["id"]: row[NAME] for row in copied}
    else:
        files = (tmp_path / "of-files" / "sheet").rglob("*.parquet")
        told = [value for file in files for value in pq.read_table(file)[NAME].to_pylist()]
        assert {0.25, 1.5, 21.0} <= set(told)


@pytest.mark.thorough
def test_what_fails_while_the_feed_is_off_is_told(
    sheet: Sheet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Switching it off and on is a commit each, by which nobody else has come first."""

    def fail(*_: object, **__: object) -> None:
        msg = "No space left on device"
        raise OSError(msg)

    mirrorlib.reset(sheet.spark, sheet.target, "sheet")
    for number in (2, 3):
        sheet.table.path(number).unlink()
    sheet.table.replace(1, [{"id": 1, NAME: "eleven"}])
    with monkeypatch.context() as patched:
        patched.setattr("mirrorlib.commit.mark.overwrite_rows", fail)
        report = mirrorlib.apply(sheet.spark, str(sheet.zone), sheet.target)

    assert "the disk is full" in report.tables[0].reason
    sheet.apply()
    assert {1: "eleven"} == sheet.rows
    assert sheet.fed
