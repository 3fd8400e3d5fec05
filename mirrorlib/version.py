"""The version of mirrorlib, as commits and reports tell it."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version


def _installed() -> str:
    try:
        return version("mirrorlib-delta")
    except PackageNotFoundError:  # a source tree on the path, not installed
        return "0+source"


VERSION = _installed()
