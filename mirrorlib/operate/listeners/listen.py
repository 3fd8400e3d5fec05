"""Let others hear of events: a file, a command that is alerted, OpenLineage, OpenTelemetry.

In: where to. Out: log handlers, while a block runs. How a table was before is the journal's word: alerts come once.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import shlex
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from typing import Any, cast

from mirrorlib.errors import ParameterError
from mirrorlib.events import LOG, STOPPED, facts_of
from mirrorlib.extras import Extra, how_to_install

_LOG = logging.getLogger(__name__)
_LONGEST = 30_000  # characters: no system starts a command with a variable of more than 128 KB
Tell = Callable[[logging.LogRecord, Mapping[str, Any]], object]


@contextlib.contextmanager
def listen(
    *to: str | os.PathLike[str] | logging.Handler, alert: str | None = None
) -> Iterator[None]:
    """Pass events on while a block runs, whatever it calls.

    Args:
        to: a file that gets a line of JSON for each; "openlineage" or "otel", which their own means set up; or any
            handler of `logging`, which is closed at the end.
        alert: a command that is run when a table stops, and when it goes on again, once each. No shell reads it; the
            event is JSON on its standard input, and texts are MIRRORLIB_TABLE, MIRRORLIB_REASON and so on.

    Raises:
        ParameterError: the file cannot be written, the command is not there, or an extra is not installed.

    """
    also = [Listener("the alert", _caller(alert))] if alert else []
    with contextlib.ExitStack() as ended:
        ended.callback(LOG.setLevel, LOG.level)
        for one in (*to, *also):
            handler = one if isinstance(one, logging.Handler) else _open(one)
            ended.callback(handler.close)
            LOG.addHandler(handler)
            ended.callback(LOG.removeHandler, handler)
            if not LOG.isEnabledFor(logging.INFO):
                LOG.setLevel(logging.INFO)
        yield


def _open(to: str | os.PathLike[str]) -> Listener:
    msg, step = f"events cannot be passed on to {to}", "Give a file, in a folder that is there."
    try:
        # Its reader would end with the first event, and the next one wait for ever.
        if Path(to).is_fifo():
            raise ParameterError(msg, found="a named pipe", next_step=step)
        if to in {"openlineage", "otel"}:
            step = how_to_install(cast("Extra", to))
            return Listener(str(to), import_module(f"{__package__}.to_{to}").open_client())
        file = Path(to).absolute()
        _append(file, b"")
    except (ImportError, OSError) as exc:
        raise ParameterError(msg, found=str(exc), next_step=step) from exc
    return Listener(str(to), lambda record, _: _append(file, _line_of(record)))


def _append(file: Path, line: bytes) -> None:
    """Write a line; the file is opened each time, as it may have been moved."""
    with file.open("ab") as opened:
        opened.write(line)


def _line_of(record: logging.LogRecord) -> bytes:
    """Tell an event in one line of JSON."""
    at = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
    said = {"at": at, "level": record.levelname, **facts_of(record)}
    return f"{json.dumps({**said, 'message': record.getMessage()}, default=str)}\n".encode()


class Listener(logging.Handler):
    """Lets a function, which people know by a name, pass events on; where it fails, that is said, and stops nothing."""

    def __init__(self, name: str, tell: Tell) -> None:
        super().__init__()
        self.name, self._tell = name, tell

    def handle(self, record: logging.LogRecord) -> bool:
        """Pass one on. No lock is held: an alert may take its time."""
        try:
            self._tell(record, facts_of(record))
        except Exception as exc:  # noqa: BLE001  # what has happened has, whoever hears of it
            _LOG.error("%s does not know that %s: %s", self.name, record.getMessage(), exc)
        return True


def _caller(command: str) -> Tell:
    """Run a command when a table stops that had not, or goes on."""
    words: list[str] = []
    with contextlib.suppress(ValueError):  # a quote is open
        words = shlex.split(command)
    if not words or shutil.which(words[0]) is None:
        msg = "the alert is no command that can be run"
        step = "Name a program and its arguments; what needs a shell goes into a script."
        # Arguments may hold secrets.
        found = words[0].partition("=")[0] if words else "no word, or an open quote"
        raise ParameterError(msg, found=found, next_step=step)

    def tell(record: logging.LogRecord, facts: Mapping[str, Any]) -> None:
        stops = facts["event"] in {"block", "failure"} and facts["before"] not in STOPPED
        if stops or facts["event"] == "recovery":
            texts = {f"MIRRORLIB_{k.upper()}": v for k, v in facts.items() if isinstance(v, str)}
            texts = {name: text[:_LONGEST] for name, text in texts.items()}  # all is in the JSON
            line, env = _line_of(record), {**os.environ, **texts}
            try:
                subprocess.run(words, input=line, env=env, stdout=2, timeout=60, check=True)  # noqa: S603  # theirs
            except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as exc:
                exc.cmd = words[0]  # what is logged
                raise

    return tell
