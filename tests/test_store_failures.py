"""A store that fails before, during or after any of its calls loses and doubles nothing.

The package's own local store is wrapped: at one call of one table it raises, does half of the work,
or does the work and loses the answer. One recorded run says which calls there are; then one apply of
many tables meets one failure in each.
"""

from __future__ import annotations

import io
import re
import secrets
import sys
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Literal, cast

import pytest

import mirrorlib
from children import BusyTable, throw_dice
from mirrorlib.errors import StoreError
from mirrorlib.store import LocalStore
from oracle import assert_same_rows, multiset, replay
from tables import assert_feed_replays, assert_one_effect_per_file, read_rows
from zones import ZoneWriter

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from mirrorlib.ingest.report import ApplyReport, PlanReport
    from mirrorlib.operate.status import StatusReport

Mode = Literal["before", "during", "after", "denied"]
# What can go wrong with each call. A read that fails after its work is a read that failed; "denied" is
# a conditional put that went through, whose answer was lost, and which a client repeated: the repeat
# met its own file.
MODES: dict[str, tuple[Mode, ...]] = {
    "list_folder": ("before",),
    "first_names": ("before",),
    "stat": ("before",),
    "read": ("before",),
    "open_file": ("before", "during"),
    "open_new": ("before", "during"),
    "put": ("before", "during", "after"),
    "put_new": ("before", "during", "after", "denied"),
    "delete": ("before", "after"),
    "delete_folder": ("before", "after"),
}


@dataclass(frozen=True, slots=True)
class Call:
    """One call of a run: the count-th of its verb on a path of this shape."""

    verb: str
    shape: str
    count: int


@dataclass(slots=True)
class Faults:
    """What goes wrong with whose calls, and what was called; and how the paths end that nobody may open."""

    planned: dict[str, tuple[Call, Mode]] = field(default_factory=dict)
    seen: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    struck: set[str] = field(default_factory=set)
    unreadable: str = ""
    lock: threading.Lock = field(default_factory=threading.Lock)

    def strike(self, verb: str, place: str) -> Mode | None:
        """Take note of a call; say what goes wrong with it."""
        found = re.search(r"\btable_\d+\b", place)
        if found is None:
            return None
        table, shape = found[0], _shape(place[found.start() :])
        with self.lock:
            self.seen[table, verb, shape] += 1
            call, mode = self.planned.get(table, (None, None))
            if call != Call(verb, shape, self.seen[table, verb, shape]):
                return None
            self.struck.add(table)
        return mode

    def calls(self, table: str) -> list[Call]:
        """Return the first and the last call of each verb and shape."""
        mine = {(verb, shape): n for (name, verb, shape), n in self.seen.items() if name == table}
        return [Call(verb, shape, n) for (verb, shape), last in mine.items() for n in {1, last}]


def _shape(place: str) -> str:
    """Leave out of a path what differs from run to run."""
    return re.sub(r"[0-9a-f]{16}|\d+", "#", place)


class FaultyStore(LocalStore):
    """A local store whose calls fail as they are told."""

    def __init__(self, root: Path, faults: Faults) -> None:
        super().__init__(root)
        self._faults = faults

    def __getattribute__(self, name: str) -> object:
        real = super().__getattribute__(name)
        return partial(self._call, name, real) if name in MODES else real

    def _call(
        self, verb: str, real: Callable[..., object], path: str, *rest: object, **named: object
    ) -> object:
        mode = self._faults.strike(verb, f"{self.url}/{path}")
        if verb == "open_file" and path.endswith(self._faults.unreadable or "\n"):
            raise _lost(verb, path)
        if mode == "before":
            raise _lost(verb, path)
        if mode == "during" and verb.startswith("put"):
            self._leave_draft(path, *rest)
            raise _lost(verb, path)
        result = real(path, *rest, **named)
        if mode == "during":
            return _Broken(cast("BinaryIO", result))
        if mode == "after":
            raise _lost(verb, path)
        return False if mode == "denied" else result

    def _leave_draft(self, path: str, data: object) -> None:
        """Leave what a writer leaves that dies halfway."""
        draft = self._path(path).with_name(f".{secrets.token_hex(8)}.tmp")
        draft.parent.mkdir(parents=True, exist_ok=True)
        draft.write_bytes(cast("bytes", data)[:20])


class _Broken(io.RawIOBase):
    """An open file whose connection breaks after the first piece."""

    def __init__(self, real: BinaryIO) -> None:
        self._real = real
        self._left = 1

    def _take(self) -> None:
        self._left -= 1
        if self._left < 0:
            msg = "connection reset by peer"
            raise OSError(msg)

    def read(self, size: int = -1) -> bytes:
        self._take()
        return self._real.read(size)

    def write(self, data: object) -> int:
        self._take()
        return self._real.write(data)  # type: ignore[call-overload,no-any-return]

    def seek(self, offset: int, whence: int = 0) -> int:
        return self._real.seek(offset, whence)

    def tell(self) -> int:
        return self._real.tell()

    def readable(self) -> bool:
        return self._real.readable()

    def writable(self) -> bool:
        return self._real.writable()

    def seekable(self) -> bool:
        return True

    def close(self) -> None:
        self._real.close()
        super().close()


def _lost(verb: str, path: str) -> StoreError:
    return StoreError(f"cannot {verb} {path}", found="connection reset by peer")


@pytest.fixture
def faults(monkeypatch: pytest.MonkeyPatch) -> Faults:
    """Put the failing store wherever the package opens one."""
    told = Faults()
    for name, module in list(sys.modules.items()):
        if name.startswith("mirrorlib.") and hasattr(module, "open_store"):
            monkeypatch.setattr(module, "open_store", lambda url: FaultyStore(Path(url), told))
    return told


@pytest.mark.thorough
def test_a_schema_folder_that_cannot_be_listed_fails_its_own_tables(
    spark: SparkSession, zone: ZoneWriter, target: str, faults: Faults
) -> None:
    """Known ones by their names, else the schema; the neighbours are applied, and the next run applies them all."""
    for schema in ("table_1", "table_2"):
        zone.table("orders", keys=["id"], schema=schema).file([{"id": 1}])

    def lose() -> None:
        call = Call(
            "list_folder",
            "table_#.schema",
            faults.seen["table_1", "list_folder", "table_#.schema"] + 1,
        )
        faults.planned["table_1"] = (call, "before")

    def states(report: ApplyReport | PlanReport | StatusReport) -> dict[str, str]:
        lost = [table.reason for table in report.tables if table.table.startswith("table_1/")]
        assert all("connection reset by peer" in reason for reason in lost if reason)
        return {table.table: table.state for table in report.tables}

    lose()
    assert "failed" == states(mirrorlib.plan(spark, str(zone), target))["table_1/*"]
    lose()
    found = mirrorlib.apply(spark, str(zone), target)
    assert {"table_1/*": "failed", "table_2/orders": "current"} == states(found)
    assert not found.ok
    assert {"table_2/orders": "current"} == states(mirrorlib.status(target))
    current = {"table_1/orders": "current", "table_2/orders": "current"}
    assert current == states(mirrorlib.apply(spark, str(zone), target))

    failed = {"table_1/orders": "failed", "table_2/orders": "current"}
    lose()
    assert failed == states(mirrorlib.plan(spark, str(zone), target))
    lose()
    assert failed == states(mirrorlib.apply(spark, str(zone), target))
    assert failed == states(mirrorlib.status(target))
    assert current == states(mirrorlib.apply(spark, str(zone), target))


def load(zone: ZoneWriter, number: int) -> BusyTable:
    """Publish a table of three files."""
    table, dice = BusyTable(writer=zone.table(f"table_{number}", keys=["id"])), throw_dice(number)
    for _ in range(3):
        table.publish_random(dice)
    return table


@pytest.mark.thorough("every call")
@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "modes", [{**MODES}, {"put_new": ("denied",)}], ids=["every call", "lost answers"]
)
def test_store_that_fails_at_any_call_loses_and_doubles_nothing(
    spark: SparkSession,
    zone: ZoneWriter,
    tmp_path: Path,
    faults: Faults,
    monkeypatch: pytest.MonkeyPatch,
    modes: dict[str, tuple[Mode, ...]],
) -> None:
    """Each table meets one failure; the run ends with a report, and the next run ends at the oracle's tables."""
    monkeypatch.setattr(
        "mirrorlib.ingest.batch.stage._HANDFUL", -1
    )  # else so few changes need no file
    load(ZoneWriter(tmp_path / "recorded"), 0)
    assert mirrorlib.apply(spark, str(tmp_path / "recorded"), str(tmp_path / "0"), max_files=2).ok
    points = [(call, mode) for call in faults.calls("table_0") for mode in modes.get(call.verb, ())]
    some = {"read", "put_new", "open_file", "open_new"} & modes.keys()
    assert some <= {call.verb for call, _ in points}
    faults.seen.clear()
    faults.planned = {f"table_{number}": point for number, point in enumerate(points)}
    tables = [load(zone, number) for number in range(len(points))]
    target = tmp_path / "target"

    mirrorlib.apply(spark, str(zone), str(target), max_files=2)
    assert {name: faults.planned[name] for name in faults.planned.keys() - faults.struck} == {}
    faults.planned = {}
    report = mirrorlib.apply(spark, str(zone), str(target))

    failed = [
        (t.table, t.reason, points[int(t.table[6:])]) for t in report.tables if t.state != "current"
    ]
    assert [] == failed
    for table, (call, mode) in zip(tables, points, strict=True):
        path, what = target / table.writer.name, f"{mode} {call}"
        rows = multiset(read_rows(spark, path))
        assert_same_rows(replay(table.files, keys=["id"]).multiset, rows, what)
        assert_one_effect_per_file(path, range(1, len(table.files) + 1))
        if call.verb == "put_new":
            assert_feed_replays(spark, path)


def test_a_file_that_the_store_does_not_give_holds_back_none_before_it(
    spark: SparkSession, zone: ZoneWriter, tmp_path: Path, faults: Faults
) -> None:
    """They are applied; it is named by the report, by the plan and by the status, and read as soon as it can be."""
    table, target = zone.table("table_0", keys=["id"]), str(tmp_path / "target")
    names = [table.file([{"id": number}]).name for number in range(5)]
    faults.unreadable = names[3]

    planned = mirrorlib.plan(spark, str(zone), target).tables[0]
    report = mirrorlib.apply(spark, str(zone), target).tables[0]
    again = mirrorlib.apply(spark, str(zone), target).tables[0]
    told = mirrorlib.status(target).tables[0]

    assert ("failed", names[3], 3) == (planned.state, planned.file, planned.files)
    assert ("failed", names[3], 3) == (report.state, report.file, report.position)
    assert ("StoreError", report.reason, ()) == (again.error, again.reason, again.batches)
    assert ("failed", names[3]) == (told.state, told.file)
    assert names[3] in report.reason
    faults.unreadable = ""
    assert mirrorlib.apply(spark, str(zone), target).ok
    assert 5 == len(read_rows(spark, f"{target}/table_0"))
