"""Build what a release consists of, and prove that it works where nothing of the clone is.

`make release`: the wheel and the source distribution, checked by twine and check-wheel-contents. Then the wheel is
installed into new environments of the oldest and the newest Python that it claims: alone, and with the oldest and the
newest Spark, Delta and pyarrow. There the smoke tests of the source distribution run.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
WORK, DIST = ROOT / "build/release", ROOT / "dist"
PYENV = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
SMOKE = ("-msmoke", "--thorough", "-n2", "--dist=loadfile", "-q", "-pno:cacheprovider")
PAIRS = {"newest": "local", "oldest": "local35"}  # which says how old pyarrow can be on each Python
WITHOUT_SPARK = """
import importlib.util, tempfile, mirrorlib, pyarrow
assert importlib.util.find_spec("pyspark") is None
with tempfile.TemporaryDirectory() as zone:
    orders = mirrorlib.LandingZoneWriter(zone, source="PostgreSQL").table("dbo/orders", keys=["id"])
    orders.write(pyarrow.table({"id": [1]}))
    assert mirrorlib.check(zone).ok
print("mirrorlib", mirrorlib.__version__, "publishes and checks without Spark")
"""


def run(*words: str | Path, cwd: Path = ROOT) -> None:
    """Run a command, and end with what it ends with."""
    print("$", *words, flush=True)
    subprocess.run([str(word) for word in words], cwd=cwd, check=True)


def build() -> tuple[Path, Path]:
    """Build and check both distributions."""
    shutil.rmtree(DIST, ignore_errors=True)
    run(sys.executable, "-m", "build", "--outdir", DIST)
    (wheel,), (source,) = DIST.glob("*.whl"), DIST.glob("*.tar.gz")
    run(sys.executable, "-m", "twine", "check", "--strict", wheel, source)
    run(Path(sys.executable).with_name("check-wheel-contents"), wheel)
    return wheel, source


def environment(name: str, python: str, *packages: str) -> Path:
    """Make a new environment; return the folder of its programs."""
    run(python, "-m", "venv", "--clear", WORK / name)
    programs = WORK / name / "bin"
    run(
        programs / "python",
        "-m",
        "pip",
        "install",
        "--quiet",
        "--no-compile",
        "--upgrade",
        *packages,
    )
    return programs


def claimed() -> list[str]:
    """Name the oldest and the newest Python of the classifiers."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    said = re.findall(r":: 3\.(\d+)", " ".join(project["classifiers"]))
    return [f"python3.{minor}" for minor in (min(said, key=int), max(said, key=int))]


def find_python(name: str) -> str:
    """Find a Python on the PATH or among pyenv's, whose shim says no only when it is called; end without one."""
    version = name.removeprefix("python")
    for path in (shutil.which(name), *sorted(PYENV.glob(f"versions/{version}.*/bin/{name}"))):
        if path:
            asked = subprocess.run([path, "-m", "venv", "-h"], capture_output=True, check=False)
            if not asked.returncode:
                return str(path)
    sys.exit(f"A release is tested on {' and '.join(claimed())}: this machine has no {name}.")


def unpack(source: Path) -> Path:
    """Unpack the source distribution without the package: what is imported is what is installed."""
    shutil.rmtree(WORK / "source", ignore_errors=True)
    with tarfile.open(source) as archive:
        archive.extractall(WORK / "source", filter="data")
    (folder,) = (WORK / "source").iterdir()
    shutil.rmtree(folder / "mirrorlib")
    return folder


def main() -> None:
    """Build, check, install, test."""
    pythons = {name: find_python(name) for name in claimed()}
    WORK.mkdir(parents=True, exist_ok=True)
    wheel, source = build()
    tests = unpack(source)
    for name, python in pythons.items():
        alone = environment(f"{name}-alone", python, str(wheel))
        run(alone / "python", "-c", WITHOUT_SPARK, cwd=tests)
        run(alone / "mirrorlib", "--version", cwd=tests)
        for pair, extra in PAIRS.items():
            programs = environment(f"{name}-{pair}", python, f"{wheel}[{extra},dev]")
            run(programs / "pytest", *SMOKE, cwd=tests)
    print(f"\n{wheel.name} and {source.name} are ready in {DIST}.")


if __name__ == "__main__":
    main()
