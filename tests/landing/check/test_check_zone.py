"""A review tells what it found, where and how often, and leaves everything as it was."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import mirrorlib
from mirrorlib.errors import LandingZoneError, StoreError
from mirrorlib.landing.check import zone as checked_zone
from mirrorlib.landing.check.report import ERRORS_LISTED, Findings
from mirrorlib.landing.check.zone import check_zone
from mirrorlib.store import Folder, LocalStore
from zones import MARKER, TableWriter, ZoneWriter

if TYPE_CHECKING:
    from mirrorlib.events import Event
    from mirrorlib.landing.check.report import CheckReport, Finding

ROWS = [{"id": 1, "v": "a"}, {"id": 2, "v": "b"}]


def name(number: int) -> str:
    """Give the file name of a number."""
    return f"{number:020d}.parquet"


def only(report: CheckReport, rule: str) -> Finding:
    """Give the one finding of a rule."""
    (finding,) = (one for one in report.findings if one.rule == rule)
    return finding


def orders(zone: ZoneWriter, **metadata: object) -> TableWriter:
    """Make a table with a sound first file."""
    table = zone.table("orders", keys=["id"], schema="dbo", metadata=metadata)
    table.file(ROWS)
    return table


@pytest.fixture
def nasty(zone: ZoneWriter) -> ZoneWriter:
    """Give a zone in which much is wrong."""
    table = orders(zone)
    table.file(ROWS, markers=[1, 3])
    table.file(ROWS, markers=[1, None], number=5, marker_at="first")
    table.zero_bytes()
    table.damaged(ROWS)
    bad = zone.table("bad", metadata='{"keyColumn": ["id",]}')
    bad.garbage()
    bad.file([{"id": None, "v": 1.5}], markers=[2])
    zone.table("waiting", with_metadata=False)
    csv = zone.table("csv", keys=["id"], metadata={"FileFormat": "csv"})
    (csv.folder / f"{1:020d}.csv").write_bytes(b"id,v\n1,\xff\n")
    zone.table("fine", keys=["id"]).file(ROWS)
    (zone.root / "readme.txt").write_text("words")
    return zone


# Promises


@pytest.mark.parametrize("deep", [False, True])
def test_nothing_in_the_zone_changes(nasty: ZoneWriter, deep: bool) -> None:
    """Names, sizes, times and bytes are the same before and after."""
    before = snapshot(nasty.root)

    report = check_zone(str(nasty), deep=deep)

    assert not report.ok
    assert before == snapshot(nasty.root)


def snapshot(root: Path) -> dict[str, tuple[int, int, bytes]]:
    """Remember everything below a folder."""
    return {
        str(path.relative_to(root)): (
            path.stat().st_mtime_ns,
            path.stat().st_ctime_ns,
            path.read_bytes() if path.is_file() else b"",
        )
        for path in [root, *root.rglob("*")]
    }


def test_a_zone_that_may_not_be_written_can_be_reviewed(nasty: ZoneWriter) -> None:
    """Nothing is created beside the files either, not for a moment."""
    folders = [path for path in nasty.root.rglob("*") if path.is_dir()]
    for folder in folders:
        folder.chmod(0o555)
    try:
        assert check_zone(str(nasty)).findings
    finally:
        for folder in folders:
            folder.chmod(0o755)


def test_spark_is_not_imported(nasty: ZoneWriter) -> None:
    """The whole command runs where no Spark is installed."""
    program = (
        "import sys; sys.modules['pyspark'] = sys.modules['delta'] = None\n"
        "from mirrorlib.cli.main import main\n"
        f"code = main(['check', {str(nasty)!r}, '--deep', '--json'])\n"
        "assert not [name for name in sys.modules if name.startswith(('pyspark.', 'py4j', 'delta.'))]\n"
        "sys.exit(code)"
    )

    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )

    assert (1, "") == (done.returncode, done.stderr)
    assert not json.loads(done.stdout)["ok"]


def test_a_broken_table_does_not_hide_the_others(nasty: ZoneWriter) -> None:
    """Each table has its own findings, and the sound one has none."""
    report = check_zone(str(nasty))

    errors = {table.table: table.errors > 0 for table in report.tables}
    assert {
        "bad": True,
        "csv": True,
        "dbo/orders": True,
        "fine": False,
        "waiting": True,
    } == errors
    assert {"gap", "marker-unknown", "marker-null", "zero-byte"} <= {
        one.rule for one in report.findings if one.table == "dbo/orders"
    }
    assert "unreadable" in {one.rule for one in report.findings if one.table == "bad"}


def test_a_bad_file_does_not_hide_the_next(zone: ZoneWriter) -> None:
    """Nor does it break the comparison of its neighbours."""
    table = orders(zone)
    table.garbage()
    table.file([{"id": 1, "v": 1}])

    report = check_zone(str(zone))

    assert ["schema-conflict", "unreadable"] == sorted(one.rule for one in report.findings)


def test_it_is_the_public_function(zone: ZoneWriter) -> None:
    """`mirrorlib.check` is it, and its values have public names."""
    orders(zone).zero_bytes()

    report = mirrorlib.check(str(zone))

    assert isinstance(report, mirrorlib.CheckReport)
    assert isinstance(report.findings[0], mirrorlib.Finding)


def test_even_the_unforeseen_stops_at_its_table(
    zone: ZoneWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever raises in one table, the others are reviewed."""

    class Failing(LocalStore):
        def list_folder(self, folder: str) -> Folder | None:
            if folder == "bad":
                msg = "nobody thought of this"
                raise RuntimeError(msg)
            return super().list_folder(folder)

    orders(zone).zero_bytes()
    zone.table("bad").file(ROWS)
    monkeypatch.setattr(checked_zone, "open_store", lambda _: Failing(zone.root))

    findings = check_zone(str(zone)).findings

    assert [("bad", "not-checked"), ("dbo/orders", "zero-byte")] == [
        (one.table, one.rule) for one in findings
    ]
    assert "an unexpected RuntimeError; -vv tells where" == findings[0].found


def test_what_the_store_says_is_told(zone: ZoneWriter, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether a key has expired or the place is elsewhere."""

    class Refusing(LocalStore):
        def list_folder(self, folder: str) -> Folder | None:
            if folder:
                msg = f"cannot list {folder}"
                raise StoreError(msg, found="403 Forbidden: ExpiredToken")
            return super().list_folder(folder)

    orders(zone)
    zone.table("plain")
    monkeypatch.setattr(checked_zone, "open_store", lambda _: Refusing(zone.root))

    assert {
        "cannot list dbo.schema: 403 Forbidden: ExpiredToken",
        "cannot list plain: 403 Forbidden: ExpiredToken",
    } == {one.found for one in check_zone(str(zone)).findings}


@settings(max_examples=2 * settings().max_examples)
@given(hits=st.lists(st.tuples(st.integers(0, 4000), st.integers(0, 255)), min_size=1, max_size=4))
def test_no_damage_ends_the_review(hits: list[tuple[int, int]]) -> None:
    """Whatever bytes of a file are wrong, it is a finding of its table, or none."""
    with tempfile.TemporaryDirectory() as folder:
        zone = ZoneWriter(Path(folder))
        table = orders(zone)
        path = table.file(ROWS, markers=[1, 1])
        data = bytearray(path.read_bytes())
        for place, value in hits:
            data[place % len(data)] = value
        path.write_bytes(bytes(data))

        findings = check_zone(folder, deep=True).findings

    assert not [one for one in findings if one.rule == "not-checked"]


def test_names_that_are_not_utf8_are_damage(zone: ZoneWriter) -> None:
    """Not even their columns can be listed."""
    path = orders(zone).file([{"id": 1, "vvvvvv": "a"}], parquet={"store_schema": False})
    path.write_bytes(path.read_bytes().replace(b"vvvvvv", b"v\xffvvvv"))

    assert name(2) == only(check_zone(str(zone)), "unreadable").file


# Where something is


def test_a_marker_is_named_with_its_row_and_how_many_there_are(zone: ZoneWriter) -> None:
    """Rows count from 0, over all pieces that a file is read in."""
    markers = [1] * 200_000
    markers[150_001] = markers[199_999] = 3
    rows = pa.table({"id": range(200_000), "v": ["a"] * 200_000})
    orders(zone).file(rows, markers=markers)

    finding = only(check_zone(str(zone)), "marker-unknown")

    assert ("dbo/orders", name(2), 150_001, MARKER) == (
        finding.table,
        finding.file,
        finding.row,
        finding.column,
    )
    assert "2 rows, the first with the marker '3'" == finding.found


@pytest.mark.parametrize("row", [0, 65_535, 65_536, 99_999])
def test_a_null_key_is_named_with_its_row(zone: ZoneWriter, row: int) -> None:
    """Wherever the pieces are cut."""
    ids: list[int | None] = list(range(100_000))
    ids[row] = None
    orders(zone).file(pa.table({"id": pa.array(ids), "v": ["a"] * 100_000}))

    assert row == only(check_zone(str(zone)), "key-null").row


def test_a_null_key_of_a_file_without_statistics_is_named(zone: ZoneWriter) -> None:
    """They are not asked for."""
    table = orders(zone)
    rows = [{"id": 1, "v": "a"}, {"id": None, "v": "b"}]
    table.file(rows, parquet={"write_statistics": False})

    assert 1 == only(check_zone(str(zone)), "key-null").row


def test_a_row_without_keys_is_named(zone: ZoneWriter) -> None:
    """The first row that needs a key, not the first row."""
    table = zone.table("orders")
    table.file(ROWS)
    table.file([{"id": n, "v": "x"} for n in range(4)], markers=[0, 0, 2, 1])

    finding = only(check_zone(str(zone)), "no-keys")

    assert (2, "2 rows") == (finding.row, finding.found)


@pytest.mark.parametrize(
    "kind",
    [
        pa.int8(),
        pa.int64(),
        pa.uint8(),
        pa.string(),
        pa.large_string(),
        pa.float64(),
        pa.decimal128(3, 0),
        pa.dictionary(pa.int32(), pa.string()),
    ],
    ids=str,
)
def test_markers_of_every_type_are_understood(zone: ZoneWriter, kind: pa.DataType) -> None:
    """What is applied is no error here, and what is not, is."""
    table = orders(zone)
    table.file(ROWS, markers=[1, 4], marker_type=kind)
    assert check_zone(str(zone)).ok

    table.file(ROWS, markers=[2, 5], marker_type=kind)
    assert 1 == only(check_zone(str(zone)), "marker-unknown").row


def test_markers_that_are_no_numbers_are_unknown(zone: ZoneWriter) -> None:
    """A boolean says nothing."""
    orders(zone).file(pa.table({"id": [1], "v": ["a"], MARKER: [True]}))

    rules = {one.rule for one in check_zone(str(zone)).findings}

    assert {"marker-type", "marker-unknown"} == rules


def test_each_hole_in_the_numbers_is_named(zone: ZoneWriter) -> None:
    """With every number that is missing."""
    table = orders(zone)
    for number in (3, 4, 8):
        table.file(ROWS, number=number)

    found = [one.found for one in check_zone(str(zone)).findings if one.rule == "gap"]

    assert ["the number 2 is missing", "the numbers 5 to 7 are missing"] == found


def test_partitions_have_numbers_of_their_own(zone: ZoneWriter) -> None:
    """And their files are named with their folder."""
    table = zone.table("orders", keys=["id"], metadata={"isPartitionEnabled": True})
    for number, partition in ((1, "Region=eu"), (1, "Region=us"), (3, "Region=us")):
        table.file(ROWS, number=number, partition=partition)

    finding = only(check_zone(str(zone)), "gap")

    assert f"Region=us/{2:020d}" == finding.file


def test_all_that_is_wrong_with_columns_is_told_at_once(zone: ZoneWriter) -> None:
    """Not only the first that a reader stumbles over."""
    table = zone.table("orders", keys=["id"])
    table.file(
        pa.table(
            {
                "id": [1],
                "x": ["a"],
                "X": ["b"],
                "a`b": [1],
                "_commit_version": [1],
                "_mirror_x": [1],
                "": [1],
                "n" * 300: [1],
                "tags": [["t"]],
                "price": pa.array([Decimal(1)], pa.decimal256(50, 0)),
                MARKER: [0],
                MARKER.upper(): [0],
            }
        )
    )

    counted = Counter(one.rule for one in check_zone(str(zone)).findings)

    assert {"columns-collide": 1, "column-name": 5, "column-type": 2, "marker-twice": 1} == counted


# Drift


@pytest.mark.parametrize("deep", [False, True])
@pytest.mark.parametrize(
    "before, after, told",
    [
        (pa.int64(), pa.int32(), "int32 here, int64 before; mirrorlib casts"),
        (pa.int32(), pa.int64(), "int64 here, int32 before; mirrorlib"),
        (pa.int64(), pa.float64(), "double here, int64 before; mirrorlib"),
        (pa.date32(), pa.timestamp("us", "UTC"), "timestamp[us, tz=UTC] here, date32[day] before"),
        (pa.decimal128(9, 1), pa.decimal128(9, 4), "mirrorlib"),
        (pa.float64(), pa.decimal128(9, 2), "mirrorlib"),
    ],
    ids=str,
)
def test_drift_says_what_mirrorlib_makes_of_it(
    zone: ZoneWriter, before: pa.DataType, after: pa.DataType, told: str, deep: bool
) -> None:
    """Fabric stops; that is the rule's text, and the finding's is mirrorlib's side."""
    table = zone.table("orders", keys=["id"])
    for kind in (before, after):
        table.file(pa.table({"id": [1], "v": pa.array([None], kind)}))

    finding = only(check_zone(str(zone), deep=deep), "schema-drift")

    assert told in finding.found
    assert ("v", name(2)) == (finding.column, finding.file)


@pytest.mark.parametrize(
    "value, rule, row",
    [(Decimal(1), "schema-drift", None), (Decimal("0.5"), "schema-conflict", 1)],
)
def test_a_deep_review_looks_whether_values_fit(
    zone: ZoneWriter, value: Decimal, rule: str, row: int | None
) -> None:
    """A whole number of a decimal column fits an integer column, a broken one does not; no type holds both."""
    table = zone.table("orders", keys=["id"])
    table.file(pa.table({"id": [1, 2], "v": pa.array([1, 2])}))
    table.file(pa.table({"id": [1, 2], "v": pa.array([Decimal(2), value], pa.decimal128(38, 20))}))

    finding = only(check_zone(str(zone), deep=True), rule)

    assert ("v", row) == (finding.column, row)


def test_a_file_without_rows_is_no_conflict(zone: ZoneWriter) -> None:
    """Whatever types it has, it holds nothing that could misfit: `apply` goes on."""
    table = zone.table("orders", keys=["id"])
    table.file(pa.table({"id": [1], "v": ["a"]}))
    table.file(pa.table({"id": pa.array([], pa.int64()), "v": pa.array([], pa.date32())}))

    assert ["schema-drift"] == [one.rule for one in check_zone(str(zone)).findings]


def test_a_table_is_as_wide_as_apply_takes(zone: ZoneWriter) -> None:
    """A file with more columns is refused by both."""
    wide = {f"c{place}": pa.array([], pa.int64()) for place in range(30_001)}
    zone.table("orders", keys=["c1"]).file(pa.table(wide))

    finding = only(check_zone(str(zone)), "column-name")

    assert "more than 30,000 columns" == finding.found


@pytest.mark.parametrize(
    "value, rule", [(2**53, "schema-drift"), (2**53 + 1, "schema-conflict")], ids=["even", "odd"]
)
def test_a_deep_review_sees_what_no_double_holds(zone: ZoneWriter, value: int, rule: str) -> None:
    """Though a double is the type for both: `apply` rounds nothing."""
    table = zone.table("orders", keys=["id"])
    table.file(pa.table({"id": [1], "v": [0.5]}))
    table.file(pa.table({"id": [2], "v": [value]}))

    assert "v" == only(check_zone(str(zone), deep=True), rule).column


def test_a_column_without_type_takes_the_type_of_the_next_file(zone: ZoneWriter) -> None:
    """All-null columns are no drift (Q10, Q11)."""
    table = zone.table("orders", keys=["id"])
    table.file(pa.table({"id": [1], "v": pa.nulls(1)}))
    table.file(pa.table({"id": [1], "v": ["a"]}))
    table.file(pa.table({"id": [1], "v": pa.nulls(1)}))
    table.file(pa.table({"id": [1], "v": [1]}))

    rules = [one.rule for one in check_zone(str(zone)).findings]

    assert ["schema-conflict", "column-untyped"] == rules


# Amounts


def test_a_warning_of_many_files_is_listed_once(zone: ZoneWriter) -> None:
    """With the number of the others."""
    table = orders(zone)
    for _ in range(5):
        table.file(ROWS, markers=[1, 1], marker_type=pa.string())

    finding = only(check_zone(str(zone)), "marker-type")

    assert (name(2), 4) == (finding.file, finding.more)
    assert "and 4 more files" in str(finding)


def test_errors_are_listed_up_to_a_hundred() -> None:
    """The rest is counted; other rules are not affected."""
    found = Findings("orders")
    for number in range(1, 131):
        found.add("zero-byte", "0 bytes", file=name(number))
    found.add("gap", "a hole")

    listed = found.all()

    assert ERRORS_LISTED + 1 == len(listed)
    assert 30 == sum(one.more for one in listed)
    assert 30 == listed[ERRORS_LISTED - 1].more


def test_the_worst_comes_first(nasty: ZoneWriter) -> None:
    """In each table, errors stand before warnings, warnings before notes."""
    report = check_zone(str(nasty), deep=True)
    order = ["error", "warning", "note"]

    for table in {one.table for one in report.findings}:
        ranks = [order.index(one.severity) for one in report.findings if one.table == table]
        assert sorted(ranks) == ranks


def test_each_folder_is_listed_once(zone: ZoneWriter, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many files it holds; and its files are opened once."""
    listed: list[str] = []
    opened: list[str] = []

    class Counting(LocalStore):
        def list_folder(self, folder: str) -> Folder | None:
            listed.append(folder)
            return super().list_folder(folder)

        def open_file(self, path: str) -> BinaryIO:
            opened.append(path)
            return super().open_file(path)

    table = orders(zone)
    for _ in range(9):
        table.file(ROWS, markers=[1, 1])
    monkeypatch.setattr(checked_zone, "open_store", lambda _: Counting(zone.root))

    assert check_zone(str(zone)).ok
    assert 1 == listed.count("dbo.schema/orders")
    assert 10 == len(opened) == len(set(opened))


# What is asked for


def test_tables_can_be_chosen(nasty: ZoneWriter) -> None:
    """By name or glob; the zone as a whole is then left out."""
    assert ["dbo/orders"] == [one.table for one in check_zone(str(nasty), tables="dbo/*").tables]
    report = check_zone(str(nasty), tables=["fine", "bad"])

    assert ["bad", "fine"] == [one.table for one in report.tables]
    assert {"bad"} == {one.table for one in report.findings}


def test_a_table_that_is_not_there_is_an_error(nasty: ZoneWriter) -> None:
    """A typing error must not look like a clean table."""
    with pytest.raises(LandingZoneError, match="no table matches"):
        check_zone(str(nasty), tables=["fine", "oders"])


def test_a_zone_that_is_not_there_is_an_error(zone: ZoneWriter) -> None:
    """Nor may a mistyped path."""
    with pytest.raises(LandingZoneError, match="there is no landing zone"):
        check_zone(f"{zone}x")


@pytest.mark.parametrize(
    "break_it, ok, strictly_ok",
    [
        (lambda _: None, True, True),
        (lambda table: (table.folder / "readme.txt").write_text(""), True, True),
        (lambda table: table.file(ROWS, markers=[1, 1], marker_name="__ROWMARKER__"), True, False),
        (lambda table: table.zero_bytes(), False, False),
    ],
    ids=["clean", "note", "warning", "error"],
)
def test_strict_counts_warnings(
    zone: ZoneWriter, break_it: object, ok: bool, strictly_ok: bool
) -> None:
    """Notes never count, errors always do."""
    break_it(orders(zone))  # type: ignore[operator]

    assert ok is check_zone(str(zone)).ok
    assert strictly_ok is check_zone(str(zone), strict=True).ok


def test_only_a_deep_review_sees_damaged_pages_of_other_columns(zone: ZoneWriter) -> None:
    """Footers, markers and keys are looked at always."""
    from zones import damage_pages

    damage_pages(orders(zone).file(ROWS, markers=[1, 1]), column=1)

    assert check_zone(str(zone)).ok
    assert "damaged" == only(check_zone(str(zone), deep=True), "damaged").rule


def test_an_observer_is_told_how_far_it_is(zone: ZoneWriter) -> None:
    """As of a run: how many files wait when that is known, and a step for each."""
    table = orders(zone)
    table.zero_bytes()
    events: list[Event] = []

    check_zone(str(zone), observe=events.append)

    assert [("read", "before", 2), ("done", "after", 0), ("done", "after", 0)] == [
        (event.step, event.when, event.waits) for event in events
    ]
    assert 2 == sum(event.files for event in events if event.step == "done")


# The report


def test_the_report_prints_tables_and_findings(nasty: ZoneWriter) -> None:
    """A row a table, a line a finding."""
    report = check_zone(str(nasty))
    text = str(report)

    assert text.startswith("table ")
    for finding in report.findings:
        assert str(finding) in text
    assert f"error [gap] dbo/orders: {3:020d}: " in text
    assert "<table>" in report._repr_html_()


def test_a_clean_report_says_so(zone: ZoneWriter) -> None:
    """An empty list would leave doubts."""
    orders(zone)

    assert str(check_zone(str(zone))).endswith("Nothing was found.")


def test_names_of_others_are_printable(zone: ZoneWriter) -> None:
    """Whatever a publisher names things, the report is text that any terminal takes."""
    os.mkdir(os.fsencode(zone.root) + b"/bad\xff\x1b[2J")  # noqa: PTH102  # bytes, not text
    table = orders(zone)
    with open(os.fsencode(table.folder) + b"/x\xff\n.parquet", "wb"):  # noqa: PTH123
        pass
    table.file(pa.table({"id": [1], "v": ["a"], "\x1b[2J": [1]}))
    report = check_zone(str(zone))

    json.dumps(report.to_dict(), ensure_ascii=False).encode()
    assert all(line.isprintable() for line in str(report).splitlines())
    assert {"table-name", "wrong-name", "column-name"} == {
        one.rule for one in report.findings if one.severity == "error"
    }


def test_no_value_of_the_data_is_told(zone: ZoneWriter) -> None:
    """Keys and texts stay where they are, in whatever way a file is broken."""
    told = "nobody else may know"
    table = zone.table("orders", keys=["id"])
    table.file([{"id": told, "v": told}])
    table.file([{"id": None, "v": told}, {"id": told, "v": told}], markers=[2, 7])
    table.damaged([{"id": told, "v": told}])
    table.garbage(data=told.encode() * 100)
    csv = zone.table("csv", keys=["id"], metadata={"FileFormat": "csv"})
    for number, content in enumerate(
        (f"id,v\r\n{told}\r\n", f"id,v\r\n{told},\xff", f'id,v\r\n{told},"{told}\r\n'), 1
    ):
        (csv.folder / f"{number:020d}.csv").write_bytes(content.encode("latin-1"))
    report = check_zone(str(zone), deep=True)

    assert len(report.findings) > 6
    assert told not in str(report)
    assert told not in json.dumps(report.to_dict())
