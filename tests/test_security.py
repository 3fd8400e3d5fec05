"""The threats of SECURITY.md that no other tests are about."""

from __future__ import annotations

import logging
import os
import re
import subprocess
import sys
from html import unescape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import mirrorlib
from mirrorlib.delivery.sinks.open import shown_url
from mirrorlib.errors import LandingZoneError, MirrorError, StoreError
from mirrorlib.feed.changes import Change, Changes
from mirrorlib.landing import parquet
from mirrorlib.landing.parquet import iter_batches
from mirrorlib.operate.verify.report import Difference
from mirrorlib.store import open_store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.zones import ZoneWriter

ROOT = Path(__file__).parents[1]
SECRET = "hunter2"  # noqa: S105  # of nobody
ESCAPE = "\x1b[2J"


def test_every_threat_has_its_tests() -> None:
    """Each line of SECURITY.md names tests that are there."""
    named = re.findall(r"`(tests/\S+?\.py)?(?:::(\w+))?`", (ROOT / "SECURITY.md").read_text())
    file = ""
    for path, test in ((path, test) for path, test in named if path or test):
        file = path or file
        assert not test or f"def {test}(" in (ROOT / file).read_text(), (file, test)
        assert (ROOT / file).is_file(), file
    lines = [line for line in (ROOT / "SECURITY.md").read_text().splitlines() if line[:2] == "| "]
    assert all("`tests/" in line for line in lines[1:])


def test_a_link_out_of_the_zone_is_not_followed(
    spark: SparkSession, zone: ZoneWriter, tmp_path: Path
) -> None:
    """Its table stops and says where it leads; the others go on, and a link within the zone is a file."""
    secret = tmp_path / "secret.parquet"
    pq.write_table(pa.table({"id": [1]}), secret)
    inside = zone.table("inside", keys=["id"]).file([{"id": 1}])
    zone.table("linked", keys=["id"]).folder.joinpath(inside.name).symlink_to(inside)
    zone.table("stolen", keys=["id"]).folder.joinpath(inside.name).symlink_to(secret)
    pipe = zone.table("pipe", keys=["id"]).folder / inside.name
    os.mkfifo(pipe)

    report = mirrorlib.apply(spark, str(zone), tmp_path / "target")

    states = {table.table: table.state for table in report.tables}
    assert {
        "inside": "current",
        "linked": "current",
        "pipe": "waiting",
        "stolen": "failed",
    } == states
    (reason,) = (str(table.reason) for table in report.tables if table.table == "stolen")
    assert "is a link that leads out of" in reason
    assert str(secret) in reason
    assert not (tmp_path / "target" / "stolen").exists()


def test_reports_escape_what_publishers_name(zone: ZoneWriter) -> None:
    """A folder's name is text in HTML."""
    zone.table("<script>alert(1)<", keys=["id"]).file([{"id": 1}], [9])

    page = mirrorlib.check(str(zone))._repr_html_()

    assert "<script>" not in page
    assert "&lt;script&gt;" in page


def test_errors_escape_what_files_hold() -> None:
    """Whatever fact of an error it is in; all of them stay in one line."""
    error = MirrorError(f"a{ESCAPE}", table=f"t{ESCAPE}", found=f"{ESCAPE}\nb\u202e", next_step="c")

    assert r"t\x1b[2J: a\x1b[2J (found \x1b[2J\nb\u202e). c" == str(error)


def test_tables_escape_what_rows_hold() -> None:
    """In what a feed tells, and in what differs, keys within."""
    change = Change(
        change="insert",
        version=1,
        timestamp="",
        before=None,
        after={"id": ESCAPE, "v": f"{ESCAPE}\n"},
    )
    differs = Difference.of(change, ["id"], show_values=True)

    for shown in (str(differs), str(Changes("t", (change,), ("id",), more=False))):
        assert r"\x1b[2J" in shown
        assert not {"\x1b", "\r"} & {*shown}


def test_large_metadata_is_not_read(zone: ZoneWriter) -> None:
    """It is refused by its size; a device in its place is no file."""
    table = zone.table("t", keys=["id"])
    table.file([{"id": 1}])
    metadata = table.folder / "_metadata.json"
    with metadata.open("wb") as file:
        file.truncate(1 << 34)  # which takes no room, and more memory than there is

    (finding,) = mirrorlib.check(str(zone)).findings
    assert "larger than what is read of such a file" in finding.found

    metadata.unlink()
    metadata.symlink_to("/dev/zero")
    assert "metadata-missing" in {finding.rule for finding in mirrorlib.check(str(zone)).findings}


@pytest.mark.parametrize(
    "levels, name, rule, said",
    [(600, "p{}=1", "not-checked", "p9=1"), (600, "p=", "no-files", "no change file")],
    ids=["more bytes than a path may have", "more levels than a stack has"],
)
def test_deep_partition_folders_are_listed_or_refused(
    zone: ZoneWriter, monkeypatch: pytest.MonkeyPatch, levels: int, name: str, rule: str, said: str
) -> None:
    """By the place that has no end; neither the check nor the listing runs out of its stack."""
    table = zone.table("t", keys=["id"])
    table.metadata({"keyColumns": ["id"], "isPartitionEnabled": True})
    monkeypatch.chdir(table.folder)
    for level in range(levels):
        Path(name.format(level)).mkdir()
        os.chdir(name.format(level))

    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(500)  # more levels nobody could take away again
    try:
        (finding,) = mirrorlib.check(str(zone)).findings
    finally:
        sys.setrecursionlimit(limit)

    assert rule == finding.rule
    assert said in finding.found


def test_no_value_of_a_row_is_logged(
    spark: SparkSession, zone: ZoneWriter, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Nor said in a report or a page: of what is applied, and of what has a value that does not fit."""
    caplog.set_level(logging.INFO)
    zone.table("good", keys=["id"]).file([{"id": SECRET, "v": SECRET}], [4])
    bad = zone.table("bad", keys=["id"])
    bad.file([{"id": SECRET, "v": 1}], [4])
    bad.file([{"id": SECRET, "v": SECRET}], [7])

    report = mirrorlib.apply(spark, str(zone), tmp_path / "target")

    assert {"good": "current", "bad": "failed"} == {one.table: one.state for one in report.tables}
    assert "good" in caplog.text
    page = mirrorlib.overview(tmp_path / "target")._repr_html_()
    assert "1 of 2 tables stopped." in unescape(page)
    assert (
        SECRET not in f"{caplog.text}{report}{report.to_dict()}{mirrorlib.check(str(zone))}{page}"
    )


def text_bomb(path: Path, begin: bytes, block: bytes, times: int, codec: str) -> None:
    """Write much text that takes little room."""
    with pa.CompressedOutputStream(str(path), codec) as file:
        file.write(begin)
        for _ in range(times):
            file.write(block)


BLOCK = 1 << 20
BOMBS = {
    "header": (b"", b"\0" * BLOCK, 64, "the header row is longer than 4 MiB"),
    "columns": (b"id", b",c" * (BLOCK // 2), 64, "the file has more than 30,000 columns"),
    "row": (b"id,v\n1,", b"a" * BLOCK, 1024, "a row is longer than 128 MiB"),
}


@pytest.mark.thorough("row-gzip")
@pytest.mark.parametrize("kind, codec", [*((kind, "gzip") for kind in BOMBS), ("row", "zstd")])
def test_a_bomb_is_refused_in_bounded_memory(zone: ZoneWriter, kind: str, codec: str) -> None:
    """By its name, in a process that may not have the memory that all of it takes."""
    begin, block, times, reason = BOMBS[kind]
    table = zone.table("t", keys=["id"])
    text_bomb(table.folder / "00000000000000000001.csv", begin, block, times, codec)

    assert reason in checked(zone, memory=2 << 30)


def test_rows_of_a_parquet_file_are_bounded(zone: ZoneWriter) -> None:
    """Its footer tells."""
    table = zone.table("t", keys=["id"])
    rows = pa.table({"id": [1], "v": ["a" * (129 << 20)]})
    pq.write_table(rows, table.folder / "00000000000000000001.parquet", compression="zstd")

    assert "a row has 129 MiB, and 128 at most are read" in checked(zone, memory=8 << 30, deep=True)


def checked(zone: ZoneWriter, *, memory: int, deep: bool = False) -> str:
    """Check a zone in a process of so much memory; give what it says."""
    # The process sets its limit itself: a function between fork and exec would run beside gRPC's threads.
    limit = f"import resource; resource.setrlimit(resource.RLIMIT_DATA, ({memory}, {memory}))"
    program = f"{limit}; from mirrorlib.cli.main import main; main()"
    words = [sys.executable, "-c", program, "check", str(zone), *(["--deep"] if deep else [])]
    done = subprocess.run(
        words,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "ARROW_DEFAULT_MEMORY_POOL": "system"},
    )
    return done.stdout + done.stderr


@pytest.mark.parametrize(
    "kind", ["string", "string_view", "json", "categories", "DELTA_BYTE_ARRAY"]
)
def test_a_dictionary_is_decoded_in_bounded_memory(tmp_path: Path, kind: str) -> None:
    """A value that all rows share comes in batches of few rows, as whatever its writer held or wrote it; usual texts in large ones."""
    text = pa.array(["a" * (1 << 20)] * 40)
    if kind == "json":
        values = pa.ExtensionArray.from_storage(pa.json_(), text)
    elif kind.startswith("DELTA"):
        values = text
    else:
        values = text.dictionary_encode() if kind == "categories" else text.cast(kind)
    part = pa.table({"v": values})
    bomb, usual = tmp_path / "bomb.parquet", tmp_path / "usual.parquet"
    limits: dict[str, Any] = {"dictionary_pagesize_limit": 1 << 30, "compression": "zstd"}
    if kind.startswith("DELTA"):
        limits |= {"use_dictionary": False, "column_encoding": kind}
    with pq.ParquetWriter(bomb, part.schema, **limits) as writer:
        for _ in range(6):
            writer.write_table(part)
    pq.write_table(pa.table({"v": [f"{n:020d}" for n in range(100_000)]}), usual, **limits)

    assert bomb.stat().st_size < 1 << 14
    with bomb.open("rb") as file:
        assert {True} == {batch.nbytes < 80 << 20 for batch in iter_batches(file)}
    with usual.open("rb") as file:
        assert 8192 == max(len(batch) for batch in iter_batches(file))


def test_wide_bytes_of_one_length_are_decoded_in_bounded_memory(tmp_path: Path) -> None:
    """A few KB of a file that are 128 MB."""
    path = tmp_path / "wide.parquet"
    part = pa.array([b"a" * (1 << 16)] * 250, pa.binary(1 << 16))
    pq.write_table(pa.table({"v": pa.chunked_array([part] * 8)}), path, compression="zstd")

    with path.open("rb") as file:
        assert {True} == {batch.nbytes < 80 << 20 for batch in iter_batches(file)}


def test_a_footer_is_parsed_as_often_however_many_row_groups_it_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It grows with them: parsed for each, time would grow by the square."""
    path, opened = tmp_path / "groups.parquet", []
    rows = pa.table({"v": ["a" * (1 << 20)] * 4})
    pq.write_table(rows, path, row_group_size=1, use_dictionary=False)
    open_file = parquet.open_parquet
    monkeypatch.setattr(
        parquet, "open_parquet", lambda *a, **k: opened.append(a) or open_file(*a, **k)
    )

    with path.open("rb") as file:
        assert 4 == sum(len(batch) for batch in iter_batches(file))
    assert 2 == len(opened)


@pytest.mark.parametrize(
    "url",
    [
        f"s3://AKIA:{SECRET}@bucket/zone",
        f"s3://AKIA:se/{SECRET}@bucket/zone",
        f"abfss://zone@account.dfs.core.windows.net/z?sig={SECRET}",
        f"https://account.blob.core.windows.net/c/z?sv=1&sig={SECRET}",
        f"jdbc:postgresql://me:{SECRET}@host/db",
        f"jdbc:postgresql://host/db?password={SECRET}",
    ],
)
def test_credentials_in_a_places_url_are_refused_and_not_repeated(url: str) -> None:
    """Before anything is asked of the place."""
    with pytest.raises(LandingZoneError, match="as credentials are written") as caught:
        open_store(url)

    assert SECRET not in f"{caught.value.to_dict()}{caught.value!r}"


@pytest.mark.parametrize("option", ["password", "passwd", "sasl.passwor", "token", "sig"])
def test_receivers_passwords_are_not_shown(option: str) -> None:
    """However the option is called."""
    assert SECRET not in shown_url(f"kafka://host:1/topic?a=1&{option}={SECRET}&b=2")


def test_a_small_file_is_read_and_a_larger_one_is_not(tmp_path: Path) -> None:
    """The limit is the caller's."""
    (tmp_path / "f").write_bytes(b"12345")
    store = open_store(tmp_path)

    assert b"12345" == store.read("f", most=5)
    with pytest.raises(StoreError, match="larger than what is read"):
        store.read("f", most=4)
