"""Give a built wheel a version of its own, so that no environment takes an older build for it.

In: a wheel. Out: the same one, one folder deeper, as a post-release of its version that its content numbers: equal
content, equal bytes. pip leaves an installed version alone when a wheel has the same one, whatever is in it. The
Databricks CLI does this for `dynamic_version: true`, with a time behind a `+`, which not every platform lets
into a file's name.
"""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import re
import shutil
import zipfile
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_FOLDER = "stamped"  # where no pattern for built wheels, dist/*.whl, finds it beside the one it is made of
_RELEASE = re.compile(
    r"\d+(\.\d+)*((a|b|rc)\d+)?"
)  # of which there can be a post-release (PEP 440)
_NUMBERS = 10**9
_LONG_AGO = (
    1980,
    1,
    1,
    0,
    0,
    0,
)  # an archive's earliest time; that of the build would make other bytes


def stamp(wheel: Path) -> Path:
    """Write it again under a version of its own; one whose version tells builds apart is returned as it is."""
    name, version, tags = wheel.stem.split("-", 2)
    if not _RELEASE.fullmatch(version):
        return wheel
    with zipfile.ZipFile(wheel) as archive:
        files = {one.filename: archive.read(one) for one in archive.infolist() if not one.is_dir()}
    files.pop(f"{name}-{version}.dist-info/RECORD")
    own = f"{version}.post{_number(files)}"
    folder = wheel.parent / _FOLDER
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    stamped = folder / f"{name}-{own}-{tags}.whl"
    _write(stamped, f"{name}-{own}", _renamed(files, f"{name}-{version}", own))
    return stamped


def _number(files: Mapping[str, bytes]) -> int:
    """Tell contents apart."""
    told = hashlib.sha256()
    for name in sorted(files):
        told.update(hashlib.sha256(name.encode()).digest() + hashlib.sha256(files[name]).digest())
    return int(told.hexdigest(), 16) % _NUMBERS


def _renamed(files: Mapping[str, bytes], old: str, version: str) -> dict[str, bytes]:
    """Put the version where the format wants it: in the names of the wheel's own folders, and its metadata."""
    name = old.partition("-")[0]
    own = re.compile(rf"{re.escape(old)}(?=\.(dist-info|data)/)")
    renamed = {own.sub(f"{name}-{version}", path): data for path, data in files.items()}
    metadata = f"{name}-{version}.dist-info/METADATA"
    line = f"Version: {version}".encode()
    renamed[metadata] = re.sub(
        rb"^Version: [^\r\n]+", line, renamed[metadata], count=1, flags=re.MULTILINE
    )
    return renamed


def _write(path: Path, own: str, files: Mapping[str, bytes]) -> None:
    """Write the archive, and at its end the record of what is in it."""
    record = f"{own}.dist-info/RECORD"
    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\n")
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in sorted(files.items()):
            archive.writestr(zipfile.ZipInfo(name, _LONG_AGO), data, zipfile.ZIP_DEFLATED)
            digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode().rstrip("=")
            rows.writerow((name, f"sha256={digest}", len(data)))
        rows.writerow((record, "", ""))
        archive.writestr(zipfile.ZipInfo(record, _LONG_AGO), text.getvalue(), zipfile.ZIP_DEFLATED)
