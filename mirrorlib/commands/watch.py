"""Let a command that runs again and again end when it is told to."""

from __future__ import annotations

import signal
import sys
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import FrameType


def stop_on_signals() -> threading.Event:
    """Let Ctrl-C and a polite kill end the run after the commits in flight; a second Ctrl-C ends it at once."""
    stop = threading.Event()

    def ask(number: int, frame: FrameType | None) -> None:
        del frame
        if stop.is_set():
            raise KeyboardInterrupt
        sys.stderr.write(f"\n{signal.Signals(number).name}: stopping after the commits in flight\n")
        stop.set()

    signal.signal(signal.SIGINT, ask)
    signal.signal(signal.SIGTERM, ask)
    return stop
