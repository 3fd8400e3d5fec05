"""Zones written as they should be have no findings that count, and the review agrees with the reader."""

from __future__ import annotations

import gzip
import io
import json
import tempfile
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import given, settings
from hypothesis import strategies as st

from mirrorlib.errors import MirrorError
from mirrorlib.ingest.files.source import Source
from mirrorlib.ingest.files.table_folder import open_folder, policies_of
from mirrorlib.ingest.options import Options
from mirrorlib.ingest.rows.read import read_landed
from mirrorlib.landing.check.zone import check_zone
from mirrorlib.landing.footer import read_footer
from mirrorlib.names import TableName
from mirrorlib.store import LocalStore
from zones import ZoneWriter

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy

    from mirrorlib.ingest.rows.read import Landed

VALUES: dict[pa.DataType, SearchStrategy[Any]] = {
    pa.bool_(): st.booleans(),
    pa.int16(): st.integers(-(2**15), 2**15 - 1),
    pa.int32(): st.integers(-(2**31), 2**31 - 1),
    pa.int64(): st.integers(-(2**63), 2**63 - 1),
    pa.float64(): st.floats(),
    pa.decimal128(9, 2): st.integers(-(10**9) + 1, 10**9 - 1).map(lambda n: Decimal(n) / 100),
    pa.string(): st.text(max_size=8),
    pa.binary(): st.binary(max_size=8),
    pa.date32(): st.dates(date(1900, 1, 1)),
    pa.timestamp("us", "UTC"): st.datetimes(datetime(1900, 1, 1)).map(
        lambda moment: moment.replace(tzinfo=UTC)
    ),
    pa.timestamp("us"): st.datetimes(datetime(1900, 1, 1)),
}
NAMES = st.text("abcdefgh äß_-.$ ", min_size=1, max_size=6).map(lambda name: f"c{name}d")
KINDS = st.sampled_from(list(VALUES))
MARKERS = st.sampled_from([0, 1, 2, 4])


@st.composite
def tables(draw: st.DrawFn) -> list[tuple[pa.Table, list[int] | None]]:
    """Draw the files of one table: one schema, any rows, an initial load and changes."""
    names = draw(st.lists(NAMES, max_size=4, unique_by=str.casefold))
    schema = pa.schema([("id", pa.int64()), *((name, draw(KINDS)) for name in names)])
    files: list[tuple[pa.Table, list[int] | None]] = []
    for number in range(draw(st.integers(1, 4))):
        count = draw(st.integers(0, 5))
        columns = [pa.array(range(count), pa.int64())]
        columns += [
            pa.array(
                draw(st.lists(st.none() | VALUES[field.type], min_size=count, max_size=count)),
                field.type,
            )
            for field in schema
            if field.name != "id"
        ]
        markers = draw(st.lists(MARKERS, min_size=count, max_size=count)) if number else None
        files.append((pa.Table.from_arrays(columns, schema=schema), markers))
    return files


@given(
    files=tables(),
    marker_type=st.sampled_from([pa.int8(), pa.int32(), pa.int64()]),
    codec=st.sampled_from(["snappy", "gzip", "zstd", "none"]),
    deep=st.booleans(),
)
def test_a_zone_that_is_written_correctly_is_clean(
    files: list[tuple[pa.Table, list[int] | None]],
    marker_type: pa.DataType,
    codec: str,
    deep: bool,
) -> None:
    """Any types, values, markers and codecs: not even a note."""
    with tempfile.TemporaryDirectory() as folder:
        zone = ZoneWriter(Path(folder))
        table = zone.table("orders", keys=["id"], schema="dbo")
        for rows, markers in files:
            table.file(
                rows, markers=markers, marker_type=marker_type, parquet={"compression": codec}
            )

        assert () == check_zone(str(zone), deep=deep, strict=True).findings


ODD_NAMES = st.sampled_from(
    ["v", "V", "id2", "_change_type", "a`b", "_mirror_x", "x\x01", "_metadata"]
)
ODD_KINDS = st.sampled_from(
    [
        *VALUES,
        pa.null(),
        pa.list_(pa.int32()),
        pa.struct([("a", pa.int32())]),
        pa.decimal128(38, 10),
        pa.decimal256(39, 0),
        pa.time64("us"),
        pa.uint64(),
        pa.duration("us"),
        pa.large_string(),
        pa.dictionary(pa.int32(), pa.string()),
        pa.map_(pa.string(), pa.int32()),
    ]
)


@settings(max_examples=2 * settings().max_examples)
@given(columns=st.dictionaries(ODD_NAMES, ODD_KINDS, max_size=4), twice=st.booleans())
def test_the_review_refuses_what_the_reader_refuses(
    columns: dict[str, pa.DataType], twice: bool
) -> None:
    """A file has an error here exactly when `apply` would stop at its footer."""
    markers = ["__rowMarker__", *(["__ROWMARKER__"] if twice else [])]
    fields = [("id", pa.int64()), *columns.items(), *((name, pa.int32()) for name in markers)]
    data = io.BytesIO()
    pq.write_table(pa.schema(fields).empty_table(), data)
    with tempfile.TemporaryDirectory() as folder:
        table = ZoneWriter(Path(folder)).table("orders", keys=["id"])
        table.path(1).write_bytes(data.getvalue())
        report = check_zone(folder)
        store = LocalStore(Path(folder))
        (file,) = (
            one
            for one in store.list_folder("orders").files
            if one.name.endswith(".parquet")  # type: ignore[union-attr]
        )
        refused = False
        try:
            with store.open_file(file.path) as source:
                read_footer(source, file, table="orders", ntz="utc")
        except MirrorError:
            refused = True

        assert refused is not report.ok


def quoted(value: str | None) -> str:
    r"""Write a field as the format's defaults have it: quotes and backslashes behind a backslash, NULL as nothing."""
    if value is None:
        return ""
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


@given(
    rows=st.lists(
        st.tuples(st.text(max_size=8), st.none() | st.text(max_size=8), MARKERS), max_size=8
    ),
    encoding=st.sampled_from(["utf-8", "utf-8-sig", "utf-16"]),
    packed=st.booleans(),
)
def test_text_that_is_written_correctly_is_clean(
    rows: list[tuple[str, str | None, int]], encoding: str, packed: bool
) -> None:
    """Separators, quotes, escapes and line ends in values, in any encoding, compressed or not."""
    lines = ["id,v,__rowMarker__", *(f"{quoted(i)},{quoted(v)},{m}" for i, v, m in rows), ""]
    data = "\r\n".join(lines).encode(encoding)
    columns = [{"Name": name, "DataType": "String"} for name in ("id", "v")]
    metadata = {
        "FileFormat": "CSV",
        "SchemaDefinition": {"Columns": columns},
        "FileFormatTypeProperties": {"Encoding": encoding},
    }
    with tempfile.TemporaryDirectory() as folder:
        table = ZoneWriter(Path(folder)).table("orders", keys=["id"], metadata=metadata)
        path = table.folder / f"{1:020d}.csv"
        path.write_bytes(gzip.compress(data) if packed else data)

        assert () == check_zone(folder, strict=True).findings


COLUMN_TYPES = st.sampled_from(["String", "Int32", "Boolean"])
PROPERTIES = st.fixed_dictionaries(
    {},
    optional={
        "ColumnSeparator": st.sampled_from([",", ";", " ; ", "\\t", "", "'"]),
        "RowSeparator": st.sampled_from(["\n", "\\r\\n", "\r", "x"]),
        "QuoteCharacter": st.sampled_from(['"', "'", "", " ", '\\"', "xx"]),
        "EscapeCharacter": st.sampled_from(["\\", "/", '"', ""]),
        "NullValue": st.sampled_from(["N", "", "1"]),
        "Encoding": st.sampled_from(
            ["UTF-8", "utf-8 with BOM", "shift_jis", "unicode", "1252", "65001", "utf-16le", "hex"]
        ),
        "FirstRowAsHeader": st.sampled_from([True, "TRUE", "", False]),
    },
)
HEADS = st.sampled_from(["a", "a,b", " a , B ", "a,__rowMarker__", "a,b,__rowMarker__"])
ODD_HEADS = st.sampled_from(["b", "a;b", "a,A", "", "a,_metadata", "a,__rowMarker__,__ROWMARKER__"])
FIELDS = st.sampled_from(
    [
        "",
        "1",
        "1",
        "2",
        "4",
        " ",
        '""',
        '"1"',
        "N",
        '5" x',
        "x\\",
        "\r",
        "\n",
        '"1\n,"',
        '"a',
        "3",
        "é",
    ]
)
LINE_ENDS = st.sampled_from(["\n", "\r\n", "\r"])


def rarely(
    draw: st.DrawFn, common: SearchStrategy[Any], odd: SearchStrategy[Any], times: int = 4
) -> Any:
    """Draw what is odd once in so many times: what is all odd is only ever refused."""
    return draw(odd if draw(st.integers(1, times)) == times else common)


@st.composite
def text_tables(draw: st.DrawFn) -> tuple[dict[str, Any], str, bytes]:
    """Draw metadata, a file's place and its content: anything that a publisher could do, right or wrong."""
    names = draw(st.sampled_from(["a", "ab"]))
    columns = [{"Name": name, "DataType": draw(COLUMN_TYPES)} for name in f"{names}r"]
    keys = st.sampled_from([["a"], ["A", "r"], []])
    metadata: dict[str, Any] = {
        "keyColumns": rarely(draw, st.just(["a"]), keys),
        "isUpsertDefaultRowMarker": draw(st.booleans()),
        "isPartitionEnabled": True,
        "FileFormat": draw(st.sampled_from(["CSV", "CSV", None])),
        "FileFormatTypeProperties": rarely(draw, st.just({}), PROPERTIES, 2),
        "SchemaDefinition": {"Columns": draw(st.sampled_from([[], columns]))},
    }
    head, end = rarely(draw, HEADS, ODD_HEADS, 10), draw(LINE_ENDS)
    width = 1 + head.count(",")
    shape = st.lists(FIELDS, min_size=width, max_size=width)
    rows = draw(st.lists(shape, max_size=4))
    text = end.join([head, *(",".join(row) for row in rows)]) + draw(st.sampled_from([end, ""]))
    codec = rarely(draw, st.just("utf-8"), st.sampled_from(["utf-8-sig", "utf-16", "cp1252"]))
    place = rarely(draw, st.sampled_from(["", "r=x/", "r=1/"]), st.just("a`=1/"), 10)
    return metadata, place, text.encode(codec)


@settings(max_examples=4 * settings().max_examples)
@given(text_tables())
def test_text_has_an_error_exactly_when_its_reader_refuses_it(
    table: tuple[dict[str, Any], str, bytes],
) -> None:
    """What `apply` reads a file with is the oracle, NULL keys included."""
    metadata, place, data = table
    with tempfile.TemporaryDirectory() as zone:
        path = Path(zone) / "orders" / place / f"{1:020d}.csv"
        path.parent.mkdir(parents=True)
        path.write_bytes(data)
        (Path(zone) / "orders" / "_metadata.json").write_text(json.dumps(metadata))

        report = check_zone(zone)
        landed = landed_files(Path(zone))

    if landed is None:
        assert not report.ok, str(report)
        return
    assert report.ok, str(report)
    null_keys = any(one.null_keys for one in landed)
    assert null_keys is any(finding.rule == "key-null" for finding in report.findings)


def landed_files(zone: Path) -> list[Landed] | None:
    """Read a table's files as `apply` does; None when it refuses one."""
    store = LocalStore(zone)
    folder = TableName(None, "orders")
    try:
        opened = open_folder(store, folder)
        assert opened.metadata is not None
        policies = policies_of(opened.metadata, opened.dialect, Options())
        source = Source(zone=store, table="orders", folder="orders", policies=policies)
        files = [
            file for partition in opened.listing.partitions.values() for file in partition.values()
        ]
        return [read_landed(source, file, decode=True) for file in files]
    except MirrorError:
        return None


FILE_NAMES = st.builds(
    "{}{}".format,
    st.sampled_from([f"{1:020d}", f"{2:020d}", f"{0:020d}", "a", "3"]),
    st.sampled_from([".csv", ".CSV", ".csv.gz", ".tsv", ".parquet", ".txt", "", ".csv.zst", ".x"]),
)


@settings(max_examples=2 * settings().max_examples)
@given(
    names=st.sets(FILE_NAMES, max_size=4),
    file_format=st.sampled_from([None, "CSV", "DelimitedText", "parquet"]),
    extension=st.sampled_from([None, "csv", ".csv", "*.csv", "tsv", "csv.gz"]),
    by_time=st.booleans(),
)
def test_the_same_files_are_change_files_to_both(
    names: set[str], file_format: str | None, extension: str | None, by_time: bool
) -> None:
    """By number, or by extension; which one the reader leaves alone although it looks like data is an error."""
    with tempfile.TemporaryDirectory() as zone:
        stated = {"FileFormat": file_format, "FileExtension": extension}
        order = {"fileDetectionStrategy": "LastUpdateTimeFileDetection"} if by_time else {}
        table = ZoneWriter(Path(zone)).table("orders", keys=["id"], metadata={**stated, **order})
        for name in names:
            (table.folder / name).write_text("id\r\n1\r\n")
        found = check_zone(zone)
        folder = TableName(None, "orders")
        opened = open_folder(LocalStore(Path(zone)), folder)

    rules = {finding.rule for finding in found.findings}
    assert bool(opened.listing.doubled) is ("duplicate-number" in rules)
    assert opened.metadata is not None
    assert opened.listing.count == found.tables[0].files
