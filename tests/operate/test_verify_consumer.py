"""What a consumer holds is compared with its source at the version that it has; what differs is named, by key."""

from __future__ import annotations

import contextlib
import json
import shutil
import sqlite3
from datetime import date
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest
from pyspark.errors import NumberFormatException

import mirrorlib
from delivery.receivers import History, embedded_receivers
from mirrorlib.cli.main import main
from mirrorlib.commit.last_commit import LastCommit
from mirrorlib.errors import (
    FileChangedError,
    ForeignWriteError,
    JournalError,
    LandingZoneError,
    SchemaError,
    StoreError,
)
from mirrorlib.identifiers import quote
from mirrorlib.journal.registry import Registry
from mirrorlib.names import parse_name
from mirrorlib.operate.verify import receivers as reading
from mirrorlib.operate.verify.consumer import _of_receiver
from mirrorlib.operate.verify.database import typed_rows
from mirrorlib.operate.verify.receivers import read_received
from mirrorlib.store import open_store

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

# What the columns of a table of every type are, and three rows of values that text, JSON and databases trip over.
COLUMNS = {
    "id": ("bigint", ("1", "2", "3")),
    "flag": ("boolean", ("true", "false", "NULL")),
    "tiny": ("tinyint", ("-128", "127", "NULL")),
    "number": ("int", ("-2147483648", "0", "NULL")),
    "real": ("float", ("float('0.1')", "float('NaN')", "NULL")),
    "wide": ("double", ("double('-0.0')", "double('Infinity')", "1.0E-7D")),
    "price": ("decimal(38,10)", ("1E-10BD", "-12345678901234567890.5BD", "NULL")),
    "name": ("string", ("''", "'NULL'", "NULL")),
    "text": ("string", (r"'a\tb\\N\r\n\"c\" , '", "'é\U0001f600'", r"'\n'")),
    "raw": ("binary", ("X''", "X'00FF5C'", "NULL")),
    "day": ("date", ("DATE'0001-01-01'", "DATE'9999-12-31'", "NULL")),
    "moment": (
        "timestamp",
        ("TIMESTAMP'1969-12-31T23:59:59.999999Z'", "TIMESTAMP'2024-02-29T12:00:00Z'", "NULL"),
    ),
    "clock": ("timestamp_ntz", ("TIMESTAMP_NTZ'2024-03-31T02:30:00.000001'", "NULL", "NULL")),
    "_corrupt_record": ("string", ("'x'", "'{'", "NULL")),
    "Odd, name.x": ("string", ("'x'", "'y'", "NULL")),
}
NESTED = {
    "point": (
        "struct<x:double,tags:array<string>,at:timestamp,price:decimal(10,2)>",
        (
            "named_struct('x', double('NaN'), 'tags', array('a', NULL), 'at', now(), 'price', 1.50BD)",
            "NULL",
            "named_struct('x', 1D, 'tags', NULL, 'at', NULL, 'price', NULL)",
        ),
    ),
    "labels": ("map<string,int>", ("map('b', 1, 'a', 2)", "NULL", "map()")),
}
RECEIVERS = {
    "log": ("delta:{}/log", {"mode": "changes"}),
    "copy": ("delta:{}/copy", {"mode": "current"}),
    "past": ("delta:{}/past", {"mode": "scd2"}),
    "parquet": ("files:{}/parquet", {}),
    "lines": ("files:{}/lines?format=jsonl", {}),
    "csv": ("files:{}/csv?format=csv", {}),
    "zone": ("zone:{}/zone", {}),
    "base": ("jdbc:sqlite:{}/base", {}),
}


def make_table(spark: SparkSession, place: str, columns: dict[str, Any]) -> None:
    """Make a table with a feed and three rows."""
    ddl = ", ".join(f"{quote(name)} {kind}" for name, (kind, _) in columns.items())
    features = "'delta.enableChangeDataFeed' = 'true', 'delta.columnMapping.mode' = 'name'"
    spark.sql(f"CREATE TABLE delta.`{place}` ({ddl}) USING delta TBLPROPERTIES ({features})")
    for row in range(3):
        values = ", ".join(f"CAST({told[row]} AS {kind})" for kind, told in columns.values())
        spark.sql(f"INSERT INTO delta.`{place}` SELECT {values}")


def verified(spark: SparkSession, target: str, consumer: str, **options: Any) -> Any:
    """Verify a consumer's one table."""
    (told,) = mirrorlib.verify_consumer(spark, target, consumer=consumer, **options).tables
    return told


@pytest.mark.thorough
@pytest.mark.smoke
@pytest.mark.parametrize("names", ["copy,lines,base", "log,past,parts,zone"])
def test_every_receiver_is_equal_until_somebody_touches_it(
    spark: SparkSession, tmp_path: Path, names: str
) -> None:
    """A snapshot, or what came since the first version; one row less is named by its key, and so is one that differs."""
    history = History(spark, tmp_path, "orders")
    receivers = [one for one in embedded_receivers(tmp_path) if one.name in names.split(",")]
    for _ in range(2):
        history.publish(2)
        for receiver in receivers:
            receiver.export(history)
    history.publish(1)  # which no receiver has yet, and that is no difference
    root = tmp_path / "receivers"
    key = min(history.state("orders", history.versions["orders"] - 1))
    touch: dict[str, Callable[[], object]] = {
        "log": lambda: spark.sql(
            f"INSERT INTO delta.`{root}/log/orders` SELECT * FROM delta.`{root}/log/orders` LIMIT 1"
        ),
        "copy": lambda: spark.sql(f"DELETE FROM delta.`{root}/copy/orders` WHERE id = {key}"),
        "past": lambda: spark.sql(
            f"UPDATE delta.`{root}/past/orders` SET v = '!' WHERE id = {key}"
        ),
        "lines": lambda: next(root.glob("lines/orders/*.jsonl")).unlink(),
        "parts": lambda: next(root.glob("parts/orders/*.parquet")).write_bytes(b""),
        "zone": lambda: next(root.glob("zone/orders/*.parquet")).unlink(),
        "base": lambda: change_database(
            root / "base", f"UPDATE orders SET v = '!' WHERE id = {key}"
        ),
    }

    before = {one.name: verified(spark, history.target, one.name) for one in receivers}
    for name in before:
        touch[name]()
    after = {one.name: verified(spark, history.target, one.name) for one in receivers}

    assert dict.fromkeys(before, ("equal", ())) == {
        name: (told.state, told.reasons) for name, told in before.items()
    }
    assert {len(history.state("orders", told.version)) for told in before.values()} == {
        told.found for told in before.values()
    }
    wanted = {"copy": "is missing", "past": "differs in v", "base": "differs in v"}
    for name, told in after.items():
        named = [(one.key, one.what) for one in told.differences]
        if name in wanted:
            assert [({"id": key}, wanted[name])] == named
        elif name == "log":
            assert 1 == len(named)
        else:
            assert "not verified" == told.state, told
            assert "is gone" in told.reasons[0]


def change_database(path: Path, statement: str) -> None:
    """Change a SQLite file behind everybody's back."""
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(statement)


@pytest.mark.thorough
@pytest.mark.parametrize("kind", RECEIVERS)
def test_values_of_every_type_come_back(spark: SparkSession, tmp_path: Path, kind: str) -> None:
    """Whatever text, JSON or a database makes of a value is read back as the same value; what is none, is said."""
    to, options = RECEIVERS[kind]
    nested = {} if kind in {"csv", "zone"} else NESTED
    if kind == "past":  # a history cannot compare maps
        nested = {name: told for name, told in NESTED.items() if name != "labels"}
    check_every_type(spark, tmp_path, nested, to=to.format(tmp_path), **options)


@pytest.mark.thorough
def test_a_backtick_in_a_name_is_read_back(spark: SparkSession, tmp_path: Path) -> None:
    """From CSV, whose columns are cast by name, and a folder that looks like a pattern: Spark would read it twice.

    Only new rows: Delta's own updates do not take such a name.
    """
    target, to = f"{tmp_path}/target", f"files:{tmp_path}/[csv]?format=csv"
    make_table(spark, f"{target}/odd", {"id": COLUMNS["id"], "a`b": COLUMNS["text"]})
    first = mirrorlib.export(spark, target, consumer="odd", keys=["id"], to=to)
    spark.sql(f"INSERT INTO delta.`{target}/odd` VALUES (4, 'd')")
    second = mirrorlib.export(spark, target, consumer="odd", keys=["id"], to=to)
    told = verified(spark, target, "odd")
    assert (True, True) == (first.ok, second.ok)
    assert ("equal", 4, ()) == (told.state, told.found, told.reasons)


@pytest.mark.thorough
def test_a_server_and_a_catalog_are_read_back(spark: SparkSession, tmp_path: Path) -> None:
    """PostgreSQL, whose address is given whole, as passwords are kept nowhere; and tables by name."""
    pytest.importorskip("psycopg", reason="pip install '.[postgres]'")
    from delivery.postgres import running_cluster

    spark.sql(f"CREATE SCHEMA verify_to LOCATION '{tmp_path}/schema'")
    check_every_type(
        spark, tmp_path / "named", NESTED, to="delta:spark_catalog.verify_to", mode="current"
    )
    with running_cluster() as cluster:
        cluster.make_database("received")
        to = f"jdbc:{cluster.url('received')}"
        target = check_every_type(spark, tmp_path / "served", NESTED, to=to)
        with cluster.admin("received") as connection:
            connection.execute("UPDATE every SET raw = 'x', point = NULL WHERE id = 1")

        told = verified(spark, target, "every", to=to)
        unknown = verified(spark, target, "every")

    assert [({"id": 1}, "differs in raw, point")] == [
        (one.key, one.what) for one in told.differences
    ]
    assert "passwords are kept nowhere" in unknown.reasons[0]


def check_every_type(
    spark: SparkSession, folder: Path, nested: dict[str, Any], **options: Any
) -> str:
    """Export a table of every type, change it, and verify it each time; return its target."""
    target, table = f"{folder}/target", f"{folder}/target/every"
    make_table(spark, table, COLUMNS | nested)
    left = ("not verified: the column labels",) if "labels" in nested else ()
    for number in (1, 2):
        report = mirrorlib.export(spark, target, consumer="every", keys=["id"], **options)
        assert report.ok, str(report)
        to = {"to": options["to"]} if "password" in options["to"] else {}
        told = verified(spark, target, "every", **to)
        assert ("equal", 3, 3, left) == (told.state, told.expected, told.found, told.reasons), told
        spark.sql(f"UPDATE delta.`{table}` SET number = {number}, raw = X'01' WHERE id = 2")
    return target


@pytest.mark.thorough
def test_a_copy_that_began_in_the_middle_has_what_changed_since(
    spark: SparkSession, tmp_path: Path
) -> None:
    """A key that was changed behind the version has to be there, and no other; without keys, or net, nothing tells."""
    history = History(spark, tmp_path, "orders")
    history.publish(6)
    middle = 3
    begun: dict[str, dict[str, Any]] = {
        "copy": {"to": f"delta:{tmp_path}/copy", "mode": "current"},
        "zone": {"to": f"zone:{tmp_path}/zone"},
        "log": {"to": f"delta:{tmp_path}/log"},
        "files": {"to": f"files:{tmp_path}/files"},
        "base": {"to": f"jdbc:sqlite:{tmp_path}/base"},
        "net": {"to": f"delta:{tmp_path}/net", "mode": "current", "net": True},
    }
    for name, options in begun.items():
        report = mirrorlib.export(
            spark, history.target, consumer=name, start=middle, keys=["id"], **options
        )
        assert report.ok, str(report)

    told = {name: verified(spark, history.target, name) for name in begun}

    assert "which rows it was given is told by no key" in told.pop("net").reasons[0]
    assert dict.fromkeys(told, "equal") == {name: one.state for name, one in told.items()}, told


@pytest.mark.thorough
def test_a_rewound_log_counts_from_where_its_stream_began(
    spark: SparkSession, tmp_path: Path
) -> None:
    """A log holds windows again after a rewind, and all rows again after a snapshot: neither is a difference."""
    history = History(spark, tmp_path, "orders")
    history.publish(4)
    places = {"log": f"delta:{tmp_path}/log", "files": f"files:{tmp_path}/files"}

    for beginning in (None, 2, "snapshot", 3):
        for name, to in places.items():
            if beginning is not None:
                mirrorlib.rewind_consumer(history.target, name, beginning)
            assert mirrorlib.export(spark, history.target, consumer=name, to=to, keys=["id"]).ok
            history.publish(1)
            assert mirrorlib.export(spark, history.target, consumer=name, to=to, keys=["id"]).ok
        states = {name: verified(spark, history.target, name).state for name in places}
        assert dict.fromkeys(places, "equal") == states, beginning


def test_what_spark_says_of_a_receivers_value_is_not_repeated(tmp_path: Path) -> None:
    """Its texts hold the value."""
    registry = Registry(open_store(str(tmp_path)), "lake", parse_name("orders"))
    error = NumberFormatException("[CAST_INVALID_INPUT] The value 'Meier' cannot be cast")

    with pytest.raises(StoreError, match="does not fit the type") as told, _of_receiver(registry):
        raise error

    assert "Meier" not in str(told.value)


def test_a_column_that_stayed_wider_spells_the_same_values_longer(spark: SparkSession) -> None:
    """Its table began anew with a narrower type, which no database's column follows; what is more is no such value."""
    ddl = "d decimal(10,2), w decimal(5,0), n int, day date"
    schema = spark.createDataFrame([], ddl).schema
    typed = (Decimal("1.50"), Decimal(3), 4, date(2026, 1, 2))
    texts = [
        ("1.5000", "3.00", "4.0", f"2026-01-02 00:00:00{zone}") for zone in ("", "+00", "+00:00")
    ]
    more = [
        ("1.5001", *texts[0][1:]),
        (*texts[0][:3], "2026-01-02 01:00:00+00"),
        (*texts[0][:2], "4.5", texts[0][3]),
    ]

    def read(*rows: tuple[str, ...]) -> list[tuple[object, ...]]:
        held = spark.createDataFrame(rows, "c0 string, c1 string, c2 string, c3 string")
        return [(*row,) for row in typed_rows(held, schema.names, schema, "orders").collect()]

    assert [typed] * 3 == read(*texts)
    for far in ("+12026-01-02", "-0044-03-15"):  # which Python has not
        held = spark.createDataFrame(
            [(*texts[0][:3], far)], "c0 string, c1 string, c2 string, c3 string"
        )
        assert (
            1 == typed_rows(held, schema.names, schema, "orders").where("day IS NOT NULL").count()
        )
    for row, column in zip(more, ("d", "day", "n"), strict=True):
        with pytest.raises(SchemaError, match=f"column {column}: the database holds a value"):
            read(row)


@pytest.mark.thorough
def test_what_cannot_be_verified_is_said(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A receiver of another kind or place, an unknown consumer, a table made anew, a value of another type: exit code 1.

    So is a first window that is there, and whose exporter was killed before it wrote that down.
    """
    history = History(spark, tmp_path, "orders")
    history.publish(1)
    target, base = history.target, tmp_path / "base"

    class Own:
        """A receiver of somebody's own."""

        def position(self, _stream: object) -> int:
            return 0

        def deliver(self, _delivery: object) -> int:
            return 0

    receivers: dict[str, Any] = {
        "own": Own(),
        "base": f"jdbc:sqlite:{base}",
        "gone": f"files:{tmp_path}/gone",
    }
    for name, to in receivers.items():
        assert mirrorlib.export(spark, target, consumer=name, to=to, keys=["id"]).ok
    (done,) = Path(target).glob("_mirrorlib/consumers/base/orders/**/*.done.json")
    done.rename(tmp_path / "done")
    assert "in the middle of a window" in verified(spark, target, "base").reasons[0]
    (tmp_path / "done").rename(done)
    change_database(base, "UPDATE orders SET id = 'x' WHERE id = (SELECT min(id) FROM orders)")
    command = ["verify", "-", target, "--json", "--consumer"]

    assert 1 == main([*command, "own"])
    assert "nothing reads back what such a receiver holds" in capsys.readouterr().out
    assert 1 == main([*command, "base"])
    (told,) = json.loads(capsys.readouterr().out)["tables"]
    assert "the database holds a value that is none of the column's type" in told["reasons"][0]
    assert "column id" in told["reasons"][0]
    with pytest.raises(SystemExit):
        main([*command, "base", "--mark"])
    with pytest.raises(JournalError, match="no consumer nobody is registered"):
        mirrorlib.verify_consumer(spark, target, consumer="nobody")
    elsewhere = verified(spark, target, "gone", to=f"files:{tmp_path}/elsewhere")
    assert (
        LandingZoneError("").advice in elsewhere.reasons[0]
        or "another address" in elsewhere.reasons[0]
    )
    shutil.rmtree(f"{target}/orders")
    History(spark, tmp_path, "orders").publish(1)
    assert "a table that was made anew" in verified(spark, target, "gone").reasons[0]


def test_a_receiver_whose_log_has_forgotten_is_none_of_somebody_elses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is only not known how far it goes; no snapshot is advised for that."""
    told: Any = {"log": None, "newest": 9}
    monkeypatch.setattr(reading, "find_table", lambda *_: SimpleNamespace(location=""))
    monkeypatch.setattr(reading, "open_log", lambda *_: None)
    stage, stream = SimpleNamespace(spark=None), SimpleNamespace(table="t", consumer="lake")
    for complete, kind, words in (
        (True, ForeignWriteError, "does not hold what the consumer was given"),
        (False, FileChangedError, "does not tell any more what was written last.*verify then"),
    ):
        last = LastCommit(**told, complete=complete)
        monkeypatch.setattr(reading, "read_last_commit", lambda _, last=last: last)
        with pytest.raises(kind, match=words):
            read_received(cast("Any", stage), cast("Any", stream), f"delta:{tmp_path}")


@pytest.mark.thorough
def test_what_is_inside_a_value_is_compared(spark: SparkSession, tmp_path: Path) -> None:
    """A NULL that has moved from one field to the next, an empty list and one of a NULL; and text that a cast takes."""
    target, table = str(tmp_path / "target"), f"{tmp_path}/target/every"
    columns = {
        "id": ("int", ("1", "2", "3")),
        "s": ("struct<a:string,b:string>", ("named_struct('a', 'x', 'b', NULL)", "NULL", "NULL")),
        "l": ("array<string>", ("NULL", "array()", "NULL")),
        "price": ("decimal(10,2)", ("NULL", "NULL", "1.5")),
    }
    make_table(spark, table, columns)
    for name in ("copy", "base"):
        to, options = RECEIVERS[name]
        to = to.format(tmp_path)
        assert mirrorlib.export(spark, target, consumer=name, to=to, keys=["id"], **options).ok
    spark.sql(
        f"UPDATE delta.`{tmp_path}/copy/every` SET s = if(id = 1, named_struct('a', NULL, 'b', 'x'), s),"
        " l = if(id = 2, array(NULL), l)"
    )
    change_database(tmp_path / "base", "UPDATE every SET price = '1.504' WHERE id = 3")

    copy, base = (verified(spark, target, name) for name in ("copy", "base"))

    named = [({"id": 1}, "differs in s"), ({"id": 2}, "differs in l")]
    assert named == [(one.key, one.what) for one in copy.differences]
    assert "column price: the database holds a value" in base.reasons[0]


@pytest.mark.thorough
def test_streams_that_gave_nothing_or_were_dropped_count_for_nothing(
    spark: SparkSession, tmp_path: Path
) -> None:
    """A snapshot that never came, a rewind that is under way or goes before the first, a consumer that was dropped."""
    history = History(spark, tmp_path, "orders")
    history.publish(6)
    to = {"to": f"delta:{tmp_path}/copy", "mode": "current", "keys": ["ID"], "max_versions": 1}

    def export(start: Any = "snapshot", rounds: int = 99) -> str:
        asked = iter(range(rounds))
        stop = lambda: next(asked, None) is None  # noqa: E731  # ends the run after so many windows
        mirrorlib.export(spark, history.target, consumer="copy", start=start, stop=stop, **to)
        told = verified(spark, history.target, "copy")
        return told.reasons[0] if told.reasons else told.state

    told = [export(3)]
    mirrorlib.rewind_consumer(history.target, "copy", "snapshot")
    mirrorlib.rewind_consumer(history.target, "copy", 4)
    told.append(export())
    mirrorlib.rewind_consumer(history.target, "copy", 4)
    told.append(export(rounds=1))
    told.append(export())
    mirrorlib.rewind_consumer(history.target, "copy", 1)
    told.append(export())
    mirrorlib.rewind_consumer(history.target, "copy", "snapshot")
    told.append(export())
    mirrorlib.drop_consumer(history.target, "copy")
    before = history.versions["orders"]
    history.publish(2)
    told.append(export(before))

    expected = [
        "equal",
        "equal",
        "in the middle",
        "equal",
        "rewound to before",
        "equal",
        "were dropped",
    ]
    assert [word in text for word, text in zip(expected, told, strict=True)] == [True] * 7, told
