"""The version of mirrorlib, as commits and reports tell it."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

try:
    VERSION = version("mirrorlib-delta")
except PackageNotFoundError:  # a source tree on the path, not installed
    VERSION = "0+source"
