"""Build what a release consists of, and prove that it works where nothing of the clone is.

`make release`: the wheel and the source distribution, checked by twine and check-wheel-contents. Then the wheel is
installed into new environments: alone, and with the oldest and the newest Spark, Delta and pyarrow that it claims, for
every Python that this machine has. There the smoke tests of the source distribution run.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
WORK, DIST = ROOT / "build/release", ROOT / "dist"
PYTHONS = ("python3.11", "python3.12", "python3.13")  # what pyproject.toml claims
SMOKE = ("-m", "smoke", "-n", "2", "--dist", "loadfile", "-q", "-p", "no:cacheprovider")
# The newest of what a dependency has no upper bound for, the oldest of what it has a lower one for.
PAIRS = {"newest": ("local", ("pyarrow",)), "oldest": ("local35", ("pyarrow==14.0.2",))}
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


def runs(python: str) -> bool:
    """Tell whether a Python of this name is here: a version manager's shim says no only when it is called."""
    if not shutil.which(python):
        return False
    done = subprocess.run([python, "-m", "venv", "-h"], capture_output=True, check=False)
    return done.returncode == 0


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
    WORK.mkdir(parents=True, exist_ok=True)
    wheel, source = build()
    tests = unpack(source)
    for python in filter(runs, PYTHONS):
        alone = environment(f"{python}-alone", python, str(wheel))
        run(alone / "python", "-c", WITHOUT_SPARK, cwd=tests)
        run(alone / "mirrorlib", "--version", cwd=tests)
        for pair, (extra, more) in PAIRS.items():
            programs = environment(f"{python}-{pair}", python, f"{wheel}[{extra},dev]", *more)
            run(programs / "pytest", *SMOKE, cwd=tests)
    print(f"\n{wheel.name} and {source.name} are ready in {DIST}.")


if __name__ == "__main__":
    main()
