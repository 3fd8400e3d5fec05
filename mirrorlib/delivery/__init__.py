"""Deliver change feeds to consumers that outlive every run: `mirrorlib.export(spark, target, …)`.

A consumer is a name; its way through one table is a stream, cut into windows. `record` says what is
kept of it, `registry` keeps it beside the target, `lease` keeps two runners apart, `deliver` plans
windows and carries them out, `run` does so for many tables side by side, `sinks` are the receivers.
Calling the package is calling `mirrorlib.delivery.run.export_tables`.
"""

from __future__ import annotations

from mirrorlib.calling import let_call

CALLED = "run:export_tables"

let_call(__name__)
