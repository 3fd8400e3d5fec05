"""Receive windows as files; see `sink` for what lies where, and `parts` for what a format makes of a value."""

from __future__ import annotations

from mirrorlib.delivery.sinks.files.sink import FilesSink, open_sink

__all__ = ["FilesSink", "open_sink"]
