"""What is staged is all that came, however it is cut into pieces."""

from __future__ import annotations

import os
import shutil
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import mirrorlib
from mirrorlib.delta.sessions import file_reader
from mirrorlib.ingest.batch import stage
from mirrorlib.ingest.rows.read import open_batches
from tables import batches_of, read_rows

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from zones import ZoneWriter

NOTHING = pa.table({"id": pa.array([], pa.int64()), "v": pa.array([], pa.string())})


@pytest.mark.thorough
@pytest.mark.parametrize("keys", [None, ["id"]])
def test_a_file_without_rows_hides_none_of_those_behind_it(
    spark: SparkSession, zone: ZoneWriter, target: str, keys: list[str] | None
) -> None:
    """Before, between and behind files with rows, in the batch that makes the table and in the next one."""
    table = zone.table("t", keys=keys)
    marker = None if keys is None else [4]
    for start in (0, 10):
        for number in (start + 1, start + 2):
            table.file(NOTHING, [] if keys else None)
            table.file([{"id": number, "v": "new"}], marker)
        table.file(NOTHING, [] if keys else None)

        assert mirrorlib.apply(spark, str(zone), target).ok

        rows = sorted(row["id"] for row in read_rows(spark, f"{target}/t"))
        assert [1, 2] + ([11, 12] if start else []) == rows


BY_TIME = {"fileDetectionStrategy": "LastUpdateTimeFileDetection"}


@pytest.mark.thorough
@pytest.mark.parametrize(
    "name, more", [("{:020d}.csv", {}), ("export {}.csv", BY_TIME)], ids=["plain", "alone"]
)
def test_text_that_memory_does_not_hold_is_read_by_one_scan(
    spark: SparkSession,
    zone: ZoneWriter,
    target: str,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    more: dict[str, object],
) -> None:
    """Each scan more would cost the batch far more than the file takes; where names are told one by one, a scan each.

    Each file is written again once.
    """
    scans: list[object] = []
    written: list[object] = []

    def read(*given: Any) -> Any:
        scans.append(given)
        return file_reader(*given)

    monkeypatch.setattr("mirrorlib.ingest.batch.open_batch.SMALL_DECODED", 0)
    monkeypatch.setattr("mirrorlib.ingest.batch.spark_reader.file_reader", read)
    monkeypatch.setattr(
        "mirrorlib.ingest.batch.spark_reader.open_batches",
        lambda landed: written.append(landed.file) or open_batches(landed),
    )
    columns = [{"Name": "id", "DataType": "Int64"}, {"Name": "v", "DataType": "String"}]
    metadata = {"FileFormat": "CSV", "SchemaDefinition": {"Columns": columns}, **more}
    table = zone.table("t", keys=["id"], metadata=metadata)
    for number in (1, 2, 3):
        text = f"id,v,__rowMarker__\n7,{number},4\n{number},new,4\n"
        path = table.folder / name.format(number)
        path.write_text(text)
        os.utime(path, (number, number))

    assert mirrorlib.apply(spark, str(zone), target, settle=0).ok

    # All three files are asked whether keys come twice, and then folded.
    assert (4 if more else 2, 3) == (len(scans), len(written))
    rows = sorted((row["id"], row["v"]) for row in read_rows(spark, f"{target}/t"))
    assert [(1, "new"), (2, "new"), (3, "new"), (7, "3")] == rows


@pytest.mark.parametrize(
    "kind,values,options",
    [
        (pa.date32(), [date(1, 1, 1), date(1500, 2, 3), date(2026, 1, 1)], {}),
        (
            pa.timestamp("us", "UTC"),
            [datetime(year, 1, 1, tzinfo=UTC) for year in (1, 1500, 2026)],
            {},
        ),
        (pa.timestamp("us"), [datetime(year, 1, 1) for year in (1, 1500, 2026)], {"ntz": "keep"}),
    ],
    ids=str,
)
@pytest.mark.thorough
def test_a_key_may_lie_before_the_year_1000(
    spark: SparkSession,
    zone: ZoneWriter,
    target: str,
    kind: pa.DataType,
    values: list[date],
    options: dict[str, Any],
) -> None:
    """The first of all days is a usual placeholder; its row is found, and so are those of another calendar."""
    table = zone.table("t", keys=["d"])
    table.file(pa.table({"d": pa.array(values, kind), "v": ["old"] * 3}))
    assert mirrorlib.apply(spark, str(zone), target, **options).ok
    table.file(pa.table({"d": pa.array(values[:2], kind), "v": ["new"] * 2}), [1, 2])

    report = mirrorlib.apply(spark, str(zone), target, **options)

    assert report.ok, str(report)
    rows = spark.read.format("delta").load(f"{target}/t").select("v").collect()
    assert ["new", "old"] == sorted(row["v"] for row in rows)


@pytest.fixture(params=[64 << 20, 0], ids=["small", "large"])
def road(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let batches be folded in this process, and then by Spark."""
    monkeypatch.setattr("mirrorlib.ingest.batch.open_batch.SMALL_BYTES", request.param)


@pytest.mark.usefixtures("road")
@pytest.mark.thorough("small-*", "*True")
@pytest.mark.parametrize("stored", [True, False])
def test_json_and_uuids_are_text_and_bytes(
    spark: SparkSession, zone: ZoneWriter, target: str, *, stored: bool
) -> None:
    """On both roads, with Arrow's own copy of the schema and without."""
    texts, keys = ['{"é": 1}', None], [b"0123456789abcdef", b"\x00" * 16]
    rows = pa.table({
        "u": pa.ExtensionArray.from_storage(pa.uuid(), pa.array(keys, pa.binary(16))),
        "j": pa.ExtensionArray.from_storage(pa.json_(), pa.array(texts)),
    })  # fmt: skip
    zone.table("t", keys=["u"]).file(rows, [4, 4], parquet={"store_schema": stored})

    assert mirrorlib.apply(spark, str(zone), target).ok

    found = [(bytes(row["u"]), row["j"]) for row in read_rows(spark, f"{target}/t")]
    assert sorted(zip(keys, texts, strict=True)) == sorted(found)


@pytest.mark.usefixtures("road")
@pytest.mark.thorough
def test_days_that_spark_wrote_in_its_old_calendar_are_what_it_means(
    spark: SparkSession, zone: ZoneWriter, target: str
) -> None:
    """On both roads; a key among them is found by a file of its kind, and by one of any other writer."""
    table = zone.table("t", keys=["d"])
    days = ["0001-01-01", "1500-03-01", "1582-10-04", "2026-01-01"]
    rows = ", ".join(f"(DATE'{day}', TIMESTAMP'{day} 05:06:07Z', 'old')" for day in days)
    write_in_the_old_calendar(spark, rows, "d, t, v", table.path(1), moments="INT96")
    assert mirrorlib.apply(spark, str(zone), target).ok
    rows = "(DATE'0001-01-01', TIMESTAMP'1899-01-01 00:00:00Z', 'new', 1)"
    write_in_the_old_calendar(
        spark, rows, "d, t, v, __rowMarker__", table.path(2), moments="TIMESTAMP_MICROS"
    )
    table.file(pa.table({"d": [date(1500, 3, 1)], "v": ["other"]}), [1], number=3)

    report = mirrorlib.apply(spark, str(zone), target)

    assert report.ok, str(report)
    found = spark.read.format("delta").load(f"{target}/t").selectExpr("string(d)", "string(t)", "v")
    assert [
        ("0001-01-01", "1899-01-01 00:00:00", "new"),
        ("1500-03-01", None, "other"),
        ("1582-10-04", "1582-10-04 05:06:07", "old"),
        ("2026-01-01", "2026-01-01 05:06:07", "old"),
    ] == sorted(tuple(row) for row in found.collect())


def write_in_the_old_calendar(
    spark: SparkSession, rows: str, columns: str, path: Path, *, moments: str
) -> None:
    """Let Spark write rows as its second generation did, in a zone whose clocks once were off by minutes."""
    session = spark.newSession()
    conf = {
        "spark.sql.session.timeZone": "America/Los_Angeles",
        "spark.sql.parquet.datetimeRebaseModeInWrite": "LEGACY",
        "spark.sql.parquet.int96RebaseModeInWrite": "LEGACY",
        "spark.sql.parquet.outputTimestampType": moments,
    }
    for name, value in conf.items():
        session.conf.set(name, value)
    folder = path.with_name(f"_{path.stem}")
    session.sql(f"SELECT * FROM VALUES {rows} AS t({columns})").coalesce(1).write.parquet(
        str(folder)
    )
    next(folder.glob("*.parquet")).rename(path)
    shutil.rmtree(folder)


@pytest.mark.usefixtures("road")
@pytest.mark.thorough
def test_a_decimal_key_that_comes_as_a_double_finds_its_row(
    spark: SparkSession, zone: ZoneWriter, target: str
) -> None:
    """On both roads a double is the decimal that it is written as, whatever its binary digits are."""
    table = zone.table("t", keys=["k"])
    kind = pa.decimal128(38, 18)
    keys = [Decimal("751.76"), Decimal(1152921504606847000), Decimal("0.1")]
    table.file(pa.table({"k": pa.array(keys, kind), "v": ["old"] * 3}))
    assert mirrorlib.apply(spark, str(zone), target).ok
    table.file(pa.table({"k": [751.76, 2.0**60], "v": ["new"] * 2}), [1, 1])

    assert mirrorlib.apply(spark, str(zone), target).ok

    rows = {row["k"]: row["v"] for row in read_rows(spark, f"{target}/t")}
    assert dict(zip(keys, ["new", "new", "old"], strict=True)) == rows


@pytest.mark.usefixtures("road")
@pytest.mark.thorough
@pytest.mark.parametrize("snapshots", [False, True])
def test_a_column_of_nulls_fits_whatever_its_type_is(
    spark: SparkSession, zone: ZoneWriter, target: str, *, snapshots: bool
) -> None:
    """On both roads, also where Spark casts none of its types to the table's."""
    table = zone.table("t", keys=["id"])
    day = date(2026, 1, 1)
    table.file(pa.table({"id": [1], "d": [day]}))
    assert mirrorlib.apply(spark, str(zone), target, snapshots=snapshots).ok
    table.file(pa.table({"id": [1, 2], "d": pa.nulls(2, pa.float64())}), [4, 4])

    report = mirrorlib.apply(spark, str(zone), target, snapshots=snapshots)

    assert report.ok, str(report)
    rows = [{"id": 1, "d": None}, {"id": 2, "d": None}]
    assert rows == sorted(read_rows(spark, f"{target}/t"), key=lambda row: str(row["id"]))
    table.file(pa.table({"id": [1, 2], "d": [1.0, None]}), [4, 4])
    refused = mirrorlib.apply(spark, str(zone), target, snapshots=snapshots).tables[0]
    assert "a value of the file does not fit the table's type" in refused.reason


@pytest.mark.thorough
@pytest.mark.parametrize(
    "keys, looks",
    [((3, None), 1), ((1, None), 1), ((3, 5), 0), ((3, 3), 1), ((2, 5), 1)],
    ids=["each key once", "a key twice", "growing", "twice in a file", "twice in two"],
)
def test_a_first_load_of_updates_is_staged_only_where_a_key_comes_again(
    spark: SparkSession,
    zone: ZoneWriter,
    target: str,
    monkeypatch: pytest.MonkeyPatch,
    keys: tuple[int, int | None],
    looks: int,
) -> None:
    """Where none does, Spark writes the rows from where they lie; keys that grow are not even shuffled."""
    looked, real = [], stage.count_doubles
    monkeypatch.setattr("mirrorlib.ingest.batch.open_batch.SMALL_BYTES", -1)
    monkeypatch.setattr(stage, "count_doubles", lambda *some: looked.append(1) or real(*some))
    table = zone.table("t", keys=["count"])
    table.file([{"count": 1, "v": "a"}, {"count": 2, "v": "b"}], [4, 0])
    table.file([{"count": key, "v": f"{at}"} for at, key in enumerate(keys)], [1, 4])

    report = mirrorlib.apply(spark, str(zone), target)

    assert report.ok, str(report)
    rows = sorted((str(row["count"]), row["v"]) for row in read_rows(spark, f"{target}/t"))
    last = {1: "a", 2: "b"} | {key: f"{at}" for at, key in enumerate(keys)}
    assert sorted((str(key), v) for key, v in last.items()) == rows
    assert looks == len(looked)
    (facts,) = batches_of(f"{target}/t")
    assert (len(last) == 4) == facts.get("direct", False)


def test_a_table_of_any_name_leaves_alone_what_others_have_staged(
    spark: SparkSession, zone: ZoneWriter, tmp_path: Path
) -> None:
    """An export, or a derived table, may be in the middle of its work."""
    theirs = [tmp_path / "target/_mirrorlib/staged" / name / "x" for name in ("exports", "derive")]
    for path in theirs:
        zone.table(path.parent.name).file([{"id": 1}])
        path.parent.mkdir(parents=True)
        path.write_bytes(b"theirs")

    assert mirrorlib.apply(spark, str(zone), str(tmp_path / "target")).ok

    assert all(path.exists() for path in theirs)
