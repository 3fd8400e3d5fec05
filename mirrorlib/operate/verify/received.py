"""What a receiver holds of a table, and says of that."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mirrorlib.errors import ForeignWriteError
from mirrorlib.journal.streams import Stream

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType


@dataclass(frozen=True, slots=True, kw_only=True)
class Received:
    """What a receiver holds of a table.

    Attributes:
        stream: uuid of the stream that was the last to write there.
        version: it has everything up to this one of the table.
        table_id: of that table; "" where it does not say.
        keys: by which it was kept.
        rows: gives its rows, with `SIDE`, for the columns that the table has in that version.
        window: the number of the stream's last window that it has; 0 where it says the table's id.
        begins: where rows are changes, some of which take back others, the version that they go on from.
        whole: they begin with all rows of that version.

    """

    stream: str
    version: int
    table_id: str = ""
    keys: tuple[str, ...]
    rows: Callable[[StructType], DataFrame]
    window: int = 0
    begins: int | None = None
    whole: bool = False


def other_copy(stream: Stream, *owner: object) -> ForeignWriteError:
    """Say that a receiver does not hold this consumer's copy of this table, but another *owner*'s, or nobody's."""
    msg = "the receiver does not hold what the consumer was given of the table"
    found = " of ".join(map(str, owner)) or "nothing that an export has written"
    step = "See where the consumer receives: mirrorlib consumers TARGET"
    return ForeignWriteError(msg, table=stream.table, found=found, next_step=step)


def check_copy(stream: Stream, table: object, consumer: object) -> None:
    """See that a receiver holds this consumer's copy of this table; raises what `other_copy` returns."""
    if (table, consumer) != (stream.table, stream.consumer):
        raise other_copy(stream, table, consumer)
