"""The documentation's site: every link in it leads somewhere, and every public name, command and error is on it."""

from __future__ import annotations

import argparse
import inspect
import subprocess
import sys
from pathlib import Path

import pytest

import mirrorlib
from mirrorlib import errors
from mirrorlib.cli.main import make_parser

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the site; a link or an anchor that leads nowhere is an error."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir"]
    done = subprocess.run([*command, folder], cwd=ROOT, capture_output=True, text=True, check=False)
    assert 0 == done.returncode, done.stdout + done.stderr
    return folder


def commands() -> list[str]:
    """Return the names of all commands."""
    actions = make_parser()._actions
    (found,) = [action for action in actions if isinstance(action, argparse._SubParsersAction)]
    return list(found.choices)


def test_every_public_name_is_on_the_page_of_python(site: Path) -> None:
    """Under the name by which it is imported."""
    page = (site / "reference/python/index.html").read_text(encoding="utf-8")
    names = [name for name in mirrorlib.__all__ if name[0] != "_" and not name.endswith("Error")]

    assert [] == [
        name for name in names if f">{name}<" not in page.replace("\n", "").replace(" ", "")
    ]


def test_every_command_is_on_the_page_of_commands(site: Path) -> None:
    """With its help."""
    page = (site / "reference/commands/index.html").read_text(encoding="utf-8")

    assert [] == [name for name in commands() if f"usage: mirrorlib {name}" not in page]


def test_every_error_has_its_cause_and_cure() -> None:
    """One row each."""
    page = (ROOT / "docs/reference/errors.md").read_text(encoding="utf-8")
    rows = {line.split("|")[1].strip(" `") for line in page.splitlines() if line.count("|") == 4}
    classes = inspect.getmembers(errors, inspect.isclass)
    known = {name for name, kind in classes if issubclass(kind, mirrorlib.MirrorError)}

    assert known - {"MirrorError"} == rows - {"error", "---"}
