"""Exporting from the command line: what people see, what machines read, and what wrong words are told."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import mirrorlib
from mirrorlib.cli import main as cli
from mirrorlib.cli.commands.export import _keys
from mirrorlib.errors import LandingZoneError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.zones import ZoneWriter


def run(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    """Run a command; give its exit code and what it says."""
    code = cli.main([str(argument) for argument in arguments])
    said = capsys.readouterr()
    return code, said.out, said.err


@pytest.mark.smoke
def test_a_consumer_s_whole_life(
    spark: SparkSession,
    zone: ZoneWriter,
    target: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A mirror is exported, changed, exported again, looked at, rewound, kept from VACUUM, and dropped."""
    orders = zone.table("orders", keys=["id"])
    orders.file([{"id": 1, "n": 10}, {"id": 2, "n": 20}])
    assert mirrorlib.apply(spark, str(zone), target).ok
    out = tmp_path / "out"
    export = ["export", target, "orders", "--consumer", "lake", "--to", f"files:{out}?format=jsonl"]

    code, text, _ = run(capsys, *export)
    assert 0 == code
    assert ["orders", "current", "1", "2"] == text.splitlines()[2].split()[:4]
    orders.file([{"id": 1, "n": 11}, {"id": 2, "n": 20}], [1, 2])
    assert mirrorlib.apply(spark, str(zone), target).ok

    code, text, _ = run(capsys, "consumers", target, "--json")
    stream = json.loads(text)["streams"][0]
    assert (0, "behind", 2) == (code, stream["health"], stream["rows"])
    code, text, _ = run(capsys, *export, "--json")
    told = json.loads(text)
    assert (0, True, 3) == (code, told["ok"], told["tables"][0]["rows"])
    files = sorted(out.glob("orders/*.jsonl"))
    kinds = [
        [json.loads(line)["_change_type"] for line in file.read_text().splitlines()]
        for file in files
    ]
    assert [["insert"] * 2, ["delete", "update_postimage", "update_preimage"]] == [
        sorted(kind) for kind in kinds
    ]

    code, text, _ = run(capsys, "consumers", target)
    assert (0, ["lake", "orders", "current"]) == (code, text.splitlines()[2].split()[:3])
    code, text, _ = run(capsys, "vacuum", target, "--dry-run", "--json")
    assert (0, "ready") == (code, json.loads(text)["tables"][0]["state"])
    code, text, _ = run(capsys, "consumers", target, "--rewind", "lake", "--to", "snapshot")
    assert (0, "rewound: lake, orders\n") == (code, text)
    code, text, _ = run(capsys, *export)
    assert (0, 3) == (code, len(list(out.glob("orders/*.jsonl"))))
    code, text, _ = run(capsys, "consumers", target, "--drop", "lake", "--json")
    assert (0, ["orders"]) == (code, json.loads(text)["dropped"])
    code, text, _ = run(capsys, "consumers", target)
    assert (0, True) == (code, "No consumer is registered." in text)


@pytest.mark.parametrize(
    "words, expected",
    [
        ([], None),
        (["--key="], None),
        (["--key", "[]"], []),
        (["--key", "id", "--key", "at"], ["id", "at"]),
        (["--key", '["id", "at"]'], ["id", "at"]),
        (["--key", '{"a": ["id"], "b": []}'], {"a": ["id"], "b": []}),
    ],
)
def test_keys_are_a_name_a_list_or_a_mapping_of_tables(
    words: list[str], expected: list[str] | dict[str, list[str]] | None
) -> None:
    """A task's parameter is one text, and may be empty; a person repeats the option."""
    arguments = cli.make_parser().parse_args(
        ["export", "t", "--consumer", "c", "--to", "x", "--max-versions=", "--mode=", *words]
    )

    assert (expected, None, None) == (
        _keys(arguments),
        arguments.max_versions,
        arguments.mode,
    )


@pytest.mark.parametrize(
    "words, told",
    [
        (["--key", '["id"'], "--key has to be a JSON mapping of tables to lists"),
        (["--key", '{"orders": "id"}'], "--key has to be a JSON mapping of tables to lists"),
        (["--key", '{"orders": [""]}'], "--key has to be a JSON list of texts"),
        (["--max-versions", "0"], "'0' is not a whole number from 1 on"),
    ],
)
def test_keys_that_cannot_be_read_are_refused(
    words: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Before any Spark is started."""
    with pytest.raises(SystemExit) as caught:
        cli.main(["export", "t", "--consumer", "c", "--to", "x", *words])

    assert (2, True) == (caught.value.code, told in capsys.readouterr().err)


def test_wrong_words_are_told(
    spark: SparkSession, tmp_path: Path, zone: ZoneWriter, capsys: pytest.CaptureFixture[str]
) -> None:
    """In one line, with exit code 2 and nothing written; a table that is not there is the report's."""
    del zone
    target = tmp_path / "target"
    target.mkdir()
    export = ["export", target, "--consumer", "lake", "--to"]
    for arguments, reason in (
        ([*export, "ftp:x"], "nothing is known that receives"),
        ([*export, f"files:{tmp_path}/o", "--mode", "scd2"], "has no mode scd2"),
        ([*export, f"files:{tmp_path}/o?format=xml"], "format"),
        ([*export, f"delta:{tmp_path}/o", "--mode", "scd2", "--net"], "keeps every state"),
        ([*export, f"files:{target}"], "is the target itself"),
        ([*export, f"files:{tmp_path}/o", "--start", "soon"], "a consumer begins with"),
        (
            [*export, f"files:{tmp_path}/o", "--key", '{"none": ["id"]}'],
            "keys are given for a table",
        ),
        (
            ["export", target, "dbo/*", *export[2:], f"files:{tmp_path}/o"],
            "dbo/*: no table matches (found tables none)",
        ),
        (["consumers", target, "--drop", "lake"], "no consumer lake"),
        (["consumers", target, "--table", "oders"], "oders: no table matches"),
    ):
        code, out, err = run(capsys, *arguments)
        assert (2, "", 1) == (code, out, len(err.splitlines())), arguments
        assert reason in err
    for to in (None, Path("copy")):
        with pytest.raises(LandingZoneError, match="Give delta:PATH"):
            mirrorlib.export(spark, target, consumer="lake", to=to)  # type: ignore[arg-type]
    (target / "a" / "_delta_log").mkdir(parents=True)
    code, _, err = run(capsys, "export", target, "x/*", *export[2:], f"files:{tmp_path}/o")
    assert (2, True) == (code, "x/*: no table matches (found tables a)" in err)
    assert not (target / "_mirrorlib").exists()
    code, out, _ = run(
        capsys, "export", target, "none", "--consumer", "x", "--to", f"files:{tmp_path}/o"
    )
    assert (1, True) == (code, "there is no such Delta table" in out)
    wrong = ["--key", "id", "--no-key"]
    with pytest.raises(SystemExit) as caught:
        cli.main(["export", str(target), "--consumer", "x", "--to", "files:o", *wrong])
    assert caught.value.code == 2


@pytest.mark.thorough
def test_keys_are_given_by_table_or_not_at_all(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A key that does not tell rows apart is refused, and the options that the error names bring the copy right."""
    target = tmp_path / "target"
    for name in ("dbo/orders", "dbo/items"):
        told = "'delta.enableChangeDataFeed' = 'true'"
        spark.sql(
            f"CREATE TABLE delta.`{target}/{name}` (id INT, n INT) USING delta TBLPROPERTIES ({told})"
        )
        spark.sql(f"INSERT INTO delta.`{target}/{name}` VALUES (1, 1), (1, 2), (1, 2)")
    place = ["--consumer", "base", "--to", f"jdbc:sqlite:{tmp_path / 'base'}"]

    def export(*options: str) -> dict[str, str]:
        code, text, _ = run(capsys, "export", target, *place, *options, "--json")
        tables = json.loads(text)["tables"]
        assert code == any(table["state"] == "failed" for table in tables)
        return {table["table"]: table["reason"] for table in tables}

    told = export("--key", '{"orders": ["id"], "dbo/items": ["id", "n"]}')
    assert all("same key" in reason for reason in told.values())
    assert all("--key or --no-key" in reason for reason in told.values())
    run(capsys, "consumers", target, "--rewind", "base", "--to", "snapshot")
    told = export("--key", '{"dbo/orders": [], "dbo/items": ["id", "n"]}')
    assert ["dbo/items"] == [table for table, reason in told.items() if reason]
    assert "column id, n" in told["dbo/items"]
    run(capsys, "consumers", target, "--rewind", "base", "--to", "snapshot")
    assert {"dbo/items": "", "dbo/orders": ""} == export("--no-key")
