"""Read the rows of the landing files that a table was made of, in its columns, with their markers.

Files are decoded and cast as `apply` does it, by each batch's policies; `compare` folds what they give.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from mirrorlib.commit.stage import SET, Stage
from mirrorlib.delta.columns import Columns
from mirrorlib.identifiers import find_name, quote
from mirrorlib.ingest.batch.evolve import Growth
from mirrorlib.ingest.batch.open_batch import Prepared
from mirrorlib.ingest.batch.spark_reader import read_frame
from mirrorlib.ingest.rows.marks import ORDER, ROWS_PER_FILE
from mirrorlib.ingest.rows.read import Landed
from mirrorlib.landing.columns import INSERT
from mirrorlib.operate.verify.compare import all_set, unite


def read_files(
    stage: Stage, opened: Sequence[Landed], columns: Columns, start: DataFrame | None
) -> tuple[DataFrame | None, DataFrame | None, int]:
    """Read all rows in a table's *columns*: those of *start* and of the plain inserts that it began with, and the rest.

    The rest, which comes with how many it is, has what `replay_rows` needs: `MARKER`, `ORDER` over all files and, where
    updates are partial, `SET`.
    """
    first = next((place for place, one in enumerate(opened) if _folds(one)), len(opened))
    names = [quote(column.name) for column in columns]
    begun: list[DataFrame] = []
    rest: list[DataFrame] = []
    if start is not None:
        had = [find_name(start.columns, column.name) for column in columns]
        values = [f.col(quote(name)) if name else f.lit(None) for name in had]
        typed = [v.cast(c.sql_type).alias(c.name) for v, c in zip(values, columns, strict=True)]
        begun.append(start.select(*typed))
    runs = groupby(enumerate(opened), lambda one: (one[0] < first, one[1].source))
    for (is_first, source), some in runs:
        run = [*some]
        seen, landed = run[0][0], tuple(one for _, one in run)
        growth = Growth(columns=columns)
        prepared = Prepared(source=source, landed=landed, growth=growth, fault=None)
        part = replace(stage, folder=f"{stage.folder}/{seen}")
        rows = read_frame(part, prepared, ordered=not is_first)
        if is_first:
            begun.append(rows.select(*names))
        else:
            rest.append(rows.withColumn(ORDER, f.col(ORDER) + seen * ROWS_PER_FILE))
    if any(SET in one.columns for one in rest):
        everything = all_set(columns)
        rest = [one if SET in one.columns else one.withColumn(SET, everything) for one in rest]
    return unite(begun), unite(rest), sum(one.schema.rows for one in opened[first:])


def _folds(landed: Landed) -> bool:
    """Say whether a file has more than plain inserts."""
    plain, policies = landed.counts[INSERT] == landed.schema.rows, landed.source.policies
    return bool(policies.keys) and (policies.insert_policy == "upsert" or not plain)
