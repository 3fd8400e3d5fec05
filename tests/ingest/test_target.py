"""A target is known by where it is, whatever it is called, and a zone never lies in one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from mirrorlib.errors import LandingZoneError
from mirrorlib.ingest.job import refuse_overlap
from mirrorlib.store import open_store
from mirrorlib.store.target import Target

if TYPE_CHECKING:
    from pathlib import Path


def target_at(place: str, *, catalog: str | None = None, state: str | None = None) -> Target:
    """Make a target."""
    return Target.of(place, catalog=catalog, state=state)


def test_a_state_folder_beside_its_tables_moves_with_them(tmp_path: Path) -> None:
    """It knows its target by the way to it; one that lies elsewhere by its place, links apart."""
    (tmp_path / "tables").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "tables")
    tables, link = str(tmp_path / "tables"), str(tmp_path / "link")

    assert ".." == target_at(tables).owner == target_at(link).owner
    assert ".." == target_at(tables, state=f"{link}/_mirrorlib").owner
    assert "../.." == target_at(tables, state=f"{tables}/a/b").owner
    assert tables == target_at(link, state=str(tmp_path / "state")).owner
    assert ".." == target_at("s3a://b/tables", state="s3://b/tables/_mirrorlib").owner
    assert "c.bronze" == target_at("Bronze", catalog="C", state=tables).owner


@pytest.mark.parametrize(
    "zone,place",
    [
        ("{tmp}/link/zone", "{tmp}/tables"),
        ("{tmp}/tables", "{tmp}/link/inner"),
        ("s3a://b/tables/zone", "s3://b/tables"),
        ("s3://b/tables", "s3a://b/tables"),
    ],
)
def test_a_zone_in_its_target_is_refused_whatever_it_is_called(
    tmp_path: Path, zone: str, place: str
) -> None:
    """By a link, or by another name of the store."""
    (tmp_path / "tables").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "tables")
    url = open_store(zone.format(tmp=tmp_path)).url

    with pytest.raises(LandingZoneError, match="one inside the other"):
        refuse_overlap(url, target_at(place.format(tmp=tmp_path)))

    refuse_overlap(f"{tmp_path}/tables2", target_at(f"{tmp_path}/tables"))
