"""Say how to install what an extra names: by the libraries' own names, one wording for every error.

In: an extra. Out: a sentence. mirrorlib itself, the distribution `mirrorlib-delta`, is installed from a clone or from
its wheel: what a package index has under its plain name is somebody else's.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

from mirrorlib.errors import MirrorError

Extra = Literal["databricks", "fabric", "kafka", "local", "openlineage", "otel", "page", "postgres"]


@contextmanager
def needed(extra: Extra, package: str, error: type[MirrorError] = MirrorError) -> Iterator[None]:
    """Say what to install where a package that is imported within is missing, or lacks what it rests on."""
    try:
        yield
    except ImportError as exc:
        msg = f"the Python package {package} is not installed"
        raise error(msg, next_step=how_to_install(extra)) from exc


def how_to_install(extra: Extra) -> str:
    """Name the extra to install, for those who have a wheel, and for those who have a clone."""
    return f"Install it with mirrorlib's wheel: pip install 'WHEEL[{extra}]', or in a clone: pip install '.[{extra}]'."
