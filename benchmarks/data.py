"""Make the benchmarks' input: the same rows for everybody, from a fixed seed, a file at a time."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import csv

COLUMNS = [
    "id",
    "customer",
    "amount",
    "quantity",
    "price",
    "booked_at",
    "booked_on",
    "status",
    "note",
    "flag",
]
MARKER = "__rowMarker__"
_TEXT_TYPES = {  # as text declares them: it has no decimals
    "id": "Int64",
    "customer": "Int64",
    "amount": "Double",
    "quantity": "Int32",
    "price": "Double",
    "booked_at": "DateTime",
    "booked_on": "IDate",
    "status": "String",
    "note": "String",
    "flag": "Boolean",
}
_STATUS = pa.array(["new", "paid", "shipped", "returned"])


def make_rows(ids: pa.Array, salt: int) -> pa.Table:
    """Make ten columns of about 50 bytes a row; *salt* makes an update differ from what it updates."""
    mixed = pc.bit_wise_and(
        pc.add(pc.multiply(ids, 2654435761), salt * 40503 + 12345), (1 << 40) - 1
    )
    small = pc.bit_wise_and(mixed, 0xFFFF)
    return pa.table(
        {
            "id": ids,
            "customer": pc.bit_wise_and(pc.shift_right(mixed, 7), 0xFFFFF),
            "amount": pc.divide(small.cast(pa.float64()), 7.0),
            "quantity": pc.bit_wise_and(small, 63).cast(pa.int32()),
            "price": pc.bit_wise_and(mixed, 0x7FFFFF)
            .cast(pa.decimal128(19, 0))
            .cast(pa.decimal128(12, 2), safe=False),
            "booked_at": pc.multiply(pc.bit_wise_and(mixed, (1 << 31) - 1), 1_000_000).cast(
                pa.timestamp("us", "UTC")
            ),
            "booked_on": pc.bit_wise_and(small, 0x3FFF).cast(pa.int32()).cast(pa.date32()),
            "status": _STATUS.take(pc.bit_wise_and(small, 3)),
            "note": pc.binary_join_element_wise("note", mixed.cast(pa.string()), "-"),
            "flag": pc.equal(pc.bit_wise_and(small, 1), 1),
        }
    )


def write_load(folder: Path, rows: int, files: int) -> list[Path]:
    """Write the initial load as numbered files without markers, and the table's metadata."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "_metadata.json").write_text(json.dumps({"keyColumns": ["id"]}))
    each = rows // files
    written = []
    for number in range(files):
        ids = pa.array(range(number * each, (number + 1) * each), pa.int64())
        written.append(write_file(folder, number + 1, make_rows(ids, 0)))
    return written


def make_changes(rows: int, count: int, *, newest: float, salt: int) -> pa.Table:
    """Change *count* distinct keys out of the newest share of *rows*: 70 % updates, 15 % inserts, 15 % deletes."""
    chosen = random.Random(salt)
    inserts = count * 15 // 100
    old = chosen.sample(range(int(rows * (1 - newest)), rows), count - inserts)
    new = range(rows + salt * 10_000_000, rows + salt * 10_000_000 + inserts)
    updates = count * 70 // 100
    ids = old + list(new)
    markers = [1] * updates + [2] * (len(old) - updates) + [4] * inserts
    order = list(range(len(ids)))
    chosen.shuffle(order)
    table = make_rows(pa.array(ids, pa.int64()), salt).append_column(
        MARKER, pa.array(markers, pa.int32())
    )
    return table.take(pa.array(order, pa.int64()))


def write_file(folder: Path, number: int, rows: pa.Table) -> Path:
    """Write one change file."""
    path = folder / f"{number:020d}.parquet"
    pq.write_table(rows, path)
    return path


def mark(rows: pa.Table, markers: list[int]) -> pa.Table:
    """Give rows their markers: those of the list, again and again."""
    times = -(-len(rows) // len(markers))
    return rows.append_column(MARKER, pa.array((markers * times)[: len(rows)], pa.int32()))


def replay(load: pa.Table, changes: Sequence[pa.Table]) -> pa.Table:
    """Say what becomes of a table by changes in their order: of each key, its last row counts."""
    rows = pa.concat_tables([mark(load, [4]), *changes])
    places = pa.array(range(len(rows)), pa.int64())
    last = rows.select(["id"]).append_column("place", places).group_by("id")
    kept = rows.take(last.aggregate([("place", "max")]).column("place_max"))
    return kept.filter(pc.not_equal(kept.column(MARKER), 2)).drop_columns([MARKER])


def declare_text(folder: Path) -> None:
    """Write the metadata of a table of comma-separated text."""
    columns = [{"Name": name, "DataType": kind} for name, kind in _TEXT_TYPES.items()]
    metadata = {
        "keyColumns": ["id"],
        "FileFormat": "CSV",
        "SchemaDefinition": {"Columns": columns},
        "FileFormatTypeProperties": {"RowSeparator": "\n", "EscapeCharacter": ""},
    }
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "_metadata.json").write_text(json.dumps(metadata))


def write_text(folder: Path, number: int, rows: pa.Table) -> Path:
    """Write one change file as text."""
    path = folder / f"{number:020d}.csv"
    csv.write_csv(rows, path)
    return path
