"""Where a receiver is, as its URL says it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from mirrorlib.cli import main as cli
from mirrorlib.delivery.sinks.open import (
    absolute,
    check_disjoint,
    check_no_table,
    is_same_url,
    open_sink,
    shown_url,
)
from mirrorlib.errors import LandingZoneError
from mirrorlib.journal.disk import Journal
from mirrorlib.journal.registry import Registry
from mirrorlib.names import parse_name
from mirrorlib.store import LocalStore, open_store
from operate.test_status import plan_of
from zones import ZoneWriter


@pytest.mark.parametrize("inside", ["/copy", "/a/b/"])
def test_a_delta_receiver_inside_its_target_is_refused(tmp_path: Path, inside: str) -> None:
    """The next run would deliver the copies too."""
    with pytest.raises(LandingZoneError, match="inside the target"):
        check_disjoint(f"delta:{tmp_path}{inside}", f"{tmp_path}/")
    with pytest.raises(LandingZoneError, match="inside the target"):
        check_disjoint(f"delta:s3a://bucket/tables{inside}", "s3://bucket/tables")


def test_what_lies_beside_the_target_is_not_inside(tmp_path: Path) -> None:
    """A name that begins like the target's; the target itself, which is refused table by table; what is no Delta path."""
    for to in (
        f"delta:{tmp_path}2",
        f"delta:{tmp_path}/",
        f"files:{tmp_path}/out",
        f"zone:{tmp_path}2",
        "delta:catalog.schema",
        "jdbc:sqlite:here",
    ):
        check_disjoint(to, str(tmp_path))


@pytest.mark.parametrize("to", ["files:{}/?format=csv", "zone:{}"])
def test_files_are_not_delivered_to_the_target_itself(tmp_path: Path, to: str) -> None:
    """They would lie in the folders of its tables."""
    with pytest.raises(LandingZoneError, match="is the target itself"):
        check_disjoint(to.format(tmp_path), str(tmp_path))


@pytest.mark.parametrize("target", ["tables", None])
@pytest.mark.parametrize("to", ["files:{}?format=csv", "zone:{}", "delta:{}"])
def test_nothing_is_delivered_into_a_delta_table(
    tmp_path: Path, to: str, target: str | None
) -> None:
    """Of the target or of anybody, at any depth, whether the target is a folder or a catalog's schema."""
    table = tmp_path / "elsewhere" / "orders"
    (table / "_delta_log").mkdir(parents=True)
    (table / "_delta_log" / f"{0:020d}.json").touch()
    root = None if target is None else str(tmp_path / target)
    for place in (table, table / "exports" / "2026"):
        with pytest.raises(LandingZoneError, match=r"the folder of a Delta table.*orders"):
            check_disjoint(to.format(place), root)
    check_disjoint(to.format(table.parent), root)
    with pytest.raises(LandingZoneError, match=r"orders/more: the receiver lies in the folder"):
        check_no_table(LocalStore(table.parent), "orders/more", "orders/more")
    check_no_table(LocalStore(table.parent), "more/orders", "more/orders")


def test_a_slash_at_the_end_makes_no_other_receiver() -> None:
    """But options do, and places."""
    assert is_same_url("delta:/copy", "delta:/copy/")
    assert is_same_url("files:/out/?format=csv", "files:/out?format=csv")
    assert not is_same_url("files:/out?format=csv", "files:/out")
    assert not is_same_url("delta:/copy", "delta:/copy/2")


@pytest.mark.parametrize(
    "to, expected",
    [
        ("delta:./copy", "delta:{}/copy"),
        ("files:audit?format=csv", "files:{}/audit?format=csv"),
        ("zone:../here/out/", "zone:{}/out"),
        ("jdbc:sqlite:copy.db", "jdbc:sqlite:{}/copy.db"),
        *((to, to) for to in ("delta:lake.silver", "delta:/copy", "files:s3://a/b", "zone:dbfs:/Volumes/a/b/c", "files:~/a",
                              "jdbc:postgresql://host/db", "kafka://host:9092/topic")),
    ],
)  # fmt: skip
def test_a_relative_path_is_registered_as_the_place_that_it_means(
    to: str, expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From another working directory it means another; what an older mirrorlib registered goes on from where it began."""
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    assert expected.format(Path.cwd()) == absolute(to)
    assert is_same_url(to, expected.format(Path.cwd()))
    monkeypatch.chdir(tmp_path)
    assert is_same_url(to, expected.format(tmp_path / "here")) == (to == expected)


@pytest.mark.parametrize(
    "to, shown",
    [
        ("jdbc:postgresql://me:pa:ss@host:1/db", "jdbc:postgresql://me:***@host:1/db"),
        ("jdbc:postgresql://me:pa?ss@host/db", "jdbc:postgresql://me:***@host/db"),
        ("postgresql://me:p@ss@host/db?a=b@c", "postgresql://me:***@host/db?a=b@c"),
        ("jdbc:postgresql://h/d?scram_client_key=pass&a=1", "jdbc:postgresql://h/d?scram_client_key=***&a=1"),
        ("jdbc:postgresql://h/d?oauth_client_secret=pass", "jdbc:postgresql://h/d?oauth_client_secret=***"),
        ("jdbc:postgresql://h/d?p%61ssword=pass", "jdbc:postgresql://h/d?p%61ssword=***"),
        ("jdbc:postgresql://h:1/d?user=me@host&sslkey=k", "jdbc:postgresql://h:1/d?user=me@host&sslkey=k"),
        ("jdbc:postgresql://h/a%20b?user=me", "jdbc:postgresql://h/a%20b?user=me"),
        ("delta:abfss://box@account/a:b", "delta:abfss://box@account/a:b"),
    ],
)  # fmt: skip
def test_no_part_of_a_password_is_shown(to: str, shown: str) -> None:
    """Whatever characters it has that mean something in a URL, and however the option that holds it is called."""
    assert shown_url(to) == shown


@pytest.mark.parametrize(
    "to, why",
    [
        ("postgresql://me:qx/xq@host/db", "nothing is known"),
        ("jdbc:postgresql://me:qx/xq@host/db", "has a character"),
        ("kafka://me:qx/xq@host:9092/topic", "has a user"),
        ("kafka://me:qx?x/q@host:9092/topic", "names no broker"),
    ],
)
def test_a_url_that_is_refused_is_not_repeated(to: str, why: str) -> None:
    """It may have a password, which stands anywhere."""
    pytest.importorskip("confluent_kafka", reason="pip install '.[kafka]'")
    pytest.importorskip("psycopg", reason="pip install '.[postgres]'")
    with pytest.raises(LandingZoneError, match=why) as refused:
        open_sink(to, None)
    assert not re.search("qx|q@", str(refused.value))


@pytest.mark.parametrize("to", ["zone:", "files:", "files:?format=csv", "delta:", "jdbc:", "kafka"])
def test_a_receiver_without_a_place_is_refused(to: str) -> None:
    """Before its module is imported; the error says what to give."""
    with pytest.raises(LandingZoneError, match=r"files:URL, zone:URL"):
        open_sink(to, None)


def test_a_password_makes_no_other_receiver() -> None:
    """So that it can be left to the environment later, and a registry that kept more of it than it should goes on."""
    for with_one in (
        "jdbc:postgresql://me:***@host/db?user=x&a=1",
        "jdbc:postgresql://me:pa:***@host/db?user=x&a=1",
        "jdbc:postgresql://me@host/db?password=***&user=x&a=1",
        "jdbc:postgresql://me@host/db?user=x&a=1&sslpassword=pass",
    ):
        assert is_same_url(with_one, "jdbc:postgresql://me@host/db?user=x&a=1")
    assert is_same_url("jdbc:postgresql://host/db?password=***", "jdbc:postgresql://host/db")
    assert not is_same_url("jdbc:postgresql://me:***@host/db", "jdbc:postgresql://host/db")


class NoSparkError(Exception):
    """What a Spark says that is not to be started."""


@pytest.mark.parametrize(
    "command",
    [
        ["export", "{}", "--consumer", "c", "--to", "delta:s3://bucket/it"],
        ["verify", "-", "{}", "--consumer", "c"],
        ["rebuild", "{}", "orders"],
    ],
)
def test_spark_brings_the_connectors_of_all_stores_that_it_reads_or_writes(
    monkeypatch: pytest.MonkeyPatch, zone: ZoneWriter, target: str, command: list[str]
) -> None:
    """Not only that of the target's: of a receiver's as it is said or kept, of the zone that a journal tells."""
    state, name = open_store(f"{target}/_mirrorlib"), parse_name("orders")
    wanted = {"to": "delta:s3://bucket/it", "mode": "current", "net": False, "start_at": None}
    Registry(state, "c", name).begin({**wanted, "table_id": "t", "on_expired": "fail"}, 1)
    journal, table = Journal(state, name), zone.table("orders", keys=["id"])
    table.file([{"id": 1}])
    life = journal.begin_life("first seen", "s3://bucket/it", 1)
    journal.write_plan(life, plan_of(life.uuid, "s3://bucket/it", table))

    def local_spark(*, memory: str, stores: list[str]) -> None:
        del memory
        raise NoSparkError(*stores)

    monkeypatch.setattr("mirrorlib.platform.session.local_spark", local_spark)
    with pytest.raises(NoSparkError) as asked:
        cli.main([word.format(target) for word in command])
    assert "s3://bucket/it" in asked.value.args
