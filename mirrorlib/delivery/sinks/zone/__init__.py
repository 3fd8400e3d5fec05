"""Receive windows as change files of a landing zone; see `sink` for what is published when."""

from __future__ import annotations

from mirrorlib.delivery.sinks.zone.sink import ZoneSink, open_sink

__all__ = ["ZoneSink", "open_sink"]
