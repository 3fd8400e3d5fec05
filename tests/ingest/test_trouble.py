"""No Spark or Delta error class is the reason of a stop: what they have against a table is told in our words."""

from __future__ import annotations

import json
import logging
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException

import mirrorlib
from mirrorlib.cli.main import main
from mirrorlib.delta import sessions, trouble
from mirrorlib.delta.trouble import as_mirror_error, first_line, spark_error

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

    from zones import TableWriter, ZoneWriter

UPDATE = 1
# Names of Spark 3.5 and of Databricks.
ELSEWHERE = {
    "CANNOT_READ_FILE",
    "FIELDS_ALREADY_EXISTS",
    "INSUFFICIENT_PERMISSIONS",
    "PERMISSION_DENIED",
    "UNAUTHORIZED",
}
CLASS = re.compile(
    r"\b[A-Z0-9]+(_[A-Z0-9]+){2,}|SQLSTATE|\w(Exception|Error)\b|\bjava\.|org\.apache|io\.delta"
)


def sql(statement: str) -> Callable[[SparkSession, Path], None]:
    """Let the table's owner run a statement on it."""
    return lambda spark, path: spark.sql(statement.format(t=f"delta.`{path}`")).collect()


def files(pattern: str, data: bytes | None) -> Callable[[SparkSession, Path], None]:
    """Remove files of the table by hand, or write something else into them."""

    def change(_: SparkSession, path: Path) -> None:
        for file in path.glob(pattern):
            file.unlink() if data is None else file.write_bytes(data)

    return change


def feature(_: SparkSession, path: Path) -> None:
    """Let a newer Delta demand of writers what this one does not know."""
    log = path / "_delta_log"
    newest = max(log.glob("*.json"))
    protocol = {"minReaderVersion": 3, "minWriterVersion": 7}
    features = {"readerFeatures": ["telepathy"], "writerFeatures": ["telepathy"]}
    commit = {"commitInfo": {"operation": "UPGRADE PROTOCOL", "timestamp": 0}}
    lines = [commit, {"protocol": protocol | features}]
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (log / f"{int(newest.stem) + 1:020d}.json").write_text(text)


WHAT_OWNERS_DO = {
    "append only": (
        sql("ALTER TABLE {t} SET TBLPROPERTIES ('delta.appendOnly' = 'true')"),
        "somebody has set the table to take new rows only",
    ),
    "constraint": (
        sql("ALTER TABLE {t} ADD CONSTRAINT few CHECK (v < 2)"),
        "somebody has put a constraint on the table",
    ),
    "file gone": (files("*.parquet", None), "a file of the table is gone, by VACUUM or by hand"),
    "file damaged": (
        files("*.parquet", b"PAR1"),
        "Spark cannot read a file: a store may be out of reach for a moment, or the file is damaged",
    ),
    "newer feature": (feature, "the table has a feature that this version of Delta does not know"),
    "log gone": (files("_delta_log/*.*", None), ""),
    "log damaged": (files("_delta_log/*.json", b"{"), ""),
}


@pytest.fixture
def orders(spark: SparkSession, zone: ZoneWriter, target: str) -> TableWriter:
    """Give a mirror of one row, which an update waits for."""
    table = zone.table("orders", keys=["id"])
    table.file([{"id": 1, "v": 1}])
    assert mirrorlib.apply(spark, str(zone), target).ok
    table.file([{"id": 1, "v": 2}], [UPDATE])
    return table


@pytest.mark.usefixtures("orders")
@pytest.mark.thorough("constraint", "file damaged", "append*")
@pytest.mark.parametrize("case", WHAT_OWNERS_DO)
def test_what_owners_do_to_a_table_stops_it_in_our_words(
    spark: SparkSession,
    zone: ZoneWriter,
    target: str,
    case: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """And its neighbours go on; where no file can be at fault, none is read for it."""
    if case in {"append only", "constraint"}:
        monkeypatch.setattr("mirrorlib.ingest.batch.commit.find_damage", None)
    zone.table("good", keys=["id"]).file([{"id": 1}])
    change, expected = WHAT_OWNERS_DO[case]
    change(spark, Path(target) / "orders")

    report = mirrorlib.apply(spark, str(zone), target)
    found = {table.table: table for table in report.tables}

    assert "current" == found["good"].state
    assert found["orders"].state in {"failed", "blocked"}
    assert expected in found["orders"].reason
    assert not CLASS.search(found["orders"].reason), found["orders"].reason


@pytest.mark.parametrize(
    "name", ["enableIcebergCompatV2", "compatibility.symlinkFormatManifest.enabled"]
)
def test_a_default_that_does_not_go_with_deletion_vectors_is_told_with_a_way_out(
    spark: SparkSession, zone: ZoneWriter, target: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the workspace, for tables that are made."""
    zone.table("orders", keys=["id"]).file([{"id": 1}])
    default = {f"spark.databricks.delta.properties.defaults.{name}": "true"}
    monkeypatch.setattr(sessions, "_CONF", sessions._CONF | default)
    session = spark.newSession()  # whose own are set up anew

    (found,) = mirrorlib.apply(session, str(zone), target).tables

    assert "by default here does not go with deletion vectors" in found.reason
    assert "mirrorlib reset TARGET TABLE, and apply with --readers plain" in found.reason
    mirrorlib.reset(session, target, "orders")
    assert mirrorlib.apply(session, str(zone), target, readers="plain").ok


def test_a_constraint_on_a_column_that_has_to_be_widened_is_no_row_that_violates_it(
    spark: SparkSession, zone: ZoneWriter, target: str
) -> None:
    """It is told, with what takes it off."""
    table = zone.table("orders", keys=["id"])
    table.file(pa.table({"id": [1], "v": pa.array([5], pa.int32())}))
    assert mirrorlib.apply(spark, str(zone), target).ok
    sql("ALTER TABLE {t} ADD CONSTRAINT few CHECK (v > 0)")(spark, Path(target) / "orders")
    table.file(pa.table({"id": [2], "v": pa.array([2**40])}))

    (found,) = mirrorlib.apply(spark, str(zone), target).tables

    assert "constraint on a column of the table, which has to become another one" in found.reason
    assert "few -> v > 0). Take it off: ALTER TABLE … DROP CONSTRAINT" in found.reason


@pytest.mark.parametrize(
    "command",
    [["feed"], ["apply", "--catalog"], ["export"], ["enable-feed"], ["vacuum"]],
    ids=" ".join,
)
def test_what_a_command_cannot_reach_is_said_in_our_words(
    tmp_path: Path, zone: ZoneWriter, command: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """Tables, schemas and places that are not there."""
    zone.table("orders", keys=["id"]).file([{"id": 1}])
    words = {
        "feed": ["feed", "nosuch.schema.orders"],
        "apply --catalog": [
            "apply",
            str(zone),
            "nosuch.schema",
            "--catalog",
            "--state",
            str(tmp_path),
        ],
        "export": [
            "export",
            str(tmp_path / "none"),
            "--to",
            f"files:{tmp_path}/out",
            "--consumer",
            "a",
        ],
        "enable-feed": ["enable-feed", "nosuch.schema"],
        "vacuum": ["vacuum", "nosuch.schema"],
    }[" ".join(command)]

    try:
        code = main(words)
    except SystemExit as exc:  # a command line that is not understood
        code = int(str(exc.code))

    said = "".join(capsys.readouterr())
    assert code
    assert not CLASS.search(said), said


def conditions(spark: SparkSession) -> dict[str, str]:
    """Name every condition that this Spark and this Delta have, each with its text."""
    loader = spark._jvm.java.lang.Thread.currentThread().getContextClassLoader()  # type: ignore[union-attr]
    found = {}
    for name in ("error/error-conditions.json", "error/delta-error-classes.json"):
        stream = loader.getResourceAsStream(name)
        known = json.loads(bytes(stream.readAllBytes()))
        for condition, facts in known.items():
            found[condition] = " ".join(facts.get("message", []))
            for below, more in facts.get("subClass", {}).items():
                found[f"{condition}.{below}"] = " ".join(more.get("message", []))
    return found


def test_every_condition_is_told_without_its_name(spark: SparkSession) -> None:
    """As PySpark raises it, and as Py4J hands it on from a running job; what is known has words of its own."""
    told = {}
    for name, template in conditions(spark).items():
        text = f"[{name}] {template} SQLSTATE: 42000".replace("same SQLSTATE", "same state")
        for raised in (
            text,
            f"An error occurred while calling o1.x.\n: io.delta.DeltaException: {text}",
        ):
            error = spark_error(RuntimeError(raised), "commit batch 1", "orders")
            told.setdefault(error.reason, name)
            assert name not in str(error).split("<")[0] or "_" not in name, str(error)
            assert "SQLSTATE: 42000" not in str(error)
            assert error.next_step

    known = {
        one.reason for begins, one in trouble._KNOWN.items() if not ELSEWHERE.issuperset(begins)
    }
    assert known <= told.keys()


def test_no_name_in_the_list_is_one_that_nobody_has(spark: SparkSession) -> None:
    """Else what was meant by it is told in Spark's words."""
    names = conditions(spark)

    lost = [
        begin
        for begins in trouble._KNOWN
        for begin in begins
        if not any(name.startswith(begin) for name in names)
    ]

    assert set() == set(lost) - ELSEWHERE


def test_a_name_with_a_bracket_is_no_condition() -> None:
    """What one table's Spark says must not end the run of all."""
    text = "[UNRESOLVED_COLUMN.WITH_SUGGESTION] A column `[AA.x` cannot be resolved"

    assert ["UNRESOLVED_COLUMN.WITH_SUGGESTION"] == trouble.conditions_of(RuntimeError(text))
    assert spark_error(RuntimeError("`[AA.x`"), "commit").reason


@pytest.mark.parametrize(
    "text, reason",
    [
        ("It is possible the underlying files have been updated.", "a file of the table is gone"),
        ("Encountered error while reading file /t/a.parquet. Details:", "Spark cannot read a file"),
        ("Cannot time travel Delta table to version 3.", "the table's log lacks versions"),
        ("requirement failed: Are you sure? … such a low retention period?", "sooner than readers"),
        ("Catalog 'prod' plugin class not found: …", "the catalog or its schema is not there"),
    ],
)
def test_what_has_no_name_in_spark_3_is_told_as_in_spark_4(text: str, reason: str) -> None:
    """By its words, which the two have in common or not."""
    assert reason in spark_error(RuntimeError(text), "commit").reason


@pytest.mark.usefixtures("spark")
def test_a_conflict_is_told_whichever_class_delta_has_for_it() -> None:
    """Whoever has imported `delta` is given classes of its own."""
    exceptions = pytest.importorskip("delta.exceptions.captured")
    exc = exceptions.ConcurrentAppendException(
        desc="[DELTA_CONCURRENT_APPEND] Files were added", stackTrace=""
    )

    told = as_mirror_error(exc, "orders")

    assert "somebody else committed to the table at the same moment" == told.reason


def test_a_log_that_lacks_versions_is_not_mended_by_a_reset_alone() -> None:
    """The next run would read it again."""
    error = spark_error(RuntimeError("[DELTA_VERSIONS_NOT_CONTIGUOUS] 2 and 4"), "commit")

    assert "remove the Delta table, and mirrorlib reset TARGET TABLE" in str(error)


@pytest.mark.parametrize(
    "failure",
    [
        PySparkException("[DELTA_VIOLATE_CONSTRAINT_WITH_VALUES] - v : 4711"),
        PySparkException("[CAST_INVALID_INPUT] The value '4711' cannot be cast"),
        ValueError("4711"),
    ],
)
def test_the_log_has_others_words_at_debug_alone(
    failure: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    """They may hold values of rows; of what nobody foresaw, where it came from is told aloud."""
    caplog.set_level(logging.DEBUG)

    try:
        raise failure
    except type(failure):
        as_mirror_error(failure, "orders")

    formatter = logging.Formatter()
    told = {one.levelno: formatter.format(one) for one in caplog.records}
    assert "4711" in told.pop(logging.DEBUG)
    assert "4711" not in str(told)
    assert (type(failure) is ValueError) == ("raise failure" in str(told))


def test_of_java_the_cause_is_told() -> None:
    """Its first line alone says that a job was ended."""
    text = "Job aborted.\n\tat x.y\nCaused by: java.io.IOException: No such device\n\tat z"

    assert "No such device" == spark_error(RuntimeError(text), "commit").found
    assert "RuntimeError" == first_line(RuntimeError(""), 10)


@pytest.mark.parametrize(
    "begins", ["An error occurred while calling o7.join.\n: ", "Aborted.\nCaused by: "]
)
def test_of_an_error_of_java_without_a_text_its_name_is_told(begins: str) -> None:
    """The line after it is where it was raised, which tells nobody anything."""
    text = f"{begins}java.lang.StackOverflowError\n\tat java.base/java.lang.ThreadLocal.get(ThreadLocal.java:163)"

    assert "StackOverflowError" == spark_error(RuntimeError(text), "commit").found
