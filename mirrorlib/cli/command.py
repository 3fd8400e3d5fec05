"""A command of the command line: arguments in, one call of the library, a report out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

    from mirrorlib.tabular import Report


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """One command.

    Attributes:
        name: what it is called.
        help: what it does, in a line.
        more: what its own `--help` adds.
        add_arguments: adds what it takes.
        run: does it, and returns the report that is to be shown, or, where it was shown, whether all is well.

    """

    name: str
    help: str
    more: str = ""
    add_arguments: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace], Report | bool]
