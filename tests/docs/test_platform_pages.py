"""The quick starts of platforms: each of their commands is run, to a workspace on this machine where it needs one.

Left to those who have them: pip and Databricks' own CLI, of which what they name is looked at.
"""

from __future__ import annotations

import ast
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

pytest.importorskip("databricks.sdk")

from mirrorlib.cli.main import main, understand
from mirrorlib.deploy.read import read_bundle
from mirrorlib.deploy.references import all_tasks
from mirrorlib.deploy.render import render
from workspace import Workspace, serve

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"^ *```sh\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
WHEEL = "dist/mirrorlib-0.1.0-py3-none-any.whl"


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
    for file in ("databricks.yml", "pyproject.toml"):
        shutil.copy(ROOT / file, tmp_path / file)
    for name in ("LICENSE", "README.md", "examples", "mirrorlib"):  # what is built
        (tmp_path / name).symlink_to(ROOT / name)
    (tmp_path / "dist").mkdir()
    (tmp_path / WHEEL).write_bytes(b"a wheel")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")  # the SDK keeps its connections
@pytest.mark.filterwarnings("ignore::DeprecationWarning:google")
def test_the_page_of_databricks_does_what_it_says(
    clone: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Checked, the wheel built, deployed, run, and the workflow where GitHub looks for it."""
    monkeypatch.setenv("PIP_NO_BUILD_ISOLATION", "false")  # for pip, false is on
    with serve(Workspace()) as workspace:
        monkeypatch.setenv("DATABRICKS_HOST", workspace.host)
        monkeypatch.setenv("DATABRICKS_TOKEN", "secret")
        monkeypatch.setenv("DATABRICKS_CONFIG_FILE", "/nowhere")
        jobs = set(render(read_bundle(".")).jobs)
        for words in commands("databricks.md"):
            _try(words, jobs)

    wheels = {place for place in workspace.files if place.endswith(".whl")}
    assert [r"mirrorlib-0.1.0.post"] == [Path(one).name[:20] for one in wheels]
    handed = {
        library["whl"]
        for job in workspace.jobs.values()
        for task in all_tasks(job)
        for library in task.get("libraries", [])
    }
    assert wheels == handed
    assert ["mirrorlib initial load"] == [
        str(workspace.jobs[run["job_id"]]["name"]).partition("] ")[2]
        for run in workspace.runs.values()
    ]
    assert (clone / ".github" / "workflows" / "deploy.yml").exists()


def _try(words: list[str], jobs: set[str]) -> None:
    """Run a command; what needs more than a workspace's jobs is looked at."""
    if words[:2] == ["mirrorlib", "publish"]:
        assert "" == understand(words[1:])
    elif words[0] == "mirrorlib":
        assert 0 == main(words[1:]), words
    elif words[:2] == ["databricks", "bundle"]:
        assert words[3:5] == ["--target", "dev"]
        assert set(words[5:]) <= jobs
    elif words[0] == "mkdir":
        subprocess.run(["/bin/bash", "-c", shlex.join(words).replace("'&&'", "&&")], check=True)
    else:
        assert words[0] in {"python3", "export", "databricks"}, words


def test_the_page_of_fabric_does_what_it_says(clone: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The wheel is built; the items that it publishes are there."""
    monkeypatch.setenv("PIP_NO_BUILD_ISOLATION", "false")  # for pip, false is on
    tried = [words for words in commands("fabric.md") if words[0] == "mirrorlib"]

    assert [0] == [main(words[1:]) for words in tried]

    held = clone / "fabric" / "mirrorlib.Environment" / "Libraries" / "CustomLibraries"
    assert b"a wheel" not in [path.read_bytes() for path in held.iterdir()]
    page = (ROOT / "docs" / "start" / "fabric.md").read_text(encoding="utf-8")
    kinds = re.search(r"item_type_in_scope=(\[.*\])", page)
    assert kinds is not None
    assert {path.suffix[1:] for path in (clone / "fabric").iterdir()} == set(
        ast.literal_eval(kinds[1])
    )
