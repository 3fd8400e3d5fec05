"""Every notebook runs as it ships, does what the library does, shows its report, and fails where a table is stopped."""

from __future__ import annotations

from collections.abc import Iterator
from html import unescape
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("papermill")

import mirrorlib
from papers import NAMES, Reader, cells, reader
from tables import read_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.zones import ZoneWriter

TRIED = {
    "initial_load",
    "incremental_apply",
    "export_feed",
    "propagate_keys",
    "check_landing_zone",
    "status",
    "self_test",
    "tour",
}


@pytest.fixture(scope="module")
def papers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reader]:
    """Start one kernel for all notebooks."""
    with reader(tmp_path_factory.mktemp("papers")) as one:
        yield one


def publish(zone: ZoneWriter) -> None:
    """Publish two tables."""
    orders = zone.table("orders", keys=["id"], schema="dbo")
    orders.file([{"id": 1, "v": "a"}, {"id": 2, "v": "b"}])
    orders.file([{"id": 1, "v": "A"}, {"id": 2, "v": None}], markers=[1, 2])
    zone.table("items", keys=["id"]).file([{"id": 7}])


def test_every_notebook_is_run_here() -> None:
    """A notebook that is added is tried too."""
    assert TRIED == set(NAMES)


@pytest.mark.thorough
def test_incremental_apply_leaves_the_tables_that_apply_leaves(
    spark: SparkSession, papers: Reader, zone: ZoneWriter, target: str, tmp_path: Path
) -> None:
    """The report is shown as text and as a table; the same zone applied by the library gives the same rows."""
    publish(zone)
    papers.start_spark()

    paper = papers.run("incremental_apply", landing_zone=str(zone), target=target, max_files=1)
    mirrorlib.apply(spark, str(zone), tmp_path / "other")

    for table, rows in {"dbo/orders": [{"id": 1, "v": "A"}], "items": [{"id": 7}]}.items():
        assert rows == read_rows(spark, f"{target}/{table}")
        assert rows == read_rows(spark, tmp_path / "other" / table)
    progress, shown, _ = paper.shown()
    assert "Begun: 2, through: 2. Files: 3. Rows: 5." in progress
    first, _, *lines = [line.split()[0] for line in shown.splitlines()]
    assert ["table", "dbo/orders", "items", "merge:", "overwrite:"] == [first, *sorted(lines)]
    assert "<table>" in paper.shown("text/html")[0]
    assert f"mirrorlib {mirrorlib.__version__}, Spark {spark.version}, local" in paper.printed


def test_a_stopped_table_is_shown_and_then_fails_the_run(
    papers: Reader, zone: ZoneWriter, target: str
) -> None:
    """Other tables are applied; the last cell raises, after the cell that shows the report."""
    publish(zone)
    zone.table("items").file([{"id": 8}], number=3)
    papers.start_spark()

    error, paper = papers.fail("incremental_apply", landing_zone=str(zone), target=target)

    assert ("StoppedError", 3) == (error.ename.rpartition(".")[2], len(paper.shown()))
    assert "items is blocked" in error.evalue
    assert "blocked" in paper.shown()[1]
    assert "1 of 2 tables stopped." in unescape(paper.shown("text/html")[-1])
    assert {"dbo/orders": "current", "items": "blocked"} == {
        table.table: table.state for table in mirrorlib.status(target).tables
    }


@pytest.mark.parametrize(
    "wrong, told",
    [
        ({"landing_zone": ""}, "the parameter landing_zone has to be a text that is not empty"),
        (
            {"evolution": "any"},
            "the parameter evolution has to be one of widen, add, strict (found str 'any')",
        ),
    ],
)
def test_a_wrong_parameter_stops_the_run_before_anything_is_touched(
    papers: Reader, zone: ZoneWriter, target: str, wrong: dict[str, str], told: str
) -> None:
    """It is named, with what is expected and what was found."""
    given = {"landing_zone": str(zone), "target": target, **wrong}

    error, _ = papers.fail("initial_load", **given)

    assert told in error.evalue
    assert not Path(target).exists()


def test_check_landing_zone_shows_findings_and_fails(papers: Reader, zone: ZoneWriter) -> None:
    """It needs no Spark."""
    publish(zone)
    papers.run("check_landing_zone", landing_zone=str(zone), tables="dbo/*")
    zone.table("items").file([{"id": 8}], number=3)

    error, paper = papers.fail("check_landing_zone", landing_zone=str(zone))

    assert "StoppedError" in error.ename
    assert "gap" in paper.shown()[-1]


@pytest.mark.thorough
def test_status_shows_the_page_of_the_target(
    spark: SparkSession, papers: Reader, zone: ZoneWriter, target: str, tmp_path: Path
) -> None:
    """In a frame; asked to, it keeps the ledger in tables."""
    publish(zone)
    mirrorlib.apply(spark, str(zone), target)
    papers.start_spark()

    paper = papers.run("status", target=target, to=str(tmp_path / "book"))

    (html,), (text,) = paper.shown("text/html"), paper.shown()
    assert "Every table is current." in unescape(html)
    assert 1 == html.count("<iframe")
    assert ["dbo/orders", "items"] == sorted(
        row["table"] for row in read_rows(spark, tmp_path / "book" / "mirrorlib_ledger")
    )
    assert str(mirrorlib.status(target)) in text


@pytest.mark.parametrize("catalog, session", [("dev", "Spark"), ("", None)])
def test_status_takes_a_session_where_something_needs_it(
    monkeypatch: pytest.MonkeyPatch, catalog: str, session: str | None
) -> None:
    """Without one, nobody finds the tables of a catalog that consumers read."""
    (cell,) = (cell.source for cell in cells("status") if "get_spark" in cell.source)
    monkeypatch.setattr("mirrorlib.platform.notebook.get_spark", lambda *_: "Spark")
    given = {"target": "gold", "catalog": catalog, "state": "/state", "to": ""}
    names: dict[str, object] = {**given, "last": 1, "allow_new": False}

    exec(cell, names)  # noqa: S102  # ours

    assert session == names["spark"]


@pytest.mark.thorough
def test_the_initial_load_and_the_export_deliver_every_row(
    spark: SparkSession, papers: Reader, zone: ZoneWriter, target: str, tmp_path: Path
) -> None:
    """A consumer of the loaded tables has the same rows, and nothing new the second time; keys are as they are said."""
    publish(zone)
    papers.start_spark()
    given = {
        "target": target,
        "consumer": "lake",
        "to": f"delta:{tmp_path}/copy",
        "mode": "current",
    }

    papers.run("initial_load", landing_zone=str(zone), target=target, parallelism="1")
    papers.run("export_feed", **given)
    again = papers.run("export_feed", tables='["items"]', **given)
    other = {**given, "consumer": "other", "to": f"delta:{tmp_path}/other"}
    keys, one = '{"items": ["nothing"]}', {"max_versions": "1"}
    error, _ = papers.fail("export_feed", keys=keys, **one, **other)

    assert [{"id": 1, "v": "A"}] == read_rows(spark, tmp_path / "copy" / "dbo" / "orders")
    assert "items" in again.shown()[1]
    assert "orders" not in again.shown()[1]
    assert "nothing" in error.evalue
    assert "dbo/orders is" not in error.evalue


@pytest.mark.thorough
def test_propagate_keys_keeps_a_table_with_the_keys_that_survive(
    spark: SparkSession, papers: Reader, zone: ZoneWriter, target: str, tmp_path: Path
) -> None:
    """The transformation that ships renames columns, keys too; the second run takes in what is new."""
    orders = zone.table("orders", keys=["Order Id"])
    orders.file([{"Order Id": 1, "V": "a"}, {"Order Id": 2, "V": "b"}])
    mirrorlib.apply(spark, str(zone), target, insert_policy="upsert")
    papers.start_spark()
    made = str(tmp_path / "derived" / "orders")
    given = {"name": "orders", "sources": f"{target}/orders", "target": made}

    first = papers.run("propagate_keys", **given)
    orders.file([{"Order Id": 1, "V": "A"}, {"Order Id": 2, "V": None}], markers=[1, 2])
    mirrorlib.apply(spark, str(zone), target, insert_policy="upsert")
    second = papers.run("propagate_keys", **given)

    assert [{"order_id": 1, "v": "A"}] == read_rows(spark, made)
    kept, _, report, _ = first.shown()
    assert "order_id" in kept
    assert "Its primary key: order_id." in report
    assert "row-wise" in second.shown()[2]
    assert "Derived tables" in unescape(second.shown("text/html")[-1])


@pytest.mark.thorough
@pytest.mark.smoke
def test_the_self_test_is_well_and_leaves_nothing(papers: Reader, tmp_path: Path) -> None:
    """Every step, on the Spark of this suite, by the paths of a folder."""
    papers.start_spark()

    paper = papers.run("self_test", folder=str(tmp_path))

    (report,) = paper.shown()
    assert 7 == report.count(" ok ")
    assert "The run is well." in paper.printed
    assert [] == [*tmp_path.iterdir()]


@pytest.mark.thorough
def test_the_self_test_goes_across_schemas_and_goes_on_behind_what_is_refused(
    papers: Reader, tmp_path: Path
) -> None:
    """Tables are gone afterwards, too; what was refused fails the run, and is told by its step."""
    papers.start_spark()
    folder = str(tmp_path / "volume")
    papers.before = f"""
import mirrorlib
for name in ("tried", "tried_other"):
    mirrorlib.local_spark().sql(f"CREATE SCHEMA {{name}} LOCATION '{tmp_path}/{{name}}'")
"""

    paper = papers.run(
        "self_test", folder=folder, schema="spark_catalog.tried", other="spark_catalog.tried_other"
    )
    papers.before = """
import mirrorlib
for name in ("tried", "tried_other"):
    mirrorlib.local_spark().sql(f"DROP SCHEMA {name}")  # which refuses where a table is left
"""
    error, refused = papers.fail("self_test", folder=folder, schema="spark_catalog.tried")
    papers.before = ""

    assert 7 == paper.shown()[0].count(" ok ")
    outcomes = [line.split()[:2] for line in refused.shown()[0].splitlines()[2:9]]
    assert [["write_once", "ok"], ["load", "refused"]] == outcomes[:2]
    assert ["remove", "ok"] == outcomes[-1]
    assert "the catalog or its schema is not there" in error.evalue
    assert [] == [*(tmp_path / "volume").iterdir()]


@pytest.mark.slow
@pytest.mark.thorough
def test_the_tour_goes_the_whole_way(papers: Reader, tmp_path: Path) -> None:
    """From change files to a consumer and a derived table, on real data; gone a second time, it changes nothing."""
    papers.start_spark()

    paper = papers.run("tour", folder=str(tmp_path))

    assert "92,481 rows" in paper.printed
    assert ["update_preimage", "update_postimage"] == [
        word for word in ("update_preimage", "update_postimage") if paper.printed.count(word) == 3
    ]
    assert 1 == sum("<iframe" in shown for shown in paper.shown("text/html"))
    assert "Its partition key: transaction_id." in "".join(paper.shown())
    tables = mirrorlib.ledger(tmp_path / "tables"), mirrorlib.consumers(tmp_path / "tables").streams

    papers.run("tour", folder=str(tmp_path))

    again = mirrorlib.ledger(tmp_path / "tables"), mirrorlib.consumers(tmp_path / "tables").streams
    assert [str(tables[0]), [(s.table, s.position, s.rows) for s in tables[1]]] == [
        str(again[0]),
        [(s.table, s.position, s.rows) for s in again[1]],
    ]
