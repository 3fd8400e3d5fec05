"""Turn events into OpenTelemetry's metrics and spans, for the providers that its own means have set up."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from opentelemetry import metrics, trace

from mirrorlib.operate.listeners.listen import Tell

_LABELS = ("event", "table", "consumer", "kind", "outcome", "state")


def open_client(
    meters: metrics.MeterProvider | None = None, tracers: trace.TracerProvider | None = None
) -> Tell:
    """Count events, files, bytes and rows, measure seconds, and draw a span that ends when the event is told."""
    meter = metrics.get_meter("mirrorlib", meter_provider=meters)
    tracer = trace.get_tracer("mirrorlib", tracer_provider=tracers)
    names = ("events", "files", "bytes", "rows")
    counters = {name: meter.create_counter(f"mirrorlib.{name}") for name in names}
    duration = meter.create_histogram("mirrorlib.duration", "s")

    def tell(record: logging.LogRecord, facts: Mapping[str, Any]) -> None:
        labels = {name: facts[name] for name in _LABELS if name in facts}
        for name, counter in counters.items():
            found = {"events": 1, **facts}.get(name, 0)
            for what, count in found.items() if isinstance(found, dict) else [("", found)]:
                counter.add(count, {**labels, "marker": what} if what else labels)
        seconds, end = facts.get("seconds", 0), int(record.created * 1e9)
        duration.record(seconds, labels)
        said = {name: one for name, one in facts.items() if isinstance(one, str | int | float)}
        name, begin = f"{facts['event']} {facts['table']}", end - int(seconds * 1e9)
        span = tracer.start_span(name, attributes=said, start_time=begin)
        if record.levelno > logging.INFO:
            span.set_status(trace.StatusCode.ERROR, record.getMessage())
        span.end(end)

    return tell
