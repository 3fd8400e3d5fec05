"""Say how to install what an extra names: by the libraries' own names, one wording for every error.

In: an extra. Out: a sentence. mirrorlib itself, the distribution `mirrorlib-delta`, is installed from a clone or from
its wheel: what a package index has under its plain name is somebody else's.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.metadata import PackageNotFoundError, requires
from typing import Literal

from mirrorlib.errors import MirrorError

Extra = Literal["databricks", "fabric", "kafka", "local", "openlineage", "otel", "page", "postgres"]
_SELF = "mirrorlib-delta"


@contextmanager
def needed(extra: Extra, package: str, error: type[MirrorError] = MirrorError) -> Iterator[None]:
    """Say what to install where a package that is imported within is missing, or lacks what it rests on."""
    try:
        yield
    except ImportError as exc:
        msg = f"the Python package {package} is not installed"
        raise error(msg, next_step=how_to_install(extra)) from exc


def how_to_install(extra: Extra) -> str:
    """Name what to install for an extra, as its wheel does, and the extra itself for those who have a clone."""
    clone = f"in a clone: pip install '.[{extra}]'."
    with suppress(PackageNotFoundError):  # of a source tree on the path, which is a clone
        asked = [one.replace('"', "'").partition(";") for one in requires(_SELF) or ()]
        needed = [name.strip() for name, _, when in asked if f"extra == '{extra}'" in when]
        return f"Install it: {shlex.join(['pip', 'install', *needed])}, or {clone}"
    return f"Install it {clone}"
