"""What `make wheel` builds has a version of its own for each content, and is a wheel that pip installs and replaces."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "tools" / "wheel.py"
PROJECT = """
[build-system]
requires = ["hatchling", "hatch-vcs"]
build-backend = "hatchling.build"
[project]
name = "mirrorlib-delta"
dynamic = ["version"]
scripts = {{ said = "mirrorlib:say" }}
[tool.hatch.version]
source = "vcs"
fallback-version = "{version}"
[tool.hatch.build.targets.wheel]
packages = ["mirrorlib"]
[tool.hatch.build.targets.wheel.shared-data]
"shared.txt" = "share/shared.txt"
"""


@pytest.fixture
def clone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give a folder whose project builds in seconds: code, data beside it, a script."""
    monkeypatch.setenv("PIP_NO_BUILD_ISOLATION", "false")  # for pip, false is on
    folder = tmp_path / "clone"
    (folder / "mirrorlib").mkdir(parents=True)
    (folder / "tools").mkdir()
    shutil.copy(SCRIPT, folder / "tools")
    (folder / "shared.txt").write_text("shared")
    write(folder, "one")
    return folder


def write(folder: Path, code: str, version: str = "1.2.0") -> None:
    """Write what the wheel is built of."""
    (folder / "pyproject.toml").write_text(PROJECT.format(version=version))
    (folder / "mirrorlib" / "__init__.py").write_text(f"def say(): print({code!r})\n")


def build(folder: Path) -> Path:
    """Build the wheel of the clone; it is alone in its folder."""
    words = [sys.executable, folder / "tools" / "wheel.py"]
    wheel = Path(subprocess.check_output(words, text=True).strip())
    assert [wheel] == [*(folder / "dist" / "stamped").iterdir()]
    return wheel


def install(wheel: Path, place: Path) -> str:
    """Install a wheel over what is there, as pip does unless it is told more; give what the script then says."""
    pip = [sys.executable, "-m", "pip", "--python", str(place / "bin" / "python")]
    if not place.exists():
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", place], check=True)
    subprocess.run([*pip, "install", "--quiet", "--no-deps", "--no-index", str(wheel)], check=True)
    return subprocess.check_output([place / "bin" / "said"], env={}, text=True).strip()


@pytest.mark.thorough
def test_another_content_is_another_version_and_pip_takes_it(clone: Path, tmp_path: Path) -> None:
    """Built again from the same it is the same, byte for byte; of a version that is there, pip keeps the old code."""
    first = build(clone)
    data, place = first.read_bytes(), tmp_path / "venv"
    assert "one" == install(first, place)

    again = build(clone)
    assert (first, data) == (again, again.read_bytes())

    write(clone, "two")
    second = build(clone)
    assert re.fullmatch(r"mirrorlib_delta-1\.2\.0\.post\d+-py[23.py]+-none-any\.whl", second.name)
    assert second.name != first.name
    assert "two" == install(second, place)
    assert "shared" == (place / "share" / "shared.txt").read_text()

    write(clone, "three")
    assert "two" == install(under_its_version(clone, second), place)  # without a version of its own


def under_its_version(clone: Path, older: Path) -> Path:
    """Give the newest build the version of an older one."""
    newest = build(clone)
    version, theirs = (wheel.name.split("-")[1] for wheel in (older, newest))
    path = newest.parent / older.name
    with zipfile.ZipFile(newest) as archive, zipfile.ZipFile(path, "w") as written:
        for name in archive.namelist():
            data = archive.read(name).replace(theirs.encode(), version.encode())
            written.writestr(name.replace(theirs, version), data)
    return path


@pytest.mark.thorough("candidate", "development")
@pytest.mark.parametrize(
    "version, name",
    [
        ("1.2.0", r"mirrorlib_delta-1\.2\.0\.post\d+-.*"),
        ("1.2rc1", r"mirrorlib_delta-1\.2rc1\.post\d+-.*"),
        ("1.2.0.dev7", r"mirrorlib_delta-1\.2\.0\.post\d+\.dev7-.*"),
    ],
    ids=["release", "candidate", "development"],
)
def test_every_version_of_ours_gets_a_number(
    clone: Path, tmp_path: Path, version: str, name: str
) -> None:
    """As tags and the commits behind them make them; pip installs each."""
    write(clone, "one", version)

    wheel = build(clone)

    assert re.fullmatch(name, wheel.name)
    assert "one" == install(wheel, tmp_path / "venv")


def test_what_cannot_be_built_says_why(clone: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """By pip's own words; nothing is left behind."""
    write(clone, "one", "no version")

    with pytest.raises(subprocess.CalledProcessError):
        build(clone)

    assert "no version" in capfd.readouterr().err
    assert not (clone / "dist").exists()
