"""The quick start and the how-to pages are run as they stand: every command and every line of Python.

A page is one story in an empty folder. Commands of mirrorlib run in this process, and others in a shell; a
comment says where a command does not end with 0.
"""

from __future__ import annotations

import re
import shlex
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from mirrorlib.cli import main

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DOCS = Path(__file__).parents[2] / "docs"
PAGES = sorted([*DOCS.glob("how-to/*.md"), DOCS / "start" / "local.md"])
BLOCK = re.compile(r"^```(sh|python)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
EXIT = re.compile(r"#.*\bexit code (\d+)")

pytestmark = pytest.mark.usefixtures("signals")


def run_command(line: str) -> int | str | None:
    """Run one line of a shell block; give its exit code."""
    words = shlex.split(line, comments=True)
    if words[0] != "mirrorlib":
        return subprocess.run(["/bin/bash", "-c", line], check=False).returncode
    try:
        return main(words[1:])
    except SystemExit as ended:  # --version and --help end so
        return ended.code


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
