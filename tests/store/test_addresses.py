"""Places are given as text, or as path objects, wherever the package takes one."""

from __future__ import annotations

from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, cast

import pytest

import mirrorlib
from mirrorlib.cli.main import make_parser
from mirrorlib.delta.address import address_of, find_tables
from mirrorlib.errors import LandingZoneError
from mirrorlib.store import open_store
from mirrorlib.store.target import Target

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.zones import ZoneWriter


def test_a_path_object_opens_what_its_text_does(tmp_path: Path) -> None:
    """The folder, and a target with its state."""
    text, path = str(tmp_path), PurePosixPath(tmp_path)

    assert open_store(text).url == open_store(path).url
    assert Target.of(text, catalog=None, state=None) == Target.of(path, catalog=None, state=None)
    named = Target.of(Path("dbo"), catalog="c", state=path)
    assert ("dbo", text) == (named.place, named.state)


def test_an_empty_place_of_the_journal_is_none() -> None:
    """A job's parameter may be empty: with a catalog the journal would be on the driver's disk, and gone with it."""
    with pytest.raises(LandingZoneError, match="no folder for the journal"):
        Target.of("mirrors", catalog="prod", state="")
    arguments = make_parser().parse_args(["ledger", "t", "--state=", "--to="])
    assert (None, None) == (arguments.state, arguments.to)


def test_the_folder_that_a_disk_keeps_for_itself_is_not_looked_into(tmp_path: Path) -> None:
    """It is closed to all but root, and a target may be the root of a disk."""
    for folder in ("orders/_delta_log", "lost+found/x/_delta_log", "_x/_delta_log"):
        (tmp_path / folder).mkdir(parents=True)

    assert ["orders"] == [name for name, _ in find_tables(cast("Any", None), str(tmp_path), None)]


@pytest.mark.parametrize(
    "place",
    [
        "",
        "s3:/bucket/zone",
        "dbfs:/tmp/x",
        "file://host/zone",
        Path("s3://bucket/zone"),
        "s3://bucket/zone#2",  # would be opened as s3://bucket/zone
        "file:///zone#2",
    ],
)
def test_what_is_meant_for_elsewhere_is_no_local_folder(
    place: str | Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A variable that is empty, a URL that lost a slash, one of another machine."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(LandingZoneError):
        open_store(place)

    for local in ("a:b", "./a:/b", "C:/x", "a#b?"):
        assert open_store(local).url == str(tmp_path / local)
    assert open_store("file://localhost/x").url == open_store("/x").url
    assert [] == [*tmp_path.iterdir()]


def test_a_path_object_without_a_slash_is_no_table_of_a_catalog() -> None:
    """A text without one is."""
    assert ("orders", str(Path.cwd() / "orders")) == (
        address_of("orders"),
        address_of(Path("orders")),
    )


@pytest.mark.thorough
def test_every_public_function_takes_path_objects(
    spark: SparkSession, zone: ZoneWriter, target: str, tmp_path: Path
) -> None:
    """From the landing zone to the consumer."""
    zone.table("orders", keys=["id"]).file([{"id": 1}])
    source, tables, state = Path(str(zone)), Path(target), tmp_path / "state"

    assert mirrorlib.plan(spark, source, tables, state=state).ok
    assert mirrorlib.apply(spark, source, tables, state=state).ok
    assert mirrorlib.check(source).ok
    assert mirrorlib.status(tables, state=state).ok
    assert 1 == mirrorlib.read_feed(spark, tables / "orders", after=-1).count()
    assert mirrorlib.enable_feed(spark, tables).ok
    to = f"files:{tmp_path}/out?format=jsonl"
    assert mirrorlib.export(spark, tables, consumer="lake", to=to, state=state).ok
    assert mirrorlib.consumers(tables, state=state).ok
    assert mirrorlib.vacuum(spark, tables, state=state, dry_run=True).ok
    assert ("orders",) == mirrorlib.rewind_consumer(tables, "lake", to="snapshot", state=state)
    assert ("orders",) == mirrorlib.drop_consumer(tables, "lake", state=state)
    assert 2 == mirrorlib.reset(spark, tables, "orders", state=state).ordinal
