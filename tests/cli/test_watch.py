"""Running again and again: what ends it, what does not, and what a run that was cut short comes to."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from argparse import Namespace
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

from little import child_environment
from mirrorlib.cli import command as calling
from mirrorlib.cli import main as cli
from mirrorlib.cli import run
from mirrorlib.cli.run import Stop, _kept_from_sigterm, stop_on_signals
from mirrorlib.errors import LandingZoneError
from mirrorlib.events import Event
from mirrorlib.ingest.report import ApplyReport, TableReport
from mirrorlib.landing.listing import list_tables
from mirrorlib.store import open_store

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import SparkSession

    from mirrorlib.events import Observer
    from tests.zones import ZoneWriter

pytestmark = pytest.mark.usefixtures("signals")


def report_on(zone: Path) -> ApplyReport:
    """List a zone; every table of it is current."""
    tables = list_tables(open_store(str(zone)))
    return ApplyReport(
        landing_zone=str(zone),
        target="",
        tables=tuple(TableReport(table=name.shown, state="current") for name in tables),
        seconds=0.0,
    )


def watched(one: Callable[[], ApplyReport], stop: Stop, *, as_json: bool = False) -> bool:
    """Watch without a pause; a Spark lives that is asked nothing else."""
    arguments = Namespace(watch=0.0, json=as_json)
    spark = SimpleNamespace(conf={})
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(run, "start_spark", lambda _: spark)
        patched.setattr(run, "stop_on_signals", lambda: stop)
        return run.run_command(arguments, lambda **_: one(), is_news=lambda _: False)


def test_off_the_main_thread_a_run_goes_on_without_signals(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A platform may call a wheel's entry point from any thread, where Python lets nobody handle signals."""
    before = signal.getsignal(signal.SIGTERM)
    with ThreadPoolExecutor(1) as elsewhere:
        stop = elsewhere.submit(stop_on_signals).result()

    assert not stop.is_set()
    assert before is signal.getsignal(signal.SIGTERM)
    assert "signals do not reach this thread" in capsys.readouterr().err


@pytest.mark.parametrize("as_json", [False, True])
def test_a_zone_that_is_away_for_a_moment_ends_no_watch(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], *, as_json: bool
) -> None:
    """It is told in a line each time, and the round after it goes on."""
    zone, away, stop = tmp_path / "zone", tmp_path / "away", Stop()
    (zone / "orders").mkdir(parents=True)
    said: list[int] = []
    moves = iter([(zone, zone), (zone, away), (away, away), (away, zone)])

    def one() -> ApplyReport:
        here, there = next(moves)
        here.rename(there)
        report = report_on(zone)
        said.append(len(report.tables))
        if len(said) == 2:
            stop.ask(signal.SIGINT)
        return report

    assert watched(one, stop, as_json=as_json)

    assert [1, 1] == said
    streams = capsys.readouterr()
    assert 2 == streams.err.count("there is no landing zone at")
    told = [json.loads(line) for line in streams.out.splitlines()]
    assert ([(False, "LandingZoneError")] * 2 if as_json else []) == [
        (line["ok"], line["error"]) for line in told if not line["ok"]
    ]


def test_a_watch_that_ends_while_the_zone_is_away_has_not_ended_well(tmp_path: Path) -> None:
    """The last round counts, and it could not begin."""
    zone, stop = tmp_path / "zone", Stop()
    (zone / "orders").mkdir(parents=True)
    said: list[ApplyReport] = []

    def one() -> ApplyReport:
        if said:
            zone.rename(tmp_path / "away")
            stop.ask(signal.SIGTERM)
        said.append(report_on(zone))
        return said[-1]

    assert not watched(one, stop)


def test_a_zone_that_is_not_there_when_a_watch_begins_is_wrong_usage(tmp_path: Path) -> None:
    """Nobody would wait for a mistyped path."""
    with pytest.raises(LandingZoneError):
        watched(lambda: report_on(tmp_path / "zone"), Stop())


def test_a_sigterm_while_java_starts_comes_behind_it() -> None:
    """Whichever thread takes it; Java itself does not hear it."""
    came: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, _: came.append(number))
    try:
        with _kept_from_sigterm():
            waiting = [sys.executable, "-c", "import time; time.sleep(60)"]
            java = subprocess.Popen(waiting, preexec_fn=lambda: None)  # noqa: PLW1509  # as PySpark does
            os.kill(os.getpid(), signal.SIGTERM)
            java.send_signal(signal.SIGTERM)
            assert not came
        assert [signal.SIGTERM] == came
        with pytest.raises(subprocess.TimeoutExpired):
            java.wait(0.2)
        java.kill()
        java.wait()
    finally:
        signal.signal(signal.SIGTERM, before)


@pytest.mark.thorough
def test_a_watch_ends_when_its_java_has_ended(zone: ZoneWriter, target: str) -> None:
    """Whoever keeps it running starts it again: no round of this process can go well any more.

    But not by the SIGTERM that a service's end sends to all of its processes: that is the runner's to answer.
    """
    orders = zone.table("orders", keys=["id"])
    orders.file([{"id": 1}])
    command = [sys.executable, "-m", "mirrorlib.cli", "apply", str(zone), target]
    with subprocess.Popen(
        [*command, "--watch", "0.2", "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=child_environment(),
        process_group=0,
    ) as runner:
        assert runner.stdout is not None
        try:
            assert json.loads(runner.stdout.readline())["ok"]
            (java,) = java_below(runner.pid)
            os.kill(java, signal.SIGTERM)
            orders.file([{"id": 2}])
            assert json.loads(runner.stdout.readline())["ok"]
            os.kill(java, signal.SIGKILL)
            orders.file([{"id": 3}])
            told, errors = runner.communicate(timeout=120)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(runner.pid, signal.SIGKILL)
    assert 1 == runner.returncode
    assert "the Java process has ended" in told + errors


def java_below(pid: int) -> list[int]:
    """Return the processes called java that a process has started, by whatever way."""
    parents: dict[int, tuple[int, str]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            name, _, rest = path.read_text().rpartition(")")
            parents[int(path.parent.name)] = (int(rest.split()[1]), name.partition("(")[2])

    def is_below(one: int) -> bool:
        parent = parents.get(one, (0, ""))[0]
        return parent == pid or (parent > 1 and is_below(parent))

    return [one for one, (_, name) in parents.items() if name == "java" and is_below(one)]


@pytest.mark.parametrize("number, code", [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_run_that_is_cut_short_does_not_look_like_one_that_is_done(
    spark: SparkSession,
    zone: ZoneWriter,
    target: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    number: signal.Signals,
    code: int,
) -> None:
    """A table that it leaves behind is told, the exit code is the signal's; without one the next run is done."""
    del spark
    orders = zone.table("orders", keys=["id"])
    orders.file([{"id": 1}])
    orders.file([{"id": 2}])

    def observe(event: Event) -> None:
        if (event.step, event.when) == ("commit", "after"):
            os.kill(os.getpid(), number)

    @contextmanager
    def progress(*, quiet: bool) -> Iterator[Observer]:
        del quiet
        yield observe

    command = ["apply", str(zone), target, "--max-files", "1"]
    with monkeypatch.context() as patch:
        patch.setattr(calling, "show_progress", progress)
        assert code == cli.main(command)
        streams = capsys.readouterr()
        assert "orders is behind: 1 file waits for the next run." in streams.out
        assert f"{number.name} cut the run short: 1 table is behind; the next run goes on" in (
            streams.err
        )
        assert 0 == cli.main(command)  # told to stop when nothing was left to do
    assert 0 == cli.main(command)
