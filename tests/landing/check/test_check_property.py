"""Zones written as they should be have no findings that count, and the review agrees with the reader."""

from __future__ import annotations

import gzip
import io
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
from mirrorlib.landing.check.zone import check_zone
from mirrorlib.landing.footer import read_footer
from mirrorlib.store import LocalStore
from zones import ZoneWriter

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy

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


@settings(max_examples=60, deadline=None)
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


@settings(max_examples=150, deadline=None)
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


@settings(max_examples=60, deadline=None)
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
