"""The command line, as a user or a script meets it: exit codes, JSON, what it writes and what it leaves alone."""

from __future__ import annotations

import io
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import mirrorlib
from little import child_environment, understand
from mirrorlib.cli.main import main
from mirrorlib.feed.changes import Change, Changes
from mirrorlib.platform.show import show_report
from mirrorlib.version import VERSION

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from mirrorlib.ingest.report import ApplyReport
    from tests.zones import ZoneWriter

pytestmark = pytest.mark.usefixtures("signals")

REPOSITORY = Path(__file__).parents[1]
COMMANDS = ("apply", "plan", "status", "check", "reset", "publish", "demo")


def refused(*arguments: str) -> int | str | None:
    """Run a command that its arguments stop; give the exit code."""
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    return caught.value.code


def said(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    """Read what was printed as JSON."""
    value = json.loads(capsys.readouterr().out)
    assert isinstance(value, dict)
    return value


def test_what_is_no_text_can_be_said(tmp_path: Path) -> None:
    """A file's name may be any bytes, and output is strict UTF-8 in most locales: it is shown as errors show it."""
    program = (
        r"import sys; from mirrorlib.cli.main import main; main(sys.argv[1:]); print('caf\udce9')"
    )
    strict = {**child_environment(), "PYTHONIOENCODING": "utf-8:strict"}

    command = [sys.executable, "-c", program, "check", str(tmp_path)]
    done = subprocess.run(command, env=strict, capture_output=True, text=True, check=False)

    assert ("", "caf\\udce9") == (done.stderr, done.stdout.splitlines()[-1])


def test_a_narrow_terminal_cuts_no_number(monkeypatch: pytest.MonkeyPatch) -> None:
    """A column that was cut would show other numbers: lines break instead."""

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setenv("COLUMNS", "30")
    monkeypatch.setattr(sys, "stdout", terminal := Terminal())
    rows = tuple(
        Change(change="insert", version=version, timestamp="", before=None, after={"id": version})
        for version in (1_234_567, 2)
    )
    show_report(Changes("t", rows, ("id",), more=False))

    assert 2 == terminal.getvalue().count("1234567")
    assert all(name in terminal.getvalue() for name in ("version", "change", "key", "columns"))


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("aply",),
        ("apply",),
        ("apply", "zone"),
        ("apply", "zone", "target", "more"),
        ("apply", "zone", "target", "--max-files", "0"),
        ("apply", "zone", "target", "--max-files", "-1"),
        ("apply", "zone", "target", "--max-files", "x"),
        ("apply", "zone", "target", "--max-bytes", "1.5g"),
        ("apply", "zone", "target", "--max-bytes", "0"),
        ("apply", "zone", "target", "--max-bytes", ""),
        ("apply", "zone", "target", "--parallelism", "0"),
        ("apply", "zone", "target", "--watch", "-1"),
        ("apply", "zone", "target", "--watch", "nan"),
        ("apply", "zone", "target", "--watch", "inf"),
        ("apply", "zone", "target", "--insert-policy", "replace"),
        ("apply", "zone", "target", "--evolution", "any"),
        ("apply", "zone", "target", "--ntz", "local"),
        ("apply", "zone", "target", "--retention", "3"),
        ("apply", "zone", "target", "--options", '{"max_files": 0}'),
        ("apply", "zone", "target", "--options", '{"backfill_interval": "soon"}'),
        ("rebuild", "target", "t", "--undo", "--start-at", "2"),
        ("where-is", "target", "t", "--file", "1", "--after", "3"),
        ("where-is", "target", "t", "--file", "1", "--show-values"),
        ("consumers", "target", "--consumer", "a", "--rewind", "b", "--to", "now"),
        ("consumers", "target", "--rewind", "b"),
        ("consumers", "target", "--to", "now"),
        ("plan", "zone", "target", "--watch", "1"),
        ("plan", "zone", "target", "--retention", "3"),
        ("status",),
        ("reset", "target"),
    ],
)
def test_wrong_usage_is_2(arguments: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    """Before anything is started, with the usage on standard error."""
    assert 2 == refused(*arguments)

    streams = capsys.readouterr()
    assert "usage: mirrorlib" in streams.err
    assert "" == streams.out


def test_plan_takes_what_apply_is_told_of_a_table() -> None:
    """So that the one is asked by the other's line."""
    told = "--on-gone drop --quiet-updates --cleanup move --retention 3 --allow-empty --retry"

    for command in ("apply", "plan"):
        assert "" == understand([command, "zone", "target", *told.split()])


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_explains_itself(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Its arguments with a word to each."""
    assert 0 == refused(command, "--help")

    text = capsys.readouterr().out
    assert text.startswith(f"usage: mirrorlib {command}")
    assert len(text) > 200


def test_the_program_explains_itself(capsys: pytest.CaptureFixture[str]) -> None:
    """Commands, examples and exit codes on one page; and its version."""
    assert 0 == refused("--help")
    text = capsys.readouterr().out
    assert all(command in text for command in (*COMMANDS, "exit codes", "examples"))

    assert 0 == main(["--version"])
    assert f"mirrorlib {VERSION}\n" == capsys.readouterr().out


@pytest.mark.thorough
def test_places_that_are_not_there_are_wrong_usage(
    spark: SparkSession, zone: ZoneWriter, target: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A mistyped zone, table or target, and two places one inside the other; nothing is made."""
    del spark
    zone.table("orders", keys=["id"]).file([{"id": 1}])
    wrong = [
        ["apply", f"{zone}x", target],
        ["plan", f"{zone}x", target],
        ["apply", str(zone), target, "--table", "oders"],
        ["apply", str(zone), f"{zone}/target"],
        ["apply", f"{zone}/orders", str(zone)],
        ["apply", str(zone), "schema", "--catalog", "spark_catalog"],
        ["reset", target, "orders"],
        ["status", target],
        ["apply", "gopher://somewhere", target],
        ["plan", str(zone), "gopher://somewhere"],
    ]

    for arguments in wrong:
        assert 2 == main(arguments), arguments
        streams = capsys.readouterr()
        assert "" == streams.out
        assert streams.err.startswith("mirrorlib: ")
        assert 1 == streams.err.count("\n")
        assert 2 == main([*arguments, "--json"])
        error = json.loads(capsys.readouterr().out)
        assert error["ok"] is False
        assert {"error", "message", "reason", "next_step"} <= set(error)
    assert not Path(target).exists()


@pytest.mark.parametrize(
    "words", ["publish zone t {long} --keys id", "fabric-items {file} --wheel {wheel}"]
)
def test_places_that_no_system_takes_get_no_stack_trace(
    words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Python's own errors are told like a store's."""
    file, wheel = tmp_path / "file", tmp_path / "m.whl"
    file.touch(), wheel.touch()
    names = {"long": "a" * 300, "file": file, "wheel": wheel}

    assert 1 == main([word.format(**names) for word in words.split()])

    told = capsys.readouterr().err
    assert told.startswith("mirrorlib: cannot do what was asked for (found [Errno ")


@pytest.mark.parametrize("words", ["check {zone}", "status {zone}/none"])
def test_a_reader_who_has_seen_enough_gets_no_stack_trace(zone: ZoneWriter, words: str) -> None:
    """`mirrorlib check … | head` closes the pipe early, to errors too."""
    zone.table("orders", keys=["id"]).file([{"id": 1}], number=2)
    command = [sys.executable, "-m", "mirrorlib.cli", *words.format(zone=zone).split(), "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as child:
        assert child.stdout is not None
        assert child.stderr is not None
        child.stdout.close()
        said = child.stderr.read()

    assert (141, b"") == (child.returncode, said)


@pytest.mark.parametrize("words", ["publish {zone} b {rows} --keys id", "check {zone}"])
@pytest.mark.parametrize("form", [(), ("--json",)])
def test_what_is_done_and_cannot_be_printed_is_not_to_be_done_again(
    zone: ZoneWriter, tmp_path: Path, words: str, form: tuple[str, ...]
) -> None:
    """Whoever publishes once more, as he would be told to, has the rows twice."""
    zone.table("a", keys=["id"]).file([{"id": 1}])
    rows = tmp_path / "rows.csv"
    rows.write_text("id\n1\n")
    command = [sys.executable, "-m", "mirrorlib.cli", *words.format(zone=zone, rows=rows).split()]
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [*command, *form], stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )

    told = "mirrorlib: what was asked for has ended, and its outcome could not be printed (found "
    assert (1, 1) == (done.returncode, len(done.stderr.splitlines()))
    assert done.stderr.startswith(told)


def snapshot(folder: Path) -> dict[str, tuple[int, int]]:
    """Give every file and folder below with its size and time."""
    return {
        str(path.relative_to(folder)): (stat.st_size, stat.st_mtime_ns)
        for path in folder.rglob("*")
        for stat in [path.stat()]
    }


@pytest.mark.thorough
def test_plan_writes_nothing(
    spark: SparkSession, zone: ZoneWriter, target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """Before the first apply and later: it says batches, files, rows, schema changes and what is wrong, and no more."""
    del spark
    monkeypatch.chdir(tmp_path)
    orders = zone.table("orders", keys=["id"], schema="dbo")
    orders.file([{"id": 1, "v": 1}])
    orders.file([{"id": 1, "v": 2}], [1])
    before = snapshot(tmp_path)

    assert 0 == main(["plan", str(zone), target, "--json", "--max-files", "1"])
    table = said(capsys)["tables"][0]
    assert before == snapshot(tmp_path)
    assert ("dbo/orders", "behind", 2, 2, 2) == tuple(
        table[name] for name in ("table", "state", "batches", "files", "rows")
    )
    assert ["creates the table with 2 columns"] == table["schema_changes"]

    assert 0 == main(["apply", str(zone), target, "--json"])
    said(capsys)
    orders.file([{"id": 2, "v": 5.5, "w": "x"}], [4])
    orders.zero_bytes()
    before = snapshot(tmp_path)
    assert 1 == main(["plan", str(zone), target])
    text = capsys.readouterr().out
    assert before == snapshot(tmp_path)
    for piece in (
        "adds the column w string",
        "rewrites the table for v from bigint to double",
        orders.path(4).name,
        "no bytes",
    ):
        assert piece in text

    orders.replace(4, [{"id": 3}], [4])
    assert 0 == main(["apply", str(zone), target, "--json"])
    assert [1] == [len(one["batches"]) for one in said(capsys)["tables"]]
    assert 0 == main(["plan", str(zone), target, "--json"])
    assert ["current"] == [one["state"] for one in said(capsys)["tables"]]


@pytest.mark.parametrize("count", [8, pytest.param(50, marks=pytest.mark.thorough)])
def test_many_tables_three_of_them_broken(
    spark: SparkSession,
    zone: ZoneWriter,
    target: str,
    capsys: pytest.CaptureFixture[str],
    *,
    count: int,
) -> None:
    """The others are current, 3 say why, the exit code is 1; repaired, all are current and it is 0."""
    del spark
    tables = [zone.table(f"t{number:02d}", keys=["id"], schema="dbo") for number in range(count)]
    for table in tables:
        table.file([{"id": 1, "v": "a"}])
    tables[2].file([{"id": 1}], [3])
    tables[4].zero_bytes()
    tables[6].file([{"id": 3}], number=3)

    assert 1 == main(["apply", str(zone), target, "--json"])
    report = said(capsys)
    stopped = {one["table"]: one for one in report["tables"] if one["state"] != "current"}
    assert (count, False) == (len(report["tables"]), report["ok"])
    assert {"dbo/t02": "failed", "dbo/t04": "failed", "dbo/t06": "blocked"} == {
        name: one["state"] for name, one in stopped.items()
    }
    assert all(tables[2].path(2).name in one["reason"] for one in stopped.values())
    assert {1} == {one["position"] for one in report["tables"]}

    assert 1 == main(["status", target, "--json"])
    states = said(capsys)["tables"]
    assert stopped.keys() == {one["table"] for one in states if one["state"] != "current"}
    assert {one["reason"] for one in stopped.values()} == {one["reason"] for one in states} - {""}
    assert 1 == main(["status", target])
    assert "dbo/t06 is blocked since" in capsys.readouterr().out

    tables[2].replace(2, [{"id": 1}], [2])
    tables[4].replace(2, [{"id": 2, "v": "b"}])
    tables[6].file([{"id": 2, "v": "b"}], number=2)
    assert 0 == main(["apply", str(zone), target, "--json"])
    after = said(capsys)["tables"]
    assert {"current"} == {one["state"] for one in after}
    assert 3 == sum(len(one["batches"]) for one in after)


@pytest.mark.thorough
def test_tables_are_chosen_by_name_and_glob(
    spark: SparkSession, zone: ZoneWriter, target: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Repeated; the others are left alone. Limits cut the backlog, and what is done is not done again."""
    del spark
    for schema, name in (("dbo", "orders"), ("dbo", "items"), ("sales", "orders"), (None, "plain")):
        table = zone.table(name, keys=["id"], schema=schema)
        for number in range(3):
            table.file([{"id": number}])

    assert 0 == main(
        [
            "apply",
            str(zone),
            target,
            "--table",
            "dbo/*",
            "--table",
            "plain",
            "--json",
            "--max-files",
            "2",
        ]
    )
    report = said(capsys)
    assert ["dbo/items", "dbo/orders", "plain"] == sorted(one["table"] for one in report["tables"])
    assert [[2, 1]] * 3 == [
        [batch["files"] for batch in one["batches"]] for one in report["tables"]
    ]

    assert 0 == main(["apply", str(zone), target, "--max-bytes", "1"])
    text = capsys.readouterr().out
    assert all(name in text for name in ("sales/orders", "current", "rows/s"))
    assert 0 == main(["apply", str(zone), target, "--json"])
    assert [[]] * 4 == [one["batches"] for one in said(capsys)["tables"]]


@pytest.mark.thorough
def test_insert_policy_and_quiet_updates(
    spark: SparkSession, zone: ZoneWriter, target: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Marker 0 replaces the row of its key on request; an update that changes nothing may be left out of the feed."""
    orders = zone.table("orders", keys=["id"])
    orders.file([{"id": 1, "v": 1}, {"id": 1, "v": 2}])
    assert 0 == main(["apply", str(zone), target, "--insert-policy", "upsert", "--json"])
    orders.file([{"id": 1, "v": 2}], [0])
    assert 0 == main(
        ["apply", str(zone), target, "--insert-policy", "upsert", "--quiet-updates", "--json"]
    )
    capsys.readouterr()

    table = f"{target}/orders"
    assert [(1, 2)] == [tuple(row) for row in spark.read.format("delta").load(table).collect()]
    feed = (
        spark.read.format("delta")
        .option("readChangeFeed", "true")
        .option("startingVersion", 0)
        .load(table)
    )
    assert ["insert"] == [row["_change_type"] for row in feed.collect()]


@pytest.mark.thorough
def test_tables_of_a_catalog(
    spark: SparkSession, zone: ZoneWriter, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """With `--catalog` a schema takes the tables, and `--state` says where the journal lives."""
    spark.sql(f"CREATE SCHEMA mirrored LOCATION '{tmp_path}/warehouse'")
    orders = zone.table("orders", keys=["id"], schema="dbo")
    orders.file([{"id": 1, "v": "a"}, {"id": 2, "v": "a"}])
    places = [
        "mirrored",
        "--catalog",
        "spark_catalog",
        "--state",
        str(tmp_path / "state"),
        "--json",
    ]
    try:
        assert 0 == main(["apply", str(zone), *places])
        orders.file([{"id": 1, "v": "b"}, {"id": 2, "v": None}], [1, 2])
        assert 0 == main(["apply", str(zone), *places])
        capsys.readouterr()
        assert [(1, "b")] == [tuple(row) for row in spark.table("mirrored.orders").collect()]
        assert 0 == main(["status", *places])
        assert ["current"] == [one["state"] for one in said(capsys)["tables"]]
        assert 0 == main(["reset", *places[:1], "dbo/orders", *places[1:]])
        capsys.readouterr()
        assert 0 == main(["apply", str(zone), *places])
        assert [(1, "b")] == [tuple(row) for row in spark.table("mirrored.orders").collect()]
    finally:
        spark.sql("DROP SCHEMA mirrored CASCADE")
    assert (tmp_path / "state" / "journal").is_dir()


@pytest.mark.thorough
def test_keys_differ_by_case_in_a_schema_by_whose_collation_they_do_not(
    spark: SparkSession, zone: ZoneWriter, tmp_path: Path
) -> None:
    """Else two rows of the zone would be one of the table."""
    session = spark.newSession()
    session.conf.set("spark.sql.collation.schemaLevel.enabled", "true")  # as on Databricks
    place = f"LOCATION '{tmp_path}/warehouse'"
    session.sql(f"CREATE SCHEMA mirrored4 DEFAULT COLLATION UTF8_LCASE {place}")
    orders = zone.table("orders", keys=["k"])
    told = {"catalog": "spark_catalog", "state": str(tmp_path / "state")}
    try:
        orders.file([{"k": "a"}, {"k": "A"}])
        assert mirrorlib.apply(spark, str(zone), "mirrored4", **told).ok
        orders.file([{"k": "A", "w": "x"}, {"k": "b", "w": "X"}], [1, 4])
        assert mirrorlib.apply(spark, str(zone), "mirrored4", **told).ok
        rows = spark.table("mirrored4.orders")
        assert {("A", "x"), ("a", None), ("b", "X")} == {tuple(row) for row in rows.collect()}
        assert {"string"} == {field.dataType.simpleString() for field in rows.schema}
    finally:
        spark.sql("DROP SCHEMA mirrored4 CASCADE")


@pytest.mark.thorough
def test_what_a_killed_run_left_in_a_catalog_s_schema_is_told(
    spark: SparkSession, zone: ZoneWriter, tmp_path: Path
) -> None:
    """The catalog does not know the table yet, and refuses to make it there: the folder is named, and the way out."""
    spark.sql(f"CREATE SCHEMA mirrored3 LOCATION '{tmp_path}/warehouse'")
    zone.table("orders", keys=["id"]).file([{"id": 1}])
    left = tmp_path / "warehouse" / "orders"
    (left / "_delta_log").mkdir(parents=True)
    try:
        for _ in range(2):
            (found,) = apply_to_catalog(spark, zone, "mirrored3", tmp_path).tables
            assert ("failed", "MirrorError") == (found.state, found.error)
            assert str(left) in found.reason
            assert "Remove what is there if nobody needs it" in found.reason
        shutil.rmtree(left)

        (found,) = apply_to_catalog(spark, zone, "mirrored3", tmp_path).tables

        assert "current" == found.state
        assert [1] == [row["id"] for row in spark.table("mirrored3.orders").collect()]
    finally:
        spark.sql("DROP SCHEMA mirrored3 CASCADE")


def apply_to_catalog(
    spark: SparkSession, zone: ZoneWriter, schema: str, folder: Path
) -> ApplyReport:
    """Apply a zone to a schema of the session's catalog."""
    state = folder / "state"
    return mirrorlib.apply(spark, str(zone), schema, catalog="spark_catalog", state=state)


@pytest.mark.thorough
def test_two_schemas_with_one_table_name_do_not_share_a_catalog_table(
    spark: SparkSession, zone: ZoneWriter, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """dbo.orders and sales.orders would both be mirrored.orders: both are refused, the rest is applied."""
    spark.sql(f"CREATE SCHEMA mirrored2 LOCATION '{tmp_path}/warehouse'")
    for schema, name in (("dbo", "orders"), ("sales", "Orders"), ("dbo", "items")):
        zone.table(name, keys=["id"], schema=schema).file([{"id": 1}])
    places = [
        "mirrored2",
        "--catalog",
        "spark_catalog",
        "--state",
        str(tmp_path / "state"),
        "--json",
    ]
    try:
        assert 1 == main(["apply", str(zone), *places])
        states = {one["table"]: one["state"] for one in said(capsys)["tables"]}
        assert {"dbo/items": "current", "dbo/orders": "failed", "sales/Orders": "failed"} == states
        assert ["items"] == [
            row["tableName"]
            for row in spark.sql("SHOW TABLES IN mirrored2").collect()
            if not row["isTemporary"]
        ]
    finally:
        spark.sql("DROP SCHEMA mirrored2 CASCADE")


@pytest.mark.smoke
def test_reset_begins_again(
    spark: SparkSession, zone: ZoneWriter, target: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Readers see the old content until the next apply replaces it, with new keys and names if need be."""
    orders = zone.table("orders", keys=["id"])
    orders.file([{"id": 1, "v": "a"}])
    assert 0 == main(["apply", str(zone), target])
    orders.drop()
    orders.make()
    orders.metadata(keys=["key"])
    orders.file(pa.table({"key": [7], "w": [1.5]}))
    assert 0 == main(["reset", target, "orders", "--json"])
    assert 2 == json.loads(capsys.readouterr().out.rpartition("\n{")[2].join(["{", ""]))["life"]
    assert ["id", "v"] == spark.read.format("delta").load(f"{target}/orders").columns

    code = main(["apply", str(zone), target, "--json"])
    report = said(capsys)

    assert (0, "") == (code, report["tables"][0]["reason"])
    assert [(7, 1.5)] == [
        tuple(row) for row in spark.read.format("delta").load(f"{target}/orders").collect()
    ]


@pytest.mark.thorough
@pytest.mark.smoke
def test_reset_takes_names_that_need_column_mapping(
    spark: SparkSession, zone: ZoneWriter, target: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A table that such a column came to late begins anew with it; that readers have to know mapping is told."""
    orders = zone.table("orders", keys=["id"])
    orders.file([{"id": 1}])
    assert 0 == main(["apply", str(zone), target])
    orders.file([{"id": 2, "a b": 1}])
    for begin_anew in (False, True):
        if begin_anew:
            assert 0 == main(["reset", target, "orders"])
        capsys.readouterr()
        assert 0 == main(["apply", str(zone), target])
        assert begin_anew != ("column mapping is turned on for a b" in capsys.readouterr().out)

        rows = spark.read.format("delta").load(f"{target}/orders").collect()
        assert [(1, None), (2, 1)] == sorted(tuple(row) for row in rows)


def lines(child: subprocess.Popen[str]) -> dict[str, Any]:
    """Read one report of a watching child."""
    assert child.stdout is not None
    line = child.stdout.readline()
    assert line, "the child has ended"
    value = json.loads(line)
    assert isinstance(value, dict)
    return value


@pytest.mark.thorough
@pytest.mark.slow
def test_watch_applies_what_comes_later_and_ends_after_the_commit_in_flight(
    zone: ZoneWriter, target: str
) -> None:
    """Ctrl-C in the middle of a commit: it is finished and written down, then the process ends well."""
    orders = zone.table("orders", keys=["id"])
    orders.file([{"id": 1}])
    command = [
        sys.executable,
        "-m",
        "mirrorlib.cli",
        "apply",
        str(zone),
        target,
        "--watch",
        "0.2",
        "--json",
        "--max-files",
        "1",
    ]
    with subprocess.Popen(
        command,
        cwd=REPOSITORY,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ},
    ) as child:
        try:
            assert 1 == lines(child)["tables"][0]["position"]
            orders.file([{"id": 2}])
            while lines(child)["tables"][0]["position"] < 2:
                pass
            for number in range(3, 7):
                orders.file([{"id": number}])
            plans = Path(target) / "_mirrorlib/journal/orders/000001"
            until = time.monotonic() + 60
            while not list(plans.glob("*-3.plan.json")) and time.monotonic() < until:
                time.sleep(0.005)
            child.send_signal(signal.SIGINT)
            out, err = child.communicate(timeout=60)
        finally:
            child.kill()

    assert 0 == child.returncode, err
    assert "SIGINT: stopping after the commits in flight" in err
    assert "Traceback" not in err
    last = json.loads(out.strip().splitlines()[-1])["tables"][0]
    assert "behind" == last["state"]
    assert 3 <= last["position"] < 6
    assert {path.name.replace("plan", "done") for path in plans.glob("*.plan.json")} == {
        path.name for path in plans.glob("*.done.json")
    }
