"""The log's files are listed and read in one place, with as few requests as there have to be."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Barrier
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pytest

from mirrorlib.delta.address import find_feed_table
from mirrorlib.delta.commits import Commits
from mirrorlib.delta.log import LOG, FileLog, HistoryLog, commit_path, list_log, tell_commit
from mirrorlib.delta.table import drop_table, open_log, refer
from mirrorlib.errors import LandingZoneError, StoreError
from mirrorlib.ingest.batch.evolve import Growth
from mirrorlib.ingest.batch.outcome import outcome_of
from mirrorlib.ingest.work import Attempt
from mirrorlib.journal.entries import Plan, Policies
from mirrorlib.names import parse_name
from mirrorlib.store import LocalStore
from mirrorlib.store.target import Target

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from mirrorlib.ingest.batch.open_batch import Prepared
    from mirrorlib.ingest.work import Work
    from mirrorlib.store import FolderListing, StoredFile


POLICIES = Policies(
    keys=("id",), upsert_default=False, insert_policy="append", evolution="widen", ntz="utc"
)


class Counting(LocalStore):
    """A store that notes what it is asked."""

    def __init__(self, root: Path) -> None:
        """Have asked nothing yet."""
        super().__init__(root)
        self.asked: list[str] = []

    def list_folder(self, path: str) -> FolderListing | None:
        """Note it."""
        self.asked.append("list")
        return super().list_folder(path)

    def stat(self, path: str) -> StoredFile | None:
        """Note it."""
        self.asked.append("stat")
        return super().stat(path)


def table(root: Path, *versions: int) -> Counting:
    """Write a log of versions that only say what they are."""
    (root / LOG).mkdir()
    for version in versions:
        said = {"commitInfo": {"operation": f"v{version}"}}
        (root / commit_path(version)).write_text(json.dumps(said))
    return Counting(root)


def test_only_versions_and_checkpoints_are_files_of_the_log(tmp_path: Path) -> None:
    """In order; what others leave beside them is none, whatever digits it has."""
    store = table(tmp_path, 10, 2)
    for name in (
        f"{2:020d}.crc",
        f"{'²' * 20}.json",
        "3.json",
        f".{4:020d}.json",
        "_last_checkpoint",
    ):
        (tmp_path / LOG / name).touch()
    for part in (1, 2):
        (tmp_path / LOG / f"{2:020d}.checkpoint.{part:010d}.{2:010d}.parquet").touch()

    found = list_log(store)

    assert [2, 10] == list(found.versions)
    assert {2: 2} == {version: len(paths) for version, paths in found.checkpoints.items()}
    assert {} == list_log(LocalStore(tmp_path / "nothing")).versions


def test_the_newest_version_is_found_without_a_listing_where_one_is_known(tmp_path: Path) -> None:
    """One look a version from there on; a listing where that one is gone, or none is known."""
    store = table(tmp_path, 0, 1, 2)
    log = FileLog(store)

    assert 2 == log.newest(at_least=1)
    assert ["stat"] * 3 == store.asked
    store.asked.clear()
    assert (2, 2) == (log.newest(), log.newest(at_least=7))
    assert ["list", "stat", "list"] == store.asked


def test_the_log_tells_both_who_looks_for_a_commit_and_who_reads_the_feed(tmp_path: Path) -> None:
    """The same of each version; one that is gone is left out where any will do."""
    store = table(tmp_path, 1, 3)
    commits = Commits(store, "t")

    found = FileLog(store).commits(0, 4)

    assert ["v1", "v3"] == [commit.operation for commit in found]
    assert list(found) == [commits.provenance(commit.version) for commit in found]
    assert (3, 3) == (commits.newest, commits.first)
    assert ["list"] == store.asked


@pytest.mark.thorough
@pytest.mark.slow
def test_a_history_is_asked_for_no_more_than_what_is_looked_for(
    spark: SparkSession, tmp_path: Path
) -> None:
    """It tells what the files tell, wherever in it; one that is long is not fetched to its end at each look."""
    ref = f"delta.`{tmp_path}`"
    spark.range(1).write.format("delta").save(str(tmp_path))
    for number in range(19):
        spark.sql(f"ALTER TABLE {ref} SET TBLPROPERTIES (a = '{number}')")
    asked: list[int] = []

    def sql(text: str) -> object:
        rows = spark.sql(text).collect()
        asked.append(len(rows))
        return SimpleNamespace(collect=lambda: rows)

    log = HistoryLog(cast("SparkSession", SimpleNamespace(sql=sql)), ref)

    for after, until in ((18, 19), (17, 18), (3, 5), (0, 2), (-1, 0), (-1, 19)):
        found = log.commits(after, until)
        assert FileLog(LocalStore(tmp_path)).commits(after, until) == found
    assert [17, 17, 18, 18, 20, 17, 20, 20] == asked


def test_what_unity_catalog_manages_is_not_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its history is asked at once: a store whose credentials are asked for in vain takes minutes to say so."""
    monkeypatch.delattr("mirrorlib.delta.table.open_store")
    ref = refer(Target(place="s", catalog="c", state=""), parse_name("orders"))

    log = open_log(cast("SparkSession", None), ref, "s3://b/__unitystorage/schemas/x/tables/y")

    assert isinstance(log, HistoryLog)


def test_files_of_a_catalog_that_cannot_be_reached_are_told_with_the_way_out() -> None:
    """Nobody is lent credentials for them, and another path would not help."""
    told = [{"format": "delta", "location": "dbfs:/user/hive/warehouse/orders"}]
    spark = SimpleNamespace(
        catalog=SimpleNamespace(tableExists=lambda _: True),
        sql=lambda _: SimpleNamespace(collect=lambda: told),
    )

    with pytest.raises(LandingZoneError, match=r"orders: cannot open .* credentials of your own"):
        find_feed_table(cast("SparkSession", spark), "c.s.orders")


@pytest.mark.parametrize("word", ["true", "TRUE"])
def test_times_that_commits_state_are_taken_as_they_are(tmp_path: Path, word: str) -> None:
    """However the property is spelled; files of before it, that were copied later, were written earlier all the same."""
    (tmp_path / LOG).mkdir()
    begun = datetime(2026, 3, 1, tzinfo=UTC)
    made = {"id": "t", "configuration": {"delta.enableInCommitTimestamps": word}}
    made["schemaString"] = '{"type": "struct", "fields": []}'
    for version in range(5):
        moment = int((begun + timedelta(days=version)).timestamp() * 1000)
        said = {} if version < 2 else {"inCommitTimestamp": moment}
        lines = [{"commitInfo": said}, *([{"metaData": made}] if version == 2 else [])]
        file = tmp_path / commit_path(version)
        file.write_text("\n".join(map(json.dumps, lines)))
        os.utime(file, (moment / 1000 + 10**7,) * 2)

    commits = Commits(LocalStore(tmp_path), "t")

    stated = [begun + timedelta(days=version) for version in (2, 3, 4)]
    assert stated == [commits.committed_at(version) for version in (2, 3, 4)]
    assert commits.committed_at(0) < commits.committed_at(1) < stated[0]
    assert 3 == commits.last_at(begun + timedelta(days=3, hours=12))
    assert -1 == commits.last_at(begun)


@pytest.mark.parametrize(
    "torn",
    [
        b'{"commitInfo": {"opera',
        b'{"commitInfo": "\xff"}',
        b'["commitInfo", "metaData"]',
        b'"commitInfo" ',
        b'{"commitInfo":' + b"[" * 100_000,
    ],
)
def test_a_file_of_the_log_that_is_damaged_is_named(tmp_path: Path, torn: bytes) -> None:
    """By who looks for a commit, and by who reads the feed; as a full disk or a lost power leaves it."""
    store = table(tmp_path, 1)
    (tmp_path / commit_path(1)).write_bytes(torn)

    for read in (lambda: FileLog(store).commits(0, 1), lambda: Commits(store, "t").read(1)):
        with pytest.raises(StoreError, match=f"^{tmp_path}/{LOG}/0+1.json: .* is damaged.*remove"):
            read()


def test_a_batch_is_not_taken_to_make_a_table_larger_than_it_is(tmp_path: Path) -> None:
    """What it replaces is gone: the commit's own checksum tells the size, and only without one is the batch added."""
    log = FileLog(table(tmp_path, 3, 4))
    (tmp_path / commit_path(3)).with_suffix(".crc").write_text('{"tableSizeBytes": 700}')
    plan = Plan(
        life="life",
        batch=2,
        attempt="a",
        zone="z",
        files=(),
        before={"": 1},
        after={"": 2},
        policies=POLICIES,
        table_version=2,
        previous={"table_id": "t", "keys": ""},
        listed_at="",
    )
    work = SimpleNamespace(options=SimpleNamespace(allow_foreign_writes=False), log=log)
    prepared = cast("Prepared", SimpleNamespace(growth=Growth(columns=())))
    ours = {"outcome": "applied", "kind": "merge", "bytes": 400}

    told = []
    for version in (3, 4):
        planned = replace(plan, table_version=version - 1)
        attempt = Attempt(work=cast("Work", work), plan=planned, table_bytes=600)
        commit = replace(tell_commit(version, {}), ours=ours)
        told.append(outcome_of(attempt, commit, prepared).table_bytes)

    assert [700, 1_000] == told


def test_a_table_is_removed_many_files_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where a store's answers are waited for."""
    both, delete = Barrier(2), LocalStore.delete

    def meet(store: LocalStore, path: str) -> None:
        both.wait(10)
        delete(store, path)

    table = tmp_path / "orders"
    for name in ("1.parquet", "2.parquet", commit_path(0)):
        LocalStore(table).put(name, b"x")
    monkeypatch.setattr(LocalStore, "delete", meet)
    monkeypatch.setattr(LocalStore, "at_once", 2)

    target = Target.of(tmp_path, catalog=None, state=None)
    drop_table(cast("SparkSession", None), refer(target, parse_name("orders")))

    assert not table.exists()
