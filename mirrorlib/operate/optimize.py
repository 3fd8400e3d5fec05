"""Put the rows that many batches have left in small files into few, so that the next one costs what the first did.

In: a target. Out: `OptimizeReport`. It is Delta's OPTIMIZE: rows stay what they are, and no feed tells of it. A file
that cannot be read is an error, whatever the session ignores; no runner commits to a table on a local disk meanwhile.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, ClassVar, Literal

from mirrorlib.delta.address import act_on_tables, find_tables
from mirrorlib.delta.sessions import configured, lend_session
from mirrorlib.derived.place import find_place
from mirrorlib.store import PathOrUrl
from mirrorlib.store.target import Target
from mirrorlib.tabular import StateReport

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_FILE_BYTES = str(32 << 20)
# In files of 1 GB, which is Delta's default, few changes of neighbouring keys take half as long again.
_FASTER = {
    "spark.databricks.delta.optimize.minFileSize": _FILE_BYTES,
    "spark.databricks.delta.optimize.maxFileSize": _FILE_BYTES,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Optimized:
    """What became of one table: how many files were *replaced* by those *written*, or the *reason* why not."""

    table: str
    state: Literal["optimized", "current", "failed"]
    replaced: int = 0
    written: int = 0
    seconds: float = 0.0
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class OptimizeReport(StateReport):
    """What became of every table."""

    columns: ClassVar = ("table", "state", "files replaced", "files written", "seconds")
    facts: ClassVar = "table state replaced:count written:count seconds:.1f"
    target: str
    tables: tuple[Optimized, ...]


def optimize_tables(
    spark: SparkSession,
    target: PathOrUrl,
    *,
    tables: Sequence[str] = (),
    catalog: str | None = None,
    state: PathOrUrl | None = None,
) -> OptimizeReport:
    """Put the rows of small files, and of files with many deleted rows, into few; a table that has none stays as it is.

    Runners may be at work: one of a table on a local disk is waited for; elsewhere, where both meet, the table fails,
    or the runner tries again. What was replaced is there until it is vacuumed. *tables* are names or globs, and
    empty is all of them; *target*, *catalog* and *state* mean the same as for `export`.

    Raises:
        StoreError: the target cannot be listed.

    """
    place = Target.of(target, catalog=catalog, state=state)

    def optimize(name: str, address: str) -> Optimized:
        began = time.perf_counter()
        table = find_place(spark, address, state=state)
        with table.hold(spark), lend_session(spark) as session, configured(session, {}, _FASTER):
            (told,) = session.sql(f"OPTIMIZE {table.ref.sql}").collect()
        replaced, written = told["metrics"]["numFilesRemoved"], told["metrics"]["numFilesAdded"]
        return Optimized(
            table=name,
            state="optimized" if replaced else "current",
            replaced=replaced,
            written=written,
            seconds=round(time.perf_counter() - began, 3),
        )

    found = find_tables(spark, place.place, catalog, tables)
    done = act_on_tables(found, optimize, partial(Optimized, state="failed"))
    return OptimizeReport(target=place.shown, tables=done)
