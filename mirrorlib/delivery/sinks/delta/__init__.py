"""Receive windows as Delta tables: `delta:PATH` makes PATH/<schema>/<table>, `delta:catalog.schema` tables there.

Delivery: exactly once. A window is one commit that carries the stream and the window's number, as a
transaction mark that Delta skips when it comes again and as facts that the next run reads. What each mode holds,
docs/export.md says.
"""
