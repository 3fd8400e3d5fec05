"""`docs/readers.md` says which reader reads which mirror; every line of it is read here.

A reader that is not installed is skipped, and so is one of another version than the page speaks of. Where readers are in
environments of their own, `MIRRORLIB_READERS` names their Pythons, as PATH does folders. The line that the page should
have is what a failure shows.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

import mirrorlib
import table_readers
from little import SHORT_LIVED
from table_readers import ALONE, NEEDED, Answers, Read, digest, named
from zones import ZoneWriter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pyspark.sql import SparkSession

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "readers.md"
MANY = 10_010  # changes: a commit of few rows leaves no deletion vectors in any table
ROWS = MANY + 40
NOON = datetime(2026, 1, 1, 12)
PYTHONS = [sys.executable, *filter(None, os.environ.get("MIRRORLIB_READERS", "").split(os.pathsep))]
PYTHON35 = str(Path(sys.prefix).with_name(".venv35") / "bin" / "python")
# The columns of the page's table, in their order, and the rows that each mirror has.
EXPECTED = {
    "vectors": [*((i, i) for i in range(MANY + 2, ROWS)), (MANY, 100), (ROWS, 100)],
    "widened": [(1, 1), (2, 1 << 40)],
    "plain": [*((i, i) for i in range(MANY + 2, ROWS)), (MANY, 100), (ROWS, 100)],
    "plain_widened": [(1, 1), (2, 1 << 40)],
    "plain_clock": [(1, NOON)],
    "plain_mapped": [(1, 5), (2, 7)],
}

pytestmark = pytest.mark.thorough


def column(values: object, kind: pa.DataType | None = None) -> pa.Array:
    """Write numbers as a publisher of 32-bit integers does."""
    return pa.array(values, kind or pa.int32())


def busy(zone: ZoneWriter, name: str) -> None:
    """Publish a load, many deletes, which leave their rows in the data files, and a few changes."""
    table = zone.table(name, keys=["id"])
    ids = column(range(ROWS))
    table.file(pa.table({"id": ids, "n": ids}))
    table.file(pa.table({"id": ids.slice(0, MANY), "n": ids.slice(0, MANY)}), [2] * MANY)
    changed = column([MANY, MANY + 1, ROWS])
    table.file(pa.table({"id": changed, "n": column([100, 100, 100])}), [1, 2, 0])


def odd_name(zone: ZoneWriter, name: str) -> None:
    """Publish a column whose name no Parquet column of Delta may have."""
    table = zone.table(name, keys=["id"])
    table.file(pa.table({"id": column([1, 2]), "unit price": column([5, 6])}))
    table.file(pa.table({"id": column([2]), "unit price": column([7])}), [1])


def widened(zone: ZoneWriter, name: str) -> None:
    """Publish integers, and then one for which 32 bits are too few."""
    table = zone.table(name, keys=["id"])
    table.file(pa.table({"id": column([1, 2]), "n": column([1, 2])}))
    table.file(pa.table({"id": column([2]), "n": column([1 << 40], pa.int64())}), [1])


def clock(zone: ZoneWriter, name: str) -> None:
    """Publish a time without a zone."""
    zone.table(name, keys=["id"]).file(
        pa.table({"id": column([1]), "at": pa.array([NOON], pa.timestamp("us"))})
    )


@pytest.fixture(scope="module")
def tables(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Give a mirror of each kind."""
    root = tmp_path_factory.mktemp("readers")
    default, plain = ZoneWriter(root / "default"), ZoneWriter(root / "plain")
    busy(default, "vectors")
    widened(default, "widened")
    busy(plain, "plain")
    widened(plain, "plain_widened")
    clock(plain, "plain_clock")
    odd_name(plain, "plain_mapped")
    for zone, readers in ((default, None), (plain, "plain")):
        state = root / f"{zone.root.name} state"
        report = mirrorlib.apply(
            spark,
            str(zone),
            root / "tables",
            state=state,
            max_files=1,
            ntz="keep",
            readers=readers,
        )
        assert report.ok, report
    assert list((root / "tables" / "vectors").glob("deletion_vector_*.bin"))
    return {kind: str(root / "tables" / kind) for kind in EXPECTED}


@pytest.fixture(scope="module")
def expected(spark: SparkSession, tables: dict[str, str]) -> Answers:
    """Give what a reader of rows and one of changes have to find: the changes are those of `read_feed`."""

    def changes(path: str) -> Iterable[Iterable[object]]:
        window = mirrorlib.read_feed(spark, path, after=-1)
        return window.drop("_commit_timestamp").collect()

    rows = {kind: digest(rows) for kind, rows in EXPECTED.items()}
    return {"rows": rows, **table_readers.ask({"changes": changes}, tables)}


def line(reader: str, what: str, answers: dict[str, str], expected: dict[str, str]) -> str:
    """Write a line of the page's table."""
    words = (
        "yes" if said == expected[kind] else "other rows" if " rows " in said[:12] else "no"
        for kind, said in answers.items()
    )
    return f"| {reader} | {what} | {' | '.join(words)} |"


def check(reader: str, answers: Answers, expected: Answers) -> None:
    """See that the page says what the reader did."""
    page = PAGE.read_text(encoding="utf-8").splitlines()
    if not any(told.startswith(f"| {reader} |") for told in page):
        pytest.skip(f"the page does not speak of {reader}")
    for what, said in answers.items():
        assert line(reader, what, said, expected[what]) in page, said


def ask_child(python: str, reader: str, tables: dict[str, str]) -> tuple[str, Answers]:
    """Let another Python read; return the reader with its version, and what it did."""
    task = json.dumps({"reader": reader, "tables": tables})
    paths = os.pathsep.join([str(ROOT), str(ROOT / "tests")])
    done = subprocess.run(
        [python, table_readers.__file__, task],
        env={**os.environ, "PYTHONPATH": paths, "SPARK_SUBMIT_OPTS": SHORT_LIVED},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    told = json.loads(done.stdout.splitlines()[-1])
    return told["reader"], told["answers"]


def has(python: str, packages: Iterable[str]) -> bool:
    """Say whether a Python can import these."""
    command = [python, "-c", f"import {', '.join(packages)}"]
    return (
        Path(python).exists()
        and not subprocess.run(command, stderr=subprocess.DEVNULL, check=False).returncode
    )


@pytest.mark.parametrize("reader", ALONE)
def test_a_library_reads_what_the_page_says(
    reader: str, tables: dict[str, str], expected: Answers
) -> None:
    """By itself, in a process of its own."""
    python = next((python for python in PYTHONS if has(python, NEEDED[reader])), None)
    if python is None:
        pytest.skip(f"{reader} is not installed")
    check(*ask_child(python, reader, tables), expected)


def test_older_spark_reads_what_the_page_says(tables: dict[str, str], expected: Answers) -> None:
    """The oldest that the package runs on."""
    if not has(PYTHON35, NEEDED["Spark"]):
        pytest.skip("make smoke35 makes its environment")
    check(*ask_child(PYTHON35, "Spark", tables), expected)


@pytest.mark.parametrize(
    "reader, ways, package",
    [
        ("Spark", table_readers.spark, "pyspark"),
        ("Delta Kernel for Java", table_readers.kernel, "delta_spark"),
    ],
)
def test_the_session_reads_what_the_page_says(
    spark: SparkSession,
    tables: dict[str, str],
    expected: Answers,
    reader: str,
    ways: Callable[[SparkSession], dict[str, Read]],
    package: str,
) -> None:
    """Spark itself, and what else comes with Delta's jars."""
    check(named(reader, package), table_readers.ask(ways(spark), tables), expected)
