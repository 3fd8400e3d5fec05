"""Windows as files: each once under a name that sorts, whole, in three formats, whatever crashes."""

from __future__ import annotations

import base64
import csv
import json
import random
import re
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from delivery.dying import Dying
from mirrorlib.delivery.consumers import rewind_consumer
from mirrorlib.delivery.run import export_tables
from mirrorlib.delivery.sink import Delivery
from mirrorlib.delivery.sinks.files import parts
from mirrorlib.delivery.sinks.files.sink import FilesSink
from mirrorlib.delivery.sinks.open import open_sink
from mirrorlib.delta.sessions import lend_session
from mirrorlib.errors import (
    JournalError,
    LandingZoneError,
    SchemaError,
    StoreError,
    TableBusyError,
    TableNameError,
)
from mirrorlib.journal.streams import Stream, WindowPlan
from mirrorlib.store import LocalStore
from mirrors import Killed, at, die

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


INSERT, PRE, POST, DELETE = "insert", "update_preimage", "update_postimage", "delete"
PLACES = {DELETE: 0, PRE: 1, POST: 2, INSERT: 3}
TABLE = "dbo/orders"
FEED = "_change_type string, _commit_version bigint, _commit_timestamp timestamp"
STARTED = datetime(2026, 1, 1, tzinfo=UTC)
NAME = re.compile(
    r"(?P<window>\d{20}(?P<mark>-snapshot|-reset)?)(?:\.part-(?P<part>\d{5})-of-(?P<of>\d{5}))?\.(parquet|jsonl|csv)"
)


# What a reader sees who only lists names.


def windows_of(folder: Path) -> dict[str, list[Path]]:
    """Group a table's visible files by window, as delivered; a window's parts have to be all there."""
    found: dict[str, list[Path]] = {}
    for path in sorted(folder.iterdir()) if folder.is_dir() else ():
        if path.name[0] in "_.":
            continue
        name = NAME.fullmatch(path.name)
        assert name, path.name
        found.setdefault(name["window"], []).append(path)
    for window, files in found.items():
        names = [NAME.fullmatch(path.name) for path in files]
        told = [(int(name["part"] or 1), int(name["of"] or 1)) for name in names if name]
        assert [(at, len(files)) for at in range(1, len(files) + 1)] == told, window
    assert list(found) == sorted(found)
    return found


def read_file(path: Path) -> list[dict[str, Any]]:
    """Read a file's rows, timestamps as text where the format has no others."""
    if path.suffix == ".parquet":
        found: list[dict[str, Any]] = pq.read_table(path).to_pylist()
        return found
    if path.suffix == ".jsonl":
        return [json.loads(line) for line in path.read_bytes().splitlines()]
    return read_csv(path).to_pylist()


def read_csv(path: Path, **types: pa.DataType) -> pa.Table:
    """Read CSV as the documentation says: nothing at all is NULL, `""` is empty text."""
    options = pa.csv.ConvertOptions(
        column_types=types,
        null_values=[""],
        strings_can_be_null=True,
        quoted_strings_can_be_null=False,
    )
    parse = pa.csv.ParseOptions(newlines_in_values=True)
    return pa.csv.read_csv(path, parse_options=parse, convert_options=options)


def entries(folder: Path) -> list[dict[str, Any]]:
    """Read the manifest: in the order of the names, its entries are the visible windows."""
    paths = sorted((folder / "_manifest").glob("0*.json"))
    found = [json.loads(path.read_text()) for path in paths]
    visible = windows_of(folder)
    assert list(visible) == [entry["window"] for entry in found]
    for entry in found:
        files = visible[entry["window"]]
        sizes = [{"name": path.name, "bytes": path.stat().st_size} for path in files]
        assert sizes == entry["files"]
        assert entry["rows"] == sum(len(read_file(path)) for path in files)
    return found


def leftovers(root: Path) -> list[Path]:
    """Name what is left of attempts."""
    return [path for path in (root / "_staging").rglob("*") if path.is_file()]


# The receiver on its own, with windows made by hand.


class Windows:
    """A stream of windows into a folder."""

    def __init__(self, spark: SparkSession, root: Path, uuid: str = "one", **stream: Any) -> None:
        self.spark, self.root = spark, root
        self.store = LocalStore(root / "files")
        self.folder = root / "files" / "dbo" / "orders"
        facts = {"consumer": "lake", "table": TABLE, "ordinal": 1, "to": "files", "mode": "changes"}
        facts |= {"net": False, "start_at": None, "table_id": "T", "on_expired": "fail"}
        self.stream = Stream(**{**facts, "uuid": uuid, "began_at": "2026-01-01", **stream})
        self.number = 0

    def deliver(
        self,
        *rows: tuple[int, str, int, str],
        store: Any = None,
        again: bool = False,
        asks: bool = True,
        frame: Any = None,
        sink: Any = None,
        given: int | None = None,
        **plan: Any,
    ) -> int | None:
        """Deliver (version, kind, id, v), as the next window or as the same *again*, as a runner does who *asks* first."""
        self.number += not again
        until = plan.get("until", max((version for version, *_ in rows), default=0))
        facts = {"kind": "changes", "reset": False, "after": until - 1, "until": until}
        facts |= {"table_id": "T", "until_at": "", "keys": ("id",)}
        planned = WindowPlan(
            stream=self.stream.uuid, number=self.number, attempt="a", **facts | plan
        )
        sink = sink or FilesSink(store or self.store)
        if asks and sink.position(self.stream) >= self.number:
            return -1
        with lend_session(self.spark) as spark:
            values = [(key, v, kind, version, STARTED) for version, kind, key, v in rows]
            delivery = Delivery(
                spark=spark,
                stream=self.stream,
                plan=planned,
                frame=frame
                or spark.createDataFrame(values, f"id bigint, v string, {FEED}").coalesce(1),
                scratch=LocalStore(self.root / "state"),
                folder="staged/a",
                given=self.number - 1 if given is None else given,
            )
            return sink.deliver(delivery)

    def values(self) -> list[list[str]]:
        """Give the values of each visible window."""
        return [
            [row["v"] for path in files for row in read_file(path)]
            for files in windows_of(self.folder).values()
        ]


@pytest.fixture
def windows(spark: SparkSession, tmp_path: Path) -> Windows:
    """Give a folder without a window."""
    return Windows(spark, tmp_path)


def three(number: int) -> list[tuple[int, str, int, str]]:
    """Make the rows of a window."""
    return [(number, INSERT, key, f"{number}-{key}") for key in range(3)]


@pytest.mark.thorough
def test_a_window_is_there_once_wherever_its_runner_dies(
    windows: Windows, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before each write, and before what readers see is complete; a window of several files too."""
    monkeypatch.setattr(parts, "_ROWS_PER_FILE", 2)
    deaths = 0
    for number in range(1, 20):
        rows = three(number)
        plan = {"kind": "snapshot"} if number == 1 else {}
        try:
            windows.deliver(*rows, store=Dying(windows.store, max(number - 1, 1)), **plan)
        except Killed:
            deaths += 1
            windows.deliver(*rows, again=True, **plan)
            assert -1 == windows.deliver(*rows, again=True, **plan)
        else:
            break
        finally:
            expected = [[f"{n}-{key}" for key in range(3)] for n in range(1, number + 1)]
            assert expected == windows.values()
            assert number == len(entries(windows.folder))
    # The stream's place; then the attempt's claim, two files, the entry, the newest, the attempt's folder. The last
    # death leaves that folder to the next window, which so has one more.
    assert deaths == 8
    assert {2} == {len(files) for files in windows_of(windows.folder).values()}
    assert [] == leftovers(windows.root / "files")


def test_a_window_of_several_files_is_whole_when_the_manifest_has_it(
    windows: Windows, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A part that is visible before says that there are more."""
    monkeypatch.setattr(parts, "_ROWS_PER_FILE", 2)
    with pytest.raises(
        Killed
    ):  # the stream's place, the claim, two files: at most one of these is moved
        windows.deliver(*three(1), store=Dying(windows.store, 4), kind="snapshot")
    seen = [path.name for path in windows.folder.iterdir() if path.is_file()]
    assert 1 == len(seen)
    assert re.fullmatch(r"0000010+1-snapshot\.part-0000[12]-of-00002\.parquet", seen[0])
    assert [] == list((windows.folder / "_manifest").glob("0*.json"))
    windows.deliver(*three(1), again=True, kind="snapshot")
    assert 2 == len(entries(windows.folder)[0]["files"])


@pytest.mark.thorough
def test_two_runners_of_one_window_leave_it_once(
    windows: Windows, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A whole delivery by another runner, as other files, before each write of the first, which then goes on."""
    windows.deliver(*three(1), kind="snapshot")
    met = 0
    for number in range(2, 20):
        happened: list[int] = []
        rows = three(number)

        def meet(rows: Any = rows, happened: list[int] = happened) -> None:
            monkeypatch.setattr(parts, "_ROWS_PER_FILE", 1)
            happened.append(windows.deliver(*rows, again=True))

        monkeypatch.setattr(parts, "_ROWS_PER_FILE", 2)
        windows.deliver(*rows, store=Dying(windows.store, number - 1, meet))
        assert number == len(entries(windows.folder))
        assert [f"{number}-{key}" for key in range(3)] == windows.values()[-1]
        assert [] == leftovers(windows.root / "files")
        if not happened:
            break
        met += 1
    assert met == 6


def test_a_late_runner_does_not_set_back_what_readers_follow(windows: Windows) -> None:
    """It was taken for gone in the middle of a window; others have finished that, and the next ones."""
    windows.deliver(*three(1), kind="snapshot")
    happened: list[int] = []

    def meet() -> None:
        happened.append(windows.deliver(*three(2), again=True))
        happened.append(windows.deliver(*three(3)))

    windows.deliver(*three(2), store=Dying(windows.store, 3, meet))

    assert [3, 3] == happened
    assert 3 == FilesSink(windows.store).position(windows.stream)
    assert 3 == windows.deliver(*three(4))
    assert [str(number) for number in range(1, 5)] == [one[0][0] for one in windows.values()]


def test_a_late_runner_of_an_earlier_stream_does_not_set_back_what_readers_follow(
    windows: Windows,
) -> None:
    """It was taken for gone before its last words; the consumer was rewound, and the new stream has delivered."""
    windows.deliver(*three(1), kind="snapshot")
    anew = Windows(windows.spark, windows.root, "two", began_at="2026-01-02", ordinal=2)

    def meet() -> None:
        anew.deliver(*three(2), kind="snapshot")

    windows.deliver(*three(2), store=Dying(windows.store, 3, meet))
    assert 1 == FilesSink(windows.store).position(anew.stream)


def test_a_stream_that_begins_again_sorts_behind_the_one_before(windows: Windows) -> None:
    """Its windows are numbered from 1 again; a late runner of the former stream, or of a passed window, adds nothing."""
    windows.deliver(*three(1), kind="snapshot")
    windows.deliver(*three(2))
    anew = Windows(windows.spark, windows.root, "two", began_at="2026-01-02", start_at=1)
    anew.deliver(*three(2))
    third = Windows(windows.spark, windows.root, "three", began_at="2026-01-03")
    third.deliver(*three(3), kind="snapshot")
    third.number = 5
    third.deliver(kind="snapshot", reset=True, until=9)  # of a table without rows
    third.number = 3
    assert 0 == FilesSink(windows.store).position(windows.stream)
    assert 6 == FilesSink(windows.store).position(third.stream)
    assert -1 == third.deliver(*three(4))
    assert third.deliver(*three(4), again=True, asks=False) is None
    with pytest.raises(TableBusyError, match="dbo/orders: a stream of lake that began later"):
        windows.deliver(*three(3))

    names = list(windows_of(windows.folder))
    assert [
        "00000100000000000001-snapshot",
        "00000100000000000002",
        "00000200000000000001",
        "00000300000000000001-snapshot",
        "00000300000000000006-reset",
    ] == names
    told = [(e["kind"], e["reset"], e["stream"], e["until"]) for e in entries(windows.folder)]
    assert told == [
        ("snapshot", False, "one", 1),
        ("changes", False, "one", 2),
        ("changes", False, "two", 2),
        ("snapshot", False, "three", 3),
        ("snapshot", True, "three", 9),
    ]


def test_streams_follow_by_number_whatever_the_clocks_say(windows: Windows) -> None:
    """The first runner's clock was far ahead; a consumer that was registered again begins with 1 once more."""
    windows.deliver(*three(1), kind="snapshot")
    ahead = Windows(windows.spark, windows.root, "ahead", ordinal=2, began_at="2099-01-01")
    ahead.deliver(*three(2), kind="snapshot")
    behind = Windows(windows.spark, windows.root, "behind", ordinal=3, began_at="2026-01-02")
    behind.deliver(*three(3), kind="snapshot")
    with pytest.raises(TableBusyError, match=r"number 3, this one is number 2.*repeat"):
        ahead.deliver(*three(4))
    again = Windows(windows.spark, windows.root, "again", ordinal=1, began_at="2026-01-03")
    again.deliver(*three(4), kind="snapshot")
    assert ["one", "ahead", "behind", "again"] == [e["stream"] for e in entries(windows.folder)]
    with pytest.raises(TableBusyError, match="began later"):
        windows.deliver(*three(5))


def test_a_folder_that_was_emptied_is_not_begun_anew_in_the_middle(windows: Windows) -> None:
    """Of a stream that began after a version too; windows without a change never came here."""
    numbered = Windows(windows.spark, windows.root, start_at=0)
    numbered.deliver(*three(1))
    windows.store.delete_folder("dbo/orders")
    with pytest.raises(LandingZoneError, match="does not have the window that the changes follow"):
        numbered.deliver(*three(2))
    numbered.deliver(*three(2), again=True, given=0)
    assert [["2-0", "2-1", "2-2"]] == numbered.values()


def test_a_stream_whose_own_file_was_removed_for_its_age_goes_on(windows: Windows) -> None:
    """And one that begins anew still sorts behind what readers have seen."""
    windows.deliver(*three(1), kind="snapshot")
    windows.store.delete_folder("dbo/orders/_manifest/streams")
    windows.deliver(*three(2))
    anew = Windows(windows.spark, windows.root, "two", ordinal=2, began_at="2026-01-02")
    anew.deliver(*three(3), kind="snapshot")
    assert [
        "00000100000000000001-snapshot",
        "00000100000000000002",
        "00000200000000000001-snapshot",
    ] == list(windows_of(windows.folder))


def test_what_a_killed_runner_claimed_in_a_folder_that_was_removed_counts_for_nothing(
    windows: Windows,
) -> None:
    """A stream that begins anew there has windows of the same numbers, and other rows."""
    windows.deliver(*three(1), kind="snapshot")
    with pytest.raises(Killed):
        windows.deliver(*three(2), store=Dying(windows.store, 3))  # at the entry: all is claimed
    windows.store.delete_folder("dbo/orders")
    anew = Windows(windows.spark, windows.root, "two", ordinal=2, began_at="2026-01-02")
    anew.deliver(*three(3), kind="snapshot")
    anew.deliver(*three(4))

    assert [["3-0", "3-1", "3-2"], ["4-0", "4-1", "4-2"]] == anew.values()
    assert 2 == FilesSink(anew.store).position(anew.stream)
    assert [] == leftovers(anew.root / "files")


@pytest.mark.parametrize("at", [3, 4], ids=["claimed", "delivered"])
def test_what_a_registry_that_was_set_back_had_planned_is_not_taken_for_another_window(
    windows: Windows, at: int
) -> None:
    """Of the same number, and up to another version: the rest of its rows would be lost."""
    windows.deliver(*three(1), kind="snapshot")
    with pytest.raises(Killed):
        windows.deliver(*three(2), store=Dying(windows.store, at))
    more = [*three(2), *three(3)]
    for _ in range(2):
        with pytest.raises(JournalError, match=r"found window 2 up to version 2, 3 in the regis"):
            windows.deliver(*more, again=True, after=1, until=3)
    windows.deliver(*three(2), again=True)
    assert [["1-0", "1-1", "1-2"], ["2-0", "2-1", "2-2"]] == windows.values()


def test_a_delta_table_s_folder_is_left_alone(windows: Windows) -> None:
    """Its VACUUM would remove the windows."""
    (windows.folder / "_delta_log").mkdir(parents=True)
    (windows.folder / "_delta_log" / f"{0:020d}.json").touch()
    with pytest.raises(LandingZoneError, match=r"dbo/orders: .*the folder of a Delta table"):
        windows.deliver(*three(1), kind="snapshot")
    assert ["_delta_log"] == [path.name for path in windows.folder.iterdir()]


def test_what_cannot_be_right_is_refused(windows: Windows) -> None:
    """Another consumer's folder, an emptied one, a file that was taken away or replaced under way, damaged state."""
    windows.deliver(*three(1), kind="snapshot")
    other = Windows(windows.spark, windows.root, "two", consumer="shop")
    with pytest.raises(LandingZoneError, match=r"another table .found lake, dbo/orders"):
        other.deliver(*three(1), kind="snapshot")
    with pytest.raises(Killed):
        windows.deliver(*three(2), store=Dying(windows.store, 3))
    name = "00000100000000000002.parquet"
    (windows.folder / name).write_bytes(b"mine")
    with pytest.raises(StoreError, match=f"{name} is another file"):
        windows.deliver(*three(2), again=True)
    (windows.folder / name).unlink()
    with pytest.raises(StoreError, match=f"{name} was removed before its window was complete"):
        windows.deliver(*three(2), again=True)
    claim = next((windows.root / "files" / "_staging").rglob("claim.json"))
    claim.write_text("{")
    with pytest.raises(JournalError, match="the list of what was delivered cannot be read"):
        windows.deliver(*three(2), again=True)
    claim.write_text('{"format": 99}')
    with pytest.raises(JournalError, match="newer one"):
        windows.deliver(*three(2), again=True)
    windows.store.delete_folder("dbo/orders")
    with pytest.raises(
        LandingZoneError, match="does not have the snapshot that the changes follow"
    ):
        windows.deliver(*three(3))
    hidden = Windows(windows.spark, windows.root, "two", table="_orders")
    with pytest.raises(TableNameError, match="readers ignore folders"):
        hidden.deliver(*three(1), kind="snapshot")


@pytest.mark.parametrize("url", ["/x?format=orc", "/x?sep=;", "/x?format=csv&x=1"])
def test_a_url_that_says_something_else_is_refused(url: str) -> None:
    """The error names the formats."""
    with pytest.raises(LandingZoneError, match="format=parquet, jsonl or csv"):
        open_sink(f"files:{url}", None)


# With the runner, from real tables.

ODD = ["", " ", "  both sides  ", "NULL", '"', '""', "a,b", "\\", '\\"', "a\rb", "a\nb", "a\r\nb", "\n", "\x00", "\ufeff",
       "é😀\u2028", "#c", 'end"', "end\\", 'q"\\",', "\\N", "007", None]  # fmt: skip
PLAIN: dict[str, tuple[str, list[Any]]] = {
    "bo": ("BOOLEAN", [True, False]),
    "i1": ("TINYINT", [-128]),
    "i8": ("BIGINT", [2**63 - 1, -(2**63)]),
    "f4": ("FLOAT", [0.5, float("-inf")]),
    "f8": ("DOUBLE", [0.1, float("nan"), float("inf"), 1e300]),
    "d1": ("DECIMAL(38, 18)", [Decimal("12345678901234567890.000000000000000001"), Decimal("0E-18")]),
    "d2": ("DECIMAL(4, 2)", [Decimal("-1.50")]),
    "by": ("BINARY", [b"", b"\x00\xff" * 60]),
    "da": ("DATE", [date(1, 1, 1), date(9999, 12, 31)]),
    "ts": ("TIMESTAMP", [datetime(1, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, 23, 59, 59, 999999, UTC)]),
    "nt": ("TIMESTAMP_NTZ", [datetime(1, 1, 1), datetime(2020, 2, 2, 2, 2, 2, 500000)]),
    'odd name, "`': ("STRING", ODD),
}  # fmt: skip
NESTED = "l ARRAY<DECIMAL(4, 2)>, m MAP<STRING, TIMESTAMP>, s STRUCT<x: DOUBLE, y: BINARY>"


def as_text(value: Any) -> Any:
    """Spell a value as the documentation says text formats do."""
    if isinstance(value, datetime):
        zone = "Z" if value.tzinfo else ""
        return f"{value.replace(tzinfo=None).isoformat(timespec='microseconds')}{zone}"
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, Decimal):
        return f"{value:f}"
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, float):
        words = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}
        return words.get(str(value), value)
    return value


def test_every_type_is_read_back_as_it_was(windows: Windows) -> None:
    """By readers that are not Spark, in all formats; NULL and empty text kept apart; nested columns where there is room."""
    rows = []
    for place in range(len(ODD) + 1):
        row = {"id": place}
        for name, (_, values) in PLAIN.items():
            row[name] = values[place] if place < len(values) else None
        rows.append(row)
    fields = [f"`{name.replace('`', '``')}` {kind}" for name, (kind, _) in PLAIN.items()]
    columns = f"id INT, {', '.join(fields)}"
    told = (INSERT, 1, STARTED)
    plain_rows = [(*row.values(), *told) for row in rows]
    moment = datetime(2020, 1, 1, tzinfo=UTC)
    nested_rows = [
        (1, [Decimal("1.50"), None], {"a": moment}, (float("nan"), b"\x00\xff"), *told),
        (2, None, None, None, *told),
    ]
    found: dict[tuple[str, str], Any] = {}
    frames = {
        "plain": windows.spark.createDataFrame(plain_rows, f"{columns}, {FEED}"),
        "nested": windows.spark.createDataFrame(nested_rows, f"id INT, {NESTED}, {FEED}"),
    }
    for form in ("parquet", "jsonl", "csv"):
        for table, frame in frames.items():
            windows.stream = replace(windows.stream, uuid=table, table=f"{form}/{table}")
            windows.number = 0
            sink = open_sink(f"files:{windows.store.url}?format={form}", None)[0]
            if (form, table) == ("csv", "nested"):
                with pytest.raises(
                    SchemaError, match=r"csv/nested: column l: .*no place in CSV .found array"
                ):
                    windows.deliver(kind="snapshot", frame=frame, sink=sink)
                continue
            assert frame.count() == windows.deliver(kind="snapshot", frame=frame, sink=sink)
            (path,) = next(iter(windows_of(windows.root / "files" / form / table).values()))
            found[form, table] = pq.read_table(path) if form == "parquet" else path
    plain = sorted(found["parquet", "plain"].to_pylist(), key=lambda row: row["id"])
    assert str(rows) == str([{name: row[name] for name in rows[0]} for row in plain]).replace(
        "zoneinfo.ZoneInfo(key='UTC')", "datetime.timezone.utc"
    )
    assert {"insert"} == {row["_change_type"] for row in plain}
    assert [[Decimal("1.50"), None], None] == found["parquet", "nested"]["l"].to_pylist()

    text = [{name: as_text(value) for name, value in row.items()} for row in rows]
    lines = sorted(read_file(found["jsonl", "plain"]), key=lambda row: row["id"])
    assert text == [{name: row[name] for name in text[0]} for row in lines]
    assert "2026-01-01T00:00:00.000000Z" == lines[0]["_commit_timestamp"]
    nested = sorted(read_file(found["jsonl", "nested"]), key=lambda row: row["id"])
    assert ["1.50", None] == nested[0]["l"]
    assert {"a": "2020-01-01T00:00:00.000000Z"} == nested[0]["m"]
    assert {"x": "NaN", "y": "AP8="} == nested[0]["s"]
    assert nested[1]["s"] is None

    kinds = {name: pa.string() for name in rows[0]}
    table = read_csv(found["csv", "plain"], **kinds).to_pylist()
    table.sort(key=lambda row: int(row["id"]))
    for expected, row in zip(text, table, strict=True):
        assert expected['odd name, "`'] == row['odd name, "`']
        for name, value in expected.items():
            if isinstance(value, float):
                assert value == float(row[name])
            elif isinstance(value, bool | int):
                assert str(value).lower() == row[name]
            else:
                assert value == row[name], name
    with found["csv", "plain"].open(
        newline="", encoding="utf-8"
    ) as file:  # a reader that knows no NULL
        plainest = sorted(csv.DictReader(file), key=lambda row: int(row["id"]))
    assert [value or "" for value in [*ODD, None]] == [row['odd name, "`'] for row in plainest]


class Source:
    """Delta tables that SQL changes, and what a feed of them has to be, kept in plain Python."""

    def __init__(self, spark: SparkSession, root: Path, *names: str) -> None:
        self.spark, self.root, self.target = spark, root, str(root / "source")
        self.dice = random.Random(21)
        self.held: dict[str, dict[int, tuple[Any, ...]]] = {name: {} for name in names}
        self.feed: dict[str, list[tuple[int, int, str, tuple[Any, ...]]]] = {
            name: [] for name in names
        }
        self.versions = dict.fromkeys(names, 0)
        for name in names:
            self.run(name, "CREATE TABLE {t} (id BIGINT, v STRING) USING delta "
                           "TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true')")  # fmt: skip

    def run(self, name: str, statement: str) -> None:
        """Run SQL."""
        self.spark.sql(statement.format(t=f"delta.`{self.target}/{name}`"))

    def commit(self, name: str) -> None:
        """Commit inserts, updates, deletes and re-inserts at once, and say what its feed is."""
        self.versions[name] += 1
        version, held = self.versions[name], self.held[name]
        for key in self.dice.sample(range(9), self.dice.randrange(2, 6)):
            gone, old, new = (
                key in held and self.dice.random() < 0.4,
                held.get(key),
                (f"v{version}",),
            )
            told = (
                [(DELETE, old)] if gone else [(PRE, old), (POST, new)] if old else [(INSERT, new)]
            )
            self.feed[name] += [(version, key, kind, row) for kind, row in told if row is not None]
            held.pop(key, None) if gone else held.update({key: new})
        values = ", ".join(
            f"({key}, '{row[0]}', {kind == DELETE})".lower()
            for at, key, kind, row in self.feed[name]
            if at == version and kind != PRE
        )
        self.run(
            name,
            f"MERGE INTO {{t}} t USING (VALUES {values} AS s(id, v, gone)) s ON t.id = s.id "
            "WHEN MATCHED AND s.gone THEN DELETE WHEN MATCHED THEN UPDATE SET v = s.v "
            "WHEN NOT MATCHED THEN INSERT (id, v) VALUES (s.id, s.v)",
        )

    def grow(self, name: str) -> None:
        """Add a column."""
        self.versions[name] += 1
        self.run(name, "ALTER TABLE {t} ADD COLUMN more INT")

    def expected(self, name: str, after: int, until: int) -> list[tuple[int, int, str, str]]:
        """Give a window's rows in the order of its files."""
        rows = [row for row in self.feed[name] if after < row[0] <= until]
        rows.sort(key=lambda row: (row[0], row[1], PLACES[row[2]]))
        return [(version, key, kind, values[0]) for version, key, kind, values in rows]

    def found(self, files: list[Path]) -> list[tuple[int, int, str, str]]:
        """Read a window's rows in their order."""
        rows = [row for path in files for row in read_file(path)]
        return [(r["_commit_version"], r["id"], r["_change_type"], r["v"]) for r in rows]

    def check(self, name: str, folder: Path, start: int) -> list[dict[str, Any]]:
        """See that the windows follow each other, and that each holds its changes, in order."""
        told = entries(folder)
        after = start
        for entry, files in zip(told, windows_of(folder).values(), strict=True):
            assert (
                self.expected(name, after, entry["after"]) == []
            )  # a window without changes is no file
            assert self.expected(name, entry["after"], entry["until"]) == self.found(files)
            after = entry["until"]
        assert self.expected(name, after, self.versions[name]) == []
        return told


def test_windows_hold_the_feed_in_order_whatever_step_a_run_dies_at(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Random commits, all formats, windows of some versions, a column that comes, two tables, runs that are killed."""
    source = Source(spark, tmp_path, "dbo/orders", "items")
    source.commit("items")
    source.commit("dbo/orders")
    source.commit("dbo/orders")
    source.grow("dbo/orders")
    source.commit("dbo/orders")

    def export(form: str, size: int, *tables: str, **options: Any) -> Any:
        keys = {"dbo/orders": ["id"], "items": ["id"]}
        told = {"consumer": form, "start": 0, "max_versions": size, "keys": keys, **options}
        to = f"files:{tmp_path}/{form}?format={form}"
        return export_tables(spark, source.target, tables, to=to, **told)

    for step in ("plan", "deliver", "done"):
        for when in ("before", "after"):
            with pytest.raises(Killed):
                export("jsonl", 3, "dbo/*", observe=at(step, when, die))
    for form, size, tables in (("jsonl", 3, ["dbo/*"]), ("parquet", 2, []), ("csv", 4, ["orders"])):
        report = export(form, size, *tables)
        assert report.ok, str(report)
        told = source.check("dbo/orders", tmp_path / form / "dbo" / "orders", 0)
        assert -(-4 // size) == len(told)
        assert {(form, "id")} == {(entry["consumer"], *entry["keys"]) for entry in told}
        names = [[column["name"] for column in entry["columns"]] for entry in told]
        assert ["id", "v", "more"] == names[-1][:3]
        if form == "parquet":
            assert ["id", "v", "_change_type", "_commit_version", "_commit_timestamp"] == names[0]
            assert 1 == len(source.check("items", tmp_path / form / "items", 0))
        assert [] == leftovers(tmp_path / form)


@pytest.mark.thorough
def test_a_column_that_was_corrected_at_the_source_is_not_in_the_window_that_was_refused(
    spark: SparkSession, tmp_path: Path
) -> None:
    """That is repeated as it was planned, which the refusal says: the consumer has to begin anew."""
    source = Source(spark, tmp_path, "items")
    items = f"delta.`{source.target}/items`"
    spark.sql(f"ALTER TABLE {items} SET TBLPROPERTIES ('delta.columnMapping.mode' = 'name')")
    spark.sql(f"ALTER TABLE {items} ADD COLUMNS (days map<date, int>)")
    told = {"consumer": "lines", "to": f"files:{tmp_path}/lines?format=jsonl"}
    for _ in range(2):
        reason = export_tables(spark, source.target, **told).tables[0].reason
        assert "Make the column text" in reason
        assert "mirrorlib consumers TARGET --rewind lines --to snapshot" in reason
        spark.sql(f"ALTER TABLE {items} DROP COLUMNS IF EXISTS (days)")
    rewind_consumer(source.target, "lines", "snapshot", spark=spark)
    assert export_tables(spark, source.target, **told).ok
