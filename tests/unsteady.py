"""Publish tables that change, break and begin anew, by a clock that jumps, into stores that fail.

In: a clock, dice, a table's folder. Out: `Published`, which knows what its table has to hold; `Weather`, by which one call of a
store fails; `Clock`, which moves the time of Python and Java where libfaketime is there, and nothing where it is not.
"""

from __future__ import annotations

import os
import random
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from children import BusyTable
from mirrors import change_file
from oracle import assert_same_rows, multiset, replay
from tables import assert_feed_replays, assert_one_effect_per_file, batches_of, read_rows
from test_store_failures import MODES, Faults, Mode

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CLOCK = os.environ.get("FAKETIME_TIMESTAMP_FILE")
KEYS = ["id"]
BROKEN = ("gap", "garbage", "truncated", "damaged")
TEXT = {
    "FileFormat": "CSV",
    "FileFormatTypeProperties": {"FirstRowAsHeader": True, "NullValue": ""},
    "SchemaDefinition": {
        "Columns": [
            {"Name": "id", "DataType": "Int64"},
            {"Name": "v", "DataType": "String"},
            {"Name": "n", "DataType": "Int64"},
        ]
    },
}


class Clock:
    """The store's time, which goes on, and the runner's, which may be off."""

    def __init__(self) -> None:
        self._gone = self._off = 0.0

    def tick(self, seconds: float) -> None:
        """Let time pass."""
        self._gone += seconds
        self._tell()

    def jump(self, seconds: float) -> None:
        """Set the runner's clock so many seconds ahead."""
        self._off = seconds
        self._tell()

    def _tell(self) -> None:
        if CLOCK:
            draft = Path(f"{CLOCK}.draft")
            draft.write_text(f"{self._gone + self._off:+.3f}")
            draft.replace(CLOCK)

    def stamp(self, path: Path) -> None:
        """Give a file the store's time; where nothing moves the clock, text has lain still before it is there."""
        moment = time.time() - (self._off if CLOCK else 60)
        os.utime(path, (moment, moment))


class Weather(Faults):
    """A store of which one call fails, as often as it is told to."""

    left = -1
    dice = random.Random(3)

    def strike(self, verb: str, place: str) -> Mode | None:
        """Count the calls; the last one goes wrong."""
        del place
        with self.lock:
            if self.left < 0 or verb not in MODES:
                return None
            self.left -= 1
            return self.dice.choice(MODES[verb]) if self.left < 0 else None


@dataclass(slots=True)
class Published(BusyTable):
    """A table of one kind, "parquet", "text" or "time", with a key once at most, as receivers want it.

    Attributes:
        clock: gives its files their times.
        dice: say what it publishes.
        kind: of its files.
        live: the keys that it has.
        broken: what stands for a file that readers refuse, until it is repaired.

    """

    clock: Clock = field(default_factory=Clock)
    dice: random.Random = field(default_factory=random.Random)
    kind: str = "parquet"
    live: set[int] = field(default_factory=set)
    broken: tuple[int, list[dict[str, object]], list[int]] | None = None

    def publish_next(self, how: str = "whole") -> None:
        """Publish the next file: "whole", or as something of BROKEN, if readers tell of it and nothing is broken yet."""
        number = self.writer.last = self.writer.last + 1
        rows, markers = self.rows(number)
        self.files.append(change_file(rows, markers))
        if how == "whole" or self.broken or self.kind == "time":
            self.write(number, rows, markers)
            return
        self.broken = (number, rows, markers)
        if how == "gap" or self.kind == "text":
            return
        if how == "garbage":
            self.clock.stamp(self.writer.garbage(number))
        else:
            self.clock.stamp(getattr(self.writer, how)(rows, markers, number))

    @property
    def stops(self) -> bool:
        """Say whether a reader can see that something is wrong: a gap is none before a file behind it."""
        if self.broken is None:
            return False
        number = self.broken[0]
        return self.writer.last > number or self.writer.path(number).exists()

    def repair(self) -> None:
        """Publish what was broken."""
        if self.broken:
            self.write(*self.broken)
            self.broken = None

    def rows(self, number: int) -> tuple[list[dict[str, object]], list[int]]:
        """Make changes that fit what is there; now and then with wider values, or a column more."""
        rows, markers = [], []
        for place in range(self.dice.randrange(1, 6)):
            key = self.dice.randrange(1, 41)
            marker = self.dice.choice((1, 2, 4) if key in self.live else (0, 1, 4))
            wide = 2**40 + place if number % 7 == 0 else place
            row: dict[str, object] = {"id": key, "v": f"{number}-{place}", "n": wide}
            if self.kind != "text" and number % 10 == 0:
                row[f"c{number // 10 % 8}"] = f"c{place}"
            rows.append(row)
            markers.append(marker)
            (self.live.discard if marker == 2 else self.live.add)(key)
        return rows, markers

    def write(self, number: int, rows: list[dict[str, object]], markers: list[int]) -> None:
        """Write one file, with the time of the store."""
        last = self.writer.last
        if self.kind == "text":
            lines = ["id,v,n,__rowMarker__"]
            lines += [
                f"{row['id']},{row['v']},{row['n']},{mark}"
                for row, mark in zip(rows, markers, strict=True)
            ]
            path = self.writer.path(number).with_suffix(".csv")
            draft = path.with_name(f"_{path.name}.temp")
            draft.write_text("\r\n".join(lines) + "\r\n")
            path = draft.replace(path)
        else:
            path = self.writer.file(rows, markers, number)
        self.clock.stamp(path)
        self.writer.last = last

    def begin(self) -> None:
        """Publish from the start."""
        self.writer.folder.mkdir(exist_ok=True)
        self.clock.stamp(self.writer.metadata(TEXT if self.kind == "text" else None, keys=KEYS))
        self.files.clear()
        self.live.clear()
        self.publish_next()

    def check(self, spark: SparkSession, target: Path) -> None:
        """Compare the table, its feed and its commits with what was published, each file once."""
        path = target / self.writer.name
        assert_same_rows(
            replay(self.files, keys=KEYS).multiset,
            multiset(read_rows(spark, path)),
            self.writer.name,
        )
        assert_feed_replays(spark, path)
        life = batches_of(path)[-1]["life"]
        if self.kind != "time":
            assert_one_effect_per_file(path, range(1, len(self.files) + 1), life=life)
        applied = [
            one for one in batches_of(path) if (one["life"], one["outcome"]) == (life, "applied")
        ]
        assert len(self.files) == sum(one["files"] for one in applied)
        assert len(applied) == len({one["batch"] for one in applied})
