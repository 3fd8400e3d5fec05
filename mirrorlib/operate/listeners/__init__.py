"""Whoever is told of events: a file, a command, OpenLineage, OpenTelemetry; `listen` lets them hear."""
