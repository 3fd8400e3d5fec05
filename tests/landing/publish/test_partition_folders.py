"""Rows are split into Hive-style partition folders, each row once, in its order."""

from __future__ import annotations

import datetime as dt
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirrorlib.errors import SchemaError
from mirrorlib.landing.publish.draft import NO_VALUE, split_partitions
from mirrorlib.landing.publish.rows import MARKER_COLUMN, mark_rows
from mirrorlib.landing.publish.writer import LandingZoneWriter


def split(data: pa.Table, *columns: str) -> dict[str, list[dict[str, Any]]]:
    """Split rows without markers."""
    return {
        partition: rows.to_pylist()
        for partition, rows in split_partitions(data, columns, table="t").items()
    }


@pytest.mark.parametrize(
    "kind,value,folder",
    [
        (pa.string(), "eu", "p=eu"),
        (pa.string(), "a/b=c", "p=a%2Fb%3Dc"),
        (pa.string(), "100%", "p=100%25"),
        (pa.string(), "Zürich 1", "p=Zürich 1"),
        (pa.string(), "", f"p={NO_VALUE}"),
        (pa.string(), None, f"p={NO_VALUE}"),
        (pa.string(), "a\nb\0", "p=a%0Ab%00"),
        (pa.int64(), -5, "p=-5"),
        (pa.bool_(), True, "p=true"),
        (pa.date32(), dt.date(2026, 1, 28), "p=2026-01-28"),
    ],
)
def test_folders_are_named_as_hive_names_them(kind: pa.DataType, value: Any, folder: str) -> None:
    """So that every reader finds the value again."""
    assert [folder] == list(split(pa.table({"p": pa.array([value], kind)}), "p"))


@given(st.lists(st.tuples(st.text("ab/=%_. é", max_size=3) | st.none(), st.integers(0, 2))))
def test_every_row_lies_in_its_folder_once(values: list[tuple[str | None, int]]) -> None:
    """In the order in which it was given, with its marker."""
    texts, numbers = [text for text, _ in values], [number for _, number in values]
    data = pa.table(
        {
            "row": pa.array(range(len(values)), pa.int64()),
            "t": pa.array(texts, pa.string()),
            "n": pa.array(numbers, pa.int64()),
        }
    )
    marks = pa.array([row % 2 for row in range(len(values))], pa.int32())

    partitions = split_partitions(data.append_column(MARKER_COLUMN, marks), ("t", "n"), table="t")

    assert sorted(partitions) == list(partitions)
    found = [row for rows in partitions.values() for row in rows["row"].to_pylist()]
    assert sorted(found) == list(range(len(values)))
    for partition, rows in partitions.items():
        places = rows["row"].to_pylist()
        assert sorted(places) == places
        assert [place % 2 for place in places] == rows[MARKER_COLUMN].to_pylist()
        text, _, number = (part.partition("=")[2] for part in (partition + "/").partition("/n="))
        del number
        for row in rows.to_pylist():
            assert partition.endswith(f"/n={row['n']}")
            assert (row["t"] or NO_VALUE) == unquote(text)


def test_without_columns_there_is_one_partition() -> None:
    """The table folder itself, rows or none."""
    data = pa.table({"id": [1]})

    assert {"": [{"id": 1}]} == split(data)
    assert {"": []} == split(data.slice(1))
    assert {} == split(data.slice(1), "id")


@pytest.mark.parametrize("kind", [pa.float64(), pa.timestamp("us"), pa.binary()])
def test_values_without_a_plain_text_name_no_folder(kind: pa.DataType) -> None:
    """1.0 or 1? Refused rather than guessed."""
    with pytest.raises(SchemaError, match="cannot name a partition folder"):
        split(pa.table({"p": pa.nulls(1, kind)}), "p")


def test_a_value_longer_than_a_name_is_refused() -> None:
    """What every file system takes is 255 bytes."""
    with pytest.raises(SchemaError, match="too long"):
        split(pa.table({"p": ["x" * 254]}), "p")


def test_a_partition_column_is_there() -> None:
    """By its name as the data spells it."""
    with pytest.raises(SchemaError, match="no such column"):
        split(pa.table({"p": [1]}), "P")


@pytest.mark.parametrize("name", ["_day", ".day"])
def test_folders_that_readers_ignore_are_refused(name: str) -> None:
    """`_day=1` would be no data."""
    with pytest.raises(SchemaError, match="readers ignore"):
        LandingZoneWriter("anywhere").table("t", partition_by=("a", name))


def test_a_marker_goes_with_its_row() -> None:
    """Even when all are alike."""
    rows = mark_rows(pa.table({"p": [1, 2]}), 4)

    parts = split_partitions(rows, ("p",), table="t")
    assert [[4], [4]] == [part[MARKER_COLUMN].to_pylist() for part in parts.values()]
