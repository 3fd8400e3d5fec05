"""Run a command that was asked for: show its report, tell what went wrong, and give the exit code."""

from __future__ import annotations

import argparse
import io
import logging
import os
import sys

from mirrorlib.cli.command import say_error, say_json
from mirrorlib.cli.main import CLOSED, INTERRUPTED, OK, SIGNALLED, STOPPED, USAGE
from mirrorlib.cli.watch import CutShortError
from mirrorlib.delta.trouble import is_sparks, spark_error
from mirrorlib.errors import MirrorError
from mirrorlib.operate.listeners.listen import listen
from mirrorlib.operate.rounds import told_of_trouble
from mirrorlib.platform.show import show_report
from mirrorlib.tabular import Report


def run_one(arguments: argparse.Namespace) -> int:
    """Run one command; return its exit code."""
    # A file's name may be no text: it is shown as errors are.
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    told, log = vars(arguments), logging.StreamHandler()
    level = logging.INFO if arguments.verbose else logging.ERROR
    log.setLevel(level)  # of what listeners are told, no more is shown
    form = "%(asctime)s %(levelname)s %(name)s %(message)s"
    logging.basicConfig(level=level, format=form, handlers=[log])
    logging.getLogger("py4j").setLevel(logging.WARNING)
    try:
        with listen(*told.get("events", ()), alert=told.get("alert")), told_of_trouble():
            answer: Report | bool = arguments.run(arguments)
        if not isinstance(answer, bool):
            if arguments.json:
                say_json(answer.to_dict())
            else:
                show_report(answer)
    except MirrorError as exc:
        say_error(exc, as_json=arguments.json)
        return USAGE if exc.wrong_usage else STOPPED
    except CutShortError as exc:
        sys.stderr.write(f"mirrorlib: {exc}\n")
        return SIGNALLED + exc.number
    except KeyboardInterrupt:
        sys.stderr.write("mirrorlib: interrupted\n")
        return INTERRUPTED
    except BrokenPipeError:  # whoever read our output has seen enough, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return CLOSED
    except Exception as exc:
        if not is_sparks(exc):
            raise
        logging.getLogger(__name__).exception("Spark failed", exc_info=exc)
        say_error(spark_error(exc, "do what was asked for"), as_json=arguments.json)
        return STOPPED
    well = answer if isinstance(answer, bool) else answer.ok
    return OK if well else STOPPED
