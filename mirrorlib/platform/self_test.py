"""Try on a platform what mirrorlib does there, with a zone and tables of its own, and remove them again.

In: a session, a folder, and a schema where the tables are a catalog's. Out: `SelfTestReport`, a line for each step: ok,
or what was refused, in the words of the platform. Promise: nothing of others is touched, and what the steps have made
is removed after a failure too.
"""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from mirrorlib.delivery.run import export_tables
from mirrorlib.delta.address import quote_dotted
from mirrorlib.derived.run import derive_table
from mirrorlib.errors import MirrorError, StoppedError, first_few, first_line
from mirrorlib.events import Event, Observer, unobserved
from mirrorlib.feed.declared_keys import read_table
from mirrorlib.feed.read import read_feed
from mirrorlib.ingest.run import apply_zone
from mirrorlib.landing.check.zone import check_zone
from mirrorlib.landing.publish.table import LandingTable
from mirrorlib.landing.publish.writer import LandingZoneWriter
from mirrorlib.operate.status import read_status
from mirrorlib.platform.home import Home
from mirrorlib.store import open_store
from mirrorlib.tabular import Report

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

_LOADED = [(1, "a"), (2, "b"), (3, "c")]
_MERGED = [(1, "a"), (2, "B"), (4, "d")]  # 2 updated, 3 deleted, 4 inserted
_SAID = 500  # characters of what a platform says
_LOG = logging.getLogger("mirrorlib")


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One thing that was tried; *said* is what stood in the way."""

    step: str
    outcome: Literal["ok", "refused", "left out"]
    seconds: float
    said: str = ""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class SelfTestReport(Report):
    """What a platform lets mirrorlib do."""

    columns: ClassVar = ("step", "outcome", "seconds")
    folder: str
    schema: str | None
    steps: tuple[Step, ...]

    @property
    def ok(self) -> bool:
        """Say whether every step came to what it has to."""
        return all(one.outcome == "ok" for one in self.steps)

    def rows(self) -> list[tuple[str, ...]]:
        """Return one row a step."""
        return [(one.step, one.outcome, f"{one.seconds:.1f}") for one in self.steps]

    def notes(self) -> list[str]:
        """Say what stood in the way, then where."""
        where = f"in {self.folder}" + (f" and {self.schema}" if self.schema else "")
        refused = [f"{one.step}: {one.said}" for one in self.steps if one.said]
        return [*refused, f"Tried {where}, with a table of its own."]


def self_test(
    spark: SparkSession,
    folder: str,
    schema: str | None = None,
    *,
    other: str | None = None,
    observe: Observer | None = None,
) -> SelfTestReport:
    """Publish, load, merge, read the feed, derive and export; compare each with what it has to be, and remove it.

    Args:
        spark: the platform's session.
        folder: where the zone and the journal go, in a folder of their own: a volume's, or any other.
        schema: `CATALOG.SCHEMA` for the tables; without it they go into the folder.
        other: another one, for the derived table: names across schemas, and catalogs.
        observe: told before and after each step.

    Raises:
        ParameterError: the places cannot be used together.

    """
    name = f"mirrorlib_self_test_{uuid.uuid4().hex[:8]}"
    trial = _Trial(spark, Home(folder=f"{folder.rstrip('/')}/{name}", schema=schema), other, name)
    found: dict[str, Step] = {}
    try:
        for step, (needs, action) in trial.steps().items():
            lacking = [one for one in needs if found[one].outcome != "ok"]
            found[step] = _leave_out(step, lacking) or _try(step, action, observe or unobserved)
    finally:
        found["remove"] = _try("remove", trial.remove, observe or unobserved)
    return SelfTestReport(folder=folder, schema=schema, steps=tuple(found.values()))


def _leave_out(step: str, lacking: list[str]) -> Step | None:
    said = f"it needs: {first_few(lacking)}."
    return Step(step=step, outcome="left out", seconds=0, said=said) if lacking else None


def _try(step: str, action: Callable[[], None], observe: Observer) -> Step:
    """Take a step; what it raises is what was refused."""
    began, said, heard = time.perf_counter(), "", _Heard()
    observe(Event(table=step, step="try", when="before"))
    _LOG.addHandler(heard)
    try:
        action()
    except Exception as exc:  # noqa: BLE001  # whatever a platform refuses is what the report is for
        own = str(exc) if isinstance(exc, MirrorError) else ""
        said = " ".join(filter(None, (own, *heard.words, _words(exc))))
    finally:
        _LOG.removeHandler(heard)
    observe(Event(table=step, step="done", when="after"))
    seconds = round(time.perf_counter() - began, 3)
    return Step(step=step, outcome="refused" if said else "ok", seconds=seconds, said=said)


class _Heard(logging.Handler):
    """What a platform has said before it was told in our words: errors that the log was given."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.words: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keep an error's words."""
        if record.exc_info and record.exc_info[1] is not None:
            self.words.append(_words(record.exc_info[1]))


def _words(exc: BaseException) -> str:
    """Say what a platform's error says, or the one that ours was made of."""
    cause = exc.__cause__ if isinstance(exc, MirrorError) else exc
    return f"It said: {first_line(cause, _SAID)}" if cause is not None else ""


@dataclass(slots=True)
class _Trial:
    """The steps, and what they share."""

    spark: SparkSession
    home: Home
    other: str | None
    name: str
    loaded: int | None = None  # the version of the first load

    def steps(self) -> Mapping[str, tuple[tuple[str, ...], Callable[[], None]]]:
        """Name the steps in their order, with those that each needs."""
        return {
            "write files, once": ((), self._store),
            "publish": (("write files, once",), self._publish),
            "load": (("publish",), self._load),
            "merge": (("load",), self._merge),
            "apply again": (("merge",), self._again),
            "read the feed": (("merge",), self._feed),
            "derive": (("merge",), self._derive),
            "export": (("merge",), self._export),
            "status": (("load",), self._status),
        }

    def remove(self) -> None:
        """Remove tables and folder; each is tried, whatever becomes of the others."""
        refused = []
        dropped = (self.home.table(self.name), self._derived) if self.home.schema else ()
        for table in dropped:
            try:
                self.spark.sql(f"DROP TABLE IF EXISTS {quote_dotted(table)}")
            except Exception as exc:  # noqa: BLE001  # the others are removed all the same
                refused.append(f"{table}: {first_line(exc, _SAID)}")
        parent, _, own = self.home.folder.rpartition("/")
        open_store(parent or "/").delete_folder(own)
        if refused:
            msg = "tables are left"
            raise StoppedError(msg, found="; ".join(refused), next_step="Drop them by hand.")

    @property
    def _derived(self) -> str:
        name = f"{self.name}_derived"
        return f"{self.other}.{name}" if self.other else self.home.table(name)

    def _store(self) -> None:
        """What a journal rests on: an upload that does not overwrite, and files that are not there."""
        store = open_store(self.home.folder)
        put = store.put_new("probe/a", b"1"), store.put_new("probe/a", b"2"), store.read("probe/a")
        _compare("two uploads of one name", (True, False, b"1"), put)
        _compare("what is not there", (None, None), (store.stat("b"), store.list_folder("none")))
        store.delete_folder("probe")

    def _publish(self) -> None:
        self._table().write(_rows(_LOADED))
        report = check_zone(self.home.landing)
        _compare(
            "findings", (), tuple(one.rule for one in report.findings if one.severity == "error")
        )

    def _load(self) -> None:
        self.loaded = self._apply()
        self._expect(self.home.table(self.name), _LOADED)

    def _merge(self) -> None:
        table = self._table()
        table.upsert(_rows([(2, "B"), (4, "d")]))
        table.delete(_rows([(3, "c")]).select(["id"]))
        self._apply()
        self._expect(self.home.table(self.name), _MERGED)

    def _again(self) -> None:
        _compare("versions", self._apply(), self._apply())

    def _feed(self) -> None:
        feed = read_feed(self.spark, self.home.table(self.name), after=self.loaded or 0)
        kinds = sorted(row["_change_type"] for row in feed.collect())
        _compare("changes", ["delete", "insert", "update_postimage", "update_preimage"], kinds)

    def _derive(self) -> None:
        def small(rows: DataFrame) -> DataFrame:
            return rows.where("id < 3")

        state = self.home.state
        derive_table(
            self.spark, self.name, self.home.table(self.name), small, self._derived, state=state
        )
        self._expect(self._derived, _MERGED[:2])

    def _export(self) -> None:
        to = f"{self.home.folder}/export"
        own = {"tables": [self.name], **self.home.tables}  # the schema may hold tables of others
        export_tables(self.spark, consumer="self-test", to=f"files:{to}?format=jsonl", **own)
        reader = self.spark.read.option("recursiveFileLookup", "true")
        found = reader.option("pathGlobFilter", "*.jsonl").json(to).collect()
        rows = sorted((row["id"], row["v"]) for row in found)
        _compare("rows", _MERGED, rows)

    def _status(self) -> None:
        (table,) = read_status(**self.home.tables).tables
        _compare("state", "current", table.state)

    def _table(self) -> LandingTable:
        return LandingZoneWriter(self.home.landing).table(self.name, keys=["id"])

    def _apply(self) -> int | None:
        """Apply, and return the table's version; what stopped it is what the platform said."""
        report = apply_zone(self.spark, self.home.landing, **self.home.tables)
        (table,) = report.tables
        if not report.ok:
            raise StoppedError(table.reason.rstrip("."), next_step="")
        return table.version

    def _expect(self, table: str, rows: list[tuple[int, str]]) -> None:
        found = read_table(self.spark, table).collect()
        _compare("rows", rows, sorted((row["id"], row["v"]) for row in found))


def _rows(rows: list[tuple[int, str]]) -> pa.Table:
    import pyarrow as pa  # only what publishes needs it

    return pa.table({"id": [key for key, _ in rows], "v": [value for _, value in rows]})


def _compare(what: str, expected: object, found: object) -> None:
    if expected != found:
        msg = f"{what}: not what there has to be, {expected}"
        raise StoppedError(msg, found=str(found)[:_SAID], next_step="Please report this.")
