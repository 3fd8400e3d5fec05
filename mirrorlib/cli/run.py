"""Run a command that was asked for: give it its Spark, run it again and again, end when told to, tell its outcome."""

from __future__ import annotations

import argparse
import contextlib
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import TYPE_CHECKING, TypeVar

from mirrorlib.cli.command import (
    UnprintedError,
    call_shown,
    drop_output,
    printing,
    say_error,
    say_json,
)
from mirrorlib.cli.main import CLOSED, OK, SIGNALLED, STOPPED, USAGE
from mirrorlib.delivery.report import ExportReport
from mirrorlib.delta.lock import has_lost_java
from mirrorlib.delta.trouble import ENDED, is_sparks, spark_error, tell_trouble
from mirrorlib.errors import LocalSparkError, MirrorError, StoreError
from mirrorlib.ingest.report import ApplyReport
from mirrorlib.operate.listeners.listen import listen
from mirrorlib.operate.rounds import told_of_trouble, watch
from mirrorlib.platform.show import show_report
from mirrorlib.tabular import Report

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


_Report = TypeVar("_Report", "ApplyReport", "ExportReport")


class CutShortError(KeyboardInterrupt):
    """A run was told to stop, by the signal *number*, before its tables were up to date; its report has been given."""

    def __init__(self, number: signal.Signals, behind: int) -> None:
        self.number = number
        tables = "1 table is" if behind == 1 else f"{behind} tables are"
        super().__init__(f"{number.name} cut the run short: {tables} behind; the next run goes on")


def run_one(arguments: argparse.Namespace) -> int:
    """Run one command; return its exit code."""
    try:
        return _run_one(arguments)
    except BrokenPipeError:  # whoever read our output has seen enough, as `head` does
        drop_output()
        return CLOSED
    except UnprintedError as exc:
        sys.stderr.write(f"mirrorlib: {exc}\n")
        return STOPPED


def _run_one(arguments: argparse.Namespace) -> int:
    told, log = vars(arguments), logging.StreamHandler()
    level = (logging.ERROR, logging.INFO, logging.DEBUG)[min(arguments.verbose, 2)]
    log.setLevel(level)  # of what listeners are told, no more is shown
    form = "%(asctime)s %(levelname)s %(name)s %(message)s"
    logging.basicConfig(level=max(level, logging.INFO), format=form, handlers=[log])
    if level == logging.DEBUG:  # ours alone: others' may hold credentials
        logging.getLogger("mirrorlib").setLevel(level)
    logging.getLogger("py4j").setLevel(logging.WARNING)
    try:
        with listen(*told.get("events", ()), alert=told.get("alert")), told_of_trouble():
            answer: Report | bool = arguments.run(arguments)
        if not isinstance(answer, bool):
            if arguments.json:
                say_json(answer.to_dict())
            else:
                with printing():
                    show_report(answer)
    except MirrorError as exc:
        say_error(exc, as_json=arguments.json)
        return USAGE if exc.wrong_usage else STOPPED
    except KeyboardInterrupt as exc:
        sys.stderr.write(f"mirrorlib: {str(exc) or 'interrupted'}\n")
        return SIGNALLED + (exc.number if isinstance(exc, CutShortError) else signal.SIGINT)
    except BrokenPipeError:
        raise
    except Exception as exc:
        if is_sparks(exc):
            error = spark_error(exc, "do what was asked for")
            logging.getLogger(__name__).debug("Spark failed", exc_info=exc)
        elif isinstance(exc, OSError):
            logging.getLogger(__name__).info("a file failed", exc_info=exc)
            msg = "cannot do what was asked for"
            error = StoreError(msg, found=str(exc) or type(exc).__name__)
        else:
            raise
        say_error(error, as_json=arguments.json)
        return STOPPED
    well = answer if isinstance(answer, bool) else answer.ok
    return OK if well else STOPPED


class Stop:
    """Whether a signal has asked the run to end."""

    number: signal.Signals | None = None

    def ask(self, number: int, _: FrameType | None = None) -> None:
        """Take a signal; the second one ends the run at once."""
        if self.is_set():
            raise KeyboardInterrupt
        self.number = signal.Signals(number)
        with contextlib.suppress(OSError):  # Ctrl-C has ended the `tee` behind us, too
            sys.stderr.write(f"\n{self.number.name}: stopping after the commits in flight\n")

    def is_set(self) -> bool:
        """Say whether one has come."""
        return self.number is not None


def stop_on_signals() -> Stop:
    """Let Ctrl-C and a polite kill end the run after the commits in flight; a second one ends it at once.

    A call that hangs may keep it from that. Signals come to Python's main thread alone. A host that calls a task from
    another one ends it its own way.
    """
    stop = Stop()
    if threading.current_thread() is not threading.main_thread():
        sys.stderr.write("signals do not reach this thread: whoever started the run ends it\n")
        return stop
    signal.signal(signal.SIGINT, stop.ask)
    signal.signal(signal.SIGTERM, stop.ask)
    return stop


def run_command(
    arguments: argparse.Namespace,
    function: Callable[..., _Report],
    *places: str,
    is_news: Callable[[_Report], bool],
    **more: object,
) -> bool:
    """Call what the library has, with *more*, once, or as `--watch` says, and print each report that is news.

    After a round that did not go well Spark is asked whether it lives; *is_news* says whether people want to see
    the report of one of many that did. *places* are those of `start_spark`.

    Raises:
        MirrorError: the first round could not begin, or no other can.
        CutShortError: the only round was told to stop, and left tables behind.

    """
    spark = start_spark(arguments, *places)
    stop = stop_on_signals()  # after PySpark, whose own Ctrl-C cancels the commits in flight
    watching = arguments.watch is not None

    def one() -> _Report:
        return call_shown(function, arguments, spark=spark, stop=stop.is_set, **more)

    def tell(outcome: _Report | MirrorError) -> None:
        if isinstance(outcome, MirrorError):
            say_error(outcome, as_json=arguments.json)
        elif arguments.json:
            say_json(outcome.to_dict(), in_one_line=watching)
        elif not watching or not outcome.ok or is_news(outcome):
            with printing():
                show_report(outcome)
        if watching and (isinstance(outcome, MirrorError) or not outcome.ok):
            _check_java(spark)

    if watching:
        last = watch(one, arguments.watch, tell=tell, stop=stop.is_set)
        return not isinstance(last, MirrorError) and last.ok
    report = one()
    tell(report)
    behind = sum(1 for table in report.tables if table.state == "behind")
    if behind and stop.number is not None:
        raise CutShortError(stop.number, behind)
    return report.ok


def start_spark(arguments: argparse.Namespace, *more: str) -> SparkSession:
    """Take it, or start it: a zone, target, state, or place *more*, in a store costs a download the first time."""
    from mirrorlib.platform import session

    if (found := session.platform_spark()) is not None:
        return found
    places = (getattr(arguments, "landing_zone", None), arguments.target, arguments.state, *more)
    brought = session.has_spark()
    stores = [place for place in places if place]
    with _kept_from_sigterm():
        spark = session.local_spark(memory=arguments.memory, stores=stores)
    if arguments.catalog is not None and not brought:
        session.refuse_passing_catalog(spark, arguments.catalog)
    return spark


@contextlib.contextmanager
def _kept_from_sigterm() -> Iterator[None]:
    """Let Java begin its life without hearing SIGTERM, which `timeout` and systemd send to it, too: it would end first.

    It ends when we do, as its standard input does. What comes for us meanwhile, in whatever thread, comes when the
    block ends.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, _: came.append(number))
    _deaf.set()
    try:
        yield
    finally:
        _deaf.clear()
        signal.signal(signal.SIGTERM, before)
        for number in came[:1]:
            signal.raise_signal(number)


def _deafen() -> None:
    if _deaf.is_set():
        signal.signal(signal.SIGTERM, signal.SIG_IGN)


_deaf = threading.Event()  # whoever is forked now is to hear no SIGTERM
os.register_at_fork(after_in_child=_deafen)


def _check_java(spark: SparkSession) -> None:
    try:
        spark.conf.get("spark.sql.session.timeZone")
    except Exception as exc:
        told = tell_trouble(exc, "answer")
        msg, step = told.reason, told.next_step
        if has_lost_java(exc):
            msg = "the Java process has ended: it ran out of memory, or was killed"
            step = "Start the command again, with more --memory if it was too little; the next run goes on."
        elif told != ENDED:
            return  # the tables have said what is wrong
        raise LocalSparkError(msg, next_step=step) from exc
