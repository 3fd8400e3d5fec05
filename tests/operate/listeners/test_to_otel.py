"""OpenTelemetry counts what happens, and has a span for each of it."""

from __future__ import annotations

from typing import Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import mirrorlib
from mirrorlib.events import emit, emit_state
from mirrorlib.operate.listeners.listen import Listener
from mirrorlib.operate.listeners.to_otel import open_client

BATCH: dict[str, Any] = {
    "table": "dbo/orders",
    "kind": "merge",
    "outcome": "applied",
    "batch": 3,
    "version": 7,
    "files": 2,
    "bytes": 500,
    "rows": {"inserts": 4, "deletes": 1},
    "seconds": 1.5,
}


class Backend:
    """Providers that keep what they are given."""

    def __init__(self) -> None:
        self.reader, self.exporter = InMemoryMetricReader(), InMemorySpanExporter()
        tracers = TracerProvider()
        tracers.add_span_processor(SimpleSpanProcessor(self.exporter))
        tell = open_client(MeterProvider(metric_readers=[self.reader]), tracers)
        self.listener = Listener("otel", tell)

    def points(self, name: str) -> list[Any]:
        """Give the points of a metric."""
        data = self.reader.get_metrics_data()
        assert data is not None
        metrics = data.resource_metrics[0].scope_metrics[0].metrics
        return [point for one in metrics if one.name == name for point in one.data.data_points]


@pytest.fixture
def backend() -> Backend:
    """Give providers."""
    return Backend()


def test_batches_are_counted_by_table_and_rows_by_marker(backend: Backend) -> None:
    """And how long they took is measured."""
    with mirrorlib.listen(backend.listener):
        emit("batch", "%(table)s", **BATCH)
        emit("batch", "%(table)s", **BATCH)

    (events,), (size,), (files,) = map(
        backend.points, ("mirrorlib.events", "mirrorlib.bytes", "mirrorlib.files")
    )
    (took,) = backend.points("mirrorlib.duration")
    labels = {"event": "batch", "table": "dbo/orders", "kind": "merge", "outcome": "applied"}
    assert (2, labels) == (events.value, events.attributes)
    assert (1000, 4) == (size.value, files.value)
    assert {"inserts": 8, "deletes": 2} == {
        one.attributes["marker"]: one.value for one in backend.points("mirrorlib.rows")
    }
    assert (2, 3.0) == (took.count, took.sum)


def test_a_batch_is_a_span_as_long_as_it_took(backend: Backend) -> None:
    """With what is known of it."""
    with mirrorlib.listen(backend.listener):
        emit("batch", "%(table)s", **BATCH)

    (span,) = backend.exporter.get_finished_spans()
    assert ("batch dbo/orders", True) == (span.name, span.status.is_ok)
    assert 1.5e9 == pytest.approx(span.end_time - span.start_time, abs=1000)
    assert (3, 7) == (span.attributes["batch"], span.attributes["version"])


def test_what_stops_a_table_is_an_error_with_its_reason(backend: Backend) -> None:
    """What lets it go on is none."""
    with mirrorlib.listen(backend.listener):
        emit_state("", table="orders", state="blocked", reason="3.parquet is missing", file=None)
        emit_state("blocked", table="orders", state="current", reason="")

    stop, recovery = backend.exporter.get_finished_spans()
    assert ("orders: blocked 3.parquet is missing", False) == (
        stop.status.description,
        stop.status.is_ok,
    )
    assert ("recovery orders", True) == (recovery.name, recovery.status.is_ok)
    assert {"block", "recovery"} == {
        one.attributes["event"] for one in backend.points("mirrorlib.events")
    }
