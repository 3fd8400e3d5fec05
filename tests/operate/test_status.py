"""`status` says how every table stands, from the journal and a look at the zone; it starts no Spark."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import mirrorlib
from mirrorlib.cli.main import main
from mirrorlib.errors import JournalError, MetadataError, StoreError
from mirrorlib.ingest.files.table_folder import open_folder
from mirrorlib.ingest.next_batch import UNTYPED
from mirrorlib.journal.disk import Journal
from mirrorlib.journal.entries import Done, Plan, PlannedFile, Policies
from mirrorlib.names import TableName, parse_name, sequence_name
from mirrorlib.operate.status import TableStatus, read_status
from mirrorlib.store import Store, open_store

if TYPE_CHECKING:
    from tests.zones import TableWriter, ZoneWriter

REPOSITORY = Path(__file__).parents[2]


def applied(zone: ZoneWriter, target: str, table: TableWriter, **word: object) -> None:
    """Write the journal as a run leaves it that has applied every file of a table."""
    journal = Journal(open_store(f"{target}/_mirrorlib"), parse_name(table.name))
    life = journal.begin_life("first seen", str(zone), 1)
    if table.last:
        plan = plan_of(life.uuid, str(zone), table)
        journal.write_plan(life, plan)
        journal.write_done(life, 1, Done(
            outcome="applied", version=3, table_id="t", columns=(("id", "bigint"),), table_bytes=1, kind="append",
            finished_at="2026-03-01T12:00:00+00:00",
        ))  # fmt: skip
    since = "2026-03-01T12:00:01+00:00"
    journal.write_status(
        {"state": "current", "reason": "", "zone": str(zone), "since": since, **word}
    )


def plan_of(life: str, zone: str, table: TableWriter) -> Plan:
    """Give the plan of all files of a table."""
    policies = Policies(
        keys=("id",), upsert_default=False, insert_policy="append", evolution="widen", ntz="utc"
    )
    files = tuple(
        PlannedFile(
            name=table.path(number).name,
            size=1,
            etag="e",
            rows=1,
            modified="2026-01-01T00:00:00+00:00",
            fingerprint="f",
        )
        for number in range(1, table.last + 1)
    )
    return Plan(
        life=life, batch=1, attempt="a", zone=zone, files=files, before={}, after={"": table.last}, policies=policies,
        table_version=None, previous=None, listed_at=datetime.now(UTC).isoformat(),
    )  # fmt: skip


def status(target: str, name: str) -> TableStatus:
    """Read one table's status."""
    return {table.table: table for table in read_status(target).tables}[name]


def test_a_current_table(zone: ZoneWriter, target: str) -> None:
    """Position, version and last commit; nothing waits."""
    orders = zone.table("orders", keys=["id"], schema="dbo")
    orders.file([{"id": 1}])
    applied(zone, target, orders)

    found = status(target, "dbo/orders")

    assert ("current", "", None) == (found.state, found.reason, found.file)
    assert (1, 3, "2026-03-01T12:00:00+00:00") == (found.position, found.version, found.last_commit)
    assert (0, None, 1) == (found.unapplied, found.lag_seconds, found.life)


def test_behind_a_move_the_new_place_is_looked_at(zone: ZoneWriter, target: str) -> None:
    """As soon as a run has proven it; what a run was refused, or what was proven of another batch, says nothing."""
    orders = zone.table("orders", keys=["id"])
    orders.file([{"id": 1}])
    moved, proven = f"{zone}-moved", f"batch 1 (a) at {zone}-moved"
    applied(zone, target, orders)
    journal = Journal(open_store(f"{target}/_mirrorlib"), parse_name("orders"))
    journal.write_status({"state": "current", "zone": moved, "proven": proven})
    shutil.copytree(str(zone), moved)
    shutil.copy(orders.path(1), Path(moved) / "orders" / sequence_name(2, "parquet"))

    found = status(target, "orders")

    assert ("behind", 1, moved) == (found.state, found.unapplied, found.landing_zone)
    words: list[tuple[dict[str, object], str]] = [
        ({}, str(zone)),
        ({"proven": "batch 1 (b) at " + moved}, str(zone)),
        ({"proven": "batch 1 (a) at /other"}, "/other"),  # where it was before a run was refused
    ]
    for word, place in words:
        journal.write_status({"state": "current", "zone": moved, **word})
        assert place == status(target, "orders").landing_zone


def test_a_table_with_new_files_is_behind(zone: ZoneWriter, target: str) -> None:
    """Lag is the age of the newest of them, waiting that of the oldest."""
    orders = zone.table("orders", keys=["id"])
    orders.file([{"id": 1}])
    applied(zone, target, orders)
    now = datetime.now(UTC).timestamp()
    for age in (500, 100):
        os.utime(orders.file([{"id": 2}]), (now - age, now - age))

    found = status(target, "orders")

    assert ("behind", 2) == (found.state, found.unapplied)
    assert "2 change files are not applied yet" in found.reason
    assert orders.path(2).name == found.file
    assert found.lag_seconds == pytest.approx(100, abs=30)
    assert found.waiting_seconds == pytest.approx(500, abs=30)


def test_a_gap_that_came_since_is_blocked(zone: ZoneWriter, target: str) -> None:
    """Without a run in between; and current again when it is undone."""
    orders = zone.table("orders", keys=["id"])
    orders.file([{"id": 1}])
    applied(zone, target, orders)
    stray = orders.file([{"id": 3}], number=3)

    found = status(target, "orders")
    assert ("blocked", orders.path(2).name, None) == (found.state, found.file, found.since)
    assert "orders is blocked: " in str(read_status(target))  # not since when it was current
    assert not read_status(target).ok
    stray.unlink()
    found = status(target, "orders")
    assert ("current", "2026-03-01T12:00:01+00:00") == (found.state, found.since)


def test_a_gap_that_was_filled_is_behind(zone: ZoneWriter, target: str) -> None:
    """The last word is not the last truth."""
    orders = zone.table("orders", keys=["id"])
    orders.file([{"id": 1}])
    applied(zone, target, orders, state="blocked", reason="gap", file="x")
    orders.file([{"id": 2}])

    found = status(target, "orders")
    assert ("behind", None) == (found.state, found.since)
    # A life that replaces a table takes nothing before the gap, and has said so.
    orders.file([{"id": 4}], number=4)
    journal = Journal(open_store(f"{target}/_mirrorlib"), parse_name("orders"))
    journal.write_status({"state": "blocked", "file": orders.path(3).name, "zone": str(zone)})
    assert ("blocked", 2) == (status(target, "orders").state, status(target, "orders").unapplied)


def test_a_failed_table_stays_failed_until_the_next_run(zone: ZoneWriter, target: str) -> None:
    """Only a run can tell whether the file is good now."""
    orders = zone.table("orders", keys=["id"])
    orders.file([{"id": 1}])
    applied(zone, target, orders, state="failed", reason="bad", file=orders.path(2).name)
    orders.file([{"id": 2}])

    found = status(target, "orders")
    assert ("failed", "bad", orders.path(2).name) == (found.state, found.reason, found.file)
    assert "orders is failed since 2026-03-01 12:00:01: bad" in str(read_status(target))


def test_a_table_that_may_have_started_over_stays_blocked(zone: ZoneWriter, target: str) -> None:
    """More files than were applied do not say whether it has; its owner does, with a reset."""
    orders = zone.table("orders", keys=["id"])
    orders.file([{"id": 1}])
    applied(zone, target, orders, state="blocked", reason="mirrorlib reset TARGET orders")
    orders.file([{"id": 2}])

    found = status(target, "orders")

    assert ("blocked", "mirrorlib reset TARGET orders") == (found.state, found.reason)
    assert (1, None) == (found.unapplied, found.file)
    assert 1 == main(["status", target])


def test_a_table_that_has_applied_nothing(zone: ZoneWriter, target: str) -> None:
    """It has no position and no version."""
    orders = zone.table("orders", keys=["id"])
    applied(zone, target, orders, state="waiting", reason="No change file has been published yet.")

    found = status(target, "orders")
    assert ("waiting", None, None) == (found.state, found.position, found.version)
    assert read_status(target).ok


def test_a_table_waits_no_longer_than_for_what_it_waits_for(zone: ZoneWriter, target: str) -> None:
    """The last word of a run is not repeated beside what has come since."""
    orders = zone.table("orders", with_metadata=False)
    missing = "_metadata.json is missing. The table waits until its publisher writes it."
    applied(zone, target, orders, state="waiting", reason=missing)
    first = orders.file([{"id": 1}])
    assert ("waiting", missing) == ((found := status(target, "orders")).state, found.reason)
    first.unlink()
    orders.metadata(keys=["id"])
    found = status(target, "orders")
    assert ("waiting", "No change file has been published yet.") == (found.state, found.reason)

    orders.file([{"id": 1}], number=1)

    found = status(target, "orders")
    assert ("behind", 1, first.name) == (found.state, found.unapplied, found.file)
    assert "1 change file is not applied yet" in found.reason


def test_a_table_waits_for_a_type_until_a_run_has_found_one(zone: ZoneWriter, target: str) -> None:
    """Whether the next file has one is not seen without opening it."""
    orders = zone.table("orders", keys=["id"])
    first = orders.file([{"id": None}])
    journal = Journal(open_store(f"{target}/_mirrorlib"), TableName(None, "orders"))
    word = {"state": "waiting", "reason": UNTYPED, "file": first.name, "zone": str(zone)}
    journal.write_status(word)
    orders.file([{"id": 2}])

    found = status(target, "orders")

    assert ("waiting", UNTYPED, 2) == (found.state, found.reason, found.unapplied)


def test_a_table_whose_metadata_was_away_for_a_while_is_current(
    zone: ZoneWriter, target: str
) -> None:
    """It waited while it was away; nothing has come since."""
    orders = zone.table("orders", keys=["id"])
    orders.file([{"id": 1}])
    applied(zone, target, orders, state="waiting", reason="_metadata.json is missing.")

    assert ("current", "") == ((found := status(target, "orders")).state, found.reason)


def test_a_zone_that_is_gone_leaves_the_last_word(zone: ZoneWriter, target: str) -> None:
    """Status is most wanted when something is unreachable."""
    orders = zone.table("orders", keys=["id"])
    orders.file([{"id": 1}])
    applied(zone, target, orders)
    zone.root.rename(zone.root.with_name("elsewhere"))

    found = status(target, "orders")

    assert ("current", 1) == (found.state, found.position)
    assert "shows no table at all" in found.warnings[0]


def test_a_zone_out_of_reach_is_not_asked_for_every_table(
    zone: ZoneWriter, target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each asking may take a minute; every table says why it is not known how it stands."""
    for name in ("a", "b", "c", "d"):
        applied(zone, target, zone.table(name, keys=["id"]))
    asked: list[str] = []

    def open_or_refuse(place: str) -> Store:
        if place == str(zone):
            asked.append(place)
            msg = "the store does not answer"
            raise StoreError(msg)
        return open_store(place)

    monkeypatch.setattr("mirrorlib.operate.status.open_store", open_or_refuse)

    found = read_status(target)

    assert ["a", "b", "c", "d"] == [one.table for one in found.tables]
    assert all("the store does not answer" in one.warnings[0] for one in found.tables)
    assert len(asked) == 3  # for a table, for the zone itself, for who publishes


@pytest.mark.parametrize("state", ["current", "gone"])
def test_nothing_is_gone_or_back_in_a_zone_that_shows_nothing(
    zone: ZoneWriter, target: str, state: str
) -> None:
    """It looks like one that is not mounted: the last word stands, as it does for an apply."""
    orders = zone.table("orders", keys=["id"])
    orders.file([{"id": 1}])
    applied(zone, target, orders, state=state)
    orders.drop()

    found = status(target, "orders")

    assert (state, 1) == (found.state, found.position)
    assert "shows no table at all" in found.warnings[0]


def test_a_table_that_left_others_behind_is_gone(zone: ZoneWriter, target: str) -> None:
    """They show that the zone is there."""
    orders = zone.table("orders", keys=["id"])
    orders.file([{"id": 1}])
    applied(zone, target, orders)
    zone.table("other", keys=["id"])
    orders.drop()

    found = status(target, "orders")
    assert ("gone", (), None) == (found.state, found.warnings, found.since)


def test_a_refused_table_that_was_renamed_is_gone(zone: ZoneWriter, target: str) -> None:
    """A table that never began leaves the status with its folder, else it would fail for ever."""
    bad = zone.table("bad", keys=["id"])
    journal = Journal(open_store(f"{target}/_mirrorlib"), TableName(None, "bad"))
    journal.write_status({"state": "failed", "reason": "refused", "zone": str(zone)})

    assert ["bad"] == [table.table for table in read_status(target).tables]
    bad.folder.rename(zone.root / "good")
    assert [] == [table.table for table in read_status(target).tables]


def test_a_broken_journal_fails_its_own_table(zone: ZoneWriter, target: str) -> None:
    """The neighbours are shown, and a folder that no table's name gives is nobody's."""
    for name in ("good", "torn"):
        table = zone.table(name, keys=["id"])
        table.file([{"id": 1}])
        applied(zone, target, table)
    journal = zone.root.parent / "target/_mirrorlib/journal"
    (journal / "torn/lives/000001.json").write_text('{"form')
    (journal / "a~2Fb~2Fc/lives").mkdir(parents=True)

    assert ["current", "failed"] == [table.state for table in read_status(target).tables]
    assert "journal" in status(target, "torn").reason


def test_a_target_without_state_is_an_error(target: str) -> None:
    """A mistyped target must not look like one without trouble."""
    with pytest.raises(JournalError, match="nothing has been applied"):
        read_status(target)

    assert 2 == main(["status", target])


def test_names_of_any_kind_are_shown(target: str) -> None:
    """What cannot be printed is escaped, so that no terminal and no JSON reader stumbles."""
    for name in (os.fsdecode(b"bad\xff"), "new\nline", "a/b~c", "ก ข"):
        journal = Journal(open_store(f"{target}/_mirrorlib"), parse_name(name))
        journal.write_status({"state": "failed", "reason": "x"})

    names = [table.table for table in read_status(target).tables]

    assert sorted(["bad\\udcff", "new\\nline", "a/b~c", "ก ข"]) == sorted(names)


def test_json_keeps_its_contract(
    zone: ZoneWriter, target: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Names and types that others read by; exit code 1 as soon as one table is stopped."""
    for name, state in (("a", "current"), ("b", "failed")):
        table = zone.table(name, keys=["id"], schema="dbo")
        table.file([{"id": 1}])
        applied(zone, target, table, state=state, reason="why" if state == "failed" else "")

    code = main(["status", target, "--json"])

    said = json.loads(capsys.readouterr().out)
    assert 1 == code
    assert said["ok"] is False
    promised = {"table", "state", "reason", "file", "position", "version"}
    assert all(promised <= set(table) for table in said["tables"])
    known = {name: said["tables"][0][name] for name in promised}
    assert {
        "table": "dbo/a",
        "state": "current",
        "reason": "",
        "file": None,
        "position": 1,
        "version": 3,
    } == known


def test_what_stopped_a_table_and_is_still_so_is_said_once(zone: ZoneWriter, target: str) -> None:
    """Metadata that nobody can read: the zone shows what the last word says."""
    orders = zone.table("orders", keys=["id"])
    path = orders.file([{"id": 1}])
    (path.parent / "_metadata.json").write_text("[]")
    folder = parse_name("orders")
    with pytest.raises(MetadataError) as stopped:
        open_folder(open_store(str(zone)), folder)
    applied(zone, target, orders, state="failed", reason=str(stopped.value))

    found = status(target, "orders")

    assert (str(stopped.value), ()) == (found.reason, found.warnings)


def test_status_starts_no_spark(zone: ZoneWriter, target: str) -> None:
    """It answers in milliseconds, on machines without Java too."""
    orders = zone.table("orders", keys=["id"])
    orders.file([{"id": 1}])
    applied(zone, target, orders)
    code = (
        "import sys, mirrorlib; mirrorlib.status(sys.argv[1]); sys.exit('pyspark' in sys.modules)"
    )

    done = subprocess.run([sys.executable, "-c", code, target], check=False, cwd=REPOSITORY)

    assert 0 == done.returncode


def test_who_publishes_is_said(zone: ZoneWriter, target: str) -> None:
    """In the zone's root, read leniently."""
    orders = zone.table("orders", keys=["id"])
    orders.file([{"id": 1}])
    applied(zone, target, orders)
    text = (
        '{"PartnerName": "testing", "sourceInfo": {"sourceType": "SQL", "sourceVersion": 2019,'
        ' "additionalInformation": {"testKey": "testValue", "nodes": [1, {"name": "a"}]},},}'
    )
    (zone.root / "_partnerEvents.json").write_text(text)

    report = mirrorlib.status(target)

    assert "published by testing, from SQL 2019" in str(report)
    expected = {
        "name": "testing",
        "source_type": "SQL",
        "source_version": "2019",
        "information": {"testKey": "testValue", "nodes": [1, {"name": "a"}]},
    }
    assert expected == report.to_dict()["publisher"]


@pytest.mark.parametrize("text", ["", "{", "[]", '{"partnerName": null}', '{"sourceInfo": 1}'])
def test_a_partner_file_that_says_nothing_stops_nothing(
    zone: ZoneWriter, target: str, text: str
) -> None:
    """It is for people."""
    orders = zone.table("orders", keys=["id"])
    orders.file([{"id": 1}])
    applied(zone, target, orders)
    (zone.root / "_partnerEvents.json").write_text(text)

    assert mirrorlib.status(target).publisher is None
