"""The examples of the README and of the pages of what there is are run, on one small zone that they publish and apply.

`/data` is a folder of the tests, and `spark` their session.
"""

from __future__ import annotations

import ast
import doctest
import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import mirrorlib
from mirrorlib.cli.main import main
from mirrorlib.platform import notebook

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"^```(?:sh|python)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def block_with(page: str, words: str) -> str:
    """Return the one block of a page in which words stand."""
    blocks = BLOCK.findall((ROOT / page).read_text(encoding="utf-8"))
    (found,) = (block for block in blocks if words in block)
    return str(found)


def run_python(text: str, lake: Path, names: dict[str, Any]) -> dict[str, Any]:
    """Run Python with the lake for /data; return the names that it knew and has made."""
    text = text.replace("mirrorlib.local_spark()", "given").replace("/data", str(lake))
    names["mirrorlib"] = mirrorlib
    exec(compile(text, "example", "exec"), names)  # noqa: S102  # that is the test
    return names


def run_commands(text: str, lake: Path) -> list[int]:
    """Run the commands of a block, with the lake for /data."""
    lines = [shlex.split(line, comments=True) for line in text.splitlines()]
    return [main([word.replace("/data", str(lake)) for word in line[1:]]) for line in lines]


@pytest.fixture(scope="module")
def lake(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Publish as the page of it does, and apply as the README does."""
    lake = tmp_path_factory.mktemp("data")
    run_python(block_with("docs/publish.md", "LandingZoneWriter("), lake, {})
    made = run_python(block_with("README.md", "mirrorlib.apply("), lake, {"given": spark})
    assert ["current"] == [table.state for table in made["report"].tables]
    return lake


def test_what_is_published_is_checked_as_the_page_says(lake: Path) -> None:
    """On the command line, and from Python."""
    assert [0, 0, 0, 0] == run_commands(block_with("docs/check.md", "--strict"), lake)

    made = run_python(block_with("docs/check.md", "strict=True"), lake, {})
    assert made["report"].ok


def test_the_readmes_feed_can_be_read(spark: SparkSession, lake: Path) -> None:
    """From a version, net from a moment, and as a stream; a table that is no mirror gets one."""
    spark.range(1).write.format("delta").save(f"{lake}/other tables/numbers")
    made = run_python(
        block_with("README.md", "read_feed(").replace("=7", "=-1"), lake, {"spark": spark}
    )

    assert [made[name].isStreaming for name in ("changes", "net", "stream")] == [False, False, True]


def test_the_readmes_table_of_tables_is_made(spark: SparkSession, lake: Path) -> None:
    """Of the mirror that the README has applied, by a function of the reader's."""
    names = {"spark": spark, "open_orders": lambda orders: orders.where("id > 0")}

    run_python(block_with("README.md", "mirrorlib.derive("), lake, names)

    tables = (f"{lake}/{place}/orders" for place in ("silver", "tables/dbo"))
    made, whole = (spark.read.format("delta").load(table).count() for table in tables)
    assert made == whole > 0


def test_the_readmes_keys_hold(spark: SparkSession, capsys: pytest.CaptureFixture[str]) -> None:
    """Of the result, and of the view."""
    columns = "customer int, `order` int, gone boolean, at long, amount int, note string"
    raw = spark.createDataFrame([(1, 1, False, 1, 5, "")], columns)

    made = run_python(block_with("README.md", "mirrorlib.explain_keys("), ROOT, {"raw": raw})

    assert ("customer", "order_id") == mirrorlib.require_keys(made["result"], primary=True).primary
    assert "order_id" in capsys.readouterr().out


def test_keys_of_a_mirror_are_written_as_statements(
    spark: SparkSession, lake: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As the page of keys says; the table is one by its path here."""
    text = block_with("docs/keys.md", "key_statements(table")

    run_python(
        text.replace("(spark, table)", '(spark, "/data/tables/dbo/orders")'), lake, {"spark": spark}
    )

    assert "`main`.`mirrors`.`orders`" in capsys.readouterr().out


def untag_example(place: int) -> str:
    """Return one statement of the page of keys."""
    block = block_with("docs/keys.md", "untag(result)").replace("/lake", "/data/lake")
    return ast.unparse(ast.parse(block).body[place])


def test_an_untagged_frame_is_written_as_the_page_of_keys_says(
    spark: SparkSession, lake: Path
) -> None:
    """No tag of its key is in the table's schema."""
    result = mirrorlib.key_by(spark.range(2), ["id"])

    run_python(untag_example(0), lake, {"result": result})

    written = spark.read.format("delta").load(f"{lake}/lake/silver/orders").schema
    assert [True, False] == [bool(schema["id"].metadata) for schema in (result.schema, written)]


def test_an_untagged_stream_is_written_as_the_page_of_keys_says(
    spark: SparkSession, lake: Path
) -> None:
    """Into a Delta table of the catalog, on any Spark; no tag is in its schema, either."""
    spark.range(2).write.format("delta").save(f"{lake}/numbers")
    spark.sql(f"CREATE SCHEMA silver LOCATION '{lake}/warehouse'")
    numbers = spark.readStream.format("delta").load(f"{lake}/numbers")

    run_python(untag_example(1), lake, {"changes": mirrorlib.key_by(numbers, ["id"])})
    for query in spark.streams.active:
        query.processAllAvailable()
        query.stop()

    assert [0, 1] == sorted(row.id for row in spark.table("silver.orders").collect())
    written = spark.read.format("delta").load(f"{lake}/warehouse/orders")
    assert {} == written.schema["id"].metadata
    spark.sql("DROP SCHEMA silver CASCADE")


def test_a_backfill_takes_the_newest_row_of_each_key(spark: SparkSession) -> None:
    """The live one counts for more than that of before."""
    made = run_python(block_with("docs/derive.md", "unionByName"), ROOT, {})
    history, live = (
        spark.createDataFrame(rows, "id int, v string")
        for rows in ([(1, "old"), (2, "old")], [(1, "new")])
    )

    found = made["orders"](history, live)

    assert ("id",) == mirrorlib.require_keys(found, primary=True).primary


def test_what_is_delivered_goes_on_from_python(spark: SparkSession, lake: Path) -> None:
    """The consumer that the command began is the one that the watch goes on with."""
    page = (ROOT / "docs/export.md").read_text(encoding="utf-8")
    (command,) = re.findall(r"^mirrorlib export .*$", page, re.MULTILINE)
    told: list[mirrorlib.ExportReport] = []

    def tell(report: mirrorlib.ExportReport) -> None:
        told.append(report)
        names["stopped"].set()

    names: dict[str, Any] = {"spark": spark, "print": tell}
    assert [0] == run_commands(command, lake)
    run_python(block_with("docs/export.md", "mirrorlib.watch("), lake, names)

    assert [True] == [report.ok for report in told]


def test_the_examples_in_docstrings_give_what_they_say() -> None:
    """There is one module that has some."""
    modules = [path for path in (ROOT / "mirrorlib").rglob("*.py") if ">>>" in path.read_text()]

    assert ["notebook.py"] == [path.name for path in modules]
    ran = doctest.testmod(notebook)
    assert (0, 2) == (ran.failed, ran.attempted)
