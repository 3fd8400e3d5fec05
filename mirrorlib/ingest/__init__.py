"""Bring every table of a landing zone up to date: `mirrorlib.apply(spark, landing_zone, target)`.

The package of the stages between a landing zone and its Delta tables, and, called, the whole way:
calling it is calling `mirrorlib.ingest.run.apply_zone`, which says what it takes and gives.
"""

from __future__ import annotations

from mirrorlib.calling import let_call

CALLED = "run:apply_zone"

let_call(__name__)
