"""Let one attempt at a time commit where a MERGE cannot carry a transaction mark, so that Delta would take it twice.

In: the rows of an attempt. Out: the same rows, read together with a file of the attempt's own, its claim; None where
its mark is in the log already, which Delta would skip. Before it commits, an attempt lays its claim down, takes away
those of all others and, where there were any, changes a property of the table; then it looks into the log.
Promise: of all attempts with one mark, one commits, however late the others come, and without a clock. One whose claim
was taken away finds no file to read; where it has read that before, it began before the property was changed, and Delta
refuses it (`MetadataChangedException`). One that found no claim but its own was the first, or finds the first one's
commit in the log: a claim goes with its commit only, and stays where nobody knows whether there is one.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from io import BytesIO
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from mirrorlib.delta.log import TableLog
from mirrorlib.delta.properties import CLAIM, set_properties
from mirrorlib.delta.sessions import carries_marks, file_reader
from mirrorlib.journal.entries import new_attempt
from mirrorlib.store import Store, contents

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from mirrorlib.delta.table import TableRef

_COLUMN = "_mirror_claim"
_PROCESS = new_attempt()


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """What an attempt needs to be the only one at a table."""

    spark: SparkSession  # the session that commits
    ref: TableRef
    log: TableLog
    since: int  # the version up to which its mark is known not to be in the log
    state: Store  # where claims are laid down, which Spark reads
    folder: str  # where there, for all attempts of whoever writes to the table, and nobody else's
    name: str  # of the claim

    def lay(self, rows: DataFrame, app_id: str, version: int, *, nothing: bool) -> DataFrame | None:
        """Lay it down; return the rows, bound to it, or *nothing* of them; None where the mark is in the log."""
        from pyspark.sql import functions as f

        self.state.put_new(self._path, _claim_file())
        listed = contents(self.state, self.folder).files
        others = [file.path for file in listed if file.path != self._path]
        for path in others:
            self.state.delete(path)
        if others:
            set_properties(self.spark, self.ref.sql, {CLAIM: self.name})
        newest = self.log.newest(at_least=self.since)
        commits = () if newest is None else self.log.commits(self.since, newest)
        marks = ((commit.ours or {}).get("txn") or ("", 0) for commit in commits)
        # Or a later one, as Delta itself compares them.
        if any(name == app_id and number >= version for name, number in marks):
            self.withdraw()
            return None
        own = file_reader(self.spark, f"{_COLUMN} tinyint").parquet(self.state.uri(self._path))
        if nothing:  # of rows that are none, Spark would read no claim
            fields = rows.schema.fields
            nulls = [f.lit(None).cast(field.dataType).alias(field.name) for field in fields]
            return own.where(f.col(_COLUMN) < 0).select(*nulls)
        return rows.crossJoin(f.broadcast(own)).drop(_COLUMN)

    def withdraw(self) -> None:
        """Take it away, as it is known what became of it."""
        self.state.delete(self._path)

    def is_gone(self) -> bool:
        """Say whether another attempt has taken it away."""
        return self.state.stat(self._path) is None

    @property
    def _path(self) -> str:
        return f"{self.folder}/{self.name}.parquet"


def claim_table(
    spark: SparkSession, ref: TableRef, log: TableLog, state: Store, since: int | None, writer: str
) -> Claim | None:
    """Return by what an attempt of a *writer* has to claim the table; None where the session's commits carry marks.

    A state may be that of a mirror, of its copies and of what is derived of it, all with the same name.
    """
    if carries_marks(spark):
        return None
    name, since = f"{runner()}-{new_attempt()}", -1 if since is None else since
    folder = f"claims/{sha256(writer.encode('utf-8', 'surrogatepass')).hexdigest()}"
    return Claim(spark=spark, ref=ref, log=log, since=since, state=state, folder=folder, name=name)


def was_overtaken(log: TableLog, version: int | None) -> bool:
    """Say whether anything but this runner's claims and switches of the feed has been committed after a version.

    None or -1 stands for no table.
    """
    version = -1 if version is None else version
    newest = log.newest(at_least=version)
    newest = -1 if newest is None else newest
    if newest <= version or version < 0:
        return newest != version
    commits = log.commits(version, newest)
    claims = [str((commit.ours or {}).get("claim", "")) for commit in commits]
    return len(claims) < newest - version or not all(one.startswith(runner()) for one in claims)


def runner() -> str:
    """Name this runner, a thread, whose own claims and switches explain none of its failures."""
    return f"{_PROCESS}{threading.get_ident():x}"


@cache
def _claim_file() -> bytes:
    file = BytesIO()
    pq.write_table(pa.table({_COLUMN: pa.array([1], pa.int8())}), file)
    return file.getvalue()
