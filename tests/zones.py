"""Write landing zones as publishers in the wild do, whole and broken files alike.

In: rows as Python values or an Arrow table. Out: files in a local folder. Uses pyarrow only, nothing of the package.

    zone = ZoneWriter(tmp_path / "zone")
    orders = zone.table("orders", keys=["id"], schema="dbo")
    orders.file([{"id": 1, "v": "a"}])
    orders.file([{"id": 1, "v": "b"}], markers=[1], marker_at="first", marker_type=pa.string())
"""

from __future__ import annotations

import json
import os
import random
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any, Literal, TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq

MARKER = "__rowMarker__"
_LONG_AGO = 1_700_000_000  # seconds since 1970
Place = Literal["first", "middle", "last"] | int
Rows: TypeAlias = pa.Table | Sequence[Mapping[str, object]]


@dataclass(frozen=True, slots=True)
class ZoneWriter:
    """A landing zone in a local folder, made when it is first named."""

    root: Path

    def __post_init__(self) -> None:
        """Make the folder."""
        self.root.mkdir(parents=True, exist_ok=True)

    def __str__(self) -> str:
        """Give the path, as `apply` takes it."""
        return str(self.root)

    def table(
        self,
        name: str,
        *,
        keys: Sequence[str] | None = None,
        schema: str | None = None,
        metadata: Mapping[str, object] | str | bytes | None = None,
        with_metadata: bool = True,
        by_time: bool = False,
    ) -> TableWriter:
        """Make a table folder.

        Args:
            name: The folder's name.
            keys: `keyColumns`; None leaves the property out.
            schema: The name of the schema folder, without `.schema`.
            metadata: More properties, or the whole text of `_metadata.json`.
            with_metadata: False for a folder without `_metadata.json`.
            by_time: its files count in the order in which they were written.

        """
        folder = self.root / f"{schema}.schema" / name if schema is not None else self.root / name
        folder.mkdir(parents=True, exist_ok=True)
        shown = name if schema is None else f"{schema}/{name}"
        table = TableWriter(folder=folder, name=shown, by_time=by_time)
        if with_metadata:
            table.metadata(metadata, keys=keys)
        return table


@dataclass(slots=True)
class Growing:
    """A file that is still being uploaded to its final name."""

    path: Path
    rest: bytes

    def finish(self) -> Path:
        """Write what is missing."""
        with self.path.open("ab") as file:
            file.write(self.rest)
        self.rest = b""
        return self.path


@dataclass(slots=True)
class TableWriter:
    """One table folder; numbers its files by itself unless told otherwise.

    Attributes:
        folder: where it is.
        name: as reports name it, "dbo/orders".
        last: the number that was given to a file last.
        by_time: files have names without a number in them, and a time of writing that is one.

    """

    folder: Path
    name: str
    last: int = field(default=0)
    by_time: bool = False

    def metadata(
        self,
        metadata: Mapping[str, object] | str | bytes | None = None,
        *,
        keys: Sequence[str] | None = None,
    ) -> Path:
        """Write `_metadata.json`: *keys* and more properties, or a text as it is."""
        path = self.folder / "_metadata.json"
        if isinstance(metadata, bytes):
            path.write_bytes(metadata)
        elif isinstance(metadata, str):
            path.write_text(metadata, encoding="utf-8")
        else:
            properties: dict[str, object] = {} if keys is None else {"keyColumns": list(keys)}
            if self.by_time:
                properties["fileDetectionStrategy"] = "LastUpdateTimeFileDetection"
            path.write_text(json.dumps({**properties, **(metadata or {})}), encoding="utf-8")
        return path

    def path(self, number: int, *, partition: str = "") -> Path:
        """Return the path of a number, whether or not there is a file."""
        name = random.Random(number).randbytes(8).hex() if self.by_time else f"{number:020d}"
        return self.folder / partition / f"{name}.parquet"

    def file(  # each is a liberty that publishers take
        self,
        rows: Rows = (),
        markers: Sequence[int | None] | None = None,
        number: int | None = None,
        *,
        columns: pa.Schema | None = None,
        marker_name: str = MARKER,
        marker_type: pa.DataType | None = None,
        marker_at: Place = "last",
        marker_required: bool = False,
        partition: str = "",
        name: str | None = None,
        parquet: Mapping[str, Any] | None = None,
    ) -> Path:
        """Publish a file: write it under a temporary name, then rename it.

        Args:
            rows: Rows as mappings, or a table as it is.
            markers: One a row; None for a file without marker column.
            number: Its sequence number; the next one by default.
            columns: Names and types, when pyarrow should not infer them.
            marker_name: In any case.
            marker_type: int32 by default; any integer, string, decimal or float type.
            marker_at: Where the marker column stands among the others.
            marker_required: The marker is written as a REQUIRED field.
            partition: A folder inside the table folder.
            name: A whole file name instead of a number.
            parquet: More arguments of `pyarrow.parquet.write_table`.

        """
        data = _data(rows, columns)
        if markers is not None:
            marker = marker_array(markers, marker_type or pa.int32())
            at = pa.field(marker_name, marker.type, nullable=not marker_required)
            data = data.add_column(_place(marker_at, data.num_columns), at, marker)
        path = self._next(number, partition, name)
        draft = path.with_name(f"_{path.name}.temp")
        pq.write_table(data, draft, **(parquet or {}))
        if self.by_time:
            write_at(draft, self.last if number is None else number)
        return draft.replace(path)

    def zero_bytes(self, number: int | None = None) -> Path:
        """Publish a file without a byte."""
        path = self._next(number)
        path.write_bytes(b"")
        return path

    def garbage(
        self, number: int | None = None, data: bytes = b"this is not Parquet, not even a little bit"
    ) -> Path:
        """Publish a file that is no Parquet."""
        path = self._next(number)
        path.write_bytes(data)
        return path

    def truncated(
        self, rows: Rows, markers: Sequence[int | None] | None = None, number: int | None = None
    ) -> Path:
        """Publish the first half of a file: the footer is missing."""
        return self.growing(rows, markers, number).path

    def growing(
        self, rows: Rows, markers: Sequence[int | None] | None = None, number: int | None = None
    ) -> Growing:
        """Begin a slow upload to the final name; `finish` ends it."""
        path = self.file(rows, markers, number)
        whole = path.read_bytes()
        path.write_bytes(whole[: len(whole) // 2])
        return Growing(path=path, rest=whole[len(whole) // 2 :])

    def damaged(
        self, rows: Rows, markers: Sequence[int | None] | None = None, number: int | None = None
    ) -> Path:
        """Publish a file whose footer is good and whose pages are not: only decoding shows it."""
        path = self.file(rows, markers, number)
        damage_pages(path)
        return path

    def replace(self, number: int, rows: Rows, markers: Sequence[int | None] | None = None) -> Path:
        """Publish other content under a number that is taken, as a repair or a mistake."""
        last = self.last
        path = self.file(rows, markers, number)
        self.last = last
        return path

    def drop(self) -> None:
        """Delete the table folder with everything in it; numbers begin at 1 again."""
        shutil.rmtree(self.folder)
        self.last = 0

    def make(self) -> None:
        """Make the folder again after `drop`."""
        self.folder.mkdir(parents=True)

    def _next(
        self, number: int | None = None, partition: str = "", name: str | None = None
    ) -> Path:
        if name is None:
            self.last = self.last + 1 if number is None else number
        path = (
            self.folder / partition / name
            if name is not None
            else self.path(self.last, partition=partition)
        )
        path.parent.mkdir(parents=True, exist_ok=True)
        return path


def write_at(path: Path, second: float) -> Path:
    """Let a file be written at a second of the past."""
    os.utime(path, (_LONG_AGO + second, _LONG_AGO + second))
    return path


def marker_array(markers: Sequence[int | None], kind: pa.DataType) -> pa.Array:
    """Write markers as a publisher's type would hold them: 1, "1", 1.0, Decimal("1")."""
    if pa.types.is_dictionary(kind):
        return marker_array(markers, kind.value_type).dictionary_encode()
    if str(kind) in {"string", "large_string", "string_view"}:  # the last is not in every pyarrow
        return pa.array([None if marker is None else str(marker) for marker in markers], kind)
    if pa.types.is_decimal(kind):
        return pa.array([None if marker is None else Decimal(marker) for marker in markers], kind)
    if pa.types.is_float16(kind):
        return pa.array(markers, pa.float32()).cast(kind)
    return pa.array(markers, kind)


def damage_pages(path: Path, column: int = 1, group: int = 0) -> None:
    """Overwrite the head of a column's first page, by default not a key's; the footer stays as it is."""
    with pq.ParquetFile(path) as parquet:
        rows = parquet.metadata.row_group(group)
        chunk = rows.column(min(column, rows.num_columns - 1))
        start = chunk.data_page_offset
        if chunk.has_dictionary_page:
            start = min(start, chunk.dictionary_page_offset)
        length = min(16, chunk.total_compressed_size)
    data = bytearray(path.read_bytes())
    data[start : start + length] = b"\xff" * length
    path.write_bytes(bytes(data))


def _data(rows: Rows, columns: pa.Schema | None) -> pa.Table:
    if isinstance(rows, pa.Table):
        return rows
    if columns is not None:
        return pa.Table.from_pylist([dict(row) for row in rows], schema=columns)
    names = list(dict.fromkeys(name for row in rows for name in row))
    return pa.table({name: [row.get(name) for row in rows] for name in names})


def _place(place: Place, width: int) -> int:
    if isinstance(place, int):
        return place
    return {"first": 0, "middle": width // 2, "last": width}[place]
