"""Key columns are found by their whole names first, then without the blanks that publishers copy around them."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mirrorlib.delta.columns import Column, find_key_column
from mirrorlib.errors import JournalError
from mirrorlib.ingest.batch.open_batch import prepare_files
from mirrorlib.ingest.files.source import Source
from mirrorlib.ingest.files.source_identity import check_policies
from mirrorlib.ingest.files.table_folder import policies_of
from mirrorlib.ingest.options import Options
from mirrorlib.landing.check.zone import check_zone
from mirrorlib.landing.metadata.reading import parse_metadata
from mirrorlib.names import sequence_name
from mirrorlib.store import open_store
from tests.zones import ZoneWriter


@pytest.mark.parametrize(
    "key, columns, expected",
    [
        ("id ", ["id "], "id "),
        ("id ", ["id", "ID "], "ID "),
        (" ID ", ["id"], "id"),
        ("id", ["id "], None),
        ("\tid", ["id"], "id"),
    ],
)
def test_a_key_is_found_with_its_blanks_or_without(
    key: str, columns: list[str], expected: str | None
) -> None:
    """In the table, in a file, and by the checker."""
    found = find_key_column([Column(name, pa.int64()) for name in columns], key)

    assert expected == (found.name if found else None)


def test_a_column_whose_name_has_blanks_can_be_a_key(zone: ZoneWriter) -> None:
    """The file is opened without a fault, and the checker has none to tell."""
    orders = zone.table("orders", metadata={"keyColumns": ["id "]})
    name = sequence_name(1)
    pq.write_table(pa.table({"id ": [1], "__rowMarker__": [4]}), orders.folder / name)
    store = open_store(str(zone))
    metadata = parse_metadata(b'{"keyColumns": ["id "]}', "orders")
    policies = policies_of(metadata, None, Options())
    source = Source(zone=store, table="orders", folder="orders", policies=policies)
    file = store.stat(f"orders/{name}")
    assert file is not None

    prepared = prepare_files(source, [file], ())

    assert prepared.fault is None
    report = check_zone(str(zone))
    assert report.ok, str(report)


@pytest.mark.parametrize(
    "old,new,same",
    [
        (["id", "r"], ["R", "id"], True),
        (["id "], ["id"], True),
        (["id", "r"], ["id"], False),
        (["id"], [], False),
    ],
)
def test_the_same_columns_are_the_same_key(old: list[str], new: list[str], *, same: bool) -> None:
    """Their order means nothing, nor do those of a batch that was never applied."""
    policies = policies_of(parse_metadata(b'{"keyColumns": ["id"]}', "t"), None, Options())
    applied, asked = (replace(policies, keys=tuple(keys)) for keys in (old, new))
    work: Any = SimpleNamespace(source=SimpleNamespace(policies=asked), table="t")
    done = SimpleNamespace(outcome="applied")
    entry: Any = SimpleNamespace(
        position={"": 1}, plan=SimpleNamespace(batch=1, policies=applied, files=()), done=done
    )
    opened: Any = SimpleNamespace(metadata=None)
    with nullcontext() if same else pytest.raises(JournalError, match="the key columns changed"):
        check_policies(work, opened, entry)

    other = replace(policies, keys=("other",))
    void: Any = SimpleNamespace(
        position={"": 1},
        plan=SimpleNamespace(batch=2, policies=other, files=()),
        done=SimpleNamespace(outcome="void"),
    )
    work.life, work.journal = None, SimpleNamespace(entry=lambda *_: entry)
    with nullcontext() if same else pytest.raises(JournalError, match="the key columns changed"):
        check_policies(work, opened, void)
