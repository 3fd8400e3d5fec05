"""Build the wheel of a clone, with a version for each content: no environment takes an older build for it.

In: a clone's folder. Out: the wheel under its version and a number of its content: equal content, equal bytes. pip
leaves an installed version alone when a wheel has the same one, whatever is in it. The Databricks CLI does
this for `dynamic_version: true`, with a time behind a `+`, which not every platform lets into a file's name.
"""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Mapping
from pathlib import Path

from mirrorlib.errors import BundleError

_DIST = "dist"
_PROJECT = "mirrorlib-delta"
_FOLDER = "stamped"  # where no pattern for built wheels, dist/*.whl, finds it beside the one it is made of
# Of these there can be a post-release (PEP 440), which stands before the number of a development.
_RELEASE = re.compile(r"(?P<release>(\d+!)?\d+(\.\d+)*((a|b|rc)\d+)?)(?P<dev>\.dev\d+)?")
_RECORD = re.compile(r"(?P<own>[^/]+)\.dist-info/RECORD")
_NUMBERS = 10**9


def build_clone(folder: Path) -> Path:
    """Build the wheel of the clone that a folder is."""
    file = folder / "pyproject.toml"
    project = tomllib.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
    if project.get("project", {}).get("name") != _PROJECT:
        msg = "there is no clone of mirrorlib here whose wheel could be built"
        step = "Give the wheel with --wheel PATH, or work in a clone."
        raise BundleError(msg, found=str(folder), next_step=step)
    words = ["-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", _DIST, "."]
    done = subprocess.run(  # noqa: S603  # our own words
        [sys.executable, *words], cwd=folder, capture_output=True, text=True, check=False
    )
    wheels = sorted((folder / _DIST).glob("*.whl"), key=lambda path: path.stat().st_mtime)
    if done.returncode or not wheels:
        msg = "the wheel cannot be built"
        raise BundleError(msg, found=(done.stderr.strip() or done.stdout.strip())[-300:])
    return _stamped(wheels[-1])


def _stamped(wheel: Path) -> Path:
    """Write it again under a version of its own: a post-release where there can be one, else with a local part."""
    name, version, tags = wheel.stem.split("-", 2)
    with zipfile.ZipFile(wheel) as archive:
        files = {one.filename: archive.read(one) for one in archive.infolist() if not one.is_dir()}
    (record,) = (found for path in files if (found := _RECORD.fullmatch(path)))
    del files[record[0]]
    content = hashlib.sha256()
    for path in sorted(files):
        content.update(hashlib.sha256(path.encode()).digest())
        content.update(hashlib.sha256(files[path]).digest())
    number = int(content.hexdigest(), 16) % _NUMBERS
    if found := _RELEASE.fullmatch(version):
        own = f"{name}-{found['release']}.post{number}{found['dev'] or ''}"
    else:
        own = f"{name}-{version}{'.' if '+' in version else '+'}c{number}"
    folder = wheel.parent / _FOLDER
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    stamped = folder / f"{own}-{tags}.whl"
    _write(stamped, own, _renamed(files, record["own"], own))
    return stamped


def _renamed(files: Mapping[str, bytes], old: str, own: str) -> dict[str, bytes]:
    """Put the version where the format wants it: in the names of the wheel's own folders, and its metadata."""
    folder = re.compile(rf"{re.escape(old)}(?=\.(dist-info|data)/)")
    renamed = {folder.sub(own, path): data for path, data in files.items()}
    metadata = f"{own}.dist-info/METADATA"
    line = f"Version: {own.partition('-')[2]}".encode()
    renamed[metadata] = re.sub(
        rb"^Version: [^\r\n]+", line, renamed[metadata], count=1, flags=re.MULTILINE
    )
    return renamed


def _write(path: Path, own: str, files: Mapping[str, bytes]) -> None:
    """Write the archive, and at its end the record of what is in it; no times, which would make other bytes."""
    record = f"{own}.dist-info/RECORD"
    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\n")
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in sorted(files.items()):
            archive.writestr(zipfile.ZipInfo(name), data, zipfile.ZIP_DEFLATED)
            digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode().rstrip("=")
            rows.writerow((name, f"sha256={digest}", len(data)))
        rows.writerow((record, "", ""))
        archive.writestr(zipfile.ZipInfo(record), text.getvalue(), zipfile.ZIP_DEFLATED)
