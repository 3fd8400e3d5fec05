"""Where a receiver is, as its URL says it."""

from __future__ import annotations

from pathlib import Path

import pytest

from mirrorlib import cli
from mirrorlib.errors import LandingZoneError
from mirrorlib.export.sinks.open import check_apart, is_same_url


@pytest.mark.parametrize("inside", ["/copy", "/a/b/"])
def test_a_delta_receiver_inside_its_target_is_refused(tmp_path: Path, inside: str) -> None:
    """The next run would deliver the copies too."""
    with pytest.raises(LandingZoneError, match="inside the target"):
        check_apart(f"delta:{tmp_path}{inside}", f"{tmp_path}/")


def test_what_lies_beside_the_target_is_not_inside(tmp_path: Path) -> None:
    """A name that begins like the target's; the target itself, which is refused table by table; what is no Delta path."""
    for to in (
        f"delta:{tmp_path}2",
        f"delta:{tmp_path}/",
        f"files:{tmp_path}/out",
        "delta:catalog.schema",
    ):
        check_apart(to, str(tmp_path))


def test_a_slash_at_the_end_makes_no_other_receiver() -> None:
    """But options do, and places."""
    assert is_same_url("delta:/copy", "delta:/copy/")
    assert is_same_url("files:/out/?format=csv", "files:/out?format=csv")
    assert not is_same_url("files:/out?format=csv", "files:/out")
    assert not is_same_url("delta:/copy", "delta:/copy/2")


class NoSparkError(Exception):
    """What a Spark says that is not to be started."""


def test_spark_brings_the_connector_of_the_receivers_store(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Not only of the target's."""

    def local_spark(*, memory: str, stores: list[str]) -> None:
        del memory
        raise NoSparkError(*stores)

    monkeypatch.setattr("mirrorlib.session.local_spark", local_spark)
    with pytest.raises(NoSparkError) as asked:
        cli.main(["export", str(tmp_path), "--consumer", "c", "--to", "delta:s3://bucket/copy"])
    assert "s3://bucket/copy" in asked.value.args
