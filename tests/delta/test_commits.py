"""What a table's log says of the table as a whole: no Spark is asked, and nothing that is not whole is believed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mirrorlib.delta.commits import Commits
from mirrorlib.delta.log import LOG, checksum_path, commit_path
from mirrorlib.delta.table import TableRef, check_made, find_table
from mirrorlib.errors import ForeignWriteError
from mirrorlib.names import parse_name
from mirrorlib.store import open_store
from mirrorlib.store.local import LocalStore

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FIELDS = [{"name": "id", "type": "long", "nullable": True, "metadata": {}}]
METADATA = {"id": "t", "schemaString": json.dumps({"type": "struct", "fields": FIELDS})}
PROTOCOL = {
    "minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": ["v2Checkpoint"], "writerFeatures": ["appendOnly"],
}  # fmt: skip
BEGINNING = [{"metaData": METADATA}, {"protocol": PROTOCOL}]


def write_version(table: Path, version: int, *actions: dict[str, Any]) -> None:
    """Write a version's file; each has an id of its own."""
    (table / LOG).mkdir(exist_ok=True)
    info = {"commitInfo": {"operation": "WRITE", "txnId": f"transaction {version}"}}
    lines = (json.dumps(action) + "\n" for action in (info, *actions))
    (table / commit_path(version)).write_text("".join(lines))


def write_checksum(table: Path, version: int, of: str | None = None, **more: object) -> None:
    """Write a version's checksum, or that of another transaction."""
    said = {"txnId": of or f"transaction {version}", "metadata": METADATA, "protocol": PROTOCOL}
    (table / checksum_path(version)).write_text(json.dumps({**said, "tableSizeBytes": 7, **more}))


@pytest.mark.parametrize("whole", [True, False])
def test_a_checkpoint_that_is_not_whole_is_passed_over(tmp_path: Path, *, whole: bool) -> None:
    """One of two parts is there, or a file of no bytes, as a writer leaves it that was killed: the versions before tell."""
    write_version(tmp_path, 0, *BEGINNING)
    write_version(tmp_path, 1)
    part = tmp_path / LOG / f"{1:020d}.checkpoint.{1:010d}.{2:010d}.parquet"
    nothing = pa.array([None], pa.struct([("id", pa.string())]))
    if whole:
        pq.write_table(pa.table({"metaData": nothing, "protocol": nothing}), part)
    else:
        part.touch()

    commits = Commits(open_store(str(tmp_path)), "t")

    assert "t" == commits.metadata.id
    assert PROTOCOL == commits.protocol


def test_what_was_read_of_a_version_is_forgotten_once_the_log_was_set_back(tmp_path: Path) -> None:
    """A look falls between the backup and the versions that follow on it, under the numbers of those that are gone."""
    for version in range(4):
        write_version(tmp_path, version, *(() if version else BEGINNING))
    before = Commits(open_store(str(tmp_path)), "t")
    assert 4 == len(before.read_all(0, before.newest))
    known = before.hash_of(3)
    for version in (2, 3):
        (tmp_path / commit_path(version)).unlink()
    between = before.refresh()

    for version in (2, 3):
        write_version(tmp_path, version, {"add": {"path": "new", "size": 1, "dataChange": True}})
    after = between.refresh()
    assert [False, False, True, True] == [one.changes for one in after.read_all(0, 3)]
    assert not after.is_still("t", 3, known)
    write_version(tmp_path, 4)
    (tmp_path / commit_path(0)).unlink()  # the log's end is kept, and its beginning cleaned
    assert after.read(3) is after.refresh().read(3)


def test_a_checksum_counts_for_its_own_transaction_only(tmp_path: Path) -> None:
    """A version that was set back leaves its own to the next one of its number."""
    write_version(tmp_path, 0, *BEGINNING)
    write_checksum(tmp_path, 0, tableSizeBytes=0)
    assert 0 == Commits(open_store(str(tmp_path)), "t").checksum["tableSizeBytes"]

    write_checksum(tmp_path, 0, of="one before", tableSizeBytes=0)
    assert {} == Commits(open_store(str(tmp_path)), "t").checksum


def test_a_look_at_a_table_costs_the_same_however_long_its_log_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of versions that have a checksum, the newest tells all."""
    for version in range(50):
        write_version(tmp_path, version, *(() if version else BEGINNING))
        write_checksum(tmp_path, version)
    read, asked = LocalStore.read, list[str]()

    def counted(store: LocalStore, path: str, **how: Any) -> bytes | None:
        asked.append(path)
        return read(store, path, **how)

    monkeypatch.setattr(LocalStore, "read", counted)
    ref = TableRef(name=parse_name("t"), sql="t", path=str(tmp_path))
    found = find_table(cast("SparkSession", None), ref)

    assert found is not None
    assert (7, ("id",)) == (found.bytes, tuple(column.name for column in found.columns))
    assert {"v2Checkpoint", "appendOnly"} == found.features
    assert sorted(asked) == [checksum_path(49), commit_path(49)]


def test_what_is_no_table_once_it_was_made_is_told() -> None:
    """Somebody has removed it, or a file lies in its place."""
    with pytest.raises(
        ForeignWriteError, match="Run again; if it stays, see what lies there; where"
    ):
        check_made(None, "orders")
