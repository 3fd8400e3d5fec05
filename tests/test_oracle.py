"""The oracle and the zone writer are right by hand, before they judge anything."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from datetime import UTC, date, datetime, time
from decimal import Decimal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from logs import Log, LogFile, make_logs
from oracle import (
    ChangeFile,
    FeedError,
    Replayed,
    assert_same_rows,
    canonical,
    multiset,
    replay,
    replay_feed,
    state_at,
)
from zones import ZoneWriter

Rows = Sequence[tuple[object, ...]]


def replayed(*files: Rows, **options: object) -> Replayed:
    """Replay files of (marker, id, v), or of (id, v) without markers."""
    made = []
    for rows in files:
        marked = any(len(row) == 3 for row in rows)
        made.append(
            ChangeFile(
                columns=("id", "v"),
                rows=tuple({"id": row[-2], "v": row[-1]} for row in rows),
                markers=tuple(row[0] for row in rows) if marked else None,  # type: ignore[misc]
            )
        )
    return replay(made, keys=["id"], **options)  # type: ignore[arg-type]


def rows_of(table: Replayed) -> list[tuple[object, object]]:
    """Give a replayed table as (id, v), in order."""
    return [(row["id"], row["v"]) for row in table.rows]


def test_insert_does_not_look_for_the_key() -> None:
    """Marker 0 adds a row even where the key is there."""
    assert [(1, "a"), (1, "a"), (1, "b")] == rows_of(
        replayed([(1, "a")], [(0, 1, "a"), (0, 1, "b")])
    )


@pytest.mark.parametrize("marker", [1, 4])
def test_update_and_upsert_change_every_row_of_the_key_or_insert(marker: int) -> None:
    """Markers 1 and 4 are the same: all duplicates change, an absent key is inserted."""
    table = replayed([(1, "a"), (2, "b"), (1, "c")], [(marker, 1, "x"), (marker, 3, "y")])

    assert [(1, "x"), (2, "b"), (1, "x"), (3, "y")] == rows_of(table)


def test_delete_removes_every_row_of_the_key_and_nothing_else() -> None:
    """Marker 2 takes all duplicates; deleting what is absent does nothing."""
    assert [(2, "b")] == rows_of(
        replayed([(1, "a"), (2, "b"), (1, "c")], [(2, 1, None), (2, 9, None)])
    )


def test_rows_count_in_file_order_then_row_order() -> None:
    """Delete, insert and update of one key in one file are one after the other."""
    table = replayed(
        [(4, 1, "a"), (2, 1, None), (0, 1, "b"), (0, 1, "c"), (1, 1, "d")], [(0, 1, "e")]
    )

    assert [(1, "d"), (1, "d"), (1, "e")] == rows_of(table)


def test_insert_is_an_upsert_when_the_policy_says_so() -> None:
    """Under insert_policy upsert, marker 0 and files without marker keep one row a key."""
    assert [(1, "b")] == rows_of(replayed([(1, "a")], [(0, 1, "b")], insert_policy="upsert"))


def test_default_upsert_holds_for_files_without_marker_and_for_null_markers() -> None:
    """IsUpsertDefaultRowMarker fills in for every marker that is not there."""
    table = replayed([(1, "a")], [(1, "b")], [(None, 1, "c"), (0, 1, "d")], upsert_default=True)

    assert [(1, "c"), (1, "d")] == rows_of(table)


def test_keys_compare_null_safe_with_one_zero_and_one_nan() -> None:
    """NULL is a key; 0.0 and -0.0 are one, and so are all NaNs."""
    table = replayed(
        [(None, "a"), (0.0, "b"), (math.nan, "c")],
        [(1, None, "x"), (1, -0.0, "y"), (1, float("-nan"), "z")],
    )

    assert ["x", "y", "z"] == [row["v"] for row in table.rows]


def test_columns_are_the_union_in_order_of_first_appearance() -> None:
    """A column that a file lacks is NULL in its rows, updates included; case does not make a column."""
    first = ChangeFile(columns=("id", "v"), rows=({"id": 1, "v": "a"},), markers=None)
    second = ChangeFile(columns=("w", "ID"), rows=({"w": 5, "ID": 1},), markers=(1,))
    table = replay([first, second], keys=["Id"])

    assert ["id", "v", "w"] == table.columns
    assert multiset([{"id": 1, "v": None, "w": 5}]) == table.multiset


@pytest.mark.parametrize(
    "one,other",
    [
        (5, Decimal("5.00")),
        (5, 5.0),
        (0.0, -0.0),
        (math.nan, float("-nan")),
        (datetime(2026, 1, 1), datetime(2026, 1, 1, tzinfo=UTC)),
        (time(14, 30), "14:30:00.000000"),
        (b"a", bytearray(b"a")),
    ],
)
def test_values_are_equal_across_types_where_a_table_makes_them_so(
    one: object, other: object
) -> None:
    """The oracle's forms of one stored value compare equal."""
    assert canonical(one) == canonical(other)


@pytest.mark.parametrize(
    "one,other",
    [(True, 1), (b"a", "a"), ("1", 1), (date(2026, 1, 1), datetime(2026, 1, 1)), (0, None)],
)
def test_values_of_different_kinds_differ(one: object, other: object) -> None:
    """A flag is no number, bytes are no text, a day is no moment, NULL is nothing."""
    assert canonical(one) != canonical(other)


def feed_row(version: int, kind: str, **data: object) -> dict[str, object]:
    """Write a row as the change feed has it."""
    return {**data, "_change_type": kind, "_commit_version": version, "_commit_timestamp": None}


def test_feed_replays_version_by_version() -> None:
    """Each version's rows are what the feed has done up to it, whatever the order within a version."""
    states = replay_feed(
        [
            feed_row(3, "update_postimage", id=1, v="b"),
            feed_row(1, "insert", id=1, v="a"),
            feed_row(1, "insert", id=1, v="a"),
            feed_row(3, "update_preimage", id=1, v="a"),
            feed_row(4, "delete", id=1, v="b"),
        ]
    )

    assert multiset([{"id": 1, "v": "a"}] * 2) == state_at(states, 2)
    assert multiset([{"id": 1, "v": "a"}, {"id": 1, "v": "b"}]) == states[3]
    assert multiset([{"id": 1, "v": "a"}]) == states[4]
    assert multiset([]) == state_at(states, 0)


@pytest.mark.parametrize(
    "rows",
    [
        [feed_row(1, "delete", id=1)],
        [feed_row(1, "insert", id=1), feed_row(1, "delete", id=1)],
        [feed_row(1, "insert", id=1), feed_row(2, "update_preimage", id=1)],
        [feed_row(1, "upsert", id=1)],
    ],
)
def test_feed_that_cannot_be_replayed_is_refused(rows: list[dict[str, object]]) -> None:
    """Removing what the version before does not have, half an update, an unknown change: each is an error."""
    with pytest.raises(FeedError):
        replay_feed(rows)


def test_difference_names_missing_and_unexpected_rows() -> None:
    """Rows that differ in number only are told too."""
    with pytest.raises(
        AssertionError, match=r"(?s)missing:\n  2 x .*'id': 1.*unexpected:\n  1 x .*'id': 2"
    ):
        assert_same_rows(multiset([{"id": 1}] * 3), multiset([{"id": 1}, {"id": 2}]))


@pytest.mark.parametrize("place,at", [("first", 0), ("middle", 1), ("last", 2)])
@pytest.mark.parametrize(
    "kind,stored",
    [(pa.int8(), 4), (pa.string(), "4"), (pa.decimal128(3, 0), Decimal(4)), (pa.float64(), 4.0)],
)
def test_zone_writer_puts_the_marker_anywhere_in_any_type(
    zone: ZoneWriter, place: str, at: int, kind: pa.DataType, stored: object
) -> None:
    """The marker stands where it is asked for, in the type and case that is asked for."""
    path = zone.table("t", keys=["id"]).file(
        [{"id": 1, "v": "a"}],
        [4],
        marker_name="__ROWMARKER__",
        marker_type=kind,
        marker_at=place,  # type: ignore[arg-type]
    )
    table = pq.read_table(path)

    assert at == table.column_names.index("__ROWMARKER__")
    assert kind == table.schema.field(at).type
    assert [stored] == table.column(at).to_pylist()


def test_zone_writer_lays_out_folders_numbers_and_metadata(zone: ZoneWriter) -> None:
    """Files are numbered from 1 with 20 digits, nothing temporary stays, keys are in the metadata."""
    table = zone.table(
        "orders", schema="dbo", keys=["id"], metadata={"isUpsertDefaultRowMarker": True}
    )
    table.file([{"id": 1}])
    table.file([{"id": 2}], number=7)
    table.file([{"id": 3}])
    names = sorted(path.name for path in (zone.root / "dbo.schema" / "orders").iterdir())

    assert [f"{number:020d}.parquet" for number in (1, 7, 8)] + ["_metadata.json"] == names
    assert {"keyColumns": ["id"], "isUpsertDefaultRowMarker": True} == json.loads(
        (table.folder / "_metadata.json").read_text()
    )
    assert "dbo/orders" == table.name


def test_zone_writer_breaks_files_in_the_ways_that_they_break(zone: ZoneWriter) -> None:
    """No bytes, half a file and no Parquet have no footer; damaged pages hide behind a good one."""
    table = zone.table("t", keys=["id"])
    rows = [{"id": number, "v": "x" * number} for number in range(100)]
    growing = table.growing(rows)

    for path in (table.zero_bytes(), table.truncated(rows), table.garbage(), growing.path):
        with pytest.raises(pa.ArrowInvalid):
            pq.read_metadata(path)
    damaged = table.damaged(rows)
    assert 100 == pq.read_metadata(damaged).num_rows
    with pytest.raises((pa.ArrowException, OSError)):
        pq.read_table(damaged)
    assert rows == pq.read_table(growing.finish()).to_pylist()


@pytest.mark.thorough
def test_logs_are_the_same_every_time_and_can_be_written(zone: ZoneWriter) -> None:
    """Hypothesis makes logs that are repeatable, varied, and hold in Parquet what the oracle replays."""
    logs = make_logs(40)

    assert logs == make_logs(40)
    assert {0, 1, 2, 4} <= {m for log in logs for file in log.files for m in file.markers or ()}
    assert any(len(log.keys) > 1 for log in logs)
    for number, log in enumerate(logs):
        table = zone.table(f"t{number}", keys=log.keys)
        log.publish(table)
        stored = []
        for at in range(1, len(log.files) + 1):
            data = pq.read_table(table.path(at))
            names = [name for name in data.column_names if name.lower() == "__rowmarker__"]
            stored += data.drop_columns(names).to_pylist()
        meant = [row for file in log.files for row in file.change_file().rows]
        assert multiset(meant) == multiset(stored)


def test_a_log_can_be_made_smaller_step_by_step() -> None:
    """Every smaller log has one file, row or column less and is still a log."""
    file = LogFile(
        types=(("id", pa.int32()), ("v", pa.string())), rows=((1, "a"), (2, "b")), markers=(1, 2)
    )
    log = Log(keys=("id",), files=(file, file))
    smaller = list(log.smaller())

    assert 2 + 2 * (2 + 1) == len(smaller)
    for one in smaller:
        one.replay(insert_policy="append")
