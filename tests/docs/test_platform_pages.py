"""The quick starts of platforms: each of their commands that needs no workspace is run.

Left to those who have them: pip and Databricks' own CLI, of which what they name is looked at.
"""

from __future__ import annotations

import ast
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("databricks.bundles")

from bundle import render, targets
from little import understand
from mirrorlib.cli.main import main

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"^ *```sh\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
WHEEL = "dist/mirrorlib_delta-0.1.0-py3-none-any.whl"


def commands(page: str) -> list[list[str]]:
    """Return the words of each command of a page, comments left out."""
    text = (ROOT / "docs" / "start" / page).read_text(encoding="utf-8")
    lines = [line for block in BLOCK.findall(text) for line in _whole(block)]
    return [words for line in lines if (words := shlex.split(line, comments=True))]


def _whole(block: str) -> list[str]:
    """Put lines together whose quotes are open."""
    lines: list[str] = []
    for line in block.splitlines():
        if lines and lines[-1].count("'") % 2:
            lines[-1] += line
        else:
            lines.append(line)
    return lines


@pytest.fixture
def clone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Copy what a clone has, with a wheel that was built, and work there."""
    for folder in ("bundles", "notebooks"):
        shutil.copytree(ROOT / folder, tmp_path / folder)
    for file in ("Makefile", "databricks.yml", "pyproject.toml"):
        shutil.copy(ROOT / file, tmp_path / file)
    for name in ("LICENSE", "README.md", "examples", "mirrorlib", "tools"):  # what is built
        (tmp_path / name).symlink_to(ROOT / name)
    (tmp_path / "dist").mkdir()
    (tmp_path / WHEEL).write_bytes(b"a wheel")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_page_of_databricks_does_what_it_says(clone: Path) -> None:
    """Its commands are the Databricks CLI's, with targets and jobs that there are; the workflow comes to where GitHub looks."""
    jobs = set(render(ROOT, "dev").jobs)
    tried = commands("databricks.md")

    for words in tried:
        _try(words, jobs)

    told = [words[2] for words in tried if words[:2] == ["databricks", "bundle"]]
    assert ["validate", "plan", "deploy", "run"] == list(dict.fromkeys(told))
    assert (clone / ".github" / "workflows" / "deploy.yml").exists()


def _try(words: list[str], jobs: set[str]) -> None:
    """Run what needs no workspace; look at the others."""
    if words[0] == "mirrorlib":
        assert "" == understand(words[1:])
    elif words[:2] == ["databricks", "bundle"]:
        assert words[words.index("--target") + 1] in targets(ROOT)
        assert words[2] != "run" or words[5] in jobs
    elif words[0] == "mkdir":
        subprocess.run(["/bin/bash", "-c", shlex.join(words).replace("'&&'", "&&")], check=True)
    else:
        assert words[0] in {"export", "databricks"}, words


def test_the_page_of_fabric_does_what_it_says(clone: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The wheel is built; the items that it publishes are there."""
    monkeypatch.setenv("PIP_NO_BUILD_ISOLATION", "false")  # for pip, false is on
    monkeypatch.setenv("PYTHON", sys.executable)
    for name in ("MAKELEVEL", "MAKEFLAGS", "MFLAGS"):  # of the make that runs the tests
        monkeypatch.delenv(name, raising=False)
    (tried,) = [words for words in commands("fabric.md") if words[0] == "mirrorlib"]

    assert "$(make wheel)" == tried.pop()
    built = subprocess.check_output(["/usr/bin/env", "make", "wheel"], text=True)
    assert 0 == main([*tried[1:], built.strip()])

    held = clone / "fabric" / "mirrorlib.Environment" / "Libraries" / "CustomLibraries"
    assert b"a wheel" not in [path.read_bytes() for path in held.iterdir()]
    page = (ROOT / "docs" / "start" / "fabric.md").read_text(encoding="utf-8")
    kinds = re.search(r"item_type_in_scope=(\[.*\])", page)
    assert kinds is not None
    assert {path.suffix[1:] for path in (clone / "fabric").iterdir()} == set(
        ast.literal_eval(kinds[1])
    )
