"""The quick start and the how-to pages are run as they stand: every command and every line of Python.

A page is one story in an empty folder. Commands of mirrorlib run in this process, and others in a shell; a
comment says where a command does not end with 0. Installing is left to the reader, and the demo and what ends by Ctrl-C
to tests of their own.
"""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import mirrorlib
from little import understand
from mirrorlib.cli.main import main
from tables import read_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.zones import ZoneWriter

DOCS = Path(__file__).parents[2] / "docs"
PAGES = sorted([*DOCS.glob("how-to/*.md"), DOCS / "start" / "local.md"])
BLOCK = re.compile(r"^```(sh|python)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
EXIT = re.compile(r"#.*\bexit code (\d+)")
PROJECT = tomllib.loads((DOCS.parent / "pyproject.toml").read_text(encoding="utf-8"))["project"]

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("signals")]


def run_command(line: str) -> int | str | None:
    """Run one line of a shell block; give its exit code."""
    words = shlex.split(line, comments=True)
    if words[:2] == ["pip", "install"]:
        assert [f".[{extra}]" for extra in PROJECT["optional-dependencies"]].count(words[2]) == 1
        return 0
    if words[:2] in (["mirrorlib", "demo"], ["mirrorlib", "serve"]):
        assert "" == understand(words[1:])
        return 0
    if words[0] != "mirrorlib":
        return subprocess.run(["/bin/bash", "-c", line], check=False).returncode
    try:
        return main(words[1:])
    except SystemExit as ended:  # --version and --help end so
        return ended.code


@pytest.mark.thorough(
    "add-a-consumer",
    "events",
    "keep-tables-fast",
    "move-a-zone",
    "rebuild",
    "status-page",
    "streaming",
    "verify",
    "where-is",
)
@pytest.mark.usefixtures("callbacks")  # one of them streams
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_does_what_it_says(
    spark: SparkSession, page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From its first block to its last."""
    monkeypatch.chdir(tmp_path)
    blocks = BLOCK.findall(page.read_text(encoding="utf-8"))
    known: dict[str, object] = {"spark": spark}
    for language, text in blocks:
        if language == "python":
            # Java has started elsewhere, and a relative path is one of Java's folder for what Spark itself reads.
            there = text.replace("tables/dbo", f"{tmp_path}/tables/dbo")
            exec(compile(there, str(page), "exec"), known)  # noqa: S102  # that is the test
            continue
        for line in text.splitlines():
            told = EXIT.search(line)
            assert int(told[1] if told else 0) == run_command(line), line
    assert blocks


def example_of(page: str) -> str:
    """Return the first Python of a page."""
    blocks = BLOCK.findall((DOCS / page).read_text(encoding="utf-8"))
    return next(text for language, text in blocks if language == "python")


def test_the_example_of_keys_runs(spark: SparkSession) -> None:
    """Both keys of the changelog survive it."""
    columns = (
        "customer int, `order` int, is_deleted boolean, updated_at long, amount int, note string"
    )
    raw = spark.createDataFrame([(1, 1, False, 1, 5, "")], columns)
    known: dict[str, object] = {"raw": raw}

    exec(compile(example_of("keys.md"), "keys.md", "exec"), known)  # noqa: S102  # that is the test

    assert ("customer", "order_id") == mirrorlib.require_keys(known["result"], primary=True).primary  # type: ignore[arg-type]  # a DataFrame


@pytest.mark.thorough
def test_the_example_of_derived_tables_runs(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """From two mirrors to silver and gold, and the lineage of it."""
    for table, columns, values in (
        ("orders", "id INT, customer INT, status STRING", "(1, 7, 'new'), (2, 7, 'done')"),
        ("customers", "customer INT, name STRING", "(7, 'Ada')"),
    ):
        place = f"delta.`{tmp_path}/bronze/{table}`"
        spark.sql(
            f"CREATE TABLE {place} ({columns}) USING delta TBLPROPERTIES (delta.enableChangeDataFeed = true)"
        )
        spark.sql(f"INSERT INTO {place} VALUES {values}")
    text = example_of("derive.md").replace("/lake", str(tmp_path))

    exec(compile(text, "derive.md", "exec"), {"spark": spark})  # noqa: S102  # that is the test

    gold = spark.read.format("delta").load(f"{tmp_path}/gold/by_customer").collect()
    assert [(7, "Ada", 1)] == [tuple(row) for row in gold]
    assert "by_customer" in capsys.readouterr().out


@pytest.mark.thorough
def test_the_commands_of_notebooks_run(
    spark: SparkSession, zone: ZoneWriter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is installed, or opened in a browser, is left to the reader: its notebook is there."""
    zone.table("orders", keys=["id"]).file([{"id": 1}])
    monkeypatch.chdir(DOCS.parent)
    text = (DOCS / "notebooks.md").read_text(encoding="utf-8")
    for found, there in {
        "/data/landing": str(zone),
        "/data": str(tmp_path),
        "out.ipynb": f"{tmp_path}/out.ipynb",
        ".venv/bin": f"{sys.prefix}/bin",
    }.items():
        text = text.replace(found, there)

    ran = []
    for line in "".join(block for _, block in BLOCK.findall(text)).splitlines():
        words = shlex.split(line, comments=True)
        tool = Path(words[0]).name
        if tool in {"papermill", "mirrorlib"}:
            ran.append((tool, run_command(line)))
        assert all(Path(word).exists() for word in words if word.startswith("notebooks/")), line

    assert [("papermill", 0), ("mirrorlib", 0), ("mirrorlib", 0)] == ran
    assert ["orders"] == [
        row["table"] for row in read_rows(spark, f"{tmp_path}/book/mirrorlib_ledger")
    ]
