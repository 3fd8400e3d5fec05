"""`LandingZoneWriter`: numbers, metadata, markers, partitions, both formats, as a reader finds them."""

from __future__ import annotations

import datetime as dt
import errno
import hashlib
import io
import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import mirrorlib
from mirrorlib.errors import (
    FileChangedError,
    LandingZoneError,
    MarkerError,
    MetadataError,
    MirrorError,
    SchemaError,
    StoreError,
    TableBusyError,
    TableNameError,
)
from mirrorlib.landing.listing import list_tables, order_by_number, see_folder
from mirrorlib.landing.publish.claims import Claim
from mirrorlib.landing.publish.writer import LandingZoneWriter
from mirrorlib.store import LocalStore, Store, StoredFile
from publishing import (
    FOLDER,
    TABLE,
    Fault,
    FaultyStore,
    batch,
    batches,
    publish,
    rows_of,
    stores,
    visible,
)

ORDERS = pa.table({"id": [1, 2], "v": ["a", "b"]})
MARKER = "__rowMarker__"


@pytest.fixture(params=list(stores()))
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    """Give an empty zone on each kind of store."""
    return stores()[request.param](tmp_path / "zone")


def json_at(store: Store, path: str) -> Any:
    """Read a JSON file of the zone, strictly."""
    return json.loads(store.read(path) or b"")


def published(store: Store, folder: str = FOLDER) -> list[list[dict[str, Any]]]:
    """Read the rows of each file, in order."""
    return [rows_of(data) for data in visible(store, folder).values()]


# Names and numbers


def test_files_are_numbered_from_one_without_gaps(store: Store) -> None:
    """Twenty digits, one more each time."""
    assert [1, 2, 3] == publish(store, "a", "b", "c")

    assert ["a", "b", "c"] == batches(store)
    assert f"{1:020d}.parquet" == next(iter(visible(store)))


def test_a_new_process_goes_on_above_the_last_number(store: Store) -> None:
    """Every publish here is a writer of its own."""
    assert [1] == publish(store, "a")
    assert [2, 3] == publish(store, "b", "c")
    assert [4] == publish(store, "d")


def test_numbers_go_on_when_readers_have_moved_files_away(store: Store) -> None:
    """Fabric keeps the newest; some cleaner keeps none. A number is never given twice."""
    publish(store, "a", "b", "c")
    for number in (1, 2):
        store.delete(f"{FOLDER}/{number:020d}.parquet")
    assert [4] == publish(store, "d")
    for number in (3, 4):
        store.delete(f"{FOLDER}/{number:020d}.parquet")
    assert [5] == publish(store, "e")


def test_a_number_that_another_has_published_and_a_reader_moved_away_is_not_given_again(
    tmp_path: Path,
) -> None:
    """Both between two steps of its writer, whose content is gone."""

    class Beaten(LocalStore):
        def move_new(self, source: str, target: str, data: bytes | None = None) -> bool:
            assert super().move_new(source, target, data)
            self.move(target, "moved away")
            return super().move_new(source, target, data)

    assert [1, 2] == publish(Beaten(tmp_path), "a", "b")
    assert [] == batches(LocalStore(tmp_path))


def test_claims_that_begin_above_one_count_though_all_files_are_gone(store: Store) -> None:
    """Another publisher began the table; its mirror, behind 4, would never look at a new file 1."""
    publish(store, "a", "b", "c")
    store.delete_folder(f"{FOLDER}/_mirrorlib")
    assert [4] == publish(store, "d")

    for number in (1, 2, 3, 4):
        store.delete(f"{FOLDER}/{number:020d}.parquet")

    assert [5] == publish(store, "e")


def test_a_claim_of_an_earlier_version_counts(store: Store) -> None:
    """It says more: what follows from the rest, and who wrote it."""
    table = LandingZoneWriter(store).table("t", keys=["id"])
    first = table.write(ORDERS, batch_id="a")
    (path,) = (f"t/_mirrorlib/claims/{file.number:020d}.json" for file in first.files)
    earlier = {"ordinal": 1, "attempt": "ab", "rows": 2, "library": "mirrorlib 0.1"}

    store.put(path, json.dumps({**json_at(store, path), **earlier}).encode())

    again = LandingZoneWriter(store).table("t").write(ORDERS, batch_id="a")
    assert [True] == [file.repeated for file in again.files]
    assert [2] == [file.rows for file in again.files]


@pytest.mark.parametrize("stray", [f"{9:020d}.md5", "20261127153000123456.log", f"{'9' * 20}.tmp"])
def test_a_name_of_twenty_digits_that_is_no_change_file_takes_no_number(
    store: Store, stray: str
) -> None:
    """Readers pass over it, and would wait for what is missing below it."""
    publish(store, "a", "b")
    store.put(f"{FOLDER}/{stray}", b"x")

    assert [3, 4] == publish(store, "c", "d")


def test_a_number_of_any_extension_that_a_reader_counts_is_taken(tmp_path: Path) -> None:
    """Of a table whose extension is stated, whatever its case."""
    LandingZoneWriter(tmp_path).table(TABLE, keys=["id"], file_format="csv").write(ORDERS)
    path = tmp_path / FOLDER / "_metadata.json"
    path.write_text(path.read_text().replace('"FileExtension": "csv"', '"FileExtension": "dat"'))
    (tmp_path / FOLDER / f"{5:020d}.DAT").write_text("id,v\n3,c\n")

    assert f"{6:020d}.dat" == LandingZoneWriter(tmp_path).table(TABLE).upsert(ORDERS).file


@pytest.mark.parametrize("repeats", [False, True])
def test_what_another_program_has_published_meanwhile_is_gone_on_from(
    store: Store, *, repeats: bool
) -> None:
    """Below it are numbers that readers have passed, and whose files they have moved away: rows would be lost there."""
    orders = LandingZoneWriter(store).table(TABLE, keys=["id"])
    orders.write(batch("a"), batch_id="a")
    content = visible(store)[f"{1:020d}.parquet"]
    store.put(f"{FOLDER}/{4:020d}.parquet", content)
    store.delete(f"{FOLDER}/{1:020d}.parquet")
    if repeats:
        orders = LandingZoneWriter(store).table(TABLE, keys=["id"])
        assert orders.write(batch("a"), batch_id="a").repeated

    assert [5, 6] == [orders.write(batch(name), batch_id=name).number for name in "bc"]

    for name in visible(store):
        store.delete(f"{FOLDER}/{name}")
    assert [7] == publish(store, "d")


def test_the_zone_of_another_publisher_is_continued(tmp_path: Path) -> None:
    """Its files have no claims: the next number is above its newest."""
    folder = tmp_path / FOLDER
    folder.mkdir(parents=True)
    (folder / "_metadata.json").write_text('{"KeyColumns": ["id"],}')
    pq.write_table(batch("foreign"), folder / f"{7:020d}.parquet")

    orders = LandingZoneWriter(tmp_path).table(TABLE)

    assert 8 == orders.upsert(batch("ours")).number
    assert '{"KeyColumns": ["id"],}' == (folder / "_metadata.json").read_text()


def test_what_is_declared_for_text_is_no_type_of_a_parquet_table(tmp_path: Path) -> None:
    """Its columns have the types that its files have."""
    folder = tmp_path / FOLDER
    folder.mkdir(parents=True)
    columns = '{"Columns": [{"Name": "id", "DataType": "Int64"}]}'
    said = f'{{"keyColumns": ["id"], "FileFormat": "Parquet", "SchemaDefinition": {columns}}}'
    (folder / "_metadata.json").write_text(said)
    rows = pa.table({"id": pa.array([1], pa.int32())})
    pq.write_table(rows, folder / f"{1:020d}.parquet")

    LandingZoneWriter(tmp_path).table(TABLE).upsert(rows)

    assert pa.int32() == pq.read_schema(folder / f"{2:020d}.parquet").field("id").type


@pytest.mark.parametrize("inner", ["", "d=1/"])
def test_a_folder_of_csv_files_takes_no_parquet_beside_them(tmp_path: Path, inner: str) -> None:
    """Readers take it as CSV while all its files are .csv, and would stop at the mixture."""
    folder = tmp_path / FOLDER / inner
    folder.mkdir(parents=True)
    said = {"keyColumns": ["id"], "isPartitionEnabled": bool(inner)}
    (tmp_path / FOLDER / "_metadata.json").write_text(json.dumps(said))
    (folder / f"{1:020d}.csv").write_text("id,v\r\n1,a\r\n")

    with pytest.raises(MetadataError, match="in another way than mirrorlib writes it"):
        LandingZoneWriter(tmp_path).table(TABLE).upsert(ORDERS)


def test_a_described_table_of_parquet_files_goes_on_as_parquet(tmp_path: Path) -> None:
    """As readers take it, for every writer that comes."""
    folder = tmp_path / FOLDER
    folder.mkdir(parents=True)
    said = '{"keyColumns": ["id"], "SchemaDefinition": {"Columns": [{"Name": "id", "DataType": "Int64"}]}}'
    (folder / "_metadata.json").write_text(said)
    pq.write_table(ORDERS, folder / f"{1:020d}.parquet")

    for number in 2, 3:
        done = LandingZoneWriter(tmp_path).table(TABLE).upsert(ORDERS)
        assert f"{number:020d}.parquet" == done.file
    assert not [found for found in mirrorlib.check(tmp_path).findings if found.severity == "error"]


def test_text_has_the_extension_that_is_stated(tmp_path: Path) -> None:
    """Readers pass over any other."""
    LandingZoneWriter(tmp_path).table(TABLE, keys=["id"], file_format="csv").write(ORDERS)
    path = tmp_path / FOLDER / "_metadata.json"
    path.write_text(path.read_text().replace('"FileExtension": "csv"', '"FileExtension": "txt"'))

    assert f"{2:020d}.txt" == LandingZoneWriter(tmp_path).table(TABLE).upsert(ORDERS).file


def test_a_table_folder_that_was_deleted_begins_at_one_again(tmp_path: Path) -> None:
    """Also for a writer that had published into the old one: Fabric takes it for a new table."""
    store = LocalStore(tmp_path)
    orders = LandingZoneWriter(store).table(TABLE, keys=["id"])
    orders.write(batch("old"))
    orders.write(batch("older"))
    store.delete_folder(FOLDER)

    assert 1 == orders.write(batch("new")).number
    assert {"keyColumns": ["id"]} == json_at(store, f"{FOLDER}/_metadata.json")


class HashedStore(LocalStore):
    """A folder whose etags are of the content alone, as S3's are."""

    def stat(self, path: str) -> StoredFile | None:
        """Tell a file by what is in it."""
        found = super().stat(path)
        data = self.read(path) if found else None
        return found and replace(found, etag=hashlib.sha256(data or b"").hexdigest())


def test_a_table_folder_that_somebody_else_made_anew_is_seen_to_be_another(tmp_path: Path) -> None:
    """Though its metadata is the same to the byte: a number that follows on the old folder's would leave a gap."""
    store = HashedStore(tmp_path)
    orders, other = (LandingZoneWriter(store).table(TABLE, keys=["id"]) for _ in "ab")
    for value in "abc":
        orders.write(batch(value))
    store.delete_folder(FOLDER)
    assert 1 == other.write(batch("new")).number

    assert 2 == orders.write(batch("newer")).number


def test_a_batch_id_is_published_once_for_ever(store: Store) -> None:
    """Whoever asks again is told where it is; other batches may have come in between."""
    orders = LandingZoneWriter(store).table(TABLE, keys=["id"])
    first = orders.write(batch("a"), batch_id="one")
    orders.write(batch("b"), batch_id="two")
    again = LandingZoneWriter(store).table(TABLE).write(batch("a"), batch_id="one")

    assert (first.number, False) == (1, first.repeated)
    assert (again.number, True) == (1, again.repeated)
    assert ["a", "b"] == batches(store)


def test_an_empty_batch_id_is_none(store: Store) -> None:
    """As a variable that nobody has set gives: equal rows would be taken for the batch before."""
    orders = LandingZoneWriter(store).table(TABLE, keys=["id"])

    assert [1, 2] == [orders.write(batch("a"), batch_id="").number for _ in "ab"]


def test_a_batch_id_may_be_a_number(store: Store) -> None:
    """It is what it reads."""
    orders = LandingZoneWriter(store).table(TABLE, keys=["id"])

    assert [1, 1] == [orders.write(batch("a"), batch_id=one).number for one in (7, "7")]  # type: ignore[arg-type]


def test_a_batch_that_has_to_follow_on_a_file_follows_on_it_or_is_not_published(
    store: Store,
) -> None:
    """Whoever has published meanwhile; a batch that is there already is said to be there."""
    orders, other = (LandingZoneWriter(store).table(TABLE) for _ in "ab")
    assert 1 == orders.write(batch("a"), batch_id="one", follows=0).number
    assert 2 == other.write(batch("b"), batch_id="two").number
    with pytest.raises(
        TableBusyError, match=r"another batch was published .*found 0{19}2\.parquet"
    ):
        orders.write(batch("c"), batch_id="three", follows=1)
    assert orders.write(batch("b"), batch_id="two", follows=1).repeated
    assert 3 == orders.write(batch("c"), batch_id="three", follows=2).number
    assert ["a", "b", "c"] == batches(store)


def test_a_batch_that_is_overtaken_before_its_claim_leaves_nothing(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its content was staged by then."""
    orders, other = (LandingZoneWriter(store).table(TABLE) for _ in "ab")
    claimed = Claim.write

    def late(*arguments: Any) -> bool:
        monkeypatch.setattr(Claim, "write", claimed)
        other.write(batch("b"))
        return claimed(*arguments)

    monkeypatch.setattr(Claim, "write", late)
    with pytest.raises(TableBusyError, match="another batch was published"):
        orders.write(batch("a"), follows=0)
    assert ["b"] == batches(store)
    staged = store.list_folder(f"{FOLDER}/_mirrorlib/staged")
    assert staged is None or () == staged.files


def test_a_batch_id_stands_for_one_content(store: Store) -> None:
    """Other rows under it are refused: one of the two would be lost."""
    publish(store, "a")
    orders = LandingZoneWriter(store).table(TABLE)

    with pytest.raises(FileChangedError, match="used before, for other content"):
        orders.write(batch("b"), batch_id="a")
    assert ["a"] == batches(store)


def test_a_repeated_batch_is_known_though_the_schema_has_grown(store: Store) -> None:
    """What it would be encoded as today does not matter."""
    rows = pa.table({"id": [1], "later": pa.nulls(1)})
    table = LandingZoneWriter(store).table("t", keys=["id"])
    table.write(rows, batch_id="one")
    table.write(pa.table({"id": [1], "later": ["x"]}), batch_id="two")

    assert table.write(rows, batch_id="one").repeated


def test_the_same_rows_without_an_id_are_published_again(store: Store) -> None:
    """Put it, delete it, put it again: the third is no repetition of the first."""
    orders = LandingZoneWriter(store).table(TABLE, keys=["id"])
    for _ in range(2):
        orders.upsert(ORDERS)
        orders.delete(ORDERS)

    assert [1, 2, 3, 4] == [int(name[:20]) for name in visible(store)]


class ForgetfulStore(LocalStore):
    """An S3 work-alike that takes no notice of If-None-Match."""

    def put_new(self, path: str, data: bytes) -> bool:
        """Write the file, whatever is there."""
        self.put(path, data)
        return True


def _no_links(*_: object) -> None:
    raise OSError(errno.EPERM, "Operation not permitted")


@pytest.mark.parametrize("kind", [ForgetfulStore, LocalStore])
def test_a_store_on_which_two_writers_could_take_one_number_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: type[LocalStore]
) -> None:
    """Both would be told that their rows are published: it is tried before the first ones are. Some mounts have no links."""
    zone = kind(tmp_path)
    if kind is LocalStore:
        monkeypatch.setattr("os.link", _no_links)

    with pytest.raises(
        StoreError, match="has no put-if-absent, without which two writers"
    ) as caught:
        LandingZoneWriter(zone).table(TABLE, keys=["id"]).write(ORDERS)

    assert TABLE == caught.value.table
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_a_store_is_tried_once_a_table(store: Store) -> None:
    """Each trial is four requests."""
    counted = Fault()
    for name in "abc":
        publish(FaultyStore(store, counted), name)  # type: ignore[arg-type]

    probes = [call for call in counted.calls if "probe-" in call]
    assert ["put_new", "put_new", "read", "delete"] == [call.split()[0] for call in probes]


# Metadata


@pytest.mark.parametrize(
    "options,expected",
    [
        ({"keys": ["id"]}, {"keyColumns": ["id"]}),
        ({"keys": "ID"}, {"keyColumns": ["id"]}),
        ({}, {"keyColumns": []}),
        (
            {"keys": ["id"], "partition_by": ["v"]},
            {"keyColumns": ["id"], "isPartitionEnabled": "true"},
        ),
        (
            {"keys": ["id"], "file_format": "csv"},
            {
                "keyColumns": ["id"],
                "SchemaDefinition": {
                    "Columns": [
                        {"Name": "id", "DataType": "Int64", "IsNullable": True},
                        {"Name": "v", "DataType": "String", "IsNullable": True},
                    ]
                },
                "FileFormat": "CSV",
                "FileExtension": "csv",
                "FileFormatTypeProperties": {
                    "FirstRowAsHeader": True,
                    "RowSeparator": "\n",
                    "ColumnSeparator": ",",
                    "QuoteCharacter": '"',
                    "EscapeCharacter": '"',
                    "NullValue": "",
                    "Encoding": "UTF-8",
                },
            },
        ),
    ],
)
def test_metadata_is_valid_json_and_says_what_is_not_the_default(
    store: Store, options: dict[str, Any], expected: dict[str, Any]
) -> None:
    """Keys are spelled as the columns are."""
    LandingZoneWriter(store).table("t", **options).write(ORDERS)

    assert expected == json_at(store, "t/_metadata.json")


def test_the_partner_is_named_once_at_the_root(store: Store) -> None:
    """`_partnerEvents.json` is written when a source is named, and another's is left alone."""
    LandingZoneWriter(store).table("t").write(ORDERS)
    assert store.read("_partnerEvents.json") is None

    named = LandingZoneWriter(
        store,
        source="PostgreSQL",
        source_version="16",
        source_information={"region": "eu"},
        partner="Acme",
    )
    named.table("t").write(ORDERS)
    LandingZoneWriter(store, source="Oracle").table("t").write(ORDERS)
    source = {
        "sourceType": "PostgreSQL",
        "sourceVersion": "16",
        "additionalInformation": {"region": "eu"},
    }
    assert {"partnerName": "Acme", "sourceInfo": source} == json_at(store, "_partnerEvents.json")


def test_a_zone_is_listed_by_our_reader_as_it_was_meant(store: Store) -> None:
    """Table folders, numbers, metadata; nothing foreign, nothing hidden is seen."""
    LandingZoneWriter(store, source="x").table("dbo/orders", keys=["id"]).write(ORDERS)
    LandingZoneWriter(store).table("plain").write(ORDERS)

    tables = list_tables(store)

    assert ["dbo/orders", "plain"] == sorted(str(table) for table in tables)
    for table in tables:
        seen = see_folder(store, table)
        listing = order_by_number(seen, str(table))
        assert ([1], ()) == (list(listing.partitions[""]), listing.foreign)
        assert seen.metadata is not None


@pytest.mark.parametrize(
    "name",
    [
        "",
        "_t",
        ".t",
        "a/b/c",
        "_s/t",
        "s/_t",
        "dbo.schema",
        "dbo.schema/t",
        "a\nb",
        "..",
        "x" * 300,
    ],
)
def test_a_name_that_no_reader_takes_for_a_table_is_refused(tmp_path: Path, name: str) -> None:
    """Before anything is written."""
    with pytest.raises(TableNameError):
        LandingZoneWriter(tmp_path).table(name)


@pytest.mark.parametrize(
    "name,how", [("dbo/Orders", "differ only by case"), ("DBO", "one inside the other")]
)
def test_a_new_table_beside_which_another_one_would_stop_is_refused(
    store: Store, name: str, how: str
) -> None:
    """As readers would refuse both; the table that is there goes on, and so do others."""
    publish(store, "a")
    with pytest.raises(TableNameError, match=rf"{how}.*under another name"):
        LandingZoneWriter(store).table(name, keys=["id"]).write(batch("b"))

    assert [None] == list(list_tables(store).values())
    assert [2] == publish(store, "b")
    assert 1 == LandingZoneWriter(store).table("dbo/others").write(batch("b")).number


def test_a_schema_folder_that_cannot_be_listed_collides_with_no_new_table(
    tmp_path: Path, close_folder: Callable[[str], None]
) -> None:
    """Nobody can tell whether it has a table, and what stands for those in a listing is none."""
    (tmp_path / "closed.schema").mkdir()
    close_folder("closed.schema")
    assert 1 == LandingZoneWriter(tmp_path).table("closed", keys=["id"]).write(batch("a")).number


def test_a_word_that_is_not_known_is_refused(tmp_path: Path) -> None:
    """It would be taken for the other choice, and stay so for the table's life."""
    text = "file_format is 'CSV'; it has to be one of parquet, csv"
    with pytest.raises(ValueError, match=text):
        LandingZoneWriter(tmp_path).table("t", file_format="CSV")  # type: ignore[arg-type]  # no such word


@pytest.mark.parametrize("options", [{"keys": ["id", "ID"]}, {"partition_by": ["v", "id", "v"]}])
def test_a_column_that_is_named_twice_is_refused(tmp_path: Path, options: dict[str, Any]) -> None:
    """Keys and partition columns; case makes no difference, as in a Delta table."""
    with pytest.raises(SchemaError, match="named twice") as caught:
        LandingZoneWriter(tmp_path).table("t", **options)

    assert ("t", next(iter(options.values()))[-1]) == (caught.value.table, caught.value.column)


@pytest.mark.parametrize(
    "options,error,text",
    [
        ({"keys": ["v"]}, SchemaError, "keys cannot change"),
        ({"keys": ["id", "v"]}, SchemaError, "keys cannot change"),
        ({"file_format": "csv"}, MetadataError, "file format is parquet already"),
        ({"partition_by": ["v"]}, MetadataError, "partitioning is false already"),
    ],
)
def test_a_table_stays_what_it_was_declared_to_be(
    store: Store, options: dict[str, Any], error: type[MirrorError], text: str
) -> None:
    """Another word about it is refused, and nothing is published; `force` lets it through."""
    LandingZoneWriter(store).table("t", keys=["id"]).write(ORDERS)
    changed = LandingZoneWriter(store).table("t", **options)

    with pytest.raises(error, match=text):
        changed.write(ORDERS)
    assert 1 == len(visible(store, "t"))

    changed.write(ORDERS, force=True)


def test_upserts_by_default_need_keys(store: Store) -> None:
    """Another publisher may have declared them so; no reader would take the file."""
    store.put("t/_metadata.json", b'{"isUpsertDefaultRowMarker": true}')
    with pytest.raises(MarkerError, match="need keys to go by"):
        LandingZoneWriter(store).table("t").write(ORDERS)

    assert {} == visible(store, "t")
    assert 2 == LandingZoneWriter(store).table("t", keys=["id"]).write(ORDERS).rows


def test_keys_may_be_declared_later(store: Store) -> None:
    """A table without keys takes inserts; with keys it takes the rest."""
    LandingZoneWriter(store).table("t").write(ORDERS)
    with pytest.raises(MarkerError, match="table has none"):
        LandingZoneWriter(store).table("t").upsert(ORDERS)

    LandingZoneWriter(store).table("t", keys=["id"]).upsert(ORDERS)

    assert {"keyColumns": ["id"]} == json_at(store, "t/_metadata.json")


def test_partition_columns_are_remembered(store: Store) -> None:
    """The metadata does not name them; other ones are refused. Without metadata, as who made the table died, too."""
    LandingZoneWriter(store).table("t", keys=["id"], partition_by=["v"]).write(ORDERS)

    again = LandingZoneWriter(store).table("t").write(ORDERS)
    assert ["v=a/" + f"{2:020d}.parquet", "v=b/" + f"{2:020d}.parquet"] == [
        file.file for file in again.files
    ]
    with pytest.raises(MetadataError, match="partitioned by v already"):
        LandingZoneWriter(store).table("t", partition_by=["id"]).write(ORDERS)

    said = json_at(store, "t/_metadata.json")
    store.delete("t/_metadata.json")
    LandingZoneWriter(store).table("t", keys=["id"]).write(ORDERS)
    assert said == json_at(store, "t/_metadata.json")


def test_a_writer_that_died_behind_the_schema_leaves_no_column_undeclared(store: Store) -> None:
    """Text of which is not said what it is becomes a column of strings, which no later file may make numbers."""
    rows = pa.table({"id": [1], "at": [dt.date(2026, 1, 1)], "n": [10]})
    LandingZoneWriter(store).table("t", keys=["id"], file_format="csv").write(rows)
    said = json_at(store, "t/_metadata.json")
    store.delete("t/_metadata.json")
    orders = LandingZoneWriter(store).table("t", keys=["id"], file_format="csv")

    orders.write(rows.select(["id"]))

    assert said == json_at(store, "t/_metadata.json")


# Markers


def test_rows_without_markers_make_a_file_without_markers(store: Store) -> None:
    """As an initial load should be."""
    LandingZoneWriter(store).table(TABLE, keys=["id"]).write(ORDERS)

    assert [ORDERS.to_pylist()] == published(store)


@pytest.mark.parametrize("kind,marker", [("insert", 0), ("update", 1), ("upsert", 4)])
def test_all_rows_are_given_their_marker(store: Store, kind: str, marker: int) -> None:
    """The marker is an int32 column, the last one."""
    orders = LandingZoneWriter(store).table(TABLE, keys=["id"])
    done = orders.upsert(ORDERS) if kind == "upsert" else orders.write(ORDERS, marker)

    assert {kind: 2} == done.files[0].markers
    (data,) = visible(store).values()
    schema = pq.read_schema(io.BytesIO(data))
    assert ["id", "v", MARKER] == schema.names
    assert pa.int32() == schema.field(MARKER).type
    assert [marker, marker] == [row[MARKER] for row in rows_of(data)]


def test_a_file_of_deletes_holds_keys_and_marker_alone(store: Store) -> None:
    """Whatever else the rows have."""
    orders = LandingZoneWriter(store).table(TABLE, keys=["id"])
    orders.write(ORDERS)

    assert {"delete": 2} == orders.delete(ORDERS).files[0].markers
    assert [{"id": 1, MARKER: 2}, {"id": 2, MARKER: 2}] == published(store)[1]


def test_a_changed_key_is_a_delete_and_an_insert_in_one_file(store: Store) -> None:
    """All deletes come first: keys may be swapped."""
    orders = LandingZoneWriter(store).table(TABLE, keys=["id"])
    orders.write(ORDERS)

    orders.change_keys(pa.table({"id": [1, 2]}), pa.table({"id": [2, 1], "v": ["a", "b"]}))

    assert [
        {"id": 1, "v": None, MARKER: 2},
        {"id": 2, "v": None, MARKER: 2},
        {"id": 2, "v": "a", MARKER: 0},
        {"id": 1, "v": "b", MARKER: 0},
    ] == published(store)[1]


def test_a_changed_key_goes_with_columns_that_cannot_be_null(store: Store) -> None:
    """The delete carries the new row's value there, which no reader looks at."""
    required = pa.schema([pa.field("id", pa.int64()), pa.field("v", pa.string(), nullable=False)])
    orders = LandingZoneWriter(store).table(TABLE, keys=["id"])
    orders.write(ORDERS.cast(required))

    orders.change_keys(ORDERS.select(["id"]), ORDERS.cast(required))

    assert ["a", "b", "a", "b"] == [row["v"] for row in published(store)[1]]


def test_a_key_cannot_change_from_one_partition_to_another(store: Store) -> None:
    """One file lies in one partition, and two files have no order."""
    table = LandingZoneWriter(store).table("t", keys=["id"], partition_by=["v"])
    table.write(ORDERS)
    old, new = pa.table({"id": [1], "v": ["a"]}), pa.table({"id": [3], "v": ["b"]})

    with pytest.raises(SchemaError, match="different partitions"):
        table.change_keys(old, new)

    assert 2 == table.change_keys(old, pa.table({"id": [3], "v": ["a"]})).number


def test_a_key_that_is_given_twice_is_refused(store: Store) -> None:
    """By deletes and changed keys as by rows: nobody can tell which of the two is meant."""
    table = LandingZoneWriter(store).table(TABLE, keys=["id"])
    table.write(pa.table({"id": [1], "v": ["x"]}))
    twice = pa.table([[1], [2]], names=["id", "ID"])

    for call in (lambda: table.delete(twice), lambda: table.change_keys(twice, twice)):
        with pytest.raises(SchemaError, match="ID"):
            call()
    assert 1 == len(published(store))


def test_deletes_need_keys(store: Store) -> None:
    """Without them no row could be found."""
    with pytest.raises(MarkerError, match="the table has none"):
        LandingZoneWriter(store).table("t").delete(ORDERS)
    assert {} == visible(store, "t")


# Files


def test_a_file_without_rows_is_a_whole_file(store: Store) -> None:
    """Zero rows, but a footer with every column: no zero-byte file ever."""
    done = LandingZoneWriter(store).table(TABLE, keys=["id"]).write(ORDERS.slice(0, 0))

    (data,) = visible(store).values()
    assert (0, {}) == (done.rows, dict(done.files[0].markers))
    assert ["id", "v"] == pq.read_schema(io.BytesIO(data)).names


def test_partitions_have_numbers_of_their_own(store: Store) -> None:
    """Hive-style folders; the column stays in the file; rows keep their order."""
    rows = pa.table({"id": [1, 2, 3, 4], "region": ["eu", "us", "eu", "a/b"]})
    table = LandingZoneWriter(store).table("t", keys=["id"], partition_by=["region"])

    first = table.upsert(rows)
    second = table.upsert(rows.slice(1, 1))

    name = f"{1:020d}.parquet"
    expected = [f"region=a%2Fb/{name}", f"region=eu/{name}", f"region=us/{name}"]
    assert expected == [file.file for file in first.files]
    assert [f"region=us/{2:020d}.parquet"] == [file.file for file in second.files]
    eu = [{"id": i, "region": "eu", MARKER: 4} for i in (1, 3)]
    assert [eu] == published(store, "t/region=eu")
    assert 4 == first.rows


def test_no_rows_lie_in_no_partition(store: Store) -> None:
    """It is said, and nothing is published."""
    table = LandingZoneWriter(store).table("t", keys=["id"], partition_by=["v"])

    done = table.write(ORDERS.slice(0, 0))

    assert (None, None, ()) == (done.file, done.number, done.files)
    assert "no partition folder" in done.notes[-1]


def test_csv_is_written_as_it_is_declared(store: Store) -> None:
    """Header, text in quotes, NULL as nothing, an empty text as two quotes, marker last."""
    rows = pa.table({"id": [1, 2, 3], "v": ['say "x"\n', "", None], "f": [1.5, None, float("inf")]})
    LandingZoneWriter(store).table("t", keys=["id"], file_format="csv").upsert(rows)

    (data,) = visible(store, "t").values()
    expected = '"id","v","f","__rowMarker__"\n1,"say ""x""\n","1.5",4\n2,"",,4\n3,,"Infinity",4\n'
    assert expected == data.decode()


def test_csv_keeps_the_marker_column_once_a_file_had_it(store: Store) -> None:
    """Fabric asks for it; what it says is what a missing one means."""
    table = LandingZoneWriter(store).table("t", keys=["id"], file_format="csv")
    for write in (table.write, table.delete, table.write):
        write(ORDERS)

    first, second, third = visible(store, "t").values()
    assert b'"id","v"\n1,"a"\n2,"b"\n' == first
    assert b'"id","v","__rowMarker__"\n1,,2\n2,,2\n' == second
    assert b'"id","v","__rowMarker__"\n1,"a",0\n2,"b",0\n' == third


def test_csv_has_no_empty_line_for_a_null(store: Store) -> None:
    """One column, one NULL: without a marker nobody would see the row."""
    table = LandingZoneWriter(store).table("t", file_format="csv")
    table.write(pa.table({"v": ["a", None]}))

    (data,) = visible(store, "t").values()
    assert b'"v","__rowMarker__"\n"a",0\n,0\n' == data


# Nothing is half published


@pytest.mark.parametrize(
    "rows,marker",
    [
        (ORDERS, 3),
        (ORDERS, "nothing"),
        (pa.table({"id": [1, None], "v": ["a", "b"]}), None),
        (pa.table({"v": ["a", "b"]}), None),
        (pa.table({"id": [1], "x": [{"a": 1}]}), None),
        (pa.table({"id": [1], "ID": [2]}), None),
        (pa.table({"id": [1], "_change_type": [2]}), None),
        (pa.table({"id": [1], MARKER: [3]}), None),
        (pa.table({"id": [1], MARKER: pa.nulls(1)}), None),
    ],
)
def test_bad_rows_leave_no_trace(tmp_path: Path, rows: pa.Table, marker: Any) -> None:
    """Not even metadata: everything is checked first."""
    with pytest.raises(MirrorError) as caught:
        LandingZoneWriter(tmp_path, source="x").table(TABLE, keys=["id"]).write(rows, marker)

    assert [] == list(tmp_path.rglob("*"))
    assert caught.value.next_step
    assert TABLE == caught.value.table


def test_a_published_file_that_is_not_what_was_sent_is_told(tmp_path: Path) -> None:
    """Size and footer are looked at again, once the file is visible."""

    class Shortening(LocalStore):
        def move_new(self, source: str, target: str, data: bytes | None = None) -> bool:
            done = super().move_new(source, target, data)
            path = tmp_path / target
            path.write_bytes(path.read_bytes()[:-1])
            return done

    def write(store: LocalStore) -> mirrorlib.Published:
        return LandingZoneWriter(store).table(TABLE, keys=["id"]).write(ORDERS, batch_id="a")

    with pytest.raises(mirrorlib.ChangeFileError, match="not what was sent"):
        write(Shortening(tmp_path))
    store = LocalStore(tmp_path)
    with pytest.raises(mirrorlib.ChangeFileError, match="Delete the file and publish"):
        write(store)
    publish(store, "b")
    first = tmp_path / FOLDER / f"{1:020d}.parquet"
    first.unlink()

    assert write(store).files[0].repeated

    assert 2 == len(visible(store))
    assert ORDERS.to_pylist() == published(store)[0]
    first.unlink()  # a reader moves it away
    write(store)
    assert not first.exists()


@pytest.mark.parametrize(
    "url", ["ftp://host/zone", "s3://[bucket]/x", "s3://name:secret@[bucket/x", "//[x/y", "s3://me:secret@b\u2100/x"]
)  # fmt: skip
def test_places_that_cannot_be_opened_are_told(url: str) -> None:
    """An unknown scheme, and what is no URL, at once."""
    with pytest.raises((StoreError, LandingZoneError), match="cannot open") as caught:
        LandingZoneWriter(url)
    assert "secret" not in str(caught.value)


def test_abandoned_content_is_removed_after_a_week(tmp_path: Path) -> None:
    """A writer died before it had a number: its content was never meant to be seen."""
    store = LocalStore(tmp_path)
    publish(store, "a")
    old, new = (tmp_path / FOLDER / "_mirrorlib/staged" / name for name in ("old", "new"))
    for path in (old, new):
        path.write_bytes(b"x")
    os.utime(old, (0, 0))

    publish(store, "b")

    assert (False, True) == (old.exists(), new.exists())


def test_the_writer_is_public() -> None:
    """`mirrorlib.LandingZoneWriter` is it."""
    assert LandingZoneWriter is mirrorlib.LandingZoneWriter
