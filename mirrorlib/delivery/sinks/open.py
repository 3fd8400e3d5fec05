"""Choose a receiver by what a caller says: `delta:PATH`, `files:URL`, `zone:URL`, `jdbc:…` or `kafka://…`.

In: a URL, and a mode where there are several. Out: a `Sink`, and the URL as it may be shown. A receiver's module is
imported when one is opened, so it may import Spark at its head.
"""

from __future__ import annotations

import re
from importlib import import_module

from mirrorlib.delivery.sink import Sink
from mirrorlib.errors import LandingZoneError

_KINDS = {  # what a URL begins with, the module that receives, and its modes: the first is the default
    "delta": ("mirrorlib.delivery.sinks.delta.sink", ("changes", "current", "scd2")),
    "files": ("mirrorlib.delivery.sinks.files.sink", ("changes",)),
    "zone": ("mirrorlib.delivery.sinks.zone.sink", ("changes",)),
    "jdbc": ("mirrorlib.delivery.sinks.jdbc.sink", ("current",)),
    "kafka": ("mirrorlib.delivery.sinks.kafka", ("changes",)),
}
_SECRET = re.compile(
    r"(//[^/@\s]*:)[^/@]*(?=@)|((?:passw[^=&]*|passphrase|secret|token|sig|pem)=)[^&]*",
    re.IGNORECASE,
)


def open_sink(to: str, mode: str | None) -> tuple[Sink, str]:
    """Open a receiver, and settle its mode."""
    kind, colon, address = to.partition(":")
    if not colon or kind not in _KINDS:
        msg = "nothing is known that receives changes under this URL"
        step = "Give delta:PATH, files:URL, zone:URL, jdbc:… or kafka://HOST:PORT/TOPIC."
        raise LandingZoneError(msg, found=shown_url(to), next_step=step)
    module, modes = _KINDS[kind]
    if mode is not None and mode not in modes:
        msg = f"a receiver of kind {kind} has no mode {mode}"
        raise LandingZoneError(msg, next_step=f"It has: {', '.join(modes)}.")
    chosen = mode or modes[0]
    sink: Sink = import_module(module).open_sink(address, chosen)
    return sink, chosen


def place_of(to: str) -> str:
    """Return the part of a receiver's URL that says where it is."""
    return to.partition(":")[2]


def is_same_url(one: str, other: str) -> bool:
    """Say whether two URLs name one receiver: a slash at the end of the place means nothing."""
    places = [url.partition("?") for url in (one, other)]
    first, second = ((place.rstrip("/"), options) for place, _, options in places)
    return first == second


def shown_url(to: str) -> str:
    """Leave passwords out."""
    return _SECRET.sub(lambda found: f"{found[1] or found[2]}***", to)
