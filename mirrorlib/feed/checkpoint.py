"""Read from a streaming query's checkpoint how far it has come in a table.

In: the checkpoint's location. Out: `Progress`. Sources: Spark's OffsetSeqLog and MicroBatchExecution
(`populateStartOffsets`), Delta's DeltaSourceOffset.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mirrorlib.errors import FeedExpiredError
from mirrorlib.store import open_store

if TYPE_CHECKING:
    from mirrorlib.delta.address import FeedTable
    from mirrorlib.store import PathOrUrl, Store

# A query may have several sources, an offset each; formats of the file differ in what is around them.
_OFFSET = re.compile(r'\{[^{}]*"reservoirId"[^{}]*\}')
ANEW = (
    "Copy the table's rows as they are now, and go on with a new checkpoint, "
    "with `after` the version that was copied."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far a query has come.

    Attributes:
        next: the first version whose changes it has not taken whole.
        again: the first version of its last batch, which Spark makes once more and throws away.
        snapshot: it is still at the rows that were there when it began, as of `next`.

    """

    next: int
    again: int
    snapshot: bool


def read_progress(checkpoint: PathOrUrl, table: FeedTable) -> Progress | None:
    """Read how far the query of a checkpoint has come in a table; None where it has still to begin.

    Raises:
        FeedExpiredError: it has read another table, as this one was before it was made anew.

    """
    store = open_store(checkpoint)
    planned, done = _batches(store, "offsets"), _batches(store, "commits")
    last = max(planned, default=-1)
    taken = last if last in done else last - 1
    if taken not in planned:  # a first batch that did not end is read as if for the first time
        return None
    stands = _offset(store, taken, table)
    before = _offset(store, last - 1, table) if last - 1 in planned else stands
    return Progress(
        next=stands["reservoirVersion"],
        again=before["reservoirVersion"],
        snapshot=bool(stands.get("isStartingVersion")),
    )


def _batches(store: Store, folder: str) -> set[int]:
    found = store.list_folder(folder)
    return {int(file.name) for file in found.files if file.name.isdecimal()} if found else set()


def _offset(store: Store, batch: int, table: FeedTable) -> dict[str, Any]:
    """Read where a batch ends in a table; a query that reads it twice is as far as the slower of the two."""
    text = (store.read(f"offsets/{batch}") or b"").decode().replace('\\"', '"')
    commits = table.commits
    wanted = commits.metadata_at(commits.newest).id
    found = [json.loads(one) for one in _OFFSET.findall(text)]
    mine = [one for one in found if one["reservoirId"] == wanted]
    if not mine or min(one["reservoirVersion"] for one in mine) > commits.newest + 1:
        msg = "the checkpoint is of another table, or of this one before it was made anew"
        first = commits.made_at
        raise FeedExpiredError(msg, table=table.shown, first_readable=first, next_step=ANEW)
    return min(mine, key=lambda one: (one["reservoirVersion"], one["index"]))
