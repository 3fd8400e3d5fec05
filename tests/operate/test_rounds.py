"""Runs that are watched from Python: what ends a watch, what is told of each round, what cannot begin."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING

import pytest

import mirrorlib
from mirrorlib.errors import LandingZoneError, MirrorError, ParameterError
from mirrorlib.landing.listing import list_tables
from mirrorlib.store import open_store

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import SparkSession


def listing(zone: Path) -> Callable[[], int]:
    """Give a run that counts a zone's tables."""
    return lambda: len(list(list_tables(open_store(str(zone)))))


def zone_that_is_away(
    folder: Path, told: list[int | MirrorError], rounds: int
) -> tuple[Path, Callable[[int | MirrorError], None]]:
    """Give a zone, and what is *told* of each round: the zone is away for the *rounds* behind the first."""
    zone, away = folder / "zone", folder / "away"
    (zone / "orders").mkdir(parents=True)

    def tell(outcome: int | MirrorError) -> None:
        told.append(outcome)
        if len(told) == 1:
            zone.rename(away)
        if len(told) == 1 + rounds:
            away.rename(zone)

    return zone, tell


def test_each_round_is_told_and_one_that_cannot_begin_ends_no_watch(tmp_path: Path) -> None:
    """The last one is returned; the zone was away for a round."""
    told: list[int | MirrorError] = []
    zone, tell = zone_that_is_away(tmp_path, told, 1)
    assert 1 == mirrorlib.watch(listing(zone), 0, tell=tell, stop=lambda: len(told) == 3)

    assert [1, 1] == [told[0], told[2]]
    assert isinstance(told[1], LandingZoneError)


def test_whoever_listens_hears_that_a_round_could_not_begin_and_that_the_next_could(
    tmp_path: Path,
) -> None:
    """Alerted once each, though no table is to blame."""
    told: list[int | MirrorError] = []
    zone, tell = zone_that_is_away(tmp_path, told, 2)
    events, alerts = tmp_path / "events", tmp_path / "alerts"
    with mirrorlib.listen(events, alert=f"tee -a {alerts}"):
        mirrorlib.watch(listing(zone), 0, tell=tell, stop=lambda: len(told) == 5)

    lines = [
        [json.loads(line) for line in path.read_text().splitlines()] for path in (events, alerts)
    ]
    assert [["failure", "failure", "recovery"], ["failure", "recovery"]] == [
        [line["event"] for line in one] for one in lines
    ]
    assert ("", "LandingZoneError") == (lines[0][0]["table"], lines[0][0]["error"])


def test_a_watch_that_ends_with_a_round_that_could_not_begin_returns_why(tmp_path: Path) -> None:
    """So that its caller can tell."""
    zone = tmp_path / "zone"
    (zone / "orders").mkdir(parents=True)
    told: list[int | MirrorError] = []

    def tell(outcome: int | MirrorError) -> None:
        told.append(outcome)
        if len(told) == 1:
            zone.rename(tmp_path / "away")

    last = mirrorlib.watch(listing(zone), 0, tell=tell, stop=lambda: len(told) == 2)

    assert isinstance(last, LandingZoneError)
    assert last is told[1]


def test_a_long_pause_ends_when_it_is_told_to(tmp_path: Path) -> None:
    """Nobody waits for its end."""
    (tmp_path / "orders").mkdir()
    asked: list[int] = []

    def stop() -> bool:
        asked.append(1)
        return len(asked) == 3

    assert 1 == mirrorlib.watch(listing(tmp_path), 1e6, stop=stop)


def test_a_first_round_that_cannot_begin_is_raised(tmp_path: Path) -> None:
    """Nobody would wait for a mistyped path."""
    with pytest.raises(LandingZoneError):
        mirrorlib.watch(listing(tmp_path / "zone"), 0)


@pytest.mark.parametrize("seconds", [-1, math.nan, math.inf])
def test_a_pause_is_a_number_of_seconds(tmp_path: Path, seconds: float) -> None:
    """Before anything is run."""
    with pytest.raises(ParameterError, match="pauses for a number of seconds"):
        mirrorlib.watch(listing(tmp_path / "zone"), seconds)


def test_a_watched_export_delivers_what_comes_later(spark: SparkSession, tmp_path: Path) -> None:
    """A window a round, until the last one's report is told."""
    source = f"delta.`{tmp_path}/tables/orders`"
    feed = "TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true')"
    spark.sql(f"CREATE TABLE {source} (id INT) USING delta {feed}")
    told: list[int] = []

    def export() -> mirrorlib.ExportReport:
        spark.sql(f"INSERT INTO {source} VALUES ({len(told)})")
        to = f"files:{tmp_path}/files?format=jsonl"
        return mirrorlib.export(spark, str(tmp_path / "tables"), consumer="audit", to=to)

    def tell(outcome: mirrorlib.ExportReport | MirrorError) -> None:
        assert isinstance(outcome, mirrorlib.ExportReport)
        told.append(outcome.tables[0].windows)

    last = mirrorlib.watch(export, 0, tell=tell, stop=lambda: len(told) == 2)

    assert isinstance(last, mirrorlib.ExportReport)
    assert [1, 1] == told
    assert 2 == len(list((tmp_path / "files" / "orders").glob("*.jsonl")))
