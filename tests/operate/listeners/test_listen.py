"""What happens is told once: as attributes of log records, as lines of JSON, and to a command when a table stops or goes on."""

from __future__ import annotations

import json
import logging
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import mirrorlib
from mirrorlib.cli.main import main
from mirrorlib.errors import ParameterError
from mirrorlib.events import emit, emit_state, facts_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from zones import ZoneWriter

Told = list[dict[str, Any]]


def lines(path: Path) -> Told:
    """Read a file of events."""
    return [json.loads(line) for line in path.read_text().splitlines()]


def program(tmp_path: Path, text: str) -> str:
    """Write a command that has the event as `event` and appends to `out`."""
    script = tmp_path / "alert here.py"
    out = tmp_path / "alerts"
    head = f"import json, os, sys\nevent = json.load(sys.stdin)\nout = open({str(out)!r}, 'a')\n"
    script.write_text(head + text)
    return f"{sys.executable} '{script}'"


@pytest.mark.usefixtures("spark", "signals")
def test_all_that_happens_to_a_table_is_told_once(
    zone: ZoneWriter, target: str, tmp_path: Path
) -> None:
    """Batches with rows by marker, a new column, a gap, what closes it, a window, a verification, a reset."""
    orders = zone.table("orders", keys=["id"], schema="dbo")
    orders.file([{"id": 1}, {"id": 2}])
    orders.file([{"id": 1, "secret": "s3cr3t"}, {"id": 2, "secret": "x"}], markers=[1, 2])
    events, place = tmp_path / "events.jsonl", ["--events", str(tmp_path / "events.jsonl")]
    apply = ["apply", str(zone), target, "--max-files", "1", *place]

    assert 0 == main(apply)
    orders.file([{"id": 7}], number=4)
    assert 1 == main(apply)
    assert 1 == main(apply)
    orders.file([{"id": 6}], number=3)
    assert 0 == main(apply)
    assert 0 == main(
        ["export", target, "--consumer", "lake", "--to", f"files:{tmp_path}/lake", *place]
    )
    assert 0 == main(["verify", str(zone), target, *place])
    assert 0 == main(["reset", target, "dbo/orders", *place])
    told = lines(events)

    names = "batch schema batch block block batch batch recovery window verify reset"
    assert names.split() == [one["event"] for one in told]
    first, schema, second, block, again, third, _, recovery, window, verified, reset = told
    assert {"dbo/orders"} == {one["table"] for one in told}
    assert {"inserts": 0, "updates": 1, "deletes": 1, "upserts": 0} == second["rows"]
    assert (2, 1, "applied") == (second["batch"], second["files"], second["outcome"])
    assert [first["version"] + 2, [orders.path(2).name]] == [second["version"], second["names"]]
    assert {"id": "bigint", "secret": "string"} == second["columns"]
    assert (
        f"{target}/dbo/orders",
        "dbo/orders: batch 1 applied as version 1, 1 files, 2 rows",
    ) == (
        first["address"],
        first["message"],
    )
    assert f"{zone}/dbo.schema/orders" == first["zone"]
    assert "adds the column secret string" == schema["changes"]
    assert ["current", "blocked", "blocked"] == [one["before"] for one in (block, again, recovery)]
    assert (orders.path(3).name, "WARNING") == (block["file"], block["level"])
    assert 3 == third["batch"]
    assert {"given": 3} == window["rows"]
    assert ("lake", 1, "snapshot", "delivered") == tuple(
        window[name] for name in ("consumer", "window", "kind", "outcome")
    )
    assert ("equal", 3, "reset") == (verified["state"], verified["found"], reset["kind"])
    assert "s3cr3t" not in events.read_text()


def test_a_command_is_run_when_a_table_stops_and_when_it_goes_on(
    spark: SparkSession, zone: ZoneWriter, target: str, tmp_path: Path
) -> None:
    """Once each, across runs, also where a reset has come in between; for its own table alone."""
    command = program(
        tmp_path,
        "print(event['event'], os.environ['MIRRORLIB_TABLE'], event['before'] or '-', file=out)",
    )
    zone.table("good", keys=["id"]).file([{"id": 1}])
    orders = zone.table("orders", keys=["id"])
    orders.file([{"id": 1}], number=2)
    metadata, away = orders.folder / "_metadata.json", tmp_path / "away"
    for step in ("", "", "away", "back", "reset", "repair", ""):
        if step == "away":  # the table waits for it, and is as stopped as before
            metadata.rename(away)
        elif step == "back":
            away.rename(metadata)
        elif step == "reset":
            orders.file([{"id": 2}], number=1)
            mirrorlib.apply(spark, str(zone), target)  # nobody listens
            orders.file([{"id": 2}], number=5)
        elif step == "repair":
            mirrorlib.reset(spark, target, "orders")
            orders.path(5).unlink()
        with mirrorlib.listen(alert=command):
            mirrorlib.apply(spark, str(zone), target)

    told = (tmp_path / "alerts").read_text().splitlines()
    assert ["block orders -", "block orders current", "recovery orders blocked"] == told


def test_a_command_that_cannot_begin_is_told(
    spark: SparkSession, target: str, tmp_path: Path
) -> None:
    """As of a run, though its error names a table."""
    del spark
    events = tmp_path / "events"

    assert 0 < main(["reset", target, "none", "--events", str(events)])

    (said,) = [json.loads(line) for line in events.read_text().splitlines()]
    assert ("failure", "", "JournalError") == (said["event"], said["table"], said["error"])
    assert "none" in said["reason"]


@pytest.mark.thorough
def test_a_consumer_that_stops_alerts_once(
    spark: SparkSession, zone: ZoneWriter, target: str, tmp_path: Path
) -> None:
    """And again when it goes on; what was never registered has not begun, and other wishes stop nobody."""
    command = program(tmp_path, "print(event['event'], event.get('consumer'), file=out)")
    events = tmp_path / "events"
    orders = zone.table("orders", keys=["id"])
    orders.file([{"id": 1}])
    mirrorlib.apply(spark, str(zone), target)
    lake = tmp_path / "lake"

    def export(**more: str) -> str:
        with mirrorlib.listen(events, alert=command):
            wishes = {"tables": ["orders"], "to": f"files:{lake}", **more}
            return mirrorlib.export(spark, target, consumer="lake", **wishes).tables[0].state  # type: ignore[arg-type]  # names of its parameters

    assert "failed" == export(tables=["nowhere"])  # type: ignore[arg-type]  # the same
    assert "current" == export()
    assert "failed" == export(to=f"files:{lake}?format=csv")
    orders.file([{"id": 2}])
    mirrorlib.apply(spark, str(zone), target)
    aside = lake.rename(tmp_path / "aside")
    lake.write_text("in the way")
    assert ["failed", "failed"] == [export(), export()]
    lake.unlink()
    aside.rename(lake)
    assert "behind" == export(stop=lambda: True)  # type: ignore[arg-type]  # the same
    assert "current" == export()

    assert ["failure lake", "recovery lake"] == (tmp_path / "alerts").read_text().splitlines()
    told = [one["event"] for one in lines(events)]
    assert ["failure", "window", "failure", "failure", "failure", "window", "recovery"] == told


def test_names_of_others_reach_no_shell(tmp_path: Path) -> None:
    """A table may be called as it likes: it is a text in the environment and in JSON."""
    command = program(tmp_path, "print(event['table'], os.environ['MIRRORLIB_TABLE'], file=out)")
    odd = f"$(touch {tmp_path}/owned); `id` 'x' \"y\" %s"

    with mirrorlib.listen(alert=command):
        emit_state("", table=odd, state="failed", reason="100 %")

    assert f"{odd} {odd}\n" == (tmp_path / "alerts").read_text()
    assert not (tmp_path / "owned").exists()


def test_an_alert_with_a_long_reason_is_run(tmp_path: Path) -> None:
    """The JSON has all of it, and the variable its beginning: no command begins with one that is too long."""
    command = program(
        tmp_path, "print(len(event['reason']), len(os.environ['MIRRORLIB_REASON']), file=out)"
    )
    with mirrorlib.listen(alert=command):
        emit_state("", table="t", state="failed", reason=100_000 * "ü")

    assert "100000 30000\n" == (tmp_path / "alerts").read_text()


@pytest.mark.parametrize(
    "text, said", [("sys.exit(3)", "exit status 3"), ("os.kill(os.getpid(), 9)", "SIGKILL")]
)
def test_an_alert_that_fails_is_reported(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, text: str, said: str
) -> None:
    """And fails nothing else."""
    command = f"{program(tmp_path, text)} --token s3cr3t"
    with mirrorlib.listen(tmp_path / "events", alert=command):
        emit_state("", table="orders", state="failed", reason="no")

    assert said in caplog.text
    assert "s3cr3t" not in caplog.text
    assert ["failure"] == [one["event"] for one in lines(tmp_path / "events")]


@pytest.mark.parametrize("command", ["nothing-of-this-name s3cr3t", "'open s3cr3t", "  "])
def test_a_command_that_cannot_be_run_is_refused_before_anything(command: str) -> None:
    """By name, without its arguments."""
    with (
        pytest.raises(ParameterError, match="the alert is no command") as raised,
        mirrorlib.listen(alert=command),
    ):
        raise AssertionError
    assert "s3cr3t" not in str(raised.value)


def test_a_place_that_cannot_be_written_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is wrong usage, and nothing was begun."""
    assert 2 == main(["reset", str(tmp_path), "orders", "--events", str(tmp_path / "no" / "file")])
    assert "cannot be passed on" in capsys.readouterr().err


def test_what_was_opened_before_such_a_place_is_closed(tmp_path: Path) -> None:
    """Not only when the process ends."""
    log, first = logging.getLogger("mirrorlib.events"), logging.FileHandler(tmp_path / "events")
    before = log.level, list(log.handlers)

    with (
        pytest.raises(ParameterError, match="cannot be passed on"),
        mirrorlib.listen(first, tmp_path / "no" / "file"),
    ):
        raise AssertionError

    assert first.stream is None
    assert before == (log.level, log.handlers)


def test_a_missing_library_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the command that installs it."""
    monkeypatch.setitem(sys.modules, "openlineage.client", None)
    sys.modules.pop("mirrorlib.operate.listeners.to_openlineage", None)

    with (
        pytest.raises(ParameterError, match="pip install 'openlineage-python"),
        mirrorlib.listen("openlineage"),
    ):
        raise AssertionError


def test_a_record_has_the_facts_as_attributes(caplog: pytest.LogCaptureFixture) -> None:
    """Whoever logs as they are used to finds them; what is not known is left out."""
    caplog.set_level(logging.INFO, logger="mirrorlib.events")

    emit("batch", "%(table)s: batch %(batch)d", table="orders", batch=3, error=None)

    (record,) = caplog.records
    assert ("orders: batch 3", "orders") == (record.getMessage(), record.table)  # type: ignore[attr-defined]  # an extra
    assert {"event": "batch", "table": "orders", "batch": 3} == facts_of(record)


def test_a_file_that_cannot_be_made_anew_fails_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It is said, and the file goes on where it can be made again."""
    path = tmp_path / "log" / "events"
    path.parent.mkdir()

    with mirrorlib.listen(path):
        path.parent.rename(tmp_path / "old")
        emit("reset", "%(table)s was reset", table="a")
        path.parent.mkdir()
        emit("reset", "%(table)s was reset", table="b")

    (said,) = [one.getMessage() for one in caplog.records if one.levelno > logging.INFO]
    assert said.startswith(f"{path} does not know that a was reset: [Errno 2]")
    assert ["b"] == [one["table"] for one in lines(path)]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a disk that is full")
def test_an_event_that_a_full_disk_does_not_take_is_told_in_one_line(
    caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without the stack that `logging` shows of what its handlers meet."""
    with mirrorlib.listen("/dev/full"):
        emit("reset", "%(table)s was reset", table="a")

    (said,) = [one.getMessage() for one in caplog.records if one.levelno > logging.INFO]
    assert said.startswith("/dev/full does not know that a was reset: [Errno 28]")
    assert "" == capsys.readouterr().err


def test_listening_leaves_the_logger_as_it_was(tmp_path: Path) -> None:
    """And one run adds to what another has written, also where the file was moved away meanwhile."""
    log, path = logging.getLogger("mirrorlib.events"), tmp_path / "events"
    before = log.level, list(log.handlers)

    with mirrorlib.listen(path):
        emit("reset", "%(table)s", table="a")
        path.rename(tmp_path / "old")
        emit("reset", "%(table)s", table="ÿ\n\x1b")
    emit("reset", "%(table)s", table="nobody hears")
    with mirrorlib.listen(path):
        emit("reset", "%(table)s", table="c")

    assert before == (log.level, log.handlers)
    assert ["a"] == [one["table"] for one in lines(tmp_path / "old")]
    assert ["ÿ\n\x1b", "c"] == [one["table"] for one in lines(path)]
