"""Snapshots: each numbered file is the table as it is, and what differs is committed, and nothing else."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa
import pytest

import mirrorlib
from mirrorlib.errors import SnapshotError
from mirrorlib.ingest.batch.snapshot import _check_loss
from mirrorlib.ingest.options import Options
from oracle import FEED_COLUMNS, Row, Rows, assert_same_rows, canonical, multiset
from tables import assert_feed_replays, newest_version, read_columns, read_feed, read_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from mirrorlib.ingest.batch.open_batch import Prepared
    from mirrorlib.ingest.report import TableReport
    from mirrorlib.ingest.work import Work
    from zones import TableWriter, ZoneWriter

pytestmark = pytest.mark.slow

NAN = float("nan")


@dataclass(slots=True)
class Dumps:
    """A table that is published as snapshots.

    Attributes:
        spark: a session.
        zone: the landing zone, with this table alone.
        target: where the Delta table is.
        table: its writer.

    """

    spark: SparkSession
    zone: ZoneWriter
    target: str
    table: TableWriter

    @property
    def path(self) -> Path:
        """Return the Delta table."""
        return Path(self.target) / "t"

    def run(self, **options: Any) -> TableReport:
        """Apply."""
        options = {"snapshots": True, **options}
        return mirrorlib.apply(self.spark, str(self.zone), self.target, **options).tables[0]

    def take(self, rows: list[Row], **options: Any) -> TableReport:
        """Publish a snapshot and apply it."""
        self.table.file(rows)
        return self.run(**options)

    def changes(self, version: int | None) -> Counter[tuple[object, ...]]:
        """Return what one version changes: the kind of change, and the row's values."""
        return Counter(
            (
                row["_change_type"],
                *(value for name, value in row.items() if name not in FEED_COLUMNS),
            )
            for row in read_feed(self.spark, self.path)
            if row["_commit_version"] == version
        )

    def assert_holds(self, rows: list[Row]) -> None:
        """See that the table holds these rows, and that its feed replays to it."""
        assert_same_rows(multiset(rows), multiset(read_rows(self.spark, self.path)))
        assert_feed_replays(self.spark, self.path)


@pytest.fixture
def dumps(spark: SparkSession, zone: ZoneWriter, target: str) -> Dumps:
    """Begin a table with a key."""
    return Dumps(spark, zone, target, zone.table("t", keys=["id"]))


ABC: list[Row] = [{"id": 1, "v": "a"}, {"id": 2, "v": "b"}, {"id": 3, "v": "c"}]


@pytest.mark.thorough
@pytest.mark.parametrize("large", [False, True], ids=["small", "large"])
def test_a_snapshot_commits_what_differs_and_nothing_else(
    dumps: Dumps, monkeypatch: pytest.MonkeyPatch, *, large: bool
) -> None:
    """A row that stays is not in the feed; the others are updates, deletes and inserts, and told as such."""
    if large:
        monkeypatch.setattr("mirrorlib.ingest.batch.open_batch.SMALL_BYTES", -1)
    assert "current" == dumps.take(ABC).state
    rows = [{"id": 1, "v": "a"}, {"id": 2, "v": None}, {"id": 4, "v": "d"}]
    batch = dumps.take(rows).batches[0]

    assert ("merge", 1, 1, 1) == (batch.kind, batch.inserts, batch.updates, batch.deletes)
    expected = [("update_preimage", 2, "b"), ("update_postimage", 2, None)]
    expected += [("delete", 3, "c"), ("insert", 4, "d")]
    assert Counter(expected) == dumps.changes(batch.version)

    batch = dumps.take(rows).batches[0]
    assert ("empty", 0) == (batch.kind, batch.rows)
    dumps.assert_holds(rows)


def test_of_a_backlog_the_newest_snapshot_is_the_table(dumps: Dumps) -> None:
    """A batch of several commits what the last one changes; what was there in between alone is not in the feed."""
    dumps.take(ABC)
    dumps.table.file([{"id": 7, "v": "never seen", "brief": 1}])
    batch = dumps.take([*ABC, {"id": 4, "v": "d"}]).batches[0]

    assert (2, 1, 0, 0) == (batch.files, batch.inserts, batch.updates, batch.deletes)
    assert ["id", "v", "brief"] == read_columns(dumps.spark, dumps.path)  # as in any other cut
    dumps.assert_holds([*ABC, {"id": 4, "v": "d"}])


def test_a_snapshot_that_loses_too_many_rows_is_refused_until_it_is_approved(dumps: Dumps) -> None:
    """It is named with its figures, what comes behind it waits, `plan` says the same, and one run approves it."""
    dumps.take(ABC)
    version = newest_version(dumps.path)
    dumps.table.file([{"id": 3, "v": "c"}, {"id": 9, "v": "z"}])
    planned = mirrorlib.plan(dumps.spark, str(dumps.zone), dumps.target, snapshots=True).tables[0]
    refused = dumps.run()

    assert "failed" == planned.state
    for reason in (planned.reason, refused.reason):
        assert "00000000000000000002.parquet" in reason
        assert "loses 2 of the table's 3 rows, more than the share of 0.5" in reason
        assert "--max-loss 0.6667 --retry" in reason
    assert ("failed", "SnapshotError") == (refused.state, refused.error)
    assert "failed" == dumps.run(max_loss=0.6667).state  # not looked at again without a word
    assert_same_rows(multiset(ABC), multiset(read_rows(dumps.spark, dumps.path)))
    assert "failed" == dumps.run(max_loss=0.6, retry=True).state

    assert "current" == dumps.run(max_loss=0.6667, retry=True).state
    assert newest_version(dumps.path) > version
    dumps.assert_holds([{"id": 3, "v": "c"}, {"id": 9, "v": "z"}])


@pytest.mark.thorough
def test_a_refused_snapshot_that_is_replaced_is_read_again(dumps: Dumps) -> None:
    """Under its own name, as any file that is repaired."""
    dumps.take(ABC)
    assert "failed" == dumps.take([]).state
    dumps.table.replace(2, [*ABC, {"id": 4, "v": "d"}])

    assert "current" == dumps.run().state
    dumps.assert_holds([*ABC, {"id": 4, "v": "d"}])


@pytest.mark.thorough
def test_an_empty_snapshot_empties_the_table_where_that_is_allowed(dumps: Dumps) -> None:
    """A zero-row file with columns is refused with the figures; `--allow-empty` lets it through."""
    dumps.take(ABC)
    dumps.table.file(pa.table({"id": pa.array([], pa.int64()), "v": pa.array([], pa.string())}))
    refused = dumps.run()

    assert "the snapshot is empty, and the table has 3 rows" in refused.reason
    assert "--allow-empty --retry" in refused.reason
    assert "current" == dumps.run(allow_empty=True, retry=True).state
    dumps.assert_holds([])
    assert "current" == dumps.take(ABC).state
    dumps.assert_holds(ABC)


@pytest.mark.parametrize(
    "first, rows, row",
    [
        (True, [*ABC, {"id": 2, "v": "again"}], 3),
        pytest.param(False, [*ABC, {"id": 2, "v": "b"}], 3, marks=pytest.mark.thorough),
        pytest.param(
            False, [{"id": 8, "v": "n"}, *ABC, {"id": 8, "v": "n"}], 4, marks=pytest.mark.thorough
        ),
        pytest.param(
            False,
            [*ABC, {"id": None, "v": "n"}, {"id": None, "v": "m"}],
            4,
            marks=pytest.mark.thorough,
        ),
    ],
    ids=["first", "equal", "new", "null"],
)
def test_a_key_that_is_there_twice_is_refused_by_row(
    dumps: Dumps, *, first: bool, rows: list[Row], row: int
) -> None:
    """Nobody can say which of the rows is meant; the file, the column and the later row are named."""
    if not first:
        dumps.take(ABC)
    refused = dumps.take(rows)

    assert ("failed", "SnapshotError") == (refused.state, refused.error)
    assert (
        f"row {row}, column id: the snapshot has a key in more than one row (found 1 such key)"
        in refused.reason
    )
    assert refused.file == f"{dumps.table.last:020d}.parquet"
    dumps.table.replace(dumps.table.last, ABC)
    assert "current" == dumps.run().state
    dumps.assert_holds(ABC)


@pytest.mark.thorough
def test_a_snapshot_that_wrong_keys_refused_is_read_again_by_others(dumps: Dumps) -> None:
    """Correcting keyColumns is what its refusal has asked for; the file stays as it is."""
    dumps.table.metadata(keys=["v"])
    rows: list[Row] = [{"id": 1, "v": "a"}, {"id": 2, "v": "a"}]
    assert "correct keyColumns" in dumps.take(rows).reason
    dumps.table.metadata(keys=["id"])

    assert "current" == dumps.run().state

    dumps.assert_holds(rows)


@pytest.mark.thorough
def test_plan_says_what_a_snapshot_changes(dumps: Dumps) -> None:
    """With the columns that the table does not have yet, and nothing is written."""
    dumps.take(ABC)
    version = newest_version(dumps.path)
    dumps.table.file(
        [
            {"id": 1, "v": "a", "n": None},
            {"id": 2, "v": "b", "n": 1.5},
            {"id": 5, "v": "e", "n": 1.0},
        ]
    )
    report = mirrorlib.plan(dumps.spark, str(dumps.zone), dumps.target, snapshots=True)

    assert (
        "inserts 1, updates 1 and deletes 1 of the table's 3 rows" == report.tables[0].differences
    )
    assert any("t: inserts 1, updates 1" in note for note in report.notes())
    assert version == newest_version(dumps.path)
    again = dumps.run()
    assert "" == again.reason
    assert (1, 1, 1) == tuple(
        getattr(again.batches[0], name) for name in ("inserts", "updates", "deletes")
    )


@pytest.mark.thorough
def test_rows_without_a_key_are_compared_whole(
    spark: SparkSession, zone: ZoneWriter, target: str
) -> None:
    """Equal rows are counted; where some of them go, Delta deletes them all, and those that stay come again."""
    dumps = Dumps(spark, zone, target, zone.table("t"))
    one, two = {"v": "one", "n": NAN}, {"v": None, "n": -0.0}
    dumps.take([one, one, one, two])
    batch = dumps.take([one, {"v": None, "n": 0.0}, {"v": "new", "n": 1.0}]).batches[0]

    assert (2, 3) == (batch.inserts, batch.deletes)
    assert 5 == sum(dumps.changes(batch.version).values())
    dumps.assert_holds([one, two, {"v": "new", "n": 1.0}])
    batch = dumps.take([one, one, two, {"v": "new", "n": 1.0}]).batches[0]
    assert ("append", 1) == (batch.kind, batch.rows)
    dumps.assert_holds([one, one, two, {"v": "new", "n": 1.0}])


def test_a_table_is_filled_from_snapshots_or_from_changes(dumps: Dumps) -> None:
    """Whoever forgets the option, or gives it too late, is told so, and nothing is applied."""
    dumps.take(ABC)
    dumps.table.file(ABC)
    forgotten = dumps.run(snapshots=False)

    assert "failed" == forgotten.state
    assert "filled from snapshots, and its files are now to be read as changes" in forgotten.reason
    assert "Apply it with --snapshots" in forgotten.reason
    mirrorlib.reset(dumps.spark, dumps.target, "t")
    dumps.table.drop()
    dumps.table.make()
    dumps.table.metadata(keys=["id"])
    dumps.table.file(ABC)
    assert "current" == dumps.run(snapshots=False).state
    assert "Apply it without --snapshots" in dumps.run().reason


@pytest.mark.thorough
def test_files_that_are_no_snapshots_are_refused(
    spark: SparkSession, zone: ZoneWriter, target: str
) -> None:
    """Updates and deletes among the rows, files without numbers, partition folders: each says what to do."""
    changes = zone.table("changes", keys=["id"])
    changes.file(ABC, [0, 0, 2])
    zone.table("by_time", keys=["id"], by_time=True).file(ABC)
    zone.table("parts", keys=["id"], metadata={"isPartitionEnabled": True}).file(
        ABC, partition="a=1"
    )
    zone.table("marked", keys=["id"]).file(ABC, [0, 4, 0])
    report = mirrorlib.apply(spark, str(zone), target, snapshots=True)
    told = {table.table: table.reason for table in report.tables}

    assert (
        "row 2, column __rowMarker__: a snapshot holds rows, and no updates or deletes"
        in told["changes"]
    )
    assert "snapshots need numbers and one folder" in told["by_time"]
    assert "snapshots need numbers and one folder" in told["parts"]
    assert "" == told["marked"]


@pytest.mark.thorough
def test_a_new_life_begins_with_the_newest_snapshot(dumps: Dumps) -> None:
    """A reset replaces the table once, by what it is now."""
    dumps.take(ABC)
    dumps.table.file([{"id": 9, "v": "gone"}])
    dumps.table.file([{"id": 3, "v": "c"}])
    mirrorlib.reset(dumps.spark, dumps.target, "t")
    report = dumps.run()

    assert ["overwrite"] == [batch.kind for batch in report.batches]
    dumps.assert_holds([{"id": 3, "v": "c"}])


def test_a_share_is_no_more_than_the_whole() -> None:
    """A share beyond 1 or below 0 means nothing."""
    for share in (1.1, -0.1, NAN):
        with pytest.raises(ValueError, match="max_loss"):
            Options(max_loss=share)


def test_the_share_that_a_refusal_names_approves_it() -> None:
    """Of any table: 0.57 times 100 rows is a little less than the 57 that are lost."""
    landed = SimpleNamespace(file=SimpleNamespace(name="2.parquet"))
    newest = cast("Prepared", SimpleNamespace(rows=1, landed=[landed]))
    options = SimpleNamespace()
    work = cast("Work", SimpleNamespace(options=options, table="t"))
    for before in range(1, 101):
        for lost in range(1, before + 1):
            options.max_loss = 0.0
            with pytest.raises(SnapshotError) as refused:
                _check_loss(work, newest, before, lost)
            options.max_loss = float(str(refused.value).split("--max-loss ")[1].split()[0])
            _check_loss(work, newest, before, lost)


@pytest.mark.thorough
def test_killed_at_any_step_a_snapshot_has_one_effect(
    spark: SparkSession, zone: ZoneWriter, target: str
) -> None:
    """Stopped before and after each step, with and without a new column, the next run ends right, and the feed replays."""
    steps = ("read", "plan", "guard", "widen", "stage", "commit", "done")
    points = {f"{when}_{step}": (step, when) for step in steps for when in ("before", "after")}
    writers = {name: zone.table(name, keys=["id"]) for name in points}
    for writer in writers.values():
        writer.file(ABC)
    assert mirrorlib.apply(spark, str(zone), target, snapshots=True).ok
    rows = [
        {"id": 1, "v": "a", "n": 1},
        {"id": 2, "v": "x", "n": None},
        {"id": 5, "v": "e", "n": 5},
    ]
    for writer in writers.values():
        writer.file(rows)

    def stop(event: mirrorlib.Event) -> None:
        if points[event.table] == (event.step, event.when):
            raise StopError

    report = mirrorlib.apply(spark, str(zone), target, snapshots=True, observe=stop)
    ended = {table.table for table in report.tables if table.state == "current"}
    # What fails beside or after a commit is looked up in the log, and the run goes on.
    assert ended <= {name for name, (step, _) in points.items() if step in {"widen", "commit"}}
    assert mirrorlib.apply(spark, str(zone), target, snapshots=True).ok
    for name in points:
        path = Path(target) / name
        assert_same_rows(multiset(rows), multiset(read_rows(spark, path)), name)
        assert_feed_replays(spark, path)
        assert 3 + 2 + 2 + 1 + 1 == len(read_feed(spark, path)), name


class StopError(Exception):
    """Stops one table's run."""


@dataclass(slots=True)
class Made:
    """A table of random snapshots, as they were published."""

    writer: TableWriter
    keys: tuple[str, ...]
    snapshots: list[list[Row]] = field(default_factory=list)

    def publish(self, dice: random.Random) -> None:
        """Publish one more, much like the one before; columns come, go, move and change their type."""
        rows = {self._key(row): row for row in (self.snapshots[-1] if self.snapshots else [])}
        names = [name for name in ("a", "b", "c") if dice.random() < 0.8]
        values = [None, 1, 2, 2**40] if dice.random() < 0.7 else [None, 0.5, 1.0]
        for _ in range(dice.randrange(6)):
            row = {"k": dice.choice([None, NAN, 0.0, -0.0, 1.0, 2.5]), "id": dice.randrange(3)}
            rows[self._key(row)] = {**row, **{name: dice.choice(values) for name in names}}
        for key in dice.sample(list(rows), min(len(rows), dice.randrange(3))):
            del rows[key]
        shown = [*rows.values()]
        if not self.keys:
            shown = [row for row in shown for _ in range(dice.randrange(3))]
        dice.shuffle(shown)
        self.snapshots.append(shown)
        kinds = [("k", pa.float64()), ("id", dice.choice([pa.int32(), pa.int64()]))]
        for name in names:
            whole = all(float(row.get(name) or 0).is_integer() for row in shown)
            kinds.append((name, pa.int64() if whole else pa.float64()))
        dice.shuffle(kinds)
        shown = [{name: row.get(name) for name, _ in kinds} for row in shown]
        self.snapshots[-1] = shown
        self.writer.file(shown, columns=pa.schema(kinds))

    def _key(self, row: Row) -> object:
        return canonical(row["k"]), canonical(row["id"])

    def feed_rows(self, before: int, after: int) -> int:
        """Say how many rows of the feed lead from one snapshot to another."""
        old, new = (
            {self._key(row): multiset([row]) for row in self.snapshots[at]}
            for at in (before, after)
        )
        return sum(
            (old.get(key) != new.get(key)) * ((key in old) + (key in new))
            for key in old.keys() | new.keys()
        )


@pytest.mark.parametrize(
    "limit, large",
    [
        (None, False),
        pytest.param(1, True, marks=pytest.mark.thorough),
        pytest.param(2, False, marks=pytest.mark.thorough),
    ],
)
def test_random_snapshots_are_the_table_and_the_feed_replays_to_it(
    spark: SparkSession,
    zone: ZoneWriter,
    target: str,
    monkeypatch: pytest.MonkeyPatch,
    limit: int | None,
    *,
    large: bool,
) -> None:
    """NULL, NaN and -0.0 in keys, columns that come and go, other types, equal rows, in every cut of a backlog."""
    if large:
        monkeypatch.setattr("mirrorlib.ingest.batch.open_batch.SMALL_BYTES", -1)
    dice = random.Random(7 if limit is None else limit)
    tables = [
        Made(zone.table(f"t{number}", keys=keys), keys)
        for number, keys in enumerate(
            [("k", "id"), ()] if limit is None else [("k", "id")] * 3 + [()] * 2
        )
    ]
    options: dict[str, Any] = {
        "snapshots": True,
        "max_loss": 1,
        "allow_empty": True,
        "max_files": limit,
    }
    for count in (1, 2, 1):
        for table in tables:
            for _ in range(count):
                table.publish(dice)
        report = mirrorlib.apply(spark, str(zone), target, **options)
        assert report.ok, str(report)
        for told, table in zip(report.tables, tables, strict=True):
            path = Path(target) / table.writer.name
            expected: Rows = multiset(table.snapshots[-1])
            assert_same_rows(expected, multiset(read_rows(spark, path)), table.writer.name)
            if table.keys and count == 1 and len(table.snapshots) > 1:
                version = told.version
                changed = [r for r in read_feed(spark, path) if r["_commit_version"] == version]
                assert table.feed_rows(-2, -1) == len(changed)
    for table in tables:
        assert_feed_replays(spark, Path(target) / table.writer.name, every_version=True)
