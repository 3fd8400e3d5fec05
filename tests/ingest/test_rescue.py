"""What fits no column is kept as JSON text beside its row, whatever its type."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import mirrorlib
from mirrorlib.delta.columns import Column
from mirrorlib.errors import SchemaError
from mirrorlib.ingest.files.source import Source
from mirrorlib.ingest.rows.read import Landed, read_landed
from mirrorlib.ingest.rows.rescue import RESCUED_COLUMN, fitted_rows, needs_rescue
from mirrorlib.journal.entries import Policies
from mirrorlib.landing.plain import PLAIN_DIALECT
from mirrorlib.store import LocalStore

POLICIES = Policies(
    keys=(),
    upsert_default=False,
    insert_policy="append",
    evolution="add",
    ntz="utc",
    dialect=PLAIN_DIALECT,
    detection="last_update_time",
    plain="rescue",
)
COLUMNS = (Column("id", pa.int64()), Column("V", pa.int64()), RESCUED_COLUMN)


def opened(root: Path, rows: pa.Table, *, decode: bool = True) -> Landed:
    """Write a Parquet file and open it."""
    (root / "t").mkdir()
    pq.write_table(rows, root / "t" / "a.parquet")
    source = Source(zone=LocalStore(root), table="t", folder="t", policies=POLICIES)
    file = source.zone.stat("t/a.parquet")
    assert file is not None
    return read_landed(source, file, decode=decode)


@pytest.mark.parametrize(
    "value, kind, told",
    [
        (1, pa.int8(), 1),
        (0.5, pa.float64(), 0.5),
        (float("nan"), pa.float64(), "nan"),
        (True, pa.bool_(), True),
        ("é", pa.string(), "é"),
        (b"\xff", pa.binary(), "/w=="),
        (Decimal("1.50"), pa.decimal128(9, 2), "1.50"),
        (date(2026, 1, 2), pa.date32(), "2026-01-02"),
        (datetime(2026, 1, 2, 3, tzinfo=UTC), pa.timestamp("us", "UTC"), "2026-01-02 03:00:00.000000Z"),
        ([date(2026, 1, 2)], pa.list_(pa.date32()), None),
    ],
)  # fmt: skip
def test_a_value_of_any_type_is_told(
    tmp_path: Path, value: object, kind: pa.DataType, told: object
) -> None:
    """Numbers and booleans as they are, bytes as base64, others as text; NULL is nothing to be rescued."""
    rows = pa.table({"id": [1, 2], "new": pa.array([value, None], kind)})
    if told is None:
        with pytest.raises(mirrorlib.MirrorError, match="no place in the open mirroring format"):
            opened(tmp_path, rows)
        return
    landed = opened(tmp_path, rows)

    found = fitted_rows(landed, COLUMNS).to_pylist()

    path = str(tmp_path / "t" / "a.parquet")
    assert {"new": told, "_file_path": path} == json.loads(found[0]["_rescued_data"])
    assert {"id": 2, "V": None, "_rescued_data": None} == found[1]


def test_text_that_json_cannot_hold_is_told_by_file_and_column(tmp_path: Path) -> None:
    """Parquet may call any bytes text, and Arrow does not look."""
    size, text = pa.py_buffer(b"\0\0\0\0\2\0\0\0"), pa.py_buffer(b"\xe9a")
    rows = pa.table({"id": [1], "new": pa.StringArray.from_buffers(1, size, text)})
    landed = opened(tmp_path, rows)

    with pytest.raises(SchemaError, match="the text is not UTF-8") as caught:
        fitted_rows(landed, COLUMNS)

    assert ("a.parquet", "new") == (caught.value.file, caught.value.column)


@pytest.mark.parametrize("decode", [True, False])
@pytest.mark.parametrize(
    "values, needed",
    [
        (pa.array([1.0, None]), False),
        (pa.array([1.0, 1.5]), True),
        (pa.array(["1", None]), True),
        (pa.array([None, None], pa.null()), False),
        (pa.array([1, 2], pa.int8()), False),
    ],
)
def test_only_a_file_with_a_misfit_needs_to_be_rescued(
    tmp_path: Path, values: pa.Array, *, needed: bool, decode: bool
) -> None:
    """The others are for Spark's own reader; names have no case."""
    landed = opened(tmp_path, pa.table({"id": [1, 2], "v": values}), decode=decode)

    assert needed == needs_rescue(landed, COLUMNS)
    if decode:
        found = fitted_rows(landed, COLUMNS)
        assert needed == (found.column("_rescued_data").null_count < len(found))
        assert found.schema.types == [column.type for column in COLUMNS]
